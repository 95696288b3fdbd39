"""`SpaceWalk`: a space and its specs, gone through side by side for the functions."""

from __future__ import annotations

import abc
from typing import Any

from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.padded import PADDED
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.adapters.spaces.values import Converter, Leaf, rebuilt
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.types import NestedSpec

__all__ = ["SpaceWalk"]


class SpaceWalk(abc.ABC):
    """Makes nests of leaf functions, one for each leaf of a space.

    Attributes:
        subject: What a value is, as the sentence of an error begins.
        root: What a place in it begins with, such as `action`.
    """

    def __init__(self, subject: str, root: str) -> None:
        """Begins a walk whose functions speak of `subject`."""
        self.subject = subject
        self.root = root

    @abc.abstractmethod
    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        """Returns the function for one leaf."""

    @abc.abstractmethod
    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        """Returns the function for a union."""

    @abc.abstractmethod
    def padded(self, space: Any, spec: Any, path: str) -> Leaf:
        """Returns the function for a padded sequence or graph."""

    def converter(self, space: Any, spec: NestedSpec, path: str) -> Converter:
        """Returns one function for the part of a value at a path."""
        return Converter(
            spec,
            self.leaves(space, spec, path),
            subject=self.subject,
            root=self.root,
            path=path.removeprefix(self.root),
        )

    def leaves(self, space: Any, spec: NestedSpec, path: str) -> Any:
        """Returns the nest of functions."""
        if isinstance(spec, OneOf) and kind_of_space(space) == "OneOf":
            return self.one_of(space, spec, path)
        if isinstance(spec, PADDED):
            return self.padded(space, spec, path)
        if isinstance(spec, dict):
            return {
                key: self.leaves(space.spaces[key], child, f"{path}[{key!r}]")
                for key, child in spec.items()
            }
        if isinstance(spec, list | tuple):
            parts = [
                self.leaves(space.spaces[index], child, f"{path}[{index}]")
                for index, child in enumerate(spec)
            ]
            return rebuilt(spec, parts)
        return self.leaf(space, spec, path)

    def refusal(self, expected: Any, got: Any, path: str, reason: str) -> SpecError:
        """Makes the error for the value at a path."""
        return SpecError.does_not_fit(
            self.subject,
            path=path,
            root=self.root,
            expected=expected if isinstance(expected, str) else f"{expected!r:.200}",
            got=describe(got),
            reason=reason,
        )
