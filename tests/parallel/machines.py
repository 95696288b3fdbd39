"""What the machines that play pools have in common: the truth, and the rows.

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
    rule,
)

from envkit import nest
from envkit.parallel import AutoReset, RestartPolicy
from envkit.testing import ManualClock, TracingEnv
from tests import strategies
from tests.parallel.fake_backend import FakeBackend

ENDLESS = RestartPolicy(max_restarts=10_000, within=None, backoff=0)
POLICIES = [
    ENDLESS,
    RestartPolicy(max_restarts=10_000, within=None, backoff=0.5),
    RestartPolicy(max_restarts=2, within=50.0, backoff=0.5),
    "raise",
]
LIMIT = 5.0
# Shrinking a failure takes many runs more.
MARKS = [pytest.mark.slow]
SETTINGS = hypothesis.settings(
    deadline=None,
    max_examples=50,
    stateful_step_count=14,
    # Explaining a failure runs it hundreds of times more.
    phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
)


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


def same_place(one, other):
    return all(
        int(one.observation[name]) == int(other.observation[name])
        for name in ("seed", "episode", "step", "action")
    )


class PoolMachine(RuleBasedStateMachine):
    """Opens pools of environments that write down what they do, and closes them."""

    make = None  # the class of the pool

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
        self.rows = envs
        self.lengths = lengths
        self.order = order
        self.timed = timed
        self.policy = policy
        self.truth = [[] for _ in range(envs)]
        self.incarnations = [0] * envs
        # Where each row stands as far as the caller knows.
        self.standing = [None] * envs
        self.saved = None
        self.prepare()
        self.backend = self.make_backend()
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

    def prepare(self):
        """Prepares what a machine remembers besides, before there is a pool."""

    def make_backend(self):
        return FakeBackend(clock=self.clock)

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

    @rule(worker=st.integers(0, 2))
    def die_idle(self, worker):
        self.backend.die(worker)

    @invariant()
    def streams_belong_to_their_rows(self):
        for row, time_step in enumerate(getattr(self, "standing", [])):
            if time_step is not None:
                assert int(time_step.observation["env_id"]) == row

    def teardown(self):
        if hasattr(self, "env"):
            self.env.close()
            self.env.close()
