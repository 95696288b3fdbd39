"""Observations of PySC2 become arrays of one shape, or objects; without PySC2."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters.pysc2.actions import Calls, Function, Functions
from envkit.adapters.pysc2.observations import Observer, Rows
from envkit.errors import SpecError
from envkit.specs.special import ObjectSpec, TextSpec

MOVES = Functions(
    (Function("wait", ()), Function("go", ("queued", "at"))),
    {"queued": (2,), "at": (8, 6)},
)


class Named(np.ndarray):
    """An array that is more than one, as those of PySC2 are."""


def observer(shapes, **options):
    return Observer(shapes, subject="It", path="observation", **options)


def refusal(shapes, observation, **options):
    """Returns what is said of an observation that does not fit."""
    with pytest.raises(SpecError) as caught:
        observer(shapes, **options)(observation)
    return str(caught.value)


@given(
    rows=st.integers(0, 6).flatmap(
        lambda count: arrays.arrays(np.int64, (count, 3), elements=st.integers(-9, 9))
    )
)
def test_padding_keeps_every_row_and_adds_zeros(rows):
    observe = observer({"feature_units": (0, 3)}, lengths={"feature_units": 6})
    seen = observe({"feature_units": rows.view(Named)})
    length = int(seen["feature_units_length"])
    assert len(rows) == length
    assert rows.tobytes() == seen["feature_units"][:length].tobytes()
    assert not seen["feature_units"][length:].any()
    assert all(spec.check_array(seen[name]) for name, spec in observe.spec.items())


@given(count=st.integers(0, 5))
def test_objects_are_plain_arrays_of_any_length(count):
    observe = observer({"cargo": (0, 7)}, variable="object")
    rows = np.ones((count, 7), np.int32).view(Named)
    seen = observe({"cargo": rows if count else np.zeros(0).view(Named)})["cargo"]
    assert observe.spec["cargo"].check_array(seen)
    assert (np.ndarray, (count, 7)) == (type(seen[()]), seen[()].shape)


def test_specs_show_the_maximum_lengths():
    spec = observer({"upgrades": (0,), "something": (0, 2), "player": (11,)}).spec
    assert {
        "upgrades": ArraySpec((128,), np.int32),
        "upgrades_length": BoundedArraySpec((), np.int32, 0, 128),
        "something": ArraySpec((256, 2), np.int32),
        "something_length": BoundedArraySpec((), np.int32, 0, 256),
        "player": ArraySpec((11,), np.int32),
    } == spec


def test_rgb_pictures_are_bounded():
    spec = observer({"rgb_screen": (4, 6, 3)}).spec
    assert BoundedArraySpec((4, 6, 3), np.int32, 0, 255) == spec["rgb_screen"]


def test_text_that_pysc2_declares_as_an_array_is_text():
    observe = observer({"map_name": (0,)}, lengths={"map_name": 12})
    seen = observe({"map_name": "Simple64"})["map_name"]
    assert TextSpec((), "<U12") == observe.spec["map_name"]
    assert ("Simple64", ()) == (seen, seen.shape)


def test_arrays_with_several_unknown_lengths_are_objects():
    observe = observer({"holes": (3, 0)})
    seen = observe({"holes": np.ones((3, 2), np.int32)})["holes"]
    assert observe.spec["holes"].check_array(seen)
    assert (3, 2) == seen[()].shape


@pytest.mark.parametrize("value", [7, lambda: 7])
def test_a_message_inside_a_function_is_unwrapped(value):
    observe = observer({"_response_observation": (0,)})
    assert 7 == observe({"_response_observation": value})["_response_observation"][()]


def test_an_agent_without_shapes_observes_messages():
    observe = observer({})
    assert ObjectSpec() == observe.spec
    assert "message" == observe("message")[()]


def test_the_mask_can_be_left_out_or_observed_alone():
    shapes, seen = {"available_actions": (0,)}, {"available_actions": np.array([0, 2])}
    alone = observer(shapes, functions=3, names=["action_mask"])
    without = observer(shapes, functions=3, names=["available_actions"])
    assert [True, False, True] == alone(seen)["action_mask"].tolist()
    assert ["available_actions", "available_actions_length"] == list(without.spec)


def test_whole_numbers_may_come_in_other_dtypes():
    observe = observer({"player": (2,), "alerts": (0,)})
    seen = observe({"player": np.array([1.0, 2.0]), "alerts": [np.uint8(3)]})
    assert ([1, 2], np.int32) == (seen["player"].tolist(), seen["player"].dtype)
    assert 3 == seen["alerts"][0]


@pytest.mark.parametrize(
    ("shapes", "observation", "message"),
    [
        (
            {"player": (2,)},
            {},
            "It does not fit its spec at observation['player'].\n\n"
            "  expected   something\n"
            "  got        nothing\n\n"
            "PySC2 says in its specs that it is.",
        ),
        (
            {"player": (2,)},
            {"player": np.zeros(3, np.int32)},
            "It does not fit its spec at observation['player'].\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=int32, name='player')\n"
            "  got        array of shape (3,), dtype int32, values 0 … 0\n\n"
            "It has another shape.",
        ),
        (
            {"player": (2,)},
            {"player": np.array([0.5, 1.0])},
            "It does not fit its spec at observation['player'].\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=int32, name='player')\n"
            "  got        array of shape (2,), dtype float64, values 0.5 … 1.0\n\n"
            "Its values are not numbers that int32 can hold.",
        ),
        (
            {"player": (2,)},
            {"player": [[1], [2, 3]]},
            "It does not fit its spec at observation['player'].\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=int32, name='player')\n"
            "  got        a list of 2 elements\n\n"
            "Its values are not numbers that int32 can hold.",
        ),
        (
            {"cargo": (0, 7)},
            {"cargo": np.zeros((2, 6), np.int32)},
            "It does not fit its spec at observation['cargo'].\n\n"
            "  expected   ArraySpec(shape=(256, 7), dtype=int32, name='cargo')\n"
            "  got        array of shape (2, 6), dtype int32, values 0 … 0\n\n"
            "Rows of shape (7,) are expected.",
        ),
        (
            {"map_name": (0,)},
            {"map_name": np.zeros(0)},
            "It does not fit its spec at observation['map_name'].\n\n"
            "  expected   TextSpec(shape=(), dtype=<U64, min_length=0, max_length=64, "
            "name='map_name')\n"
            "  got        array of shape (0,), dtype float64\n\n"
            "It is a string in PySC2.",
        ),
        (
            {"map_name": (0,)},
            {"map_name": "x" * 65},
            "It does not fit its spec at observation['map_name'].\n\n"
            "  expected   TextSpec(shape=(), dtype=<U64, min_length=0, max_length=64, "
            "name='map_name')\n"
            f"  got        the string '{'x' * 39}\n\n"
            "It has a length of 65, and there is room for 64. Pass "
            "max_lengths={'map_name': 65}, or more.",
        ),
    ],
)
def test_values_that_do_not_fit_are_named(shapes, observation, message):
    assert message == refusal(shapes, observation)


def test_rows_contain_arrays_of_their_shape_and_pickle():
    rows = Rows("int64", 2)
    assert rows == pickle.loads(pickle.dumps(rows))
    assert hash(rows) == hash(Rows("int64", 2))
    assert (True, False, False) == (
        rows.contains(rows.sample(np.random.default_rng())),
        rows.contains(np.zeros((0, 2), np.int32)),
        rows.contains(np.zeros((0, 2), np.int64).view(Named)),
    )


@given(seed=st.integers(0, 2**16))
def test_calls_contain_their_own_samples(seed):
    calls = Calls(MOVES)
    assert calls.contains(calls.sample(np.random.default_rng(seed)))
    assert calls.contains(calls.sample(np.random.RandomState(seed)))


def test_calls_survive_pickling():
    calls = pickle.loads(pickle.dumps(Calls(MOVES)))
    assert (calls, hash(calls)) == (Calls(MOVES), hash(Calls(MOVES)))
    assert calls != Calls(None)
    assert "Calls(2)" == repr(calls)
    assert [] == Calls(None).sample(np.random.default_rng())


@pytest.mark.parametrize("value", [7, "go", (1,), ("go", []), [7], None])
def test_calls_do_not_contain_other_values(value):
    assert not Calls(MOVES).contains(value)


def test_a_function_takes_only_its_own_arguments():
    action = {
        "function": np.array(1, np.int32),
        "queued": np.array(1, np.int32),
        "at": np.array([7, 5], np.int32),
    }

    assert (1, [[1], [7, 5]]) == MOVES.call(action)
    assert (0, []) == MOVES.call(action | {"function": np.array(0, np.int32)})
    assert {
        "function": BoundedArraySpec((), np.int32, 0, 1),
        "queued": BoundedArraySpec((), np.int32, 0, 1),
        "at": BoundedArraySpec((2,), np.int32, 0, [7, 5]),
    } == MOVES.spec()
