"""Lost episodes behind PettingZoo's interface."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec, ProcessPyEnvironment
from envkit.adapters import to_pettingzoo
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import ACTIONS, RAISING, NumberedEnv
from tests.lost.players import FAULTS, OPTIONS

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")


class Pair(NumberedEnv):
    """The same episode for two agents, who must act alike."""

    def observation_spec(self):
        return ArraySpec((2, 3), np.int64)

    def action_spec(self):
        return BoundedArraySpec((2,), np.int32, 0, ACTIONS - 1)

    def reward_spec(self):
        return ArraySpec((2,), np.float32)

    def _shown(self):
        return np.array([super()._shown()] * 2)

    def _reset(self, seed=None):
        return super()._reset(seed)._replace(reward=np.zeros(2, np.float32))

    def _step(self, action):
        one, other = action.tolist()
        assert one == other
        time_step = super()._step(one)
        return time_step._replace(reward=np.repeat(time_step.reward, 2))


def test_infos_of_all_agents_mark_every_lost_episode():
    options = {key: OPTIONS[key] for key in OPTIONS if key != "num_workers"}
    process = ProcessPyEnvironment(Pair, **options)
    process.start()
    ledger = Ledger(1)
    faults = {**FAULTS, "every_steps": 50}
    game = to_pettingzoo(process, agents=["a", "b"])
    with contextlib.closing(game), chaos(game, **faults):
        seed = RAISING
        while ledger.resolved < episodes_to_play(60):
            shown, _ = game.reset(seed=seed)
            seed = None
            ledger.begin(shown["a"])
            while game.agents:
                action = int(ledger.actions[0])
                actions = {agent: np.int32(action) for agent in game.agents}
                shown, rewards, terminations, truncations, infos = game.step(actions)
                lost = [infos[agent].get("repaired", False) for agent in "ab"]
                if any(lost):
                    assert all(lost)
                    assert all(truncations.values())
                    ledger.lose(infos["b"]["loss"].kind)
                    break
                ledger.step(shown["b"], rewards["a"])
                if terminations["a"] or truncations["a"]:
                    ledger.end(is_terminated=terminations["a"])
    ledger.close("crashed", "raised")
