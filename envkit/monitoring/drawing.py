"""Checks whether figures can be drawn and saved, and makes them, without pyplot."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from envkit.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_can_draw", "check_can_save", "new_figure"]


def check_can_draw(what: str) -> None:
    """Raises if matplotlib is missing; the error begins with what needs it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError.needed_by(what, package="matplotlib", extra="plot")


def check_can_save(option: str, path: str) -> None:
    """Raises if a figure cannot be saved; the error begins with the option."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kinds = FigureCanvasAgg.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in kinds:
        raise ValueError(
            f"{option} {path}: the file must end in one of "
            f"{', '.join(f'.{known}' for known in sorted(kinds))}."
        )
    if Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK):
        raise OSError(f"{option} {path}: no file can be written there.")


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure, in inches. It has no window and no place in pyplot."""
    from envkit.monitoring.figures import NotebookFigure

    return NotebookFigure(figsize=(width, height), dpi=150, layout="constrained")
