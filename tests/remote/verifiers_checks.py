"""The trainer verifiers plays what `envkit serve --openenv` serves.

The server, the trainer, and the loops in which it asks the model are processes of their
own; the model is here. pytest collects this file only if it is told to: `make test-all`
installs the trainer, and does.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from envkit.envs import CartPole
from envkit.specs.special import ObjectSpec
from tests.remote import chat_games
from tests.vf_eval import records_of, serving_model

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="verifiers needs Python 3.11"
)

TOKEN = "a-token-of-the-tests-of-verifiers"
GAMES = {"CartPole": (CartPole, 16), "Letters": (chat_games.Letters, 24)}


def chat(said):
    """Replies to the last message, which the trainer has made of an answer."""
    last = json.loads(said[-1])
    game = last["action_schema"]["title"].removesuffix("Action")
    return chat_games.reply_of_model(game, last["observation"])


@pytest.fixture(scope="module")
def model():
    """Serves the model; yields its address."""
    with serving_model(chat) as address:
        yield address


@contextlib.contextmanager
def serving(target, folder):
    """Runs `envkit serve`; yields the address, which has the token."""
    (folder / "token").touch(0o600)
    (folder / "token").write_text(TOKEN)
    command = [sys.executable, "-m", "envkit", "serve", target, "--openenv", "--port=0"]
    command += ["--num-workers=2", f"--token-file={folder / 'token'}"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            address = process.stdout.readline().decode().split()[-1]
            yield address.replace("://", f"://token:{TOKEN}@")
        finally:
            process.terminate()
    assert 143 == process.returncode


def train(address, model, seeds, folder):
    """Lets the trainer play an episode for each seed; returns its records."""
    taskset = {
        "id": "openenv",
        "base_url": address,
        "resets": [{"seed": seed} for seed in seeds],
    }
    player = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    env = {"taskset": taskset, "player": player}
    found = records_of(taskset, model, folder, env=env)
    records = {record["task"]["data"]["reset"]["seed"]: record for record in found}
    assert len(found) == len(records)
    return records


class Episode(NamedTuple):
    """An episode of a seed: its length, its reward, and when its process would end."""

    steps: int
    reward: float
    steps_to_live: int

    @property
    def is_lost(self) -> bool:
        return self.steps_to_live <= self.steps


def undisturbed(game, seed):
    """Plays an episode as the model does, without server and trainer."""
    env = GAMES[game][0]()
    time_step = env.reset(seed=seed)
    to_live = chat_games.steps_to_live(time_step.observation)
    steps, reward = 0, 0.0
    while not time_step.is_last():
        seen = {"value": time_step.observation.tolist()}
        reply = chat_games.reply_of_model(game, seen)
        is_text = game == "Letters"
        action = ObjectSpec.wrap(reply) if is_text else json.loads(reply)["value"]
        time_step = env.step(action)
        steps, reward = steps + 1, reward + float(time_step.reward)
    return Episode(steps, reward, to_live)


def is_sample(record, episode):
    """Returns whether a record is that of the undisturbed episode."""
    (trace,) = record["traces"]
    assert [] == record["errors"] == trace["errors"]
    assert trace["ok"]
    roles = [node["message"]["role"] for node in trace["nodes"]]
    assert ["user", "assistant"] * episode.steps == roles
    assert episode.reward == trace["rewards"]["openenv_reward"]["score"]
    return record["ok"]


@pytest.mark.parametrize("game", GAMES)
def test_all_rollouts_of_the_trainer_complete(game, model, tmp_path):
    seeds = range(GAMES[game][1])
    target = {"CartPole": game, "Letters": "Letters=tests.remote.chat_games:Letters"}
    with serving(target[game], tmp_path) as address:
        records = train(address, model, seeds, tmp_path)
    assert sorted(records) == list(seeds)
    for seed in seeds:
        assert is_sample(records[seed], undisturbed(game, seed))


@pytest.mark.parametrize("game", GAMES)
def test_the_trainer_takes_no_lost_episode_for_a_sample(game, model, tmp_path):
    seeds = range(GAMES[game][1])
    makers = {"CartPole": "mortal_cart_pole", "Letters": "mortal_letters"}
    target = f"{game}=tests.remote.chat_games:{makers[game]}"
    with serving(target, tmp_path) as address:
        records = train(address, model, seeds, tmp_path)
    assert sorted(records) == list(seeds)
    episodes = {seed: undisturbed(game, seed) for seed in seeds}
    lost = {seed for seed, episode in episodes.items() if episode.is_lost}
    assert 0 < len(lost) < len(seeds)
    assert lost == {seed for seed in seeds if not records[seed]["ok"]}
    for seed in seeds:
        if seed not in lost:
            assert is_sample(records[seed], episodes[seed])
            continue
        assert "lost" in records[seed]["errors"][-1]["message"]
        for trace in records[seed]["traces"]:
            assert (False, {}) == (trace["ok"], trace["rewards"])
            assert trace["errors"]
