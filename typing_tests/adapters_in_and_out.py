"""Other libraries' environments as ours, and ours as theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import assert_type

import envkit
from envkit import ArraySpec, PyEnvironment, TimeStep
from envkit.adapters import (
    EnvAdapter,
    GymnasiumWrapper,
    PyToGymnasium,
    PyToGymnasiumVector,
)


class Game:
    """What envkit has never seen."""

    def __init__(self) -> None:
        """Begins."""
        self.place = 0

    def move(self, by: int) -> bool:
        """Moves, and says whether that was the end."""
        self.place += by
        return self.place >= 3


class GameEnv(EnvAdapter):
    """The game as an environment.

    `reset` and `step` are the library's here and the environment's for whoever calls
    them, which Python's type system cannot say: an author who writes types says so.
    """

    actions = [0, 1]  # noqa: RUF012  # as the guide has it

    def start(self) -> Game:
        return Game()

    def reset(self) -> Any:  # type: ignore[override]
        self.env_instance.place = 0
        return np.array([self.env_instance.place])

    def step(self, action: Any) -> Any:  # type: ignore[override]
        is_over = self.env_instance.move(action)
        return np.array([self.env_instance.place]), float(is_over), is_over


def episode_length(game: Any) -> int:
    """Plays an environment of Gymnasium."""
    env = GymnasiumWrapper(game, discount=0.99)
    assert_type(env.reset(), TimeStep)
    steps = 0
    while not env.step(0).is_last():
        steps += 1
    return steps


def main() -> None:
    """Goes there and back again."""
    env = GameEnv()
    assert_type(env, GameEnv)
    # The adapter makes an environment of the author's verbs.
    as_env: PyEnvironment = env
    as_env.reset()
    assert_type(as_env.current_time_step(), TimeStep)

    game = PyToGymnasium(envkit.make("Catch"))
    assert_type(game, PyToGymnasium)
    assert_type(episode_length(game), int)

    games = PyToGymnasiumVector(envkit.make("Catch", batch_size=2), "SameStep")
    assert_type(games, PyToGymnasiumVector)
    games.reset(seed=7)
    games.close()


def mistakes() -> None:
    """Does what mypy has to find."""
    GymnasiumWrapper(discount=0.99)  # type: ignore[call-arg]
    spec: str = ArraySpec((), np.int64)  # type: ignore[assignment]
    del spec


if __name__ == "__main__":
    main()
