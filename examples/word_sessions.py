"""256 agents at once guess words in a slow text game, in groups of eight with one seed.

Each guess takes a quarter of a second here, as if a browser or another server answered
it. The agent reads the text and calls a tool, as a language model does, but is a few
lines of Python. Put your model in the place of `think`, and any environment with texts
in the place of `WordGame`.
"""

import asyncio
import random
import time

import envkit
from envkit.sessions import Sessions, ToolEnvironment, tool

SESSIONS = 256
GROUPS = 64  # of eight attempts at the same word
GUESSES = 3
SECONDS = 0.25  # for the game to answer
LIST = """
    apple beach brain bread brick chair chest cloud coast crown dance dream drink earth
    field flame floor fruit ghost glass grape green heart honey horse house juice knife
    lemon light lunch magic metal money month mouse music night ocean paint paper party
    peace piano plant plate queen radio river scale sheep shell shirt smile snake spoon
    stone storm sugar table tiger toast tooth tower train water whale wheel world youth
"""
WORDS = LIST.split()


def marks(guess, word):
    """Marks each letter: "!" is in its place, "?" in another, "." nowhere."""
    return "".join(
        "!" if letter == word[place] else "?" if letter in word else "."
        for place, letter in enumerate(guess)
    )


class WordGame(ToolEnvironment):
    """A hidden word of five letters, and a few guesses."""

    def begin(self, rng):
        self.word, self.guesses = str(rng.choice(WORDS)), 0
        return f"Guess a word of five letters. You have {GUESSES} guesses."

    @tool
    def guess(self, word: str) -> str:
        """Guesses the word.

        Args:
            word: Five small letters.
        """
        time.sleep(SECONDS)
        self.guesses += 1
        if word == self.word:
            self.reward = 1.0
        if word == self.word or self.guesses == GUESSES:
            self.finish()
        return f"{word}: {marks(word, self.word)}"


def think(texts):
    """Returns one of the words that fit all answers so far."""
    answers = [text.split(": ") for text in texts[1:]]
    fitting = [
        word
        for word in WORDS
        if all(marks(guess, word) == answer for guess, answer in answers)
    ]
    return random.choice(fitting)


async def attempt(session):
    turn = await session.reset()
    texts = [turn.text]
    while turn.end is None:
        turn = await session.call("guess", word=think(texts))
        texts.append(turn.text)
    return turn


async def play():
    async with Sessions(WordGame, SESSIONS, step_timeout=60.0) as sessions:
        groups = [sessions.group(seed=seed, size=8) for seed in range(GROUPS)]
        with envkit.progress(sessions, 8 * GROUPS):
            return await asyncio.gather(*[group.run(attempt) for group in groups])


groups = asyncio.run(play())
turns = [turn for group in groups for turn in group if not turn.is_lost]
guesses = [turn.steps for turn in turns if turn.total == 1.0]
mixed = sum(len({turn.total for turn in group}) > 1 for group in groups)
print(f"{mixed} of {GROUPS} groups have good and bad attempts, from which GRPO learns")
print(
    f"{len(guesses)} of {len(turns)} attempts found the word, "
    f"in {sum(guesses) / len(guesses):.2f} guesses on average"
)
