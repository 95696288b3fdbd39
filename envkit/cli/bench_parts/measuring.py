"""How fast something steps: several rounds after a warm-up, and every step's time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from envkit.cli.bench_parts.actions import random_actions
from envkit.cli.bench_parts.candidates import Candidate
from envkit.cli.process_memory import Memory, memory_of
from envkit.cli.target import Closing
from envkit.errors import EnvkitError

__all__ = ["Figures", "Measured", "in_one_line", "measure", "time_steps"]

# Of all the time, how much goes to steps that do not count.
_WARM_UP = 0.2


@dataclass(frozen=True)
class Figures:
    """How fast a batch of rows was stepped.

    Attributes:
        rows: How many rows it has.
        speeds: Steps of rows per second, in each round.
        median: The median time of a step of the batch, in seconds.
        p99: The time that 99 of 100 steps do not exceed.
        steps: How many steps of the batch were made, besides the warm-up.
    """

    rows: int
    speeds: tuple[float, ...]
    median: float
    p99: float
    steps: int

    @property
    def speed(self) -> float:
        """Steps of rows per second, in the median round."""
        return float(np.median(self.speeds))

    @property
    def spread(self) -> float:
        """How far apart the rounds are, as a share of the median one."""
        return (max(self.speeds) - min(self.speeds)) / self.speed

    def as_data(self) -> dict[str, Any]:
        """Returns the figures as data that JSON can hold."""
        return {"steps_per_second": self.speed, "spread": self.spread, **asdict(self)}


@dataclass(frozen=True)
class Measured:
    """What was found out about one way to step an environment.

    Attributes:
        candidate: The way.
        figures: How fast it is; `None` if it could not be tried.
        in_env: The share of the time in which the busiest worker ran environments;
            `None` where nobody counts.
        memory: What a worker holds, on the average; `None` if it is no process.
        error: Why it could not be tried.
    """

    candidate: Candidate
    figures: Figures | None = None
    in_env: float | None = None
    memory: Memory | None = None
    error: str | None = None


def measure(candidate: Candidate, seconds: float, rounds: int) -> Measured:
    """Makes an environment and steps it; what goes wrong is part of the answer."""
    try:
        env = candidate.make()
    except Exception as error:
        return Measured(candidate, error=in_one_line(error))
    try:
        with Closing(env):
            return _measure(candidate, env, seconds, rounds)
    except Exception as error:
        return Measured(candidate, error=in_one_line(error))


def _measure(candidate: Candidate, env: Any, seconds: float, rounds: int) -> Measured:
    actions = random_actions(env.action_spec(), env.batch_size)
    with contextlib.suppress(Exception):  # Some cannot be seeded.
        env.seed(0)
    env.reset()
    if candidate.backend == "batch":
        figures = time_steps(
            lambda: env.step(next(actions)), env.batch_size, seconds, rounds
        )
        return Measured(candidate, figures)
    before: Any = None

    def begin() -> None:
        nonlocal before
        before = env.statistics()

    figures = time_steps(
        lambda: env.step(next(actions)), env.batch_size, seconds, rounds, begin
    )
    after = env.statistics()
    elapsed = after.elapsed - before.elapsed
    busiest = max(
        now.stepping - then.stepping
        for now, then in zip(after.workers, before.workers, strict=True)
    )
    memories = [memory_of(worker.pid) for worker in after.workers]
    return Measured(
        candidate,
        figures,
        in_env=min(1.0, busiest / elapsed),
        memory=_mean(memories) if candidate.backend == "process" else None,
    )


def time_steps(
    step: Callable[[], Any],
    rows: int,
    seconds: float,
    rounds: int,
    begin: Callable[[], None] | None = None,
) -> Figures:
    """Steps for about so long, in so many rounds.

    Args:
        step: Steps all rows once.
        rows: How many those are.
        seconds: How long to step in all, the warm-up included.
        rounds: Into how many rounds to part that; fewer where one step takes longer.
        begin: What to call after the warm-up.
    """
    clock = time.perf_counter
    start = clock()
    step()
    while clock() - start < _WARM_UP * seconds:
        step()
    if begin is not None:
        begin()
    speeds: list[float] = []
    times: list[float] = []
    share = (1 - _WARM_UP) * seconds / rounds
    began = clock()
    for _ in range(rounds):
        start = now = clock()
        first = len(times)
        while now - start < share or len(times) == first:
            before = now
            step()
            now = clock()
            times.append(now - before)
        speeds.append(rows * (len(times) - first) / (now - start))
        if now - began > 2 * seconds:
            break
    return Figures(
        rows=rows,
        speeds=tuple(speeds),
        median=float(np.median(times)),
        p99=float(np.percentile(times, 99)),
        steps=len(times),
    )


def _mean(memories: list[Memory | None]) -> Memory | None:
    known = [memory for memory in memories if memory is not None]
    if not known:
        return None
    return Memory(*(sum(part) // len(known) for part in zip(*known, strict=True)))


def in_one_line(error: BaseException) -> str:
    """Returns what an error says first."""
    first = str(error).strip().partition("\n")[0]
    kind = type(error).__name__
    if first and isinstance(error, EnvkitError):
        return first
    return f"{kind}: {first}" if first else kind
