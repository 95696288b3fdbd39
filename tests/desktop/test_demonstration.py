"""People who play a desktop in a VNC viewer, and recordings of what they did."""

from __future__ import annotations

import contextlib
import queue
import threading

import numpy as np
import pytest

from envkit import make
from envkit.desktop import (
    ClickGrid,
    Controls,
    Demonstration,
    Desktop,
    DesktopClient,
    DesktopError,
    DesktopServer,
    Events,
    KeyEvent,
    Macros,
    Person,
    PointerEvent,
    Together,
    keysym,
)
from envkit.desktop.pending_events import PendingEvents
from envkit.desktop.play_keys import KeyboardActions
from envkit.envs import Catch
from envkit.errors import ClosedError
from envkit.recording import Record, Recording, Replay
from envkit.specs import BoundedArraySpec
from envkit.testing import CountingEnv, ManualClock
from tests.screens import at_the_door, free_port, served, size_told
from tests.waiting import PATIENCE, until


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


def test_actions_reach_the_program_and_pictures_reach_the_person(game):
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


def test_a_recording_contains_the_persons_actions(game, tmp_path):
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


def test_steps_keep_a_steady_pace(game):
    clock = ManualClock()
    env = desktop(game, done=lambda frame: clock.now() >= 1.0)
    with Demonstration(env) as shown:
        shown.run(hz=10, now=clock.now, sleep=clock.sleep)
        assert shown.time_step.is_last()
    env.close()

    assert 1.0 <= clock.now() < 1.3


class Blind(CountingEnv):
    def render(self, mode="rgb_array"):
        raise NotImplementedError("Blind cannot render.")


REFUSED = {
    "a batch": (
        lambda: make("Catch", num_envs=2),
        "A person plays a single environment, and this is a batch of 2.",
    ),
    "no pictures": (
        Blind,
        "There is no picture to show: render('rgb_array') raises NotImplementedError: "
        "Blind cannot render, and there is none in the observation. Write a render()",
    ),
}


@pytest.mark.parametrize(("build", "text"), REFUSED.values(), ids=REFUSED)
def test_an_environment_that_cannot_be_shown_is_refused(build, text, message_of):
    with build() as env:
        message = message_of(ValueError, lambda: Demonstration(env))

    assert message.startswith(text)
    assert "batch" in text or message.endswith("may need render_mode='rgb_array'.")


def test_any_environment_with_pictures_is_played_with_the_keys_of_play():
    env = Catch(seed=3)
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        assert until(lambda: viewer.update() and viewer.frame.any())
        large = viewer.size
        viewer.key("Right", True)
        assert until(lambda: shown.step().action == 2)
        viewer.key("Right", False)
        assert until(lambda: shown.step().action == 1)

    # Small pictures are enlarged by whole numbers, and stay as they are.
    times = large[1] // len(env.render())
    assert times > 1
    assert np.array_equal(env.render().shape[:2] * np.array(times), large[::-1])


class Slow(Catch):
    """Begins its first episode when it is allowed to."""

    def __init__(self):
        super().__init__()
        self.may_begin = threading.Event()

    def _reset(self):
        assert self.may_begin.wait(PATIENCE)
        return super()._reset()


def test_early_viewers_wait_for_the_first_picture():
    env, port = Slow(), free_port()

    def demonstrate():
        with Demonstration(env, port=port, password="secret"):
            is_over.wait(PATIENCE)

    is_over = threading.Event()
    thread = threading.Thread(target=demonstrate, daemon=True)
    thread.start()
    try:
        # When the other one stands there, the first one has had its turn.
        with (
            at_the_door(("127.0.0.1", port), "secret") as link,
            at_the_door(("127.0.0.1", port), "secret"),
        ):
            env.may_begin.set()
            assert (640, 480) != size_told(link)
    finally:
        env.may_begin.set()
        is_over.set()
        thread.join(PATIENCE)


def test_without_a_pace_each_step_waits_for_a_key_with_an_action():
    env = Catch(seed=3)
    with Person(env, hz=0) as person, DesktopClient(*person.address) as viewer:
        time_step = env.reset()
        viewer.press("x")  # It has no action.
        viewer.press("Left")
        viewer.press("Right")
        assert [0, 2] == [int(person(time_step)) for _ in range(2)]


def test_closing_a_person_ends_its_wait():
    env = Catch(seed=3)
    person = Person(env, hz=0)
    first = env.reset()
    errors = []

    def act():
        try:
            person(first)
        except ClosedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=act)
    thread.start()
    person.close()
    thread.join(PATIENCE)

    assert 1 == len(errors)


def test_a_flood_of_events_ends_the_connection_and_releases_its_keys():
    env = Catch(seed=3)
    with Person(env, hz=0) as person, DesktopClient(*person.address) as viewer:
        assert until(lambda: person.viewers == 1)
        viewer.key("a", True)

        def flood():
            for number in range(10**6):
                viewer.pointer(number % 9, 3, buttons=number % 2)
                viewer.update()

        with pytest.raises(DesktopError):
            flood()
        assert until(lambda: person.viewers == 0)
        person.action()
        assert 1 == int(person.action())


def test_events_beyond_an_actions_limit_wait_for_the_next_steps(game):
    """What a person types faster is for the steps that follow."""
    address = "vnc://{}:{}".format(*game.address)
    typing = Events(["a", "b", "c"], size=(16, 12), limit=2)
    env = Desktop(display=address, actions=typing, reset=None)
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        viewer.press("a", "b", "c")
        done = []
        while len(done) < 6:
            shown.step()
            done += typing.events(shown.action)
    env.close()

    assert [keysym(key) for key in "abccba"] == [event.key for event in done]


# What comes within one step.

LETTERS = [*"ehcoHEL", "space", "Shift_L"]
MENU = [None, "shift", "shift-H", "shift-E", "shift-L", "shift-O", *"echo", "space"]
SCREEN = (16, 12)


def typed(text):
    """Returns the keys of a text as viewers send them: with Shift around capitals."""
    events, is_shifted = [], False
    for letter in text:
        if letter.isupper() != is_shifted:
            is_shifted = not is_shifted
            events.append(KeyEvent(keysym("Shift_L"), is_shifted))
        events += [KeyEvent(keysym(letter), down) for down in (True, False)]
    return events + [KeyEvent(keysym("Shift_L"), False)] * is_shifted


def send_at_once(viewer, *events):
    """Sends events, and waits until the server has them all."""
    assert viewer.update(timeout=PATIENCE)  # The first picture, which stays.
    viewer.send(*events)
    viewer.refresh()
    assert viewer.update(timeout=PATIENCE)


def keyboard_and_mouse():
    keys = Controls([*LETTERS, "O"])
    return Together({"keys": keys, "mouse": ClickGrid(SCREEN, rows=2, columns=2)})


ENCODINGS = {
    "controls": lambda: Controls([*LETTERS, "O"]),
    "controls with a pointer": lambda: Controls(
        ["O", *LETTERS[::-1]], size=SCREEN, pointer=True, buttons=3
    ),
    "events": lambda: Events([*LETTERS, "O"], size=SCREEN, limit=3),
    "macros": lambda: Macros(MENU),
    "several": keyboard_and_mouse,
}


@pytest.fixture
def program():
    """A screen that takes any keys."""
    with served(SCREEN) as (server, events):
        server.events = events
        yield server


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
def test_keys_within_one_step_reach_the_program_in_order(program, encoding):
    address = "vnc://{}:{}".format(*program.address)
    env = Desktop(display=address, actions=encoding(), reset=None)
    wanted = typed("echo HELLO")
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        send_at_once(viewer, *wanted)
        seen = []
        for _ in wanted:
            shown.step()
        while len(seen) < len(wanted):
            seen.append(program.events.get(timeout=PATIENCE))
    env.close()

    assert wanted == seen
    assert program.events.empty()


def test_without_a_pace_keys_reach_the_program_in_order(program):
    env = desktop(program)
    wanted = [KeyEvent(keysym(key), down) for key in "aaa" for down in (True, False)]
    with Person(env, hz=0) as person, DesktopClient(*person.address) as viewer:
        time_step = env.reset()
        send_at_once(viewer, *wanted)
        for _ in wanted:
            time_step = env.step(person(time_step))
        seen = [program.events.get(timeout=PATIENCE) for _ in wanted]
    env.close()

    assert wanted == seen


MOUSE = {"actions": Controls(size=SCREEN, pointer=True, buttons=1)}


@pytest.mark.parametrize(
    ("options", "pressed", "released"),
    [
        ({}, KeyEvent(keysym("a"), True), KeyEvent(keysym("a"), False)),
        (MOUSE, PointerEvent(3, 4, 1), PointerEvent(3, 4, 0)),
    ],
    ids=["key", "button"],
)
def test_without_a_pace_a_release_reaches_the_program(
    program, options, pressed, released
):
    with desktop(program, **options) as env, Person(env, hz=0) as person:
        time_step = env.reset()
        with DesktopClient(*person.address) as viewer:
            send_at_once(viewer, pressed)
            time_step = env.step(person(time_step))
            assert pressed == program.events.get(timeout=PATIENCE)
            viewer.send(released)
            env.step(person(time_step))
            assert released == program.events.get(timeout=PATIENCE)


def test_without_a_pace_a_menu_without_none_steps_only_on_presses(program):
    menu = Macros(["Left", "a"])
    with desktop(program, actions=menu) as env, Person(env, hz=0) as person:
        time_step = env.reset()
        with DesktopClient(*person.address) as viewer:
            viewer.press("a")
            viewer.press("Left")
            assert [1, 0] == [int(person(time_step)) for _ in range(2)]


def test_clicks_within_one_step_reach_the_program_where_they_were(program):
    """Two clicks at one place, and something that is dragged."""
    address = "vnc://{}:{}".format(*program.address)
    controls = Controls(size=SCREEN, pointer=True, buttons=1)
    env = Desktop(display=address, actions=controls, reset=None)
    places = [(3, 4, 1), (3, 4, 0), (3, 4, 1), (3, 4, 0), (9, 9, 0), (9, 9, 1)]
    wanted = [PointerEvent(*place) for place in [*places, (1, 2, 1), (1, 2, 0)]]
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        send_at_once(viewer, *wanted)
        for _ in wanted:
            shown.step()
        seen = []
        while wanted[-1] not in seen:
            seen.append(program.events.get(timeout=PATIENCE))
    env.close()

    def changes(events):
        """Returns where buttons have gone down and up."""
        before = [0, *(event.buttons for event in events)]
        return [
            event
            for event, buttons in zip(events, before, strict=False)
            if event.buttons != buttons
        ]

    assert changes(wanted) == changes(seen)


def test_each_click_within_one_step_becomes_an_action():
    grid = ClickGrid(SCREEN, rows=2, columns=2)
    pending = PendingEvents()
    for x, y in [(3, 3), (12, 3), (12, 9)]:
        pending.put(PointerEvent(x, y, 1))
        pending.put(PointerEvent(x, y, 0))
    assert [1, 2, 4, 0] == [
        int(grid.array(pending.pop_fitting(grid))) for _ in range(4)
    ]


def test_a_menu_entry_of_several_events_is_one_action():
    menu = Macros([None, "a", ["ctrl-c"]])
    pending = PendingEvents()
    keys = [("a", True), ("a", False), ("ctrl", True), ("c", True), ("c", False)]
    for key, down in [*keys, ("ctrl", False), ("a", True)]:
        pending.put(KeyEvent(keysym(key), down))
    assert [1, 0, 2, 1] == [
        int(menu.array(pending.pop_fitting(menu))) for _ in range(4)
    ]


def test_each_play_key_within_one_step_becomes_an_action():
    env = Catch(seed=3)
    with Demonstration(env) as shown, DesktopClient(*shown.address) as viewer:
        keys = ["Left", "Right", "x", "Left", "Left"]
        events = [KeyEvent(keysym(key), down) for key in keys for down in (True, False)]
        send_at_once(viewer, *events, KeyEvent(keysym("Right"), True))
        actions = [int(shown.step().action) for _ in range(6)]

    assert [0, 2, 0, 0, 2, 2] == actions


class TwoSticks(CountingEnv):
    def action_spec(self):
        return BoundedArraySpec((2,), np.int64, -1, 1)


def test_play_keys_with_a_joint_meaning_become_one_action():
    actions, pending = KeyboardActions(TwoSticks()), PendingEvents()
    for key in ("Left", "Up", "Right"):
        pending.put(KeyEvent(keysym(key), True))
    taken = [actions.array(pending.pop_fitting(actions)).tolist() for _ in range(3)]

    assert [[-1, 1], [1, 1], [1, 1]] == taken


def test_a_repeating_key_takes_no_step():
    controls, pending = Controls(["a", "b"]), PendingEvents()
    for key in "aaaaab":
        pending.put(KeyEvent(keysym(key), True))
    taken = [controls.array(pending.pop_fitting(controls))["keys"] for _ in range(2)]

    assert [[True, False], [True, True]] == [flags.tolist() for flags in taken]


def test_an_encoding_without_fitting_gets_all_events():
    pending = PendingEvents()
    for key in "abc":
        pending.put(KeyEvent(keysym(key), True))
    assert 3 == len(pending.pop_fitting(object()))


def test_held_keys_are_released_at_the_end_of_an_episode(game):
    env = desktop(game, done=lambda frame: frame.max() > 0)
    with (
        Person(env, hz=500.0, end_pause=0.0) as person,
        DesktopClient(*person.address) as viewer,
    ):
        viewer.key("a", True)
        time_step = env.reset()
        while not time_step.is_last():
            time_step = env.step(person(time_step))
        time_step = env.step(person(time_step))
        first = time_step.is_first()
    env.close()

    assert first
    pressed, released = (game.events.get(timeout=PATIENCE) for _ in range(2))
    assert [(keysym("a"), True), (keysym("a"), False)] == [pressed, released]


@pytest.mark.parametrize("hz", [0, 500.0])
def test_the_last_viewer_to_leave_releases_its_keys(game, hz):
    with desktop(game) as env, Person(env, hz=hz) as person:

        def play():
            with contextlib.suppress(ClosedError):
                time_step = env.reset()
                while True:
                    time_step = env.step(person(time_step))

        playing = threading.Thread(target=play)
        playing.start()
        with DesktopClient(*person.address) as viewer:
            viewer.key("a", True)
            pressed = game.events.get(timeout=PATIENCE)
        released = game.events.get(timeout=PATIENCE)
        person.close()
        playing.join(PATIENCE)

    assert [(keysym("a"), True), (keysym("a"), False)] == [pressed, released]


def test_the_password_is_random_by_default():
    with make("Catch") as env, Demonstration(env) as shown:
        assert 8 == len(shown.password)
        with pytest.raises(DesktopError, match="refuses the password"):
            DesktopClient(*shown.address, password="wrong")
        DesktopClient(*shown.address, password=shown.password).close()
    with make("Catch") as env, Demonstration(env, password=None) as shown:
        assert shown.password is None
        DesktopClient(*shown.address).close()
