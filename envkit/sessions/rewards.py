"""Rewards that a trainer can use: `check_rewards`."""

from __future__ import annotations

from envkit.sessions.sessions import Sessions
from envkit.specs.arrays import ArraySpec

__all__ = ["check_rewards"]


def check_rewards(sessions: Sessions) -> None:
    """Raises unless rewards are single numbers.

    Example:
        >>> import asyncio
        >>> async def check():
        ...     async with Sessions("Catch", 1) as sessions:
        ...         check_rewards(sessions)
        >>> asyncio.run(check())

    Raises:
        ValueError: They are not; the message says what to do.
    """
    spec = sessions.reward_spec()
    if not isinstance(spec, ArraySpec) or spec.shape:
        raise ValueError(
            f"A trainer takes one number as the reward, and here the reward_spec is "
            f"{spec!r:.200}. If it is a game of several players, let the environment "
            "play all but one of them."
        )
