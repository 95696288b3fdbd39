"""Writes the output of `record -o` and `play --record`: a film or a directory."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envkit._shared.pixels import check_picture, tiled
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.cli.output import say, unwritable
from envkit.cli.target import Closing
from envkit.errors import MissingDependencyError, RecordingError, SpecError
from envkit.play.pictures import observed_picture
from envkit.recording.record import Record
from envkit.time_step import TimeStep
from envkit.types import Array
from envkit.wrappers.video import FASTEST_GIF, FORMATS, Film, ffmpeg

__all__ = ["DIRECTORY", "FILM_HZ", "add_output", "check_output", "recorded"]

DIRECTORY = "directory"
# The default pace of a film.
FILM_HZ = 30.0
_FILMS = {f".{name}" for name in FORMATS}
# Extensions of films that envkit cannot write; a directory of that name would surprise.
_OTHER_FILMS = {".avi", ".mov", ".mkv", ".webm", ".m4v", ".webp", ".apng", ".png"}


def add_output(parser: argparse.ArgumentParser, *names: str, default: str) -> None:
    """Adds the option for the output, `--overwrite` and `--pictures`.

    Args:
        parser: The parser.
        *names: The option's names.
        default: The output's default path.
    """
    parser.add_argument(
        *names,
        metavar="PATH",
        type=Path,
        help="a film, such as film.mp4 or film.gif, or a directory for the episodes, "
        f"which envkit.recording.Replay and envkit replay read (default: {default})",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing film or recording at PATH",
    )
    parser.add_argument(
        "--pictures",
        action="store_true",
        help="in a directory, keep a rendered picture of each time step too (default: "
        "none; envkit replay --html may draw them later)",
    )


def check_output(path: Path, hz: float, *, overwrite: bool, pictures: bool) -> str:
    """Returns the kind of the output: "mp4", "gif" or "directory".

    Raises:
        ValueError: Films of that kind cannot be written, or are asked for pictures.
        MissingDependencyError: The package that writes such films is missing.
        FileExistsError: The path holds something that may not be replaced.
    """
    suffix = path.suffix.lower()
    kind = suffix[1:] if suffix in _FILMS else DIRECTORY
    if suffix in _OTHER_FILMS:
        raise ValueError(
            f"{str(path)!r} ends in {path.suffix}; a film is .mp4 or .gif, and "
            "anything else is a directory of episodes."
        )
    if kind == "gif" and hz > FASTEST_GIF:
        raise ValueError(
            f"A GIF shows at most {FASTEST_GIF} pictures per second, not {hz:g}. An "
            ".mp4 shows more."
        )
    if pictures and kind != DIRECTORY:
        raise ValueError(
            f"--pictures has no effect in a film: leave it out, or give a directory "
            f"instead of {str(path)!r}."
        )
    _check_replaceable(path, kind, overwrite=overwrite)
    if kind != DIRECTORY:
        try:
            ffmpeg()
        except MissingDependencyError as error:
            raise MissingDependencyError.needed_by(
                f"A film in .{kind}", package=error.package, extra=error.extra
            ) from error
    return kind


def _check_replaceable(path: Path, kind: str, *, overwrite: bool) -> None:
    if not path.exists() or (kind == DIRECTORY and _is_empty(path)):
        return
    if not overwrite and (kind == DIRECTORY or not path.is_dir()):
        raise FileExistsError(
            f"{str(path)!r} exists already. --overwrite replaces it, once the new one "
            "is complete."
        )
    if not path.is_dir() and not path.is_file():
        raise FileExistsError(
            f"{str(path)!r} is a device, a pipe or a socket, so it is not replaced."
        )
    # Otherwise a directory with other content would be lost.
    if path.is_dir() and (kind != DIRECTORY or not (path / "recording.json").exists()):
        raise FileExistsError(
            f"{str(path)!r} is a directory that is not a recording of envkit, so it "
            "is not replaced."
        )


class _Filmed(PyEnvironmentBaseWrapper):
    """Adds each picture to a film; for a batch, all rows side by side."""

    def __init__(self, env: Any, film: Film, name: str) -> None:
        super().__init__(env)
        self._film, self._name = film, name
        self._shape: tuple[int, ...] = ()

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        try:
            picture = self._env.render("rgb_array")
        except NotImplementedError as error:
            why, *_ = str(error).split("\n")
            raise NotImplementedError(
                f"{self._name} cannot be filmed: {why} A directory of episodes needs "
                "no pictures: give a PATH without .mp4 or .gif."
            ) from error
        check_picture(picture, self._dims, f'{self._name}: render("rgb_array")')
        self._shape = self._shape or picture.shape
        if picture.shape != self._shape:
            raise SpecError(
                f"{self._name} cannot be filmed: its picture after "
                f"{self._film.pictures} has shape {picture.shape}, and those before "
                f"have {self._shape}; a film has one size."
            )
        self._film.write(tiled(picture) if self._dims else picture)
        return time_step


@contextlib.contextmanager
def recorded(
    env: Any, path: Path, kind: str, hz: float, name: str, *, pictures: bool
) -> Iterator[Any]:
    """Yields the recorded environment; the output is put in place at the end.

    The environment is closed at the end.

    Args:
        env: The environment.
        path: The path of the output.
        kind: The result of `check_output`.
        hz: The film's pictures per second.
        name: The environment's name in messages.
        pictures: Whether a directory has pictures too.
    """
    if kind == DIRECTORY:
        with _new_directory(path) as folder:
            made = _recording(env, folder, name, pictures=pictures)
            with Closing(made) as recording:
                yield recording
        return
    with _beside(path) as folder:
        film = Film(folder, "film", format=kind, fps=hz)
        try:
            with Closing(_Filmed(env, film, name)) as filmed:
                yield filmed
        finally:
            film.finish()
        if film.path is not None:
            os.replace(film.path, path)


def _recording(env: Any, folder: Path, name: str, *, pictures: bool) -> Record:
    try:
        return Record(env, folder, pictures=pictures)
    except NotImplementedError as error:
        why, *_ = str(error).split("\n")
        if observed_picture(env.observation_spec()) is None:
            raise NotImplementedError(
                f"{name} cannot be recorded with pictures: {why} Leave --pictures out."
            ) from error
        say(
            f"{name} does not render, so its pictures are those in its observations.",
            file=sys.stderr,
        )
        return Record(env, folder)


@contextlib.contextmanager
def _new_directory(path: Path) -> Iterator[Path]:
    """Yields a directory to fill, which is put in place at the end."""
    with _beside(path) as folder:
        made = folder / "new"
        try:
            yield made
        except RecordingError as error:
            if error.__cause__ is None:
                raise
            # It names the temporary folder, as if something were left there.
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


# An output is complete or absent: it is written in a folder beside its path, and moved
# there when it is complete. The folder is removed in any case.
@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yields a folder on the same disk, and removes it at the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
