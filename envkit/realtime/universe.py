"""Shows environments through the interface of OpenAI Universe: `universe_view`."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import agent_rewards
from envkit.async_environment import AsyncEnvironment
from envkit.errors import CallOrderError, SpecError
from envkit.extend import as_environment, describe
from envkit.realtime.actions import no_op_of
from envkit.realtime.background import InBackground, Moved, OwnPace
from envkit.realtime.loop import Schedule
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.specs.sampling import sample_spec_nest
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["BlockingReset", "PeekReward", "RowSpace", "UniverseView", "universe_view"]

_LOGGER = logging.getLogger(__name__)
# Seconds after which a waiting step checks for episodes that have begun.
_LONGEST_SLEEP = 0.016
_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)

Info = dict[str, Any]


class PeekReward:
    """An action that only looks; rewards and ends wait for a later step.

    It is Universe's class of this name. Pass the class itself instead of an action to
    `universe_view`, or among the events of an action.

    Example:
        >>> from envkit import make
        >>> env = universe_view(make("Catch"), wait=True)
        >>> _ = env.reset()
        >>> _, rewards, dones, info = env.step([PeekReward])
        >>> rewards, dones, info["n"][0]["peek"]
        ([0.0], [False], True)
        >>> env.close()
    """


def universe_view(
    env: Any,
    *,
    wait: bool = False,
    fps: float | None = None,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], Any] = time.sleep,
) -> UniverseView:
    """Shows an environment through the interface of OpenAI Universe.

    Args:
        env: An `AsyncEnvironment`, whose rows reset independently; any batch; or a
            single environment, which becomes one row.
        wait: Whether `reset` and `step` wait for episodes to begin, like Universe's
            `BlockingReset`, so that no observation is `None`. Other rows pause
            meanwhile.
        fps: The maximum number of steps per second, like Universe's `Throttle`; `None`
            for no limit.
        now: The clock: seconds since 1970.
        sleep: A function that waits for a number of seconds.

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
    return UniverseView(env, wait=wait, fps=fps, now=now, sleep=sleep)


class UniverseView:
    """Shows lists with one entry per row, and `None` for a row that is resetting.

    | in Universe                  | here                                          |
    |------------------------------|-----------------------------------------------|
    | `reset()` returns at once    | and `None` for every row                      |
    | `step(action_n)`             | `observation_n, reward_n, done_n, info`       |
    | no `step` waits for a reset  | nor here, unless `wait=True`                  |
    | a row that is done           | starts resetting at once; its observation is  |
    |                              | `None`, and the final one is in               |
    |                              | `info["n"][i]["env_status.complete.observation"]`|
    | an action of a resetting row | is dropped, `None` too: `mask.masked.action`  |
    | `render()` of the first row  | a picture; while it is resetting, the last one|
    | `spaces.PeekReward`          | `PeekReward`, as an action or among its events |
    | `step` before `reset`        | `CallOrderError`, where Universe left it open |

    The rows of an `AsyncEnvironment` reset independently. A batch that moves together,
    or a single environment, is reset in a thread of the view. Until the reset finishes,
    the other rows pause, with the same observation, reward 0 and
    `mask.masked.action`.

    Universe did not distinguish termination from truncation. Here `info["n"][i]` has
    `env_status.complete.discount`, which is 0 only for a termination.
    """

    metadata: Mapping[str, Any] = {
        "render.modes": ["rgb_array"],
        "runtime.vectorized": True,
        "semantics.async": True,
        "semantics.autoreset": True,
    }

    def __init__(
        self,
        env: Any,
        *,
        wait: bool = False,
        fps: float | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """Shows an environment; closing the view closes it.

        Args:
            env: The environment.
            wait: Whether to wait for episodes to begin.
            fps: The maximum number of steps per second; `None` for no limit.
            now: The clock: seconds since 1970.
            sleep: A function that waits for a number of seconds.
        """
        self._env = env = as_environment(env)
        self._waits = bool(wait)
        self._rows = _rows_of(env, self._waits)
        self._action = nest.Structure(env.action_spec())
        self._observation = nest.Structure(env.observation_spec())
        self._schedule = None if fps is None else Schedule(fps, overrun="stretch")
        self._fps = fps
        self._now, self._sleep = now, sleep
        self._has_begun = False
        self._picture: Any = None
        # Per row: the number of its episode; 0 before the first.
        self._episode = np.zeros(self.n, np.int64)
        # Per row: whether the program has asked for the episode that begins.
        self._asked_for = np.zeros(self.n, bool)
        # Per row: its last observation; `None` while it is resetting.
        self._shown: list[Any] = [None] * self.n
        self._has_info = True
        # Per row: the results that peeking steps have left, by episode.
        self._left: list[list[_RowResult]] = [[] for _ in range(self.n)]

    @property
    def n(self) -> int:
        """The number of rows."""
        return self._rows.rows

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

        While that row is resetting, the result is the last picture returned, or `None`
        before the first. Environments that have a window show it.
        """
        picture = self._rows.render(mode) if self._shown[0] is not None else None
        if picture is not None:
            self._picture = picture
        return self._picture

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        return self._rows.seed(seed)

    def close(self) -> None:
        """Closes the environment."""
        self._rows.close()

    def reset(self) -> list[Any]:
        """Begins an episode in every row; `step` shows it once it has begun.

        Returns:
            `None` for each row, or their first observations if the view waits for them.
        """
        self._rows.begin()
        self._has_begun = True
        self._asked_for[:] = True
        self._shown = [None] * self.n
        self._left = [[] for _ in range(self.n)]
        if self._schedule is not None:
            self._schedule.begin(self._now())
        if self._waits:
            self.wait_for_resets([{} for _ in range(self.n)])
        return list(self._shown)

    def step(
        self, action_n: Sequence[Any]
    ) -> tuple[list[Any], list[float], list[bool], Info]:
        """Passes in an action for each row, and returns the results as lists.

        Returns:
            Observations, rewards, whether episodes have ended, and diagnostics: lists
            with one entry per row. `info["n"]` is a list of dictionaries.
        """
        if not self._has_begun:
            raise CallOrderError(
                "step() was called before reset(). Call reset() once; rows that are "
                "done then begin without it."
            )
        if len(action_n) != self.n:
            raise SpecError(
                f"step() must be given an action for each of {self.n} rows, got "
                f"{len(action_n)}. None of them has moved."
            )
        asked = self._now()
        beginning = self._rows.beginning
        peeks = [_peeks(action) for action in action_n]
        action_n = [
            _besides_peeking(action) if peek else action
            for action, peek in zip(action_n, peeks, strict=True)
        ]
        # Rows that are beginning ignore their action, whatever it is.
        action = None if beginning.all() else self._stacked(action_n, beginning)
        moved = self._rows.step(action)
        answered = self._now()
        rewards, dones, infos = self._as_lists(moved, asked, answered)
        if self._waits:
            self.wait_for_resets(infos)
        slept = self._pace(infos)
        for row in range(self.n):
            if peeks[row] or self._left[row]:
                result = _RowResult(rewards[row], dones[row], infos[row])
                rewards[row], dones[row], infos[row] = self._peeked(
                    row, result, peek=peeks[row]
                )
        done = self._now()
        info = {
            "n": infos,
            "throttle.action.available_at": answered,
            "throttle.observation.available_at": done,
            "stats.throttle.sleep": slept,
            "stats.timers.vnc_env.Timer.step": done - asked,
            "stats.timers.vnc_env.Timer.step.excluding_sleep": done - asked - slept,
        }
        return list(self._shown), rewards, dones, info

    def _peeked(self, row: int, result: _RowResult, *, peek: bool) -> _RowResult:
        """Stores a row's results for later, or returns them with earlier ones.

        Rewards of two episodes are never added: the rest of a finished one comes first,
        and the next one's with a later step.
        """
        left = self._left[row]
        if left and not left[-1].done:
            result = left.pop().followed_by(result)
        left.append(result)
        if not peek:
            first = left.pop(0)
            # Nobody saw the episodes that finished in between.
            del left[:-1]
            return first
        status = {key: result.info.get(key) for key in _STATUS}
        seen = {f"env_status.peek.{key[11:]}": status[key] for key in _STATUS}
        played = left[0].info.get("env_status.complete.episode_id")
        if played is not None:
            status["env_status.episode_id"] = played
        masks = {
            key: result.info[key] for key in result.info if key.startswith("mask.")
        }
        return _RowResult(0.0, False, {"peek": True, **status, **seen, **masks})

    def wait_for_resets(self, infos: list[Info]) -> list[Any]:
        """Waits until no row is resetting, and returns the observations; no row steps.

        Args:
            infos: The `info["n"]` of the previous call; it is updated.
        """
        beginning = np.array([observation is None for observation in self._shown])
        if beginning.any():
            self._show_beginnings(self._rows.wait(), beginning, infos)
        return list(self._shown)

    def _show_beginnings(
        self, time_step: TimeStep, rows: Array, infos: list[Info]
    ) -> None:
        """Replaces `None` by the rows' first observations."""
        leaves = self._observation.flatten(time_step.observation)
        for row in np.flatnonzero(rows).tolist():
            self._shown[row] = self._seen(leaves, row)
            self._begin_episode(row, infos[row])
            infos[row].pop("mask.masked.observation", None)

    def _begin_episode(self, row: int, info: Info) -> None:
        self._episode[row] += 1
        info["env_status.env_state"] = "running"
        info["env_status.episode_id"] = str(self._episode[row])
        if self._asked_for[row]:
            info["env_status.reset.episode_id"] = str(self._episode[row])
            self._asked_for[row] = False

    def _pace(self, infos: list[Info]) -> float:
        """Waits until the next step is due; returns how many seconds that took.

        Episodes that begin meanwhile appear in this step.
        """
        if self._schedule is None:
            return 0.0
        slept = 0.0
        while (early := self._schedule.due - self._now()) > 0:
            pause = min(early, _LONGEST_SLEEP)
            self._sleep(pause)
            slept += pause
            if self._rows.beginning.any():
                moved = self._rows.poll()
                if moved.time_step is not None:
                    self._show_beginnings(moved.time_step, moved.valid, infos)
        late, _ = self._schedule.start(self._now())
        if late >= 1:
            _LOGGER.info(
                "a step came %.2f s too late; %.1f frames at %g fps are lost",
                late,
                late * (self._fps or 0.0),
                self._fps,
            )
        return slept

    def _seen(self, leaves: Sequence[Any], row: int) -> NestedArray:
        return self._observation.unflatten([np.copy(leaf[row]) for leaf in leaves])

    @functools.cached_property
    def _dropped(self) -> list[Any] | None:
        """An action to replace dropped ones; `None` if there is no no-op."""
        try:
            return self._action.flatten(no_op_of(self._env.action_spec()))
        except ValueError:  # actions are objects
            return None

    def _stacked(self, action_n: Sequence[Any], masked: Array) -> NestedArray:
        rows = [
            self._dropped
            if (is_masked or action is PeekReward) and self._dropped is not None
            else self._action.flatten([] if action is PeekReward else action)
            for action, is_masked in zip(action_n, masked, strict=True)
        ]
        if self._rows.is_single:
            return self._action.unflatten(rows[0])
        columns = [
            np.array(column, spec.dtype)
            for column, spec in zip(
                zip(*rows, strict=True), self._action.leaves, strict=True
            )
        ]
        return self._action.unflatten(columns)

    def _as_lists(
        self, moved: Moved, asked: float, answered: float
    ) -> tuple[list[float], list[bool], list[Info]]:
        """Records the rows' positions, and returns their rewards, ends and infos."""
        dones = np.zeros(self.n, bool)
        rewards = [0.0] * self.n
        infos = self._diagnostics(moved.valid, asked, answered)
        time_step = moved.time_step
        if time_step is not None:
            step_types = np.asarray(time_step.step_type)
            dones = moved.valid & (step_types == _LAST)
            leaves = self._observation.flatten(time_step.observation)
            discounts = nest.flatten(time_step.discount)
        for row in range(self.n):
            info = infos[row]
            if not moved.taken[row]:
                info["mask.masked.action"] = True
            if time_step is not None and moved.valid[row]:
                rewards[row] = float(agent_rewards(time_step.reward, row).sum())
                self._shown[row] = seen = self._seen(leaves, row)
                if step_types[row] == _FIRST:
                    self._begin_episode(row, info)
                elif dones[row]:
                    self._shown[row] = None
                    info["env_status.complete.episode_id"] = str(self._episode[row])
                    info["env_status.complete.env_state"] = "resetting"
                    info["env_status.complete.observation"] = seen
                    info["env_status.complete.discount"] = float(discounts[0][row])
                    info["reward_buffer.done_time"] = answered
            is_running = self._shown[row] is not None
            info["env_status.env_state"] = "running" if is_running else "resetting"
            info["env_status.episode_id"] = str(self._episode[row])
            if not is_running:
                info["mask.masked.observation"] = True
        if dones.any():
            self._rows.begin(dones)
        return rewards, dones.tolist(), infos

    def _diagnostics(self, valid: Array, asked: float, answered: float) -> list[Info]:
        """Returns the timing of each row, under Universe's names.

        Universe knew only bounds of its lags, because its clocks were on two machines.
        Here there is one clock. For an environment that is not in real time, a lag is
        between 0 and the duration of the step.
        """
        given = self._infos(valid)
        infos: list[Info] = [{} for _ in range(self.n)]
        for row, info in enumerate(infos):
            info["stats.reward.count"] = int(valid[row])
            info["env.text"] = []
            if not valid[row]:
                continue
            own = given.get(row) or {}
            lag = own.get("realtime") if isinstance(own, Mapping) else None
            ages = latencies = (0.0, answered - asked)
            if isinstance(lag, Mapping):
                ages = (float(lag["observation_age"]),) * 2
                latencies = (float(lag["action_latency"]),) * 2
                info["stats.reward.count"] = int(lag["ticks_merged"])
                info["stats.ticks.missed"] = int(lag["missed_ticks"])
                info["stats.ticks.overrun"] = int(lag["overrun_ticks"])
                info["env_status.episodes_skipped"] = int(lag["episodes_skipped"])
                if lag["interrupted"]:
                    info["env_status.artificial.done"] = True
            info["stats.gauges.diagnostics.lag.observation"] = ages
            info["stats.gauges.diagnostics.lag.action"] = latencies
            info["stats.gauges.diagnostics.lag.reward"] = ages
            info["stats.gauges.diagnostics.lag.rewarder_message"] = ages
            info["stats.gauges.diagnostics.clock_skew"] = (0.0, 0.0)
            info["diagnostics.image_remote_time"] = answered - ages[1]
            info["reward_buffer.remote_time"] = answered - ages[1]
            info["reward_buffer.local_time"] = answered
            if isinstance(own, Mapping):
                for name, value in own.get("vnc", {}).items():
                    info[f"stats.vnc.{name}"] = _plain(value)
                # What a remote of Universe has reported itself.
                info.update(own.get("universe", {}))
        return infos

    def _infos(self, valid: Array) -> dict[int, Any]:
        """Returns the infos of the rows that can be asked now."""
        rows = np.flatnonzero(valid).tolist()
        if not self._has_info or not rows:
            return {}
        try:
            return self._rows.infos(rows)
        except (NotImplementedError, AttributeError):
            self._has_info = False
            return {}


class BlockingReset:
    """Waits for episodes to begin, so that no observation is `None`.

    It is Universe's wrapper of this name, around a `universe_view`. It waits for all
    rows that are resetting; the others do not move meanwhile.

    Example:
        >>> from envkit import AsyncParallelPyEnvironment
        >>> pool = AsyncParallelPyEnvironment(["Catch"] * 2, backend="inline")
        >>> env = BlockingReset(universe_view(pool))
        >>> [observation.shape for observation in env.reset()]
        [(10, 5), (10, 5)]
        >>> env.close()
    """

    def __init__(self, env: UniverseView) -> None:
        """Wraps a view."""
        if not isinstance(env, UniverseView):
            raise TypeError(
                "BlockingReset must be given a universe_view, got "
                f"{describe(env)}. With arrays instead of lists, use Blocking."
            )
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # while it is copied, or before it has any
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self) -> list[Any]:
        """Begins an episode in every row, and returns the first observations."""
        self.env.reset()
        return self.env.wait_for_resets([{} for _ in range(self.env.n)])

    def step(
        self, action_n: Sequence[Any]
    ) -> tuple[list[Any], list[float], list[bool], Info]:
        """Passes in an action for each row, and returns the results as lists.

        If an episode has ended, the reward is the last one of that episode, and the
        observation the first one of the next.
        """
        _, rewards, dones, info = self.env.step(action_n)
        return self.env.wait_for_resets(info["n"]), rewards, dones, info


class RowSpace:
    """Describes one row's actions or observations, with the attributes of Gym's spaces.

    | attribute     | where                                                          |
    |---------------|----------------------------------------------------------------|
    | `spec`        | always: the specs of envkit                                    |
    | `shape`       | always; `None` if there are several arrays                     |
    | `dtype`       | the same                                                       |
    | `n`, `start`  | one number of a range: the first, and how many there are       |
    | `low`, `high` | one array of numbers                                           |
    | `spaces`      | several arrays: a dictionary or tuple of spaces; `space["key"]`|

    It needs no other library. `envkit.adapters.space_from_spec(space.spec)` converts it
    to a Gymnasium space.

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
        """Makes later draws of `sample` depend only on a seed."""
        self._rng = np.random.default_rng(seed)

    def sample(self) -> Any:
        """Draws a value; a single number is a NumPy scalar."""
        sample: Any = sample_spec_nest(self.spec, self._rng)
        return sample[()] if isinstance(self.spec, ArraySpec) else sample

    def contains(self, x: Any) -> bool:
        """True if a value belongs to the space; `None` does not."""
        try:
            leaves = self._structure.flatten(x)
        except (SpecError, TypeError, ValueError):
            return False
        return all(map(_fits, leaves, self._structure.leaves))

    def __contains__(self, x: Any) -> bool:
        """True if a value belongs to the space."""
        return self.contains(x)

    def __getitem__(self, key: Any) -> RowSpace:
        """Returns the space of a part."""
        return self.spaces[key]  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the array; `None` if there are several."""
        return self.spec.shape if isinstance(self.spec, ArraySpec) else None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of the array; `None` if there are several."""
        return self.spec.dtype if isinstance(self.spec, ArraySpec) else None

    @property
    def n(self) -> int:
        """The number of values."""
        return int(self._range("n").maximum) - self.start + 1

    @property
    def start(self) -> int:
        """The smallest value."""
        return int(self._range("start").minimum)

    @property
    def low(self) -> Array:
        """The smallest values."""
        return np.broadcast_to(self._bounds("low").minimum, self.shape or ())

    @property
    def high(self) -> Array:
        """The largest values."""
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


class _RowResult(NamedTuple):
    """Holds the reward, end and info of a row."""

    reward: float
    done: bool
    info: Info

    def followed_by(self, other: _RowResult) -> _RowResult:
        """Combines two results as Universe did: counts are added up."""
        merged = {**self.info, **other.info}
        for key in self.info.keys() & other.info.keys():
            if key.startswith("stats.") and not key.startswith("stats.gauges."):
                merged[key] = self.info[key] + other.info[key]
        merged["env.text"] = [*self.info["env.text"], *other.info["env.text"]]
        return _RowResult(self.reward + other.reward, self.done or other.done, merged)


_STATUS = ("env_status.episode_id", "env_status.env_state")


def _peeks(action: Any) -> bool:
    return action is PeekReward or (
        isinstance(action, list | tuple) and any(one is PeekReward for one in action)
    )


def _besides_peeking(action: Any) -> Any:
    """Returns the events other than `PeekReward`; the action if it has none."""
    events = [] if action is PeekReward else [e for e in action if e is not PeekReward]
    return events or PeekReward


def _fits(value: Any, spec: ArraySpec) -> bool:
    """True if a value fits a spec, whatever the size of its dtype."""
    array = np.asarray(value)
    if spec.dtype.kind in "iufb" and not np.can_cast(
        array.dtype, spec.dtype, "same_kind"
    ):
        return False
    return array.shape == spec.shape and bool(
        spec.check_array(array.astype(spec.dtype, copy=False))
    )


def _rows_of(env: Any, waits: bool) -> OwnPace | InBackground:
    """Returns an environment's rows, each of which begins while others continue."""
    if isinstance(env, AsyncEnvironment):
        return OwnPace(env)
    if isinstance(env, type) or not hasattr(env, "time_step_spec"):
        raise TypeError(
            f"universe_view must be given an environment, got {describe(env)}."
        )
    if AutoReset.kept_by(env) is not AutoReset.NEXT_STEP:
        raise ValueError(
            "universe_view must be given an environment with AutoReset.NEXT_STEP, got "
            f"{describe(env)} with AutoReset.{AutoReset.kept_by(env).name}."
        )
    return InBackground(env, waits=waits)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) else value
