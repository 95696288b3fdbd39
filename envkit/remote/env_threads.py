"""Runs each client's environment in its own thread.

`EnvThread` runs one environment, `EnvThreads` the environments of all clients of a
server. So a slow or hanging environment delays only its own client. On a server with
workers, each environment is a pool of one: when its process crashes, the episode ends
with an `EnvironmentLostError`, and the next episode runs in a new process.

Rules for editing this file:

1. An environment is made, moved and closed by its own thread, because libraries for
   graphics and simulators allow no other. Only `abandon` breaks this rule, when the
   server closes and the thread is stuck.
2. Nothing here waits for an environment: callers get futures. Only `close` waits, for a
   few seconds.
3. An environment counts until it is closed, so hanging ones count too.
4. The lock is not held while an environment or a caller's function runs.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import numpy as np

from envkit import nest
from envkit.errors import EnvkitError, WorkerError
from envkit.extend import counted, flags_in, may_lose
from envkit.losses import Loss
from envkit.remote.losses import EnvironmentLostError, loss_of
from envkit.remote.offers import Offer
from envkit.sessions.tools import Tool
from envkit.time_step import TimeStep
from envkit.types import NestedArray

__all__ = [
    "EnvThread",
    "EnvThreads",
    "FullError",
    "LoopAnswers",
    "SingleEnv",
    "flags_of",
    "specs_of",
]

Result = TypeVar("Result")

_LOGGER = logging.getLogger(__name__)
# Seconds that environments have to close when the server closes.
_GRACE = 2.0


class FullError(EnvkitError):
    """The server has no room for another environment."""


class SingleEnv:
    """Presents a single environment or a batch of one row as a single environment.

    However the environment is lost, by an exception or because something inside it is
    gone, `EnvironmentLostError` is raised: there is no made-up end.

    Attributes:
        env: The environment.
        is_lost: Whether it is lost, and no reset has begun another episode.

    Example:
        >>> from envkit.envs import CartPole
        >>> alone, batch = SingleEnv(CartPole()), SingleEnv(CartPole(batch_size=1))
        >>> alone.reset(seed=1).observation.shape, batch.reset(seed=1).observation.shape
        ((4,), (4,))
    """

    def __init__(self, env: Any) -> None:
        """Takes over an environment.

        Raises:
            ValueError: It is a batch with several rows.
        """
        self.env, self.is_lost = env, False
        self._is_batch = bool(env.batched)
        if self._is_batch and env.batch_size != 1:
            rows = env.batch_size
            env.close()
            raise ValueError(
                f"The environment is a batch of {rows} rows, and each client has a "
                "single environment here. Serve a single environment."
            )
        self._action = nest.Structure(env.action_spec())
        self._has_info = True
        self._may_lose = may_lose(env)

    def reset(self, seed: int | None = None, options: Any = None) -> TimeStep:
        """Resets the environment and returns the first time step.

        Raises:
            EnvironmentLostError: It has raised, or is lost.
            NotImplementedError: It takes no seed, or no options.
        """
        seeds: Any = [seed] if self._is_batch and seed is not None else seed
        try:
            time_step: TimeStep = self.env.reset(seed=seeds, options=options)
        except NotImplementedError:
            raise
        except BaseException as error:  # environments may raise anything
            raise self._lost(loss_of(error, "reset_failed")) from error
        self.is_lost = False
        return self._row(time_step) if self._is_batch else time_step

    def step(self, action: NestedArray) -> TimeStep:
        """Applies an action and returns the next time step.

        Raises:
            EnvironmentLostError: It has raised, or is lost.
        """
        # Hot: called once per step.
        try:
            if self._is_batch:
                leaves = [_in_row(leaf) for leaf in self._action.flatten(action)]
                action = self._action.unflatten(leaves)
                time_step = self._row(self.env.step(action))
            else:
                time_step = self.env.step(action)
        except BaseException as error:  # likewise
            raise self._lost(loss_of(error, "raised")) from error
        if self._may_lose and time_step.is_last():
            for loss in self.env.current_losses().values():
                raise self._lost(loss)
        return time_step

    def info(self) -> Any:
        """Returns the info of the time step, `{}` if there is none.

        Raises:
            EnvironmentLostError: It has raised, or is lost.
        """
        if not self._has_info:
            return {}
        try:
            info = self.env.get_info()
        except NotImplementedError:
            self._has_info = False
            return {}
        except BaseException as error:  # likewise
            raise self._lost(loss_of(error, "raised")) from error
        if not self._is_batch:
            return info
        return info[0] if isinstance(info, list) else _row_of(info)

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the environment inside all wrappers.

        Raises:
            AttributeError: It has no such method.
        """
        if not self._is_batch:
            return getattr(self.env, name)(*arguments)
        return self.env.call(name, *arguments)[0]

    def tools(self) -> tuple[Tool, ...]:
        """Returns the tools that the environment declares."""
        try:
            if self._is_batch:
                (found,) = self.env.access("tools")
            else:
                found = getattr(self.env, "tools", ())
        except (AttributeError, WorkerError):  # it has no such attribute
            return ()
        is_many = isinstance(found, tuple | list)
        is_ours = is_many and all(isinstance(tool, Tool) for tool in found)
        return tuple(found) if is_ours else ()

    def _lost(self, loss: Loss) -> EnvironmentLostError:
        self.is_lost = True
        return EnvironmentLostError(loss)

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    @staticmethod
    def _row(time_step: TimeStep) -> TimeStep:
        return nest.map_structure(_row_of, time_step)  # type: ignore[no-any-return]


def _in_row(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and leaf.dtype == object and leaf.shape == ():
        row = np.empty(1, object)
        row[0] = leaf[()]
        return row
    return np.asarray(leaf)[None]


def _row_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _row_of(child) for key, child in value.items()}
    return value[0, ...] if isinstance(value, np.ndarray) else value[0]


def flags_of(time_step: TimeStep, info: Any) -> tuple[bool, bool]:
    """Returns whether an episode was terminated and whether it was truncated.

    Example:
        >>> from envkit.time_step import termination, truncation
        >>> flags_of(termination(0, 0.0), {}), flags_of(truncation(0, 0.0), {})
        ((True, False), (False, True))
    """
    if not time_step.is_last():
        return False, False
    flags = flags_in(info) if isinstance(info, dict) else None
    if flags is not None:
        return bool(flags[0]), bool(flags[1])
    is_terminated = not np.any(time_step.discount)
    return is_terminated, not is_terminated


class EnvThread:
    """An environment and its thread, which runs requests one at a time.

    Attributes:
        made: Done when the environment has been made, or could not be made.
        closed: Done when the environment is closed.

    Example:
        >>> thread = EnvThread(lambda: SingleEnv(Offer("CartPole").make()))
        >>> thread.ask(lambda env: env.reset(seed=1)).result().observation.shape
        (4,)
        >>> thread.close()
    """

    def __init__(self, make: Callable[[], SingleEnv]) -> None:
        """Starts the thread, which makes the environment."""
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._env: SingleEnv | None = None
        self.made: Future[None] = Future()
        self.closed: Future[None] = Future()
        # A daemon, because an environment that hangs must not keep the server alive.
        threading.Thread(
            target=self._run, args=(make,), daemon=True, name="envkit-environment"
        ).start()

    @property
    def is_lost(self) -> bool:
        """Whether there is no environment, or it is lost and was not reset since."""
        return self._env is None or self._env.is_lost

    def ask(self, function: Callable[[SingleEnv], Result]) -> Future[Result]:
        """Queues a function for the thread to call with the environment."""
        future: Future[Result] = Future()
        self.run(functools.partial(_answer, function, future))
        return future

    def run(self, function: Callable[[SingleEnv], None]) -> None:
        """Queues a function that answers by itself, and raises nothing."""
        self._requests.put(function)

    def close(self) -> None:
        """Tells the thread to close the environment and end; returns at once."""
        self._requests.put(None)

    def abandon(self) -> None:
        """Closes the environment from this thread, because its own thread is stuck."""
        if not self.closed.done():
            _close(self._env)

    def _run(self, make: Callable[[], SingleEnv]) -> None:
        try:
            self._env = make()
        except BaseException as error:  # environments may raise anything
            self.made.set_exception(error)
        else:
            self.made.set_result(None)
        while (function := self._requests.get()) is not None:
            function(self._env)
            del function  # do not keep it alive until the next request
        _close(self._env)
        self.closed.set_result(None)


def _answer(
    function: Callable[[SingleEnv], Result], future: Future[Result], env: SingleEnv
) -> None:
    if not future.set_running_or_notify_cancel():
        return  # the caller has cancelled it
    try:
        result = function(env)
    except BaseException as error:
        future.set_exception(error)
        del future  # which would keep itself alive by the traceback
    else:
        future.set_result(result)


class LoopAnswers:
    """Brings the answers of environments' threads to an event loop.

    Waking a loop takes system calls in both threads. So one wake-up brings all answers
    that have come until then.
    """

    def __init__(self) -> None:
        """Starts without answers."""
        self._ready: collections.deque[Any] = collections.deque()
        self._is_woken = False

    def ask(
        self, thread: EnvThread, function: Callable[[SingleEnv], Result]
    ) -> asyncio.Future[Result]:
        """Works like `thread.ask`, for the running event loop.

        The function is called even if the future is cancelled.
        """
        # Hot: called once per step.
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def answer(env: SingleEnv) -> None:
            try:
                self._put(future, future.set_result, function(env))
            except BaseException as error:
                self._put(future, future.set_exception, error)

        thread.run(answer)
        return future

    def _put(
        self, future: asyncio.Future[Any], settle: Callable[[Any], None], result: Any
    ) -> None:
        self._ready.append((future, settle, result))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                future.get_loop().call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False  # first, so that no later answer is left behind
        while self._ready:
            future, settle, result = self._ready.popleft()
            if not future.done():
                settle(result)


def _close(env: SingleEnv | None) -> None:
    try:
        if env is not None:
            env.close()
    except Exception:
        _LOGGER.warning("closing an environment raised", exc_info=True)


class EnvThreads:
    """Gives each client an environment, up to a limit.

    Without workers, each client gets a new environment. With workers, returned
    environments are kept for the next client, up to the number of workers, because
    processes are slow to start.
    """

    def __init__(self, offer: Offer, *, most: int) -> None:
        """Makes the first environment, whose specs apply to all.

        Args:
            offer: The environment to serve, and the number of processes kept for it.
            most: The maximum number of environments at a time.
        """
        self._offer, self._most = offer, most
        self._lock = threading.Lock()
        self._used: set[EnvThread] = set()
        self._is_closed = False
        first = self._new({})
        first.made.result()
        self.env_spec = first.ask(specs_of).result()
        self.tools = first.ask(SingleEnv.tools).result()
        self._idle = [first]

    def _new(self, arguments: dict[str, Any]) -> EnvThread:
        return EnvThread(lambda: SingleEnv(self._offer.make_row(**arguments)))

    def enter(self, **arguments: Any) -> EnvThread:
        """Returns an environment for a new client, perhaps before it has been made.

        Args:
            **arguments: The client's arguments for the constructor.

        Raises:
            FullError: The limit is reached, or the server is stopping.
        """
        with self._lock:
            if self._is_closed:
                raise FullError("The server is stopping.")
            if len(self._used) >= self._most:
                raise FullError(
                    f"The server has room for {counted(self._most, 'session')}, and "
                    "all are taken. Try again when one has ended."
                )
            is_usual = self._idle and not arguments
            thread = self._idle.pop() if is_usual else self._new(arguments)
            self._used.add(thread)
        return thread

    def leave(self, thread: EnvThread, *, keep: bool = True) -> Future[None]:
        """Takes back an environment; the future is done when there is room for another.

        Args:
            thread: The environment.
            keep: Whether another client may get it, if it is not lost.
        """
        room: Future[None] = Future()
        room.set_running_or_notify_cancel()  # nobody can cancel it
        with self._lock:
            is_used = thread in self._used
            missing = (self._offer.num_workers or 0) - len(self._idle)
            keep = keep and not thread.is_lost and missing > 0
            is_kept = is_used and keep and not self._is_closed
            if is_kept:
                self._used.discard(thread)
                self._idle.append(thread)
        if is_kept or not is_used:
            room.set_result(None)
            return room

        def forget(_: Future[None]) -> None:
            with self._lock:
                self._used.discard(thread)
            room.set_result(None)

        thread.closed.add_done_callback(forget)
        thread.close()
        return room

    def close(self) -> None:
        """Closes all environments; waits a few seconds for busy ones."""
        with self._lock:
            self._is_closed = True
            threads = {thread.closed: thread for thread in (*self._used, *self._idle)}
            self._idle.clear()
        for thread in threads.values():
            thread.close()
        for busy in wait(threads, _GRACE).not_done:
            threads[busy].abandon()


def specs_of(env: SingleEnv) -> Any:
    """Returns the specs of an environment, as an `EnvironmentSpec`."""
    return env.env.environment_spec()
