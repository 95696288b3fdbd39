"""Who acts in a recording: a random policy, or the one that was named."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit.nest_walk import sorted_keys
from envkit.random_policy import RandomPolicy
from envkit.specs.array_spec import BoundedArraySpec, is_discrete
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["RANDOM", "Policy", "load_policy"]

Policy = Callable[[TimeStep], NestedArray]

RANDOM = "random"
_ENVIRONMENTS = ("env", "environment")
# What legal actions are called in observations and infos: as a mask, or as a list.
_LEGAL = ("action_mask", "legal_actions", "available_actions", "mask")


def load_policy(name: str, env: Any, seed: int | None) -> Policy:
    """Returns what chooses actions.

    Args:
        name: "random", which chooses among the legal actions where the observation or
            the info has them, or "module:attribute": something to call with a time
            step. A class is made first, and so is what a function makes whose first
            argument is called `env`; both get the environment, if they take an
            argument.
        env: The environment that it is for.
        seed: What chance depends on.

    Example:
        >>> from envkit import make
        >>> env = make("Catch", seed=1)
        >>> int(load_policy("random", env, seed=3)(env.reset()))
        2
    """
    if name == RANDOM:
        return _LegalPolicy(env, seed)
    policy: Any = _attribute(name)
    if inspect.isclass(policy):
        make_policy: Any = policy
        policy = make_policy(env) if _first_parameter(policy) else make_policy()
    elif _first_parameter(policy) in _ENVIRONMENTS:
        policy = policy(env)
    if not callable(policy):
        raise TypeError(
            f"The policy {name!r} is {describe(policy)}; it is something to call with "
            "a time step, which returns an action."
        )
    return policy  # type: ignore[no-any-return]  # it can be called


class _LegalPolicy(RandomPolicy):
    """Draws actions; of choices with a mask or a list of legal ones only these."""

    def __init__(self, env: Any, seed: int | None) -> None:
        super().__init__(env.action_spec(), seed, env.batch_size)
        self._env = env

    def _masks(self, time_step: TimeStep, mask: Any, rows: int) -> list[Any]:
        info: Any = None
        masks = []
        for row in [None] if self._batch_size is None else range(rows):
            found = list(_legal(self._spec, time_step.observation, row))
            if not found:
                info = self._env.get_info() if info is None else info
                of_row = isinstance(info, list) and row is not None
                place = (info[row], None) if of_row else (info, row)
                found = list(_legal(self._spec, *place))
            leaves: list[Any] = [None] * len(self._structure.leaves)
            for leaf, legal in found:
                # Where nothing is legal, as after an end, anything is.
                leaves[leaf] = legal | ~legal.any(-1, keepdims=True)
            masks.append(self._structure.unflatten(leaves))
        return masks


def _legal(
    spec: NestedSpec, source: Any, row: int | None, first: int = 0
) -> Iterator[tuple[int, Array]]:
    """Yields the leaves of an action of which a source says what is legal, with masks.

    Args:
        spec: What an action is, or a part of it.
        source: The observation or the info, or the part of the same name.
        row: Which row of it is meant; `None` without a batch.
        first: The number of the part's first leaf.
    """
    if isinstance(source, Mapping):
        for name in _LEGAL:
            found = list(_masks(spec, source.get(name), row, first, "mask" in name))
            if found:
                yield from found
                return
    for key, part, leaf in _parts(spec, first):
        if _has(source, key):
            yield from _legal(part, source[key], row, leaf)


def _masks(
    spec: NestedSpec, given: Any, row: int | None, first: int, is_mask: bool
) -> Iterator[tuple[int, Array]]:
    """Yields the leaves of an action that masks or lists are about."""
    if nest.is_nested(spec) and isinstance(given, Mapping | tuple):
        for key, part, leaf in _parts(spec, first):
            if _has(given, key):
                yield from _masks(part, given[key], row, leaf, is_mask)
    elif given is not None:
        masks = [_mask(leaf, given, row, is_mask) for leaf in nest.flatten(spec)]
        fitting = [leaf for leaf, mask in enumerate(masks) if mask is not None]
        # One mask beside an action of several parts is about one of them.
        for leaf in fitting if len(fitting) == 1 else ():
            yield first + leaf, masks[leaf]  # type: ignore[misc]  # it fits


def _parts(spec: NestedSpec, first: int) -> Iterator[tuple[Any, NestedSpec, int]]:
    """Yields the keys and parts of a nest, each with the number of its first leaf."""
    keys: Any = ()
    if isinstance(spec, Mapping):
        keys = sorted_keys(spec, "")
    elif isinstance(spec, list | tuple):
        keys = range(len(spec))
    for key in keys:
        yield key, spec[key], first
        first += len(nest.flatten(spec[key]))


def _has(source: Any, key: Any) -> bool:
    if isinstance(source, Mapping):
        return key in source
    return isinstance(source, list | tuple) and key in range(len(source))


def _mask(spec: Any, given: Any, row: int | None, is_mask: bool) -> Array | None:
    """Returns the mask of a leaf's legal choices; `None` if that is not about it."""
    if not isinstance(spec, BoundedArraySpec) or not is_discrete(spec):
        return None
    if not spec.minimum.size:
        return None
    low, high = spec.minimum.min(), spec.maximum.max()
    if (spec.minimum != low).any() or (spec.maximum != high).any():
        return None
    count = int(high) - int(low) + 1
    array = _array_of(given, row)
    values = set(array.ravel().tolist()) if array.dtype.kind in "biuf" else {2}
    fits = array.shape == (*spec.shape, count) and values <= {0, 1}
    # [0, 1] may also be a list of two places.
    if fits and (is_mask or array.dtype == np.bool_ or len(values) < array.size):
        return array.astype(np.bool_)
    is_list = array.dtype.kind in "iu" and array.ndim == 1 and spec.shape == ()
    if is_mask or not is_list or array.min(initial=low) < low:
        return None
    if array.max(initial=high) > high:
        return None
    mask = np.zeros(count, np.bool_)
    mask[array - int(low)] = True
    return mask


def _array_of(given: Any, row: int | None) -> Array:
    try:
        part = given
        if row is not None:
            # Of lists the elements are stacked, and not the lists.
            is_list = isinstance(given, list | tuple)
            part = [item[row] for item in given] if is_list else given[row]
        return np.asarray(list(part) if isinstance(part, set | frozenset) else part)
    except (IndexError, KeyError, TypeError, ValueError):
        return np.array(None)


def _attribute(name: str) -> Any:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise ValueError(
            f"The policy is {name!r}; it is 'random' or 'module:attribute', such as "
            "my_package.agents:act."
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"The policy {name!r} cannot be imported: {error}.") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(
                f"The policy {name!r} cannot be imported: {module_name} has no "
                f"{attribute}."
            )
        found = getattr(found, part)
    return found


def _first_parameter(function: Any) -> str:
    """Returns the name of the first argument; "" if there is none or nobody knows."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return ""
    return parameters[0].name
