"""Environments whose transitions are known beforehand, and what a device can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
    truncation,
)

TERMINATED, TRUNCATED = "terminated", "truncated"


class Episode(NamedTuple):
    """How many transitions an episode has, and how it ends."""

    length: int
    end: str


class Known(NamedTuple):
    """A transition that an environment of episodes makes."""

    observation: float
    action: int
    reward: float
    discount: float
    next_observation: float
    is_last: bool


def choice(observation):
    """Returns the action that is taken after an observation."""
    return int(observation) * 7 // 3 % 2


def value(observation):
    """Returns what an observation is worth, in the eyes of the policy."""
    return observation * 0.25 % 3.0 - 1.0


class Episodes(PyEnvironment):
    """Plays given episodes, over and over; each observation is a number of its own."""

    def __init__(self, episodes, first=0):
        super().__init__(handle_auto_reset=True)
        self._episodes, self._count, self._number = episodes, -1, first

    def observation_spec(self):
        return {"number": ArraySpec((), np.float32), "pair": ArraySpec((2,), np.int64)}

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        self._count += 1
        self._left = self._episodes[self._count % len(self._episodes)].length
        return restart(self._observe())

    def _step(self, action):
        self._left -= 1
        reward = 0.5 * self._number + int(action)
        end = self._episodes[self._count % len(self._episodes)].end
        observation = self._observe()
        if self._left:
            return transition(observation, reward, discount=0.9)
        if end == TERMINATED:
            return termination(observation, reward)
        return truncation(observation, reward, discount=0.8)

    def _observe(self):
        self._number += 1
        return {
            "number": np.array(self._number, np.float32),
            "pair": np.array([self._number, self._left], np.int64),
        }


def known_transitions(episodes, first=0) -> Iterator[Known]:
    """Yields what an environment of episodes makes of the actions of `choice`."""
    number = float(first)
    for episode in itertools.cycle(episodes):
        number += 1
        for left in range(episode.length - 1, -1, -1):
            action = choice(number)
            discount = 0.9
            if not left:
                discount = 0.0 if episode.end == TERMINATED else 0.8
            reward = 0.5 * number + action
            yield Known(number, action, reward, discount, number + 1, not left)
            number += 1


def devices():
    """Lists the devices, each of which is a parameter of tests."""
    import torch

    without = pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a graphics card with CUDA"
    )
    return ["cpu", pytest.param("cuda", marks=without)]
