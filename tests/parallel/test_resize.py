"""Pools that change size: the rows that stay go on as if nothing had happened."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shlex
import signal
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    RestartPolicy,
)
from envkit.distributed.links import linked
from envkit.errors import (
    CallOrderError,
    ClosedError,
    ConstructorError,
    EnvironmentRaised,
    SpecMismatchError,
    WorkerCrashed,
    WorkerError,
)
from envkit.parallel import AutoReset
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.remote.server import serve
from envkit.seeding import seed_per_row
from envkit.testing.envs import CountingEnv
from envkit.wrappers import RebuildAfter, StandbyEnvironment, TimeLimit
from tests.parallel.environments import Placed, Walk
from tests.parallel.fake_backend import Die, FakeBackend, Interrupt
from tests.parallel.streams import async_pool_of, differences, pool_of, row_of
from tests.waiting import is_running, until

MOST = 6
REPLAY = RestartPolicy(
    max_restarts=10_000,
    within=None,
    backoff=0,
    recover="replay",
    anchor_every=4,
    max_replay=300,
)


class Forgetful(Walk):
    """Cannot save its state; where it goes depends on a seed alone."""

    def _get_state(self):
        raise NotImplementedError


def limited():
    return TimeLimit(Walk(), duration=3)


def two():
    return BatchedPyEnvironment([Walk(1), Walk(2)], multithreading=False)


def pair():
    return StandbyEnvironment(Walk)


def rebuilt():
    return RebuildAfter(Walk, episodes=1)


MAKERS = {
    "walk": Walk,
    "forgets": Forgetful,
    "limited": limited,
    "batch": two,
    "pair": pair,
    "rebuilt": rebuilt,
}
MASKS = st.lists(st.booleans(), min_size=MOST, max_size=MOST)
MOVES = st.one_of(
    st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("some"), MASKS),
    st.tuples(st.just("reset"), MASKS),
    st.tuples(st.just("size"), st.integers(1, MOST)),
    st.tuples(st.just("size"), st.integers(1, MOST)),
    st.tuples(st.just("order"), st.sampled_from(list(AutoReset))),
    st.tuples(st.just("seed"), st.integers(0, 9)),
)
SETTINGS = hypothesis.settings(
    deadline=None,
    max_examples=25,
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
)


class Alone:
    """What a pool is to show: each environment in a pool of its own."""

    def __init__(self, make, order, size, seed):
        self._make, self._order, self._seed = make, order, seed
        self._width = 2 if make is two else 1
        self.envs = []
        self.resize(size)

    def resize(self, size):
        seeds = seed_per_row(self._seed, size)
        for env in self.envs[size // self._width :]:
            env.close()
        del self.envs[size // self._width :]
        for first in range(len(self.envs) * self._width, size, self._width):
            env = ParallelPyEnvironment(
                [self._make],
                backend="inline",
                autoreset=self._order,
            )
            env.seed(seeds[first : first + self._width])
            env.reset()
            self.envs.append(env)

    def seed(self, seed):
        self._seed = seed
        for index, seeds in enumerate(self._shares(seed_per_row(seed, self.rows))):
            self.envs[index].seed(seeds)

    @property
    def rows(self):
        return len(self.envs) * self._width

    def _shares(self, rows):
        return [
            rows[first : first + self._width]
            for first in range(0, len(rows), self._width)
        ]

    def step(self, actions, mask):
        for env, own, chosen in zip(
            self.envs, self._shares(actions), self._shares(mask), strict=True
        ):
            if chosen.any():
                env.step(own, chosen)

    def reset(self, mask):
        for env, chosen in zip(self.envs, self._shares(mask), strict=True):
            if chosen.any():
                env.reset(chosen)

    def order(self, order):
        self._order = order
        for env in self.envs:
            env.autoreset = order

    def standing(self):
        return [
            row_of(env.current_time_step(), row)
            for env in self.envs
            for row in range(self._width)
        ]

    def infos(self):
        return [repr(env.get_infos()[0]) for env in self.envs]

    def close(self):
        for env in self.envs:
            env.close()


class Program:
    """Plays moves on a pool and on its environments alone, and compares."""

    def __init__(self, env, alone, make):
        self.env, self.alone = env, alone
        self._width = 2 if make is two else 1
        self._rng = np.random.default_rng(5)

    def play(self, name, value):
        getattr(self, f"_{name}")(value)
        rows = self.env.batch_size
        assert rows == self.alone.rows
        standing = self.env.current_time_step()
        actual = [row_of(standing, row) for row in range(rows)]
        assert [] == differences(self.alone.standing(), actual)
        # A row that is left alone under SAME_STEP is shown where it stands.
        if self.env.autoreset is not AutoReset.SAME_STEP:
            assert self.alone.infos() == self._infos()
        assert not self.env.repaired.any()

    def _infos(self):
        return [repr(info) for info in self.env.get_infos()]

    def _playable(self, mask):
        """Returns a mask without what must be reset first, or cut an environment."""
        if self.env.autoreset is AutoReset.DISABLED:
            mask = mask & ~self.env.current_time_step().is_last()
        if self._width == 2:
            mask = np.repeat(mask[::2] & mask[1::2], 2)
        return mask

    def _step(self, _):
        self._some([True] * MOST)
        if self.env.autoreset is AutoReset.DISABLED:
            self._reset(np.resize(self.env.current_time_step().is_last(), MOST))

    def _some(self, mask):
        rows = self.env.batch_size
        mask = self._playable(np.array(mask)[:rows])
        actions = self._rng.uniform(-1, 1, (MOST, 2)).astype(np.float32)[:rows]
        if mask.all():
            returned = self.env.step(actions)
        elif mask.any():
            returned = self.env.step(actions, mask)
        else:
            return
        assert rows == len(returned.reward)
        self.alone.step(actions, mask)

    def _reset(self, mask):
        mask = np.array(mask)[: self.env.batch_size]
        if mask.any():
            self.env.reset(mask)
            self.alone.reset(mask)

    def _size(self, size):
        size = -(-size // self._width) * self._width
        shown = self.env.current_time_step()
        before = [row_of(shown, row) for row in range(self.env.batch_size)]
        infos = self._infos()
        self.env.resize(size)
        after = self.env.current_time_step()
        kept = min(size, len(before))
        assert [] == differences(before[:kept], [row_of(after, r) for r in range(kept)])
        assert after.is_first()[kept:].all()
        kept //= self._width
        assert infos[:kept] == self._infos()[:kept]
        self.alone.resize(size)

    def _order(self, order):
        self.env.autoreset = order
        self.alone.order(order)

    def _seed(self, seed):
        self.env.seed(seed)
        self.alone.seed(seed)


def check(backend, kind, order, moves, size, workers=2, deaths=None, **options):
    make = MAKERS[kind]
    width = 2 if kind == "batch" else 1
    size = -(-size // width) * width
    fake = backend if isinstance(backend, FakeBackend) else None
    makers = [make] * (size // width)
    env = pool_of(makers, backend, num_workers=workers, autoreset=order, **options)
    with env:
        env.seed(7)
        env.reset()
        alone = Alone(make, order, size, 7)
        try:
            program = Program(env, alone, make)
            for index, (name, value) in enumerate(moves):
                if fake is not None and deaths and index in deaths:
                    fake.plan(Die(*deaths[index]))
                program.play(name, value)
        finally:
            alone.close()


@pytest.mark.parametrize("kind", MAKERS)
@SETTINGS
@hypothesis.given(
    moves=st.lists(MOVES, max_size=20),
    order=st.sampled_from(list(AutoReset)),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    eager=st.booleans(),
)
def test_rows_that_stay_are_untouched(kind, moves, order, size, workers, eager):
    """Whatever moves and sizes: each row is what it would be alone."""
    check("inline", kind, order, moves, size, workers, eager_resets=eager)


@pytest.mark.parametrize("kind", ["walk", "forgets", "batch"])
@SETTINGS
@hypothesis.given(
    moves=st.lists(MOVES, max_size=20),
    order=st.sampled_from(list(AutoReset)),
    deaths=st.dictionaries(
        st.integers(0, 20), st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=4
    ),
)
def test_lost_environments_continue_in_a_resized_pool(kind, moves, order, deaths):
    check(
        FakeBackend(),
        kind,
        order,
        moves,
        4,
        deaths=deaths,
        on_worker_failure=REPLAY,
    )


PLAN = [
    ("step", None),
    ("size", 5),
    ("step", None),
    ("some", [True, False] * 3),
    ("step", None),
    ("size", 3),
    ("step", None),
    ("reset", [False, True] * 3),
    ("size", 1),
    ("step", None),
    ("size", 6),
    ("step", None),
    ("step", None),
]


@pytest.mark.parametrize("order", list(AutoReset))
@pytest.mark.parametrize("kind", ["pair", "rebuilt"])
def test_wrappers_that_build_environments_continue_after_a_resize(kind, order):
    check("inline", kind, order, PLAN + PLAN, 3)


# Nothing that starts or ends a linked worker knows the order.
@pytest.mark.parametrize(
    ("backend", "order"),
    [
        *itertools.product(["thread", "process"], AutoReset),
        ("linked", AutoReset.SAME_STEP),
        *(
            pytest.param("linked", order, marks=pytest.mark.heavy)
            for order in (AutoReset.NEXT_STEP, AutoReset.DISABLED)
        ),
    ],
)
def test_every_backend_resizes(backend, order):
    if backend == "linked":
        backend = linked(["envkit worker {address}"] * 4, host="unix:")
    check(backend, "walk", order, PLAN, 3, start_serially=False, eager_resets=True)


def actions(count):
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("backend", ["inline", "thread", "process", "linked"])
def test_an_asynchronous_pool_resizes_when_no_answer_is_pending(backend):
    if backend == "linked":
        backend = linked(["envkit worker {address}"] * 4, host="unix:")
    with async_pool_of([CountingEnv] * 3, backend, num_workers=2) as env:
        env.reset_async()
        env.recv()
        env.send(actions(3))
        with pytest.raises(CallOrderError, match=r"resize\(\) was called while 3 "):
            env.resize(4)
        env.recv()
        env.resize(5)
        assert env.num_envs == 5
        env.send(actions(5))
        batch = env.recv()
        seen = batch.time_step.observation[np.argsort(batch.env_ids)]
        assert seen.tolist() == [2, 2, 2, 0, 0]
        env.resize(1)
        env.send(actions(1), [0])
        assert env.recv().time_step.observation.tolist() == [3]
        assert env.num_workers == 1


def test_a_pool_resized_before_its_first_reset_begins_all_rows():
    with ParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
        env.resize(3)
        assert env.reset().observation.tolist() == [0, 0, 0]
        assert env.step(actions(3)).observation.tolist() == [1, 1, 1]


def test_workers_without_rows_end_and_environments_are_closed(tmp_path):
    make = functools.partial(Noted, str(tmp_path))
    with ParallelPyEnvironment(
        [make] * 4, num_workers=2, start_method="fork", start_serially=False
    ) as env:
        pids = [worker.pid for worker in env.workers]
        env.reset()
        env.resize(1)
        # The one that goes has been waited for, and so has the other, which stays.
        assert len(list(tmp_path.iterdir())) == 3
        assert until(lambda: not is_running(pids[1]))
        assert [worker.pid for worker in env.workers] == pids[:1]


class Noted(CountingEnv):
    """Leaves a file where it is closed."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def close(self):
        name = f"{os.getpid()}-{id(self)}"
        open(os.path.join(self._folder, name), "w", encoding="ascii").close()


def test_earlier_views_are_unchanged_by_a_resize():
    """The memory of a view is kept and never written to again."""
    with ParallelPyEnvironment(
        [CountingEnv] * 2, zero_copy=True, start_method="fork"
    ) as env:
        env.reset()
        before = env.step(actions(2))
        env.resize(3)
        for _ in range(4):
            env.step(actions(3))
        assert before.observation.tolist() == [1, 1]
        assert env.current_time_step().observation.tolist() == [5, 5, 4]


def test_new_rows_are_spread_over_workers_as_usual():
    def shares(size, rows, **options):
        with ParallelPyEnvironment(
            [CountingEnv] * size, backend="thread", num_workers=2
        ) as env:
            env.resize(rows, **options)
            return [len(worker.rows) for worker in env.workers]

    assert shares(4, 8) == [2, 2, 2, 2]
    assert shares(4, 5) == [2, 2, 1]
    assert shares(4, 9, num_workers=1) == [2, 2, 5]


def test_a_list_of_seeds_has_none_for_new_rows():
    with ParallelPyEnvironment([Walk] * 2, backend="inline") as env:
        env.seed([4, 5])
        env.resize(3)
        assert env.provenance()["seed"] == [4, 5, None]


def test_a_checkpoint_of_a_resized_pool_continues(tmp_path):
    moves = np.random.default_rng(0).uniform(-1, 1, (8, 5, 2)).astype(np.float32)
    with ParallelPyEnvironment([Walk] * 3, backend="inline") as env:
        env.seed(3)
        env.reset()
        env.step(moves[0, :3])
        env.resize(5)
        env.save(tmp_path / "pool")
        expected = [env.step(each) for each in moves]
    again = ParallelPyEnvironment.load(
        tmp_path / "pool", [Walk] * 5, backend="inline", num_workers=2
    )
    with again:
        assert [] == differences(expected, [again.step(each) for each in moves])


# What is refused, and what is as it was then.


def other():
    return CountingEnv(steps_per_episode=2)


def broken():
    raise RuntimeError("no level")


class RaisesAtReset(CountingEnv):
    def _reset(self):
        raise RuntimeError("no episode")


class Wide(Walk):
    def action_spec(self):
        return super().action_spec().replace(maximum=2)


REFUSED = {
    "no rows": (
        [CountingEnv] * 2,
        (0,),
        ValueError,
        "num_envs must be an integer of at least 1, got 0.",
    ),
    "constructors that differ": (
        [CountingEnv, other],
        (3,),
        ValueError,
        "resize() must be given constructors, because the environments of this pool "
        "have different ones: resize(num_envs, constructors), with a list of those of "
        "the new environments.",
    ),
    "constructors for nothing": (
        [CountingEnv] * 2,
        (1, [CountingEnv]),
        ValueError,
        "constructors must be left out where no row is added: it says what builds new "
        "environments. The pool has 2 rows, and num_envs is 1.",
    ),
    "too many constructors": (
        [CountingEnv] * 2,
        (3, [CountingEnv] * 2),
        ValueError,
        "num_envs must be 4, as many rows as there are with the 2 of the new "
        "environments, got 3.",
    ),
    "a part of a batch": (
        [two] * 2,
        (3,),
        ValueError,
        "num_envs must not be 3: rows 2 to 3 are one environment (env 1) that is a "
        "batch itself. It stays with 4 rows, and goes with 2.",
    ),
    "a part of a new batch": (
        [two] * 2,
        (5,),
        ValueError,
        "num_envs must be 4 and a multiple of 2, because each environment of this pool "
        "is a batch of 2 rows, got 5.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_options_are_refused(case):
    makers, given, kind, message = REFUSED[case]
    with ParallelPyEnvironment(makers, backend="inline") as env:
        env.reset()
        with pytest.raises(kind) as caught:
            env.resize(*given)
        assert str(caught.value) == message
        assert_unchanged(env)


def assert_unchanged(env):
    rows, spec = env.batch_size, env.action_spec()
    assert len(env.step(np.zeros((rows, *spec.shape), spec.dtype)).reward) == rows


@pytest.mark.parametrize(
    ("maker", "kind"),
    [
        (broken, ConstructorError),
        (RaisesAtReset, EnvironmentRaised),
        (Walk, SpecMismatchError),
    ],
)
def test_a_failed_resize_changes_nothing(backend, maker, kind):
    with pool_of([CountingEnv] * 2, backend, num_workers=2) as env:
        env.reset()
        with pytest.raises(kind):
            env.resize(4, [CountingEnv, maker])
        assert env.step(actions(2)).observation.tolist() == [1, 1]
        assert env.num_workers == 2
        env.resize(3)
        assert env.step(actions(3)).observation.tolist() == [2, 2, 1]


def test_bounds_that_would_widen_the_batch_are_refused():
    env = ParallelPyEnvironment([Walk], backend="inline", specs="union")
    with env, pytest.raises(SpecMismatchError) as caught:
        env.resize(2, [Wide])
    first = str(caught.value).partition(".")[0]
    assert first == (
        "The new environments would change the action spec of the batch, which "
        "resize() keeps as it is"
    )


def test_ctrl_c_while_workers_start_leaves_the_pool_as_it_was():
    backend = FakeBackend()
    with ParallelPyEnvironment([CountingEnv] * 2, backend=backend) as env:
        env.reset()
        for _ in range(3):
            backend.plan(Interrupt("wait"))
            with pytest.raises(KeyboardInterrupt):
                env.resize(4)
            assert env.step(actions(2)).observation.shape == (2,)
        env.resize(4)
        assert env.step(actions(4)).observation.tolist() == [4, 4, 1, 1]


def test_a_worker_that_dies_while_others_start_is_replaced():
    backend = FakeBackend()
    with ParallelPyEnvironment(
        [CountingEnv] * 2,
        backend=backend,
        num_workers=2,
        on_worker_failure=RestartPolicy(),
    ) as env:
        env.reset()
        backend.plan(Die(0))
        env.resize(3)
        last = env.step(actions(3))
        assert last.step_type.tolist() == [2, 1, 1]
        assert env.repaired.tolist() == [True, False, False]
        assert env.step(actions(3)).step_type.tolist() == [0, 1, 1]


def test_a_wrapper_keeps_the_number_of_rows_while_it_lives():
    pool = ParallelPyEnvironment([CountingEnv] * 2, backend="inline")
    env = TimeLimit(pool, 5)
    with pytest.raises(AttributeError) as caught:
        _ = env.resize
    assert str(caught.value) == (
        "'TimeLimit' is around a pool, and has been made for as many rows as there "
        "are. Let the constructors wrap each environment, or resize the pool before it "
        "is wrapped."
    )
    del caught
    with pytest.raises(CallOrderError) as caught:
        pool.resize(3)
    assert str(caught.value) == (
        "resize() was called while a TimeLimit is around the pool, which was made for "
        "2 rows. Resize the pool first and wrap it then; one that has been wrapped can "
        "be resized when its wrappers are gone: del env."
    )
    del env
    pool.resize(3)
    assert TimeLimit(pool, 5).reset().observation.shape == (3,)
    pool.close()


def test_a_blocking_batch_keeps_the_number_of_rows():
    pool = AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline")
    env = Blocking(pool)
    with pytest.raises(CallOrderError, match="a Blocking is around the pool"):
        pool.resize(3)
    env.close()


def test_a_handle_on_a_removed_environment_says_so():
    with ParallelPyEnvironment([CountingEnv] * 3, backend="inline") as env:
        env.reset()
        handles = env.envs
        env.resize(2)
        for use in (
            lambda handle: handle.step(0),
            lambda handle: handle.render(),
            lambda handle: handle.call("get_info")(),
        ):
            with pytest.raises(ClosedError) as caught:
                use(handles[2])
            assert str(caught.value) == (
                "env 2 was closed by resize(): the pool has 2 environments now. Take "
                "another handle from envs."
            )
        assert handles[1].step(0).observation == 1


def test_new_workers_need_hosts():
    backend = linked(["envkit worker {address}"], host="unix:")
    with ParallelPyEnvironment([CountingEnv], backend=backend) as env:
        with pytest.raises(ValueError, match="The backend has places for") as caught:
            env.resize(2)
        assert str(caught.value) == (
            "The backend has places for 1 worker, of which 0 can be had: new rows need "
            "workers of their own. Give it more commands before: "
            "backend.add_workers(commands)."
        )
        assert env.reset().observation.tolist() == [0]
        backend.add_workers(["envkit worker {address}"] * 2)
        env.resize(2)
        env.resize(1)
        env.resize(3)
        assert env.num_workers == 3
        assert env.step(actions(3)).observation.tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match=r"worker must be from 0 to 2, as many as"):
            backend.change_worker(3, "envkit worker {address}")
        with pytest.raises(ValueError, match=r"must contain \{address\}"):
            backend.change_worker(0, "envkit worker")


def test_a_lost_worker_restarts_on_its_current_host():
    python = shlex.quote(sys.executable)
    here = f"env PLACE={{}} {python} -m envkit worker {{{{address}}}}"
    backend = linked([here.format("a"), here.format("b")], host="unix:")
    rng = np.random.default_rng(0)
    moves = rng.uniform(-1, 1, (9, 3, 2)).astype(np.float32)
    with ParallelPyEnvironment([Walk] * 3, backend="inline") as alone:
        alone.seed(3)
        alone.reset()
        expected = [alone.step(each) for each in moves]
    with ParallelPyEnvironment(
        [Placed] * 2, backend=backend, on_worker_failure=REPLAY, start_serially=False
    ) as env:
        env.seed(3)
        env.reset()
        seen = [env.step(each[:2]) for each in moves[:3]]
        assert env.call("place") == ["a", "b"]
        backend.change_worker(0, here.format("c"))
        os.kill(env.workers[0].pid, signal.SIGKILL)
        seen += [env.step(each[:2]) for each in moves[3:6]]
        assert env.call("place") == ["c", "b"]
        backend.add_workers([here.format("d")])
        env.resize(3)
        os.kill(env.workers[1].pid, signal.SIGKILL)
        seen += [env.step(each) for each in moves[6:]]
        assert env.call("place") == ["c", "b", "d"]
        assert env.statistics().recovered == 2
    for one, other in zip(expected, seen, strict=True):
        for row in range(2):
            assert [] == differences(row_of(one, row), row_of(other, row))


def come(address):
    """Starts a worker as a person would, by its address alone."""
    return subprocess.Popen([sys.executable, "-m", "envkit", "worker", address])


def test_an_externally_started_worker_joins_a_running_pool():
    backend = linked(["envkit worker {address}"], host="unix:")
    with pytest.raises(CallOrderError, match="no pool uses this backend"):
        backend.invite()
    policy = RestartPolicy(recover="replay", max_restarts=3, within=None, backoff=0)
    with ParallelPyEnvironment(
        [CountingEnv], backend=backend, on_worker_failure=policy
    ) as env:
        env.reset()
        env.step(actions(1))
        early = come(backend.invite())
        until(lambda: backend.arrived() == 1)
        env.resize(2)
        assert backend.arrived() == 0
        assert env.current_time_step().observation.tolist() == [1, 0]
        late = come(backend.invite())
        env.resize(3)
        assert env.step(actions(3)).observation.tolist() == [2, 1, 1]
        # It ends where its command does: the pool starts it elsewhere, if it may.
        backend.change_worker(1, "envkit worker {address}")
        os.kill(env.workers[1].pid, signal.SIGKILL)
        assert env.step(actions(3)).observation.tolist() == [3, 2, 2]
        assert env.statistics().recovered == 1
        env.resize(2)
        assert late.wait(60) == 0
        with pytest.raises(
            OSError, match=r"used up\. Invite another one into its place"
        ):
            env.resize(3)
        assert env.step(actions(2)).observation.tolist() == [4, 3]
        another = come(backend.invite())
        env.resize(3)
        assert env.step(actions(3)).observation.tolist() == [5, 4, 1]
        os.kill(env.workers[2].pid, signal.SIGKILL)
        with pytest.raises(
            WorkerError, match=r"used up.*change_worker\(2, command\)\.$"
        ):
            env.step(actions(3))
        unused = come(backend.invite())
        until(lambda: backend.arrived() == 1)
    assert early.wait(60) != 0
    assert another.wait(60) != 0
    assert unused.wait(60) != 0


def test_an_invited_worker_that_never_connects_changes_nothing():
    backend = linked(["envkit worker {address}"], host="unix:", connect_timeout=0.1)
    with ParallelPyEnvironment([CountingEnv], backend=backend) as env:
        env.reset()
        backend.invite()
        with pytest.raises(
            WorkerCrashed, match=r"did not connect within 0\.1 s after it"
        ):
            env.resize(2)
        assert env.step(actions(1)).observation.tolist() == [1]
        # A place may have a command after all.
        backend.invite()
        backend.change_worker(1, "envkit worker {address}")
        env.resize(2)
        assert env.step(actions(2)).observation.tolist() == [2, 1]


def test_the_old_memory_is_freed(tmp_path):
    """A pool that is resized often has the memory and descriptors of one."""
    with ParallelPyEnvironment([CountingEnv] * 2, start_method="fork") as env:
        env.reset()
        env.resize(3)
        env.resize(2)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            env.resize(3)
            env.resize(2)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before


def test_server_sessions_are_added_and_removed_as_a_whole():
    server = serve(Menu([Offer("Catch")]), ServeOptions(port=0))
    try:
        with ParallelPyEnvironment(
            ["Catch"] * 2, backend=server.address, num_workers=1
        ) as env:
            env.seed(3)
            env.reset()
            env.resize(4)
            first = env.step(actions(4) + 1)
            assert [1, 1, 1, 1] == first.step_type.tolist()
            with pytest.raises(ValueError, match="It stays with 4 rows, and goes with"):
                env.resize(3)
            env.resize(2)
            second = env.step(actions(2) + 1)
        with ParallelPyEnvironment(["Catch"] * 2, backend="inline") as alone:
            alone.seed(3)
            alone.reset()
            expected = [alone.step(actions(2) + 1) for _ in range(2)]
        assert [] == differences(row_of(expected[0], 1), row_of(first, 1))
        assert [] == differences(expected[1], second)
    finally:
        server.close("the test is over")
