"""`DmEnvWrapper`: an environment of dm_env as an envkit environment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

import numpy as np

from envkit.adapters.dm.dm_env_parts import generators_of, parts_of, reseed
from envkit.adapters.dm.dm_env_specs import Refuse, reader, spec_from_dm_env, writer
from envkit.adapters.dm.dm_env_state import restore_state, save_state
from envkit.adapters.dm.mujoco_drawing import check_can_draw
from envkit.adapters.dm.mujoco_state import is_mujoco
from envkit.adapters.forwarding import forwarded
from envkit.adapters.py_to_dm_wrapper import PyToDMWrapper
from envkit.adapters.spaces.values import Converter, Leaf, map_specs, map_with_paths
from envkit.errors import ClosedError, SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import describe
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["DmEnvWrapper"]

_STEP_TYPES = {0: StepType.FIRST, 1: StepType.MID, 2: StepType.LAST}
_PARTS = ("observation", "action", "reward", "discount")


class DmEnvWrapper(PyEnvironment):
    """Makes an envkit environment of any `dm_env.Environment`.

    Time steps are the same in both libraries but for the `FIRST`, which has neither
    reward nor discount in dm_env, and reward 0 and discount 1 here. Nothing of dm_env
    is needed, only an environment that behaves like one.

    Public attributes that the wrapper does not have, such as `physics` and `task`, are
    those of the environment.

    Example:
        >>> from envkit.adapters import PyToDMWrapper
        >>> from envkit.testing import CountingEnv
        >>> env = DmEnvWrapper(PyToDMWrapper(CountingEnv(steps_per_episode=2)))
        >>> [int(env.step(0).step_type) for _ in range(4)]
        [0, 1, 2, 0]
    """

    def __init__(
        self,
        env: Any,
        render_kwargs: Mapping[str, Any] | None = None,
        *,
        as_float32: Collection[str] = ("reward", "discount"),
        text_length: int | None = None,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: A `dm_env.Environment`.
            render_kwargs: Keyword arguments for `physics.render`, if it has physics:
                `height`, `width`, `camera_id` and others.
            as_float32: Of what float64 becomes float32: "observation", "action",
                "reward" and "discount". Everything else keeps its dtype.
            text_length: How long strings are at most. They are then text of a fixed
                width, which travels between processes as numbers do; otherwise they
                are objects, and as long as they like.
        """
        self._check_environment(env)
        super().__init__(handle_auto_reset=True)
        self._env = env
        self._name = type(env).__name__
        self._render_kwargs = dict(render_kwargs or {})
        self._narrow = _checked_parts(as_float32)
        self._text_length = text_length
        self._observation_spec, self._to_observation = self._read("observation")
        self._reward_spec, self._to_reward = self._read("reward", REWARD_SPEC)
        self._discount_spec, self._to_discount = self._read("discount", DISCOUNT_SPEC)
        self._action_spec, self._to_action = self._write()
        self._next_seed: int | None = None
        self._closed = False

    def _check_environment(self, env: Any) -> None:
        needed = ("reset", "step", "observation_spec", "action_spec")
        if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
            what = (
                f"the class {env.__name__}" if isinstance(env, type) else describe(env)
            )
            raise TypeError(
                f"{type(self).__name__} was given {what}, which is not a "
                f"dm_env.Environment.{self._hint}"
            )

    _hint = ""

    def _read(
        self, part: str, default: ArraySpec | None = None
    ) -> tuple[NestedSpec, Converter]:
        """Returns the specs of a part of a time step, and what converts it."""
        ask: Callable[[], Any] = getattr(self._env, f"{part}_spec", lambda: default)
        article = "an" if part == "observation" else "a"
        subject = f"{self._name} returned {article} {part} that"
        return self._converted(part, ask(), subject, reader)

    def _write(self) -> tuple[NestedSpec, Converter]:
        """Returns the specs of the action, and what converts it."""
        subject = f"{type(self).__name__}.step() was given an action that"
        return self._converted("action", self._env.action_spec(), subject, writer)

    def _converted(
        self,
        part: str,
        theirs: Any,
        subject: str,
        make_leaf: Callable[[Any, ArraySpec, Refuse], Leaf],
    ) -> tuple[NestedSpec, Converter]:
        def spec_of(leaf: Any, path: str) -> ArraySpec:
            return spec_from_dm_env(
                leaf, path, narrow=part in self._narrow, text_length=self._text_length
            )

        def leaf_of(leaf: Any, path: str) -> Leaf:
            spec = spec_of(leaf, path)

            def refuse(value: Any, reason: str) -> SpecError:
                return SpecError.does_not_fit(
                    subject,
                    path=path,
                    root=part,
                    expected=repr(spec),
                    got=describe(value),
                    reason=reason,
                )

            return make_leaf(leaf, spec, refuse)

        specs = map_with_paths(spec_of, theirs, part)
        leaves = map_with_paths(leaf_of, theirs, part)
        return specs, Converter(specs, leaves, subject=subject, root=part)

    @property
    def dm_env(self) -> Any:
        """The environment of dm_env."""
        return self._env

    def wrapped_env(self) -> Any:
        """Returns the environment of dm_env, as wrappers do."""
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
        """Seeds the environment at the next reset.

        dm_env knows no seeds. Where the environment has a method `seed`, that is asked;
        otherwise every random generator is seeded that the environment, those that it
        wraps, or their tasks hold. What was random when the environment was made, as
        parts of some models are, stays as it is.
        """
        if isinstance(self._env, PyToDMWrapper):
            self._env.seed(seed)  # That is for the next reset, too.
            return
        if not self._has("seed") and not generators_of(parts_of(self._env)):
            raise NotImplementedError(
                f"{self._name} cannot be seeded: dm_env knows no seeds, and neither "
                "the environment nor its task has a random generator. Give it a seed "
                "when you make it."
            )
        self._noted_seed = seed
        (self._next_seed,) = checked_seeds(seed, 1)
        if self._next_seed is None:
            self._next_seed = int(np.random.SeedSequence().generate_state(1)[0])

    def get_info(self) -> Any:
        """Returns the environment's info, which few of dm_env's have."""
        return self._env.get_info() if self._has("get_info") else super().get_info()

    def render(self, mode: str = "rgb_array") -> Array:
        """Returns a picture from the physics, if there is one.

        MuJoCo needs a way to draw. On a machine without a display,
        `suite_dm_control.load` has it look for EGL and OSMesa; who imports dm_control
        before sets the environment variable `MUJOCO_GL` to one of them.
        """
        self._check_open("render")
        if isinstance(self._env, PyToDMWrapper) and self._env.row is None:
            return self._env.render(mode)  # type: ignore[no-any-return]  # a picture
        physics = getattr(self._env, "physics", None)
        if physics is None or not hasattr(physics, "render"):
            raise NotImplementedError(
                f"{self._name} cannot render: it has no physics to draw."
            )
        if mode != "rgb_array":
            raise ValueError(f"{self._name} renders 'rgb_array' only, not {mode!r}.")
        if is_mujoco(physics):
            check_can_draw(self._name)
        return np.array(physics.render(**self._render_kwargs))

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            if self._has("close"):
                self._env.close()

    def _has(self, method: str) -> bool:
        return callable(getattr(self._env, method, None))

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        if self._next_seed is not None:
            if self._has("seed"):
                self._env.seed(self._next_seed)
            else:
                reseed(generators_of(parts_of(self._env)), self._next_seed)
            self._next_seed = None
        return self._convert(self._env.reset(), "reset")

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed:
            self._check_open("step")
        return self._convert(self._env.step(self._to_action(action)), "step")

    def _convert(self, theirs: Any, call: str) -> TimeStep:
        # Hot: called once per step.
        try:
            step_type = _STEP_TYPES[int(theirs.step_type)]
        except (AttributeError, KeyError, TypeError):
            self._refuse(theirs, call)
        observation = self._to_observation(theirs.observation)
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
            self._to_reward(theirs.reward),
            self._to_discount(theirs.discount),
            observation,
        )

    def _refuse(self, theirs: Any, call: str) -> NoReturn:
        if hasattr(theirs, "step_type"):
            raise SpecError(
                f"{self._name}.{call}() returned a time step with the step type "
                f"{theirs.step_type!r:.40}. FIRST is 0, MID is 1, LAST is 2."
            )
        raise SpecError(
            f"{self._name}.{call}() returned {describe(theirs)}, not a dm_env.TimeStep."
        )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> Any:
        if self._has("get_state") and self._has("set_state"):
            return self._env.get_state(), self._next_seed
        return save_state(self._env, self._name, self._next_seed)

    def _set_state(self, state: Any) -> None:
        if self._has("get_state") and self._has("set_state"):
            own, self._next_seed = state
            self._env.set_state(own)
        else:
            self._next_seed = restore_state(self._env, self._name, state)


def _checked_parts(parts: Collection[str]) -> frozenset[str]:
    if isinstance(parts, str):
        raise TypeError(f"as_float32 is a string; it is a list of names: [{parts!r}].")
    unknown = sorted(set(parts) - set(_PARTS))
    if unknown:
        raise ValueError(
            f"as_float32 has no part {unknown[0]!r}. The parts are {', '.join(_PARTS)}."
        )
    return frozenset(parts)


def _zeros(spec: ArraySpec) -> Array:
    return np.zeros(spec.shape, spec.dtype)


def _ones(spec: ArraySpec) -> Array:
    return np.ones(spec.shape, spec.dtype)
