"""`check_backend`: does a backend keep the contract between it and a pool?

The promises are the rows of a table, `CHECKS` in
`envkit.testing.backend_contract.table`; what looks at them is beside it, by subject.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from envkit.parallel.backends.base import Backend
from envkit.testing.backend_contract.table import CHECKS, Check
from envkit.testing.backend_contract.trial import BackendTrial
from envkit.testing.contract.findings import Broken, Skipped
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome

__all__ = ["check_backend"]


def check_backend(
    make_backend: Callable[[], Backend],
    *,
    skip: Sequence[str] = (),
    patience: float = 30.0,
) -> EnvironmentReport:
    """Checks that a backend keeps the contract of `envkit.parallel.backends.base`.

    It drives backends as a pool would: with environments that wait, raise or end their
    process when they are told to, with killed workers, with large messages. All checks
    run; those that failed are raised together. What a backend does not claim to be
    able to do is skipped, and the report says so.

    Args:
        make_backend: Something to call that makes a backend on which nothing was
            called yet. It is called some dozen times.
        skip: Names of checks to leave out.
        patience: Seconds after which something that did not come will not come.

    Raises:
        CheckFailed: A promise is broken. It is an `AssertionError` too.

    Example:
        >>> from envkit.parallel.backends.inline import InlineBackend
        >>> from envkit.testing import check_backend
        >>> report = check_backend(InlineBackend)
        >>> report.skipped["kill_idle"]
        'it cannot kill (can_kill is False)'
    """
    _check_skip(skip)
    trial = BackendTrial(make_backend, patience)
    causes: list[BaseException] = []
    try:
        outcomes = tuple(_outcomes(trial, set(skip), causes))
    finally:
        trial.close()
    report = EnvironmentReport(trial.name, outcomes)
    if report.failed:
        raise CheckFailed.because(report) from (causes[0] if causes else None)
    return report


def _check_skip(skip: Sequence[str]) -> None:
    if isinstance(skip, str):
        raise TypeError(f"skip is a string; it is a list of names: [{skip!r}].")
    known = [check.name for check in CHECKS]
    unknown = [name for name in skip if name not in known]
    if unknown:
        raise ValueError(
            f"skip has no name {unknown[0]!r}. The names are {', '.join(known)}."
        )


def _outcomes(
    trial: BackendTrial, skip: set[str], causes: list[BaseException]
) -> Iterator[Outcome]:
    """Runs the checks in order; the exceptions behind failures go to `causes`."""
    # Of what failed, and of what could not run because of it: nobody looks further.
    dead: set[str] = set()
    for check in CHECKS:
        blocking = [need for need in check.needs if need in dead]
        if check.name in skip:
            yield _skipped(check, "left out on request")
        elif blocking:
            dead.add(check.name)
            yield _skipped(check, f"rests on {blocking[0]!r}")
        else:
            outcome, cause = _outcome(trial, check)
            if outcome.status == "failed":
                dead.add(check.name)
                causes.extend(filter(None, [cause]))
            yield outcome


def _skipped(check: Check, why: str) -> Outcome:
    return Outcome(check.name, check.promise, "skipped", why)


def _outcome(trial: BackendTrial, check: Check) -> tuple[Outcome, BaseException | None]:
    name, promise = check.name, check.promise
    outcome, cause = Outcome(name, promise, "passed"), None
    try:
        check.function(trial)
    except Skipped as reason:
        outcome = _skipped(check, str(reason))
    except Broken as broken:
        outcome, cause = Outcome(name, promise, "failed", str(broken)), broken.__cause__
    except Exception as error:
        outcome, cause = Outcome(name, promise, "failed", _text_of(error)), error
    trial.end_check(failed=outcome.status == "failed")
    return outcome, cause


def _text_of(error: Exception) -> str:
    """Says what was raised that nobody expected, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    where = f"{Path(place.filename).name}, line {place.lineno}, in {place.name}"
    return f"{text}\n\nIt was raised in {where}."
