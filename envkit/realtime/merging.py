"""Merges the ticks between two looks of the agent into a time step: `EpisodeMerger`.

An environment in real time continues while the agent thinks. One row's ticks since the
agent's last look are merged by these rules:

- rewards and discounts are merged as if the ticks were one step: the reward is the sum
  of the rewards, each multiplied by the discounts before it, and the discount is the
  product;
- nothing is merged across the end of an episode;
- if an episode's `FIRST` was seen, its `LAST` is seen too, once and unchanged;
- an episode that began and ended unseen is skipped, and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import StepType
from envkit.types import Array
from envkit.wrappers.rewards import sum_spec

__all__ = ["EpisodeMerger", "Merged", "Skipped", "check_mergeable", "merged_spec"]

_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


class Skipped(NamedTuple):
    """Counts episodes that began and ended unseen.

    Attributes:
        episodes: The number of episodes.
        steps: Their total number of steps.
        reward: The sum of their rewards, undiscounted; `None` if there were none.
    """

    episodes: int = 0
    steps: int = 0
    reward: list[Array] | None = None


class Merged(NamedTuple):
    """Holds the merged ticks of one row.

    Attributes:
        step_type: FIRST, MID or LAST, as a number.
        reward: The merged reward in double precision: one array per leaf of its spec.
        discount: The discount, likewise.
        tick: The tick of this observation, as passed to `add`.
        ticks: How many ticks are merged.
        episode: The number of the episode, counted from 0.
        interrupted: Whether the episode was broken off, so its `LAST` is made up.
        skipped: With a `FIRST`, the episodes that were skipped before it.
    """

    step_type: int
    reward: list[Array]
    discount: list[Array]
    tick: Any
    ticks: int
    episode: int
    interrupted: bool
    skipped: Skipped


@dataclass
class _Episode:
    """Holds the ticks of one episode since the agent's last look."""

    number: int
    first: Any
    tick: Any
    reward: list[Array]
    discount: list[Array]
    step_type: int = _FIRST
    ticks: int = 0
    is_seen: bool = False
    interrupted: bool = False
    # The length and rewards of the whole episode, in case it is skipped.
    steps: int = 0
    earned: list[Array] = field(default_factory=list)


class EpisodeMerger:
    """Merges the ticks of one row.

    Example:
        >>> def number(value):
        ...     return [np.array(value)]
        >>> merger = EpisodeMerger()
        >>> merger.add(0, number(0.0), number(1.0), "first")
        >>> merger.take().tick
        'first'
        >>> merger.add(1, number(2.0), number(0.5), "one")
        >>> merger.add(1, number(2.0), number(1.0), "two")
        >>> merged = merger.take()
        >>> merged.tick, *map(float, merged.reward + merged.discount), merged.ticks
        ('two', 3.0, 0.5, 2)
    """

    def __init__(self, discounted: bool = True) -> None:
        """Begins before the first episode.

        Args:
            discounted: Whether a reward is multiplied by the discounts before it; if
                not, rewards are summed as they are.
        """
        self._discounted = discounted
        # The agent's episode, if it has ended and another has begun.
        self._ending: _Episode | None = None
        # The episode of new ticks; `None` if its LAST has been seen.
        self._newest: _Episode | None = None
        self._begun = 0
        self._skipped = Skipped()

    def add(
        self,
        step_type: int,
        reward: Sequence[Array],
        discount: Sequence[Array],
        tick: Any,
    ) -> None:
        """Adds a tick.

        Args:
            step_type: The row's step type.
            reward: Each leaf of its reward.
            discount: Each leaf of its discount.
            tick: The tick, for `Merged.tick`.
        """
        episode = self._newest
        if step_type == _FIRST:
            self._leave()
            self._newest = _Episode(
                self._begun,
                tick,
                tick,
                _zeros(reward),
                _ones(discount),
                earned=_zeros(reward),
            )
            self._begun += 1
            return
        if episode is None or episode.step_type == _LAST:
            return  # a repeated LAST is padding
        factors = episode.discount if self._discounted else [np.ones(())]
        if len(factors) == 1:
            factors = factors * len(reward)
        episode.reward = [
            before + factor * part
            for before, factor, part in zip(
                episode.reward, factors, reward, strict=True
            )
        ]
        episode.discount = [
            before * part
            for before, part in zip(episode.discount, discount, strict=True)
        ]
        episode.earned = [
            before + part for before, part in zip(episode.earned, reward, strict=True)
        ]
        episode.step_type, episode.tick = step_type, tick
        episode.ticks += 1
        episode.steps += 1

    def _leave(self) -> None:
        """Makes room for the next episode."""
        episode = self._newest
        if episode is None:
            return
        if episode.is_seen:
            # An episode that was broken off keeps its discount, because learners may
            # bootstrap its value.
            episode.interrupted = episode.step_type != _LAST
            episode.step_type = _LAST
            self._ending = episode
            return
        before = self._skipped
        self._skipped = Skipped(
            before.episodes + 1,
            before.steps + episode.steps,
            [
                old + new
                for old, new in zip(
                    before.reward or _zeros(episode.earned),
                    episode.earned,
                    strict=True,
                )
            ],
        )

    @property
    def has_ended(self) -> bool:
        """True if the newest tick has ended its episode, or there was none."""
        return self._newest is None or self._newest.step_type == _LAST

    @property
    def is_at_edge(self) -> bool:
        """True if the agent will next see the end or the beginning of an episode."""
        if self._ending is not None:
            return True
        episode = self._newest
        return episode is not None and (
            not episode.is_seen or episode.step_type == _LAST
        )

    @property
    def has_any(self) -> bool:
        """True if there is something to see; False until the next episode begins."""
        return self._ending is not None or self._newest is not None

    @property
    def takes_actions(self) -> bool:
        """True if the agent is in the current episode."""
        return self.has_any and not self.is_at_edge

    @property
    def waits_to_be_seen(self) -> bool:
        """True if the newest tick is the end of an episode that nobody has seen yet."""
        return self._newest is not None and self._newest.step_type == _LAST

    def look(self) -> Merged:
        """Returns the merged ticks, without consuming them.

        If there was no tick, the result is the same observation, with reward 0 and
        discount 1.
        """
        episode = self._shown()
        if not episode.is_seen:
            return Merged(
                _FIRST,
                _zeros(episode.reward),
                _ones(episode.discount),
                episode.first,
                0,
                episode.number,
                False,
                self._skipped,
            )
        return Merged(
            # A FIRST that is seen again, before the first tick, is a MID.
            max(episode.step_type, _MID),
            episode.reward,
            episode.discount,
            episode.tick,
            episode.ticks,
            episode.number,
            episode.interrupted,
            Skipped(),
        )

    def take(self) -> Merged:
        """Returns the merged ticks, and marks them as seen."""
        merged, episode = self.look(), self._shown()
        if not episode.is_seen:
            episode.is_seen, self._skipped = True, Skipped()
            return merged
        if episode is self._ending:
            self._ending = None
        elif episode.step_type == _LAST:
            self._newest = None
        episode.reward, episode.discount = _zeros(merged.reward), _ones(merged.discount)
        episode.ticks = 0
        return merged

    def _shown(self) -> _Episode:
        episode = self._ending or self._newest
        if episode is None:
            raise RuntimeError("There is nothing to take: no episode has begun.")
        return episode


def _zeros(parts: Sequence[Array]) -> list[Array]:
    return [np.zeros(np.shape(part)) for part in parts]


def _ones(parts: Sequence[Array]) -> list[Array]:
    return [np.ones(np.shape(part)) for part in parts]


def merged_spec(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Returns the specs of merged time steps.

    Example:
        >>> from envkit.envs import Catch
        >>> merged_spec(EnvironmentSpec.of(Catch())).reward
        ArraySpec(shape=(), dtype=float32, name='reward')
    """
    return spec._replace(
        reward=nest.map_structure(_summed, spec.reward),
        discount=nest.map_structure(_multiplied, spec.discount),
    )


def _summed(spec: ArraySpec) -> ArraySpec:
    summed = sum_spec(spec, sys.maxsize)
    if isinstance(summed, BoundedArraySpec):
        # The reward is 0 if there was no tick.
        zero = np.zeros((), spec.dtype)
        return summed.replace(
            minimum=np.minimum(summed.minimum, zero),
            maximum=np.maximum(summed.maximum, zero),
        )
    return summed


def _multiplied(spec: ArraySpec) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec
    if np.all(spec.minimum >= 0) and np.all(spec.maximum <= 1):
        # Products get smaller, and the discount is 1 if there was no tick.
        zero, one = np.zeros((), spec.dtype), np.ones((), spec.dtype)
        return spec.replace(
            minimum=np.minimum(spec.minimum, zero),
            maximum=np.maximum(spec.maximum, one),
        )
    return ArraySpec(spec.shape, spec.dtype, spec.name)


def check_mergeable(env: Any, discounted: bool) -> None:
    """Refuses an environment whose time steps cannot be merged.

    Args:
        env: The environment.
        discounted: Whether rewards are multiplied by discounts.
    """
    name = type(env).__name__
    if getattr(env, "repeats_last", False) is True:
        raise ValueError(
            f"RealTimeEnvironment cannot run {name}, which repeats the LAST of an "
            "episode: merged steps would not show how often. Wrap the "
            "RealTimeEnvironment instead."
        )
    rewards = nest.flatten_with_paths(env.reward_spec())
    for path, spec in rewards:
        _check_number(name, nest.join("reward", path), spec, discounted)
    if not discounted:
        return
    discounts = nest.flatten_with_paths(env.discount_spec())
    factors = discounts
    if len(discounts) == 1:
        factors = [(path, discounts[0][1]) for path, _ in rewards]
    fit = [path for path, _ in rewards] == [path for path, _ in factors] and all(
        _reaches(factor.shape, reward.shape)
        for (_, reward), (_, factor) in zip(rewards, factors, strict=True)
    )
    if not fit:
        raise ValueError(
            f"RealTimeEnvironment cannot merge the rewards of {name} with its "
            f"discounts: {_shapes(rewards)} and {_shapes(discounts)}. There is one "
            "discount for all rewards, or one for each. merge='sum' leaves discounts "
            "out of the rewards."
        )


def _check_number(name: str, path: str, spec: ArraySpec, discounted: bool) -> None:
    if spec.dtype.kind not in "iuf":
        raise ValueError(
            f"RealTimeEnvironment cannot add up the rewards of {name}: {path} is of "
            f"dtype {spec.dtype}."
        )
    if discounted and spec.dtype.kind != "f":
        raise ValueError(
            f"RealTimeEnvironment cannot merge the rewards of {name} with its "
            f"discounts: {path} is of dtype {spec.dtype}, and discounted rewards are "
            "not whole numbers. Use merge='sum'."
        )


def _reaches(discount: tuple[int, ...], reward: tuple[int, ...]) -> bool:
    """True if a discount multiplies a reward without changing its shape."""
    try:
        return np.broadcast_shapes(discount, reward) == reward
    except ValueError:
        return False


def _shapes(leaves: Any) -> str:
    parts = [
        f"{path}: {spec.shape}" if path else f"{spec.shape}" for path, spec in leaves
    ]
    return ", ".join(parts)
