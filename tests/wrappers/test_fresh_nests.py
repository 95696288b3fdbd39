"""Who changes a nest of specs changes no environment."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import Catch, TicTacToe
from envkit.wrappers.actions import ActionClipWrapper, TransformAction
from envkit.wrappers.discrete_actions import OneHotActionWrapper
from envkit.wrappers.flat_actions import FlattenActionWrapper
from envkit.wrappers.history import DelayObservation, FrameStack, HistoryWrapper
from envkit.wrappers.normalization import (
    NormalizeObservation,
    NormalizeReward,
)
from envkit.wrappers.observation_parts import RenameObservation, SelectObservation
from envkit.wrappers.observations import (
    DtypeObservation,
    TransformObservation,
)
from envkit.wrappers.pictures import AddRenderObservation
from envkit.wrappers.rewards import ClipReward, TransformReward
from envkit.wrappers.time_aware import TimeAwareObservation
from tests.wrappers.earning import Earning
from tests.wrappers.recorder import Recorder
from tests.wrappers.showing import showing

NEST = {"food": ArraySpec((), np.float32), "gold": ArraySpec((), np.float32)}
PAID = {"food": 1.0, "gold": 2.0}
CAR = {
    "gear": BoundedArraySpec((), np.int64, 1, 3),
    "wheel": BoundedArraySpec((), np.float32, -1, 1),
}


def same(value):
    return value


def earning():
    return Earning([(PAID, 1.0)] * 9, reward_spec=NEST)


OBSERVATIONS = {
    "transform": lambda: TransformObservation(TicTacToe(), same),
    "dtype": lambda: DtypeObservation(TicTacToe(), np.float32),
    "select": lambda: SelectObservation(TicTacToe(), ["mask", "board"]),
    "rename": lambda: RenameObservation(TicTacToe(), {"mask": "legal"}),
    "time": lambda: TimeAwareObservation(TicTacToe(), False),
    "render": lambda: AddRenderObservation(TicTacToe(), False),
    "stack": lambda: FrameStack(TicTacToe(), 2),
    "delay": lambda: DelayObservation(TicTacToe(), 2),
    "history": lambda: HistoryWrapper(TicTacToe(), 2, True),
    "normalize": lambda: NormalizeObservation(TicTacToe()),
}
REWARDS = {
    "clip": lambda: ClipReward(earning(), -1, 1),
    "transform": lambda: TransformReward(earning(), same),
    "normalize": lambda: NormalizeReward(earning()),
}
ACTIONS = {
    "transform": lambda: TransformAction(Recorder(CAR), same),
    "clip": lambda: ActionClipWrapper(Recorder(CAR)),
    "one_hot": lambda: OneHotActionWrapper(Recorder(CAR)),
}


def assert_not_shared(specs_of):
    before = dict(specs_of())
    specs_of()["junk"] = 0

    assert before == specs_of()


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_a_returned_observation_spec_belongs_to_the_caller(name):
    env = OBSERVATIONS[name]()
    assert_not_shared(env.observation_spec)
    env.reset()
    assert set(env.observation_spec()) == set(env.step(0).observation)


@pytest.mark.parametrize("name", REWARDS)
def test_a_returned_reward_spec_belongs_to_the_caller(name):
    env = REWARDS[name]()
    assert_not_shared(env.reward_spec)
    env.reset()
    assert set(PAID) == set(env.step(0).reward)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_returned_action_spec_belongs_to_the_caller(name):
    assert_not_shared(ACTIONS[name]().action_spec)


def test_a_given_observation_spec_may_be_changed_later():
    spec = {"board": ArraySpec((10, 5), np.float32)}
    env = TransformObservation(Catch(), lambda board: {"board": board}, spec)
    spec.clear()
    assert ["board"] == list(env.reset().observation) == list(env.observation_spec())


def test_a_given_reward_spec_may_be_changed_later():
    spec = {"food": ArraySpec((), np.float32)}
    env = TransformReward(Catch(), lambda reward: {"food": reward}, spec)
    spec.clear()
    env.reset()
    assert ["food"] == list(env.step(0).reward) == list(env.reward_spec())


def test_a_given_action_spec_may_be_changed_later():
    spec = {"column": BoundedArraySpec((), np.int64, 0, 2)}
    env = TransformAction(Catch(), lambda action: action["column"], spec)
    spec.clear()
    env.reset()
    assert env.step({"column": 1}).is_mid()
    assert ["column"] == list(env.action_spec())


def test_errors_show_the_structure_as_given(message_of):
    spec = {"column": BoundedArraySpec((), np.int64, 0, 2)}
    env = TransformAction(Catch(), lambda action: action["column"], spec)
    spec["junk"] = ArraySpec((), np.int64)
    env.reset()
    assert "the structure {'column': *}" in message_of(ValueError, lambda: env.step(1))


def test_an_environment_may_change_its_own_action_spec_later():
    inside = Recorder(dict(CAR))
    env = FlattenActionWrapper(inside, np.float32)
    inside.action_spec()["junk"] = 0
    env.reset()
    env.step([1.0, 0.5])
    assert [CAR.keys()] == [given.keys() for given in inside.given]


def test_nested_specs_are_copied_at_every_level():
    env = FrameStack(showing({"inner": {"x": np.zeros(2)}}), 2)
    env.observation_spec()["inner"].clear()
    assert ["x"] == list(env.observation_spec()["inner"])
