"""Games of ViZDoom: found by the name of a scenario, set up and started."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envkit.specs.validation import describe
from envkit.targets import suggestion

__all__ = ["GameFiles", "game_of", "set_up", "shipped_scenarios"]


def shipped_scenarios() -> list[str]:
    """Returns the names of the scenarios that ViZDoom brings along, sorted."""
    import vizdoom

    return sorted(path.stem for path in Path(vizdoom.scenarios_path).glob("*.cfg"))


class GameFiles:
    """A folder for the settings that a game writes, which would lie around otherwise.

    Settings that somebody else's game has written would also change what this one
    shows.
    """

    def __init__(self) -> None:
        """Makes the folder."""
        self._folder = tempfile.mkdtemp(prefix="envkit-vizdoom-")
        self._remove = weakref.finalize(
            self, shutil.rmtree, self._folder, ignore_errors=True
        )

    def use_for(self, game: Any) -> None:
        """Lets a game write its settings here, unless it has a place for them."""
        if not game.get_doom_config_path():
            game.set_doom_config_path(os.path.join(self._folder, "settings.ini"))

    def remove(self) -> None:
        """Removes the folder; removing it again does nothing."""
        self._remove()


def game_of(game: Any) -> tuple[Any, str, bool]:
    """Returns a game, its name, and whether it is ours to set up.

    Args:
        game: A `DoomGame`, something to call that makes one, the name of a scenario or
            the path of a configuration.
    """
    if isinstance(game, str | os.PathLike):
        path = _configuration(os.fspath(game))
        import vizdoom

        configured = vizdoom.DoomGame()
        configured.load_config(str(path))
        return configured, path.stem, True
    ours = callable(game)
    made: Any = game() if callable(game) else game
    needed = ("init", "new_episode", "make_action", "get_state", "set_seed")
    if isinstance(made, type) or not all(hasattr(made, name) for name in needed):
        returned = "what returned " if ours else ""
        raise TypeError(
            f"VizDoomWrapper was given {returned}{describe(made)}. It takes a "
            "vizdoom.DoomGame, something to call that makes one, the name of a "
            "scenario such as 'basic', or the path of a configuration."
        )
    return made, type(made).__name__, ours


def _configuration(name: str) -> Path:
    import vizdoom

    folder = Path(vizdoom.scenarios_path)
    for path in (Path(name), folder / name, folder / f"{name}.cfg"):
        if path.is_file():
            return path.absolute()
    known = shipped_scenarios()
    raise ValueError(
        f"There is no scenario {name!r}, and no file of that name."
        f"{suggestion(name, known)} ViZDoom brings along {', '.join(known)}."
    )


def set_up(
    game: Any,
    *,
    settings: Mapping[str, Any],
    resolution: str | tuple[int, int] | None,
    observe: tuple[str, ...],
    window: bool,
    realtime: bool,
) -> None:
    """Configures a game that does not run yet."""
    import vizdoom

    game.set_window_visible(window)
    if settings and not game.set_config(dict(settings)):
        raise ValueError(
            f"ViZDoom does not know all of these settings: {dict(settings)}."
        )
    if resolution is not None:
        game.set_screen_resolution(_resolution(resolution))
    for name in observe:
        switch = getattr(game, f"set_{name}_buffer_enabled", None)
        if switch is not None:
            switch(True)
    wanted = vizdoom.Mode.ASYNC_PLAYER if realtime else vizdoom.Mode.PLAYER
    with_spectator = ("SPECTATOR", "ASYNC_SPECTATOR")
    if game.get_mode().name not in with_spectator:
        game.set_mode(wanted)


def _resolution(resolution: str | tuple[int, int]) -> Any:
    import vizdoom

    if not isinstance(resolution, str):
        resolution = "x".join(map(str, resolution))
    name = f"RES_{resolution.upper().removeprefix('RES_')}"
    with contextlib.suppress(AttributeError):
        return getattr(vizdoom.ScreenResolution, name)
    names = [other for other in dir(vizdoom.ScreenResolution) if "RES_" in other]
    known = sorted(names, key=lambda other: [*map(int, other[4:].split("X"))])
    raise ValueError(
        f"ViZDoom has no resolution {resolution!r}. It has "
        f"{', '.join(other[4:].lower() for other in known)}."
    )
