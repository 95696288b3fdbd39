"""Checks masks of a batch's rows, and merges time steps by mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from envkit import nest
from envkit._internal.internals import own_internals
from envkit._internal.text import named_rows
from envkit.errors import CallOrderError, SpecError
from envkit.specs.arrays import as_array
from envkit.specs.validation import check_fits, describe
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = [
    "STEPS",
    "as_mask",
    "as_moves",
    "check_others_have_begun",
    "check_time_step",
    "merge",
]

# The meaning of a step's mask.
STEPS = "a row is to take its action"
_WHOLE = "It returns the whole batch; only the masked rows of it are used."


def as_mask(
    env: Any, mask: Any, call: str = "reset", purpose: str = "an episode is to begin"
) -> Array:
    """Returns the checked mask of a call; raises if it does not fit."""
    if not env.batched:
        raise ValueError(
            f"{type(env).__name__} is not batched, so it has no rows to choose from: "
            f"call {'reset' if call == 'reset' else 'step'}() without a mask."
            f"{_not_a_mask(mask, call, 1)}"
        )
    rows = as_array(mask)
    if rows.dtype != np.bool_ or rows.shape != (env.batch_size,):
        raise SpecError.does_not_fit(
            f"{type(env).__name__}.{call}() was given a mask that",
            path="",
            expected=f"boolean array of shape ({env.batch_size},)",
            got=describe(mask),
            reason=f"A mask has one boolean for each row: true where {purpose}."
            f"{_not_a_mask(mask, call, env.batch_size)}",
        )
    return rows


def _not_a_mask(given: Any, call: str, rows: int) -> str:
    """Returns a sentence about seeds or options that were passed as a mask."""
    if call != "reset":
        return ""
    if isinstance(given, Mapping):
        return " For options, write reset(options=...)."
    array = as_array(given)
    is_seed = array.ndim == 0 or array.shape == (rows,)
    if array.dtype.kind not in "iu" or not is_seed:
        return ""
    if array.ndim and np.isin(array, (0, 1)).all():  # It may be meant as a mask.
        return ""
    shown = f"{array.tolist()}"
    return f" For a seed, write reset(seed={shown if len(shown) < 40 else '...'})."


def as_moves(env: Any, stepping: Any, beginning: Any) -> tuple[Array, Array]:
    """Checks the masks given to `step_rows`, and returns both."""
    stepping = as_mask(env, stepping, "step_rows", STEPS)
    if beginning is None:
        return stepping, np.zeros_like(stepping)
    beginning = as_mask(env, beginning, "step_rows")
    both = (stepping & beginning).nonzero()[0]
    if both.size:
        raise ValueError(
            f"{type(env).__name__}.step_rows() was asked to step and to reset "
            f"{named_rows(both)}. A row does one of the two in a call."
        )
    return stepping, beginning


def check_others_have_begun(env: Any, mask: Array) -> None:
    """Refuses to reset some rows while others have not begun any episode."""
    if not env._envkit.others_have_begun(env, mask):
        _refuse_mask(env)


def _refuse_mask(env: Any) -> NoReturn:
    raise CallOrderError(
        f"{type(env).__name__}.reset(mask) was called before the first reset(): "
        "the rows outside the mask have no time step yet. Call reset() first."
    )


def merge(
    env: Any,
    mask: Array,
    masked: TimeStep,
    other: TimeStep,
    method: str = "_reset_rows",
) -> TimeStep:
    """Takes the masked rows from the result of `method`, the rest from `other`.

    `other` is the result of `_step`, or the current time step.
    """
    source = f"{type(env).__name__}._step() returned a time step that"
    if other is env._current_time_step:
        # It belongs to the caller of step(), who may have taken it apart.
        source = f"The current time step of {type(env).__name__}"
    structure = env._envkit.structure
    if structure is None:  # compiled once: a batch merges at nearly every step
        structure = nest.Structure(env.time_step_spec())
        own_internals(env).structure = structure
    columns = zip(
        _checked_rows(
            env,
            structure,
            masked,
            f"{type(env).__name__}.{method}() returned a time step that",
            _WHOLE,
        ),
        _checked_rows(env, structure, other, source, ""),
        strict=True,
    )
    # np.where returns arrays of native byte order.
    picked = [
        np.where(mask.reshape(-1, *[1] * (ours.ndim - 1)), ours, theirs).astype(
            ours.dtype, copy=False
        )
        for ours, theirs in columns
    ]
    merged: TimeStep = structure.unflatten(picked)
    return merged


def _checked_rows(
    env: Any, structure: nest.Structure, time_step: TimeStep, subject: str, context: str
) -> list[Array]:
    """Flattens a batch's time step; no leaf may broadcast or change dtype."""
    dims = (env.batch_size,)
    try:
        leaves = [np.asarray(leaf) for leaf in structure.flatten(time_step)]
    except SpecError:
        leaves = []
    if len(leaves) != len(structure.leaves) or any(
        leaf.shape != dims + spec.shape or leaf.dtype != spec.dtype
        for leaf, spec in zip(leaves, structure.leaves, strict=True)
    ):
        check_fits(
            time_step,
            structure.template,
            subject=subject,
            outer_dims=dims,
            context=context,
        )
    return leaves


def check_time_step(env: Any, result: Any, method: str) -> TimeStep:
    """Refuses anything but a time step: `None`, arrays, Gymnasium's tuples.

    It checks no more: time steps of other libraries are accepted, and a method that
    `unittest.mock` has replaced may return anything, as in TF-Agents' tests. `look_at`
    and `check_environment` check more.
    """
    # Hot: called once per step of a batch.
    if result.__class__ is TimeStep:
        return result
    is_stand_in = hasattr(getattr(env, method), "mock_calls") or (
        # Wrappers pass on the results of such methods.
        env._envkit.wraps and not isinstance(result, tuple)
    )
    if hasattr(result, "step_type") or (is_stand_in and result is not None):
        time_step: TimeStep = result
        return time_step
    hint = (
        "Did a return statement get lost?"
        if result is None
        else "Build it with envkit.restart, transition, termination or truncation."
    )
    raise SpecError(
        f"{type(env).__name__}.{method}() returned {describe(result)}, not a "
        f"TimeStep. {hint}"
    )
