"""`AsyncEnvPool`: EnvPool's asynchronous mode, each answer once."""

from __future__ import annotations

import functools
import os
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import AutoReset, Blocking, nest
from envkit.adapters import AsyncEnvPool, EnvPoolWrapper
from envkit.adapters.envpool.async_pool import LateAnswers
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.testing import check_environment
from tests.adapters.pools import FIRST, LAST, MID, action_of, bare, row_of
from tests.parallel.streams import is_grammatical

PENDULUM = {"max_episode_steps": 4}


def pool_of(rows, batch, name="CartPole-v1", **arguments):
    return AsyncEnvPool(
        name,
        num_envs=rows,
        batch_size=batch,
        seed=list(range(rows)),
        **(PENDULUM if name == "Pendulum-v1" else {}),
        **arguments,
    )


def begun(*arguments, **options):
    """Returns rows that have begun and owe nothing."""
    env = pool_of(*arguments, **options)
    env.reset_async()
    env.recv()
    return env


@functools.cache
def stream_alone(row, name="CartPole-v1", steps=200):
    """Plays a row by itself, in a pool in which nothing can be mixed up."""
    arguments = PENDULUM if name == "Pendulum-v1" else {}
    with EnvPoolWrapper(name, num_envs=1, seed=[row], **arguments) as env:
        seen = [row_of(env.reset(), 0)]
        for number in range(steps):
            action = action_of(env.action_spec(), row, number)
            seen.append(row_of(env.step(action[None]), 0))
    return seen


class Told:
    """Collects what each row is told, and gives each its next action."""

    def __init__(self, env):
        self.env = env
        self.streams = [[] for _ in range(env.num_envs)]

    def recv(self, *arguments, **options):
        ids, time_step = self.env.recv(*arguments, **options)
        for place, row in enumerate(ids.tolist()):
            self.streams[row].append(row_of(time_step, place))
        return ids

    def send(self, ids):
        spec = self.env.action_spec()
        actions = [action_of(spec, row, len(self.streams[row]) - 1) for row in ids]
        self.env.send(np.array(actions).reshape(-1, *spec.shape), ids)

    def check(self, name="CartPole-v1"):
        for row, stream in enumerate(self.streams):
            assert stream_alone(row, name)[: len(stream)] == stream


# Each answer once.


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_every_row_is_told_its_own_stream(name):
    with pool_of(6, 2, name) as env:
        told = Told(env)
        env.reset_async()
        for _ in range(60):
            told.send(told.recv(count=2))
        told.recv()
        assert min(map(len, told.streams)) > 10
        told.check(name)


@settings(max_examples=12)
@given(data=st.data(), batch=st.integers(1, 5))
def test_no_answer_is_lost_or_doubled_whoever_is_asked(data, batch):
    with pool_of(5, batch) as env:
        told = Told(env)
        env.reset_async()
        for _ in range(12):
            owing = int(env.owing.sum())
            idle = np.flatnonzero(~env.owing).tolist()
            if owing and (not idle or data.draw(st.booleans())):
                count = data.draw(st.integers(1, owing))
                assert count == len(told.recv(count))
            else:
                told.send(data.draw(st.permutations(idle))[: len(idle) // 2 + 1])
        if env.owing.any():
            told.recv()

        assert not env.owing.any()
        told.check()


def test_streams_are_grammatical():
    with pool_of(4, 2, "Pendulum-v1") as env:
        streams = [[] for _ in range(4)]
        env.reset_async()
        for _ in range(60):
            ids, time_step = env.recv(count=2)
            for row, kind in zip(ids, time_step.step_type, strict=True):
                streams[row].append(int(kind))
            env.send(np.zeros((2, 1), np.float32), ids)

    assert all(map(is_grammatical, streams))
    assert all(LAST in stream for stream in streams)


def test_actions_belong_to_the_rows_that_are_named():
    with begun(4, 2) as env:
        env.send([1, 0, 1], [3, 0, 2])
        ids, time_step = env.recv()
        pushed = dict(zip(ids.tolist(), time_step.observation[:, 1] > 0, strict=True))
        assert {3: True, 0: False, 2: True} == pushed
        assert [False] * 4 == env.owing.tolist()


def test_what_the_caller_does_to_actions_and_ids_afterwards_changes_nothing():
    with begun(4, 2) as env, begun(4, 2) as other:
        actions, ids = np.array([1, 0, 1]), np.array([3, 0, 2])
        env.send(actions, ids)
        actions[:], ids[:] = 0, 1
        other.send([1, 0, 1], [3, 0, 2])
        one, two = env.recv(), other.recv()

        assert {
            row: row_of(one.time_step, place)
            for place, row in enumerate(one.env_ids.tolist())
        } == {
            row: row_of(two.time_step, place)
            for place, row in enumerate(two.env_ids.tolist())
        }


def test_ids_that_were_written_into_name_other_rows():
    with begun(4, 2) as env:
        env.send([0, 0], [0, 1])
        ids, _ = env.recv()
        ids[:] = [2, 3]
        env.send([0, 0], ids)
        assert [False, False, True, True] == env.owing.tolist()


def test_the_first_action_of_a_row_begins_its_episode():
    with pool_of(3, 1) as env:
        env.reset_async([1])
        env.recv()
        env.send([5, 1, -5])
        ids, time_step = env.recv()
        kinds = dict(zip(ids.tolist(), time_step.step_type.tolist(), strict=True))
        assert {0: FIRST, 1: MID, 2: FIRST} == kinds


def test_infos_belong_to_the_rows_that_were_received():
    with pool_of(5, 2) as env:
        assert {} == env.get_info()
        env.reset_async()
        ids, _ = env.recv(count=3)
        info = env.get_info()
        assert ids.tolist() == info["env_id"].tolist()
        assert ids.tolist() == info["players"]["env_id"].tolist()
        assert [False] * 3 == info["terminated"].tolist()


# As a batch.


@pytest.mark.parametrize(("rows", "batch"), [(4, 2), (5, 3), (3, 3)])
def test_blocking_it_gives_the_numbers_of_the_batch(rows, batch):
    action = np.zeros((rows, 1), np.float32)
    seeds = list(range(rows))
    with (
        Blocking(pool_of(rows, batch, "Pendulum-v1")) as env,
        EnvPoolWrapper("Pendulum-v1", num_envs=rows, seed=seeds, **PENDULUM) as other,
    ):
        pairs = [(other.reset(), env.reset())]
        pairs += [(other.step(action), env.step(action)) for _ in range(12)]

    for expected, got in pairs:
        for one, two in zip(nest.flatten(expected), nest.flatten(got), strict=True):
            assert one.tobytes() == two.tobytes()


@pytest.mark.slow
def test_blocking_it_keeps_the_contract_of_environments():
    def make():
        return Blocking(AsyncEnvPool("CartPole-v1", num_envs=3, batch_size=2))

    features = ["episodes", "masked_reset", "seed"]

    assert () == check_environment(make, steps=60, require=features).failed


# Reset orders.


def test_under_disabled_a_row_that_ended_waits_for_a_reset(message_of):
    with begun(2, 1, "Pendulum-v1", autoreset="disabled") as env:
        assert AutoReset.DISABLED is env.autoreset
        for _ in range(4):
            env.send(np.zeros((1, 1), np.float32), [1])
            _, time_step = env.recv()
        assert [LAST] == time_step.step_type.tolist()
        both = np.zeros((2, 1), np.float32)
        message = message_of(CallOrderError, lambda: env.send(both))
        assert [False, False] == env.owing.tolist()
        env.reset_async([1])

        assert [FIRST] == env.recv().time_step.step_type.tolist()
    assert (
        "send() was called after the episode of row 1 ended. Under "
        "AutoReset.DISABLED, call reset_async(env_ids) for them first."
    ) == message


def test_same_step_is_refused_with_the_reason(message_of):
    assert (
        "AsyncEnvPool keeps AutoReset.NEXT_STEP or AutoReset.DISABLED. Under SAME_STEP "
        "the next episode of a row would have to begin before the caller asked for "
        "it; EnvPoolWrapper does that."
    ) == message_of(
        NotImplementedError, lambda: pool_of(2, 1, autoreset=AutoReset.SAME_STEP)
    )


# Seeds.


def test_a_seed_counts_from_the_next_reset_of_all_rows():
    with pool_of(4, 2) as env:
        env.reset_async()
        env.recv()
        env.seed(list(range(4)))
        assert [0, 1, 2, 3] == env.provenance()["seed"]
        env.reset_async([0])
        env.recv()
        told = Told(env)
        env.reset_async()
        told.recv()

        told.check()


def test_a_pool_that_was_made_already_cannot_be_seeded(message_of):
    with AsyncEnvPool(bare("CartPole-v1", range(4), batch_size=2)) as env:
        message = message_of(NotImplementedError, lambda: env.seed(7))
    assert (
        "CartPoleGymnasiumEnvPool cannot be seeded: EnvPool takes seeds only when a "
        "pool is made, and this one was made already. Make it with a seed, or give "
        "AsyncEnvPool the name: AsyncEnvPool('CartPole-v1', num_envs=8)."
    ) == message


# Waiting.


def test_without_time_it_returns_what_is_ready_and_loses_nothing():
    with pool_of(4, 2) as env:
        told = Told(env)
        env.reset_async()
        while env.owing.any():
            told.recv(timeout=0)
        assert [1] * 4 == list(map(len, told.streams))
        told.check()


def test_with_time_enough_it_returns_all():
    with pool_of(5, 3) as env:
        env.reset_async()
        assert 5 == len(env.recv(timeout=30.0).env_ids)


def test_nothing_in_time_is_an_empty_batch():
    with pool_of(3, 2) as env:
        env.reset_async()
        ids, _ = env.recv(count=3)
        env.send(np.zeros(3, int), ids)
        # EnvPool cannot be held up, so what it says is.
        gate = threading.Event()
        receive = env._inbox._receiver._call
        env._inbox._receiver._call = lambda: (gate.wait(), receive())[1]
        nothing = env.recv(timeout=0.001)
        gate.set()

        assert (0,) == nothing.env_ids.shape
        assert (0, 4) == nothing.time_step.observation.shape
        assert 3 == len(env.recv().env_ids)


def test_an_answer_that_comes_late_is_kept():
    gate = threading.Event()
    answers = LateAnswers(lambda: gate.wait() and "late")
    assert answers.get(0.001) is None
    gate.set()
    assert ("late",) == answers.get(None)
    answers.close()


def test_what_goes_wrong_in_a_thread_is_raised_where_somebody_waits(message_of):
    def fail():
        raise ValueError("no answer")

    assert "no answer" == message_of(ValueError, lambda: LateAnswers(fail).get(30.0))


def test_an_answer_that_an_interrupt_has_lost_is_told(message_of):
    with begun(2, 1) as env:
        env.send([0, 0])
        receive = env._inbox._receiver._call

        def interrupt():
            receive()
            raise KeyboardInterrupt

        env._inbox._receiver._call = interrupt
        with pytest.raises(KeyboardInterrupt):
            env.recv()

        assert (
            "CartPole-v1 was interrupted while it answered, and what it answered is "
            "lost. Close this environment and make another."
        ) == message_of(CallOrderError, env.recv)


# What is refused.


def test_calls_in_the_wrong_order_are_refused(message_of):
    with pool_of(3, 1) as env:
        told = [message_of(CallOrderError, env.recv)]
        env.reset_async([0, 2])
        told += [
            message_of(CallOrderError, lambda: env.send([0, 0], [1, 2])),
            message_of(CallOrderError, env.reset_async),
            message_of(CallOrderError, lambda: env.recv(count=3)),
        ]

        assert 2 == len(env.recv().env_ids)
    assert [
        "recv() was called although no environment owes an answer. Call reset_async() "
        "or send() first.",
        "send() was called while 1 environment (2) still owes an answer. Call recv() "
        "until it returns it.",
        "reset_async() was called while 2 environments (0, 2) still owe an answer. "
        "Call recv() until it returns them.",
        "recv(count=3) was called although only 2 environments owe an answer, so it "
        "would wait for ever. Ask for fewer, or send more first.",
    ] == told


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda env: env.recv(count=0),
            ValueError,
            "count must be at least 1, got 0.",
        ),
        (
            lambda env: env.recv(count="all"),
            TypeError,
            "count must be an integer, or None for all that owe an answer, got "
            "the string 'all'.",
        ),
        (
            lambda env: env.send([0], "all"),
            TypeError,
            "env_ids must be a list of row numbers, such as the env_ids that recv() "
            "returned, got the string 'all'.",
        ),
        (
            lambda env: env.send([0], [4]),
            ValueError,
            "env_ids has 4; there are 4 environments, 0 to 3.",
        ),
        (
            lambda env: env.send([0, 0], [1, 1]),
            ValueError,
            "env_ids names an environment twice; each takes one action at a time.",
        ),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call, kind, message, message_of):
    with pool_of(4, 2) as env:
        env.reset_async([3])
        assert message == message_of(kind, lambda: call(env))


def test_a_wrong_action_reaches_nobody(message_of):
    with begun(4, 2) as env:
        message = message_of(SpecError, lambda: env.send([0, 2], [0, 1]))
        assert "AsyncEnvPool.send() was given an action that does not fit" in message
        assert not env.owing.any()


def test_without_spares_a_batch_that_cannot_be_full_is_not_waited_for(message_of):
    with AsyncEnvPool(bare("CartPole-v1", range(4), batch_size=3)) as env:
        env.reset_async()
        assert 3 == len(env.recv(count=3).env_ids)
        message = message_of(CallOrderError, env.recv)

    assert (
        "recv() was called for 1 environment, and EnvPool answers 3 at a time, of "
        "which 1 have been asked. Ask more of them first, or let AsyncEnvPool make the "
        "pool, with spares: AsyncEnvPool('CartPole-v1', num_envs=8, batch_size=4)."
    ) == message


def test_a_pool_in_synchronous_mode_is_for_another_adapter(message_of):
    assert (
        "AsyncEnvPool was given CartPoleGymnasiumEnvPool in EnvPool's synchronous "
        "mode: its batch_size is its num_envs. EnvPoolWrapper takes it."
    ) == message_of(ValueError, lambda: AsyncEnvPool(bare("CartPole-v1", range(4))))


def test_rows_with_players_are_for_another_adapter(message_of):
    message = message_of(
        NotImplementedError,
        lambda: AsyncEnvPool("IntersectionMultiAgent-v0", num_envs=4, batch_size=2),
    )
    assert (
        "IntersectionMultiAgent-v0 has 2 players in each row, which AsyncEnvPool does "
        "not tell apart. EnvPoolWrapper does."
    ) == message


# The rest.


def test_it_says_what_it_is():
    with pool_of(5, 2) as env, AsyncEnvPool("CartPole-v1", num_envs=5) as other:
        assert (5, 2, 6) == (env.num_envs, env.batch_size, len(env.pool))
        assert 2 == other.batch_size
        assert AutoReset.NEXT_STEP is env.autoreset
        assert env.pool.config == env.config


def threads():
    return set(os.listdir("/proc/self/task"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists threads")
@pytest.mark.parametrize("kind", [EnvPoolWrapper, AsyncEnvPool])
def test_the_threads_of_a_pool_end_with_it(kind):
    before = threads()
    with kind("CartPole-v1", num_envs=4, num_threads=3) as env:
        begun = threads() - before
        assert len(begun) >= 3
        env.seed(1)
        env.reset() if kind is EnvPoolWrapper else env.reset_async()
        assert len(threads() - before) < 6

    assert not begun & threads()


def test_it_can_be_closed_while_rows_owe_an_answer():
    env = pool_of(4, 2)
    env.reset_async()
    env.recv(count=1, timeout=0)
    env.close()
    env.close()

    for call in (env.reset_async, env.recv, lambda: env.send([0] * 4)):
        with pytest.raises(ClosedError):
            call()
