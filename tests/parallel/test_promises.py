"""What envkit promises of its pools, each promise with the test that decides it.

The tests about crashes, timeouts, restarts and the parent's end have files of their
own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment, RestartPolicy
from envkit.distributed.links import linked
from envkit.errors import CallOrderError, ClosedError, WorkerError
from envkit.parallel.backends.inline import InlineBackend
from envkit.parallel.backends.process import ProcessBackend
from envkit.parallel.backends.thread import ThreadBackend
from envkit.testing import CountingEnv, check_trace
from tests import residue
from tests.parallel.trouble import (
    ENDS,
    PROMPTLY,
    Numbered,
    Troubled,
    fail_within,
    failure_of,
    late,
    masked,
    numbers,
    plan,
    pool_of,
    raises,
    row_of,
    wrong_rows,
)
from tests.waiting import is_running, until

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]

ROOT = Path(__file__).parents[2]
ALWAYS = RestartPolicy(max_restarts=10_000, backoff=0.0)


# P1: every action gets exactly one answer, its own.


class Uneven(Troubled):
    """Takes for each step another time, and sometimes fails in one of many ways.

    The action says what happens: it is the fault schedule, so that it replays.
    """

    def _step(self, action):
        fault = int(action) % 211
        if fault < 4:
            [ENDS["SIGKILL"][0], ENDS["exit 3"][0], raises(ValueError, "no"), late][
                fault
            ]()
        time.sleep(int(action) % 13 / 20_000)
        return super()._step(action)


class Ledger:
    """Keeps account of an asynchronous pool: what was sent, and what came for it."""

    def __init__(self, pool, seed):
        self.pool = pool
        self.rng = np.random.default_rng(seed)
        self.sent = {}
        self.wrong = []
        self.answered = self.cut = self.asked = 0
        pool.reset_async()
        batch = pool.recv()
        self.before = {
            env: row_of(batch.time_step, index)
            for index, env in enumerate(batch.env_ids.tolist())
        }

    @property
    def idle(self):
        return [env for env in self.before if env not in self.sent]

    def send(self):
        chosen = self.rng.permutation(self.idle)
        chosen = chosen[: self.rng.integers(1, len(chosen) + 1)]
        actions = self.rng.integers(10**9, size=len(chosen))
        self.pool.send(actions, chosen)
        self.sent.update(zip(chosen.tolist(), actions.tolist(), strict=True))
        self.asked += len(chosen)

    def receive(self):
        count = int(self.rng.integers(1, len(self.sent) + 1))
        batch = self.pool.recv(count)
        if count != len(set(batch.env_ids.tolist())):
            self.wrong.append((count, batch.env_ids))
        for index, env in enumerate(batch.env_ids.tolist()):
            self._check(env, row_of(batch.time_step, index))

    def _check(self, env, now):
        was, action = self.before[env], self.sent.pop(env)
        # The end of a cut episode: no true step has no reward.
        is_cut = bool(now.is_last()) and float(now.reward) == 0.0
        marks = [True] if is_cut else [False, *[True] * bool(was.is_last())]
        found = [
            check_trace(was, action, now, repaired=mark, env_id=env) for mark in marks
        ]
        self.wrong += found[:1] if all(found) else []
        self.before[env] = now
        self.answered += 1
        self.cut += is_cut


@pytest.mark.parametrize("workers", [1, 3])
def test_every_action_gets_exactly_its_own_answer(workers):
    makers = [
        functools.partial(Uneven, env, steps_per_episode=(4, 9)) for env in range(6)
    ]
    with AsyncParallelPyEnvironment(
        makers,
        num_workers=workers,
        start_method="fork",
        step_timeout=0.3,
        on_worker_failure=ALWAYS,
    ) as pool:
        ledger = Ledger(pool, seed=workers)
        # Until all kinds of faults have happened.
        while min(ledger.answered / 100, ledger.cut, restarts_of(pool)) < 5:
            if ledger.idle:
                ledger.send()
            ledger.receive()
        while ledger.sent:
            ledger.receive()
        with pytest.raises(CallOrderError):
            pool.recv()

    assert [] == ledger.wrong
    assert ledger.asked == ledger.answered


def restarts_of(pool):
    return pool.statistics().restarts


# P2: no call waits for somebody who is gone.


@pytest.mark.parametrize(
    ("number", "start_method"),
    [
        (signal.SIGKILL, "spawn"),
        (signal.SIGKILL, "fork"),
        (signal.SIGSEGV, "fork"),
        (signal.SIGTERM, "fork"),
        # Not SIGHUP, which is ignored below whatever was started with nohup.
        (signal.SIGUSR1, "fork"),
    ],
)
def test_a_waiting_call_notices_a_kill_at_once(number, start_method):
    with pool_of(2, workers=2, start_method=start_method) as pool:
        pool.reset()
        pid = pool.workers[1].pid
        plan(pool, 1, "step", late)
        killed = []

        def kill():
            time.sleep(0.1)  # whichever comes first, the call must end
            killed.append(time.monotonic())
            os.kill(pid, number)

        killer = threading.Thread(target=kill)
        killer.start()
        error = failure_of(pool.step, numbers(1, 2))
        took = time.monotonic() - killed[0]
        killer.join()

    assert (1, signal.Signals(number).name) == (error.worker, error.signal)
    assert took < PROMPTLY


def test_recv_notices_a_lost_worker():
    makers = [functools.partial(Troubled, env) for env in range(3)]
    with AsyncParallelPyEnvironment(makers, num_workers=3, start_method="fork") as pool:
        pool.reset_async()
        pool.recv()
        pool.call("plan", "step", ENDS["SIGKILL"][0], env_ids=[1])
        pool.send(numbers(1, 2, 3))
        error = failure_of(pool.recv)
        rest = pool.recv()

    assert (1, (1,)) == (error.worker, error.envs)
    assert {0, 2} == set(rest.env_ids.tolist())


# P5: nothing is left.


def open_things():
    return residue.Residue.now()


def test_opening_and_closing_many_times_leaves_nothing():
    for _ in range(2):
        with pool_of(1):
            pass
    gc.collect()
    before = open_things()
    for turn in range(12):
        with pool_of(2, workers=1 + turn % 2) as pool:
            pool.reset()
            pool.step(numbers(1, 2))
            if turn % 3 == 0:
                plan(pool, 0, "step", ENDS["SIGKILL"][0])
                failure_of(pool.step, numbers(3, 4))
    del pool

    assert {} == residue.left_behind(before)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_a_referenced_closed_pool_holds_no_resources(backend):
    before = open_things()
    pool = pool_of(2, backend=backend)
    last = pool.reset()
    pool.close()
    left = residue.left_behind(before)

    assert {} == left
    assert [0, 0] == last.step_type.tolist()
    assert 2 == pool.batch_size


def test_no_named_shared_memory_exists_while_a_pool_is_open():
    before = residue.shared_names()
    with pool_of(2) as pool:
        pool.reset()
        # That of other tests that run at the same time goes.
        assert until(lambda: residue.shared_names() <= before)


def test_restarts_leak_nothing():
    with pool_of(2, on_worker_failure=ALWAYS) as pool:
        pool.reset()
        pool.step(numbers(1, 2))
        counts = []
        for _ in range(10):
            plan(pool, 0, "step", ENDS["SIGKILL"][0])
            pool.step(numbers(3, 4))
            pool.step(numbers(3, 4))
            counts.append(len(os.listdir("/proc/self/fd")))

    assert 1 == len(set(counts))


# P6: what was returned never changes.


# P12: errors come from where they come from.


def test_a_nested_pool_reports_its_own_workers():
    with pool_of(1, start_method="spawn") as pool:
        error = failure_of(pool.call, "do", fail_within)
    assert "EnvironmentRaised" in str(error) or "WorkerCrashed" in str(error)
    assert "was killed by SIGKILL while env 0 was in step()" in str(error)


# P13: the caller's objects are the caller's.


def test_the_callers_process_state_is_unchanged():
    makers = [functools.partial(Troubled, env) for env in range(3)]
    actions, mask, env_ids = numbers(1, 2, 3), masked(3, 1), [0, 2]
    seeds, worker_env, argument = [4, 5, 6], {"A": "1"}, {"list": [1, 2]}
    policy = RestartPolicy()
    given = [actions, mask, env_ids, seeds, worker_env, argument, policy]
    before = copy.deepcopy(given), list(makers), dict(os.environ), list(sys.path)
    variables = dict(vars(Troubled))
    with ParallelPyEnvironment(
        makers,
        num_workers=2,
        start_method="fork",
        worker_env=worker_env,
        on_worker_failure=policy,
    ) as pool:
        pool.seed(seeds)
        pool.reset()
        for _ in range(20):
            pool.step(actions)
            pool.step(actions, mask)
            pool.reset(mask)
            pool.render(env_ids=env_ids)
            pool.call("do", change, argument)
        pool.set_state(pool.get_state())

    after = given, list(makers), dict(os.environ), list(sys.path)
    assert all(
        np.array_equal(one, other)
        for one, other in zip(before[0][:2], given[:2], strict=True)
    )
    assert before[0][2:] == given[2:]
    assert before[1:] == after[1:]
    assert variables == dict(vars(Troubled))


def change(argument):
    argument["list"].append(3)
    argument["more"] = 1


# P14: close works from everywhere.


STATES = {
    "new": lambda pool: None,
    "reset": lambda pool: pool.reset(),
    "stepped": lambda pool: pool.step(numbers(1, 2, 3)),
    "some reset": lambda pool: pool.reset(masked(3, 1)),
    "raised": lambda pool: failing(pool, raises(ValueError, "no")),
    "crashed": lambda pool: failing(pool, ENDS["SIGKILL"][0]),
    "asked": lambda pool: pool.envs[0].call("meet"),
    "step owed": lambda pool: pool.envs[0].step(1, blocking=False),
    "stopped": lambda pool: os.kill(pool.workers[0].pid, signal.SIGSTOP),
    "killed": lambda pool: os.kill(pool.workers[0].pid, signal.SIGKILL),
    "busy": lambda pool: (
        plan(pool, 0, "meet", late),
        pool.envs[0].call("meet"),
    ),
}


def failing(pool, trouble):
    plan(pool, 0, "step", trouble)
    failure_of(pool.step, numbers(1, 2, 3))


@pytest.mark.parametrize("state", STATES)
def test_close_works_from_any_state_and_in_time(state):
    pool = pool_of(3, workers=2)
    if state != "new":
        pool.reset()
    STATES[state](pool)
    pids = [worker.pid for worker in pool.workers if worker.pid]
    began = time.monotonic()
    pool.close(grace=0.3)
    took = time.monotonic() - began
    pool.close()
    with pytest.raises(ClosedError):
        pool.reset()

    assert took < 0.3 + PROMPTLY
    assert [] == [pid for pid in pids if is_running(pid)]


def test_an_unclosed_pool_warns_once_and_is_cleaned_up():
    pool = pool_of(2)
    pool.reset()
    pids = [worker.pid for worker in pool.workers]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del pool
        gc.collect()

    assert [
        (
            ResourceWarning,
            "A ParallelPyEnvironment was not closed. Use it in a with statement, or "
            "call close().",
        )
    ] == [(each.category, str(each.message)) for each in caught]
    assert until(lambda: not any(map(is_running, pids)))


# What cannot travel.


# Threads.


def test_closing_ends_a_step_in_another_thread():
    pool = pool_of(2)
    pool.reset()
    plan(pool, 0, "step", late)
    with ThreadPoolExecutor(1) as threads:
        stepping = threads.submit(pool.step, numbers(1, 2))
        # The one that is not late has answered: the other thread waits.
        assert until(lambda: not pool._pool.slab.owing_rows()[1])
        began = time.monotonic()
        pool.close(grace=0.2)
        took = time.monotonic() - began
        error = stepping.exception(timeout=PROMPTLY)

    assert took < 0.2 + PROMPTLY
    assert isinstance(error, ClosedError | WorkerError)


def test_many_threads_can_close_at_once():
    for _ in range(5):
        pool = pool_of(2)
        pool.reset()
        barrier = threading.Barrier(4)

        def close(pool=pool, barrier=barrier):
            barrier.wait()
            pool.close()
            return pool.__class__.__name__

        with ThreadPoolExecutor(4) as threads:
            done = [threads.submit(close) for _ in range(4)]
            assert [None] * 4 == [each.exception(timeout=PROMPTLY) for each in done]


class Telling(CountingEnv):
    """Sends a signal to a process when it is closed."""

    def __init__(self, pid):
        super().__init__()
        self.pid = pid

    def close(self):
        os.kill(self.pid, signal.SIGUSR1)


@pytest.mark.own_process
def test_a_signal_handler_can_close_during_close():
    backend = ProcessBackend("fork")
    maker = functools.partial(Telling, os.getpid())
    reports = []
    before = signal.signal(
        signal.SIGUSR1, lambda *_: reports.append(backend.close(PROMPTLY))
    )
    try:
        with ParallelPyEnvironment([maker], backend=backend) as pool:
            pool.reset()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert [[]] == reports


# Ctrl-C.


class Interrupted:
    """A backend that is interrupted in the `at`-th of its calls, before or after it."""

    def __init__(self, backend, calls, before):
        self._backend = backend
        self._calls = calls
        self._before = before
        self.left = -1
        self.count = 0

    def __getattr__(self, name):
        found = getattr(self._backend, name)
        if name not in self._calls:
            return found

        def call(*args):
            self.count += 1
            self.left -= 1
            if self.left == 0 and self._before:
                raise KeyboardInterrupt
            result = found(*args)
            if self.left == 0:
                raise KeyboardInterrupt
            return result

        return call


def make_backend(name):
    return {
        "inline": InlineBackend,
        "thread": ThreadBackend,
        "process": functools.partial(ProcessBackend, "fork"),
        "linked": functools.partial(linked, ["envkit worker {address}"] * 2),
    }[name]()


WAITS = ("wait_events", "dispatch", "request")


def play_interrupted(pool, backend, at, order):
    """Interrupts the `at`-th wait of a few calls; returns what is wrong afterwards.

    Who was interrupted does not know whether its environments have moved, so what
    comes next is compared with where they stand.
    """
    wrong = []
    interrupted = 0
    backend.left = at
    calls = {
        "step": lambda: pool.step(numbers(1, 2, 3)),
        "masked": lambda: pool.step(numbers(4, 5, 6), masked(3, 0, 2)),
        "reset": lambda: pool.reset(masked(3, 1)),
        "call": lambda: pool.call("meet"),
        "render": lambda: pool.render(env_ids=[2]),
        "state": pool.get_state,
    }
    for name in order:
        try:
            calls[name]()
        except KeyboardInterrupt:
            interrupted += 1
            break
    # One step may find rows that moved already, or begins what ended meanwhile.
    before = pool.step(numbers(7, 8, 9))
    for step in range(3):
        actions = numbers(step + 10, step + 20, step + 30)
        after = pool.step(actions)
        wrong += wrong_rows(before, actions, after)
        before = after
    asked = pool.call("access_number", env_ids=[2, 0])
    if asked != [2, 0]:
        wrong.append(asked)
    return wrong, interrupted


@pytest.mark.parametrize("name", ["inline", "thread", "process", "linked"])
@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_at_any_wait_leaves_the_pool_usable_and_never_off_by_one(
    name, before
):
    order = ["step", "masked", "call", "reset", "render", "state", "step"]
    backend = Interrupted(make_backend(name), WAITS, before)
    with pool_of(3, workers=2, make=Numbered, backend=backend) as pool:
        pool.reset()
        wrong, interrupts = [], 0
        for turn in range(len(order)):
            for at in range(1, 5):
                found, hit = play_interrupted(
                    pool, backend, at, order[turn:] + order[:turn]
                )
                wrong += found
                interrupts += hit

    assert [] == wrong
    assert len(order) * 4 == interrupts


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_while_a_worker_is_being_replaced_does_not_lose_it(before):
    backend = Interrupted(ProcessBackend("fork"), ("wait_events", "dispatch"), before)
    hits, wrong = 0, []
    with pool_of(2, make=Numbered, backend=backend, on_worker_failure=ALWAYS) as pool:
        pool.reset()
        for at in range(1, 7):
            plan(pool, 1, "step", ENDS["SIGKILL"][0])
            backend.left = at
            for _ in range(3):
                try:
                    pool.step(numbers(1, 2))
                except KeyboardInterrupt:
                    hits += 1
            backend.left = -1
            pool.step(numbers(3, 4))
            last = pool.step(numbers(3, 4))
            after = pool.step(numbers(5, 6))
            wrong += wrong_rows(last, numbers(5, 6), after)
            if [0, 1] != pool.call("access_number"):
                wrong.append(at)

    assert [] == wrong
    assert hits >= 5


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_at_any_wait_of_the_construction_leaves_nothing(before):
    seen = open_things()
    interrupts, at = 0, 0
    while at == interrupts:
        at += 1
        backend = Interrupted(
            ProcessBackend("fork"), ("wait_events", "start", "bind"), before
        )
        backend.left = at
        try:
            pool_of(2, make=Numbered, backend=backend).close()
        except KeyboardInterrupt:
            interrupts += 1

    assert interrupts >= 3
    del backend
    assert {} == residue.left_behind(seen)


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupted_recv_loses_no_answer_and_returns_none_twice(before):
    makers = [functools.partial(Numbered, env) for env in range(4)]
    backend = Interrupted(ProcessBackend("fork"), ("wait_events", "dispatch"), before)
    with AsyncParallelPyEnvironment(makers, num_workers=2, backend=backend) as pool:
        pool.reset_async()
        batch = pool.recv()
        stands = {
            env: row_of(batch.time_step, index)
            for index, env in enumerate(batch.env_ids.tolist())
        }
        wrong, interrupts = [], 0
        rng = np.random.default_rng(5)
        for turn in range(20_000):
            # Where the workers are quick there is little to wait for.
            if turn >= 120 and interrupts > 10:
                break
            actions = rng.integers(10**9, size=4)
            pool.send(actions)
            # What has come already needs no second wait, so most are the first.
            backend.left = 1 + turn % 4 // 3
            came = []
            while len(came) < 4:
                try:
                    batch = pool.recv(count=1)
                except KeyboardInterrupt:
                    interrupts += 1
                    continue
                env = int(batch.env_ids[0])
                now = row_of(batch.time_step, 0)
                wrong.append(check_trace(stands[env], actions[env], now, env_id=env))
                stands[env] = now
                came.append(env)
            if sorted(came) != [0, 1, 2, 3]:
                wrong.append(came)
            backend.left = -1

    assert [""] == list(set(wrong))
    assert interrupts > 10


class Timer:
    """Presses Ctrl-C after a while, wherever this thread is then."""

    def __init__(self):
        self.is_set = False
        self.count = 0

    def __enter__(self):
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *unused):
        self.rest()
        signal.signal(signal.SIGALRM, self._before)

    def _ring(self, *unused):
        # It may come late: then it would interrupt the test and not the pool.
        if self.is_set:
            self.is_set = False
            self.count += 1
            signal.raise_signal(signal.SIGINT)

    def set(self, seconds):
        self.is_set = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def rest(self):
        self.is_set = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def until_it_rings(timer, calls, rng):
    """Makes calls until Ctrl-C, which comes in this function at the latest.

    In a function, because Python 3.13.0 takes what a signal raises at the end of a loop
    out of the `try` that is around the loop, and out of each `with`.
    """
    timer.set(float(rng.uniform(1e-5, 2e-3)))
    while timer.is_set:
        calls[rng.integers(len(calls))]()
    # A signal that was sent waits for a jump back or a call, since Python 3.12.
    for _ in range(100):
        pass


def calls_of(pool, what):
    """Returns what may be interrupted."""
    steps = [
        lambda: pool.step(numbers(1, 2, 3)),
        lambda: pool.step(numbers(4, 5, 6), masked(3, 0, 2)),
        lambda: pool.reset(masked(3, 1)),
    ]
    questions = [
        lambda: pool.call("meet"),
        lambda: pool.call("do", len, b"x" * 300_000),
        pool.get_state,
        lambda: pool.render(env_ids=[2]),
    ]
    crashes = [
        lambda: pool.call("plan", "step", ENDS["SIGKILL"][0], env_ids=[1]),
        lambda: pool.call("plan", "step", raises(ValueError, "no"), env_ids=[2]),
    ]
    return {
        "steps": steps,
        "questions": steps + questions,
        "crashes": steps + crashes,
    }[what]


# One that comes while Python calls a destructor is only told, as Python does it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.own_process
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("inline", "steps"),
        ("thread", "steps"),
        ("thread", "questions"),
        ("process", "steps"),
        ("process", "questions"),
        ("process", "crashes"),
        ("linked", "steps"),
        ("linked", "questions"),
        ("linked", "crashes"),
    ],
)
def test_ctrl_c_at_any_moment_leaves_the_pool_usable(name, what):
    rng = np.random.default_rng(3)
    wrong, compared, slowest = [], 0, 0.0
    # Nearly all of the time goes into starting linked workers again.
    rounds = 16 if (name, what) == ("linked", "crashes") else 100
    with (
        pool_of(
            3,
            workers=2,
            make=Numbered,
            backend=make_backend(name),
            on_worker_failure=ALWAYS,
        ) as pool,
        Timer() as timer,
    ):
        pool.reset()
        calls = calls_of(pool, what)
        for turn in range(rounds):
            # On a busy machine an alarm may come before a first call has begun.
            if what == "crashes" and turn % 8 == 0:
                calls[-2]()
            with contextlib.suppress(KeyboardInterrupt):
                until_it_rings(timer, calls, rng)
            timer.rest()
            began = time.monotonic()
            # What was planned happens now at the latest.
            for _ in range(2 * (what == "crashes")):
                pool.step(numbers(7, 8, 9))
            before = pool.step(numbers(7, 8, 9))
            # Or one step later, if the plan reached its worker while that ran.
            is_whole = not pool.repaired.any()
            actions = rng.integers(10**9, size=3)
            after = pool.step(actions)
            if is_whole and not pool.repaired.any():
                compared += 1
                wrong += wrong_rows(before, actions, after)
            if [2, 0] != (asked := pool.call("access_number", env_ids=[2, 0])):
                wrong.append(asked)
            slowest = max(slowest, time.monotonic() - began)
        restarts = pool.statistics().restarts

    assert [] == wrong
    assert 0.8 * rounds - 5 < compared
    assert slowest < PROMPTLY
    assert rounds == timer.count
    assert (what == "crashes") == (restarts > 0)


@pytest.mark.own_process
@pytest.mark.usefixtures("interruptible")
def test_a_half_sent_request_is_finished_by_the_next_call():
    with pool_of(2, make=Numbered) as pool, Timer() as timer:
        before = pool.reset()
        pid = pool.workers[1].pid
        os.kill(pid, signal.SIGSTOP)

        def ask_too_much():
            timer.set(0.2)
            pool.call("do", len, b"x" * 5_000_000)

        with pytest.raises(KeyboardInterrupt):
            ask_too_much()
        os.kill(pid, signal.SIGCONT)
        began = time.monotonic()
        after = pool.step(numbers(1, 2))
        answers = pool.call("access_number")
        took = time.monotonic() - began

    assert [] == wrong_rows(before, numbers(1, 2), after)
    assert [0, 1] == answers
    assert took < PROMPTLY


# P11: what a worker loads.


LOADS = """
import sys
from envkit import ParallelPyEnvironment
from envkit.testing import CountingEnv

def loaded():
    import sys
    return sorted({name.partition(".")[0] for name in sys.modules})

class Telling(CountingEnv):
    def loaded(self):
        return loaded()

with ParallelPyEnvironment([Telling], start_method="spawn") as env:
    for names in (loaded(), env.call("loaded")[0]):
        packages = {"tensorflow", "torch", "jax", "gym", "gymnasium", "pytest", "PIL"}
        print(sorted(packages & set(names)), "multiprocessing" in names)
"""


def test_parent_and_worker_load_no_unneeded_module(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(LOADS, "utf-8")
    finished = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert "" == finished.stderr
    assert ["[] False", "[] False"] == finished.stdout.splitlines()
