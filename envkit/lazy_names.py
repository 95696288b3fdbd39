"""`lazy_names`: a package whose names are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns what a package needs as its `__getattr__` and `__dir__`.

    Args:
        package: The package's name.
        homes: For each name the module that has it.
        modules: Modules of the package that are names of it, too.

    Example:
        >>> homes = {"TimeStep": "envkit.time_step"}
        >>> getter, names = lazy_names("envkit.lazy_names", homes)
        >>> "TimeStep" in names()
        True
    """
    scope = vars(sys.modules[package])

    def getter(name: str) -> Any:
        import importlib

        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            scope[name] = value  # Later uses find it without asking again.
            return value
        # With its name and owner, Python suggests the nearest name itself.
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}",
            name=name,
            obj=sys.modules[package],
        )

    def names() -> list[str]:
        return sorted({*scope, *homes, *modules})

    return getter, names
