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
    """The testbed of Gaussian bandits of Sutton and Barto's book.

    Each episode is another problem: the values of its arms are drawn from N(0, 1). An
    action pulls an arm, and the reward is drawn from N(value of the arm, 1). There is
    nothing to see, so the observation is always 1, and nothing that could end an
    episode but its length: it is truncated.

    `get_info` tells the values.

    Example:
        >>> env = Bandit(num_arms=3, episode_length=2, seed=1)
        >>> env.reset().observation, env.get_info()["values"].shape
        (array([1.], dtype=float32), (3,))
        >>> [bool(env.step(2).is_last()) for _ in range(2)]
        [False, True]
    """

    _state_arrays: ClassVar[tuple[str, ...]] = ("_values",)
    # All but what counts episodes is NumPy's: the last bit of its logarithms and sines
    # differs from that of others, and they take most of a step.
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
            batch_size: How many rows the batch has; `None` for a single environment.
            num_arms: How many arms there are to choose from.
            episode_length: How many steps an episode has.
            seed: What values and rewards depend on, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the batch, to the same numbers.
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
