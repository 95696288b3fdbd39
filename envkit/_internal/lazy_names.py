"""Loads a package's names when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, MappingProxyType, ModuleType
from typing import Any

from envkit._internal.entry_points import advice
from envkit._internal.namesake import refuse_foreign_package

__all__ = ["lazy_names"]


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    modules: Sequence[str] = (),
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package.

    Args:
        package: The package's name.
        homes: The module of each name.
        modules: Modules of the package that are public names too.
        aliases: Further names of modules, with the modules they stand for; in import
            statements too: `import package.alias` imports the module.

    Example:
        >>> homes = {"TimeStep": "envkit.time_step"}
        >>> getter, names = lazy_names("envkit._internal.lazy_names", homes)
        >>> "TimeStep" in names()
        True
    """
    refuse_foreign_package()
    scope = vars(sys.modules[package])
    if aliases:
        places = {f"{package}.{name}": home for name, home in aliases.items()}
        sys.meta_path.append(_Aliases(places))

    def getter(name: str) -> Any:
        if name in modules or name in aliases:
            return importlib.import_module(aliases.get(name, f"{package}.{name}"))
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            scope[name] = value  # later uses find it directly
            return value
        asks = sys._getframe(1)
        # An import statement first looks whether a module of the name must be loaded.
        if not name.startswith("_") and asks.f_code.co_name != "_handle_fromlist":
            instead = advice("module_names")(package, name)
            if instead:
                raise _no_name(package, name, instead, asks)
        # With its name and owner, Python itself suggests the nearest name.
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}",
            name=name,
            obj=sys.modules[package],
        )

    def names() -> list[str]:
        return sorted({*scope, *homes, *modules, *aliases})

    return getter, names


def _no_name(package: str, name: str, instead: str, asks: FrameType) -> Exception:
    """Returns the error for a name that a package lacks."""
    import opcode

    from envkit._internal.missing_names import no_word

    error = no_word(package, name, instead)
    code, place = asks.f_code.co_code, asks.f_lasti
    # An import statement shows only an `ImportError`.
    if 0 <= place < len(code) and code[place] == opcode.opmap["IMPORT_FROM"]:
        return ImportError(str(error), name=package)
    return error


class _Aliases:
    """Finds modules under further names, as the same module objects.

    It is a finder and a loader without their base classes, because `importlib.abc`
    loads twenty modules that the core does not need.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._homes:
            return None
        return ModuleSpec(fullname, self)  # type: ignore[arg-type]  # it loads, without the base

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._homes[spec.name])
        # The running import is going to replace it.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None  # importlib has set it
        module.__spec__ = module.__spec__.loader_state
