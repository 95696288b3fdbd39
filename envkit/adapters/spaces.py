"""Gymnasium's spaces as specs, and actions as their members.

Spaces are told apart by the names of their classes, so this module needs no import of
Gymnasium.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.values import Converter, Leaf, array_leaf, bounded_leaf
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedSpec

__all__ = ["action_converter", "spec_from_gym_space"]


def spec_from_gym_space(
    space: Any, simplify_box_bounds: bool = True, name: str | None = None
) -> NestedSpec:
    """Makes the specs that the members of a space fit, as arrays.

    `Dict` becomes a dictionary with the keys in the space's order, `Tuple` a tuple,
    `Text` a fixed-width string; the others become bounded arrays of the space's dtype.

    Args:
        space: A space of Gymnasium.
        simplify_box_bounds: Whether bounds that are the same for every element are
            kept as a single number.
        name: The name of the spec; in a nest, what the names begin with.

    Raises:
        SpecError: There is no spec for this space yet; it is a `ValueError`.

    Example:
        >>> from gymnasium import spaces
        >>> space = spaces.Dict(
        ...     arm=spaces.Box(-1.0, 1.0, (2,), np.float32), grip=spaces.Discrete(2)
        ... )
        >>> for key, spec in spec_from_gym_space(space).items():
        ...     print(key, spec)  # doctest: +NORMALIZE_WHITESPACE
        arm BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, maximum=1.0,
                             name='arm')
        grip BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, name='grip')
    """
    return _spec(space, simplify_box_bounds, name, name or "")


def _spec(space: Any, simplify: bool, name: str | None, path: str) -> NestedSpec:
    kind = _kind(space)
    if kind == "Dict":
        return {
            key: _spec(child, simplify, _below(name, str(key)), f"{path}[{key!r}]")
            for key, child in space.spaces.items()
        }
    if kind == "Tuple":
        return tuple(
            _spec(child, simplify, _below(name, f"tuple_{index}"), f"{path}[{index}]")
            for index, child in enumerate(space.spaces)
        )
    if kind not in _SPECS:
        raise _not_supported(space, kind, path)
    return _SPECS[kind](space, simplify, name)


def _below(name: str | None, part: str) -> str:
    return part if name is None else f"{name}/{part}"


def _kind(space: Any) -> str:
    """Names the space of Gymnasium that this is, or is derived from."""
    for base in type(space).__mro__:
        if base.__module__.partition(".")[0] == "gymnasium":
            return base.__name__
    return ""


def _not_supported(space: Any, kind: str, path: str) -> Exception:
    place = f" at {path}" if path else ""
    if not kind:
        return TypeError(
            f"The space{place} is {describe(space)}, which is not a space of Gymnasium."
        )
    error = SpecError(
        f"The space{place} is {space!r:.120}, which is not supported yet: there are "
        "specs for Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text and Tuple. "
        "A wrapper of Gymnasium's, such as TransformObservation, can make one of "
        "these of it."
    )
    error.path = path
    return error


def _box(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    if space.dtype == np.bool_:  # Only numbers have bounds.
        return ArraySpec(space.shape, space.dtype, name)
    low, high = _bounds(space.low, space.high, simplify)
    return BoundedArraySpec(space.shape, space.dtype, low, high, name)


def _discrete(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    start = int(space.start)
    return BoundedArraySpec((), space.dtype, start, start + int(space.n) - 1, name)


def _multi_discrete(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    # In this order nothing overflows: the largest member fits the dtype.
    low, high = _bounds(space.start, space.start + (space.nvec - 1), simplify)
    return BoundedArraySpec(space.shape, space.dtype, low, high, name)


def _multi_binary(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    return BoundedArraySpec(space.shape, np.int8, 0, 1, name)


def _text(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    # NumPy has no text of width 0.
    return ArraySpec((), f"<U{max(1, space.max_length)}", name)


_SPECS: dict[str, Callable[[Any, bool, str | None], ArraySpec]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiBinary": _multi_binary,
    "MultiDiscrete": _multi_discrete,
    "Text": _text,
}


def _bounds(low: Array, high: Array, simplify: bool) -> tuple[Array, Array]:
    """Makes single numbers of bounds that are all the same, of both or of neither."""
    same = simplify and low.size and (low == low.flat[0]).all()
    if same and (high == high.flat[0]).all():
        return low.flat[0], high.flat[0]
    return low, high


def action_converter(
    space: Any, spec: NestedSpec, *, subject: str, root: str
) -> Converter:
    """Returns a function that makes members of a space of what fits its spec.

    Args:
        space: A space of Gymnasium.
        spec: What `spec_from_gym_space` made of it.
        subject: What the value is, as the sentence of an error begins.
        root: What a place in it begins with, such as `action`.

    Example:
        >>> from gymnasium import spaces
        >>> space = spaces.Discrete(3, start=5)
        >>> to_action = action_converter(
        ...     space, spec_from_gym_space(space), subject="It", root="action"
        ... )
        >>> action = to_action(np.array(6, np.uint8))
        >>> action.dtype, space.contains(action)
        (dtype('int64'), True)
    """

    def leaves(space: Any, spec: NestedSpec, path: str) -> Any:
        if isinstance(spec, dict):
            return {
                key: leaves(space.spaces[key], child, f"{path}[{key!r}]")
                for key, child in spec.items()
            }
        if isinstance(spec, tuple):
            return tuple(
                leaves(space.spaces[index], child, f"{path}[{index}]")
                for index, child in enumerate(spec)
            )
        return _action_leaf(space, spec, subject, path, root)

    return Converter(spec, leaves(space, spec, root), subject=subject, root=root)


def _action_leaf(
    space: Any, spec: ArraySpec, subject: str, path: str, root: str
) -> Leaf:
    kind = _kind(space)
    if kind == "Discrete" and isinstance(spec, BoundedArraySpec):
        return _integer_leaf(spec)
    if kind == "Text":
        return _text_leaf(space, spec, subject, path, root)
    return bounded_leaf(spec)


def _integer_leaf(spec: BoundedArraySpec) -> Leaf:
    low, high, kind = int(spec.minimum), int(spec.maximum), spec.dtype.type
    convert_other = bounded_leaf(spec)

    def convert(value: Any) -> Any:
        # Hot: called once per step. Comparing Python's integers is ten times as fast
        # as comparing arrays.
        if isinstance(value, np.bool_):
            value = bool(value)  # As an index NumPy's own is deprecated.
        try:
            number = operator.index(value)
        except TypeError:
            number = int(convert_other(value))
        if not low <= number <= high:
            raise SpecError
        return kind(number)

    return convert


def _text_leaf(space: Any, spec: ArraySpec, subject: str, path: str, root: str) -> Leaf:
    convert_array = array_leaf(spec)

    def convert(value: Any) -> str:
        text = str(convert_array(value))
        if not space.contains(text):
            raise SpecError.does_not_fit(
                subject,
                path=path,
                root=root,
                expected=repr(space),
                got=describe(text),
                reason="The space leaves out some lengths or letters, and this text "
                "has them.",
            )
        return text

    return convert
