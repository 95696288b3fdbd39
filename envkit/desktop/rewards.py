"""`RewardChannel`: rewards, ends and texts that a program reports itself.

A program writes lines of JSON to a socket, each with the id of its episode, so a line
that arrives late never counts for the next episode.

    {"episode": 3, "reward": 1.0}
    {"episode": 3, "text": "You have died.", "terminated": true}

The channel writes `{"episode": 4}` when an episode begins, and as the first line of a
connection. `ENVKIT_REWARDS` has the address of the socket, and `ENVKIT_EPISODE` the id
of the episode for which the program was started. Programs in Python use `Reporter`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envkit._shared import listening
from envkit.errors import ClosedError
from envkit.extend import describe

__all__ = ["ADDRESS", "EPISODE", "Reported", "Reporter", "RewardChannel"]

_LOGGER = logging.getLogger(__name__)

ADDRESS, EPISODE = "ENVKIT_REWARDS", "ENVKIT_EPISODE"

_LONGEST_LINE = 1 << 16
_MOST_PROGRAMS = 32
# Bytes read from a program at a time; a program that floods the channel waits.
_MOST_AT_ONCE = 1 << 20
# Sums of such rewards do not overflow the reward of a time step.
_LARGEST_REWARD = 1e30
# Seconds within which a channel must write its episode.
_PATIENCE = 60.0

# Only the newest texts are kept if a program floods the channel and nobody reads.
_MOST_TEXTS = 256


@dataclass(slots=True)
class Reported:
    """Holds the reports of one episode since the last `RewardChannel.take`.

    Attributes:
        reward: The sum of the rewards.
        count: The number of lines.
        terminated: Whether the episode has ended, and nothing can follow.
        truncated: Whether the episode was cut off.
        ready: Whether the program says that the episode has begun.
        texts: The texts, the oldest first.
    """

    reward: float = 0.0
    count: int = 0
    terminated: bool = False
    truncated: bool = False
    ready: bool = False
    texts: list[str] = field(default_factory=list)


class RewardChannel:
    """Receives rewards, ends and texts from the program itself, by episode.

    A `Desktop` opens it, and gives its address to the program. `dropped` counts lines
    about another episode; `refused` counts invalid lines, and the program gets the
    reason.

    Example:
        >>> channel = RewardChannel("tcp://127.0.0.1:0")
        >>> channel.open()
        >>> channel.begin(1)
        >>> reporter = Reporter(channel.variables())
        >>> reporter.report(2.0)
        >>> while not (reported := channel.take()).count:
        ...     pass
        >>> reported.reward
        2.0
        >>> reporter.close(), channel.close()
        (None, None)
    """

    def __init__(self, address: str | None = None) -> None:
        """Chooses where programs find the channel.

        Args:
            address: `"tcp://127.0.0.1:0"`, or an address that a virtual machine can
                reach; everyone who can reach it can report rewards. `None` for a Unix
                socket that only this user can open.
        """
        if address is not None:
            _tcp(address)
        self._address = address
        self._listener: socket.socket | None = None
        self._programs: list[_Program] = []
        self._episode = 0
        self._has_ended = False
        self._reported = Reported()
        self.dropped = 0
        self.refused = 0

    def __repr__(self) -> str:
        given = "" if self._address is None else repr(self._address)
        return f"RewardChannel({given})"

    def __reduce__(self) -> Any:
        return RewardChannel, (self._address,)

    def open(self, folder: str | None = None) -> None:
        """Starts listening.

        Args:
            folder: The folder for the Unix socket; the caller removes it.
        """
        if self._listener is not None:
            return
        if self._address is None:
            if folder is None:
                raise ValueError("folder must be given for a Unix socket, got None.")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(Path(folder) / "rewards"))
        else:
            listener = listening.listener(*_tcp(self._address))
        listener.listen(_MOST_PROGRAMS)
        listener.setblocking(False)
        self._listener = listener

    def variables(self) -> dict[str, str]:
        """Returns the environment variables that a program needs."""
        name = self._open().getsockname()
        if isinstance(name, str):
            address = f"unix://{name}"
        else:
            address = f"tcp://{listening.place_of(name)}"
        return {ADDRESS: address, EPISODE: str(self._episode)}

    def begin(self, episode: int) -> None:
        """Begins an episode: from now on, only lines about it count."""
        self._open()
        self._episode = int(episode)
        self._has_ended = False
        self._reported = Reported()
        for program in self._programs:
            program.send({"episode": self._episode})

    def take(self) -> Reported:
        """Returns the reports since the last `take`, without waiting."""
        self._receive()
        reported, self._reported = self._reported, Reported()
        return reported

    def pop_texts(self) -> list[str]:
        """Returns the reported texts; everything else stays for `take`."""
        self._receive()
        texts, self._reported.texts = self._reported.texts, []
        return texts

    def is_ready(self) -> bool:
        """Returns True once the program has reported that the episode has begun."""
        self._receive()
        return self._reported.ready

    def close(self) -> None:
        """Closes the channel and its connections."""
        for program in self._programs:
            program.link.close()
        self._programs = []
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def fileno(self) -> int:
        """Returns the listening socket's descriptor."""
        return self._open().fileno()

    def _open(self) -> socket.socket:
        if self._listener is None:
            raise ClosedError("The RewardChannel is not open. A Desktop opens it.")
        return self._listener

    def _receive(self) -> None:
        listener = self._open()
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while True:
                link, _ = listener.accept()
                if len(self._programs) >= _MOST_PROGRAMS:
                    link.close()
                    continue
                link.setblocking(False)
                program = _Program(link)
                program.send({"episode": self._episode})
                self._programs.append(program)
        for program in list(self._programs):
            for line in program.lines():
                self._add(program, line)
            if program.is_gone:
                program.link.close()
                self._programs.remove(program)

    def _add(self, program: _Program, line: bytes) -> None:
        """Adds a line to the reports of its episode, or rejects it."""
        try:
            message = _parsed(line)
        except ValueError as error:
            self.refused += 1
            program.send({"error": str(error)})
            if self.refused == 1:
                _LOGGER.warning("a program wrote to the reward channel: %s", error)
            return
        if int(message["episode"]) != self._episode or self._has_ended:
            self.dropped += 1
            return
        reported = self._reported
        reported.count += 1
        reported.reward += message.get("reward", 0.0)
        reported.ready |= message.get("ready", False)
        reported.terminated |= message.get("terminated", False)
        reported.truncated |= message.get("truncated", False)
        if "text" in message:
            reported.texts.append(message["text"])
            del reported.texts[:-_MOST_TEXTS]
        self._has_ended = reported.terminated or reported.truncated


class _Program:
    """Reads and writes lines on the connection of a program."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.is_gone = False
        self._is_muted = False
        self._rest = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Writes a line; a program that does not read its lines loses some."""
        with contextlib.suppress(OSError):
            self.link.send(json.dumps(message).encode() + b"\n")

    def lines(self) -> list[bytes]:
        """Returns the lines received since the last call."""
        data = self._rest
        size = 0
        while size < _MOST_AT_ONCE:
            try:
                piece = self.link.recv(1 << 16)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                piece = b""
            if not piece:
                self.is_gone = True
                break
            data += piece
            size += len(piece)
        if self._is_muted:
            return []
        *lines, self._rest = data.split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self.send({"error": f"A line must have at most {_LONGEST_LINE} bytes."})
            # Not closed, because that could discard the error before it is read.
            self._is_muted, self._rest = True, b""
        return [line for line in lines if line.strip()]


class Reporter:
    """Reports rewards, ends and texts, in a program that a `Desktop` has started.

    Without a channel it does nothing, so the program also runs alone.

    Example:
        >>> reporter = Reporter({})
        >>> reporter.report(1.0)
        >>> reporter.episode is None
        True
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Connects to the channel.

        Args:
            environ: The environment variables; `None` for this process's.
        """
        given = os.environ if environ is None else environ
        self.episode: int | None = None
        self._rest = b""
        self._newest: int | None = None
        self._link: socket.socket | None = None
        address = given.get(ADDRESS)
        if address is None:
            return
        if EPISODE in given:
            self.episode = self._newest = int(given[EPISODE])
        if address.startswith("unix://"):
            self._link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._link.connect(address.removeprefix("unix://"))
        else:
            self._link = socket.create_connection(_tcp(address))

    def begin(self) -> int | None:
        """Joins the newest episode; call it when the program's own episode begins.

        A program that was started without an episode's id waits for one.

        Raises:
            TimeoutError: The channel sent no id within a minute.
        """
        self._read()
        self._await_episode()
        self.episode = self._newest
        self._write({"ready": True})
        return self.episode

    def is_over(self) -> bool:
        """Returns True if the channel has begun another episode."""
        self._read()
        return self._newest != self.episode

    def report(
        self,
        reward: float = 0.0,
        *,
        terminated: bool = False,
        truncated: bool = False,
        text: str | None = None,
    ) -> None:
        """Reports a reward, an end or a text of the current episode."""
        flags = {"terminated": terminated, "truncated": truncated}
        message: dict[str, Any] = {name: True for name, flag in flags.items() if flag}
        if reward:
            message["reward"] = float(reward)
        if text is not None:
            message["text"] = text
        if self.episode is None:
            self._await_episode()
            self.episode = self._newest
        self._write(message)

    def close(self) -> None:
        """Closes the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _write(self, message: dict[str, Any]) -> None:
        if self._link is None:
            return
        line = json.dumps({"episode": self.episode, **message}).encode() + b"\n"
        try:
            self._link.sendall(line)
        except OSError:  # The desktop is closed; the program may continue.
            self.close()

    def _await_episode(self) -> None:
        """Waits until the channel has sent the id of an episode."""
        deadline = time.monotonic() + _PATIENCE
        while self._link is not None and self._newest is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"A RewardChannel must write its episode within {_PATIENCE:g} s, "
                    "and has not. Does its Desktop reset or step?"
                )
            self._read(left)

    def _read(self, timeout: float = 0.0) -> None:
        """Reads the id of the newest episode."""
        while self._link is not None and _is_readable(self._link, timeout):
            timeout = 0.0
            try:
                piece = self._link.recv(1 << 16)
            except OSError:
                piece = b""
            if not piece:
                self.close()
                return
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._newest = json.loads(line).get("episode", self._newest)


def _is_readable(link: socket.socket, timeout: float) -> bool:
    poller = select.poll()  # Not select(), which refuses descriptors above 1023.
    poller.register(link, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


def _is_episode(value: Any) -> bool:
    # Shells write it as a string.
    try:
        return not isinstance(value, bool) and int(value) == float(value)
    except (OverflowError, TypeError, ValueError):
        return False


def _is_reward(value: Any) -> bool:
    # NaN is outside any range, and an integer may be larger than any float.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_LARGEST_REWARD <= value <= _LARGEST_REWARD


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# The keys of a line, and what their values must be.
_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "episode": (_is_episode, "the id of its episode, a whole number"),
    "ready": (_is_flag, "true or false"),
    "reward": (
        _is_reward,
        f"a number from {-_LARGEST_REWARD:g} to {_LARGEST_REWARD:g}",
    ),
    "terminated": (_is_flag, "true or false"),
    "text": (_is_text, "a string"),
    "truncated": (_is_flag, "true or false"),
}


def _parsed(line: bytes) -> dict[str, Any]:
    """Parses a line, or raises the reason why it is invalid."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        shown = line[:80].decode("utf-8", "replace")
        raise ValueError(f"A line must be a JSON object, got {shown!r}.")
    for name, value in {"episode": None, **message}.items():
        if name not in _KEYS:
            raise ValueError(
                f"A line must have keys of {', '.join(_KEYS)}; got {name!r}."
            )
        is_right, expected = _KEYS[name]
        if not is_right(value):
            raise ValueError(f"{name!r} must be {expected}, got {describe(value)}.")
    return message


def _tcp(address: Any) -> tuple[str, int]:
    """Returns the host and port of "tcp://host:port"."""
    scheme, _, place = str(address).partition("://")
    found = listening.host_and_port(place)
    if scheme != "tcp" or found is None:
        raise ValueError(
            "address must be tcp://HOST:PORT, such as 'tcp://127.0.0.1:0', got "
            f"{describe(address)}."
        )
    return found
