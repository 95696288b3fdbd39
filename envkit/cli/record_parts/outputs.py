"""Where a recording goes: it is there as a whole, or not at all.

It is made in a folder beside its place, and takes its place when it is whole. Whatever
happens before that, the folder is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envkit.error_texts import first_line
from envkit.errors import MissingDependencyError, RecordingError, SpecError
from envkit.wrappers.pictures.rendered import check_picture, tiled
from envkit.wrappers.video.film import FORMATS, Film

__all__ = [
    "Camera",
    "check_can_film",
    "check_output",
    "film",
    "kind_of",
    "new_directory",
]

DIRECTORY = "directory"
_FILMS = {f".{name}" for name in FORMATS}
# What looks like a film to people, and would surprise them as a directory.
_OTHER_FILMS = {".avi", ".mov", ".mkv", ".webm", ".m4v", ".webp", ".apng", ".png"}
# GIFs count time in hundredths of a second; what is shorter than two they show slowly.
_FASTEST_GIF = 50


def kind_of(path: Path, fps: float = 30.0) -> str:
    """Returns what is to be made: "mp4", "gif" or "directory".

    Example:
        >>> kind_of(Path("out.GIF")), kind_of(Path("runs/catch"))
        ('gif', 'directory')
    """
    suffix = path.suffix.lower()
    if suffix in _OTHER_FILMS:
        raise ValueError(
            f"{str(path)!r} ends in {path.suffix}; a film is .mp4 or .gif, and "
            "anything else is a directory of episodes."
        )
    if suffix == ".gif" and fps > _FASTEST_GIF:
        raise ValueError(
            f"A GIF shows at most {_FASTEST_GIF} pictures in a second, not {fps:g}. An "
            ".mp4 shows more."
        )
    return suffix[1:] if suffix in _FILMS else DIRECTORY


def check_can_film(kind: str) -> None:
    """Raises if the package is missing that writes such a film."""
    if kind == DIRECTORY:
        return
    try:
        FORMATS[kind].load()
    except MissingDependencyError as error:
        raise MissingDependencyError.needed_by(
            f"A film in .{kind}", package=error.package, extra=error.extra
        ) from error


def check_output(path: Path, kind: str, *, overwrite: bool) -> None:
    """Raises if something is there that may not be replaced."""
    if not path.exists() or (kind == DIRECTORY and _is_empty(path)):
        return
    if not overwrite and (kind == DIRECTORY or not path.is_dir()):
        raise FileExistsError(
            f"{str(path)!r} exists already. --overwrite replaces it, once the new one "
            "is whole."
        )
    if not path.is_dir() and not path.is_file():
        raise FileExistsError(
            f"{str(path)!r} is a device, a pipe or a socket, so it is not replaced."
        )
    # Nobody means to have a folder of something else removed.
    if path.is_dir() and (kind != DIRECTORY or not (path / "recording.json").exists()):
        raise FileExistsError(
            f"{str(path)!r} is a directory that is no recording of envkit, so it is "
            "not replaced."
        )


class Camera:
    """Adds pictures of an environment to a film; of a batch all rows side by side."""

    def __init__(self, film: Film, env: Any, name: str) -> None:
        """Takes the film, the environment, and what it is called."""
        self._film, self._env, self._name = film, env, name
        self._dims = () if env.batch_size is None else (env.batch_size,)
        self._shape: tuple[int, ...] = ()

    @property
    def pictures(self) -> int:
        """How many pictures there are."""
        return self._film.pictures

    def shoot(self) -> None:
        """Adds what the environment renders now."""
        try:
            picture = self._env.render("rgb_array")
        except NotImplementedError as error:
            raise NotImplementedError(
                f"{self._name} cannot be filmed: {first_line(str(error))} A directory "
                "of episodes needs no pictures: -o DIRECTORY."
            ) from error
        check_picture(picture, self._dims, f'{self._name}: render("rgb_array")')
        self._shape = self._shape or picture.shape
        if picture.shape != self._shape:
            raise SpecError(
                f"{self._name} cannot be filmed: its picture after {self.pictures} has "
                f"shape {picture.shape}, and those before have {self._shape}; a film "
                "has one size."
            )
        self._film.write(tiled(picture) if self._dims else picture)


@contextlib.contextmanager
def film(path: Path, fps: float, env: Any, name: str) -> Iterator[Camera]:
    """Gives what films an environment; the film takes its place at the end."""
    with _beside(path) as folder:
        made = Film(folder, "film", format=path.suffix[1:].lower(), fps=fps)
        try:
            yield Camera(made, env, name)
        finally:
            made.finish()
        if made.path is not None:
            os.replace(made.path, path)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Gives a directory to fill, which takes its place at the end."""
    with _beside(path) as folder:
        made = folder / "new"
        try:
            yield made
        except RecordingError as error:
            if error.__cause__ is None:
                raise
            # It names the folder that is removed now, as if something were left there.
            raise RecordingError(
                f"{str(path)!r} cannot be written: {error.__cause__}"
            ) from error
        old = folder / "old"
        try:
            if path.exists():
                os.replace(path, old)
            os.replace(made, path)
        except BaseException:
            if old.exists() and not path.exists():
                os.replace(old, path)
            raise


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Gives a folder on the same disk, which is removed with all that is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
