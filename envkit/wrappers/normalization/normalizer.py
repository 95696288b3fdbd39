"""`Normalizer`: what the wrappers that learn what is normal have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits, describe, flatten_as
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedSpec
from envkit.wording import counted, listed
from envkit.wrappers.arguments import checked_flag, is_number
from envkit.wrappers.base import PyEnvironmentBaseWrapper, WrapperState
from envkit.wrappers.normalization.running_statistics import RunningStatistics

__all__ = ["NormalizedLeaf", "Normalizer"]

_LAST = StepType.LAST
_LARGEST = float(np.finfo(np.float32).max)


class NormalizedLeaf(NamedTuple):
    """A leaf that is normalised: its place among all, its shape with that of rows."""

    place: int
    shape: tuple[int, ...]
    statistics: RunningStatistics


class Normalizer(PyEnvironmentBaseWrapper):
    """What both wrappers have in common: statistics, and whether they learn."""

    _kept: ClassVar[tuple[str, ...]] = ("_over",)
    # What is normalised: "observation" or "reward".
    _part: ClassVar[str]

    def __init__(
        self,
        env: Any,
        *,
        epsilon: float,
        clip: float | None,
        statistics: Any,
        frozen: bool,
        integers: bool | None,
        handle_auto_reset: bool,
    ) -> None:
        super().__init__(env, handle_auto_reset)
        if not is_number(epsilon) or epsilon <= 0.0:
            raise ValueError(f"epsilon is {epsilon!r}; it must be a positive number.")
        if clip is not None and not (is_number(clip) and 0.0 < clip <= _LARGEST):
            raise ValueError(
                f"clip is {clip!r}; it must be a positive number, or None for no limit."
            )
        self._epsilon, self._clip = float(epsilon), clip
        self._frozen = checked_flag("frozen", frozen)
        self._given: NestedSpec = getattr(env, f"{self._part}_spec")()
        self._structure = nest.Structure(self._given)
        if integers is None:
            integers = all(spec.dtype.kind != "f" for spec in self._structure.leaves)
        if statistics is None:
            kinds = "iuf" if checked_flag("integers", integers) else "f"
            self._chosen = [
                RunningStatistics(spec.shape) if spec.dtype.kind in kinds else None
                for spec in self._structure.leaves
            ]
        else:
            self._chosen = self._checked_statistics(statistics)
        self._leaves = [
            NormalizedLeaf(place, (*self._dims, *spec.shape), one)
            for place, (spec, one) in enumerate(
                zip(self._structure.leaves, self._chosen, strict=True)
            )
            if one is not None
        ]
        if not self._leaves:
            raise ValueError(self._nothing_to_do(statistics is None))
        self._spec = self._structure.unflatten(list(self._specs()))
        # In which rows the current time step is a LAST, if another may follow it.
        self._pads = self.repeats_last
        self._over = np.zeros(self._dims, bool)

    @property
    def epsilon(self) -> float:
        """What is added to a variance before something is divided by its root."""
        return self._epsilon

    @property
    def clip(self) -> float | None:
        """The largest normalised value, in both directions; `None` for no limit."""
        return self._clip

    @property
    def statistics(self) -> Any:
        """The `RunningStatistics` behind it all: to be saved, shared or looked at.

        Where there is a nest, this is one, too, with `None` for each leaf that is left
        as it is.
        """
        return self._structure.unflatten(self._chosen)

    @property
    def adapts(self) -> bool:
        """Whether what it shows depends on all that it has shown before."""
        return not self._frozen or super().adapts

    @property
    def frozen(self) -> bool:
        """Whether the statistics are used as they are, and nothing is learnt."""
        return self._frozen

    def freeze(self) -> None:
        """Stops learning here; others that share the statistics go on."""
        self._frozen = True

    def unfreeze(self) -> None:
        """Goes on learning."""
        self._frozen = False

    def _specs(self) -> Iterator[ArraySpec]:
        for spec, statistics in zip(self._structure.leaves, self._chosen, strict=True):
            if statistics is None:
                yield spec
            elif self._clip is None:
                yield ArraySpec(spec.shape, np.float32, spec.name)
            else:
                yield BoundedArraySpec(
                    spec.shape, np.float32, -self._clip, self._clip, spec.name
                )

    def _telling(self, step_type: Any, rows: Array | None) -> Array | None:
        """Returns which rows show something new; `None` if all do.

        A `LAST` after a `LAST` does not: it pads an episode that is over.
        """
        if not self._pads:
            return rows
        last = np.asarray(step_type) == _LAST
        padded = self._over & last
        self._over = last if rows is None else np.where(rows, last, self._over)
        if not padded.any():
            return rows
        return np.asarray(~padded if rows is None else rows & ~padded)

    def _learn(self, leaf: NormalizedLeaf, values: Array) -> None:
        try:
            leaf.statistics.update(values)
        except SpecError as error:
            path = nest.join(self._part, self._structure.paths[leaf.place])
            raise SpecError(
                f"{type(self).__name__} cannot learn from {path} as "
                f"{type(self._env).__name__} returned it. {error}"
            ) from error

    def _flat(self, time_step: TimeStep) -> list[Any]:
        """Returns the leaves of the part, having looked at what is about to count."""
        value = getattr(time_step, self._part)
        leaves = self._structure.flatten(value)
        if any(np.shape(leaves[place]) != shape for place, shape, _ in self._leaves):
            check_fits(
                value,
                self._given,
                subject=f"{type(self._env).__name__} returned a time step that",
                root=self._part,
                outer_dims=self._dims,
            )
        return leaves

    def _checked_statistics(self, given: Any) -> list[RunningStatistics | None]:
        name = type(self).__name__
        leaves = flatten_as(
            self._structure,
            given,
            subject=f"The argument statistics of {name}",
            root="statistics",
        )
        for path, spec, one in zip(
            self._structure.paths, self._structure.leaves, leaves, strict=True
        ):
            place = nest.join("statistics", path)
            if one is None:
                continue
            if not isinstance(one, RunningStatistics):
                raise TypeError(
                    f"{name} takes RunningStatistics, and {place} is {describe(one)}. "
                    "For a nest pass a nest of them, with None for each leaf that is "
                    "to stay as it is."
                )
            if one.shape != spec.shape or spec.dtype.kind not in "iuf":
                raise ValueError(
                    f"{place} does not go with what it is to normalise: it is {one}, "
                    f"and the {self._part} is {spec!r}. Numbers are normalised, with "
                    f"RunningStatistics({spec.shape})."
                )
        return leaves

    def _nothing_to_do(self, chose: bool) -> str:
        wrapped = type(self._env).__name__
        text = f"{type(self).__name__} finds nothing to normalise in {wrapped}: "
        if not chose:
            return f"{text}statistics has None for every leaf."
        dtypes = listed(dict.fromkeys(str(s.dtype) for s in self._structure.leaves))
        return f"{text}its {self._part} has the dtypes {dtypes}."

    def _save(self) -> dict[str, Any]:
        return {
            **super()._save(),
            "frozen": self._frozen,
            "statistics": [leaf.statistics.get_state() for leaf in self._leaves],
        }

    def _set_state(self, state: Any) -> None:
        # Before anything changes, in the environment or here.
        if isinstance(state, WrapperState) and state.wrapper == type(self).__qualname__:
            given = state.own["statistics"]
            if len(given) != len(self._leaves):
                raise ValueError(
                    f"{type(self).__name__}.set_state() was given the state of a "
                    f"wrapper that normalises {counted(len(given), 'leaf', 'leaves')}; "
                    f"here {len(self._leaves)} of the {self._part} are normalised."
                )
            for leaf, one in zip(self._leaves, given, strict=True):
                leaf.statistics.check_state(one)
        super()._set_state(state)

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        self._frozen = saved["frozen"]
        for leaf, state in zip(self._leaves, saved["statistics"], strict=True):
            leaf.statistics.set_state(state)  # in place: others may share it
