"""A cluster of Ray on this machine, whose actors the soak kills."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from tests.soak.environments import PID
from tests.soak.judge import Judge
from tests.soak.plan import ACTORS, Trouble, command_of, marked

# How long Ray's own processes may take to end.
_TO_END = 60.0
_TO_LEAVE = 5.0


class Cluster:
    """A cluster that starts before a pool and ends after it."""

    def __init__(self, mark: str) -> None:
        """Starts it.

        Args:
            mark: What the processes carry that this program has started.
        """
        import ray

        self._ray, self._mark = ray, mark
        ray.init(
            include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )

    def left(self) -> list[str]:
        """Returns what a pool has left behind: all but Ray's own processes."""
        until = time.monotonic() + _TO_LEAVE
        while left := self._others():
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        return left

    def _others(self) -> list[str]:
        commands = [command_of(pid) for pid in marked(self._mark) if pid != os.getpid()]
        return [text for text in commands if not _is_of_ray(text)]

    def shut_down(self) -> None:
        """Ends it, and waits until it has ended."""
        self._ray.shutdown()
        until = time.monotonic() + _TO_END
        while any(pid != os.getpid() for pid in marked(self._mark)):
            if time.monotonic() > until:
                return
            time.sleep(0.01)


def _is_of_ray(command: str) -> bool:
    """Returns whether a process is one of Ray's own, and no actor of a pool."""
    return "/ray/" in command or (
        "ray::" in command and "ray::EnvkitWorker" not in command
    )


class ActorTroubles:
    """Kills actors when it is time.

    Attributes:
        backend: What carries the rows.
        lost: The processes of workers whose actor was killed.
        made: How often each kind of trouble was made.
    """

    def __init__(self, plan: Sequence[Trouble]) -> None:
        from envkit.distributed import RayBackend

        self._coming = deque(each for each in plan if each.kind is ACTORS)
        # Any number of workers has room on any machine.
        self.backend = RayBackend(num_cpus_per_worker=0)
        self.lost: set[int] = set()
        self.made: Counter[str] = Counter()

    def look(self, env: Any, judge: Judge) -> None:
        """Makes those that are due."""
        while self._coming and self._coming[0].steps <= judge.steps:
            trouble = self._coming[0]
            (worker,) = (each for each in env.workers if trouble.env_id in each.rows)
            # Only a worker that has answered is missed when it is replaced.
            has_answered = worker.pid == judge.shown[trouble.env_id, PID]
            actor = _parent_of(worker.pid)
            if not has_answered or worker.pid in self.lost or not actor:
                return
            self._coming.popleft()
            self.lost.add(worker.pid)
            os.kill(actor, signal.SIGKILL)
            self.made[ACTORS.name] += 1


def _parent_of(pid: int) -> int:
    """Returns the actor that is the parent of a worker; 0 if it has none now."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
    return parent if "ray::EnvkitWorker" in command_of(parent) else 0
