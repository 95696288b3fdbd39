"""Lists the workers of a pool, with their processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from envkit._internal.worker_process import WorkerProcess

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.pool import Pool

__all__ = ["workers_of"]


def workers_of(pool: Pool, backend: Backend) -> list[WorkerProcess]:
    """Returns the current facts about a pool's workers; any thread may ask."""
    found = []
    # Another thread may be changing the number of workers.
    for index, (worker, block) in enumerate(
        zip(pool.workers.workers, pool.layout.blocks, strict=False)
    ):
        pid = backend.pid(index)
        is_here = pid == os.getpid() and not worker.host
        # Likewise it may be replacing this one.
        has_ended = worker.is_ready and worker.pid != pid
        found.append(
            WorkerProcess(
                index=index,
                pid=None if is_here else pid or None,
                host=worker.host,
                rows=tuple(range(*block)),
                restarts=worker.restarts,
                state="ended" if has_ended else worker.state.value,
            )
        )
    return found
