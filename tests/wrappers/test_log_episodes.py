"""`LogEpisodes`: which lines come into which files."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AutoReset,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    RestartPolicy,
    StepType,
    TimeStep,
    make,
)
from envkit.envs import Catch
from envkit.errors import ClosedError, MissingDependencyError
from envkit.testing import CountingEnv, CrashingEnv, ManualClock, ScriptedEnv
from envkit.wrappers import LogEpisodes, TimeLimit

POLICY = RestartPolicy(max_restarts=10, backoff=0)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def lines(folder):
    with (Path(folder) / "episodes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def column(folder, key):
    return [line[key] for line in lines(folder)]


def counters(*lengths):
    envs = [CountingEnv(steps_per_episode=length) for length in lengths]
    return BatchedPyEnvironment(envs, multithreading=False)


def steps(env, count, action=0):
    for _ in range(count):
        env.step(np.full(env.batch_size or (), action, np.int32))


def test_each_episode_is_a_line_as_soon_as_it_has_ended(folder):
    env = LogEpisodes(Catch(seed=1), folder)
    while not (time_step := env.step(1)).is_last():
        pass
    (line,) = lines(folder)
    assert float(time_step.reward) == float(line["return"])
    assert ("1", "0", "9", "9") == tuple(
        line[key] for key in ("episode", "row", "step", "length")
    )


def test_rows_of_a_batch_have_lines_of_their_own(folder):
    with LogEpisodes(counters(2, 3), folder) as env:
        env.reset()
        steps(env, 3)
    assert ["0", "1"] == column(folder, "row")
    assert ["4", "5"] == column(folder, "step")
    assert ["2", "3"] == column(folder, "length")


@pytest.mark.parametrize("order", list(AutoReset))
def test_every_reset_order_has_the_same_lines(folder, order):
    env = LogEpisodes(Catch(batch_size=2, seed=1), folder)
    env.autoreset = order
    env.reset()
    for _ in range(40):
        time_step = env.step(np.ones(2, np.int64))
        if order is AutoReset.DISABLED and time_step.is_last().any():
            env.reset(time_step.is_last())
    assert ["9"] * 8 == column(folder, "length")[:8]
    assert [18, 18, 36, 36] == [int(step) for step in column(folder, "step")[:4]]
    assert column(folder, "terminated")[:2] == ["1", "1"]


def test_a_time_limit_truncates(folder):
    with LogEpisodes(TimeLimit(make("CartPole", seed=1), 2), folder) as env:
        steps(env, 3)
    (line,) = lines(folder)
    assert ("0", "1", "0") == (line["terminated"], line["truncated"], line["lost"])


def test_an_episode_broken_off_by_a_reset_has_no_line(folder):
    with LogEpisodes(CountingEnv(steps_per_episode=3), folder) as env:
        steps(env, 3)
        env.reset()
        steps(env, 3)
    assert ["3"] == column(folder, "length")


def test_a_restored_episode_continues_with_its_return(folder):
    with LogEpisodes(CountingEnv(steps_per_episode=3), folder) as env:
        steps(env, 2)
        state = env.get_state()
        steps(env, 2)
        env.set_state(state)
        steps(env, 2)
    first, again = lines(folder)
    assert first["return"] == again["return"]
    assert "3" == again["length"]
    assert ["3", "5"] == column(folder, "step")


def test_a_lost_episode_has_no_return(folder):
    makers = [CountingEnv, partial(CrashingEnv, crash_at=3, how="raise")]
    pool = ParallelPyEnvironment(makers, backend="inline", on_worker_failure=POLICY)
    told = []
    with LogEpisodes(pool, folder, callback=told.append) as env:
        env.reset()
        steps(env, 3)
    (line,) = lines(folder)
    assert ("1", "1", "", "1", "1") == tuple(
        line[key] for key in ("row", "lost", "return", "losses", "restarts")
    )
    assert np.isnan(told[0]["return"])
    assert (0, 0) == (told[0]["terminated"], told[0]["truncated"])


def test_a_pool_logs_the_lines_of_a_batch(tmp_path):
    pool = make("Catch", num_envs=3, num_workers=1, backend="inline")
    batch = make("Catch", batch_size=3)
    for name, env in (("pool", pool), ("batch", batch)):
        with LogEpisodes(env, tmp_path / name) as logged:
            logged.reset(seed=3)
            steps(logged, 30, action=1)
    for key in ("episode", "row", "step", "return", "length", "terminated"):
        assert column(tmp_path / "pool", key) == column(tmp_path / "batch", key)


def rewarded(reward, spec):
    script = [
        TimeStep(kind, reward, np.float32(1), np.zeros(()))
        for kind in (StepType.FIRST, StepType.MID, StepType.LAST)
    ]
    env = ScriptedEnv(script)
    env.reward_spec = lambda: spec
    return env


@pytest.mark.parametrize(
    ("reward", "spec", "expected"),
    [
        (
            np.array([1, 2], np.float32),
            ArraySpec((2,), np.float32),
            {"return": "6.0", "return.0": "2.0", "return.1": "4.0"},
        ),
        (
            {"left": np.float32(1), "right": np.float32(-3)},
            {
                "left": ArraySpec((), np.float32),
                "right": ArraySpec((), np.float32),
            },
            {"return": "-4.0", "return.left": "2.0", "return.right": "-6.0"},
        ),
    ],
)
def test_rewards_of_several_elements_have_a_column_each(folder, reward, spec, expected):
    with LogEpisodes(rewarded(reward, spec), folder) as env:
        steps(env, 3)
    (line,) = lines(folder)
    assert expected == {key: line[key] for key in line if key.startswith("return")}


def test_a_callback_gets_numbers_only():
    told = []
    with LogEpisodes(counters(2, 2), callback=told.append) as env:
        env.reset()
        steps(env, 2)
    assert [0, 1] == [line["row"] for line in told]
    assert all(type(value) in (int, float) for line in told for value in line.values())


def test_the_speed_is_that_of_the_last_second(folder):
    clock = ManualClock()
    with LogEpisodes(CountingEnv(steps_per_episode=2), folder, clock=clock) as env:
        env.reset()
        # Every third step begins an episode.
        for seconds in (0.5, 0.5, 0.0, 0.1, 0.4, 0.0, 0.25, 0.25):
            clock.advance(seconds)
            env.step(0)
    assert ["2.0", "2.0", "4.0"] == column(folder, "steps_per_second")
    assert ["1.0", "1.5", "2.0"] == column(folder, "time")


def test_a_second_run_in_a_folder_is_refused(folder):
    LogEpisodes(CountingEnv(), folder).close()
    with pytest.raises(FileExistsError, match="already holds the log of a run"):
        LogEpisodes(CountingEnv(), folder)


def test_a_resumed_run_continues_after_its_last_whole_line(folder):
    with LogEpisodes(CountingEnv(steps_per_episode=2), folder) as env:
        steps(env, 6)
    with (folder / "episodes.csv").open("a") as file:
        file.write("3,0,5,0.")  # a killed process left half a line
    with LogEpisodes(CountingEnv(steps_per_episode=2), folder, resume=True) as env:
        steps(env, 3)
    assert ["1", "2", "3"] == column(folder, "episode")
    assert ["2", "4", "6"] == column(folder, "step")
    times = [float(time) for time in column(folder, "time")]
    assert times == sorted(times)


@pytest.mark.parametrize("resume", [False, True])
def test_a_log_has_one_writer_at_a_time(folder, resume):
    with (
        LogEpisodes(CountingEnv(), folder),
        pytest.raises(FileExistsError, match="is being written by another LogEpisodes"),
    ):
        LogEpisodes(CountingEnv(), folder, resume=resume)


def test_a_killed_process_leaves_all_its_lines(folder):
    program = (
        "import os, signal, sys\n"
        "from envkit.testing import CountingEnv\n"
        "from envkit.wrappers import LogEpisodes\n"
        "env = LogEpisodes(CountingEnv(steps_per_episode=2), sys.argv[1])\n"
        "for _ in range(9):\n"
        "    env.step(0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=300,
        check=False,
    )
    assert ["2", "4", "6"] == column(folder, "step")


def test_resume_begins_a_log_if_there_is_none(folder):
    with LogEpisodes(CountingEnv(steps_per_episode=2), folder, resume=True) as env:
        steps(env, 3)
    assert ["1"] == column(folder, "episode")


def test_overwrite_deletes_the_earlier_log(folder):
    for _ in range(2):
        with LogEpisodes(
            CountingEnv(steps_per_episode=2), folder, overwrite=True
        ) as env:
            steps(env, 3)
    assert ["1"] == column(folder, "episode")


def test_a_run_with_other_rewards_is_not_continued(folder):
    LogEpisodes(CountingEnv(), folder).close()
    env = rewarded(np.zeros(2, np.float32), ArraySpec((2,), np.float32))
    with pytest.raises(ValueError, match="the environments have other rewards"):
        LogEpisodes(env, folder, resume=True)


def test_a_closed_log_takes_no_more_episodes(folder):
    env = LogEpisodes(CountingEnv(steps_per_episode=2), folder)
    env.close()
    with pytest.raises(ClosedError):
        steps(env, 3)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {},
            TypeError,
            'LogEpisodes needs a folder, such as LogEpisodes(env, "runs/x")',
        ),
        ({"directory": print}, TypeError, "Did you mean callback=?"),
        ({"directory": ""}, TypeError, "directory must be the path of a folder"),
        ({"directory": __file__}, NotADirectoryError, "which is not a folder"),
        ({"callback": print, "resume": True}, ValueError, "about the log in a folder"),
        ({"callback": 3}, TypeError, "callback must be a function of a dictionary"),
        (
            {"directory": "x", "resume": True, "overwrite": True},
            ValueError,
            "contradict each other",
        ),
    ],
)
def test_wrong_arguments_are_refused(options, error, text):
    with pytest.raises(error) as caught:
        LogEpisodes(CountingEnv(), **options)
    assert text in str(caught.value)


def test_a_missing_tensorboard_is_named_with_the_command(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        LogEpisodes(CountingEnv(), folder, tensorboard=True)
    assert not folder.exists()


def test_tensorboard_gets_each_episode_without_tensorflow(folder):
    """In a process of its own, because others have imported TensorFlow here."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from envkit.testing import CountingEnv
        from envkit.wrappers import LogEpisodes
        with LogEpisodes(CountingEnv(steps_per_episode=2), sys.argv[1]) as env:
            for _ in range(6):
                env.step(0)
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.tensorflow_stub import pywrap_tensorflow
        (path,) = Path(sys.argv[1]).glob("events.out.tfevents.*")
        reader = pywrap_tensorflow.PyRecordReader_New(str(path))
        while True:
            try:
                reader.GetNext()
            except Exception:
                break
            event = Event.FromString(reader.record())
            for value in event.summary.value:
                if value.tag.startswith("episode/"):
                    print(event.step, value.tag, value.simple_value)
        assert "tensorflow" not in sys.modules
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    returns = [float(value) for value in column(folder, "return")]
    expected = [
        text
        for number, value in enumerate(returns, 1)
        for text in (
            f"{2 * number} episode/return {value}",
            f"{2 * number} episode/length 2.0",
        )
    ]
    assert expected == done.stdout.splitlines()
