"""Values as JSON, and back."""

from __future__ import annotations

import collections
import json
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envkit import nest
from envkit.plain_data import PlainDataError, dumped, from_plain, loaded, to_plain
from tests import strategies

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
    max_leaves=12,
)


def back(value):
    return from_plain(loaded(dumped(to_plain(value))))


@given(value=values)
def test_a_value_comes_back_as_it_was(value):
    came = back(value)

    assert value == came
    assert repr(value) == repr(came)


@given(data=st.data())
def test_an_array_comes_back_bit_for_bit(data):
    dtype = data.draw(strategies.dtypes(any_byte_order=True))
    array = data.draw(hnp.arrays(dtype, strategies.shapes()))
    came = back(array)

    assert (array.dtype, array.shape) == (came.dtype, came.shape)
    assert array.tobytes() == came.tobytes()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), -0.0])
def test_numbers_that_json_has_not_come_back(number):
    assert repr(number) == repr(back(number))
    assert repr(np.float32(number)) == repr(back(np.float32(number)))


def test_a_scalar_of_numpy_stays_one():
    assert np.float32 is type(back(np.float32(0.1)))
    assert np.float32(0.1) == back(np.float32(0.1))


def test_keys_that_look_like_tags_are_keys():
    assert {"$tuple": 1, "a": 2} == back({"$tuple": 1, "a": 2})
    assert {"$array": {}} == back({"$array": {}})


def test_an_array_of_objects_holds_what_json_holds():
    array = np.empty((2,), object)
    array[0], array[1] = [1, 2], {"a": None}
    came = back(array)

    assert array.tolist() == came.tolist()
    assert object == came.dtype


def test_what_is_no_plain_data_is_named_with_its_place():
    with pytest.raises(PlainDataError) as raised:
        to_plain({"path": [1, {2, 3}]}, "info")

    expected = "info['path'][1] is of type builtins:set, which is no plain data."
    assert expected == str(raised.value)
    assert ("info['path'][1]", {2, 3}) == (raised.value.place, raised.value.value)


def test_whoever_asks_may_write_the_rest():
    plain = to_plain({2, 3}, other=lambda value, _: {"$set": sorted(value)})

    assert {"$set": [2, 3]} == plain
    assert {2, 3} == from_plain(plain, other=lambda _, data: set(data))


def test_a_tag_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"^There is no plain data called '\$set'\.$"):
        from_plain({"$set": [2]})


def test_a_file_does_not_say_what_is_imported():
    """A namedtuple of a module that is not here becomes one that is like it."""
    data = {"$namedtuple": {"name": "no_such_module:Pair", "fields": {"a": 1, "b": 2}}}
    pair = from_plain(data)

    assert ("Pair", (1, 2)) == (type(pair).__name__, tuple(pair))
    assert (1, 2) == (pair.a, pair.b)


def test_plain_data_is_what_json_says():
    assert '{"a":[1,2.5,null,true,"ü"]}' == json.dumps(
        to_plain({"a": [1, 2.5, None, True, "ü"]}),
        separators=(",", ":"),
        ensure_ascii=False,
    )


def test_nests_of_specs_keep_their_structure():
    point = Point({"b": 1, "a": (2, 3)}, [4])

    assert nest.outline(point) == nest.outline(back(point))
