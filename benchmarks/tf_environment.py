"""What a step costs on its way through TensorFlow.

    python benchmarks/tf_environment.py
    python benchmarks/tf_environment.py --tf-agents=other_venv/bin/python

An environment that does nothing shows the cost of the way itself, CartPole what that
means in practice. In a graph, a step cannot take less than a bare `tf.numpy_function`
that returns the same four arrays every time. Another one steps the environment and
returns copies without checking anything: what `TFPyEnvironment` takes beyond that is
the check of actions and time steps, which a graph needs because it believes the shapes
that it was traced with. TF-Agents needs an older TensorFlow, so it runs in an
interpreter of its own, with gymnasium and rich.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from environments import Working
from side_by_side import Contender, Report, microseconds, opened, options, take_turns

import envkit
from envkit.tf import TFCartPole, TFPyEnvironment

THEIRS = Path(__file__).with_name("tf_agents_steps.py")
# Steps of one call of a graph: so many that the call itself does not count.
STEPS = 200
STEPS_ONLY = "a numpy_function that steps"


def without_tensorflow(make: Callable[[], Any]) -> Contender:
    env = make()
    env.reset()
    actions = np.ones(env.batch_size or (), np.int64)
    return Contender(lambda: env.step(actions), env.close)


def eagerly(make: Callable[[], Any], **options: Any) -> Contender:
    env = TFPyEnvironment(make, **options)
    env.reset()
    action = tf.ones([env.batch_size], tf.int64)
    return Contender(lambda: env.step(action), env.close)


def in_loop(rows: int, step: Callable[[Any], Any], compiled: bool = False) -> Contender:
    """Runs steps in a loop of a graph; each step returns the rewards."""

    @tf.function(jit_compile=compiled)
    def run() -> Any:
        action, earned = tf.ones([rows], tf.int64), tf.zeros([rows])
        for _ in tf.range(STEPS):
            earned += step(action)
        return earned

    run()
    return Contender(measure=lambda seconds: microseconds(run, seconds) / STEPS)


def environment_in_loop(make: Callable[[], Any], **options: Any) -> Contender:
    env = TFPyEnvironment(make, **options)
    env.reset()
    contender = in_loop(env.batch_size, lambda action: env.step(action).reward)
    contender.close = env.close
    return contender


def bare_numpy_function(make: Callable[[], Any]) -> Contender:
    """Returns what the environment once returned, with nothing in between."""
    env = TFPyEnvironment(make)
    leaves = [leaf.numpy() for leaf in env.reset()]
    rows, dtypes = env.batch_size, [leaf.dtype for leaf in env.current_time_step()]
    env.close()

    def step(action: Any) -> Any:
        _, reward, _, _ = tf.numpy_function(lambda _: leaves, [action], dtypes)
        reward.set_shape([rows])
        return reward

    return in_loop(rows, step)


def stepping_numpy_function(make: Callable[[], Any]) -> Contender:
    """Steps the environment and copies what it returns, with nothing else."""
    with TFPyEnvironment(make) as example:
        rows, dtypes = example.batch_size, [leaf.dtype for leaf in example.reset()]
    env = make()
    env.reset()

    def act(action: np.ndarray) -> list[np.ndarray]:
        time_step = env.step(action.copy() if env.batched else action[0])
        return [np.array(leaf, ndmin=1) for leaf in time_step]

    def step(action: Any) -> Any:
        _, reward, _, _ = tf.numpy_function(act, [action], dtypes)
        reward.set_shape([rows])
        return reward

    contender = in_loop(rows, step)
    contender.close = env.close
    return contender


def compiled_cartpole(rows: int) -> Contender:
    env = TFCartPole(batch_size=rows)
    return in_loop(rows, lambda action: env.step(action).reward, compiled=True)


def tf_agents(python: str | None, name: str) -> Callable[[], Contender] | None:
    """Returns what starts their part; `None` without an interpreter for it."""
    return functools.partial(_Theirs, python, name) if python else None


class _Theirs(Contender):
    """A process that steps when it is told to."""

    def __init__(self, python: str, name: str) -> None:
        process = subprocess.Popen(
            [python, str(THEIRS), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._process, self._ask, self._answers = process, process.stdin, process.stdout
        super().__init__(close=self._end, measure=self._measure)
        if self._answers.readline().strip() != "ready":
            self._end()
            raise SystemExit(f"{python} {THEIRS} {name} does not run: try it.")

    def _measure(self, seconds: float) -> float:
        print(seconds, file=self._ask, flush=True)
        return float(self._answers.readline())

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._ask.close()
        self._process.wait()
        self._answers.close()


def measure(
    told: argparse.Namespace, makers: dict[str, Callable[[], Contender] | None]
) -> dict[str, list[float]]:
    with opened(makers) as contenders:
        return take_turns(contenders, told.rounds, told.seconds)


def compare_ways(report: Report, told: argparse.Namespace) -> None:
    """The way to an environment that does nothing, and back."""
    figures = measure(
        told,
        {
            "without TensorFlow": functools.partial(without_tensorflow, Working),
            "eager": functools.partial(eagerly, Working),
            "eager, isolation": functools.partial(eagerly, Working, isolation=True),
            "in a loop": functools.partial(environment_in_loop, Working),
            "a bare numpy_function": functools.partial(bare_numpy_function, Working),
            STEPS_ONLY: functools.partial(stepping_numpy_function, Working),
            "TF-Agents, eager": tf_agents(told.tf_agents, "nothing"),
        },
    )
    report.table("one environment that does nothing", figures)
    theirs = figures["TF-Agents, eager"]
    report.ratio("eager: time over TF-Agents'", figures["eager"], theirs, at_most=0.2)
    report.ratio(
        "in a loop: time over a bare numpy_function's",
        figures["in a loop"],
        figures["a bare numpy_function"],
        at_most=1.15,
    )
    report.ratio(
        f"possible here, time over a bare numpy_function's: {STEPS_ONLY}",
        figures[STEPS_ONLY],
        figures["a bare numpy_function"],
    )


def compare_cartpoles(report: Report, told: argparse.Namespace, rows: int) -> None:
    """The built-in CartPole, in the ways there are."""
    make = functools.partial(envkit.make, "CartPole", batch_size=rows)
    makers: dict[str, Callable[[], Contender] | None] = {
        "without TensorFlow": functools.partial(without_tensorflow, make),
        "eager": functools.partial(eagerly, make),
        "in a loop": functools.partial(environment_in_loop, make),
        "a bare numpy_function": functools.partial(bare_numpy_function, make),
        STEPS_ONLY: functools.partial(stepping_numpy_function, make),
    }
    if rows == 64:
        makers["TF-Agents, 64 Gymnasium CartPoles, eager"] = tf_agents(
            told.tf_agents, "cartpoles"
        )
    figures = measure(told, makers)
    report.table(f"CartPole, a batch of {rows}", figures)
    if rows == 64:
        report.ratio(
            "64 CartPoles: as fast as TF-Agents, eager",
            figures["TF-Agents, 64 Gymnasium CartPoles, eager"],
            figures["eager"],
            at_least=20.0,
        )


def compare_compiled(report: Report, told: argparse.Namespace) -> None:
    """CartPole in NumPy, and in TensorFlow's operations compiled by XLA."""
    rows = told.compiled
    make = functools.partial(envkit.make, "CartPole", batch_size=rows)
    figures = measure(
        told,
        {
            "NumPy": functools.partial(without_tensorflow, make),
            "TFCartPole, compiled": functools.partial(compiled_cartpole, rows),
        },
    )
    report.table(f"{rows} CartPoles in NumPy and compiled", figures)
    report.ratio(
        f"TFCartPole, compiled: as fast as NumPy's, {rows} rows",
        figures["NumPy"],
        figures["TFCartPole, compiled"],
        at_least=3.0,
    )


def main() -> None:
    parser = options(__doc__, rounds=7, seconds=0.3, compiled=4096)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--tf-agents", help="a Python that has TF-Agents")
    told = parser.parse_args()
    report = Report("tf_environment")
    compare_ways(report, told)
    for rows in told.sizes:
        compare_cartpoles(report, told, rows)
    compare_compiled(report, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
