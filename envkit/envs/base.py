"""The base class of the built-in environments: `BatchableEnvironment`.

A subclass keeps its state in arrays with one element per row and implements, for all
rows at once, how episodes begin and continue. The base class begins the episodes of
rows that have ended, distinguishes termination from truncation, keeps random streams
and state tokens, and drops the row dimension if there is no batch.
"""

from __future__ import annotations

import abc
import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envkit.envs.batch_actions import DiscreteActions
from envkit.envs.kernels import Kernels, compiled
from envkit.envs.row_batch import RowBatch
from envkit.extend import checked_flag
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["BatchableEnvironment"]


_MID, _LAST = StepType.MID, StepType.LAST


class BatchableEnvironment(RowBatch):
    """Steps many rows at once, with one discrete action per row.

    Without a batch size it is an ordinary single environment. With one it is a batch of
    that many independent rows: row `i` behaves like a single environment with the same
    seed. After a row's episode has ended, the next step begins a new one and ignores
    its action, unless `autoreset` says otherwise.

    A subclass implements `_begin`, `_advance`, `_observe` and `_draw`, and lists the
    attributes that hold its state in `_state_arrays`. It may override `_text` if
    characters show more than the shades of the picture.

    Example:
        >>> from envkit.specs.arrays import BoundedArraySpec
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

    # The kernels for `compiled=True`, if the class has them, and the names of the
    # number attributes they get after the state's arrays.
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
            num_actions: The number of actions, counted from 0.
            batch_size: The number of rows; `None` for a single environment.
            max_episode_steps: The number of steps after which an episode is truncated;
                `None` for no limit.
            seed: Seeds everything random, as if given to `seed()`.
            autoreset: When a row's next episode begins after a `LAST`.
            compiled: Whether numba compiles the steps of a batch; all numbers stay the
                same.
        """
        super().__init__(
            observation_spec,
            functools.partial(DiscreteActions, type(self).__name__, num_actions),
            batch_size=batch_size,
            max_episode_steps=max_episode_steps,
            seed=seed,
            autoreset=autoreset,
        )
        self._num_actions = num_actions
        self._loops = self._checked_loops(checked_flag("compiled", compiled))

    def _checked_loops(self, compiled: bool) -> _Loops | None:
        """Returns the kernels that replace the class's methods, if it is compiled."""
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
        """Whether numba has compiled the steps of the batch."""
        return self._loops is not None

    @abc.abstractmethod
    def _begin(self, rows: Array) -> None:
        """Begins an episode in these rows, given by their indices."""

    @abc.abstractmethod
    def _advance(self, actions: Array, live: Array) -> tuple[Array, Array]:
        """Applies an action to each row.

        Args:
            actions: An int64 in range for each row, read-only.
            live: False in rows whose episode has ended. Their state may change in any
                way, because they begin again right after this, but their random streams
                must not advance.

        Returns:
            The rewards, in float32, and the rows whose episode terminates. The caller
            may keep and change both arrays.
        """

    @abc.abstractmethod
    def _observe(self) -> NestedArray:
        """Returns the rows' observations in new arrays."""

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

    def _single_time_step(
        self, reward: float, terminated: bool, observation: NestedArray
    ) -> TimeStep:
        """Completes the step of a subclass that has its own `_step_single`."""
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

    def _step_all(
        self, actions: Array, ended: Array, still: Array | None = None
    ) -> TimeStep:
        # Hot: called once per batch step, with thousands of rows. In most steps some
        # rows have ended, so it avoids loops and uses little indexing.
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
        # An episode that ends both ways at once counts as terminated.
        discount = (~terminated).astype(np.float32)
        return TimeStep(step_type, reward, discount, self._observe())

    def _advance_some(
        self, actions: Array, live: Array, still: Array
    ) -> tuple[Array, Array]:
        """Advances the live rows, and restores the state of the others."""
        held = still.nonzero()[0]
        # Views with the rows first; advancing writes into the same arrays.
        arrays = [
            np.moveaxis(getattr(self, name), self._row_axis, 0)
            for name in self._state_arrays
        ]
        kept = [array[held] for array in arrays]
        result = self._advanced(actions, live)
        for array, values in zip(arrays, kept, strict=True):
            array[held] = values
        self._began[held] += 1  # keeps the age of held episodes
        return result

    # The class's methods, or the kernels that replace them.

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
        """Returns the arguments of every kernel: state arrays, then parameters."""
        return [getattr(self, name) for name in self._state_arrays + self._parameters]

    def _counted(
        self,
        ended: Array,
        live: Array,
        still: Array | None,
        reward: Array,
        terminated: Array,
    ) -> TimeStep:
        """Completes a step after the rows have moved, in compiled loops."""
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
    """Counts steps and ends episodes in a loop; a kernel that all classes share."""
    # No branches, and no reads of values just written, so the compiler can vectorise
    # over rows.
    for row in range(len(ended)):
        begins, lives = ended[row], live[row]
        # Rows that are neither keep their state and flags.
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


_NEVER = -(2**62)  # before any possible episode


class _Loops(NamedTuple):
    """Holds the functions that a compiled batch calls instead of its methods."""

    cls: type[BatchableEnvironment]
    begin: Any
    advance: Any
    observe: Any
    count: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> _Loops:
        return self

    def __reduce__(self) -> Any:
        # Compiled code is not pickled: the other process finds it on disk.
        return _loops_of, (self.cls,)


@functools.cache
def _loops_of(cls: type[BatchableEnvironment]) -> _Loops:
    """Returns the compiled kernels of a class; raises if it has none."""
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
                f"{below.__name__} overrides {name}, which the kernels of "
                f"{owner.__name__} ignore; make it without compiled=True."
            )
    return kernels
