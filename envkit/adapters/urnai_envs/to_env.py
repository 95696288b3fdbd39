"""`to_urnai`: an envkit environment with the interface of URNAI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.urnai_envs.env import Env, Menu
from envkit.py_environment import PyEnvironment
from envkit.specs.array_spec import BoundedArraySpec, is_discrete

__all__ = ["to_urnai"]


def to_urnai(env: PyEnvironment | Callable[[], PyEnvironment]) -> Env:
    """Gives an envkit environment the interface of URNAI.

    Args:
        env: An environment that is not batched, or what makes one when it is needed.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = to_urnai(CountingEnv(steps_per_episode=2))
        >>> env.reset(), env.step(0)[1:], env.step(0)[1:]
        (array(0, dtype=int32), (0.0, False), (1.0, True))
        >>> env.get_action_wrapper().get_actions()
        [0, 1]
    """
    return _EnvkitEnv(env)


class _EnvkitEnv(Env):
    """What `to_urnai` returns; `env_instance` is the environment of envkit."""

    def __init__(self, env: Any) -> None:
        is_env = isinstance(env, PyEnvironment)
        name = type(env).__name__ if is_env else getattr(env, "__name__", "env")
        super().__init__(name)
        self._make_env = None if is_env else env
        if is_env:
            self._use(env)

    def _use(self, env: PyEnvironment) -> None:
        if env.batched:
            raise TypeError(
                f"to_urnai() was given {type(env).__name__}, which is batched; URNAI "
                "knows single environments."
            )
        self.env_instance = env

    def start(self) -> None:
        """Makes the environment, unless there is one."""
        if self.env_instance is None:
            if self._make_env is None:
                raise RuntimeError(
                    f"{self.id} was closed. To start again, give to_urnai() something "
                    "to call that makes an environment."
                )
            self._use(self._make_env())

    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it is over."""
        step = self.env_instance.step(action)
        reward = step.reward
        is_number = isinstance(reward, np.ndarray) and reward.shape == ()
        return (
            step.observation,
            reward.item() if is_number else reward,
            bool(step.is_last()),
        )

    def reset(self) -> Any:
        """Begins an episode and returns an observation."""
        self.start()
        return self.env_instance.reset().observation

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        instance, self.env_instance = self.env_instance, None
        if instance is not None:
            instance.close()

    def restart(self) -> Any:
        """Begins anew, in another environment if one can be made."""
        if self._make_env is not None:
            self.close()
        return self.reset()

    def get_action_wrapper(self) -> Menu:
        """Returns what chooses actions by their number."""
        self.start()
        spec = self.env_instance.action_spec()
        is_number = isinstance(spec, BoundedArraySpec) and spec.shape == ()
        if not is_number or not is_discrete(spec):
            raise TypeError(f"{self.id} has no numbered actions, but {spec!r:.80}.")
        return Menu(range(int(spec.minimum), int(spec.maximum) + 1))
