"""`universe_view`: environments as OpenAI Universe's clients know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncEnvironment
from envkit.autoreset import AutoReset
from envkit.blocking import Blocking
from envkit.errors import CallOrderError, SpecError
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["UniverseView", "universe_view"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)

Info = dict[str, Any]


def universe_view(env: Any) -> UniverseView:
    """Shows an environment through the interface of OpenAI Universe.

    Args:
        env: An `AsyncEnvironment`, whose rows reset while the others go on, or any
            batch, or a single environment, which is a view of one row.

    Example:
        >>> from envkit import AsyncParallelPyEnvironment
        >>> pool = AsyncParallelPyEnvironment(["Catch"] * 2, backend="inline")
        >>> env = universe_view(pool)
        >>> env.reset()
        [None, None]
        >>> observations, rewards, dones, info = env.step([1, 1])
        >>> observations[0].shape, rewards, dones
        ((10, 5), [0.0, 0.0], [False, False])
        >>> info["n"][0]["env_status.env_state"]
        'running'
        >>> env.close()
    """
    return UniverseView(env)


class UniverseView:
    """Lists with an entry for each row, and `None` where a row is resetting.

    | in Universe                  | here                                          |
    |------------------------------|-----------------------------------------------|
    | `reset()` returns at once    | and `None` for every row                      |
    | `step(action_n)`             | `observation_n, reward_n, done_n, info`       |
    | a row that is done           | starts resetting by itself; its observation is|
    |                              | `None`, and the final one is in               |
    |                              | `info["n"][i]["env_status.complete.observation"]`|
    | an action of a resetting row | is dropped: `mask.masked.action`              |
    | `step` before `reset`        | `CallOrderError`, where Universe left it open |

    Universe did not tell terminations from truncations; here `info["n"][i]` has
    `env_status.complete.discount`, which is 0 only where nothing could follow.
    """

    def __init__(self, env: Any) -> None:
        """Shows an environment; closing the view closes it."""
        self._env = env
        self._batch = _as_batch(env)
        self._rows: int = self._batch.batch_size or 1
        self._is_single = not self._batch.batched
        self._action = nest.Structure(env.action_spec())
        self._observation = nest.Structure(env.observation_spec())
        self._has_begun = False
        # By row: the number of its episode; 0 before the first.
        self._episode = np.zeros(self._rows, np.int64)
        self._has_info = True

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self._rows

    @property
    def unwrapped(self) -> Any:
        """The environment."""
        return self._env

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self._env.seed(seed)

    def close(self) -> None:
        """Closes the environment."""
        self._batch.close()

    def reset(self) -> list[None]:
        """Lets every row begin an episode, which `step` shows when it is there."""
        self._first = None
        if isinstance(self._batch, Blocking):
            self._batch.reset_async()
        else:
            # Rows that move together begin together; the next step shows how.
            self._first = self._batch.reset()
        self._has_begun = True
        return [None] * self._rows

    def step(
        self, action_n: Sequence[Any]
    ) -> tuple[list[Any], list[float], list[bool], Info]:
        """Hands in an action for each row, and returns what happened.

        Returns:
            Observations, rewards, whether episodes have ended, and diagnostics: lists
            with an entry for each row, and `info["n"]` one of dictionaries.
        """
        if not self._has_begun:
            raise CallOrderError(
                "step() was called before reset(). Call reset() once; rows that are "
                "done then begin by themselves."
            )
        if len(action_n) != self._rows:
            raise SpecError(
                f"step() was given {len(action_n)} actions for {self._rows} rows; "
                "it needs one for each. None of them has moved."
            )
        masked = self._resetting()
        actions = self._stacked(action_n)
        if self._first is not None:
            time_step, self._first = self._first, None
            masked = np.ones(self._rows, bool)
        elif masked.all() and isinstance(self._batch, Blocking):
            time_step = self._batch.wait()
        else:
            time_step = self._batch.step(actions)
        if self._is_single:
            time_step = _with_rows(time_step)
        return self._as_lists(time_step, masked)

    def _resetting(self) -> Array:
        """Returns the rows whose actions are not used now."""
        if isinstance(self._batch, Blocking) and self._batch.resetting.any():
            resetting: Array = self._batch.resetting
            return resetting
        current = getattr(self._batch, "_current_time_step", None)
        if current is None:
            return np.ones(self._rows, bool)
        ended: Array = np.asarray(current.step_type).reshape(self._rows) == _LAST
        return ended

    def _stacked(self, action_n: Sequence[Any]) -> NestedArray:
        rows = [self._action.flatten(action) for action in action_n]
        if self._is_single:
            return action_n[0]
        columns = [
            np.array(column, spec.dtype)
            for column, spec in zip(
                zip(*rows, strict=True), self._action.leaves, strict=True
            )
        ]
        return self._action.unflatten(columns)

    def _as_lists(
        self, time_step: TimeStep, masked: Array
    ) -> tuple[list[Any], list[float], list[bool], Info]:
        valid = getattr(self._batch, "valid", np.ones(self._rows, bool))
        valid = np.asarray(valid).reshape(self._rows)
        step_types = np.asarray(time_step.step_type)
        first = valid & (step_types == _FIRST)
        done = valid & (step_types == _LAST)
        self._episode += first
        observations: list[Any] = [None] * self._rows
        rewards = [0.0] * self._rows
        infos = self._diagnostics(valid)
        leaves = self._observation.flatten(time_step.observation)
        discounts = nest.flatten(time_step.discount)
        for row in range(self._rows):
            info = infos[row]
            is_running = bool(valid[row] and not done[row])
            info["env_status.env_state"] = "running" if is_running else "resetting"
            info["env_status.episode_id"] = str(self._episode[row])
            if masked[row]:
                info["mask.masked.action"] = True
            if not is_running:
                info["mask.masked.observation"] = True
            if not valid[row]:
                continue
            rewards[row] = _total(time_step.reward, row)
            seen = self._observation.unflatten([np.copy(leaf[row]) for leaf in leaves])
            if is_running:
                observations[row] = seen
                continue
            info["env_status.complete.episode_id"] = str(self._episode[row])
            info["env_status.complete.env_state"] = "resetting"
            info["env_status.complete.observation"] = seen
            info["env_status.complete.discount"] = float(discounts[0][row])
        if done.any() and isinstance(self._batch, Blocking):
            self._batch.reset_async(done)
        return observations, rewards, done.tolist(), {"n": infos}

    def _diagnostics(self, valid: Array) -> list[Info]:
        """Returns what Universe tells of timing, where there is anything to tell."""
        infos: list[Info] = [{} for _ in range(self._rows)]
        for row, info in self._infos(valid).items():
            lag = info.get("realtime")
            if not isinstance(lag, Mapping):
                continue
            age, latency = float(lag["observation_age"]), float(lag["action_latency"])
            infos[row] = {
                "stats.reward.count": int(lag["ticks_merged"]),
                # Universe knows bounds, because its clocks are on two machines.
                "stats.gauges.diagnostics.lag.observation": (age, age),
                "stats.gauges.diagnostics.lag.action": (latency, latency),
                "stats.gauges.diagnostics.clock_skew": (0.0, 0.0),
                "stats.ticks.missed": int(lag["missed_ticks"]),
                "stats.ticks.overrun": int(lag["overrun_ticks"]),
                "env_status.episodes_skipped": int(lag["episodes_skipped"]),
            }
        return infos

    def _infos(self, valid: Array) -> dict[int, Mapping[str, Any]]:
        """Returns the infos of the rows that can be asked now."""
        rows = np.flatnonzero(valid).tolist()
        if not self._has_info or not rows:
            return {}
        try:
            if isinstance(self._batch, Blocking):
                given = self._env.call("get_info", env_ids=rows)
                return dict(zip(rows, given, strict=True))
            given = self._batch.get_info()
        except (NotImplementedError, AttributeError):
            self._has_info = False
            return {}
        if self._is_single:
            return {0: given}
        return {row: _row_of(given, row) for row in rows}


def _as_batch(env: Any) -> Any:
    """Returns what has time steps of all rows at once."""
    if isinstance(env, AsyncEnvironment):
        return Blocking(env, wait=False)
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        raise TypeError(f"universe_view takes an environment, not {describe(env)}.")
    if AutoReset.kept_by(env) is not AutoReset.NEXT_STEP:
        raise ValueError(
            f"universe_view was given {describe(env)} with "
            f"AutoReset.{AutoReset.kept_by(env).name}; it takes AutoReset.NEXT_STEP."
        )
    return env


def _with_rows(time_step: TimeStep) -> TimeStep:
    return nest.map_structure(lambda leaf: np.asarray(leaf)[None], time_step)  # type: ignore[no-any-return]


def _total(reward: NestedArray, row: int) -> float:
    return sum(float(np.sum(np.asarray(leaf)[row])) for leaf in nest.flatten(reward))


def _row_of(infos: Any, row: int) -> Any:
    if isinstance(infos, Mapping):
        return {key: _row_of(value, row) for key, value in infos.items()}
    return infos[row]
