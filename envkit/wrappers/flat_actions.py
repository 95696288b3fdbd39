"""Flattens all parts of an action into one array: `FlattenActionWrapper`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from envkit._shared.arguments import known_dtype
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray
from envkit.wrappers.actions import ActionWrapper, GivenActions
from envkit.wrappers.arguments import nearest_within

__all__ = ["FlattenActionWrapper"]


_NUMBERS = "biuf"


class FlattenActionWrapper(ActionWrapper):
    """Takes a nest of numbers and vectors as one vector, in the order of leaves.

    Where the flat action has floats and the environment integers, the fractions are cut
    off. The vector has bounds if all parts have.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     {
        ...         "gear": BoundedArraySpec((), np.int64, minimum=1, maximum=3),
        ...         "wheel": BoundedArraySpec((2,), np.float32, [-1, -2], [1, 2]),
        ...     },
        ...     reward_fn=lambda step_type, action, observation: action["gear"],
        ... )
        >>> env = FlattenActionWrapper(env, flat_dtype=np.float32)
        >>> env.action_spec().minimum, env.action_spec().maximum
        (array([ 1., -1., -2.], dtype=float32), array([3., 1., 2.], dtype=float32))
        >>> time_step = env.reset()
        >>> env.step([2.5, 0.0, 0.0]).reward
        array(2., dtype=float32)
    """

    _shown = ("flat_dtype",)

    def __init__(
        self, env: Any, flat_dtype: Any = None, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            flat_dtype: The dtype of the vector. Required only if the parts differ in
                dtype.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        # Parts are checked one by one: their paths say more than an index does.
        subject = f"{type(self).__name__}.step() was given an action"
        self._parts = GivenActions(subject, self._env.action_spec(), self._dims)
        self._flat_dtype = self._checked_dtype(flat_dtype)
        self._given = self._takes(self._flat_spec(self._flat_dtype))
        self._slices = _slices(self._parts.structure.leaves)

    @property
    def flat_dtype(self) -> np.dtype[Any]:
        """The dtype of the vector."""
        return self._flat_dtype

    def _checked_dtype(self, flat_dtype: Any) -> np.dtype[Any]:
        structure = self._parts.structure
        if not structure.leaves:
            raise ValueError(
                "FlattenActionWrapper has nothing to flatten: "
                f"{self._spec_text(structure.template)}."
            )
        for spec, path in zip(structure.leaves, structure.paths, strict=True):
            if len(spec.shape) > 1:
                raise ValueError(
                    "ActionSpec shapes should all have ndim == 1, or be scalar, for "
                    f"FlattenActionWrapper, and {self._spec_text(spec, path)}."
                )
        dtypes = {spec.dtype: path for spec, path in self._by_place()}
        if flat_dtype is not None:
            chosen = known_dtype("flat_dtype", flat_dtype)
            self._check_converts(chosen)
            return chosen
        if len(dtypes) > 1:
            texts = [f"{dtype} at {path}" for dtype, path in dtypes.items()]
            raise ValueError(
                "All action_spec dtypes must match, or `flat_dtype` should be set, and "
                f"the action spec of {type(self._env).__name__} has "
                f"{', '.join(texts[:-1])} and {texts[-1]}."
            )
        (dtype,) = dtypes
        return dtype

    def _by_place(self) -> list[tuple[ArraySpec, str]]:
        structure = self._parts.structure
        return list(zip(structure.leaves, structure.paths, strict=True))

    def _check_converts(self, flat: np.dtype[Any]) -> None:
        for spec, path in self._by_place():
            is_number = spec.dtype.kind in _NUMBERS and flat.kind in _NUMBERS
            if spec.dtype != flat and not is_number:
                raise ValueError(
                    f"flat_dtype is {flat}, and only numbers convert to another dtype: "
                    f"{self._spec_text(spec, path)}."
                )

    def _flat_spec(self, dtype: np.dtype[Any]) -> ArraySpec:
        specs = self._parts.structure.leaves
        shape = (sum(math.prod(spec.shape) for spec in specs),)
        flat = ArraySpec(shape, dtype, "FlattenedActionSpec")
        bounded = [spec for spec in specs if isinstance(spec, BoundedArraySpec)]
        if len(bounded) < len(specs) or dtype.kind == "b":
            return flat
        bounds = [self._bounds_in(spec, dtype) for spec in bounded]
        minimum, maximum = (
            np.concatenate(parts) for parts in zip(*bounds, strict=True)
        )
        if (minimum > maximum).any():
            raise ValueError(
                f"flat_dtype is {dtype}, which has no number between the bounds of "
                f"some part: {self._spec_text(self._parts.spec)}."
            )
        return BoundedArraySpec(shape, dtype, minimum, maximum, flat.name)

    def _bounds_in(
        self, spec: BoundedArraySpec, dtype: np.dtype[Any]
    ) -> tuple[Array, Array]:
        low, high = (
            np.broadcast_to(bound, spec.shape).reshape(-1)
            for bound in (spec.minimum, spec.maximum)
        )
        if spec.dtype == dtype:
            return low, high
        return (
            nearest_within(low, dtype, math.inf),
            nearest_within(high, dtype, -math.inf),
        )

    def _translate(self, action: NestedArray) -> NestedArray:
        (flat,) = self._given.columns(action)
        # The environment gets its own arrays, as it would without the wrapper.
        pieces = [flat[..., place].copy() for place in self._slices]
        return self._parts.structure.unflatten(
            [
                self._parts.settled(index, np.asarray(piece), self._ignored)
                for index, piece in enumerate(pieces)
            ]
        )


def _slices(specs: tuple[Any, ...]) -> list[int | slice]:
    """Returns each part's index; a part without dimensions is a single index."""
    slices: list[int | slice] = []
    start = 0
    for spec in specs:
        end = start + math.prod(spec.shape)
        # Compared by value: an empty shape need not be the same tuple object.
        slices.append(slice(start, end) if len(spec.shape) else start)
        start = end
    return slices
