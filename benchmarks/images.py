"""How long a batch of pictures takes to come from the workers.

    python benchmarks/images.py

The environments do nothing but show a picture, as large as an Atari console's or as
learners stack them, so copying is nearly all the work. envkit and Gymnasium can both
return views instead of copies, and those are compared with each other too. Possible
here is two bare processes that write the same pictures when they are woken, and a copy
of all of them where the contender copies.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable

import numpy as np
import peers
from apart import rung
from environments import Working, picture
from peers import installed
from side_by_side import Contender, Report, best, opened, options, take_turns

from envkit import ParallelPyEnvironment

WORKERS = 2
# How many times as fast as Gymnasium, by picture: without copies, and with them.
BARS = {(210, 160, 3): (12.0, 5.0), (84, 84, 4): (20.0, 10.0)}
ASYNC = "Gymnasium AsyncVectorEnv"
# Processes that write their pictures where all can read them, and nothing of a pool.
RUNG = "possible here: writers that are rung for each step"
PUFFERS = ["PufferLib, 1 worker", "PufferLib, 2 workers"]


def ours(num_envs: int, shape: tuple[int, ...], zero_copy: bool = False) -> Contender:
    make = functools.partial(Working, None, shape, "uint8")
    env = ParallelPyEnvironment(
        [make] * num_envs, num_workers=min(WORKERS, num_envs), zero_copy=zero_copy
    )
    env.reset()
    actions = np.zeros(num_envs, np.int64)
    return Contender(lambda: env.step(actions), env.close)


def rung_writers(
    num_envs: int, shape: tuple[int, ...], copies: bool = False
) -> Contender:
    """Starts processes that write pictures when they are rung.

    Args:
        num_envs: How many pictures all of them write in a step.
        shape: The shape of a picture.
        copies: Whether the one who rings takes a copy of all pictures.
    """
    memory = mmap.mmap(-1, num_envs * math.prod(shape))
    pictures = np.frombuffer(memory, np.uint8).reshape(num_envs, *shape)

    def writer(rows: np.ndarray) -> Callable[[], None]:
        seen = picture(shape, "uint8")

        def write() -> None:
            for row in rows:
                pictures[row] = seen

        return write

    parts = np.array_split(np.arange(num_envs), WORKERS)
    bare = rung([functools.partial(writer, rows) for rows in parts])

    def step() -> None:
        bare.step()
        if copies:
            pictures.copy()

    return Contender(step, bare.close)


def compare(
    report: Report, shape: tuple[int, ...], num_envs: int, rounds: int, seconds: float
) -> None:
    make = functools.partial(peers.TheirWorking, None, shape, "uint8")
    given = [make] * num_envs, [np.zeros(num_envs, np.int64)]
    contenders = {
        "envkit": functools.partial(ours, num_envs, shape),
        "envkit, zero_copy": functools.partial(ours, num_envs, shape, zero_copy=True),
        ASYNC: functools.partial(peers.gymnasium_async, *given),
        f"{ASYNC}, copy=False": functools.partial(
            peers.gymnasium_async, *given, copy=False
        ),
        "Stable-Baselines3 SubprocVecEnv": installed(peers.stable_baselines3, *given),
        # These never copy.
        PUFFERS[0]: installed(peers.pufferlib, *given, workers=1),
        PUFFERS[1]: installed(peers.pufferlib, *given, workers=2),
        RUNG: functools.partial(rung_writers, num_envs, shape),
        f"{RUNG}, copied": functools.partial(
            rung_writers, num_envs, shape, copies=True
        ),
    }
    with opened(contenders) as players:
        figures = take_turns(players, rounds, seconds)
    report.table(f"{num_envs} pictures of {shape}, {WORKERS} workers", figures)
    without, copied = BARS[shape]
    ours_without = figures["envkit, zero_copy"]
    for claim, theirs, mine, bar in [
        (f"zero_copy, over {ASYNC}", figures[ASYNC], ours_without, without),
        (f"copies, over {ASYNC}", figures[ASYNC], figures["envkit"], copied),
        (f"possible here, over {ASYNC}", figures[ASYNC], figures[RUNG], None),
        (
            f"possible here with copies, over {ASYNC}",
            figures[ASYNC],
            figures[f"{RUNG}, copied"],
            None,
        ),
        (
            "zero_copy, over its copy=False",
            figures[f"{ASYNC}, copy=False"],
            ours_without,
            None,
        ),
        (
            f"zero_copy, over {best(figures, PUFFERS)}",
            figures[best(figures, PUFFERS)],
            ours_without,
            None,
        ),
    ]:
        report.ratio(f"{shape}: {claim}", theirs, mine, at_least=bar)


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.5, num_envs=64).parse_args()
    report = Report("images")
    for shape in BARS:
        compare(report, shape, told.num_envs, told.rounds, told.seconds)
    report.finish(told.json)


if __name__ == "__main__":
    main()
