"""`GymnasiumRows`: some environments of Gymnasium as one batch, in one worker.

`vectorize` puts one into each worker. Compared with as many `GymnasiumWrapper`s, which
make a time step for each row, it makes one for all of them, in one pass over the
environments.

Beside the observation, a time step has a `report` for each row: whether the episode was
terminated, whether it was truncated, and whether there is an info. So nobody has to ask
for infos where there are none.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.adapters.gym_environments import known_to_reset, set_attribute
from envkit.adapters.py_to_gymnasium import PyToGymnasium
from envkit.adapters.spaces.plain_spaces import Places, plain_spec
from envkit.adapters.spaces.space_kinds import keeping_floats
from envkit.adapters.spaces.values import map_specs
from envkit.arrays import PythonNumbers, copied_arrays
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["HAS_INFO", "TERMINATED", "TRUNCATED", "GymnasiumRows", "RowSpaces"]

TERMINATED, TRUNCATED, HAS_INFO = 1, 2, 4
_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
_REWARD_SPEC = ArraySpec((), np.float64, "reward")
_REPORT_SPEC = ArraySpec((), np.uint8, "report")

_STEP_RESULT = "(observation, reward, terminated, truncated, info)"

# They would move environments behind the back of whoever keeps the time steps.
_MOVES = ("reset", "step", "close")


class RowSpaces(NamedTuple):
    """What `vectorize` wants to know of the environments of one worker.

    Attributes:
        observation: The observation space of each row.
        action: The action space of each row.
        metadata: The metadata of the first environment.
        render_mode: Its render mode.
    """

    observation: list[Any]
    action: list[Any]
    metadata: dict[str, Any]
    render_mode: str | None


class GymnasiumRows(PyEnvironment):
    """Steps environments of Gymnasium together.

    Where an episode has ended, the next step begins another one.

    Example:
        >>> import gymnasium
        >>> rows = GymnasiumRows([lambda: gymnasium.make("CartPole-v1")] * 2)
        >>> time_step = rows.reset()
        >>> time_step.observation["observation"].shape, time_step.observation["report"]
        ((2, 4), array([0, 0], dtype=uint8))
        >>> rows.close()
    """

    def __init__(
        self, env_fns: Iterable[Callable[[], Any]], first_row: int = 0
    ) -> None:
        """Makes the environments.

        Args:
            env_fns: What to call for each.
            first_row: The number of the first one among those of all workers.
        """
        super().__init__()
        self._first_row = first_row
        self._envs: list[Any] = []
        try:
            for env_fn in env_fns:
                with self._telling(len(self._envs), "was called"):
                    self._envs.append(_as_gymnasium(env_fn()))
            self._check_alike()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        count = len(self._envs)
        first = self._envs[0]
        self._plain_observation = plain_spec(first.observation_space)
        self._action_spec = keeping_floats(plain_spec(first.action_space))
        self._takes_arrays = isinstance(self._action_spec, ArraySpec)
        self._places = Places(self._plain_observation, count)
        self._infos: list[Mapping[str, Any]] = [{}] * count
        # By row: what the info was when the episode ended that has been left since.
        self._final_infos: dict[int, Mapping[str, Any]] = {}
        self._step_types = [_FIRST] * count
        self._rewards = [0.0] * count
        self._reports = [0] * count
        # By row: what every reset is passed, and what the next one is.
        self._known_to_reset = [known_to_reset(env) for env in self._envs]
        self._arguments: dict[int, dict[str, Any]] = {}

    def _check_alike(self) -> None:
        for name in ("observation_space", "action_space"):
            first = getattr(self._envs[0], name)
            for row, env in enumerate(self._envs):
                space = getattr(env, name)
                if plain_spec(space) != plain_spec(first):
                    raise RuntimeError(
                        f"env_fns[{self._first_row}] and "
                        f"env_fns[{self._first_row + row}] have different {name}s, so "
                        f"they cannot form one batch.\n\n  {first}\n  {space}"
                    )

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many environments there are."""
        return len(self._envs)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of a row's observation, and of the report beside it."""
        return {"observation": self._plain_observation, "report": _REPORT_SPEC}

    def action_spec(self) -> NestedSpec:
        """Returns the specs of a row's action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward, as exact as Gymnasium's."""
        return _REWARD_SPEC

    # What comes with the next reset.

    def seed(self, seed: Seed) -> None:
        """Keeps a seed for the next reset of each row; `None` lets it go on."""
        for row, own in enumerate(seed):  # type: ignore[arg-type]  # pools pass lists
            if own is not None:
                self._arguments.setdefault(row, {})["seed"] = own

    def set_reset_options(self, options: Any, mask: Sequence[bool]) -> None:
        """Keeps options for the next reset of the masked rows.

        Args:
            options: The options.
            mask: Which of the rows of all workers are meant.
        """
        for row in range(len(self._envs)):
            if mask[self._first_row + row]:
                # A dictionary for each: an environment may change its own.
                self._arguments.setdefault(row, {})["options"] = copy.deepcopy(options)

    # Rows.

    def _reset(self) -> TimeStep:
        return self._reset_rows(np.ones(len(self._envs), bool))

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._final_infos = {}
        for row in np.flatnonzero(mask).tolist():
            if self._step_types[row] == _LAST:
                self._final_infos[row] = copied_arrays(self._infos[row])
            self._begin(row)
        return self._time_step()

    def _begin(self, row: int) -> None:
        with self._telling(row, "raised in reset()"):
            arguments = {**self._known_to_reset[row], **self._arguments.pop(row, {})}
            result = self._envs[row].reset(**arguments)
            try:
                observation, info = result
            except (TypeError, ValueError):
                raise _bad_result("reset", result, "(observation, info)") from None
            self._places.put(row, observation)
        self._step_types[row] = _FIRST
        self._rewards[row] = 0.0
        self._reports[row] = HAS_INFO if info else 0
        self._infos[row] = info

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: each line in the loop runs once per environment and step.
        if self._final_infos:
            self._final_infos = {}
        types, rewards, reports = self._step_types, self._rewards, self._reports
        infos, put, row, result = self._infos, self._places.put, 0, None
        try:
            for row, (env, own) in enumerate(
                zip(self._envs, self._own_actions(action), strict=True)
            ):
                if types[row] == _LAST:
                    self._begin(row)
                    continue
                result = env.step(own)
                observation, rewards[row], terminated, truncated, info = result
                put(row, observation)
                infos[row] = info
                if terminated or truncated:
                    types[row] = _LAST
                    reports[row] = (
                        (TERMINATED if terminated else 0)
                        | (TRUNCATED if truncated else 0)
                        | (HAS_INFO if info else 0)
                    )
                else:
                    types[row] = _MID
                    reports[row] = HAS_INFO if info else 0
        except BaseException as raised:
            self._tell(raised, row, "raised in step()")
            if isinstance(result, tuple) and len(result) != 5:
                error = _bad_result("step", result, _STEP_RESULT)
                self._tell(error, row, "raised in step()")
                raise error from raised
            raise
        return self._time_step()

    def _own_actions(self, action: NestedArray) -> Iterable[Any]:
        """Returns each environment's own action."""
        if self._takes_arrays:
            if type(action) is np.ndarray and not action.dtype.hasobject:
                return action
            return (_own(action, row) for row in range(len(self._envs)))
        return (
            map_specs(functools.partial(_own, row=row), action)
            for row in range(len(self._envs))
        )

    def _time_step(self) -> TimeStep:
        reports = np.array(self._reports, np.uint8)
        return TimeStep(
            np.array(self._step_types, np.int32),
            np.array(self._rewards, np.float64),
            (reports & TERMINATED == 0).astype(np.float32),
            {"observation": self._places.copy(), "report": reports},
        )

    # What the environments are asked.

    def row_infos(
        self, rows: Sequence[int]
    ) -> dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Returns for each of these rows the info of what happened, and that of now.

        They differ where an episode has ended and the next has begun at once.
        """
        found = {}
        for row in rows:
            own = row - self._first_row
            if 0 <= own < len(self._envs):
                now = self._infos[own]
                found[row] = self._final_infos.get(own, now), now
        return found

    def row_spaces(self) -> RowSpaces:
        """Returns what the environments say of themselves."""
        first = self._envs[0]
        return RowSpaces(
            _with_equal_ones_once([env.observation_space for env in self._envs]),
            _with_equal_ones_once([env.action_space for env in self._envs]),
            dict(getattr(first, "metadata", None) or {}),
            getattr(first, "render_mode", None),
        )

    def call_rows(self, name: str, args: Any, kwargs: Any) -> list[Any]:
        """Calls a method of each environment; an attribute that is none is returned."""
        if name in _MOVES:
            raise ValueError(
                f"call({name!r}) would move environments behind the batch's back. Use "
                f"{name}() itself."
            )
        results = []
        for row, env in enumerate(self._envs):
            with self._telling(row, f"raised in call({name!r})"):
                found = _attribute(env, name)
                results.append(found(*args, **kwargs) if callable(found) else found)
        return results

    def set_rows(self, name: str, values: Sequence[Any]) -> None:
        """Sets an attribute of each environment.

        Args:
            name: The attribute.
            values: A value for each row of all workers.
        """
        for row, env in enumerate(self._envs):
            with self._telling(row, f"raised in set_attr({name!r})"):
                set_attribute(env, name, values[self._first_row + row])

    def close(self) -> None:
        """Closes every environment, also if closing another one fails."""
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)
            self._envs = []

    @contextlib.contextmanager
    def _telling(self, row: int, what: str) -> Any:
        """Notes on whatever is raised which of the environments it was."""
        try:
            yield
        except BaseException as error:
            self._tell(error, row, what)
            raise

    def _tell(self, error: BaseException, row: int, what: str) -> None:
        notes = getattr(error, "__notes__", [])
        if notes and notes[-1].startswith("env_fns["):
            return
        # Where Python has add_note (3.11) it does this. An exception that cannot take
        # a note matters more than the note.
        with contextlib.suppress(Exception):
            text = f"env_fns[{self._first_row + row}] {what}."
            error.__notes__ = [*notes, text]  # type: ignore[attr-defined,unused-ignore]


def _as_gymnasium(env: Any) -> Any:
    """Returns an environment of Gymnasium, as it is or made of one of envkit's."""
    # One of envkit's may forward everything else to one of Gymnasium's.
    if hasattr(type(env), "time_step_spec"):
        return PyToGymnasium(env)
    # Asked of the innermost: before 1.0 Gymnasium's wrappers warn about such questions.
    innermost = getattr(env, "unwrapped", env)
    if hasattr(innermost, "single_observation_space"):
        raise TypeError(
            f"It returned the vector environment {type(env).__name__}; vectorize takes "
            "functions that make single environments."
        )
    needed = ("reset", "step", "observation_space", "action_space", "get_wrapper_attr")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"It returned {what}, which is no environment of Gymnasium's or envkit's."
        )
    return env


def _attribute(env: Any, name: str) -> Any:
    """Returns an attribute of one of Gymnasium's, or of envkit's inside it."""
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        # It does not show as its own what every environment of envkit's has.
        if isinstance(env, PyToGymnasium) and hasattr(PyEnvironment, name):
            return getattr(env.wrapped_env(), name)
        raise


def _bad_result(call: str, result: Any, expected: str) -> TypeError:
    return TypeError(
        f"{call}() returned {describe(result)}; in Gymnasium it returns the tuple "
        f"{expected}. Environments written for the old Gym return other ones."
    )


def _own(column: Any, row: int) -> Any:
    """Returns a row's part of an action as Gymnasium's vector environments pass it."""
    own = column[row]
    return own.tolist() if PythonNumbers in (type(column), type(own)) else own


def _with_equal_ones_once(spaces: list[Any]) -> list[Any]:
    """Puts one object where there are several that are equal: they travel once."""
    distinct: list[Any] = []
    chosen = []
    for space in spaces:
        same = next((other for other in distinct if other == space), None)
        if same is None:
            distinct.append(space)
        chosen.append(space if same is None else same)
    return chosen
