"""Converts an environment to TorchRL: `as_torchrl`.

TorchRL resets rows itself, by a mask, so batches use `AutoReset.DISABLED`. A `LAST` and
its discount become TorchRL's three flags, and the mask of made-up ends `"repaired"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from envkit import nest
from envkit.errors import MissingDependencyError, SpecError
from envkit.extend import FLAGS, describe, rely_on_size
from envkit.policies import moderate
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.time_step import AutoReset, TimeStep
from envkit.torch.torch_environment import TorchEnvironment
from envkit.torch.transfer import tensor_dtype
from envkit.types import NestedSpec

try:
    from tensordict import TensorDict
    from torchrl.data import (
        Binary,
        Bounded,
        Categorical,
        Composite,
        MultiCategorical,
        Unbounded,
    )
    from torchrl.envs import EnvBase
except ModuleNotFoundError as error:
    missing = str(error.name).partition(".")[0]
    if missing not in ("torchrl", "tensordict"):
        raise
    raise MissingDependencyError.needed_by(
        "as_torchrl", package=missing, extra="torchrl"
    ) from error

__all__ = ["TorchRLEnvironment", "as_torchrl"]

# The keys that TorchRL stores beside observations, in the same dictionary.
_TAKEN = {
    *("action", "reward", "done", "terminated", "truncated", "next", "_reset"),
    "repaired",
}
_MASKS = ("action_mask", "mask")


def as_torchrl(env: Any, device: Any = None) -> TorchRLEnvironment:
    """Converts an environment to TorchRL; the result owns the environment.

    A batch or a pool becomes one environment with a batch dimension, whose rows TorchRL
    resets individually. A single environment becomes one without.

    A dictionary of observations keeps its keys, and a plain observation is
    `"observation"`; parts of a nested action are below `"action"`. A part of the
    observation called `action_mask` or `mask`, which marks the legal choices of the
    action, becomes a mask of booleans, and random actions obey it.

    `("next", "repaired")` is true where an environment was lost: its last transition is
    made up, and ends truncated. Give replay buffers only the others, as in
    `buffer.extend(batch[~batch["next", "repaired"].squeeze(-1)])`.

    Args:
        env: An environment, a constructor, a name that `envkit.make` takes, or a
            `TorchEnvironment`.
        device: The device of tensors; `None` for the CPU.

    Example:
        >>> env = as_torchrl("CartPole")
        >>> env.rollout(5)["next", "reward"].shape
        torch.Size([5, 1])
        >>> env.close()
    """
    is_mine = isinstance(env, TorchEnvironment)
    if is_mine and device is not None:
        raise ValueError(
            "device must be None for a TorchEnvironment, which has one, got "
            f"{device!r}."
        )
    return TorchRLEnvironment(env if is_mine else TorchEnvironment(env, device))


class TorchRLEnvironment(EnvBase):  # type: ignore[misc]  # TorchRL has no types here
    """Implements TorchRL's environment; `as_torchrl` makes it.

    Attributes:
        source: The environment inside, which takes and returns tensors.
    """

    def __init__(self, source: TorchEnvironment) -> None:
        """Takes over an environment in lockstep.

        Raises:
            ValueError: It is asynchronous, or cannot reset single rows.
            SpecError: TorchRL cannot represent its rewards.
        """
        if source.is_async:
            raise ValueError(
                "as_torchrl() needs an environment in lockstep, got "
                f"{describe(source.pyenv)}. Wrap it in envkit.Blocking first."
            )
        self_rows = () if source.is_single else (source.batch_size,)
        super().__init__(device=source.device, batch_size=torch.Size(self_rows))
        rely_on_size(self, source.pyenv)
        source.autoreset = AutoReset.DISABLED
        self.source = source
        self._place: Any = 0 if source.is_single else ...
        self._flags = all(name in source.pyenv.info_spec() for name in FLAGS)
        self._make_specs()

    def _make_specs(self) -> None:
        spec = self.source.time_step_spec()
        reward = spec.reward
        if nest.is_nested(reward) or len(reward.shape) > 1:
            raise SpecError(
                f"as_torchrl() needs one reward, or a vector of them, got {reward!r}. "
                "Turn them into one with a wrapper, such as TransformReward."
            )
        rows = self.batch_size
        self._mask_leaf: tuple[str, ...] | None = None
        observation = _by_key(spec.observation, "observation")
        if _TAKEN & set(observation):
            observation = {"observation": observation}
        self._is_below = "observation" in observation and isinstance(
            spec.observation, Mapping
        )
        self._find_mask(observation)
        flag = Categorical(2, shape=(*rows, 1), dtype=torch.bool, device=self.device)
        self.observation_spec = self._composite(observation, self._observed)
        self.observation_spec["repaired"] = flag.clone()
        action = _by_key(spec_of_action := self.source.action_spec(), "action")
        self._is_nested_action = nest.is_nested(spec_of_action)
        if self._is_nested_action:
            action = {"action": action}
        self.action_spec = self._composite(action, self._acted)
        self._action = nest.Structure(spec_of_action)
        self._action_keys = list(_keys_of(action))
        self._observation_keys = list(_keys_of(observation))
        width = reward.shape or (1,)
        self.reward_spec = Unbounded(
            (*rows, *width), dtype=tensor_dtype(reward.dtype), device=self.device
        )
        self.done_spec = Composite(
            {name: flag.clone() for name in ("done", *FLAGS)},
            shape=rows,
            device=self.device,
        )

    def _composite(self, specs: Any, make: Any, path: tuple[str, ...] = ()) -> Any:
        parts = {
            key: self._composite(spec, make, (*path, key))
            if isinstance(spec, Mapping)
            else make(spec, (*path, key))
            for key, spec in specs.items()
        }
        return Composite(parts, shape=self.batch_size, device=self.device)

    def _observed(self, spec: ArraySpec, path: tuple[str, ...]) -> Any:
        shape, dtype = (*self.batch_size, *spec.shape), tensor_dtype(spec.dtype)
        if path == self._mask_leaf:
            count = spec.shape[-1]
            return Binary(count, shape=shape, dtype=torch.bool, device=self.device)
        return _spec(spec, shape, dtype, self.device)

    def _acted(self, spec: ArraySpec, path: tuple[str, ...]) -> Any:
        rows, dtype = self.batch_size, tensor_dtype(spec.dtype)
        if dtype is None:
            raise SpecError(f"PyTorch has no tensors for an action of {spec!r}.")
        spec = moderate(spec)
        choices = _choices(spec)
        if choices is not None and choices.shape == ():
            return Categorical(
                int(choices), shape=rows, dtype=dtype, device=self.device
            )
        if choices is not None and choices.ndim == 1 and choices.size:
            # TorchRL has masks and encodings for these.
            made = MultiCategorical(
                choices.tolist(),
                dtype=dtype,
                device=self.device,
                remove_singleton=False,  # a vector of one choice stays a vector
            )
            return made.expand(*rows, *spec.shape) if rows else made
        return _spec(spec, (*rows, *spec.shape), dtype, self.device)

    def _find_mask(self, observation: Mapping[str, Any]) -> None:
        """Finds the part of the observation that marks legal choices."""
        action = self.source.action_spec()
        choices = None if nest.is_nested(action) else _choices(action)
        if choices is None or choices.shape != ():
            return
        for path in _keys_of(observation):
            spec = _get(observation, path)
            if path[-1] in _MASKS and spec.shape == (int(choices),):
                self._mask_leaf = path
                return

    # The methods that TorchRL calls.

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or self.source.is_single or bool(mask.all()):
            time_step = self.source.pyenv.reset()
        else:
            rows = mask.reshape(self.source.batch_size).cpu().numpy()
            time_step = self.source.pyenv.reset(rows)
        return self._answer(time_step, is_reset=True)

    def _step(self, tensordict: Any) -> Any:
        leaves = [tensordict.get(key) for key in self._action_keys]
        if self.source.is_single:
            leaves = [leaf[None] for leaf in leaves]
        action = self._action.unflatten(leaves)
        time_step = self.source.pyenv.step(self.source.arrays(action))
        return self._answer(time_step)

    def _answer(self, arrays: TimeStep, *, is_reset: bool = False) -> Any:
        """Returns a time step as TorchRL's dictionary."""
        # TorchRL keeps these tensors; views of a pool would change later.
        arrays = nest.map_structure(
            lambda leaf: leaf if leaf.flags.writeable else leaf.copy(), arrays
        )
        time_step = self.source.tensors(arrays)
        place = self._place
        told = TensorDict({}, batch_size=self.batch_size, device=self.device)
        leaves = nest.flatten(time_step.observation)
        for key, leaf in zip(self._observation_keys, leaves, strict=True):
            if key == self._mask_leaf:
                legal = leaf[place].bool()
                # At an end nothing may be legal, and the action is ignored.
                legal = legal | ~legal.any(-1, keepdim=True)
                self.action_spec.update_mask(legal)
                leaf = legal
            else:
                leaf = leaf[place]
            told.set(key, leaf)
        flags = zip(("done", *FLAGS, "repaired"), self._ends(time_step), strict=True)
        for name, flag in flags:
            told.set(name, flag[place].unsqueeze(-1))
        if not is_reset:
            reward = time_step.reward[place]
            told.set(
                "reward",
                reward if reward.ndim > len(self.batch_size) else reward.unsqueeze(-1),
            )
        return told

    def _ends(self, time_step: TimeStep) -> tuple[Any, Any, Any, Any]:
        """Returns whether rows are done, terminated, truncated and repaired."""
        done = time_step.is_last()
        discount = time_step.discount
        is_over = nest.first_leaf(discount) == 0
        if is_over.ndim > 1:
            is_over = is_over.flatten(1).all(1)
        terminated = done & is_over
        truncated = done & ~is_over
        repaired = torch.zeros_like(done)
        if not bool(done.any()):
            return done, terminated, truncated, repaired
        repaired |= done & self.source.repaired
        # A lost environment has no info.
        if self._flags and bool((done & ~repaired).any()):
            info = self.source.pyenv.get_info()
            terminated, truncated = (
                done & torch.from_numpy(np.asarray(info[name], bool)).to(self.device)
                for name in FLAGS
            )
        # Nothing is known of a lost environment but that its episode is cut short.
        return done, terminated & ~repaired, truncated | repaired, repaired

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self.source.pyenv.seed(seed)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Closes the inner environment too."""
        super().close(raise_if_closed=raise_if_closed)
        self.source.close()


def _by_key(spec: NestedSpec, name: str) -> dict[str, Any]:
    """Returns specs in dictionaries with text keys, as TorchRL needs them."""
    return _dictionary(spec) if nest.is_nested(spec) else {name: spec}


def _dictionary(spec: Any) -> Any:
    if not nest.is_nested(spec):
        return spec
    # In the order in which the nest is flattened.
    children = nest.step_into(spec, "")
    if isinstance(spec, Mapping):
        keys = [str(key) for key in nest.sorted_keys(spec, "")]
    elif hasattr(spec, "_fields"):
        keys = list(spec._fields)
    else:
        keys = [str(index) for index in range(len(children))]
    parts = [child for _, child in children]
    return {key: _dictionary(part) for key, part in zip(keys, parts, strict=True)}


def _keys_of(specs: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
    """Yields the keys of the leaves, in order."""
    for key, part in specs.items():
        if isinstance(part, Mapping):
            yield from _keys_of(part, (*path, key))
        else:
            yield (*path, key)


def _get(specs: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = specs
    for key in path:
        found = found[key]
    return found


def _choices(spec: Any) -> Any:
    """Returns the number of choices, if they are integers from 0 on."""
    if not isinstance(spec, BoundedArraySpec) or not is_discrete(spec):
        return None
    if (spec.minimum != 0).any():
        return None
    choices = np.asarray(spec.maximum).astype(np.int64) + 1
    if spec.shape == () or choices.ndim:
        return choices
    return np.broadcast_to(choices, spec.shape)


def _spec(spec: ArraySpec, shape: Any, dtype: Any, device: Any) -> Any:
    """Returns TorchRL's spec for arrays of any kind."""
    if dtype == torch.bool:
        return Categorical(2, shape=shape, dtype=torch.bool, device=device)
    if isinstance(spec, BoundedArraySpec):
        low = np.broadcast_to(spec.minimum, spec.shape)
        high = np.broadcast_to(spec.maximum, spec.shape)
        # TorchRL draws between bounds, so they have to be finite.
        if np.isfinite(low).all() and np.isfinite(high).all():
            bounds = [
                torch.from_numpy(np.array(bound)).to(dtype).expand(shape).clone()
                for bound in (low, high)
            ]
            return Bounded(*bounds, shape=shape, dtype=dtype, device=device)
    return Unbounded(shape, dtype=dtype, device=device)
