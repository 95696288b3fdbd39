"""Environments that come with envkit: small, and for thousands of rows at once."""

from envkit.envs.bandit import Bandit
from envkit.envs.cartpole import CartPole
from envkit.envs.catch import Catch
from envkit.envs.choice import Choice
from envkit.envs.gridworld import GridWorld
from envkit.envs.tictactoe import TicTacToe

__all__ = ["Bandit", "CartPole", "Catch", "Choice", "GridWorld", "TicTacToe"]
