"""Environments that leak: they are built anew after so many episodes."""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest

import envkit
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.links import LinkedBackend
from envkit.envs import CartPole
from envkit.errors import ConstructorError
from envkit.parallel import AsyncParallelPyEnvironment
from envkit.seeding import derived_seed
from envkit.testing.envs import CountingEnv
from tests.parallel.environments import Walk
from tests.parallel.streams import differences, is_grammatical

MEGABYTE = 2**20
SHORT = functools.partial(CountingEnv, steps_per_episode=1)
FALLING = functools.partial(CartPole, max_episode_steps=3)


class Leaking(CountingEnv):
    """Keeps eight megabytes more with each episode, and cannot save its state."""

    def __init__(self, steps_per_episode: int = 2) -> None:
        super().__init__(steps_per_episode)
        self._kept: list[bytearray] = []
        self.level = 0
        self.given: list[Any] = []

    def set_reset_options(self, options: Any) -> None:
        self.given.append(options)

    def _reset(self) -> Any:
        self._kept.append(bytearray(b"1" * (8 * MEGABYTE)))
        return super()._reset()

    def _get_state(self) -> Any:
        raise NotImplementedError


class Exclusive(CountingEnv):
    """Refuses to be built while another one of the process is open."""

    open_ones: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        if self.open_ones[os.getpid()]:
            raise RuntimeError("the one before is open")
        self.open_ones[os.getpid()] += 1
        super().__init__(1)

    def close(self) -> None:
        self.open_ones[os.getpid()] -= 1


def observations(env: Any, steps: int) -> list[list[int]]:
    action = [0] * env.batch_size
    return [env.step(action).observation.tolist() for _ in range(steps)]


def alone(seed: int, episodes: int) -> list[Any]:
    """Returns what an environment shows in its first episodes after a seed."""
    with FALLING() as env:
        env.seed(seed)
        return [env.step(np.int64(0)).observation for _ in range(4 * episodes)]


@pytest.mark.parametrize("backend", ["inline", "thread", "process", "linked"])
def test_an_environment_is_built_anew_after_so_many_episodes(backend):
    if backend == "linked":
        backend = LinkedBackend(CommandLauncher(["envkit worker {address}"] * 2))
    with ParallelPyEnvironment(
        [SHORT] * 2, backend=backend, max_episodes_per_env=2
    ) as env:
        shown = observations(env, 10)
        counted = env.statistics().rebuilds

    assert shown[:4] == [[0, 0], [1, 1], [10, 10], [11, 11]]
    assert shown[4:8] == shown[:4]
    assert counted == 4


def test_it_is_also_in_the_step_that_ends_an_episode():
    with ParallelPyEnvironment(
        [SHORT] * 2, backend="inline", autoreset="same_step", max_episodes_per_env=2
    ) as env:
        env.reset()
        standing = []
        for _ in range(4):
            env.step([0, 0])
            standing.append(env.current_time_step().observation.tolist())

    assert standing == [[10, 10], [0, 0], [10, 10], [0, 0]]


def test_rows_are_built_anew_one_by_one():
    makers = [functools.partial(CountingEnv, length) for length in (1, 2)]
    with ParallelPyEnvironment(makers, backend="inline", max_episodes_per_env=1) as env:
        shown = observations(env, 6)

    assert shown == [[0, 0], [1, 1], [0, 2], [1, 0], [0, 1], [1, 2]]


def test_a_reset_that_was_asked_for_counts_as_the_begin_of_an_episode():
    with ParallelPyEnvironment(
        [CountingEnv] * 2, backend="inline", max_episodes_per_env=2
    ) as env:
        counted = []
        for mask in (None, None, None, [False, True], [False, True]):
            env.reset(mask)
            env.step([0, 0])
            counted.append(env.statistics().rebuilds)

    assert counted == [0, 0, 2, 2, 3]


def test_an_episode_without_a_step_does_not_count():
    with ParallelPyEnvironment(
        [CountingEnv], backend="inline", max_episodes_per_env=1
    ) as env:
        for _ in range(3):
            env.reset()

        assert env.statistics().rebuilds == 0


@pytest.mark.parametrize("seed_at", [4, 6, 11])
def test_resets_that_are_made_ahead_leave_no_trace(seed_at):
    def stream(is_eager: bool) -> list[Any]:
        with ParallelPyEnvironment(
            [FALLING] * 2,
            num_workers=1,
            start_method="forkserver",
            max_episodes_per_env=2,
            eager_resets=is_eager,
        ) as env:
            env.seed(1)
            shown = []
            for step in range(30):
                if step == seed_at:
                    shown.append(env.reset(seed=8))
                shown.append(env.step([0, 1]))
        return shown

    assert not differences(stream(is_eager=False), stream(is_eager=True))


def test_an_asynchronous_pool_builds_them_anew():
    with AsyncParallelPyEnvironment(
        [SHORT] * 2, backend="inline", max_episodes_per_env=1
    ) as env:
        env.reset_async()
        shown = []
        for _ in range(4):
            batch = env.recv(count=2)
            shown.append(batch.time_step.observation.tolist())
            env.send(np.zeros(2, np.int64), batch.env_ids)
        env.recv(count=2)

    assert shown == [[0, 0], [1, 1], [0, 0], [1, 1]]


def test_environments_that_stand_by_are_built_anew_together():
    with ParallelPyEnvironment(
        [SHORT] * 2, backend="inline", standby=1, max_episodes_per_env=2
    ) as env:
        shown = observations(env, 40)

    # Each of the two has one episode before both are built anew.
    assert shown == [[0, 0], [1, 1]] * 20


def test_make_takes_it():
    with envkit.make(
        SHORT, num_envs=1, backend="inline", max_episodes_per_env=1
    ) as env:
        assert observations(env, 4) == [[0], [1], [0], [1]]


# The streams.


def test_the_next_environment_continues_the_stream_of_seeds():
    with ParallelPyEnvironment(
        [FALLING] * 2, num_workers=2, max_episodes_per_env=2
    ) as env:
        env.seed([5, 6])
        shown = [env.step([0, 0]).observation for _ in range(24)]

    for row, seed in enumerate((5, 6)):
        expected = [
            *alone(seed, 2),
            *alone(derived_seed(seed, 1), 2),
            *alone(derived_seed(seed, 2), 2),
        ]
        assert np.array_equal(expected, [observation[row] for observation in shown])


def test_a_seed_begins_its_stream_whichever_environment_begins_with_it():
    with ParallelPyEnvironment(
        [FALLING], backend="inline", max_episodes_per_env=1
    ) as env:
        env.seed([5])
        env.step([0])
        env.step([0])
        shown = [env.reset(seed=[7]).observation[0]]
        shown += [env.step([0]).observation[0] for _ in range(7)]

    assert np.array_equal([*alone(7, 1), *alone(derived_seed(7, 1), 1)], shown)


def test_a_state_has_how_many_episodes_there_have_been():
    with ParallelPyEnvironment(
        [FALLING] * 2, backend="inline", max_episodes_per_env=2
    ) as env:
        env.seed(3)
        for _ in range(6):
            env.step([0, 0])
        token = env.get_state()
        expected = [env.step([0, 0]) for _ in range(12)]
        env.set_state(token)

        assert not differences(expected, [env.step([0, 0]) for _ in range(12)])


def test_recovery_comes_back_to_the_environment_that_was_lost():
    def stream(kill: bool) -> list[Any]:
        with ParallelPyEnvironment(
            [functools.partial(Walk, 3)] * 2,
            num_workers=2,
            start_method="forkserver",
            max_episodes_per_env=2,
            on_worker_failure=RestartPolicy(recover="replay", anchor_every=5),
        ) as env:
            env.seed(1)
            shown = []
            for step in range(30):
                if kill and step == 23:
                    os.kill(env.statistics().workers[1].pid, signal.SIGKILL)
                shown.append(env.step(np.full((2, 2), 0.5, np.float32)))
            assert env.statistics().recovered == kill
        return shown

    assert not differences(stream(kill=False), stream(kill=True))


# What the next environment is given.


def test_the_next_environment_has_the_options_of_its_reset():
    with ParallelPyEnvironment(
        [Leaking], backend="inline", max_episodes_per_env=1
    ) as env:
        env.reset(options={"level": 1})
        env.step([0])
        env.reset(options={"level": 2})

        assert env.access("given") == [[{"level": 2}]]


def test_the_next_environment_has_the_attributes_that_were_set():
    with ParallelPyEnvironment(
        [Leaking], backend="inline", max_episodes_per_env=1
    ) as env:
        env.reset()
        env.set_attr("level", 3)
        env.step([0])
        env.reset()

        assert (env.access("level"), env.statistics().rebuilds) == ([3], 1)


def test_the_environment_before_is_closed_first():
    with ParallelPyEnvironment(
        [Exclusive], backend="inline", max_episodes_per_env=1
    ) as env:
        assert observations(env, 4) == [[0], [1], [0], [1]]
    assert not Exclusive.open_ones[os.getpid()]


def test_what_leaks_is_given_back():
    with ParallelPyEnvironment(
        [Leaking], start_method="forkserver", max_episodes_per_env=2
    ) as env:
        env.reset()
        begin = env.statistics().resident_bytes
        for _ in range(120):
            env.step([0])

        # 40 episodes leak 320 MB; never more than those of three environments.
        assert env.statistics().resident_bytes - begin < 100 * MEGABYTE
        assert env.statistics().rebuilds == 20


def test_its_recipe_is_that_of_the_environment():
    with ParallelPyEnvironment([CartPole], backend="inline") as env:
        expected = env.provenance()["environments"]
    with ParallelPyEnvironment(
        [CartPole], backend="inline", max_episodes_per_env=1
    ) as env:
        assert env.provenance()["environments"] == expected


# What is refused.


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            0,
            ValueError,
            "max_episodes_per_env must be an integer of at least 1, or None, got 0.",
        ),
        (
            True,
            TypeError,
            "max_episodes_per_env must be an integer of at least 1, or None, got True "
            "of type bool.",
        ),
    ],
)
def test_a_number_that_cannot_be_is_refused(given, error, message):
    with pytest.raises(error) as caught:
        ParallelPyEnvironment([SHORT], max_episodes_per_env=given)
    assert str(caught.value) == message


def test_batches_are_refused():
    with pytest.raises(ConstructorError) as caught:
        ParallelPyEnvironment(
            [functools.partial(CartPole, 3)], backend="inline", max_episodes_per_env=1
        )
    assert "that is a batch of 3 rows" in str(caught.value)


# Workers that hold too much memory.

KEPT: list[bytearray] = []


class Hoarding(CountingEnv):
    """Keeps 24 megabytes more in its process with each episode."""

    def _reset(self) -> Any:
        KEPT.append(bytearray(b"1" * (24 * MEGABYTE)))
        return super()._reset()


class Speechless(Hoarding):
    """Cannot save its state."""

    def _get_state(self) -> Any:
        raise NotImplementedError


def hoarding(kind: type, *lengths: int, **how: Any) -> ParallelPyEnvironment:
    """Makes a pool whose workers are above the limit after some episodes."""
    how = {"start_method": "forkserver", **how}
    return ParallelPyEnvironment(
        [functools.partial(kind, length) for length in lengths],
        max_worker_memory=200 * MEGABYTE,
        **how,
    )


def until_replaced(env: Any, times: int) -> list[Any]:
    """Steps until workers have been replaced so often; returns all time steps."""
    action = [0] * env.batch_size
    shown = [env.reset()]
    while env.statistics().replaced < times:
        assert len(shown) < 1_000_000
        assert env.statistics().resident_bytes < 4000 * MEGABYTE
        shown.append(env.step(action))
        assert not env.repaired.any()
    shown += [env.step(action) for _ in range(30)]
    assert not env.repaired.any()
    assert env.statistics().restarts == 0
    return shown


def check_streams(shown: list[Any]) -> None:
    """Checks that every episode of every row is whole."""
    for row in range(len(shown[0].step_type)):
        types = [int(one.step_type[row]) for one in shown]
        assert is_grammatical(types)
        steps = [int(one.observation[row]) for one in shown]
        for before, after, kind in zip(steps, steps[1:], types[1:], strict=False):
            assert kind == 0 or after == before + 1


def test_a_worker_that_holds_too_much_is_replaced_where_an_episode_ends():
    with hoarding(Speechless, 9, 11, num_workers=2) as env:
        check_streams(until_replaced(env, 2))


def test_rows_amid_an_episode_take_their_state_along():
    with hoarding(Hoarding, 4, 7, num_workers=1) as env:
        check_streams(until_replaced(env, 2))


def test_without_states_a_worker_waits_until_all_of_its_episodes_have_ended(caplog):
    with hoarding(Speechless, 2, 3, num_workers=1) as env:
        shown = until_replaced(env, 1)

    check_streams(shown)
    assert "its environments cannot save their states" in caplog.text.lower()


@pytest.mark.parametrize("order", ["same_step", "disabled"])
def test_it_is_so_in_the_other_orders_of_resets(order):
    with hoarding(Hoarding, 3, 5, num_workers=1, autoreset=order) as env:
        env.reset()
        while not env.statistics().replaced:
            assert env.statistics().resident_bytes < 4000 * MEGABYTE
            ended = env.step([0, 0], None).is_last() if order == "same_step" else None
            if ended is None:
                mask = ~env.current_time_step().is_last()
                ended = env.step([0, 0], mask).is_last()
                env.reset(ended)
        assert not env.repaired.any()


def test_the_new_environments_can_be_lost_and_recovered():
    policy = RestartPolicy(recover="replay", anchor_every=5)
    with hoarding(Hoarding, 4, 7, num_workers=1, on_worker_failure=policy) as env:
        shown = [*until_replaced(env, 1)]
        os.kill(env.statistics().workers[0].pid, signal.SIGKILL)
        shown += [env.step([0, 0]) for _ in range(20)]

        assert env.statistics().recovered == 2
    check_streams(shown)


def test_linked_workers_are_replaced():
    launcher = CommandLauncher(["envkit worker {address}"])
    with hoarding(
        Hoarding, 4, 7, backend=LinkedBackend(launcher), start_method="spawn"
    ) as env:
        check_streams(until_replaced(env, 1))


def test_an_asynchronous_pool_replaces_them():
    with AsyncParallelPyEnvironment(
        [functools.partial(Hoarding, 4)] * 2,
        num_workers=1,
        start_method="forkserver",
        max_worker_memory=200 * MEGABYTE,
    ) as env:
        env.reset_async()
        types: list[list[int]] = [[], []]
        while not env.statistics().replaced:
            batch = env.recv(count=1)
            for row, kind in zip(
                batch.env_ids.tolist(), batch.time_step.step_type, strict=True
            ):
                types[row].append(int(kind))
            env.send(np.zeros(len(batch.env_ids), np.int64), batch.env_ids)

        assert not env.repaired.any()
    assert all(map(is_grammatical, types))


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_workers_that_are_no_processes_are_refused(backend):
    with pytest.raises(ValueError, match="max_worker_memory must be None here"):
        ParallelPyEnvironment([SHORT], backend=backend, max_worker_memory=2**30)


def test_a_limit_below_what_workers_hold_from_the_beginning_is_refused():
    with pytest.raises(ValueError, match="more than a worker holds whose environments"):
        ParallelPyEnvironment([SHORT], max_worker_memory=MEGABYTE)
