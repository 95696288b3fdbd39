"""Games with pictures and lives, as the wrappers for Atari games expect them."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import ArraySpec, BoundedArraySpec
from envkit.py_environment import PyEnvironment
from envkit.time_step import restart, termination, transition, truncation


class Arcade(PyEnvironment):
    """A single game in which lives are lost by chance, after fire has been pressed.

    A sprite is drawn in every other frame only. Actions are: nothing, fire, left,
    right. Without fire nothing is earned and no life is lost.
    """

    def __init__(self, lives: int = 3, colours: bool = True) -> None:
        super().__init__(handle_auto_reset=True)
        self._rng = np.random.default_rng(0)
        self._most_lives = lives
        self._colours = colours
        self._begin()

    def _begin(self) -> None:
        self._lives, self._frames, self._column = self._most_lives, 0, 4
        self._plays = False

    def observation_spec(self) -> Any:
        shape = (12, 9, 3) if self._colours else (12, 9)
        return BoundedArraySpec(shape, np.uint8, 0, 255, name="screen")

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 3)

    def seed(self, seed: Any) -> None:
        self._rng = np.random.default_rng(seed)

    def render(self, mode: str = "rgb_array") -> Any:
        if mode != "rgb_array":
            raise NotImplementedError(f"Only rgb_array is rendered, not {mode!r}.")
        return self._draw()

    def get_info(self) -> dict[str, Any]:
        return {"lives": np.array(self._lives), "frames": np.array(self._frames)}

    def _draw(self) -> Any:
        screen = np.full((12, 9, 3), (20 * self._lives, self._frames % 200, 50))
        if self._frames % 2:
            screen[7:10, self._column] = [250, 200, 0]
        return screen.astype(np.uint8)

    def _observe(self) -> Any:
        return self._draw() if self._colours else self._draw()[..., 0]

    def _reset(self) -> Any:
        self._begin()
        self._column = int(self._rng.integers(9))
        return restart(self._observe())

    def _step(self, action: Any) -> Any:
        self._frames += 1
        self._plays = self._plays or action == 1
        self._column = (self._column + {2: -1, 3: 1}.get(int(action), 0)) % 9
        if self._plays and self._rng.random() < 0.15:
            self._lives -= 1
        reward = float(self._plays) * self._column
        if not self._lives:
            return termination(self._observe(), reward)
        if self._frames >= 60:
            return truncation(self._observe(), reward, discount=0.5)
        return transition(self._observe(), reward, discount=0.9)

    def _get_state(self) -> Any:
        beside = self._lives, self._frames, self._column, self._plays
        return self._rng.bit_generator.state, beside

    def _set_state(self, state: Any) -> None:
        self._rng.bit_generator.state, beside = state
        self._lives, self._frames, self._column, self._plays = beside


class Film(PyEnvironment):
    """A single game that shows frame after frame of a film, whatever one does.

    Attributes:
        resets: How many games have begun.
        actions: What has been done since the last reset.
    """

    def __init__(
        self,
        brightness: Any,
        lives: Any = None,
        truncated: bool = False,
        rewards: Any = None,
        reward_spec: Any = None,
    ) -> None:
        super().__init__(handle_auto_reset=True)
        self._brightness = brightness
        self._lives = [1] * len(brightness) if lives is None else lives
        self._rewards = range(len(brightness)) if rewards is None else rewards
        self._truncated = truncated
        self._reward_spec = reward_spec
        self.resets = 0
        self.actions: list[int] = []

    def observation_spec(self) -> Any:
        return ArraySpec((4, 6), np.uint8)

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 3)

    def reward_spec(self) -> Any:
        return self._reward_spec or super().reward_spec()

    def get_info(self) -> dict[str, Any]:
        return {"lives": self._lives[len(self.actions)]}

    def _frame(self) -> Any:
        return np.full((4, 6), self._brightness[len(self.actions)], np.uint8)

    def _reset(self) -> Any:
        self.resets += 1
        self.actions = []
        return restart(self._frame())

    def _step(self, action: Any) -> Any:
        self.actions.append(int(action))
        reward = self._rewards[len(self.actions)]
        if len(self.actions) < len(self._brightness) - 1:
            return transition(self._frame(), reward, discount=0.9)
        if self._truncated:
            return truncation(self._frame(), reward, discount=0.9)
        return termination(self._frame(), reward)

    def seed(self, seed: Any) -> None:
        pass
