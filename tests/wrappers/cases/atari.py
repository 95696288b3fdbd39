"""Wrappers for Atari games."""

from __future__ import annotations

from envkit.wrappers.atari import (
    AtariPreprocessing,
    AtariTimeLimit,
    FireOnReset,
    FrameStack4,
    NoopReset,
)
from tests.wrappers.case import Case

PICTURES = ("gridworld", "camera")
# Those whose actions are numbered from 0, or from 1.
FROM_0 = ("bandit", "cartpole", "catch", "gridworld", "tictactoe")
FROM_1 = ("camera",)


def episodic(env):
    return AtariPreprocessing(env, 2, terminal_on_life_loss=True, screen_size=5)


CASES = [
    Case("atari", lambda env: AtariPreprocessing(env, screen_size=5), PICTURES),
    Case(
        "atari_1",
        lambda env: AtariPreprocessing(env, 1, screen_size=5),
        ("gridworld",),
    ),
    Case(
        "atari_of_gymnasium",
        lambda env: AtariPreprocessing(
            env, screen_size=(5, 4), grayscale_newaxis=False, scale_obs=True
        ),
        ("gridworld",),
    ),
    Case(
        "atari_colours",
        lambda env: AtariPreprocessing(env, noop_max=2, grayscale_obs=False),
        ("gridworld",),
    ),
    Case("atari_lives", episodic, ("camera",)),
    Case(
        "frame_stack_4",
        lambda env: FrameStack4(AtariPreprocessing(env, 2, screen_size=5)),
        ("camera",),
    ),
    Case("atari_time_limit", lambda env: AtariTimeLimit(episodic(env), 3), FROM_1),
    Case("noop", lambda env: NoopReset(env, 3), FROM_0),
    Case("noop_1", lambda env: NoopReset(env, 4, 1), FROM_1),
    Case("fire", lambda env: FireOnReset(env, 1, None), FROM_0),
    Case("fire_and_next", lambda env: FireOnReset(env, 1, 2), ("catch", "camera")),
]
