"""A pool returns what its environments return, to the last bit, wherever they live."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, constructor
from envkit.testing.envs import TracingEnv
from tests import strategies
from tests.parallel import environments, streams
from tests.parallel.environments import Walk
from tests.parallel.streams import pool_of

# Whatever an environment returns arrives bit for bit.


@st.composite
def conversations(draw, *, rows=2, steps=3):
    """Draws a spec, what is observed first, and what is said in each step."""
    spec, seed = draw(strategies.slab_specs()), draw(st.integers(0, 2**32))
    return spec, [
        [strategies.slab_value_of(spec, seed, step, row) for row in range(rows)]
        for step in range(1 + steps)
    ]


def differences_in(conversation, env):
    """Lets environments repeat their actions, and names what came back changed."""
    _, (first, *said) = conversation
    found = streams.differences(streams.stacked(first), env.reset().observation)
    for rows in said:
        batch = streams.stacked(rows)
        before = streams.bits_of(batch)
        found += streams.differences(batch, env.step(batch).observation)
        if before != streams.bits_of(batch):
            found.append("the action was changed")
    return found


def repeaters(conversation):
    """Lists constructors of environments that observe what they are told."""
    spec, (first, *_) = conversation
    return [functools.partial(environments.Repeating, spec, value) for value in first]


@settings(max_examples=20)
@given(
    conversation=conversations(),
    validate=st.sampled_from(["always", "first", "never"]),
    zero_copy=st.booleans(),
    workers=st.integers(1, 2),
)
def test_actions_and_observations_arrive_bit_for_bit(
    conversation, validate, zero_copy, workers
):
    options = {"validate": validate, "zero_copy": zero_copy, "num_workers": workers}
    with pool_of(repeaters(conversation), **options) as env:
        found = differences_in(conversation, env)
    assert [] == found


@st.composite
def shows(draw, *, count=3):
    """Draws a spec, and values that fit it, lying in memory in any way."""
    spec, seed = draw(strategies.slab_specs()), draw(st.integers(0, 2**32))
    return spec, [strategies.slab_value_of(spec, seed, index) for index in range(count)]


@settings(max_examples=20)
@given(show=shows(), validate=st.sampled_from(["always", "first", "never"]))
def test_observations_of_any_memory_layout_arrive(show, validate):
    spec, values = show
    maker = functools.partial(environments.Showing, spec, values)
    with pool_of([maker] * 2, validate=validate) as env:
        actual = [ts.observation for ts in streams.play(env, [[0, 0]] * 5)]

    expected = [streams.stacked([value, value]) for value in values * 2]
    assert [] == streams.differences(expected, actual)


@settings(max_examples=15)
@given(show=shows(count=4), data=st.data())
def test_masked_calls_leave_other_rows_unchanged(show, data):
    spec, values = show
    maker = functools.partial(environments.Showing, spec, values)
    places = np.zeros(3, int)
    with pool_of([maker] * 3, num_workers=2) as env:
        env.reset()
        for _ in range(6):
            mask = np.array(data.draw(st.lists(st.booleans(), min_size=3, max_size=3)))
            anew = data.draw(st.booleans())
            actual = (env.reset(mask) if anew else env.step([0] * 3, mask)).observation
            places[mask] += 1
            expected = streams.stacked([values[place % 4] for place in places])

            assert [] == streams.differences(expected, actual)


# Shrinking would start hundreds of processes.
@settings(max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(conversation=conversations(steps=4))
def test_values_arrive_from_other_processes(conversation):
    with pool_of(repeaters(conversation), "process", num_workers=1) as env:
        found = differences_in(conversation, env)
    assert [] == found


EVERYTHING = {
    dtype: {
        "number": ArraySpec((), dtype),
        "row": (ArraySpec((3,), dtype), ArraySpec((0, 2), dtype)),
        "foreign": ArraySpec((2, 2), np.dtype(dtype).newbyteorder()),
    }
    for dtype in strategies.SLAB_DTYPES
}


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_every_dtype_arrives_bit_for_bit(backend):
    conversation = (
        EVERYTHING,
        [
            [strategies.slab_value_of(EVERYTHING, step, row) for row in range(2)]
            for step in range(40)
        ],
    )
    with pool_of(repeaters(conversation), backend, num_workers=2) as env:
        found = differences_in(conversation, env)

    assert [] == found


SPECIAL = {
    "float16": [0x7C01, 0xFC01, 0x7E01, 0x8000, 0x0001],
    "float32": [0x7F800001, 0xFF800001, 0x7FC00001, 0x80000000, 0x00000001],
    "float64": [0x7FF0000000000001, 0x7FF8000000000001, 0x8000000000000000, 1],
}


@pytest.mark.parametrize("dtype", SPECIAL)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_nans_keep_their_bits_and_zeros_their_sign(dtype, shape):
    words = f"u{np.dtype(dtype).itemsize}"
    values = [np.full(shape, word, words).view(dtype) for word in SPECIAL[dtype]]
    maker = functools.partial(environments.Showing, ArraySpec(shape, dtype), values)
    with pool_of([maker]) as env:
        actual = [
            ts.observation.view(words).ravel().tolist()
            for ts in streams.play(env, [[0]] * (len(values) - 1))
        ]

    assert [[word] for word in SPECIAL[dtype]] == actual


# Equal seeds and actions give equal streams.

ACTIONS = np.random.default_rng(1).uniform(-1, 1, (80, 5, 2)).astype(np.float32)


def stream_of(env, seed=7):
    """Plays a seeded batch of random walks; returns all that came back."""
    env.seed(seed)
    return streams.play(env, ACTIONS)


@pytest.fixture(scope="module")
def expected():
    """What the same environments return without any worker."""
    with BatchedPyEnvironment([Walk() for _ in range(5)], multithreading=False) as env:
        return stream_of(env)


def test_the_streams_to_compare_have_ends_of_both_kinds(expected):
    ends = {
        float(time_step.discount[row])
        for time_step in expected
        for row in np.flatnonzero(time_step.is_last())
    }
    rows = {
        streams.digest_of([streams.row_of(ts, row) for ts in expected])
        for row in range(5)
    }

    assert {0.0, 1.0} == ends
    assert 5 == len(rows)


@pytest.mark.parametrize(
    ("backend", "workers"),
    [*itertools.product(["inline", "thread"], [1, 2, 5]), ("process", 2)],
)
def test_equal_seeds_give_equal_streams_wherever_they_run(expected, backend, workers):
    with pool_of([Walk] * 5, backend, num_workers=workers) as env:
        actual = stream_of(env)
    assert streams.digest_of(expected) == streams.digest_of(actual)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_equal_seeds_give_equal_streams_with_every_start_method(expected, start_method):
    with pool_of(
        [Walk] * 5, "process", num_workers=2, start_method=start_method
    ) as env:
        actual = stream_of(env)
    assert streams.digest_of(expected) == streams.digest_of(actual)


@pytest.mark.parametrize(
    "options",
    [
        {"zero_copy": True},
        {"validate": "always"},
        {"validate": "never"},
        {"blocking": True},
        {"blocking": True, "backend": "thread"},
    ],
    ids=str,
)
def test_equal_seeds_give_equal_streams_with_any_option(expected, options):
    with pool_of([Walk] * 5, num_workers=2, **options) as env:
        env.seed(7)
        actual = [streams.digest_of([env.reset()])]
        actual += [streams.digest_of([env.step(action)]) for action in ACTIONS]
    assert [streams.digest_of([time_step]) for time_step in expected] == actual


def test_given_seeds_are_used_unchanged():
    seeds = [3, 1, 4, 1, 5]
    lone = [Walk() for _ in seeds]
    for env, seed in zip(lone, seeds, strict=True):
        env.seed(seed)
    columns = [streams.play(env, ACTIONS[:, row]) for row, env in enumerate(lone)]
    with pool_of([Walk] * 5, num_workers=2) as env:
        results = env.seed(seeds)
        actual = streams.play(env, ACTIONS)

    assert seeds == results
    for row, column in enumerate(columns):
        assert [] == streams.differences(
            column, [streams.row_of(time_step, row) for time_step in actual]
        )


def test_one_seed_gives_each_environment_a_different_seed(backend):
    with pool_of([Walk] * 5, backend, num_workers=2) as env:
        seeds = env.seed(7)
    with pool_of([Walk] * 3, backend, num_workers=1) as env:
        fewer = env.seed(7)
    assert 5 == len(set(seeds))
    assert seeds[:3] == fewer


def test_seeding_again_repeats_the_stream():
    with pool_of([Walk] * 5, num_workers=2) as env:
        digests = [streams.digest_of(stream_of(env, seed)) for seed in (1, 2, 1)]
    assert digests[0] == digests[2]
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    ("seed", "error", "text"),
    [
        (
            [1, 2],
            ValueError,
            "2 seeds for 3 environments. Pass one seed for each environment, or one "
            "integer from which each gets its own.",
        ),
        (-1, ValueError, "A seed cannot be negative, and -1 is."),
        (1.5, TypeError, "A seed is an integer, not 1.5 of type float."),
        ("abc", TypeError, "A seed is an integer, not 'abc'."),
        ([1, None, "x"], TypeError, "A seed is an integer, not 'x' of type str."),
    ],
    ids=["too few", "negative", "float", "text", "one of them"],
)
def test_an_invalid_seed_is_refused_and_seeds_nothing(message_of, seed, error, text):
    with pool_of([Walk] * 3) as env:
        env.seed(5)
        expected = streams.digest_of(streams.play(env, ACTIONS[:, :3]))
        env.seed(5)
        message = message_of(error, lambda: env.seed(seed))
        actual = streams.digest_of(streams.play(env, ACTIONS[:, :3]))

    assert text == message
    assert expected == actual


def test_seeding_with_none_is_passed_on():
    with pool_of([Walk] * 3) as env:
        results = env.seed(None)
    assert [None] * 3 == results


def test_the_rows_of_a_batch_are_seeded_one_by_one(backend):
    """However the rows are put together."""
    makers = [
        functools.partial(constructor("CartPole"), batch_size=2),
        functools.partial(constructor("CartPole"), batch_size=1),
        functools.partial(constructor("CartPole"), batch_size=2),
    ]
    whole = constructor("CartPole", batch_size=5)()
    whole.seed(11)
    actions = np.random.default_rng(3).integers(2, size=(100, 5))
    expected = streams.play(whole, actions)
    with pool_of(makers, backend, num_workers=2) as env:
        env.seed(11)
        actual = streams.play(env, actions)

    assert [] == streams.differences(expected, actual)


# The oracle with everything, at random.


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 6),
    workers=st.integers(1, 7),
    backend=st.sampled_from(["inline", "thread"]),
)
def test_any_pool_equals_a_loop_over_its_environments(seed, rows, workers, backend):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, size=rows).tolist()
    makers = [
        functools.partial(TracingEnv, row, lengths[row:] + lengths[:row])
        for row in range(rows)
    ]
    actions = rng.integers(1000, size=(20, rows))
    lone = [make() for make in makers]
    with pool_of(makers, backend, num_workers=workers) as env:
        actual = streams.play(env, actions)
    columns = [streams.play(one, actions[:, row]) for row, one in enumerate(lone)]
    expected = [streams.stacked(column) for column in zip(*columns, strict=True)]

    assert [] == streams.differences(expected, actual)
