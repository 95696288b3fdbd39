"""Checks that a saved state fits an environment."""

from __future__ import annotations

from typing import Any

from envkit.extend import describe

__all__ = ["check_state_of"]


def check_state_of(
    env: Any, state: Any, description: str, *, kind: str = "environment"
) -> None:
    """Raises for a state whose `of` describes other arguments."""
    of = state.get("of") if isinstance(state, dict) else None
    if not isinstance(of, str) or of != description:
        raise ValueError(
            f"{type(env).__name__}.set_state() was given the state of another {kind}."
            f"\n\n  expected   {description}\n"
            f"  got        {of if isinstance(of, str) else describe(state)}\n\n"
            f"A state fits {kind}s that were made with the same arguments."
        )
