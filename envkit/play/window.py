"""pygame's window: there is one in a process, in which environments show pictures.

SDL, on which pygame stands, reads its settings from environment variables only. Those
that are set already stay as they are.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.pixels import tiled
from envkit.errors import MissingDependencyError
from envkit.types import Array

__all__ = [
    "BACKGROUND",
    "WINDOW",
    "PictureWindow",
    "draw_picture",
    "has_display",
    "open_display",
    "prepare_sdl",
    "surface",
    "window_size",
]

_ALWAYS = {
    # Otherwise pygame prints a greeting when it is imported.
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    # SDL would take SIGTERM for a click on a window's close button, and a worker that
    # is to end would go on.
    "SDL_NO_SIGNAL_HANDLERS": "1",
}
_WITHOUT_WINDOW = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
_SMALLEST = 480  # what the larger side of a picture becomes at least, about
_LARGEST = 960
BACKGROUND = (24, 24, 28)
# How many pictures of one environment are shown in a second: people have to follow.
_FPS = 30


def prepare_sdl(shows_window: bool | None) -> None:
    """Sets the variables of this process that are not set yet.

    Args:
        shows_window: Whether the game is to be seen. `None` if that is not known:
            then a machine without a display is taken not to show any.
    """
    settings = dict(_ALWAYS)
    if not (has_display() if shows_window is None else shows_window):
        settings.update(_WITHOUT_WINDOW)
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def has_display() -> bool:
    """Returns True if there is a screen to show a window on."""
    if sys.platform != "linux":
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def surface() -> Any:
    """Returns the surface of pygame's window; `None` if nothing is shown."""
    # Where there is a display, pygame is imported.
    pygame = sys.modules.get("pygame")
    return pygame.display.get_surface() if pygame is not None else None


def open_display(needed_by: str, *, instead: str, seen: bool = True) -> Any:
    """Prepares pygame's display for a window, and returns pygame.

    Args:
        needed_by: Who needs it, as the sentence begins.
        instead: What to do without a window, as a sentence.
        seen: Whether it is to be seen, which takes a display.

    Raises:
        MissingDependencyError: pygame is not installed.
        OSError: There is no display, or something else has it.
    """
    spec = importlib.util.find_spec("pygame")
    if spec is None or spec.origin is None:
        raise MissingDependencyError.needed_by(
            needed_by, package="pygame", extra="play"
        )
    if surface() is not None:
        raise OSError(
            "An environment has pygame's display to itself, and there is one in a "
            f"process. {instead}"
        )
    if seen and not (has_display() or os.environ.get("SDL_VIDEODRIVER")):
        raise OSError(f"There is no display to open a window on. {instead}")
    prepare_sdl(shows_window=True)
    import pygame

    pygame.display.init()
    return pygame


def window_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns how large a picture of this shape is shown at first: width and height.

    Example:
        >>> window_size((100, 240, 3)), window_size((2000, 1000, 3))
        ((480, 200), (480, 960))
    """
    height, width = shape[:2]
    larger = max(height, width)
    times = max(1.0, _SMALLEST // larger) if larger <= _LARGEST else _LARGEST / larger
    return int(width * times), int(height * times)


def draw_picture(pygame: Any, canvas: Any, picture: Array, height: int) -> Any:
    """Draws a picture into the middle of a surface, as large as there is room.

    It returns pygame's rectangle with where that is.

    Args:
        pygame: The library.
        canvas: The surface.
        picture: A uint8 array `(height, width, 3)`.
        height: How many rows of the surface there are for it, from the top.
    """
    image = pygame.image.frombuffer(
        np.ascontiguousarray(picture).tobytes(), picture.shape[1::-1], "RGB"
    )
    width, height = canvas.get_width(), max(1, height)
    size = _fitting(image.get_size(), (width, height))
    image = pygame.transform.scale(image, size)
    return canvas.blit(image, ((width - size[0]) // 2, (height - size[1]) // 2))


def _fitting(size: tuple[int, int], room: tuple[int, int]) -> tuple[int, int]:
    """Returns how large a picture becomes, in whole numbers if it grows."""
    share = min(room[0] / size[0], room[1] / size[1])
    times = int(share) if share >= 1 else share
    return max(1, int(size[0] * times)), max(1, int(size[1] * times))


class _Shown(NamedTuple):
    """A picture in the window, and whose it is."""

    owner: weakref.ref[Any]
    picture: Array


class PictureWindow:
    """The window in which the environments of a process show their pictures.

    It opens with the first picture and closes with the last one. Where there are
    several, they stand side by side in the order in which they came. An environment
    that shows more than 30 in a second is slowed down.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        # By the id of the environment, which the window does not keep alive.
        self._shown: dict[int, _Shown] = {}
        # Those that have been drawn since the last pause.
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
        """Shows an environment's picture in place of its last one.

        Args:
            owner: The environment.
            picture: A uint8 array `(height, width, 3)`.

        Raises:
            MissingDependencyError: pygame is not installed.
            OSError: There is no display, or something else has it.
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
        """Takes an environment's picture away, if it shows one."""
        if self._process != os.getpid():
            return
        with self._lock:
            if self._shown.pop(id(owner), None) is None:
                return
            if surface() is not self._canvas:
                self._shown.clear()  # Something else has closed or taken the display.
            elif self._shown:
                self._draw(sys.modules["pygame"], type(owner).__name__)
            else:
                sys.modules["pygame"].display.quit()

    def _opened(self, name: str) -> Any:
        """Returns pygame, whose display is the window's."""
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
        """Draws the pictures of all environments that there are."""
        for key in [key for key, one in self._shown.items() if one.owner() is None]:
            del self._shown[key]
        picture = _side_by_side([one.picture for one in self._shown.values()])
        size = window_size(picture.shape)
        if self._canvas is None or self._size != size:
            self._size = size
            self._canvas = pygame.display.set_mode(size, pygame.RESIZABLE)
            pygame.display.set_caption(name)
        # Otherwise the window would be taken to hang.
        pygame.event.pump()
        self._canvas.fill(BACKGROUND)
        draw_picture(pygame, self._canvas, picture, self._canvas.get_height())
        pygame.display.flip()


WINDOW = PictureWindow()


def _side_by_side(pictures: list[Array]) -> Array:
    """Returns pictures as one, each in the middle of a place for the largest."""
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
