"""`AtariTimeLimit`: a limit for games whose episodes are lives."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.envs.base import checked_size
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed
from envkit.wrappers.atari.some_rows import move
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.limits import info_at_limit

__all__ = ["AtariTimeLimit"]

_FIRST, _LAST = StepType.FIRST, StepType.LAST


class AtariTimeLimit(PyEnvironmentBaseWrapper):
    """Truncates a game after so many steps, however many lives they were.

    It goes around `AtariPreprocessing`, whose episodes may be lives, and counts the
    steps since a game has begun. The last of them becomes a `LAST` and keeps its
    discount, and the next one resets the game.

    Each row of a batch counts for itself. The batch has to be able to reset single
    rows for that, as its `resets_rows` says.

    Example:
        >>> from envkit.envs import GridWorld
        >>> from envkit.wrappers.atari.preprocessing import AtariPreprocessing
        >>> env = AtariTimeLimit(AtariPreprocessing(GridWorld(seed=1)), duration=2)
        >>> [int(env.step(0).step_type) for _ in range(5)], env.game_over
        ([0, 1, 2, 0, 1], False)
    """

    _kept = ("_steps", "_has_ended", "_has_lost", "_limited", "_cut")
    _shown = ("duration",)

    def __init__(
        self, env: Any, duration: int, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap, which has an attribute `game_over`.
            duration: The most steps a game has.
            handle_auto_reset: As with every wrapper; it makes no difference here.
        """
        # The base class would begin a game after the loss of a life.
        super().__init__(env, handle_auto_reset=False)
        self._duration = checked_size("duration", duration)
        if not hasattr(env, "game_over"):
            raise ValueError(
                f"AtariTimeLimit needs an environment with an attribute game_over, "
                f"which tells the end of a game from that of a life, and "
                f"{type(env).__name__} has none. Put it around AtariPreprocessing, or "
                "use TimeLimit."
            )
        self._check_resets_rows()
        self._nobody = np.zeros(self._dims, bool)
        self._steps = np.zeros(self._dims, np.int64)
        # Where a game has ended with the current time step, by itself or here; and
        # where a life has ended.
        self._has_ended = self._nobody
        self._has_lost = self._nobody
        # Where the current time step is a LAST at the limit, and one only here.
        self._limited = self._cut = self._nobody

    @property
    def duration(self) -> int:
        """The most steps a game has."""
        return self._duration

    @property
    def game_over(self) -> Any:
        """Whether the game has ended; in a batch an array of booleans."""
        return self._has_ended.copy() if self._dims else bool(self._has_ended)

    def get_info(self) -> Any:
        """Returns the environment's info, and how an episode at the limit has ended."""
        return info_at_limit(
            self._env, self._limited, self._cut, self._current_time_step
        )

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment; the next reset begins a game everywhere."""
        result = super().seed(seed)
        self._begin_games()
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        super()._seed_rows(seeds)
        self._begin_games(np.array([seed is not None for seed in seeds]))

    def _take_options(self, options: Any, rows: Array | None) -> None:
        super()._take_options(options, rows)
        if options is not None:  # They are for a game, and not for its next life.
            self._begin_games(rows)

    def _begin_games(self, rows: Array | None = None) -> None:
        """Lets the next reset begin a game where it would have begun a life."""
        lost = self._has_lost if rows is None else self._has_lost & rows
        self._has_ended = self._has_ended | lost
        self._has_lost = self._has_lost & ~lost

    def _reset(self) -> TimeStep:
        return self._move(None, self._nobody, ~self._nobody)

    def _reset_rows(self, mask: Array) -> TimeStep:
        return self._move(None, self._nobody, mask)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._move(action, ~self._nobody, self._nobody)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._move(action, stepping, beginning)

    def _move(self, action: NestedArray, stepping: Array, beginning: Array) -> TimeStep:
        touched = stepping | beginning
        goes_on = self._has_lost & ~self._has_ended
        games = (beginning & ~goes_on) | (stepping & self._has_ended)
        # A reset right after the loss of a life begins the next one: it takes another
        # to begin a game.
        twice = games & self._has_lost
        if twice.any():
            move(self._env, action, self._nobody, twice)
        time_step = move(self._env, action, stepping & ~games, beginning | games)
        step_type = np.asarray(time_step.step_type)
        steps = np.where(games, 0, self._steps + (step_type != _FIRST))
        is_last = step_type == _LAST
        cut = (steps >= self._duration) & (step_type != _FIRST)
        over = np.asarray(self._env.game_over)
        self._steps = np.where(touched, steps, self._steps)
        self._has_ended = np.where(touched, (is_last & over) | cut, self._has_ended)
        self._has_lost = np.where(touched, is_last & ~over, self._has_lost)
        self._limited = np.where(touched, cut, self._limited)
        self._cut = np.where(touched, cut & ~is_last, self._cut)
        if not cut.any():
            return time_step
        return time_step._replace(step_type=np.where(cut, _LAST, step_type))
