"""Advantages and returns beside loops that spell out what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed")

from envkit.torch import generalized_advantages, n_step_returns  # noqa: E402


def slow_advantage(rollout, step, row, lam):
    """Adds up the surprises of the transitions that follow in the same episode."""
    total, weight = 0.0, 1.0
    for later in range(step, len(rollout["reward"])):
        if not rollout["valid"][later][row]:
            break
        reward, discount = (
            rollout["reward"][later][row],
            rollout["discount"][later][row],
        )
        worth = reward + discount * rollout["next_value"][later][row]
        total += weight * (worth - rollout["value"][later][row])
        if rollout["last"][later][row]:
            break
        weight *= lam * discount
    return total


def slow_return(rollout, step, row, steps):
    """Adds up rewards, and the value of where the last of them has led."""
    if not rollout["valid"][step][row]:
        return 0.0
    total, weight, follows = 0.0, 1.0, 0.0
    for later in range(step, min(step + steps, len(rollout["reward"]))):
        if not rollout["valid"][later][row]:
            break
        total += weight * rollout["reward"][later][row]
        weight *= rollout["discount"][later][row]
        follows = rollout["next_value"][later][row]
        if rollout["last"][later][row]:
            break
    return total + weight * follows


@st.composite
def rollouts(draw):
    steps, rows = draw(st.integers(1, 9)), draw(st.integers(1, 3))

    def table(values):
        row = st.lists(values, min_size=rows, max_size=rows)
        return draw(st.lists(row, min_size=steps, max_size=steps))

    numbers, sizes = st.integers(-8, 8), st.integers(0, 4)
    return {
        "reward": [[n / 4 for n in row] for row in table(numbers)],
        "discount": [[n / 4 for n in row] for row in table(sizes)],
        "value": [[n / 4 for n in row] for row in table(numbers)],
        "next_value": [[n / 4 for n in row] for row in table(numbers)],
        "last": table(st.booleans()),
        "valid": table(st.sampled_from([True, True, True, False])),
    }


def tensors(rollout, *left_out):
    return {
        name: torch.tensor(
            rows, dtype=torch.bool if name in ("last", "valid") else None
        )
        for name, rows in rollout.items()
        if name not in left_out
    }


def by_place(rollout, function, *args):
    steps, rows = len(rollout["reward"]), len(rollout["reward"][0])
    return torch.tensor(
        [[function(rollout, t, n, *args) for n in range(rows)] for t in range(steps)]
    )


@given(rollout=rollouts(), lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_advantages_are_discounted_sums_of_td_errors(rollout, lam):
    found = generalized_advantages(**tensors(rollout), lam=lam)

    assert torch.allclose(by_place(rollout, slow_advantage, lam), found, atol=1e-4)


@given(rollout=rollouts(), steps=st.integers(1, 12))
def test_n_step_returns_add_rewards_and_a_bootstrap_value(rollout, steps):
    found = n_step_returns(**tensors(rollout, "value"), steps=steps)

    assert torch.allclose(by_place(rollout, slow_return, steps), found, atol=1e-4)


@pytest.mark.parametrize("worth", [float("nan"), float("inf")])
def test_nothing_is_bootstrapped_after_a_termination(worth):
    ones, no = torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.bool)
    ended = {"last": torch.tensor([[False], [True]]), "valid": ~no}
    discount, next_value = torch.tensor([[0.5], [0.0]]), torch.tensor([[1.0], [worth]])

    advantages = generalized_advantages(
        ones, discount, ones, next_value, lam=1.0, **ended
    )
    returns = n_step_returns(ones, discount, next_value, steps=2, **ended)

    assert [[0.5], [0.0]] == advantages.tolist()
    assert [[1.5], [1.0]] == returns.tolist()
