"""Environments of OpenEnv's own kind, for `openenv_checks.py`."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class WalkAction(Action):
    """Where to go."""

    push: Annotated[int, Field(ge=-1, le=1)]
    note: str = ""


class WalkObservation(Observation):
    """Where the walk is."""

    place: list[float]
    left: Annotated[int, Field(ge=0, le=9)]
    word: str


class Walk(Environment):
    """Goes a random way of random length, to either kind of end."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(0)

    def reset(self, seed: Any = None, episode_id: Any = None, **_: Any) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._left = int(self._rng.integers(2, 6))
        self._place = self._rng.random(2)
        self._state = State(episode_id=episode_id, step_count=0)
        return self._observation(None)

    def step(self, action: Any, timeout_s: Any = None, **_: Any) -> Any:
        self._left -= 1
        self._place = self._place + action.push + self._rng.normal(size=2)
        self._state.step_count += 1
        return self._observation(float(self._place.sum()))

    def _observation(self, reward: Any) -> Any:
        done = self._left == 0
        is_cut = done and self._rng.random() < 0.5
        return WalkObservation(
            place=self._place.tolist(),
            left=self._left,
            word="odd" if self._left % 2 else "",
            reward=reward,
            done=done,
            metadata={"truncated": True, "note": "cut"} if is_cut else {},
        )

    @property
    def state(self) -> Any:
        return self._state


class EchoAction(Action):
    """What is said."""

    message: str


class EchoObservation(Observation):
    """What was said."""

    echoed: str
    words: list[str] = Field(default_factory=list)


class Echo(Environment):
    """Says what is said to it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: Any = None, episode_id: Any = None, **_: Any) -> Any:
        return EchoObservation(echoed="hello")

    def step(self, action: Any, timeout_s: Any = None, **_: Any) -> Any:
        if action.message == "raise":
            raise ArithmeticError("was told to raise")
        words = action.message.split()
        return EchoObservation(echoed=action.message, words=words, reward=len(words))

    @property
    def state(self) -> Any:
        return State()


class Lonely(Echo):
    """Has room for one."""

    SUPPORTS_CONCURRENT_SESSIONS = False
