"""URNAI: its environments with its interface, and both kinds as one another.

| you have                    | you want                                            |
|-----------------------------|-----------------------------------------------------|
| a program for URNAI         | `GymEnv`, `PLEEnv`, `SC2Env`, `VizdoomEnv`          |
| a subclass of URNAI's `Env` | an environment of envkit: `from_urnai(MyEnv)`       |
| an environment of envkit    | one with URNAI's interface: `to_urnai(env)`         |

URNAI's environments are started, reset, stepped and closed. `reset` returns an
observation, and `step` an observation, a reward and whether the episode is over.
"""

from __future__ import annotations

from envkit.adapters.urnai_envs.env import Env, Menu
from envkit.adapters.urnai_envs.from_env import from_urnai
from envkit.adapters.urnai_envs.gym_env import GymEnv
from envkit.adapters.urnai_envs.ple_env import PLEEnv
from envkit.adapters.urnai_envs.sc2_env import SC2Env
from envkit.adapters.urnai_envs.to_env import to_urnai
from envkit.adapters.urnai_envs.vizdoom_env import VizdoomEnv

__all__ = [
    "Env",
    "GymEnv",
    "Menu",
    "PLEEnv",
    "SC2Env",
    "VizdoomEnv",
    "from_urnai",
    "to_urnai",
]
