"""`PassiveChecker`: what it raises, what it warns of, and what it lets pass."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    TimeStep,
)
from envkit.envs import CartPole, Catch
from envkit.errors import SpecError
from envkit.testing import CheckFailed, CountingEnv, ScriptedEnv, check_environment
from envkit.time_step import restart, termination, transition, truncation
from envkit.wrappers.checking import EnvironmentWarning, PassiveChecker
from envkit.wrappers.limits import FixedLength, TimeLimit
from tests.wrappers.environments import Drive
from tests.wrappers.recorder import Recorder

FIRST, MID, LAST = 0, 1, 2


class Rows(PyEnvironment):
    """A batch of two that returns given time steps, whatever is asked."""

    def __init__(self, *script, action_spec=None, discount_spec=None):
        super().__init__()
        self._script = iter(script)
        self._action = action_spec or BoundedArraySpec((), np.int32, 0, 3)
        self._discount = discount_spec

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return 2

    def observation_spec(self):
        return ArraySpec((), np.float32)

    def action_spec(self):
        return self._action

    def discount_spec(self):
        return self._discount or super().discount_spec()

    def _reset(self):
        return next(self._script)

    def _step(self, action):
        return next(self._script)

    def _reset_rows(self, mask):
        return next(self._script)

    def step_rows(self, action, stepping, beginning=None):
        # Not the hook, which could not touch the other rows.
        return next(self._script)

    def _step_rows(self, action, stepping, beginning):
        raise AssertionError


def rows(first, second, reward=(0.0, 0.0), discount=(1.0, 1.0), observation=(0, 0)):
    return TimeStep(
        np.array([first, second], np.int32),
        np.array(reward, np.float32),
        np.array(discount, np.float32),
        np.array(observation, np.float32),
    )


def scripted(*script, **options):
    return PassiveChecker(ScriptedEnv(script, **options))


def play(env, steps):
    for _ in range(steps):
        env.step(np.zeros(env.batch_size or (), np.int32))


def told(env, message_of, steps=1):
    """Returns the message of the error in the last of some steps."""
    play(env, steps - 1)
    return message_of(ValueError, lambda: play(env, 1))


def doubts(env, steps):
    """Returns what is warned of in some steps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        play(env, steps)
    return [str(warning.message) for warning in caught]


class Gift(CountingEnv):
    def _reset(self):
        return super()._reset()._replace(reward=np.float32(2))


class Hasty(CountingEnv):
    def _reset(self):
        return super()._reset()._replace(discount=np.float32(0.5))


class Lost(CountingEnv):
    def _step(self, action):
        return super()._step(action)._replace(reward=np.float32(np.nan))


class Generous(CountingEnv):
    def discount_spec(self):
        return ArraySpec((), np.float32)

    def _step(self, action):
        return super()._step(action)._replace(discount=np.float32(3))


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (Gift, "first_reward"),
        (Hasty, "first_discount"),
        (Lost, "reward"),
        (Generous, "discount"),
    ],
)
def test_findings_match_those_of_check_environment(make, check):
    with pytest.raises(CheckFailed) as failed:
        check_environment(make, steps=20)
    text = {outcome.check: outcome.text for outcome in failed.value.report.outcomes}
    with pytest.raises(SpecError) as found:
        play(PassiveChecker(make()), 9)
    assert check == found.value.check
    assert f"{make.__name__}.{text[check]}" == str(found.value)


# What passes.


@pytest.mark.parametrize("size", [None, 3])
def test_time_steps_are_returned_unchanged(size):
    plain, checked = (CartPole(batch_size=size, seed=1) for _ in range(2))
    checked = PassiveChecker(checked)
    actions = np.ones(size or (), np.int64)
    for _ in range(30):
        ours, theirs = checked.step(actions), plain.step(actions)
        assert all(
            np.array_equal(*pair) and pair[0].dtype == pair[1].dtype
            for pair in zip(ours, theirs, strict=True)
        )


def test_episodes_that_are_padded_pass():
    env = PassiveChecker(FixedLength(CountingEnv(steps_per_episode=2), 4))
    assert [0, 1, 2, 2, 2, 0] == [int(env.step(0).step_type) for _ in range(6)]


def test_a_batch_whose_episodes_the_wrapper_begins_passes():
    rows = [Drive(length) for length in (2, 3)]
    for row in rows:
        row._handle_auto_reset = False
    env = PassiveChecker(BatchedPyEnvironment(rows, False), handle_auto_reset=True)
    action = {"gear": np.ones(2, np.int64), "wheel": np.zeros((2, 2), np.float32)}
    for _ in range(9):
        env.step(action)


def test_an_environment_whose_episodes_the_wrapper_begins_passes():
    class Stuck(Recorder):
        def __init__(self):
            super().__init__(ArraySpec((), np.int32), 1, 3)
            self._handle_auto_reset = False

        # Rows that have ended stay at their LAST.
        def _step(self, action):
            self._steps = np.minimum(self._steps + 1, self._lengths)
            return self._time_step()

        _step_rows = PyEnvironment._step_rows

    env = PassiveChecker(Stuck(), handle_auto_reset=True)
    assert [[0, 0], [2, 1], [0, 1], [2, 2], [0, 0]] == [
        env.step([0, 0]).step_type.tolist() for _ in range(5)
    ]


def test_a_pool_passes():
    with ParallelPyEnvironment([lambda: Catch(seed=1)] * 2, backend="inline") as pool:
        env = PassiveChecker(TimeLimit(pool, 4))
        for _ in range(12):
            env.step([0, 1])
        env.reset(np.array([True, False]))


# Actions.


def test_an_action_out_of_bounds_is_refused_before_the_environment_steps(message_of):
    inside = Recorder(BoundedArraySpec((), np.int32, 0, 3))
    env = PassiveChecker(inside)
    env.reset()
    assert (
        "Recorder.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=3)\n"
        "  got        array of shape (), dtype int32, values 4 … 4\n\n"
        "The value 4 is above the maximum 3.\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step(4))
    assert [] == inside.given


def test_an_action_of_another_structure_is_refused(message_of):
    env = PassiveChecker(Drive())
    env.reset()
    assert (
        "Drive.step() was given an action that does not fit its spec.\n\n"
        "  expected   the structure {'gear': *, 'wheel': *}\n"
        "  got        3 of type int\n\n"
        "The value is a single int; a dictionary is expected."
    ) == message_of(ValueError, lambda: env.step(3))


def test_the_place_of_a_wrong_action_is_named(message_of):
    env = PassiveChecker(Drive())
    env.reset()
    action = {"gear": 1, "wheel": np.zeros(3)}
    assert (
        "Drive.step() was given an action that does not fit its spec at "
        "action['wheel'].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=[-1.0, "
        "-2.0], maximum=[1.0, 2.0])\n"
        "  got        array of shape (3,), dtype float32, values 0.0 … 0.0\n\n"
        "Axis 0 has size 3 instead of 2.\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step(action))


def test_a_wrong_action_of_one_row_is_refused(message_of):
    inside = Recorder(BoundedArraySpec((), np.int32, 0, 3), 5, 5)
    env = PassiveChecker(inside)
    env.reset()
    assert (
        "Recorder.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int32, minimum=0, maximum=3)\n"
        "  got        array of shape (2,), dtype int32, values 1 … 9\n\n"
        "1 of 2 elements is above the maximum 3: 9 at index (1,).\n"
        "None of the rows has moved."
    ) == message_of(ValueError, lambda: env.step([1, 9]))
    assert [] == inside.given


def test_nan_is_refused_in_bounded_actions(message_of):
    env = PassiveChecker(Recorder(BoundedArraySpec((2,), np.float32, -1, 1)))
    env.reset()
    assert (
        "Recorder.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, "
        "maximum=1.0)\n"
        "  got        array of shape (2,), dtype float32, values 0.0 … 0.0 and NaN\n\n"
        "1 of 2 elements is NaN, which no bounds contain.\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step([0.0, np.nan]))


def test_nan_is_refused_in_unbounded_actions(message_of):
    env = PassiveChecker(Recorder(ArraySpec((), np.float32)))
    env.reset()
    assert (
        "Recorder.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=float32, "
        "minimum=-3.4028235e+38, maximum=3.4028235e+38)\n"
        "  got        array of shape (), dtype float32, all NaN\n\n"
        "The value is NaN, which no bounds contain.\n"
        "The environment has not moved."
    ) == message_of(ValueError, lambda: env.step(np.nan))


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        (ArraySpec((), np.int32), 3),
        (ArraySpec((2,), np.int32), [True, 2]),
        (ArraySpec((2,), np.uint8), np.array([0, 255])),
        (ArraySpec((), np.float32), 0.1),
        (ArraySpec((), np.float32), 7),
        (ArraySpec((), np.bool_), True),
        (ArraySpec((), np.complex64), 1.0),
        (ArraySpec((), "U5"), np.array("left")),
        (ArraySpec((), object), np.array(None)),
        ((), ()),
    ],
)
def test_values_that_the_spec_can_hold_pass(spec, action):
    env = PassiveChecker(Recorder(spec))
    env.reset()
    assert env.step(action).is_mid()


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        (ArraySpec((), np.int32), 3.0),
        (ArraySpec((), np.int32), 2**40),
        (ArraySpec((), np.uint8), np.array(-1)),
        (ArraySpec((), np.float16), 1e9),
        (ArraySpec((), np.bool_), 1),
        (ArraySpec((), "U2"), np.array("left")),
        (ArraySpec((), np.float32), None),
        (ArraySpec((), np.float32), "left"),
        (ArraySpec((2,), np.int32), [[1], [2, 3]]),
        (ArraySpec((), np.float32), np.inf),
        ((), 0),
    ],
)
def test_values_that_the_spec_cannot_hold_are_refused(spec, action):
    env = PassiveChecker(Recorder(spec))
    env.reset()
    with pytest.raises(ValueError, match=r"Recorder.step\(\) was given an action that"):
        env.step(action)


def test_an_unused_action_may_be_anything():
    env = PassiveChecker(CountingEnv(steps_per_episode=1))
    assert [0, 2, 0] == [int(env.step(action).step_type) for action in (None, 1, "x")]


def test_unused_actions_of_rows_may_be_anything():
    spec = BoundedArraySpec((), np.int32, 1, 3), ArraySpec((), np.float32)
    env = PassiveChecker(Recorder(spec, 1, 9))
    env.reset()
    env.step(([1, 1], [0.0, 0.0]))
    env.step(([77, 1], [np.nan, 0.0]))
    mask = np.array([False, True])
    assert [0, 1] == env.step(([77, 1], [np.nan, 0.0]), mask).step_type.tolist()


def test_unused_actions_of_rows_must_have_their_shape():
    env = PassiveChecker(Recorder(BoundedArraySpec((), np.int32, 1, 3), 1, 9))
    env.reset()
    env.step([1, 1])
    with pytest.raises(ValueError, match="Axis 0 has size 3 instead of 2"):
        env.step([77, 1, 1])


class Clips(Recorder):
    def _step(self, action):
        np.clip(action, -1, 1, out=action)
        return super()._step(action)


def test_an_environment_that_writes_into_the_action_is_refused(message_of):
    env = PassiveChecker(Clips(ArraySpec((2,), np.float32)))
    env.reset()
    assert (
        "Clips.step() changed the action it was given.\n\n"
        "  given   action = 3.0 at index (1,)\n"
        "  after   action = 1.0 at index (1,)\n\n"
        "The action belongs to the caller, who may store it. Copy it before changing "
        "it: np.clip(action, low, high) makes a new array."
    ) == message_of(ValueError, lambda: env.step(np.array([0, 3], np.float32)))


class Echo(Recorder):
    """Observes its action."""

    def observation_spec(self):
        return ArraySpec((2,), np.float32)

    def _time_step(self):
        seen = self.given[-1] if self.given else np.zeros(2, np.float32)
        return super()._time_step()._replace(observation=seen)

    def _step(self, action):
        self.given.append(action)
        self._steps = self._steps + 1
        return self._time_step()


def test_an_environment_that_returns_the_action_itself_is_refused(message_of):
    env = PassiveChecker(Echo(ArraySpec((2,), np.float32)))
    env.reset()
    assert (
        "Echo.step() returned the action it was given: observation and action share "
        "memory.\n\n"
        "  expected   arrays that belong to the caller alone\n"
        "  got        observation in the memory of action\n\n"
        "The next action may be written into the same array. Return a copy: "
        "np.array(action)."
    ) == message_of(ValueError, lambda: env.step(np.zeros(2, np.float32)))


def test_interleaved_views_share_no_memory():
    both = np.zeros(4, np.float32)

    class Between(Echo):
        def _time_step(self):
            return super()._time_step()._replace(observation=both[1::2])

    env = PassiveChecker(Between(ArraySpec((2,), np.float32)))
    env.reset()
    assert env.step(both[::2]).is_mid()


def test_a_float_out_of_bounds_warns_once_per_place():
    spec = {
        "gas": BoundedArraySpec((), np.float32, 0, 1),
        "wheel": BoundedArraySpec((), np.float32, -1, 1),
    }
    env = PassiveChecker(Recorder(spec))
    env.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for wheel in (3.0, 4.0, 0.0):
            env.step({"gas": 0.5, "wheel": wheel})

    assert [
        "Recorder.step() was given an action that does not fit its spec at "
        "action['wheel'].\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=float32, minimum=-1.0, "
        "maximum=1.0)\n"
        "  got        array of shape (), dtype float32, values 3.0 … 3.0\n\n"
        "The value 3.0 is above the maximum 1.0.\n\n"
        "Many environments clip such actions, but not all. To be sure, call np.clip "
        "yourself."
    ] == [str(warning.message) for warning in caught]


def test_warnings_point_at_the_caller():
    env = PassiveChecker(Recorder(BoundedArraySpec((), np.float32, 0, 1)))
    env.reset()
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(EnvironmentWarning) as caught:
        env.step(7.0)
    assert (__file__, line) == (caught[0].filename, caught[0].lineno)


# Time steps that do not fit.


def test_anything_but_a_time_step_is_refused(message_of):
    class Gym:
        batched, batch_size = False, None
        inside = Recorder(ArraySpec((), np.int32))

        def reset(self):
            return np.zeros(2), {}

        def __getattr__(self, name):
            return getattr(self.inside, name)

    env = PassiveChecker(Gym())

    assert (
        "Gym.reset() returned a tuple of 2 elements, not a TimeStep. Build it with "
        "envkit.restart, transition, termination or truncation.\n\n"
        "This was the first reset()."
    ) == message_of(ValueError, env.reset)


def test_a_batch_without_its_dimension_is_refused(message_of):
    env = PassiveChecker(Rows(rows(0, 0), rows(1, 1)._replace(reward=np.float32(0))))
    assert (
        "Rows.step() returned a time step that does not fit its spec at reward.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float32, name='reward')\n"
        "  got        0.0 of type float32\n\n"
        "The value is a single number; an array of shape (2,) is expected. The other "
        "3 leaves fit.\n"
        "This came after call 1."
    ) == told(env, message_of, 2).replace("np.float32(0.0)", "0.0")


# The order of step types.


def test_a_reset_begins_an_episode(message_of):
    env = PassiveChecker(Rows(rows(0, 1)))
    assert (
        "Rows.reset() returned MID in row 1.\n\n"
        "  expected   FIRST\n"
        "  got        MID\n\n"
        "An episode begins with envkit.restart(observation). This was the first "
        "reset()."
    ) == message_of(ValueError, env.reset)


def test_a_masked_reset_must_begin_episodes(message_of):
    env = PassiveChecker(Rows(rows(0, 0), rows(1, 1), rows(1, 1)))
    play(env, 2)
    assert (
        "Rows.reset(mask) returned MID in row 1.\n\n"
        "  expected   FIRST\n"
        "  got        MID\n\n"
        "An episode begins with envkit.restart(observation). This came after call 2."
    ) == message_of(ValueError, lambda: env.reset(np.array([False, True])))


def test_the_step_after_last_begins_an_episode(message_of):
    script = [restart(np.zeros(1)), termination(np.zeros(1), 0.0)]
    env = scripted(*script, transition(np.zeros(1), 0.0))
    assert (
        "ScriptedEnv.step() after LAST returned MID, after step 1 of episode 1.\n\n"
        "  expected   FIRST\n"
        "  got        MID\n\n"
        "The step after LAST must begin the next episode and ignore its action. "
        "PyEnvironment does so if you pass it handle_auto_reset=True."
    ) == told(env, message_of, 3)


def test_held_rows_must_not_change(message_of):
    env = PassiveChecker(Rows(rows(0, 0), rows(1, 1), rows(1, 1, observation=(3, 4))))
    play(env, 2)
    assert (
        "Rows.step(action, mask) changed row 1, which had to stay as it was.\n\n"
        "  before   observation = 0.0\n"
        "  after    observation = 4.0\n\n"
        "_reset_rows(mask) must begin an episode in the masked rows only, and "
        "_step_rows(action, stepping, beginning) must leave the others as they are."
    ) == message_of(ValueError, lambda: env.step([0, 0], np.array([True, False])))


def test_held_rows_pass():
    env = PassiveChecker(Rows(rows(0, 0), rows(1, 1), rows(1, 1, observation=(3, 0))))
    play(env, 2)
    time_step = env.step([0, 0], np.array([True, False]))
    assert [3.0, 0.0] == time_step.observation.tolist()


def test_after_an_error_checking_continues_from_the_next_step():
    env = scripted(
        restart(np.zeros(1)),
        restart(np.zeros(1)),
        truncation(np.zeros(1), 0.0),
    )
    env.reset()
    with pytest.raises(ValueError, match="from FIRST to FIRST"):
        env.step(0)
    assert env.step(0).is_last()


# Values.


def test_a_first_must_have_no_reward(message_of):
    env = PassiveChecker(Rows(rows(0, 0, reward=(0, 2))))
    assert (
        "Rows.reset() returned a FIRST whose reward is not 0, in row 1, step 0 of its "
        "episode 1.\n\n"
        "  expected   reward = 0\n"
        "  got        reward = 2.0 (float32)\n\n"
        "No action has earned a reward yet; the last action's reward belongs to the "
        "LAST. envkit.restart(observation) sets it to 0."
    ) == message_of(ValueError, env.reset)


def test_a_first_must_have_the_discount_1(message_of):
    env = scripted(restart(np.zeros(1))._replace(discount=np.float32(0.5)))
    assert (
        "ScriptedEnv.reset() returned a FIRST whose discount is not 1, in step 0 of "
        "episode 1.\n\n"
        "  expected   discount = 1\n"
        "  got        discount = 0.5 (float32)\n\n"
        "envkit.restart(observation) sets it to 1."
    ) == message_of(ValueError, env.reset)


@pytest.mark.parametrize("discount", [1.5, -0.5])
def test_discounts_must_be_within_their_bounds(message_of, discount):
    spec = ArraySpec((), np.float32)
    env = PassiveChecker(
        Rows(rows(0, 0), rows(1, 1, discount=(1, discount)), discount_spec=spec)
    )
    assert (
        "Rows.step() returned a discount that is not between 0 and 1, in row 1, step "
        "1 of its episode 1.\n\n"
        "  expected   0 <= discount <= 1\n"
        f"  got        discount = {discount} (float32)\n\n"
        "It is the weight of later rewards: 0 after a termination, otherwise usually "
        "1. To allow other values, declare them in discount_spec()."
    ) == told(env, message_of, 2)


def test_rewards_of_another_kind_pass():
    class Coins(Recorder):
        def reward_spec(self):
            return {"coins": ArraySpec((2,), np.int64), "won": ArraySpec((), bool)}

        def _time_step(self):
            reward = {"coins": np.zeros(2, np.int64), "won": np.array(False)}
            return super()._time_step()._replace(reward=reward)

    env = PassiveChecker(Coins(ArraySpec((), np.int32)))
    play(env, 4)
    assert env.current_time_step().is_mid()


def test_nonfinite_values_warn_once_per_place():
    first = restart({"near": np.zeros(2), "far": np.zeros(2)})
    odd = {"near": np.array([0.0, np.nan]), "far": np.array([np.inf, 0.0])}
    env = scripted(first, transition(odd, np.inf), transition(odd, np.inf))
    advice = (
        "Everything a learner computes from it will be NaN or infinite too. If "
        "infinity is intended, use a large number instead; if not, give the spec "
        "bounds."
    )

    assert [
        "ScriptedEnv.step() returned a reward that is not finite, in step 1 of episode "
        "1.\n\n"
        "  expected   a finite number\n"
        "  got        reward = inf (float32)\n\n"
        "It spoils every sum, mean and gradient computed from it. "
        "numpy.seterr(all='raise') shows where it comes from.",
        "ScriptedEnv.step() returned observation['far'] = [inf, 0.0] (float64), in "
        f"step 1 of episode 1. {advice}",
        "ScriptedEnv.step() returned observation['near'] = [0.0, nan] (float64), in "
        f"step 1 of episode 1. {advice}",
    ] == doubts(env, 3)


def test_a_mid_with_discount_0_warns():
    env = PassiveChecker(
        Rows(rows(0, 0), rows(1, 1, discount=(1, 0)), rows(1, 1, discount=(0, 0)))
    )
    assert [
        "Rows.step() returned a MID with discount 0, in row 1, step 1 of its episode "
        "1: later rewards count nothing, yet the episode goes on. To end it, return "
        "envkit.termination(observation, reward)."
    ] == doubts(env, 3)


# Arrays that change afterwards.


class Board(Recorder):
    """Returns the same array all the time."""

    def __init__(self, *lengths):
        super().__init__(BoundedArraySpec((), np.int32, 0, 3), *lengths)
        self.board = np.zeros((*self._lengths.shape, 3))

    def observation_spec(self):
        return ArraySpec((3,), np.float64)

    def _time_step(self):
        self.board[..., 1] = self._steps
        return super()._time_step()._replace(observation=self.board)


def test_a_batch_changed_after_its_return_is_refused(message_of):
    env = PassiveChecker(Board(5, 5))
    message = told(env, message_of, 3 - 1).splitlines()
    assert (
        "A time step of Board was overwritten after it was returned, in call 1, before "
        "step() returned the next."
    ) == message[0]
    assert "  returned   observation = 0.0 at index (0, 1)" == message[2]


def test_a_changed_time_step_is_reported_once():
    env = PassiveChecker(Board())
    env.reset()
    with pytest.raises(ValueError, match="was overwritten after it was returned"):
        env.step(0)
    assert env.step(0).is_mid()


def test_rendering_that_changes_a_time_step_is_noticed():
    board = Board()
    env = PassiveChecker(board)
    env.reset()
    board.board[2] = 7.0
    with pytest.raises(ValueError, match=r"now        observation = 7.0 at index \(2,"):
        env.reset()


def test_an_unchanged_nan_counts_as_unchanged():
    env = scripted(restart(np.array([np.nan])), transition(np.array([np.nan]), 0.0))
    with pytest.warns(EnvironmentWarning):
        play(env, 2)


def test_restoring_a_state_forgets_returned_time_steps():
    board = Board()
    env = PassiveChecker(board)
    board._get_state, board._set_state = lambda: None, lambda state: None
    env.reset()
    env.set_state(env.get_state())
    assert env.step(0).is_mid()


def test_objects_are_not_inspected():
    env = PassiveChecker(
        ScriptedEnv(
            [restart(np.array([object()])), transition(np.array([3], object), 0)]
        )
    )
    play(env, 2)


# What else is asked for.


def test_an_info_that_does_not_pickle_is_refused(message_of):
    inside = Recorder(ArraySpec((), np.int32))
    inside.get_info = lambda: {"f": lambda: None}
    message = message_of(ValueError, PassiveChecker(inside).get_info)
    assert message.startswith(
        "Recorder.get_info() returned a value that does not pickle: "
    )
    assert message.endswith(
        "\n\nIt is sent between processes, so it must be plain data such as arrays and "
        "numbers, without open files or lambdas."
    )


def test_a_state_that_does_not_pickle_is_refused():
    inside = Recorder(ArraySpec((), np.int32))
    inside._get_state = lambda: (n for n in range(3))
    inside.get_state = inside._get_state
    env = PassiveChecker(inside)
    env.reset()
    with pytest.raises(
        ValueError, match=r"get_state\(\) returned a value that does not"
    ):
        env.get_state()


def test_anything_but_a_picture_is_refused(message_of):
    inside = Recorder(ArraySpec((), np.int32), 1, 1)
    inside.render = lambda mode: np.zeros((2, 4, 4))
    assert (
        'Recorder.render("rgb_array") did not return a picture.\n\n'
        "  expected   uint8 array of shape (2, height, width, 3)\n"
        "  got        array of shape (2, 4, 4), dtype float64, values 0.0 … 0.0\n\n"
        "One picture for each row, colours last, values from 0 to 255."
    ) == message_of(ValueError, PassiveChecker(inside).render)


def test_other_render_modes_are_not_checked():
    inside = Recorder(ArraySpec((), np.int32))
    inside.render = lambda mode: f"a {mode}"
    assert "a text" == PassiveChecker(inside).render("text")


def test_specs_must_not_change(message_of):
    inside = Recorder(BoundedArraySpec((), np.int32, 0, 3))
    env = PassiveChecker(inside)
    env.reset()
    inside._action_spec = BoundedArraySpec((), np.int32, 0, 4)
    assert (
        "Recorder.action_spec() returned another spec than before.\n\n"
        "  first   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=3)\n"
        "  then    BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=4)\n\n"
        "The maximum differs: 3 and 4. Callers ask once and keep the first answer: "
        "build the specs in __init__ and return them."
    ) == message_of(ValueError, env.reset)


def test_specs_are_checked_at_construction(message_of):
    assert (
        "Recorder.action_spec() returned None, not an ArraySpec. Did a return "
        "statement get lost?"
    ) == message_of(TypeError, lambda: PassiveChecker(Recorder(None)))


def test_repr_shows_the_checked_chain():
    assert "PassiveChecker(Catch())" == repr(PassiveChecker(Catch()))


# What a step returns that it must not, and in which step it is noticed.
REFUSED = {
    "an observation that does not fit": (
        lambda: scripted(
            restart(np.zeros(2)),
            transition(np.zeros(3), 0.0),
            transition(np.zeros(3), 0.0),
        ),
        2,
        "ScriptedEnv.step() returned a time step that does not fit its spec at "
        "observation.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float64)\n"
        "  got        array of shape (3,), dtype float64, values 0.0 … 0.0\n\n"
        "Axis 0 has size 3 instead of 2. The other 3 leaves fit.\n"
        "This came after step 0 of episode 1.",
    ),
    "an observation of another structure": (
        lambda: scripted(restart([np.zeros(2)]), transition(np.zeros(2), 0.0)),
        2,
        "ScriptedEnv.step() returned a time step that does not fit its spec at "
        "observation.\n\n"
        "  expected   the structure [*]\n"
        "  got        array of shape (2,), dtype float64, values 0.0 … 0.0\n\n"
        "The value is a single ndarray; a list is expected. The other 3 leaves fit.\n"
        "This came after step 0 of episode 1.",
    ),
    "an observation out of bounds": (
        lambda: PassiveChecker(
            ScriptedEnv(
                [restart(np.zeros(())), transition(np.ones(()), 0.0)],
                observation_spec=BoundedArraySpec((), np.float64, 0, 0.5),
            )
        ),
        2,
        "ScriptedEnv.step() returned a time step that does not fit its spec at "
        "observation.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=float64, minimum=0.0, "
        "maximum=0.5)\n"
        "  got        array of shape (), dtype float64, values 1.0 … 1.0\n\n"
        "The value 1.0 is above the maximum 0.5. The other 3 leaves fit.\n"
        "This came after step 0 of episode 1.",
    ),
    "unknown step types": (
        lambda: PassiveChecker(Rows(rows(0, 0), rows(1, 3))),
        2,
        "Rows.step() returned the step type 3 in row 1.\n\n"
        "  expected   FIRST (0), MID (1) or LAST (2)\n"
        "  got        3\n\n"
        "Build time steps with envkit.restart, transition, termination or truncation, "
        "which set the step type. This came after call 1.",
    ),
    "an episode does not begin before the one before has ended": (
        lambda: scripted(restart(np.zeros(1)), transition(np.zeros(1), 0.0)),
        3,
        "ScriptedEnv.step() went from MID to FIRST, after step 1 of episode 1.\n\n"
        "  expected   MID or LAST\n"
        "  got        FIRST\n\n"
        "An episode must end with a LAST, or learners miss its end: return "
        "envkit.termination or envkit.truncation before the next FIRST.",
    ),
    "an end in one row ends no other": (
        lambda: PassiveChecker(Rows(rows(0, 0), rows(1, 2), rows(0, 0))),
        3,
        "Rows.step() went from MID to FIRST, after row 0, step 1 of its episode 1.\n\n"
        "  expected   MID or LAST\n"
        "  got        FIRST\n\n"
        "Row 1 had ended, and row 0 had not: begin an episode only in the rows that "
        "ended.",
    ),
    "a reward is a number": (
        lambda: scripted(restart(np.zeros(1)), transition(np.zeros(1), np.nan)),
        2,
        "ScriptedEnv.step() returned a reward that is not finite, in step 1 of episode "
        "1.\n\n"
        "  expected   a finite number\n"
        "  got        reward = nan (float32)\n\n"
        "It spoils every sum, mean and gradient computed from it. "
        "numpy.seterr(all='raise') shows where it comes from.",
    ),
    "a time step that is written to later": (
        lambda: PassiveChecker(Board()),
        2,
        "A time step of Board was overwritten after it was returned, in step 0 of "
        "episode 1, before step() returned the next.\n\n"
        "  returned   observation = 0.0 at index (1,)\n"
        "  now        observation = 1.0 at index (1,)\n\n"
        "Callers keep time steps, in a replay buffer for instance, and would find "
        "later values in them. Return copies of arrays you write to again: "
        "self._state.copy().",
    ),
}


@pytest.mark.parametrize(("make", "steps", "message"), REFUSED.values(), ids=REFUSED)
def test_a_step_that_breaks_the_contract_is_refused(make, steps, message, message_of):
    assert message == told(make(), message_of, steps)
