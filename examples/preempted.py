"""Learns to play Catch on a machine that may be taken away at any moment.

    python examples/preempted.py --checkpoint=catch.ckpt

Stop it with Ctrl-C, SIGTERM or SIGKILL, and start it with the same line again: it goes
on where it stood, and ends with the same table, bit for bit, as if it had never been
stopped. One file holds the whole run: the environments with their random numbers and,
as `extra`, all that the learner depends on. A run that is told to end saves before it
does; one that is not told goes on from the last time it saved.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import envkit

_LEARNING_RATE = 0.1
_GAMMA = 0.99

Array = npt.NDArray[Any]


def states_of(board: Array) -> Array:
    """Numbers what a batch of boards shows; the same number may mean two boards."""
    cells = board.reshape(len(board), -1) > 0
    places = np.arange(1, cells.shape[1] + 1)
    return (cells * places * places).sum(axis=1)


class Learner:
    """A table of values, which chooses actions and learns from what follows."""

    def __init__(self, states: int, actions: int, seed: int) -> None:
        self._values = np.zeros((states, actions))
        self._rng = np.random.default_rng(seed)
        self.step = 0

    def state(self) -> dict[str, Any]:
        """Returns all that later steps depend on, as plain data."""
        return {
            "values": self._values,
            "rng": self._rng.bit_generator.state,
            "step": self.step,
        }

    def continue_from(self, state: dict[str, Any]) -> None:
        """Takes over what `state` returned in another process."""
        self._values, self.step = state["values"], state["step"]
        self._rng.bit_generator.state = state["rng"]

    def act(self, time_step: envkit.TimeStep, explore: float) -> Array:
        best: Array = self._values[states_of(time_step.observation)].argmax(axis=1)
        guesses = self._rng.integers(self._values.shape[1], size=len(best))
        return np.where(self._rng.random(len(best)) < explore, guesses, best)

    def learn(
        self, time_step: envkit.TimeStep, action: Array, following: envkit.TimeStep
    ) -> None:
        state, then = map(states_of, (time_step.observation, following.observation))
        target = following.reward + _GAMMA * following.discount * (
            self._values[then].max(axis=1)
        )
        # What leads from a LAST to the next FIRST is not a transition.
        real = ~np.asarray(time_step.is_last())
        place = state[real], action[real]
        error = target[real] - self._values[place]
        np.add.at(self._values, place, _LEARNING_RATE * error)
        self.step += 1

    def digest(self) -> str:
        return hashlib.sha256(self._values.tobytes()).hexdigest()


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--checkpoint", type=Path, required=True, help="the file")
    parser.add_argument("--num_envs", type=int, default=32, help="rows of the batch")
    parser.add_argument("--num_workers", type=int, default=2, help="worker processes")
    parser.add_argument("--backend", default="process", help="what runs the workers")
    parser.add_argument("--steps", type=int, default=2000, help="steps of the batch")
    parser.add_argument("--save_every", type=int, default=200, help="steps")
    return parser.parse_args()


def main() -> None:
    """Learns until all steps are made, or until it is told to end."""
    options = arguments()
    # Workers of a shared machine may be told to end, too: this process alone decides.
    asked_to_end = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked_to_end.append(number))

    rows = ["Catch"] * options.num_envs
    how = {"backend": options.backend, "num_workers": options.num_workers}
    if options.checkpoint.exists():
        env = envkit.ParallelPyEnvironment.load(options.checkpoint, rows, **how)
    else:
        env = envkit.ParallelPyEnvironment(rows, **how)
        env.seed(0)
        env.reset()
    with env:
        cells = int(np.prod(env.observation_spec().shape))
        learner = Learner(2 * cells * cells + 1, int(env.action_spec().num_values), 0)
        if env.extra is not None:
            learner.continue_from(env.extra)
        print(f"begins at step {learner.step}", flush=True)
        time_step = env.current_time_step()
        while learner.step < options.steps and not asked_to_end:
            action = learner.act(time_step, 1.0 - learner.step / options.steps)
            following = env.step(action)
            learner.learn(time_step, action, following)
            time_step = following
            if learner.step % options.save_every == 0:
                env.save(options.checkpoint, learner.state())
                print(f"saved at step {learner.step}", flush=True)
        env.save(options.checkpoint, learner.state())
        if learner.step < options.steps:
            print(f"stopped at step {learner.step}")
        else:
            print(f"learned {learner.digest()}")


if __name__ == "__main__":
    main()
