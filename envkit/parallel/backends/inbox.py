"""`Inbox`: what comes from workers that are processes, and the wait for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envkit.parallel.backends.base import (
    Event,
    Raised,
    Replied,
    Started,
    drop_events_of,
)
from envkit.parallel.messages import ObjectRow, RemoteFailure, Reply, RowsRaised
from envkit.parallel.slab import Slab
from envkit.parallel.system.doorbell import linger

__all__ = ["POLL_INTERVAL", "Inbox"]

# How long a wait may be before what wakes no process is looked at.
POLL_INTERVAL = 0.1


class Inbox:
    """Keeps the events of a backend, and waits for them and for answers of rows.

    A backend whose workers are processes answers `wait_events` by `wait`: it says how
    to wait for its descriptors, and the inbox when that wait is over.

    Attributes:
        queue: The events, which the pool empties.
        slab: Where rows answer, once there are any.
        patience: How many seconds may pass until `look` is called again.
        is_ending: True if no wait is to go on.

    Example:
        >>> inbox = Inbox()
        >>> inbox.wait(0.0, -1, poll=lambda seconds: None, look=lambda now: None)
        deque([])
    """

    def __init__(self) -> None:
        """Has no events and no rows yet."""
        self.queue: deque[Event] = deque()
        self.slab: Slab | None = None
        self.patience = POLL_INTERVAL
        self.is_ending = False
        # True from when an environment has raised until no row owes an answer: only
        # then it is worth while to look for marks.
        self._has_raised = False
        # Held while a thread waits. Another thread that closes has to have it first.
        self._waits = threading.RLock()

    def wait(
        self,
        timeout: float | None,
        owing: int,
        poll: Callable[[float], None],
        look: Callable[[float], None],
        *,
        lingers: bool = False,
    ) -> deque[Event]:
        """Waits as `Backend.wait_events` says, and returns the events.

        Args:
            timeout: Seconds after which to return in any case; `None` for as long as it
                takes.
            owing: How many rows may still owe an answer; -1 if answers alone are no
                reason to return.
            poll: Is called with seconds: waits no longer for the backend's descriptors,
                and handles what has come by them.
            look: Is called with the time, every `patience` seconds at least: handles
                what wakes nobody, such as text that a worker wrote to standard error.
            lingers: Whether to look for answers a moment before waiting, because
                workers are on this machine, and have CPUs of their own.

        Returns:
            The queue.
        """
        with self._waits:
            return self._wait(timeout, owing, poll, look, lingers)

    def _wait(
        self,
        timeout: float | None,
        owing: int,
        poll: Callable[[float], None],
        look: Callable[[float], None],
        lingers: bool,
    ) -> deque[Event]:
        # Hot: called once per batch step.
        queue = self.queue
        now = time.monotonic()
        # Here too, because a caller whose workers answer at once never waits.
        look(now)
        if timeout == 0:
            poll(0.0)
            return queue
        deadline = None if timeout is None else now + timeout
        if lingers and owing == 0 and not queue:
            linger(self.slab.all_answered)  # type: ignore[union-attr]  # rows were asked
        if self.slab is not None:
            self.slab.wait_for(owing)
        # The slab is looked at before the first sleep: an answer may have come before
        # its worker saw what is waited for, and what woke a call that was interrupted
        # then does not come again.
        while not queue:
            if self._has_come(owing):
                if self._has_raised:
                    # The mark stands until the caller has repaired the row; what others
                    # have sent meanwhile is taken in here.
                    poll(0.0)
                break
            patience = self.patience
            poll(patience if timeout is None else min(timeout, patience))
            if self.is_ending or (owing == 0 and self._has_all()):
                break
            now = time.monotonic()
            look(now)
            if deadline is not None:
                timeout = deadline - now
                if timeout <= 0:
                    break
        return queue

    def _has_all(self) -> bool:
        # Hot: called once per batch step.
        slab = self.slab
        return slab is not None and not self._has_raised and slab.all_answered()

    def _has_come(self, owing: int) -> bool:
        """True if at most `owing` rows owe an answer, or a row is marked as raised."""
        # Hot: called at every wake-up of the pool.
        slab = self.slab
        if slab is None:
            return False
        if self._has_raised:
            self._has_raised = not slab.all_answered()
            return slab.has_come(owing)
        if owing == 0:
            return slab.all_answered()
        return slab.count_owing() <= owing

    def handle(self, worker: int, message: Any, first: int = 0) -> None:
        """Handles a message of a worker: queues an event, or writes objects into rows.

        Args:
            worker: Which one has sent it.
            message: What it has sent; its `Hello` is the backend's to handle.
            first: The row that the worker counts from.
        """
        # Not above: a backend of servers, which never unpickles, waits here, too.
        from envkit.parallel.backends.packing import unpacked_leaves, unpacked_reply

        match message:
            case RemoteFailure():
                self.queue.append(Started(worker, message))
            case RowsRaised():
                rows = [first + row for row in message.rows]
                self.queue_raised(rows, message.failure)
            case ObjectRow():
                assert self.slab is not None  # since bind()
                leaves = unpacked_leaves(message, self.slab.layout)
                row = first + message.row
                self.slab.write_step_objects(row, message.slot, leaves)
            case Reply():
                self.queue.append(Replied(worker, unpacked_reply(message)))

    def queue_raised(self, rows: Sequence[int], failure: RemoteFailure) -> None:
        """Queues that the environment of rows has raised, which are marked soon."""
        self._has_raised = True
        self.queue.append(Raised(tuple(rows), failure))

    def forget(self, workers: Sequence[int]) -> None:
        """Drops the events of workers that are gone, but what rows have raised."""
        drop_events_of(workers, self.queue)

    @contextlib.contextmanager
    def closing(self, patience: float) -> Iterator[None]:
        """Runs a block when no other thread waits any more.

        A thread that waits is to have been woken before. Should it be stuck, the block
        runs after `patience` seconds all the same.
        """
        has_ended = self._waits.acquire(timeout=patience)
        try:
            yield
        finally:
            if has_ended:
                self._waits.release()
