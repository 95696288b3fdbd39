"""The pictures of a recording: rendered while it is made, and kept beside its episodes.

An episode's pictures are a zip archive, with a PNG for each time step: `000000.png` is
that of the `FIRST`. Nothing else depends on the archive, so it can be deleted.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit._shared.pixels import check_picture
from envkit._shared.png import png_of
from envkit.errors import CallOrderError
from envkit.types import Array

__all__ = ["PictureFile", "Renderer", "archive_of", "opened", "png_in"]

# The first year in zip archives: equal pictures give equal files.
_DATE = (1980, 1, 1, 0, 0, 0)


def archive_of(episode: Path) -> Path:
    """Returns the path of the pictures that belong to an episode's file."""
    return episode.with_name(f"pictures-{episode.stem.rpartition('-')[2]}.zip")


class Renderer:
    """Renders the rows of an environment."""

    def __init__(self, env: Any) -> None:
        """Takes the environment.

        Raises:
            NotImplementedError: It does not render.
        """
        self._env = env
        self._dims = (env.batch_size,) if env.batched else ()
        self._name = type(getattr(env, "unwrapped", env)).__name__
        try:
            env.render("rgb_array")
        except NotImplementedError:
            raise
        except Exception:  # many can only render after a reset
            return

    def pictures(self, rows: Sequence[int]) -> list[Array]:
        """Returns copies of the pictures of some rows; none while rows are stepping."""
        try:
            found = self._env.render("rgb_array")
        except CallOrderError:
            return []
        check_picture(found, self._dims, f'{self._name}: render("rgb_array")')
        by_row = found if self._dims else found[np.newaxis]
        return [np.array(by_row[row]) for row in rows]


class PictureFile:
    """Collects the pictures of an episode, and writes their file.

    Attributes:
        size: The size of the pictures in memory, in bytes.
    """

    def __init__(self, path: Path) -> None:
        """Takes the path, which appears once all pictures are written."""
        self.size = 0
        self._path, self._unfinished = path, path.with_suffix(".part")
        self._pngs: dict[int, bytes] = {}

    def add(self, step: int, picture: Array) -> None:
        """Adds the picture of a time step."""
        self._pngs[step] = png_of(picture)
        self.size += len(self._pngs[step])

    def put_aside(self) -> None:
        """Writes the pictures in memory, which frees the memory."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # They are compressed already.
        with zipfile.ZipFile(self._unfinished, "a", zipfile.ZIP_STORED) as archive:
            for step, png in self._pngs.items():
                archive.writestr(zipfile.ZipInfo(_name(step), _DATE), png)
        self._pngs, self.size = {}, 0

    def finish(self) -> None:
        """Writes the rest, and gives the file its name."""
        self.put_aside()
        os.replace(self._unfinished, self._path)

    def discard(self) -> None:
        """Removes everything."""
        self._unfinished.unlink(missing_ok=True)


def _name(step: int) -> str:
    return f"{step:06d}.png"


def opened(path: Path) -> zipfile.ZipFile | None:
    """Reads an archive into memory; returns `None` if there is none."""
    try:
        return zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    except FileNotFoundError:
        return None


def png_in(archive: zipfile.ZipFile, step: int) -> bytes | None:
    """Returns the picture of a time step as PNG; `None` if there is none."""
    try:
        return archive.read(_name(step))
    except KeyError:
        return None
