"""Advantages and returns of a rollout: what each action was followed by.

All tensors are of shape (steps, rows). `discount` is what a learner multiplies with the
value that follows: its own factor times the environment's discount, which is 0 after a
termination and positive after a truncation.
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

    Where an episode ends, the sum of later surprises ends, and what the end is worth is
    `next_value` times `discount`. A transition that is not valid has the advantage 0,
    and the sum of the transitions before it ends there, too.

    Args:
        reward: What each action earned.
        discount: What the value that follows is worth.
        value: The value of the state in which each action was taken.
        next_value: The value of the state that came of it, in the same episode.
        last: Whether that was the last of its episode.
        valid: Whether it is a transition at all.
        lam: How much later surprises count: 0 for those of one step, 1 for all.

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
    """Returns the discounted rewards of some steps and the value that follows them.

    There are fewer where an episode ends, where the rollout ends, and before a
    transition that is not valid; those have the return 0.

    Args:
        reward: What each action earned.
        discount: What the value that follows is worth.
        next_value: The value of the state that came of it, in the same episode.
        last: Whether that was the last of its episode.
        valid: Whether it is a transition at all.
        steps: How many rewards are added.

    Example:
        >>> ones, no = torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.bool)
        >>> n_step_returns(
        ...     ones, 0.5 * ones, 8 * ones, last=no, valid=~no, steps=2
        ... ).flatten()
        tensor([3.5000, 3.5000, 5.0000])
    """
    # Whether the transition after each one is of the same episode.
    goes_on = torch.zeros_like(valid)
    goes_on[:-1] = ~last[:-1] & valid[1:]
    returns = reward + _following(discount, next_value)
    for _ in range(steps - 1):
        later = torch.cat([returns[1:], next_value[-1:]])
        later = torch.where(goes_on, later, next_value)
        returns = reward + _following(discount, later)
    return torch.where(valid, returns, 0.0)


def _following(discount: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    # What a network makes of the state after a termination means nothing, and may be
    # infinite or no number, of which 0 times is none either.
    return torch.where(discount == 0, 0.0, discount * value)
