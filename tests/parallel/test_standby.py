"""`StandbyEnvironment`: a second environment is reset while the first one plays."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    RestartPolicy,
    StandbyEnvironment,
)
from envkit.errors import (
    ConstructorError,
    EnvironmentRaised,
    WorkerTimeout,
)
from envkit.realtime import RealTimeEnvironment
from envkit.recording import rebuilt
from envkit.testing.envs import CountingEnv
from envkit.wrappers.standby import standby_seed
from tests.parallel import streams
from tests.parallel.environments import Walk
from tests.parallel.fake_backend import Die, FakeBackend
from tests.parallel.programs import (
    MAKERS,
    MOVES,
    Program,
    constructors,
    moves_named,
)
from tests.parallel.standby_environments import (
    Alone,
    Distant,
    Dying,
    Gripping,
    Hanging,
)
from tests.parallel.streams import differences, pool_of, row_of
from tests.waiting import until

ACTION = np.zeros(2, np.float32)


def pairs(makers, **how):
    return [functools.partial(StandbyEnvironment, make, **how) for make in makers]


def opened(makers, backend="inline", **options):
    return pool_of(pairs(makers), backend, **options)


def in_workers(makers, backend="inline", **options):
    return pool_of(pairs(makers, in_workers=True), backend, **options)


def by_hand(seeds, steps):
    """Plays two environments in turn, for each row, without a pool and threads."""

    def stream(seed):
        pair = [Walk(), Walk()]
        pair[0].seed(seed), pair[1].seed(standby_seed(seed))
        playing = 0
        time_step = pair[0].reset()
        for _ in range(steps):
            yield time_step
            if time_step.is_last():
                playing = 1 - playing
                time_step = pair[playing].reset()
            else:
                time_step = pair[playing].step(ACTION)

    return [list(stream(seed)) for seed in seeds]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_episodes_of_a_row_alternate_between_two_environments(any_backend, workers):
    seeds = [3, 4, 5]
    with opened([Walk] * 3, any_backend, num_workers=workers) as env:
        env.seed(seeds)
        found = streams.play(env, [np.stack([ACTION] * 3)] * 29)
        hidden, awaited = env.access("hidden_resets"), env.access("awaited_seconds")
        resets = env.statistics().resets

    for row, expected in enumerate(by_hand(seeds, 30)):
        assert [] == differences(expected, [row_of(step, row) for step in found])
    assert 0 <= sum(hidden) < resets
    assert min(awaited) > 0


class Held(Walk):
    """Waits at a gate when it is reset, and counts those that are under way."""

    gate = threading.Event()
    lock = threading.Lock()
    begun = over = 0

    def _reset(self):
        with Held.lock:
            Held.begun += 1
        self.gate.wait()
        time_step = super()._reset()
        with Held.lock:
            Held.over += 1
        return time_step


def held(row, fast, steps, masks):
    """Plays at a pace: with each reset over before a step, or none until it waits."""
    makers = [functools.partial(Held, seed) for seed in range(3)]
    Held.gate.set()
    found = []
    with opened(makers, "thread", num_workers=2) as env:
        env.seed(row)
        found.append(env.reset())
        for is_fast, mask in zip(fast, masks, strict=True):
            if is_fast:
                until(lambda: Held.begun == Held.over)
            else:
                Held.gate.clear()
            promise = env.begin_step(np.stack([ACTION] * 3))
            Held.gate.set()
            found.append(promise())
            if mask.any():
                found.append(env.reset(mask))
                found.append(env.get_info())
        state = env.get_state()
        ends = [env.step(np.stack([ACTION] * 3)) for _ in range(steps)]
        env.set_state(state)
        assert [] == differences(ends, [env.step([ACTION] * 3) for _ in range(steps)])
    return found


@hypothesis.settings(deadline=None, max_examples=12)
@hypothesis.given(
    fast=st.lists(st.booleans(), min_size=12, max_size=12), seed=st.integers(0, 99)
)
def test_the_streams_are_equal_however_long_resets_take(fast, seed):
    rng = np.random.default_rng(seed)
    masks = [rng.random(3) < 0.1 for _ in fast]
    expected = held(seed, [True] * len(fast), 8, masks)

    assert [] == differences(expected, held(seed, fast, 8, masks))


@pytest.mark.parametrize("order", list(AutoReset), ids=str)
def test_every_order_of_resets_has_the_same_episodes(backend, order):
    makers = [functools.partial(Walk, row) for row in range(5)]
    with opened(makers, num_workers=1) as env:
        expected = streams.played(env, order)
    with opened(makers, backend, num_workers=2) as env:
        assert [] == differences(expected, streams.played(env, order))


def test_under_same_step_the_next_episode_is_ready_at_once():
    seed, action = 11, np.stack([ACTION])
    with opened([Walk], autoreset="same_step") as env:
        env.seed([seed])
        found = [row_of(env.reset(), 0)]
        while len(found) < 20:
            found.append(row_of(env.step(action), 0))
            if found[-1].is_last():
                found.append(row_of(env.current_time_step(), 0))
    assert [] == differences(by_hand([seed], 20)[0], found[:20])


def test_rows_of_asynchronous_pools_have_the_same_streams():
    found = [[] for _ in range(3)]
    with AsyncParallelPyEnvironment(
        pairs([Walk] * 3), backend="thread", num_workers=2
    ) as env:
        env.seed([3, 4, 5])
        env.reset_async()
        while any(len(stream) < 20 for stream in found):
            ids, time_step = env.recv(1)[:2]
            for place, row in enumerate(ids.tolist()):
                found[row].append(row_of(time_step, place))
            env.send(np.stack([ACTION] * len(ids)), ids)
        env.recv()
    for expected, stream in zip(by_hand([3, 4, 5], 20), found, strict=True):
        assert [] == differences(expected, stream[:20])


def test_remaining_rows_continue_after_a_resize(backend):
    def stream(sizes):
        found = []
        with pool_of(pairs([Walk]) * 2, backend, num_workers=2) as env:
            env.seed([3, 4])
            env.reset()
            for size in sizes:
                if size != env.batch_size:
                    env.resize(size)
                step = env.step(np.zeros((size, 2), np.float32))
                found.append(row_of(step, 0))
        return found

    assert [] == differences(
        stream([2] * 20), stream([2, 2, 2, 3, 3, 3, 1, 1, 2, 2] * 2)
    )


# What a program does besides.


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - {"batch", "pair"}))
@hypothesis.settings(deadline=None, max_examples=12)
@hypothesis.given(
    moves=st.lists(MOVES, max_size=24), order=st.sampled_from(list(AutoReset))
)
def test_standby_environments_change_nothing_for_programs(kind, moves, order):
    """Seeds, options, states, attributes, masks, other orders: in two runs."""

    def played():
        with opened(constructors(kind), num_workers=2, autoreset=order) as env:
            program = Program(env, kind)
            for name, number in moves:
                program.play(name, number)
        return program.seen, program.told

    (expected, told), (actual, also_told) = played(), played()
    assert [] == differences(expected, actual)
    assert told == also_told


@hypothesis.settings(deadline=None, max_examples=12)
@hypothesis.given(
    moves=st.lists(
        moves_named("step", "some", "reset", "back"), min_size=6, max_size=24
    ),
    deaths=st.dictionaries(st.integers(0, 24), st.integers(0, 1), max_size=3),
)
def test_environments_continue_after_a_crash(moves, deaths):
    policy = RestartPolicy(
        max_restarts=99, within=None, backoff=0, recover="replay", anchor_every=6
    )

    def played(deaths):
        backend = FakeBackend()
        with ParallelPyEnvironment(
            constructors("pair"),
            num_workers=2,
            backend=backend,
            on_worker_failure=policy,
        ) as env:
            program = Program(env, "pair")
            for turn, (name, number) in enumerate(moves):
                if turn in deaths:
                    backend.plan(Die(deaths[turn]))
                program.play(name, number)
        return program.seen, program.told

    (expected, told), (actual, also_told) = played({}), played(deaths)
    assert [] == differences(expected, actual)
    assert told == also_told


def test_calls_reach_the_ended_environment_until_the_next_begins(backend):
    maker = functools.partial(CountingEnv, 2)
    with opened([maker], backend) as env:
        env.reset()
        env.step([0])
        assert env.step([0]).is_last().all()
        assert [2] == [int(s.step_type) for s in env.call("current_time_step")]
        env.set_attr("level", 4)
        assert [4] == env.access("level")
        env.step([0])
        # It is set in both.
        assert [4] == env.access("level")
        assert [True] == env.env_is_wrapped(StandbyEnvironment)


def test_a_checkpoint_contains_both_environments(tmp_path):
    makers, actions = [Walk] * 3, np.stack([ACTION] * 3)
    with opened(makers) as env:
        env.seed(5)
        streams.play(env, [actions] * 9)
        env.save(tmp_path / "run")
        expected = [env.step(actions) for _ in range(12)]
    path = tmp_path / "run"
    with ParallelPyEnvironment.load(path, pairs(makers), backend="inline") as env:
        assert [] == differences(expected, [env.step(actions) for _ in range(12)])


def test_a_standby_state_needs_a_standby_environment():
    with opened([Walk]) as env, pool_of([Walk]) as plain:
        env.reset(), plain.reset()
        with pytest.raises(
            EnvironmentRaised, match="not the state of a StandbyEnvironment"
        ):
            env.set_state(plain.get_state())


# When something goes wrong.


class Failing(CountingEnv):
    """Raises, exits or hangs in the first reset of the second that is made."""

    made = 0

    def __init__(self, how, mark=None):
        super().__init__(2)
        Failing.made += 1
        self._how, self._is_bad = how, Failing.made == 2
        self._mark = mark

    def _reset(self):
        if self._is_bad:
            self._is_bad = False
            if self._how == "raises":
                raise ValueError("The level is broken.")
            if self._how == "exits" and not self._mark.exists():
                self._mark.touch()
                os._exit(3)
            if self._how == "hangs":
                threading.Event().wait()
        return super()._reset()


@pytest.fixture
def anew():
    Failing.made = 0


def test_errors_of_a_hidden_reset_are_raised_when_the_row_begins(anew, backend):
    with opened([functools.partial(Failing, "raises")], backend) as env:
        env.reset()
        env.step([0])
        assert env.step([0]).is_last().all()
        with pytest.raises(EnvironmentRaised, match="The level is broken") as caught:
            env.step([0])
        # With the traceback of the environment.
        assert 'raise ValueError("The level is broken.")' in str(caught.value)
        # Another reset succeeds.
        assert env.reset().is_first().all()


def test_a_worker_that_dies_in_a_hidden_reset_is_replaced(anew, tmp_path):
    maker = functools.partial(Failing, "exits", tmp_path / "mark")
    with opened([maker], "process", on_worker_failure=RestartPolicy()) as env:
        found = streams.play(env, [[0]] * 20)
        assert 1 == env.statistics().restarts
    assert streams.is_grammatical([int(step.step_type[0]) for step in found])


def test_a_hanging_hidden_reset_times_out_when_the_row_steps(anew):
    maker = functools.partial(Failing, "hangs")
    with opened([maker], "process", step_timeout=2.0) as env:
        env.reset()
        env.step([0])
        assert env.step([0]).is_last().all()
        with pytest.raises(WorkerTimeout, match="env 0"):
            env.step([0])


# In worker processes of their own.


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_streams_and_states_are_equal_in_workers(backend):
    actions, seeds = np.stack([ACTION] * 2), [3, 4]
    with opened([Walk] * 2) as env, in_workers([Walk] * 2, backend) as far:
        env.seed(seeds), far.seed(seeds)
        near_steps = streams.play(env, [actions] * 12)
        assert [] == differences(near_steps, streams.play(far, [actions] * 12))
        state, far_state = env.get_state(), far.get_state()
        expected = [env.step(actions) for _ in range(12)]
        # Each continues from the other's, and again from its own.
        for token in (state, far_state):
            for one in (far, env):
                one.set_state(token)
                assert [] == differences(
                    expected, [one.step(actions) for _ in range(12)]
                )
        assert min(far.access("hidden_resets")) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="workers cannot be linked here")
@pytest.mark.parametrize("open_far", [opened, in_workers])
def test_seeds_and_states_are_equal_over_links(open_far):
    actions = np.stack([ACTION] * 2)
    with (
        opened([Walk] * 2) as env,
        open_far([Walk] * 2, "linked", num_workers=2) as far,
    ):
        env.seed(3), far.seed(3)
        near_steps = streams.play(env, [actions] * 12)
        assert [] == differences(near_steps, streams.play(far, [actions] * 12))
        state, far_state = env.get_state(), far.get_state()
        expected = [env.step(actions) for _ in range(9)]
        for one, token in ((env, far_state), (far, state)):
            one.set_state(token)
            assert [] == differences(expected, [one.step(actions) for _ in range(9)])


def test_a_checkpoint_fits_threads_and_workers(tmp_path):
    makers, actions = [Walk], np.stack([ACTION])
    with opened(makers) as env:
        env.seed(5)
        streams.play(env, [actions] * 9)
        env.save(tmp_path / "run")
        expected = [env.step(actions) for _ in range(12)]
    path, makers = tmp_path / "run", pairs(makers, in_workers=True)
    with ParallelPyEnvironment.load(path, makers, backend="inline") as far:
        assert [] == differences(expected, [far.step(actions) for _ in range(12)])
        far.save(tmp_path / "again")


def test_calls_reach_standby_environments_in_workers():
    with in_workers([functools.partial(Distant, 2)]) as env:
        env.reset()
        [(pid, level)] = env.call("raised_by", 2)
        assert pid != os.getpid()
        assert [(pid, level + 2)] == env.call("raised_by", 2)
        assert [5] == env.access("level")
        assert {"level": [5]} == env.get_info()
        env.set_attr("level", 7)
        assert [7] == env.access("level")
        assert (1, 2, 2, 3) == np.shape(env.render())
        assert [True] == env.env_is_wrapped(Distant)
        # The other one plays now, with what it is told and what was set in both.
        assert [7] == [env.reset() and level for level in env.access("level")]
        [(other, _)] = env.call("raised_by", 0)
        assert pid not in (other, os.getpid())
        env.reset(options={"level": 11})
        assert [11] == env.access("level")
        with pytest.raises(AttributeError, match="no attribute 'height'"):
            env.access("height")


@pytest.mark.parametrize("how", ["raises", "exits"])
def test_a_failed_reset_in_a_worker_affects_only_its_row(how, tmp_path):
    makers = [
        functools.partial(Dying, how, tmp_path / "mark"),
        functools.partial(CountingEnv, 3),
    ]
    policy = RestartPolicy(backoff=0)
    with in_workers(makers, num_workers=1, on_worker_failure=policy) as env:
        found = [env.reset(), *(env.step([0, 0]) for _ in range(12))]
        assert 1 == env.statistics().restarts
    for row in range(2):
        assert streams.is_grammatical([int(step.step_type[row]) for step in found])
    # The other row did not notice it.
    assert [0, 1, 1, 2] * 3 == [int(step.step_type[1]) for step in found[:12]]


def test_without_a_policy_a_lost_standby_process_is_its_rows_error(tmp_path):
    maker = functools.partial(Dying, "exits", tmp_path / "mark")
    with in_workers([CountingEnv, maker]) as env:
        streams.play(env, [[0, 0]] * 3)
        with pytest.raises(EnvironmentRaised, match=r"^env 1 raised WorkerCrashed"):
            env.step([0, 0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_a_reset_that_holds_the_gil_delays_no_step(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    maker = functools.partial(Gripping, tmp_path / "mark", tmp_path / "pipe")
    with in_workers([maker, CountingEnv], num_workers=1) as env:
        env.reset()
        assert [5, 5] == [env.step([0, 0]) for _ in range(5)][-1].observation.tolist()
        with open(tmp_path / "pipe", "wb"):  # It was waited for all the time.
            assert env.step([0, 0]).is_last().tolist() == [True, False]
        assert env.step([0, 0]).is_first().tolist() == [True, False]


def test_an_environment_alone_in_its_process_can_have_a_standby():
    with pytest.raises(ConstructorError, match="run each in its own process"):
        opened([Alone])
    with in_workers([Alone]) as env:
        assert env.reset().is_first().all()
    with StandbyEnvironment(Alone, in_workers=True) as env:
        assert [0, 1, 2] == [int(env.step(0).observation) for _ in range(3)]


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_process_that_hangs_in_a_reset_ends_with_its_pool(tmp_path, end):
    make = functools.partial(Hanging, tmp_path)
    with in_workers([make], "process") as env:
        env.reset()
        until(lambda: (tmp_path / "hangs").exists())
        pids = [int(path.name) for path in tmp_path.iterdir() if path.name != "hangs"]
        if end == "close":
            env.close(0.1)
        else:
            os.kill(env.workers[0].pid, signal.SIGKILL)
        until(lambda: not any(map(is_running, pids)))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_environment_is_rebuilt_from_its_provenance():
    with StandbyEnvironment("Catch") as env:
        env.seed(7)
        again, assumed = rebuilt(env.provenance())
        with again:
            actions = [np.array(1)] * 30
            assert [] == assumed
            assert [] == differences(
                streams.play(env, actions), streams.play(again, actions)
            )


# Closed, or interrupted, while a reset is under way.


def is_awaited_in(frames_of):
    """Returns whether a thread stands in a wait for a reset of one that stands by."""
    frame = sys._current_frames().get(frames_of)
    while frame is not None:
        if frame.f_code.co_name == "wait_for_event":
            return True
        frame = frame.f_back
    return False


class Shut(Held):
    """Notes that it was closed, and by which thread."""

    closed: list[str] = []  # noqa: RUF012  # one for all, as tests look at it

    def close(self):
        self.closed.append(threading.current_thread().name)


@pytest.fixture
def gate():
    Held.gate.set()
    Held.begun = Held.over = 0
    Shut.closed.clear()
    yield Held.gate
    Held.gate.set()


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_a_pool_can_be_closed_during_a_hidden_reset(gate, backend, monkeypatch):
    monkeypatch.setattr("envkit.wrappers.standby._GRACE", 0.01)
    with opened([Shut] * 2, backend) as env:
        env.reset()
        until(lambda: 4 == Held.over)  # Two that play, two that stand by.
        gate.clear()
        env.reset()  # The others begin, and cannot go on.
    # The two that play were closed; the threads close those that they reset.
    assert "envkit-standby" not in Shut.closed
    gate.set()
    until(lambda: 4 == len(Shut.closed))
    assert 2 == Shut.closed.count("envkit-standby")


@pytest.mark.own_process
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("told", ["the thread that waits", "another thread"])
def test_ctrl_c_in_a_wait_for_a_reset_loses_no_episode(gate, told):
    """Also where it does not wake the thread that waits, as the system may have it."""
    with opened([Held]) as env:
        env.seed([3])
        found = [env.reset()]
        while not found[-1].is_last():
            found.append(env.step(np.stack([ACTION])))
        until(lambda: 2 == Held.over)
        gate.clear()
        found.append(env.step(np.stack([ACTION])))  # It was over. The next is not.
        while not found[-1].is_last():
            found.append(env.step(np.stack([ACTION])))
        main = threading.get_ident()

        def interrupt():
            until(lambda: is_awaited_in(main))
            if told == "another thread":
                signal.raise_signal(signal.SIGINT)
            else:
                signal.pthread_kill(main, signal.SIGINT)

        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            env.step(np.stack([ACTION]))
        sender.join()
        gate.set()
        # As everywhere: the rows stand where the interrupted step has led them.
        found.append(env.current_time_step())
        found += [env.step(np.stack([ACTION])) for _ in range(9)]
    [expected] = by_hand([3], len(found))
    assert [] == differences(expected, [row_of(step, 0) for step in found])


REFUSED = {
    "real time": (
        functools.partial(RealTimeEnvironment, CountingEnv, hz=50, host="thread"),
        ConstructorError,
        "RealTimeEnvironment, which has a clock, which would run while",
    ),
    "batch": (
        lambda: BatchedPyEnvironment([CountingEnv(), CountingEnv()]),
        ConstructorError,
        "No environment can stand by for BatchedPyEnvironment, which is a batch",
    ),
    "same": (
        functools.partial(dict.get, {"only": CountingEnv()}, "only"),
        ConstructorError,
        "make_env returned the same CountingEnv twice",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_environments_that_cannot_stand_by_are_refused(case):
    maker, kind, text = REFUSED[case]
    with pytest.raises(kind) as caught:
        opened([maker])
    assert text in str(caught.value)


# Without a pool.


class Closing(CountingEnv):
    """Waits at a gate in its resets, and notes that it was closed."""

    closed: list[int] = []  # noqa: RUF012  # one for all, as tests look at it

    def close(self):
        self.closed.append(id(self))


def test_both_are_closed_once():
    Closing.closed.clear()
    env = StandbyEnvironment(Closing)
    members = {id(one) for one in env.members}
    env.reset()
    env.close()
    env.close()
    assert members == set(Closing.closed)
    assert 2 == len(Closing.closed)


def test_rows_of_a_local_batch_can_each_have_a_standby():
    rows = [StandbyEnvironment(functools.partial(Walk, 1)) for _ in range(2)]
    with BatchedPyEnvironment(rows, multithreading=False) as env:
        env.seed([3, 4])
        found = streams.play(env, [np.stack([ACTION] * 2)] * 19)
    for row, expected in enumerate(by_hand([3, 4], 20)):
        assert [] == differences(expected, [row_of(step, row) for step in found])


def test_in_real_time_an_episode_begins_within_a_tick():
    make = functools.partial(StandbyEnvironment, functools.partial(CountingEnv, 3))
    with RealTimeEnvironment(make, hz=10, host="virtual") as env:
        observations = [int(env.reset().observation)]
        observations += [int(env.step(0).observation) for _ in range(9)]
    # Episodes are numbered by tens, in each environment on its own.
    assert [0, 1, 2, 3, 0, 1, 2, 3, 10, 11] == observations
