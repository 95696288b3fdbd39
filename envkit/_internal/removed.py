"""Refuses removed options of pools, and names their replacements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar, cast

from envkit._internal.missing_names import refuse_unknown_arguments

__all__ = [
    "refuse_auto_workers",
    "refuse_removed_options",
    "refuses_removed_options",
]

Method = TypeVar("Method", bound=Callable[..., Any])

# The wrapper that replaces each. Remove an entry with the version after the next.
_WRAPPERS = {
    "max_episodes_per_env": "RebuildAfter({make_env}, episodes=100)",
    "standby": "StandbyEnvironment({make_env})",
    "standby_workers": "StandbyEnvironment({make_env}, in_workers=True)",
}


def refuse_auto_workers() -> NoReturn:
    """Refuses to choose the number of workers automatically."""
    raise TypeError(
        'num_workers="auto" has been removed: `envkit bench my_game.envs:make '
        "--num-envs 8` prints the fastest call, with the num_workers to write."
    )


def refuse_removed_options(
    options: Iterable[str],
    call: str = "ParallelPyEnvironment([{maker}] * 8)",
    make_env: str = "make_env",
) -> None:
    """Raises for the first removed option.

    Args:
        options: The names of the options that were given.
        call: The replacement, with `{maker}` for the constructor.
        make_env: The expression that makes a `PyEnvironment` there.
    """
    for option in options:
        if option in _WRAPPERS:
            maker = "lambda: " + _WRAPPERS[option].format(make_env=make_env)
            raise TypeError(
                f"{option} has been removed: make the wrapper in each constructor, "
                f"{call.format(maker=maker)}."
            )


def refuses_removed_options(call: Method, *, make_env: str = "make_env") -> Method:
    """Decorates a function that once had more options.

    Args:
        call: The function, which takes a list of constructors first.
        make_env: The expression that makes a `PyEnvironment` in such a constructor.

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
        refuse_unknown_arguments(call, args, kwargs)
        return call(*args, **kwargs)

    return cast(Method, checked)
