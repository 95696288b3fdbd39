"""Small environments that come with envkit, fast for thousands of rows at once.

Each is loaded when it is first used, so a worker loads only its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.envs.bandit import Bandit as Bandit
    from envkit.envs.cartpole import CartPole as CartPole
    from envkit.envs.catch import Catch as Catch
    from envkit.envs.choice import Choice as Choice
    from envkit.envs.gridworld import GridWorld as GridWorld
    from envkit.envs.tictactoe import TicTacToe as TicTacToe

_HOMES = {
    "Bandit": "envkit.envs.bandit",
    "CartPole": "envkit.envs.cartpole",
    "Catch": "envkit.envs.catch",
    "Choice": "envkit.envs.choice",
    "GridWorld": "envkit.envs.gridworld",
    "TicTacToe": "envkit.envs.tictactoe",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
