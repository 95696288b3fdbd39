"""Tests of check_backend: it passes what is right and names what is wrong."""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from envkit.parallel.backends.base import Exited, Raised, Replied, Started
from envkit.parallel.backends.inline import InlineBackend
from envkit.parallel.messages import ExitReport, RemoteFailure
from envkit.testing import CheckFailed
from tests.parallel.contract.check_backend import CHECKS, check_backend
from tests.parallel.fake_backend import FakeBackend

NAMES = [check.name for check in CHECKS]


class Changed(InlineBackend):
    """An `InlineBackend` that passes every new event through `change`."""

    def __init__(self):
        super().__init__()
        self._shown = deque()

    def wait_events(self, timeout, owing=-1):
        fresh = super().wait_events(timeout, owing)
        while fresh:
            self._shown.extend(self.change(fresh.popleft()))
        return self._shown

    def change(self, event):
        return [event]


class MarkedTooEarly(InlineBackend):
    """Marks rows as answered before they run."""

    def __init__(self):
        super().__init__()
        self._later = []

    def dispatch(self, rows):
        rows = np.arange(self._slab.layout.rows) if rows is None else rows
        rows = rows[self._slab.owing_rows()[rows]]
        self._slab.commit(rows)
        self._later.append(rows)

    def wait_events(self, timeout, owing=-1):
        for rows in self._later:
            self._slab._answered[rows] -= 2
            super().dispatch(rows)
        self._later = []
        return super().wait_events(timeout, owing)


class RunsTwice(InlineBackend):
    def dispatch(self, rows):
        for again in (False, True):
            if again:
                self._slab._answered[...] -= 2
            super().dispatch(rows)


class RunsAgain(InlineBackend):
    """Runs what is dispatched once more after it has answered."""

    def dispatch(self, rows):
        idle = ~self._slab.owing_rows()
        if rows is not None and idle[rows].all():
            self._slab.request(rows, self._slab.requested[rows])
        super().dispatch(rows)


class NeverRuns(InlineBackend):
    def dispatch(self, rows):
        pass


class LastRowLost(InlineBackend):
    def dispatch(self, rows):
        everyone = np.arange(self._slab.layout.rows)
        super().dispatch((everyone if rows is None else rows)[:-1])


class WrongRow(InlineBackend):
    """Writes the time step of one row where another's belongs."""

    def dispatch(self, rows):
        super().dispatch(rows)
        for array in self._slab._steps:
            array[:] = np.roll(array, 1, axis=1)


class FailuresLost(Changed):
    def change(self, event):
        return [] if isinstance(event, Raised) else [event]


class FailuresAnswered(Changed):
    def change(self, event):
        if isinstance(event, Raised):
            rows = list(event.rows)
            self._slab.commit(rows)
            return []
        return [event]


class FailureWithoutException(Changed):
    def change(self, event):
        if isinstance(event, Raised):
            return [event._replace(failure=replace(event.failure, pickled=None))]
        return [event]


class OtherNumber(Changed):
    def change(self, event):
        if isinstance(event, Replied):
            wrong = replace(event.reply, number=event.reply.number + 1)
            return [Replied(event.worker, wrong)]
        return [event]


class ResultsReversed(Changed):
    def change(self, event):
        if isinstance(event, Replied):
            results = event.reply.results[::-1]
            return [Replied(event.worker, replace(event.reply, results=results))]
        return [event]


class NoHello(Changed):
    def change(self, event):
        if isinstance(event, Started) and isinstance(event.hello, RemoteFailure):
            return [Exited(event.worker, ExitReport(event.worker, 1))]
        return [event]


class EventsDropped(Changed):
    def wait_events(self, timeout, owing=-1):
        self._shown = deque()
        return super().wait_events(timeout, owing)


class MaskIgnored(InlineBackend):
    def dispatch(self, rows):
        if rows is not None:
            others = np.setdiff1d(np.arange(self._slab.layout.rows), rows)
            self._slab.request(others, self._slab.requested[rows[0]])
        super().dispatch(None)


class RowsAtOnceOnly(InlineBackend):
    """Runs what was dispatched last."""

    def dispatch(self, rows):
        self._dispatched = rows

    def wait_events(self, timeout, owing=-1):
        rows, self._dispatched = getattr(self, "_dispatched", ()), ()
        if rows is None or len(rows):
            super().dispatch(rows)
        return super().wait_events(timeout, owing)


class ClosedOnce(InlineBackend):
    def close(self, grace):
        if getattr(self, "_was_closed", False):
            raise RuntimeError("This backend is closed.")
        self._was_closed = True
        return super().close(grace)


class LeftOpen(InlineBackend):
    def close(self, grace):
        return []


class NoPid(InlineBackend):
    pid = None


class KilledInSilence(FakeBackend):
    def kill(self, worker):
        super().kill(worker)
        self._queue = deque(e for e in self._queue if not isinstance(e, Exited))


class AnswersAfterDeath(FakeBackend):
    """Marks rows of a worker that it has killed, after saying that it is gone."""

    late = ()

    def kill(self, worker):
        super().kill(worker)
        if self._slab is not None:
            first, stop = self._slab.layout.blocks[worker]
            owing = np.flatnonzero(self._slab.owing_rows())
            self.late = owing[(first <= owing) & (owing < stop)]

    def wait_events(self, timeout, owing=-1):
        if not self._queue and len(self.late):
            self._slab.commit(self.late)
            self.late = ()
        return super().wait_events(timeout, owing)


MUTANTS = [
    (NoPid, "interface"),
    (NoHello, "failed_start"),
    (MarkedTooEarly, "visible"),
    (RunsTwice, "visible"),
    (RunsAgain, "once"),
    (NeverRuns, "visible"),
    (LastRowLost, "visible"),
    (WrongRow, "visible"),
    (MaskIgnored, "visible"),
    (RowsAtOnceOnly, "portions"),
    (FailuresLost, "raises"),
    (FailuresAnswered, "raises"),
    (FailureWithoutException, "raises"),
    (OtherNumber, "replies"),
    (ResultsReversed, "replies"),
    (EventsDropped, "kept"),
    (ClosedOnce, "close_early"),
    (LeftOpen, "close_idle"),
    (KilledInSilence, "kill_idle"),
    (AnswersAfterDeath, "kill_at_once"),
]


@functools.cache
def failure_of(make_backend):
    """Returns the error for a mutant; several tests look at the same one."""
    with pytest.raises(CheckFailed) as caught:
        check_backend(make_backend, patience=0.2)
    return caught.value


@pytest.mark.parametrize(
    ("mutant", "check"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS]
)
def test_a_broken_backend_fails_the_matching_check(mutant, check):
    assert check == failure_of(mutant).check


def test_a_mutant_that_changes_nothing_passes():
    assert check_backend(Changed).failed == ()


def test_the_error_says_what_was_expected_and_received():
    text = str(failure_of(FailuresAnswered))

    assert text.startswith(
        "FailuresAnswered fails the check 'raises': The environment of row 2 raised, "
        "and no event has told so.\n\n"
        "  expected   Raised((2,), ...)\n"
        "  got        an answer\n\n"
        "Its slot holds nothing that could be read.\n\n"
        "In all: "
    )


def test_a_backends_error_is_quoted_and_chained():
    error = failure_of(ClosedOnce)
    assert isinstance(error.__cause__, RuntimeError)
    assert "RuntimeError: This backend is closed." in str(error)


def test_checks_that_depend_on_a_failed_one_are_skipped():
    skipped = failure_of(MarkedTooEarly).report.skipped
    assert "rests on 'visible'" == skipped["answers"]


def test_checks_are_left_out_on_request():
    report = check_backend(ClosedOnce, skip=["close_idle", "close_busy", "close_early"])
    assert "left out on request" == report.skipped["close_idle"]


def test_an_unknown_check_cannot_be_left_out(message_of):
    expected = f"skip has no name 'sleeps'. The names are {', '.join(NAMES)}."
    assert expected == message_of(
        ValueError, lambda: check_backend(InlineBackend, skip=["sleeps"])
    )


def test_checks_to_leave_out_must_be_a_list(message_of):
    assert "skip must be a list of names, got 'kept'." == message_of(
        TypeError, lambda: check_backend(InlineBackend, skip="kept")
    )


def test_every_check_has_a_unique_name_and_a_one_line_promise():
    promises = [check.function.__doc__.partition("\n")[0] for check in CHECKS]
    assert len(set(NAMES)) == len(NAMES)
    assert [] == [promise for promise in promises if not promise.endswith(".")]


def test_checks_depend_only_on_earlier_ones():
    for number, check in enumerate(CHECKS):
        assert set(check.needs) <= set(NAMES[:number])
