"""Environments of envkit do what Stable-Baselines3 expects of a `VecEnv`.

Where the library is not installed, something stands in for the class that its vector
environments inherit from. `sb3_checks.py` compares with the library's own, and trains.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
)
from envkit.adapters import GymnasiumWrapper
from envkit.adapters.gymnasium.vector import (
    GymnasiumVectorWrapper,
)
from envkit.adapters.sb3 import to_sb3
from envkit.envs import CartPole, Catch
from envkit.errors import CallOrderError, MissingDependencyError, SpecError
from envkit.testing import EpisodeCountingEnv, NestedCountingEnv
from envkit.wrappers import TimeLimit
from tests.adapters.sb3_games import (
    LIMIT,
    Dials,
    Odd,
    Seeing,
    Silent,
    Switches,
    Walk,
)

POOLS = []
STAND_INS = Path(__file__).parent / "stand_ins"
LIBRARY = "stable_baselines3"


@pytest.fixture(autouse=True)
def stable_baselines3(monkeypatch):
    """Has something that can be imported under the library's name."""
    if importlib.util.find_spec(LIBRARY) is not None:
        yield
        return
    monkeypatch.syspath_prepend(STAND_INS)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARY]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _pools_are_closed():
    yield
    while POOLS:
        POOLS.pop().close()


def batch(kind=Walk, rows=3):
    return BatchedPyEnvironment([kind() for _ in range(rows)], multithreading=False)


def pool(kind=Walk, rows=3, backend="inline", **options):
    POOLS.append(ParallelPyEnvironment([kind] * rows, backend=backend, **options))
    return POOLS[-1]


def vector(rows=3, mode="Disabled", **options):
    make = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=9)] * rows
    vector_env = gymnasium.vector.SyncVectorEnv(make, autoreset_mode=mode)
    return GymnasiumVectorWrapper(vector_env, **options)


def cart_poles(rows=3):
    make = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=9)] * rows
    return BatchedPyEnvironment([GymnasiumWrapper(one()) for one in make])


MAKERS = {
    "batch": batch,
    "pool": pool,
    "pool that disables": lambda: pool(autoreset="disabled"),
    "pool with the same step": lambda: pool(autoreset="same_step"),
    "pool in threads": lambda: pool(backend="thread"),
}


def played(envs, steps=40, choices=3):
    """Lists what a vector environment returns: copies, as learners write into it."""
    rng = np.random.default_rng(1)
    envs.seed(5)
    results = [envs.reset()]
    for _ in range(steps):
        result = envs.step(rng.integers(0, choices, envs.num_envs))
        results.append(copy.deepcopy(result))
        result[1][...] = 77.0
    envs.close()
    return results


def plain(result):
    return [
        value.tolist() if isinstance(value, np.ndarray) else str(value)
        for value in result
    ]


# What a step returns.


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_done_row_shows_its_next_episode(make):
    """The transitions are those of single environments, with the same seeds."""
    rng = np.random.default_rng(1)
    singles = [Walk() for _ in range(3)]
    for row, single in enumerate(singles):
        single.seed(5 + row)
    seen = [single.reset().observation for single in singles]
    first, *steps = played(to_sb3(make()))
    np.testing.assert_array_equal(seen, first)

    for observations, rewards, dones, infos in steps:
        actions = rng.integers(0, 3, 3)
        for row, single in enumerate(singles):
            after = single.step(actions[row] + 1)

            assert (after.is_last(), after.reward) == (dones[row], rewards[row])
            cut = bool(after.is_last() and after.discount > 0)
            assert cut == infos[row]["TimeLimit.truncated"]
            assert dones[row] == ("terminal_observation" in infos[row])
            if dones[row]:
                final = infos[row]["terminal_observation"]
                np.testing.assert_array_equal(after.observation, final)
                after = single.reset()
            np.testing.assert_array_equal(after.observation, observations[row])


def test_results_have_the_shapes_and_dtypes_of_sb3():
    envs = to_sb3(batch())
    envs.reset()
    observations, rewards, dones, infos = envs.step([0, 1, 2])
    assert ((3, 2), np.float32) == (observations.shape, observations.dtype)
    assert ((3,), np.float32) == (rewards.shape, rewards.dtype)
    assert ((3,), np.bool_) == (dones.shape, dones.dtype)
    assert [dict] * 3 == [type(info) for info in infos]


def test_results_of_a_zero_copy_pool_are_copies():
    envs = to_sb3(pool(zero_copy=True))
    envs.reset()
    observations = [envs.step([1, 1, 1])[0] for _ in range(4)]
    copies = [observation.copy() for observation in observations]
    played(envs, 3)
    np.testing.assert_array_equal(copies, observations)


def test_a_single_environment_is_a_batch_of_one():
    single = Walk()
    envs = to_sb3(single)
    assert (1, (1, 2)) == (envs.num_envs, envs.reset().shape)
    assert single is envs.wrapped_env()
    assert (1,) == envs.step([1])[1].shape


def test_observations_may_be_dictionaries():
    envs = to_sb3(batch(Seeing))

    first = envs.reset()
    results = [envs.step([1, 1, 1]) for _ in range(LIMIT)]

    assert isinstance(envs.observation_space, spaces.Dict)
    assert {"camera": (3, 36, 36, 3), "place": (3, 2), "gear": (3,)} == {
        key: array.shape for key, array in first.items()
    }
    observations, _, dones, infos = results[-1]
    assert dones.all()
    assert [0, 0, 0] == observations["gear"].tolist()
    assert LIMIT == infos[1]["terminal_observation"]["gear"]
    assert envs.observation_space.contains(infos[1]["terminal_observation"])


def test_observations_may_be_tuples():
    envs = to_sb3(batch(EpisodeCountingEnv))
    assert [[0, 0, 0], [0, 0, 0]] == [part.tolist() for part in envs.reset()]


@pytest.mark.parametrize("make", [batch, pool, cart_poles, vector])
def test_infos_are_dictionaries_by_row(make):
    envs = to_sb3(make())
    envs.reset()
    _, _, _, infos = envs.step([0, 1, 1])
    steps = [{"steps": 1}] * 3 if make in (batch, pool) else [{}] * 3
    assert [{**info, "TimeLimit.truncated": False} for info in steps] == infos


@pytest.mark.parametrize("make", [batch, pool])
@pytest.mark.parametrize("infos", ["all", "final"])
def test_rows_do_not_change_each_others_infos(make, infos):
    class Telling(Walk):
        told = iter([{"level": 1, "_key": 2, "key": 3}, {"level": 0.5}, {}] * 2)

        def __init__(self):
            super().__init__()
            self._told = next(self.told)

        def get_info(self):
            return self._told

    envs = to_sb3(make(Telling), infos=infos)
    envs.reset()
    for _ in range(LIMIT):
        _, _, _, shown = envs.step([1, 1, 1])

    beside = ("TimeLimit.truncated", "terminal_observation")
    own = [{k: v for k, v in info.items() if k not in beside} for info in shown]
    assert [{"level": 1, "_key": 2, "key": 3}, {"level": 0.5}, {}] == own
    assert [int, float] == [type(info["level"]) for info in own[:2]]


def test_the_last_info_of_an_episode_and_the_first_of_the_next_are_both_kept():
    for make in (batch, pool, lambda: pool(autoreset="same_step")):
        envs = to_sb3(make())
        envs.reset()
        for _ in range(LIMIT):
            _, _, dones, infos = envs.step([1, 1, 1])

        assert dones.all()
        assert [LIMIT] * 3 == [info["steps"] for info in infos]
        assert [{"steps": 0}] * 3 == envs.reset_infos


@pytest.mark.parametrize(
    ("infos", "shown"), [("final", {"steps": LIMIT}), ("none", {})]
)
def test_infos_can_be_limited_to_final_ones_or_none(infos, shown):
    envs = to_sb3(batch(), infos=infos)
    envs.reset()
    results = [envs.step([1, 1, 1])[3][0] for _ in range(LIMIT)]
    assert {"TimeLimit.truncated"} == set(results[0])
    assert shown.items() <= results[-1].items()
    assert ("steps" in results[-1]) == bool(shown)


def test_environments_without_infos_and_seeds_work(caplog):
    envs = to_sb3(batch(Silent))
    envs.seed(3)
    envs.reset()
    assert {"TimeLimit.truncated": False} == envs.step([0, 1, 1])[3][2]
    (record,) = caplog.records
    assert record.getMessage().startswith("reset(seed=...) has not seeded Batched")


# Seeds and options.


def test_a_seed_is_used_once():
    envs = to_sb3(batch())
    envs.seed(5)
    first = envs.reset()
    second = envs.reset()
    envs.seed(5)
    np.testing.assert_array_equal(first, envs.reset())
    assert (first != second).all()


@pytest.mark.parametrize("make", [Walk, batch, pool])
def test_options_reach_the_environments_for_one_reset(make):
    envs = to_sb3(make())
    envs.set_options({"level": 3})
    envs.reset()
    envs.reset()
    assert [[{"level": 3}]] * envs.num_envs == envs.get_attr("options")


def test_options_reach_a_batch_for_one_reset():
    env = vector()
    seen = []
    reset = env.vector_env.reset
    env.vector_env.reset = lambda **given: (seen.append(given), reset(**given))[1]
    envs = to_sb3(env)
    envs.set_options({"low": 0.01, "high": 0.02})

    first = envs.reset()
    envs.reset()

    options = {"low": 0.01, "high": 0.02}
    assert [options, None] == [given["options"] for given in seen]
    assert ((first >= 0.01) & (first <= 0.02)).all()


@pytest.mark.parametrize("make", [batch, pool])
def test_options_that_no_environment_accepts_are_logged(make, caplog):
    envs = to_sb3(make(Silent))
    envs.set_options({"level": 3})
    envs.reset()
    kind = type(envs.wrapped_env()).__name__
    told = caplog.messages[0]
    assert told.startswith(f"reset(options=...) has not reached {kind}:")
    assert "Silent takes no reset options, and was given 'level'" in told


@pytest.mark.parametrize("make", [batch, pool])
def test_each_row_may_have_its_own_options(make):
    envs = to_sb3(make(rows=2))
    envs.set_options([{"level": 3}, {"level": 4}])
    envs.reset()
    envs.reset()
    assert [[{"level": 3}], [{"level": 4}]] == envs.get_attr("options")


# Actions.


@pytest.mark.parametrize(
    ("kind", "actions", "space", "seen"),
    [
        (Walk, np.array([0, 2]), spaces.Discrete(3), [[1], [3]]),
        (
            Dials,
            np.array([[0, 1], [2, 1]]),
            spaces.MultiDiscrete([3, 2]),
            [[1], [3]],
        ),
        # Policies of the library draw them as floats.
        (Switches, np.float32([[0, 0], [1, 1]]), spaces.MultiBinary(2), [[1], [3]]),
    ],
    ids=["choices", "rows of choices", "switches"],
)
def test_discrete_actions_count_from_0(kind, actions, space, seen):
    envs = to_sb3(batch(kind, 2))
    envs.reset()
    envs.step(actions)
    assert space == envs.action_space
    assert seen == envs.get_attr("actions")


def test_an_invalid_action_moves_nothing():
    envs = to_sb3(batch())
    envs.reset()
    with pytest.raises(SpecError):
        envs.step([0, 1, 3])
    assert [[], [], []] == envs.get_attr("actions")


def test_step_wait_without_actions_is_refused(message_of):
    envs = to_sb3(batch())
    envs.reset()
    envs.step_async([0, 0, 0])
    envs.step_wait()
    envs.step_async([0, 0, 0])
    envs.reset()
    assert (
        "step_wait() was called without actions. Call step_async(actions) first, or "
        "step(actions)."
    ) == message_of(CallOrderError, envs.step_wait)


# Orders.


def test_a_pool_switches_to_same_step():
    env = pool(autoreset="next_step")
    to_sb3(env)
    assert AutoReset.SAME_STEP is env.autoreset


@pytest.mark.parametrize(
    ("mode", "auto_reset"),
    [("SameStep", True), ("Disabled", True), ("Disabled", False)],
)
def test_vector_environments_of_gymnasium_are_accepted(mode, auto_reset):
    envs = to_sb3(vector(mode=mode, auto_reset=auto_reset))
    assert [plain(result) for result in played(to_sb3(cart_poles()), 30, 2)] == [
        plain(result) for result in played(envs, 30, 2)
    ]


# What is refused.


TAKES = "it takes a PyEnvironment, single or batched, such as a ParallelPyEnvironment."


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: to_sb3(Walk),
            TypeError,
            f"to_sb3() was given the class Walk; {TAKES}",
        ),
        (lambda: to_sb3(7), TypeError, f"to_sb3() was given 7 of type int; {TAKES}"),
        (
            lambda: to_sb3(gymnasium.vector.SyncVectorEnv),
            TypeError,
            f"to_sb3() was given the class SyncVectorEnv; {TAKES}",
        ),
        (
            lambda: to_sb3(Odd()),
            ValueError,
            "to_sb3() was given Odd, whose reward_spec() is ArraySpec(shape=(2,), "
            "dtype=float32); in Stable-Baselines3 the reward is one number.",
        ),
        (
            lambda: to_sb3(Walk(), infos="some"),
            ValueError,
            "infos must be one of 'all', 'final', 'none', got 'some'.",
        ),
        (
            lambda: to_sb3(vector(mode="NextStep")),
            ValueError,
            "to_sb3() cannot give GymnasiumVectorWrapper the autoreset_mode "
            "'SameStep': it cannot begin episodes in some rows alone (resets_rows). "
            "Its own is 'NextStep'. A ParallelPyEnvironment, and a "
            "BatchedPyEnvironment of single environments, support all modes.",
        ),
        (
            lambda: to_sb3(batch()).env_method("reset"),
            ValueError,
            "call('reset') would move environments behind the batch's back. Use "
            "reset() itself.",
        ),
        (
            lambda: copy.copy(to_sb3(batch())),
            TypeError,
            "PyToSB3 has environments and cannot be copied or pickled: make another "
            "one instead.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


def test_an_asynchronous_pool_is_refused():
    env = AsyncParallelPyEnvironment([Walk], backend="inline")
    with env, pytest.raises(TypeError):
        to_sb3(env)


def test_nested_actions_are_refused(message_of):
    env = NestedCountingEnv(nested_action=True)
    text = message_of(ValueError, lambda: to_sb3(env))
    assert text.startswith("to_sb3() was given NestedCountingEnv, whose actions are {")
    assert text.endswith(
        "; in Stable-Baselines3 an action is one array. FlattenActionWrapper makes one "
        "of several."
    )


def test_without_sb3_the_error_says_what_to_install(monkeypatch, message_of):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    from envkit.adapters import foreign

    foreign._completed.cache_clear()
    assert (
        "to_sb3() needs the package stable_baselines3, which is not installed. pip "
        'install "stable-baselines3>=2.4" "gymnasium>=1.0"'
    ) == message_of(MissingDependencyError, lambda: to_sb3(Walk()))


# Attributes and methods.


@pytest.mark.parametrize("make", [batch, pool])
def test_attributes_and_methods_reach_the_rows(make):
    envs = to_sb3(make())

    assert [1, 1, 1] == envs.get_attr("level")
    assert [2, 2] == envs.env_method("raise_level", indices=[0, 2])
    assert [5] == envs.env_method("raise_level", by=3, indices=2)
    envs.set_attr("level", 9, indices=[1])
    assert [2, 9, 5] == envs.get_attr("level")
    assert [5, 2] == envs.get_attr("level", [2, 0])
    assert [5] == envs.get_attr("level", indices=-1)
    envs.set_attr("level", [1, 2])
    assert [[1, 2]] * 3 == envs.get_attr("level")
    assert envs.has_attr("level")
    assert not envs.has_attr("nowhere")


@pytest.mark.parametrize("make", [batch, pool])
def test_indices_choose_the_rows(make):
    envs = to_sb3(make())
    envs.set_attr("mark", 3, indices=1)
    assert [3] == envs.get_attr("mark", indices=1)
    assert [] == envs.get_attr("mark", indices=[])
    assert [] == envs.env_method("raise_level", indices=[])
    assert envs.set_attr("level", 9, indices=[]) is None
    assert [1, 1, 1] == envs.get_attr("level")


def test_indices_choose_the_rows_of_a_pool():
    envs = to_sb3(pool())
    envs.set_attr("level", [7, 8], indices=[2, 0])
    assert [[7, 8], 1] == envs.env_method("level", indices=[2, 1])


def test_a_batch_in_a_worker_answers_for_its_rows(message_of):
    envs = to_sb3(pool(lambda: CartPole(batch_size=2), 2))
    assert [2] * 4 == envs.env_method("batch_size")
    assert (
        "ParallelPyEnvironment has several rows in one object, which cannot be asked "
        "about rows 0, 1 alone. Leave the indices out."
    ) == message_of(ValueError, lambda: envs.env_method("batch_size", indices=[0, 1]))


def test_attributes_of_a_gymnasium_vector_environments_rows_are_readable():
    envs = to_sb3(vector(mode="SameStep"))
    assert [0.5, 0.5] == envs.get_attr("length", [0, 1])
    assert [0.5] == envs.env_method("get_wrapper_attr", "length", indices=[2])
    envs.set_attr("length", 0.7, indices=[1])
    assert [0.5, 0.7, 0.5] == envs.get_attr("length")


def test_a_natively_batched_environment_answers_for_all_rows(message_of):
    envs = to_sb3(CartPole(batch_size=3))
    envs.reset()

    assert [3, 3] == envs.get_attr("batch_size", [0, 1])
    assert [3, 3, 3] == [
        len(info["terminated"]) for info in envs.env_method("get_info")
    ]
    assert (
        "CartPole has several rows in one object, which cannot be asked about rows 0, "
        "1 alone. Leave the indices out."
    ) == message_of(ValueError, lambda: envs.env_method("get_info", indices=[0, 1]))


def test_an_invalid_index_is_refused():
    with pytest.raises(IndexError):
        to_sb3(batch()).get_attr("level", 3)


def test_env_is_wrapped_finds_wrappers_in_this_process():
    first = TimeLimit(GymnasiumWrapper(gymnasium.make("CartPole-v1")), 5)
    envs = to_sb3(BatchedPyEnvironment([first, *cart_poles(1).envs]))
    assert [True, False] == envs.env_is_wrapped(TimeLimit)
    assert [True, True] == envs.env_is_wrapped(gymnasium.wrappers.TimeLimit)
    assert [False] == envs.env_is_wrapped(gymnasium.wrappers.RecordVideo, [1])


@pytest.mark.parametrize(
    ("make", "is_wrapped"),
    [
        (lambda: TimeLimit(batch(), 5), True),
        (lambda: TimeLimit(CartPole(batch_size=3), 5), True),
        (lambda: CartPole(batch_size=3), False),
        (lambda: pool(lambda: TimeLimit(Walk(), 5)), True),
        (lambda: TimeLimit(pool(), 5), True),
        (pool, False),
    ],
    ids=["rows", "one object", "not at all", "in workers", "a pool", "workers"],
)
def test_env_is_wrapped_finds_wrappers_around_a_batch(make, is_wrapped):
    assert [is_wrapped] * 3 == to_sb3(make()).env_is_wrapped(TimeLimit)


def monitored(number):
    """Makes environments some of which are in wrappers, Gymnasium's and envkit's."""
    game = gymnasium.make("CartPole-v1")
    if number == 1:
        game = gymnasium.wrappers.RecordEpisodeStatistics(game)
    env = GymnasiumWrapper(game)
    return TimeLimit(env, 5) if number == 2 else env


@pytest.mark.parametrize("backend", ["process", "inline"])
def test_env_is_wrapped_finds_wrappers_in_workers(backend):
    makers = [functools.partial(monitored, number) for number in range(3)]
    env = ParallelPyEnvironment(makers, backend=backend, num_workers=1)
    envs = to_sb3(env)
    statistics = gymnasium.wrappers.RecordEpisodeStatistics
    assert [False, False, True] == envs.env_is_wrapped(TimeLimit)
    assert [False, True, False] == envs.env_is_wrapped(statistics)
    assert [True] * 3 == envs.env_is_wrapped(gymnasium.wrappers.TimeLimit)
    assert [True, False] == envs.env_is_wrapped(TimeLimit, [2, 0])
    assert [False, True] == env.env_is_wrapped(TimeLimit, env_ids=[0, 2])
    envs.close()


def test_env_is_wrapped_finds_wrappers_of_a_batch_in_a_worker():
    def two():
        return BatchedPyEnvironment([Walk(), TimeLimit(Walk(), 5)])

    envs = to_sb3(pool(two, 2))

    assert [False, True] * 2 == envs.env_is_wrapped(TimeLimit)


def test_env_is_wrapped_finds_wrappers_inside_gymnasium_vector_environments():
    envs = to_sb3(vector(mode="SameStep"))
    assert [True] * 3 == envs.env_is_wrapped(gymnasium.wrappers.TimeLimit)


# Pictures, and the end.


@pytest.mark.parametrize("make", [batch, pool, Walk])
def test_pictures_come_from_every_row(make):
    envs = to_sb3(make())
    envs.reset()
    envs.step([1] * envs.num_envs)
    pictures = envs.get_images()
    assert "rgb_array" == envs.render_mode
    assert [(4, 6, 3)] * envs.num_envs == [picture.shape for picture in pictures]
    assert {10} == {int(picture.max()) for picture in pictures}


def test_environments_without_pictures_render_none():
    envs = to_sb3(cart_poles())
    assert envs.render_mode is None
    with pytest.warns(UserWarning, match="The render mode is None, and pictures are"):
        assert [None] * 3 == envs.get_images()


@pytest.mark.parametrize("make", [batch, pool])
def test_the_metadata_comes_from_the_environments(make):
    class Filmed(Walk):
        metadata = {"render_fps": 4}  # noqa: RUF012  # Gymnasium's way

    assert 4 == to_sb3(make(Filmed)).metadata["render_fps"]
    assert 30 == to_sb3(make()).metadata["render_fps"]


def test_the_render_mode_can_be_chosen():
    envs = to_sb3(batch(), render_mode="human")
    assert ["human"] * 3 == envs.get_attr("render_mode")
    assert "human" in envs.metadata["render_modes"]


@pytest.mark.parametrize(
    "make", [lambda: Catch(batch_size=2), lambda: BatchedPyEnvironment([Catch()])]
)
def test_human_mode_renders_every_environment(make, pygame, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    envs = to_sb3(make(), render_mode="human")
    envs.reset()
    assert (None, None) == (envs.render(), envs.render("human"))
    assert pygame.display.get_surface() is not None
    envs.close()
    assert pygame.display.get_surface() is None


def test_closing_closes_the_environments():
    env = pool()
    to_sb3(env).close()
    with pytest.raises(RuntimeError):
        env.reset()
