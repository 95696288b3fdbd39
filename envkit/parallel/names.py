"""Which names a pool asks its environments for."""

from __future__ import annotations

from typing import Any

from envkit.specs.validation import describe

__all__ = ["check_name"]


def check_name(name: Any) -> None:
    """Refuses what is no name, and names that are private."""
    if not isinstance(name, str):
        raise TypeError(f"name is {describe(name)}; it is a string.")
    if name.startswith("_"):
        raise AttributeError(
            f"{name!r} is private to the environment; only public names are forwarded."
        )
