"""Pictures in recordings: who renders them, where they are, and who reads them."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from envkit import AsyncParallelPyEnvironment, BatchedPyEnvironment, Blocking, make
from envkit.errors import RecordingError
from envkit.recording import Record, Recording, Replay
from envkit.testing import CountingEnv


def make_catch():
    return make("Catch-v1", seed=1)


def pictures_in(path):
    return [
        episode.picture(step)
        for episode in Recording(path).episodes()
        for step in range(len(episode))
    ]


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    """A recording of CartPole, and what was rendered at each of its time steps."""
    path, rendered = tmp_path_factory.mktemp("pictures") / "cart", []
    # So little memory that pictures are put aside while their episode goes on.
    with Record(make("CartPole-v1", seed=7), path, pictures=True, memory=2**16) as env:
        env.reset()
        rendered.append(env.render())
        for _ in range(25):
            env.step(0)
            rendered.append(env.render())
    return path, rendered


def test_every_time_step_has_the_picture_that_was_rendered(cart):
    path, rendered = cart
    found = pictures_in(path)
    assert len(found) == len(rendered) == 26
    np.testing.assert_array_equal(found, rendered)


def test_the_pictures_are_files_of_a_zip_archive(cart):
    path, rendered = cart
    with zipfile.ZipFile(path / "row-000/pictures-000000.zip") as archive:
        image = Image.open(io.BytesIO(archive.read("000003.png"))).convert("RGB")
    np.testing.assert_array_equal(np.asarray(image), rendered[3])


def test_a_replay_renders_the_pictures_of_its_recording(cart):
    path, rendered = cart
    env = Replay(path)
    env.reset()
    env.step(0)
    np.testing.assert_array_equal(env.render(), rendered[1])


def test_a_recording_with_pictures_replays_bit_for_bit_without_them(cart, tmp_path):
    with Record(make("CartPole-v1", seed=7), tmp_path / "plain") as env:
        env.reset()
        for _ in range(25):
            env.step(0)
    for ours, theirs in zip(
        Recording(cart[0]).episodes(),
        Recording(tmp_path / "plain").episodes(),
        strict=True,
    ):
        np.testing.assert_array_equal(
            ours.column("observation"), theirs.column("observation")
        )
        assert theirs.picture(0) is None
    replayed = Replay(tmp_path / "plain")
    replayed.reset()
    with pytest.raises(NotImplementedError, match="with pictures=True"):
        replayed.render()


def test_each_row_of_a_batch_has_its_own_pictures(tmp_path):
    batch = BatchedPyEnvironment([make("Catch-v1", seed=seed) for seed in (1, 2)])
    with Record(batch, tmp_path / "r", pictures=True) as env:
        env.reset()
        shown = env.render()
    first, second = pictures_in(tmp_path / "r")
    np.testing.assert_array_equal([first, second], shown)


def test_an_asynchronous_pool_has_pictures_while_no_row_is_stepping(tmp_path):
    pool = AsyncParallelPyEnvironment([make_catch] * 2, backend="inline")
    with Record(Blocking(pool), tmp_path / "r", pictures=True) as env:
        env.step([0, 0])
        env.step([0, 0])
        shown = env.render()
    found = pictures_in(tmp_path / "r")
    np.testing.assert_array_equal([found[1], found[3]], shown)


def test_episodes_that_are_not_written_are_not_rendered(tmp_path):
    with Record(
        make("Catch-v1", seed=1), tmp_path / "r", "cubic", pictures=True
    ) as env:
        for _ in range(31):
            env.step(0)
    found = sorted(file.name for file in tmp_path.glob("r/row-000/pictures-*"))
    assert found == ["pictures-000000.zip", "pictures-000001.zip"]


def test_an_environment_that_does_not_render_is_refused_at_once(tmp_path):
    class Blind(CountingEnv):
        def render(self, mode="rgb_array"):
            raise NotImplementedError("Blind cannot render.")

    with pytest.raises(NotImplementedError, match="Blind cannot render"):
        Record(Blind(), tmp_path / "r", pictures=True)
    assert not (tmp_path / "r").exists()


def test_pictures_that_are_damaged_raise_and_missing_ones_are_none(tmp_path):
    path = tmp_path / "r"
    with Record(make("Catch-v1", seed=1), path, pictures=True) as env:
        env.step(0)
    archive = path / "row-000/pictures-000000.zip"
    whole = archive.read_bytes()
    archive.write_bytes(whole.replace(b"IDAT", b"IDOT"))
    episode = next(Recording(path).episodes())
    with pytest.raises(RecordingError, match=r"pictures-000000\.zip"):
        episode.picture(0)
    assert episode.time_step(0).is_first()
    archive.unlink()
    assert next(Recording(path).episodes()).picture(0) is None


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, b"GIF89a"])
def test_a_picture_that_is_none_raises(data, tmp_path):
    path = tmp_path / "r"
    with Record(make("Catch-v1", seed=1), path, pictures=True) as env:
        env.reset()
    with zipfile.ZipFile(path / "row-000/pictures-000000.zip", "w") as archive:
        archive.writestr("000000.png", data)
    with pytest.raises(RecordingError, match=r"not a PNG|has not written"):
        next(Recording(path).episodes()).picture(0)
