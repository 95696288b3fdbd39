"""Plays three in a row against an opponent who moves at random: `TicTacToe`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from envkit.envs.base import BatchableEnvironment
from envkit.envs.drawing import canvas, disc, line, written
from envkit.envs.kernels import Kernels
from envkit.envs.streams import drawn
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import AutoReset
from envkit.types import Array, Seed

__all__ = ["TicTacToe"]

_EMPTY, _PLAYER, _OPPONENT = 0, 1, 2


def _winning_lines() -> Array:
    """Lists the squares of each row, column and diagonal."""
    squares = np.arange(9).reshape(3, 3)
    diagonals = [squares.diagonal(), squares[::-1].diagonal()]
    lines = np.concatenate([squares, squares.T, diagonals])
    lines.setflags(write=False)
    return lines


_LINES = _winning_lines()


# Kernels for numba: `_begin`, `_advance` and `_observe` as loops over rows.


def _begin_rows(
    rows: Array,
    positions: Array,
    keys: Array,
    board: Array,
    winner: Array,
    win: float,
    loss: float,
    illegal: float,
) -> None:
    for row in rows:
        board[row, :] = _EMPTY
        winner[row] = _EMPTY


def _has_line(squares: Array, side: int) -> bool:
    for which in range(len(_LINES)):
        first, second, third = _LINES[which, 0], _LINES[which, 1], _LINES[which, 2]
        if squares[first] == squares[second] == squares[third] == side:
            return True
    return False


def _number_empty(squares: Array) -> int:
    count = 0
    for square in range(9):
        if squares[square] == _EMPTY:
            count += 1
    return count


def _advance_rows(
    actions: Array,
    live: Array,
    positions: Array,
    keys: Array,
    reward: Array,
    over: Array,
    board: Array,
    winner: Array,
    win: float,
    loss: float,
    illegal: float,
) -> None:
    for row in range(len(actions)):
        squares = board[row]
        if not live[row] or squares[actions[row]] != _EMPTY:
            reward[row], over[row] = illegal, True
            continue
        squares[actions[row]] = _PLAYER
        if _has_line(squares, _PLAYER):
            winner[row] = _PLAYER
        empty = _number_empty(squares)
        if empty > 0 and winner[row] == _EMPTY:
            positions[row], share = drawn(positions[row], keys[row])
            chosen = int(share * empty)
            # The empty square with that many empty ones before it.
            square = 0
            while squares[square] != _EMPTY or chosen > 0:
                if squares[square] == _EMPTY:
                    chosen -= 1
                square += 1
            squares[square] = _OPPONENT
            if _has_line(squares, _OPPONENT):
                winner[row] = _OPPONENT
            empty -= 1
        over[row] = winner[row] != _EMPTY or empty == 0
        reward[row] = 0.0
        if winner[row] == _PLAYER:
            reward[row] = win
        elif winner[row] == _OPPONENT:
            reward[row] = loss


def _observe_rows(
    terminated: Array,
    board: Array,
    winner: Array,
    win: float,
    loss: float,
    illegal: float,
    seen: Array,
    mask: Array,
) -> None:
    for row in range(len(board)):
        for square in range(9):
            seen[row, square // 3, square % 3] = board[row, square]
            mask[row, square] = (board[row, square] == _EMPTY) | terminated[row]


class TicTacToe(BatchableEnvironment):
    """Plays tic-tac-toe: the player moves first, and a random opponent answers.

    An action is a square, counted from 0 at the top left to 8 at the bottom right. The
    opponent answers within the same step. Three in a row win 1 and lose -1, and a full
    board is worth 0. Choosing an occupied square loses a little and ends the game.

    The observation has the `board` (0 empty, 1 player, 2 opponent) and the `mask` of
    legal actions. When the game is over, every action is marked as legal, because the
    next one is ignored.

    Example:
        >>> env = TicTacToe(seed=1)
        >>> _ = env.reset()
        >>> observation = env.step(4).observation
        >>> int(observation["board"][1, 1]), int(observation["mask"].sum())
        (1, 7)
    """

    REWARD_WIN: ClassVar[float] = 1.0
    REWARD_LOSS: ClassVar[float] = -1.0
    # So small that it hardly changes the value of a position.
    REWARD_ILLEGAL_MOVE: ClassVar[float] = -0.001

    _state_arrays: ClassVar[tuple[str, ...]] = ("_board", "_winner")
    _parameters: ClassVar[tuple[str, ...]] = (
        "REWARD_WIN",
        "REWARD_LOSS",
        "REWARD_ILLEGAL_MOVE",
    )
    _kernels: ClassVar[Kernels] = Kernels(_begin_rows, _advance_rows, _observe_rows)

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = False,
    ) -> None:
        """Makes a single environment, or a batch.

        Args:
            batch_size: The number of rows in the batch; `None` for a single
                environment.
            seed: Seeds the opponent, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the batch; the numbers stay the same.
        """
        super().__init__(
            {
                "board": BoundedArraySpec((3, 3), np.int32, 0, 2, name="board"),
                "mask": ArraySpec((9,), np.bool_, name="mask"),
            },
            num_actions=9,
            batch_size=batch_size,
            seed=seed,
            autoreset=autoreset,
            compiled=compiled,
        )
        self._board = np.zeros((self._num_rows, 9), np.int32)
        self._winner = np.zeros(self._num_rows, np.int32)

    def _begin(self, rows: Array) -> None:
        self._board[rows] = _EMPTY
        self._winner[rows] = _EMPTY

    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        legal = live & (self._board[np.arange(self._num_rows), actions] == _EMPTY)
        movers = legal.nonzero()[0]
        self._board[movers, actions[movers]] = _PLAYER
        self._winner[self._have_line(movers, _PLAYER)] = _PLAYER
        open_rows = self._still_open(movers)
        self._answer(open_rows)
        self._winner[self._have_line(open_rows, _OPPONENT)] = _OPPONENT
        over = ~legal
        over[movers] = True
        over[self._still_open(movers)] = False
        return self._rewards(legal), over

    def _answer(self, rows: Array) -> None:
        """Makes the opponent choose one of the empty squares in these rows."""
        empty = self._board[rows] == _EMPTY
        count = empty.sum(axis=1)
        chosen = self._streams.integers(rows, 0, count)
        # The first square up to which that many are empty, including itself.
        square = (empty.cumsum(axis=1) > chosen[:, np.newaxis]).argmax(axis=1)
        self._board[rows, square] = _OPPONENT

    def _have_line(self, rows: Array, side: int) -> Array:
        """Returns those of the rows in which a side has three in a row."""
        theirs = self._board[rows] == side
        found: Array = rows[theirs[:, _LINES].all(axis=2).any(axis=1)]
        return found

    def _still_open(self, rows: Array) -> Array:
        """Returns those of the rows in which the game continues."""
        room = (self._board[rows] == _EMPTY).any(axis=1)
        found: Array = rows[room & (self._winner[rows] == _EMPTY)]
        return found

    def _rewards(self, legal: Array) -> Array:
        reward = np.zeros(self._num_rows, np.float32)
        reward[self._winner == _PLAYER] = self.REWARD_WIN
        reward[self._winner == _OPPONENT] = self.REWARD_LOSS
        reward[~legal] = self.REWARD_ILLEGAL_MOVE
        return reward

    def _observe(self) -> dict[str, Array]:
        over = self._terminated[:, np.newaxis]
        return {
            "board": self._board.reshape(-1, 3, 3).copy(),
            "mask": (self._board == _EMPTY) | over,
        }

    def _draw(self, row: int) -> Array:
        picture = canvas(120, 120, (245, 245, 240))
        for edge in (40, 80):
            line(picture, (edge, 5), (edge, 115), 2, (90, 90, 90))
            line(picture, (5, edge), (115, edge), 2, (90, 90, 90))
        for square, side in enumerate(self._board[row]):
            down, right = 40 * (square // 3) + 20, 40 * (square % 3) + 20
            if side == _PLAYER:
                for slope in (-10, 10):
                    start, end = (down - 10, right - slope), (down + 10, right + slope)
                    line(picture, start, end, 4, (50, 90, 190))
            elif side == _OPPONENT:
                disc(picture, (down, right), 13, (200, 70, 60))
                disc(picture, (down, right), 9, (245, 245, 240))
        return picture

    def _text(self, row: int) -> str:
        return written(np.array([".", "X", "O"])[self._board[row].reshape(3, 3)])

    def _info(self) -> dict[str, Array]:
        """Returns the winner: 1 player, 2 opponent, 0 neither."""
        return {"winner": self._winner.copy()}
