"""`VectorSteps`: makes time steps of what a vector environment of Gymnasium returns.

Where the next episode of a row begins that has ended, the order of resets says:

| order of the vector environment | the next episode begins                        |
|---------------------------------|------------------------------------------------|
| NEXT_STEP                       | with the next step, which returns its `FIRST`  |
| SAME_STEP                       | has begun; the end of the last is in the infos |
| DISABLED                        | here, right after the step, or when it is told |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from envkit import nest
from envkit.adapters.gymnasium_vector.vector_actions import VectorActions
from envkit.adapters.gymnasium_vector.vector_ends import FinalObservations, merged
from envkit.adapters.gymnasium_vector.vector_infos import (
    VectorInfos,
    final_observations,
)
from envkit.adapters.gymnasium_vector.vector_kinds import finish_resets
from envkit.adapters.gymnasium_vector.vector_resets import ResetArguments
from envkit.adapters.gymnasium_vector.vector_results import VectorResults
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wording import listed

__all__ = ["Beginnings", "VectorSteps"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_NO_ROWS = np.zeros(0, np.intp)
_NO_ROWS.setflags(write=False)
_new_tuple: Callable[..., TimeStep] = tuple.__new__


def _constant(number: float, dtype: Any) -> Array:
    array = np.array(number, dtype)
    array.setflags(write=False)
    return array


_ZERO, _ONE = _constant(0.0, np.float32), _constant(1.0, np.float32)


class Beginnings(NamedTuple):
    """Who begins the next episode of a row, and when; one of the four is true.

    Attributes:
        with_next_step: The vector environment, with the next step.
        with_same_step: The vector environment, with the step that ends one.
        after_step: Whoever makes time steps, right after that step.
        when_told: Nobody, until a reset of the row.
    """

    with_next_step: bool = False
    with_same_step: bool = False
    after_step: bool = False
    when_told: bool = False


class VectorSteps:
    """Steps a vector environment, and knows which rows have ended.

    It has no attributes but its own: Python finds those of a class that forwards others
    in several times the time, and a step asks for many.

    Attributes:
        infos: What the vector environment says beside its time steps.
        is_closed: Whether it may not be used any more.
    """

    def __init__(
        self,
        vector_env: Any,
        beginnings: Beginnings,
        *,
        name: str,
        adapter: str,
        arguments: ResetArguments,
        actions: VectorActions,
        results: VectorResults,
        finals: FinalObservations,
        discount: float,
    ) -> None:
        """Prepares.

        Args:
            vector_env: The vector environment.
            beginnings: When the next episode of a row begins.
            name: What to call the vector environment in an error.
            adapter: What to call the adapter there.
            arguments: What resets are given.
            actions: What makes actions for it of ours.
            results: What reads its results.
            finals: What finds final observations among its infos.
            discount: The discount of steps that do not terminate an episode.
        """
        rows = int(vector_env.num_envs)
        self._vector_env = vector_env
        self._begins = beginnings
        self._begins_next = beginnings.with_next_step
        self._waits = beginnings.when_told
        self._name = name
        self._adapter = adapter
        self._arguments = arguments
        self._actions = actions
        self._results = results
        self._finals = finals
        self._no_reward = _constant(0, results.reward_dtype)
        # What most steps return, to be copied.
        self._mids = np.full(rows, _MID, np.int32)
        self._discounts = np.full(rows, discount, np.float32)
        self._is_discounted = discount != 1.0
        self.infos = VectorInfos(rows)
        self.is_closed = False
        # The rows whose episode has ended, and what they see now if the next has begun.
        self._ended_rows = _NO_ROWS
        self._begun: NestedArray = None

    @property
    def state(self) -> Any:
        """What later time steps depend on."""
        return self.infos, self._ended_rows, self._begun

    @state.setter
    def state(self, state: Any) -> None:
        self.infos, self._ended_rows, self._begun = state

    def begin_after_step(self, after_step: bool) -> None:
        """Chooses who begins what the vector environment does not begin itself.

        Args:
            after_step: Whether that is done here, right after the step that has ended
                the episode before; or else when it is told.
        """
        self._begins = Beginnings(after_step=after_step, when_told=not after_step)
        self._waits = not after_step
        if self._begun is not None:
            self._ended_rows, self._begun = _NO_ROWS, None

    @property
    def _ended(self) -> Array:
        """A mask of the rows whose episode has ended."""
        mask = np.zeros(len(self._mids), bool)
        mask[self._ended_rows] = True
        return mask

    def reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        """Begins an episode in every row."""
        if self._begins_next and len(self._ended_rows):
            finish_resets(self._vector_env, self._ended_rows)
        observation, infos = self._begin(None, options)
        self.infos.step(infos)
        self._ended_rows = self._ended_rows[:0]
        return self._first(observation)

    def reset_rows(
        self, mask: Array, options: dict[str, Any] | None = None
    ) -> TimeStep:
        """Begins an episode in the masked rows; only these are meant."""
        observation, infos = self._begin(mask, options)
        self.infos.reset_rows(infos, mask)
        self._ended_rows = self._ended_rows[~mask[self._ended_rows]]
        return self._first(observation)

    def _begin(
        self, mask: Array | None, options: dict[str, Any] | None = None
    ) -> tuple[NestedArray, Any]:
        """Resets all rows, or some; returns observations and infos."""
        result = self._vector_env.reset(**self._arguments.of_reset(mask, options))
        self._arguments.use_seeds(mask)
        return self._results.of_reset(result)

    def _first(self, observation: NestedArray) -> TimeStep:
        return TimeStep(
            np.full_like(self._mids, _FIRST),
            np.full_like(self._mids, self._no_reward, self._no_reward.dtype),
            np.full_like(self._discounts, _ONE),
            observation,
        )

    def step(self, action: NestedArray) -> TimeStep:
        """Applies an action to each row, except those that begin an episode instead."""
        # Hot: called once per batch step. In most steps of a large batch some row
        # begins, and some row ends. By their numbers rows are found in half of the time
        # that a mask takes, and an array of shape () is written in half of the time
        # that a number takes.
        begun = self._ended_rows if self._begins_next else _NO_ROWS
        if self.is_closed or (self._waits and len(self._ended_rows)):
            self._refuse_step()
        observation, reward, terminated, truncated, infos = self._results.of_step(
            self._vector_env.step(self._actions.members(action, begun))
        )
        # Bytes are looked through in a fifth of the time that an array takes.
        truncated_bytes = truncated.tobytes()
        has_cut = b"\1" in truncated_bytes
        ended = np.logical_or(terminated, truncated) if has_cut else terminated
        step_type, discount = self._mids.copy(), self._discounts.copy()
        if len(begun):
            if b"\1" in ended[begun].tobytes():
                self._refuse_end(begun[ended[begun]])
            step_type[begun] = _FIRST
            reward[begun] = self._no_reward
            if self._is_discounted:
                discount[begun] = _ONE
        (rows,) = ended.nonzero()
        self._ended_rows = rows
        self._begun = None
        # What the class does, without a frame of its own.
        time_step = _new_tuple(TimeStep, (step_type, reward, discount, observation))
        if not len(rows):
            self.infos.step(infos)
            return time_step
        step_type[rows] = _LAST
        # What ends both ways at once is a termination.
        discount[terminated if has_cut else rows] = _ZERO
        self.infos.step(infos, terminated.tobytes(), truncated_bytes)
        if self._begins_next and not infos:
            return time_step
        return self._with_next(time_step, infos)

    def _with_next(self, time_step: TimeStep, infos: Any) -> TimeStep:
        """Sees to the next episodes of rows that have ended, where that is due now."""
        if self._begins.with_same_step:
            self._begun = time_step.observation
            self.infos.begin(infos)
            final = self._finals.put_into(self._begun, infos, self._ended)
            return time_step._replace(observation=final)
        if self._begins.after_step:
            self._begun, begun_infos = self._begin(self._ended)
            self.infos.begin(begun_infos)
        elif self._begins_next and final_observations(infos) is not None:
            raise SpecError(
                f"{self._name} returned final observations in its infos: its "
                "autoreset_mode is NEXT_STEP, where they are the observations "
                "themselves. If it resets with the same step, pass "
                "autoreset_mode='SameStep'."
            )
        return time_step

    def standing(self, shown: TimeStep, structure: nest.Structure) -> TimeStep:
        """Returns where the rows stand now.

        Args:
            shown: What was returned last.
            structure: That of an observation.
        """
        if self._begun is None or not len(self._ended_rows):
            return shown
        ended = self._ended
        return TimeStep(
            np.where(ended, _FIRST, shown.step_type),
            np.where(ended, self._no_reward, shown.reward),
            np.where(ended, _ONE, shown.discount),
            merged(structure, ended, self._begun, shown.observation),
        )

    def _refuse_step(self) -> NoReturn:
        if self.is_closed:
            raise ClosedError.used(self._adapter, "step")
        raise CallOrderError(
            f"step() was called after the episode of {_rows(self._ended_rows)} of "
            f"{self._name} ended, and this {self._adapter} was made with "
            "auto_reset=False. Call reset(mask) for them first; none of the "
            "environments has moved."
        )

    def _refuse_end(self, rows: Array) -> NoReturn:
        raise SpecError(
            f"{self._name} ended the episodes of {_rows(rows)} in two steps in a row: "
            "its autoreset_mode is NEXT_STEP, where the second of these steps begins "
            "the next. If it resets with the same step, pass autoreset_mode='SameStep'."
        )


def _rows(rows: Array) -> str:
    return f"{'row' if rows.size == 1 else 'rows'} {listed(rows)}"
