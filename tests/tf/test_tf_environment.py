"""TFEnvironment: what every environment of tensors has, seen in two small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import nest
from envkit.errors import SpecError
from envkit.tf import TFCartPole, TFEnvironment
from envkit.tf.tensor_spec import BoundedTensorSpec, sample_spec_nest
from envkit.tf.tf_environment import TensorActions

ROWS = 3
LENGTH = 2


class Counting(TFEnvironment):
    """Counts the steps of each row's episode, which has two of them."""

    def __init__(self, rows: int = ROWS) -> None:
        spec = envkit.time_step_spec(
            {"steps": tf.TensorSpec([], tf.int64)}, tf.TensorSpec([2], tf.float32)
        )
        super().__init__(spec, [tf.TensorSpec([], tf.int64)], rows)
        self._steps = tf.Variable(tf.fill([rows], tf.constant(LENGTH, tf.int64)))
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def _current_time_step(self) -> envkit.TimeStep:
        steps = self._steps.read_value()
        return envkit.TimeStep(
            tf.cast(steps, tf.int32),
            tf.zeros([steps.shape[0], 2]),
            tf.cast(steps < LENGTH, tf.float32),
            {"steps": steps},
        )

    def _reset(self) -> envkit.TimeStep:
        return self._reset_rows(tf.ones_like(self._steps, tf.bool))

    def _step(self, action: Any) -> envkit.TimeStep:
        self._steps.assign((self._steps + action[0]) % (LENGTH + 1))
        return self._current_time_step()

    def _reset_rows(self, mask: Any) -> envkit.TimeStep:
        self._steps.assign(tf.where(mask, tf.zeros_like(self._steps), self._steps))
        return self._current_time_step()


class Unmasked(Counting):
    """Cannot reset single rows."""

    _reset_rows = TFEnvironment._reset_rows

    def _reset(self) -> envkit.TimeStep:
        self._steps.assign(tf.zeros_like(self._steps))
        return self._current_time_step()


def ones() -> list[Any]:
    return [tf.ones([ROWS], tf.int64)]


def step_types(time_step: envkit.TimeStep) -> list[int]:
    return time_step.step_type.numpy().tolist()


def test_an_environment_needs_its_three_methods():
    with pytest.raises(TypeError, match=r"_current_time_step.*_reset.*_step"):
        TFEnvironment()


def test_the_specs_match_the_arguments():
    env = Counting()
    assert env.time_step_spec().observation is env.observation_spec()
    assert {"steps": tf.TensorSpec([], tf.int64)} == env.observation_spec()
    assert tf.TensorSpec([2], tf.float32) == env.reward_spec()
    assert env.time_step_spec().discount is env.discount_spec()
    assert [tf.TensorSpec([], tf.int64)] == env.action_spec()


def test_a_tensorflow_environment_is_a_batch():
    assert (True, ROWS) == (Counting().batched, Counting().batch_size)


def test_steps_and_resets_reach_the_environment():
    env = Counting()
    assert [0] * ROWS == step_types(env.reset())
    assert [[1] * ROWS, [2] * ROWS, [0] * ROWS] == [
        step_types(env.step(ones())) for _ in range(3)
    ]


def test_the_current_time_step_is_that_of_the_rows():
    env = Counting()
    env.reset()
    tf.function(env.step)(ones())
    assert [1] * ROWS == step_types(env.current_time_step())
    assert [1] * ROWS == step_types(env.current_time_step())


def test_a_mask_resets_only_its_rows():
    env = Counting()
    env.reset()
    env.step(ones())
    assert env.resets_rows
    assert [1, 0, 1] == step_types(env.reset([False, True, False]))
    assert [0, 0, 1] == step_types(env.reset(np.array([True, False, False])))


def test_a_mask_needs_an_environment_with_masked_resets(message_of):
    env = Unmasked()
    assert not env.resets_rows
    assert (
        "Unmasked cannot reset single rows. Call reset() without a mask, or override "
        "_reset_rows(mask), which starts an episode in the masked rows only."
    ) == message_of(NotImplementedError, lambda: env.reset([True, False, False]))


@pytest.mark.parametrize(
    ("mask", "got"),
    [
        ([True, False], "tensor of shape (2,), dtype bool"),
        ([1, 0, 1], "tensor of shape (3,), dtype int32"),
    ],
)
def test_a_mask_must_have_a_boolean_for_each_row(mask, got, message_of):
    assert (
        "Counting.reset() was given a mask that does not fit its spec.\n\n"
        "  expected   boolean tensor of shape (3,)\n"
        f"  got        {got}\n\n"
        "A mask has one boolean for each row: true where an episode is to begin."
    ) == message_of(SpecError, lambda: Counting().reset(mask))


def test_a_mask_of_unknown_length_gets_its_length():
    env = Counting()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.bool)])
    def reset(mask):
        return env.reset(mask)

    env.reset()
    env.step(ones())

    assert [ROWS] == reset.get_concrete_function().outputs[0].shape.as_list()
    assert [0, 1, 1] == step_types(reset(tf.constant([True, False, False])))


def test_a_with_statement_closes_the_environment():
    with Counting() as env:
        env.reset()
    assert 1 == env.closed


def test_closing_and_rendering_have_defaults():
    class Quiet(Counting):
        close = TFEnvironment.close

    env = Quiet()

    assert env.close() is None
    with pytest.raises(NotImplementedError) as caught:
        env.render()
    assert "Quiet cannot render." == str(caught.value)


def test_a_checkpoint_saves_and_restores_the_variables(tmp_path):
    env, other = Counting(), Counting()
    env.reset()
    env.step(ones())

    path = tf.train.Checkpoint(env=env).save(str(tmp_path / "state"))
    env.step(ones())
    for restored in (env, other):
        status = tf.train.Checkpoint(env=restored).restore(path)
        status.assert_existing_objects_matched()

        assert [1] * ROWS == step_types(restored.current_time_step())
    assert 1 == len(env.variables)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_environment_runs_in_a_tensorflow_loop(compiled):
    env = Counting()

    @tf.function(jit_compile=compiled)
    def play(steps):
        env.reset()

        def body(step, total):
            return step + 1, total + env.step(ones()).observation["steps"]

        start = (tf.constant(0), tf.zeros([ROWS], tf.int64))
        return tf.while_loop(lambda step, _: step < steps, body, start)

    _, total = play(tf.constant(8))

    # 1, 2, 0, again and again.
    assert [9] * ROWS == total.numpy().tolist()
    assert [2] * ROWS == step_types(env.current_time_step())


def test_an_error_keeps_its_class_while_a_function_is_traced():
    with pytest.raises(SpecError, match="was given an action"):
        tf.function(TFCartPole(2).step)(tf.zeros([3], tf.int64))


# What a module does with its attributes.


class Ported(TFEnvironment):
    """Keeps its specs as attributes first, as environments of TF-Agents do."""

    def __init__(self):
        self.name = "ported"
        self._observation_spec = {"b": [tf.TensorSpec([], tf.float32)], "a": ()}
        self._action_spec = [BoundedTensorSpec([], tf.int32, 0, 1)]
        spec = envkit.time_step_spec(self._observation_spec)
        super().__init__(spec, self._action_spec)

    def _current_time_step(self):
        return envkit.restart({"b": [tf.zeros([1])], "a": ()}, batch_size=1)

    def _reset(self):
        return self._current_time_step()

    def _step(self, action):
        return envkit.transition({"b": [tf.zeros([1])], "a": ()}, tf.ones([1]))


def test_specs_match_those_of_the_environment():
    env = Ported()
    assert list is type(env.action_spec())
    assert dict is type(env.observation_spec())
    assert ["b", "a"] == list(env.observation_spec())
    assert list is type(env.observation_spec()["b"])
    assert () == env.observation_spec()["a"]


def test_actions_can_be_sampled_from_specs_that_are_lists():
    (action,) = sample_spec_nest(Ported().action_spec(), outer_dims=(1,))
    assert [1] == action.shape


def test_nests_wrapped_by_a_module_can_be_rebuilt():
    module = tf.Module()
    module.nest = [{"a": [1]}, (2, [3])]
    doubled = nest.map_structure(lambda leaf: 2 * leaf, module.nest)
    assert [{"a": [2]}, (4, [6])] == doubled


def test_an_environment_may_have_a_name():
    assert "ported" == Ported().name
    assert "tf_cart_pole" == TFCartPole().name


def test_subclasses_find_the_specs_under_tf_agents_names():
    env = Ported()
    assert env._action_spec == env.action_spec()
    assert env._time_step_spec == env.time_step_spec()


MOVE = BoundedTensorSpec([], tf.int32, 0, 3)


def test_numbers_of_python_get_the_dtype_of_the_spec():
    (move,) = TensorActions("Game", MOVE, 2).leaves(np.array([0, 3], np.int32))
    (same,) = TensorActions("Game", [MOVE], 2).leaves([tf.constant([0, 3])])
    assert (tf.int32, tf.int32) == (move.dtype, same.dtype)


def test_arrays_and_tensors_must_have_the_dtype_of_the_spec():
    for action in (np.array([0, 1]), tf.constant([0, 1], tf.int64)):
        with pytest.raises(SpecError, match="dtype is int64; the spec says int32"):
            TensorActions("Game", MOVE, 2).leaves(action)


def test_integers_are_cast_on_request():
    actions = TensorActions("Game", [MOVE, tf.TensorSpec([], tf.float32)], 1, cast=True)

    move, _ = actions.leaves([np.array([3], np.uint8), np.zeros(1, np.float32)])

    assert tf.int32 == move.dtype
    with pytest.raises(SpecError, match="dtype is float64; the spec says float32"):
        actions.leaves([np.array([3]), np.zeros(1)])


def test_without_a_batch_size_any_batch_is_accepted():
    actions = TensorActions("Game", MOVE, None)

    for rows in (1, 5):
        (move,) = actions.leaves(tf.zeros([rows], tf.int32))
        assert (rows,) == move.shape
    with pytest.raises(SpecError) as caught:
        actions.leaves(tf.zeros([], tf.int32))
    assert (
        "Game.step() was given an action that does not fit its spec.\n\n"
        "  expected   tensor of shape (None,), dtype int32, values 0 … 3\n"
        "  got        tensor of shape (), dtype int32\n\n"
        "The whole batch dimension is missing."
    ) == str(caught.value)


def test_bounds_of_ignored_rows_do_not_matter():
    actions = TensorActions("Game", BoundedTensorSpec([2], tf.int32, 0, [1, 9]), 2)
    leaves = actions.leaves(np.array([[0, 9], [7, 7]], np.int32))
    assert [] == actions.check_bounds(leaves, tf.constant([False, True]))
    with pytest.raises(SpecError, match=r"The value 7 at index \(1, 0\) is out of"):
        actions.check_bounds(leaves, tf.constant([False, False]))


def test_a_graph_has_one_check_per_bounded_leaf():
    actions = TensorActions("Game", [MOVE, tf.TensorSpec([], tf.int32), MOVE], 1)
    counts = []

    @tf.function(autograph=False)
    def check(action):
        counts.append(
            len(actions.check_bounds(actions.leaves(action), tf.constant([False])))
        )
        return action[0]

    check([tf.constant([3]), tf.constant([-9]), tf.constant([0])])

    assert [2] == counts
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Game\.step"):
        check([tf.constant([3]), tf.constant([-9]), tf.constant([4])])
