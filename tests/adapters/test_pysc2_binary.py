"""PySC2's own environment, with all its checks, through the adapter."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pysc2", reason="pysc2 is not installed")

from envkit.adapters.pysc2 import load, prepare
from tests.adapters.pysc2_binary import Binary

FORMAT = {"feature_screen": 32, "feature_minimap": 16}


def play(monkeypatch, binary, **kwargs):
    """Makes an environment that plays with this in place of the game."""
    prepare()
    from pysc2 import run_configs

    monkeypatch.setattr(run_configs, "get", lambda version=None: binary)
    return load("MoveToBeacon", ["terran"], FORMAT, **kwargs)


def idle(env):
    return {
        name: np.zeros(spec.shape, spec.dtype)
        for name, spec in env.action_spec().items()
    }


def test_a_won_game_ends_with_a_reward_and_discount_0(monkeypatch):
    env = play(monkeypatch, Binary(won_after=24), score_index=-1, step_mul=8)
    steps = [env.reset(), *(env.step(idle(env)) for _ in range(4))]

    assert [
        (0, 0.0, 1.0),
        (1, 0.0, 1.0),
        (1, 0.0, 1.0),
        (2, 1.0, 0.0),
        (0, 0.0, 1.0),
    ] == [(int(s.step_type), float(s.reward), float(s.discount)) for s in steps]
    assert [0, 8, 16, 24, 0] == [int(s.observation["game_loop"][0]) for s in steps]


@pytest.mark.parametrize(("zero", "discount"), [(False, 1.0), (True, 0.0)])
def test_a_game_that_runs_out_of_time_keeps_its_discount_by_default(
    monkeypatch, zero, discount
):
    env = play(
        monkeypatch,
        Binary(),
        step_mul=8,
        game_steps_per_episode=16,
        discount_zero_after_timeout=zero,
    )
    env.reset()
    env.step(idle(env))
    time_step = env.step(idle(env))

    assert (True, discount) == (bool(time_step.is_last()), float(time_step.discount))


def test_actions_reach_the_game_as_messages(monkeypatch):
    binary = Binary()
    env = play(monkeypatch, binary)
    env.reset()
    env.step(
        idle(env)
        | {"function": np.array(2, np.int32), "screen": np.array([30, 7], np.int32)}
    )

    point = binary.sent[0].action_feature_layer.unit_selection_point
    assert (30, 7) == (point.selection_screen_coord.x, point.selection_screen_coord.y)


def test_a_seed_is_used_for_the_next_game(monkeypatch):
    binary = Binary()
    env = play(monkeypatch, binary)
    env.seed([2**32 + 7])
    env.reset()
    assert [False, True] == [game.HasField("random_seed") for game in binary.created]
    assert (7, 1) == (binary.created[1].random_seed, binary.quits)


def test_only_later_resets_restart_the_game(monkeypatch):
    env = play(monkeypatch, Binary(), step_mul=8)
    loops = []
    for _ in range(2):
        env.reset()
        env.step(idle(env))
        loops.append(env.get_info()["game_loop"])
    assert [8, 8] == loops


@pytest.mark.parametrize("realtime", [False, True])
def test_real_time_games_are_marked_realtime(monkeypatch, realtime):
    env = play(monkeypatch, Binary(), realtime=realtime)
    env.reset()
    assert realtime is env.realtime
    assert realtime is ("action_delays" in env.get_info())
