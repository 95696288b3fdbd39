"""`SC2Env`: StarcraftII through PySC2 with the interface of URNAI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envkit.adapters.pysc2 import prepare
from envkit.adapters.pysc2_parts.games import started
from envkit.adapters.urnai_envs.env import Env

__all__ = ["SC2Env"]


class SC2Env(Env):
    """Plays a map with raw actions, and observes raw and feature units.

    What is returned is the first player's. An observation is PySC2's dictionary, with
    `step_mul` and `map_size` in it. An action is one of PySC2's, or a list with one for
    each player that is an agent. `PySC2Wrapper` has more to offer, specs among it.
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
            players: Who plays: `Agent`s and `Bot`s of PySC2; `None` for an agent
                against a bot or, with `self_play`, against another agent.
            player_race: "terran", "zerg", "protoss" or "random".
            enemy_race: The same of the other player.
            difficulty: How strong a bot is: "very_easy", "easy", "medium" and others.
            render: Whether a window shows the game.
            reset_done: Kept as an attribute.
            spatial_dim: Kept as an attribute.
            step_mul: How many steps of the game an action lasts.
            game_steps_per_ep: After how many an episode is over; 0 for no limit.
            obs_features: Kept as an attribute.
            realtime: Whether the game goes on by itself.
            self_play: Whether both players are agents.
            make_env: What to make the environment with; `None` for PySC2's own. Its
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
        """Starts the game, unless it runs."""
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
        """Applies an action; returns observation, reward and whether it is over."""
        # An action of PySC2 is a tuple itself.
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
        """Ends the game; calling it again does nothing."""
        instance, self.env_instance = self.env_instance, None
        if instance is not None:
            instance.close()


def _member(kind: Any, name: str, argument: str) -> Any:
    try:
        return kind[name]
    except KeyError:
        raise ValueError(
            f"{argument} is {name!r}; it is one of {', '.join(kind.__members__)}."
        ) from None
