"""Wrappers that change rewards, and sums of rewards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.extend import as_array, describe, within
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.nests import fresh_nest, given_specs
from envkit.wrappers.rows import beside, where_rows

__all__ = ["ClipReward", "TransformReward", "add_in_rows", "sum_spec"]


_FIRST = StepType.FIRST


class ClipReward(PyEnvironmentBaseWrapper):
    """Clips every reward to a range.

    In a vector or nest of rewards, every element is clipped. The reward of a `FIRST`
    stays 0 even if the range excludes 0, and the spec's bounds include it.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> env = ClipReward(TicTacToe(seed=1), min_reward=-0.5, max_reward=0.5)
        >>> env.reward_spec().minimum, env.reward_spec().maximum
        (array(-0.5, dtype=float32), array(0.5, dtype=float32))

        To keep only the sign, as is usual for Atari games:

        >>> env = TransformReward(TicTacToe(seed=1), np.sign)
    """

    _shown = ("min_reward", "max_reward")

    def __init__(
        self,
        env: Any,
        min_reward: Any = None,
        max_reward: Any = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            min_reward: The smallest reward: a number, or an array that broadcasts to
                every reward; `None` for no limit.
            max_reward: The largest reward, likewise. At least one of the two is
                required.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        if min_reward is None and max_reward is None:
            raise ValueError(
                "ClipReward needs min_reward, max_reward or both: without a limit "
                "there is nothing to clip."
            )
        self._structure = nest.Structure(self._env.reward_spec())
        specs = zip(self._structure.paths, self._structure.leaves, strict=True)
        self._ranges = [_range(min_reward, max_reward, *place) for place in specs]
        self._excludes_zero = any(
            (spec.minimum > 0).any() or (spec.maximum < 0).any()
            for spec in self._ranges
        )
        self._spec = self._structure.unflatten(
            [
                _clipped_spec(spec, limits)
                for spec, limits in zip(
                    self._structure.leaves, self._ranges, strict=True
                )
            ]
        )
        self._min_reward = copy.deepcopy(min_reward)
        self._max_reward = copy.deepcopy(max_reward)

    @property
    def min_reward(self) -> Any:
        """The smallest reward, as the caller gave it."""
        return copy.deepcopy(self._min_reward)

    @property
    def max_reward(self) -> Any:
        """The largest reward, as the caller gave it."""
        return copy.deepcopy(self._max_reward)

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of one row's clipped reward."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = zip(
            self._structure.flatten(time_step.reward), self._ranges, strict=True
        )
        clipped = [
            np.asarray(np.minimum(np.maximum(leaf, limits.minimum), limits.maximum))
            for leaf, limits in leaves
        ]
        if self._excludes_zero:
            first = np.asarray(time_step.step_type) == _FIRST
            clipped = [where_rows(first, _zero(leaf.dtype), leaf) for leaf in clipped]
        return time_step._replace(reward=self._structure.unflatten(clipped))


def _range(low: Any, high: Any, path: str, spec: Any) -> BoundedArraySpec:
    """Returns one leaf's range as a spec, with bounds in the leaf's dtype."""
    bounds = [as_array(bound) for bound in (low, high) if bound is not None]
    problem = ""
    if any(bound.dtype.kind == "f" and np.isnan(bound).any() for bound in bounds):
        problem = "A limit must not be NaN."
    elif spec.dtype.kind in "iu" and any(
        bound.dtype.kind == "f" and (bound != np.floor(bound)).any() for bound in bounds
    ):
        problem = "Limits of integers must be whole numbers."
    if not problem:
        try:
            return BoundedArraySpec(spec.shape, spec.dtype, low, high)
        except (TypeError, ValueError) as error:
            problem = str(error)
    raise ValueError(
        f"ClipReward cannot clip {nest.join('reward', path)}, which is {spec!r}, "
        f"between min_reward={low!r:.80} and max_reward={high!r:.80}. {problem}"
    )


def _clipped_spec(spec: ArraySpec, limits: BoundedArraySpec) -> BoundedArraySpec:
    before = BoundedArraySpec.from_spec(spec)
    low, high = (
        np.clip(bound, limits.minimum, limits.maximum)
        for bound in (before.minimum, before.maximum)
    )
    # The reward of a FIRST is 0 in any case.
    return before.replace(minimum=np.minimum(low, 0), maximum=np.maximum(high, 0))


class TransformReward(PyEnvironmentBaseWrapper):
    """Applies a function to every reward.

    The function is called once per step with the rewards of all rows in one array; a
    single environment counts as one row. It gets a copy, which it may change, and
    returns the new rewards, one per row. For a nest of rewards it gets the nest. It may
    return another structure, declared in `reward_spec`.

    The reward of a `FIRST` stays 0. In its place, the function gets a copy of another
    row's reward, and its result there is dropped. So it may divide by rewards or take
    logarithms.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = TransformReward(CartPole(seed=1), lambda reward: 0.1 * reward)
        >>> env.reset().reward
        array(0., dtype=float32)
        >>> env.step(1).reward
        array(0.1, dtype=float32)
    """

    def __init__(
        self,
        env: Any,
        function: Callable[[NestedArray], NestedArray],
        reward_spec: NestedSpec | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            function: Takes the rewards of all rows and returns the new ones.
            reward_spec: The spec of one row's new reward; `None` if shape and dtype
                stay the same. Bounds are then unknown.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        if not callable(function):
            raise TypeError(
                f"TransformReward needs a function of rewards, not "
                f"{describe(function)}."
            )
        self._function = function
        given = self._env.reward_spec()
        self._given = nest.Structure(given)
        self._spec = (
            self._given.map(ArraySpec.from_spec, given)
            if reward_spec is None
            else _checked_spec(reward_spec)
        )
        self._structure = nest.Structure(self._spec)
        self._rows = self._dims[0] if self._dims else 1

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of one row's reward, as returned by the function."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        first = np.asarray(time_step.step_type) == _FIRST
        earned = np.reshape(~first if rows is None else rows & ~first, self._rows)
        if earned.any():
            leaves = self._transformed(time_step.reward, earned)
        else:
            leaves = [
                np.zeros((*self._dims, *spec.shape), spec.dtype)
                for spec in self._structure.leaves
            ]
        return time_step._replace(reward=self._structure.unflatten(leaves))

    def _transformed(self, reward: NestedArray, earned: Array) -> list[Array]:
        """Returns new rewards for rows that earned one, and 0 for the others."""
        all_have = earned.all()
        one = 0 if all_have else earned.argmax()

        def with_rows(leaf: Any) -> Array:
            whole = np.array(leaf) if self._dims else np.array(leaf)[np.newaxis]
            return whole if all_have else where_rows(earned, whole, whole[one])

        result = self._function(self._given.map(with_rows, reward))
        leaves = [
            # Always a copy, because the function may have kept the array.
            np.array(leaf) if all_have else where_rows(earned, leaf, _zero(leaf.dtype))
            for leaf in self._checked_leaves(result)
        ]
        return leaves if self._dims else [leaf[0, ...] for leaf in leaves]

    def _checked_leaves(self, result: NestedArray) -> list[Array]:
        try:
            leaves = self._structure.flatten(result)
        except SpecError:
            leaves = []
        if len(leaves) != len(self._structure.leaves) or not all(
            isinstance(leaf, np.ndarray)
            and leaf.shape == (self._rows, *spec.shape)
            and leaf.dtype == spec.dtype
            and _is_within(leaf, spec)
            for leaf, spec in zip(leaves, self._structure.leaves, strict=True)
        ):
            self._refuse(result)
        return leaves

    def _refuse(self, result: NestedArray) -> None:
        check_fits(
            result,
            self._spec,
            subject="The function of TransformReward returned a reward that",
            root="reward",
            outer_dims=(self._rows,),
            context=(
                "The function gets the rewards of all rows at once and returns as many "
                f"({self._rows}{'' if self._dims else ', without a batch'}). If it "
                "changes the shape or dtype of one row's reward, pass reward_spec=."
            ),
        )


def _checked_spec(given: NestedSpec) -> NestedSpec:
    specs = given_specs("TransformReward", "reward_spec", given)
    for path, spec in nest.flatten_with_paths(specs):
        if not _is_within(np.zeros(spec.shape), spec):
            place = nest.join("reward_spec", path)
            raise ValueError(
                f"{place} is {spec!r}, but its bounds must include 0, the reward of "
                "every FIRST."
            )
    return specs


def _is_within(array: Array, spec: Any) -> bool:
    if not isinstance(spec, BoundedArraySpec):
        return True
    return within(array, spec.minimum, spec.maximum)


def _zero(dtype: Any) -> Array:
    # In the array's own dtype: a Python number may change it.
    return np.zeros((), dtype)


# The maximum number of rewards whose sum gets a bound; beyond it, any number counts as
# unlimited.
_MOST_FLOATS = 2**20


def add_in_rows(rows: Any, total: Array, reward: Array) -> Array:
    """Adds rewards in some rows; returns a new array with the dtype of `total`.

    Integer sums stop at the limits of their dtype, as `sum_spec` declares.

    Example:
        >>> add_in_rows(np.array([True, False]), np.array([1, 2]), np.array([5, 5]))
        array([6, 2])
        >>> add_in_rows(np.array(True), np.array(100, np.int8), np.array(50, np.int8))
        array(127, dtype=int8)
    """
    dtype = total.dtype
    # Hot: called once per step. Uses a zero of the same dtype: NumPy before 2 widens
    # integers for a plain 0.
    more = np.where(beside(rows, reward), reward, np.zeros((), dtype))
    with np.errstate(over="ignore"):
        sums = np.asarray(total + more, dtype)
    if dtype.kind not in "iu":
        return sums
    # Integers that are too large wrap around: then the sum is less than before.
    info = np.iinfo(dtype)
    too_large, too_small = (more > 0) & (sums < total), (more < 0) & (sums > total)
    if too_large.any() or too_small.any():
        sums = np.where(too_large, dtype.type(info.max), sums)
        sums = np.where(too_small, dtype.type(info.min), sums).astype(dtype, copy=False)
    return sums


def sum_spec(spec: ArraySpec, most: int) -> ArraySpec:
    """Returns the spec of sums of 1 to `most` rewards.

    Example:
        >>> sum_spec(BoundedArraySpec((), np.float32, -1.0, 2.0), 4)
        BoundedArraySpec(shape=(), dtype=float32, minimum=-4.0, maximum=8.0)
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec
    summed = _float_sum if spec.dtype.kind == "f" else _integer_sum
    low, high = spec.minimum, spec.maximum
    return spec.replace(
        minimum=np.where(low < 0, summed(low, most), low),
        maximum=np.where(high > 0, summed(high, most), high),
    )


def _float_sum(bound: Array, most: int) -> Array:
    # In a spec, infinity is the limit of the dtype.
    if most > _MOST_FLOATS:
        return np.asarray(np.copysign(np.inf, bound))
    # Added one by one, as rewards are: a product rounds differently, and ten times 0.1
    # would exceed the bound.
    with np.errstate(over="ignore"):
        sums = np.cumsum(np.broadcast_to(bound, (most, *bound.shape)), axis=0)
    last: Array = sums[-1, ...].astype(bound.dtype)
    return last


def _integer_sum(bound: Array, most: int) -> Array:
    # In Python integers, which do not overflow.
    info = np.iinfo(bound.dtype)
    products = [
        min(max(number * most, info.min), info.max) for number in bound.ravel().tolist()
    ]
    return np.array(products, bound.dtype).reshape(bound.shape)
