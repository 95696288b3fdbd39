"""`PyToDMWrapper`: an envkit environment, or a row of a batch, for dm_env."""

from __future__ import annotations

import operator
import weakref
from collections import deque
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.own_losses import MOST_KEPT
from envkit.adapters.dm_env import spec_to_dm_env
from envkit.adapters.foreign import LateBase, forwarded, require
from envkit.adapters.values import Leaf, Repacker, bounded_leaf, integer_leaf
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.extend import as_environment, counted
from envkit.losses import Loss
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.specs.special import ObjectSpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["PyToDMWrapper"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


class PyToDMWrapper(LateBase):
    """Makes a `dm_env.Environment` from an envkit environment.

    | envkit                        | dm_env                                       |
    |-------------------------------|----------------------------------------------|
    | `FIRST`, reward 0, discount 1 | `FIRST`, reward `None`, discount `None`      |
    | `MID` and `LAST`              | the same; scalars become NumPy scalars       |
    | integer scalar from 0         | `DiscreteArray`                              |
    | other bounds                  | `BoundedArray`                               |
    | strings of any length         | `StringArray`                                |
    | anything else                 | `Array`                                      |

    A new wrapper begins an episode with its first call, whatever the environment's
    current time step, and with the first call after a `LAST`. Public attributes that
    the wrapper lacks are taken from the environment.

    A `LAST` made up for a lost environment has discount 1, as a truncation has;
    `repaired` is true then.

    dm_env has no batches, so each row becomes its own environment. While it steps, the
    other rows are held, so the batch must support that (`holds_rows`); each call is a
    step of the batch. The first call on any row begins an episode in all of them, and
    the others start from that episode. Closing the last row closes the batch.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = PyToDMWrapper(CountingEnv(steps_per_episode=2))
        >>> env.reset().reward, float(env.step(0).discount), env.step(0).last()
        (None, 1.0, True)
        >>> from envkit import BatchedPyEnvironment
        >>> batch = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
        >>> first, second = PyToDMWrapper.rows(batch)
        >>> int(second.reset().observation), int(first.reset().observation)
        (0, 0)
        >>> int(second.step(0).observation), batch.current_time_step().observation
        (1, array([0, 1], dtype=int32))
    """

    def __init__(self, env: PyEnvironment, row: int | None = None) -> None:
        """Wraps an environment; closing the wrapper closes the environment.

        Args:
            env: The environment.
            row: The row, if the environment is a batch.

        Raises:
            NotImplementedError: It is a batch and no row was named, or its rows cannot
                be stepped one by one.
        """
        env = as_environment(env, "PyToDMWrapper was given")
        _check_environment(env, row)
        self._environment = env
        self._row = row if row is None else _checked_row(env, row)
        # The environment itself, or a row, which has the same methods.
        self._moves = env if self._row is None else _Row(env, self._row)
        self._observation_spec = _specs(env.observation_spec())
        self._action_spec = _specs(env.action_spec())
        self._reward_spec = _specs(env.reward_spec())
        self._discount_spec = _specs(env.discount_spec())
        self._to_action = Repacker(
            env.action_spec(),
            (),
            leaf=_action_leaf,
            subject="PyToDMWrapper.step() was given an action that",
        )
        # True if the next step begins an episode.
        self._begins = True
        self._closed = False

    def __getstate__(self) -> Any:
        return self._environment, self._row, self._begins, self._closed

    def __setstate__(self, state: Any) -> None:
        env, row, begins, closed = state
        PyToDMWrapper.__init__(self, env, row)
        self._begins, self._closed = begins, closed

    @classmethod
    def _load_base(cls) -> type:
        require("dm_env", needed_by="PyToDMWrapper", extra="dm-env")
        import dm_env

        return dm_env.Environment  # type: ignore[no-any-return]  # it has no types

    @classmethod
    def rows(cls, env: PyEnvironment) -> list[Any]:
        """Makes an environment for each row of a batch."""
        return [cls(env, row) for row in range(env.batch_size or 1)]

    @property
    def environment(self) -> PyEnvironment:
        """The envkit environment; for a row, the whole batch."""
        return self._environment

    @property
    def row(self) -> int | None:
        """The row's index in the batch; `None` for a single environment."""
        return self._row

    def __getattr__(self, name: str) -> Any:
        # A batch's attributes are not a row's: its picture, for example, shows all
        # rows.
        if name.startswith("_") or self._row is not None:
            raise AttributeError(f"'PyToDMWrapper' object has no attribute {name!r}")
        return forwarded(self, lambda: self._environment, name)

    def observation_spec(self) -> Any:
        """Returns dm_env specs of an observation."""
        return self._observation_spec

    def action_spec(self) -> Any:
        """Returns dm_env specs of an action."""
        return self._action_spec

    def reward_spec(self) -> Any:
        """Returns dm_env specs of the reward."""
        return self._reward_spec

    def discount_spec(self) -> Any:
        """Returns dm_env specs of the discount."""
        return self._discount_spec

    def reset(self) -> Any:
        """Begins an episode and returns its first time step."""
        self._check_open("reset")
        return self._as_dm_env(self._moves.reset())

    def step(self, action: NestedArray) -> Any:
        """Applies an action, or begins an episode if one is due."""
        # Hot: called once per step.
        if self._begins or self._closed:
            self._check_open("step")
            return self._as_dm_env(self._moves.reset())
        return self._as_dm_env(self._moves.step(self._to_action(action)))

    @property
    def repaired(self) -> bool:
        """Whether the last time step is a `LAST` made up for a lost environment."""
        return bool(self._moves.repaired)

    def current_losses(self) -> dict[int, Loss]:
        """Returns the loss behind `repaired`, if it is set; its row is 0."""
        return self._moves.current_losses()

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, the oldest first; their row is 0."""
        return self._moves.losses()

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment for the next reset; seed a batch as a whole."""
        self._refuse_row("seed")
        return self._environment.seed(seed)

    def get_state(self) -> Any:
        """Returns the environment's state; ask a batch as a whole."""
        self._refuse_row("state")
        return self._environment.get_state()

    def set_state(self, state: Any) -> None:
        """Restores a state that `get_state` returned."""
        self._refuse_row("state")
        self._environment.set_state(state)
        standing = _standing(self._environment)
        self._begins = standing is None or int(standing.step_type) == _LAST

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._moves.close()

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used("PyToDMWrapper", call)

    def _refuse_row(self, what: str) -> None:
        if self._row is not None:
            raise NotImplementedError(
                f"A row of a batch has no {what} of its own; ask the batch."
            )

    def _as_dm_env(self, time_step: TimeStep) -> Any:
        # Hot: called once per step.
        import dm_env

        step_type = dm_env.StepType(int(time_step.step_type))
        self._begins = step_type == _LAST
        if step_type == _FIRST:
            return dm_env.restart(time_step.observation)
        return dm_env.TimeStep(
            step_type,
            _as_numbers(time_step.reward),
            _as_numbers(time_step.discount),
            time_step.observation,
        )


class _Batch:
    """Holds the objects that the rows of a batch share.

    Attributes:
        waiting: Rows that have begun an episode and not returned its first step yet.
        open: The rows in use.
        losses: The losses that the rows have not been asked for yet.
    """

    def __init__(self) -> None:
        self.losses: dict[int, deque[Loss]] = {}
        self.waiting: set[int] = set()
        # Rows refer to the batch; strong references here would keep it alive forever.
        self.open: weakref.WeakSet[_Row] = weakref.WeakSet()


_batches: weakref.WeakKeyDictionary[PyEnvironment, _Batch] = weakref.WeakKeyDictionary()


class _Row:
    """Steps one row of a batch and holds the others."""

    def __init__(self, env: PyEnvironment, row: int) -> None:
        self._env = env
        self._row = row
        self._mask = np.arange(env.batch_size or 0) == row
        self._time_step = nest.Structure(env.time_step_spec())
        self._action = nest.Structure(env.action_spec())
        self._batch = _batches.setdefault(env, _Batch())
        self._batch.open.add(self)
        self._ended = False

    def reset(self) -> TimeStep:
        standing = _standing(self._env)
        if standing is None:
            standing = self._env.reset()
            self._batch.waiting = set(range(len(self._mask)))
        elif not self._has_begun(standing):
            standing = self._env.reset(self._mask)
        self._batch.waiting.discard(self._row)
        return self._own(standing)

    def _has_begun(self, standing: TimeStep) -> bool:
        """Returns whether the row is at a `FIRST` that has not been returned yet.

        Another row's first call may have begun it, or a pool that resets by itself.
        """
        waits = self._ended or self._row in self._batch.waiting
        return waits and standing.step_type[self._row] == _FIRST

    def step(self, action: NestedArray) -> TimeStep:
        columns = []
        leaves = self._action.flatten(action)
        for spec, leaf in zip(self._action.leaves, leaves, strict=True):
            column = np.zeros((len(self._mask), *spec.shape), spec.dtype)
            column[self._row] = leaf
            columns.append(column)
        batch = self._action.unflatten(columns)
        return self._own(self._env.step_rows(batch, self._mask))

    @property
    def repaired(self) -> Any:
        return self._env.repaired[self._row]

    def current_losses(self) -> dict[int, Loss]:
        loss = self._env.current_losses().get(self._row)
        return {} if loss is None else {0: loss._replace(row=0)}

    def losses(self) -> list[Loss]:
        kept = self._batch.losses
        for loss in self._env.losses():
            own = kept.setdefault(loss.row, deque(maxlen=MOST_KEPT))
            own.append(loss._replace(row=0))
        return list(kept.pop(self._row, ()))

    def close(self) -> None:
        self._batch.open.discard(self)
        if not self._batch.open:
            self._env.close()

    def _own(self, time_step: TimeStep) -> TimeStep:
        leaves = self._time_step.flatten(time_step)
        # With the ellipsis, an element of an object array remains an array.
        own: TimeStep = self._time_step.unflatten(
            [leaf[self._row, ...].copy() for leaf in leaves]
        )
        self._ended = int(own.step_type) == _LAST
        return own


def _check_environment(env: Any, row: int | None) -> None:
    name = type(env).__name__
    if row is not None and not env.batched:
        raise ValueError(f"{name} is a single environment, so it has no row {row}.")
    if row is None and env.batched:
        raise NotImplementedError(
            f"{name} is a batch, and dm_env has no batches. PyToDMWrapper.rows(env) "
            "makes an environment of each row."
        )
    if row is not None and not (env.holds_rows and env.resets_rows):
        raise NotImplementedError(
            f"The rows of {name} cannot become environments of dm_env, because it "
            "cannot step one while it holds the others (holds_rows, resets_rows). A "
            "BatchedPyEnvironment or ParallelPyEnvironment of single ones can."
        )


def _checked_row(env: PyEnvironment, row: Any) -> int:
    index = operator.index(row)
    size = env.batch_size or 0
    if not 0 <= index < size:
        raise IndexError(
            f"{type(env).__name__} has no row {index}: it has {counted(size, 'row')}."
        )
    return index


def _specs(specs: Any) -> Any:
    return nest.map_structure(spec_to_dm_env, specs)


def _standing(env: PyEnvironment) -> TimeStep | None:
    try:
        return env.current_time_step()
    except CallOrderError:
        return None


def _action_leaf(spec: ArraySpec) -> Leaf:
    if isinstance(spec, ObjectSpec):
        return _object_leaf(spec)
    if isinstance(spec, BoundedArraySpec) and not spec.shape and is_discrete(spec):
        return integer_leaf(spec)
    convert = bounded_leaf(spec)
    if spec.dtype.kind in "biuf":
        # Environments use scalars as indices and dictionary keys.
        return lambda value: convert(value)[()]

    def convert_text(value: Any) -> Array:
        text: Array = convert(value)
        if not spec.check_array(text):
            raise SpecError
        return text

    return convert_text


def _object_leaf(spec: ObjectSpec) -> Leaf:
    def convert(value: Any) -> Array:
        is_array = isinstance(value, np.ndarray) or bool(spec.shape)
        array: Array = np.array(value, object) if is_array else spec.wrap(value)
        if not spec.check_array(array):
            raise SpecError
        return array

    return convert


def _as_numbers(value: NestedArray) -> Any:
    """Converts arrays without dimensions to NumPy scalars, which are immutable."""
    # Hot: called twice per step.
    if type(value) is np.ndarray:
        return value if value.shape else value[()]
    if nest.is_nested(value):
        return nest.map_structure(_as_numbers, value)
    return value
