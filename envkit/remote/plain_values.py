"""Converts specs, values, failures, losses, states and plans to plain data and back.

Data from a peer is checked before use: only the tags of plain values are read, only
built-in exceptions are looked up as classes, and nothing is unpickled. Wrong data
raises `ProtocolError` or, in a plan, `ValueError`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit._shared.text import escaped
from envkit.errors import (
    EnvironmentRaised,
    EnvkitError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)
from envkit.losses import Loss
from envkit.parallel.messages import RemoteFailure, ReplayPlan
from envkit.parallel.slab_layout import SlabLayout
from envkit.provenance import PlainDataError, dumped, from_plain, loaded, to_plain
from envkit.remote.losses import KINDS
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.plain import plain_spec, spec_from_plain
from envkit.types import Array

__all__ = [
    "ProtocolError",
    "SignedStates",
    "check_layout",
    "failure_from_plain",
    "losses_from_plain",
    "numbers_of",
    "plain_failure",
    "plain_losses",
    "plain_specs",
    "plain_value",
    "plan_from_plain",
    "plan_to_plain",
    "specs_from_plain",
    "specs_hash",
    "value_of",
]

# The maximum lengths of a failure's texts.
_MOST_TEXT = 20_000
# The methods that a client may request between two moves.
_NOTES = frozenset(["reset", "seed", "seed_rows"])
_MOST_MOVES = 1 << 20
# The size of a state's key and signature in bytes.
_KEY_SIZE, _SIGNATURE_SIZE = 32, 16


class ProtocolError(EnvkitError, ConnectionError):
    """The other end has broken the protocol."""

    def __init__(self, message: str = "") -> None:
        # The text may come from the other end, and terminals obey control characters.
        super().__init__(escaped(message))


# Specs.


def plain_specs(spec: EnvironmentSpec, info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns specs as plain data.

    Raises:
        ValueError: A leaf cannot be sent; the message gives its path.
    """
    parts = {**spec._asdict(), "info": dict(info)}
    return {
        name: to_plain(part, f"{name}_spec()", _plain_leaf)
        for name, part in parts.items()
    }


def _plain_leaf(value: Any, place: str) -> Any:
    if isinstance(value, ArraySpec):
        return {"$spec": plain_spec(value)}
    if isinstance(value, Mapping):
        return to_plain(dict(value), place, _plain_leaf)
    raise ValueError(
        f"{place} has a {type(value).__name__}; only dictionaries, lists, tuples and "
        "namedtuples of specs go over a network."
    )


def specs_from_plain(data: Any) -> tuple[EnvironmentSpec, dict[str, Any]]:
    """Returns the specs of time steps and of infos that `plain_specs` wrote.

    Raises:
        ProtocolError: The data has no specs.
    """
    try:
        parts = {name: from_plain(data[name], _read_leaf) for name in data}
        info = parts.pop("info")
        return EnvironmentSpec(**parts), info
    except Exception as error:  # another program's data may break anything
        raise ProtocolError(
            f"the server's specs cannot be read: {type(error).__name__}: "
            f"{error!s:.200}."
        ) from error


def _read_leaf(tag: str, data: Any) -> Any:
    if tag != "$spec":
        raise ValueError(f"There is no spec called {tag!r:.80}.")
    return spec_from_plain(data)


def specs_hash(data: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of plain specs, the same on every machine."""
    import json

    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_layout(layout: SlabLayout) -> None:
    """Refuses leaves that cannot be sent as bytes.

    Raises:
        ValueError: There is one; the message gives its path.
    """
    for what, structure, private in (
        ("action", layout.action, layout.private_actions),
        ("time step", layout.time_step, layout.private_steps),
    ):
        for leaf in range(len(structure.leaves)):
            spec, path = structure.leaves[leaf], structure.paths[leaf]
            place = f"The {what}{f' at {path}' if path else ''}"
            if leaf in private:
                raise ValueError(
                    f"{place} has the dtype {spec.dtype}, whose values would be "
                    "pickled, and envkit never sends pickles over a network. Wrap "
                    "the environment so that it is an array of numbers, or text of a "
                    "given length."
                )
            if spec.dtype.fields is not None:
                raise ValueError(
                    f"{place} has a dtype with fields ({spec.dtype}), which does not "
                    "go over a network. Give each field a leaf of its own."
                )


# Values and failures.

# The tags allowed in a peer's values; other tags name classes or files.
_TAGS = frozenset(
    ["$tuple", "$array", "$number", "$dict", "$float", "$bytes", "$complex", "$objects"]
)


def plain_value(value: Any, place: str = "value") -> Any:
    """Returns a value as plain data, and describes in words what cannot be."""
    return to_plain(value, place, _described)


def _described(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return to_plain(dict(value), place, _described)
    kinds: tuple[Callable[[Any], Any], ...] = (int, float, str, list, tuple)
    for kind in kinds:
        if isinstance(value, kind):  # type: ignore[arg-type]  # they are classes
            return to_plain(kind(value), place, _described)
    return f"{value!r:.200}"


def value_of(data: Any, *, namedtuples: bool = False) -> Any:
    """Returns the value of a peer's plain data.

    Args:
        data: The data.
        namedtuples: Whether namedtuples are allowed; their classes must be loaded
            already.

    Raises:
        ProtocolError: The data cannot be read.
    """
    try:
        _check_tags(data, _TAGS | {"$namedtuple"} if namedtuples else _TAGS)
        return from_plain(data)
    except Exception as error:  # another program's data may break anything
        raise ProtocolError(
            f"a value cannot be read: {type(error).__name__}: {error!s:.200}."
        ) from error


def _check_tags(data: Any, allowed: frozenset[str]) -> None:
    if isinstance(data, list):
        for item in data:
            _check_tags(item, allowed)
    elif isinstance(data, dict):
        for key, item in data.items():
            if key.startswith("$") and key not in allowed:
                raise ValueError(f"there is no kind of value called {key!r:.80}")
            _check_tags(item, allowed)


# Exceptions that keep their type.
_KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ArithmeticError,
        AssertionError,
        AttributeError,
        FileNotFoundError,
        IndexError,
        KeyError,
        LookupError,
        MemoryError,
        NotImplementedError,
        OverflowError,
        PermissionError,
        RuntimeError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}


def plain_failure(failure: RemoteFailure) -> dict[str, Any]:
    """Returns a failure as plain data, without the exception itself."""
    return {
        "kind": failure.kind,
        "env": failure.env,
        "command": failure.command,
        "type": failure.type_name,
        "message": failure.message[:_MOST_TEXT],
        "traceback": failure.traceback[-_MOST_TEXT:],
        "pid": failure.pid,
    }


def failure_from_plain(data: Any, host: str) -> RemoteFailure:
    """Returns the failure that `plain_failure` wrote; unpickles nothing.

    Raises:
        ProtocolError: The data is no failure.
    """
    try:
        texts = [
            escaped(str(data[key])) for key in ("kind", "command", "type", "message")
        ]
        kind, command, type_name, message = texts
        # Only Python's own exceptions; no class is looked up elsewhere.
        known = _KNOWN.get(type_name)
        made = RemoteFailure.of(RuntimeError() if known is None else known(message))
        return made._replace(
            kind=kind,
            env=int(data["env"]),
            command=command,
            type_name=type_name,
            message=message,
            traceback=escaped(str(data["traceback"])),
            pickled=None if known is None else made.pickled,
            pid=int(data["pid"]),
            host=host,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError("a failure must have its type and its message.") from error


# The error of each kind of loss.
_ERRORS: dict[str, type[WorkerError]] = {
    **dict.fromkeys(KINDS, WorkerCrashed),
    **dict.fromkeys(("raised", "reset_failed"), EnvironmentRaised),
    "timed_out": WorkerTimeout,
}


def plain_losses(losses: Sequence[Loss], hide: Callable[[str], str]) -> list[Any]:
    """Returns the losses of an environment as plain data.

    Args:
        losses: The losses.
        hide: Removes secrets of the server from a text.
    """
    found = []
    for loss in losses:
        text = str(loss.error)
        if not isinstance(loss.error, EnvkitError):
            text = f"{type(loss.error).__name__}: {text}"
        found.append([loss.row, loss.kind, hide(text)[:_MOST_TEXT]])
    return found


def losses_from_plain(data: Any) -> list[Loss]:
    """Returns the losses that `plain_losses` wrote.

    Raises:
        ProtocolError: The data is something else.
    """
    try:
        return [
            Loss(int(row), kind, _ERRORS[kind](escaped(str(text))))
            for row, kind, text in data
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(
            "a loss must have its row, its kind and its error."
        ) from error


def numbers_of(data: Any, count: int) -> Any:
    """Returns the request numbers of `count` rows.

    Raises:
        ProtocolError: The data is something else.
    """
    try:
        numbers = np.array(data, np.uint32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError("the numbers of requests must be integers.") from error
    if numbers.shape != (count,):
        raise ProtocolError(f"there must be numbers for {count} rows.")
    return numbers


# States.


class SignedStates:
    """Writes and reads the states of one session; its client keeps them.

    A state is plain data with a signature, so it is opaque to the client, and the
    server never reads a state that a client has made up.

    Example:
        >>> states = SignedStates()
        >>> states.load(states.dump({"place": (1, 2)}))
        {'place': (1, 2)}
        >>> SignedStates().load(states.dump(1))
        Traceback (most recent call last):
        ValueError: it was not made by this session of the server
    """

    def __init__(self) -> None:
        """Draws the session's key."""
        self._key = secrets.token_bytes(_KEY_SIZE)

    def dump(self, state: Any) -> bytes:
        """Returns a state with its signature.

        Raises:
            NotImplementedError: The state is not plain data.
        """
        try:
            text = dumped(to_plain(state, "state")).encode()
        except PlainDataError as error:
            raise NotImplementedError(
                f"The state of this environment cannot leave its server: {error} "
                "envkit never sends pickles over a network."
            ) from error
        return self._signature(text) + text

    def load(self, token: bytes) -> Any:
        """Returns the state that `dump` wrote.

        Raises:
            ValueError: It was not written by this object.
        """
        signature, text = token[:_SIGNATURE_SIZE], token[_SIGNATURE_SIZE:]
        if not hmac.compare_digest(signature, self._signature(text)):
            raise ValueError("it was not made by this session of the server")
        return from_plain(loaded(text))

    def _signature(self, text: bytes) -> bytes:
        return hmac.new(self._key, text, hashlib.sha256).digest()[:_SIGNATURE_SIZE]


# Replay plans.


def plan_to_plain(plan: ReplayPlan) -> list[Any]:
    """Returns a plan as plain data."""
    return [*plan]


def plan_from_plain(data: Any, layout: SlabLayout, rows: int) -> ReplayPlan:
    """Checks and returns a client's plan.

    Args:
        data: The plan as plain data.
        layout: The layout of the session's rows.
        rows: The number of the environment's rows.

    Raises:
        ValueError: The plan does not fit these rows.
    """
    if not isinstance(data, list) or len(data) != len(ReplayPlan._fields):
        raise ValueError("A plan must be a list of all its parts.")
    plan = ReplayPlan(*data)
    count = len(plan.times) if isinstance(plan.times, np.ndarray) else -1
    if not 0 <= count <= _MOST_MOVES or not all(
        _is_column(column, dtype, (count,))
        and (not count or (column.min() >= low and column.max() <= high))
        for column, dtype, low, high in plan.columns(rows)
    ):
        raise ValueError("The moves of a plan must be of the session's own rows.")
    if (np.diff(plan.times) < 0).any():
        raise ValueError("The moves of a plan must be in order.")
    if not (
        type(plan.resets) is int
        and 0 <= plan.resets <= _MOST_MOVES
        and type(plan.number) is int
        and 0 <= plan.number < 2**32
        and isinstance(plan.known_seed, tuple)
        and len(plan.known_seed) == 2
        and type(plan.known_seed[1]) is int
    ):
        raise ValueError("The numbers of a plan must be integers.")
    if plan.attributes or plan.state is not None:
        raise ValueError("A plan for a server must have no attributes and no states.")
    if not isinstance(plan.notes, tuple) or not all(
        isinstance(note, tuple)
        and len(note) == 3
        and type(note[0]) is int
        and note[1] in _NOTES
        for note in plan.notes
    ):
        raise ValueError("A plan for a server must have only resets and seeds.")
    return plan._replace(actions=_within(plan.actions, layout, count))


def _is_column(column: Any, dtype: Any, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(column, np.ndarray)
        and column.dtype == dtype
        and column.shape == shape
    )


def _within(actions: Any, layout: SlabLayout, count: int) -> tuple[Array, ...]:
    """Returns the actions of moves within their bounds.

    The action of a step that begins an episode is ignored, and may have been anything.
    """
    specs: Sequence[ArraySpec] = layout.action.leaves
    if not isinstance(actions, tuple) or len(actions) != len(specs):
        raise ValueError("A plan must have all leaves of the actions.")
    checked = []
    for spec, column in zip(specs, actions, strict=True):
        if not _is_column(column, spec.dtype, (count, *spec.shape)):
            raise ValueError("The actions of a plan must fit their specs.")
        if isinstance(spec, BoundedArraySpec) and spec.dtype.kind in "iufb":
            column = np.clip(column, spec.minimum, spec.maximum).astype(spec.dtype)
        checked.append(column)
    return tuple(checked)
