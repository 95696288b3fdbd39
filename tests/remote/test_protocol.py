"""The tables of envkit's own protocol: recorded traffic, both ends, and any bytes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit._shared.protocol_end import WAITS
from envkit.distributed.link import ANSWERED, ASKED, HEAD, MESSAGE
from envkit.parallel.messages import RemoteFailure
from envkit.provenance import to_plain
from envkit.remote.offers import Refusal
from envkit.remote.plain_values import ProtocolError
from envkit.remote.protocol import (
    CLIENT,
    MAGIC,
    MOST_BEFORE,
    MOST_MESSAGE,
    OBSERVERS,
    SERVER,
    SESSION,
    SHOWN,
    AskMessage,
    BindMessage,
    ClientConversation,
    ClientHandshake,
    CloseMessage,
    EndMessage,
    FactsReceived,
    GreetingReceived,
    HandshakeState,
    ObserverConversation,
    Phase,
    PingMessage,
    PongMessage,
    RaisedMessage,
    RefusedError,
    ReplyMessage,
    RequestReceived,
    ResumedMessage,
    ResumeRequest,
    ServerConversation,
    ServerHandshake,
    Side,
    TooLongError,
    frame_of,
    message_of,
    refusal_of,
)
from tests.remote.recorded_sessions import RECORDED, TOKEN

ENDS_BADLY = (ProtocolError, Refusal, RefusedError)
cuts = st.lists(st.integers(0, 400), max_size=9)


@pytest.fixture(scope="module", autouse=True)
def the_version_that_was_recorded():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("envkit.remote.protocol.envkit_version", lambda: "0.2.0")
        yield


def cut(data, places):
    """Returns bytes in pieces, cut at some places."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def run(handshake, pieces, decide):
    """Reads pieces; returns all events, which `decide` answers."""
    events = []
    for piece in pieces:
        event = handshake.receive(piece)
        while event is not None:
            events.append(event)
            decide(handshake, event)
            event = handshake.receive()
    return events


def message(data):
    return b"".join(frame_of(data))


def frames_in(data):
    """Yields the kind and the body of each frame."""
    while data:
        kind, _, _, _, length = HEAD.unpack_from(data)
        yield kind, data[HEAD.size : HEAD.size + length]
        data = data[HEAD.size + length :]


def messages_in(data):
    """Returns the messages of frames."""
    return [json.loads(body) for _, body in frames_in(data)]


# The handshake against recorded traffic.

SPOKEN = {
    name: connection
    for name, connections in RECORDED.items()
    for connection in connections
    if connection[0].startswith(MAGIC)
}
GRANTED = {name: each for name, each in SPOKEN.items() if len(each) > 3}


def nonce_in(data):
    return bytes.fromhex(messages_in(data.removeprefix(MAGIC))[0]["nonce"])


def details_of(asked):
    """Returns what a client has asked for, without its proof."""
    (request,) = messages_in(asked)
    return {name: request[name] for name in request if name != "proof"}


@pytest.mark.parametrize("name", SPOKEN)
@given(places=cuts)
def test_a_client_sends_the_bytes_of_a_recorded_client(name, places):
    hello, greeting, *rest = SPOKEN[name]
    client = ClientHandshake(nonce_in(hello))
    sent = client.data_to_send()
    if name == "another version":
        hello = hello.replace(b"[9,0]", b"[1,0]")
    if name == "another order of bytes":
        hello = hello.replace(b'"?"', b'"<"')
    assert hello == sent
    if not rest:
        with pytest.raises(RefusedError):
            run(client, cut(greeting, places), None)
        return
    asked, answer, *_ = rest
    has_token = b'"token":true' in greeting
    tokens = {"no token": None, "a wrong token": b"a wrong guess of a token"}
    token = tokens.get(name, TOKEN) if has_token else None

    def decide(it, event):
        if isinstance(event, GreetingReceived):
            assert has_token is event.needs_token
            it.ask(details_of(asked), token)

    run(client, cut(greeting, places), decide)
    assert asked == client.data_to_send()
    length = HEAD.unpack_from(answer)[4]
    facts, more = answer[: HEAD.size + length], answer[HEAD.size + length :]
    if b'{"refused"' in facts:
        with pytest.raises(RefusedError):
            run(client, cut(facts, places), decide)
        return
    (event,) = run(client, cut(facts + more, places), decide)
    expected = {**messages_in(facts)[0], "protocol": [1, 0]}
    expected.pop("proof", None)
    assert FactsReceived(expected) == event
    assert (HandshakeState.OVER, 0, more) == (client.state, client.needed, client.rest)


@pytest.mark.parametrize("name", GRANTED)
@given(places=cuts)
def test_a_server_answers_a_recorded_client_with_the_recorded_bytes(name, places):
    hello, greeting, asked, answer, *_ = GRANTED[name]
    needs_token = b'"token":true' in greeting
    server = ServerHandshake(nonce_in(greeting), needs_token=needs_token)
    length = HEAD.unpack_from(answer)[4]
    facts = answer[: HEAD.size + length]
    (said,) = messages_in(facts)
    said.pop("proof", None)

    def decide(it, event):
        assert details_of(asked) == {event.request: event.details}
        if needs_token and not event.knows(TOKEN):
            return
        it.admit(TOKEN if needs_token else None)
        it.answer(said)

    (event,) = run(server, cut(hello + asked, places), decide)
    sent = server.data_to_send()
    if needs_token and not event.knows(TOKEN):
        assert ("a wrong token" in name) is bool(event.proof)
        reason = messages_in(facts)[0]["refused"]
        assert greeting + facts == sent + refusal_of(reason)
    else:
        assert greeting + facts == sent
        assert HandshakeState.OVER is server.state


REFUSED = {
    "another version": "speaks protocol 1.0 .* and the client 9.0",
    "another order of bytes": "different byte orders",
    "HTTP": "which speaks its own protocol",
    "TLS to a server without": "which speaks its own protocol",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_server_refuses_a_client_that_a_recorded_server_refused(name):
    ((said, answer, *_),) = RECORDED[name]
    server = ServerHandshake(bytes(16))
    with pytest.raises(Refusal, match=REFUSED[name]):
        server.receive(said)
    assert [["refused"]] == [list(message) for message in messages_in(answer)]
    assert b"" == server.data_to_send()


# Both ends of the handshake.

tokens = st.none() | st.sampled_from([b"one token", b"another token"])


@given(
    known=tokens,
    given_=tokens,
    nonces=st.tuples(*[st.binary(min_size=16, max_size=16)] * 2),
    places=cuts,
)
def test_client_and_server_accept_each_other_only_if_both_know_the_token(
    known, given_, nonces, places
):
    client = ClientHandshake(nonces[0])
    server = ServerHandshake(nonces[1], needs_token=known is not None)

    def decide(it, event):
        if isinstance(event, GreetingReceived):
            it.ask({"open": {"environments": []}}, given_)
        elif isinstance(event, RequestReceived):
            assert ("open", {"environments": []}) == (event.request, event.details)
            if known is None or event.knows(known):
                it.admit(known)
                it.answer({"session": "1"})
            else:
                it._out += refusal_of("no")

    def talk():
        events = []
        while client.state is not HandshakeState.OVER:
            run(server, cut(client.data_to_send(), places), decide)
            events += run(client, cut(server.data_to_send(), places), decide)
        return events[-1]

    if known == given_:
        assert FactsReceived({"session": "1", "protocol": [1, 0]}) == talk()
    elif known is None:
        with pytest.raises(ProtocolError, match="does not know the token"):
            talk()
    else:
        with pytest.raises(RefusedError, match="no"):
            talk()


# Any bytes.

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["00" * 16, "<", "tok", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$array", "$dict", "$tuple", "$path", "size", "a"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
FIELDS = ["protocol", "nonce", "order", "token", "proof", "open", "refused", "list"]
heads = st.builds(
    HEAD.pack,
    st.sampled_from([MESSAGE, ASKED, 0, 77]),
    st.just(0),
    st.just(0),
    st.just(0),
    st.integers(0, 2**64 - 1) | st.integers(0, 80) | st.just(MOST_MESSAGE + 1),
)
parts = (
    st.binary(max_size=40)
    | heads
    | st.just(MAGIC)
    | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4).map(message)
    | JSON.map(message)
)
# What recorded ends have said, as far as some byte, and then whatever comes.
traffic = st.builds(
    lambda said, end, more: said[:end] + b"".join(more),
    st.sampled_from(
        [b"", *(b"".join(each[i::2]) for each in SPOKEN.values() for i in (0, 1))]
    ),
    st.integers(0, 400) | st.none(),
    st.lists(parts, max_size=4),
)


def outcome(make, pieces):
    """Returns all that pieces lead to: the end, the events and what is sent."""
    handshake, events = make(), []

    def decide(it, event):
        events.append(event)
        if isinstance(event, GreetingReceived):
            it.ask({"list": True}, TOKEN)
        elif isinstance(event, RequestReceived):
            it.admit(TOKEN)
            it.answer({"environments": []})

    error = None
    try:
        run(handshake, pieces, decide)
    except ENDS_BADLY as raised:
        error = str(raised)
    return handshake, (handshake.state, error, events, handshake.data_to_send())


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClientHandshake(bytes(16)),
        lambda: ServerHandshake(bytes(16)),
        lambda: ServerHandshake(bytes(16), needs_token=True),
    ],
    ids=["a client", "a server", "a server with a token"],
)
@given(data=traffic, places=cuts)
def test_how_bytes_are_split_does_not_change_their_meaning(make, data, places):
    whole, expected = outcome(make, [data])
    pieces, got = outcome(make, cut(data, places))
    bytewise, also = outcome(make, [data[i : i + 1] for i in range(len(data))])

    assert expected == got == also
    for one in (whole, pieces, bytewise):
        # It asks for little, whatever the other end says.
        assert one.needed <= MOST_MESSAGE
        assert one.needed <= MOST_BEFORE or isinstance(one, ClientHandshake)
        if one.state in (HandshakeState.CLOSED, HandshakeState.OVER):
            assert one.needed == 0
            assert one.receive(b"more") is None


def test_a_client_does_not_send_an_oversized_request():
    client = ClientHandshake(bytes(16))
    client.receive(message({"protocol": [1, 0], "nonce": "", "token": False}))
    with pytest.raises(TooLongError, match="'open' must have at most 65536 bytes"):
        client.ask({"open": "x" * MOST_BEFORE})


def test_nothing_is_kept_after_a_refusal():
    server = ServerHandshake(bytes(16))
    with pytest.raises(Refusal):
        server.receive(b"GET / HTTP/1.1\r\n")
    server.receive(bytes(1000))
    assert (b"", 0) == (server.rest, server.needed)


@pytest.mark.parametrize("make", [ClientHandshake, ServerHandshake])
def test_an_end_that_leaves_early_is_an_error(make):
    with pytest.raises(ProtocolError, match="has closed the connection"):
        make(bytes(16)).receive_end()


EARLY = {
    "ask": lambda: ClientHandshake(bytes(16)).ask({"list": True}),
    "admit": lambda: ServerHandshake(bytes(16)).admit(None),
    "answer": lambda: ServerHandshake(bytes(16)).answer({}),
}


@pytest.mark.parametrize("call", EARLY.values(), ids=EARLY)
def test_an_owner_cannot_decide_before_a_request(call):
    with pytest.raises(RuntimeError, match="Handshake must not go from "):
        call()


@pytest.mark.parametrize(
    ("table", "end", "first"),
    [
        (CLIENT, ClientHandshake, HandshakeState.GREETING_HEAD),
        (SERVER, ServerHandshake, HandshakeState.MAGIC),
    ],
)
def test_each_state_is_reached_and_each_message_is_read(table, end, first):
    reached, new = {HandshakeState.CLOSED}, {first}
    while new:
        reached |= new
        new = set().union(*(table[state].then for state in new)) - reached
    assert set(table) == reached
    for state, row in table.items():
        assert (row.size != WAITS) == hasattr(end, f"_read_{state.value}")


# The session.

SESSIONS = [name for name in RECORDED if name.startswith("a session")]
ENVS, ROWS = range(2), 2


@pytest.mark.parametrize("name", SESSIONS)
def test_each_recorded_message_can_be_read_and_written_back(name):
    ends = {
        Side.CLIENT: ClientConversation(ROWS),
        Side.SERVER: ServerConversation(ENVS, ROWS),
    }
    for number, connection in enumerate(RECORDED[name]):
        if number:
            for end in ends.values():
                end.lose()
        spoken = [
            (side, *frame)
            for index, data in enumerate(connection)
            for side in [list(Side)[index % 2]]
            for frame in frames_in(data.removeprefix(MAGIC))
        ]
        for side, kind, body in spoken[4:]:
            sender = ends[side]
            (receiver,) = (end for end in ends.values() if end is not sender)
            if receiver.phase is Phase.ENDED:
                continue  # It has crossed the end on its way, and is not read.
            receiver.check_head(kind, len(body))
            if kind == MESSAGE:
                found = receiver.receive(body)
                if isinstance(found, AskMessage):
                    found = found._replace(arguments=to_plain(found.arguments, ""))
                assert body == sender.send(found)[1]
                assert sender.phase is receiver.phase
    assert Phase.ENDED is sender.phase


FAILURE = RemoteFailure.of(ValueError("no"))
SAID = {
    Side.CLIENT: [
        BindMessage([], 0),
        AskMessage(1, "seed", [0, 1], [3, 4]),
        PingMessage(2),
        CloseMessage(),
    ],
    Side.SERVER: [
        EndMessage("it is late"),
        EndMessage("it has ended", is_refusal=True),
        RaisedMessage([1], FAILURE),
        ReplyMessage(1, [None, FAILURE]),
        PongMessage(2, 3),
    ],
}


def may_send(end, said):
    rule = end.table[next(iter(said.plain()))]
    return end.phase in rule.phases


@given(data=st.data())
def test_each_end_accepts_any_message_that_the_other_may_send(data):
    """Messages may be on their way in both directions, and a link may be lost."""
    ends = {
        Side.CLIENT: ClientConversation(ROWS),
        Side.SERVER: ServerConversation(ENVS, ROWS),
    }
    sent = {side: [] for side in Side}
    has_layout = False
    for _ in range(data.draw(st.integers(1, 25))):
        side = data.draw(st.sampled_from(list(Side)))
        other = Side.SERVER if side is Side.CLIENT else Side.CLIENT
        action = data.draw(st.sampled_from(["send", "receive", "receive", "lose"]))
        if action == "send":
            possible = [each for each in SAID[side] if may_send(ends[side], each)]
            if possible:
                sent[side] += ends[side].send(data.draw(st.sampled_from(possible)))[1:]
        elif action == "receive":
            if sent[other] and ends[side].phase is not Phase.ENDED:
                found = ends[side].receive(sent[other].pop(0))
                has_layout = has_layout or isinstance(found, BindMessage)
        elif Phase.ENDED not in {end.phase for end in ends.values()}:
            for each in Side:
                sent[each].clear()
                ends[each].lose()
            answers = np.zeros(ROWS, np.uint32) if has_layout else None
            resumed = ends[Side.SERVER].send(ResumedMessage(answers, None))
            sent[Side.SERVER] += resumed[1:]


CONVERSATIONS = {
    "a client": lambda: ClientConversation(ROWS, "box"),
    "a server": lambda: ServerConversation(ENVS, ROWS, ["score"]),
    "an observer": lambda: ObserverConversation(Side.CLIENT),
}
bodies = (
    st.binary(max_size=40)
    | st.dictionaries(
        st.sampled_from(
            [
                *("bind", "ask", "method", "envs", "arguments", "ping", "close"),
                *("end", "refused", "raised", "failure", "resumed", "replied"),
                *("reply", "results", "pong", "clock", "info", "first_row"),
            ]
        ),
        JSON | st.lists(st.integers(-1, 3), max_size=3),
        max_size=4,
    ).map(lambda data: frame_of(data)[1])
    | st.sampled_from(
        [frame_of(each.plain())[1] for said in SAID.values() for each in said]
    )
)


@pytest.mark.parametrize("make", CONVERSATIONS.values(), ids=CONVERSATIONS)
@given(
    phase=st.sampled_from(Phase),
    frames=st.lists(
        st.tuples(st.sampled_from([MESSAGE, ASKED, ANSWERED, SHOWN, 0, 77]), bodies),
        max_size=6,
    ),
)
def test_any_frames_in_any_phase_are_read_or_refused(make, phase, frames):
    end = make()
    end.phase = phase
    for kind, body in frames:
        before = end.phase
        try:
            end.check_head(kind, len(body))
            if kind == MESSAGE:
                end.receive(body)
        except ProtocolError:
            assert before is end.phase


@pytest.mark.parametrize("make", CONVERSATIONS.values(), ids=CONVERSATIONS)
@pytest.mark.parametrize("phase", Phase)
def test_a_huge_frame_is_refused_before_memory_is_allocated(make, phase):
    end = make()
    end.phase = phase
    with pytest.raises(ProtocolError, match=r"must (have at most|not come)"):
        end.check_head(MESSAGE, MOST_MESSAGE + 1)


def test_the_error_names_a_message_at_the_wrong_time():
    server = ServerConversation(ENVS, ROWS)
    ask, bind = (frame_of(SAID[Side.CLIENT][i].plain())[1] for i in (1, 0))
    with pytest.raises(ProtocolError, match="'ask' must not come before 'bind'"):
        server.receive(ask)
    server.receive(bind)
    with pytest.raises(ProtocolError, match="'bind' must not come after 'bind'"):
        server.receive(bind)


def test_an_end_sends_nothing_that_the_other_would_refuse():
    client = ClientConversation(ROWS)
    with pytest.raises(RuntimeError, match="client must not send 'ask' before 'bind'"):
        client.send(AskMessage(1, "seed", [0], [3]))
    with pytest.raises(RuntimeError, match="client must not send 'pong'"):
        client.send(PongMessage(1, 2))
    client.send(BindMessage([], 0))
    with pytest.raises(TooLongError, match="'ask' must have at most 67108864 bytes"):
        client.send(AskMessage(1, "seed", [0], ["x" * MOST_MESSAGE]))


@pytest.mark.parametrize("table", [SESSION, OBSERVERS], ids=["session", "observers"])
def test_each_message_has_an_end_that_reads_it(table):
    readers = {
        Side.CLIENT: ServerConversation,
        Side.SERVER: ClientConversation if table is SESSION else ObserverConversation,
    }
    for name, rule in table.items():
        if isinstance(name, str):
            assert hasattr(readers[rule.sender], f"_read_{name}")


@given(
    numbers=st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=2),
    owing=st.lists(st.booleans(), min_size=2, max_size=2),
    asked=st.none() | st.integers(0, 9),
)
def test_a_resume_request_is_read_as_it_was_written(numbers, owing, asked):
    request = ResumeRequest("a", "b", np.array(numbers), np.array(owing), asked)
    plain = message_of(frame_of(request.plain())[1])
    read = ServerConversation(ENVS, ROWS).read_resume(plain)
    assert (numbers, owing) == (read.numbers.tolist(), read.owing.tolist())
    assert ("a", "b", asked) == (read.session, read.secret, read.asked)
