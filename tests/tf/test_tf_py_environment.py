"""`TFPyEnvironment`: every kind of Python environment, eagerly and in graphs."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    nest,
    restart,
    transition,
)
from envkit._internal.first_look import leave_unseen
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.parallel import (
    AsyncParallelPyEnvironment,
    AutoReset,
    ParallelPyEnvironment,
)
from envkit.testing.envs import (
    CountingEnv,
    CrashingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    ScriptedEnv,
    TracingEnv,
)
from envkit.tf import TFEnvironment, TFPyEnvironment
from envkit.wrappers import FixedLength, LogEpisodes, TimeLimit
from tests.parallel.environments import Gated
from tests.waiting import PATIENCE


def eagerly(function):
    return function


eagerly_and_in_a_graph = pytest.mark.parametrize("through", [eagerly, tf.function])


# Example environments.


class Pair(NamedTuple):
    """A structure whose fields are not in the order of the alphabet."""

    right: object
    left: object


class Batch(PyEnvironment):
    """A batch of rows that returns whatever it was given, the same objects each time.

    Where `observation` is a function, it is called with the number of the step.
    """

    def __init__(
        self,
        observation_spec=(),
        observation=(),
        *,
        rows=2,
        action_spec=None,
        reward_spec=None,
        discount_spec=None,
        **fields,
    ):
        super().__init__()
        self._rows = rows
        self._spec = observation_spec
        self._action_spec = (
            ArraySpec((), np.int64) if action_spec is None else action_spec
        )
        self._reward_spec, self._discount_spec = reward_spec, discount_spec
        self._observation = observation
        self._fields = fields
        self.steps = 0
        self.actions = []

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return self._rows

    def observation_spec(self):
        return self._spec

    def action_spec(self):
        return self._action_spec

    def reward_spec(self):
        return super().reward_spec() if self._reward_spec is None else self._reward_spec

    def discount_spec(self):
        own = self._discount_spec
        return super().discount_spec() if own is None else own

    def _time_step(self, step_type):
        observation = self._observation
        time_step = TimeStep(
            np.full(self._rows, step_type, np.int32),
            np.zeros(self._rows, np.float32),
            np.ones(self._rows, np.float32),
            observation(self.steps) if callable(observation) else observation,
        )
        return time_step._replace(**self._fields)

    def _reset(self):
        return self._time_step(0)

    def _step(self, action):
        self.steps += 1
        self.actions.append(action)
        return self._time_step(1)


class Overwriting(Batch):
    """Returns the same arrays with every step, and writes into them."""

    def __init__(self, size):
        self.arrays = TimeStep(
            aligned((2,), np.int32),
            aligned((2,), np.float32),
            aligned((2,), np.float32),
            aligned((2, size), np.float32),
        )
        super().__init__(ArraySpec((size,), np.float32))

    def _time_step(self, step_type):
        for array in self.arrays:
            array[...] = self.steps
        self.arrays.step_type[...] = step_type
        return self.arrays


class Noting(CountingEnv):
    """Notes in which thread what was called."""

    def __init__(self):
        super().__init__()
        self.threads = {}
        self._note("init")

    def _note(self, call):
        self.threads.setdefault(call, set()).add(threading.get_ident())

    def _reset(self):
        self._note("reset")
        return super()._reset()

    def _step(self, action):
        self._note("step")
        return super()._step(action)

    def render(self, mode="rgb_array"):
        self._note("render")
        return super().render(mode)

    def get_info(self):
        self._note("get_info")
        return {}

    @property
    def level(self):
        self._note("level")
        return 7

    def _get_state(self):
        self._note("get_state")
        return super()._get_state()

    def close(self):
        self._note("close")


class Waiting(CountingEnv):
    """Takes its steps only when it is told to."""

    def __init__(self):
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()
        self.inside = self.most_inside = 0

    def _step(self, action):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entered.set()
        assert self.go.wait(PATIENCE)
        self.inside -= 1
        return super()._step(action)


class OutOfLevels(Exception):
    """An error of the environment's own."""


class Raising(CountingEnv):
    """Raises what it is given, with the third step."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    def _step(self, action):
        if self._current_step == 2:
            raise self._error
        return super()._step(action)


class Painter(CountingEnv):
    """Has a picture of the size that it is told to, and a window."""

    def __init__(self, height=4):
        super().__init__()
        self.height = height
        self.modes = []

    def render(self, mode="rgb_array"):
        assert type(mode) is str
        self.modes.append(mode)
        if mode == "human":
            return None
        return np.full((self.height, 5, 3), 10 + self._current_step, np.uint8)


# Helpers.


def aligned(shape, dtype):
    """Returns zeros at an address that TensorFlow would take over without copying."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + size].view(dtype).reshape(shape)


def told(time_step):
    """Returns all there is to know about a time step's leaves, of either kind."""
    leaves = [np.asarray(leaf) for leaf in nest.flatten(time_step)]
    return [(leaf.dtype, leaf.shape, leaf.tolist()) for leaf in leaves]


def values(tensors):
    return tf.nest.map_structure(lambda tensor: tensor.numpy().tolist(), tensors)


def py_funcs(function):
    """Counts the calls to Python in a traced function and in all that it calls."""
    graph = function.get_concrete_function().graph.as_graph_def()
    bodies = {part.signature.name: part.node_def for part in graph.library.function}

    def count(nodes):
        called = [
            attribute.func.name
            for node in nodes
            for attribute in node.attr.values()
            if attribute.func.name
        ]
        here = sum("PyFunc" in node.op for node in nodes)
        return here + sum(count(bodies[name]) for name in called)

    return count(graph.node)


@contextlib.contextmanager
def isolations(kind):
    """Gives what `isolation` may be, and closes what has to be closed."""
    if kind == "own":
        yield True
    elif kind == "ThreadPool":
        with ThreadPool(1) as pool:
            yield pool
            pool.close()
            pool.join()
    else:
        with ThreadPoolExecutor(1) as pool:
            yield pool


in_each_isolation = pytest.mark.parametrize(
    "isolation", ["own", "ThreadPool", "ThreadPoolExecutor"]
)


def tracing_pool(backend="inline", order=AutoReset.NEXT_STEP, lengths=(2, 3, 5)):
    makers = [functools.partial(TracingEnv, i, lengths) for i in range(3)]
    return ParallelPyEnvironment(
        makers, backend=backend, autoreset=order, num_workers=1
    )


KINDS = {
    "native batch": lambda: envkit.make("CartPole", batch_size=3, seed=4),
    "Batched": lambda: BatchedPyEnvironment([TracingEnv(i, [2, 3]) for i in range(3)]),
    "Batched, one thread": lambda: BatchedPyEnvironment(
        [TracingEnv(i, [2, 3]) for i in range(3)], multithreading=False
    ),
}


def stream(env, step, steps=14):
    """Plays, and returns all that came; an environment of either kind."""
    rng = np.random.default_rng(5)
    came = [told(env.reset())]
    for _ in range(steps):
        standing = env.current_time_step()
        came.append(told(standing))
        ended = np.asarray(standing.is_last())
        if getattr(env, "autoreset", None) is AutoReset.DISABLED and ended.any():
            came.append(told(env.reset(ended)))
        came.append(told(step(rng.integers(0, 2, env.batch_size))))
    return came


# Environments of all kinds.


in_each_order = pytest.mark.parametrize(
    "order", list(AutoReset), ids=lambda order: order.value
)


@in_each_order
@pytest.mark.parametrize(
    ("backend", "through"),
    [("inline", tf.function), ("inline", eagerly), ("thread", eagerly)],
)
def test_a_pool_has_the_same_stream_with_and_without_tensorflow(
    backend, order, through
):
    if order is AutoReset.SAME_STEP and backend == "thread":
        backend = "process"  # Once, because it is slow and adds little.
    with tracing_pool(order=order) as env:
        expected = stream(env, env.step)
    with TFPyEnvironment(tracing_pool(backend, order)) as env:
        actual = stream(env, through(env.step))
    assert expected == actual


# A kind, and through what it is stepped: batches and single environments have a way
# through a graph each, whatever is inside.
STEPPED = [
    *((kind, eagerly) for kind in KINDS),
    ("wrapped batch", eagerly),
    ("wrapped pool", eagerly),
    ("single", eagerly),
    ("Batched", tf.function),
    ("single", tf.function),
]
MADE = {
    **KINDS,
    "wrapped batch": lambda: TimeLimit(KINDS["Batched"](), 2),
    "wrapped pool": lambda: TimeLimit(tracing_pool(), 2),
    "one row": lambda: BatchedPyEnvironment([TracingEnv(7, 3)]),
    "single": lambda: TracingEnv(7, 3),
}


@in_each_order
@pytest.mark.parametrize(("kind", "through"), STEPPED)
def test_batches_have_the_same_stream_in_each_order(kind, order, through):
    with MADE[kind if kind != "single" else "one row"]() as env:
        env.autoreset = order
        expected = stream(env, env.step)
    with TFPyEnvironment(MADE[kind](), isolation="wrapped" in kind) as env:
        step = through(env.step)
        env.autoreset = order.value
        actual = stream(env, step)

        assert order is env.autoreset is env.pyenv.autoreset
    assert expected == actual


@eagerly_and_in_a_graph
def test_the_padding_of_a_single_environment_is_kept_whole(through):
    env = TFPyEnvironment(FixedLength(CountingEnv(steps_per_episode=2), 5))
    step = through(env.step)
    env.reset()
    time_steps = [step(tf.constant([0])) for _ in range(7)]
    assert [1, 2, 2, 2, 2, 0, 1] == [int(each.step_type[0]) for each in time_steps]
    assert [0, 1, 0, 0, 0, 0, 0] == [int(each.reward[0]) for each in time_steps]


def test_a_single_environment_becomes_a_batch_of_one():
    env = TFPyEnvironment(CountingEnv())
    assert isinstance(env, TFEnvironment)
    assert envkit.TFPyEnvironment is TFPyEnvironment
    assert (1, True) == (env.batch_size, env.batched)
    assert isinstance(env.pyenv, BatchedPyEnvironment)


@pytest.mark.parametrize(
    "maker",
    [
        CountingEnv,
        functools.partial(CountingEnv, 3),
        lambda: CountingEnv(),
        "envkit.testing.envs:CountingEnv",
    ],
    ids=["class", "partial", "lambda", "name"],
)
@pytest.mark.parametrize("isolation", [False, True])
def test_a_constructor_or_a_name_is_accepted(maker, isolation):
    with TFPyEnvironment(maker, isolation=isolation) as env:
        assert [0] == env.reset().observation.numpy().tolist()


def test_an_asynchronous_environment_is_wrapped_by_blocking():
    with AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline") as pool:
        with pytest.raises(TypeError) as caught:
            TFPyEnvironment(pool)
        env = TFPyEnvironment(envkit.Blocking(pool))
        counts = [env.step([0, 0]).observation.numpy().tolist() for _ in range(3)]

    assert str(caught.value) == (
        "TFPyEnvironment was given an AsyncParallelPyEnvironment object. Wrap an "
        "asynchronous environment: TFPyEnvironment(Blocking(env))."
    )
    assert [[0, 0], [1, 1], [2, 2]] == counts


def test_arguments_have_the_names_and_order_of_tf_agents():
    with TFPyEnvironment(CountingEnv(), True, True) as env:
        env.reset()
        with pytest.raises(SpecError):
            env.step(tf.constant(1))


@pytest.mark.parametrize("isolation", [False, True])
@pytest.mark.parametrize(
    ("given", "described"),
    [(None, "None"), (lambda: 3, "a function object, which returned 3 of type int")],
)
def test_anything_but_an_environment_is_refused(
    given, described, isolation, message_of, nothing_left_behind
):
    expected = (
        f"TFPyEnvironment was given {described}. Pass a PyEnvironment, or something to "
        "call that makes one."
    )
    assert expected == message_of(
        TypeError, lambda: TFPyEnvironment(given, isolation=isolation)
    )


@pytest.mark.parametrize("isolation", [False, True])
def test_errors_of_a_constructor_reach_the_caller(isolation, nothing_left_behind):
    with pytest.raises(RuntimeError, match="told to raise in init 1"):
        TFPyEnvironment(
            functools.partial(CrashingEnv, where="init"), isolation=isolation
        )


@pytest.mark.parametrize("is_given", [False, True])
def test_only_an_environment_made_here_is_closed_if_it_cannot_be_wrapped(is_given):
    class Dated(Batch):
        closed = False

        def close(self):
            self.closed = True

    # TensorFlow has no dtype for it.
    env = Dated(ArraySpec((), "datetime64[s]"), np.zeros(2, "datetime64[s]"))

    with pytest.raises(ValueError, match=r"datetime64\[s\]"):
        TFPyEnvironment(env if is_given else lambda: env)

    assert is_given is not env.closed


# Specs and structures.


NESTED = {
    "zeta": ArraySpec((2,), np.float32),
    "alpha": Pair(ArraySpec((), np.int64), ArraySpec((), np.bool_)),
    "mid": (ArraySpec((), np.uint8), {}, [ArraySpec((1,), np.float64)]),
}


def zeros_of(spec, rows=2):
    return nest.map_structure(
        lambda leaf: np.zeros((rows, *leaf.shape), leaf.dtype), spec
    )


@eagerly_and_in_a_graph
def test_nested_observations_keep_their_structure_and_the_order_of_their_keys(through):
    env = TFPyEnvironment(Batch(NESTED, zeros_of(NESTED)))
    seen = []

    def look():
        seen.extend([env.reset(), env.step([0, 0]), env.current_time_step()])
        return tf.constant(0)

    through(look)()

    for time_step in seen:
        tf.nest.assert_same_structure(env.time_step_spec(), time_step)
        assert ["zeta", "alpha", "mid"] == list(time_step.observation)
        assert type(time_step) is TimeStep
        assert type(time_step.observation["alpha"]) is Pair
    assert ["zeta", "alpha", "mid"] == list(env.observation_spec())


@eagerly_and_in_a_graph
def test_observations_may_have_no_leaves(through):
    empty = ({}, [])
    env = TFPyEnvironment(Batch(empty, empty))

    time_step = through(lambda: env.step([0, 0]))()

    assert empty == time_step.observation
    assert [0, 0] == time_step.step_type.numpy().tolist()


@eagerly_and_in_a_graph
def test_actions_may_have_no_leaves(through):
    pyenv = Batch(action_spec=())
    env = TFPyEnvironment(pyenv)
    env.reset()

    through(lambda: env.step(()))()

    assert [()] == pyenv.actions


@eagerly_and_in_a_graph
def test_nested_actions_arrive_unchanged(through):
    spec = {
        "move": BoundedArraySpec((2,), np.float32, -1, 1),
        "fire": Pair(ArraySpec((), np.int32), ArraySpec((), np.bool_)),
    }
    pyenv = Batch(action_spec=spec)
    env = TFPyEnvironment(pyenv)
    env.reset()

    through(
        lambda: env.step(
            {
                "fire": Pair(tf.constant([1, 2]), np.array([True, False])),
                "move": [[0.5, -0.5], [1.0, 0.0]],
            }
        )
    )()

    (action,) = pyenv.actions
    assert ["move", "fire"] == list(action)
    assert type(action["fire"]) is Pair
    assert [[0.5, -0.5], [1.0, 0.0]] == action["move"].tolist()
    assert np.float32 == action["move"].dtype
    assert [1, 2] == action["fire"].right.tolist()
    assert [True, False] == action["fire"].left.tolist()


@eagerly_and_in_a_graph
def test_an_action_may_be_a_variable_or_a_list_of_tensors(through):
    pyenv = Batch()
    env = TFPyEnvironment(pyenv)
    env.reset()
    variable = tf.Variable([5, 6], dtype=tf.int64)

    through(lambda number: env.step([number, number + 1]))(tf.constant(3, tf.int64))
    through(lambda: env.step(variable))()
    variable.assign([7, 8])

    assert [[3, 4], [5, 6]] == [action.tolist() for action in pyenv.actions]


@eagerly_and_in_a_graph
def test_an_action_of_another_structure_is_refused_at_once(through, message_of):
    env = TFPyEnvironment(NestedCountingEnv(nested_action=True))
    env.reset()
    function = through(lambda: env.step({"foo": tf.constant([0])}))

    message = message_of(SpecError, function)

    assert (
        "TFPyEnvironment.step() was given an action that does not fit its spec"
        in message
    )
    assert "Key 'bar' is missing" in message


DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("size", [3, 9000])
def test_values_of_every_dtype_arrive_eagerly_and_in_graphs(size):
    dtypes = [*DTYPES, "c8", "c16", ">f4", ">i8"]
    numbers = np.arange(2 * size).reshape(2, size) % 3
    env = TFPyEnvironment(
        Batch(
            {dtype: ArraySpec((size,), dtype) for dtype in dtypes},
            {dtype: numbers.astype(dtype) for dtype in dtypes},
        )
    )

    eager = env.reset().observation
    in_graph = tf.function(lambda: env.step([0, 0]).observation)()

    for dtype in dtypes:
        for tensor in (eager[dtype], in_graph[dtype]):
            assert env.observation_spec()[dtype].dtype == tensor.dtype
            np.testing.assert_array_equal(numbers.astype(dtype), tensor.numpy())


@eagerly_and_in_a_graph
@pytest.mark.parametrize("size", [3, 200])
def test_arrays_of_any_layout_arrive(size, through):
    whole = np.arange(2 * size * size, dtype=np.float32).reshape(2, size, size)
    layouts = {
        "b": np.asfortranarray(whole),
        "a": whole[:, ::-1],
        "c": whole.transpose(0, 2, 1),
        "read-only": np.broadcast_to(np.float32(3.0), (2, 4)),
        "empty": np.zeros((2, 0), np.float32),
        "empty, too": np.zeros((2, 3, 0, 2), np.float32),
    }
    spec = {key: ArraySpec(a.shape[1:], np.float32) for key, a in layouts.items()}
    env = TFPyEnvironment(Batch(spec, layouts))

    observation = through(env.reset)().observation

    for key, array in layouts.items():
        np.testing.assert_array_equal(array, observation[key].numpy())


@eagerly_and_in_a_graph
@pytest.mark.parametrize(
    ("dtype", "texts"),
    [("U5", ["left", "up"]), ("S5", ["left", "up"]), ("U5", ["é", "日本"])],
)
def test_text_of_any_width_arrives_in_utf_8(dtype, texts, through):
    env = TFPyEnvironment(Batch(ArraySpec((), dtype), np.array(texts, dtype[0])))

    observation = through(env.reset)().observation

    assert tf.string == observation.dtype
    assert [text.encode() for text in texts] == observation.numpy().tolist()


@eagerly_and_in_a_graph
@pytest.mark.parametrize("dtype", ["U5", "S5"])
def test_text_may_be_an_action(dtype, through):
    pyenv = Batch(action_spec=ArraySpec((), dtype))
    env = TFPyEnvironment(pyenv)
    env.reset()

    through(lambda: env.step(tf.constant(["left", "up"])))()

    assert dtype[0] == pyenv.actions[0].dtype.kind
    assert np.array(["left", "up"], dtype).tolist() == pyenv.actions[0].tolist()


@eagerly_and_in_a_graph
def test_numbers_in_place_of_text_are_refused(through):
    env = TFPyEnvironment(Batch(ArraySpec((), "U5"), np.array([1, 2])))
    with pytest.raises((SpecError, tf.errors.OpError), match="dtype"):
        through(env.reset)()


@eagerly_and_in_a_graph
def test_rewards_and_discounts_fit_their_specs(through):
    rewards = {"z": ArraySpec((3,), np.float64), "a": ArraySpec((), np.int32)}
    discounts = BoundedArraySpec((2,), np.float64, 0.0, 2.0)
    pyenv = Batch(
        reward_spec=rewards,
        discount_spec=discounts,
        reward={"z": np.full((2, 3), 0.1), "a": np.array([4, 5], np.int32)},
        discount=np.full((2, 2), 1.5),
    )
    env = TFPyEnvironment(pyenv)

    time_step = through(lambda: env.step([0, 0]))()

    assert ["z", "a"] == list(time_step.reward) == list(env.reward_spec())
    assert [[0.1] * 3] * 2 == time_step.reward["z"].numpy().tolist()
    assert [4, 5] == time_step.reward["a"].numpy().tolist()
    assert [[1.5, 1.5]] * 2 == time_step.discount.numpy().tolist()
    assert tf.float64 == env.discount_spec().dtype == time_step.discount.dtype
    assert 2.0 == env.discount_spec().maximum


def test_rewards_of_a_single_environment_may_be_vectors():
    class Several(CountingEnv):
        def reward_spec(self):
            return {"points": ArraySpec((2,), np.float64)}

        def _reset(self):
            return super()._reset()._replace(reward={"points": np.zeros(2)})

        def _step(self, action):
            points = np.array([1.0, 0.1])
            return super()._step(action)._replace(reward={"points": points})

    env = TFPyEnvironment(Several())
    env.reset()

    assert [[1.0, 0.1]] == env.step([0]).reward["points"].numpy().tolist()


def test_specs_are_those_of_the_environment_as_tensor_specs():
    from envkit.tf import tensor_spec

    pyenv = NestedCountingEnv(nested_action=True)
    env = TFPyEnvironment(pyenv)

    assert tensor_spec.from_spec(pyenv.time_step_spec()) == env.time_step_spec()
    assert tensor_spec.from_spec(pyenv.action_spec()) == env.action_spec()
    assert pyenv.observation_spec() == tensor_spec.to_nest_array_spec(
        env.observation_spec()
    )
    assert ["total_steps", "current_steps"] == list(env.observation_spec())
    assert ["foo", "bar"] == list(env.action_spec())


def test_shapes_and_dtypes_are_known_in_a_graph():
    env = TFPyEnvironment(
        Batch({"a": ArraySpec((3, 0), np.uint16)}, {"a": np.zeros((2, 3, 0), "u2")})
    )
    seen = []

    @tf.function
    def look():
        seen.extend([env.current_time_step(), env.reset(), env.step([0, 0])])

    look()

    for time_step in seen:
        assert not hasattr(time_step.reward, "numpy")
        for spec, leaf in zip(
            tf.nest.flatten(env.time_step_spec()),
            tf.nest.flatten(time_step),
            strict=True,
        ):
            assert [2, *spec.shape.as_list()] == leaf.shape.as_list()
            assert spec.dtype == leaf.dtype


# Graphs.


def test_a_step_is_one_call_to_python_in_a_graph():
    env = TFPyEnvironment(NestedCountingEnv(nested_action=True))
    action = {"foo": tf.constant([0]), "bar": tf.constant([0])}
    assert 1 == py_funcs(tf.function(lambda: env.step(action)))
    assert 1 == py_funcs(tf.function(env.reset))
    assert 1 == py_funcs(tf.function(env.current_time_step))


def test_a_step_in_a_loop_is_one_call_to_python_in_a_graph():
    env = TFPyEnvironment(CountingEnv())

    @tf.function
    def loop():
        count = tf.constant(0)
        while count < 5:
            env.step([0])
            for _ in tf.range(2):
                env.step([0])
            count += 1
        return tf.while_loop(
            lambda _: tf.constant(False),
            lambda _: env.step([0]).observation,
            [tf.constant([0])],
        )

    assert 3 == py_funcs(loop)


def test_eager_mode_does_not_use_numpy_function(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("That takes a detour.")

    for name in ("numpy_function", "py_function"):
        monkeypatch.setattr(tf, name, forbidden)
    env = TFPyEnvironment(CountingEnv())

    env.current_time_step(), env.reset(), env.step([0]), env.render()

    assert [2] == env.step(tf.constant([0])).observation.numpy().tolist()


def test_steps_in_one_function_run_in_program_order():
    env = TFPyEnvironment(TracingEnv(steps_per_episode=100))

    @tf.function
    def five_steps():
        actions = []
        for action in range(5):
            # Of most of them the result is not used.
            time_step = env.step(tf.constant([action], tf.int64))
            actions.append(env.current_time_step().observation["action"])
        return time_step.observation["step"], tf.concat(actions, 0)

    env.reset()
    step, actions = five_steps()

    assert [5] == step.numpy().tolist()
    assert [0, 1, 2, 3, 4] == actions.numpy().tolist()


@pytest.mark.parametrize("carried", [False, True])
def test_iterations_of_a_loop_run_in_order(carried):
    """Also those that need nothing from each other."""
    env = TFPyEnvironment(TracingEnv(steps_per_episode=1000))

    @tf.function
    def loop():
        def body(i, time_step):
            stepped = env.step(tf.fill([1], tf.cast(i, tf.int64)))
            return i + 1, stepped if carried else time_step

        return tf.while_loop(lambda i, _: i < 100, body, [0, env.reset()])[1]

    returned, current = loop().observation, env.current_time_step().observation

    assert [100 if carried else 0] == returned["step"].numpy().tolist()
    assert [100] == current["step"].numpy().tolist()
    assert [99] == current["action"].numpy().tolist()


def test_an_episode_can_be_played_with_autograph():
    env = TFPyEnvironment(CountingEnv(6))

    @tf.function
    def episode():
        time_step = env.reset()
        earned = tf.zeros([1])
        while not time_step.is_last()[0]:
            time_step = env.step(tf.ones([1], tf.int32))
            earned += time_step.reward
        return earned, time_step

    earned, time_step = episode()

    assert [1.0] == earned.numpy().tolist()
    assert [6] == time_step.observation.numpy().tolist()


def test_only_the_taken_branch_of_tf_cond_steps():
    env = TFPyEnvironment(CountingEnv())

    @tf.function
    def maybe(condition):
        return tf.cond(condition, lambda: env.step([0]), env.current_time_step)

    env.reset()
    counts = [maybe(tf.constant(flag)).observation for flag in (True, False, True)]

    assert [1, 1, 2] == [int(count[0]) for count in counts]


def test_the_environment_runs_in_tf_data():
    env = TFPyEnvironment(CountingEnv(3))
    steps = tf.data.Dataset.range(5).map(lambda _: env.step(tf.constant([0])))
    assert [0, 1, 2, 3, 10] == [int(step.observation[0]) for step in steps]
    assert [1] == steps.element_spec.observation.shape.as_list()


@pytest.mark.parametrize("way", ["eager", "map_fn", "graph", "graph's map_fn"])
def test_an_environment_is_not_converted_by_autograph(way):
    """AutoGraph rewrites functions of tensors, and environments are none."""
    files = set()

    class Looking(CountingEnv):
        def _step(self, action):
            files.add(inspect.currentframe().f_code.co_filename)
            return super()._step(action)

    env = TFPyEnvironment(Looking())
    env.reset()

    def steps():
        if "map_fn" not in way:
            return env.step([0]).observation
        return tf.map_fn(lambda _: env.step([0]).observation, tf.range(3))

    (tf.function(steps) if "graph" in way else steps)()

    assert {__file__} == files


def test_the_environment_runs_in_a_tensorflow_1_graph():
    env = TFPyEnvironment(CountingEnv())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        observation = env.step(tf.constant([0])).observation

        counts = [session.run(observation).tolist() for _ in range(3)]

    assert [[0], [1], [2]] == counts


@eagerly_and_in_a_graph
def test_gradients_flow_around_a_step_but_not_through_it(through):
    pyenv = Batch(action_spec=ArraySpec((), np.float32), reward=np.ones(2, "f4"))
    env = TFPyEnvironment(pyenv)
    env.reset()
    inside, around = tf.Variable([1.0, 2.0]), tf.Variable(3.0)

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(env.step(inside * 2.0).reward) * around
        through_step, around_step = tape.gradient(loss, [inside, around])
        assert through_step is None
        return around_step

    assert 2.0 == float(through(gradients)())


# Current time steps.


@eagerly_and_in_a_graph
def test_current_time_step_begins_an_episode_once_and_is_never_stale(through):
    env = TFPyEnvironment(CountingEnv())
    look = through(lambda: env.current_time_step().observation)
    seen = [int(look()[0]), int(look()[0])]
    for _ in range(2):
        env.step([0])
        seen.append(int(look()[0]))
    env.pyenv.step([0])  # behind its back

    assert [0, 0, 1, 2, 3] == [*seen, int(look()[0])]


@eagerly_and_in_a_graph
def test_current_time_step_follows_set_state(through):
    env = TFPyEnvironment(CountingEnv())
    look = through(lambda: env.current_time_step().observation)
    env.reset()
    env.step([0])
    state = env.get_state()
    env.step([0])
    env.set_state(state)

    assert [1] == look().numpy().tolist()


@eagerly_and_in_a_graph
def test_the_first_step_begins_an_episode(through):
    env = TFPyEnvironment(CountingEnv())
    assert [0] == through(lambda: env.step([1]))().step_type.numpy().tolist()


# Masks.


@eagerly_and_in_a_graph
@pytest.mark.parametrize("kind", KINDS)
def test_reset_starts_only_the_masked_rows(kind, through):
    mask = np.array([True, False, True])
    with KINDS[kind]() as env:
        env.reset()
        env.step([0, 0, 0])
        expected = told(env.reset(mask))
    with TFPyEnvironment(KINDS[kind]()) as env:
        env.reset()
        env.step([0, 0, 0])
        actual = told(through(lambda: env.reset(tf.constant(mask)))())

    assert expected == actual


@eagerly_and_in_a_graph
def test_rows_without_an_episode_are_reset_with_the_masked_ones(through):
    with TFPyEnvironment(KINDS["Batched"]()) as env:
        assert env.resets_rows
        time_step = through(lambda: env.reset(tf.constant([True, False, False])))()
        assert [0, 0, 0] == time_step.step_type.numpy().tolist()


@eagerly_and_in_a_graph
def test_a_mask_of_another_length_is_refused(through):
    env = TFPyEnvironment(KINDS["native batch"]())
    env.reset()
    with pytest.raises(
        (SpecError, tf.errors.InvalidArgumentError), match="mask that does not fit"
    ):
        through(lambda: env.reset(tf.constant([True])))()


# Memory.


@eagerly_and_in_a_graph
@pytest.mark.parametrize("size", [3, 100_000])
def test_reused_arrays_do_not_change_earlier_tensors(size, through):
    pyenv = Overwriting(size)
    env = TFPyEnvironment(pyenv)
    calls = [env.reset, env.current_time_step, *[lambda: env.step([0, 0])] * 2]
    four = through(lambda: [call() for call in calls])

    seen = [*four(), *four()]
    for array in pyenv.arrays:
        array[...] = 99

    assert [0, 0, 1, 1] * 2 == [int(time_step.step_type[1]) for time_step in seen]
    for number, time_step in zip([0, 0, 1, 2, 2, 2, 3, 4], seen, strict=True):
        assert {number} == set(time_step.observation.numpy().ravel().tolist())
        assert [number] * 2 == time_step.reward.numpy().tolist()


def test_views_of_a_pool_do_not_change_earlier_tensors():
    with TFPyEnvironment(
        ParallelPyEnvironment([CountingEnv] * 2, backend="inline", zero_copy=True)
    ) as env:
        seen = [env.step([0, 0]).observation for _ in range(6)]
    assert [[n, n] for n in range(6)] == values(seen)


def test_changing_a_tensors_array_does_not_reach_the_environment():
    observation = aligned((2, 5000), np.float32)
    env = TFPyEnvironment(Batch(ArraySpec((5000,), np.float32), observation))
    array = env.reset().observation.numpy()
    with contextlib.suppress(
        ValueError
    ):  # Whether it can be written to is TensorFlow's.
        array[...] = 5.0

    assert 0.0 == observation.max()


class KeepingActions(Batch):
    """Changes its actions, and keeps them."""

    def _step(self, action):
        action += 100
        return super()._step(action)


@pytest.mark.parametrize("size", [1, 50_000])
@eagerly_and_in_a_graph
def test_an_environment_may_change_and_keep_its_actions(through, size):
    pyenv = KeepingActions(action_spec=ArraySpec((size,), np.int64))
    env = TFPyEnvironment(pyenv)
    env.reset()
    step = through(lambda action: env.step(action))
    tensors = [tf.fill([2, size], tf.constant(n, tf.int64)) for n in range(3)]
    for tensor in tensors:
        step(tensor)
    array = np.full((2, size), 3)
    env.step(array)
    array[...] = 77

    assert [0, 1, 2] == [int(tensor[1, -1]) for tensor in tensors]
    assert [100, 101, 102, 103] == [int(kept[1, -1]) for kept in pyenv.actions]
    assert 77 == array[0, 0]


# Refusals.

F4, F8 = ArraySpec((), np.float32), ArraySpec((), np.float64)

# What `Batch` returns, the path of the leaf that does not fit, and why not.
MISFITS = {
    **{
        name: (({"a": F4}, {"a": wrong}), {}, "observation['a']", reason)
        for name, wrong, reason in [
            ("shape", np.zeros((2, 1), "f4"), "has 2 dimensions instead of 1."),
            ("batch", np.zeros(3, "f4"), "Axis 0 has size 3 instead of 2."),
            ("dtype", np.zeros(2), "dtype is float64; the spec says float32."),
            ("single", np.zeros((), "f4"), "The whole batch dimension is missing"),
            ("list", [0.0, 0.0], "The value is a list, not an array"),
            ("None", None, "None is not an array"),
            ("number", np.float32(0.0), "is expected."),
        ]
    },
    **{
        name: (({"a": F8}, wrong), {}, "observation", "")
        for name, wrong in [
            ("key", {"b": np.zeros(2)}),
            ("empty", {}),
            ("tuple", (np.zeros(2),)),
            ("array", np.zeros(2)),
        ]
    },
    **{
        name: ((), {name: wrong}, name, "")
        for name, wrong in [
            ("step_type", np.zeros(2, np.int64)),
            ("reward", np.zeros(2)),
            ("discount", np.ones((2, 1), np.float32)),
        ]
    },
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_values_that_do_not_fit_their_spec_are_refused(misfit):
    observation, fields, path, reason = MISFITS[misfit]
    pyenv = Batch(*observation, **fields)
    leave_unseen(pyenv)  # Which has looked at its first time steps only.
    env = TFPyEnvironment(pyenv)
    pyenv.reset()

    for call in (env.current_time_step, lambda: env.step([0, 0]), env.reset):
        with pytest.raises(SpecError) as caught:
            call()

        assert caught.value.path.startswith(path)
        assert reason in str(caught.value)


def test_a_spec_error_has_the_whole_text(message_of):
    pyenv = Batch({"a": ArraySpec((), np.float32)}, {"a": np.zeros(2)})
    leave_unseen(pyenv)
    expected = (
        "Batch.step() returned a time step that does not fit its spec at "
        "observation['a'].\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float32)\n"
        "  got        array of shape (2,), dtype float64, values 0.0 … 0.0\n\n"
        "dtype is float64; the spec says float32. NumPy makes float64 by default: add "
        ".astype(np.float32). The other 3 leaves fit."
    )
    env = TFPyEnvironment(pyenv)
    with contextlib.suppress(SpecError):
        env.reset()

    assert expected == message_of(SpecError, lambda: env.step([0, 0]))
    with pytest.raises(tf.errors.InvalidArgumentError) as in_graph:
        tf.function(lambda: env.step([0, 0]))()
    assert expected in str(in_graph.value)


def test_a_single_environment_is_checked_too():
    script = [
        restart(np.zeros(3, np.float32)),
        transition(np.zeros(4, np.float32), 1.0),
    ]
    env = TFPyEnvironment(ScriptedEnv(script))
    env.reset()

    with pytest.raises(SpecError, match="Axis 0 has size 4 instead of 3"):
        env.step([0])
    env.reset()
    with pytest.raises(tf.errors.InvalidArgumentError, match="size 4 instead of 3"):
        tf.function(lambda: env.step([0]))()


def test_actions_out_of_bounds_are_refused_before_anything_steps():
    env = TFPyEnvironment(CountingEnv())
    env.reset()

    with pytest.raises(SpecError, match="above the maximum 1"):
        env.step(tf.constant([2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="above the maximum 1"):
        tf.function(lambda: env.step(tf.constant([2])))()

    assert [0] == env.current_time_step().observation.numpy().tolist()


@eagerly_and_in_a_graph
@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_batch_of_actions_of_another_length_is_refused(size, through):
    env = TFPyEnvironment(BatchedPyEnvironment([CountingEnv(), CountingEnv()]))
    env.reset()

    with pytest.raises(
        (SpecError, tf.errors.InvalidArgumentError), match="given for 2 environments"
    ):
        through(lambda: env.step(tf.zeros([size], tf.int32)))()

    assert [0, 0] == env.current_time_step().observation.numpy().tolist()


@eagerly_and_in_a_graph
@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ([3], "The whole batch dimension is missing."),
        ([1, 3], "A batch of 2 environments takes one action for each."),
    ],
)
def test_check_dims_refuses_other_shapes_before_anything_runs(
    through, shape, reason, message_of
):
    env = TFPyEnvironment(
        Batch(action_spec={"a": ArraySpec((3,), "f4")}), check_dims=True
    )
    expected = (
        "TFPyEnvironment.step() was given an action that does not fit its spec at "
        "action['a'].\n\n"
        "  expected   ArraySpec(shape=(2, 3), dtype=float32)\n"
        f"  got        shape {tuple(shape)}\n\n"
        f"{reason}"
    )

    actual = message_of(
        ValueError, lambda: through(lambda: env.step({"a": tf.zeros(shape)}))()
    )

    assert expected in actual


def test_check_dims_checks_shapes_unknown_while_tracing():
    pyenv = Batch()
    env = TFPyEnvironment(pyenv, check_dims=True)
    env.reset()
    step = tf.function(
        lambda action: env.step(action),
        input_signature=[tf.TensorSpec(None, tf.int64)],
    )

    step(tf.constant([1, 2], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="takes one action for"):
        step(tf.constant([1, 2, 3], tf.int64))

    assert 1 == len(pyenv.actions)


@pytest.mark.parametrize("action", [[1, 2, 3], 1, np.zeros((2, 1), np.int64)])
def test_check_dims_checks_lists_and_numbers(action):
    pyenv = Batch()
    env = TFPyEnvironment(pyenv, check_dims=True)
    env.reset()

    with pytest.raises(ValueError, match="was given an action that does not fit"):
        env.step(action)

    assert [] == pyenv.actions


def test_without_check_dims_the_environment_sees_any_shape():
    pyenv = Batch()
    env = TFPyEnvironment(pyenv)
    env.reset()

    env.step(tf.constant([1, 2, 3], tf.int64))

    assert [1, 2, 3] == pyenv.actions[0].tolist()


# Errors of environments.


@pytest.mark.parametrize("isolation", [False, True])
@pytest.mark.parametrize("kind", [OutOfLevels, StopIteration, NotImplementedError])
def test_an_error_of_the_environment_reaches_the_caller(kind, isolation):
    error = kind("no level 7")
    with TFPyEnvironment(Raising(error), isolation=isolation) as env:
        for _ in range(3):
            env.step([0])

        with pytest.raises(kind) as eager:
            env.step([0])
        with pytest.raises(tf.errors.OpError, match="no level 7") as in_graph:
            tf.function(lambda: env.step([0]))()

        assert error is eager.value
        assert kind.__name__ in str(in_graph.value)
        assert [2] == env.current_time_step().observation.numpy().tolist()


@pytest.mark.parametrize(
    "error", [OutOfLevels("no level 7"), StopIteration("no level 7")]
)
def test_an_error_of_the_environment_does_not_look_like_the_end_of_a_dataset(error):
    env = TFPyEnvironment(Raising(error))
    steps = tf.data.Dataset.range(9).map(lambda _: env.step(tf.constant([0])))
    seen = []

    def consume():
        seen.extend(int(step.observation[0]) for step in steps)

    with pytest.raises(tf.errors.OpError, match="no level 7"):
        consume()

    assert [0, 1, 2] == seen


def test_an_error_in_a_worker_reaches_the_caller_and_the_pool_continues():
    makers = [CountingEnv, functools.partial(CrashingEnv, crash_at=2)]
    with TFPyEnvironment(ParallelPyEnvironment(makers, backend="thread")) as env:
        step = tf.function(lambda: env.step([0, 0]))
        env.reset()
        env.step([0, 0])

        with pytest.raises(RuntimeError, match="told to raise in step 2"):
            env.step([0, 0])
        env.reset()
        assert [1, 1] == step().observation.numpy().tolist()


# Two calls at once.


def test_a_concurrent_call_is_refused_and_changes_nothing(message_of, in_thread):
    pyenv = Waiting()
    env = TFPyEnvironment(pyenv)
    env.reset()
    first = in_thread(lambda: env.step([0]))
    assert pyenv.entered.wait(PATIENCE)
    expected = (
        "Detected concurrent execution: TFPyEnvironment.{}() was called while its "
        "step() is under way. Call it after step() has returned, or use "
        "TFPyEnvironment(environment, isolation=True), with which the second call "
        "waits."
    )

    for name in ("step", "reset", "current_time_step", "render", "get_state", "seed"):
        arguments = [[0]] if name in ("step", "seed") else []
        call = functools.partial(getattr(env, name), *arguments)
        assert expected.format(name) == message_of(CallOrderError, call)
    with pytest.raises(tf.errors.OpError) as caught:
        tf.function(lambda: env.step([0]))()
    assert expected.format("step") in str(caught.value)
    pyenv.go.set()

    assert [1] == first().observation.numpy().tolist()
    assert 1 == pyenv.most_inside
    assert [2] == env.step([0]).observation.numpy().tolist()
    assert issubclass(CallOrderError, RuntimeError)  # which TF-Agents raises


@in_each_isolation
def test_isolation_makes_other_calls_wait(isolation, in_thread):
    pyenv = Waiting()
    with isolations(isolation) as how, TFPyEnvironment(pyenv, isolation=how) as env:
        env.reset()
        graph = tf.function(lambda: env.step([0]))
        graph.get_concrete_function()
        calls = [in_thread(lambda: env.step([0])) for _ in range(4)]
        calls += [in_thread(graph) for _ in range(4)]
        assert pyenv.entered.wait(PATIENCE)
        pyenv.go.set()
        counts = sorted(int(call().observation[0]) for call in calls)

    assert list(range(1, 9)) == counts
    assert 1 == pyenv.most_inside


def test_isolation_makes_calls_of_a_parallel_dataset_wait():
    with TFPyEnvironment(CountingEnv(100), isolation=True) as env:
        env.reset()
        steps = tf.data.Dataset.range(40).map(
            lambda _: env.step(tf.constant([0])).observation[0], num_parallel_calls=8
        )
        counts = [int(count) for count in steps]
    assert list(range(1, 41)) == sorted(counts)


# Threads.


@in_each_isolation
def test_isolation_makes_all_calls_in_one_thread(isolation):
    with isolations(isolation) as how:
        env = TFPyEnvironment(Noting, isolation=how)
        pyenv = env.pyenv.envs[0]
        env.reset(), env.step([0]), env.render(), env.get_info(), env.level
        env.current_time_step(), env.get_state()
        tf.function(lambda: (env.reset(), env.step([0]), env.render()))()
        env.close()

    (thread,) = set.union(*pyenv.threads.values())
    assert threading.get_ident() != thread
    calls = [
        "init",
        "reset",
        "step",
        "render",
        "get_info",
        "level",
        "get_state",
        "close",
    ]
    assert sorted(calls) == sorted(pyenv.threads)


def test_close_ends_the_environments_thread(nothing_left_behind):
    before = threading.enumerate()  # with those of environments that others dropped
    env = TFPyEnvironment(CountingEnv(), isolation=True)
    env.reset(), tf.function(lambda: env.step([0]))()
    (thread,) = (
        thread
        for thread in threading.enumerate()
        if thread.name == "envkit-isolation" and thread not in before
    )
    env.close()
    assert thread not in threading.enumerate()


@pytest.mark.parametrize("kind", ["ThreadPool", "ThreadPoolExecutor"])
def test_close_leaves_a_pool_of_threads_to_its_owner(kind):
    with isolations(kind) as pool:
        for _ in range(2):
            TFPyEnvironment(CountingEnv(), isolation=pool).close()


def test_without_isolation_the_caller_runs_the_environment(nothing_left_behind):
    env = TFPyEnvironment(Noting)
    pyenv = env.pyenv.envs[0]
    env.reset(), env.step([0]), env.render(), env.level
    env.close()
    assert {threading.get_ident()} == set.union(*pyenv.threads.values())


@pytest.mark.parametrize(
    ("isolation", "described"),
    [
        (None, "None"),
        (0, "0 of type int"),
        (1, "1 of type int"),
        ("abc", "the string 'abc'"),
        ([], "a list of 0 elements"),
        (ThreadPool, "a type object"),
        # It starts no process until it is used.
        (ProcessPoolExecutor(1), "a ProcessPoolExecutor object"),
    ],
)
def test_other_values_of_isolation_are_refused(
    isolation, described, message_of, nothing_left_behind
):
    made = []
    expected = (
        "isolation must be True for a thread of its own, False for the thread of the "
        "caller, or a pool of threads (concurrent.futures.ThreadPoolExecutor or "
        f"multiprocessing.pool.ThreadPool), got {described}."
    )

    assert expected == message_of(
        TypeError, lambda: TFPyEnvironment(lambda: made.append(1), isolation=isolation)
    )
    assert [] == made


def test_an_environment_that_calls_its_own_wrapper_does_not_hang(in_thread):
    class Reflecting(CountingEnv):
        def look_around(self):
            return int(self.wrapper.current_time_step().observation[0])

    pyenv = Reflecting()
    with TFPyEnvironment(pyenv, isolation=True) as env:
        pyenv.wrapper = env
        env.reset()

        assert 0 == in_thread(env.look_around)()


# Closing.


@pytest.mark.parametrize("isolation", [False, True])
def test_close_closes_the_environment_once(isolation, nothing_left_behind):
    class Counted(CountingEnv):
        closed = 0

        def close(self):
            self.closed += 1

    pyenv = Counted()
    with TFPyEnvironment(pyenv, isolation=isolation) as env:
        env.step([0])
    env.close()

    assert 1 == pyenv.closed


def test_closing_ends_a_pool_of_processes(nothing_left_behind):
    with TFPyEnvironment(
        functools.partial(ParallelPyEnvironment, [CountingEnv], num_workers=1),
        isolation=True,
    ) as env:
        assert [0] == env.reset().observation.numpy().tolist()


def test_another_thread_can_close_the_environment(nothing_left_behind, in_thread):
    env = TFPyEnvironment(CountingEnv(), isolation=True)
    env.reset()

    in_thread(env.close)()


@pytest.mark.parametrize("isolation", [False, True])
def test_close_ends_the_call_of_another_thread_to_a_pool(
    isolation, nothing_left_behind, in_thread, tmp_path
):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = ParallelPyEnvironment([functools.partial(Gated, str(gate))])
    env = TFPyEnvironment(pool, isolation=isolation)
    env.reset()
    stepping = in_thread(env.step, tf.constant([1]))
    while pool._call_lock.call is None:
        pass

    in_thread(env.close)()

    with pytest.raises(ClosedError, match="closed by another thread"):
        stepping()


def test_a_garbage_collected_environment_leaves_no_thread(nothing_left_behind):
    TFPyEnvironment(CountingEnv(), isolation=True).reset()


def test_the_thread_ends_even_if_closing_the_environment_fails(nothing_left_behind):
    env = TFPyEnvironment(CrashingEnv(where="close"), isolation=True)

    with pytest.raises(RuntimeError, match="told to raise in close 1"):
        env.close()

    # Whoever goes on refers to it.
    assert env.batch_size == 1


@pytest.mark.parametrize(
    ("kind", "isolation"),
    [("single", True), ("native batch", False), ("Batched", True)],
)
def test_use_after_close_is_refused(kind, isolation, message_of):
    env = TFPyEnvironment(KINDS.get(kind, CountingEnv)(), isolation=isolation)
    env.reset()
    action = [0] * env.batch_size
    step = tf.function(lambda: env.step(action))
    step()
    env.close()
    expected = (
        "TFPyEnvironment.{}() was called after close(). A closed environment stays "
        "closed: make a new one."
    )

    for name in ("reset", "current_time_step", "render"):
        assert expected.format(name) == message_of(ClosedError, getattr(env, name))
    assert expected.format("step") == message_of(ClosedError, lambda: env.step(action))
    with pytest.raises(tf.errors.OpError) as caught:
        step()
    assert expected.format("step") in str(caught.value)


@in_each_isolation
def test_an_attribute_after_close_answers_or_is_refused_but_never_hangs(
    isolation, in_thread
):
    with isolations(isolation) as how:
        env = TFPyEnvironment(CountingEnv(), isolation=how)
        env.close()

        def ask():
            with contextlib.suppress(ClosedError, AttributeError):
                return env.no_such_thing

        assert in_thread(ask)() is None


def test_specs_are_still_known_after_close():
    env = TFPyEnvironment(CountingEnv(), isolation=True)
    env.close()
    assert tf.int32 == env.observation_spec().dtype
    assert 1 == env.batch_size


# Attributes.


@pytest.mark.parametrize("isolation", [False, True])
def test_other_attributes_come_from_the_environment(isolation):
    with TFPyEnvironment(Noting(), isolation=isolation) as env:
        assert 7 == env.level
        assert [{}] == list(env.get_info()) or {} == env.get_info()
        assert 1 == len(env.envs)
        assert isinstance(env.envs[0], Noting)


def test_a_batchs_attributes_come_from_the_batch():
    env = TFPyEnvironment(envkit.make("CartPole", batch_size=3, seed=1))
    env.seed(5)
    first = env.reset().observation
    env.seed(5)
    assert bool(tf.reduce_all(first == env.reset().observation))


def test_methods_keep_their_names_and_docstrings():
    env = TFPyEnvironment(CountingEnv())
    assert "seed" == env.seed.__name__
    assert BatchedPyEnvironment.seed.__doc__ == env.seed.__doc__


@pytest.mark.parametrize("isolation", [False, True])
@pytest.mark.parametrize("name", ["no_such_thing", "_private", "__array__"])
def test_unknown_and_private_names_are_refused(name, isolation):
    with TFPyEnvironment(CountingEnv(), isolation=isolation) as env:
        assert not hasattr(env, name)
        with pytest.raises(AttributeError, match=name):
            getattr(env, name)


def test_an_environment_without_init_has_no_attributes():
    env = TFPyEnvironment.__new__(TFPyEnvironment)
    assert not hasattr(env, "pyenv")
    assert not hasattr(env, "_thread")


def test_the_environment_can_be_copied():
    env = TFPyEnvironment(CountingEnv())
    other = copy.copy(env)
    env.reset()
    env.step([0])
    assert [1] == other.current_time_step().observation.numpy().tolist()


def test_the_environment_has_no_variables():
    assert () == TFPyEnvironment(CountingEnv()).variables


# Pictures.


@eagerly_and_in_a_graph
@pytest.mark.parametrize("begun", [False, True])
def test_render_returns_a_picture_of_each_row(begun, through):
    env = TFPyEnvironment(Painter())
    if begun:
        env.reset()
        env.step([0])
    picture = through(env.render)()

    assert tf.uint8 == picture.dtype
    assert [1, 4, 5, 3] == picture.shape.as_list()
    assert {10 + begun} == set(picture.numpy().ravel().tolist())


def test_the_shape_of_a_picture_is_known_in_a_graph():
    env = TFPyEnvironment(Painter())
    shapes = []

    tf.function(lambda: shapes.append(env.render().shape.as_list()))()

    assert [[1, 4, 5, 3]] == shapes


@eagerly_and_in_a_graph
def test_human_mode_shows_a_window_and_returns_black_pictures(through):
    pyenv = Painter()
    env = TFPyEnvironment(pyenv)
    picture = through(lambda: env.render("human"))()
    assert "human" in pyenv.modes
    assert [1, 4, 5, 3] == picture.shape.as_list()
    assert 0 == int(tf.reduce_max(picture))


def test_the_mode_of_a_picture_may_be_computed_in_a_graph():
    pyenv = Painter()
    env = TFPyEnvironment(pyenv)
    render = tf.function(lambda mode: env.render(mode))
    assert 0 == int(tf.reduce_max(render(tf.constant("human"))))
    assert 10 == int(tf.reduce_max(render(tf.constant("rgb_array"))))


def test_another_mode_is_refused(message_of):
    env = TFPyEnvironment(Painter())
    expected = (
        "The mode of TFPyEnvironment.render() must be 'rgb_array', or 'human' for "
        "black pictures, got 'ansi'. For others call env.pyenv.render(mode)."
    )
    assert expected == message_of(ValueError, lambda: env.render("ansi"))


@eagerly_and_in_a_graph
@pytest.mark.parametrize("kind", ["native batch", "Batched"])
def test_a_batch_renders_one_picture_per_row(kind, through):
    with TFPyEnvironment(KINDS[kind]()) as env:
        picture = through(env.render)()
        assert env.pyenv.render().tolist() == picture.numpy().tolist()


def test_a_picture_does_not_change_when_the_environment_paints_over_it():
    class Canvas(Batch):
        canvas = aligned((2, 64, 64, 3), np.uint8)

        def render(self, mode="rgb_array"):
            self.canvas += 1
            return self.canvas

    env = TFPyEnvironment(Canvas())
    first = env.render()
    render = tf.function(env.render)
    second, third = render(), render()

    numbers = [int(picture[0, 0, 0, 0]) for picture in (first, second, third)]
    assert 1 == numbers[0]
    assert numbers == sorted(set(numbers))


def test_an_environment_that_cannot_render_says_so():
    env = TFPyEnvironment(Batch())
    with pytest.raises(NotImplementedError, match="Batch cannot render: override"):
        env.render()


def test_an_unsupported_mode_raises_the_environments_own_error():
    env = TFPyEnvironment(CountingEnv())
    with pytest.raises(NotImplementedError, match="Only rgb_array is rendered"):
        env.render("human")


def test_a_picture_of_another_size_does_not_enter_a_graph_with_a_false_shape():
    pyenv = Painter()
    env = TFPyEnvironment(pyenv)
    render = tf.function(env.render)
    render()
    pyenv.height = 6
    with pytest.raises(tf.errors.OpError, match="6"):
        render()


def test_tuples_of_observations_stay_tuples():
    env = TFPyEnvironment(EpisodeCountingEnv(2))
    env.reset()
    step = tf.function(lambda: env.step([0]))
    seen = [values(step().observation) for _ in range(3)]
    assert [([0], [1]), ([0], [2]), ([1], [0])] == seen


def test_the_name_comes_from_the_environment():
    class Named(CountingEnv):
        name = "pole"

    assert "pole" == TFPyEnvironment(Named()).name
    assert "tf_py_environment" == TFPyEnvironment(CountingEnv()).name


def test_an_attribute_can_be_read_while_the_environment_steps(in_thread):
    pyenv = Waiting()
    env = TFPyEnvironment(pyenv)
    env.reset()
    stepped = in_thread(env.step, [0])
    assert pyenv.entered.wait(PATIENCE)
    inside, is_missing = env.inside, not hasattr(env, "colour")
    pyenv.go.set()

    assert [1] == stepped().observation.numpy().tolist()
    assert (1, True) == (inside, is_missing)


def test_a_log_inside_has_a_line_for_each_episode(tmp_path):
    with TFPyEnvironment(
        LogEpisodes(CountingEnv(steps_per_episode=2), tmp_path)
    ) as env:
        env.reset()
        step = tf.function(env.step)
        for _ in range(5):
            step([0])
    _, *lines = (tmp_path / "episodes.csv").read_text().splitlines()
    assert ["2", "4"] == [line.split(",")[2] for line in lines]
