"""Sends signals to a process or its group, and to nothing else.

To the system, 0 means the caller's group, and a negative number another group or all
processes. To envkit, 0 means a worker that has no process now.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["signal_group", "signal_process"]


def signal_process(pid: int, number: int) -> bool:
    """Sends a signal to a process; returns False if there is none.

    Example:
        >>> signal_process(os.getpid(), 0), signal_process(0, 0), signal_process(-1, 0)
        (True, False, False)
    """
    if pid > 0:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
    return False


def signal_group(pid: int, number: int) -> bool:
    """Sends a signal to the group that a process leads; returns False if there is none.

    Example:
        >>> signal_group(os.getpgrp(), 0), signal_group(0, 0), signal_group(-1, 0)
        (True, False, False)
    """
    if pid > 0:
        # macOS counts the zombie of a group's leader as a member, and refuses.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
            return True
    return False
