"""`Env`: the base class of URNAI's environments, and what chooses their actions."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

__all__ = ["Env", "Menu"]


class Env(abc.ABC):
    """What environments of URNAI have in common.

    A subclass implements `start`, which makes `env_instance`, `step`, `reset` and
    `close`.

    Attributes:
        id: What the environment is called.
        render: Whether it shows itself.
        reset_done: What it was made with; URNAI keeps it, and so does this.
        env_instance: The environment of the library; `None` until `start`, and after
            `close`.
    """

    def __init__(self, _id: Any, render: bool = False, reset_done: bool = True) -> None:
        """Keeps what every environment is made with."""
        self.id = _id
        self.render = render
        self.reset_done = reset_done
        self.env_instance: Any = None

    @abc.abstractmethod
    def start(self) -> None:
        """Makes `env_instance`, unless there is one."""

    @abc.abstractmethod
    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it is over."""

    @abc.abstractmethod
    def reset(self) -> Any:
        """Begins an episode and returns an observation; starts if need be."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees `env_instance`; calling it again does nothing."""

    def restart(self) -> Any:
        """Closes, begins anew, and returns an observation."""
        self.close()
        return self.reset()


class Menu:
    """Chooses actions by their place in a list, as an action wrapper of URNAI does.

    Example:
        >>> menu = Menu(["left", "right"])
        >>> menu.get_actions(), menu.get_action(1, None)
        ([0, 1], 'right')
    """

    def __init__(self, actions: Sequence[Any], names: Sequence[str] | None = None):
        """Makes a menu.

        Args:
            actions: What the environment's `step` takes.
            names: What they are called.
        """
        self._actions = list(actions)
        self._names = list(map(str, actions if names is None else names))

    def is_action_done(self) -> bool:
        """Says whether another action can be chosen: always."""
        return True

    def reset(self) -> None:
        """Forgets about an action under way, of which there is none."""

    def get_actions(self) -> list[int]:
        """Returns the places in the list."""
        return list(range(len(self._actions)))

    def get_excluded_actions(self, obs: Any) -> list[int]:
        """Returns the places that cannot be chosen now: none."""
        return []

    def get_action(self, action_idx: int, obs: Any) -> Any:
        """Returns what stands at a place."""
        return self._actions[action_idx]

    def get_named_actions(self) -> list[str]:
        """Returns what the actions are called."""
        return list(self._names)

    def get_action_space_dim(self) -> int:
        """Returns how many actions there are."""
        return len(self._actions)
