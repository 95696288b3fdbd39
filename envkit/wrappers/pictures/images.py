"""Wrappers that change pictures in observations: gray, size, a part, channels first."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.envs.base import checked_size
from envkit.specs.array_spec import ArraySpec
from envkit.types import Array
from envkit.wrappers.arguments import checked_flag, limited_size
from envkit.wrappers.observations.leaf_changes import Change, place
from envkit.wrappers.pictures.arithmetic import (
    LARGEST_SIZE,
    grayscale,
    grayscale_of_gymnasium,
    resize,
)
from envkit.wrappers.pictures.picture_changes import Keys, PictureChanges, bounded_by

__all__ = [
    "CropObservation",
    "GrayscaleObservation",
    "ResizeObservation",
    "TransposeObservation",
]


class GrayscaleObservation(PictureChanges):
    """Makes pictures gray, as Gymnasium's wrapper does or as OpenCV does.

    Gymnasium has the weights of ITU-R 709 and cuts fractions off; OpenCV, and with it
    `AtariPreprocessing`, has those of ITU-R 601 and rounds. Pictures have dtype uint8
    and the colours last. Of a nest all leaves of the shape `(height, width, 3)` are
    taken, or those below certain `keys`.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = GrayscaleObservation(GridWorld(batch_size=2))
        >>> env.reset().observation.shape
        (2, 8, 8)
    """

    _shown = ("keep_dim", "weights")
    _kind = "uint8 pictures of shape (height, width, 3)"

    def __init__(
        self,
        env: Any,
        keep_dim: bool = False,
        handle_auto_reset: bool = False,
        *,
        weights: str = "gymnasium",
        keys: Keys = None,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            keep_dim: Whether the dimension of colours stays, with size 1.
            handle_auto_reset: As with every wrapper.
            weights: Whose numbers to return: "gymnasium" or "opencv".
            keys: Which entries of a dictionary of observations are pictures, or hold
                them; `None` for all that can be.
        """
        super().__init__(env, handle_auto_reset)
        self._keep_dim = checked_flag("keep_dim", keep_dim)
        if weights not in _GRAYS:
            raise ValueError(
                f"weights is {weights!r:.80}; it must be one of "
                f"{', '.join(map(repr, _GRAYS))}."
            )
        self._weights = weights
        self._change_pictures(keys, self._gray)

    @property
    def keep_dim(self) -> bool:
        """Whether the dimension of colours stays."""
        return self._keep_dim

    @property
    def weights(self) -> str:
        """Whose numbers are returned: "gymnasium" or "opencv"."""
        return self._weights

    def _is_picture(self, spec: Any) -> bool:
        return _is_uint8(spec, (3,)) and spec.shape[-1] == 3

    def _gray(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        change = functools.partial(
            _grayscale, keep_dim=self._keep_dim, weights=self._weights
        )
        shape = spec.shape[:-1] + (1,) * self._keep_dim
        return bounded_by(spec, shape, change), change


class ResizeObservation(PictureChanges):
    """Gives pictures another height and width.

    Where they shrink, a new point is the mean of the area it covers, as with OpenCV's
    INTER_AREA; where they grow, points between the old ones are interpolated.

    Pictures have dtype uint8 and two dimensions, or three with the channels last. Of a
    nest all such leaves are taken, or those below certain `keys`.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = ResizeObservation(GridWorld(batch_size=2), (4, 16))
        >>> env.reset().observation.shape
        (2, 4, 16, 3)
    """

    _shown = ("shape",)
    _kind = "uint8 pictures of shape (height, width) or (height, width, channels)"

    def __init__(
        self,
        env: Any,
        shape: Sequence[int],
        handle_auto_reset: bool = False,
        *,
        keys: Keys = None,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            shape: The new height and width.
            handle_auto_reset: As with every wrapper.
            keys: Which entries of a dictionary of observations are pictures, or hold
                them; `None` for all that can be.
        """
        super().__init__(env, handle_auto_reset)
        is_list = isinstance(shape, Sequence | np.ndarray)
        if not is_list or getattr(shape, "ndim", 1) != 1 or len(shape) != 2:
            raise ValueError(
                f"shape is {shape!r:.80}; it must be a height and a width, such as "
                "(84, 84)."
            )
        self._new_shape = (
            limited_size("shape[0]", shape[0], most=LARGEST_SIZE),
            limited_size("shape[1]", shape[1], most=LARGEST_SIZE),
        )
        self._change_pictures(keys, self._resize)

    @property
    def shape(self) -> tuple[int, int]:
        """The height and width of pictures."""
        return self._new_shape

    def _is_picture(self, spec: Any) -> bool:
        return _is_uint8(spec, (2, 3))

    def _resize(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        change = functools.partial(
            resize, shape=self._new_shape, channels=len(spec.shape) == 3
        )
        shape = (*self._new_shape, *spec.shape[2:])
        return bounded_by(spec, shape, change), change


class TransposeObservation(PictureChanges):
    """Moves the channels of pictures from the last place to the first, or other axes.

    Convolutions of PyTorch take pictures of shape `(channels, height, width)`. Arrays
    of three dimensions and any dtype are pictures; of a nest all such leaves are taken,
    or those below certain `keys`.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = TransposeObservation(GridWorld(batch_size=2))
        >>> env.reset().observation.shape
        (2, 3, 8, 8)
    """

    _shown = ("axes",)

    def __init__(
        self,
        env: Any,
        axes: Sequence[int] = (2, 0, 1),
        handle_auto_reset: bool = False,
        *,
        keys: Keys = None,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            axes: The order in which the dimensions of one row's array are to come, as
                `numpy.transpose` takes it.
            handle_auto_reset: As with every wrapper.
            keys: Which entries of a dictionary of observations are to be transposed, or
                hold what is; `None` for all of as many dimensions as there are axes.
        """
        super().__init__(env, handle_auto_reset)
        is_list = isinstance(axes, Sequence | np.ndarray)
        if not is_list or sorted(axes) != list(range(len(axes))):
            raise ValueError(
                f"axes is {axes!r:.80}; it must be an order of the dimensions, counted "
                "from 0, such as (2, 0, 1)."
            )
        self._axes = tuple(int(axis) for axis in axes)
        self._change_pictures(keys, self._transpose)

    @property
    def axes(self) -> tuple[int, ...]:
        """The order of the dimensions."""
        return self._axes

    @property
    def _kind(self) -> str:  # type: ignore[override]  # it depends on the axes
        return f"arrays of {len(self._axes)} dimensions"

    def _is_picture(self, spec: Any) -> bool:
        return isinstance(spec, ArraySpec) and len(spec.shape) == len(self._axes)

    def _transpose(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        change = functools.partial(_transposed, axes=self._axes)
        shape = tuple(spec.shape[axis] for axis in self._axes)
        return bounded_by(spec, shape, change), change


class CropObservation(PictureChanges):
    """Cuts a rectangle out of pictures.

    Pictures have two dimensions, or three with the channels last, and any dtype. Of a
    nest all such leaves are taken, or those below certain `keys`.

    Example:
        >>> from envkit.envs import Catch
        >>> env = CropObservation(Catch(batch_size=2), top=6, height=3)
        >>> env.reset().observation.shape
        (2, 3, 5)
    """

    _shown = ("top", "left", "height", "width")
    _kind = "pictures of shape (height, width) or (height, width, channels)"

    def __init__(
        self,
        env: Any,
        top: int = 0,
        left: int = 0,
        height: int | None = None,
        width: int | None = None,
        handle_auto_reset: bool = False,
        *,
        keys: Keys = None,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            top: How many lines of points are cut off at the top.
            left: How many columns of points are cut off on the left.
            height: How many lines stay; `None` for all below.
            width: How many columns stay; `None` for all to the right.
            handle_auto_reset: As with every wrapper.
            keys: Which entries of a dictionary of observations are pictures, or hold
                them; `None` for all that can be.
        """
        super().__init__(env, handle_auto_reset)
        self._corner = (
            checked_size("top", top, least=0),
            checked_size("left", left, least=0),
        )
        rest = ", or None for the rest"
        self._size = (
            None if height is None else checked_size("height", height, hint=rest),
            None if width is None else checked_size("width", width, hint=rest),
        )
        self._change_pictures(keys, self._crop)

    @property
    def top(self) -> int:
        """How many lines are cut off at the top."""
        return self._corner[0]

    @property
    def left(self) -> int:
        """How many columns are cut off on the left."""
        return self._corner[1]

    @property
    def height(self) -> int | None:
        """How many lines stay; `None` for all below."""
        return self._size[0]

    @property
    def width(self) -> int | None:
        """How many columns stay; `None` for all to the right."""
        return self._size[1]

    def _is_picture(self, spec: Any) -> bool:
        return isinstance(spec, ArraySpec) and len(spec.shape) in (2, 3)

    def _crop(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        parts = []
        for what, start, size, there in zip(
            ("lines", "columns"), self._corner, self._size, spec.shape, strict=False
        ):
            end = there if size is None else start + size
            if not start < end <= there:
                keys = " Name the pictures with keys=(...)." if path else ""
                raise ValueError(
                    f"CropObservation cannot cut {what} {start} to "
                    f"{'the last' if size is None else end - 1} out of the observation "
                    f"of {type(self._env).__name__}{place(path)}, which has {there} of "
                    f"them, counted from 0.{keys}"
                )
            parts.append(slice(start, end))
        change = functools.partial(
            _part, parts=(..., *parts, *[slice(None)] * (len(spec.shape) - 2))
        )
        shape = (
            *(part.stop - part.start for part in parts),
            *spec.shape[2:],
        )
        return bounded_by(spec, shape, change), change


def _is_uint8(spec: Any, ranks: tuple[int, ...]) -> bool:
    return (
        isinstance(spec, ArraySpec)
        and spec.dtype == np.uint8
        and len(spec.shape) in ranks
    )


_GRAYS = {"gymnasium": grayscale_of_gymnasium, "opencv": grayscale}


# Functions of this module rather than lambdas, so that wrappers can be pickled.
def _grayscale(pictures: Any, keep_dim: bool, weights: str) -> Array:
    gray = _GRAYS[weights](np.asarray(pictures))
    return gray[..., np.newaxis] if keep_dim else gray


def _transposed(pictures: Any, axes: tuple[int, ...]) -> Array:
    array = np.asarray(pictures)
    before = array.ndim - len(axes)
    order = [*range(before), *(before + axis for axis in axes)]
    return np.ascontiguousarray(array.transpose(order))


def _part(pictures: Any, parts: Any) -> Array:
    return np.array(np.asarray(pictures)[parts])
