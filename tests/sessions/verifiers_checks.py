"""The trainer verifiers plays what `to_verifiers` makes of environments.

The trainer, the environments, and the loops in which it asks the model are processes of
their own; the model is here. pytest collects this file only if it is told to: `make
test-all` installs the trainer, and does.
"""

from __future__ import annotations

import json
import sys

import pytest

import envkit
from envkit.specs.special import ObjectSpec
from tests.remote.chat_games import Letters, reply_of_model, steps_to_live
from tests.sessions.environments import Room
from tests.vf_eval import records_of, serving_model

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="verifiers needs Python 3.11"
)

LETTERS = """
from envkit import RestartPolicy
from envkit.sessions import to_verifiers
from tests.remote.chat_games import mortal_letters

Tasks, Environment = to_verifiers(
    mortal_letters,
    size=3,
    seeds=range(24),
    system_prompt="Guess.",
    backend="process",
    restart=RestartPolicy(max_restarts=100, within=None, backoff=0.0),
    least=1,
)
__all__ = ["Environment", "Tasks"]
"""
CATCH = """
from envkit.sessions import to_verifiers

Tasks, Environment = to_verifiers("Catch", size=2)
__all__ = ["Environment", "Tasks"]
"""
ROOM = """
from envkit.sessions import to_verifiers
from tests.sessions.environments import Room

Tasks, Environment = to_verifiers(
    Room, size=2, tasks=[{"seed": 3, "name": "first"}, {"seed": 4, "name": "second"}]
)
__all__ = ["Environment", "Tasks"]
"""


def evaluated(module, chat, folder, **config):
    """Returns the trainer's records of the tasks of a module."""
    (folder / "games_of_test.py").write_text(module)
    with serving_model(chat) as model:
        return records_of({"id": "games-of-test"}, model, folder, **config)


def trace_of(record):
    """Returns the trace of a record that is a sample."""
    (trace,) = record["traces"]
    assert [] == record["errors"] == trace["errors"]
    assert record["ok"]
    assert trace["ok"]
    return trace


def undisturbed(seed):
    """Plays an episode of Letters; returns steps, reward, and when it would be lost."""
    env = Letters()
    time_step = env.reset(seed=seed)
    to_live = max(1, steps_to_live(time_step.observation))
    steps, reward = 0, 0.0
    while not time_step.is_last():
        reply = reply_of_model("Letters", {"value": time_step.observation.tolist()})
        time_step = env.step(ObjectSpec.wrap(reply))
        steps, reward = steps + 1, reward + float(time_step.reward)
    return steps, reward, to_live


def test_exactly_the_rollouts_of_lost_environments_are_errors(tmp_path):
    records = evaluated(
        LETTERS, lambda said: reply_of_model("Letters", {"value": said[-1]}), tmp_path
    )
    records = {record["task"]["data"]["seed"]: record for record in records}
    assert sorted(records) == list(range(24))
    games = {seed: undisturbed(seed) for seed in records}
    lost = {seed for seed, (steps, _, to_live) in games.items() if to_live <= steps}
    assert 0 < len(lost) < 24
    assert lost == {seed for seed, record in records.items() if not record["ok"]}
    for seed, record in records.items():
        if seed in lost:
            assert (
                "The environment was lost (crashed)"
                in (record["errors"][-1]["message"])
            )
            (trace,) = record["traces"]
            assert (False, {}) == (trace["ok"], trace["rewards"])
            assert "SessionLost" == trace["errors"][-1]["type"]
            continue
        steps, reward, _ = games[seed]
        trace = trace_of(record)
        roles = [node["message"]["role"] for node in trace["nodes"]]
        assert ["system", *["user", "assistant"] * steps] == roles
        assert reward == trace["rewards"]["reward"]["score"]
        assert steps == trace["metrics"]["steps"]
        assert "terminated" == trace["stop_condition"]


def test_a_reply_that_is_no_action_is_explained_and_is_no_step(tmp_path):
    replies = iter(["left", "7", "```json\n1\n```"])
    seen = []

    def chat(said):
        seen.append(said[-1])
        return next(replies, "1")

    (record,) = evaluated(CATCH, chat, tmp_path, select={"limit": 1})
    trace = trace_of(record)
    env = envkit.make("Catch")
    time_step = env.reset(seed=0)
    assert seen[0].startswith(str(time_step.observation))
    assert seen[0].endswith('fits {"type":"integer","minimum":0,"maximum":2}.')
    assert seen[1].startswith("Error: The reply must be JSON")
    assert seen[2].startswith("Error: The reply")
    while not time_step.is_last():
        time_step = env.step(1)
    assert float(time_step.reward) == trace["rewards"]["reward"]["score"]
    assert len(seen) == trace["metrics"]["steps"] + 2


def test_the_model_calls_tools_of_the_environment(tmp_path):
    calls = [
        {"name": "take", "arguments": {"thing": "key"}},
        {"name": "go", "arguments": {"direction": "north"}},
    ]

    def chat(said):
        return json.dumps(calls[len(said) // 2])

    records = evaluated(ROOM, chat, tmp_path)
    for record in records:
        trace = trace_of(record)
        first = trace["nodes"][0]["message"]["content"]
        assert all(tool.description in first for tool in Room().tools)
        assert 1.25 == trace["rewards"]["reward"]["score"]
    names = {record["task"]["data"]["name"] for record in records}
    assert {"first", "second"} == names


def test_a_rollout_that_the_trainer_stops_keeps_the_rewards_so_far(tmp_path):
    call = json.dumps({"name": "take", "arguments": {"thing": "key", "count": 2}})
    env = {"taskset": {"id": "games-of-test"}, "player": {"max_turns": 3}}
    records = evaluated(ROOM, lambda _: call, tmp_path, env=env)
    for record in records:
        trace = trace_of(record)
        assert "max_turns" == trace["stop_condition"]
        assert 1.5 == trace["rewards"]["reward"]["score"]
