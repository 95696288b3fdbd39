"""An environment of envkit, or a row of a batch, is one of dm_env."""

from __future__ import annotations

import functools
import gc
import json
import pickle
import subprocess
import sys
import weakref

import dm_env
import numpy as np
import pytest
import tree
from absl.testing import absltest
from dm_env import specs, test_utils

import envkit
from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
    wrappers,
)
from envkit.adapters.dm_env import Strings
from envkit.adapters.to_dm_env import PyToDMWrapper
from envkit.errors import ClosedError, SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.testing import CountingEnv, NestedCountingEnv, TracingEnv

FIRST, MID, LAST = dm_env.StepType


class Rich(PyEnvironment):
    """Has specs of many kinds, and keeps the actions that it is given."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self.actions = []
        self.closings = 0

    def observation_spec(self):
        return {
            "count": BoundedArraySpec((), np.uint8, 0, 99, name="count"),
            "words": [TextSpec((2,), "<U3")],
        }

    def action_spec(self):
        return {
            "letter": TextSpec((), "<U3", letters="abc"),
            "way": BoundedArraySpec((), np.int64, 0, 2),
            "speed": BoundedArraySpec((2,), np.float32, -1, 1),
            "word": ObjectSpec(kind=Strings(str)),
            "any": ObjectSpec((2,)),
        }

    def reward_spec(self):
        return {"food": ArraySpec((), np.int64), "pain": ArraySpec((2,), np.float32)}

    def discount_spec(self):
        return BoundedArraySpec((2,), np.float32, 0, 1)

    def _observation(self):
        return {
            "count": np.array(len(self.actions), np.uint8),
            "words": [np.array(["one", "two"])],
        }

    def _reset(self):
        reward = {"food": np.zeros((), np.int64), "pain": np.zeros(2, np.float32)}
        return envkit.TimeStep(
            envkit.StepType.FIRST, reward, np.ones(2, np.float32), self._observation()
        )

    def _step(self, action):
        self.actions.append(action)
        reward = {"food": np.array(3), "pain": np.ones(2, np.float32)}
        is_over = len(self.actions) % 2 == 0
        step_type = envkit.StepType.LAST if is_over else envkit.StepType.MID
        discount = np.full(2, 0.5, np.float32)
        return envkit.TimeStep(step_type, reward, discount, self._observation())

    def close(self):
        self.closings += 1


def rich_action(**changes):
    action = {
        "letter": "ab",
        "way": 1,
        "speed": np.zeros(2, np.float32),
        "word": "any word",
        "any": [None, {}],
    }
    return {**action, **changes}


class Manual(PyEnvironment):
    """Does not begin episodes by itself."""

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        self._left = 2
        return restart(np.array(self._left))

    def _step(self, action):
        self._left -= 1
        if self._left:
            return transition(np.array(self._left), 1.0)
        return termination(np.array(self._left), 1.0)


class Held(PyEnvironment):
    """Is a batch whose rows move together."""

    batched = True
    batch_size = 2

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        return restart(np.zeros(2, np.int64), batch_size=2)

    def _step(self, action):
        return transition(np.zeros(2, np.int64), np.zeros(2, np.float32))


def batch_of(count=3, **options):
    envs = [TracingEnv(row, **options) for row in range(count)]
    return BatchedPyEnvironment(envs, multithreading=False)


def inline_pool(**options):
    return ParallelPyEnvironment([TracingEnv] * 2, backend="inline", **options)


def step_types(env, steps, action=0):
    return [int(env.step(action).step_type) for _ in range(steps)]


def seen(time_step):
    """Returns what can be compared of a time step of dm_env."""
    return repr(time_step)


class ContractOfDmEnv(test_utils.EnvironmentTestMixin):
    """What dm_env's own test asks, with episodes that end."""

    def make_action_sequence(self):
        spec = self.environment.action_spec()
        for _ in range(12):
            yield tree.map_structure(lambda leaf: leaf.generate_value(), spec)


class SingleEnvironmentTest(ContractOfDmEnv, absltest.TestCase):
    def make_object_under_test(self):
        return PyToDMWrapper(TracingEnv(steps_per_episode=3))


class NestedEnvironmentTest(ContractOfDmEnv, absltest.TestCase):
    def make_object_under_test(self):
        return PyToDMWrapper(NestedCountingEnv(steps_per_episode=3, nested_action=True))


class PaddedEnvironmentTest(ContractOfDmEnv, absltest.TestCase):
    def make_object_under_test(self):
        counting = CountingEnv(steps_per_episode=2)
        return PyToDMWrapper(wrappers.FixedLength(counting, fix_length=5))


class RichEnvironmentTest(ContractOfDmEnv, absltest.TestCase):
    def make_object_under_test(self):
        return PyToDMWrapper(Rich())


class ShippedBatchTest(ContractOfDmEnv, absltest.TestCase):
    def make_object_under_test(self):
        return PyToDMWrapper(envkit.make("GridWorld", batch_size=2), row=1)


class RowOfAPoolTest(ContractOfDmEnv, absltest.TestCase):
    def make_object_under_test(self):
        return PyToDMWrapper(inline_pool(), row=1)


def test_the_wrapper_is_a_dm_env_environment_and_forwards_attributes(
    message_of,
):
    env = PyToDMWrapper(TracingEnv())
    assert isinstance(env, dm_env.Environment)
    assert isinstance(env, PyToDMWrapper)
    env.seed(3)
    assert 3 == env.reset().observation["seed"]
    assert env.environment is env._environment
    row = PyToDMWrapper(batch_of(), row=1)
    for made, names in (
        (env, ("colour", "_row_of")),
        (row, ("render", "current_time_step", "_colour")),
    ):
        for name in names:
            assert f"'PyToDMWrapper' object has no attribute {name!r}" == message_of(
                AttributeError,
                functools.partial(getattr, made, name),
            )


def test_dm_env_is_imported_by_the_first_wrapper():
    program = """
import json, sys
import envkit.adapters.to_dm_env as module
before = "dm_env" in sys.modules
module.PyToDMWrapper(__import__("envkit.testing").testing.CountingEnv())
print(json.dumps([before, "dm_env" in sys.modules]))
"""
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert [False, True] == json.loads(told)


def test_specs_become_dm_env_specs():
    env = PyToDMWrapper(Rich())

    assert {
        "count": specs.DiscreteArray(100, np.uint8, name="count"),
        "words": [specs.Array((2,), "<U3")],
    } == env.observation_spec()
    assert {
        "letter": specs.Array((), "<U3"),
        "way": specs.DiscreteArray(3, np.int64),
        "speed": specs.BoundedArray((2,), np.float32, -1, 1),
        "word": specs.StringArray(()),
        "any": specs.Array((2,), object),
    } == env.action_spec()
    assert {
        "food": specs.Array((), np.int64),
        "pain": specs.Array((2,), np.float32),
    } == env.reward_spec()
    assert specs.BoundedArray((2,), np.float32, 0, 1) == env.discount_spec()


def test_rewards_and_discounts_come_from_the_environment():
    env = PyToDMWrapper(Rich())
    assert dm_env.restart({}) == env.reset()._replace(observation={})
    time_step = env.step(rich_action())
    for name, spec in env.reward_spec().items():
        spec.validate(time_step.reward[name])
    assert (3, [1.0, 1.0]) == (
        time_step.reward["food"],
        time_step.reward["pain"].tolist(),
    )
    assert [0.5, 0.5] == time_step.discount.tolist()


def test_scalar_rewards_and_discounts_are_immutable():
    env = PyToDMWrapper(CountingEnv())
    env.reset()
    time_step = env.step(0)
    total = time_step.reward
    total += 5
    assert (np.float32(0.0), np.float32(1.0)) == (time_step.reward, time_step.discount)
    assert np.float32 is type(time_step.reward) is type(time_step.discount)


def test_numpy_scalar_rewards_are_unchanged():
    class Numeric(Manual):
        def _step(self, action):
            return super()._step(action)._replace(reward=np.float32(2.0))

    env = PyToDMWrapper(Numeric())
    env.reset()

    assert np.float32 is type(env.step(0).reward)


def test_an_action_reaches_the_environment_in_the_form_of_its_spec():
    env = PyToDMWrapper(Rich())
    env.reset()
    env.step(rich_action(way=np.int8(2), speed=[0.5, -0.5]))

    (action,) = env.environment.actions
    assert (2, np.int64) == (action["way"], type(action["way"]))
    assert "ab" == str(action["letter"])
    assert ("any word", [None, {}]) == (action["word"][()], action["any"].tolist())
    for name, spec in env.environment.action_spec().items():
        assert spec.check_array(np.asarray(action[name])), name


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"way": 3}, "['way']"),
        ({"letter": "xyz"}, "['letter']"),
        ({"word": 7}, "['word']"),
        ({"any": [None]}, "['any']"),
    ],
    ids=repr,
)
def test_an_invalid_action_is_explained_and_moves_nothing(changes, path, message_of):
    env = PyToDMWrapper(Rich())
    env.reset()
    assert message_of(SpecError, lambda: env.step(rich_action(**changes))).startswith(
        "PyToDMWrapper.step() was given an action that does not fit its spec at "
        f"{path}.\n\n"
    )
    assert [] == env.environment.actions


@pytest.mark.parametrize("make", [CountingEnv, Manual], ids=["counting", "manual"])
def test_a_step_after_a_last_begins_the_next_episode(make):
    env = PyToDMWrapper(make(2) if make is CountingEnv else make())
    assert [0, 1, 2, 0, 1, 2, 0] == step_types(env, 7)


def test_the_first_call_always_begins_an_episode():
    inner = CountingEnv()
    inner.reset()
    inner.step(0)
    assert PyToDMWrapper(inner).step(0).first()


def test_a_state_restores_the_stream():
    env, twin = PyToDMWrapper(TracingEnv()), PyToDMWrapper(TracingEnv())
    env.seed(3)
    env.reset()
    state = env.get_state()
    path = [seen(env.step(0)) for _ in range(7)]
    twin.set_state(state)
    assert path == [seen(twin.step(0)) for _ in range(7)]


def test_a_state_from_before_or_after_an_episode_is_followed_by_a_first():
    env = PyToDMWrapper(CountingEnv(steps_per_episode=1))
    fresh = env.get_state()
    env.reset()
    env.step(0)
    ended = env.get_state()
    env.reset()

    for state in (fresh, ended):
        env.set_state(state)
        assert env.step(0).first()


def test_a_pickled_copy_continues_the_episode():
    env = PyToDMWrapper(TracingEnv())
    env.reset()
    env.step(0)
    copied = pickle.loads(pickle.dumps(env))
    assert isinstance(copied, dm_env.Environment)
    assert seen(env.step(1)) == seen(copied.step(1))


def test_closing_twice_closes_the_environment_once():
    env = PyToDMWrapper(Rich())
    env.close()
    env.close()
    assert 1 == env.environment.closings


@pytest.mark.parametrize("call", ["reset", "step"])
@pytest.mark.parametrize("row", [None, 0])
def test_a_closed_environment_raises_closed_error(call, row, message_of):
    env = PyToDMWrapper(CountingEnv() if row is None else batch_of(), row)
    env.reset()
    env.close()
    assert (
        f"PyToDMWrapper.{call}() was called after close(). A closed environment stays "
        "closed: make a new one."
    ) == message_of(
        ClosedError, lambda: env.reset() if call == "reset" else env.step(0)
    )


@pytest.mark.parametrize(
    "gather",
    [
        batch_of,
        inline_pool,
        lambda: inline_pool(autoreset="same_step"),
        lambda: inline_pool(autoreset="disabled"),
    ],
    ids=["batched", "next_step", "same_step", "disabled"],
)
def test_a_row_matches_a_single_environment(gather):
    batch = gather()
    batch.seed([5 + row for row in range(batch.batch_size)])
    twins = [PyToDMWrapper(TracingEnv(row)) for row in range(batch.batch_size)]
    for row, twin in enumerate(twins):
        twin.seed(5 + row)
    rows = PyToDMWrapper.rows(batch)
    if not isinstance(batch, BatchedPyEnvironment):
        twins = twins_of_a_pool(batch)
    order = np.random.RandomState(0).randint(0, len(rows), 80).tolist()

    for number, row in enumerate(order):
        if number % 9 == 8:
            assert seen(twins[row].reset()) == seen(rows[row].reset())
        else:
            assert seen(twins[row].step(number)) == seen(rows[row].step(number))
    for row in rows:
        row.close()


def twins_of_a_pool(batch):
    """Returns environments of their own that are what the rows of a pool are."""
    twins = [PyToDMWrapper(TracingEnv()) for _ in range(batch.batch_size)]
    for row, twin in enumerate(twins):
        twin.seed(5 + row)
    return twins


def test_rows_in_worker_processes_step_independently():
    with ParallelPyEnvironment([TracingEnv] * 2, num_workers=1) as batch:
        first, second = PyToDMWrapper.rows(batch)
        second.reset()
        [second.step(action) for action in range(3)]
        first.reset()
        assert [0, 3] == batch.current_time_step().observation["step"].tolist()


def test_the_first_call_on_any_row_resets_all_rows():
    batch = batch_of(3)
    rows = PyToDMWrapper.rows(batch)
    calls = [rows[2].step(0), rows[0].reset(), rows[1].step(0)]
    assert [FIRST, FIRST, FIRST] == [time_step.step_type for time_step in calls]
    assert [0, 0, 0] == [time_step.observation["episode"] for time_step in calls]


def test_a_row_of_a_running_batch_begins_a_new_episode():
    batch = batch_of(2)
    batch.reset()
    row = PyToDMWrapper(batch, row=1)
    assert 1 == row.reset().observation["episode"]
    assert [0, 1] == batch.current_time_step().observation["episode"].tolist()


def test_time_steps_of_a_row_survive_steps_of_other_rows():
    first, second = PyToDMWrapper.rows(batch_of(2))
    first.reset()
    kept = first.step(4)
    before = seen(kept)
    second.reset()
    [second.step(5) for _ in range(3)]
    first.step(6)
    assert before == seen(kept)


def test_closing_the_last_row_closes_the_batch():
    envs = [Rich(), Rich()]
    rows = PyToDMWrapper.rows(BatchedPyEnvironment(envs, multithreading=False))
    closings = []
    for row in (rows[1], rows[1], rows[0]):
        row.close()
        closings.append([env.closings for env in envs])
    assert [[0, 0], [0, 0], [1, 1]] == closings


def test_an_unused_batch_is_garbage_collected():
    batch = batch_of(2)
    reference = weakref.ref(batch)
    row = PyToDMWrapper(batch, row=1)
    row.reset()
    del batch, row
    gc.collect()
    assert reference() is None


def test_a_batch_of_one_has_one_row():
    (row,) = PyToDMWrapper.rows(batch_of(1, steps_per_episode=2))
    assert [0, 1, 2, 0] == step_types(row, 4)


def test_a_row_accepts_actions_of_every_kind():
    batch = BatchedPyEnvironment([Rich(), Rich()], multithreading=False)
    first, second = PyToDMWrapper.rows(batch)
    first.reset()
    second.reset()
    assert [MID, LAST] == [second.step(rich_action()).step_type for _ in range(2)]
    (action, _) = batch.envs[1].actions
    assert ("ab", [None, {}]) == (str(action["letter"]), action["any"].tolist())


@pytest.mark.parametrize(
    ("call", "arguments", "what"),
    [
        ("seed", (3,), "seed"),
        ("get_state", (), "state"),
        ("set_state", (None,), "state"),
    ],
)
def test_a_row_has_neither_seed_nor_state_of_its_own(call, arguments, what, message_of):
    row = PyToDMWrapper(batch_of(), row=1)
    assert f"A row of a batch has no {what} of its own; ask the batch." == message_of(
        NotImplementedError, lambda: getattr(row, call)(*arguments)
    )


@pytest.mark.parametrize(
    ("make", "row", "error", "message"),
    [
        (
            batch_of,
            None,
            NotImplementedError,
            "BatchedPyEnvironment is a batch, and dm_env has no batches. "
            "PyToDMWrapper.rows(env) makes an environment of each row.",
        ),
        (
            Held,
            1,
            NotImplementedError,
            "The rows of Held cannot become environments of dm_env, because it "
            "cannot step one while it holds the others (holds_rows, resets_rows). A "
            "BatchedPyEnvironment or ParallelPyEnvironment of single ones can.",
        ),
        (
            CountingEnv,
            0,
            ValueError,
            "CountingEnv is a single environment, so it has no row 0.",
        ),
        (
            batch_of,
            3,
            IndexError,
            "BatchedPyEnvironment has no row 3: it has 3 rows.",
        ),
        (
            lambda: CountingEnv,
            None,
            TypeError,
            "PyToDMWrapper was given the class CountingEnv, not an environment. Did "
            "you mean CountingEnv()?",
        ),
        (
            lambda: "CartPole",
            None,
            TypeError,
            "PyToDMWrapper was given the string 'CartPole', not an environment. Did "
            "you mean make('CartPole')?",
        ),
    ],
    ids=["batch", "held", "single", "row", "class", "name"],
)
def test_unsupported_environments_are_refused(make, row, error, message, message_of):
    assert message == message_of(error, lambda: PyToDMWrapper(make(), row))
