"""`Film`: a file that ends properly whatever happens."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from envkit.errors import MissingDependencyError
from envkit.wrappers.video import film as module
from envkit.wrappers.video.film import Film
from tests.wrappers.films import files, mp4, shades

DEADLINE = 30.0


def picture(shade=0, size=(4, 6)):
    return np.full((*size, 3), shade, np.uint8)


def begun(folder, format_="gif", fps=10):
    film = Film(folder, "film", format=format_, fps=fps)
    film.write(picture(1))
    return film


def test_a_film_without_pictures_is_no_file(tmp_path):
    film = Film(tmp_path, "film", format="gif", fps=10)
    film.finish()

    assert [] == files(tmp_path)
    assert film.path is None


def test_a_film_is_finished_once(tmp_path, caplog):
    film = begun(tmp_path)
    with caplog.at_level(logging.INFO, "envkit"):
        film.finish()
        film.finish()

    assert [f"filmed {tmp_path / 'film.gif'}: 1 pictures"] == caplog.messages


def test_a_missing_package_is_named_and_leaves_no_file(
    tmp_path, monkeypatch, message_of
):
    monkeypatch.setitem(sys.modules, "imageio.v3", None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)

    assert {
        "gif": 'RecordVideo with format="gif" needs the package imageio, which is not '
        'installed. pip install "envkit[video]"',
        "mp4": 'RecordVideo with format="mp4" needs the package imageio-ffmpeg, which '
        'is not installed. pip install "envkit[video]"',
    } == {
        name: message_of(
            MissingDependencyError, lambda name=name: begun(tmp_path, name)
        )
        for name in ("gif", "mp4")
    }
    assert [] == files(tmp_path)


def test_packages_are_imported_with_the_first_picture():
    script = (
        "import sys\n"
        "from envkit.envs import Catch\n"
        "from envkit.wrappers.video.record_video import RecordVideo\n"
        "RecordVideo(Catch(), 'films')\n"
        "print([name for name in sys.modules if 'imageio' in name or 'PIL' in name])\n"
    )

    assert "[]\n" == python(script)


def python(script):
    return subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_a_film_that_cannot_begin_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: "no-such-program")
    with pytest.raises(FileNotFoundError):
        begun(tmp_path, "mp4")

    assert [] == files(tmp_path)


def broken(folder):
    """Returns a film whose file fails from now on."""
    film = begun(folder)
    film._file._file.close()
    return film


def test_a_film_that_cannot_go_on_is_deleted(tmp_path):
    film = broken(tmp_path)
    with pytest.raises(ValueError, match="closed file"):
        film.write(picture())
    film.finish()

    assert [] == files(tmp_path)


def test_ctrl_c_while_a_picture_is_written_ends_the_film_before_it(
    tmp_path, monkeypatch
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    film = begun(tmp_path)
    monkeypatch.setattr(film._file, "_imwrite", interrupt)
    with pytest.raises(KeyboardInterrupt):
        film.write(picture())

    assert [1] == shades(tmp_path / "film.gif")


def test_a_film_that_cannot_end_is_deleted(tmp_path):
    film = broken(tmp_path)
    with pytest.raises(ValueError, match="closed file"):
        film.finish()

    assert [] == files(tmp_path)


def test_a_forgotten_film_that_cannot_end_is_deleted_and_says_so(tmp_path, caplog):
    film = broken(tmp_path)
    del film

    assert [
        f"the film {tmp_path / 'film.gif'} is lost: I/O operation on closed file."
    ] == caplog.messages
    assert [] == files(tmp_path)


SCRIPT = """
import os, sys
import numpy as np
from envkit.wrappers.video.film import Film
film = Film({folder!r}, "film", format={format!r}, fps=10)
for shade in range(3):
    film.write(np.full((4, 6, 3), shade, np.uint8))
"""


def filming(folder, format_, then=""):
    return SCRIPT.format(folder=str(folder), format=format_) + then


def test_the_end_of_the_interpreter_ends_a_film(tmp_path):
    python(filming(tmp_path, "mp4"))

    assert 3 == len(mp4(tmp_path / "film.mp4", 4, 6))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("format_", ["gif", "mp4"])
def test_a_film_of_a_process_that_was_killed_can_be_played(tmp_path, format_):
    script = filming(tmp_path, format_, f"os.kill(os.getpid(), {signal.SIGKILL})")
    with pytest.raises(subprocess.CalledProcessError):
        python(script)
    if format_ == "gif":
        assert [0, 1, 2] == shades(tmp_path / "film.gif")
    else:
        assert 3 == len(_eventually(tmp_path / "film.mp4"))


def _eventually(path):
    """Reads a film that ffmpeg is about to end."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return mp4(path, 4, 6)
        except subprocess.CalledProcessError:
            if time.monotonic() > end:
                raise


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.parametrize("format_", ["gif", "mp4"])
def test_a_process_that_was_forked_leaves_the_film_alone(tmp_path, format_):
    """It neither writes to it, nor ends it, nor keeps it from ending."""
    then = """
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    film.write(np.full((4, 6, 3), 9, np.uint8))
    film.finish()
    os.write(ready[1], b"!")
    os.read(go[0], 1)
    os._exit(0)
os.read(ready[0], 1)
film.write(np.full((4, 6, 3), 3, np.uint8))
film.finish()
print(film.pictures)
os.write(go[1], b"!")
os.waitpid(child, 0)
"""
    said = python(filming(tmp_path, format_, then))

    assert "4\n" == said
    if format_ == "gif":
        assert [0, 1, 2, 3] == shades(tmp_path / "film.gif")
    else:
        assert 4 == len(mp4(tmp_path / "film.mp4", 4, 6))


def test_a_film_that_was_left_to_another_process_takes_no_picture(tmp_path):
    film = begun(tmp_path)
    module._leave_all_to_parent()
    film.write(picture())
    film.finish()

    assert 1 == film.pictures
    assert [1] == shades(tmp_path / "film.gif")


def test_an_mp4_that_was_left_to_another_process_is_not_waited_for(tmp_path):
    film = begun(tmp_path, "mp4")
    film._leave_to_parent()
    running = film._file._process
    film.finish()

    assert running.returncode is None
    assert 0 == running.wait()
    assert 1 == len(mp4(tmp_path / "film.mp4", 4, 6))


def test_a_film_is_left_once(tmp_path):
    film = begun(tmp_path)
    film.finish()
    film._leave_to_parent()

    assert [1] == shades(tmp_path / "film.gif")
