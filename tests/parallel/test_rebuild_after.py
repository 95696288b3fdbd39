"""`RebuildAfter` builds environments anew, also in pools and after crashes."""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest

import envkit
from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    ParallelPyEnvironment,
    RestartPolicy,
    StandbyEnvironment,
)
from envkit.envs import CartPole
from envkit.errors import ConstructorError, EnvironmentRaised, SpecMismatchError
from envkit.recording import rebuilt
from envkit.seeding import derived_seed
from envkit.testing.envs import CountingEnv
from envkit.wrappers import FixedLength, RebuildAfter, TimeLimit
from tests.parallel import streams
from tests.parallel.environments import Walk
from tests.parallel.streams import differences, pool_of

MEGABYTE = 2**20
FALLING = functools.partial(CartPole, max_episode_steps=3)


def rebuilding(make_env: Any, episodes: int) -> Any:
    return functools.partial(RebuildAfter, make_env, episodes=episodes)


def short(episodes: int) -> Any:
    """Makes an environment with episodes of one step, which count 0, 1, 10, 11, ..."""
    return rebuilding(functools.partial(CountingEnv, 1), episodes)


class Leaking(CountingEnv):
    """Keeps eight megabytes more with each episode, and cannot save its state."""

    def __init__(self, steps_per_episode: int = 2) -> None:
        super().__init__(steps_per_episode)
        self._leak: list[bytearray] = []
        self.level = 0
        self.given: list[Any] = []

    def set_reset_options(self, options: Any) -> None:
        self.given.append(options)

    def _reset(self) -> Any:
        self._leak.append(bytearray(b"1" * (8 * MEGABYTE)))
        return super()._reset()

    def _get_state(self) -> Any:
        raise NotImplementedError


def observations(env: Any, steps: int) -> list[Any]:
    action = np.zeros(env.batch_size or (), np.int64)
    return [env.step(action).observation.tolist() for _ in range(steps)]


def alone(seed: int, episodes: int) -> list[Any]:
    """Returns what an environment shows in its first episodes after a seed."""
    with FALLING() as env:
        env.seed(seed)
        return [env.step(np.int64(0)).observation for _ in range(4 * episodes)]


# When.


def test_an_environment_is_rebuilt_after_a_number_of_episodes(any_backend):
    with pool_of([short(2)] * 2, any_backend) as env:
        shown = observations(env, 10)
        rebuilds = env.access("rebuilds")

    assert [[0, 0], [1, 1], [10, 10], [11, 11]] == shown[:4]
    assert shown[4:8] == shown[:4]
    assert [2, 2] == rebuilds


def test_the_wrapper_does_the_same_without_a_pool():
    with short(2)() as env:
        assert [0, 1, 10, 11, 0, 1, 10, 11, 0] == observations(env, 9)
        assert 2 == env.rebuilds


def test_same_step_shows_the_first_time_step_of_the_new_environment():
    with pool_of([short(2)] * 2, autoreset="same_step") as env:
        env.reset()
        standing = []
        for _ in range(4):
            env.step([0, 0])
            standing.append(env.current_time_step().observation.tolist())

    assert [[10, 10], [0, 0], [10, 10], [0, 0]] == standing


@pytest.mark.parametrize("order", list(AutoReset), ids=str)
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_every_order_of_resets_has_the_same_streams_on_every_backend(backend, order):
    makers = [rebuilding(functools.partial(Walk, row), 2) for row in range(5)]
    with pool_of(makers, num_workers=1) as env:
        expected = streams.played(env, order)
    with pool_of(makers, backend, num_workers=2) as env:
        assert [] == differences(expected, streams.played(env, order))


def test_rows_are_rebuilt_one_by_one():
    makers = [rebuilding(functools.partial(CountingEnv, n), 1) for n in (1, 2)]
    with pool_of(makers) as env:
        assert [[0, 0], [1, 1], [0, 2], [1, 0], [0, 1], [1, 2]] == observations(env, 6)


def test_a_reset_in_mid_episode_counts_as_a_new_episode():
    with pool_of([rebuilding(CountingEnv, 2)] * 2) as env:
        counted = []
        for mask in (None, None, None, [False, True], [False, True]):
            env.reset(mask)
            env.step([0, 0])
            counted.append(env.access("rebuilds"))

    assert [[0, 0], [0, 0], [1, 1], [1, 1], [1, 2]] == counted


def test_an_episode_without_a_step_does_not_count():
    with RebuildAfter(CountingEnv, episodes=1) as env:
        for _ in range(3):
            env.reset()
        assert 0 == env.rebuilds


def test_padding_is_not_cut_by_a_rebuild():
    def padded():
        return FixedLength(CountingEnv(1), 3)

    with padded() as plain, RebuildAfter(padded, episodes=1) as env:
        assert [plain.step(0).step_type for _ in range(4)] == [
            env.step(0).step_type for _ in range(4)
        ]
        assert 0 == int(env.step(0).observation)
        assert 1 == env.rebuilds


class Endless(CountingEnv):
    """Ends an episode with each step, and continues after it."""

    continues_after_last = True

    def __init__(self) -> None:
        super().__init__(1)

    def _step(self, action: Any) -> Any:
        self._count = 0
        return super()._step(action)


def test_an_environment_that_continues_after_last_is_rebuilt_by_a_reset():
    with RebuildAfter(Endless, episodes=3) as env:
        env.reset()
        assert all(env.step(0).is_last() for _ in range(5))
        env.reset()
        assert 1 == env.rebuilds


@pytest.mark.parametrize("seed_at", [4, 6, 11])
def test_eager_resets_leave_no_trace(seed_at):
    def stream(is_eager: bool) -> list[Any]:
        makers = [rebuilding(FALLING, 2)] * 2
        with pool_of(makers, "process", num_workers=1, eager_resets=is_eager) as env:
            env.seed(1)
            shown = []
            for step in range(30):
                if step == seed_at:
                    shown.append(env.reset(seed=8))
                shown.append(env.step([0, 1]))
        return shown

    assert [] == differences(stream(is_eager=False), stream(is_eager=True))


def test_an_asynchronous_pool_rebuilds_environments():
    with AsyncParallelPyEnvironment([short(1)] * 2, backend="inline") as env:
        env.reset_async()
        shown = []
        for _ in range(4):
            batch = env.recv(count=2)
            shown.append(batch.time_step.observation.tolist())
            env.send(np.zeros(2, np.int64), batch.env_ids)
        env.recv(count=2)

    assert [[0, 0], [1, 1], [0, 0], [1, 1]] == shown


def test_standby_environments_are_rebuilt_together():
    def pair():
        return StandbyEnvironment(functools.partial(CountingEnv, 1))

    with pool_of([rebuilding(pair, 2)] * 2) as env:
        # Each of the two has one episode before both are built anew.
        assert [[0, 0], [1, 1]] * 20 == observations(env, 40)


def test_leaked_memory_is_freed():
    with pool_of([rebuilding(Leaking, 2)], "process") as env:
        env.reset()
        begin = env.statistics().resident_bytes
        for _ in range(120):
            env.step([0])

        # 40 episodes leak 320 MB; never more than those of three environments.
        assert env.statistics().resident_bytes - begin < 100 * MEGABYTE
        assert [20] == env.access("rebuilds")


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


def test_the_old_environment_is_closed_before_the_next_one_is_built():
    with pool_of([rebuilding(Exclusive, 1)]) as env:
        assert [[0], [1], [0], [1]] == observations(env, 4)
    assert not Exclusive.open_ones[os.getpid()]


# The streams.


def test_the_next_environment_continues_the_stream_of_seeds():
    with pool_of([rebuilding(FALLING, 2)] * 2, "process", num_workers=2) as env:
        env.seed([5, 6])
        shown = [env.step([0, 0]).observation for _ in range(24)]

    for row, seed in enumerate((5, 6)):
        expected = [
            *alone(seed, 2),
            *alone(derived_seed(seed, 1), 2),
            *alone(derived_seed(seed, 2), 2),
        ]
        assert np.array_equal(expected, [observation[row] for observation in shown])


def test_a_seed_starts_its_stream_in_any_environment():
    with pool_of([rebuilding(FALLING, 1)]) as env:
        env.seed([5])
        env.step([0])
        env.step([0])
        shown = [env.reset(seed=[7]).observation[0]]
        shown += [env.step([0]).observation[0] for _ in range(7)]

    assert np.array_equal([*alone(7, 1), *alone(derived_seed(7, 1), 1)], shown)


def test_a_state_contains_the_number_of_episodes():
    with pool_of([rebuilding(FALLING, 2)] * 2) as env:
        env.seed(3)
        for _ in range(6):
            env.step([0, 0])
        token = env.get_state()
        expected = [env.step([0, 0]) for _ in range(12)]
        env.set_state(token)

        assert [] == differences(expected, [env.step([0, 0]) for _ in range(12)])


def test_a_checkpoint_contains_the_number_of_episodes(tmp_path):
    makers = [rebuilding(Walk, 2)] * 2
    actions = np.zeros((2, 2), np.float32)
    with pool_of(makers) as env:
        env.seed(3)
        streams.play(env, [actions] * 9)
        env.save(tmp_path / "run")
        expected = [env.step(actions) for _ in range(12)]
    with ParallelPyEnvironment.load(tmp_path / "run", makers, backend="inline") as env:
        assert [] == differences(expected, [env.step(actions) for _ in range(12)])


def test_recovery_restores_the_lost_environment():
    def stream(kill: bool) -> list[Any]:
        makers = [rebuilding(functools.partial(Walk, 3), 2)] * 2
        policy = RestartPolicy(recover="replay", anchor_every=5)
        with pool_of(makers, "process", num_workers=2, on_worker_failure=policy) as env:
            env.seed(1)
            shown = []
            for step in range(30):
                if kill and step == 23:
                    os.kill(env.workers[1].pid, signal.SIGKILL)
                shown.append(env.step(np.full((2, 2), 0.5, np.float32)))
            assert kill == env.statistics().recovered
        return shown

    assert [] == differences(stream(kill=False), stream(kill=True))


# What the next environment is given.


def test_the_next_environment_gets_the_options_of_its_reset():
    with pool_of([rebuilding(Leaking, 1)]) as env:
        env.reset(options={"level": 1})
        env.step([0])
        env.reset(options={"level": 2})

        assert [[{"level": 2}]] == env.access("given")


def test_the_next_environment_keeps_set_attributes():
    with pool_of([rebuilding(Leaking, 1)]) as env:
        env.reset()
        env.set_attr("level", 3)
        env.step([0])
        env.reset()

        assert ([3], [1]) == (env.access("level"), env.access("rebuilds"))


def test_infos_and_pictures_come_from_the_playing_environment():
    class Shown(CountingEnv):
        made = 0

        def __init__(self) -> None:
            Shown.made += 1
            self.number = Shown.made
            super().__init__(1)

        def get_info(self) -> Any:
            return {"number": np.array(self.number)}

        def render(self, mode: str = "rgb_array") -> Any:
            return np.full((2, 2, 3), self.number, np.uint8)

    with pool_of([rebuilding(Shown, 1)]) as env:
        told = []
        for _ in range(4):
            env.step([0])
            told.append((int(env.get_info()["number"][0]), int(env.render().max())))
    # The end of an episode is that of the environment that had it.
    assert [(1, 1), (1, 1), (2, 2), (2, 2)] == told


def test_the_pool_sees_the_wrapper():
    with pool_of([rebuilding(CartPole, 1), CartPole]) as env:
        assert [True, False] == env.env_is_wrapped(RebuildAfter)


def test_an_environment_is_rebuilt_from_its_provenance():
    with TimeLimit(RebuildAfter("Catch", episodes=2), 4) as env:
        env.seed(7)
        again, _ = rebuilt(env.provenance())
        with again:
            actions = [np.array(1)] * 30
            assert [] == differences(
                streams.play(env, actions), streams.play(again, actions)
            )


# When something goes wrong.


class Failing(CountingEnv):
    """Raises in its close or when it is built, for the first that follows."""

    made = 0
    fails_to: ClassVar[str] = ""

    def __init__(self) -> None:
        Failing.made += 1
        if Failing.made == 2 and self.fails_to == "build":
            raise RuntimeError("no licence is free")
        super().__init__(1)

    def close(self) -> None:
        if self.fails_to == "close":
            raise RuntimeError("the window is gone")


@pytest.fixture
def fails_to(monkeypatch):
    def fail(what: str) -> None:
        monkeypatch.setattr(Failing, "made", 0)
        monkeypatch.setattr(Failing, "fails_to", what)

    return fail


def test_a_constructor_that_raises_is_tried_again_by_the_next_reset(fails_to):
    fails_to("build")
    env = RebuildAfter(Failing, episodes=1)
    env.reset(), env.step(0)
    with pytest.raises(RuntimeError, match="no licence is free"):
        env.step(0)
    assert [0, 1] == [int(env.reset().observation), int(env.step(0).observation)]


def test_a_pool_raises_what_the_constructor_raised_with_its_traceback(fails_to):
    fails_to("build")
    with pool_of([rebuilding(Failing, 1)]) as env:
        env.step([0]), env.step([0])
        with pytest.raises(EnvironmentRaised, match="no licence is free") as caught:
            env.step([0])
        assert "in __init__" in str(caught.value)
        assert env.reset().is_first().all()


def test_a_close_that_raises_is_logged_and_does_not_end_the_episode(fails_to, caplog):
    fails_to("close")
    env = RebuildAfter(Failing, episodes=1)
    assert [0, 1, 0, 1] == observations(env, 4)
    assert "close() of a Failing that is being replaced raised" in caplog.text
    assert "the window is gone" in caplog.text


def test_a_worker_that_dies_in_a_rebuild_is_replaced(tmp_path):
    mark = tmp_path / "mark"

    def make() -> Any:
        if (tmp_path / "first").exists() and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / "first").touch()
        return CountingEnv(1)

    policy = RestartPolicy(backoff=0)
    with pool_of([rebuilding(make, 1)], "process", on_worker_failure=policy) as env:
        found = streams.play(env, [[0]] * 10)
        assert 1 == env.statistics().restarts
    assert streams.is_grammatical([int(step.step_type[0]) for step in found])


def same():
    return functools.partial(dict.get, {"only": CountingEnv(1)}, "only")


def other_each_time():
    sizes = iter((1, 2))
    return lambda: CartPole() if next(sizes) == 1 else CountingEnv()


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no episode": (
        lambda: RebuildAfter(CountingEnv, 0),
        ValueError,
        "episodes must be an integer of at least 1, got 0.",
    ),
    "a flag": (
        lambda: RebuildAfter(CountingEnv, True),
        ValueError,
        "episodes must be an integer of at least 1, got True.",
    ),
    "a batch": (
        lambda: RebuildAfter(functools.partial(CartPole, 3), 1),
        ValueError,
        "that is a batch of 3 rows, whose episodes end one by one.",
    ),
    "no environment": (
        lambda: RebuildAfter(lambda: CountingEnv, 1),
        ConstructorError,
        "CountingEnv",
    ),
    "the same object": (
        lambda: observations(RebuildAfter(same(), 1), 3),
        ValueError,
        "returned the same CountingEnv twice. It must make a new environment",
    ),
    "other specs": (
        lambda: observations(RebuildAfter(other_each_time(), 1), 500),
        SpecMismatchError,
        "so they cannot follow each other",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_environments_that_cannot_be_rebuilt_are_refused(case, message_of):
    call, error, text = REFUSED[case]
    assert text in message_of(error, call)


def test_make_accepts_the_wrapper_as_a_target():
    with envkit.make(short(1), num_envs=2, backend="inline") as env:
        assert [[0, 0], [1, 1], [0, 0]] == observations(env, 3)
