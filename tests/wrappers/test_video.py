"""`RecordVideo`: which pictures come into which films."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

from envkit import ArraySpec, BatchedPyEnvironment, ParallelPyEnvironment
from envkit.envs import Catch
from envkit.wrappers.limits import TimeLimit
from envkit.wrappers.pictures.rendered import tiled
from envkit.wrappers.video.record_video import RecordVideo
from tests.wrappers.films import Slides, files, gif, mp4, shades, slides
from tests.wrappers.recorder import Recorder


def filmed(env, folder, **options):
    return RecordVideo(env, folder, format="gif", **options)


def play(env, steps):
    for _ in range(steps):
        env.step(np.zeros(env.batch_size or (), np.int32))


# What is filmed.


def test_a_film_shows_first_and_each_step_of_an_episode(tmp_path):
    with filmed(Slides(3), tmp_path) as env:
        play(env, 4)

    assert ["rl-video-episode-0.gif"] == files(tmp_path)
    assert [0, 1, 2, 3] == shades(tmp_path / "rl-video-episode-0.gif")


def test_a_film_is_complete_with_the_last_step(tmp_path):
    env = filmed(Slides(3), tmp_path, every=1)
    play(env, 4)

    assert not env.recording
    assert [0, 1, 2, 3] == shades(tmp_path / "rl-video-episode-0.gif")


def test_the_next_episode_goes_into_another_file(tmp_path):
    with filmed(Slides(2), tmp_path, every=1) as env:
        play(env, 6)

    assert ["rl-video-episode-0.gif", "rl-video-episode-1.gif"] == files(tmp_path)
    assert [10, 11, 12] == shades(tmp_path / "rl-video-episode-1.gif")


def test_cubes_are_filmed_unless_told_otherwise(tmp_path):
    with filmed(Slides(1), tmp_path) as env:
        play(env, 20)

    assert [f"rl-video-episode-{cube}.gif" for cube in (0, 1, 8)] == files(tmp_path)


def test_every_nth_episode_is_filmed_if_asked_for(tmp_path):
    with filmed(Slides(1), tmp_path, every=3) as env:
        play(env, 14)

    assert [f"rl-video-episode-{number}.gif" for number in (0, 3, 6)] == files(tmp_path)


def test_a_trigger_is_asked_at_each_episode(tmp_path):
    asked = []

    def trigger(episode_id):
        asked.append(episode_id)
        return episode_id == 1

    with filmed(Slides(1), tmp_path, episode_trigger=trigger) as env:
        play(env, 6)

    assert [0, 1, 2] == asked
    assert ["rl-video-episode-1.gif"] == files(tmp_path)


def test_a_step_trigger_begins_a_film_in_mid_episode(tmp_path):
    with filmed(Slides(3), tmp_path, step_trigger=lambda step: step == 1) as env:
        play(env, 8)

    assert ["rl-video-step-1.gif"] == files(tmp_path)
    assert [2, 3] == shades(tmp_path / "rl-video-step-1.gif")


def test_a_step_trigger_counts_the_steps_of_all_episodes(tmp_path):
    asked = []
    with filmed(Slides(2), tmp_path, step_trigger=asked.append) as env:
        play(env, 6)

    assert [0, 1, 2, 3] == asked


def test_both_triggers_may_be_given(tmp_path):
    with filmed(
        Slides(3),
        tmp_path,
        episode_trigger=lambda episode: episode == 1,
        step_trigger=lambda step: step == 0,
    ) as env:
        play(env, 8)

    assert ["rl-video-episode-1.gif", "rl-video-step-0.gif"] == files(tmp_path)


def test_a_film_of_so_many_pictures_ends_before_the_episode(tmp_path):
    with filmed(Slides(5), tmp_path, video_length=2) as env:
        play(env, 5)

    assert [0, 1] == shades(tmp_path / "rl-video-episode-0.gif")


def test_a_film_of_so_many_pictures_goes_on_in_the_next_episode(tmp_path):
    with filmed(
        Slides(2), tmp_path, episode_trigger=lambda episode: not episode, video_length=5
    ) as env:
        play(env, 9)

    assert [0, 1, 2, 10, 11] == shades(tmp_path / "rl-video-episode-0.gif")


def test_a_trigger_ends_the_film_that_runs(tmp_path):
    with filmed(Slides(2), tmp_path, every=1, video_length=5) as env:
        play(env, 4)

    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0.gif")
    assert [10] == shades(tmp_path / "rl-video-episode-1.gif")


def test_while_no_film_runs_nothing_is_rendered(tmp_path):
    env = Slides(2)
    with filmed(env, tmp_path, every=2) as wrapped:
        play(wrapped, 6)

    assert 3 == env.looks


def test_a_time_limit_inside_ends_a_film_and_one_outside_does_too(tmp_path):
    for name, wrapped in (
        ("in", filmed(TimeLimit(Slides(9), 2), tmp_path, name_prefix="in")),
        ("out", TimeLimit(filmed(Slides(9), tmp_path, name_prefix="out"), 2)),
    ):
        with wrapped as env:
            play(env, 4)

        assert [0, 1, 2] == shades(tmp_path / f"{name}-episode-0.gif")


# Batches.


def test_of_a_batch_the_first_row_is_filmed(tmp_path):
    with filmed(slides(2, 5), tmp_path) as env:
        play(env, 3)

    assert ["rl-video-episode-0-row-0.gif"] == files(tmp_path)
    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0-row-0.gif")


def test_each_row_counts_its_own_episodes(tmp_path):
    with filmed(slides(1, 2, 9), tmp_path, rows=[0, 1], every=1) as env:
        play(env, 4)

    assert {
        "rl-video-episode-0-row-0.gif": [0, 1],
        "rl-video-episode-1-row-0.gif": [10, 11],
        "rl-video-episode-0-row-1.gif": [0, 1, 2],
        "rl-video-episode-1-row-1.gif": [10],
    } == {name: shades(tmp_path / name) for name in files(tmp_path)}


def test_one_row_may_be_given_as_a_number(tmp_path):
    with filmed(slides(1, 2), tmp_path, rows=1) as env:
        play(env, 1)

    assert ["rl-video-episode-0-row-1.gif"] == files(tmp_path)


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


def test_a_grid_may_be_of_some_rows(tmp_path):
    with filmed(slides(9, 2, 9), tmp_path, layout="grid", rows=[1, 0]) as env:
        play(env, 4)
    rows = np.array([[2, 2]], np.uint8)
    expected = tiled(np.broadcast_to(rows.T[:, :, None, None], (2, 4, 6, 3)))

    assert np.array_equal(expected, gif(tmp_path / "rl-video-episode-0.gif")[-1])


def test_rows_that_stay_are_not_filmed_again(tmp_path):
    with filmed(slides(9, 9), tmp_path, rows=[0, 1]) as env:
        play(env, 2)
        env.step(np.zeros(2, np.int32), np.array([True, False]))

    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0-row-0.gif")
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0-row-1.gif")


def test_a_reset_of_some_rows_ends_their_films_only(tmp_path):
    with filmed(slides(9, 9), tmp_path, rows=[0, 1]) as env:
        play(env, 2)
        env.reset(np.array([True, False]))
        play(env, 1)

    assert {
        "rl-video-episode-0-row-0.gif": [0, 1],
        "rl-video-episode-0-row-1.gif": [0, 1, 2],
        "rl-video-episode-1-row-0.gif": [0, 1],
    } == {name: shades(tmp_path / name) for name in files(tmp_path)}


def test_one_environment_of_a_batch_may_be_filmed_alone(tmp_path):
    rows = [Slides(2), Slides(2)]
    batch = BatchedPyEnvironment([filmed(rows[0], tmp_path), rows[1]], False)
    play(batch, 3)

    assert [3, 0] == [row.looks for row in rows]
    assert ["rl-video-episode-0.gif"] == files(tmp_path)


def test_a_film_can_be_made_in_a_worker(tmp_path):
    make = [lambda: filmed(Slides(2), tmp_path), lambda: Slides(2)]
    with ParallelPyEnvironment(make, num_workers=1) as env:
        play(env, 3)

    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0.gif")


# The end of a film.


def test_a_reset_in_mid_episode_ends_a_film(tmp_path):
    with filmed(Slides(9), tmp_path, every=2) as env:
        play(env, 3)
        env.reset()

        assert not env.recording
    assert [0, 1, 2] == shades(tmp_path / "rl-video-episode-0.gif")


def test_closing_ends_a_film_and_a_second_time_does_nothing(tmp_path):
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


def test_a_film_of_a_forgotten_environment_ends_with_it(tmp_path):
    env = RecordVideo(Slides(9), tmp_path)
    play(env, 3)
    del env
    gc.collect()

    assert 3 == len(mp4(tmp_path / "rl-video-episode-0.mp4", 4, 6))


def test_going_back_to_a_state_ends_a_film(tmp_path):
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


def test_a_state_brings_the_number_of_the_episode_back(tmp_path):
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


def test_a_state_that_is_refused_leaves_the_film_running(tmp_path):
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


def test_no_film_is_overwritten(tmp_path):
    for _ in range(3):
        with filmed(Slides(9), tmp_path) as env:
            play(env, 1)

    assert [
        "rl-video-episode-0-2.gif",
        "rl-video-episode-0-3.gif",
        "rl-video-episode-0.gif",
    ] == files(tmp_path)


def test_folders_are_made_with_the_first_film(tmp_path):
    folder = tmp_path / "new" / "films"
    env = filmed(Slides(9), folder, name_prefix="catch")
    before = files(tmp_path)
    play(env, 1)
    env.close()

    assert [] == before
    assert ["catch-episode-0.gif"] == files(folder)


def test_the_text_of_the_chain_shows_the_folder(tmp_path):
    env = RecordVideo(Catch(), "films")

    assert "RecordVideo(Catch(), video_folder='films')" == repr(env)
    assert "films" == env.video_folder


# What cannot be filmed.


def test_an_environment_that_cannot_render_is_refused(tmp_path, message_of):
    env = filmed(Recorder(ArraySpec((), np.int32)), tmp_path)

    assert (
        "RecordVideo cannot film Recorder: Recorder cannot render. It films what "
        'render("rgb_array") returns: override render(mode) in the environment.'
    ) == message_of(NotImplementedError, env.reset)
    assert [] == files(tmp_path)
    assert not env.recording


def test_what_is_no_picture_is_refused(tmp_path, message_of):
    env = filmed(Slides(size=(4, 6, 1)), tmp_path)

    assert (
        'Slides.render("rgb_array") did not return a picture.\n\n'
        "  expected   uint8 array of shape (height, width, 3)\n"
        "  got        array of shape (4, 6, 1, 3), dtype uint8, values 0 … 0\n\n"
        "Colours last, values from 0 to 255."
    ) == message_of(ValueError, env.reset)
    assert [] == files(tmp_path)


def test_pictures_that_change_their_size_end_the_film(tmp_path, message_of):
    slide = Slides()
    env = filmed(slide, tmp_path)
    play(env, 2)
    slide.size = (8, 6)

    assert (
        "The picture after 2 has shape (8, 6, 3), and those before have (4, 6, 3): a "
        "film has one size. It ends with those before, in "
        f"{tmp_path / 'rl-video-episode-0.gif'}."
    ) == message_of(ValueError, lambda: env.step(0))
    assert [0, 1] == shades(tmp_path / "rl-video-episode-0.gif")


def test_an_environment_that_fails_to_render_keeps_what_was_filmed(tmp_path):
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
    monkeypatch.setattr("envkit.wrappers.video.film.Film.finish", lambda film: 1 / 0)
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
            "every is 0; it must be an integer of at least 1.",
        ),
        (
            {"every": 2, "episode_trigger": bool},
            ValueError,
            "RecordVideo was given both every and episode_trigger, which say the same "
            "thing in two ways: leave one of them out.",
        ),
        (
            {"episode_trigger": 5},
            TypeError,
            "episode_trigger is 5 of type int; it must be something to call with a "
            "number, which says whether to film. For every n-th episode, pass every=n.",
        ),
        (
            {"step_trigger": "always"},
            TypeError,
            "step_trigger is the string 'always'; it must be something to call with a "
            "number, which says whether to film.",
        ),
        (
            {"video_length": -1},
            ValueError,
            "video_length is -1; it must be an integer of at least 0 (0 for whole "
            "episodes).",
        ),
        ({"format": "avi"}, ValueError, "format is 'avi'; it is one of gif, mp4."),
        (
            {"layout": "row"},
            ValueError,
            "layout is 'row'; it is one of episode, grid.",
        ),
        ({"fps": 0}, ValueError, "fps is 0; it must be a number above 0."),
        ({"fps": "30"}, ValueError, "fps is '30'; it must be a number above 0."),
        ({"fps": True}, ValueError, "fps is True; it must be a number above 0."),
        (
            {"fps": 60, "format": "gif"},
            ValueError,
            "fps is 60; a GIF shows at most 50 pictures in a second. Pass "
            'format="mp4" for more.',
        ),
        (
            {"name_prefix": "films/catch"},
            ValueError,
            "name_prefix is 'films/catch'; it is what the names of files begin with. "
            "Folders belong into video_folder.",
        ),
        (
            {"name_prefix": ""},
            ValueError,
            "name_prefix is ''; it is what the names of files begin with. Folders "
            "belong into video_folder.",
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
def test_wrong_arguments_are_refused(options, error, message, tmp_path, message_of):
    assert message == message_of(
        error, lambda: RecordVideo(Slides(), tmp_path, **options)
    )


@pytest.mark.parametrize("rows", [-1, 2, [0, 0], [], [[0]], [[0], [0, 1]], "0", 1.0])
def test_wrong_rows_are_refused(rows, tmp_path, message_of):
    assert (
        f"rows is {rows!r}; RecordVideo takes a row or several different ones, from 0 "
        "to 1."
    ) == message_of(ValueError, lambda: RecordVideo(slides(1, 1), tmp_path, rows=rows))


def test_a_file_is_no_folder(tmp_path, message_of):
    path = tmp_path / "films"
    path.touch()

    assert f"video_folder is {str(path)!r}, which is no folder." == message_of(
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
def test_a_folder_is_a_path(folder, text, message_of):
    assert (
        f"video_folder is {text}; it must be the path of a folder, a str or a "
        "pathlib.Path."
    ) == message_of(TypeError, lambda: RecordVideo(Catch(), folder))


def test_no_folder_is_not_the_current_one(message_of):
    assert (
        'video_folder is ""; it must be the path of a folder, such as "." for the '
        "current one."
    ) == message_of(ValueError, lambda: RecordVideo(Catch(), ""))
