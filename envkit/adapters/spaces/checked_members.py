"""Values of anybody's as members of Gymnasium's spaces: converted and checked."""

from __future__ import annotations

import copy
import operator
from typing import Any

import numpy as np

from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.padded import member_of_padded
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.adapters.spaces.space_walk import SpaceWalk
from envkit.adapters.spaces.values import Converter, Leaf, array_leaf, bounded_leaf
from envkit.arrays import PythonNumbers, given_floats
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.types import NestedSpec

__all__ = ["action_converter"]


def action_converter(
    space: Any, spec: NestedSpec, *, subject: str, root: str
) -> Converter:
    """Returns a function like that of `to_member` that trusts nobody.

    It looks whether values fit, takes what can be made to fit without a loss, and
    copies arrays.

    Args:
        space: A space of Gymnasium.
        spec: What `spec_from_gym_space` made of it.
        subject: What the value is, as the sentence of an error begins.
        root: What a place in it begins with, such as `action`.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Discrete(3, start=5)
        >>> to_action = action_converter(
        ...     space, spec_from_gym_space(space), subject="It", root="action"
        ... )
        >>> action = to_action(np.array(6, np.uint8))
        >>> action.dtype, space.contains(action)
        (dtype('int64'), True)
    """
    return _Checks(subject, root).converter(space, spec, root)


class _Checks(SpaceWalk):
    """Makes the leaf functions that look whether values fit."""

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        kind = kind_of_space(space)
        if kind == "Discrete" and isinstance(spec, BoundedArraySpec):
            return _integer_leaf(spec)
        if isinstance(spec, ObjectSpec):
            return self._object_leaf(spec, path)
        if kind == "Text":
            return self._text_leaf(space, spec, path)
        return _kept_leaf(spec) if spec.keeps_floats else bounded_leaf(spec)

    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        to_tag = _integer_leaf(spec.tag)
        pairs = zip(space.spaces, spec.branches, strict=True)
        parts = [
            self.converter(*pair, f"{path}.branches[{index}]")
            for index, pair in enumerate(pairs)
        ]

        def convert(value: Any) -> Any:
            if not isinstance(value, tuple | list) or len(value) != 2:
                raise SpecError
            tag = to_tag(value[0])
            return tag, parts[tag](value[1][tag])

        return convert

    def padded(self, space: Any, spec: Any, path: str) -> Leaf:
        return member_of_padded(space, spec, path, self.converter, self.refusal)

    def _object_leaf(self, spec: ObjectSpec, path: str) -> Leaf:
        def convert(value: Any) -> Any:
            # A batch that is taken apart may leave the object alone.
            wrapped = isinstance(value, np.ndarray) and value.dtype == object
            member = value[()] if wrapped and value.shape == () else value
            if not spec.contains(member):
                raise self.refusal(spec, member, path, "It is none of these values.")
            # The environment may keep it, and whoever made it go on changing it.
            return copy.deepcopy(member)

        return convert

    def _text_leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        convert_array = array_leaf(spec)

        def convert(value: Any) -> str:
            text = str(convert_array(value))
            if not space.contains(text):
                raise self.refusal(
                    space,
                    text,
                    path,
                    "The space leaves out some lengths or letters, and this text has "
                    "them.",
                )
            return text

        return convert


def _kept_leaf(spec: ArraySpec) -> Leaf:
    check = bounded_leaf(spec)

    def convert(value: Any) -> Any:
        # Hot: called once per step.
        own = check(value)
        if type(value) is np.ndarray and value.dtype == own.dtype:
            return own
        if type(value) is PythonNumbers:
            return value.tolist()
        given = given_floats(value)
        return own if given is None else np.array(given)

    return convert


def _integer_leaf(spec: BoundedArraySpec) -> Leaf:
    low, high, kind = int(spec.minimum), int(spec.maximum), spec.dtype.type
    convert_other = bounded_leaf(spec)
    # Looking a number up takes a fifth of the time of making it.
    few = high - low < _FEW
    members = [kind(number) for number in range(low, high + 1)] if few else []

    def convert(value: Any) -> Any:
        # Hot: called once per step. Comparing Python's integers is ten times as fast
        # as comparing arrays.
        if value.__class__ is np.bool_:
            value = bool(value)  # As an index NumPy's own is deprecated.
        try:
            number = operator.index(value)
        except TypeError:
            number = int(convert_other(value))
        if not low <= number <= high:
            raise SpecError
        return members[number - low] if few else kind(number)

    return convert


# For how many choices the members are kept.
_FEW = 1024
