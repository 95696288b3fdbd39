"""`ActionRepeat`, `StickyAction`, `DelayAction`: actions played again or later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, PyEnvironment
from envkit.envs import Catch
from envkit.errors import SpecError
from envkit.testing import CountingEnv
from envkit.time_step import restart, termination, transition
from envkit.wrappers.atari import NoopReset
from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.repeats import ActionRepeat, DelayAction, StickyAction
from tests.wrappers.environments import MovesTogether

FIRST, MID, LAST = 0, 1, 2


class Echo(PyEnvironment):
    """Observes the action it was given, earns it, and ends after `length` steps."""

    def __init__(self, length=5, discount=0.5, most=9):
        super().__init__(handle_auto_reset=True)
        self._most = most
        self._length, self._discount, self._steps = length, discount, 0

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, self._most)

    def reward_spec(self):
        return ArraySpec((2,), np.float64)

    def seed(self, seed):
        pass

    def _reset(self):
        self._steps = 0
        return restart(np.array(-1), reward_spec=self.reward_spec())

    def _step(self, action):
        self._steps += 1
        observation = np.array(action, np.int64)
        reward = np.array([action, 1.0])
        make = termination if self._steps == self._length else transition
        time_step = make(observation, reward, outer_dims=())
        if time_step.is_last():
            return time_step
        return time_step._replace(discount=np.array(self._discount, np.float32))


def echoes(*lengths):
    return BatchedPyEnvironment([Echo(length) for length in lengths], False)


# ActionRepeat.


def test_rewards_of_repetitions_are_added_up():
    env = ActionRepeat(Echo(), 3)
    env.reset()
    reward = env.step(4).reward
    assert [12.0, 3.0] == reward.tolist()
    assert np.float64 == reward.dtype


def test_repetition_stops_at_the_end_of_an_episode():
    env = ActionRepeat(Echo(2), 5)
    env.reset()
    time_step = env.step(4)
    assert LAST == time_step.step_type
    assert [8.0, 2.0] == time_step.reward.tolist()


def test_repetition_stops_at_the_beginning_of_an_episode():
    env = ActionRepeat(Echo(3), 5)
    env.reset()
    env.step(4)
    time_step = env.step(4)
    assert FIRST == time_step.step_type
    assert [0.0, 0.0] == time_step.reward.tolist()


def test_the_discount_comes_from_the_last_step_made():
    env = ActionRepeat(Echo(discount=0.5), 2)
    env.reset()
    assert 0.5 == env.step(1).discount


def test_a_sum_of_the_largest_rewards_fits_its_spec():
    class Paying(Echo):
        def reward_spec(self):
            return BoundedArraySpec((2,), np.float32, -0.1, 0.1)

        def _step(self, action):
            reward = np.full(2, 0.1, np.float32)
            return super()._step(action)._replace(reward=reward)

    env = ActionRepeat(Paying(99), 10)
    env.reset()
    assert env.reward_spec().check_array(env.step(1).reward)


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4), times=st.integers(2, 4)
)
def test_a_batch_repeats_like_single_rows(lengths, times):
    batch = ActionRepeat(echoes(*lengths), times)
    singles = [ActionRepeat(Echo(length), times) for length in lengths]
    together = [batch.reset(), *(batch.step([2] * len(lengths)) for _ in range(9))]
    for row, env in enumerate(singles):
        alone = [env.reset(), *(env.step(2) for _ in range(9))]
        for expected, got in zip(alone, together, strict=True):
            assert expected.step_type == got.step_type[row]
            assert expected.reward.tolist() == got.reward[row].tolist()
            assert expected.observation == got.observation[row]


@pytest.mark.parametrize(
    "times",
    [0, -1, 1, 2.0],
)
def test_the_number_of_repetitions_must_be_at_least_two(times, message_of):
    assert message_of(ValueError, lambda: ActionRepeat(Echo(), times)) == (
        "times must be an integer of at least 2 (greater than 1, or nothing is "
        f"repeated), got {times}."
    )


def test_repetition_needs_a_batch_with_masked_steps():
    with pytest.raises(ValueError, match="ActionRepeat cannot wrap MovesTogether"):
        ActionRepeat(MovesTogether(batch_size=2), 3)


def test_the_number_of_repetitions_can_be_read():
    env = ActionRepeat(TimeLimit(CountingEnv(), 9), 3)
    assert 3 == env.times
    assert "ActionRepeat(TimeLimit(CountingEnv(), duration=9), times=3)" == repr(env)


# StickyAction.


def taken(env, actions):
    """Returns what the environment was given, action by action."""
    env.reset()
    return [env.step(action).observation.tolist() for action in actions]


def test_no_action_sticks_with_a_probability_of_0():
    env = StickyAction(Echo(99), 0.0)
    assert list(range(9)) == taken(env, range(9))


def test_a_sticky_action_repeats_the_previous_one():
    env = StickyAction(Echo(99), 0.5)
    env.seed(3)
    given_ = [action % 10 for action in range(90)]
    done = taken(env, given_)
    sticking = [now != wanted for now, wanted in zip(done, given_, strict=True)]
    assert 20 < sum(sticking) < 70
    for place, sticks in enumerate(sticking):
        if sticks:
            assert done[place - 1] == done[place]


def test_the_first_action_of_an_episode_never_sticks():
    env = StickyAction(Echo(1), 0.9)
    env.seed(1)
    env.reset()
    firsts = []
    for action in range(9):
        firsts.append(int(env.step(action).observation))
        env.step(0)
    assert list(range(9)) == firsts


def test_an_action_sticks_for_the_given_duration():
    env = StickyAction(Echo(9999, most=999), 0.2, 4)
    env.seed(1)
    given_ = list(range(500))
    done = taken(env, given_)

    runs, length = [], 0
    for now, wanted in zip(done, given_, strict=True):
        if now != wanted:
            length += 1
        elif length:
            runs.append(length)
            length = 0
    # One may follow at once upon another.
    assert runs
    assert {0} == {run % 4 for run in runs}


def test_two_sticky_wrappers_are_independent():
    env = StickyAction(StickyAction(Echo(99), 0.5), 0.5)
    env.seed(1)
    single = StickyAction(Echo(99), 0.5)
    single.seed(1)
    actions = [step % 10 for step in range(60)]
    assert taken(env, actions) != taken(single, actions)


def test_a_refused_action_draws_no_random_number():
    actions = [step % 10 for step in range(20)]
    streams = []
    for disturb in (False, True):
        env = StickyAction(echoes(99, 99), 0.5)
        env.seed(1)
        env.reset()
        stream = []
        for action in actions:
            if disturb:
                with pytest.raises(SpecError):
                    env.step([1, 99])
                with pytest.raises(SpecError):
                    env.step([1])
            stream.append(env.step([action, action]).observation.tolist())
        streams.append(stream)

    assert streams[0] == streams[1]


def test_an_action_of_a_wrong_shape_is_named(message_of):
    env = StickyAction(echoes(9, 9), 0.5)
    env.reset()
    assert (
        "StickyAction.step() was given an action of incorrect shape that does not fit "
        "its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=0, maximum=9)\n"
        "  got        array of shape (2, 1), dtype int64, values 0 … 0\n\n"
        "The array has 2 dimensions instead of 1.\nNone of the rows has moved."
    ) == message_of(SpecError, lambda: env.step(np.zeros((2, 1), np.int64)))


@pytest.mark.parametrize(
    "probability", [-0.1, 1.0, 1.5, float("nan"), None, "3", [0.5], False]
)
def test_a_probability_must_be_between_0_and_1(probability, message_of):
    assert (
        "repeat_action_probability must be a number from 0 to less than 1, because "
        f"some action must be taken, got {probability!r}."
    ) == message_of(ValueError, lambda: StickyAction(Echo(), probability))


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        (0, "repeat_action_duration must be an integer of at least 1, got 0."),
        ((0, 2), "repeat_action_duration must be an integer of at least 1, got 0."),
        (
            (1, 2, 3),
            (
                "repeat_action_duration must be a number of steps, or two: the fewest "
                "and the most, got (1, 2, 3)."
            ),
        ),
        (
            (3, 2),
            "repeat_action_duration is (3, 2): the fewest steps are more than the "
            "most.",
        ),
    ],
)
def test_a_duration_must_be_a_number_or_a_range(duration, message, message_of):
    assert (message) == message_of(
        ValueError, lambda: StickyAction(Echo(), 0.5, duration)
    )


def test_bounds_of_the_reward_become_those_of_a_sum():
    class Bounded(Echo):
        def reward_spec(self):
            return BoundedArraySpec((2,), np.float64, [-1, 0], [1, 2])

    spec = ActionRepeat(Bounded(), 3).reward_spec()
    assert [-3, 0] == spec.minimum.tolist()
    assert [3, 6] == spec.maximum.tolist()


def played(env, actions):
    return [env.step(action).observation.tolist() for action in actions]


def test_actions_are_delayed():
    env = DelayAction(Echo(length=4), 2, first_action=8)
    # The first step begins the episode; of the last two actions nothing is seen.
    assert (2, 8) == (env.delay, env.first_action)
    assert [-1, 8, 8, 1, 2] == played(env, [9, 1, 2, 3, 4])
    assert [-1, 8, 8, 5, 6] == played(env, [9, 5, 6, 7, 0])


def test_without_a_delay_actions_are_played_at_once():
    assert [-1, 1, 2] == played(DelayAction(Echo(), 0), [9, 1, 2])


def test_the_first_actions_are_zero_or_nearest_to_it():
    class Far(Echo):
        def action_spec(self):
            return BoundedArraySpec((), np.int64, 3, 9)

    assert [-1, 0, 1] == played(DelayAction(Echo(), 1), [9, 1, 2])
    assert [-1, 3, 4] == played(DelayAction(Far(), 1), [9, 4, 5])


def test_a_reset_discards_delayed_actions():
    env = DelayAction(Echo(), 1)
    played(env, [9, 1, 2])
    env.reset()
    assert [0, 3] == played(env, [3, 4])


def test_the_state_of_another_delay_is_refused(message_of):
    token = DelayAction(CountingEnv(), 1).get_state()
    assert (
        "DelayAction.set_state() was given the state of a DelayAction made with other "
        "arguments, or of another environment. A state fits environments that are "
        "wrapped in the same way."
    ) == message_of(ValueError, lambda: DelayAction(CountingEnv(), 2).set_state(token))


def test_the_given_first_action_must_fit():
    with pytest.raises(SpecError, match="DelayAction was given a first_action that"):
        DelayAction(Echo(), 1, first_action=10)
    with pytest.raises(SpecError, match="DelayAction was given a first_action that"):
        DelayAction(Echo(), 1, first_action=[1, 2])


def test_an_action_that_does_not_fit_is_refused_when_it_is_given():
    env = DelayAction(Echo(), 2)
    env.reset()
    with pytest.raises(SpecError, match="given an action"):
        env.step(99)
    assert [0, 0, 1] == played(env, [1, 2, 3])


# The random streams of wrappers.


def test_wrappers_of_different_kinds_draw_from_different_streams():
    noops = NoopReset(Catch(batch_size=3), 5)
    sticky = StickyAction(noops, 0.25)
    sticky.seed(7)
    assert not set(noops._streams.keys) & set(sticky._streams.keys)


def test_wrappers_inside_and_outside_a_batch_draw_from_different_streams():
    rows = [NoopReset(Catch(), 5) for _ in range(3)]
    sticky = StickyAction(BatchedPyEnvironment(rows, multithreading=False), 0.25)
    sticky.seed(7)
    assert not {row._streams.keys[0] for row in rows} & set(sticky._streams.keys)
