"""TextArena's games as envkit environments.

| TextArena                      | `opponent=...`               | otherwise            |
|--------------------------------|------------------------------|----------------------|
| the player's turn              | a step                       | a step               |
| another player's turn          | `opponent` plays             | a step               |
| `rewards` of `close()`         | the player's, with the `LAST`| all players', with it|
| `done`                         | `LAST` with discount 0       | the same             |
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from envkit.adapters.foreign import ForeignEnvironment, limited_and_wrapped
from envkit.adapters.state import restore_snapshot, take_snapshot
from envkit.adapters.textarena import SCHEME
from envkit.adapters.textarena.games import (
    Game,
    check_known,
    ended,
    layers_of,
    registry,
)
from envkit.adapters.values import text_action
from envkit.extend import Result, checked_size, describe
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings
from envkit.types import NestedArray
from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.private_randomness import PrivateRandomness

__all__ = ["Opponent", "TextArenaWrapper", "load", "names", "preload"]

Opponent: TypeAlias = Callable[[str], str]

# After this many games without a turn, a player never gets one; and after this many
# turns of others in one step, the game does not end.
_GAMES_WITHOUT_TURN = 100
_TURNS_OF_OTHERS = 10_000


def load(
    environment_name: str,
    num_players: int | None = None,
    player: int | None = None,
    opponent: Opponent | None = None,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    private_randomness: bool = True,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of TextArena.

    `envkit.make("textarena:Wordle-v0")` calls this.

    Args:
        environment_name: The game's id in TextArena, such as `"Wordle-v0"`.
        num_players: As for `TextArenaWrapper`.
        player: As for `TextArenaWrapper`.
        opponent: As for `TextArenaWrapper`.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 for no limit. TextArena's own limits end a game with a result.
        env_wrappers: Wrappers for the environment, innermost first.
        private_randomness: Whether the game gets its own global random generators, with
            `PrivateRandomness`.
        **kwargs: Arguments of the game: `hardcore=True`.

    Raises:
        ValueError: TextArena has no such game, or the game has no such player.
        MissingDependencyError: TextArena is not installed, or the words it needs.
    """
    _require(f"The game {environment_name!r}")
    make = functools.partial(
        TextArenaWrapper,
        environment_name,
        num_players=num_players,
        player=player,
        opponent=opponent,
        discount=discount,
        game_kwargs=kwargs,
    )
    # A game may draw as soon as it is made.
    generators = TextArenaWrapper._global_generators
    env = PrivateRandomness(make, generators) if private_randomness else make()
    return limited_and_wrapped(
        env, max_episode_steps, TimeLimit, env_wrappers, private_randomness=False
    )


def names() -> list[str]:
    """Lists the ids of all games, in TextArena's order.

    Example:
        >>> "Wordle-v0" in names()  # doctest: +SKIP
        True
    """
    _require("suite_textarena")
    return list(registry())


def preload(environment_name: str) -> None:
    """Imports TextArena."""
    _require(f"The game {environment_name!r}")
    registry()


class TextArenaWrapper(ForeignEnvironment):
    """Plays a game of TextArena, as one player or as the player whose turn it is.

    | part       | what an observation has there                                      |
    |------------|--------------------------------------------------------------------|
    | `"text"`   | an object: all that TextArena shows the player                     |
    | `"new"`    | an object: what it adds to the player's last `"text"`, or all of   |
    |            | it if TextArena has written it anew                                |
    | `"player"` | int64: the player whose turn it is, if all play                    |

    An action is a string of any length. TextArena decides about invalid moves: most
    games allow one, and the second ends the game.

    The info has TextArena's `turn` and `error_count`, which counts the player's invalid
    moves since the last valid one. At the end it has `game_info`, with each player's
    facts, and the `reason` of the end.

    Attributes:
        num_players: The number of players.
        player: The player to play; `None` for all of them in turn.
    """

    _global_generators = ("random", "numpy")
    _in_state = ("_info", "_next_seed", "_shown", "_rng")
    _library = "TextArena"

    def __init__(
        self,
        environment_name: str,
        *,
        num_players: int | None = None,
        player: int | None = None,
        opponent: Opponent | None = None,
        discount: float = 1.0,
        game_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Makes a game.

        Args:
            environment_name: The game's id in TextArena.
            num_players: The number of players; `None` for the fewest with which the
                game begins.
            player: The player to play, if there is an opponent; 0 by default.
            opponent: Plays all other players: called with what TextArena shows them, it
                returns an action, as TextArena's agents do. What it draws from `random`
                and `np.random` is seeded with the environment. `None` for all players
                in turn, each step an action of the one whose turn it is; then rewards
                are arrays with one number for each player. For workers it must be a
                module's function.
            discount: The discount of steps that do not terminate the episode.
            game_kwargs: Arguments of the game.
        """
        _require("TextArenaWrapper")
        super().__init__(handle_auto_reset=True)
        self._name = environment_name
        self._shown: dict[int, str] = {}
        self._rng = random.Random()
        check_known(environment_name)
        self._game = Game.shared(environment_name, dict(game_kwargs or {}))
        if num_players is None:
            num_players = self._game.fewest_players()
        self.num_players = checked_size("num_players", num_players)
        self.player = _checked_player(player, opponent, self.num_players)
        self._opponent = opponent
        self._foreign = self._game.new()
        self._action_spec = ObjectSpec(name="action", kind=Strings(str))
        texts: dict[str, ArraySpec] = {
            part: ObjectSpec(name=part, kind=Strings(str)) for part in ("text", "new")
        }
        if self._is_for_all:
            last = self.num_players - 1
            texts["player"] = BoundedArraySpec((), np.int64, 0, last, "player")
            self._reward_spec = ArraySpec((self.num_players,), np.float32, "reward")
        self._observation_spec = texts
        self._prepare(discount)

    @property
    def _is_for_all(self) -> bool:
        return self.num_players > 1 and self.player is None

    def info_spec(self) -> dict[str, ArraySpec]:
        """Returns the specs of TextArena's two counters."""
        return {name: ArraySpec((), np.int64, name) for name in ("turn", "error_count")}

    # Episodes.

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if seed is not None:
            self._rng = random.Random(seed)
        for _ in range(_GAMES_WITHOUT_TURN):
            # Each game gets a seed: without one, some are different in every run.
            seed = self._rng.getrandbits(32) if seed is None else seed
            # Another one: wrappers of TextArena keep the last game's transcript.
            self._foreign, self._shown = self._game.new(), {}
            self._game.begin(self._foreign, self.num_players, seed)
            done, info = self._play_others(False, {})
            if not done:
                return self._seen(), self._info_of(info)
            seed = None
        raise ValueError(
            f"In {_GAMES_WITHOUT_TURN} games of {self._name!r} player {self.player} "
            "had no turn."
        )

    def _move(self, action: str) -> Any:
        done, info = self._play_others(*self._foreign.step(action=action))
        if not done:
            return Result(self._seen(), self._rewards({}), info=self._info_of(info))
        rewards, game_info = ended(self._foreign, self._name)
        # The last text is for the player, whoever made the last move.
        if self.player is not None:
            self._foreign.state.current_player_id = self.player
        info = self._info_of(info)
        info["game_info"] = game_info
        info["reason"] = str(game_info.get(self._current, {}).get("reason") or "")
        return Result(self._seen(), self._rewards(rewards), True, info=info)

    def _play_others(self, done: bool, info: Any) -> tuple[bool, Any]:
        """Plays until it is the player's turn, or the game is over."""
        if self._opponent is None:
            return done, info
        for _ in range(_TURNS_OF_OTHERS):
            if done or self._current == self.player:
                return done, info
            _, seen = self._foreign.get_observation()
            done, info = self._foreign.step(action=str(self._opponent(seen)))
        raise RuntimeError(
            f"In {self._name!r} the opponent has had {_TURNS_OF_OTHERS} turns since "
            f"the last turn of player {self.player}, and the game does not end: are "
            "its moves valid?"
        )

    @property
    def _current(self) -> int:
        return int(self._foreign.state.current_player_id)

    def _seen(self) -> dict[str, Any]:
        player, seen = self._foreign.get_observation()
        before = self._shown.get(player, "")
        text = seen if isinstance(seen, str) else before + self._written(seen)
        self._shown[player] = text
        # Wrappers that show only the last board have no beginning in common.
        new = text[len(before) :] if text.startswith(before) else text
        return {"text": text, "new": new, "player": player}

    def _written(self, messages: Any) -> str:
        """Writes messages as TextArena's usual wrapper does: a game has been made raw.

        Args:
            messages: What TextArena has shown the player since the last turn.
        """
        roles = self._foreign.state.role_mapping
        return "".join(
            f"\n[{roles.get(sender, f'Player {sender}')}] {message}"
            for sender, message, *_ in messages
        )

    def _info_of(self, info: Any) -> dict[str, Any]:
        state = self._foreign.state
        counters = {name: getattr(state, name, 0) for name in self.info_spec()}
        numbers = {
            name: np.asarray(count, np.int64) for name, count in counters.items()
        }
        return {**(info or {}), **numbers}

    def _rewards(self, rewards: Mapping[int, Any]) -> Any:
        if self._is_for_all:
            each = [rewards.get(player, 0.0) for player in range(self.num_players)]
            return np.array(each, np.float32)
        return rewards.get(self.player or 0, 0.0)

    def _to_reward(self, reward: Any) -> NestedArray:
        return reward if self._is_for_all else super()._to_reward(reward)

    def _to_action(self, action: NestedArray) -> str:
        return text_action(action, self._action_spec)

    def _to_observation(self, observation: Mapping[str, Any]) -> dict[str, NestedArray]:
        seen = {part: ObjectSpec.wrap(observation[part]) for part in ("text", "new")}
        if self._is_for_all:
            seen["player"] = np.asarray(observation["player"], np.int64)
        return seen

    def _draw(self, mode: str) -> Any:
        raise NotImplementedError(
            f"{self._name} has no pictures: the text is in the observation."
        )

    def _get_state(self) -> Any:
        return take_snapshot(
            self._foreign,
            self._name,
            [getattr(self, name) for name in self._in_state],
            layers=layers_of(self._foreign),
            kept=self._game.dictionaries,
        )

    def _set_state(self, state: Any) -> None:
        beside = restore_snapshot(
            self._foreign,
            self._name,
            state,
            layers=layers_of(self._foreign),
            kept=self._game.dictionaries,
        )
        for name, value in zip(self._in_state, beside, strict=True):
            setattr(self, name, value)

    def _close(self) -> None:
        """Does nothing: `close` of a game asks for its rewards."""


def _checked_player(
    player: int | None, opponent: Opponent | None, num_players: int
) -> int | None:
    """Returns the player to play; `None` for all of them."""
    if opponent is None:
        if player is None:
            return None
        raise ValueError(
            f"player is {player!r}, and there is no opponent: pass one, which plays "
            "the others, or play all of them in turn without either."
        )
    if not callable(opponent):
        raise TypeError(
            f"opponent must be a function of a text that returns an action, got "
            f"{describe(opponent)}."
        )
    if num_players == 1:
        raise ValueError("The game has one player, so it has no opponent: pass none.")
    player = 0 if player is None else player
    if not 0 <= player < num_players:
        raise ValueError(
            f"player must be a number below {num_players}, the number of players, got "
            f"{player!r}."
        )
    return player


def _require(needed_by: str) -> None:
    error = SCHEME.missing(needed_by)
    if error is not None:
        raise error
