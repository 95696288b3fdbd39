"""The pages for who comes from elsewhere name what is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["gymnasium", "stable_baselines3", "universe", "urnai"]
HOMES = [
    "envkit",
    "envkit.adapters",
    "envkit.adapters.urnai",
    "envkit.realtime",
    "envkit.recording",
    "envkit.testing",
    "envkit.wrappers",
]


def names(page):
    """Lists the classes and functions that the right columns of tables call."""
    text = (DOCS / f"coming_from_{page}.md").read_text("utf-8")
    right = re.findall(r"^\| .*\| ([^|]+) \|$", text, re.M)
    code = " ".join(re.findall(r"`([^`]+)`", " ".join(right)))
    return sorted(set(re.findall(r"(?<![\w.])([A-Z]\w+|to_sb3|from_urnai)\(", code)))


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page in PAGES for name in names(page)]
)
def test_what_the_tables_call_is_there(page, name):
    assert any(name in dir(importlib.import_module(home)) for home in HOMES)


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_call_something(page):
    assert names(page)


def test_what_the_table_for_urnai_imports_is_there():
    text = (DOCS / "coming_from_urnai.md").read_text("utf-8")
    statements = re.findall(r"^\| `from urnai\S* .*` \| `(from .+)` \|$", text, re.M)

    assert 5 == len(statements)
    for statement in statements:
        exec(statement, {})


TF_AGENTS = (DOCS / "coming_from_tf_agents.md").read_text("utf-8")
IMPORTS = re.findall(r"^\| `(from tf_agents\S* .+?)` \| `(from .+?)`", TF_AGENTS, re.M)


@pytest.mark.parametrize("statement", [right for _, right in IMPORTS])
def test_what_the_table_for_tf_agents_imports_is_there(statement):
    if statement.startswith("from envkit.tf ") or "TFPyEnvironment" in statement:
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    exec(statement, {})


def test_the_table_for_tf_agents_gives_each_name_its_own():
    """What a script calls a module afterwards is what it called it before."""

    def bound(statement):
        names = statement.partition(" import ")[2].split(", ")
        return [name.split(" as ")[-1] for name in names]

    assert len(IMPORTS) > 30
    for left, right in IMPORTS:
        assert bound(left) == bound(right)
