"""All cases of all families, as one list."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.wrappers.case import Case

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
