"""An environment whose rewards are the actions, so that they tell which keys came."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from envkit import PyEnvironment, restart, termination, transition, truncation
from envkit.desktop import Controls
from envkit.specs import ArraySpec, BoundedArraySpec

NOOP, LEFT, RIGHT, FIRE, UP = range(5)


class Pad(PyEnvironment):
    """Goes on until `fire` ends it, or `up` cuts it off; the picture is the action.

    Attributes:
        gate: What a reset waits for.
        seeds: The seeds that it was given.
    """

    action_names = ("noop", "left", "right", "fire", "up")

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.seeds: list[Any] = []
        self.resets = 0
        self._width, self._shown = width, 0

    def observation_spec(self):
        return BoundedArraySpec((), np.int32, 0, 255)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 4)

    def seed(self, seed):
        self.seeds.append(seed)
        return seed

    def _reset(self):
        self.resets += 1
        self.gate.wait()
        self._shown = 100 + self.resets % 100
        return restart(np.array(self._shown, np.int32))

    def _step(self, action):
        self._shown = int(action)
        seen = np.array(self._shown, np.int32)
        reward = float(action)
        if action == FIRE:
            return termination(seen, reward)
        if action == UP:
            return truncation(seen, reward)
        return transition(seen, reward)

    def render(self, mode="rgb_array"):
        return np.full((6, self._width, 3), self._shown, np.uint8)


class Fragile(Pad):
    """Breaks where `Pad` ends."""

    def _step(self, action):
        if action == FIRE:
            raise RuntimeError("the fire is out")
        return super()._step(action)


class Crashing(Pad):
    """Crashes its process where `Pad` ends, and draws only in an episode."""

    def _step(self, action):
        if action == FIRE:
            os.abort()
        return super()._step(action)

    def render(self, mode="rgb_array"):
        if not self.resets:
            raise ValueError("there is no picture before the first episode")
        return super().render(mode)


class Slow(Pad):
    """Stays in a step while it may not go on.

    Attributes:
        going_on: What a step waits for.
        is_stuck: Whether one does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.going_on, self.is_stuck = threading.Event(), threading.Event()
        self.going_on.set()

    def _step(self, action):
        if not self.going_on.is_set():
            self.is_stuck.set()
            self.going_on.wait()
        return super()._step(action)


class Superstitious(Pad):
    """Does not take every seed."""

    def seed(self, seed):
        if seed == 13:
            raise ValueError("that is an unlucky number")
        return super().seed(seed)


class Wheel(PyEnvironment):
    """Is steered by two numbers; the reward is 100 times the first, and the second."""

    def observation_spec(self):
        return BoundedArraySpec((), np.float32, -1, 1)

    def action_spec(self):
        return BoundedArraySpec((2,), np.float32, [-1, 0], [1, 1])

    def _reset(self):
        return restart(np.float32(0))

    def _step(self, action):
        return transition(np.float32(action[0]), float(100 * action[0] + action[1]))

    def render(self, mode="rgb_array"):
        return np.zeros((6, 8, 3), np.uint8)


class Aimed(PyEnvironment):
    """Is pointed at, on a picture of 8 by 6.

    The reward is x + 10 y in pixels, 100 for the left button and 200 for the right.
    """

    def observation_spec(self):
        return BoundedArraySpec((), np.float32, -1, 1)

    def action_spec(self):
        # Wide enough to be coordinates: a hundredth of a pixel each.
        return BoundedArraySpec((3,), np.int64, 0, [700, 500, 7])

    def aimed(self, action):
        x, y, buttons = action.tolist()
        return x / 100, y / 100, buttons

    def _reset(self):
        return restart(np.float32(0))

    def _step(self, action):
        x, y, buttons = self.aimed(action)
        pressed = 100 * bool(buttons & 1) + 200 * bool(buttons & 4)
        return transition(np.float32(0), float(round(x) + 10 * round(y) + pressed))

    def render(self, mode="rgb_array"):
        return np.zeros((6, 8, 3), np.uint8)


class AimedByFloats(Aimed):
    """Has a place alone, from -1 to 1; its button is the space bar's as elsewhere."""

    def action_spec(self):
        return BoundedArraySpec((2,), np.float32, -1, 1)

    def aimed(self, action):
        x, y = action.tolist()
        return (x + 1) * 3.5, (y + 1) * 2.5, 0


class AimedByParts(Aimed):
    """Has keys, a pointer and buttons, as desktops have."""

    def action_spec(self):
        return {
            "keys": ArraySpec((2,), np.bool_),
            "pointer": BoundedArraySpec((2,), np.float32, 0, [7, 5]),
            "buttons": ArraySpec((3,), np.bool_),
        }

    def aimed(self, action):
        x, y = action["pointer"].tolist()
        return x, y, sum(int(flag) << bit for bit, flag in enumerate(action["buttons"]))


class AimedByEncoding(Aimed):
    """Has an encoding of actions, as desktops have."""

    def __init__(self) -> None:
        super().__init__()
        self.actions = Controls(["a"], size=(8, 6), pointer=True, buttons=3)

    def action_spec(self):
        return self.actions.spec()

    def aimed(self, action):
        x, y = ((action["pointer"] + 1) * [3.5, 2.5]).tolist()
        return x, y, sum(int(flag) << bit for bit, flag in enumerate(action["buttons"]))


class Talking(Pad):
    """Has a mission in each observation, and says in its info which key is new."""

    def observation_spec(self):
        return {"mission": ArraySpec((), "<U20"), "shown": super().observation_spec()}

    def _seen(self, time_step):
        mission = np.array(f"mission {self.resets}", "<U20")
        return time_step._replace(
            observation={"mission": mission, "shown": time_step.observation}
        )

    def _reset(self):
        self._said = "hello"
        return self._seen(super()._reset())

    def _step(self, action):
        is_new = action and action != self._shown
        self._said = f"key {int(action)}" if is_new else ""
        return self._seen(super()._step(action))

    def get_info(self):
        return {"text": self._said, "path": "/tmp"}
