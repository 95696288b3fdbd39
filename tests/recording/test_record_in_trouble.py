"""`Record` where things go wrong: little memory, forks, lost workers, other folders."""

from __future__ import annotations

import collections
import enum
import functools
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from envkit import ArraySpec, AutoReset, make
from envkit.cli.main import main
from envkit.errors import RecordingError
from envkit.parallel import ParallelPyEnvironment, RestartPolicy
from envkit.recording import Record, Recording, Replay
from envkit.recording.format import Column
from envkit.testing import CountingEnv


def only_episode(path):
    (episode,) = Recording(path).episodes()
    return episode


# Memory.


def test_a_column_does_not_keep_the_arrays_behind_its_values():
    column = Column("observation")
    batch = np.zeros((1000, 4), np.float32)
    column.add(batch[3, ...])
    (block,) = column.pop_blocks()
    assert not np.shares_memory(block, batch)


def test_a_column_reports_its_memory():
    column = Column("observation")
    told = sum(column.add(np.float64(value)) for value in range(1000))
    blocks = column.pop_blocks()
    assert 1000 == column.length
    assert told >= sum(block.nbytes for block in blocks)
    assert list(range(1000)) == np.concatenate(blocks).tolist()
    assert [] == column.pop_blocks()


def test_notes_count_as_memory(tmp_path, gate):
    """Of ten notes of 8,000 bytes each there is room for two."""
    env = Record(CountingEnv(), tmp_path / "r", memory=60_000, when_full="drop")
    env.reset()
    for _ in range(10):
        env.annotate(map=np.zeros(1000))
    gate.set()
    env.flush()

    assert 1 == env.dropped
    with pytest.warns(RuntimeWarning, match="1 episode .* was dropped"):
        env.close()


def test_large_notes_are_written_early(tmp_path):
    with Record(CountingEnv(), tmp_path / "r", memory=20_000) as env:
        env.reset()
        for note in range(20):
            env.annotate(**{f"map {note}": np.full(1000, note)})
        env.flush()
        parts = list(tmp_path.glob("r/row-000/*.part-*.npz"))
    notes = only_episode(tmp_path / "r").annotations(0)

    assert parts
    assert list(range(20)) == [int(one[0]) for one in notes.values()]


# Notes.


def test_notes_can_have_any_name(tmp_path):
    with Record(CountingEnv(), tmp_path / "r") as env:
        env.reset()
        env.annotate(step=7)
        env.step(0)
        env.annotate(**{"$tuple": [1]})
    episode = only_episode(tmp_path / "r")

    assert {"step": 7} == episode.annotations(0)
    assert {"$tuple": [1]} == episode.annotations(1)


@pytest.mark.parametrize(
    ("row", "described"),
    [
        (2, "2 of type int"),
        (-1, "-1 of type int"),
        (True, "True of type bool"),
        ("a", "the string 'a'"),
    ],
)
def test_a_note_about_a_missing_row_is_refused(row, described, tmp_path, message_of):
    for size, allowed in ((2, "from 0 to 1"), (None, "0")):
        with Record(make("Catch", batch_size=size), tmp_path / str(size)) as env:
            env.reset()
            assert (
                f"The row of annotate() must be {allowed}, got {described}."
            ) == message_of(ValueError, functools.partial(env.annotate, row, a=1))


# Infos and arrays.


def test_subclasses_of_json_types_are_written_as_json(tmp_path):
    class Level(enum.IntEnum):
        HARD = 3

    class Telling(CountingEnv):
        def get_info(self):
            inner = collections.defaultdict(int, {"level": Level.HARD})
            return collections.OrderedDict(inner=inner)

    with Record(Telling(), tmp_path / "r") as env:
        env.reset()

    assert {"inner": {"level": 3}} == only_episode(tmp_path / "r").info(0)


def test_a_missing_info_class_leaves_the_rest_readable(tmp_path):
    class Forgetful(CountingEnv):
        def get_info(self):
            if self.current_time_step().observation == 2:
                raise NotImplementedError
            return {"known": True}

    with Record(Forgetful(), tmp_path / "r") as env:
        for _ in range(4):
            env.step(0)
    episode = only_episode(tmp_path / "r")

    assert [{"known": True}, {"known": True}, None, {"known": True}] == [
        episode.info(step) for step in range(4)
    ]


class Swapped(CountingEnv):
    """Counts in the other order of bytes, or in the wrong shape."""

    shape: tuple[int, ...] = ()

    def observation_spec(self):
        return ArraySpec((), ">i4")

    def _shown(self, time_step):
        value = np.full(self.shape, time_step.observation, ">i4")
        return time_step._replace(observation=value)

    def _reset(self):
        return self._shown(super()._reset())

    def _step(self, action):
        return self._shown(super()._step(action))


def test_the_order_of_bytes_is_kept(tmp_path):
    with Record(Swapped(), tmp_path / "r") as env:
        env.reset()
        env.step(0)
    assert ">i4" == Replay(tmp_path / "r").reset().observation.dtype


def test_arrays_that_change_shape_are_named(tmp_path, message_of):
    env = Record(Swapped(), tmp_path / "r")
    env.reset()
    env.step(0)
    env.unwrapped.shape = (2,)
    env.step(0)

    assert (
        f"The recording in {str(tmp_path / 'r')!r} cannot be written: RecordingError: "
        "observation has shape (2,) after () in the same episode, and files hold "
        "arrays of one shape, that of the spec. What was finished before that is there."
    ) == message_of(RecordingError, env.close)


# Seeds.


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        ([2**63 + 1, 1], [2**63 + 1, 1]),
        ((None, 3), [None, 3]),
        (np.array([4, 5]), [4, 5]),
        (np.int64(6), 6),
    ],
    ids=str,
)
def test_seeds_are_recorded_unchanged(seed, expected, tmp_path):
    with Record(make("Catch", batch_size=2), tmp_path / "r") as env:
        env.seed(seed)
    assert expected == Recording(tmp_path / "r").events[0]["seed"]


# Folders and processes.


def test_changing_the_directory_does_not_move_a_recording(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Record(CountingEnv(steps_per_episode=1), "r") as env:
        env.step(0)
        monkeypatch.chdir(tmp_path / "elsewhere")
        env.step(0)
    monkeypatch.chdir(tmp_path)
    recording = Recording("r")
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert [2] == [len(episode) for episode in recording.episodes()]
    assert "closed" == recording.events[-1]["event"]


def test_two_recorders_cannot_share_a_directory(tmp_path, message_of):
    (tmp_path / "r").mkdir()
    (tmp_path / "r/log.jsonl").touch()
    assert (
        f"There is a recording in {str(tmp_path / 'r')!r} already, and none is ever "
        "overwritten. Choose another directory, or remove it."
    ) == message_of(FileExistsError, lambda: Record(CountingEnv(), tmp_path / "r"))


def test_a_closed_recording_refuses_more_steps(tmp_path, message_of):
    env = Record(CountingEnv(), tmp_path / "r")
    env.reset()
    env.close()
    expected = (
        f"The recording in {str(tmp_path / 'r')!r} is closed, and nothing more is "
        "written to it. Make another Record, with another directory."
    )

    assert expected == message_of(RecordingError, lambda: env.step(0))
    assert expected == message_of(RecordingError, env.flush)


def test_a_fork_is_told_that_it_records_nothing(tmp_path):
    """In a process of its own, since forking one with threads is risky."""
    program = (
        "import os, sys\n"
        "from envkit.errors import RecordingError\n"
        "from envkit.recording import Record\n"
        "from envkit.testing import CountingEnv\n"
        "env = Record(CountingEnv(steps_per_episode=2), sys.argv[1])\n"
        "env.step(0)\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "    env.step(0)\n"
        "else:\n"
        "    try: env.step(0)\n"
        "    except RecordingError as error: print(error)\n"
        "    env.close()\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "r"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert (
        f"The recording in {str(tmp_path / 'r')!r} is written by the process that "
        "began it, and this is a fork of that one. Make another Record here, with "
        "another directory.\n"
    ) == child.stdout
    assert 2 == len(only_episode(tmp_path / "r"))


def test_unfinished_files_of_a_crash_are_reported(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from envkit.recording import Record\n"
        "from envkit.testing import CountingEnv\n"
        "env = Record(CountingEnv(steps_per_episode=50), sys.argv[1], memory=4000)\n"
        "for _ in range(90): env.step(0)\n"
        "env.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "r"], check=False)
    recording = Recording(tmp_path / "r")

    assert ([51], [(0, 1)]) == (
        [len(one) for one in recording.episodes()],
        recording.unfinished,
    )


# Disks that fail, and processes that are killed.


def records(folder, program, *, limits=""):
    """Runs a program with `env`, a `Record` of episodes of two steps, in a process."""
    program = (
        "import os, resource, signal, sys\n"
        "from envkit.errors import RecordingError\n"
        "from envkit.recording import Record\n"
        "from envkit.testing import CountingEnv\n"
        f"{limits}\n"
        "env = Record(CountingEnv(steps_per_episode=2), sys.argv[1], memory=4000)\n"
        f"{program}"
    )
    return subprocess.run(
        [sys.executable, "-c", program, folder],
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_full_disk_is_reported_and_finished_episodes_stay(tmp_path):
    told = records(
        tmp_path / "r",
        "for _ in range(7): env.step(0)\n"
        "env.flush()\n"
        "env.annotate(map=os.urandom(99_999))\n"
        "try: env.flush()\n"
        "except RecordingError as error: print(error)\n"
        "try: env.step(0)\n"
        "except RecordingError as error: print(error)\n",
        limits="resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))",
    ).stdout.splitlines()
    recording = Recording(tmp_path / "r")

    expected = (
        f"The recording in {str(tmp_path / 'r')!r} cannot be written: OSError: "
        "[Errno 27] File too large. What was finished before that is there."
    )

    assert [expected, expected] == told
    assert ([3, 3], [(0, 2)]) == (
        [len(one) for one in recording.episodes()],
        recording.unfinished,
    )


def test_an_episode_may_have_more_parts_than_a_process_may_open(tmp_path):
    told = records(
        tmp_path / "r",
        "env.reset()\n"
        "for number in range(60): env.annotate(**{str(number): bytes(5000)})\n"
        "env.close()\n",
        limits="resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))",
    )

    assert ("", 60) == (
        told.stderr,
        len(only_episode(tmp_path / "r").annotations(0)),
    )


@pytest.mark.parametrize("after", [1, 2, 5, 9])
def test_a_file_under_its_name_is_complete_whenever_the_process_is_killed(
    after, tmp_path
):
    """While files of several parts are written as fast as the disk can."""
    program = (
        "import itertools, sys\n"
        "from envkit.recording import Record\n"
        "from envkit.testing import CountingEnv\n"
        "env = Record(CountingEnv(steps_per_episode=2), sys.argv[1], memory=4000)\n"
        "for number in itertools.count():\n"
        "    env.step(0)\n"
        "    env.annotate(map=bytes(5000))\n"
        "    print(number, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "r"], stdout=subprocess.PIPE
    )
    for _ in range(3 * after):
        assert child.stdout.readline()
    child.kill()
    child.communicate()
    recording = Recording(tmp_path / "r")
    complete = {(one.row, one.number): len(one) for one in recording.episodes()}

    assert {(0, number): 3 for number in range(len(complete))} == complete
    assert recording.unfinished in ([], [(0, len(complete))])
    assert len(complete) >= after - 2


# Several writers.


def test_one_of_many_concurrent_recorders_writes(tmp_path, in_thread):
    def begin():
        barrier.wait()
        try:
            return Record(CountingEnv(steps_per_episode=1), tmp_path / "r")
        except FileExistsError:
            return None

    barrier = threading.Barrier(8)
    results = [in_thread(begin) for _ in range(8)]
    (env,) = [made for result in results if (made := result()) is not None]
    with env:
        env.step(0)
        env.step(0)

    assert 2 == len(only_episode(tmp_path / "r"))


def test_threads_may_share_a_recording(tmp_path, in_thread):
    def play():
        for _ in range(25):
            env.step(0)
            env.annotate(mine=True)

    with Record(CountingEnv(steps_per_episode=9), tmp_path / "r") as env:
        env.reset()
        for wait in [in_thread(play) for _ in range(4)]:
            wait()
    calls = [one.calls.tolist() for one in Recording(tmp_path / "r").episodes()]

    assert [list(range(10 * one, 10 * one + 10)) for one in range(10)] == calls[:10]
    assert 101 == sum(map(len, calls))


# Pools.


class Dying(CountingEnv):
    """Takes its process with it in the third step, if the file is there."""

    def __init__(self, path):
        super().__init__(steps_per_episode=5)
        self._path = path

    def _step(self, action):
        if self._current_step == 2 and os.path.exists(self._path):
            os.remove(self._path)
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._step(action)


def make_dying(path):
    return Dying(path)


def test_a_check_ignores_a_lost_environment(tmp_path, capsys):
    (tmp_path / "deadly").touch()
    pool = ParallelPyEnvironment(
        [make_dying_recipe(tmp_path / "deadly"), make_dying_recipe(tmp_path / "no")],
        num_workers=2,
        start_method="fork",
        on_worker_failure=RestartPolicy(max_restarts=1),
    )
    with Record(pool, tmp_path / "r") as env:
        for _ in range(8):
            env.step([0, 0])
    status = main(["replay", "--check", "--trust", str(tmp_path / "r")])
    printed = capsys.readouterr().out

    assert 2 == status
    assert (
        "  Then the environment of row 0 was lost and replaced by a new one: what "
        "follows cannot be compared.\n"
    ) in printed


def make_dying_recipe(path):
    import functools

    return functools.partial(make_dying, str(path))


@pytest.mark.parametrize("order", list(AutoReset), ids=lambda order: order.value)
def test_recordings_in_every_order_are_replayed(order, tmp_path):
    pool = make("Catch", num_envs=2, backend="inline", seed=3)
    with Record(pool, tmp_path / "r") as env:
        env.reset()
        pool.autoreset = order
        for _ in range(30):
            ended = env.current_time_step().is_last()
            if order is AutoReset.DISABLED and ended.any():
                env.reset(ended)
            env.step([0, 0])

    assert 0 == main(["replay", "--check", str(tmp_path / "r")])


def test_a_check_writes_no_recording(tmp_path):
    with (
        Record(make("Catch", seed=1), tmp_path / "inner") as inner,
        Record(inner, tmp_path / "outer") as env,
    ):
        for _ in range(12):
            env.step(0)
    assert 0 == main(["replay", "--check", str(tmp_path / "outer")])
