"""Text adventures in Jericho's interpreter: what Jericho's and TextWorld's share.

Some things in a player's commands must not reach the interpreter:

| command                  | in the interpreter              | here             |
|--------------------------|---------------------------------|------------------|
| a NUL or a backslash     | may end the process             | a space          |
| `save`, `restore`        | files that all episodes share   | a note, no step  |
| `script`                 | writes a file                   | a note, no step  |
| `restart`                | another episode within this one | a note, no step  |
| `tw-...`                 | TextWorld's facts, for testers  | a note, no step  |
| letters beyond ASCII     | read as several others          | plain letters    |
| more than 198 characters | cut off, with a warning         | cut off          |
"""

from __future__ import annotations

import random
import re
import unicodedata
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from envkit.adapters.adapter import Adapter

if TYPE_CHECKING:
    from envkit.specs.arrays import ArraySpec

__all__ = ["NOTE", "TextGame", "plain_command", "usable_seed"]

# Of bytes, in the interpreter's buffer.
_LONGEST_COMMAND = 197
_SEEDS = 2**31 - 1
# A backslash begins a command for the interpreter itself.
_UNSAFE = re.compile(r"[^ -~]|\\")
_REFUSED = re.compile(
    r"(?:^|[.,;!?]|\b(?:then|oops)\b)[\s\"'#$]*"
    r"(?:save|resto|restart|script|transc|noscri|unscri|recording|replay|tw-)",
    re.IGNORECASE,
)
NOTE = "Games cannot be saved, restored, restarted or transcribed here."


class TextGame(Adapter):
    """The base class of text adventures: commands are actions, answers observations.

    Attributes:
        file: The file of the game.
        rng: Draws the seeds of episodes that get none.
        next_seed: The seed of the next episode, if it has one.
    """

    def __init__(self, discount: float = 1.0) -> None:
        """Takes the discount of steps that do not terminate the episode."""
        self.discount = discount
        self.file = ""
        self.rng = random.Random()
        self.next_seed: int | None = None

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the game's text."""
        from envkit.specs.special import ObjectSpec, Strings

        return ObjectSpec(name="text", kind=Strings(str))

    def action_spec(self) -> ArraySpec:
        """Returns the spec of a command."""
        from envkit.specs.special import ObjectSpec, Strings

        return ObjectSpec(name="command", kind=Strings(str))

    def seed(self, seed: Any) -> None:
        """Seeds the next episode; those after it draw their seeds."""
        self.rng.seed(seed)
        self.next_seed = seed

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override]  # an author's
        """Gives a command to the game.

        Raises:
            RuntimeError: The interpreter has stopped, which is no end of an episode.
        """
        command = plain_command(action)
        if command is None:
            return NOTE, 0.0, False, False, self.facts()
        text, reward, has_ended = self.play(command)
        if self.interpreter().frotz_lib.halted():
            raise RuntimeError(
                f"The interpreter stopped with an error in {self.file!r}, at the "
                f"command {command!r}. The next reset begins another episode."
            )
        return text, reward, has_ended, False, self.facts()

    @abstractmethod
    def play(self, command: str) -> tuple[str, float, bool]:
        """Returns the text after a command, the reward, and whether it is the end."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Returns the info of the current time step."""

    @abstractmethod
    def interpreter(self) -> Any:
        """Returns Jericho's interpreter."""

    def take_seed(self) -> int:
        """Returns the seed of the episode that begins; draws it if there is none."""
        seed, self.next_seed = self.next_seed, None
        return self.rng.randrange(_SEEDS) if seed is None else seed


def plain_command(text: str) -> str | None:
    r"""Returns a command as the interpreter can take it; `None` if it must not.

    Example:
        >>> plain_command(" open the\nca\u0308ge "), plain_command("look. save")
        ('open the cage', None)
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = _UNSAFE.sub(" ", plain).split()
    command = " ".join(words)[:_LONGEST_COMMAND]
    return None if _REFUSED.search(command) else command


def usable_seed(seed: int) -> int:
    """Returns a seed that the interpreter can take.

    It is a positive C `int`: 0 would mean the seed of a walkthrough, and -1 the time.

    Example:
        >>> [usable_seed(seed) for seed in (12, 0, -1, 2**31)]
        [12, 2147483647, 2147483646, 1]
    """
    return seed % _SEEDS or _SEEDS
