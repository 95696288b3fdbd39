"""Converts, copies and checks values that cross into or out of another library.

A `Converter` is compiled from a nest of functions, one for each leaf. A leaf function
raises a `SpecError` if it fails; the converter then checks the whole value against the
specs, which give the best description of the mistake.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec
from envkit.specs.validation import check_fits, explain
from envkit.types import Array, NestedSpec

__all__ = [
    "Converter",
    "Leaf",
    "Repacker",
    "action_leaf",
    "array_leaf",
    "bounded_leaf",
    "compiled",
    "few_numbers",
    "integer_leaf",
    "map_specs",
    "map_with_paths",
    "rebuilt",
    "text_action",
    "within_bounds",
]


Leaf: TypeAlias = Callable[[Any], Any]


class Converter:
    """Converts nests leaf by leaf, and raises for a leaf that does not fit.

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
            leaves: A nest like `spec`, of conversion functions. A function may stand
                for a whole part of the nest.
            subject: The beginning of error messages.
            root: The root of paths in messages, such as `observation`.
            path: The value's path below the root, if it is a part.
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
            if str(error):  # the leaf's own message is the best
                raise
        misfit, spec = _left_to_explain(value, self._spec, self._leaves)
        clips = self._root == "action" and _is_outside(misfit, spec)
        check_fits(
            misfit,
            spec,
            subject=self._subject,
            root=self._root,
            path=self._path,
            context="ActionClipWrapper(env) clips actions." if clips else "",
        )
        raise AssertionError("A leaf function refuses what fits its spec.")


def _is_outside(value: Any, spec: NestedSpec) -> bool:
    """Returns True if a value only exceeds the bounds of floating-point numbers."""

    def wide(leaf: ArraySpec) -> ArraySpec:
        if type(leaf) is not BoundedArraySpec or leaf.dtype.kind != "f":
            return leaf
        return leaf.replace(minimum=-np.inf, maximum=np.inf)

    return explain(value, nest.map_structure(wide, spec)) is None


def map_specs(function: Callable[[Any], Any], spec: NestedSpec) -> Any:
    """Applies a function to the leaves of a nest of any library's specs.

    Mappings become plain dictionaries with the same order of keys.
    """
    return map_with_paths(lambda leaf, _: function(leaf), spec)


def map_with_paths(
    function: Callable[[Any, str], Any], spec: NestedSpec, path: str = ""
) -> Any:
    """Applies a function to the leaves of a nest of specs and their paths.

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

    A dtype may change if that loses nothing but decimal digits. Bounds are not checked.
    """
    shape, dtype = spec.shape, spec.dtype

    def convert(value: Any) -> Array:
        # Hot: called once per leaf and step. Copies, because libraries reuse their
        # arrays.
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value.copy()
        return _as_array(value, spec)

    return convert


def bounded_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function like `array_leaf`'s that also checks bounds."""
    convert, fits = array_leaf(spec), within_bounds(spec)
    if fits is None:
        return convert

    def convert_bounded(value: Any) -> Array:
        # Hot: called once per leaf and step.
        array: Array = convert(value)
        if not fits(array):
            raise SpecError
        return array

    return convert_bounded


def action_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function like `bounded_leaf`'s that also takes text and objects."""
    if isinstance(spec, ObjectSpec):

        def convert(value: Any) -> Any:
            is_array = isinstance(value, np.ndarray) and value.dtype == object
            wrapped = value if is_array else ObjectSpec.wrap(value)
            if not spec.check_array(wrapped):
                raise SpecError
            return wrapped

        return convert
    leaf = bounded_leaf(spec)
    if isinstance(spec, BoundedArraySpec) or spec.dtype.kind in "biuf":
        return leaf

    def convert_text(value: Any) -> Array:
        text: Array = leaf(value)
        if not spec.check_array(text):
            raise SpecError
        return text

    return convert_text


def text_action(action: Any, spec: ArraySpec) -> str:
    """Returns a text action as a string; `None` is refused, not played as a word.

    Example:
        >>> from envkit.specs.special import Strings
        >>> text_action(np.asarray("go north", object), ObjectSpec(kind=Strings(str)))
        'go north'

    Raises:
        SpecError: It is something else.
    """
    value = np.asarray(action, object)[()]
    wrapped = ObjectSpec.wrap(value)
    check_fits(wrapped, spec, subject="step() was given an action that")
    return str(value)


def within_bounds(spec: ArraySpec) -> Callable[[Any], bool] | None:
    """Returns a function that checks whether an array is within its spec's bounds.

    Returns `None` if there are no bounds, or no value of the dtype exceeds them.

    Example:
        >>> fits = within_bounds(BoundedArraySpec((2,), np.float32, 0, 1))
        >>> fits(np.array([0.5, 1.0])), fits(np.array([0.5, np.nan]))
        (True, False)
        >>> within_bounds(BoundedArraySpec((2,), np.uint8, 0, 255)) is None
        True
    """
    if not isinstance(spec, BoundedArraySpec):
        return None
    low, high = spec.minimum, spec.maximum
    if spec.dtype.kind in "iu":
        known = np.iinfo(spec.dtype)
        if np.all(low == known.min) and np.all(high == known.max):
            return None
    if math.prod(spec.shape) > _FEW:
        return lambda array: bool(((array >= low) & (array <= high)).all())
    lows, highs = (
        np.broadcast_to(bound, spec.shape).ravel().tolist() for bound in (low, high)
    )
    return _small_fits(lows, highs) if spec.shape else _number_fits(lows[0], highs[0])


def _small_fits(lows: list[Any], highs: list[Any]) -> Callable[[Any], bool]:
    def fits(array: Any) -> bool:
        # Hot: called once per leaf and step. The lengths are equal.
        for number, low, high in zip(array.ravel().tolist(), lows, highs):  # noqa: B905
            if not low <= number <= high:  # written so that NaN is outside
                return False
        return True

    return fits


def _number_fits(low: Any, high: Any) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        # Comparing Python numbers is ten times as fast as comparing arrays.
        number = value.item() if value.__class__ is np.ndarray else value
        return bool(low <= number <= high)

    return fits


def integer_leaf(
    spec: BoundedArraySpec, kind: Callable[[int], Any] | None = None
) -> Leaf:
    """Returns a function that converts an integer and checks its bounds.

    Args:
        spec: The spec of the integer.
        kind: Makes the number; `None` for the NumPy type of the spec.
    """
    low, high = int(spec.minimum), int(spec.maximum)
    make = spec.dtype.type if kind is None else kind
    convert_other = bounded_leaf(spec)
    # Looking up a number takes a fifth of the time of making it.
    members = few_numbers(spec, make)

    def convert(value: Any) -> Any:
        # Hot: called once per step. Comparing Python integers is ten times as fast as
        # comparing arrays.
        if value.__class__ is np.bool_:
            value = bool(value)  # NumPy deprecates its own bool as an index
        try:
            number = operator.index(value)
        except TypeError:
            number = int(convert_other(value))
        if not low <= number <= high:
            raise SpecError
        return members[number] if members else make(number)

    return convert


def few_numbers(
    spec: BoundedArraySpec, kind: Callable[[int], Any] | None = None
) -> dict[int, Any]:
    """Returns the result of `integer_leaf` for each number, unless there are many.

    Example:
        >>> few_numbers(BoundedArraySpec((), np.int8, 0, 1), float)
        {0: 0.0, 1: 1.0}
    """
    low, high = int(spec.minimum), int(spec.maximum)
    make = spec.dtype.type if kind is None else kind
    if high - low >= _FEW_CHOICES:
        return {}
    return {number: make(number) for number in range(low, high + 1)}


# Results are kept for up to this many choices.
_FEW_CHOICES = 1024
# Up to this many elements, Python compares faster than NumPy starts.
_FEW = 32


def compiled(leaves: Any) -> Leaf:
    """Turns a nest of functions into one function for nests."""
    if isinstance(leaves, dict):
        return _compile_dict({key: compiled(leaf) for key, leaf in leaves.items()})
    if isinstance(leaves, list | tuple):
        return _compile_sequence(leaves, [compiled(leaf) for leaf in leaves])
    return leaves  # type: ignore[no-any-return]  # it is a leaf


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
    # Gymnasium accepts lists and arrays as members of a Tuple space.
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and len(value) == length
    return isinstance(value, list | tuple) and len(value) == length


def rebuilt(template: Any, parts: list[Any]) -> Any:
    """Packs parts into the same kind of sequence as `template`."""
    if hasattr(template, "_make"):
        return template._make(parts)
    return tuple(parts) if isinstance(template, tuple) else parts


def _as_array(value: Any, spec: ArraySpec) -> Array:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths, for example
        raise SpecError from None
    if array.shape != spec.shape or not _can_hold(spec.dtype, array):
        raise SpecError
    return array.astype(spec.dtype)


def _can_hold(dtype: np.dtype[Any], array: Array) -> bool:
    """Returns True if `dtype` can hold the values of `array`."""
    given = array.dtype
    if given == dtype:
        return True
    if dtype.kind == "f":
        return given.kind in "biuf"
    if dtype.kind in "biu":
        return given.kind in "biu" and bool((array.astype(dtype) == array).all())
    # A text that is too long would be truncated.
    return given.kind == dtype.kind and given.itemsize <= dtype.itemsize


def _left_to_explain(
    value: Any, spec: NestedSpec, leaves: Any
) -> tuple[Any, NestedSpec]:
    """Returns a value and its spec without the parts that convert.

    A fitting value replaces those parts, so that an error names only the others.
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


# A value and a spec that it fits.
_FITTING = np.broadcast_to(False, ()), ArraySpec((), bool)


def _for_complaint(value: Any, spec: ArraySpec) -> Any:
    try:
        return _as_array(value, spec)
    except SpecError:
        return np.asarray(value) if _says_more_as_array(value, spec) else value


def _says_more_as_array(value: Any, spec: ArraySpec) -> bool:
    if isinstance(value, str):
        return spec.dtype.kind == "U"  # the text is too long
    if isinstance(value, list):
        return _shape_of(value) not in (None, spec.shape)
    # A spec accepts any Python integer; only an array shows one that is too large.
    return type(value) is int or (
        hasattr(value, "__array__") and not isinstance(value, np.generic | tuple)
    )


def _shape_of(value: list[Any]) -> tuple[int, ...] | None:
    """Returns the shape of the array that a list makes, if all in it are numbers."""
    try:
        array = np.asarray(value)
    except ValueError:  # its rows differ in length
        return None
    return array.shape if array.dtype.kind in "biuf" else None


class Repacker:
    """Checks a nest, converts its leaves, and repacks them in a template's structure.

    A `Converter` does the same for unbatched values and keeps their containers.

    Example:
        >>> from envkit.adapters.values import array_leaf
        >>> spec = {"speed": ArraySpec((), "float32")}
        >>> repack = Repacker(spec, (2,), leaf=array_leaf, subject="It", template=[0])
        >>> repack({"speed": [0.5, 1.0]})
        [array([0.5, 1. ], dtype=float32)]
    """

    __slots__ = ("_dims", "_leaves", "_root", "_structure", "_subject", "_unflatten")

    def __init__(
        self,
        spec: NestedSpec,
        dims: tuple[int, ...],
        *,
        leaf: Callable[[ArraySpec], Leaf],
        subject: str,
        template: Any = None,
        root: str = "",
    ) -> None:
        """Compiles a repacker.

        Args:
            spec: The specs of values.
            dims: The leading dimensions of arrays, before their specs' own.
            leaf: Makes the conversion function of a leaf from its spec.
            subject: The beginning of error messages.
            template: A nest with the same number of leaves, if the containers change.
            root: The root of paths in messages, such as `observation`.
        """
        self._structure = nest.Structure(spec)
        self._dims = dims
        self._leaves = [
            leaf(part.replace(shape=dims + part.shape))
            for part in self._structure.leaves
        ]
        self._subject = subject
        self._root = root
        out = self._structure if template is None else nest.Structure(template)
        self._unflatten = out.unflatten

    def __call__(self, value: Any) -> Any:
        """Repacks one value."""
        # Hot: called once per step.
        try:
            pairs = zip(self._leaves, self._structure.flatten(value), strict=True)
            leaves = [convert(part) for convert, part in pairs]
        except SpecError:
            check_fits(
                self._converted_where_it_fits(value),
                self._structure.template,
                subject=self._subject,
                root=self._root,
                outer_dims=self._dims,
            )
            raise
        return self._unflatten(leaves)

    def _converted_where_it_fits(self, value: Any) -> Any:
        """Converts the leaves that fit, so that an error names only the others."""
        try:
            parts = self._structure.flatten(value)
        except SpecError:
            return value
        for index, convert in enumerate(self._leaves):
            with contextlib.suppress(SpecError):
                parts[index] = convert(parts[index])
        return self._structure.unflatten(parts)
