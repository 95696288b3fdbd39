"""Rendering: asking for a mode, looking at pictures, putting them side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.errors import EnvkitError, SpecError
from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import listed

__all__ = ["check_picture", "rendered", "tiled"]

# So that dark pictures do not run into one another.
_GAP = 2
_GREY = 96


def rendered(env: Any, mode: str) -> Any:
    """Returns what an environment renders, and refuses every other mode alike.

    Environments that are given a mode they do not have raise all kinds of errors.

    Raises:
        NotImplementedError: The environment does not render in this mode; the message
            says in which it does, if the environment has `render_modes` or Gymnasium's
            `metadata`.

    Example:
        >>> class Writer:
        ...     render_modes = ("ansi",)
        ...     def render(self, mode):
        ...         return {"ansi": "."}[mode]
        >>> rendered(Writer(), "human")
        Traceback (most recent call last):
        NotImplementedError: Writer does not render 'human'; its modes are: 'ansi'.
    """
    try:
        return env.render(mode)
    except (EnvkitError, NotImplementedError):
        raise
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        modes = _modes_of(env)
        # Whatever is wrong, it is not the mode.
        if mode == "rgb_array" or mode in modes:
            raise
        name = type(getattr(env, "unwrapped", env)).__name__
        reason = f"; its modes are: {listed(map(repr, modes))}."
        if not modes:
            reason = f": render({mode!r}) raised {type(error).__name__}: {error}"
        raise NotImplementedError(f"{name} does not render {mode!r}{reason}") from error


def _modes_of(env: Any) -> list[str]:
    """Returns the modes in which an environment says that it renders."""
    modes = getattr(env, "render_modes", None)
    if modes is None:
        metadata = getattr(env, "metadata", None)
        if isinstance(metadata, Mapping):
            modes = metadata.get("render_modes") or metadata.get("render.modes")
    return [str(mode) for mode in modes or ()]


def check_picture(picture: Any, dims: tuple[int, ...], source: str) -> None:
    """Raises unless `source` returned a picture, or a batch one for each row.

    Example:
        >>> check_picture(np.zeros((4, 6, 3)), (), "render()")
        Traceback (most recent call last):
        envkit.errors.SpecError: render() did not return a picture.
        <BLANKLINE>
          expected   uint8 array of shape (height, width, 3)
          got        array of shape (4, 6, 3), dtype float64, values 0.0 … 0.0
        <BLANKLINE>
        Colours last, values from 0 to 255.
    """
    if (
        isinstance(picture, np.ndarray)
        and picture.dtype == np.uint8
        and picture.ndim == len(dims) + 3
        and picture.shape[: len(dims)] == dims
        and picture.shape[-1] == 3
        and picture.size
    ):
        return
    rows = f"{dims[0]}, " if dims else ""
    each = "One picture for each row, colours last" if dims else "Colours last"
    raise SpecError(
        f"{source} did not return a picture.\n\n"
        f"  expected   uint8 array of shape ({rows}height, width, 3)\n"
        f"  got        {describe(picture)}\n\n"
        f"{each}, values from 0 to 255."
    )


def tiled(pictures: Array) -> Array:
    """Returns pictures of one size side by side, in lines from the top left.

    As many stand beside as above one another, or one more. Thin bars part them, and
    places without a picture are grey.

    Example:
        >>> tiled(np.zeros((3, 10, 20, 3), np.uint8)).shape
        (22, 42, 3)
    """
    count, height, width, colours = pictures.shape
    columns = math.isqrt(count - 1) + 1
    lines = -(-count // columns)
    cells = np.full(
        (lines, height + _GAP, columns, width + _GAP, colours), _GREY, np.uint8
    )
    for place, picture in enumerate(pictures):
        line, column = divmod(place, columns)
        cells[line, :height, column, :width] = picture
    canvas = cells.reshape(lines * (height + _GAP), columns * (width + _GAP), colours)
    return canvas[:-_GAP, :-_GAP]
