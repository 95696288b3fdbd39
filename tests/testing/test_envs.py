"""The example environments do what their names say."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    nest,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.testing import (
    CountingEnv,
    CrashingEnv,
    EpisodeCountingEnv,
    ManualClock,
    NestedCountingEnv,
    ScriptedEnv,
    SlowEnv,
)
from envkit.utils import validate_py_environment

counters = pytest.mark.parametrize(
    "env_class",
    [CountingEnv, EpisodeCountingEnv, NestedCountingEnv, CrashingEnv, SlowEnv],
)
SCRIPT = [
    restart(np.zeros(1)),
    transition(np.ones(1), reward=0.5),
    termination(np.full(1, 2.0), reward=1.0),
    restart(np.full(1, 3.0)),
    truncation(np.full(1, 4.0), reward=2.0),
]


def told(call, *args, **kwargs):
    """Returns the kind and the whole message of what a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the caller compares it
        call(*args, **kwargs)
    return type(raised.value), str(raised.value)


def bits(value):
    """Returns all there is to compare in a nest of arrays: dtypes, shapes and bytes."""
    leaves = map(np.asarray, nest.flatten(value))
    return [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves]


def made(env_class, **options):
    """Makes a counter of any kind that neither crashes nor takes time."""
    if env_class is CrashingEnv:
        options["crash_at"] = 0
    if env_class is SlowEnv:
        options["sleep"] = ManualClock().sleep
    return env_class(**options)


# Counters.


def test_a_count_holds_the_episode_and_the_step():
    env = CountingEnv(steps_per_episode=3)

    assert [0, 1, 2, 3, 10, 11, 12, 13, 20] == [
        int(env.step(0).observation) for _ in range(9)
    ]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float32, "f8"])
def test_a_count_has_the_dtype_that_was_asked_for(dtype):
    env = CountingEnv(dtype=dtype)

    assert np.dtype(dtype) == env.reset().observation.dtype
    assert BoundedArraySpec((), dtype) == env.observation_spec()
    assert BoundedArraySpec((), dtype, 0, 1) == env.action_spec()


def test_a_small_dtype_starts_again_when_it_is_full():
    env = CountingEnv(steps_per_episode=1, dtype=np.int8)
    observations = [env.step(0).observation for _ in range(60)]

    assert {np.dtype(np.int8)} == {each.dtype for each in observations}
    assert 130 - 256 == observations[26]


def test_episodes_and_steps_are_counted_apart():
    env = EpisodeCountingEnv(steps_per_episode=2)

    assert [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] == [
        tuple(map(int, env.step(0).observation)) for _ in range(5)
    ]
    assert (BoundedArraySpec((), np.int32),) * 2 == env.observation_spec()


def test_counts_may_be_nested():
    env = NestedCountingEnv(steps_per_episode=1)
    observations = [env.step(0).observation for _ in range(3)]

    assert [
        {"total_steps": 0, "current_steps": 0},
        {"total_steps": 1, "current_steps": 1},
        {"total_steps": 10, "current_steps": 0},
    ] == observations


@pytest.mark.parametrize("nested", [False, True])
def test_an_action_is_nested_where_that_is_asked_for(nested):
    spec = BoundedArraySpec((), np.int32, 0, 1)
    env = NestedCountingEnv(nested_action=nested)

    assert ({"foo": spec, "bar": spec} if nested else spec) == env.action_spec()


@counters
def test_every_counter_keeps_its_specs(env_class):
    validate_py_environment(made(env_class))


@counters
def test_the_end_is_rewarded_and_a_termination(env_class):
    env = made(env_class, steps_per_episode=2)
    steps = [env.step(0) for _ in range(4)]

    assert [0, 1, 2, 0] == [int(step.step_type) for step in steps]
    assert [0.0, 0.0, 1.0, 0.0] == [float(step.reward) for step in steps]
    assert [1.0, 1.0, 0.0, 1.0] == [float(step.discount) for step in steps]


def test_only_a_finished_episode_is_counted():
    env = CountingEnv(steps_per_episode=2)
    env.reset()
    env.step(0)
    in_the_middle = env.reset()
    env.step(0)
    env.step(0)
    at_the_end = env.reset()

    assert (0, 10) == (in_the_middle.observation, at_the_end.observation)


def test_a_picture_brightens_as_the_episode_goes_on():
    env = CountingEnv(steps_per_episode=2)
    env.reset()
    pictures = [env.render()]
    for _ in range(2):
        env.step(0)
        pictures.append(env.render("rgb_array"))

    assert [0, 127, 255] == [int(picture[0, 0, 0]) for picture in pictures]
    assert {((8, 8, 3), np.dtype(np.uint8))} == {
        (picture.shape, picture.dtype) for picture in pictures
    }


@counters
def test_there_is_one_mode_of_rendering(env_class):
    expected = f"Only rgb_array is rendered by {env_class.__name__}, not 'human'."

    assert (NotImplementedError, expected) == told(env_class().render, "human")


def test_counting_is_not_random_and_has_no_more_to_say():
    env = CountingEnv()

    assert env.seed(3) is None
    assert {} == env.get_info()


@counters
@pytest.mark.parametrize("steps", [0, 1, 4, 5])
def test_a_state_brings_back_the_counts(env_class, steps):
    env = made(env_class, steps_per_episode=3)
    for _ in range(steps):
        env.step(0)
    token = pickle.loads(pickle.dumps(env.get_state()))
    future = [bits(env.step(0)) for _ in range(7)]
    env.set_state(token)

    assert future == [bits(env.step(0)) for _ in range(7)]


@pytest.mark.parametrize("steps", [0, -3])
@pytest.mark.parametrize("env_class", [CountingEnv, EpisodeCountingEnv])
def test_an_episode_without_steps_is_refused(env_class, steps):
    expected = f"steps_per_episode is {steps}; an episode has at least one step."

    assert (ValueError, expected) == told(env_class, steps)


# Scripts.


def test_a_script_is_returned_as_it_stands_and_repeats():
    env = ScriptedEnv(SCRIPT)
    steps = [env.step(None) for _ in range(7)]

    assert [bits(step) for step in [*SCRIPT, *SCRIPT[:2]]] == [
        bits(step) for step in steps
    ]


def test_reset_goes_on_to_the_next_beginning():
    env = ScriptedEnv(SCRIPT)
    observations = [float(env.reset().observation[0])]
    env.step(0)
    observations += [float(env.reset().observation[0]) for _ in range(2)]

    assert [0.0, 3.0, 0.0] == observations


def test_a_script_keeps_the_actions_it_was_given():
    env = ScriptedEnv(SCRIPT)
    for action in ("ignored", "left", "right"):
        env.step(action)

    assert ["left", "right"] == env.actions


def test_what_a_caller_does_to_a_time_step_does_not_change_the_script():
    env = ScriptedEnv(SCRIPT)
    env.reset().observation[:] = 99.0
    for _ in SCRIPT:
        env.step(0)

    assert 0.0 == env.current_time_step().observation[0]


def test_a_longer_script_later_does_not_change_an_environment():
    script = list(SCRIPT)
    env = ScriptedEnv(script)
    script.clear()

    assert env.reset().is_first()


def test_specs_are_taken_from_the_script():
    env = ScriptedEnv([restart({"a": np.zeros((2, 3), np.uint8), "b": 5})])

    assert {
        "a": ArraySpec((2, 3), np.uint8),
        "b": ArraySpec((), np.int64),
    } == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 1) == env.action_spec()


def test_specs_may_be_given():
    observation, action = BoundedArraySpec((1,), "f8", 0, 4), ArraySpec((3,), "f4")
    env = ScriptedEnv(SCRIPT, observation, action)

    assert (observation, action) == (env.observation_spec(), env.action_spec())
    validate_py_environment(env, episodes=4)


def test_a_state_brings_back_the_place_in_the_script_and_the_actions():
    env = ScriptedEnv(SCRIPT)
    env.step("a")
    env.step("b")
    token = env.get_state()
    future = [bits(env.step("c")) for _ in range(5)]
    env.set_state(token)

    assert ["b"] == env.actions
    assert future == [bits(env.step("c")) for _ in range(5)]


@pytest.mark.parametrize("script", [[], SCRIPT[1:]], ids=["empty", "no FIRST"])
def test_a_script_that_does_not_begin_is_refused(script):
    expected = "A script has at least one time step, a FIRST to begin with."

    assert (ValueError, expected) == told(ScriptedEnv, script)


# Crashes.


@pytest.mark.parametrize(
    ("where", "call"),
    [
        ("step", lambda env: env.step(0)),
        ("reset", lambda env: env.reset()),
        ("render", lambda env: env.render()),
        ("close", lambda env: env.close()),
    ],
)
def test_a_crash_comes_in_the_call_that_was_named_and_once(where, call):
    env = CrashingEnv(crash_at=2, where=where)
    if where != "reset":
        env.reset()
    call(env)
    expected = f"CrashingEnv was told to raise in {where} 2."

    assert (RuntimeError, expected) == told(call, env)
    call(env)


def test_a_crash_may_come_in_the_constructor():
    expected = "CrashingEnv was told to raise in init 1."

    assert (RuntimeError, expected) == told(CrashingEnv, where="init")


def test_calls_are_counted_over_the_whole_life():
    env = CrashingEnv(crash_at=4, steps_per_episode=1)
    steps = [int(env.step(0).step_type) for _ in range(6)]

    assert [0, 2, 0, 2, 0, 2] == steps
    assert env.step(0).is_first()
    assert (RuntimeError, "CrashingEnv was told to raise in step 4.") == told(
        env.step, 0
    )


@pytest.mark.parametrize(
    ("how", "code"), [("exit", 3), ("SIGKILL", -9), ("SIGSEGV", -11)]
)
def test_a_crash_may_end_the_process(how, code):
    program = (
        "import sys\n"
        "from envkit.testing import CrashingEnv\n"
        f"env = CrashingEnv(how={how!r})\n"
        "env.reset()\n"
        "env.step(0)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True)

    assert code == finished.returncode


def test_a_crash_may_be_a_signal_that_the_process_handles():
    received = []
    before = signal.signal(signal.SIGTERM, lambda *args: received.append(args[0]))
    try:
        env = CrashingEnv(how="SIGTERM", where="reset")

        assert env.reset().is_first()
        assert [signal.SIGTERM] == received
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_exit_runs_no_clean_up(monkeypatch):
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as raised:
        CrashingEnv(how="exit", where="init")

    assert 3 == raised.value.code


@pytest.mark.parametrize("how", ["explode", "", "signal", "SIG_DFL", "NSIG", 9, None])
def test_a_way_to_crash_that_does_not_exist_is_refused(how):
    expected = f"how is {how!r}; it is 'raise', 'exit' or a signal's name."

    assert (ValueError, expected) == told(CrashingEnv, how=how)


@pytest.mark.parametrize("where", ["explode", "", None])
def test_a_place_to_crash_that_does_not_exist_is_refused(where):
    expected = f"where is {where!r}; it is one of init, step, reset, render, close."

    assert (ValueError, expected) == told(CrashingEnv, where=where)


# Slowness.


def test_steps_and_resets_take_their_time():
    clock = ManualClock()
    env = SlowEnv(0.5, 2.0, steps_per_episode=2, sleep=clock.sleep)
    times = []
    for _ in range(4):
        env.step(0)
        times.append(clock.now())

    assert [2.0, 2.5, 3.0, 5.0] == times


def test_a_slow_environment_sleeps_unless_told_how():
    env = SlowEnv(step_time=0.0)
    env.reset()

    assert 1 == env.step(0).observation
