"""How environments are closed."""

from __future__ import annotations

from typing import Any

from envkit.extend import Internals

__all__ = ["closes_at_once"]


def closes_at_once(env: Any) -> bool:
    """Returns True if `close`, in any thread, ends the calls of others.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.realtime import RealTimeEnvironment
        >>> closes_at_once(RealTimeEnvironment(Catch, hz=10.0, host="virtual"))
        True
        >>> closes_at_once(Catch())
        False
    """
    # Asked of the class, because wrappers and mocks answer to any name.
    is_own = isinstance(getattr(type(env), "_envkit", None), Internals)
    return is_own and bool(env._envkit.closes_at_once)
