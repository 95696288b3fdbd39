"""`RandomPolicy`: random actions that can be played again, row by row and step by step.

One generator for everything gives a row another action as soon as another row has drawn
before it. Here an action depends on the seed of its row and on the number of its step
alone, whatever is asked before it, and whatever other rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.arrays import as_array
from envkit.env_ids import check_env_ids
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.environment_spec import checked_spec
from envkit.specs.sampling import sample_spec_nest
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["RandomPolicy"]

_LAST = int(StepType.LAST)
# Where the seeds of actions branch off from those of rows, which count from 0, and of
# wrappers: an environment with the same seed draws other numbers.
_BRANCH = 2**31 + 16


class RandomPolicy:
    """Chooses random actions, each by the seed of its row and the number of its step.

    Called with time steps it counts each row's steps itself. A row at a `LAST` takes no
    action, so that is not counted: the actions are the same in every order of resets,
    for any number of workers, and for rows that answer in any order.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch(batch_size=3, seed=1)
        >>> policy = RandomPolicy(env.action_spec(), seed=7, batch_size=3)
        >>> actions = policy(env.reset())
        >>> actions
        array([2, 0, 2])
        >>> int(policy.action(step=0, row=1)), policy.steps
        (0, array([1, 1, 1]))
    """

    def __init__(
        self, action_spec: NestedSpec, seed: Seed = None, batch_size: int | None = None
    ) -> None:
        """Prepares.

        Args:
            action_spec: The specs of one row's action.
            seed: What the actions depend on: one integer, from which row `i` gets the
                same seed in a batch of any size, or one for each row; `None` for what
                differs each time.
            batch_size: How many rows there are; `None` for a single environment.
        """
        self._spec = checked_spec(action_spec, "action_spec is")
        self._structure = nest.Structure(action_spec)
        self._batch_size = batch_size
        if batch_size is None:
            seeds = checked_seeds(seed, 1)
        else:
            seeds = seed_per_row(seed, batch_size)
        fresh = np.random.SeedSequence().generate_state(len(seeds)).tolist()
        self._seeds = [
            new if own is None else own for own, new in zip(seeds, fresh, strict=True)
        ]
        # How many actions each row has taken; what is set here is where it goes on.
        self.steps: Array = np.zeros(len(seeds), np.int64)

    def action(self, step: int, row: int = 0, *, mask: Any = None) -> NestedArray:
        """Returns the action of a row in a step, both counted from 0.

        It is the same whenever it is asked for.

        Args:
            step: How many actions the row has taken before.
            row: The row of a batch.
            mask: Which choices are allowed, as for `sample_spec_nest`.
        """
        key = np.random.SeedSequence(self._seeds[row], spawn_key=(_BRANCH, step))
        return sample_spec_nest(self._spec, np.random.default_rng(key), mask=mask)

    def __call__(
        self,
        time_step: TimeStep,
        env_ids: Sequence[int] | Array | None = None,
        *,
        mask: Any = None,
    ) -> NestedArray:
        """Returns an action for each row of a time step, and counts it.

        Args:
            time_step: Where the rows stand.
            env_ids: Which rows of the batch these are, as `recv` returns them; `None`
                for all.
            mask: Which choices are allowed, with a row for each of these rows.
        """
        step_type = as_array(time_step.step_type)
        if self._batch_size is None:
            (own,) = self._masks(time_step, mask, 1)
            action = self.action(int(self.steps[0]), mask=own)
            self.steps = self.steps + (step_type != _LAST)
            return action
        rows = np.arange(self._batch_size) if env_ids is None else np.asarray(env_ids)
        check_env_ids(env_ids, rows, self._batch_size)
        if step_type.shape != rows.shape:
            raise ValueError(
                f"RandomPolicy was given a time step of shape {step_type.shape}, and "
                f"there are {rows.size} rows: give it batch_size, or env_ids for some."
            )
        masks = self._masks(time_step, mask, rows.size)
        actions = [
            self.action(int(self.steps[row]), row, mask=own)
            for row, own in zip(rows.tolist(), masks, strict=True)
        ]
        self.steps = self.steps.copy()
        self.steps[rows] += step_type != _LAST
        return nest.map_structure(lambda *leaves: np.stack(leaves), *actions)

    def _masks(self, time_step: TimeStep, mask: Any, rows: int) -> list[Any]:
        """Returns the mask of each row, given those of all."""
        if mask is None or self._batch_size is None:
            return [mask] * rows
        leaves = self._structure.flatten(mask)
        return [
            self._structure.unflatten([_of_row(leaf, row) for leaf in leaves])
            for row in range(rows)
        ]


def _of_row(mask: Any, row: int) -> Any:
    if isinstance(mask, list | tuple):  # one for each element of the spec
        return [np.asarray(own)[row] for own in mask]
    return None if mask is None else np.asarray(mask)[row]
