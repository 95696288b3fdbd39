"""`Record`: what it writes, when, and what it does when it cannot."""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment, PyEnvironment, make
from envkit.errors import RecordingError, SpecError
from envkit.realtime import LAG_SPEC, RealTimeEnvironment
from envkit.recording import Record, Recording, Replay
from envkit.recording.writer import Writer
from envkit.testing import CountingEnv, NestedCountingEnv, check_environment
from envkit.wrappers import TimeLimit


def played(env, steps):
    for _ in range(steps):
        env.step(0 if env.batch_size is None else [0] * env.batch_size)
    return env


class Telling(CountingEnv):
    """Has an info that a test chooses."""

    info: object = None

    def get_info(self):
        return self.info


def written(path):
    return sorted(str(file.relative_to(path)) for file in path.glob("row-*/*"))


# What is written.


def test_an_episode_is_a_file_that_numpy_reads(tmp_path):
    with Record(NestedCountingEnv(steps_per_episode=2), tmp_path / "r") as env:
        played(env, 4)
    with np.load(tmp_path / "r/row-000/episode-000000.npz") as file:
        names = set(file.files)
        totals = file["observation['total_steps']"]
        kinds = file["step_type"]

    assert {
        "action",
        "call",
        "discount",
        "episode.json",
        "info.jsonl",
        "observation['current_steps']",
        "observation['total_steps']",
        "reward",
        "step_type",
    } == names
    assert ([0, 1, 2], np.int32) == (kinds.tolist(), kinds.dtype)
    assert 3 == len(totals)


def test_a_recording_describes_itself_and_its_provenance(tmp_path):
    env = make("Catch-v1", seed=3)
    with Record(TimeLimit(env, 4), tmp_path / "r"):
        pass
    facts = json.loads((tmp_path / "r/recording.json").read_text("utf-8"))
    known = json.loads((tmp_path / "r/provenance.json").read_text("utf-8"))

    assert ("envkit recording", 1, None) == (
        facts["format"],
        facts["format_version"],
        facts["batch_size"],
    )
    assert ("Catch-v1", 3, "envkit.wrappers.limits:TimeLimit") == (
        known["id"],
        known["seed"],
        known["wrappers"][0]["class"],
    )


def test_recording_does_not_change_the_time_steps(tmp_path):
    alone, env = make("CartPole", seed=1), make("CartPole", seed=1)
    with Record(env, tmp_path / "r") as recorded:
        for step in range(60):
            expected, actual = alone.step(step % 2), recorded.step(step % 2)
            assert [leaf.tobytes() for leaf in expected] == [
                leaf.tobytes() for leaf in actual
            ]


def test_arrays_belong_to_the_caller(tmp_path):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        first = env.reset().observation
        kept = first.copy()
        first[...] = 7
        played(env, 12)
    (episode, *_) = Recording(tmp_path / "r").episodes()
    assert kept.tobytes() == episode.time_step(0).observation.tobytes()


def test_actions_are_recorded_as_given(tmp_path):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        env.reset()
        action = np.array(2)
        env.step(action)
        action[...] = 0
        env.step(1)
    (episode,) = Recording(tmp_path / "r").episodes()

    assert [2, 1] == [int(episode.action(step)) for step in (1, 2)]


def test_infos_are_written_with_their_types(tmp_path):
    env = Telling(steps_per_episode=2)
    env.info = {"path": (np.float32(0.5), [1, None]), "text": "ä", "array": np.eye(2)}
    with Record(env, tmp_path / "r") as recorded:
        played(recorded, 3)
    (episode,) = Recording(tmp_path / "r").episodes()
    info = episode.info(1)

    assert (np.float32(0.5), [1, None]) == info["path"]
    assert ("ä", np.eye(2).tolist()) == (info["text"], info["array"].tolist())


def test_an_environment_without_info_has_none(tmp_path):
    class Quiet(CountingEnv):
        def get_info(self):
            raise NotImplementedError

    with Record(Quiet(), tmp_path / "r") as env:
        played(env, 5)
    (episode, *_) = Recording(tmp_path / "r").episodes()

    assert (False, None) == (episode.has_info, episode.info(0))


def test_infos_can_be_left_out(tmp_path):
    env = Telling()
    env.info = object()
    with Record(env, tmp_path / "r", info=False) as recorded:
        played(recorded, 5)
    (episode, *_) = Recording(tmp_path / "r").episodes()
    assert not episode.has_info


def test_infos_that_are_no_json_are_refused_with_their_place(tmp_path, message_of):
    env = Telling()
    env.info = {"seen": {1, 2}}
    with Record(env, tmp_path / "r") as recorded:
        assert (
            "Record cannot write info['seen']: it has a set object, and files hold "
            "arrays and what JSON has. Pass pickle=True to write it as a pickle, or "
            "info=False to write no info."
        ) == message_of(RecordingError, recorded.reset)


def test_pickles_are_written_and_read_on_request(tmp_path, message_of):
    env = Telling()
    env.info = {"seen": {1, 2}}
    with Record(env, tmp_path / "r", pickle=True) as recorded:
        recorded.reset()
    (episode,) = Recording(tmp_path / "r", pickle=True).episodes()
    (closed,) = Recording(tmp_path / "r").episodes()

    assert {"seen": {1, 2}} == episode.info(0)
    assert (
        "The recording holds pickles, and reading one may run any code. If you trust "
        "its author, pass pickle=True."
    ) == message_of(RecordingError, lambda: closed.info(0))


def test_the_lag_is_written_as_arrays(tmp_path):
    env = RealTimeEnvironment("Catch", hz=10, host="virtual", think_time=0.25)
    with Record(env, tmp_path / "r") as recorded:
        recorded.reset()
        recorded.step(1)
        expected = env.get_info()["realtime"]
    (episode,) = Recording(tmp_path / "r").episodes()
    with np.load(tmp_path / "r/row-000/episode-000000.npz") as file:
        dtypes = {
            name: file[f"info['realtime']['{name}']"].dtype for name in LAG_SPEC._fields
        }
    came = episode.info(1)["realtime"]

    assert {name: spec.dtype for name, spec in LAG_SPEC._asdict().items()} == dtypes
    assert expected == came
    assert 0.25 == came["think_time"]


def test_the_lags_of_a_pool_are_written_as_arrays(tmp_path):
    make = functools.partial(RealTimeEnvironment, "Catch", hz=10, host="virtual")
    with ParallelPyEnvironment([make] * 2, backend="inline") as env:
        recorded = Record(env, tmp_path / "r")
        recorded.reset()
        recorded.step([1, 1])
        expected = env.declared_info()["realtime"]
        recorded.close()
    (episode,) = [one for one in Recording(tmp_path / "r").episodes() if one.row == 1]
    with np.load(tmp_path / "r/row-001/episode-000000.npz") as file:
        ticks = file["info['realtime']['observation_tick']"]

    assert [0, 1] == ticks.tolist()
    assert {name: value[1] for name, value in expected.items()} == (
        episode.info(1)["realtime"]
    )
    with Replay(tmp_path / "r") as replay:
        assert {"realtime"} == replay.info_spec().keys()


def test_notes_are_kept_with_their_time_steps(tmp_path):
    with Record(CountingEnv(steps_per_episode=2), tmp_path / "r") as env:
        env.reset()
        env.annotate(value=np.float32(0.5), why="guess")
        env.step(0)
        env.step(0)
        env.annotate(total=2)
        env.annotate(more=3)
    (episode,) = Recording(tmp_path / "r").episodes()

    assert {"value": np.float32(0.5), "why": "guess"} == episode.annotations(0)
    assert {} == episode.annotations(1)
    assert {"total": 2, "more": 3} == episode.annotations(2)


def test_notes_of_a_batch_belong_to_one_row_or_all(tmp_path):
    env = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
    with Record(env, tmp_path / "r") as recorded:
        recorded.reset()
        recorded.annotate(all=1)
        recorded.annotate(1, one=2)
    notes = [one.annotations(0) for one in Recording(tmp_path / "r").episodes()]
    assert [{"all": 1}, {"all": 1, "one": 2}] == notes


# Which episodes.


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("always", ["episode 0", "episode 1", "episode 2", "episode 3"]),
        ("never", []),
        ("cubic", ["episode 0", "episode 1", "actions 2"]),
        (lambda number: number == 2, ["actions 0", "episode 2", "actions 3"]),
    ],
    ids=["always", "never", "cubic", "function"],
)
def test_when_decides_which_episodes_are_written(when, expected, tmp_path):
    with Record(CountingEnv(steps_per_episode=1), tmp_path / "r", when) as env:
        played(env, 8)
    entries = Recording(tmp_path / "r").entries
    assert expected == [
        f"{entry.kind} {entry.number}"
        for entry in sorted(entries, key=lambda entry: entry.number)
    ]


def test_actions_of_unrecorded_episodes_can_be_left_out(tmp_path):
    with Record(
        CountingEnv(steps_per_episode=1),
        tmp_path / "r",
        "cubic",
        actions_between=False,
    ) as env:
        played(env, 8)

    assert [
        "row-000/episode-000000.npz",
        "row-000/episode-000001.npz",
    ] == written(tmp_path / "r")


def test_each_row_counts_its_own_episodes(tmp_path):
    env = BatchedPyEnvironment([CountingEnv(1), CountingEnv(2)])
    with Record(env, tmp_path / "r") as recorded:
        played(recorded, 6)
    lengths = {
        (episode.row, episode.number): len(episode)
        for episode in Recording(tmp_path / "r").episodes()
    }

    assert {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 3, (1, 1): 3} == lengths


@pytest.mark.parametrize("left_by", ["reset", "set_state", "closed"])
def test_an_abandoned_episode_is_marked(left_by, tmp_path):
    with Record(CountingEnv(steps_per_episode=9), tmp_path / "r") as env:
        played(env, 4)
        if left_by == "reset":
            env.reset()
        elif left_by == "set_state":
            env.set_state(env.get_state())
            env.step(0)
    (first, *_) = Recording(tmp_path / "r").episodes()

    assert (left_by, 4) == (first.ended, len(first))


def test_held_rows_are_not_written(tmp_path):
    with Record(make("Catch", batch_size=2, seed=1), tmp_path / "r") as env:
        env.reset()
        env.step([1, 1], np.array([True, False]))
        env.step([1, 1])
    episodes = list(Recording(tmp_path / "r").episodes())
    assert [[0, 1, 2], [0, 2]] == [episode.calls.tolist() for episode in episodes]


def test_actions_before_a_first_may_be_anything(tmp_path):
    env = Record(CountingEnv(steps_per_episode=1), tmp_path / "r")
    with env:
        env.step(None)
        env.step(0)
        env.step(None)
    assert 2 == len(list(Recording(tmp_path / "r").episodes()))


def test_an_action_of_another_structure_is_refused(tmp_path, message_of):
    class Careless(CountingEnv):
        def action_spec(self):
            return {"move": super().action_spec()}

    with Record(Careless(), tmp_path / "r") as env:
        env.reset()

        assert "move" in message_of(SpecError, lambda: env.step({"turn": 1}))


# The directory.


def test_recordings_are_never_overwritten(tmp_path, message_of):
    with Record(CountingEnv(), tmp_path / "r"):
        pass
    assert (
        f"There is a recording in {str(tmp_path / 'r')!r} already, and none is ever "
        "overwritten. Choose another directory, or remove it."
    ) == message_of(FileExistsError, lambda: Record(CountingEnv(), tmp_path / "r"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"when": "sometimes"},
            "when must be 'always', 'never', 'cubic' or a function of the number of "
            "an episode, got the string 'sometimes'.",
        ),
        (
            {"when_full": "burst"},
            "when_full must be 'wait' or 'drop', got the string 'burst'.",
        ),
        ({"memory": 0}, "memory must be an integer of at least 1, got 0."),
    ],
)
def test_invalid_arguments_are_refused(arguments, expected, tmp_path, message_of):
    assert expected == message_of(
        ValueError, lambda: Record(CountingEnv(), tmp_path / "r", **arguments)
    )
    assert [] == list(tmp_path.iterdir())


def test_values_that_a_file_cannot_hold_are_refused_at_once(tmp_path, message_of):
    class Structured(CountingEnv):
        def observation_spec(self):
            from envkit import ArraySpec

            return ArraySpec((), [("a", "i4")])

    assert (
        "Record cannot write arrays of dtype [('a', '<i4')]: files have NumPy's own "
        "dtypes, without fields. Wrap the environment so that it gives others."
    ) == message_of(RecordingError, lambda: Record(Structured(), tmp_path / "r"))


def test_a_record_cannot_be_copied(tmp_path, message_of):
    with Record(CountingEnv(), tmp_path / "r") as env:
        assert (
            "A Record writes files and cannot be copied or pickled: make another, with "
            "a directory of its own."
        ) == message_of(TypeError, lambda: pickle.dumps(env))


# The writer.


def test_a_long_episode_stays_within_its_memory_limit(tmp_path):
    """What there is no room for lies in parts, which become one file."""
    env = Record(make("Catch", rows=60, seed=1), tmp_path / "r", memory=60_000)
    with env:
        env.reset()
        for _ in range(50):
            env.step(1)
        env.flush()
        parts = written(tmp_path / "r")
        played(env, 9)
        env.flush()
    (episode,) = Recording(tmp_path / "r").episodes()

    assert len(parts) > 1
    assert all("part" in name for name in parts)
    assert ["row-000/episode-000000.npz"] == written(tmp_path / "r")
    assert (60, list(range(60))) == (len(episode), episode.calls.tolist())


def test_episodes_without_room_are_dropped_and_counted(tmp_path, gate):
    env = Record(
        CountingEnv(steps_per_episode=3),
        tmp_path / "r",
        memory=6_000,
        when_full="drop",
    )
    played(env, 40)
    gate.set()
    env.flush()
    played(env, 4)
    with pytest.warns(RuntimeWarning) as warned:
        env.close()
    recording = Recording(tmp_path / "r")
    dropped = [e["episode"] for e in recording.events if e["event"] == "dropped"]
    kept = [entry.number for entry in recording.entries]

    assert env.dropped == len(dropped) > 0
    assert [
        f"{env.dropped} episodes of the recording in {env.directory!r} could not be "
        "written in time and were dropped; log.jsonl says which. when_full='wait' "
        "waits, and more memory helps for a while."
    ] == [str(warning.message) for warning in warned]
    assert list(range(11)) == sorted(kept + dropped)
    assert all(4 == len(one) for one in recording.episodes() if one.number < 10)


def test_a_step_waits_for_room_if_nothing_may_be_dropped(tmp_path, gate, in_thread):
    env = Record(CountingEnv(steps_per_episode=3), tmp_path / "r", memory=6_000)
    done = in_thread(played, env, 40)
    gate.set()
    done()
    env.close()
    assert 40 == sum(map(len, Recording(tmp_path / "r").episodes()))


def test_a_disk_error_is_raised_at_the_next_step(tmp_path, monkeypatch, message_of):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Writer, "_move", fail)
    env = Record(CountingEnv(), tmp_path / "r")
    env.reset()
    expected = (
        f"The recording in {str(tmp_path / 'r')!r} cannot be written: OSError: [Errno "
        "28] No space left on device. What was finished before that is there."
    )

    assert expected == message_of(RecordingError, env.flush)
    assert expected == message_of(RecordingError, lambda: env.step(0))
    assert expected == message_of(RecordingError, env.close)


def test_an_unclosed_recording_is_written_when_python_ends(tmp_path):
    program = (
        "import sys\n"
        "from envkit.recording import Record\n"
        "from envkit.testing import CountingEnv\n"
        "env = Record(CountingEnv(steps_per_episode=2), sys.argv[1])\n"
        "for _ in range(5): env.step(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "r"], check=True)

    assert [3, 2] == [len(one) for one in Recording(tmp_path / "r").episodes()]


def test_finished_episodes_can_be_read_after_a_crash(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from envkit.recording import Record\n"
        "from envkit.testing import CountingEnv\n"
        "env = Record(CountingEnv(steps_per_episode=2), sys.argv[1], memory=4000)\n"
        "for _ in range(8): env.step(0)\n"
        "env.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "r"], check=False)
    with open(tmp_path / "r/log.jsonl", "a", encoding="utf-8") as log:
        log.write('{"event": "se')
    recording = Recording(tmp_path / "r")

    assert [3, 3] == [len(one) for one in recording.episodes()]
    assert [] == recording.events


def test_closing_twice_is_harmless(tmp_path):
    env = Record(CountingEnv(), tmp_path / "r")
    env.close()
    env.close()


def test_no_thread_is_left(tmp_path, nothing_left_behind):
    with Record(CountingEnv(), tmp_path / "r") as env:
        played(env, 5)


# As an environment.


@pytest.mark.parametrize(
    "make_env",
    [
        lambda: make("Catch", seed=1),
        lambda: make("CartPole", batch_size=3, seed=1),
        lambda: BatchedPyEnvironment(
            [make("Catch", seed=1), make("Catch", seed=2)], multithreading=False
        ),
    ],
    ids=["single", "native batch", "batch"],
)
def test_a_recorded_environment_keeps_its_promises(make_env, tmp_path):
    made = iter(range(10_000))

    def make_recorded():
        return Record(make_env(), tmp_path / str(next(made)), compress=False)

    check_environment(make_recorded, steps=25)


def test_files_of_equal_episodes_are_equal(tmp_path):
    for name in "ab":
        with Record(make("Catch", seed=1), tmp_path / name) as env:
            played(env, 11)
    files = [
        (tmp_path / name / "row-000/episode-000000.npz").read_bytes() for name in "ab"
    ]
    assert files[0] == files[1]


def test_an_environment_of_another_kind_can_be_recorded(tmp_path):
    class Duck:
        """Quacks like an environment, and is none of ours."""

        def __init__(self):
            self._env = CountingEnv(steps_per_episode=2)

        def __getattr__(self, name):
            if name.startswith("_") or name == "provenance":
                raise AttributeError(name)
            return getattr(self._env, name)

    assert not isinstance(Duck(), PyEnvironment)
    with warnings.catch_warnings(), Record(Duck(), tmp_path / "r") as env:
        played(env, 4)
    recording = Recording(tmp_path / "r")

    assert recording.provenance["id"].endswith("Duck")
    assert 2 == len(list(recording.episodes()))


def test_the_folder_may_be_any_path(tmp_path):
    with Record(CountingEnv(), os.fspath(tmp_path / "a/b")) as env:
        assert str(tmp_path / "a/b") == env.directory
