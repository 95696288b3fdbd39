"""Mapping the range of a leaf to another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envkit import BoundedArraySpec
from envkit.wrappers.observations.rescaling import Rescaling, checked_bounds
from tests import strategies

NUMBERS = st.floats(-1e30, 1e30)


def rescaling(spec, low=-1.0, high=1.0):
    return Rescaling(spec, "", *checked_bounds(low, high))


def has_infinite_bounds(spec):
    if spec.dtype.kind != "f":
        return False
    limits = np.finfo(spec.dtype)
    with np.errstate(over="ignore"):
        width = spec.maximum - spec.minimum
    return bool(
        np.any(spec.minimum == limits.min)
        or np.any(spec.maximum == limits.max)
        or np.any(np.isinf(width))
    )


@st.composite
def ranges(draw):
    low, high = draw(NUMBERS), draw(NUMBERS)
    assume(low < high)
    return low, high


@st.composite
def leaves(draw):
    """Draws a spec with finite bounds, and a batch of arrays that fit it."""
    spec = draw(strategies.bounded_specs(any_byte_order=True))
    assume(not has_infinite_bounds(spec))
    return spec, draw(strategies.values(spec, (3,)))


@given(leaves(), ranges())
def test_what_is_within_the_bounds_comes_to_lie_within_the_new_ones(leaf, new):
    """Whichever way the arithmetic rounds, in all dtypes."""
    spec, values = leaf
    rescale = rescaling(spec, *new)

    rescaled = rescale(values)

    assert rescale.spec.dtype == rescaled.dtype
    assert values.shape == rescaled.shape
    assert np.all(rescale.spec.minimum <= rescaled)
    assert np.all(rescaled <= rescale.spec.maximum)


@settings(max_examples=40)
@given(leaves(), ranges())
def test_the_minimum_becomes_the_new_minimum_exactly(leaf, new):
    spec, _ = leaf
    rescale = rescaling(spec, *new)
    lowest = np.broadcast_to(spec.minimum, spec.shape)

    assert np.all(rescale(lowest) == rescale.spec.minimum)


@settings(max_examples=40)
@given(leaves(), ranges())
def test_the_maximum_becomes_the_new_maximum_but_for_rounding(leaf, new):
    spec, _ = leaf
    rescale = rescaling(spec, *new)
    low = np.broadcast_to(spec.minimum, spec.shape)
    high = np.broadcast_to(spec.maximum, spec.shape)
    width, largest = high.astype(np.longdouble) - low, max(map(abs, new))
    # A quotient of very large and very small numbers is 0, or no number at all.
    assume(np.all((width > 1e-9) & (width < 1e9)) and new[1] - new[0] > 1e-9)

    np.testing.assert_allclose(
        rescale(high), np.full(spec.shape, new[1]), rtol=0, atol=1e-6 * largest
    )


@given(
    hnp.arrays(np.uint8, (4,), elements=st.integers(0, 255)),
    hnp.arrays(np.uint8, (4,), elements=st.integers(0, 255)),
    ranges(),
)
def test_the_order_of_numbers_stays(first, second, new):
    rescale = rescaling(BoundedArraySpec((4,), np.uint8, 0, 255), *new)
    ordered = first <= second

    assert np.all((rescale(first) <= rescale(second))[ordered])


def test_a_leaf_without_dimensions_stays_an_array():
    rescaled = rescaling(BoundedArraySpec((), np.int64, 0, 4))(np.array(3))

    assert isinstance(rescaled, np.ndarray)
    assert 0.5 == rescaled


def test_an_element_with_one_value_becomes_the_new_minimum():
    rescale = rescaling(BoundedArraySpec((2,), np.float32, 1.0, [1.0, 3.0]))

    assert [-1.0, 0.0] == rescale(np.array([1.0, 2.0], np.float32)).tolist()


def test_what_is_outside_the_bounds_is_not_clipped():
    rescale = rescaling(BoundedArraySpec((), np.float32, 0.0, 1.0), 0.0, 10.0)

    assert 20.0 == rescale(np.array(2.0, np.float32))


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        (np.uint8, np.float32),
        (np.int64, np.float32),
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (">f8", np.float64),
    ],
)
def test_it_becomes_float32_and_stays_float64(given_dtype, expected):
    assert expected == rescaling(BoundedArraySpec((), given_dtype, 0, 1)).spec.dtype


def test_integers_of_64_bits_keep_their_digits_on_the_way():
    """In float32, two of the largest that differ by less than 2**40 are the same."""
    spec = BoundedArraySpec((), np.int64, 2**62, 2**62 + 4096)

    assert 0.0 == rescaling(spec)(np.array(2**62 + 2048))


def test_the_array_that_was_given_is_not_changed():
    given_array = np.array([0.0, 4.0])

    rescaling(BoundedArraySpec((2,), np.float64, 0.0, 4.0))(given_array)

    assert [0.0, 4.0] == given_array.tolist()


def test_bounds_too_far_apart_for_the_dtype_are_refused(message_of):
    spec = BoundedArraySpec((), np.float32, 0.0, 1.0)

    assert (
        "min_obs is -3e+38 and max_obs is 3e+38, which is too far apart for float32, "
        "the dtype of the observation after rescaling."
    ) == message_of(ValueError, lambda: rescaling(spec, -3e38, 3e38))
