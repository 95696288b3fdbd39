"""`Writer`: the thread that puts time steps in order, by row and episode, on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import RecordingError
from envkit.interruptible import result_of, wait_for_end
from envkit.plain_data import dumped
from envkit.recording.column import Column
from envkit.recording.episode_file import EpisodeFile
from envkit.recording.layout import ACTIONS, EPISODE
from envkit.recording.letters import (
    Annotation,
    Dropped,
    End,
    Event,
    Moved,
    Opening,
)
from envkit.recording.mailbox import Mailbox
from envkit.time_step import StepType

__all__ = ["Writer"]

_LAST = int(StepType.LAST)


class _Mark(NamedTuple):
    """Is there to be reached."""

    reached: Future[None]


class _Closing(NamedTuple):
    """Is the last letter."""

    facts: dict[str, Any]


class _Take:
    """What there is of a row since it was opened, in memory or put aside."""

    def __init__(self, opening: Opening, file: EpisodeFile) -> None:
        self.opening, self.file = opening, file
        self.last_episode = opening.episode
        self.steps = 0
        self.last_type = -1
        self.bytes = 0
        self.columns: dict[str, Column] = {}

    def add(self, name: str, value: Any) -> None:
        """Takes a value of a column."""
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = Column()
        self.bytes += column.add(value)

    def collect(self) -> None:
        """Hands to the file what is in memory."""
        self.file.add(self.columns)
        self.columns, self.bytes = {}, 0


def _values(index: int, columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields an element of each column: of an array an array, to keep its dtype."""
    for name, column in columns.items():
        is_array = isinstance(column, np.ndarray)
        yield name, column[index, ...] if is_array else column[index]


class Writer:
    """Writes what it is told of, in a thread of its own.

    Attributes:
        dropped: How many episodes have been thrown away.
    """

    def __init__(self, directory: Path, *, memory: int, compress: bool) -> None:
        """Starts the thread.

        Args:
            directory: Where the recording is.
            memory: How many bytes may wait to be written: half of them in the mailbox,
                half in episodes that go on.
            compress: Whether files are compressed.
        """
        self._directory, self._compress = directory, compress
        self._mailbox = Mailbox(memory // 2)
        self._most = memory - memory // 2
        self._takes: dict[int, _Take] = {}
        self.dropped = 0
        self._is_closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._run, name=f"envkit recording {directory.name}", daemon=True
        )
        self._thread.start()

    def tell(self, letter: Any, size: int = 0, *, wait: bool = True) -> bool:
        """Passes something on; says whether there was room, or waits for it."""
        self.check()
        return self._mailbox.put(letter, size, wait=wait)

    def check(self) -> None:
        """Refuses what nobody would write any more."""
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

    def flush(self) -> None:
        """Waits until all that it was told is done, and episodes at their end, too."""
        mark = _Mark(Future())
        self.tell(mark)
        result_of(mark.reached)
        self._mailbox.check()

    def close(self, facts: dict[str, Any] | None = None) -> None:
        """Writes what is there, and ends the thread; again, it does nothing.

        In a fork it does nothing either: the thread is not there.

        Args:
            facts: What the last line of the log says besides.
        """
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        try:
            self._mailbox.put(_Closing(facts or {}))
        finally:
            wait_for_end(self._thread)
        self._mailbox.check()
        # What other threads have told it meanwhile.
        _release(self._mailbox.fail(self._closed_error()))

    def _run(self) -> None:
        letter: Any = None
        try:
            with open(self._directory / "log.jsonl", "a", encoding="utf-8") as log:
                self._log = log
                while True:
                    letter = self._mailbox.take()
                    if isinstance(letter, _Closing):
                        break
                    self._see_to(letter)
                self._leave(list(self._takes), "closed")
                self._note({"event": "closed", **letter.facts})
        except BaseException as error:
            failure = RecordingError(
                f"The recording in {str(self._directory)!r} cannot be written: "
                f"{type(error).__name__}: {error}. What was finished before is there."
            )
            failure.__cause__ = error
            _release([letter, *self._mailbox.fail(failure)])

    def _see_to(self, letter: Any) -> None:
        match letter:
            case Moved():
                self._moved(letter)
            case Annotation(rows, values):
                self._annotate(rows, values)
            case End(rows, why):
                self._leave(rows, why)
            case Dropped(episodes):
                self._drop(episodes)
            case Event(facts):
                self._note(facts)
            case _Mark(reached):
                ended = [
                    row
                    for row, take in self._takes.items()
                    if take.last_type == _LAST and take.opening.kind == EPISODE
                ]
                self._leave(ended, "last")
                reached.set_result(None)

    def _moved(self, moved: Moved) -> None:
        for opening in moved.openings:
            self._open(opening)
        # Hot: called once per step, and this is done for each row.
        call = np.int64(moved.call)
        for index, row in enumerate(moved.rows.tolist()):
            take = self._takes.get(row)
            if take is None:  # It was finished at its end, and then padded.
                continue
            step_type = moved.step_types[index]
            take.last_type = int(step_type)
            take.steps += 1
            take.add("call", call)
            take.add("step_type", step_type)
            for name, value in _values(index, moved.actions):
                take.add(name, value)
        for index, row in enumerate(moved.whole.tolist()):
            take = self._takes.get(row)
            if take is not None:
                for name, value in _values(index, moved.columns):
                    take.add(name, value)
        self._put_aside()

    def _annotate(self, rows: list[int], values: str) -> None:
        for row in rows:
            take = self._takes.get(row)
            if take is not None:
                line = f'{{"step":{take.steps - 1},"values":{values}}}'
                take.add("annotations", line)
        self._put_aside()

    def _put_aside(self) -> None:
        """Writes what there is into parts, if it takes more memory than it may."""
        if sum(take.bytes for take in self._takes.values()) > self._most:
            for take in self._takes.values():
                take.collect()
                take.file.put_aside()

    def _open(self, opening: Opening) -> None:
        row = opening.row
        take = self._takes.get(row)
        if take is not None:
            if opening.kind == ACTIONS == take.opening.kind:
                take.last_episode = opening.episode
                return
            self._leave([row], "reset")
        folder = self._directory / f"row-{row:03d}"
        file = folder / f"{opening.kind}-{opening.episode:06d}.npz"
        self._takes[row] = _Take(opening, EpisodeFile(file, self._compress))

    def _leave(self, rows: list[int], why: str) -> None:
        for row in rows:
            take = self._takes.pop(row, None)
            if take is None or not take.steps:
                continue
            take.collect()
            take.file.finish(
                {
                    "kind": take.opening.kind,
                    "row": row,
                    "episode": take.opening.episode,
                    "last_episode": take.last_episode,
                    "time_steps": take.steps,
                    "ended": "last" if take.last_type == _LAST else why,
                }
            )

    def _drop(self, episodes: list[tuple[int, int]]) -> None:
        for row, episode in episodes:
            take = self._takes.get(row)
            if take is not None and take.last_episode < episode:
                # Of the dropped one not even the beginning has come.
                self._leave([row], "reset")
            elif take is not None:
                self._takes.pop(row).file.discard()
            self.dropped += 1
            self._note({"event": "dropped", "row": row, "episode": episode})

    def _note(self, facts: dict[str, Any]) -> None:
        self._log.write(f"{dumped(facts)}\n")
        self._log.flush()


def _release(unread: Iterable[Any]) -> None:
    """Lets those go on that wait for marks to be reached."""
    for letter in unread:
        if isinstance(letter, _Mark):
            letter.reached.set_result(None)
