"""Wrappers that change the leaves of observations: values, ranges, dtypes, shapes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from envkit import nest
from envkit._shared.arguments import known_dtype
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import checked_flag, checked_size, counted, describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Shape
from envkit.wrappers.arguments import checked_range, range_text
from envkit.wrappers.nests import fresh_nest, given_specs

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "Bins",
    "Change",
    "DiscretizeObservation",
    "DtypeObservation",
    "LeafChanges",
    "RescaleObservation",
    "Rescaling",
    "ReshapeObservation",
    "TransformObservation",
    "cast_spec",
    "checked_bounds",
    "has_finite_bounds",
    "known_bounds",
    "place",
    "reshaped_spec",
]


# Converts a leaf, of one row or of all rows.
Change: TypeAlias = Callable[[Any], Array]


class LeafChanges(PyEnvironmentBaseWrapper):
    """Changes each leaf of the observation separately.

    A subclass calls `_prepare` in its constructor.
    """

    def _prepare(
        self, prepare: Callable[[ArraySpec, str], tuple[ArraySpec, Change]]
    ) -> None:
        """Calls `prepare` with each leaf's spec and path.

        It returns the new spec and a function that converts the leaf. Wrappers can be
        pickled if these functions can.
        """
        structure = nest.Structure(self._env.observation_spec())
        prepared = [
            prepare(spec, path)
            for spec, path in zip(structure.leaves, structure.paths, strict=True)
        ]
        self._structure = structure
        self._spec = structure.unflatten([spec for spec, _ in prepared])
        self._changes = [change for _, change in prepared]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of the changed observation."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._structure.flatten(time_step.observation)
        changed = [
            change(leaf) for change, leaf in zip(self._changes, leaves, strict=True)
        ]
        return time_step._replace(observation=self._structure.unflatten(changed))


def place(path: str) -> str:
    """Returns a leaf's position in an observation, as the end of a phrase.

    Example:
        >>> f"the observation{place('[0]')}", f"the observation{place('')}"
        ('the observation at [0]', 'the observation')
    """
    return f" at {path}" if path else ""


def known_bounds(spec: ArraySpec) -> tuple[Array, Array] | None:
    """Returns the bounds of a spec in a form that survives a change of dtype.

    In a spec, the largest number of a float dtype stands for infinity, but only in that
    dtype. Booleans have the bounds 0 and 1.

    Example:
        >>> known_bounds(BoundedArraySpec((), np.float32, minimum=0.0))
        (array(0., dtype=float32), array(inf, dtype=float32))
        >>> known_bounds(ArraySpec((), np.float32)) is None
        True
    """
    if spec.dtype.kind == "b":
        return np.array(0, np.uint8), np.array(1, np.uint8)
    if not isinstance(spec, BoundedArraySpec):
        return None
    low, high = spec.minimum, spec.maximum
    if spec.dtype.kind == "f":
        limits = np.finfo(spec.dtype)
        low = np.where(low <= limits.min, -np.inf, low).astype(spec.dtype)
        high = np.where(high >= limits.max, np.inf, high).astype(spec.dtype)
    return low, high


def has_finite_bounds(spec: ArraySpec) -> bool:
    """True if every element has two bounds, neither of which stands for infinity.

    Example:
        >>> has_finite_bounds(BoundedArraySpec((), np.float32, minimum=0.0))
        False
    """
    bounds = known_bounds(spec)
    return bounds is not None and all(np.isfinite(bound).all() for bound in bounds)


def cast_spec(spec: ArraySpec, dtype: np.dtype[Any]) -> ArraySpec | None:
    """Returns the spec of a cast leaf; `None` if the dtype cannot hold its values.

    Example:
        >>> cast_spec(BoundedArraySpec((2,), np.int64, 0, 200), np.dtype(np.uint8))
        BoundedArraySpec(shape=(2,), dtype=uint8, minimum=0, maximum=200)
        >>> cast_spec(BoundedArraySpec((2,), np.int64, 0, 300), np.dtype(np.uint8))
    """
    bounds = known_bounds(spec)
    if bounds is None:
        if spec.dtype.kind not in "iuf":
            return None
        low, high = _limits(spec.dtype)
    else:
        low, high = bounds
    if dtype.kind == "b":
        # A boolean could only say that a fraction is not 0.
        is_bit = spec.dtype.kind != "f" and bool(np.all(low >= 0) and np.all(high <= 1))
        return ArraySpec(spec.shape, dtype, spec.name) if is_bit else None
    try:
        cast = BoundedArraySpec(spec.shape, dtype, low, high, spec.name)
    except ValueError:
        return None
    return ArraySpec.from_spec(cast) if bounds is None else cast


def _limits(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    if dtype.kind == "f":
        return np.array(-np.inf), np.array(np.inf)
    info = np.iinfo(dtype)
    return np.array(info.min, dtype), np.array(info.max, dtype)


def reshaped_spec(spec: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    """Returns the spec of a leaf reshaped to a shape with as many elements.

    Example:
        >>> spec = BoundedArraySpec((4,), np.int64, 0, [1, 2, 3, 4])
        >>> reshaped_spec(spec, (2, 2)).maximum
        array([[1, 2],
               [3, 4]])
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)
    low, high = (
        bound if bound.ndim == 0 else np.broadcast_to(bound, spec.shape).reshape(shape)
        for bound in (spec.minimum, spec.maximum)
    )
    return BoundedArraySpec(shape, spec.dtype, low, high, spec.name)


class TransformObservation(PyEnvironmentBaseWrapper):
    """Applies a function to every observation.

    The function is called once per step. For a batch it gets the arrays of all rows,
    with a leading dimension of rows. So write it for whole arrays, keep rows apart, and
    count axes from the end; then it works for a single environment too. It gets a copy,
    which it may change and return. It must not remember anything between calls, because
    states do not save it.

    The result must fit `observation_spec` in structure, shape and dtype. Bounds are
    checked once, in the first observation.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = TransformObservation(
        ...     CartPole(batch_size=2, seed=1),
        ...     lambda observation: observation[..., :2],
        ...     observation_spec=ArraySpec((2,), np.float32),
        ... )
        >>> env.reset().observation.shape
        (2, 2)
    """

    def __init__(
        self,
        env: Any,
        function: Callable[[NestedArray], NestedArray],
        observation_spec: NestedSpec | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            function: Takes an observation, of one row or of all rows, and returns
                another.
            observation_spec: The specs of the result, for one row; `None` if structure,
                shapes and dtypes stay the same. Bounds are then unknown.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        if not callable(function):
            raise TypeError(
                "TransformObservation needs a function of observations, not "
                f"{describe(function)}."
            )
        self._function = function
        given = self._env.observation_spec()
        self._given = nest.Structure(given)
        self._keeps_spec = observation_spec is None
        self._structure = nest.Structure(
            self._given.map(ArraySpec.from_spec, given)
            if observation_spec is None
            else given_specs(
                "TransformObservation", "observation_spec", observation_spec
            )
        )
        self._expected = [
            ((*self._dims, *spec.shape), spec.dtype) for spec in self._structure.leaves
        ]
        self._bounds_are_tried = False

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of the function's result."""
        return self._structure.unflatten(self._structure.leaves)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        made = self._function(self._given.map(np.array, time_step.observation))
        leaves = self._flattened(made)
        if not (self._bounds_are_tried and self._are_as_expected(leaves)):
            self._check(made)
        # Arithmetic turns arrays without dimensions into scalars.
        observation = self._structure.unflatten([np.asarray(leaf) for leaf in leaves])
        return time_step._replace(observation=observation)

    def _flattened(self, made: NestedArray) -> list[Any]:
        try:
            return self._structure.flatten(made)
        except SpecError:
            self._check(made)
            raise

    def _are_as_expected(self, leaves: list[Any]) -> bool:
        return all(
            isinstance(leaf, np.ndarray) and (leaf.shape, leaf.dtype) == expected
            for leaf, expected in zip(leaves, self._expected, strict=True)
        )

    def _check(self, made: NestedArray) -> None:
        """Raises if the result does not fit, bounds included; says what would fit."""
        advice = (
            "The function gets the arrays of all rows at once, and returns as many."
            if self._dims
            else "The spec is the observation_spec you passed."
        )
        if self._keeps_spec:
            advice = (
                "The spec is the environment's, because you passed no other. If the "
                "function changes it, declare the result: TransformObservation(env, "
                "function, observation_spec=...)."
            )
        check_fits(
            made,
            self._structure.template,
            subject="The function of TransformObservation returned an observation that",
            root="observation",
            outer_dims=self._dims,
            context=advice,
        )
        self._bounds_are_tried = True


class RescaleObservation(LeafChanges):
    """Rescales every number in the observation linearly to a new range.

    The lower bound of the spec maps to `min_obs`, the upper bound to `max_obs`. Results
    are float32, and float64 leaves stay float64. Every leaf of integers or floats needs
    bounds. An element whose bounds are equal becomes `min_obs`. Leaves of other kinds,
    such as masks, stay as they are.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = RescaleObservation(GridWorld(seed=1), -1.0, 1.0)
        >>> env.observation_spec()
        BoundedArraySpec(shape=(8, 8, 3), dtype=float32, minimum=-1.0, maximum=1.0, name='image')
    """  # noqa: E501  # a spec is written on one line

    _shown = ("min_obs", "max_obs")

    def __init__(
        self,
        env: Any,
        min_obs: npt.ArrayLike,
        max_obs: npt.ArrayLike,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            min_obs: The new lower bound: a number, or an array that broadcasts to the
                shape of every leaf.
            max_obs: The new upper bound, likewise.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._range = checked_bounds(min_obs, max_obs)
        self._prepare(self._prepare_leaf)
        if not any(isinstance(change, Rescaling) for change in self._changes):
            raise ValueError(
                "RescaleObservation has nothing to do: the observation holds no "
                "integers and no floats."
            )

    @property
    def min_obs(self) -> Any:
        """The lower bound of the new range."""
        return _plain(self._range[0])

    @property
    def max_obs(self) -> Any:
        """The upper bound of the new range."""
        return _plain(self._range[1])

    def _prepare_leaf(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        if spec.dtype.kind not in "iuf":
            return spec, np.asarray
        rescaling = Rescaling(spec, path, *self._range)
        return rescaling.spec, rescaling


class DiscretizeObservation(PyEnvironmentBaseWrapper):
    """Maps each element of an observation to one of several equal intervals.

    Each element's range is divided into `bins` intervals. One number encodes the
    intervals of all elements, the last element counting fastest; with `multidiscrete`
    the observation is an array with one number per element.

    Example:
        >>> from envkit.envs import Catch
        >>> env = DiscretizeObservation(Catch(rows=2, columns=2, seed=1), bins=2)
        >>> env.observation_spec()
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=15, name='board')
        >>> DiscretizeObservation(env, 4, multidiscrete=True).observation_spec().shape
        (1,)
    """

    _shown = ("bins", "multidiscrete")

    def __init__(
        self,
        env: Any,
        bins: Any,
        multidiscrete: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap; its observation is one array of numbers with
                finite bounds.
            bins: How many intervals each element has: an integer, or one per element.
            multidiscrete: Whether the observation has one number per element.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        spec = self._env.observation_spec()
        if not (isinstance(spec, BoundedArraySpec) and has_finite_bounds(spec)):
            raise ValueError(
                "DiscretizeObservation cuts the range between two bounds into "
                f"intervals, and the observation of {type(self._env).__name__} is "
                f"{spec!r:.200}: it must be one array of numbers with finite bounds. "
                "SelectObservation shows one part of a dictionary."
            )
        self._bins = Bins(bins, spec)
        self._is_multi = checked_flag("multidiscrete", multidiscrete)
        self._spec = self._bins.spec(self._is_multi, spec.name)
        self._flat = (*self._dims, math.prod(spec.shape))

    @property
    def bins(self) -> Any:
        """How many intervals each element has."""
        return self._bins.given

    @property
    def multidiscrete(self) -> bool:
        """Whether the observation has one number per element."""
        return self._is_multi

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the single number, or of one number per element."""
        return self._spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        places = self._bins.places(np.reshape(time_step.observation, self._flat))
        seen = places if self._is_multi else self._bins.together(places)
        return time_step._replace(observation=seen)


class DtypeObservation(LeafChanges):
    """Casts every leaf of the observation to a dtype.

    Bounds are cast too, and booleans get the bounds 0 and 1. As in NumPy, casting to
    integers cuts fractions off, and casting to shorter floats loses digits. A dtype
    that cannot hold every value of a spec is refused.

    Example:
        >>> from envkit.envs import Catch
        >>> env = DtypeObservation(Catch(seed=1), np.uint8)
        >>> env.observation_spec()
        BoundedArraySpec(shape=(10, 5), dtype=uint8, minimum=0, maximum=1, name='board')
    """

    _shown = ("dtype",)

    def __init__(
        self, env: Any, dtype: npt.DTypeLike, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            dtype: The new dtype of every leaf: a dtype of numbers, or booleans.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._dtype = _checked_dtype(dtype)
        self._prepare(self._prepare_leaf)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that every leaf is cast to."""
        return self._dtype

    def _prepare_leaf(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        cast = cast_spec(spec, self._dtype)
        if cast is None:
            raise ValueError(
                f"DtypeObservation cannot cast the observation{place(path)} to "
                f"{self._dtype}, which cannot hold every value of its spec: {spec!r}. "
                "Choose another dtype, or reduce the range first, for instance with "
                "RescaleObservation."
            )
        return cast, functools.partial(_cast, dtype=self._dtype)


class ReshapeObservation(LeafChanges):
    """Gives every leaf of the observation another shape, with the same elements.

    Bounds are reshaped too. In a batch, each row is reshaped on its own.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = ReshapeObservation(GridWorld(batch_size=2, seed=1), (64, -1))
        >>> env.reset().observation.shape
        (2, 64, 3)
    """

    _shown = ("shape",)

    def __init__(self, env: Any, shape: Shape, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            shape: The new shape of every leaf. One size may be -1: it is worked out
                from the others.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._shape = _checked_shape(shape)
        self._prepare(self._prepare_leaf)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that every leaf gets."""
        return self._shape

    def _prepare_leaf(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        try:
            # Stands in for an array of any size; it has one element in memory.
            shape = np.broadcast_to(0, spec.shape).reshape(self._shape).shape
        except ValueError:
            raise ValueError(
                f"ReshapeObservation cannot give the observation{place(path)} the "
                f"shape {self._shape}: it has the shape {spec.shape}, which is "
                f"{counted(math.prod(spec.shape), 'element')}."
            ) from None
        whole = (*self._dims, *shape)
        return reshaped_spec(spec, shape), functools.partial(_reshaped, shape=whole)


# Module functions rather than lambdas, so that wrappers can be pickled.
def _cast(leaf: Any, dtype: np.dtype[Any]) -> Array:
    return np.asarray(leaf).astype(dtype, copy=False)


def _reshaped(leaf: Any, shape: tuple[int, ...]) -> Array:
    return np.asarray(leaf).reshape(shape)


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    checked = known_dtype("dtype", dtype)
    if checked.kind not in "biuf":
        raise ValueError(
            "dtype must be one of numbers or booleans, such as np.float32, got "
            f"{checked}."
        )
    return checked


def _checked_shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        hint = f" For a vector write ({shape},)." if isinstance(shape, int) else ""
        raise TypeError(
            "shape must be a tuple of integers such as (84, 84, 3), got "
            f"{shape!r:.80}.{hint}"
        ) from None
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1:
        raise ValueError(
            "shape must have sizes of 0 or more; one may be -1, to be worked out from "
            f"the others. Got {sizes}."
        )
    return sizes


def _plain(bound: Array) -> Any:
    return bound.item() if bound.ndim == 0 else bound.copy()


_NAMES = "min_obs", "max_obs"


class Rescaling:
    """Maps the bounds of a spec to new ones, and interpolates linearly between them.

    Values within the old bounds end up within the new ones, however the arithmetic
    rounds. An element whose bounds are equal becomes the new minimum.

    Attributes:
        spec: The spec of the result: float32, or float64 for float64 input.

    Example:
        >>> spec = BoundedArraySpec((2,), np.uint8, 0, 255)
        >>> rescaling = Rescaling(spec, "", np.array(-1.0), np.array(1.0))
        >>> rescaling(np.array([0, 255], np.uint8))
        array([-1.,  1.], dtype=float32)
    """

    __slots__ = ("_origin", "_scale", "_target", "spec")

    def __init__(self, spec: ArraySpec, path: str, low: Array, high: Array) -> None:
        """Prepares for a leaf of integers or floats.

        Args:
            spec: The spec of the leaf.
            path: The path in the observation, for messages.
            low: The new minimum; less than `high`, and finite.
            high: The new maximum.
        """
        is_double = spec.dtype.newbyteorder("=") == np.float64
        dtype = np.dtype(np.float64 if is_double else np.float32)
        self.spec = BoundedArraySpec(
            spec.shape, dtype, *_fitting(spec, path, low, high, dtype), spec.name
        )
        # Float32 holds integers of up to 16 bits exactly. Wider ones would lose more
        # digits than the result has anyway.
        exact = np.result_type(spec.dtype, np.float32)
        self._origin, width = _origin_and_width(spec, path, exact)
        self._target = low.astype(exact)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            scale = np.asarray((high.astype(exact) - self._target) / width)
        self._scale = np.where((width > 0) & np.isfinite(scale), scale, 0).astype(exact)
        self._lower_scale(width)

    def _lower_scale(self, width: Array) -> None:
        """Reduces the scale if the largest number would end up above the maximum.

        Each operation preserves order, so if the largest number ends up within the
        bounds, all do.
        """
        while True:
            with np.errstate(over="ignore"):
                top = (width * self._scale + self._target).astype(self.spec.dtype)
            above = top > self.spec.maximum
            if not above.any():
                return
            lower = np.nextafter(self._scale, self._scale.dtype.type(0))
            self._scale = np.where(above, lower, self._scale)

    def __call__(self, leaf: Any) -> Array:
        """Returns a new array."""
        # Hot: called once per step. In-place arithmetic keeps arrays without
        # dimensions.
        rescaled = np.array(leaf, self._scale.dtype)
        rescaled -= self._origin
        rescaled *= self._scale
        rescaled += self._target
        return rescaled.astype(self.spec.dtype, copy=False)


def checked_bounds(
    min_obs: npt.ArrayLike, max_obs: npt.ArrayLike
) -> tuple[Array, Array]:
    """Returns two bounds as float64 arrays; raises if they are wrong.

    Example:
        >>> checked_bounds(-1, [1, 2])
        (array(-1.), array([1., 2.]))
    """
    leaves = "every leaf of the observation"
    low, high = checked_range(_NAMES, (min_obs, max_obs), leaves)
    return low.astype(np.float64), high.astype(np.float64)


def _fitting(
    spec: ArraySpec, path: str, low: Array, high: Array, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Returns the new bounds in a leaf's dtype; raises if they do not suit it."""
    for name, bound in zip(_NAMES, (low, high), strict=True):
        try:
            suits = np.broadcast_shapes(bound.shape, spec.shape) == spec.shape
        except ValueError:
            suits = False
        if not suits:
            raise ValueError(
                f"{name} has the shape {bound.shape}, which does not broadcast to that "
                f"of the observation{place(path)}, {spec.shape}."
            )
    with np.errstate(over="ignore"):
        first, last = low.astype(dtype), high.astype(dtype)
        if not np.isfinite(last - first).all():
            raise ValueError(
                f"{range_text(_NAMES, low, high)}, which is too far apart for {dtype}, "
                f"the dtype of the observation{place(path)} after rescaling."
            )
    return first, last


def _origin_and_width(
    spec: ArraySpec, path: str, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Returns the bounds as a minimum and a width."""
    if isinstance(spec, BoundedArraySpec):
        origin = spec.minimum.astype(dtype)
        with np.errstate(over="ignore"):
            width = np.asarray(spec.maximum.astype(dtype) - origin)
        if np.isfinite(width).all() and has_finite_bounds(spec):
            return origin, width
    trouble = "infinite bounds" if isinstance(spec, BoundedArraySpec) else "no bounds"
    raise ValueError(
        "RescaleObservation needs to know the range of every number, and the "
        f"observation{place(path)} has {trouble}: its spec is {spec!r}. Give it "
        "bounds with TransformObservation, leave it out with SelectObservation, or use "
        "NormalizeObservation instead."
    )


class Bins:
    """Divides the range of each element of a spec into intervals of equal length.

    The edges are computed as Gymnasium does, in the spec's dtype, so equal numbers fall
    into equal intervals.

    Attributes:
        given: The number of intervals, as the caller gave it.

    Example:
        >>> bins = Bins((2, 3), BoundedArraySpec((2,), np.float32, -1.0, 1.0))
        >>> bins.spec(False)
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=5)
        >>> places = bins.places(np.array([0.5, -0.9], np.float32))
        >>> places, bins.together(places), bins.apart(np.array(3))
        (array([1, 0]), array(3), array([1, 0]))
    """

    def __init__(self, bins: Any, spec: BoundedArraySpec) -> None:
        """Divides the ranges of all elements of a spec with finite bounds."""
        size = math.prod(spec.shape)
        is_one = not isinstance(bins, Sequence | np.ndarray)
        counts = [bins] * size if is_one else list(bins)
        if len(counts) != size:
            raise ValueError(
                "bins must be an integer, or have one for each of "
                f"{counted(size, 'element')}, got {bins!r:.80}."
            )
        self._counts = tuple(checked_size("bins", count) for count in counts)
        self.given = self._counts[0] if is_one and size else self._counts
        self._low, self._high = (
            np.broadcast_to(bound, spec.shape).ravel()
            for bound in (spec.minimum, spec.maximum)
        )
        self._dtype = spec.dtype

    def spec(self, is_multi: bool, name: str | None = None) -> BoundedArraySpec:
        """Returns the spec of one number per element, or of one number for all."""
        if is_multi:
            most = np.array(self._counts, np.int64) - 1
            return BoundedArraySpec((len(most),), np.int64, 0, most, name)
        choices = math.prod(self._counts)
        if choices > np.iinfo(np.int64).max:
            raise ValueError(
                f"bins is {self.given!r:.80}, which is {choices:.1e} choices for "
                f"{counted(len(self._counts), 'element')}: more than there are "
                "integers. Choose fewer, or multidiscrete=True."
            )
        return BoundedArraySpec((), np.int64, 0, choices - 1, name)

    @functools.cached_property
    def _edges(self) -> list[tuple[list[int], Array]]:
        """Groups elements with the same edges: pairs of indices and edges.

        There may be thousands of elements, such as the pixels of a picture, but few
        different ranges.
        """
        elements: dict[tuple[Any, ...], list[int]] = {}
        for element, ends in enumerate(
            zip(self._low, self._high, self._counts, strict=True)
        ):
            elements.setdefault(ends, []).append(element)
        return [
            (indices, np.linspace(low, high, count + 1))
            for (low, high, count), indices in elements.items()
        ]

    def middles(self) -> Array:
        """Returns the middle of each interval, one row for each element."""
        middles = np.zeros((len(self._counts), max(self._counts, default=0)))
        for elements, edges in self._edges:
            middles[elements, : len(edges) - 1] = 0.5 * (edges[:-1] + edges[1:])
        return middles.astype(self._dtype)

    def places(self, values: Array) -> Array:
        """Returns the interval of each element of flat values."""
        clipped = np.clip(values, self._low, self._high - 1e-8)
        places = np.empty(values.shape, np.int64)
        for elements, edges in self._edges:
            places[..., elements] = np.digitize(clipped[..., elements], edges[1:-1])
        return places

    def together(self, places: Array) -> Array:
        """Encodes the intervals of all elements as one number."""
        number = np.zeros(places.shape[:-1], np.int64)
        for element, count in enumerate(self._counts):
            number = number * count + places[..., element]
        return np.asarray(number)

    def apart(self, number: Array) -> Array:
        """Decodes the intervals from one number."""
        places = np.empty((*number.shape, len(self._counts)), np.int64)
        for element in reversed(range(len(self._counts))):
            number, places[..., element] = np.divmod(number, self._counts[element])
        return places
