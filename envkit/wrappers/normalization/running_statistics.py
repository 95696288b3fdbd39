"""`RunningStatistics`: mean and variance of all values seen so far."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, Shape

__all__ = ["RunningStatistics"]


class _Moments(NamedTuple):
    """What is known about some values; the arrays are read-only and never change."""

    number: int
    mean: Array
    # The sum of the squared distances from the mean.
    squares: Array


class RunningStatistics:
    """Counts arrays of one shape, and knows the mean and variance of each element.

    The result is that of looking at all values at once, to the last digits of float64,
    whatever the order and the sizes of the batches in which they came, and without
    keeping any of them. (It is Chan, Golub and LeVeque's formula, with the mean so far
    as the origin, so that large values with a small spread keep their digits.)

    The object pickles. Wrappers may share it, also from several threads.

    Example:
        >>> statistics = RunningStatistics((2,))
        >>> statistics.update([[0.0, 5.0], [2.0, 5.0]])
        >>> statistics.update([4.0, 5.0])
        >>> statistics.count, statistics.mean, statistics.variance.round(2)
        (3, array([2., 5.]), array([2.67, 0.  ]))
        >>> statistics.normalize(np.array([6.0, 6.0])).round(2)
        array([2.45, 1.  ], dtype=float32)
    """

    def __init__(self, shape: Shape = ()) -> None:
        """Begins with nothing.

        Args:
            shape: The shape of each array that will be counted.
        """
        if isinstance(shape, str | bytes | bytearray | Mapping | Set):
            raise TypeError(
                f"RunningStatistics takes the shape of an array, such as (4,), not "
                f"{describe(shape)}."
            )
        zeros = np.zeros(ArraySpec(shape, np.float64).shape)
        # Replaced as a whole, never written into: who reads it while another thread
        # counts gets a count, a mean and a variance that belong together.
        self._moments = _Moments(0, _read_only(zeros), _read_only(zeros))
        self._frozen = False
        self._counting = threading.Lock()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each array that is counted."""
        return self._moments.mean.shape

    @property
    def count(self) -> int:
        """How many arrays were counted."""
        return self._moments.number

    @property
    def mean(self) -> Array:
        """The mean of each element, read-only; 0 where nothing was counted."""
        return self._moments.mean

    @property
    def variance(self) -> Array:
        """The variance of each element, divided by the count; 1 of nothing."""
        return _variance(self._moments)

    @property
    def frozen(self) -> bool:
        """Whether `update` leaves everything as it is."""
        return self._frozen

    def freeze(self) -> None:
        """Makes `update` do nothing from now on, for everyone who shares this."""
        self._frozen = True

    def unfreeze(self) -> None:
        """Lets `update` count again."""
        self._frozen = False

    def update(self, values: Any) -> None:
        """Counts an array, or a batch of them; does nothing while frozen.

        Args:
            values: Numbers whose last dimensions are `shape`. Whatever is in front of
                these are dimensions of a batch; there may be none.

        Raises:
            SpecError: The values have another shape, or are not finite. Nothing was
                counted.
        """
        # Hot: called once per step by wrappers that learn what is normal.
        if self._frozen:
            return
        batch = self._as_batch(values)
        if not len(batch):
            return
        with self._counting:
            old = self._moments
            if not old.number:
                # Any origin will do; near the values they keep their digits.
                old = old._replace(mean=np.asarray(batch[0], np.float64))
            new = _extended(old, batch)
            # The squares alone tell: whatever is not finite gets into them.
            if not np.isfinite(new.squares).all():
                raise self._not_finite(batch)
            self._moments = new

    def merge(self, other: RunningStatistics) -> None:
        """Counts all that another object has counted, which stays as it is.

        Example:
            >>> both, other = RunningStatistics(), RunningStatistics()
            >>> both.update([1.0, 2.0])
            >>> other.update([3.0, 6.0])
            >>> both.merge(other)
            >>> both
            RunningStatistics(shape=(), count=4)
            >>> float(both.mean), float(both.variance)
            (3.0, 3.5)
        """
        if not isinstance(other, RunningStatistics):
            raise TypeError(
                "RunningStatistics.merge() takes other RunningStatistics, not "
                f"{describe(other)}."
            )
        if self._frozen:
            raise ValueError(
                "RunningStatistics.merge() was called on frozen statistics, which do "
                "not change. Call unfreeze() first."
            )
        theirs = other._moments
        self._check_shape("merge", theirs.mean.shape)
        if not theirs.number:
            return
        with self._counting:
            ours = self._moments
            if not ours.number:
                self._moments = theirs
                return
            shift = theirs.mean - ours.mean
            self._moments = _joined(ours, theirs.number, shift, theirs.squares)

    def scale(self, epsilon: float = 1e-8) -> Array:
        """Returns what to divide by: the standard deviation, or 1 where that is 0.

        What was the same each time has no scale. Divided by a number near 0, the first
        value that differs would become enormous.

        Args:
            epsilon: Added to the variance, so that small ones do not do the same.
        """
        return _scale(self._moments, epsilon)

    def normalize(
        self, values: Any, epsilon: float = 1e-8, clip: float | None = None
    ) -> Array:
        """Returns how many standard deviations values are from the mean, in float32.

        Args:
            values: Numbers whose last dimensions are `shape`.
            epsilon: As in `scale`.
            clip: The largest distance there is; `None` for no limit.
        """
        array = self._checked(values, "normalize")
        moments = self._moments  # Another thread may replace them.
        distance = np.asarray(np.subtract(array, moments.mean, dtype=np.float64))
        # In place: of many pictures, new memory takes longer than the arithmetic.
        np.divide(distance, _scale(moments, epsilon), out=distance)
        if clip is not None:
            np.clip(distance, -clip, clip, out=distance)
        return distance.astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        """Returns all there is to know, as numbers and arrays, for `set_state`."""
        count, mean, squares = self._moments
        return {
            "count": count,
            "mean": mean.copy(),
            "squares": squares.copy(),
            "frozen": self._frozen,
        }

    def set_state(self, state: Any) -> None:
        """Brings back what `get_state` returned, for everyone who shares this."""
        self.check_state(state)
        with self._counting:
            self._moments = _Moments(
                int(state["count"]),
                _read_only(np.array(state["mean"], np.float64)),
                _read_only(np.array(state["squares"], np.float64)),
            )
            self._frozen = bool(state["frozen"])

    def check_state(self, state: Any) -> None:
        """Raises what `set_state` would raise, and changes nothing."""
        keys = {"count", "mean", "squares", "frozen"}
        if not isinstance(state, dict) or state.keys() != keys:
            raise ValueError(
                f"RunningStatistics.set_state() was given {describe(state)}; it takes "
                "what get_state() returned."
            )
        self._check_shape("set_state", np.shape(state["mean"]))

    def __getstate__(self) -> dict[str, Any]:
        return self.get_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        RunningStatistics.__init__(self, np.shape(state["mean"]))
        self.set_state(state)

    def __repr__(self) -> str:
        frozen = ", frozen" if self._frozen else ""
        return f"RunningStatistics(shape={self.shape}, count={self.count}{frozen})"

    def _as_batch(self, values: Any) -> Array:
        """Returns the values with one dimension of the batch, whatever they had."""
        array = self._checked(values, "update")
        outer = array.ndim - len(self.shape)
        if outer == 1:
            return array
        return array.reshape(math.prod(array.shape[:outer]), *self.shape)

    def _checked(self, values: Any, call: str) -> Array:
        array, shape = as_array(values), self.shape
        outer = array.ndim - len(shape)
        if array.dtype.kind in "biuf" and outer >= 0 and array.shape[outer:] == shape:
            return array
        raise SpecError(
            f"RunningStatistics.{call}() was given values that do not go with it.\n\n"
            f"  expected   numbers in an array whose last dimensions are {shape}\n"
            f"  got        {describe(values if array.dtype.hasobject else array)}\n\n"
            "Dimensions of a batch come first, and there may be any number of them."
        )

    def _check_shape(self, call: str, shape: tuple[int, ...]) -> None:
        if shape != self.shape:
            raise ValueError(
                f"RunningStatistics.{call}() was given statistics of arrays of shape "
                f"{shape}; these are of arrays of shape {self.shape}."
            )

    def _not_finite(self, batch: Array) -> SpecError:
        bad = int(np.count_nonzero(~np.isfinite(batch)))
        what = (
            f"{bad} of {batch.size} numbers are NaN or infinite"
            if bad
            else "the squares of some are too large for float64"
        )
        return SpecError(
            f"RunningStatistics.update() was given values of which {what}. The mean "
            "would be lost for good. Nothing was counted."
        )


def _variance(moments: _Moments) -> Array:
    number, mean, squares = moments
    return np.asarray(squares / number) if number else np.ones(mean.shape)


def _scale(moments: _Moments, epsilon: float) -> Array:
    variance = _variance(moments)
    return np.where(variance > 0.0, np.sqrt(variance + epsilon), 1.0)


def _extended(old: _Moments, batch: Array) -> _Moments:
    """Returns the moments after a batch was counted, too."""
    with np.errstate(over="ignore", invalid="ignore"):  # It is looked at afterwards.
        distances = np.subtract(batch, old.mean, dtype=np.float64)
        # Several times as fast as .sum(axis=0) for few elements in many rows.
        shift = np.einsum("i...->...", distances) / len(batch)
        distances -= shift
        squares = np.einsum("i...,i...->...", distances, distances)
        return _joined(old, len(batch), shift, squares)


def _joined(old: _Moments, number: int, shift: Array, squares: Array) -> _Moments:
    """Returns the moments of two collections together.

    Of the second are given the number, the distance of its mean from that of the
    first, and its squares. Where all values are the same, the distance is 0, and what
    comes out is exact.
    """
    total = old.number + number
    # Of Python's integers, which do not overflow.
    weight = old.number * number / total
    return _Moments(
        total,
        _read_only(old.mean + shift * (number / total)),
        _read_only(old.squares + squares + shift * shift * weight),
    )


def _read_only(number_or_array: Any) -> Array:
    array = np.asarray(number_or_array, np.float64)
    array.setflags(write=False)
    return array
