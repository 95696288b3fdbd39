"""PySC2 on today's Python: environments by the names of their maps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.adapters.foreign import require
from envkit.adapters.pysc2.python3 import prepare
from envkit.adapters.pysc2.wrapper import PySC2Wrapper
from envkit.extend import describe, suggestion
from envkit.py_environment import PyEnvironment

__all__ = ["load", "make_game", "names", "prepare", "started"]

# Arguments of the wrapper, not of PySC2.
_OF_THE_WRAPPER = (
    "actions",
    "agents",
    "illegal",
    "max_lengths",
    "observations",
    "others",
    "render_layer",
    "variable",
)


def load(
    map_name: str | Sequence[str],
    players: Sequence[Any] | None = None,
    agent_interface_format: Any = None,
    env_class: Callable[..., Any] | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a PySC2 environment by the name of its map.

    `envkit.make("pysc2:MoveToBeacon")` calls this. All arguments can be plain values,
    which travel to workers before PySC2 is imported there. The environment can be
    seeded.

    Args:
        map_name: The map, or several, of which each episode draws one.
        players: Agents as the names of their races, `"terran"`; bots as pairs of race
            and difficulty, `("zerg", "easy")`, or with a build as the third element,
            `("zerg", "hard", "rush")`. `None` for an agent of any race, and against a
            very easy bot if the map has room for it.
        agent_interface_format: What agents observe: a dictionary of arguments for
            PySC2's `parse_agent_interface_format`, `{"feature_screen": (84, 64),
            "feature_minimap": 64, "use_feature_units": True}`; a list of one for each
            agent; or PySC2's own formats.
        env_class: A replacement for PySC2's `SC2Env`, with the same arguments.
        env_wrappers: Wrappers for the environment, innermost first.
        **kwargs: More arguments of `PySC2Wrapper` and of `SC2Env`: `step_mul`,
            `realtime`, `game_steps_per_episode`, `random_seed`, `save_replay_episodes`,
            `visualize` and others.

    Raises:
        ValueError: PySC2 has no such map.
        FileNotFoundError: The game is not installed.
    """
    prepare()
    wrapping = {name: kwargs.pop(name) for name in _OF_THE_WRAPPER if name in kwargs}
    make_env = functools.partial(
        make_game, map_name, players, agent_interface_format, env_class, kwargs
    )
    env: PyEnvironment = PySC2Wrapper(make_env, **wrapping)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def names() -> list[str]:
    """Lists the maps that PySC2 knows; playing needs the game and the map files.

    Example:
        >>> "MoveToBeacon" in names()
        True
    """
    require("pysc2", needed_by="envkit.adapters.pysc2", extra="pysc2")
    # The maps are plain Python, which imports quickly and without `prepare()`.
    from pysc2 import maps

    return sorted(maps.get_maps())


_FORMAT = {
    "feature_screen": 84,
    "feature_minimap": 64,
    "use_feature_units": True,
}


def make_game(
    map_name: str | Sequence[str],
    players: Sequence[Any] | None,
    interface: Any,
    env_class: Callable[..., Any] | None,
    kwargs: Mapping[str, Any],
    random_seed: int | None = None,
) -> Any:
    """Makes a PySC2 environment; PySC2 must be imported already.

    Args:
        map_name: The name of the map, or several, of which one is drawn.
        players: The players, as in `load`.
        interface: What agents observe, as in `load`.
        env_class: The class to call instead of `SC2Env`.
        kwargs: More of its arguments.
        random_seed: The game's seed.
    """
    from pysc2.env import sc2_env

    maps = [_map_of(name) for name in _as_list(map_name)]
    arguments = {
        "map_name": map_name,
        "players": _players_of(players, most=min(game.players for game in maps)),
        "agent_interface_format": _interface_of(interface),
        **kwargs,
    }
    # A seed in the arguments stays in effect until there is another one.
    if random_seed is not None:
        arguments["random_seed"] = random_seed
    return started(env_class or sc2_env.SC2Env, arguments)


def started(env_class: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Makes a PySC2 environment, which starts the game.

    Raises:
        FileNotFoundError: The game is not installed; the message says what to do.
    """
    try:
        return env_class(**arguments)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"StarCraft II was not found: {error}. Install the game, and name its "
            "folder in the environment variable SC2PATH unless that is ~/StarCraftII."
        ) from error


def _map_of(name: str) -> Any:
    """Returns PySC2's map with this name.

    Raises:
        ValueError: The map is unknown.
    """
    from pysc2 import maps

    known = maps.get_maps()
    if name not in known:
        raise ValueError(
            f"PySC2 has no map {name!r}.{suggestion(name, known)} "
            "python -m pysc2.bin.map_list lists them."
        )
    return known[name]()


def _players_of(players: Sequence[Any] | None, *, most: int) -> list[Any]:
    """Returns PySC2's players.

    Args:
        players: Agents as the names of their races; bots as pairs of race and
            difficulty, or with a build as the third element. PySC2's players are taken
            as they are. `None` for an agent of any race, and against a very easy bot if
            the map has room for it.
        most: The number of players that the map has room for.
    """
    if players is None:
        players = ["random"] if most < 2 else ["random", ("random", "very_easy")]
    return [_player(player) for player in players]


def _player(player: Any) -> Any:
    from pysc2.env import sc2_env

    if isinstance(player, str):
        return sc2_env.Agent(_member(sc2_env.Race, player))
    kinds = sc2_env.Race, sc2_env.Difficulty, sc2_env.BotBuild
    if isinstance(player, sc2_env.Agent | sc2_env.Bot):
        return player
    if isinstance(player, list | tuple) and 2 <= len(player) <= 3:
        return sc2_env.Bot(*map(_member, kinds, player))
    raise TypeError(
        f"players has {describe(player)}. An agent is the name of its race, 'terran'; "
        "a bot is a pair of race and difficulty, ('zerg', 'easy')."
    )


def _member(kind: Any, name: Any) -> Any:
    if isinstance(name, kind):
        return name
    if name not in kind.__members__:
        raise ValueError(
            f"PySC2 has no {kind.__name__} {name!r}."
            f"{suggestion(str(name), kind.__members__)} "
            f"There are {', '.join(kind.__members__)}."
        )
    return kind[name]


def _interface_of(interface: Any) -> Any:
    """Returns PySC2's interface formats.

    Args:
        interface: A dictionary of arguments for `parse_agent_interface_format`, a list
            of one for each agent, or PySC2's own formats; `None` for a screen of 84 by
            84 feature layers.
    """
    from pysc2.lib import features

    if interface is None:
        interface = _FORMAT
    if isinstance(interface, list | tuple):
        return [_interface_of(one) for one in interface]
    if isinstance(interface, Mapping):
        return features.parse_agent_interface_format(**interface)
    return interface


def _as_list(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
