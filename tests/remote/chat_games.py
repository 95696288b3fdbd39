"""Environments that language models play, and how the models of tests play them."""

from __future__ import annotations

import json
import os
import re
import signal
import zlib
from typing import Any

import numpy as np

from envkit import PyEnvironment, restart, termination, transition
from envkit.envs import CartPole
from envkit.specs.special import ObjectSpec, Strings
from envkit.wrappers import PyEnvironmentBaseWrapper

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Letters(PyEnvironment):
    """Has a letter in mind, and answers each guess in a sentence."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._rng = np.random.default_rng(0)

    def observation_spec(self) -> Any:
        return ObjectSpec(kind=Strings(str))

    def action_spec(self) -> Any:
        return ObjectSpec(kind=Strings(str))

    def seed(self, seed: Any = None) -> Any:
        self._rng = np.random.default_rng(seed)

    def _reset(self) -> Any:
        self._first = int(self._rng.integers(0, 10))
        self._last = int(self._rng.integers(self._first + 5, len(LETTERS)))
        self._letter = int(self._rng.integers(self._first, self._last + 1))
        return restart(self._said("I have a letter in mind."))

    def _step(self, action: Any) -> Any:
        guess = LETTERS.index(np.asarray(action)[()])
        if guess == self._letter:
            return termination(ObjectSpec.wrap(f"Yes, {LETTERS[guess]}!"), 1.0)
        is_later = guess < self._letter
        if is_later:
            self._first = guess + 1
        else:
            self._last = guess - 1
        said = self._said(f"No, it comes {'later' if is_later else 'earlier'}.")
        return transition(said, -0.25 if is_later else -0.125)

    def _said(self, what: str) -> Any:
        first, last = LETTERS[self._first], LETTERS[self._last]
        return ObjectSpec.wrap(f"{what} Guess one from {first} to {last}.")


class Mortal(PyEnvironmentBaseWrapper):
    """Kills its process in the step that the episode's first observation determines.

    In some episodes this is the reset, unless `least` says otherwise, and many episodes
    are over before it.
    """

    _kept = ("_left",)

    def __init__(self, env: Any, least: int = 0) -> None:
        super().__init__(env)
        self._least = least
        self._left = np.int64(0)

    def _see(self, time_step: Any, rows: Any) -> Any:
        if time_step.is_first():
            to_live = steps_to_live(time_step.observation)
            self._left = np.int64(max(to_live, self._least))
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return time_step


def steps_to_live(observation: Any) -> int:
    """Returns the number of time steps of an episode that the process survives."""
    return zlib.crc32(repr(observation.tolist()).encode()) % 14


def mortal_cart_pole() -> Mortal:
    """Returns a CartPole that kills its process in some episodes."""
    return Mortal(CartPole())


def mortal_letters(least: int = 0) -> Mortal:
    """Returns a text game that kills its process in some episodes."""
    return Mortal(Letters(), least)


def reply_of_model(game: str, seen: Any) -> str:
    """Returns a model's reply to an observation, as JSON has it."""
    if game == "CartPole":  # the pole falls soon
        return json.dumps({"value": int(seen["value"][2] < 0)})
    first, last = re.search(r"from (\w) to (\w)", seen["value"]).groups()
    return LETTERS[(LETTERS.index(first) + LETTERS.index(last)) // 2]


def undisturbed(seed: int) -> tuple[int, float, int]:
    """Returns the steps and rewards of an episode, and when it would be lost."""
    env = Letters()
    time_step = env.reset(seed=seed)
    to_live = max(1, steps_to_live(time_step.observation))
    steps, total = 0, 0.0
    while not time_step.is_last():
        reply = reply_of_model("Letters", {"value": time_step.observation.tolist()})
        time_step = env.step(ObjectSpec.wrap(reply))
        steps, total = steps + 1, total + float(time_step.reward)
    return steps, total, to_live
