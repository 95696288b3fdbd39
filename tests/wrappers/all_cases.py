"""All cases of all families, as one list."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wrappers.case import Case
from tests.wrappers.environments import ENVIRONMENTS

_FOLDER = Path(__file__).parent / "cases"

CASES: list[Case] = [
    case
    for path in sorted(_FOLDER.glob("*.py"))
    for case in importlib.import_module(f"tests.wrappers.cases.{path.stem}").CASES
]


def _first_of_each_wrapper() -> set[str]:
    """Names the first case of each class; those after it have other arguments."""
    first: dict[type, str] = {}
    for case in CASES:
        env = case.wrap(ENVIRONMENTS[case.environments[0]](None))
        first.setdefault(type(env), case.name)
    return set(first.values())


_FIRST = _first_of_each_wrapper()


def pairs(cases: list[Case], turn: int | None = None) -> list:
    """Returns parameters of a test: each case with each of its environments.

    `make test` runs each case with one of them, and the first case of each wrapper with
    two; the rest is left to `make test-all`. Of two tests with the turns 0 and 1, it
    runs the first case of each wrapper, in one of them, with one environment: because
    the streams of a case over a batch and over its rows are compared, in
    `test_before_and_after`, what holds for one holds for the other. Cases that do not
    commute are run in both, with another environment in each.
    """
    numbers = itertools.count()
    return [
        pytest.param(
            case,
            name,
            id=f"{case.name}-{name}",
            marks=[] if name in quick else pytest.mark.heavy,
        )
        for case in cases
        for quick in [_quick(case, numbers, turn)]
        for name in case.environments
    ]


def _quick(case: Case, numbers: Iterator[int], turn: int | None) -> set[str]:
    """Chooses the environments of a case in `make test`."""
    is_first = case.name in _FIRST
    if turn is not None and case.commutes and not is_first:
        return set()
    number, count = next(numbers), len(case.environments)
    if turn is None:
        places = [number, number + count // 2] if is_first else [number]
    elif not case.commutes:
        places = [number + turn]
    else:
        places = [number // 2] if number % 2 == turn else []
    return {case.environments[place % count] for place in places}
