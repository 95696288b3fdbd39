"""Writes time steps to files in a thread, by row and episode: `Writer`.

The environment's thread calls the methods of `Writer`, which put letters into a
mailbox: a function and its arguments. The writer's thread takes the letters in order
and calls the functions. The mailbox has a limited size in bytes. An `EpisodeFile` per
row collects the running episode.
"""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.waits import wait_for_change, wait_for_end
from envkit.errors import RecordingError
from envkit.provenance import dumped
from envkit.recording.format import ACTIONS, EPISODE, OBJECT_BYTES, EpisodeFile
from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["MovedRows", "Opening", "Writer"]

_LAST = int(StepType.LAST)
# The approximate size of a letter besides its arrays.
_LETTER_BYTES = 512


class Opening(NamedTuple):
    """Describes the beginning of an episode: its row, number, and kind of file."""

    row: int
    episode: int
    kind: str


class MovedRows(NamedTuple):
    """Holds the results of one call, for the rows that are kept.

    Attributes:
        call: The number of the call.
        rows: The rows.
        step_types: The step types of these rows.
        openings: The episodes that begin with the call.
        actions: The columns of the actions, by name: an array with one element per row,
            or a list with one line per row.
        whole: The rows of which everything is kept.
        columns: All other columns, with one element per row in `whole`.
        pictures: The pictures of the rows in `whole`, or none.
    """

    call: int
    rows: Array
    step_types: Array
    openings: list[Opening]
    actions: dict[str, Any]
    whole: Array
    columns: dict[str, Any]
    pictures: list[Array]

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        arrays = self.rows.nbytes + self.whole.nbytes + self.step_types.nbytes
        openings = len(self.openings) * OBJECT_BYTES
        columns = [*self.actions.values(), *self.columns.values(), self.pictures]
        return _LETTER_BYTES + arrays + openings + sum(map(_size_of, columns))


def _size_of(column: Any) -> int:
    if isinstance(column, np.ndarray):
        return column.nbytes
    return sum(
        OBJECT_BYTES + (len(value) if isinstance(value, str) else value.nbytes)
        for value in column
    )


class _Mailbox:
    """Queues letters of limited total size, from any threads to one.

    Example:
        >>> box = _Mailbox(most=10)
        >>> box.put("a", 6, wait=False), box.put("b", 6, wait=False)
        (True, False)
        >>> box.receive()
        'a'
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._letters: collections.deque[tuple[Any, int]] = collections.deque()
        self._used = 0
        # How many letters were put, and how many of them were handled.
        self._put = self._handled = 0
        self._changed = threading.Condition()
        self._failure: Exception | None = None

    def put(self, letter: Any, size: int, *, wait: bool) -> bool:
        """Puts a letter, or waits for room; returns whether the letter was put.

        A letter that is larger than the mailbox fits into an empty one.
        """
        with self._changed:
            while (
                size
                and self._used
                and self._used + size > self._most
                and self._failure is None
            ):
                if not wait:
                    return False
                wait_for_change(self._changed)
            self.check()
            self._letters.append((letter, size))
            self._used += size
            self._put += 1
            self._changed.notify_all()
            return True

    def receive(self) -> Any:
        """Waits for a letter and returns the oldest."""
        with self._changed:
            # There is only one reader, so it has handled everything it has taken.
            self._handled = self._put - len(self._letters)
            self._changed.notify_all()
            while not self._letters:
                self._changed.wait()
            letter, size = self._letters.popleft()
            self._used -= size
            self._changed.notify_all()
            return letter

    def wait_until_handled(self) -> None:
        """Waits until the letters that are in the mailbox now have been handled."""
        with self._changed:
            last = self._put
            while self._handled < last and self._failure is None:
                wait_for_change(self._changed)
            self.check()

    def fail(self, failure: Exception) -> None:
        """Makes every later call raise an error, because no thread reads letters."""
        with self._changed:
            self._failure = failure
            self._letters.clear()
            self._used = 0
            self._changed.notify_all()

    def check(self) -> None:
        """Raises the error passed to `fail`."""
        failure = self._failure
        if failure is not None:
            # A new one, because the traceback of a re-raised error grows.
            raise type(failure)(*failure.args) from failure.__cause__


@dataclass
class _OpenEpisode:
    """Holds the file being collected for a row, with its facts."""

    file: EpisodeFile
    kind: str
    episode: int
    last_episode: int
    steps: int = 0
    last_type: int = -1


class Writer:
    """Writes the files of a recording, in its own thread.

    Attributes:
        dropped: How many episodes have been dropped.
    """

    def __init__(self, directory: Path, *, memory: int, compress: bool) -> None:
        """Starts the thread.

        Args:
            directory: The directory of the recording.
            memory: How many bytes may wait to be written: half of them in the mailbox,
                half in running episodes.
            compress: Whether to compress files.
        """
        self._directory, self._compress = directory, compress
        self._mailbox = _Mailbox(memory // 2)
        self._most = memory - memory // 2
        self._open_episodes: dict[int, _OpenEpisode] = {}
        self.dropped = 0
        self._is_closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._run, name=f"envkit recording {directory.name}", daemon=True
        )
        self._thread.start()

    # In the thread of the environment.

    def move(self, moved: MovedRows, *, wait: bool) -> bool:
        """Writes time steps, or waits for room; returns whether they were accepted."""
        return self._post(self._move, moved, size=moved.size, wait=wait)

    def annotate(self, rows: list[int], values: str, *, wait: bool) -> bool:
        """Writes a note about the latest time step of some rows.

        Args:
            rows: The rows.
            values: The note, as JSON.
            wait: Whether to wait for room.

        Returns:
            Whether the note was accepted.
        """
        size = _LETTER_BYTES + len(values) * len(rows)
        return self._post(self._annotate, rows, values, size=size, wait=wait)

    def leave(self, rows: list[int], why: str) -> None:
        """Completes the files of some rows, whose episodes are broken off."""
        self._post(self._leave, rows, why)

    def drop(self, episodes: list[tuple[int, int]]) -> None:
        """Drops episodes, each with its row, because there was no room for them."""
        self._post(self._drop, episodes)

    def log(self, facts: dict[str, Any]) -> None:
        """Writes a line to the log."""
        self._post(self._log, facts)

    def flush(self) -> None:
        """Waits until everything is written, and finished episodes are files."""
        self._post(self._leave_ended)
        self._mailbox.wait_until_handled()

    def close(self, facts: dict[str, Any] | None = None) -> None:
        """Writes the rest, and ends the thread; later calls do nothing.

        In a forked process it does nothing either, because the thread is not there.

        Args:
            facts: Facts for the last line of the log, besides the event.
        """
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        try:
            self._mailbox.put((self._end, facts or {}), 0, wait=True)
        finally:
            wait_for_end(self._thread)
        self._mailbox.check()
        # For letters that other threads have put meanwhile.
        self._mailbox.fail(self._closed_error())

    def check(self) -> None:
        """Raises the error of a recording that is closed or has failed."""
        if self._is_closed:
            raise self._closed_error()
        if os.getpid() != self._process:
            raise RecordingError(
                f"The recording in {str(self._directory)!r} is written by the process "
                "that began it, and this is a fork of that one. Make another Record "
                "here, with another directory."
            )

    def _closed_error(self) -> RecordingError:
        return RecordingError(
            f"The recording in {str(self._directory)!r} is closed, and nothing more is "
            "written to it. Make another Record, with another directory."
        )

    def _post(
        self, work: Callable[..., None], *args: Any, size: int = 0, wait: bool = True
    ) -> bool:
        self.check()
        return self._mailbox.put((work, *args), size, wait=wait)

    # In the writer's thread.

    def _run(self) -> None:
        try:
            with open(self._directory / "log.jsonl", "a", encoding="utf-8") as log:
                self._log_file = log
                work = None
                while work != self._end:
                    work, *args = self._mailbox.receive()
                    work(*args)
        except BaseException as error:
            failure = RecordingError(
                f"The recording in {str(self._directory)!r} cannot be written: "
                f"{type(error).__name__}: {error}. "
                "What was finished before that is there."
            )
            failure.__cause__ = error
            self._mailbox.fail(failure)

    def _move(self, moved: MovedRows) -> None:
        for opening in moved.openings:
            self._open(opening)
        # Hot: called once per step, and this part once per row.
        call = np.int64(moved.call)
        for index, row in enumerate(moved.rows.tolist()):
            opened = self._open_episodes.get(row)
            if opened is None:  # flush() has ended it at its LAST, which was repeated
                continue
            step_type = moved.step_types[index]
            opened.last_type = int(step_type)
            opened.steps += 1
            opened.file.add("call", call)
            opened.file.add("step_type", step_type)
            for name, value in _values(index, moved.actions):
                opened.file.add(name, value)
        for index, row in enumerate(moved.whole.tolist()):
            opened = self._open_episodes.get(row)
            if opened is not None:
                for name, value in _values(index, moved.columns):
                    opened.file.add(name, value)
                if moved.pictures:
                    opened.file.add_picture(opened.steps - 1, moved.pictures[index])
        self._put_aside()

    def _annotate(self, rows: list[int], values: str) -> None:
        for row in rows:
            opened = self._open_episodes.get(row)
            if opened is not None:
                line = f'{{"step":{opened.steps - 1},"values":{values}}}'
                opened.file.add("annotations", line)
        self._put_aside()

    def _put_aside(self) -> None:
        """Frees the memory of all episodes, if they exceed their share."""
        files = [opened.file for opened in self._open_episodes.values()]
        if sum(file.size for file in files) > self._most:
            for file in files:
                file.put_aside()

    def _open(self, opening: Opening) -> None:
        row, episode, kind = opening
        opened = self._open_episodes.get(row)
        if opened is not None and opened.kind == kind == ACTIONS:
            opened.last_episode = episode
            return
        self._leave([row], "reset")
        path = self._directory / f"row-{row:03d}" / f"{kind}-{episode:06d}.npz"
        file = EpisodeFile(path, self._compress)
        self._open_episodes[row] = _OpenEpisode(file, kind, episode, episode)

    def _leave(self, rows: list[int], why: str) -> None:
        for row in rows:
            opened = self._open_episodes.pop(row, None)
            if opened is not None and opened.steps:
                opened.file.finish(
                    {
                        "kind": opened.kind,
                        "row": row,
                        "episode": opened.episode,
                        "last_episode": opened.last_episode,
                        "time_steps": opened.steps,
                        "ended": "last" if opened.last_type == _LAST else why,
                    }
                )

    def _leave_ended(self) -> None:
        ended = [
            row
            for row, opened in self._open_episodes.items()
            if opened.last_type == _LAST and opened.kind == EPISODE
        ]
        self._leave(ended, "last")

    def _drop(self, episodes: list[tuple[int, int]]) -> None:
        for row, episode in episodes:
            opened = self._open_episodes.get(row)
            if opened is not None and opened.last_episode < episode:
                # Not even the beginning of the dropped episode has arrived.
                self._leave([row], "reset")
            elif opened is not None:
                self._open_episodes.pop(row).file.discard()
            self.dropped += 1
            self._log({"event": "dropped", "row": row, "episode": episode})

    def _log(self, facts: dict[str, Any]) -> None:
        self._log_file.write(f"{dumped(facts)}\n")
        self._log_file.flush()

    def _end(self, facts: dict[str, Any]) -> None:
        self._leave(list(self._open_episodes), "closed")
        self._log({"event": "closed", **facts})


def _values(index: int, columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields an element of each column; elements of arrays stay arrays with a dtype."""
    for name, column in columns.items():
        is_array = isinstance(column, np.ndarray)
        yield name, column[index, ...] if is_array else column[index]
