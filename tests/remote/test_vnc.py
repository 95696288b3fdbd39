"""`envkit serve --vnc`: people watch and play environments in VNC viewers."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from envkit import make
from envkit.desktop import DesktopClient, DesktopError, DesktopServer
from envkit.provenance import recipe_of
from envkit.remote import vnc
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.testing import CountingEnv
from tests.screens import at_the_door, free_port, size_told
from tests.waiting import PATIENCE, until


class Blind(CountingEnv):
    def render(self, mode="rgb_array"):
        raise NotImplementedError("Blind cannot render.")


class Slow(CountingEnv):
    """Begins its first episode when it is allowed to."""

    may_begin = threading.Event()

    def _reset(self):
        assert self.may_begin.wait(PATIENCE)
        return super()._reset()

    def render(self, mode="rgb_array"):
        return np.full((320, 400, 3), 9, np.uint8)


class Fragile(CountingEnv):
    def _step(self, action):
        raise RuntimeError("It broke.")


class Faint(CountingEnv):
    def render(self, mode="rgb_array"):
        started = self.current_time_step().is_first()
        return np.zeros((8, 8, 3), np.uint8) if started else None


@contextlib.contextmanager
def served(*targets, num_workers=None, **options):
    """Serves environments at free ports; yields where each of them is."""
    offers = [Offer(target, num_workers=num_workers) for target in targets]
    shop = vnc.serve(Menu(offers), ServeOptions(**{"port": 0, **options}))
    try:
        yield shop
    finally:
        shop.close("the test is over")


def address_of(shop, number=0):
    return shop.shown[number].person.address


def has_title(viewer, text):
    """Waits until the title of a viewer's window matches."""

    def is_there():
        viewer.update(timeout=0.1)
        return re.fullmatch(text, viewer.name)

    return until(is_there)


def test_keys_play_an_environment_and_the_title_shows_the_return():
    with (
        served("Catch", hz=0) as shop,
        DesktopClient(*address_of(shop)) as viewer,
    ):
        assert has_title(viewer, "Catch: episode 1")
        assert until(lambda: viewer.update(0.1) or viewer.frame.any())
        first = viewer.frame.copy()
        for _ in range(9):
            viewer.press("Left")
        assert has_title(viewer, r"Catch: episode 1, return -?1")

        def has_changed():
            viewer.update(timeout=0.1)
            return not np.array_equal(first, viewer.frame)

        assert until(has_changed)  # The title and the picture may come apart.

        def is_next():
            viewer.press("Left")
            viewer.update(timeout=0.1)
            # Presses that came together may be the whole of an episode.
            return re.match(r"Catch: episode (?!1\b)\d", viewer.name)

        assert until(is_next)


def test_with_hz_the_environment_steps_without_keys():
    with (
        served("Catch", hz=500.0) as shop,
        DesktopClient(*address_of(shop)) as viewer,
    ):
        assert has_title(viewer, r"Catch: episode \d+, return -?1")


def test_each_environment_has_its_port_and_observers_have_their_password():
    with (
        served(
            "Catch",
            "corner=GridWorld",
            password="control",
            observer_password="watch",
            hz=0,
        ) as shop,
        contextlib.ExitStack() as stack,
    ):
        names = [one.line for one in shop.shown]
        assert re.match(r"vnc: vnc://127\.0\.0\.1:\d+ shows Catch; each step", names[0])
        assert " shows corner; each step waits for a key; " in names[1]
        watching, playing = (
            stack.enter_context(DesktopClient(*address_of(shop, 1), password=password))
            for password in ("watch", "control")
        )
        assert until(lambda: watching.update(0.1) or watching.frame.any())
        before = watching.frame.copy()
        for key in ("Left", "Right", "Up", "Down"):
            watching.press(key)
        watching.refresh()
        assert until(lambda: watching.update(0.1))
        assert np.array_equal(before, watching.frame)
        around = itertools.cycle(("Left", "Up", "Right", "Down"))

        def has_changed():
            playing.press(next(around))  # All of them may lead back.
            watching.update(timeout=0.1)
            return not np.array_equal(before, watching.frame)

        assert until(has_changed)
        with pytest.raises(DesktopError, match="refuses the password"):
            DesktopClient(*address_of(shop), password="wrong")


def test_early_viewers_wait_for_the_first_picture():
    Slow.may_begin.clear()
    port = free_port()
    shops = []

    def serve():
        with served(f"{__name__}:Slow", password=b"secret", port=port) as shop:
            shops.append(shop)
            is_over.wait(PATIENCE)

    is_over = threading.Event()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        # When the other one stands there, the first one has had its turn.
        with (
            at_the_door(("127.0.0.1", port), "secret") as link,
            at_the_door(("127.0.0.1", port), "secret"),
        ):
            assert not shops
            Slow.may_begin.set()
            assert (400, 320) == size_told(link)
    finally:
        Slow.may_begin.set()
        is_over.set()
        thread.join(PATIENCE)


def test_an_environment_in_a_worker_is_shown():
    with (
        served("Catch", num_workers=1, hz=0) as shop,
        DesktopClient(*address_of(shop)) as viewer,
    ):
        assert until(lambda: viewer.update(0.1) or viewer.frame.any())


REFUSED = {
    "no pictures": (
        f"{__name__}:Blind",
        {},
        "There is no picture to show: render('rgb_array') raises NotImplementedError",
    ),
}


@pytest.mark.parametrize(
    ("target", "options", "text"), REFUSED.values(), ids=[*REFUSED]
)
def test_an_environment_without_pictures_or_keys_is_refused(
    target, options, text, message_of
):
    menu = Menu([Offer(target)])
    message = message_of(
        ValueError, lambda: vnc.serve(menu, ServeOptions(port=0, **options))
    )
    assert message.startswith(text)


def test_an_environment_that_raises_ends_the_server():
    with (
        served(f"{__name__}:Fragile", hz=500.0) as shop,
        DesktopClient(*address_of(shop)),
    ):
        assert until(shop.ended) == "RuntimeError: It broke."


def test_an_environment_that_stops_drawing_ends_the_server_with_a_reason():
    with (
        served(f"{__name__}:Faint", hz=500.0) as shop,
        DesktopClient(*address_of(shop)),
    ):
        assert until(shop.ended) == (
            "ValueError: render('rgb_array') must return an array of uint8 with the "
            "axes height, width and colour, as it has done before, got None."
        )


def test_an_exception_from_a_worker_is_logged_without_its_traceback(message_of):
    menu = Menu([Offer(f"{__name__}:Blind", num_workers=1)])
    message = message_of(ValueError, lambda: vnc.serve(menu, ServeOptions(port=0)))
    assert "Traceback" not in message
    assert "Blind cannot render" in message


def test_an_agent_can_play_a_served_environment():
    """A desktop of ours, behind an address like any other."""
    with served("Catch", hz=0) as shop:
        host, port = address_of(shop)
        with make(f"vnc://{host}:{port}", keys=["Left", "Right"]) as env:
            first = env.reset().observation
            right = {"keys": np.array([False, True])}
            none = {"keys": np.array([False, False])}
            assert until(
                lambda: env.step(right) and (env.step(none).observation != first).any()
            )


def test_the_scheme_has_a_keyboard_and_a_pointer_by_default():
    with DesktopServer((64, 48)) as server:
        host, port = server.address
        for target in (f"vnc://{host}:{port}", f"vnc:{host}:{port}"):
            with make(target) as env:
                spec = env.action_spec()
                assert {"keys", "pointer", "buttons"} == set(spec)
                assert len(spec["keys"].shape) == 1
                assert env.reset().observation.shape == (48, 64, 3)


def test_an_addresss_password_may_be_in_a_file(tmp_path, message_of):
    secret = tmp_path / "secret"
    secret.write_text("letmein\n", "ascii")
    secret.chmod(0o600)
    with DesktopServer((64, 48), password="letmein") as server:
        where = "vnc://{}:{}".format(*server.address)
        with make(f"{where}?password_file={secret}", keys=["a"]) as env:
            assert "letmein" not in str(recipe_of(env))
            assert env.reset().observation.shape == (48, 64, 3)
        message = message_of(ValueError, lambda: make(f"{where}?password=secret"))
    assert (
        "After ? an address must have password_file=PATH or nothing, got password."
    ) == message


def test_the_command_serves_until_a_signal(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("letmein\n", "ascii")
    secret.chmod(0o600)
    command = [sys.executable, "-m", "envkit", "serve", "Catch", "corner=GridWorld"]
    command += ["--vnc", "--port=0", "--hz=20", f"--password-file={secret}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        line, other = process.stdout.readline(), process.stdout.readline()
        try:
            where = re.match(r"vnc: vnc://(127\.0\.0\.1):(\d+) shows Catch; 20 ", line)
            assert " shows corner; 20 steps a second; " in other
            with DesktopClient(
                where[1], int(where[2]), password="letmein", timeout=60
            ) as viewer:
                assert until(lambda: viewer.update(0.1) or viewer.frame.any())
        finally:
            process.terminate()
        process.stdout.read()
    assert 143 == process.returncode
