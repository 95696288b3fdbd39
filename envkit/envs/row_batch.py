"""The base class of batches that step many rows in one object: `RowBatch`.

It keeps the flags of episodes, a random stream per row and state tokens, renders
pictures, and drops the row dimension if there is no batch. A subclass implements how
rows begin and step.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from envkit import nest
from envkit._shared.pixels import tiled
from envkit._shared.states import check_state_of
from envkit.envs.drawing import shaded
from envkit.envs.streams import RowStreams
from envkit.errors import CallOrderError
from envkit.extend import (
    Internals,
    SpecifiedEnvironment,
    checked_size,
    describe,
    listed,
)
from envkit.play.window import WINDOW
from envkit.provenance import record_seed
from envkit.seeding import seed_per_row
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["BatchActions", "RowBatch"]

_NO_BATCH = ", or None for a single environment"
_NO_LIMIT = ", or None for no limit"
_SHOWN = 64  # rows in a window: more would be too small to see
_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


class BatchActions(Protocol):
    """Checks the actions of a batch, or of a single environment.

    Attributes:
        spec: The spec of one action.
        described: The possible actions, in words.
    """

    spec: Any
    described: str

    def one(self, action: Any) -> Any:
        """Returns the action of a single environment; raises if it does not fit."""

    def for_rows(self, action: Any, ended: Array) -> Array:
        """Returns the actions of all rows; ignores those of ended rows."""


class RowBatch(SpecifiedEnvironment):
    """Holds an environment, or a batch whose rows are elements of its arrays.

    A subclass implements `_begin_rows`, `_step_all`, `_first_time_step` and `_draw`,
    and lists the attributes that hold its state in `_state_arrays`.
    """

    _envkit = Internals(one_thread=True)

    # The modes of `render`.
    render_modes: ClassVar[tuple[str, ...]] = ("rgb_array", "human", "ansi")

    # Readable names of the actions; `None` if numbers are enough.
    action_names: ClassVar[tuple[str, ...]] = ()

    # The names of the attributes that hold a subclass's state, one array each. The
    # arrays are written into, never replaced.
    _state_arrays: ClassVar[tuple[str, ...]] = ()
    # The axis of the rows in these arrays.
    _row_axis: ClassVar[int] = 0

    def __init__(
        self,
        observation_spec: NestedSpec,
        actions: Callable[[int | None], BatchActions],
        *,
        batch_size: int | None = None,
        max_episode_steps: int | None = None,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    ) -> None:
        """Prepares the base class.

        Args:
            observation_spec: The specs of one row's observation.
            actions: Makes the action checker from the batch size.
            batch_size: The number of rows; `None` for a single environment.
            max_episode_steps: The number of steps after which an episode is truncated;
                `None` for no limit.
            seed: Seeds everything random, as if given to `seed()`.
            autoreset: When a row's next episode begins after a `LAST`.
        """
        super().__init__()
        if max_episode_steps is not None:
            max_episode_steps = checked_size(
                "max_episode_steps", max_episode_steps, hint=_NO_LIMIT
            )
        if batch_size is not None:
            batch_size = checked_size("batch_size", batch_size, hint=_NO_BATCH)
        self._batch_size = batch_size
        self.autoreset = AutoReset.of(autoreset)
        self._num_rows = 1 if batch_size is None else batch_size
        self._actions = actions(batch_size)
        self._max_episode_steps = max_episode_steps
        self._observation_spec = observation_spec
        self._observation = nest.Structure(observation_spec)
        self._terminated = np.zeros(self._num_rows, bool)
        self._truncated = np.zeros(self._num_rows, bool)
        # The number of steps so far, and the step at which each row's episode began.
        # One comparison then finds the rows that have reached the limit.
        self._clock = 0
        self._began = np.zeros(self._num_rows, np.int64)
        # Not through seed(): a subclass may extend it with code that needs attributes
        # that are set later.
        self._make_streams(seed)

    @property
    def max_episode_steps(self) -> int | None:
        """After how many steps an episode is truncated; `None` for no limit."""
        return self._max_episode_steps

    def action_spec(self) -> Any:
        """Returns the spec of one row's action."""
        return self._actions.spec

    def seed(self, seed: Seed) -> None:
        """Makes all later randomness depend on `seed` alone.

        One integer gives each row of a batch its own stream; a sequence has one seed
        per row. `None` uses fresh entropy.
        """
        self._make_streams(seed)

    def _make_streams(self, seed: Seed) -> None:
        seeds: Any = seed
        if self._batch_size is None and np.ndim(seeds) == 0:
            seeds = [seed]  # used as it is, like one row's seed in a sequence
        record_seed(self, seed)
        self._streams = RowStreams(seed_per_row(seeds, self._num_rows))

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._streams.seed_rows(seeds)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a picture of each row as it is now, or shows it in a window.

        Args:
            mode: "rgb_array" for a uint8 array `(height, width, 3)`; "ansi" for text;
                "human" to show the picture in a window, which needs pygame and returns
                `None`. A batch returns one picture or text per row, and shows the first
                64 rows in one window. `close` closes the window.

        Raises:
            MissingDependencyError: For "human", pygame is not installed.
            OSError: For "human", there is no display, or another program blocks it.
        """
        if mode not in self.render_modes:
            raise NotImplementedError(
                f"{type(self).__name__} does not render {mode!r}; its modes are: "
                f"{listed(map(repr, self.render_modes))}."
            )
        self._check_begun("render")
        is_batch = self._batch_size is not None
        if mode == "ansi":
            texts = [self._text(row) for row in range(self._num_rows)]
            return texts if is_batch else texts[0]
        rows = self._num_rows if mode == "rgb_array" else min(self._num_rows, _SHOWN)
        pictures = [self._draw(row) for row in range(rows)]
        if mode == "rgb_array":
            return np.stack(pictures) if is_batch else pictures[0]
        WINDOW.show(self, tiled(np.stack(pictures)) if rows > 1 else pictures[0])
        return None

    def close(self) -> None:
        """Closes the window, if one is open; the environment stays usable."""
        WINDOW.hide(self)

    def get_info(self) -> dict[str, Array]:
        """Returns facts that the time step lacks, with one element per row.

        Both `terminated` and `truncated` are true if an episode ended both ways at
        once; the time step then counts as terminated. `episode_steps` counts the steps
        of the current episode.
        """
        self._check_begun("get_info")
        info = {
            "terminated": self._terminated.copy(),
            "truncated": self._truncated.copy(),
            "episode_steps": self._clock - self._began,
            **self._info(),
        }
        if self._batch_size is not None:
            return info
        return {name: _first_row(array) for name, array in info.items()}

    @abc.abstractmethod
    def _begin_rows(self, rows: Array) -> None:
        """Begins an episode in these rows, given by their indices."""

    @abc.abstractmethod
    def _first_time_step(self) -> TimeStep:
        """Returns the time step of rows that have all begun."""

    @abc.abstractmethod
    def _step_all(
        self, actions: Array, ended: Array, still: Array | None = None
    ) -> TimeStep:
        """Steps the rows in mid-episode, and begins episodes in the others.

        Args:
            actions: The checked action of each row.
            ended: Rows that begin an episode.
            still: Rows that are held; `None` for none.
        """

    @abc.abstractmethod
    def _draw(self, row: int) -> Array:
        """Returns the picture of one row, a uint8 array `(height, width, 3)`."""

    def _text(self, row: int) -> str:
        """Returns one row as lines of text."""
        return shaded(self._draw(row))

    def _info(self) -> dict[str, Array]:
        """Returns more entries for `get_info`: new arrays with one element per row."""
        return {}

    def _reset(self) -> TimeStep:
        self._begin_rows(np.arange(self._num_rows))
        time_step = self._first_time_step()
        if self._batch_size is not None:
            return time_step
        return self._without_rows(_FIRST, time_step)

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._begin_rows(mask.nonzero()[0])
        return self._first_time_step()

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._batch_size is not None:
            ended = self._terminated | self._truncated
            return self._step_all(self._actions.for_rows(action, ended), ended)
        if self._terminated[0] or self._truncated[0]:
            return self._reset()
        return self._step_single(self._actions.one(action))

    def _step_single(self, action: Any) -> TimeStep:
        """Steps a single environment."""
        time_step = self._step_all(np.array([action]), np.zeros(1, bool))
        ended = self._terminated[0] or self._truncated[0]
        return self._without_rows(_LAST if ended else _MID, time_step)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        still = ~(stepping | beginning)
        # Rows that begin an episode, and those of them whose previous one has ended.
        ended = beginning | (stepping & (self._terminated | self._truncated))
        actions = self._actions.for_rows(action, ended | still)
        return self._step_all(actions, ended, still)

    def _without_rows(self, step_type: Array, time_step: TimeStep) -> TimeStep:
        """Returns a single environment's time step, from that of its only row."""
        return TimeStep(
            step_type,
            _first_row(time_step.reward),
            _first_row(time_step.discount),
            self._observation.map(_first_row, time_step.observation),
        )

    def _check_begun(self, call: str) -> None:
        if self._current_time_step is None:
            raise CallOrderError(
                f"{type(self).__name__}.{call}() was called before the first episode. "
                "Call reset() first."
            )

    def _get_state(self) -> dict[str, Any]:
        return {"of": self._description(), "clock": self._clock, **self._arrays()}

    def _set_state(self, state: Any) -> None:
        check_state_of(self, state, self._description())
        arrays = self._arrays()
        # Validates everything before anything changes.
        for name, array in arrays.items():
            saved = state.get(name)
            if not isinstance(saved, np.ndarray) or (
                (saved.shape, saved.dtype.kind) != (array.shape, array.dtype.kind)
            ):
                raise _broken(self, name, saved)
        if type(state.get("clock")) is not int:
            raise _broken(self, "clock", state.get("clock"))
        self._clock = state["clock"]
        for name, array in arrays.items():
            array[...] = state[name]

    def _arrays(self) -> dict[str, Array]:
        """Returns all arrays that affect later steps."""
        names = ("_terminated", "_truncated", "_began", *self._state_arrays)
        return {
            "positions": self._streams.positions,
            "keys": self._streams.keys,
            **{name: getattr(self, name) for name in names},
        }

    def _description(self) -> str:
        """Returns the properties that a state must share with this environment."""
        shapes = self._observation.map(lambda spec: spec.shape, self._observation_spec)
        return (
            f"{type(self).__name__} of batch_size {self._batch_size}, "
            f"max_episode_steps {self._max_episode_steps}, {self._actions.described} "
            f"and observations of shape {shapes}"
        )


def _broken(env: Any, name: str, saved: Any) -> ValueError:
    return ValueError(
        f"{type(env).__name__}.set_state() was given a state that is broken: its "
        f"{name!r} is {describe(saved)}. Pass a result of get_state()."
    )


def _first_row(array: Array) -> Array:
    return array.reshape(array.shape[1:])
