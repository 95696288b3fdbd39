"""`RewardChannel`: rewards, ends and texts that a program reports itself.

A program writes lines of JSON to a socket, each with the id of the episode that it is
about. So a line that was under way when its episode ended reaches no other one.

    {"episode": 3, "reward": 1.0}
    {"episode": 3, "text": "You have died.", "terminated": true}

The channel writes `{"episode": 4}` when an episode begins, and as the first line of a
connection. The program finds the address in `ENVKIT_REWARDS`, and the id that it was
started for in `ENVKIT_EPISODE`. `Reporter` is this for programs in Python.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import time
from collections.abc import Mapping
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
# Bytes that one look reads of a program: one that floods the channel waits.
_MOST_AT_ONCE = 1 << 20
# Sums of such rewards stay within what a time step has for one.
_LARGEST_REWARD = 1e30
# Seconds within which a channel must tell its episode.
_PATIENCE = 60.0

_KNOWN = ("episode", "ready", "reward", "terminated", "text", "truncated")


@dataclass(slots=True)
class Reported:
    """The reports of one episode since the last look.

    Attributes:
        reward: The sum of its rewards.
        count: How many lines there were.
        terminated: Whether it has ended, and nothing can follow.
        truncated: Whether it was cut off.
        ready: Whether the program says that it has begun.
        texts: What the program has said.
    """

    reward: float = 0.0
    count: int = 0
    terminated: bool = False
    truncated: bool = False
    ready: bool = False
    texts: list[str] = field(default_factory=list)

    def __add__(self, other: Reported) -> Reported:
        return Reported(
            self.reward + other.reward,
            self.count + other.count,
            self.terminated or other.terminated,
            self.truncated or other.truncated,
            self.ready or other.ready,
            self.texts + other.texts,
        )


class RewardChannel:
    """Takes rewards, ends and texts from the program itself, by episode.

    A `Desktop` opens it, and gives its address to the program. Lines about another
    episode than the present one are counted in `dropped`; lines that are none of this
    protocol in `refused`, and the program is told why.

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
            address: `"tcp://127.0.0.1:0"`, or a port of a network that a virtual
                machine reaches: who reaches it can report rewards. `None` for a
                Unix socket that only this user can open.
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
        """Begins to listen.

        Args:
            folder: Where the Unix socket is made; who makes the folder removes it.
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
            host = f"[{name[0]}]" if ":" in name[0] else name[0]
            address = f"tcp://{host}:{name[1]}"
        return {ADDRESS: address, EPISODE: str(self._episode)}

    def begin(self, episode: int) -> None:
        """Begins an episode: from now on only lines about this one count."""
        self._open()
        self._episode = int(episode)
        self._has_ended = False
        self._reported = Reported()
        for program in self._programs:
            program.send({"episode": self._episode})

    def take(self) -> Reported:
        """Returns what was reported since the last look; waits for nothing."""
        self._look()
        reported, self._reported = self._reported, Reported()
        return reported

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

    def _look(self) -> None:
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
        """Adds a line to the reports of its episode, or refuses it."""
        try:
            told = _parsed(line)
        except ValueError as error:
            self.refused += 1
            program.send({"error": str(error)})
            if self.refused == 1:
                _LOGGER.warning("a program wrote to the reward channel: %s", error)
            return
        if told["episode"] != self._episode or self._has_ended:
            self.dropped += 1
            return
        reported = self._reported
        reported.count += 1
        reported.reward += told.get("reward", 0.0)
        reported.ready |= told.get("ready", False)
        reported.terminated |= told.get("terminated", False)
        reported.truncated |= told.get("truncated", False)
        if "text" in told:
            reported.texts.append(told["text"])
        self._has_ended = reported.terminated or reported.truncated


class _Program:
    """A connection of a program, whose lines come in pieces."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.is_gone = False
        self._is_muted = False
        self._rest = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Writes a line; a program that does not read its lines misses some."""
        with contextlib.suppress(OSError):
            self.link.send(json.dumps(message).encode() + b"\n")

    def lines(self) -> list[bytes]:
        """Reads the lines that have come."""
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
            # It is not closed, because that could take the error back.
            self._is_muted, self._rest = True, b""
        return [line for line in lines if line.strip()]


class Reporter:
    """Reports rewards, ends and texts, in a program that a `Desktop` has started.

    Where there is no channel, it does nothing, so the program runs alone, too.

    Example:
        >>> reporter = Reporter({})
        >>> reporter.report(1.0)
        >>> reporter.episode is None
        True
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Connects to the channel.

        Args:
            environ: The environment variables; `None` for those of this process.
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
        """Begins the newest episode, which the program calls when its own begins.

        A program that was not told an episode when it was started waits for one.

        Raises:
            TimeoutError: The channel has told none within a minute.
        """
        self._read()
        self._learn()
        self.episode = self._newest
        self._write({"ready": True})
        return self.episode

    def is_over(self) -> bool:
        """Returns True if the channel has begun another episode than this."""
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
        """Reports a reward, an end or a text of the present episode."""
        told: dict[str, Any] = {}
        if reward:
            told["reward"] = float(reward)
        if terminated:
            told["terminated"] = True
        if truncated:
            told["truncated"] = True
        if text is not None:
            told["text"] = text
        if self.episode is None:
            self._learn()
            self.episode = self._newest
        self._write(told)

    def close(self) -> None:
        """Closes the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _write(self, told: dict[str, Any]) -> None:
        if self._link is None:
            return
        line = json.dumps({"episode": self.episode, **told}).encode() + b"\n"
        try:
            self._link.sendall(line)
        except OSError:  # The desktop has been closed; the program may go on.
            self.close()

    def _learn(self) -> None:
        """Waits until an episode is known, because the channel tells it first."""
        deadline = time.monotonic() + _PATIENCE
        while self._link is not None and self._newest is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"A RewardChannel must tell its episode within {_PATIENCE:g} s, "
                    "and has not. Is its Desktop at a reset or step?"
                )
            self._read(left)

    def _read(self, timeout: float = 0.0) -> None:
        """Learns the newest episode that the channel has told."""
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
    poller = select.poll()  # Not select(), which takes no number above 1023.
    poller.register(link, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


def _parsed(line: bytes) -> dict[str, Any]:
    """Reads a line, or raises the reason why it is none of the protocol's."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        shown = line[:80].decode("utf-8", "replace")
        raise ValueError(f"A line must be an object of JSON, got {shown!r}.")
    unknown = sorted(set(told) - set(_KNOWN))
    if unknown:
        raise ValueError(
            f"A line must have keys of {', '.join(_KNOWN)}; got {unknown[0]!r}."
        )
    try:
        told["episode"] = _episode(told["episode"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "A line must have the id of its episode, a whole number, as 'episode'; got "
            f"{describe(told.get('episode'))}."
        ) from None
    reward = told.get("reward", 0.0)
    is_number = isinstance(reward, int | float) and not isinstance(reward, bool)
    # Not a number is in no range, and integers may be larger than any float.
    if not is_number or not -_LARGEST_REWARD <= reward <= _LARGEST_REWARD:
        raise ValueError(
            f"'reward' must be a number from {-_LARGEST_REWARD:g} to "
            f"{_LARGEST_REWARD:g}, got {describe(reward)}."
        )
    for name in ("ready", "terminated", "truncated"):
        if not isinstance(told.get(name, False), bool):
            raise ValueError(f"{name!r} must be true or false, got {told[name]!r}.")
    if not isinstance(told.get("text", ""), str):
        raise ValueError(f"'text' must be a string, got {describe(told['text'])}.")
    return told


def _episode(given: Any) -> int:
    """Returns the id of an episode, which shells write as a text."""
    if isinstance(given, bool) or (isinstance(given, float) and given % 1):
        raise ValueError
    return int(given)


def _tcp(address: Any) -> tuple[str, int]:
    """Returns the host and port of "tcp://host:port"."""
    host, _, port = str(address).removeprefix("tcp://").rpartition(":")
    if not str(address).startswith("tcp://") or not host or not port.isdecimal():
        raise ValueError(
            "address must be tcp://HOST:PORT, such as 'tcp://127.0.0.1:0', got "
            f"{describe(address)}."
        )
    return host.strip("[]"), int(port)
