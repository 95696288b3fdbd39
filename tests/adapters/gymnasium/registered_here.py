"""What a program registers, and its workers do not unless they are told to."""

from __future__ import annotations

import gymnasium

import envkit
from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper

CART_POLE = "gymnasium.envs.classic_control:CartPoleEnv"
# Each is known by then in this process alone. CartPole has other versions everywhere.
IDS = ("OnlyHere-v0", "only_here/Pole-v3", "CartPole-v77")
NAME = "OnlyHere"


def register():
    for each in IDS:
        gymnasium.register(each, entry_point=CART_POLE, max_episode_steps=9)
    envkit.register(NAME, "envkit.envs:CartPole")


def made_by_gymnasium(name):
    return GymnasiumWrapper(gymnasium.make(name))


def made(name):
    return envkit.make(name)
