"""Rebuilds an environment that leaks after some episodes: `RebuildAfter`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import WrapperInternals, checked_size, hand_options, set_attribute
from envkit.losses import Loss
from envkit.registry import constructor
from envkit.seeding import derived_seed
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["RebuildAfter"]

_LOGGER = logging.getLogger(__name__)

_FIRST, _LAST = StepType.FIRST, StepType.LAST


class _RebuildInternals(WrapperInternals):
    """Hands options to the environment, even if the reset builds a new one."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        super().hand_options(env, options, rows)
        env._options = None if options is None else (options, rows)


class RebuildAfter(PyEnvironmentBaseWrapper):
    """Closes a single environment after some episodes, and builds the next one.

    Use it for environments that leak memory, files or browser tabs. The reset that
    begins the next episode closes the old environment and then builds the new one,
    because a process may be able to hold only one. A reset in the middle of an episode
    counts the episode; an episode without a step does not count.

    After `seed(s)`, the k-th rebuilt environment is seeded with `derived_seed(s, k)`,
    unless its first reset comes with a seed. It gets the options of that reset, and all
    attributes that were set with `set_attr`. Without a seed, the constructor decides.

    States include the number of episodes, so `set_state`, checkpoints and recovery
    return to the same environment. If the constructor raises, the reset raises, and the
    next reset tries again. Errors of `close()` are logged.

    In a pool, each constructor makes the wrapper: `ParallelPyEnvironment([lambda:
    RebuildAfter(make_env, episodes=100)] * 8)`.

    Example:
        >>> from envkit.testing import CountingEnv  # its episodes begin at 0, 10, 20
        >>> env = RebuildAfter(lambda: CountingEnv(steps_per_episode=1), episodes=2)
        >>> [int(env.step(0).observation) for _ in range(8)]
        [0, 1, 10, 11, 0, 1, 10, 11]
        >>> env.rebuilds
        1
    """

    _kept = ("_begun", "_has_moved", "_seed", "_since_seed", "_is_seeded")
    _shown = ("episodes",)
    _envkit = _RebuildInternals()

    def __init__(self, make_env: str | Callable[[], Any], episodes: int) -> None:
        """Builds the first environment.

        Args:
            make_env: A constructor of the environment, or a name for `envkit.make`.
            episodes: How many episodes each environment has.

        Raises:
            ValueError: The environment is a batch.
        """
        self._make = constructor(make_env)
        #: How many episodes each environment has.
        self.episodes = checked_size("episodes", episodes)
        #: How many environments were rebuilt so far.
        self.rebuilds = 0
        super().__init__(self._single())
        # How many episodes the environment has begun, and whether the last one had a
        # step: a reset without a step before it does not begin another episode.
        self._begun, self._has_moved = 0, False
        self._seed: Any = None
        # How many were rebuilt since the last seed.
        self._since_seed = 0
        # Whether the next episode is the first after a seed.
        self._is_seeded = False
        self._attributes: dict[str, Any] = {}
        self._options: tuple[Any, Array | None] | None = None
        # Those of earlier environments that nobody has asked for yet.
        self._losses: list[Loss] = []

    def _single(self) -> Any:
        env = self._make()
        if getattr(env, "batched", False) is True:
            size = env.batch_size
            env.close()
            raise ValueError(
                f"{self._make} returned a {type(env).__name__} that is a batch of "
                f"{size} rows, whose episodes end one by one. RebuildAfter needs a "
                "constructor of a single environment."
            )
        return env

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, of earlier environments too."""
        losses, self._losses = [*self._losses, *super().losses()], []
        return losses

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment, and all later ones."""
        result = super().seed(seed)
        self._begin_stream(seed)
        return result

    def _seed_rows(self, seeds: list[int | None]) -> None:
        super()._seed_rows(seeds)
        self._begin_stream(seeds[0])

    def _begin_stream(self, seed: Any) -> None:
        self._seed, self._since_seed, self._is_seeded = seed, 0, True

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the environment, and of all later ones.

        Example:
            >>> from envkit.testing import CountingEnv
            >>> env = RebuildAfter(lambda: CountingEnv(1), episodes=1)
            >>> env.set_attr("level", 3)
            >>> _ = [env.step(0) for _ in range(4)]
            >>> env.level, env.rebuilds
            (3, 1)
        """
        set_attribute(self._env, name, value)
        self._attributes[name] = value

    def _reset(self) -> TimeStep:
        if self._has_moved and self._begun >= self.episodes:
            self._rebuild()
        if self._has_moved or not self._begun:
            self._begun += 1
        self._has_moved = False
        self._is_seeded, self._options = False, None
        return super()._reset()

    def _step(self, action: NestedArray) -> TimeStep:
        was_over = self._is_over()
        is_due = was_over and self._begun >= self.episodes
        if is_due and not (self.repeats_last or self.continues_after_last):
            return self._reset()
        self._has_moved = True
        time_step = super()._step(action)
        if was_over and time_step.step_type == _FIRST:
            # The environment handles the step after a LAST itself.
            if is_due:
                return self._reset()
            self._has_moved = self._is_seeded = False
            self._begun += 1
        elif was_over and self.continues_after_last:
            self._begun += 1
        return time_step

    def _is_over(self) -> bool:
        shown = self._current_time_step
        return shown is not None and shown.step_type == _LAST

    def _rebuild(self) -> None:
        """Closes the environment and builds the next one.

        If that raises, the next reset tries again.
        """
        old = self._env
        spec = EnvironmentSpec.of(old)
        self._losses = self.losses()
        try:
            old.close()
        except Exception:  # the environment is discarded, whatever fails
            _LOGGER.warning(
                "close() of a %s that is being replaced raised",
                type(old).__name__,
                exc_info=True,
            )
        env = self._single()
        if env is old:
            raise ValueError(
                f"{self._make} returned the same {type(env).__name__} twice. It must "
                "make a new environment each time."
            )
        EnvironmentSpec.check_all_equal(
            [spec, EnvironmentSpec.of(env)], purpose="follow each other"
        )
        seeds = self._since_seed + (not self._is_seeded)
        seed = derived_seed(self._seed, seeds)
        if seed is not None:
            env.seed(seed)
        for name, value in self._attributes.items():
            set_attribute(env, name, value)
        if self._options is not None:
            hand_options(env, *self._options)
        self._env, self._begun, self._since_seed = env, 0, seeds
        self.rebuilds += 1
