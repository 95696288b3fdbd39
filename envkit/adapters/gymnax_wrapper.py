"""`GymnaxWrapper`: an environment of gymnax as a batch that steps on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.forwarding import forwarded
from envkit.adapters.functional.gymnax_functions import GymnaxReset, GymnaxStep
from envkit.adapters.functional.jax_spaces import action_spec_from_space, with_bounds
from envkit.adapters.functional_env import FunctionalEnvironment
from envkit.specs.validation import describe
from envkit.types import NestedSpec, Seed

__all__ = ["GymnaxWrapper"]


class GymnaxWrapper(FunctionalEnvironment):
    """Makes an environment, or a batch, of an environment of gymnax.

    Everything that looks like one will do: `reset_env` and `step_env`, or `reset` and
    `step`, for a key, a state, an action and parameters.

    | gymnax                           | time step                                  |
    |----------------------------------|--------------------------------------------|
    | `reset_env`                      | `FIRST`, reward 0, discount 1              |
    | `step_env`, no flag              | `MID`, discount as given to the wrapper    |
    | truncated                        | `LAST`, discount as given to the wrapper   |
    | terminated, or both, or `done`   | `LAST`, discount 0                         |

    Episodes do not begin within a step as they do in gymnax's own `step`, so the
    observation of a `LAST` is the final one, and the next step returns the `FIRST`.

    Public attributes that the wrapper does not have are those of the environment.

    Example:
        >>> import gymnax  # doctest: +SKIP
        >>> env = GymnaxWrapper(gymnax.make("CartPole-v1")[0], batch_size=64)
        ... # doctest: +SKIP
        >>> env.seed(7)  # doctest: +SKIP
        >>> env.reset().observation.shape  # doctest: +SKIP
        (64, 4)
    """

    def __init__(
        self,
        env: Any,
        params: Any = None,
        *,
        batch_size: int | None = None,
        seed: Seed = None,
        discount: float = 1.0,
        reward_dtype: Any = np.float32,
        observation_bounds: bool = True,
    ) -> None:
        """Wraps an environment, which has no state and may serve several wrappers.

        Args:
            env: The environment; `gymnax.make` returns it with its parameters.
            params: Parameters; a dictionary for those that differ from the
                environment's `default_params`, `None` for these.
            batch_size: How many rows; `None` for a single environment.
            seed: What is random depends on it, as if given to `seed()`.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            reward_dtype: What rewards become.
            observation_bounds: Whether the specs have the bounds of the
                `observation_space`. Some environments do not keep to them.
        """
        self._observation_bounds = observation_bounds
        params = _params_of(_checked(env), params)
        self._env = env
        super().__init__(
            GymnaxReset(env),
            GymnaxStep(env),
            action_spec_from_space(env.action_space(params)),
            params=params,
            batch_size=batch_size,
            seed=seed,
            discount=discount,
            reward_dtype=reward_dtype,
            name=str(getattr(env, "name", type(env).__name__)),
        )

    @property
    def gymnax(self) -> Any:
        """The environment of gymnax."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._env, name)

    def _find_observation_spec(self, found: NestedSpec) -> NestedSpec:
        space = getattr(self._env, "observation_space", None)
        if space is None or not self._observation_bounds:
            return found
        return with_bounds(found, space(self._params))


def _checked(env: Any) -> Any:
    if isinstance(env, tuple) and len(env) == 2:
        raise TypeError(
            "GymnaxWrapper was given a pair; gymnax.make returns the environment and "
            "its parameters: GymnaxWrapper(*gymnax.make(...))."
        )
    needed = ("reset", "step", "action_space")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"GymnaxWrapper was given {what}, which is not an environment of gymnax. "
            "gymnax.make(...) makes one."
        )
    if hasattr(env, "step_env") and not hasattr(type(env), "step_env"):
        raise TypeError(
            f"GymnaxWrapper was given the wrapper {type(env).__name__}. Wrappers of "
            "gymnax see the next episode in place of an episode's end. Pass the "
            "environment itself, and wrap it in what envkit.wrappers has."
        )
    return env


def _params_of(env: Any, params: Any) -> Any:
    if params is None:
        return getattr(env, "default_params", None)
    if not isinstance(params, Mapping):
        return params
    default = getattr(env, "default_params", None)
    unknown = [name for name in params if not hasattr(default, name)]
    if unknown:
        known = ", ".join(sorted(vars(default))) if default is not None else "none"
        raise ValueError(
            f"{type(env).__name__} has no parameter {unknown[0]!r}. Its parameters "
            f"are {known}."
        )
    return default.replace(**params)  # type: ignore[union-attr]  # it has all of them
