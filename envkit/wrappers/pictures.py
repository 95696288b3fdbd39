"""Wrappers for picture observations, and one that renders them."""

from __future__ import annotations

import abc
import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from envkit import nest
from envkit._shared.arguments import checked_key, limited_size
from envkit._shared.pixels import (
    LARGEST_SIZE,
    check_picture,
    grayscale,
    grayscale_of_gymnasium,
    resize,
)
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.errors import CallOrderError
from envkit.extend import checked_flag, checked_size, listed
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.nests import fresh_nest
from envkit.wrappers.observations import Change, LeafChanges, place

__all__ = [
    "AddRenderObservation",
    "CropObservation",
    "GrayscaleObservation",
    "Keys",
    "PictureChanges",
    "ResizeObservation",
    "TransposeObservation",
    "bounded_by",
]


# The entries of a nest to change: one, several, or every possible one.
Keys: TypeAlias = str | int | Sequence[str | int] | None


class PictureChanges(LeafChanges):
    """Changes the pictures in an observation, and leaves the rest alone.

    A subclass calls `_change_pictures` in its constructor.
    """

    # What counts as a picture for a subclass, in words.
    _kind: ClassVar[str] = ""

    @abc.abstractmethod
    def _is_picture(self, spec: Any) -> bool:
        """True if a leaf is of the kind that the wrapper changes."""

    def _change_pictures(
        self, keys: Keys, change: Callable[[ArraySpec, str], tuple[ArraySpec, Change]]
    ) -> None:
        """Calls `change` with each picture's spec and path; it returns the change."""
        specs = dict(nest.flatten_with_paths(self._env.observation_spec()))
        pictures = self._chosen(keys, specs)
        for path in pictures:
            if not self._is_picture(specs[path]):
                self._refuse_leaf(specs[path], path)

        def prepare(spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
            return change(spec, path) if path in pictures else (spec, np.asarray)

        self._prepare(prepare)

    def _chosen(self, keys: Keys, specs: dict[str, Any]) -> list[str]:
        """Returns the indices of the leaves that are pictures."""
        name, whose = type(self).__name__, type(self._env).__name__
        is_nest = list(specs) != [""]
        if keys is None:
            found = [path for path in specs if self._is_picture(specs[path])]
            if is_nest and not found:
                raise ValueError(
                    f"{name} changes {self._kind}, and the observation of {whose} has "
                    f"none. It has {listed(specs)}."
                )
            return found if is_nest else [""]
        if not is_nest:
            raise ValueError(
                f"{name} was given keys={keys!r}, but the observation of {whose} is a "
                "single array. Leave keys out."
            )
        chosen = []
        for key in [keys] if isinstance(keys, str | int) else keys:
            below = [path for path in specs if _is_below(path, key)]
            if not below:
                raise ValueError(
                    f"{name} was given the key {key!r}, and the observation of {whose} "
                    f"has nothing there. It has {listed(specs)}."
                )
            chosen += below
        return chosen

    def _refuse_leaf(self, spec: Any, path: str) -> NoReturn:
        message = (
            f"{type(self).__name__} changes pictures, and the observation of "
            f"{type(self._env).__name__}{place(path)} is not one.\n\n"
            f"  expected   {self._kind}\n"
            f"  got        {spec!r}"
        )
        is_flat = isinstance(spec, ArraySpec) and len(spec.shape) in (2, 3)
        if is_flat and spec.dtype != np.uint8:
            message += "\n\nDtypeObservation casts observations to another dtype."
        raise ValueError(message)


def _is_below(path: str, key: Any) -> bool:
    """True if a leaf is an entry of the nest, or a part of it."""
    for entry in (f"[{key!r}]", f".{key}"):
        if path == entry or path.startswith((f"{entry}[", f"{entry}.")):
            return True
    return False


def bounded_by(spec: ArraySpec, shape: tuple[int, ...], change: Change) -> ArraySpec:
    """Returns the spec of changed pictures, with changed bounds.

    The change must be monotonic: a larger value must not become a smaller one.
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)
    low, high = (
        bound if bound.ndim == 0 else change(np.broadcast_to(bound, spec.shape))
        for bound in (spec.minimum, spec.maximum)
    )
    return BoundedArraySpec(shape, spec.dtype, low, high, spec.name)


class GrayscaleObservation(PictureChanges):
    """Converts pictures to gray, as Gymnasium's wrapper does or as OpenCV does.

    Gymnasium uses the weights of ITU-R 709 and cuts fractions off. OpenCV, and with it
    `AtariPreprocessing`, uses the weights of ITU-R 601 and rounds. Pictures must be
    uint8 with the colours last. In a nest, all leaves of shape `(height, width, 3)` are
    converted, or only those below certain `keys`.

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
            keep_dim: Whether to keep the colour dimension, with size 1.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            weights: The weights and rounding to use: "gymnasium" or "opencv".
            keys: The entries of a dictionary observation that are or contain pictures;
                `None` for all possible ones.
        """
        super().__init__(env, handle_auto_reset)
        self._keep_dim = checked_flag("keep_dim", keep_dim)
        if weights not in _GRAYS:
            raise ValueError(
                f"weights must be one of {', '.join(map(repr, _GRAYS))}, got "
                f"{weights!r:.80}."
            )
        self._weights = weights
        self._change_pictures(keys, self._gray)

    @property
    def keep_dim(self) -> bool:
        """Whether the colour dimension is kept."""
        return self._keep_dim

    @property
    def weights(self) -> str:
        """The weights and rounding in use: "gymnasium" or "opencv"."""
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
    """Resizes pictures.

    When shrinking, each new pixel is the mean of the area it covers, as with OpenCV's
    INTER_AREA. When enlarging, pixels are interpolated.

    Pictures must be uint8, with two dimensions, or three with the channels last. In a
    nest, all such leaves are resized, or only those below certain `keys`.

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
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            keys: The entries of a dictionary observation that are or contain pictures;
                `None` for all possible ones.
        """
        super().__init__(env, handle_auto_reset)
        is_list = isinstance(shape, Sequence | np.ndarray)
        if not is_list or getattr(shape, "ndim", 1) != 1 or len(shape) != 2:
            raise ValueError(
                "shape must be a height and a width, such as (84, 84), got "
                f"{shape!r:.80}."
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
    """Moves the channels of pictures from last to first, or permutes other axes.

    PyTorch's convolutions take pictures of shape `(channels, height, width)`. Any array
    of three dimensions counts as a picture, whatever its dtype. In a nest, all such
    leaves are transposed, or only those below certain `keys`.

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
            axes: The new order of one row's dimensions, as for `numpy.transpose`.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            keys: The entries of a dictionary observation to transpose; `None` for all
                arrays with as many dimensions as there are axes.
        """
        super().__init__(env, handle_auto_reset)
        is_list = isinstance(axes, Sequence | np.ndarray)
        if not is_list or sorted(axes) != list(range(len(axes))):
            raise ValueError(
                "axes must be an order of the dimensions, counted from 0, such as "
                f"(2, 0, 1), got {axes!r:.80}."
            )
        self._axes = tuple(int(axis) for axis in axes)
        self._change_pictures(keys, self._transpose)

    @property
    def axes(self) -> tuple[int, ...]:
        """The new order of the dimensions."""
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
    """Crops a rectangle out of pictures.

    Pictures have two dimensions, or three with the channels last, and any dtype. In a
    nest, all such leaves are cropped, or only those below certain `keys`.

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
            top: How many rows of pixels to cut off at the top.
            left: How many columns of pixels to cut off on the left.
            height: How many rows of pixels to keep; `None` for all below.
            width: How many columns to keep; `None` for all to the right.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            keys: The entries of a dictionary observation that are or contain pictures;
                `None` for all possible ones.
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
        """How many rows of pixels are cut off at the top."""
        return self._corner[0]

    @property
    def left(self) -> int:
        """How many columns of pixels are cut off on the left."""
        return self._corner[1]

    @property
    def height(self) -> int | None:
        """How many rows of pixels are kept; `None` for all below."""
        return self._size[0]

    @property
    def width(self) -> int | None:
        """How many columns are kept; `None` for all to the right."""
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


# Module functions rather than lambdas, so that wrappers can be pickled.
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


class AddRenderObservation(PyEnvironmentBaseWrapper):
    """Shows the rendered picture instead of the observation, or beside it.

    Beside it means in a dictionary. A dictionary observation gets another entry,
    `render_key`; any other observation is stored under `obs_key`.

    The environment renders once per time step. The wrapper learns the size of the
    pictures from the first one. To render it, an environment that has not begun an
    episode is reset; its state is restored afterwards if it can save one.

    Example:
        >>> from envkit.envs import Catch
        >>> env = AddRenderObservation(Catch(batch_size=2), render_only=False)
        >>> {key: leaf.shape for key, leaf in env.reset().observation.items()}
        {'state': (2, 10, 5), 'pixels': (2, 160, 80, 3)}
    """

    _shown = ("render_only",)

    def __init__(
        self,
        env: Any,
        render_only: bool = True,
        render_key: str = "pixels",
        obs_key: str = "state",
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            render_only: Whether the picture is the whole observation.
            render_key: The picture's key in a dictionary.
            obs_key: The observation's key there, if it is not a dictionary.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._render_only = checked_flag("render_only", render_only)
        self._render_key = checked_key("render_key", render_key)
        self._obs_key = checked_key("obs_key", obs_key)
        given = self._env.observation_spec()
        self._is_dict = isinstance(given, Mapping)
        if not self._render_only:
            self._check_keys(given)
        self._picture = self._picture_spec()
        self._spec = self._with_picture(given, self._picture)
        # Called only because it refuses keys that cannot be sorted.
        nest.flatten(self._spec)

    @property
    def render_only(self) -> bool:
        """Whether the picture is the whole observation."""
        return self._render_only

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the picture, or the specs of both."""
        return fresh_nest(self._spec)

    def _check_keys(self, given: NestedSpec) -> None:
        taken = list(given) if self._is_dict else [self._obs_key]
        if self._render_key in taken:
            what = (
                f"the observation of {type(self._env).__name__} has an entry of that "
                "name already"
                if self._is_dict
                else "obs_key is the same"
            )
            raise ValueError(
                f"render_key is {self._render_key!r}, but {what}. Choose another name."
            )

    def _picture_spec(self) -> BoundedArraySpec:
        picture = self._first_picture()
        check_picture(picture, self._dims, f"{type(self._env).__name__}.render()")
        rows = len(self._dims)
        return BoundedArraySpec(
            picture.shape[rows:], np.uint8, 0, 255, self._render_key
        )

    def _first_picture(self) -> Any:
        """Renders the environment as it is, or right after a reset."""
        env = self._env
        try:
            env.current_time_step()
        except CallOrderError:
            before = _state_of(env)
        else:
            return self._rendered()
        env.reset()
        try:
            return self._rendered()
        finally:
            if before is not None:
                env.set_state(before)

    def _rendered(self) -> Any:
        try:
            return self._env.render("rgb_array")
        except NotImplementedError as error:
            raise ValueError(
                "AddRenderObservation needs an environment that renders 'rgb_array', "
                f"and {type(self._env).__name__} does not: {error}"
            ) from error

    def _with_picture(self, observation: Any, picture: Any) -> Any:
        if self._render_only:
            return picture
        if self._is_dict:
            return {self._render_key: picture, **observation}
        return {self._obs_key: observation, self._render_key: picture}

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # A copy: some environments always draw on the same canvas.
        picture = np.array(self._env.render("rgb_array"))
        expected = (*self._dims, *self._picture.shape)
        if picture.shape != expected or picture.dtype != np.uint8:
            check_fits(
                picture,
                self._picture,
                subject=f"{type(self._env).__name__}.render() returned a picture that",
                outer_dims=self._dims,
                context="The first picture had the expected size.",
            )
        seen: NestedArray = self._with_picture(time_step.observation, picture)
        return time_step._replace(observation=seen)


def _state_of(env: Any) -> Any:
    # It may fail for any reason; then the environment stays as after the reset.
    with contextlib.suppress(Exception):
        return env.get_state()
    return None
