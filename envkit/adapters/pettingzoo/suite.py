"""PettingZoo: games by name."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from envkit.adapters.foreign import limited_and_wrapped, require
from envkit.adapters.pettingzoo.aec import PettingZooAECWrapper
from envkit.adapters.pettingzoo.parallel import PettingZooWrapper
from envkit.adapters.quiet import prepare_module
from envkit.errors import ConstructorError, MissingDependencyError
from envkit.extend import suggestion
from envkit.py_environment import PyEnvironment
from envkit.wrappers.limits import TimeLimit

__all__ = ["load", "names"]

_FAMILIES = ("atari", "butterfly", "classic", "sisl")
_VERSION = re.compile(r"[_-]v(\d+)$")
_APIS = {"parallel": "parallel_env", "aec": "env"}
# Arguments of the wrapper, not of the game.
_OPTIONS = (
    "possible_agents",
    "discount",
    "action_mask",
    "reset_options",
    "reward_dtype",
)


class _Game(NamedTuple):
    """Describes one version of a game.

    Attributes:
        name: Its name, including its family.
        identifier: Its id in PettingZoo's registry; `None` if it is not there.
        module: Its module, if it is not in the registry.
    """

    name: str
    identifier: str | None
    module: str | None


def load(
    environment_name: str,
    api: str | None = None,
    agents: str | None = None,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes an environment from a game's name.

    `envkit.make("pettingzoo:butterfly/pistonball_v6")` calls this. The version is part
    of the name; the family may be left out, because no two have a game of the same
    name.

    `knights_archers_zombies_v11` of PettingZoo 1.27 does not reset everything: with the
    same seed, a used game plays differently from a new one.

    Args:
        environment_name: The game, such as `"classic/tictactoe_v3"`. The family `mpe`
            is in the package mpe2.
        api: "parallel" for a game in which all agents act at once, "aec" for one in
            which they take turns; `None` for the first of these that the game has.
        agents: The layout of the agents' parts: "axis" or "dict" if all act at once,
            "turn" or "dict" if they take turns; `None` for the first.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` keeps only the game's own limit.
        env_wrappers: Wrappers for the environment, innermost first.
        **kwargs: Arguments of `PettingZooWrapper` or `PettingZooAECWrapper`; all others
            are the game's.

    Example:
        >>> env = load("classic/rps_v2", max_cycles=3, discount=0.9)
        >>> env.reset().observation["alive"]
        array([ True,  True])
        >>> env.close()

    Raises:
        ConstructorError: The game is unknown.
        MissingDependencyError: A library that the game needs is not installed.
    """
    require(
        "pettingzoo",
        needed_by=f"The environment {environment_name!r}",
        extra="pettingzoo",
    )
    prepare_module(None, kwargs.get("render_mode"))
    game = _found(environment_name)
    options = {key: kwargs.pop(key) for key in _OPTIONS if key in kwargs}
    if agents is not None:
        options["agents"] = agents
    try:
        api = _chosen_api(game, api)
        made = _make(game, api, kwargs)
    # Any error, because games wrap import errors in their own.
    except Exception as error:
        missing = _missing(error)
        if missing is None:
            raise
        raise MissingDependencyError(
            f"The environment {game.name!r} needs the package {missing}, which is not "
            f'installed. pip install "pettingzoo[{game.name.partition("/")[0]}]"'
        ) from error
    wrapper = PettingZooWrapper if api == "parallel" else PettingZooAECWrapper
    env: PyEnvironment = wrapper(made, **options)
    return limited_and_wrapped(env, max_episode_steps, TimeLimit, env_wrappers)


def names() -> list[str]:
    """Lists the names of all games, including their families.

    Example:
        >>> "butterfly/pistonball_v6" in names()
        True
    """
    require("pettingzoo", needed_by="suite_pettingzoo", extra="pettingzoo")
    return sorted(game.name for game in _games())


def _found(name: str) -> _Game:
    games = {game.name: game for game in _games()}
    wanted = _with_underscore(name)
    if wanted in games:
        return games[wanted]
    same = [game for game in games.values() if game.name.split("/")[-1] == wanted]
    if len(same) == 1:
        return same[0]
    if wanted.startswith("mpe/") and importlib.util.find_spec("mpe2") is None:
        raise MissingDependencyError(
            f"The environment {name!r} needs the package mpe2, which is not installed. "
            "pip install mpe2"
        )
    raise ConstructorError(
        f"PettingZoo has no game {name!r}.{_hint(wanted, list(games))} "
        "envkit.adapters.suite_pettingzoo.names() lists them."
    )


def _hint(wanted: str, known: list[str]) -> str:
    """Returns a hint: another version or family first, then similar spellings."""
    bare = _VERSION.sub("", wanted).split("/")[-1]
    alike = [name for name in known if _VERSION.sub("", name).split("/")[-1] == bare]
    if not alike:
        return suggestion(wanted, known)
    why = "" if _VERSION.search(wanted) else " Versions are part of the name."
    return f"{why} There is {' and '.join(map(repr, sorted(alike)))}."


def _games() -> Iterator[_Game]:
    import pettingzoo

    if hasattr(pettingzoo, "parallel_registry"):
        yield from _registered(pettingzoo)
    else:
        for family in _FAMILIES:
            yield from _in_folder(family, f"pettingzoo.{family}")
    yield from _in_folder("mpe", "mpe2")


def _registered(library: Any) -> Iterator[_Game]:
    for identifier in sorted({*library.parallel_registry, *library.aec_registry}):
        yield _Game(_with_underscore(identifier), identifier, None)


def _in_folder(family: str, package: str) -> Iterator[_Game]:
    """Finds versioned modules in a package without importing them."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    for found in pkgutil.iter_modules(folders or []):
        if _VERSION.search(found.name):
            yield _Game(f"{family}/{found.name}", None, f"{package}.{found.name}")


def _with_underscore(name: str) -> str:
    # PettingZoo itself uses both "-v3" and "_v3".
    return _VERSION.sub(r"_v\1", name)


def _chosen_api(game: _Game, wanted: str | None) -> str:
    """Returns the requested API, or the first that the game has."""
    apis = [api for api in _APIS if _has_api(game, api)]
    if wanted is None:
        return apis[0]
    if wanted not in apis:
        raise ConstructorError(
            f"{game.name!r} has no api {wanted!r}; it has "
            f"{' and '.join(map(repr, apis))}."
        )
    return wanted


def _has_api(game: _Game, api: str) -> bool:
    if game.module is not None:
        return hasattr(importlib.import_module(game.module), _APIS[api])
    import pettingzoo

    return game.identifier in getattr(pettingzoo, f"{api}_registry")


def _make(game: _Game, api: str, kwargs: dict[str, Any]) -> Any:
    if game.module is not None:
        return getattr(importlib.import_module(game.module), _APIS[api])(**kwargs)
    import pettingzoo

    return pettingzoo.make(api, game.identifier, **kwargs)


def _missing(error: BaseException | None) -> str | None:
    """Returns the name of a missing package, if that caused the error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.partition(".")[0]
        # PettingZoo raises its own errors from import errors.
        error = error.__cause__ or error.__context__
    return None
