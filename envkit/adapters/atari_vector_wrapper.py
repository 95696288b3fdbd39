"""`AtariVectorWrapper`: ale-py's own vector environment as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.forwarding import forwarded
from envkit.adapters.gymnasium_vector_wrapper import GymnasiumVectorWrapper
from envkit.seeding import seed_per_row
from envkit.types import Array, Seed

__all__ = ["AtariVectorWrapper"]

# Seeds are of int32 there, and what is below 0 is no seed.
_SEEDS = 2**31
_NO_SEED = -1


class AtariVectorWrapper(GymnasiumVectorWrapper):
    """Makes a batch of an `AtariVectorEnv`, which has threads of its own.

    It is a `GymnasiumVectorWrapper` that knows two things more of this vector
    environment: each game has a generator of its own, so each row has its own seed; and
    some rows can be reset alone, so the episodes may be left to somebody else.

    | `autoreset_mode` there | `auto_reset` | `autoreset`                        |
    |------------------------|--------------|------------------------------------|
    | NEXT_STEP              | `True`       | NEXT_STEP                          |
    | SAME_STEP              | `True`       | SAME_STEP                          |
    | NEXT_STEP              | `False`      | DISABLED, and `reset` takes a mask |
    """

    def __init__(
        self,
        vector_env: Any,
        discount: float = 1.0,
        auto_reset: bool = True,
        simplify_box_bounds: bool = True,
        *,
        reset_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Wraps a vector environment; closing the wrapper closes it.

        Args:
            vector_env: An `AtariVectorEnv`, with a `batch_size` of all its games.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            auto_reset: Whether episodes begin by themselves.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: What resets pass on as their `options`.
        """
        _check_moves_together(vector_env)
        self._seeded = _SeededRows(vector_env)
        super().__init__(
            self._seeded,
            discount,
            auto_reset,
            simplify_box_bounds,
            reset_options=reset_options,
            # With its NEXT_STEP it resets a row only if that is stepped after the end.
            autoreset_mode=None if auto_reset else "Disabled",
        )

    @property
    def vector_env(self) -> Any:
        """The vector environment of ale-py."""
        return self._seeded.env

    def seed(self, seed: Seed) -> None:
        """Has the next reset seed each row: with its own stream, or with its own seed.

        Under DISABLED a row that is reset alone takes its seed then.
        """
        rows = seed_per_row(seed, self.batch_size)
        drawn = np.random.SeedSequence().generate_state(self.batch_size).tolist()
        self._seeded.seeds = np.array(
            [
                (new if own is None else own) % _SEEDS
                for own, new in zip(rows, drawn, strict=True)
            ],
            np.int64,
        )


class _SeededRows:
    """A vector environment whose resets give each row the seed that waits for it.

    Attributes:
        env: The vector environment.
        seeds: The seeds of its games; `_NO_SEED` where none waits.
    """

    def __init__(self, vector_env: Any) -> None:
        self.env = vector_env
        self.seeds: Array = np.full(vector_env.num_envs, _NO_SEED, np.int64)

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self.env, name)

    def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Any:
        mask = (options or {}).get("reset_mask", slice(None))
        result = self.env.reset(seed=self.seeds[mask], options=options)
        self.seeds[mask] = _NO_SEED
        return result


def _check_moves_together(vector_env: Any) -> None:
    rows = getattr(vector_env, "num_envs", None)
    size = getattr(vector_env, "batch_size", rows)
    if size != rows:
        raise ValueError(
            f"AtariVectorWrapper was given an AtariVectorEnv with batch_size={size} "
            f"and num_envs={rows}, which is its asynchronous mode. Make it without a "
            "batch_size; the games of EnvPool can take their own time in AsyncEnvPool."
        )
