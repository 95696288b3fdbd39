"""Environments that render, whether that has to be said when they are made or not."""

from __future__ import annotations

from typing import Any

from envkit.constructors import make

__all__ = ["make_rendering", "rendering_arguments"]

_MODE = "rgb_array"
_NO_MODE = object()


def make_rendering(target: Any, arguments: dict[str, Any]) -> Any:
    """Makes an environment that renders pictures, if it can.

    Those of Gymnasium and its relatives are told when they are made.
    """
    env = make(target, **arguments)
    if "render_mode" in arguments or not _wants_mode(env):
        return env
    try:
        rendering = make(target, **arguments, render_mode=_MODE)
    except Exception:  # Whatever makes it does not take that, or cannot draw.
        return env
    env.close()
    return rendering


def rendering_arguments(target: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns what an environment has to be made with to render."""
    if "render_mode" in arguments:
        return arguments
    with make(target, **arguments) as env:
        wants_mode = _wants_mode(env)
    return {**arguments, "render_mode": _MODE} if wants_mode else arguments


def _wants_mode(env: Any) -> bool:
    """Says whether it was made without a mode and knows the one for pictures."""
    if getattr(env, "render_mode", _NO_MODE) is not None:
        return False
    metadata = getattr(env, "metadata", None)
    modes = metadata.get("render_modes", ()) if isinstance(metadata, dict) else ()
    return _MODE in modes
