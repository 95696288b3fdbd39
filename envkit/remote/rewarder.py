"""Universe's rewarder, both ends, without sockets: rewards and resets as JSON.

`receive` takes a text and returns the message in it; `texts_to_send` returns the texts
due to the other end. `MESSAGES` is the table of messages: the sender of each, and the
rules for its fields. `SERVER` and `CLIENT` are the tables of states: the messages that
each end may receive, and the state that follows.

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
connection from 0. Messages about the environment have `episode_id`, a number as text; a
reply has `parent_message_id`. The password is the user name in HTTP's basic
authentication. All clients receive the environment's messages. The first client that
sends something and is not an observer is the active one, and controls the environment.

Rules for editing this file:

1. No sockets, threads or clocks: the owner of the connection has them, and passes in
   the time.
2. A message is a class with a row in `MESSAGES`. Nothing else reads or writes JSON.
3. An end's table lists the messages that it may receive in each state.
4. A server answers a wrong request with the reason, and continues. A text that is not a
   message ends the connection, at both ends. A client ignores unknown methods.
5. Any text in any state leads to a message, `None` or a `RewarderError`. Stored data
   does not grow with the number of messages. tests/remote/test_rewarder.py checks this.
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

# The defaults of both ends: the password, the ports of the desktop and of the rewarder,
# and the steps a second.
USUAL_PASSWORD, USUAL_PORTS, USUAL_PACE = "openai", (VNC_PORT, VNC_PORT + 10_000), 60.0
SLOWEST, FASTEST = 1.0, 240.0
# The maximum length of a server's message, except an observation.
_LONGEST = 1 << 18
# The number of newest messages that are recognised if they come twice.
_MOST_RECENT = 256


class RewarderError(PeerError, ConnectionError):
    """A connection to a rewarder was refused or lost, or broke the protocol."""


# Events of an agent.


class AxisEvent(NamedTuple):
    """The new position of a joystick's axis, from -1 to 1."""

    axis: str
    amount: float


RemoteEvent = Event | AxisEvent

# Universe's names for the events of a joystick's axes.
JOYSTICK = (
    *(f"JoystickAxis{axis}Event" for axis in ("X", "Y", "Z", "Rx", "Ry", "Rz")),
    "JoystickSlider0Event",
    "JoystickSlider1Event",
)
# Universe's names for some keys.
_SAME = {f"Arrow{name}": name for name in ("Left", "Up", "Right", "Down")}
_SAME |= {"spacebar": "space", "return": "Return", "bsp": "BackSpace"}
_FARTHEST, _ALL_BUTTONS = 0xFFFF, 0xFF


def event_of(given: Any) -> RemoteEvent:
    """Reads an event: envkit's, or a list such as `["KeyEvent", "left", True]`.

    Example:
        >>> event_of(("PointerEvent", 3, -4))
        PointerEvent(x=3, y=0, buttons=0)

    Raises:
        ValueError, TypeError, OverflowError: It is no event.
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
    """The state of the environment.

    Attributes:
        episode: The number of its episode.
        env_id: Its name.
        env_state: "running" or "resetting".
        fps: Its steps a second; 0 if unknown.
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
    """A text of the environment; nearly always a string."""

    episode: int
    text: Any


class Observation(NamedTuple):
    """An observation of a few numbers."""

    episode: int
    observation: Any


class Reset(NamedTuple):
    """A client's request for an episode.

    Attributes:
        env_id: The environment; `None` for the current one.
        seed: The seed, or `None`.
        fps: The steps a second.
        episode: The latest episode that the client knows, or `None`.
    """

    env_id: str | None
    seed: int | None
    fps: float | None
    episode: int | None


class ResetReply(NamedTuple):
    """The answer to a `Reset`: the new episode has begun, perhaps by itself."""

    episode: int


class Action(NamedTuple):
    """An agent's events that RFB cannot carry."""

    env_id: str | None
    action: list[RemoteEvent]


class Ping(NamedTuple):
    """A client's probe of the round trip."""


class Pong(NamedTuple):
    """The answer to a `Ping`."""


class ErrorReply(NamedTuple):
    """The server refuses a request, with the reason."""

    message: str


class CloseReason(NamedTuple):
    """The server hangs up, with the reason."""

    message: str


Message = tuple[Any, ...]


class _Field(NamedTuple):
    """A field of a message.

    Attributes:
        name: Its name in the message's class.
        must: The requirement, for error messages.
        read: Returns the value; raises if it does not meet the requirement.
        key: Its name in JSON: in the body, or for `episode_id` in the headers.
    """

    name: str
    must: str
    read: Callable[[Any], Any]

    @property
    def key(self) -> str:
        return "episode_id" if self.name == "episode" else self.name


class _MessageRow(NamedTuple):
    """A message's class, its sender, and its fields."""

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
    # Only the part before a dot counts.
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
    # A JSON string may contain lone surrogates, which cannot be printed.
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
    "a list of events: a key and whether it is down, three integers for the pointer, "
    "or an axis and a number from -1 to 1",
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
    """The state of an end, which decides the messages that it may receive.

    A server has a state for each client; before its first message it is `SILENT`.
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
    """A received message.

    Attributes:
        message: The message.
        number: Its number, as the other end wrote it; `None` if that is neither an
            integer nor text.
        parent: The number of the request that it answers; `None` if it is no reply.
        sent_at: The time of sending by the other end's clock; NaN if unknown.
        at: The time of arrival.
        size: Its length in characters.
    """

    message: Message
    number: int | str | None = None
    parent: int | None = None
    sent_at: float = math.nan
    at: float = 0.0
    size: int = 0


class _RewarderEnd:
    """The common part of both ends of a connection.

    Attributes:
        state: The current state.
    """

    _table: ClassVar[Mapping[RewarderState, Mapping[type[Any], RewarderState]]]
    _name: ClassVar[str]

    def __init__(self, state: RewarderState) -> None:
        self.state = state
        self._count = 0
        self._out: list[str] = []

    def texts_to_send(self) -> list[str]:
        """Returns the texts due to the other end since the last call."""
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
        """Enters the state after a message; returns False if it is not allowed now."""
        then = self._table[self.state].get(kind)
        self.state = then or self.state
        return then is not None


class ServerEnd(_RewarderEnd):
    """The server's end, for one client.

    Example:
        >>> server = ServerEnd(observer=False)
        >>> server.receive('{"method": "v0.control.ping"}', now=0.0)
        >>> server.texts_to_send()[0][:35], server.state.value
        ('{"method": "v0.reply.control.ping",', 'active')
    """

    _table, _name = SERVER, "server"

    def __init__(self, *, observer: bool) -> None:
        """Starts before the client's first message."""
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
            RewarderError: The connection must end with this reason: call `close`.
        """
        if self.state is RewarderState.CLOSED:
            return None
        method, body, headers = _envelope(text)
        if self.state is RewarderState.SILENT and not may_act:
            raise RewarderError(
                "There is already an active client, and a rewarder has one at a time. "
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
        """Writes the last message: the server hangs up."""
        self.send(CloseReason(reason), now)
        self.state = RewarderState.CLOSED


class ClientEnd(_RewarderEnd):
    """The client's end.

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
        """Starts with a new connection."""
        super().__init__(RewarderState.OPEN)
        self._recent: dict[tuple[Any, Any], None] = {}

    def receive(self, text: str | bytes, now: float) -> Received | None:
        """Reads a message; returns `None` if it is unknown or a duplicate.

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
        """Returns True if a message with the same number and time has come before."""
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
    try:  # It may be text, as in Universe's own specification.
        parent = _episode(headers.get("parent_message_id"))
    except ValueError:
        parent = None
    return blank._replace(message=row.kind(**values), parent=parent, sent_at=sent_at)


def _short(given: Any) -> str:
    try:
        return f"{given!r:.80}"
    except (ValueError, RecursionError):  # an integer may be too long to print
        return f"a value of type {type(given).__name__}"


# The HTTP request that opens the connection.


def authorization(password: str) -> str:
    """Returns the header with a password.

    Example:
        >>> authorization("openai")
        'Basic b3BlbmFpOg=='
    """
    return "Basic " + base64.b64encode(f"{password}:".encode()).decode()


def password_in(header: str | None) -> str | None:
    """Returns the password in a header; `None` if there is none.

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
    """Returns the headers for opening a connection."""
    return {
        "authorization": authorization(password),
        "openai-observer": "true" if observer else "false",
    }


def is_observer(headers: Mapping[str, str] | Any) -> bool:
    """Returns True if a client with these headers only watches."""
    return bool(headers.get("openai-observer") == "true")
