"""The contract of rows that take their own time, and `Blocking` around it."""

from __future__ import annotations

import functools
import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    AsyncBatch,
    AsyncEnvironment,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    BoundedArraySpec,
    EnvironmentSpec,
    StepType,
    nest,
    time_step_spec,
)
from envkit.errors import (
    CallOrderError,
    ClosedError,
    EnvironmentRaised,
    SpecError,
    WorkerTimeout,
)
from envkit.testing import CountingEnv, ManualClock, NestedCountingEnv
from tests.comparing import bits, told

NEVER = math.inf
FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


class Rehearsed(AsyncEnvironment):
    """Environments whose answers come late, as rehearsed, in the time of a clock.

    Each request takes the next of `delays`; after the last of them answers come at
    once. `early` makes `recv` return the first that is ready, which a pool may do.
    """

    def __init__(self, envs, delays=(), early=False):
        self.envs = envs
        self.clock = ManualClock()
        self.requests = []
        self.failing = {}
        self.refusing = None
        self.closed = 0
        self._delays = iter(delays)
        self._early = early
        self._due = {}
        self._spec = nest.Structure(self.time_step_spec())

    @property
    def num_envs(self):
        return len(self.envs)

    def observation_spec(self):
        return self.envs[0].observation_spec()

    def action_spec(self):
        return self.envs[0].action_spec()

    def reset_async(self, env_ids=None):
        for row in range(self.num_envs) if env_ids is None else env_ids:
            self._ask("reset", int(row), self.envs[row].reset())

    def send(self, actions, env_ids=None):
        rows = range(self.num_envs) if env_ids is None else env_ids
        if isinstance(self.refusing, Exception):
            refusing, self.refusing = self.refusing, None
            raise refusing
        for action, row in list(zip(actions, rows, strict=True)):
            self._ask("step", int(row), self.envs[row].step(action))

    def _ask(self, call, row, answer):
        assert row not in self._due, f"row {row} owes an answer already"
        due = self.clock() + next(self._delays, 0.0)
        self.requests.append((call, row))
        self._due[row] = (due, len(self.requests), answer)

    def hurry(self):
        """Makes every answer that is still out ready at once."""
        for row, (_, request, answer) in self._due.items():
            self._due[row] = (self.clock(), request, answer)

    def recv(self, count=None, timeout=None):
        count = len(self._due) if count is None else count
        if not 0 < count <= len(self._due):
            raise CallOrderError(f"{count} of {len(self._due)} answers")
        deadline = NEVER if timeout is None else self.clock() + timeout
        rows = sorted(self._due, key=lambda row: self._due[row][:2])
        rows = [row for row in rows if self._due[row][0] <= deadline][:count]
        if self._early:
            rows = rows[:1]
        until = self._due[rows[-1]][0] if rows else deadline
        if len(rows) < count and not (self._early and rows):
            until = deadline
        assert until < NEVER, "this call would wait for ever"
        self.clock.sleep(until - self.clock())
        return self._deliver(rows)

    def _deliver(self, rows):
        answers = [self._due.pop(row)[2] for row in rows]
        for row in rows:
            if row in self.failing:
                raise self.failing.pop(row)
        if answers:
            time_step = nest.map_structure(lambda *rows: np.array(rows), *answers)
        else:
            time_step = self._spec.unflatten(
                [np.zeros((0, *spec.shape), spec.dtype) for spec in self._spec.leaves]
            )
        return AsyncBatch(np.array(rows, np.int64), time_step)

    def seed(self, seed):
        return f"seeded with {seed}"

    def close(self):
        self.closed += 1


class Least(AsyncEnvironment):
    """An asynchronous environment that defines what it must, and no more."""

    num_envs = 2

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def reset_async(self, env_ids=None):
        pass

    def send(self, actions, env_ids=None):
        pass

    def recv(self, count=None, timeout=None):
        raise CallOrderError("No row owes an answer.")


def rehearsed(rows=3, delays=(), **options):
    """Makes rows whose episodes have 1, 2, 3 ... steps."""
    return Rehearsed([CountingEnv(row + 1) for row in range(rows)], delays, **options)


def patiently(env, call, *args):
    """Calls, and waits for as long as there are timeouts."""
    try:
        return call(*args)
    except WorkerTimeout:
        return patiently(env, env.wait)


DELAYS = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.7, 2.5]), max_size=40)
STEPS = st.integers(0, 8)


# What every asynchronous environment has.


def test_an_asynchronous_environment_has_the_specs_of_one_row():
    env = Least()
    assert ArraySpec((), np.float32) == env.reward_spec()
    assert BoundedArraySpec((), np.float32, 0.0, 1.0) == env.discount_spec()
    assert time_step_spec(env.observation_spec()) == env.time_step_spec()
    assert (
        EnvironmentSpec(
            env.observation_spec(),
            env.action_spec(),
            env.reward_spec(),
            env.discount_spec(),
        )
        == env.environment_spec()
    )


def test_seeding_and_resources_are_optional_for_an_asynchronous_environment():
    with Least() as env:
        refusal = "Least cannot be seeded: override seed(seed)."
        assert (NotImplementedError, refusal) == told(env.seed, 3)
    env.close()


def test_an_asynchronous_environment_that_cannot_receive_cannot_be_made():
    class Mute(AsyncEnvironment):
        num_envs = 1

    with pytest.raises(TypeError, match="abstract"):
        Mute()


# Blocking is an ordinary batch.


def test_blocking_returns_a_batch_with_the_wrapped_specs():
    class Special(Rehearsed):
        def reward_spec(self):
            return ArraySpec((), np.float32, name="coins")

        def discount_spec(self):
            return BoundedArraySpec((), np.float32, 0.0, 0.5)

    inner = Special([CountingEnv()] * 3)
    env = Blocking(inner)
    assert inner.environment_spec() == env.environment_spec()
    assert "coins" == env.reward_spec().name
    assert inner.time_step_spec() == env.time_step_spec()
    assert (True, 3) == (env.batched, env.batch_size)
    assert "seeded with 7" == env.seed(7)


def nested(rows=3):
    """Makes environments that observe a dictionary; the lengths of episodes differ."""
    return [NestedCountingEnv(row + 1) for row in range(rows)]


@given(delays=DELAYS, early=st.booleans(), steps=STEPS)
def test_blocking_equals_the_batch_in_whatever_order_rows_finish(delays, early, steps):
    env = Blocking(Rehearsed(nested(), delays, early))
    batch = BatchedPyEnvironment(nested(), multithreading=False)
    returned, expected = [env.reset()], [bits(batch.reset())]
    for _ in range(steps):
        returned.append(env.step([0, 1, 0]))
        expected.append(bits(batch.step([0, 1, 0])))

    # Compared in the end: none was written to after it was returned.
    assert expected == [bits(time_step) for time_step in returned]
    assert ["total_steps", "current_steps"] == list(returned[-1].observation)
    assert env.valid.all()
    assert not env.repeats_last


@given(delays=DELAYS, early=st.booleans(), steps=STEPS)
def test_waiting_after_timeouts_loses_nothing(delays, early, steps):
    inner = rehearsed(delays=delays, early=early)
    env = Blocking(inner, timeout=0.7, now=inner.clock)
    batch = BatchedPyEnvironment(rehearsed().envs, multithreading=False)
    assert bits(batch.reset()) == bits(patiently(env, env.reset))
    for _ in range(steps):
        answer = patiently(env, env.step, [0, 1, 0])
        assert bits(batch.step([0, 1, 0])) == bits(answer)
        assert env.current_time_step() is answer


@given(
    delays=DELAYS,
    calls=st.lists(
        st.sampled_from(["step", "step", "wait", "reset", [True, False, True]]),
        max_size=25,
    ),
)
def test_an_answer_is_never_that_of_an_older_request(delays, calls):
    """Whatever is called after whatever timeout, each row shows its newest answer."""
    inner = rehearsed(delays=delays)
    env = Blocking(inner, timeout=0.7, now=inner.clock)
    for call in calls:
        try:
            if call == "step":
                answer = env.step([0, 0, 0])
            elif call == "wait":
                answer = env.wait()
            else:
                answer = env.reset(None if call == "reset" else np.array(call))
        except (WorkerTimeout, CallOrderError):
            continue
        newest = [row.current_time_step() for row in inner.envs]

        assert [int(each.observation) for each in newest] == answer.observation.tolist()
        assert [int(each.step_type) for each in newest] == answer.step_type.tolist()
        if call == "reset":
            assert answer.is_first().all()


def test_changing_a_returned_time_step_does_not_affect_later_ones():
    env = Blocking(rehearsed())
    env.reset().observation[:] = 99
    time_step = env.reset([True, False, False])
    assert 0 == time_step.observation[0]


def test_a_first_step_begins_an_episode_in_every_row():
    inner = rehearsed()
    env = Blocking(inner)
    assert env.step([1, 1, 1]).is_first().all()
    assert [("reset", row) for row in range(3)] == inner.requests


def test_a_masked_reset_asks_only_the_masked_rows():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, 0.3, 0.2, 0.1, 0.9])
    env = Blocking(inner)
    env.reset()
    env.step([0, 0, 0])
    inner.requests.clear()
    time_step = env.reset(np.array([False, True, True]))
    assert [("reset", 1), ("reset", 2)] == inner.requests
    assert [2, 0, 0] == time_step.step_type.tolist()
    assert [1, 0, 0] == time_step.observation.tolist()


# Timeouts.


def test_without_a_timeout_calls_wait_without_limit():
    inner = rehearsed(delays=[1e9, 0.0, 2e9])
    Blocking(inner).reset()
    assert 2e9 == inner.clock()


def test_each_call_has_the_whole_timeout():
    inner = rehearsed(delays=[0.9] * 30)
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    for _ in range(5):
        env.step([0, 0, 0])
    assert 4.5 == pytest.approx(inner.clock())


LATE = (
    "Blocking.{}() waited 1 s for {} answered. Their answers are kept: call wait() for "
    "the rest, or reset() to start over."
)


@pytest.mark.parametrize(
    ("delays", "rows"),
    [
        ([0.0, 0.0, NEVER], "environment 2; 2 of 3"),
        ([NEVER, 1.0, 1.5], "environments 0, 2; 1 of 3"),
    ],
)
def test_a_timeout_names_the_rows_that_are_late(delays, rows):
    """An answer at the last moment is in time."""
    inner = rehearsed(delays=delays)
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    assert (WorkerTimeout, LATE.format("reset", rows)) == told(env.reset)
    assert 1.0 == inner.clock()


def test_a_timeout_is_a_timeout_error_that_knows_its_rows():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, 5.0, 0.0, NEVER])
    env = Blocking(inner, timeout=2.5, now=inner.clock)
    env.reset()
    with pytest.raises(TimeoutError) as raised:
        env.step([0, 0, 0])
    assert (0, 2) == raised.value.envs
    assert str(raised.value).startswith("Blocking.step() waited 2.5 s for environments")


def test_after_a_timeout_the_current_time_step_is_still_the_last_whole_one():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, NEVER])
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    first = env.reset()
    told(env.step, [0, 0, 0])
    assert env.current_time_step() is first


def test_a_row_rejoins_when_its_first_answer_arrives():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, NEVER])
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    env.reset()
    told(env.step, [0, 0, 0])
    told(env.wait)
    inner.hurry()
    assert [1, 1, 1] == env.wait().observation.tolist()
    assert [0, 2, 1] == env.step([0, 0, 0]).step_type.tolist()


def test_a_masked_reset_that_was_late_is_completed_by_waiting():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.5])
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    env.reset()
    env.step([0, 0, 0])
    late = told(env.reset, [True, False, True])
    assert (WorkerTimeout, LATE.format("reset", "environment 2; 1 of 2")) == late
    # Waiting has a timeout of its own.
    late = told(env.wait)
    assert (WorkerTimeout, LATE.format("wait", "environment 2; 1 of 2")) == late
    assert [0, 1, 0] == env.wait().step_type.tolist()
    assert 2.5 == inner.clock()


def test_reset_after_a_timeout_discards_the_late_answers():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, 1.5, 0.0, 0.0])
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    env.reset()
    told(env.step, [0, 0, 0])
    time_step = env.reset()
    assert time_step.is_first().all()
    assert [("reset", row) for row in range(3)] == inner.requests[-3:]


def test_one_timeout_covers_late_answers_and_the_reset():
    inner = rehearsed(delays=[0.0, 0.0, 0.0, 1.8, 0.0, 0.0, 0.8, 0.0, 0.0])
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    env.reset()
    told(env.step, [0, 0, 0])
    assert WorkerTimeout is told(env.reset)[0]
    assert 2.0 == pytest.approx(inner.clock())
    assert env.wait().is_first().all()


# Calls in the wrong order.


@pytest.mark.parametrize(
    ("late", "rows"),
    [
        ([NEVER, 0.0, 0.0], "environment 0 still owes an answer"),
        ([NEVER, 0.0, NEVER], "environments 0, 2 still owe an answer"),
    ],
)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("step()", lambda env: env.step([0, 0, 0])),
        ("reset(mask)", lambda env: env.reset([True, False, False])),
    ],
    ids=["step", "reset"],
)
def test_rows_with_a_pending_answer_refuse_requests(late, rows, name, call):
    inner = rehearsed(delays=[0.0, 0.0, 0.0, *late])
    env = Blocking(inner, timeout=1.0, now=inner.clock)
    env.reset()
    told(env.step, [0, 0, 0])
    asked = len(inner.requests)
    expected = (
        f"Blocking.{name} was called while {rows}. Call wait() for it, or reset()."
    )
    assert (CallOrderError, expected) == told(call, env)
    assert asked == len(inner.requests)


def test_waiting_without_a_pending_request_is_refused():
    env = Blocking(rehearsed())
    expected = (
        "Blocking.wait() was called although no row owes an answer. It completes a "
        "step() or reset() that ran into its timeout."
    )
    for _ in range(2):
        assert (CallOrderError, expected) == told(env.wait)
        env.reset()


@pytest.mark.parametrize(
    ("call", "kind", "expected"),
    [
        (
            lambda: Blocking(CountingEnv()),
            TypeError,
            "Blocking needs an AsyncEnvironment, not a CountingEnv object.",
        ),
        (
            lambda: Blocking(rehearsed()).poll(),
            CallOrderError,
            "Blocking.poll() is for wait=False; this one waits for all its rows.",
        ),
        (
            lambda: Blocking(rehearsed()).get_info(),
            NotImplementedError,
            "Blocking has no info.",
        ),
    ],
    ids=["wrap", "poll", "get_info"],
)
def test_what_cannot_be_done_is_refused(call, kind, expected):
    assert (kind, expected) == told(call)


def test_a_refused_request_leaves_nothing_pending():
    inner = rehearsed()
    env = Blocking(inner)
    env.reset()
    env.step([0, 0, 0])
    inner.refusing = ValueError("not now")
    with pytest.raises(ValueError, match="not now"):
        env.step([0, 0, 0])
    assert env.reset().is_first().all()


# Rows that fail.


def test_an_error_in_a_row_is_raised_in_the_caller():
    inner = rehearsed()
    env = Blocking(inner)
    env.reset()
    failure = EnvironmentRaised("environment 1 raised", envs=[1])
    inner.failing[1] = failure
    with pytest.raises(EnvironmentRaised) as raised:
        env.step([0, 0, 0])
    assert raised.value is failure


def test_after_a_row_failed_the_batch_can_be_reset():
    inner = rehearsed(delays=[0.0] * 3 + [0.3, 0.2, 0.1], early=True)
    env = Blocking(inner)
    env.reset()
    inner.failing[1] = EnvironmentRaised("environment 1 raised", envs=[1])
    told(env.step, [0, 0, 0])
    assert env.reset().is_first().all()
    assert [11, 1, 1] == env.step([0, 0, 0]).observation.tolist()


def test_a_failed_rows_episode_does_not_continue():
    inner = rehearsed()
    env = Blocking(inner)
    env.reset()
    inner.failing[1] = EnvironmentRaised("environment 1 raised", envs=[1])
    told(env.step, [0, 0, 0])
    for name, call in (
        ("step()", lambda: env.step([0, 0, 0])),
        ("wait()", env.wait),
        ("reset(mask)", lambda: env.reset([True, False, False])),
    ):
        expected = (
            f"Blocking.{name} was called after environment 1 failed. Call reset() to "
            "begin new episodes."
        )

        assert (CallOrderError, expected) == told(call)


@pytest.mark.parametrize("call", ["send", "reset_async"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_while_rows_are_asked_leaves_the_batch_usable(call, when):
    inner = rehearsed()
    env = Blocking(inner)
    env.reset()
    real = getattr(inner, call)

    def interrupted(*args):
        setattr(inner, call, real)
        if when == "after":
            real(*args)
        raise KeyboardInterrupt

    setattr(inner, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.step([0, 0, 0]) if call == "send" else env.reset()
    assert env.reset().is_first().all()
    assert env.step([0, 0, 0]).is_mid().sum() > 0


# What recv returns is not trusted.


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (None, "None, not an AsyncBatch"),
        (([0], 0), "a tuple of 2 elements, not an AsyncBatch"),
        (lambda: answer([0, 2], FULL), "env_ids 2; there are 2 rows"),
        (lambda: answer([0, -1], FULL), "env_ids -1; there are 2 rows"),
        (
            lambda: answer([1, 1], FULL),
            "env_ids 1, 1, but only rows 0, 1 owe an answer",
        ),
        (lambda: answer([], FULL[:0]), "no row although it had no timeout"),
    ],
    ids=["None", "tuple", "unknown", "negative", "twice", "nothing"],
)
def test_invalid_results_of_recv_are_refused(broken, text):
    env = Blocking(Answering(broken() if callable(broken) else broken))
    expected = (
        f"Answering.recv() returned {text}. It must return each row that owes an "
        "answer, exactly once."
    )
    assert (CallOrderError, expected) == told(env.reset)


def test_a_batch_of_actions_of_the_wrong_length_reaches_no_row():
    inner = rehearsed()
    env = Blocking(inner)
    env.reset()
    asked = len(inner.requests)
    expected = (
        "Blocking.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3,), dtype=int32, minimum=0, maximum=1)\n"
        "  got        a list of 2 elements\n\n"
        "One action is needed for each of 3 environments; none of them has moved."
    )
    assert (SpecError, expected) == told(env.step, [0, 0])
    assert asked == len(inner.requests)


# Answers that do not fit.


class Answering(Least):
    """Answers every request with the rows that a test says."""

    def __init__(self, *answers):
        self._answers = iter(answers)

    def observation_spec(self):
        return ArraySpec((2,), np.float32)

    def recv(self, count=None, timeout=None):
        return next(self._answers)


def answer(rows, observation, reward=None):
    """Makes the batch in which some rows return an observation."""
    types = np.ones(len(rows), np.int32)
    reward = np.zeros(len(rows), np.float32) if reward is None else reward
    discount = np.ones(len(rows), np.float32)
    spec = time_step_spec(ArraySpec((), np.float32))
    return AsyncBatch(
        np.array(rows, np.int64), spec._make([types, reward, discount, observation])
    )


FULL = np.arange(4, dtype=np.float32).reshape(2, 2)


@pytest.mark.parametrize(
    ("broken", "place", "got", "reason"),
    [
        (
            answer([1], FULL[:1, :1]),
            "observation.\n\n  expected   ArraySpec(shape=(1, 2), dtype=float32)",
            "array of shape (1, 1), dtype float32, values 0.0 … 0.0",
            "Axis 1 has size 1 instead of 2.",
        ),
        (
            answer([1], FULL[:1].astype(np.float64)),
            "observation.\n\n  expected   ArraySpec(shape=(1, 2), dtype=float32)",
            "array of shape (1, 2), dtype float64, values 0.0 … 1.0",
            "dtype is float64; the spec says float32. NumPy makes float64 by default: "
            "add .astype(np.float32).",
        ),
        (
            answer([1], FULL[:1], reward=np.zeros((), np.float32)),
            "reward.\n\n  expected   ArraySpec(shape=(1,), dtype=float32, "
            "name='reward')",
            "array of shape (), dtype float32, values 0.0 … 0.0",
            "The whole batch dimension is missing: expected (1,).",
        ),
    ],
    ids=["shape", "dtype", "rank"],
)
@pytest.mark.parametrize("comes", ["first", "later"])
def test_answers_are_never_broadcast_into_their_row(comes, broken, place, got, reason):
    good = answer([0], FULL[:1])
    env = Blocking(Answering(*([broken, good] if comes == "first" else [good, broken])))
    expected = (
        "Answering.recv() returned a time step that does not fit its spec at "
        f"{place}\n  got        {got}\n\n{reason} The other 3 leaves fit."
    )
    assert (SpecError, expected) == told(env.reset)


def test_an_empty_poll_does_not_affect_later_answers():
    nothing = answer([], np.zeros(0))
    env = Blocking(Answering(nothing, answer([1, 0], FULL)), timeout=60.0)
    assert [[2.0, 3.0], [0.0, 1.0]] == env.reset().observation.tolist()


# Closing.


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("reset", lambda env: env.reset()),
        ("reset", lambda env: env.reset([True, False, False])),
        ("step", lambda env: env.step([0, 0, 0])),
        ("wait", lambda env: env.wait()),
        ("seed", lambda env: env.seed(3)),
        ("get_info", lambda env: env.get_info()),
    ],
    ids=["reset", "masked reset", "step", "wait", "seed", "get_info"],
)
def test_a_closed_environment_stays_closed(name, call):
    inner = rehearsed()
    with Blocking(inner) as env:
        env.reset()
    env.close()
    expected = (
        f"Blocking.{name}() was called after close(). A closed environment stays "
        "closed: make a new one."
    )
    assert (ClosedError, expected) == told(call, env)
    assert 1 == inner.closed


# Without waiting for episodes to begin.


def unwaiting(lengths, delays=(), **options):
    """Rows that nobody waits for while they reset."""
    env = Rehearsed([CountingEnv(length) for length in lengths], delays)
    return env, Blocking(env, wait=False, now=env.clock, **options)


def shown(env, time_step):
    """Returns step type, observation and validity of each row."""
    return [
        (int(step_type), int(observation), bool(valid))
        for step_type, observation, valid in zip(
            time_step.step_type, time_step.observation, env.valid, strict=True
        )
    ]


def test_a_reset_that_is_not_waited_for_returns_at_once():
    inner, env = unwaiting([3, 3], delays=[5.0, 5.0])
    time_step = env.reset()
    assert [(LAST, 0, False), (LAST, 0, False)] == shown(env, time_step)
    assert [True, True] == env.resetting.tolist()
    assert 0.0 == inner.clock()


def test_a_step_waits_for_at_least_one_row():
    inner, env = unwaiting([3, 3], delays=[5.0, 9.0])
    env.reset()
    time_step = env.step(np.zeros(2, np.int64))
    assert [(FIRST, 0, True), (LAST, 0, False)] == shown(env, time_step)
    assert 5.0 == inner.clock()


def test_one_slow_reset_delays_nobody():
    inner, env = unwaiting([1, 9], delays=[0, 0, 0, 0, 50.0, 1, 1, 1])
    seen = [shown(env, env.reset())]
    actions = np.zeros(2, np.int64)
    for _ in range(4):
        time_step = env.step(actions)
        seen.append(shown(env, time_step))
    assert (0.0, 0.0) == (time_step.reward[0], time_step.discount[0])
    assert [(FIRST, 0, True), (LAST, 1, True)] == [rows[0] for rows in seen[:2]]
    # Its next episode takes long to begin, and what is shown meanwhile is its end.
    assert [(LAST, 1, False)] * 3 == [rows[0] for rows in seen[2:]]
    assert [0, 1, 2, 3, 4] == [rows[1][1] for rows in seen]
    assert 3.0 == inner.clock()


def test_a_slow_reset_delivers_its_first_time_step_when_ready():
    _, env = unwaiting([1, 9], delays=[0, 0, 0, 0, 1.5, 1, 1, 1, 1, 1])
    seen = [shown(env, env.reset())[0]]
    seen += [shown(env, env.step(np.zeros(2, np.int64)))[0] for _ in range(5)]
    assert [
        (FIRST, 0, True),
        (LAST, 1, True),
        (LAST, 1, False),
        (FIRST, 10, True),
        (LAST, 11, True),
    ] == seen[:5]


def test_actions_for_resetting_rows_are_dropped():
    inner, env = unwaiting([1, 9], delays=[0, 0, 0, 0, 50.0])
    env.reset()
    for _ in range(5):
        env.step(np.zeros(2, np.int64))
    # The last of these two steps is what begins the next episode.
    assert 2 == inner.requests.count(("step", 0))
    assert 5 == inner.requests.count(("step", 1))


def test_rows_can_be_reset_in_mid_episode_without_waiting():
    _, env = unwaiting([9, 9], delays=[0, 0, 0, 0, 7.0])
    env.reset()
    env.step(np.zeros(2, np.int64))
    reset = shown(env, env.reset(np.array([True, False])))
    stepped = shown(env, env.step(np.zeros(2, np.int64)))
    assert [(LAST, 1, False), (MID, 1, True)] == reset
    assert [(LAST, 1, False), (MID, 2, True)] == stepped


def test_a_running_reset_is_not_started_again():
    inner, env = unwaiting([3, 3], delays=[5.0, 5.0])
    env.reset()
    env.reset()
    env.reset(np.array([True, False]))
    assert [("reset", 0), ("reset", 1)] == inner.requests


def test_a_step_waits_for_running_rows_at_most_until_the_timeout():
    inner, env = unwaiting([9, 9], delays=[0, 0, 50.0], timeout=4.0)
    env.reset()
    with pytest.raises(WorkerTimeout) as caught:
        env.step(np.zeros(2, np.int64))
    inner.hurry()
    assert [0] == list(caught.value.envs)
    assert [(MID, 1, True), (MID, 1, True)] == shown(env, env.wait())


@pytest.mark.parametrize("polls", [False, True])
@given(
    delays=st.lists(st.floats(0, 3), max_size=60),
    kinds=st.lists(st.booleans(), max_size=20),
)
def test_each_rows_valid_steps_are_its_own_stream(polls, delays, kinds):
    """Polls in between lose nothing and show nothing twice."""
    lengths = [1, 2, 4]
    _, env = unwaiting(lengths, delays)
    streams = [[], [], []]

    def note(time_step):
        for stream, (*facts, valid) in zip(streams, shown(env, time_step), strict=True):
            if valid:
                stream.append(tuple(facts))

    if polls:
        env.reset_async()
    else:
        note(env.reset())
    for is_poll in kinds:
        note(env.poll() if polls and is_poll else env.step(np.zeros(3, np.int64)))

    for length, stream in zip(lengths, streams, strict=True):
        alone = CountingEnv(length)
        expected = [alone.reset()] + [alone.step(0) for _ in stream]
        facts = [(int(one.step_type), int(one.observation)) for one in expected]
        assert stream == facts[: len(stream)]


def test_a_poll_returns_at_once_with_the_rows_that_have_begun():
    inner, env = unwaiting([9, 9], delays=[50.0, 50.0])
    env.reset_async()
    nothing = [valid for *_, valid in shown(env, env.poll())]
    inner.hurry()
    assert [False, False] == nothing
    assert [(FIRST, 0, True)] * 2 == shown(env, env.poll())


# Infos.


class GatedEnv(CountingEnv):
    """Begins an episode when its gate is open."""

    def __init__(self, gate):
        super().__init__(2)
        self._gate = gate

    def _reset(self):
        self._gate.wait()
        return super()._reset()

    def get_info(self):
        return {"seen": int(self.current_time_step().observation)}


def test_infos_match_the_pools():
    makers = [functools.partial(GatedEnv, opened()) for _ in range(2)]
    with Blocking(AsyncParallelPyEnvironment(makers, backend="inline")) as env:
        env.reset()
        env.step([0, 0])
        assert [1, 1] == env.get_info()["seen"].tolist()


def test_rows_that_are_resetting_have_no_info():
    closed = threading.Event()
    makers = [functools.partial(GatedEnv, gate) for gate in (opened(), closed)]
    pool = AsyncParallelPyEnvironment(makers, backend="thread", num_workers=2)
    with Blocking(pool, wait=False) as env:
        env.reset()
        env.step([0, 0])
        info, valid = env.get_info(), env.valid
        closed.set()
    assert [True, False] == valid.tolist()
    assert [{}] == info[1:]
    assert ["seen"] == list(info[0])


def opened():
    gate = threading.Event()
    gate.set()
    return gate
