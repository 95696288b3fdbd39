"""Environments as those of TorchRL, whose own check and collectors judge them."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

import envkit
from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit.errors import SpecError
from envkit.testing import CountingEnv, CrashingEnv, NestedCountingEnv
from envkit.wrappers import EpisodeLimit, TimeLimit
from tests.torch.torch_games import TERMINATED, TRUNCATED, Episode, Episodes

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchrl", reason="torchrl is not installed")

# What it warns of while it is loaded is its own affair.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.collectors import Collector
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import ActionMask, ParallelEnv, TransformedEnv
    from torchrl.envs.utils import check_env_specs

from envkit.torch import TorchEnvironment, as_torchrl  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def nested():
    makers = [NestedCountingEnv(3, nested_action=True) for _ in range(3)]
    return BatchedPyEnvironment(makers, multithreading=False)


def random_values():
    return envkit.RandomPyEnvironment(
        {
            "camera": [BoundedArraySpec((2, 3), np.uint8, 0, 255)],
            "reward": ArraySpec((), np.bool_),
            "speed": BoundedArraySpec((2,), np.float32, -1.0, [1.0, np.inf]),
        },
        BoundedArraySpec((2,), np.int32, [0, 0], [2, 5]),
        batch_size=3,
        episode_end_probability=0.3,
        seed=1,
    )


def continuous():
    return envkit.RandomPyEnvironment(
        ArraySpec((4,), np.float64),
        {"joints": BoundedArraySpec((3,), np.float32, -1.0, 1.0), "gear": GEAR},
        batch_size=2,
        episode_end_probability=0.3,
        seed=1,
    )


def one_choice():
    return envkit.RandomPyEnvironment(
        ArraySpec((4,), np.float64), BoundedArraySpec((1,), np.int64, 0, 3), seed=1
    )


GEAR = BoundedArraySpec((), np.int64, -1, 3)
GAMES = {
    "a batch": lambda: envkit.make("CartPole", batch_size=4),
    "a single one": lambda: envkit.make("CartPole"),
    "a mask": lambda: envkit.make("TicTacToe", batch_size=3),
    "a nest": nested,
    "values of all kinds": random_values,
    "actions of all kinds": continuous,
    "a vector of one choice": one_choice,
    "a pool": lambda: envkit.make("Catch", num_envs=4, backend="inline"),
    "a pool without copies": lambda: envkit.ParallelPyEnvironment(
        ["Catch"] * 4, backend="inline", zero_copy=True
    ),
}


@pytest.mark.parametrize("game", GAMES)
def test_torchrls_own_check_passes(game):
    env = as_torchrl(GAMES[game]())
    check_env_specs(env, break_when_any_done="both")
    env.close()


@pytest.mark.parametrize("game", GAMES)
def test_a_long_rollout_keeps_its_values(game):
    env = as_torchrl(GAMES[game]())
    rollout = env.rollout(60, break_when_any_done=False)
    done = rollout["next", "done"]
    assert done.any()
    assert (rollout["next", "terminated"] | rollout["next", "truncated"]).equal(done)
    # What a step returned is what the next one begins with, unless it was an end.
    kept = ~done.squeeze(-1)[..., :-1]
    for key in env.observation_keys:
        before, after = rollout["next", key], rollout[key]
        if rollout.ndim > 1:
            assert before[:, :-1][kept].equal(after[:, 1:][kept])
        else:
            assert before[:-1][kept].equal(after[1:][kept])
    env.close()


def test_rows_that_ended_are_reset_one_by_one():
    rows = [[Episode(2, TERMINATED)], [Episode(3, TRUNCATED)]]
    batch = BatchedPyEnvironment(
        [Episodes(episodes, 100 * row) for row, episodes in enumerate(rows)],
        multithreading=False,
    )
    env = as_torchrl(batch)
    rollout = env.rollout(6, break_when_any_done=False)

    def ends(name):
        return rollout["next", name][..., 0].int().tolist()

    assert [[0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]] == ends("terminated")
    assert [[0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1]] == ends("truncated")
    numbers = rollout["next", "number"].tolist()
    assert [[2, 3, 5, 6, 8, 9], [102, 103, 104, 106, 107, 108]] == numbers
    env.close()


def test_random_actions_are_legal():
    env = as_torchrl(envkit.make("TicTacToe", batch_size=8, seed=1))
    env.set_seed(1)
    torch.manual_seed(1)
    rollout = env.rollout(40, break_when_any_done=False)
    chosen = rollout["mask"].gather(-1, rollout["action"].unsqueeze(-1))

    assert chosen.all()
    assert torch.bool == rollout["mask"].dtype
    env.close()


def test_a_mask_works_with_torchrls_transform():
    env = TransformedEnv(
        as_torchrl(envkit.make("TicTacToe", batch_size=4)), ActionMask(mask_key="mask")
    )
    rollout = env.rollout(20, break_when_any_done=False)

    assert rollout["mask"].gather(-1, rollout["action"].unsqueeze(-1)).all()
    env.close()


def test_actions_are_within_their_bounds():
    env = as_torchrl(continuous())
    rollout = env.rollout(50, break_when_any_done=False)
    gear, joints = rollout["action", "gear"], rollout["action", "joints"]

    assert (-1 <= gear).all()
    assert (gear <= 3).all()
    assert (joints.abs() <= 1.0).all()
    env.close()


def test_declared_flags_report_terminations_and_truncations():
    class Both(CountingEnv):
        """Ends in both ways at once."""

        def info_spec(self):
            return {
                name: ArraySpec((), np.bool_) for name in ("terminated", "truncated")
            }

        def get_info(self):
            over = self._current_step >= 2
            return {"terminated": np.bool_(over), "truncated": np.bool_(over)}

    env = as_torchrl(lambda: Both(steps_per_episode=2))
    last = env.rollout(2)[..., -1]["next"]

    assert [True, True, True] == [
        bool(last[name]) for name in ("done", "terminated", "truncated")
    ]
    env.close()


def test_the_same_seed_gives_the_same_rollout():
    env = as_torchrl(envkit.make("Catch", batch_size=3))
    seen = []
    for _ in range(2):
        env.set_seed(5)
        torch.manual_seed(5)
        seen.append(env.rollout(20, break_when_any_done=False)["observation"])

    assert seen[0].equal(seen[1])
    env.close()


def test_torchrls_collector_runs_on_the_environment():
    env = as_torchrl(envkit.make("CartPole", batch_size=4, seed=1))
    collector = Collector(env, None, frames_per_batch=80, total_frames=240)
    batches = [batch.clone() for batch in collector]
    collector.shutdown()

    assert [(4, 20)] * 3 == [tuple(batch.shape) for batch in batches]
    observation = torch.cat([batch["observation"] for batch in batches], 1)
    following = torch.cat([batch["next", "observation"] for batch in batches], 1)
    done = torch.cat([batch["next", "done"] for batch in batches], 1)[..., 0]
    kept = ~done[:, :-1]
    assert following[:, :-1][kept].equal(observation[:, 1:][kept])
    assert done.any()


def make_catch():
    return as_torchrl(envkit.make("Catch", seed=1))


@pytest.mark.slow
@pytest.mark.heavy
def test_torchrls_processes_run_the_environment():
    env = ParallelEnv(2, make_catch)
    rollout = env.rollout(20, break_when_any_done=False)
    assert (2, 20) == tuple(rollout.shape)
    assert rollout["next", "done"].any()
    env.close()


def pool_with_losses():
    """A pool whose first row is lost in its third step, again and again."""
    make = functools.partial(CrashingEnv, crash_at=3, how="exit")
    return envkit.ParallelPyEnvironment(
        [make, functools.partial(CountingEnv, 4)],
        num_workers=2,
        on_worker_failure=envkit.RestartPolicy(max_restarts=99, backoff=0),
    )


def test_a_lost_row_is_repaired_and_truncated():
    env = as_torchrl(pool_with_losses())
    check_env_specs(env)
    env.reset()
    rollout = env.rollout(6, break_when_any_done=False)
    ends = {
        name: rollout["next", name][..., 0]
        for name in ("done", "terminated", "truncated", "repaired")
    }
    env.close()

    assert ends["repaired"][0].any()
    assert not ends["repaired"][1].any()
    lost = ends["repaired"][0]
    assert lost.equal(ends["truncated"][0])
    assert lost.equal(ends["done"][0])
    assert not ends["terminated"][0].any()
    assert ends["done"][1].equal(ends["terminated"][1])
    assert not rollout["repaired"].any()


def test_the_flags_of_a_lost_row_do_not_come_from_its_info():
    class Flagged(CrashingEnv):
        def info_spec(self):
            return {
                name: ArraySpec((), np.bool_) for name in ("terminated", "truncated")
            }

        def get_info(self):
            over = np.bool_(self._current_step >= 10)
            return {"terminated": over, "truncated": np.bool_(False)}

    pool = envkit.ParallelPyEnvironment(
        [functools.partial(Flagged, crash_at=2, how="exit")] * 2,
        num_workers=2,
        on_worker_failure=envkit.RestartPolicy(max_restarts=9, backoff=0),
    )
    env = as_torchrl(pool)
    last = env.rollout(2)[..., -1]["next"]
    env.close()

    assert last["repaired"].all()
    assert last["truncated"].all()
    assert not last["terminated"].any()


def without_lost(batch):
    return batch[~batch["next", "repaired"].squeeze(-1)]


def moves(batch):
    """Returns by how much each transition of a counting environment counted."""
    return (batch["next", "observation"] - batch["observation"]).unique().tolist()


def test_a_replay_buffer_is_given_no_lost_transition():
    collector = Collector(
        as_torchrl(pool_with_losses()), None, frames_per_batch=20, total_frames=60
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=10)
    lost = 0
    for batch in collector:
        lost += int(batch["next", "repaired"].sum())
        assert moves(batch[batch["next", "repaired"].squeeze(-1)]) in ([0], [])
        buffer.extend(without_lost(batch))
    collector.shutdown()

    assert lost
    assert len(buffer) == 60 - lost
    assert moves(buffer[:]) == [1]
    assert not buffer.sample()["next", "repaired"].any()


def test_a_collector_leaves_lost_transitions_out():
    collector = Collector(
        as_torchrl(pool_with_losses()),
        None,
        frames_per_batch=20,
        total_frames=40,
        postproc=without_lost,
    )
    batches = [batch.clone() for batch in collector]
    collector.shutdown()

    assert all(moves(batch) == [1] for batch in batches)
    assert sum(map(len, batches)) < 40


def test_values_that_torchrl_cannot_hold_are_refused(message_of):
    pool = envkit.AsyncParallelPyEnvironment([CountingEnv], backend="inline")
    with pool:
        assert message_of(ValueError, lambda: as_torchrl(pool)) == (
            "as_torchrl() needs an environment in lockstep, got an "
            "AsyncParallelPyEnvironment object. Wrap it in envkit.Blocking first."
        )
    assert message_of(
        ValueError, lambda: as_torchrl(TorchEnvironment("Catch"), device="cpu")
    ) == ("device must be None for a TorchEnvironment, which has one, got 'cpu'.")

    class Two(CountingEnv):
        """Has two rewards."""

        def reward_spec(self):
            return {"a": ArraySpec((), np.float32), "b": ArraySpec((), np.float32)}

    assert message_of(SpecError, lambda: as_torchrl(Two)).startswith(
        "as_torchrl() needs one reward, or a vector of them, got {'a': "
    )


def test_wrappers_are_kept_in_torchrl():
    env = as_torchrl(TimeLimit(envkit.make("CartPole", batch_size=2), 5))
    rollout = env.rollout(5, break_when_any_done=False)

    assert rollout["next", "truncated"][:, -1].all()
    env.close()
    env = as_torchrl(EpisodeLimit(envkit.make("Catch", batch_size=2), 9))
    env.rollout(20, break_when_any_done=False)
    env.close()
