"""Measuring where an environment's time goes."""

from __future__ import annotations

import cProfile
import inspect
import pstats
import warnings

import numpy as np
import pytest

from envkit import BatchedPyEnvironment
from envkit.envs import CartPole
from envkit.testing import CountingEnv, CrashingEnv
from envkit.wrappers.profiling import PerformanceProfiler


def functions(profile):
    """Returns the names of the functions that a profile has seen."""
    return {name for _, _, name in pstats.Stats(profile).stats}


def calls_of(name, profile):
    """Returns how often a method of `CountingEnv` was called."""
    stats = pstats.Stats(profile).stats
    return sum(
        calls[1]
        for (path, _, function), calls in stats.items()
        if function == name and path.endswith("envs.py")
    )


def profiled(env, process_steps=2):
    profiles = []
    return PerformanceProfiler(env, profiles.append, process_steps), profiles


def marker():
    """Stands for anything that another profiler is to see."""


def sees_others(profile):
    """Says whether a profiler can start and is not in the way of anybody."""
    with profile:
        marker()
    return "marker" in functions(profile)


def test_resets_are_measured():
    env, _ = profiled(CountingEnv())
    env.reset()
    assert 1 == calls_of("_reset", env._profile)


def test_the_function_gets_a_profile_every_few_steps():
    env, profiles = profiled(CountingEnv())
    env.reset()
    handed_over = []
    for _ in range(5):
        env.step(0)
        handed_over.append(len(profiles))
    assert [0, 1, 1, 2, 2] == handed_over


def test_every_profile_is_a_new_one():
    env, profiles = profiled(CountingEnv())
    env.reset()
    for _ in range(4):
        env.step(0)
    first, second = profiles
    assert {cProfile.Profile} == {type(first), type(second)}
    assert first is not second
    assert [2, 2] == [calls_of("_step", profile) for profile in profiles]


def test_a_profile_contains_the_reset_before_its_steps():
    env, profiles = profiled(CountingEnv())
    env.reset()
    for _ in range(2):
        env.step(0)
    assert 1 == calls_of("_reset", profiles[0])


def test_resets_do_not_count_as_steps():
    env, profiles = profiled(CountingEnv(), process_steps=1)
    env.reset()
    env.reset()
    assert [] == profiles


def test_a_step_that_begins_an_episode_counts_as_a_step():
    env, profiles = profiled(CountingEnv(steps_per_episode=1))
    env.reset()
    env.step(0)
    env.step(0)
    assert 1 == len(profiles)


def test_only_the_environment_is_measured():
    env, profiles = profiled(CountingEnv(), process_steps=1)
    env.reset()
    marker()
    env.step(0)
    assert not {"marker", "_measured", "_counted"} & functions(profiles[0])


def test_a_first_step_after_an_explicit_reset_is_a_step():
    """TF-Agents' profiler resets once more there."""
    env, _ = profiled(CountingEnv())
    env.reset()
    assert 1 == env.step(0).observation


def test_a_step_of_a_batch_is_one_step():
    batch = BatchedPyEnvironment([CountingEnv(1), CountingEnv(3)], False)
    env, profiles = profiled(batch)
    env.reset()
    for _ in range(4):
        env.step(np.zeros(2, np.int32))
    assert 2 == len(profiles)


def test_steps_and_resets_of_some_rows_are_measured():
    batch = BatchedPyEnvironment([CountingEnv(), CountingEnv()], False)
    env, profiles = profiled(batch, process_steps=1)
    env.reset()
    env.reset(np.array([True, False]))
    env.step(np.zeros(2, np.int32), np.array([False, True]))
    assert (3, 1) == (calls_of("_reset", profiles[0]), calls_of("_step", profiles[0]))


def test_a_step_that_raises_leaves_no_profiler_behind():
    env, _ = profiled(CrashingEnv(crash_at=1))
    env.reset()
    with pytest.raises(RuntimeError):
        env.step(0)
    assert sees_others(cProfile.Profile())


def test_an_error_of_the_function_does_not_lose_the_profile():
    def refuse(profile):
        raise RuntimeError("No.")

    env = PerformanceProfiler(CountingEnv(), refuse, 1)
    env.reset()
    before = env._profile
    with pytest.raises(RuntimeError, match=r"No\."):
        env.step(0)
    assert env._profile is not before


def test_no_profiler_is_left_running():
    env, _ = profiled(CountingEnv())
    env.reset()
    env.step(0)
    assert sees_others(cProfile.Profile())


def test_another_profiler_is_not_disturbed():
    env, _ = profiled(CountingEnv())
    other = cProfile.Profile()
    with other:
        with pytest.warns(RuntimeWarning):
            env.reset()
        marker()
    assert {"marker", "_observe"} <= functions(other)


def test_steps_that_are_not_measured_do_not_count():
    env, profiles = profiled(CountingEnv(), process_steps=1)
    env.reset()
    with cProfile.Profile(), pytest.warns(RuntimeWarning):
        time_step = env.step(0)
    assert (1, []) == (time_step.observation, profiles)


def test_profiling_resumes_when_another_profiler_has_ended():
    env, profiles = profiled(CountingEnv(), process_steps=1)
    with cProfile.Profile(), pytest.warns(RuntimeWarning):
        env.reset()
    env.step(0)
    assert [1] == [calls_of("_step", profile) for profile in profiles]


def test_blocked_profiling_warns_once():
    env, _ = profiled(CountingEnv())
    with cProfile.Profile(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.reset()
        env.step(0)
    assert [
        "PerformanceProfiler(CountingEnv(), process_steps=2) does not measure while "
        "another profiler is running: Python allows only one at a time. Stop the other "
        "one, or leave out this wrapper."
    ] == [str(warning.message) for warning in caught]


def test_the_outer_of_two_profilers_measures():
    inner, inner_profiles = profiled(CountingEnv(), process_steps=1)
    env, profiles = profiled(inner, process_steps=1)
    with pytest.warns(RuntimeWarning, match="another profiler is running"):
        env.reset()
    env.step(0)
    assert ([1], []) == (
        [calls_of("_step", profile) for profile in profiles],
        inner_profiles,
    )


def test_the_state_does_not_contain_the_profile():
    env, profiles = profiled(CountingEnv(), process_steps=3)
    env.reset()
    state = env.get_state()
    env.step(0)
    env.step(0)
    env.set_state(state)
    env.step(0)
    assert [3] == [calls_of("_step", profile) for profile in profiles]


def test_the_arguments_match_tf_agents():
    parameters = inspect.signature(PerformanceProfiler).parameters
    assert ["env", "process_profile_fn", "process_steps"] == list(parameters)


def test_repr_shows_the_wrapped_environment():
    env, _ = profiled(CartPole(batch_size=2), process_steps=7)
    assert "PerformanceProfiler(CartPole(batch_size=2), process_steps=7)" == repr(env)


@pytest.mark.parametrize("steps", [0, -1, 2.5, None, True])
def test_a_profile_needs_at_least_one_step(steps, message_of):
    assert (
        f"process_steps must be an integer of at least 1, got {steps!r}."
    ) == message_of(
        ValueError, lambda: PerformanceProfiler(CountingEnv(), print, steps)
    )


def test_the_function_must_be_callable(message_of):
    assert (
        "process_profile_fn must be a function of a cProfile.Profile, such as "
        "lambda profile: profile.print_stats(), got the string 'profile.txt'."
    ) == message_of(
        TypeError, lambda: PerformanceProfiler(CountingEnv(), "profile.txt", 1)
    )
