"""Records what an environment returned, and finds differences: `Rollout`."""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.testing.contract.findings import Broken, broken
from envkit.time_step import AutoReset, StepType
from envkit.types import Array
from envkit.wrappers.findings import is_short, show

__all__ = [
    "BEGINS",
    "Rollout",
    "Snapshot",
    "SnapshotDifference",
    "expect_same",
    "expect_same_stream",
    "explain_difference",
    "first_difference",
    "row_of",
    "same_bits",
    "snapshot",
]

Snapshot: TypeAlias = tuple[tuple[str, Array], ...]

# The call that begins the episode after a `LAST`, if not the next step.
BEGINS = {
    AutoReset.SAME_STEP: "current_time_step()",
    AutoReset.DISABLED: "reset(mask)",
}

_ABSENT = "nothing"


class SnapshotDifference(NamedTuple):
    """Describes the first difference between two snapshots.

    Attributes:
        path: The path, such as `observation['camera']`.
        expected: The value in the first snapshot, as text.
        got: The value in the second snapshot, as text.
        element: The index of the first different element; `None` if shapes or dtypes
            differ.
        detail: A sentence about the elements; empty if the texts show them all.
    """

    path: str
    expected: str
    got: str
    element: tuple[int, ...] | None = None
    detail: str = ""


def snapshot(value: Any) -> Snapshot:
    """Copies every leaf of a nest, so that later writes do not change it."""
    return tuple((path, _copy(leaf)) for path, leaf in nest.flatten_with_paths(value))


def row_of(copied: Snapshot, row: int) -> Snapshot:
    """Returns one row of a snapshot of a batch."""
    return tuple((path, leaf[row, ...]) for path, leaf in copied)


def _copy(leaf: Any) -> Array:
    array = np.array(leaf)
    return copy.deepcopy(array) if array.dtype.hasobject else array


def first_difference(expected: Snapshot, got: Snapshot) -> SnapshotDifference | None:
    """Returns the first difference between two snapshots in any bit; NaNs are equal."""
    for ours, theirs in itertools.zip_longest(expected, got):
        if ours is None or theirs is None or ours[0] != theirs[0]:
            path = (ours or theirs)[0]
            return SnapshotDifference(
                path,
                show(ours[1]) if ours else _ABSENT,
                show(theirs[1]) if theirs and theirs[0] == path else _ABSENT,
            )
        if not same_bits(ours[1], theirs[1]):
            return _difference(ours[0], ours[1], theirs[1])
    return None


def same_bits(first: Array, second: Array) -> bool:
    """Returns True if two arrays are equal; NaN equals NaN."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.hasobject:
        return all(map(_same_object, first.flat, second.flat))
    return first.tobytes() == second.tobytes()


def _same_object(first: Any, second: Any) -> bool:
    # Pickles are compared too, because NaN differs from itself, an object differs from
    # its copy unless its class defines `==`, and containers of arrays raise.
    with contextlib.suppress(ValueError):
        if bool(np.all(first == second)):
            return True
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except Exception:
        return False


def _difference(path: str, first: Array, second: Array) -> SnapshotDifference:
    texts = show(first), show(second)
    if first.shape != second.shape or first.dtype != second.dtype:
        return SnapshotDifference(path, *texts)
    # Arrays of one element each, because objects and NaN need `same_bits`.
    pairs = zip(first.reshape(-1, 1), second.reshape(-1, 1), strict=True)
    differs = np.array([not same_bits(*pair) for pair in pairs]).reshape(first.shape)
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    if is_short(first):
        return SnapshotDifference(path, *texts, index)
    count = int(differs.sum())
    verb = "differs" if count == 1 else "differ"
    return SnapshotDifference(
        path,
        *texts,
        index,
        f"{count} of {first.size} elements {verb}, the first at index {index}: "
        f"{first[index]!s:.40} and {second[index]!s:.40}.",
    )


class Rollout:
    """Keeps the time steps of one environment in order, with a copy of each.

    Attributes:
        calls: The calls: "reset()", "step()", or the call in `BEGINS` that begins the
            episodes of rows that have ended.
        results: The returned values, which the environment may have changed since.
        copies: Copies made right after the return.
        actions: Copies of the actions of a user's function, one per call; empty without
            one.
        error: The exception that ended the recording, if one did.
    """

    def __init__(self, rows: int | None) -> None:
        self._rows = rows
        self._structure: nest.Structure | None = None
        self.calls: list[str] = []
        self.results: list[Any] = []
        self.copies: list[Snapshot] = []
        self.actions: list[Snapshot] = []
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self.results)

    def add(self, call: str, result: Any) -> None:
        """Records one returned value."""
        copied = self._copied(result)
        self.calls.append(call)
        self.results.append(result)
        self.copies.append(copied)

    def _copied(self, result: Any) -> Snapshot:
        """Copies a value as `snapshot` does, faster from the second time on."""
        if self._structure is None:
            self._structure = nest.Structure(result)
        structure = self._structure
        try:
            leaves = structure.flatten(result)
        except SpecError:
            return snapshot(result)
        return tuple(zip(structure.paths, map(_copy, leaves), strict=True))

    def equals(self, other: Rollout) -> bool:
        """Returns True if another recording has the same time steps, bit for bit."""
        pairs = zip(self.copies, other.copies, strict=True)
        return all(first_difference(*pair) is None for pair in pairs)

    def part(self, index: int, name: str) -> Snapshot:
        """Returns the leaves of one field of a time step."""
        return tuple(
            (path, leaf)
            for path, leaf in self.copies[index]
            if path == name or path.startswith((f"{name}[", f"{name}."))
        )

    def step_types(self, index: int) -> Array:
        """Returns the step type of every row; a single environment has one."""
        return self.part(index, "step_type")[0][1].reshape(-1)

    def moved(self, index: int) -> Array:
        """Returns a mask of the rows that moved in a call other than the first."""
        before = self.step_types(index - 1)
        if self.calls[index] in BEGINS.values():
            return np.equal(before, StepType.LAST)
        return np.ones(before.shape, bool)

    def row_of(self, difference: SnapshotDifference) -> int:
        """Returns the row of a difference; 0 for a single environment."""
        if self._rows is None or not difference.element:
            return 0
        return min(difference.element[0], self._rows - 1)

    def place(self, index: int, row: int | None = None) -> str:
        """Names the position of a time step: which step of which episode.

        The `FIRST` of an episode is its step 0. A recording that did not begin with a
        reset counts its own steps, from 1. A batch as a whole has no episodes, so its
        calls are counted.
        """
        if self._rows is not None and row is None:
            return f"call {index + 1}"
        row = row or 0
        if self.calls[0] != "reset()":
            at = "" if self._rows is None else f"row {row}, "
            return f"{at}step {index + 1} from there"
        episode, step = 1, 0
        for earlier in range(1, index + 1):
            if not self.moved(earlier)[row]:
                continue
            if self.step_types(earlier)[row] == 0:
                episode, step = episode + 1, 0
            else:
                step += 1
        if self._rows is None:
            return f"step {step} of episode {episode}"
        return f"row {row}, step {step} of its episode {episode}"


def explain_difference(
    problem: str,
    difference: SnapshotDifference,
    advice: str,
    labels: tuple[str, str] = ("expected", "got"),
) -> Broken:
    """Builds the `Broken` for two values that should be equal."""
    at = f"{difference.path} = " if difference.path else ""
    facts = f"{at}{difference.expected}", f"{at}{difference.got}"
    advice = f"{difference.detail} {advice}".lstrip()
    return broken(problem, advice, **dict(zip(labels, facts, strict=True)))


def expect_same(
    expected: Snapshot,
    got: Snapshot,
    problem: str,
    advice: str,
    labels: tuple[str, str] = ("expected", "got"),
) -> None:
    """Raises `Broken` if two snapshots differ."""
    difference = first_difference(expected, got)
    if difference is not None:
        raise explain_difference(problem, difference, advice, labels)


def expect_same_stream(
    expected: Rollout,
    got: Rollout,
    *,
    problem: str,
    advice: str,
    labels: tuple[str, str] = ("expected", "got"),
    same_actions: bool = True,
) -> None:
    """Raises `Broken` at the first time step in which two recordings differ.

    `problem` is a clause that ends before the position: "the streams part in". Without
    `same_actions` the actions differ on purpose. Otherwise the actions of a user's
    function are compared first, because an environment is not to blame for other
    actions.
    """
    for index, (ours, theirs) in enumerate(
        zip(expected.copies, got.copies, strict=True)
    ):
        difference = first_difference(ours, theirs)
        if difference is not None:
            if same_actions:
                _expect_same_actions(expected, got, index, labels)
            place = expected.place(index, expected.row_of(difference))
            raise explain_difference(f"{problem} {place}.", difference, advice, labels)


def _expect_same_actions(
    expected: Rollout, got: Rollout, last: int, labels: tuple[str, str]
) -> None:
    """Raises `Broken` if a user's function chose different actions before a call."""
    pairs = list(zip(expected.actions, got.actions, strict=True))[: last + 1]
    for index, (ours, theirs) in enumerate(pairs):
        difference = first_difference(ours, theirs)
        if difference is not None:
            raise explain_difference(
                f"action_fn returned other actions after equal time steps, first for "
                f"{expected.place(index)}.",
                difference._replace(path=nest.join("action", difference.path)),
                "So the environment cannot be compared. Let the actions depend on the "
                "time step and the generator that action_fn is given alone.",
                labels,
            )
