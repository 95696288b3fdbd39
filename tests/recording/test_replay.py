"""`Replay`: what was recorded, as an environment."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envkit
from envkit import BatchedPyEnvironment, RandomPyEnvironment, make, nest, registry
from envkit.cli.main import main
from envkit.errors import RecordingEnded, RecordingError
from envkit.provenance import VersionWarning, name_of
from envkit.recording import Record, Recording, Replay, rebuilt, replaying
from envkit.specs import sample_spec_nest
from envkit.testing import CountingEnv, check_environment
from envkit.wrappers import TimeLimit
from tests import strategies


def bits(time_step):
    return [
        (np.asarray(leaf).dtype, np.shape(leaf), np.asarray(leaf).tobytes())
        for leaf in nest.flatten(time_step)
    ]


def recorded(path, env, steps):
    with Record(env, path) as recording:
        return [recording.step(0) for _ in range(steps)]


@settings(max_examples=12)
@given(
    observation=strategies.nests(strategies.array_specs()),
    action=strategies.nests(strategies.bounded_specs()),
    seed=st.integers(0, 2**31),
    memory=st.sampled_from([1, 3000, 10**8]),
    compress=st.booleans(),
)
def test_a_replay_returns_the_recorded_stream(
    observation, action, seed, memory, compress, tmp_path_factory
):
    """Whatever the nests, and however often parts had to be put aside."""
    folder = tmp_path_factory.mktemp("recording") / "r"
    env = RandomPyEnvironment(observation, action, 0.3, seed=seed)
    rng = np.random.default_rng(seed)
    with Record(env, folder, memory=memory, compress=compress) as recording:
        stream = []
        for _ in range(12):
            chosen = sample_spec_nest(action, rng)
            stream.append((chosen, bits(recording.step(chosen))))
    replayed = Replay(folder, actions="check")
    came = []
    for chosen, _ in stream:
        try:
            came.append(bits(replayed.step(chosen)))
        except RecordingEnded:  # Of the last one there was nothing but its FIRST.
            break
    expected = [told for _, told in stream[: len(came)]]

    assert len(came) >= len(stream) - 1
    assert expected[:-1] == came[:-1]
    # An episode that was left in its middle ends there.
    assert expected[-1][1:] == came[-1][1:]


def test_replayed_time_steps_fit_the_specs(tmp_path):
    env = make("Catch", seed=1)
    recorded(tmp_path / "r", env, 12)
    replayed = Replay(tmp_path / "r")
    assert env.environment_spec() == replayed.environment_spec()


def test_episodes_are_replayed_in_order(tmp_path, message_of):
    recorded(tmp_path / "r", CountingEnv(steps_per_episode=1), 6)
    env = Replay(tmp_path / "r")
    numbers = []
    for _ in range(6):
        env.step(0)
        numbers.append(env.episode)

    assert [0, 0, 1, 1, 2, 2] == numbers
    assert (
        f"All episodes of the recording in {str(tmp_path / 'r')!r} have been played. "
        "Make another Replay, or one with at_end='repeat'."
    ) == message_of(RecordingEnded, lambda: env.step(0))


def test_a_recording_can_be_repeated(tmp_path):
    recorded(tmp_path / "r", CountingEnv(steps_per_episode=1), 4)
    env = Replay(tmp_path / "r", at_end="repeat")
    assert [0, 2] * 5 == [int(env.step(0).step_type) for _ in range(10)]


def test_reset_goes_to_the_next_episode(tmp_path):
    recorded(tmp_path / "r", CountingEnv(steps_per_episode=3), 8)
    env = Replay(tmp_path / "r")
    env.reset()
    env.step(0)
    assert (0, 1) == (env.episode, env.remaining)
    assert env.reset().is_first()
    assert (1, 0) == (env.episode, env.remaining)


def test_an_abandoned_episode_ends_in_a_truncation(tmp_path):
    with Record(CountingEnv(steps_per_episode=9), tmp_path / "r") as env:
        stream = [env.reset(), env.step(0), env.step(0)]
        env.reset()
    replayed = Replay(tmp_path / "r")
    came = [replayed.step(0) for _ in range(3)]

    assert [0, 1, 2] == [int(step.step_type) for step in came]
    assert (stream[2].discount, stream[2].observation) == (
        came[2].discount,
        came[2].observation,
    )
    with pytest.raises(RecordingEnded):  # The other has only its FIRST.
        replayed.step(0)


def test_rows_and_episodes_can_be_chosen(tmp_path):
    env = BatchedPyEnvironment([CountingEnv(1), CountingEnv(2)])
    with Record(env, tmp_path / "r") as recording:
        for _ in range(6):
            recording.step([0, 0])
    assert 3 == Replay(tmp_path / "r", row=0).remaining
    assert 1 == Replay(tmp_path / "r", row=1, episodes=[1]).remaining
    assert 5 == Replay(tmp_path / "r").remaining


def test_rows_become_a_batch_again(tmp_path):
    env = make("Catch", batch_size=2, seed=1)
    with Record(env, tmp_path / "r") as recording:
        expected = [bits(recording.step([0, 2])) for _ in range(20)]
    again = BatchedPyEnvironment([Replay(tmp_path / "r", row=row) for row in range(2)])
    assert expected == [bits(again.step([0, 2])) for _ in range(20)]


def test_missing_rows_and_episodes_are_reported(tmp_path, message_of):
    recorded(tmp_path / "r", CountingEnv(steps_per_episode=1), 4)
    path = tmp_path / "r"

    assert (
        f"The recording in {str(path)!r} has no episode to play for row=3. It has 2 "
        "episodes, of rows [0]."
    ) == message_of(RecordingError, lambda: Replay(path, row=3))
    assert (
        "actions must be 'ignore' or 'check', got the string 'maybe'."
    ) == message_of(ValueError, lambda: Replay(path, actions="maybe"))


def test_actions_other_than_the_recorded_ones_are_refused(tmp_path, message_of):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        env.reset()
        env.step(2)
        env.step(1)
    replayed = Replay(tmp_path / "r", actions="check")
    replayed.reset()
    replayed.step(np.int32(2))

    assert 1 == replayed.recorded_action()
    assert (
        "Replay.step() was given another action than the recorded one, in episode 0, "
        "step 2, at action.\n\n"
        "  recorded   array of shape (), dtype int64, values 1 … 1\n"
        "  got        2 of type int\n\n"
        "With actions='ignore' they are not compared."
    ) == message_of(RecordingError, lambda: replayed.step(2))
    assert replayed.step(1).is_last()


def test_infos_and_notes_are_replayed(tmp_path):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        env.reset()
        env.step(2)
        env.annotate(value=3)
        expected = env.get_info()
    replayed = Replay(tmp_path / "r")
    replayed.step(0)
    replayed.step(0)

    assert expected == replayed.get_info()
    assert {"value": 3} == replayed.annotations()


def test_a_state_restores_an_earlier_step(tmp_path):
    recorded(tmp_path / "r", make("Catch", seed=1), 30)
    env = Replay(tmp_path / "r")
    for _ in range(13):
        env.step(0)
    token = env.get_state()
    expected = [bits(env.step(0)) for _ in range(10)]
    env.set_state(token)

    assert 1 == env.episode
    assert expected == [bits(env.step(0)) for _ in range(10)]


def test_a_replay_keeps_the_promises_of_an_environment(tmp_path):
    recorded(tmp_path / "r", make("Catch", seed=1), 100)

    check_environment(lambda: Replay(tmp_path / "r", at_end="repeat"), steps=100)


# Recordings that are none, or of others.


def test_a_directory_without_a_recording_is_refused(tmp_path, message_of):
    assert (
        f"There is no recording in {str(tmp_path)!r}: it has no recording.json. A "
        "recording is the directory that Record was given."
    ) == message_of(RecordingError, lambda: Replay(tmp_path))


NOT_THERE = object()


def rewritten(path, name="recording.json", **facts):
    file = path / name
    facts = {**json.loads(file.read_text("utf-8")), **facts}
    there = {key: value for key, value in facts.items() if value is not NOT_THERE}
    file.write_text(json.dumps(there))


def test_a_newer_format_is_refused(tmp_path, message_of):
    recorded(tmp_path / "r", CountingEnv(), 5)
    rewritten(tmp_path / "r", format_version=2, envkit="9.0")
    assert (
        f"The recording in {str(tmp_path / 'r')!r} has version 2 of the format, "
        f"written by envkit 9.0. This is envkit {envkit.__version__}, which reads "
        "versions up to 1: update it."
    ) == message_of(RecordingError, lambda: Replay(tmp_path / "r"))


def test_a_recording_of_another_envkit_version_is_reported(tmp_path):
    recorded(tmp_path / "r", CountingEnv(), 5)
    rewritten(tmp_path / "r", envkit="0.0.1")
    with pytest.warns(VersionWarning) as warned:
        Recording(tmp_path / "r")

    assert [
        f"The recording in {str(tmp_path / 'r')!r} was written by envkit 0.0.1, and "
        f"this is envkit {envkit.__version__}."
    ] == [str(warning.message) for warning in warned]


def test_a_broken_file_is_named(tmp_path, message_of):
    recorded(tmp_path / "r", CountingEnv(), 5)
    file = tmp_path / "r/row-000/episode-000000.npz"
    file.write_bytes(file.read_bytes()[:100])
    assert (
        f"{str(file)!r} cannot be read: BadZipFile: File is not a zip file."
        == message_of(RecordingError, Replay(tmp_path / "r").reset)
    )


@pytest.mark.parametrize(
    ("key", "value", "place", "wrong", "must_be"),
    [
        ("id", NOT_THERE, "", "no key 'id'", "a string"),
        ("class", 5, "['class']", "5 of type int", "a string, or null"),
        ("version", "1", "['version']", "the string '1'", "an integer, or null"),
        ("arguments", "x", "['arguments']", "the string 'x'", "a dictionary, or null"),
        ("seed", NOT_THERE, "", "no key 'seed'", "an integer, a list, or null"),
        ("wrappers", None, "['wrappers']", "None", "a list"),
        (
            "wrappers",
            [{"class": "a:B"}],
            "['wrappers'][0]",
            "no key 'arguments'",
            "a dictionary",
        ),
        (
            "environments",
            [{"count": True}],
            "['environments'][0]['count']",
            "True of type bool",
            "an integer",
        ),
        (
            "environments",
            [{"count": 1}],
            "['environments'][0]",
            "no key 'id'",
            "a string",
        ),
        (
            "packages",
            {"numpy": 2},
            "['packages']['numpy']",
            "2 of type int",
            "a string",
        ),
        ("python", NOT_THERE, "", "no key 'python'", "a string"),
        ("machine", NOT_THERE, "", "no key 'machine'", "a dictionary"),
    ],
)
def test_a_key_of_the_provenance_that_is_missing_or_of_another_type_is_named(
    key, value, place, wrong, must_be, tmp_path, message_of
):
    text = f"has {wrong}{place and f' at {place}'}, which must be {must_be}."
    recorded(tmp_path / "r", make("Catch", seed=1), 5)
    rewritten(tmp_path / "r", "provenance.json", **{key: value})
    file = tmp_path / "r" / "provenance.json"
    known = json.loads(file.read_text("utf-8"))

    assert f"{str(file)!r} {text}" == message_of(
        RecordingError, lambda: Recording(tmp_path / "r")
    )
    assert f"The provenance {text}" == message_of(
        RecordingError, lambda: rebuilt(known)
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("specs", NOT_THERE, "has no key 'specs', which must be a dictionary."),
        (
            "repeats_last",
            1,
            "has 1 of type int at ['repeats_last'], which must be true or false.",
        ),
    ],
)
def test_a_key_of_the_facts_that_is_missing_or_of_another_type_is_named(
    key, value, text, tmp_path, message_of
):
    recorded(tmp_path / "r", make("Catch", seed=1), 5)
    rewritten(tmp_path / "r", **{key: value})
    assert f"{str(tmp_path / 'r/recording.json')!r} {text}" == message_of(
        RecordingError, lambda: Recording(tmp_path / "r")
    )


def test_specs_that_cannot_be_read_are_named(tmp_path, message_of):
    recorded(tmp_path / "r", make("Catch", seed=1), 5)
    rewritten(tmp_path / "r", specs={"time_step": 3})
    assert (
        f"The specs in {str(tmp_path / 'r/recording.json')!r} cannot be read: "
        "KeyError: 'action'."
    ) == message_of(RecordingError, lambda: Recording(tmp_path / "r").layout)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"seed": {"$array": 3}}, "The seed of Catch-v1 cannot be read: TypeError: "),
        (
            {"arguments": {"rows": {"$bytes": None}}},
            "The argument 'rows' of Catch-v1 cannot be read: TypeError: ",
        ),
        ({"id": "NoSuchGame"}, "NoSuchGame cannot be made again: There is no "),
    ],
)
def test_environments_that_cannot_be_rebuilt_say_why(facts, text, message_of):
    known = {**make("Catch", seed=1).provenance(), **facts}
    assert message_of(RecordingError, lambda: rebuilt(known)).startswith(text)


@pytest.mark.parametrize(
    "name", sorted({*replaying._LEFT_OUT, replaying._REAL_TIME, replaying._BATCH})
)
def test_the_class_names_in_checks_exist(name):
    """So that no module is renamed without them."""
    assert name == name_of(registry.load(name, name))


def test_an_environment_is_rebuilt_from_its_provenance(tmp_path):
    env = TimeLimit(make("Catch", rows=5, seed=3), 2)
    recorded(tmp_path / "r", env, 5)
    again, _ = rebuilt(Recording(tmp_path / "r").provenance)
    fresh = TimeLimit(make("Catch", rows=5, seed=3), 2)
    assert [bits(again.step(0)) for _ in range(4)] == [
        bits(fresh.step(0)) for _ in range(4)
    ]


@pytest.mark.parametrize("content", ["{}", "[]", "nothing", "", "\xff"])
@pytest.mark.parametrize("name", ["provenance.json", "recording.json"])
@pytest.mark.parametrize("flag", ["--list", "--check"])
def test_a_broken_facts_file_is_reported_in_one_line(
    flag, name, content, tmp_path, capsys
):
    recorded(tmp_path / "r", make("Catch", seed=1), 5)
    (tmp_path / "r" / name).write_text(content, "latin-1")
    assert 2 == main(["replay", flag, str(tmp_path / "r")])
    told = capsys.readouterr().err
    assert told.startswith(f"envkit replay: '{tmp_path / 'r'}")
    assert 1 == told.count("\n")
    assert "Error" not in told


def test_a_broken_log_is_named(tmp_path, message_of):
    recorded(tmp_path / "r", CountingEnv(), 5)
    file = tmp_path / "r/log.jsonl"
    file.write_bytes(b"\xff\n")
    assert (
        f"{str(file)!r} cannot be read: 'utf-8' codec can't decode byte 0xff in "
        "position 0: invalid start byte."
    ) == message_of(RecordingError, lambda: Recording(tmp_path / "r").events)


def test_a_replay_can_be_pickled(tmp_path):
    recorded(tmp_path / "r", make("Catch", seed=1), 30)
    env = Replay(tmp_path / "r")
    for _ in range(13):
        env.step(0)
    copied = pickle.loads(pickle.dumps(env))

    assert [bits(env.step(0)) for _ in range(10)] == [
        bits(copied.step(0)) for _ in range(10)
    ]


def test_episodes_are_a_list(tmp_path, message_of):
    recorded(tmp_path / "r", CountingEnv(steps_per_episode=1), 4)
    assert "episodes must be a list of numbers, got 1 of type int." == message_of(
        TypeError, lambda: Replay(tmp_path / "r", episodes=1)
    )
