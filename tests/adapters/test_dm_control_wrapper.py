"""An environment of dm_control is what it is in TF-Agents."""

from __future__ import annotations

import dm_env
import numpy as np
import pytest
from dm_env import specs

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters import DmControlWrapper
from envkit.adapters.dm_env_wrapper import DmEnvWrapper
from envkit.errors import SpecError
from envkit.testing import check_environment
from tests.adapters.dm_env_examples import RIGHT, Told, Walk


def test_it_is_an_adapter_of_dm_env():
    assert issubclass(DmControlWrapper, DmEnvWrapper)


def test_whatever_is_float64_becomes_float32():
    env = DmControlWrapper(Walk())
    env.reset()
    time_step = env.step(RIGHT)

    assert {
        "place": BoundedArraySpec((2,), np.float32, -10),
        "left": ArraySpec((), np.int64),
    } == env.observation_spec()
    assert {
        "way": BoundedArraySpec((), np.int32, 0, 1),
        "speed": BoundedArraySpec((1,), np.float32, 0.0, 2.0),
    } == env.action_spec()
    assert [np.float32, np.int64, np.float32, np.float32] == [
        array.dtype
        for array in (
            time_step.observation["place"],
            time_step.observation["left"],
            time_step.reward,
            time_step.discount,
        )
    ]


def test_an_action_reaches_the_environment_in_its_own_dtype():
    env = DmControlWrapper(Walk())
    env.reset()
    env.step({"way": np.int64(1), "speed": np.array([0.5], np.float32)})

    for name, spec in Walk().action_spec().items():
        spec.validate(env.actions[0][name])


def test_every_digit_can_be_kept():
    step = dm_env.transition(reward=0.1, observation=0.1)
    env = DmControlWrapper(Told(step), as_float32=())
    env.reset()
    time_step = env.step(0)

    assert (0.1, 0.1) == (time_step.reward, time_step.observation)


def test_it_keeps_the_contract_of_environments():
    report = check_environment(
        lambda: DmControlWrapper(Walk(random=np.random.RandomState(0))),
        require=["episodes", "seed", "state"],
    )

    assert () == report.failed


def test_an_action_that_does_not_fit_is_refused():
    env = DmControlWrapper(
        Told(dm_env.restart(0.0), action=specs.DiscreteArray(2, name="way"))
    )
    env.reset()

    with pytest.raises(SpecError) as caught:
        env.step(2)

    assert (
        "DmControlWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=1, "
        "name='way')\n"
        "  got        array of shape (), dtype int32, values 2 … 2\n\n"
        "The value 2 is above the maximum 1."
    ) == str(caught.value)


@pytest.mark.parametrize(
    ("given_env", "what"),
    [("cartpole", "the string 'cartpole'"), (Walk, "the class Walk")],
)
def test_what_is_no_environment_is_refused(given_env, what):
    with pytest.raises(TypeError) as caught:
        DmControlWrapper(given_env)

    assert (
        f"DmControlWrapper was given {what}, which is not a dm_env.Environment. "
        "dm_control.suite.load(domain, task) makes one."
    ) == str(caught.value)
