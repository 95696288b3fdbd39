"""`envkit bench TARGET`: finds the fastest way to step an environment on this machine.

Each way is tried alone, in several rounds after a warm-up. The median round counts. The
table shows the range of the rounds; a winner must be ahead by more than that.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.progress import Progress
from rich.table import Table

from envkit import registry
from envkit.cli.output import error_text, say, stdout_on_stderr
from envkit.cli.processes import Memory, memory_cells, memory_of
from envkit.cli.target import (
    Closing,
    add_policy,
    add_seed,
    add_target,
    at_least_one,
    load_policy,
    number_within,
    target_arguments,
)
from envkit.cli.terminal import Fitting, add_json, print_json, progress_bar, terminal
from envkit.cli.timing import Figures, random_policy, time_steps
from envkit.errors import EnvkitError
from envkit.extend import counted, listed, suggestion
from envkit.monitoring.drawing import check_can_draw, check_can_save, new_figure
from envkit.parallel.system.cpus import available_cpus
from envkit.provenance import envkit_version, plain_arguments
from envkit.registry import constructor, make, without_pool_options
from envkit.types import NestedArray

__all__ = [
    "EXAMPLE",
    "Candidate",
    "Measured",
    "add_arguments",
    "as_data",
    "as_table",
    "candidates",
    "check_can_draw",
    "draw",
    "equals_of",
    "failures",
    "machine",
    "measure",
    "more_workers",
    "pool_of",
    "run",
    "winner_of",
    "worker_counts",
]

EXAMPLE = "envkit bench CartPole --num-envs 64 --plot bench.png"

_COLUMNS = """
In the table, "rounds within" is the spread of the rounds, which is large on a busy
machine; "median" and "p99" are times of one step of the whole batch; "in env" is the
share of time that the busiest worker spent in its environments, and "transport" is the
rest; "PSS each" and "USS each" are the memory of a worker process with and without its
share of shared memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = f"{parser.description}{_COLUMNS}"
    add_target(parser, pools=False)
    parser.add_argument(
        "--num-envs",
        metavar="N",
        type=at_least_one,
        default=64,
        help="the number of environments to step at once",
    )
    parser.add_argument(
        "--seconds",
        type=number_within(sys.float_info.max, "number of seconds"),
        default=2.0,
        help="the time for each candidate, including its warm-up",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=at_least_one,
        default=5,
        help="the number of rounds in that time; the median round counts",
    )
    parser.add_argument(
        "--backends",
        metavar="NAMES",
        type=_backends,
        default=BACKENDS,
        help="the backends to try, separated by commas (default: "
        f"{','.join(BACKENDS)})",
    )
    parser.add_argument(
        "--workers",
        metavar="COUNTS",
        type=_counts,
        help="the numbers of workers to try, separated by commas (default: 1, 2, 4 … "
        "up to a few more than the CPUs, then doubled as long as that pays)",
    )
    add_policy(parser)
    add_seed(parser, "the seed of the environments and the policy", 0)
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="plot the figures to a file such as bench.png (default: no plot)",
    )
    add_json(parser)


def _counts(text: str) -> list[int]:
    return sorted({at_least_one(part) for part in text.split(",")})


def _backends(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in BACKENDS:
            raise argparse.ArgumentTypeError(
                f"must be some of {', '.join(BACKENDS)}, got {name!r}."
                f"{suggestion(name, BACKENDS)}"
            )
    return [name for name in BACKENDS if name in names]


def run(arguments: argparse.Namespace) -> int:
    """Tries the ways to step an environment, and shows the fastest."""
    given = target_arguments(arguments)
    del given["num_envs"]
    if arguments.workers and min(arguments.workers) > arguments.num_envs:
        raise ValueError(
            f"--workers must be at most --num-envs, {arguments.num_envs}: each worker "
            "needs an environment."
        )
    if arguments.plot:  # before measuring
        check_can_draw("--plot")
        check_can_save("--plot", arguments.plot)
    facts = machine()
    progress = progress_bar()
    # Draw only between tries: a thread that draws would slow them down.
    progress.live.auto_refresh = False
    with progress, stdout_on_stderr():
        tries = _tries(arguments, given, progress)
    if not equals_of(tries):
        raise EnvkitError(_first_reason(tries))
    title = f"{arguments.target}, {counted(arguments.num_envs, 'environment')}"
    if arguments.json:
        print_json(
            {
                "target": arguments.target,
                "arguments": plain_arguments(given),
                "num_envs": arguments.num_envs,
                "seed": arguments.seed,
                "seconds": arguments.seconds,
                "rounds": arguments.rounds,
                "machine": facts,
                **as_data(tries),
            }
        )
    else:
        _show(title, facts, tries)
    if arguments.plot:  # after the figures, which took long and must not be lost
        draw(arguments.plot, title, tries)
    return 0


def _first_reason(tries: Sequence[Measured]) -> str:
    reasons = [tried.error for tried in tries if tried.error is not None]
    return reasons[0] if reasons else "None of the --backends can be tried here."


def _show(title: str, facts: dict[str, Any], tries: Sequence[Measured]) -> None:
    console = terminal()
    console.print(title, style="bold", markup=False)
    console.print(Fitting(as_table(tries)), crop=False)
    for line in failures(tries):
        console.print(line, style="dim", markup=False, soft_wrap=True)
    load = "" if facts["load"] is None else f", load {facts['load']:.1f} before"
    console.print(
        f"{facts['cpus']} CPUs{load}; Python {facts['python']}, "
        f"envkit {facts['envkit']}"
    )
    call = equals_of(tries)[0].candidate.call()
    if winner_of(tries) is not None:
        say("", "The fastest here:", "", f"  {call}")
        return
    names = listed(tried.candidate.label for tried in equals_of(tries))
    say(
        "",
        f"No clear winner: the rounds vary more than {names} differ.",
        "More --seconds may tell them apart. The simplest:",
        "",
        f"  {call}",
    )


def _tries(
    arguments: argparse.Namespace, given: Mapping[str, Any], progress: Progress
) -> list[Measured]:
    counts = arguments.workers or worker_counts(available_cpus(), arguments.num_envs)
    ways = list(
        candidates(
            arguments.target,
            given,
            num_envs=arguments.num_envs,
            backends=arguments.backends,
            workers=[count for count in counts if count <= arguments.num_envs],
        )
    )
    task = progress.add_task("", total=len(ways))
    tries: list[Measured] = []
    for index, way in enumerate(ways):
        found = [_tried(way, arguments, progress, task)]
        is_last = index + 1 == len(ways) or ways[index + 1].backend != way.backend
        if is_last and way.backend in {"thread", "process"} and not arguments.workers:
            before = [each for each in tries if each.candidate.backend == way.backend]
            found += _climb(
                found[0],
                before,
                arguments.num_envs,
                lambda more: _tried(more, arguments, progress, task),
            )
        tries += found
        progress.advance(task)
    return tries


def worker_counts(cpus: int, num_envs: int) -> list[int]:
    """Returns the numbers of workers to try: 1, 2, 4 … the CPUs, and slightly more.

    Example:
        >>> worker_counts(2, 64), worker_counts(8, 64), worker_counts(8, 3)
        ([1, 2, 3], [1, 2, 4, 8, 12], [1, 2, 3])
    """
    powers = [2**power for power in range(cpus.bit_length()) if 2**power < cpus]
    counts = {*powers, cpus, math.ceil(1.5 * cpus)}
    return sorted({min(count, num_envs) for count in counts})


def _tried(
    way: Candidate, arguments: argparse.Namespace, progress: Progress, task: Any
) -> Measured:
    workers = "" if way.workers is None else f", {counted(way.workers, 'worker')}"
    progress.update(task, description=f"{way.backend}{workers}", refresh=True)
    policy, seed = arguments.policy, arguments.seed
    return measure(way, arguments.seconds, arguments.rounds, policy, seed)


def _climb(
    last: Measured,
    before: Sequence[Measured],
    num_envs: int,
    try_it: Callable[[Candidate], Measured],
) -> list[Measured]:
    """Tries more and more workers, as long as that makes it faster."""
    speeds = [each.figures.speed for each in before if each.figures]
    more: list[Measured] = []
    while last.figures is not None:
        way = more_workers(last.candidate, last.figures.speed, speeds, num_envs)
        if way is None:
            break
        speeds.append(last.figures.speed)
        last = try_it(way)
        more.append(last)
    return more


BACKENDS = ("batch", "inline", "thread", "process")

# No measurement has shown a gain from more workers than this.
_MOST_WORKERS = 128
# A gain too large to be chance.
_PAYS = 1.1


@dataclass(frozen=True)
class Candidate:
    """Describes one way to step a number of environments.

    Attributes:
        backend: "inline", "thread" or "process"; "batch" if the environment steps many
            rows itself.
        workers: The number of workers; `None` for a batch.
        target: The environment, as `make` takes it.
        arguments: The arguments of the environment.
        options: The other arguments of `make`.
    """

    backend: str
    workers: int | None
    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The text in the table."""
        return "its own batch" if self.backend == "batch" else self.backend

    @property
    def label(self) -> str:
        """The title and the number of workers."""
        if self.backend in ("batch", "inline"):
            return self.title
        return f"{self.title} with {counted(self.workers or 0, 'worker')}"

    def make(self) -> Any:
        """Makes the environment."""
        return make(self._recipe(), **self.options)

    def call(self) -> str:
        """Returns the text of the equivalent call of `make`."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        target = repr(self.target)
        if not self._is_plain():
            target = f"envkit.constructor({target}{_as_text(self.arguments)})"
            return f"envkit.make({target}, {given})"
        return f"envkit.make({target}{_as_text(self.arguments)}, {given})"

    def _is_plain(self) -> bool:
        """True if no argument of the environment has the name of a pool's option."""
        return self.backend == "batch" or not without_pool_options(self.arguments)[1]

    def _recipe(self) -> Any:
        return constructor(self.target, **self.arguments)


def _as_text(arguments: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in arguments.items())


def candidates(
    target: str,
    arguments: Mapping[str, Any],
    *,
    num_envs: int,
    backends: Sequence[str],
    workers: Sequence[int],
) -> Iterator[Candidate]:
    """Yields the ways to try, the simplest first."""
    own = _own_batch(target, arguments, num_envs)
    if "batch" in backends and own is not None:
        yield own
    if own is not None and "num_envs" in own.options:
        return  # its library makes all rows, whatever `make` is told about workers
    for backend in backends:
        if backend == "batch":
            continue
        # With "inline", nothing runs in parallel.
        for count in [1] if backend == "inline" else workers:
            yield pool_of(target, arguments, num_envs, backend, count)


def pool_of(
    target: str, arguments: Mapping[str, Any], num_envs: int, backend: str, workers: int
) -> Candidate:
    """Returns a pool as a way to try."""
    options = {"num_envs": num_envs, "backend": backend, "num_workers": workers}
    return Candidate(backend, workers, target, arguments, options)


def more_workers(
    last: Candidate, speed: float, speeds_before: Sequence[float], num_envs: int
) -> Candidate | None:
    """Returns a pool with twice the workers, if the current ones have paid.

    Environments that wait gain from more workers long after all CPUs are in use.
    """
    count = min(2 * (last.workers or 1), num_envs, _MOST_WORKERS)
    if count == last.workers or speed < _PAYS * max(speeds_before, default=0.0):
        return None
    return pool_of(last.target, last.arguments, num_envs, last.backend, count)


def _own_batch(
    target: str, arguments: Mapping[str, Any], num_envs: int
) -> Candidate | None:
    """Returns the environment as its own batch, if it steps many rows itself."""
    if constructor(target, **{**arguments, "num_envs": num_envs}).makes_batch:
        return Candidate("batch", None, target, arguments, {"num_envs": num_envs})
    if "batch_size" not in arguments and _takes_batch_size(target):
        return Candidate("batch", None, target, arguments, {"batch_size": num_envs})
    return None


def _takes_batch_size(target: str) -> bool:
    """Returns True if the environment's constructor has a parameter `batch_size`."""
    build = constructor(target).build
    try:
        found = registry.load(target, build) if isinstance(build, str) else build
        return "batch_size" in inspect.signature(found).parameters
    except (TypeError, ValueError):  # made by something without a signature
        return False


@dataclass(frozen=True)
class Measured:
    """Holds the figures of one way to step an environment.

    Attributes:
        candidate: The way.
        figures: Its speed; `None` if it could not be tried.
        in_env: The share of time that the busiest worker spent in environments; `None`
            for a batch, which has no statistics.
        memory: The average memory of a worker; `None` if workers are not processes.
        error: Why it could not be tried.
    """

    candidate: Candidate
    figures: Figures | None = None
    in_env: float | None = None
    memory: Memory | None = None
    error: str | None = None


def measure(
    candidate: Candidate,
    seconds: float,
    rounds: int,
    policy: str = "random",
    seed: int = 0,
) -> Measured:
    """Makes an environment and steps it; an exception becomes part of the answer."""
    try:
        with Closing(candidate.make()) as env:
            return _measure(candidate, env, seconds, rounds, policy, seed)
    except (Exception, SystemExit) as error:  # its code may raise anything
        return Measured(candidate, error=error_text(error))


def _measure(
    candidate: Candidate, env: Any, seconds: float, rounds: int, policy: str, seed: int
) -> Measured:
    with contextlib.suppress(Exception):  # some cannot be seeded
        env.seed(seed)
    current = env.reset()
    choose = load_policy(policy, env, seed)
    if policy == "random":
        choose = random_policy(env, current, seed)

    def act() -> NestedArray:
        return choose(current)

    def step(action: NestedArray) -> None:
        nonlocal current
        current = env.step(action)

    if candidate.backend == "batch":
        figures = time_steps(step, env.batch_size, seconds, rounds, act=act)
        return Measured(candidate, figures)
    before: Any = None

    def begin() -> None:
        nonlocal before
        before = env.statistics()

    figures = time_steps(step, env.batch_size, seconds, rounds, act=act, begin=begin)
    after = env.statistics()
    busiest = max(
        now.stepping - then.stepping
        for now, then in zip(after.workers, before.workers, strict=True)
    )
    memories = [memory_of(worker.pid) for worker in after.workers]
    return Measured(
        candidate,
        figures,
        in_env=min(1.0, busiest / figures.seconds),
        memory=_mean(memories) if candidate.backend == "process" else None,
    )


def _mean(memories: list[Memory | None]) -> Memory | None:
    known = [memory for memory in memories if memory is not None]
    if not known:
        return None
    return Memory(*(sum(part) // len(known) for part in zip(*known, strict=True)))


def equals_of(tries: Sequence[Measured]) -> list[Measured]:
    """Returns the fastest way, and those within the range of its rounds."""
    found = [(tried, tried.figures) for tried in tries if tried.figures is not None]
    if not found:
        return []
    top = max((figures for _, figures in found), key=lambda figures: figures.speed)
    return [
        tried
        for tried, figures in found
        if top.speed - figures.speed <= max(top.range, figures.range)
    ]


def winner_of(tries: Sequence[Measured]) -> Measured | None:
    """Returns the fastest way; `None` if the rounds do not separate it from others."""
    equals = equals_of(tries)
    return equals[0] if len(equals) == 1 else None


def as_table(tries: Sequence[Measured]) -> Table:
    """Returns the figures as a table, with the fastest marked."""
    table = Table()
    table.add_column("")
    for heading in (
        "workers", "steps/s", "rounds within", "median", "p99", "in env", "transport",
        "PSS each", "USS each",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    best = winner_of(tries)
    for tried in tries:
        workers = tried.candidate.workers
        title = tried.candidate.title
        if tried.figures is None:
            table.add_row(title, _text(workers), "failed", style="red")
            continue
        table.add_row(
            f"★ {title}" if tried is best else title,
            _text(workers),
            *_speeds(tried.figures),
            *_shares(tried.in_env),
            *memory_cells(tried.memory),
            style="bold green" if tried is best else "",
        )
    return table


def failures(tries: Sequence[Measured]) -> list[str]:
    """Returns a line for each way without figures."""
    return [f"{tried.candidate.label}: {tried.error}" for tried in tries if tried.error]


def _text(workers: int | None) -> str:
    return "" if workers is None else str(workers)


def _speeds(figures: Figures) -> tuple[str, ...]:
    return (
        f"{figures.speed:,.0f}",
        f"{figures.spread:.0%}",
        _time(figures.median),
        _time(figures.p99),
    )


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _shares(in_env: float | None) -> tuple[str, str]:
    return ("", "") if in_env is None else (f"{in_env:.0%}", f"{1 - in_env:.0%}")


def machine() -> dict[str, Any]:
    """Returns facts about the machine and the software."""
    return {
        "envkit": envkit_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": available_cpus(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def as_data(tries: Sequence[Measured]) -> dict[str, Any]:
    """Returns the figures as data that JSON can hold."""
    winner = winner_of(tries)
    return {
        "tries": [
            {
                "backend": tried.candidate.backend,
                "workers": tried.candidate.workers,
                "call": tried.candidate.call(),
                "best": tried is winner,
                "figures": None if tried.figures is None else tried.figures.as_data(),
                "in_env": tried.in_env,
                "transport": None if tried.in_env is None else 1 - tried.in_env,
                "memory": None if tried.memory is None else tried.memory._asdict(),
                "error": tried.error,
            }
            for tried in tries
        ],
        "best": None if winner is None else winner.candidate.call(),
        "equals": [tried.candidate.call() for tried in equals_of(tries)],
    }


def draw(path: str, title: str, tries: Sequence[Measured]) -> None:
    """Draws the steps per second of each way, with the range of its rounds."""
    bars = [(tried, tried.figures) for tried in tries if tried.figures is not None]
    figure = new_figure(8, 1.2 + 0.32 * len(bars))
    axes = figure.subplots()
    for place, (tried, figures) in enumerate(bars):
        speed, low, high = figures.speed, min(figures.speeds), max(figures.speeds)
        colour = "#2f7d4f" if tried is winner_of(tries) else "#8fb8a0"
        axes.barh(place, speed, color=colour, xerr=[[speed - low], [high - speed]])
        axes.annotate(f" {speed:,.0f}", (high, place), va="center")
    axes.set_yticks(range(len(bars)), [tried.candidate.label for tried, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title)
    axes.set_xlabel("steps per second; the median round, and the range of all")
    figure.savefig(path)
