"""`ChildInterpreter`: a Python process that ends with this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from envkit.parallel.system.cpus import ONE_THREAD
from envkit.parallel.system.lifeline import (
    close_lifeline,
    open_lifeline,
    without_forks,
)
from envkit.parallel.system.shared_memory import anonymous_file
from envkit.parallel.system.signals import signal_group

__all__ = ["ChildInterpreter", "start_interpreter", "text_file"]


class ChildInterpreter:
    """Runs a program in a Python process that ends when this process ends.

    The program finds descriptors in `sys.argv[1:]`: a file with the text, the given
    ones, and its lifeline, which `WorkerHost` takes.

    Attributes:
        pid: The process, which leads its own group.

    Example:
        >>> program = "import sys; sys.exit(int(open(int(sys.argv[1])).read()))"
        >>> child = ChildInterpreter(program, "3")
        >>> while child.poll() is None:
        ...     pass
        >>> child.end()
        3
    """

    def __init__(
        self,
        program: str,
        text: str,
        *,
        fds: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        """Starts the process.

        Args:
            program: Its source, as after `python -c`.
            text: A text for the program, in ASCII. It is passed in a file, because
                other users of a machine can read the arguments of a command.
            fds: Descriptors that it inherits.
            variables: Environment variables in addition to this process's.
            stderr: Its standard error; `None` for this process's.

        Raises:
            OSError: It cannot be started.
        """
        life_read, self._lifeline = open_lifeline()
        try:
            with text_file(text) as file:
                given = (file, *fds, life_read)
                self._process = start_interpreter(
                    [program, *map(str, given)],
                    env={**ONE_THREAD, **os.environ, **(variables or {})},
                    fds=given,
                    stderr=stderr,
                )
        except BaseException:
            close_lifeline(self._lifeline)
            raise
        finally:
            os.close(life_read)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Returns its exit status, negative for a signal; `None` while it runs."""
        return self._process.poll()

    def end(self) -> int:
        """Ends it and its group, if still running; returns its exit status."""
        # The kernel kills the process and its group, unless it has ended already.
        close_lifeline(self._lifeline)
        status = self._process.wait()
        signal_group(self.pid, signal.SIGKILL)
        return status


@contextlib.contextmanager
def text_file(text: str) -> Iterator[int]:
    """Puts a text into an anonymous file, because arguments are limited to 128 KiB."""
    fd = anonymous_file()
    try:
        with open(fd, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def start_interpreter(
    arguments: list[str],
    *,
    env: Mapping[str, str],
    fds: tuple[int, ...],
    stderr: int | None,
) -> subprocess.Popen[bytes]:
    """Starts Python with a program and its arguments, in a new session."""
    with without_forks():
        return subprocess.Popen(
            [sys.executable, *_interpreter_flags(), "-c", *arguments],
            env=dict(env),
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )


def _interpreter_flags() -> list[str]:
    """Returns the flags of this interpreter that workers need too."""
    flags = sys.flags
    found = [f"-{'O' * flags.optimize}"] if flags.optimize else []
    if flags.isolated:
        found.append("-I")
    else:
        found += ["-E"] if flags.ignore_environment else []
        found += ["-s"] if flags.no_user_site else []
    if flags.dev_mode:
        found += ["-X", "dev"]
    return found + [f"-W{option}" for option in sys.warnoptions]
