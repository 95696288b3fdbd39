"""Catches a falling ball with a paddle: `Catch`."""

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

__all__ = ["Catch"]


# Kernels for numba: `_begin`, `_advance` and `_observe` as loops over rows.


def _begin_rows(
    rows: Array,
    positions: Array,
    keys: Array,
    ball_row: Array,
    ball_column: Array,
    paddle: Array,
    height: int,
    width: int,
) -> None:
    for row in rows:
        positions[row], share = drawn(positions[row], keys[row])
        ball_row[row] = 0
        ball_column[row] = int(share * width)
        paddle[row] = width // 2


def _advance_rows(
    actions: Array,
    live: Array,
    positions: Array,
    keys: Array,
    reward: Array,
    arrived: Array,
    ball_row: Array,
    ball_column: Array,
    paddle: Array,
    height: int,
    width: int,
) -> None:
    for row in range(len(actions)):
        paddle[row] = min(max(paddle[row] + actions[row] - 1, 0), width - 1)
        ball_row[row] += 1
        arrived[row] = ball_row[row] == height - 1
        caught = 1.0 if ball_column[row] == paddle[row] else -1.0
        reward[row] = caught if arrived[row] else 0.0


def _observe_rows(
    terminated: Array,
    ball_row: Array,
    ball_column: Array,
    paddle: Array,
    height: int,
    width: int,
    board: Array,
) -> None:
    board[:] = 0.0
    for row in range(len(board)):
        board[row, ball_row[row], ball_column[row]] = 1.0
        board[row, height - 1, paddle[row]] = 1.0


class Catch(BatchableEnvironment):
    """Catches a falling ball with a paddle, as in bsuite's game of that name.

    A ball starts at the top in a random column and falls by one row in each step. The
    paddle starts in the middle of the bottom row and moves left (action 0), stays (1)
    or moves right (2). When the ball arrives, the episode terminates with reward 1 if
    the paddle is there and -1 if it is not; all other rewards are 0.

    The observation is the board, with ones where the ball and the paddle are.

    Example:
        >>> env = Catch(rows=3, columns=3, seed=1)
        >>> env.reset().observation[-1].tolist()
        [0.0, 1.0, 0.0]
        >>> env.step(0).observation[-1].tolist()
        [1.0, 0.0, 0.0]
    """

    action_names: ClassVar[tuple[str, ...]] = ("left", "stay", "right")
    _state_arrays: ClassVar[tuple[str, ...]] = ("_ball_row", "_ball_column", "_paddle")
    _parameters: ClassVar[tuple[str, ...]] = ("_height", "_width")
    _kernels: ClassVar[Kernels] = Kernels(_begin_rows, _advance_rows, _observe_rows)

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        rows: int = 10,
        columns: int = 5,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = False,
    ) -> None:
        """Makes a single environment, or a batch.

        Args:
            batch_size: The number of rows in the batch; `None` for a single
                environment.
            rows: The height of the board, at least 2. An episode has one step less.
            columns: The width of the board.
            seed: Seeds the balls' columns, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the batch; the numbers stay the same.
        """
        self._height = checked_size("rows", rows, least=2)
        self._width = checked_size("columns", columns)
        super().__init__(
            BoundedArraySpec(
                (self._height, self._width), np.float32, 0.0, 1.0, name="board"
            ),
            num_actions=3,
            batch_size=batch_size,
            seed=seed,
            autoreset=autoreset,
            compiled=compiled,
        )
        self._ball_row = np.zeros(self._num_rows, np.int64)
        self._ball_column = np.zeros(self._num_rows, np.int64)
        self._paddle = np.zeros(self._num_rows, np.int64)

    def _begin(self, rows: Array) -> None:
        self._ball_row[rows] = 0
        self._ball_column[rows] = self._streams.integers(rows, 0, self._width)
        self._paddle[rows] = self._width // 2

    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        self._paddle += actions - 1
        np.clip(self._paddle, 0, self._width - 1, out=self._paddle)
        self._ball_row += 1
        arrived = self._ball_row == self._height - 1
        caught = np.where(self._ball_column == self._paddle, 1.0, -1.0)
        return np.where(arrived, caught, 0.0).astype(np.float32), arrived

    def _observe(self) -> Array:
        board = np.zeros((self._num_rows, self._height, self._width), np.float32)
        every = np.arange(self._num_rows)
        board[every, self._ball_row, self._ball_column] = 1.0
        board[every, -1, self._paddle] = 1.0
        return board

    def _draw(self, row: int) -> Array:
        cells = np.zeros((self._height, self._width, 3), np.uint8)
        cells[-1, self._paddle[row]] = (70, 130, 220)
        cells[self._ball_row[row], self._ball_column[row]] = (240, 160, 40)
        return enlarged(cells, 16)

    def _text(self, row: int) -> str:
        cells = np.full((self._height, self._width), ".")
        cells[-1, self._paddle[row]] = "="
        cells[self._ball_row[row], self._ball_column[row]] = "o"
        return written(cells)
