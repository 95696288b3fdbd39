"""Recordings, provenances and states that are broken: the right data, or the error."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envkit import make, nest
from envkit.errors import RecordingError
from envkit.provenance import dumped, to_plain
from envkit.recording import Record, Recording, Replay, rebuilt
from envkit.specs import ObjectSpec
from envkit.testing import CountingEnv
from envkit.wrappers import (
    DelayAction,
    FrameStack,
    NormalizeObservation,
    RecordEpisodeStatistics,
    TimeLimit,
)


class Telling(CountingEnv):
    """Observes objects, and has an info."""

    def observation_spec(self):
        return {"board": super().observation_spec(), "said": ObjectSpec(())}

    def _observe(self):
        said = np.array(None, object)
        said[()] = {"word": "step"}
        return {"board": super()._observe(), "said": said}

    def get_info(self):
        return {"count": 3, "path": np.arange(4)}


def _record(path, env, **options):
    with Record(env, path, **options) as recording:
        for step in range(24):
            recording.step(np.zeros(env.batch_size or (), np.int64))
            if step % 5 == 0:
                recording.annotate(value=0.5, words=["a", step])
            if step == 12:
                recording.seed(4)
                recording.reset()


MAKERS = {
    "plain": lambda path: _record(path, make("Catch", seed=1), compress=False),
    "compressed": lambda path: _record(path, make("Catch", seed=1)),
    "objects": lambda path: _record(path, Telling(4)),
    "pool": lambda path: _record(
        path, make("Catch", rows=5, num_envs=2, backend="inline"), when="cubic"
    ),
}


@pytest.fixture(scope="module", params=MAKERS)
def original(request, tmp_path_factory):
    """A recording; its files and what is in them."""
    path = tmp_path_factory.mktemp("broken") / "r"
    MAKERS[request.param](path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return path, {file: file.read_bytes() for file in files}, read(path)


def read(path):
    """Returns all that a recording gives."""
    recording = Recording(path, warn=False)
    layout = recording.layout
    episodes = []
    for entry in recording.entries:
        episode = recording.load(entry)
        steps = []
        for step in range(len(episode)):
            parts = [episode.action(step)]
            if entry.kind == "episode":
                parts += [
                    layout.time_step.flatten(episode.time_step(step)),
                    episode.info(step),
                    episode.annotations(step),
                ]
            steps.append(dumped(to_plain(parts, "steps")))
        episodes.append((entry[:3], episode.ended, episode.last_number, steps))
    replay = Replay(path)
    replay.reset()
    nest.flatten(replay.observation_spec())
    return recording.events, recording.unfinished, episodes


def read_or_error(path):
    try:
        return read(path), None
    except RecordingError as error:
        return None, error


@st.composite
def damages(draw):
    """Draws what happens to the bytes of a file."""
    kind = draw(st.sampled_from(["flip", "cut", "swap", "splice", "zeros"]))
    first, second = sorted(draw(st.tuples(*[st.integers(0, 10**6)] * 2)))
    length = draw(st.integers(1, 8))
    bit, junk = draw(st.integers(0, 7)), draw(st.binary(max_size=6))

    def damage(content):
        size = max(len(content) - 1, 0)
        a, b = first * size // 10**6, second * size // 10**6
        if kind == "cut":
            return content[:a]
        if kind == "splice":
            return content[:a] + junk + content[b:]
        changed = bytearray(content)
        if kind == "flip" and content:
            changed[a] ^= 1 << bit
        elif kind == "zeros":
            changed[a : a + length] = bytes(len(changed[a : a + length]))
        elif kind == "swap" and a + length <= b:
            changed[a : a + length] = content[b : b + length]
            changed[b : b + length] = content[a : a + length]
        return bytes(changed)

    return damage


@pytest.mark.slow
@settings(max_examples=60)
@given(number=st.integers(0, 99), damage=damages())
def test_broken_files_are_read_correctly_or_refused(original, number, damage):
    path, files, expected = original
    file = sorted(files)[number % len(files)]
    file.write_bytes(damage(files[file]))
    try:
        found, error = read_or_error(path)
    finally:
        file.write_bytes(files[file])

    # Of text that is still whole no reader can say that it was another.
    is_named = error is not None and str(path) in str(error)
    assert is_named or expected == found or (error is None and file.suffix != ".npz")


@pytest.mark.slow
def test_a_flipped_bit_anywhere_in_an_episode_is_noticed_or_harmless(tmp_path):
    """Headers of the archive and of its arrays included: a bit of every fifth byte."""
    with Record(CountingEnv(1), tmp_path / "r", compress=False) as env:
        env.step(0)
        env.step(0)
    expected = read(tmp_path / "r")
    (file,) = tmp_path.glob("r/row-000/*.npz")
    content = file.read_bytes()
    noticed = 0
    for place in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        found, error = read_or_error(tmp_path / "r")
        assert expected == found or str(file) in str(error), place
        noticed += error is not None

    assert noticed > len(content) / 10


def test_swapped_files_are_read_correctly_or_refused(original):
    path, files, expected = original
    for file in files:
        for other in files:
            file.write_bytes(files[other])
            found, error = read_or_error(path)
            file.write_bytes(files[file])
            assert expected == found or str(path) in str(error)


@pytest.mark.slow
@settings(max_examples=30)
@given(damage=damages())
@example(damage=lambda content: content.replace(b'"count": 2', b'"count": 99999999999'))
@example(damage=lambda content: content.replace(b'"count": 2', b'"count": -1'))
@example(damage=lambda content: b'{"id": ' + b"[" * 100_000)
def test_a_broken_provenance_is_rebuilt_or_refused(original, damage):
    path, files, _ = original
    file = path / "provenance.json"
    try:
        known = json.loads(damage(files[file]))
    except (ValueError, RecursionError):
        return
    # Of another name it may be any function of Python's.
    if isinstance(known, dict) and known.get("id") == json.loads(files[file])["id"]:
        with contextlib.suppress(RecordingError):
            env, _ = rebuilt(known)
            env.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"arguments": {"rows": "many"}},
        {"arguments": {"rows": -3}},
        {"arguments": {"no_such": 3}},
        {"arguments": {"rows": {"$name": 3}}},
        {"arguments": {"rows": {"$name": "zlib:error"}}},
        {"arguments": {"rows": {"$partial": 5}}},
        {"arguments": {"rows": {"$constructor": {}}}},
        {"id": "zlib:decompress", "arguments": {"data": {"$bytes": "aGk="}}},
        {"id": "struct:unpack", "arguments": None},
        {"seed": {"$float": "nan"}},
        {"seed": [1, "two"]},
        {"seed": -1},
        {"wrappers": [{"class": "zlib:error", "arguments": {}}]},
        {"wrappers": [{"class": "builtins:list", "arguments": {}}]},
        {"wrappers": [{"class": "", "arguments": {}}]},
    ],
    ids=str,
)
def test_an_invalid_provenance_is_always_a_recording_error(wrong):
    known = {**make("Catch", seed=1).provenance(), **wrong}
    with pytest.raises(RecordingError):
        rebuilt(known)


def test_a_pool_is_rebuilt_only_from_recorded_fields(message_of):
    with make("Catch", num_envs=2, backend="inline") as env:
        known = env.provenance()
    known["arguments"]["worker_setup"] = "os:abort"

    assert (
        "envkit.parallel.parallel_py_environment:ParallelPyEnvironment was given "
        "'worker_setup', which recordings don't note for a pool. Name what makes it "
        "with --env, as 'module:function'."
    ) == message_of(RecordingError, lambda: rebuilt(known))


@pytest.mark.parametrize("count", [0, -1, 10**12])
def test_an_absurd_number_of_environments_is_refused(count):
    with make("Catch", num_envs=2, backend="inline") as env:
        known = env.provenance()
    known["environments"][0]["count"] = count
    with pytest.raises(RecordingError, match=r"must be at (least 1|most 100000)\."):
        rebuilt(known)


def test_errors_name_the_file_and_are_chained(tmp_path):
    _record(tmp_path / "r", make("Catch", seed=1), compress=False)
    file = tmp_path / "r/row-000/episode-000001.npz"
    content = bytearray(file.read_bytes())
    content[content.index(b"observation.npy") + 200] ^= 1
    file.write_bytes(content)
    recording = Recording(tmp_path / "r")

    with pytest.raises(RecordingError) as raised:
        recording.load(recording.entries[1])
    assert (
        f"{str(file)!r} cannot be read: BadZipFile: Bad CRC-32 for file "
        "'observation.npy'."
    ) == str(raised.value)
    assert isinstance(raised.value.__cause__, zipfile.BadZipFile)


def test_a_shortened_array_is_noticed(tmp_path):
    """Its header is read first, and says how much more there is to read."""
    _record(tmp_path / "r", make("Catch", seed=1), compress=False)
    file = tmp_path / "r/row-000/episode-000000.npz"
    content = file.read_bytes()
    assert content.count(b"'shape': (10,)")
    file.write_bytes(content.replace(b"'shape': (10,)", b"'shape': (1, )"))
    with pytest.raises(RecordingError, match=r"longer than it says|CRC"):
        next(Recording(tmp_path / "r").episodes())


def test_swapped_episodes_are_refused(tmp_path, message_of):
    _record(tmp_path / "r", make("Catch", seed=1))
    folder = tmp_path / "r/row-000"
    shutil.copy(folder / "episode-000000.npz", folder / "episode-000001.npz")
    recording = Recording(tmp_path / "r")

    assert (
        f"{str(folder / 'episode-000001.npz')!r} cannot be read: it says that it is "
        "{'kind': 'episode', 'row': 0, 'episode': 0}, and its name {'kind': 'episode', "
        "'row': 0, 'episode': 1}."
    ) == message_of(RecordingError, lambda: recording.load(recording.entries[1]))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"next": 1},
        {"next": 1, "index": 0, "step": "2"},
        {"next": 99, "index": 0, "step": 2},
        {"next": 1, "index": -2, "step": 2},
        {"next": 1, "index": 0, "step": 10**9},
        [1, 0, 2],
        None,
    ],
    ids=str,
)
def test_a_broken_state_of_a_replay_changes_nothing(wrong, tmp_path):
    _record(tmp_path / "r", make("Catch", seed=1))
    env = Replay(tmp_path / "r")
    env.reset()
    token = env.get_state()

    with pytest.raises(RecordingError, match=r"Replay.set_state\(\) was given"):
        env.set_state(token._replace(environment=wrong))
    assert 1 == int(env.step(0).step_type)
    env.set_state(token)
    assert (0, 9) == (env.episode, len(env._playing()) - 1)


WRAPPERS = [
    lambda env: TimeLimit(env, 5),
    lambda env: FrameStack(env, 3),
    lambda env: RecordEpisodeStatistics(env),
    lambda env: NormalizeObservation(env),
    lambda env: DelayAction(env, 2),
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_incomplete_wrapper_state_changes_nothing(wrapper, message_of):
    env = wrapper(make("Catch", seed=1))
    env.reset()
    token = env.get_state()
    before = env.step(0)
    own = token.environment.own
    for lacking in [None, *own]:
        rest = {key: own[key] for key in own if lacking not in (None, key)}
        broken = token._replace(environment=token.environment._replace(own=rest))

        assert message_of(
            ValueError, functools.partial(env.set_state, broken)
        ).startswith(f"{type(env).__name__}.set_state() was given ")
        assert before is env.current_time_step()


@pytest.mark.parametrize("made_by", [b"", "1.0", (None,), object()], ids=type)
def test_a_state_without_its_origin_changes_nothing(made_by, message_of):
    env = make("CartPole", seed=1)
    env.reset()
    token = env.get_state()
    before = env.step(0)

    message = message_of(
        ValueError, lambda: env.set_state(token._replace(made_by=made_by))
    )
    assert message.startswith("CartPole.set_state() was given a state that is broken")
    assert before is env.current_time_step()


@pytest.mark.parametrize(
    "wrong", [None, "x", np.zeros(7), np.array(["x"] * 4)], ids=str
)
def test_a_broken_state_of_a_built_in_environment_changes_nothing(wrong, message_of):
    env, twin = make("CartPole", seed=1), make("CartPole", seed=1)
    env.reset()
    token = env.get_state()
    twin.reset()
    for one in (env, twin):
        one.step(0)
    own = token.environment
    broken = [own | {key: wrong} for key in own]
    broken += [{key: own[key] for key in own if key != lacking} for lacking in own]
    for each in broken:
        state = token._replace(environment=each)
        assert message_of(
            ValueError, functools.partial(env.set_state, state)
        ).startswith("CartPole.set_state() was given ")
    for _ in range(20):
        assert str(env.step(1)) == str(twin.step(1))
