"""`DirectRow`: a single environment whose steps are written without time steps.

Most steps of most environments of other libraries are a `MID` with the same discount
as ever, and most others end an episode or begin one. Where such an environment runs on
a row, a `DirectRow` calls the library and writes observation and reward where they
belong; it takes a fifth of the time. Every step that is something else is finished by
the environment's layers in their usual way, from what the library has returned.

An environment offers one by `_direct_row`. Between `enter` and `leave` its layers have
no time step; it is made of the row when it is asked for.
"""

from __future__ import annotations

import abc
import enum
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np

from envkit.time_step import StepType, TimeStep

__all__ = [
    "BEGUN",
    "ENDED",
    "CountedSteps",
    "CurrentTimeStep",
    "DirectRow",
    "EpisodeEdge",
    "are_own",
]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# An environment of which so many steps in turn were finished one after entering makes
# time steps, because entering and leaving cost more than they do.
_IN_VAIN = 4
_INTEGERS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})


class EpisodeEdge(enum.Enum):
    """Says that a row has written the beginning or the end of an episode."""

    BEGUN = "a FIRST"
    ENDED = "a LAST"


BEGUN: Final = EpisodeEdge.BEGUN
ENDED: Final = EpisodeEdge.ENDED


class DirectRow(abc.ABC):
    """Steps the layers of a single environment as one; they share its time step.

    A subclass implements `step`, and `begin` if `writes_edges` may be true.

    Attributes:
        owner: The innermost layer, which has the library's environment.
        foreign: The library's environment.
        choices: The library's action for each number; `None` if an action is the
            library's as it is.
        discount: The discount of each `MID`.
        first_discount: That of each `FIRST`.
        last_discount: That of the `LAST` that was written last.
        step_type: What was written last.
        is_cut: Whether it is a `LAST` to the counter only.
        writes_edges: Whether ends and begins of episodes are written, too.
        row: The row's place in the columns.
        forked: Not empty in a process that the environment has forked, which must
            write nothing.
        classes: The classes of observations that are written without conversion.
        key: The place of an observation within a row.
        shape: The shape that an observation must have; `None` if assigning it checks
            that, and the dtype.
        dtype: The dtype of observations.
        most: The number at which the limit ends an episode.
        counter: The layer that counts steps to limit them; itself if none does.
        place: The observation that was written last; `None` since `enter`.
        reward: The reward that was written last.
        finish: Makes the time step of what the library has returned.
    """

    __slots__ = (
        "_reward_dtype",
        "_shown",
        "_steps",
        "_vain",
        "choices",
        "classes",
        "counter",
        "discount",
        "dtype",
        "finish",
        "first_discount",
        "foreign",
        "forked",
        "is_cut",
        "key",
        "last_discount",
        "layers",
        "most",
        "owner",
        "place",
        "reward",
        "row",
        "shape",
        "step_type",
        "writes_edges",
    )
    forked: Collection[int]
    place: Any
    reward: Any
    row: int
    last_discount: Any
    _shown: TimeStep

    def __init__(
        self,
        owner: Any,
        foreign: Any,
        *,
        discount: Any,
        choices: Mapping[int, Any] | None,
        writes_edges: bool = False,
    ) -> None:
        """Takes an environment, whose `_finish_row` becomes `finish`."""
        self.owner, self.foreign = owner, foreign
        self.choices, self.discount = choices, discount
        self.layers = [owner]
        self.finish: Callable[[Any], TimeStep] = owner._finish_row
        self.counter: Any = self
        self.most = sys.maxsize
        self._steps, self.place, self.reward = 0, None, 0.0
        self.step_type, self.is_cut = _MID, False
        self.writes_edges = writes_edges
        self._vain = 0
        spec = owner.observation_spec()
        self.dtype, self.shape = spec.dtype, None
        self._reward_dtype = owner.reward_spec().dtype
        self.first_discount = np.ones((), owner.discount_spec().dtype)
        self.first_discount.flags.writeable = False
        if spec.shape == ():
            self.classes: Collection[Any] = _INTEGERS
            self.key: Any = ()
        else:
            self.classes = frozenset([np.ndarray])
            is_flat = len(spec.shape) == 1
            self.key = slice(None) if is_flat else ...
            self.shape = None if is_flat else spec.shape

    @abc.abstractmethod
    def step(
        self, action: Any, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge | None:
        """Steps the environment.

        Args:
            action: An action as the library takes it.
            place: The observation of the row.
            rewards: The column of rewards.
            wants_info: Whether a step with an info must be finished.

        Returns:
            `None` if it has been written as a `MID`, `ENDED` if as a `LAST`, else what
            is to be written.
        """

    def can_begin(self) -> bool:
        """Returns True if the next reset is the usual one, so that `begin` does it."""
        return False

    def begin(
        self, place: Any, rewards: Any, wants_info: bool
    ) -> TimeStep | EpisodeEdge:
        """Resets the environment after a `LAST` that was written.

        Where it is left by that, it has the time step that was before.

        Returns:
            `BEGUN` if it has been written as a `FIRST`, else what is to be written.
        """
        raise NotImplementedError(f"{type(self).__name__} leaves after each LAST.")

    def can_show(self, observation: Any) -> bool:
        """Returns True if an observation can be assigned to its place as it is."""
        return (
            not self.forked
            and observation.__class__ in self.classes
            and (
                self.shape is None
                or (observation.shape == self.shape and observation.dtype is self.dtype)
            )
        )

    def set_last(self, reward: Any, place: Any, is_over: bool, discount: Any) -> None:
        """Notes that the `LAST` of an episode has been written.

        Args:
            reward: Its reward.
            place: Its observation.
            is_over: Whether the library has ended the episode, not the limit alone.
            discount: Its discount.
        """
        self.place, self.reward = place, reward
        self.step_type, self.last_discount = _LAST, discount
        self.is_cut = not is_over
        self._steps += 1
        counter = self.counter
        if counter is not self:
            counter._limited = self._steps >= self.most
            counter._cut = self.is_cut

    def set_first(self, place: Any) -> None:
        """Notes that the `FIRST` of an episode has been written."""
        self.place, self.reward = place, 0.0
        self.step_type, self.is_cut = _FIRST, False
        self._steps = 0
        counter = self.counter
        if counter is not self:
            counter._limited = counter._cut = False

    def limit(self, layer: Any, most: int, writes_edges: bool) -> None:
        """Adds a layer that counts steps, and ends an episode at `most`.

        Args:
            layer: The layer, which counts in `_steps`, has `CountedSteps` there, notes
                in `_limited` that it was the limit, and in `_cut` that it was nothing
                else.
            most: The number of steps.
            writes_edges: Whether ends and begins of episodes can be written.
        """
        self.layers.append(layer)
        self.counter, self.most = layer, most
        self.finish = layer._finish_row
        self.writes_edges = self.writes_edges and writes_edges

    def enter(self) -> bool:
        """Takes over the current time step; returns False if that cannot be done."""
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

    def finished_first(self, result: Any) -> TimeStep:
        """Returns the time step of what the library's reset has returned, and leaves.

        The layers make it, which have the time step that was before until then.
        """
        self.leave()
        time_step: TimeStep = self.layers[-1]._finish_first(result)
        return time_step

    def leave(self) -> None:
        """Gives every layer the current time step."""
        time_step = self.time_step()
        if self.counter is not self:
            self.counter._steps = self._steps
        for layer in self.layers:
            layer._current_time_step, layer._envkit.direct = time_step, None
        if self.is_cut:
            self.owner._current_time_step = time_step._replace(step_type=_MID)

    def finished(self, result: Any) -> TimeStep:
        """Returns the time step of what the library has returned, and leaves."""
        time_step = self.finish(result)
        self._vain = self._vain + 1 if self.place is None else 0
        for layer in self.layers:
            layer._envkit.direct = None
        return time_step

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
            np.array(self.place, self.dtype),
        )

    def time_step_of(self, env: Any) -> TimeStep:
        """Returns the current time step of one of the layers."""
        time_step = self.time_step()
        if self.is_cut and env is self.owner:
            return time_step._replace(step_type=_MID)
        return time_step

    def count(self) -> int:
        """Returns how many steps the episode has had."""
        return self._steps

    def __reduce__(self) -> tuple[Any, ...]:
        time_step, amid = self.time_step(), type(self.owner) if self.is_cut else None
        return _Standing, (time_step, amid, self._steps)


class _Standing:
    """Stands for a `DirectRow` in a copy of its environment."""

    def __init__(self, time_step: TimeStep, amid: Any, steps: int) -> None:
        self._time_step, self._amid, self._steps = time_step, amid, steps

    def count(self) -> int:
        return self._steps

    def time_step_of(self, env: Any) -> TimeStep:
        if type(env) is self._amid:
            return self._time_step._replace(step_type=_MID)
        return self._time_step


class CurrentTimeStep:
    """Makes the current time step of an environment that has none of its own.

    An attribute of the same name of the object goes before it.
    """

    def __get__(self, env: Any, owner: type) -> TimeStep | None:
        direct: DirectRow | None = None if env is None else env._envkit.direct
        return None if direct is None else direct.time_step_of(env)


class CountedSteps:
    """Reads the number of steps of a layer that leaves it to its `DirectRow` to count.

    An attribute of the same name of the object goes before it.
    """

    def __get__(self, env: Any, owner: type) -> Any:
        direct: DirectRow | None = None if env is None else env._envkit.direct
        return None if direct is None else direct.count()


def are_own(env: Any, methods: Mapping[str, Callable[..., Any]]) -> bool:
    """Returns True if these are the methods of an environment, by name.

    They are not where a subclass overrides one, or something has taken its place.
    """
    return all(
        getattr(getattr(env, name), "__func__", None) is method
        for name, method in methods.items()
    )
