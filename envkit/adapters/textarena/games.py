"""Games of TextArena: made, begun and ended, with its peculiarities kept here.

TextArena's wrappers keep the transcript of the last game, so every episode needs a new
game. Some games read dictionaries and tag thousands of words when they are made, which
takes seconds: a process makes each game once, and plays copies of it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import pickle
import random
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from envkit.errors import MissingDependencyError, SpecError
from envkit.extend import describe, suggestion

__all__ = ["Game", "check_known", "ended", "layers_of", "registry"]

# TextArena's own limit.
_MOST_PLAYERS = 15
_DICTIONARIES = "textarena.envs.utils.word_lists"
_INVALID = "Invalid Move: "
# How games refuse a number of players.
_NUMBER = (AssertionError, ValueError)


def registry() -> Mapping[str, Any]:
    """Returns TextArena's games by id."""
    registration = importlib.import_module("textarena.envs.registration")
    games: Mapping[str, Any] = registration.ENV_REGISTRY
    return games


class Game:
    """Makes new games of one kind.

    Attributes:
        name: Its id in TextArena.
        dictionaries: What the copies share, because no game changes it.
    """

    _by_arguments: ClassVar[dict[str, Game]] = {}
    _lock: ClassVar[Any] = threading.RLock()

    def __init__(self, name: str, kwargs: Mapping[str, Any]) -> None:
        """Makes the game that is copied."""
        self.name, self._kwargs = name, kwargs
        self._fewest: int | None = None
        before = _drawn_so_far()
        self._first = self._made()
        # If it has drawn something, each game must be made of its own draws.
        self._is_copied = before == _drawn_so_far()
        self.dictionaries = [
            value
            for value in vars(layers_of(self._first)[-1]).values()
            if type(value).__module__ == _DICTIONARIES
        ]

    @classmethod
    def shared(cls, name: str, kwargs: Mapping[str, Any]) -> Game:
        """Returns this process's maker of a game."""
        key = f"{name} {sorted(kwargs.items())!r}"
        with cls._lock:
            if key not in cls._by_arguments:
                cls._by_arguments[key] = cls(name, kwargs)
            return cls._by_arguments[key]

    def new(self) -> Any:
        """Returns a game that has not begun."""
        if not self._is_copied:
            return self._made()
        return copy.deepcopy(self._first, {id(own): own for own in self.dictionaries})

    def begin(self, game: Any, num_players: int, seed: int) -> None:
        """Begins a game."""
        try:
            game.reset(num_players=num_players, seed=seed)
        except _NUMBER as error:
            raise ValueError(
                f"TextArena's {self.name!r} does not begin with {num_players} players: "
                f"{error}"
            ) from error

    def fewest_players(self) -> int:
        """Returns the smallest number of players with which the game begins."""
        with self._lock:
            if self._fewest is None:
                self._fewest = self._found_fewest()
            return self._fewest

    def _found_fewest(self) -> int:
        import textarena

        for_several = (
            textarena.TwoPlayerState,
            textarena.FFAMultiPlayerState,
            textarena.TeamMultiPlayerState,
            textarena.MinimalMultiPlayerState,
        )
        refusals = []
        for count in range(1, _MOST_PLAYERS + 1):
            game = self.new()
            # Games refuse a number with any exception, and some by failing.
            try:
                game.reset(num_players=count, seed=None)
            except Exception as error:
                refusals.append(error)
                continue
            # Some begin with one player and cannot be played then.
            if count > 1 or not isinstance(game.state, for_several):
                return count
        reason = _telling(refusals)
        raise RuntimeError(
            f"TextArena's {self.name!r} begins with none of 1 to {_MOST_PLAYERS} "
            f"players: {type(reason).__name__}: {reason}"
        ) from reason

    def _made(self) -> Any:
        import textarena

        try:
            with _quick_tagging():
                return textarena.make(self.name, **self._kwargs)
        except TypeError:  # an argument that the game does not know
            raise
        # Files, words, keys and versions of Python: whatever a game lacks.
        except Exception as error:
            _explain(self.name, error)


def layers_of(game: Any) -> list[Any]:
    """Returns the wrappers of a game, the outermost first, and the game itself."""
    from textarena import Wrapper

    layers = [game]
    while isinstance(layers[-1], Wrapper):
        layers.append(layers[-1].env)
    return layers


def ended(game: Any, name: str) -> tuple[dict[int, float], dict[int, Any]]:
    """Returns the rewards of a game that is over, and what it says of each player.

    Some games hand the reward and the reason of an invalid move over in the wrong
    order; they are put right.
    """
    rewards, facts = game.close()
    if not isinstance(rewards, Mapping):
        raise SpecError(
            f"TextArena's {name!r} is over and has {describe(rewards)} for rewards, "
            "which must be a dictionary with a number for each player."
        )
    rewards, facts = dict(rewards), copy.deepcopy(facts)
    for player, reward in rewards.items():
        if isinstance(reward, str):
            number = facts[player]["reason"].removeprefix(_INVALID)
            with contextlib.suppress(ValueError):
                rewards[player] = float(number)
                facts[player]["reason"] = f"{_INVALID}{reward}"
    return rewards, facts


def _telling(refusals: Sequence[Exception]) -> Exception:
    """Returns the refusal that is not about the number of players, if there is one.

    That is another exception, or what the game says of the one number that it takes.
    """

    def words(error: Exception) -> str:
        return re.sub(r"\d+", "", str(error))

    found = [error for error in refusals if not isinstance(error, _NUMBER)] or refusals
    told = [words(error) for error in found]
    return min(found, key=lambda error: told.count(words(error)))


def _drawn_so_far() -> tuple[Any, bytes]:
    numpys = np.random.get_state()  # noqa: NPY002  # games draw from it
    return random.getstate(), pickle.dumps(numpys)


@contextlib.contextmanager
def _quick_tagging() -> Iterator[None]:
    """Lets NLTK read its tagger once: it reads it for every word otherwise."""
    tag: Any = importlib.import_module("nltk.tag")
    read = getattr(tag, "_get_tagger", None)
    if read is None:
        yield
        return
    tag._get_tagger = functools.lru_cache(read)
    try:
        yield
    finally:
        tag._get_tagger = read


def _explain(name: str, error: Exception) -> NoReturn:
    missing = re.search(r"nltk\.download\('([^']+)'\)", str(error))
    if missing is None:
        is_too_new = isinstance(error, SyntaxError) and sys.version_info < (3, 12)
        remedy = ". It needs Python 3.12" if is_too_new else ""
        raise RuntimeError(
            f"TextArena cannot make {name!r} here: {type(error).__name__}: {error}"
            f"{remedy}"
        ) from error
    command = f"python -m nltk.downloader {missing[1]}"
    lack = MissingDependencyError(
        f"TextArena's {name!r} needs {missing[1]!r} of NLTK's data, which is not on "
        f"this machine, and which it could not download: {command}"
    )
    lack.package, lack.extra, lack.command = "nltk", "textarena", command
    raise lack from error


def check_known(name: str) -> None:
    """Raises unless TextArena has a game of this name."""
    known = registry()
    if name not in known:
        raise ValueError(
            f"TextArena has no game {name!r}.{suggestion(name, known)} "
            "`envkit list textarena:` lists them."
        )
