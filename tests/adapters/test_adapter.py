"""Libraries that envkit has never seen, supported by an `Adapter`."""

from __future__ import annotations

import copy
import dataclasses
import enum
import fractions
import functools
import os
import pickle
import threading
import types
from typing import ClassVar, NamedTuple

import dm_env
import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    StepType,
    make,
    restart,
    termination,
    truncation,
)
from envkit.adapters import Adapter, EnvAdapter, Result
from envkit.adapters.adapter.adapted import AdaptedEnvironment
from envkit.errors import ClosedError, SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs import check_arrays_nest
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit
from tests.adapters.adapter_games import Walk, WalkAdapter


class Fixed(Adapter):
    """Returns what it is told to."""

    num_actions = 2
    first = 0
    later = (0, 0.0, False)

    def reset(self):
        return self.first

    def step(self, action):
        return self.later


def stepped(later, **settings):
    env = Fixed(later=later, **settings)
    env.reset()
    return env.step(0), env.get_info()


def seen(first, **settings):
    """Returns the spec and the value of a first observation."""
    env = Fixed(first=first, **settings)
    return env.observation_spec(), env.reset().observation


# What it promises


@pytest.mark.parametrize(
    "make_env",
    [
        WalkAdapter,
        functools.partial(WalkAdapter, edge=2, observe_legal_actions=True),
        functools.partial(WalkAdapter, floats=np.float32, checked=False),
    ],
    ids=["alone", "with mask", "float32"],
)
def test_an_adapter_passes_check_environment(make_env):
    check_environment(
        make_env, steps=60, require=["episodes", "info", "render", "seed", "state"]
    )


def test_a_batch_of_adapters_passes_check_environment():
    def make_env():
        envs = [WalkAdapter(), WalkAdapter()]
        return BatchedPyEnvironment(envs, multithreading=False)

    check_environment(make_env, steps=40, require=["seed", "state"])


def test_worker_processes_start_the_library_themselves():
    class Where(WalkAdapter):
        def reset(self):
            self.env_instance.begin()
            return os.getpid()

        def step(self, action):
            return os.getpid(), 0.0, False

        legal_actions = None

    with ParallelPyEnvironment([Where] * 2, num_workers=2) as env:
        places = env.reset().observation

    assert 3 == len({os.getpid(), *places.tolist()})


@settings(max_examples=20)
@given(actions=st.lists(st.integers(0, 2), min_size=1, max_size=25))
def test_time_steps_match_the_library(actions):
    walk, env = Walk(3), WalkAdapter()
    walk.begin()
    env.reset()
    theirs, ours = [], []
    for action in actions:
        if abs(walk.place) == 3 or walk.steps == 9:
            walk.begin()
        else:
            walk.go((-1, 1, 0)[action])
        theirs.append(walk.look().tolist())
        ours.append(env.step(action).observation.tolist())

    assert theirs == ours


# Lifecycle


def test_the_library_is_started_once_on_first_use():
    env = WalkAdapter()
    env.action_spec()
    assert env.env_instance is None
    env.observation_spec()
    first = env.env_instance
    env.start()
    env.reset()
    assert isinstance(first, Walk)
    assert env.env_instance is first


def test_declared_specs_need_no_library():
    class Declared(WalkAdapter):
        observation_spec = ArraySpec((2,), np.float64)

    env = Declared()
    specs = env.observation_spec(), env.action_spec(), env.time_step_spec()

    assert (ArraySpec((2,), np.float64), None) == (specs[0], env.env_instance)


def test_start_may_assign_env_instance():
    class Assigning(WalkAdapter):
        def start(self):
            self.env_instance = Walk(self.edge)

    env = Assigning()
    env.reset()

    assert isinstance(env.env_instance, Walk)


def test_a_start_that_fails_is_tried_again():
    class Failing(WalkAdapter):
        tries = 0

        def start(self):
            type(self).tries += 1
            if self.tries == 1:
                raise OSError("no server")
            return super().start()

    env = Failing()
    with pytest.raises(OSError, match="no server"):
        env.reset()

    assert 0 == env.reset().observation[0]


@pytest.mark.parametrize(
    ("realtime", "first"), [(False, 1), (True, 2)], ids=["no clock", "a clock goes on"]
)
def test_only_real_time_loses_the_episode_used_for_inference(realtime, first):
    class Counting(Fixed):
        resets = 0

        def reset(self):
            self.resets += 1
            return self.resets

    env = Counting(realtime=realtime)
    env.observation_spec()
    assert (first, first + 1) == (env.reset().observation, env.reset().observation)


def test_restart_closes_the_instance_and_begins_in_a_new_one():
    env = WalkAdapter()
    env.reset()
    env.step(1)
    old = env.env_instance
    assert env.restart().is_first()
    assert (1, True) == (old.closed, env.env_instance is not old)
    env.close()
    assert env.restart().is_first()


def test_close_closes_the_instance_once():
    env = WalkAdapter()
    env.reset()
    instance = env.env_instance
    env.close()
    env.close()
    assert (1, None) == (instance.closed, env.env_instance)


def test_close_calls_the_authors_method_only_after_start():
    class Closing(WalkAdapter):
        asked = 0

        def close(self):
            type(self).asked += 1

    Closing().close()
    assert 0 == Closing.asked
    env = Closing()
    env.reset()
    instance = env.env_instance
    with env:
        pass
    env.close()
    assert (1, 0) == (Closing.asked, instance.closed)


@pytest.mark.parametrize("call", ["reset", "step", "render", "get_state", "start"])
def test_a_closed_adapter_raises_closed_error(message_of, call):
    env = WalkAdapter()
    env.reset()
    env.close()
    arguments = [0] if call == "step" else []
    message = message_of(ClosedError, lambda: getattr(env, call)(*arguments))
    assert message == str(ClosedError.used("WalkAdapter", call))


# The author's methods, and the environment's


def test_the_authors_methods_call_one_another_directly():
    class Nested(WalkAdapter):
        def reset(self):
            super().reset()
            return self.step(1)[0]  # what it returns itself

    time_step = Nested(limit=5).reset()

    assert [1.0] == [time_step.observation[1]]


def test_restart_inside_a_method_returns_the_result_of_reset():
    class Crashing(WalkAdapter):
        def step(self, action):
            crashed = self.env_instance
            observation, _ = self.restart()
            now_another = self.env_instance is not crashed and crashed.closed == 1
            return Result(observation, float(now_another), truncated=True)

    env = Crashing()
    env.reset()
    time_step = env.step(1)

    assert (StepType.LAST, 1.0) == (time_step.step_type, time_step.reward)
    assert [0.0, 0.0] == time_step.observation.tolist()


def test_a_helper_calls_the_authors_methods():
    class Helping(WalkAdapter):
        def twice(self, action):
            self.step(action)
            return self.step(action)

    env = Helping()
    env.reset()

    assert isinstance(env.twice(1), Result)


def test_the_authors_attributes_are_readable_and_writable():
    env = WalkAdapter()
    env.edge, env.since_then = 7, 8
    env.reset()
    assert (7, 8, 7) == (env.edge, env.author.since_then, env.get_info()["edge"])


@pytest.mark.parametrize("limit", [None, 5])
def test_pools_and_wrappers_write_the_authors_attributes(limit):
    class Telling(WalkAdapter):
        def tell(self):
            return self.edge

    def make():
        return Telling() if limit is None else TimeLimit(Telling(), limit)

    with ParallelPyEnvironment([make] * 2, backend="inline", num_workers=1) as pool:
        pool.set_attr("edge", 7, env_ids=[1])
        assert [3, 7] == pool.access("edge") == pool.call("tell")


@pytest.mark.parametrize("kind", [WalkAdapter, EnvAdapter, Adapter, PyEnvironment])
def test_an_environment_is_an_instance_of_its_adapter_class(kind):
    assert isinstance(WalkAdapter(), kind)
    assert not isinstance(WalkAdapter(), Fixed)


# Every name that an environment, an adapter or an object has, but those that an author
# writes on purpose; they mean what the guide says.
INTERFACE = {
    *("action_spec", "close", "discount_spec", "get_state", "legal_actions"),
    *("observation_spec", "render", "reset", "reward_spec", "seed", "set_state"),
    *("start", "step", "__init__", "__slots__"),
    *(name for name in vars(Adapter) if not name.startswith("_")),
}
NAMES = sorted(
    {*dir(PyEnvironment), *dir(AdaptedEnvironment), *vars(WalkAdapter()), *dir(object)}
    - INTERFACE
)
REFUSED = {"__class__", "__dict__", "__getattribute__", "__new__", "__setattr__"}


def namesake(name):
    """Makes an adapter with a helper and an attribute of these names."""

    def helper(self, *args, **kwargs):
        return "help"

    def reset(self):
        first = WalkAdapter.reset(self)
        if not name.startswith("__"):
            vars(self)[name] = ["mine"]
        return first

    def step(self, action):
        if not name.startswith("__"):
            assert getattr(self, name) == ["mine"]
        return WalkAdapter.step(self, action)

    written = {"reset": reset, "step": step, name: helper}
    return type("Namesake", (WalkAdapter,), written)


@pytest.mark.parametrize("name", sorted(set(NAMES) - REFUSED))
def test_an_author_may_use_any_name(name):
    """A helper of the class, and an attribute that `reset` sets, of the same name."""
    kind = namesake(name)
    env, twin = kind(), kind()
    env.seed(3)
    twin.seed(3)
    env.reset()
    state = env.get_state()
    played = [env.step(action) for action in (1, 1, 2)]
    env.render()
    twin.set_state(state)
    again = [copy.deepcopy(twin).step(1), *map(twin.step, (1, 1, 2))][1:]
    env.close()

    assert repr(played) == repr(again)
    assert {"edge": 3}.items() <= twin.get_info().items()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_reserved_names_of_python_are_refused(name, message_of):
    assert message_of(TypeError, lambda: namesake(name)) == (
        f"Namesake defines {name}, which Python and envkit use to reach the rest of "
        "the class. An Adapter may define any other name."
    )


def test_an_adapter_class_may_be_called_adapter():
    class Adapter(WalkAdapter):
        def reset(self):
            self.__environment = self._Adapter__author = 7
            return super().reset()

    assert Adapter().reset().is_first()


def test_an_author_may_choose_the_environment_class():
    class Started(AdaptedEnvironment):
        def __init__(self, *given):
            super().__init__(*given)
            self.start()

    class Early(WalkAdapter, environment=Started):
        pass

    class Earlier(Early):
        pass

    made = WalkAdapter(), Early(), Earlier()

    assert [False, True, True] == [env.env_instance is not None for env in made]


def test_fresh_arrays_are_not_copied():
    class Fresh(WalkAdapter):
        fresh_arrays = True
        shown: ClassVar[list] = []

        def reset(self):
            observation, info = super().reset()
            self.shown.append(np.array(observation))
            return self.shown[-1], info

        def step(self, action):
            result = super().step(action)
            self.shown.append(np.array(result.observation))
            return result._replace(observation=self.shown[-1])

    env = Fresh()
    seen = [env.reset(), env.step(1), env.step(1)]

    assert all(
        shown is time_step.observation
        for shown, time_step in zip(env.shown[-3:], seen, strict=True)
    )


def test_a_mixin_may_define_the_methods_and_init_needs_no_super():
    class Mixin:
        def __init__(self, first):
            self.first = first

        def reset(self):
            return self.first

        def step(self, action):
            return 6, 1, True

    class Mixed(Mixin, Adapter):
        num_actions = 1

    env = Mixed(5)
    assert (5, 6) == (env.reset().observation, env.step(0).observation)
    assert isinstance(env, PyEnvironment)


@pytest.mark.parametrize("call", ["reset", "step", "legal_actions"])
def test_a_traceback_shows_the_authors_method(call):
    def fails(self, *args):
        raise ArithmeticError("not today")

    kind = type("Failing", (WalkAdapter,), {call: fails})
    if call == "reset":
        kind.observation_spec = ArraySpec((2,), np.float64)

    with pytest.raises(AssertionError) as caught:
        check_environment(kind)

    entered = "step" if call == "step" else "reset"
    assert f"{entered}() raised ArithmeticError: not today" in str(caught.value)


# What step returns


@pytest.mark.parametrize(
    ("later", "step_type", "discount"),
    [
        ((0, 2, False), StepType.MID, 1.0),
        ((0, 2, True), StepType.LAST, 0.0),
        ([0, 2, np.True_], StepType.LAST, 0.0),
        ((0, 2, 1), StepType.LAST, 0.0),
        ((0, 2, np.array(False)), StepType.MID, 1.0),
        ((0, 2, True, {}), StepType.LAST, 0.0),
        ((0, 2, True, None), StepType.LAST, 0.0),
        ((0, 2, True, {"TimeLimit.truncated": True}), StepType.LAST, 1.0),
        ((0, 2, False, {"TimeLimit.truncated": False}), StepType.MID, 1.0),
        ((0, 2, False, True), StepType.LAST, 1.0),
        ((0, 2, False, False, {}), StepType.MID, 1.0),
        ((0, 2, True, False, {}), StepType.LAST, 0.0),
        ((0, 2, False, True, {}), StepType.LAST, 1.0),
        ((0, 2, True, True, {}), StepType.LAST, 0.0),
        (Result(0, 2), StepType.MID, 1.0),
        (Result(0, 2, truncated=True), StepType.LAST, 1.0),
        (termination(np.array(0), 2.0), StepType.LAST, 0.0),
        (truncation(np.array(0), 2.0, 0.5), StepType.LAST, 0.5),
        (dm_env.transition(2.0, 0, 0.9), StepType.MID, np.float32(0.9)),
        (dm_env.termination(2.0, 0), StepType.LAST, 0.0),
        ((dm_env.truncation(2.0, 0),), StepType.LAST, 1.0),
        (types.SimpleNamespace(**dm_env.truncation(2.0, 0)._asdict()), 2, 1.0),
    ],
    ids=str,
)
def test_every_form_of_step_result_is_accepted(later, step_type, discount):
    time_step, _ = stepped(later)
    assert (int(step_type), 2.0, np.float32, discount, np.float32) == (
        int(time_step.step_type),
        time_step.reward,
        time_step.reward.dtype,
        time_step.discount,
        time_step.discount.dtype,
    )


def test_terminated_and_truncated_together_are_both_kept():
    _, info = stepped(Result(0, 0.0, True, True, {"lives": 0}))
    assert {"terminated": True, "truncated": True, "lives": 0} == info


def test_step_returns_declares_the_order_of_the_result():
    time_step, info = stepped(
        (1.5, True, {"a": 1}, "secret", 7),
        step_returns="reward done info _ observation",
    )

    assert (7, 1.5, True, 1) == (
        time_step.observation,
        time_step.reward,
        bool(time_step.is_last()),
        info["a"],
    )


def test_a_missing_final_observation_repeats_the_last_one():
    env = Fixed(first=[1, 2], later=(None, 1.0, True))
    first = env.reset().observation
    first[:] = 7
    last = env.step(0).observation
    assert [1, 2] == last.tolist()
    assert not np.shares_memory(first, last)


def test_after_set_state_a_missing_observation_repeats_the_restored_one():
    env = Fixed(first=[1, 2])
    env.reset()
    state = env.get_state()
    other = Fixed(first=[3, 4], later=(None, 1.0, True))
    other.reset()
    other.set_state(state._replace(environment=other.get_state().environment))
    assert [1, 2] == other.step(0).observation.tolist()


def test_the_adapters_discount_applies_until_a_termination():
    going_on, _ = stepped((0, 0.0, False), discount=0.9)
    over, _ = stepped((0, 0.0, True), discount=0.9)
    assert (np.float32(0.9), 0.0) == (going_on.discount, over.discount)


@pytest.mark.parametrize("reward", [fractions.Fraction(1, 2), np.array([0.5]), [0.5]])
def test_rewards_may_be_numbers_of_any_type(reward):
    time_step, _ = stepped((0, reward, False))
    assert (np.float32, 0.5) == (time_step.reward.dtype, time_step.reward)


def test_rewards_with_several_parts_can_be_declared():
    class Parts(Fixed):
        reward_spec = BoundedArraySpec((2,), np.float64, -1.0, 1.0)
        later = (0, [0.5, -0.5], False)

    env = Parts()
    first = env.reset()

    assert ([0.0, 0.0], [0.5, -0.5]) == (
        first.reward.tolist(),
        env.step(0).reward.tolist(),
    )


STEP_FORMS = """
  expected   (observation, reward, done)
             (observation, reward, done, info)
             (observation, reward, terminated, truncated)
             (observation, reward, terminated, truncated, info)
             Result(observation, reward, terminated=..., truncated=..., info=...)
             a time step
"""
DECLARE = (
    "If the parts come in another order, declare it in the class: step_returns = "
    '"reward, observation, done".'
)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (
            None,
            f"Fixed.step() returned None.\n{STEP_FORMS}\n"
            "Did a return statement get lost?",
        ),
        (
            (0, 1.0),
            f"Fixed.step() returned a tuple of 2 elements.\n{STEP_FORMS}\n{DECLARE}",
        ),
        (
            (0, 1.0, True, 7),
            f"Fixed.step() returned a tuple of 4 elements.\n{STEP_FORMS}\n{DECLARE}",
        ),
        (
            (0, 1.0, 0.5),
            "Fixed.step() returned 0.5 of type float for done, which must be True or "
            f"False.\n\n{DECLARE}",
        ),
        (
            (0, 1.0, True, False, 3),
            "Fixed.step() returned 3 of type int for info, which must be a dictionary."
            f"\n\n{DECLARE}",
        ),
        (
            restart(np.array(0)),
            "Fixed.step() returned a FIRST time step. The step that ends an episode "
            "returns a LAST, and envkit calls reset() for the next episode.",
        ),
        (
            termination(np.zeros(3), np.ones(3, np.float32)),
            "Fixed.step() returned a time step of a batch of 3; an Adapter is one "
            "environment. Return the time step of one row.",
        ),
    ],
    ids=["None", "two", "four", "float", "no info", "FIRST", "batch"],
)
def test_unreadable_results_are_refused(message_of, later, expected):
    assert expected == message_of(SpecError, lambda: stepped(later))


# What reset returns


@pytest.mark.parametrize(
    ("first", "info"),
    [
        (7, None),
        ((7, {"k": 1}), {"k": 1}),
        (restart(np.array(7)), None),
        (dm_env.restart(7), None),
        ((dm_env.restart(7),), None),
    ],
    ids=["observation", "with info", "time step", "dm_env", "PySC2"],
)
def test_every_form_of_reset_result_is_accepted(first, info):
    env = Fixed(first=first)
    assert repr(restart(np.array(7))) == repr(env.reset())
    assert (info or {}) == (env.get_info() or {})


def test_reset_returns_declares_an_observation_that_resembles_a_pair():
    spec, value = seen((7, {"lives": 3}), reset_returns="observation")
    assert (ArraySpec((), np.int64), {"lives": 3}) == (spec[0], value[1])


# Inference


class Point(NamedTuple):
    x: float
    y: float


@pytest.mark.parametrize(
    ("first", "spec"),
    [
        (True, ArraySpec((), np.bool_)),
        (3, ArraySpec((), np.int64)),
        (0.5, ArraySpec((), np.float64)),
        (np.float32(0.5), ArraySpec((), np.float32)),
        (np.zeros((2, 3), np.uint8), ArraySpec((2, 3), np.uint8)),
        ([1, 2, 3], ArraySpec((3,), np.int64)),
        ((1, 2.5), ArraySpec((2,), np.float64)),
        ([[1], [2]], ArraySpec((2, 1), np.int64)),
        ("hello", TextSpec((), "<U256")),
        (["a", "b"], [TextSpec((), "<U256")] * 2),
        ({"a": 1, "b": [0.5]}, {"a": ArraySpec((), int), "b": ArraySpec((1,), float)}),
        ([np.zeros(2), "x"], [ArraySpec((2,), float), TextSpec((), "<U256")]),
        (Point(1.0, 2), Point(ArraySpec((), float), ArraySpec((), int))),
        (enum.IntEnum("Way", "UP DOWN").DOWN, ArraySpec((), np.int64)),
    ],
    ids=str,
)
def test_specs_are_inferred_from_the_first_observation(first, spec):
    inferred, value = seen(first)
    assert spec == inferred
    assert type(spec) is type(value) or isinstance(value, np.ndarray)
    later, _ = stepped((first, 0, False), first=first)
    for observation in (value, later.observation):
        assert check_arrays_nest(observation, spec)


def test_floats_sets_the_dtype_of_all_floats():
    spec, value = seen({"a": 0.5, "b": np.zeros(2), "c": 1}, floats=np.float32)
    assert ["float32", "float32", "int64"] == [spec[k].dtype.name for k in "abc"]
    assert ["float32", "float32", "int64"] == [value[k].dtype.name for k in "abc"]


def test_text_length_makes_room_for_longer_texts():
    spec, value = seen("x" * 300, text_length=10)
    assert (300, "x" * 300) == (spec.max_length, str(value))


def test_max_lengths_accepts_the_path_of_a_list():
    first = {"red": {"path": [1]}, "blue": {"path": [1, 2]}}
    spec, _ = seen(first, max_lengths={"path": 5, "['red']['path']": 3})
    assert [(5,), (3,)] == [spec[k]["path"]["values"].shape for k in ("blue", "red")]


def test_lists_of_varying_length_are_padded():
    first = {"enemies": [{"x": 1, "name": "a"}], "me": 0}
    spec, _ = seen(first, max_lengths={"enemies": 3})
    later = {"enemies": [{"x": 1, "name": "a"}, {"x": 5, "name": "b"}], "me": 0}
    time_step, _ = stepped((later, 0.0, False), first=first, max_lengths={"enemies": 3})
    enemies = time_step.observation["enemies"]

    assert BoundedArraySpec((), np.int64, 0, 3) == spec["enemies"]["length"]
    assert ArraySpec((3,), np.int64) == spec["enemies"]["values"]["x"]
    assert (2, [1, 5, 0], ["a", "b", ""]) == (
        enemies["length"],
        enemies["values"]["x"].tolist(),
        enemies["values"]["name"].tolist(),
    )
    whole, _ = stepped(([[1, 2], [3, 4]], 0, False), first=[[1, 2]], max_lengths=4)
    assert [[1, 2], [3, 4], [0, 0], [0, 0]] == whole.observation["values"].tolist()


class Growing(Adapter):
    """What it returns shows its true nature later."""

    num_actions = 1

    def reset(self):
        self.count = 0
        return {"speed": 0, "path": []}

    def step(self, action):
        self.count += 1
        path = [(n, n) for n in range(self.count)]
        return {"speed": self.count / 2, "path": path}, 0.0, self.count == 4


@pytest.mark.parametrize(
    ("first", "lengths"),
    [
        ([], (2, ArraySpec((3,), np.float32))),
        (np.zeros((0, 3), np.float32), 2),
    ],
    ids=["an empty list with a spec", "an empty array"],
)
def test_an_empty_list_is_padded_if_its_elements_are_described(first, lengths):
    spec, observation = seen({"seen": first}, max_lengths={"seen": lengths})
    assert ArraySpec((2, 3), np.float32) == spec["seen"]["values"]
    assert 0 == observation["seen"]["length"]


def test_a_probe_widens_what_the_first_observation_shows():
    env = Growing(probe_steps=3, max_lengths={"path": 4})
    assert ArraySpec((), np.float64) == env.observation_spec()["speed"]
    assert ArraySpec((4, 2), np.int64) == env.observation_spec()["path"]["values"]
    check_environment(lambda: Growing(probe_steps=9, max_lengths={"path": 4}), steps=20)


def test_a_probe_plays_legal_actions_in_its_own_instance():
    made = []

    class Probed(WalkAdapter):
        def start(self):
            made.append(super().start())
            return made[-1]

        def step(self, action):
            assert self.env_instance.place or self.actions[action] != "stay"
            return super().step(action)

    env = Probed(probe_steps=30)
    env.observation_spec()

    assert ([0, 1], 0) == ([walk.closed for walk in made], made[0].steps)


REMEDY = (
    "Declare observation_spec() in the class, with ObjectSpec() for "
    "values that are not arrays."
)


@pytest.mark.parametrize(
    ("first", "place", "expected", "got", "remedy"),
    [
        (
            {"a": None},
            " at observation['a']",
            "numbers, strings, arrays; dictionaries, lists and tuples of them",
            "None",
            "Give it a value of one shape at all times.",
        ),
        (
            [1, object()],
            " at observation[1]",
            "numbers, strings, arrays; dictionaries, lists and tuples of them",
            "an object object",
            REMEDY,
        ),
        (
            {"path": [[1], [2, 3]]},
            " at observation['path']",
            "arrays of one shape",
            "a list whose rows differ in length",
            "If the length varies, max_lengths = {'path': 10} in the class makes an "
            f"array of at most 10 elements, and their number. {REMEDY}",
        ),
    ],
    ids=["None", "object", "ragged"],
)
def test_an_observation_that_cannot_be_inferred_gets_a_remedy(
    message_of, first, place, expected, got, remedy
):
    message = message_of(SpecError, Fixed(first=first).observation_spec)
    assert message == (
        f"Fixed returns observations whose spec cannot be inferred{place}.\n\n"
        f"  expected   {expected}\n"
        f"  got        {got}\n\n"
        f"{remedy}"
    )


@dataclasses.dataclass
class Position:
    x: int = 0


class Turning(Adapter):
    """Returns one thing at first, and another one then."""

    num_actions = 1
    probe_steps = 1
    max_lengths = None
    seen = (0, 0)

    def reset(self):
        return self.seen[0]

    def step(self, action):
        return self.seen[1], 0.0, False


KNOWN = "numbers, strings, arrays; dictionaries, lists and tuples of them"


@pytest.mark.parametrize(
    ("seen", "place", "expected", "got", "remedy"),
    [
        (
            ({"a": 0}, {"b": 0}),
            "",
            "dictionaries with the same keys: a",
            "once also ['b']",
            "Give each key a value at all times.",
        ),
        (
            ({"a": 0}, 7),
            "",
            "dictionaries with the same keys: a",
            "once also 7 of type int",
            "Give each key a value at all times.",
        ),
        (
            (["a"], ["a", "b"]),
            "",
            "arrays of one shape",
            "lists of 1, 2 elements",
            "If the length varies, max_lengths = 10 in the class makes an array of at "
            f"most 10 elements, and their number. {REMEDY}",
        ),
        (
            ({"p": [1]}, {"p": [1, 2]}),
            " at observation['p']",
            "arrays of one shape",
            "arrays of the shapes (1,), (2,)",
            "If the length varies, max_lengths = {'p': 10} in the class makes an "
            f"array of at most 10 elements, and their number. {REMEDY}",
        ),
        (("a", 1), "", "values of one kind", "text and numbers", REMEDY),
        (
            (Position(), Position()),
            "",
            KNOWN,
            "a Position object",
            f"Return dataclasses.asdict(...) of it. {REMEDY}",
        ),
    ],
    ids=["keys", "no keys", "lengths", "shapes", "kinds", "dataclass"],
)
def test_differing_observations_in_a_probe_get_a_remedy(
    message_of, seen, place, expected, got, remedy
):
    message = message_of(SpecError, Turning(seen=seen).observation_spec)
    assert message == (
        f"Turning returns observations whose spec cannot be inferred{place}.\n\n"
        f"  expected   {expected}\n"
        f"  got        {got}\n\n"
        f"{remedy}"
    )


# Declared specs


def test_observations_are_checked_against_declared_specs(message_of):
    class Declared(Fixed):
        observation_spec = BoundedArraySpec((2,), np.float32, 0.0, 1.0, name="pair")
        first = (0.0, 1.0)
        later = ([0.5, 2.0], 0.0, False)

    env = Declared()
    assert np.float32 == env.reset().observation.dtype
    assert message_of(SpecError, lambda: env.step(0)) == (
        "Declared returned an observation that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='pair')\n"
        "  got        array of shape (2,), dtype float32, values 0.5 … 2.0\n\n"
        "1 of 2 elements is above the maximum 1.0: 2.0 at index (1,)."
    )
    unchecked = Declared(checked=False)
    unchecked.reset()
    assert [0.5, 2.0] == unchecked.step(0).observation.tolist()


def test_objects_can_be_declared():
    board = {"e4", "d4"}

    class Board(Fixed):
        def observation_spec(self):
            return {"board": ObjectSpec(), "turn": ArraySpec((), np.int64)}

    observation = Board(first={"board": board, "turn": 0}).reset().observation

    assert (board, False) == (
        observation["board"][()],
        observation["board"][()] is board,
    )


def test_objects_are_checked_by_their_kind(message_of):
    class Words:
        def contains(self, value):
            return isinstance(value, str)

    class Spoken(Fixed):
        observation_spec = ObjectSpec(kind=Words())

    env = Spoken(first=ObjectSpec.wrap("hello"))

    assert "hello" == env.reset().observation[()]
    assert message_of(SpecError, Spoken(first=3).reset).startswith(
        "Spoken returned an observation that does not fit its spec.\n\n"
    )


def test_declared_specs_may_depend_on_the_library():
    class Asking(WalkAdapter):
        def observation_spec(self):
            edge = self.env_instance.edge
            return BoundedArraySpec((2,), np.float64, -edge, 9.0)

    assert -3.0 == Asking().observation_spec().minimum


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"observation_spec": {"a": None}},
            "observation_spec is None at ['a'], not an ArraySpec. Did a return "
            "statement get lost?",
        ),
        (
            {"action_spec": gymnasium.spaces.Discrete(3)},
            "action_spec is Discrete(3), not an ArraySpec. "
            "envkit.adapters.spec_from_gym_space(space) makes one of a space.",
        ),
        ({"reward_spec": "float32"}, "reward_spec is 'float32', not an ArraySpec."),
    ],
)
def test_declared_specs_must_be_specs(message_of, declared, message):
    env = type("Declaring", (Fixed,), declared)()
    assert f"Declaring.{message}" == message_of(TypeError, env.reset)


@pytest.mark.parametrize("kind", [property, classmethod])
def test_specs_may_be_properties_and_class_methods(kind):
    class Asking(WalkAdapter):
        @kind
        def observation_spec(asked):  # an instance or a class
            return ArraySpec((2,), np.float64, asked.__doc__)

        __doc__ = "walk"

    assert ArraySpec((2,), np.float64, "walk") == Asking().observation_spec()


# Actions


def test_actions_lists_named_actions():
    env = WalkAdapter()
    assert BoundedArraySpec((), np.int64, 0, 2) == env.action_spec()
    assert ("left", "right", "stay") == env.action_names


@pytest.mark.parametrize(
    ("setting", "value", "names"),
    [
        ("num_actions", 4, ("0", "1", "2", "3")),
        ("actions", ["up", "down"], ("up", "down")),
        ("actions", list(enum.Enum("Way", "UP DOWN")), ("UP", "DOWN")),
    ],
    ids=["number", "names", "enumeration"],
)
def test_start_may_set_the_actions(setting, value, names):
    class Knowing(Fixed):
        num_actions = None

        def start(self):
            setattr(self, setting, value)

    env = Knowing()
    assert BoundedArraySpec((), np.int64, 0, len(names) - 1) == env.action_spec()
    assert names == env.action_names


class Taking(Adapter):
    """Remembers what its step was given."""

    num_actions = 3

    def reset(self):
        return 0

    def step(self, action):
        self.taken = action
        return 0, 0.0, False


@pytest.mark.parametrize(
    ("spec", "action", "taken"),
    [
        (None, np.array(2, np.int32), 2),
        (BoundedArraySpec((), np.float32, 0, 1), np.array(0.5, np.float32), 0.5),
        (BoundedArraySpec((2,), np.int64, 0, 1), [0, 1], [0, 1]),
        ({"move": ArraySpec((), np.int64)}, {"move": 3}, {"move": 3}),
        (ObjectSpec(), ObjectSpec.wrap("e4"), "e4"),
        (ObjectSpec(), "e4", "e4"),
    ],
    ids=str,
)
def test_step_gets_plain_numbers(spec, action, taken):
    env = Taking()
    if spec is not None:
        env = type("Declared", (Taking,), {"action_spec": spec})()
    env.reset()
    env.step(action)
    got = env.taken
    assert taken == (got.tolist() if isinstance(got, np.ndarray) else got)
    assert type(taken) is type(got) or isinstance(got, np.ndarray)


@pytest.mark.parametrize(
    ("attributes", "error", "expected"),
    [
        (
            {"num_actions": None},
            TypeError,
            "Odd does not declare its actions. Declare a list of them, actions "
            "= [...], or their number, num_actions = 4, or the specs of an "
            "action, action_spec = BoundedArraySpec(...).",
        ),
        (
            {"num_actions": 0},
            ValueError,
            "Odd has no actions; it needs at least one.",
        ),
        (
            {"num_actions": 2.5},
            TypeError,
            "Odd.num_actions must be an integer, got 2.5 of type float.",
        ),
        (
            {"actions": "up"},
            TypeError,
            "Odd.actions must be a list of the possible actions, got the string 'up'.",
        ),
        (
            {"actions": ["up"], "num_actions": 2},
            ValueError,
            "Odd has 1 actions, but num_actions is 2. One of the two is enough.",
        ),
    ],
    ids=["none", "zero", "float", "string", "two answers"],
)
def test_invalid_declarations_of_actions_are_refused(
    message_of, attributes, error, expected
):
    env = type("Odd", (Taking,), attributes)()
    assert expected == message_of(error, env.action_spec)


# Legal actions


class Ruled(Adapter):
    actions = ("up", "down", "left")
    legal = ()

    def reset(self):
        return 0

    def step(self, action):
        return 0, 0.0, True

    def legal_actions(self, observation):
        return self.legal


@pytest.mark.parametrize(
    "legal",
    [
        [True, False, True],
        np.array([1, 0, 1], np.int8),
        [1, 0, 1],
        [0, 2],
        {0, 2},
        ("up", "left"),
        {"up", "left"},
        iter(["up", 2]),
    ],
    ids=["mask", "bytes", "ones", "numbers", "set", "names", "set of names", "mixed"],
)
def test_legal_actions_may_have_any_form(legal):
    env = Ruled(legal=legal)
    env.reset()
    assert [True, False, True] == env.get_info()["legal_actions"].tolist()


def test_the_mask_is_a_declared_info():
    make = functools.partial(Ruled, legal=["up"])
    with BatchedPyEnvironment([make(), make()]) as env:
        env.reset()
        spec, info = env.info_spec(), env.get_info()
    with ParallelPyEnvironment([make] * 2, backend="inline") as pool:
        pool.reset()
        declared = pool.declared_info()

    assert {"legal_actions": ArraySpec((3,), np.bool_)} == spec
    assert np.array_equal(info["legal_actions"], declared["legal_actions"])
    check_environment(make, steps=20)


def test_without_legal_actions_no_info_is_declared():
    class Free(Ruled):
        legal_actions = None

    assert {} == Free().info_spec()


def test_at_the_end_the_observed_mask_allows_every_action():
    class Ending(Ruled):
        later = (0, 0.0, True)

        def step(self, action):
            return self.later

    env = Ending(legal=["up"], observe_legal_actions=True)
    assert ["observation", "legal_actions"] == list(env.observation_spec())
    assert [True, False, False] == env.reset().observation["legal_actions"].tolist()
    assert [True] * 3 == env.step(0).observation["legal_actions"].tolist()
    # The mask is not a part of what is repeated.
    env.later = (None, 1.0, True)
    env.reset()
    assert 0 == env.step(0).observation["observation"]


@pytest.mark.parametrize(
    ("legal", "got", "why"),
    [
        ([True], "a list of 1 element", "A mask has one boolean for each action."),
        ([0, 3], "a list of 2 elements", "There is no action 3."),
        (
            ["jump"],
            "the string 'jump'",
            "It is neither in the menu nor an index into it.",
        ),
        ("up", "the string 'up'", "It is not a collection of actions."),
    ],
    ids=str,
)
def test_invalid_legal_actions_are_refused(message_of, legal, got, why):
    assert message_of(SpecError, Ruled(legal=legal).reset) == (
        f"Ruled.legal_actions() returned {got}.\n\n"
        "  expected   3 booleans, or places from 0 to 2, or actions of the menu\n\n"
        f"{why}"
    )


def test_legal_actions_work_with_a_declared_action_spec():
    class Declared(Ruled):
        actions = None
        action_spec = BoundedArraySpec((), np.int32, 0, 2)

    env = Declared(legal=[0, 2])
    env.reset()

    assert [True, False, True] == env.get_info()["legal_actions"].tolist()


# Seeds, pictures, state


class Seeded(Fixed):
    def reset(self, seed=None):
        return -1 if seed is None else seed


@pytest.mark.parametrize("seed", [7, np.uint8(7), np.array(7), [7], np.array([7])])
def test_reset_may_take_the_seed(seed):
    env = Seeded()
    env.observation_spec()
    env.seed(seed)
    assert (7, -1) == (env.reset().observation, env.reset().observation)
    env.seed(None)
    assert 0 <= env.reset().observation


def test_render_may_take_a_mode():
    class Drawing(Fixed):
        def render(self, mode):
            return mode

    assert "ansi" == Drawing().render("ansi")


class Keeping(WalkAdapter):
    """Saves its state by itself: the library does not pickle."""

    def start(self):
        walk = super().start()
        walk.window = threading.Lock()
        return walk

    def get_state(self):
        walk = self.env_instance
        return walk.place, walk.steps, walk.rng.getstate()

    def set_state(self, state):
        walk = self.env_instance
        walk.place, walk.steps, rng = state
        walk.rng.setstate(rng)


class Offering(WalkAdapter):
    """The library saves its state by itself."""

    def start(self):
        return OfferingWalk(self.edge)


class OfferingWalk(Walk):
    def __init__(self, edge):
        super().__init__(edge)
        self.window = threading.Lock()

    def clone_state(self):
        return self.place, self.steps, self.rng.getstate()

    def restore_state(self, state):
        self.place, self.steps, rng = state
        self.rng.setstate(rng)


@pytest.mark.parametrize("make_env", [Keeping, Offering])
def test_the_author_or_the_library_may_save_the_state(make_env):
    check_environment(make_env, steps=60, require=["state"])


def test_an_unpicklable_instance_has_no_state(message_of):
    class Windowed(WalkAdapter):
        def start(self):
            walk = super().start()
            walk.window = threading.Lock()
            return walk

    env = Windowed()
    env.reset()
    message = message_of(NotImplementedError, env.get_state)

    assert message.startswith(
        "Windowed cannot save its state: something that it holds does not pickle: "
    )
    assert message.endswith(
        "If the library can save states, write get_state() and set_state(state), "
        "which call it."
    )


# Travelling


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_a_started_adapter_pickles_with_its_state(copied):
    env = WalkAdapter(edge=5)
    env.reset()
    env.step(1)
    other = copied(env)
    assert env.env_instance is not other.env_instance
    assert [env.step(1).observation.tolist() for _ in range(6)] == [
        other.step(1).observation.tolist() for _ in range(6)
    ]


def test_an_adapter_that_has_not_started_pickles_without_an_instance():
    other = pickle.loads(pickle.dumps(WalkAdapter(edge=5)))
    assert (5, None) == (other.edge, other.env_instance)


def test_functions_in_the_adapter_are_not_part_of_the_state():
    class Told(WalkAdapter):
        def __init__(self, choose):
            self.choose = choose

    env = Told(lambda: 1)
    env.reset()
    env.set_state(env.get_state())

    assert 1 == env.choose()


def test_make_accepts_the_import_path_of_an_adapter():
    target = "tests.adapters.adapter_games:WalkAdapter"
    with make(target, num_envs=2, backend="inline", limit=1) as env:
        env.reset()
        assert [2, 2] == env.step(np.array([0, 1])).step_type.tolist()


# Whole messages


def entered(env):
    env.reset()
    return env


class Uncounted(Ruled):
    actions = None
    action_spec = BoundedArraySpec((2,), np.int32, 0, 2)


NOT_INFERRED = "Fixed returns observations whose spec cannot be inferred.\n\n"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: Fixed(frist=3),
            TypeError,
            "Fixed has no setting 'frist'. Settings are the attributes of the class: "
            "action_spec, actions, can_be_made_again, checked, discount, "
            "discount_spec, first, floats, fresh_arrays, later, max_lengths, "
            "num_actions, observation_spec, observe_legal_actions, one_per_process, "
            "probe_steps, realtime, reset_returns, reward_spec, step_returns, "
            "text_length.",
        ),
        (
            type("Silent", (Adapter,), {"reset": lambda self: 0}),
            TypeError,
            "Silent has no method step(). An Adapter has start(), step(action) and "
            "reset(), and close() if there is something to free.",
        ),
        (
            type("Half", (Fixed,), {"get_state": lambda self: 1}),
            TypeError,
            "Half has get_state(), but no set_state().",
        ),
        (
            Fixed(discount=2.0).reset,
            ValueError,
            "discount must be between 0 and 1, got 2.0.",
        ),
        (
            lambda: stepped((0, "much", False)),
            SpecError,
            "Fixed returned a reward that does not fit its spec.\n\n"
            "  expected   ArraySpec(shape=(), dtype=float32, name='reward')\n"
            "  got        the string 'much'\n\n"
            "A string is not an array.",
        ),
        (
            lambda: stepped((0, 0, 0), step_returns="observation, gain"),
            ValueError,
            "Fixed.step_returns must name the parts of step()'s result in "
            "order, one of them the observation, got 'observation, gain'. The parts "
            "are observation, reward, done, terminated, truncated, info, and _ for one "
            "that is not used.",
        ),
        (
            lambda: stepped((0, 0), step_returns="reward observation done"),
            SpecError,
            "Fixed.step() returned a tuple of 2 elements.\n\n"
            "  expected   (reward, observation, done), as step_returns says",
        ),
        (
            Fixed(first=None).reset,
            SpecError,
            "Fixed.reset() returned None; it must return the first observation. Did a "
            "return statement get lost?",
        ),
        (
            Fixed(first=3, max_lengths=5).observation_spec,
            SpecError,
            f"{NOT_INFERRED}"
            "  expected   a list, as max_lengths declares\n"
            "  got        3 of type int\n\n"
            f"{REMEDY}",
        ),
        (
            Fixed(first=[], max_lengths=5).observation_spec,
            SpecError,
            f"{NOT_INFERRED}"
            "  expected   an element to infer its spec from\n"
            "  got        an empty list\n\n"
            "Declare the spec of an element beside the length: max_lengths = (5, "
            "ArraySpec((), np.float32)); or let probe_steps = 100 look for one.",
        ),
        (
            lambda: stepped(({"pos": [1, 2, 3]}, 0, False), first={"pos": [1, 2]}),
            SpecError,
            "Fixed returned an observation that does not fit its spec at "
            "observation['pos'].\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=int64, name='pos')\n"
            "  got        array of shape (3,), dtype int64, values 1 … 3\n\n"
            "Axis 0 has size 3 instead of 2.\n\n"
            "Fixed.step() returned it. The specs were inferred from the first reset; "
            "if both are right, declare observation_spec(), or see max_lengths, "
            "floats, text_length and probe_steps in the documentation of Adapter.",
        ),
        (
            lambda: entered(Taking()).step(3),
            SpecError,
            "Taking.step() was given an action that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, "
            "maximum=2, name='action')\n"
            "  got        array of shape (), dtype int64, values 3 … 3\n\n"
            "The value 3 is above the maximum 2.",
        ),
        (
            Uncounted().reset,
            TypeError,
            "Uncounted has actions that cannot be counted, because they are not a "
            "single integer from 0: BoundedArraySpec(shape=(2,), dtype=int32, "
            "minimum=0, maximum=2). Declare their number: num_actions = 4.",
        ),
        (
            Fixed(observe_legal_actions=True).reset,
            TypeError,
            "Fixed.observe_legal_actions is set, but there is no method "
            "legal_actions(observation).",
        ),
        (
            lambda: Fixed().seed(1),
            NotImplementedError,
            "Fixed cannot be seeded: write seed(seed), which is called before reset(), "
            "or let reset() take an argument seed.",
        ),
        (
            Fixed().render,
            NotImplementedError,
            "Fixed cannot render: write render(mode), which returns a picture.",
        ),
        (
            lambda: WalkAdapter().render("ansi"),
            ValueError,
            "WalkAdapter renders 'rgb_array' only, not 'ansi'.",
        ),
        (
            lambda: entered(WalkAdapter()).set_state(entered(Fixed()).get_state()),
            ValueError,
            "WalkAdapter was given the state of another adapter: Fixed.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (
            lambda: stepped((3, 0, False), first=[1], max_lengths=2),
            "Fixed returned 3 of type int at observation, where it returned a list "
            "before.",
        ),
        (
            lambda: stepped(([1, 2, 3], 0, False), first=[1], max_lengths=2),
            "Fixed returned a list of 3 elements at observation, where there is room "
            "for 2. Make room with max_lengths = 4.\n\n",
        ),
        (
            lambda: stepped(((0, {"lives": 3}), 0.0, False), first=(0, {"lives": 3})),
            " If an observation has two parts, and reset() returns no info, declare "
            'reset_returns = "observation".',
        ),
        (
            Ruled(legal=[0, 1], actions=["up", "down"]).reset,
            "With two actions, 0 and 1 may be a mask or the indices of both: return "
            "booleans for a mask, or a set for indices.",
        ),
    ],
    ids=["a number", "a long list", "no info", "two numbers"],
)
def test_common_mistakes_get_a_hint(call, part, message_of):
    assert part in message_of(SpecError, call)
