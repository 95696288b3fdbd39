"""`VizdoomEnv`: a scenario of ViZDoom with the interface of URNAI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.urnai_envs.env import Env, Menu

__all__ = ["VizdoomEnv"]

_BUTTONS = (
    "ATTACK",
    "USE",
    "MOVE_FORWARD",
    "MOVE_BACKWARD",
    "MOVE_RIGHT",
    "MOVE_LEFT",
    "TURN_RIGHT",
    "TURN_LEFT",
)
_VARIABLES = (
    "KILLCOUNT",
    "ITEMCOUNT",
    "SECRETCOUNT",
    "DEATHCOUNT",
    "HITCOUNT",
    "HITS_TAKEN",
    "DAMAGECOUNT",
    "DAMAGE_TAKEN",
    "HEALTH",
    "ARMOR",
    "DEAD",
    "ATTACK_READY",
    "SELECTED_WEAPON",
    "SELECTED_WEAPON_AMMO",
    "POSITION_X",
    "POSITION_Y",
    "POSITION_Z",
)
_SIZES = {
    "RES_640X480": (640, 480),
    "RES_320X240": (320, 240),
    "RES_160X120": (160, 120),
}


class VizdoomEnv(Env):
    """Plays a map of Doom; every step that is not the last one costs 1.

    An observation is ViZDoom's `GameState`: `screen_buffer` in gray, `game_variables`
    and `automap_buffer`. At the end of an episode the game has none, so the last one is
    returned again. An action has a number for each of eight buttons.
    """

    RES_640X480 = "RES_640X480"
    RES_320X240 = "RES_320X240"
    RES_160X120 = "RES_160X120"

    def __init__(
        self,
        wad: str,
        doommap: str | None = "map01",
        _id: str = "vizdoom",
        render: bool = True,
        reset_done: bool = True,
        num_steps: int = 1000,
        res: Any = RES_160X120,
        auto_map: bool = True,
    ) -> None:
        """Prepares a game, which begins with `start` or `reset`.

        Args:
            wad: The file of a scenario, or the name of one that ViZDoom brings along.
            doommap: The map in it; `None` for the first.
            _id: What to call the environment.
            render: Whether a window shows the game.
            reset_done: Kept as an attribute.
            num_steps: After how many tics an episode is over.
            res: The size of the picture: `VizdoomEnv.RES_160X120` and its like, or
                those of ViZDoom.
            auto_map: Whether there is a map of what has been seen.
        """
        require("vizdoom", needed_by="VizdoomEnv", extra="vizdoom")
        if not wad:
            raise ValueError(
                "VizdoomEnv needs the file of a scenario, such as 'basic.wad'."
            )
        self.res = getattr(res, "name", res)
        if self.res not in _SIZES:
            raise ValueError(f"res is {res!r}; it is one of {', '.join(_SIZES)}.")
        super().__init__(_id, render, reset_done)
        self.wad = wad
        # A folder may be loaded elsewhere, beside a game that runs.
        self.pickle_black_list += ["wad", "_played"]
        self.doommap = doommap
        self.num_steps = num_steps
        self.auto_map = auto_map
        self.res_w, self.res_h = _SIZES[self.res]
        self.observation: Any = None

    @property
    def game(self) -> Any:
        """ViZDoom's game; `None` when there is none."""
        return self.env_instance

    def start(self) -> None:
        """Starts the game, unless it runs."""
        if self.env_instance is not None:
            return
        import vizdoom

        game = vizdoom.DoomGame()
        game.set_doom_scenario_path(_found(self.wad, vizdoom.scenarios_path))
        if self.doommap is not None:
            game.set_doom_map(self.doommap)
        game.set_available_buttons(_members(vizdoom.Button, _BUTTONS))
        variables = _members(vizdoom.GameVariable, _VARIABLES)
        game.set_available_game_variables(variables)
        if self.auto_map:
            game.set_automap_buffer_enabled(True)
            game.set_automap_mode(vizdoom.AutomapMode.OBJECTS_WITH_SIZE)
        game.set_screen_format(vizdoom.ScreenFormat.GRAY8)
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, self.res))
        game.set_render_hud(True)
        game.set_render_crosshair(False)
        game.set_render_weapon(True)
        game.set_render_decals(False)
        game.set_render_particles(False)
        game.set_window_visible(self.render)
        game.set_living_reward(-1)
        game.set_episode_timeout(self.num_steps)
        game.set_episode_start_time(0)
        game.init()
        self.env_instance = game
        self._played = False

    def step(self, action: Sequence[float]) -> tuple[Any, float, bool]:
        """Presses buttons; returns observation, reward and whether it is over."""
        self._played = True
        game = self.env_instance
        reward = game.make_action(list(action))
        self._look()
        return self.observation, reward, bool(game.is_episode_finished())

    def seed(self, seed: int) -> None:
        """Has the next episode, and those after it, depend on a seed."""
        self.start()
        self.env_instance.set_seed(seed)
        self._played = True  # The episode that is there depends on another one.

    def reset(self) -> Any:
        """Begins an episode and returns an observation."""
        self.start()
        # Starting the game has begun one.
        if self._played:
            self.env_instance.new_episode()
            self._played = False
        self._look()
        return self.observation

    def _look(self) -> None:
        state = self.env_instance.get_state()
        if state is not None:
            self.observation = state

    def close(self) -> None:
        """Ends the game; calling it again does nothing."""
        game, self.env_instance = self.env_instance, None
        if game is not None:
            game.close()

    def get_action_wrapper(self) -> Menu:
        """Returns what presses one of the buttons, by its number."""
        count = len(_BUTTONS)
        presses = [
            [int(place == button) for place in range(count)] for button in range(count)
        ]
        return Menu(presses, [name.lower() for name in _BUTTONS])

    def get_screen_width(self) -> int:
        """Returns the width of the picture."""
        return self.res_w

    def get_screen_height(self) -> int:
        """Returns the height of the picture."""
        return self.res_h


def _found(wad: str, scenarios: str) -> str:
    """Returns the path of a scenario, which may be one of ViZDoom's own."""
    own = os.path.join(scenarios, wad)
    return own if not os.path.exists(wad) and os.path.exists(own) else wad


def _members(kind: Any, names: Sequence[str]) -> list[Any]:
    return [getattr(kind, name) for name in names]
