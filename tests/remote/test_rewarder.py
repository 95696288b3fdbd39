"""The rewarder without sockets: both ends, recorded traffic, and any text."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop.keys import KeyEvent, PointerEvent
from envkit.remote.rewarder import (
    CLIENT,
    JOYSTICK,
    MESSAGES,
    SERVER,
    Action,
    AxisEvent,
    ClientEnd,
    CloseReason,
    Describe,
    ErrorReply,
    Observation,
    Ping,
    Pong,
    Received,
    Reset,
    ResetReply,
    Reward,
    RewarderError,
    RewarderState,
    ServerEnd,
    Text,
    authorization,
    password_in,
)
from tests.remote import recorded_universe

ENDS = {
    "a client": ClientEnd,
    "a server": lambda: ServerEnd(observer=False),
    "a server for an observer": lambda: ServerEnd(observer=True),
}
EXAMPLES = [
    Describe(3, "Catch-v1", "running", 60.0),
    Reward(3, 1.5, True, {"discount": 0.0}),
    Text(3, "hi"),
    Observation(3, [1.0, 2.0]),
    ResetReply(3),
    ErrorReply("no"),
    Pong(),
    Reset("Catch-v1", 5, 30.0, 2),
    Reset(None, None, None, 0),
    Action("Catch-v1", [KeyEvent(65361, True), AxisEvent("JoystickAxisXEvent", 0.5)]),
    Action(None, [PointerEvent(1, 2, 3)]),
    Ping(),
]

GENUINE = {"client": recorded_universe.CLIENT, "server": recorded_universe.SERVER}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**30), 2**63, 1e308, math.inf, math.nan])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1.2", "-1", "9" * 20, "\ud800", "KeyEvent", "PointerEvent"]),
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(st.text(max_size=6), values, max_size=4)
    ),
    max_leaves=8,
)
KEYS = sorted({field.key for row in MESSAGES.values() for field in row.fields})
HEADERS = ["episode_id", "message_id", "parent_message_id", "sent_at"]


def some(keys):
    return st.dictionaries(st.sampled_from(keys), json_values, max_size=5)


envelopes = st.fixed_dictionaries(
    {"method": st.sampled_from([*MESSAGES, "v0.env.fly"]) | json_values},
    optional={"body": some(KEYS) | json_values, "headers": some(HEADERS) | json_values},
)
texts = (
    st.sampled_from([text for said in GENUINE.values() for _, text in said])
    | st.builds(json.dumps, envelopes | json_values)
    | st.text(max_size=30)
    | st.binary(max_size=10)
    | st.sampled_from(["[" * 5000, '{"a":' * 5000, "9" * 5000])
)


def size_of(thing):
    """Returns how many things an end keeps."""
    return sum(len(it) for it in vars(thing).values() if isinstance(it, list | dict))


@pytest.mark.parametrize("make", ENDS.values(), ids=ENDS)
@given(st.lists(st.tuples(texts, st.booleans()), max_size=12))
def test_any_text_in_any_state_is_a_message_or_a_rewarder_error(make, said):
    end = make()
    for number, (text, may_act) in enumerate(said):
        before = end.state
        also = {} if isinstance(end, ClientEnd) else {"may_act": may_act}
        try:
            received = end.receive(text, float(number), **also)
        except RewarderError as error:
            str(error).encode()
            if isinstance(end, ServerEnd):
                assert end.state is before
                end.close(str(error), float(number))
            assert RewarderState.CLOSED is end.state
        else:
            table = CLIENT if isinstance(end, ClientEnd) else SERVER
            assert end.state is before or end.state in table[before].values()
            if received is not None:
                assert type(received.message) in table[before]
        for answer in end.texts_to_send():
            assert json.loads(answer)["method"] in MESSAGES
        if end.state is RewarderState.CLOSED:
            assert end.receive(text, 0.0) is None
            assert [] == end.texts_to_send()


@given(
    st.sampled_from([*JOYSTICK, "KeyEvent", "PointerEvent", "Jump"]),
    st.lists(json_values, max_size=4),
)
def test_any_event_is_read_or_its_action_is_refused(kind, fields):
    text = json.dumps(
        {"method": "v0.agent.action", "body": {"action": [[kind, *fields]]}}
    )
    server = ServerEnd(observer=False)
    received = server.receive(text, 0.0)
    if received is None:
        ((method, reason),) = told(server)
        assert "v0.reply.error" == method
        assert reason.startswith("action must be a list of events: a key and ")
        return
    (event,) = received.message.action
    if isinstance(event, PointerEvent):
        assert all(0 <= number <= 0xFFFF for number in event)
    elif isinstance(event, AxisEvent):
        assert -1 <= event.amount <= 1
    else:
        assert isinstance(event, KeyEvent)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "[1]", "{}", "1e999"])
def test_a_malformed_message_number_is_left_out_of_the_answer(number):
    server = ServerEnd(observer=False)
    text = '{"method": "v0.control.ping", "headers": {"message_id": NUMBER}}'
    text = text.replace("NUMBER", number)
    assert server.receive(text, 0.0) is None
    (answer,) = server.texts_to_send()
    assert json.loads(answer)["headers"]["parent_message_id"] is None


@pytest.mark.parametrize("name", GENUINE)
def test_both_ends_understand_all_messages_of_universes_ends(name):
    """Our client what a server says, and our server what a client says."""
    client, server = ClientEnd(), ServerEnd(observer=False)
    kinds = {"client": [], "server": []}
    for number, (end, text) in enumerate(GENUINE[name]):
        ours = client if end == "server" else server
        received = ours.receive(text, float(number))
        method = json.loads(text)["method"]
        kinds[end].append(method)
        if method == "v0.control.ping":
            assert (None, ["v0.reply.control.ping"]) == (received, methods(server))
        else:
            assert MESSAGES[method].kind is type(received.message)
        assert [] == server.texts_to_send()
    assert RewarderState.ACTIVE is server.state
    assert {"v0.control.ping", "v0.env.reset"} == set(kinds["client"])
    assert {
        "v0.env.describe",
        "v0.env.reward",
        "v0.env.observation",
        "v0.reply.env.reset",
        "v0.reply.control.ping",
    } <= set(kinds["server"])


def methods(end):
    return [json.loads(text)["method"] for text in end.texts_to_send()]


@pytest.mark.parametrize("text", recorded_universe.REFUSALS)
def test_the_reason_of_universes_server_for_hanging_up_is_read(text, message_of):
    message = message_of(RewarderError, lambda: ClientEnd().receive(text, 0.0))
    assert json.loads(text)["body"]["message"] == message


def test_envkits_client_sends_the_messages_of_universes_client():
    """The same JSON, but for the times."""
    client = ClientEnd()
    for end, text in recorded_universe.CLIENT:
        if end == "server":
            continue
        said = json.loads(text)
        body, headers = said["body"], said["headers"]
        if said["method"] == "v0.control.ping":
            message = Ping()
        else:
            known = int(headers["episode_id"])
            message = Reset(body["env_id"], body["seed"], body["fps"], known)
        client.send(message, headers["sent_at"])
        assert said == json.loads(*client.texts_to_send())


def test_envkits_server_answers_with_the_fields_of_universes_server():
    """The same names of the same kinds, in the body and in the headers."""
    server, client = ServerEnd(observer=False), ClientEnd()
    for number, (end, text) in enumerate(recorded_universe.SERVER):
        if end == "client":
            continue
        genuine = json.loads(text)
        message = client.receive(text, float(number)).message
        asked = Received(Ping(), genuine["headers"].get("parent_message_id"))
        if "parent_message_id" in genuine["headers"]:
            server.reply(asked, message, 1.0)
        else:
            server.send(message, 1.0)
        ours = json.loads(*server.texts_to_send())
        assert genuine["method"] == ours["method"]
        assert genuine["body"] == ours["body"]
        assert set(genuine["headers"]) <= set(ours["headers"])
        for header in ("episode_id", "parent_message_id"):
            assert genuine["headers"].get(header) == ours["headers"].get(header)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda it: type(it).__name__)
def test_the_two_ends_understand_each_other(message):
    client, server = ClientEnd(), ServerEnd(observer=False)
    if type(message) in CLIENT[RewarderState.OPEN]:
        server.send(message, 7.0, parent_message_id=4)
        received = client.receive(*server.texts_to_send(), 8.0)
        assert (4, message) == (received.parent, received.message)
    else:
        number = client.send(message, 7.0)
        received = server.receive(*client.texts_to_send(), 8.0)
        if isinstance(message, Ping):
            pong = client.receive(*server.texts_to_send(), 9.0)
            assert (number, Pong()) == (pong.parent, pong.message)
            return
        assert message == received.message
    assert (0, 7.0, 8.0) == (received.number, received.sent_at, received.at)


def test_each_message_has_an_example_and_each_state_is_reached():
    assert {row.kind for row in MESSAGES.values()} == {
        *map(type, EXAMPLES),
        CloseReason,
    }
    for table, first in [
        (SERVER, {RewarderState.SILENT, RewarderState.OBSERVER}),
        (CLIENT, {RewarderState.OPEN}),
    ]:
        reached = set(first)
        for _ in table:
            reached |= {then for state in reached for then in table[state].values()}
        # A broken message closes from any state.
        assert set(table) == reached | {RewarderState.CLOSED}


def test_an_end_sends_no_message_of_the_other():
    for end, message in [(ClientEnd(), Pong()), (ServerEnd(observer=False), Ping())]:
        with pytest.raises(RuntimeError, match=r"^A (client|server) must not send v0"):
            end.send(message, 0.0)


def told(end):
    """Returns the methods and bodies of what an end sends."""
    said = map(json.loads, end.texts_to_send())
    return [(it["method"], it["body"].get("message", "")) for it in said]


def test_only_one_client_may_act_and_the_next_is_refused():
    server = ServerEnd(observer=False)
    with pytest.raises(RewarderError) as raised:
        server.receive('{"method": "v0.control.ping"}', 0.0, may_act=False)
    assert str(raised.value).startswith("There is already an active client")
    server.close("go", 0.0)
    assert [("v0.connection.close", "go")] == told(server)


def test_an_observers_pings_are_answered_and_its_requests_refused():
    server = ServerEnd(observer=True)
    for method in ("v0.control.ping", "v0.env.reset", "v0.fly"):
        assert (
            server.receive(json.dumps({"method": method}), 0.0, may_act=False) is None
        )
    assert [
        ("v0.reply.control.ping", ""),
        ("v0.reply.error", "An observer must not send 'v0.env.reset'."),
        ("v0.reply.error", "An observer must not send 'v0.fly'."),
    ] == told(server)


BROKEN = {
    "no episode": (
        "v0.env.text",
        {},
        {},
        "episode_id must be a number as text, got None.",
    ),
    "a reward that is text": (
        "v0.env.reward",
        {"reward": "1"},
        {"episode_id": "1"},
        "reward must be a number, got '1'.",
    ),
    "a reward without an end": (
        "v0.env.reward",
        {"reward": math.inf},
        {"episode_id": "1"},
        "reward must be a number, got inf.",
    ),
    "a reward that is too long": (
        "v0.env.reward",
        {"info": {"profile": "x" * 300_000}},
        {"episode_id": "1"},
        "v0.env.reward must have at most 262144 characters, got 3000",
    ),
    "a server that hangs up": (
        "v0.connection.close",
        {"message": "time is \x1b over"},
        {},
        r"time is \u001b over",
    ),
}


@pytest.mark.parametrize(
    ("method", "body", "headers", "text"), BROKEN.values(), ids=BROKEN
)
def test_a_broken_message_of_a_server_ends_the_connection(
    method, body, headers, text, message_of
):
    client = ClientEnd()
    given = json.dumps({"method": method, "body": body, "headers": headers})
    message = message_of(RewarderError, lambda: client.receive(given, 0.0))
    assert message.startswith(text)
    assert RewarderState.CLOSED is client.state


def test_a_repeated_message_counts_once():
    server, client = ServerEnd(observer=False), ClientEnd()
    server.send(Reward(1, 1.0, False, {}), 5.0)
    (text,) = server.texts_to_send()
    assert Reward(1, 1.0, False, {}) == client.receive(text, 6.0).message
    assert client.receive(text, 7.0) is None
    # Without a time it may be another one with a number that means nothing.
    plain = json.dumps(
        {"method": "v0.env.text", "headers": {"episode_id": "1", "message_id": 0}}
    )
    assert all(client.receive(plain, 8.0) for _ in range(2))


def test_the_memory_of_an_end_does_not_grow_with_the_messages():
    server, client = ServerEnd(observer=False), ClientEnd()
    sizes = set()
    for number in range(2000):
        server.send(Text(1, "hi"), float(number))
        client.receive(*server.texts_to_send(), float(number))
        sizes.add(size_of(client))
    assert max(sizes) <= 256


@given(st.text(st.characters(codec="utf-8", exclude_characters=":"), max_size=20))
def test_a_password_is_read_as_it_was_written(password):
    assert password == password_in(authorization(password))


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic ?", "Basic /w==", "Digest x"]
)
def test_a_header_without_a_password_has_none(header):
    assert not password_in(header)
