"""The tracebacks of workers, and the sentences around them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from envkit import (
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    PyEnvironment,
    make,
)
from envkit.errors import ConstructorError, EnvironmentRaised
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit

BACKENDS = ["inline", "thread", "process"]


class Clumsy(CountingEnv):
    """Raises in its reset, two functions deep."""

    def _reset(self):
        return self.load_level()

    def load_level(self):
        raise ValueError("no level")


class Tuples(CountingEnv):
    """Returns what Gymnasium's environments return."""

    def _step(self, action):
        return np.zeros(2), 1.0, False, {}


class Needy(CountingEnv):
    def __init__(self, level):
        super().__init__(level)


class Unfinished(CountingEnv):
    def __init__(self):
        raise OSError("no game")


def frames_of(message: str) -> list[str]:
    """Returns the functions of a traceback in a message."""
    return [
        line.rpartition(" in ")[2]
        for line in message.splitlines()
        if line.startswith("  File ")
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_traceback_of_a_worker_begins_with_the_users_code(backend):
    makers = [Clumsy, lambda: TimeLimit(Clumsy(), 5)]
    pool = ParallelPyEnvironment(makers, backend=backend, num_workers=1)
    with pool as env, pytest.raises(EnvironmentRaised) as raised:
        env.reset()
    assert ["_reset", "load_level"] == frames_of(str(raised.value))
    assert ["_reset", "load_level"] == frames_of(raised.value.also[0].remote_traceback)


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        (
            "gymnasium:CartPole-v1",
            {"autoreset_mode": "same_step"},
            "In envkit it is autoreset=, an option of pools (num_envs=).",
        ),
        ("gymnasium:CartPol-v1", {}, "Did you mean: `CartPole`?"),
        (Needy, {}, "missing 1 required positional argument: 'level' in worker 0."),
        ("GridWorld", {"size": 0}, "size must be an integer of at least 2, got 0."),
    ],
)
def test_a_sentence_about_the_call_comes_without_frames(target, options, sentence):
    with pytest.raises(ConstructorError) as raised:
        make(target, num_envs=2, backend="thread", **options)
    assert str(raised.value).partition("\n")[0].endswith(sentence)
    assert [] == frames_of(str(raised.value))
    assert None is raised.value.__cause__


def test_a_constructor_that_needs_arguments_says_that_it_gets_none():
    with pytest.raises(ConstructorError) as raised:
        ParallelPyEnvironment([Needy], backend="inline")
    first = str(raised.value).partition("\n")[0]
    assert first.endswith(
        "Needy.__init__() missing 1 required positional argument: 'level'. A "
        "constructor gets no arguments: write functools.partial(make_env, ...)."
    )
    assert [] == frames_of(str(raised.value))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_traceback_of_a_constructor_begins_with_it(backend):
    with pytest.raises(ConstructorError) as raised:
        ParallelPyEnvironment(
            [lambda: Unfinished()], backend=backend
        )  # a frame of its own
    assert ["<lambda>", "__init__"] == frames_of(str(raised.value))


def test_the_traceback_of_a_function_that_travels_by_value_shows_its_lines():
    make_env = lambda: Unfinished()  # noqa: E731  # no worker can look it up
    with pytest.raises(ConstructorError) as raised:
        ParallelPyEnvironment([make_env])
    text = str(raised.value)
    assert f'File "{__file__}", line ' in text
    assert "    make_env = lambda: Unfinished()" in text


def test_an_error_of_envkits_own_code_keeps_its_frames():
    with ParallelPyEnvironment([CountingEnv], backend="inline") as env:
        env.reset()
        with pytest.raises(TypeError) as raised:
            env.call("get_info", "too", "many")
    assert frames_of(str(raised.value))


def test_a_refusal_of_envkits_needs_no_traceback():
    with ParallelPyEnvironment([Tuples], backend="inline") as env:
        env.reset()
        with pytest.raises(EnvironmentRaised) as raised:
            env.step([0])
    first, *_ = str(raised.value).splitlines()
    assert (
        "env 0 raised SpecError in step(): Tuples._step() returned a tuple of 4 "
        "elements, not a TimeStep. Build it with envkit.restart, transition, "
        "termination or truncation."
    ) == first
    assert [] == frames_of(str(raised.value))


def test_an_action_out_of_bounds_is_explained_by_the_pool_too():
    maker = lambda: gymnasium.make("Pendulum-v1")  # noqa: E731
    with ParallelPyEnvironment([maker], backend="inline") as env:
        env.reset()
        with pytest.raises(EnvironmentRaised) as raised:
            env.step(np.full((1, 1), 3.0, np.float32))
    assert (
        "1 of 1 element is above the maximum 2.0: 3.0 at index (0,).\n"
        "ActionClipWrapper(env) clips actions.\n"
    ) in str(raised.value)


class Blind(PyEnvironment):
    def action_spec(self):
        return CountingEnv().action_spec()

    def observation_spec(self):
        return CountingEnv().observation_spec()

    def _reset(self):
        return CountingEnv().reset()

    def _step(self, action):
        return CountingEnv().reset()


def test_a_pool_that_cannot_render_names_the_method_to_override():
    with ParallelPyEnvironment([Blind], backend="inline") as env:
        env.reset()
        with pytest.raises(NotImplementedError) as raised:
            env.render()
    first, *_ = str(raised.value).splitlines()
    assert first.startswith(
        "env 0 raised NotImplementedError in render(): Blind cannot render: override "
        "render(mode), which returns"
    )
    assert [] == frames_of(str(raised.value))


def test_a_batch_in_a_worker_shows_the_users_code_too():
    def make():
        return BatchedPyEnvironment([Clumsy(), Clumsy()])

    pool = ParallelPyEnvironment([make], backend="inline")
    with pool as env, pytest.raises(EnvironmentRaised) as raised:
        env.reset()
    assert ["_reset", "load_level"] == frames_of(str(raised.value))[-2:]
