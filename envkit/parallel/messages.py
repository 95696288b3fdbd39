"""The messages between the pool and its workers, apart from rows; none is frequent."""

from __future__ import annotations

import importlib
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envkit._internal.exceptions import cut, packed, text_of, unpacked, with_text
from envkit.errors import EnvironmentRaised, EnvkitError
from envkit.parallel.options import PoolOptions
from envkit.parallel.slab_layout import DISABLED_ORDER, RESET, STEP, SlabLayout
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.types import Array, EnvConstructor

__all__ = [
    "PROTOCOL_VERSION",
    "Bind",
    "Close",
    "ExitReport",
    "Hello",
    "ObjectActions",
    "ObjectRow",
    "Packed",
    "PackedJob",
    "RemoteFailure",
    "ReplayPlan",
    "Replayed",
    "Reply",
    "Request",
    "RowsRaised",
    "WorkerJob",
    "may_change",
    "question_text",
]

# Both sides come from one installation, unless something on the import path differs.
PROTOCOL_VERSION = 12


_USUAL = PoolOptions()


class WorkerJob(NamedTuple):
    """What one worker runs.

    Attributes:
        worker: Its index.
        first_env: The index of its first environment in the pool.
        constructors: The constructors of its environments, in order.
        seeds: The seed of each environment before its first reset; `None` for none.
        options: The pool's options without `worker_setup`.
        setup: The pickled `worker_setup`, which runs first. Unlike the options it is
            code.
        following: How many workers will start once this one has built its environments.
    """

    worker: int
    first_env: int
    constructors: tuple[EnvConstructor, ...]
    seeds: tuple[Any, ...] = ()
    options: PoolOptions = _USUAL
    setup: str | Callable[[], Any] | None = None
    following: int = 0


class Hello(NamedTuple):
    """A worker's first message, sent when its environments exist.

    Attributes:
        pid: Its process.
        specs: The specs of each of its environments.
        batch_sizes: The batch size of each, `None` for a single one.
        resident: Its memory in bytes.
        heavy_modules: The large packages that it has loaded, such as tensorflow.
        info_specs: The declared part of each environment's info.
        continues: For each, whether no `FIRST` follows its `LAST`.
        host: Its machine, if that may not be the pool's.
        protocol: The version of the protocol that it speaks.
    """

    pid: int
    specs: tuple[EnvironmentSpec, ...]
    batch_sizes: tuple[int | None, ...]
    resident: int = 0
    heavy_modules: tuple[str, ...] = ()
    info_specs: tuple[dict[str, Any], ...] = ()
    host: str = ""
    continues: tuple[bool, ...] = ()
    protocol: int = PROTOCOL_VERSION


class RemoteFailure(NamedTuple):
    """An exception on its way from a worker to the caller.

    Attributes:
        kind: "raised" by an environment; "constructor" or "setup" if building it
            failed; "misfit" for an answer that does not fit its spec.
        env: Index of the environment, or -1 if it concerns the whole worker.
        command: What it was doing, such as "step".
        type_name: The exception's class.
        message: Its message.
        traceback: Where it happened, as text.
        pickled: The exception itself, if it can be pickled.
        pid: The process it comes from.
        host: The machine it comes from, if that may not be this one.
        inner_env: If the environment is itself a pool, which of its environments
            raised; otherwise -1.
    """

    kind: str
    env: int
    command: str
    type_name: str
    message: str
    traceback: str
    pickled: bytes | None = None
    pid: int = 0
    host: str = ""
    inner_env: int = -1

    @classmethod
    def of(
        cls,
        error: BaseException,
        *,
        kind: str = "raised",
        env: int = -1,
        command: str = "",
        pid: int = 0,
    ) -> RemoteFailure:
        """Records everything about an exception that can be sent."""
        # If the environment is itself a pool, the exception of its own environment is
        # the one that matters.
        raised, inner_env = error, -1
        if isinstance(error, EnvironmentRaised) and error.__cause__ is not None:
            raised = error.__cause__
            inner_env = error.envs[0] if len(error.envs) == 1 else -1
        return cls(
            kind=kind,
            env=env,
            command=command,
            type_name=type(raised).__qualname__,
            message=text_of(raised),
            traceback=_traceback_of(error),
            pickled=packed(raised),
            pid=pid,
            inner_env=inner_env,
        )

    def original(self) -> BaseException | None:
        """Returns the exception itself if it was sent and can be rebuilt here."""
        error = unpacked(self.pickled)
        if not isinstance(error, BaseException):
            return None
        return with_text(error, self.message)


class Request(NamedTuple):
    """A question or an order to environments.

    Attributes:
        number: The request's number in the pool; the reply repeats it.
        method: "call", "access", "set_attr", "env_is_wrapped", "get_state",
            "set_state", "seed", "seed_rows", "reset" for the options of one, "render",
            "get_info", "save" and "assume_seed" for checkpoints, or "replay" with a
            `ReplayPlan`.
        envs: The environments concerned, by their index in the pool.
        arguments: The method's arguments, one entry for each environment; pickled on
            the way to another process.
    """

    number: int
    method: str
    envs: tuple[int, ...]
    arguments: Any


# Calls that leave an environment unchanged.
_READING = frozenset(
    {
        "action_spec",
        "current_time_step",
        "discount_spec",
        "environment_spec",
        "envkit_ping",
        "envkit_server",
        "get_info",
        "get_state",
        "info_spec",
        "losses",
        "observation_spec",
        "provenance",
        "render",
        "reward_spec",
        "time_step_spec",
    }
)


def may_change(method: str, argument: Any) -> bool:
    """Returns True if a question may change an environment.

    Example:
        >>> may_change("call", ("get_info", (), {})), may_change("call", ("jump",))
        (False, True)
    """
    return method == "call" and argument[0] not in _READING


def question_text(method: str, arguments: Sequence[Any]) -> str:
    """Returns a question as messages write it, such as `call('jump')`."""
    if method in {"call", "access", "set_attr"}:
        return f"{method}({arguments[0][0]!r})"
    return f"{method}()"


class Reply(NamedTuple):
    """The answer to a request: a value or a failure for each environment."""

    number: int
    results: tuple[Any, ...]


class ReplayPlan(NamedTuple):
    """How to bring a new environment to the state of a lost one.

    A move is one request to one row. Moves are in order; moves with the same time were
    one request to several rows of a batch.

    Attributes:
        seed: What the environment was seeded with when it was new, if it was.
        known_seed: Its last seed, and how many times it was rebuilt since.
        attributes: Names and values of the attributes that were set on it before.
        state: Its state before the first move; `None` for a new environment's.
        ended: The rows that were at the end of an episode in that state.
        resets: How many resets of a new environment come before the first move.
        number: The number under which the last of these, or the state, is known.
        times: When each move was made.
        rows: The row of each move, counted from the environment's first row.
        numbers: The number of each request.
        commands: The command of each move.
        orders: The autoreset order of each move.
        actions: For each leaf, the action of each move.
        notes: Other questions to the environment: time, method and argument. Each came
            before the move of that time.
    """

    seed: Any
    known_seed: tuple[Any, int]
    attributes: tuple[tuple[str, Any], ...]
    state: bytes | None
    ended: tuple[bool, ...]
    resets: int
    number: int
    times: Array
    rows: Array
    numbers: Array
    commands: Array
    orders: Array
    actions: tuple[Array, ...]
    notes: tuple[tuple[int, str, Any], ...]

    @property
    def length(self) -> int:
        """The number of moves and resets."""
        return self.resets + len(set(self.times.tolist()))

    def columns(self, rows: int) -> list[tuple[Array, type[np.generic], int, int]]:
        """Returns the facts about the moves, apart from their actions.

        Args:
            rows: How many rows the environment has.

        Returns:
            For each column: the column, its dtype, its smallest and its largest value.
        """
        return [
            (self.times, np.int64, 0, 2**62),
            (self.rows, np.int64, 0, rows - 1),
            (self.numbers, np.uint32, 0, 2**32 - 1),
            (self.commands, np.uint8, STEP, RESET),
            (self.orders, np.uint8, 0, DISABLED_ORDER),
        ]


class Replayed(NamedTuple):
    """The state of a replayed environment.

    Attributes:
        is_known: For each of its rows, whether it shows a time step.
        shown: The leaves of the time steps that the rows show.
        standing: The leaves of the time steps at which they stand.
    """

    is_known: tuple[bool, ...]
    shown: tuple[Array, ...]
    standing: tuple[Array, ...]


class ExitReport(NamedTuple):
    """How a worker ended.

    Attributes:
        worker: Its index.
        pid: Its process.
        exitcode: What it returned, or `None`.
        signal: The name of the signal that ended it, or `None`.
        stderr_tail: The last lines it wrote to standard error.
        resident: Its memory when last measured, in bytes.
        host: Its machine, if that may not be the pool's.
        lost: Why its link ended, if nothing is known about its process.
        remedy: What the user can do about it, if the backend knows.
        lost_kind: What kind of `Loss` that is.
    """

    worker: int
    pid: int
    exitcode: int | None = None
    signal: str | None = None
    stderr_tail: str = ""
    resident: int = 0
    host: str = ""
    lost: str = ""
    remedy: str = ""
    lost_kind: str = "link_lost"

    @classmethod
    def of_status(
        cls, worker: int, pid: int, status: int | None, stderr_tail: str = ""
    ) -> ExitReport:
        """Returns the report for a process that has been waited for.

        Args:
            worker: The worker's index.
            pid: Its process.
            status: The exit status as in `subprocess`, negative for a signal; `None` if
                unknown.
            stderr_tail: The last lines that it wrote to standard error.

        Example:
            >>> ExitReport.of_status(0, 7, -9).signal
            'SIGKILL'
        """
        has_returned = status is not None and status >= 0
        return cls(
            worker,
            pid,
            exitcode=status if has_returned else None,
            signal=None if status is None or has_returned else _signal_name(-status),
            stderr_tail=stderr_tail,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class PackedJob(NamedTuple):
    """A job ready to be sent; constructors are pickled one by one, as any may fail."""

    job: WorkerJob
    constructors: tuple[bytes, ...]
    setup: bytes | None = None
    protocol: int = PROTOCOL_VERSION


class Packed(NamedTuple):
    """A `Hello` or `Bind` ready to be sent, pickled by `serialize`.

    Plain pickle is not enough for specs. They may hold the user's own types, such as a
    namedtuple of the main script, which other processes cannot find by name.
    """

    payload: bytes


class Bind(NamedTuple):
    """The layout; descriptors of the memory, and at first of the bells, come with it.

    A later one means that the number of rows has changed.

    Attributes:
        layout: Where rows lie in the memory.
        lingers: Whether the worker should linger before it falls asleep.
        first_row: The pool's row that is the first of the layout.
        on_machine: How many of the pool's workers are on this machine.
        fds: How many descriptors come along.
    """

    layout: SlabLayout
    lingers: bool = False
    first_row: int = 0
    on_machine: int = 1
    fds: int = 0


class Close(NamedTuple):
    """Tells the worker to end."""


class RowsRaised(NamedTuple):
    """The failure of rows, which the worker then marks as failed."""

    rows: tuple[int, ...]
    failure: RemoteFailure


class ObjectActions(NamedTuple):
    """Action leaves for a worker's rows that don't fit into shared memory.

    Attributes:
        numbers: The number of each row's request.
        leaves: For each row, the pickled dictionary from leaf to value.
    """

    numbers: dict[int, int]
    leaves: dict[int, bytes]


class ObjectRow(NamedTuple):
    """Leaves of a row's time step that don't fit into shared memory.

    Attributes:
        row: The row.
        slot: The slot that they belong to.
        leaves: The pickled dictionary from leaf to value.
    """

    row: int
    slot: int
    leaves: bytes


# How many exceptions of a long chain are shown, from its beginning and its end.
_OLDEST, _NEWEST = 3, 5
# Python's own limits for exception groups: depth, and members of each.
_DEEPEST, _WIDEST = 10, 15
_LONGEST_TRACEBACK = 60_000


# What leads to a user's code: envkit, and Python where it imports a module by name.
_ENGINE = f"{Path(__file__).parent}{os.sep}"
_ENVKIT = f"{Path(__file__).parents[1]}{os.sep}"
_IMPORTING = ("<frozen importlib", importlib.__file__)
# Classes whose sentence says all; the last is also an object's own answer to `access`.
_SENTENCES = (EnvkitError, NotImplementedError, AttributeError)


def _traceback_of(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    _begin_at_the_users_code(told, is_sentence=_is_sentence(error, told))
    _shorten(told)
    # A line may be a message.
    text = "".join(
        line if len(text := cut(line)) == len(line) else f"{text}\n"
        for line in told.format()
    )
    if len(text) <= _LONGEST_TRACEBACK:
        return text
    half = _LONGEST_TRACEBACK // 2
    left_out = f"\n\n… {len(text) - 2 * half:,} characters are left out here …\n\n"
    return f"{text[:half]}{left_out}{text[-half:]}"


def _is_sentence(error: BaseException, told: Any) -> bool:
    """Returns True for what a `raise` of envkit raised, or an error of its classes."""
    frames = told.stack or []
    is_raised = bool(frames) and str(frames[-1].line).startswith("raise ")
    return isinstance(error, _SENTENCES) or is_raised


def _begin_at_the_users_code(told: Any, *, is_sentence: bool) -> None:
    """Drops the frames of envkit that lead to the user's code, or to a library's.

    An exception that envkit itself raised keeps its frames, except those of the engine
    that lead to them, unless it is a sentence.
    """
    place: Any = told
    while place is not None:
        frames = place.stack or []  # Python has none for what was never raised.
        start = _first_outside(frames, (_ENVKIT, *_IMPORTING))
        if start is None and place is told and is_sentence:
            start = len(frames)
        if start is None:
            start = _first_outside(frames, (_ENGINE,))
        del frames[: start or 0]
        place = _before(place)


def _first_outside(frames: Any, folders: tuple[str, ...]) -> int | None:
    """Returns the index of the first frame that is in none of the folders."""
    outside = (
        number
        for number, frame in enumerate(frames)
        if not frame.filename.startswith(folders)
    )
    return next(outside, None)


def _shorten(told: Any, depth: int = 0) -> None:
    """Cuts the middle out of long chains of causes, also inside groups.

    Args:
        told: A `TracebackException`.
        depth: The number of groups around it.
    """
    chain = [told]
    while (following := _before(chain[-1])) is not None:
        chain.append(following)
    if len(chain) > _NEWEST + _OLDEST + 1:
        left_out = len(chain) - _NEWEST - _OLDEST
        last, chain = chain[_NEWEST - 1], chain[:_NEWEST] + chain[-_OLDEST:]
        name = "__context__" if last.__cause__ is None else "__cause__"
        setattr(last, name, _LeftOut(left_out, chain[_NEWEST]))
    if depth < _DEEPEST:  # Python shows neither deeper groups nor more members.
        for each in chain:
            for part in (getattr(each, "exceptions", None) or ())[:_WIDEST]:
                _shorten(part, depth + 1)


def _before(told: Any) -> Any:
    """Returns the exception shown before another, if there is one."""
    if told.__cause__ is not None:
        return told.__cause__
    return None if told.__suppress_context__ else told.__context__


class _LeftOut:
    """Replaces the middle of a chain in a `TracebackException`."""

    stack = exceptions = __context__ = None
    __suppress_context__ = True

    def __init__(self, count: int, cause: Any) -> None:
        self._count = count
        self.__cause__ = cause

    def format_exception_only(self, **unused: Any) -> Iterator[str]:
        yield f"… {self._count:,} more exceptions, each of which led to the next …\n"
