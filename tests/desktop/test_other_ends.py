"""Desktops between our ends and those of others: TigerVNC, x11vnc and libraries."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from envkit.desktop import DesktopClient, DesktopError
from envkit.desktop.encodings import ENCODINGS
from envkit.desktop.keys import KeyEvent, PointerEvent, keysym
from tests.screens import XVNC, picture_of, served, xvnc
from tests.waiting import PATIENCE, until

# The ends of others.

needs_xvnc = pytest.mark.skipif(XVNC is None, reason="Xvnc is not installed")


@needs_xvnc
@pytest.mark.parametrize("password", [None, "secret"])
@pytest.mark.parametrize("encoding", [*ENCODINGS])
def test_the_client_understands_tigervncs_server(
    tmp_path, encoding, password, message_of
):
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


@contextlib.contextmanager
def viewing(display, server):
    """Shows a server of ours in TigerVNC's viewer, on a display."""
    if shutil.which("xtigervncviewer") is None:
        pytest.skip("xtigervncviewer is not installed")
    host, port = server.address
    viewer = subprocess.Popen(
        ["xtigervncviewer", "-display", display, f"{host}::{port}"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        viewer.terminate()
        viewer.wait()


def places_of(screen, colour):
    """Returns the rows and columns of the pixels that have about a colour."""
    screen.update(timeout=0.1)
    away = np.abs(screen.frame.astype(int) - colour).max(axis=2)
    return np.argwhere(away < 8)


GREEN = (10, 200, 30)


@needs_xvnc
def test_tigervncs_viewer_shows_our_desktop_and_points_at_it(tmp_path):
    """It draws into TigerVNC's server, where our client sees what it shows."""
    picture = np.full((60, 80, 3), GREEN, np.uint8)
    with xvnc(tmp_path) as (path, display), served((80, 60)) as (server, events):
        server.show(picture)
        with viewing(display, server), DesktopClient(path) as screen:
            assert until(lambda: len(places_of(screen, GREEN)) > 3000)
            y, x = places_of(screen, GREEN).mean(axis=0).astype(int).tolist()
            screen.pointer(x, y)
            screen.pointer(x, y, buttons=1)
            screen.pointer(x, y)
            while not (event := events.get(timeout=PATIENCE)).buttons:
                assert isinstance(event, PointerEvent)
            assert max(abs(event.x - 40), abs(event.y - 30)) < 8


@needs_xvnc
@pytest.mark.skipif(shutil.which("xdotool") is None, reason="xdotool is not installed")
def test_keys_of_tigervncs_viewer_arrive_when_it_has_the_focus(tmp_path):
    """Without a window manager, no window has it: then its keys go nowhere."""
    picture = np.full((60, 80, 3), GREEN, np.uint8)
    with xvnc(tmp_path) as (path, display), served((80, 60)) as (server, events):
        server.show(picture)
        environ = {**os.environ, "DISPLAY": display}
        with viewing(display, server), DesktopClient(path) as screen:
            assert until(lambda: len(places_of(screen, GREEN)) > 3000)
            focus = ["xdotool", "search", "--name", "VNC", "windowfocus", "--sync"]
            subprocess.run(focus, env=environ, check=True, timeout=PATIENCE)
            screen.press("ctrl", "Left")
            screen.press("a")
            keys: list[KeyEvent] = []
            while len(keys) < 6:
                event = events.get(timeout=PATIENCE)
                keys += [event] if isinstance(event, KeyEvent) else []
    names = ["Control_L", "Left", "Left", "Control_L", "a", "a"]
    assert [*map(keysym, names)] == [event.key for event in keys]
    assert [True, True, False, False, True, False] == [event.down for event in keys]


@needs_xvnc
def test_all_encodings_of_tigervncs_server_give_the_same_picture(tmp_path):
    with xvnc(tmp_path) as (path, display), served((200, 150)) as (server, _):
        picture = picture_of(1, 200, 150, 60, 5)
        picture[:70] = picture_of(2, 200, 70, 4000, 1)
        picture[140:] = GREEN
        server.show(picture)
        with viewing(display, server), contextlib.ExitStack() as stack:
            screens = [
                stack.enter_context(DesktopClient(path, encodings=[name, "copy"]))
                for name in ENCODINGS
            ]
            assert until(lambda: len(places_of(screens[0], GREEN)) > 1500)

            def are_equal():
                for screen in screens:
                    screen.update(timeout=0.02)
                first = screens[0].frame
                return all(np.array_equal(first, other.frame) for other in screens)

            assert until(are_equal)
            colours = np.unique(screens[0].frame.reshape(-1, 3), axis=0)
            assert len(colours) > 300


@needs_xvnc
def test_jpeg_of_tigervncs_server_is_decoded(tmp_path):
    pytest.importorskip("PIL", reason="pillow is not installed")
    with xvnc(tmp_path) as (path, display), served((200, 150)) as (server, _):
        y, x = np.mgrid[:150, :200]
        picture = np.stack([x, y, x // 2 + y // 2], axis=-1).astype(np.uint8)
        picture[120:] = GREEN
        server.show(picture)
        with viewing(display, server), contextlib.ExitStack() as stack:
            exact, lossy = (
                stack.enter_context(DesktopClient(path, **options))
                for options in ({}, {"encodings": ["tight"], "quality": 9})
            )
            assert until(lambda: len(places_of(exact, GREEN)) > 3000)

            def are_alike():
                exact.update(timeout=0.02)
                lossy.update(timeout=0.02)
                away = np.abs(exact.frame.astype(int) - lossy.frame)
                return away.max() < 40 and len(places_of(lossy, GREEN)) > 3000

            assert until(are_alike)


@needs_xvnc
@pytest.mark.skipif(shutil.which("x11vnc") is None, reason="x11vnc is not installed")
@pytest.mark.parametrize("encoding", [*ENCODINGS])
def test_the_client_understands_x11vncs_server(tmp_path, encoding):
    """Its library is the one that most servers have which are not TigerVNC."""
    with xvnc(tmp_path) as (path, display):
        told = tmp_path / "port"
        command = ["x11vnc", "-display", display, "-localhost", "-autoport", "5950"]
        command += ["-nopw", "-noxdamage", "-quiet", "-cursor", "none", "-forever"]
        command += ["-flag", str(told)]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                assert until(lambda: told.exists() and "\n" in told.read_text("ascii"))
                port = int(told.read_text("ascii").split()[0].removeprefix("PORT="))
                with (
                    DesktopClient(path, draw_cursor=False) as truth,
                    DesktopClient("127.0.0.1", port, encodings=[encoding]) as screen,
                ):

                    def are_equal():
                        truth.update(timeout=0.05)
                        screen.update(timeout=0.05)
                        return np.array_equal(truth.frame, screen.frame)

                    assert until(are_equal)
                    assert (320, 240) == screen.size
                    screen.press("a")
                    screen.pointer(20, 30)
            finally:
                server.kill()  # It may take SIGTERM and stay.


ASYNCVNC = """
import asyncio, sys
import asyncvnc, numpy as np

async def main(port, password, path):
    async with asyncvnc.connect("127.0.0.1", port, password=password) as client:
        np.save(path, (await client.screenshot())[..., :3])
        client.keyboard.press("a")
        client.mouse.move(5, 6)
        client.mouse.click()
        await client.drain()

asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
"""
VNCDOTOOL = """
import sys
import numpy as np
from PIL import Image
from vncdotool import api

client = api.connect(f"127.0.0.1::{sys.argv[1]}", password=sys.argv[2], timeout=60)
client.captureScreen(sys.argv[3] + ".png")
np.save(sys.argv[3], np.asarray(Image.open(sys.argv[3] + ".png").convert("RGB")))
client.keyPress("a")
client.mouseMove(5, 6)
client.mousePress(1)
client.disconnect()
api.shutdown()
"""


@pytest.mark.parametrize(
    ("library", "program"), [("asyncvnc", ASYNCVNC), ("vncdotool", VNCDOTOOL)]
)
def test_other_client_libraries_can_use_our_desktop(library, program, tmp_path):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    picture = picture_of(4, 160, 120, 40, 7)
    with served((160, 120), password="secret") as (server, events):
        server.show(picture)
        path = str(tmp_path / "seen.npy")
        command = [sys.executable, "-W", "ignore", "-c", program]
        command += [str(server.address[1]), "secret", path]
        subprocess.run(command, check=True, timeout=PATIENCE)
        assert np.array_equal(picture, np.load(path))
        seen = [events.get(timeout=PATIENCE) for _ in range(5)]
    a = keysym("a")
    expected = [KeyEvent(a, True), KeyEvent(a, False), PointerEvent(5, 6, 0)]
    expected += [PointerEvent(5, 6, 1), PointerEvent(5, 6, 0)]
    assert expected == seen
