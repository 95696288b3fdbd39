"""`ProtocolEnd`: one end of a protocol as a table of states, without a socket.

A protocol has a table for each end, and a subclass of `ProtocolEnd` for each table.
Bytes go in by `receive`, which returns an event once one is complete; `data_to_send`
returns the bytes that are due to the other end. `run_handshake` is all that a socket
adds.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import time
from collections.abc import Mapping
from typing import ClassVar, Generic, NamedTuple, TypeVar

__all__ = ["NAMED", "WAITS", "ProtocolEnd", "Row", "run_handshake"]

WAITS, NAMED = 0, -1
_AT_ONCE = 1 << 16


class Row(NamedTuple):
    """What is read in a state, and where it leads.

    Attributes:
        size: How many bytes the message has: `WAITS` where nothing is read until the
            owner has decided, and `NAMED` if the message before has said it.
        then: The states that may follow.
    """

    size: int
    then: tuple[enum.Enum, ...] = ()


State = TypeVar("State", bound=enum.Enum)
Event = TypeVar("Event")


class ProtocolEnd(Generic[State, Event]):
    """One end of a protocol.

    A subclass has a method `_read_` for each state that reads, named after its value.

    Attributes:
        state: Where it stands.
        table: The states of this end.
        closed: The state after a message that breaks the protocol; it reads nothing.
        error: What is raised where the other end leaves too early.
    """

    table: Mapping[State, Row]
    closed: State
    error: ClassVar[type[Exception]]

    def __init__(self, state: State) -> None:
        """Begins in a state."""
        self.state = state
        self._size, self._then = self.table[state]
        # Where the next message begins: a large buffer is moved once per `receive`.
        self._start = 0
        self._received, self._out = bytearray(), bytearray()

    @property
    def needed(self) -> int:
        """How many more bytes the next message takes; 0 while none is read."""
        return max(0, self._size - len(self._received))

    @property
    def rest(self) -> bytes:
        """The bytes after the last message that was read."""
        return bytes(self._received)

    def receive(self, data: bytes = b"") -> Event | None:
        """Reads bytes, however they are cut, up to the next event.

        The bytes after that event are read by the next call, which may have none of its
        own, so call this until it returns `None`.

        Raises:
            Exception: The other end refuses, or breaks the protocol; nothing is read
                any more.
        """
        if self.state is not self.closed:
            self._received += data
        try:
            while self._size and len(self._received) - self._start >= self._size:
                if (event := self._read_one()) is not None:
                    return event
        except Exception:
            self.close()
            raise
        finally:
            del self._received[: self._start]
            self._start = 0
        return None

    def receive_end(self) -> None:
        """Raises the error of an end that leaves before the handshake is over."""
        self.close()
        raise self.error("The other end has closed the connection.")

    def data_to_send(self) -> bytes:
        """Returns the bytes that are due to the other end since the last call."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def close(self) -> None:
        """Reads nothing any more, from any state."""
        self.state, self._size, self._then = self.closed, WAITS, ()
        self._received.clear()

    def _read_one(self) -> Event | None:
        start, self._start = self._start, self._start + self._size
        message = bytes(memoryview(self._received)[start : self._start])
        # `_value_` is `value` without a call.
        event: Event | None = getattr(self, f"_read_{self.state._value_}")(message)
        return event

    def _go(self, state: State, size: int | None = None) -> Event | None:
        """Goes to the next state, and reads its message if that has no bytes.

        Args:
            state: The state.
            size: The size of its message, where the table has none.
        """
        if state not in self._then:
            self._check_may(state)
        self.state = state
        self._size, self._then = self.table[state]
        if size is None:
            return None
        self._size = size
        return None if size else self._read_one()

    def _check_may(self, state: State) -> None:
        if state not in self._then:
            raise RuntimeError(
                f"{type(self).__name__} must not go from {self.state.value} to "
                f"{state.value}."
            )


def run_handshake(
    handshake: ProtocolEnd[State, Event], sock: socket.socket, deadline: float
) -> Event:
    """Sends and reads up to the next event, and not a byte more.

    Args:
        handshake: This end.
        sock: A socket that waits.
        deadline: Until when the other end may take, by `time.monotonic`.

    Raises:
        TimeoutError: It has taken longer.
        OSError: The connection is lost.
        Exception: The other end refuses, leaves, or breaks the protocol.
    """
    data = b""
    while (event := handshake.receive(data)) is None:
        _limit(sock, deadline)
        # An end that refuses may have closed already; its reason is still there.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(handshake.data_to_send())
        _limit(sock, deadline)
        data = sock.recv(min(handshake.needed, _AT_ONCE))
        if not data:
            handshake.receive_end()
    return event


def _limit(sock: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("The other end took too long to say who it is.")
    sock.settimeout(left)
