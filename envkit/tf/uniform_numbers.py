"""Draws numbers between two bounds, each as likely as the others, from random bits.

What is drawn from is a seed of `sampling_seeds`, and each draw is one operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from envkit.tf.sampling_seeds import is_stream
from envkit.tf.spec_bounds import limits
from envkit.types import Array

__all__ = ["floats", "integers"]

_LOW_HALF = np.uint64(2**32 - 1)


def integers(dtype: Any, low: Array, high: Array, shape: Any, seed: Any) -> Any:
    """Draws integers between two bounds, both included."""
    # There are many more random bits than values, and they are scaled to the values.
    start, width = _unsigned(low), _difference(_unsigned(high), _unsigned(low))
    if width.max(initial=0) < 2**31:
        count = np.asarray(width + np.uint64(1)).astype(np.int64)
        if is_stream(seed) and count.ndim == 0:
            # What people sample most; TensorFlow does the same with more bits.
            offset = tf.random.uniform(shape, 0, count, tf.int64, seed)
        else:  # The product is below 2**63.
            offset = tf.bitwise.right_shift(_bits32(shape, seed) * count, 32)
        value = offset + start.astype(np.int64)
    else:
        # The sum wraps around, as the difference did.
        value = tf.bitcast(_scaled(_bits64(shape, seed), width) + start, tf.int64)
    return tf.bitcast(value, dtype) if dtype == tf.uint64 else tf.cast(value, dtype)


def floats(dtype: Any, low: Array, high: Array, shape: Any, seed: Any) -> Any:
    """Draws floating numbers between two bounds, both included."""
    work = tf.float64 if dtype == tf.float64 else tf.float32
    lowest, highest = limits(dtype)
    # An infinite bound stands for the largest finite number.
    low, high = (
        np.clip(bound.astype(np.float64), lowest, highest).astype(work.as_numpy_dtype)
        for bound in (low, high)
    )
    share = _share(work, shape, seed)
    # Not low + share * (high - low): the width of a whole range is infinite.
    value = low * (1 - share) + high * share
    # Rounding may leave the range by half a unit, here but not in a smaller dtype.
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
    # As on paper, with digits of 32 bits; no sum overflows.
    first = high * count_low + tf.bitwise.right_shift(low * count_low, 32)
    second = low * count_high + (first & _LOW_HALF)
    upper = (
        high * count_high
        + tf.bitwise.right_shift(first, 32)
        + tf.bitwise.right_shift(second, 32)
    )
    # There are 2**64 values where the count of them is 0.
    return tf.where(count == 0, bits, upper)


def _bits32(shape: Any, seed: Any) -> Any:
    """Draws 32 random bits for each element, as int64."""
    if is_stream(seed):
        return tf.random.uniform(shape, 0, 2**32, tf.int64, seed)
    return tf.cast(_seeded_bits(tf.uint32, shape, seed), tf.int64)


def _bits64(shape: Any, seed: Any) -> Any:
    """Draws 64 random bits for each element, as uint64."""
    if not is_stream(seed):
        return _seeded_bits(tf.uint64, shape, seed)
    # Of a stream TensorFlow knows exclusive upper bounds only, so one operation draws
    # the two halves.
    both = tf.concat([[2], shape], axis=0) if tf.is_tensor(shape) else [2, *shape]
    halves = tf.cast(_bits32(both, seed), tf.uint64)
    return tf.bitwise.left_shift(halves[0], 32) + halves[1]


def _seeded_bits(dtype: Any, shape: Any, seed: Any) -> Any:
    # `tf.random.stateless_uniform` would scramble the seed in an operation of its own,
    # or else choose another algorithm for a function that is compiled.
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.convert_to_tensor(shape, None if tf.is_tensor(shape) else tf.int32),
        key=seed[:1],
        counter=seed[1:],
        alg=tf.random.Algorithm.PHILOX.value,
        dtype=dtype,
    )


def _share(dtype: Any, shape: Any, seed: Any) -> Any:
    """Draws numbers from 0 to 1, without the 1."""
    if is_stream(seed):
        return tf.random.uniform(shape, dtype=dtype, seed=seed)
    # Whoever compiles a function makes these of bits in a way of their own, and the
    # same seed would give other samples.
    if dtype == tf.float32:
        whole, digits = tf.bitwise.right_shift(_bits32(shape, seed), 8), 24
    else:
        whole, digits = tf.bitwise.right_shift(_bits64(shape, seed), 11), 53
    return tf.cast(tf.cast(whole, tf.int64), dtype) * 2.0**-digits
