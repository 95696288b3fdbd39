"""Specs of text: lengths and letters."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.specs import (
    ArraySpec,
    ObjectSpec,
    TextSpec,
    add_outer_dims_nest,
    check_arrays_nest,
    explain,
    remove_outer_dims_nest,
    sample_spec_nest,
)

LETTERS = "abcé "
COPIES = {
    "copied": copy.deepcopy,
    "pickled": lambda spec: pickle.loads(pickle.dumps(spec)),
    "from_spec": lambda spec: type(spec).from_spec(spec),
    "replaced": lambda spec: spec.replace(name=spec.name),
    "batched and unbatched": lambda spec: remove_outer_dims_nest(
        add_outer_dims_nest(spec, (2,)), 1
    ),
}


@dataclasses.dataclass(frozen=True)
class Upto:
    """Tuples of so many numbers at most."""

    most: int

    def contains(self, value):
        return isinstance(value, tuple) and len(value) <= self.most

    def sample(self, rng):
        return tuple(range(int(rng.random() * (self.most + 1))))


TEXT = TextSpec((), "<U5", "text", min_length=1, max_length=4, letters="ab")
SPEC = ObjectSpec(name="path", kind=Upto(3))


@st.composite
def text_specs(draw) -> TextSpec:
    """Draws a spec of text."""
    width = draw(st.integers(1, 6))
    longest = draw(st.integers(0, width))
    return TextSpec(
        draw(st.sampled_from([(), (2,), (0,)])),
        f"<U{width}",
        min_length=draw(st.integers(0, longest)),
        max_length=longest,
        letters=draw(st.none() | st.text(LETTERS, min_size=1)),
    )


@pytest.mark.parametrize(
    ("text", "fits"),
    [("abc", True), ("ab", True), ("a", False), ("abca", False), ("abx", False)],
)
def test_text_needs_the_right_length_and_letters(text, fits):
    spec = TextSpec((), "<U5", min_length=2, max_length=3, letters="abc")
    assert fits is spec.check_array(np.array(text, "<U5"))
    assert fits is check_arrays_nest(np.array(text, "<U5"), spec)


@pytest.mark.parametrize("value", [np.array("ab", "<U3"), "ab", None, 3])
def test_values_other_than_text_arrays_do_not_fit(value):
    assert not TextSpec((), "<U5").check_array(value)


def test_without_letters_all_characters_fit():
    assert TextSpec((), "<U5").check_array(np.array("é\n€", "<U5"))


@pytest.mark.parametrize("spec", [TEXT, SPEC], ids=["text", "objects"])
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_is_equal(copied, spec):
    other = copied(spec)
    assert spec == other
    assert (type(spec), spec.name, repr(spec)) == (type(other), other.name, repr(other))


@pytest.mark.parametrize(
    ("spec", "other"),
    [
        *(
            (TextSpec((), "<U5", letters="ab"), other)
            for other in (
                TextSpec((), "<U5", min_length=1, letters="ab"),
                TextSpec((), "<U5", max_length=4, letters="ab"),
                TextSpec((), "<U5", letters="abc"),
                TextSpec((), "<U5"),
                TextSpec((), "<U6", letters="ab"),
                ArraySpec((), "<U5"),
            )
        ),
        *(
            (SPEC, other)
            for other in (
                ObjectSpec(),
                ObjectSpec(kind=Upto(4)),
                ObjectSpec((1,), kind=Upto(3)),
                ArraySpec((), object),
            )
        ),
    ],
    ids=str,
)
def test_specs_with_other_limits_differ(spec, other):
    assert spec != other
    assert other != spec


def test_the_order_of_letters_makes_no_difference():
    assert TextSpec((), "<U5", letters="ab") == TextSpec((), "<U5", letters="bba")


def test_a_plain_spec_becomes_a_text_spec_without_limits():
    text = ArraySpec((2,), "<U5", "name")
    assert TextSpec((2,), "<U5", "name") == TextSpec.from_spec(text)
    assert ObjectSpec((2,)) == ObjectSpec.from_spec(ArraySpec((2,), object))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            TextSpec((), "<U5", min_length=1, letters="ab"),
            "TextSpec(shape=(), dtype=<U5, min_length=1, max_length=5, letters='ab')",
        ),
        (
            TextSpec((), "<U5", "word", letters="abcdefghijklmnopqrst"),
            "TextSpec(shape=(), dtype=<U5, min_length=0, max_length=5, "
            "letters='abcdefghijkl…', name='word')",
        ),
        (SPEC, "ObjectSpec(shape=(), dtype=object, kind=Upto(most=3), name='path')"),
        (ObjectSpec(), "ObjectSpec(shape=(), dtype=object)"),
    ],
)
def test_the_repr_shows_the_limits(spec, text):
    assert text == repr(spec)


@settings(max_examples=20)
@given(spec=text_specs(), seed=st.integers(0, 99))
def test_every_sample_of_text_fits(spec, seed):
    sample = sample_spec_nest(spec, np.random.default_rng(seed), outer_dims=(2,))
    assert explain(sample, spec, outer_dims=(2,)) is None


@pytest.mark.parametrize(
    ("letters", "count"), [("ab", 2 + 4 + 8), (None, 10 + 100 + 1000)]
)
def test_samples_have_all_lengths_and_letters(letters, count):
    """They are made of digits where no letters are given."""
    spec = TextSpec((), "<U3", min_length=1, letters=letters)
    samples = sample_spec_nest(spec, np.random.RandomState(0), outer_dims=(30_000,))
    assert count == len(set(samples.tolist()))
    assert letters or all(text.isdigit() for text in samples.tolist())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abab", "The text 'abab' has 4 characters, more than 3."),
        ("a", "The text 'a' has 1 character, fewer than 2."),
        ("axb", "The text 'axb' has the letter 'x', which is none of these."),
    ],
)
def test_an_invalid_text_is_explained(text, reason):
    spec = TextSpec((), "<U5", min_length=2, max_length=3, letters="ab")
    assert (
        "The value does not fit its spec.\n\n"
        "  expected   TextSpec(shape=(), dtype=<U5, min_length=2, max_length=3, "
        "letters='ab')\n"
        "  got        array of shape (), dtype <U5\n\n"
        f"{reason}"
    ) == explain(np.array(text, "<U5"), spec)


NO_WIDTH = "TextSpec needs a dtype of text with a width, such as '<U10', not {}."
NO_ROOM = "TextSpec was given texts of {} characters in <U5, which has room for 5."


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TextSpec((), "S5"), TypeError, NO_WIDTH.format("|S5")),
        (lambda: TextSpec((), str), TypeError, NO_WIDTH.format("<U0")),
        (
            lambda: TextSpec((), "<U5", max_length=6),
            ValueError,
            NO_ROOM.format("0 to 6"),
        ),
        (
            lambda: TextSpec((), "<U5", min_length=3, max_length=2),
            ValueError,
            NO_ROOM.format("3 to 2"),
        ),
        (
            lambda: TextSpec((), "<U5", min_length=1, letters=""),
            ValueError,
            "TextSpec was given no letters for texts of at least 1.",
        ),
        (
            lambda: ObjectSpec((), np.int64),
            TypeError,
            "ObjectSpec is of dtype object, not int64.",
        ),
        (
            lambda: sample_spec_nest(ObjectSpec(), np.random.default_rng(0)),
            TypeError,
            "Cannot sample ObjectSpec(shape=(), dtype=object): no random value is "
            "defined for object.",
        ),
    ],
)
def test_invalid_arguments_are_refused(message_of, make, error, message):
    assert message == message_of(error, make)


def test_an_empty_alphabet_allows_the_empty_text_only():
    spec = TextSpec((), "<U5", letters="")
    assert spec.check_array(np.array("", "<U5"))
    assert "" == sample_spec_nest(spec, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("value", "fits"),
    [((), True), ((1, 2, 3), True), ((1, 2, 3, 4), False), (3, False)],
)
def test_the_kind_decides_which_objects_fit(value, fits):
    array = ObjectSpec.wrap(value)
    assert fits is SPEC.contains(value)
    assert fits is SPEC.check_array(array)
    assert fits is check_arrays_nest([array], [SPEC])


@pytest.mark.parametrize("value", [(1, 2), None, 3, np.array(3)], ids=str)
def test_an_object_without_its_array_does_not_fit(value):
    assert not SPEC.check_array(value)


def test_without_a_kind_every_object_fits():
    assert ObjectSpec().check_array(ObjectSpec.wrap({"a": [1]}))


def test_wrapping_keeps_the_object_itself():
    value = [1, [2]]
    array = ObjectSpec.wrap(value)
    assert ((), value) == (array.shape, array[()])
    assert value is array[()]


def test_the_kind_draws_the_samples(make_rng):
    samples = sample_spec_nest(SPEC, make_rng(0), outer_dims=(40,))
    assert explain(samples, SPEC, outer_dims=(40,)) is None
    assert {(), (0,), (0, 1), (0, 1, 2)} == set(samples.tolist())
    assert SPEC.check_array(sample_spec_nest(SPEC, make_rng(0)))


def test_an_object_of_another_kind_is_explained():
    assert (
        "The value does not fit its spec.\n\n"
        "  expected   ObjectSpec(shape=(), dtype=object, kind=Upto(most=3), "
        "name='path')\n"
        "  got        array of shape (), dtype object that holds a tuple of 4 "
        "elements\n\n"
        "It holds a tuple of 4 elements, which the spec does not know as a value."
    ) == explain(ObjectSpec.wrap((1, 2, 3, 4)), SPEC)


def test_an_invalid_object_in_a_batch_is_explained():
    batch = np.array([None, None], object)
    batch[0], batch[1] = (1,), "no"
    spec = TextSpec((), "<U2", letters="ab")
    text = explain(np.array(["ab", "ac"]), spec, outer_dims=(2,))
    assert text.endswith("The text 'ac' has the letter 'c', which is none of these.")
    assert explain(batch, SPEC, outer_dims=(2,)).endswith(
        "It holds the string 'no', which the spec does not know as a value."
    )
