"""The guardian: ends the helpers of environments that would outlive their pool.

Environments start helpers: games, simulators, browsers. A helper belongs to the process
group of its worker, and ending a worker ends its group. Some helpers escape that: those
with a session of their own, and those whose worker dies shortly before the parent. They
are found in `/proc`, because a worker has `ENVKIT_POOL` among its environment variables
and what it starts inherits them.

A pool ends what it finds when a worker ends and when it closes. The guardian, a small
process beside the workers, does so when the parent ends without closing the pool.

Not found is a helper that has a session of its own and no longer that variable, and one
with a session of its own that a worker has forked and that runs no other program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

from envkit.parallel.system.lifeline import MARK, close_lifeline, open_lifeline
from envkit.parallel.system.signals import signal_process

__all__ = ["Guardian"]

# Seconds within which helpers that keep starting others are given up, and within which
# a guardian ends that was told to.
_PATIENCE = 5.0

# A shell is there in a millisecond and takes a megabyte; Python would take twenty of
# both. It reads "-GROUP" for a worker that starts, "+GROUP" for one that has ended
# (its number may soon be another program's), and "done" in the end. The end of its
# input without that word means that the parent is gone. It looks again where it has
# found none: a process that has just begun a program shows no variables for a moment.
_PROGRAM = """
groups=
while read -r word; do
  case $word in
    done) exit ;;
    +*)
      kept=
      for group in $groups; do
        [ "$group" = "-${word#+}" ] || kept="$kept $group"
      done
      groups=$kept ;;
    *) groups="$groups $word" ;;
  esac
done
for group in $groups; do kill -9 "$group"; done
rounds=0
empty=0
while [ $rounds -lt 100 ] && [ $empty -lt 3 ]; do
  rounds=$((rounds + 1))
  found=
  for file in $(grep -lsF "$0" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    found="$found ${pid%/environ}"
  done
  if [ -n "$found" ]; then
    kill -9 $found
    empty=0
  else
    empty=$((empty + 1))
  fi
done
"""


# Lets another process run a program, with the same input, and ends. What runs in the
# background of a shell has no input otherwise.
_DETACH = 'exec 3<&0; sh -c "$1" "$0" <&3 3<&- &'


class Guardian:
    """Ends what the workers of a pool have started, also if the pool's process dies.

    Example:
        >>> import subprocess
        >>> guardian = Guardian()
        >>> guardian.start()
        >>> helper = subprocess.Popen(
        ...     ["sleep", "60"], env=guardian.variables(7), start_new_session=True
        ... )
        >>> guardian.end_helpers([7])
        >>> helper.wait()
        -9
        >>> guardian.dismiss()
    """

    def __init__(self) -> None:
        """Draws a mark; `start` starts the process."""
        # A pool inside a worker continues the mark of the outer one, which then finds
        # the helpers of both.
        outer = os.environ.get(MARK, "")
        self._mark = f"{outer}{os.getpid()}-{os.urandom(8).hex()}."
        self._input = -1
        self._pid = 0

    @staticmethod
    def is_present() -> bool:
        """Returns True if the guardian of another pool ends what is started here."""
        return MARK in os.environ

    def variables(self, worker: int | None = None) -> dict[str, str]:
        """Returns the environment variables that mark what belongs to the pool.

        Args:
            worker: The number by which `end_helpers` finds what is started; `None` for
                a worker, whose helpers are found by the number of its process.
        """
        own = "" if worker is None else f"{worker}."
        return {MARK: f"{self._mark}{own}"}

    def start(self, *, detached: bool = False) -> None:
        """Starts the process once, where there are `/proc` and a shell.

        Args:
            detached: Whether it is to be no child of this process, whose children may
                be ended together with it: Ray does so.
        """
        if self._pid or sys.platform != "linux":
            return
        read, write = open_lifeline()
        # Only its input is of use: it says nothing, and must outlive a closed terminal.
        files = [
            (os.POSIX_SPAWN_DUP2, read, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        mark = f"{MARK}={self._mark}"
        program = ["sh", "-c", _PROGRAM, mark]
        if detached:
            program = ["sh", "-c", _DETACH, mark, _PROGRAM]
        try:
            self._pid = os.posix_spawnp(
                "sh", program, os.environ, file_actions=files, setsid=True
            )
            self._input = write
            if detached:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self._pid, 0)
                self._pid = 0
        except (OSError, NotImplementedError):  # There is no shell, or no room.
            close_lifeline(write)
        finally:
            os.close(read)

    def watch(self, worker: int) -> None:
        """Lets the guardian know of a worker's process group."""
        if worker > 0:  # Zero would be the guardian's own group.
            self._tell(f"-{worker}\n")

    def leave(self, worker: int) -> None:
        """Lets the guardian know that a worker and its process group have ended."""
        self._tell(f"+{worker}\n")

    def end_helpers(self, workers: Iterable[int]) -> None:
        """Ends what workers that have just ended left behind, whatever its session."""
        if sys.platform == "linux":
            _end_marked([f"{self._mark}{worker}." for worker in workers])

    def dismiss(self) -> None:
        """Ends the guardian."""
        self._tell("done\n")
        self.forget()
        give_up = time.monotonic() + _PATIENCE
        # The program may have waited for its children in its own way.
        with contextlib.suppress(ChildProcessError):
            while self._pid and time.monotonic() < give_up:
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    break
                time.sleep(0.001)
        self._pid = 0

    def forget(self) -> None:
        """Closes the descriptor only; what a fork of the parent does."""
        close_lifeline(self._input)
        self._input = -1

    def _tell(self, line: str) -> None:
        if self._input >= 0:
            with contextlib.suppress(OSError):  # Something has killed it.
                os.write(self._input, line.encode())


def _end_marked(marks: list[str]) -> None:
    """Kills the processes whose mark begins like one of these."""
    wanted = [f"\0{MARK}={mark}".encode() for mark in marks]
    give_up = time.monotonic() + _PATIENCE
    # Again, until none is left: one of them may have started another meanwhile, and one
    # that has just begun a program shows no variables for a moment.
    empty = 0
    while time.monotonic() < give_up and empty < 2:
        found = [pid for pid in _processes() if _has_mark(pid, wanted)]
        for pid in found:
            with contextlib.suppress(PermissionError):
                signal_process(pid, signal.SIGKILL)
        empty = 0 if found else empty + 1
        time.sleep(0.001)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # This process has no room for another open file.
        return []


def _has_mark(pid: int, wanted: list[bytes]) -> bool:
    # A process that has ended and was not waited for shows no variables.
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = b"\0" + file.read()
    except OSError:  # It is gone, or belongs to another user.
        return False
    return any(mark in variables for mark in wanted)
