"""A batch of envkit is a vector environment, and does what Gymnasium's own do."""

from __future__ import annotations

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
    restart,
    transition,
    truncation,
)
from envkit.adapters import GymnasiumVectorWrapper, GymnasiumWrapper
from envkit.adapters.py_to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.vectorized_envs import vectorize
from envkit.autoreset import AutoReset
from envkit.envs import Bandit, CartPole, Catch
from envkit.errors import SpecError
from envkit.testing import CountingEnv, CrashingEnv, NestedCountingEnv
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


@pytest.fixture
def gated():
    """Makes a vector environment of one with a gate, and opens the gate at last."""
    env = Gated()
    yield env, PyToGymnasiumVector(BatchedPyEnvironment([env]))
    env.gate.set()


# The same as Gymnasium's own.


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_everything_is_as_with_gymnasiums_own(name, mode, make):
    expected = SyncVectorEnv(makers(name), autoreset_mode=mode)
    envs = make([functools.partial(wrapped, one) for one in makers(name)])

    with envs:
        assert_same_game(expected, PyToGymnasiumVector(envs, mode), steps=40)


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_as_with_gymnasiums_own_in_processes(mode, nothing_left_behind):
    name = "CartPole-v1"
    pool = ParallelPyEnvironment(
        [functools.partial(wrapped, one) for one in makers(name)], num_workers=2
    )
    envs = PyToGymnasiumVector(pool, mode)

    assert_same_game(SyncVectorEnv(makers(name), autoreset_mode=mode), envs, steps=30)
    envs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", GAMES)
def test_vector_environments_come_back_as_they_were(name, mode):
    def make():
        return SyncVectorEnv(makers(name), autoreset_mode=mode)

    ours = GymnasiumVectorWrapper(make(), reward_dtype=np.float64)

    assert_same_game(make(), PyToGymnasiumVector(ours, mode), steps=40)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_infos_of_some_rows_come_back_as_they_were(mode):
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
def test_the_modes_give_the_same_transitions(make):
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
def test_gymnasiums_statistics_work_on_top(mode, make):
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


def test_it_says_what_it_is():
    envs = PyToGymnasiumVector(Catch(batch_size=3), "SameStep")

    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert "PyToGymnasiumVector(num_envs=3)" == repr(envs)
    assert (3, (3, 10, 5), (10, 5)) == (
        envs.num_envs,
        envs.observation_space.shape,
        envs.single_observation_space.shape,
    )
    assert AutoresetMode.SAME_STEP is envs.metadata["autoreset_mode"]
    assert (None, False, envs) == (envs.spec, envs.closed, envs.unwrapped)
    assert 3 == envs.wrapped_env().batch_size


@pytest.mark.parametrize("make", [CartPole, Catch, Bandit])
@pytest.mark.parametrize("mode", MODES)
def test_built_in_batches_can_all_modes(make, mode):
    envs = PyToGymnasiumVector(make(batch_size=3), mode)
    observations, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    for _ in range(30):
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
    makers = [functools.partial(CartPole, batch_size=2)] * 2
    with ParallelPyEnvironment(makers, backend="inline") as pool:
        envs = PyToGymnasiumVector(pool, "SameStep")
        _, infos = envs.reset(seed=3)

        assert [0] * 4 == infos["episode_steps"].tolist()

        for _ in range(12):
            *_, terminated, _, infos = envs.step(np.ones(4, np.int64))
            expected = np.where(terminated, 0, infos["episode_steps"])
            assert expected.tolist() == infos["episode_steps"].tolist()
        assert (2,) * 4 == envs.get_attr("batch_size")


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
def test_infos_are_looked_at_as_it_was_asked_for(infos, mode, ages, make):
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


def test_infos_that_are_not_alike_come_from_a_pool_of_batches():
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


def test_the_infos_of_ends_are_read_from_a_pool_of_batches():
    makers = [functools.partial(CartPole, batch_size=2)] * 2
    with ParallelPyEnvironment(makers, backend="inline") as pool:
        envs = PyToGymnasiumVector(pool, infos="final")
        envs.reset(seed=3)
        while True:
            *_, terminated, _, infos = envs.step(np.ones(4, np.int64))
            if terminated.any():
                break

        assert (infos["episode_steps"][terminated] > 5).all()


def test_only_the_environments_that_are_concerned_are_asked():
    makers = [functools.partial(Telling, 1), functools.partial(Telling, 9)]
    with pool_of(makers) as pool:
        envs = PyToGymnasiumVector(pool, infos="final")
        envs.reset()
        Telling.asked = 0

        _, _, _, _, infos = envs.step(NO_ACTIONS)

        assert (1, [1, 0], [True, False]) == (
            Telling.asked,
            infos["age"].tolist(),
            infos["_age"].tolist(),
        )


class Overheard(ParallelPyEnvironment):
    """A pool that writes down which environments it asks for their infos."""

    def __init__(self, constructors):
        self.asked = []
        super().__init__(constructors, backend="inline")

    def _ask(self, method, envs, values=None):
        if method in {"get_info", "call"}:
            self.asked.append(envs)
        return super()._ask(method, envs, values)


@pytest.mark.parametrize("infos", ["all", "final"])
@pytest.mark.parametrize("mode", MODES)
def test_nobody_is_asked_who_has_nothing_to_say(mode, infos):
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


def test_only_those_are_asked_who_have_something_to_say():
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


def test_environments_without_infos_do_not_keep_others_from_having_some():
    class Silent(CountingEnv):
        def get_info(self):
            raise NotImplementedError("Nothing to say.")

    makers = [functools.partial(Silent, 9, np.int64), functools.partial(Telling, 9)]
    with pool_of(makers) as pool:
        envs = PyToGymnasiumVector(pool)
        envs.reset()
        infos = envs.step(NO_ACTIONS)[4]

    assert ([0, 1], [False, True]) == (infos["age"].tolist(), infos["_age"].tolist())


@pytest.mark.parametrize("make", [*BATCHES, None])
@pytest.mark.parametrize("mode", MODES)
def test_infos_of_ends_are_not_those_of_other_rows(mode, make):
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


def test_the_info_of_an_end_is_not_written_to_by_the_reset():
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


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize("mode", MODES)
def test_environments_without_infos_have_none(mode, make):
    class Silent(CountingEnv):
        def get_info(self):
            raise NotImplementedError("Nothing to say.")

    with make([functools.partial(Silent, 1, np.int64)] * 2) as batch:
        envs = PyToGymnasiumVector(batch, mode)

        assert {} == envs.reset()[1]
        assert set() == envs.step(NO_ACTIONS)[4].keys() - {
            "final_obs",
            "_final_obs",
            "final_info",
            "_final_info",
        }


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
def test_discounts_that_flags_do_not_tell_are_in_the_infos(make):
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


def test_what_was_made_up_for_an_environment_that_is_gone_is_marked():
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
def test_seeds_are_those_of_single_environments(make, seed, alike):
    with make([Catch] * 2) as batch:
        observations, _ = PyToGymnasiumVector(batch).reset(seed=seed)

    for row, own in enumerate(alike):
        single = Catch()
        single.seed(own)
        assert single.reset().observation.tolist() == observations[row].tolist()


@pytest.mark.parametrize("make", BATCHES)
def test_rows_without_a_seed_go_on_with_their_own_generators(make):
    makers = [functools.partial(wrapped, one) for one in makers_of_cartpole()]
    expected = SyncVectorEnv(makers_of_cartpole())
    with make(makers) as batch:
        envs = PyToGymnasiumVector(batch)
        for seed in (3, [None, 9], None, [4, None]):
            theirs, ours = expected.reset(seed=seed)[0], envs.reset(seed=seed)[0]

            assert theirs.tolist() == ours.tolist()


def makers_of_cartpole():
    return makers("CartPole-v1", rows=2)


@pytest.mark.parametrize("make", BATCHES)
def test_only_masked_rows_are_seeded(make):
    makers = [functools.partial(wrapped, one) for one in makers_of_cartpole()]
    expected = SyncVectorEnv(makers_of_cartpole(), autoreset_mode="Disabled")
    with make(makers) as batch:
        envs = PyToGymnasiumVector(batch, "Disabled")
        mask = {"reset_mask": np.array([True, False])}
        for seed, options in ((1, None), (5, mask), (None, None)):
            theirs = expected.reset(seed=seed, options=options and dict(options))
            ours = envs.reset(seed=seed, options=options)

            assert theirs[0].tolist() == ours[0].tolist()


def test_one_object_seeds_some_rows_if_it_can():
    envs = PyToGymnasiumVector(Catch(batch_size=2))
    envs.reset(seed=[1, 2])

    again, _ = envs.reset(seed=[1, None])

    expected = Catch().reset(seed=1).observation
    assert expected.tolist() == again[0].tolist()
    twice = Catch(seed=2)
    twice.reset()
    assert twice.reset().observation.tolist() == again[1].tolist()


def test_one_object_whose_rows_share_a_stream_seeds_all_of_them_or_none(message_of):
    spec = ArraySpec((), np.float32)
    move = BoundedArraySpec((), np.int64, 0, 1)
    envs = PyToGymnasiumVector(RandomPyEnvironment(spec, move, batch_size=2))

    assert (
        "1 seed for 2 rows of RandomPyEnvironment, which seeds all of them or none."
    ) == message_of(ValueError, lambda: envs.reset(seed=[None, 3]))


def test_what_cannot_be_seeded_is_told_of_in_one_line(caplog):
    with pool_of([Discounting] * 2) as pool, caplog.at_level(logging.WARNING):
        PyToGymnasiumVector(pool).reset(seed=7)

    assert [
        "reset(seed=...) has not seeded ParallelPyEnvironment: env 0 raised "
        "NotImplementedError: Discounting cannot be seeded in seed()."
    ] == caplog.messages


@pytest.mark.parametrize("make", BATCHES)
def test_options_reach_the_masked_rows_once(make):
    makers = [functools.partial(wrapped, one) for one in makers_of_cartpole()]
    with make(makers) as batch:
        envs = PyToGymnasiumVector(batch)
        options = {"low": 0.1, "high": 0.15}

        assert (envs.reset(options=options)[0] >= 0.1).all()
        assert (envs.reset()[0] < 0.1).all()

        options["reset_mask"] = np.array([False, True])
        observations, _ = envs.reset(options=options)

        assert [False, True] == (observations >= 0.1).all(axis=1).tolist()
        assert {"low", "high", "reset_mask"} == options.keys()


def test_options_reach_a_batch_once():
    vector_env = SyncVectorEnv(makers_of_cartpole())
    envs = PyToGymnasiumVector(GymnasiumVectorWrapper(vector_env))

    assert (envs.reset(options={"low": 0.1, "high": 0.15})[0] >= 0.1).all()
    assert (envs.reset()[0] < 0.1).all()


@pytest.mark.parametrize("make", BATCHES)
def test_options_that_reach_nobody_are_told_of(make, caplog):
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
def test_rows_outside_the_mask_stay_where_they_are(mode, make):
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
def test_what_the_user_does_to_observations_does_not_come_back(make):
    with make(counting(steps=5)) as batch:
        envs = PyToGymnasiumVector(batch, "Disabled")
        envs.reset()
        observations, *_ = envs.step(NO_ACTIONS)
        observations[...] = 77

        after, _ = envs.reset(options={"reset_mask": np.array([True, False])})

    assert [0, 1] == after.tolist()


@pytest.mark.parametrize("make", BATCHES)
@pytest.mark.parametrize("mode", MODES)
def test_a_reset_right_after_the_end_begins_one_episode_not_two(mode, make):
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


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        (
            [True, False],
            TypeError,
            "reset_mask is a list of 2 elements; it is a boolean array with one "
            "element for each row.",
        ),
        (
            np.ones(2),
            TypeError,
            "reset_mask is array of shape (2,), dtype float64, values 1.0 … 1.0; it is "
            "a boolean array with one element for each row.",
        ),
        (
            np.ones(3, bool),
            ValueError,
            "reset_mask is array of shape (3,), dtype bool, values True … True; it is "
            "a boolean array of shape (2,) and true for the rows to begin.",
        ),
        (
            np.zeros(2, bool),
            ValueError,
            "reset_mask is true nowhere; it is a boolean array of shape (2,) and true "
            "for the rows to begin.",
        ),
    ],
)
def test_masks_that_are_none_are_refused(mask, error, text, message_of):
    envs = vector()
    envs.reset()

    assert text == message_of(error, lambda: envs.reset(options={"reset_mask": mask}))


def test_the_first_reset_is_for_all(message_of):
    mask = np.array([True, False])

    assert (
        "PyToGymnasiumVector(BatchedPyEnvironment): reset_mask was given before the "
        "first reset(): the other rows have no episode yet. Call reset() without it "
        "first."
    ) == message_of(ResetNeeded, lambda: vector().reset(options={"reset_mask": mask}))
    assert vector().reset(options={"reset_mask": mask | True})


def test_a_batch_that_moves_together_resets_together(message_of):
    class Together(CartPole):
        resets_rows = False

    envs = PyToGymnasiumVector(Together(batch_size=2))
    envs.reset()
    mask = np.array([True, False])

    assert (
        "reset_mask leaves out some rows, and Together cannot begin episodes in some "
        "rows alone (resets_rows)."
    ) == message_of(ValueError, lambda: envs.reset(options={"reset_mask": mask}))


def test_there_is_a_seed_for_each_row(message_of):
    assert (
        "3 seeds for 2 environments. Pass one seed for each environment, or one "
        "integer, to which each adds its number."
    ) == message_of(ValueError, lambda: vector().reset(seed=[1, 2, 3]))


# Steps.


def test_rows_that_have_ended_wait_for_their_reset(message_of):
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


def test_a_step_before_the_first_reset_is_refused(message_of):
    text = (
        "PyToGymnasiumVector(BatchedPyEnvironment): {}() was called before the first "
        "reset(). Call it first."
    )
    envs = vector()

    assert text.format("step") == message_of(ResetNeeded, lambda: envs.step(NO_ACTIONS))
    assert text.format("step_async") == message_of(
        ResetNeeded, lambda: envs.step_async(NO_ACTIONS)
    )


@pytest.mark.parametrize("actions", [[0, 1], (0, 1), np.array([0, 1], np.int8)])
def test_actions_may_be_lists_and_of_other_dtypes(actions):
    envs = vector()
    envs.reset()

    assert [1, 1] == envs.step(actions)[0].tolist()


def test_actions_for_other_rows_are_refused(message_of):
    envs = vector()
    envs.reset()

    assert (
        "PyToGymnasiumVector.step() was given an action that does not fit its spec."
        == message_of(SpecError, lambda: envs.step(np.zeros(3, int))).splitlines()[0]
    )


def test_batches_that_pad_are_refused_where_an_episode_would_end_twice():
    makers = [lambda: FixedLength(CountingEnv(2, np.int64), 4)]

    with pytest.raises(ValueError, match="which repeats the LAST"):
        PyToGymnasiumVector(batch_of(makers))

    envs = PyToGymnasiumVector(batch_of(makers), "SameStep")
    envs.reset()
    ends = [bool(envs.step(np.zeros(1, np.int64))[2][0]) for _ in range(4)]

    assert [False, True, False, True] == ends


# One thing after the other.


def test_what_was_begun_is_waited_for(gated):
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


def test_a_wait_in_vain_loses_nothing(gated, message_of):
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))

    assert (
        "step_wait() has waited for 0 s in vain. What step_async() began goes on: call "
        "step_wait() again, or reset(), which lets go of it."
    ) == message_of(multiprocessing.TimeoutError, lambda: envs.step_wait(timeout=0))

    env.gate.set()

    assert [1] == envs.step_wait()[0].tolist()
    assert [2] == envs.step(np.zeros(1, np.int64))[0].tolist()


def test_a_step_after_a_wait_in_vain_is_refused(gated, message_of):
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0)

    assert (
        "step() was called while step_async() is under way. Call step_wait() first, or "
        "reset(), which lets go of it."
    ) == message_of(AlreadyPendingCallError, lambda: envs.step(np.zeros(1, np.int64)))


@pytest.mark.parametrize("begin", ["reset", "reset_async"])
def test_a_reset_lets_go_of_what_is_late(gated, begin):
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0)
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
def test_one_thing_is_done_after_the_other(gated, call):
    _, envs = gated
    envs.reset()
    envs.step_async(np.zeros(1, np.int64))

    with pytest.raises(AlreadyPendingCallError, match=r"Call step_wait\(\) first\.$"):
        call(envs)

    envs.step_wait()


@pytest.mark.parametrize("kind", ["step", "reset", "call"])
def test_a_wait_for_nothing_is_refused(kind, message_of):
    envs = vector()

    assert (
        f"{kind}_wait() was called without a {kind}_async() before it."
    ) == message_of(NoAsyncCallError, getattr(envs, f"{kind}_wait"))


def test_what_a_step_raises_is_raised_by_the_wait():
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


def test_it_is_closed_once(message_of):
    envs = vector()
    envs.reset()

    envs.close()
    envs.close()

    assert (
        "PyToGymnasiumVector(BatchedPyEnvironment): step() was called after close()."
    ) == message_of(ClosedEnvironmentError, lambda: envs.step(NO_ACTIONS))


@pytest.mark.parametrize(
    "call", [lambda e: e.reset(), lambda e: e.step_wait(), lambda e: e.call("batched")]
)
def test_nothing_can_be_done_after_the_end(call):
    envs = vector()
    envs.close()

    with pytest.raises(ClosedEnvironmentError):
        call(envs)


# What Gymnasium says.
PENDING = "Calling `close` while waiting for a pending call to `step` to complete"


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(AsyncVectorEnv, context="spawn"),
        functools.partial(vectorize, backend="inline"),
    ],
    ids=["Gymnasium", "envkit"],
)
@pytest.mark.parametrize("kind", ["reset", "step", "call"])
def test_closing_warns_of_a_pending_call_as_gymnasium_does(kind, make, recwarn):
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
    assert [expected in str(warning.message) for warning in recwarn] == [True]


def test_what_timed_out_is_not_warned_of(gated):
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))
    with pytest.raises(TimeoutError):
        envs.step_wait(timeout=0.0)

    envs.close(timeout=0.0)  # No warning: they are errors here.

    assert envs.closed


@pytest.mark.parametrize("make", BATCHES)
def test_generators_and_seeds_have_one_for_each_row_as_gymnasiums_own(make):
    expected = SyncVectorEnv(makers("CartPole-v1"))
    envs = PyToGymnasiumVector(
        make([functools.partial(wrapped, one) for one in makers("CartPole-v1")])
    )
    for seed in (7, [1, None, 3]):
        expected.reset(seed=seed)
        envs.reset(seed=seed)

        assert envs.np_random_seed == expected.np_random_seed
        assert [own.random() for own in expected.np_random] == [
            own.random() for own in envs.np_random
        ]
    envs.close()


def test_rows_without_generators_of_their_own_get_one_of_their_seed():
    envs = PyToGymnasiumVector(Catch(batch_size=3))
    unseeded = envs.np_random_seed
    envs.reset(seed=7)
    numbers = [own.random() for own in envs.np_random]
    envs.reset(seed=[1, 8, 3])

    assert len(unseeded) == 3
    assert numbers == [np.random.default_rng(seed).random() for seed in (7, 8, 9)]
    assert envs.np_random_seed == (1, 8, 3)


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"terminate": True}])
def test_closing_waits_no_longer_than_it_may(gated, options):
    env, envs = gated
    envs.reset()
    env.gate.clear()
    envs.step_async(np.zeros(1, np.int64))

    with pytest.warns(UserWarning, match=PENDING):
        envs.close(**options)

    assert envs.closed


def test_closing_gives_processes_the_time_it_was_given(nothing_left_behind):
    pool = ParallelPyEnvironment(counting(), num_workers=1)
    envs = PyToGymnasiumVector(pool)
    envs.reset()
    envs.step_async(NO_ACTIONS)

    with pytest.warns(UserWarning, match=PENDING):
        envs.close(timeout=60.0)

    assert envs.closed


# Environments.


@pytest.mark.parametrize("make", BATCHES)
def test_environments_are_asked_and_changed(make):
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
        lambda makers: ParallelPyEnvironment(makers, num_workers=1),
        lambda makers: TimeLimit(ParallelPyEnvironment(makers, backend="inline"), 9),
    ],
)
def test_environments_of_envkit_are_asked_and_changed(make):
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
def test_it_renders_row_by_row(make, message_of):
    with make([Catch] * 2) as batch:
        envs = PyToGymnasiumVector(batch, render_mode="rgb_array")
        envs.reset()

        pictures = envs.render()

        assert (tuple, 2, 3) == (type(pictures), len(pictures), pictures[0].shape[2])
        assert ["rgb_array"] == envs.metadata["render_modes"]
    assert (
        "PyToGymnasiumVector(BatchedPyEnvironment) was made without a render_mode, so "
        'it does not render. Make it with render_mode="rgb_array".'
    ) == message_of(NotImplementedError, vector().render)


@pytest.mark.parametrize("make", BATCHES)
def test_what_environments_were_made_with_is_the_batchs(make):
    def filmed():
        return gymnasium.make("CartPole-v1", render_mode="rgb_array")

    with make([functools.partial(wrapped, filmed)] * 2) as batch:
        envs = PyToGymnasiumVector(batch)
        envs.reset()

        assert "rgb_array" == envs.render_mode
        assert 50 == envs.metadata["render_fps"]
        assert (400, 600, 3) == envs.render()[1].shape


def test_attributes_of_the_batch_alone_are_forwarded(message_of):
    envs = PyToGymnasiumVector(TimeLimit(batch_of(counting()), 5))

    assert 5 == envs.duration
    assert (
        "'PyToGymnasiumVector' object has no attribute 'seed'; wrapped_env() has."
    ) == message_of(AttributeError, lambda: envs.seed)


def test_a_pool_is_put_into_the_mode():
    with pool_of(counting()) as pool:
        PyToGymnasiumVector(pool, "Disabled")

        assert AutoReset.DISABLED is pool.autoreset


def test_it_is_not_copied(message_of):
    assert "PyToGymnasiumVector cannot be copied or pickled." == message_of(
        TypeError, lambda: __import__("copy").deepcopy(vector())
    )


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
            "PyToGymnasiumVector was given a list of 1 element, which is not an "
            "environment of envkit's.",
        ),
        (
            lambda: PyToGymnasiumVector(Catch),
            TypeError,
            "PyToGymnasiumVector was given the class Catch, which is not an "
            "environment of envkit's.",
        ),
        (
            lambda: vector(infos="some"),
            ValueError,
            "infos is 'some'; it is one of 'all', 'final', 'none'.",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, text, message_of):
    assert text == message_of(error, call)
