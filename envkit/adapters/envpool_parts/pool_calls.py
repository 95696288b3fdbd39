"""`PoolCalls`: what a pool of EnvPool is asked, without what its classes put around it.

Of a step of a small environment that would be more than a quarter. Every pool has these
methods from EnvPool's own C++, and all that its interfaces offer rests on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["PoolCalls"]

_ROWS, _PLAYERS = "env_id", "players.env_id"


class PoolCalls:
    """Asks rows to begin or to act; `recv` returns one array for each state key.

    Attributes:
        recv: Waits for an answer. The arrays are new ones every time.
    """

    def __init__(self, pool: Any, acting: int) -> None:
        """Prepares.

        Args:
            pool: The pool.
            acting: How many players of a row act in a step; 0 for one action.
        """
        self._keys = list(pool._action_keys)
        others = [key for key in self._keys if key not in (_ROWS, _PLAYERS)]
        (self._action,) = others
        self._dtype = np.dtype(pool.spec.action_array_spec[self._action].dtype)
        self._acting = max(1, acting)
        self._is_plain = self._keys == [_ROWS, _PLAYERS, self._action]
        self._send = pool._send
        self._reset = pool._reset
        self.recv = pool._recv

    def reset(self, rows: Array) -> None:
        """Asks rows to begin an episode."""
        self._reset(rows)

    def send(self, actions: Array, rows: Array) -> None:
        """Asks rows to act. EnvPool goes on reading the rows while they do."""
        # Hot: called once per batch step. It goes on reading the actions, too, which
        # are the caller's.
        own = actions.astype(self._dtype, order="C")
        if self._is_plain and self._acting == 1:
            self._send([rows, rows, own])
            return
        players = rows if self._acting == 1 else np.repeat(rows, self._acting)
        given = {_ROWS: rows, _PLAYERS: players, self._action: own}
        self._send([given[key] for key in self._keys])
