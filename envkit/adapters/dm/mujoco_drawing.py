"""What MuJoCo draws with, which dm_control chooses when it is imported.

Without a display it is meant to choose EGL, or else OSMesa. But GLFW, which it tries
first, only warns that there is none. dm_control takes that for a success, and the
second picture ends the program.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

__all__ = ["check_can_draw", "import_suite"]

# How the warnings of GLFW begin: with a number.
_GLFW = r"\(\d+\) b"


def import_suite() -> Any:
    """Imports the suite of dm_control, and has it draw without a display, if it can.

    Raises:
        ImportError: It cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", _GLFW, UserWarning)
            from dm_control import suite
    # What is missing raises errors of many kinds.
    except Exception:
        suite = _imported_quietly()
    return suite


def _imported_quietly() -> Any:
    """Imports it where nothing can draw; most tasks need no pictures."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _GLFW, UserWarning)
            from dm_control import suite
    except Exception as error:
        raise ImportError(
            f"dm_control cannot be imported: {type(error).__name__}: {error}. If the "
            "environment variable MUJOCO_GL is set, the library that it names has to "
            "be installed: libEGL for egl, libOSMesa for osmesa."
        ) from error
    return suite


def check_can_draw(name: str) -> None:
    """Raises if dm_control has chosen a display, and there is none.

    Args:
        name: What to call the environment.
    """
    chosen = getattr(sys.modules.get("dm_control._render"), "BACKEND", "")
    if chosen == "glfw" and not _has_display():
        raise NotImplementedError(
            f"{name} cannot render: dm_control wants to draw on a display, and there "
            "is none. Set the environment variable MUJOCO_GL to egl or osmesa before "
            "dm_control is imported."
        )


def _has_display() -> bool:
    glfw = sys.modules["glfw"]  # It has been chosen.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _GLFW, UserWarning)
        # It does nothing where it has succeeded before.
        return bool(glfw.init())
