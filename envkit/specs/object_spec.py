"""`ObjectSpec`: values that are no arrays, and whoever knows what they look like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from envkit.specs.array_spec import ArraySpec
from envkit.types import Array, RandomSource, Shape

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ObjectKind", "ObjectSpec"]


class ObjectKind(Protocol):
    """Knows the values of an `ObjectSpec`; it pickles if the spec is to travel."""

    def contains(self, value: Any) -> bool:
        """Says whether a value is one of them; never raises."""

    def sample(self, rng: RandomSource) -> Any:
        """Draws one of them."""


class ObjectSpec(ArraySpec):
    """Describes a value that is no array, such as a graph or a list of any length.

    The value is the only element of an array of dtype object and shape `()`. Between
    processes of one machine it travels pickled, beside the arrays.

    Example:
        >>> class Names:
        ...     def contains(self, value):
        ...         return isinstance(value, str)
        ...     def sample(self, rng):
        ...         return "n" * int(rng.integers(5))
        >>> spec = ObjectSpec(kind=Names())
        >>> spec.check_array(spec.wrap("Ada")), spec.check_array(spec.wrap(7))
        (True, False)
    """

    __slots__ = ("_kind",)

    _kind: ObjectKind | None

    def __init__(
        self,
        shape: Shape = (),
        dtype: npt.DTypeLike = object,
        name: str | None = None,
        *,
        kind: ObjectKind | None = None,
    ) -> None:
        """Makes a spec.

        Args:
            shape: The shape: that of a batch, or `()`.
            dtype: `object`.
            name: What the value is called where people read about it.
            kind: Who knows the values; without it all are right, and none can be drawn.
        """
        super().__init__(shape, dtype, name)
        if not self._dtype.hasobject or self._dtype.fields:
            raise TypeError(f"ObjectSpec is of dtype object, not {self._dtype}.")
        object.__setattr__(self, "_kind", kind)

    @property
    def kind(self) -> ObjectKind | None:
        """Who knows the values, or `None`."""
        return self._kind

    @staticmethod
    def wrap(value: Any) -> Any:
        """Makes the array of shape `()` that has a value as its only element."""
        array = np.empty((), object)
        array[()] = value
        return array

    def contains(self, value: Any) -> bool:
        """Says whether one value, without an array around it, is right."""
        return self._kind is None or bool(self._kind.contains(value))

    def allows_all(self, array: Array) -> bool:
        """Says whether every value of an array is right."""
        return all(map(self.contains, array.flat))

    def check_array(self, array: Any) -> bool:
        """Says whether shape, dtype and every value fit; never raises."""
        return (
            isinstance(array, np.ndarray)
            and super().check_array(array)
            and self.allows_all(array)
        )

    def _describe(self) -> str:
        kind = "" if self._kind is None else f", kind={self._kind!r:.120}"
        return f"{super()._describe()}{kind}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ObjectSpec)
            and super().__eq__(other)
            and bool(self._kind == other._kind)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self._shape, self._name, self._kind)

    @classmethod
    def from_spec(cls, spec: ArraySpec) -> ObjectSpec:
        """Makes a spec of objects of any that has their dtype."""
        kind = spec._kind if isinstance(spec, ObjectSpec) else None
        return cls(spec.shape, spec.dtype, spec.name, kind=kind)

    def replace(
        self,
        shape: Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        name: str | None = None,
    ) -> ObjectSpec:
        """Makes a copy in which what is not `None` is different."""
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._name if name is None else name,
            kind=self._kind,
        )


def _make(cls: Any, shape: Any, name: Any, kind: Any) -> Any:
    return cls(shape, object, name, kind=kind)
