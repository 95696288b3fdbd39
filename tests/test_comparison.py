"""Every mark that a page gives to envkit leads to what shows it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    "tutorial",
    "libraries",
    "comparison",
    "feature_table",
    "coming_from_gymnasium",
    "coming_from_stable_baselines3",
    "coming_from_universe",
]
_LINK = re.compile(r"\]\(([^)\s]+)(?: \"([^\"]*)\")?\)")


def links():
    """Lists every link that leads somewhere in the repository."""
    return [
        pytest.param(name, target, test, id=f"{name}: {test or target}")
        for name in PAGES
        for target, test in sorted(
            set(_LINK.findall((DOCS / f"{name}.md").read_text("utf-8")))
        )
        if "://" not in target
    ]


def anchors(page):
    """Lists what a link may name behind `#`: headings as Sphinx shortens them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#{1,3} (.*)$", text, re.M)
    return {
        *(
            re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            for title in headings
        ),
        *re.findall(r"^\(([\w-]+)\)=$", text, re.M),
    }


@pytest.mark.parametrize(("name", "target", "test"), links())
def test_links_lead_to_the_tests_that_they_name(name, target, test):
    file, _, anchor = target.partition("#")
    path = (DOCS / file).resolve() if file else DOCS / f"{name}.md"
    assert path.is_file()
    if anchor:
        assert anchor in anchors(path)
    if test:
        assert f"\ndef {test}(" in path.read_text("utf-8")


def rows():
    text = (DOCS / "feature_table.md").read_text("utf-8")
    return re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|", text, re.M)


def test_every_feature_has_a_mark():
    assert [str(number) for number in range(1, 226)] == [number for number, _ in rows()]
    for number, mark in rows():
        assert re.match(r"\[(✓|\(✓\))\]\(\S+|no$|not yet$", mark), number


def test_marks_are_counted():
    text = (DOCS / "comparison.md").read_text("utf-8")
    counted = Counter(
        "yes" if mark.startswith("[✓]") else "partly" if mark[0] == "[" else "no"
        for _, mark in rows()
    )

    sentence = (
        f"envkit has {counted['yes']} of them, {counted['partly']} in part, and "
        f"{counted['no']} not."
    )
    assert sentence in text


def test_the_page_has_rows_of_the_whole_table():
    page = (DOCS / "comparison.md").read_text("utf-8")
    whole = (DOCS / "feature_table.md").read_text("utf-8")
    short = [line for line in page.splitlines() if "](" in line and line[0] == "|"]
    marked = [line for line in short if re.search(r"\| (✓|\(✓\)|–) \|", line)]
    assert len(marked) > 40
    for line in marked:
        assert f"{line}\n" in whole
