"""The environments that are given to Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import ArraySpec, BoundedArraySpec
from envkit.py_environment import PyEnvironment
from envkit.time_step import restart, termination, transition, truncation

LIMIT = 6


class Walk(PyEnvironment):
    """Goes its random way until it is too far, or for some steps."""

    def __init__(self, far: float = 1.5) -> None:
        super().__init__(handle_auto_reset=True)
        self.far = far
        self.level = 1
        self.actions: list[Any] = []
        self.options: list[Any] = []
        self._rng = np.random.default_rng(0)
        self._steps = 0

    def observation_spec(self) -> Any:
        return BoundedArraySpec((2,), np.float32, -99.0, 99.0)

    def action_spec(self) -> Any:
        # The choices are 1, 2 and 3.
        return BoundedArraySpec((), np.int32, 1, 3)

    def seed(self, seed: Any) -> None:
        self._rng = np.random.default_rng(seed)

    def set_reset_options(self, options: Any) -> None:
        self.options.append(options)

    def get_info(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def render(self, mode: str = "rgb_array") -> Any:
        return np.full((4, 6, 3), 10 * self._steps, np.uint8)

    def raise_level(self, by: int = 1) -> int:
        self.level += by
        return self.level

    def set_wrapper_attr(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def _seen(self) -> Any:
        return self._place.astype(np.float32)

    def _reset(self) -> Any:
        self._steps = 0
        self._place = self._rng.uniform(-0.1, 0.1, 2)
        return restart(self._seen())

    def _step(self, action: Any) -> Any:
        assert 1 <= action <= 3
        self.actions.append(int(action))
        self._steps += 1
        self._place = self._place + (int(action) - 2) * self._rng.uniform(0, 1, 2)
        if abs(self._place[0]) > self.far:
            return termination(self._seen(), reward=-1.0)
        if self._steps == LIMIT:
            return truncation(self._seen(), reward=5.0)
        return transition(self._seen(), reward=1.0)


class Seeing(Walk):
    """Has a picture, a choice and numbers to look at."""

    def observation_spec(self) -> Any:
        return {
            "camera": BoundedArraySpec((36, 36, 3), np.uint8, 0, 255),
            "place": super().observation_spec(),
            "gear": BoundedArraySpec((), np.int64, 0, LIMIT),
        }

    def _seen(self) -> Any:
        return {
            "camera": np.full((36, 36, 3), self._steps, np.uint8),
            "place": super()._seen(),
            "gear": np.array(self._steps),
        }


class Switches(Walk):
    """Is moved by two switches."""

    def action_spec(self) -> Any:
        return BoundedArraySpec((2,), np.int8, 0, 1)

    def _step(self, action: Any) -> Any:
        return super()._step(1 + action.sum())


class Dials(Walk):
    """Is moved by two dials, one of which begins at -1."""

    def action_spec(self) -> Any:
        return BoundedArraySpec((2,), np.int64, [-1, 0], [1, 1])

    def _step(self, action: Any) -> Any:
        assert -1 <= action[0] <= 1
        assert 0 <= action[1] <= 1
        return super()._step(2 + action[0] * action[1])


class Odd(Walk):
    """Has two rewards."""

    def reward_spec(self) -> Any:
        return ArraySpec((2,), np.float32)


class Silent(Walk):
    """Has no infos, no seeds, no options and no pictures."""

    set_reset_options = property()
    seed = PyEnvironment.seed
    get_info = PyEnvironment.get_info
    render = PyEnvironment.render
