"""`EpisodeMerger`: ticks that nobody saw one by one, put together without loss.

An environment in real time goes on while the agent thinks. What the agent then sees of
one row is made of all the ticks since it looked last, by these rules:

- rewards and discounts are merged as if the ticks had been one step: the reward is the
  sum of the rewards, each times the discounts before it, and the discount the product;
- nothing is merged across the end of an episode;
- the `LAST` of every episode whose `FIRST` was seen is seen, once, as it was;
- an episode that has begun and ended unseen is skipped, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["EpisodeMerger", "Merged", "Skipped"]

_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


class Skipped(NamedTuple):
    """Episodes that began and ended while nobody looked.

    Attributes:
        episodes: How many.
        steps: How many steps they had in all.
        reward: The sum of their rewards, undiscounted; `None` if there were none.
    """

    episodes: int = 0
    steps: int = 0
    reward: list[Array] | None = None


class Merged(NamedTuple):
    """What the agent sees of one row.

    Attributes:
        step_type: FIRST, MID or LAST, as a number.
        reward: The merged reward, in double precision: one array for each leaf of its
            spec.
        discount: Likewise the discount.
        tick: The tick whose observation this is, as it was given to `add`.
        ticks: How many ticks are merged in it.
        episode: The number of the episode, counted from 0.
        interrupted: Whether the episode was left in its middle, so that its `LAST` is
            made up.
        skipped: With a `FIRST`, what was skipped before it.
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
    """What there is of one episode since it was looked at last."""

    number: int
    first: Any
    tick: Any
    reward: list[Array]
    discount: list[Array]
    step_type: int = _FIRST
    ticks: int = 0
    is_seen: bool = False
    interrupted: bool = False
    # Of all of the episode: how long it is, and its rewards.
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
            discounted: Whether a reward counts times the discounts before it; if not,
                rewards are summed as they are.
        """
        self._discounted = discounted
        # The episode that the agent is in, if it has ended and another has begun.
        self._ending: _Episode | None = None
        # The one that the ticks belong to; `None` if its LAST has been seen.
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
        """Takes in a tick.

        Args:
            step_type: The row's step type.
            reward: Each leaf of its reward.
            discount: Each leaf of its discount.
            tick: Whatever leads to the observation, for `Merged.tick`.
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
            return  # What follows a LAST and is no FIRST only pads.
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
        """Makes place for the next episode."""
        episode = self._newest
        if episode is None:
            return
        if episode.is_seen:
            # One that was left in its middle was cut off: its value may still be
            # bootstrapped, so the discount stays.
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
    def is_at_edge(self) -> bool:
        """Whether what is to be seen next is the end or the beginning of an episode."""
        if self._ending is not None:
            return True
        episode = self._newest
        return episode is not None and (
            not episode.is_seen or episode.step_type == _LAST
        )

    @property
    def has_any(self) -> bool:
        """Whether there is anything to see: not if an episode has yet to begin."""
        return self._ending is not None or self._newest is not None

    @property
    def takes_actions(self) -> bool:
        """Whether an action would be meant for the episode that goes on."""
        episode = self._newest
        return (
            self._ending is None
            and episode is not None
            and episode.is_seen
            and episode.step_type != _LAST
        )

    @property
    def waits_to_be_seen(self) -> bool:
        """Whether the newest tick is the end of an episode that nobody has seen."""
        return self._newest is not None and self._newest.step_type == _LAST

    def look(self) -> Merged:
        """Returns what there is to see, and lets it wait to be seen.

        If nothing has happened since, that is the same observation again, with reward
        0 and discount 1.
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
            # Before the first tick, what is seen again is no FIRST.
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
        """Returns what there is to see, which has been seen then."""
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
