"""PySC2 on today's Python, and its environments by the names of their maps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.pysc2_parts.games import make_game
from envkit.adapters.pysc2_parts.old_imports import import_pysc2
from envkit.py_environment import PyEnvironment

__all__ = ["load", "names", "prepare"]

# What the wrapper takes, and not PySC2.
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


def prepare() -> None:
    """Imports PySC2, which does not import by itself since Python 3.11.

    Call it before anything of `pysc2` is imported, or after such an import has failed;
    calling it again does nothing. Other packages are not affected: protobuf stays as it
    is, and what had to be changed for the import is changed back.

    Flags of PySC2 are at their defaults afterwards, until they are parsed as
    `absl.app.run` does, so that it runs in programs without flags, too.

    Each process needs it for itself. Environments that envkit makes see to that;
    others can be given `worker_setup="envkit.adapters.pysc2:prepare"`.

    Raises:
        MissingDependencyError: PySC2 is not installed.
        ImportError: It does not import in this way either; the message says why.
    """
    require("pysc2", needed_by="envkit.adapters.pysc2", extra="pysc2")
    import_pysc2()
    from absl import flags

    # To read a flag that nobody has parsed is an error.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def load(
    map_name: str | Sequence[str],
    players: Sequence[Any] | None = None,
    agent_interface_format: Any = None,
    env_class: Callable[..., Any] | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes an environment of PySC2 by the name of its map, as an envkit environment.

    `envkit.make("pysc2:MoveToBeacon")` calls this. All arguments can be plain values,
    which travel to workers before PySC2 is imported there. The environment can be
    seeded.

    Args:
        map_name: The map, or several of which each episode draws one.
        players: Agents as the names of their races, `"terran"`; bots as pairs of race
            and difficulty, `("zerg", "easy")`, or with what they build as the third,
            `("zerg", "hard", "rush")`. `None` for an agent of any race, and against a
            very easy bot if the map has room for it.
        agent_interface_format: What agents observe, as a dictionary of what PySC2's
            `parse_agent_interface_format` takes, `{"feature_screen": (84, 64),
            "feature_minimap": 64, "use_feature_units": True}`; a list of one for each
            agent; or formats of PySC2.
        env_class: What to make in place of PySC2's `SC2Env`, with the same arguments.
        env_wrappers: What to wrap the environment in, innermost first.
        **kwargs: What `PySC2Wrapper` takes besides, and what `SC2Env` takes besides:
            `step_mul`, `realtime`, `game_steps_per_episode`, `random_seed`,
            `save_replay_episodes`, `visualize` and others.

    Raises:
        ValueError: PySC2 has no such map.
        FileNotFoundError: The game is not installed.
    """
    from envkit.adapters.pysc2_wrapper import PySC2Wrapper

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
    """Lists the maps that PySC2 knows; to play, the game and the map are needed.

    Example:
        >>> "MoveToBeacon" in names()
        True
    """
    require("pysc2", needed_by="envkit.adapters.pysc2", extra="pysc2")
    # The maps are plain Python, which imports without `prepare()` and in no time.
    from pysc2 import maps

    return sorted(maps.get_maps())
