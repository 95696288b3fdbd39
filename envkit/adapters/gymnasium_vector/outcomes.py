"""`Outcomes`: what steps and resets of a batch return in Gymnasium.

It is put together from three questions: what happened (`autoreset_modes`), where do the
rows stand now, and what do infos say (`row_infos`). Nothing is done row by row unless
an info has to be put together that way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.gymnasium_vector.autoreset_modes import check_begun, reset_mode
from envkit.adapters.gymnasium_vector.row_infos import (
    ColumnInfos,
    Infos,
    InfosOfSome,
    RowInfos,
)
from envkit.adapters.gymnasium_vector.vector_rows import Rows
from envkit.adapters.spaces.values import map_specs
from envkit.autoreset import AutoReset
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["Outcomes"]

_LAST = int(StepType.LAST)


class Outcomes:
    """Steps and resets a batch, and makes of it what Gymnasium has.

    Attributes:
        to_observation: Makes a member of the observation space of one row's.
        to_observations: Makes a member of the batched one of those of all rows.
    """

    to_observation: Callable[[Any], Any]
    to_observations: Callable[[Any], Any]

    def __init__(self, env: Any, order: AutoReset, rows: Rows, adapter: str) -> None:
        """Takes a batch.

        Args:
            env: The batch.
            order: When the next episode of a row is to begin.
            rows: What there is to know of the rows, besides time steps.
            adapter: What to call the adapter in an error.
        """
        self._env = env
        self._order = order
        self._mode = reset_mode(env, order, adapter)
        self._rows = rows
        self._adapter = adapter
        count = int(env.batch_size)
        self._everyone = np.ones(count, bool)
        # Whether rows that were not touched are those that were returned before.
        is_pool = isinstance(getattr(type(env), "num_workers", None), property)
        self._repeats = order is AutoReset.DISABLED and not is_pool
        # Whether rows may show what was made up for an environment that is gone.
        self._repairs = isinstance(getattr(type(env), "repaired", None), property)
        # The rows that stand at the end of an episode.
        self._ended = np.zeros(count, bool)

    def reset(
        self, mask: Array, seeds: list[int | None], options: Any
    ) -> tuple[Any, Infos]:
        """Begins episodes in the masked rows.

        Args:
            mask: The rows.
            seeds: For each row, what to seed it with before, or `None`.
            options: What environments get that know options.
        """
        everyone = bool(mask.all())
        with self._rows.prepared(mask, seeds, [options] * len(mask)):
            now = self._env.reset() if everyone else self._env.reset(mask)
        if self._order is AutoReset.SAME_STEP and not everyone:
            # Of rows that have left the end of an episode it may still show that.
            now = self._env.current_time_step()
        self._ended = self._ended & ~mask
        found = self._rows.begun_infos(now, mask, at_once=False)
        infos = _added({}, [_without_flags(found)], mask)
        return self.to_observations(self._seen(now)), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        """Applies an action to each row."""
        # Hot: called once per batch step.
        before = self._ended
        if self._order is not AutoReset.NEXT_STEP:
            check_begun(before, self._adapter)
        shown = now = self._mode.step(actions, before)
        self._ended = ended = np.asarray(shown.step_type) == _LAST
        is_over = bool(np.count_nonzero(ended))
        found = self._rows.infos(shown, ended)
        terminated, truncated = self._rows.ends(shown, ended, found)
        beside = self._beside(shown, terminated, is_over)
        if self._order is AutoReset.SAME_STEP and is_over:
            # Before the reset, which may write to what the infos hold.
            infos = self._final(shown, ended, [found, *beside])
            infos = _added(infos, [found, *beside], ~ended)
            now = self._mode.begin(ended)
            self._ended = np.zeros_like(ended)
            begun = self._rows.begun_infos(now, ended, at_once=True)
            infos = _added(infos, [_without_flags(begun)], ended)
        else:
            infos = _added({}, [found, *beside], self._everyone)
        observation = self.to_observations(self._seen(now))
        rewards = np.asarray(shown.reward).astype(np.float64)
        return observation, rewards, terminated, truncated, infos

    def _final(
        self, shown: TimeStep, ended: Array, found: list[RowInfos | None]
    ) -> Infos:
        """Returns what Gymnasium has of episodes that are left at once."""
        observations = np.full(len(ended), None, object)
        seen = self._rows.observation(shown)
        for row in np.flatnonzero(ended).tolist():
            observations[row] = self.to_observation(map_specs(_copy_of(row), seen))
        return {
            "final_obs": observations,
            "_final_obs": ended.copy(),
            "final_info": _added({}, found, ended),
            "_final_info": ended.copy(),
        }

    def _seen(self, now: TimeStep) -> Any:
        """Returns the observation, in arrays that are the caller's alone."""
        seen = self._rows.observation(now)
        # What the batch has returned once, its next reset of some rows repeats.
        return map_specs(np.copy, seen) if self._repeats else seen

    def _beside(
        self, shown: TimeStep, terminated: Array, is_over: bool
    ) -> list[RowInfos]:
        """Returns what the batch itself says beside its time steps."""
        # Hot: called once per batch step.
        found: list[RowInfos] = []
        discounts = np.asarray(shown.discount)
        # Where an episode is terminated it is 0, and 1 elsewhere.
        odd = discounts != ~terminated
        if np.count_nonzero(odd):
            found.append(_column("discount", discounts.copy(), odd))
        # What is made up for an environment that is gone is the end of an episode.
        if is_over and self._repairs and (repaired := self._env.repaired).any():
            found.append(_column("repaired", repaired, repaired))
        return found


def _column(name: str, column: Array, rows: Array) -> RowInfos:
    """Returns an info of some rows that is one array."""
    return InfosOfSome(ColumnInfos({name: column}, len(rows)), rows)


def _copy_of(row: int) -> Callable[[Array], Array]:
    """Returns a function that copies one row of an array."""

    def copy_row(leaf: Array) -> Array:
        own: Array = leaf[row, ...].copy()
        return own

    return copy_row


def _added(infos: Infos, found: list[RowInfos | None], rows: Array) -> Infos:
    """Adds infos of the masked rows."""
    for some in found:
        if some is not None:
            infos = some.add_to(infos, rows)
    return infos


def _without_flags(found: RowInfos | None) -> RowInfos | None:
    if found is not None:
        found.take_flags()
    return found
