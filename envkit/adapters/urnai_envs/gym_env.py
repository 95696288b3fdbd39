"""`GymEnv`: an environment of Gymnasium or Gym with the interface of URNAI."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np

from envkit.adapters.dependencies import require
from envkit.adapters.gym_environments import id_without_module
from envkit.adapters.old_gym.gym_ages import reset_takes_seed
from envkit.adapters.urnai_envs.env import Env, Menu

__all__ = ["GymEnv"]

_DRY_LAKE = "FrozenLakeNotSlippery-v0"


class GymEnv(Env):
    """Plays an environment of Gymnasium or, if it is not there, of Gym of any age.

    Example:
        >>> env = GymEnv("CartPole-v1")
        >>> observation = env.reset()
        >>> observation, reward, done = env.step(1)
        >>> float(reward), done
        (1.0, False)
        >>> env.close()
    """

    def __init__(
        self,
        id: str | None = None,  # noqa: A002  # as in URNAI
        render: bool = False,
        reset_done: bool = True,
        num_steps: int = 100,
        *,
        _id: str | None = None,
    ) -> None:
        """Makes the environment.

        Args:
            id: What the library calls it.
            render: Whether a window shows it.
            reset_done: Kept as an attribute.
            num_steps: Kept as an attribute.
            _id: Another name of `id`.
        """
        name = _id if id is None else id
        if name is None:
            raise TypeError("GymEnv needs the id of an environment: GymEnv('Name-v1').")
        super().__init__(name, render, reset_done)
        self.num_steps = num_steps
        self._is_new = True
        self._next_seed: int | None = None
        self.start()

    def start(self) -> None:
        """Makes the environment, unless there is one."""
        if self.env_instance is not None:
            return
        library = _library_of(self.id)
        self._is_new = library.__name__ == "gymnasium" or _is_new(library)
        # An environment of the new kind shows itself whenever it moves.
        show = {"render_mode": "human"} if self.render and self._is_new else {}
        self.env_instance = library.make(self.id, **show)

    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it is over."""
        result = self.env_instance.step(action)
        observation, reward, *ends = result[: len(result) - 1]
        self._show()
        return observation, reward, any(map(bool, ends))

    def seed(self, seed: int) -> None:
        """Seeds the environment at the next reset, which URNAI could not."""
        self._next_seed = seed

    def reset(self) -> Any:
        """Begins an episode and returns an observation."""
        self.start()
        arguments = {}
        if self._next_seed is not None:
            if self._is_new or reset_takes_seed(self.env_instance):
                arguments["seed"] = self._next_seed
            else:
                self.env_instance.seed(self._next_seed)
            self._next_seed = None
        result = self.env_instance.reset(**arguments)
        self._show()
        return result[0] if self._is_new else result

    def _show(self) -> None:
        if self.render and not self._is_new:
            self.env_instance.render()

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        instance, self.env_instance = self.env_instance, None
        if instance is not None:
            instance.close()

    def get_action_wrapper(self) -> Menu:
        """Returns what chooses actions by their number.

        Raises:
            TypeError: There is no number of actions.
        """
        self.start()
        space = self.env_instance.action_space
        if not isinstance(getattr(space, "n", None), int | np.integer):
            raise TypeError(
                f"{self.id} has no numbered actions; its action space is {space!r:.80}."
            )
        begin = int(getattr(space, "start", 0))
        return Menu(range(begin, begin + int(space.n)))


def _library_of(name: str) -> ModuleType:
    """Returns the library that has an environment: Gymnasium, if both do."""
    has_gym = importlib.util.find_spec("gym") is not None
    if importlib.util.find_spec("gymnasium") is not None:
        import gymnasium

        if _gymnasium_knows(name) or not has_gym:
            return gymnasium
    elif not has_gym:
        require("gymnasium", needed_by="GymEnv", extra="gymnasium")
    import gym

    if name == _DRY_LAKE:  # and Gymnasium is not there
        try:
            gym.spec(name)
        except gym.error.Error:
            _register_dry_lake(gym)
    return gym  # type: ignore[no-any-return]  # a module without types


def _gymnasium_knows(name: str) -> bool:
    """Says whether Gymnasium has an environment; registers what URNAI's Gym had."""
    import gymnasium

    known = gymnasium.registry
    bare_name = id_without_module(name)
    if bare_name == _DRY_LAKE and bare_name not in known:
        _register_dry_lake(gymnasium)
    if bare_name not in known and importlib.util.find_spec("ale_py") is not None:
        importlib.import_module("ale_py")  # which registers the games of Atari
    return bare_name in known


def _register_dry_lake(library: ModuleType) -> None:
    """Registers the environment that `import urnai.envs.gym` registers."""
    library.register(
        id=_DRY_LAKE,
        entry_point=f"{library.__name__}.envs.toy_text:FrozenLakeEnv",
        kwargs={"map_name": "4x4", "is_slippery": False},
        max_episode_steps=100,
        reward_threshold=0.78,
    )


def _is_new(gym: ModuleType) -> bool:
    """Says whether it is Gym 0.26, whose environments behave like Gymnasium's."""
    major, minor = (int(part) for part in gym.__version__.split(".")[:2])
    return (major, minor) >= (0, 26)
