"""`Film`: a video file that takes one picture after another and keeps none of them.

Whatever happens, what was filmed until then can be played: `finish` ends the file, and
so do the garbage collector, the end of the interpreter, and, where the process was
killed, ffmpeg itself; a GIF is whole at any time. Only where writing itself fails, the
file is deleted.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import weakref
from pathlib import Path
from typing import Protocol

from envkit.errors import SpecError
from envkit.types import Array
from envkit.wrappers.video.gif_file import GifFile
from envkit.wrappers.video.mp4_file import Mp4File

__all__ = ["FORMATS", "Film"]

_LOGGER = logging.getLogger(__name__)

FORMATS: dict[str, type[GifFile | Mp4File]] = {"gif": GifFile, "mp4": Mp4File}


class _File(Protocol):
    """What both kinds of files do."""

    def write(self, picture: Array) -> None: ...

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class Film:
    """A film; its file begins with the first picture.

    Attributes:
        path: The file; `None` before there is one.
        pictures: How many pictures were written.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     film = Film(folder, "black", format="gif", fps=30)
        ...     film.write(np.zeros((4, 6, 3), np.uint8))
        ...     film.finish()
        ...     film.path.name
        'black.gif'
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        *,
        format: str,  # noqa: A002  # what everybody calls it
        fps: float,
    ) -> None:
        """Prepares a film.

        Args:
            folder: Where the file goes; made if it is not there.
            name: What the file is called. Where there is such a file, "-2" and so on
                is added: none is ever overwritten, not even by another process.
            format: "gif" or "mp4".
            fps: How many pictures are shown in a second.
        """
        self.path: Path | None = None
        self.pictures = 0
        self._folder, self._name = Path(folder), name
        self._kind, self._fps = FORMATS[format], fps
        self._shape: tuple[int, ...] = ()
        self._file: _File | None = None
        self._end: weakref.finalize[..., Film] | None = None

    def write(self, picture: Array) -> None:
        """Adds a picture, a uint8 array `(height, width, 3)`."""
        if self._file is None:
            self._open(picture.shape)
        elif self._end is None or not self._end.alive:
            return  # It belongs to the process that this one was forked from.
        elif picture.shape != self._shape:
            self.finish()
            raise SpecError(
                f"The picture after {self.pictures} has shape {picture.shape}, and "
                f"those before have {self._shape}: a film has one size. It ends with "
                f"those before, in {self.path}."
            )
        try:
            self._file.write(picture)  # type: ignore[union-attr]  # it is open
        except Exception:
            self._discard()
            raise
        except BaseException:  # Ctrl-C is no fault of the file
            self.finish()
            raise
        self.pictures += 1

    def finish(self) -> None:
        """Ends the file; a second time it does nothing."""
        if self._file is None or self._end is None or self._end.detach() is None:
            return
        _OPEN.discard(self)
        try:
            self._file.finish()
        except BaseException:
            self._delete()
            raise
        _LOGGER.info("filmed %s: %d pictures", self.path, self.pictures)

    def _open(self, shape: tuple[int, ...]) -> None:
        self._kind.load()  # Without its package there is to be no file either.
        self._shape = shape
        self.path = _new_file(self._folder, self._name, self._kind.suffix)
        try:
            self._file = self._kind(self.path, self._fps, *shape[:2])
        except BaseException:
            self._delete()
            raise
        self._end = weakref.finalize(self, _finish_forgotten, self._file, self.path)
        _watch_forks()
        _OPEN.add(self)

    def _discard(self) -> None:
        """Ends and deletes a file that could not be written."""
        self._end.detach()  # type: ignore[union-attr]  # it is open
        _OPEN.discard(self)
        with contextlib.suppress(Exception):  # the one on its way says why
            self._file.finish()  # type: ignore[union-attr]  # likewise
        self._delete()

    def _delete(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()  # type: ignore[union-attr]  # it was made

    def _leave_to_parent(self) -> None:
        if self._end is not None and self._end.detach() is not None:
            self._file.abandon()  # type: ignore[union-attr]  # it is open


_OPEN: weakref.WeakSet[Film] = weakref.WeakSet()


def _finish_forgotten(file: _File, path: Path) -> None:
    """Ends the file of a film that nobody finished."""
    try:
        file.finish()
    except Exception as error:
        # Nobody is there to catch it.
        _LOGGER.warning("the film %s is lost: %s", path, error)
        with contextlib.suppress(OSError):
            path.unlink()


def _new_file(folder: Path, name: str, suffix: str) -> Path:
    """Makes an empty file with a name that no other has."""
    folder.mkdir(parents=True, exist_ok=True)
    path, number = folder / f"{name}{suffix}", 1
    while True:
        try:
            path.open("xb").close()
            return path
        except FileExistsError:
            number += 1
            path = folder / f"{name}-{number}{suffix}"


@functools.cache
def _watch_forks() -> None:
    """Makes processes that are forked leave the films of this one alone."""
    # Windows does not fork.
    register = getattr(os, "register_at_fork", lambda **_: None)
    register(after_in_child=_leave_all_to_parent)


def _leave_all_to_parent() -> None:
    for film in list(_OPEN):
        film._leave_to_parent()
    _OPEN.clear()
