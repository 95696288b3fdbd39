"""The scheme of each library, and what is written of it elsewhere."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tools import libraries
from tools.libraries import PLACES, schemes, written

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", PLACES)
def test_the_tables_match_the_schemes(path):
    """`python tools/libraries.py` writes it."""
    assert written(path) == (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize(
    "change",
    [
        {"title": "Another"},
        {"extra": "another"},
        {"package": "another"},
        {"requires": ("another>=2",)},
        {"example": "Another-v2"},
        {"page": "adapters/another"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_check_finds_a_table_that_differs(path, change, monkeypatch):
    others = schemes()
    others["minigrid"] = others["minigrid"]._replace(**change)
    monkeypatch.setattr(libraries, "schemes", lambda: others)
    shown = {
        "README.md": {"title", "extra", "example", "page"},
        "docs/libraries.md": {"title", "example", "page", "package", "requires"},
        "pyproject.toml": {"extra", "requires", "package"},
    }
    is_shown = bool(shown[path] & change.keys())
    assert is_shown == (written(path) != (ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize("path", PLACES)
def test_the_check_finds_a_table_without_a_library(path, monkeypatch):
    fewer = schemes()
    del fewer["minigrid"]
    monkeypatch.setattr(libraries, "schemes", lambda: fewer)
    assert written(path) != (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("name", schemes())
def test_a_library_has_a_page_that_makes_one_of_its_environments(name):
    scheme = schemes()[name]
    page = (ROOT / "docs" / f"{scheme.page}.md").read_text("utf-8")
    assert f"{name}:" in page
    if scheme.page.startswith("adapters/"):
        assert scheme.extra.replace("_", "-") in page
    assert all([scheme.title, scheme.extra, scheme.requires])
    assert bool(scheme.address) != bool(scheme.example and scheme.lister)


READING = """
import json, sys
from envkit._internal.plugins import SCHEMES
from envkit._internal.schemes import scheme_named

packages = {scheme_named(name).package for name in SCHEMES.own()}
loaded = {name.partition(".")[0] for name in sys.modules}
print(json.dumps([sorted(packages & loaded), "numpy" in loaded]))
"""


def test_reading_the_schemes_loads_neither_numpy_nor_a_library():
    told = subprocess.run(
        [sys.executable, "-c", READING], capture_output=True, text=True, check=True
    )
    assert [[], False] == json.loads(told.stdout)


@pytest.mark.parametrize("name", schemes())
def test_the_pip_command_for_a_missing_library_is_what_its_extra_installs(name):
    scheme = schemes()[name]._replace(package="no_such_module", beside="")
    error = scheme.missing("It")
    assert error is not None
    needed = {text.partition(";")[0].strip() for text in scheme.requires}
    assert ["pip", "install"] == shlex.split(error.command)[:2]
    assert needed == set(shlex.split(error.command)[2:])
    assert str(error).endswith(error.command)
