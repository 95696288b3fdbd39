"""Links that are cut, or swallow what they are given: what the soak does to pools.

Workers dial a go-between in the process that steps, which carries bytes both ways.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.link import Address
from envkit.distributed.links import LinkedBackend
from tests.soak.environments import PID
from tests.soak.judge import Judge
from tests.soak.plan import CUTS, SWALLOWS, Trouble

# How long a worker may take to dial.
_TO_DIAL = 60.0


class _Between:
    """The two connections of a worker's link, and what is done to the bytes."""

    def __init__(self, worker: socket.socket, pool: socket.socket) -> None:
        self.swallows = False
        self._pair = worker, pool
        self._threads = [
            threading.Thread(target=self._carry, args=pair, daemon=True)
            for pair in ((worker, pool), (pool, worker))
        ]
        for thread in self._threads:
            thread.start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.swallows:
                    sink.sendall(data)
        self.cut()

    def cut(self) -> None:
        """Ends both connections."""
        for sock in self._pair:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives everything back."""
        self.cut()
        for thread in self._threads:
            thread.join()
        for sock in self._pair:
            sock.close()


class FaultyLauncher(CommandLauncher):
    """Starts workers on this machine that find their pool through a go-between."""

    def __init__(self, workers: int) -> None:
        super().__init__(["envkit worker {address}"] * workers)
        self._between: dict[int, _Between] = {}

    def start(self, worker: int, address: str) -> None:
        """Starts a worker, and what takes its connection."""
        pool = Address.parse(address)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        if worker in self._between:
            self._between.pop(worker).close()
        join = threading.Thread(
            target=self._join, args=(worker, listener, pool), daemon=True
        )
        join.start()
        super().start(worker, str(pool._replace(port=port)))

    def _join(self, worker: int, listener: socket.socket, pool: Address) -> None:
        with listener, contextlib.suppress(OSError):
            listener.settimeout(_TO_DIAL)
            theirs, _ = listener.accept()
            theirs.settimeout(None)
            ours = socket.create_connection((pool.host, pool.port))
            for sock in (theirs, ours):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._between[worker] = _Between(theirs, ours)

    def harm(self, worker: int, *, cuts: bool) -> bool:
        """Cuts a link or lets it swallow everything; returns whether there was one."""
        between = self._between.get(worker)
        if between is None:
            return False
        if cuts:
            between.cut()
        else:
            between.swallows = True
        return True

    def close(self) -> None:
        """Ends everything that it has started."""
        super().close()
        for between in self._between.values():
            between.close()
        self._between.clear()


class LinkTroubles:
    """Makes the troubles of links when it is time.

    Attributes:
        backend: What carries the rows.
        lost: The processes whose link was harmed.
        made: How often each kind of trouble was made.
    """

    def __init__(self, plan: Sequence[Trouble], workers: int) -> None:
        self._coming = deque(each for each in plan if each.kind in (CUTS, SWALLOWS))
        self._launcher = FaultyLauncher(workers)
        self.backend = LinkedBackend(self._launcher)
        self.lost: set[int] = set()
        self.made: Counter[str] = Counter()

    def look(self, env: Any, judge: Judge) -> None:
        """Makes those that are due."""
        while self._coming and self._coming[0].steps <= judge.steps:
            trouble = self._coming[0]
            (worker,) = (each for each in env.workers if trouble.env_id in each.rows)
            # Only a worker that has answered is missed when it is replaced.
            has_answered = worker.pid == judge.shown[trouble.env_id, PID]
            if not has_answered or worker.pid in self.lost:
                return
            cuts = trouble.kind is CUTS
            if not self._launcher.harm(worker.worker, cuts=cuts):
                return
            self._coming.popleft()
            self.lost.add(worker.pid)
            self.made[trouble.kind.name] += 1
