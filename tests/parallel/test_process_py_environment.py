"""`ProcessPyEnvironment`: one environment in a process of its own, as TF-Agents has."""

from __future__ import annotations

import functools
import os
import pickle

import numpy as np
import pytest

from envkit import ProcessPyEnvironment, constructor
from envkit.errors import (
    CallOrderError,
    ClosedError,
    ConstructorError,
    EnvironmentRaised,
    SpecError,
)
from envkit.testing.envs import CountingEnv, CrashingEnv, TracingEnv, check_trace
from tests.parallel import environments, streams

# In this process it is the same, without the time that starting another takes.
inline = functools.partial(ProcessPyEnvironment, backend="inline")


@pytest.fixture(scope="module")
def talkative():
    """An environment to ask things."""
    maker = functools.partial(environments.Talkative, 7)
    with ProcessPyEnvironment(maker, start_method="fork") as env:
        env.reset()
        yield env


def test_nothing_runs_before_start(tmp_path):
    env = ProcessPyEnvironment(
        functools.partial(environments.Marking, str(tmp_path), 0),
        False,
        start_method="fork",
    )
    before = list(tmp_path.iterdir())
    env.start()
    env.wait_start()
    told = (tmp_path / "journal").read_text().split()
    env.close()

    assert [] == before
    assert told[-1] != str(os.getpid())


def test_calls_before_start_say_so(message_of):
    env = ProcessPyEnvironment(CountingEnv)

    for call in (
        env.reset,
        lambda: env.step(0),
        env.observation_spec,
        env.wait_start,
        lambda: env.call("get_info"),
        lambda: env.anything,
    ):
        assert (
            "This ProcessPyEnvironment has not been started. Call start() first."
        ) == message_of(CallOrderError, call)
    env.close()


def test_start_can_be_called_without_waiting_and_twice():
    env = inline(CountingEnv)
    env.start(wait_to_start=False)
    env.wait_start()
    env.start()
    observation = int(env.reset().observation)
    env.close()
    assert 0 == observation


def test_start_raises_the_constructors_error():
    env = inline(functools.partial(CrashingEnv, where="init"))
    with pytest.raises(ConstructorError, match="CrashingEnv was told to raise in init"):
        env.start()
    env.close()


def test_a_process_environment_equals_the_environment_alone(talkative):
    alone = CountingEnv()
    expected = streams.play(alone, [0] * 25)
    actual = streams.play(talkative, [0] * 25)
    assert [] == streams.differences(expected, actual)


def test_specs_match_those_of_the_environment(talkative):
    alone = environments.Talkative()
    assert alone.observation_spec() == talkative.observation_spec()
    assert alone.action_spec() == talkative.action_spec()
    assert alone.reward_spec() == talkative.reward_spec()
    assert alone.discount_spec() == talkative.discount_spec()
    assert alone.time_step_spec() == talkative.time_step_spec()
    assert (False, None) == (talkative.batched, talkative.batch_size)


def test_promises_are_kept_in_order():
    with inline(TracingEnv) as env:
        before = env.reset(blocking=False)()
        promises = [env.step(action, blocking=False) for action in (1, 2, 3)]
        after = [promise() for promise in promises]

    for action, time_step in zip((1, 2, 3), after, strict=True):
        assert "" == check_trace(before, action, time_step)
        before = time_step


def test_call_returns_a_promise(talkative):
    promise = talkative.call("add", 1, 2, factor=3)
    assert 30 == promise() == promise()


def test_call_can_reset_and_step():
    with inline(TracingEnv) as env:
        first = env.call("reset")()
        second = env.call("step", 8)()
    assert "" == check_trace(first, 8, second)


def test_unknown_public_attributes_come_from_the_environment(talkative):
    assert ("green", 7, 7) == (
        talkative.colour,
        talkative.number,
        talkative.access("number"),
    )
    assert os.getpid() != talkative.pid


def test_private_attributes_do_not_come_from_the_environment(message_of, talkative):
    for name in ("_secret", "__array_interface__"):
        with pytest.raises(AttributeError):
            getattr(talkative, name)
    for ask in (talkative.call, talkative.access):
        assert (
            "'_secret' is private to the environment; only public names are forwarded."
        ) == message_of(AttributeError, functools.partial(ask, "_secret"))


def test_a_promise_raises_the_error_and_the_process_survives(talkative):
    talkative.reset()
    talkative.call("plan_complaint", 3)()
    promise = talkative.step(0, blocking=False)
    with pytest.raises(KeyError) as caught:
        promise()
    first = talkative.reset()

    assert isinstance(caught.value, EnvironmentRaised)
    assert "step" == caught.value.command
    assert bool(first.is_first())


def test_render_info_and_current_time_step_reach_the_environment(talkative):
    first = talkative.reset()
    assert [] == streams.differences(first, talkative.current_time_step())
    assert (2, 2, 3) == talkative.render().shape
    assert (2, 2, 3) == talkative.render("rgb_array", blocking=False)().shape
    assert "number 7" == talkative.render("ansi")
    assert {"number": 7} == talkative.get_info()


def test_a_state_is_restored(talkative):
    talkative.reset()
    talkative.step(0)
    state = pickle.loads(pickle.dumps(talkative.get_state()))
    expected = [talkative.step(0) for _ in range(15)]
    talkative.set_state(state)
    actual = [talkative.step(0) for _ in range(15)]
    assert [] == streams.differences(expected, actual)


def test_the_given_seed_is_used_unchanged():
    alone = environments.Walk()
    alone.seed(5)
    actions = np.zeros((20, 2), np.float32)
    with inline(environments.Walk) as env:
        result = env.seed(5)
        actual = streams.play(env, actions)

    assert 5 == result
    assert [] == streams.differences(streams.play(alone, actions), actual)


def test_an_action_that_does_not_fit_is_refused():
    with inline(CountingEnv) as env:
        env.reset()
        for action in (2, -1, [0], None, "x", 0.5):
            with pytest.raises(SpecError):
                env.step(action)
        observation = int(env.step(1).observation)
    assert 1 == observation


def test_names_and_options_match_those_of_pools():
    with inline("CartPole", validate="always", autoreset="same_step") as env:
        shape = env.reset().observation.shape
    assert (4,) == shape


def test_an_environment_that_is_a_batch_stays_one():
    with inline(constructor("CartPole", batch_size=3)) as env:
        facts = env.batched, env.batch_size
        env.seed(4)
        first = env.reset()
        second = env.step([0, 1, 0])
        now = env.current_time_step()
    alone = constructor("CartPole", batch_size=3)()
    alone.seed(4)

    assert (True, 3) == facts
    assert [] == streams.differences(alone.reset(), first)
    assert [] == streams.differences(second, now)
    assert [] == streams.differences(alone.step([0, 1, 0]), second)


def test_an_environment_instead_of_a_constructor_is_refused_at_once(message_of):
    message = message_of(TypeError, lambda: ProcessPyEnvironment(CountingEnv()))
    assert message.startswith("env_constructors[0] is a CountingEnv object; ")


def test_calls_after_close_say_so():
    env = inline(environments.Talkative)
    env.start()
    env.reset()
    promise = env.step(0, blocking=False)
    env.close()
    env.close()
    told = streams.messages_of(
        {
            "reset": env.reset,
            "step": lambda: env.step(0),
            "call": lambda: env.call("add"),
            "access": lambda: env.access("number"),
            "attribute": lambda: env.number,
            "render": env.render,
            "seed": lambda: env.seed(1),
            "get_info": env.get_info,
            "get_state": env.get_state,
            "wait_start": env.wait_start,
        }
    )

    assert set(told) == {
        name for name, text in told.items() if text.startswith("ClosedError: ")
    }
    try:
        kept = int(promise().observation)
    except ClosedError:
        kept = 1
    assert 1 == kept
