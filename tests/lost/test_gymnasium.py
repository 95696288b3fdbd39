"""Lost episodes behind Gymnasium's vector environments."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest

from envkit import ParallelPyEnvironment
from envkit.adapters import PyToGymnasiumVector, vectorize
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING, NumberedEnv
from tests.lost.players import FAULTS, OPTIONS

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")


def of_a_pool(mode):
    pool = ParallelPyEnvironment([NumberedEnv] * 4, **OPTIONS)
    return PyToGymnasiumVector(pool, mode)


def vectorized(mode):
    options = {key: OPTIONS[key] for key in OPTIONS if key != "start_method"}
    return vectorize(
        [NumberedEnv] * 4, autoreset_mode=mode, context="forkserver", **options
    )


def from_make_vec(mode):
    return gymnasium.make_vec(
        "envkit/Make-v0",
        num_envs=4,
        target="tests.lost.numbered:NumberedEnv",
        autoreset_mode=mode,
        **OPTIONS,
    )


def play(envs, mode, episodes):
    """Plays as a learner does that drops what the infos mark."""
    ledger = Ledger(envs.num_envs)
    observations, _ = envs.reset(seed=RAISING)
    for row in range(envs.num_envs):
        ledger.begin(observations[row], row)
    ended = np.zeros(envs.num_envs, bool)
    while ledger.resolved < episodes:
        begins = ended if mode == "NextStep" else np.zeros(envs.num_envs, bool)
        observations, rewards, terminations, truncations, infos = envs.step(
            ledger.actions
        )
        ended = terminations | truncations
        finals = infos.get("final_info", infos) if mode == "SameStep" else infos
        lost = ended & finals.get("_repaired", np.zeros(envs.num_envs, bool))
        for row in range(envs.num_envs):
            shown = observations[row]
            if begins[row]:
                ledger.begin(shown, row)
                continue
            if lost[row]:
                assert finals["repaired"][row]
                assert truncations[row]
                assert not terminations[row]
                ledger.lose(finals["loss"][row].kind, row)
            else:
                is_over = ended[row] and mode == "SameStep"
                final = infos["final_obs"][row] if is_over else shown
                ledger.step(final, rewards[row], row)
                if ended[row]:
                    ledger.end(row, is_terminated=bool(terminations[row]))
            if ended[row] and mode == "SameStep":
                ledger.begin(shown, row)
        if mode == "Disabled" and ended.any():
            observations, _ = envs.reset(options={"reset_mask": ended})
            for row in np.flatnonzero(ended).tolist():
                ledger.begin(observations[row], row)
    return ledger


MODES = ["NextStep", "SameStep", "Disabled"]


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        *itertools.product([of_a_pool], MODES),
        # The same classes.
        (vectorized, "SameStep"),
        (from_make_vec, "SameStep"),
        *(
            pytest.param(vectorized, mode, marks=pytest.mark.heavy)
            for mode in ("NextStep", "Disabled")
        ),
    ],
)
def test_infos_mark_every_lost_episode(make, mode):
    with contextlib.closing(make(mode)) as envs, chaos(envs, **FAULTS):
        ledger = play(envs, mode, episodes_to_play(60))
    ledger.close("crashed", "raised")
