"""The documentation is complete; that its code runs, the root's conftest sees to."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from envkit import types
from tests.importable import LIBRARIES, lacks_library

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if "_build" not in path.relative_to(DOCS).parts
)
# Packages and modules that users import from. What each lists in `__all__` is public.
PUBLIC = [
    "envkit",
    "envkit.adapters",
    "envkit.desktop",
    "envkit.distributed",
    "envkit.envs",
    "envkit.errors",
    "envkit.jax",
    "envkit.adapters.minari",
    "envkit.monitoring",
    "envkit.parallel",
    "envkit.realtime",
    "envkit.recording",
    "envkit.remote",
    "envkit.specs",
    "envkit.testing",
    "envkit.tf",
    "envkit.torch",
    "envkit.wrappers",
]
# Modules with the names that TF-Agents has for them: their packages export the same.
OF_TF_AGENTS = {
    "envkit.adapters.gym_wrapper",
    "envkit.adapters.gymnasium_wrapper",
    "envkit.specs.array_spec",
}


def described():
    """Lists the names in the blocks of the reference, each with its package."""
    return [
        f"{package}.{name}"
        for page in sorted((DOCS / "reference").glob("*.md"))
        for package, names in re.findall(
            r"^```\{names\} (\S+)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S
        )
        for name in names.split()
    ]


@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_describes_each_public_name_once(package):
    if lacks_library(package):
        pytest.skip(f"{LIBRARIES[package]} is not installed")
    listed = {
        name: importlib.import_module(name).__all__
        for name in PUBLIC
        if not lacks_library(name)
    }
    places = Counter(described())
    modules = {name.rpartition(".")[0] for name in places} | OF_TF_AGENTS
    for name in listed[package]:
        if f"{package}.{name}" in modules:
            continue
        found = [f"{home}.{name}" for home in listed if name in listed[home]]
        assert sum(places[place] for place in found) == 1, f"{package}.{name}"


def test_the_page_of_the_types_describes_each_of_them():
    page = (DOCS / "reference" / "types.md").read_text("utf-8")
    assert sorted(types.__all__) == sorted(
        re.findall(r"\{py:data\} envkit\.types\.(\w+)", page)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_code_block_runs_or_is_marked_as_no_python(page):
    text = page.read_text("utf-8")
    openings = re.findall(r"^ *(?:```|:::)+(.*)$", text, re.M)[::2]
    assert [] == [
        language
        for language in openings
        if language not in ("python", "console", "text")
        # It needs TF-Agents, so `test_tf_agents.py` runs it.
        and (language, page.stem) != ("py", "coming_from_tf_agents")
        # What comes out of these is run by `test_cleanrl.py`.
        and (language, page.stem) != ("diff", "coming_from_cleanrl")
        and not re.match(
            r"\{(command|eval-rst|glossary|include|names|py:data|toctree)\}",
            language,
        )
    ]


def test_every_library_of_the_readme_has_an_extra():
    root = DOCS.parent
    readme = (root / "README.md").read_text("utf-8")
    project = (root / "pyproject.toml").read_text("utf-8")
    libraries = readme.partition("\n## Libraries\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|.*\|([^|]+)\|$", libraries, re.M)
    extras = {extra for cell in rows for extra in re.findall(r"`([\w-]+)`", cell)}
    assert extras
    for extra in extras:
        assert re.search(f"^{extra} = \\[", project, re.M), extra


GUIDES = [page for page in PAGES if page.parent.name not in ("reference", "changes")]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_guide_has_3500_words_at_most(page):
    words = len(page.read_text("utf-8").split())
    assert words <= 3500 or page.name == "feature_table.md"  # the appendix
