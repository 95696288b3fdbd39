"""Lost episodes behind the vector environment of Stable-Baselines3."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path

import pytest

from envkit import ParallelPyEnvironment
from envkit.adapters.sb3 import to_sb3
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING, NumberedEnv
from tests.lost.players import FAULTS, OPTIONS

LIBRARY = "stable_baselines3"
STAND_INS = Path(__file__).parents[1] / "adapters/stand_ins"


@pytest.fixture(autouse=True)
def stable_baselines3(monkeypatch):
    """Has something that can be imported under the library's name."""
    if importlib.util.find_spec(LIBRARY) is None:
        monkeypatch.syspath_prepend(STAND_INS)
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARY]:
            del sys.modules[name]
    else:
        yield


def play(envs, episodes):
    ledger = Ledger(envs.num_envs)
    envs.seed(RAISING)
    for row, observation in enumerate(envs.reset()):
        ledger.begin(observation, row)
    while ledger.resolved < episodes:
        observations, rewards, dones, infos = envs.step(ledger.actions)
        for row, info in enumerate(infos):
            if info.get("repaired"):
                assert dones[row]
                assert info["TimeLimit.truncated"]
                ledger.lose(info["loss"].kind, row)
            else:
                shown = (
                    info["terminal_observation"] if dones[row] else observations[row]
                )
                ledger.step(shown, rewards[row], row)
                if dones[row]:
                    is_cut = info["TimeLimit.truncated"]
                    ledger.end(row, is_terminated=not is_cut)
            if dones[row]:
                ledger.begin(observations[row], row)
    return ledger


def test_infos_mark_every_lost_episode():
    envs = to_sb3(ParallelPyEnvironment([NumberedEnv] * 4, **OPTIONS))
    with contextlib.closing(envs), chaos(envs, **FAULTS):
        ledger = play(envs, episodes_to_play(100))
    ledger.close("crashed", "raised")
