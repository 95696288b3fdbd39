"""The infos of a pool's environments, asked for, noted, or read from the slab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.parallel.facade import PoolFacade, in_turn
from envkit.parallel.row_book import FINISHED, READY
from envkit.parallel.slab import (
    ALL_INFOS,
    BEGUN_INFO,
    DECLARED_INFO,
    FINAL_INFOS,
    NO_INFOS,
    ONLY_DECLARED_INFO,
    SHOWN_INFO,
)
from envkit.stacked_infos import stacked_infos
from envkit.types import Array

__all__ = ["InfoQuestions", "PoolInfos"]

_NOTED = {"none": NO_INFOS, "final": FINAL_INFOS, "all": ALL_INFOS}


class PoolInfos(PoolFacade):
    """The part of a pool that concerns infos.

    To ask all workers takes about as long as a step of cheap environments. What
    environments declare of their infos workers write beside the observations, so that
    nobody needs to be asked for it.
    """

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of what all environments declare of their infos."""
        return nest.map_structure(  # type: ignore[no-any-return]
            lambda spec: spec, self._pool.layout.info_spec
        )

    @in_turn
    def get_info(self) -> Any:
        """Returns the infos stacked, or a list of them where they cannot be.

        They belong to the time step that was returned last, also where the next
        episode has begun since. That of an environment which was replaced is `{}`: its
        time step was made up. Where infos have nothing but what `info_spec` declares,
        no worker is asked.
        """
        self._check_idle("get_info")
        if any(self._pool.is_batch):
            return self._ask("get_info", None)
        if not self._has_more_info().any():
            leaves = self._declared_leaves(self._everyone)
            return self._pool.layout.info.structure.unflatten(leaves)
        made_up = self._pool.repaired
        answers = iter(self._ask("get_info", (~made_up).nonzero()[0].tolist()))
        infos = [{} if gone else next(answers) for gone in made_up.tolist()]
        return stacked_infos(infos)

    @in_turn
    def declared_info(self, env_ids: Sequence[int] | None = None) -> dict[str, Any]:
        """Returns what `info_spec` declares: arrays with an element for each row.

        It belongs to the time step that was returned last, as `get_info` does, and is
        read from shared memory. Workers are asked only for environments that have been
        asked something else, or set to a state, since. The rows of an environment that
        was replaced have zeros: `repaired` tells which.

        Args:
            env_ids: Of which environments; the rows come in this order.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.realtime import RealTimeEnvironment
            >>> from envkit.testing import CountingEnv
            >>> def make():
            ...     return RealTimeEnvironment(CountingEnv, hz=60, host="virtual")
            >>> with ParallelPyEnvironment([make] * 2, backend="inline") as env:
            ...     _ = env.reset(), env.step([0, 0])
            ...     env.declared_info()["realtime"]["observation_tick"]
            array([1, 1])
        """
        self._check_open("declared_info")
        envs = self._as_envs(env_ids)
        rows_of_env = self._pool.rows_of_env
        rows = np.concatenate([np.empty(0, np.intp), *(rows_of_env[e] for e in envs)])
        self._check_answered(rows, "declared_info")
        return self._declared(rows)

    def _declared(self, rows: Array) -> dict[str, Any]:
        """Returns what rows declare of their infos, in arrays of the caller's.

        Raises:
            WorkerError: An environment had to be asked, and has raised.
        """
        pool = self._pool
        if not pool.layout.info_spec:
            return {}
        leaves = self._declared_leaves(rows)
        there = self._is_in_slab(rows, DECLARED_INFO)
        if not there.all():
            made_up = pool.repaired[rows]
            self._fill(leaves, rows, ~there & ~made_up)
            for leaf in leaves:
                leaf[made_up] = np.zeros((), leaf.dtype)
        return pool.layout.info.structure.unflatten(leaves)  # type: ignore[no-any-return]

    @in_turn
    def rows_with_more_info(self) -> Array:
        """Returns a mask of the rows whose info has more than `info_spec` declares.

        Where nobody has looked, it may have.
        """
        self._check_open("rows_with_more_info")
        return self._has_more_info()

    def _has_more_info(self) -> Array:
        return ~self._is_in_slab(self._everyone, ONLY_DECLARED_INFO)

    def _check_answered(self, rows: Array, call: str) -> None:
        """Raises unless all that these rows were asked has been returned."""

    def _is_in_slab(self, rows: Array, flag: int) -> Array:
        """Says of which rows the declared part of the info, or all of it, is there."""
        state = self._pool.state[rows]
        stands = (state == READY) | (state == FINISHED)
        there: Array = stands & (self._pool.slab.has_info[rows] & flag != 0)
        return there

    def _declared_leaves(self, rows: Array) -> list[Array]:
        slab = self._pool.slab
        slots = slab.slots(rows)
        return [array[slots, rows] for array in slab.infos]

    def _fill(self, leaves: Sequence[Array], rows: Array, wanted: Array) -> None:
        """Asks environments for what the slab does not have.

        Args:
            leaves: Where to write it.
            rows: Whose elements these have.
            wanted: A mask of those of them that are to be written.
        """
        declared, env_of_row = self._pool.layout.info, self._pool.env_of_row
        for env in np.unique(env_of_row[rows[wanted]]).tolist():
            mine = wanted & (env_of_row[rows] == env)
            block = self._pool.rows_of_env[env]
            (info,) = self._ask("get_info", [env])
            infos = info if self._pool.is_batch[env] else [info]
            parts = declared.batch_values(infos, len(block), f"The info of env {env}")
            for leaf, part in zip(leaves, parts, strict=True):
                leaf[mine] = part[rows[mine] - block.start]


class InfoQuestions(PoolInfos):
    """The part of a pool in lockstep that concerns infos.

    To ask all workers after every step takes about as long as a step of cheap
    environments, and most environments have nothing to say in most steps. So workers
    can be told to look, and the rows are asked that have something.
    """

    @in_turn
    def get_infos(self, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns what `get_info` does, of each environment by itself.

        Args:
            env_ids: Which environments to ask.
        """
        self._check_idle("get_infos")
        return self._ask("get_info", self._as_envs(env_ids))

    @in_turn
    def note_infos(self, which: str) -> None:
        """Has workers look, after each step and reset, whether there is an info.

        Then `rows_with_info` knows, and the info is kept for whoever asks.

        Args:
            which: Which infos they look at: "all", those of the begins and ends of
                episodes ("final"), or "none", as before anybody calls this.
        """
        if which not in _NOTED:
            names = ", ".join(map(repr, _NOTED))
            raise ValueError(f"which is {which!r:.80}; it is one of {names}.")
        self._check_idle("note_infos")
        self._pool.settle()
        self._pool.slab.noted_infos = _NOTED[which]

    @in_turn
    def rows_with_info(self, *, begun: bool = False) -> Array:
        """Returns a mask of the rows that have an info, where workers have looked.

        One that says no more than that the episode has ended as the time step says does
        not count. Where nobody has looked, the mask is true.

        Args:
            begun: Whether it is about the `FIRST` that has followed a `LAST` in the
                same step, instead of what the last call returned.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
            ...     env.note_infos("all")
            ...     _ = env.reset()
            ...     env.rows_with_info()
            array([False, False])
        """
        # Hot: called once per batch step.
        self._check_open("rows_with_info")
        slab = self._pool.slab
        if not slab.infos_to_note[0]:
            return np.ones(self._rows, bool)
        mask: Array = slab.has_info & (BEGUN_INFO if begun else SHOWN_INFO) != 0
        return mask
