"""The promise that time steps keep their form, for as long as anybody plays."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.validation import explain
from envkit.testing.contract.findings import Broken, broken, name_of, raised
from envkit.testing.contract.recording import BEGINS
from envkit.testing.contract.trial import Move, Trial
from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["long_game"]


def long_game(trial: Trial) -> None:
    """Looks at step types, dtypes, shapes and bounds, for as many steps as asked for.

    The recording of the other checks ends after a few episodes. This game goes on, and
    keeps nothing.
    """
    if len(trial.main) > trial.steps:
        return  # That many were played already, and looked at more closely.
    form, pads = _Form(trial), trial.repeats_last
    moves = trial.play(trial.new(), trial.actor())
    # Whatever a row has done before, the first reset begins an episode.
    before: Array = np.full(trial.dims or (1,), StepType.LAST)
    for number in range(trial.steps + 1):
        place = f"This was step {number} after the first reset()."
        try:
            move = next(moves)
        except Exception as error:
            raise Broken(f"{raised(error)}\n\n{place}") from error
        form.expect(move, place)
        # A copy: the environment may write into what it has returned.
        now = np.array(move.result.step_type).reshape(-1)
        _expect_order(move, before, now, place, pads=pads)
        before = now


class _Form:
    """What time steps look like, quickly; what is wrong with them is found slowly."""

    def __init__(self, trial: Trial) -> None:
        self._spec, self._dims = trial.time_step_spec, trial.dims
        self._structure = nest.Structure(self._spec)
        self._arrays = [
            (leaf, (*self._dims, *leaf.shape)) for leaf in self._structure.leaves
        ]

    def expect(self, move: Move, place: str) -> None:
        """Raises `Broken` unless a time step looks as its spec says."""
        if self._looks_right(move.result):
            return
        text = explain(
            move.result,
            self._spec,
            subject=f"{move.call} returned a time step that",
            outer_dims=self._dims,
        )
        if text is not None:
            raise Broken(f"{text}\n{place}")

    def _looks_right(self, result: Any) -> bool:
        try:
            leaves = self._structure.flatten(result)
        except SpecError:
            return False
        return all(
            isinstance(leaf, np.ndarray)
            and (leaf.dtype, leaf.shape) == (spec.dtype, shape)
            and _within_bounds(leaf, spec)
            for leaf, (spec, shape) in zip(leaves, self._arrays, strict=True)
        )


def _within_bounds(leaf: Array, spec: Any) -> bool:
    if not isinstance(spec, BoundedArraySpec):
        return True
    # NaN is not within any.
    return bool(((leaf >= spec.minimum) & (leaf <= spec.maximum)).all())


def _expect_order(
    move: Move, before: Array, now: Array, place: str, *, pads: bool
) -> None:
    known = (now >= StepType.FIRST) & (now <= StepType.LAST)
    ended, begun = before == StepType.LAST, now == StepType.FIRST
    if pads:
        ended = ended & (now != StepType.LAST)
    # Where only the rows that have ended are to begin, the others stay.
    stayed = before == now if move.call in BEGINS.values() else False
    wrong = np.flatnonzero(~known | ((ended != begun) & ~np.asarray(stayed)))
    if not wrong.size:
        return
    row = wrong[0]
    at = f" in row {row}" if np.ndim(move.result.step_type) else ""
    names = name_of(before[row]), name_of(now[row])
    raise broken(
        f"{move.call} went from {names[0]} to {names[1]}{at}.",
        [
            ("expected", "FIRST" if ended[row] else "MID or LAST"),
            ("got", names[1]),
        ],
        f"An episode begins after a LAST, and only there.\n{place}",
    )
