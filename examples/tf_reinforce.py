"""Learns CartPole in plain TensorFlow, on parallel environments.

    pip install -e ".[tf,plot,video]"
    python examples/tf_reinforce.py
    python examples/tf_reinforce.py --goal=450 --seed=3 --output_dir=/tmp/cartpole

The method is REINFORCE with a baseline (Williams, 1992). The policy acts in all
environments for a while; then actions that were followed by more reward than the
baseline expected become more likely; and so on until the goal is reached. In the output
folder are then `learning_curve.png` and `trained.gif`.

Two things every learner has to get right, here in `returns_to_go` and `learn`. Where an
episode terminates nothing follows, which the discount of 0 says; where it was merely
cut off, the baseline stands for what would have followed. And from a `LAST` a step
leads to the `FIRST` of the next episode, whatever the action: nothing is learned of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import envkit
from envkit.extend import install_command

try:
    import tensorflow as tf
    from matplotlib.figure import Figure
    from PIL import Image
except ModuleNotFoundError as error:
    sys.exit(
        f"This example needs the package {error.name}, which is not installed. "
        f"{install_command('tf', 'plot', 'video', package=error.name or '')}"
    )

_NUM_ENVS = flags.DEFINE_integer("num_envs", 32, "CartPoles.", lower_bound=1)
_GOAL = flags.DEFINE_float("goal", 475.0, "Which mean return to stop at; 500 is best.")
_MAX_SECONDS = flags.DEFINE_float(
    "max_seconds", 120.0, "When to stop anyway.", lower_bound=1.0
)
_SEED = flags.DEFINE_integer("seed", 0, "What the random numbers depend on.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", "demo_output", "Where pictures go.")

_ROLLOUT = 200  # Steps of the batch between two changes of the policy.
_HIDDEN = 64
_LEARNING_RATE = 0.01
_GAMMA = 0.99
_WINDOW = 100  # Episodes that a mean return is the mean of.

Tensor = Any  # TensorFlow comes without types.


class Network(tf.Module):
    """One hidden layer between observations and what is made of them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self._hidden = tf.Variable(tf.random.normal([inputs, _HIDDEN]) / inputs**0.5)
        self._shift = tf.Variable(tf.zeros([_HIDDEN]))
        # Begins at zero: every action is as likely as the others.
        self._out = tf.Variable(tf.zeros([_HIDDEN, outputs]))
        self._bias = tf.Variable(tf.zeros([outputs]))

    def __call__(self, observation: Tensor) -> Tensor:
        hidden = tf.tanh(tf.tensordot(observation, self._hidden, 1) + self._shift)
        return tf.tensordot(hidden, self._out, 1) + self._bias


class Adam(tf.Module):
    """Changes variables against their gradients, in the way of Kingma and Ba (2015)."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        super().__init__()
        self._step = tf.Variable(0.0)
        self._slots = [
            (variable, *(tf.Variable(tf.zeros_like(variable)) for _ in range(2)))
            for variable in variables
        ]

    def apply(self, gradients: Sequence[Tensor]) -> None:
        step = self._step.assign_add(1.0)
        rate = _LEARNING_RATE * tf.sqrt(1.0 - 0.999**step) / (1.0 - 0.9**step)
        for slot, gradient in zip(self._slots, gradients, strict=True):
            variable, mean, square = slot
            mean.assign_add(0.1 * (gradient - mean))
            square.assign_add(0.001 * (gradient**2 - square))
            variable.assign_sub(rate * mean / (tf.sqrt(square) + 1e-8))


class Rollout(NamedTuple):
    """What the policy experienced; every tensor begins with [steps, environments]."""

    time_step: envkit.TimeStep  # where it acted
    action: Tensor
    next_time_step: envkit.TimeStep  # what came of it


class Learner(tf.Module):
    """A policy, a baseline, and how they change."""

    def __init__(self, env: envkit.TFPyEnvironment) -> None:
        super().__init__()
        observations = env.observation_spec().shape[0]
        actions = int(env.action_spec().maximum) + 1
        self.policy = Network(observations, actions)
        self.baseline = Network(observations, 1)
        self._variables = self.policy.variables + self.baseline.variables
        self._optimizer = Adam(self._variables)
        self._env = env

    # AutoGraph would rewrite Python's branches and loops; no tensor decides one here.
    @tf.function(autograph=False)
    def round(self) -> tuple[Tensor, Tensor]:
        """Acts for a while, learns of it; returns rewards, and which steps are last."""
        rollout = self.collect()
        self.learn(rollout)
        return rollout.next_time_step.reward, rollout.next_time_step.is_last()

    def collect(self) -> Rollout:
        """Lets the policy act in all environments."""

        def advance(before: tuple[Tensor, envkit.TimeStep], _: Tensor) -> Any:
            logits = self.policy(before[1].observation)
            action = tf.random.categorical(logits, 1)[:, 0]
            return action, self._env.step(action)

        start = self._env.current_time_step()
        nobody_acted = tf.zeros([self._env.batch_size], tf.int64)
        action, after = tf.scan(advance, tf.range(_ROLLOUT), (nobody_acted, start))
        before = tf.nest.map_structure(
            lambda first, rest: tf.concat([first[tf.newaxis], rest[:-1]], 0),
            start,
            after,
        )
        return Rollout(before, action, after)

    def learn(self, rollout: Rollout) -> None:
        """Changes policy and baseline once."""
        observation = rollout.time_step.observation
        # The action after a LAST was ignored.
        counts = tf.cast(~rollout.time_step.is_last(), tf.float32)
        earned = self.returns_to_go(rollout.next_time_step)
        with tf.GradientTape() as tape:
            expected = self.baseline(observation)[..., 0]
            surprise = earned - expected
            log_probability = -tf.nn.sparse_softmax_cross_entropy_with_logits(
                rollout.action, self.policy(observation)
            )
            loss = -mean(log_probability * standardized(surprise, counts), counts)
            loss += 0.5 * mean(surprise**2, counts)
        self._optimizer.apply(tape.gradient(loss, self._variables))

    def returns_to_go(self, after: envkit.TimeStep) -> Tensor:
        """Returns the discounted sum of the rewards from each step on."""
        expected = self.baseline(after.observation)[..., 0]

        def add(later: Tensor, step: tuple[envkit.TimeStep, Tensor]) -> Tensor:
            time_step, expected = step
            follows = tf.where(time_step.is_last(), expected, later)
            return time_step.reward + _GAMMA * time_step.discount * follows

        return tf.scan(add, (after, expected), expected[-1], reverse=True)


def mean(values: Tensor, counts: Tensor) -> Tensor:
    """Returns the mean of the values that count."""
    return tf.reduce_sum(values * counts) / tf.reduce_sum(counts)


def standardized(values: Tensor, counts: Tensor) -> Tensor:
    """Returns values of mean 0 and deviation 1, as constants."""
    centred = values - mean(values, counts)
    return tf.stop_gradient(centred / (mean(centred**2, counts) ** 0.5 + 1e-6))


class Scores:
    """The returns of all episodes that ended, and what became of their mean."""

    def __init__(self, num_envs: int) -> None:
        self._running = np.zeros(num_envs)
        self.steps, self.returns, self.ended_at = 0, [], []
        self.means, self.measured_at = [], []

    def add(self, rewards: Tensor, ends: Tensor) -> None:
        """Takes the rewards of a rollout, and which steps ended an episode."""
        for reward, ended in zip(rewards.numpy(), ends.numpy(), strict=True):
            self._running += reward
            self.steps += len(reward)
            self.returns.extend(self._running[ended])
            self.ended_at.extend([self.steps] * int(ended.sum()))
            self._running[ended] = 0.0
        if len(self.returns) >= _WINDOW:
            self.means.append(float(np.mean(self.returns[-_WINDOW:])))
            self.measured_at.append(self.steps)

    def recent(self) -> float:
        """Returns the newest mean return, 0 before there are episodes enough."""
        return self.means[-1] if self.means else 0.0


def train(learner: Learner, scores: Scores) -> None:
    """Plays rounds until the goal is reached or the time is up."""
    columns = (
        TextColumn("mean return {task.completed:3.0f} of {task.total:3.0f}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    console, deadline = Console(), time.perf_counter() + _MAX_SECONDS.value
    # Without a terminal the bar would be a line of clutter.
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=_GOAL.value)
        while scores.recent() < _GOAL.value and time.perf_counter() < deadline:
            scores.add(*learner.round())
            steps = f"{scores.steps:,} steps"
            bar.update(task, completed=scores.recent(), description=steps)


def draw_curve(scores: Scores, path: Path) -> None:
    """Saves a picture of how the returns grew."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(scores.ended_at, scores.returns, ".", color="0.8", label="an episode")
    axes.plot(scores.measured_at, scores.means, label=f"mean of the last {_WINDOW}")
    axes.axhline(_GOAL.value, color="tab:green", linestyle="--", label="goal")
    axes.set(xlabel="steps of all environments", ylabel="return", title="CartPole")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def film(policy: Network, path: Path) -> float:
    """Saves an episode in which the likeliest actions are taken; returns its return."""
    env = envkit.make("CartPole", seed=_SEED.value)
    time_step, earned = env.reset(), 0.0
    pictures = [env.render()]
    while not time_step.is_last():
        time_step = env.step(tf.argmax(policy(time_step.observation)).numpy())
        earned += float(time_step.reward)
        pictures.append(env.render())
    # Two steps of 20 milliseconds are a frame.
    first, *others = [Image.fromarray(picture) for picture in pictures[::2]]
    first.save(path, save_all=True, append_images=others, duration=40, loop=0)
    return earned


def report(scores: Scores, seconds: float) -> None:
    """Prints what the training came to."""
    print(
        f"{scores.steps:,} steps of {_NUM_ENVS.value} environments in {seconds:.1f} s, "
        f"learning included: {scores.steps / seconds:,.0f} steps per second"
    )
    for which, some in (
        ("first", scores.returns[:_WINDOW]),
        ("last", scores.returns[-_WINDOW:]),
    ):
        print(f"mean return of the {which} {len(some)} episodes: {np.mean(some):.1f}")
    if scores.recent() < _GOAL.value:
        print(
            f"The goal of {_GOAL.value:g} was not reached in time: raise "
            "--max_seconds, or try another --seed."
        )


def main(_: Sequence[str]) -> None:
    """Learns, and saves what came of it."""
    folder = Path(_OUTPUT_DIR.value)
    folder.mkdir(parents=True, exist_ok=True)
    tf.random.set_seed(_SEED.value)
    with envkit.TFPyEnvironment(
        envkit.make("CartPole", num_envs=_NUM_ENVS.value)
    ) as env:
        env.seed(_SEED.value)
        learner, scores = Learner(env), Scores(_NUM_ENVS.value)
        began = time.perf_counter()
        train(learner, scores)
        report(scores, time.perf_counter() - began)

    curve, video = folder / "learning_curve.png", folder / "trained.gif"
    draw_curve(scores, curve)
    print(f"learning curve: {curve}")
    earned = film(learner.policy, video)
    print(f"an episode of the trained policy, with a return of {earned:.0f}: {video}")


if __name__ == "__main__":
    app.run(main)
