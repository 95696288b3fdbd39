"""Environments of clients: one each, in a thread that alone calls it.

`EnvThread` has one environment, and `EnvThreads` those of all clients of a server. So
an environment that is slow, or that hangs, delays its own client alone. Where the
server has workers it is a pool of one: when its process crashes, the episode ends with
a truncating `LAST`, and the next one is that of a new process.

Rules for editing this file:

1. An environment is made, moved and closed by its thread, since libraries for graphics
   and simulators allow no other. Only `abandon` breaks this, when the server closes and
   the thread is stuck.
2. Nobody waits here for an environment: callers get futures. Only `close` waits, for
   some seconds.
3. An environment counts until it is closed, so that those that hang count, too.
4. The lock is not held while an environment or a caller's function runs.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import numpy as np

from envkit import nest
from envkit.errors import EnvkitError
from envkit.extend import counted, flags_in
from envkit.remote.offers import Offer
from envkit.time_step import TimeStep
from envkit.types import NestedArray

__all__ = ["EnvThread", "EnvThreads", "FullError", "SingleEnv", "flags_of", "specs_of"]

Result = TypeVar("Result")

_LOGGER = logging.getLogger(__name__)
# How many seconds environments have to close when the server does.
_GRACE = 2.0


class FullError(EnvkitError):
    """As many clients have environments as the server allows."""


class SingleEnv:
    """An environment, or a batch of one row, as the same thing: one environment.

    Example:
        >>> from envkit.envs import CartPole
        >>> alone, batch = SingleEnv(CartPole()), SingleEnv(CartPole(batch_size=1))
        >>> alone.reset(seed=1).observation.shape, batch.reset(seed=1).observation.shape
        ((4,), (4,))
    """

    def __init__(self, env: Any) -> None:
        """Takes over an environment.

        Raises:
            ValueError: It is a batch of several rows.
        """
        self.env = env
        self._is_batch = bool(env.batched)
        if self._is_batch and env.batch_size != 1:
            rows = env.batch_size
            env.close()
            raise ValueError(
                f"The environment is a batch of {rows} rows, and each client has a "
                "single environment here. Serve one that is not a batch."
            )
        self._action = nest.Structure(env.action_spec())
        self._has_info = True

    def reset(self, seed: int | None = None, options: Any = None) -> TimeStep:
        """Begins an episode and returns its first time step."""
        if not self._is_batch:
            return self.env.reset(seed=seed, options=options)  # type: ignore[no-any-return]  # any environment
        seeds = None if seed is None else [seed]
        return self._row(self.env.reset(seed=seeds, options=options))

    def step(self, action: NestedArray) -> TimeStep:
        """Applies an action and returns the time step that follows."""
        # Hot: called once per step.
        if not self._is_batch:
            return self.env.step(action)  # type: ignore[no-any-return]  # likewise
        leaves = [_in_row(leaf) for leaf in self._action.flatten(action)]
        return self._row(self.env.step(self._action.unflatten(leaves)))

    def info(self) -> Any:
        """Returns what else there is to know of the time step; `{}` for nothing."""
        if not self._has_info:
            return {}
        try:
            info = self.env.get_info()
        except NotImplementedError:
            self._has_info = False
            return {}
        if not self._is_batch:
            return info
        return info[0] if isinstance(info, list) else _row_of(info)

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the environment, whatever is around it.

        Raises:
            AttributeError: It has none of that name.
        """
        if not self._is_batch:
            return getattr(self.env, name)(*arguments)
        return self.env.call(name, *arguments)[0]

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
    """Returns whether an episode was terminated, and whether it was truncated.

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
    """An environment and its thread, which runs what it is asked, one by one.

    Attributes:
        made: Is done when the environment is there, or could not be made.
        closed: Is done when the environment is closed.

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

    def ask(self, function: Callable[[SingleEnv], Result]) -> Future[Result]:
        """Lets the thread call a function with the environment."""
        future: Future[Result] = Future()
        self._requests.put((function, future))
        return future

    def close(self) -> None:
        """Lets the thread close the environment and end; does not wait for that."""
        self._requests.put(None)

    def abandon(self) -> None:
        """Closes the environment from this thread, because its own is stuck in it."""
        if not self.closed.done():
            _close(self._env)

    def _run(self, make: Callable[[], SingleEnv]) -> None:
        try:
            self._env = make()
        except BaseException as error:  # Code of an environment may raise anything.
            self.made.set_exception(error)
        else:
            self.made.set_result(None)
        while (request := self._requests.get()) is not None:
            function, future = request
            if not future.set_running_or_notify_cancel():
                continue  # The one who asked has gone.
            try:
                result = function(self._env)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            # The answer is not to be kept until the next request.
            del request, function, future
        _close(self._env)
        self.closed.set_result(None)


def _close(env: SingleEnv | None) -> None:
    try:
        if env is not None:
            env.close()
    except Exception:
        _LOGGER.warning("closing an environment raised", exc_info=True)


class EnvThreads:
    """Has an environment for each client, up to a limit.

    Without workers each client gets a new environment. With workers those that are left
    are kept for the next client, as many as there are workers, because processes take
    long to start.
    """

    def __init__(self, offer: Offer, *, most: int) -> None:
        """Makes the first environment, whose specs are those of all.

        Args:
            offer: What is served, and how many processes are kept for it, if any.
            most: How many clients may have environments at a time.
        """
        self._offer, self._most = offer, most
        self._lock = threading.Lock()
        self._used: set[EnvThread] = set()
        self._is_closed = False
        first = self._new({})
        first.made.result()
        self.env_spec = first.ask(specs_of).result()
        self._idle = [first]

    def _new(self, arguments: dict[str, Any]) -> EnvThread:
        return EnvThread(lambda: SingleEnv(self._offer.make_row(**arguments)))

    def enter(self, **arguments: Any) -> EnvThread:
        """Returns an environment for a new client, which may be in the making.

        Args:
            **arguments: What to make it with.

        Raises:
            FullError: There are too many.
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
        """Takes an environment back; the future is done when there is room for another.

        Args:
            thread: The environment.
            keep: Whether it can be kept for another client.
        """
        room: Future[None] = Future()
        room.set_running_or_notify_cancel()  # Nobody can cancel it.
        with self._lock:
            is_used = thread in self._used
            missing = (self._offer.num_workers or 0) - len(self._idle)
            is_kept = is_used and keep and missing > 0 and not self._is_closed
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
        """Closes all environments; waits some seconds for those that are busy."""
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
