"""Which space of Gymnasium a spec is, where its bounds and its dtype leave a choice.

The integers from 0 to 5 may be a `Discrete` or a `Box`, and as arrays both look alike.
`usual_kind` is the rule, and a spec that came from another kind of space than the rule
says remembers it: it is a `SpecOfKind`.

Three kinds are none of the classes of spaces: `FiniteBox`, a box with bounds that are
the largest numbers that there are and not infinite; `OpenBox`, a box of integers that
was given infinite bounds; and `ShapedMultiBinary`, a `MultiBinary` that was given
`(4,)` and not 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.adapters.spaces.values import map_specs
from envkit.arrays import FLOATS
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedSpec, Shape
from envkit.wording import bound_text
from envkit.wrappers.observations.leaf_specs import usual_kind

__all__ = [
    "UNBOUNDED",
    "BoundedBooleans",
    "FloatsAsGiven",
    "SpecOfKind",
    "finer_kind",
    "keeping_floats",
    "kind_of_space",
    "kind_of_spec",
    "usual_kind",
]

# The attribute of a box that was made of a spec without bounds.
UNBOUNDED = "envkit_unbounded"

_LIBRARIES = ("gymnasium", "gym")


class SpecOfKind(BoundedArraySpec):
    """A bounded spec that remembers which kind of space it came from.

    It is equal to one that does not.

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
        """Makes a bounded spec of a kind of space.

        Args:
            shape: The shape.
            dtype: The dtype.
            minimum: The lower bounds.
            maximum: The upper bounds.
            name: The name.
            kind: The name of the space's class, or what else the module names.
            finite: Of a `FiniteBox`, masks of the lower and of the upper bounds that
                are the limits of the dtype and not infinite; of an `OpenBox`, of those
                that are infinite.
        """
        super().__init__(shape, dtype, minimum, maximum, name)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_finite", finite)

    @property
    def kind(self) -> str:
        """The name of the space's class, or what else the module names."""
        return self._kind

    @property
    def finite(self) -> Any:
        """Masks of bounds, of the kinds that have them; else `None`."""
        return self._finite

    def __repr__(self) -> str:
        # To people it is a bounded spec as any other.
        return super().__repr__().replace(type(self).__name__, "BoundedArraySpec", 1)

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = super().__reduce__()
        return make, (*arguments, self._kind, self._finite)

    def replace(self, *args: Any, **kwargs: Any) -> SpecOfKind:
        """Makes a copy in which what is not `None` is different."""
        spec = super().replace(*args, **kwargs)
        object.__setattr__(spec, "_kind", self._kind)
        object.__setattr__(spec, "_finite", self._finite)
        return spec  # type: ignore[return-value]  # of this very class


class BoundedBooleans(ArraySpec):
    """A spec of booleans that remembers the bounds of a box, where some may be fixed.

    Samples are within them. It is equal to one that does not remember any.

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
        """Makes a spec of booleans, of a box with these bounds."""
        super().__init__(shape, dtype, name)
        object.__setattr__(self, "_low", np.array(low, bool))
        object.__setattr__(self, "_high", np.array(high, bool))

    @property
    def low(self) -> Array:
        """Which elements are always true."""
        return self._low

    @property
    def high(self) -> Array:
        """Which elements may be true."""
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
        """Makes a copy in which what is not `None` is different."""
        plain = ArraySpec.from_spec(self).replace(shape, dtype, name)
        if plain.dtype != self._dtype:
            return plain
        return type(self)(plain.shape, plain.dtype, plain.name, self._low, self._high)


class FloatsAsGiven(SpecOfKind):
    """A bounded spec of actions that keep the width in which floats are given.

    Example:
        >>> spec = FloatsAsGiven((2,), np.float32, -1.0, 1.0)
        >>> spec.keeps_floats, spec == BoundedArraySpec((2,), np.float32, -1.0, 1.0)
        (True, True)
    """

    __slots__ = ()

    keeps_floats = True


def keeping_floats(spec: NestedSpec) -> Any:
    """Returns specs of actions that hand on floats in the width they are given in.

    Gymnasium's vector environments do that: of a float64 the environment gets each
    digit, also if its space is of float32.
    """
    return map_specs(_keeping_floats, spec)


def _keeping_floats(spec: ArraySpec) -> ArraySpec:
    if spec.dtype not in FLOATS:
        return spec
    own = BoundedArraySpec.from_spec(spec)
    kind, finite = "Box", None
    if isinstance(spec, SpecOfKind):
        kind, finite = spec.kind, spec.finite
    return FloatsAsGiven(
        own.shape, own.dtype, own.minimum, own.maximum, own.name, kind, finite
    )


def kind_of_space(space: Any) -> str:
    """Names the space of Gymnasium, or of Gym, that this is or is derived from."""
    for base in type(space).__mro__:
        if base.__module__.partition(".")[0] in _LIBRARIES:
            return base.__name__
    return ""


def finer_kind(space: Any, kind: str) -> tuple[str, Any]:
    """Names the kind of a space of a class where its spec alone would not tell.

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


def kind_of_spec(spec: ArraySpec) -> str:
    """Names the space that a spec becomes: the one it came from, or the usual one."""
    return spec.kind if isinstance(spec, SpecOfKind) else usual_kind(spec)
