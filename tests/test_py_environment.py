"""The template method, resetting by itself and by row, state tokens and messages."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    EnvironmentSpec,
    PyEnvironment,
    StepType,
    TimeStep,
    nest,
    restart,
    termination,
    time_step_spec,
    transition,
)
from envkit.envs import CartPole
from envkit.errors import CallOrderError, SpecError
from envkit.py_environment import EnvironmentState
from envkit.testing import CountingEnv
from tests.comparing import bits, told

MASKS = [np.array(mask) for mask in itertools.product([False, True], repeat=4)]


class Walk(PyEnvironment):
    """Counts to `length` without the help of the base class's constructor."""

    def __init__(self, length=2):
        self.length = length
        self.actions = []

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 9)

    def _reset(self):
        self.place = 0
        return restart(np.array(0))

    def _step(self, action):
        self.actions.append(action)
        self.place += 1
        if self.place == self.length:
            return termination(np.array(self.place), reward=1.0)
        return transition(np.array(self.place), reward=0.0)


class Rows(PyEnvironment):
    """A batch whose rows end when they are told to: by an action of 1.

    A row observes the number of its episode and the steps in it. `calls` records what
    the base class asked for.
    """

    def __init__(self, rows=4, handle_auto_reset=True):
        super().__init__(handle_auto_reset)
        self._rows = rows
        self._counts = np.zeros((rows, 2), np.int64)
        self.calls = []

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return self._rows

    def observation_spec(self):
        return {"counts": ArraySpec((2,), np.int64), "even": ArraySpec((), np.bool_)}

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _observe(self):
        return {"counts": self._counts.copy(), "even": self._counts[:, 1] % 2 == 0}

    def _reset(self):
        self.calls.append("reset")
        return self._begin(np.ones(self._rows, bool))

    def _reset_rows(self, mask):
        self.calls.append(("reset_rows", mask.tolist()))
        return self._begin(mask)

    def _begin(self, mask):
        self._counts[mask] += [1, 0]
        self._counts[mask, 1] = 0
        return restart(self._observe(), self._rows)

    def _step(self, action):
        self.calls.append("step")
        self._counts[:, 1] += 1
        ended = np.asarray(action) == 1
        return TimeStep(
            np.where(ended, StepType.LAST, StepType.MID).astype(np.int32),
            np.full(self._rows, 0.5, np.float32),
            np.where(ended, 0.0, 1.0).astype(np.float32),
            self._observe(),
        )

    def _get_state(self):
        return self._counts

    def _set_state(self, state):
        self._counts = state


class HelplessRows(Rows):
    """A batch that was not taught to reset single rows."""

    _reset_rows = PyEnvironment._reset_rows


class SelfHelpingRows(HelplessRows):
    """A batch whose own `_step` begins the episodes of the rows that ended."""

    def _step(self, action):
        before = self.current_time_step().is_last()
        after = super()._step(action)
        step_type = np.where(before, StepType.FIRST, after.step_type).astype(np.int32)
        return after._replace(step_type=step_type)


def row_of(time_step, row):
    """Returns one row of a time step of `Rows` as plain numbers."""
    return (
        int(time_step.step_type[row]),
        float(time_step.reward[row]),
        float(time_step.discount[row]),
        time_step.observation["counts"][row].tolist(),
        bool(time_step.observation["even"][row]),
    )


# What a step and a reset mean.


def test_reset_and_step_return_the_environments_own_objects():
    class Kept(Walk):
        def _reset(self):
            self.made = super()._reset()
            return self.made

        def _step(self, action):
            self.made = super()._step(action)
            return self.made

    env = Kept()
    for call in (env.reset, lambda: env.step(7)):
        assert call() is env.made
        assert env.current_time_step() is env.made
    assert [7] == env.actions


def test_a_subclass_may_forget_to_call_the_base_constructor():
    env = Walk(length=1)
    env.reset()
    assert not env.should_reset(env.step(0))


def test_without_handle_auto_reset_a_step_after_last_reaches_the_environment():
    env = Walk(length=1)
    types = [int(env.step(action).step_type) for action in range(3)]
    assert [0, 2, 1] == types
    assert [1, 2] == env.actions


def test_with_handle_auto_reset_a_step_after_last_begins_an_episode():
    class Resetting(Walk):
        def __init__(self):
            PyEnvironment.__init__(self, handle_auto_reset=True)
            Walk.__init__(self)

    env = Resetting()
    types = [int(env.step(action).step_type) for action in range(7)]
    assert [0, 1, 2, 0, 1, 2, 0] == types
    assert [1, 2, 4, 5] == env.actions


def test_auto_reset_understands_step_types_that_are_not_the_constants():
    class OwnArrays(CountingEnv):
        def _step(self, action):
            time_step = super()._step(action)
            return time_step._replace(step_type=np.array(time_step.step_type))

    env = OwnArrays(steps_per_episode=2)
    assert [0, 1, 2, 0, 1, 2] == [int(env.step(0).step_type) for _ in range(6)]


@pytest.mark.parametrize("handle_auto_reset", [False, True])
def test_an_overridden_should_reset_is_asked(handle_auto_reset):
    class Impatient(Walk):
        def __init__(self):
            PyEnvironment.__init__(self, handle_auto_reset)
            Walk.__init__(self, length=9)

        def should_reset(self, current_time_step):
            return bool(current_time_step.observation == 2)

    env = Impatient()
    assert [0, 1, 2, 0, 1] == [int(env.step(0).observation) for _ in range(5)]


def test_a_should_reset_that_comes_from_a_mixin_is_asked():
    class Never:
        def should_reset(self, current_time_step):
            return False

    class Endless(Never, CountingEnv):
        pass

    env = Endless(steps_per_episode=1)
    assert [0, 2, 2] == [int(env.step(0).step_type) for _ in range(3)]


def test_should_reset_needs_every_row_of_a_batch_to_have_ended():
    env = Rows()
    env.reset()
    some = env.step([1, 0, 1, 1])
    every = env.step([1, 1, 1, 1])
    assert not env.should_reset(some)
    assert env.should_reset(every._replace(step_type=np.full(4, 2, np.int32)))
    assert not Rows(handle_auto_reset=False).should_reset(
        every._replace(step_type=np.full(4, 2, np.int32))
    )


def test_none_from_reset_is_refused():
    class Lost(Walk):
        def _reset(self):
            pass

    expected = (
        "Lost._reset() returned None, not a TimeStep. Did a return statement get lost?"
    )
    assert (SpecError, expected) == told(Lost().reset)
    assert (SpecError, expected) == told(Lost().step, 0)


@pytest.mark.parametrize("handle_auto_reset", [False, True])
@pytest.mark.parametrize("good", [0, 1])
def test_none_from_step_is_refused(handle_auto_reset, good):
    class Lost(Walk):
        def __init__(self):
            PyEnvironment.__init__(self, handle_auto_reset)
            Walk.__init__(self, length=9)

        def _step(self, action):
            time_step = super()._step(action)
            return time_step if self.place <= good else None

    env = Lost()
    for _ in range(good + 1):
        time_step = env.step(0)
    expected = (
        "Lost._step() returned None, not a TimeStep. Did a return statement get lost?"
    )

    assert (SpecError, expected) == told(env.step, 0)
    assert (SpecError, expected) == told(env.step, 0)
    assert env.current_time_step() is time_step


@pytest.mark.parametrize("env_class", [HelplessRows, Rows], ids=["without", "with"])
def test_none_from_the_step_of_a_batch_is_refused_when_rows_have_ended(env_class):
    class Lost(env_class):
        def _step(self, action):
            time_step = super()._step(action)
            return time_step if "reset" == self.calls[-2] else None

    env = Lost()
    env.reset()
    env.step([0, 1, 0, 0])
    expected = (
        "Lost._step() returned None, not a TimeStep. Did a return statement get lost?"
    )
    assert (SpecError, expected) == told(env.step, [0, 0, 0, 0])


# The template is not overridden.


class Between(CountingEnv):
    def step(self, action):
        return super().step(action)


class Logging:
    def reset(self):
        return super().reset()


@pytest.mark.parametrize(
    ("make", "culprit", "name"),
    [
        (type("Stubborn", (CountingEnv,), {"reset": None}), "Stubborn", "reset"),
        (type("Stubborn", (CountingEnv,), {"step": None}), "Stubborn", "step"),
        (type("Innocent", (Between,), {}), "Between", "step"),
        (type("Logged", (Logging, CountingEnv), {}), "Logging", "reset"),
    ],
    ids=["reset", "step", "class between", "mixin"],
)
def test_overriding_the_template_is_refused(make, culprit, name):
    expected = (
        f"{culprit} overrides {name}(); override _{name}() instead. {name}() belongs "
        "to PyEnvironment, which keeps the current time step there."
    )
    assert (ValueError, expected) == told(make)


def test_a_mixin_behind_the_base_class_overrides_nothing():
    class Behind:
        def step(self, action):
            raise AssertionError("never called")

    class Fine(CountingEnv, Behind):
        pass

    assert Fine().step(0).is_first()


def test_an_environment_that_lacks_a_required_method_cannot_be_made():
    class Half(PyEnvironment):
        def observation_spec(self):
            return ArraySpec((), np.int64)

    with pytest.raises(TypeError, match="abstract"):
        Half()


# Specs.


def test_reward_discount_and_time_step_specs_have_defaults():
    env = Walk()
    assert ArraySpec((), np.float32) == env.reward_spec()
    assert "reward" == env.reward_spec().name
    assert BoundedArraySpec((), np.float32, 0.0, 1.0) == env.discount_spec()
    assert time_step_spec(env.observation_spec()) == env.time_step_spec()


def test_the_time_step_spec_contains_the_reward_and_discount_specs():
    class Two(Walk):
        def reward_spec(self):
            return {"fuel": ArraySpec((2,), np.float64)}

        def discount_spec(self):
            return BoundedArraySpec((), np.float64, 0.0, 0.9)

    env = Two()
    spec = env.time_step_spec()

    assert env.reward_spec() == spec.reward
    assert env.discount_spec() == spec.discount
    assert (
        EnvironmentSpec(
            ArraySpec((), np.int64),
            BoundedArraySpec((), np.int64, 0, 9),
            env.reward_spec(),
            env.discount_spec(),
        )
        == env.environment_spec()
    )


def test_environments_are_single_by_default():
    env = Walk()
    assert env.batched is False
    assert env.batch_size is None


# What an environment need not have.


class Sizeless(Walk):
    @property
    def batched(self):
        return True


CANNOT_RENDER = (
    "Walk cannot render: override render(mode), which returns a uint8 array of shape "
    '(height, width, 3) for "rgb_array".'
)


@pytest.mark.parametrize(
    ("make", "call", "kind", "expected"),
    [
        (Walk, lambda env: env.render(), NotImplementedError, CANNOT_RENDER),
        (Walk, lambda env: env.render("human"), NotImplementedError, CANNOT_RENDER),
        (
            Walk,
            lambda env: env.seed(3),
            NotImplementedError,
            "Walk cannot be seeded: override seed(seed), or give _reset() an argument "
            "seed.",
        ),
        (
            Walk,
            lambda env: env.get_info(),
            NotImplementedError,
            "Walk has no info: override get_info(), which returns a dictionary.",
        ),
        (
            Walk,
            lambda env: env.get_state(),
            NotImplementedError,
            "Walk cannot save its state: override _get_state() and _set_state().",
        ),
        (
            Walk,
            lambda env: env.set_state(EnvironmentState(None, None)),
            NotImplementedError,
            "Walk cannot restore a state: override _get_state() and _set_state().",
        ),
        (
            Walk,
            lambda env: env.current_time_step(),
            CallOrderError,
            "Current timestep not initialized: Walk.current_time_step() was called "
            "before the first episode. Call reset() first.",
        ),
        (
            Walk,
            lambda env: env.reset([True]),
            ValueError,
            "Walk is not batched, so it has no rows to choose from: call reset() "
            "without a mask.",
        ),
        (
            Sizeless,
            lambda env: env.batch_size,
            RuntimeError,
            "Sizeless says it is batched but has no batch_size: override the property "
            "batch_size.",
        ),
        (
            Rows,
            lambda env: env.reset([True, False, False, False]),
            CallOrderError,
            "Rows.reset(mask) was called before the first reset(): the rows outside "
            "the mask have no time step yet. Call reset() first.",
        ),
        (
            HelplessRows,
            lambda env: (env.reset(), env.reset([True, False, False, False])),
            NotImplementedError,
            "HelplessRows cannot reset single rows: override _reset_rows(mask), which "
            "begins an episode in the masked rows only.",
        ),
    ],
)
def test_missing_features_are_named_in_the_error(make, call, kind, expected):
    assert (kind, expected) == told(call, make())


def test_a_missing_time_step_is_a_value_error_as_in_tf_agents():
    assert issubclass(CallOrderError, ValueError)


def test_closing_twice_is_harmless():
    env = Walk()
    env.close()
    env.close()
    assert env.step(0).is_first()


def test_a_context_manager_closes_even_if_its_body_fails():
    class Closing(Walk):
        closed = 0

        def close(self):
            self.closed += 1

    env = Closing()
    with env as entered:
        assert entered is env
    with pytest.raises(KeyError), env:
        raise KeyError("body")
    assert 2 == env.closed


# Rows of a batch begin their episodes by themselves.


def test_merged_rows_keep_their_dtypes():
    env = Rows()
    env.reset()
    plain = env.step([0, 1, 0, 0])
    merged = env.step([0, 0, 0, 0])
    assert merged is env.current_time_step()
    assert [leaf.dtype for leaf in nest.flatten(plain)] == [
        leaf.dtype for leaf in nest.flatten(merged)
    ]


def test_rows_that_all_ended_are_reset_together():
    env = Rows()
    env.reset()
    env.step([1, 1, 1, 1])
    time_step = env.step([1, 1, 1, 1])
    assert [0, 0, 0, 0] == time_step.step_type.tolist()
    assert ["reset", "step", "reset"] == env.calls


def test_a_batch_without_handle_auto_reset_is_left_alone():
    env = Rows(handle_auto_reset=False)
    env.reset()
    env.step([0, 1, 0, 0])
    env.step([0, 0, 0, 0])
    assert ["reset", "step", "step"] == env.calls


def test_a_batch_can_reset_its_rows_in_its_own_step():
    env = SelfHelpingRows()
    env.reset()
    env.step([0, 1, 0, 0])
    assert [1, 0, 1, 1] == env.step([0, 0, 0, 0]).step_type.tolist()


@pytest.mark.parametrize(
    ("ending", "rows"),
    [([0, 1, 0, 0], "row 1 of"), ([1, 1, 0, 1], "rows 0, 1, 3 of")],
)
def test_a_batch_learns_which_rows_have_ended(ending, rows):
    env = HelplessRows()
    env.reset()
    env.step(ending)
    expected = (
        f"{rows} HelplessRows ended with the last step, and this step did not begin a "
        "new episode there. Override _reset_rows(mask), which begins an episode in the "
        "masked rows only, or let _step() do it."
    )
    assert (NotImplementedError, expected) == told(env.step, [0, 0, 0, 0])


def test_only_the_first_of_many_rows_are_named():
    env = HelplessRows(rows=12)
    env.reset()
    env.step([1] * 11 + [0])
    kind, text = told(env.step, [0] * 12)
    assert NotImplementedError is kind
    assert text.startswith("rows 0, 1, 2, 3, 4, 5, 6, 7 and 3 more of HelplessRows ")


@settings(max_examples=40)
@given(
    actions=st.lists(
        st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=1, max_size=12
    )
)
def test_each_row_equals_a_batch_of_one(actions):
    batch = Rows(rows=3)
    singles = [Rows(rows=1) for _ in range(3)]
    for action in actions:
        together = batch.step(action)
        alone = [
            env.step([choice]) for env, choice in zip(singles, action, strict=True)
        ]
        assert [row_of(time_step, 0) for time_step in alone] == [
            row_of(together, row) for row in range(3)
        ]


class _Returning(Rows):
    """A batch whose `_reset_rows` returns what a test says."""

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    def _reset_rows(self, mask):
        return self._answer(super()._reset_rows(mask), mask)


WHOLE_BATCH = "It returns the whole batch; only the masked rows of it are used."


def narrow(time_step, mask):
    counts = time_step.observation["counts"][:, :1]
    return time_step._replace(observation={**time_step.observation, "counts": counts})


def only_the_masked(time_step, mask):
    observation = {key: leaf[mask] for key, leaf in time_step.observation.items()}
    return restart(observation, int(mask.sum()))


@pytest.mark.parametrize(
    ("answer", "place", "expected", "got", "reason"),
    [
        (
            only_the_masked,
            " at step_type",
            "ArraySpec(shape=(4,), dtype=int32, name='step_type')",
            "array of shape (2,), dtype int32, values 0 … 0",
            "Axis 0 has size 2 instead of 4. Neither does it fit at reward, discount, "
            "observation['counts'] and 1 more.",
        ),
        (
            narrow,
            " at observation['counts']",
            "ArraySpec(shape=(4, 2), dtype=int64)",
            "array of shape (4, 1), dtype int64, values 1 … 2",
            "Axis 1 has size 1 instead of 2. The other 4 leaves fit.",
        ),
        (
            lambda time_step, mask: time_step._replace(
                reward=time_step.reward.astype(np.float64)
            ),
            " at reward",
            "ArraySpec(shape=(4,), dtype=float32, name='reward')",
            "array of shape (4,), dtype float64, values 0.0 … 0.0",
            "dtype is float64; the spec says float32. NumPy makes float64 by default: "
            "add .astype(np.float32). The other 4 leaves fit.",
        ),
        (
            lambda time_step, mask: None,
            "",
            "the structure TimeStep(step_type=*, reward=*, discount=*, "
            "observation={'counts': *, 'even': *})",
            "None",
            "The value is None; a namedtuple TimeStep is expected. Did a return "
            "statement get lost?",
        ),
    ],
    ids=["masked rows alone", "shape", "dtype", "None"],
)
@pytest.mark.parametrize("call", ["reset", "step"])
def test_a_reset_of_rows_returns_the_whole_batch(
    call, answer, place, expected, got, reason
):
    env = _Returning(answer)
    env.reset()
    text = (
        f"_Returning._reset_rows() returned a time step that does not fit its spec"
        f"{place}.\n\n  expected   {expected}\n  got        {got}\n\n{reason}\n"
        f"{WHOLE_BATCH}"
    )
    if call == "reset":
        refused = told(env.reset, [False, True, True, False])
    else:
        env.step([0, 1, 1, 0])
        refused = told(env.step, [0, 0, 0, 0])
    assert (SpecError, text) == refused


def test_steps_are_never_broadcast_into_rows_that_were_reset():
    class Scalar(Rows):
        def _step(self, action):
            time_step = super()._step(action)
            if not self.breaks:
                return time_step
            return time_step._replace(reward=np.array(1.0, np.float32))

    env = Scalar()
    env.breaks = False
    env.reset()
    env.step([0, 1, 0, 0])
    env.breaks = True
    expected = (
        "Scalar._step() returned a time step that does not fit its spec at reward.\n\n"
        "  expected   ArraySpec(shape=(4,), dtype=float32, name='reward')\n"
        "  got        array of shape (), dtype float32, values 1.0 … 1.0\n\n"
        "The whole batch dimension is missing: expected (4,). The other 4 leaves fit."
    )
    assert (SpecError, expected) == told(env.step, [0, 0, 0, 0])


# Resetting chosen rows.


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_a_masked_reset_touches_only_the_masked_rows(mask):
    env, untouched = Rows(), Rows()
    for each in (env, untouched):
        each.reset()
        before = each.step([0, 0, 0, 0])
    given_mask = mask.copy()
    after = env.reset(mask)
    now = env.current_time_step()
    later, plain = env.step([0, 0, 0, 0]), untouched.step([0, 0, 0, 0])

    assert now is after
    assert given_mask.tolist() == mask.tolist()
    for row in range(4):
        begun = (0, 0.0, 1.0, [2, 0], True)
        second = (1, 0.5, 1.0, [2, 1], False)

        assert (begun if mask[row] else row_of(before, row)) == row_of(after, row)
        assert (second if mask[row] else row_of(plain, row)) == row_of(later, row)


def test_a_mask_of_all_rows_is_a_full_reset():
    env = Rows()
    time_step = env.reset(np.ones(4, bool))
    assert [0, 0, 0, 0] == time_step.step_type.tolist()
    assert ["reset"] == env.calls


def test_an_empty_mask_does_not_call_the_environment():
    env = Rows()
    first = env.reset()
    assert env.reset(np.zeros(4, bool)) is first
    assert ["reset"] == env.calls


def test_a_masked_reset_restarts_a_row_that_ended():
    env = Rows()
    env.reset()
    env.step([0, 1, 0, 0])
    env.reset([False, True, False, False])
    assert [1, 1, 1, 1] == env.step([0, 0, 0, 0]).step_type.tolist()


@pytest.mark.parametrize(
    ("mask", "got"),
    [
        (np.array([True]), "array of shape (1,), dtype bool, values True … True"),
        ([True, False], "a list of 2 elements"),
        ([0, 1, 0, 0], "a list of 4 elements"),
        (np.array([1, 3]), "array of shape (2,), dtype int64, values 1 … 3"),
        (
            np.ones((4, 1), bool),
            "array of shape (4, 1), dtype bool, values True … True",
        ),
        (True, "True of type bool"),
        ("all", "the string 'all'"),
        ([[True], [True, False]], "a list of 2 elements"),
    ],
    ids=str,
)
def test_an_invalid_mask_is_refused(mask, got):
    env = Rows()
    first = env.reset()
    expected = (
        "Rows.reset() was given a mask that does not fit its spec.\n\n"
        "  expected   boolean array of shape (4,)\n"
        f"  got        {got}\n\n"
        "A mask has one boolean for each row: true where an episode is to begin."
    )
    assert (SpecError, expected) == told(env.reset, mask)
    assert env.current_time_step() is first


@pytest.mark.parametrize(
    ("make", "given", "remedy"),
    [
        (CountingEnv, 7, "For a seed, write reset(seed=7)."),
        (Rows, 7, "For a seed, write reset(seed=7)."),
        (Rows, [3, 1, 4, 1], "For a seed, write reset(seed=[3, 1, 4, 1])."),
        (CountingEnv, {"level": 3}, "For options, write reset(options=...)."),
        (Rows, {"level": 3}, "For options, write reset(options=...)."),
    ],
)
def test_seeds_and_options_in_place_of_a_mask_are_told_their_place(make, given, remedy):
    _, message = told(make().reset, given)
    assert message.endswith(f" {remedy}")


# State.


def test_a_token_holds_the_environment_and_the_current_time_step():
    env = CountingEnv()
    env.reset()
    then = env.step(0)
    token = env.get_state()
    env.step(0)
    env.set_state(token)
    assert isinstance(token, EnvironmentState)
    assert (0, 1) == token.environment
    assert 1 == token.time_step.observation
    assert bits(then) == bits(env.current_time_step())


def test_a_token_is_a_copy_that_later_steps_do_not_change():
    env = Rows()
    env.reset()
    first = env.current_time_step()
    token = env.get_state()
    env.step([0, 1, 0, 0])
    first.reward[:] = 99.0
    assert [[1, 0]] * 4 == token.environment.tolist()
    assert [0.0] * 4 == token.time_step.reward.tolist()


def test_a_token_can_be_used_twice():
    env = Rows()
    env.reset()
    token = env.get_state()
    futures = []
    for _ in range(2):
        env.set_state(token)
        env.current_time_step().reward[:] = 99.0
        env.step([0, 1, 0, 0])
        futures.append(env.step([0, 0, 0, 0]))
    assert bits(futures[0]) == bits(futures[1])


def test_a_token_from_before_the_first_reset_restores_that_too():
    env = CountingEnv(steps_per_episode=3)
    token = env.get_state()
    env.reset()
    env.step(0)
    env.set_state(token)
    assert CallOrderError is told(env.current_time_step)[0]
    assert env.step(0).is_first()


@settings(max_examples=40)
@given(data=st.data())
def test_setting_a_state_is_the_identity_on_the_future(data):
    def actions(most):
        row = st.lists(st.integers(0, 1), min_size=2, max_size=2)
        return data.draw(st.lists(row, max_size=most))

    env = Rows(rows=2)
    for action in actions(6):
        env.step(action)
    token = pickle.loads(pickle.dumps(env.get_state()))
    future = [*actions(6), [0, 0]]
    expected = [bits(env.step(action)) for action in future]
    for action in actions(6):
        env.step(action)
    env.set_state(token)
    assert expected == [bits(env.step(action)) for action in future]


@pytest.mark.parametrize(
    ("token", "got"),
    [
        (None, "None"),
        ((0, 1), "a tuple of 2 elements"),
        ({"a": 1}, "a dict of 1 element"),
        (7, "7 of type int"),
    ],
    ids=str,
)
def test_anything_but_a_state_token_is_refused(token, got):
    env = CountingEnv()
    first = env.reset()
    expected = (
        f"CountingEnv.set_state() was given {got}; it takes what get_state() returned."
    )
    assert (TypeError, expected) == told(env.set_state, token)
    assert env.current_time_step() is first


def test_a_state_that_cannot_be_restored_keeps_the_current_time_step():
    class Refusing(CountingEnv):
        def _set_state(self, state):
            raise OSError("disk full")

    env = Refusing()
    first = env.reset()
    token = env.get_state()
    assert (OSError, "disk full") == told(env.set_state, token)
    assert env.current_time_step() is first


# How it is shown.


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        (Walk(), "Walk()"),
        (Walk.__new__(Walk), "Walk()"),
        (CartPole(batch_size=3), "CartPole(batch_size=3)"),
        (BatchedPyEnvironment([Walk(), Walk()]), "BatchedPyEnvironment(batch_size=2)"),
    ],
)
def test_an_environment_is_shown_as_its_class_with_the_number_of_rows(env, shown):
    assert shown == repr(env)
