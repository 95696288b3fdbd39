"""The environments that every wrapper is tried on, single and as batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.py_environment import PyEnvironment
from envkit.time_step import restart, termination, transition

Make = Callable[[int | None], PyEnvironment]


_OBSERVATION = {
    "camera": BoundedArraySpec((6, 4, 3), np.uint8, 0, 255, name="camera"),
    "place": BoundedArraySpec((2,), np.float32, -10.0, [10.0, 20.0]),
    "rest": (ArraySpec((), np.float32), BoundedArraySpec((), np.int64, 0, 99)),
}
_ACTION = {
    "gear": BoundedArraySpec((), np.int64, 1, 3, name="gear"),
    "wheel": BoundedArraySpec((2,), np.float32, [-1.0, -2.0], [1.0, 2.0]),
}


class Drive(PyEnvironment):
    """A single environment with nests of every kind, and a seed.

    The action has a continuous part and a discrete one that counts from 1; the
    observation has a picture, numbers with bounds, and a mask in a tuple.
    """

    def __init__(self, length: int = 7) -> None:
        super().__init__(handle_auto_reset=True)
        self._length = length
        self._rng = np.random.default_rng(0)
        self._steps = 0
        self._place = np.zeros(2)

    def observation_spec(self) -> Any:
        return dict(_OBSERVATION)

    def action_spec(self) -> Any:
        return dict(_ACTION)

    def seed(self, seed: Any) -> None:
        self._rng = np.random.default_rng(seed)

    def render(self, mode: str = "rgb_array") -> Any:
        if mode != "rgb_array":
            raise NotImplementedError(f"Only rgb_array is rendered, not {mode!r}.")
        return np.full((6, 4, 3), 30 * self._steps, np.uint8)

    def get_info(self) -> dict[str, Any]:
        return {"lives": np.array(2 - self._steps // 3), "place": self._place.copy()}

    def _observe(self) -> Any:
        camera = np.full((6, 4, 3), 10 * self._steps, np.uint8)
        camera[self._steps % 6] = 255
        return {
            "camera": camera,
            "place": np.clip(self._place, -10, [10, 20]).astype(np.float32),
            "rest": (
                np.array(self._rng.normal(), np.float32),
                np.array(self._steps, np.int64),
            ),
        }

    def _reset(self) -> Any:
        self._steps = 0
        self._place = self._rng.uniform(-1, 1, 2)
        return restart(self._observe())

    def _step(self, action: Any) -> Any:
        self._steps += 1
        self._place = self._place + np.asarray(action["wheel"]) * float(action["gear"])
        reward = float(self._place.sum()) / 3 - 1.0
        if self._steps >= self._length or self._rng.random() < 0.1:
            return termination(self._observe(), reward)
        return transition(self._observe(), reward, discount=0.9)

    def _get_state(self) -> Any:
        return self._rng.bit_generator.state, self._steps, self._place

    def _set_state(self, state: Any) -> None:
        self._rng.bit_generator.state, self._steps, self._place = state


class MovesTogether(GridWorld):
    """A batch that begins episodes in single rows, and steps all rows together."""

    resets_rows = True
    holds_rows = False


def batch_of(*envs: PyEnvironment) -> BatchedPyEnvironment:
    """Makes a batch of single environments, without threads."""
    return BatchedPyEnvironment(list(envs), multithreading=False)


class OneLeaf(PyEnvironmentBaseWrapper):
    """Shows one part of the observation of `Drive`, and takes one of its actions."""

    def __init__(self, env: Any, part: str, action: str) -> None:
        super().__init__(env)
        self._part, self._one = part, action

    def observation_spec(self) -> Any:
        return self._env.observation_spec()[self._part]

    def action_spec(self) -> Any:
        return self._env.action_spec()[self._one]

    def _act(self, action: Any) -> Any:
        other = {"gear": np.ones(self._dims, np.int64)}
        if self._one == "gear":
            other = {"wheel": np.full((*self._dims, 2), 0.5, np.float32)}
        return {self._one: action, **other}

    def _see(self, time_step: Any, rows: Any) -> Any:
        return time_step._replace(observation=time_step.observation[self._part])


def _drive(batch_size: int | None) -> PyEnvironment:
    if batch_size is None:
        return Drive()
    return BatchedPyEnvironment([Drive() for _ in range(batch_size)], False)


# The built-in ones, with short episodes, and three that have what these have not: a
# nest, continuous actions, and pictures.
ENVIRONMENTS: dict[str, Make] = {
    "bandit": lambda size: Bandit(batch_size=size, episode_length=4),
    "cartpole": lambda size: CartPole(batch_size=size, max_episode_steps=9),
    "catch": lambda size: Catch(batch_size=size, rows=6),
    "gridworld": lambda size: GridWorld(batch_size=size, max_episode_steps=6),
    "tictactoe": lambda size: TicTacToe(batch_size=size),
    "drive": _drive,
    "wheel": lambda size: OneLeaf(_drive(size), "place", "wheel"),
    "camera": lambda size: OneLeaf(_drive(size), "camera", "gear"),
}

# Those of `envkit.envs`, whose batches are one class's.
BUILT_IN = ("bandit", "cartpole", "catch", "gridworld", "tictactoe")
# What a wrapper that takes everything is tried on: a nest holds what single arrays do.
ALL = tuple(name for name in ENVIRONMENTS if name not in ("wheel", "camera"))
