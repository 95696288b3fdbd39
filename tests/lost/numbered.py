"""An environment that tells which episode and step it shows: `NumberedEnv`.

An episode is a function of its seed alone, so `rewards_of` and `ends_of` say what an
undisturbed one returns.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import numpy as np

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
    truncation,
)

# The action of step n is n modulo this: any that is repeated or left out is noticed.
ACTIONS = 16
SEEDS = 2**31


class Episode(NamedTuple):
    """What a seed determines.

    Attributes:
        rewards: The reward of each step.
        is_terminated: Whether it ends by a termination, or else by a truncation.
        raises_at: The step that raises instead; 0 for none.
    """

    rewards: tuple[float, ...]
    is_terminated: bool
    raises_at: int


def episode_of(seed: int) -> Episode:
    """Returns the undisturbed episode of a seed."""
    source = random.Random(seed)
    length = source.randint(2, 14)
    # Halves and never zero: exact in every format, and nothing that is made up.
    rewards = tuple(source.randint(1, 200) / 2 for _ in range(length))
    is_terminated, raises = source.random() < 0.5, source.random() < 0.1
    return Episode(rewards, is_terminated, source.randint(1, length) if raises else 0)


def first_seed(seed: int) -> int:
    """Returns the first episode's seed in an environment that is given a seed."""
    return int(np.random.default_rng(seed).integers(SEEDS))


# The environment's seed for a first episode that soon raises.
RAISING = next(
    seed for seed in itertools.count() if 0 < episode_of(first_seed(seed)).raises_at < 6
)


def action_of(step: int) -> int:
    """Returns the action that step `step` of an episode must get; the first is 1."""
    return step % ACTIONS


class NumberedEnv(PyEnvironment):
    """Observes its episode's seed, the step, and how many actions were wrong so far."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._numbers = np.random.default_rng()
        self._seed = self._step_number = self._wrong = 0
        self._episode = episode_of(0)

    def observation_spec(self):
        return ArraySpec((3,), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, ACTIONS - 1)

    def get_info(self):
        return {"seed": np.int64(self._seed), "step": np.int64(self._step_number)}

    def _shown(self):
        return np.array([self._seed, self._step_number, self._wrong])

    def _reset(self, seed=None):
        if seed is not None:
            self._numbers = np.random.default_rng(seed)
        self._seed = int(self._numbers.integers(SEEDS))
        self._step_number, self._episode = 0, episode_of(self._seed)
        return restart(self._shown())

    def _step(self, action):
        self._step_number += 1
        if int(action) != action_of(self._step_number):
            self._wrong += 1
        rewards, is_terminated, raises_at = self._episode
        if self._step_number == raises_at:
            raise RuntimeError(f"step {raises_at} of episode {self._seed} fails")
        reward = rewards[self._step_number - 1]
        if self._step_number < len(rewards):
            return transition(self._shown(), reward)
        return (termination if is_terminated else truncation)(self._shown(), reward)
