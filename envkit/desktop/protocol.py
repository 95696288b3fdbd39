"""Both ends of the remote framebuffer protocol (RFC 6143), without sockets.

`receive` takes bytes and returns an event once one is complete; `data_to_send` returns
the bytes for the other end. `CLIENT` and `SERVER` are the state tables: the size of the
next message, and the states that may follow.

Rules for editing this file:

1. No sockets, threads, clocks, random numbers or pixels: the owner of the connection
   has them, and passes in their results.
2. Each message that is read is a state. It has a rule in the table of its end, and a
   method `_read_` named after it. `_go` enters only states that the table allows. After
   the handshake, `FROM_SERVER` and `FROM_CLIENT` list the messages and their layouts.
3. Each decision of the owner (a password, a verdict, how to decode a rectangle) is a
   state that waits: nothing is read in it until the owner calls a method.
4. Check a size from the other end before `_go` asks for that many bytes.
5. Any bytes, split anywhere, lead to an event, to a wait for more, or to a
   `DesktopError`. tests/desktop/test_protocol.py tries this for each state.
"""

from __future__ import annotations

import enum
import hmac
import re
import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from envkit._shared.protocol_end import NAMED, WAITS, ProtocolEnd, Rule
from envkit.desktop.des import answer
from envkit.desktop.errors import DesktopError
from envkit.desktop.keys import Event, KeyEvent, PointerEvent
from envkit.desktop.pixels import PixelFormat, Rectangle
from envkit.extend import describe, listed

__all__ = [
    "CLIENT",
    "LAST",
    "SERVER",
    "Begun",
    "ClientProtocol",
    "EncodingsListed",
    "End",
    "Entered",
    "FormatChosen",
    "Greeted",
    "Message",
    "PasswordNeeded",
    "Proof",
    "ProtocolEvent",
    "RectangleBegun",
    "ServerProtocol",
    "State",
    "UpdateRequested",
    "Updated",
    "answer",
    "checked_name_length",
    "encodings_message",
    "event_message",
    "format_message",
    "name_bytes",
    "rectangle_header",
    "request_message",
    "update_header",
    "version_of",
    "version_text",
]

# Security types.
_NONE, _VNC_AUTHENTICATION = 1, 2
# The encoding number of a rectangle that ends its update.
LAST = -224
_LONGEST_NAME, _LONGEST_REASON = 1 << 16, 1 << 12
_MOST_ENCODINGS = 1 << 10
# Useless bytes are skipped in parts of this size.
_PART = 1 << 16

_NUMBER = struct.Struct(">I")
_INIT = struct.Struct(">HH16sI")
_RECTANGLE = struct.Struct(">HHHHi")


class State(str, enum.Enum):  # strings hash fast
    """Names the next message to read, or the pending decision."""

    VERSION = "version"
    # A client reads the security types; before 3.7 the server picks one.
    SECURITY_TYPE = "security_type"
    TYPE_COUNT = "type_count"
    SECURITY_TYPES = "security_types"
    PASSWORD = "password"
    CHALLENGE = "challenge"
    RESULT = "result"
    REASON_LENGTH = "reason_length"
    REASON = "reason"
    INIT = "init"
    NAME = "name"
    # A server waits for its owner in `OFFER`, `JUDGEMENT` and `PICTURE`.
    OFFER = "offer"
    CHOICE = "choice"
    RESPONSE = "response"
    JUDGEMENT = "judgement"
    SHARED = "shared"
    PICTURE = "picture"
    # After the handshake: the byte with the message's kind, and its body.
    MESSAGE = "message"
    BODY = "body"
    ENCODINGS = "encodings"
    RECTANGLE = "rectangle"
    DECODER = "decoder"
    CONTENT = "content"
    SKIPPED = "skipped"
    # After a refusal or a broken message nothing more is read.
    CLOSED = "closed"


# A message that breaks the protocol leads to `CLOSED` from any state.
_S = State
CLIENT: dict[State, Rule] = {
    _S.VERSION: Rule(12, (_S.SECURITY_TYPE, _S.TYPE_COUNT)),
    _S.SECURITY_TYPE: Rule(4, (_S.PASSWORD, _S.CHALLENGE, _S.INIT, _S.REASON_LENGTH)),
    _S.TYPE_COUNT: Rule(1, (_S.SECURITY_TYPES, _S.REASON_LENGTH)),
    _S.SECURITY_TYPES: Rule(NAMED, (_S.PASSWORD, _S.CHALLENGE, _S.RESULT, _S.INIT)),
    _S.PASSWORD: Rule(WAITS, (_S.CHALLENGE, _S.CLOSED)),
    _S.CHALLENGE: Rule(16, (_S.RESULT,)),
    _S.RESULT: Rule(4, (_S.INIT, _S.REASON_LENGTH)),
    _S.REASON_LENGTH: Rule(4, (_S.REASON,)),
    _S.REASON: Rule(NAMED),
    _S.INIT: Rule(_INIT.size, (_S.NAME,)),
    _S.NAME: Rule(NAMED, (_S.MESSAGE,)),
    _S.MESSAGE: Rule(1, (_S.BODY,)),
    _S.BODY: Rule(NAMED, (_S.MESSAGE, _S.RECTANGLE, _S.SKIPPED)),
    _S.RECTANGLE: Rule(_RECTANGLE.size, (_S.DECODER, _S.MESSAGE)),
    _S.DECODER: Rule(WAITS, (_S.CONTENT, _S.RECTANGLE, _S.MESSAGE)),
    _S.CONTENT: Rule(NAMED, (_S.CONTENT, _S.RECTANGLE, _S.MESSAGE)),
    _S.SKIPPED: Rule(NAMED, (_S.SKIPPED, _S.MESSAGE)),
    _S.CLOSED: Rule(WAITS),
}
SERVER: dict[State, Rule] = {
    _S.VERSION: Rule(12, (_S.OFFER,)),
    _S.OFFER: Rule(WAITS, (_S.CHOICE, _S.RESPONSE, _S.SHARED, _S.CLOSED)),
    _S.CHOICE: Rule(1, (_S.RESPONSE, _S.SHARED)),
    _S.RESPONSE: Rule(16, (_S.JUDGEMENT,)),
    _S.JUDGEMENT: Rule(WAITS, (_S.SHARED, _S.CLOSED)),
    _S.SHARED: Rule(1, (_S.PICTURE,)),
    _S.PICTURE: Rule(WAITS, (_S.MESSAGE,)),
    _S.MESSAGE: Rule(1, (_S.BODY,)),
    _S.BODY: Rule(NAMED, (_S.MESSAGE, _S.ENCODINGS, _S.SKIPPED)),
    _S.ENCODINGS: Rule(NAMED, (_S.MESSAGE,)),
    _S.SKIPPED: Rule(NAMED, (_S.SKIPPED, _S.MESSAGE)),
    _S.CLOSED: Rule(WAITS),
}


class Message(NamedTuple):
    """Describes a message; the method `_on_` with its name gets its fields."""

    name: str
    layout: struct.Struct


# Messages by their first byte.
FROM_SERVER = {
    0: Message("update", struct.Struct(">xH")),
    1: Message("colours", struct.Struct(">xxxH")),
    2: Message("bell", struct.Struct("")),
    3: Message("text", struct.Struct(">xxxI")),
}
FROM_CLIENT = {
    0: Message("format", struct.Struct(">xxx16s")),
    2: Message("encodings", struct.Struct(">xH")),
    3: Message("request", struct.Struct(">?HHHH")),
    4: Message("key", struct.Struct(">?xxI")),
    5: Message("pointer", struct.Struct(">BHH")),
    6: Message("text", struct.Struct(">xxxI")),
}


# The events of a client.


class PasswordNeeded(NamedTuple):
    """The server asks for a password: call `give_password`."""


class Begun(NamedTuple):
    """The handshake is over: from now on the client may send messages.

    Attributes:
        width: The width of the desktop.
        height: Its height.
        pixel_format: The server's pixel format, packed.
        name: The name of the desktop.
    """

    width: int
    height: int
    pixel_format: bytes
    name: str


class RectangleBegun(NamedTuple):
    """A rectangle follows: call `decode`.

    Attributes:
        place: The rectangle.
        encoding: The number of its encoding.
    """

    place: Rectangle
    encoding: int


class Updated(NamedTuple):
    """An update is complete."""


# The events of a server, besides `KeyEvent` and `PointerEvent`.


class Greeted(NamedTuple):
    """The client has named its version: call `offer` or `refuse`."""


class Proof(NamedTuple):
    """The client proves that it knows the password: call `accept` or `refuse`."""

    challenge: bytes
    response: bytes

    def knows(self, password: str) -> bool:
        """Returns True if this proves knowledge of a password."""
        return hmac.compare_digest(self.response, answer(self.challenge, password))


class Entered(NamedTuple):
    """The client is admitted, and waits for the desktop: call `begin`.

    Attributes:
        shared: Whether other viewers may stay connected.
    """

    shared: bool


class FormatChosen(NamedTuple):
    """From now on the client wants pixels in this format."""

    pixel_format: PixelFormat


class EncodingsListed(NamedTuple):
    """The client has listed the encodings that it understands, the best first."""

    encodings: tuple[int, ...]


class UpdateRequested(NamedTuple):
    """The client waits for an update.

    Attributes:
        incremental: Whether the update may leave out unchanged parts.
        place: The part of the picture that it wants.
    """

    incremental: bool
    place: Rectangle


ProtocolEvent = (
    PasswordNeeded
    | Begun
    | RectangleBegun
    | Updated
    | Greeted
    | Proof
    | Entered
    | FormatChosen
    | EncodingsListed
    | UpdateRequested
    | Event
)


class End(ProtocolEnd[State, ProtocolEvent]):
    """Implements what both ends of a connection share.

    Attributes:
        state: The current state.
        version: The version of the protocol that both ends speak.
    """

    closed, error = State.CLOSED, DesktopError
    _messages: ClassVar[Mapping[int, Message]]

    def __init__(self) -> None:
        """Starts with the version."""
        super().__init__(State.VERSION)
        self.version = (3, 8)

    def _read_message(self, message: bytes) -> ProtocolEvent | None:
        (kind,) = message
        if kind not in self._messages:
            raise DesktopError(f"A message must be of a known kind, got {kind}.")
        self._message = self._messages[kind]
        return self._go(State.BODY, self._message.layout.size)

    def _read_body(self, message: bytes) -> ProtocolEvent | None:
        name, layout = self._message
        event: ProtocolEvent | None = getattr(self, f"_on_{name}")(
            *layout.unpack(message)
        )
        if self.state is State.BODY:
            self._go(State.MESSAGE)
        return event

    def _on_text(self, length: int) -> None:
        # The clipboard, which nothing here uses.
        self._skip(length)

    def _skip(self, count: int) -> None:
        self._to_skip = count
        if count:
            self._go(State.SKIPPED, min(count, _PART))
        else:
            self._go(State.MESSAGE)

    def _read_skipped(self, message: bytes) -> None:
        self._skip(self._to_skip - len(message))


class ClientProtocol(End):
    r"""Implements the client's end.

    Example:
        >>> client = ClientProtocol("the server", password="secret")
        >>> client.receive(b"RFB 003.008\n" + bytes([1, 2]) + bytes(range(16)))
        >>> client.data_to_send()[:13], client.state.value
        (b'RFB 003.008\n\x02', 'result')
        >>> client.receive(bytes([0, 0, 0, 0, 0, 4, 0, 3]) + bytes(16))
        >>> client.receive(bytes([0, 0, 0, 2]) + b"hi").name
        'hi'
    """

    table, _messages = CLIENT, FROM_SERVER

    def __init__(
        self, server: str, *, password: str | None = None, shared: bool = True
    ) -> None:
        """Starts the handshake.

        Args:
            server: The name of the other end in errors.
            password: The password, if it is already known.
            shared: Whether other viewers may stay connected.
        """
        super().__init__()
        self._server, self._password, self._shared = server, password, shared
        self._refuses = "connection"

    def give_password(self, password: str | None) -> None:
        """Continues after `PasswordNeeded`.

        Raises:
            DesktopError: The password is `None`.
        """
        self._check_may(State.CLOSED)
        if password is None:
            self.close()
            raise self._refusal("asks for a password. Pass password=.")
        self._password = password
        self._choose(_VNC_AUTHENTICATION)

    def _read_version(self, message: bytes) -> None:
        self.version = version_of(message)
        self._out += version_text(self.version)
        is_old = self.version == (3, 3)
        self._go(State.SECURITY_TYPE if is_old else State.TYPE_COUNT)

    def _read_security_type(self, message: bytes) -> ProtocolEvent | None:
        (kind,) = _NUMBER.unpack(message)
        return self._pick([kind]) if kind else self._go(State.REASON_LENGTH)

    def _read_type_count(self, message: bytes) -> ProtocolEvent | None:
        (count,) = message
        state = State.SECURITY_TYPES if count else State.REASON_LENGTH
        return self._go(state, count or None)

    def _read_security_types(self, message: bytes) -> ProtocolEvent | None:
        return self._pick(list(message))

    def _pick(self, kinds: list[int]) -> ProtocolEvent | None:
        """Picks an authentication method: by password if there is one."""
        wanted = [_VNC_AUTHENTICATION, _NONE]
        if self._password is None:
            wanted.reverse()
        chosen = next((kind for kind in wanted if kind in kinds), None)
        if chosen is None:
            raise DesktopError(
                f"{self._server} must ask for a VNC password or nothing; it has the "
                f"security types {listed(kinds)}."
            )
        if chosen == _VNC_AUTHENTICATION and self._password is None:
            self._go(State.PASSWORD)
            return PasswordNeeded()
        self._choose(chosen)
        return None

    def _choose(self, kind: int) -> None:
        if self.version != (3, 3):
            self._out.append(kind)
        if kind == _VNC_AUTHENTICATION:
            self._go(State.CHALLENGE)
        elif self.version == (3, 8):
            self._go(State.RESULT)
        else:  # Before 3.8 only a password gets a verdict.
            self._enter()

    def _read_challenge(self, message: bytes) -> None:
        self._out += answer(message, self._password or "")
        self._go(State.RESULT)

    def _read_result(self, message: bytes) -> None:
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

    def _read_reason_length(self, message: bytes) -> ProtocolEvent | None:
        return self._go(State.REASON, min(*_NUMBER.unpack(message), _LONGEST_REASON))

    def _read_reason(self, message: bytes) -> None:
        reason = message.decode("utf-8", "replace") or "no reason"
        raise self._refusal(f"refuses the {self._refuses}: {reason}")

    def _refusal(self, what: str) -> DesktopError:
        error = DesktopError(f"{self._server} {what}")
        error.refused = True
        return error

    def _read_init(self, message: bytes) -> ProtocolEvent | None:
        width, height, pixel_format, length = _INIT.unpack(message)
        self._begun = Begun(width, height, pixel_format, "")
        return self._go(State.NAME, checked_name_length(length))

    def _read_name(self, message: bytes) -> ProtocolEvent:
        self._go(State.MESSAGE)
        return self._begun._replace(name=message.decode("utf-8", "replace"))

    def _on_update(self, rectangles: int) -> ProtocolEvent | None:
        self._left = rectangles
        return self._go_on()

    def _on_colours(self, count: int) -> None:
        # A colour map, which true-colour pixels do not need.
        self._skip(6 * count)

    def _on_bell(self) -> None:
        """Ignores the bell."""

    def _go_on(self) -> ProtocolEvent | None:
        """Begins the next rectangle of an update, or ends the update."""
        if not self._left:
            self._go(State.MESSAGE)
            return Updated()
        self._left -= 1
        return self._go(State.RECTANGLE)

    def _read_rectangle(self, message: bytes) -> ProtocolEvent | None:
        *place, encoding = _RECTANGLE.unpack(message)
        if encoding == LAST:
            self._left = 0
            return self._go_on()
        self._go(State.DECODER)
        return RectangleBegun(Rectangle(*place), encoding)

    def decode(self, decoder: Generator[int, bytes, None]) -> ProtocolEvent | None:
        """Continues after `RectangleBegun`.

        Args:
            decoder: A generator that reads the data after the header. It yields how
                many bytes it needs next, which depends on the encoding, and is sent
                them.

        Returns:
            The next event, like `receive`.
        """
        self._decoder = decoder
        try:
            event = self._feed(None)
        except DesktopError:
            self.close()
            raise
        return self.receive() if event is None else event

    def _feed(self, data: bytes | None) -> ProtocolEvent | None:
        try:
            size = self._decoder.send(data)  # type: ignore[arg-type]  # begins it
        except StopIteration:
            return self._go_on()
        return self._go(State.CONTENT, size)

    def _read_content(self, message: bytes) -> ProtocolEvent | None:
        return self._feed(message)


class ServerProtocol(End):
    r"""Implements the server's end, which speaks first.

    Example:
        >>> server = ServerProtocol()
        >>> server.data_to_send(), server.receive(b"RFB 003.008\n")
        (b'RFB 003.008\n', Greeted())
        >>> server.offer(None)
        >>> server.receive(b"\1\1"), server.data_to_send()
        (Entered(shared=True), b'\x01\x01\x00\x00\x00\x00')
    """

    table, _messages = SERVER, FROM_CLIENT

    def __init__(self) -> None:
        """Starts with the version."""
        super().__init__()
        self._challenge: bytes | None = None
        self._out += version_text(self.version)

    def offer(self, challenge: bytes | None) -> None:
        """Continues after `Greeted`.

        Args:
            challenge: 16 random bytes to ask for a password; `None` asks for none.
        """
        self._challenge = challenge
        if self.version == (3, 3):
            self._out += _NUMBER.pack(self._kind)
            self._ask()
        else:
            self._go(State.CHOICE)
            self._out += bytes([1, self._kind])

    @property
    def _kind(self) -> int:
        return _NONE if self._challenge is None else _VNC_AUTHENTICATION

    def _ask(self) -> None:
        if self._challenge is not None:
            self._go(State.RESPONSE)
            self._out += self._challenge
            return
        self._go(State.SHARED)
        if self.version == (3, 8):
            self._out += _NUMBER.pack(0)

    def refuse(self, reason: str) -> None:
        """Refuses the client after `Greeted` or `Proof`."""
        self._check_may(State.CLOSED)
        text = _NUMBER.pack(len(reason)) + reason.encode("ascii")
        if self.state is State.JUDGEMENT:
            self._out += _NUMBER.pack(1) + (text if self.version == (3, 8) else b"")
        else:  # No security type, and the reason.
            self._out += (bytes(4) if self.version == (3, 3) else b"\0") + text
        self.close()

    def accept(self) -> None:
        """Admits the client after `Proof`."""
        self._go(State.SHARED)
        self._out += _NUMBER.pack(0)

    def begin(self, size: tuple[int, int], pixel_format: bytes, name: str) -> None:
        """Describes the desktop after `Entered`, which ends the handshake."""
        self._go(State.MESSAGE)
        self._out += struct.pack(">HH16s", *size, pixel_format) + name_bytes(name)

    def _read_version(self, message: bytes) -> ProtocolEvent:
        self.version = version_of(message)
        self._go(State.OFFER)
        return Greeted()

    def _read_choice(self, message: bytes) -> None:
        if message[0] != self._kind:
            raise DesktopError(
                f"The viewer must choose the security type {self._kind}, got "
                f"{message[0]}."
            )
        self._ask()

    def _read_response(self, message: bytes) -> ProtocolEvent:
        self._go(State.JUDGEMENT)
        return Proof(self._challenge or b"", message)

    def _read_shared(self, message: bytes) -> ProtocolEvent:
        self._go(State.PICTURE)
        return Entered(any(message))

    def _on_format(self, packed: bytes) -> ProtocolEvent:
        return FormatChosen(PixelFormat.unpack(packed))

    def _on_encodings(self, count: int) -> ProtocolEvent | None:
        if count > _MOST_ENCODINGS:
            raise DesktopError(
                f"A viewer must name at most {_MOST_ENCODINGS} encodings, got {count}."
            )
        return self._go(State.ENCODINGS, 4 * count)

    def _read_encodings(self, message: bytes) -> ProtocolEvent:
        self._go(State.MESSAGE)
        return EncodingsListed(struct.unpack(f">{len(message) // 4}i", message))

    def _on_request(self, incremental: bool, *place: int) -> ProtocolEvent:
        return UpdateRequested(incremental, Rectangle(*place))

    def _on_key(self, down: bool, key: int) -> ProtocolEvent:
        return KeyEvent(key, down)

    def _on_pointer(self, buttons: int, x: int, y: int) -> ProtocolEvent:
        return PointerEvent(x, y, buttons)


_VERSION = re.compile(rb"RFB (\d{3})\.(\d{3})\n")


def version_text(version: tuple[int, int]) -> bytes:
    r"""Returns the message with a version of the protocol.

    Example:
        >>> version_text((3, 8))
        b'RFB 003.008\n'
    """
    return b"RFB %03d.%03d\n" % version


def version_of(text: bytes) -> tuple[int, int]:
    """Reads the other end's version, and returns the standard version it stands for.

    Newer versions count as 3.8. Versions between 3.3 and 3.7 are not in the standard,
    and count as 3.3.

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
    """Returns the length of a desktop's name, after checking it.

    Raises:
        DesktopError: The name is too long.
    """
    if length > _LONGEST_NAME:
        raise DesktopError(
            f"The name of a desktop must have at most {_LONGEST_NAME} bytes, got "
            f"{length}."
        )
    return length


def name_bytes(name: str) -> bytes:
    """Returns a desktop's name, with its length in front."""
    data = name.encode("utf-8")[:_LONGEST_NAME]
    return _NUMBER.pack(len(data)) + data


# The messages that the two ends send after the handshake.


def _packed(messages: Mapping[int, Message], kind: int, *fields: Any) -> bytes:
    return bytes([kind]) + messages[kind].layout.pack(*fields)


def format_message(pixel_format: PixelFormat) -> bytes:
    """Returns the message that chooses the format of pixels."""
    return _packed(FROM_CLIENT, 0, pixel_format.pack())


def encodings_message(encodings: Sequence[int]) -> bytes:
    """Returns the message that lists the client's encodings."""
    count = len(encodings)
    head = _packed(FROM_CLIENT, 2, count)
    return head + struct.pack(f">{count}i", *encodings)


def request_message(place: Rectangle, *, incremental: bool) -> bytes:
    """Returns the message that asks for an update."""
    return _packed(FROM_CLIENT, 3, incremental, *place)


def event_message(event: Any) -> bytes:
    """Returns the message for an event of a key or the pointer.

    Raises:
        TypeError: It is neither.
        ValueError: It has buttons that no pointer has.
    """
    if isinstance(event, KeyEvent):
        return _packed(FROM_CLIENT, 4, event.down, event.key)
    if not isinstance(event, PointerEvent):
        raise TypeError(
            f"Events must be a KeyEvent or a PointerEvent, got {describe(event)}."
        )
    if not 0 <= event.buttons <= 0xFF:
        raise ValueError(
            "The buttons of a PointerEvent must be bits of at most 8 buttons, from 0 "
            f"to 255, got {event.buttons}."
        )
    x, y = (min(max(0, int(place)), 0xFFFF) for place in (event.x, event.y))
    return _packed(FROM_CLIENT, 5, event.buttons, x, y)


def update_header(count: int) -> bytes:
    """Returns the header of an update with this many rectangles."""
    return _packed(FROM_SERVER, 0, count)


def rectangle_header(place: Rectangle, encoding: int) -> bytes:
    """Returns the header of a rectangle."""
    return _RECTANGLE.pack(*place, encoding)
