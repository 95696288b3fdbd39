"""Wrappers that choose, rename or join the parts of observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from envkit import nest
from envkit.arrays import as_array
from envkit.nest_walk import kind_of
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wording import a_or_an, listed
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.fresh_nests import fresh_nest
from envkit.wrappers.observations.packing import Packing

__all__ = [
    "FlattenObservationsWrapper",
    "ObservationFilterWrapper",
    "RenameObservation",
    "SelectObservation",
]


class ObservationFilterWrapper(PyEnvironmentBaseWrapper):
    """Shows some elements of an observation that is a vector, in the order asked for.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = ObservationFilterWrapper(CartPole(batch_size=3, seed=1), idx=[2, 0])
        >>> env.reset().observation.shape
        (3, 2)
        >>> env.observation_spec().maximum
        array([0.41887903, 4.8       ], dtype=float32)
    """

    _shown = ("idx",)

    def __init__(
        self,
        env: Any,
        idx: Sequence[int] | npt.NDArray[np.integer[Any]],
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            idx: The indices of the elements that are seen; negative ones count from the
                end.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        spec = env.observation_spec()
        if nest.is_nested(spec) or len(spec.shape) != 1:
            raise ValueError(
                "ObservationFilterWrapper filters observations that are a single "
                f"vector, and this one is {_kind(spec)}. To choose among the parts of "
                "a dictionary use SelectObservation; to make a vector of other "
                "observations, FlattenObservationsWrapper."
            )
        self._idx = _checked_indices(idx, spec.shape[0])
        self._spec = _filtered(spec, self._idx)

    @property
    def idx(self) -> list[int]:
        """The indices of the elements that are seen."""
        indices: list[int] = self._idx.tolist()
        return indices

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the elements that are seen."""
        return self._spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Indexing with an array copies.
        seen = np.asarray(time_step.observation)[..., self._idx]
        return time_step._replace(observation=seen)


class FlattenObservationsWrapper(PyEnvironmentBaseWrapper):
    """Joins all parts of an observation, or some of them, into one vector.

    The parts follow one another by sorted key, as in every flattened nest, each in
    row-major order. They have to be of one dtype. In a batch there is a vector for each
    row. The vector has bounds if all of its parts have.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> env = FlattenObservationsWrapper(TicTacToe(seed=1), ["board"])
        >>> env.reset().observation.shape
        (9,)
    """

    _shown = ("observations_allowlist",)

    def __init__(
        self,
        env: Any,
        observations_allowlist: Sequence[str] | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            observations_allowlist: The keys of the parts that are seen, of an
                observation that is a dictionary; `None` for all parts of any nest.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        spec = env.observation_spec()
        self._allowlist: list[Any] | None = None
        if observations_allowlist is not None:
            self._allowlist = _checked_keys(
                self, "observations_allowlist", observations_allowlist, spec
            )
        self._structure = nest.Structure(self._chosen(spec))
        leaves = self._structure.leaves
        dtypes = {str(leaf.dtype): leaf.dtype for leaf in leaves}
        if len(dtypes) != 1:
            raise ValueError(
                "FlattenObservationsWrapper joins parts that have the same dtype, and "
                f"these have {listed(dtypes) or 'none, for there are no parts'}. "
                "Choose some of them with observations_allowlist, or cast them with "
                "DtypeObservation first."
            )
        (dtype,) = dtypes.values()
        self._packing = Packing(leaves, self._dims, dtype, "packed_observations")

    @property
    def observations_allowlist(self) -> list[Any] | None:
        """The keys of the parts that are seen; `None` for all."""
        return None if self._allowlist is None else [*self._allowlist]

    def observation_spec(self) -> ArraySpec:
        """Returns the spec of the vector."""
        return self._packing.spec

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        leaves = self._structure.flatten(self._chosen(time_step.observation))
        return time_step._replace(observation=self._packing.pack(leaves))

    def _chosen(self, parts: Any) -> Any:
        # The dictionary is the environment's, so nothing is deleted from it.
        if self._allowlist is None:
            return parts
        return {key: parts[key] for key in self._allowlist}


class SelectObservation(PyEnvironmentBaseWrapper):
    """Shows some parts of an observation that is a dictionary, or one of them alone.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> SelectObservation(TicTacToe(seed=1), ["mask"]).observation_spec()
        {'mask': ArraySpec(shape=(9,), dtype=bool, name='mask')}
        >>> SelectObservation(TicTacToe(seed=1), "mask").reset().observation.shape
        (9,)
    """

    _shown = ("names",)

    def __init__(
        self, env: Any, names: str | Sequence[str], handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            names: The keys of the parts that are seen, in this order in a dictionary;
                or, as a string, of the one part that is seen in place of all.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        spec = env.observation_spec()
        self._one = isinstance(names, str)
        self._names = _checked_keys(
            self, "names", [names] if self._one else names, spec
        )
        self._spec = self._chosen(spec)

    @property
    def names(self) -> Any:
        """The keys of the parts that are seen."""
        return self._names[0] if self._one else [*self._names]

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of what is seen."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return time_step._replace(observation=self._chosen(time_step.observation))

    def _chosen(self, parts: Mapping[Any, Any]) -> NestedArray:
        if self._one:
            return parts[self._names[0]]
        return {name: parts[name] for name in self._names}


class RenameObservation(PyEnvironmentBaseWrapper):
    """Gives parts of an observation that is a dictionary other keys.

    Example:
        >>> from envkit.envs import TicTacToe
        >>> env = RenameObservation(TicTacToe(seed=1), {"mask": "legal_actions"})
        >>> sorted(env.reset().observation)
        ['board', 'legal_actions']
    """

    _shown = ("names",)

    def __init__(
        self, env: Any, names: Mapping[Any, Any], handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            names: The new key for each old one; other parts keep theirs.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        if not isinstance(names, Mapping):
            raise TypeError(
                f"names is {describe(names)}; it must be a dictionary such as "
                "{'old': 'new'}."
            )
        spec = env.observation_spec()
        _checked_keys(self, "names", [*names], spec)
        self._renamed = dict(names)
        self._pairs = [(old, names.get(old, old)) for old in spec]
        self._check_collisions()
        self._spec = self._with_new_keys(spec)
        # Nothing is made of the leaves: this refuses keys that cannot be sorted.
        nest.flatten(self._spec)

    def _check_collisions(self) -> None:
        for old, new in self._renamed.items():
            others = [key for key, name in self._pairs if name == new and key != old]
            if others:
                raise ValueError(
                    f"RenameObservation was asked to call {old!r} {new!r}, and "
                    f"{others[0]!r} would have that name, too. Every part needs a name "
                    "of its own."
                )

    @property
    def names(self) -> dict[Any, Any]:
        """The new key for each old one that has changed."""
        return dict(self._renamed)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs under their new keys."""
        return fresh_nest(self._spec)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return time_step._replace(
            observation=self._with_new_keys(time_step.observation)
        )

    def _with_new_keys(self, parts: Mapping[Any, Any]) -> dict[Any, Any]:
        return {new: parts[old] for old, new in self._pairs}


def _checked_indices(idx: Any, size: int) -> Array:
    indices = as_array(idx)
    if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
        hint = ""
        if indices.dtype.kind == "b":
            hint = " Of a mask make indices with np.flatnonzero(mask)."
        elif indices.ndim == 0 and indices.dtype.kind in "iu":
            hint = f" For one element write [{indices}]."
        raise ValueError(
            f"idx is {describe(idx)}; it must be a list of at least one index, such as "
            f"[0, 2].{hint}"
        )
    outside = indices[(indices >= size) | (indices < -size)]
    if outside.size:
        raise ValueError(
            f"idx has the index {outside[0]}, which is out of bounds: the observation "
            f"has {size} elements, from 0 to {size - 1}."
        )
    return indices.astype(np.intp)


def _filtered(spec: ArraySpec, indices: Array) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=indices.shape)
    low, high = (
        bound if bound.ndim == 0 else np.broadcast_to(bound, spec.shape)[indices]
        for bound in (spec.minimum, spec.maximum)
    )
    return BoundedArraySpec(indices.shape, spec.dtype, low, high, spec.name)


def _checked_keys(
    wrapper: PyEnvironmentBaseWrapper, argument: str, keys: Any, spec: NestedSpec
) -> list[Any]:
    """Returns distinct keys of a dictionary of specs, or says what is wrong."""
    name = type(wrapper).__name__
    if not isinstance(spec, Mapping):
        raise ValueError(
            f"{name} takes {argument} of observations that are a dictionary, and this "
            f"one is {_kind(spec)}."
        )
    known = listed(map(repr, spec))
    # Of arrays those without dimensions cannot be iterated over all the same.
    is_list = hasattr(keys, "__iter__") and getattr(keys, "ndim", 1) > 0
    if isinstance(keys, str | bytes | Mapping) or not is_list:
        hint = " RenameObservation takes a dictionary of new keys."
        raise TypeError(
            f"{argument} is {describe(keys)}; it must be a list of keys of the "
            f"observation, which are {known}."
            f"{hint if isinstance(keys, Mapping) else ''}"
        )
    chosen = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if not chosen:
        raise ValueError(
            f"{argument} is empty; it must hold at least one key of the observation, "
            f"of which there are {known}."
        )
    # Of the list of keys, because what was given by mistake may have no hash.
    unknown = [key for key in chosen if key not in list(spec)]
    if unknown:
        raise ValueError(
            f"{argument} has {'the keys' if unknown[1:] else 'the key'} "
            f"{listed(map(repr, unknown))}, which the observation does not have. Its "
            f"keys are {known}."
        )
    return list(dict.fromkeys(chosen))


def _kind(spec: NestedSpec) -> str:
    if isinstance(spec, ArraySpec):
        return f"an array of shape {spec.shape}"
    return a_or_an(kind_of(spec))
