"""The parallel engine: environments in workers, stepped as one batch or one by one."""

# Names are loaded on first use: worker processes import this package too, and don't
# need the code that starts and supervises workers.

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from envkit._internal.worker_process import WorkerProcess
    from envkit.parallel.async_parallel_py_environment import (
        AsyncParallelPyEnvironment,
    )
    from envkit.parallel.parallel_py_environment import ParallelPyEnvironment
    from envkit.parallel.process_py_environment import ProcessPyEnvironment
    from envkit.parallel.restarts import RestartPolicy
    from envkit.parallel.statistics import PoolStatistics, WorkerStatistics
    from envkit.time_step import AutoReset

_HOMES = {
    "AsyncParallelPyEnvironment": "envkit.parallel.async_parallel_py_environment",
    "AutoReset": "envkit.time_step",
    "ParallelPyEnvironment": "envkit.parallel.parallel_py_environment",
    "PoolStatistics": "envkit.parallel.statistics",
    "ProcessPyEnvironment": "envkit.parallel.process_py_environment",
    "RestartPolicy": "envkit.parallel.restarts",
    "WorkerProcess": "envkit._internal.worker_process",
    "WorkerStatistics": "envkit.parallel.statistics",
}

__all__ = [
    "AsyncParallelPyEnvironment",
    "AutoReset",
    "ParallelPyEnvironment",
    "PoolStatistics",
    "ProcessPyEnvironment",
    "RestartPolicy",
    "WorkerProcess",
    "WorkerStatistics",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
