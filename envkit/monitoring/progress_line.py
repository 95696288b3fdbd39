"""`Lines`: the lines of one terminal that show running `Progress` objects."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.errors import LiveError
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.text import Text

from envkit._shared.text import escaped

__all__ = ["Lines", "Shown", "lines_on"]

# The width of a bar, and the least that is worth showing.
_WIDEST, _NARROWEST = 40, 8

# The lines that are shown now; a terminal has one live display.
_shown: list[Lines] = []


class Shown(Protocol):
    """What a line shows; a `Progress`."""

    total: int | None
    description: str

    @property
    def done(self) -> int: ...  # noqa: D102

    def texts(self) -> Iterator[str]:
        """Yields the counts, the most important first."""


def lines_on(file: TextIO, console: Console | None) -> Lines | None:
    """Returns the lines of a terminal, or `None` if nothing can be shown there."""
    for lines in _shown:
        if lines.console is console or (console is None and lines.file is file):
            return lines
    if console is None:
        # Whatever is printed while there is a line goes through this console.
        console = Console(
            file=file, soft_wrap=True, markup=False, highlight=False, emoji=False
        )
    if console.is_jupyter:
        has_widgets = importlib.util.find_spec("ipywidgets") is not None
        return Lines(console, file) if has_widgets else None
    return Lines(console, file) if console.is_terminal else None


class Lines:
    """The lines at the bottom of a terminal, one for each running `Progress`.

    A finished one leaves its line above the others. While there are any, `print` and
    handlers of `logging` that write to the terminal write above them.
    """

    def __init__(self, console: Console, file: TextIO) -> None:
        """Takes the console, and the file that it writes to."""
        self.console, self.file = console, file
        self._running: list[Shown] = []
        self._live: Live | None = None
        self._last: _Line | None = None
        self._redirected: list[tuple[logging.StreamHandler[Any], Any]] = []

    def add(self, progress: Shown) -> None:
        """Shows a line more."""
        self._running.append(progress)
        if len(self._running) == 1:
            _shown.append(self)
            self._start()
        self.refresh()

    def remove(self, progress: Shown) -> None:
        """Leaves a line as it is now."""
        self._running.remove(progress)
        if not self._running:
            _shown.remove(self)
            self._last = _Line(progress)
            self._stop()
        elif self._live is not None:
            self._draw(lambda: self.console.print(_Line(progress)))

    def refresh(self) -> None:
        """Draws the lines again."""
        if self._live is not None and not self.console.is_dumb_terminal:
            self._draw(self._live.refresh)

    def _draw(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except (OSError, ValueError):  # the terminal is gone, and the run goes on
            self._stop()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Draws all lines, or what the last one leaves."""
        yield from map(_Line, self._running)
        if self._last is not None:
            yield self._last

    def _start(self) -> None:
        before = sys.stdout, sys.stderr
        live = Live(
            self,
            console=self.console,
            auto_refresh=False,
            # What goes into a file or a pipe is left alone.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        try:
            live.start()
        except LiveError:  # the program itself shows something there
            return
        self._live = live
        for handler in _handlers():
            for old, new in zip(before, (sys.stdout, sys.stderr), strict=True):
                if handler.stream is old and new is not old:
                    self._redirected.append((handler, old))
                    handler.setStream(new)

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):  # the terminal is gone
                live.stop()
        for handler, stream in self._redirected:
            handler.setStream(stream)
        self._redirected.clear()


def _handlers() -> Iterator[logging.StreamHandler[Any]]:
    """Yields the handlers of all loggers that write to a stream."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                yield handler


class _Line:
    """A line: a bar if there is room, and the counts."""

    def __init__(self, progress: Shown) -> None:
        self._progress = progress

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        progress, width = self._progress, options.max_width
        separator = " - " if options.ascii_only else " · "
        text = Text(separator.join(progress.texts()), no_wrap=True)
        if progress.description:
            yield from _part(f"{escaped(progress.description)} ", console, options)
            width -= Text(progress.description).cell_len + 1
        left = min(width - text.cell_len - 1, _WIDEST)
        if progress.total and left >= _NARROWEST:
            bar = ProgressBar(progress.total, min(progress.done, progress.total))
            yield from console.render(bar, options.update(width=left, max_width=left))
            yield Segment(" ")
        text.truncate(max(width, 1), overflow="ellipsis")
        yield text


def _part(text: str, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
    return iter(console.render(Text(text, end=""), options))
