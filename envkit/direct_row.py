"""`DirectRow`: a single environment whose steps are written without time steps.

Most steps of most environments of other libraries are a `MID` with the same discount
as ever. Where such an environment runs on a row, a `DirectRow` calls the library and
writes observation and reward where they belong; it takes a fifth of the time. Every
step that is something else is finished by the environment's layers in their usual way,
from what the library has returned.

An environment offers one by `_direct_row`. Between `enter` and `leave` its layers have
no time step; it is made of the row when it is asked for.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from envkit.time_step import StepType, TimeStep

__all__ = ["CurrentTimeStep", "DirectRow", "are_own"]

_FIRST, _MID = StepType.FIRST, StepType.MID
# An environment of which so many steps in turn were finished one after entering makes
# time steps, because entering and leaving cost more than they do.
_IN_VAIN = 4
_INTEGERS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})


class DirectRow(abc.ABC):
    """Steps the layers of a single environment as one; they share its time step.

    A subclass implements `step`.

    Attributes:
        owner: The innermost layer, which has the library's environment.
        foreign: The library's environment.
        choices: The library's action for each number; `None` if an action is the
            library's as it is.
        discount: The discount of each `MID`.
        row: The row's place in the columns.
        forked: Not empty in a process that the environment has forked, which must
            write nothing.
        classes: The classes of observations that are written without conversion.
        key: The place of an observation within a row.
        shape: The shape that an observation must have; `None` if assigning it checks
            that, and the dtype.
        dtype: The dtype of observations.
        most: The number at which the limit ends an episode.
        counter: The layer that limits the number of steps; itself if none does.
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
        "foreign",
        "forked",
        "key",
        "layers",
        "most",
        "owner",
        "place",
        "reward",
        "row",
        "shape",
    )
    forked: Collection[int]
    place: Any
    reward: Any
    row: int
    _shown: TimeStep

    def __init__(
        self,
        owner: Any,
        foreign: Any,
        *,
        discount: Any,
        choices: Mapping[int, Any] | None,
    ) -> None:
        """Takes an environment, whose `_finish_row` becomes `finish`."""
        self.owner, self.foreign = owner, foreign
        self.choices, self.discount = choices, discount
        self.layers = [owner]
        self.finish: Callable[[Any], TimeStep] = owner._finish_row
        self.counter: Any = self
        self.most = sys.maxsize
        self._steps, self.place, self.reward = 0, None, 0.0
        self._vain = 0
        spec = owner.observation_spec()
        self.dtype, self.shape = spec.dtype, None
        self._reward_dtype = owner.reward_spec().dtype
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
    ) -> TimeStep | None:
        """Steps the environment.

        Args:
            action: An action as the library takes it.
            place: The observation of the row.
            rewards: The column of rewards.
            wants_info: Whether a step with an info must be finished.

        Returns:
            `None` if it has been written as a `MID`, else what is to be written.
        """

    def limit(self, layer: Any, most: int) -> None:
        """Adds a layer that counts steps in `_steps`, and ends an episode at `most`."""
        self.layers.append(layer)
        self.counter, self.most = layer, most
        self.finish = layer._finish_row

    def enter(self) -> bool:
        """Takes over the current time step; returns False if that cannot be done."""
        shown = None if self._vain == _IN_VAIN else self.owner._current_time_step
        if shown is None or not (shown.step_type is _MID or shown.step_type is _FIRST):
            return False
        if any(layer._current_time_step is not shown for layer in self.layers):
            return False
        self._shown, self.place = shown, None
        self._steps = self.counter._steps
        for layer in self.layers:
            layer._direct = self
            del layer._current_time_step
        return True

    def leave(self) -> None:
        """Gives every layer the current time step."""
        time_step = self.time_step()
        for layer in self.layers:
            layer._current_time_step, layer._direct = time_step, None

    def finished(self, result: Any) -> TimeStep:
        """Returns the time step of what the library has returned, and leaves."""
        time_step = self.finish(result)
        self._vain = self._vain + 1 if self.place is None else 0
        for layer in self.layers:
            layer._direct = None
        return time_step

    def time_step(self) -> TimeStep:
        """Returns the current time step."""
        if self.place is None:
            return self._shown
        return TimeStep(
            _MID,
            np.array(self.reward, self._reward_dtype),
            self.discount,
            np.array(self.place, self.dtype),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _Standing, (self.time_step(),)


class _Standing:
    """Stands for a `DirectRow` in a copy of its environment."""

    def __init__(self, time_step: TimeStep) -> None:
        self._time_step = time_step

    def time_step(self) -> TimeStep:
        return self._time_step


class CurrentTimeStep:
    """Makes the current time step of an environment that has none of its own.

    An attribute of the same name of the object goes before it.
    """

    def __get__(self, env: Any, owner: type) -> TimeStep | None:
        direct: DirectRow | None = None if env is None else env._direct
        return None if direct is None else direct.time_step()


def are_own(env: Any, methods: Mapping[str, Callable[..., Any]]) -> bool:
    """Returns True if these are the methods of an environment, by name.

    They are not where a subclass overrides one, or something has taken its place.
    """
    return all(
        getattr(getattr(env, name), "__func__", None) is method
        for name, method in methods.items()
    )
