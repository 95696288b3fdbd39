"""Running statistics are those of all values at once, in whatever parts they come."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envkit.errors import SpecError
from envkit.wrappers.normalization.running_statistics import RunningStatistics

SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)
NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def batches(draw: st.DrawFn, count: int = 4) -> list[np.ndarray]:
    """Draws some batches of arrays of one shape; some may be empty."""
    shape = draw(SHAPES)
    sizes = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    return [
        draw(hnp.arrays(np.float64, (size, *shape), elements=NUMBERS)) for size in sizes
    ]


def counted(*values: object, shape: tuple[int, ...] = ()) -> RunningStatistics:
    statistics = RunningStatistics(shape)
    for value in values:
        statistics.update(value)
    return statistics


def assert_are_of(values: np.ndarray, statistics: RunningStatistics) -> None:
    """Compares with NumPy, which looks at everything at once, in float64."""
    assert len(values) == statistics.count
    if not len(values):
        return
    # Of numbers up to 1e6 the mean has 10 digits behind the point, and their squares
    # have none.
    np.testing.assert_allclose(statistics.mean, values.mean(0), 1e-12, 1e-9)
    np.testing.assert_allclose(statistics.variance, values.var(0), 1e-9, 1e-9)


@given(batches())
def test_batch_by_batch_is_the_same_as_all_at_once(parts):
    statistics = counted(*parts, shape=parts[0].shape[1:])

    assert_are_of(np.concatenate(parts), statistics)


@given(batches())
def test_merging_is_the_same_as_having_counted_everything(parts):
    shape = parts[0].shape[1:]
    merged = RunningStatistics(shape)
    for part in parts:
        merged.merge(counted(part, shape=shape))

    assert_are_of(np.concatenate(parts), merged)


@given(
    hnp.arrays(np.float64, (2,), elements=st.floats(-1e150, 1e150)),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_what_is_always_the_same_has_a_variance_of_exactly_0(value, sizes):
    statistics = counted(*(np.tile(value, (size, 1)) for size in sizes), shape=(2,))

    assert value.tolist() == statistics.mean.tolist()
    assert [0.0, 0.0] == statistics.variance.tolist()


def test_a_small_spread_of_large_numbers_keeps_its_digits():
    numbers = 1e9 + np.array([4.0, 7.0, 13.0, 16.0])

    assert 22.5 == counted(*numbers).variance
    assert 22.5 == counted(numbers).variance


def test_many_values_one_by_one_do_not_drift():
    values = np.random.default_rng(0).normal(1000.0, 0.1, (1000, 1000))
    statistics = counted(*values, shape=(1000,))

    np.testing.assert_allclose(statistics.variance, values.var(0), rtol=1e-11)


def test_merging_leaves_the_other_as_it_is():
    other = counted([1.0, 2.0])
    RunningStatistics().merge(other)
    counted([5.0]).merge(other)

    assert (2, 1.5) == (other.count, other.mean)


def test_merging_with_itself_counts_everything_twice():
    statistics = counted([1.0, 3.0])
    statistics.merge(statistics)

    assert (4, 2.0, 1.0) == (
        statistics.count,
        statistics.mean,
        statistics.variance,
    )


@pytest.mark.parametrize("dims", [(), (3,), (2, 3), (0,), (2, 0)])
def test_all_dimensions_in_front_are_those_of_a_batch(dims):
    statistics = counted(np.ones((*dims, 2)), shape=(2,))

    assert np.prod(dims, dtype=int) == statistics.count


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "u8", "f2", "f4", "f8", "g"])
def test_numbers_of_any_dtype_are_counted_in_float64(dtype):
    statistics = counted(np.array([[0, 1], [1, 1]], dtype), shape=(2,))

    assert [0.5, 1.0] == statistics.mean.tolist()
    assert [0.25, 0.0] == statistics.variance.tolist()
    assert {np.dtype(float)} == {statistics.mean.dtype, statistics.variance.dtype}


def test_arrays_without_elements_are_counted():
    assert 3 == counted(np.zeros((3, 0)), shape=(0,)).count


def test_of_nothing_the_mean_is_0_and_the_variance_1():
    statistics = RunningStatistics((2,))

    assert [0.0, 0.0] == statistics.mean.tolist()
    assert [1.0, 1.0] == statistics.variance.tolist()
    assert [3.0, -4.0] == statistics.normalize([3.0, -4.0]).tolist()


def test_values_are_neither_changed_nor_kept():
    values = np.array([[1.0], [3.0]])
    statistics = counted(values, shape=(1,))
    unchanged = values.copy()

    assert unchanged.tolist() == values.tolist()

    values[...] = 100.0

    assert [2.0] == statistics.mean.tolist()


def test_the_mean_is_read_only():
    for statistics in (counted([1.0]), pickle.loads(pickle.dumps(counted([1.0])))):
        assert not statistics.mean.flags.writeable


def test_frozen_statistics_do_not_count():
    statistics = counted([1.0, 3.0])
    statistics.freeze()
    statistics.update([100.0])

    assert (True, 2) == (statistics.frozen, statistics.count)

    statistics.unfreeze()
    statistics.update([2.0])

    assert (False, 3) == (statistics.frozen, statistics.count)


def test_the_scale_is_the_standard_deviation_or_1():
    statistics = counted([[0.0, 5.0], [4.0, 5.0]], shape=(2,))

    assert [2.0, 1.0] == statistics.scale(1e-30).tolist()
    assert [3.0, 1.0] == statistics.scale(5.0).tolist()


def test_normalizing_counts_standard_deviations_from_the_mean():
    statistics = counted([[0.0, 5.0], [4.0, 5.0]], shape=(2,))
    normalized = statistics.normalize([[2.0, 5.0], [8.0, 6.0]])

    assert np.float32 == normalized.dtype
    assert [[0.0, 0.0], [3.0, 1.0]] == normalized.tolist()
    assert [2.0, -2.0] == statistics.normalize([88.0, -88.0], clip=2).tolist()


def test_a_normalized_number_is_an_array():
    assert isinstance(counted([0.0, 4.0]).normalize(8.0, clip=2.0), np.ndarray)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_a_copy_goes_on_as_the_original_does(copied):
    statistics = counted([[1.0, 2.0], [4.0, 1.0]], shape=(2,))
    other = copied(statistics)
    statistics.update([5.0, 7.0])

    assert 2 == other.count

    other.update([5.0, 7.0])

    assert statistics.mean.tobytes() == other.mean.tobytes()
    assert statistics.variance.tobytes() == other.variance.tobytes()


def test_a_pickled_one_stays_frozen():
    statistics = RunningStatistics()
    statistics.freeze()

    assert pickle.loads(pickle.dumps(statistics)).frozen


def test_a_state_brings_everything_back():
    statistics = counted([1.0, 2.0])
    state = statistics.get_state()
    statistics.update([7.0])
    statistics.freeze()
    statistics.set_state(state)

    assert (2, 1.5, 0.25, False) == (
        statistics.count,
        statistics.mean,
        statistics.variance,
        statistics.frozen,
    )


def test_a_state_shares_no_memory_with_the_statistics():
    statistics = counted([1.0, 2.0], shape=())
    state = statistics.get_state()
    statistics.set_state(state)
    state["mean"][...] = 77.0

    assert 1.5 == statistics.mean


def test_threads_can_count_together():
    statistics = RunningStatistics()

    def count_some(start: int) -> None:
        for number in range(start, start + 500):
            statistics.update(float(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_some, range(0, 2000, 500)))

    assert 2000 == statistics.count
    np.testing.assert_allclose(statistics.mean, 999.5)


def test_the_repr_says_how_much_was_counted():
    statistics = counted([[1.0, 2.0]], shape=(2,))

    assert "RunningStatistics(shape=(2,), count=1)" == repr(statistics)

    statistics.freeze()

    assert "RunningStatistics(shape=(2,), count=1, frozen)" == repr(statistics)


@pytest.mark.parametrize("call", ["update", "normalize"])
def test_values_of_another_shape_are_refused(call):
    statistics = counted([1.0, 2.0], shape=(2,))

    with pytest.raises(SpecError) as caught:
        getattr(statistics, call)(np.ones((4, 3)))

    assert (
        f"RunningStatistics.{call}() was given values that do not go with it.\n\n"
        "  expected   numbers in an array whose last dimensions are (2,)\n"
        "  got        array of shape (4, 3), dtype float64, values 1.0 … 1.0\n\n"
        "Dimensions of a batch come first, and there may be any number of them."
    ) == str(caught.value)
    assert 1 == statistics.count


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ("text", "array of shape (), dtype <U4"),
        (None, "None"),
        ({"a": 1.0}, "a dict of 1 element"),
        ([[1.0], [2.0, 3.0]], "a list of 2 elements"),
        (1j, "array of shape (), dtype complex128"),
    ],
)
def test_what_is_no_number_is_refused(values, what):
    with pytest.raises(SpecError) as caught:
        RunningStatistics().update(values)

    assert f"  got        {what}\n" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1.0, np.nan, 3.0], "1 of 3 numbers are NaN or infinite"),
        ([np.inf, -np.inf], "2 of 2 numbers are NaN or infinite"),
        ([np.inf], "1 of 1 numbers are NaN or infinite"),
        ([1e200, -1e200], "the squares of some are too large for float64"),
    ],
)
@pytest.mark.parametrize("before", [[], [2.0]])
def test_what_is_not_finite_is_refused_and_nothing_is_lost(values, what, before):
    statistics = counted(before)

    with pytest.raises(SpecError) as caught:
        statistics.update(values)

    assert (
        f"RunningStatistics.update() was given values of which {what}. The mean would "
        "be lost for good. Nothing was counted."
    ) == str(caught.value)
    assert len(before) == statistics.count
    assert np.isfinite(statistics.mean)


def test_merging_needs_other_statistics():
    with pytest.raises(TypeError) as caught:
        RunningStatistics().merge([1.0])  # type: ignore[arg-type]  # is the mistake

    assert (
        "RunningStatistics.merge() takes other RunningStatistics, not a list of 1 "
        "element."
    ) == str(caught.value)


def test_merging_statistics_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="shape") as caught:
        RunningStatistics((2,)).merge(RunningStatistics((3,)))

    assert (
        "RunningStatistics.merge() was given statistics of arrays of shape (3,); these "
        "are of arrays of shape (2,)."
    ) == str(caught.value)


def test_frozen_statistics_cannot_take_in_others():
    statistics = RunningStatistics()
    statistics.freeze()

    with pytest.raises(ValueError, match="frozen") as caught:
        statistics.merge(counted([1.0]))

    assert (
        "RunningStatistics.merge() was called on frozen statistics, which do not "
        "change. Call unfreeze() first."
    ) == str(caught.value)


def test_a_state_that_is_none_is_refused():
    with pytest.raises(ValueError, match="takes what") as caught:
        RunningStatistics().set_state({"mean": 0.0})

    assert (
        "RunningStatistics.set_state() was given a dict of 1 element; it takes what "
        "get_state() returned."
    ) == str(caught.value)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="of shape") as caught:
        RunningStatistics().set_state(counted([1.0, 2.0], shape=(2,)).get_state())

    assert (
        "RunningStatistics.set_state() was given statistics of arrays of shape (2,); "
        "these are of arrays of shape ()."
    ) == str(caught.value)


def test_a_shape_that_is_none_is_refused():
    with pytest.raises(TypeError) as caught:
        RunningStatistics(3)  # type: ignore[arg-type]  # is the mistake

    assert (
        "A shape is an iterable of integers such as (84, 84, 3), not 3. For a vector "
        "write (3,)."
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ({}, "a dict of 0 elements"),
        ({1: 2}, "a dict of 1 element"),
        ({4}, "a set object"),
        (b"x", "the string b'x'"),
        ("x", "the string 'x'"),
    ],
)
def test_a_shape_is_a_sequence_of_numbers(shape, text, message_of):
    assert (
        f"RunningStatistics takes the shape of an array, such as (4,), not {text}."
    ) == message_of(TypeError, lambda: RunningStatistics(shape))
