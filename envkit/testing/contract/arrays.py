"""Promises about arrays: time steps and actions belong to the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.extend import foreign
from envkit.testing.contract.findings import Broken, broken, raised
from envkit.testing.contract.recording import (
    Rollout,
    Snapshot,
    expect_same_stream,
    explain_difference,
    first_difference,
    snapshot,
)
from envkit.testing.contract.trial import Move, Trial
from envkit.time_step import AutoReset, StepType
from envkit.types import Array, NestedArray
from envkit.wrappers.findings import CHANGED_ACTION, OVERWRITTEN

__all__ = [
    "expect_undamaged",
    "kept_results",
    "own_arrays",
    "released_actions",
    "scribble",
    "separate_arrays",
    "unchanged_actions",
]

# How many neighbours in memory an array is compared with: a ring buffer can return many
# interleaved views, and comparing all pairs takes too long.
_NEIGHBOURS = 16
# The effort that NumPy may spend on two interleaved views. `Any`, because NumPy's stubs
# accept only its own two constants.
_EFFORT: Any = 10_000


def kept_results(trial: Trial) -> None:
    """A returned time step never changes."""
    expect_same_stream(
        trial.main,
        _now(trial.main),
        problem="A time step was overwritten after it was returned, in",
        advice=OVERWRITTEN,
        labels=("returned", "now"),
    )


def _now(recording: Rollout) -> Rollout:
    """Records the results of a recording as they are now."""
    now = Rollout(None)
    for call, result in zip(recording.calls, recording.results, strict=True):
        now.add(call, result)
    return now


class _Span(NamedTuple):
    """A writeable array, and the first and last address of its memory."""

    low: int
    high: int
    array: Array
    call: int
    path: str


def separate_arrays(trial: Trial) -> None:
    """No two returned arrays share memory."""
    main = trial.main
    # Sorted, because the pair that came first is most helpful to a reader.
    pairs = sorted(_overlaps(main), key=lambda pair: (pair[1].call, pair[0].call))
    if pairs:
        raise _shared(main, *pairs[0])
    if trial.dims:
        _check_rows(main)


def _overlaps(recording: Rollout) -> Iterator[list[_Span]]:
    """Yields pairs of arrays that share memory, in the order of calls."""
    active: list[_Span] = []
    for span in sorted(_spans(recording), key=lambda span: (span.low, span.call)):
        active = [other for other in active if other.high > span.low][-_NEIGHBOURS:]
        for other in active:
            if _share(other.array, span.array):
                yield sorted([other, span], key=lambda span: (span.call, span.path))
        active.append(span)


def _spans(recording: Rollout) -> Iterator[_Span]:
    for index, result in enumerate(recording.results):
        for path, leaf in nest.flatten_with_paths(result):
            if isinstance(leaf, np.ndarray) and leaf.size and leaf.flags.writeable:
                yield _Span(*_bounds(leaf), leaf, index, path)


def _bounds(array: Array) -> tuple[int, int]:
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        reach = (size - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + array.itemsize


def _share(first: Array, second: Array) -> bool:
    try:
        return np.shares_memory(first, second, max_work=_EFFORT)
    except np.exceptions.TooHardError:
        return False  # No mistake interleaves two arrays in so complex a way.


def _shared(main: Rollout, first: _Span, second: _Span) -> Exception:
    # Another library's step types may be writeable constants.
    other = foreign(main.results[first.call])
    return broken(
        f"Two returned arrays share their memory: {first.path} of "
        f"{main.place(first.call)} and {second.path} of {main.place(second.call)}.",
        "Writing to one, to normalise it for instance, changes the other. Return a "
        "copy each time, or make the array read-only: array.setflags(write=False)."
        + (f" The time step is {other}." if other else ""),
        expected="arrays that belong to the caller alone",
        got=f"{first.path} and {second.path} in the same memory",
    )


def _check_rows(main: Rollout) -> None:
    for index, result in enumerate(main.results):
        for path, leaf in nest.flatten_with_paths(result):
            if not isinstance(leaf, np.ndarray) or not leaf.flags.writeable:
                continue
            if leaf.size and leaf.ndim and len(leaf) > 1 and _share(leaf[:1], leaf[1:]):
                raise broken(
                    f"The rows of {path} share their memory, in {main.place(index)}.",
                    "Writing to one row changes the others: copy what broadcast_to "
                    "or as_strided returned.",
                    expected="one place in memory for each row",
                    got=f"an array with the strides {leaf.strides}",
                )


def own_arrays(trial: Trial) -> None:
    """Writing into a returned array changes nothing later."""
    trial.need_repeatable()

    def write(move: Move) -> None:
        is_last = np.asarray(move.result.step_type) == StepType.LAST
        if trial.order is not AutoReset.NEXT_STEP and np.any(is_last):
            return  # the time steps of the other rows are returned again
        # Not the step type, which PyEnvironment reads to find the end of an episode.
        for part in move.result[1:]:
            scribble(part)

    expect_undamaged(
        trial,
        write,
        "Writing into arrays that were returned",
        "A returned array belongs to the caller. Return a copy of what the environment "
        "goes on working with: self._state.copy().",
    )


def expect_undamaged(
    trial: Trial,
    write: Callable[[Move], None],
    what: str,
    advice: str,
    *,
    env: Any = None,
) -> Rollout:
    """Returns a recording in which `write` is called after each move.

    Raises `Broken` unless its stream equals an undisturbed environment's. A new
    environment is played unless one is given.
    """
    try:
        written = trial.record(trial.new() if env is None else env, after=write)
    except Exception as error:
        raise Broken(
            f"{what} makes a later call fail.\n\n{raised(error)}\n\n{advice}"
        ) from error
    expect_same_stream(
        trial.reference,
        written,
        problem=f"{what} changes what comes later, in",
        advice=advice,
        labels=("untouched", "written to"),
    )
    return written


def scribble(value: NestedArray) -> None:
    """Changes every element of every array of a nest that can be written to."""
    for _, leaf in nest.flatten_with_paths(value):
        if not isinstance(leaf, np.ndarray) or not leaf.flags.writeable:
            continue
        if leaf.dtype.kind == "b":
            leaf[...] = ~leaf
        elif leaf.dtype.kind in "iufc":
            leaf[...] = np.where(leaf == 77, 78, 77).astype(leaf.dtype)
        elif leaf.dtype.kind == "U":
            leaf[...] = np.where(leaf == "?", "!", "?")
        elif leaf.dtype.kind == "S":
            leaf[...] = np.where(leaf == b"?", b"!", b"?")


def unchanged_actions(trial: Trial) -> None:
    """Actions keep the values they were given with."""
    usual = trial.actor()
    given: list[Snapshot] = []

    def act(time_step: Any, env: Any) -> NestedArray:
        action = usual(time_step, env)
        given.append(snapshot(action))
        return action

    def compare(move: Move) -> None:
        if move.call != "step()":
            return
        difference = first_difference(given[-1], snapshot(move.action))
        if difference is not None:
            path = nest.join("action", difference.path)
            raise explain_difference(
                f"step() changed the action it was given, in call {len(given)}.",
                difference._replace(path=path),
                CHANGED_ACTION,
                ("given", "after"),
            )

    trial.record(trial.new(), actor=act, after=compare)


def released_actions(trial: Trial) -> None:
    """Writing into an action after step() changes nothing."""
    trial.need_repeatable()

    def write(move: Move) -> None:
        if move.call == "step()":
            scribble(move.action)

    advice = (
        "The environment has kept the caller's array, into which the next action may "
        "be written. Keep a copy: np.array(action)."
    )
    what = "Writing into an action after step()"
    recording = expect_undamaged(trial, write, what, advice)
    expect_same_stream(
        recording,
        _now(recording),
        problem=f"{what} changes what step() returned, in",
        advice=advice,
        labels=("returned", "now"),
    )
