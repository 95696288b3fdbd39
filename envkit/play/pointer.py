"""Finds the pointer's position and buttons in an action: `ActionPointer`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from envkit import nest
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import NestedArray, NestedSpec

__all__ = ["ActionNumbers", "ActionPointer"]

_PLACES = {"pointer", "mouse", "cursor"}
_BUTTONS = {"buttons", "button", "clicks", "click"}
# Integers with a smaller range are choices, not coordinates.
_LEAST_COORDINATES = 16


class _ActionLeaf(NamedTuple):
    """Describes a part of an action: names, spec, and position among the numbers."""

    names: set[str]
    spec: ArraySpec
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.spec.shape)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.start, self.start + self.size))

    def ends(self, number: int) -> tuple[float, float]:
        """Returns the smallest and the largest value of a number."""
        if self.spec.dtype.kind == "b":
            return 0.0, 1.0
        if not isinstance(self.spec, BoundedArraySpec):
            return -1.0, 1.0
        low, high = (
            float(np.broadcast_to(end, self.spec.shape).reshape(-1)[number])
            for end in (self.spec.minimum, self.spec.maximum)
        )
        return (low, high) if math.isfinite(high - low) else (-1.0, 1.0)

    def is_coordinate(self, number: int) -> bool:
        low, high = self.ends(number)
        return self.spec.dtype.kind == "f" or high - low >= _LEAST_COORDINATES


class ActionNumbers:
    """Lists the numbers of an action in order, to move them between their bounds.

    Attributes:
        floats: Which of them are floats.

    Example:
        >>> numbers = ActionNumbers(BoundedArraySpec((2,), np.int64, 0, [639, 479]))
        >>> numbers.moved(np.array([5, 5]), {0: 1.0})
        array([639,   5])
    """

    def __init__(self, spec: NestedSpec) -> None:
        """Takes the spec of an action whose parts are all arrays."""
        self._structure = nest.Structure(spec)
        self.leaves: list[_ActionLeaf] = []
        start = 0
        for path, leaf in zip(
            self._structure.paths, self._structure.leaves, strict=True
        ):
            last = re.findall(r"\w+", path)[-1:]
            self.leaves.append(_ActionLeaf({*last, leaf.name or ""}, leaf, start))
            start += self.leaves[-1].size
        self.floats = [
            number
            for leaf in self.leaves
            for number in leaf.numbers
            if leaf.spec.dtype.kind == "f"
        ]

    def moved(self, action: NestedArray, amounts: Mapping[int, float]) -> NestedArray:
        """Returns an action with some numbers moved: -1 to 1 spans their bounds."""
        if not amounts:
            return action
        values = []
        for leaf, value in zip(
            self.leaves, self._structure.flatten(action), strict=True
        ):
            copied = np.array(value, leaf.spec.dtype)
            numbers = copied.reshape(-1)
            for index, number in enumerate(leaf.numbers):
                if number in amounts:
                    low, high = leaf.ends(index)
                    amount = low + (amounts[number] + 1) / 2 * (high - low)
                    is_float = leaf.spec.dtype.kind == "f"
                    numbers[index] = amount if is_float else math.floor(amount + 0.5)
            values.append(copied)
        return self._structure.unflatten(values)


class ActionPointer:
    """Locates the pointer's position and buttons in an action.

    | the place is                                    | the buttons are                |
    |-------------------------------------------------|--------------------------------|
    | two numbers called `pointer`, `mouse`, `cursor` | what is called `buttons`,      |
    | two numbers called `x` and `y`                  | `button`, `clicks` or `click`  |
    | else the only array of two floats, or of two    | the choices that follow in the |
    | integers with more than 16 values each          | same array of integers         |

    Flags stand for the left, middle and right button and the wheel, in this order; an
    integer uses as many of its bits for them as it has.

    Attributes:
        place: The indices of x and y.
        buttons: The indices of the buttons.

    Example:
        >>> spec = BoundedArraySpec((3,), np.int64, 0, [639, 479, 1])
        >>> pointer = ActionPointer.of(spec)
        >>> pointer.pointed(np.zeros(3, np.int64), (1.0, 0.0), 1)
        array([639, 240,   1])
        >>> ActionPointer.of(BoundedArraySpec((), np.int64, 0, 3))
    """

    def __init__(
        self, numbers: ActionNumbers, place: Sequence[int], buttons: Sequence[int]
    ) -> None:
        """Takes the numbers of an action, and the indices of the pointer's."""
        self._numbers = numbers
        self.place, self.buttons = tuple(place), tuple(buttons)

    @classmethod
    def of(cls, spec: NestedSpec) -> ActionPointer | None:
        """Returns the pointer of an action; `None` if it has none."""
        if not all(isinstance(leaf, ArraySpec) for leaf in nest.flatten(spec)):
            return None
        numbers = ActionNumbers(spec)
        leaves = [leaf for leaf in numbers.leaves if leaf.spec.dtype.kind in "biuf"]
        named = [leaf for leaf in leaves if leaf.names & _PLACES and leaf.size == 2]
        x, y = (
            [leaf for leaf in leaves if name in leaf.names and leaf.size == 1]
            for name in "xy"
        )
        buttons = [
            number
            for leaf in leaves
            if leaf.names & _BUTTONS
            for number in leaf.numbers
        ]
        if len(named) == 1:
            return cls(numbers, named[0].numbers, buttons)
        if len(x) == len(y) == 1:
            return cls(numbers, (x[0].start, y[0].start), buttons)
        pairs = [leaf for leaf in leaves if _is_pair(leaf)]
        if len(pairs) == 1:
            place, rest = pairs[0].numbers[:2], pairs[0].numbers[2:]
            return cls(numbers, place, rest or buttons)
        return None

    def pointed(
        self,
        action: NestedArray,
        place: tuple[float, float] | None,
        buttons: int,
    ) -> NestedArray:
        """Returns an action with the pointer at a position from -1 to 1.

        Args:
            action: The action.
            place: The position to the right, and downwards.
            buttons: The buttons that are down, as bits.
        """
        amounts = {} if place is None else dict(zip(self.place, place, strict=True))
        for order, number in enumerate(self.buttons):
            amounts[number] = self._amount(number, buttons, order)
        return self._numbers.moved(action, amounts)

    def _amount(self, number: int, buttons: int, order: int) -> float:
        """Returns a button number's position between its bounds."""
        leaf = next(it for it in self._numbers.leaves if number in it.numbers)
        low, high = leaf.ends(number - leaf.start)
        if high - low < 2 or len(self.buttons) > 1:
            return 1.0 if buttons >> order & 1 else -1.0
        # As many bits as it has room for.
        mask = (1 << int(math.log2(high - low + 1))) - 1
        return 2 * (buttons & mask) / (high - low) - 1


def _is_pair(leaf: _ActionLeaf) -> bool:
    if len(leaf.spec.shape) != 1 or leaf.size < 2:
        return False
    coordinates = [leaf.is_coordinate(index) for index in range(leaf.size)]
    is_float = leaf.spec.dtype.kind == "f"
    return coordinates[:2] == [True, True] and (
        leaf.size == 2 or (not is_float and not any(coordinates[2:]))
    )
