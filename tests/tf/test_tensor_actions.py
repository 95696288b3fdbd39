"""TensorActions: what is refused at once, and what a graph refuses when it runs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from envkit.errors import SpecError
from envkit.tf.tensor_actions import TensorActions
from envkit.tf.tensor_spec import BoundedTensorSpec

MOVE = BoundedTensorSpec([], tf.int32, 0, 3)


def test_numbers_of_python_get_the_dtype_of_the_spec():
    (move,) = TensorActions("Game", MOVE, 2).leaves(np.array([0, 3], np.int32))
    (same,) = TensorActions("Game", [MOVE], 2).leaves([tf.constant([0, 3])])

    assert (tf.int32, tf.int32) == (move.dtype, same.dtype)


def test_arrays_and_tensors_have_to_have_it():
    for action in (np.array([0, 1]), tf.constant([0, 1], tf.int64)):
        with pytest.raises(SpecError, match="dtype is int64; the spec says int32"):
            TensorActions("Game", MOVE, 2).leaves(action)


def test_integers_are_cast_where_that_was_asked_for():
    actions = TensorActions("Game", [MOVE, tf.TensorSpec([], tf.float32)], 1, cast=True)

    move, _ = actions.leaves([np.array([3], np.uint8), np.zeros(1, np.float32)])

    assert tf.int32 == move.dtype
    with pytest.raises(SpecError, match="dtype is float64; the spec says float32"):
        actions.leaves([np.array([3]), np.zeros(1)])


def test_a_batch_of_any_size_is_taken_where_none_was_said():
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


def test_a_graph_checks_what_has_bounds_with_an_operation_each():
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
