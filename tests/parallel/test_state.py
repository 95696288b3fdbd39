"""A pool's state: everything comes back, in any pool, or nothing changes."""

from __future__ import annotations

import functools
import os
import pickle
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import RestartPolicy, constructor
from envkit.errors import (
    CallOrderError,
    EnvironmentRaised,
    WorkerCrashed,
    WorkerError,
)
from envkit.parallel import (
    AsyncParallelPyEnvironment,
    AutoReset,
)
from envkit.parallel.state import PoolState
from envkit.testing.envs import CountingEnv, TracingEnv
from envkit.time_step import StepType, TimeStep
from tests.parallel import environments, streams
from tests.parallel.environments import Walk
from tests.parallel.streams import pool_of
from tests.waiting import is_running, until

with_each_order = pytest.mark.parametrize(
    "order", list(AutoReset), ids=lambda o: o.value
)

FIRST, LAST = int(StepType.FIRST), int(StepType.LAST)
SAME_STEP, NEXT_STEP, DISABLED = (
    AutoReset.SAME_STEP,
    AutoReset.NEXT_STEP,
    AutoReset.DISABLED,
)
ACTIONS = np.random.default_rng(2).uniform(-1, 1, (40, 4, 2)).astype(np.float32)


def future_of(env, actions=ACTIONS):
    """Plays on from where the environments stand; lists all that comes."""
    seen = []
    for action in actions:
        standing = env.current_time_step()
        if env.autoreset is DISABLED and standing.is_last().any():
            seen.append(env.reset(standing.is_last()))
        seen += [env.step(action), env.current_time_step()]
    return streams.digest_of(seen)


def moved(env, steps=7):
    """Lets a pool of random walks play for a while."""
    env.seed(3)
    env.reset()
    for action in ACTIONS[:steps]:
        standing = env.current_time_step()
        if env.autoreset is DISABLED and standing.is_last().any():
            env.reset(standing.is_last())
        env.step(action)
    return env


@with_each_order
def test_a_restored_state_repeats_the_stream(order, backend):
    with pool_of([Walk] * 4, backend, num_workers=2, autoreset=order) as env:
        moved(env)
        state = env.get_state()
        shown = env.current_time_step()
        expected = future_of(env)
        env.set_state(state)
        back = env.current_time_step()
        actual = future_of(env)

    assert [] == streams.differences(shown, back)
    assert expected == actual


@pytest.mark.parametrize(
    ("backend", "workers", "other", "others"),
    [
        ("inline", 4, "process", 2),
        ("process", 2, "thread", 3),
        ("thread", 3, "inline", 1),
    ],
)
def test_a_state_can_be_restored_in_another_pool(backend, workers, other, others):
    with pool_of([Walk] * 4, backend, num_workers=workers) as env:
        moved(env)
        token = pickle.dumps(env.get_state())
        expected = future_of(env)
    with pool_of([Walk] * 4, other, num_workers=others) as env:
        env.set_state(pickle.loads(token))
        actual = future_of(env)

    assert expected == actual


def test_an_asynchronous_pools_state_fits_a_lockstep_pool():
    with AsyncParallelPyEnvironment([Walk] * 4, backend="inline") as env:
        env.seed(3)
        env.reset_async()
        env.recv()
        for action in ACTIONS[:7]:
            env.send(action)
            env.recv()
        state = env.get_state()
        shown = env.current_time_step()
    with pool_of([Walk] * 4) as env:
        expected = future_of(moved(env))
        env.set_state(state)
        back = env.current_time_step()
        actual = future_of(env)

    assert [] == streams.differences(shown, back)
    assert expected == actual


@with_each_order
def test_a_lockstep_pools_state_fits_an_asynchronous_pool(order):
    with pool_of([Walk] * 4, autoreset=order) as env:
        moved(env)
        state = env.get_state()
        standing = env.current_time_step()
        ended = standing.is_last()
        if order is DISABLED and ended.any():
            env.reset(ended)
        expected = env.step(ACTIONS[9])
    with AsyncParallelPyEnvironment(
        [Walk] * 4, backend="inline", autoreset=order
    ) as env:
        env.set_state(state)
        back = env.current_time_step()
        if order is DISABLED and ended.any():
            env.reset_async(np.flatnonzero(ended))
            env.recv()
        env.send(ACTIONS[9])
        ids, actual = env.recv()

    assert [] == streams.differences(standing, back)
    order_of_rows = np.argsort(ids)
    assert [] == streams.differences(
        expected,
        streams.stacked([streams.row_of(actual, row) for row in order_of_rows]),
    )


@pytest.mark.parametrize("taken", list(AutoReset), ids=lambda o: o.value)
@pytest.mark.parametrize("given", list(AutoReset), ids=lambda o: o.value)
def test_a_state_can_come_from_another_order(taken, given):
    """Where the environments stand is the same; what comes follows the new order."""
    makers = [functools.partial(CountingEnv, length) for length in (1, 2)]
    with pool_of(makers, autoreset=taken) as env:
        env.reset()
        env.step([0, 0])
        standing = env.current_time_step()
        state = env.get_state()
    with pool_of(makers, autoreset=given) as env:
        env.set_state(state)
        back = env.current_time_step()
        if given is DISABLED and taken is not SAME_STEP:
            with pytest.raises(CallOrderError, match="the episode of row 0 ended"):
                env.step([0, 0])
            env.reset([True, False])
            after = env.step([0, 0])
        else:
            after = env.step([0, 0])
        order = env.autoreset

    assert given is order
    assert [] == streams.differences(standing, back)
    if taken is SAME_STEP or given is DISABLED:
        expected = ([LAST, LAST], [11, 2])
    else:
        expected = ([FIRST, LAST], [10, 2])
    assert expected == (after.step_type.tolist(), after.observation.tolist())


def test_the_state_before_the_first_reset_is_that_of_a_new_pool(backend):
    with pool_of([TracingEnv] * 2, backend, num_workers=1) as env:
        state = env.get_state()
        streams.play(env, [[1, 2]] * 3)
        env.set_state(state)
        with pytest.raises(CallOrderError, match="before the first episode"):
            env.current_time_step()
        first = env.step([5, 5])

    assert [FIRST, FIRST] == first.step_type.tolist()
    assert [0, 0] == first.observation["episode"].tolist()


def test_restoring_keeps_unbegun_rows_unbegun():
    with AsyncParallelPyEnvironment([TracingEnv] * 3, backend="inline") as env:
        env.reset_async([1])
        env.recv()
        env.send([7], [1])
        env.recv()
        state = env.get_state()
        env.reset_async()
        env.recv()
        env.set_state(state)
        now = env.current_time_step([1]).observation
        with pytest.raises(CallOrderError):
            env.current_time_step([0])
        env.send([4, 5, 6])
        batch = env.recv()
    rows = dict(
        zip(batch.env_ids.tolist(), batch.time_step.step_type.tolist(), strict=True)
    )

    assert ([1], [7]) == (now["step"].tolist(), now["action"].tolist())
    assert {0: FIRST, 1: 1, 2: FIRST} == rows


def test_the_token_is_a_copy():
    with pool_of([Walk] * 4) as env:
        state = env.get_state()
        before = pickle.dumps(moved(env).get_state())
        state = pickle.loads(before)
        future_of(env)
        env.set_state(state)
        for leaf in streams.leaves_of(env.current_time_step()):
            leaf[...] = 1
        future_of(env)

    assert before == pickle.dumps(state)


def test_the_token_pickles_without_the_workers_objects(backend):
    with pool_of([Walk] * 2, backend, num_workers=1) as env:
        env.reset()
        state = env.get_state()
    assert isinstance(state, PoolState)
    assert all(isinstance(token, bytes) for token in state.environments)
    assert pickle.dumps(pickle.loads(pickle.dumps(state))) == pickle.dumps(state)


def test_anything_but_a_state_is_refused(message_of):
    with pool_of([CountingEnv] * 2) as env:
        env.reset()
        message = message_of(TypeError, lambda: env.set_state([1, 2]))
    assert (
        "ParallelPyEnvironment.set_state() was given a list of 2 elements; it takes "
        "what get_state() of a pool returned."
    ) == message


def test_the_state_of_another_number_of_environments_changes_nothing(
    message_of, backend
):
    with pool_of([Walk] * 3) as env:
        env.reset()
        state = env.get_state()
    with pool_of([Walk] * 4, backend, num_workers=2) as env:
        moved(env)
        before = env.get_state()
        expected = future_of(env)
        env.set_state(before)
        message = message_of(ValueError, lambda: env.set_state(state))
        actual = future_of(env)

    assert (
        "ParallelPyEnvironment.set_state() was given the state of 3 environments; "
        "there are 4."
    ) == message
    assert expected == actual


def test_an_environment_without_state_says_so_and_nothing_changes(backend):
    makers = [CountingEnv, CountingEnv, environments.Stateless]
    with pool_of([CountingEnv] * 3) as env:
        streams.play(env, [[0] * 3] * 5)
        state = env.get_state()
    with pool_of(makers, backend, num_workers=2) as env:
        streams.play(env, [[0] * 3] * 2)
        with pytest.raises(
            NotImplementedError, match="Stateless cannot save"
        ) as saving:
            env.get_state()
        with pytest.raises(NotImplementedError) as restoring:
            env.set_state(state)
        observation = env.step([0] * 3).observation.tolist()

    assert (2,) == saving.value.envs == restoring.value.envs
    assert isinstance(saving.value, EnvironmentRaised)
    assert [3, 3, 3] == observation


def test_a_refused_state_restores_the_other_environments(backend):
    makers = [CountingEnv, environments.Stubborn, CountingEnv]
    with pool_of([CountingEnv] * 3) as env:
        streams.play(env, [[0] * 3] * 5)
        state = env.get_state()
    with pool_of(makers, backend, num_workers=2) as env:
        streams.play(env, [[0] * 3] * 2)
        shown = env.current_time_step()
        with pytest.raises(ValueError, match="Stubborn stays where it is") as caught:
            env.set_state(state)
        back = env.current_time_step()
        observation = env.step([0] * 3).observation.tolist()

    assert (1,) == caught.value.envs
    assert [] == streams.differences(shown, back)
    assert [3, 3, 3] == observation


def test_a_row_that_raised_can_be_restored(backend):
    makers = [functools.partial(environments.Talkative, row) for row in range(2)]
    with pool_of(makers, backend, num_workers=1) as env:
        streams.play(env, [[0, 0]] * 2)
        state = env.get_state()
        env.call("plan_complaint", 3, env_ids=[1])
        with pytest.raises(EnvironmentRaised):
            env.step([0, 0])
        env.set_state(state)
        observation = env.step([0, 0]).observation.tolist()

    assert [3, 3] == observation


def test_batches_have_a_state_too(backend):
    makers = [
        functools.partial(constructor("CartPole"), batch_size=2),
        functools.partial(constructor("CartPole"), batch_size=1),
    ]
    actions = np.random.default_rng(5).integers(2, size=(60, 3))
    with pool_of(makers, backend, num_workers=2) as env:
        env.seed(1)
        env.reset()
        for action in actions[:20]:
            env.step(action)
        state = env.get_state()
        expected = future_of(env, actions[20:])
        env.set_state(state)
        actual = future_of(env, actions[20:])

    assert expected == actual


def test_the_state_is_right_with_views_too():
    with pool_of([Walk] * 4, zero_copy=True) as env:
        moved(env)
        state = env.get_state()
        kept = pickle.dumps(state)
        expected = [streams.digest_of([env.step(action)]) for action in ACTIONS]
        env.set_state(state)
        actual = [streams.digest_of([env.step(action)]) for action in ACTIONS]

    assert expected == actual
    assert kept == pickle.dumps(state)


def test_views_stay_valid_when_a_state_is_restored():
    with pool_of([TracingEnv] * 2, zero_copy=True) as env:
        env.reset()
        state = env.get_state()
        shown = env.step([1, 2])
        before = streams.bits_of(shown)
        env.set_state(state)
        assert before == streams.bits_of(shown)


def test_changes_to_the_callers_arrays_are_not_in_the_state():
    with pool_of([TracingEnv] * 2) as env:
        env.reset()
        time_step = env.step([1, 2])
        kept = pickle.loads(pickle.dumps(time_step))
        for leaf in streams.leaves_of(time_step):
            leaf[...] = 1
        env.set_state(env.get_state())
        back = env.current_time_step()

    assert [] == streams.differences(kept, back)


@settings(max_examples=20)
@given(
    steps=st.integers(0, 12),
    later=st.integers(1, 12),
    orders=st.tuples(*[st.sampled_from(list(AutoReset))] * 2),
    workers=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_set_state_is_the_identity_on_the_future(steps, later, orders, workers):
    with pool_of([Walk] * 4, num_workers=workers[0], autoreset=orders[0]) as env:
        moved(env, steps)
        state = env.get_state()
        env.autoreset = orders[1]
        expected = future_of(env, ACTIONS[:later])
    with pool_of([Walk] * 4, num_workers=workers[1], autoreset=orders[1]) as env:
        env.set_state(state)
        actual = future_of(env, ACTIONS[:later])

    assert expected == actual


def test_a_state_needs_rows_without_pending_answers(message_of):
    with AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
        state = env.get_state()
        env.reset_async([1])
        saving = message_of(CallOrderError, env.get_state)
        restoring = message_of(CallOrderError, lambda: env.set_state(state))
        env.recv()

    for call, message in (("get_state", saving), ("set_state", restoring)):
        assert (
            f"{call}() was called while 1 environment (1) still owes an answer. Call "
            "recv() until it returns it."
        ) == message


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_invalid_bytes_raise_value_error_and_change_nothing(backend):
    with pool_of([CountingEnv] * 3, backend, num_workers=2) as env:
        env.reset()
        token = env.get_state()
        expected = env.step([0] * 3)
        truncated = tuple(one[: len(one) // 2] for one in token.environments)
        for tokens in ((b"junk",) * 3, (token.environments[0], b"", b""), truncated):
            with pytest.raises(ValueError, match="The state cannot be read: "):
                env.set_state(token._replace(environments=tokens))
            assert [] == streams.differences(expected, env.current_time_step())
        env.set_state(token)

        assert [] == streams.differences(expected, env.step([0] * 3))


# A state that is wrong somewhere.


def seen_of(env):
    """Lists all that can be seen of a pool: where its environments stand, and why."""
    return pickle.dumps(env.get_state()), streams.digest_of([env.current_time_step()])


def begun_pool(kind=pool_of, **options):
    """Makes a pool in the middle of episodes."""
    if kind is pool_of:
        return moved(pool_of([Walk] * 4, num_workers=2, **options))
    env = kind([Walk] * 4, backend="inline", num_workers=2, **options)
    env.seed(3)
    env.reset_async()
    env.recv()
    for action in ACTIONS[:7]:
        env.send(action)
        env.recv()
    return env


def with_leaf(time_step, change):
    """Returns a time step with another observation."""
    place = change(time_step.observation["place"])
    return time_step._replace(observation={**time_step.observation, "place": place})


ROW = "it must be a tuple of row numbers from 0 to 3."
MARK = "it must be a tuple with True or False for each of 4 rows."
WRONG = {
    "environments": (
        lambda s: {"environments": b"xyz!"},
        "environments are the string b'xyz!'; they must be a tuple with the bytes of "
        "each environment.",
    ),
    "environment": (
        lambda s: {"environments": (*s.environments[:2], "x", b"")},
        "environments[2] is the string 'x'; it must be the bytes that get_state() "
        "returned.",
    ),
    "autoreset": (
        lambda s: {"autoreset": "sometimes"},
        "autoreset must be one of AutoReset.NEXT_STEP, AutoReset.SAME_STEP, "
        "AutoReset.DISABLED, got 'sometimes'.",
    ),
    "begun, too short": (
        lambda s: {"begun": s.begun[:3]},
        f"begun is a tuple of 3 elements; {MARK}",
    ),
    "begun, absent": (
        lambda s: {"begun": ()},
        f"begun is a tuple of 0 elements; {MARK}",
    ),
    "new_rows, outside": (
        lambda s: {"new_rows": (4,)},
        f"new_rows is a tuple of 1 element; {ROW}",
    ),
    "new_rows, no number": (
        lambda s: {"new_rows": "0"},
        f"new_rows is the string '0'; {ROW}",
    ),
    "one time step of two": (
        lambda s: {"time_step": None},
        "time_step is None and whose standing is a TimeStep of 4 elements; both must "
        "be time steps, or None.",
    ),
    "no time step": (
        lambda s: {"time_step": None, "standing": None},
        "begun says that rows have begun an episode, and whose time_step is None; it "
        "must be the time step at which they stand.",
    ),
    "no TimeStep": (
        lambda s: {"standing": tuple(s.standing)},
        "standing is a tuple of 4 elements; it must be a TimeStep of 4 rows.",
    ),
    "structure": (
        lambda s: {"standing": s.standing._replace(observation={})},
        "standing does not fit its spec",
    ),
    "shape": (
        lambda s: {"standing": with_leaf(s.standing, lambda leaf: leaf[:, :1])},
        "standing does not fit its spec at observation['place'].\n\n"
        "  expected   array of shape (4, 2), dtype float64\n"
        "  got        array of shape (4, 1), dtype float64",
    ),
    "rows": (
        lambda s: {"time_step": with_leaf(s.standing, lambda leaf: leaf[:1])},
        "time_step does not fit its spec at observation['place'].",
    ),
    "dtype": (
        lambda s: {"time_step": with_leaf(s.standing, lambda leaf: leaf.astype(str))},
        "time_step does not fit its spec at observation['place'].",
    ),
    "step type": (
        lambda s: {
            "standing": s.standing._replace(step_type=s.standing.step_type * 0 + 9)
        },
        "standing has the step types 9; each must be FIRST, MID or LAST: 0, 1 or 2.",
    ),
}


@pytest.mark.parametrize("kind", [pool_of, AsyncParallelPyEnvironment])
@pytest.mark.parametrize("part", WRONG)
def test_a_state_with_a_wrong_part_is_refused_and_changes_nothing(
    part, kind, message_of
):
    change, expected = WRONG[part]
    with begun_pool(kind) as env:
        state = env.get_state()
        if kind is pool_of:
            env.step(ACTIONS[20])
        else:
            env.send(ACTIONS[20])
            env.recv()
        before = seen_of(env)
        wrong = state._replace(**change(state))
        message = message_of(ValueError, lambda: env.set_state(wrong))
        name = type(env).__name__

        assert before == seen_of(env)
        assert message.startswith(
            f"{name}.set_state() was given a state whose {expected}"
        )


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.text(max_size=4),
    st.binary(max_size=4).map(pickle.dumps),
    st.lists(st.one_of(st.booleans(), st.integers(-2, 6), st.none()), max_size=5),
    st.sampled_from([np.zeros(4, bool), np.zeros((2, 2)), np.zeros(()), {}, (), 1.5]),
    st.sampled_from([lambda leaf: leaf[:2], lambda leaf: leaf.astype(np.int8)]).map(
        lambda change: with_leaf(STANDING, change)
    ),
)
with pool_of([Walk] * 4) as _env:
    STANDING = moved(_env).current_time_step()


@pytest.fixture(scope="module")
def begun():
    """A pool in the middle of episodes, and its state there."""
    with pool_of([Walk] * 4, num_workers=2, autoreset=SAME_STEP) as env:
        yield env, moved(env).get_state()


@settings(max_examples=40)
@given(data=st.data())
def test_a_corrupt_state_is_restored_or_changes_nothing(begun, data):
    env, state = begun
    env.set_state(state)
    env.step(ACTIONS[20])
    before = seen_of(env)
    parts = data.draw(st.sets(st.sampled_from(PoolState._fields), min_size=1))
    junk = {}
    for part in sorted(parts):
        junk[part] = data.draw(JUNK)
        old = getattr(state, part)
        if isinstance(old, tuple) and data.draw(st.booleans()):
            # One element of it, or one more or less.
            place = data.draw(st.integers(0, max(len(old) - 1, 0)))
            new = (junk[part],) * data.draw(st.integers(0, 2))
            junk[part] = (*old[:place], *new, *old[place + 1 :])
            if isinstance(old, TimeStep) and len(new) == 1:
                junk[part] = type(old)(*junk[part])
    try:
        env.set_state(state._replace(**junk))
    except (ValueError, WorkerError):
        assert before == seen_of(env)
    else:
        seen_of(env)


# A state while workers are lost.


@pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet")
@pytest.mark.parametrize("kind", [pool_of, AsyncParallelPyEnvironment])
def test_a_state_can_be_restored_in_a_replaced_worker(kind):
    with pool_of([Walk] * 4) as env:
        state = moved(env).get_state()
        expected = env.step(ACTIONS[9])
    with kind(
        [Walk] * 4,
        backend="process",
        num_workers=2,
        start_method="fork",
        on_worker_failure=RestartPolicy(),
    ) as env:
        pid = env.workers[1].pid
        os.kill(pid, signal.SIGKILL)
        # One that dies while it is asked for its state is an error of the call.
        assert until(lambda: not is_running(pid))
        env.set_state(state)
        restarts = env.statistics().restarts
        if kind is pool_of:
            actual = env.step(ACTIONS[9])
        else:
            env.send(ACTIONS[9])
            ids, rows = env.recv()
            order = np.argsort(ids)
            actual = streams.stacked([streams.row_of(rows, row) for row in order])

    assert 1 == restarts
    assert [] == streams.differences(expected, actual)


class DiesOfStates(CountingEnv):
    """Ends its process when it is given a state."""

    def _set_state(self, state):
        os._exit(5)


@pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet")
def test_a_state_that_kills_a_worker_restores_the_others():
    with pool_of([CountingEnv] * 3) as env:
        streams.play(env, [[0] * 3] * 5)
        state = env.get_state()
    makers = [CountingEnv, DiesOfStates, CountingEnv]
    with pool_of(makers, "process", num_workers=3, start_method="fork") as env:
        streams.play(env, [[0] * 3] * 2)
        with pytest.raises(WorkerCrashed) as caught:
            env.set_state(state)
        after = env.step([0] * 3, [True, False, True]).observation.tolist()

    assert (1,) == caught.value.envs
    assert [3, 3] == [after[0], after[2]]
