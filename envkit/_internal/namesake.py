"""Detects whether another distribution shares the folder of this package.

On the package index, `envkit` is another project. Installed together, it and envkit-rl
share a folder: pip overwrites `__init__.py` when it installs the second one, and
deletes it when it uninstalls either.
"""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["refuse_foreign_package", "warn_of_namesake"]

_REMEDY = (
    "run pip uninstall envkit envkit-rl, and install envkit-rl in an environment that "
    "has no envkit."
)


def warn_of_namesake(file: str) -> None:
    """Warns if the distribution `envkit` is installed beside a package's file."""
    package = os.path.dirname(file)
    try:
        beside = os.listdir(os.path.dirname(package))
    except OSError:  # it is in an archive, beside which nothing is installed
        return
    # Where pip puts it. That of envkit-rl begins with "envkit_rl-".
    if any(n.startswith("envkit-") and n.endswith(".dist-info") for n in beside):
        warnings.warn(
            f"The folder {package} belongs to envkit-rl and to another distribution, "
            f"envkit, and each overwrites files of the other: {_REMEDY}",
            stacklevel=3,
        )


def refuse_foreign_package() -> None:
    """Raises unless the package imported as `envkit` is this one.

    Raises:
        ImportError: Its `__init__.py` is another project's, or was uninstalled with it.
    """
    package = sys.modules["envkit"]
    if not hasattr(package, "_HOMES"):
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        raise ImportError(
            f"envkit-rl has lost its __init__.py in {folder}, because another "
            f"distribution, envkit, was installed or uninstalled there: {_REMEDY}"
        )
