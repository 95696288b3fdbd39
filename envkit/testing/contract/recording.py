"""What an environment returned, kept as it was, and how two such records differ."""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.autoreset import AutoReset
from envkit.errors import SpecError
from envkit.testing.contract.findings import Broken, broken, is_short, show
from envkit.time_step import StepType
from envkit.types import Array

__all__ = [
    "BEGINS",
    "Difference",
    "Recording",
    "Snapshot",
    "expect_same_stream",
    "explain_difference",
    "first_difference",
    "same_bits",
    "snapshot",
]

Snapshot: TypeAlias = tuple[tuple[str, Array], ...]

# With which call the episodes after a `LAST` begin, if not with the next step.
BEGINS = {
    AutoReset.SAME_STEP: "current_time_step()",
    AutoReset.DISABLED: "reset(mask)",
}

_ABSENT = "nothing"


class Difference(NamedTuple):
    """The first place where two snapshots differ.

    Attributes:
        path: The place, such as `observation['camera']`.
        expected: What the first has there, as text.
        got: What the second has there, as text.
        element: Which element differs first; `None` if more than elements differ.
        detail: A sentence about the elements; empty where it would say nothing new.
    """

    path: str
    expected: str
    got: str
    element: tuple[int, ...] | None = None
    detail: str = ""


def snapshot(value: Any) -> Snapshot:
    """Copies every leaf of a nest, so that nobody can change it any more."""
    return tuple((path, _copy(leaf)) for path, leaf in nest.flatten_with_paths(value))


def _copy(leaf: Any) -> Array:
    array = np.array(leaf)
    return copy.deepcopy(array) if array.dtype.hasobject else array


def first_difference(expected: Snapshot, got: Snapshot) -> Difference | None:
    """Compares two snapshots bit by bit, so that NaN equals NaN; `None` if equal."""
    for ours, theirs in itertools.zip_longest(expected, got):
        if ours is None or theirs is None or ours[0] != theirs[0]:
            path = (ours or theirs)[0]
            return Difference(
                path,
                show(ours[1]) if ours else _ABSENT,
                show(theirs[1]) if theirs and theirs[0] == path else _ABSENT,
            )
        if not same_bits(ours[1], theirs[1]):
            return _difference(ours[0], ours[1], theirs[1])
    return None


def same_bits(first: Array, second: Array) -> bool:
    """Says whether two arrays are equal; a NaN equals itself."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.hasobject:
        return all(map(_same_object, first.flat, second.flat))
    return first.tobytes() == second.tobytes()


def _same_object(first: Any, second: Any) -> bool:
    # NaN differs from itself, and so does an object from its copy unless its class
    # says what equal means; containers with arrays in them cannot say.
    with contextlib.suppress(ValueError):
        if bool(np.all(first == second)):
            return True
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except Exception:
        return False


def _difference(path: str, first: Array, second: Array) -> Difference:
    texts = show(first), show(second)
    if first.shape != second.shape or first.dtype != second.dtype:
        return Difference(path, *texts)
    differs = np.array(
        [
            not same_bits(*pair)
            for pair in zip(_elements(first), _elements(second), strict=True)
        ]
    ).reshape(first.shape)
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    if is_short(first):
        return Difference(path, *texts, index)
    count = int(differs.sum())
    verb = "differs" if count == 1 else "differ"
    return Difference(
        path,
        *texts,
        index,
        f"{count} of {first.size} elements {verb}, the first at index {index}: "
        f"{first[index]!s:.40} and {second[index]!s:.40}.",
    )


def _elements(array: Array) -> list[Array]:
    flat = array.reshape(-1)
    return [flat[i : i + 1] for i in range(flat.size)]


class Recording:
    """The answers of one environment in order, each as it was when it came.

    Attributes:
        calls: What was called: "reset()", "step()", or what begins the episodes of
            rows that have ended, as `BEGINS` says.
        results: What was returned, which the environment may have changed since.
        copies: What it was then.
        error: The exception that ended the recording, if one did.
    """

    def __init__(self, rows: int | None) -> None:
        """Begins an empty recording of a batch with so many rows, or of no batch."""
        self._rows = rows
        self._structure: nest.Structure | None = None
        self.calls: list[str] = []
        self.results: list[Any] = []
        self.copies: list[Snapshot] = []
        self.error: Exception | None = None

    def __len__(self) -> int:
        return len(self.results)

    def add(self, call: str, result: Any) -> None:
        """Keeps one answer."""
        copied = self._copied(result)
        self.calls.append(call)
        self.results.append(result)
        self.copies.append(copied)

    def _copied(self, result: Any) -> Snapshot:
        """Does what `snapshot` does, faster from the second time on."""
        if self._structure is None:
            self._structure = nest.Structure(result)
        structure = self._structure
        try:
            leaves = structure.flatten(result)
        except SpecError:
            return snapshot(result)
        return tuple(zip(structure.paths, map(_copy, leaves), strict=True))

    def part(self, index: int, name: str) -> Snapshot:
        """Returns the leaves of one field of a time step."""
        return tuple(
            (path, leaf)
            for path, leaf in self.copies[index]
            if path == name or path.startswith((f"{name}[", f"{name}."))
        )

    def step_types(self, index: int) -> Array:
        """Returns the step type of every row; of the only one, if it is no batch."""
        return self.part(index, "step_type")[0][1].reshape(-1)

    def moved(self, index: int) -> Array:
        """Returns a mask of the rows that have moved with a call, but the first one."""
        before = self.step_types(index - 1)
        if self.calls[index] in BEGINS.values():
            return np.equal(before, StepType.LAST)
        return np.ones(before.shape, bool)

    def row_of(self, difference: Difference) -> int:
        """Returns the row that a difference is in; 0 where there are none."""
        if self._rows is None or not difference.element:
            return 0
        return min(difference.element[0], self._rows - 1)

    def place(self, index: int, row: int | None = None) -> str:
        """Says where in which episode an answer stands; `FIRST` is an episode's step 0.

        A recording that did not begin with a reset counts its own steps, from 1. For a
        batch as a whole there are no episodes, and its calls are counted.
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
    difference: Difference,
    advice: str,
    labels: tuple[str, str] = ("expected", "got"),
) -> Broken:
    """Builds the `Broken` for two values that should be equal."""
    at = f"{difference.path} = " if difference.path else ""
    return broken(
        problem,
        [
            (labels[0], f"{at}{difference.expected}"),
            (labels[1], f"{at}{difference.got}"),
        ],
        " ".join(filter(None, [difference.detail, advice])),
    )


def expect_same_stream(
    expected: Recording,
    got: Recording,
    *,
    problem: str,
    advice: str,
    labels: tuple[str, str] = ("expected", "got"),
) -> None:
    """Raises `Broken` at the first answer in which two recordings differ.

    `problem` is a clause that ends before the place: "the streams part in".
    """
    for index, (ours, theirs) in enumerate(
        zip(expected.copies, got.copies, strict=True)
    ):
        difference = first_difference(ours, theirs)
        if difference is not None:
            place = expected.place(index, expected.row_of(difference))
            raise explain_difference(f"{problem} {place}.", difference, advice, labels)
