"""Wrappers that change the leaves of observations: values, ranges, dtypes, shapes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits, describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Shape
from envkit.wording import counted
from envkit.wrappers.arguments import checked_flag, known_dtype
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.fresh_nests import fresh_nest
from envkit.wrappers.observations.leaf_changes import Change, LeafChanges, place
from envkit.wrappers.observations.leaf_specs import (
    cast_spec,
    has_finite_bounds,
    reshaped_spec,
)
from envkit.wrappers.observations.rescaling import Bins, Rescaling, checked_bounds

__all__ = [
    "DiscretizeObservation",
    "DtypeObservation",
    "RescaleObservation",
    "ReshapeObservation",
    "TransformObservation",
]


class TransformObservation(PyEnvironmentBaseWrapper):
    """Shows what a function makes of each observation.

    The function is called once a step, with the observation as the environment gave
    it: that of a batch has the arrays of all rows, with the dimension of rows in
    front. So the function works on whole arrays, treats each row by itself and counts
    axes from the end; then it does for a single environment, too. It is given a copy,
    which it may change and return, and keeps nothing in mind that the next observation
    depends on, as nobody would save it.

    What it returns has to fit `observation_spec`, in structure, shape and dtype. The
    bounds are looked at once, in the first observation.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = TransformObservation(
        ...     CartPole(batch_size=2, seed=1),
        ...     lambda observation: observation[..., :2],
        ...     observation_spec=ArraySpec((2,), np.float32),
        ... )
        >>> env.reset().observation.shape
        (2, 2)
    """

    def __init__(
        self,
        env: Any,
        function: Callable[[NestedArray], NestedArray],
        observation_spec: NestedSpec | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            function: Takes an observation, of one row or of all, and returns another.
            observation_spec: The specs of what it returns, for one row; `None` if
                structure, shapes and dtypes stay as they are. Bounds are then unknown.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        if not callable(function):
            raise TypeError(
                "TransformObservation needs a function of observations, not "
                f"{describe(function)}."
            )
        self._function = function
        given = env.observation_spec()
        self._given = nest.Structure(given)
        self._keeps_spec = observation_spec is None
        self._structure = nest.Structure(
            self._given.map(ArraySpec.from_spec, given)
            if observation_spec is None
            else _checked_spec(observation_spec)
        )
        self._expected = [
            ((*self._dims, *spec.shape), spec.dtype) for spec in self._structure.leaves
        ]
        self._bounds_are_tried = False

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of what the function returns."""
        return self._structure.unflatten(self._structure.leaves)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        made = self._function(self._given.map(np.array, time_step.observation))
        leaves = self._flattened(made)
        if not (self._bounds_are_tried and self._are_as_expected(leaves)):
            self._check(made)
        # Arithmetic on arrays without dimensions makes numbers of them.
        observation = self._structure.unflatten([np.asarray(leaf) for leaf in leaves])
        return time_step._replace(observation=observation)

    def _flattened(self, made: NestedArray) -> list[Any]:
        try:
            return self._structure.flatten(made)
        except SpecError:
            self._check(made)
            raise

    def _are_as_expected(self, leaves: list[Any]) -> bool:
        return all(
            isinstance(leaf, np.ndarray) and (leaf.shape, leaf.dtype) == expected
            for leaf, expected in zip(leaves, self._expected, strict=True)
        )

    def _check(self, made: NestedArray) -> None:
        """Refuses what does not fit, bounds included, and says how it would."""
        advice = (
            "The function gets the arrays of all rows at once, and returns as many."
            if self._dims
            else "The spec is the one that was given as observation_spec."
        )
        if self._keeps_spec:
            advice = (
                "The spec is that of the environment, as no other was given. If the "
                "function is to change it, say into what: TransformObservation(env, "
                "function, observation_spec=...)."
            )
        check_fits(
            made,
            self._structure.template,
            subject="The function of TransformObservation returned an observation that",
            root="observation",
            outer_dims=self._dims,
            context=advice,
        )
        self._bounds_are_tried = True


class RescaleObservation(LeafChanges):
    """Maps the range of every number in the observation to another, linearly.

    What was at the lower bound of its spec becomes `min_obs`, what was at the upper
    one becomes `max_obs`. The numbers become float32, and stay float64 where they are.
    Every leaf of integers or floats needs bounds. An element whose bounds are equal
    becomes `min_obs`, and leaves of other kinds, such as masks, stay as they are.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = RescaleObservation(GridWorld(seed=1), -1.0, 1.0)
        >>> env.observation_spec()
        BoundedArraySpec(shape=(8, 8, 3), dtype=float32, minimum=-1.0, maximum=1.0, name='image')
    """  # noqa: E501  # a spec is written on one line

    _shown = ("min_obs", "max_obs")

    def __init__(
        self,
        env: Any,
        min_obs: npt.ArrayLike,
        max_obs: npt.ArrayLike,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            min_obs: The new lower bound: a number, or an array that broadcasts to the
                shape of every leaf.
            max_obs: The new upper bound, likewise.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._range = checked_bounds(min_obs, max_obs)
        self._prepare(self._prepare_leaf)
        if not any(isinstance(change, Rescaling) for change in self._changes):
            raise ValueError(
                "RescaleObservation has nothing to do: the observation holds no "
                "integers and no floats."
            )

    @property
    def min_obs(self) -> Any:
        """The lower bound of what is seen."""
        return _plain(self._range[0])

    @property
    def max_obs(self) -> Any:
        """The upper bound of what is seen."""
        return _plain(self._range[1])

    def _prepare_leaf(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        if spec.dtype.kind not in "iuf":
            return spec, np.asarray
        rescaling = Rescaling(spec, path, *self._range)
        return rescaling.spec, rescaling


class DiscretizeObservation(PyEnvironmentBaseWrapper):
    """Shows in which of equal intervals each element of an observation is.

    Each element's range is cut into so many `bins`. One number stands for the places of
    all elements, in which that of the last one counts first; or there is an array with
    one for each.

    Example:
        >>> from envkit.envs import Catch
        >>> env = DiscretizeObservation(Catch(rows=2, columns=2, seed=1), bins=2)
        >>> env.observation_spec()
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=15, name='board')
        >>> DiscretizeObservation(env, 4, multidiscrete=True).observation_spec().shape
        (1,)
    """

    _shown = ("bins", "multidiscrete")

    def __init__(
        self,
        env: Any,
        bins: Any,
        multidiscrete: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap, whose observation is one array of numbers with
                finite bounds.
            bins: How many intervals each element has: an integer, or one for each.
            multidiscrete: Whether what is seen has a number for each element.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        spec = env.observation_spec()
        if not (isinstance(spec, BoundedArraySpec) and has_finite_bounds(spec)):
            raise ValueError(
                "DiscretizeObservation cuts the range between two bounds into "
                f"intervals, and the observation of {type(env).__name__} is "
                f"{spec!r:.200}: it must be one array of numbers with finite bounds. "
                "SelectObservation shows one part of a dictionary."
            )
        self._bins = Bins(bins, spec)
        self._is_multi = checked_flag("multidiscrete", multidiscrete)
        self._spec = self._bins.spec(self._is_multi, spec.name)
        self._flat = (*self._dims, math.prod(spec.shape))

    @property
    def bins(self) -> Any:
        """How many intervals each element has."""
        return self._bins.given

    @property
    def multidiscrete(self) -> bool:
        """Whether what is seen has a number for each element."""
        return self._is_multi

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the number, or of one for each element."""
        return self._spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        places = self._bins.places(np.reshape(time_step.observation, self._flat))
        seen = places if self._is_multi else self._bins.together(places)
        return time_step._replace(observation=seen)


class DtypeObservation(LeafChanges):
    """Casts every leaf of the observation to a dtype.

    Bounds follow, and so does what is known of booleans: that they are 0 or 1. As in
    NumPy, fractions are cut off on the way to integers, and digits are lost on the way
    to shorter floats. A dtype that cannot hold all that a spec allows is refused.

    Example:
        >>> from envkit.envs import Catch
        >>> env = DtypeObservation(Catch(seed=1), np.uint8)
        >>> env.observation_spec()
        BoundedArraySpec(shape=(10, 5), dtype=uint8, minimum=0, maximum=1, name='board')
    """

    _shown = ("dtype",)

    def __init__(
        self, env: Any, dtype: npt.DTypeLike, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            dtype: What every leaf becomes: a dtype of numbers, or booleans.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._dtype = _checked_dtype(dtype)
        self._prepare(self._prepare_leaf)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What every leaf is cast to."""
        return self._dtype

    def _prepare_leaf(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        cast = cast_spec(spec, self._dtype)
        if cast is None:
            raise ValueError(
                f"DtypeObservation cannot cast the observation{place(path)} to "
                f"{self._dtype}, which cannot hold all that its spec allows: {spec!r}. "
                "Choose another dtype, or bring the observation into a smaller range "
                "first, with RescaleObservation for instance."
            )
        return cast, functools.partial(_cast, dtype=self._dtype)


class ReshapeObservation(LeafChanges):
    """Gives every leaf of the observation another shape, with the same elements.

    Bounds follow. In a batch each row is reshaped by itself.

    Example:
        >>> from envkit.envs import GridWorld
        >>> env = ReshapeObservation(GridWorld(batch_size=2, seed=1), (64, -1))
        >>> env.reset().observation.shape
        (2, 64, 3)
    """

    _shown = ("shape",)

    def __init__(self, env: Any, shape: Shape, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            shape: What the shape of every leaf becomes. One of the sizes may be -1: it
                is what the others leave.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._shape = _checked_shape(shape)
        self._prepare(self._prepare_leaf)

    @property
    def shape(self) -> tuple[int, ...]:
        """What every leaf is reshaped to."""
        return self._shape

    def _prepare_leaf(self, spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
        try:
            # As if there were an array: this one has a single element in memory.
            shape = np.broadcast_to(0, spec.shape).reshape(self._shape).shape
        except ValueError:
            raise ValueError(
                f"ReshapeObservation cannot give the observation{place(path)} the "
                f"shape {self._shape}: it has the shape {spec.shape}, which is "
                f"{counted(math.prod(spec.shape), 'element')}."
            ) from None
        whole = (*self._dims, *shape)
        return reshaped_spec(spec, shape), functools.partial(_reshaped, shape=whole)


def _checked_spec(given: NestedSpec) -> NestedSpec:
    for path, spec in nest.flatten_with_paths(given):
        if not isinstance(spec, ArraySpec):
            raise TypeError(
                "TransformObservation takes specs, and "
                f"{nest.join('observation_spec', path)} is {describe(spec)}: use "
                "envkit.ArraySpec(shape, dtype)."
            )
    # For whoever made the other nest may change it.
    return fresh_nest(given)


# Functions of this module rather than lambdas, so that wrappers can be pickled.
def _cast(leaf: Any, dtype: np.dtype[Any]) -> Array:
    return np.asarray(leaf).astype(dtype, copy=False)


def _reshaped(leaf: Any, shape: tuple[int, ...]) -> Array:
    return np.asarray(leaf).reshape(shape)


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    checked = known_dtype("dtype", dtype)
    if checked.kind not in "biuf":
        raise ValueError(
            f"dtype is {checked}; it must be one of numbers or booleans, such as "
            "np.float32."
        )
    return checked


def _checked_shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        hint = f" For a vector write ({shape},)." if isinstance(shape, int) else ""
        raise TypeError(
            f"shape is {shape!r:.80}; it must be a tuple of integers such as (84, 84, "
            f"3).{hint}"
        ) from None
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1:
        raise ValueError(
            f"shape is {sizes}; its sizes must be 0 or more, and one of them may be "
            "-1, which is what the others leave."
        )
    return sizes


def _plain(bound: Array) -> Any:
    return bound.item() if bound.ndim == 0 else bound.copy()
