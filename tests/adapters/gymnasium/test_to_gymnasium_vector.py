"""A batch of envkit is a vector environment, and does what Gymnasium's own do."""

from __future__ import annotations

import copy
import functools
import logging
import multiprocessing
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RandomPyEnvironment,
    RestartPolicy,
    TimeStep,
    restart,
    transition,
    truncation,
)
from envkit.adapters import GymnasiumVectorWrapper, GymnasiumWrapper
from envkit.adapters.gymnasium.kinds import as_order
from envkit.adapters.gymnasium.to_gymnasium_vector import (
    PyToGymnasiumVector,
    ResetMode,
)
from envkit.adapters.gymnasium.vectorize import vectorize
from envkit.envs import Bandit, CartPole, Catch
from envkit.errors import SpecError, WorkerError
from envkit.testing import CountingEnv, CrashingEnv, NestedCountingEnv
from envkit.time_step import AutoReset, StepType
from envkit.wrappers import FixedLength, TimeLimit
from tests.adapters.gym_spaces import WANTS_SETTLED
from tests.adapters.vector_games import (
    GAMES,
    MODES,
    assert_same_game,
    makers,
    transitions,
)

NO_ACTIONS = np.zeros(2, np.int64)


def wrapped(make):
    return GymnasiumWrapper(make(), reward_dtype=np.float64)


def batch_of(constructors):
    return BatchedPyEnvironment([make() for make in constructors], multithreading=False)


def pool_of(constructors):
    return ParallelPyEnvironment(constructors, backend="inline")


BATCHES = [batch_of, pool_of]


def counting(steps=2, rows=2):
    return [functools.partial(CountingEnv, steps, np.int64)] * rows


def vector(mode="NextStep", *, make=batch_of, **options):
    return PyToGymnasiumVector(make(counting()), mode, **options)


class Gated(CountingEnv):
    """Steps and resets only while its gate is open, and counts its resets."""

    def __init__(self):
        super().__init__(9, np.int64)
        self.gate = threading.Event()
        self.gate.set()
        self.resets = 0

    def _reset(self):
        self.gate.wait()
        self.resets += 1
        return super()._reset()

    def _step(self, action):
        self.gate.wait()
        return super()._step(action)

    def say(self, word):
        self.gate.wait()
        return word


@pytest.fixture(params=["here", "in a worker"])
def gated(request):
    """Makes a vector environment of one with a gate, and opens the gate at last."""
    env = Gated()
    if request.param == "here":
        batch = BatchedPyEnvironment([env])
    else:
        batch = ParallelPyEnvironment([lambda: env], backend="thread")
    yield env, PyToGymnasiumVector(batch)
    env.gate.set()
    batch.close()


@pytest.fixture
def late(gated):
    """Makes one whose step has been waited for in vain: the gate is shut."""
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0)
    return env, envs


# The same as Gymnasium's own.


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_results_match_sync_vector_env(name, mode, make):
    expected = SyncVectorEnv(makers(name), autoreset_mode=mode)
    with make([functools.partial(wrapped, one) for one in makers(name)]) as envs:
        assert_same_game(expected, PyToGymnasiumVector(envs, mode), steps=25)


def test_results_from_processes_match_sync_vector_env(nothing_left_behind):
    games = makers("CartPole-v1")
    own = [functools.partial(wrapped, one) for one in games]
    with ParallelPyEnvironment(own, num_workers=1) as pool:
        for mode in MODES:
            expected = SyncVectorEnv(games, autoreset_mode=mode)
            assert_same_game(expected, PyToGymnasiumVector(pool, mode), steps=20)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", GAMES)
def test_vector_environments_survive_a_round_trip(name, mode):
    theirs, own = (SyncVectorEnv(makers(name), autoreset_mode=mode) for _ in "ab")
    ours = GymnasiumVectorWrapper(own, reward_dtype=np.float64)
    assert_same_game(theirs, PyToGymnasiumVector(ours, mode), steps=25)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_of_some_rows_survive_a_round_trip(mode):
    class Telling(gymnasium.Wrapper):
        def step(self, action):
            *result, info = super().step(action)
            if result[0] > 4:
                info |= {"high": bool(result[0] % 2), "plain": np.bool_(True)}
            return *result, {**info, "word": "a" * int(result[0] % 3)}

    def make():
        telling = [lambda one=one: Telling(one()) for one in makers("FrozenLake-v1")]
        return SyncVectorEnv(telling, autoreset_mode=mode)

    ours = GymnasiumVectorWrapper(make(), reward_dtype=np.float64)

    assert_same_game(make(), PyToGymnasiumVector(ours, mode), steps=40)


@pytest.mark.parametrize("make", BATCHES)
def test_all_modes_give_the_same_transitions(make):
    def play(mode):
        envs = make([functools.partial(wrapped, one) for one in makers("CartPole-v1")])
        with envs:
            return transitions(PyToGymnasiumVector(envs, mode), steps=40)

    next_step, same_step, disabled = (play(mode) for mode in MODES)

    assert same_step == disabled
    assert [40] * 3 == [len(row) for row in same_step]
    for longer, shorter in zip(same_step, next_step, strict=True):
        assert 30 < len(shorter) < 40
        assert longer[: len(shorter)] == shorter


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize(
    "mode", [*MODES[:-1], pytest.param(MODES[-1], marks=WANTS_SETTLED)]
)
def test_record_episode_statistics_works_on_top(mode, make):
    def finished(envs, mode):
        envs = DictInfoToList(RecordEpisodeStatistics(envs))
        envs.reset(seed=2)
        found = []
        for step in range(30):
            _, _, terminated, truncated, infos = envs.step(np.full(3, step % 2))
            over = terminated | truncated
            found.append(
                [float(infos[row]["episode"]["r"]) for row in over.nonzero()[0]]
            )
            if mode == "Disabled" and over.any():
                envs.reset(options={"reset_mask": over})
        return found

    name = "CartPole-v1"
    # Gymnasium's takes the mask out of the options, so that the statistics begin anew
    # in all rows. The episodes are those of the other mode without dead steps.
    same = "SameStep" if mode == "Disabled" else mode
    expected = finished(SyncVectorEnv(makers(name), autoreset_mode=same), same)

    with make([functools.partial(wrapped, one) for one in makers(name)]) as envs:
        assert expected == finished(PyToGymnasiumVector(envs, mode), mode)
    assert any(expected)


# What it is.


def test_it_is_a_vector_env_with_repr_and_spaces():
    envs = PyToGymnasiumVector(TimeLimit(Catch(batch_size=3), 5), "SameStep")
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert "PyToGymnasiumVector(num_envs=3)" == repr(envs)
    assert (3, (3, 10, 5), (10, 5)) == (
        envs.num_envs,
        envs.observation_space.shape,
        envs.single_observation_space.shape,
    )
    assert AutoresetMode.SAME_STEP is envs.metadata["autoreset_mode"]
    assert (None, False, envs) == (envs.spec, envs.closed, envs.unwrapped)
    assert (3, 5) == (envs.wrapped_env().batch_size, envs.duration)
    whole = {"reset_mask": np.ones(3, bool)}
    assert (3, 10, 5) == envs.reset(options=whole)[0].shape


@pytest.mark.parametrize("make", [CartPole, Catch, Bandit])
@pytest.mark.parametrize("mode", MODES)
def test_built_in_batches_support_all_modes(make, mode):
    envs = PyToGymnasiumVector(make(batch_size=3), mode)
    observations, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    for _ in range(20):
        assert envs.observation_space.contains(observations)
        observations, _, terminated, truncated, _ = envs.step(
            envs.action_space.sample()
        )
        over = terminated | truncated
        if mode == "Disabled" and over.any():
            observations, _ = envs.reset(options={"reset_mask": over})


def test_nested_observations_and_actions_keep_their_keys():
    makers = [functools.partial(NestedCountingEnv, 2, nested_action=True)] * 2
    envs = PyToGymnasiumVector(batch_of(makers), "SameStep")
    envs.reset()

    envs.step(envs.action_space.sample())
    observations, *_, infos = envs.step(envs.action_space.sample())

    assert {"total_steps": [10, 10], "current_steps": [0, 0]} == {
        key: value.tolist() for key, value in observations.items()
    }
    assert {"total_steps": 2, "current_steps": 2} == infos["final_obs"][1]


def test_a_pool_of_batches_is_a_batch():
    with pool_of([functools.partial(CartPole, batch_size=2)] * 2) as pool:
        envs = PyToGymnasiumVector(pool, "SameStep")
        _, infos = envs.reset(seed=3)
        assert [0] * 4 == infos["episode_steps"].tolist()
        for _ in range(12):
            *_, terminated, _, infos = envs.step(np.ones(4, np.int64))
            expected = np.where(terminated, 0, infos["episode_steps"])
            assert expected.tolist() == infos["episode_steps"].tolist()
        assert (2,) * 4 == envs.get_attr("batch_size")
    with pool_of([functools.partial(CartPole, batch_size=2)] * 2) as pool:
        envs = PyToGymnasiumVector(pool, infos="final")
        envs.reset(seed=3)
        terminated = np.zeros(4, bool)
        while not terminated.any():
            *_, terminated, _, infos = envs.step(np.ones(4, np.int64))
        assert (infos["episode_steps"][terminated] > 5).all()


# Infos.


class Telling(CountingEnv):
    """Counts how often it is asked for its info, which says how old the episode is."""

    asked = 0

    def __init__(self, steps=2):
        super().__init__(steps, np.int64)

    def get_info(self):
        Telling.asked += 1
        return {"age": self._current_step}


def telling(infos, mode, make):
    Telling.asked = 0
    envs = PyToGymnasiumVector(make([Telling] * 2), mode, infos=infos)
    _, begin = envs.reset()
    _, _, _, _, middle = envs.step(NO_ACTIONS)
    _, _, _, _, end = envs.step(NO_ACTIONS)
    envs.close()
    ages = [
        None if "age" not in infos else infos["age"].tolist()
        for infos in (begin, middle, end, end.get("final_info", {}))
    ]
    return Telling.asked, ages


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize(
    ("infos", "mode", "ages"),
    [
        ("all", "NextStep", [[0, 0], [1, 1], [2, 2], None]),
        ("all", "SameStep", [[0, 0], [1, 1], [0, 0], [2, 2]]),
        ("final", "NextStep", [[0, 0], None, [2, 2], None]),
        ("final", "SameStep", [[0, 0], None, None, [2, 2]]),
        ("none", "NextStep", [None, None, None, None]),
        ("none", "SameStep", [None, None, None, None]),
    ],
)
def test_infos_chooses_which_infos_are_read(infos, mode, ages, make):
    asked, found = telling(infos, mode, make)
    assert ages == found
    # In this order a pool keeps what is about to be left.
    if make is batch_of or mode == "NextStep":
        assert (asked == 0) == (infos == "none")


@pytest.mark.parametrize("rows", [[1, 1, 1], [2, 1]])
@pytest.mark.parametrize("mode", MODES)
def test_infos_come_from_a_pool_of_batches_of_any_size(rows, mode):
    makers = [functools.partial(Bandit, batch_size=size) for size in rows]
    with pool_of(makers) as pool, Bandit(batch_size=3) as batch:
        envs, expected = (PyToGymnasiumVector(env, mode) for env in (pool, batch))
        envs.reset()
        expected.reset()
        infos, plain = (one.step(np.zeros(3, int))[4] for one in (envs, expected))

    assert plain.keys() == infos.keys()
    assert plain["_episode_steps"].tolist() == infos["_episode_steps"].tolist()
    assert plain["episode_steps"].tolist() == infos["episode_steps"].tolist()


def test_a_pool_of_batches_may_have_unlike_infos():
    def rows(names):
        return batch_of([functools.partial(Named, name) for name in names])

    class Named(CountingEnv):
        def __init__(self, name):
            super().__init__(3, np.int64)
            self._name = name

        def get_info(self):
            return {self._name: np.arange(3)}

    makers = [functools.partial(rows, names) for names in ("ab", "ba")]
    with pool_of(makers) as pool:
        _, infos = PyToGymnasiumVector(pool).reset()

    assert [True, False, False, True] == infos["_a"].tolist()
    assert [0, 1, 2] == infos["b"][1].tolist()


def test_final_infos_are_read_from_ended_environments_only():
    makers = [functools.partial(Telling, 1), functools.partial(Telling, 9)]
    with pool_of(makers) as pool:
        envs = PyToGymnasiumVector(pool, infos="final")
        envs.reset()
        Telling.asked = 0

        _, _, _, _, infos = envs.step(NO_ACTIONS)

        # Each worker reads the info of each of its environments once, and the answer to
        # the view is the one that was read.
        assert (2, [1, 0], [True, False]) == (
            Telling.asked,
            infos["age"].tolist(),
            infos["_age"].tolist(),
        )


class Overheard(ParallelPyEnvironment):
    """A pool that writes down which environments it asks for their infos."""

    def __init__(self, constructors):
        self.asked = []
        super().__init__(constructors, backend="inline")
        post = self._pool.post

        def overheard(method, envs, arguments):
            if method in {"get_info", "call"}:
                self.asked.append(list(envs))
            return post(method, envs, arguments)

        self._pool.post = overheard


@pytest.mark.parametrize("infos", ["all", "final"])
@pytest.mark.parametrize("mode", MODES)
def test_environments_without_infos_are_not_asked(mode, infos):
    makers = [functools.partial(wrapped, lambda: gymnasium.make("CartPole-v1"))] * 2
    with Overheard(makers) as pool:
        envs = PyToGymnasiumVector(pool, mode, infos=infos)
        envs.reset(seed=1)
        ends = 0
        for _ in range(40):
            _, _, terminated, _, _ = envs.step(np.ones(2, np.int64))
            ends += terminated.sum()
            if mode == "Disabled" and terminated.any():
                envs.reset(options={"reset_mask": terminated})

        assert ends > 4
        assert [] == pool.asked


def test_only_environments_with_infos_are_asked():
    class Late(Telling):
        def get_info(self):
            return super().get_info() if self._current_step == 1 else {}

    with Overheard([functools.partial(Late, 9), *counting(9, rows=1)]) as pool:
        envs = PyToGymnasiumVector(pool)
        envs.reset()
        infos = [envs.step(NO_ACTIONS)[4] for _ in range(2)]

        assert [[0]] == pool.asked
        assert [["age", "_age"], []] == [list(info) for info in infos]
        assert [True, False] == infos[0]["_age"].tolist()


@pytest.mark.parametrize("make", [*BATCHES, None])
@pytest.mark.parametrize("mode", MODES)
def test_final_infos_belong_to_their_rows_only(mode, make):
    def batch():
        if make is None:
            return CartPole(batch_size=3, seed=1)
        return make([functools.partial(CartPole, seed=seed) for seed in range(3)])

    with batch() as env:
        envs = PyToGymnasiumVector(env, mode, infos="final")
        envs.reset()
        over = np.zeros(3, bool)
        while not over.any():
            *_, terminated, truncated, infos = envs.step(np.ones(3, np.int64))
            over = terminated | truncated
        ends = infos["final_info"] if mode == "SameStep" else infos

    assert over.tolist() == ends["_episode_steps"].tolist()
    assert ("episode_steps" in infos) == (mode != "SameStep")


def test_the_final_info_is_safe_from_the_reset():
    class Writing(CountingEnv):
        mask = np.zeros(2, bool)

        def _reset(self):
            self.mask[:] = False
            return super()._reset()

        def _step(self, action):
            self.mask[:] = True
            return super()._step(action)

        def get_info(self):
            return {"mask": self.mask}

    with batch_of([functools.partial(Writing, 1, np.int64)]) as batch:
        envs = PyToGymnasiumVector(batch, "SameStep")
        envs.reset()
        infos = envs.step(np.zeros(1, np.int64))[4]

    assert [[True, True]] == infos["final_info"]["mask"].tolist()
    assert [[False, False]] == infos["mask"].tolist()


class Silent(CountingEnv):
    """Has nothing to say, and says so."""

    def get_info(self):
        raise NotImplementedError("Nothing to say.")


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize("mode", MODES)
def test_environments_without_infos_have_none(mode, make):
    with make([functools.partial(Silent, 1, np.int64)] * 2) as batch:
        envs = PyToGymnasiumVector(batch, mode)
        assert {} == envs.reset()[1]
        ends = {"final_obs", "_final_obs", "final_info", "_final_info"}
        assert set() == envs.step(NO_ACTIONS)[4].keys() - ends


def test_environments_with_and_without_infos_mix():
    makers = [functools.partial(Silent, 9, np.int64), functools.partial(Telling, 9)]
    with pool_of(makers) as pool:
        envs = PyToGymnasiumVector(pool)
        envs.reset()
        infos = envs.step(NO_ACTIONS)[4]
    assert ([0, 1], [False, True]) == (infos["age"].tolist(), infos["_age"].tolist())


class Discounting(PyEnvironment):
    """Has discounts of its own, and ends with the third step."""

    def observation_spec(self):
        return BoundedArraySpec((), np.int64, 0, 9)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        self._steps = np.int64(0)
        return restart(np.array(self._steps))

    def _step(self, action):
        self._steps += 1
        if self._steps == 3:
            return truncation(np.array(self._steps), 1.0, 0.25)
        return transition(np.array(self._steps), 1.0, (0.5, 1.0)[self._steps - 1])


@pytest.mark.parametrize("make", BATCHES)
def test_unusual_discounts_are_in_the_infos(make):
    with make([Discounting] * 2) as batch:
        envs = PyToGymnasiumVector(batch, "SameStep")
        envs.reset()

        first, second, third = (envs.step(NO_ACTIONS)[4] for _ in range(3))

    assert ([0.5, 0.5], [True, True]) == (
        first["discount"].tolist(),
        first["_discount"].tolist(),
    )
    assert {} == second
    assert "discount" not in third
    assert [0.25, 0.25] == third["final_info"]["discount"].tolist()


def test_placeholder_time_steps_of_a_lost_environment_are_marked():
    makers = [functools.partial(CrashingEnv, crash_at=2), CountingEnv]
    pool = ParallelPyEnvironment(
        makers, backend="inline", on_worker_failure=RestartPolicy(max_restarts=3)
    )
    with pool:
        envs = PyToGymnasiumVector(pool)
        envs.reset()
        envs.step(np.zeros(2, np.int32))

        _, _, terminated, truncated, infos = envs.step(np.zeros(2, np.int32))

        assert ([False, False], [True, False]) == (
            terminated.tolist(),
            truncated.tolist(),
        )
        assert [True, False] == infos["repaired"].tolist()


# Resets.


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize(
    ("seed", "alike"), [(7, [7, 8]), ([4, 5], [4, 5]), (np.int64(7), [7, 8])]
)
def test_seeded_rows_match_single_environments(make, seed, alike):
    with make([Catch] * 2) as batch:
        observations, _ = PyToGymnasiumVector(batch).reset(seed=seed)
    for row, own in enumerate(alike):
        single = Catch()
        single.seed(own)
        assert single.reset().observation.tolist() == observations[row].tolist()


@pytest.mark.parametrize("make", BATCHES)
def test_seeds_and_masks_match_sync_vector_env(make):
    mask = {"reset_mask": np.array([True, False])}
    expected = SyncVectorEnv(makers_of_cartpole(), autoreset_mode="Disabled")
    games = [functools.partial(wrapped, one) for one in makers_of_cartpole()]
    with make(games) as batch:
        envs = PyToGymnasiumVector(batch, "Disabled")
        for seed, options in (
            *((3, None), ([None, 9], None), (None, None), ([4, None], None)),
            *((1, None), (5, mask), (None, None)),
        ):
            theirs = expected.reset(seed=seed, options=options and dict(options))
            ours = envs.reset(seed=seed, options=options)
            assert theirs[0].tolist() == ours[0].tolist()
            assert envs.np_random_seed == expected.np_random_seed
        assert [own.random() for own in expected.np_random] == [
            own.random() for own in envs.np_random
        ]


def makers_of_cartpole():
    return makers("CartPole-v1", rows=2)


def test_a_natively_batched_environment_seeds_chosen_rows():
    envs = PyToGymnasiumVector(Catch(batch_size=2))
    envs.reset(seed=[1, 2])

    again, _ = envs.reset(seed=[1, None])

    expected = Catch().reset(seed=1).observation
    assert expected.tolist() == again[0].tolist()
    twice = Catch(seed=2)
    twice.reset()
    assert twice.reset().observation.tolist() == again[1].tolist()


def test_an_environment_without_seeds_is_logged_in_one_line(caplog):
    with pool_of([Discounting] * 2) as pool, caplog.at_level(logging.WARNING):
        PyToGymnasiumVector(pool).reset(seed=7)
    assert [
        "reset(seed=...) has not seeded ParallelPyEnvironment: env 0 raised "
        "NotImplementedError in seed(): Discounting cannot be seeded: override "
        "seed(seed), or give _reset() an argument seed."
    ] == caplog.messages


@pytest.mark.parametrize("make", [*BATCHES, None])
def test_options_apply_to_one_reset(make):
    games = [functools.partial(wrapped, one) for one in makers_of_cartpole()]
    vector_env = SyncVectorEnv(makers_of_cartpole())
    with make(games) if make else GymnasiumVectorWrapper(vector_env) as batch:
        envs = PyToGymnasiumVector(batch)
        options = {"low": 0.1, "high": 0.15}
        assert (envs.reset(options=options)[0] >= 0.1).all()
        assert (envs.reset()[0] < 0.1).all()
        if make is None:
            return
        options["reset_mask"] = np.array([False, True])
        observations, _ = envs.reset(options=options)
        assert [False, True] == (observations >= 0.1).all(axis=1).tolist()
        assert {"low", "high", "reset_mask"} == options.keys()


@pytest.mark.parametrize("make", BATCHES)
def test_options_that_no_environment_accepts_are_logged(make, caplog):
    with make(counting()) as batch, caplog.at_level(logging.WARNING):
        PyToGymnasiumVector(batch).reset(options={"low": 1})

    (told,) = caplog.messages
    assert told.startswith(
        f"reset(options=...) has not reached {type(batch).__name__}:"
    )
    assert (
        "CountingEnv takes no reset options, and was given 'low': its _reset has no "
        "argument `options`"
    ) in told


@pytest.mark.parametrize("make", [*BATCHES, None])
@pytest.mark.parametrize("mode", MODES)
def test_a_mask_leaves_other_rows_alone(mode, make):
    batch = Catch(batch_size=2) if make is None else make([Catch] * 2)
    with batch:
        envs = PyToGymnasiumVector(batch, mode)
        envs.reset(seed=3)
        before, *_ = envs.step(np.array([0, 2]))

        mask = np.array([True, False])
        after, infos = envs.reset(options={"reset_mask": mask})

        assert before[1].tolist() == after[1].tolist()
        assert before[0].tolist() != after[0].tolist()
        assert [True, False] == infos["_episode_steps"].tolist()


@pytest.mark.parametrize("make", BATCHES)
def test_observations_are_copies(make):
    with make(counting(steps=5)) as batch:
        envs = PyToGymnasiumVector(batch, "Disabled")
        envs.reset()
        observations, *_ = envs.step(NO_ACTIONS)
        observations[...] = 77
        after, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert [0, 1] == after.tolist()


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize("mode", MODES)
def test_a_reset_after_the_end_begins_one_episode(mode, make):
    with make([Gated]) as batch:
        envs = PyToGymnasiumVector(batch, mode)
        envs.reset()
        resets = []
        for _ in range(9):
            envs.step(np.zeros(1, np.int64))
        # It has ended; in one of the modes it has begun anew by itself.
        for _ in range(2):
            envs.reset()
            envs.step(np.zeros(1, np.int64))
            resets += envs.get_attr("resets")

    assert [3, 4] == resets if mode == "SameStep" else [2, 3] == resets


# Steps.


def test_ended_rows_need_a_reset(message_of):
    envs = vector("Disabled", make=pool_of)
    envs.reset()
    envs.step(NO_ACTIONS)
    envs.step(NO_ACTIONS)

    assert (
        "PyToGymnasiumVector.step() was called after the episode of rows 0, 1 ended. "
        "Call reset(options={'reset_mask': mask}) for them first; none of the "
        "environments has moved."
    ) == message_of(ResetNeeded, lambda: envs.step(NO_ACTIONS))

    envs.reset(options={"reset_mask": np.array([True, True])})

    assert [11, 11] == envs.step(NO_ACTIONS)[0].tolist()
    envs.close()


@pytest.mark.parametrize("actions", [[0, 1], (0, 1), np.array([0, 1], np.int8)])
def test_actions_may_be_lists_or_have_other_dtypes(actions, message_of):
    envs = vector()
    envs.reset()
    assert [1, 1] == envs.step(actions)[0].tolist()
    assert message_of(SpecError, lambda: envs.step(np.zeros(3, int))).startswith(
        "PyToGymnasiumVector.step() was given an action that does not fit its spec.\n"
    )


def test_padded_batches_are_refused_under_next_step():
    makers = [lambda: FixedLength(CountingEnv(2, np.int64), 4)]
    with pytest.raises(ValueError, match="which repeats the LAST"):
        PyToGymnasiumVector(batch_of(makers))
    envs = PyToGymnasiumVector(batch_of(makers), "SameStep")
    envs.reset()
    ends = [bool(envs.step(np.zeros(1, np.int64))[2][0]) for _ in range(4)]
    assert [False, True, False, True] == ends


# One thing after the other.


def test_step_wait_and_reset_wait_return_the_results(gated):
    env, envs = gated

    envs.reset_async(seed=3)
    assert [0] == envs.reset_wait()[0].tolist()

    actions = np.zeros(1, np.int64)
    env.gate.clear()
    envs.step_async(actions)
    actions[:] = 1
    env.gate.set()

    assert [1] == envs.step_wait(timeout=60.0)[0].tolist()

    envs.call_async("say", "hello")
    assert ("hello",) == envs.call_wait()


def test_a_wait_that_times_out_loses_nothing(late, message_of):
    env, envs = late
    assert (
        "step_wait() has waited for 0 s without a result. The call that step_async() "
        "began continues: call step_wait() again, or reset(), which abandons it."
    ) == message_of(multiprocessing.TimeoutError, lambda: envs.step_wait(timeout=0))
    assert (
        "step() was called while step_async() is pending. Call step_wait() first, "
        "or reset(), which abandons it."
    ) == message_of(AlreadyPendingCallError, lambda: envs.step(np.zeros(1, np.int64)))
    env.gate.set()
    assert [1] == envs.step_wait()[0].tolist()
    assert [2] == envs.step(np.zeros(1, np.int64))[0].tolist()


@pytest.mark.parametrize("mode", MODES)
def test_step_async_starts_the_workers_without_a_thread(mode):
    def played(begins):
        pool = ParallelPyEnvironment(counting(), num_workers=1, backend="thread")
        envs = PyToGymnasiumVector(pool, mode)
        results = [envs.reset(seed=1)]
        threads = set(threading.enumerate())
        for _ in range(5):
            if begins:
                envs.step_async(NO_ACTIONS)
                # One of an earlier test may end in the meantime.
                assert set(threading.enumerate()) <= threads
                results.append(envs.step_wait(timeout=60.0))
            else:
                results.append(envs.step(NO_ACTIONS))
            ended = results[-1][2] | results[-1][3]
            if mode == "Disabled" and ended.any():
                results.append(envs.reset(options={"reset_mask": ended}))
        envs.close()
        return results

    assert repr(played(begins=False)) == repr(played(begins=True))


def test_step_wait_raises_the_error_of_an_environment():
    env = Gated()
    env._step = lambda action: 1 / 0
    pool = ParallelPyEnvironment([lambda: env], backend="thread")
    envs = PyToGymnasiumVector(pool)
    envs.reset()
    envs.step_async(np.zeros(1, np.int64))

    with pytest.raises(WorkerError, match="ZeroDivisionError"):
        envs.step_wait()
    envs.close()


@pytest.mark.parametrize("begin", ["reset", "reset_async"])
def test_a_reset_abandons_a_late_call(late, begin):
    env, envs = late
    opener = threading.Thread(target=env.gate.set)
    if begin == "reset":
        opener.start()
        observations, _ = envs.reset()
    else:
        envs.reset_async()
        opener.start()
        observations, _ = envs.reset_wait()
    opener.join()
    # One reset more, and nothing of the step.
    assert ([0], 2) == (observations.tolist(), env.resets)
    assert [1] == envs.step(np.zeros(1, np.int64))[0].tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda envs: envs.step(np.zeros(1, np.int64)),
        lambda envs: envs.step_async(np.zeros(1, np.int64)),
        lambda envs: envs.reset(),
        lambda envs: envs.reset_async(),
        lambda envs: envs.call("say", "hello"),
        lambda envs: envs.call_async("say", "hello"),
        lambda envs: envs.get_attr("resets"),
        lambda envs: envs.set_attr("resets", 3),
        lambda envs: envs.render(),
    ],
)
def test_a_call_during_a_pending_one_is_refused(gated, call):
    _, envs = gated
    envs.reset()
    envs.step_async(np.zeros(1, np.int64))
    with pytest.raises(AlreadyPendingCallError, match=r"Call step_wait\(\) first\.$"):
        call(envs)
    envs.step_wait()


def test_step_wait_raises_the_error_of_a_batch():
    class Failing(CountingEnv):
        def _step(self, action):
            raise ValueError("Too hot.")

    envs = PyToGymnasiumVector(batch_of([functools.partial(Failing, 2, np.int64)] * 2))
    envs.reset()
    envs.step_async(NO_ACTIONS)

    with pytest.raises(ValueError, match=r"^Too hot\."):
        envs.step_wait()

    assert [0, 0] == envs.reset()[0].tolist()


# The end.


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("reset", lambda e: e.reset()),
        ("step", lambda e: e.step(NO_ACTIONS)),
        ("step_wait", lambda e: e.step_wait()),
        ("call", lambda e: e.call("batched")),
    ],
)
def test_a_closed_vector_environment_refuses_calls(name, call, message_of):
    envs = vector()
    envs.reset()
    envs.close()
    envs.close()
    assert (
        f"PyToGymnasiumVector(BatchedPyEnvironment): {name}() was called after close()."
    ) == message_of(ClosedEnvironmentError, lambda: call(envs))


# What Gymnasium says.
PENDING = "Calling `close` while waiting for a pending call to `step` to complete"


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("step", functools.partial(AsyncVectorEnv, context="spawn")),
        *(
            (kind, functools.partial(vectorize, backend="inline"))
            for kind in ("reset", "step", "call")
        ),
    ],
    ids=["Gymnasium", "reset", "step", "call"],
)
def test_close_warns_of_a_pending_call_like_gymnasium(kind, make, recwarn):
    envs = make([functools.partial(gymnasium.make, "CartPole-v1")])
    envs.reset()
    begin = {
        "reset": envs.reset_async,
        "step": lambda: envs.step_async(np.zeros(1, np.int64)),
        "call": lambda: envs.call_async("render_mode"),
    }
    begin[kind]()
    envs.close()
    expected = PENDING.replace("`step`", f"`{kind}`")
    assert 1 == sum(expected in str(warning.message) for warning in recwarn)


def test_close_does_not_warn_of_a_call_that_timed_out(late):
    _, envs = late
    envs.close(timeout=0.0)  # No warning: they are errors here.
    assert envs.closed


def test_np_random_has_a_generator_for_each_row():
    envs = PyToGymnasiumVector(Catch(batch_size=3))
    unseeded = envs.np_random_seed
    envs.reset(seed=7)
    numbers = [own.random() for own in envs.np_random]
    envs.reset(seed=[1, 8, 3])
    assert len(unseeded) == 3
    assert numbers == [np.random.default_rng(seed).random() for seed in (7, 8, 9)]
    assert envs.np_random_seed == (1, 8, 3)


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"terminate": True}])
def test_close_waits_at_most_for_its_timeout(gated, options):
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))
    with pytest.warns(UserWarning, match=PENDING):
        envs.close(**options)
    assert envs.closed


def test_close_waits_for_processes_within_its_timeout(nothing_left_behind):
    pool = ParallelPyEnvironment(counting(), num_workers=1)
    envs = PyToGymnasiumVector(pool)
    envs.reset()
    envs.step_async(NO_ACTIONS)
    with pytest.warns(UserWarning, match=PENDING):
        envs.close(timeout=60.0)
    assert envs.closed


# Environments.


@pytest.mark.parametrize("make", BATCHES)
def test_attributes_and_methods_reach_the_environments(make):
    makers = [functools.partial(wrapped, one) for one in makers_of_cartpole()]
    with make(makers) as batch:
        envs = PyToGymnasiumVector(batch)
        envs.set_attr("gravity", [1.5, 2.5])
        assert (1.5, 2.5) == envs.get_attr("gravity") == envs.call("gravity")
        assert (True, True) == envs.call("has_wrapper_attr", "gravity")


class Levelled(CountingEnv):
    """Has an attribute, and a method that tells it."""

    level = 1

    def told(self, more=0):
        return self.level + more


@pytest.mark.parametrize(
    "make",
    [
        *BATCHES,
        lambda makers: TimeLimit(ParallelPyEnvironment(makers, backend="inline"), 9),
    ],
)
def test_attributes_and_methods_reach_environments_of_envkit(make):
    makers = [Levelled, lambda: TimeLimit(Levelled(), 5)]
    with make(makers) as batch:
        envs = PyToGymnasiumVector(batch)
        envs.set_attr("level", [2, 3])
        assert (2, 3) == envs.get_attr("level") == envs.call("level")
        assert ((2, 3), (9, 10)) == (envs.call("told"), envs.call("told", more=7))
        envs.set_attr("level", 5)
        envs.set_attr("mark", ["a", "b"])
        assert ((5, 5), ("a", "b")) == (envs.call("told"), envs.get_attr("mark"))


@pytest.mark.parametrize("make", BATCHES)
def test_render_returns_a_picture_for_each_row(make):
    with make([Catch] * 2) as batch:
        envs = PyToGymnasiumVector(batch, render_mode="rgb_array")
        envs.reset()
        pictures = envs.render()
        assert (tuple, 2, 3) == (type(pictures), len(pictures), pictures[0].shape[2])
        assert ["rgb_array", "ansi"] == envs.metadata["render_modes"]


@pytest.mark.parametrize("make", BATCHES)
def test_the_render_mode_comes_from_the_environments(make):
    def filmed():
        return gymnasium.make("CartPole-v1", render_mode="rgb_array")

    with make([functools.partial(wrapped, filmed)] * 2) as batch:
        envs = PyToGymnasiumVector(batch)
        envs.reset()

        assert "rgb_array" == envs.render_mode
        assert 50 == envs.metadata["render_fps"]
        assert (400, 600, 3) == envs.render()[1].shape


class Together(CartPole):
    """Begins episodes in all rows or in none."""

    resets_rows = False


def begun(batch, mask):
    envs = PyToGymnasiumVector(batch)
    envs.reset()
    return envs.reset(options={"reset_mask": mask})


def shared_stream():
    move = BoundedArraySpec((), np.int64, 0, 1)
    return RandomPyEnvironment(ArraySpec((), np.float32), move, batch_size=2)


NO_MASK = "reset_mask must be a boolean array "
FIRST_RESET = "PyToGymnasiumVector(BatchedPyEnvironment): "


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: PyToGymnasiumVector(Catch()),
            ValueError,
            "PyToGymnasiumVector was given Catch, which is a single environment: "
            "PyToGymnasium takes those, and BatchedPyEnvironment([env]) is a batch.",
        ),
        (
            lambda: PyToGymnasiumVector([Catch()]),
            TypeError,
            "PyToGymnasiumVector was given a list of 1 element, not an environment.",
        ),
        (
            lambda: PyToGymnasiumVector(Catch),
            TypeError,
            "PyToGymnasiumVector was given the class Catch, not an environment. Did "
            "you mean Catch()?",
        ),
        (
            lambda: vector(infos="some"),
            ValueError,
            "infos must be one of 'all', 'final', 'none', got 'some'.",
        ),
        (
            lambda: begun(batch_of(counting()), [True, False]),
            TypeError,
            f"{NO_MASK}with one element for each row, got a list of 2 elements.",
        ),
        (
            lambda: begun(batch_of(counting()), np.ones(2)),
            TypeError,
            f"{NO_MASK}with one element for each row, got array of shape (2,), dtype "
            "float64, values 1.0 … 1.0.",
        ),
        (
            lambda: begun(batch_of(counting()), np.ones(3, bool)),
            ValueError,
            f"{NO_MASK}of shape (2,), true for the rows to begin, got array of shape "
            "(3,), dtype bool, values True … True.",
        ),
        (
            lambda: begun(batch_of(counting()), np.zeros(2, bool)),
            ValueError,
            f"{NO_MASK}of shape (2,), true for the rows to begin, got a mask without "
            "a true element.",
        ),
        (
            lambda: begun(Together(batch_size=2), np.array([True, False])),
            ValueError,
            "reset_mask leaves out some rows, and Together cannot begin episodes in "
            "some rows alone (resets_rows).",
        ),
        (
            lambda: vector().reset(options={"reset_mask": np.array([True, False])}),
            ResetNeeded,
            f"{FIRST_RESET}reset_mask was given before the first reset(): the other "
            "rows have no episode yet. Call reset() without it first.",
        ),
        (
            lambda: vector().step(NO_ACTIONS),
            ResetNeeded,
            f"{FIRST_RESET}step() was called before the first reset(). Call reset() "
            "first.",
        ),
        (
            lambda: vector().step_async(NO_ACTIONS),
            ResetNeeded,
            f"{FIRST_RESET}step_async() was called before the first reset(). Call "
            "reset() first.",
        ),
        (
            lambda: PyToGymnasiumVector(shared_stream()).reset(seed=[None, 3]),
            ValueError,
            "1 seed for 2 rows of RandomPyEnvironment, which seeds all of them or "
            "none.",
        ),
        (
            lambda: vector().reset(seed=[1, 2, 3]),
            ValueError,
            "3 seeds for 2 environments. Pass one seed for each environment, or one "
            "integer, to which each adds its number.",
        ),
        *(
            (
                lambda kind=kind: getattr(vector(), f"{kind}_wait")(),
                NoAsyncCallError,
                f"{kind}_wait() was called without a {kind}_async() before it.",
            )
            for kind in ("step", "reset", "call")
        ),
        (
            lambda: vector().seed,
            AttributeError,
            "'PyToGymnasiumVector' object has no attribute 'seed'; wrapped_env() has.",
        ),
        (
            lambda: copy.deepcopy(vector()),
            TypeError,
            "PyToGymnasiumVector cannot be copied or pickled.",
        ),
        (
            vector().render,
            NotImplementedError,
            f"{FIRST_RESET[:-2]} was made without a render_mode, so it does not "
            'render. Make it with render_mode="rgb_array".',
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


NEXT, SAME, DISABLED = AutoReset.NEXT_STEP, AutoReset.SAME_STEP, AutoReset.DISABLED
FIRST, MID, LAST = (int(kind) for kind in (StepType.FIRST, StepType.MID, StepType.LAST))
# Rows whose episodes have different lengths.
LENGTHS = (2, 3)


class Counters(PyEnvironment):
    """Counts the steps of rows, written as one batch; can no more than it has to."""

    autoreset = NEXT

    def __init__(self, lengths=LENGTHS):
        super().__init__()
        self._lengths = np.array(lengths)

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return len(self._lengths)

    def observation_spec(self):
        return BoundedArraySpec((), np.int64, 0, 99)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        self._counts = np.zeros_like(self._lengths)
        return self._time_step(self._counts * FIRST)

    def _step(self, action):
        begun = self._counts == self._lengths
        self._counts = np.where(begun, 0, self._counts + 1)
        return self._time_step(self._kinds())

    def _kinds(self):
        kinds = np.where(self._counts == self._lengths, LAST, MID)
        return np.where(self._counts == 0, FIRST, kinds)

    def _time_step(self, kinds):
        zeros = np.zeros(len(kinds), np.float32)
        return TimeStep(kinds.astype(np.int32), zeros, zeros + 1, self._counts.copy())


class Leaving(Counters):
    """Begins in some rows alone, and leaves rows that ended as they are."""

    autoreset = DISABLED

    def _step(self, action):
        assert not (self._counts == self._lengths).any()
        return super()._step(action)

    def _reset_rows(self, mask):
        self._counts = np.where(mask, 0, self._counts)
        return self._time_step(self._kinds())


class Holding(Leaving):
    """Holds rows, too."""

    def _step_rows(self, action, stepping, beginning):
        self._counts = np.where(stepping, self._counts + 1, self._counts)
        self._counts = np.where(beginning, 0, self._counts)
        return self._time_step(self._kinds())


class Rushing(Counters):
    """Has begun anew before anybody asks."""

    autoreset = SAME


def counters(lengths=LENGTHS):
    return [lambda n=n: CountingEnv(n, np.int64) for n in lengths]


def batch(lengths=LENGTHS):
    envs = [make() for make in counters(lengths)]
    return BatchedPyEnvironment(envs, multithreading=False)


def pool(lengths=LENGTHS):
    return ParallelPyEnvironment(counters(lengths), backend="inline")


def play(env, mode, steps):
    """Returns what each step shows, and where the rows stand afterwards."""
    ways = ResetMode(env, mode, "This test")
    env.reset()
    ended = np.zeros(env.batch_size, bool)
    shown, standing = [], []
    for _ in range(steps):
        time_step = ways.step(np.zeros(env.batch_size, np.int64), ended)
        ended = np.asarray(time_step.step_type) == LAST
        shown.append((time_step.step_type % 9).tolist())
        if mode is SAME and ended.any():
            time_step = ways.begin(ended)
            ended = np.zeros_like(ended)
        elif mode is DISABLED and ended.any():
            time_step = env.reset(ended)
            ended = np.zeros_like(ended)
        standing.append((np.asarray(time_step.observation) % 10).tolist())
    env.close()
    return shown, standing


AT_ONCE = (
    [[MID, MID], [LAST, MID], [MID, LAST], [LAST, MID], [MID, MID], [LAST, LAST]],
    [[1, 1], [0, 2], [1, 0], [0, 1], [1, 2], [0, 0]],
)
LATER = (
    [[MID, MID], [LAST, MID], [FIRST, LAST], [MID, FIRST], [LAST, MID], [FIRST, MID]],
    [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1], [0, 2]],
)


@pytest.mark.parametrize(
    "make", [batch, pool, Leaving, Holding], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("mode", [SAME, DISABLED])
def test_same_step_begins_the_next_episode_in_the_ending_step(make, mode):
    assert AT_ONCE == play(make(), mode, steps=6)


@pytest.mark.parametrize(
    "make", [batch, pool, Counters, Holding], ids=lambda f: f.__name__
)
def test_next_step_begins_the_next_episode_in_the_next_step(make):
    assert LATER == play(make(), NEXT, steps=6)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
@pytest.mark.parametrize(
    "make", [batch, pool, Counters, Leaving], ids=lambda f: f.__name__
)
def test_a_batch_of_one_row_supports_all_modes(make, mode):
    shown, standing = play(make((2,)), mode, steps=4)

    if mode is NEXT:
        assert ([[MID], [LAST], [FIRST], [MID]], [[1], [2], [0], [1]]) == (
            shown,
            standing,
        )
    else:
        assert ([[MID], [LAST]] * 2, [[1], [0]] * 2) == (shown, standing)


def test_a_wrapped_batch_supports_the_modes_of_the_batch():
    assert AT_ONCE == play(TimeLimit(batch(), 9), SAME, steps=6)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
def test_a_pool_switches_to_the_order(mode):
    with pool() as env:
        ResetMode(env, mode, "This test")
        assert mode is env.autoreset


def test_the_order_is_set_on_the_pool_inside_a_wrapper():
    with pool() as inner:
        wrapped = TimeLimit(inner, 9)
        ResetMode(wrapped, SAME, "This test")
        assert (NEXT, False) == (inner.autoreset, "autoreset" in vars(wrapped))


@pytest.mark.parametrize(
    ("make", "mode", "why"),
    [
        (
            Counters,
            SAME,
            "Counters the autoreset_mode 'SameStep': it cannot begin episodes in some "
            "rows alone (resets_rows). Its own is 'NextStep'.",
        ),
        (
            Counters,
            DISABLED,
            "Counters the autoreset_mode 'Disabled': it cannot begin episodes in some "
            "rows alone (resets_rows). Its own is 'NextStep'.",
        ),
        (
            Leaving,
            NEXT,
            "Leaving the autoreset_mode 'NextStep': its own order is DISABLED, and it "
            "cannot leave rows where they are while others step (holds_rows). Its own "
            "is 'Disabled'.",
        ),
        (
            Rushing,
            NEXT,
            "Rushing the autoreset_mode 'NextStep': its own order is SAME_STEP, "
            "which leaves the end of an episode at once. Its own is 'SameStep'.",
        ),
        (
            Rushing,
            DISABLED,
            "Rushing the autoreset_mode 'Disabled': its own order is SAME_STEP, "
            "which leaves the end of an episode at once. Its own is 'SameStep'.",
        ),
    ],
)
def test_unsupported_modes_are_refused(make, mode, why, message_of):
    assert (
        f"Adapter cannot give {why} A ParallelPyEnvironment, and a "
        "BatchedPyEnvironment of single environments, support all modes."
    ) == message_of(ValueError, lambda: ResetMode(make(), mode, "Adapter"))


def test_a_padded_batch_is_refused(message_of):
    env = FixedLength(batch(), 5)
    assert (
        "Adapter was given FixedLength, which repeats the LAST of an episode to give "
        "all episodes the same length. In Gymnasium an episode ends once. Leave the "
        "padding off, or use autoreset_mode 'SameStep' or 'Disabled'."
    ) == message_of(ValueError, lambda: ResetMode(env, NEXT, "Adapter"))


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        ("NextStep", NEXT),
        ("same_step", SAME),
        (gymnasium.vector.AutoresetMode.DISABLED, DISABLED),
        (AutoReset.DISABLED, DISABLED),
    ],
)
def test_modes_may_be_words_or_enumerations(mode, order):
    assert order is as_order(mode)


def test_unknown_modes_are_refused(message_of):
    assert (
        "autoreset_mode must be 'NextStep', 'SameStep' or 'Disabled', or the "
        "AutoresetMode of that name, got the string 'later'."
    ) == message_of(ValueError, lambda: as_order("later"))
