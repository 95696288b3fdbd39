"""`AsyncEnvPool`: EnvPool's asynchronous mode, row by row."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from envkit.adapters.envpool_parts.inbox import Inbox, joined, joined_infos
from envkit.adapters.envpool_parts.pool_actions import PoolActions
from envkit.adapters.envpool_parts.pool_rows import Answer, PoolRows
from envkit.adapters.envpool_parts.pools import as_pool, check_seedable, native_seeds
from envkit.adapters.envpool_parts.row_states import NEW, OVER, RowStates
from envkit.adapters.forwarding import forwarded
from envkit.adapters.gym_environments import as_discount
from envkit.async_environment import AsyncBatch, AsyncEnvironment
from envkit.autoreset import AutoReset
from envkit.errors import CallOrderError, ClosedError
from envkit.masked_rows import hand_options, options_per_row
from envkit.specs.validation import describe
from envkit.types import (
    Array,
    NestedArray,
    NestedSpec,
    Options,
    ResetSeed,
    Seed,
)
from envkit.wording import counted, listed

__all__ = ["AsyncEnvPool"]


class AsyncEnvPool(AsyncEnvironment):
    """Hands actions to rows of EnvPool, and returns those that are ready first.

    EnvPool answers in batches of `batch_size` rows, and says nothing before so many are
    ready. `recv` takes as many batches as it needs. Where fewer rows owe an answer than
    a batch has, spare environments fill it, whose answers nobody sees; so any number of
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
        """Knows of a new pool that nobody has asked anything."""
        self._inbox: Any = Inbox(
            self._pool, self._answers, self._name, self._rows, self._batch
        )
        self._states = RowStates(self._rows)

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
        self._noted_seed = seed

    def get_info(self) -> dict[str, Any]:
        """Returns the infos of the rows that the last `recv` has returned.

        They are arrays; row `i` belongs to `env_ids[i]`. Besides what EnvPool says
        there are `terminated` and `truncated`. At first they are empty.
        """
        return joined_infos([self._answers.infos_of(answer) for answer in self._last])

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
            _check_none_ended(rows[states == OVER])
        members = self._actions.plain(actions, rows.size)
        if members is None:
            ignored = None if states is None else states >= OVER
            members = self._actions.members(actions, count=rows.size, ignored=ignored)
        new = states == NEW if states is not None and self._states.new else None
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
        rows, time_step, ended = joined(taken, self._answers)
        return AsyncBatch(self._states.answer(rows, ended), time_step)

    def close(self) -> None:
        """Closes the pool and lets go of it; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        # Whoever waits for EnvPool waits for what it has been asked.
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
            "SAME_STEP the next episode of a row would have to begin before anybody "
            "asked for it; EnvPoolWrapper does that."
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
            f"count is {describe(count)}; it is an integer, or None for all that owe "
            "an answer."
        ) from None
    if wanted < 1:
        raise ValueError(f"count is {wanted}; it is at least 1.")
    if wanted > owing:
        raise CallOrderError(
            f"recv(count={wanted}) was called although only "
            f"{counted(owing, 'environment')} owe{'s' * (owing == 1)} an answer, so it "
            "would wait for ever. Ask for fewer, or send more first."
        )
    return wanted
