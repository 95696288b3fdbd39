"""`BatchedPyEnvironment`: several environments in this process as one batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit import nest
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.array_spec import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.validation import check_fits, describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["BatchedPyEnvironment", "stack_rows", "unstack_actions"]


class BatchedPyEnvironment(PyEnvironment):
    """Steps several single environments together and stacks what they return.

    Each row's episodes are its own: when one ends, the next step begins a new one in
    that row alone.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
        >>> env.reset().observation
        array([0, 0], dtype=int32)
        >>> env.step([0, 1]).observation
        array([1, 1], dtype=int32)
        >>> env.close()
    """

    def __init__(
        self, envs: Sequence[PyEnvironment], multithreading: bool = True
    ) -> None:
        """Makes a batch.

        Args:
            envs: Single environments with equal specs; closing the batch closes them.
            multithreading: Whether each steps in a thread of its own. That pays where
                environments wait or release the GIL; the cheapest run faster without.
        """
        super().__init__()
        self._envs = _checked(envs)
        self._spec = EnvironmentSpec.of(self._envs[0])
        EnvironmentSpec.check_all_equal(
            [EnvironmentSpec.of(env) for env in self._envs],
            [type(env).__name__ for env in self._envs],
        )
        self._action = nest.Structure(self._spec.action)
        self._time_step = nest.Structure(self._envs[0].time_step_spec())
        self._multithreading = multithreading and len(self._envs) > 1
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many environments there are."""
        return len(self._envs)

    @property
    def envs(self) -> list[PyEnvironment]:
        """The environments, in the order of their rows."""
        return list(self._envs)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one environment's observation."""
        return self._spec.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one environment's action."""
        return self._spec.action

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one environment's reward."""
        return self._spec.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the spec of one environment's discount."""
        return self._spec.discount

    def get_info(self) -> Any:
        """Returns the infos stacked, or a list of them where they cannot be."""
        infos = self._for_each("get_info", lambda env, _: env.get_info())
        try:
            return stack_rows(nest.Structure(infos[0]), infos)
        except (SpecError, ValueError):
            return infos

    def seed(self, seed: Seed) -> list[Any]:
        """Seeds every environment: each with its own stream, or with its own seed."""
        seeds = seed_per_row(seed, len(self._envs))
        return self._for_each("seed", lambda env, row: env.seed(seeds[row]))

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the environments' pictures, stacked."""
        pictures = self._for_each("render", lambda env, _: env.render(mode))
        return np.stack(pictures) if mode == "rgb_array" else pictures

    def get_state(self) -> list[Any]:
        """Returns one token for each environment."""
        return self._for_each("get_state", lambda env, _: env.get_state())

    def set_state(self, state: Sequence[Any]) -> None:
        """Brings back what `get_state` returned, or changes nothing at all."""
        if not isinstance(state, Sequence) or len(state) != len(self._envs):
            raise ValueError(
                f"BatchedPyEnvironment.set_state() was given {describe(state)}; it "
                f"takes a list with one state for each of {len(self._envs)} "
                "environments."
            )
        before = self.get_state()
        try:
            self._for_each("set_state", lambda env, row: env.set_state(state[row]))
        except BaseException:
            for env, old in zip(self._envs, before, strict=True):
                env.set_state(old)
            raise
        self._current_time_step = self._stacked_current()

    def close(self) -> None:
        """Closes every environment, also if closing another one fails."""
        if self._closed:
            return
        self._closed = True
        try:
            self._run("close", lambda env, _: env.close(), range(len(self._envs)))
        finally:
            if self._executor is not None:
                self._executor.shutdown()

    def _reset(self) -> TimeStep:
        return self._stacked(self._for_each("reset", lambda env, _: env.reset()))

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")
        rows = np.flatnonzero(mask).tolist()
        self._run("reset", lambda env, _: env.reset(), rows)
        return self._stacked([env.current_time_step() for env in self._envs])

    def _step(self, action: NestedArray) -> TimeStep:
        actions = self._actions_by_row(action)
        ended = self.current_time_step().step_type == StepType.LAST

        def step_one(env: PyEnvironment, row: int) -> TimeStep:
            # What a step after LAST means does not depend on whether this
            # environment was written to handle it.
            return env.reset() if ended[row] else env.step(actions[row])

        return self._stacked(self._for_each("step", step_one))

    def _actions_by_row(self, action: NestedArray) -> list[NestedArray]:
        """Checks a batch of actions as a whole, then takes it apart."""
        columns = []
        for path, spec, leaf in zip(
            self._action.paths,
            self._action.leaves,
            self._action.flatten(action),
            strict=True,
        ):
            column = np.asarray(leaf)
            if leaf is None or column.shape != (len(self._envs), *spec.shape):
                self._refuse_action(leaf, column, path, spec)
            columns.append(column)
        return [self._action.unflatten(list(row)) for row in zip(*columns, strict=True)]

    def _refuse_action(
        self, leaf: Any, column: Array, path: str, spec: ArraySpec
    ) -> None:
        expected = (len(self._envs), *spec.shape)
        rows = column.shape[0] if column.ndim else None
        if leaf is not None and column.ndim == len(expected) and rows != expected[0]:
            noun = "action" if rows == 1 else "actions"
            verb = "was" if rows == 1 else "were"
            reason = (
                f"{rows} {noun} {verb} given for {expected[0]} environments; none of "
                "them has moved."
            )
        else:
            reason = "Every environment needs one action; none of them has moved."
        raise SpecError.does_not_fit(
            "BatchedPyEnvironment.step() was given an action that",
            path=nest.join("action", path),
            root="action",
            expected=repr(spec.replace(shape=expected)),
            got=describe(leaf),
            reason=reason,
        )

    def _stacked(self, time_steps: list[TimeStep]) -> TimeStep:
        try:
            stacked: TimeStep = stack_rows(self._time_step, time_steps)
        except (SpecError, ValueError):
            self._explain_misfit(time_steps)
            raise
        leaves = self._time_step.flatten(stacked)
        specs = self._time_step.leaves
        if any(
            leaf.shape[1:] != spec.shape or leaf.dtype != spec.dtype
            for spec, leaf in zip(specs, leaves, strict=True)
        ):
            self._explain_misfit(time_steps)
            # Every row fits: stacking only lost a byte order.
            leaves = [
                leaf.astype(spec.dtype)
                for spec, leaf in zip(specs, leaves, strict=True)
            ]
            stacked = self._time_step.unflatten(leaves)
        return stacked

    def _explain_misfit(self, time_steps: list[TimeStep]) -> None:
        """Raises an error that names the environment, if one can be blamed."""
        for row, (env, time_step) in enumerate(
            zip(self._envs, time_steps, strict=True)
        ):
            check_fits(
                time_step,
                self._time_step.template,
                subject=f"env {row} ({type(env).__name__}) returned a time step that",
            )

    def _stacked_current(self) -> TimeStep | None:
        current = [getattr(env, "_current_time_step", None) for env in self._envs]
        started = [time_step for time_step in current if time_step is not None]
        return self._stacked(started) if len(started) == len(current) else None

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _for_each(self, call: str, function: Callable[[Any, int], Any]) -> list[Any]:
        self._check_open(call)
        return self._run(call, function, range(len(self._envs)))

    def _run(
        self, call: str, function: Callable[[Any, int], Any], rows: Sequence[int]
    ) -> list[Any]:
        """Calls `function` for each row; every row runs even if another fails."""

        def attempt(row: int) -> tuple[Any, BaseException | None]:
            try:
                return function(self._envs[row], row), None
            except Exception as error:
                return None, error

        if self._multithreading:
            outcomes = list(self._threads().map(attempt, rows))
        else:
            outcomes = [attempt(row) for row in rows]
        failures = [
            (row, error)
            for row, (_, error) in zip(rows, outcomes, strict=True)
            if error is not None
        ]
        if failures:
            raise _with_rows(call, failures)
        return [result for result, _ in outcomes]

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(
                len(self._envs), thread_name_prefix="BatchedPyEnvironment"
            )
        return self._executor


def _with_rows(call: str, failures: list[tuple[int, BaseException]]) -> BaseException:
    """Takes the first failure and notes on it which environments failed."""
    row, error = failures[0]
    text = f"Raised by env {row} of a BatchedPyEnvironment in {call}()."
    for other, also in failures[1:]:
        text += f" env {other} raised {type(also).__name__}: {also}"
    if sys.version_info >= (3, 11):
        error.add_note(text)
    return error


def _checked(envs: Any) -> list[PyEnvironment]:
    if not isinstance(envs, list | tuple):
        raise ValueError(
            f"envs is {describe(envs)}; BatchedPyEnvironment needs a list or tuple of "
            "environments."
        )
    if not envs:
        raise ValueError("envs is empty; a batch has at least one environment.")
    first_rows: dict[int, int] = {}
    for row, env in enumerate(envs):
        if not hasattr(env, "time_step_spec"):
            call = " Did you mean to call it?" if callable(env) else ""
            raise TypeError(
                f"envs[{row}] is {describe(env)}, not an environment.{call}"
            )
        if isinstance(env, type):
            raise TypeError(
                f"envs[{row}] is the class {env.__name__}; BatchedPyEnvironment takes "
                f"environments that exist already: {env.__name__}()."
            )
        if env.batched:
            raise ValueError(
                f"envs[{row}] ({type(env).__name__}) is batched already; a "
                "BatchedPyEnvironment is made of single environments."
            )
        if id(env) in first_rows:
            raise ValueError(
                f"envs[{first_rows[id(env)]}] and envs[{row}] are the same object. "
                "Each row needs an environment of its own: "
                "[make_env() for _ in range(n)]."
            )
        first_rows[id(env)] = row
    return list(envs)


def stack_rows(structure: nest.Structure, rows: Sequence[NestedArray]) -> NestedArray:
    """Stacks values of one structure, leaf by leaf, into arrays with a row for each.

    Raises:
        SpecError: A value has another structure.
        ValueError: The arrays of one leaf differ in shape.
    """
    columns = zip(*[structure.flatten(row) for row in rows], strict=True)
    return structure.unflatten([np.array(column) for column in columns])


def unstack_actions(batched_actions: NestedArray) -> list[NestedArray]:
    """Takes a batch of actions apart: one nest for each row.

    Example:
        >>> rows = unstack_actions({"move": np.array([1, 2])})
        >>> [int(row["move"]) for row in rows]
        [1, 2]
    """
    structure = nest.Structure(batched_actions)
    columns = structure.flatten(batched_actions)
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise SpecError(
            f"The leaves of the actions have different numbers of rows: {lengths}."
        )
    return [structure.unflatten(list(row)) for row in zip(*columns, strict=True)]
