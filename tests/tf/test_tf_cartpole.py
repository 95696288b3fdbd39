"""TFCartPole: held together with the CartPole that it is written after."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from envkit import StepType
from envkit.envs import CartPole
from envkit.errors import SpecError
from envkit.tf import TFCartPole
from envkit.tf.tensor_spec import from_spec

ROWS = 40
WAYS = ["eager", "xla"]


def compiled(function, way):
    """Returns the function as it is run in one of the two ways."""
    return function if way == "eager" else tf.function(function, jit_compile=True)


def arrays(time_step):
    return [field.numpy() for field in time_step]


def upright(observation):
    """Says where to push so that the pole stays up and the cart near the middle."""
    position, velocity, angle, spin = tf.unstack(observation, axis=-1)
    leaning = angle + 0.3 * spin + 0.05 * position + 0.05 * velocity
    return tf.cast(leaning > 0, tf.int64)


def test_the_specs_match_cartpoles():
    env, like = TFCartPole(2), CartPole(2)

    assert from_spec(like.time_step_spec()) == env.time_step_spec()
    assert from_spec(like.action_spec()) == env.action_spec()
    for field, theirs in zip(env.time_step_spec(), like.time_step_spec(), strict=True):
        assert theirs.name == field.name
    assert np.array_equal(
        like.observation_spec().maximum, env.observation_spec().maximum
    )


@pytest.mark.parametrize("way", WAYS)
def test_equal_seeds_and_actions_reproduce_cartpoles_streams(way):
    """Starts, rewards, ends and new episodes of rows that end at different times.

    Eagerly to every bit. What is compiled rounds in its own way in the last bit of a
    float64, which at times becomes one of a float32.
    """
    steps = 50
    env = TFCartPole(ROWS, max_episode_steps=20, seed=3)
    like = CartPole(ROWS, max_episode_steps=20, seed=3)
    actions = np.random.default_rng(4).integers(0, 2, (steps, ROWS))
    step = compiled(env.step, way)

    pairs = [(like.reset(), env.reset())]
    pairs += [(like.step(action), step(tf.constant(action))) for action in actions]

    tolerance = 0.0 if way == "eager" else 1e-6
    for theirs, ours in pairs:
        for expected, actual in zip(theirs, arrays(ours), strict=True):
            assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape)
        assert all(map(np.array_equal, theirs[:3], ours[:3]))
        assert np.allclose(theirs.observation, ours.observation, 0.0, tolerance)
    # All that can happen did.
    kinds = np.stack([theirs.step_type for theirs, _ in pairs])
    assert {0, 1, 2} == set(kinds[2:].ravel().tolist())
    cut = [theirs.discount[theirs.is_last()] for theirs, _ in pairs]
    assert {0.0, 1.0} == set(np.concatenate(cut).tolist())


@pytest.mark.parametrize(("way", "tolerance"), [("eager", 0.0), ("xla", 1e-14)])
def test_from_equal_states_one_step_leads_to_equal_states(way, tolerance):
    """Eagerly to every bit; XLA rounds sums of products once instead of twice."""
    rows = 500
    env, like = TFCartPole(rows), CartPole(rows, seed=1)
    step = compiled(env.step, way)
    actions = np.random.default_rng(2).integers(0, 2, (100, rows))
    like.reset()
    for action in actions[:60]:
        like.step(action)
    for action in actions[60:65]:
        env.reset_to(like.get_info()["state"])
        going_on = ~like.current_time_step().is_last()

        like.step(action)
        step(tf.constant(action))

        expected, actual = like.get_info()["state"], env.get_info()["state"].numpy()
        assert going_on.sum() > 400
        assert np.allclose(expected[going_on], actual[going_on], 0.0, tolerance)


def test_episodes_can_begin_at_given_states():
    env, like = TFCartPole(5, seed=1), CartPole(5, seed=2)
    like.reset()
    like.step([0, 1, 0, 1, 1])

    time_step = env.reset_to(like.get_info()["state"])

    assert [StepType.FIRST] * 5 == time_step.step_type.numpy().tolist()
    assert np.array_equal(like.current_time_step().observation, time_step.observation)
    assert np.array_equal(like.get_info()["state"], env.get_info()["state"])


def test_only_masked_rows_begin_at_given_states():
    env = TFCartPole(3, seed=1)
    env.step([0, 0, 0])
    before = env.step([0, 1, 0])

    time_step = env.reset_to(np.full((3, 4), 0.25), [False, True, False])

    assert [1, 0, 1] == time_step.step_type.numpy().tolist()
    assert [0.25] * 4 == time_step.observation[1].numpy().tolist()
    for row in (0, 2):
        assert np.array_equal(before.observation[row], time_step.observation[row])


def test_the_info_matches_cartpoles():
    env, like = TFCartPole(4, max_episode_steps=10), CartPole(4, max_episode_steps=10)
    env.seed(5)
    like.seed(5)
    like.reset()
    env.reset()
    for number in range(16):
        action = [1, number % 2, 0, number // 2 % 2]
        like.step(action)
        env.step(action)
        expected, actual = like.get_info(), env.get_info()

        assert expected.keys() == actual.keys()
        for name, array in expected.items():
            assert array.dtype == actual[name].dtype.as_numpy_dtype
            assert np.array_equal(array, actual[name]), name


def test_an_episode_that_ends_both_ways_is_a_termination_with_both_flags():
    env = TFCartPole(2, max_episode_steps=1)
    env.reset_to([[2.39, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])

    time_step = env.step([1, 1])

    assert [StepType.LAST] * 2 == time_step.step_type.numpy().tolist()
    assert [0.0, 1.0] == time_step.discount.numpy().tolist()
    info = env.get_info()
    assert [True, False] == info["terminated"].numpy().tolist()
    assert [True, True] == info["truncated"].numpy().tolist()


def test_a_sequence_of_seeds_seeds_each_row():
    one, other = TFCartPole(3, seed=[5, 6, 7]), TFCartPole(2)
    other.seed([7, 5])
    ours, theirs = one.reset().observation.numpy(), other.reset().observation.numpy()
    assert np.array_equal(ours[[2, 0]], theirs)


def test_without_a_seed_initial_states_differ():
    starts = [TFCartPole(50).reset().observation.numpy() for _ in range(2)]
    assert not np.array_equal(*starts)
    assert np.all(np.abs(starts) <= 0.05)


def test_a_step_before_any_reset_begins_an_episode_and_ignores_the_action():
    env = TFCartPole(2, seed=3)

    time_step = env.step([7, -1])

    assert [StepType.FIRST] * 2 == time_step.step_type.numpy().tolist()
    expected = CartPole(2, seed=3).reset().observation
    assert np.array_equal(expected, time_step.observation)


def test_the_current_time_step_begins_an_episode_once():
    env = TFCartPole(2, seed=3)
    now = tf.function(env.current_time_step)

    first, again = now(), env.current_time_step()

    assert [StepType.FIRST] * 2 == first.step_type.numpy().tolist()
    assert np.array_equal(CartPole(2, seed=3).reset().observation, first.observation)
    assert np.array_equal(first.observation, again.observation)


def test_the_current_time_step_is_never_stale():
    env = TFCartPole(2, max_episode_steps=2)
    now = tf.function(env.current_time_step)
    for _ in range(4):
        stepped = env.step([0, 1])

        for current in (now(), env.current_time_step()):
            for expected, actual in zip(arrays(stepped), arrays(current), strict=True):
                assert np.array_equal(expected, actual)


def test_a_mask_resets_its_rows_and_those_that_never_began():
    env = TFCartPole(3, seed=3)
    assert [0, 0, 0] == env.reset([True, False, False]).step_type.numpy().tolist()
    before = env.step([0, 1, 1])

    time_step = env.reset([True, False, False])

    assert [0, 1, 1] == time_step.step_type.numpy().tolist()
    assert [0.0, 1.0, 1.0] == time_step.reward.numpy().tolist()
    assert np.array_equal(before.observation[1:], time_step.observation[1:])
    assert np.all(np.abs(time_step.observation[0]) <= 0.05)


@functools.cache
def compiled_play():
    """Returns an environment and a compiled loop over its steps."""
    env = TFCartPole(ROWS, max_episode_steps=None, seed=8)

    @tf.function(jit_compile=True)
    def play(steps):
        first = env.reset()

        def body(step, observation, kinds):
            time_step = env.step(upright(observation))
            kinds = kinds | tf.bitwise.left_shift(1, time_step.step_type)
            return step + 1, time_step.observation, kinds

        start = (tf.constant(0), first.observation, tf.zeros([ROWS], tf.int32))
        return tf.while_loop(lambda step, *_: step < steps, body, start)

    return env, play


def test_without_a_limit_nothing_is_truncated():
    env, play = compiled_play()

    _, observation, kinds = play(tf.constant(600))  # CartPole's own limit is 500.

    assert {1 << StepType.MID} == set(kinds.numpy().tolist())
    assert np.array_equal(env.current_time_step().observation, observation)
    assert [600] * ROWS == env.get_info()["episode_steps"].numpy().tolist()
    assert not tf.reduce_any(env.get_info()["truncated"])


def test_a_traced_loop_begins_other_episodes_each_time():
    """Random numbers are of the run, not of the tracing."""
    _, play = compiled_play()

    once, twice = play(tf.constant(0))[1], play(tf.constant(0))[1]

    assert not np.any(np.all(once.numpy() == twice.numpy(), axis=1))


def test_a_checkpoint_restores_everything(tmp_path):
    """The state, the counts and the random streams, in another environment too."""
    env = TFCartPole(4, max_episode_steps=3, seed=1)
    other = TFCartPole(4, max_episode_steps=3, seed=2)
    env.step([0, 0, 1, 1])
    env.reset([True, False, False, False])
    env.step([0, 0, 1, 1])
    path = tf.train.Checkpoint(env=env).save(str(tmp_path / "state"))
    actions = np.random.default_rng(1).integers(0, 2, (5, 4))
    expected = [arrays(env.step(action)) for action in actions]

    for restored in (env, other):
        status = tf.train.Checkpoint(env=restored).restore(path)
        status.assert_existing_objects_matched()

        for step, action in zip(expected, actions, strict=True):
            for theirs, ours in zip(step, arrays(restored.step(action)), strict=True):
                assert np.array_equal(theirs, ours)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8])
def test_integers_of_every_dtype_are_actions(dtype):
    env, like = TFCartPole(2, seed=1), TFCartPole(2, seed=1)
    env.reset()
    like.reset()

    time_step = env.step(tf.constant([0, 1], dtype))

    assert np.array_equal(like.step([0, 1]).observation, time_step.observation)


@pytest.mark.parametrize(
    ("action", "got", "reason"),
    [
        (
            [0, 1],
            "tensor of shape (2,), dtype int64",
            "The batch has 2 rows instead of 3.",
        ),
        (1, "tensor of shape (), dtype int64", "The whole batch dimension is missing."),
        (
            [0.0, 1.0, 0.0],
            "tensor of shape (3,), dtype float32",
            "dtype is float32; the spec says int64.",
        ),
        (
            [0, 1, 2],
            "tensor of shape (3,), dtype int64, values 0 … 2",
            "The value 2 at index (2,) is out of bounds.",
        ),
    ],
)
def test_an_invalid_action_is_refused_and_nothing_steps(action, got, reason):
    env = TFCartPole(3, seed=1)
    before = env.reset()

    with pytest.raises(SpecError) as caught:
        env.step(action)

    assert (
        "TFCartPole.step() was given an action that does not fit its spec.\n\n"
        "  expected   tensor of shape (3,), dtype int64, values 0 … 1\n"
        f"  got        {got}\n\n"
        f"{reason}"
    ) == str(caught.value)
    assert np.array_equal(before.observation, env.current_time_step().observation)


def test_a_graph_refuses_values_out_of_bounds_when_it_runs():
    env = TFCartPole(3, seed=1)
    before = env.reset()

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.function(env.step)(tf.constant([0, 1, 2]))

    assert (
        "[TFCartPole.step() was given an action that does not fit its spec: tensor of "
        "shape (3,), dtype int64, values 0 … 1 expected.] [Got values] [0] […] [2]"
    ) in str(caught.value)
    assert np.array_equal(before.observation, env.current_time_step().observation)


def test_the_action_of_a_row_that_has_ended_is_ignored():
    env = TFCartPole(2, max_episode_steps=3)
    env.reset()
    env.step([0, 1])
    env.reset([False, True])
    env.step([0, 1])
    env.step([0, 1])

    time_step = env.step([99, 1])

    assert [0, 2] == time_step.step_type.numpy().tolist()
    assert [0.0, 1.0] == time_step.reward.numpy().tolist()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"batch_size": None}, "batch_size .*an integer of at least 1"),
        ({"max_episode_steps": 0}, "max_episode_steps .*an integer of at least 1.* no"),
    ],
)
def test_invalid_sizes_are_refused(arguments, expected):
    with pytest.raises(ValueError, match=expected):
        TFCartPole(**arguments)


def test_given_states_must_have_four_numbers_per_row(message_of):
    assert (
        "The state of TFCartPole.reset_to() must have shape (3, 4), four numbers for "
        "each row, got shape (3, 2)."
    ) == message_of(SpecError, lambda: TFCartPole(3).reset_to(tf.zeros([3, 2])))
