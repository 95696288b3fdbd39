"""`AsyncEnvPool`: EnvPool's asynchronous mode, row by row."""

from __future__ import annotations

import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit._shared.arguments import as_discount
from envkit._shared.waits import wait_for_end
from envkit.adapters.envpool.pools import (
    Answer,
    PoolActions,
    PoolCalls,
    PoolRows,
    as_pool,
    check_seedable,
    has_true,
    native_seeds,
)
from envkit.adapters.foreign import forwarded
from envkit.async_environment import AsyncBatch, AsyncEnvironment, check_env_ids
from envkit.batches import options_per_row
from envkit.errors import CallOrderError, ClosedError
from envkit.extend import counted, describe, hand_options, listed
from envkit.provenance import record_seed
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import (
    Array,
    NestedArray,
    NestedSpec,
    Options,
    ResetSeed,
    Seed,
)

__all__ = ["AsyncEnvPool", "LateAnswers"]


class AsyncEnvPool(AsyncEnvironment):
    """Hands actions to rows of EnvPool, and returns those that are ready first.

    EnvPool answers in batches of `batch_size` rows, and says nothing before so many are
    ready. `recv` takes as many batches as it needs. Where fewer rows owe an answer than
    a batch has, spare environments fill it, whose answers are dropped; so any number of
    rows may be waited for. It is fastest to receive `batch_size` rows at a time.

    Example:
        >>> env = AsyncEnvPool("CartPole-v1", num_envs=6)  # doctest: +SKIP
        >>> env.reset_async()  # doctest: +SKIP
        >>> first = env.recv(count=2)  # doctest: +SKIP
        >>> env.send(np.zeros(2, np.int64), first.env_ids)  # doctest: +SKIP
        >>> sorted(env.recv().env_ids.tolist())  # doctest: +SKIP
        [0, 1, 2, 3, 4, 5]
        >>> env.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        env: Any,
        discount: float = 1.0,
        simplify_box_bounds: bool = True,
        *,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        spares: int | None = None,
        **pool_kwargs: Any,
    ) -> None:
        """Wraps a pool, or makes one; closing this closes it.

        Args:
            env: A pool with EnvPool's Gymnasium interface whose `batch_size` is smaller
                than its `num_envs`, or EnvPool's name of an environment. A pool that
                was made already has no spare environments, and cannot be seeded.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            autoreset: When the episode after a `LAST` begins: NEXT_STEP or DISABLED.
            spares: With a name, how many environments to make besides; `None` for
                `batch_size - 1`, with which any number of rows can be waited for.
            **pool_kwargs: With a name, what `envpool.make_gymnasium` takes: `num_envs`,
                `batch_size`, `num_threads`, `seed` and what the environment knows. The
                `batch_size` is half of `num_envs` unless it is given.
        """
        self._closed = True  # until there is a pool
        self._order = _as_order(autoreset)
        if isinstance(env, str):
            rows = int(pool_kwargs.get("num_envs", 1))
            size = int(pool_kwargs.get("batch_size") or max(1, rows // 2))
            pool_kwargs["batch_size"] = size
            spares = size - 1 if spares is None else operator.index(spares)
        else:
            spares = 0
        self._pool, self._recipe = as_pool(
            env, pool_kwargs, adapter="AsyncEnvPool", spares=spares
        )
        self._name = env if self._recipe else type(env).__name__
        config = self._pool.config
        self._batch = int(config["batch_size"])
        self._rows = int(config["num_envs"]) - spares
        if self._recipe is None and self._batch in (0, self._rows):
            raise ValueError(
                f"AsyncEnvPool was given {self._name} in EnvPool's synchronous mode: "
                "its batch_size is its num_envs. EnvPoolWrapper takes it."
            )
        self._answers = PoolRows(
            self._pool,
            self._name,
            discount=as_discount(discount),
            simplify=simplify_box_bounds,
        )
        if self._answers.players > 1:
            raise NotImplementedError(
                f"{self._name} has {self._answers.players} players in each row, which "
                "AsyncEnvPool does not tell apart. EnvPoolWrapper does."
            )
        self._actions = PoolActions(
            self._answers.action_spec, self._rows, "AsyncEnvPool.send()"
        )
        self._spares = spares
        self._seeds: list[int] | None = None
        self._last: list[Answer] = []
        self._start()
        self._closed = False

    def _start(self) -> None:
        """Begins with a new pool, of which no row was asked."""
        self._inbox: Any = _Inbox(
            self._pool, self._answers, self._name, self._rows, self._batch
        )
        self._states = _RowStates(self._rows)

    @property
    def pool(self) -> Any:
        """The pool of EnvPool; `None` after closing."""
        return self._pool

    @property
    def num_envs(self) -> int:
        """How many rows there are, without the spares."""
        return self._rows

    @property
    def batch_size(self) -> int:
        """How many rows EnvPool answers at a time."""
        return self._batch

    @property
    def autoreset(self) -> AutoReset:
        """When the episode after a `LAST` begins."""
        return self._order

    @property
    def owing(self) -> Array:
        """Which rows owe an answer that no `recv` has returned yet, as a mask."""
        return self._states.owing_mask

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._pool, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation."""
        return self._answers.observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the spec of one row's action."""
        return self._answers.action_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset of all rows seed each: its own stream, or its own seed.

        EnvPool takes seeds only when a pool is made, so that reset makes it anew.

        Raises:
            NotImplementedError: This was given a pool and not its name.
        """
        self._check_open("seed")
        check_seedable(self._recipe, self._name, "AsyncEnvPool")
        self._seeds = native_seeds(seed, self._rows, self._spares)
        record_seed(self, seed)

    def get_info(self) -> dict[str, Any]:
        """Returns the infos of the rows that the last `recv` has returned.

        They are arrays; row `i` belongs to `env_ids[i]`. Besides what EnvPool says
        there are `terminated` and `truncated`. At first they are empty.
        """
        return _joined_infos([self._answers.infos_of(answer) for answer in self._last])

    def reset_async(
        self,
        env_ids: Sequence[int] | Array | None = None,
        *,
        seed: ResetSeed = None,
        options: Options = None,
    ) -> None:
        """Lets the given rows, or all, start an episode; returns at once.

        Where a seed waits for a reset of all rows, the pool is made anew first.

        Args:
            env_ids: Which rows; `None` for all.
            seed: What all rows are seeded with before; EnvPool cannot seed some alone.
            options: Nothing: EnvPool takes no options.
        """
        self._check_open("reset_async")
        rows, asked = self._states.as_rows(env_ids)
        self._states.of(rows, "reset_async")
        if options is not None:
            hand_options(self, options_per_row(options, rows.size))
        if seed is not None and rows.size < self._rows:
            raise NotImplementedError(
                f"AsyncEnvPool cannot seed {rows.size} of its {self._rows} rows: "
                "EnvPool takes seeds when it makes all of them. Reset all rows."
            )
        if seed is not None:
            self.seed(seed)  # type: ignore[arg-type]  # it refuses None in it
        if self._seeds is not None and rows.size == self._rows:
            self._make_anew(self._seeds)
        self._states.ask(rows)
        self._inbox.begin(asked)

    def _make_anew(self, seeds: list[int]) -> None:
        assert self._recipe is not None  # or there would be no seeds
        self._let_go()
        self._pool = self._recipe.build(seeds)
        self._seeds = None
        self._start()

    def send(
        self, actions: NestedArray, env_ids: Sequence[int] | Array | None = None
    ) -> None:
        """Hands row `i` of the actions to `env_ids[i]`, or to all; returns at once.

        Under the order NEXT_STEP, a row whose episode ended begins the next one and
        its action is not used. So does a row that has not begun at all.
        """
        # Hot: called once per batch of any size.
        if self._closed:
            self._check_open("send")
        rows, asked = self._states.as_rows(env_ids)
        states = self._states.of(rows, "send")
        if states is not None and self._order is AutoReset.DISABLED:
            _check_none_ended(rows[states == _OVER])
        members = self._actions.plain(actions, rows.size)
        if members is None:
            ignored = None if states is None else states >= _OVER
            members = self._actions.members(actions, count=rows.size, ignored=ignored)
        new = states == _NEW if states is not None and self._states.new else None
        self._states.ask(rows)
        if new is not None and new.any():
            self._inbox.begin(asked[new])
            asked, members = asked[~new], members[~new]
        if asked.size:
            self._inbox.send(members, asked)

    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns rows that have finished, in the order in which they did.

        Args:
            count: How many to wait for; `None` waits for all that owe an answer. More
                may not be returned, so the oldest answers come first.
            timeout: Seconds after which to return what is ready, possibly nothing. Of a
                batch that is not full EnvPool does not tell.

        Raises:
            CallOrderError: No row owes an answer, or fewer than `count` do.
        """
        # Hot: called once per batch of any size.
        if self._closed:
            self._check_open("recv")
        owing = self._states.owing
        wanted = owing if count is None and owing else _as_count(count, owing)
        self._last = taken = self._inbox.receive(wanted, timeout)
        return self._delivered(taken)

    def _delivered(self, taken: list[Answer]) -> AsyncBatch:
        """Returns the rows that have been taken, which owe nothing any more."""
        # Hot: called once per batch of any size.
        rows, time_step, ended = _joined(taken, self._answers)
        return AsyncBatch(self._states.answer(rows, ended), time_step)

    def close(self) -> None:
        """Closes the pool and lets go of it; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        # A thread that waits for EnvPool waits until all rows that were asked answer.
        self._inbox.close()
        self._pool.close()
        # Its threads end with it, before those of another begin.
        self._pool = self._inbox = None

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)


def _as_order(autoreset: AutoReset | str) -> AutoReset:
    order = AutoReset.of(autoreset)
    if order is AutoReset.SAME_STEP:
        raise NotImplementedError(
            "AsyncEnvPool keeps AutoReset.NEXT_STEP or AutoReset.DISABLED. Under "
            "SAME_STEP the next episode of a row would have to begin before the "
            "caller asked for it; EnvPoolWrapper does that."
        )
    return order


def _check_none_ended(rows: Array) -> None:
    if rows.size:
        noun = "row" if rows.size == 1 else "rows"
        raise CallOrderError(
            f"send() was called after the episode of {noun} {listed(rows)} ended. "
            "Under AutoReset.DISABLED, call reset_async(env_ids) for them first."
        )


def _as_count(count: int | None, owing: int) -> int:
    if not owing:
        raise CallOrderError(
            "recv() was called although no environment owes an answer. Call "
            "reset_async() or send() first."
        )
    try:
        wanted = operator.index(count)  # type: ignore[arg-type]  # it refuses None
    except TypeError:
        raise TypeError(
            f"count must be an integer, or None for all that owe an answer, got "
            f"{describe(count)}."
        ) from None
    if wanted < 1:
        raise ValueError(f"count must be at least 1, got {wanted}.")
    if wanted > owing:
        raise CallOrderError(
            f"recv(count={wanted}) was called although only "
            f"{counted(owing, 'environment')} owe{'s' * (owing == 1)} an answer, so it "
            "would wait for ever. Ask for fewer, or send more first."
        )
    return wanted


class _Inbox:
    """Asks rows of a pool, and keeps what they answer until it is received."""

    def __init__(
        self, pool: Any, answers: PoolRows, name: str, rows: int, batch: int
    ) -> None:
        """Begins with a pool of which no environment was asked.

        Args:
            pool: The pool.
            answers: How to read what it answers.
            name: What to call it in an error.
            rows: How many of its environments are rows; the others are spares.
            batch: How many it answers at a time.
        """
        self._calls = PoolCalls(pool, 0)
        self._read = answers.read
        self._part = answers.part
        self._name = name
        self._rows = rows
        self._batch = batch
        self._receiver = LateAnswers(self._calls.recv)
        # How many environments owe EnvPool an answer, and which of the spares do.
        self._out = 0
        self._spares = np.arange(rows, int(pool.config["num_envs"]), dtype=np.int32)
        self._spares_out = np.zeros(self._spares.size, bool)
        self._has_spares_out = False
        # The answers that were not received yet, the oldest first.
        self._ready: deque[Answer] = deque()
        self._count = 0

    def begin(self, rows: Array) -> None:
        """Asks rows to begin an episode."""
        self._out += rows.size
        self._calls.reset(rows)

    def send(self, actions: Array, rows: Array) -> None:
        """Asks rows to take an action each."""
        self._out += rows.size
        self._calls.send(actions, rows)

    def close(self) -> None:
        """Waits for what EnvPool is being waited for."""
        self._receiver.close()

    def receive(self, wanted: int, timeout: float | None) -> list[Answer]:
        """Returns so many rows, or those that are ready when the time is over."""
        # Hot: called once per batch of any size. Most ask for a batch of EnvPool's own.
        if (
            wanted == self._batch <= self._out
            and timeout is None
            and not self._count
            and not self._has_spares_out
            and self._receiver.is_idle
        ):
            answer = self._read(self._receiver.get_now())
            self._out -= wanted
            return [answer]
        if self._count < wanted:
            self._wait(wanted, timeout)
        if self._count and self._ready[0].rows.size == wanted:
            self._count -= wanted
            return [self._ready.popleft()]
        return self._take(min(wanted, self._count))

    def _wait(self, wanted: int, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._count < wanted:
            if self._receiver.was_interrupted:
                raise CallOrderError(
                    f"{self._name} was interrupted while it answered, and what it "
                    "answered is lost. Close this environment and make another."
                )
            if self._out < self._batch:
                self._fill_up(wanted)
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            result = self._receiver.get(left)
            if result is None:
                return
            self._note(self._read(result[0]))

    def _fill_up(self, wanted: int) -> None:
        """Asks spares to complete a batch for which too few rows owe an answer."""
        missing = self._batch - self._out
        idle = self._spares[~self._spares_out][:missing]
        if idle.size < missing:
            raise CallOrderError(
                f"recv() was called for {counted(wanted, 'environment')}, and EnvPool "
                f"answers {self._batch} at a time, of which {self._out} have been "
                "asked. Ask more of them first, or let AsyncEnvPool make the pool, "
                "with spares: AsyncEnvPool('CartPole-v1', num_envs=8, batch_size=4)."
            )
        self._spares_out[idle - self._rows] = self._has_spares_out = True
        self.begin(idle)

    def _note(self, answer: Answer) -> None:
        """Keeps what rows have answered, and forgets what spares have."""
        # Hot: called once per batch.
        self._out -= answer.rows.size
        if self._has_spares_out:
            is_row = answer.rows < self._rows
            self._spares_out[answer.rows[~is_row] - self._rows] = False
            self._has_spares_out = has_true(self._spares_out)
            answer = self._part(answer, np.flatnonzero(is_row))
        if answer.rows.size:
            self._ready.append(answer)
            self._count += answer.rows.size

    def _take(self, wanted: int) -> list[Answer]:
        """Takes so many of the rows that are ready, the oldest first."""
        taken = []
        self._count -= wanted
        while wanted:
            answer = self._ready.popleft()
            if answer.rows.size > wanted:
                self._ready.appendleft(self._part(answer, slice(wanted, None)))
                answer = self._part(answer, slice(None, wanted))
            taken.append(answer)
            wanted -= answer.rows.size
        return taken


def _joined(
    answers: list[Answer], reader: PoolRows
) -> tuple[Array, TimeStep, Array | None]:
    """Returns which rows have answered, their time step, and where one is a `LAST`."""
    # Hot: called once per batch of any size. Nearly always there is one.
    if len(answers) == 1:
        ((rows, time_step, ended, _),) = answers
        return rows, time_step, ended
    flatten, unflatten = reader.structure.flatten, reader.structure.unflatten
    parts = [reader.blank(0), *(answer.time_step for answer in answers)]
    columns = zip(*(flatten(part.observation) for part in parts), strict=True)
    time_step = TimeStep(
        np.concatenate([part.step_type for part in parts]),
        np.concatenate([part.reward for part in parts]),
        np.concatenate([part.discount for part in parts]),
        unflatten([np.concatenate(column) for column in columns]),
    )
    none = np.zeros(0, np.int32)
    rows = np.concatenate([none, *(answer.rows for answer in answers)])
    return rows, time_step, time_step.step_type == StepType.LAST


def _joined_infos(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns infos of some rows and of others as those of all of them."""
    if not infos:
        return {}
    return {
        key: _joined_infos([part[key] for part in infos])
        if isinstance(value, dict)
        else np.concatenate([part[key] for part in infos])
        for key, value in infos[0].items()
    }


class LateAnswers:
    """Calls something that waits, in a thread of its own where there is a deadline.

    What comes after the deadline is kept for the next call.

    Example:
        >>> answers = LateAnswers(lambda: "ready")
        >>> answers.get(None), answers.get(60.0)
        (('ready',), ('ready',))
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        """Prepares to call."""
        self._call = call
        self._thread: threading.Thread | None = None
        self._results: list[Any] = []
        self._is_waiting = False

    @property
    def was_interrupted(self) -> bool:
        """Whether Ctrl-C came while an answer came, which is lost then."""
        return self._is_waiting

    @property
    def is_idle(self) -> bool:
        """Whether the next answer is simply waited for."""
        return self._thread is None and not self._is_waiting

    def get(self, timeout: float | None) -> tuple[Any] | None:
        """Returns the next answer, in a tuple, or `None` if it does not come in time.

        Args:
            timeout: Seconds to wait; `None` for ever.
        """
        if timeout is None and self._thread is None:
            return (self.get_now(),)
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, daemon=True)
            self._thread.start()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        self._thread = None
        result = self._results.pop()
        if isinstance(result, BaseException):
            raise result
        return (result,)

    def get_now(self) -> Any:
        """Returns the next answer, where no call is out, however long it takes."""
        # Hot: called once per batch of any size.
        self._is_waiting = True
        result = self._call()
        self._is_waiting = False
        return result

    def _answer(self) -> None:
        try:
            self._results.append(self._call())
        # Any exception belongs to the caller that waits.
        except BaseException as error:
            self._results.append(error)

    def close(self) -> None:
        """Waits until no call is out any more."""
        if self._thread is not None:
            wait_for_end(self._thread)
            self._thread = None


# What a row is at: in an episode, at the end of one, busy, or before the first.
_GOING, _OVER, _OWING, _NEW = range(4)


class _RowStates:
    """Knows what each row is at.

    Attributes:
        owing: How many rows owe an answer.
        new: How many rows have not been asked anything.
    """

    def __init__(self, rows: int) -> None:
        """Begins with rows that were not asked yet."""
        self._rows = rows
        self._states = np.full(rows, _NEW, np.uint8)
        self._everyone = np.arange(rows)
        self.owing = 0
        self.new = rows
        # The rows that were told last: as they were told, and as EnvPool takes them.
        self._told = b""
        self._told_rows = np.zeros(0, np.int32)

    @property
    def owing_mask(self) -> Array:
        """Which rows owe an answer."""
        mask: Array = self._states == _OWING
        return mask

    def of(self, rows: Array, call: str) -> Array | None:
        """Returns what rows are at of which none owes an answer; `None` if all go on.

        Raises:
            CallOrderError: Some row owes an answer.
        """
        # Hot: called once per send.
        states: Array = self._states[rows]
        bits = states.tobytes()
        if not bits.strip(b"\0"):
            return None
        if _OWING in bits:
            late = rows[states == _OWING]
            one = late.size == 1
            raise CallOrderError(
                f"{call}() was called while {counted(late.size, 'environment')} "
                f"({listed(late)}) still {'owes' if one else 'owe'} an answer. Call "
                f"recv() until it returns {'it' if one else 'them'}."
            )
        return states

    def ask(self, rows: Array) -> None:
        """Notes that rows owe an answer."""
        if self.new:
            self.new -= int(np.count_nonzero(self._states[rows] == _NEW))
        self._states[rows] = _OWING
        self.owing += rows.size

    def answer(self, rows: Array, ended: Array | None) -> Array:
        """Notes what rows have answered, and returns their numbers for the caller.

        Args:
            rows: The rows, as EnvPool has them.
            ended: Which of them have ended an episode; `None` if none has.
        """
        # Hot: called once per batch of any size.
        told: Array = rows.astype(np.intp)
        self._states[told] = _GOING if ended is None else ended.view(np.uint8)
        self.owing -= rows.size
        self._told, self._told_rows = told.tobytes(), rows
        return told

    def as_rows(self, env_ids: Sequence[int] | Array | None) -> tuple[Array, Array]:
        """Returns the numbers of rows that a caller names, and as EnvPool takes them.

        NumPy finds rows by numbers of its own kind soonest. EnvPool goes on reading
        the others, so these are not the caller's.
        """
        # Hot: called once per send. Most give back what they were told.
        if env_ids is None:
            return self._everyone, self._everyone.astype(np.int32)
        rows: Array = np.asarray(env_ids)
        if rows.dtype == np.intp and rows.tobytes() == self._told:
            return rows, self._told_rows
        check_env_ids(env_ids, rows, self._rows)
        return rows.astype(np.intp), rows.astype(np.int32)
