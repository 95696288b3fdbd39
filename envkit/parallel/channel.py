"""Small framed messages and descriptors over a Unix stream socket: the rare path.

Ctrl-C may strike between any two instructions of Python, so nothing here is ever half
done in between. What a system call returns goes into a list within one call of C code
(`_call_into`), and everything that follows from it is computed first and then comes
into force with one assignment. An interrupted `send` is finished by the next call, an
interrupted `receive` gives its message to the next one, and no call is off by one.
"""

from __future__ import annotations

import collections
import math
import os
import pickle
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from envkit.parallel.frames import (
    ANCILLARY_SIZE,
    CLOSE_ON_EXEC,
    END,
    Buffer,
    First,
    Inbox,
    Outgoing,
)

__all__ = ["Channel"]

# macOS has no such flag: there an option of the socket keeps the signal away.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_READ_AT_LEAST = 2**16
_READ_AT_MOST = 2**20
# The kernel's buffer holds fewer reads than this, so all that had come is read; the
# limit is for a peer that writes as fast as this side reads.
_MOST_READS = 1024

_Answer = TypeVar("_Answer")


class Channel:
    """One end of a pair through which two processes send each other messages.

    A message is anything that pickles. Neither end ever blocks the other for good:
    while a `send` waits for room it takes in what arrives, so both sides may send
    large messages at the same time. A channel belongs to one thread at a time.

    What a `send` took in, no epoll announces: look at `pending` before waiting in one.

    Example:
        >>> here, there = Channel.pair()
        >>> here.send({"seed": [1, 2, 3]})
        >>> there.receive()
        {'seed': [1, 2, 3]}
        >>> here.close()
        >>> there.receive()
        Traceback (most recent call last):
            ...
        EOFError: The other end of the channel is closed.
        >>> there.close()
    """

    def __init__(self, sock: socket.socket) -> None:
        """Takes over a connected Unix stream socket, which becomes non-blocking."""
        sock.setblocking(False)
        if hasattr(socket, "SO_NOSIGPIPE"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
        self._sock = sock
        self._inbox = Inbox()
        self._outgoing: Outgoing | None = None
        self._fault = ""

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Makes the two ends of a channel."""
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(first), cls(second)

    @classmethod
    def attach(cls, fd: int) -> Channel:
        """Makes an end from an inherited descriptor, which it owns from then on."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Returns the descriptor to wait on, -1 once the channel is closed."""
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether `receive` has something to give without looking at the socket."""
        inbox = self._inbox
        return inbox.failure is not None or not self._look(inbox.missing)

    @property
    def unsent(self) -> bool:
        """Whether a message that was interrupted or late is still on its way out."""
        outgoing = self._outgoing
        return outgoing is not None and outgoing.rest() is not None

    @property
    def broken(self) -> bool:
        """Whether the channel has lost its place and refuses to go on."""
        return bool(self._fault)

    def send(
        self,
        message: Any,
        fds: Sequence[int] = (),
        *,
        timeout: float | None = None,
        life: int | None = None,
    ) -> None:
        """Pickles a message and sends it; nothing is sent if it does not pickle.

        When time runs out, or Ctrl-C comes, the message is either not sent at all or,
        if it had begun to leave, finished by the next call; `unsent` tells which.

        Args:
            message: Anything that pickles.
            fds: Descriptors for the other side, which gets its own copies. On macOS
                keep them open until it has answered: the kernel may lose them else.
            timeout: Seconds until `TimeoutError`; `None` waits.
            life: A descriptor that becomes readable when the other process ends.
                Without it a child that the process left behind, and that holds the
                socket, would keep this call waiting.

        Raises:
            BrokenPipeError: The other end is closed, or its process has ended.
            TimeoutError: The other side did not read in time.
        """
        self.send_bytes(
            pickle.dumps(message, protocol=5), fds, timeout=timeout, life=life
        )

    def send_bytes(
        self,
        payload: Buffer,
        fds: Sequence[int] = (),
        *,
        timeout: float | None = None,
        life: int | None = None,
    ) -> None:
        """Sends bytes: a pickle, or whatever the other side's `receive_bytes` knows."""
        outgoing = Outgoing.frame(payload, fds)
        deadline = _Deadline(timeout)
        self._settle()
        self._finish(deadline, life)
        self._outgoing = outgoing
        self._finish(deadline, life)

    def flush(self, *, timeout: float | None = None, life: int | None = None) -> None:
        """Finishes what an interrupted or late `send` left; mostly does nothing."""
        self._settle()
        self._finish(_Deadline(timeout), life)

    def receive(self, timeout: float | None = None, *, life: int | None = None) -> Any:
        """Returns the next message.

        A message that cannot be unpickled here raises what unpickling raised; the next
        call returns the message after it.

        Args:
            timeout: Seconds until `TimeoutError`; `None` waits.
            life: A descriptor that becomes readable when the other process ends.

        Raises:
            EOFError: The other end is closed and all its messages have been received.
            TimeoutError: No whole message arrived in time.
        """
        first = self._wait_for_first(timeout, life)
        try:
            message = pickle.loads(first.payload)
        except Exception:
            self._inbox = first.others
            raise
        # Not before: a message whose unpickling is interrupted stays the first.
        self._inbox = first.others
        return message

    def receive_bytes(
        self, timeout: float | None = None, *, life: int | None = None
    ) -> bytes:
        """Returns the payload of the next message; otherwise like `receive`."""
        first = self._wait_for_first(timeout, life)
        payload = bytes(first.payload)
        self._inbox = first.others
        return payload

    def receive_available(self) -> list[Any]:
        """Returns all messages that have arrived whole, without waiting.

        A message that cannot be unpickled raises once those before it were returned;
        `pending` says so until then.

        Raises:
            EOFError: The other end is closed and all its messages have been received.
        """
        self._settle()
        self._push_or_leave()
        for _ in range(_MOST_READS):
            if not self._pull():
                break
        self._raise_failure()
        messages: list[Any] = []
        inbox = self._inbox
        while (first := self._look(inbox.first)) is not None:
            inbox = first.others
            try:
                messages.append(pickle.loads(first.payload))
            except Exception as error:
                if messages:
                    inbox.failure = error
                    break
                self._inbox = inbox
                raise
        self._inbox = inbox
        if not messages and inbox.ended:
            raise EOFError(inbox.end_text())
        return messages

    def take_fds(self) -> list[int]:
        """Returns the descriptors of the messages received since the last call.

        They belong to the caller, are not inherited by programs, and come in the order
        of their messages. What nobody takes is closed with the channel.
        """
        inbox = self._inbox
        if inbox.closing is not None:
            return []
        self._inbox = inbox.changed(untaken=(), failure=inbox.failure)
        return list(inbox.untaken)

    def close(self) -> None:
        """Closes this end and the descriptors nobody took; may be called again."""
        self._sock.close()
        self._outgoing = None
        inbox = self._inbox
        if inbox.closing is None:
            inbox.closing = iter(inbox.descriptors())
        while True:
            try:
                # Next and close in one go, however often it is interrupted: a number
                # closed twice may be somebody else's the second time.
                collections.deque(map(os.close, inbox.closing), maxlen=0)
                break
            except OSError:
                continue  # Somebody closed that one by its number.
        self._inbox = Inbox(closing=inbox.closing)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _settle(self) -> None:
        """Begins a call: forgets a message of which no byte had left."""
        if self.fileno() < 0:
            raise ValueError("The channel was used after close().")
        if self._fault:
            raise ConnectionAbortedError(self._fault)
        if self._outgoing is not None and not self.unsent:
            self._outgoing = None

    def _finish(self, deadline: _Deadline, life: int | None) -> None:
        while not self._push():
            over = self._exchange(deadline, life)
            if over == "dead":
                self._outgoing = None
                raise BrokenPipeError("The other process has ended.")
            if over == "late":
                raise TimeoutError(
                    f"The other side did not read a message within {deadline}."
                )

    def _wait_for_first(self, timeout: float | None, life: int | None) -> First:
        self._settle()
        self._raise_failure()
        deadline = _Deadline(timeout)
        over = ""
        while (first := self._look(self._inbox.first)) is None:
            if self._inbox.ended:
                raise EOFError(self._inbox.end_text())
            if over == "dead":
                raise EOFError("The other process has ended.")
            if over == "late":
                raise TimeoutError(f"No message arrived within {deadline}.")
            # The other side may wait for the rest of an interrupted message.
            self._push_or_leave()
            over = self._exchange(deadline, life)
        return first

    def _exchange(self, deadline: _Deadline, life: int | None) -> str:
        """Waits until something can move in either direction, and takes in what came.

        Returns "dead" or "late" when there is nothing more to wait for, else "".
        """
        poller = select.poll()
        events = 0 if self._inbox.ended else select.POLLIN
        if self._outgoing is not None:
            events |= select.POLLOUT
        poller.register(self._sock, events)
        if life is not None:
            poller.register(life, select.POLLIN)
        ready = dict(poller.poll(deadline.milliseconds()))
        if not ready:
            return "late"
        if life in ready:
            # What it wrote before its end is all in the socket by now.
            while self._pull():
                pass
            return "dead"
        if ready.get(self.fileno(), 0) & ~select.POLLOUT:
            self._pull()
        return ""

    def _pull(self) -> bool:
        """Takes in what one read gives; returns whether there may be more."""
        inbox = self._inbox
        if inbox.ended:
            return False
        wanted = self._look(inbox.missing)
        size = min(max(wanted, _READ_AT_LEAST), _READ_AT_MOST)
        try:
            _call_into(
                inbox.chunks, self._sock.recvmsg, size, ANCILLARY_SIZE, CLOSE_ON_EXEC
            )
        except BlockingIOError:
            return False
        except ConnectionResetError:
            # It closed with messages of ours unread. That is its end all the same.
            inbox.chunks.append(END)
        return True

    def _push(self) -> bool:
        """Sends what there is room for; returns whether that was the last of it."""
        outgoing = self._outgoing
        if outgoing is None:
            return True
        if outgoing.counts:
            outgoing = outgoing.rest()
        if outgoing is not None:
            # Descriptors go with the header alone, which never fits only in part.
            parts = outgoing.parts[:1] if outgoing.ancillary else outgoing.parts
            try:
                _call_into(
                    outgoing.counts,
                    self._sock.sendmsg,
                    parts,
                    outgoing.ancillary,
                    _SEND_FLAGS,
                )
            except BlockingIOError:
                return False
            except ConnectionError as error:
                self._outgoing = None
                raise BrokenPipeError(
                    "The other end of the channel is closed."
                ) from error
            outgoing = outgoing.rest()
        self._outgoing = outgoing
        return outgoing is None

    def _push_or_leave(self) -> None:
        """Sends on the way; that nobody reads any more is for `send` to say."""
        try:
            self._push()
        except BrokenPipeError:
            return

    def _raise_failure(self) -> None:
        failure = self._inbox.failure
        if failure is not None:
            self._inbox = self._inbox.changed(untaken=self._inbox.untaken, failure=None)
            raise failure

    def _look(self, question: Callable[[], _Answer]) -> _Answer:
        """Asks the inbox, and remembers when it has lost its place."""
        try:
            return question()
        except ConnectionAbortedError as error:
            self._fault = str(error)
            raise


class _Deadline:
    """A moment after which nobody waits any more, or none."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout

    def __str__(self) -> str:
        return f"{self._timeout:g} s"

    def milliseconds(self) -> int | None:
        """Returns what is left, as poll wants it: rounded up, never negative."""
        if self._end is None:
            return None
        # Poll takes a C int; whoever waits for weeks may be woken in between.
        left = min(self._end - time.monotonic(), 1e6)
        return max(0, math.ceil(left * 1000))


def _call_into(results: list[Any], function: Callable[..., Any], *args: Any) -> None:
    """Calls a function of C and appends what it returns, out of reach of Ctrl-C.

    The interpreter runs signal handlers between its own instructions only. Were the
    result assigned in Python, one could come between the return of the system call and
    the assignment, and what was read or sent would be forgotten.
    """
    results.extend(map(function, *([argument] for argument in args)))
