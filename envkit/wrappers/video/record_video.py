"""`RecordVideo`: films episodes, and writes them to files."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit.arrays import as_array
from envkit.envs.base import checked_size
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array
from envkit.wording import listed
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.pictures.rendered import check_picture, tiled
from envkit.wrappers.video.film import FORMATS, Film
from envkit.wrappers.video.video_schedule import Trigger, checked_trigger, schedule

__all__ = ["RecordVideo"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_LAYOUTS = ("episode", "grid")
# GIFs count time in hundredths of a second, and players show what is shorter than two
# of them for ten.
_FASTEST_GIF = 50


class RecordVideo(PyEnvironmentBaseWrapper):
    """Films some of the episodes, from `FIRST` to `LAST`, and writes them to files.

    A picture is what `render("rgb_array")` returns at `FIRST` and after each step. It
    goes to the file at once, so a long episode takes no memory; while no film runs,
    nothing is rendered. Files are called `rl-video-episode-8.mp4`, episodes being
    counted from 0. None is ever overwritten: another is `rl-video-episode-8-2.mp4`.

    In a batch row 0 is filmed, or those in `rows`, each counting its own episodes into
    files of its own (`rl-video-episode-8-row-3.mp4`). With `layout="grid"` one film
    shows all rows, or those in `rows`, side by side; it follows the first of them.
    Rendering a batch renders all its rows. To render only one, wrap that environment
    before it goes into the batch or pool: the others need no wrapper.

    A film ends with its episode, and early with `reset`, `close` and `set_state`; the
    next one begins with the next episode that is due. What was filmed until then stays,
    also if nobody closes the wrapper, or if its process is killed.

    The packages that are needed (`pip install "envkit[video]"`) are imported with the
    first picture.

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
        format: str = "mp4",  # noqa: A002  # what everybody calls it
        layout: str = "episode",
        rows: int | Sequence[int] | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Without `every` and triggers, the episodes of `capped_cubic_video_schedule` are
        filmed.

        Args:
            env: The environment to wrap; it has to render "rgb_array".
            video_folder: Where the files go; made when the first one is.
            every: Films each episode whose number is a multiple of this.
            episode_trigger: Called with the number of each episode that begins; says
                whether to film it.
            step_trigger: Called with the number of each step, counted from 0 over all
                episodes; says whether to begin a film here. The one that runs ends.
            video_length: How many pictures a film has, however many episodes that
                takes. 0 is until the end of the episode.
            name_prefix: What the names of the files begin with.
            fps: How many pictures are shown in a second, at most 50 in a GIF.
            format: "mp4" or "gif". A GIF needs no ffmpeg and can be looked at while it
                is filmed; it has 256 colours in each picture.
            layout: "episode" for a film of each row by itself, "grid" for one film.
            rows: Which rows of a batch are filmed.
            handle_auto_reset: As with every wrapper.
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
        # What each film shows; it follows the first of its rows.
        self._views = [chosen] if layout == "grid" else [(row,) for row in chosen]
        self._in_grid = layout == "grid"
        self._leads = np.array([view[0] for view in self._views])
        self._films: list[Film | None] = [None] * len(self._views)
        self._running = np.zeros(len(self._views), bool)
        self._episodes = np.full(len(self._views), -1, np.int64)
        self._steps = np.full(len(self._views), -1, np.int64)

    @property
    def video_folder(self) -> str:
        """Where the files go."""
        return str(self._folder)

    @property
    def recording(self) -> bool:
        """Whether a film is running."""
        return bool(self._running.any())

    def close(self) -> None:
        """Ends the films that run, and closes the environment."""
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
            self._shoot(concerned & self._running, step_types == _LAST)
        return time_step

    def _begin(self, first: Array, concerned: Array) -> None:
        """Begins the films that are due, and ends those of episodes that are over."""
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
        """Adds a picture to the films that run, and ends those that are complete."""
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
        # All of them, also if ending one fails.
        with contextlib.ExitStack() as stack:
            for index in indices:
                film, self._films[index] = self._films[index], None
                self._running[index] = False
                if film is not None:
                    stack.callback(film.finish)

    def _pictures(self) -> Array:
        """Returns the picture of each row; a single environment is one."""
        name = type(self._env).__name__
        try:
            picture = self._env.render("rgb_array")
        except NotImplementedError as error:
            raise NotImplementedError(
                f"RecordVideo cannot film {name}: {error} It films what "
                'render("rgb_array") returns: override render(mode) in the environment.'
            ) from error
        check_picture(picture, self._dims, f'{name}.render("rgb_array")')
        return picture if self._dims else picture[np.newaxis]  # type: ignore[no-any-return]  # it has been looked at

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        self._stop(range(len(self._films)))

    def __getstate__(self) -> dict[str, Any]:
        # A film is of one environment; a copy of it begins without.
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
            f"video_folder is {describe(folder)}; it must be the path of a folder, a "
            "str or a pathlib.Path."
        )
    if not text:
        raise ValueError(
            'video_folder is ""; it must be the path of a folder, such as "." for the '
            "current one."
        )
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"video_folder is {str(path)!r}, which is no folder.")
    return path


def _checked_prefix(prefix: Any) -> str:
    if isinstance(prefix, str) and prefix and prefix == Path(prefix).name:
        return prefix
    raise ValueError(
        f"name_prefix is {prefix!r}; it is what the names of files begin with. Folders "
        "belong into video_folder."
    )


def _check_choice(name: str, choice: Any, choices: Sequence[str]) -> None:
    if choice not in choices:
        raise ValueError(f"{name} is {choice!r}; it is one of {listed(choices)}.")


def _checked_fps(fps: Any, format_: str) -> float:
    is_number = isinstance(fps, numbers.Real) and not isinstance(fps, bool)
    if not is_number or not 0 < fps < math.inf:
        raise ValueError(f"fps is {fps!r}; it must be a number above 0.")
    if format_ == "gif" and fps > _FASTEST_GIF:
        raise ValueError(
            f"fps is {fps!r}; a GIF shows at most {_FASTEST_GIF} pictures in a second. "
            'Pass format="mp4" for more.'
        )
    return float(fps)
