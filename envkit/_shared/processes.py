"""How processes are ended, and how they have ended."""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["exit_text", "signal_group"]


def signal_group(pid: int, number: int) -> None:
    """Sends a signal to the group of a process that leads one, if there is one."""
    # macOS counts the zombie of a group's leader, and refuses.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def exit_text(code: int) -> str:
    """Returns how a process has ended that has an exit code.

    Example:
        >>> exit_text(3), exit_text(-9), exit_text(-40)
        ('exited with code 3', 'was killed by SIGKILL', 'was killed by signal 40')
    """
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # A real-time signal has no name.
        return f"was killed by signal {-code}"
