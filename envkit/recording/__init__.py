"""Episodes on disk: `Record` writes them, `Replay` plays them as an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.recording.record import Record
    from envkit.recording.replay import Replay
    from envkit.recording.replaying import rebuilt
    from envkit.recording.stored import Recording

_HOMES = {
    "Record": "envkit.recording.record",
    "Recording": "envkit.recording.stored",
    "Replay": "envkit.recording.replay",
    "rebuilt": "envkit.recording.replaying",
}

__all__ = ["Record", "Recording", "Replay", "rebuilt"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
