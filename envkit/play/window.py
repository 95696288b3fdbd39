"""pygame's window: one per process, in which environments show their pictures."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.pixels import tiled
from envkit._shared.quiet_sdl import chosen_driver, has_display, prepare_sdl
from envkit.errors import MissingDependencyError
from envkit.types import Array

__all__ = [
    "BACKGROUND",
    "WINDOW",
    "PictureWindow",
    "draw_picture",
    "open_display",
    "surface",
    "window_size",
]

_SMALLEST = 480  # about the least size of a picture's larger side
_LARGEST = 960
BACKGROUND = (24, 24, 28)
# How many pictures of one environment are shown per second: people have to follow.
_FPS = 30


def surface() -> Any:
    """Returns the surface of pygame's window; `None` if nothing is shown."""
    # If a display is open, pygame is imported.
    pygame = sys.modules.get("pygame")
    return pygame.display.get_surface() if pygame is not None else None


def open_display(needed_by: str, *, instead: str, seen: bool = True) -> Any:
    """Prepares pygame's display for a window, and returns pygame.

    Args:
        needed_by: The feature that needs it, as the beginning of the sentence.
        instead: What to do without a window, as a sentence.
        seen: Whether it must be visible, which requires a display.

    Raises:
        MissingDependencyError: pygame is not installed.
        OSError: There is no display, or another program blocks it.
    """
    spec = importlib.util.find_spec("pygame")
    if spec is None or spec.origin is None:
        raise MissingDependencyError.needed_by(
            needed_by, package="pygame", extra="play"
        )
    if surface() is not None:
        raise OSError(
            "Another environment uses pygame's display, and a process has only one. "
            f"{instead}"
        )
    if seen and not (has_display() or chosen_driver()):
        raise OSError(f"There is no display to open a window on. {instead}")
    prepare_sdl(shows_window=True)
    import pygame

    pygame.display.init()
    return pygame


def window_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns the initial window size, width and height, for pictures of a shape.

    Example:
        >>> window_size((100, 240, 3)), window_size((2000, 1000, 3))
        ((480, 200), (480, 960))
    """
    height, width = shape[:2]
    larger = max(height, width)
    times = max(1.0, _SMALLEST // larger) if larger <= _LARGEST else _LARGEST / larger
    return int(width * times), int(height * times)


def draw_picture(pygame: Any, canvas: Any, picture: Array, height: int) -> Any:
    """Draws a picture into the middle of a surface, as large as possible.

    It returns its position as a pygame rectangle.

    Args:
        pygame: The library.
        canvas: The surface.
        picture: A uint8 array `(height, width, 3)`.
        height: How many rows of the surface it may use, from the top.
    """
    image = pygame.image.frombuffer(
        np.ascontiguousarray(picture).tobytes(), picture.shape[1::-1], "RGB"
    )
    width, height = canvas.get_width(), max(1, height)
    size = _fitting(image.get_size(), (width, height))
    image = pygame.transform.scale(image, size)
    return canvas.blit(image, ((width - size[0]) // 2, (height - size[1]) // 2))


def _fitting(size: tuple[int, int], room: tuple[int, int]) -> tuple[int, int]:
    """Returns the size at which a picture fits, enlarged only by whole factors."""
    share = min(room[0] / size[0], room[1] / size[1])
    times = int(share) if share >= 1 else share
    return max(1, int(size[0] * times)), max(1, int(size[1] * times))


class _Shown(NamedTuple):
    """Holds a picture in the window, and the name of its environment."""

    owner: weakref.ref[Any]
    picture: Array


class PictureWindow:
    """Shows the pictures of a process's environments in one window.

    It opens with the first picture and closes with the last one. Several pictures are
    side by side in the order in which they came. An environment that shows more than 30
    pictures per second is slowed down.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        # By the id of the environment, which the window does not keep alive.
        self._shown: dict[int, _Shown] = {}
        # Environments drawn since the last pause.
        self._drawn: set[int] = set()
        self._canvas: Any = None
        self._size = (0, 0)
        self._clock: Any = None
        self._lock = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether an environment of this process shows its picture."""
        return bool(self._shown) and self._process == os.getpid()

    def show(self, owner: object, picture: Array) -> None:
        """Shows an environment's picture, replacing its last one.

        Args:
            owner: The environment.
            picture: A uint8 array `(height, width, 3)`.

        Raises:
            MissingDependencyError: pygame is not installed.
            OSError: There is no display, or another program blocks it.
        """
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]  # A fork has no window.
        with self._lock:
            name, key = type(owner).__name__, id(owner)
            pygame = self._opened(name)
            if key in self._drawn:
                self._clock.tick(_FPS)
                self._drawn.clear()
            self._drawn.add(key)
            self._shown[key] = _Shown(weakref.ref(owner), picture)
            self._draw(pygame, name)

    def hide(self, owner: object) -> None:
        """Removes an environment's picture, if it shows one."""
        if self._process != os.getpid():
            return
        with self._lock:
            if self._shown.pop(id(owner), None) is None:
                return
            if surface() is not self._canvas:
                self._shown.clear()  # other code has closed or taken the display
            elif self._shown:
                self._draw(sys.modules["pygame"], type(owner).__name__)
            else:
                sys.modules["pygame"].display.quit()

    def _opened(self, name: str) -> Any:
        """Returns pygame, with its display opened as the window."""
        if self._canvas is not None and surface() is self._canvas:
            return sys.modules["pygame"]
        self._shown.clear()
        self._drawn.clear()
        self._canvas = None
        pygame = open_display(
            f"{name}.render('human')", instead="render('ansi') returns text."
        )
        self._clock = pygame.time.Clock()
        return pygame

    def _draw(self, pygame: Any, name: str) -> None:
        """Draws the pictures of all environments."""
        for key in [key for key, one in self._shown.items() if one.owner() is None]:
            del self._shown[key]
        picture = _side_by_side([one.picture for one in self._shown.values()])
        size = window_size(picture.shape)
        if self._canvas is None or self._size != size:
            self._size = size
            self._canvas = pygame.display.set_mode(size, pygame.RESIZABLE)
            pygame.display.set_caption(name)
        # Otherwise the system would report the window as hanging.
        pygame.event.pump()
        self._canvas.fill(BACKGROUND)
        draw_picture(pygame, self._canvas, picture, self._canvas.get_height())
        pygame.display.flip()


WINDOW = PictureWindow()


def _side_by_side(pictures: list[Array]) -> Array:
    """Joins pictures into one, each in the middle of a cell as large as the largest."""
    if len(pictures) == 1:
        return pictures[0]
    height = max(picture.shape[0] for picture in pictures)
    width = max(picture.shape[1] for picture in pictures)
    cells = np.zeros((len(pictures), height, width, 3), np.uint8)
    for cell, picture in zip(cells, pictures, strict=True):
        top = (height - picture.shape[0]) // 2
        left = (width - picture.shape[1]) // 2
        cell[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return tiled(cells)
