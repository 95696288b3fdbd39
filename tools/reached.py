"""A plugin for pytest: `tools/mutate.py` chooses tests with it, and what they reach.

It runs the tests that the file `MUTATE_TESTS` lists, in that order, if there is one. A
line of JSON for each test that begins and each that has ended goes to the file
`MUTATE_REPORT`. `marks` is an array in a file that all processes of a run share: the
instrumented modules set one element before they run a statement that has a mutant.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest


def _shared() -> Any:
    path = os.environ.get("MUTATE_MARKS")
    if path is None:
        return {}
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


marks: MutableMapping[int, int] = _shared()
_failed: set[str] = set()


def _write(**facts: object) -> None:
    with open(os.environ["MUTATE_REPORT"], "a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def _taken() -> list[int]:
    """Returns the numbers that are marked, and takes the marks away."""
    if isinstance(marks, dict):
        return []
    numbers = [number for number, mark in enumerate(marks[:]) if mark]
    for number in numbers:
        marks[number] = 0
    return numbers


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    path = os.environ.get("MUTATE_TESTS")
    if path is not None:
        places = {
            name: place
            for place, name in enumerate(json.loads(Path(path).read_text("utf-8")))
        }
        config.hook.pytest_deselected(
            items=[item for item in items if item.nodeid not in places]
        )
        items[:] = [item for item in items if item.nodeid in places]
        items.sort(key=lambda item: places[item.nodeid])


def pytest_collection_finish(session: pytest.Session) -> None:
    _write(collected=len(session.items))
    _taken()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _write(begun=item.nodeid)
    start = time.monotonic()
    try:
        return (yield)
    finally:
        _write(
            ended=item.nodeid,
            seconds=time.monotonic() - start,
            failed=item.nodeid in _failed,
            reached=_taken(),
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(uncollected=report.nodeid)
