"""The actions of an adapter: a menu of them, how many there are, or their specs."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.adapters.spaces.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    map_specs,
)
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.validation import describe
from envkit.types import NestedSpec

__all__ = ["action_converter", "names_of", "numbered"]


def numbered(
    name: str, actions: Sequence[Any] | None, num_actions: int | None
) -> BoundedArraySpec | None:
    """Returns the spec of a menu's places; `None` where there is no menu.

    Example:
        >>> numbered("Game", ["left", "right"], None)
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, name='action')
    """
    if actions is not None:
        if not isinstance(actions, Sequence) or isinstance(actions, str):
            raise TypeError(
                f"{name}.actions is {describe(actions)}; it is a list of what can be "
                "done, and an action is a place in it."
            )
        count = len(actions)
        if num_actions not in (None, count):
            raise ValueError(
                f"{name} has {count} actions, and num_actions is {num_actions}. One of "
                "the two is enough."
            )
    elif num_actions is None:
        return None
    else:
        try:
            count = operator.index(num_actions)
        except TypeError:
            raise TypeError(
                f"{name}.num_actions is {describe(num_actions)}; it is an integer."
            ) from None
    if count < 1:
        raise ValueError(f"{name} has no actions; it needs at least one.")
    return BoundedArraySpec((), np.int64, 0, count - 1, "action")


def names_of(actions: Sequence[Any] | None, count: int) -> tuple[str, ...]:
    """Returns what the actions of a menu are called.

    Example:
        >>> names_of(["left", 7, np.add], 3), names_of(None, 2)
        (('left', '7', 'add'), ('0', '1'))
    """
    return tuple(map(_name_of, range(count) if actions is None else actions))


def _name_of(action: Any) -> str:
    if isinstance(action, enum.Enum):
        return action.name
    if isinstance(action, str):
        return action
    return getattr(action, "__name__", None) or str(action)


def action_converter(spec: NestedSpec, name: str, *, checked: bool) -> Leaf:
    """Returns a function that makes what an author's `step` gets of an action.

    Arrays without dimensions become numbers, and others are copies.

    Args:
        spec: The specs of an action.
        name: Who steps, for messages.
        checked: Whether bounds are looked at.

    Example:
        >>> spec = BoundedArraySpec((), np.int64, 0, 3)
        >>> action_converter(spec, "Game", checked=True)(np.array(2, np.int32))
        2
    """

    def leaf_of(leaf: ArraySpec) -> Leaf:
        if isinstance(leaf, ObjectSpec):
            return _object_of
        convert = bounded_leaf(leaf) if checked else array_leaf(leaf)
        return _number_of(convert) if leaf.shape == () else convert

    return Converter(
        spec,
        map_specs(leaf_of, spec),
        subject=f"{name}.step() was given an action that",
        root="action",
    )


def _number_of(convert: Leaf) -> Leaf:
    return lambda value: convert(value).item()


def _object_of(value: Any) -> Any:
    is_holder = isinstance(value, np.ndarray) and value.shape == ()
    return value[()] if is_holder else value
