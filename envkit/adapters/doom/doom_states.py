"""What a state of ViZDoom shows, as observations of fixed shapes.

Pictures have the shape (height, width, channels) and their colours the order red,
green, blue, whatever the game's `screen_format`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["PARTS", "DoomObservations", "enabled_parts"]

PARTS = ("screen", "depth", "labels", "automap", "audio", "game_variables")
# Whether the channels come first, and where red, green and blue, or grey, are.
_FORMATS: dict[str, tuple[bool, tuple[int, ...]]] = {
    "CRCGCB": (True, (0, 1, 2)),
    "CBCGCR": (True, (2, 1, 0)),
    "RGB24": (False, (0, 1, 2)),
    "BGR24": (False, (2, 1, 0)),
    "RGBA32": (False, (0, 1, 2)),
    "ARGB32": (False, (1, 2, 3)),
    "BGRA32": (False, (2, 1, 0)),
    "ABGR32": (False, (3, 2, 1)),
    "GRAY8": (False, (0,)),
    "DOOM_256_COLORS8": (False, (0,)),
}


def enabled_parts(game: Any) -> tuple[str, ...]:
    """Returns what the states of a game have."""
    asked = {
        part: getattr(game, f"is_{part}_buffer_enabled", None)
        for part in ("depth", "labels", "automap", "audio")
    }
    has = {part: ask is not None and ask() for part, ask in asked.items()}
    has["screen"] = True
    has["game_variables"] = bool(game.get_available_game_variables())
    return tuple(part for part in PARTS if has[part])


class DoomObservations:
    """Makes observations of a game's states, and remembers the last."""

    def __init__(self, game: Any, parts: str | tuple[str, ...]) -> None:
        """Prepares for a game that runs.

        Args:
            game: The game.
            parts: What to observe: several parts for a dictionary, the name of one for
                that alone.
        """
        self._game = game
        self._single = parts if isinstance(parts, str) else None
        self._parts = (parts,) if isinstance(parts, str) else parts
        self._channels_first, self._channels = _FORMATS[game.get_screen_format().name]
        self._variables = game.get_available_game_variables()
        self._seen: dict[str, Any] = {}
        first = self._read(game.get_state())
        specs: dict[str, Any] = {
            part: self._spec(part, first[part]) for part in self._parts
        }
        self.spec: NestedSpec = specs[self._single] if self._single else specs

    def look(self) -> NestedArray:
        """Returns what the game shows; after the end, what it showed last.

        Numbers of the player are known after the end, too.
        """
        state = self._game.get_state()
        if state is not None:
            self._seen = self._read(state)
        elif "game_variables" in self._seen:
            self._seen["game_variables"] = self._numbers()
        parts = {part: _copied(self._seen[part]) for part in self._parts}
        return parts[self._single] if self._single else parts

    def picture(self) -> Array:
        """Returns what was on the screen last, in colours."""
        screen = self._seen["screen"]
        return np.array(np.broadcast_to(screen, (*screen.shape[:2], 3)))

    @property
    def seen(self) -> dict[str, Any]:
        """What was seen last; it may be set."""
        return self._seen

    @seen.setter
    def seen(self, seen: dict[str, Any]) -> None:
        self._seen = seen

    def _read(self, state: Any) -> dict[str, Any]:
        readers: dict[str, Callable[[], Any]] = {
            "screen": lambda: self._colours(state.screen_buffer),
            "automap": lambda: self._colours(state.automap_buffer),
            "depth": lambda: state.depth_buffer[..., np.newaxis],
            "labels": lambda: state.labels_buffer[..., np.newaxis],
            "audio": lambda: np.asarray(state.audio_buffer),
            "game_variables": lambda: dict(
                zip(self._names(), map(np.array, state.game_variables), strict=True)
            ),
        }
        # The screen is for pictures, too.
        return {part: readers[part]() for part in {"screen", *self._parts}}

    def _colours(self, buffer: Array) -> Array:
        if buffer.ndim == 2:
            return buffer[..., np.newaxis]
        if self._channels_first:
            buffer = np.moveaxis(buffer, 0, -1)
        return np.ascontiguousarray(buffer[..., list(self._channels)])

    def _names(self) -> list[str]:
        return [variable.name for variable in self._variables]

    def _numbers(self) -> dict[str, Array]:
        return {
            variable.name: np.array(self._game.get_game_variable(variable))
            for variable in self._variables
        }

    def _spec(self, part: str, first: Any) -> NestedSpec:
        if part == "game_variables":
            return {
                name: ArraySpec((), value.dtype, name) for name, value in first.items()
            }
        if part == "audio":
            return ArraySpec(first.shape, first.dtype, part)
        return BoundedArraySpec(first.shape, np.uint8, 0, 255, part)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: array.copy() for key, array in value.items()}
    return value.copy()
