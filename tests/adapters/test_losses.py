"""Lost episodes are told apart behind dm_env and PettingZoo."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import Loss, ParallelPyEnvironment, ProcessPyEnvironment, RestartPolicy
from envkit.adapters import (
    PettingZooAECWrapper,
    PettingZooWrapper,
    PyToDMWrapper,
    to_pettingzoo,
)
from envkit.specs.sampling import sample_spec_nest
from envkit.testing import CountingEnv, CrashingEnv

pytest.importorskip("pettingzoo")
from tests.adapters.pettingzoo_games import Meadow, Stay, library_tests

POLICY = RestartPolicy(max_restarts=50, backoff=0)
CRASHING = functools.partial(CrashingEnv, crash_at=3)


def started(make):
    env = ProcessPyEnvironment(make, backend="inline", on_worker_failure=POLICY)
    env.start()
    return env


def pool_that_loses():
    return ParallelPyEnvironment(
        [CRASHING, functools.partial(CountingEnv, 3)],
        backend="inline",
        on_worker_failure=POLICY,
    )


def played(env):
    """Plays an episode in a loop of dm_env, and returns its rewards."""
    rewards = []
    time_step = env.reset()
    while not time_step.last():
        assert not env.repaired
        time_step = env.step(env.action_spec().generate_value())
        rewards.append(float(time_step.reward))
    assert time_step.discount == 1
    return rewards


def test_a_loop_of_dm_env_is_told_of_a_lost_episode():
    dm_env = pytest.importorskip("dm_env")
    env = PyToDMWrapper(started(CRASHING))
    assert isinstance(env, dm_env.Environment)
    assert played(env)[-1] == 0
    assert env.repaired is True
    assert [(loss.row, loss.kind) for loss in env.losses()] == [(0, "raised")]
    assert env.losses() == []
    assert isinstance(env.current_losses()[0], Loss)
    assert env.reset().first()
    assert env.repaired is False
    assert env.current_losses() == {}
    env.close()


def test_a_row_for_dm_env_tells_its_own_losses():
    pytest.importorskip("dm_env")
    lost, other = PyToDMWrapper.rows(pool_that_loses())
    for _ in range(2):
        played(lost)
        assert lost.repaired is True
        assert lost.current_losses().keys() == {0}
    assert other.reset().first()
    assert other.repaired is False
    assert other.losses() == []
    assert [(loss.row, loss.kind) for loss in lost.losses()] == [(0, "raised")] * 2
    assert lost.losses() == []
    lost.close()
    other.close()


class Fragile(Meadow):
    """A game of several agents that fails in its third step."""

    def step(self, actions):
        if self.steps == 2:
            raise RuntimeError("this environment is lost")
        return super().step(actions)


LONG = {"cow": Stay(0, 9), "hen": Stay(0, 9)}


def lost_game():
    """Makes a game for PettingZoo whose environment is lost in the third step."""
    return to_pettingzoo(started(lambda: PettingZooWrapper(Fragile(LONG))))


def step_of(game):
    return game.step(dict.fromkeys(game.agents, 1))


def test_all_agents_of_a_lost_game_are_truncated_and_told():
    game = lost_game()
    for _ in range(2):
        game.reset(seed=1)
        for _ in range(2):
            assert "repaired" not in step_of(game)[4]["cow"]
        _, rewards, terminations, truncations, infos = step_of(game)
        assert rewards == {"cow": 0, "hen": 0}
        assert terminations == {"cow": False, "hen": False}
        assert truncations == {"cow": True, "hen": True}
        assert game.agents == []
        for agent in ("cow", "hen"):
            assert infos[agent]["repaired"] is True
            assert infos[agent]["loss"].kind == "raised"
    game.close()


def test_pettingzoos_api_test_passes_over_lost_games(capsys):
    pytest.importorskip("pygame", reason="pygame-ce is not installed")
    game = lost_game()
    library_tests().parallel_api_test(game, num_cycles=30)
    game.close()


@pytest.mark.parametrize("wrapper", [PettingZooWrapper, PettingZooAECWrapper])
def test_a_mark_survives_the_way_through_pettingzoo_and_back(wrapper):
    with wrapper(lost_game()) as env:
        time_step = env.reset()
        while not time_step.is_last():
            assert not env.repaired
            spec = env.action_spec()
            time_step = env.step(sample_spec_nest(spec, np.random.default_rng(1)))
        assert env.repaired
        assert env.current_losses()[0].kind == "raised"
        assert [loss.kind for loss in env.losses()] == ["raised"]
        for info in env.get_info().values():
            assert info.keys().isdisjoint(["repaired", "loss"])
        assert env.reset().is_first()
        assert not env.repaired
