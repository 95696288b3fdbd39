"""Watching a run: a line in the terminal, logs of episodes, and learning curves.

A name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.monitoring.curves import plot as plot
    from envkit.monitoring.progress_bar import Progress as Progress
    from envkit.monitoring.progress_bar import progress as progress
    from envkit.monitoring.watching import Source as Source

# No module has the name of a function here: importing `monitoring.plot`, say, would
# hide a function `plot`.
_HOMES = {
    "Progress": "envkit.monitoring.progress_bar",
    "Source": "envkit.monitoring.watching",
    "plot": "envkit.monitoring.curves",
    "progress": "envkit.monitoring.progress_bar",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
