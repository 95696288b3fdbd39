"""`WorkerProcess`: where a worker runs, for debuggers and monitors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerProcess", "workers_inside"]


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker, as its pool knew it: a pool notices lost workers in its next call.

    Attributes:
        index: Its number, as in errors and statistics.
        pid: Its process; `None` while it has none, and for a worker that is a thread or
            the caller itself.
        host: Its machine; "" for the pool's own.
        rows: The rows that it steps.
        restarts: How many times it, or an environment in it, was replaced after a
            failure.
        state: "ready", "lost" if it has ended for good, or "ended", "waiting",
            "starting", "restoring" or "leaving" while it is being replaced.
    """

    index: int
    pid: int | None
    host: str
    rows: tuple[int, ...]
    restarts: int
    state: str


def workers_inside(envs: Sequence[Any]) -> list[WorkerProcess]:
    """Returns the workers of the environments of a batch, each of them one row."""
    found = [
        (row, worker)
        for row, env in enumerate(envs)
        # Other environments may have an attribute of this name.
        for worker in _listed(getattr(env, "workers", ()))
        if isinstance(worker, WorkerProcess)
    ]
    return [
        dataclasses.replace(worker, index=index, rows=(row,))
        for index, (row, worker) in enumerate(found)
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
