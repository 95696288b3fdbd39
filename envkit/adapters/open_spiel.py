"""OpenSpiel: games for one player or for all of them.

| OpenSpiel                   | `player=0`                  | `player=None`           |
|-----------------------------|-----------------------------|-------------------------|
| the player's turn           | a step                      | a step                  |
| another player's turn       | `opponent` plays            | a step                  |
| chance: cards, dice         | drawn                       | drawn                   |
| rewards since the last step | the player's                | all players'            |
| a terminal state            | `LAST` with discount 0      | the same                |
| simultaneous moves          | one after another, hidden   | the same                |
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from envkit.adapters.adapter import Adapter
from envkit.extend import Scheme, suggestion

if TYPE_CHECKING:
    from envkit.py_environment import PyEnvironment
    from envkit.types import NestedArray, NestedSpec

__all__ = ["SCHEME", "OpenSpielGame", "from_object", "load", "names"]

SCHEME = Scheme(
    "envkit.adapters.open_spiel:load",
    title="OpenSpiel",
    example="kuhn_poker",
    page="adapters/open_spiel",
    package="pyspiel",
    extra="open-spiel",
    requires=("open_spiel>=1.6",),
    lister="envkit.adapters.open_spiel:names",
)

Opponent: TypeAlias = Callable[[Any, random.Random], int]

# Claims to have a tensor, but has none.
_WITHOUT_TENSOR = ("crossword",)
_TENSORS = ("information_state", "observation")
# After this many games without a turn, a player never gets one.
_WITHOUT_TURN = 1000


def load(
    game: str,
    player: int | None = 0,
    opponent: Opponent | None = None,
    tensor: str | None = None,
    observe_legal_actions: bool = False,
    **parameters: Any,
) -> PyEnvironment:
    """Makes an OpenSpiel game.

    `envkit.make("open_spiel:kuhn_poker")` calls this.

    Args:
        game: The game's name, with parameters if you like: `"hex(board_size=5)"`.
        player: The player to play; `None` for all players in turn.
        opponent: Chooses the other players' actions: called with OpenSpiel's state and
            a `random.Random` that is seeded with the environment, it returns a legal
            action. `None` draws one at random. For workers it must be a module's
            function.
        tensor: `"information_state"` for everything the player has seen since the
            start, or `"observation"` for what they see now; `None` for the first one
            that the game has.
        observe_legal_actions: Whether the observation includes the mask of legal
            actions; the info always does.
        **parameters: More parameters of the game.

    Raises:
        ValueError: OpenSpiel has no such game, or the game has no such player or
            tensor.
    """
    _check(f"The game {game!r}")
    return OpenSpielGame(
        game, player, opponent, tensor, observe_legal_actions, parameters
    )


def names() -> list[str]:
    """Lists the games that need no parameters, sorted.

    Games whose chance cannot be seeded are left out.

    Example:
        >>> "kuhn_poker" in names()  # doctest: +SKIP
        True
    """
    _check("suite_open_spiel")
    import pyspiel

    dynamics, chance = pyspiel.GameType.Dynamics, pyspiel.GameType.ChanceMode
    return sorted(
        kind.short_name
        for kind in pyspiel.registered_games()
        if kind.default_loadable
        and kind.short_name not in _WITHOUT_TENSOR
        and kind.dynamics != dynamics.MEAN_FIELD
        and kind.chance_mode != chance.SAMPLED_STOCHASTIC
        and (kind.provides_information_state_tensor or kind.provides_observation_tensor)
    )


def from_object(game: Any) -> NoReturn:
    """Refuses an object of OpenSpiel: envkit loads games by name.

    Args:
        game: A `pyspiel.Game`, or OpenSpiel's own `rl_environment.Environment`.
    """
    name = str(getattr(game, "game", game))
    raise TypeError(
        f"envkit loads OpenSpiel's games itself, by name: "
        f'envkit.make("open_spiel:{name}") instead of a {type(game).__name__} object. '
        "player=None plays all players in turn, as rl_environment does."
    )


class OpenSpielGame(Adapter):
    """Plays a game as one player, or as the player whose turn it is.

    Attributes:
        state: OpenSpiel's state; `str(env.state)` shows the board.
    """

    fresh_arrays = True

    def __init__(
        self,
        game: str,
        player: int | None = 0,
        opponent: Opponent | None = None,
        tensor: str | None = None,
        observe_legal_actions: bool = False,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        """Takes the same arguments as `load`; the game is loaded later."""
        self.name, self.player, self.tensor = game, player, tensor
        self.opponent = opponent or _any_legal
        self.observe_legal_actions = observe_legal_actions
        self.parameters = parameters or {}
        self.rng = random.Random()
        self.state: Any = None

    def start(self) -> Any:
        """Loads the game."""
        game = _loaded(self.name, self.parameters)
        kind, count = game.get_type(), game.num_players()
        if self.player is not None and not 0 <= self.player < count:
            raise ValueError(
                f"player must be None or a number below {count}, the number of "
                f"players of {self.name!r}, got {self.player!r}."
            )
        has = [name for name in _TENSORS if getattr(kind, f"provides_{name}_tensor")]
        self.tensor = has[0] if self.tensor is None and has else self.tensor
        if self.tensor not in has:
            raise ValueError(
                f"The game {self.name!r} has no tensor {self.tensor!r}; it has "
                f"{' and '.join(map(repr, has)) or 'none'}."
            )
        self.num_actions = game.num_distinct_actions()
        self.shape = getattr(game, f"{self.tensor}_tensor_shape")()
        return game

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the tensor, and of the current player if all play."""
        import numpy as np

        from envkit.specs.arrays import ArraySpec, BoundedArraySpec

        tensor = ArraySpec(self.shape, np.float32, name="observation")
        if self.player is not None:
            return tensor
        last = self.env_instance.num_players() - 1
        return {
            "player": BoundedArraySpec((), np.int64, 0, last, name="player"),
            "tensor": tensor,
        }

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one reward, or of one per player."""
        import numpy as np

        from envkit.specs.arrays import ArraySpec

        count = () if self.player is not None else (self.env_instance.num_players(),)
        return ArraySpec(count, np.float32, name="reward")

    def seed(self, seed: Any) -> None:
        """Seeds chance and the opponents."""
        self.rng.seed(seed)

    def reset(self) -> NestedArray:  # type: ignore[override]  # an author's
        """Begins a game and plays it until the first turn."""
        for _ in range(_WITHOUT_TURN):
            self.state = self.env_instance.new_initial_state()
            self._play_others()
            if not self.state.is_terminal():
                return self._observation()
        raise ValueError(
            f"In {_WITHOUT_TURN} games of {self.name!r} player {self.player} had no "
            "turn."
        )

    def legal_actions(self, observation: Any) -> set[int]:
        """Returns the actions that are legal now."""
        return set(self.state.legal_actions())

    def step(self, action: int) -> tuple[NestedArray, Any, bool]:  # type: ignore[override]
        """Plays an action, and then the game until the next turn."""
        legal = self.state.legal_actions()
        if action not in legal:
            raise ValueError(
                f"The action {action} is not legal in {self.name!r} now; legal are "
                f"{', '.join(map(str, legal))}. The info has a mask, 'legal_actions'."
            )
        rewards = self._apply(action)
        for others in self._play_others():
            rewards = [a + b for a, b in zip(rewards, others, strict=True)]
        reward = rewards if self.player is None else rewards[self.player]
        return self._observation(), reward, self.state.is_terminal()

    def _play_others(self) -> list[list[float]]:
        """Plays until it is the player's turn; returns the rewards of each action."""
        rewards = []
        while not self.state.is_terminal() and not self._is_turn():
            if self.state.is_chance_node():
                outcomes, weights = zip(*self.state.chance_outcomes(), strict=True)
                action = self.rng.choices(outcomes, weights)[0]
            else:
                action = self.opponent(self.state, self.rng)
            rewards.append(self._apply(action))
        return rewards

    def _is_turn(self) -> bool:
        current = self.state.current_player()
        return bool(current >= 0 and self.player in (None, current))

    def _apply(self, action: int) -> list[float]:
        self.state.apply_action(action)
        rewards: list[float] = self.state.rewards()
        return rewards

    def _observation(self) -> Any:
        import numpy as np

        state, player = self.state, self.player
        if player is None:
            player = max(state.current_player(), 0)  # nobody's turn at the end
        seen = getattr(state, f"{self.tensor}_tensor")(player)
        tensor = np.array(seen, np.float32).reshape(self.shape)
        return (
            tensor
            if self.player is not None
            else {"player": np.array(player), "tensor": tensor}
        )


def _loaded(name: str, parameters: dict[str, Any]) -> Any:
    import pyspiel

    bare = name.partition("(")[0]
    known = pyspiel.registered_names()
    if bare not in known:
        raise ValueError(
            f"OpenSpiel has no game {bare!r}.{suggestion(bare, known)} "
            "pyspiel.registered_names() lists them."
        )
    # With an empty dictionary, it would ignore the parameters in the name.
    game = pyspiel.load_game(name, *filter(None, [parameters]))
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        return pyspiel.convert_to_turn_based(game)
    return game


def _check(needed_by: str) -> None:
    error = SCHEME.missing(needed_by)
    if error is not None:
        raise error


def _any_legal(state: Any, rng: random.Random) -> int:
    return int(rng.choice(state.legal_actions()))
