"""Workers elsewhere: `linked` starts them by commands, `RayBackend` on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.distributed.links import Launcher, LinkedBackend, linked
    from envkit.distributed.ray import RayBackend

_HOMES = {
    "Launcher": "envkit.distributed.links",
    "LinkedBackend": "envkit.distributed.links",
    "RayBackend": "envkit.distributed.ray",
    "linked": "envkit.distributed.links",
}

__all__ = ["Launcher", "LinkedBackend", "RayBackend", "linked"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
