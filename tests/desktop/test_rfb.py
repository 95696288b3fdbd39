"""Desktops by the remote framebuffer protocol: our two ends, and bad peers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import DesktopClient, DesktopError, DesktopServer, PixelFormat
from envkit.desktop.encodings import (
    COPY,
    CURSOR,
    ENCODINGS,
    RAW,
    TIGHT,
    ZRLE,
    Codec,
)
from envkit.desktop.keys import KeyEvent, PointerEvent
from envkit.desktop.pixels import Rectangle
from envkit.desktop.protocol import answer, version_of, version_text
from envkit.errors import ClosedError
from tests.screens import draw, picture_of, read, served, shows
from tests.waiting import PATIENCE, until

BLUE_FIRST = PixelFormat(shifts=(16, 8, 0))
SMALL = PixelFormat(16, 16, False, (31, 63, 31), (11, 5, 0))


def test_nonstandard_versions_count_as_the_oldest():
    asked = [(3, 3), (3, 5), (3, 7), (3, 8), (3, 889), (5, 0)]
    spoken = [(3, 3), (3, 3), (3, 7), (3, 8), (3, 8), (3, 8)]
    assert spoken == [version_of(version_text(version)) for version in asked]


@pytest.mark.parametrize("text", [b"HTTP/1.1 400", b"RFB 002.002\n"])
def test_another_protocol_is_refused(text):
    with pytest.raises(DesktopError, match=r"^The (other end|version) must "):
        version_of(text)


# Our two ends.


@pytest.mark.parametrize("encoding", [*ENCODINGS])
def test_pictures_keys_and_the_pointer_reach_the_other_end(encoding):
    first = picture_of(1, 100, 70, 5, 3)
    second = first.copy()
    second[50:60, 80:90] = 255
    with served((100, 70), name="A ü", password="secret") as (server, events):
        server.show(first)
        with DesktopClient(
            *server.address, password="secret", encodings=[encoding]
        ) as client:
            assert ("A ü", (3, 8), (100, 70)) == (
                client.name,
                client.version,
                client.size,
            )
            assert shows(client, first)
            server.show(second)
            assert shows(client, second)

            client.press("ctrl", "a")
            client.pointer(3, 4, buttons=1)
            got = [events.get(timeout=PATIENCE) for _ in range(5)]
            assert [
                KeyEvent(0xFFE3, True),
                KeyEvent(97, True),
                KeyEvent(97, False),
                KeyEvent(0xFFE3, False),
                PointerEvent(3, 4, 1),
            ] == got
        # What was held is let go of when the viewer leaves.
        assert PointerEvent(3, 4, 0) == events.get(timeout=PATIENCE)
        assert until(lambda: server.viewers == 0) is True


def test_the_client_follows_changes_of_the_desktops_size():
    with DesktopServer((64, 48)) as server, DesktopClient(*server.address) as client:
        wide = picture_of(2, 200, 30, 9, 4)
        server.show(wide)
        assert shows(client, wide)
        small = picture_of(3, 5, 3, 2, 1)
        server.show(small)
        assert shows(client, small)


def test_a_client_sees_no_update_while_nothing_changes():
    picture = picture_of(4, 40, 30, 3, 2)
    with DesktopServer((40, 30)) as server, DesktopClient(*server.address) as client:
        server.show(picture)
        assert shows(client, picture)
        server.show(picture)
        assert client.update(timeout=0.05) is False
        client.refresh()
        assert client.update(timeout=PATIENCE) is True


def test_a_client_can_receive_the_pointer_and_a_new_name():
    with (
        DesktopServer((64, 48), name="first") as server,
        DesktopClient(*server.address, draw_cursor=False) as apart,
        DesktopClient(*server.address) as other,
    ):
        names = [apart.name, other.name]
        server.rename("second")
        for client in (apart, other):

            def has_name(client=client):
                client.update(timeout=0.1)
                return client.name == "second"

            assert until(has_name)
        cursor = apart.cursor

    assert ["first", "first"] == names
    assert (None, (14, 10, 4), (0, 0)) == (
        other.cursor,
        cursor.picture.shape,
        (cursor.x, cursor.y),
    )
    assert {0, 255} == set(cursor.picture[..., 3].flat)


def test_one_viewer_controls_and_the_others_observe():
    passwords = {"password": "control", "observer_password": "watch"}
    # None of them reads.
    served_with = served(**passwords, control_timeout=PATIENCE)
    with served_with as (server, events), contextlib.ExitStack() as stack:

        def join(password):
            return stack.enter_context(
                DesktopClient(*server.address, password=password)
            )

        watching, first, second = map(join, ["watch", "control", "control"])
        for number, viewer in enumerate([watching, second, first]):
            viewer.key(ord("0") + number, True)
        assert KeyEvent(ord("2"), True) == events.get(timeout=PATIENCE)

        first.close()  # so the next one controls, when the first has let go
        assert KeyEvent(ord("2"), False) == events.get(timeout=PATIENCE)
        watching.key("x", True)
        second.key("y", True)
        assert KeyEvent(ord("y"), True) == events.get(timeout=PATIENCE)
        assert events.empty()


REFUSED = {
    "a wrong password": ("wrong", "refuses the password: The password is wrong."),
    "no password": (None, "asks for a password. Pass password=."),
}


@pytest.mark.parametrize(("given_password", "text"), REFUSED.values(), ids=REFUSED)
def test_a_client_is_told_why_it_is_refused(given_password, text, message_of):
    with DesktopServer(password="secret") as server:
        host, port = server.address
        message = message_of(
            DesktopError, lambda: DesktopClient(host, port, password=given_password)
        )
        assert f"The VNC server at {host}:{port} {text}" == message
        DesktopClient(host, port, password="secret").close()


def test_clients_of_the_same_user_find_the_random_password(message_of):
    with DesktopServer() as server, DesktopServer() as other:
        password, observing = server.passwords
        assert (8, None) == (len(password), observing)
        assert password != other.passwords[0]
        DesktopClient(*server.address).close()
        DesktopClient("localhost", server.address[1], password=password).close()
        message = message_of(
            DesktopError, lambda: DesktopClient(*server.address, password="")
        )
        assert message.endswith("refuses the password: The password is wrong.")


def test_only_password_none_turns_the_password_off():
    with DesktopServer(password=None) as server:
        DesktopClient(*server.address, password=None).close()
        assert (None, None) == server.passwords


def test_a_client_without_a_server_says_so():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DesktopError, match=rf"^There is no VNC server at .*:{port}: "):
        DesktopClient("127.0.0.1", port)


def test_a_silent_server_is_given_up_in_time():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(DesktopError, match=r"must answer within 0\.1 seconds"),
    ):
        DesktopClient(*listener.getsockname(), timeout=0.1)


@pytest.mark.parametrize("buttons", [-1, 256])
def test_invalid_buttons_are_refused(buttons):
    with DesktopServer() as server, DesktopClient(*server.address) as client:
        with pytest.raises(ValueError, match=f"from 0 to 255, got {buttons}"):
            client.pointer(5, 5, buttons)
        with pytest.raises(TypeError, match=r"must be a KeyEvent or a PointerEvent"):
            client.send(("a", True))


def test_a_client_notices_a_lost_server():
    server = DesktopServer()
    with server, DesktopClient(*server.address) as client:
        client.update(PATIENCE)
        server.close()
        with pytest.raises(DesktopError, match=r"^The connection was "):
            until(lambda: client.update(timeout=PATIENCE) is None)
        with pytest.raises(ClosedError, match=r"^DesktopServer\.show\(\) was called"):
            server.show(np.zeros((2, 2, 3), np.uint8))


def test_a_viewer_that_does_not_finish_the_handshake_is_dropped():
    with (
        DesktopServer(handshake_timeout=0.05) as server,
        socket.create_connection(server.address) as link,
    ):
        link.settimeout(PATIENCE)
        assert version_text((3, 8)) == link.recv(12)
        assert b"" == link.recv(1)


def test_a_viewer_that_reads_nothing_delays_no_other():
    with (
        DesktopServer((256, 256)) as server,
        DesktopClient(*server.address) as client,
        DesktopClient(*server.address, encodings=["raw"]) as lazy,
    ):
        assert until(lambda: server.viewers == 2)
        for seed in range(20):
            picture = picture_of(seed, 256, 256, 4000, 1)
            server.show(picture)
            assert shows(client, picture)
        assert shows(lazy, picture)


@pytest.mark.parametrize("picture", [np.zeros((2, 2)), np.zeros((2, 2, 3)), None])
def test_show_refuses_anything_but_pictures(picture):
    with (
        DesktopServer() as server,
        pytest.raises(ValueError, match=r"^A picture must "),
    ):
        server.show(picture)


# Older versions, as viewers of their time speak them.


@pytest.mark.parametrize("version", [(3, 3), (3, 7), (3, 8)], ids=str)
@pytest.mark.parametrize("password", [None, "secret"])
def test_every_version_of_the_protocol_is_served(version, password):
    with DesktopServer((2, 1), password=password) as server:
        server.show(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
        with socket.create_connection(server.address, timeout=PATIENCE) as link:
            assert version_text((3, 8)) == read(link, 12)
            link.sendall(version_text(version))
            kind = 1 if password is None else 2
            if version == (3, 3):
                assert struct.pack(">I", kind) == read(link, 4)
            else:
                assert bytes([1, kind]) == read(link, 2)
                link.sendall(bytes([kind]))
            if password is not None:
                link.sendall(answer(read(link, 16), password))
            if password is not None or version == (3, 8):
                assert b"\0\0\0\0" == read(link, 4)
            link.sendall(b"\1")
            assert struct.pack(">HH", 2, 1) == read(link, 4)
            assert PixelFormat().pack() == read(link, 16)
            assert b"\0\0\0\6envkit" == read(link, 10)
            # The first request is for changes: of nothing, so it gets the whole.
            link.sendall(struct.pack(">BBHHHH", 3, 1, 0, 0, 2, 1))
            assert b"\0\0\0\1" == read(link, 4)
            assert struct.pack(">HHHHi", 0, 0, 2, 1, RAW) == read(link, 12)
            assert b"\1\2\3\0\4\5\6\0" == read(link, 8)


@pytest.mark.parametrize("version", [(3, 3), (3, 7), (3, 8)], ids=str)
@pytest.mark.parametrize("password", [None, "secret"])
def test_every_version_of_the_protocol_is_understood(version, password):
    """A server that speaks no newer one."""
    kind = 1 if password is None else 2
    challenge = bytes(range(16))

    def serve(listener):
        link, _ = listener.accept()
        with link:
            link.sendall(version_text(version))
            assert version_text(version) == read(link, 12)
            if version == (3, 3):
                link.sendall(struct.pack(">I", kind))
            else:
                link.sendall(bytes([2, 30, kind]))
                assert bytes([kind]) == read(link, 1)
            if password is not None:
                link.sendall(challenge)
                assert answer(challenge, password) == read(link, 16)
            if password is not None or version == (3, 8):
                link.sendall(b"\0\0\0\0")
            assert b"\1" == read(link, 1)
            other = BLUE_FIRST.pack()
            link.sendall(struct.pack(">HH", 1, 1) + other + b"\0\0\0\2ab")
            assert b"\0\0\0\0" + PixelFormat().pack() == read(link, 20)
            read(link, 4 + 4 * 8 + 10)
            # A map of colours, a bell and a text, which all mean nothing here.
            link.sendall(b"\1\0\0\0\0\1abcdef" + b"\2" + b"\3\0\0\0\0\0\0\3txt")
            header = struct.pack(">HHHHi", 0, 0, 1, 1, RAW)
            link.sendall(b"\0\0\0\1" + header + b"\7\10\11\0")
            while link.recv(100):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        errors = []

        def run():
            try:
                serve(listener)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            address = listener.getsockname()
            with DesktopClient(*address, password=password) as client:
                assert client.update(timeout=PATIENCE) is True
                assert [[[7, 8, 9]]] == client.frame.tolist()
        finally:
            thread.join(PATIENCE)
        assert [] == errors


def entered(server):
    """Connects as a viewer that may send what it likes."""
    link = socket.create_connection(server.address, timeout=PATIENCE)
    password, _ = server.passwords
    if password is None:
        link.sendall(version_text((3, 8)) + b"\1\1")
        assert len(read(link, 12 + 2)) == 14
    else:
        link.sendall(version_text((3, 8)) + b"\2")
        assert len(read(link, 12 + 2)) == 14
        link.sendall(answer(read(link, 16), password) + b"\1")
    assert len(read(link, 4 + 24 + 6)) == 34
    return link


def test_the_zlib_streams_continue_in_another_format():
    """As TigerVNC's viewer does when it finds the network slow."""
    picture = picture_of(3, 8, 4, 3, 2)
    codec = Codec(PixelFormat())
    with DesktopServer((8, 4)) as server, entered(server) as link:
        server.show(picture)
        link.sendall(struct.pack(">BxHi", 2, 1, ZRLE))
        for pixel_format in [BLUE_FIRST, SMALL, BLUE_FIRST]:
            codec.format = pixel_format
            link.sendall(b"\0\0\0\0" + pixel_format.pack())
            link.sendall(struct.pack(">BBHHHH", 3, 0, 0, 0, 8, 4))
            assert b"\0\0\0\1" == read(link, 4)
            assert struct.pack(">HHHHi", 0, 0, 8, 4, ZRLE) == read(link, 12)
            length = read(link, 4)
            data = length + read(link, int.from_bytes(length, "big"))
            got = np.zeros_like(picture)
            draw(codec, ZRLE, Rectangle(0, 0, 8, 4), got, data)
            assert np.array_equal(
                pixel_format.colours(pixel_format.numbers(picture)), got
            )


def test_a_viewer_that_lists_hextile_gets_another_encoding():
    """Which both ends may know, and ours does not."""
    picture = picture_of(3, 8, 4, 3, 2)
    with DesktopServer((8, 4)) as server, entered(server) as link:
        server.show(picture)
        for listed, sent in [((5, ZRLE, RAW), ZRLE), ((5,), RAW)]:
            count = len(listed)
            link.sendall(struct.pack(f">BxH{count}i", 2, count, *listed))
            link.sendall(struct.pack(">BBHHHH", 3, 0, 0, 0, 8, 4))
            assert b"\0\0\0\1" == read(link, 4)
            assert struct.pack(">HHHHi", 0, 0, 8, 4, sent) == read(link, 12)
            if sent == ZRLE:
                read(link, int.from_bytes(read(link, 4), "big"))
        assert PixelFormat().encode(picture) == read(link, 4 * 8 * 4)


def test_a_server_with_only_hextile_sends_raw_pixels():
    pixels = picture_of(3, 8, 8, 3, 2)
    update = b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 8, 8, RAW)
    with (
        answering(GREETING + INIT + update + PixelFormat().encode(pixels)) as address,
        DesktopClient(*address, encodings=["zrle"]) as client,
    ):
        assert shows(client, pixels)


def test_asking_for_hextile_names_its_replacements(message_of):
    assert (
        "The encoding 'hextile' has been removed: use 'zrle', 'tight' or 'zlib'; a "
        "server that has none of them sends raw pixels."
    ) == message_of(ValueError, lambda: DesktopClient("box", encodings=["hextile"]))


# Bad peers.


def test_a_viewer_that_holds_too_many_keys_is_dropped():
    with served() as (server, events), entered(server) as link:
        keys = [struct.pack(">BBxxI", 4, 1, key) for key in range(1, 300)]
        with contextlib.suppress(OSError):
            link.sendall(b"".join(keys))
        with contextlib.suppress(OSError):
            assert b"" == link.recv(1)
        pressed = [events.get(timeout=PATIENCE) for _ in range(512)]

    assert [True] * 256 + [False] * 256 == [event.down for event in pressed]
    assert {event.key for event in pressed} == set(range(1, 257))


def test_a_server_cannot_exhaust_a_clients_memory():
    """Sizes and lengths are checked before anything is kept for them."""
    huge = struct.pack(">HHHHi", 0, 0, 0xFFFF, 0xFFFF, -223)
    messages = {
        "a huge desktop": (huge, "must have at most 67108864 pixels, got 65535"),
        "a huge name": (
            struct.pack(">HHHHi", 0, 0, 0, 0, -307) + b"\xff" * 4,
            "must have at most 65536 bytes, got 4294967295",
        ),
        "a huge pointer": (
            struct.pack(">HHHHi", 0, 0, 0xFFFF, 0xFFFF, CURSOR),
            "A pointer must have at most 65536 pixels, got 65535 x 65535",
        ),
        "copies without an end": (
            b"".join([struct.pack(">HHHHi", 0, 0, 8, 8, COPY) + bytes(4)] * 20),
            "must draw each pixel at most 16 times, got 1088 pixels on",
        ),
        "sizes without an end": (
            struct.pack(">HHHHi", 0, 0, 8, 8, -223) * 32,
            "must change the size at most 16 times, got more",
        ),
        "a rectangle outside": (
            struct.pack(">HHHHi", 4, 4, 0xFFFF, 1, RAW),
            "must be inside the desktop of 8 x 8, got 65535 x 1 at 4, 4",
        ),
    }
    tracemalloc.start()
    try:
        for message, text in messages.values():
            with (
                pytest.raises(DesktopError, match=text),
                answering(GREETING + INIT + b"\0\0\0\x20" + message) as address,
                DesktopClient(*address, draw_cursor=False) as client,
            ):
                until(lambda client=client: client.update(timeout=PATIENCE) is None)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_many_updates_at_once_are_drawn_a_few_at_a_time():
    """So that a server which sends more than it is asked for holds up no caller."""
    update = b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 1, 1, RAW) + b"abcd"
    with (
        answering(GREETING + INIT + update * 1000) as address,
        DesktopClient(*address) as client,
    ):
        counts = []
        while client.updates < 1000:
            before = client.updates
            assert client.update(timeout=PATIENCE)
            counts.append(client.updates - before)

        assert max(counts) <= 64
        assert client.frame[0, 0].tolist() == [97, 98, 99]


def test_a_server_that_reads_nothing_is_given_up():
    with (
        answering(GREETING + INIT, reads=False) as address,
        DesktopClient(*address) as client,
    ):

        def flood():
            for _ in range(10**4):
                client.send(*[PointerEvent(1, 2)] * 10**4)

        with pytest.raises(DesktopError, match=r"must read what it is sent; \d+ b"):
            flood()


@contextlib.contextmanager
def answering(data, reads=True):
    """Listens, and sends the same bytes to a client, which may say what it likes."""
    over = threading.Event()

    def serve():
        with contextlib.suppress(OSError):
            link, _ = listener.accept()
            with link:
                link.sendall(data)
                while reads and link.recv(1 << 16):
                    pass
                over.wait(PATIENCE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        # The less the system keeps for it, the sooner it is full.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            over.set()
            thread.join(PATIENCE)


GREETING = version_text((3, 8)) + b"\1\1" + b"\0\0\0\0"
INIT = struct.pack(">HH", 8, 8) + PixelFormat().pack() + b"\0\0\0\0"
TILE = Codec(PixelFormat()).encode(ZRLE, np.zeros((2, 2, 3), np.uint8))
MESSAGES = [
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 1, 1, RAW) + b"abcd",
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 8, 8, -223),
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 2, 2, ZRLE) + TILE,
    b"\0\0\0\1" + struct.pack(">HHHHi", 1, 1, 2, 2, COPY) + b"\0\0\0\0",
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 0xFFFF, 0xFFFF, -223),
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 8, 8, TIGHT) + b"\x90\4abcd",
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 3, 3, TIGHT) + b"\x40\1\1abcdef" + b"abc",
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 2, 2, CURSOR) + bytes(18),
    b"\0\0\0\1" + struct.pack(">HHHHiI", 0, 0, 0, 0, -307, 2) + b"ab",
    b"\0\xff\xff\xff" + struct.pack(">HHHHi", 0, 0, 0, 0, -224),
    b"\1\0\0\0\0\0",
    b"\2",
    b"\3\0\0\0\0\0\0\1x",
]


@st.composite
def changed(draw, parts):
    """Joins messages, and changes some bytes of them."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(parts), max_size=6))))
    for _ in range(draw(st.integers(0, 4)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data) + draw(st.binary(max_size=20))


def test_bytes_from_a_server_can_at_worst_end_the_connection():
    data = b""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                link, _ = listener.accept()
                with link, contextlib.suppress(OSError):
                    link.sendall(data)
                    link.shutdown(socket.SHUT_WR)
                    while link.recv(1 << 16):
                        pass

    def watch():
        encodings = ["tight", "zrle", "copy"]
        with DesktopClient(
            *address, timeout=PATIENCE, encodings=encodings, draw_cursor=False
        ) as client:
            while client.update(timeout=PATIENCE):
                assert client.frame.size <= 3 << 26

    @given(st.booleans(), changed([GREETING, INIT, *MESSAGES]))
    def attack(enters, more):
        nonlocal data
        data = (GREETING + INIT if enters else b"") + more
        with pytest.raises(DesktopError):
            watch()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            attack()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


VIEWER = [
    version_text((3, 8)),
    version_text((3, 3)),
    b"\1",
    b"\0\0\0\0" + SMALL.pack(),
    struct.pack(">BxHii", 2, 2, ZRLE, -223),
    struct.pack(">BxHiiii", 2, 4, TIGHT, -25, CURSOR, -307),
    struct.pack(">BxHi", 2, 1, 5),
    struct.pack(">BBHHHH", 3, 0, 0, 0, 64, 64),
    struct.pack(">BBHHHH", 3, 1, 60, 60, 0xFFFF, 0xFFFF),
    struct.pack(">BBxxI", 4, 1, 0xFF51),
    struct.pack(">BBHH", 5, 1, 2, 3),
    b"\6\0\0\0\0\0\0\2ab",
    b"\6\0\0\0\xff\xff\xff\xff",
]


def test_bytes_from_a_viewer_can_at_worst_end_its_connection():
    with served((64, 64), max_viewers=4) as (server, _):
        server.show(picture_of(5, 64, 64, 20, 2))
        with DesktopClient(*server.address) as good:

            @given(st.booleans(), changed(VIEWER))
            def attack(enters, data):
                start = version_text((3, 8)) + b"\1\1" if enters else b""
                with (
                    socket.create_connection(server.address, PATIENCE) as link,
                    contextlib.suppress(OSError),
                ):
                    link.sendall(start + data)
                    link.shutdown(socket.SHUT_WR)
                    while link.recv(1 << 16):
                        pass

            attack()
            picture = picture_of(6, 64, 64, 20, 2)
            server.show(picture)
            assert shows(good, picture)
            assert server.ended() is None
            assert until(lambda: server.viewers == 1)
