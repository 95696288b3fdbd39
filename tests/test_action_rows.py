"""A batch of actions is taken as it is, or refused before anything has moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.action_rows import ActionRows
from envkit.errors import SpecError
from envkit.specs import ArraySpec, BoundedArraySpec
from tests import strategies

CHOICE = BoundedArraySpec((), np.int32, 0, 3)
FORCE = BoundedArraySpec((2,), np.float32, -1, 1)


def columns(spec, action, rows=3, **options):
    return ActionRows(spec, rows, "step()").columns(action, **options)


def refused(spec, action, rows=3, **options):
    """Returns the message with which actions are refused."""
    with pytest.raises(SpecError) as caught:
        columns(spec, action, rows, **options)
    return str(caught.value)


# What is taken.


@settings(max_examples=40)
@given(spec=strategies.spec_nests(), rows=st.integers(1, 3), data=st.data())
def test_whatever_fits_its_spec_is_taken_as_it_is(spec, rows, data):
    action = data.draw(strategies.values(spec, (rows,)))
    taken = columns(spec, action, rows)
    leaves = [place.value for place in strategies.places(action)]
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]

    assert sorted(map(id, arrays)) == sorted(map(id, taken))


@pytest.mark.parametrize(
    "action",
    [
        [0, 1, 3],
        (0, 1, 3),
        np.array([0, 1, 3], np.int8),
        np.array([0, 1, 3], np.uint64),
        np.array([0, 1, 3], ">i4"),
        np.array([9, 0, 9, 1, 9, 3])[1::2],
        [np.int64(0), np.uint8(1), 3],
    ],
    ids=repr,
)
def test_integers_of_any_kind_will_do_for_integers(action):
    (column,) = columns(CHOICE, action)

    assert [0, 1, 3] == column.tolist()


def test_without_bounds_the_dtype_is_the_bound():
    spec = ArraySpec((), np.uint8)

    assert [0, 255] == columns(spec, [0, 255], rows=2)[0].tolist()
    assert [0, 255] == columns(spec, np.array([0, 255], np.uint8), rows=2)[0].tolist()


@pytest.mark.parametrize("unit", ["s", "m"])
def test_dates_of_a_coarser_unit_will_do(unit):
    dates = np.array([0, 60], f"datetime64[{unit}]")

    assert (
        columns(ArraySpec((), "datetime64[s]"), dates, 2)[0].tolist() == dates.tolist()
    )


def test_dates_that_would_be_cut_are_refused():
    dates = np.array([0, 1], "datetime64[ms]")

    assert refused(ArraySpec((), "datetime64[s]"), dates, 2).startswith(
        "step() was given an action that does not fit its spec.\n"
    )


def test_a_number_that_would_become_infinite_is_refused():
    message = refused(ArraySpec((), np.float32), [1.0, 1e300], 2)

    assert message.startswith(
        "step() was given an action that does not fit its spec.\n"
    )


def test_what_is_infinite_stays_so():
    (column,) = columns(ArraySpec((), np.float32), [1.0, np.inf], 2)

    assert [1.0, np.inf] == column.tolist()


def test_booleans_will_do_for_integers():
    assert [1, 0, 1] == columns(CHOICE, [True, False, True])[0].tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.bool_])
def test_real_numbers_of_any_kind_will_do_for_floats(dtype):
    action = np.ones((3, 2), dtype)

    assert [[1.0, 1.0]] * 3 == columns(FORCE, action)[0].tolist()


def test_floats_may_be_out_of_bounds():
    assert [[9.0, -9.0]] == columns(FORCE, [[9.0, -9.0]], rows=1)[0].tolist()


@pytest.mark.parametrize("action", [["a", "abc"], np.array(["a", "abc"], "U9")])
def test_text_that_is_no_longer_than_its_place_will_do(action):
    assert ["a", "abc"] == columns(ArraySpec((), "<U3"), action, 2)[0].tolist()
    assert ["a", "abc"] == columns(ArraySpec((), "<U7"), action, 2)[0].tolist()


def test_a_nest_is_taken_apart_in_the_order_of_its_structure():
    spec = {"choice": CHOICE, "force": (FORCE, FORCE)}
    forces = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    taken = columns(spec, {"force": forces, "choice": [0, 1, 2]})

    assert [0, 1, 2] == taken[0].tolist()
    assert forces[0] is taken[1]
    assert forces[1] is taken[2]


@pytest.mark.parametrize("empty", [{}, (), []], ids=repr)
def test_an_action_without_leaves_has_no_columns(empty):
    assert [] == columns(empty, empty)


def test_fewer_rows_may_be_wanted_than_there_are():
    taken = ActionRows(CHOICE, 3, "send()").columns([2], rows=[1])

    assert [2] == taken[0].tolist()


@pytest.mark.parametrize(
    "action",
    [
        [5, "a"],
        [[1], [2, 3]],
        [[1, 2], [2, 3]],
        [None, {}],
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), np.zeros(2)),
        np.array([5, "a"], object),
    ],
    ids=repr,
)
def test_objects_may_be_anything_as_long_as_there_is_one_for_each_row(action):
    (column,) = columns(ArraySpec((), object), action, 2)

    assert (2,) == column.shape
    assert [True, True] == [
        given is taken for given, taken in zip(action, column, strict=True)
    ]


def test_objects_may_come_in_arrays():
    (column,) = columns(ArraySpec((2,), object), [["a", 1], ["b", 2]], 2)

    assert [["a", 1], ["b", 2]] == column.tolist()


# What is refused.


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ([0, 1], "2 actions were given for 3 environments."),
        ([0], "1 action was given for 3 environments."),
        ([0, 1, 2, 3], "4 actions were given for 3 environments."),
        ([], "0 actions were given for 3 environments."),
    ],
    ids=len,
)
def test_another_number_of_actions_says_both_numbers(action, said):
    message = refused(CHOICE, np.array(action, np.int32))

    assert message.startswith(
        "step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3,), dtype=int32, minimum=0, maximum=3)\n"
        f"  got        array of shape ({len(action)},), dtype int32"
    )
    assert message.endswith(f"\n\n{said}\nNone of the environments has moved.")


def test_a_wrong_number_in_a_nest_says_where():
    action = {"choice": np.zeros(3, np.int32), "force": np.zeros((4, 2), np.float32)}

    assert (
        "step() was given an action that does not fit its spec at action['force'].\n\n"
        "  expected   BoundedArraySpec(shape=(3, 2), dtype=float32, minimum=-1.0, "
        "maximum=1.0)\n"
        "  got        array of shape (4, 2), dtype float32, values 0.0 … 0.0\n\n"
        "4 actions were given for 3 environments.\n"
        "None of the environments has moved."
    ) == refused({"choice": CHOICE, "force": FORCE}, action)


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        (CHOICE, 1),
        (CHOICE, np.int32(1)),
        (CHOICE, np.zeros((3, 1), np.int32)),
        (FORCE, np.zeros(3)),
        (FORCE, np.zeros((3, 1))),
        (FORCE, np.zeros((3, 2, 1))),
        (FORCE, [[1.0], [2.0, 3.0], [4.0]]),
        (CHOICE, None),
        (CHOICE, "left"),
        (CHOICE, ["left", "right", "left"]),
        (CHOICE, {1, 2, 3}),
        (ArraySpec((), object), 5),
        (ArraySpec((), object), None),
        (ArraySpec((2,), object), [["a"], ["b", 2], ["c"]]),
        (ArraySpec((2,), object), [[np.zeros(2)], [np.zeros((2, 3))], ["c"]]),
        (ArraySpec((2,), object), [np.zeros((2, 2)), np.zeros((2, 3)), None]),
        (ArraySpec((2,), object), np.full((3, 4), None)),
        (FORCE, np.zeros((3, 5), np.int64)),
    ],
    ids=repr,
)
def test_what_has_another_shape_or_kind_is_refused(spec, action):
    message = refused(spec, action)

    assert message.startswith(
        "step() was given an action that does not fit its spec.\n"
    )
    assert message.endswith("\nNone of the environments has moved.")


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [(CHOICE, np.float64), (CHOICE, np.complex64), (FORCE, np.complex64)],
)
def test_what_would_lose_a_part_of_its_value_is_refused(spec, dtype):
    message = refused(spec, np.zeros((3, *spec.shape), dtype))

    assert f"dtype is {np.dtype(dtype)}; the spec says {spec.dtype}." in message


@pytest.mark.parametrize("dtype", ["bool", "<U3", "S3", "datetime64[s]"])
def test_numbers_are_taken_for_numbers_only(dtype):
    message = refused(ArraySpec((), np.dtype(dtype)), np.array([0, 1, 7]))

    assert f"dtype is int64; the spec says {np.dtype(dtype)}." in message


def test_an_integer_out_of_bounds_is_refused():
    assert (
        "step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3,), dtype=int32, minimum=0, maximum=3)\n"
        "  got        array of shape (3,), dtype int32, values 0 … 4\n\n"
        "1 of 3 elements is above the maximum 3: 4 at index (1,).\n"
        "None of the environments has moved."
    ) == refused(CHOICE, [0, 4, 1])


@pytest.mark.parametrize("number", [-1, 256, 2**40, 2**63, -(2**63)])
def test_an_integer_that_the_dtype_cannot_hold_is_refused(number):
    message = refused(ArraySpec((), np.uint8), [0, number, 1])

    assert message.startswith(
        "step() was given an action that does not fit its spec.\n"
    )


@pytest.mark.parametrize("number", [2**64, -(2**70)])
def test_an_integer_that_no_dtype_can_hold_is_refused(number):
    message = refused(ArraySpec((), np.int64), [0, number, 1])

    assert message.startswith(
        "step() was given an action that does not fit its spec.\n"
    )


def test_text_that_would_be_cut_is_refused():
    message = refused(ArraySpec((), "<U3"), ["a", "hello", "b"])

    assert message.startswith(
        "step() was given an action that does not fit its spec.\n"
    )


@pytest.mark.parametrize("other", ["list", "missing", "extra"])
def test_another_structure_is_refused(other):
    force = np.zeros((3, 2), np.float32)
    action = {
        "list": [[0, 0, 0], force],
        "missing": {"choice": [0, 0, 0]},
        "extra": {"choice": [0, 0, 0], "force": force, "more": force},
    }[other]
    message = refused({"choice": CHOICE, "force": FORCE}, action)

    assert message.startswith("step() was given an action that does not fit its spec")


# What is not looked at.


def test_rows_whose_action_is_not_used_may_be_out_of_bounds():
    ignored = np.array([False, True, False])

    assert [0, 9, 1] == columns(CHOICE, [0, 9, 1], ignored=ignored)[0].tolist()


def test_rows_whose_action_is_used_may_not():
    ignored = np.array([True, False, False])

    assert "1 of 2 elements is above the maximum 3: 9 at index (0,)" in refused(
        CHOICE, [0, 9, 1], ignored=ignored
    )


def test_bounds_may_be_left_alone():
    assert [9, 9, 9] == columns(CHOICE, [9, 9, 9], bounds=False)[0].tolist()


@given(action=strategies.anything())
def test_anything_else_is_taken_or_refused_in_words(action):
    try:
        (column,) = columns(CHOICE, action, 2)
    except SpecError as error:
        message, column = str(error), np.zeros(2, int)
    else:
        message = "None of the environments has moved."

    assert message.endswith("None of the environments has moved.")
    assert (2,) == column.shape
    assert column.dtype.kind in "biu"
