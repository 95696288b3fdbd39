"""Games of PLE by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit import targets
from envkit.adapters.gym_environments import limited_and_wrapped
from envkit.adapters.ple_parts.building import import_quietly, require_ple
from envkit.adapters.ple_wrapper import PLEWrapper
from envkit.py_environment import PyEnvironment
from envkit.window import prepare_sdl
from envkit.wrappers.limits import TimeLimit

__all__ = ["GAMES", "load", "names"]

# Those of PLE that run on Python 3; others go by the name of their class, too.
GAMES = (
    "Catcher",
    "FlappyBird",
    "MonsterKong",
    "Pixelcopter",
    "Pong",
    "PuckWorld",
    "Snake",
    "WaterWorld",
)


def load(
    environment_name: str,
    observation: str | None = None,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    game_kwargs: Mapping[str, Any] | None = None,
    ple_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of PLE by its name, as an envkit environment.

    `envkit.make("ple:Catcher")` calls this.

    Args:
        environment_name: The class of the game: "Catcher", "FlappyBird", and so on.
        observation: "state", "screen" or "both"; `None` for the state, or the screen
            of a game that has no state.
        max_episode_steps: After how many steps an episode is truncated; `None` or 0
            for no limit: PLE has none of its own.
        env_wrappers: What to wrap envkit's environment in, innermost first.
        game_kwargs: What to make the game with: `{"width": 128, "height": 128}`.
        ple_kwargs: What to make its PLE with: `{"frame_skip": 4}`.
        **kwargs: What `PLEWrapper` takes besides.
    """
    require_ple(f"The game {environment_name!r}")
    prepare_sdl((ple_kwargs or {}).get("display_screen", False))
    make_game = _class_of(environment_name)
    if observation is None:
        observation = "screen" if environment_name == "MonsterKong" else "state"
    env: PyEnvironment = PLEWrapper(
        # Games touch pygame's display as soon as they are made, so the wrapper does it.
        functools.partial(make_game, **(game_kwargs or {})),
        observation=observation,
        ple_kwargs=ple_kwargs,
        **kwargs,
    )
    return limited_and_wrapped(env, max_episode_steps, TimeLimit, env_wrappers)


def names() -> list[str]:
    """Lists the games, if PLE is installed: the `GAMES`."""
    require_ple("suite_ple")
    return list(GAMES)


def _class_of(name: str) -> Callable[..., Any]:
    module_name = f"ple.games.{name.lower()}"
    try:
        module: Any = import_quietly(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        module = None
    if not hasattr(module, name):
        raise ValueError(
            f"PLE has no game named {name!r}.{targets.suggestion(name, GAMES)} Its "
            f"games are {', '.join(GAMES)}; of one of your own, give the class to "
            "PLEWrapper."
        )
    return getattr(module, name)  # type: ignore[no-any-return]  # a class
