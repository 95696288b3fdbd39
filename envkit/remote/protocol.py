"""envkit's own protocol, both ends, without sockets.

```
client                                        server
  magic, {protocol, nonce, byte order}     ─▶
                                           ◀─  {protocol, nonce, needs token}
  {proof, open | resume | observe | list}  ─▶
                                           ◀─  {proof, facts} or {refused}
in a session:
  {bind}, once                             ─▶
  rows of actions, {ask}, {ping}           ─▶
                                           ◀─  answered rows, {raised}, {reply}, {pong}
  {close}                                  ─▶
                                           ◀─  {end}, at any time
after a lost link, over the next one:
                                           ◀─  {resumed}, and all lost answers
to an observer:
                                           ◀─  time steps of all rows, finally {end}
```

A message is a frame of a `Link` with JSON in its body. Rows travel as between linked
workers. Each proof is an HMAC over both nonces, so the token is never sent, and a proof
is useless for another connection.

`CLIENT` and `SERVER` are the tables of the handshake: the bytes to read in each state,
and the states that may follow. `SESSION` and `OBSERVERS` are the tables of the messages
and frames after it: the sender, the phases in which it may come, and the next phase.

Rules for editing this file:

1. No sockets, threads, clocks or random numbers: the owner of the connection has them,
   and passes in their results.
2. Each message read in the handshake is a state. It has a rule in its end's table, and
   a method `_read_` named after it. `_go` enters only states that the table allows.
3. Each decision of the owner (a token, whether to open a session) is a state that
   waits: nothing is read until the owner calls a method.
4. Each later message has a rule in its table, a class with `plain()` for the sender,
   and a method `_read_` for the receiver. `Link` reads the rows of a session once the
   table has accepted their head, because they come too often for more.
5. Check a size from the other end before asking for as many bytes.
6. Any bytes, split anywhere, lead to an event, to a wait for more, or to
   `ProtocolError`, `Refusal` or `RefusedError`. tests/remote/test_protocol.py checks
   this.
7. If you add a message, raise the minor number of `PROTOCOL`. If you change one, raise
   the major number: servers refuse clients with another one.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import sys
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple

from envkit._shared.peer_errors import PeerError
from envkit._shared.protocol_end import NAMED, WAITS, ProtocolEnd, Rule
from envkit.distributed.link import ANSWERED, ASKED, BEGUN, HEAD, MESSAGE
from envkit.errors import EnvkitError
from envkit.parallel.messages import RemoteFailure
from envkit.provenance import dumped, envkit_version, loaded
from envkit.remote.losses import KINDS
from envkit.remote.offers import Refusal
from envkit.remote.plain_values import (
    ProtocolError,
    failure_from_plain,
    numbers_of,
    plain_failure,
    plain_value,
    value_of,
)
from envkit.types import Array

__all__ = [
    "CLIENT",
    "MAGIC",
    "MOST_BEFORE",
    "MOST_MESSAGE",
    "NONCE",
    "OBSERVERS",
    "ORDER",
    "PROTOCOL",
    "REQUESTS",
    "SERVER",
    "SESSION",
    "SHOWN",
    "AskMessage",
    "BindMessage",
    "ClientConversation",
    "ClientHandshake",
    "CloseMessage",
    "Conversation",
    "EndMessage",
    "FactsReceived",
    "Greeting",
    "GreetingReceived",
    "HandshakeEvent",
    "HandshakeState",
    "MessageRule",
    "ObserverConversation",
    "Phase",
    "PingMessage",
    "PongMessage",
    "ProtocolError",
    "RaisedMessage",
    "RefusedError",
    "ReplyMessage",
    "RequestReceived",
    "ResumeRequest",
    "ResumedMessage",
    "ServerConversation",
    "ServerHandshake",
    "SessionMessage",
    "Side",
    "TooLongError",
    "frame_of",
    "message_of",
    "proof_of",
    "refusal_of",
]

MAGIC = b"envkit\x02\n"
PROTOCOL = (1, 0)
# Arrays travel as they lie in memory.
ORDER = "<" if sys.byteorder == "little" else ">"
NONCE = 16
# The kind of frame for observers, with the time steps of all rows. The numbers below it
# are kinds of links.
SHOWN = 5

# The maximum size of a message in bytes, before and after a peer has proved itself.
MOST_BEFORE, MOST_MESSAGE = 1 << 16, 1 << 26
_MOST_REASON, _MOST_REFUSAL = 500, 2000


class RefusedError(PeerError, ConnectionError):
    """A server has refused a request; the message is the server's.

    Attributes:
        kind: The kind of the `Loss`, if the session to be resumed is lost.
    """

    kind: str = ""


class TooLongError(EnvkitError, ValueError):
    """A message is larger than the other end accepts."""


def proof_of(token: bytes, side: bytes, greeting: Greeting) -> str:
    """Returns the proof that one side knows the token.

    Example:
        >>> proof_of(b"secret", b"client", Greeting(b"c" * 16, b"s" * 16))[:8]
        '5d8a17e3'
    """
    text = b"envkit " + side + greeting.client + greeting.server
    return hmac.new(token, text, hashlib.sha256).hexdigest()


def frame_of(message: Mapping[str, Any], most: int = MOST_MESSAGE) -> list[bytes]:
    """Returns the frame of a message of plain data.

    Raises:
        TooLongError: It is larger than the other end accepts.
    """
    body = dumped(message).encode()
    if len(body) > most:
        name = next(iter(message))
        raise TooLongError(
            f"The message {name!r} must have at most {most} bytes, got {len(body)}."
        )
    return [HEAD.pack(MESSAGE, 0, 0, 0, len(body)), body]


def refusal_of(reason: str, kind: str = "") -> bytes:
    """Returns the frame that refuses a client at any point.

    Args:
        reason: The reason.
        kind: The kind of the loss, if the client's session is lost.
    """
    return b"".join(frame_of(EndMessage(reason, is_refusal=True, kind=kind).plain()))


def message_of(body: bytes | bytearray) -> dict[str, Any]:
    """Reads a message.

    Raises:
        ProtocolError: The bytes are no message.
    """
    try:
        message = loaded(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be read: {error!s:.200}.") from error
    if not isinstance(message, dict):
        raise ProtocolError("a message must be a JSON object.")
    return message


# The handshake.


class Greeting(NamedTuple):
    """The nonces of a connection: the client's and the server's."""

    client: bytes
    server: bytes


class HandshakeState(enum.Enum):
    """The next message of the handshake, or the decision that is due."""

    # Messages that a server reads.
    MAGIC = "magic"
    GREETING_HEAD = "greeting_head"
    GREETING = "greeting"
    REQUEST_HEAD = "request_head"
    REQUEST = "request"
    # Decisions of a server's owner.
    JUDGEMENT = "judgement"
    ANSWER = "answer"
    # The decision of a client's owner, between the server's greeting and its facts.
    TOKEN = "token"
    FACTS_HEAD = "facts_head"
    FACTS = "facts"
    CLOSED = "closed"
    OVER = "over"


_S = HandshakeState
CLIENT: dict[HandshakeState, Rule] = {
    _S.GREETING_HEAD: Rule(HEAD.size, (_S.GREETING,)),
    _S.GREETING: Rule(NAMED, (_S.TOKEN,)),
    _S.TOKEN: Rule(WAITS, (_S.FACTS_HEAD,)),
    _S.FACTS_HEAD: Rule(HEAD.size, (_S.FACTS,)),
    _S.FACTS: Rule(NAMED, (_S.OVER,)),
    _S.CLOSED: Rule(WAITS),
    _S.OVER: Rule(WAITS),
}
SERVER: dict[HandshakeState, Rule] = {
    _S.MAGIC: Rule(len(MAGIC), (_S.GREETING_HEAD,)),
    _S.GREETING_HEAD: Rule(HEAD.size, (_S.GREETING,)),
    _S.GREETING: Rule(NAMED, (_S.REQUEST_HEAD,)),
    _S.REQUEST_HEAD: Rule(HEAD.size, (_S.REQUEST,)),
    _S.REQUEST: Rule(NAMED, (_S.JUDGEMENT,)),
    _S.JUDGEMENT: Rule(WAITS, (_S.ANSWER,)),
    _S.ANSWER: Rule(WAITS, (_S.OVER,)),
    _S.CLOSED: Rule(WAITS),
    _S.OVER: Rule(WAITS),
}


class GreetingReceived(NamedTuple):
    """The server has greeted: `ask` is due.

    Attributes:
        needs_token: Whether it needs a token.
    """

    needs_token: bool


class FactsReceived(NamedTuple):
    """The server has granted the request, and the handshake is over.

    Attributes:
        facts: The facts about the session, or about the server's environments.
    """

    facts: dict[str, Any]


class RequestReceived(NamedTuple):
    """The client has asked for something: `admit` is due, and then `answer`.

    Attributes:
        request: The request: "open", "resume", "observe" or "list".
        details: The details of the request.
        proof: The proof that the client knows the token; empty if there is none.
        greeting: The nonces that the proof covers.
    """

    request: str
    details: Any
    proof: bytes
    greeting: Greeting

    def knows(self, token: bytes) -> bool:
        """Returns True if the proof shows that the client knows a token."""
        known = proof_of(token, b"client", self.greeting).encode()
        return hmac.compare_digest(self.proof, known)


# The requests of clients; the first of these keys in a message counts.
REQUESTS = ("resume", "observe", "list", "open")

HandshakeEvent = GreetingReceived | FactsReceived | RequestReceived


class _HandshakeEnd(ProtocolEnd[HandshakeState, HandshakeEvent]):
    """The common part of both ends: messages with heads."""

    closed = HandshakeState.CLOSED
    error = ProtocolError

    def _read_head(
        self, head: bytes, most: int, state: HandshakeState
    ) -> HandshakeEvent | None:
        kind, _, _, _, length = HEAD.unpack(head)
        if kind != MESSAGE or length > most:
            raise ProtocolError(
                f"a message of at most {most} bytes was expected, not this."
            )
        return self._go(state, length)

    def _read_greeting_head(self, head: bytes) -> HandshakeEvent | None:
        return self._read_head(head, MOST_BEFORE, HandshakeState.GREETING)

    def _send(self, message: Mapping[str, Any], most: int = MOST_BEFORE) -> None:
        self._out += b"".join(frame_of(message, most))


class ClientHandshake(_HandshakeEnd):
    r"""The client's end, which speaks first.

    Example:
        >>> client = ClientHandshake(b"c" * 16)
        >>> client.data_to_send()[:8], client.state.value, client.needed
        (b'envkit\x02\n', 'greeting_head', 16)
        >>> server = {"protocol": [1, 0], "nonce": "73" * 16, "token": False}
        >>> client.receive(b"".join(frame_of(server)))
        GreetingReceived(needs_token=False)
        >>> client.ask({"list": True})
        >>> client.receive(b"".join(frame_of({"environments": []})))
        FactsReceived(facts={'environments': [], 'protocol': [1, 0]})
    """

    table = CLIENT

    def __init__(self, nonce: bytes) -> None:
        """Writes the greeting.

        Args:
            nonce: `NONCE` random bytes.
        """
        super().__init__(HandshakeState.GREETING_HEAD)
        self._nonce = nonce
        self._token: bytes | None = None
        self._out += MAGIC
        self._send(
            {
                "protocol": list(PROTOCOL),
                "envkit": envkit_version(),
                "nonce": nonce.hex(),
                "order": ORDER,
            }
        )

    def ask(self, request: Mapping[str, Any], token: bytes | None = None) -> None:
        """Sends a request after `GreetingReceived`.

        Args:
            request: One of `REQUESTS`, with its details.
            token: The token that the server must know too; `None` to trust the server.

        Raises:
            TooLongError: The request is too large.
        """
        self._go(HandshakeState.FACTS_HEAD)
        self._token = token
        if token is not None and self._needs_token:
            proof = proof_of(token, b"client", self._greeting)
            request = {**request, "proof": proof}
        self._send(request)

    def _read_greeting(self, body: bytes) -> HandshakeEvent:
        message = _unrefused(message_of(body))
        try:
            server = bytes.fromhex(message["nonce"])
            self._needs_token = bool(message["token"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError("its greeting lacks a part.") from error
        self._greeting = Greeting(self._nonce, server)
        self._protocol = message.get("protocol")
        self._go(HandshakeState.TOKEN)
        return GreetingReceived(self._needs_token)

    def _read_facts_head(self, head: bytes) -> HandshakeEvent | None:
        return self._read_head(head, MOST_MESSAGE, HandshakeState.FACTS)

    def _read_facts(self, body: bytes) -> HandshakeEvent:
        facts = _unrefused(message_of(body))
        given, token = facts.pop("proof", None), self._token
        if token is not None:
            known = proof_of(token, b"server", self._greeting).encode()
            if not hmac.compare_digest(str(given).encode("utf-8", "replace"), known):
                raise ProtocolError(
                    "it does not know the token, so it is a different server."
                )
        facts.setdefault("protocol", self._protocol)
        self._go(HandshakeState.OVER)
        return FactsReceived(facts)


def _unrefused(message: dict[str, Any]) -> dict[str, Any]:
    if "refused" in message:
        error = RefusedError(str(message["refused"])[:_MOST_REFUSAL])
        error.kind = _kind_in(message)
        raise error
    return message


def _kind_in(message: Mapping[str, Any]) -> str:
    kind = message.get("kind")
    return kind if isinstance(kind, str) and kind in KINDS else ""


class ServerHandshake(_HandshakeEnd):
    """The server's end.

    Example:
        >>> client, server = ClientHandshake(b"c" * 16), ServerHandshake(b"s" * 16)
        >>> server.receive(client.data_to_send())
        >>> client.receive(server.data_to_send())
        GreetingReceived(needs_token=False)
        >>> client.ask({"list": True})
        >>> server.receive(client.data_to_send()).request
        'list'
        >>> server.admit(None)
        >>> server.answer({"environments": []})
        >>> client.receive(server.data_to_send()).facts["environments"]
        []

    Attributes:
        proof: The part of the answer that proves the server's identity to the client.
    """

    table = SERVER

    def __init__(self, nonce: bytes, *, needs_token: bool = False) -> None:
        """Begins.

        Args:
            nonce: `NONCE` random bytes.
            needs_token: Whether clients need a token.
        """
        super().__init__(HandshakeState.MAGIC)
        self._nonce, self._needs_token = nonce, needs_token
        self.proof: dict[str, str] = {}

    def admit(self, token: bytes | None) -> None:
        """Admits the client after `RequestReceived`.

        Args:
            token: The token that it has shown; `None` if it needs none.
        """
        self._go(HandshakeState.ANSWER)
        if token is not None:
            self.proof = {"proof": proof_of(token, b"server", self._greeting)}

    def answer(self, facts: Mapping[str, Any]) -> None:
        """Grants the request of an admitted client."""
        self._go(HandshakeState.OVER)
        self._send({**self.proof, **facts}, MOST_MESSAGE)

    def _read_magic(self, magic: bytes) -> None:
        if magic != MAGIC:
            raise Refusal(
                "This is a server of envkit environments, which speaks its own "
                "protocol: use envkit.connect."
            )
        self._go(HandshakeState.GREETING_HEAD)

    def _read_greeting(self, body: bytes) -> None:
        message = message_of(body)
        protocol = message.get("protocol")
        if not isinstance(protocol, list) or protocol[:1] != [PROTOCOL[0]]:
            raise Refusal(
                f"The server speaks protocol {PROTOCOL[0]}.{PROTOCOL[1]} (envkit "
                f"{envkit_version()}), and the client {_version_text(protocol)} "
                f"(envkit {message.get('envkit')!r:.40}). Both must have the same "
                "major number: update the older envkit."
            )
        if message.get("order") != ORDER:
            raise Refusal(
                "The two machines have different byte orders, and arrays travel as "
                "they lie in memory."
            )
        self._greeting = Greeting(_nonce_in(message), self._nonce)
        self._go(HandshakeState.REQUEST_HEAD)
        self._send(
            {
                "protocol": list(PROTOCOL),
                "envkit": envkit_version(),
                "nonce": self._nonce.hex(),
                "token": self._needs_token,
            }
        )

    def _read_request_head(self, head: bytes) -> HandshakeEvent | None:
        return self._read_head(head, MOST_BEFORE, HandshakeState.REQUEST)

    def _read_request(self, body: bytes) -> HandshakeEvent:
        message = message_of(body)
        request = next((name for name in REQUESTS if name in message), "open")
        proof = str(message.get("proof", "")).encode("utf-8", "replace")
        self._go(HandshakeState.JUDGEMENT)
        return RequestReceived(request, message.get(request), proof, self._greeting)


def _version_text(protocol: Any) -> str:
    parts = protocol[:2] if isinstance(protocol, list) else []
    return ".".join(f"{part!s:.20}" for part in parts) or "none"


def _nonce_in(message: Mapping[str, Any]) -> bytes:
    try:
        nonce = bytes.fromhex(message["nonce"])
    except (KeyError, TypeError, ValueError):
        nonce = b""
    if len(nonce) != NONCE:
        raise Refusal(f"nonce must be {NONCE} bytes in hexadecimal digits.")
    return nonce


# After the handshake: messages, and frames of rows.


class Side(enum.Enum):
    """The ends of a connection."""

    CLIENT = "client"
    SERVER = "server"


class Phase(enum.Enum):
    """The phase of a session, or of an observer's connection."""

    # The client has the facts; the server has no layout yet.
    OPENED = "opened"
    # Both know the layout: rows may travel.
    BOUND = "bound"
    # The link is lost, or `resumed` is due over the next one.
    LOST = "lost"
    ENDED = "ended"


class MessageRule(NamedTuple):
    """The rule for a message or a kind of frame after the handshake.

    Attributes:
        sender: The end that may send it.
        phases: The phases in which it may come.
        then: The phases that may follow; empty if the phase stays.
        most: The maximum bytes of its body. The layout sets the size of rows.
    """

    sender: Side
    phases: tuple[Phase, ...]
    then: tuple[Phase, ...] = ()
    most: int = MOST_MESSAGE


_P = Phase
_ANY = (_P.OPENED, _P.BOUND, _P.LOST)
_BY_LAYOUT = sys.maxsize
_ROWS = (ASKED, ANSWERED, BEGUN, SHOWN)
# Messages by their first key, frames of rows by their kind.
SESSION: dict[str | int, MessageRule] = {
    "bind": MessageRule(Side.CLIENT, (_P.OPENED,), (_P.BOUND,)),
    "ask": MessageRule(Side.CLIENT, (_P.BOUND,)),
    "ping": MessageRule(Side.CLIENT, (_P.OPENED, _P.BOUND)),
    "close": MessageRule(Side.CLIENT, _ANY, (_P.ENDED,)),
    "end": MessageRule(Side.SERVER, _ANY, (_P.ENDED,)),
    # The client tried to resume a session that has ended meanwhile.
    "refused": MessageRule(Side.SERVER, (_P.LOST,), (_P.ENDED,)),
    "raised": MessageRule(Side.SERVER, (_P.BOUND,)),
    "resumed": MessageRule(Side.SERVER, (_P.LOST,), (_P.OPENED, _P.BOUND)),
    "reply": MessageRule(Side.SERVER, (_P.BOUND,)),
    "pong": MessageRule(Side.SERVER, (_P.OPENED, _P.BOUND)),
    ASKED: MessageRule(Side.CLIENT, (_P.BOUND,), most=_BY_LAYOUT),
    ANSWERED: MessageRule(Side.SERVER, (_P.BOUND,), most=_BY_LAYOUT),
    BEGUN: MessageRule(Side.SERVER, (_P.BOUND,), most=_BY_LAYOUT),
}
OBSERVERS: dict[str | int, MessageRule] = {
    SHOWN: MessageRule(Side.SERVER, (_P.BOUND,), most=_BY_LAYOUT),
    "end": MessageRule(Side.SERVER, (_P.BOUND,), (_P.ENDED,), MOST_BEFORE),
}


class BindMessage(NamedTuple):
    """The client lays out the rows.

    Attributes:
        info: The names of the infos that it wants.
        first_row: The number of the first row in its pool.
    """

    info: list[str]
    first_row: int

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        return {"bind": {"info": self.info, "first_row": self.first_row}}


class AskMessage(NamedTuple):
    """A question about environments, which `ReplyMessage` answers.

    Attributes:
        number: The question's number.
        method: The method, as in a request to a worker.
        envs: The indices of the environments in the client's pool.
        arguments: One argument for each environment, as plain data at the client's end.
    """

    number: int
    method: str
    envs: list[int]
    arguments: Any

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        return {
            "ask": self.number,
            "method": self.method,
            "envs": self.envs,
            "arguments": self.arguments,
        }


class PingMessage(NamedTuple):
    """A question for the server's clock, which `PongMessage` answers."""

    number: Any

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        return {"ping": self.number}


class CloseMessage(NamedTuple):
    """The client leaves."""

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        return {"close": True}


class EndMessage(NamedTuple):
    """The server ends the session.

    Attributes:
        reason: The reason.
        is_refusal: Whether it refuses a link instead.
        kind: The kind of the loss, if the server knows how the session ended.
    """

    reason: str
    is_refusal: bool = False
    kind: str = ""

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        name = "refused" if self.is_refusal else "end"
        message = {name: self.reason[:_MOST_REFUSAL]}
        return {**message, "kind": self.kind} if self.kind else message


class RaisedMessage(NamedTuple):
    """Rows have raised; their answers follow.

    Attributes:
        rows: The rows, as numbered in the session.
        failure: The failure.
    """

    rows: list[int]
    failure: RemoteFailure

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        return {"raised": self.rows, "failure": plain_failure(self.failure)}


class ResumedMessage(NamedTuple):
    """The first message over the next link after a lost one.

    Attributes:
        answers: The numbers of the server's latest answers; `None` if the lost link did
            not deliver the layout.
        replied: The number of the last answered question.
    """

    answers: Array | None
    replied: int | None

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        answers = [] if self.answers is None else self.answers.tolist()
        return {"resumed": answers, "replied": self.replied}


class ReplyMessage(NamedTuple):
    """The answer to a question.

    Attributes:
        number: The question's number.
        values: A value or a failure for each environment.
    """

    number: Any
    values: list[Any]

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        results = [
            {"failure": plain_failure(value)}
            if isinstance(value, RemoteFailure)
            else {"value": plain_value(value)}
            for value in self.values
        ]
        return {"reply": self.number, "results": results}


class PongMessage(NamedTuple):
    """The server's clock.

    Attributes:
        number: The number of the ping.
        clock: The server's `time.time_ns()`.
    """

    number: Any
    clock: int

    def plain(self) -> dict[str, Any]:
        """Returns the message."""
        return {"pong": self.number, "clock": self.clock}


class ResumeRequest(NamedTuple):
    """A client's request to resume a session after a lost link.

    Attributes:
        session: The session's name.
        secret: Proves that the session belongs to this client.
        numbers: The numbers of the rows' latest requests.
        owing: Mask of the rows that wait for an answer.
        asked: The number of the unanswered question; `None` if there is none.
    """

    session: str
    secret: str
    numbers: Array
    owing: Array
    asked: int | None

    def plain(self) -> dict[str, Any]:
        """Returns the details of the request."""
        return {
            "session": self.session,
            "secret": self.secret,
            "sequence": self.numbers.tolist(),
            "owing": self.owing.tolist(),
            "asked": self.asked,
        }


SessionMessage = (
    BindMessage
    | AskMessage
    | PingMessage
    | CloseMessage
    | EndMessage
    | RaisedMessage
    | ResumedMessage
    | ReplyMessage
    | PongMessage
)


class Conversation:
    """One end of a connection after the handshake.

    Attributes:
        side: The end.
        phase: The current phase.
    """

    table: ClassVar[Mapping[str | int, MessageRule]] = SESSION

    def __init__(self, side: Side, phase: Phase) -> None:
        """Begins in a phase."""
        self.side, self.phase = side, phase

    def lose(self) -> None:
        """Forbids sending until the next link has delivered `resumed`."""
        if self.phase is not Phase.ENDED:
            self.phase = Phase.LOST

    def check_head(self, kind: int, length: int) -> None:
        """Refuses a frame that is not allowed now, before allocating memory for it.

        Raises:
            ProtocolError: It must not come now, or is too long.
        """
        # Hot: called for each frame of rows other than the expected one.
        rule, most = self.table.get(kind), -1
        if rule is not None and rule.sender is not self.side:
            most = rule.most if self.phase in rule.phases else -1
        elif kind == MESSAGE:
            messages = [rule for name, rule in self._received() if name not in _ROWS]
            most = max(
                (rule.most for rule in messages if self.phase in rule.phases),
                default=-1,
            )
        if most < 0:
            raise ProtocolError(
                f"a frame of kind {kind} must not come {_WHEN[self.phase]}."
            )
        if length > most:
            raise ProtocolError(
                f"a frame must have at most {most} bytes, got {length}."
            )

    def receive(self, body: bytes | bytearray) -> SessionMessage:
        """Reads a message.

        Raises:
            ProtocolError: The bytes are no message, or it must not come now.
        """
        message = message_of(body)
        known = [each for each in self._received() if each[0] in message]
        if not known:
            raise ProtocolError("the message is not one of the protocol.")
        name, rule = known[0]
        if self.phase not in rule.phases:
            raise ProtocolError(f"{name!r} must not come {_WHEN[self.phase]}.")
        found: SessionMessage = getattr(self, f"_read_{name}")(message)
        self._follow(rule, found)
        return found

    def send(self, message: SessionMessage) -> list[bytes]:
        """Returns the frame of a message to send.

        Raises:
            TooLongError: It is too large.
            RuntimeError: This end must not send it now.
        """
        plain = message.plain()
        name = next(iter(plain))
        rule = self.table[name]
        if rule.sender is not self.side or self.phase not in rule.phases:
            raise RuntimeError(
                f"The {self.side.value} must not send {name!r} {_WHEN[self.phase]}."
            )
        frame = frame_of(plain, rule.most)
        self._follow(rule, message)
        return frame

    def _received(self) -> list[tuple[str | int, MessageRule]]:
        """Returns the rules for the other end's messages."""
        return [each for each in self.table.items() if each[1].sender is not self.side]

    def _follow(self, rule: MessageRule, message: SessionMessage) -> None:
        if isinstance(message, ResumedMessage):
            self.phase = Phase.OPENED if message.answers is None else Phase.BOUND
        elif rule.then:
            (self.phase,) = rule.then

    def _read_end(self, message: Mapping[str, Any]) -> EndMessage:
        return EndMessage(f"{message['end']!s:.{_MOST_REASON}}")


_WHEN = {
    Phase.OPENED: "before 'bind'",
    Phase.BOUND: "after 'bind'",
    Phase.LOST: "before 'resumed'",
    Phase.ENDED: "after the end",
}


class ClientConversation(Conversation):
    """The client's end of a session.

    Example:
        >>> client = ClientConversation(rows=2)
        >>> client.send(BindMessage([], 0))[1]
        b'{"bind":{"info":[],"first_row":0}}'
        >>> client.receive(b'{"pong": 1, "clock": 2}')
        PongMessage(number=1, clock=2)
        >>> client.receive(b'{"resumed": [0, 0]}')
        Traceback (most recent call last):
        envkit.remote.plain_values.ProtocolError: 'resumed' must not come after 'bind'.
    """

    def __init__(self, rows: int, host: str = "") -> None:
        """Begins after the facts.

        Args:
            rows: The number of rows of the session.
            host: The name of the server's machine, for failures.
        """
        super().__init__(Side.CLIENT, Phase.OPENED)
        self._rows, self._host = rows, host

    def _read_refused(self, message: Mapping[str, Any]) -> EndMessage:
        reason = f"{message['refused']!s:.{_MOST_REASON}}"
        return EndMessage(reason, is_refusal=True, kind=_kind_in(message))

    def _read_raised(self, message: Mapping[str, Any]) -> RaisedMessage:
        rows = message["raised"]
        if (
            not isinstance(rows, list)
            or not rows
            or not all(type(row) is int and 0 <= row < self._rows for row in rows)
        ):
            raise ProtocolError("'raised' must have rows of the session.")
        return RaisedMessage(
            rows, failure_from_plain(message.get("failure"), self._host)
        )

    def _read_resumed(self, message: Mapping[str, Any]) -> ResumedMessage:
        answers = message["resumed"]
        return ResumedMessage(
            None if answers == [] else numbers_of(answers, self._rows),
            message.get("replied"),
        )

    def _read_reply(self, message: Mapping[str, Any]) -> ReplyMessage:
        results = message.get("results")
        if not isinstance(results, list) or not all(
            isinstance(result, dict) and {"failure", "value"} & set(result)
            for result in results
        ):
            raise ProtocolError("'reply' must have a value or a failure for each row.")
        values = [
            failure_from_plain(result["failure"], self._host)
            if "failure" in result
            else value_of(result["value"], namedtuples=True)
            for result in results
        ]
        return ReplyMessage(message["reply"], values)

    def _read_pong(self, message: Mapping[str, Any]) -> PongMessage:
        clock = message.get("clock")
        if type(clock) is not int:
            raise ProtocolError("'pong' must have a number as its clock.")
        return PongMessage(message["pong"], clock)


class ServerConversation(Conversation):
    """The server's end of a session.

    Example:
        >>> server = ServerConversation(range(2), rows=2)
        >>> server.receive(b'{"bind": {"info": [], "first_row": 0}}')
        BindMessage(info=[], first_row=0)
        >>> server.receive(b'{"ask": 1, "method": "seed", "envs": [2]}')
        Traceback (most recent call last):
        envkit.remote.plain_values.ProtocolError: 'ask' must have a number, a method \
and environments of the session.
    """

    def __init__(self, envs: range, rows: int, info: Collection[str] = ()) -> None:
        """Begins after the facts.

        Args:
            envs: The indices of the environments in the client's pool.
            rows: The number of their rows.
            info: The names of the infos that they declare.
        """
        super().__init__(Side.SERVER, Phase.OPENED)
        self._envs, self._rows, self._info = envs, rows, info

    def read_resume(self, details: Mapping[str, Any]) -> ResumeRequest:
        """Reads the client's request to resume the session.

        Raises:
            ProtocolError: It does not fit the rows of the session.
        """
        return ResumeRequest(
            str(details.get("session")),
            str(details.get("secret")),
            numbers_of(details.get("sequence"), self._rows),
            numbers_of(details.get("owing"), self._rows).astype(bool),
            details.get("asked"),
        )

    def _read_bind(self, message: Mapping[str, Any]) -> BindMessage:
        bind = message["bind"]
        info, first_row = (
            (bind.get("info", []), bind.get("first_row", 0))
            if isinstance(bind, dict)
            else (None, None)
        )
        if not isinstance(info, list) or not all(
            isinstance(each, str) for each in info
        ):
            raise ProtocolError("'bind' must have the names of infos.")
        if type(first_row) is not int or first_row < 0:
            raise ProtocolError("first_row must be the number of a row.")
        unknown = [name for name in info if name not in self._info]
        if unknown:
            raise ProtocolError(f"no info is called {unknown[0]:.80}.")
        return BindMessage(info, first_row)

    def _read_ask(self, message: Mapping[str, Any]) -> AskMessage:
        number, method, envs = (message.get(key) for key in ("ask", "method", "envs"))
        if (
            type(number) is not int
            or not isinstance(method, str)
            or not isinstance(envs, list)
            or not all(type(env) is int and env in self._envs for env in envs)
            or len(set(envs)) != len(envs)
        ):
            raise ProtocolError(
                "'ask' must have a number, a method and environments of the session."
            )
        arguments = value_of(message.get("arguments"))
        if not isinstance(arguments, list) or len(arguments) != len(envs):
            raise ProtocolError("'ask' must have an argument for each environment.")
        return AskMessage(number, method, envs, arguments)

    def _read_ping(self, message: Mapping[str, Any]) -> PingMessage:
        return PingMessage(message["ping"])

    def _read_close(self, message: Mapping[str, Any]) -> CloseMessage:
        return CloseMessage()


class ObserverConversation(Conversation):
    """One end of an observer's connection.

    Example:
        >>> observer = ObserverConversation(Side.CLIENT)
        >>> observer.receive(b'{"end": "it was enough"}').reason, observer.phase.value
        ('it was enough', 'ended')
    """

    table = OBSERVERS

    def __init__(self, side: Side) -> None:
        """Begins after the facts."""
        super().__init__(side, Phase.BOUND)
