"""The handshake without sockets: recorded traffic, both ends, and any bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import DesktopError, PixelFormat
from envkit.desktop.protocol import (
    CLIENT,
    SERVER,
    WAITS,
    Begun,
    ClientHandshake,
    Entered,
    Greeted,
    PasswordNeeded,
    Proof,
    ServerHandshake,
    State,
    version_text,
)
from tests.desktop.recorded_handshakes import RECORDED

FORMAT = PixelFormat().pack()
CHALLENGE = bytes(range(16))
ADMITTED = {name: each for name, each in RECORDED.items() if each.name}
# Bytes that are messages of either end, so that what is drawn gets far.
MESSAGES = [
    *map(version_text, [(3, 3), (3, 7), (3, 8)]),
    *(bytes(4), bytes(3) + b"\1", bytes(3) + b"\2", b"\xff" * 4),
    *(b"\0", b"\1", b"\2", b"\1\1", b"\1\2", b"\3\1\2\x1e"),
    CHALLENGE,
    b"\1\x40\0\xf0" + FORMAT + bytes(3) + b"\2ab",
    b"\1\x40\0\xf0" + FORMAT + b"\xff" * 4,
]
# What genuine ends have said, as far as some byte, and then whatever comes.
traffic = st.builds(
    lambda said, end, more: said[:end] + b"".join(more),
    st.sampled_from([b"", *(said for each in RECORDED.values() for said in each[3:])]),
    st.integers(0, 80),
    st.lists(st.sampled_from(MESSAGES) | st.binary(max_size=40), max_size=9),
)


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
            event = handshake.receive(b"")
    return events


def deciding(challenge=CHALLENGE, password="secret", name="box"):
    """Returns what an owner does who knows a password."""

    def decide(handshake, event):
        if isinstance(event, PasswordNeeded):
            handshake.give_password(password)
        elif isinstance(event, Greeted):
            handshake.offer(challenge)
        elif isinstance(event, Proof) and event.knows(password):
            handshake.accept()
        elif isinstance(event, Proof):
            handshake.refuse("Authentication failure")
        elif isinstance(event, Entered):
            handshake.begin((320, 240), FORMAT, name)

    return decide


# Genuine ends.


@pytest.mark.parametrize("recorded", ADMITTED.values(), ids=ADMITTED)
@given(places=st.lists(st.integers(0, 200), max_size=9), asks=st.booleans())
def test_a_client_says_to_a_genuine_server_what_a_genuine_client_has_said(
    recorded, places, asks
):
    client = ClientHandshake(
        "it",
        password=None if asks else recorded.password,
        shared=bool(recorded.client[-1]),
    )
    pieces = cut(recorded.server + b"more", places)
    *asked, begun = run(client, pieces, deciding(password=recorded.password))

    assert [PasswordNeeded()] * (asks and recorded.password is not None) == asked
    assert (320, 240, recorded.name) == (begun.width, begun.height, begun.name)
    assert recorded.version == client.version
    assert recorded.client == client.data_to_send()
    assert (State.OVER, 0, b"more") == (client.state, client.needed, client.rest)


@pytest.mark.parametrize("recorded", ADMITTED.values(), ids=ADMITTED)
@given(places=st.lists(st.integers(0, 200), max_size=9))
def test_a_server_says_to_a_genuine_client_what_a_genuine_server_has_said(
    recorded, places
):
    server = ServerHandshake()
    challenge = None
    if recorded.password is not None:
        start = 14 if recorded.version != (3, 3) else 16
        challenge = recorded.server[start : start + 16]
    # The format of pixels is the server's own.
    theirs = recorded.server[-20 - len(recorded.name) : -4 - len(recorded.name)]
    decide = deciding(challenge, recorded.password, recorded.name)
    events = run(server, cut(recorded.client + b"more", places), decide)
    said = server.data_to_send().replace(FORMAT, theirs)

    kinds = [Greeted, Entered] if challenge is None else [Greeted, Proof, Entered]
    assert kinds == [type(event) for event in events]
    assert Entered(shared=bool(recorded.client[-1])) == events[-1]
    assert version_text((3, 8)) + recorded.server[12:] == said
    assert (State.OVER, b"more") == (server.state, server.rest)


def test_a_password_is_refused_by_a_genuine_server_as_by_ours(message_of):
    recorded = RECORDED["TigerVNC 3.8 refusing a password"]
    client = ClientHandshake("It", password="wrong")
    with pytest.raises(DesktopError) as raised:
        client.receive(recorded.server)
    assert raised.value.refused
    assert "It refuses the password: Authentication failure" == str(raised.value)
    assert recorded.client == client.data_to_send()

    server = ServerHandshake()
    run(server, [recorded.client], deciding(challenge=recorded.server[14:30]))
    assert recorded.server == server.data_to_send()
    assert State.CLOSED is server.state


# Both ends.


@pytest.mark.parametrize("version", [(3, 3), (3, 7), (3, 8)], ids=str)
@pytest.mark.parametrize("challenge", [None, CHALLENGE], ids=["open", "password"])
@given(name=st.text(max_size=30), shared=st.booleans())
def test_the_two_ends_understand_each_other(version, challenge, name, shared):
    server = ServerHandshake()
    client = ClientHandshake("it", password="secret", shared=shared)
    server.data_to_send()
    decide = deciding(challenge, name=name)
    begun = run(client, [version_text(version)], decide)
    entered = []
    while not begun:
        entered += run(server, [client.data_to_send()], decide)
        begun += run(client, [server.data_to_send()], decide)

    assert [Begun(320, 240, FORMAT, name)] == begun
    assert Entered(shared) == entered[-1]
    assert version == client.version == server.version


@pytest.mark.parametrize("version", [(3, 3), (3, 7), (3, 8)], ids=str)
@pytest.mark.parametrize("challenge", [None, CHALLENGE], ids=["full", "password"])
def test_a_refusal_reaches_the_client(version, challenge):
    server, client = ServerHandshake(), ClientHandshake("It", password="wrong")
    server.data_to_send()
    client.receive(version_text(version))
    reason = "The password is wrong."

    def decide(it, event):
        if isinstance(event, Proof):
            it.refuse(reason)
        elif challenge is None:
            it.refuse("It is full.")
        else:
            it.offer(challenge)

    def talk():
        while True:
            run(server, [client.data_to_send()], decide)
            client.receive(server.data_to_send())

    with pytest.raises(DesktopError) as raised:
        talk()

    expected = f"It refuses the password: {reason}"
    if challenge is None:
        expected = "It refuses the connection: It is full."
    elif version != (3, 8):
        expected = "It refuses the password."  # It is told no reason.
    assert (expected, True) == (str(raised.value), raised.value.refused)
    assert server.receive(b"whatever follows") is None
    assert (b"", b"") == (server.data_to_send(), server.rest)


# Any bytes.

ENDS = {
    "a client": lambda: ClientHandshake("it"),
    "a client with a password": lambda: ClientHandshake("it", password="secret"),
    "a server": ServerHandshake,
}


def outcome(make, pieces, decide):
    """Returns all that pieces lead to: the end, the events and what is sent."""
    handshake, events = make(), []

    def note(it, event):
        events.append(event)
        decide(it, event)

    error = None
    try:
        run(handshake, pieces, note)
    except DesktopError as raised:
        error = str(raised)
    return handshake, (handshake.state, error, events, handshake.data_to_send())


@pytest.mark.parametrize("make", ENDS.values(), ids=ENDS)
@given(
    data=traffic,
    places=st.lists(st.integers(0, 400), max_size=12),
    challenge=st.sampled_from([None, CHALLENGE]),
    password=st.sampled_from([None, "secret"]),
)
def test_any_bytes_cut_anywhere_end_as_they_do_in_one_piece(
    make, data, places, challenge, password
):
    if make is ServerHandshake:
        password = "secret"
    decide = deciding(challenge, password)
    whole, expected = outcome(make, [data], decide)
    parts, got = outcome(make, cut(data, places), decide)
    bytewise, also = outcome(make, [data[i : i + 1] for i in range(len(data))], decide)

    assert expected == got == also
    for one in (whole, parts, bytewise):
        # It asks for little, whatever the other end says, and keeps no more than that.
        assert one.needed <= 1 << 16
        assert one.state is State.OVER or len(one.rest) <= 1 << 16
        if one.state in (State.CLOSED, State.OVER):
            assert one.receive(b"") is None


HUGE = {
    "a name": (
        version_text((3, 8)) + b"\1\1" + bytes(4) + b"\0\2\0\2" + FORMAT + b"\xff" * 4,
        "The name of a desktop must have at most 65536 bytes, got 4294967295.",
    ),
    "another protocol": (
        b"HTTP/1.1 400",
        "The other end must begin with 'RFB' and a version, got b'HTTP/1.1 400'. Is it "
        "a VNC server or viewer?",
    ),
    "no way to authenticate": (
        version_text((3, 8)) + b"\2\5\6",
        "it must ask for a VNC password or nothing; it has the security types 5, 6.",
    ),
}


@pytest.mark.parametrize(("data", "text"), HUGE.values(), ids=HUGE)
def test_a_message_that_must_not_be_is_refused(data, text, message_of):
    assert text == message_of(DesktopError, lambda: ClientHandshake("it").receive(data))


def test_a_reason_without_an_end_is_read_as_far_as_a_sentence_goes(message_of):
    client = ClientHandshake("It")
    client.receive(version_text((3, 8)) + b"\0" + b"\xff" * 4)
    assert 4096 == client.needed
    text = message_of(DesktopError, lambda: client.receive(b"x" * 10**5))
    assert f"It refuses the connection: {'x' * 4096}" == text


# The tables.


@pytest.mark.parametrize(
    ("table", "end"), [(CLIENT, ClientHandshake), (SERVER, ServerHandshake)]
)
def test_each_state_is_reached_and_each_message_is_read(table, end):
    reached, new = {State.CLOSED}, {State.VERSION}
    while new:
        reached |= new
        new = set().union(*(table[state].then for state in new)) - reached
    assert set(table) == reached
    for state, row in table.items():
        reads = row.size != WAITS and state is not State.CLOSED
        assert reads == hasattr(end, f"_read_{state.value}")


EARLY = {
    "offer": lambda: ServerHandshake().offer(None),
    "accept": lambda: ServerHandshake().accept(),
    "refuse": lambda: ServerHandshake().refuse("no"),
    "begin": lambda: ServerHandshake().begin((1, 1), FORMAT, ""),
    "give_password": lambda: ClientHandshake("it").give_password("secret"),
}


@pytest.mark.parametrize("call", EARLY.values(), ids=EARLY)
def test_an_owner_cannot_decide_before_it_is_asked(call):
    with pytest.raises(RuntimeError, match="Handshake must not go from version to "):
        call()
