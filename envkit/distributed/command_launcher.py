"""`CommandLauncher`: starts linked workers by commands, such as ssh or srun."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Container, Sequence
from typing import Any

from envkit.distributed.link import CUT_OFF
from envkit.parallel.backends.launch import StartedCommand
from envkit.parallel.messages import ExitReport
from envkit.parallel.system.guardian import Guardian

__all__ = ["CommandLauncher"]

_PLACE = "{address}"
# Longest time to forward a command's output in one poll, in seconds.
_POLL_INTERVAL = 0.1


class CommandLauncher:
    """Starts each worker by a command, such as ssh, srun or kubectl.

    Attributes:
        places: How many workers it can start.
    """

    def __init__(self, commands: Sequence[str | Sequence[str]]) -> None:
        """Takes a command for each worker; `{address}` stands for the pool's address.

        Raises:
            TypeError: These are not a list of commands.
            ValueError: A command lacks the place for the address.
        """
        # `None` is a place whose worker someone else starts.
        self._commands: list[list[str] | None] = [*_checked(commands)]
        self.places: int | None = len(self._commands)
        self._guardian = Guardian()
        self._serial = itertools.count(1)
        # Each command, with the number by which its helpers are found.
        self._running: dict[int, tuple[StartedCommand, int]] = {}

    def add(self, commands: Sequence[str | Sequence[str]]) -> None:
        """Adds the commands of further workers."""
        self._commands += _checked(commands)
        self.places = len(self._commands)

    def change(self, worker: int, command: str | Sequence[str]) -> None:
        """Gives a worker a new command for its next start."""
        if not 0 <= worker < len(self._commands):
            raise ValueError(
                f"worker must be from 0 to {len(self._commands) - 1}, as many as there "
                f"are commands, got {worker}."
            )
        (self._commands[worker],) = _checked([command])

    def open_place(self, taken: Container[int]) -> int:
        """Returns a free or new place whose worker someone else starts."""
        for worker in range(len(self._commands)):
            if self.is_open(worker) and worker not in taken:
                return worker
        self._commands.append(None)
        self.places = len(self._commands)
        return self.places - 1

    def is_open(self, worker: int) -> bool:
        """Returns True if a worker has no command, because someone else starts it."""
        return self._commands[worker] is None

    def start(self, worker: int, address: str) -> None:
        """Starts the command of a worker, whose earlier command must have ended."""
        self._guardian.start()
        self._forget_one(worker)
        template = self._commands[worker]
        assert template is not None
        words = [word.replace(_PLACE, address) for word in template]
        if words[0] == "envkit":
            # Run this envkit, wherever its script is installed.
            words[:1] = [sys.executable, "-m", "envkit"]
        serial = next(self._serial)
        try:
            command = StartedCommand(words, self._guardian.variables(serial))
        except OSError as error:
            raise OSError(
                error.errno, f"The command of worker {worker} does not start: {error}"
            ) from error
        self._running[worker] = command, serial
        self._guardian.watch(command.pid)

    def ended(self, worker: int) -> bool:
        """Returns True if the command of a worker has ended; called often."""
        if worker not in self._running:
            return True
        command, _ = self._running[worker]
        return command.has_ended(_POLL_INTERVAL)

    def report(self, worker: int) -> ExitReport:
        """Returns how the command of a worker has ended, if it has."""
        if worker not in self._running:
            return ExitReport(worker, 0)
        command, _ = self._running[worker]
        return command.report(worker, unknown=CUT_OFF)

    def kill(self, worker: int) -> None:
        """Kills the command of a worker, with its helpers on this machine."""
        if worker not in self._running:
            return
        command, serial = self._running[worker]
        command.kill()
        self._guardian.end_helpers([serial])

    def close(self) -> None:
        """Ends all commands."""
        for worker in list(self._running):
            self.kill(worker)
            self._forget_one(worker)
        self._guardian.dismiss()

    def forget(self) -> None:
        """Closes descriptors only; called in forks of the pool's process."""
        for command, _ in self._running.values():
            command.forget()
        self._running.clear()
        self._guardian.forget()

    def _forget_one(self, worker: int) -> None:
        if worker in self._running:
            command, serial = self._running.pop(worker)
            self._guardian.end_helpers([serial])
            self._guardian.leave(command.pid)
            command.forget()


def _checked(commands: Any) -> list[list[str]]:
    """Returns the words of commands."""
    if isinstance(commands, str) or not isinstance(commands, Sequence):
        raise TypeError(
            "commands must be a list with one command for each worker, such as "
            f'["envkit worker {_PLACE}"] * 2, got {type(commands).__name__}.'
        )
    if not commands:
        raise ValueError("commands must hold at least one command, got none.")
    return [_words(each, index) for index, each in enumerate(commands)]


def _words(command: Any, index: int) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else [*command]
    except TypeError:
        words = []
    if not words or not all(isinstance(word, str) for word in words):
        raise TypeError(
            f"commands[{index}] must be a command line or a list of words, got "
            f"{command!r:.80}."
        )
    if not any(_PLACE in word for word in words):
        raise ValueError(
            f"commands[{index}] must contain {_PLACE}, in whose place stands where the "
            f"worker finds its pool, got {command!r:.80}."
        )
    return words
