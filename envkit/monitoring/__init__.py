"""Watching a run: a line in the terminal, logs of episodes, and learning curves.

A name is loaded when it is first used.
"""

from __future__ import annotations

from envkit.extend import lazy_names

# No module has the name of a function here: importing `monitoring.plot`, say, would
# hide a function `plot`.
_HOMES: dict[str, str] = {}

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
