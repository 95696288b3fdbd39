"""`MaskedRows`: what a batch does with some of its rows while the others stay."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from envkit import nest
from envkit.arrays import as_array
from envkit.errors import CallOrderError, SpecError
from envkit.specified import Specified
from envkit.specs.validation import check_fits, describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wording import listed

__all__ = ["STEPS", "MaskedRows"]

# What the mask of a step says.
STEPS = "a row is to take its action"
_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_WHOLE = "It returns the whole batch; only the masked rows of it are used."


class MaskedRows(Specified):
    """The part of `PyEnvironment` that concerns batches and their rows.

    A batch that can begin episodes in some rows alone overrides `_reset_rows`, and one
    that can leave rows where they are while others step overrides `_step_rows`.
    """

    # On the class, so that a subclass whose __init__ forgets super().__init__() works.
    _current_time_step: TimeStep | None = None
    _handle_auto_reset: bool = False
    _merge_structure: nest.Structure | None = None

    @property
    def batched(self) -> bool:
        """Whether this is a batch: arrays then have a dimension of rows in front."""
        return False

    @property
    def batch_size(self) -> int | None:
        """How many rows a batch has; `None` for a single environment."""
        if self.batched:
            raise RuntimeError(
                f"{type(self).__name__} says it is batched but has no batch_size: "
                "override the property batch_size."
            )
        return None

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask of rows."""
        return self.batched and type(self)._reset_rows is not MaskedRows._reset_rows

    @property
    def holds_rows(self) -> bool:
        """Whether `step` takes a mask of rows: the others stay where they are."""
        return self.batched and type(self)._step_rows is not MaskedRows._step_rows

    @abc.abstractmethod
    def reset(self, mask: Array | None = None) -> TimeStep:
        """Starts an episode in every row, or in the masked rows."""

    @abc.abstractmethod
    def _step(self, action: NestedArray) -> TimeStep:
        """Applies an action to every row."""

    def _reset_rows(self, mask: Array) -> TimeStep:
        """Starts an episode in the rows where `mask` is true; for batches.

        Returns the time step of the whole batch; only the masked rows of it are used.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot reset single rows: override "
            "_reset_rows(mask), which begins an episode in the masked rows only."
        )

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        """Steps some rows, begins an episode in others, and holds the rest.

        Args:
            action: A batch of actions, of which those of stepping rows are used.
            stepping: Which rows take their action: some, but not all.
            beginning: Which rows begin an episode; none of those that step.

        Returns:
            The time step of the whole batch; held rows of it are not used.
        """
        held = ~(stepping | beginning)
        if held.any():
            raise NotImplementedError(
                f"{type(self).__name__} cannot leave rows {listed(held.nonzero()[0])} "
                "where they are while others step: override _step_rows(action, "
                "stepping, beginning)."
            )
        # Nothing is held, so a step of all will do: what it makes of the rows that
        # begin an episode right after is not used.
        stepped = self._checked(self._step(action), "_step")
        return self._merge(beginning, self._reset_rows(beginning), stepped)

    def step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array | None = None
    ) -> TimeStep:
        """Steps some rows of a batch, resets others, and leaves the rest as they are.

        That is `step(action, stepping)` and `reset(beginning)` in one call.

        Args:
            action: A batch of actions; those of rows that do not step are ignored.
            stepping: A mask of the rows that take their action. Those whose episode
                has ended begin the next one, as in every step.
            beginning: A mask of the rows that begin an episode whatever they were at.

        Returns:
            The time step of the whole batch, as it stands now in each row.
        """
        stepping, beginning = self._as_moves(stepping, beginning)
        current = self._current_time_step
        if current is None:
            if (stepping | beginning).all():
                return self.reset()
            raise CallOrderError(
                f"{type(self).__name__}.step_rows() was called before the first "
                "reset(): the rows that are to stay have no time step yet. Call "
                "reset() first."
            )
        if self._handle_auto_reset:
            over = stepping & (np.asarray(current.step_type) == _LAST)
            stepping, beginning = stepping & ~over, beginning | over
        if not stepping.any():
            return self.reset(beginning) if beginning.any() else current
        self._current_time_step = self._moved(action, stepping, beginning, current)
        return self._current_time_step

    def _as_moves(self, stepping: Any, beginning: Any) -> tuple[Array, Array]:
        """Checks what `step_rows` was given, and returns two masks."""
        stepping = self._as_mask(stepping, "step_rows", STEPS)
        if beginning is None:
            return stepping, np.zeros_like(stepping)
        beginning = self._as_mask(beginning, "step_rows")
        both = (stepping & beginning).nonzero()[0]
        if both.size:
            raise ValueError(
                f"{type(self).__name__}.step_rows() was asked to step and to reset "
                f"{_rows(both)}. A row does one of the two in a call."
            )
        return stepping, beginning

    def _moved(
        self, action: NestedArray, stepping: Array, beginning: Array, current: TimeStep
    ) -> TimeStep:
        """Returns the time step after some rows, or all, have moved."""
        if stepping.all():
            return self._checked(self._step(action), "_step")
        moved = self._step_rows(action, stepping, beginning)
        moved = self._checked(moved, "_step_rows")
        touched = stepping | beginning
        if touched.all():
            return moved
        return self._merge(touched, moved, current, "_step_rows")

    def _step_and_reset(self, action: NestedArray, ended: Array) -> TimeStep:
        """Steps a batch some of whose rows have ended: those begin a new episode."""
        if self.resets_rows or self.holds_rows:
            stepped = self._step_rows(action, ~ended, ended)
            stepped = self._checked(stepped, "_step_rows")
        else:
            # Without a hook the environment has to do it alone, as in TF-Agents.
            stepped = self._checked(self._step(action), "_step")
            self._check_has_reset(ended, stepped)
        self._current_time_step = stepped
        return stepped

    def _check_has_reset(self, ended: Array, stepped: TimeStep) -> None:
        stuck = np.flatnonzero(ended & (np.asarray(stepped.step_type) != _FIRST))
        if stuck.size:
            raise NotImplementedError(
                f"{_rows(stuck)} of {type(self).__name__} ended with the last step, "
                "and this step did not begin a new episode there. Override "
                "_reset_rows(mask), which begins an episode in the masked rows only, "
                "or let _step() do it."
            )

    def _reset_masked(self, mask: Any) -> TimeStep:
        rows = self._as_mask(mask)
        if rows.all():
            return self.reset()
        current = self._current_time_step
        if current is None:
            raise CallOrderError(
                f"{type(self).__name__}.reset(mask) was called before the first "
                "reset(): the rows outside the mask have no time step yet. Call "
                "reset() first."
            )
        if rows.any():
            current = self._merge(rows, self._reset_rows(rows), current)
            self._current_time_step = current
        return current

    def _as_mask(
        self, mask: Any, call: str = "reset", purpose: str = "an episode is to begin"
    ) -> Array:
        if not self.batched:
            raise ValueError(
                f"{type(self).__name__} is not batched, so it has no rows to choose "
                f"from: call {'reset' if call == 'reset' else 'step'}() without a mask."
            )
        rows = as_array(mask)
        if rows.dtype != np.bool_ or rows.shape != (self.batch_size,):
            raise SpecError.does_not_fit(
                f"{type(self).__name__}.{call}() was given a mask that",
                path="",
                expected=f"boolean array of shape ({self.batch_size},)",
                got=describe(mask),
                reason=f"A mask has one boolean for each row: true where {purpose}.",
            )
        return rows

    def _merge(
        self,
        mask: Array,
        masked: TimeStep,
        other: TimeStep,
        method: str = "_reset_rows",
    ) -> TimeStep:
        """Takes the masked rows from what `method` returned, the rest from `other`.

        `other` is what `_step` returned, or the current time step.
        """
        source = f"{type(self).__name__}._step() returned a time step that"
        if other is self._current_time_step:
            # It belongs to whoever called step(), and they may have taken it apart.
            source = f"The current time step of {type(self).__name__}"
        structure = self._merge_structure
        if structure is None:  # Compiled once: a batch merges at nearly every step.
            structure = self._merge_structure = nest.Structure(self.time_step_spec())
        columns = zip(
            self._checked_rows(
                structure,
                masked,
                f"{type(self).__name__}.{method}() returned a time step that",
                _WHOLE,
            ),
            self._checked_rows(structure, other, source, ""),
            strict=True,
        )
        # np.where makes arrays of native byte order.
        picked = [
            np.where(mask.reshape(-1, *[1] * (ours.ndim - 1)), ours, theirs).astype(
                ours.dtype, copy=False
            )
            for ours, theirs in columns
        ]
        merged: TimeStep = structure.unflatten(picked)
        return merged

    def _checked_rows(
        self, structure: nest.Structure, time_step: TimeStep, subject: str, context: str
    ) -> list[Array]:
        """Flattens a batch's time step; nothing may broadcast or change its dtype."""
        dims = (self.batch_size,)
        try:
            leaves = [np.asarray(leaf) for leaf in structure.flatten(time_step)]
        except SpecError:
            leaves = []
        if len(leaves) != len(structure.leaves) or any(
            leaf.shape != dims + spec.shape or leaf.dtype != spec.dtype
            for leaf, spec in zip(leaves, structure.leaves, strict=True)
        ):
            check_fits(
                time_step,
                structure.template,
                subject=subject,
                outer_dims=dims,  # type: ignore[arg-type]  # a batch has a size
                context=context,
            )
        return leaves

    def _checked(self, result: Any, method: str) -> TimeStep:
        """Refuses what people return by mistake: nothing, and Gymnasium's tuples.

        No more than that: the time steps of other libraries will do, and a stand-in in
        a test may return what it likes. `check_environment` looks closer.
        """
        is_tuple = isinstance(result, tuple) and not hasattr(result, "step_type")
        if result is not None and not is_tuple:
            time_step: TimeStep = result
            return time_step
        hint = (
            "Did a return statement get lost?"
            if result is None
            else "Build it with envkit.restart, transition, termination or truncation."
        )
        raise SpecError(
            f"{type(self).__name__}.{method}() returned {describe(result)}, not a "
            f"TimeStep. {hint}"
        )


def _rows(rows: Array) -> str:
    return f"{'row' if rows.size == 1 else 'rows'} {listed(rows)}"
