"""RandomTFEnvironment: specs of any kind, whose rows end together."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import nest
from envkit.errors import SpecError
from envkit.specs.validation import check_fits
from envkit.tf import RandomTFEnvironment
from envkit.tf.tensor_spec import BoundedTensorSpec, to_array_spec

ROWS = 3
OBSERVATION = {
    "words": tf.TensorSpec([2], tf.string),
    "numbers": (
        tf.TensorSpec([], tf.int64),
        BoundedTensorSpec([2], tf.float32, [0.0, 5.0], [1.0, 9.0]),
    ),
}
REWARD = {"points": BoundedTensorSpec([2, 2], tf.float64, 1.0, 2.0)}
ACTION = {
    "move": BoundedTensorSpec([2], tf.int32, [1, 10], [3, 12]),
    "speed": tf.TensorSpec([], tf.float32),
}
GOOD = {
    "move": np.array([[1, 10], [2, 11], [3, 12]], np.int32),
    "speed": np.zeros(3, "f"),
}


def nested(probability=0.3, **arguments):
    spec = envkit.time_step_spec(OBSERVATION, REWARD)
    return RandomTFEnvironment(spec, ACTION, ROWS, probability, **arguments)


def simple(probability=0.3, rows=1, **arguments):
    spec = envkit.time_step_spec(BoundedTensorSpec([], tf.int32, 0, 10**6))
    action = BoundedTensorSpec([], tf.int32, 0, 4)
    return RandomTFEnvironment(spec, action, rows, probability, **arguments)


@functools.cache
def shared():
    """Returns an environment for tests that look at it, and its traced step."""
    env = nested(seed=2)
    return env, tf.function(env.step)


def arrays(time_step):
    return [leaf.numpy() for leaf in nest.flatten(time_step)]


def same(time_step, other):
    pairs = zip(arrays(time_step), arrays(other), strict=True)
    return all(np.array_equal(ours, theirs) for ours, theirs in pairs)


def test_the_current_time_step_of_a_new_environment_is_zeros():
    time_step = nested().current_time_step()
    assert [0] * ROWS == time_step.step_type.numpy().tolist()
    assert [0.0] * ROWS == time_step.discount.numpy().tolist()
    assert not np.any(time_step.reward["points"])
    assert not np.any(time_step.observation["numbers"][1])
    assert {b""} == set(time_step.observation["words"].numpy().ravel())


def test_the_defaults_are_one_row_and_a_tenth():
    env = RandomTFEnvironment(
        envkit.time_step_spec(tf.TensorSpec([], tf.int32)), tf.TensorSpec([], tf.int32)
    )
    assert 1 == env.batch_size
    assert (1,) == env.reset().observation.shape


def test_array_specs_are_accepted():
    spec = envkit.time_step_spec(envkit.ArraySpec((2,), np.float32))
    env = RandomTFEnvironment(spec, envkit.BoundedArraySpec((), np.int32, 0, 1))
    assert tf.TensorSpec([2], tf.float32) == env.observation_spec()
    assert env.step([0]).is_first()


@pytest.mark.parametrize("traced", [False, True])
def test_every_time_step_fits_its_spec(traced):
    env, step = shared()
    env.reset()
    spec = to_array_spec(env.time_step_spec())
    kinds = set()
    for _ in range(25):
        time_step = (step if traced else env.step)(GOOD)
        kinds |= set(time_step.step_type.numpy().tolist())
        values = tf.nest.map_structure(lambda tensor: tensor.numpy(), time_step)

        if values.step_type[0] == envkit.StepType.FIRST:
            assert not np.any(values.reward["points"])
            values = values._replace(reward={"points": np.ones((ROWS, 2, 2))})
        check_fits(values, spec, outer_dims=(ROWS,))

    assert {0, 1, 2} == kinds


def test_all_rows_end_together_and_begin_with_the_next_step():
    _, step = shared()
    time_steps = [step(GOOD) for _ in range(40)]

    for time_step in time_steps:
        assert 1 == len(set(time_step.step_type.numpy().tolist()))
    stream = [int(time_step.step_type[0]) for time_step in time_steps]
    pairs = list(itertools.pairwise(stream))
    assert (2, 0) in pairs
    assert all((before == 2) == (after == 0) for before, after in pairs)


def test_discounts_stay_within_their_spec():
    spec = envkit.time_step_spec(tf.TensorSpec([], tf.int32))
    spec = spec._replace(discount=BoundedTensorSpec([], tf.float32, 0.25, 0.75))
    env = RandomTFEnvironment(spec, tf.TensorSpec([], tf.int32), 1, 1.0)
    assert [0.75, 0.25] == [float(env.step([0]).discount[0]) for _ in range(2)]


def test_discounts_without_bounds_are_one_and_zero():
    spec = envkit.time_step_spec(tf.TensorSpec([], tf.int32))
    spec = spec._replace(discount=tf.TensorSpec([2], tf.float64))
    env = RandomTFEnvironment(spec, tf.TensorSpec([], tf.int32), 1, 1.0)

    discounts = [env.step([0]).discount for _ in range(2)]

    assert [[[1.0, 1.0]], [[0.0, 0.0]]] == [step.numpy().tolist() for step in discounts]
    assert tf.float64 == discounts[0].dtype


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_the_end_probability_determines_episode_lengths(probability):
    env = simple(probability, rows=2)
    env.reset()

    steps = [env.step([0, 1]) for _ in range(4)]

    stream = [(int(step.step_type[0]), float(step.discount[1])) for step in steps]
    assert ([(2, 0.0), (0, 1.0)] * 2 if probability else [(1, 1.0)] * 4) == stream


def test_a_step_before_any_reset_begins_an_episode_and_ignores_the_action():
    env = nested()
    action = {"move": np.full((ROWS, 2), 99, np.int32), "speed": np.zeros(3, "f")}

    time_step = env.step(action)

    assert [0] * ROWS == time_step.step_type.numpy().tolist()
    assert [1.0] * ROWS == time_step.discount.numpy().tolist()


def test_the_current_time_step_is_the_last_returned_one():
    env, step = shared()
    for call in (env.reset, lambda: env.step(GOOD), lambda: step(GOOD)):
        time_step = call()
        assert same(time_step, env.current_time_step())


def test_a_mask_resets_its_rows_and_those_that_never_began():
    env = simple(probability=0.0, rows=ROWS, seed=1)
    assert np.all(env.reset([True, False, True]).observation.numpy() > 0)
    before = env.step([0, 0, 0])

    time_step = env.reset([False, True, False])

    assert [1, 0, 1] == time_step.step_type.numpy().tolist()
    kept = tf.equal(before.observation, time_step.observation)
    assert [True, False, True] == kept.numpy().tolist()
    assert [1, 1, 1] == env.step([0, 0, 0]).step_type.numpy().tolist()


def test_equal_seeds_give_equal_streams_and_others_do_not():
    def play(**arguments):
        env = simple(rows=2, **arguments)
        return [env.step([0, 0]).observation.numpy().tolist() for _ in range(6)]

    assert play(seed=7) == play(seed=7) != play(seed=8)
    assert play(seed=None) != play(seed=None)


def test_without_a_seed_tensorflows_global_seed_is_used():
    streams = []
    for _ in range(2):
        tf.random.set_seed(5)
        env = simple()
        streams.append([int(env.step([0]).observation[0]) for _ in range(4)])
    assert streams[0] == streams[1]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_environment_runs_in_a_tensorflow_loop(compiled):
    env = simple(rows=2, seed=1)

    @tf.function(jit_compile=compiled)
    def play(steps):
        def body(step, ends, _):
            time_step = env.step(tf.constant([0, 1]))
            ends += tf.cast(time_step.is_last(), tf.int32)
            return step + 1, ends, time_step.observation

        zeros = tf.zeros([2], tf.int32)
        return tf.while_loop(
            lambda step, *_: step < steps, body, (tf.constant(0), zeros, zeros)
        )

    _, ends, observation = play(tf.constant(60))

    assert ends[0] == ends[1] > 5
    assert np.array_equal(observation, env.current_time_step().observation)


def test_a_checkpoint_restores_the_stream(tmp_path):
    env, other = nested(seed=1), nested(seed=2)
    for _ in range(3):
        env.step(GOOD)
    path = tf.train.Checkpoint(env=env).save(str(tmp_path / "state"))
    now = env.current_time_step()
    expected = [env.step(GOOD) for _ in range(5)]

    for restored in (env, other):
        status = tf.train.Checkpoint(env=restored).restore(path)
        status.assert_existing_objects_matched()

        assert same(now, restored.current_time_step())
        assert all(same(step, restored.step(GOOD)) for step in expected)


EXPECTED = "tensor of shape (3, 2), dtype int32, values [1, 10] … [3, 12]"


INT = np.int32


@pytest.mark.parametrize(
    ("move", "got", "reason"),
    [
        (np.array([1, 10], INT), "(2,), dtype int32",
         "The whole batch dimension is missing."),
        (np.ones((2, 2), INT), "(2, 2), dtype int32",
         "The batch has 2 rows instead of 3."),
        (np.ones((3, 3), INT), "(3, 3), dtype int32",
         "The shape is (3, 3) instead of (3, 2)."),
        (np.ones((3, 2), np.float32), "(3, 2), dtype float32",
         "dtype is float32; the spec says int32."),
        (np.array([[1, 10], [2, 13], [3, 12]], INT),
         "(3, 2), dtype int32, values 1 … 13",
         "The value 13 at index (1, 1) is out of bounds."),
        ({1}, "{1}", "It cannot be made a tensor."),
    ],
)  # fmt: skip
def test_an_action_that_does_not_fit_is_refused(move, got, reason):
    env, _ = shared()
    env.reset()
    subject = (
        "RandomTFEnvironment.step() was given an action that does not fit its spec"
    )

    with pytest.raises(SpecError) as caught:
        env.step({**GOOD, "move": move})

    assert (
        f"{subject} at action['move'].\n\n"
        f"  expected   {EXPECTED}\n"
        f"  got        {got if got == '{1}' else 'tensor of shape ' + got}\n\n"
        f"{reason}"
    ) == str(caught.value)


def test_an_action_of_another_structure_is_refused():
    env, _ = shared()

    with pytest.raises(SpecError) as caught:
        env.step([1])

    assert (
        "RandomTFEnvironment.step() was given an action that does not fit its spec.\n\n"
        "  expected   the structure {'move': *, 'speed': *}\n"
        "  got        a list of 1 element\n\n"
        "The value is a list; a dictionary is expected."
    ) == str(caught.value)


def test_errors_known_while_tracing_are_raised_there():
    env, _ = shared()
    with pytest.raises(SpecError, match="The batch has 2 rows instead of 3"):
        tf.function(env.step, autograph=False)({**GOOD, "speed": tf.zeros([2])})


def test_values_out_of_bounds_are_refused_when_the_graph_runs():
    env, step = shared()
    env.reset()
    before = env.current_time_step()

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        step({**GOOD, "move": GOOD["move"] + 1})

    assert (
        "[RandomTFEnvironment.step() was given an action that does not fit its spec at "
        "action[\\'move\\']: tensor of shape (3, 2), dtype int32, values [1, 10] … "
        "[3, 12] expected.] [Got values] [2] […] [13]"
    ) in str(caught.value)
    assert same(before, env.current_time_step())


def test_a_batch_of_unknown_length_is_checked_when_the_graph_runs():
    env = simple(rows=2)
    env.reset()
    step = tf.function(
        env.step, input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False
    )

    assert [2] == step.get_concrete_function().outputs[0].shape.as_list()
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        step(tf.constant([0, 1, 2]))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"rows": 0}, "batch_size .*an integer of at least 1"),
        ({"probability": 1.5}, "episode_end_probability must be between 0 and 1, got "),
    ],
)
def test_invalid_arguments_are_refused(arguments, expected):
    with pytest.raises(ValueError, match=expected):
        simple(**arguments)
