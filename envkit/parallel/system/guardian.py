"""`Guardian`: ends the helpers of environments that would outlive their pool.

Environments start helpers: games, simulators, browsers. A helper belongs to its
worker's process group, and ending a worker ends its group. Some helpers escape that:
those with their own session, and those whose worker dies shortly before the parent.
They are found in `/proc`, because they inherit the worker's environment variable
`ENVKIT_POOL`.

A pool ends such helpers when a worker ends and when it closes. The guardian, a small
process beside the workers, does so if the parent ends without closing the pool.

Two kinds of helpers with their own session are not found: those that have dropped the
variable, and forks of a worker that run no other program.
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

# Seconds after which we give up on helpers that keep starting others, and in which a
# dismissed guardian ends.
_PATIENCE = 5.0

# A shell starts in a millisecond and takes a megabyte; Python would take twenty of
# each. It reads "-GROUP" for a worker that starts, "+GROUP" for one that has ended (its
# number may soon be another program's), and "done" at the end. If its input ends
# without that word, the parent is gone. If it finds no helper it looks again,
# because a process that has just begun a program shows no variables for a moment.
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


# Starts a program in the background with the same input, and exits. Background programs
# of a shell have no input otherwise.
_DETACH = 'exec 3<&0; sh -c "$1" "$0" <&3 3<&- &'


class Guardian:
    """Ends the helpers of a pool's workers, even if the pool's process dies.

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
        """Draws a random mark; `start` starts the process."""
        # A pool inside a worker extends the mark of the outer pool, which then finds
        # the helpers of both.
        outer = os.environ.get(MARK, "")
        self._mark = f"{outer}{os.getpid()}-{os.urandom(8).hex()}."
        self._input = -1
        self._pid = 0

    @staticmethod
    def is_present() -> bool:
        """Returns True if the guardian of another pool covers this process."""
        return MARK in os.environ

    def variables(self, worker: int | None = None) -> dict[str, str]:
        """Returns the environment variables that mark the pool's processes.

        Args:
            worker: The number by which `end_helpers` finds the helpers; `None` for a
                worker, whose helpers are found by its process number.
        """
        own = "" if worker is None else f"{worker}."
        return {MARK: f"{self._mark}{own}"}

    def start(self, *, detached: bool = False) -> None:
        """Starts the process, once, if `/proc` and a shell exist.

        Args:
            detached: Whether it must not be a child of this process. Ray, for one, ends
                all children of a process with it.
        """
        if self._pid or sys.platform != "linux":
            return
        read, write = open_lifeline()
        # It needs only its input: it prints nothing, and must outlive a closed
        # terminal.
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
        except (
            OSError,
            NotImplementedError,
        ):  # There is no shell, or no room for a process.
            close_lifeline(write)
        finally:
            os.close(read)

    def watch(self, worker: int) -> None:
        """Tells the guardian about a worker's process group."""
        if worker > 0:  # 0 would be the guardian's own group.
            self._tell(f"-{worker}\n")

    def leave(self, worker: int) -> None:
        """Tells the guardian that a worker and its process group have ended."""
        self._tell(f"+{worker}\n")

    def end_helpers(self, workers: Iterable[int]) -> None:
        """Ends the helpers of workers that have just ended, in any session."""
        if sys.platform == "linux":
            _end_marked([f"{self._mark}{worker}." for worker in workers])

    def dismiss(self) -> None:
        """Ends the guardian."""
        self._tell("done\n")
        self.forget()
        give_up = time.monotonic() + _PATIENCE
        # Other code in the program may have waited for this child.
        with contextlib.suppress(ChildProcessError):
            while self._pid and time.monotonic() < give_up:
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    break
                time.sleep(0.001)
        self._pid = 0

    def forget(self) -> None:
        """Closes only the descriptor; called in forks of the parent."""
        close_lifeline(self._input)
        self._input = -1

    def _tell(self, line: str) -> None:
        if self._input >= 0:
            with contextlib.suppress(OSError):  # The guardian was killed.
                os.write(self._input, line.encode())


def _end_marked(marks: list[str]) -> None:
    """Kills the processes whose mark begins with one of these."""
    wanted = [f"\0{MARK}={mark}".encode() for mark in marks]
    give_up = time.monotonic() + _PATIENCE
    # Repeat until none is left: one of them may have started another meanwhile, and a
    # process that has just begun a program shows no variables for a moment.
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
    # A zombie shows no variables.
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = b"\0" + file.read()
    except OSError:  # The process is gone, or belongs to another user.
        return False
    return any(mark in variables for mark in wanted)
