"""Closes objects."""

from __future__ import annotations

from typing import Any, TypeVar

from envkit.extend import Internals

__all__ = ["Closable", "closes_at_once"]

Self = TypeVar("Self", bound="Closable")


def closes_at_once(env: Any) -> bool:
    """Returns True if `close()` in one thread ends calls in other threads.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.realtime import RealTimeEnvironment
        >>> closes_at_once(RealTimeEnvironment(Catch, hz=10.0, host="virtual"))
        True
        >>> closes_at_once(Catch())
        False
    """
    # Look at the class: wrappers and mocks answer to any attribute name.
    is_own = isinstance(getattr(type(env), "_envkit", None), Internals)
    return is_own and bool(env._envkit.closes_at_once)


class Closable:
    """Closes the object at the end of a `with` statement.

    Example:
        >>> class Door(Closable):
        ...     def close(self):
        ...         print("closed")
        >>> with Door():
        ...     print("open")
        open
        closed
    """

    def close(self) -> None:
        """Frees the object's resources; calling it again does nothing."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        """Returns the object."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes the object."""
        self.close()
