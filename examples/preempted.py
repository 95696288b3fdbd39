"""Learns to play Catch on a machine that may be taken away at any moment.

Stop it with Ctrl-C, SIGTERM or SIGKILL, and start it again: it goes on from the file
`preempted.ckpt`, and ends with the same table, bit for bit, as if it had never been
stopped. The file holds the whole run: the environments with their random numbers and,
as `extra`, everything that the learner depends on. At SIGTERM and Ctrl-C the program
saves before it ends; after SIGKILL it goes on from the last time it saved. When the run
is complete, delete the file to begin another one.
"""

import hashlib
import os
import signal

import numpy as np

from envkit import ParallelPyEnvironment

STEPS = 2000  # of the batch
SAVE_EVERY = 200
BACKEND = "process"
CHECKPOINT = "preempted.ckpt"
ENVS = ["Catch"] * 32
LEARNING_RATE, DISCOUNT = 0.1, 0.99


def states_of(board):
    """Numbers the boards of a batch; the same number may mean two boards."""
    cells = board.reshape(len(board), -1) > 0
    places = np.arange(1, cells.shape[1] + 1)
    return (cells * places * places).sum(axis=1)


class Learner:
    """A table of values, which chooses actions and learns from the results."""

    def __init__(self, states, actions):
        self.values = np.zeros((states, actions))
        self.rng = np.random.default_rng(0)
        self.step = 0

    def state(self):
        """Returns everything that later steps depend on, as plain data."""
        rng = self.rng.bit_generator.state
        return {"values": self.values, "rng": rng, "step": self.step}

    def continue_from(self, state):
        self.values, self.step = state["values"], state["step"]
        self.rng.bit_generator.state = state["rng"]

    def act(self, time_step, exploration):
        best = self.values[states_of(time_step.observation)].argmax(axis=1)
        guesses = self.rng.integers(self.values.shape[1], size=len(best))
        return np.where(self.rng.random(len(best)) < exploration, guesses, best)

    def learn(self, time_step, action, following):
        state, then = states_of(time_step.observation), states_of(following.observation)
        value = self.values[then].max(axis=1)
        target = following.reward + DISCOUNT * following.discount * value
        # The step from a LAST to the next FIRST is no transition.
        real = ~time_step.is_last()
        place = state[real], action[real]
        error = target[real] - self.values[place]
        np.add.at(self.values, place, LEARNING_RATE * error)
        self.step += 1


# A shared machine may send its signals to the workers too: this process alone decides.
asked_to_end = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: asked_to_end.append(number))

if os.path.exists(CHECKPOINT):
    env = ParallelPyEnvironment.load(CHECKPOINT, ENVS, num_workers=2, backend=BACKEND)
else:
    env = ParallelPyEnvironment(ENVS, num_workers=2, backend=BACKEND)
    env.seed(0)
    env.reset()
with env:
    cells = int(np.prod(env.observation_spec().shape))
    learner = Learner(2 * cells * cells + 1, int(env.action_spec().num_values))
    if env.extra is not None:
        learner.continue_from(env.extra)
    print(f"begins at step {learner.step}", flush=True)
    time_step = env.current_time_step()
    while learner.step < STEPS and not asked_to_end:
        action = learner.act(time_step, 1.0 - learner.step / STEPS)
        following = env.step(action)
        learner.learn(time_step, action, following)
        time_step = following
        if learner.step % SAVE_EVERY == 0:
            env.save(CHECKPOINT, learner.state())
            print(f"saved at step {learner.step}", flush=True)
    env.save(CHECKPOINT, learner.state())
if learner.step < STEPS:
    print(f"stopped at step {learner.step}")
else:
    digest = hashlib.sha256(learner.values.tobytes()).hexdigest()
    print(f"learned a table whose SHA-256 begins with {digest[:16]}")
