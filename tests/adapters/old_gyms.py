"""Environments and spaces as they were written for Gym, one of every age.

None of them needs Gym: `GymWrapper` looks at what they do. All play the same game. A
piece walks to one of two edges, and now and then stumbles.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

EDGE = 3
LIMIT = 9


class Discrete:
    def __init__(self, n):
        self.n, self.shape, self.dtype = n, (), np.dtype(np.int64)


class Box:
    def __init__(self, low, high, shape, dtype=np.float32):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.low = np.full(shape, low, dtype)
        self.high = np.full(shape, high, dtype)


class MultiDiscrete:
    def __init__(self, nvec):
        self.nvec = np.array(nvec, np.int64)
        self.shape, self.dtype = self.nvec.shape, self.nvec.dtype


class MultiBinary:
    def __init__(self, n):
        self.n, self.shape, self.dtype = n, tuple(np.ravel(n)), np.dtype(np.int8)


class Tuple:
    def __init__(self, *spaces):
        self.spaces, self.shape, self.dtype = spaces, None, None


class Dict:
    def __init__(self, **spaces):
        self.spaces, self.shape, self.dtype = OrderedDict(spaces), None, None


class Walk:
    """What environments of all ages have in common."""

    observation_space = Box(-100, 100, (2,))
    action_space = Discrete(2)
    spec = None

    def __init__(self):
        # Environments often return the same array all the time.
        self._observation = np.zeros(2, np.float32)
        self._canvas = np.zeros((4, 4, 3), np.uint8)
        self.closed = 0

    @property
    def unwrapped(self):
        return self

    def _begin(self):
        self._observation[:] = self._draw(3) - 1, 0
        return self._observation

    def _move(self, action):
        steps = {0: -1, 1: 1}  # Without Python's numbers nothing would be found.
        assert type(action) is int
        stumbles = self._draw(5) == 0
        self._observation += 0 if stumbles else steps[action], 1
        over = abs(self._observation[0]) >= EDGE
        return self._observation, np.float64(over), over

    @property
    def _over_time(self):
        return self._observation[1] >= LIMIT

    def _draw(self, n):
        raise NotImplementedError

    def _picture(self):
        self._canvas[:] = abs(self._observation[0])
        return self._canvas

    def close(self):
        self.closed += 1


class Gym17(Walk):
    """As it was to 0.21: `seed()`, an observation alone, `done`."""

    metadata = {"render.modes": ["human", "rgb_array"]}  # noqa: RUF012  # Gym's way

    def __init__(self):
        super().__init__()
        self.seeds = []
        self.seed()

    def seed(self, seed=None):
        self.np_random = np.random.RandomState(seed)
        self.seeds.append(seed)
        return [seed]

    def reset(self):
        return self._begin()

    def step(self, action):
        return (*self._move(action), {"place": int(self._observation[0])})

    def _draw(self, n):
        return self.np_random.randint(n)

    def render(self, mode="human"):
        return self._picture() if mode == "rgb_array" else None


class _Core:
    """Stands for `gym.Env`, whose `seed` does nothing but warn."""

    def seed(self, seed=None):
        raise DeprecationWarning("seed() is going to disappear")

    seed.__module__ = "gym.core"


class Gym23(_Core, Walk):
    """As it was from 0.22 to 0.25: `reset(seed=...)`, and the rest as before."""

    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012  # Gym's way

    def __init__(self):
        super().__init__()
        self.seeds = []
        self.rng = np.random.default_rng()

    def reset(self, *, seed=None, return_info=False, options=None):
        self.seeds.append(seed)
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        observation = self._begin()
        return (observation, {"began": True}) if return_info else observation

    def step(self, action):
        return (*self._move(action), {"place": int(self._observation[0])})

    def _draw(self, n):
        return self.rng.integers(n)

    def render(self, mode="human"):
        return self._picture() if mode == "rgb_array" else None


class Gym26(Walk):
    """As it has been since 0.26: what Gymnasium began with."""

    metadata = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012  # Gym's way

    def __init__(self, render_mode="rgb_array"):
        super().__init__()
        self.render_mode = render_mode
        self.seeds = []
        self.rng = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        return self._begin(), {"began": True}

    def step(self, action):
        observation, reward, terminated = self._move(action)
        info = {"place": int(observation[0])}
        return observation, reward, terminated, bool(self._over_time), info

    def _draw(self, n):
        return self.rng.integers(n)

    def render(self):
        return self._picture()


class Wrapper:
    """Passes on what it is given, as the wrappers of every age do."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        return self.env.step(action)


class OldLimit(Wrapper):
    """Ends episodes with `done`, and says in the info whether that was a limit."""

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        if self.env.unwrapped._over_time:
            info["TimeLimit.truncated"] = not done
            done = True
        return observation, reward, done, info


def gym17():
    return OldLimit(Gym17())


def gym23():
    return OldLimit(Gym23())


def gym26():
    return Wrapper(Gym26())


AGES = {"0.17": gym17, "0.23": gym23, "0.26": gym26}
