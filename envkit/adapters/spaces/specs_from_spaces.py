"""Gymnasium's spaces as specs; `spaces_from_specs` does the other direction.

Spaces are told apart by the names of their classes, so this module needs no import of
Gymnasium, and the spaces of old Gym will do.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.spaces.object_spaces import MembersOf
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.padded import MaxLengths, padded_spec
from envkit.adapters.spaces.space_kinds import (
    UNBOUNDED,
    BoundedBooleans,
    SpecOfKind,
    finer_kind,
    kind_of_space,
    usual_kind,
)
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedSpec

__all__ = ["spec_from_gym_space"]


# Says how many elements what stands at a path may have; `None` if that is not known.
_LengthOf = Callable[[str], Any]


def spec_from_gym_space(
    space: Any,
    simplify_box_bounds: bool = True,
    name: str | None = None,
    *,
    max_lengths: Any = None,
) -> NestedSpec:
    """Makes the specs that the members of a space fit, as arrays.

    `Dict` becomes a dictionary with the keys in the space's order, `Tuple` a tuple,
    `Text` a fixed-width string, `OneOf` a number and a value for every branch. `Box`
    and the discrete spaces become bounded arrays of the space's dtype. Members of other
    spaces, which have no fixed shape, stay the objects they are, unless there is a
    maximum for those of a `Sequence` or `Graph`: then they are padded.

    Args:
        space: A space of Gymnasium.
        simplify_box_bounds: Whether bounds that are the same for every element are
            kept as a single number.
        name: The name of the spec; in a nest, what the names begin with.
        max_lengths: How many elements a `Sequence`, and how many nodes and edges a
            `Graph` may have: one number for all, or a dictionary from places, such as
            "['path']" or the key alone, to a number, or a pair for nodes and edges.

    Raises:
        TypeError: It is no space.

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
    given = isinstance(max_lengths, MaxLengths)
    lengths = max_lengths if given else MaxLengths(max_lengths)
    root = name or ""

    def length_of(path: str) -> Any:
        return lengths.of(path[len(root) :])

    spec = _spec(space, simplify_box_bounds, name, root, length_of)
    if not given:
        lengths.check_all_used()
    return spec


def _spec(
    space: Any, simplify: bool, name: str | None, path: str, length_of: _LengthOf
) -> NestedSpec:
    kind = kind_of_space(space)
    if kind == "Dict":
        return {
            key: _spec(
                child, simplify, _below(name, str(key)), f"{path}[{key!r}]", length_of
            )
            for key, child in space.spaces.items()
        }
    if kind == "Tuple":
        return tuple(_specs(space, simplify, name, path, "tuple", length_of))
    if kind == "OneOf":
        return _one_of(space, simplify, name, path, length_of)
    if kind in ("Sequence", "Graph") and length_of(path) is not None:

        def spec_of(part: Any, place: str) -> NestedSpec:
            return _spec(part, simplify, name, f"{path}{place}", length_of)

        padded = padded_spec(space, kind, length_of(path), spec_of)
        if padded is not None:
            return padded
    if kind not in _SPECS:
        return _object(space, kind, name, path)
    spec = _SPECS[kind](space, simplify, name)
    kind, finite = finer_kind(space, kind)
    if isinstance(spec, BoundedArraySpec) and kind != usual_kind(spec):
        return SpecOfKind(
            spec.shape, spec.dtype, spec.minimum, spec.maximum, name, kind, finite
        )
    return spec


def _specs(
    space: Any,
    simplify: bool,
    name: str | None,
    path: str,
    part: str,
    length_of: _LengthOf,
) -> list[NestedSpec]:
    return [
        _spec(
            child,
            simplify,
            _below(name, f"{part}_{index}"),
            f"{path}[{index}]",
            length_of,
        )
        for index, child in enumerate(space.spaces)
    ]


def _one_of(
    space: Any, simplify: bool, name: str | None, path: str, length_of: _LengthOf
) -> NestedSpec:
    branches = _specs(space, simplify, name, path, "branch", length_of)
    if any(isinstance(leaf, ObjectSpec) for leaf in nest.flatten(branches)):
        return ObjectSpec(name=name, kind=MembersOf(space))
    tag = BoundedArraySpec((), np.int64, 0, len(branches) - 1, _below(name, "tag"))
    return OneOf(tag, tuple(branches))


def _object(space: Any, kind: str, name: str | None, path: str) -> ArraySpec:
    if not kind:
        place = f" at {path}" if path else ""
        raise TypeError(
            f"The space{place} is {describe(space)}, which is not a space of Gymnasium."
        )
    # A space that was made of a spec knows it.
    spec = getattr(space, "spec", None)
    if isinstance(spec, ArraySpec):
        return spec.replace(name=name)
    return ObjectSpec(name=name, kind=MembersOf(space))


def _below(name: str | None, part: str) -> str:
    return part if name is None else f"{name}/{part}"


def _box(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    low, high = _bounds(space.low, space.high, simplify)
    if space.dtype == np.bool_:  # Only numbers have bounds, to most specs.
        if space.high.all() and not space.low.any():
            return ArraySpec(space.shape, space.dtype, name)
        return BoundedBooleans(space.shape, space.dtype, name, low, high)
    spec = BoundedArraySpec(space.shape, space.dtype, low, high, name)
    plain = ArraySpec(space.shape, space.dtype, name)
    # Somebody may have changed the bounds since.
    unbounded = hasattr(space, UNBOUNDED) and spec == BoundedArraySpec.from_spec(plain)
    return plain if unbounded else spec


def _discrete(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    start = int(getattr(space, "start", 0))  # Old ones begin at 0.
    return BoundedArraySpec((), space.dtype, start, start + int(space.n) - 1, name)


def _multi_discrete(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    start = np.asarray(getattr(space, "start", 0), space.dtype)
    low = np.broadcast_to(start, space.nvec.shape)
    # In this order nothing overflows: the largest member fits the dtype.
    high = low + (space.nvec - 1)
    # Each for itself, and always, as in TF-Agents: the minimum is 0 in most.
    low, high = (bound.flat[0] if _are_same(bound) else bound for bound in (low, high))
    return BoundedArraySpec(space.shape, space.dtype, low, high, name)


def _multi_binary(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    return BoundedArraySpec(space.shape, np.int8, 0, 1, name)


def _text(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    letters = "".join(space.character_list)
    if "\0" in letters:  # At its end NumPy's text loses them.
        return ObjectSpec(name=name, kind=MembersOf(space))
    # NumPy has no text of width 0.
    dtype = f"<U{max(1, space.max_length)}"
    anything = space.min_length == 0 and space.max_length > 0
    if anything and set(letters) == set(string.printable):
        return ArraySpec((), dtype, name)  # The space that such a spec becomes.
    return TextSpec(
        (),
        dtype,
        name,
        min_length=space.min_length,
        max_length=space.max_length,
        letters=letters,
    )


_SPECS: dict[str, Callable[[Any, bool, str | None], ArraySpec]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiBinary": _multi_binary,
    "MultiDiscrete": _multi_discrete,
    "Text": _text,
}


def _bounds(low: Array, high: Array, simplify: bool) -> tuple[Array, Array]:
    """Makes single numbers of bounds that are all the same, of both or of neither."""
    if simplify and _are_same(low) and _are_same(high):
        return low.flat[0], high.flat[0]
    return low, high


def _are_same(bound: Array) -> bool:
    return bool(bound.size and (bound == bound.flat[0]).all())
