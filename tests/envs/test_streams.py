"""Random streams: independent of one another, and of the numbers they should be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.envs.streams import RowStreams

SEEDS = st.integers(0, 2**64)


def draws(streams, rows, kind, count=3):
    if kind == "integers":
        return streams.integers(rows, -2, 5)
    return getattr(streams, kind)(rows, count)


@pytest.mark.parametrize("kind", ["uniform", "normal", "integers"])
@given(seeds=st.lists(SEEDS, min_size=1, max_size=5), data=st.data())
def test_a_row_draws_the_same_beside_any_other_rows(kind, seeds, data):
    together = RowStreams(seeds)
    alone = [RowStreams([seed]) for seed in seeds]
    subsets = st.sets(st.integers(0, len(seeds) - 1)).map(sorted)
    for rows in data.draw(st.lists(subsets, max_size=5)):
        drawn = draws(together, np.array(rows, np.int64), kind)
        for place, row in enumerate(rows):
            expected = draws(alone[row], np.array([0]), kind)
            assert np.array_equal(expected[..., 0], drawn[..., place])


def test_drawing_at_once_equals_drawing_in_parts():
    at_once = RowStreams([5, 6]).uniform(np.arange(2), 7)
    streams = RowStreams([5, 6])
    in_parts = [streams.uniform(np.arange(2), count) for count in (1, 3, 2, 1)]
    assert np.array_equal(at_once, np.concatenate(in_parts))


def test_key_0_gives_the_numbers_of_splitmix64():
    streams = RowStreams([1])
    streams.positions[:] = streams.keys[:] = 0
    drawn = streams.uniform(np.array([0]), 3)[:, 0]
    # The first numbers of the published generator from seed 0.
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [(word >> 11) / 2**53 for word in words] == drawn.tolist()


def test_a_stream_continues_from_its_position_and_key():
    streams = RowStreams([1, 2, 3])
    rows = np.arange(3)
    streams.uniform(rows, 4)
    other = RowStreams([7, 8, 9])
    other.positions[:], other.keys[:] = streams.positions, streams.keys
    assert np.array_equal(streams.normal(rows, 5), other.normal(rows, 5))


def test_streams_from_fresh_entropy_differ():
    rows = np.arange(100)
    drawn = np.concatenate([RowStreams([None] * 100).uniform(rows, 1) for _ in "ab"])
    assert 200 == len(np.unique(drawn))


def test_only_rows_without_a_seed_take_fresh_entropy():
    rows = np.arange(2)
    first, second = (RowStreams([4, None]).uniform(rows, 2) for _ in "ab")
    assert [True, False] == (first == second).all(axis=0).tolist()


def test_streams_at_equal_positions_differ_by_their_keys():
    streams = RowStreams([1, 2])
    streams.positions[1] = streams.positions[0]
    drawn = streams.uniform(np.arange(2), 50)
    assert (drawn[:, 0] != drawn[:, 1]).all()


@pytest.mark.parametrize(("rows", "count"), [(1, 60_000), (20_000, 1), (300, 200)])
def test_uniform_numbers_fill_the_unit_interval_evenly(rows, count):
    drawn = RowStreams(list(range(rows))).uniform(np.arange(rows), count)
    found, _ = np.histogram(drawn, bins=100, range=(0.0, 1.0))
    expected = rows * count / 100
    chi_square = ((found - expected) ** 2 / expected).sum()
    # 99 degrees of freedom: their sum is below 160 but for one time in ten thousand.
    assert chi_square < 160
    assert 0.0 <= drawn.min()
    assert drawn.max() < 1.0


def test_neither_neighbouring_draws_nor_neighbouring_rows_are_correlated():
    drawn = RowStreams(list(range(400))).uniform(np.arange(400), 400) - 0.5
    for first, second in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1])):
        correlation = (first * second).mean() * 12
        assert abs(correlation) < 4 / 400


def test_every_bit_is_set_half_the_time():
    bits = RowStreams([1]).uniform(np.array([0]), 40_000) * 2.0**53
    words = bits.astype(np.uint64)
    shares = [
        float((words >> np.uint64(bit) & np.uint64(1)).mean()) for bit in range(53)
    ]
    assert np.allclose(0.5, shares, atol=4 * 0.5 / 200)


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    drawn = RowStreams(list(range(400))).normal(np.arange(400), 500)
    moments = [float((drawn**power).mean()) for power in (1, 2, 3, 4)]
    assert np.allclose([0.0, 1.0, 0.0, 3.0], moments, atol=0.06)


@given(seed=SEEDS, low=st.integers(-5, 5), width=st.integers(1, 9))
def test_integers_stay_within_their_bounds(seed, low, width):
    drawn = RowStreams([seed] * 20).integers(np.arange(20), low, low + width)
    assert (drawn >= low).all()
    assert (drawn < low + width).all()


def test_integers_reach_the_bounds_of_each_row():
    high = np.arange(1, 10)
    streams = RowStreams(list(range(9)))
    drawn = np.array([streams.integers(np.arange(9), 0, high) for _ in range(300)])
    assert high.tolist() == [len(np.unique(column)) for column in drawn.T]


def test_drawing_for_no_rows_returns_nothing():
    streams = RowStreams([1, 2])
    before = streams.positions.copy()
    drawn = streams.uniform(np.zeros(0, np.int64), 3)
    assert (3, 0) == drawn.shape
    assert np.array_equal(before, streams.positions)
