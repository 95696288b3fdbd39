"""Environments of bsuite by their ids, and what they record."""

from __future__ import annotations

import csv
import importlib.util
import logging
import pickle
import sys

import numpy as np
import pytest

import envkit
from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit.adapters import suite_bsuite
from envkit.adapters.dm_env import DmEnvWrapper
from envkit.parallel import ParallelPyEnvironment
from envkit.testing import check_environment

needs_bsuite = pytest.mark.skipif(
    importlib.util.find_spec("bsuite") is None, reason="bsuite is not installed"
)


def catch():
    return suite_bsuite.load("catch/0", record=False)


def play(env, episodes):
    """Plays whole episodes; returns how many steps they had."""
    steps = 0
    for _ in range(episodes):
        env.reset()
        while not env.current_time_step().is_last():
            env.step(0)
            steps += 1
    return steps


@needs_bsuite
def test_specs_and_time_steps_match_the_environment():
    env = catch()
    env.reset()
    assert isinstance(env, DmEnvWrapper)
    assert BoundedArraySpec((10, 5), np.float32, 0, 1) == env.observation_spec()
    assert BoundedArraySpec((), np.int64, 0, 2) == env.action_spec()
    assert ArraySpec((), np.float32) == env.reward_spec()
    time_steps = [env.step(1) for _ in range(9)]
    assert [1] * 8 + [2] == [int(time_step.step_type) for time_step in time_steps]
    assert (0.0, 1.0) == (time_steps[-1].discount, abs(time_steps[-1].reward))


@needs_bsuite
@pytest.mark.parametrize(
    "bsuite_id",
    # The others differ from these in parameters of theirs.
    [
        *("bandit_noise/0", "catch/4", "deep_sea_stochastic/0"),
        *("memory_len/3", "mountain_car_noise/1", "umbrella_distract/0"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                *("bandit_scale/1", "catch_scale/0", "deep_sea/1"),
                *("memory_size/2", "umbrella_length/2"),
            )
        ),
    ],
)
def test_experiments_pass_check_environment(bsuite_id):
    check_environment(
        lambda: suite_bsuite.load(bsuite_id, record=False),
        steps=50,
        require=["seed", "state"],
    )


@needs_bsuite
@pytest.mark.slow
@pytest.mark.parametrize(
    "bsuite_id", ["cartpole_noise/0", "cartpole_scale/2", "cartpole_swingup/3"]
)
def test_experiments_that_hold_a_function_pass_check_environment_without_states(
    bsuite_id,
):
    report = check_environment(
        lambda: suite_bsuite.load(bsuite_id, record=False), steps=50, require=["seed"]
    )
    assert "state" in report.skipped


@needs_bsuite
def test_a_deterministic_experiment_skips_the_seeding_checks():
    def chain():
        return suite_bsuite.load("discounting_chain/0", record=False)

    report = check_environment(chain, steps=120, require=["state", "episodes"])
    assert "seeding" in report.skipped


@needs_bsuite
def test_a_batch_of_experiments_passes_check_environment():
    check_environment(
        lambda: BatchedPyEnvironment([catch(), catch()], multithreading=False),
        steps=40,
        require=["episodes", "seed", "state", "masked_reset", "held_rows"],
    )


@pytest.mark.slow
@needs_bsuite
def test_worker_processes_return_the_same_stream():
    recipe = envkit.constructor(
        "envkit.adapters.bsuite:load", bsuite_id="catch/0", record=False
    )

    def stream(env):
        env.seed(3)
        return [repr(env.step(np.zeros(2, np.int64))) for _ in range(12)]

    here = BatchedPyEnvironment([recipe(), recipe()], multithreading=False)
    with ParallelPyEnvironment([recipe] * 2, num_workers=2) as there:
        assert stream(here) == stream(there)


@needs_bsuite
def test_attributes_of_bsuite_are_forwarded():
    env = catch()
    play(env, episodes=1)
    assert 10000 == env.bsuite_num_episodes
    assert {"total_regret"} == set(env.bsuite_info())


@needs_bsuite
def test_results_are_recorded_in_bsuites_format(tmp_path):
    env = suite_bsuite.load("catch/3", save_path=str(tmp_path / "results"))
    steps = play(env, episodes=3)
    (path,) = (tmp_path / "results").iterdir()

    with path.open() as file:
        rows = list(csv.DictReader(file))

    assert "bsuite_id_-_catch-3.csv" == path.name
    assert ["1", "2", "3"] == [row["episode"] for row in rows]
    assert str(steps) == rows[-1]["steps"]
    assert {"total_return", "episode_len", "episode_return", "total_regret"} <= set(
        rows[0]
    )


@needs_bsuite
def test_a_recording_environment_has_a_state(tmp_path):
    env = suite_bsuite.load("catch/3", save_path=str(tmp_path))
    play(env, episodes=1)
    state = pickle.loads(pickle.dumps(env.get_state()))
    play(env, episodes=1)
    env.set_state(state)
    assert (1, 9) == (env.dm_env._episode, env.dm_env._steps)


@needs_bsuite
def test_a_file_is_overwritten_only_on_request(tmp_path):
    play(suite_bsuite.load("catch/3", save_path=str(tmp_path)), episodes=1)
    with pytest.raises(ValueError, match=r"already exists"):
        suite_bsuite.load("catch/3", save_path=str(tmp_path))
    suite_bsuite.load("catch/3", save_path=str(tmp_path), overwrite=True)


@needs_bsuite
def test_results_can_go_to_the_log(caplog):
    handlers = list(logging.getLogger().handlers)
    try:
        env = suite_bsuite.load("catch/3", logging_mode="terminal")
        with caplog.at_level(logging.INFO, logger="absl"):
            play(env, episodes=1)
    finally:
        # bsuite adds one to the root.
        logging.getLogger().handlers[:] = handlers

    assert any("episode = 1" in record.getMessage() for record in caplog.records)


@needs_bsuite
def test_loading_prints_nothing(capsys, tmp_path):
    suite_bsuite.load("catch/3", save_path=str(tmp_path))
    assert ("", "") == tuple(capsys.readouterr())


@needs_bsuite
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"bsuite_id": "catch/0"},
            "save_path is None, so there is no folder to record results in. Name one, "
            "or pass record=False.",
        ),
        (
            {"bsuite_id": "catch/0", "logging_mode": "sqlite"},
            "logging_mode must be 'csv' or 'terminal', got 'sqlite'.",
        ),
        (
            {"bsuite_id": "catch/20", "record": False},
            "There is no experiment 'catch/20' in bsuite: those of 'catch' go from "
            "'catch/0' to 'catch/19'.",
        ),
        (
            {"bsuite_id": "catch", "record": False},
            "There is no experiment 'catch' in bsuite: those of 'catch' go from "
            "'catch/0' to 'catch/19'.",
        ),
        (
            {"bsuite_id": "catsch/0", "record": False},
            "There is no experiment 'catsch/0' in bsuite: write 'name/number', such as "
            "'catch/0'. The names are bandit, bandit_noise, bandit_scale, cartpole, "
            "cartpole_noise, cartpole_scale, cartpole_swingup, catch, catch_noise, "
            "catch_scale, deep_sea, deep_sea_stochastic, discounting_chain, "
            "memory_len, memory_size, mnist, mnist_noise, mnist_scale, mountain_car, "
            "mountain_car_noise, mountain_car_scale, umbrella_distract, "
            "umbrella_length.",
        ),
    ],
    ids=["path", "mode", "number", "form", "name"],
)
def test_invalid_arguments_are_refused(kwargs, message, message_of):
    assert message == message_of(ValueError, lambda: suite_bsuite.load(**kwargs))


@needs_bsuite
def test_load_by_id_records_only_into_a_given_folder(tmp_path):
    recording = suite_bsuite.load_by_id("catch/0", save_path=str(tmp_path))
    playing = suite_bsuite.load_by_id("catch/0")
    told_not_to = suite_bsuite.load_by_id("catch/0", record=False, save_path="x")
    assert ["Logging", "Catch", "Catch"] == [
        type(env.dm_env).__name__ for env in (recording, playing, told_not_to)
    ]


@needs_bsuite
def test_make_knows_the_scheme():
    assert "Catch" == type(envkit.make("bsuite:catch/0").dm_env).__name__
    with envkit.make("bsuite:catch/0", num_envs=2, backend="inline") as env:
        assert (2, 10, 5) == env.reset().observation.shape


def test_is_available_tells_whether_bsuite_is_installed(monkeypatch):
    installed = importlib.util.find_spec("bsuite") is not None
    assert installed == suite_bsuite.is_available()
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "bsuite", raising=False)
    importlib.invalidate_caches()
    assert not suite_bsuite.is_available()
