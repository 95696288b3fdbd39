"""The libraries that messages name, and those of pyproject.toml."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import envkit
from envkit._internal.extras import extras

PACKAGE = Path(envkit.__file__).parent
ROOT = PACKAGE.parent
# What developers install.
OURS = re.compile(r"(all|libraries|bench.*|dev|docs|test.*)\Z")


@pytest.fixture(scope="module")
def project():
    tomllib = pytest.importorskip("tomllib", reason="tomllib is there since 3.11")
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_messages_name_packages_that_the_extras_install(project):
    declared = {
        extra: tuple(texts)
        for extra, texts in project["optional-dependencies"].items()
        if not OURS.match(extra)
    }
    assert declared == extras()


def test_every_extra_named_in_the_code_exists():
    named = {
        keyword.value.value
        for text in (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
        if "extra=" in text  # Parsing all of them takes seconds.
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Constant)
    }
    assert {"tf_agents"} == named - set(extras())  # Its message is its own.


def test_the_distribution_has_a_name_of_its_own(project):
    assert "envkit-rl" == project["name"]


def test_the_extras_of_extras_are_those_of_this_distribution(project):
    declared = project["optional-dependencies"]
    for text in [text for texts in declared.values() for text in texts]:
        requirement = Requirement(text)
        if requirement.name.startswith("envkit"):
            assert "envkit-rl" == requirement.name
            assert requirement.extras <= set(declared)


def test_the_extra_all_contains_every_compatible_extra(project):
    declared = project["optional-dependencies"]
    texts = [*declared["all"], *declared["libraries"]]
    among = {extra for text in texts for extra in Requirement(text).extras}
    apart = {"browsergym", "gym", "jericho", "nle", "pysc2", "reasoning-gym", "rllib"}
    trainers = {"skyrl", "trl", "verifiers"}
    assert apart | trainers | {"textworld"} == set(extras()) - among


def texts():
    """Yields the files that say how to install something."""
    folders = ("benchmarks", "docs", "envkit", "examples", "tools")
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".md", ".py", ".sh") and "_build" not in path.parts:
                yield path
    yield from (ROOT / name for name in ("CONTRIBUTING.md", "Makefile", "README.md"))


def test_nobody_is_told_to_install_another_project():
    """On the package index, envkit is one."""
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts()
        for line in path.read_text("utf-8").splitlines()
        if "envkit" in line
        if "envkit[" in line
        or re.search(r"pip3? install\b[^`#]*[\s\"']envkit(?![\w./-])", line)
        or re.search(r"[\"']pip[\"']: .*[\"']envkit[\"']", line)
    ]
    assert [] == wrong


def test_a_clone_is_made_from_the_repository_that_the_project_names(project):
    said = {
        address
        for path in texts()
        for address in re.findall(r"git clone (\S+envkit\S*)", path.read_text("utf-8"))
    }
    assert {project["urls"]["Repository"]} == said
