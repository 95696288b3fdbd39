"""Runs an environment in real time, in a thread or on a virtual clock: `Host`."""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

import numpy as np

from envkit._shared.arguments import checked_seconds
from envkit._shared.waits import result_of, wait_for_change
from envkit.errors import ClosedError, WorkerTimeout
from envkit.extend import hand_options
from envkit.realtime.loop import TickLoop, with_row
from envkit.realtime.merging import merged_spec
from envkit.realtime.report import Lag
from envkit.specs.environment_spec import EnvironmentSpec, info_spec_of
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["Host", "LocalHost", "ThreadHost", "VirtualHost"]

_LOGGER = logging.getLogger(__name__)
# How long the thread may take to end; one step of the environment may delay it.
_TO_END = 10.0
# Times closer than this many seconds count as equal.
_ROUNDING = 1e-9

Result = TypeVar("Result")
MakeLoop = Callable[[], tuple[Any, TickLoop]]
# The states of the environment and its loop, and the current time step's timing and
# info.
RealTimeState = tuple[Any, Any, Any]


class Host(abc.ABC):
    """Runs an environment that does not wait for the agent.

    Attributes:
        spec: The specs of one row.
        batch_size: The number of rows; `None` for a single environment.
        resets_rows: Whether single rows can be reset.
        info_spec: The specs of the environment's info.
        one_per_process: Whether this process holds it, and may hold no other.
    """

    spec: EnvironmentSpec
    info_spec: dict[str, Any]
    batch_size: int | None
    resets_rows: bool
    one_per_process: bool = False

    def inside(self) -> list[Any]:
        """Returns the environment that it runs, if that can be lost."""
        return []

    @abc.abstractmethod
    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode in all rows or in some, and returns its first time step.

        Args:
            mask: The rows; `None` for all.
            options: The options of the reset, for the environment.
        """

    @abc.abstractmethod
    def check_options(self, options: Any, mask: Array | None) -> None:
        """Refuses unknown options before anything moves."""

    @abc.abstractmethod
    def step(self, action: NestedArray) -> TimeStep:
        """Passes in an action for every row, waits, and returns the merged ticks."""

    @abc.abstractmethod
    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the next episode, once the end of the previous one was seen."""

    @abc.abstractmethod
    def peek(self, current: TimeStep) -> TimeStep:
        """Returns the merged ticks so far, without consuming them.

        Args:
            current: The current time step.
        """

    @abc.abstractmethod
    def lag(self) -> Lag:
        """Returns the timing of the current time step."""

    @abc.abstractmethod
    def info(self) -> Any:
        """Returns the environment's info of the current time step."""

    @abc.abstractmethod
    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""

    @abc.abstractmethod
    def render(self, mode: str) -> Any:
        """Returns a picture of the environment's current state."""

    @abc.abstractmethod
    def get_state(self) -> Any:
        """Returns everything that later ticks depend on."""

    @abc.abstractmethod
    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stops the clock, and closes the environment."""


class LocalHost(Host):
    """Runs a `TickLoop` in this process."""

    env: Any
    loop: TickLoop
    # The environment's error; every step raises it until an episode begins.
    _error: BaseException | None = None

    def __init__(self, wait: str | float) -> None:
        """Chooses what a step waits for.

        Args:
            wait: "next" for the next tick, "newest" for none, or how many seconds to
                wait for the next tick.
        """
        self._at_once = wait == "newest"
        self._patience = math.inf if isinstance(wait, str) else float(wait)
        # The timing and the info of the current time step.
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
            # The other rows stay where they are, with their lags and infos.
            lag = Lag(*map(functools.partial(np.where, mask), lag, self._lag))
            for row in np.flatnonzero(~mask).tolist():
                info = with_row(info, self._info, row, self.loop.rows)
        self._lag, self._info = lag, info
        return time_step

    def check_options(self, options: Any, mask: Array | None) -> None:
        """Refuses unknown options before anything moves."""

        def check() -> None:
            hand_options(self.env, options, mask)
            hand_options(self.env, None)

        self.ask(check)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    @abc.abstractmethod
    def ask(self, question: Callable[[], Result]) -> Result:
        """Calls a function between two ticks, and returns its result."""

    @abc.abstractmethod
    def _go_on_at(self) -> float | None:
        """Returns when time continues after `set_state`; `None` if the state says."""

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns the merged ticks so far, without consuming them."""
        return self.loop.peek(current)

    def lag(self) -> Lag:
        """Returns the timing of the current time step."""
        return self._lag  # type: ignore[no-any-return]

    def info(self) -> Any:
        """Returns the environment's info of the current time step."""
        return self._info

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self.ask(lambda: self.env.seed(seed))

    def render(self, mode: str) -> Any:
        """Returns a picture of the environment's current state."""
        return self.ask(lambda: self.env.render(mode))

    def get_state(self) -> Any:
        """Returns everything that later ticks depend on."""
        return self.ask(self._state)

    def _state(self) -> RealTimeState:
        shown = copy.deepcopy((self._lag, self._info))
        return self.env.get_state(), self.loop.get_state(), shown

    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""
        self.ask(lambda: self._restore(state))

    def _restore(self, state: RealTimeState) -> None:
        environment, loop, shown = state
        self.env.set_state(environment)
        self.loop.set_state(loop, self._go_on_at())
        self._lag, self._info = copy.deepcopy(shown)
        self._error = None


class ThreadHost(LocalHost):
    """Runs a loop in a thread, which also builds and closes the environment."""

    def __init__(
        self,
        make_loop: MakeLoop,
        wait: str | float,
        reset_timeout: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread and waits until the environment is built.

        Args:
            make_loop: Makes the environment and its loop.
            wait: As in `LocalHost`.
            reset_timeout: How many seconds to wait for an episode to begin.
            now: The clock.
        """
        super().__init__(wait)
        self._make_loop = make_loop
        self._name = "an environment"
        self._reset_timeout = reset_timeout
        self._now = now
        # Guards the loop and the attributes below; notified of every change.
        self._changed = threading.Condition()
        self._is_closed = False
        self._questions: list[tuple[Callable[[], Any], Future[Any]]] = []
        # The question that is being answered.
        self._answering: Future[Any] = Future()
        # A reset that the agent has stopped waiting for, and its rows.
        self._reset: Future[None] | None = None
        self._reset_mask: Array | None = None
        self._process = os.getpid()
        built: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(built,), name="envkit-clock", daemon=True
        )
        self._thread.start()
        try:
            result_of(built)
        except BaseException:
            # An interrupt must not leave a clock behind.
            self._is_closed = True
            raise

    # In the thread.

    def _run(self, built: Future[None]) -> None:
        try:
            self._take_over(*self._make_loop())
            self._name = type(self.env).__name__
        except BaseException as error:
            built.set_exception(error)
            return
        built.set_result(None)
        while not self._is_closed:
            with self._changed:
                while not (self._is_closed or self._questions or self._is_due()):
                    self._changed.wait(self._until_due())
                questions, self._questions = self._questions, []
            for question, answer in questions:
                self._answer(question, answer)
            if not self._is_closed and self._is_due():
                self._tick()
        try:
            self.env.close()
        except Exception:
            _LOGGER.exception("Closing %s, which ran in real time, failed.", self._name)
        with self._changed:
            for _, answer in self._questions:
                answer.set_exception(ClosedError.used("RealTimeEnvironment", "ask"))

    def _answer(self, question: Callable[[], Any], answer: Future[Any]) -> None:
        self._answering = answer
        # close() may have answered it already, from another thread.
        with contextlib.suppress(InvalidStateError):
            try:
                result = question()
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    def _moves(self) -> bool:
        loop = self.loop
        return loop.has_begun and self._error is None and not loop.is_paused

    def _is_due(self) -> bool:
        return self._moves() and self.loop.due <= self._now()

    def _until_due(self) -> float | None:
        return max(self.loop.due - self._now(), 0.0) if self._moves() else None

    def _tick(self) -> None:
        try:
            with self._changed:
                move = self.loop.decide(self._now())
            # Without the lock: the agent may meanwhile act for the next tick.
            time_step = self.loop.move(move)
            with self._changed:
                self.loop.note(move, time_step, self._now())
                self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _begin(self, mask: Array | None, options: Any) -> None:
        try:
            time_step = self.loop.reset(mask, options)
            with self._changed:
                self.loop.begin(mask, time_step, self._now())
                self._error = None
                self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
            raise

    # In the agent's thread.

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode in all rows or in some, and returns its first time step.

        A reset that takes longer than `reset_timeout` continues, and the next `reset`
        waits for it.
        """
        is_same = options is None and _are_equal(mask, self._reset_mask)
        if self._reset is None or not is_same:
            self._reset = self._ask(lambda: self._begin(mask, options))
            self._reset_mask = mask
        try:
            result_of(self._reset, self._reset_timeout)
        except FutureTimeoutError:
            if not self._reset.done():
                raise self._late("reset") from None
            # It finished a moment later, or has raised this error of the same type.
            self._reset.result()
        finally:
            if self._reset.done():
                self._reset = None
        with self._changed:
            return self._take(mask)

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        # The next reset must not return an episode that began before the seed.
        self._reset = None
        return super().seed(seed)

    def step(self, action: NestedArray) -> TimeStep:
        """Passes in an action for every row, waits, and returns the merged ticks."""
        self._check_process()
        began = self._now()
        with self._changed:
            self._check()
            self.loop.publish(action, began)
            self._wait_until_ready(None, began)
            return self._take(None)

    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the next episode, once the end of the previous one was seen."""
        self._check_process()
        with self._changed:
            self._check()
            self._wait_until_ready(mask, self._now())
            return self._take(mask)

    def _wait_until_ready(self, mask: Array | None, began: float) -> None:
        patience, timeout = began + self._patience, self._reset_timeout
        give_up = math.inf if timeout is None else began + timeout
        while True:
            now = self._now()
            at_once = self._at_once or now >= patience
            if self.loop.is_ready(mask, at_once=at_once):
                return
            if now >= give_up and self._is_beginning(mask):
                raise self._late("step")
            ends = [end for end in (patience, give_up) if now < end < math.inf]
            wait_for_change(self._changed, min(ends) - now if ends else None)
            self._check()

    def _is_beginning(self, mask: Array | None) -> bool:
        """True if some row waits for an episode to begin."""
        is_resetting = self._reset is not None and not self._reset.done()
        return is_resetting or not self.loop.is_ready(mask, at_once=True)

    def _take(self, mask: Array | None) -> TimeStep:
        self._check()
        if self._reset is not None and self._reset.done():
            self._reset = None  # its episode is shown now
        shown = self._shown(mask, self._now())
        # A row that waited for its end to be seen continues.
        self._changed.notify_all()
        return shown

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns the merged ticks so far, without consuming them."""
        self._check_process()
        with self._changed:
            self._check()
            return super().peek(current)

    def ask(self, question: Callable[[], Result]) -> Result:
        """Calls a function in the thread, between two ticks."""
        answer: Future[Result] = self._ask(question)
        return result_of(answer)

    def _go_on_at(self) -> float | None:
        return self._now()

    def _restore(self, state: RealTimeState) -> None:
        with self._changed:
            super()._restore(state)

    def _ask(self, question: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._check_process()
        with self._changed:
            if self._is_closed:
                raise ClosedError.used("RealTimeEnvironment", "ask")
            self._questions.append((question, answer))
            self._changed.notify_all()
        return answer

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError.used("RealTimeEnvironment", "step")
        self._raise_error()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ClosedError(
                "This RealTimeEnvironment runs in a thread of another process, of "
                "which this one is a fork, and threads are not forked along. Make "
                "another here."
            )

    def _late(self, call: str) -> WorkerTimeout:
        return WorkerTimeout(
            f"RealTimeEnvironment.{call}() waited {self._reset_timeout:g} s for "
            f"{self._name} to begin an episode. It goes on beginning: call {call}() "
            "again to wait for it, or close()."
        )

    def close(self) -> None:
        """Stops the clock, and closes the environment in its thread."""
        if os.getpid() != self._process:
            return  # the thread is in the parent process, and may hold the lock
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if threading.current_thread() is self._thread:
            return
        # Another thread may be waiting for an answer that will never come.
        with self._changed:
            waiting = [self._answering, *(answer for _, answer in self._questions)]
            self._questions = []
        for answer in waiting:
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(
                    ClosedError(
                        "The RealTimeEnvironment was closed by another thread while "
                        "this one was waiting for it."
                    )
                )
        self._thread.join(_TO_END)
        if self._thread.is_alive():
            _LOGGER.warning(
                "%s is still in one call %g s after it was to close; its thread is "
                "left behind.",
                self._name,
                _TO_END,
            )


def _are_equal(mask: Array | None, other: Array | None) -> bool:
    if mask is None or other is None:
        return mask is other
    return np.array_equal(mask, other)


class VirtualHost(LocalHost):
    """Runs a loop as fast as the machine allows, in virtual time.

    Ticks take no time themselves, so equal think times give equal ticks.
    """

    def __init__(
        self,
        make_loop: MakeLoop,
        wait: str | float,
        think_time: float | str | Callable[[], float] = 0.0,
        watch: Callable[[], float] = time.monotonic,
    ) -> None:
        """Builds the environment.

        Args:
            make_loop: Makes the environment and its loop.
            wait: As in `LocalHost`.
            think_time: How long the agent thinks before each action, a function that
                returns it, or "measured".
            watch: The clock that measures it.
        """
        super().__init__(wait)
        self._think_time = think_time
        self._now = 0.0
        self._watch = watch
        # When the agent began to think, on that clock.
        self._shown_at = watch()
        self._take_over(*make_loop())

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode in all rows or in some, and returns its first time step."""
        with self._noting_errors():
            self.loop.begin(mask, self.loop.reset(mask, options), self._now)
        self._error = None
        return self._shown(mask, self._now)

    def step(self, action: NestedArray) -> TimeStep:
        """Advances the time while the agent thinks, and then while it waits."""
        self._think()
        self.loop.publish(action, self._now)
        return self._wait_and_show(None)

    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the next episode, once the end of the previous one was seen."""
        self._think()
        return self._wait_and_show(mask)

    def _think(self) -> None:
        self._raise_error()
        think_time = self._think_time
        if think_time == "measured":
            seconds = self._watch() - self._shown_at
        else:
            given = think_time() if callable(think_time) else think_time
            seconds = checked_seconds("think_time", given)
        self._pass_until(self._now + seconds)

    def _wait_and_show(self, mask: Array | None) -> TimeStep:
        end = self._now + self._patience
        while not self.loop.is_ready(mask, at_once=self._at_once):
            if self.loop.due > end + _ROUNDING and self.loop.is_ready(
                mask, at_once=True
            ):
                self._pass_until(end)
                break
            self._tick()
        return self._shown(mask, self._now)

    def _pass_until(self, moment: float) -> None:
        while self.loop.due <= moment + _ROUNDING and not self.loop.is_paused:
            self._tick()
        self._now = max(self._now, moment)

    def _tick(self) -> None:
        # A tick that was due while all rows waited at their ends happens now.
        self._now = max(self._now, self.loop.due)
        with self._noting_errors():
            move = self.loop.decide(self._now)
            self.loop.note(move, self.loop.move(move), self._now)

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._error = error
            raise

    def _shown(self, mask: Array | None, now: float) -> TimeStep:
        time_step = super()._shown(mask, now)
        self._shown_at = self._watch()
        return time_step

    def ask(self, question: Callable[[], Result]) -> Result:
        """Calls a function while the clock is stopped, and returns its result."""
        return question()

    def _go_on_at(self) -> float | None:
        return None

    def _state(self) -> Any:
        return (*super()._state(), self._now)

    def _restore(self, state: Any) -> None:
        *rest, self._now = state
        super()._restore(rest)

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()
