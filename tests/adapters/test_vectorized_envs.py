"""`vectorize` is Gymnasium's `AsyncVectorEnv`, faster."""

from __future__ import annotations

import functools
import inspect
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from envkit import RestartPolicy
from envkit.adapters.py_to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.vectorized_envs import vectorize
from envkit.envs import Catch
from envkit.errors import CallOrderError, EnvironmentRaised
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
from tests.adapters.gym_spaces import WANTS_SETTLED
from tests.adapters.vector_games import (
    GAMES,
    MODES,
    assert_same_game,
    makers,
    transitions,
)

inline = functools.partial(vectorize, backend="inline", num_workers=2)


class Everything(gymnasium.Env):
    """Has spaces of every kind, infos of many, and says what it was given."""

    metadata = {"render_modes": ["ansi"], "render_fps": 7}  # noqa: RUF012  # Gymnasium's way
    action_space = spaces.Dict(
        push=spaces.Discrete(2), word=spaces.Text(3), keys=spaces.MultiBinary(2)
    )

    def __init__(self, render_mode="ansi"):
        self.render_mode = render_mode
        self.observation_space = spaces.Dict(
            word=spaces.Text(5),
            list=spaces.Sequence(spaces.Discrete(3)),
            pair=spaces.Tuple(
                (spaces.Discrete(4, start=2), spaces.Box(0.0, 1.0, (2,), np.float32))
            ),
            either=spaces.OneOf((spaces.Discrete(2), spaces.Text(3))),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {"options": str(options)}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        info = {"word": action["word"], "deep": {"steps": self.steps}}
        if action["push"]:
            info["pushed"] = True
        return (
            self.observation_space.sample(),
            self.steps / 3,
            False,
            self.steps == 3,
            info,
        )

    def render(self):
        return f"step {self.steps}"


class Frail(gymnasium.Env):
    """Counts, and fails when it is told to."""

    observation_space = spaces.Box(0.0, 9.0, (), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.float32(0.0), {}

    def step(self, action):
        if action == 2:
            raise ValueError("Too hot.")
        self._steps += 1
        return np.float32(self._steps), 1.0, False, False, {}


class Bounded(Frail):
    """Has bounds of its own."""

    def __init__(self, most=9.0):
        self.observation_space = spaces.Box(0.0, most, (), np.float32)


# The same as Gymnasium's own.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_everything_is_as_with_gymnasiums_own(name, mode):
    envs = inline(makers(name), autoreset_mode=mode)

    assert_same_game(SyncVectorEnv(makers(name), autoreset_mode=mode), envs, steps=40)
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_members_of_all_spaces_are_as_with_gymnasiums_own(mode):
    expected = SyncVectorEnv([Everything] * 3, autoreset_mode=mode)
    envs = inline([Everything] * 3, autoreset_mode=mode)

    assert_same_game(expected, envs, steps=9)
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_processes_do_as_gymnasiums_processes(mode):
    name = "FrozenLake-v1"
    expected = AsyncVectorEnv(makers(name, rows=2), autoreset_mode=mode)
    envs = vectorize(makers(name, rows=2), autoreset_mode=mode, num_workers=2)
    try:
        assert_same_game(expected, envs, steps=25)
    finally:
        expected.close()
        envs.close()


@WANTS_SETTLED
def test_members_of_all_spaces_come_from_processes():
    expected = SyncVectorEnv([Everything] * 2)
    envs = vectorize([Everything] * 2, num_workers=1)

    assert_same_game(expected, envs, steps=4)
    envs.close()


def test_the_modes_give_the_same_transitions():
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


def test_the_arguments_are_those_of_gymnasiums():
    theirs = list(inspect.signature(AsyncVectorEnv).parameters.values())
    ours = list(inspect.signature(vectorize).parameters.values())

    # A later Gymnasium may have added some at the end.
    known = [(p.name, p.default) for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = [name for name, _ in known]
    assert names[: len(theirs)] == [p.name for p in theirs][: len(names)]
    for (_, default), parameter in zip(known, theirs, strict=False):
        assert getattr(parameter.default, "value", parameter.default) == default


def test_it_is_the_adapter_of_batches():
    envs = inline([Frail] * 3)

    assert isinstance(envs, PyToGymnasiumVector)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert "VectorizedEnvs(num_envs=3)" == repr(envs)
    envs.close()


# Seeds and options.


def test_rows_without_a_seed_go_on_with_their_own_generators():
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
def test_a_reset_right_after_the_end_begins_one_episode_not_two(mode):
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


def test_an_action_that_does_not_fit_is_refused_by_the_name_of_the_class(message_of):
    envs = inline([Frail] * 2)
    envs.reset()

    text = message_of(ValueError, lambda: envs.step([0, 1, 2]))
    assert text.startswith("VectorizedEnvs.step() was given an action that does not")
    envs.close()


# Infos.


def asked(monkeypatch, infos, mode, pushes):
    """Returns how often workers were asked for infos in a reset and five steps."""
    envs = inline([Everything] * 2, infos=infos, autoreset_mode=mode)
    pool, calls = envs.wrapped_env(), []
    call = pool.call
    monkeypatch.setattr(
        pool,
        "call",
        lambda name, *args, **kwargs: (
            calls.append(kwargs.get("env_ids")),
            call(name, *args, **kwargs),
        )[1],
    )
    envs.reset()
    actions = {
        "push": np.zeros(2, int),
        "word": ("a", "b"),
        "keys": np.zeros((2, 2), int),
    }
    for _ in range(pushes):
        envs.step(actions)
    envs.close()
    return calls


@pytest.mark.parametrize(
    ("infos", "mode", "calls"),
    [("all", "NextStep", 6), ("final", "NextStep", 2), ("none", "NextStep", 0)],
)
def test_workers_are_asked_for_the_infos_that_are_wanted(
    monkeypatch, infos, mode, calls
):
    assert calls == len(asked(monkeypatch, infos, mode, 5))


def test_the_infos_of_end_and_beginning_come_together(monkeypatch):
    # The third step ends both episodes.
    assert 4 == len(asked(monkeypatch, "all", "SameStep", 3))


def test_nobody_is_asked_for_infos_where_there_are_none(monkeypatch):
    envs = inline([Frail] * 3)
    monkeypatch.setattr(envs.wrapped_env(), "call", None)

    assert {} == envs.reset()[1]
    assert {} == envs.step(np.zeros(3, int))[4]
    envs.close()


def test_only_workers_with_infos_are_asked(monkeypatch):
    class Telling(Frail):
        def step(self, action):
            return *super().step(action)[:4], {"told": True} if action else {}

    envs = inline([Telling] * 4)
    envs.reset()
    pool = envs.wrapped_env()
    call, ids = pool.call, []
    monkeypatch.setattr(
        pool,
        "call",
        lambda *args, env_ids: ids.append(env_ids) or call(*args, env_ids=env_ids),
    )

    _, _, _, _, infos = envs.step(np.array([0, 0, 1, 0]))

    assert ([[1]], [False, False, True, False]) == (ids, infos["told"].tolist())
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_statistics_work_on_top(mode):
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


def test_environments_are_asked_and_changed():
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


class Levelled(CountingEnv):
    """Has an attribute, and a method that tells it."""

    level = 1

    def told(self, more=0):
        return self.level + more

    def get_info(self):
        return {"level": self.level}


@pytest.mark.parametrize("backend", ["process", "thread", "inline"])
def test_environments_of_envkit_are_asked_and_changed(backend):
    makers = [Levelled, lambda: TimeLimit(Levelled(), 5), Levelled]
    envs = vectorize(makers, backend=backend, num_workers=2)
    envs.set_attr("level", [2, 3, 4])

    assert (2, 3, 4) == envs.get_attr("level") == envs.call("level")
    assert (9, 10, 11) == envs.call("told", more=7)
    assert ({"level": 2}, {"level": 3}, {"level": 4}) == envs.call("get_info")

    envs.set_attr("level", 5)

    assert (5, 5, 5) == envs.call("told")
    envs.close()


def test_nobody_moves_behind_the_batchs_back():
    envs = inline([Frail] * 2)

    with pytest.raises(ValueError, match=r"Use step\(\) itself\."):
        envs.call("step", 0)

    envs.close()


def test_environments_of_envkit_and_names_will_do():
    envs = inline([Catch, "Catch"], autoreset_mode="SameStep")
    observations, infos = envs.reset(seed=[7, 7])

    assert ((2, 10, 5), [0, 0]) == (observations.shape, infos["episode_steps"].tolist())
    assert observations[0].tolist() == observations[1].tolist()
    envs.close()


def test_names_of_gymnasiums_environments_will_do():
    names = ["gymnasium:FrozenLake-v1"] * 3
    expected = SyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * 3)
    envs = inline(names)

    assert_same_game(expected, envs, steps=40)
    envs.close()


def test_an_environment_that_raises_is_named(nothing_left_behind):
    envs = vectorize([Frail] * 4, num_workers=2)
    envs.reset()

    with pytest.raises(
        ValueError, match=r"env_fns\[3\] raised in step\(\)\."
    ) as caught:
        envs.step(np.array([0, 0, 0, 2]))

    assert isinstance(caught.value, EnvironmentRaised)
    with pytest.raises(CallOrderError, match="environments 2, 3 raised"):
        envs.step(np.zeros(4, int))

    envs.reset(options={"reset_mask": np.array([False, False, True, True])})

    assert [2, 2, 1, 1] == envs.step(np.zeros(4, int))[0].tolist()
    envs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_with_a_policy_episodes_are_cut_and_begin_anew(mode):
    envs = inline([Frail] * 4, autoreset_mode=mode, on_worker_failure=RestartPolicy())
    envs.reset()
    envs.step(np.zeros(4, int))

    observations, rewards, terminated, truncated, infos = envs.step(
        np.array([0, 0, 0, 2])
    )

    cut = [False, False, True, True]
    assert ([1.0, 1.0, 0.0, 0.0], [False] * 4, cut) == (
        rewards.tolist(),
        terminated.tolist(),
        truncated.tolist(),
    )
    ends = infos if mode == "NextStep" else infos["final_info"]
    assert cut == ends["repaired"].tolist()
    assert [2, 2, *((1, 1) if mode == "NextStep" else (0, 0))] == observations.tolist()
    after = envs.step(np.zeros(4, int))[0].tolist()
    assert [3, 3, *((0, 0) if mode == "NextStep" else (1, 1))] == after
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
def test_environments_are_shared_out(options, workers):
    options = {"num_workers": 3, **options} if options == {} else options
    envs = vectorize([Frail] * 3, backend="inline", **options)

    assert workers >= envs.wrapped_env().num_workers
    envs.close()


def test_bounds_may_differ_if_that_is_said():
    envs = inline([Bounded, lambda: Bounded(5.0)], observation_mode="different")

    assert [9.0, 5.0] == envs.observation_space.high.tolist()
    assert 9.0 == envs.single_observation_space.high
    envs.close()


def test_spaces_may_be_given():
    single = spaces.Box(-1.0, 99.0, (), np.float32)
    batched = spaces.Box(-1.0, 99.0, (2,), np.float32)

    envs = inline([Bounded] * 2, observation_mode=(batched, single))

    assert (single, batched) == (envs.single_observation_space, envs.observation_space)
    envs.close()


def text_of_spaces(first, second):
    return f"\n\n  {first}\n  {second}"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: inline([Frail], worker=print),
            ValueError,
            "worker was given, and vectorize() has no place for it: envkit's workers "
            "run a program of their own. worker_setup runs something first in each.",
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
            "env_fns is empty; there is at least one environment.",
        ),
        (
            lambda: inline([Frail, Frail()]),
            TypeError,
            "env_fns[1] is a Frail object, which is non-callable. Each "
            "environment is made in its own worker, so pass what makes it: lambda: "
            "gymnasium.make(...).",
        ),
        (
            lambda: inline([Frail], num_workers=0),
            ValueError,
            "num_workers is 0; there is at least one worker.",
        ),
        (
            lambda: inline([Frail], max_concurrency=2.5),
            TypeError,
            "max_concurrency is 2.5 of type float; it is an integer or None.",
        ),
        (
            lambda: inline([Frail], observation_mode="alike"),
            ValueError,
            "observation_mode is the string 'alike'; it is 'same', 'different', or a "
            "tuple of the batched space and the single one.",
        ),
        (
            lambda: inline([Frail], infos="some"),
            ValueError,
            "infos is 'some'; it is one of 'all', 'final', 'none'.",
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
def test_what_makes_no_sense_is_refused(
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


def test_an_environment_whose_reset_has_no_defaults_is_passed_everything():
    with closing(vectorize([Strict] * 2, backend="inline")) as envs:
        assert [0, 0] == envs.reset()[0].tolist()
        assert [3, 3] == envs.reset(seed=7, options={"level": 3})[0].tolist()
        envs.step(np.array([0, 0]))
        assert [0, 0] == envs.step(np.array([0, 0]))[0].tolist()
