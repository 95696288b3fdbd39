"""What a single environment returns is looked at once: its first reset and step."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest

import envkit
from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    TimeStep,
    restart,
    transition,
)
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import SpecError
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
from tests.comparing import told

GOOD = np.zeros(2, np.float32)


class Told(PyEnvironment):
    """Returns what it is told, and does not call super().__init__()."""

    def __init__(self, first, *others):
        self.first, self.others = first, list(others)

    def observation_spec(self):
        return BoundedArraySpec((2,), np.float32, 0, 1)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        return self.first

    def _step(self, action):
        return self.others.pop(0)


class ToldBatch(Told):
    """Is a batch of two rows."""

    batched = True
    batch_size = 2

    def __init__(self, *told):
        PyEnvironment.__init__(self, handle_auto_reset=True)
        super().__init__(*told)

    def _step_rows(self, action, stepping, beginning):
        return self.others.pop(0)


class Public(Told):
    """Overrides what callers call, as TF-Agents lets its users do."""

    def reset(self):
        return self.first

    def step(self, action):
        return self.others.pop(0)


class Restored(PyEnvironmentBaseWrapper):
    """Makes other observations of those that fit."""

    def _see(self, time_step, rows):
        return time_step._replace(observation=time_step.observation.astype(np.float64))


def refusal(call):
    """Returns the first line of the error, and the sentence of its reason."""
    with pytest.raises(SpecError) as caught:
        call()
    lines = str(caught.value).splitlines()
    return lines[0], lines[-2].partition(". ")[0] + "."


MISFITS = {
    "dtype": (np.zeros(2), "dtype is float64; the spec says float32."),
    "shape": (np.zeros(3, np.float32), "Axis 0 has size 3 instead of 2."),
    "None": (None, "None is not an array."),
    "bounds": (
        np.full(2, 3, np.float32),
        "2 of 2 elements are above the maximum 1.0: ",
    ),
}


@pytest.mark.parametrize("kind", MISFITS)
@pytest.mark.parametrize("auto", [False, True])
def test_an_observation_that_does_not_fit_is_refused_at_once(kind, auto):
    observation, reason = MISFITS[kind]
    at_reset = Told(restart(GOOD)._replace(observation=observation))
    at_step = Told(
        restart(GOOD), transition(GOOD, 0.0)._replace(observation=observation)
    )
    at_reset._handle_auto_reset = at_step._handle_auto_reset = auto
    at_step.reset()

    for call, method in (
        (at_reset.reset, "_reset"),
        (lambda: at_step.step(0), "_step"),
    ):
        line, why = refusal(call)
        assert line == (
            f"Told.{method}() returned a time step that does not fit its spec at "
            "observation."
        )
        assert why.startswith(reason)


def test_the_whole_text_matches_the_pools(message_of):
    env = Told(restart(np.zeros(2)))
    assert message_of(SpecError, env.reset) == (
        "Told._reset() returned a time step that does not fit its spec at observation."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0)\n"
        "  got        array of shape (2,), dtype float64, values 0.0 … 0.0\n\n"
        "dtype is float64; the spec says float32. NumPy makes float64 by default: add "
        ".astype(np.float32). The other 3 leaves fit.\n"
        "This was the first observation after reset() of tests.test_first_look.Told."
    )


@pytest.mark.parametrize("result", [GOOD, [1, 2], "text", 3.0])
def test_anything_but_a_time_step_is_refused(result):
    env = Told(restart(GOOD), result)
    env.reset()
    for call in (Told(result).reset, lambda: env.step(0)):
        with pytest.raises(SpecError, match=r"not a TimeStep. Build it with"):
            call()


def test_the_implied_reset_of_a_first_step_is_checked():
    line, _ = refusal(lambda: Told(restart(np.zeros(2))).step(0))
    assert line.startswith("Told._reset() returned")


def test_only_the_first_reset_and_step_are_checked():
    later = transition(np.zeros(7), 0.0)
    env = Told(restart(GOOD), transition(GOOD, 0.0), later)
    env.reset()
    env.step(0)
    env.first = restart(np.zeros(7))
    assert (7,) == env.step(0).observation.shape == env.reset().observation.shape


def test_a_refused_result_is_checked_again_next_time():
    env = Told(restart(np.zeros(2)))
    for _ in range(2):
        refusal(env.reset)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))]
)
@pytest.mark.parametrize("kind", [Told, Public])
def test_a_copy_made_between_reset_and_step_checks_its_own_step(kind, copied):
    env = kind(restart(GOOD), transition(np.zeros(2), 0.0))
    env.reset()
    for one in (copied(env), env):
        assert refusal(lambda one=one: one.step(0))[1].startswith("dtype is float64")


@pytest.mark.parametrize("at", ["reset", "step"])
def test_overridden_public_methods_are_checked(at):
    bad = np.zeros(2)
    first = restart(bad if at == "reset" else GOOD)
    env = Public(first, transition(bad, 0.0))

    def play():
        env.reset()
        env.step(0)

    line, _ = refusal(play)
    assert line == (
        f"Public.{at}() returned a time step that does not fit its spec at observation."
    )


def test_an_overridden_step_is_called_directly_after_the_first():
    env = Public(restart(GOOD), transition(GOOD, 0.0), transition(GOOD, 1.0))
    env.reset()
    env.step(0)
    assert env.step.__func__ is Public.step
    assert 1.0 == env.step(0).reward


def test_a_wrappers_own_results_are_checked():
    env = Restored(Told(restart(GOOD)))
    line, _ = refusal(env.reset)
    assert line.startswith("Restored._reset() returned a time step that does not fit")


def test_the_environment_inside_a_wrapper_is_named():
    line, _ = refusal(TimeLimit(Told(restart(np.zeros(2))), 3).reset)
    assert line.startswith("Told._reset() returned a time step that does not fit")


def test_a_batch_is_checked_as_a_whole():
    one = restart(np.zeros((2, 2), np.float32), batch_size=2)
    missing = transition(np.zeros((2, 2), np.float32), np.zeros(2))
    missing = missing._replace(discount=np.array(1, np.float32))
    env = ToldBatch(one, missing)
    env.reset()
    line, reason = refusal(lambda: env.step([0, 0]))
    assert line.startswith("ToldBatch._step() returned a time step")
    assert reason == "The whole batch dimension is missing: expected (2,)."


def test_a_first_step_of_some_rows_is_checked():
    one = restart(np.zeros((2, 2), np.float32), batch_size=2)
    high = transition(np.full((2, 2), 3, np.float32), np.zeros(2))
    env = ToldBatch(one, high)
    env.reset()
    line, _ = refusal(lambda: env.step([0, 0], np.array([True, False])))
    assert line.startswith("ToldBatch._step_rows() returned a time step")


def test_the_bounds_of_a_batchs_members_are_checked():
    envs = [Told(restart(GOOD)), Told(restart(np.full(2, 3, np.float32)))]
    line, _ = refusal(BatchedPyEnvironment(envs, False).reset)
    assert line == (
        "env 1 (Told) returned a time step that does not fit its spec at observation."
    )


class Overriding(Told):
    """Decides itself when an episode is over."""

    def should_reset(self, current_time_step):
        return self.is_over


def test_an_overridden_should_reset_is_asked_at_every_step():
    env = Overriding(restart(GOOD), *[transition(GOOD, 0.0)] * 5)
    env.is_over = False
    env.reset()
    types = [int(env.step(0).step_type) for _ in range(3)]
    env.is_over = True
    assert [1, 1, 1, 0] == [*types, int(env.step(0).step_type)]


def test_time_steps_of_another_library_are_checked():
    foreign = type("TimeStep", (TimeStep,), {})(*restart(np.zeros(2)))
    assert refusal(Told(foreign).reset)[1].startswith("dtype is float64")


def test_numbers_of_the_right_dtype_are_accepted():
    class Numbers(CountingEnv):
        def observation_spec(self):
            return ArraySpec((), np.int64)

        def _observe(self):
            return 7

    env = Numbers()
    assert 7 == env.reset().observation == env.step(0).observation


class FarOut(gymnasium.Env):
    """An environment of Gymnasium that leaves its space."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.full(2, 3, np.float32), {}


def test_an_adapted_environment_is_named_rather_than_its_adapter():
    kind, text = told(envkit.make(FarOut).reset)
    assert kind is SpecError
    assert text.startswith("FarOut.reset() returned a time step that does not fit")
    last = f"This was the first observation after reset() of {__name__}.FarOut."
    assert last == text.splitlines()[-1]
    with envkit.ParallelPyEnvironment([FarOut], backend="inline") as pool:
        _, text = told(pool.reset)
    assert last in text.splitlines()
