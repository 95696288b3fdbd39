"""What the adapters of PettingZoo ask of a game: its kind, its agents, its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from envkit.specs.validation import describe

__all__ = [
    "agents_of",
    "as_aec",
    "as_parallel",
    "check_render_mode",
    "check_saves_all",
    "is_aec",
    "layers_of_game",
    "name_of_game",
    "opened",
]

_NEEDED = ("reset", "step", "observation_space", "action_space")


def opened(env_or_factory: Any, adapter: str) -> Any:
    """Returns a game: the one given, or what a factory makes."""
    if _is_game(env_or_factory):
        return env_or_factory
    if not callable(env_or_factory):
        _refuse(adapter, f"was given {describe(env_or_factory)}")
    game = env_or_factory()
    if not _is_game(game):
        _refuse(adapter, f"was given a factory that made {describe(game)}")
    return game


def _is_game(thing: Any) -> bool:
    has_methods = all(callable(getattr(thing, name, None)) for name in _NEEDED)
    return has_methods and not isinstance(thing, type)


def _refuse(adapter: str, what: str) -> NoReturn:
    raise TypeError(
        f"{adapter} {what}, which is not an environment of PettingZoo. Its modules "
        "have functions that make some: pettingzoo.butterfly.pistonball_v6"
        ".parallel_env()."
    )


def is_aec(game: Any) -> bool:
    """Says whether the agents of a game take turns, which PettingZoo calls AEC."""
    return callable(getattr(game, "last", None)) and hasattr(game, "observe")


def as_parallel(game: Any, adapter: str) -> Any:
    """Returns a game in which all agents act at once, if that is what it comes to.

    Raises:
        TypeError: The agents take turns, and see what the others did before.
    """
    if not is_aec(game):
        return game
    if not getattr(game, "metadata", {}).get("is_parallelizable", False):
        raise TypeError(
            f"{adapter} was given {name_of_game(game)}, whose agents take turns: its "
            "metadata does not say that it is_parallelizable. PettingZooAECWrapper "
            "takes it as it is."
        )
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(game)


def as_aec(game: Any) -> Any:
    """Returns a game in which agents take turns; any will do."""
    if is_aec(game):
        return game
    from pettingzoo.utils.conversions import parallel_to_aec

    return parallel_to_aec(game)


def name_of_game(game: Any) -> str:
    """Returns what a game calls itself, or the name of its class."""
    innermost = getattr(game, "unwrapped", game)
    metadata = getattr(game, "metadata", None) or {}
    return str(metadata.get("name") or type(innermost).__name__)


def agents_of(game: Any, given: Sequence[Any] | None, adapter: str) -> list[Any]:
    """Returns all agents that may take part: those given, or those the game names."""
    agents = list(
        getattr(game, "possible_agents", None) or () if given is None else given
    )
    if not agents:
        raise ValueError(
            f"{adapter} was given {name_of_game(game)}, which has no possible_agents. "
            "Name all agents that may ever take part: "
            f'{adapter}(env, possible_agents=["agent_0", "agent_1"]).'
        )
    if len(set(agents)) != len(agents):
        raise ValueError(f"possible_agents names an agent twice: {agents!r:.200}.")
    return agents


def layers_of_game(game: Any) -> list[Any]:
    """Lists the wrappers and conversions from the outside, and last the game."""
    layers = [game]
    while (inner := _inside(layers[-1])) is not None:
        layers.append(inner)
    return layers


def _inside(layer: Any) -> Any:
    # Some games have an `env` of their own, and are no wrappers for that.
    innermost = getattr(layer, "unwrapped", layer)
    if innermost is layer:
        return None
    held: dict[str, Any] = vars(layer)
    return held.get("env", held.get("aec_env", innermost))


def check_saves_all(layers: Sequence[Any], name: str) -> None:
    """Raises if something in a game says that it pickles, and forgets a part of it.

    A space of pymunk leaves out what it knows of bodies that touch, so a game that goes
    on with a copy goes another way.
    """
    for layer in layers:
        for value in vars(layer).values():
            if type(value).__module__.partition(".")[0] == "pymunk":
                raise NotImplementedError(
                    f"{name} cannot save its state: pymunk, which does its physics, "
                    "leaves out what it knows of bodies that touch."
                )


def check_render_mode(game: Any, name: str, mode: str) -> None:
    """Raises unless a game was made with this `render_mode`."""
    made_with = getattr(game, "render_mode", None)
    if made_with != mode:
        how = f"with render_mode={made_with!r}" if made_with else "without one"
        raise NotImplementedError(
            f"{name} cannot render {mode!r}: the render_mode of a PettingZoo "
            f"environment is chosen when it is made, and this one was made {how}. "
            f"Make it with render_mode={mode!r}."
        )
