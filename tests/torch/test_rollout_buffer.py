"""Rollouts of episodes that are known beforehand, under all orders and paces."""

from __future__ import annotations

import functools
import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envkit
from envkit import AsyncParallelPyEnvironment, BatchedPyEnvironment
from envkit.errors import CallOrderError, SpecError, SpecMismatchError
from envkit.parallel import ParallelPyEnvironment, RestartPolicy
from envkit.testing import CountingEnv, CrashingEnv, chaos
from envkit.wrappers import EpisodeLimit
from tests.bandits import Bandit
from tests.torch.torch_games import (
    TERMINATED,
    TRUNCATED,
    Episode,
    Episodes,
    choice,
    devices,
    known_transitions,
    value,
)

torch = pytest.importorskip("torch", reason="torch is not installed")

from envkit.torch import RolloutBuffer, TorchEnvironment  # noqa: E402

ORDERS = ["next_step", "same_step", "disabled"]
EPISODES = st.lists(
    st.builds(Episode, st.integers(1, 5), st.sampled_from([TERMINATED, TRUNCATED])),
    min_size=1,
    max_size=3,
)
MIXED = [
    [Episode(3, TRUNCATED), Episode(1, TERMINATED)],
    [Episode(2, TERMINATED), Episode(4, TRUNCATED)],
    [Episode(1, TRUNCATED)],
]


def policy(time_step, env_ids=None):
    """Acts as the known transitions do, and tells what observations are worth."""
    numbers = time_step.observation["number"]
    actions = torch.tensor([choice(number) for number in numbers.tolist()])
    worth = torch.tensor([value(number) for number in numbers.tolist()])
    seen = time_step.observation["pair"].clone()
    return actions.to(numbers.device), {"value": worth, "seen": seen}


def makers(rows):
    return [
        functools.partial(Episodes, episodes, 1000 * row)
        for row, episodes in enumerate(rows)
    ]


def batched(rows):
    return BatchedPyEnvironment([make() for make in makers(rows)], multithreading=False)


def pooled(rows):
    return ParallelPyEnvironment(makers(rows), backend="inline", zero_copy=True)


def at_their_pace(rows):
    return AsyncParallelPyEnvironment(makers(rows), backend="inline")


KINDS = {"batch": batched, "pool": pooled, "asynchronous": at_their_pace}


def of_row(transitions, row):
    """Returns what a row has made, as known transitions."""
    valid = transitions.valid[:, row].cpu().numpy()
    columns = (
        transitions.observation["number"],
        transitions.action,
        transitions.reward,
        transitions.discount,
        transitions.next_observation["number"],
        transitions.is_last,
    )
    return list(zip(*(c[:, row].cpu().numpy()[valid] for c in columns), strict=True))


def expected_advantages(made, discount, lam):
    """Spells out the advantages of transitions that follow each other."""
    found = []
    for start in range(len(made)):
        total, weight = 0.0, 1.0
        for one in made[start:]:
            follows = discount * one.discount * value(one.next_observation)
            total += weight * (one.reward + follows - value(one.observation))
            if one.is_last:
                break
            weight *= lam * discount * one.discount
        found.append(total)
    return found


def expected_returns(made, discount, steps):
    """Does the same for returns of some steps."""
    found = []
    for start in range(len(made)):
        total, weight = 0.0, 1.0
        for one in made[start : start + steps]:
            total += weight * one.reward
            weight *= discount * one.discount
            follows = value(one.next_observation)
            if one.is_last:
                break
        found.append(total + weight * follows)
    return found


def check_rollouts(env, rows, steps, count=None):
    """Checks that three rollouts have all that is known, in order, and nothing else."""
    buffer = RolloutBuffer(env, steps)
    known = [
        known_transitions(episodes, 1000 * row) for row, episodes in enumerate(rows)
    ]
    for _ in range(3):
        buffer.collect(env, policy, count=count)
        transitions = buffer.transitions(discount=0.9, lam=0.7)
        in_steps = buffer.transitions(discount=0.9, n_steps=3)
        for row in range(len(rows)):
            found = of_row(transitions, row)
            expected = list(itertools.islice(known[row], len(found)))
            np.testing.assert_allclose(np.array(found), np.array(expected))
            valid = transitions.valid[:, row]
            np.testing.assert_allclose(
                transitions.advantages[valid, row].cpu(),
                expected_advantages(expected, 0.9, 0.7),
                rtol=1e-4,
                atol=1e-3,
            )
            np.testing.assert_allclose(
                in_steps.returns[valid, row].cpu(),
                expected_returns(expected, 0.9, 3),
                rtol=1e-4,
                atol=1e-3,
            )
            worth = [value(one.observation) for one in expected]
            np.testing.assert_allclose(
                transitions.returns[valid, row].cpu(),
                np.add(expected_advantages(expected, 0.9, 0.7), worth),
                rtol=1e-4,
                atol=1e-3,
            )
        assert not transitions.advantages[~transitions.valid].any()
        assert torch.equal(transitions.extras["seen"], transitions.observation["pair"])
        if env.autoreset.value != "next_step":
            assert transitions.valid.all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=10)
@given(rows=st.lists(EPISODES, min_size=1, max_size=3), steps=st.integers(1, 7))
def test_a_rollout_has_each_transition_once_with_its_advantage(
    kind, order, rows, steps
):
    with TorchEnvironment(KINDS[kind](rows)) as env:
        env.autoreset = order
        check_rollouts(env, rows, steps)


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_is_the_same_on_every_device(kind, order, device):
    with TorchEnvironment(KINDS[kind](MIXED), device) as env:
        env.autoreset = order
        check_rollouts(env, MIXED, steps=6)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_rows_of_threads_step_at_their_own_pace(order, count):
    pool = AsyncParallelPyEnvironment(makers(MIXED), backend="thread", num_workers=3)
    with TorchEnvironment(pool) as env:
        env.autoreset = order
        check_rollouts(env, MIXED, steps=6, count=count)


def test_the_transition_after_an_end_is_not_valid():
    with TorchEnvironment(batched([[Episode(2, TERMINATED)]])) as env:
        buffer = RolloutBuffer(env, 6)
        buffer.collect(env, policy)
        transitions = buffer.transitions()

    assert [True, True, False, True, True, False] == transitions.valid[:, 0].tolist()
    assert [False, True, False] * 2 == transitions.is_last[:, 0].tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_collect_returns_the_received_time_steps(kind, order):
    with TorchEnvironment(KINDS[kind]([[Episode(2, TRUNCATED)]])) as env:
        env.autoreset = order
        buffer = RolloutBuffer(env, 4)
        shown = buffer.collect(env, policy)

        types = [int(time_step.step_type) for time_step in shown]
        numbers = [float(time_step.observation["number"]) for time_step in shown]
        rewards = [float(time_step.reward) for time_step in shown]

    is_next = order == "next_step"
    assert types == ([1, 2, 0, 1] if is_next else [1, 2, 1, 2])
    assert numbers == ([2.0, 3.0, 4.0, 5.0] if is_next else [2.0, 3.0, 5.0, 6.0])
    assert rewards == [
        0.5 * number + choice(number) if number else 0.0
        for number in ([1, 2, 0, 4] if is_next else [1, 2, 4, 5])
    ]
    assert shown[-1].reward == shown[3].reward
    assert 2 == len(shown[1:3])


def test_a_policy_may_return_only_actions_and_numpy_arrays():
    env = TorchEnvironment(envkit.make("Catch", batch_size=3, seed=1))
    buffer = RolloutBuffer(env, 12)
    buffer.collect(env, envkit.random_actions(env, 7))
    transitions = buffer.transitions(lam=None)

    assert transitions.advantages is None
    assert transitions.returns is None
    assert (12, 3) == tuple(transitions.action.shape)


def test_a_nest_of_actions_is_kept():
    class Nested(CountingEnv):
        def action_spec(self):
            return {"a": super().action_spec(), "b": (super().action_spec(),)}

    env = TorchEnvironment(BatchedPyEnvironment([Nested(), Nested()]))
    buffer = RolloutBuffer(env, 3)
    ones = torch.ones(2, dtype=torch.int32)
    with env:
        buffer.collect(env, lambda time_step: {"a": ones, "b": (0 * ones,)})

    action = buffer.transitions(lam=None).action
    assert torch.ones(3, 2).equal(action["a"].float())
    assert not action["b"][0].any()


def test_minibatches_have_each_valid_transition_once_an_epoch():
    with TorchEnvironment(batched(MIXED)) as env:
        buffer = RolloutBuffer(env, 8)
        buffer.collect(env, policy)
        transitions = buffer.transitions()
        valid = transitions.observation["number"][transitions.valid]
        draw = torch.Generator().manual_seed(1)
        batches = list(transitions.minibatches(5, epochs=2, generator=draw))

    numbers = torch.cat([batch.observation["number"] for batch in batches])
    assert sorted(2 * valid.tolist()) == sorted(numbers.tolist())
    sizes = [len(batch.valid) for batch in batches]
    assert 5 == max(sizes)
    for batch in batches:
        worth = torch.tensor([value(n) for n in batch.observation["number"].tolist()])
        assert torch.allclose(batch.returns - batch.advantages, worth, atol=1e-4)


def test_without_a_valid_transition_there_is_no_minibatch():
    inside = batched([[Episode(1, TERMINATED)]])
    with TorchEnvironment(EpisodeLimit(inside, episodes=1)) as env:
        buffer = RolloutBuffer(env, 3)
        for minibatches in (1, 0):
            buffer.collect(env, policy)
            assert minibatches == len(list(buffer.transitions().minibatches(4)))


def test_rows_past_their_episode_limit_are_not_valid():
    inside = batched([[Episode(2, TERMINATED)], [Episode(5, TRUNCATED)]])
    with TorchEnvironment(EpisodeLimit(inside, episodes=1)) as env:
        buffer = RolloutBuffer(env, 8)
        buffer.collect(env, policy)
        valid = buffer.transitions().valid

    assert [2, 5] == valid.sum(0).tolist()


def worth_of_counts(time_step, env_ids=None):
    counts = time_step.observation.float()
    return torch.zeros(len(counts)).int(), {"value": 10.0 + counts}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "pool_class", [ParallelPyEnvironment, AsyncParallelPyEnvironment]
)
def test_a_lost_episode_ends_with_the_value_of_its_last_real_state(order, pool_class):
    pool = pool_class(
        [functools.partial(CrashingEnv, crash_at=3, how="exit"), CountingEnv],
        num_workers=2,
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=0.0),
    )
    with TorchEnvironment(pool) as env:
        env.autoreset = order
        buffer = RolloutBuffer(env, 4)
        shown = buffer.collect(env, worth_of_counts)
        transitions = buffer.transitions(discount=0.5, lam=0.7)
        in_steps = buffer.transitions(discount=0.5, n_steps=3)

    # The step to the made-up end, and after NEXT_STEP the one to the next beginning.
    expected = [True, True, False, order != "next_step"]
    assert expected == transitions.valid[:, 0].tolist()
    assert transitions.valid[:, 1].all()
    # Rewards of 0, and then the value of the observation 2.
    surprises = [0.5 * 11 - 10, 0.5 * 12 - 11]
    advantages = [surprises[0] + 0.35 * surprises[1], surprises[1], 0.0]
    np.testing.assert_allclose(advantages, transitions.advantages[:3, 0], rtol=1e-5)
    np.testing.assert_allclose([0.25 * 12, 0.5 * 12, 0], in_steps.returns[:3, 0])
    # The made-up end itself is shown as the environment showed it.
    assert (2, 2) == (int(shown[2].step_type[0]), int(shown[2].observation[0]))
    assert 2 == int(transitions.next_observation[2, 0])


def test_a_bandit_that_is_lost_has_not_answered():
    class Failing(Bandit):
        def _step(self, action):
            if len(self.taken) == 2:
                os._exit(3)
            return super()._step(action)

    pool = ParallelPyEnvironment(
        [Failing],
        num_workers=1,
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=0.0),
    )
    with TorchEnvironment(pool) as env:
        buffer = RolloutBuffer(env, 4)
        buffer.collect(env, lambda time_step: torch.zeros(1).int())

    valid = buffer.transitions(lam=None).valid
    assert [True, True, False, True] == valid[:, 0].tolist()


def test_amid_kills_only_transitions_that_were_made_are_valid():
    pool = ParallelPyEnvironment(
        makers(MIXED),
        num_workers=3,
        on_worker_failure=RestartPolicy(max_restarts=99, backoff=0.0),
    )
    with TorchEnvironment(pool) as env:
        buffer = RolloutBuffer(env, 50)
        with chaos(env.pyenv, seed=5, every_steps=4) as trouble:
            buffer.collect(env, policy)
        transitions = buffer.transitions(discount=0.9, lam=0.7)

    assert trouble.log
    assert not transitions.valid.all()
    for row, episodes in enumerate(MIXED):
        known = {
            one.observation: one
            for one in itertools.islice(known_transitions(episodes, 1000 * row), 99)
        }
        found = of_row(transitions, row)
        expected = [known[one[0]] for one in found]
        np.testing.assert_allclose(np.array(found), np.array(expected))


def test_gradients_are_disabled_only_inside_the_policy():
    seen = []
    weight = torch.ones((), requires_grad=True)

    def learner(time_step):
        seen.append(torch.is_grad_enabled())
        return (1 * weight).int()[None], {"value": time_step.reward * weight}

    with TorchEnvironment(CountingEnv) as env:
        RolloutBuffer(env, 2).collect(env, learner)

    assert {False} == set(seen)
    assert torch.is_grad_enabled()


def test_rollouts_collected_in_inference_mode_can_be_learned_from():
    weight = torch.ones((), requires_grad=True)
    with ParallelPyEnvironment([CountingEnv] * 2, zero_copy=True) as pool:
        env = TorchEnvironment(pool)
        with torch.inference_mode():
            env.reset()
            buffer = RolloutBuffer(env, 3)
            buffer.collect(env, lambda time_step: torch.zeros(2, dtype=torch.int32))
        transitions = buffer.transitions(lam=None)

        standing = env.current_time_step()
        loss = (weight * transitions.discount).sum() + (
            weight * standing.discount
        ).sum()
        loss.backward()

        counted = transitions.discount.sum() + standing.discount.sum()

    assert counted > 0
    assert counted == weight.grad


def test_environments_that_fit_no_buffer_are_refused(message_of):
    env = TorchEnvironment(envkit.make("Catch", batch_size=3, seed=1))
    buffer = RolloutBuffer(env, 4)
    zeros = torch.zeros(3, dtype=torch.int64)
    episodes = TorchEnvironment(batched(MIXED))
    cases = {
        (TypeError, lambda: RolloutBuffer(env.pyenv, 3)): (
            "RolloutBuffer must be given a TorchEnvironment, got a Catch object."
        ),
        (ValueError, lambda: RolloutBuffer(env, 0)): None,
        (CallOrderError, buffer.transitions): (
            "transitions() was called before collect() had collected all steps. Call "
            "collect(env, policy) first."
        ),
        (
            ValueError,
            lambda: buffer.collect(env, lambda _: (zeros, {"value": zeros[:, None]})),
        ): (
            "The policy's 'value' must be a tensor of shape (3,), with an element for "
            "each row, got the shape (3, 1)."
        ),
        (
            ValueError,
            lambda: buffer.collect(env, lambda _: (zeros, {"log_prob": zeros[:2]})),
        ): (
            "The policy's 'log_prob' must be a tensor of shape (3, …), with an element "
            "for each row, got the shape (2,)."
        ),
        (
            ValueError,
            lambda: buffer.collect(env, lambda _: zeros, count=2),
        ): (
            "count must be None for an environment in lockstep, whose rows are ready "
            "all together, got 2."
        ),
        (
            ValueError,
            lambda: buffer.collect(
                TorchEnvironment(envkit.make("Catch", batch_size=2)), lambda _: zeros
            ),
        ): (
            "collect() was given an environment of 2 rows on cpu; the buffer was made "
            "for 3 rows on cpu."
        ),
        (
            SpecMismatchError,
            lambda: RolloutBuffer(episodes, 2).collect(env, lambda _: zeros),
        ): (
            "collect() was given an environment whose time steps have other specs than "
            "the one for which the buffer was made. Make a buffer for it."
        ),
    }
    for (kind, call), expected in cases.items():
        message = message_of(kind, call)
        assert message == (expected or message)
    buffer.collect(env, lambda _: zeros)
    assert message_of(ValueError, buffer.transitions) == (
        'Advantages need values: the policy must return actions and {"value": ...}, '
        "got only actions. For transitions without advantages call "
        "transitions(lam=None)."
    )
    names = iter(["value", "values"])
    assert message_of(
        ValueError, lambda: buffer.collect(env, lambda _: (zeros, {next(names): zeros}))
    ) == ("The policy must return the same names each time, got values after value.")
    calls = itertools.count()
    assert message_of(
        ValueError,
        lambda: buffer.collect(
            env, lambda _: (zeros, {"value": zeros}) if next(calls) < 4 else zeros
        ),
    ) == ("The policy must return the same names each time, got none after value.")
    must = (
        "The policy's action must be a tensor, an array or a list of 3 elements, one "
        "for each row, got"
    )
    for action, got in ((zeros[:2], "the shape (2,)"), (None, "None")):
        refused = message_of(
            SpecError, lambda action=action: buffer.collect(env, lambda _: action)
        )
        assert f"{must} {got}." == refused
    buffer.collect(env, lambda _: (zeros, {"value": zeros}))
    assert message_of(ValueError, lambda: buffer.transitions(lam=2)) == (
        "lam must be between 0 and 1, or None, got 2."
    )
    assert message_of(ValueError, lambda: buffer.transitions(discount=-1)) == (
        "discount must be between 0 and 1, got -1."
    )


def test_the_next_rollouts_policy_may_return_other_extras():
    env = TorchEnvironment(envkit.make("Catch", batch_size=3, seed=1))
    buffer = RolloutBuffer(env, 4)
    for kept in ({}, {"value": torch.ones(3)}, {"value": torch.ones(3).double()}):
        buffer.collect(env, lambda _, kept=kept: (torch.zeros(3).long(), kept))
        extras = buffer.transitions(lam=None).extras
        assert {name: one.dtype for name, one in kept.items()} == {
            name: one.dtype for name, one in extras.items()
        }


def test_an_aborted_rollout_is_discarded():
    calls = itertools.count()

    def tired(time_step):
        if next(calls) == 5:
            raise KeyError("tired")
        return torch.zeros(3, dtype=torch.int64)

    env = TorchEnvironment(envkit.make("Catch", batch_size=3, seed=1))
    buffer = RolloutBuffer(env, 4)
    buffer.collect(env, tired)
    with pytest.raises(KeyError):
        buffer.collect(env, tired)

    with pytest.raises(CallOrderError):
        buffer.transitions(lam=None)
    buffer.collect(env, tired)
    assert (4, 3) == tuple(buffer.transitions(lam=None).reward.shape)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [BatchedPyEnvironment, AsyncParallelPyEnvironment])
def test_every_step_of_a_bandit_is_valid(kind, order):
    if kind is BatchedPyEnvironment:
        pyenv = BatchedPyEnvironment([Bandit(), Bandit()], False, autoreset=order)
    else:
        pyenv = AsyncParallelPyEnvironment(
            [Bandit] * 2, backend="inline", autoreset=order
        )
    with TorchEnvironment(pyenv) as env:
        buffer = RolloutBuffer(env, steps=4)
        buffer.collect(env, lambda time_step, env_ids=None: time_step.observation)
        found = buffer.transitions(lam=None)
    assert found.valid.all()
    assert found.is_last.all()
    assert [[1.0, 1.0]] * 4 == found.reward.tolist()
    assert [3, 4, 5, 6] == found.action[:, 0].tolist()
