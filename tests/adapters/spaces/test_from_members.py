"""Members of Gymnasium's spaces as values of envkit."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, nest
from envkit.adapters import spec_from_gym_space
from envkit.adapters.spaces.from_members import from_member, from_members
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.spaces_from_specs import space_from_spec
from envkit.errors import SpecError
from envkit.specs import check_fits
from tests.adapters.gym_spaces import Interval, gym_spaces, members, same


def reader(space, **options):
    spec = spec_from_gym_space(space, name="observation")
    return from_member(space, spec, subject="It", root="observation", **options)


def refusal(space, member, **options) -> str:
    with pytest.raises(SpecError) as caught:
        reader(space, **options)(member)
    return str(caught.value)


@given(data=st.data())
@settings(max_examples=50)
def test_the_value_of_a_member_fits_the_spec(data):
    space = data.draw(gym_spaces())
    spec = spec_from_gym_space(space)

    value = from_member(space, spec, bounded=True)(data.draw(members(space)))

    check_fits(value, spec)


@given(data=st.data(), rows=st.integers(1, 3))
@settings(max_examples=50)
def test_a_batch_is_read_as_its_rows_are(data, rows):
    space = data.draw(gym_spaces())
    spec = spec_from_gym_space(space)
    several = [data.draw(members(space)) for _ in range(rows)]
    batch = concatenate(space, several, create_empty_array(space, rows))

    value = from_members(space, spec, rows, bounded=True)(batch)

    check_fits(value, spec, outer_dims=(rows,))
    read_one = from_member(space, spec)
    for row, member in enumerate(several):
        pairs = zip(nest.flatten(read_one(member)), nest.flatten(value), strict=True)
        for expected, actual in pairs:
            assert same(expected[()], actual[row])


def test_arrays_are_new():
    space = spaces.Tuple([spaces.Box(0, 1, (2,))])
    member = (np.zeros(2, np.float32),)

    (read,) = reader(space)(member)
    member[0][:] = 1

    np.testing.assert_array_equal(np.zeros(2, np.float32), read)


def test_objects_are_copies():
    member = (np.zeros(2), np.zeros(2))
    space = spaces.Sequence(spaces.Box(0, 1, (2,), np.float64))

    read = reader(space)(member)
    member[0][:] = 1

    np.testing.assert_array_equal(np.zeros(2), read[()][0])


def test_branches_that_do_not_count_are_neutral_and_new_each_time():
    space = spaces.OneOf([spaces.Discrete(4, start=5), spaces.Box(0, 1, (2,))])
    read = reader(space)

    first, second = read((0, 7)), read((1, [0.5, 1]))
    first.branches[1][:] = 9

    assert [0, 7, 1, 5] == [
        int(leaf)
        for leaf in (
            first.tag,
            first.branches[0],
            second.tag,
            second.branches[0],
        )
    ]
    np.testing.assert_array_equal(np.zeros(2, np.float32), read((0, 7)).branches[1])
    assert OneOf is type(first)


@pytest.mark.parametrize(
    "member",
    [(2, 0), (-1, 0), (0,), 0, ("0", 0), None],
    ids=["too large", "negative", "one", "number", "text", "None"],
)
def test_what_is_no_pair_of_a_branch_and_its_value_is_refused(member):
    space = spaces.OneOf([spaces.Discrete(2), spaces.MultiBinary(2)])

    assert (
        "A pair of a branch and its value is expected."
        == refusal(spaces.Dict(a=space), {"a": member}).split("\n")[-1]
    )


def test_a_wrong_value_in_a_union_is_named():
    space = spaces.Dict(a=spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]))

    assert (
        "It does not fit its spec at observation['a'][1].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='observation/a/branch_1')\n"
        "  got        array of shape (3,), dtype float64, values 0.0 … 0.0\n\n"
        "Axis 0 has size 3 instead of 2. dtype is float64; the spec says float32. "
        "NumPy makes float64 by default: add .astype(np.float32)."
    ) == refusal(space, {"a": (1, np.zeros(3))})


@pytest.mark.parametrize(
    ("space", "member"),
    [
        (spaces.Discrete(3), 5),
        (spaces.Box(0, 1, (2,)), np.float32([0, 2])),
        (spaces.Text(3, charset="ab"), "c"),
        (Interval(3), (0, 4)),
    ],
    ids=str,
)
def test_bounds_are_looked_at_where_that_is_asked_for(space, member):
    reader(space)(member)

    assert refusal(space, member, bounded=True).startswith("It does not fit its spec.")


def test_text_that_has_other_letters_is_named():
    assert (
        "It does not fit its spec.\n\n"
        "  expected   TextSpec(shape=(), dtype=<U3, min_length=1, max_length=3, "
        "letters='ab', name='observation')\n"
        "  got        the string 'c'\n\n"
        "Other lengths or letters are expected."
    ) == refusal(spaces.Text(3, charset="ab"), "c", bounded=True)


def test_an_object_that_is_no_member_is_named():
    assert (
        "It does not fit its spec.\n\n"
        "  expected   ObjectSpec(shape=(), dtype=object, kind=Interval(3), "
        "name='observation')\n"
        "  got        a tuple of 2 elements\n\n"
        "It is none of these values."
    ) == refusal(Interval(3), (0, 4), bounded=True)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(2),
        Interval(3),
        spaces.OneOf([spaces.Discrete(2)]),
        spaces.Discrete(2),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [(), None, 3], ids=str)
def test_a_batch_of_another_length_is_refused(space, batch):
    read = from_members(space, spec_from_gym_space(space), 2, subject="It")

    with pytest.raises(SpecError, match=r"^It does not fit its spec"):
        read(batch)


def test_a_batch_of_a_space_that_gymnasium_does_not_know_is_stacked():
    spec = ArraySpec((2,), np.complex64)
    batch = (np.zeros(2, np.complex64), np.ones(2, np.complex64))

    value = from_members(space_from_spec(spec), spec, 2)(batch)

    np.testing.assert_array_equal(np.stack(batch), value)
