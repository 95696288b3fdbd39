"""Promises about batches: rows reset on their own, and wrong actions move none."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.extend import listed
from envkit.testing.contract.findings import Skipped, broken, refuses
from envkit.testing.contract.recording import (
    Rollout,
    Snapshot,
    expect_same,
    expect_same_stream,
    first_difference,
    row_of,
    snapshot,
)
from envkit.testing.contract.trial import Trial
from envkit.time_step import AutoReset, StepType
from envkit.types import Array
from envkit.wrappers.findings import name_of

__all__ = ["held_rows", "masked_reset", "other_rows", "wrong_action"]

_FIX = (
    "Override _reset_rows(mask), which begins an episode in the masked rows only, and "
    "leave reset() to PyEnvironment."
)
_HOLD_FIX = (
    "Override _step_rows(action, stepping, beginning), which leaves all but these rows "
    "where they are."
)

# How many steps to compare after a disturbance: enough to reveal an internal reset;
# with more of them, chance could interfere.
_NEXT_STEPS = 3


def masked_reset(trial: Trial) -> None:
    """reset(mask) begins episodes only in the masked rows."""
    env, masks = _batch_and_masks(trial)
    for mask in masks:
        before = snapshot(env.current_time_step())
        after = _reset_masked(env, mask)
        call = f"reset(mask) of {_named(mask)}"
        copied, step_types = snapshot(after), np.asarray(after.step_type)
        for row, masked in enumerate(mask):
            if not masked:
                _expect_same_row(call, row, before, copied, _FIX)
            elif step_types[row] != StepType.FIRST:
                raise broken(
                    f"{call} did not begin an episode in row {row}.",
                    _FIX,
                    expected="FIRST",
                    got=name_of(step_types[row]),
                )
        _expect_current(env, copied, "reset(mask)", _FIX)
        _check_goes_on(trial, env)


def _batch_and_masks(trial: Trial) -> tuple[Any, tuple[Array, ...]]:
    """Returns a batch in mid-episode, and masks of half, other half, and no rows."""
    rows = trial.need_batch()
    env = trial.new()
    trial.record(env, min(3, trial.horizon))
    odd = np.arange(rows) % 2 == 1
    return env, (~odd, odd, np.zeros(rows, bool))


def _reset_masked(env: Any, mask: Array) -> Any:
    if inspect.signature(env.reset).parameters:
        with contextlib.suppress(NotImplementedError):
            return env.reset(mask)
    raise Skipped("reset(mask) is not implemented", "masked_reset")


def _named(mask: Array) -> str:
    return f"rows {listed(np.flatnonzero(mask))}" if mask.any() else "no rows"


def _expect_same_row(
    call: str, row: int, before: Snapshot, after: Snapshot, advice: str
) -> None:
    expect_same(
        row_of(before, row),
        row_of(after, row),
        f"{call} changed row {row}.",
        advice,
        ("before", "after"),
    )


def _expect_current(env: Any, returned: Snapshot, call: str, advice: str) -> None:
    expect_same(
        returned,
        snapshot(env.current_time_step()),
        f"current_time_step() is not the time step that {call} returned.",
        advice,
        ("returned", "current"),
    )


def _check_goes_on(trial: Trial, env: Any) -> None:
    before = trial.ready(env)
    ended = np.asarray(before.step_type) == StepType.LAST
    after = env.step(trial.actor()(before, env))
    wrong = np.flatnonzero(~ended & (np.asarray(after.step_type) == StepType.FIRST))
    if wrong.size:
        raise broken(
            f"The step after reset(mask) returned FIRST in row {wrong[0]}.",
            "Its episode had not ended. A flag that says so must be cleared, or left "
            "alone, row by row.",
            expected="MID or LAST",
            got="FIRST",
        )


def other_rows(trial: Trial) -> None:
    """reset(mask) does not change what the other rows do next.

    Rows are compared only while their steps do not depend on random numbers: in a batch
    with one generator, resetting a row may advance it for all of them.
    """
    _check_bystanders(trial, _reset_masked, "reset(mask)", _FIX)


def held_rows(trial: Trial) -> None:
    """step(action, mask) leaves the other rows where they are."""
    trial.need_batch()
    if not getattr(trial.make(), "holds_rows", False):
        raise Skipped("step(action, mask) is not implemented", "held_rows")
    env, masks = _batch_and_masks(trial)
    step_masked = functools.partial(_step_masked, trial)
    for mask in masks:
        before = snapshot(trial.ready(env))
        stepped = step_masked(env, mask)
        call, after = f"step(action, mask) of {_named(mask)}", snapshot(stepped)
        for row in np.flatnonzero(~mask).tolist():
            _expect_same_row(call, row, before, after, _HOLD_FIX)
        has_ended = np.any(np.asarray(stepped.step_type) == StepType.LAST)
        if not (trial.order is AutoReset.SAME_STEP and has_ended):
            _expect_current(env, after, "step(action, mask)", _HOLD_FIX)
    _check_bystanders(trial, step_masked, "step(action, mask)", _HOLD_FIX)


def _step_masked(trial: Trial, env: Any, mask: Array) -> Any:
    return env.step(trial.actor(4)(trial.ready(env), env), mask)


def _check_bystanders(
    trial: Trial, disturb: Callable[[Any, Array], Any], call: str, advice: str
) -> None:
    """Raises unless a call for some rows makes no difference to the others."""
    if trial.need_batch() == 1:
        raise Skipped("the batch has one row only")
    if trial.has_policy:
        raise Skipped("the actions may depend on what other rows show")
    trial.need_repeatable()
    trial.need_constancy()
    mask = np.arange(trial.need_batch()) % 2 == 0
    seeds = range(trial.seed, trial.seed + 4)
    usual, *reseeded = (_future(trial, seed) for seed in seeds)
    disturbed = _future(trial, trial.seed, lambda env: disturb(env, mask))
    compared = False
    for row in np.flatnonzero(~mask).tolist():
        for index in range(_until_any_end([usual, disturbed])):
            expected = row_of(usual.copies[index], row)
            others = [row_of(other.copies[index], row) for other in reseeded]
            if any(first_difference(expected, other) for other in others):
                break
            compared = True
            expect_same(
                expected,
                row_of(disturbed.copies[index], row),
                f"{call} of other rows changes what row {row} does next.",
                f"Its time step was unchanged, and yet its state has moved. {advice}",
                ("without", f"after {call}"),
            )
    if not compared:
        raise Skipped("what the rows do next is random")


def _future(
    trial: Trial, seed: int, disturb: Callable[[Any], Any] | None = None
) -> Rollout:
    """Records the steps after two steps, an optional disturbance, and a new seed."""
    env = trial.new()
    trial.record(env, min(2, trial.horizon))
    if disturb is not None:
        disturb(env)
    with contextlib.suppress(NotImplementedError):
        env.seed(seed)
    return trial.record(env, _NEXT_STEPS, actor=trial.actor(2), begin=False)


def _until_any_end(recordings: list[Rollout]) -> int:
    """Returns the number of steps before the first `FIRST` in any row."""
    for index in range(_NEXT_STEPS):
        for recording in recordings:
            if np.any(recording.step_types(index) == StepType.FIRST):
                return index
    return _NEXT_STEPS


class _Wrong(NamedTuple):
    """Describes a change that makes a batch of actions wrong."""

    what: str
    change: Callable[[Array], Array]


def _wrong_actions(rows: int) -> Iterator[_Wrong]:
    yield _Wrong(
        f"{rows + 1} rows instead of {rows}",
        lambda leaf: np.concatenate([leaf, leaf[:1]]),
    )
    if rows > 1:
        yield _Wrong(f"1 row instead of {rows}", lambda leaf: leaf[:1])
    yield _Wrong(
        "one dimension too many", lambda leaf: np.stack([leaf, leaf], axis=leaf.ndim)
    )


def wrong_action(trial: Trial) -> None:
    """An action of the wrong shape is refused, and nothing moves.

    It checks only batches, where NumPy's broadcasting may hide a learner's mistake; a
    single environment may raise anywhere on such an action.
    """
    rows = trial.need_batch()
    if not nest.flatten(trial.action_spec):
        raise Skipped("there is nothing in an action")
    repeatable = trial.repeatable
    for what, change in _wrong_actions(rows):
        env = trial.new()
        action = trial.actor(3)(env.reset(), env)
        bad = nest.map_structure(lambda leaf, to=change: to(np.asarray(leaf)), action)
        if not refuses(env.step, bad):
            raise broken(
                f"step() accepted an action with {what}.",
                "The call raised nothing, so a learner's mistake goes unnoticed. A "
                "wrong action should be refused before anything moves: compare its "
                "shape with (batch_size, *spec.shape).",
                expected="a SpecError",
                got="no exception",
            )
        if repeatable:
            _check_unmoved(trial, env, what)


def _check_unmoved(trial: Trial, env: Any, what: str) -> None:
    """Compares the stream after a refused action with the one after a reset."""
    after = Rollout(trial.rows)
    after.add("reset()", env.current_time_step())
    moves = trial.play(env, trial.actor(), begin=False)
    for _, move in zip(range(trial.horizon), moves, strict=False):
        after.add(move.call, move.result)
    expect_same_stream(
        trial.reference,
        after,
        problem=f"step() refused an action with {what}, and yet something moved, in",
        advice="Look at the whole action before the first row moves.",
        labels=("without", "after the error"),
    )
