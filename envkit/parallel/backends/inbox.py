"""`Inbox`: collects events from worker processes, and waits for them."""

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

# Longest sleep before polling sources that cannot wake us: stderr files, unsent bytes.
POLL_INTERVAL = 0.1


class Inbox:
    """Keeps the events of a backend, and waits for events and answers.

    A backend whose workers are processes implements `wait_events` by `wait`. The
    backend knows how to wait for its descriptors, and the inbox when the wait is over.

    Attributes:
        queue: The events, which the pool empties.
        slab: The slab with the rows' answers, once there is one.
        patience: The longest time in seconds between two calls of `look`.
        is_ending: True if every wait must end.

    Example:
        >>> inbox = Inbox()
        >>> inbox.wait(0.0, -1, poll=lambda seconds: None, look=lambda now: None)
        deque([])
    """

    def __init__(self) -> None:
        """Starts without events and without a slab."""
        self.queue: deque[Event] = deque()
        self.slab: Slab | None = None
        self.patience = POLL_INTERVAL
        self.is_ending = False
        # True from an environment's exception until no row owes an answer: only in that
        # time can rows be marked as raised.
        self._has_raised = False
        # Held while a thread waits. Another thread needs it to close the backend.
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
        """Implements `Backend.wait_events`; returns the events.

        Args:
            timeout: Seconds after which to return in any case; `None` for no limit.
            owing: How many rows may still owe an answer; -1 to ignore answers.
            poll: Takes seconds; waits at most that long for the backend's descriptors,
                and handles what has arrived.
            look: Takes the time; is called at least every `patience` seconds, to poll
                sources that wake nobody, such as a worker's standard error.
            lingers: Whether to spin briefly before sleeping, because the workers are on
                this machine and have their own CPUs.

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
        # Also here, because a caller whose workers answer at once never waits.
        look(now)
        if timeout == 0:
            poll(0.0)
            return queue
        deadline = None if timeout is None else now + timeout
        if lingers and owing == 0 and not queue:
            linger(self.slab.all_answered)  # type: ignore[union-attr]  # rows were asked
        if self.slab is not None:
            self.slab.wait_for(owing)
        # Look at the slab before the first sleep. An answer may have come before its
        # worker saw `awaited`, and a ring that woke an interrupted call does not come
        # again.
        while not queue:
            if self._has_come(owing):
                if self._has_raised:
                    # The mark stays until the caller has repaired the row. Take in the
                    # messages of other workers meanwhile.
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
        """Returns True if at most `owing` rows owe an answer, or some row raised."""
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
            worker: The sender.
            message: The message; the backend handles `Hello` itself.
            first: The row that is row 0 to the worker.
        """
        # Imported here, because a backend of servers, which never unpickles, uses this
        # class too.
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
        """Queues `Raised` for rows that are marked as raised, or will be soon."""
        self._has_raised = True
        self.queue.append(Raised(tuple(rows), failure))

    def forget(self, workers: Sequence[int]) -> None:
        """Drops the events of ended workers, except `Raised`."""
        drop_events_of(workers, self.queue)

    @contextlib.contextmanager
    def closing(self, patience: float) -> Iterator[None]:
        """Runs a block once no other thread is waiting.

        Waiting threads must have been woken before. If one is stuck, the block runs
        after `patience` seconds anyway.
        """
        has_ended = self._waits.acquire(timeout=patience)
        try:
            yield
        finally:
            if has_ended:
                self._waits.release()
