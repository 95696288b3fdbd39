"""Specs of dm_env and of envkit say the same about the same values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from dm_env import specs
from hypothesis import given

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters.dm.dm_env_specs import Strings, spec_from_dm_env, spec_to_dm_env
from envkit.errors import SpecError
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.text_spec import TextSpec
from tests import strategies


@given(strategies.specs("biufUS"))
def test_a_spec_comes_back_as_it_was(spec):
    back = spec_from_dm_env(spec_to_dm_env(spec))

    assert (type(spec), spec, spec.name) == (type(back), back, back.name)


@pytest.mark.parametrize(
    "spec",
    [
        specs.Array((2, 3), np.float16, name="array"),
        specs.BoundedArray((3,), np.float64, [0, -1, -2], 5, name="bounded"),
        specs.BoundedArray((), np.int8, -3, 5),
        specs.BoundedArray((2,), np.uint8, 0, 5),
        specs.DiscreteArray(5, np.int64, name="choice"),
        specs.DiscreteArray(1),
        specs.StringArray((), str, name="word"),
        specs.StringArray((2,), bytes),
        specs.Array((), object, name="thing"),
    ],
    ids=repr,
)
def test_a_spec_of_dm_env_comes_back_as_it_was(spec):
    back = spec_to_dm_env(spec_from_dm_env(spec))

    assert repr(spec) == repr(back)


@given(strategies.bounded_specs())
def test_what_fits_the_one_fits_the_other(spec):
    theirs = spec_to_dm_env(spec)

    assert spec.check_array(np.asarray(theirs.generate_value()))


def test_booleans_have_no_bounds():
    theirs = specs.BoundedArray((2,), bool, False, True, name="switches")

    assert type(spec_from_dm_env(theirs)) is ArraySpec
    assert ArraySpec((2,), bool) == spec_from_dm_env(theirs)


def test_narrowing_makes_float32_of_float64_and_of_nothing_else():
    double = specs.BoundedArray((2,), np.float64, [0.1, -np.inf], [0.3, np.inf])
    half, whole = specs.Array((), np.float16), specs.Array((), np.int64)

    narrowed = spec_from_dm_env(double, narrow=True)

    largest = np.finfo(np.float32).max
    assert (
        BoundedArraySpec((2,), np.float32, [0.1, -largest], [0.3, largest]) == narrowed
    )
    assert [np.float16, np.int64] == [
        spec_from_dm_env(spec, narrow=True).dtype for spec in (half, whole)
    ]


def test_narrowing_keeps_bounds_within_what_float32_can_be():
    double = specs.BoundedArray((), np.float64, -1e300, 1e300)

    assert BoundedArraySpec((), np.float32) == spec_from_dm_env(double, narrow=True)


def test_strings_of_a_known_length_are_text_of_a_fixed_width():
    words = specs.StringArray((2,), name="words")
    bits = specs.StringArray((), bytes, name="bits")

    assert TextSpec((2,), "<U7") == spec_from_dm_env(words, text_length=7)
    assert ArraySpec((), "S7") == spec_from_dm_env(bits, text_length=7)


def test_strings_of_any_length_are_objects():
    spec = spec_from_dm_env(specs.StringArray((2,), name="words"))

    assert ObjectSpec((2,), kind=Strings(str)) == spec
    assert "words" == spec.name
    assert spec.check_array(np.array(["", "a very long word"], object))
    assert not spec.check_array(np.array(["one", 2], object))


@pytest.mark.parametrize("kind", [str, bytes])
def test_strings_know_their_own(kind):
    strings = Strings(kind)
    rng = np.random.default_rng(0)

    assert strings.contains(strings.sample(rng))
    assert strings.contains(strings.sample(np.random.RandomState(0)))
    assert strings == pickle.loads(pickle.dumps(strings))
    assert f"Strings({kind.__name__})" == repr(strings)


def test_strings_of_one_kind_are_equal():
    assert Strings(str) == Strings(str)
    assert Strings(str) != Strings(bytes)
    assert len({Strings(str), Strings(str), Strings(bytes)}) == 2


@pytest.mark.parametrize(
    "spec", [specs.Array((), np.complex64), "no spec at all"], ids=["complex", "text"]
)
def test_a_spec_that_has_no_counterpart_is_named_with_its_place(spec):
    with pytest.raises(SpecError) as caught:
        spec_from_dm_env(spec, "observation['a']")

    assert (
        f"The spec at observation['a'] is {spec!r:.120}, which is not supported: there "
        "are specs for arrays of numbers, of booleans, of text and of objects."
    ) == str(caught.value)
    assert "observation['a']" == caught.value.path
