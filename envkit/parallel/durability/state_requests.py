"""`StateRequests`: asks environments for the states that serve as anchors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from envkit.errors import WorkerError
from envkit.parallel.durability.anchors import EnvHistory
from envkit.parallel.messages import RemoteFailure
from envkit.parallel.restarts import RestartPolicy
from envkit.parallel.slab_layout import SAME_STEP_ORDER
from envkit.time_step import StepType
from envkit.types import Array

if TYPE_CHECKING:
    from envkit.parallel.pool import Pool

__all__ = ["StateRequests"]

# How many times to check an anchor's age before the next one is due.
_CHECKS_PER_ANCHOR = 8
# The least number of requests to wait for a busy worker to become idle.
_PATIENCE = 16


class StateRequests:
    """Asks environments for their states when their anchors are too far back.

    Attributes:
        left: The number of requests until anchors are checked again.
    """

    def __init__(
        self,
        pool: Pool,
        policy: RestartPolicy,
        add_state: Callable[[EnvHistory, bytes], None],
    ) -> None:
        """Takes the pool; asks nothing yet.

        Args:
            pool: The pool.
            policy: The policy, which says how often to ask.
            add_state: Called with the answers.
        """
        self._pool, self._policy, self._add_state = pool, policy, add_state
        self._every = max(1, (policy.anchor_every or 1) // _CHECKS_PER_ANCHOR)
        self.left = 0
        # The number of requests until environments without an anchor are asked again.
        self._pause, self._longest_pause = 1, max(self._every, _PATIENCE)
        # True if an environment may be without a certain anchor.
        self._is_urgent = True
        self._anchored, self._saves = np.zeros(0, np.uint32), np.zeros(0, bool)

    def adopt(self, histories: Sequence[EnvHistory]) -> None:
        """Continues with the pool's current rows and environments."""
        self._histories = histories
        rows = self._pool.rows
        self._rows, self._slab = rows, rows.slab
        # By row: the number of the newest anchor, and whether there can be another.
        count = min(len(self._anchored), rows.layout.rows)
        anchored, saves = self._anchored, self._saves
        self._anchored = rows.slab.numbers.copy()
        self._saves = np.ones(rows.layout.rows, bool)
        self._anchored[:count], self._saves[:count] = anchored[:count], saves[:count]
        self._all = np.arange(rows.layout.rows)

    def set_anchor(self, rows: range, numbers: Array) -> None:
        """Records the numbers of an environment's newest anchor."""
        self._anchored[rows.start : rows.stop] = numbers

    def hurry(self) -> None:
        """Makes the next call ask all environments without a certain anchor."""
        self.left, self._pause, self._is_urgent = 0, 1, True

    def send(self, is_replaying: Sequence[bool]) -> bool:
        """Asks environments whose anchor is too far back for their state.

        Environments of busy workers are asked later. If that would be too late, it
        waits for their answers first.

        Args:
            is_replaying: Whether each worker's environments are being replayed.

        Returns:
            Whether any were asked.
        """
        self.left = self._every
        if not self._is_urgent and not self._may_be_too_far():
            return False
        workers = self._pool.workers.workers
        envs = [
            env
            for worker, block in enumerate(self._rows.layout.blocks)
            if workers[worker].is_ready and not is_replaying[worker]
            for env in self._envs_to_ask(worker, block)
        ]
        if envs:
            self._ask(envs)
        self._is_urgent = any(
            known.saves is None or known.awaits_state for known in self._histories
        )
        if any(known.awaits_state for known in self._histories):
            # A needless check takes time if there are many environments.
            self.left = self._pause
            self._pause = min(2 * self._pause, self._longest_pause)
        return bool(envs)

    def _envs_to_ask(self, worker: int, block: tuple[int, int]) -> list[int]:
        """Returns the environments of a worker that should be asked for their state."""
        envs = [
            env
            for env in self._pool.workers.envs_of(worker)
            if self._needs_anchor(self._histories[env])
        ]
        rows = range(*block)
        if not envs or any(row in rows for row in self._rows.held):
            return []
        is_idle = not self._slab.owing_rows()[slice(*block)].any()
        is_late = any(self._is_overdue(self._histories[env]) for env in envs)
        return envs if is_idle or is_late else []

    def _is_overdue(self, known: EnvHistory) -> bool:
        """Returns True if an environment needs a new anchor now."""
        if not known.has_certain_anchor:
            return self._pause >= self._longest_pause
        policy = self._policy
        return 2 * self._distance(known) >= policy.max_replay + (
            policy.anchor_every or 0
        )

    def _distance(self, known: EnvHistory) -> int:
        """Returns how many requests ago an environment's newest anchor was."""
        numbers = self._slab.numbers[known.rows.start : known.rows.stop]
        return int((numbers - known.anchors[-1].numbers).max()) >> 1

    def _ask(self, envs: Sequence[int]) -> None:
        # If a worker ends meanwhile, the next call handles it.
        with contextlib.suppress(WorkerError):
            answers = self._pool.ask("get_state", envs, [None] * len(envs))
            for env, answer in zip(envs, answers, strict=True):
                known = self._histories[env]
                if not self._needs_anchor(known):
                    continue  # It is a new environment: its worker was lost.
                known.saves = not isinstance(answer, RemoteFailure)
                self._saves[known.rows.start : known.rows.stop] = known.saves
                if known.saves:
                    self._add_state(known, answer)

    def _may_be_too_far(self) -> bool:
        """Returns True if an anchor may be too far back; fast, as few are."""
        every = self._policy.anchor_every
        if every is None:
            return bool(self._stand_at_first(self._all).any())
        away = (self._slab.numbers - self._anchored) >> 1
        return bool(((away >= every) & self._saves).any())

    def _needs_anchor(self, known: EnvHistory) -> bool:
        rows = known.rows
        if known.saves is False or any(map(self._rows.is_special, rows)):
            return False
        if not self._rows.begun[rows.start : rows.stop].all():
            return False
        if known.saves is None or not known.has_certain_anchor:
            return True
        away = self._distance(known)
        if self._policy.anchor_every is not None:
            return away >= self._policy.anchor_every
        own = np.arange(rows.start, rows.stop)
        return away > 0 and bool(self._stand_at_first(own).any())

    def _stand_at_first(self, rows: Array) -> Array:
        types = self._slab.step_types(rows)
        first: Array = types == StepType.FIRST
        if self._slab.autoreset == SAME_STEP_ORDER:
            first |= types == StepType.LAST
        return first
