"""The page in a real browser: its picture, its keys and pointer, and what it says."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

from envkit import make
from envkit.desktop import BrowserServer, KeyEvent, PointerEvent, keysym
from envkit.recording import Replay
from tests.cli.chromium import chromium, needs_chromium
from tests.desktop.drawn_events import SIZE, picture_after
from tests.remote.serving import certificate_in
from tests.screens import picture_of, served
from tests.waiting import PATIENCE, until

pytest.importorskip("websockets", reason="websockets is not installed")

pytestmark = needs_chromium

PIXELS = """(() => {
  const picture = document.querySelector("canvas"), {width, height} = picture;
  const image = picture.getContext("2d").getImageData(0, 0, width, height);
  return [width, height, ...image.data];
})()"""
CONTROLS = "You control: click the picture, and press keys. F6 leaves it."


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chromium")
    with chromium(folder, "--ignore-certificate-errors") as page:
        yield page


@pytest.fixture
def page(browser):
    """A tab for a test, which begins without what others have typed."""
    with browser.another() as page:
        page.do("Emulation.setFocusEmulationEnabled", enabled=True)
        yield page


def picture_in(page):
    """Returns the picture on the canvas, pixel by pixel."""
    width, height, *values = page.ask(PIXELS)
    return np.array(values, np.uint8).reshape(height, width, 4)[..., :3]


def shows(page, picture):
    return until(lambda: np.array_equal(picture, picture_in(page)))


def says(page, text):
    """Waits until the page says something about its state."""
    assert until(lambda: page.text("#state") == text), page.text("#state")


def key(page, way, key, code="", **more):
    page.do(
        "Input.dispatchKeyEvent", type=f"key{way}", key=key, code=code or key, **more
    )


def pointer(page, kind, x, y, scale=1.0, **more):
    """Moves the pointer to a pixel of the picture."""
    box = page.ask(
        "(({x, y, width}) => [x, y, width / document.querySelector('canvas').width])"
        "(document.querySelector('canvas').getBoundingClientRect())"
    )
    left, top, times = box
    x, y = left + (x + 0.5) * times, top + (y + 0.5) * times
    page.do("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)


@contextlib.contextmanager
def shown(size=SIZE, tls=None, **options):
    """Serves a desktop and its page; yields both and the queue of events."""
    with (
        served(size, **options) as (desktop, events),
        BrowserServer({"pong": desktop}, tls=tls, hints={"pong": "←: left"}) as pages,
    ):
        yield desktop, pages, events


@contextlib.contextmanager
def running(*arguments):
    """Runs the command; yields the process and the address of the page it prints."""
    command = [sys.executable, "-m", "envkit", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            told, found = "", None
            while found is None:
                line = process.stdout.readline()
                assert line, told
                told += line
                found = re.search(r"in a browser: (\S+)", line)
            yield process, found[1]
        finally:
            process.terminate()
            process.stdout.read()


# By the command.


def test_serve_shows_the_picture_and_receives_keys_in_order(page, browser, tmp_path):
    path = tmp_path / "events"
    target = "game=tests.desktop.drawn_events:DrawnEvents"
    more = ["--vnc", "--port=0", "--hz=100", f"--arg=path={path}"]

    def lines():
        return path.read_text("utf-8").splitlines() if path.exists() else []

    with (
        make(target.partition("=")[2], path=str(path)) as env,
        running("serve", target, *more) as (_, url),
    ):
        env.reset()
        page.open(url)
        says(page, CONTROLS)
        assert shows(page, env.render())
        assert "game: episode 1" == page.text("#name") == page.ask("document.title")
        assert page.text("#hint").startswith("100 steps a second")
        # The password does not stay in the address bar.
        assert url.partition("#")[0] == page.ask("location.href")
        key(page, "Down", "a", "KeyA")
        pointer(page, "Pressed", 10, 20, button="left", buttons=1, clickCount=1)
        key(page, "Down", "ArrowLeft")
        pointer(page, "Moved", 199, 119, button="left", buttons=1)
        key(page, "Up", "a", "KeyA")
        pointer(page, "Released", 30, 40, button="left", buttons=0, clickCount=1)
        key(page, "Up", "ArrowLeft")
        expected = [
            "a down",
            "10 20 1",
            "Left down",
            "199 119 1",
            "a up",
            "30 40 0",
            "Left up",
        ]
        assert until(lambda: "Left up" in lines())
        # A press comes where the pointer is, which may be told before.
        found = [line for line in lines() if line not in ("10 20 0", "30 40 1")]
        assert expected == found
        assert shows(page, picture_after(2))
        # A tab that is closed lets go of its keys, and the next one controls.
        with browser.another() as next_one:
            next_one.open(url)
            says(next_one, "Watching: another viewer controls.")
            key(page, "Down", "x", "KeyX")
            assert until(lambda: "x down" in lines())
            page.do("Page.close")
            assert until(lambda: "x up" in lines())
            says(next_one, CONTROLS)
    assert [] == page.errors


def test_a_demonstration_in_a_browser_is_recorded_like_any_other(page, tmp_path):
    folder = tmp_path / "shown"
    with running(
        "record", "Catch", "--vnc", "--port=0", "--hz=0", "-o", str(folder), "--seed=3"
    ) as (process, url):
        page.open(url)
        says(page, CONTROLS)
        for number in range(9):
            name = ("ArrowLeft", "ArrowRight")[number % 2]
            key(page, "Down", name)
            key(page, "Up", name)
        says(page, "The recording is complete.")
        process.wait(PATIENCE)
    recorded = Replay(folder)
    steps = [recorded.reset()]
    with make("Catch", seed=3) as env:
        expected = [env.reset()]
        for number in range(9):
            action = np.array((0, 2)[number % 2])
            expected.append(env.step(action))
            steps.append(recorded.step(action))
    assert steps[-1].is_last()
    for step, one in zip(steps, expected, strict=True):
        assert np.array_equal(one.observation, step.observation)
        assert (one.reward, one.step_type) == (step.reward, step.step_type)


def test_a_certificate_encrypts_a_demonstration(page, tmp_path):
    cert, private = certificate_in(tmp_path)
    command = ["record", "Catch", "--vnc", "--port=0", "--hz=0", "--host=0.0.0.0"]
    command += [f"--cert={cert}", f"--key={private}", "-o", str(tmp_path / "shown")]
    with running(*command) as (process, url):
        assert url.startswith(f"https://{socket.gethostname()}:")
        page.open(re.sub(r"//.*:", "//127.0.0.1:", url))
        says(page, CONTROLS)
        for _ in range(9):
            key(page, "Down", "ArrowLeft")
            key(page, "Up", "ArrowLeft")
        says(page, "The recording is complete.")
        assert 0 == process.wait(PATIENCE)


# The picture.


def test_the_page_follows_changes_of_the_picture_and_its_size(page):
    with shown() as (desktop, pages, _):
        page.open(pages.url)
        for seed, (width, height) in enumerate([SIZE, SIZE, (64, 48), (300, 200)]):
            picture = picture_of(seed, width, height, 30, 3)
            desktop.show(picture)
            assert shows(page, picture)
        assert "pixelated" == page.ask(
            "getComputedStyle(document.querySelector('canvas')).imageRendering"
        )
        times = "document.querySelector('canvas').getBoundingClientRect().width / 300"
        assert 3 == page.ask(times)
        page.do(
            "Runtime.evaluate", expression="document.querySelector('#whole').click()"
        )
        assert 3 < page.ask(times) < 4
        noise = np.random.default_rng(1).integers(0, 256, (200, 300, 3), np.uint8)
        desktop.show(noise)  # which grows when it is packed
        assert shows(page, noise)
        desktop.rename("pong: episode 7")
        assert until(lambda: "pong: episode 7" == page.text("#name"))
        assert "←: left" == page.text("#hint")
    assert [] == page.errors


@pytest.mark.parametrize("height", [100, 180])
def test_a_low_window_gives_the_picture_half_of_its_height(page, height):
    with shown((300, 200)) as (_, pages, _):
        page.open(pages.url)
        says(page, CONTROLS)
        page.do(
            "Emulation.setDeviceMetricsOverride",
            width=400,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        box = "document.querySelector('canvas').getBoundingClientRect().height"
        assert until(lambda: abs(page.ask(box) - height / 2) < 1), page.ask(box)


def test_tls_encrypts_pictures_and_keys(page, tmp_path):
    import ssl

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate_in(tmp_path))
    picture = picture_of(1, 640, 480, 200, 2)
    with shown((640, 480), tls, password="secret") as (desktop, pages, events):
        desktop.show(picture)
        page.open(pages.page("pong", "secret"))
        assert page.ask("location.protocol") == "https:"
        assert shows(page, picture)
        says(page, CONTROLS)
        key(page, "Down", "a", "KeyA")
        assert KeyEvent(keysym("a"), True) == events.get(timeout=PATIENCE)


# Keys and pointer.

TYPED = {
    # The key, its code, where it is, and what it is for X11.
    ("a", "KeyA", 0): "a",
    ("A", "KeyA", 0): "A",
    ("ä", "Quote", 0): "ä",
    ("€", "KeyE", 0): "€",
    (" ", "Space", 0): "space",
    ("Enter", "Enter", 0): "Return",
    ("Tab", "Tab", 0): "Tab",
    ("Escape", "Escape", 0): "Escape",
    ("Shift", "ShiftRight", 2): "Shift_R",
    ("Control", "ControlLeft", 1): "Control_L",
    ("F5", "F5", 0): "F5",
    ("PageDown", "PageDown", 0): "Page_Down",
    ("5", "Numpad5", 3): "KP_5",
    ("ArrowLeft", "Numpad4", 3): "Left",
    ("Enter", "NumpadEnter", 3): "KP_Enter",
    ("+", "NumpadAdd", 3): "KP_Add",
}


def test_keys_become_keysyms_without_repetition(page):
    with shown() as (_, pages, events):
        page.open(pages.url)
        says(page, CONTROLS)
        for (name, code, location), expected in TYPED.items():
            more = {"location": location, "isKeypad": location == 3}
            key(page, "Down", name, code, **more)
            key(page, "Down", name, code, autoRepeat=True, **more)
            key(page, "Up", name, code, **more)
            for down in (True, False):
                event = KeyEvent(keysym(expected), down)
                assert event == events.get(timeout=PATIENCE)
        # Nothing of it was for the browser.
        assert "picture" == page.ask("document.activeElement.id")
        assert events.empty()


def test_a_key_is_released_as_the_keysym_it_was_pressed(page):
    with shown() as (_, pages, events):
        page.open(pages.url)
        says(page, CONTROLS)
        key(page, "Down", "Shift", "ShiftLeft", location=1)
        key(page, "Down", "A", "KeyA")
        key(page, "Up", "Shift", "ShiftLeft", location=1)
        key(page, "Up", "a", "KeyA")
        names = [("Shift_L", True), ("A", True), ("Shift_L", False), ("A", False)]
        for name, down in names:
            assert KeyEvent(keysym(name), down) == events.get(timeout=PATIENCE)


LEAVES = {
    "another element": "document.querySelector('#whole').focus()",
    "another window": "dispatchEvent(new Event('blur'))",
}


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
def test_keys_and_buttons_go_up_when_the_page_loses_the_focus(page, leave):
    with shown() as (_, pages, events):
        page.open(pages.url)
        says(page, CONTROLS)
        key(page, "Down", "a", "KeyA")
        pointer(page, "Pressed", 5, 6, button="left", buttons=1, clickCount=1)
        assert until(lambda: list(events.queue)[-1:] == [PointerEvent(5, 6, 1)])
        page.ask(leave)
        assert until(
            lambda: (
                list(events.queue)[-2:]
                == [KeyEvent(keysym("a"), False), PointerEvent(5, 6, 0)]
            )
        )


def test_buttons_and_the_wheel_become_vnc_buttons_at_the_pointer(page):
    with shown() as (_, pages, events):
        page.open(pages.url)
        says(page, CONTROLS)
        for button, buttons, expected in (("middle", 4, 2), ("right", 2, 4)):
            more = {"button": button, "clickCount": 1}
            pointer(page, "Pressed", 7, 8, buttons=buttons, **more)
            assert until(lambda: list(events.queue)[-1:] == [(7, 8, expected)])  # noqa: B023
            pointer(page, "Released", 7, 8, buttons=0, **more)
            assert until(lambda: list(events.queue)[-1:] == [(7, 8, 0)])
        events.queue.clear()
        pointer(page, "Wheel", 9, 3, deltaX=0, deltaY=-120)
        assert [(9, 3, 8), (9, 3, 0)] == [events.get(timeout=PATIENCE) for _ in "12"]
        pointer(page, "Wheel", 9, 3, deltaX=0, deltaY=240)
        assert [(9, 3, 16), (9, 3, 0)] * 2 == [
            events.get(timeout=PATIENCE) for _ in "1234"
        ]


def test_a_touch_moves_the_pointer(page):
    with shown() as (_, pages, events):
        page.do("Emulation.setTouchEmulationEnabled", enabled=True)
        page.open(pages.url)
        says(page, CONTROLS)
        x, y = page.ask(
            "(({x, y}) => [x, y])"
            "(document.querySelector('canvas').getBoundingClientRect())"
        )
        place = [{"x": x + 1, "y": y + 1}]
        page.do("Input.dispatchTouchEvent", type="touchStart", touchPoints=place)
        assert until(lambda: list(events.queue)[-1:] == [(0, 0, 1)])
        page.do("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        assert until(lambda: list(events.queue)[-1:] == [(0, 0, 0)])


# What the page says.


def test_a_wrong_password_is_reported_and_can_be_typed_again(page):
    with shown(password="secret") as (_, pages, _):
        page.open(pages.page("pong", "guess"))
        says(page, "The password is wrong.")
        assert "password" == page.ask("document.activeElement.id")
        page.do("Input.insertText", text="secret")
        key(page, "Down", "Enter", windowsVirtualKeyCode=13, text="\r")
        key(page, "Up", "Enter", windowsVirtualKeyCode=13)
        says(page, CONTROLS)
        # The tab remembers it, and nothing else does.
        page.open(pages.url)
        says(page, CONTROLS)
        assert "" == page.ask("document.cookie")


def test_the_page_says_who_controls(page, browser):
    with shown(password="secret", observer_password="watch") as (_, pages, events):
        page.open(pages.page("pong", "secret"))
        says(page, CONTROLS)
        with browser.another() as next_one, browser.another() as watching:
            next_one.do("Emulation.setFocusEmulationEnabled", enabled=True)
            next_one.open(pages.page("pong", "secret"))
            says(next_one, "Watching: another viewer controls.")
            watching.open(pages.page("pong", "watch"))
            says(watching, "Watching only.")
            key(watching, "Down", "b", "KeyB")
            key(next_one, "Down", "c", "KeyC")
            key(page, "Down", "a", "KeyA")
            assert KeyEvent(keysym("a"), True) == events.get(timeout=PATIENCE)
            page.do("Page.close")
            assert KeyEvent(keysym("a"), False) == events.get(timeout=PATIENCE)
            says(next_one, CONTROLS)
            key(next_one, "Down", "d", "KeyD")
            assert KeyEvent(keysym("d"), True) == events.get(timeout=PATIENCE)


def test_the_page_says_why_it_was_refused_and_reconnects(page):
    with shown(max_viewers=1) as (desktop, pages, _), contextlib.ExitStack() as other:
        from envkit.desktop import DesktopClient

        viewer = other.enter_context(DesktopClient(*desktop.address))
        assert until(lambda: desktop.viewers == 1)
        page.open(pages.url)
        says(page, "There is 1 viewer already.")
        viewer.close()
        assert until(lambda: desktop.viewers == 0)
        page.ask("document.querySelector('#again').click()")
        says(page, CONTROLS)
        pages.close("the server is stopping")
        says(page, "the server is stopping")
