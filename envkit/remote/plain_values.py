"""Specs, values, failures, states and plans of replays as plain data, and back.

What comes from a peer is checked here before anything is made of it: only the tags of
plain values are read, no class is looked up beyond the built-in exceptions, and nothing
is unpickled. Whatever is wrong with it raises `ProtocolError` or, in a plan,
`ValueError`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit._shared.text import escaped
from envkit.errors import EnvkitError
from envkit.parallel.messages import RemoteFailure, ReplayPlan
from envkit.parallel.slab_layout import SlabLayout
from envkit.provenance import PlainDataError, dumped, from_plain, loaded, to_plain
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.plain import plain_spec, spec_from_plain
from envkit.types import Array

__all__ = [
    "ProtocolError",
    "SignedStates",
    "check_layout",
    "failure_from_plain",
    "numbers_of",
    "plain_failure",
    "plain_specs",
    "plain_value",
    "plan_from_plain",
    "plan_to_plain",
    "specs_from_plain",
    "specs_hash",
    "value_of",
]

# How long the texts of a failure may be.
_MOST_TEXT = 20_000
# What a client may ask of environments between two moves.
_NOTES = frozenset(["reset", "seed", "seed_rows"])
_MOST_MOVES = 1 << 20
# How many bytes the key and the signature of a state have.
_KEY_SIZE, _SIGNATURE_SIZE = 32, 16


class ProtocolError(EnvkitError, ConnectionError):
    """The other end has sent something that the protocol does not have."""

    def __init__(self, message: str = "") -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))


# Specs.


def plain_specs(spec: EnvironmentSpec, info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns specs as plain data.

    Raises:
        ValueError: A leaf cannot travel; the message has its path.
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
        f"{place} has a {type(value).__name__}; over a network go dictionaries, lists, "
        "tuples and namedtuples of specs."
    )


def specs_from_plain(data: Any) -> tuple[EnvironmentSpec, dict[str, Any]]:
    """Returns the specs, and those of infos, that `plain_specs` wrote.

    Raises:
        ProtocolError: There are none in it.
    """
    try:
        parts = {name: from_plain(data[name], _read_leaf) for name in data}
        info = parts.pop("info")
        return EnvironmentSpec(**parts), info
    except Exception as error:  # It is another's data, which may break anything.
        raise ProtocolError(
            f"the server's specs cannot be read: {type(error).__name__}: "
            f"{error!s:.200}."
        ) from error


def _read_leaf(tag: str, data: Any) -> Any:
    if tag != "$spec":
        raise ValueError(f"There is no spec that is called {tag!r:.80}.")
    return spec_from_plain(data)


def specs_hash(data: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of plain specs, which is the same on every machine."""
    import json

    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_layout(layout: SlabLayout) -> None:
    """Refuses leaves that do not travel as bytes.

    Raises:
        ValueError: There is one; the message has its path.
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
                    "pickled, and nothing that is pickled goes over a network. Wrap "
                    "the environment so that it is an array of numbers, or text of a "
                    "given length."
                )
            if spec.dtype.fields is not None:
                raise ValueError(
                    f"{place} has a dtype with fields ({spec.dtype}), which does not "
                    "go over a network. Give each field a leaf of its own."
                )


# Values and failures.

# What values of a peer may be made of. The others name classes or files.
_TAGS = frozenset(
    ["$tuple", "$array", "$number", "$dict", "$float", "$bytes", "$complex", "$objects"]
)


def plain_value(value: Any, place: str = "value") -> Any:
    """Returns any value as plain data; of what is none, a few words."""
    return to_plain(value, place, _in_words)


def _in_words(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return to_plain(dict(value), place, _in_words)
    kinds: tuple[Callable[[Any], Any], ...] = (int, float, str, list, tuple)
    for kind in kinds:
        if isinstance(value, kind):  # type: ignore[arg-type]  # they are classes
            return to_plain(kind(value), place, _in_words)
    return f"{value!r:.200}"


def value_of(data: Any, *, namedtuples: bool = False) -> Any:
    """Returns the value of plain data that a peer has sent.

    Args:
        data: The data.
        namedtuples: Whether it may have namedtuples, whose classes are looked up among
            those that are loaded.

    Raises:
        ProtocolError: The data cannot be read.
    """
    try:
        _check_tags(data, _TAGS | {"$namedtuple"} if namedtuples else _TAGS)
        return from_plain(data)
    except Exception as error:  # It is another's data, which may break anything.
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
                raise ValueError(f"no value is called {key!r:.80}")
            _check_tags(item, allowed)


# Exceptions that arrive as what they were.
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
    """Returns the failure that `plain_failure` wrote; nothing in it is unpickled.

    Raises:
        ProtocolError: It is none.
    """
    try:
        texts = [
            escaped(str(data[key])) for key in ("kind", "command", "type", "message")
        ]
        kind, command, type_name, message = texts
        # Only what Python has of that name; no class is looked up elsewhere.
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


def numbers_of(data: Any, count: int) -> Any:
    """Returns so many numbers of rows' requests.

    Raises:
        ProtocolError: They are none.
    """
    try:
        numbers = np.array(data, np.uint32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError("the numbers of requests must be integers.") from error
    if numbers.shape != (count,):
        raise ProtocolError(f"there must be numbers of {count} rows.")
    return numbers


# States.


class SignedStates:
    """Writes and reads the states of one session, which its client keeps.

    A state is plain data with a signature, so that it is opaque to the client, and
    nothing that a client has made is ever read as a state.

    Example:
        >>> states = SignedStates()
        >>> states.load(states.dump({"place": (1, 2)}))
        {'place': (1, 2)}
        >>> SignedStates().load(states.dump(1))
        Traceback (most recent call last):
        ValueError: it was not made by this session of the server, and no other is read
    """

    def __init__(self) -> None:
        """Draws the key of a session."""
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
                f"The state of this environment does not leave its server: {error} "
                "Nothing that is pickled goes over a network."
            ) from error
        return self._signature(text) + text

    def load(self, token: bytes) -> Any:
        """Returns the state that `dump` has written.

        Raises:
            ValueError: Something else has written it.
        """
        signature, text = token[:_SIGNATURE_SIZE], token[_SIGNATURE_SIZE:]
        if not hmac.compare_digest(signature, self._signature(text)):
            raise ValueError(
                "it was not made by this session of the server, and no other is read"
            )
        return from_plain(loaded(text))

    def _signature(self, text: bytes) -> bytes:
        return hmac.new(self._key, text, hashlib.sha256).digest()[:_SIGNATURE_SIZE]


# Plans of replays.


def plan_to_plain(plan: ReplayPlan) -> list[Any]:
    """Returns a plan without a class of ours."""
    return [*plan]


def plan_from_plain(data: Any, layout: SlabLayout, rows: int) -> ReplayPlan:
    """Returns a plan that a client has sent.

    Args:
        data: What it has sent.
        layout: Where the rows of the session are.
        rows: How many rows the environment has.

    Raises:
        ValueError: The plan is not one for such rows.
    """
    if not isinstance(data, list) or len(data) != len(ReplayPlan._fields):
        raise ValueError("A plan must be a list of all that plans have.")
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
        raise ValueError("A plan for a server has neither attributes nor states.")
    if not isinstance(plan.notes, tuple) or not all(
        isinstance(note, tuple)
        and len(note) == 3
        and type(note[0]) is int
        and note[1] in _NOTES
        for note in plan.notes
    ):
        raise ValueError("A plan for a server has resets and seeds alone.")
    return plan._replace(actions=_within(plan.actions, layout, count))


def _is_column(column: Any, dtype: Any, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(column, np.ndarray)
        and column.dtype == dtype
        and column.shape == shape
    )


def _within(actions: Any, layout: SlabLayout, count: int) -> tuple[Array, ...]:
    """Returns the actions of moves, none of which is out of its bounds.

    Where a step begins an episode, its action is ignored and may have been anything.
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
