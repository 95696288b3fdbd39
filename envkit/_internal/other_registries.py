"""Keeps other libraries' registries up to date with envkit's names.

Entry points of the group `envkit.registries` name a library and the function that
enters the names there. It runs as soon as the program has imported both, in either
order, and after each `envkit.register`.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, cast

from envkit._internal.entry_points import loaded, own

__all__ = ["enter_names", "refuses_gymnasiums_arguments", "watch_imports"]

_GROUP = "envkit.registries"
Register = TypeVar("Register", bound=Callable[..., None])

# The arguments of `gymnasium.register` that `envkit.register` lacks.
_THEIRS = {
    "additional_wrappers",
    "disable_env_checker",
    "entry_point",
    "id",
    "kwargs",
    "max_episode_steps",
    "nondeterministic",
    "order_enforce",
    "reward_threshold",
    "vector_entry_point",
}


def refuses_gymnasiums_arguments(register: Register) -> Register:
    """Decorates `register`: it answers calls meant for Gymnasium's with the right one.

    Example:
        >>> @refuses_gymnasiums_arguments
        ... def register(name, target): ...
        >>> register(id="Maze-v0", entry_point="mazes:Maze", max_episode_steps=9)
        Traceback (most recent call last):
        TypeError: register() takes a name and a target: register('Maze-v0', 'mazes:Maze'). For max_episode_steps, the target may be a function that makes the environment, passes arguments and adds wrappers, such as TimeLimit(env, 9).
    """  # noqa: E501  # a message is one line

    @functools.wraps(register)
    def checked(*args: Any, **kwargs: Any) -> None:
        given = [name for name in kwargs if name in _THEIRS]
        if given:
            raise TypeError(_call_instead(args, kwargs, given))
        register(*args, **kwargs)

    return cast(Register, checked)


def _call_instead(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], given: Sequence[str]
) -> str:
    name = args[0] if args else kwargs.get("id", kwargs.get("name", "Maze-v0"))
    point = kwargs.get("entry_point", kwargs.get("target", *args[1:2]) or "mazes:Maze")
    target = getattr(point, "__qualname__", repr(point))
    text = f"register() takes a name and a target: register({name!r}, {target})."
    rest = ", ".join(each for each in given if each not in ("id", "entry_point"))
    if not rest:
        return text
    limit = kwargs.get("max_episode_steps") or 200
    return (
        f"{text} For {rest}, the target may be a function that makes the "
        "environment, passes arguments and adds wrappers, such as "
        f"TimeLimit(env, {limit})."
    )


def enter_names() -> None:
    """Enters envkit's names into the registry of each imported library."""
    for library in own(_GROUP):
        if sys.modules.get(library) is not None:
            _enter_into(library)


def watch_imports() -> None:
    """Enters envkit's names now, and into other libraries when they are imported."""
    enter_names()
    for library in own(_GROUP):
        if library not in sys.modules:
            sys.meta_path.insert(0, _Watcher(library))


def _enter_into(library: str) -> None:
    try:
        loaded(own(_GROUP)[library])()
    except Exception as error:  # importing a library must not fail because of envkit
        warnings.warn(
            f"{library} does not know the names of envkit's environments: "
            f"{type(error).__name__}: {error}",
            stacklevel=2,
        )


class _Watcher:
    """Finds a library as the other finders do, and has names entered after its import.

    It does without the base class of finders, because `importlib.abc` loads twenty
    modules that the core does not need.
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Hot: called for every import of the program.
        if fullname != self._library or self._is_looking:
            return None
        import importlib.util

        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # has its methods
        return spec


class _Loader:
    """Loads a library with its own loader, which takes its place from then on."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # importlib has set it
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _enter_into(module.__name__)
