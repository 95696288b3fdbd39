"""Each wrapper declared in the reference's tables is exported, tested and shown."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import gymnasium
import pytest

import envkit.wrappers
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from tests.wrappers.all_cases import CASES
from tests.wrappers.environments import ENVIRONMENTS
from tools import wrappers
from tools.wrappers import PLACES, Row, rows, written

ROOT = Path(__file__).parents[2]
WRAPPERS = [row for row in rows() if row.wraps]


def classes_in(env):
    """Yields the class names of every layer, base classes included."""
    while True:
        yield from (cls.__name__ for cls in type(env).__mro__)
        if not isinstance(env, PyEnvironmentBaseWrapper):
            return
        env = env.wrapped_env()


@pytest.fixture(scope="module")
def cases():
    """Returns the cases of each wrapper, by the name of its class."""
    found = defaultdict(list)
    for case in CASES:
        env = case.wrap(ENVIRONMENTS[case.environments[0]](None))
        for name in set(classes_in(env)):
            found[name].append(case)
    return found


@pytest.mark.parametrize("path", PLACES)
def test_exports_and_lists_are_what_the_rows_declare(path):
    """`python tools/wrappers.py` writes them."""
    assert written(path) == (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("path", PLACES)
def test_a_name_that_is_missing_in_a_list_is_found(path, monkeypatch):
    more = [*rows(), Row("Actions", "is_choice", "", "", "–", "–")]
    monkeypatch.setattr(wrappers, "rows", lambda: more)
    assert written(path) != (ROOT / path).read_text("utf-8")


def test_each_name_is_declared_once():
    assert envkit.wrappers.__all__ == sorted(row.name for row in rows())


@pytest.mark.parametrize("row", WRAPPERS, ids=lambda row: row.name)
def test_every_wrapper_has_test_cases(row, cases):
    """The rules of all wrappers are tried on them."""
    assert cases[row.name]
    are_batched = any(case.batched for case in cases[row.name])
    assert are_batched == row.wraps.startswith("both")
    assert row.wraps.startswith(("both", "single"))


@pytest.mark.parametrize("row", WRAPPERS, ids=lambda row: row.name)
def test_every_wrapper_has_an_example(row):
    assert ">>>" in vars(getattr(envkit.wrappers, row.name))["__doc__"]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_declared_gymnasium_counterparts_exist(row):
    if row.gymnasium == "–" or row.gymnasium.startswith("in "):
        return
    name = row.name if row.gymnasium == "same" else row.gymnasium.strip("`")
    homes = (gymnasium.wrappers, gymnasium.wrappers.utils, gymnasium)
    assert any(hasattr(home, name) for home in homes)
