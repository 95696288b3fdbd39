"""Whatever happens to workers, every row's stream is that of its own environment."""

from __future__ import annotations

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from envkit.errors import CallOrderError, WorkerError
from envkit.parallel import AutoReset, ParallelPyEnvironment
from envkit.testing import check_trace
from envkit.time_step import StepType
from tests.parallel.machines import (
    ENDLESS,
    MARKS,
    SETTINGS,
    PoolMachine,
    row_of,
    same,
    same_place,
)


def cut(time_step):
    """Returns the repaired LAST of an environment that was lost there."""
    return time_step._replace(
        step_type=np.array(StepType.LAST),
        reward=np.zeros_like(time_step.reward),
        discount=np.ones_like(time_step.discount),
    )


class LockstepMachine(PoolMachine):
    """Steps and resets all rows, or some of them by a mask, and waits for them."""

    make = ParallelPyEnvironment

    def prepare(self):
        # What was shown of each row, which differs from where it stands.
        self.shown = [None] * self.rows
        # Rows of which something may not have been shown.
        self.dirty = [False] * self.rows
        self.broken = set()
        self.gone = set()
        self.looks = False

    @rule(data=st.data(), masked=st.booleans())
    def step(self, data, masked):
        actions = np.array(data.draw(self.actions(), label="actions"))
        mask = np.array(data.draw(self.masks(), label="mask")) if masked else None
        self.draw_schedule(data)
        if self.env._current_time_step is None:
            # The first step of all is a reset of all.
            self.call("step", None, None, lambda: self.env.step(actions, mask))
        else:
            self.call("step", mask, actions, lambda: self.env.step(actions, mask))

    @rule(data=st.data(), masked=st.booleans())
    def reset(self, data, masked):
        mask = None
        if masked and self.env._current_time_step is not None:
            mask = np.array(data.draw(self.masks(), label="mask"))
        self.draw_schedule(data)
        self.call("reset", mask, None, lambda: self.env.reset(mask))

    def actions(self):
        return st.lists(st.integers(0, 999_999), min_size=self.rows, max_size=self.rows)

    def masks(self):
        return st.lists(st.booleans(), min_size=self.rows, max_size=self.rows)

    def call(self, name, mask, actions, function):
        chosen = np.ones(self.rows, bool) if mask is None else mask
        rows = np.flatnonzero(chosen).tolist()
        try:
            time_step = function()
        except KeyboardInterrupt:
            # What an earlier call left is waited for, too.
            self.dirty = [True] * self.rows
        except CallOrderError:
            assert name == "step"
            ended = [
                row
                for row in rows
                if self.dirty[row]
                or self.standing[row] is None
                or self.standing[row].is_last()
            ]
            # One that raised while what was interrupted was waited for is not told.
            untold = set(self.env._pool.errors) & set(rows)
            assert (
                self.broken & set(rows)
                or untold
                or (self.order is AutoReset.DISABLED and ended)
            )
        except WorkerError as error:
            self.note(error, range(self.rows))
            if self.policy is ENDLESS:
                raise
        else:
            assert not self.gone & set(rows)
            self.look(time_step, chosen, actions)
        finally:
            self.backend.schedule.clear()

    def look(self, time_step, chosen, actions):
        repaired, told = self.env.repaired, self.env.rows_with_info()
        looks, self.looks = self.looks, True  # Since the first call.
        for row in np.flatnonzero(chosen).tolist():
            # Only environments that are gone have nothing to say.
            assert told[row] == (not (looks and repaired[row]))
        for row in range(self.rows):
            came = row_of(time_step, row)
            if not chosen[row]:
                # One that is left out shows where it stands: under SAME_STEP it has
                # shown the end of its episode, and the next one has begun.
                if not self.dirty[row]:
                    assert same(came, self.standing[row])
                    if chosen.any():
                        self.shown[row] = self.standing[row]
                continue
            action = None if actions is None else actions[row]
            self.accept(row, action, came, bool(repaired[row]))
        now = self.env.current_time_step()
        for row in np.flatnonzero(chosen).tolist():
            stands = row_of(now, row)
            if self.order is AutoReset.SAME_STEP and self.shown[row].is_last():
                text = check_trace(self.shown[row], 0, stands, env_id=row)
                assert "" == text, text
                self.standing[row] = stands
            else:
                assert same(stands, self.shown[row])
            self.check_truth(row)

    @rule(order=st.sampled_from(list(AutoReset)))
    def change_order(self, order):
        try:
            self.env.autoreset = order
        except WorkerError as error:
            self.note(error, range(self.rows))
            return
        self.order = order
        # From now on, what stands is what is shown.
        for row in range(self.rows):
            if not self.dirty[row]:
                self.shown[row] = self.standing[row]

    @rule(data=st.data())
    def ask(self, data):
        # A question has no deadline.
        self.draw_schedule(data, hangs=False)
        try:
            infos = self.env.call("get_info")
        except KeyboardInterrupt:
            pass
        except WorkerError as error:
            self.note(error, [])
        else:
            assert [int(info["env_id"]) for info in infos] == list(range(self.rows))
        finally:
            self.backend.schedule.clear()

    def is_calm(self):
        return not (any(self.dirty) or self.broken or self.gone)

    @precondition(lambda self: self.is_calm())
    @rule()
    def save(self):
        hypothesis.assume(not self.env._pool.rows.new_rows())
        try:
            token = self.env.get_state()
        except WorkerError as error:
            self.note(error, [])
            return
        self.saved = token, list(self.standing), list(self.shown), self.order

    @precondition(lambda self: self.is_calm() and self.saved is not None)
    @rule()
    def restore(self):
        token, standing, shown, order = self.saved
        try:
            self.env.set_state(token)
        except WorkerError as error:
            self.note(error, range(self.rows))
            return
        self.standing = list(standing)
        both = self.order is order is AutoReset.SAME_STEP
        self.shown = list(shown if both else standing)
        for row in range(self.rows):
            if standing[row] is not None:
                self.truth[row].append(standing[row])

    # What errors say.

    def note(self, error, rows):
        pool = self.env._pool
        for worker, (first, stop) in enumerate(pool.layout.blocks):
            if pool.workers.workers[worker].crash is not None:
                self.gone |= set(range(first, stop))
        for each in (error, *error.also):
            self.broken |= set(each.envs) - self.gone
        for row in rows:
            self.dirty[row] = True

    # What rows show.

    def accept(self, row, action, came, repaired):
        """Fails unless an answer is the one that was due."""
        previous = self.standing[row]
        if not self.dirty[row]:
            text = check_trace(previous, action, came, repaired=repaired, env_id=row)
            assert "" == text, text
        else:
            # Something may have happened since that nobody saw; but what came next
            # must follow from it.
            candidates = self.since(row, previous)
            candidates += [cut(each) for each in candidates if each is not None]
            texts = [
                check_trace(each, action, came, repaired=repaired, env_id=row)
                for each in candidates
            ]
            assert "" in texts, texts
        self.dirty[row] = False
        self.broken.discard(row)
        self.shown[row] = self.standing[row] = came

    def since(self, row, previous):
        """Returns all that a row has done since a time step, with that."""
        record = self.truth[row]
        if previous is None:
            return [None, *record]
        places = [i for i, each in enumerate(record) if same_place(each, previous)]
        return [previous, *record[places[-1] :]] if places else [previous, *record]

    def check_truth(self, row):
        """Fails if an environment has gone further than anybody was shown."""
        last, standing = self.truth[row][-1], self.standing[row]
        if int(last.observation["seed"]) == int(standing.observation["seed"]):
            assert same_place(last, standing)


TestLockstep = LockstepMachine.TestCase
TestLockstep.pytestmark = MARKS
TestLockstep.settings = SETTINGS
