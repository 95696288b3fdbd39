"""What an array must look like: `ArraySpec` and `BoundedArraySpec`."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from envkit.specs.bounds import equal_bounds, stored_bounds, within
from envkit.types import Array, Shape
from envkit.wording import bound_text

if TYPE_CHECKING:
    import numpy.typing as npt

    # TF-Agents keeps these beside the classes; here each family has its own module,
    # and `__getattr__` below finds them.
    from envkit.specs.batching import (
        add_outer_dims_nest as add_outer_dims_nest,
    )
    from envkit.specs.batching import (
        remove_outer_dims_nest as remove_outer_dims_nest,
    )
    from envkit.specs.sampling import (
        sample_bounded_spec as sample_bounded_spec,
    )
    from envkit.specs.sampling import (
        sample_spec_nest as sample_spec_nest,
    )
    from envkit.specs.validation import (
        assert_arrays_spec_nest as assert_arrays_spec_nest,
    )
    from envkit.specs.validation import (
        check_arrays_nest as check_arrays_nest,
    )

__all__ = [
    "ArraySpec",
    "BoundedArraySpec",
    "add_outer_dims_nest",
    "assert_arrays_spec_nest",
    "check_arrays_nest",
    "is_bounded",
    "is_continuous",
    "is_discrete",
    "remove_outer_dims_nest",
    "sample_bounded_spec",
    "sample_spec_nest",
    "update_spec_shape",
]

SpecT = TypeVar("SpecT", bound="ArraySpec")

_ELSEWHERE = {
    "add_outer_dims_nest": "envkit.specs.batching",
    "remove_outer_dims_nest": "envkit.specs.batching",
    "sample_bounded_spec": "envkit.specs.sampling",
    "sample_spec_nest": "envkit.specs.sampling",
    "assert_arrays_spec_nest": "envkit.specs.validation",
    "check_arrays_nest": "envkit.specs.validation",
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        import importlib

        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ArraySpec:
    """Describes an array: its shape, its dtype and, for people, a name.

    Specs are immutable. Two are equal if shape and dtype are; the name is not
    compared.

    Example:
        >>> spec = ArraySpec((2,), np.float32, name="position")
        >>> spec.check_array(np.zeros(2, np.float32)), spec.check_array([0.0, 0.0])
        (True, False)
        >>> spec == ArraySpec([2], "float32")
        True
    """

    __slots__ = ("_dtype", "_name", "_shape")

    # Whether an action of floats reaches its environment in the width in which it is
    # given, whatever the dtype here. Adapters of libraries that hand actions on as they
    # are have specs that say so.
    keeps_floats: ClassVar[bool] = False

    _dtype: np.dtype[Any]
    _name: str | None
    _shape: tuple[int, ...]

    def __init__(
        self, shape: Shape, dtype: npt.DTypeLike, name: str | None = None
    ) -> None:
        """Makes a spec.

        Args:
            shape: The shape, any iterable of non-negative integers.
            dtype: Whatever `numpy.dtype` understands.
            name: What the array is called where people read about it.
        """
        set_slot = object.__setattr__
        set_slot(self, "_shape", _as_shape(shape))
        set_slot(self, "_dtype", np.dtype(dtype))
        set_slot(self, "_name", name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, always a tuple."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The `numpy.dtype`."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """The name, or `None`."""
        return self._name

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} is immutable; to change {name!r}, make another "
            "spec with replace()."
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable.")

    def __repr__(self) -> str:
        name = f", name={self._name!r}" if self._name is not None else ""
        return f"{type(self).__name__}({self._describe()}{name})"

    def _describe(self) -> str:
        return f"shape={self._shape}, dtype={self._dtype}"

    # Defining equality makes specs unhashable, and they should be: equal ones may
    # differ in their names and in the form of their bounds.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArraySpec):
            return False
        # A bounded spec says more than a plain one, so the two differ: Python asks the
        # subclass first, whichever side it is on.
        return self._shape == other._shape and self._dtype == other._dtype

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._shape, self._dtype, self._name)

    def check_array(self, array: Any) -> bool:
        """Says whether `array` has this spec's shape and dtype; never raises.

        Python and NumPy numbers pass for scalars of their dtype. Lists and strings
        are not arrays.
        """
        if isinstance(array, np.ndarray):
            return bool(self._shape == array.shape and self._dtype == array.dtype)
        if isinstance(array, numbers.Number):
            dtype = _dtype_of_number(array)
            return self._shape == () and dtype is not None and self._dtype == dtype
        return False

    @staticmethod
    def from_array(array: Any, name: str | None = None) -> ArraySpec:
        """Makes the spec that an array or a number fits.

        Example:
            >>> ArraySpec.from_array(np.zeros((2, 3)))
            ArraySpec(shape=(2, 3), dtype=float64)
        """
        if isinstance(array, np.ndarray | np.generic):
            return ArraySpec(array.shape, array.dtype, name)
        if isinstance(array, numbers.Number):
            dtype = _dtype_of_number(array)
            if dtype is not None:
                return ArraySpec((), dtype, name)
        raise ValueError(
            f"ArraySpec.from_array() needs an array or a number, not {array!r:.80} of "
            f"type {type(array).__name__}."
        )

    @classmethod
    def from_spec(cls, spec: ArraySpec) -> ArraySpec:
        """Makes a plain copy of a spec."""
        return cls(spec.shape, spec.dtype, spec.name)

    def replace(
        self: SpecT,
        shape: Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        name: str | None = None,
    ) -> SpecT:
        """Makes a copy in which what is not `None` is different.

        Example:
            >>> ArraySpec((2,), np.float32).replace(shape=(3,))
            ArraySpec(shape=(3,), dtype=float32)
        """
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._name if name is None else name,
        )


class BoundedArraySpec(ArraySpec):
    """Describes an array whose elements lie between two bounds, both included.

    Bounds broadcast to the shape, so a scalar bounds every element. Without a bound
    the dtype's own limit holds; an infinite bound of a float spec becomes the largest
    finite number.

    Example:
        >>> spec = BoundedArraySpec((2,), np.float32, minimum=[-1.0, -2.0], maximum=1.0)
        >>> spec.check_array(np.array([0.0, -2.0], np.float32))
        True
        >>> spec.check_array(np.array([-2.0, 0.0], np.float32))
        False
    """

    __slots__ = ("_maximum", "_minimum")

    _maximum: Array
    _minimum: Array

    def __init__(
        self,
        shape: Shape,
        dtype: npt.DTypeLike,
        minimum: npt.ArrayLike | None = None,
        maximum: npt.ArrayLike | None = None,
        name: str | None = None,
    ) -> None:
        """Makes a bounded spec.

        Args:
            shape: The shape, any iterable of non-negative integers.
            dtype: An integer or floating dtype.
            minimum: The smallest allowed values, or `None` for the dtype's smallest.
            maximum: The largest allowed values, or `None` for the dtype's largest.
            name: What the array is called where people read about it.
        """
        super().__init__(shape, dtype, name)
        low, high = stored_bounds(minimum, maximum, self._shape, self._dtype)
        object.__setattr__(self, "_minimum", low)
        object.__setattr__(self, "_maximum", high)

    @property
    def minimum(self) -> Array:
        """The smallest allowed values, read-only; they broadcast to the shape."""
        return self._minimum

    @property
    def maximum(self) -> Array:
        """The largest allowed values, read-only; they broadcast to the shape."""
        return self._maximum

    def _describe(self) -> str:
        return (
            f"{super()._describe()}, minimum={bound_text(self._minimum)}, "
            f"maximum={bound_text(self._maximum)}"
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundedArraySpec)
            and super().__eq__(other)
            and equal_bounds(self._minimum, other._minimum, self._shape)
            and equal_bounds(self._maximum, other._maximum, self._shape)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self._shape,
            self._dtype,
            self._minimum,
            self._maximum,
            self._name,
        )

    def check_array(self, array: Any) -> bool:
        """Says whether shape, dtype and every element fit; never raises."""
        return super().check_array(array) and within(
            array, self._minimum, self._maximum
        )

    @property
    def num_values(self) -> Array | None:
        """How many values each element can take, or `None` if the spec is not integer.

        Example:
            >>> BoundedArraySpec((2,), np.int64, 0, [1, 4]).num_values
            array([2, 5])
        """
        if not is_discrete(self):
            return None
        low, high = (
            np.broadcast_to(bound, self._shape)
            for bound in (self._minimum, self._maximum)
        )
        info = np.iinfo(self._dtype)
        if int(info.max) - int(info.min) < np.iinfo(np.int64).max:
            return np.asarray(high.astype(np.int64) - low.astype(np.int64) + 1)
        # Ranges of 64-bit integers can have more values than 64 bits can count.
        exact = high.astype(object) - low.astype(object) + 1
        fits = np.all(np.less_equal(exact, np.iinfo(np.int64).max))
        return np.asarray(exact, np.int64 if fits else object)

    @classmethod
    def from_spec(cls, spec: ArraySpec, name: str | None = None) -> BoundedArraySpec:
        """Makes a bounded spec of any spec; a plain one gets its dtype's limits."""
        name = spec.name if name is None else name
        # Of any library's: what has bounds keeps them.
        low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
        return cls(spec.shape, spec.dtype, low, high, name)

    def replace(  # type: ignore[override]  # the order of arguments TF-Agents users know
        self,
        shape: Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        minimum: npt.ArrayLike | None = None,
        maximum: npt.ArrayLike | None = None,
        name: str | None = None,
    ) -> BoundedArraySpec:
        """Makes a copy in which what is not `None` is different."""
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._minimum if minimum is None else minimum,
            self._maximum if maximum is None else maximum,
            self._name if name is None else name,
        )


def is_bounded(spec: Any) -> bool:
    """Says whether a spec has bounds."""
    return isinstance(spec, BoundedArraySpec)


def is_discrete(spec: Any) -> bool:
    """Says whether a spec, or a dtype, is of integers."""
    return bool(np.issubdtype(_dtype_of_spec(spec), np.integer))


def is_continuous(spec: Any) -> bool:
    """Says whether a spec, or a dtype, is of floating numbers."""
    return bool(np.issubdtype(_dtype_of_spec(spec), np.floating))


def update_spec_shape(spec: SpecT, shape: Shape) -> SpecT:
    """Makes a copy of a spec with another shape; bounds must broadcast to it."""
    return spec.replace(shape=shape)


def _dtype_of_spec(spec: Any) -> np.dtype[Any]:
    # A class such as np.int8 has the attribute too, but no value in it.
    asked = spec if isinstance(spec, type) else getattr(spec, "dtype", spec)
    dtype: np.dtype[Any] = np.dtype(asked)
    return dtype


def _dtype_of_number(number: Any) -> np.dtype[Any] | None:
    if type(number) is int:
        # By its value: above the largest int64, and nowhere else, it is a uint64.
        dtype: np.dtype[Any] = np.asarray(number).dtype
    else:
        dtype = np.dtype(type(number))
    # decimal.Decimal and its like are numbers to Python and mere objects to NumPy.
    return None if dtype.hasobject else dtype


def _as_shape(shape: Any) -> tuple[int, ...]:
    import operator

    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise TypeError(
            f"A shape is an iterable of integers such as (84, 84, 3), not {shape!r}."
            + (f" For a vector write ({shape},)." if isinstance(shape, int) else "")
        ) from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"A shape has no negative sizes, and {sizes} has.")
    return sizes
