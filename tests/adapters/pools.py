"""Pools of EnvPool side by side: what tests of several files play with them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from envkit import nest
from envkit.time_step import StepType, TimeStep

envpool = pytest.importorskip("envpool", reason="envpool is not installed")

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


def bare(name, seeds, **arguments):
    """Makes a pool of EnvPool's own, whose rows have these seeds."""
    pool = envpool.make_gymnasium(
        name, num_envs=len(seeds), seed=list(seeds), **arguments
    )
    with warnings.catch_warnings():
        # Gymnasium warns once of the bounds that EnvPool has in float64.
        warnings.simplefilter("ignore")
        assert pool.observation_space
    return pool


def action_of(spec, row, number):
    """Returns an action that depends on the row and on how many it has had."""
    rng = np.random.default_rng([row, number])
    if spec.dtype.kind == "f":
        return rng.uniform(-1, 1, spec.shape).astype(spec.dtype)
    return rng.integers(spec.minimum, spec.maximum + 1, spec.shape, spec.dtype)


class Actions:
    """Gives each row its own actions, however often which rows step."""

    def __init__(self, spec, rows):
        self._spec = spec
        self._numbers = [0] * rows

    def batch(self, mask=None):
        """Returns the next actions; rows outside the mask keep theirs for later."""
        rows = range(len(self._numbers))
        taken = [
            action_of(self._spec, row, self._numbers[row]) if moves else self._any()
            for row, moves in zip(rows, self._as_mask(mask), strict=True)
        ]
        for row in rows:
            self._numbers[row] += bool(self._as_mask(mask)[row])
        return np.array(taken, self._spec.dtype)

    def _as_mask(self, mask):
        return [True] * len(self._numbers) if mask is None else mask

    def _any(self):
        return np.zeros(self._spec.shape, self._spec.dtype)


def row_of(time_step, row):
    """Returns the bits of one row of a time step."""
    leaves = nest.flatten(TimeStep(*time_step))
    return tuple(np.asarray(leaf)[row].tobytes() for leaf in leaves)
