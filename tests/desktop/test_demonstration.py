"""People who play a desktop in a VNC viewer, and recordings of what they did."""

from __future__ import annotations

import queue

import numpy as np
import pytest

from envkit.desktop import Demonstration, Desktop, DesktopClient, DesktopServer, keysym
from envkit.envs import Catch
from envkit.recording import Record, Recording, Replay
from envkit.testing import ManualClock
from tests.waiting import until


@pytest.fixture
def game():
    """A screen that gets lighter when a key goes down."""
    events = queue.Queue()
    light = [0]

    def take(event):
        events.put(event)
        light[0] += 40 * event.down
        server.show(np.full((12, 16, 3), light[0], np.uint8))

    with DesktopServer((16, 12), on_event=take) as server:
        server.events = events
        yield server


def desktop(game, **options):
    address = "vnc://{}:{}".format(*game.address)
    return Desktop(display=address, keys=["Left", "a"], reset=None, **options)


def test_what_a_person_does_reaches_the_program_and_its_picture_the_person(game):
    env = desktop(game)
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        viewer.press("Left")
        lit = until(
            lambda: shown.step() and viewer.update() and viewer.frame.max() == 40
        )
        # A key that the agent does not have is not pressed.
        viewer.press("x", "a")
        until(lambda: shown.step() and viewer.update() and viewer.frame.max() == 80)
    env.close()

    assert lit
    pressed = [game.events.get(timeout=60).key for _ in range(3)]
    assert [keysym("Left"), keysym("Left"), keysym("a")] == pressed


def test_a_recording_has_the_actions_of_the_person(game, tmp_path):
    env = Record(desktop(game, done=lambda frame: frame.max() > 0), tmp_path / "shown")
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        assert until(lambda: shown.viewers == 1)
        viewer.key("a", True)
        shown.run(episodes=1, hz=1000.0)
    env.close()

    played = Replay(tmp_path / "shown")
    steps = [played.reset()]
    while not steps[-1].is_last():
        steps.append(played.step({"keys": np.zeros(2, bool)}))
    episode = next(iter(Recording(tmp_path / "shown").episodes()))
    keys = np.array([episode.action(step)["keys"] for step in range(1, len(steps))])

    assert 40 == steps[-1].observation.max()
    assert [False, True] == keys.any(axis=0).tolist()


def test_steps_keep_their_rhythm(game):
    clock = ManualClock()
    env = desktop(game, done=lambda frame: clock.now() >= 1.0)
    with Demonstration(env) as shown:
        shown.run(hz=10, now=clock.now, sleep=clock.sleep)
        assert shown.time_step.is_last()
    env.close()

    assert 1.0 <= clock.now() < 1.3


def test_an_environment_without_keys_and_pointer_is_refused():
    with pytest.raises(TypeError, match="env must be a Desktop"):
        Demonstration(Catch())
