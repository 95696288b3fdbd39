"""Wrappers that change actions and keep their structure, and their base class."""

from __future__ import annotations

import abc
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import (
    ACCEPTED_KINDS,
    as_array,
    describe,
    flatten_as,
    foreign,
    within,
)
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_continuous, is_discrete
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.arguments import checked_range, nearest_within, range_text
from envkit.wrappers.nests import fresh_nest
from envkit.wrappers.observations import has_finite_bounds
from envkit.wrappers.rows import beside

__all__ = [
    "ActionClipWrapper",
    "ActionOffsetWrapper",
    "ActionScale",
    "ActionWrapper",
    "GivenActions",
    "Ignored",
    "RescaleAction",
    "TransformAction",
    "checked_ends",
]


# Returns the rows whose action is not used. Called only if an action does not fit.
Ignored: TypeAlias = Callable[[], Array]


class GivenActions:
    """Checks actions against a spec, for one environment or all rows of a batch.

    Lists, numbers and arrays of another dtype are accepted if nothing is lost. Integers
    must be within their bounds. Floats may exceed theirs: many policies do that on
    purpose, and environments clip.

    Attributes:
        structure: The structure of one row's action, whose leaves are specs.

    Example:
        >>> spec = {"gear": BoundedArraySpec((), np.int64, 1, 3)}
        >>> actions = GivenActions("Car.step() was given an action", spec, (2,))
        >>> actions.leaves({"gear": [3, 1]}, ignored=lambda: np.zeros(2, bool))
        [array([3, 1])]
        >>> actions.leaves({"gear": [3, 0]}, ignored=lambda: np.array([False, True]))
        [array([3, 1])]
    """

    def __init__(
        self,
        subject: str,
        spec: NestedSpec,
        dims: tuple[int, ...],
        *,
        bounds: bool = True,
    ) -> None:
        """Prepares to check actions.

        Args:
            subject: The beginning of the error message about a wrong action.
            spec: The specs of one row's action.
            dims: The leading dimensions of every array: none, or the number of rows.
            bounds: Whether integers must be within their bounds.
        """
        self._places = [
            _place(path, leaf, dims, bounds)
            for path, leaf in nest.flatten_with_paths(spec)
        ]
        # The caller may change the nest that was given, so keep another one.
        self.structure = nest.Structure(fresh_nest(spec))
        self._subject = subject
        self._dims = dims
        self._unmoved = (
            "None of the rows has moved." if dims else "The environment has not moved."
        )

    @property
    def spec(self) -> NestedSpec:
        """The specs of one row's action, in their own nest."""
        return self.structure.unflatten(self.structure.leaves)

    def leaves(self, action: NestedArray, ignored: Ignored) -> list[Array]:
        """Returns an array of exactly the spec's shape and dtype for each leaf.

        The arrays may be the caller's own. Values out of bounds in ignored rows are
        replaced by values within bounds.
        """
        columns = self.columns(action)
        return [
            self.settled(index, column, ignored) for index, column in enumerate(columns)
        ]

    def columns(self, action: NestedArray) -> list[Array]:
        """Returns an array of the right shape and kind of number for each leaf."""
        # Hot: called once per step.
        leaves = flatten_as(
            self.structure, action, subject=f"{self._subject} that", root="action"
        )
        return [
            leaf
            if type(leaf) is np.ndarray
            and leaf.dtype == place.spec.dtype
            and leaf.shape == place.shape
            else self._converted(leaf, place)
            for leaf, place in zip(leaves, self._places, strict=True)
        ]

    def settled(self, index: int, column: Array, ignored: Ignored) -> Array:
        """Converts one leaf of the right shape to its dtype, and checks its bounds.

        Floats become integers by losing their fractions.
        """
        # Hot: called once per step and leaf.
        place = self._places[index]
        dtype = place.spec.dtype
        if dtype.kind in "iu":
            return self._settled_integers(column, place, ignored)
        # Nothing is known of objects, not even whether they form an array.
        if dtype.hasobject or column.dtype == dtype:
            return column
        with np.errstate(over="ignore"):
            converted = column.astype(dtype)
        if dtype.kind not in "fc":
            return converted
        # Floats may lose digits, but a finite number stays finite.
        lost = np.isinf(converted) & ~np.isinf(column)
        if not lost.any():
            return converted
        self._check_ignored(lost, column, place, ignored)
        return np.where(lost, dtype.type(0), converted)

    def _settled_integers(
        self, column: Array, place: _Place, ignored: Ignored
    ) -> Array:
        dtype = place.spec.dtype
        whole, low, high = column, place.low, place.high
        if column.dtype.kind == "f":
            low, high = place.float_low, place.float_high
            whole = np.asarray(np.trunc(column.astype(low.dtype)))
        elif column.dtype == dtype and not place.has_bounds:
            return column
        # Hot: comparing arrays is most of the cost of a single row's step.
        is_one = place.limits is not None and column.size == 1
        if is_one and place.limits[0] <= whole.item() <= place.limits[1]:  # type: ignore[index]  # there are
            return whole.astype(dtype, copy=False)
        if within(whole, low, high):
            return whole.astype(dtype, copy=False)
        outside = ~((whole >= low) & (whole <= high))  # also where there is NaN
        self._check_ignored(outside, column, place, ignored)
        with np.errstate(invalid="ignore"):
            return np.where(outside, place.low, whole.astype(dtype))

    def _converted(self, leaf: Any, place: _Place) -> Array:
        """Makes an array of a leaf, and keeps its dtype."""
        dtype = place.spec.dtype
        if dtype.hasobject:
            return leaf  # type: ignore[no-any-return]  # it may be anything
        column = as_array(leaf)
        kinds = ACCEPTED_KINDS.get(dtype.kind, "")
        is_of_kind = (
            column.dtype.kind in kinds
            if kinds
            else np.can_cast(column.dtype, dtype, "safe")
        )
        if not is_of_kind or column.shape != place.shape:
            self._refuse(leaf, column, place, is_of_kind)
        return column

    def _refuse(
        self, leaf: Any, column: Array, place: _Place, is_of_kind: bool
    ) -> None:
        """Raises the error for a leaf of the wrong shape or kind."""
        spec = place.spec
        subject = f"{self._subject} that"
        value: Any = column
        if column.dtype.hasobject or isinstance(leaf, numbers.Number | np.generic):
            value = leaf  # the message can describe it
        elif is_of_kind:
            # Any dtype of this kind would do, so the message does not blame it.
            with np.errstate(over="ignore"):
                value = column.astype(spec.dtype)
        if column.shape != place.shape and not column.dtype.hasobject:
            subject = f"{self._subject} of incorrect shape that"
        check_fits(
            value,
            spec,
            subject=subject,
            root="action",
            path=place.path,
            outer_dims=self._dims,
            context=self._unmoved,
        )

    def _check_ignored(
        self, wrong: Array, column: Array, place: _Place, ignored: Ignored
    ) -> None:
        """Raises if a wrong value is in a row whose action is used."""
        wrong = wrong & ~beside(ignored(), wrong)
        if not wrong.any():
            return
        first = tuple(np.argwhere(wrong)[0].tolist())
        value = column[first]
        row = f" of row {first[0]}" if self._dims else ""
        within_row = first[len(self._dims) :]
        at = f" at index {within_row}" if within_row else ""
        count = int(np.count_nonzero(wrong))
        others = f", and {count - 1} more of {wrong.size} do not fit"
        raise SpecError.does_not_fit(
            f"{self._subject} that",
            path=nest.join("action", place.path),
            root="action",
            expected=repr(place.spec.replace(shape=place.shape)),
            got=describe(column),
            reason=f"The value{row}{at} is {value!s}, {_fault(value, first, place)}"
            f"{others if count > 1 else ''}.",
            note=self._unmoved,
        )


class _Place(NamedTuple):
    """Describes a leaf of the action: its spec, and integer bounds in several forms.

    Attributes:
        path: The path in the nest.
        spec: The spec of one row.
        shape: The shape of all rows.
        has_bounds: Whether the leaf has integers whose bounds are checked.
        low: The smallest allowed values.
        high: The largest allowed values.
        limits: Both as Python numbers, if one pair holds for all elements.
        float_low: The smallest allowed values as floats.
        float_high: The largest allowed values as floats.
    """

    path: str
    spec: ArraySpec
    shape: tuple[int, ...]
    has_bounds: bool = False
    low: Any = None
    high: Any = None
    limits: tuple[Any, Any] | None = None
    float_low: Any = None
    float_high: Any = None


def _place(path: str, spec: Any, dims: tuple[int, ...], bounds: bool) -> _Place:
    if not isinstance(spec, ArraySpec):
        at = f" at {path}" if path else ""
        raise TypeError(f"The action spec{at} is {describe(spec)}, not an ArraySpec.")
    place = _Place(path, spec, (*dims, *spec.shape))
    if spec.dtype.kind not in "iu":
        return place
    bounded = BoundedArraySpec((), spec.dtype)
    if bounds and isinstance(spec, BoundedArraySpec):
        bounded = spec
    low, high = bounded.minimum, bounded.maximum
    is_one = not low.ndim and not high.ndim
    return place._replace(
        has_bounds=bounded is spec,
        low=low,
        high=high,
        limits=(low.item(), high.item()) if is_one else None,
        float_low=nearest_within(low, np.dtype(np.float64), math.inf),
        float_high=nearest_within(high, np.dtype(np.float64), -math.inf),
    )


def _fault(value: Any, index: tuple[int, ...], place: _Place) -> str:
    """Returns why a number does not fit, as the end of a message."""
    if place.low is None:
        return f"too large for {place.spec.dtype}"
    if np.isnan(value):
        return "which is not an integer"
    low = np.broadcast_to(place.low, place.shape)[index]
    high = np.broadcast_to(place.high, place.shape)[index]
    if place.has_bounds:
        return (
            f"above the maximum {high}" if value > high else f"below the minimum {low}"
        )
    return f"too {'large' if value > high else 'small'} for {place.spec.dtype}"


# With more actions than that, the bounds are just the dtype's limits.
MOST_CHOICES = 2**31 - 1

_LAST = int(StepType.LAST)


class ActionWrapper(PyEnvironmentBaseWrapper):
    """Takes actions of its own spec, and translates them for the environment.

    A subclass sets `_given` in its constructor and overrides `_translate`. An action
    that does not fit is refused before the environment steps, except in rows that begin
    an episode or are held: they do not use their action.
    """

    _given: GivenActions
    # A mask of the rows that use their action in the current step; `None` for all.
    _stepping: Array | None = None

    def action_spec(self) -> NestedSpec:
        """Returns the specs of one row's action."""
        return self._given.spec

    @abc.abstractmethod
    def _translate(self, action: NestedArray) -> NestedArray:
        """Returns the environment's action for an action, or refuses it."""

    def _takes(self, spec: NestedSpec) -> GivenActions:
        """Returns the check for actions of a spec; for constructors."""
        subject = f"{type(self).__name__}.step() was given an action"
        return GivenActions(subject, spec, self._dims)

    def _act(self, action: NestedArray) -> NestedArray:
        # Hot: called once per step.
        try:
            return self._translate(action)
        except SpecError:
            # A batch's action has to fit, because other rows use it. A single
            # environment that begins an episode ignores its action.
            if self._dims or not self._ignored():
                raise
            return action

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        self._stepping = stepping
        try:
            return super()._step_rows(action, stepping, beginning)
        finally:
            self._stepping = None

    def _ignored(self) -> Array:
        """Returns the rows whose action is not used."""
        ended = np.asarray(self.current_time_step().step_type) == _LAST
        if self.continues_after_last:
            ended = np.zeros_like(ended)
        if self._stepping is not None:
            ended = ended | ~self._stepping
        return np.asarray(ended)

    def _spec_text(self, spec: Any, path: str = "") -> str:
        """Returns the spec of the environment's action, as part of a sentence."""
        at = f" at {path}" if path else ""
        shown = foreign(spec) or spec
        return f"the action spec of {type(self._env).__name__}{at} is {shown}"


class TransformAction(ActionWrapper):
    """Applies a function to actions before the environment gets them.

    In a batch, the function is called once per step with the actions of all rows, in
    arrays with a leading dimension of rows. It may change its argument.

    Example:
        >>> from envkit.envs import Catch
        >>> env = TransformAction(Catch(seed=1), lambda action: 2 - action)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2)
        >>> env.reset().observation[-1]
        array([0., 0., 1., 0., 0.], dtype=float32)
        >>> env.step(0).observation[-1]
        array([0., 0., 0., 1., 0.], dtype=float32)
    """

    def __init__(
        self,
        env: Any,
        function: Callable[[NestedArray], NestedArray],
        action_spec: NestedSpec | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            function: Takes an action of the new spec, and returns one of the
                environment's.
            action_spec: The specs of the new actions; `None` keeps the environment's.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        if not callable(function):
            raise TypeError(
                f"TransformAction needs a function of the action, not "
                f"{describe(function)}."
            )
        self._function = function
        spec = self._env.action_spec()
        self._given = self._takes(spec if action_spec is None else action_spec)
        subject = "The function of TransformAction returned an action"
        # The environment knows whether bounds matter: it may clip actions.
        self._returned = GivenActions(subject, spec, self._dims, bounds=False)

    def _translate(self, action: NestedArray) -> NestedArray:
        leaves = self._given.leaves(action, self._ignored)
        own = self._given.structure.unflatten([leaf.copy() for leaf in leaves])
        returned = self._returned.leaves(self._function(own), self._ignored)
        return self._returned.structure.unflatten(returned)


class ActionClipWrapper(ActionWrapper):
    """Clips actions to the bounds of the environment's spec.

    Leaves without bounds are passed on unchanged. The spec stays the same.

    Example:
        >>> from envkit.envs import Catch
        >>> env = ActionClipWrapper(Catch(batch_size=2, seed=1))
        >>> env.reset().observation[:, -1].argmax(axis=1)
        array([2, 2])
        >>> env.step([-5, 7]).observation[:, -1].argmax(axis=1)
        array([1, 3])
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._given = self._takes(self._env.action_spec())

    def _translate(self, action: NestedArray) -> NestedArray:
        structure = self._given.structure
        leaves = [
            _clipped(column, spec)
            if isinstance(spec, BoundedArraySpec)
            else self._given.settled(index, column, self._ignored)
            for index, (column, spec) in enumerate(
                zip(self._given.columns(action), structure.leaves, strict=True)
            )
        ]
        return structure.unflatten(leaves)


class RescaleAction(ActionWrapper):
    """Rescales continuous actions to the range from `min_action` to `max_action`.

    A linear function maps the new range to the bounds of the environment's spec. It
    does not clip: an action beyond the new bounds ends up beyond the old ones. Leaves
    that are not floats, or have no bounds, are passed on unchanged.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((), np.float32, minimum=0.0, maximum=10.0),
        ...     reward_fn=lambda step_type, action, observation: action,
        ... )
        >>> env = RescaleAction(env)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=float32, minimum=-1.0, maximum=1.0)
        >>> time_step = env.reset()
        >>> [float(env.step(action).reward) for action in (-1.0, 0.0, 0.5)]
        [0.0, 5.0, 7.5]
    """

    _shown = ("min_action", "max_action")

    def __init__(
        self,
        env: Any,
        min_action: Any = -1,
        max_action: Any = 1,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            min_action: The new minimum: a number, or an array that broadcasts to the
                shape of each continuous action.
            max_action: The new maximum, likewise.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._min_action, self._max_action = checked_ends(min_action, max_action)
        own = GivenActions("An action", self._env.action_spec(), self._dims).structure
        self._scales = [
            self._scale_of(spec, path)
            for spec, path in zip(own.leaves, own.paths, strict=True)
        ]
        if not any(self._scales):
            raise ValueError(
                "RescaleAction needs an action with bounded floats to scale, "
                f"and {self._spec_text(self._env.action_spec())}."
            )
        specs = [
            spec if scale is None else scale.spec
            for spec, scale in zip(own.leaves, self._scales, strict=True)
        ]
        self._given = self._takes(own.unflatten(specs))

    @property
    def min_action(self) -> Any:
        """The new minimum: a number, or a list of numbers."""
        return self._min_action.tolist()

    @property
    def max_action(self) -> Any:
        """The new maximum: a number, or a list of numbers."""
        return self._max_action.tolist()

    def _scale_of(self, spec: ArraySpec, path: str) -> ActionScale | None:
        if not isinstance(spec, BoundedArraySpec) or not is_continuous(spec):
            return None
        if has_finite_bounds(spec):
            return ActionScale(self._new_spec(spec, path), spec)
        if spec == BoundedArraySpec(spec.shape, spec.dtype):
            return None
        raise ValueError(
            "RescaleAction cannot scale an action that has a bound on one side only, "
            f"or in some elements only, and {self._spec_text(spec, path)}. Give it "
            "finite bounds with TransformAction first."
        )

    def _new_spec(self, spec: BoundedArraySpec, path: str) -> BoundedArraySpec:
        for name, bound in (
            ("min_action", self._min_action),
            ("max_action", self._max_action),
        ):
            try:
                np.broadcast_to(bound, spec.shape)
            except ValueError:
                raise ValueError(
                    f"{name} has the shape {bound.shape}, which does not broadcast to "
                    f"that of the action: {self._spec_text(spec, path)}."
                ) from None
        new = spec.replace(minimum=self._min_action, maximum=self._max_action)
        if not (new.minimum < new.maximum).all():
            raise ValueError(
                f"min_action and max_action are the same number in {spec.dtype}, the "
                f"dtype of the action: {self._spec_text(spec, path)}."
            )
        return new

    def _translate(self, action: NestedArray) -> NestedArray:
        leaves = self._given.leaves(action, self._ignored)
        return self._given.structure.unflatten(
            [
                leaf if scale is None else scale(leaf)
                for leaf, scale in zip(leaves, self._scales, strict=True)
            ]
        )


class ActionOffsetWrapper(ActionWrapper):
    """Makes discrete actions count from 0, for agents that index with them.

    The environment's minimum is added to every action. The environment's action must be
    a single array of bounded integers.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((), np.int32, minimum=-1, maximum=1),
        ...     reward_fn=lambda step_type, action, observation: action,
        ... )
        >>> env = ActionOffsetWrapper(env)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=2)
        >>> time_step = env.reset()
        >>> [float(env.step(action).reward) for action in (0, 1, 2)]
        [-1.0, 0.0, 1.0]
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        spec = self._checked_spec(self._env.action_spec())
        self._minimum = spec.minimum
        highest = _width(spec)
        if np.any(highest > np.iinfo(spec.dtype).max):
            raise ValueError(
                f"ActionOffsetWrapper counts from 0, and {spec.dtype} cannot count as "
                f"far as {np.max(highest)}: {self._spec_text(spec)}."
            )
        self._given = self._takes(
            spec.replace(minimum=0, maximum=highest.astype(spec.dtype))
        )

    def _checked_spec(self, spec: NestedSpec) -> BoundedArraySpec:
        if not isinstance(spec, ArraySpec):
            kind = "single-array action specs (not nested ones)"
        elif not isinstance(spec, BoundedArraySpec):
            kind = "bounded action specs"
        elif not is_discrete(spec):
            kind = "discrete action specs"
        else:
            return spec
        raise ValueError(
            f"ActionOffsetWrapper only works with {kind}, and {self._spec_text(spec)}."
        )

    def _translate(self, action: NestedArray) -> NestedArray:
        (column,) = self._given.leaves(action, self._ignored)
        return np.asarray(column + self._minimum)


def _clipped(column: Array, spec: BoundedArraySpec) -> Array:
    """Clips numbers of any dtype to bounds, and converts them to the bounds' dtype."""
    low, high = spec.minimum, spec.maximum
    if column.dtype == spec.dtype:
        return np.asarray(np.minimum(np.maximum(column, low), high))
    # Compares before converting: the spec's dtype may not hold the original numbers.
    with np.errstate(over="ignore"):
        clipped = np.where(column < low, low, column.astype(spec.dtype))
    return np.where(column > high, high, clipped)


def _width(spec: BoundedArraySpec) -> Array:
    """Returns the differences between bounds as Python integers."""
    return np.asarray(spec.maximum.astype(object) - spec.minimum.astype(object), object)


_NAMES = "min_action", "max_action"


class ActionScale:
    """Maps the range of one spec linearly to the range of another.

    Attributes:
        spec: The spec of the input.

    Example:
        >>> spec = BoundedArraySpec((), np.float32, minimum=-1.0, maximum=1.0)
        >>> inner = BoundedArraySpec((), np.float32, minimum=0.0, maximum=10.0)
        >>> ActionScale(spec, inner)(np.array([-1.0, 0.5]))
        array([0. , 7.5], dtype=float32)
    """

    __slots__ = (
        "_dtype",
        "_high",
        "_low",
        "_may_pass",
        "_start",
        "_wide",
        "_width",
        "spec",
    )

    def __init__(self, spec: BoundedArraySpec, inner: BoundedArraySpec) -> None:
        """Prepares for arrays of `spec`, or batches of them.

        Args:
            spec: The spec of the input; its bounds are finite and differ.
            inner: The spec of the output; its bounds are finite.
        """
        self.spec = spec
        self._dtype = inner.dtype
        wide = self._wide = np.promote_types(inner.dtype, np.float64)
        self._start = spec.minimum.astype(wide)
        # Uses the bounds as stored: a given number may lie between two of the dtype.
        self._width = spec.maximum.astype(wide) - self._start
        self._low = inner.minimum.astype(wide)
        self._high = inner.maximum.astype(wide)
        # Rounding to a narrower dtype cancels the rounding before.
        self._may_pass = wide == inner.dtype

    def __call__(self, action: Array) -> Array:
        """Returns a new array of the dtype of `inner`."""
        # Hot: called once per step. This form of a linear function hits both ends
        # exactly, whatever their sizes.
        share = (action.astype(self._wide) - self._start) / self._width
        scaled = self._low * (1.0 - share) + self._high * share
        if self._may_pass:
            inside = (share >= 0.0) & (share <= 1.0)
            kept = np.minimum(np.maximum(scaled, self._low), self._high)
            scaled = np.where(inside, kept, scaled)
        return np.asarray(scaled, self._dtype)


def checked_ends(min_action: Any, max_action: Any) -> tuple[Array, Array]:
    """Returns the ends of a range as arrays; raises if they are wrong.

    Example:
        >>> checked_ends(-1, [1.0, 2.0])
        (array(-1), array([1., 2.]))
    """
    low, high = checked_range(
        _NAMES, (min_action, max_action), "every continuous action"
    )
    with np.errstate(over="ignore"):
        if not np.isfinite(high.astype(np.float64) - low).all():
            raise ValueError(
                f"{range_text(_NAMES, low, high)}, which is too far apart to compute "
                "with."
            )
    return low, high
