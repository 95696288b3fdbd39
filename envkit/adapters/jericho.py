"""Jericho: text adventures for the Z-machine, such as Zork, from their story files.

Jericho's interpreter knows the scores and the ends of some sixty games, and plays
others without them. Each environment loads its own copy of the interpreter, so a
process may hold many, also in threads.

`envkit.adapters.text_games` says which commands do not reach it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envkit.adapters.text_games import TextGame, usable_seed
from envkit.extend import Scheme

if TYPE_CHECKING:
    from envkit.py_environment import PyEnvironment

__all__ = ["SCHEME", "JerichoGame", "load"]

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

# Of a story file.
_HEADER, _VERSIONS = 64, range(1, 9)


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


class JerichoGame(TextGame):
    """Plays a game: commands are actions, and the game's answers observations.

    `env.env_instance` is Jericho's `FrotzEnv`.
    """

    def __init__(self, story_file: str, discount: float = 1.0) -> None:
        """Takes arguments of `load`; the game is loaded later."""
        super().__init__(discount)
        self.file, self.digest = story_file, ""

    def start(self) -> Any:
        """Loads the game, and its own copy of the interpreter."""
        import jericho

        story = Path(self.file)
        if not story.is_file():
            raise FileNotFoundError(
                f"There is no story file {self.file!r}. Jericho brings no games: "
                "name the file of one, such as 'jericho:zork1.z5'."
            )
        content = story.read_bytes()
        # With anything else, the interpreter would end the process.
        if len(content) < _HEADER or content[0] not in _VERSIONS:
            raise ValueError(
                f"{self.file!r} is no game for the Z-machine: its first byte "
                "must be a version from 1 to 8."
            )
        self.digest = hashlib.sha256(content).hexdigest()
        return jericho.FrotzEnv(self.file)

    def reset(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]  # an author's
        """Begins the game."""
        self.env_instance.seed(usable_seed(self.take_seed()))
        text, _ = self.env_instance.reset()
        return text.strip(), self.facts()

    def play(self, command: str) -> tuple[str, float, bool]:
        """Gives a command to the game."""
        text, reward, has_ended, _ = self.env_instance.step(command)
        return text.strip(), reward, has_ended

    def interpreter(self) -> Any:
        """Returns Jericho's environment."""
        return self.env_instance

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
            raise ValueError(f"{self.file!r} was given a state of another game.")
        self.env_instance.reset()  # starts an interpreter that has stopped
        self.env_instance.set_state(memory)
        self.rng.setstate(rng)
        self.next_seed = next_seed

    def close(self) -> None:
        """Frees the interpreter's memory."""
        self.env_instance.close()
