"""What `to_sb3` makes goes through the real Stable-Baselines3, which brings PyTorch.

pytest collects this file only if it is told to: `make test-all` installs the library
and does. The examples of this file's docstrings are collected without it.
"""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment, RestartPolicy
from envkit.adapters import GymnasiumWrapper, PyToGymnasium
from envkit.adapters.gymnasium.vector import (
    GymnasiumVectorWrapper,
)
from envkit.adapters.sb3 import DropLostSteps, to_sb3
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.losses import Loss
from envkit.wrappers import (
    PyEnvironmentBaseWrapper,
    RecordEpisodeStatistics,
    TimeLimit,
)
from tests.adapters.sb3_games import Dials, Seeing, Switches, Walk

ROWS = 3


def make_cart_pole():
    return gymnasium.make("CartPole-v1", max_episode_steps=12)


def make_pendulum():
    return gymnasium.make("Pendulum-v1", max_episode_steps=7)


def wrapped(make):
    return GymnasiumWrapper(make())


def batch_of(make):
    envs = [wrapped(make) for _ in range(ROWS)]
    return BatchedPyEnvironment(envs, multithreading=False)


def pool_of(make, **options):
    return ParallelPyEnvironment([functools.partial(wrapped, make)] * ROWS, **options)


def vector_of(make, mode):
    vector_env = gymnasium.vector.SyncVectorEnv([make] * ROWS, autoreset_mode=mode)
    return GymnasiumVectorWrapper(vector_env)


def theirs(make):
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([make] * ROWS)


def played(envs, steps=50):
    envs.seed(5)
    envs.action_space.seed(3)
    results = [(envs.reset(),)]
    for _ in range(steps):
        actions = np.array([envs.action_space.sample() for _ in range(ROWS)])
        results.append(envs.step(actions))
    envs.close()
    return results


def expect_alike(ours, theirs):
    if isinstance(theirs, np.ndarray):
        assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape)
        np.testing.assert_array_equal(theirs, ours)
    elif isinstance(theirs, dict):
        assert theirs.keys() == ours.keys()
        for key, value in theirs.items():
            expect_alike(ours[key], value)
    elif isinstance(theirs, list | tuple):
        assert len(theirs) == len(ours)
        for pair in zip(ours, theirs, strict=True):
            expect_alike(*pair)
    else:
        assert theirs == ours


@pytest.mark.parametrize("make", [make_cart_pole, make_pendulum])
@pytest.mark.parametrize(
    "make_envs",
    [
        batch_of,
        functools.partial(pool_of, backend="inline"),
        functools.partial(pool_of, num_workers=2),
        functools.partial(vector_of, mode="SameStep"),
        functools.partial(vector_of, mode="Disabled"),
    ],
    ids=["batch", "pool", "processes", "same step", "disabled"],
)
def test_results_match_sb3_s_own_vector_environment(make_envs, make):
    """Of the same environments of Gymnasium, with the same seeds and actions."""
    expect_alike(played(to_sb3(make_envs(make))), played(theirs(make)))


def test_to_sb3_returns_a_vec_env():
    from stable_baselines3.common.vec_env import VecEnv

    envs = to_sb3(CartPole(batch_size=2))
    assert isinstance(envs, VecEnv)
    assert envs.unwrapped is envs


def test_sb3_wrappers_accept_it():
    from stable_baselines3.common import vec_env

    envs = to_sb3(BatchedPyEnvironment([Walk(), Walk()]))
    stack = vec_env.VecFrameStack(
        vec_env.VecNormalize(vec_env.VecMonitor(vec_env.VecCheckNan(envs))), 3
    )
    first = stack.reset()

    episodes = []
    for _ in range(30):
        observations, _, _, infos = stack.step(np.array([0, 2]))
        episodes += [info["episode"] for info in infos if "episode" in info]

    assert (2, 6) == first.shape == observations.shape
    assert len(episodes) > 3
    assert all(episode["l"] <= 6 for episode in episodes)


def test_render_tiles_the_pictures_of_all_rows():
    envs = to_sb3(BatchedPyEnvironment([Walk() for _ in range(3)]))
    envs.reset()
    assert (8, 12, 3) == envs.render().shape


def test_evaluate_policy_accepts_it():
    from stable_baselines3.common.evaluation import evaluate_policy

    class Always:
        def predict(self, observations, state=None, **options):
            return np.ones(len(observations), int), state

    mean, spread = evaluate_policy(
        Always(), to_sb3(BatchedPyEnvironment([Walk(), Walk()])), 4, warn=False
    )

    # Five steps with a reward of 1, and a last one with 5.
    assert (10.0, 0.0) == (mean, spread)


@pytest.mark.parametrize("kind", [Bandit, CartPole, Catch, GridWorld, TicTacToe, Walk])
def test_check_env_of_sb3_finds_no_fault(kind):
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(PyToGymnasium(kind()), skip_render_check=True)

    # Of what its networks take it has opinions. `to_sb3` counts actions from 0.
    opinions = ("unconventional shape", "resolution for an image", "non-zero start")
    remarks = [str(one.message) for one in caught]
    assert [] == [
        text for text in remarks if not any(part in text for part in opinions)
    ]


@pytest.fixture
def one_thread():
    """Has PyTorch compute in one thread: with networks this small more take longer."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pole(seed, limit=200):
    return CartPole(seed=seed, max_episode_steps=limit)


def poles_in_processes():
    makers = [functools.partial(pole, seed) for seed in range(8)]
    return ParallelPyEnvironment(makers, num_workers=2)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "make_envs",
    [lambda: CartPole(batch_size=8, seed=1, max_episode_steps=200), poles_in_processes],
    ids=["batch", "pool of processes"],
)
def test_ppo_learns_to_balance_a_pole(make_envs):
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    envs = VecMonitor(to_sb3(make_envs(), infos="final"))
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=64,
        batch_size=128,
        n_epochs=6,
        learning_rate=3e-3,
        seed=1,
        device="cpu",
    )
    model.learn(512)
    before = np.mean([episode["r"] for episode in model.ep_info_buffer])
    model.learn(4000, reset_num_timesteps=False)

    assert np.mean([episode["r"] for episode in model.ep_info_buffer]) > 1.5 * before
    envs.close()


@pytest.mark.usefixtures("one_thread")
def test_ppo_sees_every_episode_once():
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecMonitor

    class Listening(BaseCallback):
        episodes: list[tuple[float, int]] = []  # noqa: RUF012  # one for all is fine

        def _on_step(self):
            ended = self.locals["dones"]
            found = [info.get("episode") for info in self.locals["infos"]]
            assert ended.tolist() == [episode is not None for episode in found]
            self.episodes += [(one["r"], one["l"]) for one in found if one]
            return True

    # Each step of a pole is worth 1, and the limit is 10 steps.
    limited = [functools.partial(pole, seed, 10) for seed in range(3)]
    envs = VecMonitor(to_sb3(ParallelPyEnvironment(limited, num_workers=2)))
    model = PPO("MlpPolicy", envs, n_steps=40, batch_size=40, n_epochs=1, device="cpu")
    model.learn(120, callback=Listening())

    assert len(Listening.episodes) >= 12
    assert all(reward == length <= 10 for reward, length in Listening.episodes)
    envs.close()


@pytest.mark.parametrize("kind", [Walk, Seeing, Switches, Dials])
def test_ppo_accepts_every_kind_of_observation_and_action(kind):
    from stable_baselines3 import PPO

    policy = "MultiInputPolicy" if kind is Seeing else "MlpPolicy"
    envs = to_sb3(BatchedPyEnvironment([kind(), kind()]))
    model = PPO(policy, envs, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    assert 64 == model.learn(64).num_timesteps


def test_dqn_learns_from_a_pool():
    from stable_baselines3 import DQN

    with ParallelPyEnvironment([Catch] * 2, backend="inline") as env:
        model = DQN("MlpPolicy", to_sb3(env), learning_starts=20, device="cpu")
        assert model.learn(100).num_timesteps >= 100


# The programs of the guide.

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "page", ["adapters/stable_baselines3.md", "coming_from_stable_baselines3.md"]
)
def test_the_program_in_the_docs_learns_and_logs_episode_returns(page, capsys):
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    programs = [code for kind, code in blocks if kind == "text"]
    (program,) = programs
    setup = next(code for kind, code in blocks if kind == "python")
    # One rollout is 16,384 steps, after which it logs.
    scope = {}
    exec(setup + program.replace("learn(50_000)", "learn(1_000)"), scope)

    episodes = [(one["r"], one["l"]) for one in scope["model"].ep_info_buffer]
    assert len(episodes) > 50
    assert all(reward == length >= 8 for reward, length in episodes)
    mean = np.mean([reward for reward, _ in episodes])
    (logged,) = re.findall(r"ep_rew_mean +\| (\S+)", capsys.readouterr().out)
    assert mean == pytest.approx(float(logged), rel=0.01)
    scope["env"].close()


@pytest.mark.parametrize("infos", ["all", "final"])
@pytest.mark.parametrize("where", ["around", "in workers"])
def test_episode_statistics_come_under_sb3_s_names_at_the_end(where, infos):
    if where == "around":
        env = RecordEpisodeStatistics(pool_of(make_cart_pole, backend="inline"))
    else:
        makers = [lambda: RecordEpisodeStatistics(wrapped(make_cart_pole))] * ROWS
        env = ParallelPyEnvironment(makers, num_workers=2)
    envs = to_sb3(env, infos=infos)
    envs.seed(5)
    envs.reset()
    found = 0
    for _ in range(40):
        _, _, dones, infos_now = envs.step(np.ones(ROWS, int))
        assert dones.tolist() == ["episode" in info for info in infos_now]
        for info in infos_now:
            if "episode" in info:
                found += 1
                assert ["l", "r", "t"] == sorted(info["episode"])
                assert info["episode"]["r"] == info["episode"]["l"] >= 8
    envs.close()
    assert found >= ROWS


# Pictures and wrappers.


def test_render_matches_sb3_s_tiled_picture():
    def drawn():
        return gymnasium.make("CartPole-v1", render_mode="rgb_array")

    ours, reference = to_sb3(pool_of(drawn, backend="inline")), theirs(drawn)
    for envs in (ours, reference):
        envs.seed(3)
        envs.reset()

    assert (800, 1200, 3) == ours.render("rgb_array").shape
    np.testing.assert_array_equal(
        reference.render("rgb_array"), ours.render("rgb_array")
    )
    for envs in (ours, reference):
        envs.close()


def test_env_is_wrapped_finds_a_monitor_in_workers():
    from stable_baselines3.common.monitor import Monitor

    makers = [
        lambda: GymnasiumWrapper(Monitor(make_cart_pole())),
        lambda: GymnasiumWrapper(make_cart_pole()),
        lambda: TimeLimit(GymnasiumWrapper(Monitor(make_cart_pole())), 5),
    ]
    envs = to_sb3(ParallelPyEnvironment(makers, num_workers=2))

    assert [True, False, True] == envs.env_is_wrapped(Monitor)
    assert [True, False] == envs.env_is_wrapped(Monitor, [2, 1])
    assert [False, False, True] == envs.env_is_wrapped(TimeLimit)
    envs.close()


def test_set_attr_sets_attributes_of_chosen_rows_in_workers():
    envs = to_sb3(ParallelPyEnvironment([Walk] * ROWS, num_workers=2))
    envs.set_attr("level", 5, indices=[0, 2])
    assert [5, 1, 5] == envs.get_attr("level")
    envs.close()


# Lost environments.


class Fragile(PyEnvironmentBaseWrapper):
    """Fails in its fifth step, long before an episode of CartPole ends."""

    def __init__(self):
        super().__init__(CartPole())
        self._steps = 0

    def _step(self, action):
        self._steps += 1
        if self._steps == 5:
            raise RuntimeError("this environment is lost")
        return super()._step(action)


def fragile(**options):
    """Makes a `VecEnv` whose row 0 loses every episode."""
    policy = RestartPolicy(max_restarts=1000, backoff=0)
    pool = ParallelPyEnvironment(
        [Fragile, CartPole], backend="inline", on_worker_failure=policy
    )
    return to_sb3(pool, **options)


def ppo(envs, **options):
    from stable_baselines3 import PPO

    sizes = {"n_steps": 32, "batch_size": 16, "n_epochs": 1, "gamma": 0.9}
    return PPO("MlpPolicy", envs, seed=1, device="cpu", **{**sizes, **options})


def watching():
    """Makes a callback that keeps the infos of lost rows, and looks at each rollout."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Watching(BaseCallback):
        def __init__(self):
            super().__init__()
            self.lost, self.rollouts = [], []

        def _on_rollout_start(self):
            self.lost = []

        def _on_step(self):
            found = self.locals
            buffer = found.get("rollout_buffer", found.get("replay_buffer"))
            self.lost += [
                (buffer.pos, row, info)
                for row, info in enumerate(found["infos"])
                if info.get("repaired")
            ]
            return True

        def _on_rollout_end(self):
            if "rollout_buffer" not in self.locals:
                return
            buffer, policy = self.model.rollout_buffer, self.model.policy
            ends = [
                float(
                    policy.predict_values(
                        policy.obs_to_tensor(info["terminal_observation"])[0]
                    ).detach()[0]
                )
                for _, _, info in self.lost
            ]
            kept = {
                name: getattr(buffer, name).copy()
                for name in (
                    "observations",
                    "actions",
                    "rewards",
                    "values",
                    "advantages",
                    "returns",
                )
            }
            self.rollouts.append(([one[:2] for one in self.lost], ends, kept))

    return Watching()


@pytest.mark.parametrize("infos", ["all", "final", "none"])
def test_the_info_of_a_lost_row_says_so(infos):
    envs = fragile(infos=infos)
    before, ends = envs.reset(), []
    for step in range(12):
        after, rewards, dones, found = envs.step(np.ones(2, int))
        assert found[1].keys().isdisjoint(["repaired", "loss"])
        if dones[0]:
            ends.append(step)
            assert found[0]["repaired"] is True
            assert isinstance(found[0]["loss"], Loss)
            assert found[0]["TimeLimit.truncated"] is True
            assert rewards[0] == 0
            np.testing.assert_array_equal(before[0], found[0]["terminal_observation"])
        before = after
    assert ends == [4, 9]
    envs.close()


def test_ppo_bootstraps_the_end_of_a_lost_episode():
    envs, callback = fragile(), watching()
    ppo(envs).learn(96, callback=callback)
    envs.close()
    compared = 0
    for lost, ends, kept in callback.rollouts:
        for (place, row), value in zip(lost, ends, strict=True):
            assert row == 0
            assert kept["rewards"][place, row] == pytest.approx(0.9 * value, abs=1e-6)
            compared += 1
    assert compared > 5


def test_ppo_does_not_learn_from_a_dropped_step():
    envs, callback = fragile(), watching()
    ppo(envs).learn(96, callback=[DropLostSteps(), callback])
    envs.close()
    compared = 0
    for lost, _, kept in callback.rollouts:
        for place, row in lost:
            if place:
                for column in kept.values():
                    np.testing.assert_array_equal(
                        column[place, row], column[place - 1, row]
                    )
                compared += 1
    assert compared > 5


def test_advantages_before_a_dropped_step_are_those_of_a_truncation():
    envs, callback = fragile(), watching()
    marks = []
    drop = DropLostSteps()
    drop_of = drop._on_rollout_end
    # The values of the lost steps, before they are overwritten.
    drop._on_rollout_end = lambda: (
        marks.append(drop.model.rollout_buffer.values.copy()),
        drop_of(),
    )
    ppo(envs).learn(96, callback=[drop, callback])
    envs.close()
    compared = 0
    for values, (lost, _, kept) in zip(marks, callback.rollouts, strict=True):
        for place, row in lost:
            if place:
                # One step before the cut: r + gamma * V(s') - V(s).
                reward, value = (
                    kept[name][place - 1, row] for name in ("rewards", "values")
                )
                expected = reward + 0.9 * values[place, row] - value
                assert kept["advantages"][place - 1, row] == pytest.approx(
                    expected, abs=1e-5
                )
                compared += 1
    assert compared > 5


def episodes_of(callback):
    from stable_baselines3.common.vec_env import VecMonitor

    envs = VecMonitor(fragile())
    model = ppo(envs)
    model.learn(256, callback=callback)
    envs.close()
    return [episode["l"] for episode in model.ep_info_buffer]


def test_vec_monitor_counts_lost_episodes_unless_they_are_dropped():
    assert 5 in episodes_of(None)
    lengths = episodes_of(DropLostSteps())
    assert lengths
    assert 5 not in lengths


@pytest.mark.parametrize("drops", [True, False])
def test_a_replay_buffer_keeps_no_dropped_step(drops):
    from stable_baselines3 import DQN

    envs = fragile()
    model = DQN(
        "MlpPolicy",
        envs,
        seed=1,
        device="cpu",
        buffer_size=64,
        learning_starts=16,
        batch_size=8,
        train_freq=4,
    )
    model.learn(300, callback=DropLostSteps() if drops else None)
    envs.close()
    buffer = model.replay_buffer
    is_same = buffer.observations == buffer.next_observations
    assert drops != bool(is_same.all(axis=-1).any())


def test_buffers_whose_steps_depend_on_each_other_are_refused():
    from stable_baselines3 import DQN

    envs = fragile()
    options = {"optimize_memory_usage": True}
    model = DQN(
        "MlpPolicy",
        envs,
        buffer_size=64,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        **options,
    )
    with pytest.raises(ValueError, match="optimize_memory_usage=True"):
        model.learn(8, callback=DropLostSteps())
    envs.close()
