"""`Mp4File`: pictures that go through a pipe to ffmpeg, which makes an MP4 of them.

ffmpeg comes with imageio-ffmpeg. It is started here and not there, because it must not
be forked (Python then runs the fork hooks of every library, and JAX for one warns of
that), and because a film has to end also where another process was forked while it ran
and holds the pipe open.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from envkit.errors import MissingDependencyError
from envkit.types import Array

__all__ = ["Mp4File"]

# How long ffmpeg may take for what it has not written yet: some seconds of a film.
_SECONDS = 60.0
# How much is shown of what it says when it fails.
_MOST_CHARACTERS = 2000


class Mp4File:
    """An MP4 (H.264) that is being written; where to, exists already.

    The file can be played when it is finished. That happens, too, when this process is
    killed: ffmpeg notices and ends the file.
    """

    suffix = ".mp4"

    @staticmethod
    def load() -> Any:
        """Returns what knows where ffmpeg is, or says which package is missing."""
        try:
            from imageio_ffmpeg import get_ffmpeg_exe
        except ImportError as error:
            raise MissingDependencyError.needed_by(
                'RecordVideo with format="mp4"', package="imageio-ffmpeg", extra="video"
            ) from error
        return get_ffmpeg_exe

    def __init__(self, path: Path, fps: float, height: int, width: int) -> None:
        """Starts ffmpeg for pictures of one size."""
        # H.264 as all players know it keeps colours for squares of 2 by 2 points, so
        # odd sizes get their last line or column twice. Scaling would blur them.
        odd = ((0, height % 2), (0, width % 2), (0, 0))
        self._padding = odd if height % 2 or width % 2 else None
        size = f"{width + width % 2}x{height + height % 2}"
        rate = str(Fraction(fps).limit_denominator(100_000))
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", rate]
        target = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "mp4"]
        command = [
            self.load()(),
            "-v",
            "error",
            "-y",
            *source,
            "-i",
            "-",
            *target,
            path,
        ]
        self._path = path
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                # Ctrl-C is for this process, which then finishes the film.
                start_new_session=True,
            )
        except BaseException:
            self._complaints.close()
            raise

    def write(self, picture: Array) -> None:
        """Adds a picture; waits while ffmpeg is behind."""
        if self._padding is not None:
            picture = np.pad(picture, self._padding, "edge")
        pipe: Any = self._process.stdin
        try:
            pipe.write(np.ascontiguousarray(picture).data)
            pipe.flush()
        except OSError as error:
            raise self._failure() from error

    def finish(self) -> None:
        """Waits until ffmpeg has ended the file."""
        self._close_pipe()
        if self._status() != 0:
            raise self._failure()
        self._complaints.close()

    def abandon(self) -> None:
        """Lets go of the pipe, through which another process goes on writing."""
        self._close_pipe()
        self._complaints.close()

    def _close_pipe(self) -> None:
        with contextlib.suppress(OSError):  # ffmpeg is gone, and its status says why
            self._process.stdin.close()  # type: ignore[union-attr]  # it is a pipe

    def _status(self) -> int:
        try:
            return self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _failure(self) -> OSError:
        """Ends ffmpeg, and returns the error that tells why it failed."""
        self._close_pipe()
        status = self._status()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip()
        self._complaints.close()
        text = f"ffmpeg could not write {self._path}; it ended with status {status}."
        return OSError(f"{text}\n\n{said[-_MOST_CHARACTERS:]}" if said else text)
