"""Checkpoints: files with a whole pool, from which a run continues bit for bit.

A checkpoint is one file. Its first line names the format, its second has the length and
the SHA-256 of the rest, and the rest is JSON. A new checkpoint is written beside the
old one and takes its name once all of it is on the disk. So the name always leads to a
complete checkpoint, whenever the program or the machine stops.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import CheckpointError
from envkit.parallel.state import PoolState
from envkit.parallel.worker.plain_states import PLAIN, check_plain, is_plain_state
from envkit.provenance import (
    PlainDataError,
    dumped,
    envkit_version,
    from_plain,
    loaded,
    to_plain,
)
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = [
    "Saved",
    "check_leaves",
    "not_plain",
    "read_checkpoint",
    "write_checkpoint",
]

_MAGIC, _VERSION = b"envkit checkpoint ", 1


class Saved(NamedTuple):
    """The contents of a checkpoint.

    Attributes:
        state: The state of the pool, without its time steps.
        time_step: The leaves of the last returned time step, if there is one.
        standing: The leaves of the time step at which the environments stand.
        autoreset: The pool's autoreset order.
        paths: The paths of the leaves in a time step.
        noted_seed: The pool's seed.
        seeds: The environments' seeds, for environments that replace them later.
        restarts: How many times each environment's worker was restarted.
        known: For each environment, the seed that its worker knows, and how many times
            the environment was rebuilt since.
        extra: The caller's own data.
    """

    state: PoolState
    time_step: list[Any] | None
    standing: list[Any] | None
    autoreset: str
    paths: list[str]
    noted_seed: Any
    seeds: list[Any] | None
    restarts: list[int]
    known: list[tuple[Any, int]]
    extra: Any


# Writing.


def write_checkpoint(path: str | os.PathLike[str], saved: Saved, pickles: bool) -> None:
    """Writes a checkpoint; it replaces the previous one once it is complete.

    Args:
        path: The file.
        saved: Its contents.
        pickles: Whether to pickle values that are not plain data, instead of raising.

    Raises:
        TypeError: Something is not plain data; the file is unchanged.
    """
    write = functools.partial(_plain, pickles=pickles)
    state = saved.state
    content = {
        "envkit": envkit_version(),
        "autoreset": saved.autoreset,
        "order": state.autoreset,
        "paths": saved.paths,
        "environments": [
            {"plain": token.removeprefix(PLAIN).decode()}
            if is_plain_state(token)
            else {"pickle": to_plain(token)}
            for token in state.environments
        ],
        "time_step": write(saved.time_step, "the time step"),
        "standing": write(saved.standing, "the time step"),
        "new_rows": list(state.new_rows),
        "begun": list(state.begun),
        "noted_seed": write(saved.noted_seed, "the seed"),
        "seeds": write(saved.seeds, "the seeds"),
        "restarts": saved.restarts,
        "known": write(saved.known, "the seeds"),
        "extra": write(saved.extra, "extra"),
    }
    payload = dumped(content).encode()
    _replace(Path(os.path.realpath(path)), _head(payload) + payload)


def _plain(value: Any, place: str, pickles: bool) -> Any:
    try:
        check_plain(value, place, takes_bytes=True)
        return to_plain(value, place)
    except PlainDataError as error:
        if not pickles:
            raise not_plain(str(error)) from None
    from envkit.parallel.serialize import dump_value  # most checkpoints need none

    return {"$pickle": to_plain(dump_value(value, place))}


def not_plain(what: str) -> TypeError:
    """Returns the error about a value that only pickle can write."""
    return TypeError(
        f"save() cannot write a checkpoint: {what} A checkpoint holds numbers, text, "
        "arrays, and lists, tuples and dictionaries of them; a random generator has "
        "rng.bit_generator.state. With save(path, pickle=True) and load(path, ..., "
        "pickle=True) what is something else is pickled."
    )


def _head(payload: bytes) -> bytes:
    digest = hashlib.sha256(payload).hexdigest()
    return _MAGIC + b"%d\n%d %s\n" % (_VERSION, len(payload), digest.encode())


def _replace(path: Path, content: bytes) -> None:
    """Writes a file completely, or leaves it unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A unique name, because another process may be saving to the same path.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            # The content must be on the disk before the name is.
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# Reading.


def read_checkpoint(path: str | os.PathLike[str], pickles: bool) -> Saved:
    """Reads a checkpoint.

    Args:
        path: The file.
        pickles: Whether to unpickle data in it, instead of raising.

    Raises:
        CheckpointError: The file is no checkpoint, or incomplete, or contains pickled
            data.
        FileNotFoundError: There is no such file.
    """
    name = str(os.fspath(path))
    payload = _payload(name, Path(path).read_bytes())
    try:
        return _saved(name, loaded(payload), pickles)
    except CheckpointError:
        raise
    except Exception as error:  # It was made by hand, and may contain anything.
        raise CheckpointError(
            f"The checkpoint {name!r} is broken: {type(error).__name__}: {error}"
        ) from error


def _payload(name: str, content: bytes) -> bytes:
    first, _, rest = content.partition(b"\n")
    second, _, payload = rest.partition(b"\n")
    version = first.removeprefix(_MAGIC)
    if not first.startswith(_MAGIC) or not version.isdigit():
        raise CheckpointError(
            f"{name!r} is not a checkpoint: it begins with {content[:20]!r}. load() "
            "must be given a file that save() of a pool has written."
        )
    if int(version) != _VERSION:
        raise CheckpointError(
            f"The checkpoint {name!r} is of version {int(version)}, and envkit "
            f"{envkit_version()} reads version {_VERSION}. Load it with the envkit "
            "that has written it."
        )
    length, _, digest = second.partition(b" ")
    whole = int(length) if length.isdigit() else -1
    if len(payload) < whole or not digest:
        missing = "" if whole < 0 else f": {len(payload)} of {whole} bytes are there"
        raise CheckpointError(
            f"The checkpoint {name!r} is truncated{missing}. Load one from before, or "
            "a copy of it."
        )
    if hashlib.sha256(payload).hexdigest().encode() != digest or len(payload) != whole:
        raise CheckpointError(
            f"The checkpoint {name!r} was altered after it was saved: its checksum is "
            "another one. Load one from before, or a copy of it."
        )
    return payload


def _saved(name: str, content: dict[str, Any], pickles: bool) -> Saved:
    def unpickled(tag: str, data: Any) -> Any:
        if tag != "$pickle":
            raise ValueError(f"There is no plain data called {tag!r}.")
        if not pickles:
            raise _needs_pickle(name)
        from envkit.parallel.serialize import load_value

        return load_value(from_plain(data))

    tokens = []
    for one in content["environments"]:
        if "plain" not in one and not pickles:
            raise _needs_pickle(name)
        tokens.append(
            PLAIN + one["plain"].encode()
            if "plain" in one
            else from_plain(one["pickle"])
        )
    read = functools.partial(from_plain, other=unpickled)
    state = PoolState(
        environments=tuple(tokens),
        time_step=None,
        standing=None,
        autoreset=content["order"],
        new_rows=tuple(content["new_rows"]),
        begun=tuple(content["begun"]),
    )
    return Saved(
        state,
        read(content["time_step"]),
        read(content["standing"]),
        content["autoreset"],
        list(content["paths"]),
        *(read(content[part]) for part in Saved._fields[5:]),
    )


def _needs_pickle(name: str) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint {name!r} was saved with pickle=True, and loading pickles can "
        "run any code. If you trust the file, load it with "
        "load(path, ..., pickle=True)."
    )


def check_leaves(saved: Saved, paths: Sequence[str], places: Sequence[Array]) -> None:
    """Raises if a checkpoint's environments have different time steps.

    Args:
        saved: The checkpoint.
        paths: The paths of the leaves in the pool's time steps.
        places: Arrays with the shapes and dtypes of these leaves.
    """
    for leaves in (saved.time_step, saved.standing):
        if leaves is None:
            continue
        if saved.paths != list(paths) or len(leaves) != len(saved.paths):
            raise CheckpointError(
                "The checkpoint belongs to other environments: their time steps have "
                f"{describe(saved.paths)}, and these have {describe(list(paths))}."
            )
        for leaf, place, path in zip(leaves, places, paths, strict=True):
            if np.shape(leaf) != place.shape or np.asarray(leaf).dtype != place.dtype:
                raise CheckpointError(
                    f"The checkpoint belongs to other environments: its {path} is "
                    f"{describe(leaf)}, and must be an array of shape {place.shape}, "
                    f"dtype {place.dtype}."
                )
