"""Learns to play Catch with a table, on a batch of environments, in NumPy alone.

    python examples/q_learning.py

It shows the two things that every learner has to get right. The target of a transition
is `reward + discount * value of what follows`: the discount is 0 where the episode is
over for good and not where it was merely cut off, so no other flag is needed. And the
transition that leads from a `LAST` to the next `FIRST` is none: nothing is learned
from it.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

import envkit

_LEARNING_RATE = 0.1
_GAMMA = 0.99
_REPORTS = 6

Ints = npt.NDArray[np.integer]


def states_of(board: npt.NDArray[np.floating]) -> Ints:
    """Numbers the positions of ball and paddle in a batch of boards."""
    rows, columns = board.shape[1:]
    paddle = board[:, -1].argmax(axis=1)
    # In the last row ball and paddle may share a cell; the others hold the ball alone.
    above = board[:, :-1].reshape(len(board), -1)
    ball = np.where(above.any(axis=1), above.argmax(axis=1), (rows - 1) * columns)
    return ball * columns + paddle


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=256, help="rows of the batch")
    parser.add_argument("--steps", type=int, default=3000, help="steps of the batch")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the random numbers depend on"
    )
    return parser.parse_args()


def main() -> None:
    """Learns, and prints how well it plays."""
    options = arguments()
    rng = np.random.default_rng(options.seed)
    env = envkit.make("Catch", batch_size=options.num_envs)
    env.seed(options.seed)
    rows, columns = env.observation_spec().shape
    actions = int(env.action_spec().num_values)
    values = np.zeros((rows * columns * columns, actions))
    everyone = np.arange(options.num_envs)

    time_step = env.reset()
    state = states_of(time_step.observation)
    results: list[float] = []
    for step in range(1, options.steps + 1):
        exploring = rng.random(options.num_envs) < 1.0 - step / options.steps
        guesses = rng.integers(actions, size=options.num_envs)
        action = np.where(exploring, guesses, values[state].argmax(axis=1))

        following = env.step(action)
        next_state = states_of(following.observation)
        target = following.reward + _GAMMA * following.discount * values[
            next_state
        ].max(axis=1)

        real = everyone[~time_step.is_last()]
        error = target[real] - values[state[real], action[real]]
        np.add.at(values, (state[real], action[real]), _LEARNING_RATE * error)

        results.extend(following.reward[following.is_last()])
        time_step, state = following, next_state
        if step % (options.steps // _REPORTS or 1) == 0 and results:
            print(f"step {step:5}   mean return {np.mean(results):+.2f}")
            results.clear()


if __name__ == "__main__":
    main()
