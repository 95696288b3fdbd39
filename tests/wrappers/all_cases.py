"""All cases of all families, as one list."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import pytest

from tests.wrappers.case import Case
from tests.wrappers.environments import BUILT_IN

_FOLDER = Path(__file__).parent / "cases"

CASES: list[Case] = [
    case
    for path in sorted(_FOLDER.glob("*.py"))
    for case in importlib.import_module(f"tests.wrappers.cases.{path.stem}").CASES
]


def pairs(cases: list[Case]) -> list:
    """Returns parameters of a test: each case with each of its environments."""
    return [
        pytest.param(case, name, id=f"{case.name}-{name}")
        for case in cases
        for name in case.environments
    ]


def all_pairs(cases: list[Case]) -> list:
    """Returns the same, and leaves those to `make test-all` whose turn it is not."""
    quick = {param.id for param in pairs(taking_turns(cases))}
    return [
        param
        if param.id in quick
        else pytest.param(*param.values, id=param.id, marks=pytest.mark.heavy)
        for param in pairs(cases)
    ]


def taking_turns(cases: list[Case]) -> list[Case]:
    """Leaves each case one of the built-in environments, and all others.

    One class makes the batches of all built-in ones, and what a wrapper gives over a
    batch of each is compared with what it gives over the rows: in
    `test_before_and_after`. Cases that are not compared there keep theirs.
    """
    turns = itertools.count()
    return [_with_one(case, next(turns)) if case.commutes else case for case in cases]


def _with_one(case: Case, turn: int) -> Case:
    built_in = [name for name in case.environments if name in BUILT_IN]
    left_out = {
        name for index, name in enumerate(built_in) if index != turn % len(built_in)
    }
    return case._replace(
        environments=tuple(name for name in case.environments if name not in left_out)
    )
