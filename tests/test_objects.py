"""Environments of other libraries, wherever envkit takes an environment."""

from __future__ import annotations

import functools
import importlib
import os
import signal
from typing import Any

import numpy as np
import pytest

import envkit.wrappers
from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    RandomPolicy,
    make,
)
from envkit._internal.entry_points import loaded, own
from envkit.errors import ConstructorError
from envkit.policies import random_actions
from envkit.testing import CheckFailed, CountingEnv, check_environment
from envkit.utils import validate_py_environment
from envkit.wrappers import TimeLimit, wrap
from tests.foreign_packages import Packages

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

OURS = "gymnasium:CartPole-v1"


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def pettingzoo(kind: str) -> Any:
    games = importlib.import_module("tests.adapters.pettingzoo_games")
    return getattr(games, kind)()


def dm_control() -> Any:
    return importlib.import_module("dm_control.suite").load("cartpole", "balance")


def bsuite() -> Any:
    return importlib.import_module("bsuite").load_from_id("catch/0")


def envpool() -> Any:
    return importlib.import_module("envpool").make_gymnasium("CartPole-v1", num_envs=2)


def minigrid() -> Any:
    return importlib.import_module("minigrid.envs").EmptyEnv(size=5)


def atari() -> Any:
    return importlib.import_module("ale_py").AtariVectorEnv("pong", num_envs=2)


OBJECTS = {
    "Gymnasium": (cartpole, "GymnasiumWrapper", "gymnasium"),
    "Gymnasium's base class": (
        lambda: cartpole().unwrapped,
        "GymnasiumWrapper",
        "gymnasium",
    ),
    "Gymnasium's vectors": (
        lambda: gymnasium.make_vec("CartPole-v1", num_envs=2),
        "GymnasiumVectorWrapper",
        "gymnasium",
    ),
    "MiniGrid": (minigrid, "GymnasiumWrapper", "minigrid"),
    "ale-py's vectors": (atari, "AtariVectorWrapper", "ale_py"),
    "bsuite": (bsuite, "DmEnvWrapper", "bsuite"),
    "dm_control": (dm_control, "DmControlWrapper", "dm_control"),
    "EnvPool": (envpool, "EnvPoolWrapper", "envpool"),
    "PettingZoo, all at once": (
        functools.partial(pettingzoo, "Meadow"),
        "PettingZooWrapper",
        "pettingzoo",
    ),
    "PettingZoo, in turns": (
        functools.partial(pettingzoo, "Auction"),
        "PettingZooAECWrapper",
        "pettingzoo",
    ),
}


@pytest.mark.parametrize(
    ("make_object", "wrapper", "package"), OBJECTS.values(), ids=OBJECTS
)
def test_make_wraps_an_environment_of_a_library(make_object, wrapper, package):
    pytest.importorskip(package, reason=f"{package} is not installed")
    with make(make_object()) as env:
        assert wrapper == type(env).__name__
        env.reset()
    with make(make_object) as env:
        assert wrapper == type(env).__name__


# Also for libraries that are not installed.
@pytest.mark.parametrize("name", own("envkit.objects"))
def test_the_wrapper_of_every_known_class_exists(name):
    try:
        wrapper = loaded(own("envkit.objects")[name])
    except ImportError as error:
        pytest.skip(f"it needs {error.name}")
    assert callable(wrapper)


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
def test_a_pool_of_library_objects_steps_as_one_of_names(backend):
    with (
        ParallelPyEnvironment([cartpole] * 2, backend=backend) as ours,
        ParallelPyEnvironment([OURS] * 2, backend="inline") as theirs,
    ):
        for env in (ours, theirs):
            env.seed(7)
        assert np.array_equal(ours.reset().observation, theirs.reset().observation)
        for action in ([0, 1], [1, 1], [1, 0]):
            mine, other = ours.step(action), theirs.step(action)
            assert np.array_equal(mine.observation, other.observation)
        saved = ours.get_state()
        step = ours.step([1, 0])
        ours.set_state(saved)
        assert np.array_equal(step.observation, ours.step([1, 0]).observation)


def test_a_killed_worker_continues_a_library_object_where_it_was():
    policy = envkit.RestartPolicy(recover="replay")
    makers = [lambda: gymnasium.make("CartPole-v1")]
    with (
        ParallelPyEnvironment(
            makers, start_method="fork", on_worker_failure=policy
        ) as env,
        ParallelPyEnvironment(makers, backend="inline") as undisturbed,
    ):
        for pool in (env, undisturbed):
            pool.seed(7)
            pool.reset()
            pool.step([1])
        os.kill(env.statistics().workers[0].pid, signal.SIGKILL)
        after, expected = env.step([1]), undisturbed.step([1])
        assert np.array_equal(expected.observation, after.observation)


def test_a_process_and_an_asynchronous_pool_take_library_objects():
    with ProcessPyEnvironment(cartpole, start_method="fork") as env:
        assert (4,) == env.reset().observation.shape
    with AsyncParallelPyEnvironment([cartpole] * 2, backend="inline") as env:
        env.reset_async()
        assert 4 == env.recv().time_step.observation.shape[1]


def test_batches_and_wrappers_take_library_objects():
    with BatchedPyEnvironment([cartpole(), cartpole()]) as env:
        assert (2, 4) == env.reset().observation.shape
    with wrap(cartpole(), [TimeLimit, 2]) as env:
        assert "GymnasiumWrapper" == type(env.wrapped_env()).__name__
        env.reset()
        assert [False, True] == [bool(env.step(0).is_last()) for _ in range(2)]


def test_closing_a_wrapper_closes_the_library_object():
    inner = gymnasium.make("CartPole-v1")
    closed = []
    inner.unwrapped.close = lambda: closed.append(inner)
    with TimeLimit(inner, 2):
        pass
    assert [inner] == closed


WRAPPERS: list[tuple[str, Any, dict[str, Any]]] = [
    ("DelayAction", (1,), {}),
    ("DelayObservation", (1,), {}),
    ("ExtraDisabledActionsWrapper", (2,), {}),
    ("FixedLength", (5,), {}),
    ("EpisodeLimit", (5,), {}),
    ("FlattenActionWrapper", (), {}),
    ("FlattenObservationsWrapper", (), {}),
    ("FrameStack", (4,), {}),
    ("HistoryWrapper", (2,), {"include_actions": True}),
    ("NormalizeObservation", (), {}),
    ("NormalizeReward", (), {}),
    ("PassiveChecker", (), {}),
    ("PrivateRandomness", (), {}),
    ("RunStats", (), {}),
    ("StickyAction", (0.5,), {}),
    ("TimeAwareObservation", (), {}),
]


@pytest.mark.parametrize(
    ("name", "arguments", "more"), WRAPPERS, ids=[name for name, *_ in WRAPPERS]
)
def test_every_wrapper_takes_library_objects(name, arguments, more):
    wrapper = getattr(envkit.wrappers, name)
    with wrapper(cartpole(), *arguments, **more) as env:
        env.reset()
        assert np.isfinite(env.step(env.action_spec().minimum).reward)


def test_checks_and_policies_take_library_objects():
    assert () == check_environment(cartpole, steps=50).failed
    validate_py_environment(cartpole(), episodes=1)
    env = cartpole()
    with make(env) as wrapped:
        assert int(random_actions(env, 7)(wrapped.reset())) in (0, 1)


def test_an_object_made_twice_by_one_constructor_is_refused():
    shared = cartpole()
    with pytest.raises(ConstructorError, match="has returned already"):
        ParallelPyEnvironment([lambda: shared] * 2, backend="inline")
    with pytest.raises(ValueError, match="are the same object"):
        BatchedPyEnvironment([shared, shared])
    with pytest.raises(CheckFailed, match="the same TimeLimit object twice"):
        check_environment(lambda: shared, steps=10)


def test_arguments_of_make_go_to_the_wrapper():
    env = make(cartpole(), discount=0.5, seed=7)
    first = env.reset()
    assert 0.5 == env.step(0).discount
    assert np.array_equal(make(OURS, seed=7).reset().observation, first.observation)


POOL = "ParallelPyEnvironment"
ADVICE = (
    "Its reset() and step() are not enough: derive its class from PyEnvironment or "
    "gymnasium.Env, or write an Adapter (docs/supporting_a_new_library.md)."
)


class Lookalike:
    def reset(self) -> Any: ...
    def step(self, action: Any) -> Any: ...


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ParallelPyEnvironment([cartpole()]),
            f"env_constructors[0] is a CartPoleEnv object; {POOL} needs something to "
            "call that makes one.\n\n"
            "Each environment is built inside its own worker, so pass the recipe:\n\n"
            f"  {POOL}([CartPoleEnv(...)])                       # the finished dish\n"
            f"  {POOL}([functools.partial(CartPoleEnv, ...)])    # the recipe\n"
            f'  {POOL}(["gymnasium:CartPole-v1"])                # the recipe, by name',
        ),
        (
            lambda: ParallelPyEnvironment(cartpole()),
            f"env_constructors is a TimeLimit object; {POOL} needs a list with one "
            "constructor for each environment:\n\n"
            f'  {POOL}(["gymnasium:CartPole-v1"] * 8)\n'
            f"  {POOL}([MyEnv] * 8)",
        ),
        (
            lambda: RandomPolicy(cartpole()),
            "RandomPolicy takes the specs of an action, such as env.action_spec(); "
            "random_actions(env) takes an environment.",
        ),
        (
            lambda: make(cartpole(), num_envs=2),
            "The target is a CartPoleEnv object; a target is something to call that "
            "makes one, or a name.\n\n"
            "  CartPoleEnv(...)           # the finished dish\n"
            "  CartPoleEnv                # the recipe\n"
            '  "gymnasium:CartPole-v1"    # the recipe, by name',
        ),
        (
            lambda: TimeLimit(type(cartpole().unwrapped), 2),
            "TimeLimit wraps an environment, not the class CartPoleEnv. Did you mean "
            "CartPoleEnv()?",
        ),
        (
            lambda: TimeLimit(Lookalike(), 2),
            f"TimeLimit wraps an environment, not a Lookalike object. {ADVICE}",
        ),
        (
            lambda: TimeLimit(OURS, 2),
            "TimeLimit wraps an environment, not the string 'gymnasium:CartPole-v1'. "
            "Did you mean make('gymnasium:CartPole-v1')?",
        ),
        (
            lambda: BatchedPyEnvironment([Lookalike()]),  # type: ignore[list-item]
            f"envs[0] is a Lookalike object, not an environment. {ADVICE}",
        ),
        (
            lambda: make(Lookalike),
            "constructor('tests.test_objects:Lookalike') returned a Lookalike object, "
            "not an environment. A constructor must return a PyEnvironment, or an "
            f"environment of a library that envkit knows. {ADVICE}",
        ),
    ],
    ids=[
        "pool",
        "no list",
        "policy",
        "make",
        "class",
        "wrapper",
        "name",
        "batch",
        "constructor",
    ],
)
def test_what_is_no_environment_is_told_what_to_write(call, message, message_of):
    assert message == message_of((TypeError, ConstructorError), call)


MAZES = """
from envkit.testing import CountingEnv

class Maze:
    pass

class Small(Maze):
    pass

def wrapped(maze):
    return CountingEnv(steps_per_episode=3)
"""


def test_a_package_adds_the_wrapper_of_its_objects(tmp_path, monkeypatch):
    Packages(tmp_path, monkeypatch).install(
        {"mazes": MAZES}, {"envkit.objects": {"mazes.Maze": "mazes:wrapped"}}
    )
    mazes = importlib.import_module("mazes")
    assert isinstance(make(mazes.Small()), CountingEnv)
    with ParallelPyEnvironment([mazes.Small], backend="inline") as env:
        assert [0] == env.reset().observation.tolist()


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: make(OURS, num_env=2), "Did you mean num_envs, which makes a pool?"),
        (
            lambda: make("CartPole", n_envs=2),
            "Did you mean num_envs, which makes a pool?",
        ),
        (
            lambda: make(CountingEnv, num_worker=2),
            "Did you mean num_workers, an option of pools?",
        ),
        (
            lambda: make(OURS, num_envs=2, backend="inline", num_worker=2),
            "Did you mean num_workers, an option of pools?",
        ),
        (lambda: make("GridWorld", sizes=5), "Did you mean size?"),
        (lambda: make(CountingEnv, level=5), "It takes steps_per_episode, dtype."),
        (
            lambda: make(OURS, num_envs=2, backend="inline", shared_memory=True),
            "The environments of a pool always write into shared memory.",
        ),
        (
            lambda: make(OURS, batch_size=4),
            "This environment makes no batches itself: write num_envs=4, which makes "
            "a pool.",
        ),
        (
            lambda: make(OURS, vectorization_mode="async"),
            "num_envs=8 makes a pool, and its option backend= is 'process', 'thread' "
            "or 'inline'.",
        ),
        (
            lambda: make("Catch", max_episode_steps=5),
            "TimeLimit(env, 5) ends episodes after that many steps.",
        ),
        (
            lambda: make("Catch", render_mode="rgb_array"),
            "This environment needs none: call env.render('rgb_array').",
        ),
        (
            lambda: make(cartpole(), render_mode="rgb_array"),
            "Pass it where the object is made: gymnasium.make(..., "
            "render_mode='rgb_array').",
        ),
    ],
)
def test_make_says_what_to_write_for_a_refused_argument(call, hint):
    with pytest.raises((TypeError, ConstructorError)) as raised:
        call()
    first = str(raised.value).partition("\n")[0]
    assert hint in first


def unseeded() -> Any:
    return cartpole()


def with_seed(seed: int) -> Any:
    env = make(OURS)
    env.seed(seed)
    return env


@pytest.mark.parametrize("target", [OURS, unseeded, with_seed, "CartPole"])
def test_seed_makes_the_same_episodes_as_seeding(target):
    seeded = make("CartPole" if target == "CartPole" else OURS)
    seeded.seed(7)
    expected = seeded.reset().observation
    assert np.array_equal(expected, make(target, seed=7).reset().observation)


@pytest.mark.parametrize("target", [OURS, unseeded, with_seed, "CartPole"])
def test_seed_gives_each_row_of_a_pool_its_own(target):
    name = "CartPole" if target == "CartPole" else OURS
    with (
        make(name, num_envs=2, backend="inline") as other,
        make(target, num_envs=2, backend="inline", seed=7) as env,
    ):
        expected = other.reset(seed=7).observation
        assert np.array_equal(expected, env.reset().observation)
        assert not np.array_equal(expected[0], expected[1])


class Unseedable(CountingEnv):
    def seed(self, seed: Any) -> Any:
        raise NotImplementedError("Unseedable cannot be seeded.")


@pytest.mark.parametrize("options", [{}, {"num_envs": 2, "backend": "inline"}])
def test_an_environment_that_cannot_be_seeded_says_so(options):
    with pytest.raises(NotImplementedError, match="Unseedable cannot be seeded"):
        make(Unseedable, seed=7, **options)
