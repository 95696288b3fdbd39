"""`Watch`: what is counted of an environment that others step."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    RestartPolicy,
)
from envkit.adapters import PyToGymnasium
from envkit.envs import CartPole, TicTacToe
from envkit.monitoring.watching import Watch
from envkit.testing import CountingEnv, CrashingEnv, NestedCountingEnv
from envkit.wrappers import FixedLength, RecordEpisodeStatistics, TimeLimit

STEPS = 60


@pytest.fixture
def watching():
    """Returns a function that watches an environment until the test ends."""
    watches = []

    def watch(env):
        watches.append(Watch(env))
        watches[-1].start(lambda: np.inf)
        return watches[-1]

    yield watch
    for one in watches:
        one.stop()


class Earning(CountingEnv):
    """Each step is worth 1, so a return is an episode's length."""

    def _step(self, action):
        return super()._step(action)._replace(reward=np.array(1, np.float32))


def counting(steps=3):
    return Earning(steps_per_episode=steps)


def lengths():
    return [functools.partial(counting, steps) for steps in (1, 2, 3, 7)]


def pool_of_four(**options):
    return ParallelPyEnvironment(lengths(), backend="inline", **options)


KINDS = {
    "single": counting,
    "cart pole": lambda: CartPole(seed=1),
    "batch": lambda: CartPole(batch_size=5, seed=1),
    "batch of environments": lambda: BatchedPyEnvironment(
        [make() for make in lengths()]
    ),
    "pool": pool_of_four,
    "same step": lambda: pool_of_four(autoreset="same_step"),
    "padded": lambda: FixedLength(pool_of_four(), 5),
    "padded single": lambda: FixedLength(counting(), 5),
    "blocking": lambda: Blocking(
        AsyncParallelPyEnvironment(lengths(), backend="inline"), wait=False
    ),
    "two players": lambda: TicTacToe(batch_size=3, seed=1),
}


@pytest.mark.parametrize("name", KINDS)
def test_returns_are_those_of_record_episode_statistics(watching, name):
    env = RecordEpisodeStatistics(KINDS[name]())
    watch = watching(env)
    draw = np.random.default_rng(0)
    spec, rows = env.action_spec(), env.batch_size
    env.reset()
    for number in range(STEPS):
        action = draw.integers(spec.minimum, spec.maximum + 1, rows).astype(spec.dtype)
        env.step(action)
        if number == 30:
            env.reset()  # breaks episodes off
    env.close()

    assert env.episode_count == watch.episodes > 0
    assert list(env.return_queue) == pytest.approx(watch.returns)


def test_more_episodes_than_are_kept_are_the_latest(watching):
    env = ParallelPyEnvironment([counting] * 64, backend="inline")
    watch = watching(env)
    for _ in range(41):
        env.step(np.zeros(64, np.int32))
    env.close()
    assert (10 * 64, [3.0] * 100) == (watch.episodes, list(watch.returns))


def test_rows_that_a_mask_moves_are_counted(watching):
    with pool_of_four() as env:
        watch = watching(env)
        env.reset()
        env.step([0] * 4)
        env.step([0] * 4, [False, True, False, False])
        env.step_rows([0] * 4, [False, True, True, False], [True, False, False, False])
        env.reset([False, False, False, True])

        # Row 0 ended in the first step, row 1 in the second; it then began again.
        assert (4 + 1 + 2, 2) == (watch.steps, watch.episodes)
        assert [1.0, 2.0] == list(watch.returns)


def test_promises_are_counted_when_they_are_taken(watching):
    with pool_of_four() as env:
        watch = watching(env)
        env.reset()
        promise = env.begin_step([0] * 4)
        before = watch.steps
        assert promise.wait(0.0)
        time_step = promise()
        assert time_step is promise()
        assert (0, 4, 1) == (before, watch.steps, watch.episodes)


def test_an_asynchronous_pool_counts_what_it_was_sent(watching):
    with AsyncParallelPyEnvironment(lengths(), backend="inline") as env:
        watch = watching(env)
        env.reset_async()
        env.recv()
        for _ in range(6):
            env.send(np.zeros(4, np.int32))
            rows, _ = env.recv(count=2)
            env.send(np.zeros(2, np.int32), rows)
            env.recv()
        assert 6 * (4 + 2) == watch.steps
        assert set(watch.returns) <= {1.0, 2.0, 3.0, 7.0}
        assert watch.episodes > 6


def test_rewards_of_several_numbers_count_as_their_sum(watching):
    class Two(Earning):
        def reward_spec(self):
            return {"a": super().reward_spec(), "b": super().reward_spec()}

        def _step(self, action):
            time_step = super()._step(action)
            half = np.float32(0.5)
            return time_step._replace(reward={"a": half, "b": half})

        def _reset(self):
            zero = np.float32(0)
            return super()._reset()._replace(reward={"a": zero, "b": zero})

    one, batch = Two(3), BatchedPyEnvironment([Two(2), Two(4)])
    watches = watching(one), watching(batch)
    for _ in range(10):
        one.step(0)
        batch.step([0, 0])
    batch.close()
    assert [[3.0, 3.0], [2.0, 4.0, 2.0, 2.0, 4.0]] == [
        list(each.returns) for each in watches
    ]


def test_made_up_ends_are_no_returns(watching):
    make = functools.partial(CrashingEnv, crash_at=3, how="raise")
    policy = RestartPolicy(max_restarts=99)
    with ParallelPyEnvironment(
        [make, counting], backend="inline", on_worker_failure=policy
    ) as env:
        watch = watching(env)
        env.reset()
        for _ in range(8):
            env.step([0, 0])
        lost = len(env.losses())
        assert lost == watch.lost == watch.restarts == 2
        assert [3.0, 3.0] == list(watch.returns)


def test_rows_that_come_are_counted(watching):
    with ParallelPyEnvironment([counting] * 2, backend="inline") as env:
        watch = watching(env)
        env.reset()
        env.step([0, 0])
        env.resize(3)
        for _ in range(2):
            env.step([0, 0, 0])
        assert (2 + 3 + 3, 2, 3) == (watch.steps, watch.episodes, watch.rows)


def test_a_process_is_watched_and_its_promises(watching):
    with ProcessPyEnvironment(counting, start_method="fork") as env:
        watch = watching(env)
        env.reset()
        for _ in range(2):
            env.step(0)
        promise = env.step(0, blocking=False)
        assert bool(promise().is_last())
        assert (3, [3.0], None) == (watch.steps, list(watch.returns), watch.rows)


@pytest.mark.parametrize(
    "inner", [lambda env: env, lambda env: TimeLimit(env, 5)], ids=["itself", "outside"]
)
def test_an_environment_inside_is_watched_too(watching, inner):
    env = counting()
    watch = watching(env)
    outer = PyToGymnasium(inner(env))
    outer.reset()
    for _ in range(3):
        outer.step(0)
    assert [3.0] == list(watch.returns)


def test_an_adapter_is_watched_by_what_is_inside(watching):
    outer = PyToGymnasium(counting())
    watch = watching(outer)
    outer.reset()
    for _ in range(3):
        outer.step(0)
    assert [3.0] == list(watch.returns)


def test_copies_step_on_their_own(watching):
    env = counting()
    watch = watching(env)
    env.step(0)
    others = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    for other in others:
        other.step(0)
        other.step(0)
    assert (1, 0) == (watch.steps, int(env.current_time_step().observation))
    assert [2, 2] == [int(each.current_time_step().observation) for each in others]


@pytest.mark.parametrize("last", [0, 1])
def test_nothing_is_left_in_the_object(last):
    env = counting()
    env.step(0)
    before = dict(vars(env))
    watches = [Watch(env), Watch(env)]
    for watch in watches:
        watch.start(lambda: np.inf)
    env.step(0)
    watches[1 - last].stop()
    env.step(0)
    watches[last].stop()
    env.step(0)
    assert [2, 1] == [watches[last].steps, watches[1 - last].steps]
    assert before.keys() == vars(env).keys()


def test_attributes_of_the_object_itself_come_back():
    env = NestedCountingEnv()
    calls = []
    env.step = lambda action: calls.append(action) or type(env).step(env, action)
    own = env.step
    watch = Watch(env)
    watch.start(lambda: np.inf)
    env.step(0)
    watch.stop()
    assert ([0], 1) == (calls, watch.steps)
    assert own is vars(env)["step"]


@pytest.mark.parametrize("resets", [0, 1])
def test_the_first_steps_of_a_class_that_overrides_step_count(watching, resets):
    env = CartPole(seed=1)
    for _ in range(resets):
        env.reset()
    watch = watching(env)
    for _ in range(3):
        env.step(0)
    watch.stop()
    assert 3 == watch.steps
    env.step(0)
    assert "step" not in vars(env)
