"""`envkit check TARGET`: checks the promises of an environment."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table
from rich.text import Text

from envkit import registry
from envkit.cli.output import print_trimmed, stdout_on_stderr
from envkit.cli.target import (
    Closing,
    add_policy,
    add_seed,
    add_target,
    at_least_one,
    load_policy,
    make_target,
    target_arguments,
)
from envkit.cli.terminal import add_json, print_json, progress_bar, terminal
from envkit.provenance import plain_arguments
from envkit.testing.checks import CHECKS, FEATURES, check_environment
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome

__all__ = ["EXAMPLE", "add_arguments", "run", "show"]

EXAMPLE = "envkit check my_package.envs:Maze --require seed,state"

_KEPT, _BROKEN = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{parser.description}\nExit status: 0 if it keeps them all, 1 if it breaks "
        "some, 2 if it could not be checked."
    )
    add_target(parser)
    parser.add_argument(
        "--steps",
        type=at_least_one,
        metavar="N",
        default=1000,
        help="the maximum number of steps in each game",
    )
    add_seed(parser, "the seed of the environment and the actions", 0)
    parser.add_argument(
        "--require",
        metavar="FEATURES",
        type=_names,
        default=[],
        action="extend",
        help="features that must be present, separated by commas: "
        f"{', '.join(FEATURES)} (default: none)",
    )
    parser.add_argument(
        "--skip",
        metavar="CHECKS",
        type=_names,
        default=[],
        action="extend",
        help="checks to skip, by name, separated by commas (default: none)",
    )
    add_policy(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="list every check instead of groups of checks",
    )
    add_json(parser)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(arguments: argparse.Namespace) -> int:
    """Checks an environment; the status is 1 if it breaks a promise."""
    with stdout_on_stderr():
        report = _report(arguments, _constructor(arguments))
    if arguments.json:
        print_json(_plain(arguments, report))
    else:
        show(terminal(), report, arguments.target, verbose=arguments.verbose)
    return _BROKEN if report.failed else _KEPT


def _report(
    arguments: argparse.Namespace, make_env: Callable[[], Any]
) -> EnvironmentReport:
    """Runs the checks, with a line of progress on a terminal."""
    # The line names the next check, so that a hanging one can be identified.
    names = [*(check.name for check in CHECKS), ""]
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with progress_bar(*columns) as progress:
        checking = progress.add_task(names[0], total=len(CHECKS))

        def passed_by(outcome: Outcome) -> None:
            following = names[names.index(outcome.check) + 1]
            progress.update(checking, advance=1, description=following)

        try:
            return check_environment(
                make_env,
                steps=arguments.steps,
                seed=arguments.seed,
                require=arguments.require,
                skip=arguments.skip,
                on_outcome=passed_by,
                action_fn=_action_fn(arguments),
            )
        except CheckFailed as failed:
            return failed.report


def _action_fn(arguments: argparse.Namespace) -> Callable[[Any, Any], Any] | None:
    """Returns the policy for `check_environment`; `None` for its own."""
    if arguments.policy == "random":
        return None
    with Closing(make_target(arguments)) as env:
        policy = load_policy(arguments.policy, env, arguments.seed)
    return lambda time_step, rng: policy(time_step)


def _constructor(arguments: argparse.Namespace) -> Callable[[], Any]:
    """Returns the constructor of the environments.

    Raises if there is nothing to check, because a name is wrong or a library is
    missing. Exceptions of a user's function are left to the check `constructor`.
    """
    target, given = arguments.target, target_arguments(arguments)
    before, colon, _ = target.partition(":")
    if colon and before not in registry.schemes() and "num_envs" not in given:
        make_env = functools.partial(registry.load(target, target), **given)
        # The name in the report if its result has no name.
        make_env.__dict__["__qualname__"] = target
        return make_env
    # An exit is left to the check `constructor` too.
    with contextlib.suppress(SystemExit), Closing(make_target(arguments)):
        pass
    return functools.partial(make_target, arguments)


def _plain(arguments: argparse.Namespace, report: EnvironmentReport) -> dict[str, Any]:
    return {
        "target": arguments.target,
        "arguments": plain_arguments(target_arguments(arguments)),
        "environment": report.environment,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "passed": len(report.passed),
        "failed": len(report.failed),
        "skipped": len(report.skipped),
        "checks": [asdict(outcome) for outcome in report.outcomes],
    }


# The modules of the checks, and titles for their subjects.
_GROUPS = {
    "lifetime": "making and closing",
    "episodes": "episodes and time steps",
    "arrays": "arrays of its own",
    "randomness": "seeds",
    "state": "states",
    "views": "pictures and infos",
    "rows": "rows of a batch",
}
_MARKS = {"passed": "✓", "failed": "✗", "skipped": "-"}
# For terminals that cannot show the signs.
_WORDS = {"passed": "ok", "failed": "FAILED", "skipped": "-"}
_STYLES = {"passed": "green", "failed": "bold red", "skipped": "dim"}


def show(
    console: Console, report: EnvironmentReport, title: str, *, verbose: bool = False
) -> None:
    """Prints a report: groups of checks, and each failure with its whole text.

    Args:
        console: The terminal.
        report: The report.
        title: The name of the environment.
        verbose: Whether each check has a line, instead of each group.
    """
    marks = _MARKS if _can_show(console) else _WORDS
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    if not verbose:
        _add_groups(table, report, marks)
    for outcome in report.outcomes if verbose else ():
        style = _STYLES[outcome.status]
        why = f" ({outcome.text})" if outcome.status == "skipped" else ""
        table.add_row(
            Text(marks[outcome.status], style=style),
            Text(outcome.check, style=style if outcome.status != "passed" else ""),
            Text(f"{outcome.promise}{why}", style="dim" if why else ""),
        )
    parts: list[Any] = [table]
    for outcome in report.outcomes:
        if outcome.status == "failed":
            head = f"{marks['failed']} {outcome.check}: {outcome.promise}"
            parts += ["", Text(head, style="bold red")]
            parts.append(Padding(Text(outcome.text), (1, 0, 0, 2)))
    hint = "" if verbose else " (-v lists them)"
    print_trimmed(console, *parts, "", Text(f"{title}: {report.summary()}{hint}"))


def _add_groups(
    table: Table, report: EnvironmentReport, marks: Mapping[str, str]
) -> None:
    """Adds a line for each group of checks: its counts, and the checks that failed."""
    modules = {check.name: check.function.__module__ for check in CHECKS}
    for module, title in _GROUPS.items():
        found: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
        for outcome in report.outcomes:
            if modules[outcome.check].rpartition(".")[2] == module:
                found[outcome.status].append(outcome.check)
        status = next(one for one in ("failed", "passed", "skipped") if found[one])
        counts = ", ".join(
            f"{len(checks)} {status}" for status, checks in found.items() if checks
        )
        failed = f": {', '.join(found['failed'])}" if found["failed"] else ""
        style = _STYLES[status]
        table.add_row(
            Text(marks[status], style=style),
            Text(title, style=style if status != "passed" else ""),
            Text(f"{counts}{failed}", style="dim" if status == "skipped" else ""),
        )


def _can_show(console: Console) -> bool:
    try:
        "".join(_MARKS.values()).encode(console.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True
