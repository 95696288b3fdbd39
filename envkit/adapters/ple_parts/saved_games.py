"""The state of a game of PLE as bytes, pictures of its sprites included.

What the PLE and the game hold is pickled together. The surfaces of pygame do not pickle
by themselves; here they do, by what is drawn on them. The display stays the one that
the process has, and what it shows is saved, too.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from typing import Any

from envkit.adapters.ple_parts import one_display
from envkit.window import surface

__all__ = ["SavedGame", "restore_game", "save_game"]


@dataclasses.dataclass(frozen=True, slots=True)
class SavedGame:
    """All that a PLE and its game hold at one moment.

    Attributes:
        game: The class of the game.
        content: What they hold, pickled.
    """

    game: str
    content: bytes


def save_game(ple: Any, beside: Any) -> SavedGame:
    """Saves a game, and something beside it.

    Raises:
        NotImplementedError: Something that the game holds cannot be saved.
    """
    name = type(ple.game).__qualname__
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, _staying(ple))
    held = vars(ple), vars(ple.game), one_display.blank_of(), beside
    # Whatever an attribute raises when it is pickled, it means the same.
    try:
        pickler.dump(held)
    except Exception as error:
        raise NotImplementedError(
            f"{name} cannot save its state. A state is all that PLE and the game "
            f"hold, and one of these things does not pickle: {error}"
        ) from error
    return SavedGame(name, buffer.getvalue())


def restore_game(ple: Any, saved: SavedGame) -> Any:
    """Brings back a game, and returns what was saved beside it.

    Raises:
        ValueError: It is another game.
    """
    name = type(ple.game).__qualname__
    if saved.game != name:
        raise ValueError(f"{name} was given the state of another game: {saved.game}.")
    staying = _staying(ple)
    loaded = _Unpickler(io.BytesIO(saved.content), staying).load()
    of_ple, of_game, shown, beside = loaded
    for owner, attributes in ((ple, of_ple), (staying["game"], of_game)):
        vars(owner).clear()
        vars(owner).update(attributes)
    one_display.put_blank(shown)
    return beside


def _staying(ple: Any) -> dict[str, Any]:
    """Returns what is referred to by a name: these stay the objects they are."""
    return {
        "ple": ple,
        "game": ple.game,
        "display": surface(),
        # Most are functions without a place to be found at.
        "state_preprocessor": getattr(ple, "state_preprocessor", None),
    }


class _Pickler(pickle.Pickler):
    """Pickles what stays as a name, and surfaces by their pixels."""

    def __init__(self, file: io.BytesIO, staying: dict[str, Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {
            id(value): name for name, value in staying.items() if value is not None
        }
        self._pygame = sys.modules.get("pygame")

    def persistent_id(self, obj: Any) -> str | None:
        return self._names.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        pygame = self._pygame
        if pygame is not None and isinstance(obj, pygame.Surface):
            return _drawn, _parts_of(obj)
        if pygame is not None and isinstance(obj, type(pygame.time.Clock())):
            return type(obj), ()
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Puts what stays where its name is."""

    def __init__(self, file: io.BytesIO, staying: dict[str, Any]) -> None:
        super().__init__(file)
        self._staying = staying

    def persistent_load(self, name: str) -> Any:
        return self._staying[name]


def _parts_of(surface: Any) -> tuple[Any, ...]:
    if surface.get_parent() is not None:
        # Its rows are parts of another one's; those of a copy lie side by side.
        surface = surface.copy()
    return (
        surface.get_size(),
        surface.get_flags(),
        surface.get_bitsize(),
        surface.get_masks(),
        surface.get_palette() if surface.get_bitsize() <= 8 else None,
        surface.get_colorkey(),
        surface.get_alpha(),
        bytes(surface.get_buffer().raw),
    )


def _drawn(
    size: Any,
    flags: int,
    bits: int,
    masks: Any,
    palette: Any,
    colorkey: Any,
    alpha: Any,
    pixels: bytes,
) -> Any:
    import pygame

    kept = flags & pygame.SRCALPHA
    # A depth of 8 has a palette, and no masks.
    surface = pygame.Surface(size, kept, bits, *([masks] if palette is None else []))
    if palette is not None:
        surface.set_palette(palette)
    surface.get_buffer().write(pixels)
    if colorkey is not None:
        surface.set_colorkey(colorkey, flags & pygame.RLEACCEL)
    if alpha not in (None, 255):  # Opaque is what surfaces are anyway.
        surface.set_alpha(alpha)
    return surface
