"""How many workers step a batch fastest: `num_workers="auto"`.

`envkit bench` measures with the same functions.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from envkit._internal.text import counted, listed
from envkit.errors import EnvkitError
from envkit.parallel.system.cpus import available_cpus
from envkit.policies import names_legal_actions, random_actions
from envkit.specs.validation import describe
from envkit.time_step import AutoReset, TimeStep
from envkit.types import EnvConstructor, NestedArray

__all__ = [
    "Figures",
    "Way",
    "chosen",
    "fastest",
    "random_policy",
    "simplest_of",
    "time_steps",
    "ways",
    "worker_counts",
]

_LOGGER = logging.getLogger(__name__)

# How long each way is stepped, in seconds, and in how many rounds.
_SECONDS, _ROUNDS = 0.5, 5
# A gain that is larger than chance.
_PAYS = 1.1
# The batches of actions that are drawn before, so that drawing costs nothing.
_BATCHES = 32

Way = tuple[str, int]

_BACKENDS = ("process", "thread", "inline")
# Options without which environments can do without workers.
_WITHOUT_WORKERS: dict[str, Any] = {
    "on_worker_failure": "raise",
    "start_timeout": None,
    "reset_timeout": None,
    "step_timeout": None,
    "worker_setup": None,
    "worker_env": None,
}


def chosen(
    open_pool: Callable[..., Any],
    constructors: Sequence[EnvConstructor],
    backend: Any,
    options: Mapping[str, Any],
) -> Way:
    """Returns the backend and the number of workers that are fastest.

    Args:
        open_pool: `ParallelPyEnvironment`, whichever pool is to be made.
        constructors: The constructors of the environments.
        backend: The backend that was asked for. In the place of processes the caller's
            own may be chosen, unless an option is about workers.
        options: The other arguments of the pool.
    """
    if backend not in _BACKENDS:
        raise ValueError(
            f"num_workers must be an integer of at least 1, or None, with the backend "
            f"{describe(backend)}, got 'auto', which measures "
            f"{listed(map(repr, _BACKENDS))}."
        )
    inline = backend == "process" and all(
        options[name] == usual for name, usual in _WITHOUT_WORKERS.items()
    )
    tried = ways(backend, available_cpus(), len(constructors), inline=inline)
    if len(tried) == 1:
        return tried[0]

    # Steps are refused after an end where rows stay as they are.
    if AutoReset.of(options["autoreset"]) is AutoReset.DISABLED:
        options = {**options, "autoreset": AutoReset.NEXT_STEP}

    def opened(backend: str, count: int) -> Any:
        return open_pool(constructors, backend=backend, num_workers=count, **options)

    return fastest(opened, tried)


def fastest(open_pool: Callable[[str, int], Any], tried: Sequence[Way]) -> Way:
    """Returns the fastest way to step environments, and logs what was found.

    Args:
        open_pool: Makes a pool with a backend and so many workers.
        tried: The ways to try, the simplest first.

    Raises:
        EnvkitError: No way can be tried; the reason of the last.
    """
    speeds: dict[Way, float] = {}
    reasons: dict[Way, EnvkitError] = {}
    for way in tried:
        try:
            with contextlib.closing(open_pool(*way)) as env:
                speeds[way] = _speed(env)
        except EnvkitError as error:
            reasons[way] = error
    if not speeds:
        raise reasons[tried[-1]]
    chosen = simplest_of(speeds)
    found = [f"{_named(way)} {speed:,.0f}" for way, speed in speeds.items()]
    found += [f"{_named(way)} {type(why).__name__}" for way, why in reasons.items()]
    _LOGGER.info(
        'num_workers="auto" takes %s. Steps per second: %s.',
        _named(chosen),
        listed(found),
    )
    return chosen


def simplest_of(speeds: Mapping[Way, float]) -> Way:
    """Returns the first way that is about as fast as the fastest.

    Example:
        >>> simplest_of({("inline", 1): 95.0, ("process", 2): 100.0})
        ('inline', 1)
        >>> simplest_of({("inline", 1): 50.0, ("process", 2): 100.0})
        ('process', 2)
    """
    most = max(speeds.values())
    return next(way for way, speed in speeds.items() if _PAYS * speed >= most)


def ways(backend: str, cpus: int, num_envs: int, *, inline: bool) -> list[Way]:
    """Returns the ways to step environments with a backend, the simplest first.

    Args:
        backend: "process", "thread" or "inline".
        cpus: How many CPUs there are.
        num_envs: How many environments there are.
        inline: Whether they may run in the caller's process.

    Example:
        >>> ways("process", 2, 64, inline=True)
        [('inline', 1), ('process', 1), ('process', 2), ('process', 3)]
    """
    if backend == "inline":
        return [("inline", 1)]
    own = [(backend, count) for count in worker_counts(cpus, num_envs)]
    return [("inline", 1), *own] if inline else own


def _named(way: Way) -> str:
    backend, count = way
    if backend == "inline":
        return "inline"
    workers = counted(count, "worker")
    return workers if backend == "process" else f"{workers} ({backend})"


def _speed(env: Any) -> float:
    current = env.reset()
    choose = random_policy(env, current)

    def act() -> NestedArray:
        return choose(current)

    def step(action: NestedArray) -> None:
        nonlocal current
        current = env.step(action)

    return time_steps(step, env.batch_size, _SECONDS, _ROUNDS, act=act).speed


def worker_counts(cpus: int, num_envs: int) -> list[int]:
    """Returns how many workers to try: 1, 2, 4 … the CPUs, and a little above.

    Example:
        >>> worker_counts(2, 64), worker_counts(8, 64), worker_counts(8, 3)
        ([1, 2, 3], [1, 2, 4, 8, 12], [1, 2, 3])
    """
    powers = [2**power for power in range(cpus.bit_length()) if 2**power < cpus]
    counts = {*powers, cpus, math.ceil(1.5 * cpus)}
    return sorted({min(count, num_envs) for count in counts})


def random_policy(env: Any, time_step: TimeStep) -> Callable[[TimeStep], NestedArray]:
    """Returns a random policy; if all actions are legal, it repeats a few batches."""
    act = random_actions(env, np.random.default_rng(0))
    named = names_legal_actions(time_step.observation)
    with contextlib.suppress(Exception):  # Some have no info.
        named = named or names_legal_actions(env.get_info())
    if named:
        return act
    actions = itertools.cycle([act(time_step) for _ in range(_BATCHES)])
    return lambda _: next(actions)


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
        """The range of the rounds, as a share of the median one."""
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
    """Steps for about so long, in so many rounds.

    Args:
        step: Steps all rows once, with an action.
        rows: The number of rows.
        seconds: The time to step in all, the warm-up included.
        rounds: The number of rounds; there are fewer where one step takes longer.
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
