"""Words that users of Gymnasium, Stable-Baselines3, EnvPool and dm_env type."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import envkit
from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    Blocking,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    PyEnvironmentBaseWrapper,
    nest,
    restart,
    transition,
)
from envkit.adapters import GymnasiumWrapper
from envkit.envs import Catch
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
from tests.comparing import told

WORDS = {
    name
    for kind in (gymnasium.Env, gymnasium.Wrapper, gymnasium.vector.VectorEnv)
    for name in {*vars(kind), *kind.__annotations__}
    if not name.startswith("_")
}
# Of Stable-Baselines3.
WORDS |= {"env_method", "get_images", "reset_infos", "step_async", "step_wait"}


def counting():
    return CountingEnv()


def wrapped():
    return TimeLimit(CountingEnv(), 5)


def batched():
    return BatchedPyEnvironment([CountingEnv(), CountingEnv()])


def pool():
    return ParallelPyEnvironment([CountingEnv] * 2, backend="inline")


def asynchronous():
    return AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline")


@pytest.mark.parametrize(
    "make",
    [
        batched,
        pool,
        asynchronous,
        lambda: TimeLimit(batched(), 5),
        lambda: TimeLimit(pool(), 5),
        lambda: Catch(batch_size=2),
        lambda: Blocking(asynchronous()),
    ],
)
def test_num_envs_is_the_number_of_rows_of_a_batch(make):
    with make() as env:
        assert 2 == env.num_envs
        assert 2 == getattr(env, "batch_size", 2)


def test_a_single_environment_has_no_num_envs():
    env = counting()
    assert not hasattr(env, "num_envs")
    assert (
        AttributeError,
        "CountingEnv has no num_envs: it is a single environment. envkit.make(target, "
        "num_envs=8) and ParallelPyEnvironment make a batch.",
    ) == told(lambda: env.num_envs)


@pytest.mark.parametrize("make", [counting, wrapped, batched, pool, asynchronous])
def test_a_word_is_an_attribute_or_a_sentence_with_the_right_one(make):
    with make() as env:
        for name in WORDS:
            if not hasattr(env, name):
                _, message = told(getattr, env, name)
                assert f" has no {name}: " in message


@pytest.mark.parametrize(
    ("make", "name", "instead"),
    [
        (counting, "action_space", "action_spec()"),
        (pool, "single_observation_space", "observation_spec()"),
        (pool, "get_attr", "access(name)"),
        (batched, "get_attr", "envs"),
        (pool, "env_method", "call(name, *args)"),
        (pool, "reset_async", "AsyncParallelPyEnvironment"),
        (pool, "step_async", "begin_step(action)"),
        (asynchronous, "step_async", "send(actions)"),
        (asynchronous, "step_wait", "recv()"),
        (asynchronous, "reset", "reset_async()"),
        (asynchronous, "step", "send(actions)"),
        (wrapped, "env", "wrapped_env()"),
        (pool, "action_space", "random_actions(env)"),
        (asynchronous, "action_space", "RandomPolicy(env.action_spec(), batch_size="),
        (pool, "n_envs", "num_envs"),
    ],
)
def test_the_sentence_names_what_the_kind_of_environment_has(make, name, instead):
    with make() as env:
        _, message = told(getattr, env, name)
        assert instead in message


class Author(PyEnvironment):
    """Uses words of other libraries for things of its own."""

    metadata = "own"

    def __init__(self):
        super().__init__()
        self.num_envs = 3
        self.spec = "own"

    @property
    def np_random(self):
        return self.missing

    def call(self, name):
        return name

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def _reset(self):
        return restart(np.array(self.num_envs))

    def _step(self, action):
        return transition(np.array(self.num_envs), 0.0)


class Shared:
    """Comes after `PyEnvironment` in the method resolution order."""

    num_envs = 5

    def get_attr(self, name):
        return name


class Mixed(CountingEnv, Shared):
    pass


class AuthorsWrapper(PyEnvironmentBaseWrapper):
    @property
    def own(self):
        return self.missing


@pytest.mark.parametrize(
    "make", [Author, lambda: TimeLimit(Author(), 5), lambda: copy.deepcopy(Author())]
)
def test_an_authors_class_may_have_every_word(make):
    env = make()
    assert (3, "own", "own", "x") == (
        env.num_envs,
        env.metadata,
        env.spec,
        env.call("x"),
    )
    assert 3 == env.reset().observation


def test_words_that_a_later_base_class_defines_are_its_own():
    assert (5, "x") == (Mixed().num_envs, Mixed().get_attr("x"))


@pytest.mark.parametrize(
    ("make", "name"), [(Author, "np_random"), (lambda: AuthorsWrapper(Author()), "own")]
)
def test_an_authors_property_shows_its_own_error(make, name):
    _, message = told(getattr, make(), name)
    assert "'Author' object has no attribute 'missing'" == message


def test_an_adapter_has_the_words_of_its_library():
    env = GymnasiumWrapper(gymnasium.make("CartPole-v1"))
    assert gymnasium.spaces.Discrete(2) == env.action_space
    assert env.gym.unwrapped is env.unwrapped
    assert not hasattr(env, "num_envs")
    _, message = told(lambda: env.num_envs)
    assert message.startswith("GymnasiumWrapper has no num_envs: it is a single")


@pytest.mark.parametrize("make", [counting, wrapped, batched, pool, asynchronous])
def test_dir_lists_no_words_that_are_missing(make):
    with make() as env:
        listed = set(dir(env))
        assert [] == [name for name in listed & WORDS if not hasattr(env, name)]
    assert {"num_envs", "metadata"} <= set(dir(Author()))


# Time steps.


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("done", "is_last()"),
        ("terminated", "time_step.discount == 0"),
        ("truncated", "time_step.discount > 0"),
        ("obs", "observation"),
        ("info", "get_info()"),
        ("state", "observation"),
        ("next_state", "observation"),
        ("last", "is_last()"),
        ("shape", "observation.shape"),
    ],
)
def test_a_time_step_names_the_right_word(name, instead):
    time_step = counting().reset()
    assert not hasattr(time_step, name)
    _, message = told(getattr, time_step, name)
    assert message.startswith(f"TimeStep has no {name}: ")
    assert instead in message


def test_a_time_step_stays_a_tuple_of_four():
    time_step = transition(np.arange(3), 1.0)
    assert ("step_type", "reward", "discount", "observation") == time_step._fields
    assert not {"done", "obs", "info"} & set(dir(time_step))
    assert 4 == len(nest.flatten(time_step))
    assert 4 == len(nest.flatten(pickle.loads(pickle.dumps(time_step))))


def test_an_array_of_a_time_step_names_its_observation():
    time_step = transition(np.zeros(4), 1.0)
    kind, message = told(np.array, time_step)
    assert ValueError is kind
    assert "time_step.observation" in message
    assert (4,) == np.array(time_step, object).shape
    assert (2, 4) == np.stack([transition(np.zeros(()), 1.0)] * 2).shape


@pytest.mark.parametrize("name", ["obs", "reward", "done"])
def test_the_rows_of_recv_say_that_their_time_step_has_the_rest(name):
    with asynchronous() as env:
        env.reset_async()
        batch = env.recv()
    _, message = told(getattr, batch, name)
    assert message.startswith(f"AsyncBatch has no {name}: its time_step has")


# Specs.


def test_n_is_the_number_of_choices_of_a_bounded_integer():
    assert 3 == BoundedArraySpec((), np.int32, 1, 3).n
    assert type(BoundedArraySpec((), np.int32, 1, 3).n) is int


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (ArraySpec((), np.int32), "it has no bounds"),
        (BoundedArraySpec((2,), np.int32, 0, 1), "its shape is (2,); num_values"),
        (BoundedArraySpec((), np.float32, 0, 1), "it is of float32, and only integers"),
    ],
)
def test_n_of_another_spec_says_why_there_is_none(spec, why):
    assert not hasattr(spec, "n")
    kind, message = told(lambda: spec.n)
    assert AttributeError is kind
    assert message.startswith(f"{type(spec).__name__} has no n: {why}")


@pytest.mark.parametrize(
    "spec",
    [
        BoundedArraySpec((), np.int64, 0, 3),
        BoundedArraySpec((2, 3), np.float32, -1.0, [0.0, 1.0, 2.0]),
        ArraySpec((4,), np.bool_),
        envkit.specs.TextSpec((), "<U5", letters="abc"),
    ],
)
def test_sample_draws_what_fits(spec):
    rng = np.random.default_rng(3)
    assert all(spec.check_array(spec.sample(source)) for source in (rng, 7, None))
    assert np.array_equal(spec.sample(7), spec.sample(np.random.default_rng(7)))
    assert (5, *spec.shape) == spec.sample(rng, (5,)).shape


def test_sample_takes_a_mask_by_name():
    spec = BoundedArraySpec((), np.int64, 0, 3)
    assert 2 == spec.sample(mask=[0, 0, 1, 0])
    _, message = told(spec.sample, np.array([0, 0, 1, 0]))
    assert message.endswith("A mask is passed by name: sample(rng, mask=mask).")


@pytest.mark.parametrize("word", ["low", "high", "nvec", "start", "contains", "seed"])
def test_a_spec_names_the_right_word(word):
    spec = BoundedArraySpec((), np.float32, 0.0, 1.0)
    assert not hasattr(spec, word)
    _, message = told(getattr, spec, word)
    assert message.startswith(f"BoundedArraySpec has no {word}: ")


def test_in_names_check_array():
    kind, message = told(lambda: 1 in BoundedArraySpec((), np.int64, 0, 3))
    assert TypeError is kind
    assert "BoundedArraySpec.check_array(value)" in message


# The reset order.

SPELLINGS = [
    "same_step",
    "same-step",
    "SameStep",
    "SAME_STEP",
    gymnasium.vector.AutoresetMode.SAME_STEP,
]


@pytest.mark.parametrize("order", SPELLINGS, ids=str)
def test_every_spelling_of_an_order_is_understood(order):
    assert AutoReset.SAME_STEP is AutoReset.of(order)


def test_every_order_of_gymnasium_is_understood():
    orders = list(gymnasium.vector.AutoresetMode)
    assert set(AutoReset) == {AutoReset.of(order) for order in orders}
    assert set(AutoReset) == {AutoReset.of(order.value) for order in orders}


@pytest.mark.parametrize(
    "make",
    [
        lambda order: envkit.make("Catch", batch_size=2, autoreset=order),
        lambda order: BatchedPyEnvironment([CountingEnv()], autoreset=order),
        lambda order: ParallelPyEnvironment(
            [CountingEnv], backend="inline", autoreset=order
        ),
        lambda order: AsyncParallelPyEnvironment(
            [CountingEnv], backend="inline", autoreset=order
        ),
    ],
)
def test_batches_and_pools_take_gymnasiums_spelling(make):
    with make("same-step") as env:
        assert AutoReset.SAME_STEP is env.autoreset
        env.autoreset = gymnasium.vector.AutoresetMode.NEXT_STEP
        assert AutoReset.NEXT_STEP is env.autoreset


@pytest.mark.parametrize(
    ("order", "hint"),
    [("same", " Did you mean AutoReset.SAME_STEP?"), ("every", ""), (True, "")],
)
def test_another_order_is_refused_with_the_closest(order, hint):
    assert (
        ValueError,
        "autoreset must be one of AutoReset.NEXT_STEP, AutoReset.SAME_STEP, "
        f"AutoReset.DISABLED, got {order!r}.{hint}",
    ) == told(AutoReset.of, order)


# Names of modules.


@pytest.mark.parametrize(
    ("package", "name", "instead"),
    [
        ("envkit", "make_vec", "make(target, num_envs=8) makes a pool"),
        ("envkit", "RealTimeEnvironment", "it is in envkit.realtime"),
        ("envkit", "TorchEnvironment", "it is in envkit.torch"),
        ("envkit.adapters", "LogEpisodes", "it is in envkit.wrappers"),
        (
            "envkit.adapters",
            "to_gymnasium",
            "it is PyToGymnasium(env), and PyToGymnasiumVector(env) for a batch",
        ),
        ("envkit.wrappers", "ClipAction", "it is ActionClipWrapper(env)"),
        (
            "envkit",
            "check_env",
            "envkit.testing.check_environment(make_env) checks an environment",
        ),
        ("envkit", "VecFrameStack", "it is FrameStack(env, stack_size)"),
        (
            "envkit.wrappers",
            "SubprocVecEnv",
            "ParallelPyEnvironment(constructors) has its environments in worker "
            "processes",
        ),
    ],
)
def test_a_module_says_what_to_use_instead_of_a_name_that_it_lacks(
    package, name, instead
):
    module = importlib.import_module(package)
    expected = f"{package} has no {name}: {instead}."
    assert (AttributeError, expected) == told(getattr, module, name)
    statement = f"from {package} import {name}"
    assert (ImportError, expected) == told(exec, statement, {})
    assert not hasattr(module, name)


def test_a_module_that_is_not_imported_is_named_with_its_statement():
    code = "import envkit; envkit.realtime"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith(
        "envkit has no realtime: `import envkit.realtime` imports that module.\n"
    )


def test_each_wrapper_of_gymnasium_is_there_or_explained():
    theirs = {*gymnasium.wrappers.__all__, *gymnasium.wrappers.vector.__all__}
    missing = [name for name in theirs if not hasattr(envkit.wrappers, name)]
    texts = [told(getattr, envkit.wrappers, name)[1] for name in missing]
    assert [] == [text for text in texts if "has no attribute" in text]


def test_other_names_keep_the_message_of_python():
    text = "module 'envkit' has no attribute 'nonsense'"
    assert (AttributeError, text) == told(getattr, envkit, "nonsense")
