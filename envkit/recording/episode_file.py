"""`EpisodeFile`: an episode that comes bit by bit, and is a file when it is whole.

The file is a zip archive as `numpy.savez` makes them: an array for each leaf, named
after its place, with an element for each time step. Beside them `episode.json` says
what it is, and `NAME.jsonl` has a line for each time step of what is no array.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import RecordingError
from envkit.plain_data import dumped
from envkit.recording.column import Column
from envkit.types import Array

__all__ = ["EpisodeFile"]

# A year that zip archives can tell: equal episodes are equal files.
_DATE = (1980, 1, 1, 0, 0, 0)


class _Piece(NamedTuple):
    """Some time steps of a column: of an array or of lines, here or in a file."""

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    here: Any
    path: Path | None


class EpisodeFile:
    """Collects columns, and writes them when the episode is whole.

    A part that is put aside is a file of its own, `NAME.part-0.npz`, until then, and
    the file itself is `NAME.part` while it is written. If the process dies, the
    finished files are whole, and what is called a part is not one.
    """

    def __init__(self, path: Path, compress: bool) -> None:
        """Takes the path of the file that is to be."""
        self.path = path
        self._method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        self._columns: dict[str, list[_Piece]] = {}
        self._parts: list[Path] = []

    def add(self, columns: dict[str, Column]) -> None:
        """Takes more time steps: the same columns each time."""
        for name, column in columns.items():
            for block in column.blocks():
                pieces = self._columns.setdefault(f"{name}.npy", [])
                if pieces and pieces[0].shape[1:] != block.shape[1:]:
                    raise RecordingError(
                        f"{name} has shape {block.shape[1:]} after "
                        f"{pieces[0].shape[1:]} in the same episode, and files hold "
                        "arrays of one shape, that of the spec"
                    )
                pieces.append(_Piece(block.dtype, block.shape, block, None))
            if column.lines:
                piece = _Piece(None, (len(column.lines),), column.lines, None)
                self._columns.setdefault(f"{name}.jsonl", []).append(piece)

    def put_aside(self) -> None:
        """Writes what is here into a file, to have the memory back."""
        path = self.path.with_suffix(f".part-{len(self._parts)}.npz")
        here = {
            name: [piece for piece in pieces if piece.path is None]
            for name, pieces in self._columns.items()
        }
        fresh = {name: pieces for name, pieces in here.items() if pieces}
        if not fresh:
            return
        self._parts.append(path)
        self._write(path, fresh)
        for pieces in self._columns.values():
            pieces[:] = [
                piece
                if piece.path is not None
                else piece._replace(here=None, path=path)
                for piece in pieces
            ]
            _join_pieces(pieces)

    def finish(self, facts: dict[str, Any]) -> None:
        """Writes the file, which then appears as a whole."""
        unfinished = self.path.with_suffix(".part")
        self._write(unfinished, self._columns, dumped(facts))
        os.replace(unfinished, self.path)
        self.discard()

    def discard(self) -> None:
        """Removes what was put aside."""
        for part in self._parts:
            part.unlink(missing_ok=True)
        self._parts = []

    def _write(
        self, path: Path, columns: dict[str, list[_Piece]], facts: str | None = None
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", self._method, compresslevel=1) as archive:
            if facts is not None:
                entry = zipfile.ZipInfo("episode.json", _DATE)
                entry.compress_type = self._method
                archive.writestr(entry, facts)
            for name, pieces in columns.items():
                entry = zipfile.ZipInfo(name, _DATE)
                entry.compress_type = self._method
                with archive.open(entry, "w", force_zip64=True) as member:
                    for data in _member(name, pieces):
                        member.write(data)


def _join_pieces(pieces: list[_Piece]) -> None:
    """Makes one piece of those that lie in the same file."""
    joined: list[_Piece] = []
    for piece in pieces:
        if joined and joined[-1].path == piece.path:
            last = joined.pop()
            length = last.shape[0] + piece.shape[0]
            dtype = None if piece.dtype is None else _common([last, piece])
            piece = _Piece(dtype, (length, *piece.shape[1:]), None, piece.path)
        joined.append(piece)
    pieces[:] = joined


def _common(pieces: list[_Piece]) -> np.dtype[Any]:
    """Returns the dtype that holds all pieces, which mostly have the same."""
    dtypes = [piece.dtype for piece in pieces if piece.dtype is not None]
    if all(dtype == dtypes[0] for dtype in dtypes):
        return dtypes[0]
    return np.result_type(*dtypes)


def _member(name: str, pieces: list[_Piece]) -> Iterator[Any]:
    """Yields the bytes of a column, of one piece after the other."""
    if name.endswith(".jsonl"):
        for piece in pieces:
            yield _lines(name, piece)
        return
    dtype = _common(pieces)
    length = sum(piece.shape[0] for piece in pieces)
    yield _header(dtype, (length, *pieces[0].shape[1:]))
    for piece in pieces:
        yield np.ascontiguousarray(_array(name, piece), dtype).tobytes()


def _lines(name: str, piece: _Piece) -> bytes:
    if piece.path is None:
        return "".join(f"{line}\n" for line in piece.here).encode()
    with zipfile.ZipFile(piece.path) as archive:
        return archive.read(name)


def _array(name: str, piece: _Piece) -> Array:
    if piece.path is None:
        return piece.here  # type: ignore[no-any-return]  # it is one
    with zipfile.ZipFile(piece.path) as archive, archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    import io

    written = io.BytesIO()
    facts = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(written, facts)
    return written.getvalue()
