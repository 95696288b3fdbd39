"""Compiles a batch from the rules of one environment: `CompiledEnvironment`."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np

from envkit.envs.batch_actions import DiscreteActions
from envkit.envs.compiled.driver import (
    Crew,
    RowError,
    action_dtype,
    driver,
    leaf_rows,
)
from envkit.envs.compiled.rules import PlainArray, PlainStates, Rules
from envkit.envs.row_batch import BatchActions, RowBatch
from envkit.errors import SpecError
from envkit.extend import ActionRows, as_array, checked_flag, describe
from envkit.specs.arrays import BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, Seed

__all__ = ["CompiledEnvironment"]

_NEVER = -(2**62)  # before any possible episode


class CompiledEnvironment(RowBatch):
    """Compiles an environment, or a batch, from the rules of one environment.

    A subclass sets `rules`. If they depend on parameters, it sets `self.rules` in
    `__init__` before calling the base class. Each row has its own state, random stream
    and episode, and row `i` behaves like a single environment with the same seed. A
    subclass may implement `_draw(row)`, which returns a picture, a uint8 array
    `(height, width, 3)`, and `_text(row)`; `state_of(row)` returns the state.

    Example:
        >>> def reset(state, rng):
        ...     state.left = rng.integers(3, 6)
        >>> def step(state, action, rng):
        ...     state.left -= action
        ...     return float(action), state.left <= 0, False
        >>> def observe(state, out):
        ...     out[0] = state.left
        >>> class Countdown(CompiledEnvironment):
        ...     rules = Rules(
        ...         state={"left": 0},
        ...         observation_spec=BoundedArraySpec((), np.int32, -9, 9),
        ...         action_spec=BoundedArraySpec((), np.int64, 0, 2),
        ...         reset=reset,
        ...         step=step,
        ...         observe=observe,
        ...     )
        >>> env = Countdown(batch_size=1000, seed=1, compiled=False)
        >>> env.reset().observation.shape
        (1000,)
        >>> float(env.step(np.ones(1000, int)).reward.sum())
        1000.0
    """

    rules: Rules

    render_modes: ClassVar[tuple[str, ...]] = ()
    _state_arrays: ClassVar[tuple[str, ...]] = ("_states",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_draw" in vars(cls):
            cls.render_modes = RowBatch.render_modes

    def __init__(
        self,
        batch_size: int | None = None,
        *,
        seed: Seed = None,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        compiled: bool = True,
        num_threads: int | None = None,
        bounds_checked: bool = False,
    ) -> None:
        """Makes a single environment or a batch, and compiles new rules.

        Args:
            batch_size: The number of rows in the batch; `None` for a single
                environment.
            seed: Seeds everything random, as if given to `seed()`.
            autoreset: When the next episode of a row begins, in a batch.
            compiled: Whether numba compiles the rules. In plain Python they compute the
                same numbers, about a thousand times slower.
            num_threads: The number of threads that step a compiled batch. `None` uses
                one, or one per CPU from 16,384 rows on.
            bounds_checked: Whether an index out of range raises an IndexError in
                compiled code too. Otherwise it reads or writes other memory.

        Raises:
            MissingDependencyError: numba is not installed.
            CompileError: numba cannot compile the rules; the error names the line and
                says what to write instead.
        """
        rules = getattr(self, "rules", None)
        name = type(self).__name__
        if not isinstance(rules, Rules):
            raise TypeError(
                f"{name}.rules must be Rules, as in `rules = Rules(...)` in the class, "
                f"got {describe(rules)}."
            )
        native = checked_flag("compiled", compiled)
        is_checked = checked_flag("bounds_checked", bounds_checked)
        super().__init__(
            rules.observation_spec,
            functools.partial(_actions_of, name, rules),
            batch_size=batch_size,
            max_episode_steps=rules.max_episode_steps,
            seed=seed,
            autoreset=autoreset,
        )
        self._loop = _Loop(rules, name, native, is_checked)
        self._crew = Crew(self._num_rows, num_threads if native else 1)
        self._states = rules.states(self._num_rows)
        self._plain = PlainStates()

    @property
    def compiled(self) -> bool:
        """Whether numba has compiled the rules."""
        return self._loop.native

    @property
    def num_threads(self) -> int:
        """The number of threads that step the rows."""
        return self._crew.num_threads

    def state_of(self, row: int = 0) -> Any:
        """Returns the state of a row, with an attribute for each field.

        Writing to it changes the environment's state.
        """
        return self._plain.of(self._states)[row]

    def close(self) -> None:
        """Ends the threads and closes the window; the environment stays usable."""
        self._crew.close()
        super().close()

    def _draw(self, row: int) -> Array:
        raise NotImplementedError(
            f"{type(self).__name__} has no picture: write _draw(row), which returns "
            "a picture of the row's state, state_of(row)."
        )

    def _info(self) -> dict[str, Array]:
        return {name: self._states[name].copy() for name in self.rules.info}

    def _description(self) -> str:
        return f"{super()._description()}, with the state {self.rules.record}"

    def _reset(self) -> TimeStep:
        time_step = self._reset_rows(np.ones(self._num_rows, bool))
        if self._batch_size is not None:
            return time_step
        return self._without_rows(StepType.FIRST, time_step)

    def _reset_rows(self, mask: Array) -> TimeStep:
        shape = (self._num_rows, *self.rules.action_spec.shape)
        unused = np.zeros(shape, action_dtype(self.rules))
        return self._driven(unused, mask, ~mask, 0)

    def _begin_rows(self, rows: Array) -> None:
        mask = np.zeros(self._num_rows, bool)
        mask[rows] = True
        self._reset_rows(mask)

    def _first_time_step(self) -> TimeStep:
        return self._reset_rows(np.zeros(self._num_rows, bool))

    def _step_all(
        self, actions: Array, ended: Array, still: Array | None = None
    ) -> TimeStep:
        # Hot: called once per batch step.
        self._clock += 1
        stays = np.zeros(self._num_rows, bool) if still is None else still
        return self._driven(actions, ended, stays, 1)

    def _driven(
        self, actions: Array, begins: Array, stays: Array, ticks: int
    ) -> TimeStep:
        rows, limit = self._num_rows, self._max_episode_steps
        step_type = np.empty(rows, np.int32)
        reward, discount = np.empty(rows, np.float32), np.empty(rows, np.float32)
        leaves = [leaf_rows(spec, rows) for spec in self._observation.leaves]
        states: Any = self._states
        seen = tuple(leaves)
        initial: Any = self._loop.initial
        if not self._loop.native:
            states = self._plain.of(states)
            seen = tuple(leaf.view(PlainArray) for leaf in leaves)
            actions = actions.view(PlainArray)
        arguments = (
            states,
            initial,
            self._streams.positions,
            self._streams.keys,
            actions,
            begins,
            stays,
            ticks,
            self._clock,
            _NEVER if limit is None else self._clock - limit,
            self._began,
            self._terminated,
            self._truncated,
            step_type,
            reward,
            discount,
            seen,
        )
        try:
            if self._loop.native:
                self._crew.run(self._loop.function, arguments)
            else:
                # Counters overflow by design.
                with np.errstate(over="ignore"):
                    self._crew.run(self._loop.function, arguments)
        except RowError as error:
            # Some rows have moved and others have not.
            self._current_time_step = None
            raise _with_row(error, type(self).__name__) from error.error
        observation = [
            leaf.reshape(rows, *spec.shape)
            for leaf, spec in zip(leaves, self._observation.leaves, strict=True)
        ]
        return TimeStep(
            step_type, reward, discount, self._observation.unflatten(observation)
        )


class _Loop:
    """Holds the compiled loop; another process compiles or loads it again."""

    def __init__(
        self, rules: Rules, name: str, native: bool, bounds_checked: bool
    ) -> None:
        self._made_of = rules, name, native, bounds_checked
        self.native = native
        self.initial = rules.states(1)
        self.function = driver(
            rules, native=native, bounds_checked=bounds_checked, name=name
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> _Loop:
        return self

    def __reduce__(self) -> Any:
        return _Loop, self._made_of


def _with_row(error: RowError, name: str) -> Exception:
    """Returns the error of a row's rules, with the row in its message."""
    cause = error.error
    text = (
        f"{name}: the rules of row {error.row} raised {type(cause).__name__}: {cause}. "
        "Other rows may have moved; the next step begins all episodes anew. "
        "compiled=False shows the line."
    )
    try:
        return type(cause)(text)
    except TypeError:
        return RuntimeError(text)


def _actions_of(name: str, rules: Rules, batch_size: int | None) -> BatchActions:
    spec = rules.action_spec
    is_number = spec.shape == () and spec.dtype.kind in "iu"
    if is_number and isinstance(spec, BoundedArraySpec) and spec.minimum == 0:
        actions = DiscreteActions(name, int(spec.maximum) + 1, batch_size)
        actions.spec = spec
        return actions
    return _SpecActions(name, rules, batch_size)


class _SpecActions:
    """Checks actions of a single spec, and converts them to 64 bits."""

    def __init__(self, name: str, rules: Rules, batch_size: int | None) -> None:
        self.spec: Any = rules.action_spec
        self.described = f"actions of {self.spec!r}"
        self._dtype = action_dtype(rules)
        self._subject = f"{name}.step()"
        self._rows = ActionRows(self.spec, batch_size or 1, self._subject)

    def one(self, action: Any) -> Any:
        """Returns the action of a single environment; raises if it does not fit."""
        given = as_array(action)
        try:
            (column,) = self._rows.columns(given[np.newaxis])
        except (SpecError, IndexError):
            # The message must describe one action, not a batch of one.
            check_fits(
                action,
                self.spec,
                subject=f"{self._subject} was given an action that",
                root="action",
                context="The environment has not moved.",
            )
            raise
        return np.ascontiguousarray(column[0], self._dtype)

    def for_rows(self, action: Any, ended: Array) -> Array:
        """Returns the actions of all rows; ignores those of ended rows."""
        (column,) = self._rows.columns(action, ignored=ended)
        return np.ascontiguousarray(column, self._dtype)
