"""Reads envkit's own entry points from `envkit/entry_points.txt`.

envkit's metadata are generated from that file on installation. The file itself is read,
because metadata are missing or old if envkit is imported from a checkout, an archive or
another package's folder.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from envkit._internal.namesake import refuse_foreign_package

__all__ = ["advice", "converter", "loaded", "own"]

_FILE = "entry_points.txt"


def advice(about: str) -> Any:
    """Returns what helps users of other libraries with a kind of mistake."""
    return loaded(own("envkit.advice")[about])


def converter(name: str) -> str:
    """Returns the public name of a function that converts something.

    Example:
        >>> converter("tensor-spec").rpartition(".")[2]
        'to_array_spec'
    """
    return own("envkit.converters")[name].replace(":", ".")


def loaded(value: str) -> Any:
    """Imports a module, or an attribute of it.

    Example:
        >>> loaded("envkit.nest:flatten").__name__
        'flatten'
    """
    module, _, attribute = value.partition(":")
    names = attribute.split(".") if attribute else []
    return functools.reduce(getattr, names, importlib.import_module(module))


def own(group: str) -> Mapping[str, str]:
    """Returns envkit's own entry points of a group, in the order of its file.

    Example:
        >>> list(own("envkit.backends"))
        ['ray', 'tcp', 'tls']
    """
    return _own().get(group, {})


@functools.cache
def _own() -> dict[str, dict[str, str]]:
    refuse_foreign_package()
    package = sys.modules["envkit"]
    loader: Any = package.__spec__.loader  # type: ignore[union-attr]  # it was imported
    # Through its loader, because envkit may be in an archive.
    path = os.path.join(os.path.dirname(str(package.__file__)), _FILE)
    groups: dict[str, dict[str, str]] = {}
    for line in loader.get_data(path).decode("utf-8").splitlines():
        if line.startswith("["):
            group = groups.setdefault(line.strip("[] "), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            group[name.strip()] = value.strip()
    return groups
