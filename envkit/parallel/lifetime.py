"""How pools end that nobody closes, and those whose process is forked."""

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

# When Python ends, because a person waits.
_SHORT_GRACE = 1.0

_pools: weakref.WeakSet[Any] = weakref.WeakSet()
_hooked: list[bool] = []


def disown_in_forks(pool: Any) -> None:
    """Lets a fork of this process keep its hands off the pool.

    The memory is shared with the workers, and they may be looking at it: what a fork
    wrote there would be an order to them, or a part of another one.
    """
    if not _hooked and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_disown_all)
        _hooked.append(True)
    _pools.add(pool)


def _disown_all() -> None:
    for pool in list(_pools):
        pool._is_inherited = pool._closed = True
        pool._call_lock = CallLock()  # Another thread, which is not here, may hold it.
        pool._finalizer.detach()


def close_forgotten(name: str, pool: Pool) -> None:
    """Ends a pool that was not closed."""
    kind = a_or_an(name)
    warnings.warn(
        f"{kind[0].upper()}{kind[1:]} was not closed. Use it in a with statement, or "
        "call close().",
        ResourceWarning,
        stacklevel=2,
    )
    pool.close(_SHORT_GRACE)
