"""Begins episodes in the background, for `universe_view`.

`OwnPace` holds the rows of an `AsyncEnvironment`, which begin independently.
`InBackground` holds a batch or a single environment, whose resets block: it runs them
in a thread, and until a reset finishes, the other rows pause, because the
environment cannot do anything else meanwhile.
"""

from __future__ import annotations

import concurrent.futures
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._shared.closing import closes_at_once
from envkit._shared.waits import result_of, wait_for_end
from envkit.blocking import Blocking
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray

__all__ = ["InBackground", "Moved", "OwnPace"]

# Seconds for which a call waits for a reset; most have finished by then.
_PATIENCE = 0.01

Calls = queue.SimpleQueue[Any]


class Moved(NamedTuple):
    """Holds the result of a step in which rows may still be resetting.

    Attributes:
        time_step: A time step with one element per row.
        valid: A mask of the rows that show something new.
        taken: A mask of the rows whose actions were used.
    """

    time_step: TimeStep | None
    valid: Array
    taken: Array


class OwnPace:
    """Holds rows that begin their episodes while others continue."""

    is_single = False

    def __init__(self, env: Any) -> None:
        """Takes an `AsyncEnvironment`."""
        self._env = env
        self._batch = Blocking(env, wait=False)
        self.rows: int = env.num_envs

    @property
    def beginning(self) -> Array:
        """A mask of the rows whose next episode has not begun yet."""
        return self._batch.resetting

    def begin(self, mask: Array | None = None) -> None:
        """Begins an episode in the masked rows, or in all, without waiting for it."""
        self._batch.reset_async(mask)

    def step(self, action: NestedArray) -> Moved:
        """Steps the rows that are in an episode, if any."""
        taken = ~self.beginning
        time_step = self._batch.step(action) if taken.any() else self._batch.poll()
        return Moved(time_step, self._batch.valid, taken)

    def poll(self) -> Moved:
        """Returns the episodes that have begun by now; no row steps."""
        nothing = np.zeros(self.rows, bool)
        return Moved(self._batch.poll(), self._batch.valid & ~nothing, nothing)

    def wait(self) -> TimeStep:
        """Waits until every row is in an episode; no row steps."""
        while self._batch.resetting.any():
            self._batch.wait()
        return self._batch.current_time_step()

    def infos(self, rows: list[int]) -> dict[int, Any]:
        """Returns the infos of rows that are in an episode, or at its end."""
        given = self._env.call("get_info", env_ids=rows)
        return dict(zip(rows, given, strict=True))

    def render(self, mode: str) -> Any:
        """Returns a picture of the first row; `None` while it is beginning."""
        if self.beginning[0]:
            return None
        if not hasattr(self._env, "render"):
            raise NotImplementedError(f"{type(self._env).__name__} has no pictures.")
        return self._env.render(mode, env_ids=[0])[0]

    def seed(self, seed: Any) -> Any:
        """Seeds the environment."""
        return self._env.seed(seed)

    def close(self) -> None:
        """Closes the environment."""
        self._batch.close()


class InBackground:
    """Holds a batch or a single environment, and resets it in a thread.

    All calls run in that thread, because some environments can render only in the
    thread that began the episode.
    """

    def __init__(self, env: Any, *, waits: bool = False) -> None:
        """Takes an environment.

        Args:
            env: The environment.
            waits: Whether to run its calls in the caller's thread instead.
        """
        self._env = env
        self.is_single = not env.batched
        self.rows: int = env.batch_size or 1
        self._thread: _Here | _Thread = _Here() if waits else _Thread()
        self.beginning = np.zeros(self.rows, bool)
        # The running call, and the rows whose time step it returns.
        self._pending: Future[TimeStep] | None = None
        self._covers = np.zeros(self.rows, bool)

    def begin(self, mask: Array | None = None) -> None:
        """Begins an episode in the masked rows, or in all, without waiting for it."""
        is_under_way = self._pending is not None and not self._pending.done()
        if mask is None and is_under_way and self.beginning.all():
            return  # a running reset is not repeated
        self.beginning = (
            np.ones(self.rows, bool) if mask is None else self.beginning | mask
        )
        self._reset()

    def _reset(self) -> None:
        """Resets the rows that are beginning, unless they must step with the others."""
        if self.beginning.all():
            self._submit(self.beginning, self._env.reset)
        elif self._env.resets_rows:
            self._submit(self.beginning, self._env.reset, self.beginning)

    def _submit(self, covers: Array, call: Callable[..., TimeStep], *args: Any) -> None:
        self._covers = covers.copy()
        self._pending = self._thread.submit(call, *args)

    def step(self, action: NestedArray) -> Moved:
        """Steps the rows that are in an episode, unless another call is running."""
        nothing = np.zeros(self.rows, bool)
        taken = nothing
        if self._pending is None and self.beginning.any():
            self._reset()  # again, because it raised the first time
        if self._pending is None:
            taken = ~self.beginning
            self._submit(taken | self.beginning, self._env.step, action)
            if taken.all():
                return Moved(self._take(), ~nothing, taken)
        pending = self._pending
        if pending and concurrent.futures.wait([pending], _PATIENCE).not_done:
            return Moved(None, nothing, taken)
        covers = self._covers
        time_step = self._take()
        others = ~covers
        if others.any() and self._env.holds_rows:
            self._submit(others, self._env.step, action, others)
            return Moved(self._take(), ~nothing, others)
        return Moved(time_step, covers, taken)

    def poll(self) -> Moved:
        """Returns the episodes that have begun by now; no row steps."""
        nothing = np.zeros(self.rows, bool)
        pending = self._pending
        is_reset = bool((self._covers <= self.beginning).all())
        if pending is None or not is_reset or not pending.done():
            return Moved(None, nothing, nothing)
        covers = self._covers
        return Moved(self._take(), covers, nothing)

    def wait(self) -> TimeStep:
        """Waits until every row is in an episode; no row steps."""
        if self._pending is None and self.beginning.any():
            self._reset()
            if self._pending is None:  # raises the reason why they cannot begin alone
                self._submit(self.beginning, self._env.reset, self.beginning)
        return self._take()

    def _take(self) -> TimeStep:
        """Waits for the running call, and returns the rows' time step."""
        pending = self._pending
        if pending is None:
            return self._with_rows(self._env.current_time_step())
        try:
            time_step = result_of(pending)
        except BaseException:
            if pending.done():
                self._pending = None
            raise
        self._pending = None
        self.beginning = self.beginning & ~self._covers
        return self._with_rows(time_step)

    def _with_rows(self, time_step: TimeStep) -> TimeStep:
        if not self.is_single:
            return time_step
        return nest.map_structure(lambda leaf: np.asarray(leaf)[None], time_step)  # type: ignore[no-any-return]

    def infos(self, rows: list[int]) -> dict[int, Any]:
        """Returns the infos of rows that are in an episode, or at its end."""
        if self._pending is not None:
            return {}
        given = result_of(self._thread.submit(self._env.get_info))
        if self.is_single:
            return {0: given}
        return {row: _row_of(given, row) for row in rows}

    def render(self, mode: str) -> Any:
        """Returns a picture of the first row; `None` while a reset is running."""
        if self._pending is not None and not self._pending.done():
            return None
        picture = result_of(self._thread.submit(self._env.render, mode))
        return picture if self.is_single or picture is None else picture[0]

    def seed(self, seed: Any) -> Any:
        """Seeds the environment after the running call."""
        return result_of(self._thread.submit(self._env.seed, seed))

    def close(self) -> None:
        """Closes the environment; waits for the running call if it cannot be ended."""
        if closes_at_once(self._env):
            self._env.close()
        else:
            result_of(self._thread.submit(self._env.close))
        self._thread.end()


class _Here:
    """Runs calls in the caller's thread."""

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def end(self) -> None:
        """Does nothing: there is no thread."""


class _Thread:
    """Runs calls in its own thread, one after the other."""

    def __init__(self) -> None:
        self._calls: Calls = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        """Queues a call for the thread."""
        if self._thread is None:
            # A daemon, because a hanging reset must not keep the program alive.
            self._thread = threading.Thread(
                target=_make_calls, args=[self._calls], name="envkit-view", daemon=True
            )
            self._thread.start()
            weakref.finalize(self, self._calls.put, None)
        future: Future[Any] = Future()
        self._calls.put((future, functools.partial(call, *args)))
        return future

    def end(self) -> None:
        """Ends the thread, after its calls."""
        if self._thread is not None:
            self._calls.put(None)
            wait_for_end(self._thread)
            self._thread, self._calls = None, queue.SimpleQueue()


def _make_calls(calls: Calls) -> None:
    while (asked := calls.get()) is not None:
        future, call = asked
        try:
            future.set_result(call())
        except BaseException as error:  # raised again when the result is read
            future.set_exception(error)
        # Otherwise this thread would keep the environment alive until the next call.
        del asked, future, call


def _row_of(infos: Any, row: int) -> Any:
    if isinstance(infos, Mapping):
        return {key: _row_of(value, row) for key, value in infos.items()}
    return infos[row]
