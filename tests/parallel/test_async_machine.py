"""Whatever happens to workers, no answer of an asynchronous pool is lost or doubled.

What a pool knows it knows from the slab and its backend's events. The machine looks at
the same, when the pool does, and works out which rows are ready, and in which order
they became so.
"""

from __future__ import annotations

import itertools
import math
from collections import deque

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from envkit.errors import CallOrderError, WorkerError
from envkit.parallel import AsyncParallelPyEnvironment, AutoReset
from envkit.parallel.backends.base import Exited, Raised
from envkit.testing import check_trace
from tests import strategies
from tests.parallel.fake_backend import FakeBackend, Interrupt, Pass
from tests.parallel.machines import (
    MARKS,
    POLICIES,
    SETTINGS,
    PoolMachine,
    row_of,
    same,
    same_place,
)

FOR_EVER = 1_000.0
# Under these nobody is ever given up.
PATIENT = POLICIES[:2]
# What a row owes that was asked to begin an episode.
BEGIN = None


class WatchedBackend(FakeBackend):
    """Lets a machine see what the pool sees, when it does.

    Attributes:
        spared: So many calls of `dispatch` are not interrupted.
    """

    def __init__(self, machine):
        super().__init__(clock=machine.clock)
        self.spared = 0
        self._machine = machine

    def dispatch(self, rows):
        self._machine.note_dispatched(rows)
        if not self.spared:
            super().dispatch(rows)
            return
        self.spared -= 1
        schedule, self.schedule = self.schedule, deque()
        super().dispatch(rows)
        self.schedule = schedule

    def wait_events(self, timeout, owing=-1):
        # With events that nobody has handled yet it returns at once.
        if timeout and not self._queue:
            self._machine.note_wait()
        # If this is interrupted, the pool has seen nothing of what has happened.
        queue = super().wait_events(timeout, owing)
        self._machine.note_answered()
        self._machine.note_events(queue)
        return queue


class AsyncMachine(PoolMachine):
    """Asks rows that are ready, and some that are not, and takes what has come."""

    make = AsyncParallelPyEnvironment

    def make_backend(self):
        return WatchedBackend(self)

    def prepare(self):
        # What each row that was asked owes: the answer to an action, or to BEGIN.
        self.owed = {}
        # Of those, when each became ready.
        self.places = {}
        self.moments = itertools.count()
        # Rows whose worker has been told what they were asked.
        self.dispatched = set()
        # Rows whose environment is gone, and whose new one has not begun.
        self.lost = set()
        # Rows that are broken, of which the caller has been told.
        self.told = set()
        # How many of the time steps that each environment made the caller has seen.
        self.seen = [0] * self.rows
        self.numbers = itertools.count(1)
        # For how many rows `recv` waits at the moment.
        self.awaited = math.inf

    @initialize(awake=st.sampled_from([1, 2, 9, 9]))
    def let_sleep(self, awake):
        # The others are left alone until somebody wakes them.
        self.awake = awake

    @precondition(lambda self: self.awake < self.rows)
    @rule()
    def wake(self):
        self.awake = self.rows

    # What the pool has been told.

    def note_dispatched(self, rows):
        self.dispatched |= set(range(self.rows) if rows is None else rows.tolist())

    def note_wait(self):
        self.note_answered()
        if self.awaited < math.inf:
            assert len(self.ready()) < self.awaited, "It waits for more than it needs."

    def note_answered(self):
        """Notes the rows whose answers are in the slab: the pool looks for them now."""
        if not hasattr(self, "env"):
            return
        slab = self.env._pool.slab
        moment = next(self.moments)
        for row in np.flatnonzero(~slab.owing_rows()).tolist():
            if row in self.dispatched:
                self.dispatched.discard(row)
                self.lost.discard(row)
                self.places[row] = moment

    def note_events(self, events):
        raised = []
        for event in events:
            match event:
                case Raised(rows):
                    raised += rows
                case Exited(worker):
                    self.lose(row for row in raised if row in self.dispatched)
                    raised = []
                    self.lose(range(*self.env._pool.layout.blocks[worker]))
        self.lose(row for row in raised if row in self.dispatched)

    def lose(self, rows):
        moment = next(self.moments)
        for row in rows:
            self.dispatched.discard(row)
            self.lost.add(row)
            if row in self.owed and row not in self.places and self.is_cut(row):
                self.places[row] = moment

    def is_cut(self, row):
        """Says whether what a row without its environment owes is a LAST at once."""
        in_episode = self.standing[row] is not None and not self.has_ended(row)
        at_once = self.order is not AutoReset.SAME_STEP
        return self.owed[row] is not BEGIN and in_episode and at_once

    def has_ended(self, row):
        return self.standing[row] is not None and bool(self.standing[row].is_last())

    def ready(self):
        """Lists the rows that are ready, first those that became so first."""
        rows = set(self.places) - self.broken()
        return sorted(rows, key=self.places.__getitem__)

    def broken(self):
        return set(self.env._pool.errors)

    def gone(self):
        """Returns the rows whose workers will never come back."""
        pool = self.env._pool
        blocks = zip(pool.workers.workers, pool.layout.blocks, strict=True)
        return {row for entry, block in blocks if entry.crash for row in range(*block)}

    def busy(self):
        """Returns the rows that owe an answer, and not an error."""
        return set(self.owed) - self.broken()

    def owing(self):
        """Returns the rows that owe an answer, or an error that nobody was told."""
        return set(self.owed) | (self.broken() - self.told)

    # Asking rows.

    @precondition(lambda self: self.able_to_step())
    @rule(data=st.data())
    def send(self, data):
        rows = self.draw_rows(data, self.able_to_step())
        self.draw_interrupt(data)
        self.send_to(rows)

    @precondition(lambda self: self.usable())
    @rule(data=st.data())
    def reset_async(self, data):
        rows = self.draw_rows(data, self.usable())
        self.draw_interrupt(data)
        self.reset_only(rows)

    @rule(data=st.data(), resets=st.booleans())
    def ask_rows_whether_ready_or_not(self, data, resets):
        rows = self.draw_rows(data, self.awake_rows())
        (self.reset_only if resets else self.send_to)(rows)

    @precondition(lambda self: self.able_to_step())
    @rule(data=st.data(), times=st.integers(1, 4))
    def go_on_undisturbed(self, data, times):
        for _ in range(times):
            rows = self.able_to_step()
            if rows:
                self.send_to(self.draw_rows(data, rows))
                self.take(self.draw_count(data))

    def usable(self):
        return sorted(set(self.awake_rows()) - set(self.owed) - self.gone())

    def awake_rows(self):
        return range(min(self.awake, self.rows))

    def able_to_step(self):
        return [row for row in self.usable() if row not in self.unable_to_step()]

    def unable_to_step(self):
        """Returns the rows that have to be reset first."""
        ended = {row for row in range(self.rows) if self.has_ended(row)}
        is_needed = self.order is AutoReset.DISABLED
        return self.broken() | (ended if is_needed else set())

    def draw_rows(self, data, candidates):
        candidates = list(candidates)
        some = st.lists(st.sampled_from(candidates), min_size=1, unique=True)
        return data.draw(some | st.permutations(candidates), label="rows")

    def draw_count(self, data):
        return data.draw(st.none() | st.integers(1, self.rows), label="count")

    def send_to(self, rows):
        actions = list(itertools.islice(self.numbers, len(rows)))

        def send(rows):
            self.env.send(np.array(actions, np.int64), rows)

        self.move(send, rows, actions, self.unable_to_step())

    def reset_only(self, rows):
        self.move(self.env.reset_async, rows, [BEGIN] * len(rows), set())

    def move(self, ask, rows, asked, unable):
        """Asks rows, and fails unless they move, or else are refused with reason."""
        expected = self.refusal(set(rows), unable)
        came = None
        try:
            ask(None if rows == list(range(self.rows)) else rows)
        except KeyboardInterrupt:
            came = KeyboardInterrupt
        except CallOrderError:
            came = CallOrderError
        except WorkerError:
            came = WorkerError
        finally:
            self.backend.schedule.clear()
            self.backend.spared = 0
        if came is KeyboardInterrupt:
            # Some may have been asked all the same, but then they say so.
            assert expected is None
            owing = set(np.flatnonzero(self.env.owing).tolist()) - self.broken()
        else:
            assert came is expected
            owing = set() if came else set(rows)
        for row, action in zip(rows, asked, strict=True):
            if row in owing:
                self.note_asked(row, action)

    def refusal(self, rows, unable):
        if self.owing() & rows:
            return CallOrderError
        if self.gone() & rows:
            return WorkerError
        return CallOrderError if unable & rows else None

    def draw_interrupt(self, data):
        where = data.draw(st.sampled_from([None, None, "dispatch", "dispatched"]))
        if where is not None:
            self.backend.spared = data.draw(st.integers(0, 2), label="spared")
            self.backend.plan(Interrupt(where))

    def note_asked(self, row, action):
        self.owed[row] = action
        self.told.discard(row)
        if row in self.lost and self.is_cut(row):
            self.places[row] = next(self.moments)

    # Taking answers.

    @precondition(lambda self: self.env.owing.any())
    @rule(
        data=st.data(),
        timeout=st.sampled_from([None, None, 0, 1.0, 30.0]),
        stalls=st.booleans(),
    )
    def recv(self, data, timeout, stalls):
        count = self.draw_count(data)
        self.draw_schedule(data)
        if timeout is not None and stalls:
            self.backend.plan(Pass(FOR_EVER))
        self.take(count, timeout)

    def take(self, count, timeout=None):
        owing = int(self.env.owing.sum())
        wanted = owing if count is None else count
        is_late = math.inf if timeout is None else self.clock.now() + timeout
        self.awaited = wanted
        try:
            batch = self.env.recv(count, timeout)
        except KeyboardInterrupt:
            pass
        except CallOrderError:
            assert wanted > owing or not owing
        except WorkerError as error:
            self.note_failure(error)
            assert not self.broken() - self.told
        else:
            assert owing >= wanted > 0
            self.look(batch, wanted, is_late)
        finally:
            self.awaited = math.inf
            self.backend.schedule.clear()

    def look(self, batch, wanted, is_late):
        assert self.clock.now() <= is_late
        self.note_answered()
        rows = batch.env_ids.tolist()
        assert len(rows) == wanted or (
            len(rows) < wanted and self.clock.now() == is_late
        )
        ready = self.ready()
        # Of rows that became ready together, any may be the first.
        moments = [self.places[row] for row in ready]
        assert [self.places[row] for row in rows] == moments[:wanted]
        assert len(set(rows)) == len(rows)
        repaired = self.env.repaired
        for index, row in enumerate(rows):
            self.accept(row, row_of(batch.time_step, index), bool(repaired[row]))

    def accept(self, row, came, repaired):
        """Fails unless an answer is the one that was due."""
        del self.places[row]
        action, before = self.owed.pop(row), self.standing[row]
        text = check_trace(before, action, came, repaired=repaired, env_id=row)
        assert "" == text, text
        if not (repaired and came.is_last()):
            self.see(row, came)
        stands = row_of(self.env.current_time_step([row]), 0)
        if self.order is AutoReset.SAME_STEP and came.is_last():
            text = check_trace(came, 0, stands, env_id=row)
            assert "" == text, text
            self.see(row, stands)
        else:
            assert same(stands, came)
        # Nobody has gone further than was asked.
        assert len(self.truth[row]) == self.seen[row]
        self.standing[row] = stands

    def see(self, row, came):
        """Fails unless this is what the environment made next."""
        assert same_place(self.truth[row][self.seen[row]], came)
        self.seen[row] += 1

    def note_failure(self, error):
        """Notes which rows the caller need not wait for any more."""
        pool = self.env._pool
        named = set()
        for each in (error, *error.also):
            named |= set(each.envs)
            # A constructor that fails names its own environment, but its worker is
            # gone with all others.
            if pool.workers.workers[each.worker].crash is each:
                named |= set(range(*pool.layout.blocks[each.worker]))
        news = named & self.broken()
        assert not news & self.told or self.gone() & named
        if self.policy in PATIENT:
            assert not news
            raise error
        for row in news:
            self.owed.pop(row, None)
            self.places.pop(row, None)
        self.told |= news

    @rule(data=st.data())
    def stand(self, data):
        rows = self.draw_rows(data, range(self.rows))
        try:
            now = self.env.current_time_step(rows)
        except CallOrderError:
            begun = all(self.standing[row] is not None for row in rows)
            assert self.owing() & set(rows) or not begun
        else:
            for index, row in enumerate(rows):
                assert same(self.standing[row], row_of(now, index))

    # What happens meanwhile.

    @rule(data=st.data())
    def time_goes_by(self, data):
        schedule = strategies.schedules(hangs=self.timed, interrupts=False)
        self.backend.do(*data.draw(schedule, label="schedule"))

    @rule(order=st.sampled_from(list(AutoReset)))
    def change_order(self, order):
        try:
            self.env.autoreset = order
        except CallOrderError:
            assert self.owing()
        else:
            assert not self.owing()
            self.order = order

    @rule(data=st.data())
    def ask(self, data):
        self.end_hung()
        self.draw_schedule(data, hangs=False)
        try:
            infos = self.env.call("get_info")
        except KeyboardInterrupt:
            pass
        except WorkerError as error:
            self.note_question(error)
        else:
            assert [int(info["env_id"]) for info in infos] == list(range(self.rows))
        finally:
            self.backend.schedule.clear()

    def end_hung(self):
        """Ends workers that hang: a question has no deadline."""
        for index, worker in list(self.backend._workers.items()):
            if worker.hangs:
                self.backend.die(index)

    def note_question(self, error):
        """Notes that a worker that is asked may end, and be replaced."""
        if {row for each in (error, *error.also) for row in each.envs} & self.broken():
            self.note_failure(error)

    @precondition(lambda self: not self.owed and not self.broken())
    @rule()
    def save(self):
        self.end_hung()
        try:
            token = self.env.get_state()
        except WorkerError as error:
            self.note_question(error)
            return
        assert sorted(self.lost) == list(token.new_rows)
        self.saved = token, list(self.standing), set(self.lost)

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self):
        self.end_hung()
        token, standing, lost = self.saved
        owing = self.owing()
        try:
            self.env.set_state(token)
        except CallOrderError:
            assert owing
        except WorkerError as error:
            self.note_question(error)
        else:
            assert not owing
            self.standing, self.lost = list(standing), set(lost)
            self.owed.clear()
            self.told.clear()

    @invariant()
    def it_says_who_owes_an_answer(self):
        if hasattr(self, "env"):
            owing = np.flatnonzero(self.env.owing).tolist()
            assert owing == sorted(self.owing())


TestAsync = AsyncMachine.TestCase
TestAsync.pytestmark = MARKS
TestAsync.settings = hypothesis.settings(
    SETTINGS, max_examples=100, stateful_step_count=20
)
