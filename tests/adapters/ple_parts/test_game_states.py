"""States of games as arrays of fixed shapes, whatever a game puts into them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters.ple_parts.game_states import state_reader
from envkit.adapters.spaces.values import Converter
from envkit.errors import SpecError
from envkit.specs import check_arrays_nest


def reader(state, *, dtype=np.float64, **max_lengths):
    """Returns the specs of a state, and what reads states like it."""
    found = state_reader(state, name="Snake", dtype=dtype, max_lengths=max_lengths)
    convert = Converter(
        found.spec, found.leaves, subject="Snake has shown what", root="observation"
    )
    return found.spec, convert


def length_up_to(room: int) -> BoundedArraySpec:
    return BoundedArraySpec((), np.int64, 0, room)


def test_numbers_of_all_types_become_one():
    state = {"b": np.float32(2.5), "a": 3, "d": True, "c": np.int64(4)}
    spec, read = reader(state)

    assert ["a", "b", "c", "d"] == list(spec) == list(read(state))
    assert dict.fromkeys("abcd", ArraySpec((), np.float64)) == spec
    assert [3.0, 2.5, 4.0, 1.0] == [value.item() for value in read(state).values()]


def test_an_integer_may_turn_into_a_float():
    _, read = reader({"speed": 0})

    assert 0.5 == read({"speed": 0.5})["speed"]


def test_numbers_can_be_float32():
    spec, read = reader({"speed": 0.1, "body": [0.2]}, dtype=np.float32)

    assert ArraySpec((), np.float32) == spec["speed"]
    assert np.float32(0.1) == read({"speed": 0.1, "body": []})["speed"]
    assert np.float32 == spec["body"]["values"].dtype


def test_an_array_keeps_its_dtype_and_belongs_to_the_caller():
    board = np.zeros((2, 3), np.int8)
    spec, read = reader(board)

    copied = read(board)
    board[:] = 7

    assert ArraySpec((2, 3), np.int8) == spec
    assert not copied.any()


def test_a_tuple_of_numbers_is_an_array():
    spec, read = reader({"position": (1, 2.5)})

    assert ArraySpec((2,), np.float64) == spec["position"]
    assert [3.0, 4.0] == read({"position": (3, 4)})["position"].tolist()


@pytest.mark.parametrize(("present", "room"), [(0, 100), (3, 100), (30, 120)])
def test_a_list_has_room_to_grow(present, room):
    spec, _ = reader({"body": [1.0] * present})

    assert {
        "length": length_up_to(room),
        "values": ArraySpec((room,), np.float64),
    } == spec["body"]


def test_a_list_is_padded_with_zeros_and_tells_its_length():
    _, read = reader({"body": [1.0]}, body=4)

    body = read({"body": [1, 2.5]})["body"]

    assert 2 == body["length"]
    assert [1.0, 2.5, 0.0, 0.0] == body["values"].tolist()


def test_elements_of_a_list_may_be_points():
    spec, read = reader({"creeps": [[1.0, 2.0]]}, creeps=3)

    assert ArraySpec((3, 2), np.float64) == spec["creeps"]["values"]
    creeps = read({"creeps": [[1, 2], [3, 4]]})["creeps"]
    assert [[1, 2], [3, 4], [0, 0]] == creeps["values"].tolist()
    assert 0 == read({"creeps": []})["creeps"]["length"]


def test_an_empty_list_has_elements_like_those_beside_it():
    spec, _ = reader({"creep_pos": {"GOOD": [[1.0, 2.0]], "BAD": []}})

    assert (100, 2) == spec["creep_pos"]["BAD"]["values"].shape


def test_lists_of_different_kinds_side_by_side_say_nothing_of_an_empty_one():
    spec, _ = reader({"all": {"a": [[1.0, 2.0]], "b": [1.0], "c": []}})

    assert (100,) == spec["all"]["c"]["values"].shape


@pytest.mark.parametrize(
    "said",
    [
        {"creep_pos": (5, 2)},
        {"creep_pos/BAD": (5, 2), "creep_pos/GOOD": 5},
        {"creep_pos/BAD": (5, 2), "creep_pos": (5, 2)},
    ],
)
def test_a_length_is_said_for_a_list_or_for_all_below_a_key(said):
    found = state_reader(
        {"creep_pos": {"GOOD": [[1.0, 2.0]], "BAD": []}},
        name="WaterWorld",
        dtype=np.float64,
        max_lengths=said,
    )

    shapes = {
        key: part["values"].shape for key, part in found.spec["creep_pos"].items()
    }
    assert {"BAD": (5, 2), "GOOD": (5, 2)} == shapes


def test_a_list_that_always_has_the_same_length_is_an_array():
    spec, read = reader({"body": [1.0, 2.0]}, body=None)

    assert ArraySpec((2,), np.float64) == spec["body"]
    with pytest.raises(SpecError, match=r"Snake has shown what does not fit its spec"):
        read({"body": [1.0]})


@given(st.lists(st.floats(allow_nan=False, width=64), max_size=20))
def test_what_was_in_a_list_can_be_read_again(elements):
    spec, read = reader({"body": [1.0]}, body=20)

    observation = read({"body": elements})

    body = observation["body"]
    assert check_arrays_nest(observation, spec)
    assert elements == body["values"][: body["length"]].tolist()
    assert not body["values"][len(elements) :].any()


def test_a_list_that_outgrows_its_room_says_how_to_make_some(message_of):
    _, read = reader({"body": [1.0]}, body=3)

    assert (
        "Snake has a state with 4 elements at 'body', and there is room for 3. Make "
        "room with max_lengths={'body': 8}."
    ) == message_of(SpecError, lambda: read({"body": [0.0] * 4}))


def test_points_that_outgrow_their_room_say_how_to_make_some(message_of):
    _, read = reader({"all": {"body": [[1.0, 2.0]]}}, all=1)

    assert (
        "Snake has a state with 2 elements at 'all/body', and there is room for 1. "
        "Make room with max_lengths={'all/body': (4, 2)}."
    ) == message_of(SpecError, lambda: read({"all": {"body": [[0.0, 0.0]] * 2}}))


@pytest.mark.parametrize(
    ("value", "shape", "whole"),
    [([[1.0, 2.0]], (2,), (100, 2)), ([[1.0], [2.0]], (1,), (100, 1))],
)
def test_elements_of_another_shape_say_how_to_declare_them(
    value, shape, whole, message_of
):
    _, read = reader({"creeps": []})

    assert (
        f"Snake has a state with elements of shape {shape} at 'creeps', and its first "
        f"state said (). Say it with max_lengths={{'creeps': {whole}}}, or give PLE a "
        "state_preprocessor."
    ) == message_of(SpecError, lambda: read({"creeps": value}))


@pytest.mark.parametrize("value", [[1.0, [2.0]], ["a"], [None]])
def test_elements_that_are_no_numbers_are_refused(value):
    _, read = reader({"creeps": [1.0]})

    with pytest.raises(SpecError, match="Give PLE a state_preprocessor"):
        read({"creeps": value})


@pytest.mark.parametrize("state", [{"body": 1.0}, {}, {"body": [], "more": 1}])
def test_a_state_of_another_structure_is_refused(state):
    _, read = reader({"body": [1.0]})

    with pytest.raises(SpecError, match="Snake has shown what does not fit its spec"):
        read(state)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"name": "x"}, "the string 'x' at 'name'"),
        ({"a": {"b": None}}, "None at 'a/b'"),
        ("x", "the string 'x'"),
    ],
)
def test_what_is_not_made_of_numbers_is_refused(state, text, message_of):
    assert (
        f"Snake has a state with {text}, which is not made of numbers. Give PLE a "
        "state_preprocessor, which makes an array of the state, or observe the "
        '"screen".'
    ) == message_of(SpecError, lambda: reader(state))


def test_a_ragged_list_is_refused():
    with pytest.raises(SpecError, match="at 'rows', which is not made of numbers"):
        reader({"rows": [[1.0], [1.0, 2.0]]})


def test_lengths_of_lists_that_there_are_not_are_refused(message_of):
    assert (
        "max_lengths has 'tail', and there is no list of that name in the state of "
        "Snake. Its lists are: 'a/b', 'body'."
    ) == message_of(
        ValueError, lambda: reader({"body": [], "x": 1, "a": {"b": []}}, tail=3)
    )


@pytest.mark.parametrize("length", [0, -1, 2.5, "3", (), (3, 0)])
def test_lengths_that_are_none_are_refused(length, message_of):
    assert (
        f"max_lengths['body'] is {length!r}; it is a number of elements, a shape, or "
        "None for a list that always has the same length."
    ) == message_of(ValueError, lambda: reader({"body": []}, body=length))
