"""A reset takes a seed and options, whatever the environment stands behind."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    BoundedArraySpec,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    PyEnvironment,
    PyEnvironmentBaseWrapper,
    RandomPyEnvironment,
    RestartPolicy,
    StepType,
    TimeStep,
    restart,
)
from envkit.adapters import Adapter
from envkit.envs import CartPole, Catch
from envkit.errors import CallOrderError, EnvironmentRaised
from envkit.realtime import Joint, RealTimeEnvironment
from envkit.recording import Record, Recording
from envkit.recording.replaying import check
from envkit.testing import CountingEnv
from envkit.wrappers import FrameStack, NoopReset, StickyAction, TimeLimit, wrap
from tests.levels import Level
from tests.parallel.streams import async_pool_of, pool_of

NO_ACTIONS = np.zeros(4, np.int32)


class SeededInReset(Level):
    """Has no seed() of its own, and no defaults."""

    seed = PyEnvironment.seed

    def _reset(self, seed, options):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return super()._reset(options)


class Levels(PyEnvironment):
    """Two rows in one object."""

    batched, batch_size = True, 2

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._seen = np.zeros((2, 2), np.int64)

    def observation_spec(self):
        return ArraySpec((2,), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self, seed=None, options=None):
        return self._reset_rows(np.ones(2, bool), seed, options)

    def _reset_rows(self, mask, seed=None, options=None):
        for row in np.flatnonzero(mask):
            own = options[row] if options else None
            level = -1 if own is None else own["level"]
            given = seed[row] if seed else None
            self._seen[row] = level, -1 if given is None else given % 1000
        return restart(self._seen.copy(), batch_size=2)

    def _step(self, action):
        ones = np.ones(2, np.float32)
        return TimeStep(
            np.full(2, StepType.MID, np.int32), ones, ones, self._seen.copy()
        )


class Crashing(Level):
    """Crashes in its second step."""

    def _step(self, action):
        if self._steps == 1:
            raise RuntimeError("crashed")
        return super()._step(action)


def batch_of(makers):
    return BatchedPyEnvironment([make() for make in makers])


def blocking(makers):
    return Blocking(AsyncParallelPyEnvironment(makers, backend="inline"))


def joint(makers):
    return Joint([batch_of(makers[:1]), batch_of(makers[1:])])


def pool(**options):
    return functools.partial(ParallelPyEnvironment, num_workers=2, **options)


BATCHES = {
    "batched": batch_of,
    "inline": pool(backend="inline"),
    "thread": pool(backend="thread"),
    "blocking": blocking,
    "joint": joint,
    "wrapped": lambda makers: TimeLimit(batch_of(makers), 99),
    "wrapped_rows": lambda makers: batch_of(
        [functools.partial(wrapped, make) for make in makers]
    ),
}
each_batch = pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
IN_PROCESSES = pytest.param(
    functools.partial(pool_of, backend="process", num_workers=2),
    id="processes",
    marks=pytest.mark.slow,
)
EACH_BACKEND = ["inline", pytest.param("process", marks=pytest.mark.slow)]


def wrapped(make):
    return TimeLimit(make(), 99)


def levels(time_step):
    return time_step.observation[:, 0].tolist()


def numbers(time_step):
    return time_step.observation[..., 1].tolist()


# One environment.


@pytest.mark.parametrize("kind", [Level, SeededInReset])
def test_a_reset_with_a_seed_is_seed_and_then_reset(kind):
    one, other = kind(), kind()
    other.seed(7)
    ours = [numbers(one.reset(seed=7)), *(numbers(one.step(0)) for _ in range(9))]
    theirs = [numbers(other.reset()), *(numbers(other.step(0)) for _ in range(9))]
    assert theirs == ours


@pytest.mark.parametrize("kind", [Level, SeededInReset])
def test_options_apply_to_one_reset(kind):
    env = kind()
    seen = [env.reset(options={"level": 3})]
    seen += [env.step(0) for _ in range(4)]
    assert [3, 3, 3, 3, -1] == [int(one.observation[0]) for one in seen]


def test_changing_the_given_options_does_not_affect_the_caller():
    given = {"level": 3}
    Level().reset(options=given)
    batch_of([Level] * 2).reset(options=given)
    assert {"level": 3} == given


def test_a_seed_waits_for_the_next_reset_and_is_part_of_the_state():
    env = SeededInReset()
    env.reset()
    env.seed(7)
    token = env.get_state()
    expected = numbers(env.reset())
    env.reset()
    env.set_state(token)
    assert expected == numbers(env.reset())


def test_a_hook_with_keyword_arguments_receives_every_argument():
    class Passing(PyEnvironmentBaseWrapper):
        def _reset(self, **given):
            self.given = given
            return self._env.reset(**given)

    env = Passing(Level())
    assert 3 == env.reset(options={"level": 3}).observation[0]
    assert {"options": {"level": 3}} == env.given
    env.reset()
    assert {} == env.given


def test_a_wrapper_takes_options_beside_its_environment():
    class Listening(PyEnvironmentBaseWrapper):
        def _reset(self, options=None):
            self.heard = options
            return super()._reset()

    env = Listening(Level())
    assert 3 == env.reset(options={"level": 3}).observation[0]
    assert {"level": 3} == env.heard
    alone = Listening(CountingEnv())
    alone.reset(options={"level": 3})
    assert {"level": 3} == alone.heard


@pytest.mark.parametrize(
    "around",
    [
        lambda env: TimeLimit(env, 5),
        lambda env: FrameStack(env, 1),
        lambda env: StickyAction(env, 0.5),
        lambda env: NoopReset(env, 1),
        lambda env: wrap(env, [TimeLimit, 4], [FrameStack, 1]),
    ],
)
def test_every_wrapper_passes_seeds_and_options_on(around):
    env, same = around(Level()), around(Level())
    same.seed(7)
    time_step = env.reset(seed=7, options={"level": 3})
    assert 3 == np.ravel(time_step.observation)[0]
    expected = np.ravel(same.reset().observation)[1]
    assert expected == np.ravel(time_step.observation)[1]


def test_unsupported_options_are_refused_before_anything_steps(message_of):
    env = TimeLimit(CountingEnv(), 5)
    env.reset()
    env.step(0)
    assert (
        "CountingEnv takes no reset options, and was given 'level', 'map': its _reset "
        "has no argument `options`."
    ) == message_of(
        NotImplementedError, lambda: env.reset(options={"level": 3, "map": 1})
    )
    assert 1 == env.current_time_step().observation
    assert env.reset(options={}).is_first()


def test_options_must_be_a_dictionary(message_of):
    assert (
        "The options of a reset are a dictionary such as {'level': 3}, not 3 of "
        "type int."
    ) == message_of(TypeError, lambda: Level().reset(options=3))


def test_a_failed_reset_discards_its_unused_options():
    class Failing(PyEnvironmentBaseWrapper):
        fails = True

        def _reset(self):
            if self.fails:
                raise RuntimeError
            return super()._reset()

    env = Failing(Level())
    with pytest.raises(RuntimeError):
        env.reset(options={"level": 3})
    env.fails = False
    assert -1 == env.reset().observation[0]


# Rows.


@pytest.mark.parametrize("make", [*BATCHES.values(), IN_PROCESSES])
def test_each_row_has_its_own_seed_and_options(make):
    expected = batch_of([SeededInReset] * 4)
    each = [{"level": 0}, None, {"level": 2}, {}]
    with make([SeededInReset] * 4) as env:
        for batch in (expected, env):
            batch.seen = [batch.reset(seed=7, options=each)]
            batch.seen += [batch.step(NO_ACTIONS) for _ in range(4)]
            batch.seen += [batch.reset(seed=[1, 2, 3, 4], options={"level": 5})]
        assert [0, -1, 2, -1] == levels(env.seen[0])
        assert [5] * 4 == levels(env.seen[-1])
        # The episodes after it begin by themselves, without.
        assert [-1] * 4 == levels(env.seen[4])
        assert list(map(numbers, expected.seen)) == list(map(numbers, env.seen))


@each_batch
def test_rows_outside_the_mask_continue(make):
    mask = np.array([True, False, False, True])
    with make([Level] * 4) as env:
        before = env.reset(seed=7, options={"level": 1})
        again = env.reset(mask, seed=7, options={"level": 2})
        assert [2, 1, 1, 2] == levels(again)
        assert numbers(before) == numbers(again)
        # Their streams have not begun anew: the next numbers are the second ones.
        second = env.reset(seed=[None, None, None, 5])
        assert numbers(Level().reset(seed=5)) == numbers(second)[3]
        twice = batch_of([Level] * 4)
        twice.reset(seed=7)
        assert numbers(twice.reset())[:3] == numbers(second)[:3]


@each_batch
def test_a_mask_before_the_first_reset_is_refused_before_anything_is_seeded(make):
    mask = np.array([True, False, False, True])
    with make([Level] * 4) as env, pytest.raises(CallOrderError):
        env.reset(mask, seed=3, options={"level": 3})


@pytest.mark.parametrize("make", [batch_of, pool(backend="inline")])
def test_options_for_another_number_of_rows_are_refused(make, message_of):
    with make([Level] * 4) as env:
        assert (
            "Options for 2 rows, and 4 rows are reset. Pass a list with one "
            "dictionary, or None, for each row, or one dictionary for all."
        ) == message_of(ValueError, lambda: env.reset(options=[{}, {}]))


def test_a_batch_receives_lists_of_seeds_and_options():
    env = Levels()
    first = env.reset(seed=[1, 2], options={"level": 3})
    second = env.reset(
        np.array([False, True]), seed=[4, 5], options=[None, {"level": 6}]
    )
    env.seed([8, 9])
    third = env.reset(np.array([True, False]))
    fourth = env.reset()
    assert [[3, 1], [3, 2]] == first.observation.tolist()
    assert [[3, 1], [6, 5]] == second.observation.tolist()
    assert [[-1, 8], [6, 5]] == third.observation.tolist()
    assert [[-1, -1], [-1, 9]] == fourth.observation.tolist()


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_a_batch_in_a_pool_receives_its_rows_seeds_and_options(backend):
    mask = np.array([False, True, True, False])
    with pool_of([Levels] * 2, backend) as env:
        env.reset(seed=[1, 2, 3, 4], options={"level": 0})
        each = [None, {"level": 6}, {"level": 7}, None]
        time_step = env.reset(mask, seed=[5, 6, 7, 8], options=each)
    assert [[0, 1], [6, 6], [7, 7], [0, 4]] == time_step.observation.tolist()


def test_built_in_batches_can_seed_single_rows():
    env = StickyAction(CartPole(batch_size=3, seed=1), 0.25)
    env.reset()
    rest = CartPole(batch_size=3, seed=1)
    rest.reset()
    seeded = env.reset(seed=[None, 7, None]).observation
    assert CartPole().reset(seed=7).observation.tolist() == seeded[1].tolist()
    assert rest.reset().observation[::2].tolist() == seeded[::2].tolist()


def test_a_batch_with_a_shared_generator_cannot_seed_single_rows(message_of):
    spec = ArraySpec((), np.float32)
    env = RandomPyEnvironment(spec, BoundedArraySpec((), np.int64, 0, 1), batch_size=2)
    env.reset()
    assert not env.seeds_rows
    assert (
        "RandomPyEnvironment cannot seed row 1 alone: override _seed_rows(seeds), "
        "whose seeds are None for the rows that go on. seed(seeds) seeds all rows."
    ) == message_of(NotImplementedError, lambda: env.reset(seed=[None, 3]))


def test_a_subclass_that_only_extends_seed_cannot_seed_single_rows():
    class Extended(Catch):
        def seed(self, seed):
            super().seed(seed)

    assert Catch(batch_size=2).seeds_rows
    assert not Extended(batch_size=2).seeds_rows
    assert not Catch().seeds_rows


# Pools.


def test_a_pool_refuses_options_before_any_row_steps():
    with ParallelPyEnvironment([Level, CountLevel], backend="inline") as env:
        env.reset(options=[{"level": 1}, None])
        with pytest.raises(NotImplementedError, match="env 1 raised") as caught:
            env.reset(options={"level": 3})
        assert isinstance(caught.value, EnvironmentRaised)
        assert [1, 0] == levels(env.current_time_step())
        # What env 0 was given with it is not for another reset.
        assert [-1, 0] == levels(env.reset())


class CountLevel(Level):
    """Takes no options."""

    def _reset(self):
        self._level = self._steps = 0
        return restart(self._observation())


def test_options_that_cannot_be_pickled_are_refused_before_any_row_steps():
    with pool_of([Level] * 2, "process", num_workers=2) as env:
        env.reset(options={"level": 1})
        with pytest.raises(TypeError, match="cannot be sent"):
            env.reset(options=[{"level": 2}, {"level": threading.Lock()}])
        assert [1, 1] == levels(env.current_time_step())
        # Those that did travel are not for another reset.
        assert [-1, -1] == levels(env.reset())


@pytest.mark.parametrize("order", ["same_step", "disabled"])
def test_automatic_resets_use_no_options(order):
    with ParallelPyEnvironment([Level] * 4, backend="inline", autoreset=order) as env:
        env.reset(options={"level": 2})
        for _ in range(3):
            env.step(NO_ACTIONS)
        if order == "disabled":
            env.reset()
        assert [-1] * 4 == levels(env.current_time_step())


def test_an_environment_that_is_replaced_begins_with_the_options():
    policy = RestartPolicy(max_restarts=3)
    with ParallelPyEnvironment(
        [Crashing] * 2, backend="inline", on_worker_failure=policy
    ) as env:
        env.reset(seed=5)
        for _ in range(2):
            last = env.step([0, 0])
        assert last.is_last().all()
        assert [4, 4] == levels(env.reset(options={"level": 4}))


def test_env_handles_and_promises_take_seeds_and_options():
    with ParallelPyEnvironment([Level] * 3, backend="inline") as env:
        env.reset()
        promise = env.envs[1].reset(blocking=False, seed=7, options={"level": 3})
        assert [3, *numbers_of(7)] == promise().observation.tolist()
        assert [-1, 3, -1] == levels(env.current_time_step())


def numbers_of(seed):
    return [numbers(Level().reset(seed=seed))]


@pytest.mark.parametrize("backend", EACH_BACKEND)
def test_asynchronous_rows_take_seeds_and_options(backend):
    by_row = batch_of([Level] * 4).reset(seed=9)
    with async_pool_of([Level] * 4, backend, num_workers=2) as env:
        env.reset_async(seed=3)
        env.recv()
        env.reset_async([3, 1], seed=9, options=[{"level": 30}, None])
        found = env.recv()

        ids = found.env_ids.tolist()
        assert {3: 30, 1: -1} == dict(zip(ids, levels(found.time_step), strict=True))
        seen = dict(zip(ids, numbers(found.time_step), strict=True))
        assert {row: numbers(by_row)[row] for row in (1, 3)} == seen
        env.reset_async([0], seed=[7])
        assert numbers_of(7) == numbers(env.recv().time_step)


def test_refused_options_leave_blocking_rows_unchanged():
    with blocking([CountingEnv] * 2) as env:
        env.reset()
        with pytest.raises(NotImplementedError):
            env.reset(options={"level": 3})
        assert [1, 1] == env.step([0, 0]).observation.tolist()


# Behind a clock, in a recording, of other libraries.


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProcessPyEnvironment(Level, backend="thread"),
        lambda: RealTimeEnvironment(Level, hz=1000, host="virtual"),
        lambda: RealTimeEnvironment(Level, hz=1000, host="thread"),
        pytest.param(
            lambda: RealTimeEnvironment(Level, hz=1000, host="process"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["worker", "virtual", "thread", "process"],
)
def test_worker_and_real_time_environments_take_seeds_and_options(make):
    with make() as env:
        time_step = env.reset(seed=7, options={"level": 3})
        assert [3, *numbers_of(7)] == time_step.observation.tolist()


def test_the_clock_continues_after_refused_options():
    with RealTimeEnvironment(CountingEnv, hz=60, host="virtual") as env:
        env.reset()
        with pytest.raises(NotImplementedError, match="takes no reset options"):
            env.reset(options={"level": 3})
        assert env.step(0).is_mid()


@pytest.mark.parametrize("rows", [None, 3])
def test_a_recording_knows_the_seeds_and_options_of_resets(rows, tmp_path):
    def make():
        return Level() if rows is None else batch_of([Level] * rows)

    with Record(make(), tmp_path / "levels") as env:
        env.reset(seed=7, options={"level": 3})
        env.step(np.zeros(env.batch_size or (), np.int32))
        if rows:
            mask = np.array([True, False, True])
            each = [{"level": 4}, None, {"level": 5}]
            env.reset(mask, seed=8, options=each)
        env.step(np.zeros(env.batch_size or (), np.int32))
    outcome = check(Recording(tmp_path / "levels"), make())
    assert outcome.difference is None
    assert outcome.unchecked is None
    assert outcome.time_steps == (3 if rows is None else 3 + 3 + 2 + 3)


class Lift(Adapter):
    """Is started on some floor."""

    def reset(self, seed, options):
        self.given = seed, options
        return float((options or {}).get("floor", 0))

    def step(self, action):
        return 0.0, 0.0, False

    actions = ("up", "down")


def test_an_adapters_reset_receives_seeds_and_options():
    env = Lift()
    assert 0 == env.reset().observation
    assert 3 == env.reset(seed=7, options={"floor": 3}).observation
    assert (7, {"floor": 3}) == env.given
    env.reset()
    assert (None, None) == env.given


def test_an_adapter_whose_reset_takes_no_options_refuses_them():
    class Plain(Lift):
        def reset(self):
            return 0.0

    with pytest.raises(NotImplementedError, match="Plain takes no reset options"):
        Plain().reset(options={"floor": 3})
