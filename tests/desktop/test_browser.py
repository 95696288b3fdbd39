"""The page for browsers: who gets in, and what its WebSocket carries."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import socket
import ssl
import struct
import sys
import time

import numpy as np
import pytest

from envkit.desktop import BrowserServer, DesktopClient, DesktopServer, KeyEvent, keysym
from envkit.desktop.encodings import RAW, ROLE
from envkit.desktop.protocol import version_text
from envkit.remote import vnc
from envkit.remote.offers import Menu, Offer, ServeOptions
from tests.remote.serving import certificate_in
from tests.screens import picture_of, served, shows
from tests.waiting import PATIENCE, until

pytest.importorskip("websockets", reason="websockets is not installed")

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

A = keysym("a")


class Viewer:
    """What the page does, as far as a test needs it."""

    def __init__(self, socket):
        self.socket = socket
        self._data = b""

    def read(self, count):
        while len(self._data) < count:
            self._data += self.socket.recv(timeout=PATIENCE)
        data, self._data = self._data[:count], self._data[count:]
        return data

    def enter(self):
        """Does the handshake; returns the size and the name."""
        assert b"RFB 003.008\n" == self.read(12)
        self.socket.send(version_text((3, 8)))
        assert b"\1\1" == self.read(2)  # no password, which was said already
        self.socket.send(b"\1")
        assert b"\0\0\0\0" == self.read(4)
        self.socket.send(b"\1")
        width, height, length = struct.unpack(">HH16xI", self.read(24))
        return (width, height), self.read(length).decode()

    def ask(self, width, height, *, incremental=True):
        self.socket.send(struct.pack(">BBHHHH", 3, incremental, 0, 0, width, height))

    def key(self, key, down):
        self.socket.send(struct.pack(">BBxxI", 4, down, key))

    def update(self, picture=None):
        """Reads an update, draws it, and returns the encodings that came."""
        _, count = struct.unpack(">BxH", self.read(4))
        found = []
        for _ in range(count):
            x, y, width, height, encoding = struct.unpack(">HHHHi", self.read(12))
            found.append(encoding)
            if encoding == RAW:
                pixels = np.frombuffer(self.read(4 * width * height), np.uint8)
                pixels = pixels.reshape(height, width, 4)[..., :3]
                picture[y : y + height, x : x + width] = pixels
        return found


@contextlib.contextmanager
def viewing(browsers, password, name="", **options):
    """Opens the WebSocket of a page."""
    address = re.sub(r"^http", "ws", browsers.page(name))
    with connect(address, proxy=None, open_timeout=PATIENCE, **options) as socket:
        socket.send(password)
        yield Viewer(socket)


@contextlib.contextmanager
def shown(size=(64, 48), **options):
    """Serves a desktop and its page; yields both and the queue of events."""
    with (
        served(size, **options) as (desktop, events),
        BrowserServer({"pong": desktop}) as browsers,
    ):
        yield desktop, browsers, events


def got(browsers, path, **headers):
    """Returns the answer to a request of HTTP."""
    link = http.client.HTTPConnection(*browsers.address, timeout=PATIENCE)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(link):
        link.request("GET", path, headers=named)
        response = link.getresponse()
        return response.status, response.headers, response.read().decode()


def reason_of(viewer):
    """Waits until a connection is closed; returns the code and the reason."""
    try:
        while True:
            viewer.socket.recv(timeout=PATIENCE)
    except ConnectionClosed as error:
        return error.rcvd.code, error.rcvd.reason


# The pages.


def test_the_page_allows_only_its_own_code():
    with shown() as (_, browsers, _):
        status, headers, text = got(browsers, "/")
    assert 200 == status
    assert "no-store" == headers["Cache-Control"]
    policy = dict(
        rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; ")
    )
    assert "'none'" == policy["default-src"] == policy["frame-ancestors"]
    assert policy["script-src"].startswith("'sha256-")
    # Nothing is loaded from elsewhere.
    assert [] == re.findall(r"(?:src|href)=\"(?!data:)", text)


def test_the_names_and_hints_of_pages_are_text():
    with (
        DesktopServer() as desktop,
        BrowserServer({"<b>HINT": desktop}, hints={"<b>HINT": "a & TITLE"}) as browsers,
    ):
        _, _, text = got(browsers, "/")
    assert "<title>&lt;b&gt;HINT</title>" in text
    assert '<p id="hint">a &amp; TITLE</p>' in text


def test_several_desktops_have_one_page_each_and_an_index():
    with (
        served((64, 48)) as (first, _),
        served((32, 24)) as (second, _),
        BrowserServer({"ale:Pong": first, "a/b c": second}) as browsers,
    ):
        _, _, text = got(browsers, "/")
        paths = re.findall(r'href="(/[^"]*)"', text)
        assert ["/ale:Pong", "/a%2Fb%20c"] == paths
        assert [200, 200, 404] == [got(browsers, path)[0] for path in [*paths, "/c"]]
        for name, size in (("ale:Pong", (64, 48)), ("a/b c", (32, 24))):
            with viewing(browsers, "", name) as viewer:
                assert (size, "envkit") == viewer.enter()


def test_the_health_page_needs_no_password():
    with shown(password="secret") as (_, browsers, _):
        status, _, text = got(browsers, "/healthz")
    assert (200, '{"status": "ok", "protocol": "vnc"}\n') == (status, text)


# Who gets in.


def test_every_character_of_the_password_counts():
    with shown(password="long enough") as (_, browsers, _):
        with viewing(browsers, "long eno") as viewer:
            assert (1008, "The password is wrong.") == reason_of(viewer)
        with viewing(browsers, "long enough") as viewer:
            assert ((64, 48), "envkit") == viewer.enter()


def test_guesses_in_browsers_and_in_viewers_slow_each_other_down():
    with shown(password="secret") as (desktop, browsers, _):
        began = time.monotonic()
        desktop.judged_at("127.0.0.1", is_right=False)
        with viewing(browsers, "wrong") as viewer:
            assert (1008, "The password is wrong.") == reason_of(viewer)
        assert time.monotonic() - began >= 0.5


def test_observers_watch_and_control_nothing():
    picture = picture_of(1, 64, 48, 5, 3)
    with shown(password="secret", observer_password="watch") as (
        desktop,
        browsers,
        events,
    ):
        desktop.show(picture)
        with (
            viewing(browsers, "watch") as watching,
            viewing(browsers, "secret") as playing,
        ):
            for viewer in (watching, playing):
                viewer.enter()
                viewer.socket.send(struct.pack(">BxHi", 2, 1, ROLE))
            watching.key(keysym("b"), True)
            watching.ask(64, 48, incremental=False)
            seen = np.zeros_like(picture)
            watching.update(seen)
            assert np.array_equal(picture, seen)
            playing.key(A, True)
            assert KeyEvent(A, True) == events.get(timeout=PATIENCE)


FOREIGN = {
    "a page of another site": {"origin": "https://evil.example"},
    "a page of another server here": {"origin": "http://127.0.0.1:3000"},
    "a page without an origin": {"origin": "null"},
    "a page whose name was bound to our address": {
        "host": "evil.example",
        "origin": "http://evil.example",
    },
}


@pytest.mark.parametrize("password", ["secret", None])
@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_pages_of_other_sites_are_refused(headers, password):
    host, origin = headers.get("host"), headers["origin"]
    with shown(password=password) as (desktop, browsers, _):
        address = re.sub(r"^http", "ws", browsers.url)
        if host is not None:
            address = f"ws://{host}/"
        sock = socket.create_connection(browsers.address, PATIENCE)
        with (
            pytest.raises(InvalidStatus) as caught,
            connect(address, sock=sock, origin=origin),
        ):
            pass
        assert 403 == caught.value.response.status_code
        assert 0 == desktop.viewers


def test_foreign_host_names_are_refused():
    with shown() as (_, browsers, _):
        assert 403 == got(browsers, "/", Host="evil.example")[0]
        # A link in a page of others is no harm.
        assert 200 == got(browsers, "/", Sec_Fetch_Site="cross-site")[0]


def test_the_servers_own_page_is_accepted():
    with (
        shown() as (_, browsers, _),
        viewing(browsers, "", origin=browsers.url.rstrip("/")) as viewer,
    ):
        viewer.enter()


def test_each_refusal_is_one_line_of_the_log(caplog):
    caplog.set_level(logging.INFO, "envkit.serve")
    with shown(password="secret") as (_, browsers, _):
        with viewing(browsers, "wrong") as viewer:
            reason_of(viewer)
        with (
            contextlib.suppress(InvalidStatus),
            viewing(browsers, "", origin="https://evil.example"),
        ):
            pass
        with socket.create_connection(browsers.address, PATIENCE) as link:
            link.sendall(b"RFB 003.008\n")
            assert link.recv(100).startswith(b"HTTP/1.1 400 Bad Request")
        got(browsers, "/")
        # Browsers connect on suspicion, and leave.
        with socket.create_connection(browsers.address, PATIENCE) as link:
            link.shutdown(socket.SHUT_WR)
            assert b"" == link.recv(1)
    lines = [record.getMessage().partition(" ")[2] for record in caplog.records]
    assert [
        "was refused by vnc: the password is wrong",
        "was refused by vnc: The header Origin is 'https://evil.example': only the "
        "page of this server may connect.",
    ] == lines[:2]
    assert lines[2].startswith("was refused by vnc: it has sent no request")
    assert 3 == len(lines)


def test_browsers_count_as_viewers():
    with (
        shown(max_viewers=1) as (desktop, browsers, _),
        DesktopClient(*desktop.address),
        viewing(browsers, "") as viewer,
    ):
        assert until(lambda: desktop.viewers == 1)
        assert b"RFB 003.008\n" == viewer.read(12)
        viewer.socket.send(version_text((3, 8)))
        reason = b"There is 1 viewer already."
        assert b"\0" + struct.pack(">I", len(reason)) + reason == viewer.read(31)


def test_silent_connections_lock_nobody_out():
    with shown() as (_, browsers, _), contextlib.ExitStack() as stack:
        for number in range(100):
            link = socket.create_connection(browsers.address, PATIENCE)
            stack.enter_context(link).sendall(b"GET" if number % 2 else b"")
        with viewing(browsers, "") as viewer:
            viewer.enter()


OPENING = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
MASK = bytes(4)  # which changes nothing
BROKEN = {
    "half a request": b"GET / HTTP/1.1\r\nHo",
    "a long request": b"GET / HTTP/1.1\r\nHost: " + b"a" * 100_000,
    "another method": b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "no request": bytes(range(256)),
    "a TLS handshake": b"\x16\3\1\2\0\1\0\1\xfc",
    "a WebSocket of another version": OPENING.replace(b": 13", b": 12"),
    "no password": OPENING,
    "a farewell before the password": OPENING + b"\x88\x82" + MASK + b"\3\xe9",
    "a ping before the password": OPENING + b"\x89\x80" + MASK,
    "no text": OPENING + b"\x82\x80" + MASK,
    "no mask": OPENING + b"\x81\0",
    "a frame that is unknown": OPENING + b"\xf3\x80" + MASK,
    "a message of 2**60 bytes": OPENING + b"\x81\xff\x10" + bytes(7) + MASK,
    "a viewer of another protocol": OPENING + (b"\x81\x80" + MASK) * 2,
    "no keys of a keyboard": OPENING
    + b"\x81\x80"
    + MASK
    + b"\x82\x8e"
    + MASK
    + b"GET / HTTP/1.1",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_connection_that_breaks_the_protocol_ends_alone(data):
    with shown() as (desktop, browsers, _), viewing(browsers, "") as good:
        good.enter()
        with socket.create_connection(browsers.address, PATIENCE) as link:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while link.recv(1 << 16):
                    pass
        assert until(lambda: desktop.viewers == 1)
        good.ask(64, 48, incremental=False)
        good.update(np.zeros((48, 64, 3), np.uint8))


def test_a_browser_that_has_vanished_is_dropped(monkeypatch):
    monkeypatch.setattr("envkit.desktop.browser._SILENCE", 0.1)
    with (
        shown() as (desktop, browsers, _),
        viewing(browsers, "") as good,
        socket.create_connection(browsers.address, PATIENCE) as silent,
    ):
        good.enter()
        silent.sendall(OPENING + b"\x81\x80" + MASK)
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(1 << 16):
                pass
        good.ask(64, 48, incremental=False)
        good.update(np.zeros((48, 64, 3), np.uint8))
        assert 1 == desktop.viewers


def test_a_browser_that_only_pings_and_reads_nothing_is_dropped():
    with shown() as (desktop, browsers, _), socket.socket() as link:
        # Little fits into it, so the answers are soon the server's to keep.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        link.connect(browsers.address)
        link.sendall(OPENING + b"\x81\x80" + MASK)
        link.sendall(b"\x82\x8e" + MASK + version_text((3, 8)) + b"\1\1")
        assert until(lambda: desktop.viewers == 1)
        with contextlib.suppress(OSError):
            while True:
                link.sendall((b"\x89\xfd" + MASK + bytes(125)) * 1000)
        assert until(lambda: desktop.viewers == 0)


# What is shown, and what is pressed.


def test_data_sent_with_the_password_is_not_lost():
    with (
        shown() as (_, browsers, events),
        socket.create_connection(browsers.address, PATIENCE) as link,
    ):
        sent = version_text((3, 8)) + b"\1\1" + struct.pack(">BBxxI", 4, 1, A)
        password = b"\x81\x80" + MASK
        frame = b"\x82" + bytes([0x80 | len(sent)]) + MASK + sent
        link.sendall(OPENING + password + frame)
        assert KeyEvent(A, True) == events.get(timeout=PATIENCE)


def test_a_viewer_and_a_browser_see_the_same_picture_and_one_controls():
    first, second = (picture_of(seed, 64, 48, 9, 4) for seed in (1, 2))
    with (
        shown() as (desktop, browsers, events),
        DesktopClient(*desktop.address) as viewer,
        viewing(browsers, "") as browser,
    ):
        browser.enter()
        desktop.show(first)
        browser.ask(64, 48, incremental=False)
        seen = np.zeros_like(first)
        browser.update(seen)
        assert shows(viewer, first)
        browser.ask(64, 48)
        desktop.show(second)
        while not np.array_equal(second, seen):
            browser.update(seen)
            browser.ask(64, 48)
        browser.key(A, True)  # The other one has been there longer.
        viewer.press("b")
        assert KeyEvent(keysym("b"), True) == events.get(timeout=PATIENCE)


@pytest.mark.parametrize("leave", ["close", "cut"])
def test_a_browser_that_leaves_releases_its_keys(leave):
    with shown() as (_, browsers, events), viewing(browsers, "") as viewer:
        viewer.enter()
        viewer.key(A, True)
        viewer.socket.send(struct.pack(">BBHH", 5, 1, 7, 8))
        assert KeyEvent(A, True) == events.get(timeout=PATIENCE)
        assert (7, 8, 1) == events.get(timeout=PATIENCE)
        if leave == "close":
            viewer.socket.close()
        else:
            viewer.socket.socket.shutdown(socket.SHUT_RDWR)
        assert KeyEvent(A, False) == events.get(timeout=PATIENCE)
        assert (7, 8, 0) == events.get(timeout=PATIENCE)


def test_a_browser_that_reads_slowly_skips_pictures():
    large = np.random.default_rng(1).integers(0, 256, (600, 800, 3), np.uint8)
    with shown((800, 600)) as (desktop, browsers, _), viewing(browsers, "") as viewer:
        viewer.enter()
        viewer.socket.send(struct.pack(">BxHi", 2, 1, RAW))
        seen = np.zeros_like(large)
        viewer.ask(800, 600, incremental=False)
        for number in range(100):
            large[0, 0] = number
            desktop.show(large)
        # One was on its way all the time, and the next one is the newest.
        viewer.update(seen)
        viewer.ask(800, 600, incremental=False)
        viewer.update(seen)
        assert np.array_equal(large, seen)


def test_browsers_are_told_why_the_server_ends():
    with shown() as (_, browsers, _), viewing(browsers, "") as viewer:
        viewer.enter()
        browsers.close("the server is stopping")
        assert (1001, "the server is stopping") == reason_of(viewer)


def test_browsers_are_told_that_the_desktop_has_ended():
    with shown() as (desktop, browsers, _), viewing(browsers, "") as viewer:
        viewer.enter()
        desktop.close()
        assert (1001, "The environment has ended.") == reason_of(viewer)


def test_a_dropped_browser_is_not_told_that_the_desktop_has_ended():
    with shown() as (_, browsers, _), viewing(browsers, "") as viewer:
        viewer.enter()
        viewer.socket.send(b"\xff")  # no message of the protocol
        assert (1001, "The server has ended the connection.") == reason_of(viewer)


def test_a_message_that_is_too_long_ends_only_its_connection():
    with (
        shown() as (desktop, browsers, _),
        viewing(browsers, "") as good,
        viewing(browsers, "") as bad,
    ):
        good.enter()
        bad.enter()
        with contextlib.suppress(ConnectionClosed):
            bad.socket.send(bytes(1 << 20))
        assert 1009 == reason_of(bad)[0]
        good.ask(64, 48, incremental=False)
        good.update(np.zeros((48, 64, 3), np.uint8))
        assert until(lambda: desktop.viewers == 1)


# TLS, and `serve --vnc`.


def context_in(folder):
    """Makes a certificate; returns what a server has of it, and a client."""
    cert, key = certificate_in(folder)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    return tls, ssl.create_default_context(cafile=cert)


def test_with_a_certificate_the_page_is_encrypted_and_accepts_any_host(tmp_path):
    picture = np.random.default_rng(1).integers(0, 256, (600, 800, 3), np.uint8)
    tls, trusted = context_in(tmp_path)
    trusted.check_hostname = False
    with (
        served((800, 600)) as (desktop, events),
        BrowserServer({"pong": desktop}, tls=tls) as browsers,
    ):
        desktop.show(picture)
        assert browsers.url.startswith("https://")
        sock = socket.create_connection(browsers.address, PATIENCE)
        with connect("wss://game.example/", sock=sock, ssl=trusted) as link:
            viewer = Viewer(link)
            link.send("")
            viewer.enter()
            viewer.key(A, True)
            assert KeyEvent(A, True) == events.get(timeout=PATIENCE)
            seen = np.zeros_like(picture)
            viewer.ask(800, 600, incremental=False)
            viewer.update(seen)
            assert np.array_equal(picture, seen)
        assert 400 == got(browsers, "/")[0]


@contextlib.contextmanager
def shop_of(*targets, **options):
    menu = Menu([Offer(target) for target in targets])
    shop = vnc.serve(menu, ServeOptions(**{"port": 0, "hz": 0, **options}))
    try:
        yield shop
    finally:
        shop.close("the test is over")


def test_serve_prints_addresses_that_can_be_clicked():
    with shop_of("Catch", "Catch") as shop:
        assert re.search(
            r"\nvnc: http://127\.0\.0\.1:\d+/ shows all of them in browsers$", shop.line
        )
        urls = re.findall(r"in a browser: (http\S+)", shop.invitation)
        passwords = [one.person.password for one in shop.shown]
        base = shop.browsers.url
        assert [
            f"{base}Catch#{passwords[0]}",
            f"{base}Catch%202#{passwords[1]}",
        ] == urls
        assert [200, 200] == [
            got(shop.browsers, path)[0] for path in ("/Catch", "/Catch%202")
        ]


def test_with_a_certificate_other_machines_reach_only_the_page(tmp_path):
    tls, _ = context_in(tmp_path)
    with shop_of("Catch", host="0.0.0.0", tls=tls) as shop:
        assert "127.0.0.1" == shop.shown[0].person.address[0]
        assert "0.0.0.0" == shop.browsers.address[0]
        assert re.search(
            rf"https://{re.escape(socket.gethostname())}:\d+/#\w", shop.invitation
        )


def test_without_a_certificate_other_machines_need_an_explicit_web_port():
    with shop_of("Catch", host="0.0.0.0") as shop:
        assert shop.browsers is None
        assert "with --cert and --key, browsers can connect too" in shop.invitation
    with shop_of("Catch", host="0.0.0.0", web_port=0) as shop:
        assert "0.0.0.0" == shop.browsers.address[0]


def test_the_default_port_is_100_below_the_vnc_port():
    def is_there():
        with DesktopServer() as desktop, BrowserServer({"a": desktop}) as browsers:
            return desktop.address[1] - 100 == browsers.address[1]

    assert until(is_there)  # Now and then it is in use.


def test_if_the_default_port_is_taken_any_free_one_is_used():
    with (
        DesktopServer() as desktop,
        BrowserServer({"a": desktop}) as first,
        BrowserServer({"a": desktop}) as second,
    ):
        assert first.address[1] != second.address[1]


def test_a_port_in_use_is_reported_with_the_option_that_helps(message_of):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        def serve():
            with shop_of("Catch", web_port=port):
                pass

        message = message_of(ValueError, serve)
    assert (
        f"Port {port} is in use by another program. Choose another with --web-port, or "
        "any that is free with --web-port=0."
    ) == message


def test_viewers_are_served_without_the_package_websockets(monkeypatch, message_of):
    monkeypatch.setitem(sys.modules, "websockets", None)
    monkeypatch.setitem(sys.modules, "websockets.server", None)
    with shop_of("Catch") as shop:
        assert shop.browsers is None
        assert "A page for browsers needs the package websockets" in shop.invitation
        person = shop.shown[0].person
        DesktopClient(*person.address, timeout=PATIENCE).close()

    def serve():
        with shop_of("Catch", web_port=0):
            pass

    assert message_of(ImportError, serve).startswith("A page for browsers needs")
