"""The lines that the page on CleanRL changes in its scripts do what those did."""

from __future__ import annotations

import re
import textwrap
from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import envkit
from envkit.adapters import PyToGymnasiumVector, vectorize
from envkit.wrappers import RecordEpisodeStatistics, TimeLimit

PAGE = Path(__file__).parents[3] / "docs" / "coming_from_cleanrl.md"
VECTOR, LOG, FINAL = (
    textwrap.dedent(
        "\n".join(line[1:] for line in block.splitlines() if not line.startswith("-"))
    )
    for block in re.findall(
        r"^```diff\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
)
LIMIT = 7


class Writer:
    def __init__(self):
        self.seen = []

    def add_scalar(self, name, value, step):
        self.seen.append((name, float(value)))


class Args:
    env_id = "CartPole-v1"
    capture_video = False
    num_envs = 3


def make_env(env_id, idx, capture_video, run_name):
    def thunk():
        # The limits differ, so that rows end apart.
        env = gymnasium.make(env_id, max_episode_steps=LIMIT + idx)
        return gymnasium.wrappers.RecordEpisodeStatistics(env)

    return thunk


def of_the_page():
    scope = {"vectorize": vectorize, "make_env": make_env, "args": Args}
    exec(VECTOR, scope | {"run_name": "run"}, made := {})
    return made["envs"]


def one_batch():
    env = TimeLimit(envkit.make("CartPole", batch_size=Args.num_envs), LIMIT)
    return PyToGymnasiumVector(RecordEpisodeStatistics(env), "SameStep", infos="final")


@pytest.mark.parametrize("make", [of_the_page, one_batch])
def test_the_loop_in_the_docs_sees_every_episode_end(make):
    writer, kept, ended = Writer(), [], 0
    with closing(make()) as envs:
        envs.reset(seed=1)
        for step in range(2 * LIMIT):
            actions = np.full(Args.num_envs, step % 2)
            next_obs, _, terminations, truncations, infos = envs.step(actions)
            scope = {"infos": infos, "writer": writer, "np": np, "global_step": step}
            exec(LOG, scope)
            scope |= {"next_obs": next_obs, "truncations": truncations}
            exec(FINAL, scope)
            ended += int((terminations | truncations).sum())
            kept += [
                (scope["real_next_obs"][row], next_obs[row])
                for row in np.flatnonzero(truncations)
            ]

    returns = [value for name, value in writer.seen if name.endswith("_return")]
    lengths = [value for name, value in writer.seen if name.endswith("_length")]
    assert ended == len(returns) == len(lengths) >= Args.num_envs
    assert returns == lengths
    # A reward of 1 for each step, and an end that is not the next begin.
    assert set(lengths) <= {float(LIMIT + row) for row in range(Args.num_envs)}
    assert kept
    assert all((last != begun).any() for last, begun in kept)


@pytest.mark.parametrize(
    ("needed_by", "make"),
    [
        ("vectorize", lambda: vectorize([lambda: gymnasium.make("CartPole-v1")])),
        (
            "GymnasiumWrapper",
            lambda: envkit.adapters.GymnasiumWrapper(gymnasium.make("CartPole-v1")),
        ),
    ],
)
def test_an_older_gymnasium_is_refused(needed_by, make, monkeypatch, message_of):
    monkeypatch.setattr(gymnasium, "__version__", "0.29.1")
    assert (
        f"{needed_by} needs Gymnasium 1.0 or newer, and 0.29.1 is installed: "
        'pip install "gymnasium>=1.0"'
    ) == message_of(envkit.errors.MissingDependencyError, make)
