"""`Writer`: the thread that puts time steps in order, by row and episode, on disk."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import RecordingError
from envkit.interruptible import result_of, wait_for_end
from envkit.plain_data import dumped
from envkit.recording.episode_file import EpisodeFile
from envkit.recording.layout import ACTIONS, EPISODE
from envkit.recording.mailbox import Mailbox
from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["Annotation", "Dropped", "End", "Event", "Moved", "Opening", "Writer"]

_LAST = int(StepType.LAST)

# A column of some rows: an array with an element for each, or a line for each.
Column = Any


class Opening(NamedTuple):
    """An episode that begins: its row, its number, and what is kept of it."""

    row: int
    episode: int
    kind: str


class Moved(NamedTuple):
    """What came of one call, in the rows that are kept.

    Attributes:
        call: The number of the call.
        rows: Which rows these are.
        step_types: Their step types.
        openings: The episodes that begin with it.
        actions: The columns of the actions, by name; of all these rows.
        whole: The rows of which everything is kept.
        columns: The columns of everything else; of these rows.
    """

    call: int
    rows: list[int]
    step_types: Array
    openings: list[Opening]
    actions: dict[str, Column]
    whole: list[int]
    columns: dict[str, Column]


class Annotation(NamedTuple):
    """What the agent notes about the latest time step of some rows."""

    rows: list[int]
    line: dict[str, Any]


class End(NamedTuple):
    """Rows whose episodes are left where they are."""

    rows: list[int]
    why: str


class Dropped(NamedTuple):
    """Rows and episodes that are thrown away, as there was no room for them."""

    episodes: list[tuple[int, int]]


class Event(NamedTuple):
    """A line for the log."""

    facts: dict[str, Any]


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
        self.columns: dict[str, list[Any]] = {}
        self.annotations: list[str] = []

    def collect(self) -> None:
        """Hands to the file what is in memory."""
        arrays: dict[str, Array] = {}
        lines: dict[str, list[str]] = {}
        if self.annotations:
            lines["annotations"] = self.annotations
        for name, values in self.columns.items():
            if isinstance(values[0], str):
                lines[name] = values
            else:
                arrays[name] = np.stack(values)
        self.file.add(arrays, lines)
        self.columns, self.annotations, self.bytes = {}, [], 0


def _at(index: int, columns: dict[str, Column]) -> dict[str, Any]:
    """Returns an element of each column: of an array an array, to keep its dtype."""
    return {
        name: column[index, ...] if isinstance(column, np.ndarray) else column[index]
        for name, column in columns.items()
    }


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
        self._thread = threading.Thread(
            target=self._run, name=f"envkit recording {directory.name}", daemon=True
        )
        self._thread.start()

    def tell(self, letter: Any, size: int = 0, *, wait: bool = True) -> bool:
        """Passes something on; says whether there was room, or waits for it."""
        return self._mailbox.put(letter, size, wait=wait)

    def flush(self) -> None:
        """Waits until all that it was told is done, and episodes at their end, too."""
        mark = _Mark(Future())
        self._mailbox.put(mark)
        result_of(mark.reached)
        self._mailbox.check()

    def close(self, facts: dict[str, Any] | None = None) -> None:
        """Writes what is there, and ends the thread; again, it does nothing.

        Args:
            facts: What the last line of the log says besides.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._mailbox.put(_Closing(facts or {}))
        finally:
            wait_for_end(self._thread)
        self._mailbox.check()

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
            for unread in [letter, *self._mailbox.fail(failure)]:
                if isinstance(unread, _Mark):
                    unread.reached.set_result(None)

    def _see_to(self, letter: Any) -> None:
        match letter:
            case Moved():
                self._moved(letter)
            case Annotation(rows, line):
                for row in rows:
                    if row in self._takes:
                        take = self._takes[row]
                        take.annotations.append(
                            dumped({"step": take.steps - 1, **line})
                        )
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
        for index, row in enumerate(moved.rows):
            take = self._takes.get(row)
            if take is None:  # It was finished at its end, and then padded.
                continue
            step_type = moved.step_types[index, ...]
            take.last_type = int(step_type)
            take.steps += 1
            self._add(take, {"call": np.int64(moved.call), "step_type": step_type})
            self._add(take, _at(index, moved.actions))
        for index, row in enumerate(moved.whole):
            if row in self._takes:
                values = _at(index, moved.columns)
                self._add(self._takes[row], values)
        if sum(take.bytes for take in self._takes.values()) > self._most:
            for take in self._takes.values():
                take.collect()
                take.file.put_aside()

    def _add(self, take: _Take, values: dict[str, Any]) -> None:
        for name, value in values.items():
            take.columns.setdefault(name, []).append(value)
            take.bytes += len(value) if isinstance(value, str) else value.nbytes

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
