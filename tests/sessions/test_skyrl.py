"""`to_skyrl`, called as SkyRL's generator calls it; `skyrl_checks.py` runs that itself.

Without SkyRL-Gym, a stand-in has the place of its base class.
"""

from __future__ import annotations

import importlib.util
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from envkit.errors import MissingDependencyError
from envkit.sessions import LeaseTimeout, SessionLost, to_skyrl
from tests.sessions.environments import Guess, Shared, Traps
from tests.sessions.skyrl_stand_in import stand_in_for_skyrl_gym

PROMPT = [{"role": "user", "content": "Find the way out."}]


@pytest.fixture(name="made")
def make(monkeypatch):
    """Makes classes, and closes their environments."""
    stand_in_for_skyrl_gym(monkeypatch)
    classes = []

    def made(*args, **kwargs):
        classes.append(to_skyrl(*args, **kwargs))
        return classes[-1]

    yield made
    for each in classes:
        each.close_environments()


def call(tool, **arguments):
    return json.dumps({"name": tool, "arguments": arguments})


def door_in(messages):
    return int(re.search(r"\d+", messages[-1]["content"])[0])


def test_an_episode_follows_the_row(made):
    environment = made(Traps, 1)(env_config={}, extras={"seed": 4, "max_turns": 5})
    messages, _ = environment.init(PROMPT)
    (message,) = messages
    assert message["content"].startswith("Find the way out.\n\nThe right door is")
    assert '"name":"open"' in message["content"]
    wall = environment.step(call("open", door=-1))
    assert (wall["reward"], wall["done"]) == (-0.25, False)
    assert wall["observations"] == [{"role": "user", "content": "A wall."}]
    out = environment.step(call("open", door=door_in(messages)))
    assert (out["reward"], out["done"]) == (1.0, True)
    assert (out["metadata"]["terminated"], out["metadata"]["truncated"]) == (
        True,
        False,
    )
    environment.close()
    assert environment.get_metrics()["total"] == 0.75


def test_the_limit_of_turns_truncates(made):
    environment = made(Traps, 1)(extras={"seed": 4, "max_turns": 2})
    environment.init(PROMPT)
    assert not environment.step("what?")["done"]  # it counts, as each reply does
    last = environment.step(call("open", door=-1))
    assert last["done"]
    assert (last["metadata"]["terminated"], last["metadata"]["truncated"]) == (
        False,
        True,
    )


def test_a_reply_that_is_no_action_is_answered(made):
    environment = made("Catch", 1)(extras={"seed": 4})
    environment.init([])
    answer = environment.step("left")
    assert answer["observations"][0]["content"].startswith(
        "Error: The reply must be JSON"
    )
    assert (answer["reward"], answer["done"]) == (0.0, False)
    assert answer["metadata"]["steps"] == 0
    assert environment.step("1")["metadata"]["steps"] == 1


def test_an_action_can_stand_between_tags(made):
    def parse(reply):
        found = re.search("<say>(.*)</say>", reply)
        if found is None:
            raise ValueError("Write <say>word</say>.")
        return found[1]

    environment = made(Guess, 1, parse=parse)(extras={"seed": 4})
    system = {"role": "system", "content": "Guess."}
    messages, _ = environment.init([system])
    assert messages[0] == system
    word = messages[1]["content"].removeprefix("Say ")
    assert environment.step(word)["observations"][0]["content"] == (
        "Error: Write <say>word</say>."
    )
    assert environment.step(f"Hm. <say>{word}</say>")["reward"] == 1.0


@pytest.mark.parametrize(("backend", "trap"), [("thread", "raise"), ("process", "die")])
def test_a_lost_environment_is_an_exception(made, backend, trap):
    cls = made(Traps, 1, backend=backend)
    environment = cls(extras={"seed": 4})
    environment.init(PROMPT)
    with pytest.raises(SessionLost, match="The environment was lost"):
        environment.step(call("touch", trap=trap))
    # SkyRL closes nothing then, and another episode has the next environment.
    another = cls(extras={"seed": 4})
    messages, _ = another.init(PROMPT)
    assert another.step(call("open", door=door_in(messages)))["reward"] == 1.0


def test_equal_rows_play_the_same_episode_in_threads(made):
    cls = made(Traps, 4)

    def first(seed):
        return cls(extras={"seed": seed}).init(PROMPT)[0][0]["content"]

    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(first, [1, 1, 2, 2]))
    assert texts[0] == texts[1] != texts[2] == texts[3]


def test_episodes_that_can_never_begin_end_with_the_reason(made):
    cls = made(Traps, 1, patience=0.05)
    environment = cls(extras={"seed": 4})
    environment.init(PROMPT)
    with pytest.raises(LeaseTimeout, match="as large a size as a batch has episodes"):
        cls(extras={"seed": 4}).init(PROMPT)


def test_rewards_of_several_players_are_refused(made):
    with pytest.raises(ValueError, match="one number as the reward"):
        made(Shared, 1)(extras={"seed": 4}).init(PROMPT)


def test_a_row_needs_a_seed(made):
    environment = made(Traps, 1)(extras={"max_turns": 3})
    with pytest.raises(ValueError, match='must have an integer "seed"'):
        environment.init(PROMPT)


@pytest.mark.skipif(
    importlib.util.find_spec("skyrl_gym") is not None, reason="SkyRL-Gym is there"
)
def test_it_says_how_to_install_skyrl_gym():
    with pytest.raises(MissingDependencyError, match=r"pip install .skyrl-gym"):
        to_skyrl(Traps, 1)
