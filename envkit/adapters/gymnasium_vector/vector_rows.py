"""`Rows`: what a vector environment of Gymnasium wants to know of a batch's rows."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Protocol

import numpy as np

from envkit.adapters.gym_environments import handed_options
from envkit.adapters.gymnasium_vector.row_attributes import (
    blocks_of,
    call_rows,
    get_rows,
    set_rows,
)
from envkit.adapters.gymnasium_vector.row_infos import (
    InfosOfSome,
    RowInfos,
    block_infos,
    row_infos,
)
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray
from envkit.wording import counted

__all__ = ["INFOS", "BatchRows", "Ends", "Rows", "check_infos"]

_LOGGER = logging.getLogger(__name__)

INFOS = ("all", "final", "none")

# Where episodes were terminated, and where truncated.
Ends = tuple[Array, Array]


def check_infos(infos: Any) -> None:
    """Refuses what is not one of the three words."""
    if infos not in INFOS:
        raise ValueError(
            f"infos is {infos!r:.80}; it is one of {', '.join(map(repr, INFOS))}."
        )


class Rows(Protocol):
    """What a vector environment wants to know of a batch's rows, besides time steps."""

    def prepared(
        self, mask: Array, seeds: list[int | None], options: list[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Hands on what the masked rows are reset with, which happens inside of it.

        Args:
            mask: The rows.
            seeds: For each row, what to seed it with before, or `None`.
            options: For each row, its options, or `None`.
        """

    def observation(self, time_step: TimeStep) -> NestedArray:
        """Returns the observation, in arrays."""

    def infos(self, shown: TimeStep, ended: Array) -> RowInfos | None:
        """Returns the infos of what a step has shown; `None` if nobody looks."""

    def begun_infos(
        self, now: TimeStep, rows: Array, *, at_once: bool
    ) -> RowInfos | None:
        """Returns the infos of rows that have just begun.

        Args:
            now: Where the rows stand.
            rows: A mask of them.
            at_once: Whether that was in the step that ended the episode before.
        """

    def ends(self, shown: TimeStep, ended: Array, infos: RowInfos | None) -> Ends:
        """Returns where episodes were terminated, and where truncated.

        It takes the flags out of the infos.
        """

    def call(self, name: str, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment."""

    def get(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""

    def set(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment."""


class BatchRows:
    """The rows of any batch, single object or pool."""

    def __init__(self, env: Any, wanted: str) -> None:
        """Takes a batch.

        Args:
            env: The batch.
            wanted: Which infos are looked at.
        """
        self._env = env
        self._name = type(env).__name__
        self._rows = int(env.batch_size)
        self._everyone = np.ones(self._rows, bool)
        self._wanted = wanted
        # Not if it is only forwarded: a wrapper may have more to say than workers do.
        is_pool = isinstance(getattr(type(env), "num_workers", None), property)
        # The rows of each of a pool's environments.
        self._blocks = blocks_of(env) if is_pool else None
        # Whether each of those is a batch itself, which may have one row.
        self._batched: list[bool] = []
        if is_pool and wanted != "none":
            self._batched = list(env.access("batched"))
        # Whether its workers can tell which rows have an info.
        notes = getattr(type(env), "note_infos", None)
        self._is_noted = is_pool and callable(notes) and wanted != "none"
        if self._is_noted:
            env.note_infos(wanted)

    def prepared(
        self, mask: Array, seeds: list[int | None], options: list[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Seeds, and hands on options.

        Programs for Gymnasium seed whatever they are given, and pass options to what
        has none. Of those that are lost so, a line in the log tells.
        """
        try:
            self._seed(mask, seeds)
        except NotImplementedError as error:
            reason = str(error).partition("\n")[0]
            _LOGGER.warning("reset(seed=...) has not seeded %s: %s", self._name, reason)
        return handed_options(self._env, options, None if mask.all() else mask)

    def _seed(self, mask: Array, seeds: list[int | None]) -> None:
        rows = [row for row, seed in enumerate(seeds) if mask[row] and seed is not None]
        if not rows:
            return
        if len(rows) == self._rows:
            self._env.seed(seeds)
            return
        if not self._env.seeds_rows:
            raise ValueError(
                f"{counted(len(rows), 'seed')} for {counted(self._rows, 'row')} of "
                f"{self._name}, which seeds all of them or none."
            )
        masked = zip(seeds, mask.tolist(), strict=True)
        self._env._hand_seeds([own if begins else None for own, begins in masked])

    def observation(self, time_step: TimeStep) -> NestedArray:
        """Returns the observation."""
        return time_step.observation

    def infos(self, shown: TimeStep, ended: Array) -> RowInfos | None:
        """Asks for the infos, of all rows or of those that ended."""
        # Hot: called once per batch step.
        if self._wanted == "all":
            return self._ask(self._everyone)
        if self._wanted == "final" and np.count_nonzero(ended):
            found = self._ask(ended)
            return None if found is None else InfosOfSome(found, ended)
        return None

    def begun_infos(
        self, now: TimeStep, rows: Array, *, at_once: bool
    ) -> RowInfos | None:
        """Asks for the infos of rows that have just begun."""
        if self._wanted == "none" or (at_once and self._wanted != "all"):
            return None
        if at_once and hasattr(self._env, "current_info"):
            return row_infos(self._env.current_info(), self._rows)
        return self._ask(rows, has_left=at_once)

    def _ask(self, rows: Array, *, has_left: bool = False) -> RowInfos | None:
        """Asks the batch, or those of its environments that have these rows.

        Args:
            rows: A mask of the rows.
            has_left: Whether it is about the beginning of an episode, where the batch
                still tells of the end before it.
        """
        try:
            if self._blocks is None:
                return row_infos(self._env.get_info(), self._rows)
            return self._asked(self._blocks, rows, has_left)
        except NotImplementedError:  # There are none.
            self._wanted = "none"
            return None

    def _asked(
        self, blocks: list[range], rows: Array, has_left: bool
    ) -> RowInfos | None:
        """Asks the environments of a pool."""
        # Hot: called once per batch step, and most of the time nobody has an info.
        noted = self._everyone
        if self._is_noted:
            noted = self._env.rows_with_info(begun=has_left)
        told = rows & noted
        if not np.count_nonzero(told):
            return None
        are_rows = not any(self._batched)
        if not has_left and (noted.all() or not are_rows) and self._tells_of_the_end():
            given = self._env.get_info()
            # Where some are batches themselves, it is a list with one for each.
            if are_rows:
                return row_infos(given, self._rows)
            return block_infos(given, blocks, self._rows, self._batched)
        # The infos of batches become one, so all of them are asked that are concerned.
        chosen = told if are_rows else rows
        envs = [
            env
            for env, block in enumerate(blocks)
            if chosen[block.start : block.stop].any()
        ]
        if has_left or not self._is_noted:
            given = self._env.call("get_info", env_ids=envs)
        else:
            given = self._env.get_infos(envs)
        return block_infos(
            given,
            [blocks[env] for env in envs],
            self._rows,
            [self._batched[env] for env in envs],
        )

    def _tells_of_the_end(self) -> bool:
        # In this order the environments have begun anew, and the pool remembers.
        return getattr(self._env.autoreset, "value", "") == "same_step"

    def ends(self, shown: TimeStep, ended: Array, infos: RowInfos | None) -> Ends:
        """Tells by the discounts, unless infos say it."""
        # Hot: called once per batch step.
        flags = None if infos is None else infos.take_flags()
        if not np.count_nonzero(ended):
            return ended.copy(), ended.copy()
        terminated = ended & (np.asarray(shown.discount) == 0.0)
        truncated = ended ^ terminated
        if flags is not None:
            told = ended & flags.given & (flags.terminated | flags.truncated)
            terminated = np.where(told, flags.terminated, terminated)
            truncated = np.where(told, flags.truncated, truncated)
        return terminated, truncated

    def call(self, name: str, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment."""
        return call_rows(self._env, name, args, kwargs)

    def get(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment."""
        return get_rows(self._env, name)

    def set(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment."""
        set_rows(self._env, name, values)
