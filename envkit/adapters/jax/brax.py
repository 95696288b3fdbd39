"""`BraxWrapper`: an environment of Brax, or of MuJoCo Playground, as a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.adapters.jax.functional import FunctionalEnvironment, check_single
from envkit.adapters.jax.program import OfEnvironment
from envkit.specs.arrays import BoundedArraySpec
from envkit.types import Seed

__all__ = ["BraxWrapper"]


class BraxWrapper(FunctionalEnvironment):
    """Makes an environment, or a batch, of an environment of Brax.

    Everything that looks like one will do: `reset` for a key, `step` for a state and an
    action, and an `action_size`. Those of MuJoCo Playground are such.

    | Brax                                      | time step                |
    |-------------------------------------------|--------------------------|
    | `reset`                                   | `FIRST`, reward 0        |
    | `done`                                    | `LAST`, discount 0       |
    | `done`, and `truncation` in the info      | `LAST`, discount as given |

    The metrics are the info. Public attributes that the wrapper does not have are those
    of the environment.

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
        """Wraps an environment, which has no state and may serve several wrappers.

        Args:
            env: The environment, for one row and without the beginnings of the next
                episodes, as `get_environment` returns it. An `EpisodeWrapper` may
                truncate it.
            batch_size: How many rows; `None` for a single environment.
            seed: What is random depends on it, as if given to `seed()`.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            reward_dtype: What rewards become.
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
        """The environment of Brax."""
        return self._foreign


class _Reset(OfEnvironment):
    """Begins an episode."""

    __slots__ = ()

    def __call__(self, key: Any, params: Any) -> Any:
        """Returns an observation and a state."""
        state = self._env.reset(key)
        return state.obs, state


class _Step(OfEnvironment):
    """Goes on with an episode."""

    __slots__ = ()

    def __call__(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Returns what a functional environment's step returns."""
        state = self._env.step(state, action)
        done = state.done.astype(bool)
        # What an EpisodeWrapper says; without one nothing truncates.
        truncated = done & (state.info.get("truncation", np.float32(0)) > 0)
        terminated = done & ~truncated
        return state.obs, state, state.reward, terminated, truncated, state.metrics
