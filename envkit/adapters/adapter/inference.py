"""Infers specs and converters from observations.

| a part of an observation            | its spec                                       |
|-------------------------------------|------------------------------------------------|
| an array, or similar to one         | `ArraySpec` of its shape and dtype             |
| `bool`, `int`, `float`              | `ArraySpec` without dimensions                 |
| a list or tuple of numbers          | `ArraySpec`, an array                          |
| a string                            | `TextSpec` of a fixed width                    |
| any other dictionary, list or tuple | the same, part by part                         |
| a list that `max_lengths` names     | `{"length": ..., "values": ...}`               |

Several observations give one spec that fits them all: if a number is an integer in one
and a fraction in another, it becomes a float.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    map_specs,
    rebuilt,
)
from envkit.errors import SpecError
from envkit.extend import as_array, describe, listed
from envkit.nest import is_namedtuple, join
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.batching import add_outer_dims_nest
from envkit.specs.special import TextSpec
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedSpec

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Inferred", "MaxLengths", "explained", "infer"]

_ROOT = "observation"

# The maximum number of elements of a list, or with an element's spec; for lists in
# dictionaries, by key or by path, such as "['creeps']['good']".
Most: TypeAlias = "int | tuple[int, NestedSpec]"
MaxLengths: TypeAlias = "Most | Mapping[str, Most]"


class Inferred(NamedTuple):
    """Holds the specs inferred from observations.

    Attributes:
        spec: The nest of specs.
        leaves: The nest of conversion functions, for a `Converter`.
    """

    spec: NestedSpec
    leaves: Any


def infer(
    observations: Sequence[Any],
    *,
    name: str,
    floats: npt.DTypeLike = np.float64,
    text_length: int = 256,
    max_lengths: MaxLengths | None = None,
    path: str = "",
) -> Inferred:
    """Infers the specs of observations.

    Args:
        observations: One or several observations; one spec must fit all.
        name: The environment's name, for messages.
        floats: The dtype that replaces float64.
        text_length: The maximum length of strings.
        max_lengths: The maximum lengths of lists whose length varies.
        path: The path of these values in an observation, if they are a part of one.

    Example:
        >>> first = {"speed": 0.5, "path": [(1, 2), (3, 4)], "lives": 3}
        >>> infer([first], name="Game").spec["path"]
        ArraySpec(shape=(2, 2), dtype=int64, name='path')

    Raises:
        SpecError: No spec can be inferred; the message says what to do.
    """
    inference = _Inference(name, np.dtype(floats), text_length, max_lengths)
    return inference.tell(list(observations), f"{_ROOT}{path}", _ROOT)


def explained(error: SpecError, name: str, call: str, observation: Any) -> SpecError:
    """Adds the source of the specs to an error, and with it the remedy.

    Args:
        error: The error for an observation that does not fit.
        name: The environment's name.
        call: The method that returned the observation.
        observation: The observation.
    """
    note = (
        f"{name}.{call}() returned it. The specs were inferred from the first reset; "
        "if both are right, declare observation_spec(), or see max_lengths, floats, "
        "text_length and probe_steps in the documentation of Adapter."
    )
    if isinstance(observation, tuple) and len(observation) == 2:
        note += (
            " If an observation has two parts, and reset() returns no info, declare "
            'reset_returns = "observation".'
        )
    longer = SpecError(f"{error}\n\n{note}")
    longer.path, longer.reason = error.path, error.reason
    return longer


@dataclasses.dataclass(frozen=True, slots=True)
class _Inference:
    name: str
    floats: np.dtype[Any]
    text_length: int
    max_lengths: MaxLengths | None

    def tell(self, values: list[Any], path: str, key: str) -> Inferred:
        """Returns the specs for one path, given all values seen there."""
        most = self._most(path, key)
        if most is not None:
            return self._tell_padded(values, path, key, most)
        if any(isinstance(value, Mapping) for value in values):
            return self._tell_mapping(values, path)
        if all(isinstance(value, list | tuple) for value in values) and not all(
            map(_is_array, values)
        ):
            return self._tell_sequence(values, path, key)
        return self._tell_leaf(values, path, key)

    def _most(self, path: str, key: str) -> Most | None:
        if isinstance(self.max_lengths, Mapping):
            place = path.removeprefix(_ROOT)
            return self.max_lengths.get(place, self.max_lengths.get(key))
        return self.max_lengths if path == _ROOT else None

    def _tell_mapping(self, values: list[Any], path: str) -> Inferred:
        keys = list(values[0]) if isinstance(values[0], Mapping) else []
        for value in values:
            if not isinstance(value, Mapping) or value.keys() != set(keys):
                what = list(value) if isinstance(value, Mapping) else describe(value)
                raise self._cannot(
                    path,
                    f"dictionaries with the same keys: {listed(keys)}",
                    f"once also {what}",
                    "Give each key a value at all times.",
                )
        parts = {
            part: self.tell(
                [value[part] for value in values],
                f"{path}[{part!r}]",
                part if isinstance(part, str) else repr(part),
            )
            for part in keys
        }
        return Inferred(
            {part: told.spec for part, told in parts.items()},
            {part: told.leaves for part, told in parts.items()},
        )

    def _tell_sequence(self, values: list[Any], path: str, key: str) -> Inferred:
        lengths = {len(value) for value in values}
        if len(lengths) > 1:
            raise self._ragged(
                path, key, f"lists of {listed(sorted(lengths))} elements"
            )
        first = values[0]
        if any(_is_only_numbers(value) for value in values):
            raise self._ragged(path, key, "a list whose rows differ in length")
        names = first._fields if is_namedtuple(first) else None
        told = [
            self.tell(
                [value[index] for value in values],
                join(path, names[index]) if names else f"{path}[{index}]",
                names[index] if names else key,
            )
            for index in range(len(first))
        ]
        return Inferred(
            rebuilt(first, [part.spec for part in told]),
            rebuilt(first, [part.leaves for part in told]),
        )

    def _tell_leaf(self, values: list[Any], path: str, key: str) -> Inferred:
        arrays = [self._as_array(value, path) for value in values]
        shapes = list(dict.fromkeys(array.shape for array in arrays))
        if len(shapes) > 1:
            raise self._ragged(path, key, f"arrays of the shapes {listed(shapes)}")
        kinds = {array.dtype.kind for array in arrays}
        if "U" in kinds:
            if kinds != {"U"}:
                raise self._cannot(
                    path, "values of one kind", "text and numbers", _DECLARE
                )
            # Later texts may be longer.
            width = max(self.text_length, *(a.dtype.itemsize // 4 for a in arrays))
            text = TextSpec(shapes[0], f"<U{width}", key)
            return Inferred(text, array_leaf(text))
        dtype = np.result_type(*(array.dtype for array in arrays))
        if dtype == np.float64:
            dtype = self.floats
        spec = ArraySpec(shapes[0], dtype, key)
        return Inferred(spec, self._leaf(spec, path))

    def _leaf(self, spec: ArraySpec, path: str) -> Leaf:
        """Returns the converter for a number spec; lists are fine as well as arrays."""
        convert = array_leaf(spec)
        below = path.removeprefix(_ROOT)

        def convert_list(value: Any) -> Array:
            # Hot: called once per leaf and step.
            try:
                return convert(value)  # type: ignore[no-any-return]  # it makes arrays
            except SpecError:
                if isinstance(value, list | tuple) and _is_array(value):
                    subject = f"{self.name} returned an observation that"
                    array = as_array(value)
                    check_fits(array, spec, subject=subject, root=_ROOT, path=below)
                raise

        return convert_list

    def _as_array(self, value: Any, path: str) -> Array:
        if value is None:
            raise self._cannot(
                path, _KNOWN, "None", "Give it a value of one shape at all times."
            )
        array = as_array(value)
        if array.dtype.kind not in "biufcUS":
            remedy = _DECLARE
            if dataclasses.is_dataclass(value):
                remedy = f"Return dataclasses.asdict(...) of it. {_DECLARE}"
            raise self._cannot(path, _KNOWN, describe(value), remedy)
        return array

    def _tell_padded(
        self, values: list[Any], path: str, key: str, most: Most
    ) -> Inferred:
        length, element_spec = most if isinstance(most, tuple) else (most, None)
        for value in values:
            if not hasattr(value, "__len__") or isinstance(value, str | Mapping):
                raise self._cannot(
                    path, "a list, as max_lengths declares", describe(value), _DECLARE
                )
        elements = [element for value in values for element in value]
        elements = elements or _elements_of_empty(values)
        if element_spec is not None:
            told = Inferred(element_spec, None)
        elif elements:
            told = self.tell(elements, f"{path}[...]", f"{key}[...]")
        else:
            raise self._cannot(
                path,
                "an element to infer its spec from",
                "an empty list",
                "Declare the spec of an element beside the length: max_lengths = "
                f"{self._in_class(path, key, f'({length}, ArraySpec((), np.float32))')}"
                "; or let probe_steps = 100 look for one.",
            )
        spec = {
            "length": BoundedArraySpec((), np.int64, 0, length, "length"),
            "values": add_outer_dims_nest(told.spec, (length,)),
        }
        more = f"max_lengths = {self._in_class(path, key, str(2 * length))}"
        return Inferred(
            spec, _padded_leaf(told.spec, told.leaves, length, self.name, path, more)
        )

    def _ragged(self, path: str, key: str, got: str) -> SpecError:
        mapping = self._in_class(path, key, "10")
        return self._cannot(
            path,
            "arrays of one shape",
            got,
            f"If the length varies, max_lengths = {mapping} in the class makes an "
            f"array of at most 10 elements, and their number. {_DECLARE}",
        )

    @staticmethod
    def _in_class(path: str, key: str, most: str) -> str:
        return most if path == _ROOT else f"{{{key!r}: {most}}}"

    def _cannot(self, path: str, expected: str, got: str, remedy: str) -> SpecError:
        place = f" at {path}" if path != _ROOT else ""
        error = SpecError(
            f"{self.name} returns observations whose spec cannot be inferred{place}."
            f"\n\n  expected   {expected}\n  got        {got}\n\n{remedy}"
        )
        error.path = path
        return error


_KNOWN = "numbers, strings, arrays; dictionaries, lists and tuples of them"
_DECLARE = (
    "Declare observation_spec() in the class, with ObjectSpec() for values that are "
    "not arrays."
)


def _elements_of_empty(values: Sequence[Any]) -> list[Array]:
    """Returns an element of each empty array that shows its shape and dtype."""
    return [
        np.zeros(value.shape[1:], value.dtype)
        for value in values
        # `np.array([])` shows neither.
        if isinstance(value, np.ndarray) and (value.ndim > 1 or value.dtype != float)
    ]


def _is_array(value: Any) -> bool:
    """Returns True if a list or tuple is one array: numbers in rows of equal length."""
    return _is_only_numbers(value) and as_array(value).dtype.kind != "O"


def _is_only_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return not is_namedtuple(value) and all(map(_is_only_numbers, value))
    return isinstance(value, numbers.Number | np.generic) and not isinstance(value, str)


def _padded_leaf(
    element_spec: NestedSpec, leaves: Any, most: int, name: str, path: str, more: str
) -> Leaf:
    """Returns a function that converts a list to `{"length": ..., "values": ...}`.

    Args:
        element_spec: The specs of an element.
        leaves: The converter of an element; `None` derives it from the specs.
        most: The maximum number of elements.
        name: The environment's name, for messages.
        path: The path of the list in an observation.
        more: What to write if there are more elements.
    """
    if leaves is None:
        leaves = map_specs(array_leaf, element_spec)
    convert = Converter(
        element_spec,
        leaves,
        subject=f"{name} returned an element of a list that",
        root=path,
        path=f"{path}[...]",
    )

    def empty(spec: Any) -> Any:
        return np.zeros((most, *spec.shape), spec.dtype)

    def pad(value: Any) -> dict[str, Any]:
        if not hasattr(value, "__len__") or isinstance(value, str):
            raise SpecError(
                f"{name} returned {describe(value)} at {path}, where it returned a "
                "list before."
            )
        if len(value) > most:
            raise SpecError(
                f"{name} returned a list of {len(value)} elements at {path}, where "
                f"there is room for {most}. Make room with {more}."
            )
        rows = map_specs(empty, element_spec)
        if not (isinstance(rows, np.ndarray) and _filled(rows, value)):
            arrays = nest.flatten(rows)
            for index, element in enumerate(value):
                parts = nest.flatten(convert(element))
                for array, part in zip(arrays, parts, strict=True):
                    array[index] = part
        return {"length": np.array(len(value), np.int64), "values": rows}

    return pad


def _filled(rows: Array, elements: Any) -> bool:
    """Fills rows with numbers at once; returns False for other elements."""
    # Hot: called once per list and step; converting element by element is slow.
    try:
        array = np.asarray(elements)
    except ValueError:  # elements of different lengths
        return False
    if array.shape != (len(elements), *rows.shape[1:]):
        return False
    is_safe = rows.dtype.kind == "f" and array.dtype.kind in "biuf"
    if not is_safe and array.dtype != rows.dtype:
        return False
    rows[: len(elements)] = array
    return True
