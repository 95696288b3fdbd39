"""`Rebuilt`: an environment that is built anew after so many episodes, as it leaks.

It is a layer around what a constructor returned, so that all that concerns single
environments (orders of resets, states, replays, recordings) holds for it as it is.

The environment that comes next continues the stream of seeds: the k-th after a seed `s`
is seeded with `derived_seed(s, k)`, unless it begins with a seed of its own. It gets
the options of the reset that it begins with, and the attributes that those before it
were given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envkit.base_wrapper import PyEnvironmentBaseWrapper, set_attribute
from envkit.batches import hand_options
from envkit.seeding import derived_seed
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["Rebuilt"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


class Rebuilt(PyEnvironmentBaseWrapper):
    """Builds a single environment anew once it has had so many episodes.

    That is part of the reset with which the next episode begins: the environment is
    closed before the next one is built, because a process may be able to hold but one.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = Rebuilt(CountingEnv(1), lambda old: CountingEnv(1), 2)
        >>> [int(env.step(0).observation) for _ in range(8)]
        [0, 1, 10, 11, 0, 1, 10, 11]
    """

    # The worker looks at what it returns.
    _unseen = ()
    _kept = ("_episodes", "_has_moved", "_seed", "_rebuilds", "_is_seeded")

    def __init__(self, env: Any, renew: Callable[[Any], Any], episodes: int) -> None:
        """Takes an environment that is new.

        Args:
            env: The environment.
            renew: Closes an environment, and builds the next one, without a seed.
            episodes: How many episodes each has.
        """
        super().__init__(env)
        self._renew, self._most = renew, episodes
        # Those that the environment has begun, and whether there was a step in the last
        # of them: one without is begun again. So a reset that was made ahead, and is
        # made again because a seed has come, leaves no trace.
        self._episodes, self._has_moved = 0, False
        self._seed: Any = None
        # How many have been built since it was seeded.
        self._rebuilds = 0
        # Whether the next episode is the first that depends on the seed.
        self._is_seeded = False
        self._given: dict[str, Any] = {}
        self._options: tuple[Any, Array | None] | None = None

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and those that come after it."""
        result = super().seed(seed)
        self._seed, self._rebuilds, self._is_seeded = seed, 0, True
        return result

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment, and of those that come after it."""
        set_attribute(self._env, name, value)
        self._given[name] = value

    def _seed_rows(self, seeds: list[int | None]) -> None:
        super()._seed_rows(seeds)
        self._seed, self._rebuilds, self._is_seeded = seeds[0], 0, True

    def _take_options(self, options: Any, rows: Array | None) -> None:
        super()._take_options(options, rows)
        self._options = None if options is None else (options, rows)

    def _reset(self) -> TimeStep:
        if self._has_moved and self._episodes >= self._most:
            self._build()
        if self._has_moved or not self._episodes:
            self._episodes += 1
        self._has_moved = False
        self._is_seeded, self._options = False, None
        return super()._reset()

    def _step(self, action: NestedArray) -> TimeStep:
        was_over = self._is_over()
        if was_over and self._episodes >= self._most:
            return self._reset()
        self._has_moved = True
        time_step = super()._step(action)
        # An environment that takes the step after a LAST itself has begun anew.
        if was_over and time_step.step_type == _FIRST:
            self._episodes += 1
            self._has_moved = self._is_seeded = False
        return time_step

    def _is_over(self) -> bool:
        shown = self._current_time_step
        return shown is not None and shown.step_type == _LAST

    def _build(self) -> None:
        """Builds the next environment."""
        env = self._renew(self._env)
        if not self._is_seeded:
            self._rebuilds += 1
        seed = derived_seed(self._seed, self._rebuilds)
        if seed is not None:
            env.seed(seed)
        for name, value in self._given.items():
            set_attribute(env, name, value)
        if self._options is not None:
            hand_options(env, *self._options)
        self._env, self._episodes = env, 0

    def _made_of(self) -> dict[str, Any]:
        # What it takes to make another one: this layer is the pool's.
        recipe: dict[str, Any] = self._env._made_of()
        return recipe
