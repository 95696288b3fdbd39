"""`PoolState`: a snapshot of a pool, and checks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envkit._internal.text import listed
from envkit.errors import SpecError
from envkit.specs.validation import describe, flatten_as
from envkit.time_step import AutoReset, StepType, TimeStep

if TYPE_CHECKING:
    from envkit.parallel.pool import Pool

__all__ = ["PoolState", "check_state"]


class PoolState(NamedTuple):
    """The result of a pool's `get_state`: a token for `set_state` of any pool.

    Attributes:
        environments: The environments' own states, as bytes.
        time_step: The last returned time step; `None` before the first.
        standing: The time step at which the environments stand, which may differ from
            it under SAME_STEP.
        autoreset: The autoreset order then.
        new_rows: The rows whose environment had just been replaced and had not begun.
        begun: Which rows had begun an episode.
    """

    environments: tuple[bytes, ...]
    time_step: TimeStep | None
    standing: TimeStep | None
    autoreset: str
    new_rows: tuple[int, ...] = ()
    begun: tuple[bool, ...] = ()


def check_state(state: Any, name: str, pool: Pool) -> None:
    """Raises if a value is not a state of such a pool.

    Args:
        state: The value.
        name: The class of the pool.
        pool: The pool, for its rows and environments.

    Raises:
        TypeError: It did not come from `get_state` of a pool.
        ValueError: A part of it does not fit this pool, or another part.
    """
    if not isinstance(state, PoolState):
        raise TypeError(
            f"{name}.set_state() was given {describe(state)}; it takes what "
            "get_state() of a pool returned."
        )
    given = f"{name}.set_state() was given a state whose"
    if not isinstance(state.environments, tuple | list):
        raise ValueError(
            f"{given} environments are {describe(state.environments)}; they must "
            "be a tuple with the bytes of each environment."
        )
    count = len(pool.rows_of_env)
    if len(state.environments) != count:
        raise ValueError(
            f"{name}.set_state() was given the state of "
            f"{len(state.environments)} environments; there are {count}."
        )
    for env, one in enumerate(state.environments):
        if not isinstance(one, bytes):
            raise ValueError(
                f"{given} environments[{env}] is {describe(one)}; it must be the "
                "bytes that get_state() returned."
            )
    try:
        AutoReset.of(state.autoreset)
    except ValueError as error:
        raise ValueError(f"{given} {error}") from None
    _check_marks(state, given, pool.num_rows)
    if (state.time_step is None) != (state.standing is None):
        raise ValueError(
            f"{given} time_step is {describe(state.time_step)} and whose standing "
            f"is {describe(state.standing)}; both must be time steps, or None."
        )
    if state.standing is not None:
        _check_rows(state.time_step, f"{given} time_step", pool)
        _check_rows(state.standing, f"{given} standing", pool)
    elif any(state.begun):
        raise ValueError(
            f"{given} begun says that rows have begun an episode, and whose "
            "time_step is None; it must be the time step at which they stand."
        )


def _check_marks(state: PoolState, given: str, rows: int) -> None:
    """Raises if a state does not say which rows have begun or are new."""
    begun, new = state.begun, state.new_rows
    if (
        not isinstance(begun, tuple | list)
        or len(begun) != rows
        or not all(isinstance(one, bool | np.bool_) for one in begun)
    ):
        raise ValueError(
            f"{given} begun is {describe(begun)}; it must be a tuple with True or "
            f"False for each of {rows} rows."
        )
    if not isinstance(new, tuple | list) or not all(
        isinstance(row, int | np.integer)
        and not isinstance(row, bool)
        and 0 <= row < rows
        for row in new
    ):
        raise ValueError(
            f"{given} new_rows is {describe(new)}; it must be a tuple of row "
            f"numbers from 0 to {rows - 1}."
        )


def _check_rows(time_step: Any, given: str, pool: Pool) -> None:
    """Raises unless a value has the time steps of all rows; bounds are not checked."""
    if not isinstance(time_step, TimeStep):
        raise ValueError(
            f"{given} is {describe(time_step)}; it must be a TimeStep of "
            f"{pool.num_rows} rows."
        )
    structure = pool.layout.time_step
    leaves = flatten_as(structure, time_step, subject=given)
    for leaf, place, path in zip(
        leaves, pool.slab.views(0), structure.paths, strict=True
    ):
        shape, dtype = place.shape, place.dtype
        is_array = isinstance(leaf, np.ndarray)
        if not is_array or leaf.shape != shape or leaf.dtype != dtype:
            raise SpecError.does_not_fit(
                given,
                path=path,
                expected=f"array of shape {shape}, dtype {dtype}",
                got=describe(leaf),
                reason="The state belongs to other environments.",
            )
    step_types = np.asarray(time_step.step_type)
    if ((step_types < StepType.FIRST) | (step_types > StepType.LAST)).any():
        raise ValueError(
            f"{given} has the step types {listed(np.unique(step_types))}; each "
            "must be FIRST, MID or LAST: 0, 1 or 2."
        )
