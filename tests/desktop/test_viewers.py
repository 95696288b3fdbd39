"""Viewers of a desktop: who is admitted, who controls, and who ends nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from envkit._shared.guesses import Guesses
from envkit.desktop import DesktopClient, DesktopError, DesktopServer
from envkit.desktop.encodings import ROLE
from envkit.desktop.keys import KeyEvent, keysym
from envkit.desktop.protocol import answer, version_text
from tests.screens import picture_of, read, served, shows
from tests.waiting import PATIENCE, until

# On the way to a viewer: nothing, a version, the security type.
BEGINNINGS = {
    "silent": b"",
    "with a version": version_text((3, 8)),
    "before the last byte": version_text((3, 8)) + b"\1",
}
REQUEST = struct.pack(">BBHHHH", 3, 0, 0, 0, 0xFFFF, 0xFFFF)


def resetting(address):
    """Connects so that closing the connection resets it."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.settimeout(PATIENCE)
    link.connect(address)
    return link


def entered(address, make=socket.create_connection):
    """Connects as a viewer that may send what it likes, or nothing."""
    link = make(address)
    link.settimeout(PATIENCE)
    link.sendall(version_text((3, 8)) + b"\1\1")
    read(link, 12 + 2 + 4 + 24 + 6)
    return link


# Those that misbehave.


def test_connections_reset_before_the_greeting_do_no_harm():
    picture = picture_of(1, 64, 48, 5, 3)
    with DesktopServer((64, 48)) as server, DesktopClient(*server.address) as good:
        for _ in range(500):
            resetting(server.address).close()
        server.show(picture)
        assert shows(good, picture)
        with DesktopClient(*server.address) as late:
            assert shows(late, picture)
        assert server.ended() is None


def test_a_viewer_that_leaves_during_an_update_does_no_harm():
    large = np.random.default_rng(1).integers(0, 256, (600, 800, 3), np.uint8)
    with DesktopServer((800, 600), password=None) as server:
        for number in range(100):
            with entered(server.address, resetting) as link:
                large[0, 0] = number
                server.show(large)
                link.sendall(REQUEST)
        with DesktopClient(*server.address, encodings=["raw"]) as late:
            assert shows(late, large)
        assert server.ended() is None


COMMANDS = {
    "serve --vnc": ["serve", "Catch", "--vnc", "--port=0", "--password-file"],
    "serve --universe": ["serve", "Catch", "--universe", "--port=0", "--password-file"],
    "record --vnc": ["record", "Catch", "--vnc", "--port=0", "--hz=20", "-o"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_survive_connection_resets(command, tmp_path):
    if "--universe" in command:
        pytest.importorskip("websockets", reason="websockets is not installed")
    secret = tmp_path / "secret"
    serves = command[0] == "serve"
    if serves:
        secret.write_text("let me in\n", "ascii")
        secret.chmod(0o600)
    path = secret if serves else tmp_path / "recording"
    arguments = [sys.executable, "-m", "envkit", *command, str(path)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            found = None
            while found is None:
                line = process.stdout.readline()
                assert line, "the command has ended"
                found = re.search(r"vnc://(127\.0\.0\.1):(\d+)", line)
            address = found[1], int(found[2])
            for _ in range(300):
                resetting(address).close()
            password = "let me in" if serves else None
            with DesktopClient(*address, password=password, timeout=PATIENCE) as late:
                assert until(lambda: late.update(0.1) or late.frame.any())
            assert process.poll() is None
        finally:
            process.kill()


def test_an_error_in_on_event_ends_only_that_viewers_connection(caplog):
    def take(event):
        raise ZeroDivisionError("what this key does is broken")

    with (
        DesktopServer(on_event=take) as server,
        DesktopClient(*server.address) as first,
        DesktopClient(*server.address) as other,
    ):
        assert until(lambda: server.viewers == 2)
        first.press("a")
        with pytest.raises(DesktopError, match=r"^The connection was "):
            until(lambda: first.update(timeout=PATIENCE) is None)
        server.show(picture := picture_of(2, 640, 480, 5, 100))
        assert shows(other, picture)
        assert server.ended() is None
    assert "what this key does is broken" in caplog.text


# Who is admitted.


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
def test_connections_in_the_handshake_lock_nobody_out(beginning):
    with DesktopServer() as server, contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(server.address, PATIENCE))
            for _ in range(40)
        ]
        for link in strangers:
            with contextlib.suppress(OSError):  # It may be dropped already.
                link.sendall(beginning)
        with DesktopClient(*server.address) as late:
            assert until(lambda: late.update(timeout=0.1))
        # The oldest one has been dropped.
        with contextlib.suppress(ConnectionResetError):
            while strangers[0].recv(100):
                pass


def test_a_viewer_is_told_that_the_server_is_full(message_of):
    with (
        DesktopServer(max_viewers=1) as server,
        DesktopClient(*server.address),
    ):
        host, port = server.address
        message = message_of(DesktopError, lambda: DesktopClient(host, port))
    assert (
        f"The VNC server at {host}:{port} refuses the connection: There is 1 viewer "
        "already."
    ) == message


def test_viewers_without_a_size_wait_for_the_first_picture():
    picture = picture_of(3, 100, 70, 5, 3)
    sizes = []

    def join():
        with DesktopClient(*server.address, timeout=PATIENCE) as viewer:
            sizes.append(viewer.size)

    with (
        DesktopServer(None, password=None) as server,
        socket.create_connection(server.address, PATIENCE) as link,
    ):
        link.sendall(version_text((3, 8)) + b"\1\1")
        read(link, 12 + 2 + 4)
        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        server.show(picture)
        assert struct.pack(">HH", 100, 70) == read(link, 4)
        thread.join(PATIENCE)
    assert [(100, 70)] == sizes


# Guesses.


def test_each_wrong_password_delays_the_next_verdict():
    guesses = Guesses()
    # All at once, by as many connections.
    verdicts = [guesses.judged_at("10.0.0.1", 100.0, is_right=False) for _ in range(6)]
    assert [100.0, 101.0, 103.0, 107.0, 108.0, 108.0] == verdicts
    # One that is right waits like the others, so that waiting tells nothing.
    assert 108.0 == guesses.judged_at("10.0.0.1", 100.0, is_right=True)
    # Others do not wait for them, and in the end they are forgotten.
    assert 100.0 == guesses.judged_at("10.0.0.2", 100.0, is_right=False)
    assert 110.0 == guesses.judged_at("10.0.0.1", 110.0, is_right=False)
    assert 114.0 == guesses.judged_at("10.0.0.1", 110.0, is_right=False)
    assert 999.0 == guesses.judged_at("10.0.0.1", 999.0, is_right=False)
    assert 1000.0 == guesses.judged_at("10.0.0.1", 999.0, is_right=False)


SAME_MACHINE = [
    ("127.0.0.1", "127.3.2.1"),
    ("127.0.0.1", "::1"),
    ("2001:db8::1", "2001:db8::ffff:1"),
    ("fe80::1%eth0", "fe80::2"),
]


@pytest.mark.parametrize(("address", "another"), SAME_MACHINE)
def test_addresses_of_one_machine_share_their_delay(address, another):
    guesses = Guesses()
    guesses.judged_at(address, 100.0, is_right=False)
    assert 101.0 == guesses.judged_at(another, 100.0, is_right=False)


def test_only_a_few_guessing_addresses_are_remembered():
    guesses = Guesses()
    for number in range(5000):
        guesses.judged_at(f"10.0.{number >> 8}.{number & 255}", 1.0, is_right=False)
    assert 1024 == len(guesses._wrong)


def test_slowed_guesses_delay_no_viewer():
    pictures = [picture_of(seed, 64, 48, 9, 4) for seed in (1, 2)]
    with (
        DesktopServer((64, 48), password="secret") as server,
        DesktopClient(*server.address, password="secret") as good,
    ):
        began = time.monotonic()
        for picture in pictures:
            with socket.create_connection(server.address, PATIENCE) as link:
                link.sendall(version_text((3, 8)) + b"\2")
                link.sendall(answer(read(link, 30)[14:], "wrong"))
                server.show(picture)
                assert shows(good, picture)
                assert b"\0\0\0\1\0\0\0\x16The password is wrong." == read(link, 30)
                assert b"" == link.recv(1)
        # The second verdict comes a second after the first one.
        assert time.monotonic() - began >= 1.0
        DesktopClient(*server.address, password="secret").close()


def test_each_connection_and_refusal_is_one_line_of_the_log(caplog):
    caplog.set_level(logging.INFO, "envkit.serve")
    with DesktopServer(password="secret", observer_password="watch") as server:
        ports = []
        for password in ("secret", "watch"):
            with (
                DesktopClient(*server.address, password=password) as viewer,
                socket.socket(fileno=os.dup(viewer.fileno())) as link,
            ):
                ports.append(link.getsockname()[1])
            assert until(lambda: server.viewers == 0)
        with pytest.raises(DesktopError):
            DesktopClient(*server.address, password="wrong")
        with socket.create_connection(server.address, PATIENCE) as link:
            ports.append(link.getsockname()[1])
            link.sendall(b"GET / HTTP/\nA viewer")
            with contextlib.suppress(ConnectionResetError):
                while link.recv(100):
                    pass
    lines = [record.getMessage() for record in caplog.records]
    # It has reset the connection if the last picture was on its way.
    closed = re.compile(r"(?<= has left: )The connection was (closed|lost).*")
    first, second, stranger = ports
    assert [
        f"127.0.0.1:{first} has connected as a viewer, and controls",
        f"127.0.0.1:{first} has left: ...",
        f"127.0.0.1:{second} has connected as a viewer, and observes",
        f"127.0.0.1:{second} has left: ...",
    ] == [closed.sub("...", line) for line in lines[:4]]
    assert re.fullmatch(
        r"127\.0\.0\.1:\d+ was refused by vnc: The password is wrong\.", lines[4]
    )
    assert (
        f"127.0.0.1:{stranger} was refused by vnc: The other end must begin with "
        r"'RFB' and a version, got b'GET / HTTP/\n'. Is it a VNC server or viewer?"
    ) == lines[5]
    assert 6 == len(lines)


# Who controls.


def role_of(link):
    """Asks for a part of the picture that is empty, and returns the role that comes."""
    link.sendall(struct.pack(">BBHHHH", 3, 0, 0, 0, 0, 0))
    kind, count, controls, may_control, *empty, encoding = struct.unpack(
        ">BxHHHHHi", read(link, 16)
    )
    assert (0, 1, [0, 0], ROLE) == (kind, count, empty, encoding)
    return bool(controls), bool(may_control)


def test_an_adopted_viewer_needs_no_password_and_learns_its_role():
    with served((64, 48), password="secret") as (server, events):
        links = {}
        for name, controls in (("first", True), ("next", True), ("watching", False)):
            links[name], theirs = socket.socketpair()
            links[name].settimeout(PATIENCE)
            server.adopt(theirs, ("10.0.0.7", 1), controls=controls)
            links[name].sendall(version_text((3, 8)) + b"\1\1")
            read(links[name], 12 + 2 + 4 + 24 + 6)
            links[name].sendall(struct.pack(">BxHi", 2, 1, ROLE))
        roles = {name: role_of(link) for name, link in links.items()}
        assert {
            "first": (True, True),
            "next": (False, True),
            "watching": (False, False),
        } == roles
        for name in ("watching", "first"):
            links[name].sendall(struct.pack(">BBxxI", 4, 1, keysym("a")))
        assert KeyEvent(keysym("a"), True) == events.get(timeout=PATIENCE)
        links["first"].close()
        assert KeyEvent(keysym("a"), False) == events.get(timeout=PATIENCE)
        assert (True, True) == role_of(links["next"])
        assert events.empty()
        links["next"].close()
        links["watching"].close()


def test_a_closed_server_adopts_nobody():
    with served() as (server, _):
        pass
    link, theirs = socket.socketpair()
    with link:
        server.adopt(theirs, ("10.0.0.7", 1), controls=True)
        assert b"" == link.recv(1)


@pytest.mark.parametrize("moves", [False, True], ids=["still", "moving"])
def test_a_viewer_that_stops_reading_loses_control(moves):
    a, x = keysym("a"), keysym("x")
    large = np.random.default_rng(1).integers(0, 256, (600, 800, 3), np.uint8)
    with served((800, 600), control_timeout=0.5) as (server, events):
        server.show(large)
        with (
            entered(server.address) as first,
            DesktopClient(*server.address) as second,
        ):
            first.sendall(REQUEST + struct.pack(">BBxxI", 4, 1, a))
            assert KeyEvent(a, True) == events.get(timeout=PATIENCE)

            def has_controls():
                if moves:
                    large[0, 0] += 1
                    server.show(large)
                second.update(timeout=0.05)
                second.press("x")
                return not events.empty()

            assert until(has_controls)
            # What the first one has held goes up, as if it had left.
            assert KeyEvent(a, False) == events.get(timeout=PATIENCE)
            assert until(lambda: has_controls() and events.get() == KeyEvent(x, True))
            assert 2 == server.viewers


def test_a_viewer_that_floods_the_server_without_reading_loses_control():
    with served((800, 600), control_timeout=0.5) as (server, events):
        large = np.random.default_rng(1).integers(0, 256, (600, 800, 3), np.uint8)
        server.show(large)
        with (
            entered(server.address) as first,
            DesktopClient(*server.address) as second,
        ):
            first.setblocking(False)

            def has_controls():
                with contextlib.suppress(BlockingIOError):
                    first.sendall(REQUEST * 100)
                second.update(timeout=0.05)
                second.press("x")
                return not events.empty()

            assert until(has_controls)


def test_a_viewer_that_reads_keeps_control_while_others_wait():
    """A still picture is sent again in part: only who reads asks for more."""
    with (
        DesktopServer((64, 48), control_timeout=0.1) as server,
        DesktopClient(*server.address) as first,
        DesktopClient(*server.address) as second,
    ):
        server.show(picture := picture_of(1, 64, 48, 9, 4))
        assert shows(first, picture)
        before = first.updates

        def was_asked():
            first.update(timeout=0.01)
            second.update(timeout=0.01)
            return first.updates >= before + 3

        assert until(was_asked)
        assert np.array_equal(picture, first.frame)
