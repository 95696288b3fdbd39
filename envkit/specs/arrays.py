"""Specs of arrays: `ArraySpec` and `BoundedArraySpec`."""

from __future__ import annotations

import functools
import numbers
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from envkit._internal.missing_names import explains_words
from envkit._internal.text import bound_text
from envkit.types import Array, RandomSource, Shape

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "ArraySpec",
    "BoundedArraySpec",
    "as_array",
    "as_outer_dims",
    "derive_from_tf_agents",
    "is_bounded",
    "is_continuous",
    "is_discrete",
    "update_spec_shape",
    "within",
]

SpecT = TypeVar("SpecT", bound="ArraySpec")


# `derive_from_tf_agents` replaces these two bases by TF-Agents' classes, which Python
# allows because both add the same slots to the same base.


class _Described:
    __slots__ = ("_dtype", "_name", "_shape")

    @property  # type: ignore[misc]  # a spec's class is never assigned
    def __class__(self) -> Any:
        # `isinstance` reads `__class__` before it says no. So even a spec made before
        # TF-Agents was imported counts as one of its specs.
        return derive_from_tf_agents(type(self)) or type(self)


class _Bounded(_Described):
    __slots__ = ("_maximum", "_minimum")


@explains_words
class ArraySpec(_Described):
    """Describes an array: its shape, its dtype and an optional name.

    Specs are immutable. Two specs are equal if shape and dtype are equal; names are not
    compared.

    Example:
        >>> spec = ArraySpec((2,), np.float32, name="position")
        >>> spec.check_array(np.zeros(2, np.float32)), spec.check_array([0.0, 0.0])
        (True, False)
        >>> spec == ArraySpec([2], "float32")
        True
    """

    __slots__ = ()

    _dtype: np.dtype[Any]
    _name: str | None
    _shape: tuple[int, ...]

    def __init__(
        self, shape: Shape, dtype: npt.DTypeLike, name: str | None = None
    ) -> None:
        """Makes a spec.

        Args:
            shape: The shape, any iterable of non-negative integers.
            dtype: Anything `numpy.dtype` accepts.
            name: A name for people to read.
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

    # Defining equality makes specs unhashable, and they should be: equal specs may
    # differ in names and in the form of their bounds.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArraySpec):
            own = _own_spec_of(other)
            return own is not None and self == own
        # A bounded spec never equals a plain one: Python asks the subclass first,
        # whichever side it is on.
        return self._shape == other._shape and self._dtype == other._dtype

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._shape, self._dtype, self._name)

    @property
    def n(self) -> int:
        """The number of choices of a single bounded integer, as of a discrete action.

        Other specs have none; `num_values` counts the values of each element.

        Example:
            >>> BoundedArraySpec((), np.int64, 0, 3).n
            4
        """
        counts = getattr(self, "num_values", None)
        if counts is not None and self._shape == ():
            return int(counts)
        why = "it has no bounds"
        if isinstance(self, BoundedArraySpec):
            why = f"its shape is {self._shape}; num_values counts each element's values"
        if not is_discrete(self):
            why = (
                f"it is of {self._dtype}, and only integers are choices; its shape is "
                f"{self._shape}"
            )
        raise AttributeError(f"{type(self).__name__} has no n: {why}.", obj=self)

    def sample(
        self,
        rng: int | RandomSource | None = None,
        outer_dims: Sequence[int] = (),
        *,
        mask: Any = None,
    ) -> Array:
        """Draws a value that fits, as `sample_spec_nest` does for a nest of specs.

        For a policy that acts at random, see `random_actions` and `RandomPolicy`.

        Args:
            rng: A `numpy.random.Generator`, or a seed, which draws the same value each
                time; `None` for fresh randomness.
            outer_dims: Dimensions before the spec's own, such as `(batch_size,)`.
            mask: The choices of an integer spec that may be drawn.

        Example:
            >>> spec = BoundedArraySpec((), np.int64, 0, 3)
            >>> rng = np.random.default_rng(7)
            >>> spec.sample(rng, (5,))
            array([3, 2, 2, 3, 2])
            >>> spec.sample(rng, mask=[0, 1, 0, 0])
            array(1)
        """
        # It builds on this module, and is loaded with the package.
        sampling = sys.modules["envkit.specs.sampling"]
        return sampling.sample_spec(self, rng, outer_dims, mask)  # type: ignore[no-any-return]

    def __contains__(self, value: Any) -> bool:
        raise TypeError(
            f"`in` is not defined for specs: {type(self).__name__}.check_array(value) "
            "tells whether a value fits, and also compares the dtype."
        )

    def check_array(self, array: Any) -> bool:
        """Returns True if `array` has this spec's shape and dtype; never raises.

        Python and NumPy numbers pass as scalars of their dtype. Lists and strings are
        not arrays.
        """
        if isinstance(array, np.ndarray):
            return bool(self._shape == array.shape and self._dtype == array.dtype)
        if isinstance(array, numbers.Number):
            dtype = _dtype_of_number(array)
            return self._shape == () and dtype is not None and self._dtype == dtype
        return False

    @staticmethod
    def from_array(array: Any, name: str | None = None) -> ArraySpec:
        """Returns the spec of an array or a number.

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
        """Returns a plain copy of a spec."""
        return cls(spec.shape, spec.dtype, spec.name)

    def replace(
        self: SpecT,
        shape: Shape | None = None,
        dtype: npt.DTypeLike | None = None,
        name: str | None = None,
    ) -> SpecT:
        """Returns a copy with the given values; `None` keeps a value.

        Example:
            >>> ArraySpec((2,), np.float32).replace(shape=(3,))
            ArraySpec(shape=(3,), dtype=float32)
        """
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._name if name is None else name,
        )


class BoundedArraySpec(ArraySpec, _Bounded):
    """Describes an array whose elements lie between two bounds, inclusive.

    Bounds broadcast to the shape, so a scalar bounds every element. A missing bound is
    the dtype's limit; an infinite bound of a float spec becomes the largest finite
    number.

    Example:
        >>> spec = BoundedArraySpec((2,), np.float32, minimum=[-1.0, -2.0], maximum=1.0)
        >>> spec.check_array(np.array([0.0, -2.0], np.float32))
        True
        >>> spec.check_array(np.array([-2.0, 0.0], np.float32))
        False
    """

    __slots__ = ()

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
            name: A name for people to read.
        """
        super().__init__(shape, dtype, name)
        low, high = _stored_bounds(minimum, maximum, self._shape, self._dtype)
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
        if not isinstance(other, BoundedArraySpec):
            own = _own_spec_of(other)
            return isinstance(own, BoundedArraySpec) and self == own
        return (
            super().__eq__(other)
            and _equal_bounds(self._minimum, other._minimum, self._shape)
            and _equal_bounds(self._maximum, other._maximum, self._shape)
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
        """Returns True if shape, dtype and every element fit; never raises."""
        return super().check_array(array) and within(
            array, self._minimum, self._maximum
        )

    @property
    def num_values(self) -> Array | None:
        """Returns how many values each element can take; `None` if not integer.

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
        # A 64-bit integer can have more values than 64 bits can count.
        exact = high.astype(object) - low.astype(object) + 1
        fits = np.all(np.less_equal(exact, np.iinfo(np.int64).max))
        return np.asarray(exact, np.int64 if fits else object)

    @classmethod
    def from_spec(cls, spec: ArraySpec, name: str | None = None) -> BoundedArraySpec:
        """Returns a bounded spec for any spec; a plain one gets its dtype's limits."""
        name = spec.name if name is None else name
        # Specs of any library: bounds are kept.
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
        """Returns a copy with the given values; `None` keeps a value."""
        return type(self)(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._minimum if minimum is None else minimum,
            self._maximum if maximum is None else maximum,
            self._name if name is None else name,
        )


_TF_AGENTS = "tf_agents.specs.array_spec"


def derive_from_tf_agents(kind: type) -> Any:
    """Makes envkit's specs subclasses of TF-Agents' specs, if those are imported.

    Replay buffers, policies and functions of TF-Agents accept only specs of their own
    classes. With those as bases, every envkit spec is one, even those made earlier, and
    none has to be converted. TF-Agents is not imported here, and no method changes,
    because envkit's classes define all of them.

    Args:
        kind: A class of specs.

    Returns:
        The class of TF-Agents that became a base of `kind` just now, or `None`.
    """
    theirs: Any = sys.modules.get(_TF_AGENTS)
    # During its import, TF-Agents has only some of them.
    plain = getattr(theirs, "ArraySpec", None)
    bounded = getattr(theirs, "BoundedArraySpec", None)
    if plain is None or bounded is None or issubclass(ArraySpec, plain):
        return None
    kinds: list[Any] = [_Bounded, ArraySpec, BoundedArraySpec]
    before = [one.__bases__ for one in kinds]
    after = [(plain,), (plain,), (ArraySpec, bounded)]
    try:
        for one, bases in zip(kinds, after, strict=True):
            one.__bases__ = bases
    except TypeError:  # another version may have other slots
        for one, bases in zip(kinds, before, strict=True):
            one.__bases__ = bases
        return None
    # The specs may belong to a time step. If that module is not loaded, there is none.
    time_step: Any = sys.modules.get("envkit.time_step")
    if hasattr(time_step, "derive_from_tf_agents"):
        time_step.derive_from_tf_agents()
    return bounded if issubclass(kind, BoundedArraySpec) else plain


def _own_spec_of(spec: Any) -> ArraySpec | None:
    """Returns envkit's spec for a TF-Agents spec; `None` for anything else."""
    theirs = sys.modules.get(_TF_AGENTS)
    plain = getattr(theirs, "ArraySpec", None)
    if plain is None or not isinstance(spec, plain):
        return None
    if hasattr(spec, "minimum"):
        return BoundedArraySpec.from_spec(spec)
    return ArraySpec.from_spec(spec)


def is_bounded(spec: Any) -> bool:
    """Returns True if a spec has bounds."""
    return isinstance(spec, BoundedArraySpec)


def is_discrete(spec: Any) -> bool:
    """Returns True if a spec or a dtype is of integers."""
    return bool(np.issubdtype(_dtype_of_spec(spec), np.integer))


def is_continuous(spec: Any) -> bool:
    """Returns True if a spec or a dtype is of floats."""
    return bool(np.issubdtype(_dtype_of_spec(spec), np.floating))


def update_spec_shape(spec: SpecT, shape: Shape) -> SpecT:
    """Returns a copy of a spec with another shape; bounds must broadcast to it."""
    return spec.replace(shape=shape)


def _dtype_of_spec(spec: Any) -> np.dtype[Any]:
    # A class such as np.int8 has the attribute too, but it holds no value.
    asked = spec if isinstance(spec, type) else getattr(spec, "dtype", spec)
    dtype: np.dtype[Any] = np.dtype(asked)
    return dtype


def _dtype_of_number(number: Any) -> np.dtype[Any] | None:
    if type(number) is int:
        # Chosen by value: only above the largest int64 it is a uint64.
        dtype: np.dtype[Any] = np.asarray(number).dtype
    else:
        dtype = np.dtype(type(number))
    # decimal.Decimal and the like are numbers to Python and objects to NumPy.
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


def _stored_bounds(
    minimum: npt.ArrayLike | None,
    maximum: npt.ArrayLike | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> tuple[Array, Array]:
    """Checks two bounds and returns them as a spec stores them.

    A bound of `None` is the dtype's limit. Bounds keep the shape in which they were
    given, which broadcasts to the spec's shape.
    """
    lowest, highest = _limits(dtype)
    given_low = _exactly("minimum", lowest if minimum is None else minimum, dtype)
    given_high = _exactly("maximum", highest if maximum is None else maximum, dtype)
    low = _stored("minimum", given_low, shape, dtype)
    high = _stored("maximum", given_high, shape, dtype)
    with np.errstate(invalid="ignore"):  # NaN is neither above nor below
        # Compares the originals too: integer bounds lose their fractions.
        above = np.asarray((low > high) | (given_low > given_high), bool)
    if above.any():
        raise ValueError(
            "BoundedArraySpec min has values greater than max: "
            f"minimum {_first(given_low, above)!s} is above maximum "
            f"{_first(given_high, above)!s}."
        )
    return low, high


@functools.cache
def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    info: Any
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
    elif np.issubdtype(dtype, np.floating):
        info = np.finfo(dtype)
    else:
        raise TypeError(
            f"BoundedArraySpec needs an integer or floating dtype, not {dtype}: only "
            "numbers have bounds. Use ArraySpec for it."
        )
    return info.min, info.max


def _stored(
    which: str, given: Array, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Checks one bound and stores it as a read-only array of the spec's dtype."""
    try:
        broadcast = np.broadcast_shapes(given.shape, shape)
    except ValueError:
        broadcast = None
    # broadcast_to alone would accept a bound larger than the array.
    if broadcast != shape:
        raise ValueError(
            f"{which} is not compatible with shape {shape}: its own shape is "
            f"{given.shape}, which does not broadcast to it."
        )
    return _within_dtype(which, given, dtype)


def _exactly(which: str, bound: npt.ArrayLike, dtype: np.dtype[Any]) -> Array:
    """Converts a bound to an array without losing digits."""
    given = as_array(bound)
    if dtype.kind in "iu" and given.dtype.kind == "f" and given is not bound:
        # [2**64 - 1, 7] has no common integer dtype, so NumPy makes it float64 and
        # loses the last digits. Python integers keep them.
        given = np.asarray(bound, dtype=object)
    numbers_only = given.dtype.kind in "biuf" or (
        given.dtype.kind == "O"
        and all(isinstance(number, numbers.Real) for number in given.flat)
    )
    if not numbers_only:
        raise TypeError(f"{which} must be numbers, not {bound!r:.80}.")
    return given


def _within_dtype(which: str, given: Array, dtype: np.dtype[Any]) -> Array:
    lowest, highest = _limits(dtype)
    stored, outside = (
        _as_floats(given, dtype) if dtype.kind == "f" else _as_integers(given, dtype)
    )
    if outside.any():
        raise ValueError(
            f"{which} is not within the range of {dtype}: "
            f"{_first(given, outside)!s} is not between {lowest!s} and {highest!s}."
        )
    stored.setflags(write=False)
    return stored


def _as_floats(given: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    lowest, highest = _limits(dtype)
    if given.dtype.kind == "O":
        overflowing = np.array([_overflows(number) for number in given.flat], bool)
        if overflowing.any():
            return given, overflowing.reshape(given.shape)
    with np.errstate(over="ignore"):
        stored = given.astype(dtype)
        wide = given.astype(np.promote_types(dtype, np.float64))
    # A bound that became infinite only now was too large. One that was infinite before
    # stands for the largest finite number, so that it can be reached.
    outside = np.isinf(stored) & ~np.isinf(wide)
    stored = np.where(np.isposinf(wide), highest, stored)
    stored = np.where(np.isneginf(wide), lowest, stored)
    return stored.astype(dtype), np.asarray(outside)


def _overflows(number: Any) -> bool:
    try:
        float(number)
    except OverflowError:
        return True
    return False


def _as_integers(given: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    if given.dtype == dtype:
        return np.array(given), np.zeros((), bool)
    lowest, highest = _limits(dtype)
    # Python compares its integers exactly with all numbers except NumPy's.
    exact = np.array([_plain(number) for number in given.astype(object).flat], object)
    exact = exact.reshape(given.shape)
    with np.errstate(invalid="ignore"):  # NaN is never within bounds
        inside = np.greater_equal(exact, lowest) & np.less_equal(exact, highest)
    outside = ~np.asarray(inside, bool)
    return np.where(outside, 0, exact).astype(dtype), outside


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def _first(values: Array, where: Array) -> Any:
    values, where = np.broadcast_arrays(values, where)
    return values[where].flat[0]


def _equal_bounds(first: Array, second: Array, shape: tuple[int, ...]) -> bool:
    """Returns True if two bounds are equal after broadcasting."""
    if first is second:
        return True
    return bool(
        np.array_equal(
            np.broadcast_to(first, shape),
            np.broadcast_to(second, shape),
            equal_nan=first.dtype.kind == "f",
        )
    )


def within(values: Any, minimum: Array, maximum: Array) -> bool:
    """Returns True if every value lies between two bounds, inclusive.

    The values may have dimensions before their spec's own. NaN is never within.
    """
    # Half the time of np.all, for small arrays.
    return bool((values >= minimum).all() and (values <= maximum).all())


def as_array(value: Any) -> Array:
    """Works like `numpy.asarray`, but does not raise for ragged lists.

    Those become an object array without dimensions, so that the check of dtype or shape
    refuses them with its own message.

    Example:
        >>> as_array([[1], [2]]).shape, as_array([[1], [2, 3]]).dtype
        ((2, 1), dtype('O'))
    """
    try:
        return np.asarray(value)
    except ValueError:
        return np.array(None)


def as_outer_dims(outer_dims: Any) -> tuple[int, ...]:
    """Returns dimensions as a tuple; refuses a bare number, probably a mistake.

    Example:
        >>> as_outer_dims([2, 3])
        (2, 3)
    """
    try:
        dims = tuple(outer_dims)
    except TypeError:
        hint = (
            f": for one dimension write ({outer_dims},)."
            if isinstance(outer_dims, numbers.Integral)
            else "."
        )
        raise TypeError(
            f"outer_dims is a sequence of sizes, not {outer_dims!s:.80}{hint}"
        ) from None
    for size in dims:
        if size is None:
            raise TypeError(
                "outer_dims holds None. The batch_size of an environment that is not "
                "batched is None: pass () for it."
            )
        if not isinstance(size, numbers.Integral) or size < 0:
            raise ValueError(
                f"outer_dims holds {size!r:.80}; a size is an integer of at least 0."
            )
    return dims
