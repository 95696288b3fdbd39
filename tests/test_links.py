"""Links of the pages hold on GitHub, on the site, and on package indexes."""

from __future__ import annotations

import functools
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "examples" / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "adapters").glob("*.md"),
    *(ROOT / "docs" / "reference").glob("*.md"),
]
LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")


@functools.cache
def text_of(page):
    """Returns a page without its code blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.M | re.S)


@functools.cache
def anchors(page):
    """Lists the anchors that GitHub gives a page, for its headings alone."""
    found = set()
    for title in re.findall(r"^#+ (.*)$", text_of(page), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for link in LINK.findall(text_of(page)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_no_syntax_that_only_sphinx_knows(page):
    text = text_of(page)
    assert not re.search(r"\{py:\w+\}`", text)
    assert not re.search(r"^\([\w-]+\)=$", text, re.M)


def test_the_package_index_shows_the_readme_with_absolute_links():
    readme = runpy.run_path(str(ROOT / "setup.py"))["description"]()
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (home,) = re.findall(r'^Repository = "(.+)"$', project, re.M)
    links = LINK.findall(readme)
    assert f"{home}/blob/main/docs/tutorial.md" in links
    assert [] == [link for link in links if "://" not in link]


def test_the_address_of_the_repository_is_the_same_everywhere():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (home,) = re.findall(r'^Repository = "(.+)"$', project, re.M)
    for page in PAGES:
        found = re.findall(r"https://github.com/envkit/\w+", page.read_text("utf-8"))
        assert set(found) <= {home}, page
