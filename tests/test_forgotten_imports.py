"""A class of another library in the place of envkit's: errors name the import."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium  # noqa: F401  # one of the doors needs it
import numpy as np
import pytest

import envkit
from envkit import EnvironmentSpec, time_step, utils, wrappers
from envkit.adapters import PyToGymnasium
from envkit.errors import ConstructorError, EnvkitError
from envkit.recording import Record
from envkit.specs import BoundedArraySpec, array_spec
from envkit.testing import CountingEnv, check_environment

SPECS = "tf_agents.specs.array_spec"


class TheirSpec:
    """Has the attributes of TF-Agents' class, under its name."""

    def __init__(self, shape=(), dtype=np.int32, minimum=0, maximum=9, name=None):
        self.shape, self.dtype, self.name = shape, np.dtype(dtype), name
        self.minimum, self.maximum = np.array(minimum, dtype), np.array(maximum, dtype)


class TheirEnvironment:
    """Has the methods of TF-Agents' class, under its name."""

    batched, batch_size = False, None

    def observation_spec(self):
        return TheirSpec()

    action_spec = reward_spec = discount_spec = observation_spec

    def time_step_spec(self):
        return envkit.TimeStep(*[TheirSpec()] * 4)

    def reset(self):
        return envkit.restart(np.zeros((), np.int32))

    def step(self, action):
        return self.reset()

    def close(self):
        pass

    current_time_step = get_info = get_state = render = seed = set_state = reset


class TheirTimeStep(NamedTuple):
    """Has the name and the fields of TF-Agents' class."""

    step_type: Any
    reward: Any
    discount: Any
    observation: Any

    is_last = envkit.TimeStep.is_last


def of(kind, name, module):
    """Gives a class the name and the place that it has in another library."""
    kind.__name__ = kind.__qualname__ = name
    kind.__module__ = module


of(TheirSpec, "BoundedArraySpec", SPECS)
of(TheirEnvironment, "PyEnvironment", "tf_agents.environments.py_environment")
of(TheirTimeStep, "TimeStep", "tf_agents.trajectories.time_step")

SPEC = f"a {SPECS}.BoundedArraySpec (import BoundedArraySpec from envkit.specs)"
BASE = (
    "a ForgotBase derived from tf_agents.environments.py_environment.PyEnvironment "
    "(import PyEnvironment from envkit, or use envkit.adapters.from_tf_agents)"
)
STEP = (
    "a tf_agents.trajectories.time_step.TimeStep (import TimeStep from "
    "envkit.time_step)"
)


class ForgotSpecs(CountingEnv):
    def observation_spec(self):
        return {"count": TheirSpec()}

    def action_spec(self):
        return TheirSpec()


class ForgotOneSpec(CountingEnv):
    def observation_spec(self):
        return TheirSpec()


class ForgotBase(TheirEnvironment):
    pass


class ForgotTimeStep(CountingEnv):
    _mid = np.array(1, np.int32)

    def _step(self, action):
        step_type, *rest = super()._step(action)
        return TheirTimeStep(self._mid if step_type == 1 else step_type, *rest)


RETURNED = (
    f"ForgotSpecs.observation_spec() returned {SPEC} at ['count'], not an ArraySpec."
)
NOT_MADE = (
    f"The environment is {BASE}, and its observation_spec() is not made of ArraySpecs."
)


def tensor_specs():
    # Not at the top: workers import this module, for its classes.
    from envkit.tf import tensor_spec

    return tensor_spec


DOORS = {
    "batch": (lambda: envkit.BatchedPyEnvironment([ForgotSpecs()]), RETURNED),
    "in TensorFlow": (lambda: envkit.TFPyEnvironment(ForgotSpecs()), RETURNED),
    "get_tf_env": (lambda: utils.get_tf_env(ForgotSpecs()), RETURNED),
    "specs of": (lambda: EnvironmentSpec.of(ForgotSpecs()), RETURNED),
    "base, batch": (lambda: envkit.BatchedPyEnvironment([ForgotBase()]), NOT_MADE),
    "base, in TensorFlow": (
        lambda: envkit.TFPyEnvironment(ForgotBase()),
        f"TFPyEnvironment was given {BASE}.",
    ),
    "base, made in TensorFlow": (
        lambda: envkit.TFPyEnvironment(ForgotBase),
        f"TFPyEnvironment was given the class ForgotBase, which returned {BASE}.",
    ),
    "a wrapper of actions": (
        lambda: wrappers.ActionClipWrapper(ForgotSpecs()),
        f"The action spec is {SPEC}, not an ArraySpec.",
    ),
    "a wrapper of one action": (
        lambda: wrappers.ActionOffsetWrapper(ForgotSpecs()),
        "ActionOffsetWrapper only works with single-array action specs (not nested "
        f"ones), and the action spec of ForgotSpecs is {SPEC}.",
    ),
    "a spec for a wrapper": (
        lambda: wrappers.TransformReward(CountingEnv(), abs, TheirSpec()),
        f"TransformReward takes specs, and reward_spec is {SPEC}: use "
        "envkit.ArraySpec(shape, dtype).",
    ),
    "sampling": (
        lambda: envkit.RandomPyEnvironment(TheirSpec()).reset(),
        f"Cannot sample {SPEC}: it is not an ArraySpec.",
    ),
    "sampling between bounds": (
        lambda: array_spec.sample_bounded_spec(TheirSpec(), np.random.default_rng(0)),
        f"sample_bounded_spec() needs a BoundedArraySpec, not {SPEC}; "
        "sample_spec_nest() samples every spec.",
    ),
    "arrays": (
        lambda: array_spec.assert_arrays_spec_nest(np.zeros(2), TheirSpec()),
        f"The spec is {SPEC}, not an ArraySpec.",
    ),
    "outer dimensions": (
        lambda: array_spec.add_outer_dims_nest(TheirSpec(), (2,)),
        f"{SPEC} is not an ArraySpec, so it has no dimensions.",
    ),
    "reward spec": (
        lambda: time_step.time_step_spec(BoundedArraySpec((), np.int8), TheirSpec()),
        f"The reward spec is {SPEC}, but the observation spec is made of ArraySpecs. "
        "Both must be of one kind.",
    ),
    "tensor specs": (
        lambda: tensor_specs().from_spec([TheirSpec()]),
        f"No known conversion from {SPEC} at [0] to a TensorSpec: it must be a spec, "
        "got an object of type BoundedArraySpec.",
    ),
    "Gymnasium": (
        lambda: PyToGymnasium(ForgotSpecs()).observation_space,
        f"{SPEC} is not an ArraySpec, so there is no space for it.",
    ),
}


@pytest.mark.parametrize(("call", "text"), DOORS.values(), ids=DOORS)
def test_errors_name_the_foreign_class_and_the_right_import(call, text, message_of):
    assert text == message_of((TypeError, ValueError), call)


@pytest.mark.parametrize(
    ("backend", "maker", "text"),
    [
        ("inline", ForgotBase, NOT_MADE[:200]),
        ("thread", ForgotSpecs, RETURNED),
        ("process", ForgotBase, NOT_MADE[:200]),
    ],
)
def test_errors_of_workers_name_the_right_import(backend, maker, text, message_of):
    message = message_of(
        ConstructorError, lambda: envkit.ParallelPyEnvironment([maker], backend=backend)
    )
    assert message.startswith("The specs of an environment raised TypeError in worker ")
    assert f": {text}" in message


@pytest.mark.parametrize(
    ("check", "shown"),
    [
        (lambda: check_environment(ForgotSpecs), f"\n  got        {SPEC}\n"),
        (lambda: check_environment(ForgotBase), f"\n  got        {BASE}\n"),
        (lambda: check_environment(ForgotTimeStep), f" The time step is {STEP}.\n"),
        (
            lambda: utils.validate_py_environment(ForgotOneSpec(), 1),
            f"\n  got        {SPEC}\n",
        ),
    ],
)
def test_the_checker_names_the_right_import(check, shown, message_of):
    assert shown in message_of((EnvkitError, AssertionError), check)


def test_a_recording_names_the_right_import(tmp_path, message_of):
    message = message_of(
        EnvkitError, lambda: Record(ForgotSpecs(), tmp_path / "recording")
    )
    assert f"which has {SPEC}: " in message


def test_a_bounded_copy_of_such_a_spec_keeps_its_bounds():
    copy = BoundedArraySpec.from_spec(TheirSpec((2,), np.int8, 1, [3, 4], "move"))
    assert BoundedArraySpec((2,), np.int8, 1, [3, 4]) == copy
    assert "move" == copy.name


def test_subclasses_of_envkits_classes_are_not_reported():
    class PyEnvironment(CountingEnv):
        def observation_spec(self):
            return 3

    with pytest.raises(
        TypeError, match=r"^PyEnvironment\.observation_spec\(\) returned 3"
    ):
        envkit.BatchedPyEnvironment([PyEnvironment()])


def test_a_tensor_spec_gets_the_function_that_converts_it(message_of):
    class InTensorFlow(CountingEnv):
        def action_spec(self):
            return tensor_specs().TensorSpec([], "int32")

    assert (
        "InTensorFlow.action_spec() returned TensorSpec(shape=(), dtype=tf.int32, "
        "name=None), not an ArraySpec. envkit.tf.tensor_spec.to_array_spec(spec) makes "
        "one of a TensorSpec."
    ) == message_of(TypeError, lambda: envkit.BatchedPyEnvironment([InTensorFlow()]))
