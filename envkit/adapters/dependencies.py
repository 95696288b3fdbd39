"""Whether the library that an adapter needs is installed."""

from __future__ import annotations

import importlib.util

from envkit.errors import MissingDependencyError

__all__ = ["require"]


def require(package: str, *, needed_by: str, extra: str) -> None:
    """Raises unless a package is installed; does not import it.

    Args:
        package: What would be imported.
        needed_by: Who needs it, as the sentence begins.
        extra: The extra of envkit that installs it.

    Example:
        >>> require("numpy", needed_by="This example", extra="test")

    Raises:
        MissingDependencyError: It is not; the message has the command that helps.
    """
    spec = importlib.util.find_spec(package)
    # Without an origin it is a folder that happens to have the name.
    if spec is None or spec.origin is None:
        raise MissingDependencyError.needed_by(needed_by, package=package, extra=extra)
