"""A rich console that displays untrusted text safely: `SafeConsole`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from envkit._shared.text import escaped

__all__ = ["SafeConsole"]


class SafeConsole(Console):
    """Sends the terminal no control characters except its own.

    Control characters in texts are shown as text. A closed pipe raises, for the command
    to handle.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yields the rendered parts, with control characters replaced."""
        for segment in super().render(renderable, options):
            if segment.control is None:
                segment = segment._replace(text=escaped(segment.text))
            yield segment

    def on_broken_pipe(self) -> None:
        """Raises, so that the command notices."""
        raise BrokenPipeError
