"""Values survive JSON, specs survive JSON Schema, and all else is refused."""

from __future__ import annotations

import collections
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import nest
from envkit._shared.json_schema import JsonForm, has_specs, schema_of, spec_of
from envkit.errors import SpecError
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.special import Choices, ObjectSpec, Strings, TextSpec
from tests import strategies

Place = collections.namedtuple("Place", ["y", "x"])

NUMBERS = strategies.specs("biuf")
WHOLE = st.recursive(
    NUMBERS,
    lambda children: (
        st.dictionaries(st.text(max_size=3), children, max_size=3)
        | st.lists(children, max_size=2)
        | st.lists(children, max_size=2).map(tuple)
    ),
    max_leaves=4,
)


def travelled(data):
    return json.loads(json.dumps(data, allow_nan=False))


@given(data=st.data(), spec=WHOLE)
def test_values_survive_a_round_trip_bit_for_bit(data, spec):
    value = data.draw(strategies.values(spec))
    form = JsonForm(spec, subject="It")

    back = form.read(travelled(form.write(value)))

    assert type(value) is type(back)
    for sent, come in zip(nest.flatten(value), nest.flatten(back), strict=True):
        assert (sent.dtype, sent.shape) == (come.dtype, come.shape)
        assert sent.tobytes() == come.tobytes()


@given(spec=WHOLE)
def test_specs_survive_a_round_trip(spec):
    schema = travelled(schema_of(spec, exact=True))
    back = spec_of(schema)
    assert spec == back
    names = [leaf.name for leaf in nest.flatten(spec)]
    assert names == [leaf.name for leaf in nest.flatten(back)]


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (TextSpec((2,), "<U3", min_length=1, letters="ab"), np.array(["a", "bab"])),
        (ObjectSpec(kind=Strings(str)), ObjectSpec.wrap("any \ud800 text")),
        (ObjectSpec(kind=Choices(["up", 3])), ObjectSpec.wrap(3)),
        (ObjectSpec(), ObjectSpec.wrap({"a": [None, 1.5]})),
    ],
)
def test_texts_and_objects_survive_a_round_trip(spec, value):
    form = JsonForm({"said": spec}, subject="It")
    back = form.read(travelled(form.write({"said": value})))
    assert value.tolist() == back["said"].tolist()
    assert {"said": spec} == spec_of(travelled(schema_of({"said": spec}, exact=True)))


@given(spec=WHOLE)
def test_schemas_are_valid_json_schema(spec):
    schema, exact = schema_of(spec), schema_of(spec, exact=True)
    assert not has_specs(schema)
    assert keys_of(schema) <= {
        "additionalProperties",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "prefixItems",
        "properties",
        "required",
        "title",
        "type",
    }
    assert schema["required"] == exact["required"]


def keys_of(schema):
    """Returns the keys of a schema and its parts, without the names of properties."""
    parts = [*schema.get("properties", {}).values(), *schema.get("prefixItems", ())]
    parts += [schema["items"]] if "items" in schema else []
    return schema.keys() | {key for part in parts for key in keys_of(part)}


FLOATS = np.finfo(np.float32)


@pytest.mark.parametrize(
    ("spec", "bounds"),
    [
        (BoundedArraySpec((2,), np.float32, FLOATS.min, FLOATS.max), {}),
        (BoundedArraySpec((), np.float64, float(FLOATS.min), float(FLOATS.max)), {}),
        (BoundedArraySpec((), np.float64, -np.inf, np.inf), {}),
        (BoundedArraySpec((), np.float16, -65504, 65504), {}),
        (BoundedArraySpec((), np.float32, 0, FLOATS.max), {"minimum": 0.0}),
        (BoundedArraySpec((2,), np.float32, [-1, FLOATS.min], 2), {"maximum": 2.0}),
        (BoundedArraySpec((), np.int32, -(2**31), 2**31 - 1), {}),
        (BoundedArraySpec((), np.int64, -(2**63), 2**63 - 1), {}),
        (BoundedArraySpec((), np.int64, -(2**31), 2**31 - 1), {}),
        (BoundedArraySpec((), np.uint64, 0, 2**64 - 1), {"minimum": 0}),
        (BoundedArraySpec((), np.int64, -5, 2**63 - 1), {"minimum": -5}),
        # These tell more than a dtype, which JSON has not.
        (BoundedArraySpec((), np.uint8, 0, 255), {"minimum": 0, "maximum": 255}),
        (BoundedArraySpec((), np.int64, 0, 10**9), {"minimum": 0, "maximum": 10**9}),
    ],
)
def test_bounds_equal_to_the_limits_of_the_dtype_are_left_out(spec, bounds):
    schema = schema_of(spec)["properties"]["value"]
    element = schema.get("items", schema)
    assert bounds == {key: element[key] for key in element if key.endswith("imum")}


def test_integers_keep_all_digits_and_may_be_floats_in_json():
    form = JsonForm(ArraySpec((2,), np.uint64), subject="It")
    sent = np.array([2**64 - 1, 1], np.uint64)
    assert sent.tolist() == form.read(travelled(form.write(sent))).tolist()
    assert [3, 2**63] == form.read({"value": [3.0, 2**63]}).tolist()
    for wrong in ([0.5, 1], [1e300, 1], [-1, 2**63], [2**64, 1]):
        with pytest.raises(SpecError):
            form.read({"value": wrong})
    with pytest.raises(SpecError):
        form.read(json.loads('{"value": [NaN, Infinity]}'))


def test_a_namedtuple_becomes_an_object_and_survives_a_round_trip():
    form = JsonForm(Place(ArraySpec((), "int8"), ArraySpec((), "int8")), subject="It")
    data = form.write(Place(np.int8(1), np.int8(2)))
    assert {"y": 1, "x": 2} == data
    assert Place(1, 2) == form.read(data)


def test_infinite_numbers_are_strings():
    form = JsonForm(ArraySpec((4,), np.float32), subject="It")
    value = np.array([np.inf, -np.inf, np.nan, 0.1], np.float32)

    data = travelled(form.write(value))

    assert ["Infinity", "-Infinity", "NaN"] == data["value"][:3]
    np.testing.assert_array_equal(value, form.read(data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from(["value", "a", "b"]), children, max_size=3)
    ),
    max_leaves=8,
)
SPECS = [
    BoundedArraySpec((2,), np.float32, 0, 1),
    {"a": BoundedArraySpec((), np.int8, -3, 3), "b": ArraySpec((2, 1), bool)},
    (TextSpec((), "<U3"), [ArraySpec((), np.uint64)]),
]


@given(data=JSON, spec=st.sampled_from(SPECS))
def test_values_read_from_json_fit_or_are_refused_with_a_reason(data, spec):
    form = JsonForm(spec, subject="The action", root="action")
    reason = "The action is right."
    try:
        value = form.read(data)
    except SpecError as error:
        reason = str(error)
    else:
        for leaf, array in zip(nest.flatten(spec), nest.flatten(value), strict=True):
            assert leaf.check_array(array)
    assert reason.startswith("The action ")


@pytest.mark.parametrize(
    ("spec", "data", "reason"),
    [
        ("f", {"value": 1e300}, "dtype is float64; the spec says float32."),
        ("f", {"value": True}, "dtype is bool; the spec says float32."),
        ("f", {"value": "Infinitely"}, "dtype is <U10; the spec says float32."),
        ("f", {"values": 1}, "got one with 'values'."),
        ("f", {}, "got an empty one."),
        ("f", 1, "must be an object with the key 'value' alone, got 1"),
    ],
)
def test_a_refused_value_is_explained(spec, data, reason):
    with pytest.raises(SpecError) as caught:
        JsonForm(ArraySpec((), spec), subject="It").read(data)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((), np.complex64),
        ArraySpec((), "S3"),
        {1: ArraySpec((), bool)},
        ObjectSpec(kind=Strings(bytes)),
        strategies.Pose(ArraySpec((), bool), ArraySpec((), bool)),
    ],
)
def test_specs_without_a_json_form_are_refused(spec):
    with pytest.raises(SpecError, match="JSON has no form for"):
        schema_of(spec)


def test_objects_without_a_json_form_are_refused():
    form = JsonForm({"held": ObjectSpec()}, subject="It")
    with pytest.raises(SpecError, match=r"\['held'\] is .*, which JSON cannot hold"):
        form.write({"held": ObjectSpec.wrap(object())})


# What pydantic makes of an observation and an action with fields of many kinds.
FOREIGN = {
    "$defs": {
        "Piece": {
            "type": "object",
            "properties": {"row": {"type": "integer"}, "name": {"type": "string"}},
        }
    },
    "properties": {
        "done": {"type": "boolean", "default": False},
        "board": {"type": "array", "items": {"type": "number"}},
        "sized": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "exclusiveMaximum": 4},
            "minItems": 2,
            "maxItems": 2,
        },
        "piece": {"$ref": "#/$defs/Piece"},
        "way": {"enum": ["left", "right"]},
        "said": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "code": {"type": "string", "maxLength": 8},
        "free": {"type": "object", "additionalProperties": True},
        "ratio": {"type": "number", "minimum": 0},
    },
    "required": ["board", "way"],
}


def test_foreign_schemas_become_the_closest_specs():
    spec = spec_of(FOREIGN, {"board": [0.5, 1, 2]}, leave_out=("done",))
    assert {
        "board": ArraySpec((3,), np.float64),
        "sized": BoundedArraySpec((2,), np.int64, 0, 3),
        "piece": {
            "row": ArraySpec((), np.int64),
            "name": ObjectSpec(kind=Strings(str)),
        },
        "way": ObjectSpec(kind=Choices(["left", "right"])),
        "said": ObjectSpec(),
        "code": TextSpec((), "<U8"),
        "free": ObjectSpec(),
        "ratio": BoundedArraySpec((), np.float64, 0, np.inf),
    } == spec
    assert not has_specs(FOREIGN)


def test_without_an_example_a_list_of_any_length_is_an_object():
    assert ObjectSpec() == spec_of(FOREIGN)["board"]


def test_properties_with_a_default_are_optional():
    assert ["board", "way"] == list(spec_of(FOREIGN, only_required=True))


def test_the_name_of_a_spec_is_its_title():
    schema = schema_of({"camera": ArraySpec((2,), np.uint8, name="left eye")})
    assert "left eye" == schema["properties"]["camera"]["title"]


def test_text_length_gives_texts_a_fixed_width():
    spec = spec_of(FOREIGN, text_length=5)
    assert TextSpec((), "<U5") == spec["piece"]["name"] == spec["code"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": 3}},
        {"properties": {"a": {"x-envkit": {"dtype": "|O", "shape": []}}}},
        {"properties": {"a": {"x-envkit": {"dtype": "no", "shape": []}}}},
        {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
         "properties": {"a": {"$ref": "#/$defs/a"}}},
        [],
    ],
)  # fmt: skip
def test_invalid_schemas_are_refused(schema):
    with pytest.raises(SpecError, match=r"cannot be read.*Pass action_spec\."):
        spec_of(schema, root="action")


@given(schema=JSON)
def test_hostile_schemas_do_no_harm(schema):
    reason = ""
    try:
        spec_of({"properties": {"a": schema}})
    except SpecError as error:
        reason = str(error)
    assert not reason or "cannot be read" in reason
