"""What wrappers show of the past, against a model of lists in plain Python."""

from __future__ import annotations

import pickle
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
from envkit.envs import CartPole, Catch
from envkit.py_environment import PyEnvironment
from envkit.specs import check_fits
from envkit.specs.sampling import sample_spec_nest
from envkit.testing import CountingEnv, check_environment
from envkit.testing.contract.recording import first_difference, snapshot
from envkit.time_step import restart, transition
from envkit.wrappers.history.frames import DelayObservation, FrameStack
from envkit.wrappers.history.history_wrapper import HistoryWrapper
from tests import strategies

BIG_ENDIAN = BoundedArraySpec((3,), ">f4", -1, 1)
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
def test_every_row_of_a_batch_shows_what_happened_in_it(
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
def test_a_single_environment_shows_what_happened_in_it(
    data, spec, action_spec, seed, steps
):
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
@pytest.mark.parametrize("size", [None, 3], ids=["single", "batch"])
def test_a_restored_environment_goes_on_as_it_did(wrap, size):
    env, other = wrap(Catch(batch_size=size, seed=1)), wrap(Catch(batch_size=size))
    action = np.ones(() if size is None else size, np.int64)
    for _ in range(5):
        env.step(action)
    token = pickle.loads(pickle.dumps(env.get_state()))
    went_on = snapshot([env.step(action) for _ in range(15)])
    other.set_state(token)
    restored = snapshot([other.step(action) for _ in range(15)])

    assert first_difference(went_on, restored) is None


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
def test_an_environment_may_write_into_the_arrays_it_returned(wrap):
    env = wrap(Reusing())
    for _ in range(3):
        time_step = env.step([0])
    shown = nest.first_leaf(nest.flatten(time_step.observation)[-1]).ravel().tolist()

    assert shown in ([7, 8, 9], [7])


@every_wrapper
def test_what_is_returned_may_be_written_into(wrap):
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
def test_what_is_no_observation_is_passed_on(wrap):
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


@every_wrapper
def test_a_pickled_state_keeps_the_byte_order_of_the_specs(wrap):
    def env():
        action = BoundedArraySpec((), np.int32, 0, 3)
        return wrap(RandomPyEnvironment(BIG_ENDIAN, action))

    check_environment(env, steps=20, require=["seed", "state"])
