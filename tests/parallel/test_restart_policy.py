from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.parallel.restarts import GiveUp, Replace, RestartPolicy, Restarts

POLICIES = st.builds(
    RestartPolicy,
    max_restarts=st.integers(0, 5),
    within=st.none() | st.floats(0.1, 100),
    backoff=st.floats(0, 50),
)
# Failures of three workers, each at some time after the one before it.
FAILURES = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 40)), min_size=1, max_size=40
)


def played(policy, failures):
    """Returns (subject, time, decision) for failures given by the pauses between."""
    supervisor = Restarts(policy)
    now, history = 0.0, []
    for subject, pause in failures:
        now += pause
        history.append((subject, now, supervisor.decide(subject, now)))
    return history


def replacements_of(subject, history):
    return [
        now + decision.after
        for who, now, decision in history
        if who == subject and isinstance(decision, Replace)
    ]


@given(policy=POLICIES, failures=FAILURES)
def test_no_window_holds_more_restarts_than_the_policy_allows(policy, failures):
    history = played(policy, failures)
    most = policy.max_restarts

    for subject in range(3):
        times = replacements_of(subject, history)
        if policy.within is None:
            assert len(times) <= most
        for earlier, later in zip(times, times[most:], strict=False):
            assert later - earlier >= policy.within


@given(policy=POLICIES, failures=FAILURES)
def test_decisions_depend_only_on_the_subjects_own_times(policy, failures):
    together = played(policy, failures)

    for subject in range(3):
        alone = Restarts(policy)
        mine = [(now, decision) for who, now, decision in together if who == subject]

        assert [decision for _, decision in mine] == [
            alone.decide("another name", now) for now, _ in mine
        ]


@given(policy=POLICIES, failures=FAILURES)
def test_giving_up_changes_nothing(policy, failures):
    """Without the failures that were given up, every other decision is the same."""
    history = played(policy, failures)
    twin = Restarts(policy)
    granted = [entry for entry in history if isinstance(entry[2], Replace)]

    assert [decision for _, _, decision in granted] == [
        twin.decide(subject, now) for subject, now, _ in granted
    ]


@given(policy=POLICIES, failures=FAILURES)
def test_a_pause_is_never_longer_than_thirty_seconds(policy, failures):
    history = played(policy, failures)
    pauses = [entry[2].after for entry in history if isinstance(entry[2], Replace)]
    assert all(0 <= pause <= 30 for pause in pauses)


def test_the_first_restart_comes_at_once_and_each_pause_doubles_up_to_thirty_seconds():
    supervisor = Restarts(RestartPolicy(max_restarts=9, within=None, backoff=0.5))
    assert [0, 0.5, 1, 2, 4, 8, 16, 30, 30] == [
        supervisor.decide("worker", now=100.0 * number).after for number in range(9)
    ]


def test_pauses_stay_at_their_limit_after_any_number_of_restarts():
    supervisor = Restarts(RestartPolicy(max_restarts=3000, within=None))

    pauses = [supervisor.decide("worker", now=0.0).after for _ in range(3000)]

    assert 30 == pauses[-1]


def test_old_restarts_leave_the_window():
    supervisor = Restarts(RestartPolicy(max_restarts=1, within=60))
    assert [
        Replace(after=0.0),
        GiveUp("1 of 1 within 60 s used up"),
        Replace(after=0.0),
    ] == [supervisor.decide("worker", now=now) for now in (0.0, 59.9, 60.0)]


def test_a_restart_counts_from_its_own_time_not_the_failures():
    supervisor = Restarts(RestartPolicy(max_restarts=2, within=10, backoff=5))
    supervisor.decide("worker", now=0.0)
    supervisor.decide("worker", now=1.0)  # takes place at 6
    assert Replace(after=5.0) == supervisor.decide("worker", now=11.0)
    assert GiveUp("2 of 2 within 10 s used up") == supervisor.decide("worker", now=15.9)
    assert Replace(after=5.0) == supervisor.decide("worker", now=16.0)


def test_each_subject_has_its_own_budget():
    supervisor = Restarts(RestartPolicy(max_restarts=1))
    supervisor.decide(("worker", 0), now=0.0)
    assert Replace(after=0.0) == supervisor.decide(("env", 0), now=0.0)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (None, 'not allowed (on_worker_failure="raise")'),
        (RestartPolicy(max_restarts=0), "not allowed (max_restarts=0)"),
    ],
)
def test_a_policy_without_restarts_gives_up_at_once(policy, reason):
    supervisor = Restarts(policy)
    assert GiveUp(reason) == supervisor.decide("worker", now=0.0)


@pytest.mark.parametrize(
    ("within", "reason"),
    [(60.0, "1 of 1 within 60 s used up"), (None, "1 of 1 used up")],
)
def test_giving_up_says_which_budget_is_used_up(within, reason):
    supervisor = Restarts(RestartPolicy(max_restarts=1, within=within))
    supervisor.decide("worker", now=0.0)
    assert GiveUp(reason) == supervisor.decide("worker", now=0.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"max_restarts": 2.5},
            TypeError,
            "max_restarts is 2.5, but restarts are counted in whole numbers. Pass an "
            "integer such as 3.",
        ),
        (
            {"max_restarts": True},
            TypeError,
            "max_restarts is True, but restarts are counted in whole numbers. Pass an "
            "integer such as 3.",
        ),
        (
            {"max_restarts": -1},
            ValueError,
            "max_restarts is -1, but there cannot be fewer than no restarts. Pass 0 to "
            "allow none.",
        ),
        (
            {"within": "1 min"},
            TypeError,
            "within is '1 min', but times are numbers of seconds. Pass a number such "
            "as 60.0, or None to count all restarts.",
        ),
        (
            {"within": float("nan")},
            ValueError,
            "within is nan, which no clock reaches. Pass a finite number of seconds, "
            "or None to count all restarts.",
        ),
        (
            {"within": 0},
            ValueError,
            "within is 0, and nothing happens within so short a time. Pass a positive "
            "number of seconds, or None to count all restarts.",
        ),
        (
            {"backoff": None},
            TypeError,
            "backoff is None, but times are numbers of seconds. Pass a number such as "
            "60.0, or 0 for no pause.",
        ),
        (
            {"backoff": False},
            TypeError,
            "backoff is False, but times are numbers of seconds. Pass a number such "
            "as 60.0, or 0 for no pause.",
        ),
        (
            {"backoff": float("inf")},
            ValueError,
            "backoff is inf, which no clock reaches. Pass a finite number of seconds, "
            "or 0 for no pause.",
        ),
        (
            {"backoff": -0.5},
            ValueError,
            "backoff is -0.5, but a pause cannot be negative. Pass a number of "
            "seconds, or 0 for no pause.",
        ),
    ],
)
def test_an_invalid_policy_is_refused(message_of, arguments, error, message):
    assert message == message_of(error, lambda: RestartPolicy(**arguments))


def test_a_policy_accepts_numpy_numbers():
    policy = RestartPolicy(np.int64(2), np.float32(5), backoff=np.float64(1))
    assert (2, 5, 1) == dataclasses.astuple(policy)[:3]


def test_a_policy_can_be_pickled():
    policy = RestartPolicy(max_restarts=5, within=None, backoff=1.0)
    assert policy == pickle.loads(pickle.dumps(policy))
    assert hash(policy) == hash(RestartPolicy(5, None, backoff=1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.backoff = 2.0
