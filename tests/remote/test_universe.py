"""Remotes of OpenAI Universe: what a client of 2017 is told, and our client of them.

That client itself needs Python 3.6; `Client` speaks to the rewarder as it does.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import ssl
import subprocess
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import make
from envkit.desktop import DesktopClient, DesktopError, PixelFormat
from envkit.desktop.keys import KeyEvent, key_name
from envkit.desktop.protocol import Entered, Greeted, Proof, ServerProtocol
from envkit.errors import CallOrderError, ClosedError, SpecError, WorkerError
from envkit.realtime import BlockingReset, universe_view
from envkit.remote import universe
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.remote.rewarder import RewarderError, authorization
from envkit.remote.rewarder_sockets import RewarderLink
from tests.remote import recorded_universe
from tests.remote.pad import FIRE, LEFT, RIGHT, UP
from tests.remote.serving import certificate_in
from tests.waiting import PATIENCE, until

pytest.importorskip("websockets", reason="websockets is not installed")

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from envkit.remote.universe_client import remotes_in

PAD = "Pad=tests.remote.pad:Pad"


@contextlib.contextmanager
def served(*targets, **options):
    """Serves environments at free ports."""
    offers = [Offer(target) for target in targets or (PAD,)]
    remote = universe.serve(
        Menu(offers), ServeOptions(port=0, **{"password": None, **options})
    )
    try:
        yield remote
    finally:
        remote.close("the test is over")


def address_of(remote):
    return remote.line.removeprefix("universe: vnc://")


class Told(NamedTuple):
    """A message of the rewarder, as it is in JSON."""

    method: str
    body: dict[str, Any]
    headers: dict[str, Any]


class Client:
    """Speaks to a rewarder as the client of 2017 does."""

    def __init__(self, remote, password="openai", observer=False):
        host, port = remote.rewarder.address
        headers = {"openai-observer": "true" if observer else "false"}
        if password is not None:
            headers["authorization"] = authorization(password)
        connecting = connect(
            f"ws://{host}:{port}",
            additional_headers=headers,
            compression=None,
            max_queue=None,
            open_timeout=PATIENCE,
        )
        self.stack = contextlib.ExitStack()
        self.link = self.stack.enter_context(connecting)
        self.count = 0
        self.seen = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def say(self, method, body=None, **headers):
        """Sends a message, and returns its number."""
        number, self.count = self.count, self.count + 1
        own = {"message_id": number, "sent_at": time.time(), **headers}
        self.link.send(
            json.dumps({"method": method, "body": body or {}, "headers": own})
        )
        return number

    def read(self):
        """Returns the next message."""
        message = Told(**json.loads(self.link.recv(timeout=PATIENCE)))
        self.seen.append(message)
        return message

    def until(self, is_it):
        """Returns the first message that is meant."""
        while not is_it(message := self.read()):
            pass
        return message

    def reply(self, number):
        return self.until(lambda it: it.headers.get("parent_message_id") == number)

    def reset(self, env_id=None, episode=0, **body):
        """Asks for a reset, and returns the reply."""
        body = {"env_id": env_id, "seed": None, "fps": 60, **body}
        return self.reply(self.say("v0.env.reset", body, episode_id=str(episode)))

    def described(self, state):
        return self.until(
            lambda it: it.method == "v0.env.describe" and it.body["env_state"] == state
        )

    def reward(self, value):
        return self.until(
            lambda it: it.method == "v0.env.reward" and it.body["reward"] == value
        )


def viewer(remote, password="openai"):
    return DesktopClient(*remote.desktop.address, password=password)


def test_a_client_receives_the_environments_state_and_can_reset_it():
    with served() as remote, Client(remote) as client:
        first = client.read()
        assert "v0.env.describe" == first.method
        assert ("Pad-v0", "running") == (first.body["env_id"], first.body["env_state"])
        assert 60.0 == first.body["fps"]

        ping = client.say("v0.control.ping")
        pong = client.reply(ping)
        assert ("v0.reply.control.ping", {}) == (pong.method, pong.body)
        assert 0 <= pong.headers["parent_runtime"] < PATIENCE

        client.seen.clear()
        reply = client.reset("Pad-v0")
        number = reply.headers["episode_id"]
        assert ("v0.reply.env.reset", {}) == (reply.method, reply.body)
        assert int(first.headers["episode_id"]) < int(number)
        running = client.described("running")
        told = [
            (it.body["env_state"], it.headers["episode_id"])
            for it in client.seen
            if it.method == "v0.env.describe"
        ]
        assert [("resetting", number), ("running", number)] == told
        assert running is client.seen[-1]
        reward = client.reward(0)
        assert {"reward": 0.0, "done": False, "info": {}} == reward.body
        assert number == reward.headers["episode_id"]


def test_small_observations_are_sent():
    with served() as remote, Client(remote) as client:
        number = client.reset().headers["episode_id"]
        first = client.until(
            lambda it: (
                it.method == "v0.env.observation" and it.headers["episode_id"] == number
            )
        )
        assert first.body["observation"] >= 100
        later = client.until(lambda it: it.method == "v0.env.observation")
        assert {"observation": 0} == later.body


def test_messages_have_a_number_and_a_time():
    with served() as remote, Client(remote) as client:
        client.reset()
        for _ in range(5):
            client.read()
        numbers = [it.headers["message_id"] for it in client.seen]
        assert list(range(len(numbers))) == numbers
        times = [it.headers["sent_at"] for it in client.seen]
        assert sorted(times) == times
        assert abs(times[-1] - time.time()) < PATIENCE


def test_keys_become_actions_and_rewards_are_sent():
    with served() as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        client.described("running")
        screen.key("Left", True)
        client.reward(LEFT)
        screen.key("Right", True)  # The newer key counts.
        client.reward(RIGHT)
        screen.key("Right", False)
        client.reward(LEFT)
        screen.key("Left", False)
        client.reward(0)
        screen.press("Right")  # Shorter than a tick.
        client.reward(RIGHT)
        client.reward(0)
        assert until(lambda: screen.update(0.1) or screen.frame.max() == 0)


def test_a_latency_probe_is_no_action_and_is_answered_in_the_picture():
    with served() as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        client.described("running")
        screen.key("Left", True)
        client.reward(LEFT)
        assert until(lambda: screen.update(0.1) or (screen.frame == LEFT).all())
        before = time.time()
        screen.press(universe.PROBE_KEY)

        def is_stamped():
            screen.update(0.1)
            return screen.frame[-1, 1].tolist() == [0x89, 0x0A, 0xBC]

        assert until(is_stamped)
        corner = screen.frame[-2:, :6]
        assert [[0x12, 0x34, 0x56], [0x78, 0x90, 0xAB]] == corner[0, :2].tolist()
        assert [[0x23, 0x45, 0x67], [0x89, 0x0A, 0xBC]] == corner[1, :2].tolist()
        now, probed = (
            int.from_bytes(corner[0, at : at + 2].tobytes(), "big") / 1000
            for at in (2, 4)
        )
        assert before - 0.01 <= probed <= now <= time.time()
        for _ in range(20):
            message = client.read()
            assert message.body.get("reward", LEFT) == LEFT


def test_a_picture_without_room_for_a_stamp_is_unchanged():
    for shape in [(1, 8, 3), (6, 5, 3)]:
        picture = np.zeros(shape, np.uint8)
        assert picture is universe.stamped(picture, 1.0, 1.0)
    mistaken = np.full((6, 8, 3), (0x12, 0x34, 0x56), np.uint8)
    assert mistaken is universe.stamped(mistaken, 1.0, 1.0)


ENDS = {"a termination": ("space", FIRE, 0.0), "a truncation": ("Up", UP, 1.0)}


@pytest.mark.parametrize(("key", "reward", "discount"), ENDS.values(), ids=ENDS)
def test_the_end_of_an_episode_is_sent_before_the_next_one(key, reward, discount):
    with served() as remote, Client(remote) as client, viewer(remote) as screen:
        number = int(client.reset().headers["episode_id"])
        client.described("running")
        screen.press(key)
        done = client.reward(reward)
        assert {"discount": discount} == done.body["info"]
        assert (True, str(number)) == (done.body["done"], done.headers["episode_id"])
        told = [client.read(), client.read()]
        assert ["resetting", "running"] == [it.body["env_state"] for it in told]
        assert [str(number + 1)] * 2 == [it.headers["episode_id"] for it in told]


def test_a_click_presses_the_space_bar_and_an_episode_begins_without_keys():
    with served() as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        client.described("running")
        screen.key("Left", True)
        client.reward(LEFT)
        screen.pointer(3, 3, buttons=1)
        assert client.reward(FIRE).body["done"] is True
        client.described("running")
        client.reward(0)


def test_the_rewarder_accepts_actions():
    with served() as remote, Client(remote) as client:
        client.reset()
        client.described("running")
        events = [
            ["JoystickAxisXEvent", 0.5],
            ["PointerEvent", 1, 2, 0],
            ["KeyEvent", 0xFF53, True],
        ]
        client.say("v0.agent.action", {"env_id": "Pad-v0", "action": events})
        client.reward(RIGHT)


def test_a_joystick_presses_arrow_keys_if_actions_are_choices():
    with served() as remote, Client(remote) as client:
        client.reset()
        for axes, reward in [
            ([["JoystickAxisXEvent", -0.9]], LEFT),
            ([["JoystickAxisXEvent", 0.9]], RIGHT),
            ([["JoystickAxisXEvent", 0], ["JoystickAxisYEvent", 0.1]], 0),
        ]:
            client.say("v0.agent.action", {"env_id": "Pad-v0", "action": axes})
            client.reward(reward)


def test_a_joystick_sets_the_numbers_of_an_action():
    wheel = "tests.remote.pad:Wheel"
    with served(wheel) as remote, joined(remote) as env:
        begun(env)
        # The second number is from 0 to 1.
        events = [("JoystickAxisXEvent", -0.5), ("JoystickAxisYEvent", 1.0)]
        play(env, events, lambda it: it.reward[0] <= -50 + 1)
        events = [("JoystickAxisXEvent", 0.25), ("JoystickAxisYEvent", -1.0)]
        play(env, events, lambda it: it.reward[0] >= 25)


def test_an_environment_with_a_sync_id_waits_for_each_action():
    with served("Catch") as remote, Client(remote) as client:
        assert "v0.reply.env.reset" == client.reset("gym-core.CatchLowDSync-v1").method
        described = client.described("running")
        assert "CatchSync-v1" == described.body["env_id"]
        client.seen.clear()  # Steps before the reset may have been reported.
        with viewer(remote) as screen:
            for step in range(9):
                screen.key("c", True)
                screen.key("c", False)
                told = client.until(lambda it: it.method == "v0.env.reward")
                assert (step == 8) is told.body["done"]
            # No step is made unasked, and each picture has the time at which it is.
            client.until(lambda it: it.method == "v0.env.describe")
            before = told.headers["sent_at"]
            assert until(lambda: screen.update(0.1) and stamp_of(screen.frame) > before)
        client.say("v0.agent.action", {"action": [["KeyEvent", 0x63, True]]})
        client.until(lambda it: it.method == "v0.env.reward")
        rewards = [it for it in client.seen if it.method == "v0.env.reward"]
        assert 10 == len(rewards)


def stamp_of(picture):
    """Returns the time that is drawn into the corner of a picture."""
    numbers = picture[-2, 2:4].reshape(-1).tolist()
    return int.from_bytes(bytes(numbers), "big") / 1000


POINTED = ["Aimed", "AimedByFloats", "AimedByParts", "AimedByEncoding"]


@pytest.mark.parametrize("kind", POINTED)
def test_the_pointer_sets_an_actions_position(kind):
    target = f"tests.remote.pad:{kind}"
    with served(target) as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        client.described("running")
        for x, y in [(0, 0), (7, 0), (0, 5), (7, 5), (3, 2)]:
            screen.pointer(x, y)
            client.reward(x + 10 * y)
        screen.pointer(900, 900)  # Beyond the picture it is at its edge.
        client.reward(57)


@pytest.mark.parametrize("kind", ["Aimed", "AimedByParts", "AimedByEncoding"])
def test_the_pointers_buttons_set_the_actions_buttons(kind):
    target = f"tests.remote.pad:{kind}"
    with served(target) as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        client.described("running")
        screen.pointer(3, 2, buttons=1)
        client.reward(123)
        screen.pointer(3, 2, buttons=5)
        client.reward(323)
        screen.pointer(4, 2, buttons=4)
        client.reward(224)
        # A click that is shorter than a tick counts where it was made.
        for buttons in (0, 1, 0):
            screen.pointer(1, 1, buttons=buttons)
        screen.pointer(6, 1)
        client.reward(111)
        client.reward(16)


def test_a_pressed_key_has_precedence_over_the_pointer():
    target = "tests.remote.pad:AimedByFloats"
    with served(target) as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        client.described("running")
        screen.pointer(7, 5)
        client.reward(57)
        screen.key("Left", True)  # The other number is in its middle meanwhile.
        client.until(lambda it: it.body.get("reward") in (20, 30))
        screen.key("Left", False)
        client.reward(57)


def test_an_episode_begins_without_a_pointer():
    target = "tests.remote.pad:AimedByParts"
    with served(target) as remote, Client(remote) as client, viewer(remote) as screen:
        client.reset()
        screen.pointer(7, 5, buttons=1)
        client.reward(157)
        client.reset()
        client.described("running")
        client.reward(0)


def test_the_rewarder_accepts_pointer_events_from_both_clients():
    with served("tests.remote.pad:Aimed") as remote, joined(remote) as env:
        begun(env)
        aimed = [("PointerEvent", 5, 4, 1)]
        play(env, aimed, lambda it: it.reward[0] >= 145)
    with served("tests.remote.pad:Aimed") as remote, Client(remote) as client:
        client.reset()
        client.say("v0.agent.action", {"action": [["PointerEvent", 5, 4, 1]]})
        client.reward(145)


def texts(client):
    return [
        (it.headers["episode_id"], it.body["text"])
        for it in client.seen
        if it.method == "v0.env.text"
    ]


def test_an_environments_texts_are_sent_with_their_episode():
    target = "tests.remote.pad:Talking"
    with served(target) as remote, Client(remote) as client, viewer(remote) as screen:
        number = int(client.reset().headers["episode_id"])
        client.until(lambda it: it.body.get("text") == "hello")
        mission = remote._game._env.resets
        screen.press("Left")
        client.reward(LEFT)
        screen.press("space")
        client.until(lambda it: it.body.get("done"))
        client.until(lambda it: it.body.get("text") == "hello")
        told = [(int(episode), text) for episode, text in texts(client)]
        assert [
            (number, f"mission {mission}"),
            (number, "hello"),
            (number, f"key {LEFT}"),
            (number, f"key {FIRE}"),
            (number + 1, f"mission {mission + 1}"),
            (number + 1, "hello"),
        ] == [one for one in told if one[0] >= number]


def test_envkits_client_has_the_texts_in_its_infos():
    target = "tests.remote.pad:Talking"
    with served(target) as remote, joined(remote) as env:
        begun(env)
        said = []

        def hears(it):
            said.extend(env.get_info()[0]["universe"]["env.text"])
            return it.is_last()[0]

        said.extend(env.get_info()[0]["universe"]["env.text"])
        mission = remote._game._env.resets
        assert until(lambda: play(env, [], lambda it: hears(it) or True) and said)
        play(env, [("KeyEvent", "space", True)], hears)
        assert [f"mission {mission}", "hello", f"key {FIRE}"] == said
        view = universe_view(env)
        view.reset()
        assert until(lambda: view.step([[]])[3]["n"][0].get("env.text"))


def test_the_desktop_understands_the_keys_of_universes_driver():
    desktop, keys = ServerProtocol(), []
    event = desktop.receive(recorded_universe.DRIVER)
    while event is not None:
        if isinstance(event, Greeted):
            desktop.offer(recorded_universe.CHALLENGE)
        elif isinstance(event, Proof):
            assert event.knows("openai")
            desktop.accept()
        elif isinstance(event, Entered):
            desktop.begin((8, 6), PixelFormat().pack(), "Pad-v0")
        elif isinstance(event, KeyEvent):
            keys.append(event)
        event = desktop.receive()
    assert 16 == len(keys)
    pressed = {key_name(event.key) for event in keys if event.key != universe.PROBE_KEY}
    assert {"Left", "space"} == pressed
    assert universe.PROBE_KEY in {event.key for event in keys}


REFUSED = {
    "a wrong password": ("wrong", "The password is not this server's."),
    "no password": (None, "There is no password. It must be the user name"),
}


@pytest.mark.parametrize(("password", "text"), REFUSED.values(), ids=REFUSED)
def test_a_client_without_the_password_gets_a_reason_and_is_disconnected(
    password, text
):
    with served() as remote, Client(remote, password) as client:
        message = client.read()
        assert "v0.connection.close" == message.method
        assert message.body["message"].startswith(text)
        with pytest.raises(ConnectionClosed):
            client.read()


def test_the_desktop_and_the_rewarder_have_the_same_password():
    with (
        served(password="sesame") as remote,
        Client(remote, "sesame") as client,
        viewer(remote, "sesame") as screen,
    ):
        assert "v0.env.describe" == client.read().method
        assert (8, 6) == screen.size
        with pytest.raises(DesktopError, match=r"The password is wrong\.$"):
            viewer(remote)


def test_only_one_client_may_act_and_observers_watch():
    with served() as remote, Client(remote) as first, Client(remote) as second:
        first.reset()
        second.say("v0.control.ping")
        message = second.until(lambda it: it.method == "v0.connection.close")
        assert message.body["message"].startswith("There is already an active client")
        with pytest.raises(ConnectionClosed):
            second.read()

        with Client(remote, observer=True) as watching:
            assert "v0.env.describe" == watching.read().method
            assert (
                "v0.reply.control.ping"
                == watching.reply(watching.say("v0.control.ping")).method
            )
            refusal = watching.reset()
            assert "v0.reply.error" == refusal.method
            said = refusal.body["message"]
            assert "An observer must not send 'v0.env.reset'." == said
            watching.reward(0)

        first.link.close()
        assert until(lambda: remote.rewarder.clients == 0)
        with Client(remote) as third:
            assert "v0.reply.env.reset" == third.reset().method


def test_clients_choose_environments_by_gym_ids():
    with served("Catch", PAD) as remote, Client(remote) as client:
        assert "Catch-v1" == client.read().body["env_id"]
        for asked, found in [
            ("Pad-v0", "Pad-v0"),
            ("gym-core.Catch-v0", "Catch-v1"),
            (None, "Catch-v1"),
            ("Pad", "Pad-v0"),
        ]:
            assert "v0.reply.env.reset" == client.reset(asked).method
            assert found == client.described("running").body["env_id"]
        refusal = client.reset("gym-core.Pong-v3")
        assert ("v0.reply.error", "This server has no environment") == (
            refusal.method,
            refusal.body["message"][:30],
        )
        client.reward(0)  # and everything goes on


ASKED_WRONGLY = {
    "a method that is not there": (
        "v0.env.fly",
        {},
        "There is no method 'v0.env.fly",
    ),
    "a seed that is text": ("v0.env.reset", {"seed": "x"}, "seed must be an integer"),
    "a seed below 0": ("v0.env.reset", {"seed": -5}, "seed must be an integer of at"),
    "a seed that is too large": ("v0.env.reset", {"seed": 2**63}, "seed must be an"),
    "a pace of nothing": ("v0.env.reset", {"fps": 0}, "fps must be a number from 1 to"),
    "an id of a list": ("v0.env.reset", {"env_id": []}, "env_id must be text, got []"),
    "an action that is text": ("v0.agent.action", {"action": "x"}, "action must be a"),
    "an event beyond all screens": (
        "v0.agent.action",
        {"action": [["PointerEvent", float("inf"), 0, 0]]},
        "action must be a list of events: a key and whether it is down",
    ),
    "an event of nothing": (
        "v0.agent.action",
        {"action": [["KeyEvent", None]]},
        "action must be a list of events: a key and whether it is down, three "
        "integers for the pointer, or an axis and a number from -1 to 1, got "
        "[['KeyEvent', None]].",
    ),
}


@pytest.mark.parametrize(
    ("method", "body", "text"), ASKED_WRONGLY.values(), ids=ASKED_WRONGLY
)
def test_a_wrong_request_is_answered_with_its_reason(method, body, text):
    with served() as remote, Client(remote) as client:
        reply = client.reply(client.say(method, body))
        assert "v0.reply.error" == reply.method
        assert reply.body["message"].startswith(text)


def test_a_client_cannot_end_an_episode_far_in_the_future():
    with served() as remote, Client(remote) as client:
        refusal = client.reset(episode=10**14)
        assert "v0.reply.error" == refusal.method
        assert refusal.body["message"].startswith("There is no episode 1000000")
        assert "2" == client.reset().headers["episode_id"]


@pytest.mark.parametrize("num_workers", [None, 1])
def test_a_seed_that_the_environment_rejects_is_refused(num_workers):
    offer = Offer("tests.remote.pad:Superstitious", num_workers=num_workers)
    options = ServeOptions(port=0, password=None)
    remote = universe.serve(Menu([offer]), options)
    try:
        with Client(remote) as client:
            refusal = client.reset(seed=13)
            assert "v0.reply.error" == refusal.method
            told = "The environment refuses the seed 13: "
            assert refusal.body["message"].startswith(told)
            assert "unlucky" in refusal.body["message"]
            assert "v0.reply.env.reset" == client.reset(seed=14).method
            assert remote.ended() is None
    finally:
        remote.close("the test is over")


def test_a_resets_seed_and_pace_reach_the_environment():
    with served() as remote, Client(remote) as client:
        client.reset(seed=7, fps=30)
        assert 30.0 == client.described("running").body["fps"]
        assert [7] == remote._game._env.seeds


def test_a_second_reset_during_the_first_changes_nothing():
    with served() as remote, Client(remote) as client:
        pad = remote._game._env
        client.reset()
        before = pad.resets
        pad.gate.clear()
        first = client.say("v0.env.reset", {}, episode_id="0")
        client.described("resetting")
        second = client.say("v0.env.reset", {}, episode_id="0")
        client.reply(client.say("v0.control.ping"))  # so the second one is there
        pad.gate.set()
        replies = [client.reply(first), client.reply(second)]
        numbers = {reply.headers["episode_id"] for reply in replies}
        assert (1, before + 1) == (len(numbers), pad.resets)


def ask_twice(client, first, second, episode, between=lambda: None):
    """Asks for two resets of one episode, and returns the episodes of the replies."""
    asked = client.say("v0.env.reset", first, episode_id=episode)
    between()
    again = client.say("v0.env.reset", second, episode_id=episode)
    replies = [client.reply(asked), client.reply(again)]
    return [int(reply.headers["episode_id"]) for reply in replies]


SAME = {"seed": None, "fps": 60}


def test_two_resets_in_a_row_begin_one_episode():
    """As Universe's client asks: with the episode that it knows."""
    with served() as remote, Client(remote) as client:
        pad = remote._game._env
        for _ in range(20):
            known = client.reset().headers["episode_id"]
            before = pad.resets
            replies = ask_twice(client, SAME, SAME, known)
            assert [int(known) + 1] * 2 == replies
            assert before + 1 == pad.resets
        told = {
            it.headers["episode_id"]
            for it in client.seen
            if it.method == "v0.env.describe"
        }
        assert set(map(str, range(1, 42))) == told


def test_a_reset_sent_before_the_reply_to_the_last_one_changes_nothing():
    """However long it takes: the client says that it does not know the episode."""
    with served() as remote, Client(remote) as client:
        known = client.reset().headers["episode_id"]
        begun = client.reset(episode=known).headers["episode_id"]
        client.described("running")
        client.reward(0)
        assert begun == client.reset(episode=known).headers["episode_id"]
        later = client.reset(episode=begun).headers["episode_id"]
        assert int(begun) + 1 == int(later)


def test_a_reset_sent_upon_the_reply_to_the_last_one_begins_another_episode(
    monkeypatch,
):
    with served() as remote, Client(remote) as client:
        reply = remote.rewarder.reply

        def reply_and_wait(request, message):
            monkeypatch.undo()
            reply(request, message)
            assert until(lambda: remote._pending)

        monkeypatch.setattr(remote.rewarder, "reply", reply_and_wait)
        replies = [client.reset(), client.reset()]
        assert ["2", "3"] == [reply.headers["episode_id"] for reply in replies]


def test_a_second_reset_while_the_first_waits_changes_nothing():
    """Even of a client that knows no episode, and before the remote resets."""
    with served("tests.remote.pad:Slow") as remote, Client(remote) as client:
        pad = remote._game._env
        client.reset()
        client.described("running")
        pad.going_on.clear()
        assert pad.is_stuck.wait(PATIENCE)
        before = pad.resets
        asked = [client.say("v0.env.reset", SAME, episode_id="0") for _ in range(3)]
        client.reply(client.say("v0.control.ping"))  # so all of them are there
        pad.going_on.set()
        numbers = {client.reply(each).headers["episode_id"] for each in asked}
        assert (1, before + 1) == (len(numbers), pad.resets)


def test_a_reset_with_another_seed_is_carried_out():
    with served() as remote, Client(remote) as client:
        pad = remote._game._env
        known = client.reset().headers["episode_id"]
        seeded = {"seed": 3, "fps": 60}
        first, second = ask_twice(client, seeded, seeded, known)
        assert (first, [3]) == (second, pad.seeds)
        first, second = ask_twice(client, seeded, {"seed": 4}, str(second))
        assert (first + 1, [3, 3, 4]) == (second, pad.seeds)
        # The last one has a seed already: it is an episode as any other.
        first, second = ask_twice(client, {"seed": 5}, SAME, str(second))
        assert (first, [3, 3, 4, 5]) == (second, pad.seeds)


def test_a_repeated_reset_still_sets_the_pace():
    with served() as remote, Client(remote) as client:
        known = client.reset().headers["episode_id"]
        first, second = ask_twice(client, SAME, {"seed": None, "fps": 30}, known)
        assert first == second
        described = client.until(
            lambda it: it.method == "v0.env.describe" and it.body["fps"] == 30.0
        )
        assert (str(first), "running") == (
            described.headers["episode_id"],
            described.body["env_state"],
        )


def test_the_environment_pauses_while_there_are_no_clients():
    with served() as remote:
        with Client(remote) as client:
            client.reward(0)
        assert until(lambda: remote.rewarder.clients == 0)
        shown = []

        def stands():
            shown.append(remote._episodes.number)
            return True

        assert until(stands)
        with Client(remote) as client:
            assert str(shown[0]) == client.read().headers["episode_id"]


def test_an_environment_that_raises_ends_the_service_with_a_reason():
    with (
        served("tests.remote.pad:Fragile") as remote,
        Client(remote) as client,
        viewer(remote) as screen,
    ):
        client.reset()
        client.described("running")
        assert remote.ended() is None
        screen.press("space")
        message = client.until(lambda it: it.method == "v0.connection.close")
        assert (
            "The environment raised RuntimeError: the fire is out"
            == (message.body["message"])
        )
        assert "RuntimeError: the fire is out" == remote.ended()


def test_an_environment_that_crashes_in_its_process_is_replaced():
    offer = Offer("Pad=tests.remote.pad:Crashing", num_workers=1)
    remote = universe.serve(Menu([offer]), ServeOptions(port=0, password=None))
    try:
        with Client(remote) as client, viewer(remote) as screen:
            client.reset()
            client.described("running")
            screen.key("space", True)
            told = client.until(
                lambda it: it.method == "v0.env.reward" and "loss" in it.body["info"]
            )
            assert (0.0, False) == (told.body["reward"], told.body["done"])
            assert "crashed" == told.body["info"]["loss"]
            assert "was killed by SIGABRT" in told.body["info"]["error"]
            texts = [
                it.body["text"] for it in client.seen if it.method == "v0.env.text"
            ]
            assert told.body["info"]["error"] in texts
            running = client.described("running")
            lost, number = (int(it.headers["episode_id"]) for it in (told, running))
            assert lost < number
            assert not any(
                it.body["done"] for it in client.seen if it.method == "v0.env.reward"
            )
            screen.key("space", False)
            screen.key("Left", True)
            client.reward(LEFT)
    finally:
        remote.close("the test is over")


def test_envkits_client_marks_an_environment_that_its_server_has_lost():
    offer = Offer("Pad=tests.remote.pad:Crashing", num_workers=1)
    remote = universe.serve(Menu([offer]), ServeOptions(port=0, password=None))
    try:
        with joined(remote) as env:
            begun(env)
            fire = [("KeyEvent", "space", True)]
            last = play(env, fire, lambda it: it.is_last()[0])
            assert (0.0, 1.0) == (last.reward[0], last.discount[0])
            assert env.repaired.tolist() == [True]
            (loss,) = env.losses()
            assert (0, "crashed") == (loss.row, loss.kind), loss.error
            assert "was killed by SIGABRT" in str(loss.error)
            first = play(env, [], lambda it: True)
            assert first.is_first()[0]
            assert env.repaired.tolist() == [False]
    finally:
        remote.close("the test is over")


def test_clients_learn_that_the_server_ends():
    with served() as remote, Client(remote) as client:
        remote.close("the shop is closed")
        message = client.until(lambda it: it.method == "v0.connection.close")
        assert "the shop is closed" == message.body["message"]


def test_the_command_serves_until_a_signal():
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "serve", PAD, "--universe", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        line = process.stdout.readline()
        try:
            where = re.fullmatch(r"universe: vnc://(127\.0\.0\.1:\d+\+\d+)\n", line)
            with make(f"universe://{where[1]}") as env:
                assert [0] == begun(env).time_step.step_type.tolist()
        finally:
            process.terminate()
        process.stdout.read()
    assert 143 == process.returncode


def test_a_closing_server_does_not_wait_for_its_environment():
    with served() as remote, Client(remote) as client:
        pad = remote._game._env
        pad.gate.clear()
        client.say("v0.env.reset")
        client.described("resetting")
        remote.close("the test is over")
        pad.gate.set()
        remote._thread.join(PATIENCE)
        assert (False, None) == (remote._thread.is_alive(), remote.ended())


def test_no_text_of_a_client_harms_more_than_its_connection():
    parts = st.sampled_from(
        [
            b'{"method": "v0.env.reset", "body": {"env_id": "Pad-v0"}, "headers": {}}',
            b'{"method": "v0.agent.action", "body": {"action": [[[]]]}}',
            b'{"method": "v0.env.reset", "headers": {"episode_id": "-1"}}',
            b"[" * 2000,
            b'{"method": {}}',
            b"null",
            b"\xff\xfe",
        ]
    )

    with served() as remote, Client(remote, observer=True) as good:
        # The byte of a message to change, and its new value. All are drawn before the
        # first message is sent, because any of them may end the connection.
        changes = st.none() | st.tuples(st.integers(0, 2000), st.integers(0, 255))
        texts = parts | st.binary(max_size=40)

        @given(st.lists(st.tuples(texts, changes), max_size=5))
        def attack(messages):
            with Client(remote) as bad, contextlib.suppress(ConnectionClosed):
                for data, change in messages:
                    changed = bytearray(data)
                    if changed and change is not None:
                        changed[change[0] % len(changed)] = change[1]
                    try:
                        bad.link.send(changed.decode())
                    except UnicodeDecodeError:
                        bad.link.send(bytes(changed))
                bad.link.close()

        attack()
        good.reply(good.say("v0.control.ping"))
        assert remote.ended() is None


# Our client.


@contextlib.contextmanager
def joined(*remotes, **options):
    """Connects with remotes."""
    where = ",".join(map(address_of, remotes))
    with make(f"universe://{where}", **options) as env:
        yield env


def begun(env, count=1):
    env.reset_async()
    return env.recv(count, timeout=PATIENCE)


def play(env, action, is_over):
    """Steps the first row until something holds of a time step.

    Its events are sent once: a second time they could reach the next episode.
    """
    while True:
        env.send([action], [0])
        batch = env.recv(1, timeout=PATIENCE)
        assert 1 == len(batch.env_ids)
        if is_over(batch.time_step):
            return batch.time_step
        action = []


def test_envkits_client_plays_a_remote():
    with served() as remote, joined(remote) as env:
        assert (6, 8, 3) == env.observation_spec()["vision"].shape
        assert 1 == env.num_envs
        first = begun(env).time_step
        assert [0] == first.step_type.tolist()
        assert (1, 6, 8, 3) == first.observation["vision"].shape

        down = [("KeyEvent", "left", True)]
        moved = play(env, down, lambda it: it.reward[0] >= LEFT)
        assert [1] == moved.step_type.tolist()
        shown = play(env, [], lambda it: (it.observation["vision"] == LEFT).all())
        assert [1.0] == shown.discount.tolist()
        last = play(env, [("KeyEvent", "space", True)], lambda it: it.is_last()[0])
        assert [0.0] == last.discount.tolist()
        assert last.reward[0] >= FIRE
        (info,) = env.get_info()
        number = int(info["universe"]["env_status.complete.episode_id"])

        again = play(env, [], lambda it: True)
        assert [0] == again.step_type.tolist()
        assert [0.0] == again.reward.tolist()
        (info,) = env.get_info()
        assert str(number + 1) == info["universe"]["env_status.episode_id"]


def test_a_truncation_keeps_its_discount():
    with served() as remote, joined(remote) as env:
        begun(env)
        last = play(env, [("KeyEvent", "up", True)], lambda it: it.is_last()[0])
        assert [1.0] == last.discount.tolist()


def test_flags_in_an_action_hold_keys():
    with served() as remote, joined(remote, keys=["Left", "Right"]) as env:
        begun(env)

        def hold(*flags):
            env.send({"keys": np.array([flags])}, [0])
            return env.recv(1, timeout=PATIENCE).time_step

        assert until(lambda: hold(True, False).reward[0] >= LEFT)
        assert until(lambda: hold(False, True).reward[0] >= RIGHT)
        assert until(lambda: hold(False, False).reward[0] == 0)


def test_a_reset_within_an_episode_begins_another():
    with served() as remote, joined(remote) as env:
        begun(env)
        before = env.get_info()[0]["universe"]["env_status.episode_id"]
        play(env, [], lambda it: True)
        assert [0] == begun(env).time_step.step_type.tolist()
        after = env.get_info()[0]["universe"]["env_status.episode_id"]
        assert int(after) > int(before)


def test_seeds_reach_the_remote():
    with served() as remote, joined(remote) as env:
        env.reset_async(seed=[5])
        env.recv(1, timeout=PATIENCE)
        assert [5] == remote._game._env.seeds


def test_two_remotes_are_rows_that_step_independently():
    with served() as one, served() as other, joined(one, other) as env:
        gate = other._game._env.gate
        gate.clear()
        env.reset_async()
        assert [0] == env.recv(1, timeout=PATIENCE).env_ids.tolist()
        for _ in range(3):
            env.send([[]], [0])
            assert [0] == env.recv(1, timeout=PATIENCE).env_ids.tolist()
        gate.set()
        assert [1] == env.recv(1, timeout=PATIENCE).env_ids.tolist()


def test_universe_view_works_with_remotes():
    with served() as one, served() as other, joined(one, other) as env:
        view = universe_view(env)
        assert [None, None] == view.reset()
        nothing = [[], []]
        assert until(lambda: all(seen is not None for seen in view.step(nothing)[0]))
        action_n = [[("KeyEvent", "right", True)], []]
        view.step(action_n)
        assert until(lambda: view.step(nothing)[1][0] >= RIGHT)
        ended = [[], [("KeyEvent", "space", True)]]
        assert until(lambda: view.step(ended)[2] == [False, True])
        _, _, _, info = view.step(nothing)
        assert "running" == info["n"][0]["env_status.env_state"]
        assert {"stats.vnc.updates.n", "env.text"} <= set(info["n"][0])
        blocking = BlockingReset(view)
        assert all(seen["vision"].shape == (6, 8, 3) for seen in blocking.reset())


def ports():
    """Returns a port below those that are handed out, with one 10,000 above."""
    return random.SystemRandom().randrange(12000, 20000)


def serve_at(port):
    """Serves at fixed ports, or returns `None` where they are taken."""
    try:
        return universe.serve(Menu([Offer(PAD)]), ServeOptions(port=port))
    except OSError:
        return None


def test_a_killed_server_ends_the_episode_and_the_next_server_continues():
    started = until(lambda: serve_at(port) if (port := ports()) else None)
    assert started is not None
    port = started.desktop.address[1]
    with contextlib.ExitStack() as stack:
        stack.callback(started.close, "")
        env = stack.enter_context(joined(started, start_timeout=PATIENCE))
        begun(env)
        play(env, [("KeyEvent", "left", True)], lambda it: it.reward[0] >= LEFT)
        started.close("killed")
        last = play(env, [], lambda it: it.is_last()[0])
        assert [1.0] == last.discount.tolist()
        # Its desktop and its rewarder are lost: either may be noticed first.
        assert env.repaired.tolist() == [True]
        assert "link_lost" == env.current_losses()[0].kind
        assert last.reward.tolist() == [0.0]
        info = env.get_info()[0]
        assert (True, "link_lost") == (info["repaired"], info["loss"].kind)
        error = info["universe"]["error"]
        assert "is lost: killed" in error or "The connection was " in error

        env.send([[]], [0])
        assert 0 == len(env.recv(1, timeout=0.01).env_ids)
        again = until(lambda: serve_at(port))
        stack.callback(again.close, "")
        batch = env.recv(1, timeout=PATIENCE)
        assert [0] == batch.time_step.step_type.tolist()
        moved = play(env, [("KeyEvent", "left", True)], lambda it: it.reward[0] >= LEFT)
        assert [1] == moved.step_type.tolist()


def test_a_lost_remote_is_an_error_of_its_row():
    with served() as remote, joined(remote) as env:
        begun(env)
        remote.close("gone")
        env._start_timeout = 0.1  # for the next connection, which does not come
        play(env, [], lambda it: it.is_last()[0])
        env.send([[]], [0])
        with pytest.raises(WorkerError, match=r"^The remote .* cannot be used: ") as it:
            env.recv(1, timeout=PATIENCE)
        assert (0,) == it.value.envs


def test_the_rewarders_connection_can_be_encrypted(tmp_path):
    cert, key = certificate_in(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    with served(PAD, tls=context) as remote:
        with joined(remote, cafile=cert) as env:
            begun(env)
            play(env, [("KeyEvent", "left", True)], lambda it: it.reward[0] >= LEFT)
        host, port = remote.rewarder.address
        with pytest.raises(RewarderError, match="There is no rewarder at"):
            RewarderLink(f"{host}:{port}", "openai", print, timeout=PATIENCE)


def test_a_remote_without_the_environment_refuses_its_id():
    with served() as remote, joined(remote, env_id="Pong-v3") as env:
        env.reset_async()
        with pytest.raises(WorkerError, match="has no environment 'Pong-v3'"):
            env.recv(1, timeout=PATIENCE)


def test_an_observer_watches_another_client():
    with (
        served() as remote,
        joined(remote) as playing,
        joined(remote, observer=True) as watching,
    ):
        begun(playing)
        assert [0] == begun(watching).time_step.step_type.tolist()
        playing.send([[("KeyEvent", "left", True)]], [0])
        playing.recv(1, timeout=PATIENCE)
        play(watching, [("KeyEvent", "up", True)], lambda it: it.reward[0] >= LEFT)


def test_a_wrong_password_is_not_retried(message_of):
    with served() as remote:
        message = message_of(
            DesktopError, lambda: make(f"universe://{address_of(remote)}?password=no")
        )
        assert message.endswith("refuses the password: The password is wrong.")


def test_remotes_must_show_pictures_of_one_size():
    with (
        served() as one,
        served("Catch") as other,
        pytest.raises(SpecError, match=r"^All remotes must show pictures of one size"),
        joined(one, other),
    ):
        pass


WRONG_CALLS = {
    "nothing was asked": (lambda env: env.recv(), CallOrderError),
    "asked twice": (lambda env: (env.reset_async(), env.send([[]])), CallOrderError),
    "no such row": (lambda env: env.reset_async([3]), ValueError),
    "options": (lambda env: env.reset_async(options={"a": 1}), NotImplementedError),
    "another call": (lambda env: env.call("dance"), AttributeError),
    "a mode": (lambda env: env.render("human"), NotImplementedError),
    "closed": (lambda env: (env.close(), env.reset_async()), ClosedError),
}


def test_wrong_calls_are_refused():
    with served() as remote:
        for call, error in WRONG_CALLS.values():
            with joined(remote) as env, pytest.raises(error):
                call(env)
        with joined(remote) as env:
            begun(env)
            for action in [[("KeyEvent", "lefd", True)], [("Jump",)], 3]:
                with pytest.raises(SpecError, match=r"^A remote's action must be"):
                    env.send([action], [0])
            assert (1, 6, 8, 3) == env.render().shape


@pytest.mark.parametrize(
    "target", ["universe://", "universe://box:port", "universe://box?speed=3"]
)
def test_a_malformed_address_is_refused(target):
    with pytest.raises(ValueError, match=r"^A Universe target must be like "):
        remotes_in(target)
