"""When the episode after a `LAST` begins: three orders, the same transitions."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.errors import CallOrderError, EnvironmentRaised
from envkit.parallel import AsyncParallelPyEnvironment, AutoReset
from envkit.testing.envs import CountingEnv, CrashingEnv, TracingEnv
from envkit.time_step import StepType
from tests.parallel import environments, streams
from tests.parallel.streams import pool_of, row_of

with_each_order = pytest.mark.parametrize(
    "order", list(AutoReset), ids=lambda o: o.value
)
# A process has the same runner inside, so one order of each kind will do there.
everywhere = pytest.mark.parametrize(
    ("order", "backend"),
    [
        *itertools.product(AutoReset, ["inline", "thread"]),
        (AutoReset.SAME_STEP, "process"),
        (AutoReset.DISABLED, "process"),
    ],
    ids=lambda value: getattr(value, "value", value),
)

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
NEXT_STEP, SAME_STEP, DISABLED = AutoReset


def policy(observation, row):
    """Chooses an action from what is seen, so that the stream depends on it."""
    seen = observation["episode"] * 31 + observation["step"] * 7 + row
    return int(seen) % 1000


def note_transition(env, made, act):
    """Steps once, and adds each row's transition to its list.

    A transition is (s, a, r, discount, s'). What acts sees where the environments
    stand, whatever the order; under DISABLED what has ended is reset.
    """
    standing = env.current_time_step()
    if env.autoreset is DISABLED and standing.is_last().any():
        standing = env.reset(standing.is_last())
    action = [act(row_of(standing.observation, row), row) for row in range(len(made))]
    after = env.step(action)
    for row, column in enumerate(made):
        if standing.step_type[row] != LAST:
            seen = [row_of(each.observation, row) for each in (standing, after)]
            told = np.asarray(action[row]).tolist(), float(after.reward[row])
            column.append(
                (*map(streams.bits_of, seen), *told, float(after.discount[row]))
            )


def transitions_of(env, count, act=policy):
    """Steps until each row has made so many transitions; lists them, row by row."""
    made = [[] for _ in range(env.batch_size)]
    env.reset()
    for _ in range(20 * count):
        if all(len(column) >= count for column in made):
            return [column[:count] for column in made]
        note_transition(env, made, act)
    raise AssertionError("the environments do not get on")


def traced(lengths):
    """Lists constructors of environments with episodes of these lengths."""
    return [
        functools.partial(TracingEnv, row, length, 2)
        for row, length in enumerate(lengths)
    ]


@everywhere
def test_the_transitions_are_the_same_under_every_order(order, backend):
    makers = traced([1, 2, (3, 1), 5])
    with pool_of(makers) as env:
        expected = transitions_of(env, 25)
    with pool_of(makers, backend, num_workers=2, autoreset=order) as env:
        actual = transitions_of(env, 25)
    assert expected == actual


@settings(max_examples=12)
@given(
    lengths=st.lists(
        st.integers(1, 4) | st.lists(st.integers(1, 4), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    ),
    workers=st.integers(1, 4),
    order=st.sampled_from([SAME_STEP, DISABLED]),
)
def test_the_transitions_are_the_same_for_episodes_of_any_length(
    lengths, workers, order
):
    makers = traced(lengths)
    with pool_of(makers, num_workers=1) as env:
        expected = transitions_of(env, 12)
    with pool_of(makers, num_workers=workers, autoreset=order) as env:
        actual = transitions_of(env, 12)
    assert expected == actual


@everywhere
def test_random_environments_and_batches_have_the_same_transitions(order, backend):
    """The random numbers of a reset must not be drawn twice, or in another order."""
    walks = [environments.Walk] * 3
    batches = [
        functools.partial(environments.pair_of, 1, 3),
        functools.partial(TracingEnv, 2, 2),
        functools.partial(environments.pair_of, 4),
    ]

    def stand(observation, row):
        return np.zeros(2, np.float32)

    for makers, act in ((walks, stand), (batches, policy)):
        with pool_of(makers) as env:
            env.seed(3)
            expected = transitions_of(env, 25, act)
        with pool_of(makers, backend, num_workers=2, autoreset=order) as env:
            env.seed(3)
            actual = transitions_of(env, 25, act)

        assert expected == actual


def counted(*lengths):
    """Lists constructors of environments that count their steps."""
    return [functools.partial(CountingEnv, length) for length in lengths]


def told(time_step):
    """Writes a batch of `CountingEnv` down: step type and observation of each row."""
    names = ["FIRST", "MID", "LAST"]
    return [
        f"{names[int(kind)]} {int(observation)}"
        for kind, observation in zip(
            time_step.step_type, time_step.observation, strict=True
        )
    ]


def test_next_step_returns_last_then_first(backend):
    with pool_of(counted(2, 3), backend, num_workers=1) as env:
        seen = [told(ts) for ts in streams.play(env, [[0, 0]] * 5)]
        rewards = env.current_time_step().reward.tolist()

    assert [
        ["FIRST 0", "FIRST 0"],
        ["MID 1", "MID 1"],
        ["LAST 2", "MID 2"],
        ["FIRST 10", "LAST 3"],
        ["MID 11", "FIRST 10"],
        ["LAST 12", "MID 11"],
    ] == seen
    assert [1.0, 0.0] == rewards


def test_same_step_wastes_no_step_and_reports_its_state(backend):
    with pool_of(counted(2, 3), backend, num_workers=1, autoreset=SAME_STEP) as env:
        seen = [(told(env.reset()), told(env.current_time_step()))]
        for _ in range(4):
            time_step = env.step([0, 0])
            seen.append((told(time_step), told(env.current_time_step())))
        last = env.step([0, 0])

    assert [
        (["FIRST 0", "FIRST 0"], ["FIRST 0", "FIRST 0"]),
        (["MID 1", "MID 1"], ["MID 1", "MID 1"]),
        (["LAST 2", "MID 2"], ["FIRST 10", "MID 2"]),
        (["MID 11", "LAST 3"], ["MID 11", "FIRST 10"]),
        (["LAST 12", "MID 11"], ["FIRST 20", "MID 11"]),
    ] == seen
    assert ["MID 21", "MID 12"] == told(last)


def test_same_step_returns_the_reward_and_discount_of_the_end(backend):
    with pool_of(counted(1), backend, autoreset=SAME_STEP) as env:
        env.reset()
        last = env.step([0])
        now = env.current_time_step()

    assert ([LAST], [1.0], [0.0]) == (
        last.step_type.tolist(),
        last.reward.tolist(),
        last.discount.tolist(),
    )
    assert ([FIRST], [0.0], [1.0]) == (
        now.step_type.tolist(),
        now.reward.tolist(),
        now.discount.tolist(),
    )


def test_disabled_rows_wait_for_a_reset(message_of, backend):
    with pool_of(counted(1, 3, 1), backend, num_workers=2, autoreset=DISABLED) as env:
        env.reset()
        ended = told(env.step([0, 0, 0]))
        message = message_of(CallOrderError, lambda: env.step([0, 0, 0]))
        one = message_of(
            CallOrderError, lambda: env.step([0, 0, 0], [True, True, False])
        )
        still = told(env.current_time_step())
        others = told(env.step([0, 0, 0], [False, True, False]))
        reset = told(env.reset([True, False, True]))
        on = told(env.step([0, 0, 0]))

    assert ["LAST 1", "MID 1", "LAST 1"] == ended == still
    assert (
        "step() was called after the episode of rows 0, 2 ended. Under "
        "AutoReset.DISABLED, call reset(mask) for them first, or leave them out with "
        "step(action, mask); none of the environments has moved."
    ) == message
    assert one.startswith("step() was called after the episode of row 0 ended. ")
    assert ["LAST 1", "MID 2", "LAST 1"] == others
    assert ["FIRST 10", "MID 2", "FIRST 10"] == reset
    assert ["LAST 11", "LAST 3", "LAST 11"] == on


def test_a_masked_step_under_same_step_does_not_move_other_rows():
    with pool_of(counted(2, 1), autoreset=SAME_STEP) as env:
        env.reset()
        env.step([0, 0])
        shown = told(env.step([0, 0], [True, False]))
        standing = told(env.current_time_step())
        after = told(env.step([0, 0], [False, True]))
        reset = told(env.reset([True, False]))
        now = told(env.current_time_step())

    # The end of an episode is shown once.
    assert ["LAST 2", "FIRST 10"] == shown
    assert ["FIRST 10", "FIRST 10"] == standing
    assert "LAST 11" == after[1]
    assert "FIRST 10" == reset[0]
    assert ["FIRST 10", "FIRST 20"] == now


@pytest.mark.parametrize("order", [NEXT_STEP, SAME_STEP])
def test_the_info_belongs_to_the_returned_time_step(order, backend):
    """Also where the next episode has begun since."""
    with pool_of(
        [functools.partial(TracingEnv, 0, 1)], backend, autoreset=order
    ) as env:
        env.reset()
        env.step([5])
        info = env.get_info()
        again = env.get_info()
        env.step([5])
        next_info = env.get_info()

    assert ([0], [1]) == (info["episode"].tolist(), info["step"].tolist())
    assert [] == streams.differences(info, again)
    expected = [1] if order is SAME_STEP else [0]
    assert ([1], expected) == (
        next_info["episode"].tolist(),
        next_info["step"].tolist(),
    )


def test_the_info_of_an_end_belongs_to_its_own_row(backend):
    makers = [functools.partial(TracingEnv, number, 1) for number in range(3)]
    with streams.async_pool_of(
        makers, backend, num_workers=1, autoreset=SAME_STEP
    ) as env:
        env.reset_async()
        env.recv(3)
        env.send([5], [2])
        env.recv(1)
        info = env.get_info()

    assert ([0, 0, 0], [0, 0, 1]) == (info["episode"].tolist(), info["step"].tolist())


def test_an_end_of_both_kinds_is_a_termination_under_every_order():
    discounts = {}
    for order in AutoReset:
        with pool_of(traced([1]), autoreset=order) as env:
            env.reset()
            seen = []
            for _ in range(4):
                if env.autoreset is DISABLED:
                    env.reset(env.current_time_step().is_last())
                after = env.step([0])
                if after.is_last().any():
                    seen.append(float(after.discount[0]))
        discounts[order] = seen[:2]

    assert [[0.0, 1.0]] * 3 == list(discounts.values())


# A reset that fails right after an end.


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_end_is_returned_even_if_the_next_episode_cannot_begin(backend):
    makers = [
        functools.partial(CrashingEnv, crash_at=2, where="reset", steps_per_episode=2),
        functools.partial(CountingEnv, 2),
    ]
    with pool_of(makers, backend, num_workers=1, autoreset=SAME_STEP) as env:
        env.reset()
        env.step([0, 0])
        last = told(env.step([0, 0]))
        with pytest.raises(EnvironmentRaised) as caught:
            env.step([0, 0])
        again = told(env.reset([True, False]))

    assert ["LAST 2", "LAST 2"] == last
    assert (0,) == caught.value.envs
    assert "CrashingEnv was told to raise in reset 2" in str(caught.value)
    assert "FIRST 10" == again[0]


# The order changes while the pool is alive.


@pytest.mark.parametrize(
    ("before", "after", "standing", "stepped"),
    [
        (NEXT_STEP, NEXT_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
        (NEXT_STEP, SAME_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
        (NEXT_STEP, DISABLED, ["LAST 1", "MID 1"], None),
        (SAME_STEP, NEXT_STEP, ["FIRST 10", "MID 1"], ["LAST 11", "MID 2"]),
        (SAME_STEP, SAME_STEP, ["FIRST 10", "MID 1"], ["LAST 11", "MID 2"]),
        (SAME_STEP, DISABLED, ["FIRST 10", "MID 1"], ["LAST 11", "MID 2"]),
        (DISABLED, NEXT_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
        (DISABLED, SAME_STEP, ["LAST 1", "MID 1"], ["FIRST 10", "MID 2"]),
        (DISABLED, DISABLED, ["LAST 1", "MID 1"], None),
    ],
    ids=lambda value: value.value if isinstance(value, AutoReset) else "",
)
def test_the_order_may_change_right_after_an_end(before, after, standing, stepped):
    with pool_of(counted(1, 5), num_workers=2, autoreset=before) as env:
        env.reset()
        env.step([0, 0])
        env.autoreset = after
        now = told(env.current_time_step())
        if stepped is None:
            with pytest.raises(CallOrderError, match="the episode of row 0 ended"):
                env.step([0, 0])
            env.reset([True, False])
        else:
            result = env.step([0, 0])
            assert stepped == told(result)
        order = env.autoreset

    assert standing == now
    assert after is order


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_workers_learn_of_a_changed_order(backend):
    seen = []
    with pool_of(counted(1, 9), backend, num_workers=2) as env:
        env.reset()
        for order in (SAME_STEP, NEXT_STEP, SAME_STEP, DISABLED, SAME_STEP):
            env.autoreset = order
            if env.current_time_step().is_last()[0] and order is DISABLED:
                env.reset([True, False])
            seen.append(told(env.step([0, 0])) + told(env.current_time_step())[:1])

    assert [
        ["LAST 1", "MID 1", "FIRST 10"],
        ["LAST 11", "MID 2", "LAST 11"],
        ["FIRST 20", "MID 3", "FIRST 20"],
        ["LAST 21", "MID 4", "LAST 21"],
        ["FIRST 30", "MID 5", "FIRST 30"],
    ] == seen


@pytest.mark.slow
def test_changing_the_order_steps_no_environment():
    """Workers that are awake look at rows while the parent lets them stand."""
    with pool_of(counted(10**6, 10**6), "process", num_workers=2) as env:
        env.reset()
        for step in range(1, 800):
            env.autoreset = (NEXT_STEP, DISABLED, SAME_STEP)[step % 3]
            assert [step, step] == env.step([0, 0]).observation.tolist()


@with_each_order
def test_a_stale_first_is_never_returned(order):
    """The FIRST of long ago must not come up when the order changes back."""
    with pool_of(counted(2), autoreset=SAME_STEP) as env:
        env.reset()
        env.step([0])
        env.step([0])  # It stands at FIRST 10.
        env.autoreset = NEXT_STEP
        env.step([0])
        last = told(env.step([0]))
        env.autoreset = SAME_STEP
        now = told(env.current_time_step())
        env.autoreset = order
        later = told(env.current_time_step())

    assert ["LAST 12"] == last == now == later


@settings(max_examples=15)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(list(AutoReset)), st.integers(1, 4)), max_size=8
    ),
    lengths=st.lists(st.integers(1, 3), min_size=2, max_size=2),
)
def test_changing_orders_keep_the_same_transitions(changes, lengths):
    makers = traced(lengths)
    steps = sum(count for _, count in changes)
    with pool_of(makers) as env:
        expected = transitions_of(env, steps + 1)
    made = [[] for _ in lengths]
    with pool_of(makers, num_workers=2) as env:
        env.reset()
        for order, count in changes:
            env.autoreset = order
            for _ in range(count):
                note_transition(env, made, policy)

    for column, whole in zip(made, expected, strict=True):
        assert whole[: len(column)] == column


def test_views_stay_valid_when_the_order_changes():
    with pool_of(counted(1, 3), zero_copy=True, autoreset=SAME_STEP) as env:
        env.reset()
        shown = env.step([0, 0])
        before = told(shown)
        env.autoreset = NEXT_STEP
        assert before == told(shown)


# The asynchronous pool.


def test_an_asynchronous_pool_supports_all_orders(backend):
    seen = {}
    for order in AutoReset:
        with streams.async_pool_of(counted(1), backend, autoreset=order) as env:
            env.reset_async()
            env.recv()
            env.send([0])
            last = told(env.recv().time_step)
            now = told(env.current_time_step())
            if order is DISABLED:
                with pytest.raises(CallOrderError, match="the episode of row 0 ended"):
                    env.send([0])
                env.reset_async([0])
            else:
                env.send([0])
            seen[order] = (last, now, told(env.recv().time_step))

    assert {
        NEXT_STEP: (["LAST 1"], ["LAST 1"], ["FIRST 10"]),
        SAME_STEP: (["LAST 1"], ["FIRST 10"], ["LAST 11"]),
        DISABLED: (["LAST 1"], ["LAST 1"], ["FIRST 10"]),
    } == seen


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NEXT_STEP, SAME_STEP, (["LAST 1"], ["FIRST 10"])),
        (SAME_STEP, NEXT_STEP, (["FIRST 10"], ["LAST 11"])),
        (SAME_STEP, DISABLED, (["FIRST 10"], ["LAST 11"])),
        (DISABLED, NEXT_STEP, (["LAST 1"], ["FIRST 10"])),
    ],
)
def test_the_order_of_an_asynchronous_pool_can_change(before, after, expected):
    with AsyncParallelPyEnvironment(
        counted(1), backend="inline", autoreset=before
    ) as env:
        env.reset_async()
        env.recv()
        env.send([0])
        env.recv()
        env.autoreset = after
        now = told(env.current_time_step())
        # Where a FIRST is due, no action is looked at.
        env.send([99] if expected[1] == ["FIRST 10"] else [0])
        stepped = told(env.recv().time_step)

    assert expected == (now, stepped)
