"""Showing how far the episode has come."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.envs import CartPole, Catch, TicTacToe
from envkit.errors import SpecError
from envkit.testing import CountingEnv
from envkit.wrappers.limits import FixedLength, TimeLimit
from envkit.wrappers.repeats import ActionRepeat
from envkit.wrappers.time_aware import TimeAwareObservation
from tests.wrappers.environments import Drive
from tests.wrappers.showing import showing

Pair = collections.namedtuple("Pair", ["left", "right"])
TIME = BoundedArraySpec((1,), np.int32, 0)


def times(env, steps, action=0):
    """Lists the times that are seen at a reset and in some steps."""
    return [
        int(time_step.observation[..., -1])
        for time_step in [env.reset(), *(env.step(action) for _ in range(steps))]
    ]


def counting_rows(*lengths):
    """Makes a batch whose rows have episodes of different lengths."""
    return BatchedPyEnvironment([CountingEnv(length) for length in lengths], False)


def beside(env, **kwargs):
    return TimeAwareObservation(env, flatten=False, **kwargs)


def test_the_time_counts_the_steps_of_an_episode():
    env = TimeAwareObservation(CountingEnv(steps_per_episode=3))
    assert [0, 1, 2, 3, 0, 1] == times(env, 5)


def test_a_reset_in_mid_episode_restarts_the_time():
    env = TimeAwareObservation(CountingEnv())
    times(env, 4)
    assert [0, 1] == times(env, 1)


def test_a_vector_gets_the_time_as_its_last_element():
    env = TimeAwareObservation(CartPole(seed=1, batch_size=2))
    seen = env.reset().observation
    assert (2, 5) == seen.shape
    assert np.array_equal(
        env.wrapped_env().current_time_step().observation, seen[:, :4]
    )


def test_a_nest_becomes_a_vector_of_a_common_dtype():
    env = TimeAwareObservation(TicTacToe(), dict_time_key="age")
    assert (
        BoundedArraySpec((19,), np.int32, 0, [2] * 9 + [1] * 9 + [2**31 - 1])
        == env.observation_spec()
    )


def test_pictures_and_tuples_become_parts_of_the_vector():
    env = TimeAwareObservation(Drive())
    assert (72 + 2 + 1 + 1 + 1,) == env.observation_spec().shape


def test_float32_and_an_int32_make_a_vector_of_float64_as_in_gymnasium():
    assert np.float64 == TimeAwareObservation(CartPole()).observation_spec().dtype


def test_a_normalized_time_keeps_float32():
    env = TimeAwareObservation(CartPole(), normalize_time=True, max_steps=10)
    assert np.float32 == env.observation_spec().dtype


def test_the_vector_has_bounds_if_the_observation_has():
    env = TimeAwareObservation(Catch(), normalize_time=True, max_steps=9)
    assert BoundedArraySpec((51,), np.float32, 0.0, 1.0) == env.observation_spec()


def test_the_vector_has_no_bounds_if_a_part_has_none():
    env = TimeAwareObservation(showing(np.zeros(2)), max_steps=9)
    assert ArraySpec((3,), np.float64) == env.observation_spec()


def test_a_dictionary_gets_the_time_as_a_part():
    env = beside(TicTacToe(batch_size=2))
    assert ["board", "mask", "time"] == sorted(env.observation_spec())
    assert TIME == env.observation_spec()["time"]
    assert "time" == env.observation_spec()["time"].name
    assert [[0], [0]] == env.reset().observation["time"].tolist()


def test_the_part_can_have_another_key():
    env = beside(TicTacToe(), dict_time_key="age")
    assert ["age", "board", "mask"] == sorted(env.reset().observation)


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_tuple_or_list_gets_the_time_as_an_element(kind):
    env = beside(showing(kind([np.zeros(2)])))
    seen = env.reset().observation
    assert kind is type(seen) is type(env.observation_spec())
    assert [2, 1] == [leaf.size for leaf in seen]


@pytest.mark.parametrize(
    "observation", [np.zeros(2), Pair(np.zeros(2), np.ones(1))], ids=["array", "tuple"]
)
def test_other_observations_are_put_into_a_dictionary_with_the_time(observation):
    env = beside(showing(observation), dict_time_key="age")
    assert {"obs", "age"} == set(env.observation_spec()) == set(env.reset().observation)
    assert type(observation) is type(env.reset().observation["obs"])


@pytest.mark.parametrize("flatten", [True, False])
def test_the_environments_spec_and_observation_are_unchanged(flatten):
    inner = TicTacToe()
    TimeAwareObservation(inner, flatten=flatten).reset()
    assert ["board", "mask"] == sorted(inner.observation_spec())
    assert ["board", "mask"] == sorted(inner.current_time_step().observation)


def test_a_normalized_time_reaches_1_with_the_last_step():
    env = beside(CountingEnv(4), normalize_time=True, max_steps=4)
    seen = [env.reset(), *(env.step(0) for _ in range(4))]
    assert [0.0, 0.25, 0.5, 0.75, 1.0] == [
        float(time_step.observation["time"][0]) for time_step in seen
    ]
    assert BoundedArraySpec((1,), np.float32, 0, 1) == env.observation_spec()["time"]


def test_the_limit_is_found_inside_other_wrappers():
    env = beside(ActionRepeat(TimeLimit(CountingEnv(), 6), 2))
    assert 6 == env.max_steps
    assert BoundedArraySpec((1,), np.int32, 0, 6) == env.observation_spec()["time"]


def test_an_argument_overrides_a_time_limit():
    assert 3 == TimeAwareObservation(TimeLimit(CountingEnv(), 6), max_steps=3).max_steps


@pytest.mark.parametrize("duration", [0.5, "long", True, 0, None])
def test_durations_other_than_step_counts_are_ignored(duration):
    inner = CountingEnv()
    inner.duration = duration
    assert TimeAwareObservation(inner).max_steps is None


@given(st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_the_time_never_leaves_its_bounds(length, max_steps, normalize):
    """Not even if episodes are longer than was said."""
    env = beside(
        counting_rows(length, 4), normalize_time=normalize, max_steps=max_steps
    )
    spec = env.observation_spec()["time"]
    env.reset()
    for _ in range(8):
        time = env.step(np.zeros(2, np.int32)).observation["time"]
        assert all(spec.check_array(row) for row in time)


def test_repr_shows_the_arguments():
    env = TimeAwareObservation(CountingEnv(), normalize_time=True, max_steps=8)
    assert repr(env).endswith(", flatten=True, normalize_time=True, max_steps=8)")
    assert "time" == env.dict_time_key


@pytest.mark.parametrize(
    "inner",
    [showing(np.zeros(2)), showing([np.zeros(2)]), TicTacToe()],
    ids=["array", "list", "dictionary"],
)
def test_the_wrapper_can_be_pickled(inner):
    env = beside(inner)
    copied = pickle.loads(pickle.dumps(env))
    leaves = zip(nest.flatten(env.reset()), nest.flatten(copied.reset()), strict=True)
    assert all(np.array_equal(ours, theirs) for ours, theirs in leaves)


def test_the_limit_is_taken_from_a_fixed_length():
    env = FixedLength(CountingEnv(steps_per_episode=2), 4)
    env = TimeAwareObservation(env, normalize_time=True)
    assert 4 == env.max_steps
    assert [0.0, 0.25, 0.5, 0.75, 1.0, 0.0] == [
        env.step(0).observation[-1] for _ in range(6)
    ]


def test_padding_counts_beyond_an_inner_time_limit():
    env = FixedLength(TimeLimit(CountingEnv(), 2), 4)
    assert 4 == TimeAwareObservation(env).max_steps


@pytest.mark.parametrize("max_steps", [0, 2.5, True, "5"])
def test_the_limit_must_be_a_number_of_steps(max_steps, message_of):
    assert (
        "max_steps must be an integer of at least 1, or None to ask the environment, "
        f"got {max_steps!r}."
    ) == message_of(
        ValueError, lambda: TimeAwareObservation(Catch(), max_steps=max_steps)
    )


def test_text_cannot_become_a_part_of_a_vector(message_of):
    env = showing({"text": np.array("abc"), "x": np.zeros(2)})
    assert (
        "TimeAwareObservation cannot put the observation at ['text'] into a vector of "
        "numbers: its dtype is <U3. Pass flatten=False."
    ) == message_of(ValueError, lambda: TimeAwareObservation(env))


REFUSED = {
    "a time without a limit cannot be normalized": (
        ValueError,
        lambda: TimeAwareObservation(CartPole(), normalize_time=True),
        "TimeAwareObservation needs the length of episodes to normalize the time, and "
        "found no TimeLimit or FixedLength in the environment. Pass max_steps, or wrap "
        "a TimeLimit.",
    ),
    "a key that is taken": (
        ValueError,
        lambda: beside(TicTacToe(), dict_time_key="mask"),
        "dict_time_key is 'mask', a key that the observation already has. Pass another "
        "one.",
    ),
    "the key of the observation itself": (
        ValueError,
        lambda: beside(Catch(), dict_time_key="obs"),
        "dict_time_key is 'obs', the key of the observation itself. Pass another one.",
    ),
    "a key that cannot be sorted": (
        SpecError,
        lambda: beside(showing({1: np.zeros(2), 2: np.zeros(2)})),
        "The keys of the dictionary have no order: 1, 2, 'time'. Nests are flattened "
        "in the order of their keys: use keys of one type.",
    ),
}


@pytest.mark.parametrize(("error", "call", "message"), REFUSED.values(), ids=REFUSED)
def test_observations_without_room_for_the_time_are_refused(
    error, call, message, message_of
):
    assert message == message_of(error, call)
