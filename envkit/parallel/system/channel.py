"""`Channel`: small messages and descriptors over a Unix stream socket.

```
 0xEC     descriptors   length of the payload   payload
 1 byte   1 byte        6 bytes, big endian     a pickle
```

Rows do not go this way, so it need not be fast. Descriptors travel with the first byte
of their frame. Their number is in the header, because the kernel may deliver them a few
frames early when one read takes several.

Ctrl-C is delivered while a call waits. Reads and writes hold it back, because a system
call and its bookkeeping must not be separated. The next call finishes an interrupted
`send`, and returns the message of an interrupted `receive`.
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
# Linux accepts no more in one message.
_MOST_DESCRIPTORS = 253
_INT = array.array("i").itemsize
_ANCILLARY_SIZE = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT)
# macOS lacks these flags. There we mark descriptors after they arrive, and a socket
# option suppresses the signal.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
_READ_AT_LEAST = 2**16
_READ_AT_MOST = 2**20
# Enough reads to empty the kernel's buffer; the limit is for a peer that writes as fast
# as we read.
_MOST_READS = 1024


class Channel:
    """One end of a message channel between two processes.

    A message is anything that pickles. Neither end blocks the other for ever: while a
    `send` waits for room, it reads incoming bytes, so both sides may send large
    messages at the same time. Only one thread may use a channel at a time.

    An epoll does not report messages that a `send` has read, so check `pending` before
    waiting in one.

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
        """Takes over a connected Unix stream socket and makes it non-blocking."""
        sock.setblocking(False)
        if hasattr(socket, "SO_NOSIGPIPE"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
        self._sock = sock
        # Bytes that were read, and descriptors: those of messages not received yet, and
        # those of received ones.
        self._inbox = bytearray()
        self._arrived: list[int] = []
        self._untaken: list[int] = []
        self._has_ended = self._has_lost_descriptors = False
        # The exception from unpickling a message, until a call raises it.
        self._failure: Exception | None = None
        # The unsent rest of a message; whether part of it has left.
        self._outbox = memoryview(b"")
        self._rights: list[tuple[int, int, bytes]] = []
        self._has_begun = False
        # Why the channel has lost track of the frames and refuses to continue.
        self._fault = ""

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Makes the two ends of a channel."""
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(first), cls(second)

    @classmethod
    def attach(cls, fd: int) -> Channel:
        """Makes an end of a channel from an inherited descriptor, and owns it."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Returns the descriptor to wait on; -1 once the channel is closed."""
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether `receive` returns a message without reading from the socket."""
        return self._failure is not None or not self._missing()

    @property
    def unsent(self) -> bool:
        """Whether part of an interrupted or late message is still unsent."""
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

        After a timeout or Ctrl-C, the message is either not sent at all, or, if part of
        it has left, finished by the next call; `unsent` tells which.

        Args:
            message: Anything that pickles.
            fds: Descriptors for the other side, which gets its own copies. On macOS,
                keep them open until it has answered, because the kernel may lose them.
            timeout: Seconds until `TimeoutError`; `None` waits.
            life: A descriptor that becomes readable when the other process ends.
                Without it, an orphan of that process that holds the socket would keep
                this call waiting.

        Raises:
            BrokenPipeError: The other end is closed, or its process has ended.
            TimeoutError: The other side did not read it in time.
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
        """Finishes the message of an interrupted or late `send`."""
        self._settle()
        self._finish(_Deadline(timeout), life)

    def receive(self, timeout: float | None = None, *, life: int | None = None) -> Any:
        """Returns the next message.

        If a message cannot be unpickled, its exception is raised; the next call returns
        the next message.

        Args:
            timeout: Seconds until `TimeoutError`; `None` waits.
            life: A descriptor that becomes readable when the other process ends.

        Raises:
            EOFError: The other end is closed and all its messages have been received.
            TimeoutError: No complete message arrived in time.
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
            # The other side may be waiting for the rest of an interrupted message.
            self._push_or_leave()
            over = self._exchange(deadline, life)
        return self._pop()

    def receive_available(self) -> list[Any]:
        """Returns all complete messages, without waiting.

        A message that cannot be unpickled raises in the call after those before it were
        returned; `pending` is True until then.

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
        of their messages. `close` closes those that were not taken.
        """
        taken, self._untaken = self._untaken, []
        return taken

    def close(self) -> None:
        """Closes this end, and any descriptors that nobody took."""
        with uninterrupted():
            self._sock.close()
            self._drop_outbox()
            self._inbox.clear()
            # Never close a number twice: it could be another file's by then.
            for fd in (*self._untaken, *self._arrived):
                with contextlib.suppress(
                    OSError
                ):  # Other code closed it by its number.
                    os.close(fd)
            self._untaken, self._arrived = [], []

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _settle(self) -> None:
        """Begins a call: drops a message of which no byte was sent."""
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
        """Waits until bytes can move in either direction; reads incoming ones.

        Returns "dead" or "late" if the wait is over, else "".
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
            # Everything that it wrote before its end is in the socket by now.
            while self._pull():
                pass
            return "dead"
        if ready.get(self.fileno(), 0) & ~select.POLLOUT:
            self._pull()
        return ""

    def _pull(self) -> bool:
        """Reads once; returns True if there may be more to read."""
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
                # It closed without reading all our messages. That too is its end.
                data, ancillary, flags = b"", [], 0
            self._inbox += data
            self._arrived += _descriptors(ancillary)
            self._has_lost_descriptors |= bool(flags & socket.MSG_CTRUNC)
            self._has_ended = not data
        return True

    def _push(self) -> bool:
        """Sends as much as fits; returns True if nothing is left."""
        with uninterrupted():
            # Descriptors go with the header alone, which the kernel never splits.
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
        """Sends more; if the other end is closed, `send` will raise."""
        with contextlib.suppress(BrokenPipeError):
            self._push()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _missing(self) -> int:
        """Returns how many bytes the first message still lacks, as far as is known."""
        if len(self._inbox) < _HEADER:
            return _HEADER - len(self._inbox)
        if self._inbox[0] != _MARK:
            raise self._break(
                "The channel received something that is no message: something else has "
                "written to its descriptor."
            )
        length = int.from_bytes(self._inbox[2:_HEADER], "big")
        return max(0, _HEADER + length - len(self._inbox))

    def _pop(self) -> Any:
        """Returns the first message, which must be complete."""
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
            f"{len(self._inbox)} bytes of it had arrived, at least {self._missing()} "
            "are missing."
        )


class _Deadline:
    """The time at which a call stops waiting, if any."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout

    def __str__(self) -> str:
        return f"{self._timeout:g} s"

    def milliseconds(self) -> int | None:
        """Returns the milliseconds left for poll: rounded up, never negative."""
        if self._end is None:
            return None
        # Poll takes a C int; a wait of weeks may return early.
        left = min(self._end - time.monotonic(), 1e6)
        return max(0, math.ceil(left * 1000))


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Returns the descriptors that came with some bytes, set to close on exec."""
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) // _INT * _INT])
    if not _CLOSE_ON_EXEC:
        for fd in found:
            os.set_inheritable(fd, False)
    return found.tolist()
