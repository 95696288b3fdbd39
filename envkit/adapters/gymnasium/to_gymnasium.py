"""`PyToGymnasium`: an envkit environment for Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from envkit import nest
from envkit.adapters.episode_info import with_ended_alone
from envkit.adapters.foreign import (
    LateBase,
    as_info,
    forwarded_to_library,
    handed_options,
    rendered,
    require,
    take_flags,
    told_of_losses,
)
from envkit.adapters.gymnasium.conversion import from_member, to_member
from envkit.adapters.gymnasium.rows import own_or_first
from envkit.adapters.gymnasium.spaces import space_from_spec
from envkit.adapters.losses import loss_info
from envkit.extend import as_environment, describe, may_lose, set_attribute
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import StepType, TimeStep

__all__ = ["PyToGymnasium", "check_scalars", "metadata_of", "render_mode_of"]

_MID, _FIRST = StepType.MID, StepType.FIRST


class PyToGymnasium(LateBase):
    """Makes a Gymnasium environment from an envkit environment.

    It is a `gymnasium.Env`.

    | envkit                             | Gymnasium                                   |
    |------------------------------------|---------------------------------------------|
    | `seed`, `reset`                    | `reset(seed=...)`                           |
    | `LAST` with discount 0             | terminated                                  |
    | `LAST` with a discount above 0     | truncated                                   |
    | `get_info`                         | the info; if it has both flags, they are    |
    |                                    | used                                        |
    | any other discount                 | `info["discount"]`                          |
    | `LAST` for a lost environment      | truncated; `info["repaired"]` is True, and  |
    |                                    | `info["loss"]` is its `Loss`                |

    After the end of an episode, `step` raises until `reset`. Public attributes of the
    environment that are not part of every `PyEnvironment` are the adapter's too.

    Example:
        >>> from envkit.envs import Catch
        >>> env = PyToGymnasium(Catch(), render_mode="rgb_array")
        >>> env.observation_space, env.action_space
        (Box(0.0, 1.0, (10, 5), float32), Discrete(3))
        >>> observation, info = env.reset(seed=7)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> reward, terminated, truncated, info["episode_steps"]
        (0.0, False, False, array(1))
    """

    @classmethod
    def _load_base(cls) -> type:
        require("gymnasium", needed_by="PyToGymnasium", extra="gymnasium")
        import gymnasium

        return gymnasium.Env

    def __init__(self, env: Any, render_mode: str | None = None) -> None:
        """Wraps an environment; closing the adapter closes the environment.

        Args:
            env: A single environment, of envkit or of another library.
            render_mode: The mode of `render`. `None` for the environment's own render
                mode, if it has one.
        """
        env = as_environment(env, "PyToGymnasium was given")
        _check_single(env)
        self._env = env
        self._name = type(env).__name__
        check_scalars(env, "PyToGymnasium")
        self.render_mode = render_mode_of(env, render_mode)
        self.metadata = metadata_of(env, self.render_mode)
        self.observation_space = space_from_spec(env.observation_spec())
        self.action_space = space_from_spec(env.action_spec())
        self._compile()
        # True if the reward is a single number.
        self._has_number = env.reward_spec().shape == ()
        self._has_info = True
        self._may_lose = may_lose(env)
        self._is_over = True

    def _compile(self) -> None:
        """Makes the conversion functions."""
        self._to_observation = to_member(
            self.observation_space, self._env.observation_spec()
        )
        spec = self._env.action_spec()
        to_action = from_member(
            self.action_space,
            spec,
            subject="PyToGymnasium.step() was given an action that",
            root="action",
            bounded=True,
        )
        self._to_action = _integers_first(spec, to_action)

    def __getstate__(self) -> dict[str, Any]:
        # Functions do not pickle.
        compiled = ("_to_observation", "_to_action")
        return {key: value for key, value in vars(self).items() if key not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def __getattr__(self, name: str) -> Any:
        return forwarded_to_library(self, self.wrapped_env, name)

    def wrapped_env(self) -> Any:
        """Returns the envkit environment."""
        return self._env

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Sets an attribute on the adapter if it has it, otherwise on an inner object.

        Args:
            name: The attribute's name.
            value: The new value.
            force: Whether to set it if neither has it.
        """
        own = name in vars(self) or hasattr(type(self), name)
        if not (force or own or hasattr(self._env, name)):
            return False
        if own:
            setattr(self, name, value)
        else:
            set_attribute(self._env, name, value)
        return True

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: The seed; `None` does not reseed.
            options: The options of this reset. If the environment takes none, they are
                ignored, and a line in the log says so.
        """
        super().reset(seed=seed)  # type: ignore[misc]  # Gymnasium's, which comes late
        if seed is not None:
            self._seed(seed)
        with handed_options(self._env, options):
            time_step = self._env.reset()
        self._is_over = False
        _, _, info = self._ends(time_step)
        return self._to_observation(time_step.observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Applies an action."""
        # Hot: called once per step.
        if self._is_over:
            self._refuse_step()
        time_step = self._env.step(self._to_action(action))
        terminated, truncated, info = self._ends(time_step)
        if terminated or truncated:
            self._is_over = True
        reward = time_step.reward
        if self._has_number:
            reward = float(reward)
        observation = self._to_observation(time_step.observation)
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """Returns a rendering in the adapter's mode."""
        return rendered(self._env, self.render_mode, f"PyToGymnasium({self._name})")

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _seed(self, seed: int) -> None:
        with told_of_losses("seed", self._name):
            self._env.seed(seed)

    def _ends(self, time_step: TimeStep) -> tuple[bool, bool, dict[str, Any]]:
        """Returns both flags and the info of a time step."""
        # Hot: comparing arrays costs more than comparing identities.
        info = self._info()
        flags = take_flags(info)
        step_type, discount = time_step.step_type, float(time_step.discount)
        if step_type is _MID or step_type is _FIRST or not time_step.is_last():
            if discount != 1.0:
                info["discount"] = discount
            return False, False, info
        terminated, truncated = discount == 0.0, discount != 0.0
        if flags is not None and any(flags):
            terminated, truncated = flags
        if discount != (0.0 if terminated else 1.0):
            info["discount"] = discount
        if self._may_lose and self._env.repaired:
            (loss,) = self._env.current_losses().values()
            info.update(loss_info(loss))
        return terminated, truncated, info

    def _info(self) -> dict[str, Any]:
        if self._has_info:
            try:
                return with_ended_alone(as_info(self._env.get_info()))
            except NotImplementedError:
                self._has_info = False
        return {}

    def _refuse_step(self) -> NoReturn:
        from gymnasium.error import ResetNeeded

        raise ResetNeeded(
            f"PyToGymnasium({self._name}).step() was called before reset(), or after "
            "the end of an episode. Call reset() first."
        )


def _integers_first(spec: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns an action converter with a fast path for integers."""
    if not isinstance(spec, BoundedArraySpec) or spec.shape or spec.dtype.kind != "i":
        return convert
    low, high, dtype = int(spec.minimum), int(spec.maximum), spec.dtype

    def to_action(value: Any) -> Any:
        # Hot: called once per step.
        kind = type(value)
        if (kind is int or kind is np.int64) and low <= value <= high:
            return np.array(value, dtype)
        return convert(value)

    return to_action


def check_scalars(env: Any, adapter: str) -> None:
    """Raises for rewards and discounts that Gymnasium does not support."""
    for name in ("reward", "discount"):
        spec = getattr(env, f"{name}_spec")()
        if nest.is_nested(spec) or (name == "discount" and spec.shape != ()):
            raise ValueError(
                f"{adapter} was given {type(env).__name__}, whose {name}_spec() is "
                f"{_text_of(spec)}; in Gymnasium the {name} is one "
                f"{'array' if name == 'reward' else 'number'}."
            )


def metadata_of(env: Any, render_mode: str | None) -> dict[str, Any]:
    """Returns an environment's metadata in Gymnasium's form."""
    given = own_or_first(env, "metadata")
    metadata: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    modes = list(metadata.get("render_modes") or _modes_of(env))
    if render_mode is not None and render_mode not in modes:
        modes.append(render_mode)
    # The frame rate is a default; envkit has none.
    return {"render_fps": 30, **metadata, "render_modes": modes}


def _modes_of(env: Any) -> list[str]:
    """Returns the render modes that an envkit environment lists.

    Without "human", because Gymnasium shows pictures in a window of its own.
    """
    modes = own_or_first(env, "render_modes")
    known = modes if isinstance(modes, list | tuple) else ()
    return [mode for mode in known if mode != "human"]


def render_mode_of(env: Any, given: str | None) -> str | None:
    """Returns the given render mode, or else the environment's own.

    For a batch, it is the first environment's mode.
    """
    mode = own_or_first(env, "render_mode") if given is None else given
    return mode if isinstance(mode, str) else None


def _text_of(spec: Any) -> str:
    return repr(spec) if isinstance(spec, ArraySpec) else describe(spec)


def _check_single(env: Any) -> None:
    if env.batched:
        raise ValueError(
            f"PyToGymnasium was given {type(env).__name__}, which is a batch: "
            "PyToGymnasiumVector takes those."
        )
