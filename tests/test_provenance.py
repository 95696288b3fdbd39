"""Where environments come from: ids, versions, arguments, seeds, states of others."""

from __future__ import annotations

import collections
import functools
import json
import pathlib
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import envkit
from envkit import (
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    constructor,
    make,
    nest,
    register,
    registry,
)
from envkit.blocking import Blocking
from envkit.envs import Catch
from envkit.provenance import (
    MadeBy,
    PlainDataError,
    VersionWarning,
    dumped,
    from_plain,
    loaded,
    to_plain,
    version_of,
)
from envkit.py_environment import EnvironmentState
from envkit.realtime import RealTimeEnvironment
from envkit.testing import CountingEnv
from envkit.wrappers import FrameStack, TimeLimit
from tests import strategies

HERE = __name__


def make_maze(level=1, size=(3, 4)):
    return CountingEnv(steps_per_episode=level)


def make_wrapped(duration=5):
    return TimeLimit(make("CartPole-v1"), duration)


@pytest.fixture
def maze(monkeypatch):
    """Has two versions of an environment."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    register("Maze-v1", CountingEnv)
    register("Maze-v2", f"{HERE}:make_maze")


# Versions.


@pytest.mark.parametrize(
    ("identifier", "version"),
    [
        ("Maze-v2", 2),
        ("Maze-v0", 0),
        ("gymnasium:Pong-v5", 5),
        ("Maze", None),
        ("a-v2:make", None),
        # There is one way to write a version, and something comes before it.
        ("Maze-v02", None),
        ("Maze-v2\n", None),
        ("-v2", None),
    ],
)
def test_an_id_ends_in_its_version(identifier, version):
    assert version == version_of(identifier)


@pytest.mark.usefixtures("maze")
def test_a_name_without_a_version_means_the_newest():
    register("Maze-v10", make_wrapped)
    assert "Maze-v10" == make("Maze").provenance()["id"]
    assert "Maze-v1" == make("Maze-v1").provenance()["id"]


@pytest.mark.usefixtures("maze")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: make("Maze-v7"),
            "There is no environment named 'Maze-v7'; there are 'Maze-v1', 'Maze-v2'.",
        ),
        (
            lambda: make("CartPole-v0"),
            "There is no environment named 'CartPole-v0'; there is 'CartPole-v1'.",
        ),
        (
            lambda: register("Maze-v2", CountingEnv),
            f"The name 'Maze-v2' is taken by '{HERE}:make_maze'; choose another.",
        ),
        (
            lambda: register("Maze", CountingEnv),
            f"The name 'Maze' is taken by '{HERE}:make_maze'; choose another.",
        ),
        (
            lambda: (register("Cave", CountingEnv), register("Cave-v1", CountingEnv)),
            f"The name 'Cave' is taken by {CountingEnv!r}, without a version, so that "
            "'Cave-v1' would not be what 'Cave' is. Register that with a version too.",
        ),
    ],
)
def test_missing_and_duplicate_versions_are_refused(call, message, message_of):
    assert message == message_of(ValueError, call)


# What is known of an environment.


def test_an_environment_that_was_made_knows_its_id_arguments_and_seed():
    env = make("Catch", rows=5, seed=3)
    found = env.provenance()
    env.seed(8)
    assert ("Catch-v1", 1) == (found["id"], found["version"])
    assert {"rows": 5, "seed": 3} == found["arguments"]
    assert (3, 8) == (found["seed"], env.provenance()["seed"])
    assert "envkit.envs.catch:Catch" == found["class"]


def test_an_environment_that_was_made_directly_is_known_by_its_class():
    found = Catch(rows=5).provenance()
    assert ("envkit.envs.catch:Catch", None) == (found["id"], found["version"])
    assert found["arguments"] is None


def test_versions_and_the_machine_are_known():
    found = make("Catch").provenance()
    assert envkit.__version__ == found["envkit"]
    assert np.__version__ == found["packages"]["numpy"]
    assert {"system", "release", "architecture", "processor", "cpus"} == set(
        found["machine"]
    )
    assert found["python"].startswith("3.")


def test_the_library_behind_an_adapter_is_known():
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    found = make("gymnasium:CartPole-v1").provenance()
    assert gymnasium.__version__ == found["packages"]["gymnasium"]
    assert ("gymnasium:CartPole-v1", 1) == (found["id"], found["version"])


def test_a_generated_class_belongs_to_its_bases_package():
    """As those of EnvPool are."""
    base = type("Base", (), {"__module__": "pytest.pools"})
    made = type("Made", (base,), {"__module__": "abc"})
    env = CountingEnv()
    env._pool = made()
    assert {"numpy", "pytest"} == set(env.provenance()["packages"])


def test_wrappers_are_listed_from_the_outermost():
    env = FrameStack(TimeLimit(make("CartPole"), 20), 3)
    found = env.provenance()
    assert [
        {
            "class": "envkit.wrappers.history:FrameStack",
            "arguments": {"stack_size": 3},
        },
        {"class": "envkit.wrappers.limits:TimeLimit", "arguments": {"duration": 20}},
    ] == found["wrappers"]
    assert "CartPole-v1" == found["id"]


def test_wrappers_added_by_a_constructor_count_as_its_result():
    found = make(make_wrapped, duration=7).provenance()
    assert (f"{HERE}:make_wrapped", {"duration": 7}, []) == (
        found["id"],
        found["arguments"],
        found["wrappers"],
    )


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        (functools.partial(make_maze, 2), {"level": 2, "size": {"$tuple": [1, 2]}}),
        (make_maze, {"size": {"$tuple": [1, 2]}}),
    ],
)
def test_arguments_of_functions_are_known_by_name(target, arguments):
    found = make(target, size=(1, 2)).provenance()
    assert (f"{HERE}:make_maze", arguments) == (found["id"], found["arguments"])


@pytest.mark.parametrize(
    ("argument", "plain"),
    [
        (Catch, {"$name": "envkit.envs.catch:Catch"}),
        (pathlib.PurePosixPath("a/maze.txt"), {"$path": "a/maze.txt"}),
        (lambda: 3, {"$unknown": f"{HERE}:<lambda>"}),
        (object(), {"$unknown": "a object object"}),
        (
            np.zeros(5000),
            {"$unknown": "an array of shape (5000,), dtype float64"},
        ),
    ],
    ids=["class", "path", "lambda", "object", "large array"],
)
def test_arguments_that_json_cannot_hold_are_named(argument, plain):
    found = make(make_maze, size=argument).provenance()
    assert {"size": plain} == found["arguments"]


def test_a_batch_lists_its_environments():
    env = BatchedPyEnvironment([make("Catch", rows=4) for _ in range(3)])
    env.seed(5)
    (row,) = env.provenance()["environments"]
    assert (3, "Catch-v1", {"rows": 4}, None) == (
        row["count"],
        row["id"],
        row["arguments"],
        row["seed"],
    )
    assert 5 == env.provenance()["seed"]


def test_a_pool_describes_its_constructors():
    recipes = ["Catch", constructor("Catch-v1"), functools.partial(Catch, rows=3)]
    with ParallelPyEnvironment(recipes[:2], backend="inline") as env:
        (row,) = env.provenance()["environments"]
        assert (2, "Catch-v1", {}) == (row["count"], row["id"], row["arguments"])
        assert {"autoreset": "next_step"} == env.provenance()["arguments"]
    with ParallelPyEnvironment(recipes[2:], backend="inline") as env:
        (row,) = env.provenance()["environments"]
        assert ("envkit.envs.catch:Catch", {"rows": 3}) == (row["id"], row["arguments"])


def test_a_pool_asks_its_first_worker_for_packages():
    with make(f"{HERE}:make_maze", num_envs=2, num_workers=1) as env:
        assert np.__version__ == env.provenance()["packages"]["numpy"]
    assert f"{HERE}:make_maze" == env.provenance()["environments"][0]["id"]


def test_package_versions_come_from_a_running_worker():
    class Elsewhere(CountingEnv):
        def provenance(self):
            return {**super().provenance(), "packages": {"numpy": "0.1"}}

    with envkit.ParallelPyEnvironment([Elsewhere], backend="inline") as env:
        assert {"numpy": "0.1"} == env.provenance()["packages"]
    assert np.__version__ == env.provenance()["packages"]["numpy"]


EVERYTHING = {
    "single": lambda: make("Catch"),
    "wrapper": lambda: TimeLimit(make("Catch"), 3),
    "batch": lambda: BatchedPyEnvironment([make("Catch")]),
    "pool": lambda: make("Catch", num_envs=2, backend="inline"),
    "asynchronous": lambda: asynchronous(),
    "blocking": lambda: Blocking(asynchronous()),
    "real time": lambda: RealTimeEnvironment("Catch", hz=10, host="virtual"),
}


def asynchronous():
    return envkit.AsyncParallelPyEnvironment(["Catch"], backend="inline")


@pytest.mark.parametrize("kind", EVERYTHING)
def test_the_provenance_of_everything_is_json(kind):
    with EVERYTHING[kind]() as env:
        found = env.provenance()
    assert found == json.loads(json.dumps(found, allow_nan=False))
    assert {"id", "version", "arguments", "seed", "wrappers", "envkit"} <= set(found)


def test_a_real_time_clock_is_listed_as_a_wrapper():
    with RealTimeEnvironment("Catch", hz=10, host="virtual") as env:
        env.seed(4)
        found = env.provenance()
    assert ("Catch-v1", 4) == (found["id"], found["seed"])
    assert (10, "virtual") == tuple(
        found["wrappers"][0]["arguments"][name] for name in ("hz", "host")
    )


# States of other versions.


def of_version(token, identifier=None, written_by=None):
    made_by = token.made_by
    return token._replace(
        made_by=MadeBy(identifier or made_by.id, written_by or made_by.envkit)
    )


@pytest.mark.parametrize("target", ["Catch-v1", Catch], ids=["made", "direct"])
def test_a_state_names_its_versions(target):
    env = make(target) if isinstance(target, str) else target()
    env.reset()
    expected = "Catch-v1" if isinstance(target, str) else None
    assert MadeBy(expected, envkit.__version__) == env.get_state().made_by


def test_a_state_of_another_version_of_the_environment_is_refused(message_of):
    env = make("Catch-v1")
    env.reset()
    token = of_version(env.get_state(), "Catch-v2")
    assert (
        "Catch.set_state() was given a state of Catch-v2, and this environment is "
        "Catch-v1. What an environment does is fixed in each version and differs "
        "between them: make('Catch-v2') takes this state."
    ) == message_of(ValueError, lambda: env.set_state(token))


@pytest.mark.filterwarnings("always")
def test_a_state_of_another_envkit_version_warns():
    env = make("Catch-v1")
    first = env.reset()
    token = of_version(env.get_state(), written_by="0.0.1")
    env.step(1)
    with pytest.warns(VersionWarning) as warned:
        env.set_state(token)
    assert [
        "Catch.set_state() was given a state that envkit 0.0.1 has saved, and this is "
        f"envkit {envkit.__version__}. What follows may differ from what would have "
        "followed there."
    ] == [str(warning.message) for warning in warned]
    assert (first.observation == env.current_time_step().observation).all()


def test_a_wrapper_uses_the_versions_of_its_environment(message_of):
    env = TimeLimit(make("Catch-v1"), 3)
    env.reset()
    token = env.get_state()
    inner = of_version(token.environment.environment, "Catch-v2")
    other = token._replace(environment=token.environment._replace(environment=inner))
    assert token.made_by is None
    assert message_of(ValueError, lambda: env.set_state(other)).startswith(
        "Catch.set_state() was given a state of Catch-v2"
    )


def test_a_state_without_versions_is_accepted():
    env = make("Catch-v1")
    env.reset()
    token = env.get_state()
    env.set_state(EnvironmentState(token.environment, token.time_step))
    env.set_state(pickle.loads(pickle.dumps(token._replace(made_by=None))))


def test_a_state_is_accepted_if_the_environments_version_is_unknown():
    made, direct = make("Catch-v1", seed=1), Catch(seed=2)
    made.reset()
    direct.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        direct.set_state(made.get_state())
        made.set_state(direct.get_state())


def test_the_version_inside_a_name_without_one_counts():
    env = make(constructor(functools.partial(make, "Catch-v1")))
    env.reset()
    assert "Catch-v1" == env.get_state().made_by.id


def test_a_provenance_travels_with_the_environment():
    env = pickle.loads(pickle.dumps(make("Catch-v1", rows=4)))
    found = env.provenance()
    assert ("Catch-v1", {"rows": 4}) == (found["id"], found["arguments"])


Point = collections.namedtuple("Point", ["x", "y"])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from([pathlib.Path("levels/one.txt"), pathlib.Path("/")])
)
values = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=3)
        | st.tuples(children, children)
        | st.builds(Point, children, children)
        | st.dictionaries(st.text() | st.integers(), children, max_size=3)
    ),
    max_leaves=8,
)


def back(value):
    return from_plain(loaded(dumped(to_plain(value))))


@given(value=values)
def test_plain_values_survive_the_round_trip(value):
    came = back(value)
    assert value == came
    assert repr(value) == repr(came)
    assert nest.outline(value) == nest.outline(came)


@given(data=st.data())
def test_arrays_survive_the_round_trip_bit_for_bit(data):
    dtype = data.draw(strategies.dtypes(any_byte_order=True))
    array = data.draw(hnp.arrays(dtype, strategies.shapes()))
    came = back(array)
    assert (array.dtype, array.shape) == (came.dtype, came.shape)
    assert array.tobytes() == came.tobytes()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), -0.0])
def test_numbers_that_json_lacks_survive_the_round_trip(number):
    assert repr(number) == repr(back(number))
    assert repr(np.float32(number)) == repr(back(np.float32(number)))
    assert np.float32 is type(back(np.float32(0.1)))


def test_keys_that_look_like_tags_stay_keys():
    assert {"$tuple": 1, "a": 2} == back({"$tuple": 1, "a": 2})
    assert {"$array": {}} == back({"$array": {}})


def test_object_arrays_may_contain_json_values():
    array = np.empty((2,), object)
    array[0], array[1] = [1, 2], {"a": None}
    came = back(array)
    assert array.tolist() == came.tolist()
    assert object == came.dtype


def test_values_that_are_no_plain_data_are_named_with_their_place():
    with pytest.raises(PlainDataError) as raised:
        to_plain({"path": [1, {2, 3}]}, "info")
    expected = "info['path'][1] is of type builtins:set, which plain data cannot hold."
    assert expected == str(raised.value)
    assert ("info['path'][1]", {2, 3}) == (raised.value.place, raised.value.value)


def test_the_caller_can_encode_other_values():
    plain = to_plain({2, 3}, other=lambda value, _: {"$set": sorted(value)})
    assert {"$set": [2, 3]} == plain
    assert {2, 3} == from_plain(plain, other=lambda _, data: set(data))


def test_an_unknown_tag_is_refused():
    with pytest.raises(ValueError, match=r"^There is no plain data called '\$set'\.$"):
        from_plain({"$set": [2]})


def test_a_file_cannot_cause_an_import():
    """A namedtuple of a module that is not here becomes one that is like it."""
    data = {"$namedtuple": {"name": "no_such_module:Pair", "fields": {"a": 1, "b": 2}}}
    pair = from_plain(data)
    assert ("Pair", (1, 2)) == (type(pair).__name__, tuple(pair))
    assert (1, 2) == (pair.a, pair.b)


def test_plain_data_is_what_json_holds():
    assert '{"a":[1,2.5,null,true,"ü"]}' == json.dumps(
        to_plain({"a": [1, 2.5, None, True, "ü"]}),
        separators=(",", ":"),
        ensure_ascii=False,
    )
