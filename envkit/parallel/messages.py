"""What parent and workers say to each other besides rows: the rare path, as data."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit._internal.exceptions import cut, packed, text_of, unpacked, with_text
from envkit.errors import EnvironmentRaised
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
    """What one worker is to run.

    Attributes:
        worker: Its index.
        first_env: The index of its first environment among all of the pool's.
        constructors: What to call, in order, to make its environments.
        seeds: For each environment, what to seed it with before its first reset;
            `None` to leave it alone.
        options: The options of the pool, but for `worker_setup`.
        setup: What runs first, which is not plain data as the options are.
        following: How many workers are going to start once this one has built its
            environments.
    """

    worker: int
    first_env: int
    constructors: tuple[EnvConstructor, ...]
    seeds: tuple[Any, ...] = ()
    options: PoolOptions = _USUAL
    setup: str | Callable[[], Any] | None = None
    following: int = 0


class Hello(NamedTuple):
    """What a worker says once its environments exist.

    Attributes:
        pid: Its process.
        specs: The specs of each of its environments.
        batch_sizes: The batch size of each, `None` for a single one.
        resident: Its memory in bytes.
        heavy_modules: Which large packages it has loaded, such as tensorflow.
        info_specs: What each of its environments declares of its info.
        continues: For each, whether no `FIRST` follows its `LAST`.
        host: The machine it is on, if that may be another than its pool's.
        protocol: The version of what it understands.
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
        pickled: The exception itself, if it can travel.
        pid: The process it comes from.
        host: The machine it comes from, if that may be another one.
        inner_env: Where the environment is itself a pool, which of its environments it
            was, or -1.
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
        """Takes down everything about an exception that can travel."""
        # Where the environment is itself a pool, what its environment has raised is the
        # news.
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
        """Returns the exception itself if it travelled and can be rebuilt here."""
        error = unpacked(self.pickled)
        if not isinstance(error, BaseException):
            return None
        return with_text(error, self.message)


class Request(NamedTuple):
    """A question about environments, or an order to them.

    Attributes:
        number: Which request of the pool this is; the reply repeats it.
        method: "call", "access", "set_attr", "env_is_wrapped", "get_state",
            "set_state", "seed", "seed_rows", "reset" for the options of one, "render",
            "get_info", "save" and "assume_seed" for checkpoints, or "replay" with a
            `ReplayPlan`.
        envs: The environments concerned, by their index in the pool.
        arguments: What the method needs, one entry for each environment; pickled
            while on its way to another process.
    """

    number: int
    method: str
    envs: tuple[int, ...]
    arguments: Any


# Calls after which an environment is what it was before.
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
        "observation_spec",
        "provenance",
        "render",
        "reward_spec",
        "time_step_spec",
    }
)


def may_change(method: str, argument: Any) -> bool:
    """Returns whether an environment may be another one after a question.

    Example:
        >>> may_change("call", ("get_info", (), {})), may_change("call", ("jump",))
        (False, True)
    """
    return method == "call" and argument[0] not in _READING


def question_text(method: str, arguments: Sequence[Any]) -> str:
    """Returns how a question reads in messages, such as `call('jump')`."""
    if method in {"call", "access", "set_attr"}:
        return f"{method}({arguments[0][0]!r})"
    return f"{method}()"


class Reply(NamedTuple):
    """The answer to a request: a value or a failure for each environment."""

    number: int
    results: tuple[Any, ...]


class ReplayPlan(NamedTuple):
    """How to bring a new environment to where one stood that is gone.

    A move is one request of one row. Moves are in order; those with the same time were
    one request of several rows of a batch.

    Attributes:
        seed: What the environment was seeded with when it was new, if it was.
        known_seed: What it was seeded with last, and how often it was rebuilt since.
        attributes: Names and values of the attributes that it was given before.
        state: Its state before the first move; `None` for that of a new one.
        ended: Of the state, which rows were at the end of an episode.
        resets: How many resets of a new environment come before the first move.
        number: The number under which the last of these, or the state, is known.
        times: When each move was made.
        rows: Whose move it was, counted from the environment's first row.
        numbers: The number of each request.
        commands: What was asked.
        orders: The order of resets under which it was.
        actions: For each leaf, the action of each move.
        notes: What the environment was asked besides: time, method and argument, before
            the move of that time.
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
        """How many moves and resets there are."""
        return self.resets + len(set(self.times.tolist()))

    def columns(self, rows: int) -> list[tuple[Array, type[np.generic], int, int]]:
        """Returns what is known of the moves but their actions.

        Args:
            rows: How many rows the environment has.

        Returns:
            For each column: the column, its dtype, its least and its greatest value.
        """
        return [
            (self.times, np.int64, 0, 2**62),
            (self.rows, np.int64, 0, rows - 1),
            (self.numbers, np.uint32, 0, 2**32 - 1),
            (self.commands, np.uint8, STEP, RESET),
            (self.orders, np.uint8, 0, DISABLED_ORDER),
        ]


class Replayed(NamedTuple):
    """Where an environment stands that has been brought there.

    Attributes:
        is_known: For each of its rows, whether it shows anything.
        shown: The leaves of the time steps that the rows show.
        standing: Those at which they stand.
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
        resident: Its memory when last seen, in bytes.
        host: The machine it was on, if that may be another than its pool's.
        lost: Why its link has ended, if nothing is known of its process.
        remedy: What a person can do about its end, if the backend knows.
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

    @classmethod
    def of_status(
        cls, worker: int, pid: int, status: int | None, stderr_tail: str = ""
    ) -> ExitReport:
        """Returns the report for a process whose exit status is known.

        Args:
            worker: The worker's index.
            pid: Its process.
            status: As `subprocess` has it, less than 0 for a signal; `None` if it is
                not known.
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
    """A job on its way: its constructors travel apart, because each may fail."""

    job: WorkerJob
    constructors: tuple[bytes, ...]
    setup: bytes | None = None
    protocol: int = PROTOCOL_VERSION


class Packed(NamedTuple):
    """A `Hello` or `Bind` on its way, pickled by `serialize`.

    Specs are the user's own: a namedtuple of the main script, or a subclass of a spec,
    is found in no other process by its name.
    """

    payload: bytes


class Bind(NamedTuple):
    """The layout; memory and, with the first one, bells come along as descriptors.

    Another one later says that the number of rows has changed.

    Attributes:
        layout: Where rows lie in the memory.
        lingers: Whether the worker is to linger before it falls asleep.
        first_row: Which of the pool's rows is the first of the layout.
        on_machine: How many workers of the pool are on its machine.
        fds: How many descriptors come along.
    """

    layout: SlabLayout
    lingers: bool = False
    first_row: int = 0
    on_machine: int = 1
    fds: int = 0


class Close(NamedTuple):
    """The order to end."""


class RowsRaised(NamedTuple):
    """The failure of rows that will be marked as such."""

    rows: tuple[int, ...]
    failure: RemoteFailure


class ObjectActions(NamedTuple):
    """The leaves of actions that do not fit into shared memory, for a worker's rows.

    Attributes:
        numbers: For each row, which request they belong to.
        leaves: For each row, the pickled dictionary from leaf to value.
    """

    numbers: dict[int, int]
    leaves: dict[int, bytes]


class ObjectRow(NamedTuple):
    """Leaves of a row's time step that do not fit into shared memory.

    Attributes:
        row: Whose they are.
        slot: Where they belong.
        leaves: The pickled dictionary from leaf to value.
    """

    row: int
    slot: int
    leaves: bytes


# Of a chain of exceptions so many are shown: those that came first, and last.
_OLDEST, _NEWEST = 3, 5
# What Python shows of groups of exceptions: how deep, and how many of each.
_DEEPEST, _WIDEST = 10, 15
_LONGEST_TRACEBACK = 60_000


def _traceback_of(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
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


def _shorten(told: Any, depth: int = 0) -> None:
    """Leaves out the middle of long chains of causes, in groups as well.

    Args:
        told: A `TracebackException`.
        depth: In how many groups it is.
    """
    chain = [told]
    while (following := _before(chain[-1])) is not None:
        chain.append(following)
    if len(chain) > _NEWEST + _OLDEST + 1:
        left_out = len(chain) - _NEWEST - _OLDEST
        last, chain = chain[_NEWEST - 1], chain[:_NEWEST] + chain[-_OLDEST:]
        name = "__context__" if last.__cause__ is None else "__cause__"
        setattr(last, name, _LeftOut(left_out, chain[_NEWEST]))
    if depth < _DEEPEST:  # Python shows no more, and so many of each group.
        for each in chain:
            for part in (getattr(each, "exceptions", None) or ())[:_WIDEST]:
                _shorten(part, depth + 1)


def _before(told: Any) -> Any:
    """Returns the exception that is shown before another, if there is one."""
    if told.__cause__ is not None:
        return told.__cause__
    return None if told.__suppress_context__ else told.__context__


class _LeftOut:
    """Stands in a `TracebackException` for the middle of a chain."""

    stack = exceptions = __context__ = None
    __suppress_context__ = True

    def __init__(self, count: int, cause: Any) -> None:
        self._count = count
        self.__cause__ = cause

    def format_exception_only(self, **unused: Any) -> Iterator[str]:
        yield f"… {self._count:,} more exceptions, each of which led to the next …\n"
