"""Asks the environments of a pool: calls, attributes, seeds, options, pictures."""

from __future__ import annotations

from typing import Any

from envkit.specs.validation import describe

__all__ = ["check_name"]


def check_name(name: Any) -> None:
    """Refuses values that are not names, and names that are private."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {describe(name)}.")
    if name.startswith("_"):
        raise AttributeError(
            f"{name!r} is private to the environment; only public names are forwarded."
        )
