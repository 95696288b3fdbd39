"""Converts members of Gymnasium's spaces to envkit's values, and back.

Most members are the arrays themselves. The exceptions:

```
                 a value of envkit           a member          in a batch of n
Discrete         array of shape ()           NumPy's scalar    array of shape (n,)
Text             array of text, shape ()     str               tuple of n str
OneOf            OneOf(tag, branches)        (tag, member)     tuple of n pairs
Sequence, Graph  padded arrays               their elements    tuple of n members
objects          array of object, shape ()   the object        tuple of n objects
```

`from_member` and `from_members` convert members to values; `to_member` and `to_members`
convert fitting values to members, and `action_converter` also checks the values.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from envkit import nest
from envkit.adapters.gymnasium.spaces import (
    PADDED,
    OneOf,
    PaddedGraph,
    PaddedSequence,
    PaddedStack,
    kind_of_space,
    neutral_value,
)
from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    few_numbers,
    integer_leaf,
    map_specs,
    rebuilt,
)
from envkit.errors import SpecError
from envkit.extend import counted, describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.batching import add_outer_dims_nest, remove_outer_dims_nest
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.types import Array, NestedSpec

__all__ = [
    "ActionChecks",
    "MemberReader",
    "action_converter",
    "choices_of",
    "from_member",
    "from_members",
    "takes_arrays",
    "to_member",
    "to_members",
]

Convert: TypeAlias = Callable[[Any], Any]


class _SpaceWalk:
    """Makes nests of functions, one for each leaf of a space.

    Attributes:
        subject: The beginning of error messages.
        root: The root of paths in messages, such as `action`.
    """

    def __init__(self, subject: str, root: str) -> None:
        self.subject = subject
        self.root = root

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        """Returns the function for one leaf."""
        raise NotImplementedError

    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        """Returns the function for a union."""
        raise NotImplementedError

    def padded(self, space: Any, spec: Any, path: str) -> Leaf:
        """Returns the function for a padded sequence or graph."""
        raise NotImplementedError

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


def from_member(
    space: Any,
    spec: NestedSpec,
    *,
    subject: str = "The member",
    root: str = "",
    bounded: bool = False,
) -> Converter:
    """Returns a function that converts members of a space to values.

    The arrays are new, and have exactly the spec's dtype and shape.

    Args:
        space: A Gymnasium space.
        spec: Its spec: from `spec_from_gym_space`, or the spec that it was made from.
        subject: The beginning of error messages.
        root: The root of paths in messages, such as `observation`.
        bounded: Whether bounds are checked.

    Raises:
        SpecError: Raised by the function for a value that is not a member.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = from_member(space, spec_from_gym_space(space))
        >>> convert((2, "left"))
        (array(2), array('left', dtype='<U4'))
    """
    return MemberReader(subject, root, bounded).converter(space, spec, root)


def from_members(
    space: Any,
    spec: NestedSpec,
    rows: int,
    *,
    subject: str = "The batch",
    root: str = "",
    bounded: bool = False,
) -> Converter:
    """Does the same as `from_member` for batches: members of the batched space.

    Args:
        space: The space of one row.
        spec: The specs of one row.
        rows: The number of rows of a batch.
        subject: The beginning of error messages.
        root: The root of paths in messages, such as `observation`.
        bounded: Whether bounds are checked.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = from_members(space, spec_from_gym_space(space), rows=2)
        >>> convert(([2, 1], ("left", "up")))
        (array([2, 1]), array(['left', 'up'], dtype='<U4'))
    """
    reader = _BatchReader(subject, root, bounded, rows)
    leaves = reader.leaves(space, spec, root)
    batched = add_outer_dims_nest(spec, (rows,))
    return Converter(batched, leaves, subject=subject, root=root)


class MemberReader(_SpaceWalk):
    """Reads one member."""

    def __init__(self, subject: str, root: str, bounded: bool) -> None:
        super().__init__(subject, root)
        self._bounded = bounded

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        """Returns the function for one leaf."""
        if isinstance(spec, ObjectSpec):
            return self._object_leaf(spec, path)
        if isinstance(spec, TextSpec) and self._bounded:
            return self._text_leaf(spec, path)
        return bounded_leaf(spec) if self._bounded else array_leaf(spec)

    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        """Returns the function for a union."""
        single = MemberReader(self.subject, self.root, self._bounded)
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
        """Returns the function for a padded sequence or graph."""
        if isinstance(spec, PaddedSequence):
            of_stack = isinstance(spec, PaddedStack)
            read = self._padding(space.feature_space, spec, path)

            def convert(value: Any) -> Any:
                if of_stack:
                    return read(_unstacked(space.feature_space, value))
                if not isinstance(value, tuple | list):
                    raise self.refusal(space, value, path, "It must be a tuple.")
                return read(value)

            return convert
        return self._graph(space, spec, path)

    def _graph(self, space: Any, spec: PaddedGraph, path: str) -> Leaf:
        read_nodes = self._padding(space.node_space, spec.nodes, f"{path}.nodes")
        has_edges = spec.edges != ()
        if has_edges:
            read_edges = self._padding(space.edge_space, spec.edges, f"{path}.edges")

        def convert(value: Any) -> Any:
            if not hasattr(value, "nodes"):
                raise self.refusal(space, value, path, "It must be a GraphInstance.")
            nodes = read_nodes(_unstacked(space.node_space, value.nodes))
            if not has_edges:
                return PaddedGraph(nodes, (), ())
            edges: list[Any] = []
            if value.edges is not None:
                edges = _unstacked(space.edge_space, value.edges)
            padded = read_edges(edges)
            links = np.zeros(spec.edge_links.shape, np.int32)
            if value.edge_links is not None:
                given = np.asarray(value.edge_links)
                if given.shape != (len(edges), 2):
                    raise self.refusal(
                        f"an array of shape {(len(edges), 2)}",
                        given,
                        f"{path}.edge_links",
                        "Each edge has a pair of nodes.",
                    )
                links[: len(edges)] = given
            return PaddedGraph(nodes, padded, links)

        return convert

    def _padding(
        self, space: Any, spec: Any, path: str
    ) -> Callable[[Sequence[Any]], PaddedSequence]:
        """Returns a function that pads the members of a sequence into arrays."""
        single = MemberReader(self.subject, self.root, self._bounded)
        read = single.converter(space, _feature(spec), f"{path}.values")
        most = int(spec.length.maximum)
        neutral = nest.flatten(neutral_value(spec.values))

        def convert(members: Sequence[Any]) -> PaddedSequence:
            if len(members) > most:
                raise self.refusal(
                    f"up to {counted(most, 'element')}",
                    members,
                    path,
                    f"There are {len(members)} elements but room for {most}: "
                    "max_lengths sets the limit.",
                )
            columns = [leaf.copy() for leaf in neutral]
            for place, member in enumerate(members):
                leaves = nest.flatten(read(member))
                for column, leaf in zip(columns, leaves, strict=True):
                    column[place] = leaf
            values = nest.unflatten_as(spec.values, columns)
            made: PaddedSequence = type(spec)(values, np.array(len(members), np.int64))
            return made

        return convert

    def _object_leaf(self, spec: ObjectSpec, path: str) -> Leaf:
        def convert(value: Any) -> Array:
            if self._bounded and not spec.contains(value):
                raise self.refusal(spec, value, path, "It is none of these values.")
            # A copy, because the environment may keep changing its object.
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


class _BatchReader(MemberReader):
    """Reads a batch of members."""

    def __init__(self, subject: str, root: str, bounded: bool, rows: int) -> None:
        super().__init__(subject, root, bounded)
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
    """Returns True for a pair of a branch's number and a value."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return isinstance(value[0], int | np.integer) and 0 <= int(value[0]) < branches


def to_member(space: Any, spec: NestedSpec) -> Convert:
    """Returns a function that converts fitting values to members of a space.

    Nothing is checked. Arrays that need no change are not copied.

    Args:
        space: A Gymnasium space.
        spec: Its spec: from `spec_from_gym_space`, or the spec that it was made from.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = to_member(space, spec_from_gym_space(space))
        >>> print(*convert((np.array(2), np.array("left"))))
        2 left
    """
    return _compile(space, spec, _Single) or _same


def to_members(space: Any, spec: NestedSpec) -> Convert:
    """Does the same as `to_member` for batches: members of the batched space.

    Args:
        space: The space of one row.
        spec: The specs of one row.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Tuple((spaces.Discrete(3), spaces.Text(4)))
        >>> convert = to_members(space, spec_from_gym_space(space))
        >>> convert((np.array([2, 1]), np.array(["left", "up"])))
        (array([2, 1]), ('left', 'up'))
    """
    return _compile(space, spec, _Batched) or _same


def _same(value: Any) -> Any:
    return value


def _compile(space: Any, spec: NestedSpec, way: Any) -> Convert | None:
    """Compiles a function; `None` means that values are returned unchanged."""
    if isinstance(spec, OneOf) and kind_of_space(space) == "OneOf":
        pairs = zip(space.spaces, spec.branches, strict=True)
        branches = [_compile(*pair, _Single) or _same for pair in pairs]
        return way.one_of(branches)  # type: ignore[no-any-return]  # both ways have it
    if isinstance(spec, PADDED):
        return way.padded(_Trusting("The value", "").padded(space, spec, ""))  # type: ignore[no-any-return]  # both ways have it
    if isinstance(spec, dict):
        parts = {
            key: _compile(space.spaces[key], child, way) for key, child in spec.items()
        }
        return _dict_of(parts)
    if isinstance(spec, list | tuple):
        pairs = zip(space.spaces, spec, strict=True)
        return _tuple_of([_compile(*pair, way) for pair in pairs], type(spec))
    return way.leaf(space, spec)  # type: ignore[no-any-return]  # both ways have it


def _dict_of(parts: dict[Any, Convert | None]) -> Convert | None:
    if not any(parts.values()):
        return None
    whole = {key: part or _same for key, part in parts.items()}
    return lambda value: {key: part(value[key]) for key, part in whole.items()}


def _tuple_of(parts: list[Convert | None], kind: type) -> Convert | None:
    if not any(parts) and kind is tuple:
        return None
    whole = [part or _same for part in parts]
    return lambda value: tuple(
        part(item) for part, item in zip(whole, value, strict=True)
    )


def _object_in(value: Any) -> Any:
    """Returns an object that may be in an array of shape ()."""
    return value[()] if isinstance(value, np.ndarray) else value


class _Single:
    """Converts the leaves of one value to members."""

    @staticmethod
    def leaf(space: Any, spec: ArraySpec) -> Convert | None:
        if isinstance(spec, ObjectSpec):
            return _object_in
        kind = kind_of_space(space)
        if kind == "Text":
            return str
        # NumPy's number type turns an array of shape () into a scalar.
        return spec.dtype.type if kind == "Discrete" else None

    @staticmethod
    def padded(convert: Convert) -> Convert:
        return convert

    @staticmethod
    def one_of(branches: list[Convert]) -> Convert:
        def convert(value: Any) -> Any:
            tag = np.int64(value.tag)
            return tag, branches[tag](value.branches[tag])

        return convert


class _Batched:
    """Converts the leaves of a batch to members of the batched space."""

    @staticmethod
    def leaf(space: Any, spec: ArraySpec) -> Convert | None:
        if isinstance(spec, ObjectSpec):
            return tuple
        kind = kind_of_space(space)
        if kind == "Text":
            return lambda value: tuple(value.tolist())
        # Gymnasium batches members of spaces unknown to it as tuples.
        return tuple if kind == "Space" else None

    @staticmethod
    def one_of(branches: list[Convert]) -> Convert:
        return _Batched.padded(_Single.one_of(branches))

    @staticmethod
    def padded(convert: Convert) -> Convert:
        return lambda value: tuple(
            convert(map_specs(operator.itemgetter((row, ...)), value))
            for row in range(len(nest.flatten(value)[0]))
        )


def action_converter(
    space: Any, spec: NestedSpec, *, subject: str, root: str
) -> Converter:
    """Returns a function that checks values and converts them to members of a space.

    It accepts values that can be converted without loss, and copies arrays.

    Args:
        space: A Gymnasium space.
        spec: The result of `spec_from_gym_space` for it.
        subject: The beginning of error messages.
        root: The root of paths in messages, such as `action`.

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
    return ActionChecks(subject, root).converter(space, spec, root)


class _Writer(_SpaceWalk):
    """Converts padded values to members."""

    def padded(self, space: Any, spec: Any, path: str) -> Leaf:
        if isinstance(spec, PaddedSequence):
            of_stack = isinstance(spec, PaddedStack)
            write = self._elements(space.feature_space, spec, path)

            def convert(value: Any) -> Any:
                members = write(value)
                return _stacked(space.feature_space, members) if of_stack else members

            return convert
        write_nodes = self._elements(space.node_space, spec.nodes, f"{path}.nodes")
        has_edges = spec.edges != ()
        if has_edges:
            write_edges = self._elements(space.edge_space, spec.edges, f"{path}.edges")

        def convert_graph(value: Any) -> Any:
            from gymnasium.spaces import GraphInstance

            if not isinstance(value, tuple | list) or len(value) != 3:
                raise self.refusal(
                    "a PaddedGraph", value, path, "It must have three parts."
                )
            nodes, edges, links = value
            node_array = _stacked(space.node_space, write_nodes(nodes))
            members = write_edges(edges) if has_edges else ()
            if not members:  # Gymnasium has no empty array of edges
                return GraphInstance(node_array, None, None)
            pairs = np.array(links, np.int32)[: len(members)]
            return GraphInstance(node_array, _stacked(space.edge_space, members), pairs)

        return convert_graph

    def _elements(
        self, space: Any, spec: Any, path: str
    ) -> Callable[[Any], tuple[Any, ...]]:
        """Returns a function that converts padded arrays to a sequence's members."""
        write = self.converter(space, _feature(spec), f"{path}.values")
        most = int(spec.length.maximum)

        def convert(value: Any) -> tuple[Any, ...]:
            if not isinstance(value, tuple | list) or len(value) != 2:
                raise self.refusal(
                    "a PaddedSequence", value, path, "It must have two parts."
                )
            values, length = value
            count = np.asarray(length)
            is_count = count.shape == () and count.dtype.kind in "iu"
            if not is_count or not 0 <= count <= most:
                raise self.refusal(
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


class _Trusting(_Writer):
    """Converts padded values to members, without checking their elements."""

    def converter(self, space: Any, spec: NestedSpec, path: str) -> Any:
        return _compile(space, spec, _Single) or _same


class ActionChecks(_Writer):
    """Makes leaf functions that check values."""

    def leaf(self, space: Any, spec: ArraySpec, path: str) -> Leaf:
        """Returns the function for one leaf."""
        kind = kind_of_space(space)
        if kind == "Discrete" and isinstance(spec, BoundedArraySpec):
            return integer_leaf(spec)
        if isinstance(spec, ObjectSpec):
            return self._object_leaf(spec, path)
        if kind == "Text":
            return self._text_leaf(space, spec, path)
        return bounded_leaf(spec)

    def one_of(self, space: Any, spec: OneOf, path: str) -> Leaf:
        """Returns the function for a union."""
        to_tag = integer_leaf(spec.tag)
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

    def _object_leaf(self, spec: ObjectSpec, path: str) -> Leaf:
        def convert(value: Any) -> Any:
            # An element of a batch of objects may be the object itself.
            wrapped = isinstance(value, np.ndarray) and value.dtype == object
            member = value[()] if wrapped and value.shape == () else value
            if not spec.contains(member):
                raise self.refusal(spec, member, path, "It is none of these values.")
            # A copy, because the environment may keep it.
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
                    "The space excludes some lengths or letters that this text has.",
                )
            return text

        return convert


def choices_of(space: Any, spec: NestedSpec) -> dict[int, Any] | None:
    """Returns the member for each number, if a space's actions are a few numbers.

    Example:
        >>> from gymnasium import spaces
        >>> from envkit.adapters import spec_from_gym_space
        >>> space = spaces.Discrete(2, start=5)
        >>> choices_of(space, spec_from_gym_space(space))
        {5: np.int64(5), 6: np.int64(6)}
    """
    if kind_of_space(space) != "Discrete" or not isinstance(spec, BoundedArraySpec):
        return None
    return few_numbers(spec) or None


def takes_arrays(space: Any, spec: NestedSpec) -> bool:
    """Returns True if a space's actions are arrays that its spec fully describes.

    Any array of the spec's dtype within its bounds is then an action.
    """
    if kind_of_space(space) not in ("Box", "MultiDiscrete", "MultiBinary"):
        return False
    return isinstance(spec, ArraySpec) and spec.shape != ()


def _stacked(space: Any, members: Sequence[Any]) -> Any:
    from gymnasium.vector.utils import concatenate, create_empty_array

    out: Any = create_empty_array(space, len(members))
    return concatenate(space, members, out)


def _unstacked(space: Any, value: Any) -> list[Any]:
    from gymnasium.vector.utils import batch_space, iterate

    return list(iterate(batch_space(space, 1), value))


def _feature(spec: Any) -> NestedSpec:
    return remove_outer_dims_nest(spec.values, 1)
