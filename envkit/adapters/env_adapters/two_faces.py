"""Methods with two faces: the author's to envkit, the environment's to all others.

An author writes `step(self, action)`, which asks a library; whoever uses the adapter
calls `step(action)` and wants a time step. Both are the same method of the same class.
It is the author's while envkit, or the author's own code, is inside, so `self.reset()`
within `step`, and `super().reset()`, are what they look like; and the environment's
for everybody outside.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["SPECS", "VERBS", "adopt"]

VERBS = (
    "start",
    "step",
    "reset",
    "close",
    "seed",
    "render",
    "get_state",
    "set_state",
    "observation_spec",
    "action_spec",
)
# Where a class may say a value in place of a method.
SPECS = ("observation_spec", "action_spec", "reward_spec", "discount_spec")


def adopt(cls: type, base: type) -> dict[str, Callable[..., Any]]:
    """Gives a class's methods their second face, and returns the author's by name.

    Args:
        cls: A class that somebody derives from `base`.
        base: The class that has the environment's methods.
    """
    for name in SPECS:
        declared = vars(cls).get(name)
        if hasattr(declared, "__get__") and not inspect.isfunction(declared):
            setattr(cls, name, _asking(declared))
        elif declared is not None and not callable(declared):
            setattr(cls, name, _returning(declared))
    return {
        name: author
        for name in VERBS
        if (author := _adopted(cls, base, name)) is not None
    }


def _adopted(cls: type, base: type, name: str) -> Callable[..., Any] | None:
    for owner in cls.__mro__[: cls.__mro__.index(base)]:
        method = vars(owner).get(name)
        if method is None:
            continue
        author: Callable[..., Any] | None = getattr(method, "_written", None)
        if author is None:  # It comes from the class itself, or from a mixin.
            author = method
            setattr(cls, name, _two_faced(method, getattr(base, name)))
        return author
    return None


def _asking(descriptor: Any) -> Callable[[Any], Any]:
    """Makes a method of a property, or of a method of the class."""

    def method(self: Any) -> Any:
        value = descriptor.__get__(self, type(self))
        return value() if callable(value) else value

    return method


def _returning(value: Any) -> Callable[[Any], Any]:
    return lambda self: value


def _two_faced(
    author: Callable[..., Any], environment: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(author)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Hot: called once per step.
        face = author if self._author.inside else environment
        return face(self, *args, **kwargs)

    method._written = author  # type: ignore[attr-defined]
    return method
