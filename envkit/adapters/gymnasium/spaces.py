"""Converts Gymnasium's spaces to specs, and specs to spaces.

```
BoundedArraySpec   one integer         Discrete
                   int8 from 0 to 1    MultiBinary
                   a row of integers   MultiDiscrete   signed, with real bounds
                   anything else       Box
ArraySpec          numbers, booleans   Box             unbounded if possible
                   text                Text            printable ASCII
TextSpec                               Text            its lengths and letters
dict                                   Dict            in the order of keys
tuple, list, namedtuple                Tuple
OneOf                                  OneOf
PaddedSequence                         Sequence
PaddedStack                            Sequence        with `stack=True`
PaddedGraph                            Graph
ObjectSpec                             the space it came from
anything else                          SpecSpace       holds the spec
```

The integers from 0 to 5 may be a `Discrete` or a `Box`, and as arrays both look alike.
`usual_kind` implements the table. The spec of any other kind of space is a
`SpecOfKind`, which remembers its kind and converts back to it.

Three kinds are not classes of spaces: `FiniteBox`, a box whose bounds are the largest
numbers of the dtype instead of infinite; `OpenBox`, a box of integers with infinite
bounds; and `ShapedMultiBinary`, a `MultiBinary` of `(4,)` instead of 4. In any other
space, a bound that is the dtype's largest number means infinity.

Spaces are recognised by the names of their classes, so specs can be made without
importing Gymnasium, and from old Gym's spaces too.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import string
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.adapters.foreign import require
from envkit.adapters.values import map_specs
from envkit.extend import bound_text, describe, foreign, listed
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.batching import add_outer_dims_nest, remove_outer_dims_nest
from envkit.specs.sampling import sample_spec_nest
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.types import Array, NestedArray, NestedSpec, RandomSource, Shape
from envkit.wrappers.observation_parts import is_choice

__all__ = [
    "PADDED",
    "SPECS",
    "BoundedBooleans",
    "MaxLengths",
    "MembersOf",
    "OneOf",
    "PaddedGraph",
    "PaddedSequence",
    "PaddedStack",
    "SpaceSpecs",
    "SpecOfKind",
    "batch_space_from_spec",
    "finer_kind",
    "kind_of_space",
    "kind_of_spec",
    "neutral_value",
    "space_from_spec",
    "spec_from_gym_space",
    "spec_space",
    "usual_kind",
]

# The attribute of a box made from a spec without bounds.
_UNBOUNDED = "envkit_unbounded"


class SpecOfKind(BoundedArraySpec):
    """A bounded spec that remembers its kind of space.

    It equals a spec that does not.

    Example:
        >>> spec = SpecOfKind((), np.int64, 0, 5, kind="Box")
        >>> spec, spec == BoundedArraySpec((), np.int64, 0, 5)
        (BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=5), True)
        >>> kind_of_spec(spec), kind_of_spec(BoundedArraySpec((), np.int64, 0, 5))
        ('Box', 'Discrete')
    """

    __slots__ = ("_finite", "_kind")

    _kind: str
    _finite: Any

    def __init__(
        self,
        shape: Shape,
        dtype: Any,
        minimum: Any = None,
        maximum: Any = None,
        name: str | None = None,
        kind: str = "Box",
        finite: Any = None,
    ) -> None:
        """Makes a bounded spec for a kind of space.

        Args:
            shape: The shape.
            dtype: The dtype.
            minimum: The lower bounds.
            maximum: The upper bounds.
            name: The name.
            kind: The name of the space's class, or one of the three kinds.
            finite: For a `FiniteBox`, masks of the lower and upper bounds that are the
                dtype's limits instead of infinite; for an `OpenBox`, masks of those
                that are infinite.
        """
        super().__init__(shape, dtype, minimum, maximum, name)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_finite", finite)

    @property
    def kind(self) -> str:
        """The name of the space's class, or one of the three kinds."""
        return self._kind

    @property
    def finite(self) -> Any:
        """Masks of bounds, for the kinds that have them; otherwise `None`."""
        return self._finite

    def __repr__(self) -> str:
        # The kind is a detail that readers do not need.
        return super().__repr__().replace(type(self).__name__, "BoundedArraySpec", 1)

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = super().__reduce__()
        return make, (*arguments, self._kind, self._finite)

    def replace(self, *args: Any, **kwargs: Any) -> SpecOfKind:
        """Makes a copy with changes; `None` keeps a value."""
        spec = super().replace(*args, **kwargs)
        object.__setattr__(spec, "_kind", self._kind)
        object.__setattr__(spec, "_finite", self._finite)
        return spec  # type: ignore[return-value]  # of this very class


class BoundedBooleans(ArraySpec):
    """A spec of booleans that remembers a box's bounds, which may fix some elements.

    Samples are within them. It equals a spec without them.

    Example:
        >>> BoundedBooleans((2,), np.bool_, None, [True, False], True)
        ArraySpec(shape=(2,), dtype=bool, low=[True, False], high=True)
    """

    __slots__ = ("_high", "_low")

    _low: Array
    _high: Array

    def __init__(
        self, shape: Shape, dtype: Any, name: str | None, low: Any, high: Any
    ) -> None:
        """Makes a spec of booleans for a box with these bounds."""
        super().__init__(shape, dtype, name)
        object.__setattr__(self, "_low", np.array(low, bool))
        object.__setattr__(self, "_high", np.array(high, bool))

    @property
    def low(self) -> Array:
        """A mask of the elements that are always true."""
        return self._low

    @property
    def high(self) -> Array:
        """A mask of the elements that may be true."""
        return self._high

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__name__, "ArraySpec", 1)

    def _describe(self) -> str:
        bounds = bound_text(self._low), bound_text(self._high)
        return f"{super()._describe()}, low={bounds[0]}, high={bounds[1]}"

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = super().__reduce__()
        return make, (*arguments, self._low, self._high)

    def replace(self, shape: Any = None, dtype: Any = None, name: Any = None) -> Any:
        """Makes a copy with changes; `None` keeps a value."""
        plain = ArraySpec.from_spec(self).replace(shape, dtype, name)
        if plain.dtype != self._dtype:
            return plain
        return type(self)(plain.shape, plain.dtype, plain.name, self._low, self._high)


def kind_of_space(space: Any) -> str:
    """Returns the name of the Gymnasium or Gym class that a space belongs to."""
    for base in type(space).__mro__:
        if base.__module__.partition(".")[0] in ("gymnasium", "gym"):
            return base.__name__
    return ""


def finer_kind(space: Any, kind: str) -> tuple[str, Any]:
    """Returns the exact kind of a space whose class is known.

    Returns:
        The kind, and masks of bounds; see `SpecOfKind`.

    Example:
        >>> from gymnasium import spaces
        >>> low = np.array([np.finfo(np.float64).min, -np.inf])
        >>> finer_kind(spaces.Box(low, np.zeros(2), dtype=np.float64), "Box")
        ('FiniteBox', (array([ True, False]), array([False, False])))
        >>> finer_kind(spaces.Box(-np.inf, 0.0), "Box")
        ('Box', None)
    """
    if kind == "Box" and space.dtype.kind == "f":
        limits = np.finfo(space.dtype)
        finite = space.low == limits.min, space.high == limits.max
        return ("FiniteBox", finite) if np.any(finite) else (kind, None)
    if kind == "Box" and space.dtype.kind == "i":
        open_ends = ~space.bounded_below, ~space.bounded_above
        return ("OpenBox", open_ends) if np.any(open_ends) else (kind, None)
    if kind == "MultiBinary" and not np.isscalar(space.n) and len(space.shape) == 1:
        return "ShapedMultiBinary", None
    return kind, None


def usual_kind(spec: ArraySpec) -> str:
    """Returns the kind of space for a spec that does not remember one.

    A single integer is a choice, so `Discrete`; a row of integers is a `MultiDiscrete`,
    unless its dtype and bounds suggest a picture. "" means that no Gymnasium space
    describes it.

    Example:
        >>> usual_kind(BoundedArraySpec((), np.int64, 5, 7))
        'Discrete'
        >>> usual_kind(BoundedArraySpec((3,), np.int32, 0, [1, 2, 3]))
        'MultiDiscrete'
        >>> usual_kind(BoundedArraySpec((84, 84), np.uint8, 0, 255))
        'Box'
    """
    if isinstance(spec, ObjectSpec) or spec.dtype.kind not in "biufU":
        return ""
    if spec.dtype.kind == "U":
        is_text = spec.shape == () and spec.dtype.itemsize and spec.dtype.isnative
        return "Text" if is_text else ""
    if is_choice(spec):
        return "Discrete" if spec.shape == () else "MultiDiscrete"
    is_binary = (
        isinstance(spec, BoundedArraySpec)
        and spec.dtype == np.int8
        and 0 not in spec.shape
        and np.all(spec.minimum == 0)
        and np.all(spec.maximum == 1)
    )
    return "MultiBinary" if is_binary else "Box"


def kind_of_spec(spec: ArraySpec) -> str:
    """Returns the kind of space for a spec."""
    return spec.kind if isinstance(spec, SpecOfKind) else usual_kind(spec)


class OneOf(NamedTuple):
    """A union: the number of the branch that counts, and a value for every branch.

    As a nest of specs, it describes such values. Values of other branches are
    meaningless.

    Attributes:
        tag: The number of the branch that counts, from 0.
        branches: One value for each branch.
    """

    tag: Any
    branches: tuple[Any, ...]


def neutral_value(spec: NestedSpec) -> NestedArray:
    """Makes a placeholder: zeros, or the nearest values that fit.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> neutral_value(
        ...     (ArraySpec((2,), np.float32), BoundedArraySpec((), np.int64, 5, 9))
        ... )
        (array([0., 0.], dtype=float32), array(5))
    """
    return map_specs(_neutral_leaf, spec)


def _neutral_leaf(spec: ArraySpec) -> Array:
    zeros = np.zeros(spec.shape, spec.dtype)
    if isinstance(spec, BoundedArraySpec):
        return np.asarray(np.clip(zeros, spec.minimum, spec.maximum), spec.dtype)
    if isinstance(spec, TextSpec) and spec.min_length:
        zeros[...] = (spec.letters or " ")[0] * spec.min_length
    return zeros


class PaddedSequence(NamedTuple):
    """A sequence with a maximum length; as a nest of specs, it describes sequences.

    Attributes:
        values: Arrays with room for each value; elements beyond the length are
            meaningless.
        length: The number of values.
    """

    values: Any
    length: Any


class PaddedStack(PaddedSequence):
    """A sequence whose members are arrays instead of tuples: with `stack=True`."""


class PaddedGraph(NamedTuple):
    """A graph with a maximum number of nodes and edges.

    Attributes:
        nodes: The values of the nodes.
        edges: The values of the edges; an empty tuple if they have none.
        edge_links: The pair of nodes that each edge connects.
    """

    nodes: Any
    edges: Any
    edge_links: Any


PADDED = (PaddedSequence, PaddedGraph)


class MaxLengths:
    """Holds the maximum lengths of sequences by path in a space, or one for all.

    Example:
        >>> lengths = MaxLengths({"path": 8})
        >>> lengths.of("['path']"), lengths.of("['map']")
        (8, None)
        >>> lengths.check_all_used()
    """

    def __init__(self, given: Any) -> None:
        """Takes a number, a mapping from paths to numbers, or `None`."""
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
        """Returns the maximum length at a path, or `None`."""
        for place in self._by_place:
            if path in (place, f"[{place!r}]"):
                self._used.add(place)
                return self._by_place[place]
        return self._all

    def check_all_used(self) -> None:
        """Raises if some path has no sequence or graph."""
        unknown = [place for place in self._by_place if place not in self._used]
        if unknown:
            raise ValueError(
                f"max_lengths has {listed(map(repr, unknown))}, where the spaces have "
                "no Sequence or Graph. A path must be written as in Python, such as "
                "\"['path']\", or be the key alone."
            )


def _checked(given: Any) -> Any:
    """Returns a length, or the lengths of nodes and edges."""
    parts = given if isinstance(given, tuple | list) else (given,)
    for part in parts:
        is_length = isinstance(part, int | np.integer) and not isinstance(part, bool)
        if not is_length or part < 1 or len(parts) not in (1, 2):
            raise ValueError(
                f"max_lengths has {describe(given)}; it must be an integer of at least "
                "1, or for a Graph a pair of them, for nodes and edges."
            )
    return given if len(parts) == 1 else tuple(parts)


def spec_from_gym_space(
    space: Any,
    simplify_box_bounds: bool = True,
    name: str | None = None,
    *,
    max_lengths: Any = None,
) -> NestedSpec:
    """Makes specs for the members of a space, as arrays.

    | space                       | spec                                               |
    |-----------------------------|----------------------------------------------------|
    | `Box`                       | `BoundedArraySpec` of its dtype                    |
    | `Box` of booleans           | `ArraySpec`; samples keep to the box's bounds      |
    | `Discrete`                  | scalar `BoundedArraySpec`, from its `start`        |
    | `MultiDiscrete`             | `BoundedArraySpec`, from its `start`               |
    | `MultiBinary`               | `BoundedArraySpec` from 0 to 1, int8               |
    | `Text`                      | `TextSpec`: text of a fixed width                  |
    | `Dict`                      | a dictionary in the space's order of keys          |
    | `Tuple`                     | a tuple                                            |
    | `OneOf`                     | `OneOf`: the chosen branch, a value for every one  |
    | `Sequence` with a maximum   | `PaddedSequence`; `PaddedStack` for `stack=True`   |
    | `Graph` with a maximum      | `PaddedGraph`                                      |
    | any other, also in a `OneOf` | `ObjectSpec`, which knows the space               |

    A `Box` of integers without bounds has the limits of its dtype, and its spec
    remembers that they are not the box's.

    Args:
        space: A Gymnasium space.
        simplify_box_bounds: Whether equal bounds of all elements are kept as a single
            number.
        name: The name of the spec; in a nest, the prefix of the names.
        max_lengths: The maximum number of elements of a `Sequence`, or of nodes and
            edges of a `Graph`: one number for all, or a dictionary from paths, such as
            "['path']" or just the key, to a number, or to a pair for nodes and edges.
            A longer member raises an error.

    Raises:
        TypeError: The argument is not a space.

    Example:
        >>> from gymnasium import spaces
        >>> space = spaces.Dict(
        ...     arm=spaces.Box(-1.0, 1.0, (2,), np.float32), grip=spaces.Discrete(2)
        ... )
        >>> for key, spec in spec_from_gym_space(space).items():
        ...     print(key, spec)  # doctest: +NORMALIZE_WHITESPACE
        arm BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, maximum=1.0,
                             name='arm')
        grip BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=1, name='grip')
    """
    given = isinstance(max_lengths, MaxLengths)
    lengths = max_lengths if given else MaxLengths(max_lengths)
    root = name or ""
    spec = SpaceSpecs(simplify_box_bounds, lengths, root).of(space, name, root)
    if not given:
        lengths.check_all_used()
    return spec


class SpaceSpecs:
    """Makes the specs of a space and of the spaces in it."""

    def __init__(self, simplify: bool, lengths: MaxLengths, root: str) -> None:
        self.simplify = simplify
        self._lengths = lengths
        self._root = root

    def of(self, space: Any, name: str | None, path: str) -> NestedSpec:
        """Returns the specs of the space at a path."""
        kind = self.kind_of(space)
        if kind == "Dict":
            return {
                key: self.of(child, _below(name, str(key)), f"{path}[{key!r}]")
                for key, child in space.spaces.items()
            }
        if kind == "Tuple":
            return tuple(self._parts(space, name, path, "tuple"))
        if kind == "OneOf":
            branches = self._parts(space, name, path, "branch")
            if _has_objects(branches):
                return ObjectSpec(name=name, kind=MembersOf(space))
            most = len(branches) - 1
            tag = BoundedArraySpec((), np.int64, 0, most, _below(name, "tag"))
            return OneOf(tag, tuple(branches))
        length = self._lengths.of(path[len(self._root) :])
        if length is not None and kind in ("Sequence", "Graph"):
            padded = self._sequence if kind == "Sequence" else self._graph
            spec = padded(space, length, name, path)
            if spec is not None:
                return spec
        if kind not in SPECS:
            return _object(space, kind, name, path)
        return self.leaf(space, kind, name)

    def kind_of(self, space: Any) -> str:
        """Returns the name of a space's class; "" if it is not a space."""
        return kind_of_space(space)

    def leaf(self, space: Any, kind: str, name: str | None) -> ArraySpec:
        """Returns the spec of a space that is one array."""
        spec = SPECS[kind](space, self.simplify, name)
        kind, finite = finer_kind(space, kind)
        if isinstance(spec, BoundedArraySpec) and kind != usual_kind(spec):
            return SpecOfKind(
                spec.shape, spec.dtype, spec.minimum, spec.maximum, name, kind, finite
            )
        return spec

    def _parts(
        self, space: Any, name: str | None, path: str, part: str
    ) -> list[NestedSpec]:
        return [
            self.of(child, _below(name, f"{part}_{index}"), f"{path}[{index}]")
            for index, child in enumerate(space.spaces)
        ]

    def _sequence(self, space: Any, length: Any, name: str | None, path: str) -> Any:
        """Returns the spec of a sequence; `None` if its elements are objects."""
        if isinstance(length, tuple):
            raise ValueError(
                f"max_lengths has the pair {length} for a Sequence; it must be one "
                "integer."
            )
        kind = PaddedStack if getattr(space, "stack", False) else PaddedSequence
        return _padded(
            kind, self.of(space.feature_space, name, f"{path}.values"), length
        )

    def _graph(self, space: Any, length: Any, name: str | None, path: str) -> Any:
        """Returns the spec of a graph; `None` if its nodes or edges are objects."""
        most = length if isinstance(length, tuple) else (length, length)
        nodes = _padded(
            PaddedStack, self.of(space.node_space, name, f"{path}.nodes"), most[0]
        )
        if nodes is None or space.edge_space is None:
            return None if nodes is None else PaddedGraph(nodes, (), ())
        edges = _padded(
            PaddedStack, self.of(space.edge_space, name, f"{path}.edges"), most[1]
        )
        if edges is None:
            return None
        links = BoundedArraySpec((most[1], 2), np.int32, 0, most[0] - 1, "edge_links")
        return PaddedGraph(nodes, edges, links)


def _padded(kind: Any, feature: NestedSpec, length: int) -> Any:
    if _has_objects(feature):
        return None
    return kind(
        add_outer_dims_nest(feature, (length,)),
        BoundedArraySpec((), np.int64, 0, length, "length"),
    )


def _has_objects(spec: NestedSpec) -> bool:
    return any(isinstance(leaf, ObjectSpec) for leaf in nest.flatten(spec))


def _object(space: Any, kind: str, name: str | None, path: str) -> ArraySpec:
    if not kind:
        place = f" at {path}" if path else ""
        raise TypeError(
            f"The space{place} is {describe(space)}, which is not a space of Gymnasium."
        )
    # A space made from a spec holds it.
    spec = getattr(space, "spec", None)
    if isinstance(spec, ArraySpec):
        return spec.replace(name=name)
    return ObjectSpec(name=name, kind=MembersOf(space))


def _below(name: str | None, part: str) -> str:
    return part if name is None else f"{name}/{part}"


def _box(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    low, high = _bounds(space.low, space.high, simplify)
    if space.dtype.kind not in "biuf":  # old Gym has boxes of text
        return ArraySpec(space.shape, space.dtype, name)
    if space.dtype == np.bool_:  # most specs have bounds for numbers only
        if space.high.all() and not space.low.any():
            return ArraySpec(space.shape, space.dtype, name)
        return BoundedBooleans(space.shape, space.dtype, name, low, high)
    spec = BoundedArraySpec(space.shape, space.dtype, low, high, name)
    plain = ArraySpec(space.shape, space.dtype, name)
    # Compare, because the bounds may have changed since.
    unbounded = hasattr(space, _UNBOUNDED) and spec == BoundedArraySpec.from_spec(plain)
    return plain if unbounded else spec


def _discrete(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    start = int(getattr(space, "start", 0))  # old Gym's start at 0
    return BoundedArraySpec((), space.dtype, start, start + int(space.n) - 1, name)


def _multi_discrete(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    start = np.asarray(getattr(space, "start", 0), space.dtype)
    low = np.broadcast_to(start, space.nvec.shape)
    # This order cannot overflow: the largest member fits the dtype.
    high = low + (space.nvec - 1)
    # Simplify each bound alone, and always, as TF-Agents does: the minimum is mostly 0.
    low, high = (bound.flat[0] if _are_same(bound) else bound for bound in (low, high))
    return BoundedArraySpec(space.shape, space.dtype, low, high, name)


def _multi_binary(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    return BoundedArraySpec(space.shape, space.dtype, 0, 1, name)


def _text(space: Any, simplify: bool, name: str | None) -> ArraySpec:
    letters = "".join(space.character_list)
    if "\0" in letters:  # NumPy's text drops trailing ones
        return ObjectSpec(name=name, kind=MembersOf(space))
    # NumPy has no text of width 0.
    dtype = f"<U{max(1, space.max_length)}"
    anything = space.min_length == 0 and space.max_length > 0
    if anything and set(letters) == set(string.printable):
        return ArraySpec((), dtype, name)  # such a spec converts to this space
    return TextSpec(
        (),
        dtype,
        name,
        min_length=space.min_length,
        max_length=space.max_length,
        letters=letters,
    )


# For each class of space, the function that makes its spec.
SPECS: dict[str, Callable[[Any, bool, str | None], ArraySpec]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiBinary": _multi_binary,
    "MultiDiscrete": _multi_discrete,
    "Text": _text,
}


def _bounds(low: Array, high: Array, simplify: bool) -> tuple[Array, Array]:
    """Reduces both bounds to single numbers if all their elements are equal."""
    if simplify and _are_same(low) and _are_same(high):
        return low.flat[0], high.flat[0]
    return low, high


def _are_same(bound: Array) -> bool:
    return bool(bound.size and (bound == bound.flat[0]).all())


class MembersOf:
    """Describes the members of a space without arrays, as an `ObjectSpec`'s kind.

    It keeps a copy of the space. In another process, it imports the space's library on
    first use, not when the spec arrives.

    Example:
        >>> from gymnasium import spaces
        >>> members = MembersOf(spaces.Sequence(spaces.Discrete(2)))
        >>> members, members.contains((0, 1, 1)), members.contains((2,))
        (Sequence(Discrete(2), stack=False), True, False)
    """

    __slots__ = ("_pickled", "_space", "_text")

    def __init__(self, space: Any) -> None:
        """Keeps a copy of a space."""
        self._text = repr(space)
        try:
            self._pickled: bytes | None = pickle.dumps(space)
        # Any error, because a class defines its own pickling; one within a function,
        # for example, does not pickle.
        except Exception:
            self._pickled = None
        self._space: Any = copy.deepcopy(space) if self._pickled is None else None

    def as_space(self) -> Any:
        """Returns a space equal to the original."""
        return copy.deepcopy(self._loaded())

    def contains(self, value: Any) -> bool:
        """Returns True if a value is a member."""
        try:
            return bool(self._loaded().contains(value))
        # Any error, because users write spaces too, and some reject values of other
        # types.
        except Exception:
            return False

    def sample(self, rng: RandomSource) -> Any:
        """Draws a member."""
        space = self._loaded()
        space.seed(int(rng.random() * 2**31))
        return space.sample()

    def _loaded(self) -> Any:
        if self._space is None:
            self._space = pickle.loads(self._pickled)  # type: ignore[arg-type]  # one of the two exists
        return self._space

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MembersOf):
            return False
        same = self._pickled is not None and self._pickled == other._pickled
        return same or bool(self._loaded() == other._loaded())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # spaces are unhashable too

    def __getstate__(self) -> tuple[Any, str]:
        # Raises for a space that does not pickle.
        return self._pickled or pickle.dumps(self._space), self._text

    def __setstate__(self, state: tuple[Any, str]) -> None:
        self._pickled, self._text = state
        self._space = None


def space_from_spec(spec: NestedSpec) -> Any:
    """Makes the space whose members are the arrays that fit a spec.

    It is the inverse of `spec_from_gym_space`, except for names and kinds of sequences.
    A `PaddedSequence` or `PaddedGraph` becomes a `Sequence` or `Graph` without a
    maximum. Specs that were not made from a space become the most similar one: a
    bounded integer a `Discrete`, a row of bounded signed integers a `MultiDiscrete`,
    other numbers a `Box`. If Gymnasium has no such space, as for complex numbers, the
    result is a space that holds the spec.

    Args:
        spec: A nest of specs.

    Raises:
        MissingDependencyError: Gymnasium is not installed.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> space_from_spec(BoundedArraySpec((), np.int64, 5, 7))
        Discrete(3, start=5)
        >>> space_from_spec({
        ...     "picture": BoundedArraySpec((8, 8), np.uint8, 0, 255),
        ...     "buttons": BoundedArraySpec((4,), np.int8, 0, 1),
        ... })
        Dict('picture': Box(0, 255, (8, 8), uint8), 'buttons': MultiBinary(4))
    """
    require("gymnasium", needed_by="space_from_spec", extra="gymnasium")
    from gymnasium import spaces

    if isinstance(spec, dict):
        children = [(key, space_from_spec(child)) for key, child in spec.items()]
        space = spaces.Dict(children)
        # Batches of it are made from a dictionary, whose keys would be sorted.
        space.sort_keys = False
        return space
    if isinstance(spec, OneOf) and hasattr(spaces, "OneOf"):
        return spaces.OneOf([space_from_spec(branch) for branch in spec.branches])
    if isinstance(spec, PADDED):
        return _padded_space(spec)
    if isinstance(spec, list | tuple):
        return spaces.Tuple([space_from_spec(child) for child in spec])
    if isinstance(spec, ArraySpec):
        return _leaf_space(spec)
    if nest.is_nested(spec):  # other mappings become dictionaries
        return space_from_spec(map_specs(lambda leaf: leaf, spec))
    shown = foreign(spec) or f"{spec!r:.80}"
    raise TypeError(f"{shown} is not an ArraySpec, so there is no space for it.")


def batch_space_from_spec(spec: NestedSpec, rows: int) -> Any:
    """Makes the space of a batch, as Gymnasium's vector environments have it.

    Its members are batches of arrays. Text, unions and objects are tuples of members,
    as in Gymnasium.

    Args:
        spec: The specs of one row.
        rows: The number of rows.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> batch_space_from_spec(BoundedArraySpec((2,), np.float32, -1.0, 1.0), 3)
        Box(-1.0, 1.0, (3, 2), float32)
        >>> batch_space_from_spec(BoundedArraySpec((), np.int64, 0, 4), 3)
        MultiDiscrete([5 5 5])
    """
    space = space_from_spec(spec)
    from gymnasium.vector.utils import batch_space

    return batch_space(space, rows)


def _padded_space(spec: Any) -> Any:
    from gymnasium import spaces

    def feature_space(part: Any) -> Any:
        return space_from_spec(remove_outer_dims_nest(part.values, 1))

    if isinstance(spec, PaddedSequence):
        stack = isinstance(spec, PaddedStack)
        return spaces.Sequence(feature_space(spec), stack=stack)
    edges = None if spec.edges == () else feature_space(spec.edges)
    return spaces.Graph(feature_space(spec.nodes), edges)


def _leaf_space(spec: ArraySpec) -> Any:
    if isinstance(spec, ObjectSpec):
        # The kind may be a space's members, or an object that has its own space.
        as_space = getattr(spec.kind, "as_space", None)
        return spec_space(spec) if as_space is None else as_space()
    kinds = [kind_of_spec(spec), "Box" if spec.dtype.kind in "biuf" else ""]
    for kind in filter(None, kinds):
        # Gymnasium 1.0 only supports choices of int64, and no box has a NaN bound.
        with contextlib.suppress(TypeError, ValueError, AssertionError):
            return _space_of_kind(spec, kind)
    return spec_space(spec)


def _space_of_kind(spec: Any, kind: str) -> Any:
    from gymnasium import spaces

    if kind == "MultiBinary":
        # One number for a row, which is the usual notation.
        shape = spec.shape[0] if len(spec.shape) == 1 else spec.shape
        return spaces.MultiBinary(shape)
    if kind == "ShapedMultiBinary":
        return spaces.MultiBinary(spec.shape)
    if kind == "Discrete":
        return _discrete_space(spec)
    if kind == "MultiDiscrete":
        low, high = _wide(spec.minimum, spec), _wide(spec.maximum, spec)
        return spaces.MultiDiscrete(high - low + 1, spec.dtype, start=low)
    if kind == "Text":
        return _text_space(spec)
    box = _box_space(spec)
    if kind == "FiniteBox":
        low, high = (
            np.where(_wide(is_finite, spec), bound, wide)
            for bound, wide, is_finite in zip(
                (spec.minimum, spec.maximum),
                (box.low, box.high),
                spec.finite,
                strict=True,
            )
        )
        return spaces.Box(low, high, spec.shape, spec.dtype)
    if kind == "OpenBox":
        # Not as an array with infinities, because floats would round the other numbers.
        for bounded, is_open in zip(
            (box.bounded_below, box.bounded_above), spec.finite, strict=True
        ):
            bounded &= ~_wide(is_open, spec)
    return box


def _box_space(spec: ArraySpec) -> Any:
    from gymnasium import spaces

    if isinstance(spec, BoundedBooleans):
        low, high = _wide(spec.low, spec), _wide(spec.high, spec)
        return spaces.Box(low, high, spec.shape, spec.dtype)
    if not isinstance(spec, BoundedArraySpec):
        low, high = _limits(spec.dtype)
        space = spaces.Box(low, high, spec.shape, spec.dtype)
        # Otherwise it would look like a box whose bounds are that wide.
        setattr(space, _UNBOUNDED, True)
        return space
    low, high = _wide(spec.minimum, spec), _wide(spec.maximum, spec)
    if spec.dtype.kind == "f":
        limits = np.finfo(spec.dtype)
        low = np.where(low == limits.min, -np.inf, low).astype(spec.dtype)
        high = np.where(high == limits.max, np.inf, high).astype(spec.dtype)
    return spaces.Box(low, high, spec.shape, spec.dtype)


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "if":
        return -np.inf, np.inf
    info = np.iinfo(dtype)
    return info.min, info.max


def _discrete_space(spec: Any) -> Any:
    from gymnasium import spaces

    low, high = int(spec.minimum), int(spec.maximum)
    # Gymnasium 1.0 supports no other dtype, and has no argument for it.
    chosen = {} if spec.dtype == np.int64 else {"dtype": spec.dtype}
    space = spaces.Discrete(high - low + 1, start=low, **chosen)
    # Gymnasium before 1.4 computes a sum that overflows the dtype.
    with np.errstate(over="ignore"):
        if not space.contains(spec.dtype.type(high)):
            raise ValueError("It does not contain its own members.")
    return space


def _text_space(spec: ArraySpec) -> Any:
    from gymnasium import spaces

    if not isinstance(spec, TextSpec):
        return spaces.Text(
            spec.dtype.itemsize // 4, min_length=0, charset=string.printable
        )
    if spec.shape != () or spec.letters is None:
        return spec_space(spec)
    return spaces.Text(
        spec.max_length, min_length=spec.min_length, charset=spec.letters
    )


def _wide(bound: Array, spec: ArraySpec) -> Array:
    return np.broadcast_to(bound, spec.shape)


def spec_space(spec: ArraySpec) -> Any:
    """Makes a space of the values that fit a spec, if no class of spaces has them.

    For an `ObjectSpec`, the members are the objects themselves, without an array.

    Example:
        >>> import numpy as np
        >>> space = spec_space(ArraySpec((2,), np.complex64))
        >>> space, space.contains(np.zeros(2, np.complex64))
        (SpecSpace(ArraySpec(shape=(2,), dtype=complex64)), True)
    """
    return _class()(spec)


@functools.cache
def _class() -> Any:
    from gymnasium import spaces

    class SpecSpace(spaces.Space):  # type: ignore[type-arg]  # only known at run time
        """The members of a spec."""

        def __init__(self, spec: ArraySpec, seed: Any = None) -> None:
            self.spec = spec
            super().__init__(spec.shape, spec.dtype, seed)

        @property
        def is_np_flattenable(self) -> bool:
            return False

        def sample(self, mask: Any = None, probability: Any = None) -> Any:
            sample = sample_spec_nest(self.spec, self.np_random)
            return sample[()] if isinstance(self.spec, ObjectSpec) else sample

        def contains(self, x: Any) -> bool:
            if isinstance(self.spec, ObjectSpec):
                return self.spec.contains(x)
            return self.spec.check_array(x)

        def __repr__(self) -> str:
            return f"SpecSpace({self.spec!r})"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, SpecSpace) and bool(self.spec == other.spec)

        # The class is made on demand, so pickle cannot find it by name.
        def __reduce__(self) -> tuple[Any, ...]:
            return spec_space, (self.spec,), vars(self)

    return SpecSpace
