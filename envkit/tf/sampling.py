"""Draws numbers between two bounds, all equally likely, from random bits.

Each draw is one operation with its own seed; all seeds derive from one. There are two
kinds of seeds. A stream continues from one draw to the next, and TensorFlow keeps its
position: `None`, or an integer for `tf.random.uniform`. A state is an array or tensor
of three numbers, and the same state always gives the same draw.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from envkit.types import Array

__all__ = ["floats", "integers", "limits", "seeds_of"]

# Odd, and its multiples are spread over all 64-bit numbers.
_STRIDE = 0x9E3779B97F4A7C15
# TensorFlow has this many seeds of streams, and would map others to them.
_STREAMS = 2**31 - 1
_LOW_HALF = np.uint64(2**32 - 1)

# Computed here, because in TensorFlow's threads, which flush tiny numbers to zero,
# NumPy 1.26 would warn about it each time.
_FLOATS = {
    kind.__name__: (float(np.finfo(kind).min), float(np.finfo(kind).max))
    for kind in (np.float16, np.float32, np.float64)
}


def limits(dtype: Any) -> tuple[Any, Any]:
    """Returns the smallest and the largest value of a dtype as Python numbers.

    Example:
        >>> limits(tf.uint8)
        (0, 255)
    """
    if dtype == tf.bool:
        return False, True
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name]
    kind = int if dtype.is_integer else float
    return kind(dtype.min), kind(dtype.max)


def seeds_of(seed: Any) -> Iterator[Any]:
    """Yields seeds without end, one for each operation that draws.

    Example:
        >>> seeds = seeds_of(7)
        >>> next(seeds), next(seeds) == next(seeds)
        (7, False)
    """
    if seed is None:
        return itertools.repeat(None)
    # Skips the next integers, because users count their own seeds up.
    strides = (number * _STRIDE for number in itertools.count())
    if isinstance(seed, numbers.Integral):
        first = int(seed)
        return ((first + stride) % _STREAMS for stride in strides)
    start = _state(seed)
    return (start + np.array([0, 0, stride % 2**64], np.uint64) for stride in strides)


def _state(seed: Any) -> Any:
    """Returns a key and a counter of 128 bits, lower half first, as uint64."""
    try:
        given = tf.convert_to_tensor(seed)
    except (TypeError, ValueError, tf.errors.OpError):
        # The value decides which of them TensorFlow raises.
        given = None
    if given is None or not given.dtype.is_integer:
        raise TypeError(
            f"seed must be an integer or a pair of integers, got {seed!r:.80}."
        )
    if given.shape != tf.TensorShape([2]) and given.shape.rank != 0:
        raise ValueError(
            f"seed must be one integer or a pair of them, got shape {given.shape}."
        )
    halves = tf.bitcast(tf.cast(given, tf.int64), tf.uint64)
    first, second = tf.unstack(halves) if given.shape.rank else (halves, np.uint64(0))
    # Draws count up from the lower half of the counter.
    return tf.stack([first, np.uint64(0), second])


def _is_stream(seed: Any) -> bool:
    return seed is None or isinstance(seed, int)


def integers(dtype: Any, low: Array, high: Array, shape: Any, seed: Any) -> Any:
    """Draws integers between two bounds, inclusive."""
    # There are many more random bits than values, and they are scaled to the values.
    start, width = _unsigned(low), _difference(_unsigned(high), _unsigned(low))
    if width.max(initial=0) < 2**31:
        count = np.asarray(width + np.uint64(1)).astype(np.int64)
        if _is_stream(seed) and count.ndim == 0:
            # The usual case; TensorFlow's own operation would use more bits.
            offset = tf.random.uniform(shape, 0, count, tf.int64, seed)
        else:  # the product is below 2**63
            offset = tf.bitwise.right_shift(_bits32(shape, seed) * count, 32)
        value = offset + start.astype(np.int64)
    else:
        # The sum wraps around, as the difference did.
        value = tf.bitcast(_scaled(_bits64(shape, seed), width) + start, tf.int64)
    return tf.bitcast(value, dtype) if dtype == tf.uint64 else tf.cast(value, dtype)


def floats(dtype: Any, low: Array, high: Array, shape: Any, seed: Any) -> Any:
    """Draws floats between two bounds, inclusive."""
    work = tf.float64 if dtype == tf.float64 else tf.float32
    lowest, highest = limits(dtype)
    # An infinite bound stands for the largest finite number.
    low, high = (
        np.clip(bound.astype(np.float64), lowest, highest).astype(work.as_numpy_dtype)
        for bound in (low, high)
    )
    share = _share(work, shape, seed)
    # Not low + share * (high - low), because the full range has infinite width.
    value = low * (1 - share) + high * share
    # Rounding may exceed the range by half a unit, here but not in a smaller dtype.
    return tf.cast(tf.maximum(tf.minimum(value, high), low), dtype)


def _unsigned(bound: Array) -> Array:
    return bound.astype(np.uint64 if bound.dtype == np.uint64 else np.int64).astype(
        np.uint64
    )


def _difference(high: Array, low: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(high - low)


def _scaled(bits: Any, width: Array) -> Any:
    """Returns the upper half of the 128 bits of `bits * (width + 1)`."""
    with np.errstate(over="ignore"):
        count = np.asarray(width + np.uint64(1))
    count_low, count_high = count & _LOW_HALF, count >> np.uint64(32)
    low, high = bits & _LOW_HALF, tf.bitwise.right_shift(bits, 32)
    # Long multiplication with digits of 32 bits; no sum overflows.
    first = high * count_low + tf.bitwise.right_shift(low * count_low, 32)
    second = low * count_high + (first & _LOW_HALF)
    upper = (
        high * count_high
        + tf.bitwise.right_shift(first, 32)
        + tf.bitwise.right_shift(second, 32)
    )
    # If the count is 0, it has overflowed: there are 2**64 values.
    return tf.where(count == 0, bits, upper)


def _bits32(shape: Any, seed: Any) -> Any:
    """Draws 32 random bits for each element, as int64."""
    if _is_stream(seed):
        return tf.random.uniform(shape, 0, 2**32, tf.int64, seed)
    return tf.cast(_seeded_bits(tf.uint32, shape, seed), tf.int64)


def _bits64(shape: Any, seed: Any) -> Any:
    """Draws 64 random bits for each element, as uint64."""
    if not _is_stream(seed):
        return _seeded_bits(tf.uint64, shape, seed)
    # Streams have only exclusive upper bounds, so one operation draws the two halves.
    both = tf.concat([[2], shape], axis=0) if tf.is_tensor(shape) else [2, *shape]
    halves = tf.cast(_bits32(both, seed), tf.uint64)
    return tf.bitwise.left_shift(halves[0], 32) + halves[1]


def _seeded_bits(dtype: Any, shape: Any, seed: Any) -> Any:
    # `tf.random.stateless_uniform` would scramble the seed in a separate operation, or
    # choose another algorithm in compiled functions.
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.convert_to_tensor(shape, None if tf.is_tensor(shape) else tf.int32),
        key=seed[:1],
        counter=seed[1:],
        alg=tf.random.Algorithm.PHILOX.value,
        dtype=dtype,
    )


def _share(dtype: Any, shape: Any, seed: Any) -> Any:
    """Draws numbers from 0 to 1, excluding 1."""
    if _is_stream(seed):
        return tf.random.uniform(shape, dtype=dtype, seed=seed)
    # Not `stateless_uniform`, because XLA converts bits in another way, so the same
    # seed would give other samples.
    if dtype == tf.float32:
        whole, digits = tf.bitwise.right_shift(_bits32(shape, seed), 8), 24
    else:
        whole, digits = tf.bitwise.right_shift(_bits64(shape, seed), 11), 53
    return tf.cast(tf.cast(whole, tf.int64), dtype) * 2.0**-digits
