"""`MemoryLimit`: replaces workers that use too much memory, between episodes.

A worker above the limit is replaced once one of its rows shows a `LAST`, just before
rows are asked again, so that infos can be read until then. Rows at the end of an
episode get a new environment, as after a crash. The other rows' environments take their
state along. If one cannot save its state, the worker stays until all of its rows are at
an end.

Until the states are restored, those rows count as lost: if the call is interrupted, or
the new worker fails to start, their episodes end as after a crash.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit._internal.text import counted
from envkit.errors import WorkerError
from envkit.parallel.backends.base import Backend
from envkit.parallel.messages import RemoteFailure, Request
from envkit.parallel.observers import RowObserver
from envkit.parallel.slab_layout import REBUILD, RESET
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.workers import WorkerState

if TYPE_CHECKING:
    from envkit.parallel.pool import Pool
    from envkit.parallel.slab import Slab
    from envkit.types import Array

__all__ = ["MemoryLimit"]

_LOGGER = logging.getLogger(__name__)

# Seconds between checks of the memory.
_POLL_INTERVAL = 0.25
# How much a worker must have grown since it was new, because a replacement cannot free
# the memory that it needs from the beginning.
_GROWTH = 1.05


class MemoryLimit(RowObserver):
    """Checks the memory of workers, and replaces those that use too much."""

    def __init__(self, pool: Pool, backend: Backend, limit: int) -> None:
        """Measures the new workers.

        Args:
            pool: The pool.
            backend: The backend that runs its workers.
            limit: How many bytes a worker may use.

        Raises:
            ValueError: They use more from the beginning, or their memory cannot be
                measured.
        """
        if not backend.can_kill or not backend.keeps_states:
            raise ValueError(
                "max_worker_memory must be None here: the workers of "
                f"backend={backend.name!r} are no processes of this pool that it could "
                "replace."
            )
        self._pool, self._backend, self._limit = pool, backend, limit
        self._next = backend.now() + _POLL_INTERVAL
        # Workers above the limit; and workers that wait until all of their rows are at
        # an end, because an environment cannot save its state.
        self._over: list[int] = []
        self._waiting: set[int] = set()
        # Whether seeds or options were sent for the next reset; a new worker would lack
        # them.
        self._has_sent_ahead = False
        self._bases = [*map(self._resident, range(len(pool.workers.workers)))]
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

    def resized(self, before: Slab) -> None:
        """Forgets removed workers, and measures the new ones."""
        self._over = []
        count, known = len(self._pool.workers.workers), len(self._bases)
        self._bases[count:] = map(self._resident, range(known, count))
        self._waiting.intersection_update(range(count))

    def counts(self, worker: int) -> Mapping[str, int]:
        """Returns how many times a worker was replaced because of its memory."""
        return {"replaced": self._pool.workers.workers[worker].replaced}

    def _resident(self, worker: int) -> int:
        return self._backend.resident(worker)

    def questioned(self, worker: int, request: Request) -> None:
        """Forbids replacement while seeds or options for a reset are pending."""
        self._has_sent_ahead |= request.method in ("reset", "seed", "seed_rows")

    def asked_all(self) -> None:
        """Allows replacement again, because rows are about to move."""
        self._has_sent_ahead = False

    def asked(self, rows: Array, commands: int | Array) -> None:
        """Allows replacement again, because rows are about to move."""
        self._has_sent_ahead = False

    def is_due(self) -> bool:
        """Returns True if a worker must be replaced now."""
        # Hot: called once per batch step.
        moment = self._backend.now()
        if moment >= self._next:
            self._next = moment + _POLL_INTERVAL
            self._over = [*self._above()]
        return any(map(self._is_time, self._over))

    def prepare(self) -> None:
        """Replaces workers that use too much memory, if episodes have ended."""
        if not self.is_due() or self._has_sent_ahead:
            return
        try:
            for worker in [each for each in self._over if self._is_time(each)]:
                self._replace_idle(worker)
        finally:
            for observer in self._pool.observers:
                observer.restored()

    def _replace_idle(self, worker: int) -> None:
        """Replaces a worker unless it has ended or its rows have moved since."""
        rows = self._pool.rows
        block = np.arange(*rows.layout.blocks[worker])
        self._pool.wait_until(lambda: not rows.busy(block))
        # If a question kills a worker, the next call handles that.
        with contextlib.suppress(WorkerError):
            if self._is_time(worker):
                self._over.remove(worker)
                self._replace(worker)

    def _above(self) -> Iterator[int]:
        """Yields the workers whose memory is above the limit."""
        for worker, entry in enumerate(self._pool.workers.workers):
            if entry.is_ready and entry.question is None:
                least = max(self._limit, _GROWTH * self._bases[worker])
                if self._resident(worker) > least:
                    yield worker

    def _is_time(self, worker: int) -> bool:
        """Returns True if an episode has ended and the other rows can continue."""
        rows, entry = self._pool.rows, self._pool.workers.workers[worker]
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
        """Returns a worker's environments that have a row in mid-episode."""
        rows = self._pool.rows
        return [
            env
            for env in self._pool.workers.envs_of(worker)
            if any(
                rows.begun[row] and not rows.has_ended(row)
                for row in rows.rows_of_env[env]
            )
        ]

    def _replace(self, worker: int) -> None:
        """Replaces a worker; rows in mid-episode continue from their saved states."""
        rows, entry = self._pool.rows, self._pool.workers.workers[worker]
        held = self._resident(worker)
        amid = self._amid(worker)
        ask = self._pool.ask_once
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
        envs = self._pool.workers.envs_of(worker)
        # Ignore exceptions of close(): the environments are being discarded anyway.
        ask("call", envs, [("close", (), {})] * len(envs))
        with uninterrupted():
            rows.set_replaced(range(*rows.layout.blocks[worker]), {}, RESET)
            self._pool.workers.become(worker, WorkerState.LEAVING)
            entry.replaced += 1
            self._backend.kill(worker)
        self._pool.wait_until(lambda: entry.is_settled)
        if not entry.is_ready:
            return
        _LOGGER.info(
            "worker %d held %d MB and was replaced; %s brought along",
            worker,
            held >> 20,
            counted(len(amid), "state"),
        )
        if amid:
            self._bring_back(amid, states, ended)
        self._bases[worker] = self._resident(worker)

    def _bring_back(
        self,
        envs: Sequence[int],
        states: Sequence[Any],
        ended: Sequence[tuple[bool, ...]],
    ) -> None:
        """Sets new environments to the states of the old ones."""
        rows = self._pool.rows
        try:
            tokens = [*zip(states, ended, strict=True)]
            results = self._pool.ask_once("set_state", envs, tokens)
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
                rows.keep_episodes(rows.rows_of_env[env])
