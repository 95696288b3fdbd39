"""Dimensions before those of a spec: sizes, or a tensor where they are not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from envkit.specs.batching import as_outer_dims

__all__ = ["as_sizes", "joined"]


def as_sizes(outer_dims: Any) -> Any:
    """Returns sizes as a tuple; as a tensor where they are not known yet.

    Example:
        >>> as_sizes(None), as_sizes(tf.constant([2, 3]))
        ((), (2, 3))
    """
    if outer_dims is None:
        return ()
    if isinstance(outer_dims, list | tuple) and any(map(tf.is_tensor, outer_dims)):
        outer_dims = tf.stack([tf.cast(size, tf.int32) for size in outer_dims])
    if isinstance(outer_dims, tf.TensorShape):
        outer_dims = outer_dims.as_list()
    if not tf.is_tensor(outer_dims):
        return tuple(int(size) for size in as_outer_dims(outer_dims))
    sizes = tf.convert_to_tensor(outer_dims)
    if not sizes.dtype.is_integer or sizes.shape.rank not in (1, None):
        raise TypeError(
            "outer_dims is a sequence of sizes, not a tensor of shape "
            f"{sizes.shape}, dtype {sizes.dtype.name}."
        )
    known = tf.get_static_value(sizes)
    if known is not None:
        return as_outer_dims(known.tolist())
    return sizes if sizes.dtype == tf.int64 else tf.cast(sizes, tf.int32)


def joined(sizes: Any, shape: Sequence[int]) -> Any:
    """Returns the shape of a tensor: as a list, if all of it is known."""
    if isinstance(sizes, tuple):
        return [*sizes, *shape]
    return tf.concat([sizes, tf.constant(shape, sizes.dtype, [len(shape)])], axis=0)
