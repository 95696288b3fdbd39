"""Time steps of tensors, through the same functions that make time steps of arrays."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import ArraySpec, StepType, TimeStep
from envkit.errors import SpecError

OBSERVATION = tf.zeros([2, 4])
MAKERS = [envkit.transition, envkit.termination, envkit.truncation]


def values(time_step: TimeStep) -> TimeStep:
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), time_step)


def test_restart_with_a_tensor_returns_tensors():
    time_step = envkit.restart(tf.constant([1.0, 2.0]))
    assert all(tf.is_tensor(field) for field in time_step)
    assert (StepType.FIRST, 0.0, 1.0) == tuple(values(time_step)[:3])


@pytest.mark.parametrize(
    "batch_size", [2, [2], (2,), tf.constant(2), tf.constant([2]), np.int64(2)]
)
def test_restart_accepts_a_batch_size_of_any_form(batch_size):
    time_step = envkit.restart(tf.zeros([2, 3]), batch_size)
    assert [0, 0] == time_step.step_type.numpy().tolist()
    assert [0.0, 0.0] == time_step.reward.numpy().tolist()
    assert [1.0, 1.0] == time_step.discount.numpy().tolist()


@pytest.mark.parametrize("batch_size", [None, 5])
def test_restart_accepts_a_reward_spec_of_either_kind(batch_size):
    outer = [] if batch_size is None else [5]
    for spec in (ArraySpec([2], np.float16), tf.TensorSpec([2], tf.float16)):
        time_step = envkit.restart(tf.zeros([5, 2]), batch_size, {"points": spec})
        assert tf.float16 == time_step.reward["points"].dtype
        assert [*outer, 2] == time_step.reward["points"].shape.as_list()


def test_restart_with_an_array_accepts_a_tensor_reward_spec():
    time_step = envkit.restart(-1, None, tf.TensorSpec([2], tf.float64))
    assert isinstance(time_step.reward, np.ndarray)
    assert np.float64 == time_step.reward.dtype


@pytest.mark.parametrize(
    ("function", "step_type", "discount"),
    [
        (envkit.transition, StepType.MID, 1.0),
        (envkit.termination, StepType.LAST, 0.0),
        (envkit.truncation, StepType.LAST, 1.0),
    ],
)
def test_a_batch_has_a_step_type_and_a_discount_for_each_row(
    function, step_type, discount
):
    time_step = values(function(tf.zeros([2, 1]), tf.constant([2.0, 3.0])))
    assert [int(step_type)] * 2 == time_step.step_type.tolist()
    assert [discount] * 2 == time_step.discount.tolist()
    assert [2.0, 3.0] == time_step.reward.tolist()


def test_the_reward_keeps_its_dtype():
    time_step = envkit.transition(tf.zeros([2]), tf.constant([1.0, 2.0], tf.float64))
    assert tf.float64 == time_step.reward.dtype


def test_a_python_number_becomes_a_float32_reward():
    time_step = envkit.transition(tf.zeros([2]), 1)
    assert tf.float32 == time_step.reward.dtype
    assert [] == time_step.step_type.shape.as_list()


def test_a_tensor_reward_alone_makes_a_time_step_of_tensors():
    time_step = envkit.transition((), tf.constant(1.0))
    assert tf.is_tensor(time_step.step_type)


def test_nested_rewards_make_a_batch_of_their_first_dimension():
    reward = [tf.ones([2, 1]), tf.ones([2, 3])]

    time_step = values(envkit.transition(tf.zeros([2, 1]), reward, tf.constant(0.5)))

    assert [1, 1] == time_step.step_type.tolist()
    assert [0.5, 0.5] == time_step.discount.tolist()


def test_outer_dims_define_the_batch():
    reward = tf.ones([2, 3])

    for dims in ([], ()):
        assert 0 == envkit.termination(tf.zeros([2]), reward, dims).step_type.shape.rank
    assert (2, 3) == envkit.termination(tf.zeros([2]), reward, [2, 3]).step_type.shape
    assert (2,) == envkit.truncation(
        tf.zeros([2]), reward, outer_dims=tf.TensorShape([2])
    ).discount.shape


def test_inside_a_function_the_batch_size_may_be_unknown():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def step(reward):
        return envkit.transition(reward, reward, 0.5)

    for rows in (2, 3):
        time_step = values(step(tf.ones([rows])))

        assert [1] * rows == time_step.step_type.tolist()
        assert [0.5] * rows == time_step.discount.tolist()


def test_static_shapes_are_inferred_inside_a_function():
    shapes = []

    @tf.function
    def step(reward):
        time_step = envkit.transition(reward, reward, 0.5)
        shapes.extend([time_step.step_type.shape, time_step.discount.shape])
        return time_step

    step(tf.ones([4]))

    assert [[4], [4]] == [shape.as_list() for shape in shapes]


@pytest.mark.parametrize("traced", [False, True])
def test_is_last_of_tensors_is_a_tensor(traced):
    def ends(step_type):
        return TimeStep(step_type, 0.0, 1.0, ()).is_last()

    ended = (tf.function(ends) if traced else ends)(tf.constant([0, 1, 2]))

    assert tf.is_tensor(ended)
    assert [False, False, True] == ended.numpy().tolist()


NO_NUMBERS = [
    ("a", "the string 'a'"),
    (tf.constant(["a"]), "a tensor of shape (1,), dtype string"),
    (10**400, f"1{'0' * 39} of type int"),
    (1j, "1j of type complex"),
    (np.array(None), "array of shape (), dtype object that holds None"),
]
NO_SIZES = [
    "a",
    -2,
    2.0,
    True,
    [2, -1],
    [[2]],
    [1, [2, 3]],
    [None],
    {},
    tf.TensorShape([None]),
    tf.TensorShape(None),
    tf.constant(-2),
    tf.constant(2.0),
]

# A function, what it is given besides the observation, its error, and the message.
REFUSALS = [
    *((envkit.transition, (reward,), SpecError,
       f"The {path} of transition() must be a number, an array or a tensor, got None. "
       "Where nothing was earned, pass 0.0.")
      for reward, path in [
          (None, "reward"),
          ({"a": None}, "reward['a']"),
          ({"a": 1.0, "b": (tf.ones([2]), None)}, "reward['b'][1]"),
      ]),
    *((make, ({"a": reward},), SpecError,
       f"The reward['a'] of {make.__name__}() must be a number or an array of numbers, "
       f"got {described}.")
      for make in MAKERS for reward, described in NO_NUMBERS),
    *((make, (tf.ones([2]), discount), SpecError,
       f"The discount of {make.__name__}() must be a number or an array of numbers, "
       f"got {described}.")
      for make in (envkit.transition, envkit.truncation)
      for discount, described in [
          ("a", "the string 'a'"),
          (tf.constant("a"), "a tensor of shape (), dtype string"),
          (["a"], "a list of 1 element"),
      ]),
    (envkit.truncation, (1.0, None), SpecError,
     "The discount of truncation() must be a number, an array or a tensor, got None. "
     "Pass 1.0 where later rewards count in full, and 0.0 where the task is over."),
    (envkit.transition, ([1.0, 2.0], 1.0, [2]), SpecError,
     "transition() was given a reward of shape () at [0], which must begin with the "
     "batch's dimensions (2,). A list or tuple is a nest of rewards, not a batch: use "
     "np.array."),
    *((envkit.restart, (sizes,), SpecError,
       "The batch_size of restart() must be a size or a sequence of sizes, got "
       f"{sizes!r:.80}.")
      for sizes in NO_SIZES),
    *((envkit.transition, (tf.ones([2]), 1.0, sizes), SpecError,
       "The outer_dims of transition() must be a size or a sequence of sizes, got "
       f"{sizes!r:.80}.")
      for sizes in NO_SIZES),
    (envkit.restart, (2, np.float32), TypeError,
     "The reward_spec of restart() must be a spec, got <class 'numpy.float32'>."),
    (envkit.restart, (2, {"a": [None]}), TypeError,
     "The reward_spec['a'][0] of restart() must be a spec, got None."),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "error", "expected"), REFUSALS)
def test_errors_say_what_must_be(function, arguments, error, expected, message_of):
    assert expected == message_of(error, lambda: function(OBSERVATION, *arguments))


TWO, THREE = tf.ones([2]), tf.ones([3])
EACH = " Pass one number for all rows, or one for each."

# A function, a reward, other arguments, and what is wrong.
MISFITS = [
    (envkit.transition, THREE, {"outer_dims": [2]}, "reward of shape (3,)", "(2,)."),
    (envkit.termination, 1.0, {"outer_dims": [2]}, "reward of shape ()", "(2,)."),
    (envkit.truncation, TWO, {"outer_dims": [2, 3]}, "reward of shape (2,)", "(2, 3)."),
    (envkit.termination, {"a": TWO, "b": THREE}, {},
     "reward of shape (3,) at ['b']", "(2,)."),
    (envkit.truncation, {"a": TWO, "b": 1.0}, {},
     "reward of shape () at ['b']", "(2,)."),
    *((make, TWO, {"discount": discount}, "discount of shape (3,)", "(2,)." + EACH)
      for make in (envkit.transition, envkit.truncation)
      for discount in (THREE, np.ones(3), [1.0, 1.0, 1.0])),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reward", "others", "wrong", "dims"), MISFITS)
@pytest.mark.parametrize("traced", [False, True])
def test_shapes_must_begin_with_the_batchs_dimensions(
    message_of, make, reward, others, wrong, dims, traced
):
    def step(reward):
        return make(OBSERVATION, reward, **others)

    # AutoGraph would put its own account of the call around the message.
    call = tf.function(step, autograph=False) if traced else step
    raised = message_of(SpecError, lambda: call(reward))

    assert (
        f"{make.__name__}() was given a {wrong}, which must begin with the batch's "
        f"dimensions {dims}"
    ) == raised


def test_known_shapes_are_checked_while_the_batch_is_unknown(message_of):
    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None, 3])],
    )
    def step(first, second):
        return envkit.transition(first, {"a": second, "b": first}, outer_dims=[2, 4])

    raised = message_of(SpecError, step.get_concrete_function)

    assert (
        "transition() was given a reward of shape (None, 3) at ['a'], which must "
        "begin with the batch's dimensions (2, 4)."
    ) == raised


def test_autograph_keeps_the_error_message():
    """It wraps the error in one of its own on some Pythons, and not on others."""

    @tf.function
    def step(reward):
        return envkit.transition(OBSERVATION, reward, outer_dims=[2])

    sentence = (
        "transition() was given a reward of shape (3,), which must begin with the "
        "batch's dimensions (2,)."
    )
    with pytest.raises(Exception, match=re.escape(sentence)):
        step(tf.ones([3]))


def test_sizes_unknown_while_tracing_are_accepted():
    @tf.function(input_signature=[tf.TensorSpec([None])] * 3)
    def step(first, second, discount):
        return envkit.transition(first, {"a": first, "b": second}, discount)

    time_step = values(step(tf.ones([2]), tf.ones([2]), tf.ones([2])))

    assert [1, 1] == time_step.step_type.tolist()


@pytest.mark.parametrize("static", [[2], [None], None])
def test_a_discount_of_unknown_rank_holds_for_every_row(static):
    @tf.function(input_signature=[tf.TensorSpec(static), tf.TensorSpec(None)])
    def step(reward, discount):
        return envkit.truncation(OBSERVATION, reward, discount)

    for discount in (0.5, [0.5, 0.5]):
        time_step = values(step(tf.ones([2]), tf.constant(discount)))

        assert [0.5, 0.5] == time_step.discount.tolist()


def test_a_reward_of_unknown_rank_is_a_batch_if_it_has_dimensions():
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    def step(reward, discount):
        return envkit.transition(OBSERVATION, reward, discount)

    for reward in (1.0, [1.0, 1.0], [[1.0, 1.0], [1.0, 1.0]]):
        time_step = values(step(tf.constant(reward), tf.constant(0.5)))

        dims = np.shape(reward)[:1]
        assert np.full(dims, 1).tolist() == time_step.step_type.tolist()
        assert np.full(dims, 0.5).tolist() == time_step.discount.tolist()


def test_sizes_may_be_tensors_beside_numbers():
    shapes = []

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def begin(observation):
        time_step = envkit.restart(observation, [tf.shape(observation)[0], 3])
        shapes.append(time_step.step_type.shape.as_list())
        return time_step

    time_step = begin(tf.zeros([2]))

    assert [[None, 3]] == shapes
    assert [2, 3] == time_step.step_type.shape.as_list()


def test_the_time_step_spec_of_tensor_specs_is_made_of_tensor_specs():
    spec = envkit.time_step_spec({"camera": tf.TensorSpec([3], tf.float32)})
    assert tf.TensorSpec([], tf.int32, "step_type") == spec.step_type
    assert tf.TensorSpec([], tf.float32, "reward") == spec.reward
    assert (0.0, 1.0) == (float(spec.discount.minimum), float(spec.discount.maximum))
    assert isinstance(spec.discount, tf.TensorSpec)


TENSOR, ARRAY = tf.TensorSpec([], tf.float32), ArraySpec((), np.float32)


@pytest.mark.parametrize(
    ("observation", "reward", "expected"),
    [
        (ARRAY, TENSOR, "Both must be of one kind"),
        (TENSOR, ARRAY, "Both must be of one kind"),
        (
            TENSOR,
            np.float32,
            "The reward spec is <class 'numpy.float32'>, but the observation spec is "
            "made of tensor specs. Both must be of one kind.",
        ),
        (
            TENSOR,
            {"a": [np.float32]},
            "The reward spec at ['a'][0] is <class 'numpy.float32'>, but the "
            "observation spec is made of tensor specs. Both must be of one kind.",
        ),
        (
            {"camera": TENSOR, "radar": [ARRAY]},
            None,
            "The observation spec at ['radar'][0] is ArraySpec(shape=(), "
            "dtype=float32), but its first leaf is a tensor spec. All must be of one "
            "kind.",
        ),
    ],
)
def test_specs_of_several_kinds_do_not_mix(observation, reward, expected, message_of):
    assert expected in message_of(
        TypeError, lambda: envkit.time_step_spec(observation, reward)
    )


def test_tensorflow_treats_a_time_step_like_tf_agents_namedtuple():
    other = collections.namedtuple(
        "TimeStep", ["step_type", "reward", "discount", "observation"]
    )

    tf.nest.assert_same_structure(
        envkit.restart(np.zeros(2)), other(0, 0.0, 1.0, np.zeros(2))
    )


def test_numpy_numbers_keep_their_dtype():
    time_step = envkit.transition(OBSERVATION, np.float64(2.0), outer_dims=())
    assert tf.float64 == time_step.reward.dtype
