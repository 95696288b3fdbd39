"""MiniGrid, including BabyAI: environments by name."""

from __future__ import annotations

import functools
import itertools
import math
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envkit.extend import Scheme

if TYPE_CHECKING:
    from envkit.py_environment import PyEnvironment

__all__ = ["SCHEME", "from_object", "load", "names", "preload", "with_text_missions"]

SCHEME = Scheme(
    "envkit.adapters.minigrid:load",
    title="MiniGrid",
    example="MiniGrid-Empty-5x5-v0",
    page="adapters/minigrid",
    package="minigrid",
    extra="minigrid",
    requires=("gymnasium>=1.0", "minigrid>=2.3"),
    lister="envkit.adapters.minigrid:names",
    preload="envkit.adapters.minigrid:preload",
)

_PREFIXES = ("MiniGrid-", "BabyAI-")
_VERSION = re.compile(r"-v\d+$")
# Up to this many missions are measured one by one; beyond, only the longest words.
_FEW = 10_000
# BabyAI generates missions with a grammar: at most four instructions, such as "put the
# purple object in front of you next to ...", or about 340 characters.
_GRAMMAR_LENGTH = 400
_GRAMMAR_LETTERS = f" ,{string.ascii_lowercase}"


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    mission_length: int | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes an environment of MiniGrid or BabyAI.

    `envkit.make("minigrid:MiniGrid-Empty-5x5-v0")` calls this. The mission is text of a
    fixed width, which travels between processes as fast as numbers.

    Args:
        environment_name: The id. The prefix `MiniGrid-` or `BabyAI-` and the version
            may be left out if the rest is unambiguous.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 keeps the environment's own limit, which most have.
        gym_env_wrappers: Wrappers for the Gymnasium environment, innermost first, such
            as those of `minigrid.wrappers`.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        gym_kwargs: Keyword arguments for `gymnasium.make`.
        render_kwargs: More of them, about rendering.
        mission_length: The maximum length of missions; `None` for the environment's
            longest mission, or 400 in BabyAI, which generates missions.
        **kwargs: More keyword arguments for `gymnasium.make`.
    """
    from envkit.adapters.gymnasium import suite as suite_gymnasium

    _prepare(f"The environment {environment_name!r}")
    as_text = functools.partial(with_text_missions, length=mission_length)
    return suite_gymnasium.load(
        _full_id(environment_name, _registered()),
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=(*gym_env_wrappers, as_text),
        env_wrappers=env_wrappers,
        gym_kwargs=gym_kwargs,
        render_kwargs=render_kwargs,
        **kwargs,
    )


def from_object(env: Any, **arguments: Any) -> PyEnvironment:
    """Wraps an environment of MiniGrid, with the mission as text.

    Args:
        env: The environment, with or without Gymnasium wrappers.
        **arguments: Arguments of `GymnasiumWrapper`.
    """
    from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper

    return GymnasiumWrapper(with_text_missions(env), **arguments)


def names() -> list[str]:
    """Lists the ids of all environments of MiniGrid and BabyAI.

    Example:
        >>> "MiniGrid-Empty-5x5-v0" in names()
        True
    """
    _prepare("suite_minigrid")
    return sorted(_registered())


def preload(environment_name: str) -> None:
    """Imports an environment's module, the slow part of making it."""
    from envkit.adapters.gymnasium import suite as suite_gymnasium

    _prepare(f"The environment {environment_name!r}")
    suite_gymnasium.preload(_full_id(environment_name, _registered()))


def _prepare(needed_by: str) -> None:
    from envkit._shared.quiet_sdl import prepare_sdl
    from envkit.adapters.foreign import require

    require("minigrid", needed_by=needed_by, extra="minigrid")
    # MiniGrid imports pygame, which prints a greeting.
    prepare_sdl(shows_window=True)


def with_text_missions(gym_env: Any, length: int | None = None) -> Any:
    """Declares missions as text, because Gymnasium does not know their own space.

    Args:
        gym_env: An environment of MiniGrid, with or without wrappers.
        length: The maximum length of missions; `None` for the longest one.
    """
    import gymnasium

    space = _with_text(gym_env.observation_space, length)
    if space is gym_env.observation_space:  # some wrappers drop the mission
        return gym_env
    wrapped: Any = gymnasium.Wrapper(gym_env)
    wrapped.observation_space = space
    return wrapped


def _registered() -> list[str]:
    import gymnasium
    import minigrid

    def known() -> list[str]:
        return [name for name in gymnasium.registry if name.startswith(_PREFIXES)]

    # Gymnasium imports MiniGrid automatically, unless plugins are disabled.
    if not known():
        minigrid.register_minigrid_envs()
    return known()


def _full_id(name: str, registered: Iterable[str]) -> str:
    """Returns the full id for a name that may lack its prefix or version."""
    from envkit.extend import suggestion

    registered = list(registered)
    if name in registered:
        return name
    meant = [full for full in registered if name in _short_names(full)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ValueError(
            f"{name!r} may stand for {' or '.join(meant)}. Pass the full id."
        )
    known = [*registered, *(full.split("-", 1)[1] for full in registered)]
    raise ValueError(
        f"MiniGrid has no environment named {name!r}."
        f"{suggestion(name, known)} The ids are those that "
        'gymnasium.registry has with "MiniGrid-" and "BabyAI-".'
    )


def _short_names(full: str) -> set[str]:
    without_prefix = full.split("-", 1)[1]
    return {
        without_prefix,
        _VERSION.sub("", full),
        _VERSION.sub("", without_prefix),
    }


def _with_text(space: Any, length: int | None) -> Any:
    from gymnasium import spaces
    from minigrid.core.mission import MissionSpace

    if isinstance(space, MissionSpace):
        longest, letters = _measured(space)
        return spaces.Text(
            longest if length is None else length, min_length=0, charset=letters
        )
    if isinstance(space, spaces.Dict):
        parts = {key: _with_text(part, length) for key, part in space.spaces.items()}
        if any(parts[key] is not part for key, part in space.spaces.items()):
            return spaces.Dict(parts)
    return space


def _measured(space: Any) -> tuple[int, str]:
    """Returns the maximum length of missions, and the characters in them."""
    if type(space).__name__ == "BabyAIMissionSpace":
        return _GRAMMAR_LENGTH, _GRAMMAR_LETTERS
    words = space.ordered_placeholders or []
    if math.prod(map(len, words)) > _FEW:
        # Try every word in its place, with the longest words in all other places.
        longest = [max(place, key=len) for place in words]
        choices: Iterable[Sequence[str]] = (
            [*longest[:index], word, *longest[index + 1 :]]
            for index, place in enumerate(words)
            for word in place
        )
    else:
        choices = itertools.product(*words)
    missions = [space.mission_func(*choice) for choice in choices]
    return max(map(len, missions)), "".join(sorted(set("".join(missions))))
