"""Random policies, and the legal actions they draw from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.objects import (
    as_environment,
    is_environment,
    is_of_library,
)
from envkit.async_environment import AsyncEnvironment, check_env_ids
from envkit.nest import sorted_keys
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.arrays import BoundedArraySpec, as_array, is_continuous, is_discrete
from envkit.specs.environment_spec import checked_spec
from envkit.specs.sampling import sample_spec_nest
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, RandomSource, Seed

__all__ = [
    "RandomActions",
    "RandomPolicy",
    "moderate",
    "names_legal_actions",
    "random_actions",
]

# The names of legal actions in observations and infos, as a mask or as a list.
_LEGAL = ("action_mask", "legal_actions", "available_actions", "mask")
# A bound beyond this, or at its dtype's limit, counts as missing: motors and wheels
# take no such numbers.
_LARGE = 1e6
_LAST = int(StepType.LAST)
# Distinguishes the seeds of actions from those of wrappers and rows, which count from
# 0: an environment with the same seed draws other numbers.
_BRANCH = 2**31 + 16


def random_actions(env: Any, rng: Seed | RandomSource = None) -> RandomActions:
    """Returns a policy that draws random legal actions.

    Call the policy with each time step. Legal actions come from an entry of the
    observation or info named `action_mask`, `legal_actions`, `available_actions` or
    `mask`: a mask of all choices, or a list or set of the legal ones. In a nest of
    actions, each part may have its own. In a batch, every row has its own. Without such
    an entry, all actions of the spec are legal, but floats without bounds stay near
    zero.

    If the observation has no such entry, each call asks the environment for its info.
    That takes a message to each worker of a pool; `RandomPolicy` asks for nothing.

    Args:
        env: The environment, single, batched or a lockstep pool.
        rng: A seed, one seed per row, or `None`: each action then depends only on the
            seed, its row and its step, as in `RandomPolicy`. Or a NumPy generator from
            which all rows draw in turn, which is faster.

    Example:
        >>> from envkit import make
        >>> env = make("TicTacToe", seed=1)
        >>> act = random_actions(env, 7)
        >>> time_step = env.reset()
        >>> while not time_step.is_last():
        ...     time_step = env.step(act(time_step))
        >>> float(time_step.reward)
        -1.0
    """
    env = as_environment(env, "random_actions() was given")
    if isinstance(env, AsyncEnvironment):
        raise TypeError(
            "random_actions() takes environments whose rows step together. For an "
            f"{type(env).__name__}, use RandomPolicy(env.action_spec(), "
            "batch_size=env.num_envs), which takes env_ids."
        )
    batch_size = env.batch_size if env.batched else None
    return RandomActions(env.action_spec(), rng, batch_size, env)


class RandomPolicy:
    """Draws random actions that depend only on the seed, the row and the step.

    With one generator for all rows, a row's action would depend on which rows drew
    before it. Here neither earlier calls nor other rows matter.

    Called with time steps, it counts each row's steps itself. A row at a `LAST` uses no
    action, so that is not counted. So the actions are the same in every autoreset
    order, for any number of workers, and for rows that answer in any order.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch(batch_size=3, seed=1)
        >>> policy = RandomPolicy(env.action_spec(), seed=7, batch_size=3)
        >>> actions = policy(env.reset())
        >>> actions
        array([2, 0, 2])
        >>> int(policy.action(step=0, row=1)), policy.steps
        (0, array([1, 1, 1]))
    """

    def __init__(
        self, action_spec: NestedSpec, seed: Seed = None, batch_size: int | None = None
    ) -> None:
        """Prepares the policy.

        Args:
            action_spec: The specs of one row's action.
            seed: The seed of the actions: one integer, from which row `i` gets the same
                seed in a batch of any size, or one seed per row; `None` differs each
                time.
            batch_size: The number of rows; `None` for a single environment.
        """
        try:
            self._spec = checked_spec(action_spec, "action_spec is")
        except TypeError:
            if is_environment(action_spec) or is_of_library(action_spec):
                raise TypeError(
                    "RandomPolicy takes the specs of an action, such as "
                    "env.action_spec(); random_actions(env) takes an environment."
                ) from None
            raise
        self._structure = nest.Structure(action_spec)
        self._batch_size = batch_size
        if batch_size is None:
            seeds = checked_seeds(seed, 1)
        else:
            seeds = seed_per_row(seed, batch_size)
        fresh = np.random.SeedSequence().generate_state(len(seeds)).tolist()
        self._seeds = [
            new if own is None else own for own, new in zip(seeds, fresh, strict=True)
        ]
        # How many actions each row has taken. Set it to continue from elsewhere.
        self.steps: Array = np.zeros(len(seeds), np.int64)

    def action(self, step: int, row: int = 0, *, mask: Any = None) -> NestedArray:
        """Returns the action of a row in a step, both counted from 0.

        The result is the same for every call.

        Args:
            step: How many actions the row has taken before.
            row: The row of a batch.
            mask: The allowed choices, as in `sample_spec_nest`.
        """
        key = np.random.SeedSequence(self._seeds[row], spawn_key=(_BRANCH, step))
        return sample_spec_nest(self._spec, np.random.default_rng(key), mask=mask)

    def __call__(
        self,
        time_step: TimeStep,
        env_ids: Sequence[int] | Array | None = None,
        *,
        mask: Any = None,
    ) -> NestedArray:
        """Returns an action for each row of a time step, and counts it.

        Args:
            time_step: The rows' current time step.
            env_ids: The batch's rows in this time step, as `recv` returns them; `None`
                for all.
            mask: The allowed choices, with a row for each of these rows.
        """
        step_type = as_array(time_step.step_type)
        if self._batch_size is None:
            (own,) = self._masks(time_step, mask, 1)
            action = self.action(int(self.steps[0]), mask=own)
            self.steps = self.steps + (step_type != _LAST)
            return action
        rows = np.arange(self._batch_size) if env_ids is None else np.asarray(env_ids)
        check_env_ids(env_ids, rows, self._batch_size)
        if step_type.shape != rows.shape:
            raise ValueError(
                f"RandomPolicy was given a time step of shape {step_type.shape}, and "
                f"there are {rows.size} rows: give it batch_size, or env_ids for some."
            )
        masks = self._masks(time_step, mask, rows.size)
        actions = [
            self.action(int(self.steps[row]), row, mask=own)
            for row, own in zip(rows.tolist(), masks, strict=True)
        ]
        self.steps = self.steps.copy()
        self.steps[rows] += step_type != _LAST
        return nest.map_structure(lambda *leaves: np.stack(leaves), *actions)

    def _masks(self, time_step: TimeStep, mask: Any, rows: int) -> list[Any]:
        """Splits the mask of all rows into one mask per row."""
        if mask is None or self._batch_size is None:
            return [mask] * rows
        leaves = self._structure.flatten(mask)
        return [
            self._structure.unflatten([_of_row(leaf, row) for leaf in leaves])
            for row in range(rows)
        ]


def _of_row(mask: Any, row: int) -> Any:
    if isinstance(mask, list | tuple):  # one for each element of the spec
        return [np.asarray(own)[row] for own in mask]
    return None if mask is None else np.asarray(mask)[row]


class RandomActions(RandomPolicy):
    """Draws random actions, for choices only among the legal ones.

    Attributes:
        env: The environment whose info is read; `None` reads only observations.
    """

    def __init__(
        self,
        action_spec: NestedSpec,
        rng: Seed | RandomSource = None,
        batch_size: int | None = None,
        env: Any = None,
    ) -> None:
        """Prepares the policy; `random_actions` makes it for an environment."""
        is_generator = isinstance(rng, np.random.Generator | np.random.RandomState)
        spec = nest.map_structure(moderate, action_spec)
        super().__init__(spec, 0 if is_generator else rng, batch_size)  # type: ignore[arg-type]  # it is a seed
        self._rng: Any = rng if is_generator else None
        self.env = env

    def __call__(
        self,
        time_step: TimeStep,
        env_ids: Sequence[int] | Array | None = None,
        *,
        mask: Any = None,
    ) -> NestedArray:
        """Returns an action for each row of a time step.

        Args:
            time_step: The time step of the rows.
            env_ids: The batch's rows in this time step; `None` for all.
            mask: The allowed choices, instead of the legal ones.
        """
        if self._rng is None:
            return super().__call__(time_step, env_ids, mask=mask)
        step_type = np.asarray(time_step.step_type)
        if mask is None:
            masks = self._masks(time_step, None, step_type.size)
            mask = masks[0] if self._batch_size is None else self._stacked(masks)
        dims = () if self._batch_size is None else step_type.shape
        return sample_spec_nest(self._spec, self._rng, dims, mask=mask)

    def _masks(self, time_step: TimeStep, mask: Any, rows: int) -> list[Any]:
        if mask is not None:
            return super()._masks(time_step, mask, rows)
        info: Any = None
        masks: list[Any] = []
        for row in [None] if self._batch_size is None else range(rows):
            found = list(_legal(self._spec, time_step.observation, row))
            if not found and self.env is not None:
                info = self._info() if info is None else info
                of_row = isinstance(info, list) and row is not None
                place = (info[row], None) if of_row else (info, row)
                found = list(_legal(self._spec, *place))
            leaves: list[Any] = [None] * len(self._structure.leaves)
            for leaf, legal in found:
                # At an end nothing is legal, and the action is ignored.
                leaves[leaf] = legal | ~legal.any(-1, keepdims=True)
            masks.append(self._structure.unflatten(leaves) if found else None)
        return masks

    def _info(self) -> Any:
        # An info that cannot be read names no legal actions.
        with contextlib.suppress(Exception):
            return self.env.get_info()
        return {}

    def _stacked(self, masks: Sequence[Any]) -> Any:
        """Combines the masks of all rows; a row without a mask allows everything."""
        if all(mask is None for mask in masks):
            return None
        nothing = [None] * len(self._structure.leaves)
        rows = [
            nothing if mask is None else self._structure.flatten(mask) for mask in masks
        ]
        leaves: list[Any] = []
        for column in zip(*rows, strict=True):
            known = next((mask for mask in column if mask is not None), None)
            leaves.append(
                None
                if known is None
                else np.stack(
                    [np.ones_like(known) if mask is None else mask for mask in column]
                )
            )
        return self._structure.unflatten(leaves)


def names_legal_actions(values: Any) -> bool:
    """True if a nest of values or specs has an entry that names legal actions.

    Example:
        >>> names_legal_actions([{"mask": 1}]), names_legal_actions({"board": 1})
        (True, False)
    """
    if isinstance(values, Mapping):
        return any(name in values for name in _LEGAL) or any(
            map(names_legal_actions, values.values())
        )
    if isinstance(values, list | tuple):
        return any(map(names_legal_actions, values))
    return False


def _legal(
    spec: NestedSpec, source: Any, row: int | None, first: int = 0
) -> Iterator[tuple[int, Array]]:
    """Yields leaves of an action with the masks of legal choices from a source.

    Args:
        spec: The specs of an action, or of part of it.
        source: The observation or the info, or its part of the same name.
        row: Its row; `None` without a batch.
        first: The index of the part's first leaf.
    """
    if isinstance(source, Mapping):
        for name in _LEGAL:
            found = list(_given(spec, source.get(name), row, first, "mask" in name))
            if found:
                yield from found
                return
    for key, part, leaf in _parts(spec, first):
        if _has(source, key):
            yield from _legal(part, source[key], row, leaf)


def _given(
    spec: NestedSpec, given: Any, row: int | None, first: int, is_mask: bool
) -> Iterator[tuple[int, Array]]:
    """Yields the leaves of an action to which masks or lists apply."""
    if given is None:
        return
    if isinstance(given, Mapping | tuple) and nest.is_nested(spec):
        for key, part, leaf in _parts(spec, first):
            if _has(given, key):
                yield from _given(part, given[key], row, leaf, is_mask)
    else:
        masks = [_mask(leaf, given, row, is_mask) for leaf in nest.flatten(spec)]
        fitting = [leaf for leaf, mask in enumerate(masks) if mask is not None]
        # One mask beside an action of several parts applies to one of them.
        for leaf in fitting if len(fitting) == 1 else ():
            yield first + leaf, masks[leaf]  # type: ignore[misc]  # it fits


def _parts(spec: NestedSpec, first: int) -> Iterator[tuple[Any, NestedSpec, int]]:
    """Yields the keys and parts of a nest, each with the index of its first leaf."""
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
    """Returns the mask of a leaf's legal choices; `None` if none applies to it."""
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
    # [0, 1] may also be a list of two choices.
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
            # In lists, elements are stacked, not the lists.
            is_list = isinstance(given, list | tuple)
            part = [item[row] for item in given] if is_list else given[row]
        return np.asarray(list(part) if isinstance(part, set | frozenset) else part)
    except (IndexError, KeyError, TypeError, ValueError):
        return np.array(None)


def moderate(spec: Any) -> Any:
    """Limits floats without bounds, because actions of 1e38 break any dynamics.

    Args:
        spec: The spec of one leaf of an action; specs of other dtypes are returned
            unchanged.

    Returns:
        The spec with bounds: a missing bound is 1 away from zero, or from the other.

    Example:
        >>> spec = BoundedArraySpec((), np.float32, 3.0, np.inf)
        >>> moderate(spec).minimum, moderate(spec).maximum
        (array(3., dtype=float32), array(4., dtype=float32))
    """
    if not is_continuous(spec):
        return spec
    bounded = BoundedArraySpec.from_spec(spec)
    low, high = bounded.minimum, bounded.maximum
    limit = min(float(np.finfo(spec.dtype).max), _LARGE)
    least, most = np.minimum(high, 0) - 1, np.maximum(low, 0) + 1
    low = np.where(low <= -limit, least, low)
    high = np.where(high >= limit, most, high)
    return bounded.replace(minimum=low, maximum=high)
