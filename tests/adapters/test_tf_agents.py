"""Environments go to TF-Agents and come from there, and its DQN trains on envkit's."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters import from_tf_agents, to_tf_agents
from envkit.envs import CartPole
from envkit.errors import ClosedError, MissingDependencyError, SpecError
from envkit.testing import CountingEnv

ROOT = Path(__file__).parents[2]


class TimeStep(NamedTuple):
    """Has the name and the fields of TF-Agents' class."""

    step_type: Any
    reward: Any
    discount: Any
    observation: Any

    def is_last(self):
        return np.equal(self.step_type, 2)


class Spec:
    """Has the attributes of TF-Agents' ArraySpec."""

    def __init__(self, shape, dtype, name=None):
        self.shape, self.dtype, self.name = shape, dtype, name


class BoundedSpec(Spec):
    """Has the attributes of TF-Agents' BoundedArraySpec."""

    def __init__(self, shape, dtype, minimum, maximum, name=None):
        super().__init__(shape, dtype, name)
        self.minimum, self.maximum = minimum, maximum


REWARD = Spec((), np.float32, "reward")
DISCOUNT = BoundedSpec((), np.float32, 0.0, 1.0, "discount")


class Told:
    """Is written as for TF-Agents, and returns the time steps that it is told."""

    batched = False
    batch_size = None

    def __init__(self, *time_steps, observation=None, reward=None, discount=None):
        self._time_steps = list(time_steps)
        self._observation = observation or Spec((), np.float32, "seen")
        self._reward = reward or REWARD
        self._discount = discount or DISCOUNT
        self.actions = []
        self.seeds = []
        self.closings = 0

    def observation_spec(self):
        return self._observation

    def action_spec(self):
        return {"move": BoundedSpec((), np.int32, 0, 3, "move")}

    def reward_spec(self):
        return self._reward

    def discount_spec(self):
        return self._discount

    def time_step_spec(self):
        # Without the discount's spec, as TF-Agents' base class has it.
        return TimeStep(
            Spec((), np.int32), self._reward, DISCOUNT, self.observation_spec()
        )

    def reset(self):
        return self._time_steps.pop(0)

    def step(self, action):
        self.actions.append(action)
        return self._time_steps.pop(0)

    def seed(self, seed):
        self.seeds.append(seed)
        return "seeded"

    def get_info(self):
        return {"lives": 3}

    def render(self, mode):
        return mode

    def close(self):
        self.closings += 1

    @property
    def ammunition(self):
        return 7


class ToldBatch(Told):
    batched = True
    batch_size = 2


class Saved(Told):
    """Saves its state as TF-Agents' environments do: without the time step."""

    def __init__(self):
        super().__init__()
        self._current_time_step = None
        self._count = 0

    def reset(self):
        self._count = 0
        self._current_time_step = told(0, observation=0.0)
        return self._current_time_step

    def step(self, action):
        if self._current_time_step is None or self._current_time_step.is_last():
            return self.reset()
        self._count += 1
        step_type = 1 + (self._count == 3)
        self._current_time_step = told(step_type, observation=self._count)
        return self._current_time_step

    def get_state(self):
        return self._count

    def set_state(self, state):
        self._count = state


class TensorEnvironment(Told):
    """Says what it takes in specs of TensorFlow."""

    def time_step_spec(self):
        return TimeStep(*[tf.TensorSpec([], tf.float32)] * 4)


def told(step_type, reward=0.0, discount=1.0, observation=0.0):
    return TimeStep(np.int32(step_type), reward, discount, observation)


def told_rows(step_type, reward=(0.0, 0.0), discount=1.0, observation=(0.0, 0.0)):
    arrays = (np.array(step_type, np.int32), np.array(reward, np.float32))
    return TimeStep(*arrays, np.float32(discount), np.array(observation, np.float32))


MOVE = {"move": 1}
MOVES = {"move": [1, 2]}

NESTED = {"b": np.zeros(2), "a": (np.zeros((), np.int32), [np.ones(3)])}


@pytest.mark.parametrize(
    "time_step",
    [
        envkit.restart(NESTED),
        envkit.transition(NESTED, reward=np.ones(2)),
        envkit.restart(tf.nest.map_structure(tf.constant, NESTED)),
        envkit.TimeStep(*[NESTED] * 4),
    ],
    ids=["arrays", "batch", "tensors", "nests everywhere"],
)
def test_time_steps_have_the_structure_of_tf_agents(time_step):
    theirs = TimeStep(*time_step)
    tf.nest.assert_same_structure(theirs, time_step)
    tf.nest.assert_same_structure(time_step, theirs)


def test_time_step_specs_have_the_structure_of_tf_agents():
    spec = CartPole().time_step_spec()
    tf.nest.assert_same_structure(TimeStep(*spec), spec)


def test_a_while_loop_accepts_either_time_step_class():
    @tf.function
    def count():
        theirs = TimeStep(*[tf.constant(0)] * 4)
        return tf.while_loop(
            lambda step: step.reward < 3,
            lambda step: [envkit.TimeStep(*[part + 1 for part in step])],
            [theirs],
        )

    assert [3, 3, 3, 3] == [int(part) for part in tf.nest.flatten(count())]


def test_specs_of_tf_agents_become_specs_of_envkit():
    observation = {"far": [Spec([2], np.uint8, "eye")], "near": Spec((), "bool")}
    env = from_tf_agents(
        Told(observation=observation, reward=Spec((2,), np.float64, "both"))
    )

    assert {
        "far": [ArraySpec((2,), np.uint8)],
        "near": ArraySpec((), np.bool_),
    } == env.observation_spec()
    assert "eye" == env.observation_spec()["far"][0].name
    assert {"move": BoundedArraySpec((), np.int32, 0, 3)} == env.action_spec()
    assert "move" == env.action_spec()["move"].name
    assert ArraySpec((2,), np.float64) == env.reward_spec()


def test_the_discount_spec_overrides_the_time_step_spec():
    env = from_tf_agents(Told(discount=BoundedSpec((), np.float64, 0, 0.5)))
    assert BoundedArraySpec((), np.float64, 0.0, 0.5) == env.discount_spec()
    assert env.discount_spec() == env.time_step_spec().discount


def test_the_reward_in_the_time_step_spec_overrides_the_reward_spec():
    theirs = Told(reward=Spec((2,), np.float32))
    theirs.reward_spec = lambda: REWARD  # as the batches of TF-Agents say it
    assert ArraySpec((2,), np.float32) == from_tf_agents(theirs).reward_spec()


def test_missing_reward_and_discount_specs_have_defaults():
    class Plain(Told):
        reward_spec = discount_spec = property()

    spec = from_tf_agents(Plain()).time_step_spec()

    assert CountingEnv().time_step_spec()[:3] == spec[:3]


def test_specs_of_envkit_are_accepted():
    spec = ArraySpec((3,), np.int8, "mine")
    assert from_tf_agents(Told(observation=spec)).observation_spec() is spec


def test_time_steps_get_envkits_class_and_the_declared_dtypes():
    env = from_tf_agents(Told(told(0), told(1, np.float64(0.5), np.float64(0.25), 3)))
    env.reset()
    time_step = env.step(MOVE)
    assert envkit.TimeStep is type(time_step)
    assert time_step.step_type is envkit.StepType.MID
    assert [np.dtype("float32")] * 3 == [part.dtype for part in time_step[1:]]
    assert [0.5, 0.25, 3.0] == [float(part) for part in time_step[1:]]


def test_observations_are_copies_of_a_reused_array():
    seen = np.zeros((), np.float32)
    env = from_tf_agents(Told(told(0, observation=seen), told(1, observation=seen)))
    first = env.reset()
    seen += 1
    second = env.step(MOVE)
    assert (0.0, 1.0) == (float(first.observation), float(second.observation))


@pytest.mark.parametrize(
    ("kind", "action", "given"),
    [(Told, MOVE, 1), (ToldBatch, MOVES, [1, 2])],
    ids=["single", "batch"],
)
def test_actions_get_the_declared_dtypes(kind, action, given):
    rows = [0, 0] if kind is ToldBatch else 0
    tell = told_rows if kind is ToldBatch else told
    theirs = kind(tell(rows), tell(rows))
    env = from_tf_agents(theirs)
    env.reset()
    env.step(action)
    (action,) = theirs.actions
    assert ("int32", given) == (action["move"].dtype, action["move"].tolist())


def test_a_single_environment_need_not_reset_itself():
    env = from_tf_agents(Told(told(0), told(2), told(0)))
    assert [0, 2, 0] == [int(env.step(MOVE).step_type) for _ in range(3)]


def test_a_vector_reward_does_not_multiply_step_types_and_discounts():
    vector = Spec((3,), np.float32)
    ended = TimeStep(np.full(3, 2, np.int32), np.ones(3), np.zeros(3), 0.0)
    env = from_tf_agents(Told(told(0, np.zeros(3)), ended, reward=vector))
    env.reset()
    time_step = env.step(MOVE)
    assert time_step.step_type is envkit.StepType.LAST
    assert (0.0, (3,)) == (float(time_step.discount), time_step.reward.shape)
    begin = told_rows([[0] * 3] * 2, np.zeros((2, 3)), discount=0.5)
    first = from_tf_agents(ToldBatch(begin, reward=vector)).reset()
    assert ([0, 0], [0.5, 0.5]) == (first.step_type.tolist(), first.discount.tolist())


class BanditPyEnvironment(Told):
    """Answers every step with a LAST, and has no reward spec, as TF-Agents' has it."""

    def __init__(self, *time_steps):
        super().__init__(*time_steps)
        self._reward = None


class Around:
    """Is a wrapper."""

    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)

    def wrapped_env(self):
        return self._env


class TimeLimit(Around):
    """Has the name of the one that begins episodes itself."""


@pytest.mark.parametrize("around", [lambda env: env, Around])
def test_every_step_of_a_bandit_uses_its_action(around):
    theirs = BanditPyEnvironment(told(0), told(2, 1.0), told(2, 2.0), told(2, 3.0))
    env = from_tf_agents(around(theirs))
    assert env.continues_after_last
    env.reset()
    assert [1, 2, 3] == [int(env.step(MOVE).reward) for _ in range(3)]
    assert 3 == len(theirs.actions)


def test_every_step_of_a_batch_of_bandits_uses_its_actions():
    class Batch(BanditPyEnvironment):
        batched = True
        batch_size = 2

    ends = [told_rows([2, 2], np.full(2, reward)) for reward in (1.0, 2.0)]
    env = from_tf_agents(Batch(told_rows([0, 0]), *ends))
    env.reset()
    assert [[1, 1], [2, 2]] == [env.step(MOVES).reward.tolist() for _ in range(2)]


def test_a_resetting_wrapper_hides_a_bandit():
    env = from_tf_agents(TimeLimit(BanditPyEnvironment(told(0))))
    assert not env.continues_after_last


def test_a_first_keeps_its_reward_and_its_discount():
    firsts = [told(0, 0.5, 0.25), told(0, 0.0, 0.5), told(0, -0.0), told(0)]
    env = from_tf_agents(Told(*firsts))
    found = [env.reset() for _ in firsts]
    assert ["0.5 0.25", "0.0 0.5", "-0.0 1.0", "0.0 1.0"] == [
        f"{first.reward} {first.discount}" for first in found
    ]
    assert all(first.step_type is envkit.StepType.FIRST for first in found)


def test_a_step_may_begin_an_episode_itself():
    env = from_tf_agents(Told(told(0), told(1, 2.0), told(0, 0.5, 0.25), told(1)))
    found = [env.step(MOVE) for _ in range(4)]
    assert [(0, 0.0, 1.0), (1, 2.0, 1.0), (0, 0.5, 0.25), (1, 0.0, 1.0)] == [
        tuple(map(float, time_step[:3])) for time_step in found
    ]


def test_rewards_and_discounts_may_be_nests_of_any_dtype():
    both = {"a": Spec((), np.float64), "b": Spec((2,), np.int16)}
    theirs = TimeStep(
        np.int32(1), {"a": 1 / 3, "b": [1, 2]}, {"a": 0.1, "b": np.ones(2, int)}, 3.0
    )
    last = theirs._replace(step_type=np.int32(2), discount={"a": 0.0, "b": [0, 0]})
    first = told(0, {"a": 0.0, "b": [0, 0]}, {"a": 1.0, "b": [1, 1]})
    env = from_tf_agents(Told(first, theirs, last, reward=both, discount=both))
    _, mid, end = (env.step(MOVE) for _ in range(3))
    assert ["float64", "int16"] == [part.dtype for part in mid.reward.values()]
    assert (1 / 3, [1, 2]) == tuple(part.tolist() for part in mid.reward.values())
    assert (0.1, [1, 1]) == tuple(part.tolist() for part in mid.discount.values())
    assert (2, 0.0) == (end.step_type, end.discount["a"])


@pytest.mark.parametrize("value", [0.5, np.float64(0.5), np.array(0.5, np.float32)])
@pytest.mark.parametrize("part", ["reward", "discount"])
def test_a_fraction_is_refused_where_integers_belong(part, value):
    spec = {part: Spec((), np.int32)}
    time_step = told(0, 0, 1)._replace(**{part: value})
    with pytest.raises(SpecError, match=f"Told returned a {part} that does not fit"):
        from_tf_agents(Told(time_step, **spec)).reset()


class Walk(Saved):
    """Moves by one action of a plain spec, and ends by itself or is cut off."""

    discounts = (0.0, 1.0, 0.5)

    def __init__(self, action=None):
        super().__init__()
        self._observation = Spec((2,), np.float32, "seen")
        self._action = action or BoundedSpec((), np.int32, 0, 3, "move")
        self._episodes = 0
        self.kinds = set()

    def action_spec(self):
        return self._action

    def reset(self):
        return super().reset()._replace(observation=np.zeros(2, np.float32))

    def step(self, action):
        self.kinds.add((action.__class__, action.shape, action.dtype))
        time_step = super().step(action)
        if time_step.step_type == 0:
            return time_step
        seen = np.array([time_step.observation, np.float32(action).sum()], np.float32)
        reward = np.array(1 / 3, np.float32)
        discount = np.array(0.9 if self._episodes == 4 else 1.0, np.float32)
        if time_step.step_type == 2:
            self._episodes += 1
            worth = self.discounts[self._episodes % len(self.discounts)]
            discount = np.array(worth, np.float32)
        return TimeStep(time_step.step_type, reward, discount, seen)


@pytest.mark.parametrize(
    ("spec", "actions"),
    [
        (None, np.array([0, 3], np.int32)),
        (BoundedSpec((2,), np.float32, -1, 1), np.array([[0, 1], [0.5, -1]], "f4")),
    ],
    ids=["numbers", "arrays"],
)
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_rows_of_a_pool_match_the_environment_alone(spec, actions, backend):
    def make():
        return from_tf_agents(Walk(spec))

    alone = [make(), make()]
    with envkit.ParallelPyEnvironment([make] * 2, backend=backend) as pool:
        for _ in range(30):
            batch = pool.step(actions)
            rows = [env.step(one) for env, one in zip(alone, actions, strict=True)]
            for part, theirs in zip(batch, zip(*rows, strict=True), strict=True):
                np.testing.assert_array_equal(part, np.stack(theirs), strict=True)


def test_actions_in_a_pool_are_arrays():
    theirs = Walk()
    make = [lambda: from_tf_agents(theirs)]
    with envkit.ParallelPyEnvironment(make, backend="inline") as pool:
        for number in (0, 1, 2, 3, 0, 1):
            pool.step([number])
    assert {(np.ndarray, (), np.dtype("int32"))} == theirs.kinds


def test_rows_of_a_batch_reset_themselves():
    env = from_tf_agents(
        ToldBatch(told_rows([0, 0]), told_rows([1, 2]), told_rows([1, 0]))
    )
    streams = [env.step(MOVES).step_type.tolist() for _ in range(3)]
    assert [[0, 0], [1, 2], [1, 0]] == streams


def test_a_row_that_does_not_reset_itself_is_refused(message_of):
    env = from_tf_agents(
        ToldBatch(told_rows([0, 0]), told_rows([1, 2]), told_rows([1, 2]))
    )
    env.reset()
    env.step(MOVES)
    assert (
        "row 1 of ToldBatch ended with the last step, and this step did not begin a "
        "new episode there. A batch must do that row by row, in the step after a LAST."
    ) == message_of(NotImplementedError, lambda: env.step(MOVES))


def test_attributes_of_the_environment_are_forwarded(message_of):
    env = from_tf_agents(Told())
    assert (7, {"lives": 3}, "human") == (
        env.ammunition,
        env.get_info(),
        env.render("human"),
    )
    assert Told is type(env.wrapped_env())
    batch = from_tf_agents(ToldBatch())
    assert (True, 2) == (batch.batched, batch.batch_size)
    for name in ("lamp", "_lamp"):
        assert f"'TFAgentsWrapper' object has no attribute {name!r}" == message_of(
            AttributeError, lambda name=name: getattr(env, name)
        )


def test_a_copy_is_independent():
    env = from_tf_agents(Saved())
    env.reset()
    copied = copy.deepcopy(env)
    env.step(MOVE)
    seen = [each.current_time_step().observation for each in (env, copied)]
    assert [1.0, 0.0] == seen


def test_a_seed_reaches_the_environment():
    theirs = Told()
    env = from_tf_agents(theirs)
    assert "seeded" == env.seed(None)
    env.seed([5])
    assert [None, 5] == theirs.seeds
    # A batch whose rows are not there takes what it is given.
    batch = ToldBatch()
    from_tf_agents(batch).seed(3)
    batch.envs = [CallableRow(), CallableRow()]
    from_tf_agents(batch).seed([8, 9])
    assert [3, [8, 9]] == batch.seeds


def test_each_environment_of_a_batch_gets_its_own_seed():
    theirs = ToldBatch()
    theirs.envs = [Told(), Told()]
    env = from_tf_agents(theirs)

    env.seed(3)
    env.seed([8, 9])

    first, second = (row.seeds for row in theirs.envs)
    assert [8, 9] == [first[1], second[1]]
    assert first[0] != second[0]


class CallableRow:
    """Has what a row of TF-Agents' ParallelPyEnvironment has."""

    def call(self, name, *args):
        raise AssertionError("Its batch does that.")


def test_a_state_restores_the_stream():
    env = from_tf_agents(Saved())
    env.reset()
    env.step(MOVE)
    token = env.get_state()
    stream = [env.step(MOVE) for _ in range(2)]

    env.set_state(token)
    assert 1.0 == env.current_time_step().observation
    assert stream == [env.step(MOVE) for _ in range(2)]


def test_a_closed_environment_raises_closed_error(message_of):
    theirs = Told(told(0))
    env = from_tf_agents(theirs)
    env.reset()

    env.close()
    env.close()

    assert 1 == theirs.closings
    for call, arguments in (("reset", ()), ("step", (MOVE,)), ("render", ())):
        text = message_of(ClosedError, lambda: getattr(env, call)(*arguments))  # noqa: B023  # called at once
        assert text.startswith(f"TFAgentsWrapper.{call}()")


NO_FIT = "that does not fit its spec"


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (
            lambda: Told(told(0, observation=np.zeros(2, np.float32))),
            f"Told returned an observation {NO_FIT}.\n\n"
            "  expected   ArraySpec(shape=(), dtype=float32, name='seen')\n"
            "  got        array of shape (2,), dtype float32, values 0.0 … 0.0\n\n"
            "There is one dimension too many, of size 2: a batch where a single value "
            "belongs.",
        ),
        (
            lambda: Told(
                told(0, np.float32(0), np.float32(1), {"ear": np.float32(0)}),
                observation={"eye": Spec((), np.float32)},
            ),
            f"Told returned an observation {NO_FIT}.\n\n"
            "  expected   the structure {'eye': *}\n"
            "  got        a dict of 1 element\n\n"
            "Key 'eye' is missing; key 'ear' is not in the spec.",
        ),
        (
            lambda: Told(told(0)._replace(step_type=np.array([0, 1], np.int32))),
            f"Told returned a step type {NO_FIT}.\n\n"
            "  expected   ArraySpec(shape=(), dtype=int32, name='step_type')\n"
            "  got        array of shape (2,), dtype int32, values 0 … 1\n\n"
            "There is one dimension too many, of size 2: a batch where a single value "
            "belongs.",
        ),
        (
            lambda: Told(
                told(0, {"eye": 0.0}),
                reward={"eye": Spec((), np.float32), "ear": Spec((2,), np.float32)},
            ),
            f"Told returned a reward {NO_FIT}.\n\n"
            "  expected   the structure {'eye': *, 'ear': *}\n"
            "  got        a dict of 1 element\n\n"
            "Key 'ear' is missing.",
        ),
        (
            lambda: ToldBatch(told_rows([0, 0], observation=[0.0])),
            f"ToldBatch returned a time step {NO_FIT} at observation.\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=float32, name='seen')\n"
            "  got        array of shape (1,), dtype float32, values 0.0 … 0.0\n\n"
            "Axis 0 has size 1 instead of 2. The other 3 leaves fit.",
        ),
        (
            lambda: Told((0, 1.0)),
            "Told.reset() returned a tuple of 2 elements, not a TimeStep.",
        ),
        (
            lambda: Told(observation={"eye": [3]}),
            "The spec at observation['eye'][0] must be an ArraySpec, got 3, which has "
            "no shape or no dtype.",
        ),
    ],
    ids=["shape", "structure", "step types", "reward", "batch", "tuple", "spec"],
)
def test_invalid_time_steps_are_refused(theirs, text, message_of):
    assert text == message_of(SpecError, lambda: from_tf_agents(theirs()).reset())


def test_an_invalid_action_is_refused(message_of):
    env = from_tf_agents(Told(told(0)))
    env.reset()
    assert message_of(SpecError, lambda: env.step({"move": [0, 1]})) == (
        "Told was given an action that does not fit its spec at ['move'].\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=3, "
        "name='move')\n"
        "  got        a list of 2 elements\n\n"
        "The value is a list, not an array: use np.array(..., np.int32)."
    )


def test_from_tf_agents_returns_an_environment_of_envkit_unchanged():
    env = CountingEnv()
    assert env is from_tf_agents(env)


@pytest.mark.parametrize(
    ("thing", "shown"),
    [(Told, "the class Told"), (3, "3 of type int"), (None, "None")],
    ids=["class", "number", "None"],
)
def test_an_object_other_than_an_environment_is_refused(thing, shown, message_of):
    assert (
        f"from_tf_agents() was given {shown}; it takes an environment written for "
        "TF-Agents: one that has the methods of its PyEnvironment."
    ) == message_of(TypeError, lambda: from_tf_agents(thing))
    assert (
        f"to_tf_agents() was given {shown}; it takes an environment: a PyEnvironment "
        "or TFEnvironment of envkit."
    ) == message_of(TypeError, lambda: to_tf_agents(thing))


def test_a_tensorflow_environment_is_refused(message_of):
    text = message_of(TypeError, lambda: from_tf_agents(TensorEnvironment()))
    assert text.endswith(
        ", which takes and returns tensors; it takes a Python environment. A "
        "TFPyEnvironment has its own as `pyenv`."
    )


@pytest.mark.parametrize("order", ["same_step", "disabled"])
def test_a_pool_with_another_autoreset_order_is_refused(order, message_of):
    pool = envkit.ParallelPyEnvironment(
        [CountingEnv], backend="inline", autoreset=order
    )
    with pool:
        text = message_of(ValueError, lambda: to_tf_agents(pool))

    assert (
        "to_tf_agents() was given a ParallelPyEnvironment whose autoreset is "
        f"{order.upper()}; in TF-Agents the step after a LAST returns the FIRST of the "
        "next episode. Set its autoreset to NEXT_STEP."
    ) == text


def test_to_tf_agents_returns_an_environment_of_tf_agents_unchanged():
    # The class is known by its name, so nothing of TF-Agents' is loaded for it.
    kind = type("PyEnvironment", (), {"__module__": "tf_agents.environments.some"})
    env = type("Game", (kind,), {})()
    assert env is to_tf_agents(env)


@pytest.mark.parametrize("env", [CountingEnv(), TensorEnvironment()], ids=["py", "tf"])
def test_without_tf_agents_the_error_says_what_to_install(env, message_of, monkeypatch):
    # Where it is installed all the same, it must not be found.
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingDependencyError) as caught:
        to_tf_agents(env)

    assert (
        "to_tf_agents() needs the package tf-agents, which is not installed. It runs "
        "on Python 3.11 and older, with Keras 2, and its own list of requirements "
        "stops at TensorFlow 2.15:\n\n"
        '  pip install "tensorflow>=2.16" tf-keras tensorflow-probability tensorboard '
        "gin-config gym==0.23.1\n"
        "  pip install --no-deps tf-agents==0.19.0\n"
        "  export TF_USE_LEGACY_KERAS=1"
    ) == str(caught.value)
    assert "tf-agents" == caught.value.package


# What TF-Agents is installed with. Its own list stops at TensorFlow 2.15, so each
# package is named and none brings its own; the others are there for other tests.
KERAS = ".".join(tf.__version__.split(".")[:2])
REQUIREMENTS = f"""\
tf-agents==0.19.0
tf-keras=={KERAS}.*
tensorflow-probability==0.25.0
decorator
gym==0.23.1
gym-notices
tensorboard
"""

CHECKED = [
    "Specs are of TF-Agents' classes, with names, dtypes and bounds kept.",
    "TF-Agents' validation accepts single environments, batches and pools.",
    "Time steps are of TF-Agents' class, and otherwise those of the environment.",
    "A single environment need not begin its next episode itself.",
    "States bring back the environment and what TF-Agents knows of it.",
    "What the environment may write to later is copied.",
    "A row that does not begin its next episode is refused.",
    "What is TF-Agents' already comes back as it is.",
    "Environments of TF-Agents keep envkit's contract: single, wrapped and batched.",
    "There and back gives the same time steps.",
    "Each row of a batch of TF-Agents gets a seed of its own.",
    "TF-Agents' TFPyEnvironment steps a batch inside tf.while_loop.",
    "An environment in TensorFlow becomes one of TF-Agents, and its driver runs it.",
    "Time steps of envkit are of TF-Agents' class, too, those made before included.",
    "An Actor collects from an environment that to_tf_agents has made.",
    "DqnAgent trains on envkit's CartPole: the loss is finite and weights change.",
]


@pytest.fixture
def tf_agents(request, tmp_path):
    """Returns a folder that has TF-Agents; it is kept between runs."""
    if sys.version_info >= (3, 12):
        pytest.skip(
            "TF-Agents imports distutils, which Python 3.11 was the last to have"
        )
    cache = getattr(request.config, "cache", None)
    folder = tmp_path if cache is None else Path(cache.mkdir("tf_agents"))
    installed = folder / "installed.txt"
    wanted = f"{sys.version}\n{REQUIREMENTS}"
    if not installed.exists() or installed.read_text() != wanted:
        install(folder)
        installed.write_text(wanted)
    return folder


def install(folder: Path) -> None:
    wanted = folder / "requirements.txt"
    wanted.write_text(REQUIREMENTS)
    options = ["--no-deps", "--upgrade", "--retries=1", "--target", folder]
    try:
        finished = subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, "-r", wanted],
            capture_output=True,
            text=True,
            timeout=240,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("TF-Agents could not be installed within 240 s")
    if finished.returncode:
        # What cannot be installed although the index answers is a fault of the list.
        if index_answers(folder):
            pytest.fail(f"TF-Agents could not be installed:\n{finished.stderr}")
        pytest.skip("TF-Agents could not be installed: no package index can be reached")


def index_answers(folder: Path) -> bool:
    """Says whether a package that every index has, and that is small, can be had."""
    options = ["--no-deps", "--no-cache-dir", "--retries=1", "--dest", folder / "asked"]
    try:
        finished = subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, "six"],
            capture_output=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return False
    return finished.returncode == 0


def run(folder: Path, program: Path, *arguments: str) -> list[str]:
    """Runs a program that imports TF-Agents and returns the lines it prints."""
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", program, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_USE_LEGACY_KERAS": "1",
        },
        capture_output=True,
        text=True,
    )
    assert 0 == finished.returncode, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.slow
def test_agents_of_tf_agents_train_on_environments_of_envkit(tf_agents):
    lines = run(tf_agents, ROOT / "tests" / "adapters" / "tf_agents_dqn.py")
    begin = "checked: "
    assert CHECKED == [
        line.removeprefix(begin) for line in lines if line.startswith(begin)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["envkit", "tf_agents"])
def test_specs_of_envkit_are_specs_of_tf_agents(first, tf_agents):
    lines = run(tf_agents, ROOT / "tests" / "adapters" / "tf_agents_specs.py", first)
    assert [
        "Specs of envkit are of TF-Agents' classes, those made before included.",
        "They stay envkit's: copied, pickled, replaced and printed.",
        "A spec equals one of TF-Agents' that says the same, either way round.",
        "Functions of TF-Agents take them.",
        "Random policies of TF-Agents act on envkit's time steps and specs.",
        "Replay buffers of TF-Agents keep what envkit's specs describe.",
    ] == lines[-6:]


@pytest.fixture
def other_classes(monkeypatch):
    """Stands in for another version of TF-Agents, whose specs have other slots."""

    class Plain:
        __slots__ = ("_dtype", "_name", "_shape", "_unit")

    class Bounded(Plain):
        __slots__ = ("_maximum", "_minimum")

    module = types.ModuleType("tf_agents.specs.array_spec")
    module.ArraySpec, module.BoundedArraySpec = Plain, Bounded
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_specs_are_unchanged_beside_incompatible_spec_classes(
    other_classes,
):
    spec = BoundedArraySpec((2,), np.int32, 0, 3)
    assert not isinstance(spec, other_classes.ArraySpec)
    assert BoundedArraySpec((2,), np.int32, 0, 3) == spec
    assert 3 == spec.maximum


GUIDE = (ROOT / "docs" / "coming_from_tf_agents.md").read_text("utf-8")
NAMES = (ROOT / "docs" / "reference" / "tf_agents_names.md").read_text("utf-8")
IMPORTS_BEFORE, PROGRAM = re.findall(r"^```py\n(import .+?)^```$", GUIDE, re.M | re.S)
IMPORTS_AFTER = PROGRAM[: PROGRAM.index("\n\n\n") + 1]


def test_search_and_replace_gives_the_imports_in_the_guide():
    text = IMPORTS_BEFORE
    table = re.findall(r"^\| `(from tf_agents.+?)` \| `(from .+?)`", NAMES, re.M)
    for before, after in table:
        text = text.replace(f"{before}\n", f"{after}\n")
    assert IMPORTS_AFTER == text
    assert "tf_agents.environments" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports", [IMPORTS_BEFORE, IMPORTS_AFTER], ids=["before", "after"]
)
def test_the_guides_program_trains_with_either_imports(imports, tf_agents, tmp_path):
    program = tmp_path / "twenty_one.py"
    program.write_text(PROGRAM.replace(IMPORTS_AFTER, imports), "utf-8")
    *_, line = run(tf_agents, program)
    loss, earned = map(float, re.findall(r"-?[0-9]+\.[0-9]+", line))
    assert line == f"loss {loss:.2f}, return {earned:.1f}"
    assert 0 < loss < 1000
    assert -21 <= earned <= 0
