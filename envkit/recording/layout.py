"""What the arrays of a recording are called, and its specs as plain data."""

from __future__ import annotations

import collections.abc
import contextlib
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import EnvkitError, RecordingError
from envkit.plain_data import from_plain, to_plain
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.info_spec import key_paths
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.specs.validation import describe
from envkit.time_step import TimeStep

__all__ = [
    "ACTIONS",
    "EPISODE",
    "FORMAT",
    "VERSION",
    "Layout",
    "packer",
    "reading",
    "unpacker",
]

FORMAT = "envkit recording"
VERSION = 1
# What JSON has; of kinds that are based on these it is the same.
_BASES: tuple[Any, ...] = (int, float, str, list)
# What a file holds: all of one episode, or only the actions of those in between.
EPISODE, ACTIONS = "episode", "actions"


@contextlib.contextmanager
def reading(what: str, cannot: str = "cannot be read") -> Iterator[None]:
    """Turns whatever a broken file leads to into a `RecordingError` that names it.

    A file may hold anything, and the parts that read it were written for what `Record`
    writes; so it is here that their errors become one kind.

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
            # struct and zlib call theirs "error".
            module = f"{kind.__module__}." if kind.__name__ == "error" else ""
            reason = f"{module}{kind.__name__}: {reason}"
        raise RecordingError(f"{what} {cannot}: {reason.rstrip('.')}.") from error


class Layout:
    """The columns of a recording.

    Attributes:
        time_step: The structure of a time step, and
        steps: what its leaves are called.
        action: The structure of an action, and
        actions: what its leaves are called.
        info: The structure of those infos that are arrays, and
        infos: what they are called.
    """

    def __init__(self, time_step: Any, action: Any, info: Any) -> None:
        """Compiles the specs of one row.

        Args:
            time_step: The spec of a time step.
            action: The spec of an action.
            info: The specs of infos, in dictionaries; `{}` for none.
        """
        self.time_step = nest.Structure(time_step)
        self.action = nest.Structure(action)
        self.info = nest.Structure(info)
        self.steps = self.time_step.paths
        self.actions = tuple(f"action{path}" for path in self.action.paths)
        self.infos = tuple(f"info{path}" for path in self.info.paths)
        for structure in (self.time_step, self.action, self.info):
            for spec in structure.leaves:
                _check_dtype(spec)

    def as_plain(self) -> dict[str, Any]:
        """Returns the specs as plain data."""
        return {
            "time_step": to_plain(self.time_step.template, "time_step_spec()", _spec),
            "action": to_plain(self.action.template, "action_spec()", _spec),
            "info": to_plain(self.info.template, "info_spec()", _spec),
        }

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Layout:
        """Reads what `as_plain` has written."""
        names = "time_step", "action", "info"
        time_step, action, info = (from_plain(data[name], _read) for name in names)
        if not isinstance(time_step, TimeStep):
            raise ValueError(
                f"time_step_spec() is {describe(time_step)}; it must be a TimeStep"
            )
        layout = cls(time_step, action, info)
        list(key_paths(layout.info.template))
        return layout


def _check_dtype(spec: ArraySpec) -> None:
    dtype = spec.dtype
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
        return {"$spec": _spec_facts(value)}
    if isinstance(value, collections.abc.Mapping):
        # As to structures, a mapping is what it holds.
        return to_plain(dict(value), place, _spec)
    raise RecordingError(
        f"Record cannot write {place}, which has {describe(value)}: dictionaries, "
        "lists, tuples and namedtuples of specs can be written."
    )


def _spec_facts(spec: ArraySpec) -> dict[str, Any]:
    facts = {"shape": list(spec.shape), "dtype": spec.dtype.str, "name": spec.name}
    if isinstance(spec, BoundedArraySpec):
        bounds = {"minimum": spec.minimum, "maximum": spec.maximum}
        return {"kind": "BoundedArraySpec", **facts, **to_plain(bounds)}
    if isinstance(spec, TextSpec):
        lengths = {"min_length": spec.min_length, "max_length": spec.max_length}
        return {"kind": "TextSpec", **facts, **lengths, "letters": spec.letters}
    kind = "ObjectSpec" if isinstance(spec, ObjectSpec) else "ArraySpec"
    return {"kind": kind, **facts}


_KINDS: dict[str, Callable[..., ArraySpec]] = {
    "ArraySpec": ArraySpec,
    "BoundedArraySpec": BoundedArraySpec,
    "ObjectSpec": ObjectSpec,
    "TextSpec": TextSpec,
}


def _read(tag: str, data: Any) -> Any:
    if tag != "$spec":
        raise ValueError(f"There is no spec that is called {tag!r}.")
    facts = from_plain(data)
    return _KINDS[facts.pop("kind")](**facts)


def packer(allowed: bool) -> Callable[[Any, str], Any]:
    """Returns what writes that which is no plain data: as a pickle, if allowed."""

    def pack(value: Any, place: str) -> Any:
        if allowed:
            return {"$pickle": b64encode(pickle.dumps(value)).decode("ascii")}
        # An OrderedDict, an IntEnum: JSON has what they are made of.
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
    """Returns what reads that which is no plain data, if that is allowed."""

    def unpack(tag: str, data: Any) -> Any:
        if tag != "$pickle":
            raise ValueError(f"There is no value that is called {tag!r}.")
        if not allowed:
            raise RecordingError(
                "The recording holds pickles, and reading one may run any code. If you "
                "trust whoever made it, pass pickle=True."
            )
        return pickle.loads(b64decode(data))

    return unpack
