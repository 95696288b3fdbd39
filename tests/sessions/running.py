"""Runs tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["in_loop", "run", "until_so"]

T = TypeVar("T")

# Only a test that fails takes so long.
_PATIENCE = 120.0


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(test)
    def in_a_loop(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    return in_a_loop


def run(coroutine: Awaitable[T]) -> T:
    """Runs a coroutine in a loop of its own, and returns what it returns."""

    async def limited() -> T:
        return await asyncio.wait_for(coroutine, _PATIENCE)

    return asyncio.run(limited())


async def until_so(is_so: Callable[[], bool]) -> None:
    """Waits until a call returns True, and lets other coroutines run meanwhile."""
    while not is_so():
        await asyncio.sleep(0.005)
