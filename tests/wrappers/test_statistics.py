"""Counting steps and episodes."""

from __future__ import annotations

import inspect
import pickle
import threading
import time
from collections import deque
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    RestartPolicy,
    StepType,
    TimeStep,
    restart,
)
from envkit.envs import CartPole, Catch
from envkit.testing import CountingEnv, CrashingEnv, ManualClock, ScriptedEnv
from envkit.wrappers.limits import EpisodeLimit, FixedLength, TimeLimit
from envkit.wrappers.statistics import RecordEpisodeStatistics, RunStats

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


class Paid(ScriptedEnv):
    """Walks through given step types and earns given rewards."""

    def __init__(self, step_types, rewards, reward_spec=None):
        script = [
            TimeStep(kind, reward, np.array(1, np.float32), np.zeros(()))
            for kind, reward in zip(step_types, rewards, strict=True)
        ]
        super().__init__(script)
        self._reward_spec = reward_spec

    def reward_spec(self):
        return self._reward_spec or super().reward_spec()


def floats(*rewards):
    return [np.array(reward, np.float32) for reward in rewards]


def counters(*lengths):
    envs = [CountingEnv(steps_per_episode=length) for length in lengths]
    return BatchedPyEnvironment(envs, multithreading=False)


def steps(env, count):
    """Takes so many steps of any environment of integers."""
    for _ in range(count):
        env.step(np.zeros((env.batch_size or 1,), np.int32).reshape(env._dims))


# RunStats, as in TF-Agents.


def test_an_episode_truncated_by_a_time_limit_counts():
    env = RunStats(TimeLimit(CartPole(seed=1), 2))
    env.reset()
    steps(env, 2)
    assert 1 == env.episodes


def test_counts_of_a_single_environment_are_integers():
    env = RunStats(CountingEnv(steps_per_episode=2))

    def counts():
        return env.episodes, env.resets, env.episode_steps, env.total_steps

    seen = [counts()]
    for _ in range(5):  # FIRST, MID, LAST, FIRST, MID
        env.step(0)
        seen.append(counts())

    assert [
        (0, 0, 0, 0),
        (0, 1, 0, 0),
        (0, 1, 1, 1),
        (1, 1, 2, 2),
        (1, 2, 0, 2),
        (1, 2, 1, 3),
    ] == seen
    assert {int} == {type(count) for each in seen for count in each}


def test_counts_of_a_batch_are_sums_over_its_rows():
    env = RunStats(counters(2, 3))
    env.reset()
    steps(env, 3)  # MID MID, LAST MID, FIRST LAST
    assert (2, 3, 5) == (env.episodes, env.resets, env.total_steps)


def test_changing_returned_counts_has_no_effect():
    env = RunStats(counters(3, 3))
    env.reset()
    for counts in (
        env.episode_steps,
        env.episodes_per_row,
        env.resets_per_row,
        env.total_steps_per_row,
    ):
        counts[...] = 77

    assert (0, 2, 0, [0, 0]) == (
        env.episodes,
        env.resets,
        env.total_steps,
        env.episode_steps.tolist(),
    )


@pytest.mark.parametrize("make", [CountingEnv, lambda: counters(10, 4)])
def test_the_counts_are_restored_with_the_state(make):
    env = RunStats(make())
    steps(env, 8)
    state = pickle.loads(pickle.dumps(env.get_state()))
    before = env.episodes, env.resets, env.total_steps
    steps(env, 9)
    env.set_state(state)
    assert before == (env.episodes, env.resets, env.total_steps)


def test_a_repeated_last_counts_as_in_tf_agents():
    env = RunStats(FixedLength(CountingEnv(steps_per_episode=1), 3))
    steps(env, 4)  # FIRST, LAST, LAST, LAST
    assert (3, 3) == (env.episodes, env.total_steps)


def test_run_stats_can_begin_episodes_itself():
    env = RunStats(Paid([FIRST, LAST, MID], floats(0, 0, 0)), handle_auto_reset=True)
    steps(env, 3)
    assert 2 == env.resets


# RecordEpisodeStatistics.


def test_rewards_and_steps_are_added_up():
    env = RecordEpisodeStatistics(
        Paid([FIRST, MID, MID, LAST], floats(0, 1, 2.5, -0.5))
    )
    told = []
    for _ in range(4):
        env.step(0)
        told.append((float(env.episode_returns), int(env.episode_lengths)))
    assert [(0.0, 0), (1.0, 1), (3.5, 2), (3.0, 3)] == told


def test_the_reward_of_first_does_not_count():
    env = RecordEpisodeStatistics(Paid([FIRST, LAST], floats(100, 5)))
    steps(env, 2)
    assert [5.0] == list(env.return_queue)


def test_float32_rewards_are_added_up_in_float64():
    rewards = floats(0, 2**24, *[1] * 8)
    env = RecordEpisodeStatistics(Paid([FIRST, *[MID] * 8, LAST], rewards))
    steps(env, 10)
    assert [2.0**24 + 8] == list(env.return_queue)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16])
def test_rewards_of_any_dtype_are_added_up(dtype):
    rewards = [np.array(reward, dtype) for reward in (0, 1, 1)]
    env = RecordEpisodeStatistics(
        Paid([FIRST, MID, LAST], rewards, ArraySpec((), dtype))
    )
    steps(env, 3)
    assert [2.0] == list(env.return_queue)


def test_time_runs_from_first_to_the_last_time_step():
    clock = ManualClock(start=100.0)
    env = RecordEpisodeStatistics(CountingEnv(steps_per_episode=3), clock=clock)
    told = []
    for seconds in (7.0, 0.5, 0.25, 1.0, 9.0, 2.0):
        clock.advance(seconds)
        env.step(0)
        told.append(float(env.episode_times))
    assert [0.0, 0.5, 0.75, 1.75, 0.0, 2.0] == told


def test_time_before_the_first_step_is_not_shown():
    clock = ManualClock()
    env = RecordEpisodeStatistics(CountingEnv(), clock=clock)
    env.reset()
    clock.advance(3.0)
    assert 0.0 == env.episode_times


def test_time_comes_from_a_monotonic_clock():
    parameters = inspect.signature(RecordEpisodeStatistics).parameters
    assert time.perf_counter is parameters["clock"].default


def test_the_queues_keep_the_latest_episodes():
    clock = ManualClock()
    env = RecordEpisodeStatistics(
        Paid([FIRST, LAST, FIRST, MID, LAST], floats(0, 1, 0, 2, 3)), 2, clock=clock
    )
    for _ in range(7):
        clock.advance(1.0)
        env.step(0)
    assert [[5.0, 1.0], [2, 1], [2.0, 1.0]] == [
        list(env.return_queue),
        list(env.length_queue),
        list(env.time_queue),
    ]


def test_the_rows_of_a_batch_share_the_queues():
    env = RecordEpisodeStatistics(counters(1, 3, 1))
    env.reset()
    steps(env, 3)  # LAST MID LAST, FIRST MID FIRST, LAST LAST LAST
    assert [1, 1, 1, 3, 1] == list(env.length_queue)


def test_a_full_queue_keeps_the_last_rows():
    env = RecordEpisodeStatistics(counters(3, 2, 1), buffer_length=2)
    env.reset()
    for mask in ([True, False, False], [True, True, False], [True, True, True]):
        env.step(np.zeros(3, np.int32), np.array(mask))
    assert ([2, 1], 3) == (list(env.length_queue), env.episode_count)


def test_returns_of_single_rewards_are_numbers():
    env = RecordEpisodeStatistics(counters(1, 1))
    env.reset()
    steps(env, 1)
    assert [float, float] == [type(returned) for returned in env.return_queue]


def test_episodes_are_counted_beyond_the_queues_length():
    env = RecordEpisodeStatistics(CountingEnv(steps_per_episode=1), buffer_length=1)
    steps(env, 6)
    assert 3 == env.episode_count


def test_repeated_lasts_belong_to_no_episode():
    env = RecordEpisodeStatistics(FixedLength(CountingEnv(steps_per_episode=1), 3))
    ended = []
    for _ in range(5):
        env.step(0)
        ended.append(bool(env.episode_ended))
    assert ([False, True, False, False, False], [1]) == (ended, list(env.length_queue))


def test_a_held_row_is_unchanged():
    clock = ManualClock()
    env = RecordEpisodeStatistics(counters(2, 2), clock=clock)
    env.reset()
    for mask in ([True, True], [True, False], [False, True]):
        clock.advance(1.0)
        env.step(np.zeros(2, np.int32), np.array(mask))
    assert [[2, 2], [1.0, 1.0], [2.0, 3.0], [True, True]] == [
        env.episode_lengths.tolist(),
        env.episode_returns.tolist(),
        env.episode_times.tolist(),
        env.episode_ended.tolist(),
    ]


def test_rewards_of_a_held_row_count_once():
    rows = [Paid([FIRST, MID, LAST], floats(0, 5, 7)) for _ in range(2)]
    env = RecordEpisodeStatistics(BatchedPyEnvironment(rows, multithreading=False))
    env.reset()
    steps(env, 1)
    env.step(np.zeros(2, np.int32), np.array([True, False]))
    assert [12.0, 5.0] == env.episode_returns.tolist()


def test_time_in_which_a_row_is_held_counts():
    clock = ManualClock()
    env = RecordEpisodeStatistics(counters(9, 9), clock=clock)
    env.reset()
    for mask in ([True, False], [False, True]):
        clock.advance(1.0)
        env.step(np.zeros(2, np.int32), np.array(mask))
    assert [1.0, 2.0] == env.episode_times.tolist()


def test_vectors_of_rewards_are_added_up_by_element():
    rewards = [np.array(reward, np.float32) for reward in ([0, 0], [1, 2], [3, 4])]
    env = RecordEpisodeStatistics(
        Paid([FIRST, MID, LAST], rewards, ArraySpec((2,), np.float32))
    )
    steps(env, 3)
    assert [[4.0, 6.0]] == [returns.tolist() for returns in env.return_queue]


def test_nests_of_rewards_are_added_up_leaf_by_leaf():
    spec = {"own": ArraySpec((), np.int64), "team": (ArraySpec((2,), np.float32),)}
    rewards = [
        {"own": np.array(own), "team": (np.full(2, own / 2, np.float32),)}
        for own in (0, 1, 4)
    ]
    envs = [Paid([FIRST, MID, LAST], rewards, spec) for _ in range(2)]
    env = RecordEpisodeStatistics(BatchedPyEnvironment(envs, multithreading=False))
    env.reset()
    steps(env, 2)
    assert [{"own": 5.0, "team": ([2.5, 2.5],)}] * 2 == [
        {"own": float(returns["own"]), "team": (returns["team"][0].tolist(),)}
        for returns in env.return_queue
    ]


def test_the_info_has_the_episodes_statistics():
    clock = ManualClock()
    env = RecordEpisodeStatistics(CountingEnv(steps_per_episode=2), clock=clock)
    env.reset()
    clock.advance(1.5)
    steps(env, 2)
    assert {
        "episode": {"return": 1.0, "length": 2, "time": 1.5, "ended": True}
    } == env.get_info()


def test_the_info_of_a_batch_has_an_element_for_each_row():
    env = RecordEpisodeStatistics(Catch(batch_size=3, seed=1))
    env.reset()
    steps(env, 2)
    info = env.get_info()
    assert [2, 2, 2] == info["episode"]["length"].tolist()
    assert [2, 2, 2] == info["episode_steps"].tolist()


def test_wrapped_rows_stack_to_the_info_of_a_wrapped_batch():
    rows = [RecordEpisodeStatistics(CountingEnv(length)) for length in (1, 3)]
    infos = []
    for env in (
        BatchedPyEnvironment(rows, multithreading=False),
        RecordEpisodeStatistics(counters(1, 3)),
    ):
        env.reset()
        env.step(np.zeros(2, np.int32))
        episode = env.get_info()["episode"]
        infos.append(
            {
                key: (episode[key].dtype, episode[key].tolist())
                for key in ("return", "length", "ended")
            }
        )

    assert infos[0] == infos[1]


def test_an_environment_without_info_gets_one():
    env = RecordEpisodeStatistics(Paid([FIRST, LAST], floats(0, 1)))
    steps(env, 2)
    assert ["episode"] == list(env.get_info())


@pytest.mark.parametrize(
    ("info", "keys"),
    [(None, ["episode"]), ({"lives": 3}, ["lives", "episode"])],
    ids=["None", "dict"],
)
def test_the_environments_info_is_kept(info, keys):
    class Told(CountingEnv):
        def get_info(self):
            return info

    env = RecordEpisodeStatistics(Told())
    env.reset()
    assert keys == list(env.get_info())
    assert info in (None, {"lives": 3})


def test_infos_that_do_not_stack_are_extended_one_by_one():
    class Told(CountingEnv):
        def get_info(self):
            return {"seen": np.zeros(self._current_step)}

    rows = [Told(), Told()]
    env = RecordEpisodeStatistics(BatchedPyEnvironment(rows, multithreading=False))
    env.reset()
    env.step(np.zeros(2, np.int32), np.array([True, False]))
    assert [(1, 1), (0, 0)] == [
        (len(info["seen"]), int(info["episode"]["length"])) for info in env.get_info()
    ]


def test_the_key_can_be_chosen():
    env = RecordEpisodeStatistics(
        RecordEpisodeStatistics(CountingEnv()), stats_key="outer"
    )
    env.reset()
    assert ["episode", "outer"] == list(env.get_info())


def test_changing_returned_statistics_has_no_effect():
    env = RecordEpisodeStatistics(counters(3, 3))
    env.reset()
    steps(env, 2)
    for array in env.get_info()["episode"].values():
        array[...] = 1
    assert [2, 2] == env.episode_lengths.tolist()


def test_everything_counted_is_restored_with_the_state():
    clock = ManualClock()
    env = RecordEpisodeStatistics(counters(2, 5), clock=clock)
    env.reset()
    clock.advance(2.0)
    steps(env, 3)
    state = pickle.loads(pickle.dumps(env.get_state()))
    queue = env.length_queue
    steps(env, 9)
    env.set_state(state)

    assert ([0, 3], [2], [0.0, 2.0], 1) == (
        env.episode_lengths.tolist(),
        list(queue),
        env.episode_times.tolist(),
        env.episode_count,
    )


def test_time_between_saving_and_restoring_does_not_count():
    clock = ManualClock()
    env = RecordEpisodeStatistics(CountingEnv(), clock=clock)
    env.reset()
    clock.advance(2.0)
    steps(env, 1)
    state = env.get_state()
    clock.advance(1000.0)
    env.set_state(state)
    clock.advance(0.5)
    steps(env, 1)
    assert 2.5 == env.episode_times


def test_an_ended_episode_stays_over_after_restoring():
    env = RecordEpisodeStatistics(FixedLength(CountingEnv(steps_per_episode=1), 3))
    steps(env, 2)  # FIRST, LAST
    other = RecordEpisodeStatistics(FixedLength(CountingEnv(steps_per_episode=1), 3))
    other.set_state(env.get_state())
    steps(other, 1)  # LAST
    assert (1, 1) == (other.episode_count, other.episode_lengths)


def test_a_state_can_be_restored_with_another_queue_length():
    env = RecordEpisodeStatistics(CountingEnv(steps_per_episode=1))
    steps(env, 6)
    other = RecordEpisodeStatistics(CountingEnv(steps_per_episode=1), buffer_length=2)
    other.set_state(env.get_state())
    assert deque([1, 1], maxlen=2) == other.length_queue
    assert 2 == other.length_queue.maxlen


def test_a_lost_episode_is_followed_but_not_counted():
    makers = [partial(CrashingEnv, crash_at=3), partial(CountingEnv, 4)]
    with ParallelPyEnvironment(
        makers, backend="inline", on_worker_failure=RestartPolicy(backoff=0.0)
    ) as pool:
        env = RecordEpisodeStatistics(pool)
        env.reset()
        lengths = []
        for _ in range(5):
            env.step(np.zeros(2, np.int32))
            lengths.append(env.episode_lengths.tolist())
    assert [[1, 1], [2, 2], [3, 3], [0, 4], [1, 0]] == lengths
    assert ([4], [1.0]) == (list(env.length_queue), list(env.return_queue))


# A step of all rows, a step of some, a reset of some, a reset of all.
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "reset"]),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    max_size=40,
)


@given(moves=MOVES, lengths=st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_each_row_is_counted_as_if_it_were_alone(moves, lengths):
    env = RunStats(RecordEpisodeStatistics(counters(*lengths)))
    env.reset()
    episodes, resets, totals = [0] * 3, [1] * 3, [0] * 3
    current, ends = [0] * 3, []
    for call, mask in moves:
        mask = np.array(mask)
        if call == "step":
            time_step = env.step(np.zeros(3, np.int32), mask)
        else:
            time_step = env.reset(mask)
        for row in np.flatnonzero(mask):
            if time_step.step_type[row] == FIRST:
                resets[row] += 1
                current[row] = 0
                continue
            totals[row] += 1
            current[row] += 1
            if time_step.step_type[row] == LAST:
                episodes[row] += 1
                ends.append(current[row])

    assert [episodes, resets, totals, current] == [
        env.episodes_per_row.tolist(),
        env.resets_per_row.tolist(),
        env.total_steps_per_row.tolist(),
        env.episode_steps.tolist(),
    ]
    assert (current, ends) == (
        env.wrapped_env().episode_lengths.tolist(),
        list(env.length_queue),
    )


# How they are shown, and what they refuse.


def test_the_reprs_show_the_wrapped_environment():
    env = RunStats(RecordEpisodeStatistics(CartPole(batch_size=2), 5))
    assert (
        "RunStats(RecordEpisodeStatistics(CartPole(batch_size=2), buffer_length=5, "
        "stats_key='episode'))"
    ) == repr(env)


@pytest.mark.parametrize("length", [0, -1, 2.5, None, True])
def test_the_queues_need_room_for_one_episode(length, message_of):
    assert (
        f"buffer_length must be an integer of at least 1, got {length!r}."
    ) == message_of(ValueError, lambda: RecordEpisodeStatistics(CountingEnv(), length))


def test_the_key_must_be_a_string(message_of):
    assert (
        "stats_key must be a string, the key of the statistics in get_info(), got a "
        "list of 1 element."
    ) == message_of(
        TypeError, lambda: RecordEpisodeStatistics(CountingEnv(), 100, ["episode"])
    )


def test_a_key_that_the_info_already_has_is_refused(message_of):
    env = RecordEpisodeStatistics(RecordEpisodeStatistics(CountingEnv()))
    env.reset()
    assert (
        "RecordEpisodeStatistics.get_info() cannot add the key 'episode': the info of "
        "the environment has it already. Choose another one with stats_key=."
    ) == message_of(ValueError, env.get_info)


def test_an_info_without_keys_is_refused(message_of):
    class Told(CountingEnv):
        def get_info(self):
            return [1, 2]

    env = RecordEpisodeStatistics(Told())
    env.reset()
    assert (
        "RecordEpisodeStatistics.get_info() adds the key 'episode' to the info of the "
        "environment, which is a list of 2 elements and has no keys. Use the "
        "properties episode_returns, episode_lengths, episode_times and episode_ended."
    ) == message_of(TypeError, env.get_info)


@pytest.mark.parametrize("wrapper", [RunStats, RecordEpisodeStatistics])
def test_the_first_step_of_a_new_environment_is_a_reset(wrapper):
    env = wrapper(Paid([FIRST, LAST], floats(0, 1)))
    assert restart(np.zeros(())) == env.step(0)


# Rows that show nothing new count for nothing.


@pytest.mark.parametrize("wrapper", [RunStats, RecordEpisodeStatistics])
def test_resetting_rows_are_not_counted(wrapper):
    gate = threading.Event()

    class SlowToReset(CountingEnv):
        def _reset(self):
            gate.wait()
            return super()._reset()

    pool = AsyncParallelPyEnvironment(
        [SlowToReset, partial(CountingEnv, 2)], backend="thread", num_workers=2
    )
    with wrapper(Blocking(pool, wait=False)) as env:
        env.reset()
        steps = [env.step(np.zeros(2, np.int64)) for _ in range(4)]
        gate.set()
        ends = sum(int(time_step.is_last()[1]) for time_step in steps)
        if wrapper is RunStats:
            counted = env.episodes_per_row.tolist()
        else:
            counted = [0, len(env.length_queue)]

    assert all(time_step.is_last()[0] for time_step in steps)
    assert [0, ends] == counted


def test_repeated_ends_of_a_run_count_once():
    env = RunStats(EpisodeLimit(CountingEnv(2), 1))
    env.reset()
    for _ in range(5):
        env.step(0)
    assert (1, 2) == (env.episodes, env.total_steps)
