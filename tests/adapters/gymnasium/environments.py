"""Environments of Gymnasium, in a module that workers import quickly."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

from envkit.testing import CountingEnv


class Everything(gymnasium.Env):
    """Has spaces of every kind, infos of many, and says what it was given."""

    metadata = {"render_modes": ["ansi"], "render_fps": 7}  # noqa: RUF012  # Gymnasium's way
    action_space = spaces.Dict(
        push=spaces.Discrete(2), word=spaces.Text(3), keys=spaces.MultiBinary(2)
    )

    def __init__(self, render_mode="ansi"):
        self.render_mode = render_mode
        self.observation_space = spaces.Dict(
            word=spaces.Text(5),
            list=spaces.Sequence(spaces.Discrete(3)),
            pair=spaces.Tuple(
                (spaces.Discrete(4, start=2), spaces.Box(0.0, 1.0, (2,), np.float32))
            ),
            either=spaces.OneOf((spaces.Discrete(2), spaces.Text(3))),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {"options": str(options)}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        info = {"word": action["word"], "deep": {"steps": self.steps}}
        if action["push"]:
            info["pushed"] = True
        return (
            self.observation_space.sample(),
            self.steps / 3,
            False,
            self.steps == 3,
            info,
        )

    def render(self):
        return f"step {self.steps}"


class Frail(gymnasium.Env):
    """Counts, and fails when it is told to."""

    observation_space = spaces.Box(0.0, 9.0, (), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.float32(0.0), {}

    def step(self, action):
        if action == 2:
            raise ValueError("Too hot.")
        self._steps += 1
        return np.float32(self._steps), 1.0, False, False, {}


class Stubborn(Frail):
    """Refuses a reset that it is told to refuse."""

    def __init__(self, number=3):
        self._number = number

    def reset(self, *, seed=None, options=None):
        if options and self._number in options.get("refuse", ()):
            raise ValueError("Not now.")
        return super().reset(seed=seed)


class Levelled(CountingEnv):
    """Has an attribute, and a method that tells it."""

    level = 1

    def told(self, more=0):
        return self.level + more

    def get_info(self):
        return {"level": self.level}


class Listing(Frail):
    """Has lists in its infos."""

    def reset(self, *, seed=None, options=None):
        return super().reset()[0], {"cards": [1, 2]}

    def step(self, action):
        return np.float32(1.0), 1.0, True, False, {"cards": [3, [4.5, "ace"]]}


# For the arguments of `reset`.


class Monitor(gymnasium.Wrapper):
    """Passes on whatever it is given, as Stable-Baselines3's does."""

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)


class Game(gymnasium.Env):
    """A game of one step."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    told = None

    def begin(self, **told):
        self.told = told
        super().reset(seed=told.get("seed"))
        return np.full(1, self.np_random.random(), np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}


class Seeded(Game):
    def reset(self, *, seed=None):
        return self.begin(seed=seed)


class Deaf(Game):
    def reset(self):
        return self.begin()


class Usual(Game):
    def reset(self, *, seed=None, options=None):
        return self.begin(seed=seed, options=options)


def monitored(kind):
    return Monitor(Monitor(kind()))
