"""`envkit check TARGET`: which promises of an environment one keeps, and why not."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from envkit.cli.target import add_target, make_target, target_arguments
from envkit.cli.terminal import add_json, print_json, progress_bar, terminal

if TYPE_CHECKING:
    from envkit.testing.report import EnvironmentReport, Outcome

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit check my_package.envs:Maze --require seed,state"

_KEPT, _BROKEN = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    from envkit.testing.checks import FEATURES

    parser.description = (
        f"{parser.description}\nExit status: 0 none, 1 some, 2 it could not be checked."
    )
    add_target(parser)
    parser.add_argument(
        "--steps",
        type=int,
        default=1000,
        help="the most steps that one game has (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="what the actions, and environments that can be seeded, depend on",
    )
    parser.add_argument(
        "--require",
        metavar="FEATURES",
        type=_names,
        default=[],
        action="extend",
        help="what it must have, with commas, so that none of its checks is skipped: "
        f"{', '.join(FEATURES)}",
    )
    parser.add_argument(
        "--skip",
        metavar="CHECKS",
        type=_names,
        default=[],
        action="extend",
        help="names of checks to leave out, with commas",
    )
    add_json(parser)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(arguments: argparse.Namespace) -> int:
    """Checks an environment; the status is 1 if it breaks a promise."""
    from envkit.cli.check_parts.marks import show
    from envkit.cli.output import stdout_on_stderr

    with stdout_on_stderr():
        report = _report(arguments, _constructor(arguments))
    if arguments.json:
        print_json(_plain(arguments, report))
    else:
        show(terminal(), report, arguments.target)
    return _BROKEN if report.failed else _KEPT


def _report(
    arguments: argparse.Namespace, make_env: Callable[[], Any]
) -> EnvironmentReport:
    """Runs the checks, with a line of progress on a terminal."""
    from envkit.testing.checks import check_environment
    from envkit.testing.contract.table import CHECKS
    from envkit.testing.report import CheckFailed

    # What is looked at next: a check that takes long or hangs is told by its name.
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
            )
        except CheckFailed as failed:
            return failed.report


def _constructor(arguments: argparse.Namespace) -> Callable[[], Any]:
    """Returns what makes the environments.

    Raises here if there is nothing to check: a wrong name, a library that is missing.
    What one's own function raises is for the check `constructor` to report.
    """
    from envkit import targets

    target, given = arguments.target, target_arguments(arguments)
    before, colon, _ = target.partition(":")
    if colon and before not in targets.schemes() and "num_envs" not in given:
        make_env = functools.partial(targets.load(target, target), **given)
        # What it is called if it makes nothing that has a name.
        make_env.__dict__["__qualname__"] = target
        return make_env
    make_target(arguments).close()
    return functools.partial(make_target, arguments)


def _plain(arguments: argparse.Namespace, report: EnvironmentReport) -> dict[str, Any]:
    from envkit.provenance import plain_arguments

    return {
        "target": arguments.target,
        "arguments": plain_arguments(target_arguments(arguments)),
        "environment": report.environment,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "passed": len(report.passed),
        "failed": len(report.failed),
        "skipped": len(report.skipped),
        "checks": [
            {
                "check": outcome.check,
                "promise": outcome.promise,
                "status": outcome.status,
                "text": outcome.text,
            }
            for outcome in report.outcomes
        ],
    }
