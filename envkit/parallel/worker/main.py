"""Runs the process of a worker, from its first message to its end.

```
parent                                          worker
  starts it, with a channel and a lifeline  ─▶   ties its life to the lifeline
  Job(constructors, …)                      ─▶   builds the environments
                                            ◀─   Hello(specs, …), or the failure
  Bind(layout) + memory, bells              ─▶   lays its slab over the memory
  rings                                     ─▶   runs the rows that were asked, rings
  rings, sends a Request                    ─▶   answers it
  rings, sends Bind(another layout) + memory ▶   continues with those rows
  rings, sends Close                        ─▶   closes the environments and ends
```

A worker sees only rows, bells and a channel of its parent.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable

from envkit.parallel.messages import (
    Bind,
    Close,
    ObjectActions,
    ObjectRow,
    Packed,
    PackedJob,
    RowsRaised,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import AWAKE, LAST_CPU, STEP
from envkit.parallel.system.channel import Channel
from envkit.parallel.system.cpus import current_cpu
from envkit.parallel.system.doorbell import MESSAGE, Doorbell, is_readable, linger
from envkit.parallel.system.shared_memory import KEEPS_ORDER, SharedBlock, full_fence
from envkit.parallel.worker.host import WorkerHost

__all__ = ["main"]


def main(channel_fd: int, lifeline_fd: int, inherited: WorkerJob | None = None) -> None:
    """Runs a worker until it is told to end."""
    host = WorkerHost(channel_fd, lifeline_fd, as_fork=inherited is not None)
    worker = _Worker(Channel.attach(channel_fd), host)
    with contextlib.suppress(EOFError, ConnectionError):
        worker.run(inherited)


class _Worker:
    """Connects a host with the pool, by shared memory, bells and a channel."""

    def __init__(self, channel: Channel, host: WorkerHost) -> None:
        self._channel, self._host = channel, host
        self._bells: list[Doorbell] = []
        self._block: SharedBlock | None = None
        # The descriptors of messages that are not handled yet.
        self._fds: list[int] = []
        # The message that ends the service of the current rows.
        self._order: Packed | Close | None = None
        # Whether an environment has raised without a ring for its rows so far.
        self._has_failure = False
        host.close_in_forks(self._close)

    def _close(self) -> None:
        self._channel.close()
        for bell in self._bells:
            bell.close()
        if self._block is not None:
            self._block.close()

    def run(self, inherited: WorkerJob | None) -> None:
        """Builds the environments, then serves rows and requests."""
        packed: PackedJob = self._channel.receive()
        with self._host.built(packed, inherited) as message:
            self._channel.send(message)
            if isinstance(message, Packed):
                self._runner = self._host.runner
                self._serve(packed.job.worker, packed.job.options.rings_each_row)

    def _serve(self, worker: int, rings_each_row: bool) -> None:
        # The first message is a Bind; there is no bell yet to announce it.
        message: Packed | Close = self._channel.receive()
        owed = 0
        while isinstance(message, Packed):
            bind = self._host.unpacked(message)
            slab = self._slab_of(bind)
            ring = self._ring_for(slab, self._bells[1])
            self._runner.after_row = ring if rings_each_row else None
            self._host.bind(slab, worker, self._tell)
            message, owed = self._run(slab, worker, bind.lingers, owed)

    def _slab_of(self, bind: Bind) -> Slab:
        """Lays a slab over the memory that came with a layout."""
        self._fds += self._channel.receive_fds()
        memory, *bells = self._fds[: bind.fds]
        del self._fds[: bind.fds]
        if bells:
            half = len(bells) // 2
            self._bells = [Doorbell.of(bells[:half]), Doorbell.of(bells[half:])]
        if self._block is not None:
            self._block.close()
        self._block = SharedBlock.attach(memory, bind.layout.size)
        return Slab(bind.layout, self._block.buffer)

    def _run(
        self, slab: Slab, worker: int, lingers: bool, owed: int
    ) -> tuple[Packed | Close, int]:
        """Serves until a message arrives that concerns neither rows nor environments.

        Args:
            slab: The slab with the rows.
            worker: The index of the worker in the slab.
            lingers: Whether to linger before falling asleep.
            owed: How many messages were rung for but have not come, because the parent
                was interrupted; negative if messages came before their ring was read.

        Returns:
            The message, and how many are owed then.
        """
        bell, done = self._bells
        runner, ring = self._runner, self._ring_for(slab, done)
        meters = slab.counters(worker)
        clock, now = runner.start_clock(), time.perf_counter_ns
        run_pending, due = runner.run_pending, runner.due
        if slab.private_actions:
            self._slab = slab
            # By row: the number of the request whose objects have arrived.
            self._objects: dict[int, int] = {}
            run_pending = self._run_with_objects
        announcements, seen = slab.announcements, 0

        def has_been_asked() -> bool:
            return announcements[0] != seen

        def falls_asleep() -> bool:
            # Either we see a request made now, or the parent sees that it must ring.
            meters[LAST_CPU] = current_cpu()
            meters[AWAKE] = 0
            full_fence()
            return not has_been_asked()

        # There may have been rings for requests and messages of this slab already.
        is_awake = has_message = True
        while True:
            # Hot: once per batch step.
            if is_awake:
                # The ring for these rows is read later, when nothing is pending.
                clock.woken, is_awake = now(), False
            elif due:
                runner.reset_next()
                clock.before = clock.woken = now()
            else:
                rings = bell.wait() if owed <= 0 else self._wait_for_either(bell)
                clock.woken = now()
                owed += rings // MESSAGE
                has_message = rings >= MESSAGE or owed > 0 or rings == 0
            if has_message:
                runner.messages_seen, has_message = slab.messages[0], False
                owed -= self._answer()
                if self._order is not None:
                    order, self._order = self._order, None
                    return order, owed
            meters[AWAKE] = KEEPS_ORDER
            seen = announcements[0]
            ran = run_pending()
            if ran > 0:
                if runner.after_row is None:
                    ring()
                is_awake = lingers and linger(has_been_asked)
            elif ran < 0:
                is_awake = has_message = True
            is_awake = is_awake or not falls_asleep()

    def _wait_for_either(self, bell: Doorbell) -> int:
        """Waits for the bell or a message; returns the rings, if any."""
        poller = select.poll()
        for fd in (bell.fileno(), self._channel.fileno()):
            poller.register(fd, select.POLLIN)
        rung = any(fd == bell.fileno() for fd, _ in poller.poll())
        return bell.wait() if rung else 0

    def _ring_for(self, slab: Slab, done: Doorbell) -> Callable[[], None]:
        """Returns a function that wakes the parent if it waits for these answers."""

        def ring() -> None:
            # Hot: called once per batch step, or once per row. The parent always waits
            # for rows marked as raised, however many others owe an answer.
            if self._has_failure or slab.is_awaited():
                self._has_failure = False
                done.ring()

        return ring

    def _tell(self, message: RowsRaised | ObjectRow) -> None:
        self._channel.send(message)
        self._has_failure |= isinstance(message, RowsRaised)

    def _answer(self) -> int:
        """Handles the messages that have arrived; returns their number."""
        count = 0
        # An announced message that is too large to fit at once comes in parts.
        while self._channel.pending or is_readable(self._channel.fileno(), 0):
            message = self._channel.receive()
            count += 1
            if isinstance(message, Close | Packed):
                self._order = message
                break
            if isinstance(message, ObjectActions):
                self._host.write_objects(message)
                self._objects |= message.numbers
            else:
                self._channel.send(self._host.reply(message))
        return count

    def _run_with_objects(self) -> int:
        """Does the same as `run_pending`, for the rows whose actions are complete."""
        slab, arrived = self._slab, self._objects
        pending = self._runner.pending()
        rows = [
            row
            for row in pending
            if arrived.get(row) == slab.numbers[row] or slab.requested[row] != STEP
        ]
        if pending and slab.messages[0] != self._runner.messages_seen:
            return -1
        if len(rows) < len(pending) and not self._runner.is_single:
            # The rows of a batch go together; a ring comes with the missing objects.
            return 0
        for row in rows:
            # A withdrawn number is used again, with other objects.
            arrived.pop(row, None)
        if rows:
            self._runner.run(rows)
        return len(rows)
