"""Reads the files that `Record` has written: `Recording`."""

from __future__ import annotations

import functools
import json
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.png import pixels_of, png_size
from envkit.errors import RecordingError
from envkit.extend import describe
from envkit.losses import Loss
from envkit.provenance import VersionWarning, envkit_version, from_plain, loaded
from envkit.recording.format import (
    ACTIONS,
    EPISODE,
    FORMAT,
    NUMBER,
    TEXT,
    VERSION,
    Layout,
    Types,
    check_keys,
    check_provenance,
    reading,
    unpacker,
)
from envkit.recording.pictures import archive_of, opened, png_in
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["Entry", "Episode", "Recording"]


_STEP_TYPES = {int(one) for one in (StepType.FIRST, StepType.MID, StepType.LAST)}
_NONE = type(None)
# The keys of `recording.json`, besides the format and its version.
_FACTS: dict[str, Types] = {
    "envkit": TEXT,
    "batch_size": ((int, _NONE), "an integer, or null"),
    "repeats_last": ((bool,), "true or false"),
    "begun_before": ((bool,), "true or false"),
    "specs": ((dict,), "a dictionary"),
}
# The keys of each event in the log.
_EVENTS: dict[str, dict[str, Types]] = {
    "seed": {"call": NUMBER, "seed": ((int, list, _NONE), "a seed")},
    "seed_rows": {"call": NUMBER, "rows": ((list,), "a list")},
    "options": {"call": NUMBER, "rows": ((list, _NONE), "a list, or null")},
    "set_state": {"call": NUMBER},
    "replaced": {"call": NUMBER, "row": NUMBER},
    "dropped": {"row": NUMBER, "episode": NUMBER},
    "closed": {"episodes": ((list,), "a list")},
}
# The keys of `episode.json` in each file.
_IN_FILE: dict[str, Types] = {
    "kind": TEXT,
    "row": NUMBER,
    "episode": NUMBER,
    "last_episode": NUMBER,
    "time_steps": NUMBER,
    "ended": TEXT,
}


class Entry(NamedTuple):
    """Describes a file of a recording.

    Attributes:
        row: The row of the batch; 0 for a single environment.
        number: The number of the episode, or of the first one.
        kind: "episode", or "actions" for those of episodes that were not written.
        path: The path of the file.
    """

    row: int
    number: int
    kind: str
    path: Path


class Recording:
    """Reads a recording, one episode at a time.

    Attributes:
        path: The directory.
        facts: The content of `recording.json`.
        provenance: The environment's provenance.
        batch_size: The number of rows; `None` for a single environment.
        entries: The files, by row and number.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, pickle: bool = False, warn: bool = True
    ) -> None:
        """Opens a recording.

        Args:
            path: The directory.
            pickle: Whether to read pickles, if there are any. That may run any code.
            warn: Whether to warn if another version of envkit wrote the recording.
        """
        self.path = Path(path)
        # Absolute, because the program may change its working directory.
        self._root = Path(os.path.abspath(path))
        self.facts = self._facts()
        self.provenance: dict[str, Any] = self._json("provenance.json")
        check_provenance(self.provenance, repr(str(self.path / "provenance.json")))
        self.batch_size: int | None = self.facts["batch_size"]
        self.entries = sorted(self._entries())
        self._reads_pickles = pickle
        self._unpack = unpacker(pickle)
        if warn and self.facts["envkit"] != envkit_version():
            warnings.warn(
                f"The recording in {str(self.path)!r} was written by envkit "
                f"{self.facts['envkit']}, and this is envkit {envkit_version()}.",
                VersionWarning,
                stacklevel=3,
            )

    @functools.cached_property
    def layout(self) -> Layout:
        """The specs, and the names of the columns."""
        with reading(f"The specs in {str(self.path / 'recording.json')!r}"):
            return Layout.from_plain(self.facts["specs"])

    @functools.cached_property
    def events(self) -> list[dict[str, Any]]:
        """The events in the log: seeds, restored states, dropped episodes."""
        path = self._root / "log.jsonl"
        with reading(repr(str(path))):
            lines = path.read_bytes().split(b"\n") if path.exists() else []
            # A line without a newline was being written when the process died.
            events = [loaded(line) for line in lines[:-1]]
        for number, event in enumerate(events, 1):
            subject = f"{str(path)!r}, line {number},"
            check_keys(event, {"event": TEXT}, subject)
            needed = _EVENTS.get(event["event"], {})
            check_keys({"episodes": [], **event}, needed, subject)
        return events

    @functools.cached_property
    def _lost(self) -> dict[tuple[int, int], dict[str, Any]]:
        """The events of made-up ends, by row and call."""
        lost = [event for event in self.events if event["event"] == "replaced"]
        return {(event["row"], event["call"]): event for event in lost}

    def loss_of(self, episode: Episode) -> Loss | None:
        """Returns the loss that cut an episode short; `None` if there was none.

        Then the episode's last time step is made up. The kind is "unknown" in files
        without one, which older versions of envkit wrote.
        """
        lost = self._lost.get((episode.row, int(episode.calls[-1])))
        if lost is None:
            return None
        error = RecordingError(str(lost.get("error", "The recording tells no error.")))
        return Loss(episode.row, str(lost.get("kind", "unknown")), error)

    def lost_episodes(self) -> list[tuple[int, int]]:
        """Returns the rows and numbers of the written episodes that were lost."""
        if not self._lost:
            return []
        return [
            (episode.row, episode.number)
            for episode in self.episodes()
            if self.loss_of(episode) is not None
        ]

    def load(self, entry: Entry) -> Episode:
        """Reads a file."""
        with reading(repr(str(entry.path))), zipfile.ZipFile(entry.path) as archive:
            return Episode(*_content(archive), entry, self.layout, self._unpack)

    def episodes(
        self, row: int | None = None, numbers: Sequence[int] | None = None
    ) -> Iterator[Episode]:
        """Reads the written episodes, or some of them, one by one."""
        for entry in self.of_kind("episode"):
            is_asked_for = numbers is None or entry.number in numbers
            if is_asked_for and row in (None, entry.row):
                yield self.load(entry)

    def of_kind(self, kind: str) -> list[Entry]:
        """Returns the files of one kind."""
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def unfinished(self) -> list[tuple[int, int]]:
        """The rows and numbers of episodes of which only parts exist.

        They are being written now, or were when the process died. An episode that was
        only in memory has left nothing.
        """
        found = set()
        for path in self._root.glob("row-*/episode-*.part*"):
            number = path.name.partition("-")[2].partition(".")[0]
            row = path.parent.name.partition("-")[2]
            # A complete episode may still have parts that were about to be removed.
            is_complete = (path.parent / f"episode-{number}.npz").exists()
            if number.isdecimal() and row.isdecimal() and not is_complete:
                found.add((int(row), int(number)))
        return sorted(found)

    def __reduce__(self) -> Any:
        again = functools.partial(Recording, pickle=self._reads_pickles, warn=False)
        return again, (self._root,)

    def _facts(self) -> dict[str, Any]:
        return self._checked_facts(self._json("recording.json"))

    def _checked_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts.get("format") != FORMAT:
            raise RecordingError(f"{str(self.path)!r} is not a recording of envkit.")
        version = facts.get("format_version")
        if not isinstance(version, int) or version > VERSION:
            raise RecordingError(
                f"The recording in {str(self.path)!r} has version {version} of the "
                f"format, written by envkit {facts.get('envkit')}. This is envkit "
                f"{envkit_version()}, which reads versions up to {VERSION}: update it."
            )
        check_keys(facts, _FACTS, repr(str(self.path / "recording.json")))
        size = facts["batch_size"]
        if size is not None and size < 1:
            raise RecordingError(
                f"{str(self.path / 'recording.json')!r} has {size} at ['batch_size'], "
                "which must be at least 1."
            )
        return facts

    def _json(self, name: str) -> dict[str, Any]:
        with reading(repr(str(self.path / name))):
            try:
                data = json.loads((self._root / name).read_text("utf-8"))
            except (FileNotFoundError, NotADirectoryError):
                raise RecordingError(
                    f"There is no recording in {str(self.path)!r}: it has no {name}. A "
                    "recording is the directory that Record was given."
                ) from None
        if not isinstance(data, dict):
            raise RecordingError(
                f"{str(self.path / name)!r} has {describe(data)}, which must be a "
                "JSON object."
            )
        return data

    def _entries(self) -> Iterator[Entry]:
        for path in self._root.glob("row-*/*.npz"):
            kind, _, number = path.stem.partition("-")
            row = path.parent.name.partition("-")[2]
            is_one = number.isdecimal() and row.isdecimal()
            if is_one and kind in (EPISODE, ACTIONS):  # else it is a part
                yield Entry(int(row), int(number), kind, path)


class Episode:
    """Holds an episode, from its `FIRST` on, or the actions of several.

    Attributes:
        kind: "episode", or "actions" for those of episodes that were not written.
        row: The row of the batch; 0 for a single environment.
        number: The number of the episode, or of the first one.
        last_number: The number of the episode, or of the last one.
        ended: "last" if it ended with a `LAST`; else the call that broke it off:
            "reset", "set_state" or "closed".
        calls: For each time step, the number of the call that returned it.
        step_types: The type of each time step.
    """

    def __init__(
        self,
        facts: dict[str, Any],
        columns: dict[str, Any],
        entry: Entry,
        layout: Layout,
        unpack: Any,
    ) -> None:
        """Takes the content of a file.

        Args:
            facts: The facts of the episode.
            columns: An array, or lines of JSON, for each column; `annotations` has one
                line per note.
            entry: The file.
            layout: The names of the required columns.
            unpack: Called with values that are neither arrays nor JSON.
        """
        self._file = repr(str(entry.path))
        self._pictures = archive_of(entry.path)
        check_keys(facts, _IN_FILE, f"{self._file}, episode.json,")
        self.row, self.number, self.kind = entry.row, entry.number, entry.kind
        self.last_number: int = facts["last_episode"]
        self.ended: str = facts["ended"]
        self._layout, self._unpack = layout, unpack
        self._notes: dict[int, dict[str, Any]] = {}
        self._columns = dict(columns)
        self._read_notes(self._columns.pop("annotations", []))
        self._check(facts, entry)
        self.calls = self._columns["call"]
        self.step_types = self._columns["step_type"]

    def _check(self, facts: dict[str, Any], entry: Entry) -> None:
        """Raises unless the file has the facts that its name says, and all columns."""
        layout, found = self._layout, self._columns
        named = {"kind": entry.kind, "row": entry.row, "episode": entry.number}
        said = {name: facts[name] for name in named}
        if said != named:
            raise ValueError(f"it says that it is {said}, and its name {named}")
        last = self.last_number
        if last < entry.number or (entry.kind == EPISODE and last > entry.number):
            raise ValueError(f"it ends with episode {last}")
        needed = ["call", "step_type", *layout.actions]
        if entry.kind == EPISODE:
            needed += [*layout.steps, *(layout.infos if self.has_info else ())]
        missing = [name for name in needed if name not in found]
        if missing:
            raise ValueError(f"it has no column {missing[0]!r}")
        for name in ("call", "step_type", *layout.infos):
            if name in found and isinstance(found[name], list):
                raise ValueError(f"its column {name!r} must be an array")
        if isinstance(found.get("info", []), np.ndarray):
            raise ValueError("its column 'info' must be lines of JSON")
        lengths = {name: len(column) for name, column in found.items()}
        if set(lengths.values()) != {facts["time_steps"]} or not facts["time_steps"]:
            raise ValueError(
                f"its columns must have {facts['time_steps']} elements, and they have "
                f"{lengths}"
            )
        for name in ("call", "step_type"):
            if found[name].dtype.kind not in "iu" or found[name].ndim != 1:
                raise ValueError(f"its column {name!r} must be integers")
        if not set(found["step_type"].tolist()) <= _STEP_TYPES:
            raise ValueError("its step types must be 0, 1 or 2")

    def _read_notes(self, lines: list[bytes]) -> None:
        for line in lines:
            note = loaded(line)
            values = from_plain(note["values"], self._unpack)
            self._notes.setdefault(note["step"], {}).update(values)

    def __len__(self) -> int:
        return len(self.calls)

    def column(self, name: str) -> Any:
        """Returns a column, with one element per time step, without copying.

        Args:
            name: Its name in the file, such as `"reward"` or `"observation['camera']"`.

        Returns:
            An array, or a list if the values are not arrays.
        """
        column = self._columns[name]
        if isinstance(column, list):
            with reading(self._file):
                return [from_plain(loaded(line), self._unpack) for line in column]
        return column

    def time_step(self, step: int) -> TimeStep:
        """Returns a time step in new arrays."""
        layout = self._layout
        leaves = [
            self._leaf(name, step, spec)
            for name, spec in zip(layout.steps, layout.time_step.leaves, strict=True)
        ]
        return layout.time_step.unflatten(leaves)  # type: ignore[no-any-return]  # it is one

    def action(self, step: int) -> NestedArray:
        """Returns the action before a time step; before a `FIRST`, it was ignored."""
        layout = self._layout
        return layout.action.unflatten(
            [
                self._leaf(name, step, spec)
                for name, spec in zip(layout.actions, layout.action.leaves, strict=True)
            ]
        )

    @property
    def has_info(self) -> bool:
        """True if the environment had an info."""
        return "info" in self._columns

    def info(self, step: int) -> Any:
        """Returns the info of a time step; `None` if there was none."""
        if not self.has_info:
            return None
        line = self._columns["info"][step]
        with reading(self._file):
            info = from_plain(loaded(line), self._unpack)
            for name, path in zip(
                self._layout.infos, self._layout.info_keys, strict=True
            ):
                _put(info, path, self._columns[name][step, ...].copy())
        return info

    def picture(self, step: int) -> Array | None:
        """Returns the picture of a time step; `None` if there is none.

        It is uint8, of shape `(height, width, 3)`.
        """
        png = self.png(step)
        if png is None:
            return None
        with reading(repr(str(self._pictures))):
            return pixels_of(png)

    def png(self, step: int) -> bytes | None:
        """Returns the picture of a time step as PNG; `None` if there is none."""
        with reading(repr(str(self._pictures))):
            png = None if self._archive is None else png_in(self._archive, step)
            if png is not None:
                png_size(png)  # raises unless it is one
        return png

    @functools.cached_property
    def _archive(self) -> zipfile.ZipFile | None:
        """The pictures, read at once when the first of them is asked for."""
        return opened(self._pictures)

    def annotations(self, step: int) -> dict[str, Any]:
        """Returns the notes about a time step."""
        return dict(self._notes.get(step, {}))

    def _leaf(self, name: str, step: int, spec: Any) -> Any:
        column = self._columns[name]
        if isinstance(column, list):
            line = column[step]
            with reading(self._file):
                return from_plain(loaded(line), self._unpack)
        return column[step, ...].copy()


def _content(archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the facts and columns in an episode's file."""
    facts = loaded(archive.read("episode.json"))
    if any(member.comment for member in archive.infolist()):
        # Record writes no comments: in a damaged file, the members that follow look
        # like one.
        raise ValueError("a member of the archive has a comment")
    columns: dict[str, Any] = {}
    for name in archive.namelist():
        column, _, kind = name.rpartition(".")
        if kind == "npy":
            with archive.open(name) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
                # The archive compares the checksum only at the end of the data.
                if member.read(1):
                    raise ValueError(f"{name} is longer than it says")
            columns[column] = array
            continue
        # Reads everything, because only that detects a damaged name.
        lines = archive.read(name).splitlines()
        if kind == "jsonl":
            columns[column] = lines
    return facts, columns


def _put(info: Any, keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        info = info.setdefault(key, {})
    info[keys[-1]] = value
