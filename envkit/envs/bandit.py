"""`Bandit`: a slot machine with several arms."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from envkit.envs.base import BatchableEnvironment
from envkit.envs.drawing import canvas, rectangle
from envkit.envs.kernels import Kernels
from envkit.extend import checked_size
from envkit.specs.arrays import BoundedArraySpec
from envkit.time_step import AutoReset
from envkit.types import Array, Seed

__all__ = ["Bandit"]


class Bandit(BatchableEnvironment):
    """Plays the Gaussian bandits of Sutton and Barto's testbed.

    Each episode is a new problem: the values of the arms are drawn from N(0, 1). An
    action pulls an arm, and the reward is drawn from N(value of the arm, 1). The
    observation is always 1, because there is nothing to see. Episodes are truncated
    after `episode_length` steps.

    `get_info` returns the values.

    Example:
        >>> env = Bandit(num_arms=3, episode_length=2, seed=1)
        >>> env.reset().observation, env.get_info()["values"].shape
        (array([1.], dtype=float32), (3,))
        >>> [bool(env.step(2).is_last()) for _ in range(2)]
        [False, True]
    """

    _state_arrays: ClassVar[tuple[str, ...]] = ("_values",)
    # Only counting is compiled. The rest stays in NumPy: the last bits of its
    # logarithms and sines differ from other libraries', and they take most of a step.
    _kernels: ClassVar[Kernels] = Kernels()

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        num_arms: int = 10,
        episode_length: int = 1000,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = False,
    ) -> None:
        """Makes a single environment, or a batch.

        Args:
            batch_size: The number of rows in the batch; `None` for a single
                environment.
            num_arms: The number of arms.
            episode_length: How many steps an episode has.
            seed: Seeds values and rewards, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the batch; the numbers stay the same.
        """
        super().__init__(
            BoundedArraySpec((1,), np.float32, 1.0, 1.0),
            num_actions=checked_size("num_arms", num_arms),
            batch_size=batch_size,
            max_episode_steps=checked_size("episode_length", episode_length),
            seed=seed,
            autoreset=autoreset,
            compiled=compiled,
        )
        self._values = np.zeros((self._num_rows, self._num_actions))

    def _begin(self, rows: Array) -> None:
        self._values[rows] = self._streams.normal(rows, self._num_actions).T

    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        rows = live.nonzero()[0]
        reward = np.zeros(self._num_rows, np.float32)
        reward[rows] = self._values[rows, actions[rows]] + self._streams.normal(rows, 1)
        return reward, np.zeros(self._num_rows, bool)

    def _observe(self) -> Array:
        return np.ones((self._num_rows, 1), np.float32)

    def _draw(self, row: int) -> Array:
        """Draws a bar for each arm, upwards from the middle if its value is above 0."""
        picture = canvas(120, 12 * self._num_actions, (25, 25, 30))
        picture[60] = 120
        for arm, value in enumerate(self._values[row]):
            top = 15.0 * value
            color = (90, 190, 120) if value > 0 else (210, 90, 80)
            rectangle(picture, (60 - top / 2, 12 * arm + 6), abs(top), 8, color)
        return picture

    def _info(self) -> dict[str, Array]:
        """Returns the expected reward of each arm."""
        return {"values": self._values.copy()}
