"""Specs of dm_env as specs of envkit and back, and the values that fit them.

```
dm_env                          envkit
Array                           ArraySpec
BoundedArray                    BoundedArraySpec; of booleans, which have no bounds
                                there, ArraySpec
DiscreteArray(n)                BoundedArraySpec, scalar, from 0 to n - 1
StringArray                     ObjectSpec, which takes strings of any length; or, if
                                their length is known, TextSpec
Array of other objects          ObjectSpec
```

Specs of dm_env are told apart by their attributes, so only `spec_to_dm_env` needs the
library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from envkit.adapters.spaces.values import Leaf, array_leaf, bounded_leaf
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.specs.validation import describe
from envkit.types import Array, RandomSource

__all__ = [
    "Refuse",
    "Strings",
    "integer_leaf",
    "reader",
    "spec_from_dm_env",
    "spec_to_dm_env",
    "writer",
]

# Makes the error for a value, and why it does not fit.
Refuse: TypeAlias = Callable[[Any, str], SpecError]

_SUPPORTED = "biufUSO"
_FLOAT32 = np.dtype(np.float32)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Strings:
    """Knows the values of a `StringArray`: strings of any length.

    Example:
        >>> Strings(str).contains("north"), Strings(str).contains(b"north")
        (True, False)
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[str] | type[bytes]) -> None:
        """Takes `str` or `bytes`."""
        self._kind = kind

    @property
    def kind(self) -> type[str] | type[bytes]:
        """Either `str` or `bytes`."""
        return self._kind

    def contains(self, value: Any) -> bool:
        """Says whether a value is such a string."""
        return isinstance(value, self._kind)

    def sample(self, rng: RandomSource) -> str | bytes:
        """Draws a few letters."""
        letters = "".join(_LETTERS[int(rng.random() * 26)] for _ in range(5))
        return letters if self._kind is str else letters.encode()

    def __repr__(self) -> str:
        return f"Strings({self._kind.__name__})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strings) and self._kind is other._kind

    def __hash__(self) -> int:
        return hash(self._kind)


def spec_from_dm_env(
    spec: Any, path: str = "", *, narrow: bool = False, text_length: int | None = None
) -> ArraySpec:
    """Makes a spec of envkit of one of dm_env's.

    Args:
        spec: The spec.
        path: Where it stands, for errors.
        narrow: Whether float64 becomes float32.
        text_length: How long strings are at most; `None` if that is not known.
    """
    missing = [name for name in ("shape", "dtype") if not hasattr(spec, name)]
    if missing or np.dtype(spec.dtype).kind not in _SUPPORTED:
        raise _not_supported(spec, path)
    name = getattr(spec, "name", None)
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "O":
        return _object_spec(spec, name, text_length)
    narrowed = _FLOAT32 if narrow and dtype == np.float64 else dtype
    if not hasattr(spec, "minimum") or dtype.kind not in "iuf":
        return ArraySpec(spec.shape, narrowed, name)
    low, high = spec.minimum, spec.maximum
    if narrowed != dtype:
        low, high = _within_float32(low), _within_float32(high)
    return BoundedArraySpec(spec.shape, narrowed, low, high, name)


def _not_supported(spec: Any, path: str) -> SpecError:
    error = SpecError(
        f"The spec at {path} is {spec!r:.120}, which is not supported: there are specs "
        "for arrays of numbers, of booleans, of text and of objects."
    )
    error.path = path
    return error


def _object_spec(spec: Any, name: str | None, text_length: int | None) -> ArraySpec:
    kind = getattr(spec, "string_type", None)
    if kind is None:
        return ObjectSpec(spec.shape, name=name)
    if text_length is None:
        return ObjectSpec(spec.shape, name=name, kind=Strings(kind))
    if kind is str:
        return TextSpec(spec.shape, f"<U{text_length}", name)
    return ArraySpec(spec.shape, f"S{text_length}", name)


def _within_float32(bound: Any) -> Any:
    """Keeps finite bounds that float32 does not reach from being too large for it."""
    limits = np.finfo(np.float32)
    bound = np.asarray(bound)
    return np.where(np.isinf(bound), bound, np.clip(bound, limits.min, limits.max))


def reader(theirs: Any, spec: ArraySpec, refuse: Refuse) -> Leaf:
    """Returns a function that makes an array for a spec of what dm_env returned.

    Args:
        theirs: The spec of dm_env.
        spec: What `spec_from_dm_env` made of it.
        refuse: Makes the error for a value of another kind, and why it is.
    """
    if np.dtype(theirs.dtype).kind == "O":
        convert_objects = _object_leaf(theirs, spec, refuse)
        if isinstance(spec, ObjectSpec):
            return convert_objects
        return lambda value: convert_objects(value).astype(spec.dtype)
    convert_other = array_leaf(spec)
    if spec.shape or spec.dtype.kind != "f":
        return convert_other
    dtype = spec.dtype

    def convert_number(value: Any) -> Array:
        # Hot: called once per step, of rewards and discounts.
        if type(value) is float or type(value) is np.float64:
            return np.array(value, dtype)
        array: Array = convert_other(value)
        return array

    return convert_number


def writer(theirs: Any, spec: ArraySpec, refuse: Refuse) -> Leaf:
    """Returns a function that makes what dm_env takes of a value that fits a spec.

    Single values come as NumPy's numbers, or as strings: environments use them as
    indices and as keys.

    Args:
        theirs: The spec of dm_env.
        spec: What `spec_from_dm_env` made of it.
        refuse: Makes the error for a value of another kind, and why it is.
    """
    if np.dtype(theirs.dtype).kind == "O":
        convert_objects = _object_leaf(theirs, spec, refuse)
        return lambda value: convert_objects(value)[()]
    convert = bounded_leaf(spec)
    dtype = np.dtype(theirs.dtype)
    if isinstance(spec, BoundedArraySpec) and not spec.shape and dtype.kind in "iu":
        return integer_leaf(spec)
    if dtype == spec.dtype:
        return lambda value: convert(value)[()]
    low, high = getattr(theirs, "minimum", None), getattr(theirs, "maximum", None)

    def convert_wide(value: Any) -> Any:
        wide = convert(value).astype(dtype)
        # A bound as a float32 may lie a little beyond the bound itself.
        return (wide if low is None else np.clip(wide, low, high))[()]

    return convert_wide


def integer_leaf(spec: BoundedArraySpec) -> Leaf:
    """Returns a function that makes one of NumPy's numbers of an integer."""
    low, high, kind = int(spec.minimum), int(spec.maximum), spec.dtype.type
    convert_other = bounded_leaf(spec)

    def convert(value: Any) -> Any:
        # Hot: called once per step. Comparing Python's integers is ten times as fast
        # as comparing arrays.
        if type(value) is kind or type(value) is int:
            number = int(value)
        else:
            number = int(convert_other(value))
        if not low <= number <= high:
            raise SpecError
        return kind(number)

    return convert


def _object_leaf(theirs: Any, spec: ArraySpec, refuse: Refuse) -> Leaf:
    """Returns a function that makes a new array of objects, which are checked."""
    shape = spec.shape
    kind = getattr(theirs, "string_type", None)

    def convert(value: Any) -> Array:
        objects = _as_objects(value, shape, is_text=kind is not None)
        if objects is None or objects.shape != shape:
            raise refuse(value, f"An array of shape {shape} is expected.")
        if kind is None:
            return objects
        for index, item in np.ndenumerate(objects):
            if not isinstance(item, kind):
                place = f" at index {index}" if index else ""
                reason = f"There is {describe(item)}{place}; it takes {kind.__name__}."
                raise refuse(objects, reason)
            objects[index] = kind(item)  # NumPy has strings of its own.
            if not isinstance(spec, ObjectSpec):
                _check_width(objects[index], spec, objects, refuse)
        return objects

    return convert


def _as_objects(value: Any, shape: tuple[int, ...], *, is_text: bool) -> Array | None:
    if not shape and not is_text and not isinstance(value, np.ndarray):
        # It may be a list, of which NumPy would make an array.
        return ObjectSpec.wrap(value)  # type: ignore[no-any-return]  # an array
    try:
        return np.array(value, object)
    except ValueError:  # Rows that differ in length.
        return None


def _check_width(text: Any, spec: ArraySpec, whole: Array, refuse: Refuse) -> None:
    """Refuses text that a fixed width would change."""
    # It loses what is too long, and NULs at the end.
    if np.array(text, spec.dtype)[()] != text:
        reason = (
            f"A text of {len(text)} characters does not keep its form in {spec.dtype}. "
            "Make the wrapper with a larger text_length; without one texts have any "
            "length."
        )
        raise refuse(whole, reason)


def spec_to_dm_env(spec: ArraySpec) -> Any:
    """Makes a spec of dm_env of one of envkit's; dm_env must be installed.

    An integer scalar from 0 is a `DiscreteArray`. Text of a fixed width is an `Array`
    of its dtype, so that nothing is lost.

    Example:
        >>> spec_to_dm_env(BoundedArraySpec((), "int64", 0, 4, name="way")).num_values
        5
    """
    from dm_env import specs

    if isinstance(spec, ObjectSpec):
        if isinstance(spec.kind, Strings):
            return specs.StringArray(spec.shape, spec.kind.kind, spec.name)
        return specs.Array(spec.shape, object, spec.name)
    if not isinstance(spec, BoundedArraySpec):
        return specs.Array(spec.shape, spec.dtype, spec.name)
    if spec.shape == () and spec.dtype.kind in "iu" and spec.minimum == 0:
        return specs.DiscreteArray(int(spec.maximum) + 1, spec.dtype, spec.name)
    make: Callable[..., Any] = specs.BoundedArray
    return make(spec.shape, spec.dtype, spec.minimum, spec.maximum, spec.name)
