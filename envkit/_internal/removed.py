"""Options that pools no longer take: each raises a sentence with what replaces it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

__all__ = ["refuse_removed_options", "refuses_removed_options", "removed_option"]

Method = TypeVar("Method", bound=Callable[..., Any])

# What does the same now. Remove an entry with the version after the next.
_REPLACEMENTS = {
    "max_episodes_per_env": "make the wrapper in each constructor, "
    "{call}([lambda: RebuildAfter(make_env, episodes=100)] * 8)",
    "standby": "make the wrapper in each constructor, "
    "{call}([lambda: StandbyEnvironment(make_env)] * 8)",
    "standby_workers": "make the wrapper in each constructor, "
    "{call}([lambda: StandbyEnvironment(make_env, in_workers=True)] * 8)",
    'num_workers="auto"': "`envkit bench my_game.envs:make --num-envs 8` prints the "
    "fastest call, with the num_workers to write",
}


def removed_option(option: str, call: str = "ParallelPyEnvironment") -> TypeError:
    """Returns the error for an option that a call no longer takes."""
    instead = _REPLACEMENTS[option].format(call=call)
    return TypeError(f"{option} has been removed: {instead}.")


def refuse_removed_options(
    options: Iterable[str], call: str = "ParallelPyEnvironment"
) -> None:
    """Raises for the first option that a call no longer takes."""
    for option in options:
        if option in _REPLACEMENTS:
            raise removed_option(option, call)


def refuses_removed_options(call: Method) -> Method:
    """Decorates a function that once took more options than its signature has.

    Example:
        >>> @refuses_removed_options
        ... def make_pool(rows): ...
        >>> make_pool(8, max_episodes_per_env=100)
        Traceback (most recent call last):
        TypeError: max_episodes_per_env has been removed: make the wrapper in each constructor, make_pool([lambda: RebuildAfter(make_env, episodes=100)] * 8).
    """  # noqa: E501  # a message is one line

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_removed_options(kwargs, call.__qualname__.removesuffix(".__init__"))
        return call(*args, **kwargs)

    return cast(Method, checked)
