"""`InfoQuestions`: what a pool in lockstep is asked about its environments' infos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.parallel.pool_infos import PoolInfos
from envkit.parallel.slab import (
    ALL_INFOS,
    BEGUN_INFO,
    FINAL_INFOS,
    NO_INFOS,
    SHOWN_INFO,
)
from envkit.types import Array

__all__ = ["InfoQuestions"]

_NOTED = {"none": NO_INFOS, "final": FINAL_INFOS, "all": ALL_INFOS}


class InfoQuestions(PoolInfos):
    """The part of a pool in lockstep that concerns infos.

    To ask all workers after every step takes about as long as a step of cheap
    environments, and most environments have nothing to say in most steps. So workers
    can be told to look, and the rows are asked that have something.
    """

    def get_infos(self, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Returns what `get_info` does, of each environment by itself.

        Args:
            env_ids: Which environments to ask.
        """
        self._check_idle("get_infos")
        return self._ask("get_info", self._as_envs(env_ids))

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
