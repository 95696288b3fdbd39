"""RLlib's env runners step pools that `to_rllib` makes, and its PPO learns on one.

pytest collects this file only if it is told to: `make test-all` installs RLlib, with
the versions of other libraries that it asks for, in an environment of its own.
"""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune import register_env

from envkit import PyEnvironment, RestartPolicy, time_step
from envkit.adapters import to_rllib
from envkit.errors import ClosedError
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.testing import chaos

pytestmark = pytest.mark.filterwarnings(
    # RLlib registers each environment under the same name.
    "ignore:.*Overriding environment rllib-single-agent-env-v0:UserWarning"
)

ROWS = 8
# A random policy keeps a pole up for some 22 steps.
GOAL, ITERATIONS = 150, 40


class Counted(PyEnvironment):
    """Counts its steps, in numbers for which RLlib has a network."""

    def __init__(self, steps_per_episode):
        super().__init__()
        self._end = steps_per_episode
        self._count = 0

    def observation_spec(self):
        return ArraySpec((1,), np.float32)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        self._count = 0
        return time_step.restart(self._seen())

    def _step(self, action):
        self._count += 1
        if self._count < self._end:
            return time_step.transition(self._seen(), 1.0)
        return time_step.termination(self._seen(), 1.0)

    def _seen(self):
        return np.array([self._count], np.float32)


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are small
    ray.init(num_cpus=4, include_dashboard=False, logging_level=40)
    yield
    ray.shutdown()
    torch.set_num_threads(threads)


def config_of(creator, *, runners=0, env_config=None, restarts=True):
    register_env("envkit", creator)
    return (
        PPOConfig()
        .environment("envkit", env_config=env_config or {})
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=ROWS,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .debugging(seed=7)
        .fault_tolerance(restart_failed_sub_environments=restarts)
    )


@pytest.fixture
def built():
    """Builds algorithms, and stops them."""

    def build(config):
        found.append(config.build_algo())
        return found[-1]

    found = []
    yield build
    for algorithm in found:
        algorithm.stop()


@pytest.fixture
def runner_of():
    """Makes an env runner in this process, and stops it."""

    def make(creator, **given):
        config = config_of(creator, **given)
        found.append(SingleAgentEnvRunner(config=config, worker_index=1))
        return found[-1]

    found = []
    yield make
    for runner in found:
        runner.stop()


def pool_in(env):
    return env.unwrapped.wrapped_env()


def test_ppo_learns_cartpole(built):
    algorithm = built(
        config_of(to_rllib("CartPole-v1", num_workers=2, infos="none")).training(
            lr=0.001,
            train_batch_size_per_learner=1024,
            minibatch_size=128,
            num_epochs=6,
            vf_clip_param=1e4,
        )
    )

    returns = []
    for _ in range(ITERATIONS):
        found = algorithm.train()["env_runners"]
        returns.append(found.get("episode_return_mean", 0.0))
        if returns[-1] >= GOAL:
            break

    assert returns[-1] >= GOAL, returns
    assert 2 == len(pool_in(algorithm.env_runner.env).workers)


def test_env_runners_in_other_processes_step_their_own_pools(built):
    creator = to_rllib(Counted, num_workers=1)

    algorithm = built(
        config_of(creator, runners=2, env_config={"steps_per_episode": 5})
    )

    def look(runner):
        pool = pool_in(runner.env)
        samples = runner.sample(num_episodes=ROWS)
        return pool.workers[0].pid, [len(each) for each in samples]

    (one, lengths), (other, _) = algorithm.env_runner_group.foreach_env_runner(
        look, local_env_runner=False
    )
    assert one != other
    assert [5] * ROWS == lengths


def test_episodes_are_complete_and_keep_their_kind_of_end(runner_of):
    runner = runner_of(to_rllib(Counted, num_workers=2, steps_per_episode=3))

    episodes = runner.sample(num_episodes=2 * ROWS)

    assert 2 * ROWS == len(episodes)
    for episode in episodes:
        observations = np.ravel(episode.get_observations())
        assert [0, 1, 2, 3] == observations.tolist()
        assert episode.is_terminated
        assert not episode.is_truncated


POLICY = RestartPolicy(max_restarts=99, within=None, backoff=0.0)


def check_is_real(episodes):
    """Checks that every step of some episodes has counted, up to a real end."""
    for episode in episodes:
        observations = np.ravel(episode.get_observations())
        assert [1] * len(episode) == np.diff(observations).tolist()
        assert [1] * len(episode) == np.ravel(episode.get_rewards()).tolist()
        assert not episode.is_truncated


def test_no_sample_has_the_end_of_a_lost_episode(runner_of):
    creator = to_rllib(
        Counted, num_workers=4, steps_per_episode=9, on_worker_failure=POLICY
    )
    runner = runner_of(creator)
    pool = pool_in(runner.env)
    with chaos(pool, seed=3, every_steps=25) as trouble:
        whole = runner.sample(num_episodes=12 * ROWS)
        check_is_real(whole)
        assert {9} == {len(episode) for episode in whole}
        assert 12 * ROWS == runner.get_metrics()["num_episodes"].peek()
        for _ in range(10):
            check_is_real(runner.sample(num_timesteps=4 * ROWS))

    assert trouble.log
    # It is the same pool all the time, with the same count of restarts.
    assert pool_in(runner.env) is pool
    assert pool.statistics().restarts == len(trouble.log)


def test_without_restarts_a_loss_ends_the_sample(runner_of):
    creator = to_rllib(
        Counted, num_workers=2, steps_per_episode=10**6, on_worker_failure=POLICY
    )
    runner = runner_of(creator, restarts=False)
    runner.sample(num_timesteps=2 * ROWS)
    pool = pool_in(runner.env)
    os.kill(pool.workers[0].pid, signal.SIGKILL)

    with pytest.raises(RuntimeError) as raised:
        runner.sample(num_timesteps=10**6)

    assert "restart_failed_sub_environments=True" in str(raised.value.__cause__)
    runner.stop()
    with pytest.raises(ClosedError):
        pool.step(np.zeros(ROWS, np.int64))
