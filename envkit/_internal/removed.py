"""Options that pools no longer take: each raises a sentence with what replaces it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

__all__ = ["refuse_removed_options", "refuses_removed_options", "removed_option"]

P = ParamSpec("P")
T = TypeVar("T")

# What does the same now. Remove an entry with the version after the next.
_REPLACEMENTS = {
    "max_episodes_per_env": "make the wrapper in each constructor, "
    "ParallelPyEnvironment([lambda: RebuildAfter(make_env, episodes=100)] * 8)",
    'num_workers="auto"': "`envkit bench my_game.envs:make --num-envs 8` prints the "
    "fastest call, with the num_workers to write",
}


def removed_option(option: str) -> TypeError:
    """Returns the error for an option that pools no longer take."""
    return TypeError(f"{option} has been removed: {_REPLACEMENTS[option]}.")


def refuse_removed_options(options: Iterable[str]) -> None:
    """Raises for the first option that pools no longer take."""
    for option in options:
        if option in _REPLACEMENTS:
            raise removed_option(option)


def refuses_removed_options(call: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function that once took more options than its signature has.

    Example:
        >>> @refuses_removed_options
        ... def make_pool(rows): ...
        >>> make_pool(8, max_episodes_per_env=100)
        Traceback (most recent call last):
        TypeError: max_episodes_per_env has been removed: make the wrapper in each constructor, ParallelPyEnvironment([lambda: RebuildAfter(make_env, episodes=100)] * 8).
    """  # noqa: E501  # a message is one line

    @functools.wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        refuse_removed_options(kwargs)
        return call(*args, **kwargs)

    return checked
