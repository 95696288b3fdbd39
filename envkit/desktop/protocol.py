"""The handshake of the remote framebuffer protocol, both ends of it, without sockets.

Bytes go in by `receive`, which returns an event if one is complete; `data_to_send` has
the bytes that are due to the other end. `CLIENT` and `SERVER` are the tables of states:
how many bytes the next message has, and which states may follow. When the state is
`OVER`, messages follow that are not of the handshake.

Rules for editing this file:

1. No sockets, threads, clocks or random numbers: whoever owns the connection has them,
   and hands in what they say.
2. A message that is read is a state. It has a row in the table of its end, and a method
   `_read_` that is named after it. `_go` goes nowhere that the table does not say.
3. What the owner decides (a password, a verdict) is a state that waits: nothing is read
   in it until a method of the handshake is called.
4. A size that the other end names is checked before `_go` asks for so many bytes.
5. Any bytes, cut anywhere, end in an event, in a wait for more of them, or in a
   `DesktopError`. tests/desktop/test_handshake.py tries that for each state.
"""

from __future__ import annotations

import enum
import hmac
import re
import struct
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from envkit._shared.text import escaped
from envkit.desktop.des import answer
from envkit.errors import EnvkitError
from envkit.extend import listed

__all__ = [
    "CLIENT",
    "SERVER",
    "Begun",
    "ClientHandshake",
    "DesktopError",
    "Entered",
    "Greeted",
    "Handshake",
    "HandshakeEvent",
    "PasswordNeeded",
    "Proof",
    "Row",
    "ServerHandshake",
    "State",
    "answer",
    "checked_name_length",
    "name_bytes",
    "version_of",
    "version_text",
]

# The ways to authenticate.
_NO_PASSWORD, _PASSWORD = 1, 2
_LONGEST_NAME, _LONGEST_REASON = 1 << 16, 1 << 12
_NUMBER = struct.Struct(">I")
_INIT = struct.Struct(">HH16sI")


class DesktopError(EnvkitError, ConnectionError):
    """A connection to a desktop was refused or lost, or broke the protocol.

    Attributes:
        refused: Whether the other end has refused the password, or asks for one.
    """

    refused: bool = False

    def __init__(self, message: str = "") -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))


class State(enum.Enum):
    """The message that is read next, or what is waited for."""

    VERSION = "version"
    # A client reads the ways to authenticate: before 3.7 the one that the server wants.
    OLD_KIND = "old_kind"
    KIND_COUNT = "kind_count"
    KINDS = "kinds"
    PASSWORD = "password"
    CHALLENGE = "challenge"
    VERDICT = "verdict"
    REASON_LENGTH = "reason_length"
    REASON = "reason"
    INIT = "init"
    NAME = "name"
    # A server waits for its owner three times.
    OFFER = "offer"
    KIND = "kind"
    PROOF = "proof"
    JUDGEMENT = "judgement"
    SHARED = "shared"
    PICTURE = "picture"
    # After a refusal or a broken message nothing counts any more.
    CLOSED = "closed"
    OVER = "over"


class Row(NamedTuple):
    """What is read in a state, and where it leads.

    Attributes:
        size: How many bytes the message has: `WAITS` for no message, and `NAMED` if the
            message before has said it.
        then: The states that may follow.
    """

    size: int
    then: tuple[State, ...] = ()


WAITS, NAMED = 0, -1

# After a message that breaks the protocol, the state is `CLOSED` in any case.
_S = State
CLIENT: dict[State, Row] = {
    _S.VERSION: Row(12, (_S.OLD_KIND, _S.KIND_COUNT)),
    _S.OLD_KIND: Row(4, (_S.PASSWORD, _S.CHALLENGE, _S.INIT, _S.REASON_LENGTH)),
    _S.KIND_COUNT: Row(1, (_S.KINDS, _S.REASON_LENGTH)),
    _S.KINDS: Row(NAMED, (_S.PASSWORD, _S.CHALLENGE, _S.VERDICT, _S.INIT)),
    _S.PASSWORD: Row(WAITS, (_S.CHALLENGE, _S.CLOSED)),
    _S.CHALLENGE: Row(16, (_S.VERDICT,)),
    _S.VERDICT: Row(4, (_S.INIT, _S.REASON_LENGTH)),
    _S.REASON_LENGTH: Row(4, (_S.REASON,)),
    _S.REASON: Row(NAMED),
    _S.INIT: Row(_INIT.size, (_S.NAME,)),
    _S.NAME: Row(NAMED, (_S.OVER,)),
    _S.CLOSED: Row(1),
    _S.OVER: Row(WAITS),
}
SERVER: dict[State, Row] = {
    _S.VERSION: Row(12, (_S.OFFER,)),
    _S.OFFER: Row(WAITS, (_S.KIND, _S.PROOF, _S.SHARED, _S.CLOSED)),
    _S.KIND: Row(1, (_S.PROOF, _S.SHARED)),
    _S.PROOF: Row(16, (_S.JUDGEMENT,)),
    _S.JUDGEMENT: Row(WAITS, (_S.SHARED, _S.CLOSED)),
    _S.SHARED: Row(1, (_S.PICTURE,)),
    _S.PICTURE: Row(WAITS, (_S.OVER,)),
    _S.CLOSED: Row(1),
    _S.OVER: Row(WAITS),
}


# The events of a client.


class PasswordNeeded(NamedTuple):
    """The server asks for a password: `give_password` is due."""


class Begun(NamedTuple):
    """The handshake is over.

    Attributes:
        width: The width of the desktop.
        height: Its height.
        pixel_format: The server's format of pixels, packed.
        name: The name of the desktop.
    """

    width: int
    height: int
    pixel_format: bytes
    name: str


# The events of a server.


class Greeted(NamedTuple):
    """The client has named its version: `offer` or `refuse` is due."""


class Proof(NamedTuple):
    """The client proves to know the password: `accept` or `refuse` is due."""

    challenge: bytes
    response: bytes

    def knows(self, password: str) -> bool:
        """True if this is the answer of one who knows a password."""
        return hmac.compare_digest(self.response, answer(self.challenge, password))


class Entered(NamedTuple):
    """The client is admitted, and waits for the desktop: `begin` is due.

    Attributes:
        shared: Whether other viewers may stay connected.
    """

    shared: bool


HandshakeEvent = PasswordNeeded | Begun | Greeted | Proof | Entered


class Handshake:
    """One end of a handshake: what both have in common.

    Attributes:
        state: Where it stands.
        version: The version of the protocol that both speak.
    """

    _table: ClassVar[Mapping[State, Row]]

    def __init__(self) -> None:
        """Begins with the version."""
        self.state = State.VERSION
        self.version = (3, 8)
        self._size = self._table[self.state].size
        self._received, self._out = bytearray(), bytearray()

    @property
    def needed(self) -> int:
        """How many more bytes the next message takes; 0 while none is read."""
        return max(0, self._size - len(self._received))

    @property
    def rest(self) -> bytes:
        """What has come after the last message that was read."""
        return bytes(self._received)

    def receive(self, data: bytes) -> HandshakeEvent | None:
        """Reads bytes, however they are cut, up to the next event.

        Where the handshake waits for its owner, the bytes after the event are read by
        the call that follows, which may have no bytes of its own.

        Raises:
            DesktopError: The other end refuses, or breaks the protocol.
        """
        self._received += data
        if self.state is State.CLOSED:
            self._received.clear()
        try:
            while self._size != WAITS and len(self._received) >= self._size:
                if (event := self._read_one()) is not None:
                    return event
        except DesktopError:
            self._close()
            raise
        return None

    def data_to_send(self) -> bytes:
        """Returns the bytes that are due to the other end since the last call."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def _read_one(self) -> HandshakeEvent | None:
        message = bytes(self._received[: self._size])
        del self._received[: self._size]
        event: HandshakeEvent | None = getattr(self, f"_read_{self.state.value}")(
            message
        )
        return event

    def _go(self, state: State, size: int | None = None) -> HandshakeEvent | None:
        """Goes to the next state, and reads its message if that has no bytes.

        Args:
            state: The state.
            size: The size of its message, where the table has none.
        """
        self._check_may(state)
        self.state = state
        self._size = self._table[state].size if size is None else size
        return self._read_one() if size == 0 else None

    def _check_may(self, state: State) -> None:
        if state not in self._table[self.state].then:
            raise RuntimeError(
                f"{type(self).__name__} must not go from {self.state.value} to "
                f"{state.value}."
            )

    def _close(self) -> None:
        # From any state, where a message is broken.
        self.state, self._size = State.CLOSED, self._table[State.CLOSED].size
        self._received.clear()


class ClientHandshake(Handshake):
    r"""The end of a client.

    Example:
        >>> client = ClientHandshake("the server", password="secret")
        >>> client.receive(b"RFB 003.008\n" + bytes([1, 2]) + bytes(range(16)))
        >>> client.data_to_send()[:13], client.state.value, client.needed
        (b'RFB 003.008\n\x02', 'verdict', 4)
        >>> client.receive(bytes([0, 0, 0, 0, 0, 4, 0, 3]) + bytes(16))
        >>> client.receive(bytes([0, 0, 0, 2]) + b"hi").name
        'hi'
    """

    _table = CLIENT

    def __init__(
        self, server: str, *, password: str | None = None, shared: bool = True
    ) -> None:
        """Begins.

        Args:
            server: What sentences call the other end.
            password: The password, if it is known already.
            shared: Whether other viewers may stay connected.
        """
        super().__init__()
        self._server, self._password, self._shared = server, password, shared
        self._refuses = "connection"

    def give_password(self, password: str | None) -> None:
        """Goes on after `PasswordNeeded`.

        Raises:
            DesktopError: It is `None`.
        """
        self._check_may(State.CLOSED)
        if password is None:
            self._close()
            raise self._refusal("asks for a password. Pass password=.")
        self._password = password
        self._choose(_PASSWORD)

    def _read_version(self, message: bytes) -> None:
        self.version = version_of(message)
        self._out += version_text(self.version)
        is_old = self.version == (3, 3)
        self._go(State.OLD_KIND if is_old else State.KIND_COUNT)

    def _read_old_kind(self, message: bytes) -> HandshakeEvent | None:
        (kind,) = _NUMBER.unpack(message)
        return self._pick([kind]) if kind else self._go(State.REASON_LENGTH)

    def _read_kind_count(self, message: bytes) -> HandshakeEvent | None:
        (count,) = message
        if count:
            return self._go(State.KINDS, count)
        return self._go(State.REASON_LENGTH)

    def _read_kinds(self, message: bytes) -> HandshakeEvent | None:
        return self._pick(list(message))

    def _pick(self, kinds: list[int]) -> HandshakeEvent | None:
        """Picks a way to authenticate: by password if there is one."""
        wanted = [_PASSWORD, _NO_PASSWORD]
        if self._password is None:
            wanted.reverse()
        chosen = next((kind for kind in wanted if kind in kinds), None)
        if chosen is None:
            raise DesktopError(
                f"{self._server} must ask for a VNC password or nothing; it has the "
                f"security types {listed(kinds)}."
            )
        if chosen == _PASSWORD and self._password is None:
            self._go(State.PASSWORD)
            return PasswordNeeded()
        self._choose(chosen)
        return None

    def _choose(self, kind: int) -> None:
        if self.version != (3, 3):
            self._out.append(kind)
        if kind == _PASSWORD:
            self._go(State.CHALLENGE)
        elif self.version == (3, 8):
            self._go(State.VERDICT)
        else:  # Before 3.8 there is a verdict only on a password.
            self._enter()

    def _read_challenge(self, message: bytes) -> None:
        self._out += answer(message, self._password or "")
        self._go(State.VERDICT)

    def _read_verdict(self, message: bytes) -> None:
        if not any(message):
            self._enter()
        elif self.version == (3, 8):
            self._refuses = "password"
            self._go(State.REASON_LENGTH)
        else:
            raise self._refusal("refuses the password.")

    def _enter(self) -> None:
        self._go(State.INIT)
        self._out.append(self._shared)

    def _read_reason_length(self, message: bytes) -> HandshakeEvent | None:
        return self._go(State.REASON, min(*_NUMBER.unpack(message), _LONGEST_REASON))

    def _read_reason(self, message: bytes) -> None:
        reason = message.decode("utf-8", "replace") or "no reason"
        raise self._refusal(f"refuses the {self._refuses}: {reason}")

    def _refusal(self, what: str) -> DesktopError:
        error = DesktopError(f"{self._server} {what}")
        error.refused = True
        return error

    def _read_init(self, message: bytes) -> HandshakeEvent | None:
        width, height, pixel_format, length = _INIT.unpack(message)
        self._begun = Begun(width, height, pixel_format, "")
        return self._go(State.NAME, checked_name_length(length))

    def _read_name(self, message: bytes) -> HandshakeEvent:
        self._go(State.OVER)
        return self._begun._replace(name=message.decode("utf-8", "replace"))


class ServerHandshake(Handshake):
    r"""The end of a server, which speaks first.

    Example:
        >>> server = ServerHandshake()
        >>> server.data_to_send(), server.receive(b"RFB 003.008\n")
        (b'RFB 003.008\n', Greeted())
        >>> server.offer(None)
        >>> server.receive(b"\1\1"), server.data_to_send()
        (Entered(shared=True), b'\x01\x01\x00\x00\x00\x00')
    """

    _table = SERVER

    def __init__(self) -> None:
        """Begins with the version."""
        super().__init__()
        self._challenge: bytes | None = None
        self._out += version_text(self.version)

    def offer(self, challenge: bytes | None) -> None:
        """Goes on after `Greeted`.

        Args:
            challenge: 16 random bytes, which ask for a password; `None` asks for none.
        """
        self._challenge = challenge
        if self.version == (3, 3):
            self._out += _NUMBER.pack(self._kind)
            self._ask()
        else:
            self._go(State.KIND)
            self._out += bytes([1, self._kind])

    @property
    def _kind(self) -> int:
        return _NO_PASSWORD if self._challenge is None else _PASSWORD

    def _ask(self) -> None:
        if self._challenge is not None:
            self._go(State.PROOF)
            self._out += self._challenge
            return
        self._go(State.SHARED)
        if self.version == (3, 8):
            self._out += _NUMBER.pack(0)

    def refuse(self, reason: str) -> None:
        """Sends the client away, after `Greeted` or `Proof`."""
        self._check_may(State.CLOSED)
        text = _NUMBER.pack(len(reason)) + reason.encode("ascii")
        if self.state is State.JUDGEMENT:
            self._out += _NUMBER.pack(1) + (text if self.version == (3, 8) else b"")
        else:  # No way to authenticate, and why.
            self._out += (bytes(4) if self.version == (3, 3) else b"\0") + text
        self._close()

    def accept(self) -> None:
        """Admits the client after `Proof`."""
        self._go(State.SHARED)
        self._out += _NUMBER.pack(0)

    def begin(self, size: tuple[int, int], pixel_format: bytes, name: str) -> None:
        """Tells the client its desktop after `Entered`; then the handshake is over."""
        self._go(State.OVER)
        self._out += struct.pack(">HH16s", *size, pixel_format) + name_bytes(name)

    def _read_version(self, message: bytes) -> HandshakeEvent:
        self.version = version_of(message)
        self._go(State.OFFER)
        return Greeted()

    def _read_kind(self, message: bytes) -> None:
        if message[0] != self._kind:
            raise DesktopError(
                f"The viewer must choose the security type {self._kind}, got "
                f"{message[0]}."
            )
        self._ask()

    def _read_proof(self, message: bytes) -> HandshakeEvent:
        self._go(State.JUDGEMENT)
        return Proof(self._challenge or b"", message)

    def _read_shared(self, message: bytes) -> HandshakeEvent:
        self._go(State.PICTURE)
        return Entered(any(message))


_VERSION = re.compile(rb"RFB (\d{3})\.(\d{3})\n")


def version_text(version: tuple[int, int]) -> bytes:
    r"""Writes a version of the protocol.

    Example:
        >>> version_text((3, 8))
        b'RFB 003.008\n'
    """
    return b"RFB %03d.%03d\n" % version


def version_of(text: bytes) -> tuple[int, int]:
    """Reads the version that the other end names, and returns the one that is meant.

    Newer ones are 3.8, and those between 3.3 and 3.7, which are not in the standard,
    are 3.3.

    Raises:
        DesktopError: The other end does not speak the protocol.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise DesktopError(
            f"The other end must begin with 'RFB' and a version, got {text!r}. Is it a "
            "VNC server or viewer?"
        )
    version = int(match[1]), int(match[2])
    if version < (3, 3):
        raise DesktopError(
            f"The version must be at least 3.3, got {version[0]}.{version[1]}."
        )
    return (3, 8) if version >= (3, 8) else (3, 7) if version == (3, 7) else (3, 3)


def checked_name_length(length: int) -> int:
    """Returns how many bytes the name of a desktop has, if it is not too long.

    Raises:
        DesktopError: It is.
    """
    if length > _LONGEST_NAME:
        raise DesktopError(
            f"The name of a desktop must have at most {_LONGEST_NAME} bytes, got "
            f"{length}."
        )
    return length


def name_bytes(name: str) -> bytes:
    """Returns the name of a desktop with its length."""
    data = name.encode("utf-8")[:_LONGEST_NAME]
    return _NUMBER.pack(len(data)) + data
