"""Vector environments side by side: what tests of several files play with them."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

MODES = ["NextStep", "SameStep", "Disabled"]
# Each has another kind of observations or actions; FrozenLake has infos.
GAMES = ["Blackjack-v1", "CartPole-v1", "FrozenLake-v1", "Pendulum-v1"]


class Short(gymnasium.Wrapper):
    """Ends every episode early, in each row at another time."""

    def __init__(self, env, limit):
        super().__init__(env)
        self._limit = limit

    def reset(self, **kwargs):
        self._steps = 0
        return super().reset(**kwargs)

    def step(self, action):
        self._steps += 1
        observation, reward, terminated, _, info = super().step(action)
        # Now and then both at once.
        return observation, reward, terminated, self._steps >= self._limit, info


def makers(name, rows=3):
    return [lambda row=row: Short(gymnasium.make(name), 7 + row) for row in range(rows)]


def assert_alike(expected, got, path=""):
    """Compares what two vector environments returned, containers and dtypes too."""
    assert type(expected) is type(got), path
    if isinstance(expected, dict):
        assert expected.keys() == got.keys(), path
        for key, value in expected.items():
            assert_alike(value, got[key], f"{path}[{key!r}]")
    elif isinstance(expected, tuple):
        assert len(expected) == len(got), path
        for index, value in enumerate(expected):
            assert_alike(value, got[index], f"{path}[{index}]")
    elif isinstance(expected, np.ndarray) and expected.dtype == object:
        for one, other in zip(expected, got, strict=True):
            # Environments return what they like; here there are members of spaces.
            assert one is other or data_equivalence(_plain(one), _plain(other)), path
    elif isinstance(expected, np.ndarray):
        # Gymnasium cuts fractions off where the first row has an integer.
        is_cut = expected.dtype.kind == "i" and got.dtype.kind == "f" and "info" in path
        assert is_cut or expected.dtype == got.dtype, path
        np.testing.assert_array_equal(expected, got.astype(expected.dtype), path)
    else:
        assert expected == got, path


def _plain(value):
    """Makes one type of all integers."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return np.asarray(value) if isinstance(value, int | np.integer) else value


def assert_same_game(expected, envs, steps):
    """Plays the same game with two vector environments, and compares everything."""
    assert expected.single_observation_space == envs.single_observation_space
    assert expected.single_action_space == envs.single_action_space
    assert expected.observation_space == envs.observation_space
    assert expected.action_space == envs.action_space
    assert expected.metadata["autoreset_mode"] == envs.metadata["autoreset_mode"]
    assert_alike(expected.reset(seed=5), envs.reset(seed=5), "reset()")
    expected.action_space.seed(1)
    names = ("observations", "rewards", "terminations", "truncations", "infos")
    for step in range(steps):
        actions = expected.action_space.sample()
        theirs, ours = expected.step(actions), envs.step(actions)
        for name, one, other in zip(names, theirs, ours, strict=True):
            assert_alike(one, other, f"{name} of step {step}")
        over = theirs[2] | theirs[3]
        if expected.metadata["autoreset_mode"].value == "Disabled" and over.any():
            options = {"reset_mask": over}
            assert_alike(
                expected.reset(seed=step, options=dict(options)),
                envs.reset(seed=step, options=options),
                f"reset() after step {step}, infos",
            )
            assert ["reset_mask"] == list(options)


def transitions(envs, steps):
    """Returns each row's real transitions; actions depend on the row and their number.

    So they do not depend on how many steps a row is ahead of others.
    """
    mode = envs.metadata["autoreset_mode"].value
    rows = envs.num_envs
    tables = [np.random.default_rng(row).random((steps, 8)) for row in range(rows)]
    played = [[] for _ in range(rows)]
    before, _ = envs.reset(seed=3)
    dead = np.zeros(rows, bool)
    for _ in range(steps):
        actions = np.array(
            [int(tables[row][len(played[row]), 0] * 2) for row in range(rows)]
        )
        after, rewards, terminated, truncated, infos = envs.step(actions)
        over = terminated | truncated
        for row in np.flatnonzero(~dead).tolist():
            end = (
                infos["final_obs"][row]
                if over[row] and mode == "SameStep"
                else after[row]
            )
            played[row].append(
                (
                    before[row].tolist(),
                    int(actions[row]),
                    float(rewards[row]),
                    end.tolist(),
                    bool(terminated[row]),
                    bool(truncated[row]),
                )
            )
        dead = over & (mode == "NextStep")
        before = after
        if mode == "Disabled" and over.any():
            before, _ = envs.reset(options={"reset_mask": over})
    return played
