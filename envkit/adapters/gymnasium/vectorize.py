"""`vectorize`: functions that make environments, as one vector environment.

It is what `gymnasium.vector.AsyncVectorEnv` is, with envkit's workers: several
environments to a process, one round trip to a step, and no pickling on the way.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import registry
from envkit._internal.internals import Internals
from envkit._internal.removed import refuses_removed_options
from envkit.adapters.foreign import require, told_of_losses
from envkit.adapters.gymnasium.infos import DictInfos, RowInfos
from envkit.adapters.gymnasium.kinds import as_order
from envkit.adapters.gymnasium.rows import Ends, check_call, check_infos, values_by_row
from envkit.adapters.gymnasium.spaces import kind_of_space
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.gymnasium.wrapper import name_of, set_attribute
from envkit.adapters.reset_arguments import (
    known_to_reset,
    refuse_options,
    refuse_seed,
)
from envkit.adapters.state import layers_of
from envkit.adapters.values import map_specs
from envkit.errors import SpecError
from envkit.extend import copied_arrays, describe
from envkit.py_environment import PyEnvironment
from envkit.registry import constructor
from envkit.specs.arrays import ArraySpec
from envkit.specs.special import ObjectSpec
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["GymnasiumRows", "Places", "VectorizedEnvs", "plain_spec", "vectorize"]


_Info = Mapping[str, Any]


@refuses_removed_options
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
    eager_resets: bool = False,
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
        infos: Which infos are read: those of every step ("all"), those of the ends
            of episodes ("final"), or "none". "all" costs nothing where environments
            have no info.
        backend: "process", "thread" or "inline".
        num_workers: How many workers share the environments; `None` for one per CPU
            that this process may use.
        on_worker_failure: "raise", or a `RestartPolicy`.
        start_timeout: Seconds that building all environments may take.
        reset_timeout: Seconds that a reset may take.
        step_timeout: Seconds that a step may take.
        worker_setup: A callable, or "module:function", that runs first in each worker.
        worker_env: Environment variables of the workers.
        eager_resets: Whether an environment is reset right after its episode has ended,
            while the caller does something else.

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
        eager_resets=eager_resets,
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
    """Reads and sets what the `GymnasiumRows` in the workers of a pool have."""

    def __init__(self, pool: Any, blocks: Sequence[range], wanted: str) -> None:
        self._pool = pool
        self._blocks = blocks
        self._block_of_row = np.repeat(
            np.arange(len(blocks)), [len(block) for block in blocks]
        )
        self._rows = len(self._block_of_row)
        self._wanted = wanted
        # The infos of rows that have begun since the last step, which were read with
        # those of that step.
        self._begun: dict[int, _Info] = {}

    def spaces(self) -> _RowSpaces:
        """Returns the spaces and the metadata of the environments."""
        found: list[_RowSpaces] = self._pool.call("row_spaces")
        return found[0]._replace(
            observation=[space for one in found for space in one.observation],
            action=[space for one in found for space in one.action],
        )

    def prepared(
        self, mask: Array, seeds: list[int | None], options: list[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Sends seeds and options ahead."""
        if any(seed is not None for seed in seeds):
            with told_of_losses("seed", "vectorize"):
                self._pool.seed(seeds)
        if options[0] is not None:
            with told_of_losses("options", "vectorize"):
                self._pool.call("set_reset_options", options[0], mask.tolist())
        return contextlib.nullcontext()

    def observation(self, time_step: TimeStep) -> NestedArray:
        """Returns the observation without the report beside it."""
        return time_step.observation["observation"]

    def infos(self, shown: TimeStep, ended: Array) -> RowInfos | None:
        """Reads the infos of rows whose reports have the flag of one."""
        # Hot: called once per batch step.
        self._begun = {}
        if self._wanted == "none":
            return None
        told = shown.observation["report"] & _HAS_INFO != 0
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
        """Reads the infos of rows that have begun, unless they were read before."""
        if self._wanted == "none" or (at_once and self._wanted != "all"):
            return None
        told = rows & (now.observation["report"] & _HAS_INFO != 0)
        if not told.any():
            return None
        begun = dict(self._begun) if at_once else {}
        missing = told.copy()
        missing[list(begun)] = False
        if missing.any():
            begun |= {row: info for row, (_, info) in self._asked(missing).items()}
        infos = {row: dict(info) for row, info in sorted(begun.items()) if told[row]}
        return DictInfos(infos, self._rows)

    def _asked(self, told: Array) -> dict[int, tuple[_Info, _Info]]:
        rows = np.flatnonzero(told)
        envs = np.unique(self._block_of_row[rows]).tolist()
        answers = self._pool.call("row_infos", rows.tolist(), env_ids=envs)
        return {row: infos for answer in answers for row, infos in answer.items()}

    def ends(self, shown: TimeStep, ended: Array, infos: RowInfos | None) -> Ends:
        """Decides by the reports."""
        # Hot: called once per batch step.
        if not np.count_nonzero(ended):
            return ended.copy(), ended.copy()
        report = shown.observation["report"]
        terminated = ended & (report & _TERMINATED != 0)
        # Time steps made up for an environment that is gone have no report.
        truncated = ended & ((report & _TRUNCATED != 0) | ~terminated)
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
    return registry.load("vectorize", target)


def _as_makers(env_fns: Any) -> list[Callable[[], Any]]:
    is_one = isinstance(env_fns, str) or callable(env_fns)
    if is_one or not isinstance(env_fns, Iterable):
        raise TypeError(
            f"env_fns is {describe(env_fns)}; vectorize takes a list with one function "
            "for each environment: [make_env] * 8."
        )
    makers = list(env_fns)
    if not makers:
        raise ValueError("env_fns must have at least one function, got none.")
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


def _as_concurrency(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise TypeError(
            f"max_concurrency must be an integer or None, got {describe(given)}."
        )
    if given < 1:
        raise ValueError(f"max_concurrency must be at least 1, got {given}.")
    return int(given)


def _blocks(
    rows: int, num_workers: int | None, max_concurrency: int | None
) -> list[range]:
    """Returns the rows of each worker, adjacent and as equal in number as can be."""
    check = _load("envkit.parallel.options:as_worker_count")
    asked = check("num_workers", num_workers)
    if asked is None:
        asked = _load("envkit.parallel.system.cpus:available_cpus")()
    counts = [rows, asked]
    if max_concurrency is not None:
        counts.append(_as_concurrency(max_concurrency))
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
            "observation_mode must be 'same', 'different', or a tuple of the batched "
            f"space and the single one, got {describe(mode)}."
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


_TERMINATED, _TRUNCATED, _HAS_INFO = 1, 2, 4
_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
_REWARD_SPEC = ArraySpec((), np.float64, "reward")
_REPORT_SPEC = ArraySpec((), np.uint8, "report")

_STEP_RESULT = "(observation, reward, terminated, truncated, info)"


class _RowSpaces(NamedTuple):
    """The spaces and the metadata of the environments of one worker.

    Attributes:
        observation: The observation space of each row.
        action: The action space of each row.
        metadata: The metadata of the first environment.
        render_mode: Its render mode.
    """

    observation: list[Any]
    action: list[Any]
    metadata: dict[str, Any]
    render_mode: str | None


class _RowsInternals(Internals):
    """Lets a worker reset the rows that have ended, while nobody waits for them."""

    resets_early = True
    same_when_early = frozenset({"row_infos", "row_spaces", "set_reset_options"})

    def reset_early(self, env: Any) -> int:
        """Resets the rows whose episode has ended; returns their number."""
        number: int = env._reset_ahead()
        return number


class GymnasiumRows(PyEnvironment):
    """Steps environments of Gymnasium together.

    Where an episode has ended, the next step begins another one.

    Example:
        >>> import gymnasium
        >>> rows = GymnasiumRows([lambda: gymnasium.make("CartPole-v1")] * 2)
        >>> time_step = rows.reset()
        >>> time_step.observation["observation"].shape, time_step.observation["report"]
        ((2, 4), array([0, 0], dtype=uint8))
        >>> rows.close()
    """

    _envkit = _RowsInternals()

    def __init__(
        self, env_fns: Iterable[Callable[[], Any]], first_row: int = 0
    ) -> None:
        """Makes the environments.

        Args:
            env_fns: What to call for each.
            first_row: The number of the first one among those of all workers.
        """
        super().__init__()
        self._first_row = first_row
        self._envs: list[Any] = []
        try:
            for env_fn in env_fns:
                with self._telling(len(self._envs), "was called"):
                    self._envs.append(_as_gymnasium(env_fn()))
            self._check_alike()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        count = len(self._envs)
        first = self._envs[0]
        self._plain_observation = plain_spec(first.observation_space)
        self._action_spec = plain_spec(first.action_space)
        self._takes_arrays = isinstance(self._action_spec, ArraySpec)
        self._places = Places(self._plain_observation, count)
        self._infos: list[Mapping[str, Any]] = [{}] * count
        # By row: what the info was when the episode ended that has been left since.
        self._final_infos: dict[int, Mapping[str, Any]] = {}
        self._step_types = [_FIRST] * count
        self._rewards = [0.0] * count
        self._reports = [0] * count
        # By row: what every reset is passed, and what the next one is.
        self._known_to_reset = [known_to_reset(layers_of(env)) for env in self._envs]
        self._arguments: dict[int, dict[str, Any]] = {}
        # By row: what a reset has returned, or raised, that was made ahead; and those
        # rows of which it was thrown away, because a seed or options came with the
        # reset.
        self._ahead: dict[int, Any] = {}
        self._in_vain: set[int] = set()

    def _check_alike(self) -> None:
        for name in ("observation_space", "action_space"):
            first = getattr(self._envs[0], name)
            for row, env in enumerate(self._envs):
                space = getattr(env, name)
                if plain_spec(space) != plain_spec(first):
                    raise RuntimeError(
                        f"env_fns[{self._first_row}] and "
                        f"env_fns[{self._first_row + row}] have different {name}s, so "
                        f"they cannot form one batch.\n\n  {first}\n  {space}"
                    )

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many environments there are."""
        return len(self._envs)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of a row's observation, and of the report beside it."""
        return {"observation": self._plain_observation, "report": _REPORT_SPEC}

    def action_spec(self) -> NestedSpec:
        """Returns the specs of a row's action."""
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of a reward, as exact as Gymnasium's."""
        return _REWARD_SPEC

    # What comes with the next reset.

    def seed(self, seed: Seed) -> None:
        """Keeps a seed for the next reset of each row; `None` lets it go on."""
        told = dict(enumerate(seed))  # type: ignore[arg-type]  # pools pass lists
        self._keep_for_reset(
            "seed", {row: own for row, own in told.items() if own is not None}
        )

    def set_reset_options(self, options: Any, mask: Sequence[bool]) -> None:
        """Keeps options for the next reset of the masked rows.

        Args:
            options: The options.
            mask: Which of the rows of all workers are meant.
        """
        rows = [row for row in range(len(self._envs)) if mask[self._first_row + row]]
        # A dictionary for each: an environment may change its own.
        self._keep_for_reset("options", {row: copy.deepcopy(options) for row in rows})

    def _keep_for_reset(self, name: str, values: Mapping[int, Any]) -> None:
        """Keeps an argument for the next reset of rows; raises if one takes none."""
        taking = [row for row in values if name in self._known_to_reset[row]]
        for row in taking:
            self._arguments.setdefault(row, {})[name] = values[row]
        for row in values.keys() - {*taking}:
            whose = name_of(self._envs[row])
            if name == "seed":
                refuse_seed(whose)
            if values[row]:
                refuse_options(whose, values[row])

    # Rows.

    def _reset(self) -> TimeStep:
        return self._reset_rows(np.ones(len(self._envs), bool))

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._final_infos = {}
        for row in np.flatnonzero(mask).tolist():
            if self._step_types[row] == _LAST:
                self._final_infos[row] = copied_arrays(self._infos[row])
            self._begin(row)
        return self._time_step()

    def _reset_ahead(self) -> int:
        """Resets the rows whose episode has ended, before a step does; counts them."""
        rows = [
            row
            for row, step_type in enumerate(self._step_types)
            if step_type == _LAST and not {row} & (self._in_vain | self._ahead.keys())
        ]
        for row in rows:
            # The environment may write to its arrays again, which the row still shows.
            self._infos[row] = copied_arrays(self._infos[row])
            try:
                result = self._envs[row].reset(**self._known_to_reset[row])
                self._ahead[row] = copied_arrays(result)
            except Exception as error:
                self._ahead[row] = error
        return len(rows)

    def _result_of_reset(self, row: int) -> Any:
        """Returns what the reset of a row returns, or has returned ahead."""
        told, ahead = self._arguments.pop(row, {}), self._ahead.pop(row, None)
        if ahead is not None and not told:
            if isinstance(ahead, Exception):
                raise ahead
            return ahead
        # Where every reset is told something, those ahead would be in vain.
        if not told:
            self._in_vain.discard(row)
        elif ahead is not None:
            self._in_vain.add(row)
        return self._envs[row].reset(**{**self._known_to_reset[row], **told})

    def _begin(self, row: int) -> None:
        with self._telling(row, "raised in reset()"):
            result = self._result_of_reset(row)
            try:
                observation, info = result
            except (TypeError, ValueError):
                raise _bad_result("reset", result, "(observation, info)") from None
            self._places.put(row, observation)
        self._step_types[row] = _FIRST
        self._rewards[row] = 0.0
        self._reports[row] = _HAS_INFO if info else 0
        self._infos[row] = info

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: each line in the loop runs once per environment and step.
        if self._final_infos:
            self._final_infos = {}
        types, rewards, reports = self._step_types, self._rewards, self._reports
        infos, put, row, result = self._infos, self._places.put, 0, None
        try:
            for row, (env, own) in enumerate(
                zip(self._envs, self._own_actions(action), strict=True)
            ):
                if types[row] == _LAST:
                    self._begin(row)
                    continue
                result = env.step(own)
                observation, rewards[row], terminated, truncated, info = result
                put(row, observation)
                infos[row] = info
                if terminated or truncated:
                    types[row] = _LAST
                    reports[row] = (
                        (_TERMINATED if terminated else 0)
                        | (_TRUNCATED if truncated else 0)
                        | (_HAS_INFO if info else 0)
                    )
                else:
                    types[row] = _MID
                    reports[row] = _HAS_INFO if info else 0
        except BaseException as raised:
            self._tell(raised, row, "raised in step()")
            if isinstance(result, tuple) and len(result) != 5:
                error = _bad_result("step", result, _STEP_RESULT)
                self._tell(error, row, "raised in step()")
                raise error from raised
            raise
        return self._time_step()

    def _own_actions(self, action: NestedArray) -> Iterable[Any]:
        """Returns each environment's own action."""
        if self._takes_arrays:
            if type(action) is np.ndarray and not action.dtype.hasobject:
                return action
            return (action[row] for row in range(len(self._envs)))
        return (
            map_specs(operator.itemgetter(row), action)
            for row in range(len(self._envs))
        )

    def _time_step(self) -> TimeStep:
        reports = np.array(self._reports, np.uint8)
        return TimeStep(
            np.array(self._step_types, np.int32),
            np.array(self._rewards, np.float64),
            (reports & _TERMINATED == 0).astype(np.float32),
            {"observation": self._places.copy(), "report": reports},
        )

    # What the environments are asked.

    def row_infos(
        self, rows: Sequence[int]
    ) -> dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Returns for each of these rows the info of what happened, and that of now.

        They differ where an episode has ended and the next has begun at once.
        """
        found = {}
        for row in rows:
            own = row - self._first_row
            if 0 <= own < len(self._envs):
                now = self._infos[own]
                found[row] = self._final_infos.get(own, now), now
        return found

    def row_spaces(self) -> _RowSpaces:
        """Returns the spaces and the metadata of the environments."""
        first = self._envs[0]
        return _RowSpaces(
            _with_equal_ones_once([env.observation_space for env in self._envs]),
            _with_equal_ones_once([env.action_space for env in self._envs]),
            dict(getattr(first, "metadata", None) or {}),
            getattr(first, "render_mode", None),
        )

    def call_rows(self, name: str, args: Any, kwargs: Any) -> list[Any]:
        """Calls a method of each environment; an attribute that is none is returned."""
        check_call(name)
        results = []
        for row, env in enumerate(self._envs):
            with self._telling(row, f"raised in call({name!r})"):
                found = _attribute(env, name)
                results.append(found(*args, **kwargs) if callable(found) else found)
        return results

    def set_rows(self, name: str, values: Sequence[Any]) -> None:
        """Sets an attribute of each environment.

        Args:
            name: The attribute.
            values: A value for each row of all workers.
        """
        for row, env in enumerate(self._envs):
            with self._telling(row, f"raised in set_attr({name!r})"):
                set_attribute(env, name, values[self._first_row + row])

    def close(self) -> None:
        """Closes every environment, also if closing another one fails."""
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)
            self._envs = []

    @contextlib.contextmanager
    def _telling(self, row: int, what: str) -> Any:
        """Adds a note to an exception: which of the environments raised it."""
        try:
            yield
        except BaseException as error:
            self._tell(error, row, what)
            raise

    def _tell(self, error: BaseException, row: int, what: str) -> None:
        notes = getattr(error, "__notes__", [])
        if notes and notes[-1].startswith("env_fns["):
            return
        # Where Python has add_note (3.11) it does this. An exception that cannot take
        # a note matters more than the note.
        with contextlib.suppress(Exception):
            text = f"env_fns[{self._first_row + row}] {what}."
            error.__notes__ = [*notes, text]  # type: ignore[attr-defined,unused-ignore]


def _as_gymnasium(env: Any) -> Any:
    """Returns an environment of Gymnasium, as it is or made of one of envkit's."""
    # One of envkit's may forward everything else to one of Gymnasium's.
    if hasattr(type(env), "time_step_spec"):
        return PyToGymnasium(env)
    # Asked of the innermost: before 1.0 Gymnasium's wrappers warn about such questions.
    innermost = getattr(env, "unwrapped", env)
    if hasattr(innermost, "single_observation_space"):
        raise TypeError(
            f"It returned the vector environment {type(env).__name__}; vectorize takes "
            "functions that make single environments."
        )
    needed = ("reset", "step", "observation_space", "action_space", "get_wrapper_attr")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"It returned {what}, which is not an environment of Gymnasium's or "
            "envkit's."
        )
    return env


def _attribute(env: Any, name: str) -> Any:
    """Returns an attribute of one of Gymnasium's, or of envkit's inside it."""
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        # It does not show as its own what every environment of envkit's has.
        if isinstance(env, PyToGymnasium) and hasattr(PyEnvironment, name):
            return getattr(env.wrapped_env(), name)
        raise


def _bad_result(call: str, result: Any, expected: str) -> TypeError:
    return TypeError(
        f"{call}() returned {describe(result)}; in Gymnasium it returns the tuple "
        f"{expected}. Environments written for the old Gym return other ones."
    )


def _with_equal_ones_once(spaces: list[Any]) -> list[Any]:
    """Puts one object where there are several that are equal: they travel once."""
    distinct: list[Any] = []
    chosen = []
    for space in spaces:
        same = next((other for other in distinct if other == space), None)
        if same is None:
            distinct.append(space)
        chosen.append(space if same is None else same)
    return chosen


_ARRAYS = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")


def plain_spec(space: Any) -> NestedSpec:
    """Returns the shapes and dtypes of a space's members, without bounds.

    Example:
        >>> from gymnasium import spaces
        >>> plain_spec(spaces.Tuple((spaces.Discrete(3), spaces.Text(4))))
        (ArraySpec(shape=(), dtype=int64), ObjectSpec(shape=(), dtype=object))
    """
    kind = kind_of_space(space)
    if kind == "Dict":
        return {key: plain_spec(child) for key, child in space.spaces.items()}
    if kind == "Tuple":
        return tuple(plain_spec(child) for child in space.spaces)
    if kind in _ARRAYS:
        return ArraySpec(space.shape, space.dtype)
    return ObjectSpec()


class Places:
    """Where the observations of some rows go.

    Example:
        >>> places = Places(ArraySpec((2,), np.float32), rows=3)
        >>> places.put(1, np.array([5.0, 6.0]))
        >>> places.copy().tolist()
        [[0.0, 0.0], [5.0, 6.0], [0.0, 0.0]]
    """

    def __init__(self, spec: NestedSpec, rows: int) -> None:
        """Makes places for what fits a plain spec."""
        self._arrays = _zeros(spec, rows)
        # What an observation is that is one array.
        is_array = isinstance(spec, ArraySpec) and not isinstance(spec, ObjectSpec)
        self._shape = spec.shape if is_array else None
        self._put = _putter(spec, self._arrays, "observation")

    def put(self, row: int, value: Any) -> None:
        """Puts a member into a row."""
        # Hot: called once per row and step.
        if type(value) is np.ndarray and value.shape == self._shape:
            self._arrays[row] = value
        else:
            self._put(row, value)

    def copy(self) -> NestedArray:
        """Returns the arrays of all rows, as they are now."""
        return _copied(self._arrays)


def _zeros(spec: NestedSpec, rows: int) -> Any:
    if isinstance(spec, dict):
        return {key: _zeros(child, rows) for key, child in spec.items()}
    if isinstance(spec, tuple):
        return tuple(_zeros(child, rows) for child in spec)
    if isinstance(spec, ObjectSpec):
        return np.full(rows, None, object)
    return np.zeros((rows, *spec.shape), spec.dtype)


def _copied(arrays: Any) -> Any:
    if isinstance(arrays, dict):
        return {key: _copied(child) for key, child in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(_copied(child) for child in arrays)
    return arrays.copy()


def _putter(spec: NestedSpec, arrays: Any, path: str) -> Callable[[int, Any], None]:
    if isinstance(spec, dict):
        parts = {
            key: _putter(child, arrays[key], f"{path}[{key!r}]")
            for key, child in spec.items()
        }

        def put_dict(row: int, value: Any) -> None:
            for key, put in parts.items():
                put(row, value[key])

        return put_dict
    if isinstance(spec, tuple):
        items = [
            _putter(child, arrays[index], f"{path}[{index}]")
            for index, child in enumerate(spec)
        ]

        def put_tuple(row: int, value: Any) -> None:
            for put, item in zip(items, value, strict=True):
                put(row, item)

        return put_tuple
    if isinstance(spec, ObjectSpec):
        return arrays.__setitem__  # type: ignore[no-any-return]  # an array's
    return _array_putter(spec, arrays, path)


def _array_putter(
    spec: ArraySpec, array: Array, path: str
) -> Callable[[int, Any], None]:
    shape = spec.shape

    def put(row: int, value: Any) -> None:
        # Nothing is broadcast into a row.
        if np.shape(value) != shape:
            raise SpecError.does_not_fit(
                "The observation",
                path=path,
                root="observation",
                expected=repr(spec),
                got=describe(value),
                reason="The shape is not that of the observation_space.",
            )
        array[row] = value

    return put
