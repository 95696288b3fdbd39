"""Runs tests that send signals in a process of their own.

A signal that comes a moment too late ends whatever the process does by then: with the
test long over, that is another test, or all of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Names the file to which the process of one test writes its reports.
REPORTS = "ENVKIT_TEST_REPORTS"
# Seconds until a hanging test shows its stacks and ends, and until it is killed.
# Both are less than the faulthandler_timeout of the process that waits.
STACKS, LIMIT = 400, 500


def is_wanted(item: pytest.Item) -> bool:
    """Returns true if a test has to run elsewhere, and this is not that process."""
    return REPORTS not in os.environ and bool(item.get_closest_marker("own_process"))


def run(item: pytest.Item, folder: Path) -> list[pytest.TestReport]:
    """Runs a test by pytest in a new process, and returns its reports."""
    path = folder / "reports"
    path.touch()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "--rootdir", str(item.config.rootpath)]
    command += ["-o", f"faulthandler_timeout={STACKS}"]
    if item.config.getoption("--nothing-missing"):
        command.append("--nothing-missing")
    process = subprocess.Popen(
        [*command, item.nodeid],
        cwd=item.config.rootpath,
        env={**os.environ, REPORTS: str(path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
        status = f"ended with status {process.returncode}"
    except subprocess.TimeoutExpired:
        status = f"was not done after {LIMIT} seconds"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.poll() is None:
            output, _ = process.communicate()
    reports = [
        item.config.hook.pytest_report_from_serializable(
            config=item.config, data=json.loads(line)
        )
        for line in path.read_text("utf-8").splitlines()
    ]
    for report in reports:
        if isinstance(report.longrepr, list):  # a skipped test's place and reason
            report.longrepr = tuple(report.longrepr)
    if not any(report.when == "teardown" for report in reports):
        reports.append(_failure(item, f"The process of this test {status}.\n{output}"))
    return reports


def write(report: pytest.TestReport, config: pytest.Config) -> None:
    """Hands a report to the process that asked for the test, if one did."""
    if path := os.environ.get(REPORTS):
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")


def _failure(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(
        item.nodeid,
        item.location,
        dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=text,
        when="call",
    )
