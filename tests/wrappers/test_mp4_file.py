"""`Mp4File`: what ffmpeg is told, and what is told when it fails."""

from __future__ import annotations

import os

import numpy as np
import pytest

from envkit.wrappers.video import mp4_file
from envkit.wrappers.video.mp4_file import Mp4File
from tests.wrappers.films import mp4

SCRIPTS = pytest.mark.skipif(os.name != "posix", reason="Windows runs no such scripts")


def write(path, pictures):
    file = Mp4File(path, 30, *pictures[0].shape[:2])
    for picture in pictures:
        file.write(picture)
    file.finish()


def test_pictures_come_out_roughly_as_they_were(tmp_path):
    pictures = np.zeros((20, 32, 48, 3), np.uint8)
    for i, picture in enumerate(pictures):
        picture[:, : 2 * i] = (200, 12 * i, 30)
    write(tmp_path / "film.mp4", pictures)
    read = mp4(tmp_path / "film.mp4", 32, 48)

    assert pictures.shape == read.shape
    assert np.abs(read.astype(int) - pictures).mean() < 8


@pytest.mark.parametrize("size", [(5, 6), (4, 7), (5, 7), (1, 1)])
def test_odd_sizes_get_their_last_line_twice(tmp_path, size):
    picture = np.zeros((*size, 3), np.uint8)
    picture[-1], picture[:, -1] = 255, 255
    write(tmp_path / "film.mp4", [picture])
    height, width = (length + length % 2 for length in size)
    (read,) = mp4(tmp_path / "film.mp4", height, width)

    assert (read[-1] > 200).all()
    assert (read[:, -1] > 200).all()


def test_a_part_of_an_array_can_be_filmed(tmp_path):
    pictures = np.zeros((3, 4, 12, 3), np.uint8)
    pictures[:, :, ::2] = 250
    write(tmp_path / "film.mp4", pictures[:, :, ::2])

    assert (mp4(tmp_path / "film.mp4", 4, 6) > 240).all()


@pytest.fixture
def ffmpeg(tmp_path, monkeypatch):
    """Puts a script in the place of ffmpeg."""

    def put(script):
        path = tmp_path / "ffmpeg"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(path))

    return put


@SCRIPTS
def test_what_ffmpeg_says_when_it_fails_is_told(tmp_path, ffmpeg, message_of):
    ffmpeg("cat > /dev/null; echo It is too dark. >&2; exit 3")
    path = tmp_path / "film.mp4"

    assert (
        f"ffmpeg could not write {path}; it ended with status 3.\n\nIt is too dark."
    ) == message_of(OSError, lambda: write(path, [np.zeros((2, 2, 3), np.uint8)]))


@SCRIPTS
def test_a_silent_failure_is_told_too(tmp_path, ffmpeg, message_of):
    ffmpeg("cat > /dev/null; exit 1")
    path = tmp_path / "film.mp4"

    assert f"ffmpeg could not write {path}; it ended with status 1." == message_of(
        OSError, lambda: write(path, [np.zeros((2, 2, 3), np.uint8)])
    )


@SCRIPTS
def test_an_ffmpeg_that_is_gone_is_noticed_with_the_next_picture(
    tmp_path, ffmpeg, message_of
):
    ffmpeg("exec <&-; echo Enough. >&2; exit 2")
    path = tmp_path / "film.mp4"
    # More than a pipe holds.
    picture = np.zeros((600, 800, 3), np.uint8)

    assert (
        f"ffmpeg could not write {path}; it ended with status 2.\n\nEnough."
    ) == message_of(OSError, lambda: write(path, [picture]))


@SCRIPTS
def test_an_ffmpeg_that_hangs_is_ended(tmp_path, ffmpeg, monkeypatch, message_of):
    ffmpeg("exec sleep 1000")
    monkeypatch.setattr(mp4_file, "_SECONDS", 0.0)
    path = tmp_path / "film.mp4"

    assert f"ffmpeg could not write {path}; it ended with status -9." == message_of(
        OSError, lambda: write(path, [np.zeros((2, 2, 3), np.uint8)])
    )
