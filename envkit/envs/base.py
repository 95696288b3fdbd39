"""`BatchableEnvironment`: what the built-in environments have in common.

A subclass keeps its state in arrays with an element for each row and says, for all rows
at once, how episodes begin and go on. The base class does the rest: it begins the
episodes of rows that have ended, tells terminations from truncations, keeps random
streams and state tokens, and drops the dimension of rows where there is no batch.
"""

from __future__ import annotations

import abc
import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envkit import nest
from envkit.arguments import checked_flag, checked_size
from envkit.envs.drawing import shaded
from envkit.envs.kernels import Kernels, compiled
from envkit.envs.streams import RowStreams
from envkit.errors import CallOrderError, SpecError
from envkit.provenance import check_state_of
from envkit.py_environment import SpecifiedEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.arrays import BoundedArraySpec, as_array
from envkit.specs.validation import check_fits, describe
from envkit.text import listed
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.window import WINDOW
from envkit.wrappers.pictures import tiled

__all__ = ["BatchableEnvironment"]


_NO_BATCH = ", or None for a single environment"
_NO_LIMIT = ", or None for no limit"
_SHOWN = 64  # rows in a window: more of them would be too small to see
_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


class BatchableEnvironment(SpecifiedEnvironment):
    """An environment of one discrete action that steps many rows at once.

    Made without a batch size it is an ordinary single environment. With one it is a
    batch of that many rows, whose episodes are independent: row `i` behaves like a
    single environment with the same seed. A row whose episode has ended begins a new
    one with the next step, which ignores its action, unless `autoreset` says otherwise.

    A subclass writes `_begin`, `_advance`, `_observe` and `_draw`, and lists in
    `_state_arrays` the attributes that hold its state. `_text` may say better what
    characters can show than shades of the picture do.

    Example:
        >>> class Walk(BatchableEnvironment):
        ...     _state_arrays = ("_place",)
        ...     def __init__(self, batch_size=None, *, seed=None):
        ...         spec = BoundedArraySpec((), np.int64, 0, 3)
        ...         super().__init__(spec, 2, batch_size=batch_size, seed=seed)
        ...         self._place = np.zeros(self._num_rows, np.int64)
        ...     def _begin(self, rows):
        ...         self._place[rows] = self._streams.integers(rows, 0, 2)
        ...     def _advance(self, actions, live):
        ...         self._place += actions
        ...         return np.zeros(self._num_rows, np.float32), self._place == 3
        ...     def _observe(self):
        ...         return self._place.copy()
        ...     def _draw(self, row):
        ...         return np.full((1, 1, 3), 80 * self._place[row], np.uint8)
        >>> Walk(seed=5).reset().observation
        array(1)
        >>> Walk(batch_size=3, seed=5).reset().observation.shape
        (3,)
    """

    _takes_turns = True

    # What `render` takes.
    render_modes: ClassVar[tuple[str, ...]] = ("rgb_array", "human", "ansi")

    # What the actions are called, for people; none where numbers say it all.
    action_names: ClassVar[tuple[str, ...]] = ()

    # The names of the attributes that hold a subclass's state, an array each. The
    # arrays are written into and never replaced.
    _state_arrays: ClassVar[tuple[str, ...]] = ()
    # Along which axis of these arrays the rows lie.
    _row_axis: ClassVar[int] = 0
    # What `compiled=True` compiles, if the class has it, and the names of the
    # attributes that these are given after the state's arrays: numbers.
    _kernels: ClassVar[Kernels | None] = None
    _parameters: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        observation_spec: NestedSpec,
        num_actions: int,
        *,
        batch_size: int | None = None,
        max_episode_steps: int | None = None,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = False,
    ) -> None:
        """Prepares the base class.

        Args:
            observation_spec: The specs of one row's observation.
            num_actions: How many actions there are, counted from 0.
            batch_size: How many rows; `None` for a single environment.
            max_episode_steps: After how many steps an episode is truncated; `None` for
                no limit.
            seed: What is random depends on it, as if given to `seed()`.
            autoreset: When the episode of a row begins after a `LAST`.
            compiled: Whether numba compiles what steps a batch. Nothing else changes:
                every number is the same.
        """
        super().__init__()
        if batch_size is not None:
            batch_size = checked_size("batch_size", batch_size, hint=_NO_BATCH)
        if max_episode_steps is not None:
            max_episode_steps = checked_size(
                "max_episode_steps", max_episode_steps, hint=_NO_LIMIT
            )
        self._batch_size = batch_size
        self.autoreset = AutoReset.of(autoreset)
        self._num_rows = 1 if batch_size is None else batch_size
        self._actions = _DiscreteActions(type(self).__name__, num_actions, batch_size)
        self._num_actions = num_actions
        self._max_episode_steps = max_episode_steps
        self._observation_spec = observation_spec
        self._observation = nest.Structure(observation_spec)
        self._terminated = np.zeros(self._num_rows, bool)
        self._truncated = np.zeros(self._num_rows, bool)
        # How many steps the object has made, and at which of them each row's episode
        # began. One comparison then finds the rows that have reached the limit.
        self._clock = 0
        self._began = np.zeros(self._num_rows, np.int64)
        self._loops = self._checked_loops(checked_flag("compiled", compiled))
        # Not by seed(): a subclass may extend that by what it does not have yet.
        self._make_streams(seed)

    def _checked_loops(self, compiled: bool) -> _Loops | None:
        """Returns what takes the place of the class's methods, if it is compiled."""
        if not compiled:
            return None
        cls = type(self)
        if self._batch_size is None:
            raise ValueError(
                f"{cls.__name__}(compiled=True) must have a batch_size: a single "
                "environment has nothing to gain."
            )
        return _loops_of(cls)

    @property
    def compiled(self) -> bool:
        """Whether numba has compiled what steps the batch."""
        return self._loops is not None

    @property
    def max_episode_steps(self) -> int | None:
        """After how many steps an episode is truncated; `None` for no limit."""
        return self._max_episode_steps

    def action_spec(self) -> BoundedArraySpec:
        """Returns the spec of one row's action: an integer from 0."""
        return self._actions.spec

    def seed(self, seed: Seed) -> None:
        """Makes what is random from here on depend on `seed` alone.

        One integer gives each row of a batch a stream of its own; a sequence has a seed
        for each row. `None` takes fresh entropy.
        """
        self._make_streams(seed)

    def _make_streams(self, seed: Seed) -> None:
        seeds: Any = seed
        if self._batch_size is None and np.ndim(seeds) == 0:
            seeds = [seed]  # It is used as it is, like that of one row in a sequence.
        self._noted_seed = seed
        self._streams = RowStreams(seed_per_row(seeds, self._num_rows))

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._streams.seed_rows(seeds)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a picture of each row as it is now, or shows it.

        Args:
            mode: "rgb_array" for a uint8 array `(height, width, 3)`; "ansi" for a
                text; "human" to show the picture in a window, which needs pygame and
                returns `None`. A batch has one picture or text for each row, and
                shows the first 64 rows in one window. `close` closes the window.

        Raises:
            MissingDependencyError: For "human", pygame is not installed.
            OSError: For "human", there is no display, or something else has it.
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
        """Closes the window, if there is one; the environment can be used again."""
        WINDOW.hide(self)

    def get_info(self) -> dict[str, Array]:
        """Returns what the time step does not say, an element for each row.

        Both `terminated` and `truncated` are true where an episode ended both ways at
        once; the time step then says terminated. `episode_steps` counts the steps of
        the episode so far.
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
    def _begin(self, rows: Array) -> None:
        """Begins an episode in these rows, given by their indices."""

    @abc.abstractmethod
    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        """Applies an action to each row.

        Args:
            actions: An int64 in range for each row, to be read only.
            live: False in the rows whose episode has ended. What happens to their state
                does not matter, as they begin anew right after this, but their random
                streams must not move.

        Returns:
            The rewards, in float32, and where the episode terminates. Both arrays are
            the caller's to keep and to change.
        """

    @abc.abstractmethod
    def _observe(self) -> NestedArray:
        """Returns the rows' observations in new arrays."""

    @abc.abstractmethod
    def _draw(self, row: int) -> Array:
        """Returns the picture of one row, a uint8 array `(height, width, 3)`."""

    def _text(self, row: int) -> str:
        """Returns one row as text, in lines."""
        return shaded(self._draw(row))

    def _info(self) -> dict[str, Array]:
        """Returns more to put into `get_info`: new arrays, an element for each row."""
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

    def _begin_rows(self, rows: Array) -> None:
        self._terminated[rows] = False
        self._truncated[rows] = False
        self._began[rows] = self._clock
        self._begin_in(rows)

    def _first_time_step(self) -> TimeStep:
        return TimeStep(
            np.zeros(self._num_rows, np.int32),
            np.zeros(self._num_rows, np.float32),
            np.ones(self._num_rows, np.float32),
            self._seen(),
        )

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._batch_size is not None:
            ended = self._terminated | self._truncated
            return self._step_all(self._actions.for_rows(action, ended), ended)
        if self._terminated[0] or self._truncated[0]:
            return self._reset()
        return self._step_single(self._actions.one(action))

    def _step_single(self, action: int) -> TimeStep:
        """Steps a single environment."""
        time_step = self._step_all(np.array([action]), np.zeros(1, bool))
        ended = self._terminated[0] or self._truncated[0]
        return self._without_rows(_LAST if ended else _MID, time_step)

    def _single_time_step(
        self, reward: float, terminated: bool, observation: NestedArray
    ) -> TimeStep:
        """Ends a step for a subclass that has its own `_step_single`."""
        self._clock += 1
        limit = self._max_episode_steps
        truncated = limit is not None and self._clock - self._began[0] >= limit
        self._terminated[0] = terminated
        self._truncated[0] = truncated
        return TimeStep(
            _LAST if terminated or truncated else _MID,
            np.array(reward, np.float32),
            np.array(0.0 if terminated else 1.0, np.float32),
            observation,
        )

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        still = ~(stepping | beginning)
        # Rows that begin anew, and among them those whose episode has ended.
        ended = beginning | (stepping & (self._terminated | self._truncated))
        actions = self._actions.for_rows(action, ended | still)
        return self._step_all(actions, ended, still)

    def _step_all(
        self, actions: Array, ended: Array, still: Array | None = None
    ) -> TimeStep:
        # Hot: called once per batch step. Thousands of rows pass through here, and in
        # most steps some have ended, so nothing loops and little is indexed.
        live = ~ended
        self._clock += 1
        if still is None:
            reward, terminated = self._advanced(actions, live)
        else:
            live &= ~still
            reward, terminated = self._advance_some(actions, live, still)
        if self._loops is not None:
            return self._counted(ended, live, still, reward, terminated)
        terminated &= live
        if self._max_episode_steps is None:
            truncated = np.zeros(self._num_rows, bool)
        else:
            truncated = self._began <= self._clock - self._max_episode_steps
            truncated &= live
        last = terminated | truncated
        if still is not None:
            terminated |= self._terminated & still
            truncated |= self._truncated & still
        self._terminated, self._truncated = terminated, truncated
        # FIRST is 0 and not live, MID is 1 and live, LAST is 2 and live too.
        step_type = (live.view(np.int8) + last.view(np.int8)).astype(np.int32)
        begun = ended.nonzero()[0]
        if begun.size:
            reward[begun] = 0.0
            self._began[begun] = self._clock
            self._begin(begun)
        # What ends both ways at once is a termination.
        discount = (~terminated).astype(np.float32)
        return TimeStep(step_type, reward, discount, self._observe())

    def _advance_some(
        self, actions: Array, live: Array, still: Array
    ) -> tuple[Array, Array]:
        """Advances the live rows, and leaves the state of others as it was."""
        held = still.nonzero()[0]
        # Views with the rows in front; advancing writes into the same arrays.
        arrays = [
            np.moveaxis(getattr(self, name), self._row_axis, 0)
            for name in self._state_arrays
        ]
        kept = [array[held] for array in arrays]
        result = self._advanced(actions, live)
        for array, values in zip(arrays, kept, strict=True):
            array[held] = values
        self._began[held] += 1  # as many steps ago as before
        return result

    # The class's methods, or the kernels in their place.

    def _begin_in(self, rows: Array) -> None:
        if self._loops is None or self._loops.begin is None:
            return self._begin(rows)
        streams = self._streams
        self._loops.begin(rows, streams.positions, streams.keys, *self._columns())
        return None

    def _advanced(self, actions: Array, live: Array) -> tuple[Array, Array]:
        if self._loops is None or self._loops.advance is None:
            return self._advance(actions, live)
        reward = np.empty(self._num_rows, np.float32)
        terminated = np.empty(self._num_rows, bool)
        streams = self._streams
        self._loops.advance(
            actions,
            live,
            streams.positions,
            streams.keys,
            reward,
            terminated,
            *self._columns(),
        )
        return reward, terminated

    def _seen(self) -> NestedArray:
        if self._loops is None or self._loops.observe is None:
            return self._observe()
        leaves = [
            np.empty((self._num_rows, *spec.shape), spec.dtype)
            for spec in self._observation.leaves
        ]
        self._loops.observe(self._terminated, *self._columns(), *leaves)
        return self._observation.unflatten(leaves)

    def _columns(self) -> list[Any]:
        """Returns what every kernel is given: arrays of the state, then parameters."""
        return [getattr(self, name) for name in self._state_arrays + self._parameters]

    def _counted(
        self,
        ended: Array,
        live: Array,
        still: Array | None,
        reward: Array,
        terminated: Array,
    ) -> TimeStep:
        """Ends a step in which the rows have moved, with loops."""
        # Hot: called once per batch step.
        step_type = np.empty(self._num_rows, np.int32)
        discount = np.empty(self._num_rows, np.float32)
        limit = self._max_episode_steps
        self._loops.count(  # type: ignore[union-attr]  # there are, as it is compiled
            ended,
            live,
            self._clock,
            _NEVER if limit is None else self._clock - limit,
            terminated,
            self._terminated,
            self._truncated,
            self._began,
            step_type,
            reward,
            discount,
        )
        begun = ended.nonzero()[0]
        if begun.size:
            self._begin_in(begun)
        return TimeStep(step_type, reward, discount, self._seen())

    def _without_rows(self, step_type: Array, time_step: TimeStep) -> TimeStep:
        """Makes the time step of a single environment from that of its only row."""
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
        # All of it, before anything changes.
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
        """Returns all arrays that later steps depend on."""
        names = ("_terminated", "_truncated", "_began", *self._state_arrays)
        return {
            "positions": self._streams.positions,
            "keys": self._streams.keys,
            **{name: getattr(self, name) for name in names},
        }

    def _description(self) -> str:
        """Returns what a state must have in common with this environment."""
        shapes = self._observation.map(lambda spec: spec.shape, self._observation_spec)
        return (
            f"{type(self).__name__} of batch_size {self._batch_size}, "
            f"max_episode_steps {self._max_episode_steps}, {self._num_actions} actions "
            f"and observations of shape {shapes}"
        )


def _count(
    ended: Array,
    live: Array,
    clock: int,
    too_long_ago: int,
    terminated_now: Array,
    terminated: Array,
    truncated: Array,
    began: Array,
    step_type: Array,
    reward: Array,
    discount: Array,
) -> None:
    """Counts steps and ends episodes in loops; the kernel that all rules share."""
    # Without branches, and with nothing read that was just written: several rows are
    # then done at once.
    for row in range(len(ended)):
        begins, lives = ended[row], live[row]
        # A row that is neither stays where it is, and its flags, too.
        stays = not (begins | lives)
        terminates, truncates = terminated_now[row] & lives, began[row] <= too_long_ago
        truncates &= lives
        final = terminates | (terminated[row] & stays)
        terminated[row] = final
        truncated[row] = truncates | (truncated[row] & stays)
        step_type[row] = np.int32(lives) + np.int32(terminates | truncates)
        discount[row] = np.float32(not final)
        reward[row] = np.float32(0.0) if begins else reward[row]
        began[row] = clock if begins else began[row]


_NEVER = -(2**62)  # No episode began as long ago.


class _Loops(NamedTuple):
    """The functions that a compiled batch calls in place of its class's methods."""

    cls: type[BatchableEnvironment]
    begin: Any
    advance: Any
    observe: Any
    count: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> _Loops:
        return self

    def __reduce__(self) -> Any:
        # Compiled code does not travel: the other process finds it on disk.
        return _loops_of, (self.cls,)


@functools.cache
def _loops_of(cls: type[BatchableEnvironment]) -> _Loops:
    """Returns the compiled kernels of a class, or says why there are none."""
    kernels = _kernels_of(cls).compiled(f"{cls.__name__}(compiled=True)")
    return _Loops(
        cls, kernels.begin, kernels.advance, kernels.observe, compiled(_count)
    )


_METHODS = ("_begin", "_advance", "_observe")


def _kernels_of(cls: type[BatchableEnvironment]) -> Kernels:
    kernels = cls._kernels
    if kernels is None:
        raise NotImplementedError(
            f"{cls.__name__} has no kernels to compile; make it without compiled=True. "
            "envkit.envs.compiled compiles the rules of your own environments."
        )
    owner = next(each for each in cls.__mro__ if "_kernels" in vars(each))
    for below in cls.__mro__[: cls.__mro__.index(owner)]:
        for name in {*_METHODS, "_state_arrays"} & vars(below).keys():
            raise NotImplementedError(
                f"{below.__name__} overrides {name}, of which the kernels of "
                f"{owner.__name__} know nothing; make it without compiled=True."
            )
    return kernels


class _DiscreteActions:
    """Checks actions that count from 0, one at a time or one for each row.

    Integers of every dtype pass, in whatever `numpy.asarray` takes: arrays, lists,
    numbers, tensors.

    Attributes:
        spec: The spec of one action.

    Example:
        >>> _DiscreteActions("Game", 3).one(2)
        2
        >>> _DiscreteActions("Game", 3, 2).for_rows([2, 0], ended=np.zeros(2, bool))
        array([2, 0])
    """

    def __init__(
        self, environment: str, count: int, batch_size: int | None = None
    ) -> None:
        """Describes the actions.

        Args:
            environment: What the environment is called, for errors.
            count: How many actions there are to choose from.
            batch_size: How many rows there are; `None` for a single environment.
        """
        self.spec = BoundedArraySpec((), np.int64, 0, count - 1)
        self._environment = environment
        self._count = count
        self._batch_size = batch_size
        self._dims = () if batch_size is None else (batch_size,)

    def one(self, action: Any) -> int:
        """Returns the action of a single environment, or refuses it."""
        given = self._integers(action)
        number = int(given)
        if not 0 <= number < self._count:
            self._refuse_out_of_range(given, np.zeros(1, np.int64))
        return number

    def for_rows(self, action: Any, ended: Array) -> Array:
        """Returns the actions of all rows in int64, or refuses them all.

        Where `ended` is true the action is ignored, so it may be out of range.
        """
        # Hot: called once per batch step, with a single look at each action.
        given = self._integers(action)
        actions = given if given.dtype == np.int64 else given.astype(np.int64)
        # As unsigned numbers, those below 0 are above the maximum too.
        if np.maximum.reduce(actions.view(np.uint64)) < self._count:
            return actions
        outside = (actions < 0) | (actions >= self._count)
        wrong = np.flatnonzero(outside & ~ended)
        if wrong.size:
            self._refuse_out_of_range(given, wrong)
        return np.where(outside, 0, actions)

    def _integers(self, action: Any) -> Array:
        """Returns an action as an array of integers of the right shape."""
        given = as_array(action)
        if given.dtype.kind not in "iu" or given.shape != self._dims:
            # Where it is not an array of numbers, the original tells more.
            is_array = given.dtype.kind in "biuf" and not np.isscalar(action)
            self._refuse(given if is_array else action)
        return given

    def _refuse(self, action: Any) -> None:
        """Raises the error for an action of another shape or kind."""
        if isinstance(action, np.ndarray | np.generic) and action.dtype.kind in "iu":
            action = action.astype(np.int64)  # Any integers will do.
        check_fits(
            action,
            self.spec,
            subject=self._subject(),
            root="action",
            outer_dims=self._dims,
            context=self._unmoved(),
        )

    def _refuse_out_of_range(self, given: Array, wrong: Array) -> None:
        """Raises the error for actions out of range, in one row or several."""
        value = given.reshape(-1)[wrong[0]]
        row = "" if self._batch_size is None else f" of row {wrong[0]}"
        bound = "below the minimum 0"
        if value > 0:
            bound = f"above the maximum {self._count - 1}"
        others = ""
        if wrong.size > 1:
            others = f", and {wrong.size - 1} more of {given.size} are out of range"
        raise SpecError.does_not_fit(
            self._subject(),
            path="action",
            root="action",
            expected=repr(self.spec.replace(shape=self._dims)),
            got=describe(given),
            reason=f"The action{row} is {value}, {bound}{others}.",
            note=self._unmoved(),
        )

    def _subject(self) -> str:
        return f"{self._environment}.step() was given an action that"

    def _unmoved(self) -> str:
        if self._batch_size is None:
            return "The environment has not moved."
        return "None of the rows has moved."


def _broken(env: Any, name: str, saved: Any) -> ValueError:
    return ValueError(
        f"{type(env).__name__}.set_state() was given a state that is broken: its "
        f"{name!r} is {describe(saved)}. It takes what get_state() returned."
    )


def _first_row(array: Array) -> Array:
    return array.reshape(array.shape[1:])
