"""Specs for people, in a few words or as a tree, and for programs, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.nest_walk import is_nested, step_into

__all__ = [
    "bare_path",
    "bounds_of",
    "children",
    "leaf_text",
    "plain_leaves",
    "short_text",
]

# How many leaves a short text has.
_MOST = 4


def short_text(spec: Any) -> str:
    """Writes a nest of specs in a few words.

    Example:
        >>> from envkit import make
        >>> env = make("CartPole")
        >>> short_text(env.observation_spec()), short_text(env.action_spec())
        ('float32 (4,)', 'int64 0…1')
        >>> short_text({"camera": env.observation_spec(), "lap": env.action_spec()})
        'camera: float32 (4,), lap: int64 0…1'
    """
    if not is_nested(spec):
        return leaf_text(spec, brief=True)
    leaves = nest.flatten_with_paths(spec)
    if not leaves:
        return "nothing"
    texts = [
        f"{bare_path(path)}: {leaf_text(leaf, brief=True)}"
        for path, leaf in leaves[:_MOST]
    ]
    more = len(leaves) - _MOST
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def leaf_text(spec: Any, *, brief: bool = False) -> str:
    """Writes one spec: its dtype, shape and bounds, where it has them.

    Args:
        spec: The spec.
        brief: Whether bounds that differ between elements are left out.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec
        >>> leaf_text(ArraySpec((), np.float32)), leaf_text(ArraySpec((), "<U3"))
        ('float32', 'text of 3 characters')
        >>> leaf_text(BoundedArraySpec((2,), np.float32, -1, [0, 1]))
        'float32 (2,) -1…[0, 1]'
        >>> leaf_text(BoundedArraySpec((8, 8, 3), np.uint8))
        'uint8 (8, 8, 3)'
    """
    shape = tuple(spec.shape)
    low, high = bounds_of(spec)
    differ = isinstance(low, list) or isinstance(high, list)
    is_bounded = low is not None or high is not None
    bounds = ""
    if is_bounded and not (brief and differ):
        bounds = f"{_edge(low, '-∞')}…{_edge(high, '∞')}"
    kind = getattr(spec, "kind", None)
    about = "" if kind is None else f"{kind!r:.60}"
    parts = [_dtype_text(spec.dtype), str(shape) if shape else "", bounds, about]
    return " ".join(filter(None, parts))


def bounds_of(spec: Any) -> tuple[Any, Any]:
    """Returns the bounds as plain numbers or nested lists; `None` for no bound.

    The limits of a dtype are no bounds, except where whole numbers are counted.

    Example:
        >>> from envkit import BoundedArraySpec
        >>> bounds_of(BoundedArraySpec((2,), np.float32, 0, None))
        (0.0, None)
    """
    low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if low is None or high is None or np.asarray(low).dtype.kind not in "iufb":
        return None, None
    low, high = np.asarray(low), np.asarray(high)
    limits: Any
    if low.dtype.kind == "f":
        limits = np.finfo(low.dtype)
    elif low.dtype.kind == "b":
        return None, None
    else:
        limits = np.iinfo(low.dtype)
        if np.all(low == limits.min) and np.all(high == limits.max):
            return None, None
    return _plain(low, limits.min), _plain(high, limits.max)


def plain_leaves(spec: Any) -> list[dict[str, Any]]:
    """Returns the leaves of a nest of specs as data that JSON can hold.

    Example:
        >>> from envkit import make
        >>> plain_leaves(make("CartPole").action_spec())[0]["maximum"]
        1
    """
    return [_plain_leaf(path, leaf) for path, leaf in nest.flatten_with_paths(spec)]


def children(spec: Any) -> list[tuple[str, Any]]:
    """Returns the parts of a nest by their names."""
    return [(bare_path(path), child) for path, child in step_into(spec, "")]


def bare_path(path: str) -> str:
    """Writes a path as people do.

    Example:
        >>> bare_path("['camera'][0]")
        'camera.0'
    """
    text = path.replace("']['", ".").replace("['", ".").replace("']", "")
    return text.replace("[", ".").replace("]", "").strip(".")


def _plain_leaf(path: str, spec: Any) -> dict[str, Any]:
    low, high = bounds_of(spec)
    name = getattr(spec, "name", None)
    return {
        "path": path,
        "spec": type(spec).__name__,
        "shape": [None if size is None else int(size) for size in spec.shape],
        "dtype": _dtype_name(spec.dtype),
        "minimum": low,
        "maximum": high,
        "name": name if isinstance(name, str) else None,
    }


def _plain(bound: Any, limit: Any) -> Any:
    if bound.size and (bound == bound.flat[0]).all():
        bound = bound.flat[0]
    return _numbers(bound, limit)


def _numbers(bound: Any, limit: Any) -> Any:
    if bound.ndim:
        return [_numbers(part, limit) for part in bound]
    if bound.dtype.kind != "f":
        return int(bound)
    # By way of text: a float32 of 0.7 is 0.699999988079071 to Python.
    return None if bound == limit or not np.isfinite(bound) else float(str(bound[()]))


def _edge(bound: Any, infinity: str) -> str:
    if not isinstance(bound, list):
        return _short_number(bound, infinity)
    flat = np.ravel(np.array(bound, object)).tolist()
    if len(flat) <= 4:
        return f"[{', '.join(_short_number(part, infinity) for part in flat)}]"
    known = [part for part in flat if part is not None]
    return f"[{min(known):g} to {max(known):g}]" if known else infinity


def _short_number(bound: Any, infinity: str) -> str:
    if bound is None:
        return infinity
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _dtype_text(dtype: Any) -> str:
    if isinstance(dtype, np.dtype) and dtype.kind in "US":
        size = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        what = "characters" if dtype.kind == "U" else "bytes"
        return f"text of {size} {what}" if size else "text"
    return _dtype_name(dtype)


def _dtype_name(dtype: Any) -> str:
    # TensorFlow's have a name of their own.
    return str(getattr(dtype, "name", None) or dtype)
