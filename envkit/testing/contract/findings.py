"""The table of promises: how it runs, and the two exceptions that end a check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from envkit._shared.text import exit_call
from envkit.extend import suggestion
from envkit.testing.report import CheckFailed, EnvironmentReport, Outcome
from envkit.wrappers.findings import paragraphs

__all__ = [
    "FAULTS",
    "Broken",
    "Check",
    "Examination",
    "Skipped",
    "broken",
    "checked_names",
    "raised",
    "refuses",
    "run_checks",
]

# Frames in these files are the checks' own, so no message blames them.
_CONTRACT = Path(__file__).parent
_FUNCTOOLS = Path(functools.__file__)


# Exceptions to attribute to an environment: sys.exit is one, Ctrl-C is not.
FAULTS = (Exception, SystemExit)


class Broken(Exception):
    """A check has found that its promise is broken."""


class Skipped(Exception):
    """A check cannot test its promise in this environment.

    Attributes:
        feature: The missing feature, such as "seed"; empty if the promise does not
            concern this environment.
    """

    def __init__(self, reason: str, feature: str = "") -> None:
        super().__init__(reason)
        self.feature = feature


def broken(problem: str, advice: str, **facts: str) -> Broken:
    """Builds a `Broken` of three paragraphs: problem, labelled facts, advice."""
    return Broken(paragraphs(problem, advice, **facts))


def refuses(call: Callable[..., Any], *arguments: Any) -> bool:
    """Returns True if a call raises an exception."""
    try:
        call(*arguments)
    except Exception:
        return True
    return False


def raised(error: BaseException, call: str = "") -> Broken:
    """Builds the `Broken` for an unexpected exception.

    `call` names the call, if the traceback does not.
    """
    entered, where = _places(error)
    subject = call or (f"{entered}()" if entered else "The environment")
    lines = str(error).splitlines() or [""]
    problem = f"{subject} raised {type(error).__name__}: {lines[0]}".rstrip(": ")
    if isinstance(error, SystemExit):
        problem = f"{subject} called {exit_call(error)}, which ends the program."
    rest = "\n".join(lines[1:]).strip("\n")
    paragraphs = [problem, rest, f"It was raised in {where}." if where else ""]
    return Broken("\n\n".join(filter(None, paragraphs)))


def _places(error: BaseException) -> tuple[str, str]:
    """Returns the function that the checks called, and the line that raised."""
    entered = ""
    last: tuple[FrameType, int] | None = None
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if not _is_ours(frame):
            entered = entered or frame.f_code.co_name
            last = frame, step.tb_lineno
        step = step.tb_next
    if last is None:
        return "", ""
    code = last[0].f_code
    return entered, f"{Path(code.co_filename).name}, line {last[1]}, in {code.co_name}"


def _is_ours(frame: FrameType) -> bool:
    path = Path(frame.f_code.co_filename)
    return path.parent == _CONTRACT or path == _FUNCTOOLS


class Check(NamedTuple):
    """Combines a promise and the function that checks it.

    Attributes:
        function: Called with the trial. Its name is the check's name, in reports and in
            `skip`, and the first line of its docstring is the promise.
        needs: The checks it builds on: if one of these fails, this one is not run.
    """

    function: Callable[[Any], None]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the check."""
        return self.function.__name__

    @property
    def promise(self) -> str:
        """The promise in a few words."""
        return (self.function.__doc__ or "").partition("\n")[0].removesuffix(".")


class Examination(Protocol):
    """Holds what all checks share; `run_checks` passes it to each of them."""

    @property
    def name(self) -> str:
        """The name at the head of the report."""

    def end_check(self, *, failed: bool) -> None:
        """Frees the resources of one check."""


def run_checks(
    checks: Sequence[Check],
    trial: Examination,
    *,
    skip: Sequence[str] = (),
    require: Sequence[str] = (),
    on_outcome: Callable[[Outcome], None] | None = None,
) -> EnvironmentReport:
    """Runs checks in order, and raises the failures together."""
    outcomes: list[Outcome] = []
    causes: list[BaseException] = []
    # The checks that failed, and those that build on one of them.
    dead: set[str] = set()
    for check in checks:
        name, blocking = check.name, [need for need in check.needs if need in dead]
        status, text, cause = "skipped", "left out on request", None
        if name not in skip:
            if blocking:
                text = f"rests on {blocking[0]!r}"
            else:
                status, text, cause = _run(check, trial, require)
            if blocking or status == "failed":
                dead.add(name)
        if cause is not None:
            causes.append(cause)
        outcomes.append(Outcome(name, check.promise, status, text))
        if on_outcome is not None:
            on_outcome(outcomes[-1])
    report = EnvironmentReport(trial.name, tuple(outcomes))
    if report.failed:
        raise CheckFailed.because(report) from (causes[0] if causes else None)
    return report


def _run(
    check: Check, trial: Examination, require: Sequence[str]
) -> tuple[str, str, BaseException | None]:
    """Returns the status and the text of one check, and the exception behind it."""
    status, text, cause = "failed", "", None
    try:
        check.function(trial)
        status = "passed"
    except Skipped as reason:
        if reason.feature in require:
            text = f"{reason}, and it is required: require=[{reason.feature!r}]."
        else:
            status, text = "skipped", str(reason)
    except Broken as broken:
        text, cause = str(broken), broken.__cause__
    except FAULTS as error:
        text, cause = str(raised(error)), error
    finally:
        trial.end_check(failed=status == "failed")
    return status, text, cause


def checked_names(
    option: str, given: Sequence[str], known: Sequence[str]
) -> Sequence[str]:
    """Returns the given names; raises if one is unknown."""
    if isinstance(given, str):
        raise TypeError(f"{option} must be a list of names, got {given!r}.")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"{option} has no name {unknown[0]!r}.{suggestion(unknown[0], known)} The "
            f"names are {', '.join(known)}."
        )
    return given
