"""`envkit top`: what the workers of a pool do that runs in another process."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.live import Live

from envkit.cli.numbers import number_within
from envkit.cli.output import say
from envkit.cli.terminal import add_json, print_json, terminal
from envkit.cli.top_parts.looking import Onlooker, PoolView
from envkit.cli.top_parts.pools import FoundPool, running_pools, wanted_pools
from envkit.cli.top_parts.tables import (
    list_as_data,
    list_as_table,
    view_as_data,
    view_as_table,
)

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit top train.py"

_FOUND, _NOT_FOUND = 0, 1
# Between two glances at which environments run.
_PAUSE = 0.005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    parser.add_argument(
        "pool",
        metavar="PID|NAME",
        nargs="?",
        help="the process that runs the pool, the name of its program (train.py), or "
        "what its environments are called (CartPole); without it, the pools that run",
    )
    parser.add_argument(
        "--once", action="store_true", help="look for one interval, and print that"
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=number_within(3600.0, "time between 0 and 3600 seconds"),
        default=1.0,
        help="how long to look before figures are shown anew (1)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists pools, or shows what the workers of some do."""
    if arguments.pool is None:
        return _list(as_json=arguments.json)
    try:
        pools = wanted_pools(arguments.pool)
        with _onlookers(pools) as onlookers:
            # What is no terminal is read by somebody who wants an end.
            if arguments.once or arguments.json or not sys.stdout.isatty():
                return _show_once(onlookers, arguments.interval, arguments.json)
            return _show_live(onlookers, arguments.interval)
    except LookupError as error:
        say(f"envkit top: {error}", file=sys.stderr)
        return _NOT_FOUND
    except ProcessLookupError as error:  # It ended while it was looked for.
        say(str(error), file=sys.stderr)
        return _NOT_FOUND


def _list(*, as_json: bool) -> int:
    pools = running_pools()
    if as_json:
        print_json(list_as_data(pools))
    elif pools:
        terminal().print(list_as_table(pools))
    else:
        say("No pool of worker processes is running.")
    return _FOUND


@contextlib.contextmanager
def _onlookers(pools: Sequence[FoundPool]) -> Iterator[list[Onlooker]]:
    with contextlib.ExitStack() as stack:
        onlookers = []
        for pool in pools:
            onlooker = Onlooker(pool)
            stack.callback(onlooker.close)
            onlookers.append(onlooker)
        yield onlookers


def _show_once(onlookers: list[Onlooker], interval: float, as_json: bool) -> int:
    views = _watched(onlookers, interval)
    if as_json:
        print_json([view_as_data(view) for view in views])
    else:
        terminal().print(_as_tables(views))
    ended = _tell_ended(onlookers)
    return _NOT_FOUND if ended == len(onlookers) else _FOUND


def _show_live(onlookers: list[Onlooker], interval: float) -> int:
    console = terminal()
    views = _watched(onlookers, min(interval, 0.5))
    try:
        with Live(_as_tables(views), console=console, auto_refresh=False) as live:
            while onlookers:
                views = _watched(onlookers, interval)
                if ended := [each for each in onlookers if each.has_ended()]:
                    # What it did last stays on the screen.
                    _tell_ended(ended)
                    onlookers = [each for each in onlookers if each not in ended]
                else:
                    live.update(_as_tables(views), refresh=True)
    finally:
        # A signal that comes while the first view is drawn leaves it hidden.
        console.show_cursor()
    return _FOUND


def _watched(onlookers: Sequence[Onlooker], seconds: float) -> list[PoolView]:
    """Glances at pools again and again, then returns what they did meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for onlooker in onlookers:
            onlooker.glance()
        time.sleep(_PAUSE)
    return [onlooker.view() for onlooker in onlookers]


def _as_tables(views: Sequence[PoolView]) -> RenderableType:
    return Group(*(view_as_table(view) for view in views))


def _tell_ended(onlookers: Sequence[Onlooker]) -> int:
    """Says which pools have ended, and returns how many."""
    endings = [ending for each in onlookers if (ending := each.has_ended())]
    for ending in endings:
        say(ending, file=sys.stderr)
    return len(endings)
