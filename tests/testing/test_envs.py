"""The example environments do what their names say."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    StepType,
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
    TracingEnv,
    check_environment,
    check_trace,
)
from envkit.utils import validate_py_environment
from tests.comparing import bits, told

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
def test_a_count_has_the_requested_dtype(dtype):
    env = CountingEnv(dtype=dtype)
    assert np.dtype(dtype) == env.reset().observation.dtype
    assert BoundedArraySpec((), dtype) == env.observation_spec()
    assert BoundedArraySpec((), dtype, 0, 1) == env.action_spec()


def test_a_count_of_a_small_dtype_wraps_around():
    env = CountingEnv(steps_per_episode=1, dtype=np.int8)
    observations = [env.step(0).observation for _ in range(60)]
    assert {np.dtype(np.int8)} == {each.dtype for each in observations}
    assert 130 - 256 == observations[26]


def test_episodes_and_steps_are_counted_separately():
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
def test_an_action_can_be_nested(nested):
    spec = BoundedArraySpec((), np.int32, 0, 1)
    env = NestedCountingEnv(nested_action=nested)
    assert ({"foo": spec, "bar": spec} if nested else spec) == env.action_spec()


@counters
def test_every_counter_keeps_its_specs(env_class):
    validate_py_environment(made(env_class))


@counters
def test_the_end_is_a_rewarded_termination(env_class):
    env = made(env_class, steps_per_episode=2)
    steps = [env.step(0) for _ in range(4)]
    assert [0, 1, 2, 0] == [int(step.step_type) for step in steps]
    assert [0.0, 0.0, 1.0, 0.0] == [float(step.reward) for step in steps]
    assert [1.0, 1.0, 0.0, 1.0] == [float(step.discount) for step in steps]


def test_only_finished_episodes_are_counted():
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


def test_counting_has_neither_seeds_nor_infos():
    env = CountingEnv()
    assert env.seed(3) is None
    assert {} == env.get_info()


@counters
@pytest.mark.parametrize("steps", [0, 1, 4, 5])
def test_a_state_restores_the_counts(env_class, steps):
    env = made(env_class, steps_per_episode=3)
    for _ in range(steps):
        env.step(0)
    token = pickle.loads(pickle.dumps(env.get_state()))
    future = [bits(env.step(0)) for _ in range(7)]
    env.set_state(token)
    assert future == [bits(env.step(0)) for _ in range(7)]


# Scripts.


def test_a_script_is_returned_unchanged_and_repeats():
    env = ScriptedEnv(SCRIPT)
    steps = [env.step(None) for _ in range(7)]
    assert [bits(step) for step in [*SCRIPT, *SCRIPT[:2]]] == [
        bits(step) for step in steps
    ]


def test_reset_continues_with_the_next_first():
    env = ScriptedEnv(SCRIPT)
    observations = [float(env.reset().observation[0])]
    env.step(0)
    observations += [float(env.reset().observation[0]) for _ in range(2)]
    assert [0.0, 3.0, 0.0] == observations


def test_a_script_records_its_actions():
    env = ScriptedEnv(SCRIPT)
    for action in ("ignored", "left", "right"):
        env.step(action)
    assert ["left", "right"] == env.actions


def test_changing_a_time_step_does_not_change_the_script():
    env = ScriptedEnv(SCRIPT)
    env.reset().observation[:] = 99.0
    for _ in SCRIPT:
        env.step(0)
    assert 0.0 == env.current_time_step().observation[0]


def test_extending_the_script_later_does_not_change_an_environment():
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


def test_specs_can_be_passed():
    observation, action = BoundedArraySpec((1,), "f8", 0, 4), ArraySpec((3,), "f4")
    env = ScriptedEnv(SCRIPT, observation, action)
    assert (observation, action) == (env.observation_spec(), env.action_spec())
    validate_py_environment(env, episodes=4)


def test_a_state_restores_the_place_in_the_script_and_the_actions():
    env = ScriptedEnv(SCRIPT)
    env.step("a")
    env.step("b")
    token = env.get_state()
    future = [bits(env.step("c")) for _ in range(5)]
    env.set_state(token)

    assert ["b"] == env.actions
    assert future == [bits(env.step("c")) for _ in range(5)]


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
def test_a_crash_happens_once_in_the_named_call(where, call):
    env = CrashingEnv(crash_at=2, where=where)
    if where != "reset":
        env.reset()
    call(env)
    expected = f"CrashingEnv was told to raise in {where} 2."
    assert (RuntimeError, expected) == told(call, env)
    call(env)


def test_calls_are_counted_across_episodes():
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


# Slowness.


def test_steps_and_resets_take_the_given_time():
    clock = ManualClock()
    env = SlowEnv(0.5, 2.0, steps_per_episode=2, sleep=clock.sleep)
    times = []
    for _ in range(4):
        env.step(0)
        times.append(clock.now())
    assert [2.0, 2.5, 3.0, 5.0] == times


def test_a_slow_environment_sleeps_by_default():
    env = SlowEnv(step_time=0.0)
    env.reset()
    assert 1 == env.step(0).observation


# Traces.


def traced(env, actions):
    """Plays and checks every answer; an action that is None is a reset."""
    before, found = None, []
    for action in actions:
        now = env.reset() if action is None else env.step(action)
        found.append(check_trace(before, action, now))
        before = now
    return [wrong for wrong in found if wrong]


def with_(time_step, **leaves):
    """Copies a time step with other leaves in its observation."""
    return time_step._replace(
        observation=time_step.observation
        | {key: np.array(value) for key, value in leaves.items()}
    )


def places(env, steps):
    """Returns episode and step of each of some answers."""
    observations = [env.step(0).observation for _ in range(steps)]
    return [(int(each["episode"]), int(each["step"])) for each in observations]


def test_a_tracing_environment_passes_check_environment():
    check_environment(lambda: TracingEnv(3, steps_per_episode=(2, 1, 4)))


@given(
    env=st.builds(
        TracingEnv,
        st.integers(0, 2**40),
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.integers(0, 3),
    ),
    actions=st.lists(st.none() | st.integers(0, 999_999_999), max_size=40),
)
def test_a_correct_stream_passes_the_trace_check(env, actions):
    assert [] == traced(env, actions)


def test_an_observation_shows_the_whole_trace():
    env = TracingEnv(env_id=7, steps_per_episode=2, truncate_every=2)
    env.seed(5)
    env.reset()
    observation = dict(env.step(41).observation)
    pattern = observation.pop("pattern")

    assert {
        "action": 41,
        "env_id": 7,
        "episode": 0,
        "length": 2,
        "seed": 5,
        "step": 1,
        "truncates": False,
    } == observation
    assert ((16,), np.dtype(np.uint32)) == (pattern.shape, pattern.dtype)


def test_every_episode_and_every_step_is_counted():
    env = TracingEnv(steps_per_episode=2)
    assert [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] == places(env, 5)
    env.reset()
    assert [(2, 1), (2, 2), (3, 0)] == places(env, 3)


def test_episode_lengths_cycle_from_the_environments_number():
    env = TracingEnv(env_id=1, steps_per_episode=[1, 2, 3])
    assert [0, 1, 2, 0, 1, 2, 3, 0, 1, 0] == [step for _, step in places(env, 10)]


@pytest.mark.parametrize(("every", "discounts"), [(0, [0, 0, 0]), (2, [0, 1, 0])])
def test_one_episode_of_several_is_truncated(every, discounts):
    env = TracingEnv(steps_per_episode=1, truncate_every=every)
    assert discounts == [env.step(0).discount for _ in range(6)][1::2]


def test_the_reward_encodes_the_action():
    env = TracingEnv()
    env.reset()
    assert [17.5, 1.5, 0.5] == [env.step(each).reward for each in (17, 1, 1000)]


def test_a_seed_takes_effect_at_the_next_reset_and_restarts_the_count():
    env = TracingEnv(steps_per_episode=1)
    env.step(0)
    env.step(0)
    env.step(0)
    env.seed(9)
    shown = [env.step(0).observation for _ in range(3)]

    assert [(-1, 1), (9, 0), (9, 0)] == [
        (int(each["seed"]), int(each["episode"])) for each in shown
    ]


@pytest.mark.parametrize(("seed", "shown"), [(None, -1), ([4], 4), (2**63 + 1, 1)])
def test_every_kind_of_seed_is_accepted(seed, shown):
    env = TracingEnv()
    env.seed(seed)
    assert shown == env.reset().observation["seed"]


def test_a_state_restores_the_whole_trace():
    env = TracingEnv(env_id=2, steps_per_episode=3)
    env.seed(1)
    env.step(0)
    env.step(5)
    env.seed(2)
    other = TracingEnv(env_id=2, steps_per_episode=3)
    other.set_state(pickle.loads(pickle.dumps(env.get_state())))

    assert [bits(env.step(each)) for each in range(6)] == [
        bits(other.step(each)) for each in range(6)
    ]


def test_picture_and_info_identify_the_environment_and_the_step():
    env = TracingEnv(env_id=258)
    env.reset()
    env.step(0)
    assert [2, 0, 1] == env.render()[3, 3].tolist()
    assert {"env_id": 258, "episode": 0, "step": 1} == env.get_info()
    assert 258 == env.env_id


def terminating_env():
    return TracingEnv(env_id=3, steps_per_episode=3, truncate_every=0)


# The answers of an environment to actions that are ten times their index.
ANSWERS = [*map(terminating_env().step, range(0, 60, 10))]


def resets(count):
    """Returns the first time steps of as many episodes of one environment."""
    env = terminating_env()
    return [env.reset() for _ in range(count)]


# The time step before, the action, and the one that came.
WRONG = {
    "twice": (ANSWERS[2], 30, ANSWERS[2]),
    "late": (ANSWERS[2], 30, ANSWERS[1]),
    "lost": (ANSWERS[0], 10, ANSWERS[2]),
    "another action": (ANSWERS[0], 12, ANSWERS[1]),
    "two parts": (
        *(ANSWERS[0], 10),
        with_(ANSWERS[1], pattern=ANSWERS[0].observation["pattern"]),
    ),
    "a reset": (resets(1)[0], 10, resets(2)[1]),
    "two resets": (resets(1)[0], None, resets(3)[2]),
    "a new environment": (ANSWERS[3], 0, resets(1)[0]),
}
FOUND = {
    "twice": """\
env 3, episode 0, step 3: the answer before came again: step is 2 instead of 3, \
step_type is MID instead of LAST, action is 20 instead of 30, reward is 20.5 instead \
of 30.5, discount is 1.0 instead of 0.0.""",
    "late": """\
env 3, episode 0, step 3: an older answer: step is 1 instead of 3, step_type is MID \
instead of LAST, action is 10 instead of 30, reward is 10.5 instead of 30.5, discount \
is 1.0 instead of 0.0.""",
    "lost": """\
env 3, episode 0, step 1: an answer is missing: step is 2 instead of 1, action is 20 \
instead of 10, reward is 20.5 instead of 10.5.""",
    "another action": """\
env 3, episode 0, step 1: the answer to another action: action is 10 instead of 12, \
reward is 10.5 instead of 12.5.""",
    "two parts": """\
env 3, episode 0, step 1: parts of different answers: the pattern is of other \
numbers.""",
    "a reset": """\
env 3, episode 0, step 1: an answer is missing: episode is 1 instead of 0, step is 0 \
instead of 1, step_type is FIRST instead of MID, action is -1 instead of 10, reward is \
0.0 instead of 10.5.""",
    "two resets": """\
env 3, episode 1, step 0: an answer is missing: episode is 2 instead of 1.""",
    "a new environment": """\
env 3, episode 1, step 0: an older answer: episode is 0 instead of 1.""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_time_step_is_found(case):
    assert FOUND[case] == check_trace(*WRONG[case])


@pytest.mark.parametrize(
    ("field", "value", "difference"),
    [
        ("step_type", StepType.LAST, "step_type is LAST instead of MID"),
        ("step_type", np.int32(9), "step_type is 9 instead of MID"),
        ("reward", np.float32(0.0), "reward is 0.0 instead of 10.5"),
        ("reward", np.float32("nan"), "reward is nan instead of 10.5"),
        ("discount", np.float32(0.0), "discount is 0.0 instead of 1.0"),
    ],
)
def test_a_wrong_field_is_found(field, value, difference):
    wrong = ANSWERS[1]._replace(**{field: value})
    assert (
        f"env 3, episode 0, step 1: not the answer that was due: {difference}."
    ) == check_trace(ANSWERS[0], 10, wrong)


@pytest.mark.parametrize(
    ("previous", "options"), [(True, {}), (False, {"env_id": 3})], ids=str
)
def test_a_time_step_of_another_environment_is_found(previous, options):
    other = TracingEnv(env_id=4).reset()
    before = ANSWERS[3] if previous else None
    episode, came = (1, "episode is 0 instead of 1") if previous else (0, "")
    found = check_trace(before, None, other, **options)

    assert found.startswith(
        f"env 3, episode {episode}, step 0: the answer of another environment: "
        "env_id is 4 instead of 3"
    )
    assert came in found


@pytest.mark.parametrize("element", [0, 7, 15])
def test_one_wrong_element_is_found(element):
    pattern = ANSWERS[1].observation["pattern"].copy()
    pattern[element] ^= 1
    assert check_trace(ANSWERS[0], 10, with_(ANSWERS[1], pattern=pattern))


def test_a_repaired_last_repeats_the_observation_without_reward():
    repaired = truncation(ANSWERS[2].observation, reward=0.0)
    assert "" == check_trace(ANSWERS[2], 30, repaired, repaired=True)
    assert check_trace(ANSWERS[2], 30, repaired)
    assert check_trace(ANSWERS[2], 30, ANSWERS[3], repaired=True)
    assert check_trace(
        ANSWERS[2], 30, repaired._replace(reward=np.float32(1)), repaired=True
    )


def test_a_repaired_last_is_followed_by_a_new_environments_first():
    repaired = truncation(ANSWERS[2].observation, reward=0.0)
    new = TracingEnv(env_id=3, steps_per_episode=3)
    first, second = new.reset(), new.reset()
    assert "" == check_trace(repaired, 40, first)
    assert "" == check_trace(repaired, None, first)
    assert "" == check_trace(repaired, 40, first, repaired=True)
    assert check_trace(repaired, 40, second)


def test_a_row_repaired_at_a_first_shows_a_new_environments_first():
    new = TracingEnv(env_id=3, steps_per_episode=3)
    new.seed(8)
    first = new.reset()
    assert "" == check_trace(ANSWERS[3], 40, first, repaired=True)
    assert "" == check_trace(ANSWERS[1], None, first, repaired=True)
    assert check_trace(ANSWERS[3], 40, ANSWERS[4], repaired=True)
    assert check_trace(ANSWERS[1], 20, first, repaired=True)


# Errors.

REFUSALS = {
    "how": "how must be 'raise', 'exit' or the name of a signal, got {!r}.",
    "script": "script must have at least one time step, and begin with a FIRST.",
    "steps_per_episode": "steps_per_episode must be at least 1, got {}.",
    "where": "where must be one of init, step, reset, render, close, got {!r}.",
}
HOWS = ["explode", "", "signal", "SIG_DFL", "NSIG", 9, None]


@pytest.mark.parametrize(
    ("env_class", "argument", "values"),
    [
        (CountingEnv, "steps_per_episode", [0, -3]),
        (EpisodeCountingEnv, "steps_per_episode", [0, -3]),
        (TracingEnv, "steps_per_episode", [0, [], [2, 0]]),
        (ScriptedEnv, "script", [[], SCRIPT[1:]]),
        (CrashingEnv, "how", HOWS),
        (CrashingEnv, "where", ["explode", "", None]),
    ],
)
def test_an_invalid_argument_is_refused(env_class, argument, values):
    for value in values:
        expected = REFUSALS[argument].format(value)
        assert (ValueError, expected) == told(env_class, **{argument: value})


@pytest.mark.parametrize(
    "env_class",
    [CountingEnv, EpisodeCountingEnv, NestedCountingEnv, CrashingEnv, TracingEnv],
)
def test_unsupported_render_modes_are_refused(env_class):
    expected = f"Only rgb_array is rendered by {env_class.__name__}, not 'human'."
    assert (NotImplementedError, expected) == told(env_class().render, "human")


def test_a_crash_may_happen_in_the_constructor():
    expected = "CrashingEnv was told to raise in init 1."
    assert (RuntimeError, expected) == told(CrashingEnv, where="init")
