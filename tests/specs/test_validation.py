from __future__ import annotations

import collections
import decimal

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envkit import nest
from envkit.errors import SpecError
from envkit.specs import (
    ArraySpec,
    BoundedArraySpec,
    add_outer_dims_nest,
    assert_arrays_spec_nest,
    check_arrays_nest,
    check_fits,
    explain,
)
from envkit.specs.validation import describe, flatten_as
from tests import strategies
from tests.strategies import Pair, Pose

VECTOR = ArraySpec((2,), np.float32)
SCALAR = ArraySpec((), np.float32)
FITTING = np.zeros(2, np.float32)
LARGE = {
    f"robot {number}": {
        "camera": ArraySpec((2, 2), np.uint8),
        "joints": [BoundedArraySpec((3,), np.float32, -1, [1, 2, 3])] * 5,
        "pose": Pair(BoundedArraySpec((), np.int64, 0, 9), ArraySpec((), "<U7")),
        "on": ArraySpec((), np.bool_),
        "goal": (BoundedArraySpec((1,), np.float64), {}),
    }
    for number in range(20)
}


@attrs.define
class PoseInSpace(Pose):
    """A container with one field more than its base."""

    z: object


def reason(value: object, spec: object, **options: object) -> str:
    """Returns the last paragraph of the explanation."""
    text = explain(value, spec, **options)
    assert text is not None
    return text.split("\n\n", maxsplit=2)[-1]


# What holds for every spec and value.


@settings(max_examples=25)
@given(
    data=st.data(), spec=strategies.spec_nests(strategies.specs(any_byte_order=True))
)
def test_a_fitting_value_has_no_explanation(data, spec):
    value = data.draw(strategies.values(spec))
    assert explain(value, spec) is None
    assert check_arrays_nest(value, spec) is True
    check_fits(value, spec)
    assert_arrays_spec_nest(value, spec)


@settings(max_examples=25)
@given(data=st.data(), spec=strategies.spec_nests(), dims=strategies.outer_dims())
def test_a_fitting_batch_has_no_explanation(data, spec, dims):
    value = data.draw(strategies.values(spec, dims))
    assert explain(value, spec, outer_dims=dims) is None
    assert explain(value, add_outer_dims_nest(spec, dims)) is None


def check_explanation(misfit: strategies.Misfit) -> None:
    """Fails unless what is wrong is told: where, what was expected and what came."""
    with pytest.raises(SpecError) as caught:
        check_fits(misfit.value, misfit.spec)
    text = str(caught.value)
    first, _, expected, got, _, *why = text.splitlines()
    place = f" at {misfit.path}" if misfit.path else ""
    assert f"The value does not fit its spec{place}." == first
    assert expected.startswith(f"  expected   {misfit.expected}")
    assert got.startswith("  got        ")
    assert misfit.got in got
    assert len(why) == 1
    assert why[0].endswith((".", "?"))
    assert ("other" in why[0]) is (misfit.others > 0)
    assert why[0].endswith(said_of_others(misfit.others))
    assert len(text.splitlines()) < 12
    assert misfit.path == caught.value.path
    assert text == explain(misfit.value, misfit.spec)
    assert check_arrays_nest(misfit.value, misfit.spec) is False
    with pytest.raises(ValueError, match="does not fit its spec"):
        assert_arrays_spec_nest(misfit.value, misfit.spec)


def said_of_others(count: int) -> str:
    return {0: "", 1: " The other leaf fits."}.get(
        count, f" The other {count} leaves fit."
    )


@settings(max_examples=25)
@given(misfit=strategies.misfits())
def test_a_single_misfit_is_found_and_explained(misfit):
    check_explanation(misfit)


@settings(max_examples=5)
@given(misfit=strategies.misfits(st.just(LARGE)))
def test_one_misfit_among_200_leaves_is_explained_as_briefly(misfit):
    assert 200 == len(strategies.leaves(LARGE))
    check_explanation(misfit)


@example(value=2**63, spec=ArraySpec((), np.uint64))
@example(value=2**63, spec=BoundedArraySpec((), np.uint64))
@settings(max_examples=60)
@given(
    value=strategies.anything(),
    spec=strategies.specs(spec_shapes=st.just(()) | strategies.shapes(max_dims=1)),
)
def test_every_misfit_has_a_reason(value, spec):
    text = explain(value, spec)
    if spec.check_array(value):
        assert text is None
        return

    first, _, expected, got, _, why = text.splitlines()
    assert "The value does not fit its spec." == first
    assert f"  expected   {spec!r}" == expected
    assert f"  got        {describe(value)}" == got
    assert why.endswith((".", "?"))
    if "NaN" in why:
        assert np.isnan(value).any() or "nan" in repr(spec)


# Whole messages.


def test_a_wrong_shape_is_explained():
    spec = {
        "camera": {
            "left": BoundedArraySpec((84, 84, 3), np.uint8),
            "right": ArraySpec((), np.uint8),
        },
        "speed": SCALAR,
    }
    value = {
        "camera": {"left": np.zeros((84, 84, 4), np.uint8), "right": np.uint8(0)},
        "speed": np.float32(0),
    }
    value["camera"]["left"][0, 0, 0] = 255
    with pytest.raises(SpecError) as caught:
        check_fits(
            value,
            spec,
            subject="env 3 returned an observation that",
            root="observation",
            context="This was the first observation after reset() of my_game.ArenaEnv.",
        )

    assert (
        "env 3 returned an observation that does not fit its spec at "
        "observation['camera']['left'].\n"
        "\n"
        "  expected   BoundedArraySpec(shape=(84, 84, 3), dtype=uint8, minimum=0, "
        "maximum=255)\n"
        "  got        array of shape (84, 84, 4), dtype uint8, values 0 … 255\n"
        "\n"
        "Axis 2 has size 4 instead of 3. The other 2 leaves fit.\n"
        "This was the first observation after reset() of my_game.ArenaEnv."
    ) == str(caught.value)
    assert (
        "observation['camera']['left']",
        "Axis 2 has size 4 instead of 3. The other 2 leaves fit.",
    ) == (caught.value.path, caught.value.reason)


def test_a_missing_key_is_explained():
    assert (
        "The observation does not fit its spec at observation['camera'].\n"
        "\n"
        "  expected   the structure {'left': *, 'right': *}\n"
        "  got        a dict of 1 element\n"
        "\n"
        "Key 'right' is missing. The other leaf fits."
    ) == explain(
        {"camera": {"left": FITTING}, "speed": FITTING},
        {"camera": {"left": VECTOR, "right": VECTOR}, "speed": VECTOR},
        subject="The observation",
        root="observation",
    )


def test_a_value_out_of_bounds_is_explained():
    assert (
        "The action does not fit its spec at action.first.\n"
        "\n"
        "  expected   BoundedArraySpec(shape=(6,), dtype=float32, minimum=-1.0, "
        "maximum=1.0)\n"
        "  got        array of shape (6,), dtype float32, values 0.0 … 1.0000001\n"
        "\n"
        "1 of 6 elements is above the maximum 1.0: 1.0000001 at index (4,). The other "
        "leaf fits."
    ) == explain(
        Pair(FITTING, np.array([0, 0, 0, 0, np.nextafter(1, 2, dtype="f4"), 0], "f4")),
        Pair(VECTOR, BoundedArraySpec((6,), np.float32, -1, 1)),
        subject="The action",
        root="action",
    )


def test_more_misfits_are_named_and_counted():
    spec = {f"sensor {index}": VECTOR for index in range(6)}
    value = {**dict.fromkeys(spec, np.zeros(2)), "sensor 5": FITTING}
    assert (
        "dtype is float64; the spec says float32. NumPy makes float64 by default: add "
        ".astype(np.float32). Neither does it fit at ['sensor 1'], ['sensor 2'], "
        "['sensor 3'] and 1 more."
    ) == reason(value, spec)


def test_the_first_of_several_misfits_is_explained():
    with pytest.raises(SpecError) as caught:
        check_fits(
            {"b": None, "a": [FITTING, 3.0, None]}, {"b": VECTOR, "a": [VECTOR] * 3}
        )

    assert (
        "The value does not fit its spec at ['a'][1].\n"
        "\n"
        "  expected   ArraySpec(shape=(2,), dtype=float32)\n"
        "  got        3.0 of type float\n"
        "\n"
        "The value is a single number; an array of shape (2,) is expected. Neither "
        "does it fit at ['a'][2], ['b']."
    ) == str(caught.value)
    assert "['a'][1]" == caught.value.path


def test_a_leaf_other_than_a_spec_is_explained():
    assert (
        "The value does not fit its spec at ['a'].\n"
        "\n"
        "  expected   an ArraySpec\n"
        "  got        <class 'numpy.float32'>\n"
        "\n"
        "The spec is not an ArraySpec."
    ) == explain({"a": FITTING}, {"a": np.float32})


# Reasons.


@pytest.mark.parametrize(
    ("got", "expected", "text"),
    [
        ((3,), (2,), "Axis 0 has size 3 instead of 2."),
        ((2, 3, 5), (2, 4, 5), "Axis 1 has size 3 instead of 4."),
        (
            (4, 5, 6),
            (6, 5, 4),
            "Axes 0 and 2 have another size: (4, 5, 6) instead of (6, 5, 4).",
        ),
        (
            (4, 5, 6, 7),
            (1, 2, 3, 7),
            "Axes 0, 1 and 2 have another size: (4, 5, 6, 7) instead of (1, 2, 3, 7).",
        ),
        (
            (5, 2),
            (2,),
            "There is one dimension too many, of size 5: a batch where a single value "
            "belongs.",
        ),
        ((2, 1), (2,), "The array has 2 dimensions instead of 1."),
        ((1, 1, 2), (2,), "The array has 3 dimensions instead of 1."),
        ((), (2,), "The array has 0 dimensions instead of 1."),
        (
            (2,),
            (),
            "There is one dimension too many, of size 2: a batch where a single "
            "value belongs.",
        ),
        ((2,), (3, 2), "The array has 1 dimension instead of 2."),
    ],
)
def test_a_differing_shape_is_explained(got, expected, text):
    assert text == reason(np.zeros(got, np.int8), ArraySpec(expected, np.int8))


@pytest.mark.parametrize(
    ("shape", "dims", "text"),
    [
        ((2,), (3,), "The whole batch dimension is missing: expected (3, 2)."),
        ((2,), (3, 4), "The whole batch dimension is missing: expected (3, 4, 2)."),
        ((4, 2), (3,), "Axis 0 has size 4 instead of 3."),
        ((3, 2), (3, 4), "The array has 2 dimensions instead of 3."),
        (
            (1, 3, 2),
            (3,),
            "There is one dimension too many, of size 1: a batch where a single value "
            "belongs.",
        ),
    ],
)
def test_differing_outer_dims_are_explained(shape, dims, text):
    assert text == reason(np.zeros(shape, np.float32), VECTOR, outer_dims=dims)


@pytest.mark.parametrize(
    ("got", "expected", "text"),
    [
        (
            "float64",
            "float16",
            "NumPy makes float64 by default: add .astype(np.float16).",
        ),
        ("int64", "uint8", "NumPy makes int64 by default: add .astype(np.uint8)."),
        ("int64", "float32", "If that is meant, add .astype(np.float32)."),
        ("float32", "float64", "If that is meant, add .astype(np.float64)."),
        ("int64", "bool", "If that is meant, add .astype(np.bool_)."),
        (">f4", "float32", "If that is meant, add .astype(np.float32)."),
        ("float32", ">f4", "If that is meant, add .astype('>f4')."),
        ("float64", ">f4", "NumPy makes float64 by default: add .astype('>f4')."),
        ("<U3", "<U5", "NumPy makes text as wide as the longest: add .astype('<U5')."),
        ("S3", "S5", "NumPy makes text as wide as the longest: add .astype('S5')."),
        ("S3", "<U5", "If that is meant, add .astype('<U5')."),
        ("int64", "datetime64[s]", "If that is meant, add .astype('datetime64[s]')."),
        (
            "object",
            "float32",
            "NumPy makes object arrays of rows that differ in shape.",
        ),
    ],
)
def test_a_differing_dtype_is_explained(got, expected, text):
    value = np.zeros(2, got)
    spec = ArraySpec((2,), expected)
    assert f"dtype is {value.dtype}; the spec says {spec.dtype}. {text}" == (
        reason(value, spec)
    )


@pytest.mark.parametrize(("got", "expected"), [("<U7", "<U5"), ("S7", "S5")])
def test_text_that_is_too_long_is_explained(got, expected):
    spec = ArraySpec((2,), expected)
    assert f"dtype is {np.dtype(got)}; the spec says {spec.dtype}." == (
        reason(np.zeros(2, got), spec)
    )


def test_differing_shape_and_dtype_are_both_explained():
    assert (
        "Axis 0 has size 3 instead of 2. dtype is float64; the spec says float32. "
        "NumPy makes float64 by default: add .astype(np.float32)."
    ) == reason(np.zeros(3), VECTOR)


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (
            [0, 5, 9],
            (0, 4),
            "2 of 3 elements are above the maximum 4: 5 at index (1,).",
        ),
        (
            [-2, 2, 2],
            (0, 4),
            "1 of 3 elements is below the minimum 0: -2 at index (0,).",
        ),
        (
            [[0, 0, 9], [0, 0, 0]],
            (0, [4, 5, 6]),
            "1 of 6 elements is above the maximum 6: 9 at index (0, 2).",
        ),
        ([9], (0, 4), "1 of 1 element is above the maximum 4: 9 at index (0,)."),
        (9, (0, 4), "The value 9 is above the maximum 4."),
        (-9, (0, 4), "The value -9 is below the minimum 0."),
        (
            [-1, 9, 0],
            (0, 4),
            "1 of 3 elements is above the maximum 4: 9 at index (1,).",
        ),
    ],
)
def test_an_element_out_of_bounds_is_explained(value, bounds, text):
    array = np.array(value, np.int32)
    spec = BoundedArraySpec(array.shape, np.int32, *bounds)
    assert text == reason(array, spec)


def test_bounds_are_checked_in_every_row_of_a_batch():
    spec = BoundedArraySpec((2,), np.float64, [0, 1], [1, 3])
    assert "4 of 8 elements are above the maximum 1.0: 2.0 at index (0, 0)." == reason(
        np.full((4, 2), 2.0), spec, outer_dims=(4,)
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([np.nan, np.nan], "2 of 2 elements are NaN, which no bounds contain."),
        ([np.nan], "1 of 1 element is NaN, which no bounds contain."),
        (np.nan, "The value is NaN, which no bounds contain."),
        ([np.nan, 7], "1 of 2 elements is above the maximum 1.0: 7.0 at index (1,)."),
        (np.inf, "The value inf is above the maximum 1.0."),
        ([1.0, 0.0, np.nan], "1 of 3 elements is NaN, which no bounds contain."),
        (
            [0.5, -np.inf],
            "1 of 2 elements is below the minimum 0.0: -inf at index (1,).",
        ),
    ],
)
def test_nonfinite_numbers_are_explained(value, text):
    array = np.array(value, np.float32)
    assert text == reason(array, BoundedArraySpec(array.shape, np.float32, 0, 1))


def test_a_nan_bound_is_explained():
    bound = np.array([np.nan, 0], np.float32)
    assert "A bound of the spec is NaN, so no value fits." == (
        reason(FITTING, BoundedArraySpec((2,), np.float32, bound, 1))
    )


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (
            3.0,
            VECTOR,
            "The value is a single number; an array of shape (2,) is expected.",
        ),
        (
            np.float32(3),
            VECTOR,
            "The value is a single number; an array of shape (2,) is expected.",
        ),
        (
            3.0,
            SCALAR,
            "A float becomes float64; the spec says float32: use np.array(..., "
            "np.float32).",
        ),
        (
            5,
            ArraySpec((), np.int8),
            "An int becomes int64; the spec says int8: use np.array(..., np.int8).",
        ),
        (
            1j,
            SCALAR,
            "A complex becomes complex128; the spec says float32: use np.array(..., "
            "np.float32).",
        ),
        (
            1,
            ArraySpec((), np.bool_),
            "An int becomes int64; the spec says bool: use np.array(..., np.bool_).",
        ),
        (
            5,
            ArraySpec((), ">i8"),
            "An int becomes int64; the spec says >i8: use np.array(..., '>i8').",
        ),
        (
            np.float64(3),
            SCALAR,
            "dtype is float64; the spec says float32. NumPy makes float64 by default: "
            "add .astype(np.float32).",
        ),
        (
            np.bool_(True),
            ArraySpec((), np.int8),
            "dtype is bool; the spec says int8. If that is meant, add "
            ".astype(np.int8).",
        ),
        (
            7,
            BoundedArraySpec((), np.int64, 0, 4),
            "The value 7 is above the maximum 4.",
        ),
        (
            np.float32(-1),
            BoundedArraySpec((), np.float32, 0, 4),
            "The value -1.0 is below the minimum 0.0.",
        ),
        (
            2**70,
            BoundedArraySpec((), np.int64, 0, 4),
            "The value 1180591620717411303424 is too large for int64.",
        ),
        (
            -(2**70),
            ArraySpec((), np.int64),
            "The value -1180591620717411303424 is too small for int64.",
        ),
        (-5, ArraySpec((), np.uint8), "The value -5 is too small for uint8."),
        (300, ArraySpec((), np.uint8), "The value 300 is too large for uint8."),
        (
            decimal.Decimal(1),
            SCALAR,
            "A Decimal is not an array: use np.array(..., np.float32).",
        ),
        (
            np.bool_(True),
            ArraySpec((), np.bool_),
            "A NumPy boolean is not an array: use np.asarray(...).",
        ),
        (
            np.datetime64("2020-01-01"),
            ArraySpec((), "datetime64[D]"),
            "A NumPy datetime64 is not an array: use np.asarray(...).",
        ),
        ("ab", ArraySpec((), "<U2"), "A string is not an array."),
        (np.str_("ab"), ArraySpec((), "<U2"), "A string is not an array."),
        (b"ab", ArraySpec((), "S2"), "A string is not an array."),
    ],
)
def test_a_number_or_string_in_place_of_an_array_is_explained(value, spec, text):
    assert text == reason(value, spec)


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (
            (0.0, 0.0),
            VECTOR,
            "The value is a tuple, not an array: use np.array(..., np.float32).",
        ),
        (
            [True],
            ArraySpec((1,), np.bool_),
            "The value is a list, not an array: use np.array(..., np.bool_).",
        ),
        (
            ["ab"],
            ArraySpec((1,), "<U3"),
            "The value is a list, not an array: use np.array(..., '<U3').",
        ),
        (
            [0.0],
            ArraySpec((1,), ">f4"),
            "The value is a list, not an array: use np.array(..., '>f4').",
        ),
        (None, VECTOR, "None is not an array. Did a return statement get lost?"),
        ({"a": 1}, VECTOR, "The value is a dict; an array is expected here."),
        ({}, VECTOR, "The value is a dict; an array is expected here."),
        (range(2), VECTOR, "The value is a range; an array is expected here."),
        (
            collections.OrderedDict(),
            VECTOR,
            "The value is an OrderedDict; an array is expected here.",
        ),
        ({1, 2}, VECTOR, "A set is not an array."),
        (VECTOR, VECTOR, "An ArraySpec is not an array."),
        (np.float32, VECTOR, "A type is not an array."),
    ],
)
def test_a_container_or_object_in_place_of_an_array_is_explained(value, spec, text):
    assert text == reason(value, spec)


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (
            FITTING,
            {"a": VECTOR},
            "The value is a single ndarray; a dictionary is expected.",
        ),
        (3.0, (VECTOR,), "The value is a single float; a tuple is expected."),
        (
            None,
            {"a": VECTOR, "b": (VECTOR,)},
            "The value is None; a dictionary is expected. Did a return statement get "
            "lost?",
        ),
        (
            {"cam": FITTING},
            {"camera": VECTOR},
            "Key 'camera' is missing; key 'cam' is not in the spec.",
        ),
        ("ab", [VECTOR, VECTOR], "The value is a single str; a list is expected."),
        ((FITTING,), [VECTOR], "The value is a tuple; a list is expected."),
        ([FITTING], [VECTOR] * 2, "The list has 1 element; 2 are expected."),
        (
            {1: FITTING, "a": FITTING},
            {1: VECTOR},
            "Key 'a' is not in the spec.",
        ),
        (
            PoseInSpace(FITTING, FITTING, FITTING),
            Pose(VECTOR, VECTOR),
            "The value is a PoseInSpace; a Pose is expected.",
        ),
    ],
)
def test_a_differing_structure_is_explained(value, spec, text):
    assert text == reason(value, spec)
    assert check_arrays_nest(value, spec) is False


# The other functions.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (
            np.zeros((84, 84), np.uint8),
            "array of shape (84, 84), dtype uint8, values 0 … 0",
        ),
        (
            np.array([0.1, 0.7], "f4"),
            "array of shape (2,), dtype float32, values 0.1 … 0.7",
        ),
        (
            np.array([True, False]),
            "array of shape (2,), dtype bool, values False … True",
        ),
        (
            np.array([np.nan, 2.0]),
            "array of shape (2,), dtype float64, values 2.0 … 2.0 and NaN",
        ),
        (np.array([np.nan]), "array of shape (1,), dtype float64, all NaN"),
        (np.zeros((0, 3)), "array of shape (0, 3), dtype float64"),
        (np.array(["ab"]), "array of shape (1,), dtype <U2"),
        (np.array([1j]), "array of shape (1,), dtype complex128"),
        (np.array([None]), "array of shape (1,), dtype object"),
        (3.5, "3.5 of type float"),
        (np.int8(3), f"{np.int8(3)!r} of type int8"),
        (True, "True of type bool"),
        (10**60, "1000000000000000000000000000000000000000 of type int"),
        ("text", "the string 'text'"),
        ("t" * 60, f"the string '{'t' * 39}"),
        (b"text", "the string b'text'"),
        ([1], "a list of 1 element"),
        ((1, 2, 3), "a tuple of 3 elements"),
        ({}, "a dict of 0 elements"),
        (Pair(1, 2), "a Pair of 2 elements"),
        (collections.OrderedDict(), "an OrderedDict of 0 elements"),
        ({1}, "a set object"),
        (VECTOR, "an ArraySpec object"),
        (Pose(1, 2), "a Pose object"),
    ],
)
def test_a_value_is_described_in_one_line(value, text):
    assert text == describe(value)


def test_a_value_is_flattened_up_to_a_structure():
    structure = nest.Structure({"turn": VECTOR, "move": SCALAR})
    assert [[1], 2] == flatten_as(
        structure, {"turn": 2, "move": [1]}, subject="The action"
    )


@pytest.mark.parametrize(
    ("value", "place", "lines"),
    [
        (
            {"turn": [1], "move": {}},
            " at action['turn']",
            (
                "the structure (*, *)",
                "a list of 1 element",
                "The value is a list; a tuple is expected.",
            ),
        ),
        (
            np.zeros(2),
            "",
            (
                "the structure {'turn': (*, *), 'move': *}",
                "array of shape (2,), dtype float64, values 0.0 … 0.0",
                "The value is a single ndarray; a dictionary is expected.",
            ),
        ),
    ],
)
def test_flattening_a_value_of_another_structure_is_refused(
    message_of, value, place, lines
):
    structure = nest.Structure({"turn": (SCALAR, SCALAR), "move": SCALAR})
    raised = message_of(
        SpecError,
        lambda: flatten_as(structure, value, subject="The action", root="action"),
    )

    expected, got, why = lines
    assert (
        f"The action does not fit its spec{place}.\n"
        "\n"
        f"  expected   {expected}\n"
        f"  got        {got}\n"
        "\n"
        f"{why}"
    ) == raised


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"a": np.float32}, "The spec at ['a'] is <class 'numpy.float32'>"),
        (None, "The spec is None"),
    ],
)
def test_a_leaf_other_than_a_spec_raises_type_error(message_of, spec, text):
    raised = message_of(
        TypeError, lambda: assert_arrays_spec_nest({"a": FITTING}, spec)
    )
    assert f"{text}, not an ArraySpec." == raised


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (FITTING, None),
        (FITTING, np.float32),
        ({"a": FITTING}, {"a": 3}),
        (FITTING, [VECTOR]),
        ({1: FITTING, "a": FITTING}, {1: VECTOR, "a": VECTOR}),
        (VECTOR, VECTOR),
    ],
)
def test_check_functions_return_false_instead_of_raising(value, spec):
    assert check_arrays_nest(value, spec) is False


@pytest.mark.parametrize("check", [explain, check_fits])
def test_outer_dims_must_be_a_sequence(message_of, check):
    raised = message_of(TypeError, lambda: check(FITTING, VECTOR, outer_dims=4))
    assert (
        "outer_dims is a sequence of sizes, not 4: for one dimension write (4,)."
    ) == raised
