"""`DmControlWrapper`: an environment of dm_control as an envkit environment."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.forwarding import forwarded
from envkit.adapters.values import (
    Converter,
    array_leaf,
    bounded_leaf,
    map_specs,
    map_with_paths,
)
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["DmControlWrapper"]

_STEP_TYPES = (StepType.FIRST, StepType.MID, StepType.LAST)


class DmControlWrapper(PyEnvironment):
    """Makes an envkit environment of one of dm_control's, or any `dm_env.Environment`.

    Observations and actions keep their dtypes; a reward or discount of float64 becomes
    float32. A `FIRST`, which has neither there, gets reward 0 and discount 1.

    Public attributes that the wrapper does not have, such as `physics` and `task`, are
    those of the environment.
    """

    def __init__(
        self, env: Any, render_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: A `dm_env.Environment`.
            render_kwargs: Keyword arguments for `physics.render`: `height`, `width`,
                `camera_id` and others.
        """
        _check_environment(env)
        super().__init__(handle_auto_reset=True)
        self._env = env
        self._name = type(env).__name__
        self._render_kwargs = dict(render_kwargs or {})
        self._observation_spec = _specs("observation", env.observation_spec())
        self._action_spec = _specs("action", env.action_spec())
        self._reward_spec = _specs("reward", env.reward_spec())
        self._discount_spec = _specs("discount", env.discount_spec())
        self._to_observation = self._reader("observation", self._observation_spec)
        self._to_reward = self._reader("reward", self._reward_spec)
        self._to_discount = self._reader("discount", self._discount_spec)
        self._to_action = Converter(
            self._action_spec,
            map_specs(bounded_leaf, self._action_spec),
            subject="DmControlWrapper.step() was given an action that",
            root="action",
        )
        self._next_seed: int | None = None
        self._closed = False

    def _reader(self, part: str, spec: NestedSpec) -> Converter:
        article = "an" if part == "observation" else "a"
        return Converter(
            spec,
            map_specs(array_leaf, spec),
            subject=f"{self._name} returned {article} {part} that",
            root=part,
        )

    @property
    def dm_env(self) -> Any:
        """The wrapped environment."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._env, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation."""
        return self._observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of the reward."""
        return self._reward_spec

    def discount_spec(self) -> NestedSpec:
        """Returns the specs of the discount."""
        return self._discount_spec

    def seed(self, seed: Seed) -> None:
        """Seeds the task's generator at the next reset.

        What was random when the environment was made, as parts of some models are,
        stays as it is: `task_kwargs={"random": seed}` is the seed of that.
        """
        self._random_state()
        seeds = [seed] if seed is None or isinstance(seed, numbers.Integral) else seed
        (self._next_seed,) = seed_per_row(seeds, 1)  # type: ignore[arg-type]  # it refuses what is no seed
        if self._next_seed is None:
            self._next_seed = int(np.random.SeedSequence().generate_state(1)[0])

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a picture from the physics.

        MuJoCo needs a way to draw: on a machine without a display, set the environment
        variable `MUJOCO_GL` to `egl` or `osmesa` before dm_control is imported.
        """
        self._check_open("render")
        physics = getattr(self._env, "physics", None)
        if physics is None or not hasattr(physics, "render"):
            raise NotImplementedError(
                f"{self._name} cannot render: it has no physics to draw."
            )
        if mode != "rgb_array":
            raise NotImplementedError(
                f"{self._name} renders 'rgb_array' only, not {mode!r}."
            )
        return np.array(physics.render(**self._render_kwargs))

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        if self._next_seed is not None:
            self._random_state().seed(self._next_seed)
            self._next_seed = None
        return self._convert(self._env.reset())

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed:
            self._check_open("step")
        return self._convert(self._env.step(self._to_action(action)))

    def _convert(self, time_step: Any) -> TimeStep:
        # Hot: called once per step.
        step_type = _STEP_TYPES[int(time_step.step_type)]
        observation = self._to_observation(time_step.observation)
        if step_type is StepType.FIRST:
            # dm_env says None here, and other libraries numbers of their own.
            return TimeStep(
                step_type,
                map_specs(_zeros, self._reward_spec),
                map_specs(_ones, self._discount_spec),
                observation,
            )
        return TimeStep(
            step_type,
            self._to_reward(time_step.reward),
            self._to_discount(time_step.discount),
            observation,
        )

    def _random_state(self) -> Any:
        # Tasks of the control suite have one; in composer the environment has it.
        for owner in (getattr(self._env, "task", None), self._env):
            for name in ("random", "random_state"):
                generator = getattr(owner, name, None)
                if isinstance(generator, np.random.RandomState):
                    return generator
        raise NotImplementedError(
            f"{self._name} cannot be seeded: dm_env knows no seeds, and neither the "
            "environment nor its task has a RandomState. Give it a seed when you make "
            "it."
        )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        raise NotImplementedError(
            f"{self._name} cannot save its state: dm_env knows no states."
        )

    def _set_state(self, state: Any) -> None:
        raise NotImplementedError(
            f"{self._name} cannot restore a state: dm_env knows no states."
        )


def _check_environment(env: Any) -> None:
    needed = ("reset", "step", "observation_spec", "action_spec", "reward_spec")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"DmControlWrapper was given {what}, which is not a dm_env.Environment. "
            "dm_control.suite.load(domain, task) makes one."
        )


def _specs(part: str, spec: Any) -> NestedSpec:
    """Makes specs of a nest of dm_env's."""
    narrow = part in ("reward", "discount")
    return map_with_paths(lambda leaf, path: _spec(leaf, path, narrow), spec, part)


def _spec(spec: Any, path: str, narrow: bool) -> ArraySpec:
    missing = [name for name in ("shape", "dtype") if not hasattr(spec, name)]
    if missing or np.dtype(spec.dtype).kind not in "biufUS":
        error = SpecError(
            f"The spec at {path} is {spec!r:.120}, which is not supported yet: there "
            "are specs for arrays of numbers, of booleans and of text of a fixed width."
        )
        error.path = path
        raise error
    dtype = np.dtype(spec.dtype)
    if narrow and dtype == np.float64:
        dtype = np.dtype(np.float32)
    if not hasattr(spec, "minimum") or dtype.kind not in "iuf":
        return ArraySpec(spec.shape, dtype, spec.name)
    return BoundedArraySpec(spec.shape, dtype, spec.minimum, spec.maximum, spec.name)


def _zeros(spec: ArraySpec) -> Array:
    return np.zeros(spec.shape, spec.dtype)


def _ones(spec: ArraySpec) -> Array:
    return np.ones(spec.shape, spec.dtype)
