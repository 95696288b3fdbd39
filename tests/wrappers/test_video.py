"""`RecordVideo`: which pictures come into which films."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys

import imageio.v3 as imageio
import numpy as np
import pytest

from envkit import ArraySpec, BatchedPyEnvironment, ParallelPyEnvironment
from envkit._shared.pixels import tiled
from envkit.envs import Catch
from envkit.errors import MissingDependencyError
from envkit.wrappers import video
from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.video import (
    Film,
    RecordVideo,
    capped_cubic_video_schedule,
    schedule,
)
from tests.waiting import until
from tests.wrappers.films import Slides, files, gif, mp4, shades, slides
from tests.wrappers.recorder import Recorder


def filmed(env, folder, **options):
    return RecordVideo(env, folder, format="gif", **options)


def play(env, steps):
    for _ in range(steps):
        env.step(np.zeros(env.batch_size or (), np.int32))


# What is filmed: the lengths of the episodes of each row, options, steps, the films.
FILMS = {
    "first and each step": (3, {}, 4, {"episode-0": [0, 1, 2, 3]}),
    "episodes whose number is a cube": (
        *(1, {}, 20),
        {"episode-0": [0, 1], "episode-1": [10, 11], "episode-8": [80, 81]},
    ),
    "every episode": (
        *(2, {"every": 1}, 6),
        {"episode-0": [0, 1, 2], "episode-1": [10, 11, 12]},
    ),
    "every third episode": (
        *(1, {"every": 3}, 8),
        {"episode-0": [0, 1], "episode-3": [30, 31]},
    ),
    "from a step on": (
        *(3, {"step_trigger": lambda step: step == 1}, 8),
        {"step-1": [2, 3]},
    ),
    "both triggers": (
        3,
        {
            "episode_trigger": lambda episode: episode == 1,
            "step_trigger": lambda step: step == 0,
        },
        8,
        {"episode-1": [10, 11, 12, 13], "step-0": [1, 2, 3]},
    ),
    "a film shorter than its episode": (
        *(5, {"video_length": 2}, 5),
        {"episode-0": [0, 1]},
    ),
    "a film that goes on in the next episode": (
        *(2, {"episode_trigger": lambda episode: not episode, "video_length": 5}, 9),
        {"episode-0": [0, 1, 2, 10, 11]},
    ),
    "a film that ends where the next begins": (
        *(2, {"every": 1, "video_length": 5}, 4),
        {"episode-0": [0, 1, 2], "episode-1": [10]},
    ),
    "the first row of a batch": ((2, 5), {}, 3, {"episode-0-row-0": [0, 1, 2]}),
    "another row": ((1, 2), {"rows": 1}, 1, {"episode-0-row-1": [0]}),
    "rows that count their own episodes": (
        (1, 2, 9),
        {"rows": [0, 1], "every": 1},
        4,
        {
            "episode-0-row-0": [0, 1],
            "episode-1-row-0": [10, 11],
            "episode-0-row-1": [0, 1, 2],
            "episode-1-row-1": [10],
        },
    ),
}


@pytest.mark.parametrize(
    ("lengths", "options", "steps", "films"), FILMS.values(), ids=FILMS
)
def test_the_chosen_episodes_are_filmed(tmp_path, lengths, options, steps, films):
    inner = slides(*lengths) if isinstance(lengths, tuple) else Slides(lengths)
    with filmed(inner, tmp_path, **options) as env:
        play(env, steps)
    assert {f"rl-video-{name}.gif": shown for name, shown in films.items()} == {
        name: shades(tmp_path / name) for name in files(tmp_path)
    }


def test_a_film_is_complete_with_the_last_step(tmp_path):
    env = filmed(Slides(3), tmp_path, every=1)
    play(env, 4)
    assert not env.recording
    assert [0, 1, 2, 3] == shades(tmp_path / "rl-video-episode-0.gif")


def test_a_trigger_is_asked_at_each_episode(tmp_path):
    asked = []

    def trigger(episode_id):
        asked.append(episode_id)
        return episode_id == 1

    with filmed(Slides(1), tmp_path, episode_trigger=trigger) as env:
        play(env, 6)
    assert [0, 1, 2] == asked
    assert ["rl-video-episode-1.gif"] == files(tmp_path)


def test_a_step_trigger_counts_the_steps_of_all_episodes(tmp_path):
    asked = []
    with filmed(Slides(2), tmp_path, step_trigger=asked.append) as env:
        play(env, 6)
    assert [0, 1, 2, 3] == asked


def test_without_a_running_film_nothing_is_rendered(tmp_path):
    env = Slides(2)
    with filmed(env, tmp_path, every=2) as wrapped:
        play(wrapped, 6)
    assert 3 == env.looks


def test_time_limits_inside_and_outside_end_a_film(tmp_path):
    for name, wrapped in (
        ("in", filmed(TimeLimit(Slides(9), 2), tmp_path, name_prefix="in")),
        ("out", TimeLimit(filmed(Slides(9), tmp_path, name_prefix="out"), 2)),
    ):
        with wrapped as env:
            play(env, 4)
        assert [0, 1, 2] == shades(tmp_path / f"{name}-episode-0.gif")


# Batches.


def test_a_batch_is_rendered_once_for_all_films(tmp_path):
    env = slides(5, 5)
    with filmed(env, tmp_path, rows=[0, 1]) as wrapped:
        play(wrapped, 3)
    assert [3, 3] == [row.looks for row in env.envs]


def test_a_grid_shows_all_rows_and_follows_the_first(tmp_path):
    with filmed(slides(2, 1, 9), tmp_path, layout="grid", every=1) as env:
        play(env, 4)
    pictures = gif(tmp_path / "rl-video-episode-0.gif")
    assert ["rl-video-episode-0.gif", "rl-video-episode-1.gif"] == files(tmp_path)
    assert [[0, 0, 0], [1, 1, 1], [2, 10, 2]] == [
        [int(picture[0, 0, 0]), int(picture[0, 8, 0]), int(picture[6, 0, 0])]
        for picture in pictures
    ]


def test_a_grid_can_show_a_few_rows(tmp_path):
    with filmed(slides(9, 2, 9), tmp_path, layout="grid", rows=[1, 0]) as env:
        play(env, 4)
    rows = np.array([[2, 2]], np.uint8)
    expected = tiled(np.broadcast_to(rows.T[:, :, None, None], (2, 4, 6, 3)))
    assert np.array_equal(expected, gif(tmp_path / "rl-video-episode-0.gif")[-1])


def test_held_rows_are_not_filmed_again(tmp_path):
    with filmed(slides(9, 9), tmp_path, rows=[0, 1]) as env:
        play(env, 2)
        env.step(np.zeros(2, np.int32), np.array([True, False]))
    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0-row-0.gif")
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0-row-1.gif")


def test_a_masked_reset_ends_only_its_rows_films(tmp_path):
    with filmed(slides(9, 9), tmp_path, rows=[0, 1]) as env:
        play(env, 2)
        env.reset(np.array([True, False]))
        play(env, 1)
    assert {
        "rl-video-episode-0-row-0.gif": [0, 1],
        "rl-video-episode-0-row-1.gif": [0, 1, 2],
        "rl-video-episode-1-row-0.gif": [0, 1],
    } == {name: shades(tmp_path / name) for name in files(tmp_path)}


def test_one_row_of_a_batch_can_be_filmed_alone(tmp_path):
    rows = [Slides(2), Slides(2)]
    batch = BatchedPyEnvironment([filmed(rows[0], tmp_path), rows[1]], False)
    play(batch, 3)
    assert [3, 0] == [row.looks for row in rows]
    assert ["rl-video-episode-0.gif"] == files(tmp_path)


def test_a_film_can_be_made_in_a_worker(tmp_path):
    make = [lambda: filmed(Slides(2), tmp_path), lambda: Slides(2)]
    with ParallelPyEnvironment(make, num_workers=1, start_method="fork") as env:
        play(env, 3)
    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0.gif")


# The end of a film.


def test_a_reset_in_mid_episode_ends_a_film(tmp_path):
    with filmed(Slides(9), tmp_path, every=2) as env:
        play(env, 3)
        env.reset()
        assert not env.recording
    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0.gif")


def test_closing_ends_a_film_once(tmp_path):
    env = filmed(Slides(9), tmp_path)
    play(env, 2)
    env.close()
    env.close()
    assert not env.recording
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0.gif")


def test_closing_ends_an_mp4(tmp_path):
    with RecordVideo(Slides(9), tmp_path) as env:
        play(env, 3)
    assert 3 == len(mp4(tmp_path / "rl-video-episode-0.mp4", 4, 6))


def test_a_film_ends_with_its_garbage_collected_environment(tmp_path):
    env = RecordVideo(Slides(9), tmp_path)
    play(env, 3)
    del env
    gc.collect()
    assert 3 == len(mp4(tmp_path / "rl-video-episode-0.mp4", 4, 6))


def test_restoring_a_state_ends_a_film(tmp_path):
    with filmed(Slides(9), tmp_path) as env:
        play(env, 2)
        state = pickle.loads(pickle.dumps(env.get_state()))
        play(env, 1)
        env.set_state(state)
        recording = env.recording
        observation = env.step(0).observation
    assert not recording
    assert 2 == observation
    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0.gif")


def test_a_state_restores_the_number_of_the_episode(tmp_path):
    with filmed(Slides(1), tmp_path, every=2) as env:
        play(env, 4)
        state = env.get_state()
        play(env, 2)
        env.set_state(state)
        play(env, 1)
    assert [
        "rl-video-episode-0.gif",
        "rl-video-episode-2-2.gif",
        "rl-video-episode-2.gif",
    ] == files(tmp_path)


def test_a_refused_state_leaves_the_film_running(tmp_path):
    with filmed(Slides(9), tmp_path) as env:
        play(env, 1)
        with pytest.raises(TypeError):
            env.set_state(None)
        assert env.recording


def test_a_copy_begins_without_the_film_of_the_original(tmp_path):
    with filmed(Slides(9), tmp_path) as env:
        play(env, 1)
        other = copy.deepcopy(env)
        play(other, 1)
        play(env, 1)
        assert (True, False) == (env.recording, other.recording)
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0.gif")


# Files.


def test_films_are_never_overwritten(tmp_path):
    for _ in range(3):
        with filmed(Slides(9), tmp_path) as env:
            play(env, 1)
    assert [
        "rl-video-episode-0-2.gif",
        "rl-video-episode-0-3.gif",
        "rl-video-episode-0.gif",
    ] == files(tmp_path)


def test_the_folder_is_created_with_the_first_film(tmp_path):
    folder = tmp_path / "new" / "films"
    env = filmed(Slides(9), folder, name_prefix="catch")
    before = files(tmp_path)
    play(env, 1)
    env.close()
    assert [] == before
    assert ["catch-episode-0.gif"] == files(folder)


def test_repr_shows_the_folder(tmp_path):
    env = RecordVideo(Catch(), "films")
    assert "RecordVideo(Catch(), video_folder='films')" == repr(env)
    assert "films" == env.video_folder


# What cannot be filmed.


def test_an_environment_that_cannot_render_is_refused(tmp_path, message_of):
    env = filmed(Recorder(ArraySpec((), np.int32)), tmp_path)
    assert (
        "RecordVideo cannot film Recorder without pictures: Recorder cannot render: "
        "override render(mode), which returns a uint8 array of shape (height, width, "
        '3) for "rgb_array".'
    ) == message_of(NotImplementedError, env.reset)
    assert [] == files(tmp_path)
    assert not env.recording


def test_anything_but_a_picture_is_refused(tmp_path, message_of):
    env = filmed(Slides(size=(4, 6, 1)), tmp_path)
    assert (
        'Slides.render("rgb_array") did not return a picture.\n\n'
        "  expected   uint8 array of shape (height, width, 3)\n"
        "  got        array of shape (4, 6, 1, 3), dtype uint8, values 0 … 0\n\n"
        "Colours last, values from 0 to 255."
    ) == message_of(ValueError, env.reset)
    assert [] == files(tmp_path)


def test_a_change_of_the_pictures_size_ends_the_film(tmp_path, message_of):
    slide = Slides()
    env = filmed(slide, tmp_path)
    play(env, 2)
    slide.size = (8, 6)
    assert (
        "Picture 2 has shape (8, 6, 3), but those before it have (4, 6, 3), and a film "
        f"has one size. {tmp_path / 'rl-video-episode-0.gif'} holds the pictures "
        "before it."
    ) == message_of(ValueError, lambda: env.step(0))
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0.gif")


def test_a_rendering_error_keeps_the_film_so_far(tmp_path):
    slide = Slides()
    env = filmed(slide, tmp_path)
    play(env, 2)
    slide.size = None
    with pytest.raises(TypeError):
        env.step(0)
    assert not env.recording
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0.gif")


def test_an_environment_is_closed_even_if_a_film_fails_to_end(tmp_path, monkeypatch):
    env = Slides()
    closed = []
    monkeypatch.setattr(env, "close", lambda: closed.append(True))
    wrapped = filmed(env, tmp_path)
    play(wrapped, 1)
    # Whatever it is that fails.
    monkeypatch.setattr("envkit.wrappers.video.Film.finish", lambda film: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        wrapped.close()
    assert [True] == closed


# Arguments.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"every": 0},
            ValueError,
            "every must be an integer of at least 1, got 0.",
        ),
        (
            {"every": 2, "episode_trigger": bool},
            ValueError,
            "RecordVideo was given both every and episode_trigger. Both choose "
            "episodes: leave one of them out.",
        ),
        (
            {"episode_trigger": 5},
            TypeError,
            (
                "episode_trigger must be a function of a number that returns whether "
                "to film, got 5 of type int. For every n-th episode, pass every=n."
            ),
        ),
        (
            {"step_trigger": "always"},
            TypeError,
            (
                "step_trigger must be a function of a number that returns whether to "
                "film, got the string 'always'."
            ),
        ),
        (
            {"video_length": -1},
            ValueError,
            "video_length must be an integer of at least 0 (0 for whole episodes), "
            "got -1.",
        ),
        ({"format": "avi"}, ValueError, "format must be one of gif, mp4, got 'avi'."),
        (
            {"layout": "row"},
            ValueError,
            "layout must be one of episode, grid, got 'row'.",
        ),
        ({"fps": 0}, ValueError, "fps must be a number above 0, got 0."),
        ({"fps": "30"}, ValueError, "fps must be a number above 0, got '30'."),
        ({"fps": True}, ValueError, "fps must be a number above 0, got True."),
        (
            {"fps": 60, "format": "gif"},
            ValueError,
            "fps is 60; a GIF shows at most 50 pictures in a second. Pass "
            'format="mp4" for more.',
        ),
        (
            {"name_prefix": "films/catch"},
            ValueError,
            (
                "name_prefix must be the beginning of the names of files, got "
                "'films/catch'. Folders belong in video_folder."
            ),
        ),
        (
            {"name_prefix": ""},
            ValueError,
            (
                "name_prefix must be the beginning of the names of files, got ''. "
                "Folders belong in video_folder."
            ),
        ),
        (
            {"rows": 0},
            ValueError,
            "RecordVideo was given rows=0, and Slides is not batched, so it has no "
            "rows to choose from. Leave it out.",
        ),
        (
            {"layout": "grid"},
            ValueError,
            'RecordVideo was given layout="grid", and Slides is not batched, so it '
            "has no rows to choose from. Leave it out.",
        ),
    ],
)
def test_invalid_arguments_are_refused(options, error, message, tmp_path, message_of):
    assert message == message_of(
        error, lambda: RecordVideo(Slides(), tmp_path, **options)
    )


@pytest.mark.parametrize("rows", [-1, 2, [0, 0], [], [[0]], [[0], [0, 1]], "0", 1.0])
def test_invalid_rows_are_refused(rows, tmp_path, message_of):
    assert (
        f"rows is {rows!r}; RecordVideo takes a row or several different ones, from 0 "
        "to 1."
    ) == message_of(ValueError, lambda: RecordVideo(slides(1, 1), tmp_path, rows=rows))


def test_a_file_is_refused_as_a_folder(tmp_path, message_of):
    path = tmp_path / "films"
    path.touch()
    assert f"video_folder is {str(path)!r}, which is not a folder." == message_of(
        NotADirectoryError, lambda: RecordVideo(Slides(), path)
    )


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        (3, "3 of type int"),
        (None, "None"),
        (b"x", "the string b'x'"),
    ],
)
def test_the_folder_must_be_a_path(folder, text, message_of):
    assert (
        "video_folder must be the path of a folder, a str or a pathlib.Path, got "
        f"{text}."
    ) == message_of(TypeError, lambda: RecordVideo(Catch(), folder))


def test_an_empty_folder_name_is_refused(message_of):
    assert (
        'video_folder must be the path of a folder, such as "." for the current '
        'one, got "".'
    ) == message_of(ValueError, lambda: RecordVideo(Catch(), ""))


# Which episodes are filmed.


def test_by_default_cubes_and_every_thousandth_episode_are_filmed():
    filmed = [n for n in range(3500) if capped_cubic_video_schedule(n)]
    assert [n**3 for n in range(11)] + [2000, 3000] == filmed


def test_a_step_trigger_alone_films_no_episode():
    assert schedule(None, None, bool) is None


def test_a_given_trigger_is_used_unchanged():
    assert schedule(None, bool, None) is bool


@pytest.mark.parametrize("episode", [None, "3", -1, 2.5, float("-inf")])
def test_an_episode_is_known_by_its_number(episode, message_of):
    assert (
        f"episode_id must be an integer of at least 0, got {episode!r}."
    ) == message_of(ValueError, lambda: capped_cubic_video_schedule(episode))


# `Film`: a file that ends properly whatever happens.


def picture(shade=0, size=(4, 6)):
    return np.full((*size, 3), shade, np.uint8)


def begun(folder, format_="gif", fps=10):
    film = Film(folder, "film", format=format_, fps=fps)
    film.write(picture(1))
    return film


def test_a_film_without_pictures_is_not_written(tmp_path):
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


def test_a_missing_package_is_named_without_leaving_a_file(
    tmp_path, monkeypatch, message_of
):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    for format_ in ("gif", "mp4"):
        assert (
            "RecordVideo needs the package imageio-ffmpeg, which is not installed. "
            'pip install "imageio-ffmpeg>=0.5.1"'
        ) == message_of(
            MissingDependencyError, functools.partial(begun, tmp_path, format_)
        )
    assert [] == files(tmp_path)


def test_packages_are_imported_with_the_first_picture():
    script = (
        "import sys\n"
        "from envkit.envs import Catch\n"
        "from envkit.wrappers.video import RecordVideo\n"
        "RecordVideo(Catch(), 'films')\n"
        "print([name for name in sys.modules if 'imageio' in name or 'PIL' in name])\n"
    )
    assert "[]\n" == python(script)


def python(script):
    return subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_a_film_that_fails_to_begin_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: "no-such-program")
    with pytest.raises(FileNotFoundError):
        begun(tmp_path, "mp4")
    assert [] == files(tmp_path)


def broken(folder):
    """Returns a film whose ffmpeg is gone."""
    film = begun(folder)
    film._file._process.kill()
    film._file._process.wait()
    return film


def test_a_film_that_fails_midway_is_deleted(tmp_path):
    film = broken(tmp_path)
    with pytest.raises(OSError, match=r"could not write .*film\.gif; it ended with"):
        film.write(picture())
    film.finish()
    assert [] == files(tmp_path)


@pytest.mark.parametrize("format_", ["gif", "mp4"])
def test_ctrl_c_while_a_picture_is_written_ends_the_film_before_it(
    tmp_path, format_, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    film = begun(tmp_path, format_)
    with monkeypatch.context() as patch:
        patch.setattr(np, "ascontiguousarray", interrupt)
        with pytest.raises(KeyboardInterrupt):
            film.write(picture())
    assert 1 == shown(tmp_path / f"film.{format_}")


def shown(path):
    """Counts the pictures of a film of 4 by 6 points."""
    return len(gif(path)) if path.suffix == ".gif" else len(mp4(path, 4, 6))


def test_a_film_that_fails_to_end_is_deleted(tmp_path):
    film = broken(tmp_path)
    with pytest.raises(OSError, match="it ended with status -9"):
        film.finish()
    assert [] == files(tmp_path)


def test_an_unclosed_film_that_fails_to_end_warns_and_is_deleted(tmp_path, caplog):
    film, path = broken(tmp_path), tmp_path / "film.gif"
    del film
    assert [
        f"the film {path} is lost: ffmpeg could not write {path}; it ended with status "
        "-9."
    ] == caplog.messages
    assert [] == files(tmp_path)


SCRIPT = """
import os, sys
import numpy as np
from envkit.wrappers.video import Film
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
def test_the_film_of_a_killed_process_can_be_played(tmp_path, format_):
    script = filming(tmp_path, format_, f"os.kill(os.getpid(), {signal.SIGKILL})")
    with pytest.raises(subprocess.CalledProcessError):
        python(script)
    path = tmp_path / f"film.{format_}"

    def is_whole():
        # Until ffmpeg has ended it, reading may raise anything: Pillow takes half a
        # picture for an OSError, an IndexError or a struct.error.
        with contextlib.suppress(Exception):
            return shown(path) == 3

    assert until(is_whole)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.parametrize("format_", ["gif", "mp4"])
def test_a_forked_process_leaves_the_film_alone(tmp_path, format_):
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
    assert 4 == shown(tmp_path / f"film.{format_}")


def test_an_abandoned_film_takes_no_picture(tmp_path):
    film = begun(tmp_path)
    video._leave_all_to_parent()
    film.write(picture())
    film.finish()
    assert 1 == film.pictures
    film._file._process.wait()


def test_an_abandoned_mp4_is_not_waited_for(tmp_path):
    film = begun(tmp_path, "mp4")
    film._leave_to_parent()
    running = film._file._process
    film.finish()
    assert running.returncode is None
    assert 0 == running.wait()
    assert 1 == len(mp4(tmp_path / "film.mp4", 4, 6))


def test_a_film_is_abandoned_once(tmp_path):
    film = begun(tmp_path)
    film.finish()
    film._leave_to_parent()
    assert [1] == shades(tmp_path / "film.gif")


# GIFs.


def write(path, pictures, fps=10):
    film = Film(path.parent, path.stem, format=path.suffix[1:], fps=fps)
    for one in pictures:
        film.write(one)
    film.finish()


def test_few_colours_are_nearly_exact(tmp_path):
    levels = np.array([0, 1, 90, 128, 254, 255], np.uint8)
    pictures = np.random.default_rng(0).choice(levels, (3, 30, 40, 3))
    write(tmp_path / "film.gif", pictures)
    read = gif(tmp_path / "film.gif").astype(int)
    assert np.abs(read - pictures).max() <= 3


def test_many_colours_are_approximate(tmp_path):
    # A slope of colours, as real pictures have them.
    line, column = np.mgrid[:40, :60]
    slope = np.stack([6 * line, 4 * column, line + column], axis=-1).astype(np.uint8)
    write(tmp_path / "film.gif", [slope, slope[::-1]])
    read = gif(tmp_path / "film.gif").astype(int)
    assert np.abs(read - [slope, slope[::-1]]).mean() < 8


@pytest.mark.parametrize("fps", [50, 30, 24, 10, 7.5, 1])
def test_the_frame_rate_is_kept(tmp_path, fps):
    path = tmp_path / "film.gif"
    count = round(4 * fps)
    write(path, [np.full((2, 2, 3), i % 250, np.uint8) for i in range(count)], fps)
    with imageio.imopen(path, "r", plugin="pillow") as film:
        durations = [film.metadata(index=i)["duration"] for i in range(count)]
    assert abs(sum(durations) - 4000) <= 10
    assert max(durations) - min(durations) <= 10


def test_a_gif_repeats_for_ever(tmp_path):
    path = tmp_path / "film.gif"
    write(path, [np.zeros((2, 2, 3), np.uint8)] * 2)
    assert 0 == imageio.immeta(path, plugin="pillow", index=0)["loop"]


# MP4s, and what is told when ffmpeg fails.


SCRIPTS = pytest.mark.skipif(os.name != "posix", reason="Windows runs no such scripts")


def test_mp4_pictures_are_approximate(tmp_path):
    pictures = np.zeros((20, 32, 48, 3), np.uint8)
    for i, picture in enumerate(pictures):
        picture[:, : 2 * i] = (200, 12 * i, 30)
    write(tmp_path / "film.mp4", pictures)
    read = mp4(tmp_path / "film.mp4", 32, 48)
    assert pictures.shape == read.shape
    assert np.abs(read.astype(int) - pictures).mean() < 8


@pytest.mark.parametrize("size", [(5, 6), (4, 7), (5, 7), (1, 1)])
def test_odd_sizes_repeat_their_last_line(tmp_path, size):
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
def test_errors_of_ffmpeg_are_reported(tmp_path, ffmpeg, message_of, capfd):
    ffmpeg("cat > /dev/null; echo It is too dark. >&2; exit 3")
    path = tmp_path / "film.mp4"
    assert f"ffmpeg could not write {path}; it ended with status 3." == message_of(
        OSError, lambda: write(path, [np.zeros((2, 2, 3), np.uint8)])
    )
    assert "It is too dark.\n" == capfd.readouterr().err


@SCRIPTS
def test_a_crashed_ffmpeg_is_noticed_with_the_next_picture(
    tmp_path, ffmpeg, message_of
):
    ffmpeg("exec <&-; echo Enough. >&2; exit 2")
    path = tmp_path / "film.mp4"
    # More than a pipe holds.
    picture = np.zeros((600, 800, 3), np.uint8)
    assert f"ffmpeg could not write {path}; it ended with status 2." == message_of(
        OSError, lambda: write(path, [picture])
    )


def test_no_python_runs_in_the_process_that_becomes_ffmpeg(tmp_path):
    """Libraries with threads, such as gRPC, end a process that is forked for long."""
    forked = []
    os.register_at_fork(before=lambda: forked.append(True))
    write(tmp_path / "film.gif", [picture()])
    assert [] == forked


@SCRIPTS
def test_a_hung_ffmpeg_is_killed(tmp_path, ffmpeg, monkeypatch, message_of):
    ffmpeg("exec sleep 1000")
    monkeypatch.setattr(video, "_SECONDS", 0.01)
    path = tmp_path / "film.mp4"
    assert f"ffmpeg could not write {path}; it ended with status -9." == message_of(
        OSError, lambda: write(path, [np.zeros((2, 2, 3), np.uint8)])
    )
