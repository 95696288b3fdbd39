"""Pools on a cluster: `RayBackend` has Ray place, start and watch their workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from envkit.distributed.ray import RayBackend

_HOMES = {"RayBackend": "envkit.distributed.ray"}

__all__ = ["RayBackend"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
