"""Random actions keep to what observations and infos name as legal."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BoundedArraySpec,
    make,
    random_actions,
)
from envkit.policies import RandomActions, moderate, names_legal_actions
from envkit.testing import CountingEnv, check_environment
from envkit.testing.report import CheckFailed
from envkit.wrappers import RenameObservation, TimeLimit


class Doors(CountingEnv):
    """Has two of five doors open, which the info names; the others raise."""

    def __init__(self, name="legal_actions", form=list):
        super().__init__(steps_per_episode=7)
        self._name, self._form = name, form

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 1, 5)

    def _open(self):
        return [1 + self._current_step % 5, 1 + (self._current_step + 2) % 5]

    def get_info(self):
        return {self._name: self._form(self._open())}

    def _step(self, action):
        if int(action) not in self._open():
            raise ValueError(f"Door {action} is shut.")
        return super()._step(action)


def as_mask(doors):
    return np.isin(np.arange(1, 6), doors)


def rewards_of_tictactoe(env, rng, steps=60):
    act, time_step = random_actions(env, rng), env.reset()
    rewards = []
    for _ in range(steps):
        time_step = env.step(act(time_step))
        rewards.append(np.ravel(time_step.reward))
    return np.concatenate(rewards)


RENAMED = {"mask": "legal_actions"}
GAMES = {
    "single": lambda: make("TicTacToe", seed=1),
    "batch": lambda: make("TicTacToe", seed=1, batch_size=4),
    "pool": lambda: make("TicTacToe", seed=1, num_envs=3, backend="inline"),
    "wrapped": lambda: TimeLimit(
        RenameObservation(make("TicTacToe", seed=1), RENAMED), 9
    ),
}


@pytest.mark.parametrize("seeded", [True, False], ids=["seed", "generator"])
@pytest.mark.parametrize("game", GAMES)
def test_games_never_end_by_an_illegal_move(game, seeded):
    rng = 7 if seeded else np.random.default_rng(7)
    with GAMES[game]() as env:
        rewards = rewards_of_tictactoe(env, rng)
    # An illegal move costs a thousandth.
    assert {-1.0, 0.0, 1.0} == set(rewards.tolist())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("legal_actions", list),
        ("legal_actions", set),
        ("available_actions", np.array),
        ("action_mask", as_mask),
        ("mask", lambda doors: as_mask(doors).astype(np.int8)),
    ],
)
@pytest.mark.parametrize("rows", [None, 3], ids=["single", "pool"])
def test_infos_name_legal_actions_too(name, form, rows):
    pool = {"num_envs": rows, "backend": "inline"} if rows else {}
    actions = []
    with make(lambda: Doors(name, form), **pool) as env:
        act, time_step = random_actions(env, np.random.default_rng(1)), env.reset()
        for _ in range(20):
            actions.append(act(time_step))
            time_step = env.step(actions[-1])
    assert {1, 2, 3, 4, 5} == set(np.ravel(actions).tolist())


def test_equal_generators_draw_equal_actions():
    first, second = (
        rewards_of_tictactoe(make("TicTacToe", seed=1), np.random.default_rng(3))
        for _ in range(2)
    )
    assert first.tolist() == second.tolist()


def test_an_info_that_raises_is_ignored():
    class Silent(CountingEnv):
        def get_info(self):
            raise RuntimeError("There is none.")

    env = Silent()
    assert random_actions(env, 1)(env.reset()) in (0, 1)


def test_rows_without_a_mask_allow_everything():
    spec = BoundedArraySpec((), np.int64, 0, 2)
    act = RandomActions(spec, np.random.default_rng(0), 2)
    masks = [None, np.array([False, True, False])]
    stacked = act._stacked(masks)
    assert [[True] * 3, [False, True, False]] == stacked.tolist()


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        (ArraySpec((), np.float32), -1, 1),
        (ArraySpec((), np.float16), -1, 1),
        (BoundedArraySpec((), np.float32, 0, None), 0, 1),
        (BoundedArraySpec((), np.float64, None, -5), -6, -5),
        (BoundedArraySpec((), np.float64, 3, None), 3, 4),
        (BoundedArraySpec((), np.float32, -10, 10), -10, 10),
        (BoundedArraySpec((), np.float64, -1e9, 1e9), -1, 1),
        (BoundedArraySpec((), np.int64, -(2**40), 2**40), -(2**40), 2**40),
    ],
)
def test_floats_without_bounds_stay_near_zero(spec, low, high):
    narrow = moderate(spec)
    assert (low, high) == (narrow.minimum, narrow.maximum)
    assert spec.dtype == narrow.dtype


def test_the_names_of_legal_actions_are_found_in_nests():
    assert names_legal_actions(({"a": {"action_mask": 0}},))
    assert not names_legal_actions({"board": [1, {"masks": 2}]})


def test_the_checker_plays_legal_actions():
    assert () == check_environment(Doors, require=["episodes"]).failed


def test_the_checker_blames_a_function_that_chooses_other_actions():
    own = np.random.default_rng(0)

    def choose(time_step, rng):
        return own.integers(2)

    with pytest.raises(CheckFailed) as failed:
        check_environment(lambda: make("CartPole"), action_fn=choose)
    report = failed.value.report
    texts = {one.check: one.text for one in report.outcomes if one.status == "failed"}
    assert texts
    for text in texts.values():
        assert text.startswith("action_fn returned other actions after equal time st")


def test_rows_at_their_own_pace_have_another_policy():
    with (
        AsyncParallelPyEnvironment(["TicTacToe"], backend="inline") as env,
        pytest.raises(TypeError, match=r"use RandomPolicy\(env.action_spec\(\), "),
    ):
        random_actions(env)
