"""What becomes of specs when leaves are cast or reshaped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.specs import check_arrays_nest
from envkit.wrappers.observations.leaf_specs import (
    cast_spec,
    known_bounds,
    reshaped_spec,
)
from tests import strategies


def cast(spec, dtype):
    return cast_spec(spec, np.dtype(dtype))


@given(
    strategies.specs("biuf", any_byte_order=True), strategies.dtypes("biuf"), st.data()
)
def test_what_fits_a_spec_fits_that_of_the_cast(spec, dtype, data):
    result = cast_spec(spec, dtype)
    assume(result is not None)
    value = data.draw(strategies.values(spec))
    with np.errstate(over="ignore"):
        moved = value.astype(dtype)
    # Where a float has no bound, shorter floats may make infinity of it.
    assume(dtype.kind != "f" or np.isfinite(moved).all())

    assert check_arrays_nest(moved, result)


@given(strategies.specs("biuf"))
def test_a_cast_to_the_same_dtype_keeps_the_bounds(spec):
    result = cast_spec(spec, spec.dtype)

    assert (spec, spec.name) == (result, result.name)


@given(strategies.specs("biu"), strategies.dtypes("biu"), st.data())
def test_a_cast_between_integers_changes_no_value(spec, dtype, data):
    assume(cast_spec(spec, dtype) is not None)
    value = data.draw(strategies.values(spec))

    assert value.tolist() == value.astype(dtype).tolist()


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (BoundedArraySpec((), np.int64, 0, 256), np.uint8),
        (BoundedArraySpec((), np.int64, -1, 9), np.uint8),
        (BoundedArraySpec((), np.float32, 0.0, 256.0), np.uint8),
        (BoundedArraySpec((), np.float32, 0.0), np.int64),
        (BoundedArraySpec((), np.float64, 0.0, 1e6), np.float16),
        (BoundedArraySpec((), np.int64, 0, 2), np.bool_),
        (BoundedArraySpec((), np.float32, 0.0, 1.0), np.bool_),
        (ArraySpec((), np.float32), np.int64),
        (ArraySpec((), np.int64), np.int32),
        (ArraySpec((), np.int64), np.float16),
        (ArraySpec((), np.uint8), np.int8),
        (ArraySpec((), "<U3"), np.float32),
        (ArraySpec((), np.complex64), np.float32),
    ],
    ids=str,
)
def test_a_dtype_that_cannot_hold_everything_is_refused(spec, dtype):
    assert cast(spec, dtype) is None


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (ArraySpec((), np.float64), np.float32),
        (ArraySpec((), np.int32), np.int64),
        (ArraySpec((), np.int64), np.float32),
        (ArraySpec((), np.uint8), np.int16),
    ],
    ids=str,
)
def test_a_spec_without_bounds_stays_one(spec, dtype):
    assert ArraySpec((), dtype) == cast(spec, dtype)


def test_booleans_are_known_to_be_0_or_1():
    expected = BoundedArraySpec((3,), np.float32, 0.0, 1.0)

    assert expected == cast(ArraySpec((3,), np.bool_), np.float32)


def test_bits_become_booleans():
    spec = BoundedArraySpec((3,), np.int64, 0, 1)

    assert ArraySpec((3,), np.bool_) == cast(spec, np.bool_)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_an_infinite_bound_stays_infinite_in_other_floats(dtype):
    """The largest number of a dtype stands for infinity."""
    spec = BoundedArraySpec((), np.float32, 0.0, np.inf)

    assert BoundedArraySpec((), dtype, 0.0, np.inf) == cast(spec, dtype)


def test_fractions_of_bounds_are_cut_off_as_those_of_values_are():
    spec = BoundedArraySpec((), np.float32, -1.5, 2.5)

    assert BoundedArraySpec((), np.int8, -1, 2) == cast(spec, np.int8)


def test_nothing_is_known_of_text():
    assert known_bounds(ArraySpec((), "<U3")) is None


@given(strategies.specs("biuf"), st.data())
def test_what_fits_a_spec_fits_when_both_are_reshaped(spec, data):
    value = data.draw(strategies.values(spec))
    shape = (value.size,)

    assert check_arrays_nest(value.reshape(shape), reshaped_spec(spec, shape))
