"""`Host`: where an environment runs in real time, and what one asks of it."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from envkit.masked_rows import hand_options
from envkit.realtime.merged_specs import merged_spec
from envkit.realtime.report import Lag
from envkit.realtime.shown_rows import with_row
from envkit.realtime.ticking import TickLoop
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.info_spec import info_spec_of
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["Host", "LocalHost", "MakeLoop", "RealTimeState"]

Result = TypeVar("Result")
MakeLoop = Callable[[], tuple[Any, TickLoop]]
# What `get_state` of an environment gives, that of the loop which steps it, and the
# timing and info of what was shown last.
RealTimeState = tuple[Any, Any, Any]


class Host(abc.ABC):
    """Carries an environment that goes on by itself.

    Attributes:
        spec: The specs of one row.
        batch_size: How many rows there are; `None` for a single environment.
        resets_rows: Whether single rows can be reset.
        info_spec: What the environment declares of its info.
        one_per_process: Whether this process holds it, and may hold no other.
    """

    spec: EnvironmentSpec
    info_spec: dict[str, Any]
    batch_size: int | None
    resets_rows: bool
    one_per_process: bool = False

    @abc.abstractmethod
    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode, in all rows or in some, and shows it.

        Args:
            mask: Which rows; `None` for all.
            options: What the environment is told of this reset.
        """

    @abc.abstractmethod
    def check_options(self, options: Any, mask: Array | None) -> None:
        """Refuses options that the environment does not take, before anything moves."""

    @abc.abstractmethod
    def step(self, action: NestedArray) -> TimeStep:
        """Hands in an action of every row, waits, and shows what has happened."""

    @abc.abstractmethod
    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the episode after one whose end has been seen, and shows it."""

    @abc.abstractmethod
    def peek(self, current: TimeStep) -> TimeStep:
        """Returns what there is to show, and leaves it there.

        Args:
            current: What was shown last.
        """

    @abc.abstractmethod
    def lag(self) -> Lag:
        """Returns the timing of what was shown last."""

    @abc.abstractmethod
    def info(self) -> Any:
        """Returns the environment's info of what was shown last."""

    @abc.abstractmethod
    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""

    @abc.abstractmethod
    def render(self, mode: str) -> Any:
        """Returns a picture of the environment as it is now."""

    @abc.abstractmethod
    def get_state(self) -> Any:
        """Returns everything that later ticks depend on."""

    @abc.abstractmethod
    def set_state(self, state: Any) -> None:
        """Brings that back."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets time stand still, and closes the environment."""


class LocalHost(Host):
    """Carries a `TickLoop` in this process."""

    env: Any
    loop: TickLoop
    # What the environment has raised, and will until it begins an episode.
    _error: BaseException | None = None

    def __init__(self, wait: str | float) -> None:
        """Prepares.

        Args:
            wait: For what a step waits: "next" for something new, "newest" for nothing,
                or for how many seconds it waits for something new.
        """
        self._wait = wait
        # Of what was shown last; there is a lag as soon as there is that.
        self._lag: Any = None
        self._info: Any = None

    def _take_over(self, env: Any, loop: TickLoop) -> None:
        self.env, self.loop = env, loop
        self.spec = merged_spec(EnvironmentSpec.of(env))
        self.info_spec = info_spec_of(env)
        self.batch_size = loop.rows if loop.batched else None
        self.resets_rows = bool(getattr(env, "resets_rows", False))
        self.one_per_process = bool(getattr(env, "one_per_process", False))

    def _shown(self, mask: Array | None, now: float) -> TimeStep:
        time_step, lag, info = self.loop.take(mask, now)
        if mask is not None and not mask.all():
            # The other rows stay where they are, and so does what is known of them.
            lag = Lag(*map(functools.partial(np.where, mask), lag, self._lag))
            for row in np.flatnonzero(~mask).tolist():
                info = with_row(info, self._info, row, self.loop.rows)
        self._lag, self._info = lag, info
        return time_step

    def check_options(self, options: Any, mask: Array | None) -> None:
        """Refuses options that the environment does not take, before anything moves."""

        def check() -> None:
            hand_options(self.env, options, mask)
            hand_options(self.env, None)

        self.ask(check)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    @abc.abstractmethod
    def ask(self, question: Callable[[], Result]) -> Result:
        """Calls a function between two ticks."""

    @abc.abstractmethod
    def _go_on_at(self) -> float | None:
        """Returns when time goes on after `set_state`; `None` as the state says."""

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns what there is to show, and leaves it there."""
        return self.loop.peek(current)

    def lag(self) -> Lag:
        """Returns the timing of what was shown last."""
        return self._lag  # type: ignore[no-any-return]

    def info(self) -> Any:
        """Returns the environment's info of what was shown last."""
        return self._info

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self.ask(lambda: self.env.seed(seed))

    def render(self, mode: str) -> Any:
        """Returns a picture of the environment as it is now."""
        return self.ask(lambda: self.env.render(mode))

    def get_state(self) -> Any:
        """Returns everything that later ticks depend on."""
        return self.ask(self._state)

    def _state(self) -> RealTimeState:
        shown = copy.deepcopy((self._lag, self._info))
        return self.env.get_state(), self.loop.get_state(), shown

    def set_state(self, state: Any) -> None:
        """Brings that back."""
        self.ask(lambda: self._restore(state))

    def _restore(self, state: RealTimeState) -> None:
        environment, loop, shown = state
        self.env.set_state(environment)
        self.loop.set_state(loop, self._go_on_at())
        self._lag, self._info = copy.deepcopy(shown)
        self._error = None
