"""Specs as Gymnasium's spaces; `spaces` does the other direction.

```
BoundedArraySpec   one integer          Discrete
                   int8 from 0 to 1     MultiBinary
                   a row of integers    MultiDiscrete   signed, of real bounds
                   anything else        Box
ArraySpec          numbers, booleans    Box             without bounds, if it can be
                   text                 Text            of printable ASCII
TextSpec                                Text            its lengths and letters
dict                                    Dict            in the order of its keys
tuple, list, namedtuple                 Tuple
OneOf                                   OneOf
PaddedSequence, PaddedStack             Sequence
PaddedGraph                             Graph
ObjectSpec                              the space it came from
anything else                           SpecSpace       which knows the spec
```

A spec that came from a space of another kind than this table says goes back to that
kind. A limit of a floating dtype, which is what a spec makes of an infinite bound, is
infinite in the space, unless it came from a box where it was not.
"""

from __future__ import annotations

import contextlib
import string
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.dependencies import require
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.padded import PADDED, padded_space
from envkit.adapters.spaces.space_kinds import (
    UNBOUNDED,
    BoundedBooleans,
    kind_of_spec,
)
from envkit.adapters.spaces.spec_space import spec_space
from envkit.adapters.spaces.values import map_specs
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.types import Array, NestedSpec
from envkit.wording import foreign

__all__ = ["batch_space_from_spec", "space_from_spec"]


def space_from_spec(spec: NestedSpec) -> Any:
    """Makes the space whose members are, as arrays, what fits the specs.

    `spec_from_gym_space` makes equal specs of the space again, and of a space that it
    was given first, an equal space. Names stay behind, as do the kinds of sequences.

    Args:
        spec: A nest of specs.

    Raises:
        MissingDependencyError: Gymnasium is not installed.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> space_from_spec(BoundedArraySpec((), np.int64, 5, 7))
        Discrete(3, start=5)
        >>> space_from_spec({
        ...     "picture": BoundedArraySpec((8, 8), np.uint8, 0, 255),
        ...     "buttons": BoundedArraySpec((4,), np.int8, 0, 1),
        ... })
        Dict('picture': Box(0, 255, (8, 8), uint8), 'buttons': MultiBinary(4))
    """
    require("gymnasium", needed_by="space_from_spec", extra="gymnasium")
    from gymnasium import spaces

    if isinstance(spec, dict):
        children = [(key, space_from_spec(child)) for key, child in spec.items()]
        space = spaces.Dict(children)
        # Batches of it are made of a dictionary, whose keys would be sorted.
        space.sort_keys = False
        return space
    if isinstance(spec, OneOf) and hasattr(spaces, "OneOf"):
        return spaces.OneOf([space_from_spec(branch) for branch in spec.branches])
    if isinstance(spec, PADDED):
        return padded_space(spec, space_from_spec)
    if isinstance(spec, list | tuple):
        return spaces.Tuple([space_from_spec(child) for child in spec])
    if isinstance(spec, ArraySpec):
        return _leaf_space(spec)
    if nest.is_nested(spec):  # Other mappings become dictionaries.
        return space_from_spec(map_specs(lambda leaf: leaf, spec))
    shown = foreign(spec) or f"{spec!r:.80}"
    raise TypeError(f"{shown} is not an ArraySpec, so there is no space for it.")


def batch_space_from_spec(spec: NestedSpec, rows: int) -> Any:
    """Makes the space of a batch, as a vector environment of Gymnasium has it.

    Its members are batches of arrays, except where Gymnasium has a tuple of members:
    for text, for unions and for what is no array.

    Args:
        spec: The specs of one row.
        rows: How many rows there are.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> batch_space_from_spec(BoundedArraySpec((2,), np.float32, -1.0, 1.0), 3)
        Box(-1.0, 1.0, (3, 2), float32)
        >>> batch_space_from_spec(BoundedArraySpec((), np.int64, 0, 4), 3)
        MultiDiscrete([5 5 5])
    """
    space = space_from_spec(spec)
    from gymnasium.vector.utils import batch_space

    return batch_space(space, rows)


def _leaf_space(spec: ArraySpec) -> Any:
    if isinstance(spec, ObjectSpec):
        # The space itself, or whoever else it is that knows the values.
        as_space = getattr(spec.kind, "as_space", None)
        return spec_space(spec) if as_space is None else as_space()
    kinds = [kind_of_spec(spec), "Box" if spec.dtype.kind in "biuf" else ""]
    for make in (_MAKERS[kind] for kind in kinds if kind):
        # Older Gymnasiums know choices of int64 alone, and no box has a bound of NaN.
        with contextlib.suppress(TypeError, ValueError, AssertionError):
            return make(spec)
    return spec_space(spec)


def _finite_box(spec: Any) -> Any:
    from gymnasium import spaces

    box = _box(spec)
    low, high = (
        np.where(_wide(is_finite, spec.shape), bound, wide)
        for bound, wide, is_finite in zip(
            (spec.minimum, spec.maximum), (box.low, box.high), spec.finite, strict=True
        )
    )
    return spaces.Box(low, high, spec.shape, spec.dtype)


def _open_box(spec: Any) -> Any:
    box = _box(spec)
    # An array of numbers and infinities would be of floats and round the numbers.
    for bounded, is_open in zip(
        (box.bounded_below, box.bounded_above), spec.finite, strict=True
    ):
        bounded &= ~_wide(is_open, spec.shape)
    return box


def _box(spec: ArraySpec) -> Any:
    from gymnasium import spaces

    if isinstance(spec, BoundedBooleans):
        low, high = (_wide(bound, spec.shape) for bound in (spec.low, spec.high))
        return spaces.Box(low, high, spec.shape, spec.dtype)
    if not isinstance(spec, BoundedArraySpec):
        low, high = _limits(spec.dtype)
        space = spaces.Box(low, high, spec.shape, spec.dtype)
        # Nothing else tells it from one with bounds as wide as that.
        setattr(space, UNBOUNDED, True)
        return space
    low, high = _wide(spec.minimum, spec.shape), _wide(spec.maximum, spec.shape)
    if spec.dtype.kind == "f":
        limits = np.finfo(spec.dtype)
        low = np.where(low == limits.min, -np.inf, low).astype(spec.dtype)
        high = np.where(high == limits.max, np.inf, high).astype(spec.dtype)
    return spaces.Box(low, high, spec.shape, spec.dtype)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "if":
        return -np.inf, np.inf
    info = np.iinfo(dtype)
    return info.min, info.max


def _discrete(spec: Any) -> Any:
    from gymnasium import spaces

    low, high = int(spec.minimum), int(spec.maximum)
    # Older Gymnasiums have no other dtype, and none to choose.
    chosen = {} if spec.dtype == np.int64 else {"dtype": spec.dtype}
    space = spaces.Discrete(high - low + 1, start=low, **chosen)
    # Gymnasium before 1.4 takes a sum that the dtype cannot hold.
    with np.errstate(over="ignore"):
        if not space.contains(spec.dtype.type(high)):
            raise ValueError("It does not contain its own members.")
    return space


def _multi_discrete(spec: Any) -> Any:
    from gymnasium import spaces

    low, high = _wide(spec.minimum, spec.shape), _wide(spec.maximum, spec.shape)
    counts = high - low + 1
    if not low.any():
        return spaces.MultiDiscrete(counts, spec.dtype)
    return spaces.MultiDiscrete(counts, spec.dtype, start=low)


def _multi_binary(spec: ArraySpec) -> Any:
    from gymnasium import spaces

    # One number for a row, as people write it.
    shape = spec.shape[0] if len(spec.shape) == 1 else spec.shape
    return spaces.MultiBinary(shape)


def _shaped_multi_binary(spec: ArraySpec) -> Any:
    from gymnasium import spaces

    return spaces.MultiBinary(spec.shape)


def _text(spec: ArraySpec) -> Any:
    from gymnasium import spaces

    if not isinstance(spec, TextSpec):
        return spaces.Text(
            spec.dtype.itemsize // 4, min_length=0, charset=string.printable
        )
    if spec.shape != () or spec.letters is None:
        return spec_space(spec)
    return spaces.Text(
        spec.max_length, min_length=spec.min_length, charset=spec.letters
    )


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "Box": _box,
    "Discrete": _discrete,
    "FiniteBox": _finite_box,
    "MultiBinary": _multi_binary,
    "MultiDiscrete": _multi_discrete,
    "OpenBox": _open_box,
    "ShapedMultiBinary": _shaped_multi_binary,
    "Text": _text,
}


def _wide(bound: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(bound, shape)
