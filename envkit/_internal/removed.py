"""Options that pools no longer take: each raises a sentence with what replaces it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar, cast

__all__ = [
    "refuse_auto_workers",
    "refuse_removed_options",
    "refuses_removed_options",
]

Method = TypeVar("Method", bound=Callable[..., Any])

# The wrapper that does the same now. Remove an entry with the version after the next.
_WRAPPERS = {
    "max_episodes_per_env": "RebuildAfter({make_env}, episodes=100)",
    "standby": "StandbyEnvironment({make_env})",
    "standby_workers": "StandbyEnvironment({make_env}, in_workers=True)",
}


def refuse_auto_workers() -> NoReturn:
    """Refuses to find out how many workers are best."""
    raise TypeError(
        'num_workers="auto" has been removed: `envkit bench my_game.envs:make '
        "--num-envs 8` prints the fastest call, with the num_workers to write."
    )


def refuse_removed_options(
    options: Iterable[str],
    call: str = "ParallelPyEnvironment([{maker}] * 8)",
    make_env: str = "make_env",
) -> None:
    """Raises for the first option that a call no longer takes.

    Args:
        options: The names of the options that were given.
        call: What to write instead, with `{maker}` for the constructor.
        make_env: What makes a `PyEnvironment` there.
    """
    for option in options:
        if option in _WRAPPERS:
            maker = "lambda: " + _WRAPPERS[option].format(make_env=make_env)
            raise TypeError(
                f"{option} has been removed: make the wrapper in each constructor, "
                f"{call.format(maker=maker)}."
            )


def refuses_removed_options(call: Method, *, make_env: str = "make_env") -> Method:
    """Decorates a function that once took more options than its signature has.

    Args:
        call: The function, which takes a list of constructors first.
        make_env: What makes a `PyEnvironment` in such a constructor.

    Example:
        >>> @refuses_removed_options
        ... def make_pool(rows): ...
        >>> make_pool(8, max_episodes_per_env=100)
        Traceback (most recent call last):
        TypeError: max_episodes_per_env has been removed: make the wrapper in each constructor, make_pool([lambda: RebuildAfter(make_env, episodes=100)] * 8).
    """  # noqa: E501  # a message is one line
    instead = call.__qualname__.removesuffix(".__init__") + "([{maker}] * 8)"

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_removed_options(kwargs, instead, make_env)
        return call(*args, **kwargs)

    return cast(Method, checked)
