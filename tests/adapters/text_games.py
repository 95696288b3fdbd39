"""Games of TextWorld for tests, small ones, as generating takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["COMMANDS", "WINS", "coin_game"]

COMMANDS = (
    "look",
    "inventory",
    "go north",
    "go south",
    "go east",
    "go west",
    "examine coin",
    "dance",
    "look. look",
)
WINS = "take coin"


def coin_game(folder: Path) -> str:
    """Generates a game in one room, which ends when the player takes the coin."""
    textworld = pytest.importorskip("textworld")
    from textworld.challenges import CHALLENGES

    options = textworld.GameOptions()
    options.seeds, options.path = 0, str(folder / "coin.z8")
    _, make, _ = CHALLENGES["tw-coin_collector"]
    file: str = textworld.generator.compile_game(make({"level": 1}, options), options)
    return file
