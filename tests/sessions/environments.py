"""Environments of the tests of sessions."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from envkit import ArraySpec, PyEnvironment, TimeStep, restart, termination, transition
from envkit.sessions import ToolEnvironment, tool
from envkit.specs import BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings

__all__ = [
    "DIE",
    "HANG",
    "IS_OVER",
    "RAISE",
    "WAIT",
    "Guess",
    "Owned",
    "Room",
    "Shared",
    "Slow",
    "Traps",
]

WAIT, RAISE, DIE, HANG = range(4)
# Set at the end of a test: wakes what still sleeps in threads of this process.
IS_OVER = threading.Event()


class Owned(PyEnvironment):
    """Belongs to whoever has reset it: an observation names the owner.

    The options of a reset name the owner, and say what happens in it. An action is an
    owner, an order (wait, raise, die, hang) and the milliseconds to wait. A step of
    another owner than that of the last reset is a fault, which the observation shows.
    """

    def __init__(self, steps: int = 6) -> None:
        super().__init__()
        self._steps = steps
        self._owner = -1
        self._done = 0
        self._options: Mapping[str, Any] = {}

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((3,), np.int64, -1, 2**40)

    def observation_spec(self) -> dict[str, ArraySpec]:
        return {
            "owner": ArraySpec((), np.int64),
            "is_foreign": ArraySpec((), np.bool_),
        }

    def seed(self, seed: Any) -> None:
        pass

    def _reset(self, options: Mapping[str, Any] | None = None) -> TimeStep:
        options = options or {}
        # A lost reset is repeated, and must succeed at some time.
        order = options.get("order", WAIT) if random.random() < 0.5 else WAIT
        self._obey(order, options.get("milliseconds", 0))
        self._owner = options.get("owner", -1)
        self._done = 0
        return restart(self._observation(False))

    def _step(self, action: Any) -> TimeStep:
        owner, order, milliseconds = action.tolist()
        self._obey(order, milliseconds)
        self._done += 1
        observation = self._observation(owner != self._owner)
        if self._done == self._steps:
            return termination(observation, 1.0)
        return transition(observation, 1.0)

    def _observation(self, is_foreign: bool) -> dict[str, Any]:
        return {
            "owner": np.asarray(self._owner),
            "is_foreign": np.asarray(is_foreign),
        }

    def _obey(self, order: int, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)
        if order == RAISE:
            raise RuntimeError("It was told to raise.")
        if order == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if order == HANG:
            IS_OVER.wait(60)  # Longer than a step may take.


class Slow(PyEnvironment):
    """Waits for a moment in each step."""

    def __init__(self, seconds: float = 0.05, steps: int = 5) -> None:
        super().__init__()
        self._seconds = seconds
        self._steps = steps
        self._done = 0

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int32, 0, 1)

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((), np.int32)

    def seed(self, seed: Any) -> None:
        pass

    def _reset(self) -> TimeStep:
        self._done = 0
        return restart(np.int32(0))

    def _step(self, action: Any) -> TimeStep:
        IS_OVER.wait(self._seconds)
        self._done += 1
        if self._done == self._steps:
            return termination(np.int32(self._done), 1.0)
        return transition(np.int32(self._done), 1.0)


class Room(ToolEnvironment):
    """A room with a door, which a key opens."""

    def begin(self, rng):
        self.has_key = False
        return f"Room {int(rng.integers(1000))}."

    @tool
    def take(self, thing: str, count: int = 1) -> str:
        """Takes something.

        Args:
            thing: What to take, in
                one word.
            count: How many.
        """
        self.has_key = thing == "key"
        self.reward = 0.25 * count
        return f"You have {count} {thing}."

    @tool
    def go(self, direction: Literal["north", "south"]) -> str:
        """Goes through a door."""
        if direction == "north" and self.has_key:
            self.reward = 1.0
            self.finish()
            return "You are out."
        return "The door is locked."


class Traps(ToolEnvironment):
    """Doors, of which one is right; and a trap, which loses the environment."""

    def begin(self, rng):
        self.right = int(rng.integers(1000))
        return f"The right door is {self.right}."

    @tool
    def open(self, door: int) -> str:
        """Opens a door.

        Args:
            door: Its number.
        """
        if door != self.right:
            self.reward = -0.25
            return "A wall."
        self.reward = 1.0
        self.finish()
        return "You are out."

    @tool
    def touch(self, trap: Literal["raise", "die"]) -> str:
        """Touches a trap.

        Args:
            trap: Which one.
        """
        if trap == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("It was a trap.")


class Shared(ToolEnvironment):
    """Two players, each with a reward of his own."""

    def begin(self, rng):
        return "Both win."

    def reward_spec(self):
        return ArraySpec((2,), np.float32)


class Guess(PyEnvironment):
    """Text without tools: a word is to be guessed, which the first text shows."""

    def action_spec(self) -> ArraySpec:
        return ObjectSpec(name="guess", kind=Strings(str))

    def observation_spec(self) -> ArraySpec:
        return ObjectSpec(name="text", kind=Strings(str))

    def seed(self, seed: Any) -> None:
        self._rng = np.random.default_rng(seed)

    def _reset(self) -> TimeStep:
        self._word = f"word{int(self._rng.integers(1000))}"
        return restart(ObjectSpec.wrap(f"Say {self._word}"))

    def _step(self, action: Any) -> TimeStep:
        if str(np.asarray(action, object)[()]) == self._word:
            return termination(ObjectSpec.wrap("Right."), 1.0)
        return transition(ObjectSpec.wrap("Wrong."), -0.5)
