"""Holds transitions, with steps and rows, flat or in minibatches: `Transitions`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from envkit import nest
from envkit.extend import checked_size
from envkit.types import NestedArray

__all__ = ["Transitions"]


@dataclasses.dataclass(frozen=True)
class Transitions:
    """Holds the results of actions: tensors with leading dimensions of steps and rows.

    In `flat()` and `minibatches()` there is one leading dimension instead.

    Attributes:
        observation: The policy's observation.
        action: The policy's action.
        reward: The reward of the action.
        discount: The environment's discount: 0 if the episode has terminated.
        next_observation: The resulting observation; at the end of an episode, its last.
        is_last: Whether the action ended the episode.
        valid: Whether to learn from this transition. Invalid transitions are steps from
            the end of an episode to the next beginning, rows that show nothing new, and
            made-up ends of lost environments.
        extras: Other results of the policy.
        advantages: How much better than expected the action was; `None` if not
            requested.
        returns: The target for the value of the observation; `None` if not requested.
    """

    observation: NestedArray
    action: NestedArray
    reward: NestedArray
    discount: Any
    next_observation: NestedArray
    is_last: torch.Tensor
    valid: torch.Tensor
    extras: dict[str, torch.Tensor]
    advantages: torch.Tensor | None = None
    returns: torch.Tensor | None = None

    def flat(self) -> Transitions:
        """Returns only the valid transitions, one after the other.

        Example:
            >>> import envkit
            >>> from envkit.torch import RolloutBuffer, TorchEnvironment
            >>> env = TorchEnvironment(envkit.make("Catch", batch_size=3, seed=1))
            >>> buffer = RolloutBuffer(env, steps=20)
            >>> _ = buffer.collect(env, lambda time_step: torch.ones(3, dtype=int))
            >>> transitions = buffer.transitions(lam=None)
            >>> transitions.reward.shape, transitions.flat().reward.shape
            (torch.Size([20, 3]), torch.Size([54]))
        """
        return self._picked(lambda tensor: tensor[self.valid])

    def minibatches(
        self, size: int, epochs: int = 1, generator: torch.Generator | None = None
    ) -> Iterator[Transitions]:
        """Yields the valid transitions in random order, some at a time.

        Args:
            size: The size of a minibatch; the last one of an epoch has the rest.
            epochs: How many times each transition is used.
            generator: The CPU generator of the order; `None` for PyTorch's default.
        """
        checked_size("size", size)
        flat = self.flat() if self.valid.ndim > 1 else self
        for _ in range(checked_size("epochs", epochs)):
            order = torch.randperm(len(flat.valid), generator=generator)
            for places in order.to(flat.valid.device).split(size) if len(order) else ():
                yield flat._picked(functools.partial(_elements, places=places))

    def _picked(self, pick: Callable[[torch.Tensor], torch.Tensor]) -> Transitions:
        parts = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        picked: dict[str, Any] = {
            name: None if part is None else nest.map_structure(pick, part)
            for name, part in parts.items()
        }
        return Transitions(**picked)


def _elements(tensor: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return tensor[places]
