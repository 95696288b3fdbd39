"""`Session` and `Turn`: one environment in the hands of one coroutine."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from envkit.errors import CallOrderError, EnvkitError
from envkit.extend import describe
from envkit.losses import Loss
from envkit.sessions.driver import Answer, Request, ignore, settle
from envkit.sessions.texts import text_of
from envkit.sessions.tools import Tool, call_text
from envkit.time_step import StepType
from envkit.types import NestedArray

__all__ = [
    "Owner",
    "Session",
    "SessionEnded",
    "SessionLost",
    "Slot",
    "Turn",
    "unless_lost",
]


class SessionEnded(EnvkitError, RuntimeError):
    """A session was used after its lease was over.

    Attributes:
        reason: Why it is over: "released", "idle", "attempted" or "closed".
    """

    reason: str = ""


class SessionLost(EnvkitError, RuntimeError):
    """A session's environment was lost, so its episode is no sample.

    Trainers get it as an error; a session itself shows the loss in its `turn`.

    Attributes:
        loss: What was lost.
    """

    loss: Loss

    @classmethod
    def of(cls, loss: Loss) -> SessionLost:
        """Builds the error of a loss."""
        reason = str(loss.error).partition("\n")[0] or type(loss.error).__name__
        error = cls(f"The environment was lost ({loss.kind}): {reason}")
        error.loss = loss
        return error


_ENDINGS = {
    "released": "Its lease is over: take another one with sessions.lease().",
    "idle": (
        "It was taken back because nobody called it for idle_timeout={idle:g} seconds. "
        "Take another lease, or pass a longer idle_timeout."
    ),
    "attempted": (
        "Its episode has ended, and a member of a group has one: take another group, "
        "or a lease for several episodes."
    ),
    "closed": "The sessions were closed.",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What an environment shows before the next action.

    Attributes:
        observation: The observation, as the environment gave it.
        text: The part of it that is for the model.
        reward: The reward of the last action; 0 after a reset, and NaN if the
            environment was lost.
        total: The sum of the episode's rewards so far; NaN if the environment was lost.
        discount: The discount; 0 if the episode has terminated.
        end: `None` while the episode goes on; then "terminated", "truncated", or the
            `Loss` that cut it short.
        info: The info of the environment.
        steps: How many steps the episode has had.
    """

    observation: NestedArray
    text: str
    reward: Any
    total: Any
    discount: Any = 1.0
    end: str | Loss | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether the environment was lost, so that the episode is no sample."""
        return isinstance(self.end, Loss)


def unless_lost(turn: Turn) -> Turn:
    """Returns a turn; raises `SessionLost` if the environment was lost."""
    if isinstance(turn.end, Loss):
        raise SessionLost.of(turn.end)
    return turn


@dataclass(slots=True, eq=False)
class Slot:
    """A row of the pool, which one session at a time has.

    Attributes:
        row: Its number.
        running: The request that the row has not answered yet, if there is one.
        session: A number that grows with each lease.
        is_lost: Whether its environment was lost, and must be reset before another
            session has it.
        is_gone: Whether its environment was lost for good.
        failed_resets: How many resets of sessions have been lost, one after another.
    """

    row: int
    running: Request | None = None
    session: int = 0
    is_lost: bool = False
    is_gone: bool = False
    failed_resets: int = 0


class Owner(Protocol):
    """What a session asks of `Sessions`."""

    tools: tuple[Tool, ...]
    idle_timeout: float | None

    def submit(self, slot: Slot, request: Request) -> None:
        """Sends a request to the slot's environment."""

    def release(self, slot: Slot) -> None:
        """Takes a slot back."""

    def count(self, turn: Turn, losses: int) -> None:
        """Counts a turn, and the losses that came with it."""


class Session:
    """One environment, for as long as its lease lasts.

    Example:
        >>> import asyncio
        >>> from envkit.sessions import Sessions
        >>> async def play():
        ...     async with Sessions("Catch", size=2) as sessions:
        ...         async with sessions.lease(seed=7) as session:
        ...             turn = await session.reset()
        ...             while turn.end is None:
        ...                 turn = await session.step(1)
        ...             return turn.end, turn.steps, turn.total
        >>> asyncio.run(play())
        ('terminated', 9, -1.0)
    """

    def __init__(
        self, owner: Owner, slot: Slot, seed: int | None, *, has_one_episode: bool
    ) -> None:
        """Takes a free slot; use `Sessions.lease` or `Sessions.group` to make one."""
        self._owner = owner
        self._slot = slot
        self._seed = seed
        self._has_one_episode = has_one_episode
        self._ended_by = ""
        self._turn: Turn | None = None
        self._has_begun = False
        self._losses: list[Loss] = []
        # Calls under way: one, and a reset may wait behind it.
        self._calls: dict[Request, asyncio.Future[Answer]] = {}
        # How often `Sessions` has found it idle since its last call.
        self.idle_looks = 0

    @property
    def seed(self) -> int | None:
        """The seed of the lease, which its first episode has."""
        return self._seed

    @property
    def turn(self) -> Turn:
        """The last turn.

        Raises:
            CallOrderError: There is none before the first reset.
        """
        if self._turn is None:
            raise CallOrderError(
                "The session has no turn yet: call `await session.reset()` first."
            )
        return self._turn

    @property
    def losses(self) -> Sequence[Loss]:
        """The losses in this lease, the oldest first.

        A lost reset is repeated with its seed, so not each of them has cost an episode.
        """
        return tuple(self._losses)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the environment declares."""
        return self._owner.tools

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, until its coroutine has the answer."""
        is_answering = self._slot.running is not None or bool(self._calls)
        return is_answering and not self._ended_by

    async def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> Turn:
        """Begins an episode, and returns its first turn.

        A call that still runs, because its coroutine was cancelled, ends first. A reset
        that was cancelled or lost began no episode.

        Args:
            seed: The seed of the episode. Without it, the first episode has the seed of
                the lease, and later ones go on with the random numbers that follow.
            options: Options of this reset, as the environment's `reset` takes them.

        Raises:
            WorkerError: The environment was lost for good, and the last turn told it.
        """
        self._check_open("reset")
        if not isinstance(options, Mapping | None):
            raise TypeError(f"options must be a dictionary, got {describe(options)}.")
        if seed is None and not self._has_begun:
            seed = self._seed
        self._turn = None
        answer = await self._ask(
            Request(self._slot.row, ignore, is_reset=True, seed=seed, options=options)
        )
        return self._adopt(answer, 0, 0.0)

    async def step(self, action: NestedArray) -> Turn:
        """Makes a step with an action, and returns the next turn.

        Raises:
            CallOrderError: The episode has not begun or has ended, or another call of
                this session still runs.
            SpecError: The action does not fit the environment's action spec.
        """
        self._check_open("step")
        turn = self._turn
        if self.is_busy:
            raise CallOrderError(
                "step() was called while the environment still answers an earlier "
                "call. Await that call; if it was cancelled, begin again with reset()."
            )
        if turn is None or turn.end is not None:
            when = "before the episode began" if turn is None else "after its end"
            raise CallOrderError(
                f"step() was called {when}: call `await session.reset()` first."
            )
        answer = await self._ask(Request(self._slot.row, ignore, action=action))
        return self._adopt(answer, turn.steps + 1, turn.total)

    async def call(self, tool: str, /, **arguments: Any) -> Turn:
        """Uses one of the environment's tools: a step whose action is the call.

        Args:
            tool: The name of the tool, one of `tools`.
            **arguments: Its arguments.

        Raises:
            LookupError: The environment has no such tool.
            TypeError: The arguments do not fit the tool's schema.
        """
        return await self.step(call_text(self.tools, tool, arguments))

    def release(self) -> None:
        """Gives the environment back; calling it again does nothing."""
        self.end("released")

    def end(self, reason: str) -> None:
        """Ends the lease, for the reason that later calls name."""
        if not self._ended_by:
            self._ended_by = reason
            for request, future in self._calls.items():
                request.is_dropped = True
                settle(future, self._error("A call was under way when"))
            self._owner.release(self._slot)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.release()

    def __repr__(self) -> str:
        state = self._ended_by or ("busy" if self.is_busy else "waiting")
        return f"<Session of row {self._slot.row}, {state}>"

    def _check_open(self, call: str) -> None:
        self.idle_looks = 0
        if self._ended_by:
            raise self._error(f"{call}() was called after")

    def _error(self, when: str) -> SessionEnded:
        ending = _ENDINGS[self._ended_by]
        if self._ended_by == "idle":
            ending = ending.format(idle=self._owner.idle_timeout)
        error = SessionEnded(f"{when} the session ended. {ending}")
        error.reason = self._ended_by
        return error

    async def _ask(self, request: Request) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request.answered = functools.partial(settle, future)
        self._owner.submit(self._slot, request)
        self._calls[request] = future
        try:
            return await future
        except asyncio.CancelledError:
            request.is_dropped = True
            self._turn = None
            raise
        finally:
            del self._calls[request]
            self.idle_looks = 0

    def _adopt(self, answer: Answer, steps: int, total: Any) -> Turn:
        self._check_open("reset" if steps == 0 else "step")
        end: str | Loss | None = None
        reward = _plain(answer.reward)
        observation = answer.observation
        self._losses.extend(answer.losses)
        if answer.loss is not None:
            end, reward, total = answer.loss, math.nan, math.nan
            if observation is None and self._turn is not None:
                observation = self._turn.observation
        else:
            total = total + reward
            self._has_begun = True
            if answer.step_type == StepType.LAST:
                goes_on = bool(np.any(answer.discount))
                end = "truncated" if goes_on else "terminated"
        turn = self._turn = Turn(
            observation,
            "" if observation is None else text_of(observation),
            reward,
            total,
            _plain(answer.discount),
            end,
            answer.info,
            steps,
        )
        self._owner.count(turn, len(answer.losses))
        if end is not None and self._has_one_episode:
            self.end("attempted")
        return turn


def _plain(value: Any) -> Any:
    """Returns a number as Python's own, and leaves other rewards as they are."""
    is_number = isinstance(value, np.generic | np.ndarray) and not value.shape
    return value.item() if is_number else value
