"""Wrappers that learn what is normal: `NormalizeObservation`, `NormalizeReward`."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.arguments import is_number
from envkit.wrappers.fresh_nests import fresh_nest
from envkit.wrappers.normalization.normalizer import Normalizer
from envkit.wrappers.normalization.running_statistics import RunningStatistics
from envkit.wrappers.rows import beside, where_rows

__all__ = ["NormalizeObservation", "NormalizeReward"]

_FIRST = StepType.FIRST


class NormalizeObservation(Normalizer):
    """Gives observations mean 0 and variance 1, as far as they are known by now.

    Every observation is counted before it is normalised, that of a `FIRST` too, and
    each element of an array by itself. What only pads an episode, as with
    `FixedLength`, is not counted. A batch learns from all rows that have moved,
    and has one mean and one variance for all of them; wrap a pool rather than the
    environments in it, for in workers each would learn for itself. What is normalised
    is float32. An element that has been the same each time becomes 0. Of the first
    observations little is known: `clip` keeps them, and rare ones later, in bounds.

    Of a nest every float leaf is normalised; integers beside them stay as they are, for
    most are choices and counts, unless `integers` says otherwise. Where there are no
    floats, as with a picture, the integers are normalised; booleans never are.
    `statistics` can say it for each leaf.

    A state holds what was learnt, and `set_state` brings it back for all who share it.
    For evaluation share it, and learn no more:

    Example:
        >>> from envkit.envs import CartPole
        >>> env = NormalizeObservation(CartPole(batch_size=64, seed=1), clip=10.0)
        >>> _ = env.reset()
        >>> for _ in range(20):
        ...     time_step = env.step(np.ones(64, int))
        >>> env.observation_spec()
        BoundedArraySpec(shape=(4,), dtype=float32, minimum=-10.0, maximum=10.0)
        >>> env.statistics
        RunningStatistics(shape=(4,), count=1344)
        >>> test = NormalizeObservation(
        ...     CartPole(), clip=10.0, statistics=env.statistics, frozen=True
        ... )
        >>> test.reset().observation.dtype, env.statistics.count
        (dtype('float32'), 1344)
    """

    _part = "observation"
    _shown = ("clip", "frozen")

    def __init__(
        self,
        env: Any,
        epsilon: float = 1e-8,
        *,
        clip: float | None = None,
        statistics: Any = None,
        frozen: bool = False,
        integers: bool | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            epsilon: Added to the variance.
            clip: The largest normalised value, in both directions; `None` for no
                limit.
            statistics: `RunningStatistics` to go on from and to share; `None` begins
                with new ones. For a nest of observations a nest of them, with `None`
                for each leaf that is to stay as it is.
            frozen: Whether to use the statistics as they are, and to learn nothing.
            integers: Whether integers are normalised, too, where `statistics` does not
                say what is; `None` if there are no floats.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(
            env,
            epsilon=epsilon,
            clip=clip,
            statistics=statistics,
            frozen=frozen,
            integers=integers,
            handle_auto_reset=handle_auto_reset,
        )

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation, normalised."""
        return fresh_nest(self._spec)

    def _nothing_to_do(self, chose: bool) -> str:
        advice = " To normalise integers pass integers=True." if chose else ""
        return f"{super()._nothing_to_do(chose)}{advice}"

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._flat(time_step)
        telling = self._telling(time_step.step_type, rows)
        for leaf in self._leaves:
            value = leaves[leaf.place]
            if not self._frozen:
                self._learn(leaf, value if telling is None else value[telling])
            leaves[leaf.place] = leaf.statistics.normalize(
                value, self._epsilon, self._clip
            )
        return time_step._replace(observation=self._structure.unflatten(leaves))


class NormalizeReward(Normalizer):
    """Divides rewards by the standard deviation of the return, as far as it is known.

    The return is what has been earned so far in an episode, where each step makes
    earlier rewards worth `gamma` times the discount of the time step before. Each row
    of a batch has its own, which begins with 0 in a `FIRST`; all of them count in the
    same standard deviation. The reward of a `FIRST` stays 0 and is not counted. Until
    returns differ, rewards stay as they are. They are float32 in any case.

    Of a vector or a nest of rewards each element has a return of its own. What was
    learnt is saved, shared and frozen as with `NormalizeObservation`.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = NormalizeReward(CartPole(batch_size=64, seed=1), clip=10.0)
        >>> _ = env.reset()
        >>> for _ in range(20):
        ...     time_step = env.step(np.ones(64, int))
        >>> float(env.statistics.variance.round(1)), time_step.reward[:3].round(2)
        (6.7, array([0.39, 0.39, 0.  ], dtype=float32))
    """

    _part = "reward"
    _kept = ("_over", "_earlier")
    _shown = ("gamma", "clip", "frozen")

    def __init__(
        self,
        env: Any,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        *,
        clip: float | None = None,
        statistics: Any = None,
        frozen: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            gamma: What a reward is worth a step later.
            epsilon: Added to the variance.
            clip: The largest normalised reward, in both directions; `None` for no
                limit.
            statistics: `RunningStatistics` of returns to go on from and to share;
                `None` begins with new ones. For a nest of rewards a nest of them, with
                `None` for each leaf that is to stay as it is.
            frozen: Whether to use the statistics as they are, and to learn nothing.
            handle_auto_reset: As with every wrapper.
        """
        if not is_number(gamma) or not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma is {gamma!r}; it must be a number from 0 to 1.")
        super().__init__(
            env,
            epsilon=epsilon,
            clip=clip,
            statistics=statistics,
            frozen=frozen,
            integers=True,
            handle_auto_reset=handle_auto_reset,
        )
        discount = env.discount_spec()
        if nest.is_nested(discount) or discount.shape != ():
            raise ValueError(
                f"NormalizeReward cannot wrap {type(env).__name__}: its discount is "
                f"{discount!r}, and summing up returns takes one number for each row."
            )
        self._gamma = float(gamma)
        # What was earned before, as it will be worth in the next step.
        self._earlier = [np.zeros(leaf.shape) for leaf in self._leaves]

    @property
    def gamma(self) -> float:
        """What a reward is worth a step later."""
        return self._gamma

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of one row's reward, normalised."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        first = np.asarray(time_step.step_type) == _FIRST
        telling = self._telling(time_step.step_type, rows)
        earned = ~first if telling is None else telling & ~first
        worth = self._gamma * np.asarray(time_step.discount, np.float64)
        leaves = self._flat(time_step)
        for number, leaf in enumerate(self._leaves):
            reward, earlier = leaves[leaf.place], self._earlier[number]
            returns = np.asarray(earlier + reward)
            if not self._frozen:
                self._learn(leaf, returns[earned])
            later = where_rows(first, 0.0, returns * beside(worth, returns))
            if rows is not None:
                later = where_rows(rows, later, earlier)
            self._earlier[number] = later
            leaves[leaf.place] = self._scaled(reward, leaf.statistics, first)
        return time_step._replace(reward=self._structure.unflatten(leaves))

    def _scaled(
        self, reward: NestedArray, statistics: RunningStatistics, first: Array
    ) -> Array:
        scaled = np.divide(reward, statistics.scale(self._epsilon), dtype=np.float64)
        if self._clip is not None:
            scaled = np.clip(scaled, -self._clip, self._clip)
        return where_rows(first, 0.0, scaled).astype(np.float32)
