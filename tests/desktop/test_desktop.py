"""Desktops as environments: on a screen of our own server, so without X."""

from __future__ import annotations

import functools
import logging
import os
import queue
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from envkit import ParallelPyEnvironment
from envkit.desktop import (
    ClickGrid,
    Command,
    Controls,
    Desktop,
    DesktopError,
    DesktopServer,
    KeyEvent,
    Probe,
    RewardChannel,
    keysym,
)
from envkit.errors import ClosedError
from envkit.realtime import RealTimeEnvironment, universe_view
from tests.waiting import is_running, until

SIZE = (16, 12)
LEFT = keysym("Left")
NOTHING = {"keys": np.array([False])}
PRESSED = {"keys": np.array([True])}
# Tells where it is, and waits.
WAITS = (
    "import os, sys, time\n"
    "with open('pid.new', 'w') as file: print(os.getpid(), file=file)\n"
    "os.rename('pid.new', f'pid-{os.getppid()}-{os.environ.get(\"ENVKIT_EPISODE\")}')\n"
    "time.sleep(3600)\n"
)
# Plays: each episode has three rewards, and begins when the channel says so.
PLAYS = (
    "import time\n"
    "from envkit.desktop import Reporter\n"
    "reporter = Reporter()\n"
    "while True:\n"
    "    episode = reporter.begin()\n"
    "    for number in range(3):\n"
    "        reporter.report(float(episode), text=f'{episode}.{number}')\n"
    "    reporter.report(terminated=True)\n"
    "    while not reporter.is_over():\n"
    "        time.sleep(0.001)\n"
)


def picture(value):
    return np.full((SIZE[1], SIZE[0], 3), value, np.uint8)


class Game:
    """A game on a screen: each press of a key makes it brighter."""

    def __init__(self, step=10):
        self.events = queue.Queue()
        self._light, self._step = 0, step
        self.server = DesktopServer(SIZE, on_event=self._take)
        self.address = "vnc://{}:{}".format(*self.server.address)

    def _take(self, event):
        self.events.put(event)
        if isinstance(event, KeyEvent) and event.down:
            self.show(0 if event.key == keysym("r") else self._light + self._step)

    def show(self, light):
        self._light = light
        self.server.show(picture(light))


@pytest.fixture
def game():
    made = Game()
    yield made
    made.server.close()


@pytest.fixture
def make(game):
    """Makes desktops on the game's screen, and closes them."""
    made = []

    def make(program=None, **options):
        options = {"display": game.address, "keys": ["Left"], **options}
        made.append(Desktop(program, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def stepped_until(env, is_so, action=NOTHING):
    """Steps until a time step is what it should be, and returns it."""
    found = []

    def look():
        found[:] = [env.step(action)]
        return is_so(found[0])

    assert until(look)
    return found[0]


def test_a_step_sends_the_events_of_its_action_and_shows_the_screen(make, game):
    env = make()
    first = env.reset()
    env.step(PRESSED)
    seen = stepped_until(env, lambda one: one.observation.max() == 10, PRESSED)
    env.step(NOTHING)

    assert (12, 16, 3) == first.observation.shape
    assert 0 == first.observation.max()
    assert (seen.observation == 10).all()
    events = [game.events.get(timeout=60) for _ in range(2)]
    assert [KeyEvent(LEFT, True), KeyEvent(LEFT, False)] == events


def test_specs_match_the_screen_and_the_encoding(make):
    env = make(actions=ClickGrid(SIZE, rows=2, columns=3), text=40)

    assert (12, 16, 3) == env.observation_spec()["pixels"].shape
    assert "<U40" == env.observation_spec()["text"].dtype
    assert 6 == env.action_spec().maximum


def test_functions_of_pictures_define_the_reward_and_the_end(make, game):
    env = make(
        reward=lambda now, before: (float(now.max()) - float(before.max())) / 10,
        done=lambda now: now.max() >= 20,
    )
    env.reset()
    game.show(10)
    rise = stepped_until(env, lambda one: one.reward != 0)
    game.show(30)
    last = stepped_until(env, lambda one: one.is_last())

    assert (1.0, False) == (float(rise.reward), bool(rise.is_last()))
    assert (2.0, 0.0) == (float(last.reward), float(last.discount))
    assert 30 == last.observation.max()


def test_the_caller_may_write_into_a_picture(make, game):
    env = make(reward=lambda now, before: float(now.max()) - float(before.max()))
    env.reset().observation[...] = 255
    time_step = env.step(NOTHING)

    assert (0.0, 0) == (float(time_step.reward), int(time_step.observation.max()))


def test_a_reset_by_chords_presses_them_in_order(make, game):
    env = make(reset=["ctrl-r"], ready=lambda frame: frame.max() == 0)
    game.show(200)
    until(lambda: env.render().max() == 200)
    first = env.reset()

    assert 0 == first.observation.max()
    pressed = [game.events.get(timeout=60) for _ in range(4)]
    names = [KeyEvent(keysym(name), True) for name in ("ctrl", "r")]
    assert names == pressed[:2]


def test_a_reset_by_chords_waits_for_the_picture_to_change(make, game):
    env = make(reset=["ctrl-r"], done=lambda frame: frame.max() == 200)
    env.reset()
    for _ in range(2):
        game.show(200)
        stepped_until(env, lambda one: one.is_last())
        assert 0 == env.reset().observation.max()


def test_a_reset_function_receives_the_environment(make, game):
    def begin(env):
        env.press("Return")
        assert env.wait_until(lambda frame: frame.max() == 10)

    env = make(reset=begin)
    assert 10 == env.reset().observation.max()
    assert 1 == env.episode


def test_an_episode_begins_with_no_key_down(make, game):
    env = make(reset=None)
    env.reset()
    env.step(PRESSED)
    env.reset()
    events = [game.events.get(timeout=60) for _ in range(2)]

    assert [KeyEvent(LEFT, True), KeyEvent(LEFT, False)] == events


def test_a_reset_command_is_run_before_reconnecting(make, game, tmp_path):
    script = f"import pathlib; pathlib.Path({str(tmp_path)!r}, 'done').touch()"
    env = make(reset=Command([sys.executable, "-c", script]))
    before = env.screen
    env.reset()

    assert (tmp_path / "done").exists()
    assert env.screen is not before
    assert 12 == env.step(NOTHING).observation.shape[0]


def test_a_reset_command_may_leave_a_machine_running(tmp_path):
    script = 'sleep 3600 & echo $! > "$0"'
    Command(["sh", "-c", script, str(tmp_path / "machine")]).run()
    machine = int((tmp_path / "machine").read_text("utf-8"))
    assert is_running(machine)
    os.kill(machine, signal.SIGKILL)


def test_a_failing_reset_command_is_reported(make):
    env = make(reset=Command(["sh", "-c", "echo no such snapshot; exit 4"]))
    with pytest.raises(DesktopError, match="got 4: no such snapshot"):
        env.reset()


def pid_of(folder, episode):
    """Waits for the program of an episode, and returns its process."""
    (file,) = until(lambda: list(Path(folder).glob(f"pid-*-{episode}")))
    return int(file.read_text("utf-8"))


def test_a_crashed_program_truncates_the_episode_and_is_restarted(
    make, tmp_path, caplog
):
    env = make(
        [sys.executable, "-c", WAITS],
        folder=str(tmp_path),
        ready=0,
        reward=RewardChannel(),
    )
    env.reset()
    os.kill(pid_of(tmp_path, 1), signal.SIGSEGV)
    caplog.set_level(logging.WARNING, "envkit.desktop")
    last = stepped_until(env, lambda one: one.is_last())
    first = env.step(NOTHING)

    assert 1.0 == float(last.discount)
    assert "episode 1 was truncated: the program was killed by SIGSEGV" in caplog.text
    assert ["crashed"] == [loss.kind for loss in env.losses()]
    assert not env.repaired
    assert first.is_first()
    assert is_running(pid_of(tmp_path, 2))
    assert env.step(NOTHING).is_mid()


def test_a_hung_program_truncates_the_episode_and_is_stopped(make, tmp_path):
    env = make(
        [sys.executable, "-c", WAITS],
        folder=str(tmp_path),
        ready=0,
        patience=0.01,
        reward=RewardChannel(),
    )
    env.reset()
    program = pid_of(tmp_path, 1)
    last = stepped_until(env, lambda one: one.is_last())

    assert 1.0 == float(last.discount)
    assert env.repaired
    assert "timed_out" == env.current_losses()[0].kind
    assert not is_running(program)
    assert env.step(NOTHING).is_first()
    assert is_running(pid_of(tmp_path, 2))


def test_a_program_that_cannot_start_raises_with_its_last_output(make, caplog):
    env = make(["sh", "-c", "echo cannot open level 1; exit 7"], ready=60)
    with pytest.raises(DesktopError) as caught:
        env.reset()
    assert (
        "An episode must begin within 60 s; in 3 attempts it did not: the program has "
        "ended with status 7; its last output: cannot open level 1."
    ) == str(caught.value)


def test_a_lost_server_truncates_the_episode_and_reset_reconnects(make, game):
    env = make(reset=None)
    env.reset()
    port = game.server.address[1]
    game.server.close()
    last = stepped_until(env, lambda one: one.is_last())
    assert "link_lost" == env.current_losses()[0].kind
    game.server = DesktopServer(SIZE, port=port)
    game.show(50)
    first = env.step(NOTHING)

    assert 1.0 == float(last.discount)
    assert first.is_first()
    stepped_until(env, lambda one: one.observation.max() == 50)


def test_a_program_reports_rewards_texts_and_ends(make):
    env = make(
        [sys.executable, "-c", PLAYS],
        reward=RewardChannel(),
        ready="reported",
        reset=None,
        text=20,
    )
    for episode in (1, 2):
        first = env.reset()
        total, texts = 0.0, str(first.observation["text"]).split("\n")
        time_step = first
        while not time_step.is_last():
            time_step = env.step(NOTHING)
            total += float(time_step.reward)
            texts += str(time_step.observation["text"]).split("\n")

        assert 3.0 * episode == total
        assert [f"{episode}.{number}" for number in range(3)] == [
            text for text in texts if text
        ]
        assert 0.0 == float(time_step.discount)


def test_long_texts_are_cut_to_their_newest_part(make):
    script = (
        "import time; from envkit.desktop import Reporter; reporter = Reporter()\n"
        "for text in ('first', 'second', 'third'): reporter.report(text=text)\n"
        "reporter.begin(); time.sleep(3600)"
    )
    program = [sys.executable, "-c", script]
    env = make(program, reward=RewardChannel(), ready="reported", text=7)
    assert "d\nthird" == str(env.reset().observation["text"])


def test_text_can_be_read_from_the_picture(make, game):
    env = make(pixels=False, text=8, read_text=lambda frame: f"light {frame.max()}")
    env.reset()
    game.show(7)
    seen = stepped_until(env, lambda one: one.observation["text"] == "light 7")

    assert ["text"] == list(seen.observation)


def latency(env):
    return env.get_info()["desktop"]["key_to_pixel"]


def test_the_info_has_the_timing_of_the_picture(make, game):
    env = make(pause=0.001)
    env.reset()
    stepped_until(env, lambda _: latency(env) > 0, PRESSED)
    game.show(99)
    stepped_until(env, lambda _: env.get_info()["vnc"]["updates.n"] > 0)
    info = env.get_info()

    assert 1 == info["desktop"]["episode"]
    assert 0 <= info["desktop"]["missed_frames"]
    assert 0 <= info["desktop"]["frame_age"]


def test_a_step_returns_the_newest_picture_and_counts_missed_ones(make, game):
    """A server sends a change when it is asked, which a look alone would be late."""
    env = make(reset=None)
    env.reset()
    game.show(50)
    assert until(lambda: env.screen.unseen == 1)
    game.show(60)
    assert until(lambda: env.screen.unseen == 2)

    assert 60 == env.step(NOTHING).observation.max()
    assert 1 == env.get_info()["desktop"]["missed_frames"]
    env.step(NOTHING)
    assert 0 == env.get_info()["desktop"]["missed_frames"]


def test_a_probe_is_measured_in_its_region(make):
    shown, events = picture(0), queue.Queue()
    probe = Probe((0, 6, 16, 6), key="F12", every=3600)
    with DesktopServer(SIZE, on_event=events.put) as server:

        def animate(light, answer=0):
            shown[:6], shown[6:] = light, answer
            server.show(shown)

        animate(1)
        address = "vnc://{}:{}".format(*server.address)
        env = make(display=address, reset=None, probe=probe)
        env.reset()
        env.step(NOTHING)
        assert KeyEvent(keysym("F12"), True) == events.get(timeout=60)
        for light in (2, 3):
            animate(light)
            stepped_until(env, lambda one, light=light: one.observation.max() == light)
        assert 0 == latency(env)

        animate(4, answer=200)
        stepped_until(env, lambda one: one.observation.max() == 200)
        assert 0 < latency(env)


def test_a_probe_without_a_key_measures_the_agents_own_events(make, game):
    env = make(reset=None, probe=Probe((0, 0, 4, 4)))
    env.reset()
    game.show(50)
    stepped_until(env, lambda one: one.observation.max() == 50)
    assert 0 == latency(env)

    stepped_until(env, lambda _: latency(env) > 0, PRESSED)


@pytest.mark.parametrize("host", ["thread", "process"])
def test_in_real_time_the_lags_of_clock_and_picture_are_in_the_info(make, game, host):
    made = functools.partial(Desktop, display=game.address, keys=["Left"], reset=None)
    env = RealTimeEnvironment(made, hz=60, host=host)
    env.reset()
    stepped_until(env, lambda _: env.lag().key_to_pixel > 0, PRESSED)
    info = env.get_info()
    declared = env.info_spec()
    env.close()

    assert set(declared) == set(info) == {"desktop", "realtime", "vnc"}
    assert set(declared["desktop"]) == set(info["desktop"])
    lag = info["realtime"]
    assert info["desktop"]["key_to_pixel"] == lag["key_to_pixel"]
    assert 0 <= lag["observation_age"] <= lag["frame_age"]
    assert 0 <= lag["missed_frames"]


def test_a_pool_of_desktops_has_the_lags_of_every_row():
    games = [Game(), Game(20)]
    makers = [
        functools.partial(Desktop, display=one.address, keys=["Left"], reset=None)
        for one in games
    ]
    with ParallelPyEnvironment(makers, backend="thread", num_workers=2) as pool:
        pool.reset()
        pressed = {"keys": np.array([[True], [True]])}

        def lights():
            return pool.step(pressed).observation.max(axis=(1, 2, 3)).tolist()

        assert until(lambda: lights() == [10, 20])
        info = pool.get_info()
    for one in games:
        one.server.close()

    assert (2,) == np.shape(info["desktop"]["frame_age"])


def test_a_universe_view_reports_the_updates_of_the_screen(make, game):
    view = universe_view(make(reset=None))
    view.reset()

    def updates():
        game.events.put(None)
        game.show(game.events.qsize())
        return view.step([PRESSED])[3]["n"][0].get("stats.vnc.updates.n")

    found = until(updates)
    view.close()
    assert found


def test_a_resized_screen_is_shown_in_the_size_of_the_spec(make, game):
    env = make(reset=None)
    env.reset()
    game.server.show(np.full((30, 8, 3), 9, np.uint8))
    seen = stepped_until(env, lambda one: one.observation.max() == 9)

    assert (12, 16, 3) == seen.observation.shape
    assert (9, 0) == (seen.observation[:, :8].max(), seen.observation[:, 8:].max())


def test_a_closed_desktop_says_that_it_is_closed(make):
    env = make()
    env.close()
    env.close()
    for call in (env.reset, env.render, lambda: env.press("a")):
        with pytest.raises(ClosedError):
            call()


def test_closing_releases_held_keys(make, game):
    class LetsGo(Controls):
        def begin(self):
            return [*super().begin(), KeyEvent(keysym("x"), False)]

    env = make(actions=LetsGo(["Left"]))
    env.reset()
    env.step(PRESSED)
    env.close()
    events = [game.events.get(timeout=60) for _ in range(4)]
    # The last one is not the server's, which lets go of what it knows to be down.
    names = [("x", False), ("Left", True), ("Left", False), ("x", False)]
    assert [KeyEvent(keysym(name), down) for name, down in names] == events


def test_closing_ends_the_program(make, tmp_path):
    env = make(
        [sys.executable, "-c", WAITS],
        folder=str(tmp_path),
        ready=0,
        reward=RewardChannel(),
    )
    env.reset()
    program = pid_of(tmp_path, 1)
    env.close()
    assert not is_running(program)


def test_an_unclosed_desktop_warns_and_stops_its_program(game, tmp_path):
    env = Desktop(
        [sys.executable, "-c", WAITS],
        display=game.address,
        keys=["Left"],
        folder=str(tmp_path),
        ready=0,
        reward=RewardChannel(),
    )
    env.reset()
    program = pid_of(tmp_path, 1)
    with pytest.warns(ResourceWarning, match="A Desktop was not closed"):
        del env
    assert not is_running(program)


MESSAGES = {
    "a program in one text": (lambda: Desktop("xterm"), TypeError,
        "program must be a list of a command and its arguments, such as ['xterm', "
        "'-e', 'nethack'], got the string 'xterm'."),
    "a strange display": (lambda: Desktop(display=":1", keys=["a"]), ValueError,
        "display must be 'local' or an address such as 'vnc://host:5900', got the "
        "string ':1'."),
    "an address with a path": (lambda: Desktop(display="vnc://h:1/x"), ValueError,
        "display must be 'local' or an address such as 'vnc://host:5900', got the "
        "string 'vnc://h:1/x'."),
    "a strange port": (lambda: Desktop(display="vnc://host:99999"), ValueError,
        "display must be 'local' or an address such as 'vnc://host:5900', got the "
        "string 'vnc://host:99999'."),
    "a display that has gone": (lambda: Desktop(["x"], display="xvfb"), ValueError,
        "display='xvfb' has been removed: display='local' starts Xvnc, the one server "
        "of local displays."),
    "a choice that has gone": (lambda: Desktop(["x"], display="xvnc"), ValueError,
        "display='xvnc' has been removed: display='local' starts Xvnc, the one server "
        "of local displays."),
    "a screen of no size": (lambda: Desktop(["x"], size=(0, 480)), ValueError,
        "size must be the width and height of the screen in pixels, such as (640, "
        "480), got (0, 480)."),
    "a screen that X has not": (lambda: Desktop(["x"], size=(40000, 480)), ValueError,
        "size must be at most 32767 x 32767 on a local display, got 40000 x 480."),
    "a variable that is no text": (lambda: Desktop(["x"], environ={"N": 1}), TypeError,
        "environ must map names to strings, such as {'LANG': 'C.UTF-8'}, got 1 of type "
        "int for 'N'."),
    "a strange reset": (lambda: Desktop(["x"], reset=5, keys=["a"]), TypeError,
        "reset must be 'restart', a list of chords such as ['ctrl-r'], a function of "
        "the environment, a Command, or None, got 5 of type int."),
    "a command in one text": (
        lambda: Desktop(["x"], reset=Command("virsh revert")), TypeError,
        "reset=Command(...) must have a list of a command and its arguments, got the "
        "string 'virsh revert'."),
    "ready without a channel": (lambda: Desktop(["x"], ready="reported"), ValueError,
        "ready='reported' needs reward=RewardChannel()."),
    "a strange ready": (lambda: Desktop(["x"], ready="soon"), TypeError,
        "ready must be a function of the picture, a number of seconds, 'reported' or "
        "None, got the string 'soon'."),
    "a negative pause": (lambda: Desktop(["x"], pause=-1), ValueError,
        "pause must be a number of seconds, 0 for none, got -1 of type int."),
    "patience in a text": (lambda: Desktop(["x"], patience="x"), ValueError,
        "patience must be a number of seconds, None for never, got the string 'x'."),
    "a start without an end": (
        lambda: Desktop(["x"], start_timeout=None), ValueError,
        "start_timeout must be a number of seconds, got None."),
    "a number as reward": (lambda: Desktop(["x"], reward=3), TypeError,
        "reward must be a function of the picture, a RewardChannel or None, got 3 of "
        "type int."),
    "an answer as done": (lambda: Desktop(["x"], done=True), TypeError,
        "done must be a function of the picture or None, got True of type bool."),
    "a number as actions": (lambda: Desktop(["x"], actions=3), TypeError,
        "actions must be an encoding such as Controls, Events or Macros, got 3 of type "
        "int."),
    "nothing to see": (lambda: Desktop(["x"], pixels=False), ValueError,
        "An observation must have pixels or text; both are off."),
}  # fmt: skip


@pytest.mark.parametrize("case", MESSAGES)
def test_invalid_arguments_are_refused_with_the_requirement(case):
    call, kind, message = MESSAGES[case]
    with pytest.raises(kind) as caught:
        call()
    assert message == str(caught.value)


PROBES = {
    "none": ((0, 0, 9, 9), TypeError,
        "probe must be a Probe or None, got a tuple of 4 elements."),
    "beside the screen": (Probe((9, 0, 8, 8)), ValueError,
        "The region of a probe must be on the screen of 16 x 12, got left 9, top 0, "
        "width 8 and height 8."),
    "all the time": (Probe((0, 0, 8, 8), "F1", 0), ValueError,
        "every must be a positive number of seconds, got 0 of type int."),
}  # fmt: skip


@pytest.mark.parametrize("case", PROBES)
def test_an_invalid_probe_is_refused_with_the_requirement(make, case):
    probe, kind, message = PROBES[case]
    with pytest.raises(kind) as caught:
        make(probe=probe)
    assert message == str(caught.value)


def test_a_desktop_without_controls_is_refused_and_leaves_nothing(game):
    before = threading.active_count()
    with pytest.raises(ValueError, match="Controls must have keys"):
        Desktop(display=game.address)
    assert before == threading.active_count()


def test_a_user_defined_encoding_is_accepted(make, game):
    class Twice(Controls):
        def events(self, action):
            return [*super().events(action), KeyEvent(keysym("x"), True)]

    env = make(actions=Twice(["Left"]))
    env.reset()
    env.step(PRESSED)
    names = [game.events.get(timeout=60).key for _ in range(2)]
    assert [LEFT, keysym("x")] == names
