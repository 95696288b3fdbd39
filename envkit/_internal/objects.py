"""Accepts environments of other libraries wherever envkit takes an environment.

The entry points of the group `envkit.objects` map a library's base class, such as
`gymnasium.core.Env`, to the wrapper for its objects. Classes are compared by name, so a
library that nobody has imported is not imported here either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envkit._internal.plugins import OBJECTS, SCHEMES, Plugin
from envkit._internal.text import how_to_adapt
from envkit.specs.validation import describe

__all__ = [
    "as_environment",
    "is_environment",
    "is_of_library",
    "no_environment",
    "shown_recipe",
]


def as_environment(thing: Any, subject: str | None = None, **arguments: Any) -> Any:
    """Returns an object as an environment of envkit.

    An environment of a library that envkit knows is wrapped; closing the wrapper closes
    it.

    Args:
        thing: The object.
        subject: The beginning of the message if the object is no environment, such as
            `"to_sb3() was given"`. `None` returns such an object unchanged.
        **arguments: Arguments for the wrapper.

    Raises:
        TypeError: The object is no environment.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> as_environment(CountingEnv(), "play() was given").reset().observation
        array(0, dtype=int32)
        >>> as_environment(3, "play() was given")
        Traceback (most recent call last):
        TypeError: play() was given 3 of type int, not an environment.
    """
    if hasattr(type(thing), "_envkit"):
        return thing
    wrapper = _wrapper_of(thing)
    if wrapper is not None:
        return wrapper.load()(thing, **arguments)
    if subject is not None and not is_environment(thing):
        what = _what(thing)
        raise TypeError(f"{subject} {what}, not an environment.{_advice(thing)}")
    return thing


def is_environment(thing: Any) -> bool:
    """Returns True if an object has the methods of an environment."""
    return not isinstance(thing, type) and hasattr(thing, "time_step_spec")


def is_of_library(thing: Any) -> bool:
    """Returns True if an object is an environment of another library."""
    return not hasattr(type(thing), "_envkit") and _wrapper_of(thing) is not None


def no_environment(thing: Any) -> str:
    """Describes an object that should be an environment, up to the full stop."""
    return f"{_what(thing)}.{_advice(thing)}"


def _what(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else describe(thing)


def _advice(thing: Any) -> str:
    """Returns what to do about an object that is no environment, or ""."""
    if isinstance(thing, type):
        return f" Did you mean {thing.__name__}()?"
    if isinstance(thing, str):
        return f" Did you mean make({thing!r:.80})?"
    advice = how_to_adapt(thing)
    if advice:
        return f" {advice}"
    return " Did you mean to call it?" if callable(thing) else ""


def shown_recipe(thing: Any) -> tuple[str, str]:
    """Returns a class and a target that make such an environment, for messages.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> shown_recipe(CountingEnv())
        ('CountingEnv', 'my_game.envs:make')
    """
    target = "my_game.envs:make"
    wrapper = None if hasattr(type(thing), "_envkit") else _wrapper_of(thing)
    if wrapper is None:
        return type(thing).__name__, target
    inner = getattr(thing, "unwrapped", thing)
    library = wrapper.name.partition(".")[0]
    registered_as = getattr(getattr(thing, "spec", None), "id", None)
    if library in SCHEMES.own() and isinstance(registered_as, str):
        target = f"{library}:{registered_as}"
    return type(inner).__name__, target


def _wrapper_of(thing: Any) -> Plugin | None:
    """Returns the wrapper for a library's object; `None` for any other object."""
    if isinstance(thing, type):
        return None
    names = list(_names_of(type(thing)))
    others = not is_environment(thing) and not all(map(_is_ordinary, names))
    found = OBJECTS.first(names, others=others)
    inner = None if found is None else getattr(thing, "unwrapped", None)
    if found is None or inner is None or isinstance(inner, type):
        return found
    # A wrapper of the library may hide a kind with a wrapper of its own.
    names = list(_names_of(type(inner)))
    return OBJECTS.first(names) if found.name in names else found


def _is_ordinary(name: str) -> bool:
    # Those of other packages need not be searched for these: that takes a while.
    return name.startswith(("builtins.", "functools.", "envkit."))


def _names_of(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        yield f"{base.__module__}.{base.__qualname__}"
