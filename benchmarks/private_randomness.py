"""What private random generators cost a step, for each generator and each way.

    python benchmarks/private_randomness.py

"copied" exchanges the states by copying their memory, and "exchanged" with the
functions of the library: `random.getstate`, `np.random.get_state` and
`torch.get_rng_state`. `PrivateRandomness` copies where Python and NumPy are as usual.
The figures are microseconds; of several runs, the fastest counts.
"""

from __future__ import annotations

import functools
import importlib.util
import timeit
from typing import Any
from unittest import mock

from environments import Trivial

from envkit.wrappers import PrivateRandomness, private_generators

CHOICES: tuple[tuple[str, ...], ...] = (
    ("random",),
    ("numpy",),
    ("random", "numpy"),
    ("torch",),
)
SLOWLY = {
    "_python_memory": lambda: None,
    "_numpy_gauss_offset": lambda: None,
}


def microseconds(env: Any, steps: int) -> float:
    """Returns the time of a step."""
    env.reset()
    step = functools.partial(env.step, 0)
    return min(timeit.repeat(step, number=steps, repeat=9)) / steps * 1e6


def main() -> None:
    """Prints a table."""
    bare = microseconds(Trivial(), 20_000)
    print(f"{'a step without it':28} {bare:8.2f}")
    for names in CHOICES:
        if "torch" in names and importlib.util.find_spec("torch") is None:
            print(f"{'torch':28} is not installed")
            continue
        copied = microseconds(PrivateRandomness(Trivial(), names), 5_000)
        with mock.patch.multiple(private_generators, **SLOWLY):
            exchanged = microseconds(PrivateRandomness(Trivial(), names), 500)
        text = " and ".join(names)
        if names != ("torch",):
            print(f"{text + ', copied':28} {copied - bare:8.2f} more")
        print(f"{text + ', exchanged':28} {exchanged - bare:8.2f} more")


if __name__ == "__main__":
    main()
