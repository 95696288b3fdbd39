from __future__ import annotations

import copy
import decimal
import fractions
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import specs
from envkit.specs import (
    ArraySpec,
    BoundedArraySpec,
    array_spec,
    is_bounded,
    is_continuous,
    is_discrete,
    update_spec_shape,
)
from tests import strategies

SOME_SPEC = ArraySpec((2,), np.float32, name="position")
SOME_BOUNDS = BoundedArraySpec((2,), np.int32, [0, 1], 9, name="move")


def clone_by_pickle(spec: ArraySpec) -> ArraySpec:
    return pickle.loads(pickle.dumps(spec))


# ArraySpec: making one.


@pytest.mark.parametrize(
    "shape", [(2, 3), [2, 3], np.array([2, 3]), range(2, 4), iter((2, np.int8(3)))]
)
def test_a_shape_becomes_a_tuple_of_integers(shape):
    spec = ArraySpec(shape, np.float32)
    assert (2, 3) == spec.shape
    assert {int} == {type(size) for size in spec.shape}


@pytest.mark.parametrize("dtype", ["float32", "f4", np.float32, np.dtype(np.float32)])
def test_a_dtype_becomes_a_numpy_dtype(dtype):
    spec = ArraySpec((), dtype)
    assert np.dtype(np.float32) == spec.dtype
    assert isinstance(spec.dtype, np.dtype)


NO_SHAPE = "A shape is an iterable of integers such as (84, 84, 3), not {}."


@pytest.mark.parametrize(
    ("shape", "kind", "message"),
    [
        (3, TypeError, NO_SHAPE.format(3) + " For a vector write (3,)."),
        (None, TypeError, NO_SHAPE.format(None)),
        ("ab", TypeError, NO_SHAPE.format("'ab'")),
        ((2.0,), TypeError, NO_SHAPE.format("(2.0,)")),
        ((None, 2), TypeError, NO_SHAPE.format("(None, 2)")),
        ((2, -1), ValueError, "A shape has no negative sizes, and (2, -1) has."),
    ],
)
def test_an_invalid_shape_is_refused(message_of, shape, kind, message):
    assert message == message_of(kind, lambda: ArraySpec(shape, np.float32))


# ArraySpec: what it is afterwards.


@pytest.mark.parametrize("spec", [SOME_SPEC, SOME_BOUNDS], ids=["plain", "bounded"])
@pytest.mark.parametrize("attribute", ["shape", "dtype", "name", "_shape", "new"])
def test_a_spec_is_immutable(message_of, spec, attribute):
    raised = message_of(AttributeError, lambda: setattr(spec, attribute, "x"))
    assert (
        f"{type(spec).__name__} is immutable; to change {attribute!r}, make another "
        "spec with replace()."
    ) == raised
    assert f"{type(spec).__name__} is immutable." == (
        message_of(AttributeError, lambda: delattr(spec, attribute))
    )


@pytest.mark.parametrize("spec", [SOME_SPEC, SOME_BOUNDS], ids=["plain", "bounded"])
def test_a_spec_has_no_hash(spec):
    with pytest.raises(TypeError, match="unhashable type"):
        hash(spec)


@pytest.mark.parametrize("clone", [clone_by_pickle, copy.copy, copy.deepcopy])
@settings(max_examples=20)
@given(spec=strategies.specs(any_byte_order=True))
def test_a_copy_of_a_spec_is_equal_to_it(clone, spec):
    copied = clone(spec)

    assert spec == copied
    assert (type(spec), spec.name, repr(spec)) == (
        type(copied),
        copied.name,
        repr(copied),
    )
    if is_bounded(spec):
        assert not copied.minimum.flags.writeable
        assert not copied.maximum.flags.writeable


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ArraySpec((), np.int64), "ArraySpec(shape=(), dtype=int64)"),
        (SOME_SPEC, "ArraySpec(shape=(2,), dtype=float32, name='position')"),
        (ArraySpec((), ">f4", name=""), "ArraySpec(shape=(), dtype=>f4, name='')"),
        (
            SOME_BOUNDS,
            "BoundedArraySpec(shape=(2,), dtype=int32, minimum=[0, 1], maximum=9, "
            "name='move')",
        ),
        (
            BoundedArraySpec((3,), np.uint8, [0, 0, 0], [9, 9, 9]),
            "BoundedArraySpec(shape=(3,), dtype=uint8, minimum=0, maximum=9)",
        ),
        (
            BoundedArraySpec((100,), np.int64, np.arange(100), 500),
            "BoundedArraySpec(shape=(100,), dtype=int64, minimum=[0 … 99], "
            "maximum=500)",
        ),
        (
            BoundedArraySpec((0,), np.int64, [], 5),
            "BoundedArraySpec(shape=(0,), dtype=int64, minimum=[], maximum=5)",
        ),
        (
            BoundedArraySpec((2,), np.float32, [-0.1, 0.7], np.inf),
            "BoundedArraySpec(shape=(2,), dtype=float32, minimum=[-0.1, 0.7], "
            "maximum=3.4028235e+38)",
        ),
    ],
)
def test_the_repr_is_one_line(spec, text):
    assert text == repr(spec)


# ArraySpec: equality.


@given(spec=strategies.specs())
def test_specs_are_equal_under_different_names(spec):
    renamed = spec.replace(name="another name")
    assert spec == renamed
    assert (spec != renamed) is False


@settings(max_examples=20)
@given(first=strategies.specs(), second=strategies.specs())
def test_equal_specs_accept_the_same_values(first, second):
    value = strategies.value_of(first, seed=0)
    assert first != second or second.check_array(value)


@pytest.mark.parametrize(
    "other",
    [
        SOME_SPEC.replace(shape=(3,)),
        SOME_SPEC.replace(shape=(2, 1)),
        SOME_SPEC.replace(dtype=np.float64),
        SOME_SPEC.replace(dtype=">f4"),
        None,
        (),
        "position",
        np.zeros(2, np.float32),
    ],
    ids=repr,
)
def test_specs_of_other_shape_dtype_or_kind_differ(other):
    assert (SOME_SPEC == other) is False
    assert (SOME_SPEC != other) is True


def test_a_bounded_spec_differs_from_a_plain_one_in_both_directions():
    plain = ArraySpec((), np.float32)
    bounded = BoundedArraySpec((), np.float32)
    assert (False, False) == (plain == bounded, bounded == plain)
    assert (True, True) == (plain != bounded, bounded != plain)


def test_bounds_are_compared_element_by_element():
    scalar = BoundedArraySpec((2,), np.int32, 0, 9)
    assert scalar == BoundedArraySpec((2,), np.int32, [0, 0], [9, 9])
    assert scalar != BoundedArraySpec((2,), np.int32, [0, 1], 9)
    assert scalar != BoundedArraySpec((2,), np.int32, 0, [9, 8])
    assert scalar != BoundedArraySpec((3,), np.int32, 0, 9)


def test_empty_specs_ignore_their_bounds_in_comparisons():
    assert BoundedArraySpec((0,), np.int8, 0, 1) == BoundedArraySpec(
        (0,), np.int8, 2, 3
    )


# ArraySpec: checking arrays.


@given(data=st.data(), spec=strategies.specs(any_byte_order=True))
def test_an_array_of_the_specs_shape_and_dtype_within_its_bounds_fits(data, spec):
    assert spec.check_array(data.draw(strategies.values(spec))) is True


@pytest.mark.parametrize(
    ("array", "fits"),
    [
        (np.zeros(2, np.float32), True),
        (np.zeros((2, 2), np.float32)[:, 0], True),
        (np.zeros(2, np.float64), False),
        (np.zeros(2, ">f4"), False),
        (np.zeros(3, np.float32), False),
        (np.zeros((2, 1), np.float32), False),
        (np.zeros((), np.float32), False),
        (np.float32(0), False),
        (0.0, False),
        ([0.0, 0.0], False),
        ((0.0, 0.0), False),
        ({}, False),
        ("ab", False),
        (None, False),
        (ArraySpec((2,), np.float32), False),
    ],
)
def test_arrays_of_other_shapes_or_dtypes_do_not_fit(array, fits):
    assert SOME_SPEC.check_array(array) is fits


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (5, np.int64),
        (5.0, np.float64),
        (5j, np.complex128),
        (True, np.bool_),
        (np.int8(5), np.int8),
        (np.float32(5), np.float32),
    ],
)
def test_a_number_fits_a_scalar_of_its_own_dtype(number, dtype):
    assert ArraySpec((), dtype).check_array(number) is True
    assert ArraySpec((1,), dtype).check_array(number) is False
    assert ArraySpec((), np.uint16).check_array(number) is False


@pytest.mark.parametrize(
    "value", ["5", b"5", [5], (), np.bool_(True), decimal.Decimal(5)]
)
@pytest.mark.parametrize("dtype", ["<U1", "S1", np.int64, np.bool_, np.float64, object])
def test_numbers_of_other_dtypes_do_not_fit_a_scalar(value, dtype):
    assert ArraySpec((), dtype).check_array(value) is False


# ArraySpec: other ways to make one.


@given(data=st.data(), spec=strategies.specs(any_byte_order=True))
def test_an_array_fits_the_spec_made_from_it(data, spec):
    array = data.draw(strategies.values(spec))
    made = ArraySpec.from_array(array, name="made")
    assert made.check_array(array)
    assert (ArraySpec(spec.shape, spec.dtype), "made") == (made, made.name)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(5, np.int64), (5.0, np.float64), (True, np.bool_), (np.uint8(5), np.uint8)],
)
def test_from_array_makes_a_scalar_spec_from_a_number(number, dtype):
    assert ArraySpec((), dtype) == ArraySpec.from_array(number)


@pytest.mark.parametrize(
    "value", [[1, 2], "abc", None, decimal.Decimal(5), fractions.Fraction(5, 3)]
)
def test_from_array_refuses_other_values(message_of, value):
    raised = message_of(ValueError, lambda: ArraySpec.from_array(value))
    assert (
        f"ArraySpec.from_array() needs an array or a number, not {value!r} of type "
        f"{type(value).__name__}."
    ) == raised


def test_a_plain_copy_of_a_bounded_spec_has_no_bounds():
    copied = ArraySpec.from_spec(SOME_BOUNDS)
    assert (ArraySpec, ArraySpec((2,), np.int32), "move") == (
        type(copied),
        copied,
        copied.name,
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ArraySpec((2,), np.float32, "position")),
        ({"shape": [3, 4]}, ArraySpec((3, 4), np.float32, "position")),
        ({"shape": ()}, ArraySpec((), np.float32, "position")),
        ({"dtype": "int8"}, ArraySpec((2,), np.int8, "position")),
        ({"name": "speed"}, ArraySpec((2,), np.float32, "speed")),
        ({"name": None}, ArraySpec((2,), np.float32, "position")),
    ],
)
def test_replace_changes_the_given_attributes_only(changes, expected):
    replaced = SOME_SPEC.replace(**changes)
    assert (expected, expected.name) == (replaced, replaced.name)


# BoundedArraySpec: its bounds.


@pytest.mark.parametrize("dtype", strategies.INTEGERS)
def test_integers_without_bounds_have_the_limits_of_their_dtype(dtype):
    spec = BoundedArraySpec((2,), dtype)
    info = np.iinfo(dtype)
    assert (info.min, info.max) == (spec.minimum, spec.maximum)
    assert np.dtype(dtype) == spec.minimum.dtype == spec.maximum.dtype


@pytest.mark.parametrize("dtype", [*strategies.FLOATS, ">f4"])
@pytest.mark.parametrize(
    "infinity", [None, np.inf, [np.inf, np.inf], np.array([np.inf, np.inf], np.float32)]
)
def test_infinite_bounds_become_the_largest_finite_numbers(dtype, infinity):
    low = None if infinity is None else np.negative(infinity)
    spec = BoundedArraySpec((2,), dtype, low, infinity)
    info = np.finfo(dtype)
    assert (spec.minimum == info.min).all()
    assert (spec.maximum == info.max).all()


def test_finite_bounds_beside_infinite_ones_are_kept():
    spec = BoundedArraySpec((2,), np.float64, [-np.inf, 0.5], [1.5, np.inf])
    info = np.finfo(np.float64)
    assert ([info.min, 0.5], [1.5, info.max]) == (
        spec.minimum.tolist(),
        spec.maximum.tolist(),
    )


def test_bounds_keep_their_shape():
    spec = BoundedArraySpec((2, 3), np.int16, [[0], [1]], [7, 8, 9])
    assert ([[0], [1]], [7, 8, 9]) == (spec.minimum.tolist(), spec.maximum.tolist())
    assert np.dtype(np.int16) == spec.minimum.dtype == spec.maximum.dtype


def test_bounds_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        SOME_BOUNDS.minimum[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        SOME_BOUNDS.maximum[()] = 5


def test_bounds_are_copied():
    low = np.zeros(2, np.float32)
    spec = BoundedArraySpec((2,), np.float32, low, 1.0)
    low[0] = 0.5
    assert [0.0, 0.0] == spec.minimum.tolist()


def test_bounds_of_an_integer_spec_lose_their_fractions():
    spec = BoundedArraySpec((2,), np.int32, [-1.6, 0.2], 7.9)
    assert ([-1, 0], 7) == (spec.minimum.tolist(), spec.maximum)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (np.uint64, 0, 2**64 - 1),
        (np.int64, -(2**63), 2**63 - 1),
        (np.uint64, [0, 3], [2**64 - 1, 7]),
        (np.int64, [-(2**63), 2**62 + 1], [2**63 - 1, 2**62 + 1]),
    ],
)
def test_bounds_of_64_bits_are_exact(dtype, low, high):
    spec = BoundedArraySpec((2,), dtype, low, high)
    assert (low, high) == (spec.minimum.tolist(), spec.maximum.tolist())


def test_a_bound_may_be_the_largest_number_rounded_in_decimal():
    """In decimals it is a little more than the number; nearest to it all the same."""
    limit = float(str(np.finfo(np.float32).max))
    spec = BoundedArraySpec((), np.float32, -limit, limit)
    assert BoundedArraySpec((), np.float32) == spec


def test_booleans_and_other_number_types_are_accepted_as_bounds():
    assert BoundedArraySpec((), np.int8, 0, 1) == BoundedArraySpec(
        (), np.int8, False, np.array(True)
    )


@pytest.mark.parametrize(
    ("bound", "stored"),
    [(fractions.Fraction(1, 4), 0.25), (2**70, 2.0**70), ([2**70, -1], [2.0**70, -1])],
)
def test_numbers_without_a_numpy_dtype_are_accepted_as_float_bounds(bound, stored):
    spec = BoundedArraySpec((2,), np.float64, -2, bound)
    assert stored == spec.maximum.tolist()


def test_a_nan_bound_is_accepted_and_contains_nothing():
    spec = BoundedArraySpec((2,), np.float32, [np.nan, 0.0], 1.0)
    assert spec == BoundedArraySpec((2,), np.float32, [np.nan, 0.0], 1.0)
    assert spec.check_array(np.zeros(2, np.float32)) is False


NO_BROADCAST = (
    "{} is not compatible with shape (2,): its own shape is {}, which does not "
    "broadcast to it."
)
CROSSED = "BoundedArraySpec min has values greater than max: minimum {} is above {}."
NO_UINT8 = "{} is not within the range of uint8: {} is not between 0 and 255."


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([0, 1, 2], 9, NO_BROADCAST.format("minimum", "(3,)")),
        (0, [[9, 9]], NO_BROADCAST.format("maximum", "(1, 2)")),
        ([0, 5], [3, 4], CROSSED.format(5, "maximum 4")),
        # Also where they are equal without their fractions.
        (0.9, 0.2, CROSSED.format(0.9, "maximum 0.2")),
        (-1, 4, NO_UINT8.format("minimum", -1)),
        (0, [4, 256], NO_UINT8.format("maximum", 256)),
        (-np.inf, 4, NO_UINT8.format("minimum", "-inf")),
        (0, 2**64, NO_UINT8.format("maximum", 2**64)),
        (np.nan, 4, NO_UINT8.format("minimum", "nan")),
    ],
)
def test_invalid_bounds_are_refused(message_of, low, high, message):
    raised = message_of(ValueError, lambda: BoundedArraySpec((2,), np.uint8, low, high))
    assert message == raised


@pytest.mark.parametrize(
    ("dtype", "bound", "limits"),
    [
        (np.float16, 1e6, f"{np.finfo('f2').min!s} and {np.finfo('f2').max!s}"),
        (np.float32, 1e300, "-3.4028235e+38 and 3.4028235e+38"),
        (np.int8, 128.0, "-128 and 127"),
        (np.int64, 2.0**63, "-9223372036854775808 and 9223372036854775807"),
        (np.int64, np.array(2.0**63), "-9223372036854775808 and 9223372036854775807"),
        (np.uint64, 2**64, "0 and 18446744073709551615"),
        (np.uint64, np.float64(2.0**64), "0 and 18446744073709551615"),
    ],
)
def test_a_bound_that_the_dtype_cannot_hold_is_refused(
    message_of, dtype, bound, limits
):
    raised = message_of(ValueError, lambda: BoundedArraySpec((), dtype, 0, bound))
    assert (
        f"maximum is not within the range of {np.dtype(dtype)}: {bound} is not between "
        f"{limits}."
    ) == raised


@pytest.mark.parametrize("dtype", strategies.FLOATS)
def test_a_bound_that_no_float_can_hold_is_refused(dtype):
    with pytest.raises(ValueError, match=f"maximum is not within the range of {dtype}"):
        BoundedArraySpec((), dtype, 0, 10**400)


@pytest.mark.parametrize(
    ("bound", "shown"),
    [
        ("a", "'a'"),
        (1j, "1j"),
        ([None, 1], "[None, 1]"),
        ([[1], [1, 2]], "[[1], [1, 2]]"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_a_bound_other_than_a_number_is_refused(message_of, bound, shown, dtype):
    raised = message_of(TypeError, lambda: BoundedArraySpec((2,), dtype, bound, 5))
    assert f"minimum must be numbers, not {shown}." == raised


@pytest.mark.parametrize("dtype", ["bool", "<U3", "complex64", "datetime64[s]"])
def test_specs_of_other_dtypes_cannot_have_bounds(message_of, dtype):
    raised = message_of(TypeError, lambda: BoundedArraySpec((), dtype))
    assert (
        f"BoundedArraySpec needs an integer or floating dtype, not {dtype}: only "
        "numbers have bounds. Use ArraySpec for it."
    ) == raised


# BoundedArraySpec: what follows from the bounds.


@pytest.mark.parametrize(
    ("array", "fits"),
    [
        ([0, 1], True),
        ([9, 9], True),
        ([5, 5], True),
        ([-1, 5], False),
        ([5, 0], False),
        ([5, 10], False),
    ],
)
def test_both_bounds_are_inclusive(array, fits):
    assert SOME_BOUNDS.check_array(np.array(array, np.int32)) is fits


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_within_no_bounds(value):
    assert BoundedArraySpec((), np.float64, 0, 5).check_array(6.0) is False
    assert BoundedArraySpec((), np.float64).check_array(value) is False
    assert ArraySpec((), np.float64).check_array(value) is True


def test_a_number_beyond_its_dtype_does_not_fit():
    assert BoundedArraySpec((), np.int64).check_array(2**70) is False
    assert ArraySpec((), np.int64).check_array(2**70) is False
    assert ArraySpec((), np.int64).check_array(-(2**63) - 1) is False
    assert ArraySpec((), np.int64).check_array(-(2**63)) is True


def test_a_large_integer_is_checked_as_uint64():
    """Above the largest int64, and nowhere else: NumPy decides by the value."""
    assert np.dtype(np.uint64) == np.asarray(2**63).dtype
    assert ArraySpec((), np.uint64) == ArraySpec.from_array(2**63)
    assert ArraySpec((), np.uint64).check_array(2**63) is True
    assert ArraySpec((), np.uint64).check_array(5) is False


@settings(max_examples=20)
@given(spec=strategies.bounded_specs("iu"))
def test_num_values_counts_the_values_of_each_element(spec):
    low = np.broadcast_to(spec.minimum, spec.shape).ravel().tolist()
    high = np.broadcast_to(spec.maximum, spec.shape).ravel().tolist()
    assert spec.shape == spec.num_values.shape
    assert [top - bottom + 1 for bottom, top in zip(low, high, strict=True)] == (
        spec.num_values.ravel().tolist()
    )


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", ">i2"])
def test_num_values_is_int64_unless_it_overflows(dtype):
    num_values = BoundedArraySpec((2,), dtype, 0, [1, 4]).num_values
    assert (np.dtype(np.int64), [2, 5]) == (num_values.dtype, num_values.tolist())


def test_num_values_of_real_numbers_is_none():
    assert BoundedArraySpec((), np.float32, 0, 1).num_values is None


def test_a_bounded_copy_keeps_existing_bounds():
    bounded = BoundedArraySpec.from_spec(SOME_SPEC)
    copied = BoundedArraySpec.from_spec(SOME_BOUNDS)
    renamed = BoundedArraySpec.from_spec(SOME_BOUNDS, name="other")
    assert (BoundedArraySpec((2,), np.float32), "position") == (bounded, bounded.name)
    assert (SOME_BOUNDS, "move") == (copied, copied.name)
    assert (SOME_BOUNDS, "other") == (renamed, renamed.name)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, SOME_BOUNDS),
        ({"minimum": 2}, BoundedArraySpec((2,), np.int32, 2, 9, "move")),
        ({"maximum": [5, 6]}, BoundedArraySpec((2,), np.int32, [0, 1], [5, 6], "move")),
        ({"dtype": "float32"}, BoundedArraySpec((2,), "float32", [0, 1], 9, "move")),
        ({"shape": (3, 2)}, BoundedArraySpec((3, 2), np.int32, [0, 1], 9, "move")),
        ({"name": "turn"}, BoundedArraySpec((2,), np.int32, [0, 1], 9, "turn")),
        (
            {"minimum": 0, "maximum": 0, "name": None},
            BoundedArraySpec((2,), np.int32, 0, 0, "move"),
        ),
    ],
)
def test_replace_keeps_other_bounds(changes, expected):
    replaced = SOME_BOUNDS.replace(**changes)
    assert (expected, expected.name) == (replaced, replaced.name)


def test_a_bounded_spec_takes_arguments_in_tf_agents_order():
    spec = BoundedArraySpec((2,), np.int32, 0, 9, "move")
    assert (0, 9, "move") == (spec.minimum, spec.maximum, spec.name)
    assert spec == SOME_BOUNDS.replace((2,), np.int32, 0, 9, "move")


# What kind of spec it is.


@pytest.mark.parametrize(
    ("spec", "bounded", "discrete", "continuous"),
    [
        (ArraySpec((), np.int8), False, True, False),
        (ArraySpec((), ">u2"), False, True, False),
        (ArraySpec((), np.float16), False, False, True),
        (ArraySpec((), np.bool_), False, False, False),
        (ArraySpec((), "<U3"), False, False, False),
        (ArraySpec((), np.complex64), False, False, False),
        (BoundedArraySpec((), np.int8), True, True, False),
        (BoundedArraySpec((), np.float64), True, False, True),
    ],
)
def test_a_spec_is_bounded_discrete_or_continuous(spec, bounded, discrete, continuous):
    assert is_bounded(spec) is bounded
    assert is_discrete(spec) is discrete
    assert is_continuous(spec) is continuous
    assert is_bounded(None) is False


@pytest.mark.parametrize(
    ("dtype", "discrete", "continuous"),
    [
        (np.dtype(np.int8), True, False),
        (np.dtype(np.float64), False, True),
        ("int32", True, False),
        ("bool", False, False),
        (np.int8, True, False),
        (np.float32, False, True),
        (float, False, True),
    ],
)
def test_a_dtype_is_discrete_or_continuous(dtype, discrete, continuous):
    assert is_discrete(dtype) is discrete
    assert is_continuous(dtype) is continuous


def test_a_shape_can_be_updated():
    spec = update_spec_shape(SOME_BOUNDS, (4, 2))
    assert (BoundedArraySpec((4, 2), np.int32, [0, 1], 9), "move") == (spec, spec.name)


# The module.


@pytest.mark.parametrize(
    "name", ["EnvironmentSpec", "check_fits", "explain", "array_spec"]
)
def test_names_unknown_to_tf_agents_are_not_in_array_spec(name):
    assert name in specs.__all__
    assert name not in array_spec.__all__


def test_array_spec_has_the_functions_of_tf_agents():
    found: dict[str, Any] = {
        name: getattr(array_spec, name) for name in array_spec.__all__
    }
    assert {name: getattr(specs, name) for name in array_spec.__all__} == found
