"""Specs of text: lengths and letters."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.specs import (
    ArraySpec,
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
    "from_spec": TextSpec.from_spec,
    "replaced": lambda spec: spec.replace(name="text"),
    "batched and unbatched": lambda spec: remove_outer_dims_nest(
        add_outer_dims_nest(spec, (2,)), 1
    ),
}


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
def test_what_is_no_array_of_its_dtype_does_not_fit(value):
    assert not TextSpec((), "<U5").check_array(value)


def test_without_letters_all_are_right():
    assert TextSpec((), "<U5").check_array(np.array("é\n€", "<U5"))


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_has_the_same_lengths_and_letters(copied):
    spec = TextSpec((), "<U5", "text", min_length=1, max_length=4, letters="ab")

    other = copied(spec)

    assert spec == other
    assert (TextSpec, "text", 1, 4, "ab") == (
        type(other),
        other.name,
        other.min_length,
        other.max_length,
        other.letters,
    )


@pytest.mark.parametrize(
    "other",
    [
        TextSpec((), "<U5", min_length=1, letters="ab"),
        TextSpec((), "<U5", max_length=4, letters="ab"),
        TextSpec((), "<U5", letters="abc"),
        TextSpec((), "<U5"),
        TextSpec((), "<U6", letters="ab"),
        ArraySpec((), "<U5"),
    ],
    ids=str,
)
def test_a_spec_that_says_something_else_is_not_equal(other):
    spec = TextSpec((), "<U5", letters="ab")

    assert spec != other
    assert other != spec


def test_the_order_of_letters_makes_no_difference():
    assert TextSpec((), "<U5", letters="ab") == TextSpec((), "<U5", letters="bba")


def test_a_spec_of_any_text_becomes_one_without_limits():
    spec = ArraySpec((2,), "<U5", "name")

    assert TextSpec((2,), "<U5", "name") == TextSpec.from_spec(spec)


def test_a_spec_shows_what_it_says():
    assert (
        "TextSpec(shape=(), dtype=<U5, min_length=1, max_length=5, letters='ab')"
    ) == repr(TextSpec((), "<U5", min_length=1, letters="ab"))
    assert (
        "TextSpec(shape=(), dtype=<U5, min_length=0, max_length=5, "
        "letters='abcdefghijkl…', name='word')"
    ) == repr(TextSpec((), "<U5", "word", letters="abcdefghijklmnopqrst"))


@given(spec=text_specs(), seed=st.integers(0, 99))
def test_every_sample_fits(spec, seed):
    sample = sample_spec_nest(spec, np.random.default_rng(seed), outer_dims=(2,))

    assert explain(sample, spec, outer_dims=(2,)) is None


def test_samples_have_all_lengths_and_letters():
    spec = TextSpec((), "<U3", min_length=1, letters="ab")

    samples = sample_spec_nest(spec, np.random.RandomState(0), outer_dims=(300,))

    assert 2 + 4 + 8 == len(set(samples.tolist()))


def test_samples_are_made_of_digits_if_no_letters_are_given():
    samples = sample_spec_nest(
        TextSpec((), "<U3", min_length=1), np.random.default_rng(0), outer_dims=(50,)
    )

    assert all(text.isdigit() for text in samples.tolist())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abab", "The text 'abab' has 4 characters, more than 3."),
        ("a", "The text 'a' has 1 character, fewer than 2."),
        ("axb", "The text 'axb' has the letter 'x', which is none of these."),
    ],
)
def test_what_is_wrong_with_a_text_is_told(text, reason):
    spec = TextSpec((), "<U5", min_length=2, max_length=3, letters="ab")

    assert (
        "The value does not fit its spec.\n\n"
        "  expected   TextSpec(shape=(), dtype=<U5, min_length=2, max_length=3, "
        "letters='ab')\n"
        "  got        array of shape (), dtype <U5\n\n"
        f"{reason}"
    ) == explain(np.array(text, "<U5"), spec)


def test_a_wrong_text_of_a_batch_is_told():
    spec = TextSpec((), "<U2", letters="ab")

    explanation = explain(np.array(["ab", "ac"]), spec, outer_dims=(2,))

    assert (
        "The text 'ac' has the letter 'c', which is none of these."
        == explanation.split("\n")[-1]
    )


@pytest.mark.parametrize(
    ("dtype", "options", "error", "message"),
    [
        (
            "S5",
            {},
            TypeError,
            "TextSpec needs a dtype of text with a width, such as '<U10', not |S5.",
        ),
        (
            str,
            {},
            TypeError,
            "TextSpec needs a dtype of text with a width, such as '<U10', not <U0.",
        ),
        (
            "<U5",
            {"max_length": 6},
            ValueError,
            "TextSpec was given texts of 0 to 6 characters in <U5, which has room "
            "for 5.",
        ),
        (
            "<U5",
            {"min_length": 3, "max_length": 2},
            ValueError,
            "TextSpec was given texts of 3 to 2 characters in <U5, which has room "
            "for 5.",
        ),
        (
            "<U5",
            {"min_length": 1, "letters": ""},
            ValueError,
            "TextSpec was given no letters for texts of at least 1.",
        ),
    ],
)
def test_what_describes_no_text_is_refused(dtype, options, error, message):
    with pytest.raises(error) as caught:
        TextSpec((), dtype, **options)

    assert message == str(caught.value)


def test_no_letters_leave_the_empty_text():
    spec = TextSpec((), "<U5", letters="")

    assert spec.check_array(np.array("", "<U5"))
    assert "" == sample_spec_nest(spec, np.random.default_rng(0))
