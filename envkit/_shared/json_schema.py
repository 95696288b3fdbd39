"""Converts specs to JSON Schema, and values to JSON, for protocols that carry text.

```
spec                              JSON Schema                       JSON
scalar of numbers                 integer, number, with bounds      3, 0.5
array of shape (2, 1)             array of 2 arrays of 1 number     [[0.5], [0.25]]
boolean                           boolean                           true
TextSpec                          string, with lengths              "left"
ObjectSpec of strings             string                            "any text"
ObjectSpec                        anything                          what JSON can hold
dict, namedtuple                  object                            {"speed": 0.5}
list, tuple                       array, by place                   [3, 0.5]
```

The outermost value is an object, because OpenEnv and others require that; a spec
without keys becomes its only entry, "value". Numbers keep all their digits. JSON has no
infinite numbers, so they are the strings "Infinity", "-Infinity" and "NaN".

An exact schema contains the whole spec as "x-envkit", so `spec_of` restores it exactly.
From any other schema `spec_of` makes the best-fitting spec; those are short, because
trainers put them into every prompt of a language model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit.errors import SpecError
from envkit.extend import as_array, describe, listed
from envkit.nest import Structure, is_namedtuple
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import Choices, ObjectSpec, Strings, TextSpec
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["EXACT_SCHEMA", "JsonForm", "has_specs", "schema_of", "spec_of"]

# The media type with which a client asks for exact schemas.
EXACT_SCHEMA = "application/vnd.envkit.schema+json"
_OURS = "x-envkit"
_VALUE = "value"
_WORDS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "number", "U": "string"}
# Bounds that only reflect the dtype; those of small integers mean more.
_WIDE = [np.iinfo(dtype) for dtype in (np.int32, np.int64, np.uint32, np.uint64)]
_LEAST_INTEGERS = {limits.min for limits in _WIDE} - {0}
_MOST_INTEGERS = {limits.max for limits in _WIDE}
# Deeper than any sensible value, and shallower than Python's stack.
_DEEPEST = 32
_ABSENT: Any = object()


class JsonForm:
    """Writes values of a spec as JSON, and reads them.

    Example:
        >>> form = JsonForm(BoundedArraySpec((2,), np.float32, 0, 1), subject="It")
        >>> form.write(np.array([0.5, 1.0], np.float32))
        {'value': [0.5, 1.0]}
        >>> form.read({"value": [0, 0.25]})
        array([0.  , 0.25], dtype=float32)
    """

    def __init__(self, spec: NestedSpec, *, subject: str, root: str = "") -> None:
        """Compiles both directions.

        Args:
            spec: The spec.
            subject: The beginning of error messages.
            root: The root of paths in messages, such as `observation`.

        Raises:
            SpecError: A part of the spec has no form in JSON.
        """
        self._spec, self._subject, self._root = spec, subject, root
        self._is_wrapped = not _has_keys(spec)
        self._write, self._read = _compiled(spec, root)
        self._structure = Structure(spec)

    def write(self, value: NestedArray) -> dict[str, Any]:
        """Returns a value for `json.dumps`.

        Raises:
            SpecError: An object has no form in JSON.
        """
        # Hot: called once per step.
        data = self._write(value)
        return {_VALUE: data} if self._is_wrapped else data

    def read(self, data: Any) -> NestedArray:
        """Returns the value, checked against the spec.

        Raises:
            SpecError: The data does not fit.
        """
        # Hot: called once per step.
        if self._is_wrapped:
            if not isinstance(data, Mapping) or data.keys() != {_VALUE}:
                raise SpecError(
                    f"{self._subject} must be an object with the key 'value' alone, "
                    f"got {_shown(data)}."
                )
            data = data[_VALUE]
        value = self._read(data)
        if not self._fits(value):  # the check that explains takes several times as long
            check_fits(value, self._spec, subject=self._subject, root=self._root)
        return value

    def _fits(self, value: Any) -> bool:
        structure = self._structure
        try:
            leaves = structure.flatten(value)
        except SpecError:
            return False
        pairs = zip(structure.leaves, leaves, strict=True)
        return all(spec.check_array(leaf) for spec, leaf in pairs)


def schema_of(
    spec: NestedSpec, title: str = "", *, exact: bool = False
) -> dict[str, Any]:
    """Returns the JSON Schema of the values that a `JsonForm` writes.

    Args:
        spec: The spec.
        title: The name of the values.
        exact: Whether `spec_of` can restore the same spec, which takes more than JSON
            Schema offers.

    Example:
        >>> schema = schema_of({"way": BoundedArraySpec((), np.int32, 0, 3)})
        >>> schema["properties"]["way"]["type"], schema["required"]
        ('integer', ['way'])

    Raises:
        SpecError: A part of the spec has no form in JSON.
    """
    _compiled(spec, "")
    if _has_keys(spec):
        schema = _schema(spec)
    else:
        schema = _object({_VALUE: _schema(spec)})
        schema[_OURS] = {"wrapped": True}
    if not exact:
        schema = _without_ours(schema)
    return {"title": title, **schema} if title else schema


def spec_of(
    schema: Mapping[str, Any],
    example: Any = _ABSENT,
    *,
    root: str = "",
    leave_out: tuple[str, ...] = (),
    only_required: bool = False,
    text_length: int | None = None,
) -> NestedSpec:
    """Returns the spec that a schema describes.

    If the schema is not exact, integers become int64, numbers become float64, and an
    enumeration becomes `Choices`. An array whose size the schema leaves open gets the
    size in the example; without an example it becomes an object, as does everything
    that no array can hold.

    Args:
        schema: The schema of an object.
        example: A value that fits the schema.
        root: The value's name in messages.
        leave_out: Keys to leave out.
        only_required: Whether to leave out entries with a default, if any entry has
            none.
        text_length: The maximum length of texts, which become arrays of a fixed width;
            `None` for texts of any length, which become objects.

    Raises:
        SpecError: The schema cannot be read.

    Example:
        >>> spec_of({"properties": {"word": {"type": "string"}}})
        {'word': ObjectSpec(shape=(), dtype=object, kind=Strings(str))}
    """
    try:
        reader = _SchemaReader(schema, text_length)
        return reader.outermost(example, leave_out, only_required)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(
            f"The JSON Schema of the {root or 'value'} cannot be read: "
            f"{type(error).__name__}: {error!s:.200}."
            f"{f' Pass {root}_spec.' if root else ''}"
        ) from error


def has_specs(schema: Mapping[str, Any]) -> bool:
    """Returns True if a schema is exact, so that no example is needed.

    Example:
        >>> spec = ArraySpec((), "f")
        >>> has_specs(schema_of(spec, exact=True)), has_specs(schema_of(spec))
        (True, False)
    """
    parts: Any = schema.get("properties", {})
    return _OURS in schema or any(
        isinstance(part, Mapping) and (_OURS in part or has_specs(part))
        for part in (parts.values() if isinstance(parts, Mapping) else ())
    )


def _without_ours(schema: Any) -> Any:
    """Returns a schema without the embedded specs."""
    if isinstance(schema, list):
        return [_without_ours(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # The names of properties belong to the environment.
    return {
        key: {name: _without_ours(part) for name, part in child.items()}
        if key == "properties"
        else _without_ours(child)
        if key in ("items", "prefixItems")
        else child
        for key, child in schema.items()
        if key != _OURS
    }


def _has_keys(spec: NestedSpec) -> bool:
    return isinstance(spec, Mapping) or is_namedtuple(spec)


def _shown(data: Any) -> str:
    if not isinstance(data, Mapping):
        return describe(data)
    return f"one with {listed(map(repr, data))[:120]}" if data else "an empty one"


_Change = Callable[[Any], Any]


def _compiled(spec: NestedSpec, path: str) -> tuple[_Change, _Change]:
    """Returns a function that writes a spec's values, and one that reads unchecked."""
    if isinstance(spec, Mapping):
        return _compiled_dict(spec, path)
    if is_namedtuple(spec):
        fields = _compiled_dict(spec._asdict(), path)
        return lambda value: fields[0](value._asdict()), _reads_fields(spec, fields[1])
    if isinstance(spec, list | tuple):
        return _compiled_items(spec, path)
    if not isinstance(spec, ArraySpec):
        raise SpecError(
            f"JSON has no form for {describe(spec)} at {path or 'the top'}: specs must "
            "be in dictionaries, lists, tuples and namedtuples."
        )
    return _writes(spec, path), _reads(spec)


def _compiled_dict(spec: Mapping[Any, Any], path: str) -> tuple[_Change, _Change]:
    strange = [key for key in spec if not isinstance(key, str)]
    if strange:
        raise SpecError(
            f"JSON has no form for the key {strange[0]!r:.80} at {path or 'the top'}: "
            "keys must be strings."
        )
    parts = {key: _compiled(child, f"{path}[{key!r}]") for key, child in spec.items()}

    def write(value: Any) -> Any:
        return {key: part[0](value[key]) for key, part in parts.items()}

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {
            key: parts[key][1](child) if key in parts else child
            for key, child in data.items()
        }

    return write, read


def _reads_fields(spec: Any, read: _Change) -> _Change:
    def read_fields(data: Any) -> Any:
        if not isinstance(data, Mapping) or data.keys() != set(spec._fields):
            return data
        return type(spec)(**read(data))

    return read_fields


def _compiled_items(spec: Any, path: str) -> tuple[_Change, _Change]:
    parts = [_compiled(child, f"{path}[{index}]") for index, child in enumerate(spec)]
    kind = type(spec)

    def write(value: Any) -> Any:
        return [part[0](item) for part, item in zip(parts, value, strict=True)]

    def read(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(parts):
            return data
        return kind(part[1](item) for part, item in zip(parts, data, strict=True))

    return write, read


def _writes(spec: ArraySpec, path: str) -> _Change:
    if isinstance(spec, ObjectSpec):
        _check_object(spec, path)
        return lambda value: _plain_object(value, path)
    kind = spec.dtype.kind
    if kind not in _TYPES:
        raise SpecError(
            f"JSON has no form for arrays of dtype {spec.dtype} at {path or 'the top'}:"
            " they must be of numbers, of booleans or of text."
        )
    if kind != "f":
        return lambda value: np.asarray(value).tolist()

    def write(value: Any) -> Any:
        # Hot: called once per leaf and step.
        array = np.asarray(value)
        if np.isfinite(array).all():
            return array.tolist()
        return _with_names(array.tolist())

    return write


def _check_object(spec: ObjectSpec, path: str) -> None:
    is_text = isinstance(spec.kind, Strings) and spec.kind.kind is str
    if spec.shape or (isinstance(spec.kind, Strings) and not is_text):
        raise SpecError(
            f"JSON has no form for {spec!r:.120} at {path or 'the top'}: an object "
            "must be one value, and strings must be of str."
        )


def _plain_object(value: Any, path: str) -> Any:
    item = value[()] if isinstance(value, np.ndarray) else value
    if not isinstance(item, str):
        try:
            json.dumps(item, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise SpecError(
                f"The value at {path or 'the top'} is {describe(item)}, which JSON "
                f"cannot hold: {error!s:.120}."
            ) from error
    return item


def _with_names(data: Any) -> Any:
    if isinstance(data, list):
        return [_with_names(item) for item in data]
    return data if math.isfinite(data) else _NAMES.get(data, "NaN")


def _reads(spec: ArraySpec) -> _Change:
    if isinstance(spec, ObjectSpec):
        return ObjectSpec.wrap
    dtype, kind = spec.dtype, spec.dtype.kind
    if 0 in spec.shape:  # empty lists show neither dtype nor shape
        nothing = np.empty(spec.shape, dtype)
        return lambda data: nothing.copy() if data == nothing.tolist() else data
    if kind == "U":
        return lambda data: _text(data, dtype)
    read = _floats if kind == "f" else _integers if kind in "iu" else _booleans

    def convert(data: Any) -> Any:
        # Hot: called once per leaf and step. Unfitting data is returned unchanged, for
        # the following check to describe.
        array = as_array(data)
        if array.dtype == dtype:
            return array
        if array.dtype.kind == "f" and kind in "iu":
            # NumPy turns a mix of integers below and above 2**63 into floats.
            array = _exact(data, array, dtype)
        return read(array, dtype) if array.dtype.kind in "biufU" else data

    return convert


def _floats(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.kind == "U":
        return _of_words(array, dtype)
    if array.dtype.kind == "b":
        return array
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    # A number that becomes infinite only here is too large for the dtype.
    return converted if np.isfinite(converted).all() else array


def _of_words(array: Array, dtype: np.dtype[Any]) -> Array:
    """Returns the numbers of a text array that contains a word such as "NaN"."""
    numbers = np.empty(array.shape, dtype)
    for index, text in np.ndenumerate(array):
        number = _WORDS.get(str(text))
        if number is None:
            try:  # NumPy has turned neighbouring numbers into texts
                number = float(str(text)) if "n" not in str(text).lower() else None
            except ValueError:
                number = None
            if number is None or not math.isfinite(number):
                return array
        numbers[index] = number
    return numbers


def _integers(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype.kind not in "iuf":
        return array
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype)
    return converted if np.array_equal(converted, array) else array


def _exact(data: Any, array: Array, dtype: np.dtype[Any]) -> Array:
    """Returns integers with all their digits, or else the array that NumPy made."""
    numbers = np.array(data, object).ravel().tolist()
    if not all(number == number // 1 for number in numbers):
        return array
    try:
        return np.array([int(number) for number in numbers], dtype).reshape(array.shape)
    except (OverflowError, ValueError):
        return array


def _booleans(array: Array, dtype: np.dtype[Any]) -> Array:
    return array


def _text(data: Any, dtype: np.dtype[Any]) -> Any:
    array = as_array(data)
    if array.dtype.kind != "U" or array.dtype.itemsize > dtype.itemsize:
        return array if array.dtype.kind == "U" else data
    return array.astype(dtype)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema(spec: NestedSpec) -> dict[str, Any]:
    if _has_keys(spec):
        parts = spec if isinstance(spec, Mapping) else spec._asdict()
        return _object({key: _schema(child) for key, child in parts.items()})
    if isinstance(spec, list | tuple):
        return {
            "type": "array",
            "prefixItems": [_schema(child) for child in spec],
            "minItems": len(spec),
            "maxItems": len(spec),
            _OURS: {"tuple": isinstance(spec, tuple)},
        }
    schema = _element(spec)
    for size in reversed(spec.shape):
        schema = {
            "type": "array",
            "items": schema,
            "minItems": size,
            "maxItems": size,
        }
    if spec.name:
        schema["title"] = spec.name
    return {**schema, _OURS: _facts(spec)}


def _element(spec: ArraySpec) -> dict[str, Any]:
    """Returns the schema of one element of an array."""
    if isinstance(spec, ObjectSpec):
        if isinstance(spec.kind, Choices):
            return {"enum": list(spec.kind.values)}
        return {"type": "string"} if isinstance(spec.kind, Strings) else {}
    schema: dict[str, Any] = {"type": _TYPES[spec.dtype.kind]}
    if isinstance(spec, TextSpec):
        schema["minLength"], schema["maxLength"] = spec.min_length, spec.max_length
    if isinstance(spec, BoundedArraySpec) and 0 not in spec.shape:
        schema |= _widest_bounds(spec)
    return schema


def _widest_bounds(spec: BoundedArraySpec) -> dict[str, Any]:
    """Returns the bounds of all elements, except bounds that only show a dtype."""
    low, high = np.min(spec.minimum).item(), np.max(spec.maximum).item()
    if spec.dtype.kind == "f":
        # 64-bit floats may have been 32-bit before.
        most = min(float(np.finfo(spec.dtype).max), float(np.finfo(np.float32).max))
        is_least, is_most = low <= -most, high >= most
    else:
        is_least, is_most = low in _LEAST_INTEGERS, high in _MOST_INTEGERS
    bounds = {} if is_least else {"minimum": low}
    return bounds if is_most else {**bounds, "maximum": high}


def _facts(spec: ArraySpec) -> dict[str, Any]:
    facts: dict[str, Any] = {"dtype": spec.dtype.str, "shape": list(spec.shape)}
    if spec.name is not None:
        facts["name"] = spec.name
    if isinstance(spec, TextSpec):
        facts["lengths"] = [spec.min_length, spec.max_length]
        facts["letters"] = spec.letters
    if isinstance(spec, BoundedArraySpec):
        # Empty lists have no shape, and nothing in them exceeds bounds.
        is_empty = 0 in spec.shape
        facts["minimum"] = 0 if is_empty else np.asarray(spec.minimum).tolist()
        facts["maximum"] = 0 if is_empty else np.asarray(spec.maximum).tolist()
    if isinstance(spec, ObjectSpec):
        strings, choices = (isinstance(spec.kind, one) for one in (Strings, Choices))
        facts["kind"] = "strings" if strings else "choices" if choices else "any"
    return facts


class _SchemaReader:
    """Makes specs from a schema whose parts may refer to one another."""

    def __init__(self, schema: Mapping[str, Any], text_length: int | None) -> None:
        self._schema = schema
        self._text_length = text_length
        self._depth = 0

    def outermost(
        self, example: Any, leave_out: tuple[str, ...], only_required: bool
    ) -> NestedSpec:
        schema = self._schema
        properties = dict(schema.get("properties", {}))
        ours = schema.get(_OURS)
        if isinstance(ours, Mapping) and ours.get("wrapped"):
            return self.read(properties[_VALUE], _entry(example, _VALUE))
        required = [key for key in schema.get("required", ()) if key in properties]
        chosen = required if only_required and required else list(properties)
        return {
            key: self.read(properties[key], _entry(example, key))
            for key in chosen
            if key not in leave_out
        }

    def read(self, schema: Any, example: Any) -> NestedSpec:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("it is nested too deeply, or refers to itself")
        try:
            return self._read(self._resolved(schema), example)
        finally:
            self._depth -= 1

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        """Returns the schema that a reference points to."""
        for _ in range(_DEEPEST):
            if schema is True:
                return {}
            reference = schema.get("$ref")
            if reference is None:
                return schema  # type: ignore[no-any-return]  # it has `get`
            found: Any = self._schema
            for key in reference.removeprefix("#/").split("/"):
                found = found[key]
            schema = found
        raise ValueError("its references lead nowhere")

    def _read(self, schema: Mapping[str, Any], example: Any) -> NestedSpec:
        name = schema.get("title")
        ours = schema.get(_OURS)
        if isinstance(ours, Mapping) and "dtype" in ours:
            return _spec_of_facts(ours, schema)
        if "const" in schema:
            return _choices([schema["const"]])
        if "enum" in schema:
            return _choices(schema["enum"])
        kind = schema.get("type")
        is_closed = schema.get("additionalProperties") is False
        if kind == "object" and (schema.get("properties") or is_closed):
            return {
                key: self.read(child, _entry(example, key))
                for key, child in schema.get("properties", {}).items()
            }
        if kind == "array":
            return self._array(schema, example, ours)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number", "boolean"):
            return _number(schema, name if isinstance(name, str) else None)
        return ObjectSpec()

    def _string(self, schema: Mapping[str, Any]) -> ArraySpec:
        longest = schema.get("maxLength")
        if self._text_length is not None:
            return TextSpec((), f"<U{self._text_length}")
        if isinstance(longest, int) and 0 < longest <= 256:
            return TextSpec((), f"<U{longest}", min_length=schema.get("minLength", 0))
        return ObjectSpec(kind=Strings(str))

    def _array(self, schema: Mapping[str, Any], example: Any, ours: Any) -> NestedSpec:
        if "prefixItems" in schema:
            parts = [
                self.read(child, _entry(example, index))
                for index, child in enumerate(schema["prefixItems"])
            ]
            is_list = isinstance(ours, Mapping) and not ours.get("tuple", True)
            return parts if is_list else tuple(parts)
        item = self.read(schema.get("items", {}), _entry(example, 0))
        low, high = schema.get("minItems"), schema.get("maxItems")
        size = low if low == high else None
        if size is None and isinstance(example, list):
            size = len(example)
        if not isinstance(item, ArraySpec) or item.dtype.kind not in "biuf":
            return ObjectSpec()
        if size is None or (size == 0 and low != high):
            return ObjectSpec()
        return item.replace(shape=(size, *item.shape))


def _entry(example: Any, key: Any) -> Any:
    if isinstance(example, Mapping):
        return example.get(key, _ABSENT)
    if isinstance(example, list) and isinstance(key, int) and key < len(example):
        return example[key]
    return _ABSENT


def _choices(values: Any) -> ArraySpec:
    return ObjectSpec(kind=Choices(values))


def _number(schema: Mapping[str, Any], name: str | None) -> ArraySpec:
    if schema["type"] == "boolean":
        return ArraySpec((), bool, name)
    is_float = schema["type"] == "number"
    dtype = np.dtype(np.float64 if is_float else np.int64)
    low, high = schema.get("minimum"), schema.get("maximum")
    if not is_float:
        if low is None and "exclusiveMinimum" in schema:
            low = schema["exclusiveMinimum"] + 1
        if high is None and "exclusiveMaximum" in schema:
            high = schema["exclusiveMaximum"] - 1
    if low is None and high is None:
        return ArraySpec((), dtype, name)
    limits: Any = np.finfo(dtype) if is_float else np.iinfo(dtype)
    low = limits.min if low is None else max(low, limits.min)
    high = limits.max if high is None else min(high, limits.max)
    return BoundedArraySpec((), dtype, low, high, name)


def _spec_of_facts(facts: Mapping[str, Any], schema: Mapping[str, Any]) -> ArraySpec:
    shape, dtype, name = tuple(facts["shape"]), facts["dtype"], facts.get("name")
    if "kind" in facts:
        if facts["kind"] == "choices":
            return _choices(schema["enum"])
        kind = Strings(str) if facts["kind"] == "strings" else None
        return ObjectSpec(name=name, kind=kind)
    dtype = np.dtype(dtype)
    if dtype.kind not in _TYPES:
        raise ValueError(f"it has the dtype {dtype}")
    if "lengths" in facts:
        low, high = facts["lengths"]
        return TextSpec(
            shape,
            dtype,
            name,
            min_length=low,
            max_length=high,
            letters=facts.get("letters"),
        )
    if "minimum" in facts:
        low, high = facts["minimum"], facts["maximum"]
        return BoundedArraySpec(shape, dtype, low, high, name)
    return ArraySpec(shape, dtype, name)
