"""What constructors are called in messages."""

from __future__ import annotations

import enum
import functools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import constructor
from envkit.parallel.serialize import _introduced as introduced
from envkit.parallel.serialize import _kind_of as kind_of
from envkit.parallel.serialize import describe_constructor
from envkit.testing import CountingEnv

HERE = __name__
COUNTING = "envkit.testing.envs.CountingEnv"


class Level(enum.Enum):
    """Is an argument that is no number."""

    HARD = 2


class Maker:
    """Makes environments when called."""

    def __call__(self):
        return CountingEnv()

    def make(self):
        return CountingEnv()


class Secretive:
    """Does not like to be asked for its name."""

    def __getattribute__(self, name):
        if name == "__qualname__":
            raise RuntimeError("none of your business")
        return super().__getattribute__(name)

    def __call__(self):
        return CountingEnv()


def make(**unused):
    return CountingEnv()


def partial(**arguments):
    return functools.partial(make, **arguments)


MAKE_LINE = make.__code__.co_firstlineno
an_unnamed_one = lambda: CountingEnv()  # noqa: E731
UNNAMED_LINE = an_unnamed_one.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (make, f"{HERE}.make"),
        (CountingEnv, COUNTING),
        (an_unnamed_one, f"lambda in test_constructor_texts.py, line {UNNAMED_LINE}"),
        (Maker(), f"a {HERE}.Maker object"),
        (Maker().make, f"{HERE}.Maker.make"),
        (Secretive(), "a Secretive object"),
        (
            functools.partial(CountingEnv, 3, seed=1),
            f"functools.partial({COUNTING}, 3, seed=1)",
        ),
        (
            constructor("CartPole", batch_size=2),
            "constructor('CartPole', batch_size=2)",
        ),
        (
            constructor("CartPole", table=np.zeros((9, 9))),
            "constructor('CartPole', table=array(shape=(9, 9), dtype=float64))",
        ),
    ],
)
def test_a_constructor_is_named(recipe, expected):
    assert expected == describe_constructor(recipe)


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
    text = describe_constructor(partial(level=argument))
    assert f"functools.partial({HERE}.make, level={expected})" == text


def test_only_the_first_arguments_are_written():
    arguments = {f"a{number}": number for number in range(20)}
    assert (
        f"functools.partial({HERE}.make, a0=0, a1=1, a2=2, a3=3, a4=4, a5=5, a6=6, …)"
    ) == describe_constructor(partial(**arguments))


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
    text = describe_constructor(functools.partial(make, **arguments))
    assert len(text) <= 160
    assert text.startswith("functools.partial(")


def test_a_huge_number_does_not_raise():
    assert "a partial object" == describe_constructor(partial(level=10**9999))


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (
            make,
            f"the function make defined in test_constructor_texts.py, line {MAKE_LINE}",
        ),
        (
            partial(level=3),
            "a functools.partial of the function make defined in "
            f"test_constructor_texts.py, line {MAKE_LINE}",
        ),
        (Maker(), "a Maker object"),
        (dict, "the class dict"),
        (len, "a builtin_function_or_method object"),
    ],
)
def test_a_constructor_is_introduced_with_its_place(recipe, expected):
    assert expected == introduced(recipe)


def test_a_class_is_introduced_with_its_place():
    assert introduced(Maker).startswith(
        "the class Maker defined in test_constructor_texts.py, line "
    )


@pytest.mark.parametrize(
    "file", ["/tmp/ipykernel_123/456.py", "<ipython-input-3-0123456789ab>"]
)
def test_a_notebook_cell_is_called_that(file):
    names = {}
    exec(compile("make = lambda: None", file, "exec"), names)
    assert "a lambda defined in a notebook cell, line 1" == introduced(names["make"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (threading, "the module threading"),
        (threading.Lock(), "a lock object"),
        (Maker().make, "the method Maker.make"),
    ],
)
def test_kinds_have_names(value, expected):
    assert expected == kind_of(value)
