"""`SafeConsole`: a console of rich's that shows other people's texts."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from envkit._shared.text import escaped

__all__ = ["SafeConsole"]


class SafeConsole(Console):
    """A console that gives a terminal no orders but its own.

    Control characters in texts are written out. A closed pipe raises, for the command
    to handle.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yields the parts of what is shown, and those of what is in it."""
        for segment in super().render(renderable, options):
            if segment.control is None:
                segment = segment._replace(text=escaped(segment.text))
            yield segment

    def on_broken_pipe(self) -> None:
        """Tells the command."""
        raise BrokenPipeError
