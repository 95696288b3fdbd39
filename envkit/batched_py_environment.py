"""Combines several environments in one batch: `BatchedPyEnvironment`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._internal.first_look import leave_unseen, refuse_unpacking
from envkit._internal.internals import Internals, has_internals
from envkit._internal.objects import as_environment, is_of_library
from envkit._internal.text import counted
from envkit._internal.threads import wait_a_while
from envkit._internal.worker_process import WorkerProcess, workers_inside
from envkit.actions import action_rows
from envkit.async_environment import as_envs
from envkit.base_wrapper import (
    PyEnvironmentBaseWrapper,
    WrapperInternals,
    rendered,
    set_attribute,
)
from envkit.batches import hand_options
from envkit.errors import ClosedError, SpecError
from envkit.provenance import recipe_of, recipe_of_rows, record_seed
from envkit.py_environment import PyEnvironment, SpecKeeper
from envkit.seeding import seed_per_row
from envkit.specs.arrays import ArraySpec
from envkit.specs.batching import (
    as_specs,
    common_spec,
    masks_of,
    mixed_continues,
    stacked_infos,
)
from envkit.specs.environment_spec import (
    EnvironmentSpec,
    common_info_spec,
    info_spec_of,
)
from envkit.specs.validation import check_fits, describe
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = [
    "BatchedPyEnvironment",
    "PaddedRows",
    "RowCalls",
    "unstack_actions",
]


_LAST = int(StepType.LAST)


class _BatchInternals(Internals):
    """Connects several environments in one batch to envkit."""

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the batch's recipe, including those of its environments."""
        if env._specs == "equal":
            return recipe_of_rows(env, map(recipe_of, env._envs))
        envs: list[Any] = list(env._envs)
        if env._specs == "pad":
            envs = [one.wrapped_env() for one in envs]
        recipe = recipe_of_rows(env, map(recipe_of, envs))
        return {**recipe, "arguments": {"specs": env._specs}}

    def inside(self, env: Any) -> list[Any]:
        """Returns the environments of the rows."""
        envs: list[Any] = env._envs
        return envs

    def padding_rows(self, env: Any) -> Array | None:
        """Returns the rows whose environments pad."""
        if not env._repeats_last:
            return None
        asked = [
            has_internals(one) and bool(one._envkit.padding_rows(one))
            for one in env._envs
        ]
        return np.array(asked)

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Hands each environment its own options."""
        env._check_open("reset")
        everyone = range(len(env._envs))
        given = [None for _ in everyone] if options is None else options
        asked = [
            row
            for row in everyone
            # All forget old options, but only environments to be reset get new ones.
            if options is None
            or (given[row] is not None and (rows is None or rows[row]))
        ]
        env._calls.run("reset", lambda one, row: hand_options(one, given[row]), asked)

    def check_open(self, env: Any, call: str) -> None:
        """Raises if the batch is closed."""
        env._check_open(call)


class BatchedPyEnvironment(SpecKeeper, PyEnvironment):
    """Steps several single environments together and stacks their time steps.

    Each row has its own episodes: when one ends, the next step begins a new one in that
    row alone, unless `autoreset` says otherwise.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
        >>> env.reset().observation
        array([0, 0], dtype=int32)
        >>> env.step([0, 1]).observation
        array([1, 1], dtype=int32)
        >>> env.close()
    """

    # It checks its environments' time steps itself, and names the environment.
    _envkit = _BatchInternals(one_thread=True, first_look=False)
    _calls_to_look_at: tuple[str, ...] = ("reset", "step")

    def __init__(
        self,
        envs: Sequence[PyEnvironment],
        multithreading: bool = True,
        *,
        specs: str = "equal",
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    ) -> None:
        """Makes a batch.

        Args:
            envs: Single environments; closing the batch closes them.
            multithreading: Whether they step in threads, at most one per environment.
                This helps if environments wait or release the GIL; very cheap ones are
                faster without.
            specs: What may differ between the environments: nothing ("equal"), bounds
                ("union"), or bounds and the shapes of observations ("pad").
            autoreset: When the next episode begins after a `LAST`.
        """
        super().__init__()
        self._envs = _checked(envs)
        if self._calls_to_look_at:
            for env in self._envs:
                leave_unseen(env)
        self._specs = as_specs(specs)
        own = [EnvironmentSpec.of(env) for env in self._envs]
        names = [type(env).__name__ for env in self._envs]
        self._spec = common_spec(own, names, self._specs)
        if self._specs == "pad":
            self._envs = [PaddedRows(env, self._spec) for env in self._envs]
        self._actions = action_rows(
            self._spec.action,
            [spec.action for spec in own],
            "BatchedPyEnvironment.step()",
        )
        first = self._envs[0].time_step_spec()
        self._time_step = nest.Structure(
            first if self._specs == "equal" else self.time_step_spec()
        )
        self._places = [
            _Place(spec.dtype, spec.shape, len(spec.shape) + 1, spec)
            for spec in self._time_step.leaves
        ]
        self._repeats_last = any(
            getattr(env, "repeats_last", False) is True for env in self._envs
        )
        self._continues = _continue_after_last(self._envs)
        self.autoreset = AutoReset.of(autoreset)
        self._calls = RowCalls(self._envs, multithreading=multithreading)
        self._closed = False

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """The number of environments."""
        return len(self._envs)

    @property
    def repeats_last(self) -> bool:
        """Whether a row may repeat its `LAST`."""
        return self._repeats_last

    @property
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` uses its action, in every row."""
        return self._continues

    @property
    def adapts(self) -> bool:
        """True if any row's environment adapts."""
        return any(getattr(env, "adapts", False) is True for env in self._envs)

    @property
    def one_per_process(self) -> bool:
        """Whether a process may hold only one instance of some row's environment."""
        return any(getattr(env, "one_per_process", False) is True for env in self._envs)

    @property
    def envs(self) -> list[PyEnvironment]:
        """The environments, in the order of their rows."""
        return list(self._envs)

    @property
    def workers(self) -> list[WorkerProcess]:
        """The processes of its environments, if they have some, as a pool's `workers`.

        Example:
            >>> from envkit import ProcessPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ProcessPyEnvironment(CountingEnv) as one:
            ...     batch = BatchedPyEnvironment([CountingEnv(), one])
            ...     [worker.rows for worker in batch.workers]
            [(1,)]
        """
        return workers_inside(self._envs)

    def get_info(self) -> Any:
        """Returns the infos stacked, or as a list if they cannot be stacked."""
        infos = self._for_each("get_info", lambda env, _: env.get_info())
        return stacked_infos(infos)

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs that all environments declare for one row's info."""
        return common_info_spec([info_spec_of(env) for env in self._envs])

    def seed(self, seed: Seed) -> list[Any]:
        """Seeds every environment: each with its own stream, or with its own seed."""
        seeds = seed_per_row(seed, len(self._envs))
        record_seed(self, seed)
        return self._for_each("seed", lambda env, row: env.seed(seeds[row]))

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._check_open("seed")
        rows = [row for row, seed in enumerate(seeds) if seed is not None]
        self._calls.run("seed", lambda env, row: env.seed(seeds[row]), rows)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the environments' pictures, stacked; for other modes, a list.

        Args:
            mode: "rgb_array" for pictures, or another mode of the environments.

        Raises:
            NotImplementedError: The environments do not render in this mode.
        """
        if mode == "human":
            # A window belongs to the thread that opens it.
            self._check_open("render")
            return [rendered(env, mode) for env in self._envs]
        pictures = self._for_each("render", lambda env, _: rendered(env, mode))
        return np.stack(pictures) if mode == "rgb_array" else pictures

    def set_attr(
        self, name: str, value: Any, env_ids: Sequence[int] | None = None
    ) -> None:
        """Sets an attribute of environments, in whichever of their wrappers has it.

        Args:
            name: The attribute.
            value: The value, the same for all environments.
            env_ids: The environments to change; `None` for all.

        Example:
            >>> from envkit.testing import CountingEnv
            >>> env = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
            >>> env.set_attr("level", 3)
            >>> env.set_attr("level", 5, env_ids=[1])
            >>> [one.level for one in env.envs]
            [3, 5]
        """
        self._check_open("set_attr")
        for env in as_envs(env_ids, len(self._envs)):
            set_attribute(self._envs[env], name, value)

    def get_state(self) -> list[Any]:
        """Returns one state per environment."""
        return self._for_each("get_state", lambda env, _: env.get_state())

    def set_state(self, state: Sequence[Any]) -> None:
        """Restores the result of `get_state`, or changes nothing."""
        self._check_open("set_state")
        if not isinstance(state, Sequence) or len(state) != len(self._envs):
            raise ValueError(
                f"BatchedPyEnvironment.set_state() was given {describe(state)}; it "
                f"takes a list with one state for each of {len(self._envs)} "
                "environments."
            )
        before = self.get_state()
        try:
            self._for_each("set_state", lambda env, row: env.set_state(state[row]))
            current = self._stacked_current()
        except BaseException:
            for env, old in zip(self._envs, before, strict=True):
                # The error being raised says more than this second refusal.
                with contextlib.suppress(Exception):
                    env.set_state(old)
            raise
        self._current_time_step = current

    def close(self) -> None:
        """Closes every environment, even if closing one fails."""
        if self._closed:
            return
        self._closed = True
        try:
            self._calls.run("close", lambda env, _: env.close(), range(len(self._envs)))
        finally:
            self._calls.close()

    def _reset(self) -> TimeStep:
        return self._answer("reset", lambda env, _: env.reset())

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")

        def reset_one(env: PyEnvironment, row: int) -> TimeStep:
            return env.reset() if mask[row] else env.current_time_step()

        return self._answer("reset", reset_one)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        self._check_open("step")
        begins = beginning | (stepping & np.array(self._ended()))
        moves = stepping & ~begins
        actions = self._actions_by_row(action, (~moves).tolist())

        def move_one(env: PyEnvironment, row: int) -> TimeStep:
            if begins[row]:
                return env.reset()
            return env.step(actions[row]) if moves[row] else env.current_time_step()

        return self._answer("step", move_one)

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per batch step. For the few rows that are stepped one by one,
        # lists are faster than arrays.
        if self._closed:
            self._check_open("step")
        ended = self._ended()
        actions = self._actions_by_row(action, ended)

        def step_one(env: PyEnvironment, row: int) -> TimeStep:
            # The batch decides what a step after LAST does, whether or not the
            # environment handles it.
            return env.reset() if ended[row] else env.step(actions[row])

        return self._answer("step", step_one)

    def _ended(self) -> list[bool]:
        """Returns for each row whether its next step begins an episode."""
        # Hot: called once per batch step.
        step_types = self.current_time_step().step_type.tolist()
        if self._continues:
            return [False for _ in step_types]
        ended = [step_type == _LAST for step_type in step_types]
        if not self._repeats_last or True not in ended:
            return ended
        return [
            over and not getattr(env, "repeats_last", False)
            for over, env in zip(ended, self._envs, strict=True)
        ]

    def _answer(
        self, call: str, function: Callable[[PyEnvironment, int], TimeStep]
    ) -> TimeStep:
        try:
            time_steps = self._for_each(call, function)
            if call in self._calls_to_look_at:
                self._look_at(call, time_steps)
            return self._stacked(time_steps)
        except BaseException:
            # The other rows have moved, and the next step must know where they are.
            with contextlib.suppress(SpecError, ValueError):
                self._current_time_step = self._stacked_current()
            raise

    def _actions_by_row(
        self, action: NestedArray, ended: list[bool]
    ) -> list[NestedArray]:
        """Checks a batch of actions as a whole, then splits it by row."""
        # Hot: called once per batch step. Copies, so neither side sees the other's
        # changes.
        ignored = np.array(ended) if True in ended else None
        structure = self._actions.structure
        columns = [
            column.astype(spec.dtype)
            for column, spec in zip(
                self._actions.columns(action, ignored=ignored),
                structure.leaves,
                strict=True,
            )
        ]
        unflatten = structure.unflatten
        if not columns:
            return [unflatten([]) for _ in self._envs]
        return [unflatten(row) for row in zip(*columns, strict=True)]

    def _stacked(self, time_steps: list[TimeStep]) -> TimeStep:
        """Stacks time steps, each of which must have exactly the specs' dtypes."""
        stacked: TimeStep = self._time_step.unflatten(self._columns(time_steps))
        return stacked

    def _columns(self, time_steps: list[TimeStep]) -> list[Array]:
        """Returns one array with all rows for each leaf."""
        # Hot: called once per batch step.
        flatten, places = self._time_step.flatten, self._places
        rows = []
        for row, time_step in enumerate(time_steps):
            try:
                leaves = flatten(time_step)
            except SpecError:
                leaves = []
            if not _fit(leaves, places):
                self._explain_misfit(row, time_step)
            rows.append(leaves)
        return [
            # In object arrays, the objects are the values.
            np.stack(column) if place.dtype.hasobject else np.array(column, place.dtype)
            for column, place in zip(zip(*rows, strict=True), places, strict=True)
        ]

    def _look_at(self, call: str, time_steps: list[TimeStep]) -> None:
        """Checks everything that environments returned, once per call."""
        refuse_unpacking()
        for row, time_step in enumerate(time_steps):
            self._explain_misfit(row, time_step)
        self._calls_to_look_at = tuple(
            other for other in self._calls_to_look_at if other != call
        )

    def _explain_misfit(self, row: int, time_step: TimeStep) -> None:
        kind = type(self._envs[row]).__name__
        check_fits(
            time_step,
            self._time_step.template,
            subject=f"env {row} ({kind}) returned a time step that",
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
        return self._calls.run(call, function, range(len(self._envs)))


class _Place(NamedTuple):
    """Describes a leaf: its spec, and its rank in the batch."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    rank: int
    spec: ArraySpec


def _fit(leaves: Sequence[Any], places: Sequence[_Place]) -> bool:
    """Returns True if shapes and dtypes are right; does not check bounds."""
    # Hot: called once per row and batch step.
    if len(leaves) != len(places):
        return False
    for leaf, (dtype, shape, _, spec) in zip(leaves, places, strict=True):
        if type(leaf) is np.ndarray or isinstance(leaf, np.generic):
            # NumPy has one object for each of its own dtypes.
            if leaf.dtype is not dtype and leaf.dtype != dtype:
                return False
            if leaf.shape != shape:
                return False
        elif not spec.check_array(leaf):
            return False
    return True


def _checked(envs: Any) -> list[PyEnvironment]:
    if not isinstance(envs, list | tuple):
        way = " envkit.make(envs) wraps it." if is_of_library(envs) else ""
        raise ValueError(
            f"envs must be a list or tuple of environments, got {describe(envs)}.{way}"
        )
    if not envs:
        raise ValueError("envs must have at least one environment, got none.")
    first_rows: dict[int, int] = {}
    rows = []
    for row, given in enumerate(envs):
        if isinstance(given, type):
            raise TypeError(
                f"envs[{row}] is the class {given.__name__}; BatchedPyEnvironment "
                f"takes environments that exist already: {given.__name__}()."
            )
        env = as_environment(given, f"envs[{row}] is")
        if env.batched:
            raise ValueError(
                f"envs[{row}] ({type(env).__name__}) is batched already; a "
                "BatchedPyEnvironment is made of single environments."
            )
        if id(given) in first_rows:
            raise ValueError(
                f"envs[{first_rows[id(given)]}] and envs[{row}] are the same object. "
                "Each row needs an environment of its own: "
                "[make_env() for _ in range(n)]."
            )
        first_rows[id(given)] = row
        rows.append(env)
    return rows


def _continue_after_last(envs: Sequence[Any]) -> bool:
    """Returns whether environments continue after a `LAST`; raises if they differ."""
    said = [getattr(env, "continues_after_last", False) is True for env in envs]
    if any(said) and not all(said):
        raise ValueError(mixed_continues(said, [type(env).__name__ for env in envs]))
    return said[0]


def unstack_actions(batched_actions: NestedArray) -> list[NestedArray]:
    """Splits a batch of actions: one nest per row.

    Example:
        >>> rows = unstack_actions({"move": np.array([1, 2])})
        >>> [int(row["move"]) for row in rows]
        [1, 2]
    """
    for path, leaf in nest.flatten_with_paths(batched_actions):
        if np.ndim(leaf) == 0:
            place = f" at {nest.join('actions', path)}" if path else ""
            raise SpecError(
                f"unstack_actions() was given {describe(leaf)}{place}, which has no "
                "rows. Each leaf is an array with one row for each environment."
            )
    columns = nest.flatten(batched_actions)
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise SpecError(
            f"The leaves of the actions have different numbers of rows: {lengths}."
        )
    return [
        nest.unflatten_as(batched_actions, row) for row in zip(*columns, strict=True)
    ]


class PaddedRows(SpecKeeper, PyEnvironmentBaseWrapper):
    """Pads observations with zeros to the spec of a batch, and adds the masks.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.specs.batching import common_spec
        >>> envs = [Catch(rows=3), Catch(rows=5)]
        >>> specs = [env.environment_spec() for env in envs]
        >>> env = PaddedRows(envs[0], common_spec(specs, ["a", "b"], "pad"))
        >>> observation = env.reset().observation
        >>> observation["observation"].shape, observation["mask"].sum(axis=1)
        ((5, 5), array([5, 5, 5, 0, 0]))
    """

    # The batch checks its time steps.
    _envkit = WrapperInternals(first_look=False)

    def __init__(self, env: Any, spec: EnvironmentSpec) -> None:
        """Wraps an environment; `spec` is the `common_spec` of all with "pad"."""
        super().__init__(env)
        own = EnvironmentSpec.of(env)
        self._spec = spec
        self._own = nest.Structure(own.observation)
        self._shapes = [self._dims + leaf.shape for leaf in self._own.leaves]
        padded = nest.flatten(spec.observation["observation"])
        # The position of a leaf in a larger one; `None` if both are equally large.
        self._places: list[Any] = [
            None
            if leaf.shape == common.shape
            else (
                self._dims + common.shape,
                leaf.dtype,
                (..., *map(slice, leaf.shape)),
            )
            for leaf, common in zip(self._own.leaves, padded, strict=True)
        ]
        # In the order of leaves, they come before the observation.
        self._masks = [self._by_row(mask) for mask in nest.flatten(masks_of(spec, own))]
        self._whole = nest.Structure(spec.observation)

    def _by_row(self, mask: Array) -> Array:
        return np.broadcast_to(mask, self._dims + mask.shape)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._own.flatten(time_step.observation)
        for index, place in enumerate(self._places):
            leaf = leaves[index]
            if np.shape(leaf) != self._shapes[index]:
                self._refuse(time_step)
            if place is not None:
                shape, dtype, part = place
                leaves[index] = array = np.zeros(shape, dtype)
                array[part] = leaf
        masks = [mask.copy() for mask in self._masks]
        observation = self._whole.unflatten([*masks, *leaves])
        return time_step._replace(observation=observation)

    def _refuse(self, time_step: TimeStep) -> None:
        check_fits(
            time_step.observation,
            self._own.template,
            subject=f"{type(self._env).__name__} returned an observation that",
            root="observation",
            outer_dims=self._dims,
        )


class RowCalls:
    """Calls functions on environments one after the other, or each in a thread.

    Example:
        >>> calls = RowCalls(["a", "b"], multithreading=False)
        >>> calls.run("upper", lambda env, row: f"{row}{env.upper()}", [0, 1])
        ['0A', '1B']
    """

    def __init__(self, envs: Sequence[Any], *, multithreading: bool) -> None:
        """Stores the environments; threads are started when first needed.

        Args:
            envs: The environments, by row.
            multithreading: Whether each environment is called in its own thread.
        """
        self._envs = envs
        self._multithreading = multithreading and len(envs) > 1
        self._executor: ThreadPoolExecutor | None = None

    def run(
        self, call: str, function: Callable[[Any, int], Any], rows: Sequence[int]
    ) -> list[Any]:
        """Calls `function(env, row)` for each row and returns the results in order.

        Every row is called even if another raises. Then the first exception is raised,
        with a note of the environments that failed in `call`.

        Args:
            call: The name of the call in the note, such as "step".
            function: Called with an environment and its row.
            rows: The rows to call.

        Returns:
            The results of the function, in the order of `rows`.
        """

        def attempt(row: int) -> tuple[Any, Exception | None]:
            try:
                return function(self._envs[row], row), None
            except Exception as error:
                return None, error

        if self._multithreading:
            outcomes = self._attempt_in_threads(attempt, rows)
        else:
            outcomes = [attempt(row) for row in rows]
        failures = [
            (row, error)
            for row, (_, error) in zip(rows, outcomes, strict=True)
            if error is not None
        ]
        if failures:
            raise self.failed(call, failures)
        return [result for result, _ in outcomes]

    @staticmethod
    def failed(call: str, failures: Sequence[tuple[int, Exception]]) -> Exception:
        """Returns the first failure, with a note of the environments that failed.

        Args:
            call: The name of the failed call in the note.
            failures: Rows with their exceptions, at least one.
        """
        (row, error), *rest = failures
        text = f"Raised by env {row} of a BatchedPyEnvironment in {call}()."
        if rest:
            text += f" {counted(len(rest), 'other environment')} failed too:"
        for other, also in rest:
            text += f"\n  env {other} raised {type(also).__name__}: {also}"
        notes = getattr(error, "__notes__", [])
        if text not in notes:  # some environments raise the same object each time
            # Python 3.11 has add_note for this; before, pytest and others read
            # __notes__. The exception matters more than a note that it cannot take.
            with contextlib.suppress(Exception):
                error.__notes__ = [*notes, text]  # type: ignore[attr-defined,unused-ignore]
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        # Threads cannot be copied; a copy starts its own.
        make = functools.partial(RowCalls, multithreading=self._multithreading)
        return make, (self._envs,)

    def close(self) -> None:
        """Ends the threads."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def _attempt_in_threads(
        self, attempt: Callable[[int], Any], rows: Sequence[int]
    ) -> list[Any]:
        from concurrent.futures import ThreadPoolExecutor

        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                len(self._envs), thread_name_prefix="envkit-row"
            )
        turnstile = _Turnstile()
        try:
            return list(self._executor.map(turnstile.guarding(attempt), rows))
        except BaseException:
            # Ctrl-C arrives here while environments are still stepping, and the next
            # call must find none in a step. The executor cannot tell: a thread that is
            # just starting is not on its list yet.
            turnstile.close()
            raise


class _Turnstile:
    """Counts running calls, and refuses new ones after it is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def guarding(self, function: Callable[[int], Any]) -> Callable[[int], Any]:
        """Returns the function with its calls counted."""

        def guarded(row: int) -> Any:
            with self._changed:
                if self._closed:
                    return None
                self._inside += 1
            try:
                return function(row)
            finally:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

        return guarded

    def close(self) -> None:
        """Waits until every running call has returned."""
        with self._changed:
            self._closed = True
            while self._inside:
                wait_a_while(self._changed)
