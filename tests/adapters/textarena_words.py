"""An agent for the tests of TextArena, and a little of NLTK's data."""

from __future__ import annotations

import json
import random
from pathlib import Path

__all__ = ["WORDS", "any_square", "write_words"]

WORDS = (
    "apple",
    "bread",
    "chair",
    "horse",
    "house",
    "plant",
    "river",
    "stone",
    "table",
)
_TAGGER = "averaged_perceptron_tagger_eng"


def write_words(folder: Path) -> None:
    """Writes words and a tagger for Wordle, in NLTK's form; all words are nouns."""
    words, taggers = folder / "corpora" / "words", folder / "taggers" / _TAGGER
    for made in (words, taggers):
        made.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (words / name).write_text("\n".join(WORDS) + "\n")
    parts = {"weights": {}, "tagdict": dict.fromkeys(WORDS, "NN"), "classes": ["NN"]}
    for part, content in parts.items():
        (taggers / f"{_TAGGER}.{part}.json").write_text(json.dumps(content))


def any_square(text: str) -> str:
    """Plays TicTacToe as an agent of TextArena does: any square."""
    assert "Tic Tac Toe" in text
    return f"[{random.randrange(9)}]"
