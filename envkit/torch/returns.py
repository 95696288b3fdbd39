"""Advantages and returns of a rollout.

All tensors have the shape (steps, rows). `discount` multiplies the value of the next
state: it is the learner's own factor times the environment's discount, which is 0 after
a termination and positive after a truncation.
"""

from __future__ import annotations

import torch

__all__ = ["generalized_advantages", "n_step_returns"]


def generalized_advantages(
    reward: torch.Tensor,
    discount: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    *,
    last: torch.Tensor,
    valid: torch.Tensor,
    lam: float,
) -> torch.Tensor:
    """Returns the generalized advantage estimates of Schulman et al. (2015).

    At the end of an episode, the sum of later surprises stops, and the end is worth
    `next_value` times `discount`. An invalid transition has the advantage 0, and stops
    the sums of the transitions before it too.

    Args:
        reward: The reward of each action.
        discount: The factor of the next state's value.
        value: The value of the state in which each action was taken.
        next_value: The value of the resulting state, in the same episode.
        last: Whether the resulting state was the last of its episode.
        valid: Whether this is a valid transition.
        lam: How much later surprises count: 0 for one step only, 1 for all.

    Example:
        >>> ones, no = torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.bool)
        >>> generalized_advantages(
        ...     ones, 0.5 * ones, ones, ones, last=no, valid=~no, lam=1.0
        ... ).flatten()
        tensor([0.7500, 0.5000])
    """
    surprise = reward + _following(discount, next_value) - value
    surprise = torch.where(valid, surprise, 0.0)
    carried = torch.where(valid & ~last, lam * discount, 0.0)
    advantages = torch.empty_like(surprise)
    later = torch.zeros_like(surprise[0])
    for step in range(len(surprise) - 1, -1, -1):
        later = surprise[step] + carried[step] * later
        advantages[step] = later
    return advantages


def n_step_returns(
    reward: torch.Tensor,
    discount: torch.Tensor,
    next_value: torch.Tensor,
    *,
    last: torch.Tensor,
    valid: torch.Tensor,
    steps: int,
) -> torch.Tensor:
    """Returns the discounted sums of the next rewards, plus the value that follows.

    A sum has fewer rewards if the episode or the rollout ends, or before an invalid
    transition. Invalid transitions have the return 0.

    Args:
        reward: The reward of each action.
        discount: The factor of the next state's value.
        next_value: The value of the resulting state, in the same episode.
        last: Whether the resulting state was the last of its episode.
        valid: Whether this is a valid transition.
        steps: How many rewards to add.

    Example:
        >>> ones, no = torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.bool)
        >>> n_step_returns(
        ...     ones, 0.5 * ones, 8 * ones, last=no, valid=~no, steps=2
        ... ).flatten()
        tensor([3.5000, 3.5000, 5.0000])
    """
    # Whether the transition after each one belongs to the same episode.
    goes_on = torch.zeros_like(valid)
    goes_on[:-1] = ~last[:-1] & valid[1:]
    returns = reward + _following(discount, next_value)
    for _ in range(steps - 1):
        later = torch.cat([returns[1:], next_value[-1:]])
        later = torch.where(goes_on, later, next_value)
        returns = reward + _following(discount, later)
    return torch.where(valid, returns, 0.0)


def _following(discount: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    # A network's value of the state after a termination is meaningless, and may be
    # infinite or NaN, so multiplying it by 0 is not enough.
    return torch.where(discount == 0, 0.0, discount * value)
