"""A text adventure in a terminal: find the way out of a castle.

    python examples/adventure.py

It takes one word at a time: north, south, east, west, take, open. Where it was started
by an `envkit.desktop.Desktop`, it reports what it says, and its points.
"""

from __future__ import annotations

import select
import sys

from envkit.desktop import Reporter

MOST = 25  # words in a game
BOLD, GREEN, RED, PLAIN = "\033[1m", "\033[32m", "\033[31m", "\033[0m"
WAYS = {
    ("cellar", "north"): "hall",
    ("hall", "south"): "cellar",
    ("hall", "west"): "kitchen",
    ("hall", "north"): "courtyard",
    ("kitchen", "east"): "hall",
    ("kitchen", "south"): "pantry",
    ("pantry", "north"): "kitchen",
    ("courtyard", "south"): "hall",
    ("courtyard", "east"): "well",
    ("courtyard", "west"): "gate",
    ("gate", "east"): "courtyard",
}
ROOMS = {
    "cellar": "You are in a cellar. A stair leads north.",
    "hall": "You are in the hall. There are doors to the north, west and south.",
    "kitchen": "You are in the kitchen. Doors lead east and south.",
    "pantry": "You are in the pantry. The only door leads north.",
    "courtyard": "You are in the courtyard. It is dark to the east; in the west is a "
    "gate, in the south the hall.",
    "gate": "You stand at the gate. It is locked.",
    "well": "You have fallen into the well.",
    "free": "The gate opens, and you are free!",
}


class Game:
    """A game: where the player is, and whether with the key."""

    def __init__(self) -> None:
        self.room, self.has_key, self.words = "cellar", False, 0

    def text(self) -> str:
        """Returns the description of the room."""
        text = ROOMS[self.room]
        if self.has_key:
            text += " You have the key."
        elif self.room == "pantry":
            text += " A key lies on the floor."
        return text

    def play(self, word: str) -> float:
        """Does what a word says; returns the points of that."""
        self.words += 1
        if word == "take" and self.room == "pantry":
            self.has_key = True
        elif word == "open" and self.room == "gate" and self.has_key:
            self.room = "free"
            return 10.0
        else:
            self.room = WAYS.get((self.room, word), self.room)
        return -5.0 if self.room == "well" else -0.1

    @property
    def is_over(self) -> bool:
        """Whether the player is free, or in the well."""
        return self.room in ("free", "well")


def play(reporter: Reporter) -> bool:
    """Plays a game; returns whether there is to be another one."""
    episode = reporter.begin()
    game = Game()
    print(f"\033[2J\033[H{BOLD}The castle{PLAIN}\n\n{game.text()}", flush=True)
    reporter.report(text=game.text())
    while not (game.is_over or game.words >= MOST):
        print(f"{GREEN}> {PLAIN}", end="", flush=True)
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            if reporter.is_over():
                return True
        word = sys.stdin.readline()
        if not word:
            return False
        points = game.play(word.strip())
        colour = RED if points < -1 else BOLD if points > 1 else ""
        print(f"{colour}{game.text()}{PLAIN}", flush=True)
        reporter.report(
            points,
            text=game.text(),
            terminated=game.is_over,
            truncated=not game.is_over and game.words >= MOST,
        )
    if episode is None:
        return input("Once more? ").startswith("y")
    while not reporter.is_over():
        select.select([], [], [], 0.005)
    return True


def main() -> None:
    reporter = Reporter()
    while play(reporter):
        pass


if __name__ == "__main__":
    main()
