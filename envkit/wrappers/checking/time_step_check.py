"""`TimeStepCheck`: whether what an environment returns is what it has promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.bounds import within
from envkit.specs.validation import check_fits, describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array
from envkit.wrappers.checking.episode_book import EpisodeBook
from envkit.wrappers.checking.faults import fault, name_of, same_values, show, unlike

__all__ = ["TimeStepCheck"]

_FIRST, _MID, _LAST = (
    int(step_type) for step_type in (StepType.FIRST, StepType.MID, StepType.LAST)
)
_AUTO_RESET = "Pass handle_auto_reset=True to PyEnvironment.__init__, and it will."


class TimeStepCheck:
    """Looks at the time steps of one environment, single or batched.

    Attributes:
        structure: That of its time steps.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch()
        >>> check = TimeStepCheck(env, (), "Catch")
        >>> len(check.arrays("reset()", env.reset(), "This was the first reset()."))
        4
    """

    def __init__(self, env: Any, dims: tuple[int, ...], name: str) -> None:
        """Asks an environment for its specs."""
        self.structure = nest.Structure(env.time_step_spec())
        self._dims = dims
        self._name = name
        self._repeats_last = getattr(env, "repeats_last", False) is True
        self._of_part = {
            part: [
                index
                for index, path in enumerate(self.structure.paths)
                if path == part or path.startswith((f"{part}[", f"{part}."))
            ]
            for part in TimeStep._fields
        }

    def arrays(self, call: str, time_step: Any, since: str) -> list[Array]:
        """Returns the arrays of a time step, or raises unless it fits its spec."""
        source = f"{self._name}.{call}"
        if not hasattr(time_step, "step_type"):
            raise SpecError(
                f"{source} returned {describe(time_step)}, not a TimeStep. Build it "
                "with envkit.restart, transition, termination or truncation.\n\n"
                f"{since}"
            )
        try:
            leaves = self.structure.flatten(time_step)
        except SpecError:
            leaves = []
        if len(leaves) != len(self.structure.leaves) or not all(
            map(self._fits, leaves, self.structure.leaves)
        ):
            check_fits(
                time_step,
                self.structure.template,
                subject=f"{source} returned a time step that",
                outer_dims=self._dims,
                context=since,
            )
        arrays = [np.asarray(leaf) for leaf in leaves]
        self._check_known(source, arrays[0], since)
        return arrays

    def _fits(self, leaf: Any, spec: ArraySpec) -> bool:
        if not self._dims:
            return spec.check_array(leaf)
        return (
            isinstance(leaf, np.ndarray)
            and leaf.shape == self._dims + spec.shape
            and leaf.dtype == spec.dtype
            and (
                not isinstance(spec, BoundedArraySpec)
                or within(leaf, spec.minimum, spec.maximum)
            )
        )

    def _check_known(self, source: str, step_types: Array, since: str) -> None:
        unknown = (step_types < _FIRST) | (step_types > _LAST)
        for row in _rows_of(unknown):
            got = str(step_types.reshape(-1)[row])
            raise fault(
                f"{source} returned the step type {got}{self._in(row)}.",
                [("expected", "FIRST (0), MID (1) or LAST (2)"), ("got", got)],
                "Build time steps with envkit.restart, transition, termination or "
                f"truncation, which set the step type. {since}",
            )

    def disorder(
        self, call: str, now: Array, book: EpisodeBook, begins: Array, steps: Array
    ) -> SpecError | None:
        """Returns what is wrong with the order of step types, if something is.

        Args:
            call: What was called.
            now: The step types it returned.
            book: Where the rows stood before.
            begins: Which rows were to begin an episode.
            steps: Which rows took a step.
        """
        before = book.step_types
        source = f"{self._name}.{call}"
        for row in _rows_of(begins & (now != _FIRST)):
            got = name_of(now.reshape(-1)[row])
            return fault(
                f"{source} returned {got}{self._in(row)}.",
                [("expected", "FIRST"), ("got", got)],
                "An episode begins with envkit.restart(observation). " + book.since(),
            )
        ended = steps & (before == _LAST)
        repeated = (now == _LAST) & self._repeats_last
        for row in _rows_of(ended & (now != _FIRST) & ~repeated):
            got = name_of(now.reshape(-1)[row])
            return fault(
                f"{source} after LAST returned {got}, after {book.place(row)}.",
                [("expected", "FIRST"), ("got", got)],
                "The step after LAST begins the next episode and ignores its action. "
                f"{_AUTO_RESET}",
            )
        for row in _rows_of(steps & ~ended & (now == _FIRST)):
            was = name_of(before.reshape(-1)[row])
            return fault(
                f"{source} went from {was} to FIRST, after {book.place(row)}.",
                [("expected", "MID or LAST"), ("got", "FIRST")],
                _why_too_early(row, ended),
            )
        return None

    def check_held(
        self, call: str, arrays: list[Array], before: list[Array], held: Array
    ) -> None:
        """Raises if rows have changed that were to stay as they are."""
        rows = held.nonzero()[0]
        for path, now, then in zip(self.structure.paths, arrays, before, strict=True):
            if not same_values(then[rows], now[rows]):
                row = next(row for row in rows if not same_values(then[row], now[row]))
                was, got = unlike(then[row], now[row])
                raise fault(
                    f"{self._name}.{call} changed row {row}, which was to stay.",
                    [("before", f"{path} = {was}"), ("after", f"{path} = {got}")],
                    "Let _reset_rows(mask) begin an episode in the masked rows only, "
                    "and _step_rows(action, stepping, beginning) leave all others "
                    "where they are.",
                )

    def check_values(
        self, call: str, arrays: list[Array], book: EpisodeBook, moved: Array
    ) -> None:
        """Raises if a `FIRST`, a discount or a reward holds what it must not."""
        source = f"{self._name}.{call}"
        first = moved & (arrays[0] == _FIRST)
        self._check_first(source, arrays, book, first, "reward", 0, _NOTHING_EARNED)
        self._check_first(source, arrays, book, first, "discount", 1, _RESTART)
        for path, array in self._leaves("discount", arrays):
            outside = ~((array >= 0) & (array <= 1))
            for row in _rows_of(moved & self._per_row(outside)):
                raise fault(
                    f"{source} returned a discount that is not between 0 and 1, in "
                    f"{book.place(row)}.",
                    [
                        ("expected", f"0 <= {path} <= 1"),
                        ("got", f"{path} = {self._shown(array, row)}"),
                    ],
                    "It is 0 after a termination, and what later rewards are worth "
                    "otherwise.",
                )
        for path, array in self._leaves("reward", arrays):
            for row in _rows_of(moved & self._per_row(_is_nan(array))):
                raise fault(
                    f"{source} returned a reward that is NaN, in {book.place(row)}.",
                    [
                        ("expected", "a number"),
                        ("got", f"{path} = {self._shown(array, row)}"),
                    ],
                    "Every sum that it enters becomes NaN. Look for a division by 0, "
                    "and for a root or logarithm of what is negative.",
                )

    def _check_first(
        self,
        source: str,
        arrays: list[Array],
        book: EpisodeBook,
        first: Array,
        part: str,
        value: int,
        advice: str,
    ) -> None:
        for path, array in self._leaves(part, arrays):
            for row in _rows_of(first & self._per_row(array != value)):
                raise fault(
                    f"{source} returned a FIRST with another {part} than {value}, in "
                    f"{book.place(row)}.",
                    [
                        ("expected", f"{path} = {value}"),
                        ("got", f"{path} = {self._shown(array, row)}"),
                    ],
                    advice,
                )

    def doubts(
        self, call: str, arrays: list[Array], book: EpisodeBook, moved: Array
    ) -> Iterator[tuple[str, str]]:
        """Yields what is doubtful about a time step: a key for it, and the text."""
        source = f"{self._name}.{call}"
        mid = moved & (arrays[0] == _MID)
        for path, array in self._leaves("discount", arrays):
            for row in _rows_of(mid & self._per_row(array == 0))[:1]:
                yield (
                    f"zero {path}",
                    f"{source} returned a MID with {path} 0, in {book.place(row)}: "
                    "nothing after it counts, and yet the episode goes on. Where it "
                    "ends for good, return envkit.termination(observation, reward).",
                )
        for part in ("reward", "observation"):
            for path, array in self._leaves(part, arrays):
                for row in _rows_of(moved & self._per_row(~_is_finite(array)))[:1]:
                    yield (
                        f"not finite {path}",
                        f"{source} returned {path} = {self._shown(array, row)}, in "
                        f"{book.place(row)}: not all of it is finite, and what a "
                        "learner computes from that is not either. If it is meant, "
                        "replace it by a large number; if it cannot be, give the spec "
                        "bounds.",
                    )

    def _leaves(self, part: str, arrays: list[Array]) -> Iterator[tuple[str, Array]]:
        for index in self._of_part[part]:
            yield self.structure.paths[index], arrays[index]

    def _per_row(self, where: Array) -> Array:
        """Says for each row whether any of its elements is meant."""
        where = np.asarray(where)
        return np.asarray(where.any(axis=tuple(range(len(self._dims), where.ndim))))

    def _in(self, row: int) -> str:
        return f" in row {row}" if self._dims else ""

    def _shown(self, array: Array, row: int) -> str:
        return show(array[row] if self._dims else array)


_NOTHING_EARNED = (
    "Nothing was done yet that could earn something: the reward of the last action "
    "belongs to LAST. envkit.restart(observation) sets it to 0."
)
_RESTART = "envkit.restart(observation) sets it to 1."


def _rows_of(mask: Any) -> list[int]:
    """Returns the rows where a mask is true; a single environment is row 0."""
    rows: list[int] = np.flatnonzero(mask).tolist()
    return rows


def _is_nan(array: Array) -> Array:
    if array.dtype.kind not in "fc":
        return np.zeros(array.shape, bool)
    return np.asarray(np.isnan(array))


def _is_finite(array: Array) -> Array:
    if array.dtype.kind not in "fc":
        return np.ones(array.shape, bool)
    return np.asarray(np.isfinite(array))


def _why_too_early(row: int, ended: Array) -> str:
    others = _rows_of(ended)
    if others:
        return (
            f"Row {others[0]} had ended, and row {row} had not: begin an episode only "
            "in the rows that ended."
        )
    return (
        "An episode ends with LAST, so that a learner sees its end; return "
        "envkit.termination or envkit.truncation before the next FIRST."
    )
