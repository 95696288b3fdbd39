"""What `PLEWrapper` is given, as a PLE: an instance, a game, or what makes one."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Mapping
from typing import Any

from envkit.adapters.dependencies import require
from envkit.errors import MissingDependencyError
from envkit.specs.validation import describe
from envkit.window import prepare_sdl

__all__ = ["as_ple", "import_quietly", "require_ple"]

_OF_PLE = ("act", "game_over", "getActionSet", "init", "reset_game")
_OF_GAME = ("_setup", "game_over", "getScore", "reset", "step")


def require_ple(needed_by: str) -> None:
    """Raises unless PLE and pygame are installed; imports neither."""
    require("pygame", needed_by=needed_by, extra="ple")
    spec = importlib.util.find_spec("ple")
    if spec is None or spec.origin is None:
        error = MissingDependencyError(
            f"{needed_by} needs PLE, which is not installed, and which no package "
            "registry has. Clone github.com/ntasfi/PyGame-Learning-Environment and "
            'install that folder: pip install "envkit[ple]" -e '
            "PyGame-Learning-Environment"
        )
        error.package, error.extra = "ple", "ple"
        raise error


def import_quietly(name: str) -> Any:
    """Imports a module of PLE, without the lines it prints about its games of Doom.

    These need a library that is gone; each process that plays would print them.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            return importlib.import_module(name)
    finally:
        # What other threads and modules have printed meanwhile is kept.
        for line in printed.getvalue().splitlines(keepends=True):
            if not line.lower().startswith("couldn't import doom"):
                print(line, end="")


def as_ple(game: Any, ple_kwargs: Mapping[str, Any]) -> Any:
    """Returns the PLE that `game` is, makes, or is to be played in.

    Args:
        game: A PLE, a game, or something to call that makes one of the two.
        ple_kwargs: What to make a PLE of a game with.

    Raises:
        TypeError: It is something else, or a PLE and was given keyword arguments.
    """
    made = game
    if isinstance(game, type) or (callable(game) and not _has(game, _OF_PLE)):
        # A class of games shows no window unless its PLE is told to; a function may
        # know better.
        unknown = None if not _has(game, _OF_GAME) else False
        prepare_sdl(ple_kwargs.get("display_screen", unknown))
        made = game()
    if _has(made, _OF_PLE):
        if ple_kwargs:
            raise TypeError(
                "PLEWrapper was given a PLE, and ple_kwargs, which are for making "
                f"one: {', '.join(ple_kwargs)}. Pass them to PLE, or give PLEWrapper "
                "the game."
            )
        return made
    if isinstance(made, type) or not _has(made, _OF_GAME):
        how = "made" if made is not game else "was given"
        raise TypeError(
            f"PLEWrapper {how} {describe(made)}, which is neither a PLE nor a game of "
            "PLE. PLEWrapper(Catcher), PLEWrapper(PLE(Catcher())) and "
            "PLEWrapper(lambda: PLE(Catcher())) are all right."
        )
    return _ple_of(made, ple_kwargs)


def _has(value: Any, names: tuple[str, ...]) -> bool:
    return all(hasattr(value, name) for name in names)


def _ple_of(game: Any, ple_kwargs: Mapping[str, Any]) -> Any:
    require_ple("PLEWrapper")
    prepare_sdl(ple_kwargs.get("display_screen", False))
    # Some games run at one speed only, and PLE refuses another.
    fixed = getattr(game, "allowed_fps", None)
    usual = {} if fixed is None else {"fps": fixed}
    return import_quietly("ple").PLE(game, **{**usual, **ple_kwargs})
