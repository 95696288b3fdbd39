"""Stands in for a library that draws from the generators of the whole process."""

from __future__ import annotations

import os
import random

# As libraries do: these functions stay those of the global generator.
from random import gauss, randint
from typing import Any

import numpy as np
from numpy.random import normal, standard_normal

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
)

EPISODE = 7


def drawn(count: int) -> list[float]:
    """Draws numbers in all ways, an odd number of the normal ones."""
    numbers = [float(randint(0, 9)) for _ in range(count)]
    numbers += [gauss(0, 1) for _ in range(count)]
    numbers += [random.random(), float(normal())]  # noqa: NPY002  # so do they
    numbers += standard_normal(count).tolist()  # noqa: NPY002
    return [sum(numbers), numbers[0], numbers[-1]]


class Lottery(PyEnvironment):
    """Shows what it draws in its constructor, in resets, steps, infos and pictures.

    How much it draws depends on the action. It has neither seeds nor, unless it is a
    `Keeping`, states.
    """

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self.made_with = drawn(1)
        self.steps = 0

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((3,), np.float64)

    def action_spec(self) -> ArraySpec:
        return BoundedArraySpec((), np.int64, 0, 2)

    def _reset(self) -> Any:
        self.steps = 0
        return restart(np.array(drawn(1)))

    def _step(self, action: Any) -> Any:
        self.steps += 1
        numbers = np.array(drawn(int(action)))
        if self.steps == EPISODE:
            return termination(numbers, reward=1.0)
        return transition(numbers, reward=0.5)

    def get_info(self) -> Any:
        return {"drawn": drawn(1)[0]}

    def render(self, mode: str = "rgb_array") -> Any:
        if mode != "rgb_array":
            raise NotImplementedError(f"Only rgb_array is rendered, not {mode!r}.")
        return np.full((2, 2, 3), randint(0, 255), np.uint8)

    def shuffled(self, count: int) -> list[int]:
        """Returns numbers in an order that it draws."""
        order = list(range(count))
        random.shuffle(order)
        return order

    def fail(self) -> None:
        """Draws, and raises."""
        drawn(3)
        raise KeyError("it fails")

    def pid(self) -> int:
        """Returns the process."""
        return os.getpid()


class Keeping(Lottery):
    """Can save its state, which does not include the generators."""

    def _get_state(self) -> Any:
        return self.steps

    def _set_state(self, state: Any) -> None:
        self.steps = state


class Seeded(Lottery):
    """Seeds the generators of the whole process, as many libraries do."""

    def seed(self, seed: Any) -> Any:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # it is what they do
        return [seed]


class Torched(Lottery):
    """Draws from PyTorch's generator."""

    def _step(self, action: Any) -> Any:
        import torch

        return transition(torch.rand(3).double().numpy(), reward=0.5)
