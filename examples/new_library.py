"""A library that envkit has never seen, supported in fifteen lines.

The library is `Lander`: a spacecraft that comes down, with conventions of its own. All
that envkit needs to know about it is in `LanderEnv`. Two policies then land it in
worker processes: one acts at random, and one brakes in time.
"""

import random

import numpy as np

from envkit import ParallelPyEnvironment
from envkit.adapters import Adapter

STEPS = 200  # of each environment
SEED = 0

# The library. It has no spaces and no specs, changes in place, keeps a score instead of
# giving rewards, and takes thrust in newtons.


class Lander:
    """Falls towards the moon until it touches down."""

    def launch(self, rng):
        self.altitude, self.speed = rng.uniform(80.0, 120.0), rng.uniform(-12.0, 0.0)
        self.fuel, self.score, self.down = 60, 0.0, False

    def burn(self, thrust):
        """Lets a second pass."""
        thrust = min(thrust, float(self.fuel))
        self.fuel -= round(thrust)
        self.speed += thrust - 1.6
        self.altitude = max(self.altitude + self.speed, 0.0)
        self.score -= 0.1 * thrust
        self.down = self.altitude == 0.0
        if self.down:
            self.score += 100.0 if self.speed > -4.0 else -100.0

    def instruments(self):
        return {"altitude": self.altitude, "speed": self.speed, "fuel": self.fuel}


# All that envkit needs to know about it.


class LanderEnv(Adapter):
    actions = (0.0, 2.0, 5.0)

    def start(self):
        self.rng = random.Random()
        return Lander()

    def seed(self, seed):
        self.rng.seed(seed)

    def reset(self):
        self.env_instance.launch(self.rng)
        return self.env_instance.instruments()

    def step(self, action):
        lander, before = self.env_instance, self.env_instance.score
        lander.burn(self.actions[action])
        return lander.instruments(), lander.score - before, lander.down


# From here on it is an environment like any other.


def at_random(observation):
    return rng.integers(3, size=len(observation["speed"]))


def careful(observation):
    """Brakes if the ground comes too fast: the nearer it is, the slower it must be."""
    speed, allowed = observation["speed"], -1.5 - observation["altitude"] / 7.0
    return np.where(speed > allowed, 0, np.where(speed > allowed - 2.0, 1, 2))


rng = np.random.default_rng(SEED)
with ParallelPyEnvironment([LanderEnv] * 8) as env:
    print(f"observation  {env.observation_spec()}")
    for name, policy in (("at random", at_random), ("careful", careful)):
        env.seed(SEED)
        time_step = env.reset()
        scores, landed = np.zeros(8), []
        for _ in range(STEPS):
            time_step = env.step(policy(time_step.observation))
            scores += time_step.reward
            landed += scores[time_step.is_last()].tolist()
            scores[time_step.is_last()] = 0.0
        soft = np.mean(np.array(landed) > 0.0)
        print(f"{name:12} {len(landed)} landings, {soft:.0%} soft")
