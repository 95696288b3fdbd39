"""`RunClock`: counts for how long a worker runs rows, and for how long it waits."""

from __future__ import annotations

import os
import time

from envkit.parallel.slab_layout import BUSY_NS, RESIDENT, RUNS, WAITING_NS
from envkit.parallel.worker.environments import resident_bytes

__all__ = ["RunClock"]

# How many nanoseconds may pass until the memory is looked at again.
_POLL_INTERVAL_NS = 1_000_000_000


class RunClock:
    """Counts in the meters of a worker how long it runs rows, and how long it waits.

    Attributes:
        woken: When the run that is under way has begun, in nanoseconds.
        before: When the one before it had ended.
    """

    __slots__ = ("_looked", "_meters", "before", "woken")

    def __init__(self, meters: memoryview) -> None:
        """Takes the worker's line of the meters."""
        self._meters = meters
        self._looked = 0
        self.before = self.woken = time.perf_counter_ns()

    def count(self) -> None:
        """Counts a run that has all but ended: who sees its end sees the meters."""
        # Hot: once per batch step.
        meters, after = self._meters, time.perf_counter_ns()
        meters[BUSY_NS] += after - self.woken
        meters[WAITING_NS] += self.woken - self.before
        meters[RUNS] += 1
        self.before = after

    def count_with_memory(self) -> None:
        """Does the same; now and then it counts the memory of this process, too."""
        # Hot: once per request.
        self.count()
        if self.before - self._looked > _POLL_INTERVAL_NS:
            self._looked = self.before
            self._meters[RESIDENT] = resident_bytes(os.getpid())
