"""Desktops by the remote framebuffer protocol: our two ends, others', and bad peers."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import struct
import subprocess
import threading
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import DesktopClient, DesktopError, DesktopServer, PixelFormat
from envkit.desktop.keys import KeyEvent, PointerEvent
from envkit.desktop.pixels import COPY, RAW, ZLIB, ZRLE, Codec, Rectangle
from envkit.desktop.protocol import answer, version_of, version_text
from envkit.errors import ClosedError
from tests.waiting import PATIENCE, until

FORMATS = {
    "red first": PixelFormat(),
    "blue first": PixelFormat(shifts=(16, 8, 0)),
    "big endian": PixelFormat(big_endian=True, shifts=(16, 8, 0)),
    "high bytes": PixelFormat(shifts=(24, 16, 8)),
    "depth 32": PixelFormat(depth=32),
    "odd shifts": PixelFormat(shifts=(20, 10, 0)),
    "16 bits": PixelFormat(16, 16, False, (31, 63, 31), (11, 5, 0)),
    "16 bits, big endian": PixelFormat(16, 15, True, (31, 31, 31), (10, 5, 0)),
    "8 bits": PixelFormat(8, 8, False, (7, 7, 3), (0, 3, 6)),
}
ENCODINGS = {"raw": RAW, "zlib": ZLIB, "zrle": ZRLE}


def picture_of(seed, width, height, colours, run):
    """Draws stripes: runs of one colour out of a palette."""
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (colours, 3), np.uint8)
    indices = rng.integers(0, colours, width * height // run + 1)
    return palette[np.repeat(indices, run)[: width * height]].reshape(height, width, 3)


def drawn(codec, encoding, data, shape, place=None):
    """Decodes a rectangle, and returns the picture and what is left of the bytes."""
    picture = np.zeros(shape, np.uint8)
    place = place or Rectangle(0, 0, shape[1], shape[0])
    reading = codec.decode(encoding, place, picture)
    needed = next(reading)
    with contextlib.suppress(StopIteration):
        while True:
            part, data = data[:needed], data[needed:]
            needed = reading.send(part)
    return picture, data


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("pixel_format", FORMATS.values(), ids=FORMATS)
@given(
    seed=st.integers(0, 99),
    width=st.integers(1, 140),
    height=st.integers(1, 70),
    colours=st.sampled_from([1, 2, 3, 4, 5, 16, 17, 90, 127, 128, 4000]),
    run=st.sampled_from([1, 2, 7, 300, 700]),
)
def test_a_picture_arrives_as_its_format_can_show_it(
    encoding, pixel_format, seed, width, height, colours, run
):
    picture = picture_of(seed, width, height, colours, run)
    seen = pixel_format.colours(pixel_format.numbers(picture))
    sender, receiver = Codec(pixel_format), Codec(pixel_format)

    for _ in range(2):  # because streams go on from one rectangle to the next
        data = sender.encode(encoding, picture)
        got, left = drawn(receiver, encoding, data, picture.shape)
        assert b"" == left
        assert np.array_equal(seen, got)


@pytest.mark.parametrize("pixel_format", FORMATS.values(), ids=FORMATS)
def test_a_format_survives_the_wire_and_its_ends_are_black_and_white(pixel_format):
    assert pixel_format == PixelFormat.unpack(pixel_format.pack())
    ends = np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8)
    seen = pixel_format.decode(pixel_format.encode(ends), 2, 1)
    assert np.array_equal(ends, seen)


def test_a_copied_rectangle_is_taken_from_the_picture_as_it_was():
    picture = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    before = picture.copy()
    reading = Codec(PixelFormat()).decode(COPY, Rectangle(1, 1, 2, 2), picture)

    assert 4 == next(reading)
    with pytest.raises(StopIteration):
        reading.send(struct.pack(">HH", 0, 0))
    assert np.array_equal(before[:2, :2], picture[1:, 1:])


def rectangle(*parts):
    """Compresses parts into a rectangle of zlib or ZRLE."""
    data = zlib.compress(b"".join(parts))
    return struct.pack(">I", len(data)) + data


SHAPE = (2, 2, 3)
BROKEN = {
    "an unknown encoding": (99, b"", "The encoding of a rectangle must be one of"),
    "a copy from outside": (COPY, struct.pack(">HH", 1, 0), "must be inside the"),
    "a length of gigabytes": (ZLIB, b"\xff" * 4, "must have no more bytes than"),
    "no zlib at all": (ZLIB, struct.pack(">I", 3) + b"abc", "is damaged: Error -3"),
    "too few pixels": (ZLIB, b"\0\0\0\x08" + zlib.compress(b"")[:8], "must "),
    "a zip bomb": (ZRLE, rectangle(bytes(10**6)), "must unpack to no more than"),
    "tiles that end early": (
        ZRLE,
        struct.pack(">I", 0),
        "must have all its tiles, got 0 bytes",
    ),
}


@pytest.mark.parametrize(("encoding", "data", "text"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rectangle_is_refused(encoding, data, text, message_of):
    def decode():
        drawn(Codec(PixelFormat()), encoding, data, SHAPE)

    assert text in message_of(DesktopError, decode)


def tiles(*parts):
    """Compresses tiles, and goes on with the stream, as servers do."""
    packer = zlib.compressobj()
    data = packer.compress(b"".join(parts)) + packer.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">I", len(data)) + data


BROKEN_TILES = {
    "an unknown kind": (b"\x11", "must be of a known kind, got 17"),
    "a palette that another one is to be": (b"\x81", "must be of a known kind"),
    "a run past the tile": (b"\x80abc\x07", "must end within its tile, got 8"),
    "an endless run": (b"\x80abc" + b"\xff" * 40, "must end within its tile"),
    "a colour that is not there": (b"\x83" + b"abc" * 3 + b"\x03" * 4, "got number 3"),
    "a packed colour that is not there": (b"\x03" + b"abc" * 3 + b"\xff\xff", "got"),
    "more than there are": (b"\x01abc\x00", "must end with its last tile, got 1"),
}


@pytest.mark.parametrize(("tile", "text"), BROKEN_TILES.values(), ids=BROKEN_TILES)
def test_a_broken_tile_is_refused(tile, text, message_of):
    def decode():
        drawn(Codec(PixelFormat()), ZRLE, tiles(tile), SHAPE)

    assert text in message_of(DesktopError, decode)


def test_versions_between_those_of_the_standard_are_the_oldest():
    asked = [(3, 3), (3, 5), (3, 7), (3, 8), (3, 889), (5, 0)]
    spoken = [(3, 3), (3, 3), (3, 7), (3, 8), (3, 8), (3, 8)]
    assert spoken == [version_of(version_text(version)) for version in asked]


@pytest.mark.parametrize("text", [b"HTTP/1.1 400", b"RFB 002.002\n"])
def test_another_protocol_is_refused(text):
    with pytest.raises(DesktopError, match=r"^The (other end|version) must "):
        version_of(text)


# Our two ends.


@contextlib.contextmanager
def served(*args, **kwargs):
    """Serves a desktop, with its events in a queue."""
    events = queue.Queue()
    with DesktopServer(*args, on_event=events.put, **kwargs) as server:
        yield server, events


def shows(client, picture):
    """Returns whether a client comes to show a picture."""

    def is_there():
        client.update(timeout=0.1)
        return np.array_equal(picture, client.frame)

    return until(is_there)


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


def test_a_desktop_that_changes_its_size_takes_the_client_along():
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


def test_one_viewer_controls_and_the_others_observe():
    passwords = {"password": "control", "observer_password": "watch"}
    with served(**passwords) as (server, events), contextlib.ExitStack() as stack:

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


def test_a_client_without_a_server_says_so():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DesktopError, match=rf"^There is no VNC server at .*:{port}: "):
        DesktopClient("127.0.0.1", port)


def test_a_server_that_says_nothing_is_left_in_time():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(DesktopError, match=r"must answer within 0\.1 seconds"),
    ):
        DesktopClient(*listener.getsockname(), timeout=0.1)


def test_a_client_notices_that_the_server_is_gone():
    server = DesktopServer()
    with server, DesktopClient(*server.address) as client:
        client.update(PATIENCE)
        server.close()
        with pytest.raises(DesktopError, match=r"^The connection was "):
            until(lambda: client.update(timeout=PATIENCE) is None)
        with pytest.raises(ClosedError, match=r"^DesktopServer\.show\(\) was called"):
            server.show(np.zeros((2, 2, 3), np.uint8))


def test_a_viewer_that_does_not_finish_the_handshake_is_left():
    with (
        DesktopServer(handshake_timeout=0.05) as server,
        socket.create_connection(server.address) as link,
    ):
        link.settimeout(PATIENCE)
        assert version_text((3, 8)) == link.recv(12)
        assert b"" == link.recv(1)


def test_a_viewer_that_reads_nothing_holds_up_no_other():
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
def test_only_pictures_are_shown(picture):
    with (
        DesktopServer() as server,
        pytest.raises(ValueError, match=r"^A picture must "),
    ):
        server.show(picture)


# Older versions, as viewers of their time speak them.


def read(link, count):
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        assert part, "the server hung up"
        data += part
    return data


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
            other = FORMATS["blue first"].pack()
            link.sendall(struct.pack(">HH", 1, 1) + other + b"\0\0\0\2ab")
            assert b"\0\0\0\0" + PixelFormat().pack() == read(link, 20)
            read(link, 4 + 4 * 5 + 10)
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


# Bad peers.

GREETING = version_text((3, 8)) + b"\1\1" + b"\0\0\0\0"
INIT = struct.pack(">HH", 8, 8) + PixelFormat().pack() + b"\0\0\0\0"
MESSAGES = [
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 1, 1, RAW) + b"abcd",
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 8, 8, -223),
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 2, 2, ZRLE) + tiles(b"\1abc"),
    b"\0\0\0\1" + struct.pack(">HHHHi", 1, 1, 2, 2, COPY) + b"\0\0\0\0",
    b"\0\0\0\1" + struct.pack(">HHHHi", 0, 0, 0xFFFF, 0xFFFF, -223),
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


def test_no_bytes_of_a_server_do_more_than_end_the_connection():
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
        with DesktopClient(*address, timeout=PATIENCE) as client:
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
    b"\0\0\0\0" + FORMATS["16 bits"].pack(),
    struct.pack(">BxHii", 2, 2, ZRLE, -223),
    struct.pack(">BBHHHH", 3, 0, 0, 0, 64, 64),
    struct.pack(">BBHHHH", 3, 1, 60, 60, 0xFFFF, 0xFFFF),
    struct.pack(">BBxxI", 4, 1, 0xFF51),
    struct.pack(">BBHH", 5, 1, 2, 3),
    b"\6\0\0\0\0\0\0\2ab",
    b"\6\0\0\0\xff\xff\xff\xff",
]


def test_no_bytes_of_a_viewer_do_more_than_end_its_connection():
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


# The ends of others.

XVNC = shutil.which("Xvnc")
needs_xvnc = pytest.mark.skipif(XVNC is None, reason="Xvnc is not installed")


@contextlib.contextmanager
def xvnc(tmp_path, password=None):
    """Starts TigerVNC's server; yields where it listens and its display."""
    path = tmp_path / "vnc.sock"
    command = [XVNC, "-rfbunixpath", str(path), "-rfbport", "-1"]
    command += ["-geometry", "320x240", "-FrameRate", "60", "-wr"]
    if password is None:
        command += ["-SecurityTypes", "None"]
    else:
        secret = tmp_path / "passwd"
        # Such a file has the password, encrypted by a key that all of them share.
        key = bytes([23, 82, 107, 6, 35, 78, 88, 7]).decode("latin-1")
        secret.write_bytes(answer(password.encode().ljust(8, b"\0"), key))
        command += ["-SecurityTypes", "VncAuth", "-rfbauth", str(secret)]
    reader, writer = os.pipe()
    with open(reader, "rb") as told:
        with (tmp_path / "log").open("wb") as log:
            server = subprocess.Popen(
                [*command, "-displayfd", str(writer)], pass_fds=[writer], stderr=log
            )
        os.close(writer)
        try:
            display = told.readline().decode().strip()
            assert display, (tmp_path / "log").read_text()
            yield str(path), f":{display}"
        finally:
            server.terminate()
            server.wait()


@needs_xvnc
@pytest.mark.parametrize("password", [None, "secret"])
@pytest.mark.parametrize("encoding", [*ENCODINGS])
def test_tigervncs_server_is_understood(tmp_path, encoding, password, message_of):
    with xvnc(tmp_path, password) as (path, _):
        with DesktopClient(path, password=password, encodings=[encoding, "copy"]) as it:
            assert until(lambda: it.update(timeout=1)) is True
            assert (320, 240) == it.size
            assert until(lambda: it.update(timeout=0.1) or it.frame.max() == 255)
            assert 255 == it.frame.max()
            it.press("a")
            it.pointer(10, 10)
        if password is not None:
            message = message_of(
                DesktopError, lambda: DesktopClient(path, password="wrong")
            )
            assert "refuses the password: Authentication failure" in message


@needs_xvnc
@pytest.mark.skipif(
    shutil.which("xtigervncviewer") is None, reason="a VNC viewer is not installed"
)
def test_tigervncs_viewer_shows_our_desktop(tmp_path):
    """It draws into TigerVNC's server, where our client sees what it shows."""
    picture = np.zeros((60, 80, 3), np.uint8)
    picture[:] = (10, 200, 30)
    with xvnc(tmp_path) as (path, display), served((80, 60)) as (server, events):
        server.show(picture)
        host, port = server.address
        viewer = subprocess.Popen(
            ["xtigervncviewer", "-display", display, f"{host}::{port}"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            with DesktopClient(path) as screen:

                def greens():
                    screen.update(timeout=0.1)
                    return np.argwhere((screen.frame == (10, 200, 30)).all(axis=2))

                assert until(lambda: len(greens()) > 3000)
                y, x = greens().mean(axis=0).astype(int).tolist()
                screen.pointer(x, y)
                screen.pointer(x, y, buttons=1)
                screen.pointer(x, y)
                while not (event := events.get(timeout=PATIENCE)).buttons:
                    assert isinstance(event, PointerEvent)
                assert max(abs(event.x - 40), abs(event.y - 30)) < 8
        finally:
            viewer.terminate()
            viewer.wait()
