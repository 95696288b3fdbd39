"""How tests wait for what happens in other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Seconds in which what is waited for happens also on a machine that is busy or slow.
# Usually it takes a moment: only a test that fails takes so long.
PATIENCE = 120.0


def until(is_so: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Waits until a call returns something true, and returns what it returned last."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not (result := is_so()) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return result


def is_running(pid: int) -> bool:
    """Returns true if a process is there and not a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
