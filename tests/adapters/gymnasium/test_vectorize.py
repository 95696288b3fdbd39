"""`vectorize` is Gymnasium's `AsyncVectorEnv`, faster."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from envkit import ParallelPyEnvironment, RestartPolicy, StandbyEnvironment
from envkit.adapters import GymnasiumWrapper
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.gymnasium.vectorize import VectorizedRow, vectorize
from envkit.distributed.links import linked
from envkit.envs import Catch
from envkit.errors import (
    CallOrderError,
    ConstructorError,
    EnvironmentRaised,
    SpecError,
    SpecMismatchError,
)
from envkit.wrappers import TimeLimit
from tests.adapters.gym_spaces import WANTS_SETTLED
from tests.adapters.gymnasium.environments import (
    Everything,
    Frail,
    Levelled,
    Listing,
    Stubborn,
)
from tests.adapters.vector_games import (
    GAMES,
    MODES,
    assert_alike,
    assert_same_game,
    makers,
    transitions,
)
from tests.waiting import until

inline = functools.partial(vectorize, backend="inline", num_workers=2)


class Bounded(Frail):
    """Has bounds of its own."""

    def __init__(self, most=9.0):
        self.observation_space = spaces.Box(0.0, most, (), np.float32)


# The same as Gymnasium's own.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_results_match_sync_vector_env(name, mode):
    envs = inline(makers(name), autoreset_mode=mode)
    assert_same_game(SyncVectorEnv(makers(name), autoreset_mode=mode), envs, steps=25)
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_members_of_all_spaces_match_sync_vector_env(mode):
    expected = SyncVectorEnv([Everything] * 3, autoreset_mode=mode)
    envs = inline([Everything] * 3, autoreset_mode=mode)
    assert_same_game(expected, envs, steps=9)
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_eager_resets_change_nothing(mode):
    for name in ("CartPole-v1", "FrozenLake-v1"):
        envs = inline(makers(name), autoreset_mode=mode, eager_resets=True)
        expected = SyncVectorEnv(makers(name), autoreset_mode=mode)
        with closing(envs):
            assert_same_game(expected, envs, steps=25)


def test_eager_resets_happen_between_calls():
    options = {"backend": "thread", "num_workers": 1, "eager_resets": True}
    with closing(vectorize(makers("CartPole-v1"), **options)) as envs:
        statistics = envs.wrapped_env().statistics
        envs.reset(seed=1)
        while not np.logical_or(*envs.step(np.array([1, 0, 1]))[2:4]).any():
            pass
        assert until(lambda: statistics().hidden_resets > 0)


class Worn(Frail):
    """Ends each episode at once, and cannot be reset a second time."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.resets == 2:
            raise ValueError("Worn out.")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        return *super().step(action)[:2], True, False, {"resets": self.resets}


def test_an_error_in_an_eager_reset_is_raised_by_the_next_step():
    def told(eager):
        with closing(inline([Frail, Worn], num_workers=1, eager_resets=eager)) as envs:
            envs.reset()
            *_, ended, _, infos = envs.step([0, 0])
            with pytest.raises(ValueError, match="Worn out") as caught:
                envs.step([0, 0])
            first = str(caught.value).partition("\n")[0]
            return ended.tolist(), infos["resets"].tolist(), first

    assert told(False) == told(True)
    assert ([False, True], [0, 1]) == told(True)[:2]


def test_seeds_and_options_repeat_an_eager_reset():
    def resets(eager, **told):
        with closing(inline([Worn], num_workers=1, eager_resets=eager)) as envs:
            envs.reset()
            envs.set_attr("resets", 5)
            envs.step([0])
            envs.reset(**told)
            envs.step([0])
            envs.reset(**told)
            return envs.get_attr("resets")

    assert (7,) == resets(False, seed=3) == resets(True)
    # One was made in vain, and then no other.
    assert (8,) == resets(True, seed=3) == resets(True, options={"far": 1})


def test_rows_may_be_standby_environments_with_their_own_workers():
    make = functools.partial(StandbyEnvironment, "CartPole-v1", in_workers=True)
    near = functools.partial(StandbyEnvironment, "CartPole-v1")
    with closing(inline([make])) as envs, closing(inline([near])) as expected:
        assert_same_game(expected, envs, steps=25)


def calls_that_are_waited_for(envs):
    """Yields the results of calls that were begun, and the errors of wrong ones."""

    def error_of(call, *args):
        with pytest.raises((NoAsyncCallError, AlreadyPendingCallError)) as caught:
            call(*args)
        return caught.type.__name__, caught.value.name

    actions = np.array([1, 0])
    yield error_of(envs.reset_wait)
    envs.reset_async(seed=7)
    yield error_of(envs.call_async, "gravity")
    yield error_of(envs.step_wait)
    yield envs.reset_wait(timeout=60.0)
    for _ in range(3):
        envs.step_async(actions)
        yield error_of(envs.step_async, actions)
        yield error_of(envs.reset_async)
        yield error_of(envs.call_wait)
        yield envs.step_wait(timeout=60.0)
    yield error_of(envs.step_wait)
    envs.call_async("gravity")
    yield error_of(envs.set_attr, "gravity", 1.6)
    yield envs.call_wait(timeout=60.0)
    envs.set_attr("gravity", [1.6, 3.7])
    yield envs.get_attr("gravity")
    envs.reset_async(seed=[3, 4], options={"low": 0.01, "high": 0.02})
    yield envs.reset_wait()


def pooled(env_fns):
    return PyToGymnasiumVector(
        ParallelPyEnvironment(
            [lambda make=make: GymnasiumWrapper(make()) for make in env_fns],
            backend="inline",
        )
    )


@pytest.mark.parametrize("make", [inline, pooled])
def test_asynchronous_calls_match_async_vector_env(make):
    env_fns = makers("CartPole-v1", rows=2)
    with closing(AsyncVectorEnv(env_fns)) as theirs, closing(make(env_fns)) as ours:
        expected = list(calls_that_are_waited_for(theirs))
        got = list(calls_that_are_waited_for(ours))
    np.testing.assert_equal(got, expected)


def test_worker_processes_match_async_vector_env():
    expected = AsyncVectorEnv(makers("FrozenLake-v1", rows=2), autoreset_mode=MODES[1])
    envs = vectorize(
        makers("FrozenLake-v1", rows=2), autoreset_mode=MODES[1], num_workers=1
    )
    with closing(expected), closing(envs):
        assert_same_game(expected, envs, steps=25)


@WANTS_SETTLED
def test_members_of_all_spaces_survive_worker_processes():
    with closing(vectorize([Everything] * 2, num_workers=1)) as envs:
        assert_same_game(SyncVectorEnv([Everything] * 2), envs, steps=4)


def test_all_modes_give_the_same_transitions():
    def play(mode):
        envs = inline(makers("CartPole-v1"), autoreset_mode=mode)
        played = transitions(envs, steps=40)
        envs.close()
        return played

    next_step, same_step, disabled = (play(mode) for mode in MODES)

    assert same_step == disabled
    for longer, shorter in zip(same_step, next_step, strict=True):
        assert 30 < len(shorter) < 40
        assert longer[: len(shorter)] == shorter


def test_the_number_of_workers_does_not_matter():
    played = []
    for workers in (1, 2, 3):
        envs = inline(makers("CartPole-v1"), num_workers=workers)
        played.append(transitions(envs, steps=20))
        envs.close()
    assert played[0] == played[1] == played[2]


def test_vectorize_takes_the_arguments_of_async_vector_env():
    theirs = list(inspect.signature(AsyncVectorEnv).parameters.values())
    ours = list(inspect.signature(vectorize).parameters.values())

    # A later Gymnasium may have added some at the end.
    known = [(p.name, p.default) for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = [name for name, _ in known]
    assert names[: len(theirs)] == [p.name for p in theirs][: len(names)]
    for (_, default), parameter in zip(known, theirs, strict=False):
        assert getattr(parameter.default, "value", parameter.default) == default


def test_vectorize_returns_a_py_to_gymnasium_vector():
    envs = inline([Frail] * 3)
    assert isinstance(envs, PyToGymnasiumVector)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert "VectorizedEnvs(num_envs=3)" == repr(envs)
    envs.close()


# Seeds and options.


def test_rows_without_a_seed_keep_their_generators():
    expected = SyncVectorEnv(makers("CartPole-v1"))
    envs = inline(makers("CartPole-v1"))
    for seed in (3, [None, 9, None], None, [4, None, 2]):
        theirs, ours = expected.reset(seed=seed)[0], envs.reset(seed=seed)[0]

        assert theirs.tolist() == ours.tolist()
    assert envs.np_random_seed == expected.np_random_seed
    assert [own.random() for own in expected.np_random] == [
        own.random() for own in envs.np_random
    ]
    envs.close()


def test_options_reach_the_masked_rows_once():
    envs = inline([Everything] * 3)
    envs.reset()
    mask = np.array([True, False, True])

    _, infos = envs.reset(options={"low": 1, "reset_mask": mask})

    text = "{'low': 1}"
    assert [text, None, text] == infos["options"].tolist()
    assert ["None"] * 3 == envs.reset()[1]["options"].tolist()
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_after_the_end_begins_one_episode(mode):
    class Counting(Everything):
        resets = 0

        def reset(self, **kwargs):
            self.resets += 1
            return super().reset(**kwargs)

    envs = inline([Counting], autoreset_mode=mode, num_workers=1)
    envs.reset()
    resets = []
    for _ in range(3):
        envs.step(envs.action_space.sample())
    for _ in range(2):
        envs.reset()
        envs.step(envs.action_space.sample())
        resets += envs.get_attr("resets")

    assert [3, 4] == resets if mode == "SameStep" else [2, 3] == resets
    envs.close()


def test_an_invalid_action_is_refused_under_the_name_of_the_class(message_of):
    envs = inline([Frail] * 2)
    envs.reset()
    text = message_of(ValueError, lambda: envs.step([0, 1, 2]))
    assert text.startswith("VectorizedEnvs.step() was given an action that does not")
    envs.close()


# Infos.


def asked(monkeypatch, envs):
    """Returns a list that grows by the environments that are asked for infos."""
    pool, asked = envs.wrapped_env(), []
    get_infos = pool.get_infos
    monkeypatch.setattr(
        pool, "get_infos", lambda ids: asked.append(ids) or get_infos(ids)
    )
    return asked


@pytest.mark.parametrize(("infos", "times"), [("all", 6), ("final", 2), ("none", 0)])
def test_workers_send_only_the_requested_infos(monkeypatch, infos, times):
    actions = {
        "push": np.zeros(2, int),
        "word": ("a", "b"),
        "keys": np.zeros((2, 2), int),
    }
    with closing(inline([Everything] * 2, infos=infos)) as envs:
        ids = asked(monkeypatch, envs)
        envs.reset()
        for _ in range(5):
            envs.step(actions)
        assert [[0, 1]] * times == ids


def test_without_infos_no_environment_is_asked(monkeypatch):
    with closing(inline([Frail] * 3)) as envs:
        ids = asked(monkeypatch, envs)
        assert {} == envs.reset()[1]
        assert {} == envs.step(np.zeros(3, int))[4]
        assert [] == ids


def test_only_environments_with_an_info_are_asked(monkeypatch):
    class Telling(Frail):
        def step(self, action):
            return *super().step(action)[:4], {"told": True} if action else {}

    with closing(inline([Telling] * 4)) as envs:
        envs.reset()
        ids = asked(monkeypatch, envs)

        _, _, _, _, infos = envs.step(np.array([0, 0, 1, 0]))

        assert ([[2]], [False, False, True, False]) == (ids, infos["told"].tolist())


@pytest.mark.parametrize("mode", MODES)
def test_record_episode_statistics_works_on_top(mode):
    envs = RecordEpisodeStatistics(inline([Everything] * 2, autoreset_mode=mode))
    envs.reset()
    envs.action_space.seed(1)

    for _ in range(3):
        _, _, _, _, infos = envs.step(envs.action_space.sample())

    infos = infos.get("final_info", infos) if "episode" not in infos else infos
    assert ([2.0, 2.0], [3, 3]) == (
        infos["episode"]["r"].tolist(),
        infos["episode"]["l"].tolist(),
    )
    envs.close()


# Environments.


def test_the_metadata_matches_sync_vector_env():
    expected = SyncVectorEnv(makers("CartPole-v1"))
    with closing(inline(makers("CartPole-v1"))) as envs:
        assert expected.metadata == envs.metadata
        assert expected.render_mode == envs.render_mode


def test_attributes_and_methods_reach_the_environments():
    envs = inline([Everything] * 3)
    envs.reset()

    envs.set_attr("steps", [5, 6, 7])

    assert (5, 6, 7) == envs.get_attr("steps") == envs.call("steps")
    assert ("step 5", "step 6", "step 7") == envs.render() == envs.call("render")
    assert ("ansi", 7) == (envs.render_mode, envs.metadata["render_fps"])

    envs.set_attr("steps", 1)

    assert (True,) * 3 == envs.call("has_wrapper_attr", "steps")
    assert ("step 1",) * 3 == envs.get_attr("render")
    envs.close()


@pytest.mark.parametrize("backend", ["process", "inline", "linked"])
def test_attributes_and_methods_reach_environments_of_envkit(backend):
    if backend == "linked":
        backend = linked(["envkit worker {address}"] * 2)
    makers = [Levelled, lambda: TimeLimit(Levelled(), 5), Levelled]
    with closing(vectorize(makers, backend=backend, num_workers=2)) as envs:
        envs.set_attr("level", [2, 3, 4])
        assert (2, 3, 4) == envs.get_attr("level") == envs.call("level")
        assert (9, 10, 11) == envs.call("told", more=7)
        assert ({"level": 2}, {"level": 3}, {"level": 4}) == envs.call("get_info")
        envs.set_attr("level", 5)
        assert (5, 5, 5) == envs.call("told")


def test_call_refuses_to_step_or_reset():
    envs = inline([Frail] * 2)
    with pytest.raises(ValueError, match=r"Use step\(\) itself\."):
        envs.call("step", 0)
    envs.close()


def test_environments_of_envkit_and_names_are_accepted():
    envs = inline([Catch, "Catch"], autoreset_mode="SameStep")
    observations, infos = envs.reset(seed=[7, 7])
    assert ((2, 10, 5), [0, 0]) == (observations.shape, infos["episode_steps"].tolist())
    assert observations[0].tolist() == observations[1].tolist()
    envs.close()


def test_gymnasium_ids_are_accepted():
    expected = SyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * 3)
    with closing(inline(["gymnasium:FrozenLake-v1"] * 3)) as envs:
        assert_same_game(expected, envs, steps=20)


# Failures.


@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_raises_leaves_the_neighbours_alone(mode, nothing_left_behind):
    with closing(vectorize([Frail] * 4, num_workers=2, autoreset_mode=mode)) as envs:
        envs.reset()

        with pytest.raises(ValueError, match=r"env 3 raised .* in step\(\)") as caught:
            envs.step(np.array([0, 0, 0, 2]))

        assert isinstance(caught.value, EnvironmentRaised)
        with pytest.raises(CallOrderError, match="environment 3 raised"):
            envs.step(np.zeros(4, int))

        mask = np.array([False, False, False, True])
        assert [1, 1, 1, 0] == envs.reset(options={"reset_mask": mask})[0].tolist()
        assert [2, 2, 2, 1] == envs.step(np.zeros(4, int))[0].tolist()


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_that_raises_leaves_the_neighbours_alone(mode, nothing_left_behind):
    stubborn = [functools.partial(Stubborn, number) for number in range(4)]
    with closing(vectorize(stubborn, num_workers=2, autoreset_mode=mode)) as envs:
        envs.reset()
        envs.step(np.zeros(4, int))
        mask = np.array([False, True, False, True])

        with pytest.raises(ValueError, match="Not now"):
            envs.reset(options={"reset_mask": mask, "refuse": [3]})

        mask = np.array([False, False, False, True])
        assert [1, 0, 1, 0] == envs.reset(options={"reset_mask": mask})[0].tolist()
        assert [2, 1, 2, 1] == envs.step(np.zeros(4, int))[0].tolist()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_reset_after_an_end_that_raises_leaves_the_neighbours_alone(mode):
    class Ends(Stubborn):
        def step(self, action):
            observation, reward, *_, info = super().step(action)
            return observation, reward, bool(action), False, info

        def reset(self, *, seed=None, options=None):
            refused = {"refuse": [1]} if hasattr(self, "_steps") else None
            return super().reset(options=None if options else refused)

    makers = [functools.partial(Ends, number) for number in range(3)]
    with closing(inline(makers, autoreset_mode=mode)) as envs:
        envs.reset()
        assert [False, True, False] == envs.step(np.array([0, 1, 0]))[2].tolist()

        with pytest.raises(ValueError, match="Not now"):
            envs.step(np.zeros(3, int))

        options = {"reset_mask": np.array([False, True, False]), "again": True}
        assert [2, 0, 2] == envs.reset(options=options)[0].tolist()
        assert [3, 1, 3] == envs.step(np.zeros(3, int))[0].tolist()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_restart_policy_truncates_and_restarts_one_episode(mode):
    envs = inline([Frail] * 4, autoreset_mode=mode, on_worker_failure=RestartPolicy())
    envs.reset()
    envs.step(np.zeros(4, int))

    observations, rewards, terminated, truncated, infos = envs.step(
        np.array([0, 0, 0, 2])
    )

    cut = [False, False, False, True]
    assert ([1.0, 1.0, 1.0, 0.0], [False] * 4, cut) == (
        rewards.tolist(),
        terminated.tolist(),
        truncated.tolist(),
    )
    ends = infos if mode == "NextStep" else infos["final_info"]
    assert cut == ends["repaired"].tolist()
    assert [2, 2, 2, 1 if mode == "NextStep" else 0] == observations.tolist()
    after = envs.step(np.zeros(4, int))[0].tolist()
    assert [3, 3, 3, 0 if mode == "NextStep" else 1] == after
    envs.close()


# Arguments.


def test_without_copies_observations_are_read_only():
    envs = inline([Frail] * 2, copy=False)
    observations, _ = envs.reset()
    assert not observations.flags.writeable
    envs.close()


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({}, 3),
        ({"num_workers": 2}, 2),
        ({"max_concurrency": 2}, 2),
        ({"num_workers": 9}, 3),
    ],
)
def test_environments_are_distributed_over_workers(options, workers):
    options = {"num_workers": 3, **options} if options == {} else options
    envs = vectorize([Frail] * 3, backend="inline", **options)
    assert workers >= envs.wrapped_env().num_workers
    envs.close()


def test_observation_mode_allows_differing_bounds():
    envs = inline([Bounded, lambda: Bounded(5.0)], observation_mode="different")
    assert [9.0, 5.0] == envs.observation_space.high.tolist()
    assert 9.0 == envs.single_observation_space.high
    envs.close()


def test_the_spaces_can_be_passed():
    single = spaces.Box(-1.0, 99.0, (), np.float32)
    batched = spaces.Box(-1.0, 99.0, (2,), np.float32)
    envs = inline([Bounded] * 2, observation_mode=(batched, single))
    assert (single, batched) == (envs.single_observation_space, envs.observation_space)
    envs.close()


def test_equal_spaces_are_not_sent_by_workers():
    row = VectorizedRow(Frail)
    assert (row.gym.observation_space, row.gym.action_space) == row.spaces()
    assert row.spaces(VectorizedRow(Frail).spaces()) is None


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: inline([Frail], worker=print),
            ValueError,
            "worker is not supported by vectorize(): envkit's workers run their own "
            "program. worker_setup runs a function first in each.",
        ),
        (
            lambda: inline(Frail),
            TypeError,
            "env_fns is a type object; vectorize takes a list with one function for "
            "each environment: [make_env] * 8.",
        ),
        (
            lambda: inline(4),
            TypeError,
            "env_fns is 4 of type int; vectorize takes a list with one function for "
            "each environment: [make_env] * 8.",
        ),
        (
            lambda: inline([]),
            ValueError,
            "env_fns must have at least one function, got none.",
        ),
        (
            lambda: inline([Frail, Frail()]),
            TypeError,
            "env_fns[1] is a Frail object, which is non-callable. Each "
            "environment is made in its own worker, so pass what makes it: lambda: "
            "gymnasium.make(...).",
        ),
        (
            lambda: inline([Frail], num_workers="some"),
            TypeError,
            "num_workers must be an integer of at least 1, or None for one worker per "
            "available CPU, got the string 'some'.",
        ),
        (
            lambda: inline([Frail], num_workers=0),
            ValueError,
            "num_workers must be an integer of at least 1, or None for one worker per "
            "available CPU, got 0.",
        ),
        (
            lambda: inline([Frail], max_concurrency=2.5),
            TypeError,
            "max_concurrency must be an integer or None, got 2.5 of type float.",
        ),
        (
            lambda: inline([Frail], observation_mode="alike"),
            ValueError,
            "observation_mode must be 'same', 'different', or a tuple of the batched "
            "space and the single one, got the string 'alike'.",
        ),
        (
            lambda: inline([Frail], infos="some"),
            ValueError,
            "infos must be one of 'all', 'final', 'none', got 'some'.",
        ),
        (
            lambda: inline([Bounded, lambda: Bounded(5.0)]),
            RuntimeError,
            "env_fns[0] and env_fns[1] have different observation spaces, so they "
            "cannot form one batch. Where only bounds differ, pass "
            "observation_mode='different'.\n\n  Box(0.0, 9.0, (), float32)\n"
            "  Box(0.0, 5.0, (), float32)",
        ),
        (
            lambda: inline(
                [Frail], observation_mode=(spaces.Discrete(2), spaces.Discrete(2))
            ),
            RuntimeError,
            "observation_mode has the single space Discrete(2), and the environments "
            "have Box(0.0, 9.0, (), float32), whose members are other arrays.",
        ),
    ],
)
def test_invalid_arguments_are_refused(
    call, error, text, message_of, nothing_left_behind
):
    assert text == message_of(error, call)


class Strict(gymnasium.Env):
    """Has no defaults, for Gymnasium's own vectors pass everything."""

    observation_space = action_space = spaces.Discrete(99)

    def reset(self, seed, options):
        super().reset(seed=seed)
        return 0 if options is None else options["level"], {}

    def step(self, action):
        return 0, 0.0, True, False, {}


def test_a_reset_without_defaults_gets_every_argument():
    with closing(vectorize([Strict] * 2, backend="inline")) as envs:
        assert [0, 0] == envs.reset()[0].tolist()
        assert [3, 3] == envs.reset(seed=7, options={"level": 3})[0].tolist()
        envs.step(np.array([0, 0]))
        assert [0, 0] == envs.step(np.array([0, 0]))[0].tolist()


class Ending(Frail):
    """Ends its episode as it is told, with an info or without."""

    action_space = spaces.Discrete(4)

    def step(self, action):
        ends = bool(action & 1), bool(action & 2)
        return np.float32(1.0), 1 / 3, *ends, {"a": int(action)} if action > 1 else {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("infos", ["all", "final", "none"])
def test_episodes_may_terminate_truncate_or_both(infos, mode):
    with closing(inline([Ending] * 4, infos=infos, autoreset_mode=mode)) as envs:
        envs.reset()

        _, rewards, terminated, truncated, told = envs.step(np.arange(4))

    assert [1 / 3] * 4 == rewards.tolist()  # to the last digit
    assert [False, True, False, True] == terminated.tolist()
    assert [False, False, True, True] == truncated.tolist()
    told = told["final_info"] if mode == "SameStep" else told
    if infos == "none":
        assert {} == told
    else:
        assert [0, 0, 2, 3] == told["a"].tolist()
        assert [False, False, True, True] == told["_a"].tolist()


class Claiming(gymnasium.Env):
    """Has flags in its infos, which are not those that it returns."""

    action_space = spaces.Discrete(4)

    def __init__(self, own, observation_space):
        self.own, self.observation_space = own, observation_space

    def _seen(self):
        self.observation_space.seed(0)
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), dict(self.own)

    def step(self, action):
        return self._seen(), 1.0, action == 1, action in (1, 2), dict(self.own)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "observation_space",
    [spaces.Box(0.0, 1.0, (2,)), spaces.Dict({"a": spaces.Discrete(3)})],
    ids=["Box", "Dict"],
)
@pytest.mark.parametrize(
    "own",
    [
        {"terminated": False, "truncated": True},
        {"terminated": True, "truncated": False, "lives": 2},
        {"terminated": 7},
        {"truncated": "never"},
    ],
    ids=["both", "both and more", "a number", "a word"],
)
def test_flags_in_infos_match_sync_vector_env(own, observation_space, mode):
    make = functools.partial(Claiming, own, observation_space)
    expected = SyncVectorEnv([make] * 2, autoreset_mode=mode)
    with closing(inline([make] * 2, autoreset_mode=mode)) as envs:
        assert_same_game(expected, envs, steps=12)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize(
    "own", [{"terminated": False, "truncated": True}, {"terminated": 7}]
)
def test_flags_in_final_infos_match_sync_vector_env(own, mode):
    fns = [functools.partial(Claiming, own, spaces.Box(0.0, 1.0, (2,)))] * 3
    expected = SyncVectorEnv(fns, autoreset_mode=mode)
    expected.reset()
    with closing(inline(fns, infos="final", autoreset_mode=mode)) as envs:
        envs.reset()
        for actions in ([0, 1, 2], [0, 0, 3], [1, 2, 0], [3, 3, 3], [1, 1, 1]):
            *_, terminated, truncated, theirs = expected.step(np.array(actions))
            *_, told = envs.step(np.array(actions))
            over = terminated | truncated
            if mode == "SameStep":
                theirs, told = (one.get("final_info", {}) for one in (theirs, told))
            for name in own:
                if over.any():
                    assert theirs[name][over].tolist() == told[name][over].tolist()
                    assert over.tolist() == told[f"_{name}"].tolist()
            names = {key for name in own for key in (name, f"_{name}")}
            assert told.keys() == (names if over.any() else set())
    expected.close()


def test_the_final_info_is_safe_from_the_reset():
    class Writing(Frail):
        def __init__(self):
            self.info = {"mask": np.ones(2, bool), "deep": {"seen": np.ones(1)}}

        def _write(self, value):
            self.info["mask"][:] = value
            self.info["deep"]["seen"][:] = value
            return self.info

        def reset(self, *, seed=None, options=None):
            return super().reset()[0], self._write(False)

        def step(self, action):
            return np.float32(1.0), 1.0, True, False, self._write(True)

    with closing(inline([Writing], autoreset_mode="SameStep")) as envs:
        envs.reset()
        infos = envs.step(np.array([0]))[4]

    ended = infos["final_info"]
    assert ([[True, True]], [[1.0]]) == (
        ended["mask"].tolist(),
        ended["deep"]["seen"].tolist(),
    )
    assert ([[False, False]], [[0.0]]) == (
        infos["mask"].tolist(),
        infos["deep"]["seen"].tolist(),
    )


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_lists_in_infos_are_unchanged(backend):
    envs = vectorize(
        [Listing] * 2, backend=backend, num_workers=1, autoreset_mode="SameStep"
    )
    with closing(envs):
        envs.reset()
        infos = envs.step(np.array([0, 0]))[4]

    for cards in infos["cards"], infos["final_info"]["cards"]:
        assert [list] * 2 == [type(own) for own in cards]
        assert {int} == {type(own[0]) for own in cards}


OLD = "Environments written for the old Gym return other ones."


class Old(Frail):
    """Returns what environments of the old Gym return."""

    def reset(self, *, seed=None, options=None):
        return np.float32(0.0) if options else super().reset()

    def step(self, action):
        return np.float32(1.0), 0.0, False, {}


def test_results_of_the_old_gym_are_refused():
    with closing(inline([Frail, Old])) as envs:
        envs.reset()
        with pytest.raises(SpecError) as caught:
            envs.step([0, 0])
        assert (
            "Old.step() returned a tuple of 4 elements; in Gymnasium it returns the "
            f"tuple (observation, reward, terminated, truncated, info). {OLD}"
        ) in str(caught.value)
        with pytest.raises(SpecError) as caught:
            envs.reset(options={"old": True})
        assert f"in Gymnasium it returns the tuple (observation, info). {OLD}" in str(
            caught.value
        )


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Frail, "was given the class Frail, which is not an environment of Gymnasium."),
        (7, "was given 7 of type int, which is not an environment of Gymnasium."),
        (
            SyncVectorEnv([Frail]),
            "was given the vector environment SyncVectorEnv; it takes a single "
            "environment.",
        ),
        (Catch(batch_size=2), "was given Catch, which is a batch"),
    ],
)
def test_a_function_must_return_an_environment(made, text, nothing_left_behind):
    with pytest.raises(ConstructorError) as caught:
        inline([Frail, lambda: made])
    assert text in str(caught.value)


class Wide(Frail):
    observation_space = spaces.Box(0.0, 9.0, (2,), np.float32)


def test_differing_observation_shapes_are_refused(nothing_left_behind):
    with pytest.raises(SpecMismatchError, match="env 0 and env 1"):
        inline([Frail, Wide])


class Beyond(gymnasium.Env):
    """Takes and shows values outside of its spaces."""

    observation_space = spaces.Dict(
        at=spaces.Box(-1.0, 1.0, (2,), np.float32), word=spaces.Text(2)
    )
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        return {"at": np.float32([7.0, 8.0]), "word": "longer"}, {}

    def step(self, action):
        seen = {"at": [2 * number for number in action], "word": "!"}
        return seen, float(action.sum()), False, False, {}


def test_bounds_are_unchecked_like_in_sync_vector_env():
    expected = SyncVectorEnv([Beyond] * 2)
    actions = np.float32([[3.0, 4.0], [0.5, -9.0]])
    with closing(inline([Beyond] * 2)) as envs:
        assert_alike(expected.reset(), envs.reset())
        assert_alike(expected.step(actions), envs.step(actions))


class Showing(gymnasium.Env):
    """Shows members of a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, bool(action), False, {}


SPACES = [
    spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    spaces.Box(0, 255, (), np.uint8),
    spaces.Discrete(3, start=2),
    spaces.MultiBinary((2, 2)),
    spaces.MultiDiscrete([2, 3], dtype=np.int32),
    spaces.Text(5),
    spaces.Sequence(spaces.Discrete(3)),
    spaces.Graph(spaces.Box(0.0, 1.0, (2,)), None),
    spaces.OneOf((spaces.Discrete(2), spaces.Text(3))),
    spaces.Dict(
        b=spaces.Discrete(2),
        a=spaces.Tuple((spaces.Text(3), spaces.Box(0.0, 1.0, (2,)))),
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_batched_members_match_gymnasium(space):
    showing = [lambda: Showing(copy.deepcopy(space))] * 3
    expected = SyncVectorEnv(showing)
    with closing(inline(showing)) as envs:
        assert_alike(expected.reset(seed=3), envs.reset(seed=3))
        for actions in np.array([[0, 1, 0], [0, 0, 0]]):
            assert_alike(expected.step(actions), envs.step(actions))
        assert envs.observation_space.contains(envs.step(actions)[0])


class Echoing(Showing):
    def __init__(self, space):
        super().__init__(space)
        self.action_space = space

    def step(self, action):
        return action, 0.0, False, False, {}


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_actions_of_every_space_arrive(space):
    with closing(inline([lambda: Echoing(copy.deepcopy(space))] * 2)) as envs:
        envs.reset(seed=3)
        envs.action_space.seed(3)
        actions = envs.action_space.sample()
        assert data_equivalence(actions, envs.step(actions)[0])


def test_an_observation_of_another_shape_is_refused():
    class Narrow(Wide):
        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

    with (
        closing(inline([Narrow])) as envs,
        pytest.raises(SpecError, match="Narrow returned an observation that does not"),
    ):
        envs.reset()


def test_a_failing_close_does_not_keep_other_environments_open():
    closed = []

    class Closing(Frail):
        def close(self):
            closed.append(self)
            if len(closed) == 2:
                raise ValueError("Stuck.")

    with contextlib.suppress(ValueError):
        inline([Closing] * 3).close()

    assert 3 == len(closed)
