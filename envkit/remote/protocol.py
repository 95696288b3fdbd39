"""What a client and a server of envkit's own protocol say before rows travel.

```
client                                        server
  magic, {protocol, nonce, order of bytes} ─▶
                                           ◀─  {protocol, nonce, whether a token is due}
  {proof, what is asked for}               ─▶
                                           ◀─  {proof, session, specs, …} or {refused}
```

Each proof is an HMAC over both nonces, so the token does not travel, and none can be
used again. What is asked for is a session with environments, the one that a lost link
had, or a view of another's.

A message is a frame of a `Link` whose body is JSON. Rows travel as the linked backend's
do; nothing else does, so that nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.text import escaped
from envkit.distributed.link import HEAD, MESSAGE
from envkit.errors import EnvkitError
from envkit.parallel.messages import RemoteFailure
from envkit.parallel.slab_layout import SlabLayout
from envkit.provenance import dumped, from_plain, loaded, to_plain
from envkit.specs.arrays import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.plain import plain_spec, spec_from_plain

__all__ = [
    "MAGIC",
    "MOST_BEFORE",
    "MOST_MESSAGE",
    "NONCE",
    "ORDER",
    "PORT",
    "PROTOCOL",
    "SHOWN",
    "Greeting",
    "ProtocolError",
    "Wire",
    "check_layout",
    "failure_from_plain",
    "frame_of",
    "message_of",
    "new_nonce",
    "numbers_of",
    "plain_failure",
    "plain_specs",
    "plain_value",
    "proof_of",
    "specs_from_plain",
    "specs_hash",
    "value_of",
]

MAGIC = b"envkit\x02\n"
PROTOCOL = (1, 0)
PORT = 7600
# Arrays travel as they lie in memory.
ORDER = "<" if sys.byteorder == "little" else ">"
NONCE = 16
# The kind of frames that observers get: the time steps of all rows. Those of links
# come before it.
SHOWN = 5

# How long a message may be: from a peer that has proved nothing, and from another.
MOST_BEFORE, MOST_MESSAGE = 1 << 16, 1 << 26
_MOST_TEXT = 20_000


class ProtocolError(EnvkitError, ConnectionError):
    """The other end says what the protocol does not have."""

    def __init__(self, message: str = "") -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))


class Greeting(NamedTuple):
    """What both ends know once they have greeted: their nonces, the client's first."""

    client: bytes
    server: bytes


def proof_of(token: bytes, side: bytes, greeting: Greeting) -> str:
    """Returns what proves that one side knows the token.

    Example:
        >>> proof_of(b"secret", b"client", Greeting(b"c" * 16, b"s" * 16))[:8]
        '5d8a17e3'
    """
    text = b"envkit " + side + greeting.client + greeting.server
    return hmac.new(token, text, hashlib.sha256).hexdigest()


def frame_of(message: Mapping[str, Any]) -> list[bytes]:
    """Returns the frame of a message, which is plain data."""
    body = dumped(message).encode()
    return [HEAD.pack(MESSAGE, 0, 0, 0, len(body)), body]


def message_of(body: bytes | bytearray) -> dict[str, Any]:
    """Reads a message.

    Raises:
        ProtocolError: It is none.
    """
    try:
        message = loaded(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"A message cannot be read: {error!s:.200}.") from error
    if not isinstance(message, dict):
        raise ProtocolError("A message must be a JSON object.")
    return message


class Wire:
    """A blocking socket that messages go over until a deadline.

    Attributes:
        sock: The socket.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        """Takes a socket; `deadline` is in seconds of `time.monotonic`."""
        self.sock = sock
        self._deadline = deadline

    def read(self, count: int) -> bytes:
        """Reads so many bytes.

        Raises:
            ProtocolError: The other end has closed the connection before.
            TimeoutError: They have not come in time.
        """
        data = bytearray()
        while len(data) < count:
            self._limit()
            part = self.sock.recv(min(count - len(data), MOST_BEFORE))
            if not part:
                raise ProtocolError("The other end has closed the connection.")
            data += part
        return bytes(data)

    def send(self, message: Mapping[str, Any], before: bytes = b"") -> None:
        """Sends a message, with some bytes before it."""
        self._limit()
        self.sock.sendall(before + b"".join(frame_of(message)))

    def receive(self, most: int) -> dict[str, Any]:
        """Reads a message of so many bytes at most."""
        kind, _, _, _, length = HEAD.unpack(self.read(HEAD.size))
        if kind != MESSAGE or length > most:
            raise ProtocolError(
                f"Not a message of at most {most} bytes has come, but something else."
            )
        return message_of(self.read(length))

    def _limit(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("The other end took too long to say who it is.")
        self.sock.settimeout(left)


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
            f"The server's specs cannot be read: {type(error).__name__}: "
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
            f"A value cannot be read: {type(error).__name__}: {error!s:.200}."
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
        raise ProtocolError("The server has sent a failure without facts.") from error


def new_nonce() -> bytes:
    """Draws a nonce."""
    return os.urandom(NONCE)


def numbers_of(data: Any, count: int) -> Any:
    """Returns so many numbers of rows' requests.

    Raises:
        ProtocolError: They are none.
    """
    try:
        numbers = np.array(data, np.uint32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError("Numbers of requests were to come.") from error
    if numbers.shape != (count,):
        raise ProtocolError(f"Numbers of {count} rows were to come.")
    return numbers
