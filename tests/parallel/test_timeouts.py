"""Workers that hang in every way there is, and what a timeout makes of them."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment, RestartPolicy
from envkit.errors import WorkerCrashed, WorkerTimeout
from envkit.testing import CountingEnv
from tests.parallel.fake_backend import (
    Commit,
    Die,
    FakeBackend,
    Finish,
    Hang,
    Pass,
    Start,
)
from tests.parallel.trouble import (
    PROMPTLY,
    Troubled,
    exits,
    failure_of,
    first_line,
    masked,
    numbers,
    plan,
    pool_of,
    raises,
    wrong_rows,
)
from tests.waiting import is_running, until

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]

# What is asked for; how much longer a call may take is a second, as promised, and what
# a busy machine adds.
TIMEOUT = 0.5
# In this time what does not hang answers also on a slow machine.
IN_TIME = 5.0
AT_MOST = TIMEOUT + PROMPTLY


# Ways to hang.


def sleep():
    time.sleep(600)


def match_for_ever():
    """Keeps C code busy that never lets go of the interpreter."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def stop_myself():
    os.kill(os.getpid(), signal.SIGSTOP)


def ignore_and_sleep():
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                continue
    sleep()


# Asleep, busy in C without letting go of the interpreter, stopped, and deaf.
HANGS = [sleep, match_for_ever, stop_myself, ignore_and_sleep]


def timed(call, *args, **options):
    """Returns the error that a call must raise, and how long that took."""
    began = time.monotonic()
    error = failure_of(call, *args, **options)
    return error, time.monotonic() - began


@pytest.mark.parametrize("where", ["step", "reset"])
def test_workers_that_hang_in_any_way_are_killed_and_named(where):
    rows = len(HANGS) + 1
    hanging = [*range(len(HANGS))]
    call = ParallelPyEnvironment.reset if where == "reset" else step_with_numbers
    with pool_of(rows, **{f"{where}_timeout": TIMEOUT}) as pool:
        begin(pool, where)
        pids = [worker.pid for worker in pool.workers]
        for row, trouble in enumerate(HANGS):
            plan(pool, row, where, trouble)
        # The others have no deadline, as the machine may be slow.
        error, took = timed(call, pool, mask=masked(rows, *hanging))
        gone = failure_of(call, pool, mask=masked(rows, 0))
        answers = pool.call("meet", env_ids=[rows - 1])

    late = [error, *error.also]
    assert [(WorkerTimeout, row, (row,), row) for row in hanging] == [
        (type(each), each.worker, each.envs, each.env) for each in late
    ]
    assert [
        f"worker {row} (pid {pids[row]}) did not answer within 0.5 s: env {row} was "
        f"in {where}()."
        for row in hanging
    ] == [first_line(each) for each in late]
    assert (
        f"{where}() needs worker 0 (pid {pids[0]}), which was lost in an earlier call; "
        f"it did not answer within 0.5 s: env 0 was in {where}()."
    ) == first_line(gone)
    assert isinstance(gone, WorkerCrashed)
    assert took < AT_MOST
    assert [pids[-1]] == answers
    assert until(lambda: not any(map(is_running, pids)))


def begin(pool, where):
    """Begins episodes, by a call without a deadline: a machine may be slow."""
    pool.reset() if where == "step" else pool.step(numbers(*range(pool.batch_size)))


def step_with_numbers(pool, mask):
    return pool.step(numbers(*range(pool.batch_size)), mask)


def test_the_message_says_what_happened_and_what_to_do():
    with pool_of(2, workers=1, step_timeout=TIMEOUT) as pool:
        pool.reset()
        pid = pool.workers[0].pid
        plan(pool, 0, "step", sleep)
        error = failure_of(pool.step, numbers(1, 2))

    made_by = "functools.partial(tests.parallel.trouble.Troubled"
    assert (
        f"worker 0 (pid {pid}) did not answer within 0.5 s: env 0 was in step().\n\n"
        "  environments    0, 1\n"
        f"  constructors    {made_by}, 0)\n"
        f"                  {made_by}, 1)\n"
        '  restarts        not allowed (on_worker_failure="raise")\n\n'
        "The worker was killed, and every process that it had started.\n"
        "If it may take longer, pass a larger step_timeout.\n"
        "To replace late workers and go on, pass on_worker_failure=RestartPolicy()."
    ) == str(error)


def test_the_message_has_the_workers_last_output():
    with pool_of(1, step_timeout=TIMEOUT) as pool:
        pool.reset()
        pool.call("do", os.write, 2, b"no licence yet\n")
        plan(pool, 0, "step", sleep)
        error = failure_of(pool.step, numbers(1))
    assert "  last stderr     no licence yet\n" in str(error)


def test_rows_that_answered_have_stepped():
    pool, backend = pausable_pool(ParallelPyEnvironment, step_timeout=1.0)
    with pool:
        backend.plan(Hang(1), Finish((0,)), Pass(2.0))
        error = failure_of(pool.step, [0, 0])
        after = pool.current_time_step()
    assert (WorkerTimeout, 1) == (type(error), error.worker)
    assert [1, 0] == after.observation.tolist()


@pytest.mark.parametrize(
    ("trouble", "serially"),
    [
        (match_for_ever, False),
        (stop_myself, True),
    ],
)
def test_a_constructor_that_hangs_is_killed_and_named(trouble, serially):
    # If the machine is slow, the other one is late as well.
    makers = [functools.partial(Troubled, 0, "constructor", trouble), Troubled]
    error, took = timed(
        ParallelPyEnvironment,
        makers,
        num_workers=2,
        start_method="fork",
        start_serially=serially,
        start_timeout=0.3,
    )

    assert (WorkerTimeout, 0, (0,)) == (type(error), error.worker, error.envs)
    assert " did not answer within 0.3 s: " in first_line(error)
    assert "If it may take longer, pass a larger start_timeout." in str(error)
    assert took < 0.3 + PROMPTLY


def test_a_setup_that_hangs_is_killed():
    error, took = timed(
        ParallelPyEnvironment,
        [CountingEnv],
        worker_setup=sleep,
        start_timeout=1.0,
        start_method="spawn",
    )

    assert (WorkerTimeout, "construct") == (type(error), error.command)
    assert took < 1.0 + PROMPTLY


@pytest.mark.parametrize("where", ["step", "reset"])
def test_a_thread_that_hangs_is_given_up(where):
    release = threading.Event()
    timeouts = {f"{where}_timeout": TIMEOUT}
    pool = pool_of(3, workers=2, backend="thread", **timeouts)
    call = ParallelPyEnvironment.reset if where == "reset" else step_with_numbers
    try:
        begin(pool, where)
        plan(pool, 1, where, release.wait)
        # The others have no deadline, as the machine may be slow.
        error, took = timed(call, pool, mask=masked(3, 1))
        later = failure_of(call, pool, mask=masked(3, 0))
        answers = pool.call("do", abs, -3, env_ids=[2])
    finally:
        release.set()
        pool.close()

    assert (
        f"worker 0 did not answer within 0.5 s: env 1 was in {where}()."
    ) == first_line(error)
    assert "A thread cannot be killed: it was given up" in str(error)
    assert isinstance(later, WorkerCrashed)
    assert took < AT_MOST
    assert [3] == answers


def test_an_abandoned_thread_writes_into_no_row():
    """It comes back late, when another environment has its rows."""
    release = threading.Event()
    done = threading.Event()

    class Late(Troubled):
        def close(self):
            done.set()
            super().close()

    with pool_of(
        2,
        workers=1,
        make=Late,
        backend="thread",
        step_timeout=IN_TIME,
        on_worker_failure=RestartPolicy(backoff=0.0),
    ) as pool:
        pool.reset()
        plan(pool, 0, "step", release.wait)
        cut = pool.step(numbers(1, 2))
        first = pool.step(numbers(3, 4))
        release.set()
        assert done.wait(PROMPTLY)
        again = pool.current_time_step()
        after = pool.step(numbers(5, 6))

    assert cut.is_last().all()
    assert [] == wrong_rows(cut, numbers(3, 4), first)
    assert [] == wrong_rows(cut, numbers(3, 4), again)
    assert [] == wrong_rows(first, numbers(5, 6), after)


def test_after_a_timeout_no_answer_is_ever_an_older_one():
    with pool_of(
        4,
        workers=2,
        step_timeout=IN_TIME,
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=0.0),
    ) as pool:
        rng = np.random.default_rng(0)
        before = pool.reset()
        wrong, cuts = [], 0
        for step in range(40):
            if step == 3:
                plan(pool, 3, "step", stop_myself)
            actions = rng.integers(10**9, size=4)
            after = pool.step(actions)
            fresh = np.flatnonzero(~pool.repaired)
            cuts += int(pool.repaired.sum())
            wrong += wrong_rows(before, actions, after, fresh)
            before = after
        restarts = pool.statistics().restarts

    assert [] == wrong
    assert (2, 1) == (cuts, restarts)


def test_a_late_row_of_an_asynchronous_pool_delays_no_other():
    makers = [functools.partial(Troubled, env) for env in range(4)]
    with AsyncParallelPyEnvironment(
        makers, num_workers=4, start_method="fork", step_timeout=IN_TIME
    ) as pool:
        pool.reset_async()
        first = pool.recv()
        pool.call("plan", "step", sleep, env_ids=[2])
        pool.send(numbers(*range(4)))
        batch = pool.recv(count=3)
        error, took = timed(pool.recv)

    assert 4 == len(first.env_ids)
    assert {0, 1, 3} == set(batch.env_ids.tolist())
    assert (WorkerTimeout, 2) == (type(error), error.env)
    assert took < AT_MOST


def test_waiting_ends_early_if_the_worker_does():
    with pool_of(1, step_timeout=30.0) as pool:
        pool.reset()
        plan(pool, 0, "step", exits(3))
        error, took = timed(pool.step, numbers(1))
    assert isinstance(error, WorkerCrashed)
    assert took < PROMPTLY


def test_a_stopped_worker_times_out_and_is_killed():
    with pool_of(2, step_timeout=TIMEOUT) as pool:
        pool.reset()
        pid = pool.workers[1].pid
        os.kill(pid, signal.SIGSTOP)
        error, took = timed(pool.step, numbers(1, 2), masked(2, 1))
        ended = until(lambda: not is_running(pid))

    assert (WorkerTimeout, 1) == (type(error), error.worker)
    assert took < AT_MOST
    assert ended


def test_a_worker_stopped_while_a_large_payload_is_sent_is_found_when_killed():
    """Nobody reads what fills the channel, so sending waits; the end is seen there."""
    with pool_of(1) as pool:
        pool.reset()
        pid = pool.workers[0].pid
        os.kill(pid, signal.SIGSTOP)
        killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
        killer.start()
        error, took = timed(pool.call, "do", len, b"x" * 50_000_000)
        killer.join()

    assert (WorkerCrashed, "SIGKILL") == (type(error), error.signal)
    assert took < 0.3 + PROMPTLY


def test_an_environment_that_hangs_and_then_raises_times_out():
    def trouble():
        time.sleep(TIMEOUT + PROMPTLY)
        raises(ValueError, "no")()

    with pool_of(1, step_timeout=TIMEOUT) as pool:
        pool.reset()
        plan(pool, 0, "step", trouble)
        error = failure_of(pool.step, numbers(1))

    assert isinstance(error, WorkerTimeout)


# What stood still.


@dataclasses.dataclass(frozen=True)
class Stand:
    """Everything stands still: a wait is over later than it was to be."""

    seconds: float = 3600.0


class Pausable(FakeBackend):
    """Knows one thing more that may happen.

    Attributes:
        to_start: How many seconds pass while a process is being started.
    """

    to_start = 0.0

    def start(self, jobs):
        super().start(jobs)
        self.clock.advance(self.to_start)

    def _play(self, action):
        super()._play(action)
        if isinstance(action, Stand):
            self.clock.advance(action.seconds)


def pausable_pool(kind=AsyncParallelPyEnvironment, **options):
    """Makes a pool of two on a clock of its own; both rows have begun."""
    backend = Pausable()
    pool = kind([CountingEnv] * 2, num_workers=2, backend=backend, **options)
    pool.reset() if kind is ParallelPyEnvironment else pool.reset_async()
    pool.recv() if kind is AsyncParallelPyEnvironment else None
    backend._by_hand = True
    return pool, backend


@pytest.mark.parametrize(
    "happens",
    [
        [Pass(0.25), Stand(), Pass(0.5)],
        [Stand(), Pass(0.75)],
        [Pass(0.9), Stand(0.5), Pass(0.09)],
        [Pass(0.25), Stand(), Pass(0.25), Stand(), Pass(0.25)],
    ],
)
def test_time_in_which_the_machine_was_suspended_does_not_count(happens):
    pool, backend = pausable_pool(step_timeout=1.0)
    with pool:
        pool.send([0, 0])
        backend.plan(*happens, Finish())
        batch = pool.recv()
    assert [1, 1] == batch.time_step.observation.tolist()


def test_suspension_in_the_first_wait_of_a_step_does_not_count():
    pool, backend = pausable_pool(ParallelPyEnvironment, step_timeout=1.0)
    with pool:
        backend.plan(Pass(0.05), Stand(), Pass(0.75), Finish())
        after = pool.step([0, 0])
    assert [1, 1] == after.observation.tolist()


def test_a_step_of_the_batch_asks_each_row_once_and_waits_as_long_as_it_says():
    pool, backend = pausable_pool(ParallelPyEnvironment, step_timeout=5.0)
    asked, dispatch = [], backend.dispatch
    backend.dispatch = lambda rows: (asked.append(rows), dispatch(rows))
    with pool:
        backend.plan(Hang(1), Finish())
        began = backend.clock.now()
        error = failure_of(pool.step, [0, 0])
        took = backend.clock.now() - began

    assert (WorkerTimeout, 1, 5.0) == (type(error), error.worker, took)
    assert [None] == asked


def test_a_hung_worker_is_killed_after_a_suspension():
    pool, backend = pausable_pool(step_timeout=5.0)
    with pool:
        pool.send([0, 0])
        backend.plan(Hang(1), Finish(), Pass(0.25), Stand())
        began = backend.clock.now()
        error = failure_of(pool.recv)
        took = backend.clock.now() - began

    assert (WorkerTimeout, 1) == (type(error), error.worker)
    assert 3605.0 <= took <= 3606.5


def test_a_hung_worker_is_killed_even_if_every_wait_is_suspended():
    pool, backend = pausable_pool(step_timeout=5.0)
    with pool:
        pool.send([0, 0])
        backend.plan(*[Stand(10.0), Pass(0.01)] * 1000)
        error = failure_of(pool.recv)
    assert isinstance(error, WorkerTimeout)


@pytest.mark.parametrize("paused", [2.0, 3600.0])
def test_a_pause_between_two_calls_takes_no_time_from_a_row(paused):
    pool, backend = pausable_pool(step_timeout=3.0)
    with pool:
        pool.send([0, 0])
        backend.plan(Pass(0.5))
        failure_or_none(pool.recv, timeout=0.5)
        backend.clock.advance(paused)
        backend.plan(Pass(2.25), Finish())
        batch = pool.recv()
    assert [1, 1] == batch.time_step.observation.tolist()


def test_a_pause_while_a_worker_is_replaced_takes_no_time_from_the_rows_of_others():
    pool, backend = pausable_pool(
        step_timeout=5.0, on_worker_failure=RestartPolicy(backoff=0.0)
    )
    backend.to_start = 3600.0
    with pool:
        pool.send([0, 0])
        backend.plan(Die(1), Pass(4.5), Finish(), Start())
        batches = [pool.recv(count=1), pool.recv(count=1)]
        restarts = pool.statistics().restarts
    assert [1, 1] == sorted(int(batch.env_ids.size) for batch in batches)
    assert 1 == restarts


def test_a_hung_worker_is_killed_within_twice_its_timeout():
    """The caller computes all the time, and looks in now and then."""
    pool, backend = pausable_pool(step_timeout=5.0)
    with pool:
        pool.send([0, 0])
        backend.plan(Hang(1), Finish((0,)))
        pool.recv(count=1)
        began, error = backend.clock.now(), None
        while error is None:
            backend.clock.advance(0.5)
            error = failure_or_none(pool.recv, timeout=0)
        took = backend.clock.now() - began
    assert isinstance(error, WorkerTimeout)
    assert 10.0 <= took <= 10.5  # The look after its end is the one that finds it.


def failure_or_none(call, **options):
    try:
        call(**options)
    except WorkerTimeout as error:
        return error
    return None


def test_frequent_polling_extends_no_deadline_twice():
    pool, backend = pausable_pool(step_timeout=5.0)
    with pool:
        pool.send([0, 0])
        for _ in range(3):
            backend.clock.advance(3600.0)
            error = failure_or_none(pool.recv, timeout=0)
            if error is not None:
                break
            again = backend.clock.now()

    assert isinstance(error, WorkerTimeout)
    assert 3600.0 == backend.clock.now() - again


def test_rows_that_answered_never_time_out():
    """The end of another worker is told before the answer is."""
    pool, backend = pausable_pool(step_timeout=5.0)
    with pool:
        pool.send([0, 0])
        backend.do(Commit((0,)))
        backend.clock.advance(3600.0)
        backend.plan(Die(1), Pass(2.0))
        error = failure_of(pool.recv)
        alive = [worker.is_alive for worker in pool.statistics().workers]

    assert (WorkerCrashed, 1) == (type(error), error.worker)
    assert [True, False] == alive


def test_a_call_with_a_timeout_of_its_own_waits_as_long_as_it_runs():
    pool, backend = pausable_pool()
    with pool:
        pool.send([0, 0])
        backend.plan(Pass(1.0), Stand(), Pass(1.0), Finish())
        batch = pool.recv(timeout=3.0)
    assert 2 == len(batch.env_ids)


def test_a_reset_can_have_a_timeout_without_one_for_steps():
    pool, backend = pausable_pool(ParallelPyEnvironment, reset_timeout=5.0)
    with pool:
        backend.plan(Hang(1), Finish(), Pass(60.0), Finish())
        error = failure_of(pool.reset)
    assert (WorkerTimeout, 1) == (type(error), error.worker)


def test_a_suspended_start_does_not_time_out():
    backend = Pausable()
    backend.plan(Pass(2.0), Stand(), Pass(2.0), Start(0), Start(0))
    with ParallelPyEnvironment(
        [CountingEnv] * 2, num_workers=2, backend=backend, start_timeout=5.0
    ) as pool:
        assert 2 == pool.num_workers


@pytest.mark.parametrize("serially", [True, False])
def test_a_start_suspended_while_processes_start_does_not_time_out(serially):
    backend = Pausable()
    backend.to_start = 3600.0
    starts = [Start(0), Pass(2.0), Start(1)] if serially else [Start(0), Start(1)]
    backend.plan(Pass(2.0), *starts)
    with ParallelPyEnvironment(
        [CountingEnv] * 2,
        num_workers=2,
        backend=backend,
        start_timeout=5.0,
        start_serially=serially,
    ) as pool:
        assert 2 == pool.num_workers


@pytest.mark.parametrize("to_start", [0.0, 3600.0])
def test_a_suspended_restart_does_not_time_out(to_start):
    pool, backend = pausable_pool(start_timeout=5.0, on_worker_failure=RestartPolicy())
    backend.to_start = to_start
    with pool:
        pool.send([0, 0])
        backend.plan(Finish((0,)), Die(1))
        cut = pool.recv()
        pool.send([0, 0])
        backend.plan(Finish((0,)), Pass(2.0), Stand(), Pass(2.0), Start(0), Finish())
        batch = pool.recv()
        restarts = pool.statistics().restarts

    assert 1 == int(cut.time_step.is_last().sum())
    assert 2 == len(batch.env_ids)
    assert 1 == restarts
