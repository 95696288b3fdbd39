"""`Transitions`: what came of actions, whole, flat or in minibatches."""

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
    """What came of actions: tensors with dimensions of steps and rows in front.

    Those of `flat()` and `minibatches()` have one dimension in front instead.

    Attributes:
        observation: What the policy saw.
        action: What it did.
        reward: What that earned.
        discount: What later rewards are worth: 0 where the episode has terminated.
        next_observation: What came of it: at the end of an episode its last one.
        is_last: Whether that was the end of the episode.
        valid: Whether this is a transition to learn from. A step from the end of an
            episode to the next beginning is not; nor are steps of rows that show
            nothing new, and ends that were made up for environments that were lost.
        extras: What the policy returned beside its actions.
        advantages: How much better than expected the action was; `None` if not asked.
        returns: What the value of the observation should have been; likewise.
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
        """Returns the valid transitions alone, one after the other.

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
        """Yields the valid transitions in a random order, some at a time.

        Args:
            size: How many a minibatch has; the last one of an epoch has the rest.
            epochs: How often each transition comes.
            generator: What draws the order, on the processor; `None` for PyTorch's own.
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
