"""Writes the lines of `LogEpisodes`: to a CSV file, and to a file for TensorBoard."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from envkit._shared.installed import is_installed
from envkit.errors import MissingDependencyError

__all__ = ["EPISODES", "CsvFile", "EventsFile", "by_episode", "writes_events"]

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
        try:
            # Each write appends whole lines.
            self._file = path.open("a" if resume else "x", encoding="utf-8", newline="")
        except FileExistsError:
            with path.open("a") as file:
                _lock(file, folder)
            raise FileExistsError(
                f"{str(folder)!r} already holds the log of a run. Pass resume=True to "
                "continue that run or overwrite=True to delete its log, or choose a "
                "folder for each run."
            ) from None
        try:
            _lock(self._file, folder)
            self._continue(path)
        except BaseException:
            self._file.close()
            raise

    def _continue(self, path: Path) -> None:
        """Reads the last line, or writes the header of a new file."""
        with path.open("rb+") as file:
            # A process that was killed may have left half a line.
            whole = file.read().rpartition(b"\n")[0]
            file.truncate(len(whole) + bool(whole))
        lines = whole.decode("utf-8").splitlines()
        if not lines:
            self._file.write(",".join(self._columns) + "\n")
            self._file.flush()
            return
        if tuple(lines[0].split(",")) != self._columns:
            raise ValueError(
                f"{str(path)!r} has the columns {lines[0]}, and this run has "
                f"{','.join(self._columns)}: the environments have other rewards. "
                "Choose another folder."
            )
        if len(lines) > 1:
            cells = map(_number, lines[-1].split(","))
            self.last = dict(zip(self._columns, cells, strict=True))

    def write(self, episodes: dict[str, list[float]]) -> None:
        """Writes a line for each episode."""
        cells = [list(map(_cell, column)) for column in episodes.values()]
        self._file.write(
            "".join(",".join(line) + "\n" for line in zip(*cells, strict=True))
        )
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def by_episode(episodes: dict[str, list[float]]) -> Iterator[dict[str, float]]:
    """Yields the numbers of one episode after the other.

    Example:
        >>> list(by_episode({"row": [0, 3], "return": [1.0, 5.0]}))
        [{'row': 0, 'return': 1.0}, {'row': 3, 'return': 5.0}]
    """
    for values in zip(*episodes.values(), strict=True):
        yield dict(zip(episodes, values, strict=True))


def _lock(file: IO[str], folder: Path) -> None:
    """Keeps the file for this object until it is closed; raises if another has it."""
    try:
        import fcntl
    except ImportError:  # on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileExistsError(
            f"The log in {str(folder)!r} is being written by another LogEpisodes. "
            "Close that one, or choose another folder. To log several environments at "
            "once, wrap the pool or batch of them."
        ) from None
    except OSError:  # the file system has no locks
        return


def _cell(value: float) -> str:
    # Empty if there is no number, as for a lost episode's return.
    return repr(value) if value == value else ""


def _number(cell: str) -> float:
    if not cell:
        return math.nan
    return int(cell) if cell.isdecimal() else float(cell)


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

    def write(self, episodes: dict[str, list[float]]) -> None:
        """Writes an event for each episode."""
        now = time.time()
        for episode in by_episode(episodes):
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
