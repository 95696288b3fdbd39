"""What each adapter adds to a step of the library that it adapts.

    python benchmarks/adapters.py

The bare environment steps beside the adapted one, with the same actions and seeds, and
both reset what has ended. Single environments are compared by difference, in
microseconds, because an adapter's cost does not depend on what the environment does;
vector environments are compared by ratio. In the last table envkit's processes step
Gymnasium's CartPole beside Gymnasium's own vectors, with default arguments except for
the number of workers; possible here is two loops over bare Gymnasium, woken for each
step.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import gymnasium
import numpy as np
import peers
from apart import rung_loops
from side_by_side import Contender, Figures, Report, opened, options, take_turns

import envkit
from envkit import ParallelPyEnvironment, adapters
from envkit.adapters import vectorize
from envkit.envs import CartPole, Catch

TARGET = "CartPole-v1"
WORKERS = 2
# With nothing of an adapter or a pool, and no batches put together.
RUNG = "possible here: loops that are rung for each step"
Makers = dict[str, Callable[[], Contender] | None]


def batches(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 2, rows) for _ in range(50)]


def over(step: Callable[[Any], object], actions: Sequence[Any], env: Any) -> Contender:
    """Steps with one action after the other, over and over."""
    given = itertools.cycle(actions)
    return Contender(lambda: step(next(given)), env.close)


def singles() -> list[Any]:
    return [int(batch[0]) for batch in batches(1)]


def theirs(make: Callable[[], Any]) -> Contender:
    """Steps a Gymnasium environment as a loop for training does."""
    env = make()
    env.reset(seed=0)

    def step(action: Any) -> None:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()

    return over(step, singles(), env)


def ours(make: Callable[[], Any], actions: Sequence[Any]) -> Contender:
    """Steps an envkit environment or a dm_env one, which begin anew by themselves."""
    env = make()
    env.reset()
    return over(env.step, actions, env)


def with_infos(make: Callable[[], Any]) -> Contender:
    """Steps an envkit environment, and asks what Gymnasium's step returns anyway."""
    env = make()
    env.reset()

    def step(action: Any) -> None:
        env.step(action)
        env.get_info()

    return over(step, singles(), env)


def vector(make: Callable[[], Any], rows: int) -> Contender:
    """Steps a vector environment of Gymnasium."""
    env = make()
    env.reset(seed=0)
    return over(env.step, batches(rows), env)


def batch(make: Callable[[], Any], rows: int) -> Contender:
    """Steps a batch of envkit's."""
    env = make()
    env.seed(0)
    env.reset()
    return over(env.step, batches(rows), env)


class Bare(dm_env.Environment):
    """A dm_env environment that does nearly nothing."""

    def __init__(self) -> None:
        self._spec = dm_env.specs.Array((4,), np.float32)
        self._moment = 0

    def observation_spec(self) -> Any:
        return self._spec

    def action_spec(self) -> Any:
        return dm_env.specs.DiscreteArray(2)

    def reset(self) -> dm_env.TimeStep:
        self._moment = 0
        return dm_env.restart(np.zeros(4, np.float32))

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._moment == 200:
            return self.reset()
        self._moment += 1
        end = dm_env.termination if self._moment == 200 else dm_env.transition
        return end(1.0, np.zeros(4, np.float32))


class OwnCartPole(adapters.Adapter):
    """Gymnasium's CartPole, as an author supports a library that envkit does not."""

    num_actions = 2

    def start(self) -> Any:
        return gymnasium.make(TARGET)

    def reset(self, seed: int | None = None) -> Any:
        return self.env_instance.reset(seed=seed)

    def step(self, action: int) -> Any:
        return self.env_instance.step(action)


def single_pairs() -> dict[str, tuple[Callable[[], Contender], ...]]:
    """Returns by adapter: the bare environment, and the adapted one."""
    make = functools.partial(gymnasium.make, TARGET)
    cartpole = functools.partial(CartPole, seed=0)
    actions = singles()
    return {
        "GymnasiumWrapper": (
            lambda: theirs(make),
            lambda: ours(lambda: adapters.GymnasiumWrapper(make()), actions),
        ),
        "DmEnvWrapper": (
            lambda: ours(Bare, actions),
            lambda: ours(lambda: adapters.DmEnvWrapper(Bare()), actions),
        ),
        "PyToGymnasium": (
            lambda: with_infos(cartpole),
            lambda: theirs(lambda: adapters.PyToGymnasium(cartpole())),
        ),
        "PyToDMWrapper": (
            lambda: ours(cartpole, actions),
            lambda: ours(lambda: adapters.PyToDMWrapper(cartpole()), actions),
        ),
    }


def vector_pairs(rows: int) -> dict[str, tuple[Callable[[], Contender], ...]]:
    """Returns by adapter and what it adapts: bare, and adapted."""
    pairs = {}
    kinds = {
        "SyncVectorEnv": "sync",
        "AsyncVectorEnv": "async",
        "CartPole of its own": "vector_entry_point",
    }
    for title, kind in kinds.items():
        make = functools.partial(
            gymnasium.make_vec, TARGET, num_envs=rows, vectorization_mode=kind
        )
        pairs[f"GymnasiumVectorWrapper: {title}"] = (
            functools.partial(vector, make, rows),
            functools.partial(
                batch, adapted(adapters.GymnasiumVectorWrapper, make), rows
            ),
        )
    catch = functools.partial(Catch, batch_size=rows)
    pool = functools.partial(
        ParallelPyEnvironment, [f"gymnasium:{TARGET}"] * rows, num_workers=WORKERS
    )
    for title, make in {"batch of Catch": catch, "CartPole's pool": pool}.items():
        pairs[f"PyToGymnasiumVector: {title}"] = (
            functools.partial(batch, make, rows),
            functools.partial(
                vector, adapted(adapters.PyToGymnasiumVector, make), rows
            ),
        )
    return pairs


def adapted(adapter: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: adapter(make())


# Of which adapters something is asked: of those of single environments how many
# microseconds they add, of those of vector environments by which factor.
AT_MOST = {"GymnasiumWrapper": 3.0, "PyToGymnasium": 3.0}
ASKED = "GymnasiumVectorWrapper"


def taken_turns(makers: Makers, told: Any) -> Figures:
    with opened(makers) as contenders:
        return take_turns(contenders, told.rounds, told.seconds)


def compare_singles(report: Report, told: Any) -> None:
    for name, (bare, adapted) in single_pairs().items():
        figures = taken_turns({"bare": bare, name: adapted}, told)
        report.table(f"{name}, one environment", figures)
        added = np.subtract(figures[name], figures["bare"])
        report.ratio(
            f"{name}: microseconds added",
            list(added),
            [1.0] * len(added),
            at_most=AT_MOST.get(name),
        )


def compare_vectors(report: Report, told: Any) -> None:
    for name, (bare, adapted) in vector_pairs(told.rows).items():
        figures = taken_turns({"bare": bare, "adapted": adapted}, told)
        report.table(f"{name}, {told.rows} rows", figures)
        report.ratio(
            f"{name}: time over bare",
            figures["adapted"],
            figures["bare"],
            at_most=1.15 if name.startswith(ASKED) else None,
        )


def compare_pools(report: Report, told: Any) -> None:
    """Compares a pool of an author's `Adapter` with one of `GymnasiumWrapper`."""
    rows = told.rows

    def pool(make: Any) -> Callable[[], Contender]:
        make_pool = functools.partial(
            ParallelPyEnvironment, [make] * rows, num_workers=WORKERS
        )
        return functools.partial(batch, make_pool, rows)

    figures = taken_turns(
        {
            "GymnasiumWrapper": pool(
                lambda: adapters.GymnasiumWrapper(gymnasium.make(TARGET))
            ),
            "Adapter": pool(OwnCartPole),
        },
        told,
    )
    report.table(f"A pool of {rows} of Gymnasium's CartPole", figures)
    added = np.subtract(figures["Adapter"], figures["GymnasiumWrapper"]) / rows
    report.ratio(
        "A pool of an Adapter: microseconds added to a row",
        list(added),
        [1.0] * len(added),
        at_most=1.0,
    )


def compare_engines(report: Report, told: Any) -> None:
    rows = told.rows
    makers = [functools.partial(gymnasium.make, TARGET)] * rows

    def vectorized(**arguments: Any) -> Callable[[], Contender]:
        make = functools.partial(vectorize, makers, num_workers=WORKERS, **arguments)
        return functools.partial(vector, make, rows)

    def over_a_pool(**arguments: Any) -> Callable[[], Contender]:
        def make() -> Any:
            pool = envkit.make(
                f"gymnasium:{TARGET}", num_envs=rows, num_workers=WORKERS
            )
            return adapters.PyToGymnasiumVector(pool, **arguments)

        return functools.partial(vector, make, rows)

    figures = taken_turns(
        {
            "Gymnasium AsyncVectorEnv": functools.partial(
                peers.gymnasium_async, makers, batches(rows)
            ),
            "Gymnasium SyncVectorEnv": functools.partial(
                peers.gymnasium_sync, makers, batches(rows)
            ),
            "PyToGymnasiumVector over a pool": over_a_pool(),
            "PyToGymnasiumVector, SameStep": over_a_pool(autoreset_mode="SameStep"),
            "PyToGymnasiumVector, infos='final'": over_a_pool(infos="final"),
            "PyToGymnasiumVector, infos='none'": over_a_pool(infos="none"),
            "vectorize": vectorized(),
            "vectorize, SameStep": vectorized(autoreset_mode="SameStep"),
            RUNG: functools.partial(
                rung_loops, makers, batches(rows), WORKERS, peers.loop
            ),
        },
        told,
    )
    report.table(f"{rows} of Gymnasium's CartPole, {WORKERS} workers", figures)
    for name in list(figures)[2:]:
        report.ratio(
            f"{name}: as fast as AsyncVectorEnv",
            figures["Gymnasium AsyncVectorEnv"],
            figures[name],
            at_least=None if name is RUNG else 10.0,
        )


def main() -> None:
    parser = options(__doc__, rounds=9, seconds=0.3, rows=64)
    told = parser.parse_args()
    report = Report("adapters")
    compare_singles(report, told)
    compare_vectors(report, told)
    compare_pools(report, told)
    compare_engines(report, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
