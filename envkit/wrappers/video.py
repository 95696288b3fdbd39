"""Films episodes: `RecordVideo`, and `Film`, which writes a GIF or an MP4."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import numbers
import os
import subprocess
import weakref
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from envkit._shared.pixels import check_picture, tiled
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import MissingDependencyError, SpecError
from envkit.extend import (
    WrapperInternals,
    as_array,
    checked_size,
    describe,
    listed,
    may_lose,
)
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = [
    "FASTEST_GIF",
    "FORMATS",
    "Film",
    "RecordVideo",
    "Trigger",
    "capped_cubic_video_schedule",
    "checked_trigger",
    "ffmpeg",
    "schedule",
]


_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_LAYOUTS = ("episode", "grid")
# GIFs count time in hundredths of a second, and players slow down any picture shorter
# than two of them to ten.
FASTEST_GIF = 50


class _VideoInternals(WrapperInternals):
    """Finishes the open videos when a state is restored."""

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        env._stop(range(len(env._films)))


class RecordVideo(PyEnvironmentBaseWrapper):
    """Films some episodes, from `FIRST` to `LAST`, and writes them to files.

    A picture is the result of `render("rgb_array")` at `FIRST` and after each step. It
    goes to the file at once, so a long episode takes no memory. While no film runs,
    nothing is rendered. Files are called `rl-video-episode-8.mp4`; episodes count from
    0. No file is ever overwritten: the next one is `rl-video-episode-8-2.mp4`.

    In a batch, row 0 is filmed, or the rows in `rows`; each counts its own episodes and
    has its own files (`rl-video-episode-8-row-3.mp4`). With `layout="grid"`, one film
    shows all rows, or those in `rows`, side by side; it follows the first of them.
    Rendering a batch renders all its rows. To render only one, wrap that environment
    before it goes into the batch or pool: the others need no wrapper.

    A film ends with its episode, or earlier with `reset`, `close` or `set_state`; the
    next film begins with the next episode that is due. Everything filmed so far is
    kept, even if the wrapper is not closed or its process is killed. A step in which
    an environment is lost is not filmed.

    imageio-ffmpeg (the extra `video`) brings ffmpeg; it is imported with the first
    picture.

    Example:
        >>> import os, tempfile
        >>> from envkit.envs import Catch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with RecordVideo(Catch(seed=1), folder, every=2, format="gif") as env:
        ...         for _ in range(30):
        ...             time_step = env.step(1)
        ...     sorted(os.listdir(folder))
        ['rl-video-episode-0.gif', 'rl-video-episode-2.gif']
    """

    _envkit = _VideoInternals()

    _kept = ("_episodes", "_steps")
    _shown = ("video_folder",)

    def __init__(
        self,
        env: Any,
        video_folder: str | os.PathLike[str],
        *,
        every: int | None = None,
        episode_trigger: Trigger | None = None,
        step_trigger: Trigger | None = None,
        video_length: int = 0,
        name_prefix: str = "rl-video",
        fps: float = 30,
        format: str = "mp4",  # noqa: A002  # the usual name
        layout: str = "episode",
        rows: int | Sequence[int] | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Without `every` and triggers, the episodes of `capped_cubic_video_schedule` are
        filmed.

        Args:
            env: The environment to wrap; it must render "rgb_array".
            video_folder: The folder of the files; created with the first one.
            every: Films each episode whose number is a multiple of this.
            episode_trigger: Called with the number of each episode that begins; returns
                whether to film it.
            step_trigger: Called with the number of each step, counted from 0 over all
                episodes; returns whether to begin a film now, ending the running one.
            video_length: How many pictures a film has, over however many episodes; 0
                films until the end of the episode.
            name_prefix: The beginning of file names.
            fps: Pictures per second; at most 50 in a GIF.
            format: "mp4" or "gif". A GIF has 256 colours in each picture.
            layout: "episode" for a film of each row, "grid" for one film of all.
            rows: The rows of a batch to film.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._folder = _checked_folder(video_folder)
        self._prefix = _checked_prefix(name_prefix)
        _check_choice("format", format, list(FORMATS))
        _check_choice("layout", layout, _LAYOUTS)
        self._format, self._fps = format, _checked_fps(fps, format)
        self._video_length = checked_size(
            "video_length", video_length, least=0, hint=" (0 for whole episodes)"
        )
        self._step_trigger = checked_trigger("step_trigger", step_trigger)
        self._episode_trigger = schedule(every, episode_trigger, step_trigger)
        chosen = self._chosen_rows(rows, layout)
        # The rows in each film; it follows the first of them.
        self._views = [chosen] if layout == "grid" else [(row,) for row in chosen]
        self._in_grid = layout == "grid"
        self._leads = np.array([view[0] for view in self._views])
        self._films: list[Film | None] = [None] * len(self._views)
        self._running = np.zeros(len(self._views), bool)
        self._may_lose = may_lose(self._env)
        self._episodes = np.full(len(self._views), -1, np.int64)
        self._steps = np.full(len(self._views), -1, np.int64)

    @property
    def video_folder(self) -> str:
        """The folder of the files."""
        return str(self._folder)

    @property
    def recording(self) -> bool:
        """Whether a film is running."""
        return bool(self._running.any())

    def close(self) -> None:
        """Ends the running films, and closes the environment."""
        try:
            self._stop(range(len(self._films)))
        finally:
            super().close()

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step, mostly while no film runs.
        step_types = np.reshape(time_step.step_type, -1)[self._leads]
        moved = np.ones_like(self._running) if rows is None else rows[self._leads]
        first = moved & (step_types == _FIRST)
        self._episodes = self._episodes + first
        self._steps = self._steps + (moved & ~first)
        concerned = first | (moved & self._running)
        if self._step_trigger is not None:
            concerned = moved
        if concerned.any():
            self._begin(first, concerned)
            running, last = concerned & self._running, step_types == _LAST
            if not (self._may_lose and self._env.repaired.any()):
                self._shoot(running, last)
            elif not self._video_length:
                # What replaces a lost environment has nothing to render yet.
                self._stop((running & last).nonzero()[0].tolist())
        return time_step

    def _begin(self, first: Array, concerned: Array) -> None:
        """Begins the films that are due, and ends those of finished episodes."""
        for index in concerned.nonzero()[0].tolist():
            if first[index]:
                if not self._video_length:
                    self._stop([index])
                trigger, kind, number = self._episode_trigger, "episode", self._episodes
            else:
                trigger, kind, number = self._step_trigger, "step", self._steps
            if trigger is not None and trigger(int(number[index])):
                self._stop([index])
                name = f"{self._prefix}-{kind}-{number[index]}"
                if self.batched and not self._in_grid:
                    name = f"{name}-row-{self._leads[index]}"
                film = Film(self._folder, name, format=self._format, fps=self._fps)
                self._films[index] = film
                self._running[index] = True

    def _shoot(self, running: Array, last: Array) -> None:
        """Adds a picture to the running films, and ends those that are complete."""
        indices = running.nonzero()[0].tolist()
        if not indices:
            return
        try:
            pictures = self._pictures()
            for index in indices:
                film, view = self._films[index], list(self._views[index])
                picture = tiled(pictures[view]) if self._in_grid else pictures[view[0]]
                film.write(picture)  # type: ignore[union-attr]  # it is running
        except BaseException:
            self._stop(indices)
            raise
        length = self._video_length
        self._stop(
            index
            for index in indices
            if (self._films[index].pictures >= length if length else last[index])  # type: ignore[union-attr]  # likewise
        )

    def _stop(self, indices: Iterable[int]) -> None:
        # Ends all of them, even if ending one fails.
        with contextlib.ExitStack() as stack:
            for index in indices:
                film, self._films[index] = self._films[index], None
                self._running[index] = False
                if film is not None:
                    stack.callback(film.finish)

    def _pictures(self) -> Array:
        """Returns the picture of each row; a single environment is one row."""
        name = type(self._env).__name__
        try:
            picture = self._env.render("rgb_array")
        except NotImplementedError as error:
            raise NotImplementedError(
                f"RecordVideo cannot film {name} without pictures: {error}"
            ) from error
        check_picture(picture, self._dims, f'{name}.render("rgb_array")')
        return picture if self._dims else picture[np.newaxis]  # type: ignore[no-any-return]  # checked above

    def __getstate__(self) -> dict[str, Any]:
        # A film follows one environment; a copy of it starts without a film.
        films: list[Film | None] = [None] * len(self._films)
        running = np.zeros_like(self._running)
        return {**vars(self), "_films": films, "_running": running}

    def _chosen_rows(self, rows: Any, layout: str) -> tuple[int, ...]:
        """Returns the rows to film; a single environment is row 0."""
        if self.batch_size is None:
            if rows is not None or layout == "grid":
                wrong = f"rows={rows!r}" if rows is not None else 'layout="grid"'
                raise ValueError(
                    f"RecordVideo was given {wrong}, and {type(self._env).__name__} is "
                    "not batched, so it has no rows to choose from. Leave it out."
                )
            return (0,)
        if rows is None:
            return tuple(range(self.batch_size)) if layout == "grid" else (0,)
        chosen = np.atleast_1d(as_array(rows))
        if (
            chosen.ndim != 1
            or not chosen.size
            or chosen.dtype.kind not in "iu"
            or (chosen < 0).any()
            or (chosen >= self.batch_size).any()
            or len(set(chosen.tolist())) < chosen.size
        ):
            raise ValueError(
                f"rows is {rows!r}; RecordVideo takes a row or several different ones, "
                f"from 0 to {self.batch_size - 1}."
            )
        return tuple(chosen.tolist())


def _checked_folder(folder: Any) -> Path:
    try:
        text = None if isinstance(folder, bytes) else os.fspath(folder)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise TypeError(
            "video_folder must be the path of a folder, a str or a pathlib.Path, "
            f"got {describe(folder)}."
        )
    if not text:
        raise ValueError(
            'video_folder must be the path of a folder, such as "." for the '
            'current one, got "".'
        )
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            f"video_folder is {str(path)!r}, which is not a folder."
        )
    return path


def _checked_prefix(prefix: Any) -> str:
    if isinstance(prefix, str) and prefix and prefix == Path(prefix).name:
        return prefix
    raise ValueError(
        f"name_prefix must be the beginning of the names of files, got {prefix!r}. "
        "Folders belong in video_folder."
    )


def _check_choice(name: str, choice: Any, choices: Sequence[str]) -> None:
    if choice not in choices:
        raise ValueError(f"{name} must be one of {listed(choices)}, got {choice!r}.")


def _checked_fps(fps: Any, format_: str) -> float:
    is_number = isinstance(fps, numbers.Real) and not isinstance(fps, bool)
    if not is_number or not 0 < fps < math.inf:
        raise ValueError(f"fps must be a number above 0, got {fps!r}.")
    if format_ == "gif" and fps > FASTEST_GIF:
        raise ValueError(
            f"fps is {fps!r}; a GIF shows at most {FASTEST_GIF} pictures in a second. "
            'Pass format="mp4" for more.'
        )
    return float(fps)


Trigger = Callable[[int], bool]


def capped_cubic_video_schedule(episode_id: int) -> bool:
    """True for the episodes that are filmed by default.

    These are 0, 1, 8, 27 and the other cubes up to 1,000, then every thousandth.

    Example:
        >>> [number for number in range(100) if capped_cubic_video_schedule(number)]
        [0, 1, 8, 27, 64]
    """
    number = checked_size("episode_id", episode_id, least=0)
    if number >= 1000:
        return number % 1000 == 0
    return bool(round(number ** (1 / 3)) ** 3 == number)


def schedule(every: Any, episode_trigger: Any, step_trigger: Any) -> Trigger | None:
    """Returns a function that chooses the episodes to film; `None` for none.

    Example:
        >>> fifth = schedule(5, None, None)
        >>> [number for number in range(12) if fifth(number)]
        [0, 5, 10]
    """
    checked_trigger("episode_trigger", episode_trigger)
    if every is None:
        if episode_trigger is None and step_trigger is None:
            return capped_cubic_video_schedule
        return episode_trigger  # type: ignore[no-any-return]  # checked above
    if episode_trigger is not None:
        raise ValueError(
            "RecordVideo was given both every and episode_trigger. Both choose "
            "episodes: leave one of them out."
        )
    period = checked_size("every", every)
    # Everything in here must pickle with the wrapper.
    return functools.partial(_is_multiple, period)


def _is_multiple(period: int, episode_id: int) -> bool:
    return episode_id % period == 0


def checked_trigger(name: str, trigger: Any) -> Trigger | None:
    """Returns a trigger; raises if it cannot be called."""
    if trigger is None or callable(trigger):
        return trigger  # type: ignore[no-any-return]  # checked above
    hint = " For every n-th episode, pass every=n." if isinstance(trigger, int) else ""
    raise TypeError(
        f"{name} must be a function of a number that returns whether to film, got "
        f"{describe(trigger)}.{hint}"
    )


# How long ffmpeg may take to write the rest: some seconds of film.
_SECONDS = 60.0

# Arguments of ffmpeg, by format.
FORMATS = {
    # A palette for each picture, so up to 256 colours come out nearly unchanged.
    "gif": (
        *("-vcodec", "gif", "-pix_fmt", "pal8", "-gifflags", "-transdiff", "-vf"),
        "split[a][b];[a]palettegen=reserve_transparent=0:stats_mode=single[p];"
        "[b][p]paletteuse=dither=none:new=1",
    ),
    # H.264 in the form that every player supports.
    "mp4": ("-vcodec", "libx264", "-pix_fmt", "yuv420p"),
}


def ffmpeg() -> str:
    """Returns the path of ffmpeg; the error names the missing package."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError as error:
        raise MissingDependencyError.needed_by(
            "RecordVideo", package="imageio-ffmpeg", extra="video"
        ) from error
    path: str = get_ffmpeg_exe()
    return path


class _File:
    """Writes a film through ffmpeg into a file that already exists.

    If this process is killed, ffmpeg notices and finishes the file.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        fps: float,
        format: str,  # noqa: A002  # the usual name
    ) -> None:
        """Starts ffmpeg for pictures of one shape."""
        height, width = shape[:2]
        # H.264 stores colours for squares of 2 by 2 pixels, so odd sizes get their last
        # row or column twice. Scaling would blur them.
        is_odd = (height % 2, width % 2) if format == "mp4" else (0, 0)
        self._padding = [*((0, more) for more in is_odd), (0, 0)]
        self._path = path
        size = f"{width + is_odd[1]}x{height + is_odd[0]}"
        rate = str(Fraction(fps).limit_denominator())
        command = [ffmpeg(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        command += ["-s", size, "-r", rate]
        # imageio-ffmpeg's own writer runs Python in the forked child, where gRPC, which
        # comes with TensorFlow, occasionally ends the process.
        self._process = subprocess.Popen(
            [*command, "-i", "-", "-an", *FORMATS[format], str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # Ctrl-C in a terminal must not reach ffmpeg.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin

    def write(self, picture: Array) -> None:
        """Adds a picture; waits while ffmpeg is behind."""
        if any(after for _, after in self._padding):
            picture = np.pad(picture, self._padding, "edge")
        try:
            self._pipe.write(np.ascontiguousarray(picture).data)
            # A forked process would write the rest of the buffer again.
            self._pipe.flush()
        except OSError as error:
            raise self._failure() from error

    def finish(self) -> None:
        """Waits until ffmpeg has finished the file."""
        if self._end() != 0:
            raise self._failure()

    def abandon(self) -> None:
        """Closes this process's end of the pipe; another process still writes to it."""
        self._pipe.close()

    def _failure(self) -> OSError:
        """Ends ffmpeg; the error output then has ffmpeg's own message."""
        return OSError(
            f"ffmpeg could not write {self._path}; it ended with status {self._end()}."
        )

    def _end(self) -> int:
        """Waits until ffmpeg has ended, and returns its status."""
        with contextlib.suppress(OSError):  # it has ended already
            self._pipe.close()
        try:
            return self._process.wait(_SECONDS)
        except BaseException as error:
            self._process.kill()
            status = self._process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return status
            raise


_LOGGER = logging.getLogger(__name__)


class Film:
    """Writes a film; its file begins with the first picture.

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
        format: str,  # noqa: A002  # the usual name
        fps: float,
    ) -> None:
        """Prepares a film.

        Args:
            folder: The folder of the file; created if missing.
            name: The name of the file. If the file exists, "-2" and so on is added: no
                file is ever overwritten, not even by another process.
            format: "gif" or "mp4".
            fps: Pictures per second.
        """
        self.path: Path | None = None
        self.pictures = 0
        self._folder, self._name = Path(folder), name
        self._format, self._fps = format, fps
        self._shape: tuple[int, ...] = ()
        self._file: _File | None = None
        self._end: weakref.finalize[..., Film] | None = None

    def write(self, picture: Array) -> None:
        """Adds a picture, a uint8 array `(height, width, 3)`."""
        if self._file is None:
            self._open(picture.shape)
        elif self._end is None or not self._end.alive:
            return  # it belongs to the parent of this fork
        elif picture.shape != self._shape:
            self.finish()
            raise SpecError(
                f"Picture {self.pictures} has shape {picture.shape}, but those before "
                f"it have {self._shape}, and a film has one size. {self.path} holds "
                "the pictures before it."
            )
        try:
            self._file.write(picture)  # type: ignore[union-attr]  # it is open
        except Exception:  # any encoder error leaves a broken file
            self._discard()
            raise
        except BaseException:  # Ctrl-C is not a fault of the file
            self.finish()
            raise
        self.pictures += 1

    def finish(self) -> None:
        """Finishes the file; later calls do nothing."""
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
        ffmpeg()  # without its package, no file may appear either
        self._shape = shape
        self.path = _new_file(self._folder, self._name, f".{self._format}")
        try:
            self._file = _File(self.path, shape, self._fps, self._format)
        except BaseException:
            self._delete()
            raise
        self._end = weakref.finalize(self, _finish_forgotten, self._file, self.path)
        _watch_forks()
        _OPEN.add(self)

    def _discard(self) -> None:
        """Finishes and deletes a file that could not be written."""
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
    """Finishes the file of a film that was garbage-collected."""
    try:
        file.finish()
    except Exception as error:
        # No caller could catch it, whatever the encoder raises.
        _LOGGER.warning("the film %s is lost: %s", path, error)
        with contextlib.suppress(OSError):
            path.unlink()


def _new_file(folder: Path, name: str, suffix: str) -> Path:
    """Creates an empty file with an unused name."""
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
    """Makes forked processes leave the films of this one alone."""
    # Windows does not fork.
    register = getattr(os, "register_at_fork", lambda **_: None)
    register(after_in_child=_leave_all_to_parent)


def _leave_all_to_parent() -> None:
    for film in list(_OPEN):
        film._leave_to_parent()
    _OPEN.clear()
