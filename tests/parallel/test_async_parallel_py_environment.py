"""`AsyncParallelPyEnvironment`: each environment at its own pace, no answer lost."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import os
import pickle
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, Blocking, constructor
from envkit.errors import (
    CallOrderError,
    EnvironmentRaised,
    SpecError,
    WorkerCrashed,
)
from envkit.testing import check_environment
from envkit.testing.envs import CountingEnv, TracingEnv, check_trace
from envkit.time_step import StepType
from tests.parallel import environments, streams
from tests.parallel.environments import open_gate, traced
from tests.parallel.fake_backend import Die, FakeBackend, Hang, Raise
from tests.parallel.streams import async_pool_of, row_of
from tests.waiting import PATIENCE, until

FIRST = int(StepType.FIRST)


@pytest.fixture
def gated(tmp_path):
    """Makes pools in which each environment's odd actions wait at a gate of its own."""
    opened = []

    def make(count, backend, workers=None):
        gates = [str(tmp_path / f"gate{row}") for row in range(count)]
        for gate in gates:
            os.mkfifo(gate)
        makers = [
            functools.partial(environments.Gated, gate, row)
            for row, gate in enumerate(gates)
        ]
        env = async_pool_of(makers, backend, num_workers=workers or count)
        opened.append((env, gates))
        env.reset_async()
        env.recv()
        return env, gates

    yield make
    for env, gates in opened:
        # Nobody waits behind a closed gate when the pool is closed.
        for gate in gates * 3:
            open_gate(gate)
        env.close()


@contextlib.contextmanager
def opening_late(gate):
    """Opens a gate if nothing else happens for long; gives what says whether it did.

    Whoever waits at it without need then goes on, and is found out.
    """
    happened = threading.Event()

    def open_it():
        happened.set()
        open_gate(gate)

    timer = threading.Timer(PATIENCE, open_it)
    timer.start()
    try:
        yield happened.is_set
    finally:
        timer.cancel()
        timer.join()


@contextlib.contextmanager
def interrupted_in(function, call):
    """Lets Ctrl-C come as a function of envkit's is called for the n-th time."""
    left = call

    def look(frame, event, arg):
        nonlocal left
        if event == "call" and frame.f_code.co_name == function:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


with_threads_and_processes = pytest.mark.parametrize("backend", ["thread", "process"])


def test_an_awake_worker_answers_despite_ctrl_c(gated):
    """Nobody rings for one that is awake: it is told by a number, written last."""
    env, gates = gated(2, "process", workers=1)
    steps = env.statistics().workers[0].steps
    env.send([1], [0])
    assert until(lambda: env.statistics().workers[0].steps > steps)

    # Between the request and that number.
    with pytest.raises(KeyboardInterrupt), interrupted_in("fence", 2):
        env.send([2], [1])
    # It has to be awake still when the next call lets run what was asked.
    busy = threading.Timer(0.01, open_gate, [gates[0]])
    busy.start()
    answers = [env.recv(1, timeout=PATIENCE).env_ids.tolist() for _ in range(2)]

    assert [[0], [1]] == answers


# One answer for each question.


def test_each_answer_belongs_to_its_action(backend):
    with async_pool_of(traced(4), backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        env.send([20, 10], [2, 1])
        ids, time_step = env.recv()
        env.send([30], np.array([3]))
        more, last = env.recv()

    assert {1: 10, 2: 20} == dict(
        zip(ids.tolist(), time_step.observation["action"].tolist(), strict=True)
    )
    assert ([3], [30]) == (more.tolist(), last.observation["action"].tolist())


def test_the_pool_has_the_specs_and_the_number_of_rows():
    with async_pool_of(traced(3), num_workers=2) as env:
        single = TracingEnv()
        assert 3 == env.num_envs
        assert single.observation_spec() == env.observation_spec()
        assert single.action_spec() == env.action_spec()
        assert single.time_step_spec() == env.time_step_spec()


def test_resets_and_steps_can_be_sent_together():
    with async_pool_of(traced(3), num_workers=2) as env:
        env.reset_async([1])
        env.recv()
        env.send([5, 6, 7])
        ids, time_step = env.recv()
    steps = dict(zip(ids.tolist(), time_step.observation["step"].tolist(), strict=True))
    assert {0: 0, 1: 1, 2: 0} == steps


def test_single_rows_can_be_reset(backend):
    with async_pool_of(traced(3), backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        env.reset_async([2, 0])
        ids, time_step = env.recv()
    assert [0, 2] == sorted(ids.tolist())
    assert [1, 1] == time_step.observation["episode"].tolist()


def test_sending_to_no_row_is_allowed():
    with async_pool_of(traced(2)) as env:
        env.reset_async()
        env.recv()
        env.send(np.zeros(0, np.int64), [])
        env.reset_async([])
        with pytest.raises(CallOrderError):
            env.recv()


# Counts.


COUNT = "count must be an integer of at least 1, or None for all that owe an answer"
TIMEOUT = "timeout must be a positive number of seconds, or None"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"count": 0}, ValueError, f"{COUNT}, got 0."),
        ({"count": -1}, ValueError, f"{COUNT}, got -1."),
        ({"count": 1.0}, TypeError, f"{COUNT}, got 1.0 of type float."),
        ({"timeout": -1}, ValueError, f"{TIMEOUT}, got -1."),
        ({"timeout": "1"}, TypeError, f"{TIMEOUT}, got the string '1'."),
        (
            {"count": 3},
            CallOrderError,
            "recv(count=3) was called although only 2 environments owe an answer, so "
            "it would wait for ever. Ask for fewer, or send more first.",
        ),
    ],
)
def test_a_refused_recv_loses_no_answer(message_of, options, error, message):
    with async_pool_of(traced(3)) as env:
        env.reset_async([0, 2])
        told = message_of(error, lambda: env.recv(**options))
        ids = env.recv(np.int32(2)).env_ids.tolist()
    assert message == told
    assert [0, 2] == sorted(ids)


def test_recv_without_a_request_is_refused(message_of):
    with async_pool_of(traced(2)) as env:
        before = message_of(CallOrderError, env.recv)
        env.reset_async()
        env.recv()
        after = message_of(CallOrderError, lambda: env.recv(timeout=1.0))

    expected = (
        "recv() was called although no environment owes an answer. Call reset_async() "
        "or send() first."
    )
    assert [expected] * 2 == [before, after]


def test_pending_rows_are_known():
    with async_pool_of(traced(3)) as env:
        seen = [env.owing.tolist()]
        env.reset_async([2, 1])
        seen.append(env.owing.tolist())
        first = env.recv(1).env_ids
        seen.append(env.owing.tolist())
        env.recv()
        seen.append(env.owing.tolist())

    rest = [row in {1, 2} - set(first.tolist()) for row in range(3)]
    assert [[False] * 3, [False, True, True], rest, [False] * 3] == seen


# The order in which they come.


@with_threads_and_processes
def test_answers_come_in_the_order_in_which_they_are_ready(gated, backend):
    env, gates = gated(4, backend)
    env.send([1, 1, 1, 1])
    came = []
    for row in (2, 0, 3, 1):
        open_gate(gates[row])
        came.append(env.recv(1).env_ids.tolist())
    assert [[2], [0], [3], [1]] == came


@with_threads_and_processes
def test_one_slow_environment_delays_nobody(gated, backend):
    env, gates = gated(4, backend)
    env.send([1, 2, 2, 2])
    counts = collections.Counter()
    with opening_late(gates[0]) as is_late:
        for _ in range(50):
            ids = env.recv(2).env_ids
            counts.update(ids.tolist())
            env.send([2, 2], ids)
        env.recv(3)
        late = is_late()
    open_gate(gates[0])
    last = env.recv()

    assert not late
    assert 0 == counts[0]
    assert 100 == sum(counts.values())
    assert ([0], [1]) == (
        last.env_ids.tolist(),
        last.time_step.observation["action"].tolist(),
    )


@with_threads_and_processes
def test_answers_that_are_already_ready_count(gated, backend):
    """With one answer at hand, two need only one more, though two are on their way."""
    env, gates = gated(3, backend)
    env.send([2, 2], [0, 1])
    # A question waits until both are ready; then only one of them is asked for.
    env.call("get_info", env_ids=[0, 1])
    taken = env.recv(1).env_ids
    env.send([1], [2])
    env.send([2], taken)
    with opening_late(gates[2]) as is_late:
        both = env.recv(2).env_ids.tolist()
        late = is_late()
    open_gate(gates[2])
    last = env.recv().env_ids.tolist()

    assert not late
    assert [0, 1] == sorted(both)
    assert [2] == last


def test_the_oldest_answer_is_never_starved(backend):
    """Who is ready is returned before those who became ready later."""
    with async_pool_of(traced(3), backend, num_workers=1) as env:
        env.reset_async()
        waits = collections.Counter()
        longest = 0
        for _ in range(100):
            ids = env.recv(1).env_ids.tolist()
            waits.update({0, 1, 2} - set(ids))
            for row in ids:
                longest = max(longest, waits.pop(row, 0))
            env.send([0], ids)

    # A row waits for two sweeps of its worker over the two others. They may pass it
    # once more if they become ready after it, but before the pool looks again.
    assert longest <= 6


# Timeouts.


@with_threads_and_processes
def test_a_timeout_of_0_only_polls(gated, backend):
    env, gates = gated(2, backend)
    env.send([1, 1])
    seen = [env.recv(2, timeout=0) for _ in range(3)]
    for gate in gates:
        open_gate(gate)
    came = []
    while len(came) < 2:
        came += env.recv(2 - len(came), timeout=0).env_ids.tolist()

    assert [[], [], []] == [batch.env_ids.tolist() for batch in seen]
    assert {0} == {len(leaf) for leaf in streams.leaves_of(seen[0].time_step)}
    assert [0, 1] == sorted(came)


@with_threads_and_processes
def test_a_timeout_returns_fewer_rows_than_requested(gated, backend):
    env, gates = gated(3, backend)
    env.send([1, 2, 2])
    came = []
    while len(came) < 2:
        came += env.recv(3 - len(came), timeout=0.2).env_ids.tolist()
    open_gate(gates[0])
    came += env.recv().env_ids.tolist()

    assert [0, 1, 2] == sorted(came)
    assert 0 == came[-1]


# Calls out of order.


@with_threads_and_processes
def test_a_pending_row_refuses_actions(message_of, gated, backend):
    env, gates = gated(3, backend)
    env.send([1, 1], [0, 2])
    sending = message_of(CallOrderError, lambda: env.send([2, 2, 2]))
    resetting = message_of(CallOrderError, lambda: env.reset_async([2]))
    standing = message_of(CallOrderError, lambda: env.current_time_step([0]))
    env.send([4], [1])
    free = env.recv(1)
    for row in (0, 2):
        open_gate(gates[row])
    rest = env.recv()

    assert (
        "send() was called while 2 environments (0, 2) still owe an answer. Call "
        "recv() "
        "until it returns them."
    ) == sending
    assert (
        "reset_async() was called while 1 environment (2) still owes an answer. Call "
        "recv() until it returns it."
    ) == resetting
    assert standing.startswith("current_time_step() was called while 1 environment (0)")
    assert ([1], [4]) == (
        free.env_ids.tolist(),
        free.time_step.observation["action"].tolist(),
    )
    assert [1, 1] == rest.time_step.observation["action"].tolist()


def test_an_unread_answer_is_still_pending(message_of):
    with async_pool_of(traced(2)) as env:
        env.reset_async()
        message = message_of(CallOrderError, lambda: env.send([1, 1]))
        ids = env.recv().env_ids.tolist()
    assert message.startswith("send() was called while 2 environments (0, 1) still owe")
    assert [0, 1] == sorted(ids)


def test_a_row_has_no_time_step_before_its_first_reset(message_of):
    with async_pool_of(traced(3)) as env:
        env.reset_async([1])
        env.recv()
        now = env.current_time_step([1]).observation["env_id"].tolist()
        message = message_of(CallOrderError, lambda: env.current_time_step([1, 2]))
    assert [1] == now
    assert message.endswith("Call reset_async() first.")


@pytest.mark.parametrize(
    ("env_ids", "error", "text"),
    [
        ([3], ValueError, "env_ids has 3; there are 3 environments, 0 to 2."),
        (
            [0, -1, 5],
            ValueError,
            "env_ids has -1, 5; there are 3 environments, 0 to 2.",
        ),
        (
            [1, 1],
            ValueError,
            "env_ids names an environment twice; each takes one action at a time.",
        ),
        (
            [True, False, True],
            TypeError,
            "env_ids must be a list of row numbers, such as the env_ids that recv() "
            "returned, got a list of 3 elements.",
        ),
        (
            1,
            TypeError,
            "env_ids must be a list of row numbers, such as the env_ids that recv() "
            "returned, got 1 of type int.",
        ),
    ],
    ids=["too large", "negative", "twice", "mask", "number"],
)
def test_invalid_rows_are_refused_and_nothing_steps(message_of, env_ids, error, text):
    with async_pool_of(traced(3)) as env:
        env.reset_async()
        env.recv()
        count = np.size(env_ids)
        sending = message_of(error, lambda: env.send(np.zeros(count, int), env_ids))
        resetting = message_of(error, lambda: env.reset_async(env_ids))
        steps = env.current_time_step().observation["step"].tolist()

    assert text == sending == resetting
    assert [0, 0, 0] == steps


# Actions and arrays.


def test_an_action_that_does_not_fit_is_refused_and_nothing_steps(message_of, backend):
    with async_pool_of(traced(3), backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        short = message_of(SpecError, lambda: env.send([1], [0, 2]))
        low = message_of(SpecError, lambda: env.send([1, -1], [0, 2]))
        owing = env.owing.tolist()
        env.send([7, 8, 9])
        time_step = env.recv().time_step

    assert short == (
        "AsyncParallelPyEnvironment.send() was given an action that does not fit its "
        "spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=0, "
        "maximum=999999999)\n"
        "  got        a list of 1 element\n\n"
        "1 action was given for 2 environments.\n"
        "None of the environments has moved."
    )
    assert "1 of 2 elements is below the minimum 0: -1 at index (1,)." in low
    assert [False] * 3 == owing
    assert [1, 1, 1] == time_step.observation["step"].tolist()
    assert [7, 8, 9] == sorted(time_step.observation["action"].tolist())


def test_the_action_of_a_row_that_begins_is_not_checked():
    with async_pool_of([functools.partial(CountingEnv, 1)] * 2) as env:
        env.send([-5, 99])
        env.recv()
        env.send([0, 1])
        env.recv()
        env.send([-5, 99])
        _, first = env.recv()

    assert [FIRST, FIRST] == first.step_type.tolist()


def test_the_callers_arrays_are_unchanged(backend):
    action, ids = np.array([4, 5]), np.array([2, 0])
    before = pickle.dumps((action, ids))
    with async_pool_of(traced(3), backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        env.send(action, ids)
        action_after = pickle.dumps((action, ids))
        action[:] = 99  # Too late for this step.
        _, time_step = env.recv()

    assert before == action_after
    assert [4, 5] == sorted(time_step.observation["action"].tolist())


def test_returned_arrays_never_change(backend):
    with async_pool_of(traced(3), backend, num_workers=2) as env:
        env.reset_async()
        kept, copies = [], []
        for _ in range(60):
            batch = env.recv(2)
            kept.append(batch)
            copies.append(copy.deepcopy(batch))
            env.send([1, 2], batch.env_ids)
            batch.env_ids.sort()
            copies[-1] = copies[-1]._replace(env_ids=np.sort(copies[-1].env_ids))

    assert [] == streams.differences(copies, kept)


def test_objects_are_sent_in_both_directions(backend):
    values = [np.array(None, object) for _ in range(3)]
    values[1][()] = {"words": ["a"]}
    values[2][()] = [1, 2]
    maker = functools.partial(
        environments.Showing, ArraySpec((), object), values, ArraySpec((), object)
    )
    with async_pool_of([maker] * 2, backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        env.send([{"a": 1}, [2]])
        second = env.recv().time_step.observation.tolist()
        env.send([["x"]], [1])
        third = env.recv().time_step.observation.tolist()
        heard = env.access("heard")

    assert [{"words": ["a"]}] * 2 == second
    assert [[1, 2]] == third
    assert [[{"a": 1}], [[2], ["x"]]] == [[*map(_plain, row)] for row in heard]


def _plain(value):
    """Takes an object out of an array that holds nothing else."""
    return value.item() if isinstance(value, np.ndarray) else value


# Failures.


def test_a_failure_belongs_only_to_its_row(backend):
    makers = [functools.partial(environments.Talkative, row) for row in range(3)]
    with async_pool_of(makers, backend, num_workers=3) as env:
        env.reset_async()
        env.recv()
        env.call("plan_complaint", 3, env_ids=[1])
        env.send([0, 0, 0])
        with pytest.raises(EnvironmentRaised) as caught:
            env.recv()
        ids = env.recv(2).env_ids.tolist()
        with pytest.raises(CallOrderError):
            env.recv()
        with pytest.raises(CallOrderError) as refused:
            env.send([0], [1])
        env.reset_async([1])
        again = env.recv()
        env.send([0, 0, 0])
        final = env.recv()

    assert (1,) == caught.value.envs
    assert isinstance(caught.value, KeyError)
    assert [0, 2] == sorted(ids)
    assert str(refused.value) == (
        "send() was called after environment 1 raised. Call reset_async(env_ids) to "
        "begin new episodes there."
    )
    assert ([1], [0]) == (
        again.env_ids.tolist(),
        again.time_step.observation.tolist(),
    )
    assert [1, 2, 2] == sorted(final.time_step.observation.tolist())


# Asking environments.


def test_environments_can_be_called_between_answers():
    makers = [functools.partial(environments.Talkative, row) for row in range(3)]
    with async_pool_of(makers, num_workers=2) as env:
        env.reset_async()
        env.recv(1)
        sums = env.call("add", 5)
        numbers = env.access("number", env_ids=[2, 1])
        pictures = env.render(env_ids=[1])
        ids = env.recv().env_ids

    assert [5, 6, 7] == sums
    assert [2, 1] == numbers
    assert (1, 2, 2, 3) == pictures.shape
    assert 2 == len(ids)


@with_threads_and_processes
def test_a_call_waits_for_a_stepping_environment(gated, backend):
    env, gates = gated(2, backend)
    env.send([1, 2])
    free = env.call("get_info", env_ids=[1])
    open_gate(gates[0])
    both = env.call("get_info")
    ids = env.recv().env_ids.tolist()

    assert 1 == int(free[0]["step"])
    assert [1, 1] == [int(info["step"]) for info in both]
    assert [0, 1] == sorted(ids)


@pytest.mark.parametrize("call", ["seed", "get_info"])
def test_seeds_and_infos_need_rows_without_pending_answers(message_of, call):
    with async_pool_of(traced(2)) as env:
        env.reset_async()
        ask = functools.partial(getattr(env, call), *([3] if call == "seed" else []))
        message = message_of(CallOrderError, ask)
        env.recv()
        ask()
    assert message.startswith(f"{call}() was called while 2 environments (0, 1) still")


def test_seeds_reach_their_rows():
    with async_pool_of(traced(3), num_workers=2) as env:
        env.seed([7, 8, 9])
        env.reset_async()
        ids, time_step = env.recv()
    seeds = dict(zip(ids.tolist(), time_step.observation["seed"].tolist(), strict=True))
    assert {0: 7, 1: 8, 2: 9} == seeds


# Batches that are environments themselves.


def test_the_rows_of_a_batch_step_together(message_of, backend):
    makers = [functools.partial(environments.pair_of, 4, 5), TracingEnv]
    with async_pool_of(makers, backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        message = message_of(ValueError, lambda: env.send([1, 2], [1, 2]))
        env.send([3, 4, 5])
        ids, time_step = env.recv()

    assert (
        "env_ids has only some of rows 0 to 1, which are one environment (env 0) that "
        "is a batch itself and moves together."
    ) == message
    assert {0: 3, 1: 4, 2: 5} == dict(
        zip(ids.tolist(), time_step.observation["action"].tolist(), strict=True)
    )


def test_single_rows_of_a_batch_can_be_reset():
    with async_pool_of([functools.partial(environments.pair_of, 4, 5)]) as env:
        env.reset_async()
        env.recv()
        env.reset_async([1])
        batch = env.recv()
        episodes = env.current_time_step().observation["episode"].tolist()

    assert [1] == batch.env_ids.tolist()
    assert [0, 1] == episodes


# Nothing is lost, doubled or mixed up.


def flow(env, answers, rng):
    """Sends and receives at random; returns what is wrong, and how many came."""
    rows = env.num_envs
    before, sent = [None] * rows, [None] * rows
    found, came = [], np.zeros(rows, int)
    asked = np.zeros(rows, int)
    number = 0
    while came.sum() < answers:
        free = np.flatnonzero(~env.owing)
        chosen = rng.permutation(free)[: rng.integers(0, free.size + 1)]
        anew = rng.random() < 0.1
        if chosen.size and anew:
            env.reset_async(chosen)
            for row in chosen:
                sent[row] = None
        elif chosen.size:
            actions = number + np.arange(chosen.size)
            number += chosen.size
            env.send(actions, chosen)
            for row, action in zip(chosen, actions, strict=True):
                sent[row] = action
        asked[chosen] += 1
        owing = int(env.owing.sum())
        if not owing:
            continue
        count = int(rng.integers(1, owing + 1))
        timeout = rng.choice([None, 0, 0.001])
        batch = env.recv(count, timeout)
        if timeout is None and batch.env_ids.size != count:
            found.append(f"{batch.env_ids.size} instead of {count}")
        if len(set(batch.env_ids.tolist())) != batch.env_ids.size:
            found.append("a row came twice in one batch")
        for index, row in enumerate(batch.env_ids.tolist()):
            after = row_of(batch.time_step, index)
            text = check_trace(before[row], sent[row], after, env_id=row)
            found += [text] if text else []
            before[row] = after
            came[row] += 1
    if env.owing.any():
        came[env.recv().env_ids] += 1
    if not np.array_equal(asked, came):
        found.append(f"asked {asked}, came {came}")
    return found


@pytest.mark.parametrize(
    ("backend", "workers"), [("inline", 2), ("thread", 6), ("process", 3)]
)
def test_thousands_of_answers_match_their_requests(backend, workers):
    makers = traced(6, steps_per_episode=(1, 4, 2))
    with async_pool_of(makers, backend, num_workers=workers) as env:
        found = flow(env, 1000, np.random.default_rng(workers))
    assert [] == found


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 5),
    workers=st.integers(1, 5),
    backend=st.sampled_from(["inline", "thread"]),
)
def test_no_answer_is_lost_in_any_order_of_calls(seed, rows, workers, backend):
    makers = traced(rows, steps_per_episode=(1, 3))
    with async_pool_of(makers, backend, num_workers=workers) as env:
        found = flow(env, 60, np.random.default_rng(seed))
    assert [] == found


# As an ordinary environment.


@pytest.mark.parametrize(
    ("makers", "required"),
    [
        ([environments.Walk] * 3, ["episodes", "masked_reset", "seed"]),
        ([functools.partial(constructor("CartPole"), batch_size=2)] * 2, ["seed"]),
    ],
    ids=["single environments", "batches"],
)
def test_a_blocking_pool_keeps_the_contract(makers, required):
    report = check_environment(
        lambda: Blocking(async_pool_of(makers, num_workers=2)),
        steps=25,
        require=required,
    )
    assert () == report.failed


# The end.


def test_every_call_after_close_raises_closed_error():
    env = async_pool_of([environments.Talkative] * 2, num_workers=1)
    env.reset_async()
    env.recv()
    state = env.get_state()
    env.send([0, 0])
    env.close()
    env.close()
    calls = {
        "reset_async": env.reset_async,
        "send": lambda: env.send([0, 0]),
        "recv": env.recv,
        "current_time_step": env.current_time_step,
        "seed": lambda: env.seed(3),
        "get_info": env.get_info,
        "render": env.render,
        "call": lambda: env.call("add"),
        "access": lambda: env.access("number"),
        "get_state": env.get_state,
        "set_state": lambda: env.set_state(state),
        "statistics": env.statistics,
        "autoreset": lambda: setattr(env, "autoreset", "same_step"),
    }

    assert {
        name: f"ClosedError: AsyncParallelPyEnvironment.{name}() was called after "
        "close(). A closed environment stays closed: make a new one."
        for name in calls
    } == streams.messages_of(calls)


@with_threads_and_processes
def test_close_works_while_answers_are_pending(backend):
    env = async_pool_of(traced(4), backend, num_workers=2)
    env.reset_async()
    env.close()


def test_a_request_interrupted_by_ctrl_c_is_still_pending():
    with async_pool_of(traced(2, steps_per_episode=9), num_workers=1) as env:
        env.reset_async()
        env.recv()
        slab = env._pool.slab
        request = slab.request

        def interrupted(rows, command):
            slab.request = request
            request(rows, command)
            raise KeyboardInterrupt

        slab.request = interrupted
        with pytest.raises(KeyboardInterrupt):
            env.send([5], [0])
        assert [True, False] == env.owing.tolist()
        env.send([6], [1])
        batch = env.recv()
    assert {0: 5, 1: 6} == dict(
        zip(
            batch.env_ids.tolist(),
            batch.time_step.observation["action"].tolist(),
            strict=True,
        )
    )


def test_a_pending_error_is_raised_before_a_reset():
    backend = FakeBackend()
    with async_pool_of(traced(2), backend, num_workers=1) as env:
        env.reset_async()
        env.recv()
        env.send([1, 2])
        backend.plan(Raise(0))
        env.call("get_info")
        with pytest.raises(CallOrderError, match="still owes an answer"):
            env.reset_async([0])
        with pytest.raises(EnvironmentRaised):
            env.recv()
        env.reset_async([0])
        assert [1, 0] == env.recv().env_ids.tolist()


def test_a_call_to_a_lost_worker_does_not_wait_for_others():
    backend = FakeBackend()
    with async_pool_of(traced(2), backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        env.send([1, 2])
        backend.plan(Hang(1), Die(0))
        with pytest.raises(WorkerCrashed, match="was killed"):
            env.recv(1)
        with pytest.raises(WorkerCrashed, match="was lost in an earlier call"):
            env.call("get_info")


def test_an_episode_continues_in_another_order_before_others_begin():
    with async_pool_of(traced(2, steps_per_episode=1), autoreset="same_step") as env:
        env.reset_async([0])
        env.recv()
        env.send([1], [0])
        assert env.recv().time_step.is_last().all()
        env.autoreset = "next_step"
        # The next episode has begun in the step that ended the one before.
        assert env.current_time_step([0]).is_first().all()
        env.send([2], [0])
        assert 1 == env.recv().time_step.observation["step"][0]
