"""Several threads that use one pool: they take turns, and `close` ends them all."""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

from envkit import ProcessPyEnvironment
from envkit.errors import CallOrderError, ClosedError, EnvironmentRaised
from tests.parallel.environments import Echo, Gated, open_gate
from tests.parallel.streams import async_pool_of, pool_of
from tests.waiting import PATIENCE, until

ROWS, ROUNDS, THREADS = 2, 60, 3


def steps_of(pool: Any, thread: int) -> list[tuple[list[int], list[int]]]:
    """Steps a pool with a thread's own actions; returns what was sent and observed."""
    found = []
    for index in range(ROUNDS):
        actions = np.array([thread * 1000 + index, thread * 1000 + index + 500])
        observation = pool.step(actions).observation
        found.append((actions.tolist(), observation.tolist()))
    return found


def test_each_thread_gets_the_answers_to_its_own_actions(in_thread, backend):
    with pool_of([Echo] * ROWS, backend, num_workers=2) as pool:
        pool.reset()
        waits = [in_thread(steps_of, pool, thread) for thread in range(THREADS)]
        found = [pair for wait in waits for pair in wait()]

    assert [sent for sent, _ in found] == [
        [action for action, _ in seen] for _, seen in found
    ]
    numbers = [number for _, seen in found for _, number in seen]
    assert sorted(numbers) == sorted([*range(1, THREADS * ROUNDS + 1)] * ROWS)
    by_thread = [
        found[first : first + ROUNDS] for first in range(0, len(found), ROUNDS)
    ]
    for mine in by_thread:
        rows = [seen[0][1] for _, seen in mine]
        assert rows == sorted(rows)


def state_is_whole(pool: Any) -> bool:
    state = pool.get_state()
    return len(state.environments) == ROWS and state.time_step.observation.shape == (
        ROWS,
        2,
    )


BESIDE = {
    "current_time_step": lambda pool: (
        pool.current_time_step().observation.shape == (ROWS, 2)
    ),
    "call": lambda pool: len(pool.call("get_info")) == ROWS,
    "access": lambda pool: pool.access("batched") == [False] * ROWS,
    "render": lambda pool: pool.render().shape == (ROWS, 2, 2, 3),
    "get_state": state_is_whole,
    "get_info": lambda pool: pool.get_info()["steps"].shape == (ROWS,),
    "declared_info": lambda pool: pool.declared_info()["steps"].shape == (ROWS,),
    "statistics": lambda pool: len(pool.statistics().workers) == 2,
    "handle": lambda pool: pool.envs[1].call("get_info")()["steps"] >= 0,
}


def test_a_reading_thread_gets_whole_answers_and_its_turn(in_thread, backend):
    done = threading.Event()

    def step_until_done() -> int:
        index = 0
        while not done.is_set():
            index += 1
            actions = np.array([index, index + 1])
            assert pool.step(actions).observation[:, 0].tolist() == actions.tolist()
        return index

    with pool_of([Echo] * ROWS, backend, num_workers=2) as pool:
        pool.reset()
        stepper = in_thread(step_until_done)
        try:
            looks = in_thread(
                lambda: {
                    name: all(look(pool) for _ in range(20))
                    for name, look in BESIDE.items()
                }
            )()
        finally:
            done.set()

        assert looks == dict.fromkeys(BESIDE, True)
        assert stepper() > 0


def test_one_thread_can_send_and_another_receive(in_thread, backend):
    asked: list[int] = []

    def receive() -> list[tuple[int, int]]:
        found = []
        while len(found) < ROUNDS * ROWS:
            try:
                batch = pool.recv(count=1)
            except CallOrderError:  # Nothing is owed just now.
                continue
            for row, seen in zip(
                batch.env_ids.tolist(), batch.time_step.observation, strict=True
            ):
                found.append((row, int(seen[0])))
                free[row].set()
        return found

    def send() -> None:
        for index in range(ROUNDS):
            for row in range(ROWS):
                assert free[row].wait(PATIENCE)
                free[row].clear()
                pool.send(np.array([index * ROWS + row]), [row])
                asked.append(index * ROWS + row)

    free = [threading.Event() for _ in range(ROWS)]
    with async_pool_of([Echo] * ROWS, backend, num_workers=2) as pool:
        pool.reset_async()
        pool.recv()
        for event in free:
            event.set()
        sender, receiver = in_thread(send), in_thread(receive)
        sender()
        found = receiver()

    assert sorted(action for _, action in found) == asked
    assert all(action % ROWS == row for row, action in found)


def test_threads_can_each_have_an_environment(in_thread, backend):
    def step_one(row: int) -> list[int]:
        handle, seen = pool.envs[row], []
        for index in range(ROUNDS):
            promise = handle.step(np.int64(row * 1000 + index), blocking=False)
            seen.append(int(promise().observation[0]))
        return seen

    with pool_of([Echo] * ROWS, backend, num_workers=2) as pool:
        pool.reset()
        waits = [in_thread(step_one, row) for row in range(ROWS)]
        found = [wait() for wait in waits]

    assert found == [[row * 1000 + i for i in range(ROUNDS)] for row in range(ROWS)]


def test_threads_take_turns_at_a_process_environment(in_thread):
    def step(thread: int) -> list[int]:
        actions = [thread * 1000 + index for index in range(ROUNDS)]
        return [int(env.step(np.int64(one)).observation[0]) for one in actions]

    with ProcessPyEnvironment(Echo, start_method="fork") as env:
        env.reset()
        waits = [in_thread(step, thread) for thread in range(THREADS)]
        found = [wait() for wait in waits]

    assert found == [[t * 1000 + i for i in range(ROUNDS)] for t in range(THREADS)]


def test_close_ends_threads_that_wait(in_thread, backend, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = pool_of([functools.partial(Gated, str(gate))], backend)
    pool.reset()
    stepper = in_thread(pool.step, [1])
    while pool._call_lock.call is None:  # It holds the lock.
        pass
    others = [
        in_thread(pool.current_time_step),
        in_thread(pool.call, "get_info"),
        in_thread(pool.step, [0]),
    ]
    while len(pool._call_lock.waiting) < len(others):
        pass

    closing = in_thread(pool.close)

    for other in others:
        with pytest.raises(ClosedError):
            other()
    open_gate(gate)
    if backend == "inline":
        # It ran the environment itself, to the end, and has the answer.
        assert stepper().is_mid().all()
    else:
        with pytest.raises(ClosedError, match="closed by another thread"):
            stepper()
    closing()
    with pytest.raises(ClosedError):
        pool.step([0])


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_close_ends_a_thread_that_receives(in_thread, backend, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = async_pool_of([functools.partial(Gated, str(gate))], backend)
    pool.reset_async()
    pool.recv()
    pool.send([1])
    receiver = in_thread(pool.recv)
    while pool._call_lock.call is None:
        pass
    sender = in_thread(pool.send, [0])
    while not pool._call_lock.waiting:
        pass

    closing = in_thread(pool.close)

    for wait in (receiver, sender):
        with pytest.raises(ClosedError):
            wait()
    open_gate(gate)
    closing()


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_an_environment_that_uses_its_own_pool_is_refused(backend):
    with pool_of([Echo] * ROWS, backend, num_workers=1) as pool:
        pool.reset()
        pool.set_attr("meddle", lambda: pool.call("get_info"), env_ids=[0])

        with pytest.raises(EnvironmentRaised) as caught:
            pool.step([1, 2])

        cause = caught.value.__cause__
        assert isinstance(cause, CallOrderError)
        assert (
            "ParallelPyEnvironment.call() was called inside "
            "ParallelPyEnvironment.step(), which is under way: by an environment that "
            "uses what runs it, or by a signal handler. Call it after step() has "
            "returned; close() alone may be called meanwhile."
        ) in str(cause)


def test_an_environment_can_close_its_own_pool():
    pool = pool_of([Echo], "inline")
    pool.reset()
    pool.set_attr("meddle", lambda: pool.close())
    with pytest.raises(ClosedError):
        pool.step([1])


def test_an_interrupted_call_leaves_the_turn_to_others(in_thread):
    presses = [KeyboardInterrupt]

    def press_once() -> None:
        if presses:
            raise presses.pop()

    with pool_of([Echo], "inline") as pool:
        pool.reset()
        pool.set_attr("meddle", press_once)
        with pytest.raises(KeyboardInterrupt):
            pool.step([1])

        seen = in_thread(pool.step, [5])()

    assert seen.observation[0, 0] == 5


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_does_not_wait_for_another_threads_turn(in_thread):
    """The thread is not in the fork, and what it held is never let go there."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        # As a call does before it has said which one it is.
        with pool._call_lock:
            held.set()
            assert over.wait(PATIENCE)

    with pool_of([Echo], "process") as pool:
        pool.reset()
        holding = in_thread(hold)
        assert held.wait(PATIENCE)
        if not (child := os.fork()):
            code = 1
            try:
                pool.reset()
            except ClosedError:
                code = 7
            finally:
                os._exit(code)
        found = until(lambda: os.waitpid(child, os.WNOHANG)[1])
        over.set()
        holding()
        if not found:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    assert 7 == os.waitstatus_to_exitcode(found)
