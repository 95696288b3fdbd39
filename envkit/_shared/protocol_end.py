"""`ProtocolEnd`: one end of a protocol as a table of states, without a socket.

A protocol has a table for each end, and a subclass of `ProtocolEnd` for each table.
`receive` takes bytes and returns an event once one is complete; `data_to_send` returns
the bytes due to the other end. Only `run_handshake` touches a socket.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import time
from collections.abc import Mapping
from typing import ClassVar, Generic, NamedTuple, TypeVar

__all__ = ["NAMED", "WAITS", "ProtocolEnd", "Rule", "run_handshake"]

WAITS, NAMED = 0, -1
_AT_ONCE = 1 << 16


class Rule(NamedTuple):
    """Describes what is read in a state, and the states that may follow.

    Attributes:
        size: The message's size in bytes: `WAITS` to read nothing until the owner has
            decided, and `NAMED` if the previous message contained it.
        then: The states that may follow.
    """

    size: int
    then: tuple[enum.Enum, ...] = ()


State = TypeVar("State", bound=enum.Enum)
Event = TypeVar("Event")


class ProtocolEnd(Generic[State, Event]):
    """One end of a protocol.

    A subclass has a method `_read_` for each reading state, named after its value.

    Attributes:
        state: The current state.
        table: The states of this end.
        closed: The state after a message that breaks the protocol; it reads nothing.
        error: The error to raise if the other end leaves too early.
    """

    table: Mapping[State, Rule]
    closed: State
    error: ClassVar[type[Exception]]

    def __init__(self, state: State) -> None:
        """Starts in a state."""
        self.state = state
        self._size, self._then = self.table[state]
        # The start of the next message: a large buffer is moved only once per
        # `receive`.
        self._start = 0
        self._received, self._out = bytearray(), bytearray()

    @property
    def needed(self) -> int:
        """The number of bytes missing from the next message; 0 while none is read."""
        return max(0, self._size - len(self._received))

    @property
    def rest(self) -> bytes:
        """The bytes after the last message read."""
        return bytes(self._received)

    def receive(self, data: bytes = b"") -> Event | None:
        """Reads bytes, split in any way, up to the next event.

        The next call reads the bytes after that event, and may get no bytes itself, so
        call this until it returns `None`.

        Raises:
            Exception: The other end refuses, or breaks the protocol; nothing more is
                read.
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
        """Raises the error for an end that leaves before the handshake is over."""
        self.close()
        raise self.error("The other end has closed the connection.")

    def data_to_send(self) -> bytes:
        """Returns the bytes due to the other end since the last call."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def close(self) -> None:
        """Stops reading, in any state."""
        self.state, self._size, self._then = self.closed, WAITS, ()
        self._received.clear()

    def _read_one(self) -> Event | None:
        start, self._start = self._start, self._start + self._size
        message = bytes(memoryview(self._received)[start : self._start])
        # `_value_` is `value` without a call.
        event: Event | None = getattr(self, f"_read_{self.state._value_}")(message)
        return event

    def _go(self, state: State, size: int | None = None) -> Event | None:
        """Enters the next state, and reads its message if that is empty.

        Args:
            state: The state.
            size: The size of its message, if the table has none.
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
        sock: A blocking socket.
        deadline: The time limit for the other end, as `time.monotonic`.

    Raises:
        TimeoutError: The time limit has passed.
        OSError: The connection is lost.
        Exception: The other end refuses, leaves, or breaks the protocol.
    """
    data = b""
    while (event := handshake.receive(data)) is None:
        _limit(sock, deadline)
        # An end that refuses may have closed already; its reason can still be read.
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
