"""Seeds of samples: one for each operation that draws, all made of one.

There are two kinds. A stream goes on from one draw to the next, and TensorFlow keeps
how far it is: `None`, or an integer for `tf.random.uniform`. A state is an array or
tensor of three numbers, and the same one always gives the same draw.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["is_stream", "seeds_of"]

# Odd, and its multiples are spread over all 64-bit numbers.
_STRIDE = 0x9E3779B97F4A7C15
# As many seeds of streams are there in TensorFlow, which would fold others to them.
_STREAMS = 2**31 - 1


def seeds_of(seed: Any) -> Iterator[Any]:
    """Yields a seed for each operation that draws, as many as are asked for.

    Example:
        >>> seeds = seeds_of(7)
        >>> next(seeds), is_stream(next(seeds)), is_stream(next(seeds_of((7, 0))))
        (7, True, False)
    """
    if seed is None:
        return itertools.repeat(None)
    # The next numbers are not taken, since people count their own seeds up.
    strides = (number * _STRIDE for number in itertools.count())
    if isinstance(seed, numbers.Integral):
        first = int(seed)
        return ((first + stride) % _STREAMS for stride in strides)
    start = _state(seed)
    return (start + np.array([0, 0, stride % 2**64], np.uint64) for stride in strides)


def is_stream(seed: Any) -> bool:
    """Says whether a seed is of the kind that goes on from draw to draw."""
    return seed is None or isinstance(seed, int)


def _state(seed: Any) -> Any:
    """Returns a key and a counter of 128 bits, lower half first, as uint64."""
    try:
        given = tf.convert_to_tensor(seed)
    except (TypeError, ValueError, tf.errors.OpError):
        # Which of them TensorFlow raises depends on the value.
        given = None
    if given is None or not given.dtype.is_integer:
        raise TypeError(f"seed is an integer or a pair of integers, not {seed!r:.80}.")
    if given.shape != tf.TensorShape([2]) and given.shape.rank != 0:
        raise ValueError(
            f"seed has shape {given.shape}; it is one integer or a pair of them."
        )
    halves = tf.bitcast(tf.cast(given, tf.int64), tf.uint64)
    first, second = tf.unstack(halves) if given.shape.rank else (halves, np.uint64(0))
    # What is drawn counts up from the lower half of the counter.
    return tf.stack([first, np.uint64(0), second])
