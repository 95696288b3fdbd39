"""Wrappers that change actions and leave their structure as it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import Catch
from envkit.errors import SpecError
from envkit.specs.sampling import sample_spec_nest
from envkit.wrappers.actions import (
    ActionClipWrapper,
    ActionOffsetWrapper,
    RescaleAction,
    TransformAction,
)
from envkit.wrappers.discrete_actions import (
    ActionDiscretizeWrapper,
    ExtraDisabledActionsWrapper,
)
from tests import strategies
from tests.wrappers.recorder import Recorder

GEAR = BoundedArraySpec((), np.int64, 1, 3)
WHEEL = BoundedArraySpec((2,), np.float32, [-1.0, -2.0], [1.0, 2.0])
CAR = {"gear": GEAR, "wheel": WHEEL}
TURN = BoundedArraySpec((), np.float32, -1.0, 1.0)


def begun(wrapper):
    """Returns a wrapper whose first episode has begun, and what the inside is given."""
    wrapper.reset()
    return wrapper, wrapper.unwrapped.given


class TestTransformAction:
    def test_numbers_are_refused_as_specs(self, message_of):
        assert (
            "The action spec at [0] is 0 of type int, not an ArraySpec."
        ) == message_of(
            TypeError, lambda: TransformAction(Catch(), lambda action: action, range(2))
        )

    def test_the_environment_receives_the_functions_result(self):
        env, inside = begun(TransformAction(Recorder(GEAR), lambda gear: 4 - gear))
        env.step(1)
        assert [3] == inside
        assert (np.ndarray, np.int64) == (type(inside[0]), inside[0].dtype)

    def test_the_function_is_called_once_for_all_rows(self):
        shapes = []

        def function(action):
            shapes.append(action["wheel"].shape)
            return action

        env, _ = begun(TransformAction(Recorder(CAR, 5, 5, 5), function))
        env.step({"gear": [1, 2, 3], "wheel": np.zeros((3, 2))})
        assert [(3, 2)] == shapes

    def test_actions_can_have_another_spec(self):
        spec = BoundedArraySpec((), np.float32, -1.0, 1.0)
        env, inside = begun(
            TransformAction(
                Recorder(CAR),
                lambda turn: {"gear": 2, "wheel": np.stack([turn, 2 * turn], -1)},
                spec,
            )
        )

        env.step(0.5)
        assert spec == env.action_spec()
        assert 2 == inside[0]["gear"]
        assert [0.5, 1.0] == inside[0]["wheel"].tolist()
        assert np.float32 == inside[0]["wheel"].dtype

    def test_the_function_may_change_the_action_it_gets(self):
        def function(action):
            action += 1
            return action

        env, inside = begun(TransformAction(Recorder(GEAR, 5, 5), function))
        action = np.array([1, 2])
        env.step(action)
        assert [1, 2] == action.tolist()
        assert [2, 3] == inside[0].tolist()

    def test_the_functions_result_may_be_out_of_bounds(self):
        """An environment that clips actions expects them."""
        inner = ActionClipWrapper(Recorder(GEAR))
        env, inside = begun(TransformAction(inner, lambda gear: 5 * gear))
        env.step(2)
        assert [3] == inside

    def test_a_function_that_returns_another_dtype_is_refused(self, message_of):
        env, inside = begun(TransformAction(Recorder(GEAR), lambda gear: gear / 2))
        assert (
            "The function of TransformAction returned an action that does not fit its "
            "spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=1, "
            "maximum=3)\n"
            f"  got        {np.float64(1.0)!r} of type float64\n\n"
            "dtype is float64; the spec says int64. If that is meant, add "
            ".astype(np.int64).\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step(2))
        assert [] == inside

    def test_a_function_that_drops_a_part_is_refused(self, message_of):
        env, _ = begun(
            TransformAction(Recorder(CAR), lambda action: {"gear": action["gear"]})
        )
        assert (
            "The function of TransformAction returned an action that does not fit its "
            "spec.\n\n"
            "  expected   the structure {'gear': *, 'wheel': *}\n"
            "  got        a dict of 1 element\n\n"
            "Key 'wheel' is missing."
        ) == message_of(SpecError, lambda: env.step({"gear": 1, "wheel": [0.0, 0.0]}))

    def test_the_functions_result_must_fit_the_dtype(self, message_of):
        spec = BoundedArraySpec((), np.int8, 0, 9)
        env, _ = begun(TransformAction(Recorder(spec), lambda action: 300))
        assert (
            "The function of TransformAction returned an action that does not fit its "
            "spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int8, minimum=0, "
            "maximum=9)\n"
            "  got        array of shape (), dtype int64, values 300 … 300\n\n"
            "The value is 300, too large for int8.\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step(2))

    def test_an_error_of_the_function_is_raised(self):
        env, _ = begun(TransformAction(Recorder(GEAR), lambda gear: gear.missing))
        with pytest.raises(AttributeError):
            env.step(1)

    def test_anything_but_a_callable_is_refused(self, message_of):
        assert (
            "TransformAction needs a function of the action, not 3 of type int."
        ) == message_of(TypeError, lambda: TransformAction(Recorder(GEAR), 3))

    def test_an_invalid_spec_is_refused(self, message_of):
        assert (
            "The action spec at ['gear'] is 3 of type int, not an ArraySpec."
        ) == message_of(
            TypeError, lambda: TransformAction(Recorder(GEAR), abs, {"gear": 3})
        )

    def test_changing_the_given_nest_later_changes_nothing(self):
        spec = {"gear": GEAR}
        env = TransformAction(Recorder(GEAR), lambda action: action["gear"], spec)
        spec["wheel"] = WHEEL
        assert {"gear": GEAR} == env.action_spec()


class TestActionClipWrapper:
    def test_actions_are_clipped_to_the_bounds(self):
        env, inside = begun(ActionClipWrapper(Recorder(WHEEL)))
        for action in (np.array([0, 0]), [-4, 0], np.array([0.5, 4.0]), [4, 4]):
            env.step(action)
        assert [[0, 0], [-1, 0], [0.5, 2], [1, 2]] == [a.tolist() for a in inside]
        assert {np.dtype(np.float32)} == {a.dtype for a in inside}

    def test_each_part_of_a_nest_has_its_own_bounds(self):
        specs = [BoundedArraySpec((2,), np.float32, -size, size) for size in (1, 2, 3)]
        env, inside = begun(ActionClipWrapper(Recorder([specs[0], specs[1:]])))
        env.step([[10, -10], [[10, -10], [10, -10]]])
        first, (second, third) = inside[0]
        assert [[1, -1], [2, -2], [3, -3]] == [
            a.tolist() for a in (first, second, third)
        ]

    def test_parts_without_bounds_are_unchanged(self):
        spec = (ArraySpec((), np.float32), ArraySpec((), np.int8), GEAR)
        env, inside = begun(ActionClipWrapper(Recorder(spec)))
        env.step((1e30, 127, 7))
        assert (np.float32(1e30), 127, 3) == inside[0]

    def test_numbers_that_the_dtype_cannot_hold_are_clipped(self):
        env, inside = begun(
            ActionClipWrapper(Recorder(BoundedArraySpec((2,), np.int8, -1, [1, 99])))
        )
        env.step([-(10**6), 10**6])
        env.step(np.array([2**63, 2**64 - 1], np.uint64))
        assert [[-1, 99], [1, 99]] == [action.tolist() for action in inside]
        assert {np.dtype(np.int8)} == {action.dtype for action in inside}

    def test_the_spec_is_unchanged(self):
        assert CAR == ActionClipWrapper(Recorder(CAR)).action_spec()

    def test_infinity_is_clipped_to_the_bound(self):
        env, inside = begun(ActionClipWrapper(Recorder(WHEEL)))
        env.step([-np.inf, 1e300])
        assert [-1, 2] == inside[0].tolist()

    def test_text_and_objects_are_unchanged(self):
        spec = {"text": ArraySpec((), "U5"), "what": ArraySpec((), object)}
        env, inside = begun(ActionClipWrapper(Recorder(spec)))
        env.step({"text": "go", "what": {1: 2}})
        assert ("go", np.dtype("U5")) == (inside[0]["text"], inside[0]["text"].dtype)
        assert {1: 2} == inside[0]["what"]

    def test_text_that_would_be_cut_is_refused(self, message_of):
        env, _ = begun(ActionClipWrapper(Recorder(ArraySpec((1,), "U2"))))
        assert (
            "ActionClipWrapper.step() was given an action that does not fit its "
            "spec.\n\n"
            "  expected   ArraySpec(shape=(1,), dtype=<U2)\n"
            "  got        array of shape (1,), dtype <U4\n\n"
            "dtype is <U4; the spec says <U2.\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step(["stop"]))

    def test_too_few_rows_are_refused_instead_of_broadcast(self, message_of):
        env, inside = begun(ActionClipWrapper(Recorder(CAR, 5, 5)))
        assert (
            "ActionClipWrapper.step() was given an action of incorrect shape that does "
            "not fit its spec at action['wheel'].\n\n"
            "  expected   BoundedArraySpec(shape=(2, 2), dtype=float32, "
            "minimum=[-1.0, -2.0], maximum=[1.0, 2.0])\n"
            "  got        array of shape (2,), dtype float32, values 0.5 … 0.5\n\n"
            "The whole batch dimension is missing: expected (2, 2).\n"
            "None of the rows has moved."
        ) == message_of(
            SpecError, lambda: env.step({"gear": [1, 1], "wheel": [0.5, 0.5]})
        )
        assert [] == inside

    def test_fractions_are_refused_as_integers(self, message_of):
        env, _ = begun(ActionClipWrapper(Recorder(CAR)))
        assert (
            "ActionClipWrapper.step() was given an action that does not fit its spec "
            "at action['gear'].\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=1, "
            "maximum=3)\n"
            "  got        1.5 of type float\n\n"
            "A float becomes float64; the spec says int64: use np.array(..., "
            "np.int64).\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step({"gear": 1.5, "wheel": [0, 0]}))

    def test_without_bounds_a_number_must_fit_the_dtype(self, message_of):
        env, _ = begun(ActionClipWrapper(Recorder(ArraySpec((2,), np.float32))))
        assert (
            "ActionClipWrapper.step() was given an action that does not fit its "
            "spec.\n\n"
            "  expected   ArraySpec(shape=(2,), dtype=float32)\n"
            "  got        array of shape (2,), dtype float64, values 0.0 … 1e+300\n\n"
            "The value at index (1,) is 1e+300, too large for float32.\n"
            "The environment has not moved."
        ) == message_of(SpecError, lambda: env.step([0.0, 1e300]))

    @given(
        spec=strategies.bounded_specs(), seed=st.integers(0, 99), rows=st.integers(1, 3)
    )
    def test_actions_within_the_bounds_are_unchanged(self, spec, seed, rows):
        env, inside = begun(ActionClipWrapper(Recorder(spec, *[5] * rows)))
        action = sample_spec_nest(spec, np.random.default_rng(seed), (rows,))
        env.step(action)
        assert action.dtype == inside[0].dtype
        assert np.array_equal(action, inside[0])


class TestRescaleAction:
    def test_the_new_ends_and_middle_map_to_the_old_ones(self):
        env, inside = begun(RescaleAction(Recorder(WHEEL)))
        for action in ([-1, -1], [0, 0], [1, 1], [0.5, -0.5]):
            env.step(action)
        assert [[-1, -2], [0, 0], [1, 2], [0.5, -1]] == [a.tolist() for a in inside]
        assert {np.dtype(np.float32)} == {a.dtype for a in inside}

    def test_the_spec_has_the_new_bounds(self):
        env = RescaleAction(Recorder(CAR), 0.0, [1.0, 5.0])
        assert {
            "gear": GEAR,
            "wheel": BoundedArraySpec((2,), np.float32, 0.0, [1.0, 5.0]),
        } == env.action_spec()

    def test_the_new_bounds_can_differ_by_element(self):
        env, inside = begun(RescaleAction(Recorder(WHEEL, 5, 5), [0, 10], [1, 20]))
        env.step([[0, 15], [1, 20]])
        assert [[-1, 0], [1, 2]] == inside[0].tolist()

    def test_scaling_extends_beyond_the_new_bounds(self):
        env, inside = begun(RescaleAction(Recorder(WHEEL)))
        env.step([2, -3])
        assert [2, -6] == inside[0].tolist()

    def test_only_bounded_continuous_parts_are_scaled(self):
        spec = {
            "gear": GEAR,
            "plain": ArraySpec((), np.float32),
            "unlimited": BoundedArraySpec((), np.float32),
            "wheel": WHEEL,
        }
        env, inside = begun(RescaleAction(Recorder(spec)))

        env.step({"gear": 3, "plain": 7.0, "unlimited": 8.0, "wheel": [1, 1]})

        expected = {"gear": 3, "plain": 7.0, "unlimited": 8.0, "wheel": [1, 2]}
        assert expected == {name: leaf.tolist() for name, leaf in inside[0].items()}
        assert {**spec, "wheel": WHEEL.replace(minimum=-1, maximum=1)} == (
            env.action_spec()
        )

    @given(
        spec=strategies.bounded_specs("f"),
        seed=st.integers(0, 99),
        ends=st.sampled_from([(-1, 1), (0, 1), (0.1, 0.7), (-30, 7)]),
    )
    def test_scaled_actions_stay_within_the_old_bounds(self, spec, seed, ends):
        # The largest numbers of a dtype stand for infinity.
        low, high = (
            np.clip(bound, spec.dtype.type(-6e4), spec.dtype.type(6e4))
            for bound in (spec.minimum, spec.maximum)
        )
        spec = spec.replace(minimum=low, maximum=high)
        env, inside = begun(RescaleAction(Recorder(spec), *ends))
        new = env.action_spec()

        for action in (
            sample_spec_nest(new, np.random.default_rng(seed)),
            np.broadcast_to(new.minimum, spec.shape),
            np.broadcast_to(new.maximum, spec.shape),
        ):
            env.step(action)

        assert all(spec.check_array(action) for action in inside)
        assert np.array_equal(np.broadcast_to(spec.minimum, spec.shape), inside[1])
        assert np.array_equal(np.broadcast_to(spec.maximum, spec.shape), inside[2])

    def test_repr_shows_both_ends(self):
        env = RescaleAction(Recorder(WHEEL), 0, [1.0, 5.0])
        assert "RescaleAction(Recorder(), min_action=0, max_action=[1.0, 5.0])" == (
            repr(env)
        )

    def test_integers_out_of_bounds_are_refused(self, message_of):
        env, inside = begun(RescaleAction(Recorder(CAR, 5, 5)))
        assert (
            "RescaleAction.step() was given an action that does not fit its spec at "
            "action['gear'].\n\n"
            "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=1, "
            "maximum=3)\n"
            "  got        array of shape (2,), dtype int64, values 1 … 4\n\n"
            "The value of row 1 is 4, above the maximum 3.\n"
            "None of the rows has moved."
        ) == message_of(
            SpecError, lambda: env.step({"gear": [1, 4], "wheel": np.zeros((2, 2))})
        )
        assert [] == inside

    @pytest.mark.parametrize(
        ("spec", "ends", "kind", "message"),
        [
            (
                GEAR,
                (-1, 1),
                ValueError,
                "RescaleAction needs an action with bounded floats to scale, "
                f"and the action spec of Recorder is {GEAR}.",
            ),
            (
                BoundedArraySpec((), np.float32, minimum=0.0),
                (-1, 1),
                ValueError,
                "RescaleAction cannot scale an action that has a bound on one side "
                "only, or in some elements only, and the action spec of Recorder is "
                "BoundedArraySpec(shape=(), dtype=float32, minimum=0.0, "
                "maximum=3.4028235e+38). Give it finite bounds with TransformAction "
                "first.",
            ),
            (
                CAR,
                (1, 1),
                ValueError,
                "min_action is 1 and max_action is 1; min_action must be smaller, in "
                "every element.",
            ),
            (
                CAR,
                (-np.inf, 1),
                ValueError,
                "min_action must be finite, got -inf.",
            ),
            (
                CAR,
                (-1.7e308, 1.7e308),
                ValueError,
                "min_action is -1.7e+308 and max_action is 1.7e+308, which is too far "
                "apart to compute with.",
            ),
            (
                CAR,
                (0, "one"),
                TypeError,
                (
                    "max_action must be a number, or an array of numbers, got the "
                    "string 'one'."
                ),
            ),
            (
                CAR,
                ([1, 2, 3], [5, 6]),
                ValueError,
                (
                    "min_action and max_action must both broadcast to the shape of "
                    "every continuous action, got the shapes (3,) and (2,)."
                ),
            ),
            (
                CAR,
                (0, [1, 2, 3]),
                ValueError,
                "max_action has the shape (3,), which does not broadcast to that of "
                "the action: the action spec of Recorder at ['wheel'] is "
                f"{WHEEL}.",
            ),
            (
                BoundedArraySpec((), np.float16, 0.0, 1.0),
                (1.0, 1.0001),
                ValueError,
                "min_action and max_action are the same number in float16, the dtype "
                "of the action: the action spec of Recorder is "
                "BoundedArraySpec(shape=(), dtype=float16, minimum=0.0, maximum=1.0).",
            ),
        ],
    )
    def test_actions_that_cannot_be_scaled_are_refused(
        self, spec, ends, kind, message, message_of
    ):
        assert (message) == message_of(
            kind, lambda: RescaleAction(Recorder(spec), *ends)
        )


class TestActionOffsetWrapper:
    SPEC = BoundedArraySpec((3,), np.int32, -1, 1)

    def test_actions_count_from_0(self):
        env = ActionOffsetWrapper(Recorder(self.SPEC))
        assert BoundedArraySpec((3,), np.int32, 0, 2) == env.action_spec()

    def test_the_minimum_is_added(self):
        env, inside = begun(ActionOffsetWrapper(Recorder(self.SPEC)))
        env.step(np.array([0, 1, 2]))
        assert [-1, 0, 1] == inside[0].tolist()
        assert np.int32 == inside[0].dtype

    def test_each_row_and_element_has_its_own_minimum(self):
        spec = BoundedArraySpec((2,), np.int64, [-1, 10], [1, 19])
        env, inside = begun(ActionOffsetWrapper(Recorder(spec, 5, 5)))
        env.step([[0, 0], [2, 9]])
        assert [[-1, 10], [1, 19]] == inside[0].tolist()

    def test_the_whole_range_of_a_dtype_can_be_used(self):
        spec = BoundedArraySpec((), np.int8, -100, 27)
        env, inside = begun(ActionOffsetWrapper(Recorder(spec)))
        env.step(127)
        assert 27 == inside[0]

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            (
                [GEAR],
                "ActionOffsetWrapper only works with single-array action specs (not "
                f"nested ones), and the action spec of Recorder is [{GEAR}].",
            ),
            (
                ArraySpec((2,), np.int32),
                "ActionOffsetWrapper only works with bounded action specs, and the "
                "action spec of Recorder is ArraySpec(shape=(2,), dtype=int32).",
            ),
            (
                WHEEL,
                "ActionOffsetWrapper only works with discrete action specs, and the "
                f"action spec of Recorder is {WHEEL}.",
            ),
            (
                BoundedArraySpec((), np.int8, -128, 127),
                "ActionOffsetWrapper counts from 0, and int8 cannot count as far as "
                "255: the action spec of Recorder is BoundedArraySpec(shape=(), "
                "dtype=int8, minimum=-128, maximum=127).",
            ),
        ],
    )
    def test_other_specs_are_refused(self, spec, message, message_of):
        assert (message) == message_of(
            ValueError, lambda: ActionOffsetWrapper(Recorder(spec))
        )

    def test_an_invalid_choice_is_refused(self, message_of):
        env, inside = begun(ActionOffsetWrapper(Recorder(self.SPEC, 5, 5)))
        assert (
            "ActionOffsetWrapper.step() was given an action that does not fit its "
            "spec.\n\n"
            "  expected   BoundedArraySpec(shape=(2, 3), dtype=int32, minimum=0, "
            "maximum=2)\n"
            "  got        array of shape (2, 3), dtype int64, values -1 … 3\n\n"
            "The value of row 1 at index (0,) is -1, below the minimum 0, and 1 more "
            "of 6 do not fit.\n"
            "None of the rows has moved."
        ) == message_of(SpecError, lambda: env.step([[0, 1, 2], [-1, 0, 3]]))
        assert [] == inside


WRAPPERS = [
    pytest.param(
        lambda *lengths: TransformAction(Recorder(GEAR, *lengths), lambda a: 4 - a),
        id="TransformAction",
    ),
    pytest.param(
        lambda *lengths: ActionClipWrapper(Recorder(ArraySpec((), np.int16), *lengths)),
        id="ActionClipWrapper",
    ),
    pytest.param(
        lambda *lengths: ActionOffsetWrapper(Recorder(GEAR, *lengths)),
        id="ActionOffsetWrapper",
    ),
    pytest.param(
        lambda *lengths: ActionDiscretizeWrapper(Recorder(TURN, *lengths), 3),
        id="ActionDiscretizeWrapper",
    ),
    pytest.param(
        lambda *lengths: ExtraDisabledActionsWrapper(Recorder(GEAR, *lengths), 2),
        id="ExtraDisabledActionsWrapper",
    ),
]


@pytest.mark.parametrize("make", WRAPPERS)
class TestActionsThatAreNotUsed:
    def test_the_action_of_an_ended_row_is_not_checked(self, make):
        env, _ = begun(make(1, 9))
        env.step([1, 1])
        assert [0, 1] == env.step([10**9, 1]).step_type.tolist()

    def test_the_action_of_a_held_row_is_not_checked(self, make):
        env, _ = begun(make(9, 9))
        time_step = env.step([10**9, 1], mask=np.array([False, True]))
        assert [0, 1] == time_step.step_type.tolist()

    def test_the_action_of_a_stepping_row_is_checked(self, make):
        env, inside = begun(make(9, 9))
        with pytest.raises(SpecError):
            env.step([1, 10**9], mask=np.array([False, True]))
        assert [] == inside

    def test_after_a_masked_step_all_actions_are_checked_again(self, make):
        env, _ = begun(make(9, 9))
        env.step([10**9, 1], mask=np.array([False, True]))
        with pytest.raises(SpecError):
            env.step([10**9, 1])

    def test_an_ended_single_environment_accepts_any_action(self, make):
        env, _ = begun(make())
        for _ in range(5):
            env.step(1)
        assert 0 == env.step(None).step_type

    def test_a_running_single_environment_checks_its_action(self, make):
        env, inside = begun(make())
        with pytest.raises(SpecError):
            env.step(None)
        assert [] == inside


def test_a_subclass_of_a_wrapper_can_override_the_hook():
    class Louder(ActionClipWrapper):
        def _act(self, action):
            return super()._act(10 * np.asarray(action))

    env = Louder(Catch(batch_size=2, seed=1))
    env.reset()
    observation = env.step([1, -1]).observation
    assert [3, 1] == observation[:, -1].argmax(axis=1).tolist()
