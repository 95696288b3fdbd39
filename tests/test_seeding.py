from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.seeding import seed_per_row, seed_words

SEEDS = st.integers(0, 2**128)


@given(seed=SEEDS, rows=st.integers(0, 40), more=st.integers(0, 40))
def test_a_rows_seed_does_not_depend_on_the_number_of_rows(seed, rows, more):
    assert seed_per_row(seed, rows) == seed_per_row(seed, rows + more)[:rows]


@given(seed=SEEDS, rows=st.integers(0, 40))
def test_derived_seeds_are_distinct_and_fit_32_bits(seed, rows):
    seeds = seed_per_row(seed, rows)
    assert rows == len(set(seeds))
    assert all(type(row) is int and 0 <= row < 2**32 for row in seeds)


def test_derived_seeds_are_distinct_among_very_many_rows():
    """Random numbers of 32 bits would mostly have two equal among so many."""
    assert 100_000 == len(set(seed_per_row(3, 100_000)))


@given(seeds=st.lists(SEEDS, min_size=2, max_size=2, unique=True))
def test_different_seeds_give_different_streams(seeds):
    first, second = (seed_per_row(seed, 4) for seed in seeds)
    assert first != second


def test_the_same_seed_gives_the_same_seeds_on_every_machine():
    """Stored results depend on it: these numbers never change."""
    assert [1201125462, 3618983171, 3831650445] == seed_per_row(7, 3)


@given(seed=st.one_of(SEEDS, st.integers(0, 2**300)), rows=st.integers(0, 20))
def test_derived_seeds_match_numpys_spawned_children(seed, rows):
    children = np.random.SeedSequence(seed).spawn(rows)
    expected = [int(child.generate_state(1)[0]) for child in children]
    assert expected == seed_per_row(seed, rows)


@given(
    seeds=st.lists(st.one_of(st.integers(0, 2**40), SEEDS), max_size=30),
    count=st.integers(1, 5),
)
def test_vectorized_seed_words_match_numpys(seeds, count):
    words = seed_words(seeds, count)
    assert (len(seeds), count) == words.shape
    for seed, row in zip(seeds, words, strict=True):
        expected = np.random.SeedSequence(seed).generate_state(count, np.uint64)
        assert expected.tolist() == row.tolist()


def test_both_numpy_generators_accept_derived_seeds():
    for seed in seed_per_row(2**100, 3):
        np.random.default_rng(seed)
        np.random.RandomState(seed)


@pytest.mark.parametrize(
    "seeds", [[4, 5], (4, 5), range(4, 6), np.array([4, 5]), [np.int64(4), np.uint8(5)]]
)
def test_a_sequence_of_seeds_is_used_unchanged(seeds):
    given_seeds = seed_per_row(seeds, 2)
    assert [4, 5] == given_seeds
    assert {int} == {type(seed) for seed in given_seeds}


@pytest.mark.parametrize("seed", [7, np.int32(7), np.uint64(7), np.array(7)])
def test_every_kind_of_integer_is_a_seed(seed):
    assert seed_per_row(7, 2) == seed_per_row(seed, 2)


def test_none_gives_every_row_fresh_entropy():
    assert [None, None, None] == seed_per_row(None, 3)


def test_single_rows_can_use_fresh_entropy():
    assert [4, None] == seed_per_row([4, None], 2)


def test_no_rows_need_no_seeds():
    assert ([], [], []) == (
        seed_per_row(7, 0),
        seed_per_row([], 0),
        seed_per_row(None, 0),
    )


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (
            [1],
            "1 seed for 2 environments. Pass one seed for each environment, or one "
            "integer from which each gets its own.",
        ),
        (
            np.array([1, 2, 3]),
            "3 seeds for 2 environments. Pass one seed for each environment, or one "
            "integer from which each gets its own.",
        ),
        (-1, "A seed cannot be negative, and -1 is."),
        ([5, -6], "A seed cannot be negative, and -6 is."),
    ],
)
def test_seeds_out_of_range_are_refused(message_of, seeds, message):
    assert (message) == message_of(ValueError, lambda: seed_per_row(seeds, 2))


def test_messages_about_one_environment_use_the_singular(message_of):
    assert (
        "2 seeds for 1 environment. Pass one seed for each environment, or one integer "
        "from which each gets its own."
    ) == message_of(ValueError, lambda: seed_per_row([1, 2], 1))


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (1.0, "A seed is an integer, not 1.0 of type float."),
        ("ab", "A seed is an integer, not 'ab'."),
        (b"ab", "A seed is an integer, not b'ab'."),
        ({"a": 1}, "A seed is an integer, not {'a': 1} of type dict."),
        ({1}, "A seed is an integer, not {1} of type set."),
        ([1, "a"], "A seed is an integer, not 'a' of type str."),
        ([1.5, 2], "A seed is an integer, not 1.5 of type float."),
        ([[1], [2]], "A seed is an integer, not [1] of type list."),
        (
            np.array([[1, 2]]),
            "A seed is an integer, not array([[1, 2]]) of type ndarray.",
        ),
    ],
)
def test_a_seed_must_be_an_integer(message_of, seed, message):
    assert (message) == message_of(TypeError, lambda: seed_per_row(seed, 2))
