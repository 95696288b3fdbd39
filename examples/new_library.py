"""Supports a library that envkit has never seen, and runs it in eight workers.

    python examples/new_library.py

The library is `Lander`: a spacecraft that comes down, with conventions of its own.
Everything that envkit has to know about it is in `LanderEnv`, in fifteen lines. Two
policies then land it some hundred times: one at random, and one that brakes in time.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import ParallelPyEnvironment
from envkit.adapters import Adapter

# The library. It has no spaces and no specs, it changes in place, it keeps a score
# and gives no rewards, and it takes thrust in newtons.


class Lander:
    """Falls towards the moon until it touches down."""

    def __init__(self, gravity: float = 1.6, fuel: int = 60) -> None:
        self.gravity, self.tank = gravity, fuel

    def launch(self, rng: random.Random) -> None:
        """Starts high above the ground."""
        self.altitude = rng.uniform(80.0, 120.0)
        self.speed = rng.uniform(-12.0, 0.0)
        self.fuel, self.score, self.down = self.tank, 0.0, False

    def burn(self, thrust: float) -> None:
        """Lets a second pass."""
        thrust = min(thrust, float(self.fuel))
        self.fuel -= round(thrust)
        self.speed += thrust - self.gravity
        self.altitude = max(self.altitude + self.speed, 0.0)
        self.score -= 0.1 * thrust
        self.down = self.altitude == 0.0
        if self.down:
            self.score += 100.0 if self.speed > -4.0 else -100.0

    def instruments(self) -> dict[str, Any]:
        """Tells what the pilot sees."""
        return {"altitude": self.altitude, "speed": self.speed, "fuel": self.fuel}


# All that envkit has to know about it.


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

Policy = Callable[[Any], "np.ndarray[Any, Any]"]


def careful(observation: Any) -> np.ndarray[Any, Any]:
    """Brakes where the ground would come too fast, and the harder the nearer it is."""
    speed, altitude = observation["speed"], observation["altitude"]
    allowed = -1.5 - altitude / 7.0
    return np.where(speed > allowed, 0, np.where(speed > allowed - 2.0, 1, 2))


def fly(env: ParallelPyEnvironment, policy: Policy, steps: int, seed: int) -> str:
    """Flies, and says how it went."""
    env.seed(seed)
    time_step = env.reset()
    returns = np.zeros(env.batch_size)
    landed: list[float] = []
    for _ in range(steps):
        time_step = env.step(policy(time_step.observation))
        returns += time_step.reward
        landed.extend(returns[time_step.is_last()])
        returns[time_step.is_last()] = 0.0
    soft = np.mean(np.array(landed) > 0.0)
    return f"{len(landed)} landings, {soft:.0%} soft, mean score {np.mean(landed):.1f}"


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=8, help="environments")
    parser.add_argument("--num_workers", type=int, default=8, help="processes")
    parser.add_argument(
        "--steps", type=int, default=200, help="steps of each environment"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="what everything random depends on"
    )
    return parser.parse_args()


def main() -> None:
    """Flies with both policies."""
    options = arguments()
    rng = np.random.default_rng(options.seed)
    with ParallelPyEnvironment(
        [LanderEnv] * options.num_envs, num_workers=options.num_workers
    ) as env:
        print(f"observation  {env.observation_spec()}")
        print(f"action       {env.action_spec()}")
        count = env.batch_size
        at_random = fly(
            env, lambda _: rng.integers(3, size=count), options.steps, options.seed
        )
        print(f"at random    {at_random}")
        print(f"careful      {fly(env, careful, options.steps, options.seed)}")


if __name__ == "__main__":
    main()
