"""Universe's rewarder, both ends of it, without sockets: rewards and resets as JSON.

Texts go in by `receive`, which returns what a message says; `texts_to_send` has the
texts that are due to the other end. `MESSAGES` is the table of messages: who sends
each, and what its fields must be. `SERVER` and `CLIENT` are the tables of states: which
messages each end may be sent, and which state follows.

| message                   | from   | body                                            |
|---------------------------|--------|-------------------------------------------------|
| `v0.env.describe`         | server | `env_id`, `env_state`, `fps`: first, and at     |
|                           |        | every change                                    |
| `v0.env.reward`           | server | `reward`, `done`, `info`                        |
| `v0.env.text`             | server | `text`                                          |
| `v0.env.observation`      | server | `observation`                                   |
| `v0.env.reset`            | client | `env_id`, `seed`, `fps`                         |
| `v0.reply.env.reset`      | server | nothing: the header has the new episode         |
| `v0.agent.action`         | client | `env_id`, `action`: a list of events            |
| `v0.control.ping`         | client | nothing                                         |
| `v0.reply.control.ping`   | server | nothing                                         |
| `v0.reply.error`          | server | `message`                                       |
| `v0.connection.close`     | server | `message`: the server hangs up                  |

Headers have `sent_at` in seconds and `message_id`, which counts the messages of one
connection from 0; messages about the environment have `episode_id`, a number as text; a
reply has `parent_message_id`. The password is the name of the user of HTTP's basic
authentication. All clients receive what happens; one of them, the first that says
something and is not an observer, may say what is to happen.

Rules for editing this file:

1. No sockets, threads or clocks: the owner of the connection has them, and hands in the
   time.
2. A message is a class with a row in `MESSAGES`. Nothing else reads or writes JSON.
3. A message that an end may be sent stands in its table, in each state in which it may.
4. A server answers a wrong request with its reason, and goes on. A text that is no
   message at all ends the connection, at both ends. A client ignores methods that it
   does not know.
5. Any text in any state is a message, `None` or a `RewarderError`, and nothing that is
   kept grows with the number of messages. tests/remote/test_rewarder.py tries that.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from envkit._shared.peer_errors import PeerError
from envkit.desktop.keys import Event, KeyEvent, PointerEvent, keysym
from envkit.remote.plugins import VNC_PORT

__all__ = [
    "CLIENT",
    "FASTEST",
    "JOYSTICK",
    "MESSAGES",
    "SERVER",
    "SLOWEST",
    "USUAL_PACE",
    "USUAL_PASSWORD",
    "USUAL_PORTS",
    "Action",
    "AxisEvent",
    "ClientEnd",
    "CloseReason",
    "Describe",
    "ErrorReply",
    "Message",
    "Observation",
    "Ping",
    "Pong",
    "Received",
    "RemoteEvent",
    "Reset",
    "ResetReply",
    "Reward",
    "RewarderError",
    "RewarderState",
    "ServerEnd",
    "Text",
    "authorization",
    "event_of",
    "is_observer",
    "password_in",
    "request_headers",
]

# What both ends have unless told: the password, the ports of the desktop and of the
# rewarder, and the steps in a second.
USUAL_PASSWORD, USUAL_PORTS, USUAL_PACE = "openai", (VNC_PORT, VNC_PORT + 10_000), 60.0
SLOWEST, FASTEST = 1.0, 240.0
# The longest message of a server to a client, but for observations.
_LONGEST = 1 << 18
# How many of the newest messages are known again if they come twice.
_MOST_RECENT = 256


class RewarderError(PeerError, ConnectionError):
    """A connection to a rewarder was refused or lost, or broke the protocol."""


# Events of an agent.


class AxisEvent(NamedTuple):
    """Where an axis of a joystick is now, from -1 to 1."""

    axis: str
    amount: float


RemoteEvent = Event | AxisEvent

# The axes of a joystick, as Universe calls their events.
JOYSTICK = (
    *(f"JoystickAxis{axis}Event" for axis in ("X", "Y", "Z", "Rx", "Ry", "Rz")),
    "JoystickSlider0Event",
    "JoystickSlider1Event",
)
# Universe's names of some keys.
_SAME = {f"Arrow{name}": name for name in ("Left", "Up", "Right", "Down")}
_SAME |= {"spacebar": "space", "return": "Return", "bsp": "BackSpace"}
_FARTHEST, _ALL_BUTTONS = 0xFFFF, 0xFF


def event_of(given: Any) -> RemoteEvent:
    """Reads an event: envkit's, or a list such as `["KeyEvent", "left", True]`.

    Example:
        >>> event_of(("PointerEvent", 3, -4))
        PointerEvent(x=3, y=0, buttons=0)

    Raises:
        ValueError, TypeError, OverflowError: It is none.
    """
    if isinstance(given, KeyEvent | PointerEvent | AxisEvent):
        return given
    kind, *fields = given
    if kind == "KeyEvent":
        key, down = fields
        name = _SAME.get(key, key) if isinstance(key, str) else key
        return KeyEvent(keysym(name), bool(down))
    if kind == "PointerEvent":
        x, y, buttons = [*map(int, fields), 0][:3]
        x, y = (min(max(number, 0), _FARTHEST) for number in (x, y))
        return PointerEvent(x, y, buttons & _ALL_BUTTONS)
    if kind in JOYSTICK:
        (amount,) = map(float, fields)
        if -1 <= amount <= 1:
            return AxisEvent(kind, amount)
    raise ValueError(f"There is no event {given!r:.80}.")


def _event_as_json(event: RemoteEvent) -> list[Any]:
    return (
        list(event) if isinstance(event, AxisEvent) else [type(event).__name__, *event]
    )


# The messages.


class Describe(NamedTuple):
    """Where the environment stands.

    Attributes:
        episode: The number of its episode.
        env_id: Its name.
        env_state: "running" or "resetting".
        fps: How many steps it makes in a second; 0 if it does not say.
    """

    episode: int
    env_id: str
    env_state: str
    fps: float


class Reward(NamedTuple):
    """A reward, which ends its episode if it is done."""

    episode: int
    reward: float
    done: bool
    info: Mapping[str, Any]


class Text(NamedTuple):
    """What the environment says; nearly always a string."""

    episode: int
    text: Any


class Observation(NamedTuple):
    """An observation of few numbers."""

    episode: int
    observation: Any


class Reset(NamedTuple):
    """A client asks for an episode.

    Attributes:
        env_id: Of which environment; `None` for the one that there is.
        seed: With which seed; `None` for none.
        fps: With how many steps in a second.
        episode: The episode that the client knows; `None` if none.
    """

    env_id: str | None
    seed: int | None
    fps: float | None
    episode: int | None


class ResetReply(NamedTuple):
    """An episode has begun, or has been going to begin already."""

    episode: int


class Action(NamedTuple):
    """What an agent does, where the desktop has no way to say so."""

    env_id: str | None
    action: list[RemoteEvent]


class Ping(NamedTuple):
    """A client measures how far the server is."""


class Pong(NamedTuple):
    """The answer to a `Ping`."""


class ErrorReply(NamedTuple):
    """A request is refused, and why."""

    message: str


class CloseReason(NamedTuple):
    """The server hangs up, and why."""

    message: str


Message = tuple[Any, ...]


class _Field(NamedTuple):
    """A field of a message.

    Attributes:
        name: What the message calls it.
        must: What it must be, for sentences.
        read: Returns the value; raises if it is not what it must be.
        key: What JSON calls it, in the body, or in the headers for `episode_id`.
    """

    name: str
    must: str
    read: Callable[[Any], Any]

    @property
    def key(self) -> str:
        return "episode_id" if self.name == "episode" else self.name


class _MessageRow(NamedTuple):
    """A message: its class, the end that sends it, and its fields."""

    kind: type[Any]
    sender: str
    fields: tuple[_Field, ...] = ()


def _instance(kind: type[Any]) -> Callable[[Any], Any]:
    def read(given: Any) -> Any:
        if not isinstance(given, kind) or isinstance(given, bool):
            raise TypeError
        return given

    return read


def _optional(read: Callable[[Any], Any], other: Any = None) -> Callable[[Any], Any]:
    return lambda given: other if given is None else read(given)


def _limited(number: float, least: float, most: float) -> Any:
    if not least <= number <= most:
        raise ValueError
    return number


def _number(given: Any) -> float:
    most = sys.float_info.max
    return float(_limited(_instance(int | float)(given), -most, most))  # type: ignore[arg-type]  # a union is a type here


def _episode(given: Any) -> int:
    # Of what looks like a fraction the first part counts.
    whole = str(given).partition(".")[0]
    if not (whole.isascii() and whole.isdecimal() and len(whole) < 16):
        raise ValueError
    return int(whole)


def _pace_or_0(given: Any) -> float:
    try:
        return max(_number(given), 0.0)
    except (TypeError, ValueError):
        return 0.0


def _text(given: Any) -> str:
    # A string of JSON may have halves of characters, which nothing can print.
    text = "" if given is None else str(given)
    return text.encode("utf-8", "replace").decode()


def _json(given: Any) -> Any:
    return given


_EPISODE = _Field("episode", "a number as text", _episode)
_KNOWN = _Field("episode", "a number as text", _optional(_episode))
_SEED = _Field(
    "seed",
    "an integer of at least 0, with at most 63 bits",
    _optional(lambda given: _limited(_instance(int)(given), 0, 2**63 - 1)),
)
_PACE = _Field(
    "fps",
    f"a number from {SLOWEST:g} to {FASTEST:g}",
    _optional(lambda given: float(_limited(_number(given), SLOWEST, FASTEST))),
)
_EVENTS = _Field(
    "action",
    "a list of events: a key with whether it is down, three integers of the pointer, "
    "or an axis with a number from -1 to 1",
    lambda given: [event_of(one) for one in _instance(list)(given)],
)
_ASKED_ID = _Field("env_id", "text", _optional(_instance(str)))
_ENV_ID, _ENV_STATE = (_Field(name, "text", _text) for name in ("env_id", "env_state"))
_REWARD = _Field("reward", "a number", _optional(_number, 0.0))
_DONE = _Field("done", "a flag", bool)
_INFO = _Field("info", "an object", _optional(_instance(dict), {}))
_MESSAGE = _Field("message", "text", _text)
_TOLD_PACE = _Field("fps", "a number", _pace_or_0)
_ANY_TEXT, _NUMBERS = (_Field(key, "JSON", _json) for key in ("text", "observation"))

_FROM_SERVER, _FROM_CLIENT = "server", "client"
MESSAGES: dict[str, _MessageRow] = {
    "v0.env.describe": _MessageRow(
        Describe, _FROM_SERVER, (_EPISODE, _ENV_ID, _ENV_STATE, _TOLD_PACE)
    ),
    "v0.env.reward": _MessageRow(
        Reward, _FROM_SERVER, (_EPISODE, _REWARD, _DONE, _INFO)
    ),
    "v0.env.text": _MessageRow(Text, _FROM_SERVER, (_EPISODE, _ANY_TEXT)),
    "v0.env.observation": _MessageRow(Observation, _FROM_SERVER, (_EPISODE, _NUMBERS)),
    "v0.env.reset": _MessageRow(Reset, _FROM_CLIENT, (_ASKED_ID, _SEED, _PACE, _KNOWN)),
    "v0.reply.env.reset": _MessageRow(ResetReply, _FROM_SERVER, (_EPISODE,)),
    "v0.agent.action": _MessageRow(Action, _FROM_CLIENT, (_ASKED_ID, _EVENTS)),
    "v0.control.ping": _MessageRow(Ping, _FROM_CLIENT),
    "v0.reply.control.ping": _MessageRow(Pong, _FROM_SERVER),
    "v0.reply.error": _MessageRow(ErrorReply, _FROM_SERVER, (_MESSAGE,)),
    "v0.connection.close": _MessageRow(CloseReason, _FROM_SERVER, (_MESSAGE,)),
}
_METHOD_OF = {row.kind: method for method, row in MESSAGES.items()}


# The states.


class RewarderState(enum.Enum):
    """What an end may be sent.

    A server has a state for each client: one that has said nothing yet is `SILENT`.
    """

    SILENT = "silent"
    ACTIVE = "active"
    OBSERVER = "observer"
    OPEN = "open"
    CLOSED = "closed"


_S = RewarderState
_ASKED = (Ping, Reset, Action)
_TOLD = (Describe, Reward, Text, Observation, ResetReply, Pong, ErrorReply)
SERVER: dict[RewarderState, dict[type[Any], RewarderState]] = {
    _S.SILENT: dict.fromkeys(_ASKED, _S.ACTIVE),
    _S.ACTIVE: dict.fromkeys(_ASKED, _S.ACTIVE),
    _S.OBSERVER: {Ping: _S.OBSERVER},
    _S.CLOSED: {},
}
CLIENT: dict[RewarderState, dict[type[Any], RewarderState]] = {
    _S.OPEN: {**dict.fromkeys(_TOLD, _S.OPEN), CloseReason: _S.CLOSED},
    _S.CLOSED: {},
}


class Received(NamedTuple):
    """A message that has come.

    Attributes:
        message: What it says.
        number: Its own number, as the other end wrote it; `None` if that is neither an
            integer nor text.
        parent: The number of the request that it answers; `None` if it is no reply.
        sent_at: When it was sent, by the other end's clock; not a number if unknown.
        at: When it came.
        size: How many characters it had.
    """

    message: Message
    number: int | str | None = None
    parent: int | None = None
    sent_at: float = math.nan
    at: float = 0.0
    size: int = 0


class _RewarderEnd:
    """One end of a connection: what both have in common.

    Attributes:
        state: What it may be sent.
    """

    _table: ClassVar[Mapping[RewarderState, Mapping[type[Any], RewarderState]]]
    _name: ClassVar[str]

    def __init__(self, state: RewarderState) -> None:
        self.state = state
        self._count = 0
        self._out: list[str] = []

    def texts_to_send(self) -> list[str]:
        """Returns the texts that are due to the other end since the last call."""
        texts, self._out = self._out, []
        return texts

    def send(self, message: Message, now: float, **headers: Any) -> int:
        """Writes a message; returns its number."""
        method = _METHOD_OF[type(message)]
        row = MESSAGES[method]
        if row.sender != self._name:
            raise RuntimeError(f"A {self._name} must not send {method}.")
        number, self._count = self._count, self._count + 1
        parts: dict[str, dict[str, Any]] = {
            "body": {},
            "headers": {"message_id": number, "sent_at": now, **headers},
        }
        for field in row.fields:
            value = getattr(message, field.name)
            if field is _EVENTS:
                value = [_event_as_json(event) for event in value]
            if field.name == "episode":
                parts["headers"][field.key] = str(value or 0)
            else:
                parts["body"][field.key] = value
        text = json.dumps({"method": method, **parts}, allow_nan=False)
        if self.state is not RewarderState.CLOSED:
            self._out.append(text)
        return number

    def _go(self, kind: type[Any]) -> bool:
        """Goes to the state after a message; False if it may not come in this one."""
        then = self._table[self.state].get(kind)
        self.state = then or self.state
        return then is not None


class ServerEnd(_RewarderEnd):
    """The end of a server, for one client.

    Example:
        >>> server = ServerEnd(observer=False)
        >>> server.receive('{"method": "v0.control.ping"}', now=0.0)
        >>> server.texts_to_send()[0][:35], server.state.value
        ('{"method": "v0.reply.control.ping",', 'active')
    """

    _table, _name = SERVER, "server"

    def __init__(self, *, observer: bool) -> None:
        """Begins with a client that has said nothing."""
        super().__init__(RewarderState.OBSERVER if observer else RewarderState.SILENT)

    def receive(
        self, text: str | bytes, now: float, *, may_act: bool = True
    ) -> Received | None:
        """Reads a message; returns a `Reset` or `Action`, and answers everything else.

        Args:
            text: The message.
            now: The time.
            may_act: Whether no other client is active.

        Raises:
            RewarderError: The connection is to be ended, and why: `close` is due.
        """
        if self.state is RewarderState.CLOSED:
            return None
        method, body, headers = _envelope(text)
        if self.state is RewarderState.SILENT and not may_act:
            raise RewarderError(
                "There is an active client already, and a rewarder has one at a time. "
                "Others may connect as observers."
            )
        blank = Received(Ping(), _number_of(headers), at=now)
        try:
            row = MESSAGES.get(method)
            if self.state is RewarderState.OBSERVER and method != "v0.control.ping":
                raise RewarderError(f"An observer must not send {method[:60]!r}.")
            if row is None or not self._go(row.kind):
                raise RewarderError(f"There is no method {method[:60]!r}.")
            received = _received(row, body, headers, blank)
        except RewarderError as error:
            self.reply(blank, ErrorReply(str(error)), now)
            return None
        if isinstance(received.message, Ping):
            self.reply(received, Pong(), now)
            return None
        return received

    def reply(self, request: Received, message: Message, now: float) -> None:
        """Writes the answer to a request."""
        parent = request.number
        runtime = now - request.at
        self.send(message, now, parent_message_id=parent, parent_runtime=runtime)

    def close(self, reason: str, now: float) -> None:
        """Writes that the server hangs up; nothing comes after it."""
        self.send(CloseReason(reason), now)
        self.state = RewarderState.CLOSED


class ClientEnd(_RewarderEnd):
    """The end of a client.

    Example:
        >>> client = ClientEnd()
        >>> client.send(Reset("Catch-v1", None, 60.0, None), now=0.0)
        0
        >>> client.receive('{"method": "v0.env.text", "body": {"text": "hi"}, \
"headers": {"episode_id": "2"}}', now=0.0).message
        Text(episode=2, text='hi')
    """

    _table, _name = CLIENT, "client"

    def __init__(self) -> None:
        """Begins with a connection that has just been made."""
        super().__init__(RewarderState.OPEN)
        self._recent: dict[tuple[Any, Any], None] = {}

    def receive(self, text: str | bytes, now: float) -> Received | None:
        """Reads a message; `None` if it is of no interest, or the same came before.

        Raises:
            RewarderError: The server hangs up, or breaks the protocol.
        """
        if self.state is RewarderState.CLOSED:
            return None
        try:
            return self._receive(text, now)
        except RewarderError:
            self.state = RewarderState.CLOSED
            raise

    def _receive(self, text: str | bytes, now: float) -> Received | None:
        method, body, headers = _envelope(text)
        row = MESSAGES.get(method)
        if row is None or row.sender == self._name or self._is_repeated(headers):
            return None
        if len(text) > _LONGEST and row.kind is not Observation:
            raise RewarderError(
                f"{method} must have at most {_LONGEST} characters, got {len(text)}."
            )
        self._go(row.kind)
        blank = Received(Pong(), _number_of(headers), at=now, size=len(text))
        received = _received(row, body, headers, blank)
        if isinstance(received.message, CloseReason):
            raise RewarderError(received.message.message[:1000])
        return received

    def _is_repeated(self, headers: Mapping[str, Any]) -> bool:
        """True for a message that has come already, by its number and its time."""
        key = (headers.get("message_id"), headers.get("sent_at"))
        if not all(isinstance(one, int | float | str) for one in key):
            return False
        if key in self._recent:
            return True
        self._recent[key] = None
        if len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        return False


def _envelope(text: str | bytes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns the method, the body and the headers of a message."""
    try:
        given = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        method, body = given.get("method"), given.get("body", {})
        headers = given.get("headers", {})
        is_message = isinstance(body, dict) and isinstance(headers, dict)
        if isinstance(method, str) and is_message:
            return method, body, headers
    raise RewarderError(
        "A message must be a JSON object with 'method' (text), 'headers' (an object) "
        f"and 'body' (an object), got {text[:80]!r}."
    )


def _number_of(headers: Mapping[str, Any]) -> int | str | None:
    number = headers.get("message_id")
    return number if isinstance(number, int | str) else None


def _received(
    row: _MessageRow,
    body: Mapping[str, Any],
    headers: Mapping[str, Any],
    blank: Received,
) -> Received:
    """Returns a message with its fields and headers read."""
    values = {}
    for field in row.fields:
        given = (headers if field.name == "episode" else body).get(field.key)
        try:
            values[field.name] = field.read(given)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise RewarderError(
                f"{field.key} must be {field.must}, got {_short(given)}."
            ) from error
    try:
        sent_at = _number(headers.get("sent_at"))
    except (TypeError, ValueError):
        sent_at = math.nan
    try:  # It may be text, as in Universe's own description.
        parent = _episode(headers.get("parent_message_id"))
    except ValueError:
        parent = None
    return blank._replace(message=row.kind(**values), parent=parent, sent_at=sent_at)


def _short(given: Any) -> str:
    try:
        return f"{given!r:.80}"
    except (ValueError, RecursionError):  # An integer may be too long to be written.
        return f"a value of type {type(given).__name__}"


# The request that opens the connection.


def authorization(password: str) -> str:
    """Returns the header that has a password.

    Example:
        >>> authorization("openai")
        'Basic b3BlbmFpOg=='
    """
    return "Basic " + base64.b64encode(f"{password}:".encode()).decode()


def password_in(header: str | None) -> str | None:
    """Returns the password of a header; `None` if there is none.

    Example:
        >>> password_in("Basic b3BlbmFpOg=="), password_in("Bearer b3BlbmFpOg==")
        ('openai', None)
    """
    scheme, _, coded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(coded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text.partition(":")[0]


def request_headers(password: str, *, observer: bool) -> dict[str, str]:
    """Returns the headers with which a client opens a connection."""
    return {
        "authorization": authorization(password),
        "openai-observer": "true" if observer else "false",
    }


def is_observer(headers: Mapping[str, str] | Any) -> bool:
    """True if the client that sends these headers only watches."""
    return bool(headers.get("openai-observer") == "true")
