"""The picture of an environment: rendered, or from its observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import TimeStep
from envkit.types import Array, NestedSpec

__all__ = ["is_picture", "observed_picture", "picture_of"]


def picture_of(env: Any) -> Callable[[TimeStep], Array]:
    """Returns a function that turns an environment's time steps into pictures.

    It renders; if the environment cannot, it uses a picture in the observation.

    Raises:
        ValueError: The environment has neither.
    """
    try:
        found = env.render("rgb_array")
        if is_picture(found):
            return lambda _: _rendered(env)
        why = f"render('rgb_array') returns {describe(found)}"
    except Exception as error:  # there is another way
        text = str(error).strip().partition("\n")[0]  # A worker adds its traceback.
        why = f"render('rgb_array') raises {type(error).__name__}: {text}"
    look = observed_picture(env.observation_spec())
    if look is None:
        raise ValueError(
            f"There is no picture to show: {why.rstrip('.')}, and there is none in the "
            "observation. Write a render() that returns an array of "
            "uint8 with the axes height, width and colour; environments of Gymnasium "
            "may need render_mode='rgb_array'."
        )
    return lambda time_step: look(time_step.observation)


def _rendered(env: Any) -> Array:
    found = env.render("rgb_array")
    if not is_picture(found):
        raise ValueError(
            "render('rgb_array') must return an array of uint8 with the axes height, "
            f"width and colour, as it has done before, got {describe(found)}."
        )
    return np.asarray(found)


def is_picture(picture: Any) -> bool:
    """True for a picture, with the colours last."""
    return (
        isinstance(picture, np.ndarray)
        and picture.dtype == np.uint8
        and picture.ndim == 3
        and picture.shape[-1] == 3
        and picture.size > 0
    )


def observed_picture(spec: NestedSpec) -> Callable[[Any], Array] | None:
    """Returns a function from observations to pictures, if observations contain one.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch(seed=1)
        >>> observed_picture(env.observation_spec())(env.reset().observation).shape
        (10, 5, 3)
    """
    for number, (_, leaf) in enumerate(nest.flatten_with_paths(spec)):
        change = _as_picture(leaf)
        if change is not None:
            return lambda observation, number=number, change=change: change(  # type: ignore[misc]  # likewise
                np.asarray(nest.flatten(observation)[number])
            )
    return None


def _as_picture(spec: Any) -> Callable[[Array], Array] | None:
    """Returns a function that makes a picture of a leaf; `None` if it is none."""
    if not isinstance(spec, BoundedArraySpec):
        is_bytes = isinstance(spec, ArraySpec) and spec.dtype == np.uint8
        if not is_bytes:
            return None
        spec = BoundedArraySpec(spec.shape, np.uint8)
    if spec.dtype.kind not in "iuf" or len(spec.shape) not in (2, 3):
        return None
    low, high = float(spec.minimum.min()), float(spec.maximum.max())
    # Without limits, it is a matrix of something else.
    if not 0.0 < high - low <= 65535.0:
        return None
    place = _place_of_colours(spec.shape)
    if place is None:
        return None

    def change(leaf: Array) -> Array:
        if leaf.ndim == 3:
            leaf = np.moveaxis(leaf, place, -1)
            # If it has no colours, it is a stack of pictures, the newest last.
            leaf = leaf[..., :3] if leaf.shape[-1] in (3, 4) else leaf[..., -1]
        if spec.dtype != np.uint8:
            share = (leaf.astype(np.float64) - low) / (high - low)
            leaf = np.clip(share * 255.0, 0.0, 255.0).astype(np.uint8)
        if leaf.ndim == 2:
            leaf = np.repeat(leaf[..., np.newaxis], 3, axis=-1)
        return np.ascontiguousarray(leaf)

    return change


def _place_of_colours(shape: tuple[int, ...]) -> int | None:
    """Returns the axis of the colours, or of the pictures in a stack."""
    if len(shape) == 2:
        return -1 if min(shape) >= 3 else None
    for place in (-1, 0):
        sides = shape[:-1] if place else shape[1:]
        if shape[place] <= 8 and min(sides) >= 3:
            return place
    return None
