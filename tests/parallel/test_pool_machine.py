"""Whatever happens to workers, every row's stream is that of its own environment.

A Hypothesis machine plays pools on a `FakeBackend`: rows finish in any order, raise,
hang, come late; workers die, do not come back, and Ctrl-C comes in between. What the
environments really did is on record, and every answer is compared with that.
"""

from __future__ import annotations

import functools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from envkit import nest
from envkit.errors import CallOrderError, WorkerError
from envkit.parallel import AutoReset, ParallelPyEnvironment, RestartPolicy
from envkit.testing import ManualClock, TracingEnv, check_trace
from envkit.testing.backend import FakeBackend
from envkit.time_step import StepType
from tests import strategies

ENDLESS = RestartPolicy(max_restarts=10_000, within=None, backoff=0)
POLICIES = [
    ENDLESS,
    RestartPolicy(max_restarts=10_000, within=None, backoff=0.5),
    RestartPolicy(max_restarts=2, within=50.0, backoff=0.5),
    "raise",
]
LIMIT = 5.0


class RecordedEnv(TracingEnv):
    """Writes down every time step that it returns.

    It is seeded with the number of environments that this row has had before it, so
    every observation tells which of them it comes from.
    """

    def __init__(self, env_id, lengths, record, incarnation):
        super().__init__(env_id, lengths)
        self._record = record
        self.seed(incarnation)

    def _reset(self):
        return self._noted(super()._reset())

    def _step(self, action):
        return self._noted(super()._step(action))

    def _noted(self, time_step):
        self._record.append(time_step)
        return time_step


def row_of(time_step, row):
    return nest.map_structure(lambda leaf: np.array(leaf[row]), time_step)


def same(one, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(nest.flatten(one), nest.flatten(other), strict=True)
    )


def cut(time_step):
    """Returns the repaired LAST of an environment that was lost there."""
    return time_step._replace(
        step_type=np.array(StepType.LAST),
        reward=np.zeros_like(time_step.reward),
        discount=np.ones_like(time_step.discount),
    )


class PoolMachine(RuleBasedStateMachine):
    """What the machines for both facades have in common: the truth, and the rows."""

    @initialize(
        envs=st.integers(1, 4),
        workers=st.integers(1, 3),
        lengths=st.lists(st.integers(1, 4), min_size=1, max_size=2),
        policy=st.sampled_from(POLICIES),
        timed=st.booleans(),
        order=st.sampled_from(list(AutoReset)),
    )
    def open(self, envs, workers, lengths, policy, timed, order):
        self.clock = ManualClock()
        self.backend = FakeBackend(clock=self.clock)
        self.lengths = lengths
        self.order = order
        self.timed = timed
        self.policy = policy
        self.truth = [[] for _ in range(envs)]
        self.incarnations = [0] * envs
        self.env = self.make(
            [functools.partial(self.build, index) for index in range(envs)],
            backend=self.backend,
            num_workers=workers,
            autoreset=order,
            on_worker_failure=policy,
            start_timeout=LIMIT if timed else None,
            reset_timeout=LIMIT if timed else None,
            step_timeout=LIMIT if timed else None,
        )
        self.env._pool._now = self.backend.now
        self.rows = envs
        # Where each row stands as far as the caller knows, and what was shown of it.
        self.standing = [None] * envs
        self.shown = [None] * envs
        # Rows of which something may not have been shown.
        self.dirty = [False] * envs
        self.broken = set()
        self.gone = set()
        self.saved = None

    def build(self, index):
        self.incarnations[index] += 1
        return RecordedEnv(
            index, self.lengths, self.truth[index], self.incarnations[index]
        )

    def draw_schedule(self, data, *, hangs=True):
        schedule = data.draw(
            strategies.schedules(hangs=self.timed and hangs), label="schedule"
        )
        self.backend.plan(*schedule)

    # What errors say.

    def note(self, error, rows):
        pool = self.env._pool
        for worker, (first, stop) in enumerate(pool.layout.blocks):
            if pool._workers[worker].crash is not None:
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

    def teardown(self):
        if hasattr(self, "env"):
            self.env.close()
            self.env.close()


def same_place(one, other):
    return all(
        int(one.observation[name]) == int(other.observation[name])
        for name in ("seed", "episode", "step", "action")
    )


class LockstepMachine(PoolMachine):
    make = ParallelPyEnvironment

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
        repaired = self.env.repaired
        for row in range(self.rows):
            came = row_of(time_step, row)
            if not chosen[row]:
                if not self.dirty[row]:
                    expected = self.shown if chosen.any() else self.standing
                    assert same(came, expected[row])
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

    @rule(worker=st.integers(0, 2))
    def die_idle(self, worker):
        self.backend.die(worker)

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
        hypothesis.assume(not self.env._pool._begin.any())
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

    @invariant()
    def streams_belong_to_their_rows(self):
        for row, time_step in enumerate(getattr(self, "standing", [])):
            if time_step is not None:
                assert int(time_step.observation["env_id"]) == row


TestLockstep = LockstepMachine.TestCase
# Shrinking a failure takes many runs more.
TestLockstep.pytestmark = [pytest.mark.watchdog(300), pytest.mark.slow]
TestLockstep.settings = hypothesis.settings(
    deadline=None,
    max_examples=120,
    stateful_step_count=14,
    # Explaining a failure runs it hundreds of times more.
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
)
