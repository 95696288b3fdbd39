"""Returns random observations of a spec, for tests: `RandomPyEnvironment`."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import SpecifiedEnvironment, a_or_an, as_array, describe, flatten_as
from envkit.provenance import record_seed
from envkit.seeding import checked_seeds
from envkit.specs.arrays import BoundedArraySpec
from envkit.specs.sampling import sample_spec_nest
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wrappers.rows import where_rows

__all__ = ["RandomPyEnvironment"]


_ACTION = "RandomPyEnvironment.step() was given an action that"


class RandomPyEnvironment(SpecifiedEnvironment):
    """Returns random observations of a spec, in episodes of random length.

    It stands in for an environment in tests and benchmarks. In a batch, each row's
    episodes end independently.

    Example:
        >>> from envkit import ArraySpec
        >>> env = RandomPyEnvironment({"image": ArraySpec((4, 4, 3), np.uint8)})
        >>> env.reset().observation["image"].shape
        (4, 4, 3)
    """

    def __init__(
        self,
        observation_spec: NestedSpec,
        action_spec: NestedSpec | None = None,
        episode_end_probability: float = 0.1,
        discount: float | Sequence[float] | Array = 1.0,
        reward_fn: Callable[[Any, NestedArray, NestedArray], Any] | None = None,
        batch_size: int | None = None,
        auto_reset: bool = True,
        seed: Seed = 42,
        render_size: Sequence[int] = (2, 2, 3),
        min_duration: int = 0,
        max_duration: int | None = None,
    ) -> None:
        """Makes a random environment.

        Args:
            observation_spec: The spec to sample observations from.
            action_spec: The spec of actions; `None` accepts any action.
            episode_end_probability: The probability that a step ends its episode.
            discount: The discount of every step except terminating ones; in a batch it
                may have one element per row.
            reward_fn: Computes the reward from the step types, the action and the
                observation. The default reward is 0.
            batch_size: The number of rows; `None` for a single environment.
            auto_reset: Whether a step after `LAST` begins a new episode.
            seed: Seeds the random values.
            render_size: The shape of a rendered picture.
            min_duration: The fewest steps an episode has.
            max_duration: The maximum number of steps in an episode; `None` for no
                limit.
        """
        _check_arguments(
            episode_end_probability, batch_size, min_duration, max_duration
        )
        super().__init__(handle_auto_reset=auto_reset)
        self._observation_spec = observation_spec
        self._accepts_any_action = action_spec is None
        self._action_spec = () if action_spec is None else action_spec
        self._action = nest.Structure(self._action_spec)
        self._episode_end_probability = episode_end_probability
        self._discount = _as_discount(discount, batch_size)
        self._reward_fn = reward_fn
        self._batch_size = batch_size
        self._dims = () if batch_size is None else (batch_size,)
        self._render_size = tuple(render_size)
        self._min_duration = min_duration
        self._max_duration = max_duration
        self._num_steps = np.zeros(self._dims, np.int64)
        # Not through seed(): a subclass may extend it with code that needs attributes
        # that are set later.
        self._make_generator(seed)

    def discount_spec(self) -> NestedSpec:
        """Returns a spec from 0 to the discount, or to 1."""
        highest = max(1.0, float(self._discount.max()))
        return BoundedArraySpec((), np.float32, 0.0, highest, name="discount")

    def seed(self, seed: Seed) -> None:
        """Makes all later random values depend on `seed` alone.

        The rows of a batch share one generator; a sequence has one seed for each.
        """
        self._make_generator(seed)

    def _make_generator(self, seed: Seed) -> None:
        record_seed(self, seed)
        seeds = checked_seeds(seed, 1 if self._batch_size is None else self._batch_size)
        if None in seeds:
            fresh = int(np.random.SeedSequence().generate_state(1)[0])
            seeds = [fresh if one is None else one for one in seeds]
        self._rng = np.random.default_rng(seeds)  # type: ignore[arg-type]  # none is None

    def get_info(self) -> dict[str, Any]:
        """Returns the number of steps in the current episode."""
        return {"num_steps": self._num_steps.copy()}

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a picture of noise, different in every step of an episode."""
        if mode != "rgb_array":
            raise ValueError(
                f"RandomPyEnvironment renders 'rgb_array' only, not {mode!r}."
            )
        size = (*self._dims, *self._render_size)
        # Its own generator: rendering must not change later episodes.
        noise = np.random.default_rng(int(self._num_steps.sum()))
        return noise.integers(0, 256, size, dtype=np.uint8)

    def _get_state(self) -> Any:
        return self._rng.bit_generator.state, self._num_steps

    def _set_state(self, state: Any) -> None:
        self._rng.bit_generator.state, self._num_steps = state

    def _reset(self) -> TimeStep:
        return self._reset_rows(np.ones(self._dims, bool))

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._num_steps = np.where(mask, 0, self._num_steps)
        return TimeStep(
            np.full(self._dims, StepType.FIRST, np.int32),
            np.zeros(self._dims, np.float32),
            np.ones(self._dims, np.float32),
            self._observe(),
        )

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        before = self._num_steps
        stepped = self._step(action)
        self._num_steps = np.where(stepping, self._num_steps, before)
        if not beginning.any():
            return stepped
        merged: TimeStep = nest.map_structure(
            functools.partial(where_rows, beginning),
            self._reset_rows(beginning),
            stepped,
        )
        return merged

    def _step(self, action: NestedArray) -> TimeStep:
        if not self._accepts_any_action:
            self._check_action(action)
        self._num_steps = self._num_steps + 1
        ended = self._draw_ends()
        observation = self._observe()
        step_type = np.where(ended, StepType.LAST, StepType.MID).astype(np.int32)
        return TimeStep(
            step_type,
            self._reward(step_type, action, observation),
            np.where(ended, np.float32(0.0), self._discount).astype(np.float32),
            observation,
        )

    def _observe(self) -> NestedArray:
        return sample_spec_nest(self._observation_spec, self._rng, self._dims)

    def _draw_ends(self) -> Array:
        ended = self._rng.random(self._dims) < self._episode_end_probability
        ended = np.logical_and(ended, self._num_steps >= self._min_duration)
        if self._max_duration is not None:
            ended = np.logical_or(ended, self._num_steps >= self._max_duration)
        return np.asarray(ended)

    def _check_action(self, action: NestedArray) -> None:
        """Checks the structure, and the shape as far as it must broadcast."""
        leaves = flatten_as(self._action, action, subject=_ACTION, root="action")
        for path, spec, leaf in zip(
            self._action.paths, self._action.leaves, leaves, strict=True
        ):
            expected = (*self._dims, *spec.shape)
            # Objects are only checked for presence.
            is_object = spec.dtype.hasobject and leaf is not None
            reason = "" if is_object else _reason_against(leaf, expected)
            if reason:
                raise SpecError.does_not_fit(
                    _ACTION,
                    path=nest.join("action", path),
                    root="action",
                    expected=repr(spec.replace(shape=expected)),
                    got=describe(leaf),
                    reason=reason,
                )

    def _reward(
        self, step_type: Array, action: NestedArray, observation: NestedArray
    ) -> Array:
        if self._reward_fn is None:
            return np.zeros(self._dims, np.float32)
        given = self._reward_fn(step_type, action, observation)
        array = as_array(given)
        if array.dtype.kind not in "biuf":
            raise SpecError(
                f"reward_fn returned {describe(given)}. A reward is a number or an "
                "array; if nothing was earned, return 0.0."
            )
        reward = np.array(array, np.float32)
        if reward.shape != self._dims:
            raise SpecError(
                f"reward_fn returned a reward of shape {reward.shape}; "
                f"{self._dims} is expected"
                + (
                    f", one for each of {self._batch_size} rows."
                    if self.batched
                    else " without a batch_size."
                )
            )
        return reward


def _reason_against(action: Any, expected: tuple[int, ...]) -> str:
    """Returns why a leaf is no action; empty if it is one."""
    if action is None:
        return "None is not an array. Did a return statement get lost?"
    if isinstance(action, str | bytes):
        return "A string is not an array."
    array = as_array(action)
    if array.dtype.hasobject:
        if isinstance(action, list | tuple):
            return "Its rows differ in shape, so it cannot be an array."
        return f"{a_or_an(type(action).__name__).capitalize()} is not an array."
    shape = array.shape
    # Users of TF-Agents pass a plain number for a vector of one element.
    if shape in ((), expected):
        return ""
    return f"The shape is {shape} instead of {expected}."


def _as_discount(discount: Any, batch_size: int | None) -> Array:
    shapes = ((),) if batch_size is None else ((), (batch_size,))
    array = np.asarray(discount)
    if array.dtype.kind in "biuf" and array.shape in shapes:
        return array.astype(np.float32)
    expected = "one number,"
    if batch_size is not None:
        expected += f" or one for each of {batch_size} rows,"
    raise ValueError(f"discount must be {expected} got {describe(discount)}.")


def _check_arguments(
    probability: float, batch_size: int | None, shortest: int, longest: int | None
) -> None:
    if not 0.0 <= probability <= 1.0:
        raise ValueError(
            f"episode_end_probability must be between 0 and 1, got {probability}."
        )
    if batch_size is not None and (
        not isinstance(batch_size, numbers.Integral) or batch_size < 1
    ):
        raise ValueError(f"batch_size must be at least 1, got {batch_size!r}.")
    if longest is not None and longest < max(shortest, 1):
        raise ValueError(
            "max_duration must be at least 1 and no less than min_duration, which is "
            f"{shortest}, got {longest}."
        )
