"""What `RestartPolicy` makes of environments and workers that fail again and again."""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    ParallelPyEnvironment,
    RestartPolicy,
)
from envkit.errors import (
    ConstructorError,
    EnvironmentRaised,
    WorkerCrashed,
    WorkerTimeout,
)
from envkit.parallel.backends.inline import InlineBackend
from envkit.parallel.backends.process import ProcessBackend
from envkit.parallel.pool import Pool, PoolOptions
from envkit.parallel.slab_layout import RESET, STEP
from envkit.specs import ArraySpec
from envkit.testing import ManualClock, TracingEnv, check_trace
from tests.parallel.environments import pair_of
from tests.parallel.fake_backend import Die, FakeBackend
from tests.parallel.trouble import (
    ENDS,
    Troubled,
    failure_of,
    first_line,
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

ALWAYS = RestartPolicy(max_restarts=10_000, backoff=0.0)
LENGTHS = (3, 5, 4)


def crash_at(count, how, env, rows):
    """Makes the environment `env` of every pool fail in each `count`-th step."""
    makers = [
        functools.partial(Troubled, row, steps_per_episode=LENGTHS)
        for row in range(rows)
    ]
    trouble = raises(ValueError, "no") if how == "raise" else ENDS[how][0]
    makers[env] = functools.partial(
        Troubled, env, "step", trouble, count, steps_per_episode=LENGTHS
    )
    return makers


class Played:
    """What a pool returned, step by step, and what was wrong with it."""

    def __init__(self, pool, steps, seed=0):
        self.wrong = []
        # For each row, everything that it returned, as bytes.
        self.streams = [[] for _ in range(pool.batch_size)]
        self.repaired = np.zeros(pool.batch_size, int)
        self._pool = pool
        self._restarts = self._count_restarts()
        rng = np.random.default_rng(seed)
        self._standing = pool.reset()
        self._note(self._standing)
        for _ in range(steps):
            self._step(rng.integers(10**9, size=pool.batch_size))

    def _count_restarts(self):
        return [worker.restarts for worker in self._pool.workers]

    def _step(self, actions):
        pool = self._pool
        after = pool.step(actions)
        restarts = self._count_restarts()
        is_new = np.repeat(np.not_equal(restarts, self._restarts), 2)
        self._restarts = restarts
        self._check(self._standing, actions, after, pool.repaired, is_new)
        self._note(after)
        self.repaired += pool.repaired
        last = after.is_last()
        standing = after
        if pool.autoreset is AutoReset.DISABLED and last.any():
            standing = pool.reset(last)
        elif pool.autoreset is AutoReset.SAME_STEP:
            standing = pool.current_time_step()
        if standing is not after:
            ended = np.flatnonzero(last)
            self._check(after, None, standing, 0 * last, is_new, ended)
            self._note(standing, ended)
        self._standing = standing

    def _check(self, before, actions, after, repaired, is_new, rows=None):
        for row in range(len(is_new)) if rows is None else rows:
            was, now = row_of(before, row), row_of(after, row)
            action = None if actions is None else actions[row]
            told = [bool(repaired[row])]
            if is_new[row] and was.is_last():
                # A new environment's first, instead of the first that was due.
                told.append(True)
            found = [
                check_trace(was, action, now, repaired=mark, env_id=row)
                for mark in told
            ]
            if all(found):
                self.wrong.append(found[0])

    def _note(self, batch, rows=None):
        for row in range(len(self.streams)) if rows is None else rows:
            one = row_of(batch, row)
            leaves = [*one[:3], *one.observation.values()]
            told = b"".join(np.asarray(leaf).tobytes() for leaf in leaves)
            self.streams[row].append(told)


@functools.cache
def twin(order, steps):
    """Plays the same environments without a fault."""
    makers = crash_at(10**9, "raise", 2, 4)
    with ParallelPyEnvironment(makers, backend="inline", autoreset=order) as pool:
        return Played(pool, steps).streams


@pytest.mark.parametrize("order", list(AutoReset))
@pytest.mark.parametrize("how", ["SIGKILL", "raise"])
def test_restarts_keep_streams_grammatical_and_other_rows_unaffected(how, order):
    steps = {"raise": 120, "SIGKILL": 60}[how]
    with ParallelPyEnvironment(
        crash_at(7, how, 2, 4),
        num_workers=2,
        start_method="fork",
        autoreset=order,
        on_worker_failure=ALWAYS,
    ) as pool:
        played = Played(pool, steps)
        restarts = [worker.restarts for worker in pool.workers]

    untouched = [0, 1, 3] if how == "raise" else [0, 1]
    assert [] == played.wrong
    assert [twin(order, steps)[row] for row in untouched] == [
        played.streams[row] for row in untouched
    ]
    assert [0, 0] == played.repaired[:2].tolist()
    # The faults really happened, and cut episodes of everybody in that worker.
    assert 0 == restarts[0]
    assert steps // 12 < restarts[1] < steps // 4
    assert steps // 20 < played.repaired[2]
    assert (how == "raise") == (played.repaired[3] == 0)


@pytest.mark.parametrize("order", list(AutoReset))
def test_rebuilding_after_an_exception_is_equal_on_every_backend(order):
    streams = {}
    for backend in ("inline", "thread", "process"):
        with ParallelPyEnvironment(
            crash_at(7, "raise", 2, 4),
            num_workers=2,
            backend=backend,
            start_method="fork",
            autoreset=order,
            on_worker_failure=ALWAYS,
        ) as pool:
            streams[backend] = Played(pool, 100).streams

    assert streams["inline"] == streams["thread"] == streams["process"]


def policy_pool(count, *, max_restarts=9, backoff=0.0, **options):
    policy = RestartPolicy(max_restarts=max_restarts, backoff=backoff)
    return pool_of(count, on_worker_failure=policy, **options)


def test_a_lost_episode_ends_as_a_marked_truncation():
    with policy_pool(2) as pool:
        pool.reset()
        before = pool.step(numbers(1, 2))
        plan(pool, 1, "step", ENDS["SIGKILL"][0])
        cut = pool.step(numbers(3, 4))
        marked = pool.repaired
        first = pool.step(numbers(5, 6))
        marked_after = pool.repaired

    assert [1, 2] == cut.step_type.tolist()
    assert (0.0, 1.0) == (float(cut.reward[1]), float(cut.discount[1]))
    assert all(
        np.array_equal(leaf[1], cut.observation[name][1])
        for name, leaf in before.observation.items()
    )
    assert [False, True] == marked.tolist()
    assert [False, False] == marked_after.tolist()
    assert [1, 0] == first.step_type.tolist()
    assert 0 == int(first.observation["episode"][1])


def test_a_loss_before_a_first_is_invisible():
    with policy_pool(2, make=functools.partial(Troubled, steps_per_episode=2)) as pool:
        pool.reset()
        pool.step(numbers(1, 2))
        last = pool.step(numbers(3, 4))
        plan(pool, 1, "reset", ENDS["SIGSEGV"][0])
        first = pool.step(numbers(5, 6))
        marked = pool.repaired
        again = pool.step(numbers(7, 8))
        restarts = pool.statistics().restarts

    assert last.is_last().all()
    assert first.is_first().all()
    assert [False, False] == marked.tolist()
    assert [] == wrong_rows(first, numbers(7, 8), again)
    assert 1 == restarts


def test_a_reset_that_crashes_returns_the_first_of_the_new_environment():
    with policy_pool(2) as pool:
        pool.reset()
        pool.step(numbers(1, 2))
        plan(pool, 1, "reset", ENDS["exit 3"][0])
        first = pool.reset()
        marked = pool.repaired
        after = pool.step(numbers(3, 4))

    assert first.is_first().all()
    assert [False, False] == marked.tolist()
    assert [1, 0] == first.observation["episode"].tolist()
    assert [] == wrong_rows(first, numbers(3, 4), after)


def test_an_idle_row_owes_a_last_after_its_workers_crash():
    with policy_pool(3, workers=1) as pool:
        before = pool.reset()
        plan(pool, 0, "step", ENDS["SIGKILL"][0])
        cut = pool.step(numbers(1, 2, 3), masked(3, 0))
        marked = pool.repaired
        then = pool.step(numbers(4, 5, 6), masked(3, 1))
        marked_then = pool.repaired
        # The third is asked for a reset instead: that is no step of its episode.
        first = pool.reset(masked(3, 2))

    assert [2, 0, 0] == cut.step_type.tolist()
    assert [True, False, False] == marked.tolist()
    assert [2, 2, 0] == then.step_type.tolist()
    assert marked_then[1]
    assert [] == wrong_rows(before, None, first, [2]) or (
        0 == int(first.observation["episode"][2])
    )


def test_an_idle_worker_that_was_killed_is_replaced_by_the_next_call():
    with policy_pool(2) as pool:
        pool.reset()
        pool.step(numbers(1, 2))
        pid = pool.workers[1].pid
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: not is_running(pid))
        cut = pool.step(numbers(3, 4))
        first = pool.step(numbers(5, 6))
        after = pool.step(numbers(7, 8))

    assert [1, 2] == cut.step_type.tolist()
    assert [1, 0] == first.step_type.tolist()
    assert [] == wrong_rows(first, numbers(7, 8), after)


def test_a_call_that_crashes_a_worker_raises_and_the_stream_is_repaired():
    with policy_pool(2) as pool:
        pool.reset()
        pool.step(numbers(1, 2))
        plan(pool, 1, "meet", ENDS["exit 0"][0])
        error = failure_of(pool.call, "meet")
        cut = pool.step(numbers(3, 4))
        marked = pool.repaired
        first = pool.step(numbers(5, 6))
        answers = pool.call("meet")
        pids = [worker.pid for worker in pool.workers]

    assert (WorkerCrashed, 1, "call('meet')") == (
        type(error),
        error.worker,
        error.command,
    )
    assert [1, 2] == cut.step_type.tolist()
    assert [False, True] == marked.tolist()
    assert [1, 0] == first.step_type.tolist()
    assert pids == answers


def test_an_environment_that_raises_is_rebuilt_in_its_worker():
    with policy_pool(2, workers=1) as pool:
        before = pool.reset()
        pids = pool.call("meet")
        plan(pool, 1, "step", raises(ValueError, "no"))
        cut = pool.step(numbers(1, 2))
        marked = pool.repaired
        first = pool.step(numbers(3, 4))
        pids_after = pool.call("meet")

    assert [] == wrong_rows(before, numbers(1, 2), cut, [0])
    assert [False, True] == marked.tolist()
    assert [] == wrong_rows(cut, numbers(3, 4), first)
    assert pids == pids_after


# Lives that go from bad to worse.


class Lives(Troubled):
    """Has for each of its lives another trouble; a file counts the lives."""

    def __init__(self, env_id, folder, lives, **options):
        path = Path(folder) / str(env_id)
        with path.open("ab") as file:
            file.write(b".")
        life = path.stat().st_size - 1
        plan = lives[life] if life < len(lives) else ()
        super().__init__(env_id, *plan, **options)


def lives_in(folder, env_id):
    return (Path(folder) / str(env_id)).stat().st_size


class Wider(Lives):
    """Has in its second life another observation."""

    def observation_spec(self):
        spec = super().observation_spec()
        folder, env_id = self._where_to_look
        if lives_in(folder, env_id) == 2:
            spec["more"] = ArraySpec((3,), np.float32)
        return spec

    def __init__(self, env_id, folder, lives, **options):
        self._where_to_look = folder, env_id
        super().__init__(env_id, folder, lives, **options)


LIVES = {
    "constructor raises": ("constructor", raises(ValueError, "no")),
    "constructor crashes": ("constructor", ENDS["SIGSEGV"][0]),
    "constructor exits": ("constructor", ENDS["exit 0"][0]),
    "reset raises": ("reset", raises(ValueError, "no")),
    "reset crashes": ("reset", ENDS["SIGKILL"][0]),
    "first step crashes": ("step", ENDS["SIGABRT"][0]),
}


@pytest.mark.parametrize(
    ("bad", "first", "backoff"),
    [
        *((bad, "raise", 0.0) for bad in LIVES),
        ("constructor raises", "SIGKILL", 0.0),
        ("reset crashes", "SIGKILL", 0.0),
        ("constructor crashes", "raise", 0.02),
    ],
)
def test_a_replacement_that_fails_too_is_replaced(bad, first, backoff, tmp_path):
    trouble = raises(KeyError, "x") if first == "raise" else ENDS[first][0]
    lives = [("step", trouble, 2), LIVES[bad], LIVES[bad], LIVES[bad], ()]
    makers = [
        functools.partial(Lives, 0, str(tmp_path), []),
        functools.partial(Lives, 1, str(tmp_path), lives),
    ]
    with ParallelPyEnvironment(
        makers,
        num_workers=2,
        start_method="fork",
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=backoff),
    ) as pool:
        wrong, types = [], []
        before = pool.reset()
        for step in range(8):
            actions = numbers(step, step + 1)
            after = pool.step(actions)
            repaired = pool.repaired
            types.append(int(after.step_type[1]))
            wrong += wrong_rows(before, actions, after, [0])
            if not repaired[1]:
                wrong += wrong_rows(before, actions, after, [1])
            before = after
        pids = pool.call("meet")
        alive = [worker.pid for worker in pool.workers]

    again = [2, 0] * 3 if bad == "first step crashes" else []
    assert [] == wrong
    assert [1, 2, 0, *again, 1, 1, 1, 1, 2][:8] == types
    assert 5 == lives_in(tmp_path, 1)
    assert pids == alive


def test_a_replacement_with_other_specs_is_refused_and_ended(tmp_path):
    makers = [functools.partial(Wider, 0, str(tmp_path), [("step", os.abort)])]
    with ParallelPyEnvironment(
        makers,
        start_method="fork",
        on_worker_failure=RestartPolicy(max_restarts=1, backoff=0.0),
    ) as pool:
        pool.reset()
        pool.step(numbers(1))
        error = failure_of(pool.step, numbers(2))
        pid = pool.workers[0].pid
        assert until(lambda: not is_running(pid))

    assert isinstance(error, ConstructorError)
    assert first_line(error).startswith(
        "env 0, built anew in worker 0 by functools.partial("
    )
    assert "is unlike the one before. Its observation spec: " in first_line(error)


def test_a_replacement_with_other_specs_can_be_followed_by_a_good_one(tmp_path):
    makers = [functools.partial(Wider, 0, str(tmp_path), [("step", os.abort)])]
    with ParallelPyEnvironment(
        makers, start_method="fork", on_worker_failure=ALWAYS
    ) as pool:
        pool.reset()
        cut = pool.step(numbers(1))
        first = pool.step(numbers(2))
        after = pool.step(numbers(3))

    assert [2] == cut.step_type.tolist()
    assert [] == wrong_rows(cut, numbers(2), first)
    assert [] == wrong_rows(first, numbers(3), after)
    assert 3 == lives_in(tmp_path, 0)


def test_a_replacement_that_hangs_in_its_constructor_times_out(tmp_path):
    lives = [("step", os.abort), ("constructor", signal.pause), ()]
    makers = [functools.partial(Lives, 0, str(tmp_path), lives)]
    with ParallelPyEnvironment(
        makers, start_method="fork", start_timeout=5.0, on_worker_failure=ALWAYS
    ) as pool:
        pool.reset()
        cut = pool.step(numbers(1))
        first = pool.step(numbers(2))

    assert [] == wrong_rows(cut, numbers(2), first)
    # Where the machine is slow, the third may have been late as well.
    assert 3 <= lives_in(tmp_path, 0)


# Budgets.


def test_past_the_budget_the_crash_is_raised_with_the_reason():
    make = functools.partial(Troubled, where="step", trouble=ENDS["SIGKILL"][0])
    with policy_pool(2, workers=2, make=make, max_restarts=2) as pool:
        pool.reset()
        types = [pool.step(numbers(1, 2)).step_type.tolist() for _ in range(4)]
        error = failure_of(pool.step, numbers(1, 2))
        gone = failure_of(pool.step, numbers(1, 2))

    assert [[2, 2], [0, 0]] * 2 == types
    assert isinstance(error, WorkerCrashed)
    assert "  restarts        2 of 2 within 60 s used up\n" in str(error)
    assert (
        "\nIts RestartPolicy allows no further restart: 2 of 2 within 60 s used up. "
        "What fails so often has a cause that a restart does not cure.\n"
    ) in str(error)
    assert 1 == len(error.also)
    assert first_line(gone).startswith("step() needs worker 0 (pid ")


def test_past_the_budget_the_exception_is_raised_and_the_row_can_be_reset():
    make = functools.partial(
        Troubled, where="step", trouble=raises(KeyError, "x"), at=2
    )
    with policy_pool(2, workers=1, make=make, max_restarts=1) as pool:
        pool.reset()
        types = [pool.step(numbers(1, 2)).step_type.tolist() for _ in range(4)]
        error = failure_of(pool.step, numbers(1, 2))
        first = pool.reset()

    assert [[1, 1], [2, 2], [0, 0], [1, 1]] == types
    assert isinstance(error, EnvironmentRaised)
    assert isinstance(error, KeyError)
    assert "  restarts        1 of 1 within 60 s used up\n" in str(error)
    assert first.is_first().all()


def test_every_worker_has_its_own_budget():
    with policy_pool(3, max_restarts=1) as pool:
        pool.reset()
        for row in range(3):
            plan(pool, row, "step", ENDS["SIGKILL"][0])
            pool.step(numbers(1, 2, 3), masked(3, row))
        plan(pool, 1, "step", ENDS["SIGKILL"][0])
        pool.step(numbers(1, 2, 3), masked(3, 1))
        error = failure_of(pool.step, numbers(1, 2, 3), masked(3, 1))
        after = pool.step(numbers(1, 2, 3), masked(3, 0, 2))

    assert 1 == error.worker
    assert [0, 0] == after.step_type[[0, 2]].tolist()


def test_timeouts_and_crashes_share_one_budget():
    with policy_pool(1, max_restarts=1, step_timeout=5.0) as pool:
        pool.reset()
        plan(pool, 0, "step", ENDS["SIGKILL"][0])
        pool.step(numbers(1))
        pool.step(numbers(1))
        plan(pool, 0, "step", signal.pause)
        error = failure_of(pool.step, numbers(1))

    assert isinstance(error, WorkerTimeout)
    assert "  restarts        1 of 1 within 60 s used up\n" in str(error)


def test_a_constructor_that_never_works_again_uses_up_the_budget(tmp_path):
    lives = [("step", os.abort), *[("constructor", raises(ValueError, "no"))] * 9]
    makers = [
        functools.partial(Lives, 0, str(tmp_path), []),
        functools.partial(Lives, 1, str(tmp_path), lives),
    ]
    with ParallelPyEnvironment(
        makers,
        num_workers=2,
        start_method="fork",
        on_worker_failure=RestartPolicy(max_restarts=3, backoff=0.0),
    ) as pool:
        pool.reset()
        cut = pool.step(numbers(1, 2))
        error = failure_of(pool.step, numbers(3, 4))
        between = pool.current_time_step()
        after = pool.step(numbers(5, 6), masked(2, 0))
        gone = failure_of(pool.step, numbers(7, 8))

    assert [1, 2] == cut.step_type.tolist()
    assert isinstance(error, ConstructorError)
    assert "env_constructors[1] raised ValueError: no in worker 1" in first_line(error)
    assert isinstance(gone, ConstructorError | WorkerCrashed)
    assert [] == wrong_rows(between, numbers(5, 6), after, [0])
    assert 1 + 3 == lives_in(tmp_path, 1)


# Pauses.


class Patient(InlineBackend):
    """Lets a clock run that only moves when somebody waits."""

    def __init__(self, clock):
        super().__init__()
        self.clock = self.now = clock
        self.waited = []

    def wait_events(self, timeout, owing=-1):
        queue = super().wait_events(0, owing)
        if not queue and timeout:
            self.waited.append(timeout)
            self.clock.sleep(timeout)
        return queue


def test_each_pause_is_twice_the_one_before():
    clock = ManualClock()
    built = []

    def make():
        built.append(clock.now())
        return Troubled(0, "reset", raises(ValueError, "no"))

    options = PoolOptions(
        1, on_worker_failure=RestartPolicy(max_restarts=6, backoff=0.5)
    )
    pool = Pool([make], Patient(clock), options)
    pool.run(np.arange(1), RESET)
    pool.close(0.0)

    assert [0.0, 0.0, 0.5, 1.5, 3.5, 7.5, 15.5] == built
    assert isinstance(pool.errors[0], EnvironmentRaised)
    assert "  restarts        6 of 6 within 60 s used up\n" in str(pool.errors[0])


def test_old_restarts_do_not_count():
    clock = ManualClock()
    built = []

    def make():
        built.append(clock.now())
        return Troubled(0, "step", raises(ValueError, "no"))

    policy = RestartPolicy(max_restarts=2, within=10.0, backoff=1.0)
    pool = Pool([make], Patient(clock), PoolOptions(1, on_worker_failure=policy))
    row = np.arange(1)
    pool.run(row, RESET)
    for _ in range(9):
        pool.run(row, STEP)
        pool.run(row, STEP)
        clock.advance(10.0)
    pool.close(0.0)

    assert [0.0] + [10.0 * count for count in range(9)] == built
    assert {} == pool.errors


def test_other_rows_of_an_asynchronous_pool_continue_during_a_pause():
    makers = [functools.partial(Troubled, env) for env in range(3)]
    with AsyncParallelPyEnvironment(
        makers,
        num_workers=3,
        start_method="fork",
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=600.0),
    ) as pool:
        pool.reset_async()
        pool.recv()
        for _ in range(2):  # The second restart has to wait.
            pool.call("plan", "step", ENDS["SIGKILL"][0], env_ids=[1])
            pool.send([7], env_ids=[1])
            cut = pool.recv()
            pool.send([8], env_ids=[1])
            if _ == 0:
                assert pool.recv().time_step.is_first().all()
        counts = {0: 0, 2: 0}
        pool.send([1, 1], env_ids=[0, 2])
        for _ in range(20):
            batch = pool.recv(count=1)
            env = int(batch.env_ids[0])
            counts[env] += 1
            pool.send([1], env_ids=[env])

    assert cut.time_step.is_last().all()
    assert 20 == sum(counts.values())


def test_close_does_not_wait_for_a_pause():
    with policy_pool(2, backoff=600.0) as pool:
        pool.reset()
        for _ in range(2):
            plan(pool, 0, "step", ENDS["SIGKILL"][0])
            pool.step(numbers(1, 2), masked(2, 0))
            if _ == 0:
                pool.step(numbers(1, 2), masked(2, 0))
        pid = pool.workers[1].pid

    assert not is_running(pid)


# Without end.


def depth():
    frame, count = sys._getframe(), 0
    while (frame := frame.f_back) is not None:
        count += 1
    return count


def test_hundreds_of_failures_in_one_call_do_not_deepen_the_stack():
    depths = []

    def make():
        depths.append(depth())
        trouble = raises(ValueError, "no") if len(depths) < 200 else None
        return Troubled(0, "reset", trouble) if trouble else TracingEnv(0)

    with ParallelPyEnvironment(
        [make], backend="inline", on_worker_failure=ALWAYS
    ) as pool:
        first = pool.reset()

    assert first.is_first().all()
    assert 200 == len(depths)
    assert 1 == len(set(depths[1:]))


def test_crashes_do_not_deepen_the_stack():
    depths = []

    class Watching(ProcessBackend):
        def replace(self, worker, job):
            depths.append(depth())
            super().replace(worker, job)

    with ParallelPyEnvironment(
        [functools.partial(Troubled, 0, "step", ENDS["SIGKILL"][0])],
        backend=Watching("fork"),
        on_worker_failure=ALWAYS,
    ) as pool:
        pool.reset()
        for _ in range(16):
            pool.step(numbers(1))

    assert 8 == len(depths)
    assert 1 == len(set(depths))


# Seeds.


def seeds_of(how, seed):
    """Returns the seeds of all lives of two environments, one of which fails."""
    trouble = raises(KeyError, "x") if how == "raise" else ENDS[how][0]
    makers = [
        functools.partial(Troubled, 0),
        functools.partial(Troubled, 1, "step", trouble, 2),
    ]
    with ParallelPyEnvironment(
        makers, num_workers=2, start_method="fork", on_worker_failure=ALWAYS
    ) as pool:
        pool.seed(seed)
        batches = [pool.reset(), *(pool.step(numbers(1, 2)) for _ in range(12))]
    seen = np.array([batch.observation["seed"] for batch in batches])
    return [list(dict.fromkeys(row)) for row in seen.T.tolist()]


@pytest.mark.parametrize("how", ["SIGKILL", "raise"])
def test_a_new_environment_gets_the_next_seed(how):
    steady, failing = seeds_of(how, 7)
    assert 1 == len(steady)
    assert 5 == len(failing) == len(set(failing))
    assert [steady, failing] == seeds_of(how, 7)
    assert failing[1:] != seeds_of(how, 8)[1][1:]


def test_an_environment_that_crashes_and_raises_repeats_no_seed(tmp_path):
    raising, crashing = ("step", raises(KeyError, "x"), 2), ("step", os.abort, 2)
    lives = [raising, crashing, raising, raising, crashing, crashing, raising, ()]
    makers = [functools.partial(Lives, 0, str(tmp_path), lives)]
    with ParallelPyEnvironment(
        makers, start_method="fork", on_worker_failure=ALWAYS
    ) as pool:
        pool.seed(7)
        pool.reset()
        batches = [pool.step(numbers(1)) for _ in range(3 * len(lives))]
    seen = {int(batch.observation["seed"][0]) for batch in batches}

    assert 8 == lives_in(tmp_path, 0)
    assert 8 == len(seen)


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_new_environment_gets_the_seed_after_those_of_resets(is_batch):
    backend = FakeBackend()
    makers = [functools.partial(pair_of, 9, 9)]
    if not is_batch:
        makers = [functools.partial(TracingEnv, row) for row in range(2)]
    with ParallelPyEnvironment(
        makers, backend=backend, num_workers=1, on_worker_failure=ALWAYS
    ) as pool:

        def seeds_after(seed):
            pool.reset(seed=seed)
            backend.plan(Die())
            pool.step(numbers(1, 2))
            return pool.step(numbers(1, 2)).observation["seed"].tolist()

        unseeded, once = seeds_after([None, 7])
        new, twice = seeds_after([8, None])

    assert -1 == unseeded
    assert 5 == len({once, new, twice, 7, 8} - {-1})
