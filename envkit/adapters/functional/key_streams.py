"""`Streams`: the random keys of rows, each with a stream of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Streams", "drawn", "keys_of"]


class Streams(NamedTuple):
    """Where the rows' random numbers come from, an element for each row.

    Attributes:
        key: What the next move splits.
        next_key: What takes its place when the row next begins, if it is seeded.
        seeded: Whether it was seeded since it began.
    """

    key: Any
    next_key: Any
    seeded: Any


def keys_of(seeds: Sequence[int | None]) -> Any:
    """Returns a key for each seed: `jax.random.PRNGKey(seed)`, or a fresh one."""
    if None in seeds:
        seeds = np.random.SeedSequence().generate_state(len(seeds)).tolist()
    # JAX takes no more of an integer either.
    words = np.array([seed & 0xFFFFFFFF for seed in seeds], np.uint32)  # type: ignore[operator]  # none is None
    return _keys_of_words()(words)


@functools.cache
def _keys_of_words() -> Callable[..., Any]:
    import jax

    compiled: Callable[..., Any] = jax.jit(jax.vmap(jax.random.PRNGKey))
    return compiled


def drawn(streams: Streams, begins: Any, moves: Any) -> tuple[Streams, Any]:
    """Returns a key for each row, and what the streams are after that."""
    import jax
    import jax.numpy as jnp

    takes_next = (begins & streams.seeded)[:, None]
    key = jnp.where(takes_next, streams.next_key, streams.key)
    halves = jax.vmap(jax.random.split)(key)
    return (
        Streams(
            jnp.where(moves[:, None], halves[:, 0], streams.key),
            streams.next_key,
            streams.seeded & ~begins,
        ),
        halves[:, 1],
    )
