"""What constructors are called in messages: short, whatever they were made with."""

from __future__ import annotations

import enum
import functools
import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import constructor
from envkit.errors import ConstructorError
from envkit.testing import CountingEnv
from tests.parallel.streams import pool_of

HERE = __name__
COUNTING = "envkit.testing.envs.CountingEnv"


class Level(enum.Enum):
    """Is an argument that is no number."""

    HARD = 2


class Maker:
    """Makes environments when called."""

    def __call__(self):
        return None

    def make(self):
        return None


class Secretive:
    """Does not like to be asked for its name."""

    def __getattribute__(self, name):
        if name == "__qualname__":
            raise RuntimeError("none of your business")
        return super().__getattribute__(name)

    def __call__(self):
        return None


def make(*unused, **also_unused):
    return None


class Kept:
    """Is no environment."""


def name_of(recipe):
    """Returns what a pool calls a constructor that makes no environment."""
    with pytest.raises(ConstructorError) as refused:
        pool_of([recipe])
    text = str(refused.value).rpartition(" returned ")[0]
    return re.sub(r"^env_constructors\[0\] \((.*)\)$", r"\1", text, flags=re.DOTALL)


def partial(**arguments):
    return functools.partial(make, **arguments)


an_unnamed_one = lambda: None  # noqa: E731
UNNAMED_LINE = an_unnamed_one.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (make, f"{HERE}.make"),
        (Kept, f"{HERE}.Kept"),
        (an_unnamed_one, f"lambda in test_constructor_texts.py, line {UNNAMED_LINE}"),
        (Maker(), f"a {HERE}.Maker object"),
        (Maker().make, f"{HERE}.Maker.make"),
        (Secretive(), "a Secretive object"),
        (
            functools.partial(make, 3, seed=1),
            f"functools.partial({HERE}.make, 3, seed=1)",
        ),
        (
            constructor(f"{HERE}:make", size=2),
            f"constructor('{HERE}:make', size=2)",
        ),
    ],
)
def test_a_constructor_is_named(recipe, expected):
    assert expected == name_of(recipe)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (None, "None"),
        (0.5, "0.5"),
        ("hard", "'hard'"),
        ("h" * 99, f"'{'h' * 38}…"),
        (Level.HARD, "Level.HARD"),
        (np.ones((84, 84), np.uint8), "array(shape=(84, 84), dtype=uint8)"),
        ([1, 2], "[1, 2]"),
        ((1,), "(1,)"),
        ((1, (2, 3)), "(1, (2, 3))"),
        ({"a": [1]}, "{'a': [1]}"),
        ([[[1]]], "[[<list of 1 element>]]"),
        (list(range(9)), "<list of 9 elements>"),
        ({1}, "<set of 1 element>"),
        (CountingEnv, COUNTING),
        (threading.Lock(), "<lock>"),
    ],
)
def test_an_argument_is_written_in_a_few_characters(argument, expected):
    text = name_of(partial(level=argument))
    assert f"functools.partial({HERE}.make, level={expected})" == text


def test_only_the_first_arguments_are_written():
    arguments = {f"a{number}": number for number in range(20)}
    assert (
        f"functools.partial({HERE}.make, a0=0, a1=1, a2=2, a3=3, a4=4, a5=5, a6=6, …)"
    ) == name_of(partial(**arguments))


VALUES = st.recursive(  # whatever a constructor may be given
    st.none() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner)
    ),
    max_leaves=9,
)


@settings(max_examples=25)
@given(arguments=st.dictionaries(st.text(max_size=200), VALUES, max_size=4))
def test_no_constructor_has_a_long_name(arguments):
    text = name_of(functools.partial(make, **arguments))
    assert len(text) <= 160
    assert text.startswith("functools.partial(")


def test_a_huge_number_does_not_raise():
    assert "a partial object" == name_of(partial(level=10**9999))
