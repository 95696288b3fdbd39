"""Lays out the parts of several agents in one value: along an axis or under names.

```
        three agents that observe two numbers    the nest
axis    an array of shape (3, 2)                 one agent's nest
dict    three arrays of shape (2,)               {"red": …, "blue": …, "green": …}
```
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from envkit import nest
from envkit.adapters.values import Converter, array_leaf, map_specs
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.batching import add_outer_dims_nest
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["AxisLayout", "DictLayout", "Layout", "OneLayout"]

Join: TypeAlias = Callable[[Sequence[NestedArray]], NestedArray]
Split: TypeAlias = Callable[[NestedArray], list[NestedArray]]


class Layout(abc.ABC):
    """Joins and splits the parts of agents.

    Attributes:
        agents: The agents, in the order of the parts.
    """

    def __init__(self, agents: Sequence[Any]) -> None:
        """Makes the layout for some agents."""
        self.agents = list(agents)

    @abc.abstractmethod
    def join_specs(self, specs: Sequence[NestedSpec]) -> NestedSpec:
        """Returns the specs of the whole."""

    @abc.abstractmethod
    def split_specs(self, spec: NestedSpec) -> list[NestedSpec]:
        """Returns the specs of the parts."""

    @abc.abstractmethod
    def joining(self, specs: Sequence[NestedSpec]) -> Join:
        """Returns a function that joins parts that fit `specs` into a new whole."""

    @abc.abstractmethod
    def splitting(self, spec: NestedSpec) -> Split:
        """Returns a function that splits a value that fits `spec` into new parts."""

    @abc.abstractmethod
    def choosing(self, spec: NestedSpec, subject: str) -> Split:
        """Returns a function that checks an action and splits it.

        Args:
            spec: The specs of the whole action.
            subject: The beginning of error messages.
        """


class AxisLayout(Layout):
    """Gives arrays a leading dimension of agents.

    Example:
        >>> layout = AxisLayout(["red", "blue"])
        >>> spec = layout.join_specs([ArraySpec((3,), np.float32)] * 2)
        >>> spec, layout.split_specs(spec)[1]
        (ArraySpec(shape=(2, 3), dtype=float32), ArraySpec(shape=(3,), dtype=float32))
    """

    def join_specs(self, specs: Sequence[NestedSpec]) -> NestedSpec:
        """Returns the first agent's specs, with a dimension of agents."""
        return add_outer_dims_nest(specs[0], (len(self.agents),))

    def split_specs(self, spec: NestedSpec) -> list[NestedSpec]:
        """Returns the agents' specs, with each one's bounds."""
        return [
            nest.map_structure(lambda leaf, row=row: _row_of_spec(leaf, row), spec)
            for row in range(len(self.agents))
        ]

    def joining(self, specs: Sequence[NestedSpec]) -> Join:
        """Returns a function that stacks arrays."""
        if isinstance(specs[0], ArraySpec):
            return np.stack
        structure = nest.Structure(specs[0])

        def join(parts: Sequence[NestedArray]) -> NestedArray:
            rows = [structure.flatten(part) for part in parts]
            return structure.unflatten(
                [np.stack(leaf) for leaf in zip(*rows, strict=True)]
            )

        return join

    def splitting(self, spec: NestedSpec) -> Split:
        """Returns a function that copies rows."""
        structure = nest.Structure(spec)
        rows = range(len(self.agents))

        def split(whole: NestedArray) -> list[NestedArray]:
            leaves = structure.flatten(whole)
            return [
                # An element of a vector must remain an array.
                structure.unflatten([np.array(leaf[row, ...]) for leaf in leaves])
                for row in rows
            ]

        return split

    def choosing(self, spec: NestedSpec, subject: str) -> Split:
        """Returns a function that checks shapes and dtypes, and splits."""
        leaves = map_specs(array_leaf, spec)
        check = Converter(spec, leaves, subject=subject, root="action")
        split = self.splitting(spec)
        return lambda action: split(check(action))


class DictLayout(Layout):
    """Keeps each agent's part under its name."""

    def join_specs(self, specs: Sequence[NestedSpec]) -> NestedSpec:
        """Returns the specs by agent."""
        return dict(zip(self.agents, specs, strict=True))

    def split_specs(self, spec: NestedSpec) -> list[NestedSpec]:
        """Returns the specs in the order of the agents."""
        return [spec[agent] for agent in self.agents]

    def joining(self, specs: Sequence[NestedSpec]) -> Join:
        """Returns a function that makes dictionaries."""
        copies = [_copying(spec) for spec in specs]

        def join(parts: Sequence[NestedArray]) -> NestedArray:
            pieces = zip(self.agents, copies, parts, strict=True)
            return {agent: copied(part) for agent, copied, part in pieces}

        return join

    def splitting(self, spec: NestedSpec) -> Split:
        """Returns a function that looks up agents and copies their parts."""
        copies = [_copying(spec[agent]) for agent in self.agents]

        def split(whole: NestedArray) -> list[NestedArray]:
            pairs = zip(self.agents, copies, strict=True)
            return [copied(whole[agent]) for agent, copied in pairs]

        return split

    def choosing(self, spec: NestedSpec, subject: str) -> Split:
        """Returns a function that requires every agent and checks each one's part."""

        def choose(action: NestedArray) -> list[NestedArray]:
            named = isinstance(action, Mapping)
            if not named or any(agent not in action for agent in self.agents):
                check_fits(action, spec, subject=subject, root="action")
            return [action[agent] for agent in self.agents]

        return choose


class OneLayout(Layout):
    """Has one agent, whose part is the whole."""

    def join_specs(self, specs: Sequence[NestedSpec]) -> NestedSpec:
        """Returns the specs of the agent."""
        return specs[0]

    def split_specs(self, spec: NestedSpec) -> list[NestedSpec]:
        """Returns a list of just these specs."""
        return [spec]

    def joining(self, specs: Sequence[NestedSpec]) -> Join:
        """Returns a function that copies the only part."""
        copied = _copying(specs[0])
        return lambda parts: copied(parts[0])

    def splitting(self, spec: NestedSpec) -> Split:
        """Returns a function that copies the whole."""
        copied = _copying(spec)
        return lambda whole: [copied(whole)]

    def choosing(self, spec: NestedSpec, subject: str) -> Split:
        """Returns a function that takes the action as the only part."""
        return lambda action: [action]


def _copying(spec: NestedSpec) -> Callable[[NestedArray], NestedArray]:
    """Returns a function that copies nests of arrays."""
    if isinstance(spec, ArraySpec):
        return np.array
    return functools.partial(nest.Structure(spec).map, np.array)


def _row_of_spec(spec: ArraySpec, row: int) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=spec.shape[1:])
    rank = len(spec.shape)
    return spec.replace(
        spec.shape[1:],
        minimum=_row_of_bound(spec.minimum, rank, row),
        maximum=_row_of_bound(spec.maximum, rank, row),
    )


def _row_of_bound(bound: Array, rank: int, row: int) -> Array:
    """Returns a row's bound; only a bound of full rank differs between rows."""
    if bound.ndim < rank:
        return bound
    row_bound: Array = bound[row if len(bound) > 1 else 0]
    return row_bound
