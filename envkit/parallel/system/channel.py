"""Small framed messages and descriptors over a Unix stream socket: the rare path.

```
 0xEC     descriptors   length of the payload   payload
 1 byte   1 byte        6 bytes, big endian     a pickle
```

Descriptors travel with the first byte of their frame. Their number is in the header,
because the kernel may hand them over a few frames early when one read takes several.

Ctrl-C is delivered where a call waits. Reads and writes hold it back, because a system
call and the bookkeeping for it must not be separated: an interrupted `send` is finished
by the next call, and an interrupted `receive` gives its message to the next one.
"""

from __future__ import annotations

import array
import contextlib
import math
import os
import pickle
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from envkit.parallel.system.ctrl_c import uninterrupted

__all__ = ["Channel"]

_MARK = 0xEC
_HEADER = 8
_LONGEST = 2**48 - 1
# Linux takes no more in one message.
_MOST_DESCRIPTORS = 253
_INT = array.array("i").itemsize
_ANCILLARY_SIZE = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT)
# macOS does not have these: there descriptors are marked after they came, and an option
# of the socket keeps the signal away.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_READ_AT_LEAST = 2**16
_READ_AT_MOST = 2**20
# The kernel's buffer holds fewer reads than this, so all that had come is read; the
# limit is for a peer that writes as fast as this side reads.
_MOST_READS = 1024


class Channel:
    """One end of a pair through which two processes send each other messages.

    A message is anything that pickles. Neither end blocks the other for ever: while a
    `send` waits for room it reads what arrives, so both sides may send large messages
    at the same time. A channel belongs to one thread at a time.

    No epoll announces what a `send` has read: look at `pending` before waiting in one.

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
        # Bytes that were read, and descriptors: of messages that were not received yet,
        # and of messages that were.
        self._inbox = bytearray()
        self._arrived: list[int] = []
        self._untaken: list[int] = []
        self._has_ended = self._has_lost_descriptors = False
        # What unpickling a message raised, if no call has raised it yet.
        self._failure: Exception | None = None
        # The rest of the message on its way out; whether part of it has left.
        self._outbox = memoryview(b"")
        self._rights: list[tuple[int, int, bytes]] = []
        self._has_begun = False
        # Why the channel has lost its place and refuses to go on.
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
        """Whether `receive` returns a message without reading from the socket."""
        return self._failure is not None or not self._missing()

    @property
    def unsent(self) -> bool:
        """Whether a message that was interrupted or late is still on its way out."""
        return self._has_begun

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
                keep them open until it has answered, because the kernel may lose them.
            timeout: Seconds until `TimeoutError`; `None` waits.
            life: A descriptor that becomes readable when the other process ends.
                Without it a child that the process left behind, and that holds the
                socket, would keep this call waiting.

        Raises:
            BrokenPipeError: The other end is closed, or its process has ended.
            TimeoutError: The other side did not read in time.
        """
        payload = pickle.dumps(message, protocol=5)
        if len(fds) > _MOST_DESCRIPTORS:
            raise ValueError(
                f"A message takes {_MOST_DESCRIPTORS} descriptors at most, "
                f"not {len(fds)}."
            )
        if len(payload) > _LONGEST:
            raise ValueError(f"A message of {len(payload)} bytes is too long.")
        deadline = _Deadline(timeout)
        self._settle()
        self._finish(deadline, life)
        rights = array.array("i", fds).tobytes()
        header = bytes([_MARK, len(fds)]) + len(payload).to_bytes(6, "big")
        with uninterrupted():
            self._outbox = memoryview(header + payload)
            self._rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] * bool(fds)
        self._finish(deadline, life)

    def flush(self, *, timeout: float | None = None, life: int | None = None) -> None:
        """Finishes a message that an interrupted or late `send` has left."""
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
        self._settle()
        self._raise_failure()
        deadline = _Deadline(timeout)
        over = ""
        while self._missing():
            if self._has_ended:
                raise self._end()
            if over == "dead":
                raise EOFError("The other process has ended.")
            if over == "late":
                raise TimeoutError(f"No message arrived within {deadline}.")
            # The other side may wait for the rest of an interrupted message.
            self._push_or_leave()
            over = self._exchange(deadline, life)
        return self._pop()

    def receive_available(self) -> list[Any]:
        """Returns all messages that have arrived whole, without waiting.

        A message that cannot be unpickled raises once those before it were returned;
        `pending` is true until then.

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
        with uninterrupted():
            while not self._missing():
                try:
                    messages.append(self._pop())
                except Exception as error:
                    if not messages:
                        raise
                    self._failure = error
                    break
        if not messages and self._has_ended:
            raise self._end()
        return messages

    def receive_fds(self) -> list[int]:
        """Returns the descriptors of the messages received since the last call.

        They belong to the caller, are not inherited by programs, and come in the order
        of their messages. Those that are not taken are closed with the channel.
        """
        taken, self._untaken = self._untaken, []
        return taken

    def close(self) -> None:
        """Closes this end and the descriptors that were not taken."""
        with uninterrupted():
            self._sock.close()
            self._drop_outbox()
            self._inbox.clear()
            # A number that were closed twice could be another file's by then.
            for fd in (*self._untaken, *self._arrived):
                with contextlib.suppress(OSError):  # Something closed it by its number.
                    os.close(fd)
            self._untaken, self._arrived = [], []

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _settle(self) -> None:
        """Begins a call: drops a message of which no byte has left."""
        if self.fileno() < 0:
            raise ValueError("The channel was used after close().")
        if self._fault:
            raise ConnectionAbortedError(self._fault)
        if not self._has_begun:
            self._drop_outbox()

    def _drop_outbox(self) -> None:
        self._outbox, self._rights, self._has_begun = memoryview(b""), [], False

    def _finish(self, deadline: _Deadline, life: int | None) -> None:
        while not self._push():
            over = self._exchange(deadline, life)
            if over == "dead":
                self._drop_outbox()
                raise BrokenPipeError("The other process has ended.")
            if over == "late":
                raise TimeoutError(
                    f"The other side did not read a message within {deadline}."
                )

    def _exchange(self, deadline: _Deadline, life: int | None) -> str:
        """Waits until something can move in either direction, and reads what came.

        Returns "dead" or "late" when there is nothing more to wait for, else "".
        """
        poller = select.poll()
        events = 0 if self._has_ended else select.POLLIN
        poller.register(self._sock, events | (select.POLLOUT if self._outbox else 0))
        if life is not None:
            poller.register(life, select.POLLIN)
        ready = dict(poller.poll(deadline.milliseconds()))
        if not ready:
            return "late"
        if life in ready:
            # All that it wrote before its end is in the socket by now.
            while self._pull():
                pass
            return "dead"
        if ready.get(self.fileno(), 0) & ~select.POLLOUT:
            self._pull()
        return ""

    def _pull(self) -> bool:
        """Reads once; returns whether there may be more."""
        if self._has_ended:
            return False
        size = min(max(self._missing(), _READ_AT_LEAST), _READ_AT_MOST)
        with uninterrupted():
            try:
                data, ancillary, flags, _ = self._sock.recvmsg(
                    size, _ANCILLARY_SIZE, _CLOSE_ON_EXEC
                )
            except BlockingIOError:
                return False
            except ConnectionResetError:
                # It closed with messages of ours unread. That is its end all the same.
                data, ancillary, flags = b"", [], 0
            self._inbox += data
            self._arrived += _descriptors(ancillary)
            self._has_lost_descriptors |= bool(flags & socket.MSG_CTRUNC)
            self._has_ended = not data
        return True

    def _push(self) -> bool:
        """Sends what there is room for; returns whether that was the last of it."""
        with uninterrupted():
            # Descriptors go with the header alone, which never fits only in part.
            while self._outbox:
                part = self._outbox[:_HEADER] if self._rights else self._outbox
                try:
                    sent = self._sock.sendmsg([part], self._rights, _SEND_FLAGS)
                except BlockingIOError:
                    return False
                except ConnectionError as error:
                    self._drop_outbox()
                    raise BrokenPipeError(
                        "The other end of the channel is closed."
                    ) from error
                self._outbox = self._outbox[sent:]
                self._rights = []
                self._has_begun = bool(self._outbox)
        return True

    def _push_or_leave(self) -> None:
        """Sends on; that the other end is closed, `send` says."""
        with contextlib.suppress(BrokenPipeError):
            self._push()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _missing(self) -> int:
        """Returns how many bytes the first message lacks, as far as is known."""
        if len(self._inbox) < _HEADER:
            return _HEADER - len(self._inbox)
        if self._inbox[0] != _MARK:
            raise self._break(
                "What arrived through the channel is not a message: something else has "
                "written to its descriptor."
            )
        length = int.from_bytes(self._inbox[2:_HEADER], "big")
        return max(0, _HEADER + length - len(self._inbox))

    def _pop(self) -> Any:
        """Returns the first message, which is here as a whole."""
        count = self._inbox[1]
        stop = _HEADER + int.from_bytes(self._inbox[2:_HEADER], "big")
        if count > len(self._arrived) or (count and self._has_lost_descriptors):
            raise self._break(
                "Descriptors were lost on their way: this process has no room for more "
                "open files. Raise the limit (ulimit -n)."
            )
        with uninterrupted():
            payload = bytes(memoryview(self._inbox)[_HEADER:stop])
            del self._inbox[:stop]
            self._untaken += self._arrived[:count]
            del self._arrived[:count]
            return pickle.loads(payload)

    def _break(self, fault: str) -> ConnectionAbortedError:
        self._fault = fault
        return ConnectionAbortedError(fault)

    def _end(self) -> EOFError:
        if not self._inbox:
            return EOFError("The other end of the channel is closed.")
        return EOFError(
            "The other end of the channel was closed in the middle of a message: "
            f"{len(self._inbox)} bytes of it had come, at least {self._missing()} are "
            "missing."
        )


class _Deadline:
    """A moment after which a call waits no longer, or none."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout

    def __str__(self) -> str:
        return f"{self._timeout:g} s"

    def milliseconds(self) -> int | None:
        """Returns what is left as poll takes it: rounded up, never negative."""
        if self._end is None:
            return None
        # Poll takes a C int; a wait of weeks may return early once in a while.
        left = min(self._end - time.monotonic(), 1e6)
        return max(0, math.ceil(left * 1000))


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Returns the descriptors that came with some bytes, closed on exec."""
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) // _INT * _INT])
    if not _CLOSE_ON_EXEC:
        for fd in found:
            os.set_inheritable(fd, False)
    return found.tolist()
