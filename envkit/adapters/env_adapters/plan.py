"""What an adapter takes and gives, once it is known."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.env_adapters.legality import LegalActions
from envkit.adapters.env_adapters.returned import Read
from envkit.adapters.gym_environments import number_of
from envkit.adapters.spaces.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    compiled,
    map_specs,
)
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.types import NestedArray, NestedSpec

__all__ = ["Plan", "constants", "copier", "declared_leaves", "reader"]

_NUMBERS = frozenset([float, int, np.float32, np.float64])


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The specs of an adapter, and what converts between them and its author.

    Attributes:
        observation_spec: The specs of an observation, with the mask if it has one.
        inferred: Whether they were told from observations.
        read_observation: Makes observations of what the author returns.
        copied: Copies such an observation.
        read_reward: Makes rewards.
        read_discount: Makes discounts.
        read_step: Reads what `step` returned.
        to_action: Makes of an action what the author's `step` gets.
        legal: Makes masks of legal actions, if the author says which are.
        is_plain_reward: Whether a reward is one number, as float32.
        nothing: The reward of a `FIRST`, read-only.
        one: The discount of a `FIRST`, read-only.
        over: The discount after a termination, read-only.
        going_on: The discount of other time steps, read-only.
    """

    observation_spec: NestedSpec
    inferred: bool
    read_observation: Leaf
    copied: Leaf
    read_reward: Leaf
    read_discount: Leaf
    read_step: Callable[[Any], Read]
    to_action: Leaf
    legal: LegalActions | None
    is_plain_reward: bool
    nothing: NestedArray
    one: NestedArray
    over: NestedArray
    going_on: NestedArray

    def reward_of(self, read: Read) -> NestedArray:
        """Returns the reward of a step."""
        # Hot: called once per step.
        if self.is_plain_reward:
            if type(read.reward) in _NUMBERS:
                return np.array(read.reward, np.float32)
            number = number_of(read.reward)
            if number is not None:
                return np.array(number, np.float32)
        return self.read_reward(read.reward)

    def discount_of(self, read: Read) -> NestedArray:
        """Returns the discount of a step."""
        if read.terminated:
            return self.over
        if read.discount is None:
            return self.going_on
        return self.read_discount(read.discount)


def declared_leaves(spec: NestedSpec, *, checked: bool) -> Any:
    """Returns what converts to specs that somebody has declared, leaf by leaf."""

    def leaf_of(leaf: ArraySpec) -> Leaf:
        if isinstance(leaf, ObjectSpec):
            return _object_leaf(leaf)
        return bounded_leaf(leaf) if checked else array_leaf(leaf)

    return map_specs(leaf_of, spec)


def _object_leaf(spec: ObjectSpec) -> Leaf:
    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == object:
            value = value[()]
        if not spec.contains(value):
            raise SpecError
        # The library goes on with its own.
        return ObjectSpec.wrap(copy.deepcopy(value))

    return convert


def reader(name: str, part: str, spec: NestedSpec, leaves: Any) -> Converter:
    """Returns a converter of what an author returns."""
    article = "an" if part == "observation" else "a"
    return Converter(
        spec, leaves, subject=f"{name} returned {article} {part} that", root=part
    )


def copier(spec: NestedSpec) -> Leaf:
    """Returns a function that copies the arrays of an observation."""
    return compiled(map_specs(lambda leaf: np.array, spec))


def constants(spec: NestedSpec, number: float) -> NestedArray:
    """Makes arrays of one number for many time steps, to which nobody may write."""

    def leaf_of(leaf: ArraySpec) -> Any:
        array = np.full(leaf.shape, number, leaf.dtype)
        array.setflags(write=False)
        return array

    return map_specs(leaf_of, spec)
