"""The format of a recording: its directory, files, columns and keys.

An episode's file is a zip archive like those of `numpy.savez`: one array per leaf,
named after its path, with one element per time step. Besides, `episode.json` has the
facts of the episode, and `NAME.jsonl` has a line per time step for values that are not
arrays.
"""

from __future__ import annotations

import collections.abc
import contextlib
import io
import itertools
import json
import os
import pickle
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import EnvkitError, RecordingError
from envkit.extend import describe
from envkit.provenance import dumped, from_plain, to_plain
from envkit.recording.pictures import PictureFile, archive_of
from envkit.specs.arrays import ArraySpec
from envkit.specs.environment_spec import DeclaredInfo
from envkit.specs.plain import plain_spec, spec_from_plain
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = [
    "ACTIONS",
    "EPISODE",
    "FORMAT",
    "NUMBER",
    "OBJECT_BYTES",
    "TEXT",
    "VERSION",
    "Column",
    "EpisodeFile",
    "Layout",
    "Types",
    "begin_directory",
    "check_keys",
    "check_provenance",
    "packer",
    "reading",
    "unpacker",
]

FORMAT = "envkit recording"
VERSION = 1
# The kinds of files: a whole episode, or only the actions of unwritten episodes.
EPISODE, ACTIONS = "episode", "actions"
# Instances of classes derived from these are written as these, because JSON has them.
_BASES: tuple[Any, ...] = (int, float, str, list)
# Python's approximate overhead per string or array.
OBJECT_BYTES = 112
# A block grows with its column up to this many bytes; larger values get their own.
_FIRST_VALUES, _LARGEST_BLOCK = 8, 2**18
# The first year in zip archives: equal episodes give equal files.
_DATE = (1980, 1, 1, 0, 0, 0)

# The types that a value in a JSON file may have, and their names in messages.
Types = tuple[tuple[type, ...], str]
TEXT: Types = ((str,), "a string")
NUMBER: Types = ((int,), "an integer")
_NONE = type(None)
_DICTIONARY: Types = ((dict,), "a dictionary")
# The keys of a provenance: for each environment in it, and for the whole.
_RECIPE: dict[str, Types] = {
    "id": TEXT,
    "version": ((int, _NONE), "an integer, or null"),
    "class": ((str, _NONE), "a string, or null"),
    "arguments": ((dict, _NONE), "a dictionary, or null"),
    "seed": ((int, list, dict, _NONE), "an integer, a list, or null"),
    "wrappers": ((list,), "a list"),
}
_AROUND: dict[str, Types] = {
    "envkit": TEXT,
    "packages": _DICTIONARY,
    "python": TEXT,
    "machine": _DICTIONARY,
}
# A larger pool would fill all memory, so the number must be a mistake.
_MOST_ENVIRONMENTS = 100_000


@contextlib.contextmanager
def reading(what: str, cannot: str = "cannot be read") -> Iterator[None]:
    """Turns every error about a broken file into a `RecordingError`.

    A broken file may contain anything, and the functions that read files expect what
    `Record` writes, so they may raise any error.

    Args:
        what: The name of the file or value, which begins the message.
        cannot: The verb of the message.

    Example:
        >>> with reading("'episode-000000.npz'"):
        ...     {}["ended"]
        Traceback (most recent call last):
        envkit.errors.RecordingError: 'episode-000000.npz' cannot be read: KeyError: ...
    """
    try:
        yield
    except RecordingError:
        raise
    except Exception as error:
        kind, reason = type(error), str(error) or "it does not say more"
        if not isinstance(error, (EnvkitError, OSError, ValueError)):
            # Because struct and zlib call theirs "error".
            module = f"{kind.__module__}." if kind.__name__ == "error" else ""
            reason = f"{module}{kind.__name__}: {reason}"
        raise RecordingError(f"{what} {cannot}: {reason.rstrip('.')}.") from error


class Layout:
    """Names the columns of a recording.

    Attributes:
        time_step: The structure of a time step.
        steps: The names of its columns.
        action: The structure of an action.
        actions: The names of its columns.
        info: The structure of the infos that are arrays.
        infos: The names of their columns.
        info_keys: The keys that lead to each of them.
    """

    def __init__(self, time_step: Any, action: Any, info: Any) -> None:
        """Takes the specs of one row.

        Args:
            time_step: The spec of a time step.
            action: The spec of an action.
            info: The specs of infos, in dictionaries; `{}` for none.
        """
        self.time_step = nest.Structure(time_step)
        self.action = nest.Structure(action)
        declared = DeclaredInfo(info)
        self.info, self.info_keys = declared.structure, declared.keys
        self.steps = self.time_step.paths
        self.actions = tuple(f"action{path}" for path in self.action.paths)
        self.infos = tuple(f"info{path}" for path in self.info.paths)
        for structure in (self.time_step, self.action, self.info):
            for spec in structure.leaves:
                _check_dtype(spec.dtype)

    def as_plain(self) -> dict[str, Any]:
        """Returns the specs as plain data."""
        return {
            "time_step": to_plain(self.time_step.template, "time_step_spec()", _spec),
            "action": to_plain(self.action.template, "action_spec()", _spec),
            "info": to_plain(self.info.template, "info_spec()", _spec),
        }

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Layout:
        """Makes a layout from the result of `as_plain`."""
        names = "time_step", "action", "info"
        time_step, action, info = (from_plain(data[name], _read) for name in names)
        if not isinstance(time_step, TimeStep):
            raise ValueError(
                f"time_step_spec() must be a TimeStep, got {describe(time_step)}"
            )
        return cls(time_step, action, info)


def _check_dtype(dtype: np.dtype[Any]) -> None:
    try:
        known = dtype.fields is None and np.dtype(dtype.str) == dtype
    except TypeError:
        known = False
    if not known:
        raise RecordingError(
            f"Record cannot write arrays of dtype {dtype}: files have NumPy's own "
            "dtypes, without fields. Wrap the environment so that it gives others."
        )


def _spec(value: Any, place: str) -> Any:
    if isinstance(value, ArraySpec):
        return {"$spec": plain_spec(value)}
    if isinstance(value, collections.abc.Mapping):
        # A structure does not keep a mapping's class either.
        return to_plain(dict(value), place, _spec)
    raise RecordingError(
        f"Record cannot write {place}, which has {describe(value)}: dictionaries, "
        "lists, tuples and namedtuples of specs can be written."
    )


def _read(tag: str, data: Any) -> Any:
    if tag != "$spec":
        raise ValueError(f"There is no spec that is called {tag!r}.")
    return spec_from_plain(data)


def packer(allowed: bool) -> Callable[[Any, str], Any]:
    """Returns a function that writes values that are not plain data.

    Args:
        allowed: Whether to pickle them; otherwise they are refused.
    """

    def pack(value: Any, place: str) -> Any:
        if allowed:
            return {"$pickle": b64encode(pickle.dumps(value)).decode("ascii")}
        # JSON has the base type of an OrderedDict or an IntEnum.
        if isinstance(value, collections.abc.Mapping):
            return to_plain(dict(value), place, pack)
        for kind in _BASES:
            if isinstance(value, kind):
                return to_plain(kind(value), place, pack)
        raise RecordingError(
            f"Record cannot write {place}: it has {describe(value)}, and files hold "
            "arrays and what JSON has. Pass pickle=True to write it as a pickle, or "
            "info=False to write no info."
        )

    return pack


def unpacker(allowed: bool) -> Callable[[str, Any], Any]:
    """Returns a function that reads values that are not plain data.

    Args:
        allowed: Whether to read pickles, which may run any code; otherwise they are
            refused.
    """

    def unpack(tag: str, data: Any) -> Any:
        if tag != "$pickle":
            raise ValueError(f"There is no value that is called {tag!r}.")
        if not allowed:
            raise RecordingError(
                "The recording holds pickles, and reading one may run any code. If you "
                "trust its author, pass pickle=True."
            )
        return pickle.loads(b64decode(data))

    return unpack


class Column:
    """Collects values of one leaf in blocks of several time steps.

    Values are copied, so that their batches can be freed.

    Attributes:
        dtype: The dtype that holds all values.
        length: How many values were added, including those already popped.

    Example:
        >>> column = Column("reward")
        >>> grown = [column.add(np.float32(value)) for value in range(20)]
        >>> column.length, column.dtype, sum(grown)
        (20, dtype('float32'), 464)
        >>> [block.tolist() for block in column.pop_blocks()][1]
        [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    """

    def __init__(self, name: str) -> None:
        self.length = 0
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = ()
        self._name = name
        self._full: list[Array] = []
        self._block: Array = np.empty(0)
        self._used = 0

    def add(self, value: Array) -> int:
        """Adds a value; returns by how many bytes the column has grown."""
        # Hot: called once per row, step and column.
        grown = 0
        block = self._block
        if (
            self._used == len(block)
            or value.dtype != block.dtype
            or value.shape != block.shape[1:]
        ):
            grown = self._begin_block(value)
            block = self._block
        block[self._used] = value
        self._used += 1
        self.length += 1
        return grown

    def _begin_block(self, value: Array) -> int:
        if self.dtype is None:
            self.dtype, self.shape = value.dtype, value.shape
        if value.shape != self.shape:
            raise RecordingError(
                f"{self._name} has shape {value.shape} after {self.shape} in the same "
                "episode, and files hold arrays of one shape, that of the spec"
            )
        if value.dtype != self.dtype:
            self.dtype = np.result_type(self.dtype, value.dtype)
        self._end_block()
        most = _LARGEST_BLOCK // max(1, value.nbytes)
        values = max(_FIRST_VALUES, sum(map(len, self._full)))
        length = max(1, min(values, most))
        self._block = np.empty((length, *value.shape), value.dtype)
        return self._block.nbytes + OBJECT_BYTES

    def _end_block(self) -> None:
        if self._used:
            self._full.append(self._block[: self._used])
        self._used = 0

    def pop_blocks(self) -> list[Array]:
        """Empties the column, and returns arrays with one element per value."""
        self._end_block()
        blocks, self._full, self._block = self._full, [], np.empty(0)
        return blocks


class EpisodeFile:
    """Collects the columns of an episode, and writes its file when it is complete.

    To free memory, it writes a part, `NAME.part-0.npz`. The final file is called
    `NAME.part` while it is being written. So files under their final names are
    complete, even if the process dies.
    """

    def __init__(self, path: Path, compress: bool) -> None:
        self._size = 0
        self._path = path
        self._pictures: PictureFile | None = None
        self._method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        self._arrays: dict[str, Column] = {}
        self._lines: dict[str, list[str]] = {}
        self._parts: list[Path] = []

    def add(self, name: str, value: Any) -> None:
        """Adds an array, or a line of JSON, to a column."""
        # Hot: called once per row, step and column.
        if isinstance(value, str):
            self._lines.setdefault(name, []).append(value)
            self._size += len(value) + OBJECT_BYTES
            return
        column = self._arrays.get(name)
        if column is None:
            column = self._arrays[name] = Column(name)
        self._size += column.add(value)

    def add_picture(self, step: int, picture: Array) -> None:
        """Adds the picture of a time step, which goes into a file of its own."""
        if self._pictures is None:
            self._pictures = PictureFile(archive_of(self._path))
        self._pictures.add(step, picture)

    @property
    def size(self) -> int:
        """The approximate size of the values in memory, in bytes."""
        return self._size + (0 if self._pictures is None else self._pictures.size)

    def put_aside(self) -> None:
        """Writes the values in memory into a part, which frees the memory."""
        if self._size:
            part = self._path.with_suffix(f".part-{len(self._parts)}.npz")
            self._parts.append(part)
            self._write(part, None)
        if self._pictures is not None:
            self._pictures.put_aside()

    def finish(self, facts: dict[str, Any]) -> None:
        """Writes the file, which appears under its final name once it is complete."""
        unfinished = self._path.with_suffix(".part")
        self._write(unfinished, dumped(facts))
        if self._pictures is not None:
            self._pictures.finish()
        os.replace(unfinished, self._path)
        self.discard()

    def discard(self) -> None:
        """Removes the parts."""
        for part in self._parts:
            part.unlink(missing_ok=True)
        self._parts = []
        if self._pictures is not None:
            self._pictures.discard()

    def _write(self, path: Path, facts: str | None) -> None:
        """Writes the values in memory; `facts` go after those of all parts."""
        parts = [] if facts is None else self._parts
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", self._method, compresslevel=1) as archive:
            if facts is not None:
                archive.writestr(self._entry("episode.json"), facts)
            for name, column in self._arrays.items():
                self._write_array(archive, f"{name}.npy", column, parts)
            for name, lines in self._lines.items():
                self._write_lines(archive, f"{name}.jsonl", lines, parts)
        self._size = 0

    def _write_array(
        self, archive: zipfile.ZipFile, name: str, column: Column, parts: list[Path]
    ) -> None:
        blocks = column.pop_blocks()
        length = column.length if parts else sum(map(len, blocks))
        if not length:
            return
        with archive.open(self._entry(name), "w", force_zip64=True) as member:
            member.write(_header(column.dtype, (length, *column.shape)))
            for block in itertools.chain(_arrays_of(parts, name), blocks):
                member.write(np.ascontiguousarray(block, column.dtype).tobytes())

    def _write_lines(
        self, archive: zipfile.ZipFile, name: str, lines: list[str], parts: list[Path]
    ) -> None:
        if not (lines or parts):
            return
        with archive.open(self._entry(name), "w", force_zip64=True) as member:
            for part in parts:
                with zipfile.ZipFile(part) as earlier:
                    if name in earlier.namelist():
                        member.write(earlier.read(name))
            member.write("".join(f"{line}\n" for line in lines).encode())
        lines.clear()

    def _entry(self, name: str) -> zipfile.ZipInfo:
        entry = zipfile.ZipInfo(name, _DATE)
        entry.compress_type = self._method
        return entry


def _arrays_of(parts: list[Path], name: str) -> Iterator[Array]:
    for part in parts:
        # One after the other, because a process may not be able to open them all.
        with zipfile.ZipFile(part) as archive:
            if name in archive.namelist():
                with archive.open(name) as member:
                    yield np.lib.format.read_array(member, allow_pickle=False)


def _header(dtype: np.dtype[Any] | None, shape: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    facts = {
        "descr": np.lib.format.dtype_to_descr(dtype),  # type: ignore[arg-type]  # it has values
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(written, facts)
    return written.getvalue()


def begin_directory(
    path: Path, facts: dict[str, Any], provenance: dict[str, Any]
) -> None:
    """Creates the directory of a recording, for a single writer.

    Args:
        path: The directory.
        facts: The content of `recording.json`.
        provenance: The content of `provenance.json`.

    Raises:
        FileExistsError: The directory already has a recording, finished or not.
    """
    path.mkdir(parents=True, exist_ok=True)
    log = path / "log.jsonl"
    try:
        if (path / "recording.json").exists():
            raise FileExistsError
        # If several writers start at the same time, only one creates this file.
        log.open("x").close()
    except FileExistsError:
        raise FileExistsError(
            f"There is a recording in {str(path)!r} already, and none is ever "
            "overwritten. Choose another directory, or remove it."
        ) from None
    try:
        _write(path / "provenance.json", provenance)
        _write(path / "recording.json", facts)
    except BaseException:
        log.unlink()
        raise


def _write(path: Path, data: Any) -> None:
    """Writes a file that appears under its name once it is complete."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", "utf-8")
    os.replace(unfinished, path)


def check_keys(
    known: Any, types: Mapping[str, Types], subject: str, place: str = ""
) -> None:
    """Raises a `RecordingError` unless a dictionary has all keys with their types.

    Args:
        known: The value that should be the dictionary.
        types: The required keys and their types.
        subject: The file or value that contains it, which begins the message.
        place: The keys that lead to it there.
    """
    _check_type(known, _DICTIONARY, subject, place)
    for key, expected in types.items():
        if key not in known:
            where = f" at {place}" if place else ""
            raise RecordingError(
                f"{subject} has no key {key!r}{where}, which must be {expected[1]}."
            )
        _check_type(known[key], expected, subject, f"{place}[{key!r}]")


def _check_type(value: Any, expected: Types, subject: str, place: str) -> None:
    kinds, text = expected
    is_flag = isinstance(value, bool)
    if not isinstance(value, kinds) or (is_flag and bool not in kinds):
        where = f" at {place}" if place else ""
        raise RecordingError(
            f"{subject} has {describe(value)}{where}, which must be {text}."
        )


def check_provenance(known: Any, subject: str = "The provenance") -> None:
    """Raises unless a provenance has the required keys, with the right types.

    Args:
        known: The result of `provenance()`, or the content of its file.
        subject: Its name, which begins the message.

    Raises:
        RecordingError: A key is missing, or its value has another type.

    Example:
        >>> from envkit import make
        >>> check_provenance(make("Catch").provenance())
        >>> check_provenance({"id": "Catch-v1"})
        Traceback (most recent call last):
        envkit.errors.RecordingError: The provenance has no key 'version', which ...
    """
    with reading(subject):
        check_keys(known, {**_RECIPE, **_AROUND}, subject)
        for key, version in known["packages"].items():
            _check_type(version, TEXT, subject, f"['packages'][{key!r}]")
        count = _check_recipe(known, subject, "")
    if count > _MOST_ENVIRONMENTS:
        raise RecordingError(
            f"{subject} has {count} environments; there must be at most "
            f"{_MOST_ENVIRONMENTS}."
        )


def _check_recipe(known: Any, subject: str, place: str) -> int:
    """Checks a recipe; returns the number of its environments."""
    check_keys(known, _RECIPE, subject, place)
    for index, layer in enumerate(known["wrappers"]):
        at = f"{place}['wrappers'][{index}]"
        check_keys(layer, {"class": TEXT, "arguments": _DICTIONARY}, subject, at)
    if "environments" not in known:
        return 1
    at = f"{place}['environments']"
    _check_type(known["environments"], ((list,), "a list"), subject, at)
    total = 0
    for index, recipe in enumerate(known["environments"]):
        here, count = f"{at}[{index}]", {"count": NUMBER}
        check_keys(recipe, count, subject, here)
        if recipe["count"] < 1:
            raise RecordingError(
                f"{subject} has {recipe['count']} at {here}['count'], which must be at "
                "least 1."
            )
        total += recipe["count"] * _check_recipe(recipe, subject, here)
    return total
