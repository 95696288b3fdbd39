"""`check_backend`: does a backend keep the contract between it and a pool?

The promises are the rows of the table `CHECKS`; the functions stand beside this file,
by subject. Each takes a `BackendTrial`, and its docstring is the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envkit.parallel.backends.base import Backend
from envkit.testing.contract.findings import Check, checked_names, run_checks
from envkit.testing.report import EnvironmentReport
from tests.parallel.contract import (
    closing,
    endings,
    leaves,
    questions,
    rows,
    starting,
    waiting,
)
from tests.parallel.contract.trial import BackendTrial
from tests.waiting import PATIENCE

_STARTED = ("starts",)
_ROWS = ("visible", "once", "answers")
_ALL = (*_ROWS, "replies")

CHECKS: tuple[Check, ...] = (
    Check(starting.interface),
    Check(starting.starts, ("interface",)),
    Check(starting.failed_start, _STARTED),
    Check(starting.failed_setup, _STARTED),
    Check(rows.visible, _STARTED),
    Check(rows.once, _STARTED),
    Check(rows.answers, ("visible", "once")),
    Check(questions.replies, _ROWS),
    Check(starting.built_apart, _ALL),
    Check(rows.masked, _ROWS),
    Check(rows.orders, _ALL),
    Check(rows.portions, _ALL),
    Check(rows.each_row, _ALL),
    Check(rows.raises, _ROWS),
    Check(rows.neighbours, (*_ROWS, "raises")),
    Check(rows.rebuild, _ALL),
    Check(rows.autoreset, _ROWS),
    Check(rows.same_step, _ROWS),
    Check(leaves.leaf_kinds, _ROWS),
    Check(leaves.objects, _ROWS),
    Check(leaves.batches, _ROWS),
    Check(waiting.timeout, _ALL),
    Check(waiting.owing, _ALL),
    Check(waiting.kept, _ROWS),
    Check(questions.methods, _ALL),
    Check(questions.state, _ALL),
    Check(questions.request_failures, _ALL),
    Check(questions.unsendable_results, _ALL),
    Check(questions.big_payload, _ALL),
    Check(questions.interleaved, _ALL),
    Check(endings.kill_idle, _ALL),
    Check(endings.kill_at_once, (*_ALL, "kill_idle")),
    Check(endings.kill_busy, (*_ALL, "kill_idle")),
    Check(endings.kill_starting, (*_ALL, "kill_idle")),
    Check(endings.death, _ALL),
    Check(endings.committed, (*_ALL, "death")),
    Check(endings.failed_replacement, (*_ALL, "kill_idle")),
    Check(endings.ghosts, _ALL),
    Check(closing.close_early, ("interface",)),
    Check(closing.close_busy, _ALL),
    Check(closing.close_idle, _ALL),
)


def check_backend(
    make_backend: Callable[[], Backend],
    *,
    skip: Sequence[str] = (),
    patience: float = PATIENCE,
) -> EnvironmentReport:
    """Checks that a backend keeps the contract of `envkit.parallel.backends.base`.

    It drives backends as a pool does: with environments that wait, raise or end their
    process when they are told to, with killed workers, with large messages. All checks
    run; those that failed are raised together. Checks of what a backend does not claim
    to support are skipped, and the report says so.

    Args:
        make_backend: Something to call that makes a backend on which no method was
            called yet. It is called some dozen times.
        skip: Names of checks to leave out.
        patience: Seconds after which a missing event counts as lost.

    Raises:
        CheckFailed: A promise is broken. It is an `AssertionError` too.

    Example:
        >>> from envkit.parallel.backends.inline import InlineBackend
        >>> report = check_backend(InlineBackend)
        >>> report.skipped["kill_idle"]
        'it cannot kill (can_kill is False)'
    """
    skip = checked_names("skip", skip, [check.name for check in CHECKS])
    trial = BackendTrial(make_backend, patience)
    try:
        return run_checks(CHECKS, trial, skip=skip)
    finally:
        trial.close()
