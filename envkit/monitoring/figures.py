"""`NotebookFigure`; import this module only where something is drawn."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

__all__ = ["NotebookFigure"]


class NotebookFigure(Figure):  # type: ignore[misc]  # mypy does not read matplotlib
    """A figure that notebooks show although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        """Returns the figure as PNG, for IPython."""
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()
