"""`Env`: the base class of URNAI's environments, and what chooses their actions."""

from __future__ import annotations

import abc
import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Env", "Menu"]


class Env(abc.ABC):
    """What environments of URNAI have in common.

    A subclass implements `start`, which makes `env_instance`, `step`, `reset` and
    `close`. URNAI's trainer calls `save` and `load`, which take a folder: the
    attributes that pickle are kept there in a file named after the class, as URNAI
    keeps them. What must be kept in another way goes into `save_extra` and
    `load_extra`.

    Attributes:
        id: What the environment is called.
        render: Whether it shows itself.
        reset_done: What it was made with; URNAI keeps it, and so does this.
        env_instance: The environment of the library; `None` until `start`, and after
            `close`.
        pickle_black_list: Names of attributes that `save` leaves out and `load` does
            not touch.
    """

    def __init__(self, _id: Any, render: bool = False, reset_done: bool = True) -> None:
        """Keeps what every environment is made with."""
        self.id = _id
        self.render = render
        self.reset_done = reset_done
        self.env_instance: Any = None
        self.pickle_black_list: list[str] = []

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

    def save(self, savepath: str) -> None:
        """Saves the attributes that pickle in a folder, then what `save_extra` saves.

        Example:
            >>> import tempfile
            >>> from envkit.adapters.urnai import GymEnv
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     GymEnv("CartPole-v1", num_steps=7).save(folder)
            ...     env = GymEnv("CartPole-v1")
            ...     env.load(folder)
            >>> env.num_steps
            7
        """
        self.save_pickle(savepath)
        self.save_extra(savepath)

    def load(self, loadpath: str) -> None:
        """Restores what `save` kept in a folder; an empty folder changes nothing.

        Unpickling runs code that the file names, so load only what you have saved.
        """
        self.load_pickle(loadpath)
        self.load_extra(loadpath)

    # Most subclasses need neither of these two.
    def save_extra(self, persist_path: str) -> None:  # noqa: B027
        """Saves what pickling cannot keep; a subclass with such parts overrides it."""

    def load_extra(self, persist_path: str) -> None:  # noqa: B027
        """Loads what `save_extra` has saved."""

    def save_pickle(self, persist_path: str) -> None:
        """Writes the file of the attributes that pickle."""
        content = pickle.dumps(self.get_pickleable_dict())
        os.makedirs(persist_path, exist_ok=True)
        with open(self.get_full_persistance_pickle_path(persist_path), "wb") as file:
            file.write(content)

    def load_pickle(self, persist_path: str) -> None:
        """Reads the file of the attributes, if there is one."""
        path = self.get_full_persistance_pickle_path(persist_path)
        if os.path.isfile(path) and os.path.getsize(path):
            with open(path, "rb") as file:
                self.restore_pickleable_attributes(pickle.load(file))

    def get_pickleable_dict(self) -> dict[str, Any]:
        """Returns the attributes that `save` keeps: no functions, and what pickles."""
        kept = self._without_black_list(vars(self))
        return {
            name: value
            for name, value in kept.items()
            if not callable(value) and _pickles(value)
        }

    def restore_pickleable_attributes(self, dict_to_restore: Mapping[str, Any]) -> None:
        """Sets the attributes that were saved, but for those of the black list."""
        vars(self).update(self._without_black_list(dict_to_restore))

    def _without_black_list(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        # A subclass may have no list, or put None there, as URNAI's trainer does.
        left_out = {"pickle_black_list"}
        left_out.update(getattr(self, "pickle_black_list", None) or ())
        return {name: attributes[name] for name in attributes if name not in left_out}

    def get_default_save_stamp(self) -> str:
        """Returns what the names of this environment's files begin with."""
        return f"{type(self).__name__}_"

    def get_full_persistance_path(self, persist_path: str) -> str:
        """Returns what the paths of this environment's files in a folder begin with."""
        return os.path.join(persist_path, self.get_default_save_stamp())

    def get_full_persistance_pickle_path(self, persist_path: str) -> str:
        """Returns the path of the file of the attributes."""
        return f"{self.get_full_persistance_path(persist_path)}.pkl"


def _pickles(value: Any) -> bool:
    # Libraries refuse with errors of many kinds; each means the same here.
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


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
