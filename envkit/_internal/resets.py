"""The arguments of a reset: seeds and options, for one environment or per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit._internal.internals import ANYTHING, own_internals, refuse_seeds
from envkit._internal.masks import as_mask, check_others_have_begun
from envkit._internal.options import checked_options, options_copy, options_per_row
from envkit.seeding import checked_seeds, seed_per_row
from envkit.time_step import TimeStep
from envkit.types import Array, Options, ResetSeed, Seed

__all__ = [
    "begin",
    "begin_rows",
    "keep_seed",
    "keep_seeds_of_rows",
    "reset_with",
]


def reset_with(env: Any, mask: Any, seed: ResetSeed, options: Options) -> TimeStep:
    """Passes on a seed and options, and resets."""
    rows = None if mask is None else as_mask(env, mask)
    if rows is not None and rows.all():
        rows = None
    if rows is not None:
        check_others_have_begun(env, rows)
    try:
        if options is not None:
            env._envkit.hand_options(env, _checked_options_of(env, options), rows)
        if seed is not None:
            _hand_seed(env, seed, rows)
        time_step: TimeStep = env.reset(rows)
        return time_step
    finally:
        # Options that were not used must not reach another reset.
        if options is not None:
            env._envkit.hand_options(env, None, rows)


def begin(env: Any) -> Any:
    """Calls the author's `_reset` with the arguments it accepts."""
    taken = env._envkit.methods.reset_takes
    return env._reset(**_given_to(env, taken)) if taken else env._reset()


def begin_rows(env: Any, mask: Array) -> Any:
    """Calls the author's `_reset_rows` with the arguments it accepts."""
    taken = env._envkit.methods.reset_rows_takes
    return env._reset_rows(mask, **(_given_to(env, taken, mask) if taken else {}))


def _given_to(
    env: Any, taken: tuple[str, ...], mask: Array | None = None
) -> dict[str, Any]:
    """Returns the arguments of a reset that an author's method accepts, once."""
    kept = env._envkit
    seed, options = kept.next_seed, kept.next_options
    if seed is None and options is None:
        return {} if ANYTHING in taken else dict.fromkeys(taken)
    kept.next_seed = kept.next_options = None
    if mask is not None and seed is not None:
        masked = mask.tolist()
        pairs = list(zip(seed, masked, strict=True))
        kept.next_seed = [None if begins else own for own, begins in pairs]
        seed = [own if begins else None for own, begins in pairs]
    if isinstance(options, list):
        options = [options_copy(own) for own in options]
    else:
        options = options_copy(options)
    given = {"seed": seed, "options": options}
    return {
        name: value
        for name, value in given.items()
        if name in taken and (value is not None or ANYTHING not in taken)
    }


def _checked_options_of(env: Any, options: Any) -> Any:
    """Returns checked options: for a batch, a list with each row's."""
    if not env.batched:
        return checked_options(options)
    return options_per_row(options, env.batch_size)


def keep_seed(env: Any, seed: Seed) -> None:
    """Stores the seed of the next reset."""
    if env.batched:
        seeds = seed_per_row(seed, env.batch_size)
    else:
        seeds = checked_seeds(seed, 1)
    # In a reset, no seed means that the random numbers continue.
    known = [_fresh_seed() if own is None else own for own in seeds]
    own_internals(env).next_seed = known if env.batched else known[0]


def _fresh_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


def keep_seeds_of_rows(env: Any, seeds: list[int | None]) -> None:
    """Stores the seeds of some rows' next reset."""
    if "seed" not in env._envkit.methods.reset_rows_takes:
        refuse_seeds(env, seeds)
    before = env._envkit.next_seed or [None] * len(seeds)
    own_internals(env).next_seed = [
        old if new is None else new for old, new in zip(before, seeds, strict=True)
    ]


def _hand_seed(env: Any, seed: Any, rows: Array | None) -> None:
    """Seeds an environment, or the rows of a mask, for the next reset."""
    given = seed
    if not env.batched:
        env.seed(seed)
    else:
        given = seed_per_row(seed, env.batch_size)
        if rows is not None:
            given = [
                own if begins else None
                for own, begins in zip(given, rows.tolist(), strict=True)
            ]
        if None not in given:
            env.seed(seed)  # unchanged, because a provenance shows it
        elif any(own is not None for own in given):
            env._envkit.seed_rows(env, given)
    methods = env._envkit.methods
    taken = methods.reset_takes if rows is None else methods.reset_rows_takes
    # The author's seed() need not pass it on.
    if "seed" in taken and env._envkit.next_seed is None:
        own_internals(env).next_seed = given
