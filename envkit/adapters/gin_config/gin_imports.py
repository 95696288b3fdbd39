"""Imports while envkit's configurables have the names of TF-Agents'."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["around_imports", "imports_of_files"]

Around = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def imports_of_files(modules: Collection[str]) -> Iterator[None]:
    """Lets gin files import modules that need not exist.

    Those names are known already, and TF-Agents may not be installed. Files with
    `from __gin__ import dynamic_registration` use the module itself, so for them it is
    imported.
    """
    from gin import config

    context = config.ParseContext
    imported = context.process_import

    def process_import(self: Any, statement: Any) -> None:
        if statement.module in modules and not self._dynamic_registration:
            self.imports.append(statement)
        else:
            imported(self, statement)

    context.process_import = process_import
    try:
        yield
    finally:
        context.process_import = imported
        # gin repeats the imports when it writes its configuration down.
        for statement in list(config._IMPORTS):
            if statement.module in modules and statement.module not in sys.modules:
                config._IMPORTS.remove(statement)


@contextlib.contextmanager
def around_imports(modules: Mapping[str, Around]) -> Iterator[None]:
    """Does something around the import of modules.

    Args:
        modules: By name: what makes the context in which the module's code is run.
    """
    finder = _Finder(modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        # A test runner may have put the list back as it was.
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds what the others find, and has it loaded in a context."""

    def __init__(self, modules: Mapping[str, Around]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._modules[fullname])
                return spec
        return None


class _Loader(Loader):
    """Loads as another loader does, in a context; the module never hears of it."""

    def __init__(self, loader: Any, around: Around) -> None:
        self._loader = loader
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # importlib has set it
        module.__spec__.loader = module.__loader__ = self._loader
        with self._around():
            self._loader.exec_module(module)
