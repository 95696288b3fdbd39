"""Wrappers between discrete actions and what environments take instead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import CartPole, Catch
from envkit.envs.random_py_environment import RandomPyEnvironment
from envkit.errors import SpecError
from envkit.testing import check_environment
from envkit.wrappers.discrete_actions import (
    ActionDiscretizeWrapper,
    DiscretizeAction,
    ExtraDisabledActionsWrapper,
    OneHotActionWrapper,
)
from tests.wrappers.recorder import Recorder

GEAR = BoundedArraySpec((), np.int64, 1, 3)
WHEEL = BoundedArraySpec((2,), np.float32, [-1.0, -2.0], [1.0, 2.0])
SQUARE = BoundedArraySpec((2, 2), np.float32, -10, 10)


def begun(wrapper):
    """Returns a wrapper whose first episode has begun, and what the inside is given."""
    wrapper.reset()
    return wrapper, wrapper.unwrapped.given


class TestActionDiscretizeWrapper:
    @pytest.mark.parametrize(
        ("shape", "num_actions", "expected"),
        [
            ((), 3, BoundedArraySpec((), np.int32, 0, 2)),
            ((2,), [5, 3], BoundedArraySpec((2,), np.int32, 0, [4, 2])),
            ((2, 2), [[2, 5]], BoundedArraySpec((2, 2), np.int32, 0, [[1, 4], [1, 4]])),
            ((2, 2), 4, BoundedArraySpec((2, 2), np.int32, 0, 3)),
            ((1,), 7, BoundedArraySpec((), np.int32, 0, 6)),
            ((1,), [7], BoundedArraySpec((), np.int32, 0, 6)),
        ],
    )
    def test_the_spec_counts_the_values(self, shape, num_actions, expected):
        spec = BoundedArraySpec(shape, np.float32, -10, 10)
        assert expected == (
            ActionDiscretizeWrapper(Recorder(spec), num_actions).action_spec()
        )

    def test_equal_bounds_become_one_number(self):
        spec = ActionDiscretizeWrapper(Recorder(SQUARE), [[3, 3], [3, 3]]).action_spec()
        assert () == spec.maximum.shape

    def test_the_values_are_spread_evenly(self):
        env, inside = begun(
            ActionDiscretizeWrapper(
                Recorder(BoundedArraySpec((), np.float32, -10, 10)), 5
            )
        )

        for action in range(5):
            env.step(action)
        assert [-10, -5, 0, 5, 10] == inside
        assert {np.dtype(np.float32)} == {action.dtype for action in inside}
        assert {np.ndarray} == {type(action) for action in inside}

    def test_each_element_has_its_own_values(self):
        env, inside = begun(ActionDiscretizeWrapper(Recorder(SQUARE), [[2, 5], [3, 2]]))
        env.step([[0, 2], [1, 1]])
        assert [[-10, 0], [0, 10]] == inside[0].tolist()

    def test_each_element_has_its_own_bounds(self):
        spec = BoundedArraySpec((2,), np.float32, [-10, 0], 10)
        env, inside = begun(ActionDiscretizeWrapper(Recorder(spec, 9, 9, 9), [2, 5]))
        env.step([[0, 0], [1, 4], [0, 2]])
        assert [[-10, 0], [10, 10], [-10, 5]] == inside[0].tolist()

    def test_the_environments_nest_is_rebuilt(self):
        env, inside = begun(ActionDiscretizeWrapper(Recorder({"a": SQUARE}), [[2, 5]]))
        env.step(np.array([[0, 2], [1, 4]]))
        assert [[-10, 0], [10, 10]] == inside[0]["a"].tolist()

    @pytest.mark.parametrize(("lengths", "action"), [((), 1), ((5, 5), [1, 1])])
    def test_a_single_element_takes_a_plain_number(self, lengths, action):
        spec = BoundedArraySpec((1,), np.float64, -1, 1)
        env, inside = begun(ActionDiscretizeWrapper(Recorder(spec, *lengths), 3))
        env.step(action)
        assert (*np.shape(action), 1) == inside[0].shape

    @given(
        ends=st.lists(
            st.floats(-1e300, 1e300, allow_nan=False), min_size=2, max_size=2
        ).map(sorted),
        count=st.integers(2, 40),
        dtype=st.sampled_from([np.float32, np.float64]),
    )
    def test_the_values_include_both_bounds(self, ends, count, dtype):
        if dtype is np.float32:
            ends = [end / 1e265 for end in ends]
        spec = BoundedArraySpec((), dtype, *ends)
        env, inside = begun(
            ActionDiscretizeWrapper(Recorder(spec, *[2] * count), count)
        )

        env.step(np.arange(count))
        assert spec.minimum == inside[0][0]
        assert spec.maximum == inside[0][-1]
        assert ((inside[0] >= spec.minimum) & (inside[0] <= spec.maximum)).all()

    def test_the_values_match_linspace(self):
        env, inside = begun(ActionDiscretizeWrapper(Recorder(WHEEL, *[9] * 7), [7, 7]))
        env.step(np.stack([np.arange(7)] * 2, axis=1))
        expected = np.linspace(WHEEL.minimum, WHEEL.maximum, 7)
        assert np.allclose(expected, inside[0])

    def test_repr_shows_the_number(self):
        env = ActionDiscretizeWrapper(Recorder(WHEEL), np.array([2, 5]))
        assert "ActionDiscretizeWrapper(Recorder(), num_actions=[2, 5])" == repr(env)

    @pytest.mark.parametrize(
        ("spec", "num_actions", "message"),
        [
            (
                {"gear": GEAR, "wheel": WHEEL},
                3,
                "ActionDiscretizeWrapper only supports environments with a single "
                "action spec, and Recorder has 2: {'gear': *, 'wheel': *}.",
            ),
            (
                GEAR,
                3,
                "ActionDiscretizeWrapper makes continuous actions discrete, and the "
                f"action spec of Recorder is {GEAR}.",
            ),
            (
                {"a": ArraySpec((), np.float32)},
                3,
                "ActionDiscretizeWrapper spreads actions between two bounds, and one "
                "is missing: the action spec of Recorder at ['a'] is "
                "ArraySpec(shape=(), dtype=float32).",
            ),
            (
                BoundedArraySpec((), np.float32, minimum=0),
                3,
                "ActionDiscretizeWrapper spreads actions between two bounds, and one "
                "is missing: the action spec of Recorder is BoundedArraySpec(shape=(), "
                "dtype=float32, minimum=0.0, maximum=3.4028235e+38).",
            ),
            (
                WHEEL,
                [5, 1],
                "num_actions is [5, 1]; num_actions should all be at least size 2.",
            ),
            (
                WHEEL,
                2.5,
                "num_actions must be an integer, or an array of them, got 2.5.",
            ),
            (
                WHEEL,
                [2, 3, 4],
                "num_actions has the shape (3,), which does not broadcast to that of "
                f"the action: the action spec of Recorder is {WHEEL}.",
            ),
        ],
    )
    def test_actions_that_cannot_be_made_discrete_are_refused(
        self, spec, num_actions, message, message_of
    ):
        assert (message) == message_of(
            ValueError, lambda: ActionDiscretizeWrapper(Recorder(spec), num_actions)
        )

    def test_an_action_of_another_shape_is_refused(self, message_of):
        env, inside = begun(ActionDiscretizeWrapper(Recorder(SQUARE), [[2, 5], [2, 2]]))
        assert (
            "ActionDiscretizeWrapper.step() was given an action of incorrect shape "
            "that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(2, 2), dtype=int32, minimum=0, "
            "maximum=[[1, 4], [1, 1]])\n"
            "  got        array of shape (2,), dtype int32, values 0 … 0\n\n"
            "The array has 1 dimension instead of 2.\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step([0, 0]))
        assert [] == inside

    @pytest.mark.parametrize("action", [-1, 3])
    def test_an_invalid_choice_is_refused(self, action):
        """Below 0 it would be counted from the end."""
        spec = BoundedArraySpec((), np.float32, -1, 1)
        env, inside = begun(ActionDiscretizeWrapper(Recorder(spec, 5, 5), 3))

        with pytest.raises(SpecError) as error:
            env.step([0, action])

        bound = "below the minimum 0" if action < 0 else "above the maximum 2"
        assert (
            "ActionDiscretizeWrapper.step() was given an action that does not fit its "
            "spec.\n\n"
            "  expected   BoundedArraySpec(shape=(2,), dtype=int32, minimum=0, "
            "maximum=2)\n"
            f"  got        array of shape (2,), dtype int64, values {min(0, action)} … "
            f"{max(0, action)}\n\n"
            f"The value of row 1 is {action}, {bound}.\n"
            "None of the rows has moved."
        ) == str(error.value)
        assert [] == inside


class TestOneHotActionWrapper:
    SPEC = BoundedArraySpec((1,), np.int32, 1, 3)

    def test_the_spec_has_a_place_for_every_action(self):
        spec = OneHotActionWrapper(CartPole()).action_spec()
        assert BoundedArraySpec((2,), np.int64, 0, 1) == spec
        assert "one_hot_action_spec" == spec.name

    def test_the_index_of_the_one_is_offset_by_the_minimum(self):
        env, inside = begun(OneHotActionWrapper(Recorder(self.SPEC)))
        env.step(np.array([[0, 1, 0]], np.int32))
        assert BoundedArraySpec((1, 3), np.int32, 0, 1) == env.action_spec()
        assert [2] == inside[0].tolist()
        assert np.int32 == inside[0].dtype

    def test_floats_are_unchanged(self):
        spec = {"discrete": self.SPEC, "continuous": ArraySpec((2,), np.float32)}
        env, inside = begun(OneHotActionWrapper(Recorder(spec)))
        env.step({"discrete": [[0, 0, 1]], "continuous": np.array([0.5, 0.3])})
        assert [3] == inside[0]["discrete"].tolist()
        assert np.array_equal(np.array([0.5, 0.3], np.float32), inside[0]["continuous"])
        assert spec["continuous"] == env.action_spec()["continuous"]

    def test_without_integers_nothing_changes(self):
        env, inside = begun(OneHotActionWrapper(Recorder(WHEEL)))
        env.step(np.array([0.5, 0.25], np.float32))
        assert WHEEL == env.action_spec()
        assert [0.5, 0.25] == inside[0].tolist()

    def test_the_first_of_several_ones_counts(self):
        env, inside = begun(OneHotActionWrapper(Recorder(GEAR, 5, 5)))
        env.step([[0, 1, 1], [0, 0, 0]])
        assert [2, 1] == inside[0].tolist()

    @pytest.mark.parametrize(
        "spec",
        [
            BoundedArraySpec((), np.int8, -128, 127),
            BoundedArraySpec((), np.uint64, 2**64 - 256, 2**64 - 1),
            BoundedArraySpec((2,), np.int64, [-128, 5], [127, 260]),
        ],
    )
    def test_every_action_can_be_chosen(self, spec):
        env, inside = begun(OneHotActionWrapper(Recorder(spec, *[5] * 256)))
        ones = np.eye(256, dtype=spec.dtype).reshape(256, *[1] * len(spec.shape), 256)
        env.step(np.broadcast_to(ones, (256, *spec.shape, 256)))
        assert spec.dtype == inside[0].dtype
        assert np.array_equal(spec.minimum, inside[0][0])
        assert np.array_equal(spec.maximum, inside[0][-1])
        assert (1 == np.diff(inside[0], axis=0)).all()

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            (
                ArraySpec((), np.int64),
                "OneHotActionWrapper needs to know how many actions there are, but "
                "there are no bounds: the action spec of Recorder is "
                "ArraySpec(shape=(), dtype=int64).",
            ),
            (
                {"a": BoundedArraySpec((2, 2), np.int64, 0, 1)},
                "OneHotActionWrapper only supports single action, a number or an array "
                "with one dimension, and the action spec of Recorder at ['a'] is "
                "BoundedArraySpec(shape=(2, 2), dtype=int64, minimum=0, maximum=1).",
            ),
            (
                BoundedArraySpec((2,), np.int64, 0, [1, 2]),
                "OneHotActionWrapper needs the same number of actions in every "
                "element, and the action spec of Recorder is BoundedArraySpec("
                "shape=(2,), dtype=int64, minimum=0, maximum=[1, 2]).",
            ),
            (
                BoundedArraySpec((), np.int32),
                "OneHotActionWrapper cannot make an array with a place for each of "
                "4294967296 actions: the action spec of Recorder is BoundedArraySpec("
                "shape=(), dtype=int32, minimum=-2147483648, maximum=2147483647).",
            ),
        ],
    )
    def test_actions_without_choices_are_refused(self, spec, message, message_of):
        assert (message) == message_of(
            ValueError, lambda: OneHotActionWrapper(Recorder(spec))
        )

    @pytest.mark.parametrize(
        ("action", "fault", "got", "reason"),
        [
            (
                np.array([0, 1, 0], np.int32),
                " of incorrect shape",
                "array of shape (3,), dtype int32, values 0 … 1",
                "The array has 1 dimension instead of 2.",
            ),
            (
                np.array([[0, 1, 0]], np.float32),
                "",
                "array of shape (1, 3), dtype float32, values 0.0 … 1.0",
                "dtype is float32; the spec says int32. If that is meant, add "
                ".astype(np.int32).",
            ),
            (
                np.array([[0, 2, 0]], np.int32),
                "",
                "array of shape (1, 3), dtype int32, values 0 … 2",
                "The value at index (0, 1) is 2, above the maximum 1.",
            ),
        ],
    )
    def test_actions_that_are_not_one_hot_are_refused(
        self, action, fault, got, reason, message_of
    ):
        env, inside = begun(OneHotActionWrapper(Recorder({"a": self.SPEC})))
        assert (
            f"OneHotActionWrapper.step() was given an action{fault} that does not fit "
            "its spec at action['a'].\n\n"
            "  expected   BoundedArraySpec(shape=(1, 3), dtype=int32, minimum=0, "
            "maximum=1, name='one_hot_action_spec')\n"
            f"  got        {got}\n\n"
            f"{reason}\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step({"a": action}))
        assert [] == inside

    def test_the_action_of_a_row_that_begins_an_episode_is_not_checked(self):
        env, inside = begun(OneHotActionWrapper(Recorder(GEAR, 1, 9)))
        env.step([[0, 0, 1], [0, 0, 1]])
        time_step = env.step([[7, -7, 7], [0, 0, 1]])
        assert [0, 1] == time_step.step_type.tolist()
        assert 3 == inside[-1][1]


# ExtraDisabledActionsWrapper: actions that a mask tells agents not to take.


def test_a_batch_gets_masks_and_unchanged_rewards():
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


def test_every_mask_is_its_own_array():
    env = ExtraDisabledActionsWrapper(Recorder(GEAR, 5, 5), 2)
    env.reset().observation[1][...] = 7
    assert [[1, 1, 1, 0, 0]] * 2 == env.step([1, 1]).observation[1].tolist()


def test_adding_no_action_is_allowed():
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR), 0))
    env.step(3)
    assert GEAR == env.action_spec()
    assert [3] == inside


def test_equal_choices_share_one_mask():
    spec = BoundedArraySpec((2,), np.int64, [0, 0], [1, 1])
    env = ExtraDisabledActionsWrapper(Recorder(spec, 5, 5, 5), 1)
    assert (3, 3) == env.reset().observation[1].shape


def test_an_extra_action_is_refused(message_of):
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR, 5, 5), 2))
    assert (
        "ExtraDisabledActionsWrapper.step() was given an action that is disabled.\n\n"
        "  expected   an action from 1 to 3\n"
        "  got        4 in row 1\n\n"
        "Higher actions are the extra ones, which the mask in observation[1] forbids: "
        "choose among the actions with a 1 there. TF-Agents' agents do so with "
        "observation_and_action_constraint_splitter=lambda observation: observation.\n"
        "None of the rows has moved."
    ) == message_of(SpecError, lambda: env.step([3, 4]))
    assert [] == inside


def test_an_extra_action_of_a_single_environment_is_refused(message_of):
    env, inside = begun(ExtraDisabledActionsWrapper(Recorder(GEAR), 2))
    assert (
        "ExtraDisabledActionsWrapper.step() was given an action that is disabled.\n\n"
        "  expected   an action from 1 to 3\n"
        "  got        5\n\n"
        "Higher actions are the extra ones, which the mask in observation[1] forbids: "
        "choose among the actions with a 1 there. TF-Agents' agents do so with "
        "observation_and_action_constraint_splitter=lambda observation: observation.\n"
        "The environment has not moved."
    ) == message_of(SpecError, lambda: env.step(5))
    assert [] == inside


def test_an_action_beyond_the_added_ones_is_refused(message_of):
    env, _ = begun(ExtraDisabledActionsWrapper(Recorder(GEAR, 5, 5), 2))
    assert (
        "ExtraDisabledActionsWrapper.step() was given an action that does not fit its "
        "spec.\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=1, maximum=5)\n"
        "  got        array of shape (2,), dtype int64, values 3 … 6\n\n"
        "The value of row 1 is 6, above the maximum 5.\n"
        "None of the rows has moved."
    ) == message_of(SpecError, lambda: env.step([3, 6]))


@pytest.mark.parametrize("rows", [None, 3])
def test_agents_that_obey_the_mask_can_play(rows):
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


def test_repr_shows_the_number():
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
            "num_extra_actions must be an integer of at least 0, got -1.",
        ),
        (
            GEAR,
            1.5,
            "num_extra_actions must be an integer of at least 0, got 1.5.",
        ),
    ],
)
def test_actions_that_cannot_be_extended_are_refused(spec, extra, message, message_of):
    assert (message) == message_of(
        ValueError, lambda: ExtraDisabledActionsWrapper(Recorder(spec), extra)
    )


def test_repr_shows_the_intervals_as_given():
    env = RandomPyEnvironment(
        ArraySpec((), np.float32), BoundedArraySpec((2,), np.float32, -1, 1)
    )
    for bins, multidiscrete in [(5, False), ((2, 7), True)]:
        wrapped = DiscretizeAction(env, bins, multidiscrete)
        assert (bins, multidiscrete) == (wrapped.bins, wrapped.multidiscrete)
