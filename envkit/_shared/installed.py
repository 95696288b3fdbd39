"""Which packages of other libraries are there."""

from __future__ import annotations

import sys

__all__ = ["is_installed"]


def is_installed(package: str) -> bool:
    """Returns true if a package of another library is there; does not import it.

    Example:
        >>> is_installed("numpy"), is_installed("no_such_package")
        (True, False)
    """
    from importlib.util import find_spec

    if sys.modules.get(package) is not None:
        return True
    try:
        found = find_spec(package)
    except ImportError:  # A finder of modules refuses this one.
        return False
    # A folder without a module has the name, or was left by an uninstallation.
    is_folder = found is not None and found.submodule_search_locations is not None
    return found is not None and not (is_folder and found.origin is None)
