"""The protocol without sockets: recorded traffic, both ends, and any bytes."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import DesktopError, KeyEvent, PixelFormat, PointerEvent, keysym
from envkit.desktop.encodings import CURSOR, DESKTOP_SIZE, NAME, Codec, read_name
from envkit.desktop.pixels import Rectangle
from envkit.desktop.protocol import (
    CLIENT,
    FROM_CLIENT,
    FROM_SERVER,
    LAST,
    SERVER,
    WAITS,
    Begun,
    ClientProtocol,
    EncodingsListed,
    Entered,
    FormatChosen,
    Greeted,
    PasswordNeeded,
    Proof,
    RectangleBegun,
    ServerProtocol,
    State,
    Updated,
    UpdateRequested,
    encodings_message,
    event_message,
    format_message,
    rectangle_header,
    request_message,
    update_header,
    version_text,
)
from tests.desktop.recorded_traffic import CLIENTS, RECORDED, SERVERS

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
    *(update_header(count) for count in (0, 1, 3, 0xFFFF)),
    *(
        rectangle_header(Rectangle(0, 0, 2, 3), encoding)
        for encoding in (0, 1, 6, 7, 16, DESKTOP_SIZE, NAME, LAST, CURSOR, 5)
    ),
    rectangle_header(Rectangle(0, 0, 0xFFFF, 0xFFFF), 0),
    *(b"\1\0\0\0\0\3" + bytes(18), b"\3\0\0\0\0\0\0\3abc"),
    *(format_message(PixelFormat()), encodings_message([16, -223]), b"\2\0\xff\xff"),
    request_message(Rectangle(0, 0, 9, 9), incremental=True),
    *(event_message(KeyEvent(97, True)), event_message(PointerEvent(1, 2, 4))),
    b"\6\0\0\0\xff\xff\xff\xff",
]
# What genuine ends have said, as far as some byte, and then whatever comes.
traffic = st.builds(
    lambda said, end, more: said[:end] + b"".join(more),
    st.sampled_from(
        [
            b"",
            *(said for each in RECORDED.values() for said in each[3:]),
            *CLIENTS.values(),
            *SERVERS.values(),
        ]
    ),
    st.integers(0, 300),
    st.lists(st.sampled_from(MESSAGES) | st.binary(max_size=40), max_size=9),
)


def cut(data, places):
    """Returns bytes in pieces, cut at some places."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def run(end, pieces, decide):
    """Reads pieces; returns all events, which `decide` answers."""
    events = []
    for piece in pieces:
        event = end.receive(piece)
        while event is not None:
            events.append(event)
            event = decide(end, event)
            if event is None:
                event = end.receive()
    return events


def drawing(picture, pixel_format=PixelFormat()):  # noqa: B008  # it is frozen
    """Returns what an owner does with rectangles: it draws them."""
    codec = Codec(pixel_format)

    def decoder(place, encoding):
        if encoding == NAME:
            yield from read_name()
        elif encoding == CURSOR:
            yield from codec.decode_cursor(place)
        elif encoding != DESKTOP_SIZE:
            place.check_inside(picture)
            yield from codec.decode(encoding, place, picture)

    return lambda end, event: end.decode(decoder(*event))


def deciding(challenge=CHALLENGE, password="secret", name="box"):
    """Returns what an owner does who knows a password."""
    draw = drawing(np.zeros((240, 320, 3), np.uint8))

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
        elif isinstance(event, RectangleBegun):
            return draw(handshake, event)
        return None

    return decide


# Genuine ends.


@pytest.mark.parametrize("recorded", ADMITTED.values(), ids=ADMITTED)
@given(places=st.lists(st.integers(0, 200), max_size=9), asks=st.booleans())
def test_the_client_sends_what_a_real_client_sent(recorded, places, asks):
    client = ClientProtocol(
        "it",
        password=None if asks else recorded.password,
        shared=bool(recorded.client[-1]),
    )
    pieces = cut(recorded.server, places)
    *asked, begun = run(client, pieces, deciding(password=recorded.password))

    assert [PasswordNeeded()] * (asks and recorded.password is not None) == asked
    assert (320, 240, recorded.name) == (begun.width, begun.height, begun.name)
    assert recorded.version == client.version
    assert recorded.client == client.data_to_send()
    assert (State.MESSAGE, b"") == (client.state, client.rest)


@pytest.mark.parametrize("recorded", ADMITTED.values(), ids=ADMITTED)
@given(places=st.lists(st.integers(0, 200), max_size=9))
def test_the_server_sends_what_a_real_server_sent(recorded, places):
    server = ServerProtocol()
    challenge = None
    if recorded.password is not None:
        start = 14 if recorded.version != (3, 3) else 16
        challenge = recorded.server[start : start + 16]
    # The format of pixels is the server's own.
    theirs = recorded.server[-20 - len(recorded.name) : -4 - len(recorded.name)]
    decide = deciding(challenge, recorded.password, recorded.name)
    events = run(server, cut(recorded.client, places), decide)
    said = server.data_to_send().replace(FORMAT, theirs)

    kinds = [Greeted, Entered] if challenge is None else [Greeted, Proof, Entered]
    assert kinds == [type(event) for event in events]
    assert Entered(shared=bool(recorded.client[-1])) == events[-1]
    assert version_text((3, 8)) + recorded.server[12:] == said
    assert (State.MESSAGE, b"") == (server.state, server.rest)


def test_real_servers_refuse_a_password_like_ours(message_of):
    recorded = RECORDED["TigerVNC 3.8 refusing a password"]
    client = ClientProtocol("It", password="wrong")
    with pytest.raises(DesktopError) as raised:
        client.receive(recorded.server)
    assert raised.value.refused
    assert "It refuses the password: Authentication failure" == str(raised.value)
    assert recorded.client == client.data_to_send()

    server = ServerProtocol()
    run(server, [recorded.client], deciding(challenge=recorded.server[14:30]))
    assert recorded.server == server.data_to_send()
    assert State.CLOSED is server.state


@pytest.mark.parametrize("name", CLIENTS)
@given(places=st.lists(st.integers(0, 200), max_size=9))
def test_the_server_understands_real_clients(name, places):
    server = ServerProtocol()
    events = run(server, cut(CLIENTS[name], places), deciding(challenge=None))

    said = [event for event in events if isinstance(event, KeyEvent | PointerEvent)]
    keys = [event for event in said if isinstance(event, KeyEvent)]
    buttons = [event.buttons for event in said if isinstance(event, PointerEvent)]
    assert [KeyEvent(keysym("a"), True), KeyEvent(keysym("a"), False)] == keys
    assert [1, 0] == [mask for mask, _ in itertools.groupby(buttons)][-2:]
    assert {Greeted, Entered, EncodingsListed, UpdateRequested} <= {
        type(event) for event in events
    }
    assert (State.MESSAGE, b"") == (server.state, server.rest)


@given(places=st.lists(st.integers(0, 200), max_size=9))
def test_real_servers_send_the_same_picture_in_each_encoding(places):
    pictures = {}
    for name, said in SERVERS.items():
        client = ClientProtocol("it")
        picture = np.zeros((24, 40, 3), np.uint8)
        draw = drawing(picture)

        def decide(end, event, draw=draw):
            return draw(end, event) if isinstance(event, RectangleBegun) else None

        events = run(client, cut(said, places), decide)
        assert Updated() in events
        assert (State.MESSAGE, b"") == (client.state, client.rest)
        pictures.setdefault(name.startswith("TightVNC"), []).append(picture)

    assert [2, 5] == sorted(map(len, pictures.values()))
    for first, *others in pictures.values():
        assert first.any()
        for other in others:
            assert np.array_equal(first, other)


# Both ends.


@pytest.mark.parametrize("version", [(3, 3), (3, 7), (3, 8)], ids=str)
@pytest.mark.parametrize("challenge", [None, CHALLENGE], ids=["open", "password"])
@given(name=st.text(max_size=30), shared=st.booleans())
def test_the_two_ends_understand_each_other(version, challenge, name, shared):
    server = ServerProtocol()
    client = ClientProtocol("it", password="secret", shared=shared)
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


SMALL = PixelFormat(16, 16, False, (31, 63, 31), (11, 5, 0))
SAID = {
    "a format": (format_message(SMALL), FormatChosen(SMALL)),
    "encodings": (encodings_message([16, -223]), EncodingsListed((16, -223))),
    "no encodings": (encodings_message([]), EncodingsListed(())),
    "a request": (
        request_message(Rectangle(1, 2, 3, 4), incremental=True),
        UpdateRequested(True, Rectangle(1, 2, 3, 4)),
    ),
    "a key": (event_message(KeyEvent(97, True)), KeyEvent(97, True)),
    "the pointer": (event_message(PointerEvent(5, 6, 4)), PointerEvent(5, 6, 4)),
}


@pytest.mark.parametrize(("message", "event"), SAID.values(), ids=SAID)
def test_each_client_message_becomes_a_server_event(message, event):
    server = ServerProtocol()
    run(server, [version_text((3, 8)) + b"\1\1"], deciding(challenge=None))
    skipped = b"\6\0\0\0" + struct.pack(">I", 3) + b"abc"

    assert [event] == run(server, [skipped, message], deciding())
    assert (State.MESSAGE, b"") == (server.state, server.rest)


@pytest.mark.parametrize("version", [(3, 3), (3, 7), (3, 8)], ids=str)
@pytest.mark.parametrize("challenge", [None, CHALLENGE], ids=["full", "password"])
def test_a_refusal_reaches_the_client(version, challenge):
    server, client = ServerProtocol(), ClientProtocol("It", password="wrong")
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
    "a client": lambda: ClientProtocol("it"),
    "a client with a password": lambda: ClientProtocol("it", password="secret"),
    "a server": ServerProtocol,
}


def outcome(make, pieces, challenge, password):
    """Returns all that pieces lead to: the end, the events and what is sent."""
    end, events, decide = make(), [], deciding(challenge, password)

    def note(it, event):
        events.append(event)
        return decide(it, event)

    error = None
    try:
        run(end, pieces, note)
    except DesktopError as raised:
        error = str(raised)
    return end, (end.state, error, events, end.data_to_send())


@pytest.mark.parametrize("make", ENDS.values(), ids=ENDS)
@given(
    data=traffic,
    places=st.lists(st.integers(0, 400), max_size=12),
    challenge=st.sampled_from([None, CHALLENGE]),
    password=st.sampled_from([None, "secret"]),
)
def test_bytes_split_anywhere_have_the_same_result_as_in_one_piece(
    make, data, places, challenge, password
):
    if make is ServerProtocol:
        password = "secret"
    single = [data[i : i + 1] for i in range(len(data))]
    whole, expected = outcome(make, [data], challenge, password)
    parts, got = outcome(make, cut(data, places), challenge, password)
    bytewise, also = outcome(make, single, challenge, password)

    assert expected == got == also
    for one in (whole, parts, bytewise):
        # It asks for little, whatever the other end says, and keeps no more than that.
        assert len(one.rest) <= 1 << 18
        if one.state is State.CLOSED:
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
def test_an_invalid_message_is_refused(data, text, message_of):
    assert text == message_of(DesktopError, lambda: ClientProtocol("it").receive(data))


def test_an_endless_reason_is_cut_off(message_of):
    client = ClientProtocol("It")
    client.receive(version_text((3, 8)) + b"\0" + b"\xff" * 4)
    text = message_of(DesktopError, lambda: client.receive(b"x" * 10**5))
    assert f"It refuses the connection: {'x' * 4096}" == text


# The tables.


@pytest.mark.parametrize(
    ("table", "messages", "end"),
    [(CLIENT, FROM_SERVER, ClientProtocol), (SERVER, FROM_CLIENT, ServerProtocol)],
)
def test_each_state_is_reached_and_each_message_is_read(table, messages, end):
    reached, new = {State.CLOSED}, {State.VERSION}
    while new:
        reached |= new
        new = set().union(*(table[state].then for state in new)) - reached
    assert set(table) == reached
    for state, row in table.items():
        reads = row.size != WAITS and state is not State.CLOSED
        assert reads == hasattr(end, f"_read_{state.value}")
    for message in messages.values():
        assert hasattr(end, f"_on_{message.name}")


EARLY = {
    "offer": lambda: ServerProtocol().offer(None),
    "accept": lambda: ServerProtocol().accept(),
    "refuse": lambda: ServerProtocol().refuse("no"),
    "begin": lambda: ServerProtocol().begin((1, 1), FORMAT, ""),
    "give_password": lambda: ClientProtocol("it").give_password("secret"),
}


@pytest.mark.parametrize("call", EARLY.values(), ids=EARLY)
def test_a_decision_before_its_event_is_refused(call):
    with pytest.raises(RuntimeError, match="Protocol must not go from version to "):
        call()
