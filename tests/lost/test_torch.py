"""Lost episodes in PyTorch: the transitions of a rollout buffer."""

from __future__ import annotations

import pytest

from envkit import ParallelPyEnvironment
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING, NumberedEnv
from tests.lost.players import FAULTS, OPTIONS

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("order", ["next_step", "same_step", "disabled"])
def test_valid_leaves_every_lost_episode_out(order):
    from envkit.torch import RolloutBuffer, TorchEnvironment

    def act(time_step):
        return ((time_step.observation[:, 1] + 1) % 16).to(torch.int32)

    ledger = Ledger(4)
    pool = ParallelPyEnvironment([NumberedEnv] * 4, autoreset=order, **OPTIONS)
    pool.seed([RAISING + row for row in range(4)])
    with TorchEnvironment(pool) as env, chaos(env, **FAULTS):
        buffer = RolloutBuffer(env, steps=16)
        while ledger.resolved < episodes_to_play(60):
            buffer.collect(env, act)
            take(ledger, buffer.transitions(lam=None))
    ledger.close("not valid")


def take(ledger, plain):
    for step in range(len(plain.valid)):
        for row in range(4):
            standing = plain.observation[step, row]
            if not plain.valid[step, row]:
                if ledger.is_playing(row):
                    ledger.lose("not valid", row)
                continue
            if not ledger.is_playing(row):
                ledger.begin(standing, row)
            ledger.step(plain.next_observation[step, row], plain.reward[step, row], row)
            if plain.is_last[step, row]:
                is_terminated = bool(plain.discount[step, row] == 0)
                ledger.end(row, is_terminated=is_terminated)
