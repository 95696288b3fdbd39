"""Promises of batches: rows are reset alone, and wrong actions move none of them."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.autoreset import AutoReset
from envkit.testing.contract.findings import Skipped, broken, name_of
from envkit.testing.contract.recording import (
    Recording,
    Snapshot,
    expect_same_stream,
    explain_difference,
    first_difference,
    snapshot,
)
from envkit.testing.contract.trial import Trial
from envkit.time_step import StepType
from envkit.types import Array, NestedArray

__all__ = ["held_rows", "masked_reset", "other_rows", "wrong_action"]

_FIX = (
    "Override _reset_rows(mask), which begins an episode in the masked rows only, and "
    "leave reset() to PyEnvironment."
)


_HOLD_FIX = (
    "Override _step_rows(action, stepping, beginning), which leaves all but these rows "
    "where they are."
)


def masked_reset(trial: Trial) -> None:
    """Looks at whether reset(mask) begins episodes in the masked rows and no others."""
    rows = trial.need_batch()
    env = trial.new()
    trial.record(env, min(3, trial.horizon))
    odd = np.arange(rows) % 2 == 1
    for mask in (~odd, odd, np.zeros(rows, bool)):
        before = snapshot(env.current_time_step())
        after = _reset_masked(env, mask)
        _check_rows(before, after, mask)
        difference = first_difference(
            snapshot(after), snapshot(env.current_time_step())
        )
        if difference is not None:
            raise explain_difference(
                "current_time_step() is not what reset(mask) returned.",
                difference,
                _FIX,
                ("returned", "current"),
            )
        _check_goes_on(trial, env)


def _reset_masked(env: Any, mask: Array) -> Any:
    if inspect.signature(env.reset).parameters:
        with contextlib.suppress(NotImplementedError):
            return env.reset(mask)
    raise Skipped("reset(mask) is not implemented", "masked_reset")


def _check_rows(before: Snapshot, after: Any, mask: Array) -> None:
    call = f"reset(mask) of {_listed(np.flatnonzero(mask))}"
    step_types, copied = np.asarray(after.step_type), snapshot(after)
    for row, masked in enumerate(mask):
        if not masked:
            _check_untouched(call, row, before, copied)
        elif step_types[row] != StepType.FIRST:
            raise broken(
                f"{call} did not begin an episode in row {row}.",
                [("expected", "FIRST"), ("got", name_of(step_types[row]))],
                _FIX,
            )


def _listed(rows: Array, most: int = 8) -> str:
    shown = ", ".join(map(str, rows[:most]))
    more = f" and {len(rows) - most} more" if len(rows) > most else ""
    return f"rows {shown}{more}" if shown else "no rows"


def _check_untouched(call: str, row: int, before: Snapshot, after: Snapshot) -> None:
    difference = first_difference(_row(before, row), _row(after, row))
    if difference is not None:
        raise explain_difference(
            f"{call} changed row {row}.", difference, _FIX, ("before", "after")
        )


def _row(copied: Snapshot, row: int) -> Snapshot:
    return tuple((path, leaf[row, ...]) for path, leaf in copied)


def _check_goes_on(trial: Trial, env: Any) -> None:
    before = trial.ready(env)
    ended = np.asarray(before.step_type) == StepType.LAST
    after = env.step(trial.actor()(before))
    wrong = np.flatnonzero(~ended & (np.asarray(after.step_type) == StepType.FIRST))
    if wrong.size:
        raise broken(
            f"The step after reset(mask) returned FIRST in row {wrong[0]}.",
            [("expected", "MID or LAST"), ("got", "FIRST")],
            "Its episode had not ended. A flag that says so must be cleared, or left "
            "alone, row by row.",
        )


def other_rows(trial: Trial) -> None:
    """Looks at whether rows that are not reset do what they would have done.

    They are looked at only as long as their steps do not depend on random numbers: in
    a batch with one generator, resetting a row may move it for all of them.
    """
    _check_bystanders(trial, _reset_masked, "reset(mask)", _FIX)


def held_rows(trial: Trial) -> None:
    """Looks at whether step(action, mask) leaves the other rows where they are."""
    rows = trial.need_batch()
    env = trial.new()
    if not getattr(env, "holds_rows", False):
        raise Skipped("step(action, mask) is not implemented", "held_rows")
    trial.record(env, min(3, trial.horizon))
    odd = np.arange(rows) % 2 == 1
    for mask in (~odd, odd, np.zeros(rows, bool)):
        before = snapshot(trial.ready(env))
        stepped = _step_masked(trial, env, mask)
        after = snapshot(stepped)
        for row in np.flatnonzero(~mask).tolist():
            difference = first_difference(_row(before, row), _row(after, row))
            if difference is not None:
                raise explain_difference(
                    f"step(action, mask) of {_listed(np.flatnonzero(mask))} changed "
                    f"row {row}.",
                    difference,
                    _HOLD_FIX,
                    ("before", "after"),
                )
        difference = first_difference(after, snapshot(env.current_time_step()))
        begins = trial.order is AutoReset.SAME_STEP and np.any(
            np.asarray(stepped.step_type) == StepType.LAST
        )
        if difference is not None and not begins:
            raise explain_difference(
                "current_time_step() is not what step(action, mask) returned.",
                difference,
                _HOLD_FIX,
                ("returned", "current"),
            )
    _check_bystanders(
        trial, functools.partial(_step_masked, trial), "step(action, mask)", _HOLD_FIX
    )


def _step_masked(trial: Trial, env: Any, mask: Array) -> Any:
    return env.step(trial.actor(4)(trial.ready(env)), mask)


def _check_bystanders(
    trial: Trial, disturb: Callable[[Any, Array], Any], call: str, advice: str
) -> None:
    """Checks that what is done to some rows makes no difference to the others."""
    if trial.need_batch() == 1:
        raise Skipped("the batch has one row only")
    if trial.chooses_actions:
        raise Skipped("the actions may depend on what other rows show")
    trial.need_repeatable()
    trial.need_constancy()
    mask = np.arange(trial.need_batch()) % 2 == 0
    seeds = range(trial.seed, trial.seed + 4)
    usual, *reseeded = (_future(trial, seed) for seed in seeds)
    disturbed = _future(trial, trial.seed, lambda env: disturb(env, mask))
    seen = False
    for row in np.flatnonzero(~mask).tolist():
        for index in range(_until_any_end([usual, disturbed])):
            expected = _row(usual.copies[index], row)
            others = [_row(other.copies[index], row) for other in reseeded]
            if any(first_difference(expected, other) for other in others):
                break
            seen = True
            after = _row(disturbed.copies[index], row)
            _check_undisturbed(row, expected, after, call, advice)
    if not seen:
        raise Skipped("what the rows do next is random")


# An internal reset shows at once, and the longer one looks, the more chance comes in.
_NEXT_STEPS = 3


def _future(
    trial: Trial, seed: int, disturb: Callable[[Any], Any] | None = None
) -> Recording:
    """Records what comes after two steps, a disturbance if asked, and a new seed."""
    env = trial.new()
    trial.record(env, min(2, trial.horizon))
    if disturb is not None:
        disturb(env)
    with contextlib.suppress(NotImplementedError):
        env.seed(seed)
    return trial.record(env, _NEXT_STEPS, actor=trial.actor(2), begin=False)


def _until_any_end(recordings: list[Recording]) -> int:
    """Counts the steps before the first that begins an episode in any row."""
    for index in range(_NEXT_STEPS):
        for recording in recordings:
            if np.any(recording.step_types(index) == StepType.FIRST):
                return index
    return _NEXT_STEPS


def _check_undisturbed(
    row: int, expected: Snapshot, after: Snapshot, call: str, advice: str
) -> None:
    difference = first_difference(expected, after)
    if difference is not None:
        raise explain_difference(
            f"{call} of other rows changes what row {row} does next.",
            difference,
            f"It was shown as it stood, and yet something of it has moved. {advice}",
            ("without", f"after {call}"),
        )


class _Wrong(NamedTuple):
    """A batch of actions that must be refused."""

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
    """Looks at whether an action of a wrong shape is refused before anything moves.

    A single environment may stumble over such an action wherever it likes; in a batch
    it is a learner's mistake that NumPy's broadcasting may hide.
    """
    rows = trial.need_batch()
    if not nest.flatten(trial.action_spec):
        raise Skipped("there is nothing in an action")
    repeatable = trial.repeatable
    for wrong in _wrong_actions(rows):
        env = trial.new()
        time_step = env.reset()
        _expect_refused(env, wrong, trial.actor(3)(time_step))
        if repeatable:
            _check_unmoved(trial, env, wrong)


def _expect_refused(env: Any, wrong: _Wrong, action: NestedArray) -> None:
    bad = nest.map_structure(lambda leaf: wrong.change(np.asarray(leaf)), action)
    try:
        env.step(bad)
    except Exception:
        return
    raise broken(
        f"step() accepted an action with {wrong.what}.",
        [("expected", "a SpecError"), ("got", "no exception")],
        "It was taken without a word, so a learner's mistake goes unnoticed. A wrong "
        "action should be refused before anything moves: compare its shape with "
        "(batch_size, *spec.shape).",
    )


def _check_unmoved(trial: Trial, env: Any, wrong: _Wrong) -> None:
    """Compares what follows a refused action with what follows a reset."""
    time_step = env.current_time_step()
    after = Recording(trial.rows)
    after.add("reset()", time_step)
    moves = trial.play(env, trial.actor(), begin=False)
    for _, move in zip(range(trial.horizon), moves, strict=False):
        after.add(move.call, move.result)
    expect_same_stream(
        trial.reference,
        after,
        problem=f"step() refused an action with {wrong.what}, and yet something moved, "
        "in",
        advice="Look at the whole action before the first row moves.",
        labels=("without", "after the error"),
    )
