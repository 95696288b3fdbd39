"""`ThreadHost`: a thread that steps an environment at the moments that are due."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np

from envkit.errors import ClosedError, WorkerTimeout
from envkit.interruptible import result_of, wait_a_while
from envkit.realtime.hosts import LocalHost, MakeLoop, RealTimeState, Result
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["ThreadHost"]

_LOGGER = logging.getLogger(__name__)

# How long the thread may take to end: as long as one step of the environment.
_TO_END = 10.0


class ThreadHost(LocalHost):
    """Carries a loop in a thread, in which the environment is also made and closed."""

    def __init__(
        self,
        make_loop: MakeLoop,
        wait: str | float,
        reset_timeout: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the thread and waits until the environment is built.

        Args:
            make_loop: Returns the environment and its loop.
            wait: For what a step waits.
            reset_timeout: For how many seconds to wait for an episode to begin.
            now: The clock.
        """
        super().__init__(wait)
        self._make_loop = make_loop
        self._name = "an environment"
        self._reset_timeout = reset_timeout
        self._now = now
        # Guards all below, and tells of every change.
        self._changed = threading.Condition()
        self._is_running = False
        self._is_closed = False
        self._questions: list[tuple[Callable[[], Any], Future[Any]]] = []
        # The question that is being answered.
        self._answering: Future[Any] = Future()
        # A reset that the agent did not wait for any longer, and the rows it is of.
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
            # What interrupts the waiting must not leave a clock behind.
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
        # It has an answer already if the environment is closed meanwhile.
        with contextlib.suppress(InvalidStateError):
            try:
                result = question()
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    def _moves(self) -> bool:
        return self._is_running and self._error is None and not self.loop.is_paused

    def _is_due(self) -> bool:
        return self._moves() and self.loop.due <= self._now()

    def _until_due(self) -> float | None:
        return max(self.loop.due - self._now(), 0.0) if self._moves() else None

    def _tick(self) -> None:
        try:
            with self._changed:
                move = self.loop.decide(self._now())
            # The agent may act meanwhile; that counts from the next tick on.
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
                self._is_running, self._error = True, None
                self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
            raise

    # What the agent does.

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode, in all rows or in some, and shows it.

        A reset that takes longer than `reset_timeout` goes on, and the next `reset`
        waits for it.
        """
        is_same = options is None and _are_equal(mask, self._reset_mask)
        if self._reset is None or not is_same:
            self._reset = self._ask(lambda: self._begin(mask, options))
            self._reset_mask = mask
        try:
            self._reset.result(self._reset_timeout)
        except FutureTimeoutError:
            if not self._reset.done():
                raise self._late("reset") from None
            raise
        finally:
            if self._reset.done():
                self._reset = None
        with self._changed:
            return self._take(mask)

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        # What is beginning without the seed is not what the next reset is to return.
        self._reset = None
        return super().seed(seed)

    def step(self, action: NestedArray) -> TimeStep:
        """Hands in an action of every row, waits, and shows what has happened."""
        self._check_process()
        began = self._now()
        with self._changed:
            self._check()
            self.loop.publish(action, began)
            self._wait_until_ready(None, began)
            return self._take(None)

    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the episode after one whose end has been seen, and shows it."""
        self._check_process()
        with self._changed:
            self._check()
            self._wait_until_ready(mask, self._now())
            return self._take(mask)

    def _wait_until_ready(self, mask: Array | None, began: float) -> None:
        wait = self._wait
        at_once = wait == "newest"
        deadline = None if isinstance(wait, str) else began + wait
        give_up = None if self._reset_timeout is None else began + self._reset_timeout
        while not self.loop.is_ready(mask, at_once=at_once):
            now = self._now()
            if deadline is not None and now >= deadline:
                # What there is will do, as soon as there is anything.
                at_once, deadline = True, None
                continue
            if give_up is not None and now >= give_up and self._is_beginning(mask):
                raise self._late("step")
            ends = [end for end in (deadline, give_up) if end is not None and end > now]
            wait_a_while(self._changed, min(ends) - now if ends else None)
            self._check()

    def _is_beginning(self, mask: Array | None) -> bool:
        """Says whether it is an episode's beginning that is waited for."""
        is_resetting = self._reset is not None and not self._reset.done()
        return is_resetting or not self.loop.is_ready(mask, at_once=True)

    def _take(self, mask: Array | None) -> TimeStep:
        self._check()
        if self._reset is not None and self._reset.done():
            self._reset = None  # Its episode is what is shown now.
        shown = self._shown(mask, self._now())
        # What waited to be seen goes on.
        self._changed.notify_all()
        return shown

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns what there is to show, and leaves it there."""
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
            self._is_running = self.loop.has_begun

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
        """Lets time stand still, and closes the environment in its thread."""
        if os.getpid() != self._process:
            return  # The thread is in the other process, and may hold the lock.
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if threading.current_thread() is self._thread:
            return
        # Another thread may be waiting for what never comes.
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
                "%s has been in one call for %g s since it was to close; its thread is "
                "left to itself.",
                self._name,
                _TO_END,
            )


def _are_equal(mask: Array | None, other: Array | None) -> bool:
    if mask is None or other is None:
        return mask is other
    return np.array_equal(mask, other)
