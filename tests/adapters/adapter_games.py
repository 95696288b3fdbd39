"""Libraries that envkit has never seen, and adapters for them."""

from __future__ import annotations

import random

import numpy as np

from envkit.adapters import Adapter, Result
from envkit.adapters.urnai import Env


class Walk:
    """A library: a piece walks to an edge, and now and then stumbles."""

    def __init__(self, edge):
        self.edge, self.rng = edge, random.Random(3)
        self.buffer = np.zeros(2)
        self.closed = 0

    def begin(self):
        self.place = self.steps = 0

    def go(self, way):
        self.steps += 1
        self.place += way if self.rng.random() > 0.2 else 0

    def look(self):
        self.buffer[:] = self.place, self.steps  # It uses the array again and again.
        return self.buffer

    def close(self):
        self.closed += 1


class WalkAdapter(Adapter):
    """What is written for it, with everything that is optional."""

    actions = ("left", "right", "stay")
    edge = 3
    limit = 9

    def start(self):
        return Walk(self.edge)

    def seed(self, seed):
        self.env_instance.rng.seed(seed)

    def reset(self):
        self.env_instance.begin()
        return self.env_instance.look(), {"edge": self.edge}

    def step(self, action):
        walk = self.env_instance
        walk.go({"left": -1, "right": 1, "stay": 0}[self.actions[action]])
        at_edge = abs(walk.place) == self.edge
        late = walk.steps == self.limit
        return Result(walk.look(), float(at_edge), at_edge, late, {"edge": self.edge})

    def legal_actions(self, observation):
        return {"left", "right"} if observation[0] == 0 else {"left", "right", "stay"}

    def render(self):
        return np.full((2, 3, 3), abs(self.env_instance.place), np.uint8)


class UrnaiWalk(Env):
    """The same library as somebody supported it in URNAI."""

    def __init__(self, edge=3, render=False):
        super().__init__("walk", render)
        self.edge = edge
        self.starts = 0

    def start(self):
        self.starts += 1
        self.env_instance = Walk(self.edge)

    def step(self, action):
        self.env_instance.go(action)
        place = self.env_instance.place
        return self.seen(), float(place), abs(place) == self.edge

    def reset(self):
        self.env_instance.begin()
        return self.seen()

    def close(self):
        self.env_instance = None

    def seen(self):
        return [self.env_instance.place, self.env_instance.steps]


class UrnaiMenu:
    """An action wrapper of URNAI: the second action takes two steps."""

    def __init__(self):
        self.left = 0

    def reset(self):
        self.left = 0

    def is_action_done(self):
        return self.left == 0

    def get_actions(self):
        return [10, 20]

    def get_excluded_actions(self, obs):
        return [20] if obs[0] == 1 else []

    def get_action(self, action_idx, obs):
        self.left = self.left - 1 if self.left else (1 if action_idx == 20 else 0)
        return 1

    def get_named_actions(self):
        return ["one", "two"]
