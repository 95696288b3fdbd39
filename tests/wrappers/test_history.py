"""`HistoryWrapper`: the last observations, and the actions between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    RandomPyEnvironment,
    nest,
)
from envkit._internal.first_look import leave_unseen
from envkit.envs import CartPole, Catch
from envkit.py_environment import PyEnvironment
from envkit.specs import check_fits
from envkit.specs.sampling import sample_spec_nest
from envkit.testing import (
    CountingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    check_environment,
)
from envkit.testing.contract.recording import first_difference, snapshot
from envkit.time_step import restart, transition
from envkit.wrappers.history import (
    DelayObservation,
    FrameStack,
    HistoryWrapper,
    RowHistory,
    concatenated_spec,
    stacked_spec,
    with_zero,
)
from envkit.wrappers.limits import FixedLength
from tests import strategies
from tests.wrappers.environments import Drive


class CountingFrom20(CountingEnv):
    """Observes nothing but what is above zero."""

    def __init__(self, steps_per_episode=10):
        super().__init__(steps_per_episode)
        self._episodes = 2

    def observation_spec(self):
        return BoundedArraySpec((), np.int32, 20, 99)


def lists(nested):
    return {name: array.tolist() for name, array in nested.items()}


# What TF-Agents promises.


def test_actions_get_a_new_first_axis():
    env = HistoryWrapper(CartPole(), 3, include_actions=True)
    assert ["observation", "action"] == list(env.observation_spec())
    assert (3, 4) == env.observation_spec()["observation"].shape
    assert (3,) == env.observation_spec()["action"].shape


def test_three_observations_are_shown_by_default():
    env = HistoryWrapper(CountingEnv())
    assert (3, False, False) == (
        env.history_length,
        env.include_actions,
        env.tile_first_step_obs,
    )
    assert (3,) == env.observation_spec().shape


# What stands for the time before an episode: the first observation, or zeros, for which
# bounds are widened; and neither where only the newest is seen.
FILLED = {
    "history, zeros": (lambda env: HistoryWrapper(env, 3), [0, 0, 20], 0),
    "history, first": (
        lambda env: HistoryWrapper(env, 3, tile_first_step_obs=True),
        [20, 20, 20],
        20,
    ),
    "history of 1": (lambda env: HistoryWrapper(env, 1), [20], 20),
    "stack, first": (lambda env: FrameStack(env, 3), [20, 20, 20], 20),
    "stack, zeros": (
        lambda env: FrameStack(env, 3, padding_type="zero"),
        [0, 0, 20],
        0,
    ),
    "stack of 1": (lambda env: FrameStack(env, 1, padding_type="zero"), [20], 20),
    "delay": (lambda env: DelayObservation(env, 2), 0, 0),
    "delay of 0": (lambda env: DelayObservation(env, 0), 20, 20),
}


@pytest.mark.parametrize(("wrap", "first", "least"), FILLED.values(), ids=FILLED)
def test_the_padding_before_an_episode_is_within_the_bounds(wrap, first, least):
    env = wrap(CountingFrom20())
    assert first == env.reset().observation.tolist()
    assert BoundedArraySpec(np.shape(first), np.int32, least, 99) == (
        env.observation_spec()
    )


def test_actions_are_shown_with_the_observations_they_led_to():
    env = HistoryWrapper(CountingEnv(), 3, include_actions=True)
    assert [
        {"observation": [0, 0, 0], "action": [0, 0, 0]},
        {"observation": [0, 0, 1], "action": [0, 0, 5]},
        {"observation": [0, 1, 2], "action": [0, 5, 6]},
        {"observation": [1, 2, 3], "action": [5, 6, 7]},
    ] == [lists(env.step(action).observation) for action in (4, 5, 6, 7)]


# Specs.


def test_action_bounds_are_always_widened_to_zero():
    action = BoundedArraySpec((2,), np.int64, [1, 2], 3)
    env = HistoryWrapper(
        RandomPyEnvironment(ArraySpec((), np.float32), action), 1, True, True
    )
    assert BoundedArraySpec((1, 2), np.int64, 0, 3) == env.observation_spec()["action"]


def test_the_action_spec_is_unchanged():
    env = HistoryWrapper(Catch(), 3, include_actions=True)
    assert Catch().action_spec() == env.action_spec()


# Actions.


@pytest.mark.parametrize(
    "action", [1, [1], np.array(1), np.int8(1), True], ids=lambda action: repr(action)
)
def test_actions_are_shown_in_the_dtype_of_their_spec(action):
    inner = RandomPyEnvironment(
        ArraySpec((), np.float32), BoundedArraySpec(np.shape(action), np.uint8, 0, 1)
    )
    env = HistoryWrapper(inner, 2, include_actions=True)
    shown = [env.reset(), env.step(action)][-1].observation["action"]
    assert np.uint8 == shown.dtype
    assert [0, 1] == shown.ravel().tolist()


def test_actions_are_copied_into_the_history():
    inner = BatchedPyEnvironment([CountingEnv(), CountingEnv()], False)
    env = HistoryWrapper(inner, 2, include_actions=True)
    action = np.array([0, 1], np.int32)
    env.reset()
    env.step(action)
    action[:] = 1
    assert [[0, 1], [1, 1]] == env.step(action).observation["action"].tolist()


def test_actions_are_remembered_as_given():
    class Clipping(CountingEnv):
        def action_spec(self):
            return BoundedArraySpec((1,), np.float32, -1.0, 1.0)

        def _step(self, action):
            np.clip(action, -1.0, 1.0, out=action)
            return super()._step(action)

    env = HistoryWrapper(Clipping(), 2, include_actions=True)
    env.reset()
    assert [[0.0], [5.0]] == (
        env.step(np.array([5.0], np.float32)).observation["action"].tolist()
    )


def test_the_state_of_a_wrapper_without_actions_is_refused(message_of):
    token = HistoryWrapper(CountingEnv()).get_state()
    env = HistoryWrapper(CountingEnv(), include_actions=True)
    assert (
        "HistoryWrapper.set_state() was given the state of a HistoryWrapper made with "
        "other arguments, or of another environment. A state fits environments that "
        "are wrapped in the same way."
    ) == message_of(ValueError, lambda: env.set_state(token))


def test_the_environment_gets_the_original_action():
    given = []

    class Noting(CountingEnv):
        def _step(self, action):
            given.append(action)
            return super()._step(action)

    env = HistoryWrapper(Noting(), 2, include_actions=True)
    action = np.array(1, np.int64)
    env.reset()
    env.step(action)
    assert given[0] is action


@pytest.mark.parametrize("action", [None, "left", [1, 2]])
def test_the_action_after_the_end_of_an_episode_may_be_anything(action):
    env = HistoryWrapper(CountingEnv(steps_per_episode=1), 2, include_actions=True)
    env.reset()
    env.step(1)
    assert [0, 0] == env.step(action).observation["action"].tolist()


def test_repeated_ends_have_the_same_history_in_a_batch():
    def play(env, action):
        env.reset()
        return [env.step(action).observation["action"] for _ in range(5)]

    def wrapped(env):
        return HistoryWrapper(FixedLength(env, 4), 2, include_actions=True)

    inner = BatchedPyEnvironment([CountingEnv(steps_per_episode=2)], False)
    single = play(wrapped(CountingEnv(steps_per_episode=2)), 1)
    batch = play(wrapped(inner), [1])
    assert [array.tolist() for array in single] == [
        array[0].tolist() for array in batch
    ]


def test_an_environment_without_an_action_spec_shows_no_actions():
    env = HistoryWrapper(RandomPyEnvironment(ArraySpec((), np.int64)), 2, True)
    env.reset()
    assert () == env.step("anything").observation["action"]


def test_a_failed_step_leaves_no_action_in_the_history():
    class Failing(CountingEnv):
        def _step(self, action):
            if int(action) == 9:
                raise RuntimeError("no such gear")
            return super()._step(action)

    env = HistoryWrapper(Failing(), 2, include_actions=True)
    env.reset()
    with pytest.raises(RuntimeError, match="no such gear"):
        env.step(9)
    assert [0, 1] == env.step(1).observation["action"].tolist()


def test_an_action_of_the_wrong_shape_is_refused_before_anything_steps(message_of):
    env = HistoryWrapper(CountingEnv(), 2, include_actions=True)
    env.reset()
    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=1)\n"
        "  got        array of shape (2,), dtype int32, values 0 … 1\n\n"
        "There is one dimension too many, of size 2: a batch where a single value "
        "belongs.\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step([0, 1]))
    assert [0, 1] == env.step(0).observation["observation"].tolist()


def test_an_action_for_too_few_rows_is_refused(message_of):
    action = BoundedArraySpec((2,), np.int32, [0, 1], [2, 3])
    inner = RandomPyEnvironment(ArraySpec((), np.float32), action, batch_size=3)
    env = HistoryWrapper(inner, 2, include_actions=True)
    env.reset()
    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3, 2), dtype=int32, minimum=[0, 1], "
        "maximum=[2, 3])\n"
        "  got        array of shape (2,), dtype int32, values 0 … 1\n\n"
        "The whole batch dimension is missing: expected (3, 2).\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step(np.array([0, 1])))


def test_a_lossy_action_is_refused_with_its_place(message_of):
    inner = RandomPyEnvironment(
        ArraySpec((), np.float32), {"gear": ArraySpec((), np.uint8)}, batch_size=2
    )
    env = HistoryWrapper(inner, 2, include_actions=True)
    env.reset()
    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec at "
        "action['gear'].\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=uint8)\n"
        "  got        array of shape (2,), dtype int64, values 1 … 256\n\n"
        "dtype is int64; the spec says uint8. NumPy makes int64 by default: add "
        ".astype(np.uint8).\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step({"gear": np.array([1, 256])}))


def test_an_action_of_another_structure_is_refused(message_of):
    env = HistoryWrapper(NestedCountingEnv(nested_action=True), include_actions=True)
    env.reset()
    assert (
        "HistoryWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   the structure {'foo': *, 'bar': *}\n"
        "  got        1 of type int\n\n"
        "The value is a single int; a dictionary is expected."
    ) == message_of(ValueError, lambda: env.step(1))


# Arguments.


@pytest.mark.parametrize("length", [0, -1, 1.5, True, None])
def test_an_invalid_length_is_refused(length, message_of):
    assert (
        f"history_length must be an integer of at least 1, got {length!r}."
    ) == message_of(ValueError, lambda: HistoryWrapper(CountingEnv(), length))


def test_repr_shows_the_arguments():
    env = HistoryWrapper(Catch(batch_size=2), 4, True)
    assert (
        "HistoryWrapper(Catch(batch_size=2), history_length=4, include_actions=True, "
        "tile_first_step_obs=False)"
    ) == repr(env)


def test_a_repeated_last_step_has_no_action():
    """The environment ignores the actions with which `FixedLength` pads an episode."""
    env = FixedLength(CountingEnv(steps_per_episode=2), 5)
    env = HistoryWrapper(env, 3, include_actions=True)
    env.reset()
    assert [[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]] == [
        env.step(1).observation["action"].tolist() for _ in range(6)
    ]


def test_padded_rows_have_no_action():
    envs = [CountingEnv(steps_per_episode=steps) for steps in (1, 3)]
    env = FixedLength(BatchedPyEnvironment(envs, multithreading=False), 3)
    env = HistoryWrapper(env, 3, include_actions=True)
    env.reset()
    assert [[[0, 0, 1], [0, 0, 1]], [[0, 1, 0], [0, 1, 1]], [[1, 0, 0], [1, 1, 1]]] == [
        env.step([1, 1]).observation["action"].tolist() for _ in range(3)
    ]


def test_a_history_of_padded_episodes_keeps_the_contract():
    def wrapped():
        rows = RandomPyEnvironment(
            # In the other byte order, which a pickled state must keep.
            BoundedArraySpec((3,), ">f4", -1, 1),
            BoundedArraySpec((), np.int32, 0, 3),
            episode_end_probability=0.3,
            batch_size=2,
        )
        return HistoryWrapper(FixedLength(rows, 5), 2, include_actions=True)

    check_environment(wrapped, steps=16, require=["seed", "state"])


# Histories of rows, and the specs of arrays that are put together.


def bounds_of(spec):
    """Returns both bounds, an element for each of the array."""
    return [
        np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)
    ]


def assert_equal_bounds(expected, spec):
    for ours, theirs in zip(expected, bounds_of(spec), strict=True):
        assert np.array_equal(ours, theirs)


@given(strategies.specs(any_byte_order=True))
def test_a_widened_spec_accepts_zeros(spec):
    zeros = np.zeros(spec.shape, spec.dtype)
    assert with_zero(spec).check_array(zeros)


@given(strategies.specs(), st.integers(0, 9))
def test_a_widened_spec_accepts_everything_the_spec_does(spec, seed):
    sample = sample_spec_nest(spec, np.random.default_rng(seed))
    assert with_zero(spec).check_array(sample)


@given(strategies.bounded_specs())
def test_bounds_are_widened_only_to_zero(spec):
    low, high = bounds_of(spec)
    zero = np.zeros((), spec.dtype)
    widened = [np.minimum(low, zero), np.maximum(high, zero)]
    assert_equal_bounds(widened, with_zero(spec))


def test_large_integers_keep_their_last_digits_when_bounds_are_widened():
    spec = BoundedArraySpec((), np.uint64, 2**64 - 7, 2**64 - 3)
    assert BoundedArraySpec((), np.uint64, 0, 2**64 - 3) == with_zero(spec)


@given(strategies.bounded_specs(), st.integers(1, 3), st.data())
def test_each_array_of_a_stack_keeps_its_bounds(spec, count, data):
    axis = data.draw(st.integers(0, len(spec.shape)))
    assert_equal_bounds(
        [np.stack([bound] * count, axis) for bound in bounds_of(spec)],
        stacked_spec(spec, count, axis),
    )


@given(
    strategies.bounded_specs(
        spec_shapes=strategies.shapes().filter(lambda shape: len(shape) > 0)
    ),
    st.integers(1, 3),
    st.data(),
)
def test_each_concatenated_array_keeps_its_bounds(spec, count, data):
    axis = data.draw(st.integers(0, len(spec.shape) - 1))
    assert_equal_bounds(
        [np.concatenate([bound] * count, axis) for bound in bounds_of(spec)],
        concatenated_spec(spec, count, axis),
    )


def test_specs_keep_their_names():
    spec = BoundedArraySpec((2,), np.float32, 1.0, 2.0, name="speed")
    assert ["speed"] * 3 == [
        with_zero(spec).name,
        stacked_spec(spec, 2, 0).name,
        concatenated_spec(spec, 2, 0).name,
    ]


def test_objects_and_texts_are_kept_unchanged():
    specs = [ArraySpec((), object), ArraySpec((), "<U3")]
    history = RowHistory(specs, 2, ())
    history.push([np.array({"a": 1}, object), np.array("abc")])
    history.clear(np.array([], int))
    assert [[0, {"a": 1}], ["", "abc"]] == [
        stack.tolist() for stack in history.stacked([0, 0])
    ]


def test_cleared_text_is_empty():
    history = RowHistory([ArraySpec((), "<U3")], 2, ())
    history.push([np.array("abc")])
    history.clear(slice(None))
    assert ["", ""] == history.stacked([0])[0].tolist()


def test_a_state_in_another_byte_order_is_converted():
    spec = ArraySpec((2,), ">f4")
    history = RowHistory([spec], 2, ())
    history.push([np.array([1.0, 2.0], ">f4")])
    saved = history.save()
    native = {**saved, "rings": [ring.astype("<f4") for ring in saved["rings"]]}
    other = RowHistory([spec], 2, ())
    assert other.fits(native)
    other.restore(native)
    (stack,) = other.stacked([0])
    assert np.dtype(">f4") == stack.dtype
    assert [[0.0, 0.0], [1.0, 2.0]] == stack.tolist()


@given(st.data())
def test_values_are_stacked_as_by_numpy_along_every_axis(data):
    shape = data.draw(st.lists(st.integers(0, 6), max_size=3).map(tuple))
    axis = data.draw(st.integers(0, len(shape)))
    length, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    history = RowHistory([ArraySpec(shape, np.int64)], length, (rows,))
    values = [
        np.arange(step, step + rows * math.prod(shape)).reshape(rows, *shape)
        for step in range(length + 2)
    ]
    for value in values:
        history.push([value])

    (stack,) = history.stacked([axis])

    expected = np.stack(values[-length:], 1 + axis)
    assert expected.shape == stack.shape
    assert np.array_equal(expected, stack)


# `FrameStack` and `DelayObservation`: earlier observations.


def pictures(*shape):
    return RandomPyEnvironment(BoundedArraySpec(shape, np.uint8, 1, 9), ())


def seen(env, steps):
    return [env.step(0).observation.tolist() for _ in range(steps)]


# FrameStack.


@pytest.mark.parametrize(
    ("shape", "arguments", "expected"),
    [
        ((6, 5), {}, (4, 6, 5)),
        ((6, 5), {"axis": -1}, (6, 5, 4)),
        ((6, 5), {"axis": 1}, (6, 4, 5)),
        ((6, 5, 1), {"axis": -1, "concatenate": True}, (6, 5, 4)),
        ((6, 5, 3), {"axis": -1, "concatenate": True}, (6, 5, 12)),
        ((6, 5), {"concatenate": True}, (24, 5)),
        ((), {"axis": -1}, (4,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("padding", ["reset", "zero"])
def test_pictures_are_joined_along_the_chosen_axis(shape, arguments, expected, padding):
    env = FrameStack(pictures(*shape), 4, padding_type=padding, **arguments)
    assert expected == env.observation_spec().shape
    assert expected == env.reset().observation.shape


def test_every_array_of_a_nest_is_stacked():
    spec = FrameStack(Drive(), 4).observation_spec()
    assert BoundedArraySpec((4, 6, 4, 3), np.uint8, 0, 255) == spec["camera"]
    assert BoundedArraySpec((4, 2), np.float32, -10, [10, 20]) == spec["place"]
    assert ArraySpec((4,), np.float32) == spec["rest"][0]


@pytest.mark.parametrize("size", [0, -3, 2.0, False])
def test_an_invalid_size_is_refused(size, message_of):
    assert (
        f"stack_size must be an integer of at least 1, got {size!r}."
    ) == message_of(ValueError, lambda: FrameStack(CountingEnv(), size))


def test_repr_shows_the_size_of_the_stack():
    env = FrameStack(Catch(batch_size=2), 4)
    assert "FrameStack(Catch(batch_size=2), stack_size=4)" == repr(env)
    assert 4 == env.stack_size


# DelayObservation.


def test_observations_are_delayed_and_padded_with_zeros():
    env = DelayObservation(EpisodeCountingEnv(steps_per_episode=3), 2)
    seen = [env.step(0) for _ in range(8)]
    assert [0, 1, 1, 2, 0, 1, 1, 2] == [int(one.step_type) for one in seen]
    assert [0, 0, 0, 1, 0, 0, 0, 1] == [int(one.observation[1]) for one in seen]
    assert [0, 0, 0, 0, 0, 0, 1, 1] == [int(one.observation[0]) for one in seen]


@pytest.mark.parametrize("delay", [-1, 0.5, None, True])
def test_an_invalid_delay_is_refused(delay, message_of):
    assert (f"delay must be an integer of at least 0, got {delay!r}.") == message_of(
        ValueError, lambda: DelayObservation(CountingEnv(), delay)
    )


def test_repr_shows_the_delay():
    env = DelayObservation(CountingEnv(), 2)
    assert "DelayObservation(CountingEnv(), delay=2)" == repr(env)


# What wrappers show of the past, against a model of lists in plain Python.
WRAPPERS = [
    lambda env: HistoryWrapper(env, 3, include_actions=True),
    lambda env: FrameStack(env, 3),
    lambda env: DelayObservation(env, 2),
]
every_wrapper = pytest.mark.parametrize(
    "wrap", WRAPPERS, ids=["history", "frame_stack", "delay"]
)


class Remembered(NamedTuple):
    """A wrapper, and what it is to show.

    Attributes:
        wrap: Wraps an environment.
        shown: Says what is seen of one leaf, given its values and, in their places,
            whether they are actions, since the episode began.
        actions: Whether actions are seen, too.
    """

    wrap: Callable[[Any], Any]
    shown: Callable[[list[Any]], Any]
    actions: bool = False


def last(values, count, *, repeats):
    """Returns the last values, with the first one or zeros before them."""
    filling = values[0] if repeats else np.zeros_like(values[0])
    return ([filling] * count + values)[-count:]


@st.composite
def remembered(draw, spec):
    """Draws one of the wrappers, with arguments that suit a nest of specs."""
    count, repeats = draw(st.integers(1, 4)), draw(st.booleans())
    kind = draw(st.sampled_from(["history", "stack", "concatenate", "delay"]))
    if kind == "delay":
        return Remembered(
            lambda env: DelayObservation(env, count - 1),
            lambda values: last(values, count, repeats=False)[0],
        )
    if kind == "history":
        actions = draw(st.booleans())
        return Remembered(
            lambda env: HistoryWrapper(env, count, actions, repeats),
            lambda values: np.stack(last(values, count, repeats=repeats)),
            actions,
        )
    rank = min((len(leaf.shape) for leaf in nest.flatten(spec)), default=0)
    concatenate = kind == "concatenate" and rank > 0
    axes = rank if concatenate else rank + 1
    axis = draw(st.integers(-axes, axes - 1))
    together = np.concatenate if concatenate else np.stack
    return Remembered(
        lambda env: FrameStack(
            env,
            count,
            padding_type="reset" if repeats else "zero",
            axis=axis,
            concatenate=concatenate,
        ),
        lambda values: together(last(values, count, repeats=repeats), axis),
    )


class Row:
    """What happened in a row since its episode began."""

    def __init__(self) -> None:
        self.observations: list[Any] = []
        self.actions: list[Any] = []

    def add(self, is_first, observation, action):
        if is_first:
            self.observations, self.actions = [], []
            action = [np.zeros_like(leaf) for leaf in action]
        self.observations.append(observation)
        self.actions.append(action)

    def shown(self, wrapper):
        """Returns the leaves that are to be seen, in the order of leaves."""
        leaves = [
            wrapper.shown(list(values))
            for values in zip(*self.observations, strict=True)
        ]
        if not wrapper.actions:
            return leaves
        count = len(wrapper.shown([np.zeros(1)]))
        actions = [
            np.stack(last(list(values), count, repeats=False))
            for values in zip(*self.actions, strict=True)
        ]
        return actions + leaves  # "action" comes before "observation"


def rows_of(value, count):
    """Takes a batched nest apart: a list of leaves for each row."""
    leaves = [np.asarray(leaf) for leaf in nest.flatten(value)]
    return [[leaf[row] for leaf in leaves] for row in range(count)]


def bits(leaves):
    return [(np.asarray(leaf).shape, np.asarray(leaf).tolist()) for leaf in leaves]


def spec_nests(*, any_byte_order=False):
    shapes = strategies.shapes(max_dims=2)
    specs = strategies.specs(spec_shapes=shapes, any_byte_order=any_byte_order)
    return strategies.spec_nests(specs, max_depth=2)


action_nests = strategies.spec_nests(
    strategies.specs("iuf", spec_shapes=strategies.shapes(max_dims=1)), max_depth=1
)


def random_env(observation, action, seed):
    return RandomPyEnvironment(
        observation, action, episode_end_probability=0.3, seed=seed
    )


def masks(rows):
    return st.lists(st.booleans(), min_size=rows, max_size=rows).map(np.array)


def moves(rows):
    """Draws what is done with a batch: which rows step, and which begin anew."""
    everything = st.just(np.ones(rows, bool))
    return st.lists(st.tuples(everything | masks(rows), masks(rows)), max_size=12)


@given(st.data(), spec_nests(), action_nests, st.integers(1, 3), st.integers(0, 9))
def test_every_row_of_a_batch_shows_its_own_history(
    data, spec, action_spec, count, seed
):
    wrapper = data.draw(remembered(spec))
    bare, inner = (
        BatchedPyEnvironment(
            [random_env(spec, action_spec, seed + row) for row in range(count)], False
        )
        for _ in range(2)
    )
    env = wrapper.wrap(inner)
    rng = np.random.default_rng(seed)
    model = [Row() for _ in range(count)]
    stepping, beginning = np.zeros(count, bool), np.ones(count, bool)
    schedule = data.draw(moves(count))
    for position in range(len(schedule) + 1):
        action = sample_spec_nest(action_spec, rng, (count,))
        if position == 0:
            expected, time_step = bare.reset(), env.reset()
        elif not stepping.any():
            expected, time_step = bare.reset(beginning), env.reset(beginning)
        elif not beginning.any():
            expected, time_step = (one.step(action, stepping) for one in (bare, env))
        else:
            expected, time_step = (
                one.step_rows(action, stepping, beginning) for one in (bare, env)
            )
        observations = rows_of(expected.observation, count)
        actions = rows_of(action, count)
        for row in (stepping | beginning).nonzero()[0]:
            is_first = expected.step_type[row] == 0
            model[row].add(is_first, observations[row], actions[row])

        check_fits(time_step, env.time_step_spec(), outer_dims=(count,))
        for row, leaves in enumerate(rows_of(time_step.observation, count)):
            assert bits(model[row].shown(wrapper)) == bits(leaves)
        if position < len(schedule):
            stepping, beginning = schedule[position]
            beginning = beginning & ~stepping


@given(
    st.data(),
    spec_nests(any_byte_order=True),
    action_nests,
    st.integers(0, 9),
    st.integers(0, 12),
)
def test_a_single_environment_shows_its_history(data, spec, action_spec, seed, steps):
    wrapper = data.draw(remembered(spec))
    bare, inner = (random_env(spec, action_spec, seed) for _ in range(2))
    env = wrapper.wrap(inner)
    rng = np.random.default_rng(seed)
    row = Row()
    for _ in range(steps + 1):
        action = sample_spec_nest(action_spec, rng)
        expected, time_step = bare.step(action), env.step(action)
        observation = [np.asarray(leaf) for leaf in nest.flatten(expected.observation)]
        row.add(expected.is_first(), observation, nest.flatten(action))

        check_fits(time_step, env.time_step_spec())
        assert bits(row.shown(wrapper)) == bits(nest.flatten(time_step.observation))


@every_wrapper
def test_the_state_of_another_length_is_refused_before_anything_changes(
    wrap, message_of
):
    env = wrap(CountingEnv())
    env.step(0)
    longer = {
        HistoryWrapper: lambda env: HistoryWrapper(env, 5, True),
        FrameStack: lambda env: FrameStack(env, 5),
        DelayObservation: lambda env: DelayObservation(env, 5),
    }[type(env)](CountingEnv())
    name = type(env).__name__
    before = env.wrapped_env().current_time_step()

    message = message_of(ValueError, lambda: env.set_state(longer.get_state()))

    assert before is env.wrapped_env().current_time_step()
    assert (
        f"{name}.set_state() was given the state of a {name} made with other "
        "arguments, or of another environment. A state fits environments that are "
        "wrapped in the same way."
    ) == message


def test_the_state_of_another_wrapper_is_refused(message_of):
    env = FrameStack(CountingEnv(), 2)
    token = DelayObservation(CountingEnv(), 1).get_state()
    assert (
        "FrameStack.set_state() was given the state of DelayObservation. A state fits "
        "environments that are wrapped in the same way."
    ) == message_of(ValueError, lambda: env.set_state(token))


class Reusing(PyEnvironment):
    """Writes all its observations into one array, like a pool with `zero_copy`."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self.observation = np.zeros(1, np.int64)

    def observation_spec(self):
        return ArraySpec((1,), np.int64)

    def action_spec(self):
        return ArraySpec((1,), np.int64)

    def _reset(self):
        self.observation[0] = 7
        return restart(self.observation)

    def _step(self, action):
        self.observation[0] += 1
        return transition(self.observation, 0.0)


@every_wrapper
def test_an_environment_may_change_its_returned_arrays(wrap):
    env = wrap(Reusing())
    for _ in range(3):
        time_step = env.step([0])
    shown = nest.first_leaf(nest.flatten(time_step.observation)[-1]).ravel().tolist()
    assert shown in ([7, 8, 9], [7])


@every_wrapper
def test_the_caller_may_change_returned_arrays(wrap):
    env = wrap(Reusing())
    for _ in range(4):
        time_step = env.step([0])
        shown = nest.flatten(time_step.observation)[-1]
        seen = shown.ravel().tolist()
        shown[...] = 99
    assert seen in ([8, 9, 10], [8])


@every_wrapper
def test_an_observation_that_does_not_fit_is_refused(wrap, message_of):
    env = Reusing()
    leave_unseen(env)  # Which has looked at its first time steps only.
    env.observation = np.zeros(1, np.float64)
    assert (
        "Reusing returned an observation that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(1,), dtype=int64)\n"
        "  got        array of shape (1,), dtype float64, values 7.0 … 7.0\n\n"
        "dtype is float64; the spec says int64. If that is meant, add "
        ".astype(np.int64)."
    ) == message_of(ValueError, lambda: wrap(env).reset())


@every_wrapper
def test_an_observation_may_be_a_number_where_its_spec_is_a_scalar(wrap):
    class Plain(Reusing):
        def observation_spec(self):
            return ArraySpec((), np.int64)

        def _reset(self):
            return restart(7)

    env = wrap(Plain())
    check_fits(env.reset(), env.time_step_spec())


@every_wrapper
def test_an_environment_that_does_not_reset_itself_is_reset(wrap):
    class Stubborn(Reusing):
        def __init__(self):
            super().__init__()
            self._handle_auto_reset = False

        def _step(self, action):
            self.observation[0] += 1
            return transition(self.observation, 0.0)._replace(
                step_type=np.array(2, np.int32)
            )

    wrapped = wrap(Stubborn())
    wrapped._handle_auto_reset = True
    fresh = snapshot(wrapped.reset())
    wrapped.step([0])
    assert first_difference(fresh, snapshot(wrapped.step([0]))) is None


@every_wrapper
def test_time_steps_without_an_observation_are_passed_on(wrap):
    bare, env = CartPole(seed=1), wrap(CartPole(seed=1))
    streams = [[one.step(1)[:3] for _ in range(30)] for one in (bare, env)]
    assert first_difference(*map(snapshot, streams)) is None
    assert bare.reward_spec() == env.reward_spec()
    assert bare.discount_spec() == env.discount_spec()


@every_wrapper
def test_a_state_of_another_dtype_is_refused(wrap, message_of):
    env, other = wrap(CountingEnv(dtype=np.int64)), wrap(CountingEnv(dtype=np.int32))
    env.reset()
    other.reset()
    name = type(env).__name__
    assert (
        f"{name}.set_state() was given the state of a {name} made with other "
        "arguments, or of another environment. A state fits environments that are "
        "wrapped in the same way."
    ) == message_of(ValueError, lambda: env.set_state(other.get_state()))


REFUSED = {
    "another padding": (
        lambda: FrameStack(CountingEnv(), 2, padding_type="edge"),
        "padding_type must be 'reset', to pad with the first observation of an "
        "episode, or 'zero', to pad with zeros, got 'edge'.",
    ),
    "an axis that is no integer": (
        lambda: FrameStack(CountingEnv(), 2, axis="last"),
        "axis must be an integer, such as 0 for the first axis or -1 for the last, "
        "got 'last'.",
    ),
    "an axis beyond the stack": (
        lambda: FrameStack(pictures(6, 5), 2, axis=3),
        "FrameStack cannot stack observations along axis 3: for BoundedArraySpec("
        "shape=(6, 5), dtype=uint8, minimum=1, maximum=9), axis must be from -3 to 2.",
    ),
    "an axis the observation does not have": (
        lambda: FrameStack(pictures(6, 5), 2, axis=-3, concatenate=True),
        "FrameStack cannot concatenate observations along axis -3: for "
        "BoundedArraySpec(shape=(6, 5), dtype=uint8, minimum=1, maximum=9), axis must "
        "be from -2 to 1.",
    ),
    "scalars in a nest cannot be concatenated": (
        lambda: FrameStack(Drive(), 2, concatenate=True),
        "FrameStack cannot concatenate observations at ['rest'][0] along axis 0: for "
        "ArraySpec(shape=(), dtype=float32), there is no axis; without "
        "concatenate=True they are stacked.",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_impossible_stacks_are_refused(call, message, message_of):
    assert message == message_of(ValueError, call)
