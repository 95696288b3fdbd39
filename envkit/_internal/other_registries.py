"""Keeps other libraries' registries up to date with envkit's names.

Entry points of the group `envkit.registries` name a library and the function that
enters the names there. It runs as soon as the program has imported both, in either
order, and after each `envkit.register`.
"""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from envkit._internal.entry_points import loaded, own

__all__ = ["enter_names", "watch_imports"]

_GROUP = "envkit.registries"


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
