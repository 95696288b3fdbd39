"""Writes the lines of `LogEpisodes`: to a CSV file, and to a file for TensorBoard."""

from __future__ import annotations

import csv
import os
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from envkit._shared.installed import is_installed
from envkit.errors import MissingDependencyError

__all__ = ["EPISODES", "CsvFile", "EventsFile", "writes_events"]

# The name of the file that makes a folder the log of a run.
EPISODES = "episodes.csv"
# The end of the names of TensorBoard's files, so that only envkit's are overwritten.
_EVENTS = ".envkit"
# The beginnings of the keys that TensorBoard shows for each episode, and the keys of
# numbers of the whole run.
_OF_EPISODE = ("return", "length")
_OF_RUN = ("steps_per_second", "losses", "restarts")


class CsvFile:
    """Writes a line for each episode; every complete line is on disk at once.

    Attributes:
        last: The last line of the run that is resumed, by column; else empty.
    """

    def __init__(
        self, folder: Path, columns: Sequence[str], *, resume: bool, overwrite: bool
    ) -> None:
        """Opens the file.

        Args:
            folder: Its folder; created if missing.
            columns: The names of the columns.
            resume: Whether to continue the file, if there is one.
            overwrite: Whether to delete an earlier run.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / EPISODES
        self._columns = tuple(columns)
        self.last: dict[str, float] = {}
        if overwrite:
            for old in [path, *folder.glob(f"events.out.tfevents.*{_EVENTS}")]:
                old.unlink(missing_ok=True)
        if resume and path.exists():
            self._continue(path)
            return
        try:
            # Each write appends whole lines, even if another process writes too.
            self._file = path.open("x", encoding="utf-8", newline="")
        except FileExistsError:
            raise FileExistsError(
                f"{str(folder)!r} already holds the log of a run. Choose a folder for "
                f"each run, such as {str(folder / 'seed1')!r}, or pass resume=True to "
                "continue that run or overwrite=True to delete its log. If several "
                "environments run at once, wrap the pool or batch of them instead."
            ) from None
        self._file.write(",".join(self._columns) + "\n")
        self._file.flush()

    def _continue(self, path: Path) -> None:
        with path.open("rb+") as file:
            # A process that was killed may have left half a line.
            whole = file.read().rpartition(b"\n")[0].decode("utf-8")
            lines = whole.splitlines()
            file.truncate(len(whole.encode("utf-8")) + bool(lines))
        if lines and tuple(next(csv.reader(lines[:1]))) != self._columns:
            raise ValueError(
                f"{str(path)!r} has the columns {lines[0]}, and this run has "
                f"{','.join(self._columns)}: the environments have other rewards. "
                "Choose another folder."
            )
        if len(lines) > 1:
            cells = next(csv.reader(lines[-1:]))
            self.last = dict(zip(self._columns, map(_number, cells), strict=True))
        self._file = path.open("a", encoding="utf-8", newline="")
        if not lines:
            self._file.write(",".join(self._columns) + "\n")
            self._file.flush()

    def write(self, episodes: Iterable[dict[str, float]]) -> None:
        """Writes a line for each episode."""
        self._file.write("".join(map(_line, episodes)))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _line(episode: dict[str, float]) -> str:
    # An empty cell where there is no number, which only a lost episode's return lacks.
    cells = [repr(value) if value == value else "" for value in episode.values()]
    return ",".join(cells) + "\n"


def _number(cell: str) -> float:
    return float(cell) if "." in cell or not cell.isdecimal() else int(cell)


def writes_events(tensorboard: bool | None) -> bool:
    """Returns whether to write a file for TensorBoard; `None` asks for its package."""
    installed = is_installed("tensorboard")
    if tensorboard and not installed:
        raise MissingDependencyError.needed_by(
            "LogEpisodes(tensorboard=True)", package="tensorboard", extra="tensorboard"
        )
    return installed if tensorboard is None else tensorboard


class EventsFile:
    """Writes a file that `tensorboard --logdir` shows.

    It uses the parts of the package tensorboard that never import TensorFlow.
    """

    def __init__(self, folder: Path) -> None:
        """Opens a new file in a folder."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        now = time.time()
        name = f"events.out.tfevents.{now:.6f}.{socket.gethostname()}.{os.getpid()}"
        self._event: Any = Event
        self._run: dict[str, float] = {}
        self._file = (folder / f"{name}{_EVENTS}").open("xb")
        self._records: Any = RecordWriter(self._file)
        version = Event(wall_time=now, file_version="brain.Event:2")
        self._records.write(version.SerializeToString())
        self._file.flush()

    def write(self, episodes: Iterable[dict[str, float]]) -> None:
        """Writes an event for each episode."""
        now = time.time()
        for episode in episodes:
            event = self._event(wall_time=now, step=episode["step"])
            for key, value in episode.items():
                is_new = key.startswith(_OF_EPISODE) and not episode["lost"]
                # The numbers of the whole run only if they have changed.
                if key in _OF_RUN and self._run.get(key) != value:
                    self._run[key], is_new = value, value == value
                if is_new:
                    event.summary.value.add(tag=_tag(key), simple_value=value)
            self._records.write(event.SerializeToString())
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _tag(key: str) -> str:
    """Returns the name of a number in TensorBoard, with its group of cards.

    Example:
        >>> _tag("return.left"), _tag("restarts")
        ('episode/return.left', 'run/restarts')
    """
    return f"{'run' if key in _OF_RUN else 'episode'}/{key}"
