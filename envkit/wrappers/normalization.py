"""Wrappers that learn means and variances, and normalise with them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Set
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envkit import nest
from envkit._shared.arguments import is_number
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import (
    WrapperInternals,
    WrapperState,
    as_array,
    checked_flag,
    counted,
    describe,
    flatten_as,
    listed,
    may_lose,
)
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Shape
from envkit.wrappers.nests import fresh_nest
from envkit.wrappers.rows import beside, complete, where_rows

__all__ = [
    "NormalizeObservation",
    "NormalizeReward",
    "NormalizedLeaf",
    "Normalizer",
    "RunningStatistics",
]


class _Moments(NamedTuple):
    """The count, mean and variance of some values, in arrays that never change."""

    number: int
    mean: Array
    # The sum of the squared distances from the mean.
    squares: Array


class RunningStatistics:
    """Tracks the mean and variance of each element over many arrays.

    The result equals that of computing over all values at once, to the last digits of
    float64, whatever the order and size of the batches; no values are kept. (It uses
    Chan, Golub and LeVeque's formula with the current mean as the origin, so large
    values with a small spread keep their digits.)

    The object can be pickled. Wrappers may share it, even across threads.

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
        """Creates empty statistics.

        Args:
            shape: The shape of each array that will be counted.
        """
        if isinstance(shape, str | bytes | bytearray | Mapping | Set):
            raise TypeError(
                f"RunningStatistics takes the shape of an array, such as (4,), not "
                f"{describe(shape)}."
            )
        zeros = np.zeros(ArraySpec(shape, np.float64).shape)
        # Replaced as a whole and never written into, so that a thread that reads while
        # another one counts gets a consistent count, mean and variance.
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
        """The mean of each element, read-only; 0 before anything is counted."""
        return self._moments.mean

    @property
    def variance(self) -> Array:
        """The population variance of each element; 1 before anything is counted."""
        return _variance(self._moments)

    @property
    def frozen(self) -> bool:
        """Whether `update` does nothing."""
        return self._frozen

    def freeze(self) -> None:
        """Makes `update` do nothing, for everyone who shares this object."""
        self._frozen = True

    def unfreeze(self) -> None:
        """Lets `update` count again."""
        self._frozen = False

    def update(self, values: Any) -> None:
        """Counts an array, or a batch of them; does nothing while frozen.

        Args:
            values: Numbers whose last dimensions are `shape`. Any dimensions before
                these are batch dimensions.

        Raises:
            SpecError: The values have another shape, or are not finite. Nothing was
                counted.
        """
        # Hot: called once per step by wrappers that normalise.
        if self._frozen:
            return
        batch = self._as_batch(values)
        if not len(batch):
            return
        with self._counting:
            old = self._moments
            if not old.number:
                # Any origin is correct; one near the values keeps their digits.
                old = old._replace(mean=np.asarray(batch[0], np.float64))
            new = _extended(old, batch)
            # Checking the squares is enough: any value that is not finite reaches them.
            if not np.isfinite(new.squares).all():
                raise self._not_finite(batch)
            self._moments = new

    def merge(self, other: RunningStatistics) -> None:
        """Adds the counts of another object, which stays unchanged.

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
        """Returns the divisor: the standard deviation, or 1 where that is 0.

        An element that never changed has no scale. Divided by a number near 0, its
        first different value would become enormous.

        Args:
            epsilon: Added to the variance, so small variances cause no such jump
                either.
        """
        return _scale(self._moments, epsilon)

    def normalize(
        self, values: Any, epsilon: float = 1e-8, clip: float | None = None
    ) -> Array:
        """Returns distances from the mean in standard deviations, as float32.

        Args:
            values: Numbers whose last dimensions are `shape`.
            epsilon: As in `scale`.
            clip: The largest distance to return; `None` for no limit.
        """
        array = self._checked(values, "normalize")
        moments = self._moments  # another thread may replace them
        distance = np.asarray(np.subtract(array, moments.mean, dtype=np.float64))
        # In place: for many pictures, allocating takes longer than the arithmetic.
        np.divide(distance, _scale(moments, epsilon), out=distance)
        if clip is not None:
            np.clip(distance, -clip, clip, out=distance)
        return distance.astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        """Returns the whole state, as numbers and arrays, for `set_state`."""
        count, mean, squares = self._moments
        return {
            "count": count,
            "mean": mean.copy(),
            "squares": squares.copy(),
            "frozen": self._frozen,
        }

    def set_state(self, state: Any) -> None:
        """Restores what `get_state` returned, for everyone who shares this object."""
        self.check_state(state)
        with self._counting:
            self._moments = _Moments(
                int(state["count"]),
                _read_only(np.array(state["mean"], np.float64)),
                _read_only(np.array(state["squares"], np.float64)),
            )
            self._frozen = bool(state["frozen"])

    def check_state(self, state: Any) -> None:
        """Raises if `set_state` would, and changes nothing."""
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
        """Returns the values with exactly one batch dimension."""
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
            f"RunningStatistics.{call}() was given values of the wrong shape or "
            "dtype.\n\n"
            f"  expected   numbers in an array whose last dimensions are {shape}\n"
            f"  got        {describe(values if array.dtype.hasobject else array)}\n\n"
            "Any number of batch dimensions may come before these."
        )

    def _check_shape(self, call: str, shape: tuple[int, ...]) -> None:
        if shape != self.shape:
            raise ValueError(
                f"RunningStatistics.{call}() was given statistics for shape {shape}, "
                f"but these are for shape {self.shape}."
            )

    def _not_finite(self, batch: Array) -> SpecError:
        bad = int(np.count_nonzero(~np.isfinite(batch)))
        what = (
            f"{bad} of {batch.size} numbers are NaN or infinite"
            if bad
            else "the squares of some numbers are too large for float64"
        )
        return SpecError(
            f"RunningStatistics.update() was given values that would spoil the mean: "
            f"{what}. Nothing was counted."
        )


def _variance(moments: _Moments) -> Array:
    number, mean, squares = moments
    return np.asarray(squares / number) if number else np.ones(mean.shape)


def _scale(moments: _Moments, epsilon: float) -> Array:
    variance = _variance(moments)
    return np.where(variance > 0.0, np.sqrt(variance + epsilon), 1.0)


def _extended(old: _Moments, batch: Array) -> _Moments:
    """Returns the moments after counting another batch."""
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        distances = np.subtract(batch, old.mean, dtype=np.float64)
        # Several times as fast as .sum(axis=0) for few elements in many rows.
        shift = np.einsum("i...->...", distances) / len(batch)
        distances -= shift
        squares = np.einsum("i...,i...->...", distances, distances)
        return _joined(old, len(batch), shift, squares)


def _joined(old: _Moments, number: int, shift: Array, squares: Array) -> _Moments:
    """Combines the moments of two collections.

    The second one is given as its size, the distance of its mean from the first mean,
    and its sum of squares. If all values are equal, the distance is 0 and the result is
    exact.
    """
    total = old.number + number
    # In Python integers, which do not overflow.
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


_LAST = StepType.LAST
_LARGEST = float(np.finfo(np.float32).max)


class NormalizedLeaf(NamedTuple):
    """Describes a leaf to normalise: its index, and its shape with rows."""

    place: int
    shape: tuple[int, ...]
    statistics: RunningStatistics


class _NormalizerInternals(WrapperInternals):
    """Saves the statistics."""

    def save(self, env: Any) -> dict[str, Any]:
        return {
            **super().save(env),
            "frozen": env._frozen,
            "statistics": [leaf.statistics.get_state() for leaf in env._leaves],
        }

    def fits(self, env: Any, saved: Any) -> bool:
        return super().fits(env, saved) and isinstance(saved["frozen"], bool)

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        env._frozen = saved["frozen"]
        for leaf, state in zip(env._leaves, saved["statistics"], strict=True):
            leaf.statistics.set_state(state)  # in place: others may share it


class Normalizer(PyEnvironmentBaseWrapper):
    """Holds the statistics of `NormalizeObservation` and `NormalizeReward`."""

    _envkit = _NormalizerInternals()

    _kept: ClassVar[tuple[str, ...]] = ("_over",)
    # The field of a time step to normalise: "observation" or "reward".
    _part: ClassVar[str]

    def __init__(
        self,
        env: Any,
        *,
        epsilon: float,
        clip: float | None,
        statistics: Any,
        frozen: bool,
        integers: bool | None,
        handle_auto_reset: bool,
    ) -> None:
        super().__init__(env, handle_auto_reset)
        if not is_number(epsilon) or epsilon <= 0.0:
            raise ValueError(f"epsilon must be a positive number, got {epsilon!r}.")
        if clip is not None and not (is_number(clip) and 0.0 < clip <= _LARGEST):
            raise ValueError(
                f"clip must be a positive number, or None for no limit, got {clip!r}."
            )
        self._epsilon, self._clip = float(epsilon), clip
        self._frozen = checked_flag("frozen", frozen)
        self._given: NestedSpec = getattr(self._env, f"{self._part}_spec")()
        self._structure = nest.Structure(self._given)
        if integers is None:
            integers = all(spec.dtype.kind != "f" for spec in self._structure.leaves)
        if statistics is None:
            kinds = "iuf" if checked_flag("integers", integers) else "f"
            self._chosen = [
                RunningStatistics(spec.shape) if spec.dtype.kind in kinds else None
                for spec in self._structure.leaves
            ]
        else:
            self._chosen = self._checked_statistics(statistics)
        self._leaves = [
            NormalizedLeaf(place, (*self._dims, *spec.shape), one)
            for place, (spec, one) in enumerate(
                zip(self._structure.leaves, self._chosen, strict=True)
            )
            if one is not None
        ]
        if not self._leaves:
            raise ValueError(self._nothing_to_do(statistics is None))
        self._spec = self._structure.unflatten(list(self._specs()))
        # Rows whose current time step is a LAST, if repetitions may follow.
        self._pads = self.repeats_last
        self._may_lose = may_lose(self._env)
        self._over = np.zeros(self._dims, bool)

    @property
    def epsilon(self) -> float:
        """The number added to variances, because they may be 0."""
        return self._epsilon

    @property
    def clip(self) -> float | None:
        """The limit of normalised values, in both directions; `None` for no limit."""
        return self._clip

    @property
    def statistics(self) -> Any:
        """The `RunningStatistics`: save, share or inspect them.

        For a nest, this is a nest too, with `None` for each leaf that is not
        normalised.
        """
        return self._structure.unflatten(self._chosen)

    @property
    def adapts(self) -> bool:
        """Whether the output depends on everything seen before."""
        return not self._frozen or super().adapts

    @property
    def frozen(self) -> bool:
        """Whether the wrapper has stopped learning."""
        return self._frozen

    def freeze(self) -> None:
        """Stops learning; other wrappers may keep updating shared statistics."""
        self._frozen = True

    def unfreeze(self) -> None:
        """Resumes learning."""
        self._frozen = False

    def _specs(self) -> Iterator[ArraySpec]:
        for spec, statistics in zip(self._structure.leaves, self._chosen, strict=True):
            if statistics is None:
                yield spec
            elif self._clip is None:
                yield ArraySpec(spec.shape, np.float32, spec.name)
            else:
                yield BoundedArraySpec(
                    spec.shape, np.float32, -self._clip, self._clip, spec.name
                )

    def _telling(self, step_type: Any, rows: Array | None) -> Array | None:
        """Returns the rows whose time step counts; `None` for all.

        A `LAST` after a `LAST` does not count: it pads a finished episode. Nor does one
        that was made up for a lost environment.
        """
        if self._may_lose:
            last = np.asarray(step_type) == _LAST
            lost = last & ~complete(self._env, last)
            if lost.any():
                rows = np.asarray(~lost if rows is None else rows & ~lost)
        if not self._pads:
            return rows
        last = np.asarray(step_type) == _LAST
        padded = self._over & last
        self._over = last if rows is None else np.where(rows, last, self._over)
        if not padded.any():
            return rows
        return np.asarray(~padded if rows is None else rows & ~padded)

    def _learn(self, leaf: NormalizedLeaf, values: Array) -> None:
        try:
            leaf.statistics.update(values)
        except SpecError as error:
            path = nest.join(self._part, self._structure.paths[leaf.place])
            raise SpecError(
                f"{type(self).__name__} cannot learn from the {path} that "
                f"{type(self._env).__name__} returned. {error}"
            ) from error

    def _flat(self, time_step: TimeStep) -> list[Any]:
        """Returns the leaves of the field, and checks the shapes of normalised ones."""
        value = getattr(time_step, self._part)
        leaves = self._structure.flatten(value)
        if any(np.shape(leaves[place]) != shape for place, shape, _ in self._leaves):
            check_fits(
                value,
                self._given,
                subject=f"{type(self._env).__name__} returned a time step that",
                root=self._part,
                outer_dims=self._dims,
            )
        return leaves

    def _checked_statistics(self, given: Any) -> list[RunningStatistics | None]:
        name = type(self).__name__
        leaves = flatten_as(
            self._structure,
            given,
            subject=f"The argument statistics of {name}",
            root="statistics",
        )
        for path, spec, one in zip(
            self._structure.paths, self._structure.leaves, leaves, strict=True
        ):
            place = nest.join("statistics", path)
            if one is None:
                continue
            if not isinstance(one, RunningStatistics):
                raise TypeError(
                    f"{name} takes RunningStatistics, and {place} is {describe(one)}. "
                    "For a nest pass a nest of them, with None for each leaf that "
                    "stays as it is."
                )
            if one.shape != spec.shape or spec.dtype.kind not in "iuf":
                raise ValueError(
                    f"{place} is {one}, but the {self._part} there is {spec!r}. It "
                    f"must be a spec of numbers, and statistics for it must be "
                    f"RunningStatistics({spec.shape})."
                )
        return leaves

    def _nothing_to_do(self, chose: bool) -> str:
        wrapped = type(self._env).__name__
        text = f"{type(self).__name__} finds nothing to normalise in {wrapped}: "
        if not chose:
            return f"{text}statistics has None for every leaf."
        dtypes = listed(dict.fromkeys(str(s.dtype) for s in self._structure.leaves))
        return f"{text}its {self._part} has the dtypes {dtypes}."

    def _set_state(self, state: Any) -> None:
        # Checks before anything changes, in the environment or here.
        if isinstance(state, WrapperState) and state.wrapper == type(self).__qualname__:
            own = state.own if isinstance(state.own, dict) else {}
            given = own.get("statistics", ())
            if len(given) != len(self._leaves):
                raise ValueError(
                    f"{type(self).__name__}.set_state() was given the state of a "
                    f"wrapper that normalises {counted(len(given), 'leaf', 'leaves')}, "
                    f"but this one normalises {len(self._leaves)}."
                )
            for leaf, one in zip(self._leaves, given, strict=True):
                leaf.statistics.check_state(one)
        super()._set_state(state)


_FIRST = StepType.FIRST


class NormalizeObservation(Normalizer):
    """Normalises observations to mean 0 and variance 1, as estimated so far.

    Every observation counts before it is normalised, even that of a `FIRST`; each
    element of an array has its own mean and variance. Padding, such as `FixedLength`'s,
    does not count, nor does a `LAST` made up for a lost environment. A batch learns
    from all rows that moved, and they share one mean and one variance. So wrap a pool
    rather than its environments, or each environment learns for itself in its worker.
    Normalised values are float32. An element that never changes becomes 0. Early
    estimates are poor; `clip` limits the first observations, and outliers later.

    In a nest, every float leaf is normalised. Integer leaves beside floats stay as they
    are, because most are choices and counts; `integers` changes that. Without any
    floats, as with a picture, the integers are normalised. Booleans never are.
    `statistics` can choose for each leaf.

    While the wrapper learns, `adapts` is true: the output depends on everything seen
    before, so a seed alone does not repeat a stream, and rows are not independent. A
    state does repeat it: it holds the statistics, and `set_state` restores them for all
    who share them. For later runs, pickle `statistics`; for evaluation, share and
    freeze them:

    Example:
        >>> from envkit.envs import CartPole
        >>> env = NormalizeObservation(CartPole(batch_size=64, seed=1), clip=10.0)
        >>> _ = env.reset()
        >>> for _ in range(20):
        ...     time_step = env.step(np.ones(64, int))
        >>> env.observation_spec()
        BoundedArraySpec(shape=(4,), dtype=float32, minimum=-10.0, maximum=10.0)
        >>> env.statistics
        RunningStatistics(shape=(4,), count=1344)
        >>> test = NormalizeObservation(
        ...     CartPole(), clip=10.0, statistics=env.statistics, frozen=True
        ... )
        >>> test.reset().observation.dtype, env.statistics.count
        (dtype('float32'), 1344)
    """

    _part = "observation"
    _shown = ("clip", "frozen")

    def __init__(
        self,
        env: Any,
        epsilon: float = 1e-8,
        *,
        clip: float | None = None,
        statistics: Any = None,
        frozen: bool = False,
        integers: bool | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            epsilon: Added to the variance.
            clip: The largest normalised value, in both directions; `None` for no limit.
            statistics: `RunningStatistics` to continue from and to share; `None` starts
                new ones. For a nest of observations, a nest of them with `None` for
                each leaf that is not normalised.
            frozen: Whether to use the statistics as they are, without learning.
            integers: Whether to normalise integers too, unless `statistics` decides;
                `None` does so only if there are no floats.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(
            env,
            epsilon=epsilon,
            clip=clip,
            statistics=statistics,
            frozen=frozen,
            integers=integers,
            handle_auto_reset=handle_auto_reset,
        )

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation, normalised."""
        return fresh_nest(self._spec)

    def _nothing_to_do(self, chose: bool) -> str:
        advice = " To normalise integers pass integers=True." if chose else ""
        return f"{super()._nothing_to_do(chose)}{advice}"

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._flat(time_step)
        telling = self._telling(time_step.step_type, rows)
        for leaf in self._leaves:
            value = leaves[leaf.place]
            if not self._frozen:
                self._learn(leaf, value if telling is None else value[telling])
            leaves[leaf.place] = leaf.statistics.normalize(
                value, self._epsilon, self._clip
            )
        return time_step._replace(observation=self._structure.unflatten(leaves))


class NormalizeReward(Normalizer):
    """Divides rewards by the standard deviation of the return, as estimated so far.

    The return is the sum of an episode's rewards so far; each step multiplies earlier
    rewards by `gamma` and by the discount of the previous time step. Each row of a
    batch has its own return, which starts at 0 in a `FIRST`; all rows count towards one
    standard deviation. The reward of a `FIRST` stays 0 and is not counted. Rewards stay
    as they are until returns differ. They are always float32.

    In a vector or nest of rewards, each element has its own return. Statistics are
    saved, shared and frozen as in `NormalizeObservation`.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = NormalizeReward(CartPole(batch_size=64, seed=1), clip=10.0)
        >>> _ = env.reset()
        >>> for _ in range(20):
        ...     time_step = env.step(np.ones(64, int))
        >>> float(env.statistics.variance.round(1)), time_step.reward[:3].round(2)
        (6.7, array([0.39, 0.39, 0.  ], dtype=float32))
    """

    _part = "reward"
    _kept = ("_over", "_earlier")
    _shown = ("gamma", "clip", "frozen")

    def __init__(
        self,
        env: Any,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        *,
        clip: float | None = None,
        statistics: Any = None,
        frozen: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            gamma: The discount per step.
            epsilon: Added to the variance.
            clip: The largest normalised reward, in both directions; `None` for no
                limit.
            statistics: `RunningStatistics` of returns to continue from and to share;
                `None` starts new ones. For a nest of rewards, a nest of them with
                `None` for each leaf that is not normalised.
            frozen: Whether to use the statistics as they are, without learning.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        if not is_number(gamma) or not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be a number from 0 to 1, got {gamma!r}.")
        super().__init__(
            env,
            epsilon=epsilon,
            clip=clip,
            statistics=statistics,
            frozen=frozen,
            integers=True,
            handle_auto_reset=handle_auto_reset,
        )
        discount = self._env.discount_spec()
        if nest.is_nested(discount) or discount.shape != ():
            raise ValueError(
                f"NormalizeReward cannot wrap {type(self._env).__name__}: its discount "
                f"is {discount!r}, but a return needs one discount for each row."
            )
        self._gamma = float(gamma)
        # The returns so far, discounted to the next step.
        self._earlier = [np.zeros(leaf.shape) for leaf in self._leaves]

    @property
    def gamma(self) -> float:
        """The discount per step."""
        return self._gamma

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of one row's reward, normalised."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        first = np.asarray(time_step.step_type) == _FIRST
        telling = self._telling(time_step.step_type, rows)
        earned = ~first if telling is None else telling & ~first
        worth = self._gamma * np.asarray(time_step.discount, np.float64)
        leaves = self._flat(time_step)
        for number, leaf in enumerate(self._leaves):
            reward, earlier = leaves[leaf.place], self._earlier[number]
            returns = np.asarray(earlier + reward)
            if not self._frozen:
                self._learn(leaf, returns[earned])
            later = where_rows(first, 0.0, returns * beside(worth, returns))
            if rows is not None:
                later = where_rows(rows, later, earlier)
            self._earlier[number] = later
            leaves[leaf.place] = self._scaled(reward, leaf.statistics, first)
        return time_step._replace(reward=self._structure.unflatten(leaves))

    def _scaled(
        self, reward: NestedArray, statistics: RunningStatistics, first: Array
    ) -> Array:
        scaled = np.divide(reward, statistics.scale(self._epsilon), dtype=np.float64)
        if self._clip is not None:
            scaled = np.clip(scaled, -self._clip, self._clip)
        return where_rows(first, 0.0, scaled).astype(np.float32)
