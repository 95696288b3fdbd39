"""Values of envkit as members of Gymnasium's spaces.

Most members are the arrays themselves. Others are:

```
                 one value of envkit         a member          in a batch of n
Discrete         array of shape ()           NumPy's scalar    array of shape (n,)
Text             array of text, shape ()     str               tuple of n str
OneOf            OneOf(tag, branches)        (tag, member)     tuple of n pairs
objects          array of object, shape ()   the object        tuple of n objects
```

`from_members` does the other direction, and `checked_members` this one for values that
may not fit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from envkit import nest
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.padded import PADDED, member_of_padded
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.adapters.spaces.values import map_specs
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.types import NestedSpec

__all__ = ["to_member", "to_members"]

Convert: TypeAlias = Callable[[Any], Any]


def to_member(space: Any, spec: NestedSpec) -> Convert:
    """Returns a function that makes members of a space of values that fit its spec.

    It does not look whether they do. Arrays that need no change are not copied.

    Args:
        space: A space of Gymnasium.
        spec: Its spec: from `spec_from_gym_space`, or what the space was made of.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = to_member(space, spec_from_gym_space(space))
        >>> print(*convert((np.array(2), np.array("left"))))
        2 left
    """
    return _compile(space, spec, _Single) or _same


def to_members(space: Any, spec: NestedSpec) -> Convert:
    """Does what `to_member` does for batches: members of the batched space.

    Args:
        space: The space of one row.
        spec: The specs of one row.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = to_members(space, spec_from_gym_space(space))
        >>> convert((np.array([2, 1]), np.array(["left", "up"])))
        (array([2, 1]), ('left', 'up'))
    """
    return _compile(space, spec, _Batched) or _same


def _same(value: Any) -> Any:
    return value


def _compile(space: Any, spec: NestedSpec, way: Any) -> Convert | None:
    """Compiles a function; `None` stands for one that returns what it is given."""
    if isinstance(spec, OneOf) and kind_of_space(space) == "OneOf":
        pairs = zip(space.spaces, spec.branches, strict=True)
        branches = [_compile(*pair, _Single) or _same for pair in pairs]
        return way.one_of(branches)  # type: ignore[no-any-return]  # either way has it
    if isinstance(spec, PADDED):
        return way.padded(member_of_padded(space, spec, "", _element, _refusal))  # type: ignore[no-any-return]  # either way has it
    if isinstance(spec, dict):
        parts = {
            key: _compile(space.spaces[key], child, way) for key, child in spec.items()
        }
        return _dict_of(parts)
    if isinstance(spec, list | tuple):
        pairs = zip(space.spaces, spec, strict=True)
        return _tuple_of([_compile(*pair, way) for pair in pairs], type(spec))
    return way.leaf(space, spec)  # type: ignore[no-any-return]  # either way has it


def _element(space: Any, spec: NestedSpec, path: str) -> Convert:
    return _compile(space, spec, _Single) or _same


def _refusal(expected: Any, got: Any, path: str, reason: str) -> SpecError:
    """Makes an error that does not come: what is converted fits its spec."""
    return SpecError(reason)


def _dict_of(parts: dict[Any, Convert | None]) -> Convert | None:
    if not any(parts.values()):
        return None
    whole = {key: part or _same for key, part in parts.items()}
    return lambda value: {key: part(value[key]) for key, part in whole.items()}


def _tuple_of(parts: list[Convert | None], kind: type) -> Convert | None:
    if not any(parts) and kind is tuple:
        return None
    whole = [part or _same for part in parts]
    return lambda value: tuple(
        part(item) for part, item in zip(whole, value, strict=True)
    )


class _Single:
    """How the leaves of one value become members."""

    @staticmethod
    def leaf(space: Any, spec: ArraySpec) -> Convert | None:
        if isinstance(spec, ObjectSpec):
            return lambda value: value[()]
        kind = kind_of_space(space)
        if kind == "Text":
            return str
        # The type of NumPy's numbers makes one of an array of shape ().
        return spec.dtype.type if kind == "Discrete" else None

    @staticmethod
    def padded(convert: Convert) -> Convert:
        return convert

    @staticmethod
    def one_of(branches: list[Convert]) -> Convert:
        def convert(value: Any) -> Any:
            tag = np.int64(value.tag)
            return tag, branches[tag](value.branches[tag])

        return convert


class _Batched:
    """How the leaves of a batch become members of the batched space."""

    @staticmethod
    def leaf(space: Any, spec: ArraySpec) -> Convert | None:
        if isinstance(spec, ObjectSpec):
            return tuple
        kind = kind_of_space(space)
        if kind == "Text":
            return lambda value: tuple(value.tolist())
        # Gymnasium makes batches of spaces that it does not know of their members.
        return tuple if kind == "Space" else None

    @staticmethod
    def one_of(branches: list[Convert]) -> Convert:
        return _Batched.padded(_Single.one_of(branches))

    @staticmethod
    def padded(convert: Convert) -> Convert:
        return lambda value: tuple(
            convert(map_specs(operator.itemgetter((row, ...)), value))
            for row in range(len(nest.flatten(value)[0]))
        )
