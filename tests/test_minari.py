"""Minari's datasets: of recordings, as recordings, and as environments."""

from __future__ import annotations

import functools
import json
import pickle
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envkit
from envkit import (
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    RandomPyEnvironment,
    RestartPolicy,
    make,
    nest,
)
from envkit.adapters.minari.datasets import MinariReplay, from_minari, to_minari
from envkit.cli.main import main
from envkit.errors import RecordingEnded, RecordingError
from envkit.recording import Record, Recording, Replay
from envkit.specs import ArraySpec, BoundedArraySpec, TextSpec
from envkit.testing import CountingEnv, CrashingEnv, check_environment

minari = pytest.importorskip("minari", reason="minari is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")
gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    folder = tmp_path / "datasets"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


def record_catch(path, steps=30):
    with Record(make("Catch-v1", seed=3), path) as env:
        for step in range(steps):
            env.step(step % 3)
            env.annotate(step=step, text="ü")
    return Recording(path)


def bits(value):
    array = np.asarray(value)
    return array.dtype, array.shape, array.tobytes()


def content(recording):
    """Returns all that a recording says, in a form that is compared bit for bit."""
    layout = recording.layout
    told = []
    for episode in recording.episodes():
        steps = range(len(episode))
        columns = [*layout.steps, *layout.actions, *layout.infos, "call"]
        told.append(
            (
                (episode.row, episode.number, episode.ended, episode.has_info),
                {name: bits(episode.column(name)) for name in columns},
                [repr(episode.info(step)) for step in steps],
                [repr(episode.annotations(step)) for step in steps],
            )
        )
    return told


# A recording as a dataset.


def test_make_replays_a_dataset_of_this_machine(tmp_path):
    recording = record_catch(tmp_path / "catch")
    to_minari(recording.path, "catch/random-v0")

    env = make("minari:catch/random-v0", episodes=[1])

    assert isinstance(env, MinariReplay)
    (_, episode, *_) = recording.episodes()
    observations = episode.column("observation")
    played = [env.reset(), *(env.step(env.recorded_action()) for _ in observations[1:])]
    assert np.array_equal(observations, [each.observation for each in played])


def test_make_downloads_nothing_unless_asked():
    with pytest.raises(FileNotFoundError):
        make("minari:D4RL/door/human-v2")


def test_minari_reads_recordings(tmp_path):
    recording = record_catch(tmp_path / "catch")

    dataset = to_minari(recording, "catch/test-v0", author="A", description="D")

    assert ["catch/test-v0"] == list(minari.list_local_datasets())
    dataset = minari.load_dataset("catch/test-v0")
    episodes = list(recording.episodes())
    assert len(episodes) == len(dataset) > 1
    for ours, theirs in zip(episodes, dataset, strict=True):
        assert bits(ours.column("observation")) == bits(theirs.observations)
        assert bits(ours.column("action")[1:]) == bits(theirs.actions)
        assert bits(ours.column("reward")[1:]) == bits(theirs.rewards)
        ended = ours.step_types[1:] == 2
        discounts = ours.column("discount")[1:]
        assert (ended & (discounts == 0)).tolist() == theirs.terminations.tolist()
        info = [ours.info(step)["episode_steps"] for step in range(len(ours))]
        assert info == theirs.infos["episode_steps"].tolist()
    metadata = dataset.storage.metadata
    assert ({"A"}, "D") == (metadata["author"], metadata["description"])
    assert recording.provenance == metadata["envkit"]["provenance"]


def test_an_abandoned_episode_ends_in_a_truncation(tmp_path):
    recording = record_catch(tmp_path / "catch", steps=4)

    (episode,) = to_minari(recording, "catch-v0")

    assert [False] * 3 == episode.terminations.tolist()
    assert [False, False, True] == episode.truncations.tolist()


def test_a_last_with_a_discount_is_a_truncation(tmp_path):
    env = envkit.wrappers.TimeLimit(make("CartPole", seed=1), 3)
    with Record(env, tmp_path / "pole") as env:
        for _ in range(4):
            env.step(0)

    (episode,) = to_minari(tmp_path / "pole", "pole-v0")

    assert [False] * 3 == episode.terminations.tolist()
    assert [False, False, True] == episode.truncations.tolist()


def test_large_pictures_keep_every_bit(tmp_path):
    spec = BoundedArraySpec((40, 40, 3), np.uint8, 0, 255)
    env = RandomPyEnvironment(spec, BoundedArraySpec((), np.int64, 0, 1), seed=2)
    with Record(env, tmp_path / "pictures") as env:
        for _ in range(5):
            env.step(1)

    dataset = to_minari(tmp_path / "pictures", "pictures-v0")

    for ours, theirs in zip(
        Recording(tmp_path / "pictures").episodes(), dataset, strict=True
    ):
        assert bits(ours.column("observation")) == bits(theirs.observations)


# There and back.


def test_a_recording_survives_the_round_trip(tmp_path):
    recording = record_catch(tmp_path / "catch")
    to_minari(recording, "catch-v0")

    again = from_minari("catch-v0", tmp_path / "again")

    assert content(recording) == content(again)
    assert recording.facts == again.facts
    assert recording.provenance == again.provenance
    assert recording.events == again.events
    assert 0 == main(["replay", "--check", str(tmp_path / "again")])


def test_the_rows_of_a_batch_survive_the_round_trip(tmp_path):
    env = BatchedPyEnvironment([make("Catch-v1", seed=seed) for seed in range(3)])
    with Record(env, tmp_path / "rows") as env:
        for step in range(25):
            env.step(np.array([0, 1, step % 3]))
    recording = Recording(tmp_path / "rows")

    dataset = to_minari(recording, "rows-v0")

    again = from_minari(dataset, tmp_path / "again")
    assert 3 == again.batch_size
    assert content(recording) == content(again)


class Pair(NamedTuple):
    """Two values under names."""

    left: object
    right: object


LEAVES = st.sampled_from(
    [
        ArraySpec((), np.bool_),
        ArraySpec((2,), np.float64),
        BoundedArraySpec((), np.int64, 2, 4),
        BoundedArraySpec((), np.uint8, 0, 5),
        BoundedArraySpec((3,), np.int8, 0, 1),
        BoundedArraySpec((2, 1), np.float16, -1.0, 2.0),
        BoundedArraySpec((1, 3), np.uint8, 0, [[1, 2, 255]]),
    ]
)
# Keys that a file of HDF5 takes, in any structure.
NESTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
        | st.lists(inner, max_size=2)
        | st.tuples(inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=15)
@given(observation=NESTS, action=NESTS)
def test_any_structure_survives_the_round_trip(tmp_path_factory, observation, action):
    folder = tmp_path_factory.mktemp("any")
    env = RandomPyEnvironment(observation, action, seed=5, episode_end_probability=0.3)
    rng = np.random.default_rng(0)
    with Record(env, folder / "random") as env:
        for _ in range(8):
            env.step(envkit.specs.sample_spec_nest(action, rng))
    recording = Recording(folder / "random")
    whole = [one for one in content(recording) if len(one[2]) > 1]
    name = f"{folder.name}-v0".replace("_", "-")
    if not whole:
        with pytest.raises(RecordingError, match="no episode with a step"):
            to_minari(recording, name)
        return

    to_minari(recording, name)

    assert whole == content(from_minari(name, folder / "again"))


def test_text_survives_the_round_trip(tmp_path):
    spec = {
        "said": TextSpec((), "<U5", min_length=0, max_length=5, letters="abcü"),
        "at": (ArraySpec((2,), np.float64), ArraySpec((), np.bool_)),
    }
    env = RandomPyEnvironment(spec, BoundedArraySpec((), np.int64, 0, 1), seed=2)
    with Record(env, tmp_path / "text") as env:
        for _ in range(6):
            env.step(1)
    recording = Recording(tmp_path / "text")

    dataset = to_minari(recording, "text-v0")

    said = next(recording.episodes()).column("observation['said']")
    assert said.tolist() == dataset[0].observations["said"]
    lengthy = [one for one in content(recording) if len(one[2]) > 1]
    assert lengthy == content(from_minari("text-v0", tmp_path / "again"))


def test_infos_of_single_steps_survive_the_round_trip(tmp_path):
    class Talking(CountingEnv):
        def get_info(self):
            count = int(self.current_time_step().observation)
            info = {"count": count, "at": {"x": np.float32(count)}, "a/b": 1}
            return {**info, "rest": (1, None)} if count % 2 else info

    with Record(Talking(), tmp_path / "talking") as env:
        for _ in range(4):
            env.step(0)
    recording = Recording(tmp_path / "talking")

    dataset = to_minari(recording, "talking-v0")

    infos = dataset[0].infos
    assert {"at", "count", "envkit"} == set(infos)
    assert infos["count"].tolist() == infos["at"]["x"].tolist()
    assert content(recording) == content(from_minari(dataset, tmp_path / "again"))


# A dataset as an environment.


def test_minari_replay_and_replay_play_the_same_episodes(tmp_path):
    record_catch(tmp_path / "catch")
    to_minari(tmp_path / "catch", "catch-v0")
    replays = Replay(tmp_path / "catch"), MinariReplay("catch-v0")

    for _ in range(30):
        ours, theirs = (env.step(0) for env in replays)
        assert [*map(bits, nest.flatten(ours))] == [*map(bits, nest.flatten(theirs))]
        assert replays[0].annotations() == replays[1].annotations()
        assert replays[0].recorded_action() == replays[1].recorded_action()


def write_dataset(name, episodes, **spaces):
    """Writes a dataset as other programs do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return minari.create_dataset_from_buffers(name, episodes, **spaces)


def theirs(name="their-v0"):
    """Returns a dataset that envkit has not written: an end of each kind."""
    spaces = gymnasium.spaces
    ends = {"terminations": [True, False], "truncations": [False, True]}
    return write_dataset(
        name,
        [
            minari.data_collector.EpisodeBuffer(
                observations={
                    "at": np.arange(8, dtype=np.float64).reshape(4, 2) + number,
                    "words": ["a", "b", "ab", ""],
                },
                actions=np.array([2, 3, 4]),
                rewards=[0.5, 1.5, 2.5],
                terminations=[False, False, ends["terminations"][number]],
                truncations=[False, False, ends["truncations"][number]],
                infos={"speed": np.arange(4.0), "deep": {"of_steps": np.arange(3)}},
            )
            for number in range(2)
        ],
        observation_space=spaces.Dict(
            {
                "at": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "words": spaces.Text(3, min_length=0, charset="ab"),
            }
        ),
        action_space=spaces.Discrete(3, start=2),
    )


def test_any_dataset_is_an_environment():
    theirs()

    env = MinariReplay("their-v0", actions="check")

    time_step = env.reset()
    assert time_step.is_first()
    assert 0.0 == time_step.reward
    assert [0.0, 1.0] == time_step.observation["at"].tolist()
    assert {"speed": 0.0, "deep": {}} == env.get_info()
    steps = [env.step(action) for action in (2, 3, 4)]
    assert [0.5, 1.5, 2.5] == [float(step.reward) for step in steps]
    assert [1.0, 1.0, 0.0] == [float(step.discount) for step in steps]
    assert ["b", "ab", ""] == [str(step.observation["words"]) for step in steps]
    assert steps[-1].is_last()
    assert {"speed": 3.0, "deep": {"of_steps": 2}} == env.get_info()
    assert env.step(2).is_first()
    last = [env.step(action) for action in (2, 3, 4)][-1]
    assert last.is_last()
    assert 1.0 == last.discount
    with pytest.raises(RecordingEnded):
        env.reset()


def test_any_dataset_becomes_a_recording_that_is_checked(tmp_path, capsys):
    dataset = theirs()

    recording = from_minari("their-v0", tmp_path / "theirs")

    for ours, its in zip(recording.episodes(), dataset, strict=True):
        at = its.observations["at"]
        assert bits(at) == bits(ours.column("observation['at']"))
        assert its.actions.tolist() == ours.column("action")[1:].tolist()
        assert bits(its.rewards) == bits(ours.column("reward")[1:])
    check = ["replay", "--check", "--trust", str(tmp_path / "theirs")]
    assert 0 == main(check)
    assert "2 episodes, 8 time steps" in capsys.readouterr().out


def test_a_dataset_keeps_the_promises_of_environments(tmp_path):
    record_catch(tmp_path / "catch")
    to_minari(tmp_path / "catch", "catch-v0")

    report = check_environment(lambda: MinariReplay("catch-v0", at_end="repeat"))

    assert report.passed


def test_a_filtered_dataset_plays_only_its_episodes():
    chosen = theirs().filter_episodes(lambda episode: episode.truncations[-1])

    env = MinariReplay(chosen)
    env.reset()

    assert (1, 0) == (env.episode, env.remaining)


def test_a_copy_continues_the_replay():
    theirs()
    env = MinariReplay("their-v0")
    env.step(2)
    env.step(2)

    copy = pickle.loads(pickle.dumps(env))

    assert 1.5 == float(copy.step(2).reward) == float(env.step(2).reward)


def test_combined_datasets_are_played(tmp_path):
    record_catch(tmp_path / "catch")
    parts = [to_minari(tmp_path / "catch", f"part-v{number}") for number in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.combine_datasets(parts, new_dataset_id="both-v0")

    env = MinariReplay("both-v0")

    time_step = env.reset()
    assert 5 == env.remaining
    assert (10, 5) == time_step.observation.shape
    assert "envkit" not in env.get_info()


# What is refused.


def test_an_existing_dataset_is_not_overwritten(tmp_path):
    record_catch(tmp_path / "catch")
    to_minari(tmp_path / "catch", "catch-v0")

    with pytest.raises(FileExistsError, match=r"'catch-v0' of Minari in .* already"):
        to_minari(tmp_path / "catch", "catch-v0")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(FileExistsError, match="is not an empty directory"):
        from_minari("catch-v0", tmp_path / "used")

    assert 3 == len(minari.load_dataset("catch-v0"))


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"a/b": ArraySpec((), np.int64)}, r"has the key 'a/b': a key must be"),
        (ArraySpec((2,), "<U3"), r"cannot hold the observation: it has no way of"),
        (
            BoundedArraySpec((), np.uint64, 1, 2**64 - 1),
            r"cannot hold the observation: it cannot store the space Discrete",
        ),
        (
            ArraySpec((0, 2), np.int64),
            r"has an array of shape \(0, 2\): an array must",
        ),
    ],
)
def test_values_that_minari_cannot_store_are_refused(
    tmp_path, observation, message, datasets
):
    env = RandomPyEnvironment(observation, BoundedArraySpec((), np.int64, 0, 1))
    with Record(env, tmp_path / "odd") as env:
        env.reset()
        env.step(0)

    with pytest.raises(RecordingError, match=message):
        to_minari(tmp_path / "odd", "odd-v0")

    assert not (datasets / "odd-v0").exists()


def test_a_recording_without_steps_leaves_no_dataset(tmp_path, datasets):
    with Record(CountingEnv(), tmp_path / "first") as env:
        env.reset()

    with pytest.raises(RecordingError, match="no episode with a step"):
        to_minari(tmp_path / "first", "first-v0")

    assert not (datasets / "first-v0").exists()


def test_an_invalid_dataset_is_refused():
    with pytest.raises(TypeError, match="must be the id of a dataset"):
        MinariReplay(7)
    with pytest.raises(FileNotFoundError, match="not found locally"):
        MinariReplay("none-v0")


def test_broken_metadata_is_refused(tmp_path, datasets):
    record_catch(tmp_path / "catch")
    to_minari(tmp_path / "catch", "catch-v0")
    file = datasets / "catch-v0" / "data" / "metadata.json"
    metadata = json.loads(file.read_text("utf-8"))
    del metadata["envkit"]["provenance"]["class"]
    file.write_text(json.dumps(metadata), "utf-8")

    with pytest.raises(RecordingError, match="has no key 'class'"):
        from_minari("catch-v0", tmp_path / "again")


def test_lost_episodes_are_left_out(tmp_path, capsys):
    makers = [functools.partial(CrashingEnv, 3, how="exit"), lambda: CountingEnv(4)]
    pool = ParallelPyEnvironment(
        makers,
        num_workers=2,
        on_worker_failure=RestartPolicy(max_restarts=99, backoff=0),
    )
    with Record(pool, tmp_path / "pool") as env:
        for _ in range(15):
            env.step(np.zeros(2, np.int32))
    assert main(["convert", str(tmp_path / "pool"), "--minari=lost-v0"]) == 0
    printed = capsys.readouterr().out
    # Row 0 was lost in each of its episodes, and its last one was cut short.
    lost = Recording(tmp_path / "pool").lost_episodes()
    assert {row for row, _ in lost} == {0}
    assert f"{len(lost)} episodes left out, because their environments were" in printed
    for episode in minari.load_dataset("lost-v0").iterate_episodes():
        moved = np.diff(episode.observations)
        assert moved.tolist() == [1] * len(moved)
    replay = MinariReplay("lost-v0", at_end="repeat")
    for _ in range(30):
        replay.step(0)
    assert replay.losses() == []


# The command.


def test_the_command_converts_both_ways(tmp_path, capsys):
    recording = record_catch(tmp_path / "catch")
    path = str(tmp_path / "catch")

    assert 0 == main(["convert", path, "--minari=catch-v0", "--author=A", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ("catch-v0", 3, 27) == (told["dataset"], told["episodes"], told["steps"])
    assert 0 == main(["convert", "minari:catch-v0", str(tmp_path / "again")])

    assert "again: 3 episodes, 27 steps" in capsys.readouterr().out
    assert content(recording) == content(Recording(tmp_path / "again"))
