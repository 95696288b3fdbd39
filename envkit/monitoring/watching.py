"""`Watch`: counts the steps and returns of an environment that others step.

```
the program ──▶ env.step ──▶ the environment's own step
                   │  time step
                   ▼
                 Watch: steps, returns, lost episodes
```

It needs no wrapper, and no hook in the environment's class: while it runs, attributes
of the object stand in front of the methods that move it.
"""

from __future__ import annotations

import functools
import time
import types
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

import numpy as np

from envkit import nest
from envkit._shared.inside import inside
from envkit.async_environment import AsyncEnvironment
from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.extend import describe, may_lose
from envkit.parallel import WorkerProcess
from envkit.py_environment import PyEnvironment
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["ReturnSums", "Source", "Watch"]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_LAST_BYTE = int(StepType.LAST)
# How many steps of a batch are added up together, at most.
_TOGETHER = 256


class Source(Protocol):
    """What `Progress` shows: the counts of an environment, or of anything else.

    Attributes:
        unit: What the total of a `Progress` counts, "steps" or "episodes".
        steps: The steps so far, of all rows.
        rows: The number of rows; `None` for a single environment.
        episodes: How many episodes have ended.
        returns: The returns of the last ones.
        lost: How many episodes were cut short because their environment was lost.
        restarts: How many times workers or environments were replaced.
    """

    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def rows(self) -> int | None: ...  # noqa: D102
    @property
    def episodes(self) -> int: ...  # noqa: D102
    @property
    def returns(self) -> deque[float]: ...  # noqa: D102
    @property
    def lost(self) -> int: ...  # noqa: D102
    @property
    def restarts(self) -> int: ...  # noqa: D102

    def start(self, tell: Callable[[], float]) -> None:
        """Begins to count; called again, it makes sure that it still does.

        Args:
            tell: To be called after a step once it is time; returns the next time, as
                of `time.monotonic`.
        """

    def stop(self) -> None:
        """Ends counting."""


class ReturnSums:
    """Adds up the rewards of the running episodes, and keeps the last returns.

    A reward of several numbers counts as their sum. Episodes that a reset broke off do
    not count, nor do those that ended because their environment was lost.

    A step of a batch only copies its rewards and step types; they are added up for many
    steps together.
    """

    def __init__(self, env: Any, rows: int | None) -> None:
        """Takes the environment, for its specs and losses, and its number of rows."""
        self._env = env
        spec = env.reward_spec()
        is_number = not nest.is_nested(spec) and spec.shape == ()
        self._reward = None if is_number else nest.Structure(spec)
        self._pads = getattr(env, "repeats_last", False) is True
        self._may_lose = may_lose(env)
        self._episodes = self._lost = 0
        self._returns: deque[float] = deque(maxlen=100)
        # Of a single environment; `is_over` between a padded LAST and the next FIRST.
        self._total, self._is_over = 0.0, False
        # Of each row.
        self._totals = np.zeros(rows or 0)
        self._over = np.zeros(rows or 0, bool)
        # Steps that are not added up yet, and the rows in them that were lost.
        self._kinds: list[bytes] = []
        self._rewards: list[bytes] = []
        self._dtypes = np.dtype(np.int32), np.dtype(np.float32)
        self._lost_rows: list[tuple[int, Array]] = []

    @property
    def episodes(self) -> int:
        """How many episodes have ended."""
        self._add_up()
        return self._episodes

    @property
    def returns(self) -> deque[float]:
        """The returns of the last 100 episodes."""
        self._add_up()
        return self._returns

    @property
    def lost(self) -> int:
        """How many episodes were lost with their environment."""
        self._add_up()
        return self._lost

    def add(self, time_step: TimeStep) -> None:
        """Adds a time step of a single environment."""
        # Hot: called once per step.
        kind = time_step.step_type
        if kind is not _MID and kind == _FIRST:
            self._total, self._is_over = 0.0, False
        elif not self._is_over:
            reward: Any = time_step.reward
            if self._reward is not None:
                reward = self._sum(reward, ())
            self._total += float(reward)
            if kind is not _MID and kind == _LAST:
                if self._may_lose and self._env.repaired:
                    self._lost += 1
                else:
                    self._episodes += 1
                    self._returns.append(self._total)
                self._total, self._is_over = 0.0, self._pads

    def add_rows(self, time_step: TimeStep, moved: Array | None) -> None:
        """Adds a time step of a batch.

        Args:
            time_step: The time step of all rows.
            moved: A mask of the rows that have moved; `None` for all.
        """
        # Hot: called once per step of a batch.
        kinds = np.asarray(time_step.step_type)
        reward = np.asarray(time_step.reward) if self._reward is None else None
        if reward is None:
            reward = self._sum(time_step.reward, kinds.shape)
        if moved is not None or self._pads:
            rows = np.arange(kinds.size) if moved is None else moved.nonzero()[0]
            self._add_answers(rows, kinds[rows], reward[rows], kinds.size)
            return
        if kinds.size != self._totals.size or self._dtypes != (
            kinds.dtype,
            reward.dtype,
        ):
            self._resize(kinds.size)
            self._dtypes = kinds.dtype, reward.dtype
        ends = kinds.tobytes()
        # The only number with this byte.
        if self._may_lose and _LAST_BYTE in ends:
            lost = self._env.repaired & (kinds == _LAST)
            if lost.any():
                self._lost_rows.append((len(self._kinds), lost.nonzero()[0]))
        self._kinds.append(ends)
        self._rewards.append(reward.tobytes())
        if len(self._kinds) == _TOGETHER:
            self._add_up()

    def add_answers(self, rows: Array, time_step: TimeStep, num_rows: int) -> None:
        """Adds the time steps of some rows, which an asynchronous environment sent."""
        # Hot: called once per batch of answers.
        kinds = np.asarray(time_step.step_type)
        reward = time_step.reward
        if self._reward is not None:
            reward = self._sum(reward, kinds.shape)
        self._add_answers(rows, kinds, np.asarray(reward), num_rows)

    def _add_answers(
        self, rows: Array, kinds: Array, rewards: Array, num_rows: int
    ) -> None:
        self._add_up()
        if num_rows != self._totals.size:
            self._resize(num_rows)
        counts = ~self._over[rows]
        self._totals[rows] += np.where(counts, rewards, 0.0)
        first = rows[kinds == _FIRST]
        self._totals[first] = 0.0
        self._over[first] = False
        ended = rows[(kinds == _LAST) & counts]
        if not ended.size:
            return
        real = ended[~self._env.repaired[ended]] if self._may_lose else ended
        self._lost += ended.size - real.size
        self._episodes += real.size
        self._returns.extend(self._totals[real].tolist())
        self._totals[ended] = 0.0
        self._over[ended] = self._pads

    def _add_up(self) -> None:
        """Adds up the steps of all rows that have been copied."""
        steps = len(self._kinds)
        if not steps:
            return
        kinds = _by_row(self._kinds, self._dtypes[0], steps)
        rewards = _by_row(self._rewards, self._dtypes[1], steps).astype(float)
        # Row after row: an episode's steps are a piece of the array.
        first = kinds == _FIRST
        rewards[first] = 0.0
        begins = first
        begins[1:] |= kinds[:-1] == _LAST
        begins[::steps] = True
        starts = begins.nonzero()[0]
        ends = np.append(starts[1:], kinds.size) - 1
        sums = np.add.reduceat(rewards, starts)
        # Episodes that had begun before.
        (goes_on,) = ((starts % steps == 0) & (kinds[starts] != _FIRST)).nonzero()
        sums[goes_on] += self._totals[starts[goes_on] // steps]
        has_ended = kinds[ends] == _LAST
        is_newest = ends % steps == steps - 1
        self._totals = np.where(has_ended, 0.0, sums)[is_newest]
        for step, lost in self._lost_rows:
            has_ended[np.searchsorted(ends, lost * steps + step)] = False
            self._lost += lost.size
        in_order = np.argsort(ends[has_ended] % steps, kind="stable")
        self._episodes += in_order.size
        self._returns.extend(sums[has_ended][in_order][-100:].tolist())
        self._kinds.clear()
        self._rewards.clear()
        self._lost_rows.clear()

    def _sum(self, reward: Any, dims: tuple[int, ...]) -> Array:
        assert self._reward is not None
        leaves = [np.asarray(leaf, float) for leaf in self._reward.flatten(reward)]
        total: Array = np.zeros(dims)
        for leaf in leaves:
            total = total + leaf.reshape(*dims, -1).sum(-1)
        return total

    def _resize(self, size: int) -> None:
        """Continues with another number of rows: the first ones are the same."""
        self._add_up()
        kept = min(size, self._totals.size)
        totals, over = np.zeros(size), np.zeros(size, bool)
        totals[:kept], over[:kept] = self._totals[:kept], self._over[:kept]
        self._totals, self._over = totals, over


def _by_row(copies: list[bytes], dtype: np.dtype[Any], steps: int) -> Array:
    """Returns copied arrays, one for each step, as one array, row after row."""
    columns = np.frombuffer(b"".join(copies), dtype).reshape(steps, -1)
    return np.ascontiguousarray(columns.T).ravel()


class _Shadow(functools.partial):  # type: ignore[type-arg]  # of whatever the method returns
    """Stands in an environment's attributes before a method.

    Copies of the environment get the method instead, because nobody watches them.
    """

    @property
    def watch(self) -> Watch:
        """The watch, whose method this calls with a method and its name."""
        return self.func.__self__  # type: ignore[no-any-return,attr-defined]  # `Watch.run`

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        env = memo.get(id(self.watch.env), self.watch.env)
        return types.MethodType(getattr(type(env), self.args[1]), env)

    def __reduce__(self) -> Any:
        return getattr, (self.watch.env, self.args[1])


class Watch:
    """Counts the steps of an environment, and its episodes' returns.

    The methods of the object are watched, and those of the environments inside only as
    far as the object moves them. Each row of a `step` counts as a step, its reset after
    a `LAST` included, and calls of `reset` don't. What an asynchronous environment has
    been sent counts.

    Attributes:
        env: The environment.
        steps: The steps so far, of all rows.
    """

    unit = "steps"

    def __init__(self, env: Any) -> None:
        """Finds the environment, in an adapter too; watches from `start` on."""
        self.env = env = _watchable(env)
        self.steps = 0
        self._sums = ReturnSums(env, self.rows)
        self._takes_masks = isinstance(env, PyEnvironment)
        self._has_fillers = self._takes_masks and hasattr(env, "valid")
        self._is_one = self.rows is None
        self._restarts_before = self._restarts_now = 0
        self._restarts_before = self.restarts
        self._tell: Callable[[], float] = lambda: np.inf
        self._due = np.inf
        # The thread that is in a watched method; others that it calls don't count.
        self._inside = 0
        self._is_running = False
        self._calls: dict[str, Callable[..., Any]] = {
            "step": self._stepped,
            "step_rows": self._rows_stepped,
            "reset": self._reset,
            "begin_step": self._stepped,
            "wait": self._completed,
            "poll": self._completed,
        }
        if isinstance(env, AsyncEnvironment):
            self._calls = {"send": self._sent, "recv": self._received}

    @property
    def rows(self) -> int | None:
        """The number of rows; `None` for a single environment."""
        if isinstance(self.env, AsyncEnvironment):
            return self.env.num_envs
        batched = getattr(self.env, "batched", False) is True
        return int(self.env.batch_size) if batched else None

    @property
    def episodes(self) -> int:
        """How many episodes have ended."""
        return self._sums.episodes

    @property
    def returns(self) -> deque[float]:
        """The returns of the last 100 episodes."""
        return self._sums.returns

    @property
    def lost(self) -> int:
        """How many episodes were cut short because their environment was lost."""
        return self._sums.lost

    @property
    def restarts(self) -> int:
        """How many times workers, or environments in them, were replaced."""
        workers = getattr(self.env, "workers", None)
        if isinstance(workers, list) and workers:  # none are left after `close`
            self._restarts_now = sum(
                worker.restarts
                for worker in workers
                if isinstance(worker, WorkerProcess)
            )
        return max(self._restarts_now - self._restarts_before, 0)

    def start(self, tell: Callable[[], float]) -> None:
        """Begins to watch; called again, it makes sure that it still does.

        Args:
            tell: Called after a step once it is time; returns the next time, as of
                `time.monotonic`.
        """
        if not self._is_running:
            self._tell, self._due, self._is_running = tell, 0.0, True
        attributes = vars(self.env)
        for name in self._calls:
            found = attributes.get(name)
            if isinstance(found, _Shadow) and found.watch is self:
                continue
            if callable(getattr(type(self.env), name, None)):
                attributes[name] = _Shadow(self.run, getattr(self.env, name), name)

    def stop(self) -> None:
        """Ends watching."""
        self._is_running = False
        attributes = vars(self.env)
        for name in self._calls:
            # Watches that began later may end later, and then remove this one's.
            while isinstance(attributes.get(name), _Shadow):
                shadow = attributes[name]
                if shadow.watch._is_running:
                    break
                attributes[name] = shadow.args[0]
            if isinstance(attributes.get(name), types.MethodType):
                del attributes[name]

    def run(
        self, method: Callable[..., Any], name: str, *given: Any, **named: Any
    ) -> Any:
        """Calls a method, and counts what it returns."""
        # Hot: called once per step.
        thread = get_ident()
        if self._inside == thread or not self._is_running:
            return method(*given, **named)
        self._inside = thread
        try:
            result = method(*given, **named)
        finally:
            self._inside = 0
        if callable(result):
            return _Promised(result, lambda: self._see(name, result(), given, named))
        return self._see(name, result, given, named)

    def _see(self, name: str, result: Any, given: Any, named: Any) -> Any:
        self._calls[name](result, *given, **named)
        if time.monotonic() >= self._due:
            self._due = self._tell()
        return result

    # The calls, each with its result and its arguments.

    def _stepped(
        self, time_step: TimeStep, action: Any = None, mask: Any = None, **others: Any
    ) -> None:
        if self._is_one:
            self.steps += 1
            self._sums.add(time_step)
        else:
            moved = None if mask is None or not self._takes_masks else _as_mask(mask)
            self._add(time_step, moved, moved)

    def _rows_stepped(
        self, time_step: TimeStep, action: Any, stepping: Any, beginning: Any = None
    ) -> None:
        stepped = _as_mask(stepping)
        moved = stepped if beginning is None else stepped | _as_mask(beginning)
        self._add(time_step, moved, stepped)

    def _reset(self, time_step: TimeStep, mask: Any = None, **others: Any) -> None:
        if self._is_one:
            self._sums.add(time_step)
        else:
            moved = None if mask is None or not self._takes_masks else _as_mask(mask)
            self._add(time_step, moved, np.zeros(1, bool))

    def _completed(self, time_step: TimeStep, *others: Any) -> None:
        self._add(time_step, None, np.zeros(1, bool))

    def _add(
        self, time_step: TimeStep, moved: Array | None, stepped: Array | None
    ) -> None:
        if self._has_fillers:
            valid: Array = self.env.valid
            moved = valid if moved is None else moved & valid
            stepped = valid if stepped is None else stepped & valid
        if stepped is None:
            self.steps += int(np.size(time_step.step_type))
        else:
            self.steps += int(np.count_nonzero(stepped))
        self._sums.add_rows(time_step, moved)

    def _sent(self, nothing: None, actions: Any, env_ids: Any = None) -> None:
        self.steps += self.env.num_envs if env_ids is None else len(env_ids)

    def _received(self, batch: Any, *others: Any, **named: Any) -> None:
        rows = np.asarray(batch.env_ids)
        self._sums.add_answers(rows, batch.time_step, self.env.num_envs)


class _Promised:
    """A promise whose answer is counted when it is taken for the first time."""

    def __init__(self, promise: Any, take: Callable[[], Any]) -> None:
        self._promise, self._take = promise, take

    def __call__(self) -> Any:
        take, self._take = self._take, self._promise
        return take()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._promise, name)


def _as_mask(mask: Any) -> Array:
    return np.asarray(mask, bool)


def _advice(env: Any) -> str:
    """Returns what to do about an environment of another library, or ""."""
    if not (hasattr(env, "reset") and hasattr(env, "step")):
        return ""
    return " envkit.make(env) returns an environment that counts its steps."


def _watchable(env: Any) -> Any:
    """Returns the environment whose methods to watch, in an adapter too."""
    found = env
    while not (hasattr(type(found), "reward_spec") and hasattr(found, "__dict__")):
        within = inside(found)
        if len(within) != 1:
            raise TypeError(
                "progress() needs an environment and a number of steps, such as "
                f"progress(env, 10_000), got {describe(env)} as the environment."
                f"{_advice(env)}"
            )
        (found,) = within
    # `TFPyEnvironment` steps the single environment in its batch.
    if "pyenv" in vars(found):
        found = found.pyenv
        if isinstance(found, BatchedPyEnvironment) and found.batch_size == 1:
            (found,) = found.envs
    return found
