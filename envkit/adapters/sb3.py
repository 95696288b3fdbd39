"""`to_sb3`: envkit environments as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.foreign import LateBase, require
from envkit.adapters.gymnasium.conversion import to_member, to_members
from envkit.adapters.gymnasium.infos import RowInfos
from envkit.adapters.gymnasium.rows import (
    BatchRows,
    call_rows,
    check_infos,
    envs_of,
    get_rows,
    set_rows,
)
from envkit.adapters.gymnasium.spaces import space_from_spec
from envkit.adapters.gymnasium.to_gymnasium import check_scalars, metadata_of
from envkit.adapters.gymnasium.to_gymnasium_vector import ResetMode
from envkit.adapters.losses import loss_in, loss_info
from envkit.adapters.values import map_specs
from envkit.base_wrapper import rows_in_wrapper
from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.errors import CallOrderError
from envkit.extend import as_environment, describe
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["DropLostSteps", "PyToSB3", "to_sb3"]

_LAST = int(StepType.LAST)


def to_sb3(env: Any, *, infos: str = "all", render_mode: str | None = None) -> PyToSB3:
    """Makes a Stable-Baselines3 `VecEnv` from an environment.

    Args:
        env: A batch, a pool, or a single environment, which becomes a batch of one.
            Closing the result closes it. A pool's `autoreset` becomes SAME_STEP.
        infos: When infos are read: in every step ("all"), only at the ends of
            episodes ("final"), which is enough for Stable-Baselines3's algorithms, or
            never ("none"). A pool has to ask its workers for infos, which takes longer
            than a step of a cheap environment.
        render_mode: The mode that `render` passes on. `None` for the environment's own
            render mode, or "rgb_array" if it has none.

    Raises:
        MissingDependencyError: Stable-Baselines3 is not installed.
        ValueError: The batch cannot reset single rows, or an action consists of several
            arrays.
    """
    env = as_environment(env)
    if isinstance(env, type) or not isinstance(env, PyEnvironment):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"to_sb3() was given {what}; it takes a PyEnvironment, single or batched, "
            "such as a ParallelPyEnvironment."
        )
    check_infos(infos)
    return PyToSB3(env, infos=infos, render_mode=render_mode)


class PyToSB3(LateBase):
    """Presents an envkit batch as a `VecEnv`; `to_sb3` makes one.

    | envkit                          | Stable-Baselines3                           |
    |---------------------------------|---------------------------------------------|
    | `LAST`                          | done; the observation is already the next   |
    |                                 | episode's first                             |
    | its observation                 | `info["terminal_observation"]`              |
    | `LAST` without termination      | `info["TimeLimit.truncated"]` is true       |
    | `LAST` for a lost environment   | the same; `info["repaired"]` is True, and   |
    |                                 | `info["loss"]` is its `Loss`                |
    | `get_info`                      | the infos, a dictionary per row; with `r`,  |
    |                                 | `l` and `t` for a finished episode          |
    | `seed`                          | `seed`; the next reset uses it              |
    | integers that start elsewhere   | actions that start at 0                     |
    | `reset(options=...)`            | `set_options`, for all rows or for each; the |
    |                                 | next reset uses them                        |
    """

    # The base class's attributes.
    num_envs: int
    render_mode: str | None
    _seeds: list[int | None]
    _options: list[dict[str, Any]]
    _reset_seeds: Callable[[], None]
    _reset_options: Callable[[], None]

    @classmethod
    def _load_base(cls) -> type:
        require("stable_baselines3", needed_by="to_sb3()", extra="sb3")
        from stable_baselines3.common.vec_env import (  # type: ignore[import-not-found]  # not in the test extra
            VecEnv,
        )

        return VecEnv  # type: ignore[no-any-return]  # a class

    def __init__(self, env: PyEnvironment, infos: str, render_mode: str | None) -> None:
        """Wraps an environment, as `to_sb3` does."""
        _check_specs(env)
        self._given = env
        batch: Any = env
        if not env.batched:
            batch = BatchedPyEnvironment([env], multithreading=False)
        self._env = batch
        self._mode = ResetMode(batch, AutoReset.SAME_STEP, "to_sb3()")
        self._rows = BatchRows(batch, infos)
        self._none = np.zeros(batch.batch_size, bool)
        self._own_render_mode = _render_mode_of(batch, render_mode)
        self._actions: Any = None
        observations = space_from_spec(env.observation_spec())
        self._to_observations = to_members(observations, env.observation_spec())
        self._to_observation = to_member(observations, env.observation_spec())
        actions, self._first_action = _from_zero(space_from_spec(env.action_spec()))
        self._action_dtype = env.action_spec().dtype
        super().__init__(batch.batch_size, observations, actions)  # type: ignore[call-arg]  # VecEnv's
        self.metadata = metadata_of(batch, self._own_render_mode)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} has environments and cannot be copied or pickled: "
            "make another one instead."
        )

    def wrapped_env(self) -> Any:
        """Returns the envkit environment."""
        return self._given

    # Steps and resets.

    def reset(self) -> Any:
        """Begins an episode in every row and returns the observations.

        Uses the arguments of earlier calls to `seed` and `set_options`.
        """
        self._actions = None
        everyone = ~self._none
        with self._rows.prepared(everyone, self._seeds, self._options):
            time_step = self._env.reset()
        self._reset_seeds()
        # Options are for this reset, not for episodes that begin automatically.
        self._reset_options()
        begun = self._rows.begun_infos(everyone, at_once=False)
        self.reset_infos = self._by_row(begun)
        return self._seen(time_step)

    def step_async(self, actions: Any) -> None:
        """Takes the actions for the step that `step_wait` makes."""
        array = np.asarray(actions)
        if array.dtype.kind == "f" and self._action_dtype.kind in "biu":
            # Stable-Baselines3's policies draw zeros and ones as floats.
            array = array.astype(self._action_dtype)
        if self._first_action is not None:
            array = array + self._first_action
        self._actions = array

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Returns observations, rewards, dones and infos of a step."""
        if self._actions is None:
            raise CallOrderError(
                "step_wait() was called without actions. Call step_async(actions) "
                "first, or step(actions)."
            )
        actions, self._actions = self._actions, None
        shown = self._mode.step(actions, self._none)
        ended = np.asarray(shown.step_type) == _LAST
        found = self._rows.infos(ended)
        terminated, truncated = self._rows.ends(shown, ended, found)
        infos = self._by_row(found)
        for info, is_cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = is_cut
        now = shown
        if ended.any():
            for row, loss in self._rows.losses(ended).items():
                infos[row].update(loss_info(loss))
            for row in np.flatnonzero(ended).tolist():
                infos[row]["terminal_observation"] = self._row_of(shown, row)
            now = self._begin(ended)
        rewards = np.array(shown.reward, np.float32)
        return self._seen(now), rewards, ended, infos

    def _begin(self, ended: Array) -> TimeStep:
        """Begins the next episode in the rows that ended."""
        now = self._mode.begin(ended)
        begun = self._by_row(self._rows.begun_infos(ended, at_once=True))
        self.reset_infos = [
            new if over else old
            for new, old, over in zip(begun, self.reset_infos, ended, strict=True)
        ]
        return now

    def _seen(self, time_step: TimeStep) -> Any:
        """Returns observations in the form of the batched space."""
        # Copies: views of a pool's memory change later.
        own = map_specs(_own, time_step.observation)
        return self._to_observations(own)

    def _row_of(self, time_step: TimeStep, row: int) -> Any:
        own: NestedArray = map_specs(
            lambda leaf: np.array(leaf[row, ...]), time_step.observation
        )
        return self._to_observation(own)

    def _by_row(self, found: RowInfos | None) -> list[dict[str, Any]]:
        """Returns a dictionary per row, without the two flags of an episode's end."""
        if found is None:
            return [{} for _ in self._none]
        found.take_flags()
        return found.by_row()

    # Environments.

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns an attribute of several environments.

        Args:
            attr_name: The attribute's name.
            indices: The rows; `None` for all.
        """
        rows = self._chosen(indices)
        if attr_name == "render_mode":
            return [self._own_render_mode] * len(rows)
        try:
            return list(get_rows(self._env, attr_name, rows)) if rows else []
        except ValueError:  # one object answers for several rows
            values = get_rows(self._env, attr_name)
            return [values[row] for row in rows]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets an attribute of several environments.

        Args:
            attr_name: The attribute's name.
            value: The value, the same for all.
            indices: The rows; `None` for all.
        """
        rows = self._chosen(indices)
        if rows:
            # A plain list would be split over the rows.
            is_list = isinstance(value, list | tuple)
            values = [value] * len(rows) if is_list else value
            set_rows(self._env, attr_name, values, rows)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: Any = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Calls a method of several environments and returns the results.

        Args:
            method_name: The method's name.
            *method_args: Its arguments.
            indices: The rows; `None` for all.
            **method_kwargs: Its keyword arguments.
        """
        rows = self._chosen(indices)
        if not rows:
            return []
        found = call_rows(self._env, method_name, method_args, method_kwargs, rows)
        return list(found)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Returns whether each row's environment is inside a wrapper of a class.

        Args:
            wrapper_class: A wrapper class of Gymnasium, Stable-Baselines3 or envkit. A
                pool's workers are asked.
            indices: The rows; `None` for all.
        """
        found = rows_in_wrapper(self._env, wrapper_class)
        return [found[row] for row in self._chosen(indices)]

    def _chosen(self, indices: Any) -> list[int]:
        rows = range(self.num_envs)
        if indices is None:
            return list(rows)
        chosen = indices if isinstance(indices, Iterable) else [indices]
        # Negative indices count from the end, as in a list.
        return [rows[operator.index(index)] for index in chosen]

    # Pictures and closing.

    def render(self, mode: str | None = None) -> Any:
        """Returns the rows' pictures side by side, or shows them.

        Args:
            mode: "rgb_array" or "human"; `None` for the render mode. If the render mode
                is "human", the environments show themselves.
        """
        if self.render_mode == "human" and mode in (None, "human"):
            self._env.render("human")
            return None
        return super().render(mode)  # type: ignore[misc]  # VecEnv's, which comes late

    def get_images(self) -> Sequence[Array | None]:
        """Returns a picture of each row."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode!r}, and pictures are rendered "
                "with 'rgb_array'.",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return list(self._env.render("rgb_array"))

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


# The buffers in which a step's place in its episode no longer matters.
_BUFFERS = ("RolloutBuffer", "DictRolloutBuffer", "ReplayBuffer", "DictReplayBuffer")


class DropLostSteps(LateBase):
    """Keeps Stable-Baselines3 from learning from steps that no environment has made.

    It is a callback. Stable-Baselines3 stores a step of every row and cannot leave one
    out, not even the end that stands for a lost environment. Before training, this
    callback overwrites each such step with the step before it, which then counts twice.
    Returns and advantages of the steps before are those of an episode truncated there.
    Lost episodes are left out of the logged means of returns and lengths.

    Example:
        >>> from stable_baselines3 import PPO  # doctest: +SKIP
        >>> model = PPO("MlpPolicy", to_sb3(pool))  # doctest: +SKIP
        >>> model.learn(50_000, callback=DropLostSteps())  # doctest: +SKIP
    """

    # The base class's attributes.
    model: Any
    locals: dict[str, Any]

    @classmethod
    def _load_base(cls) -> type:
        require("stable_baselines3", needed_by="DropLostSteps", extra="sb3")
        from stable_baselines3.common.callbacks import (  # type: ignore[import-not-found]  # not in the test extra
            BaseCallback,
        )

        return BaseCallback  # type: ignore[no-any-return]  # a class

    def __init__(self) -> None:
        """Makes the callback."""
        super().__init__()
        # The places in the buffer, and the rows, of the steps to overwrite.
        self._lost: list[tuple[int, int]] = []

    @property
    def _buffer(self) -> Any:
        """The buffer of the algorithm, of either kind."""
        on_policy = getattr(self.model, "rollout_buffer", None)
        return self.model.replay_buffer if on_policy is None else on_policy

    def _init_callback(self) -> None:
        buffer = self._buffer
        name = type(buffer).__name__
        if getattr(buffer, "optimize_memory_usage", False):
            name = f"{name} with optimize_memory_usage=True"
        if name not in _BUFFERS:
            raise ValueError(
                f"DropLostSteps was given an algorithm with a {name}, in which steps "
                "depend on their neighbours, so none can be replaced. It supports "
                f"{', '.join(_BUFFERS)}."
            )

    def _on_step(self) -> bool:
        # Hot: called once per batch step.
        infos = self.locals["infos"]
        for row, info in enumerate(infos):
            if loss_in(info) is not None:
                self._lost.append((self._buffer.pos, row))
                info.pop("episode", None)
                if "values" in self.locals:
                    # The episode was cut before this step, so its advantage is 0.
                    info["TimeLimit.truncated"] = False
                    self.locals["rewards"][row] = float(self.locals["values"][row])
        return True

    def _on_rollout_end(self) -> None:
        lost, self._lost = self._lost, []
        buffer = self._buffer
        for place, row in lost:
            source = _real_step(buffer.size(), buffer.n_envs, place, row, lost)
            for column in _columns(buffer):
                column[place, row] = column[source]


def _columns(buffer: Any) -> list[Any]:
    """Returns the arrays of a buffer, which have an element for each place and row."""
    dims = buffer.buffer_size, buffer.n_envs
    values = vars(buffer).values()
    nested = (value.values() for value in values if isinstance(value, dict))
    return [
        column
        for column in (*values, *itertools.chain(*nested))
        if isinstance(column, np.ndarray) and column.shape[:2] == dims
    ]


def _real_step(
    places: int, rows: int, place: int, row: int, lost: list[tuple[int, int]]
) -> tuple[int, int]:
    """Returns the latest real step before a lost one, of the same row if it has one.

    If all steps are lost, it returns the lost one.
    """
    for other in range(row, row + rows):
        for back in range(1, places):
            step = (place - back) % places, other % rows
            if step not in lost:
                return step
    return place, row


def _check_specs(env: PyEnvironment) -> None:
    check_scalars(env, "to_sb3()")
    name, spec = type(env).__name__, env.action_spec()
    if not isinstance(spec, ArraySpec):
        raise ValueError(
            f"to_sb3() was given {name}, whose actions are {nest.outline(spec)}; in "
            "Stable-Baselines3 an action is one array. FlattenActionWrapper makes one "
            "of several."
        )
    if env.reward_spec().shape != ():
        raise ValueError(
            f"to_sb3() was given {name}, whose reward_spec() is {env.reward_spec()!r}; "
            "in Stable-Baselines3 the reward is one number."
        )


def _from_zero(space: Any) -> tuple[Any, Any]:
    """Returns a space whose choices start at 0, and the offset to add to them."""
    start = getattr(space, "start", None)
    if start is None or not np.any(start):
        return space, None
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n)), int(start)
    return spaces.MultiDiscrete(space.nvec), start


def _render_mode_of(batch: Any, given: str | None) -> str | None:
    if given is not None:
        return given
    envs = envs_of(batch)
    return getattr(batch if envs is None else envs[0], "render_mode", "rgb_array")


def _own(leaf: Any) -> Array:
    array = np.asarray(leaf)
    return array if array.flags.writeable else array.copy()
