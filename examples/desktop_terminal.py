"""Learns its way through a text adventure, by reading and typing in a terminal.

    apt-get install tigervnc-standalone-server xterm
    pip install -e .
    python examples/desktop_terminal.py

The adventure is `adventure.py`, and runs in an xterm. An observation is the text that
the program has said since the last step; an action types a word. The agent keeps a
table with a value for each word after each text (Q-learning), which begins with zeros;
since each word costs points, it tries what it has not tried yet.

A terminal does not answer at once: until it has, the agent types nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from envkit.desktop import Desktop, Macros, RewardChannel
from envkit.errors import MissingDependencyError

GAME = Path(__file__).with_name("adventure.py")
WORDS = ["north", "south", "east", "west", "take", "open"]
GAMMA, LEARNING_RATE = 0.95, 0.5
# The entry 0 types nothing, and the others a word and Return.
MENU = Macros([None, *[[*word, "Return"] for word in WORDS]])


class Player:
    """Reads and types, and adds up what that earns until there is an answer."""

    def __init__(self, env: Desktop) -> None:
        self.env = env

    def begin(self) -> str:
        """Begins a game; returns the first text."""
        text, _, _ = self._read(self.env.reset())
        return text

    def type(self, word: int) -> tuple[str, float, Any]:
        """Types a word; returns the answer, the points, and the last time step."""
        return self._read(self.env.step(1 + word))

    def _read(self, time_step: Any) -> tuple[str, float, Any]:
        points = float(time_step.reward)
        while not (time_step.observation["text"] or time_step.is_last()):
            time_step = self.env.step(0)
            points += float(time_step.reward)
        return str(time_step.observation["text"]), points, time_step


def play(player: Player, values: Any, rng: np.random.Generator) -> list[str]:
    """Plays a game, and learns; returns the words."""
    text, words = player.begin(), []
    while True:
        best = np.flatnonzero(values[text] == values[text].max())
        word = int(rng.choice(best))
        words.append(WORDS[word])
        answer, points, time_step = player.type(word)
        # Nothing follows where the discount is 0; where a game was cut off, it might.
        following = float(time_step.discount) * values[answer].max()
        error = points + GAMMA * following - values[text][word]
        values[text][word] += LEARNING_RATE * error
        if time_step.is_last():
            return words
        text = answer


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=60, help="games")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the random numbers depend on"
    )
    return parser.parse_args()


def main() -> None:
    """Plays, and prints how many words a way out takes."""
    options = arguments()
    if shutil.which("xterm") is None:
        sys.exit(
            "This example needs xterm, which is not installed. apt-get install xterm"
        )
    try:
        env = Desktop(
            ["xterm", "-geometry", "100x40+0+0", "-e", sys.executable, str(GAME)],
            actions=MENU,
            reward=RewardChannel(),
            ready="reported",
            reset=None,
            pixels=False,
            text=200,
            pause=0.01,
            patience=60.0,
        )
    except MissingDependencyError as error:
        sys.exit(str(error))
    rng = np.random.default_rng(options.seed)
    values: Any = defaultdict(lambda: np.zeros(len(WORDS)))
    began = time.monotonic()
    with env:
        player = Player(env)
        for game in range(1, options.episodes + 1):
            words = play(player, values, rng)
            if game == 1 or game % 10 == 0 or game == options.episodes:
                passed = time.monotonic() - began
                print(f"game {game:3}  {passed:5.1f} s  {' '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
