"""What environments draw with, as far as it goes into a state.

pygame's pictures are copied, and the window stays the one that there is. What draws for
MuJoCo in Gymnasium begins anew, for the memory of a graphics library cannot be saved:
its next picture is drawn from the state, and seen from where the last one was.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

__all__ = ["Reduced", "reduced_drawing"]

# What `pickle` takes for a description of an object; NotImplemented for its own way.
Reduced = Any
_CAMERA = (
    "type",
    "fixedcamid",
    "trackbodyid",
    "lookat",
    "distance",
    "azimuth",
    "elevation",
)


def reduced_drawing(value: Any) -> Reduced:
    """Says how something that draws is pickled, if it is such a thing."""
    kind = type(value)
    if kind.__name__ == "MujocoRenderer":
        return _without_viewers(value)
    if kind.__name__ == "Surface" and _is_pygames(kind):
        return _reduced_surface(value)
    if kind.__name__ == "Clock" and _is_pygames(kind):
        return kind, ()
    return NotImplemented


def _is_pygames(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "pygame"


def _without_viewers(renderer: Any) -> Reduced:
    attributes = {**vars(renderer), "_viewers": {}, "viewer": None}
    if renderer.viewer is not None:
        # A viewer chooses its place by where things are when it is made.
        camera = renderer.viewer.cam
        attributes["default_cam_config"] = {
            name: copy.copy(getattr(camera, name)) for name in _CAMERA
        }
    return object.__new__, (type(renderer),), attributes


def _reduced_surface(surface: Any) -> Reduced:
    import pygame

    if surface is pygame.display.get_surface():
        return _window, ()
    if surface.get_parent() is not None:
        # It shares the memory of another, which copies would not.
        return NotImplemented
    is_indexed = surface.get_bitsize() == 8
    return _surface, (
        surface.get_size(),
        surface.get_flags() & (pygame.SRCALPHA | pygame.SRCCOLORKEY),
        surface.get_bitsize(),
        surface.get_masks(),
        surface.get_buffer().raw,
        surface.get_colorkey(),
        surface.get_alpha(),
        surface.get_palette() if is_indexed else None,
    )


def _window() -> Any:
    pygame = sys.modules.get("pygame")
    return None if pygame is None else pygame.display.get_surface()


def _surface(
    size: tuple[int, int],
    flags: int,
    depth: int,
    masks: tuple[int, int, int, int],
    pixels: bytes,
    colorkey: Any,
    alpha: Any,
    palette: Any,
) -> Any:
    import pygame

    surface = pygame.Surface(size, flags, depth, masks)
    if palette is not None:
        surface.set_palette(palette)
    surface.get_buffer().write(pixels)
    surface.set_colorkey(colorkey)
    surface.set_alpha(alpha)
    return surface
