"""`Turnover`: replaces workers that hold too much memory, where episodes end.

A worker whose memory is above the limit is replaced once one of its rows shows a
`LAST`, before rows are asked again: infos of ends can be read until then. Rows that
stand at the end of an episode get a new environment, as all rows of a worker do that
was lost. The others take their state along; if one cannot save its state, its worker
waits until all of its rows stand at an end.

Until the states are there, those rows count as lost: should the call be interrupted, or
the new worker not start, their episodes end as they do where a worker was lost.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from envkit._internal.text import counted
from envkit.errors import WorkerError
from envkit.parallel.backends.base import Backend
from envkit.parallel.messages import RemoteFailure
from envkit.parallel.row_states import Rows
from envkit.parallel.slab import REBUILD, RESET
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.workers import Workers, WorkerState

__all__ = ["Turnover"]

_LOGGER = logging.getLogger(__name__)

# How often the memory is looked at, in seconds.
_LOOK = 0.25
# By how much a worker must have grown since it was new, because what it holds from the
# beginning no replacement gives back.
_GROWTH = 1.05

Ask = Callable[[str, Sequence[int], Sequence[Any]], Sequence[Any]]
Wait = Callable[[Callable[[], bool]], None]


class Turnover:
    """Looks at the memory of workers, and replaces those that hold too much."""

    def __init__(
        self,
        rows: Rows,
        workers: Workers,
        backend: Backend,
        limit: int,
        now: Callable[[], float],
    ) -> None:
        """Takes workers that are new.

        Args:
            rows: The rows.
            workers: The workers.
            backend: Where they run.
            limit: How many bytes a worker may hold.
            now: Returns the time.

        Raises:
            ValueError: They hold more from the beginning, or it cannot be known.
        """
        self._rows, self._workers, self._backend = rows, workers, backend
        self._limit, self._now = limit, now
        self._next = now() + _LOOK
        # Those above the limit; and those that wait until all of their rows stand at
        # an end, because an environment cannot save its state.
        self._over: list[int] = []
        self._waiting: set[int] = set()
        self._bases = [self._resident(worker) for worker in range(len(workers.workers))]
        if not min(self._bases):
            raise ValueError(
                "max_worker_memory must be None here: the system does not tell how "
                "much memory a worker holds."
            )
        if max(self._bases) >= limit:
            raise ValueError(
                f"max_worker_memory must be more than a worker holds whose "
                f"environments are new, which is {max(self._bases)} bytes, got {limit}."
            )

    def move(self, rows: Rows) -> None:
        """Goes on with another number of rows."""
        self._rows, self._over = rows, []
        count, known = len(self._workers.workers), len(self._bases)
        self._bases[count:] = map(self._resident, range(known, count))
        self._waiting.intersection_update(range(count))

    def _resident(self, worker: int) -> int:
        return self._backend.resident(worker)

    def due(self) -> list[int]:
        """Returns the workers that are to be replaced now."""
        # Hot: called once per batch step.
        moment = self._now()
        if moment >= self._next:
            self._next = moment + _LOOK
            self._over = [*self._above()]
        return [worker for worker in self._over if self._is_time(worker)]

    def replace(self, worker: int, ask: Ask, wait: Wait) -> None:
        """Replaces a worker, unless it has ended or moved on meanwhile.

        Args:
            worker: The worker.
            ask: Asks some environments something.
            wait: Waits until something is true.
        """
        rows = self._rows
        block = np.arange(*rows.layout.blocks[worker])
        wait(lambda: not rows.busy(block))
        # A worker that ends over a question is a matter of the call that comes next.
        with contextlib.suppress(WorkerError):
            if self._is_time(worker):
                self._over.remove(worker)
                self._replace(worker, ask, wait)

    def _above(self) -> Iterator[int]:
        """Yields the workers whose memory is above the limit."""
        for worker, entry in enumerate(self._workers.workers):
            if entry.is_ready and entry.question is None:
                least = max(self._limit, _GROWTH * self._bases[worker])
                if self._resident(worker) > least:
                    yield worker

    def _is_time(self, worker: int) -> bool:
        """True if an episode of a worker has ended, and its other rows can go on."""
        rows, entry = self._rows, self._workers.workers[worker]
        block = range(*rows.layout.blocks[worker])
        if not entry.is_ready or entry.question is not None:
            return False
        own = np.arange(block.start, block.stop)
        shows_last = rows.slab.shows_last(own) & ~rows.slab.owing_rows()[own]
        if not shows_last.any():
            return False
        if any(
            rows.begin[row] or row in rows.held or row in rows.errors for row in block
        ):
            return False
        return worker not in self._waiting or not self._amid(worker)

    def _amid(self, worker: int) -> list[int]:
        """Returns the environments of a worker with a row amid an episode."""
        rows = self._rows
        return [
            env
            for env in self._envs_of(worker)
            if any(
                rows.begun[row] and not rows.has_ended(row)
                for row in rows.rows_of_env[env]
            )
        ]

    def _envs_of(self, worker: int) -> list[int]:
        block = slice(*self._rows.layout.blocks[worker])
        return sorted({int(env) for env in self._rows.env_of_row[block]})

    def _replace(self, worker: int, ask: Ask, wait: Wait) -> None:
        """Replaces a worker; its rows go on, at an end or with their state."""
        rows, entry = self._rows, self._workers.workers[worker]
        held = self._resident(worker)
        amid = self._amid(worker)
        states = ask("get_state", amid, [None] * len(amid)) if amid else []
        if any(isinstance(state, RemoteFailure) for state in states):
            self._waiting.add(worker)
            _LOGGER.warning(
                "worker %d holds %d MB, more than max_worker_memory. Its environments "
                "cannot save their states, so it is replaced once all of its episodes "
                "end in the same step; with a worker for each environment that is at "
                "each end",
                worker,
                held >> 20,
            )
            return
        ended = [
            tuple(rows.has_ended(row) for row in rows.rows_of_env[env]) for env in amid
        ]
        envs = self._envs_of(worker)
        # What their close() says is not news: they are to be gone.
        ask("call", envs, [("close", (), {})] * len(envs))
        with uninterrupted():
            rows.note_replaced(range(*rows.layout.blocks[worker]), {}, RESET)
            self._workers.become(worker, WorkerState.LEAVING)
            entry.replaced += 1
            self._backend.kill(worker)
        wait(lambda: entry.is_settled)
        if not entry.is_ready:
            return
        _LOGGER.info(
            "worker %d held %d MB and was replaced; %s brought along",
            worker,
            held >> 20,
            counted(len(amid), "state"),
        )
        if amid:
            self._bring_back(amid, states, ended, ask)
        self._bases[worker] = self._resident(worker)

    def _bring_back(
        self,
        envs: Sequence[int],
        states: Sequence[Any],
        ended: Sequence[tuple[bool, ...]],
        ask: Ask,
    ) -> None:
        """Gives new environments the states of those before them."""
        rows = self._rows
        try:
            results = ask("set_state", envs, [*zip(states, ended, strict=True)])
        except WorkerError:
            return  # Their rows count as lost.
        for env, result in zip(envs, results, strict=True):
            if isinstance(result, RemoteFailure):
                _LOGGER.warning(
                    "env %d has not taken its own state: it raised %s; its episode "
                    "ends here",
                    env,
                    result.type_name,
                )
                rows.begin[rows.rows_of_env[env]] = REBUILD
            else:
                rows.note_carried(rows.rows_of_env[env])
