"""`Sessions`: environments in workers, leased to coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import numbers
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from envkit.errors import CallOrderError, ClosedError, WorkerError
from envkit.extend import checked_size, describe
from envkit.parallel import AsyncParallelPyEnvironment, RestartPolicy
from envkit.parallel.backends.base import Backend
from envkit.registry import constructor
from envkit.seeding import checked_seeds
from envkit.sessions.counts import SessionCounts
from envkit.sessions.driver import Answer, Driver, Request, ignore, settle
from envkit.sessions.leases import Group, Lease, Queue
from envkit.sessions.session import Session, Slot, Turn
from envkit.sessions.tools import Tool, declared_tools
from envkit.time_step import AutoReset
from envkit.types import EnvConstructor, NestedSpec

__all__ = ["SessionStatistics", "Sessions"]

_Opened: TypeAlias = tuple[AsyncParallelPyEnvironment, tuple[Tool, ...]]

# Seconds for idle environments to close.
_GRACE = 1.0
# Seconds to wait for the thread after that: it ends at once, or it waits for workers
# and is interrupted, which is safest while it waits.
_PATIENCE = 0.5
# How often to look for idle sessions within `idle_timeout`.
_IDLE_LOOKS = 10


@dataclass(frozen=True, slots=True)
class SessionStatistics:
    """What the sessions do now, and have done so far.

    Attributes:
        size: How many environments there are; fewer than at the start if some were
            lost for good.
        free: How many nobody has.
        leased: How many sessions there are.
        busy: How many environments are answering a call, for a session or for one that
            has left.
        waiting: How many coroutines wait for a lease.
        leases: How many sessions there have been.
        steps: How many steps they have made.
        episodes: How many episodes have ended, lost ones not included.
        lost: How many episodes were lost with their environments.
        reclaimed: How many sessions were taken back because they were idle.
    """

    size: int
    free: int
    leased: int
    busy: int
    waiting: int
    leases: int
    steps: int
    episodes: int
    lost: int
    reclaimed: int


class Sessions:
    """Environments in workers, each leased to one coroutine at a time.

    The event loop is never blocked: one thread moves all environments. Each of them has
    its own worker, a thread or a process, unless `num_workers` says otherwise; those of
    one worker wait for each other.

    Example:
        >>> import asyncio
        >>> async def play():
        ...     async with Sessions("GridWorld", size=4) as sessions:
        ...         async with sessions.lease(seed=1) as session:
        ...             turn = await session.reset()
        ...             turn = await session.step(3)
        ...             return turn.steps, turn.end
        >>> asyncio.run(play())
        (1, None)
    """

    def __init__(
        self,
        target: str | EnvConstructor,
        size: int,
        *,
        backend: str | Backend = "thread",
        num_workers: int | None = None,
        start_timeout: float | None = None,
        reset_timeout: float | None = None,
        step_timeout: float | None = None,
        idle_timeout: float | None = None,
        restart: RestartPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepares to start; `async with` starts the workers.

        Args:
            target: The environments: a name that `make` knows, or a constructor.
            size: How many there are.
            backend: Where they run: "thread" is right for environments that wait, for a
                browser or another program; "process" for those that compute, or may
                crash; and every other backend of pools.
            num_workers: How many workers share them; one for each by default.
            start_timeout: Seconds in which an environment must be built.
            reset_timeout: Seconds in which a reset must end; then the environment is
                lost.
            step_timeout: Seconds in which a step must end; then the environment is
                lost.
            idle_timeout: Seconds after which a session that nobody calls is taken back;
                its next call raises `SessionEnded`.
            restart: How often a lost environment is replaced; by default as often as a
                `RestartPolicy()` allows. Once that is used up, or more resets in a row
                than its `max_restarts` have failed, the other environments serve alone.
            **kwargs: Arguments of the environments. One that has a name of the above
                goes into the target: `envkit.constructor("GridWorld", size=5)`.
        """
        self._size = checked_size("size", size)
        _check_seconds("idle_timeout", idle_timeout)
        # A name alone goes to the pool as it is: with some backends, a server knows it.
        is_name = isinstance(target, str) and not kwargs
        one = target if is_name else constructor(target, **kwargs)
        self._target = target
        policy = RestartPolicy() if restart is None else restart
        if not isinstance(policy, RestartPolicy):
            raise TypeError(f"restart must be a RestartPolicy, got {describe(policy)}.")
        self._max_restarts = policy.max_restarts
        # Holds nothing of this object, which the thread must not keep alive.
        self._make_pool = functools.partial(
            AsyncParallelPyEnvironment,
            [one] * self._size,
            backend=backend,
            num_workers=self._size if num_workers is None else num_workers,
            autoreset=AutoReset.DISABLED,
            on_worker_failure=policy,
            start_timeout=start_timeout,
            reset_timeout=reset_timeout,
            step_timeout=step_timeout,
        )
        self.idle_timeout = idle_timeout
        self.tools: tuple[Tool, ...] = ()
        self._state = "new"
        self._queue = Queue()
        self._slots: list[Slot] = []
        # The sessions of leased slots; a session that nobody holds gives its slot back.
        self._sessions: dict[int, weakref.ref[Session]] = {}
        self._reaper: asyncio.TimerHandle | None = None
        self._last_error: Exception | None = None
        self._leases = self._reclaimed = 0
        # The counts since the beginning, and those of each `Progress`.
        self._counting: list[SessionCounts] = []
        self._counts = SessionCounts(self._counting)
        self._counts.start(lambda: math.inf)

    # Opening and closing.

    async def __aenter__(self) -> Sessions:
        await self.open()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def open(self) -> None:
        """Starts the workers, and waits until every environment is built.

        Raises:
            WorkerError: An environment could not be built.
        """
        if self._state != "new":
            raise CallOrderError(
                "Sessions are opened once: make others with Sessions(...)."
            )
        self._state = "open"
        self._loop = loop = asyncio.get_running_loop()
        opened: asyncio.Future[_Opened] = loop.create_future()
        hear = functools.partial(settle, opened)
        make = functools.partial(_open, self._make_pool, self._size)
        call_soon = loop.call_soon_threadsafe
        self._driver = driver = Driver(make, call_soon, self._max_restarts)
        # Nothing that the thread holds leads to this object, so a program that forgets
        # to close it leaves no thread behind.
        self._finalizer = weakref.finalize(self, driver.close, _GRACE)
        driver.start(hear, functools.partial(_end, weakref.ref(self)))
        try:
            self._pool, self.tools = await opened
        except BaseException:
            # Processes are killed, and threads end when their constructors return.
            await self.close(0.0)
            raise
        self._slots = [Slot(row) for row in range(self._size)]
        for slot in self._slots:
            self._queue.add(slot)
        self._watch_idle()

    async def close(self, grace: float = _GRACE) -> None:
        """Ends all sessions and closes the environments; again, it does nothing.

        It does not wait for steps that still run: processes are killed, and a thread
        ends with its step.

        Args:
            grace: Seconds for environments to close.
        """
        if self._state == "new":
            self._state = "closed"
            return
        if self._state == "open":
            self._end_all()
            self._driver.close(grace)
        ended = asyncio.wrap_future(self._driver.ended)
        await asyncio.wait([ended], timeout=grace + _PATIENCE)
        if not ended.done():  # An environment holds up the thread itself.
            self._driver.interrupt()
            await asyncio.wait([ended], timeout=grace + _PATIENCE)

    def _end_all(self) -> None:
        self._state = "closed"
        if self._reaper is not None:
            self._reaper.cancel()
        for session in self._live():
            session.end("closed")
        self._queue.refuse(_closed_meanwhile)
        self._finalizer.detach()

    # Leases.

    def lease(self, *, seed: int | None = None, timeout: float | None = None) -> Lease:
        """Leases an environment, as soon as one is free.

        Coroutines are served in the order in which they came.

        Args:
            seed: The seed of the first episode.
            timeout: Seconds to wait for an environment.

        Returns:
            A context manager: `async with sessions.lease() as session`.

        Raises:
            LeaseTimeout: No environment became free in time.
        """
        _check_seconds("timeout", timeout, may_be_zero=True)
        (seed,) = checked_seeds(seed, 1)
        return Lease(self, seed, timeout)

    def group(self, *, seed: int, size: int, timeout: float | None = None) -> Group:
        """Leases several environments, for attempts at the same episode.

        Args:
            seed: The seed of the episode.
            size: How many attempts there are; they may be more than environments.
            timeout: Seconds for each of them to wait for an environment.

        Returns:
            A group: `await group.run(attempt)` runs a coroutine function with each
            member, `async for session in group` yields the members one by one, and
            `async with group as sessions` waits until all have an environment.
        """
        _check_seconds("timeout", timeout, may_be_zero=True)
        if seed is None:
            raise TypeError(
                "A group must have a seed, so that its members attempt the same "
                "episode; got None."
            )
        checked_seeds(seed, 1)
        return Group(self, seed, checked_size("size", size), timeout)

    async def acquire(
        self,
        seeds: Sequence[int | None],
        timeout: float | None,
        *,
        has_one_episode: bool = False,
    ) -> list[Session]:
        """Waits for free environments, and returns sessions with them.

        `lease` and `group` call it.
        """
        self._check_open("lease", asyncio.get_running_loop())
        count = len(seeds)
        alive = self._alive()
        if count > alive:
            raise self._too_few(count, alive)
        slots = await self._queue.take(count, timeout)
        return [
            self._session(slot, seed, has_one_episode)
            for slot, seed in zip(slots, seeds, strict=True)
        ]

    def _session(self, slot: Slot, seed: int | None, has_one_episode: bool) -> Session:
        slot.session += 1
        self._leases += 1
        session = Session(self, slot, seed, has_one_episode=has_one_episode)
        row, number = slot.row, slot.session
        owner = weakref.ref(self)

        def dropped(_: weakref.ref[Session]) -> None:
            # In whichever thread collects garbage.
            with contextlib.suppress(RuntimeError):
                call_soon(_take_back, owner, row, number)

        call_soon = self._loop.call_soon_threadsafe
        self._sessions[row] = weakref.ref(session, dropped)
        return session

    def _too_few(self, count: int, alive: int) -> Exception:
        if alive == self._size:
            return ValueError(
                f"{count} environments were asked for at once, and there are {alive}: "
                "pass a larger size to Sessions."
            )
        return WorkerError(
            f"{self._size - alive} of {self._size} environments were lost for good, so "
            f"{count} cannot be leased any more. The last error was: "
            f"{self._last_error}"
        )

    # What sessions ask for.

    def submit(self, slot: Slot, request: Request) -> None:
        """Sends a session's request to its environment."""
        call = "reset" if request.is_reset else "step"
        self._check_open(call, asyncio.get_running_loop())
        if slot.is_gone:
            raise WorkerError(
                "The session's environment was lost for good: take another lease. The "
                f"last error was: {self._last_error}"
            )
        self._send(slot, request)

    def _send(self, slot: Slot, request: Request) -> None:
        answered = request.answered

        def received(answer: Answer | BaseException) -> None:
            if slot.running is request:
                slot.running = None
            if isinstance(answer, Answer):
                is_of_session = answered is not ignore
                self._look_for_loss(slot, answer, is_of_session, request.is_reset)
            answered(answer)
            if slot.row not in self._sessions:
                self._put_back(slot)

        request.answered = received
        slot.running = request
        self._driver.submit(request)

    def release(self, slot: Slot) -> None:
        """Takes a slot back; it is free once its environment has answered."""
        self._sessions.pop(slot.row, None)
        self._put_back(slot)

    def count(self, turn: Turn, losses: int) -> None:
        """Counts a turn, and the losses that came with it."""
        for counts in self._counting:
            counts.add(turn, losses)

    def _put_back(self, slot: Slot) -> None:
        if self._state != "open" or slot.running is not None or slot.is_gone:
            return
        if slot.is_lost:
            # Another environment is on its way, and may not come.
            slot.is_lost = False
            self._send(slot, Request(slot.row, ignore, is_reset=True))
        else:
            self._queue.add(slot)

    def _look_for_loss(
        self, slot: Slot, answer: Answer, is_of_session: bool, is_reset: bool
    ) -> None:
        # If the reset for the next session fails too, that session sees the error.
        slot.is_lost = answer.loss is not None and is_of_session
        if answer.loss is None:
            slot.failed_resets *= not (is_of_session and is_reset)
            return
        self._last_error = answer.loss.error
        slot.failed_resets += is_of_session and is_reset
        if answer.is_gone or slot.failed_resets > self._max_restarts:
            slot.is_gone = True
            alive = self._alive()
            self._queue.refuse(lambda: self._too_few(alive + 1, alive), most=alive)

    def _alive(self) -> int:
        return sum(not slot.is_gone for slot in self._slots)

    # Idle sessions.

    def _live(self) -> list[Session]:
        found = [ref() for ref in self._sessions.values()]
        return [session for session in found if session is not None]

    def _watch_idle(self) -> None:
        if self.idle_timeout is not None:
            pause = self.idle_timeout / _IDLE_LOOKS
            self._reaper = self._loop.call_later(pause, _reap, weakref.ref(self))

    def _reap(self) -> None:
        # Looks are counted and no seconds: while something holds up the event loop, no
        # coroutine can call its session.
        for session in self._live():
            session.idle_looks = 0 if session.is_busy else session.idle_looks + 1
            if session.idle_looks > _IDLE_LOOKS:
                self._reclaimed += 1
                session.end("idle")
        self._watch_idle()

    # Facts.

    @property
    def size(self) -> int:
        """How many environments there are."""
        return self._size

    def action_spec(self) -> NestedSpec:
        """Returns the spec of one environment's actions."""
        self._check_open("action_spec")
        return self._pool.action_spec()

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of one environment's observations."""
        self._check_open("observation_spec")
        return self._pool.observation_spec()

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one environment's rewards."""
        self._check_open("reward_spec")
        return self._pool.reward_spec()

    def statistics(self) -> SessionStatistics:
        """Returns what the sessions do now, and have done so far."""
        self._check_open("statistics")
        return SessionStatistics(
            size=self._alive(),
            free=len(self._queue.free),
            leased=len(self._sessions),
            busy=sum(slot.running is not None for slot in self._slots),
            waiting=self._queue.waiting,
            leases=self._leases,
            steps=self._counts.steps,
            episodes=self._counts.episodes,
            lost=self._counts.lost,
            reclaimed=self._reclaimed,
        )

    def progress_source(self) -> SessionCounts:
        """Returns what counts for `envkit.progress`, which calls it."""
        return SessionCounts(self._counting)

    def __repr__(self) -> str:
        return f"<Sessions of {self._size} {self._target!r}, {self._state}>"

    def _check_open(
        self, call: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        if self._state == "new":
            raise CallOrderError(
                f"{call}() was called before the sessions were opened: use "
                "`async with Sessions(...) as sessions`."
            )
        if self._state == "closed":
            raise ClosedError.used("Sessions", call)
        if loop is not None and loop is not self._loop:
            raise CallOrderError(
                f"{call}() was called in another event loop than the one in which the "
                "sessions were opened: open others in this one."
            )


def _check_seconds(name: str, value: Any, *, may_be_zero: bool = False) -> None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if value is None or (is_number and (value > 0 or (may_be_zero and value == 0))):
        return
    what = (
        "number of seconds, 0 or more" if may_be_zero else "positive number of seconds"
    )
    raise ValueError(
        f"{name} must be a {what}, or None for no limit, got {describe(value)}."
    )


def _open(make_pool: Callable[[], AsyncParallelPyEnvironment], size: int) -> _Opened:
    """Makes the pool, refuses environments that are batches, and finds their tools."""
    pool = make_pool()
    try:
        if pool.num_envs != size:
            raise ValueError(
                f"{size} environments have {pool.num_envs} rows, and a session is one "
                "row: each environment must be a single one, not a batch."
            )
        return pool, declared_tools(pool)
    except BaseException:
        pool.close(0.0)
        raise


def _end(owner: weakref.ref[Sessions]) -> None:
    """Ends the sessions whose thread has ended, even if nobody has closed them."""
    sessions = owner()
    if sessions is not None and sessions._state == "open":
        sessions._end_all()


def _take_back(owner: weakref.ref[Sessions], row: int, number: int) -> None:
    """Takes the slot of a session back that nobody holds any more."""
    sessions = owner()
    if sessions is None or row not in sessions._sessions:
        return
    slot = sessions._slots[row]
    if slot.session == number:
        sessions.release(slot)


def _reap(owner: weakref.ref[Sessions]) -> None:
    sessions = owner()
    if sessions is not None:
        sessions._reap()


def _closed_meanwhile() -> BaseException:
    return ClosedError("The sessions were closed while a lease was waited for.")
