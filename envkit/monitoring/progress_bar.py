"""`progress`: a line in the terminal that shows how a run is going."""

from __future__ import annotations

import functools
import math
import operator
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from envkit.errors import CallOrderError
from envkit.extend import checked_flag, counted, describe
from envkit.monitoring.watching import Source, Watch

if TYPE_CHECKING:
    from rich.console import Console

    from envkit.monitoring.progress_line import Lines

__all__ = ["Progress", "progress"]

# Seconds between updates of the line, and over how many the speed is measured.
_PAUSE, _WINDOW = 0.1, 30.0
# Rounds of a loop without a first step, after which it would never end.
_IDLE_ROUNDS = 10_000


def progress(
    env: Any,
    steps: int | None = None,
    *,
    description: str = "",
    file: TextIO | None = None,
    console: Console | None = None,
    disable: bool = False,
) -> Progress:
    """Shows how a run is going: loop over it, or use it in a `with` statement.

    The line has the steps so far, steps per second, the mean return of the last 100
    episodes, the episodes lost with their environments, restarts, and the time left. It
    is drawn at most 10 times a second, `print` and `logging` write above it, and it
    stays when the loop ends. Where there is no terminal, nothing is written.

    The loop ends once the environment has made `steps` steps, however many its body
    makes. Each row's step counts: a call of `step` in a batch of 64 is 64 steps, those
    that begin an episode included. Calls of `reset` don't count. Of an asynchronous
    pool, every action sent counts.

    Pass the outermost object that your program steps, with its wrappers. Of
    `Sessions`, episodes are counted instead: `with progress(sessions, 1000):`.

    Args:
        env: The environment: single, batch, pool, asynchronous, `TFPyEnvironment` or
            `Sessions`.
        steps: After how many steps, or episodes of `Sessions`, a loop over it ends;
            `None` for no end.
        description: A text in front of the line.
        file: Where the line goes; `sys.stderr` by default.
        console: A `rich` console to use instead.
        disable: Whether to show nothing.

    Returns:
        An iterator over the steps so far, and a context manager.

    Example:
        >>> import envkit
        >>> env = envkit.make("CartPole", num_envs=4, backend="inline", seed=1)
        >>> policy = envkit.RandomPolicy(env.action_spec(), seed=0, batch_size=4)
        >>> time_step = env.reset()
        >>> for _ in (bar := envkit.progress(env, 1000)):
        ...     time_step = env.step(policy(time_step))
        >>> bar.steps, bar.episodes > 10, bar.mean_return > 5
        (1000, True, True)
        >>> env.close()
    """
    # Objects without steps of their own, such as sessions, bring a source.
    make_source = getattr(type(env), "progress_source", Watch)
    return Progress(
        functools.partial(make_source, env),
        steps,
        description=description,
        file=file,
        console=console,
        disable=disable,
    )


class Progress:
    """Counts the steps of a run, and shows them in a line; `progress` makes it.

    The environment's steps are counted as they are made. Once you call `update`, only
    the steps that you pass there count.

    Example:
        >>> import envkit
        >>> env = envkit.make("CartPole", seed=1)
        >>> with envkit.progress(env, 200) as bar:
        ...     while bar.steps < 200:
        ...         time_step = env.step(1)
        ...     bar.set_postfix(loss=0.25)
        >>> bar
        Progress(steps=200/200, episodes=19, mean_return=9.4)
    """

    def __init__(
        self,
        make_source: Callable[[], Source],
        steps: int | None = None,
        *,
        description: str = "",
        file: TextIO | None = None,
        console: Console | None = None,
        disable: bool = False,
    ) -> None:
        """Prepares the line; it appears with the first round of a loop, or `with`.

        Args:
            make_source: Makes what counts.
            steps: After how many steps a loop over it ends; `None` for no end.
            description: A text in front of the line.
            file: Where the line goes; `sys.stderr` by default.
            console: A `rich` console to use instead.
            disable: Whether to show nothing.
        """
        self._make_source = make_source
        self._source = make_source()
        self.total = None if steps is None else _checked_steps(steps)
        self.description = description
        self.postfix: dict[str, Any] = {}
        self._file, self._console = file, console
        self._disable = checked_flag("disable", disable)
        self._lines: Lines | None = None
        self._told: int | None = None
        self._is_open = self._has_closed = False
        self._began = self._ended = 0.0
        self._samples: deque[tuple[float, int, int]] = deque()

    def __getattr__(self, name: str) -> Any:
        if name in ("reset", "step"):
            raise AttributeError(
                f"Progress has no {name}: it only counts. Call {name}() of the "
                "environment that you gave to progress()."
            )
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}",
            name=name,
            obj=self,
        )

    # What it counts.

    @property
    def steps(self) -> int:
        """The steps so far, of all rows."""
        return self._source.steps if self._told is None else self._told

    @property
    def done(self) -> int:
        """What the total counts, so far: steps, or episodes of `Sessions`."""
        is_steps = self._source.unit == "steps" or self._told is not None
        return self.steps if is_steps else self.episodes

    @property
    def rows(self) -> int | None:
        """The number of rows; `None` for a single environment."""
        return self._source.rows

    @property
    def episodes(self) -> int:
        """How many episodes have ended, without the lost ones."""
        return self._source.episodes

    @property
    def mean_return(self) -> float | None:
        """The mean return of the last 100 episodes; `None` before the first ends.

        Episodes that were lost or broken off don't count.
        """
        returns = self._source.returns
        return math.fsum(returns) / len(returns) if returns else None

    @property
    def lost_episodes(self) -> int:
        """How many episodes were cut short because their environment was lost."""
        return self._source.lost

    @property
    def restarts(self) -> int:
        """How many times workers, or environments in them, were replaced."""
        return self._source.restarts

    @property
    def elapsed(self) -> float:
        """The seconds since it began, until it ended."""
        if not self._began:
            return 0.0
        return (time.monotonic() if self._is_open else self._ended) - self._began

    @property
    def steps_per_second(self) -> float:
        """The steps per second: of the last 30 seconds, or at the end of all."""
        if not self._is_open or not self._samples:
            return self.steps / self.elapsed if self.elapsed else 0.0
        then, before, _ = self._samples[0]
        passed = time.monotonic() - then
        return (self.steps - before) / passed if passed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The seconds for the rest at this speed; `None` if unknown."""
        if self.total is None:
            return None
        left, before, passed = self.total - self.done, 0, self.elapsed
        if self._is_open and self._samples:
            then, _, before = self._samples[0]
            passed = time.monotonic() - then
        gained = self.done - before
        return max(left, 0) * passed / gained if gained and passed > 0 else None

    @property
    def is_open(self) -> bool:
        """Whether it is counting."""
        return self._is_open

    def __repr__(self) -> str:
        total = "" if self.total is None else f"/{self.total}"
        mean = self.mean_return
        return (
            f"{type(self).__name__}(steps={self.steps}{total}, "
            f"episodes={self.episodes}, "
            f"mean_return={None if mean is None else round(mean, 1)})"
        )

    def texts(self) -> Iterator[str]:
        """Yields the counts, the most important first."""
        total = "" if self.total is None else f"/{self.total:,}"
        rows = "" if self.rows is None else f" in {counted(self.rows, 'row')}"
        if self._source.unit == "episodes":
            yield f"{self.done:,}{total} episodes"
            total = ""
        yield f"{self.steps:,}{total} steps{rows}"
        speed = self.steps_per_second
        if speed:
            yield f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"
        mean = self.mean_return
        if mean is not None:
            yield f"return {mean:,.4g}" if abs(mean) < 1000 else f"return {mean:,.0f}"
        for name, value in self.postfix.items():
            yield (
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            )
        if self.lost_episodes:
            yield f"{counted(self.lost_episodes, 'episode')} lost"
        if self.restarts:
            yield counted(self.restarts, "restart")
        left = self.seconds_left
        if not self.is_open:
            yield f"in {_clock(self.elapsed)}"
        elif left is not None:
            yield f"{_clock(left)} left"

    # What moves it.

    def update(self, steps: int = 1) -> None:
        """Counts steps yourself; from then on, nothing else counts them."""
        self._open()
        self._told = (self._told or 0) + _checked_steps(steps)
        self._refresh_if_due()

    def set_postfix(self, **values: Any) -> None:
        """Shows values at the end of the line, such as a loss."""
        self.postfix = values
        self._refresh_if_due()

    def __iter__(self) -> Iterator[int]:
        is_mine = self._open()
        idle = 0
        try:
            while self.total is None or self.done < self.total:
                before = self.steps
                yield before
                self._refresh_if_due()
                idle = 0 if self.steps else idle + 1
                if idle == _IDLE_ROUNDS:
                    raise CallOrderError(
                        f"progress() has seen no step in {idle:,} rounds of the loop. "
                        "Give it the environment that the loop steps, or call "
                        "update(steps)."
                    )
        finally:
            if is_mine:
                self.close()

    def __enter__(self) -> Progress:
        self._open()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; the line stays as it is. Calling it again does nothing."""
        if not self._is_open:
            return
        self._ended = time.monotonic()
        self._is_open, self._has_closed = False, True
        self._source.stop()
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.remove(self)

    def _open(self) -> bool:
        """Begins to count and to show the line; returns False if it has begun."""
        if self._is_open:
            return False
        if self._has_closed:
            self._source, self._told = self._make_source(), None
        lines = None if self._disable else _lines_on(self._file, self._console)
        self._is_open = True
        self._began = self._due = time.monotonic()
        self._samples.clear()
        self._source.start(self._refresh)
        if lines is not None:
            self._lines = lines
            lines.add(self)
        return True

    def _refresh_if_due(self) -> None:
        # Hot: called once per round of a loop.
        if time.monotonic() >= self._due:
            self._refresh()

    def _refresh(self) -> float:
        """Updates the line; returns when to do so again."""
        now = time.monotonic()
        self._due = now + _PAUSE
        self._source.start(self._refresh)
        self._samples.append((now, self.steps, self.done))
        while self._samples[0][0] < now - _WINDOW:
            self._samples.popleft()
        if self._lines is not None:
            self._lines.refresh()
        return self._due


def _lines_on(file: TextIO | None, console: Console | None) -> Lines | None:
    """Returns the lines of a terminal; `None` if there is none."""
    is_notebook = file is None and "ipykernel" in sys.modules
    where = sys.stderr if file is None else file
    if console is None and not is_notebook and not _is_terminal(where):
        return None
    # Rich is loaded only to draw.
    from envkit.monitoring.progress_line import lines_on

    return lines_on(where, console)


def _is_terminal(file: Any) -> bool:
    try:
        return bool(file.isatty())
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _checked_steps(steps: Any) -> int:
    """Returns a number of steps; 1e6 is one too."""
    number = steps
    if isinstance(steps, float) and steps.is_integer():
        number = int(steps)
    try:
        number = -1 if isinstance(steps, bool) else operator.index(number)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(
            f"steps must be a whole number of at least 0, got {describe(steps)}."
        )
    return number


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
