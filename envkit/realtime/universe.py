"""`universe_view`: shows environments through the interface of OpenAI Universe."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.async_environment import AsyncEnvironment
from envkit.blocking import Blocking
from envkit.errors import CallOrderError, SpecError
from envkit.realtime.actions import no_op_of
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.specs.sampling import sample_spec_nest
from envkit.specs.validation import describe
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["RowSpace", "UniverseView", "universe_view"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)

Info = dict[str, Any]


def universe_view(env: Any, *, wait: bool = False) -> UniverseView:
    """Shows an environment through the interface of OpenAI Universe.

    Args:
        env: An `AsyncEnvironment`, whose rows reset while the others go on, or any
            batch, or a single environment, which is a view of one row.
        wait: Whether `reset` and `step` wait for the episodes that begin, as with
            Universe's `BlockingReset`, so that no observation is `None`. Other rows do
            not move meanwhile.

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
    return UniverseView(env, wait=wait)


class UniverseView:
    """Shows lists with an entry for each row, and `None` where a row is resetting.

    | in Universe                  | here                                          |
    |------------------------------|-----------------------------------------------|
    | `reset()` returns at once    | and `None` for every row                      |
    | `step(action_n)`             | `observation_n, reward_n, done_n, info`       |
    | no `step` waits for a reset  | at once if all rows of an `AsyncEnvironment`  |
    |                              | are resetting, otherwise when the others have |
    |                              | stepped                                       |
    | a row that is done           | starts resetting at once; its observation is  |
    |                              | `None`, and the final one is in               |
    |                              | `info["n"][i]["env_status.complete.observation"]`|
    | an action of a resetting row | is dropped, `None` too: `mask.masked.action`  |
    | `render()` of the first row  | a picture; while it is resetting, the last one|
    | `step` before `reset`        | `CallOrderError`, where Universe left it open |

    Universe did not tell terminations from truncations; here `info["n"][i]` has
    `env_status.complete.discount`, which is 0 only where nothing could follow.
    """

    metadata: Mapping[str, Any] = {
        "render.modes": ["rgb_array"],
        "runtime.vectorized": True,
        "semantics.async": True,
        "semantics.autoreset": True,
    }

    def __init__(self, env: Any, *, wait: bool = False) -> None:
        """Shows an environment; closing the view closes it.

        Args:
            env: The environment.
            wait: Whether to wait for episodes to begin.
        """
        self._env = env
        self._waits = bool(wait)
        self._batch = _as_batch(env)
        self._rows: int = self._batch.batch_size or 1
        self._is_single = not self._batch.batched
        self._action = nest.Structure(env.action_spec())
        self._observation = nest.Structure(env.observation_spec())
        self._has_begun = False
        # The beginning of rows that begin together, until a step returns it.
        self._first: TimeStep | None = None
        self._picture: Any = None
        # By row: the number of its episode; 0 before the first.
        self._episode = np.zeros(self._rows, np.int64)
        self._has_info = True

    @property
    def n(self) -> int:
        """The number of rows."""
        return self._rows

    @property
    def unwrapped(self) -> Any:
        """The environment."""
        return self._env

    @functools.cached_property
    def action_space(self) -> RowSpace:
        """The space of the actions of one row."""
        return RowSpace(self._env.action_spec())

    @functools.cached_property
    def observation_space(self) -> RowSpace:
        """The space of the observations of one row, besides `None`."""
        return RowSpace(self._env.observation_spec())

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a picture of the first row, as Universe did.

        While that row is resetting it is the last picture that was returned, and `None`
        before the first. A window is shown by environments that have one.
        """
        if self._first is None and self._resetting()[0]:
            return self._picture
        if not isinstance(self._batch, Blocking):
            picture = self._batch.render(mode)
        elif hasattr(self._env, "render"):
            picture = self._env.render(mode, env_ids=[0])
        else:
            raise NotImplementedError(f"{type(self._env).__name__} has no pictures.")
        self._picture = picture if self._is_single or picture is None else picture[0]
        return self._picture

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self._env.seed(seed)

    def close(self) -> None:
        """Closes the environment."""
        self._batch.close()

    def reset(self) -> list[Any]:
        """Begins an episode in every row, which `step` shows when it is there.

        Returns:
            `None` for each row; their first observations if the view waits for them.
        """
        self._first = None
        if isinstance(self._batch, Blocking):
            self._batch.reset_async()
        else:
            # Rows that move together begin together; the next step shows how.
            self._first = self._batch.reset()
        self._has_begun = True
        observations = [None] * self._rows
        if self._waits:
            self._wait_for_resets(observations, [{} for _ in observations])
        return observations

    def step(
        self, action_n: Sequence[Any]
    ) -> tuple[list[Any], list[float], list[bool], Info]:
        """Hands in an action for each row, and returns the results as lists.

        Returns:
            Observations, rewards, whether episodes have ended, and diagnostics: lists
            with an entry for each row, and `info["n"]` one of dictionaries.
        """
        if not self._has_begun:
            raise CallOrderError(
                "step() was called before reset(). Call reset() once; rows that are "
                "done then begin without it."
            )
        if len(action_n) != self._rows:
            raise SpecError(
                f"step() must be given an action for each of {self._rows} rows, got "
                f"{len(action_n)}. None of them has moved."
            )
        masked = self._resetting()
        if self._first is not None:
            time_step, self._first = self._first, None
            masked = np.ones(self._rows, bool)
        elif masked.all() and isinstance(self._batch, Blocking):
            time_step = self._batch.poll()
        else:
            time_step = self._batch.step(self._stacked(action_n, masked))
        if self._is_single:
            time_step = _with_rows(time_step)
        observations, rewards, dones, info = self._as_lists(time_step, masked)
        if self._waits:
            self._wait_for_resets(observations, info["n"])
        return observations, rewards, dones, info

    def _wait_for_resets(self, observations: list[Any], infos: list[Info]) -> None:
        """Puts the first observations in the place of `None`; no other row moves."""
        pending = np.array([observation is None for observation in observations])
        if not pending.any():
            return
        if self._first is not None:
            time_step, self._first = self._first, None
        elif isinstance(self._batch, Blocking):
            while self._batch.resetting.any():
                self._batch.wait()
            time_step = self._batch.current_time_step()
        else:
            time_step = self._batch.reset(None if pending.all() else pending)
        if self._is_single:
            time_step = _with_rows(time_step)
        self._episode += pending
        leaves = self._observation.flatten(time_step.observation)
        for row in np.flatnonzero(pending).tolist():
            observations[row] = self._seen(leaves, row)
            infos[row]["env_status.env_state"] = "running"
            infos[row]["env_status.episode_id"] = str(self._episode[row])
            infos[row].pop("mask.masked.observation", None)

    def _seen(self, leaves: Sequence[Any], row: int) -> NestedArray:
        return self._observation.unflatten([np.copy(leaf[row]) for leaf in leaves])

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

    @functools.cached_property
    def _dropped(self) -> list[Any] | None:
        """An action in the place of those that are dropped; `None` without a no-op."""
        try:
            return self._action.flatten(no_op_of(self._env.action_spec()))
        except ValueError:  # Because actions are objects.
            return None

    def _stacked(self, action_n: Sequence[Any], masked: Array) -> NestedArray:
        rows = [
            self._dropped
            if is_masked and self._dropped is not None
            else self._action.flatten(action)
            for action, is_masked in zip(action_n, masked, strict=True)
        ]
        if self._is_single:
            return self._action.unflatten(rows[0])
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
            seen = self._seen(leaves, row)
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
        """Returns the timing of each row, under the names of Universe."""
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


class RowSpace:
    """Describes the actions or observations of one row, with the attributes of Gym.

    | attribute     | where                                                          |
    |---------------|----------------------------------------------------------------|
    | `spec`        | always: the specs of envkit                                    |
    | `shape`,      | always; `None` where there are several arrays                  |
    | `dtype`       |                                                                |
    | `n`, `start`  | one number of a range: the first, and how many there are       |
    | `low`, `high` | one array of numbers                                           |
    | `spaces`      | several arrays: a dictionary or tuple of spaces; `space["key"]`|

    It needs no other library. `envkit.adapters.space_from_spec(space.spec)` makes a
    space of Gymnasium of it.

    Example:
        >>> space = RowSpace(BoundedArraySpec((), np.int64, 0, 2))
        >>> space.seed(1)
        >>> space.n, space.contains(2), 3 in space, space.sample() in space
        (3, True, False, True)
    """

    def __init__(self, spec: NestedSpec) -> None:
        """Takes the specs of a row."""
        self.spec = spec
        self._structure = nest.Structure(spec)
        self._rng = np.random.default_rng()

    def __repr__(self) -> str:
        """Shows the specs."""
        return f"RowSpace({self.spec!r})"

    def seed(self, seed: int | None = None) -> None:
        """Makes what `sample` draws from now on depend on a seed alone."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> Any:
        """Draws a value of the space; a single number is a NumPy scalar."""
        sample: Any = sample_spec_nest(self.spec, self._rng)
        return sample[()] if isinstance(self.spec, ArraySpec) else sample

    def contains(self, x: Any) -> bool:
        """True if a value is one of the space; `None` is not."""
        try:
            leaves = self._structure.flatten(x)
        except (SpecError, TypeError, ValueError):
            return False
        return all(map(_fits, leaves, self._structure.leaves))

    def __contains__(self, x: Any) -> bool:
        """True if a value is one of the space."""
        return self.contains(x)

    def __getitem__(self, key: Any) -> RowSpace:
        """Returns the space of a part."""
        return self.spaces[key]  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the array; `None` where there are several."""
        return self.spec.shape if isinstance(self.spec, ArraySpec) else None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of the array's elements; `None` where there are several arrays."""
        return self.spec.dtype if isinstance(self.spec, ArraySpec) else None

    @property
    def n(self) -> int:
        """The number of values."""
        return int(self._range("n").maximum) - self.start + 1

    @property
    def start(self) -> int:
        """The least value."""
        return int(self._range("start").minimum)

    @property
    def low(self) -> Array:
        """The least values."""
        return np.broadcast_to(self._bounds("low").minimum, self.shape or ())

    @property
    def high(self) -> Array:
        """The greatest values."""
        return np.broadcast_to(self._bounds("high").maximum, self.shape or ())

    @property
    def spaces(self) -> Any:
        """The spaces of the parts."""
        if isinstance(self.spec, Mapping):
            return {key: RowSpace(part) for key, part in self.spec.items()}
        if isinstance(self.spec, list | tuple):
            return tuple(map(RowSpace, self.spec))
        raise self._lacks("spaces")

    def _range(self, name: str) -> BoundedArraySpec:
        spec = self._bounds(name)
        if spec.shape or not is_discrete(spec):
            raise self._lacks(name)
        return spec

    def _bounds(self, name: str) -> BoundedArraySpec:
        if not isinstance(self.spec, ArraySpec) or self.spec.dtype.kind not in "iuf":
            raise self._lacks(name)
        return BoundedArraySpec.from_spec(self.spec)

    def _lacks(self, name: str) -> AttributeError:
        return AttributeError(f"{self!r:.200} has no {name}.")


def _fits(value: Any, spec: ArraySpec) -> bool:
    """True if a value fits a spec, in any size of its type."""
    array = np.asarray(value)
    if spec.dtype.kind in "iufb" and not np.can_cast(
        array.dtype, spec.dtype, "same_kind"
    ):
        return False
    return array.shape == spec.shape and bool(
        spec.check_array(array.astype(spec.dtype, copy=False))
    )


def _as_batch(env: Any) -> Any:
    """Returns an environment with time steps of all rows at once."""
    if isinstance(env, AsyncEnvironment):
        return Blocking(env, wait=False)
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        raise TypeError(
            f"universe_view must be given an environment, got {describe(env)}."
        )
    if AutoReset.kept_by(env) is not AutoReset.NEXT_STEP:
        raise ValueError(
            "universe_view must be given an environment with AutoReset.NEXT_STEP, got "
            f"{describe(env)} with AutoReset.{AutoReset.kept_by(env).name}."
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
