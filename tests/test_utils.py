"""`validate_py_environment`: TF-Agents' test of an environment, with better answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    RandomPyEnvironment,
    restart,
    termination,
    time_step_spec,
    transition,
)
from envkit.errors import SpecError
from envkit.testing import CountingEnv, EpisodeCountingEnv, NestedCountingEnv
from envkit.utils import validate_py_environment
from tests.comparing import told


class Broken(CountingEnv):
    """Returns one time step that a test spoils: the one after `good` good ones."""

    def __init__(self, spoil, good=0, steps_per_episode=3):
        super().__init__(steps_per_episode)
        self._spoil = spoil
        self._good = good

    def _maybe(self, time_step):
        self._good -= 1
        return self._spoil(time_step) if self._good == -1 else time_step

    def _reset(self):
        return self._maybe(super()._reset())

    def _step(self, action):
        return self._maybe(super()._step(action))


class Masked(PyEnvironment):
    """Shows which actions are legal, and raises if another one is taken.

    `shape` is that of an action. A mask has one more dimension, of the choices.
    """

    def __init__(self, shape=(), rows=None, minimum=3, choices=4, seed=0):
        super().__init__(handle_auto_reset=True)
        self._dims = () if rows is None else (rows,)
        self._rows = rows
        self._minimum = minimum
        self._choices = choices
        self._rng = np.random.default_rng(seed)
        self._shape = shape
        self._steps = 0
        self.taken = set()

    @property
    def batched(self):
        return self._rows is not None

    @property
    def batch_size(self):
        return self._rows

    def observation_spec(self):
        shape = (*self._mask_shape(), self._choices)
        return {"seen": ArraySpec((), np.int64), "mask": ArraySpec(shape, np.bool_)}

    def _mask_shape(self):
        return () if self._shape == (1,) else self._shape

    def action_spec(self):
        highest = self._minimum + self._choices - 1
        return BoundedArraySpec(self._shape, np.int64, self._minimum, highest)

    def _observe(self):
        shape = (*self._dims, *self._mask_shape(), self._choices)
        mask = self._rng.random(shape) < 0.4
        mask[..., self._steps % self._choices] = True
        self._mask = mask
        return {"seen": np.zeros(self._dims, np.int64), "mask": mask}

    def _reset(self):
        return restart(self._observe(), self._rows)

    def _step(self, action):
        self._steps += 1
        choice = np.asarray(action).reshape(self._mask.shape[:-1]) - self._minimum
        assert np.take_along_axis(self._mask, choice[..., None], -1).all(), "illegal"
        self.taken.update(choice.reshape(-1).tolist())
        reward = np.zeros(self._dims)
        if self._steps % 5:
            return transition(self._observe(), reward, outer_dims=None)
        return termination(self._observe(), reward)


def split(observation):
    """Is what TF-Agents calls an observation and action constraint splitter."""
    return observation["seen"], observation["mask"]


class Duck:
    """Has what TF-Agents' function asks for, and nothing else."""

    batch_size = None

    def __init__(self):
        self.resets = 0
        self._steps = itertools.cycle(
            [
                transition(np.zeros(2, np.float32), reward=0.0),
                termination(np.zeros(2, np.float32), reward=1.0),
            ]
        )

    def time_step_spec(self):
        return time_step_spec(ArraySpec((2,), np.float32))

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def reset(self):
        self.resets += 1
        return restart(np.zeros(2, np.float32))

    def step(self, action):
        return next(self._steps)


# Environments that keep their specs.


@pytest.mark.parametrize(
    "make_env",
    [
        CountingEnv,
        lambda: CountingEnv(dtype=np.float64),
        EpisodeCountingEnv,
        lambda: NestedCountingEnv(nested_action=True),
        lambda: RandomPyEnvironment({"a": ArraySpec((2, 3), np.float32)}),
        lambda: RandomPyEnvironment(
            ArraySpec((), np.uint8), BoundedArraySpec((2,), np.float32), batch_size=3
        ),
        lambda: BatchedPyEnvironment([CountingEnv(), CountingEnv()], False),
    ],
    ids=["one", "float", "tuple", "dict", "random", "random batch", "batch"],
)
def test_an_environment_that_keeps_its_specs_passes(make_env):
    validate_py_environment(make_env())


def test_an_environment_needs_only_what_tf_agents_asks_for():
    duck = Duck()
    validate_py_environment(duck, episodes=3)
    assert 3 == duck.resets


def test_the_requested_number_of_episodes_is_played():
    class Closely(CountingEnv):
        ends = 0

        def _step(self, action):
            time_step = super()._step(action)
            self.ends += bool(time_step.is_last())
            return time_step

    env = Closely(steps_per_episode=2)
    validate_py_environment(env, 7)
    assert 7 == env.ends


def test_the_episodes_of_all_rows_count():
    env = BatchedPyEnvironment([CountingEnv(2), CountingEnv(4)], multithreading=False)
    validate_py_environment(env, episodes=3)
    counts = [each.get_state().environment for each in env.envs]
    assert [(1, 2), (1, 0)] == counts


def test_actions_are_drawn_from_the_action_spec():
    class Strict(CountingEnv):
        def __init__(self):
            super().__init__()
            self.taken = set()

        def _step(self, action):
            assert self.action_spec().check_array(action)
            self.taken.add(int(action))
            return super()._step(action)

    env = Strict()
    validate_py_environment(env, episodes=10)
    assert {0, 1} == env.taken


# Environments that do not.


@pytest.mark.parametrize(
    ("good", "call"),
    [
        (0, "reset()"),
        (1, "step()"),
        (3, "step()"),
        (4, "reset()"),
        (5, "step()"),
    ],
    ids=["first", "second", "last", "second reset", "second episode"],
)
def test_every_time_step_is_checked(good, call):
    env = Broken(lambda time_step: time_step._replace(observation=np.array(1.0)), good)
    expected = (
        "A time step does not match expected time_step_spec. "
        f"Broken.{call} returned a time step that does not fit its spec at observation."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=-2147483648, "
        "maximum=2147483647)\n"
        "  got        array of shape (), dtype float64, values 1.0 … 1.0\n\n"
        "dtype is float64; the spec says int32. If that is meant, add "
        ".astype(np.int32). The other 3 leaves fit."
    )
    assert (SpecError, expected) == told(validate_py_environment, env)


class Lost(Duck):
    """Has lost a return statement."""

    def step(self, action):
        return None


@pytest.mark.parametrize(
    ("make", "call", "place", "expected", "got", "reason"),
    [
        (
            lambda: Broken(lambda time_step: time_step._replace(reward=None)),
            "Broken.reset()",
            " at reward",
            "ArraySpec(shape=(), dtype=float32, name='reward')",
            "None",
            "None is not an array. Did a return statement get lost? The other 3 leaves "
            "fit.",
        ),
        (
            lambda: Broken(
                lambda time_step: time_step._replace(discount=np.array(1.5, np.float32))
            ),
            "Broken.reset()",
            " at discount",
            "BoundedArraySpec(shape=(), dtype=float32, minimum=0.0, maximum=1.0, "
            "name='discount')",
            "array of shape (), dtype float32, values 1.5 … 1.5",
            "The value 1.5 is above the maximum 1.0. The other 3 leaves fit.",
        ),
        (
            Lost,
            "Lost.step()",
            "",
            "the structure TimeStep(step_type=*, reward=*, discount=*, observation=*)",
            "None",
            "The value is None; a namedtuple TimeStep is expected. Did a return "
            "statement get lost?",
        ),
    ],
    ids=["reward", "discount", "None"],
)
def test_messages_name_the_mistake_and_its_place(
    make, call, place, expected, got, reason
):
    text = (
        f"A time step does not match expected time_step_spec. {call} returned a time "
        f"step that does not fit its spec{place}.\n\n"
        f"  expected   {expected}\n  got        {got}\n\n{reason}"
    )
    # TF-Agents' users catch a ValueError.
    assert issubclass(SpecError, ValueError)
    assert (SpecError, text) == told(validate_py_environment, make())


def test_a_batch_without_its_dimension_is_reported():
    class Flat(RandomPyEnvironment):
        def _observe(self):
            return super()._observe()[0]

    env = Flat(ArraySpec((2,), np.uint8), batch_size=3, episode_end_probability=0.0)
    kind, text = told(validate_py_environment, env)
    assert SpecError is kind
    assert text.splitlines()[0] == (
        "A time step does not match expected time_step_spec. Flat.reset() returned a "
        "time step that does not fit its spec at observation."
    )
    assert text.endswith(
        "The whole batch dimension is missing: expected (3, 2). The other 3 leaves fit."
    )


# Legal actions.


@pytest.mark.parametrize("rows", [None, 1, 3, 4])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (4,)], ids=str)
def test_a_mask_of_legal_actions_is_obeyed(shape, rows):
    env = Masked(shape, rows)
    validate_py_environment(env, 20, split)
    assert {0, 1, 2, 3} == env.taken


@pytest.mark.parametrize("dtype", [np.int32, np.float32], ids=["int", "float"])
def test_a_mask_may_contain_numbers(dtype):
    class Numbers(Masked):
        def observation_spec(self):
            spec = super().observation_spec()
            return {**spec, "mask": spec["mask"].replace(dtype=dtype)}

        def _observe(self):
            observation = super()._observe()
            return {**observation, "mask": observation["mask"].astype(dtype)}

    validate_py_environment(Numbers(), observation_and_action_constraint_splitter=split)


NO_SHAPE = (
    "The mask of legal actions has the shape {}; (4,) is expected: the shape of the "
    "action, and a place for each of its 4 values."
)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (np.ones(9, bool), NO_SHAPE.format("(9,)")),
        (np.ones(3, bool), NO_SHAPE.format("(3,)")),
        (np.array(True), NO_SHAPE.format("()")),
        (
            np.zeros(4, bool),
            "The mask of legal actions allows none in at least one place.",
        ),
    ],
    ids=["too many", "too few", "scalar", "none"],
)
def test_a_mask_covers_every_action_and_allows_at_least_one(mask, expected):
    assert (SpecError, expected) == told(
        validate_py_environment,
        Masked(),
        observation_and_action_constraint_splitter=lambda observation: (None, mask),
    )


class Suffixed(Masked):
    """Has two actions; the observation holds a mask for one of them, named after it."""

    def action_spec(self):
        return {"move": super().action_spec(), "wait": BoundedArraySpec((), np.int64)}

    def observation_spec(self):
        spec = super().observation_spec()
        return {"seen": spec["seen"], "move_mask": spec["mask"]}

    def _observe(self):
        observation = super()._observe()
        return {"seen": observation["seen"], "move_mask": observation["mask"]}

    def _step(self, action):
        return super()._step(action["move"])


@pytest.mark.parametrize("rows", [None, 3])
def test_a_suffix_finds_the_masks_in_the_observation(rows):
    env = Suffixed(rows=rows)
    validate_py_environment(env, 20, None, "_mask")
    assert {0, 1, 2, 3} == env.taken


def test_a_suffix_that_finds_no_mask_is_refused():
    expected = (
        "No part of the observation has the name of an action and then '_legal': "
        "expected move_legal or wait_legal, found move_mask, seen."
    )
    assert (ValueError, expected) == told(
        validate_py_environment, Suffixed(), action_constraint_suffix="_legal"
    )
