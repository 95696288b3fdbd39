"""Sequences and graphs of up to so many elements, as arrays that are padded.

Members of Gymnasium's `Sequence` and `Graph` have any length. With a declared maximum
they become arrays of that length, with the true one beside; without, they stay objects.

```
Sequence(space)               PaddedSequence(values, length)
Sequence(space, stack=True)   PaddedStack(values, length)
Graph(node, edge)             PaddedGraph(nodes, edges, edge_links)
```
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.adapters.spaces.one_of import neutral_value
from envkit.adapters.spaces.values import map_specs
from envkit.errors import SpecError
from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.batching import add_outer_dims_nest, remove_outer_dims_nest
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.validation import describe
from envkit.types import NestedSpec
from envkit.wording import counted, listed

__all__ = [
    "PADDED",
    "MaxLengths",
    "PaddedGraph",
    "PaddedSequence",
    "PaddedStack",
    "member_of_padded",
    "padded_from_member",
    "padded_space",
    "padded_spec",
]

Convert = Callable[[Any], Any]
_Maker = Callable[[Any, NestedSpec, str], Convert]
_Refuse = Callable[[Any, Any, str, str], SpecError]


class PaddedSequence(NamedTuple):
    """A sequence of up to so many values: as a nest of specs it describes such.

    Attributes:
        values: Arrays with an element for each place; those after the last mean
            nothing.
        length: How many values there are.
    """

    values: Any
    length: Any


class PaddedStack(PaddedSequence):
    """A sequence whose members are arrays, and not tuples: with `stack=True`."""


class PaddedGraph(NamedTuple):
    """A graph of up to so many nodes and edges.

    Attributes:
        nodes: What the nodes are.
        edges: What the edges are; an empty tuple if they are nothing.
        edge_links: Which nodes each edge connects: an array of pairs.
    """

    nodes: Any
    edges: Any
    edge_links: Any


PADDED = (PaddedSequence, PaddedGraph)


class MaxLengths:
    """How long sequences may be, by their place in a space, or all alike.

    Example:
        >>> lengths = MaxLengths({"path": 8})
        >>> lengths.of("['path']"), lengths.of("['map']")
        (8, None)
        >>> lengths.check_all_used()
    """

    def __init__(self, given: Any) -> None:
        """Takes a number, a mapping from places to numbers, or `None`."""
        self._all: Any = None
        self._by_place: dict[str, Any] = {}
        self._used: set[str] = set()
        if isinstance(given, Mapping):
            self._by_place = {
                str(place): _checked(length) for place, length in given.items()
            }
        elif given is not None:
            self._all = _checked(given)

    def of(self, path: str) -> Any:
        """Returns how long what stands at a path may be; `None` if nobody said."""
        for place in self._by_place:
            if path in (place, f"[{place!r}]"):
                self._used.add(place)
                return self._by_place[place]
        return self._all

    def check_all_used(self) -> None:
        """Raises if there was a place where no sequence or graph is."""
        unknown = [place for place in self._by_place if place not in self._used]
        if unknown:
            raise ValueError(
                f"max_lengths has {listed(map(repr, unknown))}, where the spaces have "
                "no Sequence or Graph. A place must be written as in Python, such as "
                "\"['path']\", or be the key alone."
            )


def _checked(given: Any) -> Any:
    """Returns a length, or those of nodes and edges."""
    parts = given if isinstance(given, tuple | list) else (given,)
    for part in parts:
        is_length = isinstance(part, int | np.integer) and not isinstance(part, bool)
        if not is_length or part < 1 or len(parts) not in (1, 2):
            raise ValueError(
                f"max_lengths has {describe(given)}; it must be an integer of at least "
                "1, or a pair of those of nodes and edges for a Graph."
            )
    return given if len(parts) == 1 else tuple(parts)


def padded_spec(
    space: Any,
    kind: str,
    length: Any,
    spec_of: Callable[[Any, str], NestedSpec],
) -> NestedSpec | None:
    """Returns the spec of a sequence or graph; `None` if it has no arrays.

    Args:
        space: The space.
        kind: Which it is: "Sequence" or "Graph".
        length: How long it may be.
        spec_of: Makes the spec of a space within it, whose place is given.
    """
    if kind == "Sequence":
        if isinstance(length, tuple):
            raise ValueError(
                f"max_lengths has the pair {length} for a Sequence; it must be one "
                "integer."
            )
        return _sequence_spec(spec_of(space.feature_space, ".values"), length, space)
    nodes, edges = length if isinstance(length, tuple) else (length, length)
    node_spec = _stack_spec(spec_of(space.node_space, ".nodes"), nodes)
    if node_spec is None:
        return None
    if space.edge_space is None:
        return PaddedGraph(node_spec, (), ())
    edge_spec = _stack_spec(spec_of(space.edge_space, ".edges"), edges)
    if edge_spec is None:
        return None
    links = BoundedArraySpec((edges, 2), np.int32, 0, nodes - 1, "edge_links")
    return PaddedGraph(node_spec, edge_spec, links)


def _sequence_spec(feature: NestedSpec, length: int, space: Any) -> Any:
    if any(isinstance(leaf, ObjectSpec) for leaf in nest.flatten(feature)):
        return None
    kind = PaddedStack if getattr(space, "stack", True) else PaddedSequence
    return kind(
        add_outer_dims_nest(feature, (length,)),
        BoundedArraySpec((), np.int64, 0, length, "length"),
    )


def _stack_spec(feature: NestedSpec, length: int) -> Any:
    return _sequence_spec(feature, length, None)


def padded_space(spec: Any, space_of: Callable[[NestedSpec], Any]) -> Any:
    """Makes the space of a padded spec; `space_of` makes those of what is in it."""
    from gymnasium import spaces

    if isinstance(spec, PaddedSequence):
        stack = isinstance(spec, PaddedStack)
        return spaces.Sequence(space_of(_feature(spec)), stack=stack)
    edges = None if spec.edges == () else space_of(_feature(spec.edges))
    return spaces.Graph(space_of(_feature(spec.nodes)), edges)


def _feature(spec: Any) -> NestedSpec:
    return remove_outer_dims_nest(spec.values, 1)


# From members, and back.


def padded_from_member(
    space: Any, spec: Any, path: str, reader: _Maker, refuse: _Refuse
) -> Convert:
    """Returns a function that pads members.

    Args:
        space: The space.
        spec: Its padded spec.
        path: Where it stands.
        reader: Makes what converts one element, of its space, spec and place.
        refuse: Makes the error of what is expected, what came, its place and a reason.
    """
    if isinstance(spec, PaddedSequence):
        of_stack = isinstance(spec, PaddedStack)
        read = _reading(space.feature_space, spec, path, reader, refuse)

        def convert(value: Any) -> Any:
            if not of_stack and not isinstance(value, tuple | list):
                raise refuse(space, value, path, "It must be a tuple.")
            return read(_unstacked(space.feature_space, value) if of_stack else value)

        return convert
    read_nodes = _reading(space.node_space, spec.nodes, f"{path}.nodes", reader, refuse)
    if spec.edges == ():

        def convert_nodes(value: Any) -> Any:
            if not hasattr(value, "nodes"):
                raise refuse(space, value, path, "It must be a GraphInstance.")
            return PaddedGraph(
                read_nodes(_unstacked(space.node_space, value.nodes)), (), ()
            )

        return convert_nodes
    read_edges = _reading(space.edge_space, spec.edges, f"{path}.edges", reader, refuse)

    def convert_graph(value: Any) -> Any:
        if not hasattr(value, "nodes"):
            raise refuse(space, value, path, "It must be a GraphInstance.")
        nodes = read_nodes(_unstacked(space.node_space, value.nodes))
        edges: list[Any] = []
        links = np.zeros(spec.edge_links.shape, np.int32)
        if value.edges is not None:
            edges = _unstacked(space.edge_space, value.edges)
        padded = read_edges(edges)
        if value.edge_links is not None:
            given = np.asarray(value.edge_links)
            if given.shape != (len(edges), 2):
                raise refuse(
                    f"an array of shape {(len(edges), 2)}",
                    given,
                    f"{path}.edge_links",
                    "Each edge has a pair of nodes.",
                )
            links[: len(edges)] = given
        return PaddedGraph(nodes, padded, links)

    return convert_graph


def _reading(
    space: Any, spec: PaddedSequence, path: str, reader: _Maker, refuse: _Refuse
) -> Callable[[Sequence[Any]], PaddedSequence]:
    read = reader(space, _feature(spec), f"{path}.values")
    most = int(spec.length.maximum)
    neutral = nest.flatten(neutral_value(spec.values))

    def convert(members: Sequence[Any]) -> PaddedSequence:
        if len(members) > most:
            raise refuse(
                f"up to {counted(most, 'element')}",
                members,
                path,
                f"There are {len(members)} elements and room for {most}: max_lengths "
                "says how many there may be.",
            )
        columns = [leaf.copy() for leaf in neutral]
        for place, member in enumerate(members):
            for column, leaf in zip(columns, nest.flatten(read(member)), strict=True):
                column[place] = leaf
        values = nest.unflatten_as(spec.values, columns)
        return type(spec)(values, np.array(len(members), np.int64))

    return convert


def member_of_padded(
    space: Any, spec: Any, path: str, writer: _Maker, refuse: _Refuse
) -> Convert:
    """Returns a function that makes members of what is padded.

    Args:
        space: The space.
        spec: Its padded spec.
        path: Where it stands.
        writer: Makes what converts one element, of its space, spec and place.
        refuse: Makes the error of what is expected, what came, its place and a reason.
    """
    if isinstance(spec, PaddedSequence):
        of_stack = isinstance(spec, PaddedStack)
        write = _writing(space.feature_space, spec, path, writer, refuse)

        def convert(value: Any) -> Any:
            members = write(value)
            return _stacked(space.feature_space, members) if of_stack else members

        return convert
    write_nodes = _writing(
        space.node_space, spec.nodes, f"{path}.nodes", writer, refuse
    )
    has_edges = spec.edges != ()
    if has_edges:
        write_edges = _writing(
            space.edge_space, spec.edges, f"{path}.edges", writer, refuse
        )

    def convert_graph(value: Any) -> Any:
        from gymnasium.spaces import GraphInstance

        if not isinstance(value, tuple | list) or len(value) != 3:
            raise refuse("a PaddedGraph", value, path, "It must have three parts.")
        nodes, edges, links = value
        node_members = _stacked(space.node_space, write_nodes(nodes))
        edge_members = write_edges(edges) if has_edges else ()
        if not edge_members:  # Gymnasium has no array of no edges.
            return GraphInstance(node_members, None, None)
        pairs = np.array(links, np.int32)[: len(edge_members)]
        return GraphInstance(
            node_members, _stacked(space.edge_space, edge_members), pairs
        )

    return convert_graph


def _writing(
    space: Any, spec: PaddedSequence, path: str, writer: _Maker, refuse: _Refuse
) -> Callable[[Any], tuple[Any, ...]]:
    write = writer(space, _feature(spec), f"{path}.values")
    most = int(spec.length.maximum)

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise refuse("a PaddedSequence", value, path, "It must have two parts.")
        values, length = value
        count = np.asarray(length)
        if count.shape != () or count.dtype.kind not in "iu" or not 0 <= count <= most:
            raise refuse(
                spec.length,
                length,
                f"{path}.length",
                "It must be a number of elements.",
            )
        return tuple(
            write(map_specs(operator.itemgetter((place, ...)), values))
            for place in range(int(count))
        )

    return convert


def _stacked(space: Any, members: Sequence[Any]) -> Any:
    from gymnasium.vector.utils import concatenate, create_empty_array

    out: Any = create_empty_array(space, len(members))
    return concatenate(space, members, out)


def _unstacked(space: Any, value: Any) -> list[Any]:
    from gymnasium.vector.utils import batch_space, iterate

    return list(iterate(batch_space(space, 1), value))
