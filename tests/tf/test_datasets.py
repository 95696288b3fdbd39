"""`dataset`: transitions and whole episodes, as a loop written by hand has them."""

from __future__ import annotations

import collections
import functools
import threading

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import ArraySpec, BatchedPyEnvironment, PyEnvironment, TimeStep, nest
from envkit.parallel import AutoReset, ParallelPyEnvironment
from envkit.testing.envs import (
    CountingEnv,
    CrashingEnv,
    NestedCountingEnv,
    TracingEnv,
)
from envkit.tf import RandomTFEnvironment, TFPyEnvironment, Transition, dataset
from tests.waiting import PATIENCE

FIRST, MID, LAST = 0, 1, 2

in_each_order = pytest.mark.parametrize("order", [None, *AutoReset], ids=str)


# Example environments and policies.


class Watched(CountingEnv):
    """Logs when it is made, stepped and closed."""

    def __init__(self, log):
        super().__init__(3)
        self._log = log
        self.id = len(log.made)
        log.made.append(self)

    def _step(self, action):
        self._log.stepped(self)
        return super()._step(action)

    def close(self):
        self._log.closed.append(self.id)
        self._log.has_closed.release()


class Log:
    """The log of watched environments."""

    def __init__(self, enough=10**9):
        self.made, self.closed = [], []
        self.has_closed = threading.Semaphore(0)
        self.steps, self._enough = 0, enough
        self.has_stepped_enough = threading.Event()

    def stepped(self, env):
        self.steps += 1
        if self.steps >= self._enough:
            self.has_stepped_enough.set()


class Plain(PyEnvironment):
    """A native batch with a given observation, in episodes of two steps."""

    def __init__(self, spec, observation, action_spec=None):
        super().__init__(handle_auto_reset=True)
        self._spec, self._observation = spec, observation
        self._action_spec = (
            ArraySpec((), np.int64) if action_spec is None else action_spec
        )
        self.actions = []

    batched = True
    batch_size = 2

    def observation_spec(self):
        return self._spec

    def action_spec(self):
        return self._action_spec

    def _reset(self):
        self._count = 0
        return self._time_step(FIRST)

    def _step(self, action):
        self.actions.append(action)
        self._count += 1
        return self._time_step(LAST if self._count == 2 else MID)

    def _time_step(self, step_type):
        return TimeStep(
            np.full(2, step_type, np.int32),
            np.zeros(2, np.float32),
            np.ones(2, np.float32),
            self._observation,
        )


def counting_policy(rows):
    """Returns a policy whose actions are 0, 1, 2 and so on, step by step."""
    steps = iter(range(10**9))

    def policy(time_step):
        return np.full(rows, next(steps), np.int64)

    return policy


def policy_of(time_step):
    """Depends on the observation alone, so that the order of calls does not matter."""
    seen = time_step.observation
    return (seen["episode"] * 100 + seen["step"] * 10 + seen["env_id"]) % 997


def nothing(time_step):
    return tf.zeros(time_step.step_type.shape, tf.int32)


def zeros(time_step):
    return tf.zeros(time_step.step_type.shape, tf.int64)


def tracing(order=None, rows=3, lengths=(2, 3, 5), backend="inline"):
    makers = [functools.partial(TracingEnv, row, lengths) for row in range(rows)]
    if order is None:
        return BatchedPyEnvironment([make() for make in makers])
    return ParallelPyEnvironment(
        makers, backend=backend, autoreset=order, num_workers=1
    )


def flat(transition):
    """Returns a transition as something that can be put into a set."""
    return tuple(
        (np.asarray(leaf).tobytes(), np.asarray(leaf).dtype.str)
        for leaf in nest.flatten(tuple(transition))
    )


def by_hand(make_env, count, rows=3):
    """Returns the transitions of each row of single environments, one after another."""
    streams = []
    for row in range(rows):
        env = make_env(row)
        stream, time_step = [], env.reset()
        while len(stream) < count:
            action = np.asarray(policy_of(time_step), np.int64)
            following = env.step(action)
            stream.append(flat((time_step, action, following, np.False_)))
            time_step = env.reset() if following.is_last() else following
        streams.append(stream)
    return streams


def row_of(transition):
    return int(np.ravel(transition.time_step.observation["env_id"])[0])


# Transitions.


def check_transitions(env, whole_episodes=False, elements=45):
    """Compares elements with those of a loop over single environments."""
    expected = by_hand(lambda row: TracingEnv(row, (2, 3, 5)), 60)
    streams = collections.defaultdict(list)
    with env:
        for element in dataset(env, policy_of, whole_episodes=whole_episodes).take(
            elements
        ):
            steps = range(len(element.action)) if whole_episodes else [...]
            for step in steps:
                part = tf.nest.map_structure(lambda leaf, i=step: leaf[i], element)
                streams[row_of(element)].append(flat(part))

    assert {0, 1, 2} == set(streams)
    for row, stream in streams.items():
        assert len(stream) > 8
        assert expected[row][: len(stream)] == stream


@in_each_order
def test_transitions_equal_those_of_a_handwritten_loop(order):
    check_transitions(tracing(order))


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_transitions_of_pools_equal_those_of_a_handwritten_loop(backend):
    check_transitions(tracing(AutoReset.DISABLED, backend=backend), elements=36)


@in_each_order
def test_whole_episodes_equal_those_of_a_handwritten_loop(order):
    check_transitions(tracing(order), whole_episodes=True, elements=12)


def test_the_rows_of_a_batch_follow_one_another():
    with tracing(AutoReset.SAME_STEP) as env:
        rows = [row_of(transition) for transition in dataset(env, policy_of).take(9)]
    assert [0, 1, 2] * 3 == rows


def test_every_step_of_a_single_environment_is_a_transition():
    seen = [
        (int(t.time_step.observation), int(t.next_time_step.observation))
        for t in dataset(CountingEnv(3), nothing).take(7)
    ]

    pairs = [(0, 1), (1, 2), (2, 3), (10, 11), (11, 12), (12, 13), (20, 21)]
    assert pairs == seen


def test_each_transition_has_the_action_between_its_steps():
    env = tracing()
    for transition in dataset(env, counting_policy(3)).take(60):
        told = transition.next_time_step.observation["action"]
        assert int(told) == int(transition.action)


def test_iteration_continues_at_the_current_time_step():
    env = TFPyEnvironment(TracingEnv(steps_per_episode=1000))
    env.reset()
    for _ in range(4):
        env.step([0])

    first = next(iter(dataset(env, zeros, prefetch=0)))

    assert 4 == int(first.time_step.observation["step"])


def test_an_environment_at_the_end_of_an_episode_begins_another():
    env = TFPyEnvironment(CountingEnv(1))
    env.reset()
    env.step([0])

    first = next(iter(dataset(env, nothing, prefetch=0)))

    assert FIRST == int(first.time_step.step_type)
    assert 10 == int(first.time_step.observation)


# Whole episodes.


@in_each_order
def test_every_episode_is_yielded_whole(order):
    numbers = collections.defaultdict(list)
    with tracing(order, lengths=(1, 2, 7)) as env:
        episodes = list(dataset(env, policy_of, whole_episodes=True).take(18))

    assert {1, 2, 7} == {len(episode.action) for episode in episodes}
    for episode in episodes:
        before = episode.time_step.step_type.numpy().tolist()
        after = episode.next_time_step.step_type.numpy().tolist()
        length = len(episode.action)
        assert [FIRST] + [MID] * (length - 1) == before
        assert [MID] * (length - 1) + [LAST] == after
        seen = episode.time_step.observation
        assert {length} == set(seen["length"].numpy().tolist())
        (number,) = set(seen["episode"].numpy().tolist())
        numbers[row_of(episode)].append(number)
    for row in numbers.values():
        assert list(range(len(row))) == row


def test_an_episode_that_had_already_begun_is_skipped():
    env = TFPyEnvironment(tracing(rows=2, lengths=(6,)))
    env.reset()
    env.step([0, 0])
    episodes = dataset(env, policy_of, whole_episodes=True, prefetch=0).take(2)
    assert [1, 1] == [int(e.time_step.observation["episode"][0]) for e in episodes]


def test_episode_lengths_are_unknown_in_the_element_spec():
    episodes = dataset(CountingEnv(3), nothing, whole_episodes=True)

    for spec in tf.nest.flatten(episodes.element_spec):
        assert [None] == spec.shape.as_list()


# Elements.


def test_element_spec_matches_the_elements():
    with tracing() as env:
        specs = TFPyEnvironment(env)
        steps = dataset(env, policy_of)
        spec, element = steps.element_spec, next(iter(steps))

    assert isinstance(spec, Transition)
    assert isinstance(element, Transition)
    tf.nest.assert_same_structure(specs.time_step_spec(), spec.time_step)
    tf.nest.assert_same_structure(spec, element)
    for one, tensor in zip(
        tf.nest.flatten(spec), tf.nest.flatten(element), strict=True
    ):
        assert one.shape.is_fully_defined()
        assert one.is_compatible_with(tensor)
    assert [16] == spec.time_step.observation["pattern"].shape.as_list()
    assert [] == spec.action.shape.as_list()


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_structures_and_the_order_of_keys_are_kept(whole_episodes):
    env = NestedCountingEnv(3, nested_action=True)

    def policy(time_step):
        return {"foo": tf.zeros([1], tf.int32), "bar": np.ones(1, np.int32)}

    steps = dataset(env, policy, whole_episodes=whole_episodes)
    (element,) = steps.take(1)

    assert ["total_steps", "current_steps"] == list(element.time_step.observation)
    assert type(element.time_step) is type(element.next_time_step) is TimeStep
    assert {0} == set(np.ravel(element.action["foo"]).tolist())
    assert {1} == set(np.ravel(element.action["bar"]).tolist())
    assert ["foo", "bar"] == list(element.action)


@pytest.mark.parametrize("whole_episodes", [False, True])
@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (ArraySpec((), "U4"), np.array(["é", "left"])),
        (ArraySpec((), np.bool_), np.array([True, False])),
        (ArraySpec((2,), np.complex64), np.ones((2, 2), np.complex64)),
        (ArraySpec((), np.uint16), np.array([1, 65535], np.uint16)),
        ((), ()),
        # TensorFlow's own `unbatch` ends the process with them.
        (ArraySpec((2, 0), np.float64), np.zeros((2, 2, 0))),
        ([ArraySpec((), np.int8), {}], [np.array([1, 2], np.int8), {}]),
    ],
    ids=["text", "bool", "complex", "uint16", "no leaves", "no elements", "list"],
)
def test_observations_of_every_kind_are_supported(spec, value, whole_episodes):
    steps = dataset(Plain(spec, value), zeros, whole_episodes=whole_episodes)
    elements = list(steps.take(2))

    leaves = [np.asarray(leaf) for leaf in nest.flatten(value)]
    for row, element in enumerate(elements):
        came = tf.nest.flatten(element.next_time_step.observation)
        for leaf, tensor in zip(leaves, came, strict=True):
            expected = leaf[row]
            if expected.dtype.kind == "U":
                expected = np.array(str(expected).encode(), object)
            actual = tensor.numpy()
            actual = actual[0] if whole_episodes else actual
            np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_reused_arrays_do_not_change_earlier_elements(
    whole_episodes,
):
    class Reusing(Plain):
        def _time_step(self, step_type):
            self._observation += 1
            return super()._time_step(step_type)

    env = Reusing(ArraySpec((5000,), np.float32), np.zeros((2, 5000), np.float32))
    elements = list(dataset(env, zeros, whole_episodes=whole_episodes).take(4))

    if whole_episodes:
        # The first two are of the same episode, of two rows.
        befores = [e.time_step.observation[:, -1].numpy().tolist() for e in elements]
        assert [[1, 2], [1, 2], [4, 5], [4, 5]] == befores
    else:
        befores = [int(e.time_step.observation[-1]) for e in elements]
        assert [1, 1, 2, 2] == befores


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_elements_can_be_batched_and_mapped(whole_episodes):
    steps = dataset(CountingEnv(3), nothing, whole_episodes=whole_episodes)
    rewards = steps.map(lambda t: t.next_time_step.reward).batch(4)
    (batch,) = rewards.take(1)
    assert ([4, 3] if whole_episodes else [4]) == batch.shape.as_list()


def test_elements_can_be_taken_in_a_graph():
    steps = dataset(CountingEnv(3), nothing)

    @tf.function
    def total():
        seen = tf.zeros([], tf.int32)
        for transition in steps.take(5):
            seen += transition.next_time_step.observation
        return seen

    assert 1 + 2 + 3 + 11 + 12 == int(total())


# Policies.


@pytest.mark.parametrize("size", [(), (50_000,)])
@pytest.mark.parametrize("whole_episodes", [False, True])
def test_a_policy_may_reuse_its_action_array(whole_episodes, size):
    actions = np.zeros((2, *size), np.int64)

    def policy(time_step):
        actions[...] += 1
        return actions

    spec = ArraySpec(size, np.int64)
    env = Plain(ArraySpec((), np.float32), np.zeros(2, np.float32), spec)
    elements = dataset(env, policy, whole_episodes=whole_episodes, prefetch=8).take(4)

    # Every third step only begins an episode.
    expected = [[1, 2], [1, 2], [4, 5], [4, 5]] if whole_episodes else [1, 1, 2, 2]
    seen = [
        np.reshape(e.action, (len(e.action), -1) if whole_episodes else -1)
        for e in elements
    ]
    assert expected == [action[..., -1].tolist() for action in seen]


def test_an_environment_cannot_change_the_recorded_action():
    class Changing(Plain):
        def _step(self, action):
            action[...] = 77
            return super()._step(action)

    env = Changing(ArraySpec((), np.float32), np.zeros(2, np.float32))
    elements = dataset(env, lambda time_step: np.ones(2, np.int64)).take(2)

    assert [1, 1] == [int(element.action) for element in elements]


class Agent:
    """A policy as other libraries have them."""

    def __init__(self, answer):
        self._answer = answer

    def action(self, time_step):
        return self._answer


PolicyStep = collections.namedtuple("PolicyStep", ["action", "state", "info"])

POLICIES = {
    "function of tensors": lambda time_step: tf.ones([2], tf.int64),
    "tf.function": tf.function(
        lambda time_step: tf.ones(tf.shape(time_step.reward), tf.int64)
    ),
    "function of arrays": lambda time_step: np.ones(2, np.int64),
    "list": lambda time_step: [1, 1],
    "method": Agent(np.ones(2, np.int64)).action,
    "object": Agent(np.ones(2, np.int64)),
    "object of TF-Agents": Agent(PolicyStep(np.ones(2, np.int64), (), ())),
    "variable": lambda time_step: tf.Variable([1, 1], dtype=tf.int64),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_policies_of_every_supported_form_are_accepted(kind):
    env = Plain(ArraySpec((), np.float32), np.zeros(2, np.float32))
    elements = list(dataset(env, POLICIES[kind], prefetch=0).take(4))
    assert [1] * 4 == [int(element.action) for element in elements]
    assert tf.int64 == elements[0].action.dtype
    assert [1, 1] == env.actions[0].tolist()


def test_a_policy_receives_the_current_batch_of_tensors():
    seen = []

    def policy(time_step):
        assert all(tf.is_tensor(leaf) for leaf in tf.nest.flatten(time_step))
        seen.append((time_step.step_type.numpy().tolist(), type(time_step)))
        return tf.zeros([2], tf.int32)

    with ParallelPyEnvironment(
        [CountingEnv, functools.partial(CountingEnv, 1)],
        backend="inline",
        autoreset=AutoReset.SAME_STEP,
    ) as env:
        list(dataset(env, policy, prefetch=0).take(4))

    assert ([FIRST, FIRST], TimeStep) == seen[0]
    assert ([MID, FIRST], TimeStep) == seen[1]


# Environments and iterators.


@pytest.mark.parametrize(
    "environment",
    [
        lambda: CountingEnv(3),
        lambda: TFPyEnvironment(CountingEnv(3)),
        lambda: TFPyEnvironment(CountingEnv(3), isolation=True),
        lambda: BatchedPyEnvironment([CountingEnv(3)]),
        lambda: CountingEnv,
        lambda: functools.partial(CountingEnv, 3),
        lambda: lambda: TFPyEnvironment(CountingEnv(3)),
        lambda: "envkit.testing.envs:CountingEnv",
    ],
    ids=[
        "single",
        "tensors",
        "isolated",
        "batch",
        "class",
        "partial",
        "maker of tensors",
        "name",
    ],
)
def test_environments_of_every_supported_form_are_accepted(environment):
    env = environment()
    seen = [int(t.next_time_step.observation) for t in dataset(env, nothing).take(3)]
    assert [1, 2, 3] == seen
    if isinstance(env, TFPyEnvironment):
        env.close()


def test_tensorflow_environments_are_stepped_too():
    env = envkit.tf.TFCartPole(batch_size=2)

    def policy(time_step):
        return tf.zeros([2], env.action_spec().dtype)

    elements = list(dataset(env, policy).take(60))

    assert all(LAST != int(element.time_step.step_type) for element in elements)
    assert any(LAST == int(element.next_time_step.step_type) for element in elements)


def test_a_given_environment_stays_open():
    log = Log()
    env = Watched(log)
    list(dataset(env, nothing).take(3))
    list(dataset(env, nothing).take(3))
    assert [] == log.closed


@pytest.mark.parametrize("is_class", [False, True])
def test_each_iterator_of_a_constructor_makes_and_closes_its_own_environment(is_class):
    log = Log()

    class Own(Watched):
        def __init__(self):
            super().__init__(log)

    steps = dataset(Own if is_class else lambda: Own(), nothing, prefetch=0)
    made, closed = len(log.made), len(log.closed)
    assert made == closed  # The one that was made for its specs is closed.
    for _ in range(closed):
        log.has_closed.acquire()
    first, second = iter(steps), iter(steps)
    seen = [
        [int(next(it).next_time_step.observation) for it in (first, second)]
        for _ in range(3)
    ]

    assert [[1, 1], [2, 2], [3, 3]] == seen
    assert made + 2 == len(log.made)
    del first, second
    assert log.has_closed.acquire(timeout=PATIENCE)
    assert log.has_closed.acquire(timeout=PATIENCE)
    assert sorted(log.closed) == [env.id for env in log.made]


def test_the_newest_iterator_takes_over_the_environment():
    env = TFPyEnvironment(TracingEnv(steps_per_episode=1000))
    steps = dataset(env, zeros, prefetch=0)
    older, newer = iter(steps), iter(steps)
    seen = [int(next(it).time_step.observation["step"]) for it in (older, newer, newer)]

    with pytest.raises(
        tf.errors.OpError, match="Another iterator of this dataset has been started"
    ):
        list(older)

    assert [0, 1, 2] == seen
    assert 3 == int(next(newer).time_step.observation["step"])


def test_prefetching_runs_ahead_of_the_consumer():
    log = Log(enough=8)
    iterator = iter(dataset(lambda: Watched(log), nothing, prefetch=16))
    first = next(iterator)
    assert log.has_stepped_enough.wait(PATIENCE)
    assert 1 == int(first.next_time_step.observation)
    seen = [int(next(iterator).next_time_step.observation) for _ in range(6)]
    assert [2, 3, 11, 12, 13, 21] == seen


def test_without_prefetching_only_consumed_elements_are_made():
    log = Log()
    iterator = iter(dataset(lambda: Watched(log), nothing, prefetch=0))
    made = len(log.made)
    assert 0 == log.steps
    next(iterator)
    assert log.steps < 4
    assert len(log.made) <= made + 1


def test_an_environment_is_not_stepped_before_the_first_iteration():
    log = Log()
    dataset(Watched(log), nothing)
    assert 0 == log.steps


def test_stopping_early_does_not_wait_for_the_environment():
    log = Log()
    for _ in range(3):
        for _ in dataset(lambda: Watched(log), nothing).take(1):
            pass

    for _ in log.made:
        assert log.has_closed.acquire(timeout=PATIENCE)


# Errors.


@pytest.mark.parametrize(
    ("error", "whole_episodes"),
    [
        (RuntimeError, False),
        (KeyError, True),
        (StopIteration, False),
        (StopIteration, True),
    ],
)
def test_an_error_of_the_environment_reaches_the_consumer(error, whole_episodes):
    class Failing(CountingEnv):
        def _step(self, action):
            if self._episodes == 1:
                raise error("the level is missing")
            return super()._step(action)

    seen = []
    elements = dataset(Failing(2), nothing, whole_episodes=whole_episodes)
    with pytest.raises(tf.errors.OpError, match="the level is missing"):
        seen.extend(elements)

    assert (1 if whole_episodes else 2) == len(seen)


def test_an_error_closes_an_environment_made_by_the_dataset():
    log = Log()

    class Failing(Watched):
        def _step(self, action):
            raise RuntimeError("the level is missing")

    with pytest.raises(tf.errors.OpError, match="the level is missing"):
        list(dataset(lambda: Failing(log), nothing).take(3))

    for _ in log.made:
        assert log.has_closed.acquire(timeout=PATIENCE)


def test_an_error_of_the_policy_reaches_the_consumer():
    def policy(time_step):
        raise RuntimeError("the weights are missing")

    with pytest.raises(tf.errors.OpError, match="the weights are missing"):
        next(iter(dataset(CountingEnv(), policy)))


def test_an_error_of_a_constructor_is_raised_at_once():
    with pytest.raises(RuntimeError, match="told to raise in init 1"):
        dataset(functools.partial(CrashingEnv, where="init"), nothing)


def test_a_closed_environment_is_refused():
    env = TFPyEnvironment(CountingEnv())
    steps = dataset(env, nothing)
    env.close()
    with pytest.raises(tf.errors.OpError, match=r"was called after close\(\)"):
        next(iter(steps))


def test_an_action_of_another_structure_is_refused():
    steps = dataset(CountingEnv(), lambda time_step: {"a": np.zeros(1, np.int32)})
    with pytest.raises(tf.errors.OpError, match="action that does not fit its spec"):
        list(steps.take(3))


ENVIRONMENT = (
    "dataset() was given {} as environment. Pass one, or something to call that makes "
    "one."
)
POLICY = (
    "dataset() was given {} as policy. A policy is called with a time step and returns "
    "an action for each row, or has a method action() that is."
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((None, nothing), ENVIRONMENT.format("None")),
        ((3, nothing), ENVIRONMENT.format("3 of type int")),
        (([], nothing), ENVIRONMENT.format("a list of 0 elements")),
        ((lambda: 3, nothing), "was given 3 of type int"),
        (("NoSuch", nothing), "There is no environment named 'NoSuch'"),
        ((CountingEnv(), None), POLICY.format("None")),
        ((CountingEnv(), 3), POLICY.format("3 of type int")),
    ],
)
def test_anything_but_an_environment_and_a_policy_is_refused(
    arguments, expected, message_of
):
    assert expected in message_of((TypeError, ValueError), lambda: dataset(*arguments))


def test_making_a_dataset_prints_nothing(capfd, caplog):
    tf.get_logger().propagate = True
    list(dataset(CountingEnv(), nothing).take(1))
    assert "AutoGraph could not transform" not in capfd.readouterr().err
    assert "AutoGraph could not transform" not in caplog.text


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_the_very_first_step_is_no_transition(whole_episodes):
    spec = envkit.time_step_spec(tf.TensorSpec([2], tf.float32))
    env = RandomTFEnvironment(spec, tf.TensorSpec([], tf.int64), 2, 0.5, seed=3)
    elements = dataset(
        env, lambda time_step: tf.zeros([2], tf.int64), whole_episodes=whole_episodes
    )
    types = [element.next_time_step.step_type.numpy() for element in elements.take(9)]
    assert 0 not in np.concatenate([np.atleast_1d(part) for part in types])
