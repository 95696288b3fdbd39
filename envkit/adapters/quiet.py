"""Keeps the libraries of games from writing to the terminal and the working folder.

| library | writes | means against it                                               |
|---------|--------|-----------------------------------------------------------------|
| pygame  | a greeting, and complaints of ALSA and Wayland | `prepare_sdl`           |
| ale-py  | its version                                    | its own level of logs   |
| MuJoCo  | warnings, and the file `MUJOCO_LOG.TXT`        | its callback: `logging` |
| GLFW    | warnings, where there is no display            | EGL or OSMesa instead   |
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib
import logging
import os
import sys
import warnings
from typing import Any

from envkit._shared.quiet_sdl import has_display, prepare_sdl

__all__ = ["hush_imported", "prepare_module"]

_LOGGER = logging.getLogger(__name__)
_MUJOCO_GL = "MUJOCO_GL"
# In the order of speed: with a graphics card, without one.
_WITHOUT_DISPLAY = {"egl": "EGL", "osmesa": "OSMesa"}


def prepare_module(entry_point: Any, render_mode: Any = None) -> None:
    """Imports the module of an environment, and keeps its libraries quiet.

    Args:
        entry_point: Its class, as `"module:name"`; others are imported already.
        render_mode: The mode in which the environment will render.
    """
    # A window needs a display, and its absence is reported better by the library.
    prepare_sdl(True if render_mode == "human" else None)
    if isinstance(entry_point, str):
        # Making the environment explains what is missing.
        with contextlib.suppress(Exception):
            importlib.import_module(entry_point.partition(":")[0])
    hush_imported()
    if render_mode not in (None, "human", "ansi") and "mujoco" in sys.modules:
        _choose_renderer()


def hush_imported() -> None:
    """Keeps those of the libraries quiet that this process has imported."""
    if atari := sys.modules.get("ale_py"):
        atari.ALEInterface.setLoggerMode(atari.LoggerMode.Warning)
    if mujoco := sys.modules.get("mujoco"):
        # dm_control's own prints all warnings. A user's is kept.
        core = sys.modules.get("dm_control.mujoco.wrapper.core")
        if mujoco.get_mju_user_warning() in (
            None,
            getattr(core, "_warning_callback", None),
        ):
            mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    """Logs a warning of MuJoCo; those about outdated models concern their authors."""
    level = logging.DEBUG if "deprecated" in message else logging.WARNING
    _LOGGER.log(level, "MuJoCo: %s", message)


def _choose_renderer() -> None:
    """Makes MuJoCo draw without a display, if there is none.

    Gymnasium tries GLFW first, which only warns about the missing display; then the
    first picture fails.
    """
    if has_display() or os.environ.get(_MUJOCO_GL):
        return
    for name, library in _WITHOUT_DISPLAY.items():
        if ctypes.util.find_library(library):
            os.environ[_MUJOCO_GL] = name
            return
    warnings.filterwarnings("ignore", r"\(\d+\) b", UserWarning)  # GLFW's
