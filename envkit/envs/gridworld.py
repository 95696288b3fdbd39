"""Finds a goal on a grid, shown as an image: `GridWorld`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from envkit.envs.base import BatchableEnvironment
from envkit.envs.drawing import enlarged, written
from envkit.envs.kernels import Kernels
from envkit.envs.streams import drawn
from envkit.extend import checked_size
from envkit.specs.arrays import BoundedArraySpec
from envkit.time_step import AutoReset
from envkit.types import Array, Seed

__all__ = ["GridWorld"]

_GOAL, _AGENT = 0, 1  # The channels of the image.


def _moves() -> Array:
    moves = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
    moves.setflags(write=False)
    return moves


_MOVES = _moves()


# Kernels for numba: `_begin`, `_advance` and `_observe` as loops over rows.


def _begin_rows(
    rows: Array, positions: Array, keys: Array, agent: Array, goal: Array, size: int
) -> None:
    cells = size * size
    for row in rows:
        positions[row], share = drawn(positions[row], keys[row])
        start = int(share * cells)
        positions[row], share = drawn(positions[row], keys[row])
        end = int(share * (cells - 1))
        end += end >= start
        agent[row, 0], agent[row, 1] = start // size, start % size
        goal[row, 0], goal[row, 1] = end // size, end % size


def _advance_rows(
    actions: Array,
    live: Array,
    positions: Array,
    keys: Array,
    reward: Array,
    arrived: Array,
    agent: Array,
    goal: Array,
    size: int,
) -> None:
    for row in range(len(actions)):
        down = agent[row, 0] + _MOVES[actions[row], 0]
        right = agent[row, 1] + _MOVES[actions[row], 1]
        agent[row, 0] = min(max(down, 0), size - 1)
        agent[row, 1] = min(max(right, 0), size - 1)
        arrived[row] = (agent[row, 0] == goal[row, 0]) & (agent[row, 1] == goal[row, 1])
        reward[row] = np.float32(arrived[row])


def _observe_rows(
    terminated: Array, agent: Array, goal: Array, size: int, image: Array
) -> None:
    image[:] = 0
    for row in range(len(image)):
        image[row, goal[row, 0], goal[row, 1], _GOAL] = 255
        image[row, agent[row, 0], agent[row, 1], _AGENT] = 255


class GridWorld(BatchableEnvironment):
    """Walks on a square grid until it reaches a goal.

    The agent and the goal start on two different random cells. The actions are up (0),
    right (1), down (2) and left (3); at the border the agent stays where it is.
    Reaching the goal terminates the episode with reward 1; all other rewards are 0.
    Episodes are truncated after `max_episode_steps`.

    The observation is an image with one pixel per cell: the goal in red, the agent in
    green, and yellow if both are on one cell.

    Example:
        >>> env = GridWorld(size=3, seed=1)
        >>> image = env.reset().observation
        >>> image.shape, image.sum(axis=(0, 1)).tolist()
        ((3, 3, 3), [255, 255, 0])
    """

    action_names: ClassVar[tuple[str, ...]] = ("up", "right", "down", "left")
    _state_arrays: ClassVar[tuple[str, ...]] = ("_agent", "_goal")
    _parameters: ClassVar[tuple[str, ...]] = ("_size",)
    _kernels: ClassVar[Kernels] = Kernels(_begin_rows, _advance_rows, _observe_rows)

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        size: int = 8,
        max_episode_steps: int | None = 100,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = False,
    ) -> None:
        """Makes a single environment, or a batch.

        Args:
            batch_size: The number of rows in the batch; `None` for a single
                environment.
            size: The side of the grid in cells, at least 2.
            max_episode_steps: The number of steps after which an episode is truncated;
                `None` for no limit.
            seed: Seeds the initial cells, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the batch; the numbers stay the same.
        """
        self._size = checked_size("size", size, least=2)
        super().__init__(
            BoundedArraySpec((self._size, self._size, 3), np.uint8, name="image"),
            num_actions=4,
            batch_size=batch_size,
            max_episode_steps=max_episode_steps,
            seed=seed,
            autoreset=autoreset,
            compiled=compiled,
        )
        self._agent = np.zeros((self._num_rows, 2), np.int64)
        self._goal = np.zeros((self._num_rows, 2), np.int64)

    def _begin(self, rows: Array) -> None:
        cells = self._size**2
        agent = self._streams.integers(rows, 0, cells)
        # Draws among the other cells: the count skips the agent's.
        goal = self._streams.integers(rows, 0, cells - 1)
        goal += goal >= agent
        self._agent[rows] = np.stack(np.divmod(agent, self._size), axis=1)
        self._goal[rows] = np.stack(np.divmod(goal, self._size), axis=1)

    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        self._agent += _MOVES[actions]
        np.clip(self._agent, 0, self._size - 1, out=self._agent)
        arrived = (self._agent == self._goal).all(axis=1)
        return arrived.astype(np.float32), arrived

    def _observe(self) -> Array:
        image = np.zeros((self._num_rows, self._size, self._size, 3), np.uint8)
        every = np.arange(self._num_rows)
        for channel, (down, right) in ((_GOAL, self._goal.T), (_AGENT, self._agent.T)):
            image[every, down, right, channel] = 255
        return image

    def _draw(self, row: int) -> Array:
        cells = np.full((self._size, self._size, 3), 40, np.uint8)
        cells[tuple(self._goal[row])] = (220, 60, 60)
        cells[tuple(self._agent[row])] = (70, 200, 90)
        picture = enlarged(cells, 16)
        picture[::16] = picture[:, ::16] = 20
        return picture

    def _text(self, row: int) -> str:
        cells = np.full((self._size, self._size), ".")
        cells[tuple(self._goal[row])] = "G"
        cells[tuple(self._agent[row])] = "A"
        return written(cells)

    def _info(self) -> dict[str, Array]:
        """Returns the cells of the agent and the goal as (row, column)."""
        return {"agent": self._agent.copy(), "goal": self._goal.copy()}
