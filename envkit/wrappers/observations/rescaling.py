"""Ranges of leaves: mapped to others by `Rescaling`, cut into intervals by `Bins`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from envkit.envs.base import checked_size
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array
from envkit.wording import counted
from envkit.wrappers.observations.leaf_changes import place
from envkit.wrappers.observations.leaf_specs import has_finite_bounds
from envkit.wrappers.ranges import checked_range, range_text

__all__ = ["Bins", "Rescaling", "checked_bounds"]

_NAMES = "min_obs", "max_obs"


class Rescaling:
    """Maps the bounds of a spec to others, and what is between them linearly.

    Whatever is within the bounds comes to lie within the new ones, whichever way the
    arithmetic rounds. An element whose bounds are equal becomes the new minimum.

    Attributes:
        spec: What comes out: float32, or float64 of float64.

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
            spec: What the leaf looks like.
            path: Where in the observation it is, for messages.
            low: What its minimum becomes; less than `high`, and finite.
            high: What its maximum becomes.
        """
        is_double = spec.dtype.newbyteorder("=") == np.float64
        dtype = np.dtype(np.float64 if is_double else np.float32)
        self.spec = BoundedArraySpec(
            spec.shape, dtype, *_fitting(spec, path, low, high, dtype), spec.name
        )
        # Float32 holds integers of up to 16 bits exactly, and those of others would
        # lose more digits than the result has anyway.
        exact = np.result_type(spec.dtype, np.float32)
        self._origin, width = _origin_and_width(spec, path, exact)
        self._target = low.astype(exact)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            scale = np.asarray((high.astype(exact) - self._target) / width)
        self._scale = np.where((width > 0) & np.isfinite(scale), scale, 0).astype(exact)
        self._lower_scale(width)

    def _lower_scale(self, width: Array) -> None:
        """Makes the scale smaller by what the largest number would come out too large.

        Each operation keeps the order of numbers, so if the largest comes to lie
        within the bounds, all do.
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
        # Hot: called once per step. An array without dimensions stays one in place.
        rescaled = np.array(leaf, self._scale.dtype)
        rescaled -= self._origin
        rescaled *= self._scale
        rescaled += self._target
        return rescaled.astype(self.spec.dtype, copy=False)


def checked_bounds(
    min_obs: npt.ArrayLike, max_obs: npt.ArrayLike
) -> tuple[Array, Array]:
    """Returns two bounds as arrays of float64, or says what is wrong with them.

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
    """Returns the new bounds in a leaf's dtype, or raises if they do not suit it."""
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
    """Returns the bounds as a minimum and what the maximum is above it."""
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
        "bounds with TransformObservation, leave it out with SelectObservation, or "
        "scale by what is observed, with NormalizeObservation."
    )


class Bins:
    """Intervals of equal length between the bounds of each element of a spec.

    They are made as Gymnasium makes them, in the dtype of the spec, so that equal
    numbers fall into equal intervals.

    Attributes:
        given: How many there are, as it was said.

    Example:
        >>> bins = Bins((2, 3), BoundedArraySpec((2,), np.float32, -1.0, 1.0))
        >>> bins.spec(False)
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=5)
        >>> places = bins.places(np.array([0.5, -0.9], np.float32))
        >>> places, bins.together(places), bins.apart(np.array(3))
        (array([1, 0]), array(3), array([1, 0]))
    """

    def __init__(self, bins: Any, spec: BoundedArraySpec) -> None:
        """Cuts the ranges of the elements of a spec of finite bounds."""
        size = math.prod(spec.shape)
        is_one = not isinstance(bins, Sequence | np.ndarray)
        counts = [bins] * size if is_one else list(bins)
        if len(counts) != size:
            raise ValueError(
                f"bins is {bins!r:.80}; it must be an integer, or have one for each of "
                f"{counted(size, 'element')}."
            )
        self._counts = tuple(checked_size("bins", count) for count in counts)
        self.given = self._counts[0] if is_one and size else self._counts
        self._low, self._high = (
            np.broadcast_to(bound, spec.shape).ravel()
            for bound in (spec.minimum, spec.maximum)
        )
        self._dtype = spec.dtype

    def spec(self, is_multi: bool, name: str | None = None) -> BoundedArraySpec:
        """Returns the spec of a number for each element, or of one for all."""
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

    def _edges(self, element: int) -> Array:
        ends = self._low[element], self._high[element]
        return np.linspace(*ends, self._counts[element] + 1)

    def middles(self) -> Array:
        """Returns the middle of each interval, one row for each element."""
        middles = np.zeros((len(self._counts), max(self._counts, default=0)))
        for element, count in enumerate(self._counts):
            edges = self._edges(element)
            middles[element, :count] = 0.5 * (edges[:-1] + edges[1:])
        return middles.astype(self._dtype)

    def places(self, values: Array) -> Array:
        """Returns in which interval each element of flat values is."""
        clipped = np.clip(values, self._low, self._high - 1e-8)
        places = np.empty(values.shape, np.int64)
        for element in range(len(self._counts)):
            inner = self._edges(element)[1:-1]
            places[..., element] = np.digitize(clipped[..., element], inner)
        return places

    def together(self, places: Array) -> Array:
        """Makes one number of the places of all elements."""
        number = np.zeros(places.shape[:-1], np.int64)
        for element, count in enumerate(self._counts):
            number = number * count + places[..., element]
        return np.asarray(number)

    def apart(self, number: Array) -> Array:
        """Returns the places that one number stands for."""
        places = np.empty((*number.shape, len(self._counts)), np.int64)
        for element in reversed(range(len(self._counts))):
            number, places[..., element] = np.divmod(number, self._counts[element])
        return places
