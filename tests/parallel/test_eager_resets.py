"""Eager resets: environments are reset while the caller does something else."""

from __future__ import annotations

import functools
import os
import threading

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    AutoReset,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    make,
    restart,
    termination,
)
from envkit.errors import EnvironmentRaised, WorkerTimeout
from envkit.testing.envs import CountingEnv
from tests.parallel import streams
from tests.parallel.environments import Reusing, Walk
from tests.parallel.fake_backend import Die, FakeBackend
from tests.parallel.programs import (
    MAKERS,
    MOVES,
    ROWS,
    Program,
    constructors,
    moves_named,
)
from tests.parallel.streams import differences, pool_of, row_of
from tests.waiting import until

ORDERS = st.sampled_from(list(AutoReset))
# How many resets are made ahead after each move, of those that are due.
PACES = st.lists(st.integers(0, 5), min_size=24, max_size=24)
ALL_AT_ONCE = [ROWS] * 24


def fake_pool(kind, order=AutoReset.NEXT_STEP, eager=True, **options):
    backend = FakeBackend()
    env = ParallelPyEnvironment(
        constructors(kind),
        num_workers=2,
        backend=backend,
        autoreset=order,
        eager_resets=eager,
        **options,
    )
    return env, backend


def played(moves, paces, kind="saves", order=AutoReset.NEXT_STEP, eager=True, **more):
    """Plays moves, with resets ahead between them; returns all that came back."""
    env, backend = fake_pool(kind, order, eager, **more)
    with env:
        program = Program(env, kind)
        for (name, number), pace in zip(moves, paces, strict=False):
            program.play(name, number)
            backend.reset_ahead(pace)
    return program.seen, program.told


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - {"batch"}))
@hypothesis.settings(deadline=None, max_examples=25)
@hypothesis.given(moves=st.lists(MOVES, max_size=24), order=ORDERS, paces=PACES)
def test_streams_do_not_depend_on_the_learners_speed(kind, moves, order, paces):
    """Seeds, options, states, attributes, masks, other orders: all whenever."""
    expected, told = played(moves, ALL_AT_ONCE, kind, order)
    actual, also_told = played(moves, paces, kind, order)

    assert [] == differences(expected, actual)
    assert told == also_told


# Not those after which a reset that has been made differs from one that is made then.
_PLAIN = moves_named(
    "step", "some", "reset", "seeded", "seed", "back", "alone", "order"
)


@hypothesis.settings(deadline=None, max_examples=25)
@hypothesis.given(
    moves=st.lists(_PLAIN, min_size=12, max_size=24),
    order=ORDERS,
    paces=PACES,
)
def test_eager_resets_do_not_change_the_streams(moves, order, paces):
    expected, told = played(moves, paces, order=order, eager=False)
    actual, also_told = played(moves, paces, order=order)

    assert [] == differences(expected, actual)
    assert told == also_told


@hypothesis.settings(deadline=None, max_examples=25)
@hypothesis.given(
    moves=st.lists(MOVES, max_size=24),
    paces=PACES,
    deaths=st.dictionaries(st.integers(0, 24), st.integers(0, 1), max_size=3),
)
def test_eagerly_reset_environments_continue_after_a_crash(moves, paces, deaths):
    policy = RestartPolicy(
        max_restarts=99, within=None, backoff=0, recover="replay", anchor_every=6
    )
    expected, told = played(moves, ALL_AT_ONCE, on_worker_failure=policy)
    env, backend = fake_pool("saves", on_worker_failure=policy)
    with env:
        program = Program(env, "saves")
        for turn, ((name, number), pace) in enumerate(zip(moves, paces, strict=False)):
            # A call to a method of the program is not made twice, and raises.
            if turn in deaths and name != "lift":
                backend.plan(Die(deaths[turn]))
            program.play(name, number)
            backend.reset_ahead(pace)

    assert [] == differences(expected, program.seen)
    assert told == program.told


# On real backends, in both cases: the reset is over, and it has only begun.


class Waiting(PyEnvironment):
    """Observes how often it was reset; episodes are one step long, and resets wait."""

    gate = threading.Event()
    resets: list[int] = []  # noqa: RUF012  # one for all, as tests look at it

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._count = 0

    def observation_spec(self):
        return ArraySpec((), np.int32)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        self.gate.wait()
        self._count += 1
        self.resets.append(self._count)
        return restart(np.array(self._count, np.int32))

    def _step(self, action):
        return termination(np.array(-self._count, np.int32), 1.0)


@pytest.mark.parametrize("is_over", [True, False], ids=["over", "under way"])
def test_a_reset_runs_while_the_caller_is_busy(is_over):
    Waiting.gate.set()
    Waiting.resets.clear()
    with pool_of([Waiting] * 2, "thread", num_workers=2, eager_resets=True) as env:
        env.reset()
        if not is_over:
            Waiting.gate.clear()
        assert [-1, -1] == env.step([0, 0]).observation.tolist()
        if is_over:
            # Nothing is asked meanwhile.
            until(lambda: hidden_in(env) == 2)
            assert [1, 1, 2, 2] == Waiting.resets
            promise = env.begin_step([0, 0])
        else:
            promise = env.begin_step([0, 0])
            Waiting.gate.set()
        assert [2, 2] == promise().observation.tolist()
        numbers = env.statistics()

    assert [1, 1, 2, 2] == Waiting.resets
    assert (4, 2 * is_over) == (numbers.resets, numbers.hidden_resets)
    assert is_over == (numbers.hidden_seconds > 0)
    assert numbers.awaited_seconds > 0


@pytest.mark.parametrize("order", list(AutoReset), ids=str)
def test_every_backend_returns_the_same_as_a_plain_pool(any_backend, order):
    makers = [functools.partial(Walk, row) for row in range(5)]
    with pool_of(makers) as env:
        expected = streams.played(env, order)
    with pool_of(makers, any_backend, num_workers=2, eager_resets=True) as env:
        actual = streams.played(env, order)
        hides = any_backend != "inline" and order is AutoReset.NEXT_STEP
        # What workers of other machines have counted comes with the next step.
        if hides and not until(lambda: env.step(ONWARD) and hidden_in(env)):
            pytest.fail("no reset was hidden")
        assert hides == (hidden_in(env) > 0)

    assert [] == differences(expected, actual)


ONWARD = np.zeros((5, 2), np.float32)


def hidden_in(env):
    return env.statistics().hidden_resets


def test_rows_of_asynchronous_pools_are_reset_eagerly():
    def streams_of(eager):
        makers = [functools.partial(Walk, row) for row in range(4)]
        rngs = [np.random.default_rng(row) for row in range(4)]
        found = [[] for _ in range(4)]
        with AsyncParallelPyEnvironment(
            makers, backend="thread", num_workers=2, eager_resets=eager
        ) as env:
            env.reset_async()
            while any(len(stream) < 20 for stream in found):
                ids, time_step = env.recv(2)[:2]
                for place, row in enumerate(ids.tolist()):
                    found[row].append(row_of(time_step, place))
                actions = [rngs[row].uniform(-1, 1, 2) for row in ids.tolist()]
                env.send(np.array(actions, np.float32), ids)
            env.recv()
        return [stream[:20] for stream in found]

    assert [] == differences(streams_of(False), streams_of(True))


def test_environments_without_time_steps_leave_and_enter_again():
    """Those of Gymnasium run without time steps within an episode."""
    pytest.importorskip("gymnasium")

    def stream(eager):
        with make(
            "gymnasium:CartPole-v1",
            num_envs=2,
            backend="thread",
            num_workers=1,
            eager_resets=eager,
        ) as env:
            env.seed(3)
            return streams.play(env, [[1, 0]] * 60), env.statistics().resets

    (expected, resets), (actual, also) = stream(False), stream(True)
    assert [] == differences(expected, actual)
    assert resets == also


def test_a_last_keeps_its_observation_if_arrays_are_reused():
    def stream(eager):
        with pool_of([Reusing] * 2, "thread", eager_resets=eager) as env:
            return streams.play(env, [[0, 0]] * 9)

    assert [] == differences(stream(False), stream(True))


# What an environment is asked between its LAST and the next step.


class Level(CountingEnv):
    """Has a level and a score, and tells at which level an episode has begun."""

    level = score = 0

    def _reset(self):
        self.score, self._level = 0, self.level
        return super()._reset()

    def _step(self, action):
        self.score += 1
        return super()._step(action)

    def get_info(self):
        return {"score": self.score, "level": self._level}


def test_after_a_last_calls_see_the_next_episode(backend):
    maker = functools.partial(Level, 2)
    with pool_of([maker] * 2, backend, num_workers=1, eager_resets=True) as env:
        env.reset()
        env.step([0, 0])
        assert env.step([0, 0]).is_last().all()

        # The info is that of the time step.
        assert [2, 2] == env.get_info()["score"].tolist()
        assert [0, 0] == env.access("score")
        env.set_attr("level", 3)
        assert env.step([0, 0]).is_first().all()
        assert [0, 0] == env.get_info()["level"].tolist()
        env.step([0, 0])
        assert env.step([0, 0]).is_last().all()
        env.step([0, 0])
        assert [3, 3] == env.get_info()["level"].tolist()


class Counted(Walk):
    """Knows how often it was reset; episodes are one step long."""

    resets = 0

    def _reset(self, options=None):
        self.resets += 1
        super()._reset()
        self._left = 1
        return restart(self._observe())


@pytest.mark.parametrize("told", [{"seed": 5}, {"options": {"far": 1}}], ids=str)
def test_a_seed_or_options_cause_another_reset(backend, told):
    """Where that is so with every reset, none is made ahead any more."""
    action = np.zeros((1, 2), np.float32)
    with pool_of([Counted], backend, eager_resets=True) as env:
        env.reset()
        resets = []
        for _ in range(3):
            assert env.step(action).is_last().all()
            env.reset(**told)
            resets += env.access("resets")
        env.step(action)
        assert env.step(action).is_first().all()
        env.step(action)
        resets += env.access("resets")

    assert [3, 4, 5, 7] == resets


def test_a_state_contains_the_episode_that_has_begun(backend):
    """Any pool continues from it."""
    makers = [functools.partial(Walk, row) for row in range(3)]
    actions = [np.full((3, 2), 0.5, np.float32)] * 12
    with pool_of(makers) as plain, pool_of(makers, backend, eager_resets=True) as env:
        plain.reset(), env.reset()
        for action in actions:
            expected, actual = plain.step(action), env.step(action)
            assert [] == differences(expected, actual)
            state = env.get_state()
            following = [env.step(one) for one in actions[:4]]
            env.set_state(state)
            assert [] == differences(following, [env.step(one) for one in actions[:4]])
            env.set_state(state)
        plain.set_state(state)
        expected = [plain.step(one) for one in actions]
        assert [] == differences(expected, [env.step(one) for one in actions])


def test_a_checkpoint_contains_the_episode_that_has_begun(tmp_path):
    makers = [functools.partial(Walk, row) for row in range(3)]
    action = np.full((3, 2), 0.5, np.float32)
    with pool_of(makers, eager_resets=True) as env:
        env.reset()
        while not env.step(action).is_last().any():
            pass
        env.save(tmp_path / "run")
        expected = [env.step(action) for _ in range(8)]
    with ParallelPyEnvironment.load(tmp_path / "run", makers, backend="inline") as env:
        assert [] == differences(expected, [env.step(action) for _ in range(8)])


# When something goes wrong in a reset that has been made ahead.


class Failing(CountingEnv):
    """Raises, exits or hangs in its second reset."""

    def __init__(self, how, steps=2):
        super().__init__(steps)
        self._how, self._resets = how, 0

    def _reset(self):
        self._resets += 1
        if self._resets == 2:
            if self._how == "raises":
                raise ValueError("The level is broken.")
            if self._how == "exits":
                os._exit(3)
            if self._how == "hangs":
                threading.Event().wait()
        return super()._reset()


def until_it_fails(env):
    env.reset()
    env.step([0, 0])
    assert [True, False] == env.step([0, 0]).is_last().tolist()
    return env.step([0, 0])


def test_errors_of_an_eager_reset_are_raised_when_the_row_begins(backend):
    def told(eager):
        makers = [functools.partial(Failing, "raises"), CountingEnv]
        with pool_of(makers, backend, num_workers=1, eager_resets=eager) as env:
            with pytest.raises(EnvironmentRaised) as caught:
                until_it_fails(env)
            # The other row has moved, and another reset may succeed.
            after = env.reset(np.array([True, False]))
            return str(caught.value).partition("\n")[0], after, env.step([0, 0])

    plain, eager = told(False), told(True)
    assert plain[0] == eager[0]
    assert "env 0 raised ValueError in reset(): The level is broken." == eager[0]
    assert [] == differences(plain[1:], eager[1:])


def test_an_environment_that_raises_in_an_eager_reset_is_rebuilt(backend):
    def stream(eager):
        makers = [functools.partial(Failing, "raises"), CountingEnv]
        policy = RestartPolicy(backoff=0)
        options = {"num_workers": 1, "on_worker_failure": policy}
        with pool_of(makers, backend, eager_resets=eager, **options) as env:
            return [until_it_fails(env), *(env.step([0, 0]) for _ in range(3))]

    assert [] == differences(stream(False), stream(True))


def test_a_worker_that_dies_in_an_eager_reset_is_replaced():
    makers = [functools.partial(Failing, "exits"), CountingEnv]
    policy = RestartPolicy(backoff=0)
    with pool_of(
        makers, "process", num_workers=2, on_worker_failure=policy, eager_resets=True
    ) as env:
        step = until_it_fails(env)
        assert [0, 1] == step.step_type.tolist()
        assert not env.repaired.any()
        assert 1 == env.statistics().restarts


def test_a_hanging_eager_reset_times_out_when_the_row_steps():
    makers = [functools.partial(Failing, "hangs"), CountingEnv]
    with (
        pool_of(
            makers, "process", num_workers=2, step_timeout=2.0, eager_resets=True
        ) as env,
        pytest.raises(WorkerTimeout, match="env 0"),
    ):
        until_it_fails(env)


def test_eager_resets_must_be_true_or_false():
    with pytest.raises(
        TypeError, match="eager_resets must be True or False, got the string 'yes'"
    ):
        pool_of([CountingEnv], eager_resets="yes")
