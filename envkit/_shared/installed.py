"""Finds out which packages are installed."""

from __future__ import annotations

import sys

__all__ = ["is_installed"]


def is_installed(package: str) -> bool:
    """Returns True if another library's package is installed; does not import it.

    Example:
        >>> is_installed("numpy"), is_installed("no_such_package")
        (True, False)
    """
    from importlib.util import find_spec

    if sys.modules.get(package) is not None:
        return True
    try:
        found = find_spec(package)
    except ImportError:  # a module finder refuses this one
        return False
    # An empty folder may have the name, or be left over from an uninstallation.
    is_folder = found is not None and found.submodule_search_locations is not None
    return found is not None and not (is_folder and found.origin is None)
