"""The leaves of a nest of specs: visited one by one, and named in errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.tf.autograph import as_written
from envkit.wording import foreign

__all__ = ["known_shape", "mapped", "misfit", "place_text", "spec_text"]


@as_written
def mapped(function: Callable[[Any, str], Any], structure: Any) -> Any:
    """Applies a function to every leaf of a nest and its place."""
    leaves = [function(leaf, path) for path, leaf in nest.flatten_with_paths(structure)]
    return nest.unflatten_as(structure, leaves)


def misfit(message: str, path: str) -> SpecError:
    """Makes an error that knows the place of its leaf."""
    error = SpecError(message)
    error.path = path
    return error


def place_text(path: str) -> str:
    """Writes where a leaf stands; a nest that is one leaf has no places."""
    return f" at {path}" if path else ""


def spec_text(spec: Any, path: str = "") -> str:
    """Writes a spec in one line, and where it stands.

    Example:
        >>> spec_text(tf.TensorSpec([2, None], tf.uint8, name="left"), "['camera']")
        "TensorSpec(shape=(2, None), dtype=uint8) at ['camera']"
    """
    if isinstance(spec, tf.TensorSpec):
        # Those with bounds would write out all of them.
        text = f"{type(spec).__name__}(shape={spec.shape}, dtype={spec.dtype.name})"
    else:
        own = repr(spec) if isinstance(spec, ArraySpec) else f"{spec!r:.80}"
        text = foreign(spec) or own
    return text + place_text(path)


def known_shape(spec: Any, path: str, what: str) -> tuple[int, ...]:
    """Returns a spec's shape, all of whose sizes `what` needs."""
    shape = spec.shape
    if not shape.is_fully_defined():
        raise misfit(
            f"{what} needs all sizes, and {spec_text(spec, path)} leaves some open.",
            path,
        )
    return tuple(shape.as_list())
