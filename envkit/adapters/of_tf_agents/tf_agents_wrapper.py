"""`TFAgentsWrapper`: an environment written for TF-Agents as an envkit environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.forwarding import forwarded
from envkit.adapters.of_tf_agents.tf_agents_order import check_rows_begin
from envkit.adapters.spaces.repacking import Repacker
from envkit.adapters.spaces.values import array_leaf
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.time_step import (
    DISCOUNT_SPEC,
    REWARD_SPEC,
    STEP_TYPE_SPEC,
    StepType,
    TimeStep,
)
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["TFAgentsWrapper"]


class TFAgentsWrapper(PyEnvironment):
    """Makes an envkit environment of one that was written for TF-Agents.

    Observations, rewards and discounts get the dtypes that their specs say. Where
    TF-Agents' functions for time steps return one discount for a whole batch, or a step
    type for each element of a vector reward, there is one for each row. A single
    environment need not begin its next episode itself; each row of a batch must.

    The state is what the environment's own `get_state` returns. Public attributes that
    the wrapper does not have are those of the environment.
    """

    def __init__(self, env: Any) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: The environment.
        """
        self._env = env
        self._name = type(env).__name__
        self._batch_size = env.batch_size if getattr(env, "batched", False) else None
        # A batch has to see to its rows itself: only it can begin an episode in some.
        super().__init__(handle_auto_reset=not self.batched)
        self._specs = _specs_of(env)
        self._action_spec = _specs("action", env.action_spec())
        dims = () if self._batch_size is None else (self._batch_size,)
        self._dims: tuple[int, ...] = dims
        self._one_discount = _is_scalar(self._specs.discount)
        self._to_time_step = Repacker(
            self._specs,
            dims,
            leaf=array_leaf,
            subject=f"{self._name} returned a time step that",
        )
        self._to_action = Repacker(
            self._action_spec,
            dims,
            leaf=array_leaf,
            subject=f"{self._name} was given an action that",
        )
        self._closed = False

    @property
    def batched(self) -> bool:
        """Whether the environment is a batch."""
        return self._batch_size is not None

    @property
    def batch_size(self) -> int | None:
        """How many rows a batch has; `None` for a single environment."""
        return self._batch_size

    def wrapped_env(self) -> Any:
        """Returns the environment that was written for TF-Agents."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, self.wrapped_env, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._specs.observation

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of the reward."""
        return self._specs.reward

    def discount_spec(self) -> NestedSpec:
        """Returns the specs of the discount."""
        spec: NestedSpec = self._specs.discount
        return spec

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment.

        In a batch that has them as its `envs`, each environment gets a seed of its own;
        any other batch gets the seed as it is.
        """
        if self._batch_size is None:
            (own,) = checked_seeds(seed, 1)
            return self._env.seed(own)
        envs = getattr(self._env, "envs", None)
        if not envs:
            return self._env.seed(seed)
        seeds = seed_per_row(seed, self._batch_size)
        if hasattr(envs[0], "call"):  # They are in processes, and their batch asks.
            return self._env.seed(seeds)
        # Their batch would give every row the same seed, or refuse.
        return [env.seed(own) for env, own in zip(envs, seeds, strict=True)]

    def get_info(self) -> Any:
        """Returns the environment's info."""
        return self._env.get_info()

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders."""
        self._check_open("render")
        return self._env.render(mode)

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        return self._repacked(self._env.reset(), "reset")

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed:
            self._check_open("step")
        time_step = self._repacked(self._env.step(self._to_action(action)), "step")
        if self.batched:
            check_rows_begin(self._name, self._current_time_step, time_step)
        return time_step

    def _repacked(self, theirs: Any, call: str) -> TimeStep:
        if not hasattr(theirs, "step_type"):
            raise SpecError(
                f"{self._name}.{call}() returned {describe(theirs)}, not a TimeStep."
            )
        discount = theirs.discount
        if self._one_discount:
            discount = _one_per_row(discount, self._dims)
        step_type = _one_per_row(theirs.step_type, self._dims)
        time_step: TimeStep = self._to_time_step(
            TimeStep(step_type, theirs.reward, discount, theirs.observation)
        )
        if self.batched:
            return time_step
        # The constants, which the base class knows without comparing arrays.
        return time_step._replace(step_type=StepType(time_step.step_type))

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        # Their base class keeps the time step that tells whether to begin an episode,
        # and their environments do not count it to their state.
        standing = getattr(self._env, "_current_time_step", None)
        return self._env.get_state(), standing

    def _set_state(self, state: Any) -> None:
        own, standing = state
        self._env.set_state(own)
        if hasattr(self._env, "_current_time_step"):
            self._env._current_time_step = standing


def _specs_of(env: Any) -> TimeStep:
    """Returns the specs of an environment's time steps as envkit's."""
    spec = env.time_step_spec()
    # Their time_step_spec() leaves out what discount_spec() says, and the reward_spec()
    # of their batches what that of the environments says: one of the two is right.
    return TimeStep(
        step_type=STEP_TYPE_SPEC,
        reward=_own_spec(env, "reward", spec.reward, REWARD_SPEC),
        discount=_own_spec(env, "discount", spec.discount, DISCOUNT_SPEC),
        observation=_specs("observation", env.observation_spec()),
    )


def _own_spec(env: Any, part: str, spec: Any, default: ArraySpec) -> NestedSpec:
    """Returns the spec of a part that is not the default, if there is one."""
    found = _specs(part, spec)
    if _is_scalar(found) and found == default and hasattr(env, f"{part}_spec"):
        return _specs(part, getattr(env, f"{part}_spec")())
    return found


def _specs(part: str, theirs: Any) -> NestedSpec:
    """Makes specs of a nest of anything that has the attributes of specs."""
    structure = nest.Structure(theirs)
    pairs = zip(structure.leaves, structure.paths, strict=True)
    return structure.unflatten([_spec(leaf, f"{part}{path}") for leaf, path in pairs])


def _spec(spec: Any, path: str) -> ArraySpec:
    if isinstance(spec, ArraySpec):
        return spec
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        error = SpecError(
            f"The spec at {path} is {spec!r:.120}, which has no shape or no dtype: it "
            "is no ArraySpec."
        )
        error.path = path
        raise error
    name = getattr(spec, "name", None)
    if not hasattr(spec, "minimum"):
        return ArraySpec(spec.shape, spec.dtype, name)
    return BoundedArraySpec(spec.shape, spec.dtype, spec.minimum, spec.maximum, name)


def _is_scalar(spec: NestedSpec) -> bool:
    return isinstance(spec, ArraySpec) and spec.shape == ()


def _one_per_row(value: Any, dims: tuple[int, ...]) -> Array:
    """Returns one value for each row, where that is what too many or too few mean."""
    array = np.asarray(value)
    if array.shape == dims:
        return array
    if array.ndim == 0:
        return np.broadcast_to(array, dims)
    if array.shape[: len(dims)] == dims and array.size:
        elements = array.reshape(*dims, -1)
        if (elements == elements[..., :1]).all():
            return elements[..., 0]
    return array
