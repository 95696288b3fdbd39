"""Ends forgotten pools, and disables pools in forks of their process."""

from __future__ import annotations

import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from envkit._internal.text import a_or_an
from envkit._internal.threads import CallLock

if TYPE_CHECKING:
    from envkit.parallel.pool import Pool

__all__ = ["close_forgotten", "disown_in_forks"]

# Used when Python exits, because someone is waiting.
_SHORT_GRACE = 1.0

_pools: weakref.WeakSet[Any] = weakref.WeakSet()
_hooked: list[bool] = []


def disown_in_forks(pool: Any) -> None:
    """Makes the pool unusable in forks of this process.

    A fork shares memory with the workers, and they would mistake anything that it wrote
    there for a request.
    """
    if not _hooked and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_disown_all)
        _hooked.append(True)
    _pools.add(pool)


def _disown_all() -> None:
    for pool in list(_pools):
        pool._is_inherited = pool._closed = True
        pool._call_lock = CallLock()  # a thread absent here may hold it
        pool._finalizer.detach()


def close_forgotten(name: str, pool: Pool) -> None:
    """Closes a pool that the program did not close."""
    kind = a_or_an(name)
    warnings.warn(
        f"{kind[0].upper()}{kind[1:]} was not closed. Use it in a with statement, or "
        "call close().",
        ResourceWarning,
        stacklevel=2,
    )
    pool.close(_SHORT_GRACE)
