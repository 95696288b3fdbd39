"""EnvPool and ale-py's vector environment through envkit, beside themselves.

    python benchmarks/native_vectors.py

Both step their rows in threads of their own, in C++. Each stands here twice, with the
same actions: stepped by the loop that its own documentation shows, and through envkit.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Contender, Report, opened, options, take_turns

from envkit.adapters import EnvPoolWrapper, suite_ale

Maker = Callable[[], Contender]
# The actions that all of these games have.
CHOICES = 2


def batches(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, CHOICES, rows) for _ in range(50)]


def over(step: Callable[[Any], object], rows: int, env: Any) -> Contender:
    """Steps with one batch of actions after the other, over and over."""
    given = itertools.cycle(batches(rows))
    return Contender(lambda: step(next(given)), env.close)


def their_pool(name: str, rows: int) -> Contender:
    import envpool

    env = envpool.make_gymnasium(name, num_envs=rows, seed=0)
    env.reset()
    return over(env.step, rows, env)


def our_pool(name: str, rows: int) -> Contender:
    env = EnvPoolWrapper(name, num_envs=rows, seed=0)
    env.reset()
    return over(env.step, rows, env)


def their_games(rows: int) -> Contender:
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv("pong", rows, repeat_action_probability=0.25)
    env.reset(seed=0)
    return over(env.step, rows, env)


def our_games(rows: int) -> Contender:
    env = suite_ale.load_vector("Pong", rows)
    env.reset()
    return over(env.step, rows, env)


def pairs(rows: int) -> dict[str, tuple[str, Maker, Maker]]:
    """Returns by what is stepped: its package, itself, and through envkit."""
    found: dict[str, tuple[str, Maker, Maker]] = {}
    for name in ("CartPole-v1", "Pong-v5"):
        found[f"EnvPool's {name}"] = (
            "envpool",
            functools.partial(their_pool, name, rows),
            functools.partial(our_pool, name, rows),
        )
    found["ale-py's AtariVectorEnv"] = (
        "ale_py",
        functools.partial(their_games, rows),
        functools.partial(our_games, rows),
    )
    return found


def main() -> None:
    parser = options(__doc__, rounds=9, seconds=0.3, rows=64)
    told = parser.parse_args()
    # Gymnasium's, of bounds that EnvPool has in float64.
    warnings.filterwarnings("ignore", message=".*precision lowered by casting")
    report = Report("native_vectors")
    for title, (package, theirs, ours) in pairs(told.rows).items():
        there = importlib.util.find_spec(package) is not None
        makers = {
            "itself": theirs if there else None,
            "envkit": ours if there else None,
        }
        with opened(makers) as contenders:
            figures = take_turns(contenders, told.rounds, told.seconds)
        report.table(f"{title}, {told.rows} rows", figures)
        report.ratio(
            f"{title}: through envkit, as fast as itself",
            figures["itself"],
            figures["envkit"],
            at_least=0.9,
        )
    report.finish(told.json)


if __name__ == "__main__":
    main()
