"""Runs tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["in_loop", "until_so"]

# Only a test that fails takes so long.
_PATIENCE = 120.0


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            await asyncio.wait_for(test(*args, **kwargs), _PATIENCE)

        asyncio.run(limited())

    return run


async def until_so(is_so: Callable[[], bool]) -> None:
    """Waits until a call returns True, and lets other coroutines run meanwhile."""
    while not is_so():
        await asyncio.sleep(0.005)
