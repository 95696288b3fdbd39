"""Watching a run: a line in the terminal, logs of episodes, and learning curves.

A name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.monitoring.curves import plot as plot

# No module has the name of a function here: importing `monitoring.plot`, say, would
# hide a function `plot`.
_HOMES = {"plot": "envkit.monitoring.curves"}

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
