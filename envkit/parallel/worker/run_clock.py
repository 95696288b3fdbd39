"""`RunClock`: measures how long a worker runs rows, and how long it waits."""

from __future__ import annotations

import os
import time

from envkit.parallel.slab_layout import BUSY_NS, RESIDENT, RUNS, WAITING_NS
from envkit.parallel.worker.environments import resident_bytes

__all__ = ["RunClock"]

# Nanoseconds between checks of the memory.
_POLL_INTERVAL_NS = 1_000_000_000


class RunClock:
    """Adds the time a worker runs rows, and the time it waits, to its meters.

    Attributes:
        woken: When the current run began, in nanoseconds.
        before: When the previous run ended.
    """

    __slots__ = ("_looked", "_meters", "before", "woken")

    def __init__(self, meters: memoryview) -> None:
        """Takes the worker's line of the meters."""
        self._meters = meters
        self._looked = 0
        self.before = self.woken = time.perf_counter_ns()

    def count(self) -> None:
        """Counts a run just before it ends, so whoever sees its end sees the counts."""
        # Hot: once per batch step.
        meters, after = self._meters, time.perf_counter_ns()
        meters[BUSY_NS] += after - self.woken
        meters[WAITING_NS] += self.woken - self.before
        meters[RUNS] += 1
        self.before = after

    def count_with_memory(self) -> None:
        """Does the same as `count`, and now and then records this process's memory."""
        # Hot: once per request.
        self.count()
        if self.before - self._looked > _POLL_INTERVAL_NS:
            self._looked = self.before
            self._meters[RESIDENT] = resident_bytes(os.getpid())
