"""`ActionWrapper`: what the wrappers that translate actions have in common."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from envkit.errors import SpecError
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wording import foreign
from envkit.wrappers.actions.given_actions import GivenActions
from envkit.wrappers.base import PyEnvironmentBaseWrapper

__all__ = ["MOST_CHOICES", "ActionWrapper"]

# Whoever has more actions than that has given no bounds, and they are the dtype's.
MOST_CHOICES = 2**31 - 1

_LAST = int(StepType.LAST)


class ActionWrapper(PyEnvironmentBaseWrapper):
    """Takes actions of a spec of its own, and gives the environment others for them.

    A subclass sets `_given` in its constructor and overrides `_translate`. What does
    not fit is refused before the environment moves; but not in rows that begin an
    episode, or stay where they are, for there the action is not used.
    """

    _given: GivenActions
    # A mask of the rows that take their action in the step that is being made; `None`
    # for all.
    _stepping: Array | None = None

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one row's action."""
        return self._given.spec

    @abc.abstractmethod
    def _translate(self, action: NestedArray) -> NestedArray:
        """Returns what the environment is given for an action, or refuses it."""

    def _takes(self, spec: NestedSpec) -> GivenActions:
        """Returns what takes actions of a spec apart; for constructors."""
        subject = f"{type(self).__name__}.step() was given an action"
        return GivenActions(subject, spec, self._dims)

    def _act(self, action: NestedArray) -> NestedArray:
        # Hot: called once per step.
        try:
            return self._translate(action)
        except SpecError:
            # The action of a batch has to be one, if only for the other rows. Nobody
            # will look at that of a single environment.
            if self._dims or not self._ignored():
                raise
            return action

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        self._stepping = stepping
        try:
            return super()._step_rows(action, stepping, beginning)
        finally:
            self._stepping = None

    def _ignored(self) -> Array:
        """Returns in which rows the action is not used."""
        ended = np.asarray(self.current_time_step().step_type) == _LAST
        if self._stepping is not None:
            ended = ended | ~self._stepping
        return np.asarray(ended)

    def _spec_text(self, spec: Any, path: str = "") -> str:
        """Says which spec of the environment's action an error is about."""
        at = f" at {path}" if path else ""
        shown = foreign(spec) or spec
        return f"the action spec of {type(self._env).__name__}{at} is {shown}"
