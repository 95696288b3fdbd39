from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.specs import (
    ArraySpec,
    BoundedArraySpec,
    add_outer_dims_nest,
    check_arrays_nest,
    explain,
    sample_bounded_spec,
    sample_spec_nest,
)
from tests import strategies

NUMERIC = [*strategies.INTEGERS, *strategies.FLOATS, ">i2", ">u8", ">f4", "<f8"]


def octants(sample: np.ndarray, spec: BoundedArraySpec) -> list[int]:
    """Counts the elements in each eighth of a spec's range."""
    low, high = int(spec.minimum), int(spec.maximum)
    # Python's integers, because the width of a range is beyond its own dtype.
    places = [(int(value) - low) * 8 // (high - low + 1) for value in sample.ravel()]
    return [places.count(octant) for octant in range(8)]


@settings(max_examples=20)
@given(
    spec=strategies.spec_nests(strategies.specs(any_byte_order=True)),
    dims=strategies.outer_dims(),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_sample_fits_its_spec(make_rng, spec, dims, seed):
    sample = sample_spec_nest(spec, make_rng(seed), outer_dims=dims)
    assert explain(sample, spec, outer_dims=dims) is None
    assert check_arrays_nest(sample, add_outer_dims_nest(spec, dims))


@settings(max_examples=20)
@given(spec=strategies.spec_nests(), seed=st.integers(0, 2**32 - 1))
def test_equal_seeds_give_equal_samples(make_rng, spec, seed):
    first = sample_spec_nest(spec, make_rng(seed), (2,))
    second = sample_spec_nest(spec, make_rng(seed), (2,))
    np.testing.assert_equal(first, second)


def test_a_sample_does_not_depend_on_the_order_of_keys(make_rng):
    spec = {"b": ArraySpec((3,), np.int64), "a": ArraySpec((), np.float32)}
    turned = {key: spec[key] for key in sorted(spec)}
    assert list(spec) != list(turned)
    np.testing.assert_equal(
        sample_spec_nest(spec, make_rng(0)), sample_spec_nest(turned, make_rng(0))
    )


@settings(max_examples=20)
@given(spec=strategies.bounded_specs(any_byte_order=True), dims=strategies.outer_dims())
def test_a_bounded_sample_is_an_array_of_the_specs_dtype(make_rng, spec, dims):
    sample = sample_bounded_spec(spec, make_rng(0), dims)
    assert type(sample) is np.ndarray
    assert ((*dims, *spec.shape), spec.dtype) == (sample.shape, sample.dtype)


@pytest.mark.parametrize("dtype", [*strategies.INTEGERS, ">i2", ">u8"])
def test_integers_without_bounds_are_drawn_evenly_over_their_dtype(make_rng, dtype):
    sample = sample_spec_nest(ArraySpec((500,), dtype), make_rng(0), outer_dims=(4,))
    counts = octants(sample, BoundedArraySpec((), dtype))
    assert all(180 < count < 320 for count in counts), counts


@pytest.mark.parametrize("dtype", [*strategies.FLOATS, ">f4", "longdouble"])
def test_floats_without_bounds_are_drawn_evenly_over_their_dtype(make_rng, dtype):
    sample = sample_spec_nest(ArraySpec((500,), dtype), make_rng(0), outer_dims=(4,))
    largest = np.finfo(dtype).max
    counts, _ = np.histogram(sample / largest, bins=8, range=(-1, 1))
    assert np.isfinite(sample).all()
    assert all(180 < count < 320 for count in counts), counts


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (np.uint64, 2**63 - 4, 2**63 + 4),
        (np.int64, -5, 2**63 - 1),
        (np.int64, -(2**63), -(2**63) + 7),
        (np.uint64, 2**64 - 8, 2**64 - 1),
        (np.int8, -128, 127),
        (np.uint8, 0, 255),
        (">i4", -3, 3),
    ],
)
def test_integers_reach_both_bounds(make_rng, dtype, low, high):
    spec = BoundedArraySpec((), dtype, low, high)
    sample = sample_bounded_spec(spec, make_rng(0), outer_dims=(3000,))
    reached = {int(value) for value in sample}
    if high - low < 300:
        assert set(range(low, high + 1)) == reached
    assert low <= min(reached)
    assert max(reached) <= high


@pytest.mark.parametrize("dtype", NUMERIC)
def test_equal_bounds_allow_one_value_only(make_rng, dtype):
    spec = BoundedArraySpec((2,), dtype, [1, 7], [1, 7])
    sample = sample_bounded_spec(spec, make_rng(0), outer_dims=(50,))
    assert [[1, 7]] * 50 == sample.tolist()
    assert sample.flags.writeable


@pytest.mark.parametrize("dtype", [*strategies.FLOATS, ">f4"])
def test_rounding_stays_within_bounds(make_rng, dtype):
    """Of bounds that are next to each other, what lies between is rounded to one."""
    low = np.array([1 / 3, 2 / 3, -1 / 3, 1e4 / 3], dtype)
    high = np.nextafter(low, np.array(np.inf, low.dtype.newbyteorder("=")))
    narrow = BoundedArraySpec((4,), dtype, low, high)
    none = BoundedArraySpec((4,), dtype, low, low)
    assert narrow.check_array(sample_bounded_spec(narrow, make_rng(0)))
    for seed in range(50):
        assert low.tolist() == sample_bounded_spec(none, make_rng(seed)).tolist()


@pytest.mark.parametrize("dtype", NUMERIC)
def test_each_element_is_drawn_from_its_own_bounds(make_rng, dtype):
    spec = BoundedArraySpec((3,), dtype, [0, 10, 100], [9, 99, 100])
    sample = sample_bounded_spec(spec, make_rng(0), outer_dims=(300,))
    low, high = sample.min(axis=0), sample.max(axis=0)
    assert (low >= [0, 10, 100]).all()
    assert (low <= [1, 12, 100]).all()
    assert (high >= [8, 96, 100]).all()
    assert (high <= [9, 99, 100]).all()


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_bounded_and_unbounded_elements_mix(make_rng, dtype):
    info = np.iinfo(dtype)
    spec = BoundedArraySpec((2,), dtype, [info.min, 3], [info.max, 5])
    sample = sample_bounded_spec(spec, make_rng(0), outer_dims=(400,))
    counts = octants(sample[:, 0], BoundedArraySpec((), dtype))
    assert all(counts), counts
    assert {3, 4, 5} == set(sample[:, 1].tolist())


def test_booleans_are_drawn_evenly(make_rng):
    sample = sample_spec_nest(ArraySpec((1000,), np.bool_), make_rng(0))
    assert np.dtype(np.bool_) == sample.dtype
    assert 400 < int(sample.sum()) < 600


@pytest.mark.parametrize(
    ("dtype", "digits"),
    [("<U3", "0123456789"), (">U3", "0123456789"), ("S3", b"0123456789")],
)
def test_text_without_letters_is_drawn_from_digits(make_rng, dtype, digits):
    sample = sample_spec_nest(ArraySpec((100,), dtype), make_rng(0))
    assert np.dtype(dtype) == sample.dtype
    assert {3} == {len(text) for text in sample.tolist()}
    assert set(digits) == {sign for text in sample.tolist() for sign in text}


def test_consecutive_samples_differ(make_rng):
    rng = make_rng(0)
    spec = ArraySpec((4,), np.float64)
    assert (sample_spec_nest(spec, rng) != sample_spec_nest(spec, rng)).all()


def test_sampling_leaves_numpys_global_generator_alone(make_rng):
    before = copy.deepcopy(np.random.get_state())  # noqa: NPY002 - it is the subject
    sample_spec_nest(
        {"a": ArraySpec((3,), float), "b": ArraySpec((), "U3")}, make_rng(0)
    )
    np.testing.assert_equal(before, np.random.get_state())  # noqa: NPY002 - likewise


@pytest.mark.parametrize("dims", [(2, 3), [2, 3], np.array([2, 3])])
def test_outer_dims_come_first(make_rng, dims):
    sample = sample_spec_nest({"a": ArraySpec((4,), np.int8)}, make_rng(0), dims)
    assert (2, 3, 4) == sample["a"].shape


def test_a_nest_without_specs_is_its_own_sample(make_rng):
    assert {"a": (), "b": []} == sample_spec_nest({"a": (), "b": []}, make_rng(0))


BYTE = BoundedArraySpec((2,), np.int8, 3, 3)
NO_SOURCE = (
    "rng is {}; sampling needs a numpy.random.Generator, such as "
    "numpy.random.default_rng(seed), or a numpy.random.RandomState."
)
NO_SPEC = "Cannot sample {}: it is not an ArraySpec."
NO_BOUNDS = (
    "sample_bounded_spec() needs a BoundedArraySpec, not {!r}; sample_spec_nest() "
    "samples every spec."
)


@pytest.mark.parametrize(
    ("rng", "kind"), [(3, "an int"), (None, "None"), (np.random, "a module")]
)
@pytest.mark.parametrize("sample", [sample_bounded_spec, sample_spec_nest])
def test_sampling_needs_a_random_source(message_of, sample, rng, kind):
    assert NO_SOURCE.format(kind) == message_of(TypeError, lambda: sample(BYTE, rng))


@pytest.mark.parametrize(
    ("sample", "spec", "message"),
    [
        (sample_spec_nest, {"a": 3}, NO_SPEC.format(3)),
        (sample_spec_nest, {"a": None}, NO_SPEC.format(None)),
        (
            sample_spec_nest,
            {"a": np.float32},
            NO_SPEC.format("<class 'numpy.float32'>"),
        ),
        *(
            (
                sample_spec_nest,
                ArraySpec((), dtype),
                f"Cannot sample {ArraySpec((), dtype)}: no random value is defined for "
                f"{np.dtype(dtype)}.",
            )
            # No array has text without a width: NumPy gives it one character.
            for dtype in ("complex64", "datetime64[s]", "object", str, bytes)
        ),
        *(
            (sample_bounded_spec, spec, NO_BOUNDS.format(spec))
            for spec in (ArraySpec((), np.int8), 3)
        ),
    ],
)
def test_specs_that_cannot_be_sampled_are_refused(
    message_of, make_rng, sample, spec, message
):
    assert message == message_of(TypeError, lambda: sample(spec, make_rng(0)))


@pytest.mark.parametrize("sample", [sample_bounded_spec, sample_spec_nest])
@pytest.mark.parametrize(
    ("dims", "kind", "problem"),
    [
        (
            4,
            TypeError,
            r"^outer_dims is a sequence of sizes, not 4: for one dimension write "
            r"\(4,\)\.$",
        ),
        ((-1,), ValueError, "a size is an integer of at least 0"),
    ],
)
def test_outer_dims_must_be_a_sequence_of_sizes(make_rng, sample, dims, kind, problem):
    with pytest.raises(kind, match=problem):
        sample(BYTE, make_rng(0), outer_dims=dims)


MOVE = BoundedArraySpec((), np.int32, 3, 6)
PAIR = BoundedArraySpec((2,), np.int64, [0, 1], [2, 5])


def test_allowed_values_are_drawn_evenly(make_rng):
    mask = [True, False, True, True]
    drawn = sample_spec_nest(MOVE, make_rng(1), (3000,), mask=mask)
    values, counts = np.unique(drawn, return_counts=True)
    assert [3, 5, 6] == values.tolist()
    assert counts.min() > 850
    assert np.int32 == drawn.dtype


def test_each_row_has_its_own_mask(make_rng):
    sample = sample_spec_nest(MOVE, make_rng(1), (4,), mask=np.eye(4, dtype=bool))
    assert [3, 4, 5, 6] == sample.tolist()


@pytest.mark.parametrize(
    "mask",
    [
        ([1, 0, 0], [0, 0, 0, 0, 1]),
        np.array([[1, 0, 0, 1, 1], [0, 0, 0, 0, 1]], np.int8),
    ],
)
def test_each_element_has_its_own_mask(make_rng, mask):
    assert [0, 5] == sample_bounded_spec(PAIR, make_rng(1), mask=mask).tolist()
    rows = sample_bounded_spec(PAIR, make_rng(1), (2,), mask=mask)
    assert [[0, 5], [0, 5]] == rows.tolist()


def test_masks_by_element_have_the_form_of_gymnasium(make_rng):
    mask = (np.eye(3, dtype=bool)[[0, 2]], np.eye(5, dtype=bool)[[4, 1]])
    sample = sample_bounded_spec(PAIR, make_rng(1), (2,), mask=mask)
    assert [[0, 5], [2, 2]] == sample.tolist()


def test_none_in_a_nest_of_masks_allows_everything(make_rng):
    spec = {"move": MOVE, "pair": PAIR, "force": ArraySpec((), np.float32)}
    masks = {"move": [0, 1, 0, 0], "pair": None, "force": None}
    sample = sample_spec_nest(spec, make_rng(1), mask=masks)
    assert 4 == sample["move"]
    assert explain(sample, spec) is None


@pytest.mark.parametrize("dtype", ["i1", "u8", ">i8"])
def test_a_mask_may_cover_the_limits_of_a_dtype(make_rng, dtype):
    info = np.iinfo(np.dtype(dtype).newbyteorder("="))
    spec = BoundedArraySpec((), dtype, info.max - 2, info.max)
    low = BoundedArraySpec((), dtype, info.min, info.min + 2)
    assert info.max == sample_spec_nest(spec, make_rng(1), mask=[0, 0, 1])
    assert info.min == sample_spec_nest(low, make_rng(1), mask=[1, 0, 0])


@pytest.mark.parametrize(
    ("spec", "dims", "mask", "error", "message"),
    [
        (
            MOVE,
            (2,),
            [[1, 0, 0, 0], [0, 0, 0, 0]],
            ValueError,
            "The mask allows nothing in row 1: none of 4 choices is true. Where the "
            "action is not used, as after the end of an episode, let the mask be true "
            "everywhere.",
        ),
        (
            {"pair": PAIR},
            (),
            {"pair": ([1, 1, 1], [0] * 5)},
            ValueError,
            "The mask at ['pair'] allows nothing for element 1: none of 5 choices is "
            "true. Where the action is not used, as after the end of an episode, let "
            "the mask be true everywhere.",
        ),
        (
            MOVE,
            (2,),
            [True, False],
            ValueError,
            "The mask is a list of 2 elements; it must have one boolean for each "
            "choice, and the shape (2, 4), or (4,) for all rows.",
        ),
        (
            MOVE,
            (),
            [0.0, 1.0, 1.0, 1.0],
            ValueError,
            "The mask is a list of 4 elements; it must have one boolean for each "
            "choice, and the shape (4,).",
        ),
        (
            PAIR,
            (),
            ([1, 0], [1, 1, 1, 1, 1]),
            ValueError,
            "The mask has a list of 2 elements for element 0; it must have one boolean "
            "for each of 3 choices.",
        ),
        (
            {"move": MOVE, "pair": PAIR},
            (),
            {"move": None},
            ValueError,
            "The masks must have the same structure as the specs. Key 'pair' is "
            "missing.",
        ),
        (
            ArraySpec((), np.float32),
            (),
            [1, 0],
            TypeError,
            "There is a mask for ArraySpec(shape=(), dtype=float32); a mask must be "
            "for integers with bounds, which have choices to leave out.",
        ),
        (
            ArraySpec((), np.int32),
            (),
            [1, 0],
            TypeError,
            "There is a mask for ArraySpec(shape=(), dtype=int32); a mask must be for "
            "integers with bounds, which have choices to leave out.",
        ),
    ],
)
def test_a_mismatched_mask_is_refused(
    make_rng, message_of, spec, dims, mask, error, message
):
    assert message == message_of(
        error, lambda: sample_spec_nest(spec, make_rng(1), dims, mask=mask)
    )
