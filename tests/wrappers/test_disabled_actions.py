"""ExtraDisabledActionsWrapper: actions that a mask tells agents not to take."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import Catch
from envkit.errors import SpecError
from envkit.random_py_environment import RandomPyEnvironment
from envkit.testing import check_environment
from envkit.wrappers.actions.disabled import ExtraDisabledActionsWrapper
from tests.wrappers.recorder import Recorder

GEAR = BoundedArraySpec((), np.int64, 1, 3)
WHEEL = BoundedArraySpec((2,), np.float32, [-1.0, -2.0], [1.0, 2.0])


def begun(wrapper):
    """Returns a wrapper whose first episode has begun, and what the inside is given."""
    wrapper.reset()
    return wrapper, wrapper.unwrapped.given


def test_a_batch_gets_masks_and_its_usual_rewards():
    """What TF-Agents' own test looks at."""
    inner = RandomPyEnvironment(
        {"obs1": ArraySpec((1,), np.int32), "obs2": ArraySpec((2,), np.int32)},
        BoundedArraySpec((), np.int32, -10, 10),
        reward_fn=lambda step_type, action, observation: action,
        batch_size=5,
    )
    env = ExtraDisabledActionsWrapper(inner, 25)
    env.reset()
    action = np.array([3, -7, 4, 2, 6])

    time_step = env.step(action)

    assert [[1] * 21 + [0] * 25] * 5 == time_step.observation[1].tolist()
    assert action.tolist() == time_step.reward.tolist()


@pytest.mark.parametrize(("lengths", "dims"), [((), ()), ((5, 5), (2,))])
def test_every_time_step_has_the_mask(lengths, dims):
    env = ExtraDisabledActionsWrapper(Recorder(GEAR, *lengths), 2)

    for time_step in (env.reset(), env.step(np.ones(dims, int))):
        mask = time_step.observation[1]

        assert np.int64 == mask.dtype
        assert np.array_equal(np.broadcast_to([1, 1, 1, 0, 0], (*dims, 5)), mask)


def test_the_specs_have_the_mask_and_more_actions():
    env = ExtraDisabledActionsWrapper(Recorder(GEAR), 2)

    assert BoundedArraySpec((), np.int64, 1, 5) == env.action_spec()
    assert (
        BoundedArraySpec((), np.int64, 0, 99),
        BoundedArraySpec((5,), np.int64, 0, 1),
    ) == env.observation_spec()


def test_every_mask_is_an_array_of_its_own():
    env = ExtraDisabledActionsWrapper(Recorder(GEAR, 5, 5), 2)
    env.reset().observation[1][...] = 7

    assert [[1, 1, 1, 0, 0]] * 2 == env.step([1, 1]).observation[1].tolist()


def test_none_may_be_added():
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR), 0))

    env.step(3)

    assert GEAR == env.action_spec()
    assert [3] == inside


def test_an_array_of_equal_choices_has_one_mask():
    spec = BoundedArraySpec((2,), np.int64, [0, 0], [1, 1])
    env = ExtraDisabledActionsWrapper(Recorder(spec, 5, 5, 5), 1)

    assert (3, 3) == env.reset().observation[1].shape


def test_an_extra_action_is_refused():
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR, 5, 5), 2))

    with pytest.raises(SpecError) as error:
        env.step([3, 4])

    assert (
        "ExtraDisabledActionsWrapper.step() was given an action that is disabled.\n\n"
        "  expected   an action from 1 to 3\n"
        "  got        4 in row 1\n\n"
        "Those above are extra ones that the mask, observation[1], tells agents not to "
        "take: choose among the actions with a 1 there. Agents of TF-Agents do so when "
        "they are given observation_and_action_constraint_splitter=lambda observation: "
        "observation.\n"
        "None of the rows has moved."
    ) == str(error.value)
    assert [] == inside


def test_an_extra_action_of_a_single_environment_is_refused():
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR), 2))

    with pytest.raises(SpecError) as error:
        env.step(5)

    assert (
        "ExtraDisabledActionsWrapper.step() was given an action that is disabled.\n\n"
        "  expected   an action from 1 to 3\n"
        "  got        5\n\n"
        "Those above are extra ones that the mask, observation[1], tells agents not to "
        "take: choose among the actions with a 1 there. Agents of TF-Agents do so when "
        "they are given observation_and_action_constraint_splitter=lambda observation: "
        "observation.\n"
        "The environment has not moved."
    ) == str(error.value)
    assert [] == inside


def test_an_action_that_not_even_was_added_is_refused():
    env, _ = begun(ExtraDisabledActionsWrapper(Recorder(GEAR, 5, 5), 2))

    with pytest.raises(SpecError) as error:
        env.step([3, 6])

    assert (
        "ExtraDisabledActionsWrapper.step() was given an action that does not fit its "
        "spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=1, maximum=5)\n"
        "  got        array of shape (2,), dtype int64, values 3 … 6\n\n"
        "The value of row 1 is 6, above the maximum 5.\n"
        "None of the rows has moved."
    ) == str(error.value)


@pytest.mark.parametrize("action", [4, 99])
def test_the_action_of_a_row_that_begins_an_episode_is_not_looked_at(action):
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR, 1, 9), 2))
    env.step([1, 1])

    time_step = env.step([action, 2])

    assert [0, 1] == time_step.step_type.tolist()
    assert [1, 2] == inside[-1].tolist()


def test_the_action_of_a_row_that_stays_is_not_looked_at():
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR, 9, 9), 2))

    env.step([5, 2], mask=np.array([False, True]))

    assert [1, 2] == inside[-1].tolist()


def test_a_single_environment_that_has_ended_takes_an_extra_action():
    env, _ = begun(ExtraDisabledActionsWrapper(Recorder(GEAR), 2))
    for _ in range(5):
        env.step(1)

    assert 0 == env.step(5).step_type


@pytest.mark.parametrize("rows", [None, 3])
def test_agents_that_look_at_the_mask_can_play(rows):
    def choose(time_step, rng):
        mask = time_step.observation[1]
        return np.argmax(rng.random(mask.shape) * mask, axis=-1)

    check_environment(
        lambda: ExtraDisabledActionsWrapper(Catch(batch_size=rows), 2),
        steps=60,
        require=["seed", "state"],
        # It draws from the action spec, in which the extra ones are.
        action_fn=choose,
    )


def test_repr_shows_how_many():
    env = ExtraDisabledActionsWrapper(Recorder(GEAR), 2)

    assert "ExtraDisabledActionsWrapper(Recorder(), num_extra_actions=2)" == repr(env)


@pytest.mark.parametrize(
    ("spec", "extra", "message"),
    [
        (
            [GEAR],
            1,
            "ExtraDisabledActionsWrapper needs actions that are a single array, not a "
            f"nest, and the action spec of Recorder is [{GEAR}].",
        ),
        (
            WHEEL,
            1,
            "ExtraDisabledActionsWrapper needs actions that are integers with bounds, "
            f"and the action spec of Recorder is {WHEEL}.",
        ),
        (
            ArraySpec((), np.int64),
            1,
            "ExtraDisabledActionsWrapper needs actions that are integers with bounds, "
            "and the action spec of Recorder is ArraySpec(shape=(), dtype=int64).",
        ),
        (
            BoundedArraySpec((2,), np.int64, 0, [1, 2]),
            1,
            "ExtraDisabledActionsWrapper needs actions that are integers that all have "
            "the same bounds, and the action spec of Recorder is BoundedArraySpec("
            "shape=(2,), dtype=int64, minimum=0, maximum=[1, 2]).",
        ),
        (
            BoundedArraySpec((), np.int8, 0, 126),
            2,
            "num_extra_actions is 2, and int8 cannot count as far as 128: the action "
            "spec of Recorder is BoundedArraySpec(shape=(), dtype=int8, minimum=0, "
            "maximum=126).",
        ),
        (
            BoundedArraySpec((), np.int64, 0, 2**40),
            2,
            "ExtraDisabledActionsWrapper cannot make a mask for each of 1099511627779 "
            "actions: the action spec of Recorder is BoundedArraySpec(shape=(), "
            "dtype=int64, minimum=0, maximum=1099511627776).",
        ),
        (
            GEAR,
            -1,
            "num_extra_actions is -1; it must be an integer of at least 0.",
        ),
        (
            GEAR,
            1.5,
            "num_extra_actions is 1.5; it must be an integer of at least 0.",
        ),
    ],
)
def test_what_cannot_have_more_actions_is_refused(spec, extra, message):
    with pytest.raises(ValueError, match="action") as error:
        ExtraDisabledActionsWrapper(Recorder(spec), extra)

    assert message == str(error.value)
