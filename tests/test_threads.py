"""Several threads that use one batch, recording or environment in real time."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    make,
)
from envkit._internal.threads import CallLock
from envkit.errors import ClosedError, RecordingError
from envkit.realtime import RealTimeEnvironment
from envkit.recording import Record, Replay
from tests.parallel.environments import Echo
from tests.waiting import PATIENCE

ROUNDS, THREADS = 60, 3


def steps_of(env: Any, thread: int) -> list[tuple[int, int]]:
    """Steps with a thread's own actions; returns each with what was observed."""
    found = []
    for index in range(ROUNDS):
        action = thread * 1000 + index
        seen = env.step(np.full(env.batch_size or (), action)).observation
        found.append((action, int(seen.reshape(-1, 2)[-1, 0])))
    return found


def batch(tmp_path: Any) -> Any:
    return BatchedPyEnvironment([Echo(), Echo()], multithreading=False)


def batch_in_threads(tmp_path: Any) -> Any:
    return BatchedPyEnvironment([Echo(), Echo()])


def recording(tmp_path: Any) -> Any:
    return Record(Echo(), tmp_path / "recording")


def recorded_batch(tmp_path: Any) -> Any:
    return Record(batch(tmp_path), tmp_path / "recording")


def blocking(tmp_path: Any) -> Any:
    return Blocking(AsyncParallelPyEnvironment([Echo] * 2, backend="thread"))


def in_virtual_time(tmp_path: Any) -> Any:
    return RealTimeEnvironment(Echo, 100, host="virtual")


def in_real_time(tmp_path: Any) -> Any:
    return RealTimeEnvironment(Echo, 1000, host="thread")


def in_a_process(tmp_path: Any) -> Any:
    return RealTimeEnvironment(Echo, 1000, host="process")


MADE = [
    batch,
    batch_in_threads,
    recording,
    recorded_batch,
    blocking,
    in_virtual_time,
    in_real_time,
    in_a_process,
]
on_each = pytest.mark.parametrize("make_env", MADE, ids=lambda make: make.__name__)


@on_each
def test_each_thread_gets_the_answers_to_its_own_actions(in_thread, make_env, tmp_path):
    with make_env(tmp_path) as env:
        env.reset()
        waits = [in_thread(steps_of, env, thread) for thread in range(THREADS)]
        found = [pair for wait in waits for pair in wait()]
    assert [sent for sent, _ in found] == [seen for _, seen in found]


@on_each
def test_a_waiting_thread_gets_its_turn(in_thread, make_env, tmp_path):
    done = threading.Event()

    def step_until_done() -> None:
        while not done.is_set():
            env.step(np.zeros(env.batch_size or (), np.int64))

    def look() -> list[Any]:
        return [
            (env.current_time_step().observation[..., 0].max(), bool(env.get_info()))
            for _ in range(20)
        ]

    with make_env(tmp_path) as env:
        env.reset()
        stepper = in_thread(step_until_done)
        try:
            looks = in_thread(look)()
        finally:
            done.set()
        stepper()

    assert looks == [(0, True)] * 20


def test_a_recording_by_several_threads_equals_that_of_one(in_thread, tmp_path):
    with Record(Echo(), tmp_path / "recording") as env:
        env.reset()
        for wait in [in_thread(steps_of, env, thread) for thread in range(THREADS)]:
            wait()

    replay = Replay(tmp_path / "recording")
    replay.reset()
    steps = [
        int(replay.step(np.int64(0)).observation[1]) for _ in range(ROUNDS * THREADS)
    ]
    assert steps == list(range(1, ROUNDS * THREADS + 1))


def test_threads_take_turns_at_a_built_in_batch(in_thread):
    def play(seed: int) -> list[int]:
        rng = np.random.default_rng(seed)
        return [
            int(step_type)
            for _ in range(200)
            for step_type in env.step(rng.integers(0, 3, 4)).step_type
        ]

    env = make("Catch", batch_size=4, seed=1)
    env.reset()
    played = [wait() for wait in [in_thread(play, seed) for seed in range(THREADS)]]

    # An episode of Catch always takes as many steps as there are rows to fall.
    alone = make("Catch", batch_size=4, seed=1)
    alone.reset()
    expected = [
        int(one)
        for _ in range(200 * THREADS)
        for one in alone.step(np.ones(4, np.int64)).step_type
    ]
    assert sorted(expected) == sorted(one for types in played for one in types)


def test_close_ends_threads_that_wait_for_their_turn(in_thread, tmp_path):
    entered, leave = threading.Event(), threading.Event()

    def meddle() -> None:
        entered.set()
        leave.wait(PATIENCE)

    for env, error in (
        (batch(tmp_path), ClosedError),
        (recording(tmp_path), RecordingError),
        (in_virtual_time(tmp_path), ClosedError),
    ):
        entered.clear()
        leave.clear()
        env.reset()
        inner = env.envs[0] if env.batched else getattr(env, "unwrapped", None)
        (inner or env._host.env).meddle = meddle
        stepper = in_thread(env.step, np.zeros(env.batch_size or (), np.int64))
        assert entered.wait(PATIENCE)
        waiting = in_thread(env.current_time_step)
        while not env._envkit.lock.waiting:
            pass

        closing = in_thread(env.close)

        with pytest.raises(error):
            waiting()
        leave.set()
        closing()
        with contextlib.suppress(RecordingError):
            stepper()


def test_close_ends_a_reset_that_does_not_return(in_thread):
    entered, leave = threading.Event(), threading.Event()

    class Stuck(Echo):
        def _reset(self) -> Any:
            entered.set()
            leave.wait(PATIENCE)
            return super()._reset()

    env = RealTimeEnvironment(Stuck, 100, host="thread")
    resetting = in_thread(env.reset)
    assert entered.wait(PATIENCE)
    closing = in_thread(env.close)

    with pytest.raises(ClosedError, match="closed by another thread"):
        resetting()
    leave.set()
    closing()


def test_a_call_lock_is_copied_and_pickled_as_a_new_one():
    env = BatchedPyEnvironment([Echo(), Echo()], multithreading=False)
    env.reset()
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    with env._envkit.lock:
        seen = [one.step([3, 4]).observation[:, 0].tolist() for one in copies]
    assert seen == [[3, 4]] * 2
    assert all(type(one._envkit.lock) is CallLock for one in copies)
