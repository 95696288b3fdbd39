"""`LeafChanges`: the base of wrappers that change each leaf of an observation alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from envkit import nest
from envkit.specs.array_spec import ArraySpec
from envkit.time_step import TimeStep
from envkit.types import Array, NestedSpec
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.fresh_nests import fresh_nest

__all__ = ["Change", "LeafChanges", "place"]

# Makes of a leaf, of one row or of all, what is seen in its place.
Change: TypeAlias = Callable[[Any], Array]


class LeafChanges(PyEnvironmentBaseWrapper):
    """Changes the leaves of observations one by one, each in its own way.

    A subclass calls `_prepare` in its constructor.
    """

    def _prepare(
        self, prepare: Callable[[ArraySpec, str], tuple[ArraySpec, Change]]
    ) -> None:
        """Lets `prepare` say of each leaf's spec and path what becomes of the leaf.

        It returns a spec and a function. Wrappers can be pickled if these can.
        """
        structure = nest.Structure(self._env.observation_spec())
        prepared = [
            prepare(spec, path)
            for spec, path in zip(structure.leaves, structure.paths, strict=True)
        ]
        self._structure = structure
        self._spec = structure.unflatten([spec for spec, _ in prepared])
        self._changes = [change for _, change in prepared]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of what is seen."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._structure.flatten(time_step.observation)
        changed = [
            change(leaf) for change, leaf in zip(self._changes, leaves, strict=True)
        ]
        return time_step._replace(observation=self._structure.unflatten(changed))


def place(path: str) -> str:
    """Says where in an observation a leaf is, as the end of a phrase.

    Example:
        >>> f"the observation{place('[0]')}", f"the observation{place('')}"
        ('the observation at [0]', 'the observation')
    """
    return f" at {path}" if path else ""
