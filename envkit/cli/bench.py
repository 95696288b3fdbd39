"""`envkit bench TARGET`: finds the fastest way to step an environment on this machine.

Each way is tried by itself, in several rounds after a warm-up; what counts is the
median round, and the table says how far apart the rounds were.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import Progress

from envkit.cli.bench_parts.candidates import (
    BACKENDS,
    Candidate,
    candidates,
    more_workers,
    worker_counts,
)
from envkit.cli.bench_parts.measuring import Measured, measure
from envkit.cli.bench_parts.peer_runs import PeerRun, run_peer
from envkit.cli.bench_parts.peers import PEERS
from envkit.cli.bench_parts.picture import check_can_draw, draw
from envkit.cli.bench_parts.report import (
    about_as_fast,
    as_data,
    as_table,
    best_of,
    failures,
    machine,
    whole_title_of,
)
from envkit.cli.numbers import at_least_one, number_within
from envkit.cli.output import say, stdout_on_stderr
from envkit.cli.target import add_target, target_arguments
from envkit.cli.terminal import Fitting, add_json, print_json, progress_bar, terminal
from envkit.errors import EnvkitError
from envkit.parallel.cpus import available_cpus
from envkit.provenance import plain_arguments
from envkit.wording import counted, listed

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit bench CartPole --num-envs 64 --peers --plot bench.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    add_target(parser)
    parser.add_argument(
        "--num-envs",
        metavar="N",
        type=at_least_one,
        default=64,
        help="how many environments to step together (64)",
    )
    parser.add_argument(
        "--seconds",
        type=number_within(sys.float_info.max, "number of seconds"),
        default=2.0,
        help="how long to step in each try, the warm-up included (2)",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=at_least_one,
        default=5,
        help="into how many rounds to part that; the median counts (5)",
    )
    parser.add_argument(
        "--backends",
        metavar="NAMES",
        type=_backends,
        default=BACKENDS,
        help=f"what to try, with commas: {','.join(BACKENDS)}, which is all",
    )
    parser.add_argument(
        "--workers",
        metavar="COUNTS",
        type=_counts,
        help="how many workers to try, with commas; otherwise 1, 2, 4 … the CPUs and a "
        "little above, and more as long as that pays",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="try the vectors of other libraries too, as far as those are installed",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the figures: bench.png")
    add_json(parser)


def _counts(text: str) -> list[int]:
    return sorted({at_least_one(part) for part in text.split(",")})


def _backends(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in BACKENDS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is none of {', '.join(BACKENDS)}"
            )
    return [name for name in BACKENDS if name in names]


def run(arguments: argparse.Namespace) -> int:
    """Tries the ways to step an environment, and shows which is fastest."""
    if "num_envs" in target_arguments(arguments):
        raise ValueError("How many environments to step together, --num-envs says.")
    if arguments.plot:
        check_can_draw(arguments.plot)
    facts = machine()
    progress = progress_bar()
    # It is drawn between the tries only: a thread that draws would slow them down.
    progress.live.auto_refresh = False
    with progress, stdout_on_stderr():
        tries = _tries(arguments, progress)
        peers = _peers(arguments, progress) if arguments.peers else []
    best = best_of(tries)
    if best is None and not peers:
        raise EnvkitError(_first_reason(tries))
    title = f"{arguments.target}, {counted(arguments.num_envs, 'environment')}"
    if arguments.json:
        print_json(
            {
                "target": arguments.target,
                "arguments": plain_arguments(target_arguments(arguments)),
                "num_envs": arguments.num_envs,
                "seconds": arguments.seconds,
                "rounds": arguments.rounds,
                "machine": facts,
                **as_data(tries, peers),
            }
        )
    else:
        _show(title, facts, tries, peers)
    if arguments.plot:  # After the figures, which took long and are not to be lost.
        draw(arguments.plot, title, tries, peers)
    return 0 if best is not None else 1


def _first_reason(tries: Sequence[Measured]) -> str:
    reasons = [tried.error for tried in tries if tried.error is not None]
    return reasons[0] if reasons else "Nothing that was asked for can be tried here."


def _show(
    title: str,
    facts: dict[str, Any],
    tries: Sequence[Measured],
    peers: Sequence[PeerRun],
) -> None:
    console = terminal()
    console.print(title, style="bold", markup=False)
    console.print(Fitting(as_table(tries, peers)), crop=False)
    for line in failures(tries, peers):
        console.print(line, style="dim", markup=False, soft_wrap=True)
    load = "" if facts["load"] is None else f", load {facts['load']:.1f} before"
    console.print(
        f"{facts['cpus']} CPUs{load}; Python {facts['python']}, "
        f"envkit {facts['envkit']}"
    )
    best = best_of(tries)
    if best is not None:
        if near := about_as_fast(tries):
            say(f"About as fast as the best: {listed(map(whole_title_of, near))}")
        say("", "The fastest here:", "", f"  {best.candidate.call()}")


def _tries(arguments: argparse.Namespace, progress: Progress) -> list[Measured]:
    counts = arguments.workers or worker_counts(available_cpus(), arguments.num_envs)
    ways = list(
        candidates(
            arguments.target,
            target_arguments(arguments),
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


def _tried(
    way: Candidate, arguments: argparse.Namespace, progress: Progress, task: Any
) -> Measured:
    workers = "" if way.workers is None else f", {counted(way.workers, 'worker')}"
    progress.update(task, description=f"{way.backend}{workers}", refresh=True)
    return measure(way, arguments.seconds, arguments.rounds)


def _climb(
    last: Measured,
    before: Sequence[Measured],
    num_envs: int,
    try_it: Callable[[Candidate], Measured],
) -> list[Measured]:
    """Tries more and more workers, as long as that pays."""
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


def _peers(arguments: argparse.Namespace, progress: Progress) -> list[PeerRun]:
    task = progress.add_task("", total=len(PEERS))
    runs = []
    for name, peer in PEERS.items():
        progress.update(task, description=peer.title, refresh=True)
        runs.append(
            run_peer(
                name,
                arguments.target,
                target_arguments(arguments),
                num_envs=arguments.num_envs,
                seconds=arguments.seconds,
                rounds=arguments.rounds,
                cpus=available_cpus(),
            )
        )
        progress.advance(task)
    return runs
