"""TextWorld: generated text adventures.

A game is a pair of files, `.z8` and `.json`, that TextWorld's `tw-make` writes. A
target names such a file, a folder of them, or one of TextWorld's kinds of games, from
which games are then generated: the game with the number 7 is what
`tw-make tw-simple --seed 7` makes.

The games run in Jericho's interpreter, so what a command may not contain is in
`envkit.adapters.text_games`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from envkit.adapters.text_games import TextGame, usable_seed
from envkit.extend import Scheme, listed, suggestion

if TYPE_CHECKING:
    from envkit.py_environment import PyEnvironment

__all__ = ["SCHEME", "TextWorldGame", "load", "names"]

SCHEME = Scheme(
    "envkit.adapters.textworld:load",
    title="TextWorld",
    example="tw-simple",
    page="adapters/textworld",
    package="textworld",
    extra="textworld",
    requires=("textworld>=1.7",),
    lister="envkit.adapters.textworld:names",
)

_CACHE = Path(".cache", "envkit", "textworld")
_CUSTOM = "custom"
# Settings that `tw-make` requires.
_USUAL: Mapping[str, Mapping[str, Any]] = {
    _CUSTOM: {"nb_rooms": 5, "nb_objects": 10, "quest_length": 5},
    "tw-coin_collector": {"level": 1},
    "tw-simple": {"rewards": "dense", "goal": "detailed"},
    "tw-treasure_hunter": {"level": 1},
}
# TextWorld generates games with a generator and caches of its module.
_GENERATING = threading.Lock()
# The name of TextWorld in letters of letters.
_TITLE = re.compile(r"\A.*\$\$[ ]*\n\s*\n", re.DOTALL)
# The prompt, and the status line, which has the room, the score and the moves.
_PROMPT = re.compile(r"(?:\n\s*>)?[^\S\n]+-= [^\n]*=-\S*\s*\Z")


def load(
    game: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    games: int | Sequence[int] = 1,
    admissible_commands: bool = False,
    raw: bool = False,
    folder: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> PyEnvironment:
    """Makes an environment of one game, or of several.

    `envkit.make("textworld:tw-simple")` calls this. The seed of an episode chooses its
    game: `seed % count`, in their order.

    Args:
        game: A file that `tw-make` has made, a folder of such files, or the kind of
            games to generate: one of `names()`, with or without `tw-`.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 for no limit.
        env_wrappers: Wrappers for the environment, innermost first.
        games: How many games to generate, numbered from 0, or a list of their numbers.
            A game is generated when it is first played, which takes some seconds.
        admissible_commands: Whether the info has `"admissible_commands"`, all commands
            that make sense now; a step then takes several times as long.
        raw: Whether the text is TextWorld's own, with its title, prompt and status
            line.
        folder: Where generated games are kept; `None` for `~/.cache/envkit/textworld`.
        **settings: Settings of the kind of games, as options of `tw-make` with `_`
            instead of `-`: `rewards="sparse"`, `level=3`. For `"custom"`, they are
            attributes of TextWorld's `GameOptions`, or of its `grammar` and
            `chaining`: `nb_rooms=8`, `theme="basic"`.
    """
    error = SCHEME.missing(f"The game {game!r}")
    if error is not None:
        raise error
    from envkit.adapters.foreign import limited_and_wrapped
    from envkit.wrappers.limits import TimeLimit

    env = TextWorldGame(
        game, discount, games, admissible_commands, raw, folder, settings
    )
    return limited_and_wrapped(env, max_episode_steps, TimeLimit, env_wrappers)


def names() -> list[str]:
    """Lists the kinds of games that can be generated."""
    error = SCHEME.missing("suite_textworld")
    if error is not None:
        raise error
    from textworld.challenges import CHALLENGES

    return sorted([_CUSTOM, *CHALLENGES])


class TextWorldGame(TextGame):
    """Plays games of TextWorld; a reset begins the one that its seed chooses.

    `env.env_instance` is TextWorld's environment, once an episode has begun.
    """

    def __init__(
        self,
        game: str,
        discount: float = 1.0,
        games: int | Sequence[int] = 1,
        admissible_commands: bool = False,
        raw: bool = False,
        folder: str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes the arguments of `load`; games are loaded later."""
        super().__init__(discount)
        self.game, self.raw = game, raw
        self.admissible_commands = admissible_commands
        self.file_of = _source_of(game, games, folder, settings or {})
        self.score = 0

    def reset(self) -> tuple[str, dict[str, Any]]:  # type: ignore[override]  # an author's
        """Begins a game."""
        seed = self.take_seed()
        self.open(self.file_of(seed))
        self.env_instance.seed(usable_seed(seed))
        state = self.env_instance.reset()
        self.score = 0
        return self.text_of(state), self.facts()

    def open(self, file: str) -> None:
        """Loads a game, unless it is the current one."""
        import textworld

        if file == self.file:
            return
        self.close()
        wanted = ["feedback", "score", "max_score", "moves", "won", "lost"]
        if self.admissible_commands:
            wanted.append("admissible_commands")
        infos = textworld.EnvInfos(**dict.fromkeys(wanted, True))
        self.env_instance = textworld.start(file, infos)
        self.file = file

    def play(self, command: str) -> tuple[str, float, bool]:
        """Gives a command to the game."""
        state, score, has_ended = self.env_instance.step(command)
        reward, self.score = score - self.score, score
        return self.text_of(state), reward, has_ended

    def text_of(self, state: Any) -> str:
        """Returns the game's text as a model should read it."""
        text: str = state.feedback
        if self.raw:
            return text
        text = _PROMPT.sub("", _TITLE.sub("", text))
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def facts(self) -> dict[str, Any]:
        """Returns the info of the current time step."""
        names = ["score", "max_score", "moves", "won", "lost"]
        if self.admissible_commands:
            names.append("admissible_commands")
        return {name: self.env_instance.state[name] for name in names}

    def interpreter(self) -> Any:
        """Returns Jericho's interpreter."""
        return self.env_instance.unwrapped._jericho

    def get_state(self) -> Any:
        """Returns the interpreter's memory, and TextWorld's and the seeds to come."""
        memory = snapshot = None
        if self.file:
            memory = self.interpreter().get_state()
            layers, kept = self.layers()
            from envkit.adapters.state import take_snapshot

            snapshot = take_snapshot(layers[0], self.game, layers=layers, kept=kept)
        seeds = self.rng.getstate(), self.next_seed
        return self.file, memory, snapshot, self.score, seeds

    def set_state(self, state: Any) -> None:
        """Restores a state, after loading its game."""
        file, memory, snapshot, self.score, (rng, self.next_seed) = state
        self.rng.setstate(rng)
        if file:
            self.open(file)
            self.env_instance.reset()  # starts an interpreter that has stopped
            layers, kept = self.layers()
            from envkit.adapters.state import restore_snapshot

            restore_snapshot(layers[0], self.game, snapshot, layers=layers, kept=kept)
            self.interpreter().set_state(memory)

    def layers(self) -> tuple[list[Any], list[Any]]:
        """Returns TextWorld's wrappers and environment, and what a state leaves out."""
        layers, kept = [self.env_instance], [self.interpreter()]
        while "_wrapped_env" in vars(layers[-1]):
            layers.append(layers[-1]._wrapped_env)
        for layer in layers:
            kept += [vars(layer)[n] for n in ("_game", "_inform7") if n in vars(layer)]
        return layers, kept

    def close(self) -> None:
        """Closes the current game."""
        if self.file:
            self.file = ""
            self.env_instance.close()


class _Files:
    """Games that have been made already."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def __call__(self, seed: int) -> str:
        """Returns the file of the game that a seed chooses."""
        return str(self._files[seed % len(self._files)])


class _Generated:
    """Games of a kind, each generated when it is first played."""

    def __init__(
        self,
        kind: str,
        settings: Mapping[str, Any],
        numbers: Sequence[int],
        folder: str | os.PathLike[str] | None,
    ) -> None:
        import textworld

        self._kind, self._numbers = kind, numbers
        self._settings = _checked_settings(kind, settings)
        self._folder = Path.home() / _CACHE if folder is None else Path(folder)
        facts = json.dumps([textworld.__version__, kind, self._settings])
        self._name = f"{kind}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    def __call__(self, seed: int) -> str:
        """Returns the file of the game that a seed chooses, and makes it if needed."""
        number = self._numbers[seed % len(self._numbers)]
        file = self._folder / f"{self._name}-{number}.z8"
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            with _GENERATING:
                self._make(file, number)
        return str(file)

    def _make(self, file: Path, number: int) -> None:
        import textworld
        from textworld.challenges import CHALLENGES
        from textworld.generator import compile_game, make_game

        # Several processes may make it: each in a folder of its own.
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="making-") as place:
            made = Path(place) / file.name
            options = textworld.GameOptions()
            options.seeds, options.path = number, str(made)
            textworld.g_rng.set_seed(number)
            if self._kind == _CUSTOM:
                for name, value in self._settings.items():
                    setattr(_owner_of_option(options, name), name, value)
                game = make_game(options)
            else:
                _, make, _ = CHALLENGES[self._kind]
                game = make(self._settings, options)
            compile_game(game, options)
            for suffix in (".json", ".z8"):
                made.with_suffix(suffix).replace(file.with_suffix(suffix))


def _source_of(
    game: str,
    games: int | Sequence[int],
    folder: str | os.PathLike[str] | None,
    settings: Mapping[str, Any],
) -> Callable[[int], str]:
    """Returns a function from the seed of an episode to the file of its game."""
    from envkit.extend import checked_size  # loads NumPy

    path = Path(game)
    if not (path.suffix or path.is_dir() or os.sep in game):
        numbers: Sequence[int]
        if isinstance(games, Sequence):
            numbers = [checked_size("a number in games", n, least=0) for n in games]
        else:
            numbers = range(checked_size("games", games))
        if not numbers:
            raise ValueError("games must have one number at least, got none.")
        return _Generated(_full_kind(game), settings, numbers, folder)
    if settings:
        raise TypeError(
            f"{listed(settings)} cannot be set: {game!r} names games that exist."
        )
    files = sorted(path.glob("*.z8")) if path.is_dir() else [path]
    files = [file for file in files if _is_game(file)]
    if not files:
        raise ValueError(
            f"{game!r} is no game of TextWorld: there must be a file .z8, and one of "
            'the same name with .json beside it. `tw-make` makes both; "jericho:" '
            "plays other games for the Z-machine."
        )
    return _Files(files)


def _is_game(file: Path) -> bool:
    return all(
        file.with_suffix(suffix).is_file() for suffix in {file.suffix, ".z8", ".json"}
    )


def _full_kind(name: str) -> str:
    known = names()
    for full in (name, f"tw-{name}"):
        if full in known:
            return full
    raise ValueError(
        f"TextWorld has no games named {name!r}.{suggestion(name, known)} There are "
        f"{listed(known)}, and files of games, .z8."
    )


class _Options(argparse.ArgumentParser):
    """Raises what `tw-make` would print."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog} was given wrong settings: {message}.")


def _checked_settings(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all settings of a kind of games, as `tw-make` checks them."""
    import textworld
    from textworld.challenges import CHALLENGES

    settings = {**_USUAL.get(kind, {}), **given}
    if kind == _CUSTOM:
        for name in settings:
            _owner_of_option(textworld.GameOptions(), name)
        return settings
    parser = _Options(prog=f"textworld:{kind}", add_help=False, allow_abbrev=False)
    _, _, add_arguments = CHALLENGES[kind]
    add_arguments(parser)
    return vars(parser.parse_args(list(_as_options(settings))))


def _as_options(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif value is not False and value is not None:
            yield f"{option}={value}"


def _owner_of_option(options: Any, name: str) -> Any:
    """Returns the part of TextWorld's options that has an option."""
    parts = (options, options.grammar, options.chaining)
    for part in parts:
        if hasattr(part, name) and not name.startswith("_"):
            return part
    known = {known for part in parts for known in dir(part) if known[0] != "_"}
    raise TypeError(
        f"TextWorld's GameOptions have no option {name!r}.{suggestion(name, known)}"
    )
