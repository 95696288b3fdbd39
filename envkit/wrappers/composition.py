"""`wrap`: several wrappers around an environment in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envkit.specs.validation import describe
from envkit.wrappers.base import no_environment

__all__ = ["wrap"]


def wrap(env: Any, *wrappers: Callable[..., Any] | Sequence[Any]) -> Any:
    """Wraps an environment in one wrapper after the other, the first innermost.

    Args:
        env: The environment.
        wrappers: Each is a wrapper, or a list of a wrapper and its further arguments.
            For arguments by name, use `functools.partial`.

    Example:
        >>> from envkit.envs import CartPole
        >>> from envkit.wrappers import FrameStack, TimeLimit, wrap
        >>> wrap(CartPole(), [TimeLimit, 500], [FrameStack, 4])
        FrameStack(TimeLimit(CartPole(), duration=500), stack_size=4)
    """
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        raise TypeError(
            f"wrap() wraps an environment, not {no_environment(env)} The environment "
            "comes first: wrap(env, [TimeLimit, 500])."
        )
    for place, given in enumerate(wrappers, 1):
        parts = given if isinstance(given, list | tuple) else [given]
        wrapper, *arguments = parts or [None]
        if not callable(wrapper):
            raise TypeError(
                f"Wrapper {place} of wrap() is {given!r:.80}. Each is a wrapper, or a "
                "list of a wrapper and its arguments, such as [TimeLimit, 500]."
            )
        wrapped = wrapper(env, *arguments)
        if not hasattr(wrapped, "time_step_spec"):
            raise TypeError(
                f"Wrapper {place} of wrap() returned {describe(wrapped)}, which is no "
                "environment."
            )
        env = wrapped
    return env
