"""Measures how fast a batch of environments steps, in several rounds."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from envkit.policies import names_legal_actions, random_actions
from envkit.time_step import TimeStep
from envkit.types import NestedArray

__all__ = ["Figures", "random_policy", "time_steps"]

# Batches of actions to draw in advance, so that drawing costs no time.
_BATCHES = 32
# The share of the time for the warm-up.
_WARM_UP = 0.2


def random_policy(
    env: Any, time_step: TimeStep, seed: int = 0
) -> Callable[[TimeStep], NestedArray]:
    """Returns a random policy; if all actions are legal, it repeats a few batches."""
    act = random_actions(env, np.random.default_rng(seed))
    named = names_legal_actions(time_step.observation)
    with contextlib.suppress(Exception):  # some have no info
        named = named or names_legal_actions(env.get_info())
    if named:
        return act
    actions = itertools.cycle([act(time_step) for _ in range(_BATCHES)])
    return lambda _: next(actions)


@dataclass(frozen=True)
class Figures:
    """Holds the speed at which a batch of rows was stepped.

    Attributes:
        rows: The number of rows.
        speeds: Steps of rows per second, in each round.
        median: The median time of a step of the batch, in seconds.
        p99: The time that 99 of 100 steps do not exceed.
        steps: The number of steps of the batch, without the warm-up.
        seconds: The time of all these steps.
    """

    rows: int
    speeds: tuple[float, ...]
    median: float
    p99: float
    steps: int
    seconds: float = 0.0

    @property
    def speed(self) -> float:
        """Steps of rows per second, in the median round."""
        return float(np.median(self.speeds))

    @property
    def spread(self) -> float:
        """The range of the rounds, relative to the median."""
        return self.range / self.speed

    @property
    def range(self) -> float:
        """The distance between the fastest and the slowest round."""
        return max(self.speeds) - min(self.speeds)

    def as_data(self) -> dict[str, Any]:
        """Returns the figures as data that JSON can hold."""
        return {"steps_per_second": self.speed, "spread": self.spread, **asdict(self)}


def time_steps(
    step: Callable[[Any], object],
    rows: int,
    seconds: float,
    rounds: int,
    *,
    act: Callable[[], Any] = lambda: None,
    begin: Callable[[], object] = lambda: None,
) -> Figures:
    """Steps for about `seconds`, in a number of rounds.

    Args:
        step: Steps all rows once, with an action.
        rows: The number of rows.
        seconds: The total time to step, including the warm-up.
        rounds: The number of rounds; fewer if one step takes longer than a round.
        act: Returns the next action; its time does not count.
        begin: Called after the warm-up.
    """
    clock = time.perf_counter
    start = clock()
    step(act())
    while clock() - start < _WARM_UP * seconds:
        step(act())
    begin()
    speeds: list[float] = []
    times: list[float] = []
    share = (1 - _WARM_UP) * seconds / rounds
    began = clock()
    for _ in range(rounds):
        start = now = clock()
        first = len(times)
        while now - start < share or len(times) == first:
            action = act()
            before = clock()
            step(action)
            now = clock()
            times.append(now - before)
        speeds.append(rows * (len(times) - first) / sum(times[first:]))
        if now - began > 2 * seconds:
            break
    return Figures(
        rows=rows,
        speeds=tuple(speeds),
        median=float(np.median(times)),
        p99=float(np.percentile(times, 99)),
        steps=len(times),
        seconds=sum(times),
    )
