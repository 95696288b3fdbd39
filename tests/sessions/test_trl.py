"""`to_trl`, called as TRL calls it; TRL itself trains in `trl_checks.py`."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Literal, get_type_hints

import pytest

from envkit import RestartPolicy
from envkit.errors import WorkerError
from envkit.sessions import ToolEnvironment, to_trl, tool
from tests.sessions.environments import Guess, Shared, Traps

PROMPT = [{"role": "user", "content": "Find the way out."}]


def tools_of(environment):
    """The methods that TRL takes for tools."""
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    own = ("reset", "get_reward")
    return {
        n: getattr(environment, n) for n, _ in members if n not in own and n[0] != "_"
    }


def door_in(text):
    return int(re.search(r"\d+", text)[0])


def test_a_tool_before_the_first_reset_says_what_is_missing():
    with to_trl(Traps, 1) as environments:
        environment = environments()
        with pytest.raises(ValueError, match="a reset comes first"):
            environment.open(door=1)
        assert environment.get_reward() is None


def test_a_row_is_an_episode_whose_rewards_are_summed():
    with to_trl(Traps, 1) as environments:
        environment = environments()
        text = environment.reset(prompt=PROMPT, seed=4, other="column")
        assert text.startswith("\n\nThe right door is")
        tools = tools_of(environment)
        assert tools["open"](door=-1) == "A wall."
        assert tools["open"](door=door_in(text)) == "You are out."
        with pytest.raises(ValueError, match="The episode is over"):
            tools["open"](door=-1)
        assert environment.get_reward() == 0.75
        assert environment.last_turn.end == "terminated"


def test_tools_have_the_annotations_and_docstrings_of_the_environment():
    with to_trl(Traps, 1) as environments:
        tools = tools_of(environments())
    assert list(tools) == ["open", "touch"]
    assert get_type_hints(tools["open"]) == {"door": int, "return": str}
    assert get_type_hints(tools["touch"])["trap"] == Literal["raise", "die"]
    assert list(inspect.signature(tools["open"]).parameters) == ["door"]
    assert inspect.getdoc(tools["open"]) == (
        "Opens a door.\n\nArgs:\n    door: Its number."
    )


def test_equal_rows_play_the_same_episode():
    with to_trl(Traps, 3) as environments:
        group = [environments() for _ in range(3)]
        pairs = zip(group, [1, 1, 2], strict=True)
        texts = [each.reset(prompt=[], seed=seed) for each, seed in pairs]
    assert texts[0] == texts[1] != texts[2]


def test_an_object_has_an_environment_only_while_it_plays():
    with to_trl(Traps, 1) as environments:
        probe, first, second = (environments() for _ in range(3))
        first.reset(seed=1)
        with pytest.raises(ValueError, match="Pass to_trl a larger size"):
            second.reset(seed=1)
        assert first.get_reward() == 0.0
        second.reset(seed=1)
        second.reset(seed=2)
        assert second.get_reward() == 0.0
        assert probe.get_reward() is None


@pytest.mark.parametrize(("backend", "trap"), [("thread", "raise"), ("process", "die")])
def test_a_lost_episode_has_no_reward(backend, trap):
    with to_trl(Traps, 2, backend=backend) as environments:
        lost, other = environments(), environments()
        lost.reset(seed=1)
        text = other.reset(seed=2)
        lost.open(door=-1)
        for _ in range(2):  # TRL tells the model, which goes on
            with pytest.raises(RuntimeError, match="The environment was lost"):
                lost.touch(trap=trap)
        assert other.open(door=door_in(text)) == "You are out."
        assert (lost.is_lost, other.is_lost) == (True, False)
        assert (lost.get_reward(), other.get_reward()) == (None, 1.0)
        assert "lost: The environment was lost" in repr(lost)
        # The same object plays the next row.
        text = lost.reset(seed=2)
        lost.open(door=door_in(text))
        assert (lost.is_lost, lost.get_reward()) == (False, 1.0)


class Stuck(Traps):
    """Cannot begin an episode."""

    def begin(self, rng):
        raise RuntimeError("It is stuck.")


def test_an_episode_that_cannot_begin_has_no_reward():
    with to_trl(Stuck, 1, restart=RestartPolicy(max_restarts=0)) as environments:
        environment = environments()
        assert environment.reset(seed=1) is None
        with pytest.raises(RuntimeError, match="reset_failed"):
            environment.open(door=1)
        assert (environment.is_lost, environment.get_reward()) == (True, None)


def test_training_ends_when_no_environment_can_begin_an_episode():
    with to_trl(Stuck, 2, restart=RestartPolicy(max_restarts=1)) as environments:
        environment = environments()
        assert [environment.reset(seed=seed) for seed in range(4)] == [None] * 4
        with pytest.raises(WorkerError, match=r"2 of 2 .* lost for good(.|\n)*stuck"):
            environment.reset(seed=4)


def test_wrong_arguments_are_the_mistake_of_the_model():
    with to_trl(Traps, 1) as environments:
        environment = environments()
        environment.reset(seed=1)
        with pytest.raises(TypeError, match="no argument 'doors'"):
            environment.open(doors=1)
        with pytest.raises(TypeError, match="needs door"):
            environment.open()
        assert environment.last_turn.steps == 0
        assert environment.get_reward() == 0.0


def test_an_environment_without_tools_has_one():
    with to_trl(Guess, 1, tool="say", description="Says a word.") as environments:
        environment = environments()
        assert list(tools_of(environment)) == ["say"]
        assert inspect.getdoc(environment.say).startswith("Says a word.\n\nArgs:")
        word = environment.reset(seed=1).removeprefix("Say ")
        assert environment.say(action="what") == "Wrong."
        assert environment.say(action=word) == "Right."
        assert environment.get_reward() == 0.5


def test_actions_that_are_not_text_have_their_schema():
    with to_trl("Catch", 1) as environments:
        environment = environments()
        assert get_type_hints(environment.act)["action"] is int
        assert '"maximum": 2' in inspect.getdoc(environment.act)
        environment.reset(seed=7)
        with pytest.raises(TypeError, match="'action' of the tool 'act' must fit"):
            environment.act(action="left")
        with pytest.raises(ValueError, match="3"):
            environment.act(action=3)
        environment.act(action=2)
        assert environment.last_turn.steps == 1


def test_a_row_needs_a_seed():
    with to_trl(Traps, 1) as environments:
        environment = environments()
        with pytest.raises(ValueError, match='must have an integer "seed"'):
            environment.reset(prompt=PROMPT)


class Reserved(ToolEnvironment):
    def begin(self, rng):
        return ""

    @tool
    def get_reward(self) -> str:
        """Has the name of TRL's own method."""


def test_a_tool_must_not_have_the_name_of_a_method_of_trl():
    with (
        to_trl(Reserved, 1) as environments,
        pytest.raises(ValueError, match="TRL calls"),
    ):
        environments()


def test_rewards_of_several_players_are_refused():
    with (
        to_trl(Shared, 1) as environments,
        pytest.raises(ValueError, match="one number as the reward"),
    ):
        environments()


def test_a_pickled_copy_has_environments_of_its_own():
    with to_trl(Traps, 1) as environments:
        text = environments().reset(seed=1)
        with pickle.loads(pickle.dumps(environments)) as copy:
            assert copy().reset(seed=1) == text
