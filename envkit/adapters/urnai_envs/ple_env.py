"""`PLEEnv`: a game of PLE with the interface of URNAI."""

from __future__ import annotations

from typing import Any

from envkit.adapters.ple_parts.building import as_ple, require_ple
from envkit.adapters.urnai_envs.env import Env, Menu

__all__ = ["PLEEnv"]


class PLEEnv(Env):
    """Plays a game of PLE: observations are its state, actions are codes of keys.

    As in URNAI, a process has one game at a time: pygame has one display. `PLEWrapper`
    has more to offer, pictures and specs among it.
    """

    def __init__(
        self,
        game: Any,
        _id: str | None = None,
        render: bool = True,
        reset_done: bool = True,
        num_steps: int = 100,
    ) -> None:
        """Makes the game's PLE.

        Args:
            game: A game of PLE, its class, or a PLE; or a function that makes one.
            _id: What to call it; `None` for the name of its class.
            render: Whether a window shows it.
            reset_done: Kept as an attribute.
            num_steps: Kept as an attribute.
        """
        kind = game if isinstance(game, type) else type(game)
        super().__init__(kind.__name__ if _id is None else _id, render, reset_done)
        self.game = game
        self.num_steps = num_steps
        self.start()

    def start(self) -> None:
        """Makes and initialises a PLE, unless there is one."""
        if self.env_instance is not None:
            return
        game = self.game
        if callable(game) and not isinstance(game, type) and not hasattr(game, "step"):
            game = game()
        if hasattr(game, "act"):
            self.env_instance = game
        else:
            require_ple("PLEEnv")
            settings = {"fps": 30, "display_screen": self.render}
            self.env_instance = as_ple(game, settings)
        self.env_instance.init()

    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Presses a key, by its code or `None`; returns state, reward and end."""
        game = self.env_instance
        reward = game.act(action)
        return game.getGameState(), reward, bool(game.game_over())

    def reset(self) -> Any:
        """Begins an episode and returns the state of the game."""
        self.start()
        self.env_instance.reset_game()
        return self.env_instance.getGameState()

    def close(self) -> None:
        """Lets go of the PLE; calling it again does nothing."""
        self.env_instance = None

    def get_action_wrapper(self) -> Menu:
        """Returns what chooses keys by their place in PLE's list of them."""
        self.start()
        return Menu(self.env_instance.getActionSet())
