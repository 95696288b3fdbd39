"""`BraxWrapper`: a Brax or MuJoCo Playground environment as a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.adapters.jax.functional import FunctionalEnvironment, check_single
from envkit.adapters.jax.program import OfEnvironment
from envkit.specs.arrays import BoundedArraySpec
from envkit.types import Seed

__all__ = ["BraxWrapper"]


class BraxWrapper(FunctionalEnvironment):
    """Makes an environment, or a batch, from a Brax environment.

    Any object with its methods is accepted: `reset` takes a key, `step` takes a state
    and an action, and there is an `action_size`. MuJoCo Playground's environments
    qualify.

    | Brax                                      | time step                |
    |-------------------------------------------|--------------------------|
    | `reset`                                   | `FIRST`, reward 0        |
    | `done`                                    | `LAST`, discount 0       |
    | `done`, and `truncation` in the info      | `LAST`, discount as given |

    The metrics are the info. Public attributes that the wrapper lacks are taken from
    the environment.

    Example:
        >>> from brax import envs  # doctest: +SKIP
        >>> env = BraxWrapper(envs.get_environment("ant"), batch_size=64)
        ... # doctest: +SKIP
    """

    def __init__(
        self,
        env: Any,
        *,
        batch_size: int | None = None,
        seed: Seed = None,
        discount: float = 1.0,
        reward_dtype: Any = np.float32,
    ) -> None:
        """Wraps an environment, which is stateless and may serve several wrappers.

        Args:
            env: The environment, for one row and without automatic resets, as
                `get_environment` returns it. An `EpisodeWrapper` may truncate it.
            batch_size: The number of rows; `None` for a single environment.
            seed: The seed, as if passed to `seed()`.
            discount: The discount of steps that do not terminate the episode.
            reward_dtype: The dtype of rewards.
        """
        check_single(
            env,
            ("reset", "step", "action_size"),
            inner="env",
            wrapper="BraxWrapper",
            library="Brax",
            maker="brax.envs.get_environment(...)",
        )
        self._foreign = env
        size = int(env.action_size)
        super().__init__(
            _Reset(env),
            _Step(env),
            BoundedArraySpec((size,), np.float32, -1.0, 1.0, "action"),
            batch_size=batch_size,
            seed=seed,
            discount=discount,
            reward_dtype=reward_dtype,
            name=type(getattr(env, "unwrapped", env)).__name__,
        )

    @property
    def brax(self) -> Any:
        """The Brax environment."""
        return self._foreign


class _Reset(OfEnvironment):
    """Begins an episode."""

    __slots__ = ()

    def __call__(self, key: Any, params: Any) -> Any:
        """Returns an observation and a state."""
        state = self._env.reset(key)
        return state.obs, state


class _Step(OfEnvironment):
    """Continues an episode."""

    __slots__ = ()

    def __call__(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Returns the result of a functional environment's step."""
        state = self._env.step(state, action)
        done = state.done.astype(bool)
        # Set by an EpisodeWrapper; without one, nothing truncates.
        truncated = done & (state.info.get("truncation", np.float32(0)) > 0)
        terminated = done & ~truncated
        return state.obs, state, state.reward, terminated, truncated, state.metrics
