"""`vectorize`: functions that make environments, as one vector environment.

It is what `gymnasium.vector.AsyncVectorEnv` is, with envkit's workers: several
environments to a process, one round trip to a step, and no pickling on the way.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit import targets
from envkit.adapters.dependencies import require
from envkit.adapters.gymnasium_vector.autoreset_modes import as_order
from envkit.adapters.gymnasium_vector.gymnasium_rows import (
    HAS_INFO,
    TERMINATED,
    TRUNCATED,
    GymnasiumRows,
    RowSpaces,
)
from envkit.adapters.gymnasium_vector.row_attributes import values_by_row
from envkit.adapters.gymnasium_vector.row_infos import DictInfos, RowInfos
from envkit.adapters.gymnasium_vector.vector_rows import Ends, check_infos
from envkit.adapters.py_to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.spaces.plain_spaces import plain_spec
from envkit.autoreset import AutoReset
from envkit.constructors import constructor
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray

__all__ = ["VectorizedEnvs", "vectorize"]

Info = Mapping[str, Any]


def vectorize(
    env_fns: Sequence[Callable[[], Any] | str],
    shared_memory: bool = True,
    copy: bool = True,
    context: str | None = None,
    daemon: bool = True,
    worker: Any = None,
    observation_mode: Any = "same",
    autoreset_mode: Any = "NextStep",
    max_concurrency: int | None = None,
    *,
    infos: str = "all",
    backend: Any = "process",
    num_workers: int | None = None,
    on_worker_failure: Any = "raise",
    start_timeout: float | None = None,
    reset_timeout: float | None = None,
    step_timeout: float | None = None,
    worker_setup: Any = None,
    worker_env: Mapping[str, str] | None = None,
) -> VectorizedEnvs:
    """Makes a vector environment of functions that make single environments.

    The first arguments are those of Gymnasium's `AsyncVectorEnv`, in the same order,
    and what the vector environment returns is what Gymnasium's would.

    The environments of one worker are one batch to envkit: where one raises, all of
    them begin anew, with the next `reset` or as `on_worker_failure` says.

    Args:
        env_fns: What to call, in a worker, for each environment: one of Gymnasium's or
            one of envkit's. Strings are what `envkit.make` takes.
        shared_memory: Accepted; arrays are in shared memory anyway, and what is none
            travels beside it.
        copy: Whether observations are the caller's. If not, they are read-only views,
            which stay whole until the step after next.
        context: How processes start: "spawn", "forkserver" or "fork"; `None` for
            "spawn".
        daemon: Accepted; workers end with this process, and may have children.
        worker: Not supported: workers of envkit's run a program of their own.
        observation_mode: "same" if all observation spaces have to be equal,
            "different" if their bounds may differ, or a tuple of the batched space and
            the single one.
        autoreset_mode: When the next episode of a row begins.
        max_concurrency: How many environments may run at the same time, as
            `num_workers` is.
        infos: Which infos are looked at: those of every step ("all"), those of the ends
            of episodes ("final"), or "none". Where environments have no info nobody
            asks for it, so "all" costs something only with those that have.
        backend: "process", "thread" or "inline".
        num_workers: How many workers share the environments; `None` for one per CPU
            that this process may use.
        on_worker_failure: "raise", or a `RestartPolicy`.
        start_timeout: Seconds that building all environments may take.
        reset_timeout: Seconds that a reset may take.
        step_timeout: Seconds that a step may take.
        worker_setup: A callable, or "module:function", that runs first in each worker.
        worker_env: Environment variables of the workers.

    Example:
        >>> import gymnasium
        >>> env_fns = [lambda: gymnasium.make("CartPole-v1")] * 4
        >>> with_two = dict(num_workers=2, backend="inline")
        >>> envs = vectorize(env_fns, autoreset_mode="SameStep", **with_two)
        >>> envs
        VectorizedEnvs(num_envs=4)
        >>> observations, infos = envs.reset(seed=7)
        >>> observations.shape, infos
        ((4, 4), {})
        >>> envs.close()
    """
    require("gymnasium", needed_by="vectorize", extra="gymnasium")
    if worker is not None:
        raise ValueError(
            "worker was given, and vectorize() has no place for it: envkit's workers "
            "run a program of their own. worker_setup runs something first in each."
        )
    check_infos(infos)
    order = as_order(autoreset_mode)
    _check_observation_mode(observation_mode)
    makers = _as_makers(env_fns)
    blocks = _blocks(len(makers), num_workers, max_concurrency)
    pool = _load("envkit.parallel:ParallelPyEnvironment")(
        [
            functools.partial(
                GymnasiumRows,
                tuple(makers[row] for row in block),
                first_row=block.start,
            )
            for block in blocks
        ],
        start_serially=False,
        backend=backend,
        num_workers=len(blocks),
        autoreset=order,
        start_method="spawn" if context is None else context,
        on_worker_failure=on_worker_failure,
        start_timeout=start_timeout,
        reset_timeout=reset_timeout,
        step_timeout=step_timeout,
        worker_setup=worker_setup,
        worker_env=worker_env,
        zero_copy=not copy,
    )
    try:
        return VectorizedEnvs(pool, blocks, order, observation_mode, infos)
    except BaseException:
        pool.close()
        raise


class VectorizedEnvs(PyToGymnasiumVector):
    """The vector environment that `vectorize` makes."""

    def __init__(
        self,
        pool: Any,
        blocks: Sequence[range],
        order: AutoReset,
        observation_mode: Any,
        infos: str,
    ) -> None:
        """Takes a pool of `GymnasiumRows`; `vectorize` makes it."""
        hosted = _HostedRows(pool, blocks, infos)
        self._set_up(pool, order, hosted)
        self._name = "vectorize"
        spaces = hosted.spaces()
        self.render_mode = spaces.render_mode
        self.single_action_space = _all_equal("action", spaces.action)
        self.single_observation_space = spaces.observation[0]
        if observation_mode == "same":
            _all_equal("observation", spaces.observation)
        batched = _batched_observations(observation_mode, spaces.observation)
        if isinstance(observation_mode, tuple):
            self.single_observation_space = observation_mode[1]
        self._describe(spaces.metadata)
        if batched is not None:
            self.observation_space = batched

    def _compile(self, observation_spec: Any, action_spec: Any) -> None:
        super()._compile(observation_spec["observation"], action_spec)

    def render(self) -> tuple[Any, ...]:
        """Returns what each environment renders."""
        return self.call("render")


class _HostedRows:
    """Asks the `GymnasiumRows` in the workers of a pool."""

    def __init__(self, pool: Any, blocks: Sequence[range], wanted: str) -> None:
        self._pool = pool
        self._blocks = blocks
        self._block_of_row = np.repeat(
            np.arange(len(blocks)), [len(block) for block in blocks]
        )
        self._rows = len(self._block_of_row)
        self._wanted = wanted
        # What was asked along with the infos of the last step: those of rows that have
        # begun since.
        self._begun: dict[int, Info] = {}

    def spaces(self) -> RowSpaces:
        """Returns what the environments say of themselves."""
        found: list[RowSpaces] = self._pool.call("row_spaces")
        return found[0]._replace(
            observation=[space for one in found for space in one.observation],
            action=[space for one in found for space in one.action],
        )

    def prepared(
        self, mask: Array, seeds: list[int | None], options: list[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Sends seeds and options ahead."""
        if any(seed is not None for seed in seeds):
            self._pool.seed(seeds)
        if options[0] is not None:
            self._pool.call("set_reset_options", options[0], mask.tolist())
        return contextlib.nullcontext()

    def observation(self, time_step: TimeStep) -> NestedArray:
        """Returns the observation without the report beside it."""
        return time_step.observation["observation"]

    def infos(self, shown: TimeStep, ended: Array) -> RowInfos | None:
        """Asks for infos where the reports say that there are some."""
        # Hot: called once per batch step.
        self._begun = {}
        if self._wanted == "none":
            return None
        told = shown.observation["report"] & HAS_INFO != 0
        if self._wanted == "final":
            told &= ended
        if not np.count_nonzero(told):
            return None
        asked = self._asked(told)
        self._begun = {row: now for row, (_, now) in asked.items()}
        happened = {row: dict(info) for row, (info, _) in asked.items()}
        return DictInfos(happened, self._rows)

    def begun_infos(
        self, now: TimeStep, rows: Array, *, at_once: bool
    ) -> RowInfos | None:
        """Asks for the infos of rows that have begun, unless that was done before."""
        if self._wanted == "none" or (at_once and self._wanted != "all"):
            return None
        told = rows & (now.observation["report"] & HAS_INFO != 0)
        if not told.any():
            return None
        begun = dict(self._begun) if at_once else {}
        missing = told.copy()
        missing[list(begun)] = False
        if missing.any():
            begun |= {row: info for row, (_, info) in self._asked(missing).items()}
        infos = {row: dict(info) for row, info in sorted(begun.items()) if told[row]}
        return DictInfos(infos, self._rows)

    def _asked(self, told: Array) -> dict[int, tuple[Info, Info]]:
        rows = np.flatnonzero(told)
        envs = np.unique(self._block_of_row[rows]).tolist()
        answers = self._pool.call("row_infos", rows.tolist(), env_ids=envs)
        return {row: infos for answer in answers for row, infos in answer.items()}

    def ends(self, shown: TimeStep, ended: Array, infos: RowInfos | None) -> Ends:
        """Tells by the reports."""
        # Hot: called once per batch step.
        if not np.count_nonzero(ended):
            return ended.copy(), ended.copy()
        report = shown.observation["report"]
        terminated = ended & (report & TERMINATED != 0)
        # What was made up for an environment that is gone has no report of its own.
        truncated = ended & ((report & TRUNCATED != 0) | ~terminated)
        return terminated, truncated

    def call(self, name: str, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment."""
        found = self._pool.call("call_rows", name, args, kwargs)
        return tuple(result for results in found for result in results)

    def get(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every environment, as Gymnasium does it."""
        return self.call(name, (), {})

    def set(self, name: str, values: Any) -> None:
        """Sets an attribute of every environment."""
        self._pool.call("set_rows", name, values_by_row(values, self._rows))


def _load(target: str) -> Any:
    # By its name, as `make` does: adapters do not know the engine.
    return targets.load("vectorize", target)


def _as_makers(env_fns: Any) -> list[Callable[[], Any]]:
    is_one = isinstance(env_fns, str) or callable(env_fns)
    if is_one or not isinstance(env_fns, Iterable):
        raise TypeError(
            f"env_fns is {describe(env_fns)}; vectorize takes a list with one function "
            "for each environment: [make_env] * 8."
        )
    makers = list(env_fns)
    if not makers:
        raise ValueError("env_fns is empty; there is at least one environment.")
    return [_as_maker(entry, index) for index, entry in enumerate(makers)]


def _as_maker(entry: Any, index: int) -> Callable[[], Any]:
    if isinstance(entry, str):
        return constructor(entry)
    if not callable(entry):
        raise TypeError(
            f"env_fns[{index}] is {describe(entry)}, which is non-callable. Each "
            "environment is made in its own worker, so pass what makes it: "
            "lambda: gymnasium.make(...)."
        )
    return entry  # type: ignore[no-any-return]  # callable() says so


def _blocks(
    rows: int, num_workers: int | None, max_concurrency: int | None
) -> list[range]:
    """Returns the rows of each worker, adjacent and as equal in number as can be."""
    counts = [rows]
    for name, given in (
        ("num_workers", num_workers),
        ("max_concurrency", max_concurrency),
    ):
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise TypeError(f"{name} is {describe(given)}; it is an integer or None.")
        if given < 1:
            raise ValueError(f"{name} is {given}; there is at least one worker.")
        counts.append(int(given))
    if num_workers is None:
        counts.append(_load("envkit.parallel.cpus:available_cpus")())
    workers = min(counts)
    edges = [rows * worker // workers for worker in range(workers + 1)]
    return [range(*pair) for pair in itertools.pairwise(edges)]


def _check_observation_mode(mode: Any) -> None:
    if mode in ("same", "different"):
        return
    from gymnasium import Space

    if not (
        isinstance(mode, tuple)
        and len(mode) == 2
        and all(isinstance(space, Space) for space in mode)
    ):
        raise ValueError(
            f"observation_mode is {describe(mode)}; it is 'same', 'different', or a "
            "tuple of the batched space and the single one."
        )


def _batched_observations(mode: Any, spaces: list[Any]) -> Any:
    """Returns the batched space, or `None` if it is as usual."""
    if isinstance(mode, tuple):
        if plain_spec(mode[1]) != plain_spec(spaces[0]):
            raise RuntimeError(
                f"observation_mode has the single space {mode[1]}, and the "
                f"environments have {spaces[0]}, whose members are other arrays."
            )
        return mode[0]
    if mode == "same":
        return None
    from gymnasium.vector.utils import batch_differing_spaces

    return batch_differing_spaces(spaces)


def _all_equal(what: str, spaces: list[Any]) -> Any:
    first = spaces[0]
    for row, space in enumerate(spaces):
        if space != first:
            remedy = (
                " Where only bounds differ, pass observation_mode='different'."
                if what == "observation"
                else ""
            )
            raise RuntimeError(
                f"env_fns[0] and env_fns[{row}] have different {what} spaces, so they "
                f"cannot form one batch.{remedy}\n\n  {first}\n  {space}"
            )
    return first
