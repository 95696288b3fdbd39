"""Steps a single environment without creating time steps: `DirectRow`.

A library's environment returns an observation, a reward, two flags and an info: a
`Result`. On a pool's row, a `DirectRow` writes these into their columns and creates no
time step, which takes a fifth of the time. A result that cannot be written unchanged,
for example an observation that must be converted, becomes a time step as usual.

An environment offers one through the `direct_row` of its `Internals`. Between `enter`
and `leave` the environment has no time step; it is made from the row on demand.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from envkit.time_step import StepType, TimeStep

__all__ = [
    "BEGUN",
    "ENDED",
    "CurrentTimeStep",
    "DirectRow",
    "EpisodeEdge",
    "Result",
]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# If this many entries in a row lasted only one step each, the environment returns to
# time steps, because entering and leaving cost more than they do.
_IN_VAIN = 4
_INTEGERS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})
_FLOATS = frozenset([float, np.float64])


class Result(NamedTuple):
    """Holds the parts of a step: a library's answer to an action.

    Attributes:
        observation: The new observation.
        reward: The reward of the action.
        terminated: Whether the episode has terminated.
        truncated: Whether the episode was truncated; its future still has a value.
        info: Further facts.
        discount: The discount, if the library provides one; `None` derives it from the
            flags.

    Example:
        >>> Result(7, -1.0, truncated=True).info is None
        True
    """

    observation: Any
    reward: Any = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] | None = None
    discount: Any = None


class EpisodeEdge(enum.Enum):
    """Signals that a row wrote the first or last time step of an episode."""

    BEGUN = "a FIRST"
    ENDED = "a LAST"


BEGUN: Final = EpisodeEdge.BEGUN
ENDED: Final = EpisodeEdge.ENDED


class DirectRow:
    """Steps a single environment on a row without time steps.

    The environment stores its info in `_info`. A wrapper that only counts steps, such
    as `TimeLimit`, joins through `limit`, and one that only does something around the
    library's calls through `surround`.

    Attributes:
        owner: The environment.
        layers: The environment, and the wrappers around it that join.
        choices: The library's action for each number; `None` if actions are passed on
            unchanged.
        discount: The discount of each `MID`.
        first_discount: The discount of each `FIRST`.
        last_discount: The discount of the last `LAST` written.
        step_type: The last step type written.
        terminated: Whether the last `LAST` written has terminated its episode.
        truncated: Whether the last `LAST` written has truncated its episode.
        is_cut: Whether only the counter treats it as a `LAST`.
        row: The row's index in the columns.
        forked: Not empty in a process forked by the environment, which must write
            nothing.
        most: The number of steps at which the limit ends an episode.
        counter: The layer that counts steps to limit them; the environment if none
            does.
        place: The last observation written; `None` since `enter`.
        reward: The last reward written.
    """

    __slots__ = (
        "_asks_info",
        "_begin",
        "_classes",
        "_count",
        "_dtype",
        "_end",
        "_finish",
        "_finish_first",
        "_fits",
        "_kept",
        "_key",
        "_move",
        "_numbers",
        "_over",
        "_reward_dtype",
        "_see",
        "_shape",
        "_shown",
        "_steps",
        "_usual",
        "_vain",
        "choices",
        "counter",
        "discount",
        "first_discount",
        "forked",
        "is_cut",
        "last_discount",
        "layers",
        "most",
        "owner",
        "place",
        "reward",
        "row",
        "step_type",
        "terminated",
        "truncated",
    )
    forked: Collection[int]
    place: Any
    reward: Any
    row: int
    last_discount: Any
    terminated: bool
    truncated: bool
    _shown: TimeStep
    _count: Callable[[TimeStep], TimeStep]
    _see: Callable[[TimeStep, None], TimeStep]

    def __init__(
        self,
        env: Any,
        *,
        move: Callable[[Any], Any],
        begin: Callable[[], Any],
        end: Callable[[Any, bool, bool], None],
        finish: Callable[[Any], TimeStep],
        finish_first: Callable[[Any], TimeStep],
        choices: Mapping[int, Any] | None,
        discount: Any,
        numbers: Collection[type],
        fits: Callable[[Any], bool] | None = None,
        asks_info: bool = False,
    ) -> None:
        """Takes an environment whose observation is one array.

        Args:
            env: The environment.
            move: Applies an action of the library, and returns a `Result` or a tuple of
                its first five parts.
            begin: Begins an episode and returns its observation.
            end: Called at the end of an episode with its info and both flags.
            finish: Converts the result of `move` to a time step, or raises.
            finish_first: Converts the result of `begin` to a time step.
            choices: The library's action for each number; `None` if actions are passed
                on unchanged.
            discount: The discount of each `MID`, an array.
            numbers: The classes of rewards that can be written unchanged.
            fits: Returns whether an observation of the right shape and dtype is within
                its bounds; `None` if that need not be checked.
            asks_info: Whether `get_info` returns more than `move` and `begin` do.
        """
        self.owner, self.layers = env, [env]
        # Set without `__setattr__`, which some adapters define.
        self._kept = vars(env)
        self._move, self._begin, self._end = move, begin, end
        self._finish, self._finish_first = finish, finish_first
        self.choices, self.discount = choices, discount
        self._usual = float(discount)
        self._numbers, self._fits, self._asks_info = numbers, fits, asks_info
        self.counter: Any = self
        self.most = sys.maxsize
        self._steps, self.place, self.reward = 0, None, 0.0
        self.step_type, self.is_cut = _MID, False
        self._vain = 0
        spec = env.observation_spec()
        self._dtype, self._shape = spec.dtype, None
        self._reward_dtype = env.reward_spec().dtype
        self.first_discount, self._over = (
            _constant(number, env.discount_spec().dtype) for number in (1.0, 0.0)
        )
        if spec.shape == ():
            self._classes: Collection[Any] = _INTEGERS
            self._key: Any = ()
        else:
            self._classes = frozenset([np.ndarray])
            is_flat = len(spec.shape) == 1
            self._key = slice(None) if is_flat else ...
            # Assigning flat arrays checks shape and dtype.
            self._shape = None if is_flat else spec.shape

    def step(
        self, action: Any, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge | None:
        """Steps the environment, and writes the result if it can be written unchanged.

        Args:
            action: An action as the library takes it.
            place: The row's observation.
            rewards: The column of rewards.
            wants_info: Whether a step with an info must have a time step.

        Returns:
            `None` if it was written as a `MID`, `ENDED` if as a `LAST`, else the time
            step to write.
        """
        # Hot: called once per row and step, like most of the functions it calls.
        result = self._move(action)
        try:
            discount = None
            if result.__class__ is Result:
                observation, reward, terminated, truncated, info, discount = result
            else:
                observation, reward, terminated, truncated, info = result
            # Repeats the checks of `_can_show`, because a call costs as much as they
            # do.
            if not (
                observation.__class__ not in self._classes
                or reward.__class__ not in self._numbers
                or self.forked
                or (
                    wants_info
                    and (self._asks_info or info.__class__ is not dict or info)
                )
                or (
                    self._shape is not None
                    and (
                        observation.shape != self._shape
                        or observation.dtype is not self._dtype
                    )
                )
                or (self._fits is not None and not self._fits(observation))
            ):
                place[self._key] = observation
                rewards[self.row] = reward
                steps = self._steps + 1
                if not (
                    terminated
                    or truncated
                    or steps >= self.most
                    or (
                        discount is not None
                        and (
                            discount.__class__ not in _FLOATS or discount != self._usual
                        )
                    )
                ):
                    self._kept["_info"] = info
                    self.place, self.reward = place, reward
                    self.step_type = _MID
                    self._steps = steps
                    return None
                if self._ends(terminated, truncated, info, discount):
                    self.place, self.reward = place, reward
                    self._steps = steps
                    return ENDED
        except Exception:
            # From here on, the result is converted or refused as it would be without
            # this.
            pass
        return self.finished(result)

    def _ends(self, terminated: Any, truncated: Any, info: Any, discount: Any) -> bool:
        """Ends the episode, if a flag is set and its discount is a number."""
        is_over = bool(terminated or truncated)
        is_limited = self._steps + 1 >= self.most
        last_discount = self._over if terminated else self.discount
        if discount is not None:
            if discount.__class__ not in _FLOATS:
                return False
            last_discount = np.array(discount, self._over.dtype)
        if not (is_over or is_limited):
            return False
        if is_over:
            self._end(info, bool(terminated), bool(truncated))
        else:
            self.owner._info = info
        self.step_type, self.last_discount = _LAST, last_discount
        self.is_cut = not is_over
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        if self.counter is not self:
            self.truncated = self.truncated or is_limited
            self.counter._limited, self.counter._cut = is_limited, self.is_cut
        return True

    def begin(
        self, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge:
        """Resets the environment after a `LAST` that was written.

        If it leaves this mode, the environment keeps its previous time step.

        Returns:
            `BEGUN` if it was written as a `FIRST`, else the time step to write.
        """
        try:
            observation = self._begin()
        except BaseException:
            self.leave()
            raise
        try:
            if self._can_show(observation, wants_info):
                place[self._key] = observation
                rewards[self.row] = 0.0
                self.place, self.reward = place, 0.0
                self.step_type, self.is_cut = _FIRST, False
                self._steps = 0
                if self.counter is not self:
                    self.counter._limited = self.counter._cut = False
                return BEGUN
        except Exception:
            # From here on, the result is converted or refused as it would be without
            # this.
            pass
        return self.finished_first(observation)

    def _can_show(self, observation: Any, wants_info: bool) -> bool:
        """Returns True if an observation can be assigned unchanged."""
        info = self.owner._info
        return (
            observation.__class__ in self._classes
            and not self.forked
            and not (
                wants_info and (self._asks_info or info.__class__ is not dict or info)
            )
            and (
                self._shape is None
                or (
                    observation.shape == self._shape
                    and observation.dtype is self._dtype
                )
            )
            and (self._fits is None or self._fits(observation))
        )

    def limit(
        self,
        layer: Any,
        most: int,
        *,
        count: Callable[[TimeStep], TimeStep],
        see: Callable[[TimeStep, None], TimeStep],
    ) -> None:
        """Adds a layer that counts steps, and ends an episode at `most`.

        Args:
            layer: The layer. It counts in `_steps`, and reads `count()` there while
                this object counts. It marks a `LAST` at the limit in `_limited`, and in
                `_cut` if the limit alone caused it.
            most: The number of steps.
            count: Makes the layer's time step for a step.
            see: Makes the layer's time step for a reset.
        """
        self.layers.append(layer)
        self.counter, self.most = layer, most
        self._count, self._see = count, see

    def surround(
        self,
        layer: Any,
        around: Callable[[Callable[..., Any]], Callable[..., Any]],
        *,
        begin: Callable[[], None],
    ) -> None:
        """Adds a layer that does something around the library's calls.

        Args:
            layer: The layer, which changes no time step.
            around: Takes a function, and returns one that calls it.
            begin: Called before an episode begins.
        """
        self.layers.append(layer)
        self._move, begin_library = around(self._move), around(self._begin)

        def begin_both() -> Any:
            begin()
            return begin_library()

        self._begin = begin_both

    def enter(self) -> bool:
        """Takes over the current time step; returns False if it cannot."""
        shown = None if self._vain == _IN_VAIN else self.owner._current_time_step
        if shown is None or not (shown.step_type is _MID or shown.step_type is _FIRST):
            return False
        if any(layer._current_time_step is not shown for layer in self.layers):
            return False
        self._shown, self.place = shown, None
        self.step_type, self.is_cut = _MID, False
        if self.counter is not self:
            self._steps = self.counter.__dict__.pop("_steps")
        for layer in self.layers:
            layer._envkit.own(layer).direct = self
            del layer._current_time_step
        return True

    def leave(self) -> None:
        """Gives every layer the current time step."""
        time_step = self.time_step()
        if self.counter is not self:
            self.counter._steps = self._steps
        for layer in self.layers:
            layer._envkit.direct = None
        self._hand_out(time_step, time_step)
        if self.is_cut:
            self._hand_out(time_step._replace(step_type=_MID), time_step)

    def _hand_out(self, inside: TimeStep, outside: TimeStep) -> None:
        """Gives the layers inside the counter one time step, and the others another."""
        time_step = inside
        for layer in self.layers:
            if layer is self.counter:
                time_step = outside
            layer._current_time_step = time_step

    def finished(self, result: Any) -> TimeStep:
        """Returns the time step for the library's result, and leaves."""
        time_step = self._finish(result)
        counted = time_step if self.counter is self else self._count(time_step)
        self._hand_out(time_step, counted)
        self._vain = self._vain + 1 if self.place is None else 0
        for layer in self.layers:
            layer._envkit.direct = None
        return counted

    def finished_first(self, observation: Any) -> TimeStep:
        """Returns the time step for the library's reset, and leaves.

        Until then, the layers have the previous time step.
        """
        self.leave()
        time_step = self._finish_first(observation)
        seen = time_step if self.counter is self else self._see(time_step, None)
        self._hand_out(time_step, seen)
        return seen

    def time_step(self) -> TimeStep:
        """Returns the current time step."""
        if self.place is None:
            return self._shown
        step_type, discount = self.step_type, self.discount
        if step_type is not _MID:
            is_first = step_type is _FIRST
            discount = self.first_discount if is_first else self.last_discount
        return TimeStep(
            step_type,
            np.array(self.reward, self._reward_dtype),
            discount,
            np.array(self.place, self._dtype),
        )

    def time_step_of(self, env: Any) -> TimeStep:
        """Returns the current time step of one of the layers."""
        time_step = self.time_step()
        if self.is_cut and any(env is layer for layer in self._inside()):
            return time_step._replace(step_type=_MID)
        return time_step

    def _inside(self) -> list[Any]:
        """Returns the layers inside the counter, or all if there is none."""
        layers: list[Any] = self.layers
        return layers if self.counter is self else layers[: layers.index(self.counter)]

    def count(self) -> int:
        """Returns the number of steps in the episode."""
        return self._steps

    def __reduce__(self) -> tuple[Any, ...]:
        amid = tuple(map(type, self._inside())) if self.is_cut else ()
        return _Standing, (self.time_step(), amid, self._steps)


class _Standing:
    """Replaces a `DirectRow` in a copy of its environment."""

    def __init__(self, time_step: TimeStep, amid: tuple[type, ...], steps: int) -> None:
        self._time_step, self._amid, self._steps = time_step, amid, steps

    def count(self) -> int:
        return self._steps

    def time_step_of(self, env: Any) -> TimeStep:
        if type(env) in self._amid:
            return self._time_step._replace(step_type=_MID)
        return self._time_step


class CurrentTimeStep:
    """Computes the current time step of an environment that stores none.

    An instance attribute of the same name takes precedence.
    """

    def __get__(self, env: Any, owner: type) -> TimeStep | None:
        direct: DirectRow | None = None if env is None else env._envkit.direct
        return None if direct is None else direct.time_step_of(env)


def _constant(number: float, dtype: Any) -> Any:
    array = np.array(number, dtype)
    array.flags.writeable = False
    return array
