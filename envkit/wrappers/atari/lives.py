"""`LivesLookup`: how many lives are left in a game."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = ["LivesLookup"]


class LivesLookup:
    """Looks up how many lives are left in each row.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch(batch_size=2, seed=1)
        >>> lookup = LivesLookup(env, lambda time_step, info: 9 - info["episode_steps"])
        >>> time_step = env.reset()
        >>> lookup(time_step), lookup(env.step([0, 0]))
        (array([9., 9.]), array([8., 8.]))
    """

    def __init__(
        self, env: Any, lives: Callable[[TimeStep, Any], Any] | None = None
    ) -> None:
        """Prepares for an environment.

        Args:
            env: The environment.
            lives: What takes its time step and its info and returns the lives; `None`
                for `get_info()["lives"]`.
        """
        if lives is not None and not callable(lives):
            raise TypeError(
                "lives must be a function of a time step and its info, not "
                f"{describe(lives)}."
            )
        self._env = env
        self._lives = lives
        batched = getattr(env, "batched", False) is True
        self._dims = (env.batch_size,) if batched else ()

    def __call__(self, time_step: TimeStep) -> Array:
        """Returns the lives, for the environment's current time step."""
        info = self._info()
        if self._lives is None:
            found = self._lives_in(info)
        else:
            found = self._lives(time_step, info)
        lives = _numbers(found)
        if lives.shape != self._dims or np.isnan(lives).any():
            wanted = "a number"
            if self._dims:
                wanted = f"{self._dims[0]} numbers, one for each row"
            raise ValueError(
                f"The lives of {type(self._env).__name__} are {describe(found)}; they "
                f"must be {wanted}."
            )
        return lives

    def _info(self) -> Any:
        try:
            return self._env.get_info()
        except NotImplementedError:
            return None  # The time step may do.

    def _lives_in(self, info: Any) -> Any:
        try:
            # Of a batch whose infos cannot be stacked there is a list of them.
            if isinstance(info, list | tuple):
                return [one["lives"] for one in info]
            return info["lives"]
        except (KeyError, TypeError, IndexError):
            raise ValueError(
                f"get_info() of {type(self._env).__name__} has no 'lives', so it is "
                "not known when one is lost. Pass lives=..., a function of a time step "
                "and its info that returns how many are left."
            ) from None


def _numbers(found: Any) -> Array:
    try:
        return np.array(found, np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)
