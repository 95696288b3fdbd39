"""An environment of your own: write it, check it, and let an agent learn it.

    python own_environment.py
    envkit play own_environment:Ledge

A walker goes along a ledge while gusts of wind push him towards the edge. The agent has
a table with a value for each action in each place, and learns by Q-learning. It finds
out that the long way, far from the edge, is the better one.
"""

import numpy as np

from envkit import (
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.testing import check_environment

EPISODES = 3000
LEARNING_RATE, EXPLORATION = 0.1, 0.1
SEED = 0


class Ledge(PyEnvironment):
    """Walk from the lower left corner to the lower right one; between them is a drop.

    Each step costs a point, a fall 50. An observation is the number of the place.
    """

    action_names = ("up", "right", "down", "left")
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    rows, columns, gusts = 4, 8, 0.15

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self.rng = np.random.default_rng()

    def observation_spec(self):
        return BoundedArraySpec((), np.int64, 0, self.rows * self.columns - 1)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 3)

    def seed(self, seed):
        # All chance comes from here, so equal seeds mean equal walks.
        self.rng = np.random.default_rng(seed)

    def _reset(self):
        self.row, self.column, self.steps = self.rows - 1, 0, 0
        return restart(self.place())

    def _step(self, action):
        down, right = self.moves[action]
        gust = self.rng.random() < self.gusts
        self.row = min(max(self.row + down + gust, 0), self.rows - 1)
        self.column = min(max(self.column + right, 0), self.columns - 1)
        self.steps += 1
        if self.row == self.rows - 1 and self.column == self.columns - 1:
            return termination(self.place(), reward=-1.0)
        if self.row == self.rows - 1 and self.column > 0:
            return termination(self.place(), reward=-50.0)
        if self.steps == 100:
            # The walk is only cut off: a learner must not think that nothing follows.
            return truncation(self.place(), reward=-1.0)
        return transition(self.place(), reward=-1.0)

    def place(self):
        return np.array(self.row * self.columns + self.column)

    def render(self, mode="rgb_array"):
        if mode != "rgb_array":
            raise NotImplementedError(f"Ledge renders 'rgb_array', not {mode!r}.")
        picture = np.full((self.rows, self.columns, 3), 200, np.uint8)
        picture[-1, 1:-1] = 30, 30, 60
        picture[-1, -1] = 0, 160, 0
        picture[self.row, self.column] = 220, 60, 30
        return picture.repeat(32, axis=0).repeat(32, axis=1)


def walk(env, values, rng, exploration, learns):
    """Walks once, and returns the sum of the rewards."""
    time_step, total = env.reset(), 0.0
    while not time_step.is_last():
        place = time_step.observation
        if rng.random() < exploration:
            action = int(rng.integers(4))
        else:
            action = int(values[place].argmax())
        time_step = env.step(action)
        total += float(time_step.reward)
        if learns:
            # The discount is 0 after a termination, and 1 where the walk was cut off.
            following = time_step.discount * values[time_step.observation].max()
            error = time_step.reward + following - values[place, action]
            values[place, action] += LEARNING_RATE * error
    return total


# `envkit play` and `envkit check` import this file for Ledge, and want no training.
if __name__ == "__main__":
    check_environment(Ledge, require=["episodes", "seed", "render"])
    print("The environment keeps the rules.")
    env, rng = Ledge(), np.random.default_rng(SEED)
    env.seed(SEED)
    values = np.zeros((Ledge.rows * Ledge.columns, 4))
    before = np.mean([walk(env, values, rng, 1.0, False) for _ in range(200)])
    for _ in range(EPISODES):
        walk(env, values, rng, EXPLORATION, True)
    after = np.mean([walk(env, values, rng, 0.0, False) for _ in range(200)])
    arrows = np.array(list("^>v<"))[values.argmax(axis=1)]
    arrows[-Ledge.columns + 1 :] = "."
    arrows[-1] = "*"
    for row in arrows.reshape(Ledge.rows, Ledge.columns):
        print(" ".join(row))
    print(f"mean return of 200 walks: {before:.0f} at random, {after:.0f} learned")
