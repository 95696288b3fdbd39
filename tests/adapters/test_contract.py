"""What the adapters of all libraries promise, each with environments of its library."""

from __future__ import annotations

import copy
import functools
import pickle
from collections import UserDict

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envkit import BatchedPyEnvironment, ParallelPyEnvironment, nest
from envkit.adapters import (
    DmControlWrapper,
    DmEnvWrapper,
    GymnasiumVectorWrapper,
    GymnasiumWrapper,
    GymWrapper,
)
from envkit.adapters.foreign import LateBase, as_info, require, take_flags
from envkit.errors import ClosedError, MissingDependencyError
from envkit.specs import sample_spec_nest
from envkit.testing import check_environment
from tests.adapters.dm_env_examples import Dice, Noise, Walk
from tests.adapters.gym_spaces import WANTS_SETTLED, Interval, same
from tests.adapters.old_gyms import Gym17, gym17, gym23, gym26


class Nested(gymnasium.Env):
    """Has a nest of everything, ends by chance, and reuses what it can."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # Gymnasium's way
    render_mode = "rgb_array"
    observation_space = spaces.Dict(
        place=spaces.Box(-1, 1, (2,), np.float32),
        news=spaces.Tuple((spaces.Text(4), spaces.MultiBinary(3))),
        level=spaces.Discrete(3, start=-1),
    )
    action_space = spaces.Dict(
        way=spaces.MultiDiscrete([2, 3], start=[1, -1]),
        word=spaces.Text(4),
        push=spaces.Box(-1, 1, (2,), np.float64),
    )

    def __init__(self):
        self.picture = np.zeros((4, 4, 3), np.uint8)

    def _observation(self):
        return {
            "place": self._place,
            "news": ("left", [1, 0, 1]),
            "level": self._steps % 3 - 1,
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        self._place = np.zeros(2, np.float32)
        return self._observation(), {"steps": 0}

    def step(self, action):
        assert self.action_space.contains(action)
        self._steps += 1
        self._place[:] = self.np_random.uniform(-1, 1, 2)
        terminated, truncated = self._place[0] > 0.7, self._steps > 15
        info = {"steps": self._steps}
        return self._observation(), action["push"][0], terminated, truncated, info

    def render(self):
        self.picture[:] = self._steps
        return self.picture


class Odd(gymnasium.Env):
    """Has spaces of every kind, text of certain letters and objects among them."""

    observation_space = spaces.Dict(
        path=spaces.Sequence(spaces.Discrete(9)),
        map=spaces.Graph(spaces.Box(-1, 1, (2,), np.float64), None),
        thing=spaces.OneOf([spaces.Discrete(3, start=5), spaces.Text(3)]),
        word=spaces.Text(5, min_length=1, charset="ab"),
    )
    action_space = spaces.Tuple(
        [
            Interval(5),
            spaces.OneOf([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
            spaces.Text(3, charset="xy"),
        ]
    )

    def _observation(self):
        numbers = self.np_random.integers(0, 9, 4).tolist()
        nodes = self.np_random.uniform(-1, 1, (1 + numbers[0], 2))
        number = np.int64(5 + numbers[1] % 3)
        return {
            "path": tuple(np.int64(number) for number in numbers),
            "map": spaces.GraphInstance(nodes, None, None),
            "thing": (1, "abc") if self._steps % 2 else (0, number),
            "word": "b" * (1 + numbers[2] % 5),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._steps += 1
        reward = float(action[0][0] + action[1][0])
        return self._observation(), reward, self._steps >= 5, False, {}


def odd():
    return GymnasiumWrapper(Odd())


def short_games():
    make = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=8)
    return GymnasiumVectorWrapper(gymnasium.vector.SyncVectorEnv([make] * 2))


def entry_point():
    return GymnasiumVectorWrapper(
        gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    )


WHOLE = ["episodes", "info", "render", "seed", "state"]
# By library: what makes an environment, and what it can.
ADAPTED = {
    "gym 0.17": (lambda: GymWrapper(gym17(), 0.9), WHOLE),
    "gym 0.23": (lambda: GymWrapper(gym23(), 0.9), WHOLE),
    "gym 0.26": (lambda: GymWrapper(gym26(), 0.9), WHOLE),
    "gymnasium": (lambda: GymnasiumWrapper(Nested()), WHOLE),
    "every space": (odd, ["episodes", "seed", "state"]),
    "vectors": (short_games, ["episodes", "info", "seed", "state"]),
    "vector entry point": (entry_point, ["seed"]),
    "dm_env": (
        lambda: DmEnvWrapper(Walk(random=np.random.RandomState(0))),
        ["episodes", "seed", "state"],
    ),
    "dm_env within": (
        lambda: DmEnvWrapper(Noise(Dice())),
        ["episodes", "seed", "state"],
    ),
}


@pytest.mark.parametrize("name", ADAPTED)
@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
def test_adapters_pass_check_environment(name):
    make, features = ADAPTED[name]
    check_environment(make, steps=100, require=features)


@pytest.mark.parametrize(
    ("name", "gather"),
    [
        ("gym 0.23", "pool"),
        ("gymnasium", "batch"),
        ("vectors", "pool"),
        ("dm_env within", "pool"),
    ],
)
def test_batches_of_adapters_pass_check_environment(name, gather):
    one, features = ADAPTED[name]

    def make():
        if gather == "pool":
            return ParallelPyEnvironment([one] * 2, backend="inline")
        return BatchedPyEnvironment([one(), one()], multithreading=False)

    rows = ["masked_reset", "held_rows"] if name != "vectors" else []
    check_environment(make, steps=60, require=[*features, *rows])


@WANTS_SETTLED
def test_objects_arrive_unchanged_from_worker_processes():
    batch = BatchedPyEnvironment([odd(), odd()], multithreading=False)
    with ParallelPyEnvironment([odd, odd], num_workers=1) as pool:
        assert batch.observation_spec() == pool.observation_spec()
        assert batch.action_spec() == pool.action_spec()
        for env in (batch, pool):
            env.seed(3)
        time_steps = [(batch.reset(), pool.reset())]
        actions = np.random.default_rng(0)
        for _ in range(7):
            action = sample_spec_nest(batch.action_spec(), actions, (2,))
            time_steps.append((batch.step(action), pool.step(action)))

    for ours, theirs in time_steps:
        for expected, actual in zip(
            nest.flatten(ours), nest.flatten(theirs), strict=True
        ):
            assert same(expected.tolist(), actual.tolist())


# By class: what makes one, where the library's environment is, and a name of its own.
FOREIGN = {
    "GymWrapper": (ADAPTED["gym 0.17"][0], "gym", "np_random"),
    "GymnasiumWrapper": (ADAPTED["gymnasium"][0], "gym", "picture"),
    "GymnasiumVectorWrapper": (short_games, "vector_env", "observation_mode"),
    "DmEnvWrapper": (ADAPTED["dm_env"][0], "dm_env", "actions"),
}
every_class = pytest.mark.parametrize("kind", FOREIGN)


@every_class
def test_closing_twice_closes_once(kind, message_of):
    make, within, _ = FOREIGN[kind]
    env = make()
    first = env.reset()
    closings = []
    theirs = getattr(env, within)
    theirs.close, close = lambda **_: closings.append(1), theirs.close
    env.close()
    env.close()
    assert [1] == closings
    close()

    calls = {
        "reset": env.reset,
        "step": lambda: env.step(first.observation),
        "render": env.render,
    }
    for name, call in calls.items():
        assert (
            f"{kind}.{name}() was called after close(). A closed environment stays "
            "closed: make a new one."
        ) == message_of(ClosedError, call)


@every_class
def test_public_attributes_of_the_wrapped_environment_are_forwarded(kind, message_of):
    make, within, name = FOREIGN[kind]
    env = make()
    theirs = getattr(env, within)
    assert getattr(theirs, name) is getattr(env, name)
    for missing in ("colour", "_secret"):
        theirs._secret = 1
        text = message_of(AttributeError, lambda: getattr(env, missing))  # noqa: B023
        assert f"'{kind}' object has no attribute {missing!r}" == text


NO_VECTOR = "which is not a vector environment of Gymnasium."
NOT_ALONE = "it takes a single environment."


class Rows(Gym17):
    """A vector environment, as one of the old Gym looks."""

    single_observation_space = None


@pytest.mark.parametrize(
    ("kind", "thing", "text"),
    [
        (GymWrapper, "CartPole-v1", "the string 'CartPole-v1', {gym}"),
        (GymWrapper, None, "None, {gym}"),
        (GymWrapper, Gym17, "the class Gym17, {gym}"),
        (GymWrapper, Rows(), f"the vector environment Rows; {NOT_ALONE}"),
        (GymnasiumWrapper, "CartPole-v1", "the string 'CartPole-v1', {gymnasium}"),
        (GymnasiumWrapper, None, "None, {gymnasium}"),
        (GymnasiumWrapper, Odd, "the class Odd, {gymnasium}"),
        (
            GymnasiumWrapper,
            gymnasium.vector.SyncVectorEnv([Odd]),
            f"the vector environment SyncVectorEnv; {NOT_ALONE}",
        ),
        (
            GymnasiumVectorWrapper,
            Odd(),
            f"an Odd object, {NO_VECTOR} GymnasiumWrapper takes a single environment.",
        ),
        (
            GymnasiumVectorWrapper,
            gymnasium.vector.SyncVectorEnv,
            f"the class SyncVectorEnv, {NO_VECTOR} gymnasium.make_vec(...) makes one.",
        ),
        (
            GymnasiumVectorWrapper,
            7,
            f"7 of type int, {NO_VECTOR} gymnasium.make_vec(...) makes one.",
        ),
        (DmEnvWrapper, "cartpole", "the string 'cartpole', {dm_env}"),
        (DmEnvWrapper, Walk, "the class Walk, {dm_env}"),
        (DmControlWrapper, "cartpole", "the string 'cartpole', {dm_env} {suite}"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_object_of_another_library_is_refused(kind, thing, text, message_of):
    expected = text.format(
        gym="which is not an environment of Gym. gym.make(...) makes one.",
        gymnasium="which is not an environment of Gymnasium. gymnasium.make(...) makes "
        "one.",
        dm_env="which is not a dm_env.Environment.",
        suite="dm_control.suite.load(domain, task) makes one.",
    )
    assert f"{kind.__name__} was given {expected}" == message_of(
        TypeError, lambda: kind(thing)
    )


@pytest.mark.parametrize("discount", [-0.5, 1.5, float("nan")])
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (GymWrapper, gym17),
        (GymnasiumWrapper, Odd),
        (
            GymnasiumVectorWrapper,
            lambda: gymnasium.vector.SyncVectorEnv([Odd]),
        ),
    ],
)
def test_a_discount_must_lie_between_0_and_1(kind, make, discount, message_of):
    assert f"discount must be between 0 and 1, got {discount}." == message_of(
        ValueError, lambda: kind(make(), discount=discount)
    )


# Libraries that are not installed.


def test_require_does_not_import_an_installed_package():
    assert require("this", needed_by="Poetry", extra="test") is None


def test_the_error_names_the_missing_package():
    with pytest.raises(MissingDependencyError) as caught:
        require("no_such_package", needed_by="This test", extra="test")
    assert (
        "This test needs the package no_such_package, which is not installed. "
        "pip install no_such_package"
    ) == str(caught.value)
    assert ("no_such_package", "test") == (caught.value.package, caught.value.extra)


def test_a_folder_with_the_name_of_a_package_does_not_count_as_installed(
    tmp_path, monkeypatch
):
    (tmp_path / "some_library").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError):
        require("some_library", needed_by="This test", extra="test")


# Infos and the flags in them.


@pytest.mark.parametrize("make", [bool, np.bool_, np.array])
def test_flags_of_any_boolean_type_are_taken_out(make):
    info = {"terminated": make(True), "lives": 2, "truncated": make(False)}
    assert (True, False) == take_flags(info)
    assert {"lives": 2} == info


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"terminated": True},
        {"truncated": np.array(True)},
        {"terminated": 1, "truncated": 0},
        {"terminated": True, "truncated": "no"},
        {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)},
    ],
)
def test_incomplete_or_invalid_flags_stay_in_the_info(info):
    before = dict(info)
    assert take_flags(info) is None
    assert before.keys() == info.keys()


def test_as_info_copies_a_dictionary():
    info = {"lives": 2}
    as_info(info)["lives"] = 3
    assert {"lives": 2} == info


def test_as_info_puts_other_values_into_a_dictionary():
    assert {"info": (1, 2)} == as_info((1, 2))


# A class whose second base comes late is a class like any other.


class Settings(LateBase):
    """Keeps what it is given, and says how often that was."""

    times = 0

    @classmethod
    def _load_base(cls):
        return UserDict

    def __init__(self, **given):
        super().__init__(given)

    def update(self, *args):
        self.times += 1
        super().update(*args)


class Careful(Settings):
    """Inherits further."""


def test_an_object_is_an_instance_of_the_class_and_its_late_base():
    settings = Settings(speed=2)
    assert (True, True) == (
        isinstance(settings, Settings),
        isinstance(settings, UserDict),
    )


def test_super_reaches_the_late_base():
    settings = Settings(speed=2)
    settings.update({"speed": 3})
    assert ({"speed": 3}, 2) == (settings.data, settings.times)


def test_all_objects_of_a_class_share_one_completed_class():
    assert type(Settings()) is type(Settings())
    assert "Settings" == type(Settings()).__name__


def test_the_completed_class_is_callable():
    assert type(Settings()) is type(type(Settings())(speed=2))


def test_a_subclass_is_completed_separately():
    careful = Careful(speed=2)
    assert (True, True, "Careful") == (
        isinstance(careful, Settings),
        isinstance(careful, UserDict),
        type(careful).__name__,
    )


def test_an_object_can_be_copied_and_pickled():
    settings = Settings(speed=[2])
    for twin in (copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        twin["speed"].append(3)
        assert ([2, 3], [2], 1) == (twin["speed"], settings["speed"], twin.times)
        assert type(twin) is type(settings)
