"""Trees of JAX as nests of envkit, and as plain arrays for a state that pickles."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["from_arrays", "host_copy", "on_device", "plain_nest", "to_arrays"]


def plain_nest(tree: Any) -> Any:
    """Makes dictionaries of dataclasses, which envkit's nests do not know.

    Example:
        >>> @dataclasses.dataclass
        ... class Seen:
        ...     near: int
        >>> plain_nest((Seen(1), [2]))
        ({'near': 1}, [2])
    """
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        return {name: plain_nest(getattr(tree, name)) for name in names}
    if isinstance(tree, Mapping):
        return {key: plain_nest(child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        children = [plain_nest(child) for child in tree]
        if hasattr(tree, "_make"):
            return tree._make(children)
        return tuple(children) if isinstance(tree, tuple) else children
    return tree


def host_copy(tree: Any) -> Any:
    """Brings a tree here from the device at once, into arrays that may be changed."""
    import jax

    # What JAX gives is read-only, and on a CPU it is the device's own memory.
    return jax.tree.map(np.array, jax.device_get(tree))


def on_device(tree: Any) -> Any:
    """Brings a tree to JAX's default device."""
    import jax

    return jax.device_put(tree)


def to_arrays(tree: Any) -> list[Any]:
    """Returns the leaves of a tree as NumPy's arrays.

    Random keys that JAX has a dtype for come with the name of their kind.
    """
    import jax

    leaves = jax.tree.leaves(tree)
    data = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]
    arrays = [np.array(array) for array in jax.device_get(data)]
    return [
        (str(jax.random.key_impl(leaf)), array) if _is_key(leaf) else array
        for leaf, array in zip(leaves, arrays, strict=True)
    ]


def from_arrays(arrays: list[Any], like: Any) -> Any:
    """Makes a tree on the device of what `to_arrays` returned.

    Args:
        arrays: The leaves.
        like: A tree of the same structure.
    """
    import jax

    placed = [
        jax.random.wrap_key_data(leaf[1], impl=leaf[0])
        if isinstance(leaf, tuple)
        else jax.device_put(leaf)
        for leaf in arrays
    ]
    return jax.tree.unflatten(jax.tree.structure(like), placed)


def _is_key(leaf: Any) -> bool:
    import jax

    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))
