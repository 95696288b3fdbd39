"""Docstrings, comments, messages and pages of envkit are plain English.

`PHRASES` has the words that may not stand, and what to say instead.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import envkit

ROOT = Path(envkit.__file__).parent

# A pattern, and what to say instead. `{}` stands for what a message fills in.
PHRASES = {
    r"\b([Nn]o|[Ss]ome|[Aa]ny|[Ee]very)body(s|'s)?\b|\b([Ww]hoever|[Ww]hom(ever)?)\b": (
        "the noun: the caller, the worker, the test, no process, any thread"
    ),
    r"\b[Cc]an (all|both|everything)\b": "supports all",
    r"(?<![Tt]here) is no\b(?! longer| more| less| later)": "is not a",
    r"\bquacks?\b": "has the methods of",
    r"\bby (itself|themselves)\b": "automatically, or the verb with its object: itself",
    r"\bfor good\b(?! reason)": "permanently, or its verb: ends, is not replaced",
    r"(^|\. )(Says|Tells|Looks( at)?) (what|where|whether|which|why|how|if)\b": (
        "True if, Returns the"
    ),
    r"^What (is|are|was|were|has|have|had)\b": "a noun: The rows that",
    r"\b(see|sees|saw|seen|seeing) to it\b": "what it does: ensures that",
    r"\b(hear|hears|heard|hearing)\b": "reads, receives, is told",
    r"\bnothing (more )?to (say|tell)\b": "is idle, returns nothing",
    r"\b(process(es)?|workers?|pools?|backends?|environments?|threads?) wants?\b": (
        "waits for, reads, needs"
    ),
    r"\bis (\{\}|a string|empty)[^.;]*; (it|they|there) (is|are)\b": (
        "must be: num_envs must be an integer of at least 1, got 'four'."
    ),
    r"; an? \w+ (has at least|lies between)\b": "must be",
}
PATTERNS = {
    re.compile(pattern.replace(" ", r"\s+")): instead
    for pattern, instead in PHRASES.items()
}


class Found(NamedTuple):
    """A phrase that may not stand."""

    place: str
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f'{self.place}: "{self.phrase}"; say instead: {self.instead}'


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yields docstrings, comments and messages, each with its first line's number."""
    yield from _strings(source)
    yield from _comments(source)


def _strings(source: str) -> Iterator[tuple[int, str]]:
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                ),
            )
            todo += [
                part.value
                for part in node.values
                if isinstance(part, ast.FormattedValue)
            ]
        else:
            todo += ast.iter_child_nodes(node)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yields comments; lines that follow one another are one."""
    first, last, lines = 0, 0, [""]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number, text = token.start[0], token.string.lstrip("# ")
        if number == last + 1 and token.line.lstrip().startswith("#"):
            lines.append(text)
        else:
            yield first, "\n".join(lines)
            first, lines = number, [text]
        last = number
    yield first, "\n".join(lines)


def phrases_in(source: str, file: str) -> Iterator[Found]:
    """Yields each phrase of the table that stands in a source."""
    return _phrases(texts(source), file)


def phrases_on(page: str, file: str) -> Iterator[Found]:
    """Yields each phrase of the table that stands on a page, outside its code."""
    prose = re.sub(
        r"^ *```(?!\{).*?^ *```$",
        lambda code: "\n" * code[0].count("\n"),
        page,
        flags=re.M | re.S,
    )
    return _phrases([(1, prose)], file)


def _phrases(texts: Iterable[tuple[int, str]], file: str) -> Iterator[Found]:
    for number, text in texts:
        for pattern, instead in PATTERNS.items():
            for match in pattern.finditer(text):
                start = match.end() - len(match[0].lstrip())
                line = number + text.count("\n", 0, start)
                phrase = " ".join(match[0].split())
                yield Found(f"{file}:{line}", phrase, instead)


def phrases_of(package: str) -> list[Found]:
    folder = ROOT if package == "envkit" else ROOT / package
    paths = sorted(ROOT.glob("*.py") if folder == ROOT else folder.rglob("*.py"))
    return [
        found
        for path in paths
        for found in phrases_in(
            path.read_text("utf-8"), str(path.relative_to(ROOT.parent))
        )
    ]


PACKAGES = ["envkit", *sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_phrase_that_may_not_stand_comes_back(package):
    found = phrases_of(package)
    assert not found, "\n".join(map(str, found))


PAGES = sorted(
    path.relative_to(ROOT.parent)
    for path in [*ROOT.parent.glob("*.md"), *ROOT.parent.glob("docs/**/*.md")]
    if "_build" not in path.parts
)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_pages_are_plain_english(page):
    text = (ROOT.parent / page).read_text("utf-8")
    assert [] == list(map(str, phrases_on(text, str(page))))


BAD = {
    '"""Waits until nobody reads."""': "nobody",
    '"""Rows.\n\n    Asks whom it likes."""': "whom",
    "# A worker that\n# hears nothing.": "hears",
    "x = 1  # Is gone for good.": "for good",
    '"""A batch can\n    all modes."""': "can all",
    '"""Refuses what is no number."""': "is no",
    '"""Says whether it ended."""': "Says whether",
    '"""What was asked."""': "What was",
    'f"num_envs is {num!r}; it is an integer."': "is {}; it is",
    'f"env_fns is {text()}{more}; there is at least one."': "is {}{}; there is",
    'f"{n}: a batch is {n}; a batch has at least one row"': "; a batch has at least",
    "f\"{name('what nobody sees')}\"": "nobody",
}


@pytest.mark.parametrize(("source", "phrase"), BAD.items())
def test_a_phrase_is_found_in_docstrings_comments_and_messages(source, phrase):
    assert [phrase] == [each.phrase for each in phrases_in(source, "a.py")]


GOOD = [
    "nobody = hears = 1",
    '"""There is no row 3: it is no longer alive."""',
    '"""Returns what was asked, for good reason; it is an array."""',
    'f"num_envs must be an integer of at least 1, got {num!r}."',
]


@pytest.mark.parametrize("source", GOOD)
def test_names_and_plain_english_may_stand(source):
    assert [] == list(phrases_in(source, "a.py"))


def test_a_phrase_is_found_in_its_line():
    source = '\n\ndef f():\n    """Waits.\n\n    If somebody\n    hears it."""\n'
    assert ["a.py:6", "a.py:7"] == [each.place for each in phrases_in(source, "a.py")]


def test_a_phrase_on_a_page_is_found_in_its_line_and_not_in_code():
    page = "# A\n\n```python\nnobody = 1\n```\n\nWaits until\nnobody reads.\n"
    assert ["a.md:8"] == [each.place for each in phrases_on(page, "a.md")]
