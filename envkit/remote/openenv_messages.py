"""OpenEnv's messages, both ends, without sockets.

```
client                                        server
  ── {"type": "reset", "data": {"seed"}} ──▶  {"type": "observation", "data": {…}}
  ── {"type": "step", "data": {action}} ───▶  {"type": "observation", "data": {…}}
  ── {"type": "state"} ────────────────────▶  {"type": "state", "data": {…}}
  ── {"type": "mcp", "data": {JSON-RPC}} ──▶  {"type": "mcp", "data": {JSON-RPC}}
  ── {"type": "close"} ────────────────────▶  the connection ends
```

Each message gets one answer, in order: a message of the type in `ANSWERS`, or
`{"type": "error", "data": {"message", "code"}}`. `CODES` tells which errors end the
session. An HTTP request is a session of one message, whose data is the body: `POST
/reset` is the message `reset`, and the Task API has its own messages.

`ServedSession` is the server's end. `receive` takes a client's message and returns the
`JsonAnswer`, or an event for the owner of the environment: `ResetAsked`, `StepAsked` or
`TasksAsked`, after which `observe`, `give_tasks` or `fail` returns the answer.
`ClientSession` is the client's end. `SERVER` and `CLIENT` are the tables of their
states: the messages that they receive, and the states that may follow.

Rules for editing this file:

1. No sockets, threads, clocks, random numbers or environments: the owner of the
   connection has them, and passes in their results.
2. A client's message has an answer in `ANSWERS`, a place in each row of `SERVER` that
   receives it, and a method `_read_` with its name. `_go` enters only states that the
   table allows.
3. In `ASKED` an end waits: a server for its environment, a client for the server's
   answer. A server's owner reads no message until it has passed in the result.
4. Anything that a client sends gets an answer and raises nothing. Every error has its
   code in `CODES`. Other programs' texts are cut (`_LONGEST`), and values of the
   server's options are hidden in them (`hide`).
5. Anything that a server sends is an event, an `OpenEnvError` or a `SpecError`.
   tests/remote/test_openenv_messages.py checks both ends, in each state.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.json_schema import JsonForm, schema_of
from envkit._shared.peer_errors import PeerError
from envkit._shared.text import escaped
from envkit.errors import SpecError
from envkit.extend import Result, describe
from envkit.nest import flatten
from envkit.remote.losses import KINDS, EnvironmentLostError
from envkit.remote.openenv_tools import (
    CALL_SCHEMA,
    INTERNAL_ERROR,
    NO_METHOD,
    RpcError,
    ToolCall,
    ToolForms,
    rpc_method,
)
from envkit.sessions.texts import text_of
from envkit.sessions.tools import Tool
from envkit.specs.special import ObjectSpec
from envkit.time_step import TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = [
    "ANSWERS",
    "CLIENT",
    "CODES",
    "SERVER",
    "TASKS",
    "ClientSession",
    "ErrorCode",
    "Forms",
    "JsonAnswer",
    "Left",
    "MessageError",
    "OpenEnvError",
    "PlaceAsked",
    "ResetAsked",
    "ServedSession",
    "ServerEvent",
    "SessionRow",
    "SessionState",
    "StepAsked",
    "TasksAsked",
    "class_name",
    "rpc_answer",
]

# The maximum depth of a client's JSON, and the maximum length of an error's text.
_DEEPEST, _LONGEST = 100, 2000
_LONGEST_ID = 255
_LARGEST_SEED = 2**63
# Bytes of a message beside the action: names, and the data of resets.
_LEAST_MESSAGE = 1 << 16
# Bytes of a number as text, and of a text or an object.
_NUMBER, _OBJECT = 32, 1 << 20


# The tables.


class SessionState(enum.Enum):
    """The state of an end."""

    # The server's; the first is for HTTP requests.
    ALONE = "alone"
    NEW = "No episode has begun"
    PLAYING = "playing"
    ENDED = "The episode has ended"
    LOST = "The environment was lost"
    # The client's.
    READY = "ready"
    # Of both ends.
    ASKED = "asked"
    CLOSED = "closed"


class SessionRow(NamedTuple):
    """A row of a state table: the messages received, and the states that may follow."""

    receives: tuple[str, ...]
    then: tuple[SessionState, ...]


# The requests of the Task API: the environment's method, the keys of the body, and the
# key of the answer.
TASKS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "splits": ("list_splits", (), ""),
    "tasks": ("list_tasks", ("split",), "tasks"),
    "num_tasks": ("num_tasks", ("split",), "num_tasks"),
    "task": ("get_task", ("split", "index"), "task"),
    "task_range": ("get_task_range", ("split", "start", "stop"), "tasks"),
}
# The type of the answer to each message.
ANSWERS = {
    "reset": "observation",
    "step": "observation",
    "state": "state",
    "mcp": "mcp",
    "close": "",
    **dict.fromkeys(TASKS, "tasks"),
}

# After an error that ends the session, the state is `CLOSED` in any case.
_S = SessionState
_ANY_TIME = ("reset", "state", "mcp", "close")
SERVER: dict[SessionState, SessionRow] = {
    _S.ALONE: SessionRow(("reset", "step", "state", "mcp", *TASKS), (_S.ASKED,)),
    _S.NEW: SessionRow(_ANY_TIME, (_S.ASKED, _S.CLOSED)),
    _S.PLAYING: SessionRow((*_ANY_TIME, "step"), (_S.ASKED, _S.CLOSED)),
    _S.ENDED: SessionRow(_ANY_TIME, (_S.ASKED, _S.CLOSED)),
    _S.LOST: SessionRow(_ANY_TIME, (_S.ASKED, _S.CLOSED)),
    # A refused reset, or a question about tasks, leads back to the state before it.
    _S.ASKED: SessionRow((), (_S.PLAYING, _S.ENDED, _S.LOST, _S.NEW, _S.ALONE)),
    _S.CLOSED: SessionRow((), ()),
}
CLIENT: dict[SessionState, SessionRow] = {
    _S.READY: SessionRow((), (_S.ASKED, _S.CLOSED)),
    _S.ASKED: SessionRow(
        ("observation", "state", "mcp", "error"), (_S.READY, _S.CLOSED)
    ),
    _S.CLOSED: SessionRow((), ()),
}


class ErrorCode(NamedTuple):
    """The HTTP status of an error, and whether it ends the session."""

    status: int
    ends: bool = False


CODES = {
    "INVALID_JSON": ErrorCode(422),
    "UNKNOWN_TYPE": ErrorCode(422),
    "VALIDATION_ERROR": ErrorCode(422),
    "EXECUTION_ERROR": ErrorCode(500),
    "ENVIRONMENT_LOST": ErrorCode(500),
    "TOO_LARGE": ErrorCode(413),
    "CAPACITY_REACHED": ErrorCode(503, ends=True),
    "FACTORY_ERROR": ErrorCode(500, ends=True),
    "SESSION_ERROR": ErrorCode(503, ends=True),
    # Only over HTTP.
    "CLIENT_LEFT": ErrorCode(400),
    "TOO_SLOW": ErrorCode(408),
    "INVALID_INDEX": ErrorCode(400),
    "NOT_FOUND": ErrorCode(404),
    "NOT_IMPLEMENTED": ErrorCode(501),
}


class MessageError(Exception):
    """A message is answered with an error.

    Attributes:
        code: One of `CODES`.
        place: The path to the wrong part of the message, if there is one.
        kind: The kind of the loss, if the environment is lost.
    """

    def __init__(
        self,
        code: str,
        message: str,
        place: list[str] | None = None,
        *,
        kind: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.place, self.kind = code, place, kind


def _invalid(place: list[str], message: str) -> MessageError:
    return MessageError("VALIDATION_ERROR", message, place)


# The server's events.


class JsonAnswer(NamedTuple):
    """A message for the client.

    Attributes:
        type: Its type.
        data: Its data, as JSON.
        error: The data of an error.
    """

    type: str
    data: str
    error: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The message for a WebSocket."""
        return f'{{"type":"{self.type}","data":{self.data}}}'

    @property
    def body(self) -> str:
        """The body for HTTP."""
        if self.error is None:
            return self.data
        detail = self.error.get("errors", self.error["message"])
        return _dumped({"detail": detail, **self.error})

    @property
    def code(self) -> str:
        """The code of an error, or ""."""
        return self.error["code"] if self.error else ""

    @property
    def message(self) -> str:
        """The message of an error, or ""."""
        return self.error["message"] if self.error else ""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CODES[self.code].status if self.error else 200


class ResetAsked(NamedTuple):
    """The environment must begin an episode: `observe` or `fail` is due."""

    seed: int | None
    episode_id: str | None
    options: dict[str, Any] | None


class StepAsked(NamedTuple):
    """The environment must apply an action: `observe` or `fail` is due.

    Attributes:
        action: The action.
        begins: Whether it must begin an episode first.
        call: The call of a tool that it is, if it is one.
    """

    action: NestedArray
    begins: bool
    call: ToolCall | None = None


class TasksAsked(NamedTuple):
    """A method of the environment must be called: `give_tasks` or `fail` is due.

    Attributes:
        method: Its name.
        arguments: Its arguments.
        key: The key for its result in the answer; "" if the result is the answer.
    """

    method: str
    arguments: tuple[Any, ...]
    key: str


class PlaceAsked(NamedTuple):
    """A request over HTTP makes, uses or ends a session that outlives it.

    Attributes:
        what: "create", "close", or "use" for everything else.
        name: The name of the session; "" if it is to be created.
        id: The number of the request by JSON-RPC.
    """

    what: str
    name: str
    id: str | int | None


class Left(NamedTuple):
    """The client leaves."""


ServerEvent = JsonAnswer | ResetAsked | StepAsked | TasksAsked | PlaceAsked | Left


def _unchanged(text: str) -> str:
    return text


class ServedSession:
    """The server's end: one client's session with one environment.

    Attributes:
        state: The current state.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = CartPole()
        >>> session = ServedSession(Forms(env.environment_spec(), "CartPole"), str)
        >>> session.receive('{"type": "reset", "data": {"seed": 3}}')
        ResetAsked(seed=3, episode_id=None, options=None)
        >>> session.observe(env.reset(), {}, (False, False)).type, session.state.value
        ('observation', 'playing')
        >>> session.receive('{"type": "leap"}').code
        'UNKNOWN_TYPE'
    """

    def __init__(
        self,
        forms: Forms,
        new_id: Callable[[], str],
        hide: Callable[[str], str] = _unchanged,
        *,
        alone: bool = False,
    ) -> None:
        """Starts a session.

        Args:
            forms: The environment's specs in JSON.
            new_id: Returns a name for an episode that the client does not name.
            hide: Removes secrets of the server from a text.
            alone: Whether it is an HTTP request: one message of any type.
        """
        self.state = _S.ALONE if alone else _S.NEW
        self._forms, self._new_id, self._hide = forms, new_id, hide
        self._episode_id: str | None = None
        self._steps = 0
        # The request to the environment, and the state before it.
        self._asked: ResetAsked | StepAsked | TasksAsked | None = None
        self._before = self.state

    # Messages.

    def receive(self, text: str | bytes | None) -> ServerEvent:
        """Reads a message from a WebSocket."""
        # Hot: called once per step.
        try:
            if not isinstance(text, str):
                what = "A message must be text, not bytes."
                raise MessageError("INVALID_JSON", what)
            message = self._parsed(text)
            kind = message.get("type")
            if kind not in SERVER[_S.PLAYING].receives:
                raise MessageError(
                    "UNKNOWN_TYPE",
                    f"Unknown message type: {kind!r:.80}. The types are 'reset', "
                    "'step', 'state' and 'close'.",
                )
            for key in sorted(message.keys() - {"type", "data"}):
                what = f"A message has the keys 'type' and 'data', not {key[:80]!r}."
                raise _invalid([key[:80]], what)
            default: Any = None if kind in ("step", "mcp") else {}
            return self._handle(kind, message.get("data", default))
        except MessageError as error:
            return self.refuse(error)

    def receive_body(self, kind: str, body: bytes) -> ServerEvent:
        """Reads the body of an HTTP request, which is the data of a message."""
        try:
            data = self._parsed(body) if body else {}
            if kind == "step":
                if "action" not in data:
                    what = "The body must have the key 'action'."
                    raise _invalid(["body", "action"], what)
                data = data["action"]
            return self._handle(kind, data)
        except MessageError as error:
            return self.refuse(error)

    def _parsed(self, text: str | bytes) -> dict[str, Any]:
        if len(text) > self._forms.largest_message:
            what = f"A message may have at most {self._forms.largest_message} bytes."
            raise MessageError("TOO_LARGE", what)
        try:
            text = text if isinstance(text, str) else text.decode("utf-8")
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MessageError("INVALID_JSON", f"Invalid JSON: {error}") from error
        if text.count("[") + text.count("{") > _DEEPEST and _is_too_deep(message):
            what = f"Invalid JSON: it is nested more than {_DEEPEST} levels deep."
            raise MessageError("INVALID_JSON", what)
        if not isinstance(message, dict):
            what = f"A message must be an object, got {describe(message)}."
            raise _invalid([], what)
        return message

    def _handle(self, kind: str, data: Any) -> ServerEvent:
        # Hot: called once per step.
        if not isinstance(data, dict):
            raise _invalid(["data"], f"data of {kind!r} must be an object.")
        if self.state is _S.CLOSED:
            return Left()
        if self.state is _S.ASKED:
            raise RuntimeError("A session reads nothing while its environment is busy.")
        name = "tasks" if kind in TASKS else kind
        event: ServerEvent = getattr(self, f"_read_{name}")(kind, data)
        is_answered = isinstance(event, JsonAnswer)
        if kind not in SERVER[self.state].receives and not is_answered:
            raise MessageError("EXECUTION_ERROR", self._out_of_turn())
        if isinstance(event, Left):
            self._go(_S.CLOSED)
        elif not isinstance(event, JsonAnswer | PlaceAsked):
            self._asked, self._before = event, self.state
            self._go(_S.ASKED)
        return event

    def _go(self, state: SessionState) -> None:
        if state not in SERVER[self.state].then:
            raise RuntimeError(f"A session must not go from {self.state} to {state}.")
        self.state = state

    def _read_reset(self, _: str, data: dict[str, Any]) -> ResetAsked:
        rest = dict(data)
        seed, episode_id = rest.pop("seed", None), rest.pop("episode_id", None)
        is_integer = type(seed) is int and 0 <= seed < _LARGEST_SEED
        if seed is not None and not is_integer:
            what = "seed must be an integer of at least 0, with at most 63 bits."
            raise _invalid(["data", "seed"], what)
        is_name = isinstance(episode_id, str) and len(episode_id) <= _LONGEST_ID
        if episode_id is not None and not is_name:
            what = f"episode_id must be a text of at most {_LONGEST_ID} characters."
            raise _invalid(["data", "episode_id"], what)
        return ResetAsked(seed, episode_id, rest or None)

    def _out_of_turn(self) -> str:
        return f"{self.state.value}: reset comes before step."

    def _read_step(self, _: str, data: dict[str, Any]) -> StepAsked | JsonAnswer:
        # Hot: called once per step.
        tools = self._forms.tools
        if tools is not None and tools.asks_for_list(data):
            return _answer_of_tools({"tools": tools.listed("input_schema")})
        try:
            if tools is not None and tools.is_call(data):
                return self._call_of(tools, *tools.read(data))
            action = self._forms.action.read(data)
        except SpecError as error:
            place = ["action", error.path.removeprefix("action")]
            raise _invalid([part for part in place if part], str(error)) from error
        return StepAsked(action, begins=self.state is _S.ALONE)

    def _call_of(
        self, tools: ToolForms, name: str, arguments: Any
    ) -> StepAsked | JsonAnswer:
        try:
            action = ObjectSpec.wrap(tools.action(name, arguments))
        except (LookupError, TypeError) as error:
            return _answer_of_tools(tools.refused(name, error))
        return StepAsked(action, self.state is _S.ALONE, ToolCall(name))

    def _read_state(self, kind: str, _: dict[str, Any]) -> JsonAnswer:
        state = {"episode_id": self._episode_id, "step_count": self._steps}
        return JsonAnswer(ANSWERS[kind], _dumped(state))

    def _read_mcp(self, kind: str, data: dict[str, Any]) -> ServerEvent:
        number = data.get("id")
        known = number if isinstance(number, str | int) else None
        try:
            return self._read_rpc(known, data)
        except RpcError as error:
            return rpc_answer(known, error=ToolForms.rpc_error(error))

    def _read_rpc(self, number: str | int | None, data: dict[str, Any]) -> ServerEvent:
        """Lists the tools, or makes a step, which begins an episode if none has begun.

        Raises:
            RpcError: It is not possible.
        """
        tools, method = self._forms.tools, rpc_method(data)
        if tools is None:
            what = "This environment has no tools: use reset and step."
            raise RpcError(NO_METHOD, what)
        if self.state is _S.ALONE and (asked := _place_asked(data, number)):
            return asked
        if method == "tools/list":
            return rpc_answer(number, result={"tools": tools.listed("inputSchema")})
        if method != "tools/call":
            what = f"Unknown method {method[:80]!r}: use tools/list or tools/call."
            raise RpcError(NO_METHOD, what)
        name, action = tools.read_rpc(data.get("params"))
        if self.state in (_S.ENDED, _S.LOST):
            raise RpcError(INTERNAL_ERROR, self._out_of_turn())
        begins = self.state is not _S.PLAYING
        call = ToolCall(name, is_rpc=True, id=number)
        return StepAsked(ObjectSpec.wrap(action), begins, call)

    def _read_close(self, _: str, data: dict[str, Any]) -> Left:
        return Left()

    def _read_tasks(self, kind: str, data: dict[str, Any]) -> TasksAsked:
        method, keys, answer = TASKS[kind]
        for key in sorted(data.keys() - {*keys}):
            raise _invalid(["body", key[:80]], f"The body has no key {key[:80]!r}.")
        for key in keys:
            value, is_open = data.get(key), key in ("start", "stop")
            wanted, what = (str, "text") if key == "split" else (int, "an integer")
            if type(value) is not wanted and not (is_open and value is None):
                raise _invalid(["body", key], f"{key} must be {what}.")
        return TasksAsked(method, tuple(data.get(key) for key in keys), answer)

    # The environment's results.

    def observe(
        self, time_step: TimeStep, info: Any, flags: tuple[bool, bool]
    ) -> JsonAnswer:
        """Answers a reset or a step with the environment's time step.

        Args:
            time_step: The time step.
            info: Its info.
            flags: Whether the episode was terminated, and whether it was truncated.
        """
        # Hot: called once per step.
        asked, is_last = self._asked, bool(time_step.is_last())
        call = asked.call if isinstance(asked, StepAsked) else None
        is_reset = isinstance(asked, ResetAsked)
        metadata = {
            "discount": _plain(time_step.discount),
            "terminated": flags[0],
            "truncated": flags[1],
        }
        if isinstance(info, Mapping):
            for key, value in info.items():
                if isinstance(key, str) and (plain := _plain(value)) is not _NOTHING:
                    metadata.setdefault(key, plain)
        try:
            told = {
                "observation": self._forms.observation.write(time_step.observation),
                "reward": None if is_reset else _plain(time_step.reward),
                "done": is_last,
                "metadata": metadata,
            }
            if call is None:
                answer = JsonAnswer("observation", _dumped(told))
            else:
                answer = _answer_to_call(call, told, text_of(time_step.observation))
        except (SpecError, ValueError) as error:
            return self.fail(error)
        self._go(_S.ENDED if is_last else _S.PLAYING)
        if isinstance(asked, ResetAsked):
            self._episode_id = asked.episode_id or self._new_id()
        elif self._episode_id is None:  # a call has begun it
            self._episode_id = self._new_id()
        self._steps = 0 if is_reset else self._steps + 1
        return answer

    def give_tasks(self, found: Any) -> JsonAnswer:
        """Answers a request of the Task API."""
        assert isinstance(self._asked, TasksAsked)  # it is only called then
        plain: Any = _plain(list(found) if isinstance(found, range) else found)
        plain = None if plain is _NOTHING else plain
        key = self._asked.key
        try:
            content = {key: plain} if key else [_split(one) for one in plain]
            data = _dumped(content)
        except (TypeError, ValueError) as error:
            return self.fail(error)
        self._go(self._before)
        return JsonAnswer("tasks", data)

    def fail(self, error: BaseException) -> JsonAnswer:
        """Answers with an error of the environment."""
        asked, kind, text = self._asked, type(error).__name__, str(error)
        if isinstance(asked, TasksAsked):
            self._go(self._before)
            return self.refuse(_tasks_error(asked.method, error))
        if isinstance(asked, ResetAsked) and isinstance(error, NotImplementedError):
            # Nothing has changed: the episode, if there is one, continues.
            self._go(self._before)
            part = "seed" if asked.options is None else "options"
            return self.refuse(_invalid(["data"], f"reset: {part}: {text}"))
        self._go(_S.LOST)
        if isinstance(error, EnvironmentLostError):
            what = f"{text.removesuffix('.')}. Send reset to begin another episode."
            told = MessageError("ENVIRONMENT_LOST", what, kind=error.loss.kind)
        else:
            what = f"{kind}: {text}" if text else kind
            told = MessageError("EXECUTION_ERROR", what)
        answer = self.refuse(told)
        call = asked.call if isinstance(asked, StepAsked) else None
        if call is None or not call.is_rpc:
            return answer
        failed = RpcError(INTERNAL_ERROR, answer.message, answer.error)
        return rpc_answer(call.id, error=ToolForms.rpc_error(failed))

    def refuse(self, error: MessageError) -> JsonAnswer:
        """Answers with an error; some codes end the session."""
        message = self._hide(str(error))[:_LONGEST]
        data: dict[str, Any] = {"message": message, "code": error.code}
        if error.place is not None:
            one = {"type": "value_error", "loc": error.place, "msg": message}
            data["errors"] = [one]
        if error.kind is not None:
            data["kind"] = error.kind
        if CODES[error.code].ends:
            self.state = _S.CLOSED
        return JsonAnswer("error", _dumped(data), data)


def _place_asked(data: Mapping[str, Any], number: Any) -> PlaceAsked | None:
    """Returns what a request by JSON-RPC asks of a session that outlives it."""
    params = data.get("params")
    name = params.get("session_id") if isinstance(params, dict) else None
    if data["method"] == "openenv/session/create":
        return PlaceAsked("create", "", number)
    if data["method"] == "openenv/session/close":
        return PlaceAsked("close", str(name), number)
    return None if name is None else PlaceAsked("use", str(name), number)


def rpc_answer(number: str | int | None, **content: Any) -> JsonAnswer:
    """Returns an answer by JSON-RPC, with its result or its error."""
    return JsonAnswer("mcp", _dumped({"jsonrpc": "2.0", "id": number, **content}))


def _answer_of_tools(observation: Mapping[str, Any]) -> JsonAnswer:
    """Returns the answer to a step that reaches no environment."""
    told = {"observation": observation, "reward": None, "done": False, "metadata": {}}
    return JsonAnswer("observation", _dumped(told))


def _answer_to_call(call: ToolCall, told: Mapping[str, Any], text: str) -> JsonAnswer:
    if call.is_rpc:
        return rpc_answer(call.id, result=ToolForms.rpc_result(text, told))
    observation = ToolForms.observed(call.name, text, told["observation"])
    return JsonAnswer("observation", _dumped({**told, "observation": observation}))


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _tasks_error(method: str, error: BaseException) -> MessageError:
    if isinstance(error, AttributeError | NotImplementedError):
        what = f"{method} is not supported for this environment"
        return MessageError("NOT_IMPLEMENTED", what)
    if isinstance(error, IndexError):
        return MessageError("INVALID_INDEX", "Invalid task index")
    is_invalid = isinstance(error, KeyError | ValueError | TypeError)
    code = "VALIDATION_ERROR" if is_invalid else "EXECUTION_ERROR"
    return MessageError(code, str(error) or type(error).__name__)


def _split(one: Any) -> Any:
    """Returns a split with its type, which tells its purpose."""
    if isinstance(one, dict):
        return one
    kind = one if one in ("train", "validation", "test") else "validation"
    return {"name": one, "type": kind}


_NOTHING: Any = object()


def _plain(value: Any, depth: int = 0) -> Any:
    """Returns the parts of a value that JSON can hold, or `_NOTHING`."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufUO":
            return _NOTHING
        return _plain(value.tolist(), depth)
    if depth > 8:
        return _NOTHING
    if isinstance(value, Mapping):
        pairs = {str(key): _plain(child, depth + 1) for key, child in value.items()}
        return {key: child for key, child in pairs.items() if child is not _NOTHING}
    if isinstance(value, list | tuple):
        items = [_plain(child, depth + 1) for child in value]
        return [None if item is _NOTHING else item for item in items]
    return _NOTHING


def _dumped(message: Any) -> str:
    # Only ASCII, because a text may contain lone surrogates, which UTF-8 cannot hold.
    return json.dumps(message, separators=(",", ":"))


# The client's end.


class OpenEnvError(PeerError, RuntimeError):
    """An OpenEnv server cannot be reached, or has refused a request.

    Attributes:
        code: The code of the server's answer, such as `"EXECUTION_ERROR"`; empty if
            there was no answer.
        kind: The kind of the `Loss`, if the server has lost its environment.
    """

    code: str = ""
    kind: str = ""


class ClientSession:
    """The client's end.

    Attributes:
        state: The current state; `CLOSED` if the connection is no longer usable.

    Example:
        >>> session = ClientSession("The OpenEnv server at http://localhost:8000")
        >>> session.ask("reset", {"seed": 3})
        '{"type":"reset","data":{"seed":3}}'
        >>> answer = '{"observation": {"value": 7}, "reward": null, "done": false}'
        >>> session.receive(f'{{"type": "observation", "data": {answer}}}')
        Result(observation={'value': 7}, reward=0.0, terminated=False, \
truncated=False, info={}, discount=1.0)
    """

    def __init__(self, server: str) -> None:
        """Starts a session.

        Args:
            server: The server's name in messages.
        """
        self.state = _S.READY
        self._server, self._answer = server, ""

    def ask(self, kind: str, data: Any = None) -> str:
        """Returns the text of a message; the next text received is its answer."""
        # Hot: called once per step.
        self._go(_S.ASKED)
        self._answer = ANSWERS[kind]
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        return _dumped(message)

    def receive(self, text: str | bytes) -> Any:
        """Reads the answer: the `Result` of a reset or a step, or a state.

        Raises:
            OpenEnvError: It is an error, or breaks the protocol.
            SpecError: The reward is no number.
        """
        # Hot: called once per step.
        try:
            answer = json.loads(text)
            kind, data = answer["type"], answer.get("data")
        except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
            kind = data = None
        is_known = kind in CLIENT[self.state].receives and isinstance(data, dict)
        if not is_known or kind not in ("error", self._answer):
            self._go(_S.CLOSED)
            raise OpenEnvError(
                f"{self._server} must answer with JSON objects that have the type "
                f"{self._answer!r} or 'error', and data, got {describe(text)}."
            )
        code = data.get("code") if kind == "error" else None
        is_over = isinstance(code, str) and code in CODES and CODES[code].ends
        self._go(_S.CLOSED if is_over else _S.READY)
        if kind == "error":
            message, code = f"{data.get('message')!s:.{_LONGEST}}", f"{code!s:.80}"
            error = OpenEnvError(f"{self._server} answered {code}: {message}")
            error.code = escaped(code)
            if error.code == "ENVIRONMENT_LOST":
                error.kind = data["kind"] if data.get("kind") in KINDS else "raised"
            raise error
        return self._result_of(data) if kind == "observation" else data

    def _go(self, state: SessionState) -> None:
        if state not in CLIENT[self.state].then:
            raise RuntimeError(f"A client must not go from {self.state} to {state}.")
        self.state = state

    def _result_of(self, data: Mapping[str, Any]) -> Result:
        # Hot: called once per step.
        metadata, reward = data.get("metadata"), data.get("reward")
        info = dict(metadata) if isinstance(metadata, Mapping) else {}
        is_last = bool(data.get("done"))
        discount = _number(info.pop("discount", None))
        if discount is None:
            discount = 0.0 if is_last and not info.get("truncated") else 1.0
        if not is_last:  # they only describe the end of an episode
            info.pop("terminated", None)
            info.pop("truncated", None)
        number = 0.0 if reward is None else _number(reward)
        if number is None:
            raise SpecError(
                f"{self._server} sent the reward {describe(reward)}, which must be a "
                "number or nothing."
            )
        ends = is_last and not discount, is_last and bool(discount)
        return Result(data.get("observation"), number, *ends, info, discount)


# JSON has no infinite numbers, so they are words.
_WORDS = {
    **dict.fromkeys(("Infinity", "inf"), math.inf),
    **dict.fromkeys(("-Infinity", "-inf"), -math.inf),
    **dict.fromkeys(("NaN", "nan"), math.nan),
}


def _number(value: Any) -> float | None:
    """Returns a number as a float; `None` for anything else, or if it is too large."""
    if isinstance(value, str):
        return _WORDS.get(value)
    try:
        return float(value) if isinstance(value, bool | int | float) else None
    except OverflowError:
        return None


# Specs as JSON Schema.

STATE_SCHEMA = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer", "minimum": 0},
    },
}
# OpenEnv's names for tool actions, without `Action` at the end.
_OF_TOOLS = ("CallTool", "ListTools")


class Forms:
    """The JSON form of an environment's specs: its schemas, and how to convert values.

    Attributes:
        tools: The tools that the environment declares, if it does.
        schema: The schemas for trainers, which put them into prompts.
        exact_schema: The schemas for envkit's client, which restores the same specs.
        largest_message: The maximum length of a client's message.
    """

    def __init__(self, spec: Any, name: str, tools: Sequence[Tool] = ()) -> None:
        """Takes an environment's specs, its name and its tools."""
        self.tools = ToolForms(tools) if tools else None
        if getattr(spec.reward, "shape", None) != ():
            raise ValueError(
                f"OpenEnv's reward is one number, and the environment's reward is "
                f"{spec.reward!r:.200}. Wrap it so that the reward is a scalar."
            )
        self.action = JsonForm(spec.action, subject="The action", root="action")
        self.observation = JsonForm(
            spec.observation, subject="The observation", root="observation"
        )
        self.largest_message = _LEAST_MESSAGE + _size_of(spec.action)
        self.schema = _schemas(spec, name, exact=False)
        self.exact_schema = _schemas(spec, name, exact=True)
        if tools:
            self.schema["action"] = CALL_SCHEMA


def _schemas(spec: Any, name: str, *, exact: bool) -> dict[str, Any]:
    """Returns the schemas of actions, observations and states."""
    title = class_name(name)
    observation = schema_of(spec.observation, f"{title}Observation", exact=exact)
    reward, discount = (
        schema_of(part, exact=exact)["properties"]["value"]
        for part in (spec.reward, spec.discount)
    )
    observation["properties"] = {
        **observation["properties"],
        "done": {"type": "boolean"},
        "reward": {"anyOf": [reward, {"type": "null"}]},
        "metadata": {"type": "object", "properties": {"discount": discount}},
    }
    return {
        "action": schema_of(spec.action, f"{title}Action", exact=exact),
        "observation": observation,
        "state": STATE_SCHEMA,
    }


def class_name(name: str) -> str:
    """Returns an environment's name in the style of OpenEnv's classes.

    Schemas are named after it, because trainers mistake an action called just `Action`,
    or like a tool action, for a tool call.

    Example:
        >>> class_name("CartPole-v1"), class_name("gymnasium:ALE/Pong-v5")
        ('CartPole', 'Pong')
        >>> class_name("my_games.envs:make_maze"), class_name("2048"), class_name("")
        ('MakeMaze', 'Env2048', 'Env')
    """
    last = re.split(r"[:/.]", re.sub(r"-v\d+$", "", name))[-1]
    words = re.findall(r"[^\W_]+", last)
    joined = "".join(word[0].upper() + word[1:] for word in words)
    if joined in _OF_TOOLS:
        return f"{joined}Env"
    return joined if joined.isidentifier() else f"Env{joined}"


def _size_of(spec: NestedSpec) -> int:
    """Returns the maximum size of an action in bytes."""
    sizes = []
    for leaf in flatten(spec):
        elements = math.prod(leaf.shape)
        is_number = leaf.dtype.kind in "biuf"
        # A character takes up to twelve bytes, as two escaped surrogates.
        letters = 0 if is_number else leaf.dtype.itemsize * 3
        if leaf.dtype.kind == "O":
            letters = _OBJECT
        sizes.append(elements * (_NUMBER + letters))
    return sum(sizes)
