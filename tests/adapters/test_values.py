"""Nests of foreign values become fresh arrays that fit their specs, or an error."""

from __future__ import annotations

import collections
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.adapters.values import (
    Converter,
    array_leaf,
    bounded_leaf,
    map_specs,
    map_with_paths,
)
from envkit.errors import SpecError
from envkit.specs import check_arrays_nest
from tests import strategies

Pair = collections.namedtuple("Pair", ["left", "right"])


def reader(spec, leaf=array_leaf):
    return Converter(spec, map_specs(leaf, spec), subject="It", root="observation")


def refusal(spec, value, leaf=array_leaf) -> str:
    with pytest.raises(SpecError) as caught:
        reader(spec, leaf)(value)
    return str(caught.value)


@given(data=st.data())
@settings(max_examples=50)
def test_a_fitting_value_is_copied_leaf_by_leaf(data):
    spec = data.draw(strategies.spec_nests())
    value = data.draw(strategies.values(spec))
    read = reader(spec)(value)
    assert check_arrays_nest(read, spec)
    for ours, theirs in zip(nest.flatten(read), nest.flatten(value), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert not np.may_share_memory(ours, theirs) or not theirs.nbytes


@given(data=st.data())
@settings(max_examples=50)
def test_bounded_leaves_accept_values_within_bounds(data):
    spec = data.draw(strategies.spec_nests(strategies.bounded_specs()))
    value = data.draw(strategies.values(spec))
    assert check_arrays_nest(reader(spec, bounded_leaf)(value), spec)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.float32, 0.5),
        (np.float32, np.float64(0.5)),
        (np.float32, np.array(0.5)),
        (np.float64, np.array(0.5, np.float16)),
        (np.float32, 3),
        (np.float32, True),
        (np.int64, 3),
        (np.uint8, np.array(255, np.int64)),
        (np.int8, True),
        (np.bool_, 1),
        (np.bool_, np.True_),
        ("<U5", "left"),
        ("<U5", np.str_("left")),
        ("S5", b"left"),
    ],
)
def test_a_lossless_change_of_dtype_is_made(dtype, value):
    spec = ArraySpec((), dtype)
    read = reader(spec)(value)
    assert spec.check_array(read)
    assert value == read[()]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (np.int64, 0.5),
        (np.int64, 1.0),
        (np.uint8, 256),
        (np.uint8, -1),
        (np.int64, 2**63),
        (np.uint64, -1),
        (np.bool_, 2),
        (np.float32, 1j),
        (np.float32, "1.5"),
        (np.float32, None),
        ("<U3", "left"),
        ("<U3", b"up"),
        ("<U3", 3),
    ],
)
def test_a_lossy_change_of_dtype_is_refused(dtype, value):
    with pytest.raises(SpecError, match=r"^It does not fit its spec\.\n"):
        reader(ArraySpec((), dtype))(value)


def test_lists_are_accepted_for_arrays_and_tuples():
    spec = (ArraySpec((2,), np.float32), ArraySpec((), np.int64))
    first, second = reader(spec)([[1, 2], 3])
    np.testing.assert_array_equal(np.array([1, 2], np.float32), first)
    np.testing.assert_array_equal(3, second)


def test_an_array_is_accepted_for_a_tuple_of_numbers():
    spec = (ArraySpec((), np.int64), ArraySpec((), np.int64))
    assert (4, 5) == reader(spec)(np.array([4, 5]))


def test_objects_with_an_array_method_are_arrays():
    class Frames:
        def __array__(self, dtype=None, copy=None):
            return np.arange(2, dtype=np.uint8)

    np.testing.assert_array_equal(
        np.arange(2, dtype=np.uint8), reader(ArraySpec((2,), np.uint8))(Frames())
    )


def test_mappings_become_dictionaries_in_the_order_of_the_spec():
    spec = {"b": ArraySpec((), np.int64), "a": ArraySpec((), np.int64)}
    value = types.MappingProxyType(collections.OrderedDict(a=1, b=2))
    read = reader(spec)(value)
    assert dict is type(read)
    assert [("b", 2), ("a", 1)] == list(read.items())


def test_namedtuples_stay_namedtuples():
    spec = Pair(ArraySpec((), np.int64), ArraySpec((), np.int64))
    assert Pair(1, 2) == reader(spec)(Pair(1, 2))


def test_lists_of_specs_give_lists():
    assert [1] == reader([ArraySpec((), np.int64)])([1])


def test_a_leaf_functions_own_explanation_is_used(message_of):
    def refuse(value):
        raise SpecError("This is not what I mean.")

    spec = {"a": ArraySpec((), np.int64), "b": ArraySpec((), np.int64)}
    read = Converter(
        spec,
        {"a": refuse, "b": array_leaf(spec["b"])},
        subject="It",
        root="observation",
    )

    assert "This is not what I mean." == message_of(
        SpecError, lambda: read({"a": 3, "b": None})
    )


def test_a_function_may_convert_a_whole_subtree():
    spec = {"a": (ArraySpec((), np.int64),) * 2, "b": ArraySpec((), np.int64)}
    leaves = {"a": lambda value: divmod(value, 10), "b": array_leaf(spec["b"])}
    read = Converter(spec, leaves, subject="It", root="observation")
    assert {"a": (4, 2), "b": 3} == read({"a": 42, "b": 3})
    with pytest.raises(SpecError, match=r"^It does not fit its spec at .*\['b'\]\."):
        read({"a": 42, "b": None})


def test_a_leaf_function_that_refuses_a_fitting_value_is_a_bug():
    def refuse(value):
        raise SpecError

    read = Converter(ArraySpec((), np.int64), refuse, subject="It", root="observation")

    with pytest.raises(AssertionError, match="refuses what fits its spec"):
        read(np.array(3))


def test_an_array_is_copied():
    buffer = np.zeros(3)
    read = reader(ArraySpec((3,), np.float64))(buffer)
    buffer += 1
    np.testing.assert_array_equal(np.zeros(3), read)


def test_the_first_misfit_is_named_and_the_rest_is_counted():
    spec = {"camera": ArraySpec((2, 2), np.uint8), "speed": ArraySpec((), np.float32)}
    assert (
        "It does not fit its spec at observation['camera'].\n\n"
        "  expected   ArraySpec(shape=(2, 2), dtype=uint8)\n"
        "  got        array of shape (2, 3), dtype uint8, values 0 … 0\n\n"
        "Axis 1 has size 3 instead of 2. The other leaf fits."
    ) == refusal(spec, {"camera": np.zeros((2, 3), np.uint8), "speed": 0.5})


def test_a_shape_never_broadcasts():
    assert (
        "It does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(3,), dtype=float32)\n"
        "  got        array of shape (1,), dtype float32, values 0.0 … 0.0\n\n"
        "Axis 0 has size 1 instead of 3."
    ) == refusal(ArraySpec((3,), np.float32), np.zeros(1, np.float32))


def test_objects_with_an_array_method_are_described_as_arrays():
    class Frames:
        def __array__(self, dtype=None, copy=None):
            return np.arange(2, dtype=np.uint8)

    assert (
        "It does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(3,), dtype=uint8)\n"
        "  got        array of shape (2,), dtype uint8, values 0 … 1\n\n"
        "Axis 0 has size 2 instead of 3."
    ) == refusal(ArraySpec((3,), np.uint8), Frames())


def test_missing_and_unknown_keys_are_named():
    assert (
        "It does not fit its spec.\n\n"
        "  expected   the structure {'camera': *}\n"
        "  got        a dict of 1 element\n\n"
        "Key 'camera' is missing; key 'cam' is not in the spec."
    ) == refusal({"camera": ArraySpec((), np.uint8)}, {"cam": 3})


@pytest.mark.parametrize(
    ("spec", "value", "reason"),
    [
        (
            {"a": ArraySpec((), np.int64)},
            3,
            "The value is a single int; a dictionary is expected.",
        ),
        (
            (ArraySpec((), np.int64),),
            {"a": 3},
            "The value is a dictionary; a tuple is expected.",
        ),
        (
            (ArraySpec((), np.int64),),
            [1, 2],
            "The value is a list; a tuple is expected.",
        ),
        (
            (ArraySpec((), np.int64),),
            np.array(1),
            "The value is a single ndarray; a tuple is expected.",
        ),
        (
            ArraySpec((2, 2), np.int64),
            [[1, 2], [3]],
            "The value is a list, not an array: use np.array(..., np.int64).",
        ),
        (
            ArraySpec((3,), np.int64),
            [1, 2],
            "Axis 0 has size 2 instead of 3.",
        ),
    ],
)
def test_a_wrong_structure_is_named(spec, value, reason):
    assert reason == refusal(spec, value).splitlines()[-1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2.5, "1 of 2 elements is above the maximum 2.0: 2.5 at index (1,)."),
        (np.nan, "1 of 2 elements is NaN, which no bounds contain."),
    ],
)
def test_a_value_out_of_bounds_is_named(value, reason):
    spec = BoundedArraySpec((2,), np.float32, -2, 2)
    text = refusal(spec, np.array([0, value], np.float32), bounded_leaf)
    assert reason == text.splitlines()[-1]


def test_a_leaf_functions_error_is_raised_unchanged(message_of):
    def leaf(value):
        raise SpecError("Not on Sundays.")

    converter = Converter(ArraySpec((), np.int64), leaf, subject="It", root="day")

    assert "Not on Sundays." == message_of(SpecError, lambda: converter(7))


def test_map_with_paths_passes_the_path_of_each_leaf():
    spec = {"b": (0, [0]), "a": Pair(0, 0)}
    assert {
        "b": ("root['b'][0]", ["root['b'][1][0]"]),
        "a": Pair("root['a'].left", "root['a'].right"),
    } == map_with_paths(lambda leaf, path: path, spec, "root")
