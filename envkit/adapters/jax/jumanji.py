"""`JumanjiWrapper`: a Jumanji environment as a batch on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.adapters.jax.functional import FunctionalEnvironment, check_single
from envkit.adapters.jax.program import OfEnvironment
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import StepType
from envkit.types import Seed

__all__ = ["JumanjiWrapper"]

_LAST = int(StepType.LAST)


class JumanjiWrapper(FunctionalEnvironment):
    """Makes an environment, or a batch, from a Jumanji environment.

    | Jumanji                                  | time step                          |
    |------------------------------------------|------------------------------------|
    | `FIRST`                                  | `FIRST`, reward 0, discount 1      |
    | `MID`                                    | `MID`, discount as given           |
    | `LAST`, discount 0 for all agents        | `LAST`, discount 0                 |
    | `LAST`, another discount                 | `LAST`, discount as given          |

    Observations keep their nest, including the action mask if there is one; the extras
    are the info. Public attributes that the wrapper lacks are taken from the
    environment.

    Example:
        >>> import jumanji  # doctest: +SKIP
        >>> env = JumanjiWrapper(jumanji.make("Snake-v1"), batch_size=64)
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
                `jumanji.make` returns it.
            batch_size: The number of rows; `None` for a single environment.
            seed: The seed, as if passed to `seed()`.
            discount: The discount of steps that do not terminate the episode.
            reward_dtype: The dtype of rewards.
        """
        check_single(
            env,
            ("reset", "step", "action_spec", "observation_spec"),
            inner="_env",
            wrapper="JumanjiWrapper",
            library="Jumanji",
            maker="jumanji.make(...)",
        )
        self._foreign = env
        super().__init__(
            _Reset(env),
            _Step(env),
            _action_spec(env),
            batch_size=batch_size,
            seed=seed,
            discount=discount,
            reward_dtype=reward_dtype,
            name=type(getattr(env, "unwrapped", env)).__name__,
        )

    @property
    def jumanji(self) -> Any:
        """The Jumanji environment."""
        return self._foreign


def _action_spec(env: Any) -> ArraySpec:
    spec = env.action_spec
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise TypeError(
            f"The action spec of {type(env).__name__} is {describe(spec)}. It must be "
            "the spec of one array."
        )
    shape, dtype = tuple(spec.shape), np.dtype(spec.dtype)
    if not hasattr(spec, "minimum"):
        return ArraySpec(shape, dtype, "action")
    low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
    return BoundedArraySpec(shape, dtype, low, high, "action")


class _Reset(OfEnvironment):
    """Begins an episode."""

    __slots__ = ()

    def __call__(self, key: Any, params: Any) -> Any:
        """Returns an observation and a state."""
        state, time_step = self._env.reset(key)
        return time_step.observation, state


class _Step(OfEnvironment):
    """Continues an episode."""

    __slots__ = ()

    def __call__(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Returns the result of a functional environment's step."""
        state, time_step = self._env.step(state, action)
        is_last = time_step.step_type == _LAST
        terminated = is_last & (time_step.discount == 0.0).all()
        return (
            time_step.observation,
            state,
            time_step.reward,
            terminated,
            is_last & ~terminated,
            time_step.extras or {},
        )
