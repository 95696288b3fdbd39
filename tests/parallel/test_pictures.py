"""The pictures of a pool's environments."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    PyEnvironment,
    RandomPyEnvironment,
    restart,
    transition,
)
from envkit.errors import EnvironmentRaised, SpecError
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
from tests.parallel import streams


class Growing(CountingEnv):
    """Its pictures have the size that it is given."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def render(self, mode="rgb_array"):
        return np.zeros((self.size, 4, 3), np.uint8)


def test_pictures_of_several_sizes_are_not_stacked():
    makers = [functools.partial(Growing, size) for size in (2, 2, 5)]
    with ParallelPyEnvironment(makers, backend="inline") as env:
        env.reset()

        assert (2, 2, 4, 3) == env.render(env_ids=[0, 1]).shape
        with pytest.raises(SpecError) as caught:
            env.render()
        alone = env.call("render", "rgb_array")

    assert (
        "The pictures of env 0 and env 2 have the shapes (2, 4, 3) and (5, 4, 3); "
        "those of a batch have one size. For each as it is: call('render', "
        "'rgb_array')."
    ) == str(caught.value)
    assert [2, 2, 5] == [len(picture) for picture in alone]


class Strict(CountingEnv):
    """Refuses every mode but one, with an error of some class."""

    error = ValueError

    def render(self, mode="rgb_array"):
        if mode != "rgb_array":
            raise self.error(f"only rgb_array, not {mode}")
        return np.zeros((2, 2, 3), np.uint8)


class Asserting(Strict):
    error = AssertionError


class Looking(Strict):
    error = KeyError


class Modeless(CountingEnv):
    def render(self):
        return np.zeros((2, 2, 3), np.uint8)


class Modal(Strict):
    """Says which modes it has."""

    render_modes = ("rgb_array", "ansi")


class OfGymnasium(Strict):
    """Says it as Gymnasium does."""

    metadata = {"render_modes": ["rgb_array", "ansi"]}  # noqa: RUF012


class Blind(PyEnvironment):
    """Cannot render."""

    def observation_spec(self):
        return ArraySpec((), np.int32)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _reset(self):
        return restart(np.array(0, np.int32))

    def _step(self, action):
        return transition(np.array(0, np.int32), reward=0.0)


def random_environment():
    spec = BoundedArraySpec((), np.int32, 0, 1)
    return RandomPyEnvironment(spec, spec)


MODES = "its modes are: 'rgb_array', 'ansi'."
REFUSED = {
    Strict: "Strict does not render 'human': render('human') raised ValueError: only "
    "rgb_array, not human",
    Asserting: "Asserting does not render 'human': render('human') raised "
    "AssertionError: only rgb_array, not human",
    Looking: "Looking does not render 'human': render('human') raised KeyError: 'only "
    "rgb_array, not human'",
    Modeless: "Modeless does not render 'human': render('human') raised TypeError: "
    "Modeless.render() takes 1 positional argument but 2 were given",
    Modal: f"Modal does not render 'human'; {MODES}",
    OfGymnasium: f"OfGymnasium does not render 'human'; {MODES}",
    CountingEnv: "Only rgb_array is rendered by CountingEnv, not 'human'.",
    Blind: "Blind cannot render: override render(mode), which returns a uint8 array of "
    'shape (height, width, 3) for "rgb_array".',
    random_environment: "RandomPyEnvironment does not render 'human': render('human') "
    "raised ValueError: RandomPyEnvironment renders 'rgb_array' only, not 'human'.",
    "gymnasium:CartPole-v1": "CartPole-v1 cannot render 'human': the render_mode of a "
    "Gymnasium environment is chosen when it is made, and this one was made without "
    "one. Make it with render_mode='human'.",
}


@pytest.mark.parametrize(
    ("maker", "message"),
    REFUSED.items(),
    ids=[getattr(maker, "__name__", maker) for maker in REFUSED],
)
def test_an_unknown_mode_is_refused_alike(maker, message):
    with ParallelPyEnvironment([maker] * 2, backend="inline") as env:
        env.reset()
        for ask in (
            lambda: env.render("human"),
            lambda: env.render("human", env_ids=[1]),
            lambda: env.envs[1].render("human"),
        ):
            with pytest.raises(NotImplementedError) as caught:
                ask()

            assert isinstance(caught.value, EnvironmentRaised)
            assert message.rstrip(".") in str(caught.value)


@pytest.mark.parametrize("kind", [ParallelPyEnvironment, AsyncParallelPyEnvironment])
def test_every_backend_refuses_a_mode_that_the_environments_do_not_have(backend, kind):
    makers = [lambda: TimeLimit(Strict(), 5)] * 2
    with streams.pool_of(makers, backend, kind=kind) as env:
        with pytest.raises(
            NotImplementedError, match=r"^env 0 raised .*Strict does not"
        ):
            env.render("human")
        assert (2, 2, 2, 3) == env.render().shape


def test_a_process_environment_and_a_batch_refuse_an_unknown_mode():
    refused = pytest.raises(NotImplementedError, match="Strict does not render 'human'")
    with ProcessPyEnvironment(Strict, backend="inline") as env, refused:
        env.render("human")
    for envs in ([Strict()], [Strict(), Strict()]):
        with pytest.raises(NotImplementedError, match="Strict does not render 'ansi'"):
            BatchedPyEnvironment(envs).render("ansi")


def test_unknown_modes_list_gymnasiums_modes():
    refused = pytest.raises(NotImplementedError, match="are: 'human', 'rgb_array'")
    pool = ParallelPyEnvironment(["gymnasium:CartPole-v1"], backend="inline")
    with pool as env, refused:
        env.render("ansi")


class Failing(Strict):
    render_modes = ("rgb_array", "ansi", "html")

    def render(self, mode="rgb_array"):
        raise ValueError("no ink")


@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_errors_in_a_known_mode_are_unchanged(mode):
    for env in (
        ParallelPyEnvironment([Failing], backend="inline"),
        BatchedPyEnvironment([Failing()]),
    ):
        with env, pytest.raises(ValueError, match="no ink"):
            env.render(mode)
