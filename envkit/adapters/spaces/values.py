"""Values that cross into or out of another library: converted, copied and checked.

A `Converter` is compiled from a nest of functions, one for each leaf. A leaf function
raises a `SpecError` where it has to give up; the converter then holds the whole value
against the specs, which say best what is wrong and where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from envkit import nest
from envkit.arrays import PythonNumbers, given_floats
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedSpec

__all__ = [
    "Converter",
    "Leaf",
    "array_leaf",
    "bounded_leaf",
    "compiled",
    "kept_leaf",
    "map_specs",
    "map_with_paths",
    "rebuilt",
]

Leaf: TypeAlias = Callable[[Any], Any]


class Converter:
    """Converts nests leaf by leaf, and says which leaf does not fit and why.

    Example:
        >>> spec = {"speed": ArraySpec((), np.float32)}
        >>> read = Converter(
        ...     spec, map_specs(array_leaf, spec), subject="It", root="observation"
        ... )
        >>> read({"speed": 0.5})
        {'speed': array(0.5, dtype=float32)}
        >>> read({"speed": None})
        Traceback (most recent call last):
        envkit.errors.SpecError: It does not fit its spec at observation['speed'].
        <BLANKLINE>
          expected   ArraySpec(shape=(), dtype=float32)
          got        None
        <BLANKLINE>
        None is not an array. Did a return statement get lost?
    """

    __slots__ = ("_convert", "_leaves", "_path", "_root", "_spec", "_subject")

    def __init__(
        self,
        spec: NestedSpec,
        leaves: Any,
        *,
        subject: str,
        root: str,
        path: str = "",
    ) -> None:
        """Compiles a converter.

        Args:
            spec: The specs that values must fit.
            leaves: A nest like `spec`, of the functions that convert. A function may
                stand for a whole part of the nest.
            subject: What the value is, as the sentence of an error begins.
            root: What a place in it begins with, such as `observation`.
            path: Where below the root the value is, if it is a part of something.
        """
        self._convert = compiled(leaves)
        self._leaves = leaves
        self._spec = spec
        self._subject = subject
        self._root = root
        self._path = path

    def __call__(self, value: Any) -> Any:
        """Converts one value."""
        try:
            return self._convert(value)
        except SpecError as error:
            if str(error):  # A leaf knows best itself what is wrong.
                raise
        misfit, spec = _left_to_explain(value, self._spec, self._leaves)
        check_fits(
            misfit, spec, subject=self._subject, root=self._root, path=self._path
        )
        raise AssertionError("A leaf function refuses what fits its spec.")


def map_specs(function: Callable[[Any], Any], spec: NestedSpec) -> Any:
    """Applies a function to the leaves of a nest of specs, of any library.

    Mappings become plain dictionaries with their keys in the same order.
    """
    return map_with_paths(lambda leaf, _: function(leaf), spec)


def map_with_paths(
    function: Callable[[Any, str], Any], spec: NestedSpec, path: str = ""
) -> Any:
    """Does what `map_specs` does with a function that is told the leaf's place, too.

    Example:
        >>> map_with_paths(lambda leaf, path: path, {"b": 0, "a": [0]}, "action")
        {'b': "action['b']", 'a': ["action['a'][0]"]}
    """
    if isinstance(spec, Mapping):
        return {
            key: map_with_paths(function, child, f"{path}[{key!r}]")
            for key, child in spec.items()
        }
    if isinstance(spec, list | tuple):
        names = getattr(spec, "_fields", None)
        places = (
            [nest.join(path, name) for name in names]
            if names
            else [f"{path}[{index}]" for index in range(len(spec))]
        )
        pairs = zip(spec, places, strict=True)
        return rebuilt(spec, [map_with_paths(function, *pair) for pair in pairs])
    return function(spec, path)


def array_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function that makes a new array of a spec's shape and dtype.

    Numbers change their dtype where that loses nothing but digits of a fraction.
    Bounds are not looked at.
    """
    shape, dtype = spec.shape, spec.dtype

    def convert(value: Any) -> Array:
        # Hot: called once per leaf and step. Libraries reuse their arrays, hence the
        # copy.
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value.copy()
        return _as_array(value, spec)

    return convert


def kept_leaf(spec: ArraySpec, check: Leaf) -> Leaf:
    """Returns a function that makes arrays of floats of the width they are given in.

    Python's own numbers become `PythonNumbers`. `check` refuses what does not fit.
    """

    def convert(value: Any) -> Array:
        check(value)
        array = given_floats(value)
        if array is None or array.shape != spec.shape:
            raise SpecError
        if _is_of_python(value):
            return array.astype(np.float64).view(PythonNumbers)
        return array.copy() if array is value else array

    return convert


def _is_of_python(value: Any) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, float | int) and not isinstance(value, np.generic)


def bounded_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function like that of `array_leaf` which minds the bounds, too."""
    if not isinstance(spec, BoundedArraySpec):
        return array_leaf(spec)
    return _large_leaf(spec) if math.prod(spec.shape) > _FEW else _small_leaf(spec)


# Up to so many elements Python's comparisons are quicker than starting NumPy's.
_FEW = 32


def _small_leaf(spec: BoundedArraySpec) -> Leaf:
    convert = array_leaf(spec)
    lows, highs = (
        np.broadcast_to(bound, spec.shape).ravel().tolist()
        for bound in (spec.minimum, spec.maximum)
    )

    def convert_bounded(value: Any) -> Array:
        # Hot: called once per leaf and step. The lengths are equal.
        array: Array = convert(value)
        for number, low, high in zip(array.ravel().tolist(), lows, highs):  # noqa: B905
            if not low <= number <= high:  # In this form a NaN is outside.
                raise SpecError
        return array

    return convert_bounded


def _large_leaf(spec: BoundedArraySpec) -> Leaf:
    convert = array_leaf(spec)
    low, high = spec.minimum, spec.maximum

    def convert_bounded(value: Any) -> Array:
        # Hot: called once per leaf and step.
        array: Array = convert(value)
        if not ((array >= low) & (array <= high)).all():
            raise SpecError
        return array

    return convert_bounded


def compiled(leaves: Any) -> Leaf:
    """Turns a nest of functions into one function for nests."""
    if isinstance(leaves, dict):
        return _compile_dict({key: compiled(leaf) for key, leaf in leaves.items()})
    if isinstance(leaves, list | tuple):
        return _compile_sequence(leaves, [compiled(leaf) for leaf in leaves])
    return leaves  # type: ignore[no-any-return]  # whoever made the nest says so


def _compile_dict(parts: dict[Any, Leaf]) -> Leaf:
    keys = parts.keys()

    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping) or value.keys() != keys:
            raise SpecError
        return {key: part(value[key]) for key, part in parts.items()}

    return convert


def _compile_sequence(template: Any, parts: list[Leaf]) -> Leaf:
    def convert(value: Any) -> Any:
        if not _is_sequence_of(value, len(parts)):
            raise SpecError
        return rebuilt(
            template, [part(item) for part, item in zip(parts, value, strict=True)]
        )

    return convert


def _is_sequence_of(value: Any, length: int) -> bool:
    # Gymnasium lets lists and arrays pass for members of a Tuple space.
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and len(value) == length
    return isinstance(value, list | tuple) and len(value) == length


def rebuilt(template: Any, parts: list[Any]) -> Any:
    """Packs parts into the kind of sequence that `template` is."""
    if hasattr(template, "_make"):
        return template._make(parts)
    return tuple(parts) if isinstance(template, tuple) else parts


def _as_array(value: Any, spec: ArraySpec) -> Array:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # Rows that differ in length, for example.
        raise SpecError from None
    if array.shape != spec.shape or not _can_hold(spec.dtype, array):
        raise SpecError
    return array.astype(spec.dtype)


def _can_hold(dtype: np.dtype[Any], array: Array) -> bool:
    """Says whether the values of `array` survive in `dtype`."""
    given = array.dtype
    if given == dtype:
        return True
    if dtype.kind == "f":
        return given.kind in "biuf"
    if dtype.kind in "biu":
        return given.kind in "biu" and bool((array.astype(dtype) == array).all())
    # A text that is too long would be cut off.
    return given.kind == dtype.kind and given.itemsize <= dtype.itemsize


def _left_to_explain(
    value: Any, spec: NestedSpec, leaves: Any
) -> tuple[Any, NestedSpec]:
    """Puts what fits by itself for all that converts, so that only the rest is named.

    Returns a value and its spec.
    """
    if isinstance(leaves, dict):
        if not isinstance(value, Mapping):
            return value, spec
        pairs = {
            key: _left_to_explain(item, spec[key], leaves[key])
            for key, item in value.items()
            if key in leaves
        }
        return (
            {key: pairs[key][0] if key in pairs else value[key] for key in value},
            {key: pairs[key][1] if key in pairs else spec[key] for key in spec},
        )
    if isinstance(leaves, list | tuple):
        if not _is_sequence_of(value, len(leaves)):
            return value, spec
        triples = zip(value, spec, leaves, strict=True)
        parts = [_left_to_explain(*triple) for triple in triples]
        values, specs = [part[0] for part in parts], [part[1] for part in parts]
        return rebuilt(spec, values), rebuilt(spec, specs)
    try:
        leaves(value)
    except SpecError:
        return value if nest.is_nested(spec) else _for_complaint(value, spec), spec
    return _FITTING


# A value, and a spec that it fits.
_FITTING = np.broadcast_to(False, ()), ArraySpec((), bool)


def _for_complaint(value: Any, spec: ArraySpec) -> Any:
    try:
        return _as_array(value, spec)
    except SpecError:
        return np.asarray(value) if _says_more_as_array(value, spec) else value


def _says_more_as_array(value: Any, spec: ArraySpec) -> bool:
    if isinstance(value, str):
        return spec.dtype.kind == "U"  # It is too long, then.
    # A spec takes every Python integer for one that it can hold; an array tells.
    return type(value) is int or (
        hasattr(value, "__array__") and not isinstance(value, np.generic)
    )
