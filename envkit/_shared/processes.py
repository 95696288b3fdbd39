"""Ends processes, and describes how they ended."""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["exit_text", "signal_group"]


def signal_group(pid: int, number: int) -> None:
    """Signals the group of a process that leads one, if it exists."""
    # macOS counts a zombie group leader, and refuses.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def exit_text(code: int) -> str:
    """Describes how a process with an exit code ended.

    Example:
        >>> exit_text(3), exit_text(-9), exit_text(-40)
        ('exited with code 3', 'was killed by SIGKILL', 'was killed by signal 40')
    """
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no name
        return f"was killed by signal {-code}"
