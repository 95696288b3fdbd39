"""Counts the usable CPUs, and finds the CPU that the caller runs on."""

from __future__ import annotations

import ctypes  # NumPy has loaded it already.
import math
import os
import sys
from collections.abc import Callable

__all__ = ["ONE_THREAD", "available_cpus", "current_cpu"]

# One thread per worker, because the workers already run in parallel. Set before NumPy
# is imported, which also halves its import time.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def available_cpus() -> int:
    """Returns how many CPUs this process may use, by affinity and cgroup."""
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count() or 1
    share = _cgroup_cpus()
    return cpus if share >= cpus else max(1, math.ceil(share))


def _cgroup_cpus() -> float:
    """Returns the CPU time a container may use, in CPUs."""
    for read in (_cgroup_2, _cgroup_1):
        try:
            quota, period = read()
        except (OSError, ValueError):
            continue
        if quota > 0 and period > 0:
            return quota / period
    return math.inf


def _cgroup_2() -> tuple[float, float]:
    with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
    return (-1.0 if quota == "max" else float(quota)), float(period)


def _cgroup_1() -> tuple[float, float]:
    values = []
    for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
        with open(f"/sys/fs/cgroup/cpu/{name}", encoding="ascii") as file:
            values.append(float(file.read()))
    return values[0], values[1]


def _unknown() -> int:
    return -1


def _lookup() -> Callable[[], int]:
    if sys.platform != "linux":
        return _unknown
    # The library that Python itself is linked with. PyDLL keeps the GIL: releasing it
    # would take as long as the call.
    function = getattr(ctypes.PyDLL(None), "sched_getcpu", _unknown)
    return function


# Hot: returns the CPU on which the caller runs now, -1 if that is unknown.
current_cpu: Callable[[], int] = _lookup()
