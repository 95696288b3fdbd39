"""The report of `check_environment`, and the error that carries it."""

from __future__ import annotations

from dataclasses import dataclass

from envkit.errors import EnvkitError

__all__ = ["CheckFailed", "EnvironmentReport", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the outcome of one check.

    Attributes:
        check: The name of the check.
        promise: The promise in a few words.
        status: "passed", "failed" or "skipped".
        text: The reason for skipping it, or the message of the failure.
    """

    check: str
    promise: str
    status: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentReport:
    """Holds the outcomes of all checks, in order; prints as a table.

    Attributes:
        environment: The name of the environment's class.
        outcomes: One outcome for each check.
    """

    environment: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> tuple[str, ...]:
        """The names of the checks that passed."""
        return self._with("passed")

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return self._with("failed")

    @property
    def skipped(self) -> dict[str, str]:
        """The names of the checks that were skipped, and the reasons."""
        return {
            outcome.check: outcome.text
            for outcome in self.outcomes
            if outcome.status == "skipped"
        }

    def _with(self, status: str) -> tuple[str, ...]:
        return tuple(
            outcome.check for outcome in self.outcomes if outcome.status == status
        )

    def __str__(self) -> str:
        width = max(len(outcome.check) for outcome in self.outcomes)
        lines = [f"{self.environment}: {self.summary()}", ""]
        for outcome in self.outcomes:
            why = f" ({outcome.text})" if outcome.status == "skipped" else ""
            lines.append(
                f"  {outcome.status:<7}  {outcome.check:<{width}}  "
                f"{outcome.promise}{why}"
            )
        return "\n".join(lines)

    def summary(self) -> str:
        """Counts the outcomes in a sentence."""
        counts = [
            f"{len(self._with(status))} {status}"
            for status in ("passed", "failed", "skipped")
            if self._with(status)
        ]
        return f"{', '.join(counts)} of {len(self.outcomes)} checks."


class CheckFailed(EnvkitError, AssertionError):
    """An environment breaks a promise.

    Attributes:
        check: The name of the first check that failed.
        report: The outcomes of all checks.
    """

    check: str = ""
    report: EnvironmentReport

    @classmethod
    def because(cls, report: EnvironmentReport) -> CheckFailed:
        """Builds the error from a report in which a check has failed."""
        failures = [
            outcome for outcome in report.outcomes if outcome.status == "failed"
        ]
        name = report.environment
        if len(failures) == 1:
            text = f"{name} fails the check {failures[0].check!r}: {failures[0].text}"
        else:
            names = ", ".join(failure.check for failure in failures)
            text = f"{name} fails {len(failures)} checks: {names}." + "".join(
                f"\n\n{failure.check}: {failure.text}" for failure in failures
            )
        error = cls(f"{text}\n\nIn all: {report.summary()}")
        error.check = failures[0].check
        error.report = report
        return error
