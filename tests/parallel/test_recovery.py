"""Recovery by replay: environments of lost workers continue, bit for bit."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import signal

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from envkit import (
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    restart,
    transition,
)
from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.links import LinkedBackend
from envkit.errors import WorkerCrashed
from envkit.parallel import AsyncParallelPyEnvironment, AutoReset
from envkit.recording import Record, Recording
from envkit.specs import ObjectSpec
from envkit.testing.envs import CountingEnv
from tests.parallel.environments import Fragile, Stateless, Walk, unseeded_walk
from tests.parallel.fake_backend import (
    Answer,
    Die,
    FailStart,
    FakeBackend,
    Finish,
    Interrupt,
    Raise,
    Start,
)
from tests.parallel.programs import (
    MAKERS,
    MOVES,
    ROWS,
    Program,
    constructors,
)
from tests.parallel.streams import differences, row_of
from tests.waiting import is_running, until

REPLAY = RestartPolicy(
    max_restarts=10_000,
    within=None,
    backoff=0,
    recover="replay",
    anchor_every=6,
    max_replay=300,
)
# Before which of them a worker dies, which one, and after how many of its answers.
DEATHS = st.dictionaries(
    st.integers(0, 24), st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=4
)


def fake_pool(kind, order, policy=REPLAY, **options):
    backend = FakeBackend()
    env = ParallelPyEnvironment(
        constructors(kind),
        num_workers=2,
        backend=backend,
        autoreset=order,
        on_worker_failure=policy,
        **options,
    )
    return env, backend


@pytest.mark.parametrize("kind", MAKERS)
@hypothesis.settings(
    deadline=None,
    max_examples=25,
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
)
@hypothesis.given(
    moves=st.lists(MOVES, max_size=24),
    order=st.sampled_from(list(AutoReset)),
    deaths=DEATHS,
    anchor_every=st.sampled_from([1, 6, 100, None]),
)
# A state is saved where a row shows a LAST and stands at the FIRST after it; then its
# worker dies, and there is no request to be made again.
@hypothesis.example(
    moves=[("step", None)] * 3 + [("lift", None), ("step", None)],
    order=AutoReset.SAME_STEP,
    deaths={4: (0, 0)},
    anchor_every=1,
)
# A seed is over when a state is restored, though there was no request between them.
@hypothesis.example(
    moves=[("back", None), ("seed", 0), ("back", None), ("step", None)],
    order=AutoReset.NEXT_STEP,
    deaths={3: (0, 0)},
    anchor_every=1,
)
def test_streams_do_not_show_lost_workers(kind, moves, order, deaths, anchor_every):
    """Whatever moves, in which order, and whenever workers die: no bit differs."""
    policy = dataclasses.replace(REPLAY, anchor_every=anchor_every)
    quiet, _ = fake_pool(kind, order, policy)
    troubled, backend = fake_pool(kind, order, policy)
    with quiet, troubled:
        expected, actual = Program(quiet, kind), Program(troubled, kind)
        for index, (name, number) in enumerate(moves):
            # A call to a method of the program is not made twice, and raises.
            if index in deaths and name != "lift":
                worker, answers = deaths[index]
                backend.plan(Die(worker, answers))
            expected.play(name, number)
            actual.play(name, number)
        assert [] == differences(expected.seen, actual.seen)
        assert expected.told == actual.told
        backend.schedule.clear()
        deaths_seen = troubled.statistics().restarts
        assert deaths_seen * len(quiet.envs) // 2 == troubled.statistics().recovered


def walk(env):
    return env.step(np.zeros((ROWS, 2), np.float32))


# Asynchronous pools: what each row was given depends on that row alone.


def streams_of(env, turns, deaths=(), backend=None):
    """Plays rows as they come; returns each row's time steps and last infos."""
    rngs = [np.random.default_rng(row) for row in range(ROWS)]
    streams = [[] for _ in range(ROWS)]
    env.reset_async()
    for turn, count in enumerate(turns):
        if turn in deaths:
            backend.plan(Die(*deaths[turn]))
        ids, time_step = env.recv(min(count, int(env.owing.sum())))[:2]
        for place, row in enumerate(ids.tolist()):
            streams[row].append(row_of(time_step, place))
        actions = [rngs[row].uniform(-1, 1, 2) for row in ids.tolist()]
        env.send(np.array(actions, np.float32), ids)
    for row in env.recv().env_ids.tolist():
        assert not env.repaired[row]
    return streams


@pytest.mark.parametrize("kind", ["saves", "forgets"])
@hypothesis.settings(deadline=None, max_examples=15)
@hypothesis.given(
    turns=st.lists(st.integers(1, ROWS), max_size=20),
    order=st.sampled_from([AutoReset.NEXT_STEP, AutoReset.SAME_STEP]),
    deaths=DEATHS,
)
def test_asynchronous_rows_continue_after_a_loss(kind, turns, order, deaths):
    def played(deaths):
        backend = FakeBackend()
        with AsyncParallelPyEnvironment(
            constructors(kind),
            num_workers=2,
            backend=backend,
            autoreset=order,
            on_worker_failure=REPLAY,
        ) as env:
            return streams_of(env, turns, deaths, backend)

    for quiet, troubled in zip(played({}), played(deaths), strict=True):
        # A row that was received early in one run may have gone further in it.
        both = min(len(quiet), len(troubled))
        assert [] == differences(quiet[:both], troubled[:both])


@pytest.mark.parametrize("where", ["wait", "dispatch", "dispatched"])
def test_ctrl_c_during_a_request_does_not_change_the_stream(where):
    def played(interrupts, dies):
        env, backend = fake_pool("saves", AutoReset.NEXT_STEP)
        with env:
            program, actions = Program(env, "saves"), np.zeros((ROWS, 2), np.float32)
            for turn in range(6):
                if interrupts and turn == 3:
                    backend.plan(Interrupt(where))
                    with pytest.raises(KeyboardInterrupt):
                        env.step(actions)
                    program.seen.append(env.current_time_step())
                    continue
                if dies and turn == 4:
                    backend.plan(Die(1, 1))
                program.seen.append(env.step(actions))
            return program.seen, env.statistics().recovered

    quiet, _ = played(True, False)
    troubled, recovered = played(True, True)
    assert [] == differences(quiet, troubled)
    assert 2 == recovered


# Where it cannot hold, the episode ends as it does without, and a line says why.


class Moody(CountingEnv):
    """Is not deterministic: each one that is built counts from another number."""

    built = itertools.count()

    def __init__(self):
        super().__init__(steps_per_episode=100)
        self._number = 1000 * next(self.built)

    def _observe(self):
        return super()._observe() + np.int32(self._number)


class Dotty(CountingEnv):
    """Raises when it is played again: its state is refused."""

    def _set_state(self, state):
        raise ValueError("a stranger")


class Dealt(Stateless):
    """Draws a card in each reset, and nothing else is random."""

    def __init__(self):
        super().__init__(steps_per_episode=4)
        self._rng = np.random.default_rng(3)
        self._card = 0

    def _reset(self):
        self._card = int(self._rng.integers(100))
        return super()._reset()

    def _observe(self):
        return np.array(100 * self._current_step + self._card, np.int32)


def long_counting():
    return CountingEnv(steps_per_episode=100)


def long_forgetting():
    return Stateless(steps_per_episode=100)


def dotty():
    return Dotty(steps_per_episode=100)


def counted_rows(maker, deaths, policy=REPLAY, between=None, **options):
    """Steps rows whose second worker dies; returns which were repaired, and when."""
    backend = FakeBackend()
    with ParallelPyEnvironment(
        [maker] * 4,
        num_workers=2,
        backend=backend,
        on_worker_failure=policy,
        **options,
    ) as env:
        env.reset()
        repaired = {}
        for turn in range(12):
            if between is not None:
                between(env, backend, turn)
            backend.plan(*deaths.get(turn, ()))
            env.step([0] * 4)
            if env.repaired.any():
                repaired[turn] = np.flatnonzero(env.repaired).tolist()
        assert not backend.schedule
        return repaired, env.statistics().recovered


def lines_of(caplog, start="env "):
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if line.startswith(start)]


def test_a_nondeterministic_environment_is_reported_once(caplog):
    repaired, recovered = counted_rows(Moody, {2: [Die(1)], 8: [Die(1)]})

    assert ({2: [2, 3], 8: [2, 3]}, 0) == (repaired, recovered)
    assert [
        f"env {env} cannot continue where it was lost, because it is not "
        "deterministic: the same steps have led elsewhere when they were played again; "
        "its episode ends here, and wherever it is lost again"
        for env in (2, 3)
    ] == lines_of(caplog)


def test_an_environment_that_raises_in_a_replay_is_given_up(caplog):
    repaired, recovered = counted_rows(dotty, {3: [Die(1)]})

    assert ({3: [2, 3]}, 0) == (repaired, recovered)
    assert lines_of(caplog)[0].startswith(
        "env 2 cannot continue where it was lost, because playing its steps again has "
        "raised RuntimeError: set_state(): a stranger; its episode ends here"
    )


def test_a_request_that_kills_two_workers_is_not_repeated(caplog):
    """Env 3 does; env 2 has answered before it, and continues both times."""
    deaths = {4: [Die(1, 1), Finish(), Start(), Answer(), Die(1, 0)]}
    repaired, recovered = counted_rows(long_counting, deaths)

    assert ({4: [3]}, 3) == (repaired, recovered)
    assert [
        "env 3 cannot continue where it was lost, because the same request has ended "
        "its worker again; its episode ends here"
    ] == lines_of(caplog)


def test_a_replay_that_kills_its_worker_is_tried_once_more(caplog):
    again = [Finish(), Start(), Die(1)]
    repaired, recovered = counted_rows(long_counting, {4: [Die(1), *again]})
    assert ({}, 2) == (repaired, recovered)

    repaired, recovered = counted_rows(long_counting, {4: [Die(1), *again, *again[1:]]})
    assert ({4: [2, 3]}, 0) == (repaired, recovered)
    assert lines_of(caplog)[0] == (
        "env 2 cannot continue where it was lost, because its new worker has ended 2 "
        "times before it was back; its episode ends here"
    )


@pytest.mark.parametrize(("turn", "cut"), [(3, {}), (9, {9: [2, 3]})])
def test_only_a_limited_number_of_steps_is_replayed(turn, cut, caplog):
    """The environment cannot save its state, and its episode is longer than that."""
    policy = dataclasses.replace(REPLAY, anchor_every=1, max_replay=5)
    repaired, recovered = counted_rows(long_forgetting, {turn: [Die(1)]}, policy)

    assert (cut, 0 if cut else 2) == (repaired, recovered)
    assert [
        f"env {env} cannot continue where it was lost, because more than max_replay=5 "
        "steps would have to be played again; its episode ends here"
        for env in (2, 3)
        if cut
    ] == lines_of(caplog)


@pytest.mark.parametrize("order", list(AutoReset)[:2])
@pytest.mark.parametrize("turn", range(8, 12))
def test_only_resets_are_replayed_after_too_many_steps(turn, order):
    """Wherever in an episode that is, its beginning and its end included."""
    policy = dataclasses.replace(REPLAY, anchor_every=1, max_replay=6)
    deaths = {turn: [Die(1)]}
    assert ({}, 2) == counted_rows(Dealt, deaths, policy, autoreset=order)


@pytest.mark.parametrize(
    ("maker", "cut"), [(long_counting, {}), (long_forgetting, {6: [2, 3]})]
)
def test_a_call_may_have_changed_an_environment(maker, cut, caplog):
    """What can save its state has done so since."""

    def between(env, backend, turn):
        if turn == 5:
            env.call("close")

    repaired, recovered = counted_rows(maker, {6: [Die(1)]}, between=between)

    assert (cut, 0 if cut else 2) == (repaired, recovered)
    assert [
        f"env {env} cannot continue where it was lost, because call('close') may have "
        "changed it since; its episode ends here"
        for env in (2, 3)
        if cut
    ] == lines_of(caplog)


def test_a_lost_call_raises_and_is_not_replayed():
    def between(env, backend, turn):
        if turn == 5:
            backend.plan(Die(1))
            with pytest.raises(WorkerCrashed):
                env.call("close")

    assert ({}, 2) == counted_rows(long_counting, {}, between=between)


def test_an_environment_that_has_raised_continues_from_its_next_state():
    """Env 2 raises, and its episode ends; it continues when its worker dies later."""
    deaths = {2: [Raise(2)], 8: [Die(1)]}
    assert ({2: [2]}, 2) == counted_rows(long_counting, deaths)


def test_the_restart_policy_handles_rows_that_cannot_be_recovered(caplog):
    """It fails to start twice, and continues when it does."""
    fails = [Die(1), Finish(), FailStart(), FailStart()]
    assert ({}, 2) == counted_rows(long_counting, {4: fails})


def test_without_recovery_an_episode_ends():
    policy = dataclasses.replace(REPLAY, recover=None)
    assert ({4: [2, 3]}, 0) == counted_rows(long_counting, {4: [Die(1)]}, policy)


# Without a seed: what it draws is known from its state alone, once it has saved one.


class Forgetting(Walk):
    """Cannot save its state; its episodes are long."""

    def _reset(self):
        super()._reset()
        self._left = 100
        return restart(self._observe())

    def _get_state(self):
        raise NotImplementedError("Forgetting has no state to save.")


def unseeded_batch():
    return BatchedPyEnvironment([Walk(None), Walk(None)], multithreading=False)


def unseeded_forgetting():
    return Forgetting(None)


def unseeded_pool(maker, envs=4, **options):
    backend = FakeBackend()
    pool = ParallelPyEnvironment(
        [maker] * envs,
        num_workers=2,
        backend=backend,
        on_worker_failure=REPLAY,
        **options,
    )
    return pool, backend


def repaired_at(env, backend, deaths, turns=8):
    """Steps four rows; returns in which turns some of them were repaired."""
    turns_repaired = {}
    for turn in range(turns):
        backend.plan(*deaths.get(turn, ()))
        walk(env)
        if env.repaired.any():
            turns_repaired[turn] = np.flatnonzero(env.repaired).tolist()
    assert not backend.schedule
    return turns_repaired


@pytest.mark.parametrize("order", list(AutoReset)[:2])
@pytest.mark.parametrize(("maker", "envs"), [(unseeded_walk, 4), (unseeded_batch, 2)])
@pytest.mark.parametrize("first", range(3))
def test_an_unseeded_environment_is_recovered_from_its_first_step(
    maker, envs, first, order, caplog
):
    env, backend = unseeded_pool(maker, envs, autoreset=order)
    with env:
        env.reset()
        deaths = {first: [Die(1)], first + 2: [Die(1)], first + 3: [Die(0)]}
        assert {} == repaired_at(env, backend, deaths)
        assert 3 * envs // 2 == env.statistics().recovered
    assert [] == lines_of(caplog)


def test_an_unseeded_environment_continues_where_the_first_step_resets_it(caplog):
    env, backend = unseeded_pool(unseeded_walk)
    with env:
        assert {} == repaired_at(env, backend, {1: [Die(1)], 2: [Die(0)]})
        assert 4 == env.statistics().recovered
    assert [] == lines_of(caplog)


def test_a_loss_before_the_first_states_only_ends_the_episodes(caplog):
    """The worker is lost when it is asked for them, and twice later."""
    env, backend = unseeded_pool(unseeded_walk)
    with env:
        backend.plan(Finish(), Die(1))
        env.reset()
        deaths = {3: [Die(1)], 5: [Die(1)]}
        assert {0: [2, 3]} == repaired_at(env, backend, deaths)
        assert 4 == env.statistics().recovered
    assert [
        f"env {env} cannot continue where it was lost, because it has neither a seed "
        "nor a saved state yet; its episode ends here"
        for env in (2, 3)
    ] == lines_of(caplog)


def test_a_loss_in_the_first_reset_is_recovered(caplog):
    env, backend = unseeded_pool(unseeded_walk)
    with env:
        backend.plan(Die(1))
        env.reset()
        assert not env.repaired.any()
        assert {} == repaired_at(env, backend, {0: [Die(1)], 3: [Die(1)]})
    assert [] == lines_of(caplog)


def test_an_unseeded_environment_without_states_continues_once_it_is_seeded(caplog):
    env, backend = unseeded_pool(unseeded_forgetting)
    with env:
        env.reset()
        assert {1: [2, 3], 4: [2, 3]} == repaired_at(
            env, backend, {1: [Die(1)], 4: [Die(1)]}
        )
        env.seed(3)
        env.reset()
        assert {} == repaired_at(env, backend, {1: [Die(1)], 4: [Die(1)]})
        assert 4 == env.statistics().recovered
    assert [
        f"env {env} cannot continue where it was lost, because it has no seed and "
        "cannot save its state (seed the pool to change that); its episode ends here"
        for _ in range(2)
        for env in (2, 3)
    ] == lines_of(caplog)


class Redealt(Dealt):
    """Draws other cards each time it is built, and the same after the same seed."""

    def __init__(self):
        super().__init__()
        self._rng = np.random.default_rng()

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)
        return seed


@pytest.mark.parametrize("turn", range(10, 14))
def test_a_reset_after_steps_is_no_replay_anchor(turn, caplog):
    """An episode has begun between the seed and the reset, so a card is gone."""
    policy = dataclasses.replace(REPLAY, anchor_every=1, max_replay=7)
    backend = FakeBackend()
    with ParallelPyEnvironment(
        [Redealt] * 4, num_workers=2, backend=backend, on_worker_failure=policy
    ) as env:
        env.seed(3)
        env.reset()
        for step in range(14):
            if step == 2:
                env.seed(4)
            if step == 6:
                env.reset()
            backend.plan(*([Die(1)] if step == turn else ()))
            env.step([0] * 4)
            was_cut = env.repaired.any()
            assert not was_cut or step == turn
    assert [] == [line for line in lines_of(caplog) if "not deterministic" in line]


def test_an_unseeded_environment_that_raised_is_recoverable_later(caplog):
    env, backend = unseeded_pool(unseeded_walk)
    with env:
        env.reset()
        deaths = {0: [Raise(2)], 2: [Die(1)], 4: [Die(1)]}
        assert {0: [2]} == repaired_at(env, backend, deaths)
        assert 4 == env.statistics().recovered
    assert [] == [line for line in lines_of(caplog) if "cannot continue" in line]


def test_rows_of_busy_workers_have_states(caplog):
    """One row of each worker is asked before the other has answered, all the time."""
    backend = FakeBackend()
    with AsyncParallelPyEnvironment(
        [unseeded_walk] * 4,
        num_workers=2,
        backend=backend,
        on_worker_failure=dataclasses.replace(REPLAY, anchor_every=16),
    ) as env:
        env.reset_async()
        for turn in range(60):
            backend.plan(Finish((turn % 2, 2)), *([Die(1)] if turn in (40, 50) else ()))
            ids = env.recv(2).env_ids
            assert not env.repaired.any()
            env.send(np.zeros((2, 2), np.float32), ids)
        backend.schedule.clear()
        assert env.statistics().recovered >= 2
    assert [] == lines_of(caplog)


# Real workers, on every backend that has some.


def fragile_run(place, trouble, backend, **options):
    """Steps three rows; the middle one makes trouble where its action is 1."""
    makers = [functools.partial(Fragile, str(place), seed) for seed in range(3)]
    rng = np.random.default_rng(1)
    options = {"num_workers": 2, "autoreset": "same_step", **options}
    with ParallelPyEnvironment(
        makers, backend=backend(), on_worker_failure=REPLAY, **options
    ) as env:
        env.seed(8)
        seen = [env.reset()]
        for turn in range(20):
            actions = rng.uniform(-0.5, 0.5, (3, 2)).astype(np.float32)
            if turn == 13:
                actions[1, 0] = 1
                if trouble:
                    place.write_text(trouble, "utf-8")
            seen += [env.step(actions), env.repaired]
        Fragile.goes_on.set()  # A thread that was given up is waited for.
        return seen, env.statistics().recovered


def linked_backend():
    return LinkedBackend(CommandLauncher(["envkit worker {address}"] * 2))


# In this time what does not hang answers also on a busy machine: who is late twice over
# one request is given up.
LIMIT = {"step_timeout": 10.0}
WAYS = {
    "forked": (lambda: "process", {"start_method": "fork"}, "end"),
    "spawned": (lambda: "process", {"start_method": "spawn"}, "end"),
    "from a fork server": (lambda: "process", {"start_method": "forkserver"}, "end"),
    "hung": (lambda: "process", {"start_method": "fork", **LIMIT}, "hang"),
    "linked": (linked_backend, {}, "end"),
    "thread": (lambda: "thread", LIMIT, "hang"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_lost_in_mid_step_is_not_noticed(way, tmp_path):
    backend, options, trouble = WAYS[way]
    quiet, _ = fragile_run(tmp_path / "file", "", lambda: "inline", num_workers=None)
    Fragile.goes_on.clear()
    seen, recovered = fragile_run(tmp_path / "file", trouble, backend, **options)

    assert not (tmp_path / "file").exists()
    assert [] == differences(quiet, seen)
    # On a busy machine others may be late as well.
    assert recovered == 2 or ("step_timeout" in options and recovered > 2)


@pytest.mark.parametrize("way", ["forked", "spawned", "linked"])
def test_an_unseeded_environment_continues_in_a_real_worker(way, caplog):
    """It is lost right after its first reset, and right after that again."""
    backend, options, _ = WAYS[way]
    with ParallelPyEnvironment(
        [unseeded_walk] * 2,
        num_workers=2,
        backend=backend(),
        on_worker_failure=REPLAY,
        **options,
    ) as env:
        env.reset()
        for _ in range(2):
            pid = env.workers[1].pid
            os.kill(pid, signal.SIGKILL)
            assert until(lambda pid=pid: not is_running(pid))
            env.step(np.zeros((2, 2), np.float32))
            assert not env.repaired.any()
        assert 2 == env.statistics().recovered
    assert [] == lines_of(caplog)


@pytest.mark.parametrize("requests", range(5))
def test_an_unseeded_environment_that_is_lost_early_is_recovered_later(
    requests, caplog
):
    """Its worker is lost after its first requests, and again some steps later."""
    with ParallelPyEnvironment(
        [unseeded_walk] * 2,
        num_workers=2,
        start_method="fork",
        on_worker_failure=REPLAY,
    ) as env:
        for turn in range(requests + 4):
            if turn in (requests, requests + 3):
                recovered = env.statistics().recovered
                pid = env.workers[1].pid
                os.kill(pid, signal.SIGKILL)
                assert until(lambda pid=pid: not is_running(pid))
            env.step(np.zeros((2, 2), np.float32))
            assert not env.repaired.any()
        assert recovered + 1 == env.statistics().recovered
    assert [] == lines_of(caplog)


def test_an_action_that_ends_its_worker_each_time_ends_the_episode(tmp_path, caplog):
    options = {"start_method": "fork"}
    seen, recovered = fragile_run(
        tmp_path / "file", "always", lambda: "process", **options
    )

    assert [[False, True, False]] == [
        mask.tolist() for mask in seen[2::2] if mask.any()
    ]
    assert 3 == recovered
    assert [
        "env 1 cannot continue where it was lost, because the same request has ended "
        "its worker again; its episode ends here"
    ] == lines_of(caplog)


def test_a_recording_does_not_show_a_loss(tmp_path):
    def recorded(path, trouble):
        backend = FakeBackend()
        pool = ParallelPyEnvironment(
            constructors("limited"),
            num_workers=2,
            backend=backend,
            on_worker_failure=REPLAY,
        )
        with Record(pool, path) as env:
            env.reset(seed=3)
            for turn in range(20):
                backend.plan(*trouble.get(turn, ()))
                walk(env)
            recovered = pool.statistics().recovered
        return list(Recording(path).episodes()), recovered

    quiet, _ = recorded(tmp_path / "quiet", {})
    troubled, recovered = recorded(tmp_path / "troubled", {7: [Die(0)], 15: [Die(1)]})
    assert 4 == recovered
    assert quiet
    for one, other in zip(quiet, troubled, strict=True):
        assert one.ended == other.ended
        for step in range(len(one)):
            assert [] == differences(one.time_step(step), other.time_step(step))
        for step in range(len(one) - 1):
            assert [] == differences(one.action(step), other.action(step))


def boxed(value):
    box = np.empty((), object)
    box[()] = value
    return box


class Speaking(PyEnvironment):
    """Observes and takes objects."""

    def observation_spec(self):
        return ObjectSpec()

    def action_spec(self):
        return ObjectSpec()

    def _reset(self):
        self._said = ["begin"]
        return restart(boxed(tuple(self._said)))

    def _step(self, action):
        self._said.append(action[()])
        return transition(boxed(tuple(self._said)), reward=0.0)


def test_objects_are_replayed_unchanged(tmp_path):
    with ParallelPyEnvironment(
        [Speaking] * 2, num_workers=1, start_method="fork", on_worker_failure=REPLAY
    ) as env:
        env.reset()
        word = ["a"]
        env.step([boxed(word), boxed("x")])
        word.append("b")  # The caller's own list may change.
        pid = env.workers[0].pid
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: not is_running(pid))
        shown = env.step([boxed(word), boxed("y")]).observation
        recovered = env.statistics().recovered

    assert [("begin", ["a"], ["a", "b"]), ("begin", "x", "y")] == list(shown)
    assert 2 == recovered
