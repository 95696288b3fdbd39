"""URNAI: its environments for envkit, envkit's for URNAI, and its own classes.

| you have                    | you want                                            |
|-----------------------------|-----------------------------------------------------|
| a program for URNAI         | `GymEnv`, `PLEEnv`, `SC2Env`, `VizdoomEnv`          |
| a subclass of URNAI's `Env` | an envkit environment: `from_urnai(MyEnv)`          |
| an envkit environment       | one with URNAI's interface: `to_urnai(env)`         |

URNAI starts, resets, steps and closes its environments. `reset` returns an observation;
`step` returns an observation, a reward and whether the episode is over.
"""

from __future__ import annotations

import abc
import functools
import importlib
import importlib.util
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from envkit.adapters.adapter import Adapter, Result
from envkit.adapters.adapter.returned import step_reader
from envkit.adapters.foreign import require
from envkit.adapters.gym.suite import reset_takes_seed
from envkit.adapters.gymnasium.suite import id_without_module
from envkit.adapters.ple.suite import as_ple, require_ple
from envkit.adapters.pysc2.suite import prepare, started
from envkit.extend import as_environment, describe
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import BoundedArraySpec, is_discrete
from envkit.types import NestedSpec

__all__ = [
    "Env",
    "GymEnv",
    "Menu",
    "PLEEnv",
    "SC2Env",
    "VizdoomEnv",
    "from_urnai",
    "to_urnai",
]


class Env(abc.ABC):
    """The base class of URNAI's environments.

    A subclass implements `start`, which makes `env_instance`, `step`, `reset` and
    `close`. URNAI's trainer calls `save` and `load` with a folder: attributes that
    pickle are kept in a file named after the class, as in URNAI. Anything else belongs
    in `save_extra` and `load_extra`.

    Attributes:
        id: The environment's name.
        render: Whether it shows itself.
        reset_done: A constructor argument, kept because URNAI keeps it.
        env_instance: The library's environment; `None` before `start` and after
            `close`.
        pickle_black_list: Names of attributes that `save` skips and `load` leaves
            alone.
    """

    def __init__(self, _id: Any, render: bool = False, reset_done: bool = True) -> None:
        """Keeps the arguments that every environment takes."""
        self.id = _id
        self.render = render
        self.reset_done = reset_done
        self.env_instance: Any = None
        self.pickle_black_list: list[str] = []

    @abc.abstractmethod
    def start(self) -> None:
        """Makes `env_instance` unless it exists."""

    @abc.abstractmethod
    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it ended."""

    @abc.abstractmethod
    def reset(self) -> Any:
        """Begins an episode and returns an observation; calls `start` if needed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees `env_instance`; calling it again does nothing."""

    def restart(self) -> Any:
        """Closes the environment, begins again, and returns an observation."""
        self.close()
        return self.reset()

    def save(self, savepath: str) -> None:
        """Saves attributes that pickle to a folder, and then calls `save_extra`.

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
        """Restores the attributes saved in a folder; an empty folder changes nothing.

        Unpickling runs code that the file names, so load only files you have saved.
        """
        self.load_pickle(loadpath)
        self.load_extra(loadpath)

    # Most subclasses need neither of these methods.
    def save_extra(self, persist_path: str) -> None:  # noqa: B027
        """Saves what pickling cannot; subclasses may override it."""

    def load_extra(self, persist_path: str) -> None:  # noqa: B027
        """Loads what `save_extra` saved."""

    def save_pickle(self, persist_path: str) -> None:
        """Writes the file of attributes."""
        content = pickle.dumps(self.get_pickleable_dict())
        os.makedirs(persist_path, exist_ok=True)
        with open(self.get_full_persistance_pickle_path(persist_path), "wb") as file:
            file.write(content)

    def load_pickle(self, persist_path: str) -> None:
        """Reads the file of attributes, if there is one."""
        path = self.get_full_persistance_pickle_path(persist_path)
        if os.path.isfile(path) and os.path.getsize(path):
            with open(path, "rb") as file:
                self.restore_pickleable_attributes(pickle.load(file))

    def get_pickleable_dict(self) -> dict[str, Any]:
        """Returns the attributes for `save`: those that pickle, except functions."""
        kept = self._without_black_list(vars(self))
        return {
            name: value
            for name, value in kept.items()
            if not callable(value) and _pickles(value)
        }

    def restore_pickleable_attributes(self, dict_to_restore: Mapping[str, Any]) -> None:
        """Sets the saved attributes, except those on the black list."""
        vars(self).update(self._without_black_list(dict_to_restore))

    def _without_black_list(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        # A subclass may have no list, or None, which URNAI's trainer puts there.
        left_out = {"pickle_black_list"}
        left_out.update(getattr(self, "pickle_black_list", None) or ())
        return {name: attributes[name] for name in attributes if name not in left_out}

    def get_default_save_stamp(self) -> str:
        """Returns the beginning of the names of this environment's files."""
        return f"{type(self).__name__}_"

    def get_full_persistance_path(self, persist_path: str) -> str:
        """Returns the beginning of the paths of this environment's files."""
        return os.path.join(persist_path, self.get_default_save_stamp())

    def get_full_persistance_pickle_path(self, persist_path: str) -> str:
        """Returns the path of the file of attributes."""
        return f"{self.get_full_persistance_path(persist_path)}.pkl"


def _pickles(value: Any) -> bool:
    # Libraries refuse with many kinds of errors; each means the same here.
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


class Menu:
    """Chooses actions by their index in a list, as URNAI's action wrappers do.

    Example:
        >>> menu = Menu(["left", "right"])
        >>> menu.get_actions(), menu.get_action(1, None)
        ([0, 1], 'right')
    """

    def __init__(self, actions: Sequence[Any], names: Sequence[str] | None = None):
        """Makes a menu.

        Args:
            actions: Actions for the environment's `step`.
            names: The actions' names.
        """
        self._actions = list(actions)
        self._names = list(map(str, actions if names is None else names))

    def is_action_done(self) -> bool:
        """Returns True: another action can be chosen at any time."""
        return True

    def reset(self) -> None:
        """Does nothing, because no action takes several steps."""

    def get_actions(self) -> list[int]:
        """Returns the indices of the list."""
        return list(range(len(self._actions)))

    def get_excluded_actions(self, obs: Any) -> list[int]:
        """Returns the indices of excluded actions: none."""
        return []

    def get_action(self, action_idx: int, obs: Any) -> Any:
        """Returns the action at an index."""
        return self._actions[action_idx]

    def get_named_actions(self) -> list[str]:
        """Returns the names of the actions."""
        return list(self._names)

    def get_action_space_dim(self) -> int:
        """Returns the number of actions."""
        return len(self._actions)


_DRY_LAKE = "FrozenLakeNotSlippery-v0"


class GymEnv(Env):
    """Plays an environment of Gymnasium or, if it lacks the id, one of any Gym.

    It also knows `FrozenLakeNotSlippery-v0`, which URNAI registers on import, and, with
    ale-py, Gym's names for Atari games, such as `Breakout-v0`. URNAI's own class breaks
    with Gym 0.26, whose `step` returns five values.

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
            id: The library's name for it.
            render: Whether a window shows it.
            reset_done: Kept as an attribute.
            num_steps: Kept as an attribute.
            _id: Another name for `id`.
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
        """Makes the environment unless it exists."""
        if self.env_instance is not None:
            return
        library = _library_of(self.id)
        self._is_new = library.__name__ == "gymnasium" or _is_new(library)
        # An environment of the new kind shows itself on every step.
        show = {"render_mode": "human"} if self.render and self._is_new else {}
        self.env_instance = library.make(self.id, **show)

    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it ended."""
        result = self.env_instance.step(action)
        observation, reward, *ends = result[: len(result) - 1]
        self._show()
        return observation, reward, any(map(bool, ends))

    def seed(self, seed: int) -> None:
        """Seeds the environment at the next reset; URNAI had no such method."""
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
        """Returns an action wrapper that chooses actions by number.

        Raises:
            TypeError: The actions are not numbered.
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
    """Returns the library that has an environment: Gymnasium if both do."""
    has_gym = importlib.util.find_spec("gym") is not None
    if importlib.util.find_spec("gymnasium") is not None:
        import gymnasium

        if _gymnasium_knows(name) or not has_gym:
            return gymnasium
    elif not has_gym:
        require("gymnasium", needed_by="GymEnv", extra="gymnasium")
    import gym

    if name == _DRY_LAKE:  # and there is no Gymnasium
        try:
            gym.spec(name)
        except gym.error.Error:
            _register_dry_lake(gym)
    return gym  # type: ignore[no-any-return]  # a module without types


def _gymnasium_knows(name: str) -> bool:
    """Returns True if Gymnasium has an environment; first registers URNAI's."""
    import gymnasium

    known = gymnasium.registry
    bare_name = id_without_module(name)
    if bare_name == _DRY_LAKE and bare_name not in known:
        _register_dry_lake(gymnasium)
    if bare_name not in known and importlib.util.find_spec("ale_py") is not None:
        importlib.import_module("ale_py")  # registers the Atari games
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
    """Returns True for Gym 0.26, whose environments behave like Gymnasium's."""
    major, minor = (int(part) for part in gym.__version__.split(".")[:2])
    return (major, minor) >= (0, 26)


class PLEEnv(Env):
    """Plays a game of PLE; observations are its state, actions are key codes.

    As in URNAI, a process can have one game at a time, because pygame has one display.
    `PLEWrapper` offers more, such as pictures and specs.
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
            game: A PLE game, its class, a PLE, or a function that makes one.
            _id: The environment's name; `None` for the name of the game's class.
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
        """Makes and initialises a PLE unless there is one."""
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
        """Presses a key, given its code or `None`; returns state, reward and end."""
        game = self.env_instance
        reward = game.act(action)
        return game.getGameState(), reward, bool(game.game_over())

    def reset(self) -> Any:
        """Begins an episode and returns the game's state."""
        self.start()
        self.env_instance.reset_game()
        return self.env_instance.getGameState()

    def close(self) -> None:
        """Releases the PLE; calling it again does nothing."""
        self.env_instance = None

    def get_action_wrapper(self) -> Menu:
        """Returns an action wrapper that chooses keys by index."""
        self.start()
        return Menu(self.env_instance.getActionSet())


class SC2Env(Env):
    """Plays a StarCraft II map with raw actions and raw and feature units.

    Results are the first player's. An observation is PySC2's dictionary plus `step_mul`
    and `map_size`. An action is a PySC2 action, or a list with one for each player that
    is an agent; a single action goes to the only agent. PySC2 is prepared for current
    Python versions. `PySC2Wrapper` offers more, such as specs.
    """

    def __init__(
        self,
        map_name: str = "Simple64",
        players: Sequence[Any] | None = None,
        player_race: str = "terran",
        enemy_race: str = "random",
        difficulty: str = "very_easy",
        render: bool = False,
        reset_done: bool = True,
        spatial_dim: int = 16,
        step_mul: int = 16,
        game_steps_per_ep: int = 0,
        obs_features: Any = None,
        realtime: bool = False,
        self_play: bool = False,
        *,
        make_env: Callable[..., Any] | None = None,
    ) -> None:
        """Starts the game.

        Args:
            map_name: The map.
            players: PySC2's `Agent`s and `Bot`s; `None` for an agent against a bot or,
                with `self_play`, against another agent.
            player_race: "terran", "zerg", "protoss" or "random".
            enemy_race: The other player's race.
            difficulty: The bot's strength: "very_easy", "easy", "medium" and so on.
            render: Whether a window shows the game.
            reset_done: Kept as an attribute.
            spatial_dim: Kept as an attribute.
            step_mul: The number of game steps per action.
            game_steps_per_ep: The number of game steps per episode; 0 for no limit.
            obs_features: Kept as an attribute.
            realtime: Whether the game continues between steps.
            self_play: Whether both players are agents.
            make_env: Makes the environment; `None` for PySC2's own. PySC2's
                `SC2TestEnv` needs no game.
        """
        super().__init__(map_name, render, reset_done)
        self.players = players
        self.player_race = player_race
        self.enemy_race = enemy_race
        self.difficulty = difficulty
        self.spatial_dim = spatial_dim
        self.step_mul = step_mul
        self.game_steps_per_ep = game_steps_per_ep
        self.obs_features = obs_features
        self.realtime = realtime
        self.self_play = self_play
        self.done = False
        self._make_env = make_env
        self._map_size: Any = None
        self.start()

    def start(self) -> None:
        """Starts the game unless it is running."""
        if self.env_instance is not None:
            return
        prepare()
        from pysc2.env import sc2_env
        from pysc2.lib import actions, features

        interface = features.AgentInterfaceFormat(
            action_space=actions.ActionSpace.RAW,
            use_raw_units=True,
            raw_resolution=64,
            use_feature_units=True,
            feature_dimensions=features.Dimensions(screen=64, minimap=64),
        )
        self._map_size = interface.raw_resolution
        make_env = sc2_env.SC2Env if self._make_env is None else self._make_env
        arguments = {
            "map_name": self.id,
            "visualize": self.render,
            "players": self._players(sc2_env) if self.players is None else self.players,
            "agent_interface_format": interface,
            "step_mul": self.step_mul,
            "game_steps_per_episode": self.game_steps_per_ep,
            "realtime": self.realtime,
        }
        self.env_instance = started(make_env, arguments)

    def _players(self, sc2_env: Any) -> list[Any]:
        enemy = _member(sc2_env.Race, self.enemy_race, "enemy_race")
        player = _member(sc2_env.Race, self.player_race, "player_race")
        if self.self_play:
            return [sc2_env.Agent(player), sc2_env.Agent(enemy)]
        difficulty = _member(sc2_env.Difficulty, self.difficulty, "difficulty")
        return [sc2_env.Agent(player), sc2_env.Bot(enemy, difficulty)]

    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it ended."""
        # A PySC2 action is itself a tuple.
        is_list = isinstance(action, list)
        steps = self.env_instance.step(action if is_list else [action])
        return self._parsed(steps)

    def reset(self) -> Any:
        """Begins an episode and returns an observation."""
        self.start()
        return self._parsed(self.env_instance.reset())[0]

    def _parsed(self, steps: Sequence[Any]) -> tuple[Any, Any, bool]:
        first = steps[0]
        self.done = bool(first.last())
        observation = first.observation
        observation["step_mul"] = self.step_mul
        observation["map_size"] = self._map_size
        return observation, first.reward, self.done

    def close(self) -> None:
        """Quits the game; calling it again does nothing."""
        instance, self.env_instance = self.env_instance, None
        if instance is not None:
            instance.close()


def _member(kind: Any, name: str, argument: str) -> Any:
    try:
        return kind[name]
    except KeyError:
        raise ValueError(
            f"{argument} must be one of {', '.join(kind.__members__)}, got {name!r}."
        ) from None


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
    """Plays a Doom map; every step except the last one costs 1.

    An observation is ViZDoom's `GameState`: `screen_buffer` in grey, `game_variables`
    and `automap_buffer`. At the end of an episode the game has none, so the previous
    one is returned again. An action has a number for each of eight buttons. `reset`
    begins an episode in the running game; URNAI's starts another game.
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
        """Prepares a game; `start` or `reset` starts it.

        Args:
            wad: A scenario's file, or the name of a scenario that comes with ViZDoom.
            doommap: The map in it; `None` for the first.
            _id: The environment's name.
            render: Whether a window shows the game.
            reset_done: Kept as an attribute.
            num_steps: The number of tics per episode.
            res: The size of the picture: `VizdoomEnv.RES_160X120` or a similar
                constant, or one of ViZDoom's.
            auto_map: Whether observations include a map of what has been seen.
        """
        require("vizdoom", needed_by="VizdoomEnv", extra="vizdoom")
        if not wad:
            raise ValueError(
                "VizdoomEnv needs the file of a scenario, such as 'basic.wad'."
            )
        self.res = getattr(res, "name", res)
        if self.res not in _SIZES:
            raise ValueError(f"res must be one of {', '.join(_SIZES)}, got {res!r}.")
        super().__init__(_id, render, reset_done)
        self.wad = wad
        # A folder may be loaded elsewhere, next to a running game.
        self.pickle_black_list += ["wad", "_played"]
        self.doommap = doommap
        self.num_steps = num_steps
        self.auto_map = auto_map
        self.res_w, self.res_h = _SIZES[self.res]
        self.observation: Any = None

    @property
    def game(self) -> Any:
        """ViZDoom's game, or `None`."""
        return self.env_instance

    def start(self) -> None:
        """Starts the game unless it is running."""
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
        """Presses buttons; returns observation, reward and whether it ended."""
        self._played = True
        game = self.env_instance
        reward = game.make_action(list(action))
        self._look()
        return self.observation, reward, bool(game.is_episode_finished())

    def seed(self, seed: int) -> None:
        """Seeds the next episode and those after it."""
        self.start()
        self.env_instance.set_seed(seed)
        self._played = True  # the current episode was not seeded with it

    def reset(self) -> Any:
        """Begins an episode and returns an observation."""
        self.start()
        # Starting the game has already begun an episode.
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
        """Quits the game; calling it again does nothing."""
        game, self.env_instance = self.env_instance, None
        if game is not None:
            game.close()

    def get_action_wrapper(self) -> Menu:
        """Returns an action wrapper that presses one button, by number."""
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
    """Returns the path of a scenario, which may be one of ViZDoom's."""
    own = os.path.join(scenarios, wad)
    return own if not os.path.exists(wad) and os.path.exists(own) else wad


def _members(kind: Any, names: Sequence[str]) -> list[Any]:
    return [getattr(kind, name) for name in names]


_VERBS = ("start", "step", "reset", "close")


def from_urnai(
    env: Any,
    *,
    action_wrapper: Any = None,
    state_builder: Any = None,
    reward_builder: Any = None,
    observation_spec: NestedSpec = None,
    action_spec: NestedSpec = None,
    **settings: Any,
) -> Adapter:
    """Makes an envkit environment from a URNAI environment.

    URNAI does not declare specs. Observation specs are inferred from the first
    observation, as `Adapter` does. Actions come from an action wrapper, if you pass one
    or the environment has `get_action_wrapper`. `seed` needs an environment with a
    method of that name. A state needs attributes that can be pickled.

    Args:
        env: An environment, its class, or a function that makes one. Workers need a
            class or a function: `functools.partial(from_urnai, MyEnv)`.
        action_wrapper: Chooses actions by number. An action lasts until
            `is_action_done`, and its rewards are added up. Excluded actions are illegal
            in `get_info()["legal_actions"]`, which a pool's `declared_info()` has too.
            May also be its class, or a function that makes one from the environment.
        state_builder: Converts URNAI's observations with `build_state`; or its class,
            or a function.
        reward_builder: Makes rewards with `get_reward(obs, reward, done)`; or its
            class, or a function of the same arguments.
        observation_spec: The observation's specs; inferred by default.
        action_spec: The action's specs, if there is no action wrapper.
        settings: Attributes to set on the `Adapter`, such as `num_actions`, `actions`,
            `max_lengths` and `floats`.

    Example:
        >>> from envkit.adapters.urnai import GymEnv
        >>> env = from_urnai(GymEnv("CartPole-v1"))
        >>> int(env.action_spec().maximum), env.reset().observation.shape
        (1, (4,))
        >>> env.close()
    """
    return _UrnaiAdapter(
        env,
        action_wrapper,
        state_builder,
        reward_builder,
        observation_spec,
        action_spec,
        **settings,
    )


class _UrnaiAdapter(Adapter):
    """The result of `from_urnai`; `env_instance` is the URNAI environment."""

    def __init__(
        self,
        env: Any,
        action_wrapper: Any = None,
        state_builder: Any = None,
        reward_builder: Any = None,
        observation_spec: NestedSpec = None,
        action_spec: NestedSpec = None,
        **settings: Any,
    ) -> None:
        """Takes the arguments of `from_urnai`."""
        super().__init__(**settings)
        _check_env(env)
        self.given_env = env
        self.given_wrapper = action_wrapper
        self.action_wrapper: Any = None
        self.state_builder = _builder_of(state_builder, "build_state")
        self.reward_builder = _builder_of(reward_builder, "get_reward")
        self.observation_spec = observation_spec  # type: ignore[method-assign]  # a value does
        self.action_spec = action_spec  # type: ignore[method-assign]  # likewise
        if _can_be_seeded(env):
            self.seed = self.seed_env  # type: ignore[method-assign]  # URNAI's environments have no seed
        self.can_be_made_again = isinstance(env, type) or not _is_env(env)
        said = action_spec, self.actions, self.num_actions
        self.asks_for_wrapper = all(part is None for part in said)
        self.last_seen: Any = None

    def start(self) -> Any:
        """Makes the URNAI environment, and starts it if it has not started."""
        env = self.given_env
        if self.can_be_made_again:
            env = env()
            _check_env(env, made=True)
        if getattr(env, "env_instance", None) is None:
            env.start()
        self._choose_actions(env)
        return env

    def _choose_actions(self, env: Any) -> None:
        wrapper = self.given_wrapper
        if isinstance(wrapper, type):
            wrapper = wrapper()
        elif wrapper is not None and not hasattr(wrapper, "get_actions"):
            wrapper = wrapper(env)
        elif wrapper is None and self.asks_for_wrapper:
            wrapper = getattr(env, "get_action_wrapper", lambda: None)()
        if wrapper is not None:
            self.action_wrapper = wrapper
            named = getattr(wrapper, "get_named_actions", lambda: None)()
            self.actions = list(map(str, named or wrapper.get_actions()))
            self.legal_actions = self.not_excluded

    def not_excluded(self, obs: Any) -> list[bool]:
        """Returns True for each action that the action wrapper allows."""
        excluded = set(self.action_wrapper.get_excluded_actions(self.last_seen))
        return [action not in excluded for action in self.action_wrapper.get_actions()]

    def reset(self) -> Any:  # type: ignore[override]  # an author's
        """Begins an episode in the environment, the action wrapper and the builders."""
        for part in (self.action_wrapper, self.state_builder, self.reward_builder):
            if hasattr(part, "reset"):
                part.reset()
        return self.built(self.env_instance.reset())

    def step(self, action: Any) -> Result:  # type: ignore[override]  # an author's
        """Applies an action, over as many steps as it takes."""
        wrapper = self.action_wrapper
        if wrapper is None:
            return self.stepped(action)
        place = wrapper.get_actions()[action]
        total = 0.0
        while True:
            result = self.stepped(wrapper.get_action(place, self.last_seen))
            total += result.reward
            over = result.terminated or result.truncated
            if over or wrapper.is_action_done():
                return result._replace(reward=total)

    def stepped(self, action: Any) -> Result:
        """Makes one step."""
        name = type(self.env_instance).__name__
        read_step = step_reader(name, self.step_returns)
        read = Result(*read_step(self.env_instance.step(action)))
        reward = read.reward
        if self.reward_builder is not None:
            build = getattr(self.reward_builder, "get_reward", self.reward_builder)
            over = read.terminated or read.truncated
            reward = build(read.observation, reward, over)
        observation = self.built(read.observation)
        return Result(observation, reward, read.terminated, read.truncated, read.info)

    def built(self, observation: Any) -> Any:
        """Makes an observation from a URNAI observation."""
        self.last_seen = observation
        builder = self.state_builder
        if builder is None:
            return observation
        return getattr(builder, "build_state", builder)(observation)

    def close(self) -> None:
        """Closes the URNAI environment."""
        self.env_instance.close()

    def seed_env(self, seed: Any) -> None:
        """Seeds the URNAI environment, if it has a method for that."""
        self.env_instance.seed(seed)


def _builder_of(given: Any, method: str) -> Any:
    """Makes a builder from its class; a function may also be a class."""
    is_class = isinstance(given, type) and hasattr(given, method)
    return given() if is_class else given


def _can_be_seeded(env: Any) -> bool:
    while isinstance(env, functools.partial):
        env = env.func
    return callable(getattr(env, "seed", None))


def _is_env(env: Any) -> bool:
    return all(callable(getattr(env, verb, None)) for verb in _VERBS)


def _check_env(env: Any, *, made: bool = False) -> None:
    """Raises unless it is a URNAI environment or, with `made=False`, can make one."""
    if _is_env(env) or (callable(env) and not isinstance(env, type) and not made):
        return
    what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
    raise TypeError(
        f"from_urnai() {'made' if made else 'was given'} {what}, which is not an "
        f"environment of URNAI: that has the methods {', '.join(_VERBS)}."
    )


def to_urnai(env: PyEnvironment | Callable[[], PyEnvironment]) -> Env:
    """Gives an envkit environment URNAI's interface.

    Args:
        env: An environment that is not batched, or a function that makes one when
            needed.

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
    """The result of `to_urnai`; `env_instance` is the envkit environment."""

    def __init__(self, env: Any) -> None:
        env = as_environment(env)
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
                "only has single environments."
            )
        self.env_instance = env

    def start(self) -> None:
        """Makes the environment unless it exists."""
        if self.env_instance is None:
            if self._make_env is None:
                raise RuntimeError(
                    f"{self.id} was closed. To start again, give to_urnai() a function "
                    "that makes an environment."
                )
            self._use(as_environment(self._make_env()))

    def step(self, action: Any) -> tuple[Any, Any, bool]:
        """Applies an action; returns observation, reward and whether it ended."""
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
        """Begins again, with a new environment if one can be made."""
        if self._make_env is not None:
            self.close()
        return self.reset()

    def get_action_wrapper(self) -> Menu:
        """Returns an action wrapper that chooses actions by number."""
        self.start()
        spec = self.env_instance.action_spec()
        is_number = isinstance(spec, BoundedArraySpec) and spec.shape == ()
        if not is_number or not is_discrete(spec):
            raise TypeError(f"{self.id} has no numbered actions, but {spec!r:.80}.")
        return Menu(range(int(spec.minimum), int(spec.maximum) + 1))
