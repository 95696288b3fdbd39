"""A batch of actions is taken as it is, or refused before anything has moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.actions import ActionRows
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
def test_actions_that_fit_their_spec_are_used_unchanged(spec, rows, data):
    action = data.draw(strategies.values(spec, (rows,)))
    taken = columns(spec, action, rows)
    leaves = [place.value for place in strategies.places(action)]
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    assert sorted(map(id, arrays)) == sorted(map(id, taken))


INTEGERS = [
    [0, 1, 3],
    (0, 1, 3),
    np.array([0, 1, 3], np.int8),
    np.array([0, 1, 3], np.uint64),
    np.array([0, 1, 3], ">i4"),
    np.array([9, 0, 9, 1, 9, 3])[1::2],
    [np.int64(0), np.uint8(1), 3],
]
REALS = [np.ones((3, 2), dtype) for dtype in (np.float64, np.float16, int, bool)]


@pytest.mark.parametrize(
    ("spec", "action", "taken"),
    [
        *((CHOICE, integers, [0, 1, 3]) for integers in INTEGERS),
        (CHOICE, [True, False, True], [1, 0, 1]),
        *((FORCE, reals, [[1.0, 1.0]] * 3) for reals in REALS),
        # Floats may be out of bounds, but do not become infinite.
        (FORCE, [[9.0, -9.0]] * 3, [[9.0, -9.0]] * 3),
        (ArraySpec((), np.float32), [1.0, np.inf, 0.0], [1.0, np.inf, 0.0]),
        # Without bounds the dtype is the bound.
        (ArraySpec((), np.uint8), [0, 255, 1], [0, 255, 1]),
        (ArraySpec((), np.uint8), np.array([0, 255, 1], np.uint8), [0, 255, 1]),
        (ArraySpec((), "<U3"), ["a", "abc", ""], ["a", "abc", ""]),
        (ArraySpec((), "<U7"), ["a", "abc", ""], ["a", "abc", ""]),
        (ArraySpec((), "<U3"), np.array(["a", "abc", ""], "U9"), ["a", "abc", ""]),
        # Dates of a coarser unit.
        *(
            (ArraySpec((), "datetime64[s]"), dates, dates.tolist())
            for dates in (
                np.array([0, 60, 1], f"datetime64[{unit}]") for unit in ("s", "m")
            )
        ),
    ],
    ids=repr,
)
def test_actions_of_other_dtypes_are_accepted_if_their_values_fit(spec, action, taken):
    (column,) = columns(spec, action)
    assert taken == column.tolist()


def test_nested_actions_are_flattened_in_the_order_of_their_structure():
    spec = {"choice": CHOICE, "force": (FORCE, FORCE)}
    forces = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    taken = columns(spec, {"force": forces, "choice": [0, 1, 2]})
    assert [0, 1, 2] == taken[0].tolist()
    assert forces[0] is taken[1]
    assert forces[1] is taken[2]


@pytest.mark.parametrize("empty", [{}, (), []], ids=repr)
def test_an_action_without_leaves_has_no_columns(empty):
    assert [] == columns(empty, empty)


def test_a_subset_of_rows_can_be_requested():
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
def test_object_actions_may_be_anything_with_one_entry_per_row(action):
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
def test_a_wrong_number_of_actions_is_refused_with_both_numbers(action, said):
    message = refused(CHOICE, np.array(action, np.int32))
    assert message.startswith(
        "step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3,), dtype=int32, minimum=0, maximum=3)\n"
        f"  got        array of shape ({len(action)},), dtype int32"
    )
    assert message.endswith(f"\n\n{said}\nNone of the environments has moved.")


def test_a_wrong_number_of_actions_in_a_nest_is_located():
    action = {"choice": np.zeros(3, np.int32), "force": np.zeros((4, 2), np.float32)}
    assert (
        "step() was given an action that does not fit its spec at action['force'].\n\n"
        "  expected   BoundedArraySpec(shape=(3, 2), dtype=float32, minimum=-1.0, "
        "maximum=1.0)\n"
        "  got        array of shape (4, 2), dtype float32, values 0.0 … 0.0\n\n"
        "4 actions were given for 3 environments.\n"
        "None of the environments has moved."
    ) == refused({"choice": CHOICE, "force": FORCE}, action)


NO_SPEC = "step() was given an action that does not fit its spec"
DTYPE = "dtype is {}; the spec says {}."
ZEROS = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    ("spec", "action", "said"),
    [
        (CHOICE, 1, ""),
        (CHOICE, np.int32(1), ""),
        (CHOICE, np.zeros((3, 1), np.int32), ""),
        (FORCE, np.zeros(3), ""),
        (FORCE, np.zeros((3, 1)), ""),
        (FORCE, np.zeros((3, 2, 1)), ""),
        (FORCE, [[1.0], [2.0, 3.0], [4.0]], ""),
        (CHOICE, None, ""),
        (CHOICE, "left", ""),
        (CHOICE, ["left", "right", "left"], ""),
        (CHOICE, {1, 2, 3}, ""),
        (ArraySpec((), object), 5, ""),
        (ArraySpec((), object), None, ""),
        (ArraySpec((2,), object), [["a"], ["b", 2], ["c"]], ""),
        (ArraySpec((2,), object), [[np.zeros(2)], [np.zeros((2, 3))], ["c"]], ""),
        (ArraySpec((2,), object), [np.zeros((2, 2)), np.zeros((2, 3)), None], ""),
        (ArraySpec((2,), object), np.full((3, 4), None), ""),
        (FORCE, np.zeros((3, 5), np.int64), ""),
        # What would lose a part of its value.
        (CHOICE, np.zeros(3), DTYPE.format("float64", "int32")),
        (CHOICE, np.zeros(3, np.complex64), DTYPE.format("complex64", "int32")),
        (FORCE, ZEROS.astype(np.complex64), DTYPE.format("complex64", "float32")),
        (ArraySpec((), np.float32), [1.0, 1e300, 1.0], ""),
        (ArraySpec((), "datetime64[s]"), np.array([0, 1, 2], "datetime64[ms]"), ""),
        (ArraySpec((), "<U3"), ["a", "hello", "b"], ""),
        *(
            (ArraySpec((), np.uint8), [0, number, 1], "")
            for number in (-1, 256, 2**40, 2**63, -(2**63))
        ),
        *(
            (ArraySpec((), np.int64), [0, number, 1], "")
            for number in (2**64, -(2**70))
        ),
        # Numbers are taken for numbers only.
        *(
            (
                ArraySpec((), np.dtype(dtype)),
                np.array([0, 1, 7]),
                DTYPE.format("int64", np.dtype(dtype)),
            )
            for dtype in ("bool", "<U3", "S3", "datetime64[s]")
        ),
    ],
    ids=repr,
)
def test_actions_of_another_shape_or_kind_are_refused(spec, action, said):
    message = refused(spec, action)
    assert message.startswith(f"{NO_SPEC}.\n")
    assert said in message
    assert message.endswith("\nNone of the environments has moved.")


@pytest.mark.parametrize(
    "action",
    [
        [[0, 0, 0], ZEROS],
        {"choice": [0, 0, 0]},
        {"choice": [0, 0, 0], "force": ZEROS, "more": ZEROS},
    ],
    ids=["list", "missing", "extra"],
)
def test_actions_of_another_structure_are_refused(action):
    assert refused({"choice": CHOICE, "force": FORCE}, action).startswith(NO_SPEC)


def test_an_integer_out_of_bounds_is_refused():
    assert (
        "step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(3,), dtype=int32, minimum=0, maximum=3)\n"
        "  got        array of shape (3,), dtype int32, values 0 … 4\n\n"
        "1 of 3 elements is above the maximum 3: 4 at index (1,).\n"
        "None of the environments has moved."
    ) == refused(CHOICE, [0, 4, 1])


# What is not looked at.


def test_only_actions_that_are_used_must_be_within_bounds():
    unused, used = np.array([False, True, False]), np.array([True, False, False])
    assert [0, 9, 1] == columns(CHOICE, [0, 9, 1], ignored=unused)[0].tolist()
    assert "1 of 2 elements is above the maximum 3: 9 at index (0,)" in refused(
        CHOICE, [0, 9, 1], ignored=used
    )


def test_bounds_checks_can_be_switched_off():
    assert [9, 9, 9] == columns(CHOICE, [9, 9, 9], bounds=False)[0].tolist()


@given(action=strategies.anything())
def test_any_other_action_is_accepted_or_refused_with_a_message(action):
    try:
        (column,) = columns(CHOICE, action, 2)
    except SpecError as error:
        message, column = str(error), np.zeros(2, int)
    else:
        message = "None of the environments has moved."
    assert message.endswith("None of the environments has moved.")
    assert (2,) == column.shape
    assert column.dtype.kind in "biu"
