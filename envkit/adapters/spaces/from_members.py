"""Members of Gymnasium's spaces as values of envkit; `members` is the other way."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.spaces.one_of import OneOf, neutral_value
from envkit.adapters.spaces.padded import padded_from_member
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.adapters.spaces.space_walk import SpaceWalk
from envkit.adapters.spaces.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    kept_leaf,
)
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.batching import add_outer_dims_nest
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.types import Array, NestedSpec

__all__ = ["from_member", "from_members"]


def from_member(
    space: Any,
    spec: NestedSpec,
    *,
    subject: str = "The member",
    root: str = "",
    bounded: bool = False,
    kept: bool = False,
) -> Converter:
    """Returns a function that makes values of envkit of members of a space.

    The arrays are new, of exactly the spec's dtype and shape.

    Args:
        space: A space of Gymnasium.
        spec: Its spec: from `spec_from_gym_space`, or what the space was made of.
        subject: What the value is, as the sentence of an error begins.
        root: What a place in it begins with, such as `observation`.
        bounded: Whether bounds are looked at, too.
        kept: Whether floats keep the width in which they are given, where the spec says
            so: those of actions do.

    Raises:
        SpecError: The function was given what is no member.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = from_member(space, spec_from_gym_space(space))
        >>> convert((2, "left"))
        (array(2), array('left', dtype='<U4'))
    """
    return _Reader(subject, root, bounded, kept).converter(space, spec, root)


def from_members(
    space: Any,
    spec: NestedSpec,
    rows: int,
    *,
    subject: str = "The batch",
    root: str = "",
    bounded: bool = False,
    kept: bool = False,
) -> Converter:
    """Does what `from_member` does for batches: members of the batched space.

    Args:
        space: The space of one row.
        spec: The specs of one row.
        rows: How many rows a batch has.
        subject: What the value is, as the sentence of an error begins.
        root: What a place in it begins with, such as `observation`.
        bounded: Whether bounds are looked at, too.
        kept: Whether floats keep the width in which they are given, where the spec says
            so: those of actions do.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = from_members(space, spec_from_gym_space(space), rows=2)
        >>> convert(([2, 1], ("left", "up")))
        (array([2, 1]), array(['left', 'up'], dtype='<U4'))
    """
    reader = _BatchReader(subject, root, bounded, kept, rows)
    leaves = reader.leaves(space, spec, root)
    batched = add_outer_dims_nest(spec, (rows,))
    return Converter(batched, leaves, subject=subject, root=root)


class _Reader(SpaceWalk):
    """How one member is read."""

    def __init__(self, subject: str, root: str, bounded: bool, kept: bool) -> None:
        super().__init__(subject, root)
        self._bounded = bounded
        self._kept = kept

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        if isinstance(spec, ObjectSpec):
            return self._object_leaf(spec, path)
        if isinstance(spec, TextSpec) and self._bounded:
            return self._text_leaf(spec, path)
        convert = bounded_leaf(spec) if self._bounded else array_leaf(spec)
        keeps = self._kept and spec.keeps_floats
        return kept_leaf(spec, convert) if keeps else convert

    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        single = _Reader(self.subject, self.root, self._bounded, self._kept)
        branches = [
            single.converter(child, branch, f"{path}[1]")
            for child, branch in zip(space.spaces, spec.branches, strict=True)
        ]

        def convert(value: Any) -> OneOf:
            if not _is_tagged(value, len(branches)):
                raise self.refusal(
                    space,
                    value,
                    path,
                    "A pair of a branch and its value is expected.",
                )
            tag = int(value[0])
            return OneOf(
                np.array(tag, np.int64),
                tuple(
                    read(value[1]) if index == tag else neutral_value(branch)
                    for index, (read, branch) in enumerate(
                        zip(branches, spec.branches, strict=True)
                    )
                ),
            )

        return convert

    def padded(self, space: Any, spec: Any, path: str) -> Leaf:
        single = _Reader(self.subject, self.root, self._bounded, self._kept)
        return padded_from_member(space, spec, path, single.converter, self.refusal)

    def _object_leaf(self, spec: ObjectSpec, path: str) -> Leaf:
        def convert(value: Any) -> Array:
            if self._bounded and not spec.contains(value):
                raise self.refusal(spec, value, path, "It is none of these values.")
            # Whoever made it may go on changing it.
            array: Array = spec.wrap(copy.deepcopy(value))
            return array

        return convert

    def _text_leaf(self, spec: TextSpec, path: str) -> Leaf:
        read = array_leaf(spec)

        def convert(value: Any) -> Array:
            text: Array = read(value)
            if not spec.check_array(text):
                raise self.refusal(
                    spec, str(text), path, "Other lengths or letters are expected."
                )
            return text

        return convert


class _BatchReader(_Reader):
    """How a batch of members is read."""

    def __init__(
        self, subject: str, root: str, bounded: bool, kept: bool, rows: int
    ) -> None:
        super().__init__(subject, root, bounded, kept)
        self._rows = rows

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        if isinstance(spec, ObjectSpec) or kind_of_space(space) == "Space":
            return self._row_by_row(super().leaf(space, spec, path), spec)
        return super().leaf(space, spec.replace(shape=(self._rows, *spec.shape)), path)

    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        return self._row_by_row(super().one_of(space, spec, path), spec)

    def padded(self, space: Any, spec: Any, path: str) -> Leaf:
        return self._row_by_row(super().padded(space, spec, path), spec)

    def _row_by_row(self, read: Leaf, spec: NestedSpec) -> Leaf:
        def convert(value: Any) -> Any:
            if not hasattr(value, "__len__") or len(value) != self._rows:
                raise SpecError
            rows = [nest.flatten(read(member)) for member in value]
            leaves = [np.stack(column) for column in zip(*rows, strict=True)]
            return nest.unflatten_as(spec, leaves)

        return convert


def _is_tagged(value: Any, branches: int) -> bool:
    """Says whether a value is a pair of the number of a branch and something else."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return isinstance(value[0], int | np.integer) and 0 <= int(value[0]) < branches
