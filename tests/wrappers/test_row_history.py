"""Histories of rows, and the specs of arrays that are put together."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.specs.sampling import sample_spec_nest
from envkit.wrappers.history.row_history import (
    RowHistory,
    concatenated_spec,
    stacked_spec,
    with_zero,
)
from tests import strategies


def bounds_of(spec):
    """Returns both bounds, an element for each of the array."""
    return [
        np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)
    ]


def assert_equal_bounds(expected, spec):
    for ours, theirs in zip(expected, bounds_of(spec), strict=True):
        assert np.array_equal(ours, theirs)


@given(strategies.specs(any_byte_order=True))
def test_a_widened_spec_takes_zeros(spec):
    zeros = np.zeros(spec.shape, spec.dtype)

    assert with_zero(spec).check_array(zeros)


@given(strategies.specs(), st.integers(0, 9))
def test_a_widened_spec_takes_what_the_spec_takes(spec, seed):
    sample = sample_spec_nest(spec, np.random.default_rng(seed))

    assert with_zero(spec).check_array(sample)


@given(strategies.bounded_specs())
def test_bounds_are_not_widened_further_than_to_zero(spec):
    low, high = bounds_of(spec)
    zero = np.zeros((), spec.dtype)
    widened = [np.minimum(low, zero), np.maximum(high, zero)]

    assert_equal_bounds(widened, with_zero(spec))


def test_large_integers_keep_their_last_digits_when_bounds_are_widened():
    spec = BoundedArraySpec((), np.uint64, 2**64 - 7, 2**64 - 3)

    assert BoundedArraySpec((), np.uint64, 0, 2**64 - 3) == with_zero(spec)


@given(strategies.bounded_specs(), st.integers(1, 3), st.data())
def test_each_array_of_a_stack_keeps_its_bounds(spec, count, data):
    axis = data.draw(st.integers(0, len(spec.shape)))

    assert_equal_bounds(
        [np.stack([bound] * count, axis) for bound in bounds_of(spec)],
        stacked_spec(spec, count, axis),
    )


@given(
    strategies.bounded_specs(
        spec_shapes=strategies.shapes().filter(lambda shape: len(shape) > 0)
    ),
    st.integers(1, 3),
    st.data(),
)
def test_each_concatenated_array_keeps_its_bounds(spec, count, data):
    axis = data.draw(st.integers(0, len(spec.shape) - 1))

    assert_equal_bounds(
        [np.concatenate([bound] * count, axis) for bound in bounds_of(spec)],
        concatenated_spec(spec, count, axis),
    )


def test_specs_keep_their_names():
    spec = BoundedArraySpec((2,), np.float32, 1.0, 2.0, name="speed")

    assert ["speed"] * 3 == [
        with_zero(spec).name,
        stacked_spec(spec, 2, 0).name,
        concatenated_spec(spec, 2, 0).name,
    ]


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=12))
def test_rows_that_stay_keep_their_history_whoever_else_moves(schedule):
    history = RowHistory([ArraySpec((), np.int64)], 3, (5,))
    model = [[0, 0, 0] for _ in range(5)]
    for moment, mask in enumerate(schedule, 1):
        values = np.arange(5) + 10 * moment
        history.push([values], np.array(mask))
        for row in range(5):
            if mask[row]:
                model[row] = [*model[row][1:], int(values[row])]

        assert model == history.stacked([0])[0].tolist()
        assert [row[0] for row in model] == history.oldest()[0].tolist()


def test_objects_and_texts_are_kept_as_they_are():
    specs = [ArraySpec((), object), ArraySpec((), "<U3")]
    history = RowHistory(specs, 2, ())
    history.push([np.array({"a": 1}, object), np.array("abc")])
    history.clear(np.array([], int))

    assert [[0, {"a": 1}], ["", "abc"]] == [
        stack.tolist() for stack in history.stacked([0, 0])
    ]


def test_what_is_cleared_is_empty_text_rather_than_a_zero():
    history = RowHistory([ArraySpec((), "<U3")], 2, ())
    history.push([np.array("abc")])
    history.clear(slice(None))

    assert ["", ""] == history.stacked([0])[0].tolist()


def test_a_state_of_another_dtype_does_not_fit():
    history = RowHistory([ArraySpec((2,), np.int64)], 3, ())
    other = RowHistory([ArraySpec((2,), np.int32)], 3, ())

    assert history.fits(history.save())
    assert not history.fits(other.save())


def test_a_state_in_the_other_byte_order_is_brought_back_to_this_one():
    spec = ArraySpec((2,), ">f4")
    history = RowHistory([spec], 2, ())
    history.push([np.array([1.0, 2.0], ">f4")])
    saved = history.save()
    native = {**saved, "rings": [ring.astype("<f4") for ring in saved["rings"]]}
    other = RowHistory([spec], 2, ())

    assert other.fits(native)
    other.restore(native)
    (stack,) = other.stacked([0])
    assert np.dtype(">f4") == stack.dtype
    assert [[0.0, 0.0], [1.0, 2.0]] == stack.tolist()


@given(st.data())
def test_values_are_stacked_as_numpy_does_it_along_every_axis(data):
    shape = data.draw(st.lists(st.integers(0, 6), max_size=3).map(tuple))
    axis = data.draw(st.integers(0, len(shape)))
    length, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    history = RowHistory([ArraySpec(shape, np.int64)], length, (rows,))
    values = [
        np.arange(step, step + rows * math.prod(shape)).reshape(rows, *shape)
        for step in range(length + 2)
    ]
    for value in values:
        history.push([value])

    (stack,) = history.stacked([axis])

    expected = np.stack(values[-length:], 1 + axis)
    assert expected.shape == stack.shape
    assert np.array_equal(expected, stack)
