"""`TimeLimit` and `FixedLength`: how many steps an episode has."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import (
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RandomPyEnvironment,
)
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.envs import CartPole, Catch, TicTacToe
from envkit.testing import CountingEnv, ManualClock, ScriptedEnv
from envkit.time_step import restart, transition, truncation
from envkit.wrappers.limits import EpisodeLimit, FixedLength, TimeLimit
from envkit.wrappers.statistics import RecordEpisodeStatistics
from tests.wrappers.environments import MovesTogether

FIRST, MID, LAST = 0, 1, 2


def counters(*lengths):
    return BatchedPyEnvironment([CountingEnv(length) for length in lengths], False)


def step_types(env, steps):
    """Returns the step types of a reset and so many steps, by moment."""
    actions = np.zeros(env.batch_size or (), np.int32)
    stream = [env.reset(), *(env.step(actions) for _ in range(steps))]
    return [time_step.step_type.tolist() for time_step in stream]


# TimeLimit.


def test_the_step_at_the_limit_is_the_last():
    env = TimeLimit(CountingEnv(10), 3)
    assert [FIRST, MID, MID, LAST, FIRST, MID] == step_types(env, 5)


def test_a_truncation_keeps_the_discount():
    env = TimeLimit(CountingEnv(10), 1)
    env.reset()
    assert 1.0 == env.step(0).discount


def test_an_episode_can_end_before_the_limit():
    env = TimeLimit(CountingEnv(2), 3)
    types = step_types(env, 2)
    assert [FIRST, MID, LAST] == types
    assert 0.0 == env.current_time_step().discount


def test_an_end_at_the_limit_stays_a_termination():
    env = TimeLimit(CountingEnv(3), 3)
    step_types(env, 3)
    assert 0.0 == env.current_time_step().discount


def test_a_reset_in_mid_episode_restarts_the_count():
    env = TimeLimit(CountingEnv(10), 3)
    step_types(env, 2)
    assert [FIRST, MID, MID, LAST] == step_types(env, 3)


def test_a_truncated_episode_counts_as_abandoned_inside():
    """The environment never learns of it: `CountingEnv` counts ends it has seen."""
    env = TimeLimit(CountingEnv(10), 2)
    observations = [int(env.step(0).observation) for _ in range(6)]
    assert [0, 1, 2, 0, 1, 2] == observations


def test_the_duration_can_be_read():
    env = TimeLimit(CountingEnv(), 7)
    assert 7 == env.duration
    assert "TimeLimit(CountingEnv(), duration=7)" == repr(env)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    duration=st.integers(1, 6),
)
def test_every_episode_is_as_long_as_its_own_end_and_the_limit_allow(lengths, duration):
    types = np.array(step_types(TimeLimit(counters(*lengths), duration), 20))
    for row, length in enumerate(lengths):
        period = [FIRST, *[MID] * (min(length, duration) - 1), LAST]
        expected = (period * 21)[:21]
        assert expected == types[:, row].tolist()


@pytest.mark.parametrize("duration", [0, -1, 2.5, True, "3"])
def test_a_limit_must_be_a_positive_integer(duration, message_of):
    assert (
        f"duration must be an integer of at least 1, got {duration!r}."
    ) == message_of(ValueError, lambda: TimeLimit(CountingEnv(), duration))


@pytest.mark.parametrize("seconds", [0, -1, True, "3", float("inf"), float("nan")])
def test_a_limit_in_seconds_must_be_positive(seconds):
    with pytest.raises(ValueError, match="seconds must be a positive number"):
        TimeLimit(CountingEnv(), seconds=seconds)


def test_a_limit_needs_steps_or_seconds(message_of):
    assert ("TimeLimit needs a duration in steps, or seconds, or both.") == message_of(
        TypeError, lambda: TimeLimit(CountingEnv())
    )


class Ageing(CountingEnv):
    """Each step takes a second of a clock."""

    def __init__(self, clock, length=10):
        super().__init__(length)
        self.clock = clock

    def _step(self, action):
        self.clock.advance(1.0)
        return super()._step(action)


def test_the_first_step_after_the_time_limit_is_the_last():
    clock = ManualClock()
    env = TimeLimit(Ageing(clock), seconds=2.5, now=clock)
    assert [FIRST, MID, MID, LAST, FIRST, MID] == step_types(env, 5)
    assert "TimeLimit(" in repr(env)
    assert repr(env).endswith(", seconds=2.5)")


def test_time_and_steps_can_both_be_limited():
    clock = ManualClock()
    quick = TimeLimit(Ageing(clock), 2, seconds=3.5, now=clock)
    slow = TimeLimit(Ageing(clock), 4, seconds=1.5, now=clock)
    assert [FIRST, MID, LAST, FIRST] == step_types(quick, 3)
    assert [FIRST, MID, LAST, FIRST] == step_types(slow, 3)


def test_each_row_has_its_own_time():
    clock = ManualClock()
    rows = BatchedPyEnvironment([Ageing(clock, 2), Ageing(clock)], False)
    env = TimeLimit(rows, seconds=7.0, now=clock)

    # All rows together take two seconds a step, and a beginning takes none.
    assert [
        [FIRST, FIRST],
        [MID, MID],
        [LAST, MID],
        [FIRST, MID],
        [MID, LAST],
        [LAST, FIRST],
    ] == step_types(env, 5)


def test_the_time_that_has_passed_is_a_part_of_the_state():
    clock = ManualClock()
    env = TimeLimit(Ageing(clock), seconds=2.5, now=clock)
    env.reset()
    env.step(0)
    state = env.get_state()
    clock.advance(100.0)
    env.set_state(state)
    assert [MID, LAST] == [int(env.step(0).step_type) for _ in range(2)]


class BeginsTogether(Catch):
    """A batch that begins all episodes at once, and no single one."""

    resets_rows = False


def test_a_batch_that_cannot_reset_rows_is_refused_at_once(message_of):
    assert (
        "TimeLimit cannot wrap BeginsTogether(batch_size=2): its rows end one by one, "
        "and it cannot begin episodes in some rows alone. Wrap the single environments "
        "before they become a batch, or override _reset_rows(mask) in BeginsTogether."
    ) == message_of(ValueError, lambda: TimeLimit(BeginsTogether(batch_size=2), 3))


def test_step_types_of_other_libraries_are_understood():
    """Whose step types are numbers and not the shared arrays."""

    class Numbers(CountingEnv):
        def _step(self, action):
            time_step = super()._step(action)
            return time_step._replace(step_type=np.int32(time_step.step_type))

    assert [FIRST, MID, LAST, FIRST] == step_types(TimeLimit(Numbers(), 2), 3)


class NeverGoesOn(CountingEnv):
    """Answers each step with the beginning of an episode."""

    def _step(self, action):
        self._current_step += 1
        return restart(self._observe())


class NeverGoesOnBatch(Catch):
    """Is a batch that does the same, and resets single rows."""

    def _step(self, action):
        return self._begin_in_place(super()._step(action))

    def _step_rows(self, action, stepping, beginning):
        return self._begin_in_place(super()._step_rows(action, stepping, beginning))

    def _begin_in_place(self, time_step):
        return time_step._replace(step_type=np.zeros_like(time_step.step_type))


@pytest.mark.parametrize("limit", [TimeLimit, FixedLength])
def test_an_environment_that_only_returns_first_is_ended(limit):
    env = limit(NeverGoesOn(), 3)
    assert [FIRST, FIRST, FIRST, LAST, FIRST, FIRST] == step_types(env, 5)


@pytest.mark.parametrize("limit", [TimeLimit, FixedLength])
@pytest.mark.parametrize(
    "rows",
    [
        lambda: BatchedPyEnvironment([NeverGoesOn(), NeverGoesOn()], False),
        lambda: NeverGoesOnBatch(batch_size=2),
    ],
)
def test_rows_that_only_return_first_are_ended_one_by_one(limit, rows):
    env = limit(rows(), 3)
    env.reset()
    env.step([1, 1])
    env.reset(np.array([False, True]))
    types = [env.step([1, 1]).step_type.tolist() for _ in range(4)]
    assert [[FIRST, FIRST], [LAST, FIRST], [FIRST, LAST], [FIRST, FIRST]] == types


def test_time_limits_end_an_environment_that_only_returns_first():
    class NeverGoesOnSlowly(Ageing):
        def _step(self, action):
            return restart(super()._step(action).observation)

    clock = ManualClock()
    env = TimeLimit(NeverGoesOnSlowly(clock), seconds=2.5, now=clock)
    assert [FIRST, FIRST, FIRST, LAST, FIRST] == step_types(env, 4)


# FixedLength.


def test_a_long_episode_is_truncated():
    env = FixedLength(CountingEnv(10), 2)
    assert [FIRST, MID, LAST, FIRST] == step_types(env, 3)
    env.step(0)
    assert 1.0 == env.step(0).discount


def test_a_short_episode_is_padded_with_repetitions_of_its_last_step():
    env = FixedLength(CountingEnv(2), 4)
    stream = [env.reset(), *(env.step(0) for _ in range(5))]
    assert [FIRST, MID, LAST, LAST, LAST, FIRST] == [
        int(time_step.step_type) for time_step in stream
    ]
    assert [0, 1, 2, 2, 2, 10] == [int(step.observation) for step in stream]
    assert [0, 0, 1, 0, 0, 0] == [float(step.reward) for step in stream]


def test_padding_has_no_discount():
    """That of the end stays: the environment below truncates."""
    script = [restart(np.int32(0)), truncation(np.int32(1), 0.5)]
    spec = CountingEnv().observation_spec()
    env = FixedLength(ScriptedEnv(script, spec), 3)
    stream = [env.reset(), *(env.step(0) for _ in range(3))]
    assert [1.0, 1.0, 0.0, 0.0] == [float(step.discount) for step in stream]


def test_changes_to_a_last_step_are_not_repeated():
    env = FixedLength(CountingEnv(1), 3)
    env.reset()
    env.step(0).observation[...] = 77
    assert 1 == env.step(0).observation


def test_the_length_can_be_read():
    env = FixedLength(CountingEnv(), 7)
    assert 7 == env.fix_length
    assert env.repeats_last
    assert "FixedLength(CountingEnv(), fix_length=7)" == repr(env)


@pytest.mark.parametrize("length", [0, 1.5])
def test_a_fixed_length_must_be_a_positive_integer(length, message_of):
    assert (
        f"fix_length must be an integer of at least 1, got {length!r}."
    ) == message_of(ValueError, lambda: FixedLength(CountingEnv(), length))


def test_a_batch_without_masked_steps_is_refused_at_once(message_of):
    assert (
        "FixedLength cannot wrap MovesTogether(batch_size=2): its rows end one by one, "
        "and it cannot leave rows where they are while others step. Wrap the single "
        "environments before they become a batch, or override _step_rows(action, "
        "stepping, beginning) in MovesTogether."
    ) == message_of(ValueError, lambda: FixedLength(MovesTogether(batch_size=2), 3))


def test_a_batch_that_only_resets_as_a_whole_is_refused_at_once():
    class ResetsAll(PyEnvironmentBaseWrapper):
        def _reset(self):
            return self._env.reset()

    with pytest.raises(ValueError, match="cannot begin episodes in some rows alone"):
        FixedLength(ResetsAll(counters(2, 3)), 3)


def test_an_environment_that_does_not_reset_itself_is_reset():
    class Endless(PyEnvironment):
        def observation_spec(self):
            return CountingEnv().observation_spec()

        def action_spec(self):
            return CountingEnv().action_spec()

        def _reset(self):
            return restart(np.int32(0))

        def _step(self, action):
            return transition(np.int32(1), 0.0)

    for wrapper in (TimeLimit, FixedLength):
        assert [FIRST, MID, LAST, FIRST] == step_types(wrapper(Endless(), 2), 3)


def test_padding_works_around_a_wrapper_that_resets():
    env = FixedLength(CountingEnv(2), 4, handle_auto_reset=True)
    assert [FIRST, MID, LAST, LAST, LAST, FIRST] == step_types(env, 5)


def test_a_policy_may_modify_its_observation():
    """As those do that mask illegal actions; meanwhile other rows are held."""
    env = FixedLength(TicTacToe(batch_size=3, seed=1), 9)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        time_step = env.step(rng.integers(0, 9, 3))
        assert (3, 9) == time_step.observation.pop("mask").shape


def test_an_outer_wrapper_keeps_the_padding():
    padded = FixedLength(CountingEnv(2), 4)
    env = PyEnvironmentBaseWrapper(padded, handle_auto_reset=True)
    assert [FIRST, MID, LAST, LAST, LAST, FIRST] == step_types(env, 5)


def test_a_state_of_another_kind_is_refused():
    def make(shape):
        spec = BoundedArraySpec(shape, np.float32, 0, 1)
        return FixedLength(RandomPyEnvironment(spec, (), min_duration=2), 4)

    env, other = make((3,)), make((2,))
    env.reset()
    other.reset()
    with pytest.raises(ValueError, match=r"FixedLength\.set_state"):
        env.set_state(other.get_state())


# What infos say of episodes that have reached the limit.


class Silent(CountingEnv):
    """Has no info."""

    def get_info(self):
        raise NotImplementedError


class Flagged(CountingEnv):
    """Says in its info how it has ended, as environments of Gymnasium do."""

    def get_info(self):
        ended = self._current_time_step.is_last()
        return {"terminated": True, "truncated": False} if ended else {"lives": 1}


def flags_of(info):
    return info["terminated"], info["truncated"]


@pytest.mark.parametrize("limit", [TimeLimit, FixedLength])
@pytest.mark.parametrize("make", [CountingEnv, Silent, Flagged])
def test_an_end_of_both_kinds_keeps_both_flags(make, limit):
    seen = []
    for length in (4, 3, 2):
        env = limit(make(length), 3)
        env.reset()
        while not env.step(0).is_last():
            pass
        info = env.get_info()
        seen.append(flags_of(info) if "truncated" in info else info)
    assert [(False, True), (True, True)] == seen[:2]
    assert ({} if make is not Flagged else (True, False)) == seen[2]


@pytest.mark.parametrize("batch", ["arrays", "rows", "pool of rows", "pool"])
@pytest.mark.parametrize("limit", [TimeLimit, FixedLength])
def test_the_rows_of_a_batch_keep_both_flags(limit, batch):
    def falling(steps):
        return functools.partial(Flagged if batch == "rows" else CountingEnv, steps)

    makers = [falling(steps) for steps in (5, 3, 2)]
    env = {
        "arrays": lambda: limit(BatchedPyEnvironment([make() for make in makers]), 3),
        "rows": lambda: limit(BatchedPyEnvironment([make() for make in makers]), 3),
        "pool": lambda: limit(ParallelPyEnvironment(makers, backend="inline"), 3),
        "pool of rows": lambda: ParallelPyEnvironment(
            [lambda make=make: limit(make(), 3) for make in makers], backend="inline"
        ),
    }[batch]()
    with env:
        env.reset()
        for _ in range(3):
            env.step([0, 0, 0])
        info = env.get_info()

    if isinstance(info, list):
        info = [flags_of(row) if "truncated" in row else None for row in info]
        assert [(False, True), (True, True)] == info[:2]
    else:
        assert [False, True] == info["terminated"].tolist()[:2]
        assert [True, True, False] == info["truncated"].tolist()


@pytest.mark.parametrize("order", ["next_step", "same_step", "disabled"])
def test_both_flags_belong_to_the_returned_step(order):
    env = RecordEpisodeStatistics(TimeLimit(CartPole(2, seed=[7, 8]), 9))
    env.autoreset = order
    env.reset()
    for _ in range(9):
        last = env.step([1, 1])
    info = env.get_info()
    first = TimeLimit(CartPole(2, seed=[7, 8]), 99)
    first.reset()
    falls = [first.step([1, 1]).discount.tolist() for _ in range(9)][-1]
    assert [True, True] == last.is_last().tolist() == info["truncated"].tolist()
    assert [discount == 0.0 for discount in falls] == info["terminated"].tolist()


def test_an_end_at_the_time_limit_has_both_flags():
    clock = ManualClock()
    env = TimeLimit(CountingEnv(2), seconds=5, now=clock)
    env.reset()
    clock.advance(3)
    env.step(0)
    clock.advance(3)
    env.step(0)
    token = env.get_state()
    flags = flags_of(env.get_info())
    env.step(0)
    env.set_state(token)
    assert (True, True) == flags == flags_of(env.get_info())


def test_a_limit_at_which_the_discount_is_0_is_no_termination():
    """Of the step that was cut, only the environment can say that it was the end."""
    script = [
        restart(np.zeros((), np.float32)),
        transition(np.zeros((), np.float32), 0.0, discount=0.0),
        transition(np.zeros((), np.float32), 0.0),
    ]
    env = TimeLimit(ScriptedEnv(script), 1)
    env.reset()
    env.step(0)
    assert (False, True) == flags_of(env.get_info())


# `EpisodeLimit`: so many episodes, and then nothing more.


def test_a_run_ends_after_its_number_of_episodes():
    env = EpisodeLimit(CountingEnv(2), 2)
    stream = [int(env.reset().step_type)]
    while not env.is_over:
        stream.append(int(env.step(0).step_type))
    assert [FIRST, MID, LAST, FIRST, MID, LAST] == stream


def test_after_a_run_the_end_is_repeated_without_reward():
    inner = CountingEnv(1)
    env = EpisodeLimit(inner, 1)
    env.reset()
    end = env.step(0)
    again = env.step(0)
    assert (LAST, end.observation) == (again.step_type, again.observation)
    assert (0.0, 0.0) == (again.reward, again.discount)
    assert not env.valid
    assert LAST == inner.current_time_step().step_type


def test_each_row_has_its_own_episodes():
    env = EpisodeLimit(counters(1, 2), 2)
    env.reset()
    stream, valid = [], []
    while not env.is_over:
        stream.append(env.step(np.zeros(2, int)).step_type.tolist())
        valid.append(env.valid.tolist())
    assert [[LAST, MID], [FIRST, LAST], [LAST, FIRST], [LAST, MID], [LAST, LAST]] == (
        stream
    )
    assert [True, True, True, False, False] == [row[0] for row in valid]


@pytest.mark.parametrize("rows", [None, 2])
def test_a_repeated_end_does_not_count_as_an_episode(rows):
    inner = CountingEnv(1) if rows is None else counters(*[1] * rows)
    env = EpisodeLimit(FixedLength(inner, 3), 2)
    env.reset()
    stream = []
    while not env.is_over:
        action = 0 if rows is None else np.zeros(rows, int)
        stream.append(int(np.max(env.step(action).step_type)))
    assert [LAST, LAST, LAST, FIRST, LAST] == stream


def test_a_reset_begins_a_new_run():
    env = EpisodeLimit(CountingEnv(1), 1)
    env.reset()
    env.step(0)
    env.reset()
    assert not env.is_over
    assert env.valid


def test_a_masked_reset_begins_a_new_run_for_its_rows():
    env = EpisodeLimit(counters(1, 1), 1)
    env.reset()
    env.step(np.zeros(2, int))
    env.reset(np.array([True, False]))
    time_step = env.step(np.zeros(2, int))
    assert [True, False] == env.valid.tolist()
    assert [LAST, LAST] == time_step.step_type.tolist()
    assert env.is_over


def test_batches_without_masked_steps_are_refused():
    with pytest.raises(ValueError, match="cannot leave rows where they are"):
        EpisodeLimit(MovesTogether(batch_size=2), 2)


@pytest.mark.parametrize("episodes", [0, 1.5, True])
def test_the_number_of_episodes_must_be_a_positive_integer(episodes):
    with pytest.raises(ValueError, match="episodes must be "):
        EpisodeLimit(CountingEnv(), episodes)
