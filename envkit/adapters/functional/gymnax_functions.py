"""The two functions of an environment of gymnax.

Its own `step` begins the next episode by itself, and puts its observation where the
final one was. `step_env` does not; whether the time is up `is_truncated` says then.
"""

from __future__ import annotations

from typing import Any

__all__ = ["GymnaxReset", "GymnaxStep", "OfEnvironment"]


class OfEnvironment:
    """A function of an environment, equal to another one of the very same.

    What was compiled for one is thus found again for the other.
    """

    __slots__ = ("_env",)

    def __init__(self, env: Any) -> None:
        """Keeps the environment."""
        self._env = env

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._env is other._env

    def __hash__(self) -> int:
        return hash((type(self), id(self._env)))


class GymnaxReset(OfEnvironment):
    """Begins an episode."""

    __slots__ = ()

    def __call__(self, key: Any, params: Any) -> Any:
        """Returns an observation and a state."""
        env = self._env
        begin = env.reset_env if hasattr(env, "reset_env") else env.reset
        return begin(key, params)


class GymnaxStep(OfEnvironment):
    """Goes on with an episode, and begins no other."""

    __slots__ = ()

    def __call__(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Returns what a functional environment's step returns."""
        env = self._env
        if not hasattr(env, "step_env"):
            return _with_final_observation(env.step(key, state, action, params))
        result = env.step_env(key, state, action, params)
        # Before gymnax 1.0 there was `done`, which does not say why.
        if len(result) != 5 or not hasattr(env, "is_truncated"):
            return tuple(result)
        observation, state, reward, terminated, info = result
        truncated = env.is_truncated(state, params)
        return observation, state, reward, terminated, truncated, info


def _with_final_observation(result: Any) -> tuple[Any, ...]:
    """Puts the final observation in its place, where a step begins episodes itself."""
    observation, *middle, info = result
    if isinstance(info, dict) and "final_observation" in info:
        info = dict(info)
        observation = info.pop("final_observation")
    return (observation, *middle, info)
