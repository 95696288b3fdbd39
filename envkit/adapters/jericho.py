"""Jericho: text adventures for the Z-machine, such as Zork, from their story files.

Jericho's interpreter knows the scores and the ends of some sixty games, and plays
others without them. Each environment loads its own copy of the interpreter, so a
process may hold many, also in threads.

Some things in a player's commands must not reach the interpreter:

| command                  | in the interpreter              | here             |
|--------------------------|---------------------------------|------------------|
| a NUL or a backslash     | may end the process             | a space          |
| `save`, `restore`        | files that all episodes share   | a note, no step  |
| `script`                 | writes a file                   | a note, no step  |
| `restart`                | another episode within this one | a note, no step  |
| letters beyond ASCII     | read as several others          | plain letters    |
| more than 198 characters | cut off, with a warning         | cut off          |
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from envkit.adapters.adapter import Adapter
from envkit.extend import Scheme

if TYPE_CHECKING:
    from envkit.py_environment import PyEnvironment
    from envkit.specs.arrays import ArraySpec

__all__ = [
    "NOTE",
    "SCHEME",
    "JerichoGame",
    "Step",
    "check_interpreter",
    "load",
    "plain_command",
    "usable_seed",
]

SCHEME = Scheme(
    "envkit.adapters.jericho:load",
    title="Jericho",
    address="zork1.z5",
    takes="the path of a story file",
    page="adapters/jericho",
    package="jericho",
    extra="jericho",
    requires=("jericho>=3.3",),
)

# Observation, reward, terminated, truncated, info.
Step: TypeAlias = tuple[str, float, bool, bool, dict[str, Any]]

# Of bytes, in the interpreter's buffer.
_LONGEST_COMMAND = 197
# Of a story file.
_HEADER, _VERSIONS = 64, range(1, 9)
_SEEDS = 2**31 - 1
# A backslash begins a command for the interpreter itself.
_UNSAFE = re.compile(r"[^ -~]|\\")
_REFUSED = re.compile(
    r"(?:^|[.;!?]|\bthen\b)[\s\"'#$]*"
    r"(?:save|resto|restart|script|transc|noscri|unscri|recording|replay)",
    re.IGNORECASE,
)
NOTE = "Games cannot be saved, restored, restarted or transcribed here."


def load(
    story_file: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
) -> PyEnvironment:
    """Makes an environment of a game.

    `envkit.make("jericho:zork1.z5")` calls this.

    Args:
        story_file: The path of the game: a file for the Z-machine, `.z1` to `.z8`.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 for no limit.
        env_wrappers: Wrappers for the environment, innermost first.
    """
    error = SCHEME.missing(f"The game {story_file!r}")
    if error is not None:
        raise error
    from envkit.adapters.foreign import limited_and_wrapped
    from envkit.wrappers.limits import TimeLimit

    env = JerichoGame(story_file, discount)
    return limited_and_wrapped(env, max_episode_steps, TimeLimit, env_wrappers)


class JerichoGame(Adapter):
    """Plays a game: commands are actions, and the game's answers observations.

    `env.env_instance` is Jericho's `FrotzEnv`.
    """

    def __init__(self, story_file: str, discount: float = 1.0) -> None:
        """Takes arguments of `load`; the game is loaded later."""
        self.story_file, self.discount = story_file, discount
        self.rng = random.Random()
        self.next_seed: int | None = None
        self.digest = ""

    def start(self) -> Any:
        """Loads the game, and its own copy of the interpreter."""
        import jericho

        story = Path(self.story_file)
        if not story.is_file():
            raise FileNotFoundError(
                f"There is no story file {self.story_file!r}. Jericho brings no games: "
                "name the file of one, such as 'jericho:zork1.z5'."
            )
        content = story.read_bytes()
        # With anything else, the interpreter would end the process.
        if len(content) < _HEADER or content[0] not in _VERSIONS:
            raise ValueError(
                f"{self.story_file!r} is no game for the Z-machine: its first byte "
                "must be a version from 1 to 8."
            )
        self.digest = hashlib.sha256(content).hexdigest()
        return jericho.FrotzEnv(self.story_file)

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

    def reset(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]  # an author's
        """Begins the game."""
        seed, self.next_seed = self.next_seed, None
        self.env_instance.seed(usable_seed(seed, self.rng))
        text, _ = self.env_instance.reset()
        return text.strip(), self.facts()

    def step(self, action: str) -> Step:  # type: ignore[override]  # an author's
        """Gives a command to the game."""
        command = plain_command(action)
        if command is None:
            return NOTE, 0.0, False, False, self.facts()
        text, reward, has_ended, _ = self.env_instance.step(command)
        check_interpreter(self.env_instance, self.story_file, command)
        return text.strip(), reward, has_ended, False, self.facts()

    def facts(self) -> dict[str, Any]:
        """Returns the info of the current time step."""
        game = self.env_instance
        return {
            "score": game.get_score(),
            "max_score": game.get_max_score(),
            "moves": game.get_moves(),
            "won": game.victory(),
        }

    def get_state(self) -> Any:
        """Returns the interpreter's memory, and the seeds to come."""
        memory = self.env_instance.get_state()
        return self.digest, memory, self.rng.getstate(), self.next_seed

    def set_state(self, state: Any) -> None:
        """Restores a state of the same game."""
        digest, memory, rng, next_seed = state
        if digest != self.digest:
            raise ValueError(f"{self.story_file!r} was given a state of another game.")
        self.env_instance.reset()  # starts an interpreter that has stopped
        self.env_instance.set_state(memory)
        self.rng.setstate(rng)
        self.next_seed = next_seed

    def close(self) -> None:
        """Frees the interpreter's memory."""
        self.env_instance.close()


def plain_command(text: str) -> str | None:
    r"""Returns a command as the interpreter can take it; `None` if it must not.

    Example:
        >>> plain_command(" open the\nca\u0308ge "), plain_command("look. save")
        ('open the cage', None)
    """
    if _REFUSED.search(text):
        return None
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = _UNSAFE.sub(" ", plain).split()
    return " ".join(words)[:_LONGEST_COMMAND]


def usable_seed(seed: int | None, rng: random.Random) -> int:
    """Returns a seed for the interpreter; draws it if there is none.

    It is a positive C `int`: 0 would mean the seed of a walkthrough, and -1 the time.

    Example:
        >>> [usable_seed(seed, random.Random()) for seed in (12, 0, -1, 2**31)]
        [12, 2147483647, 2147483646, 1]
    """
    if seed is None:
        seed = rng.randrange(_SEEDS)
    return seed % _SEEDS or _SEEDS


def check_interpreter(game: Any, name: str, command: str) -> None:
    """Raises if the interpreter has stopped, which is no end of an episode."""
    if game.frotz_lib.halted():
        raise RuntimeError(
            f"The interpreter stopped with an error in {name!r}, at the command "
            f"{command!r}. The next reset begins another episode."
        )
