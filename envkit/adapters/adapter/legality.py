"""The actions of an adapter, and which of them are legal.

Actions are a menu, a number of choices, or declared by specs.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    integer_leaf,
    map_specs,
)
from envkit.errors import SpecError
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec
from envkit.types import Array, NestedSpec

__all__ = ["LegalActions", "action_converter", "names_of", "numbered"]


def numbered(
    name: str, actions: Sequence[Any] | None, num_actions: int | None
) -> BoundedArraySpec | None:
    """Returns the spec of an index in a menu; `None` if there is no menu.

    Example:
        >>> numbered("Game", ["left", "right"], None)
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, name='action')
    """
    if actions is not None:
        if not isinstance(actions, Sequence) or isinstance(actions, str):
            raise TypeError(
                f"{name}.actions must be a list of the possible actions, got "
                f"{describe(actions)}."
            )
        count = len(actions)
        if num_actions not in (None, count):
            raise ValueError(
                f"{name} has {count} actions, but num_actions is {num_actions}. One of "
                "the two is enough."
            )
    elif num_actions is None:
        return None
    else:
        try:
            count = operator.index(num_actions)
        except TypeError:
            raise TypeError(
                f"{name}.num_actions must be an integer, got {describe(num_actions)}."
            ) from None
    if count < 1:
        raise ValueError(f"{name} has no actions; it needs at least one.")
    return BoundedArraySpec((), np.int64, 0, count - 1, "action")


def names_of(actions: Sequence[Any] | None, count: int) -> tuple[str, ...]:
    """Returns the names of a menu's actions.

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
    """Returns a function that converts an action for an author's `step`.

    Zero-dimensional arrays become Python numbers; other arrays are copied.

    Args:
        spec: The specs of an action.
        name: The environment's name, for messages.
        checked: Whether bounds are checked.

    Example:
        >>> spec = BoundedArraySpec((), np.int64, 0, 3)
        >>> action_converter(spec, "Game", checked=True)(np.array(2, np.int32))
        2
    """

    def leaf_of(leaf: ArraySpec) -> Leaf:
        if isinstance(leaf, ObjectSpec):
            return _object_of
        is_number = isinstance(leaf, BoundedArraySpec) and leaf.shape == ()
        if checked and is_number and leaf.dtype.kind in "iu":
            return integer_leaf(leaf, int)  # type: ignore[arg-type]  # it is bounded
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


class LegalActions:
    """Makes masks from the results of `legal_actions`.

    Booleans are a mask. Integers are a mask if there is one per action and all are 0 or
    1; otherwise they are indices in the menu. Anything else is an action in the menu.

    Example:
        >>> mask = LegalActions("Game", ["left", "right", "jump"], 3)
        >>> mask([True, False, True]).tolist(), mask({"jump"}).tolist()
        ([True, False, True], [False, False, True])
        >>> mask([1, 1, 0]).tolist(), mask([0, 2]).tolist()
        ([True, True, False], [True, False, True])
    """

    def __init__(self, name: str, actions: Sequence[Any] | None, count: int) -> None:
        """Prepares to make masks.

        Args:
            name: The environment's name, for messages.
            actions: The menu, if there is one.
            count: The number of actions.
        """
        self._name = name
        self._actions = None if actions is None else list(actions)
        self._count = count

    @property
    def spec(self) -> ArraySpec:
        """The spec of a mask."""
        return ArraySpec((self._count,), np.bool_, "legal_actions")

    def all(self) -> Array:
        """Returns the mask that allows every action."""
        return np.ones(self._count, np.bool_)

    def __call__(self, legal: Any) -> Array:
        """Makes a mask from a result of `legal_actions`."""
        if not hasattr(legal, "__iter__") or isinstance(legal, str):
            raise self._refused(legal, "It is not a collection of actions.")
        # A set has no order, so it cannot be a mask.
        is_set = isinstance(legal, set | frozenset)
        items = legal if isinstance(legal, np.ndarray) else list(legal)
        given = None if is_set or not _are_integers(items) else np.asarray(items)
        if given is None or not given.size:
            return self._of_places(map(self._place_of, items), legal)
        if given.dtype == np.bool_:
            if given.shape != (self._count,):
                raise self._refused(legal, "A mask has one boolean for each action.")
            return given.copy()
        return self._of_integers(given, legal)

    def _of_integers(self, given: Array, legal: Any) -> Array:
        may_be_mask = given.shape == (self._count,) and set(given.tolist()) <= {0, 1}
        may_be_places = len(set(given.ravel().tolist())) == given.size
        if may_be_mask and may_be_places and self._count > 1:
            raise self._refused(
                legal,
                "With two actions, 0 and 1 may be a mask or the indices of both: "
                "return booleans for a mask, or a set for indices.",
            )
        if may_be_mask and given.tolist() != [0]:
            return given.astype(np.bool_)
        return self._of_places(given.ravel().tolist(), legal)

    def _place_of(self, action: Any) -> int:
        if isinstance(action, int | np.integer):
            return int(action)
        if self._actions is None or action not in self._actions:
            raise self._refused(
                action, "It is neither in the menu nor an index into it."
            )
        return self._actions.index(action)

    def _of_places(self, places: Iterable[int], legal: Any) -> Array:
        mask = np.zeros(self._count, np.bool_)
        for place in places:
            if not 0 <= place < self._count:
                raise self._refused(legal, f"There is no action {place}.")
            mask[place] = True
        return mask

    def _refused(self, legal: Any, why: str) -> SpecError:
        menu = "" if self._actions is None else ", or actions of the menu"
        return SpecError(
            f"{self._name}.legal_actions() returned {describe(legal)}.\n\n"
            f"  expected   {self._count} booleans, or places from 0 to "
            f"{self._count - 1}{menu}\n\n"
            f"{why}"
        )


def _are_integers(items: Any) -> bool:
    if isinstance(items, np.ndarray):
        return items.dtype.kind in "biu"
    return all(isinstance(item, bool | int | np.bool_ | np.integer) for item in items)
