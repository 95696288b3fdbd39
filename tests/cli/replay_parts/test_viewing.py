"""A recording that somebody looks at: what time and keys do."""

from __future__ import annotations

from envkit import make
from envkit.cli.replay_parts.viewing import Viewing, pictures_of
from envkit.recording import Record, Recording


def record(path, env, steps):
    """Records some steps of the same action."""
    with Record(env, path) as recorded:
        for _ in range(steps):
            recorded.step(1)
    return path


def watched(path):
    recording = Recording(path)
    return Viewing(recording), pictures_of(recording)


def where(viewing):
    words = viewing.lines()[0].split()
    return int(words[words.index("episode") + 1]), int(words[words.index("step") + 1])


def test_a_recording_is_played_to_its_end(tmp_path):
    path = record(tmp_path / "r", make("Catch", rows=3, seed=1), steps=6)
    viewing, look = watched(path)
    seen = []
    for _ in range(8):
        seen.append(where(viewing))
        viewing.tick()

    assert [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 2), (1, 2)] == seen
    assert viewing.paused
    assert viewing.lines()[0].endswith("the end")
    assert (3, 5, 3) == viewing.scene(look).shape


def test_keys_go_to_and_fro(tmp_path):
    path = record(tmp_path / "r", make("Catch", rows=3, seed=1), steps=9)
    viewing, _ = watched(path)
    seen = []
    for key in ["n", "right", "p", "p", "p", "left", "n", "left", "x", "n", "n", "n"]:
        viewing.press(key)
        seen.append(where(viewing))

    assert [
        *[(1, 0), (1, 1), (1, 0), (0, 0), (0, 0), (0, 0)],
        *[(1, 0), (0, 2), (0, 2), (1, 0), (2, 0), (2, 0)],
    ] == seen


def test_a_pause_lasts_until_it_is_ended_and_the_end_until_it_begins_anew(tmp_path):
    path = record(tmp_path / "r", make("Catch", rows=2, seed=1), steps=2)
    viewing, _ = watched(path)
    viewing.press("space")
    viewing.tick()
    held = where(viewing)
    viewing.press("space")
    viewing.tick()
    moved = where(viewing)
    viewing.tick()
    viewing.press("space")

    assert ((0, 0), (0, 1), (0, 0), False) == (
        held,
        moved,
        where(viewing),
        viewing.paused,
    )
    viewing.press("esc")
    assert viewing.over


def test_noted_pictures_are_shown_before_observations(tmp_path):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        for _ in range(3):
            env.step(1)
            env.annotate(frame=env.render())
    viewing, look = watched(tmp_path / "r")

    assert (160, 80, 3) == viewing.scene(look).shape


def test_numbers_alone_are_nothing_to_play(tmp_path):
    path = record(tmp_path / "r", make("CartPole", seed=1), steps=3)

    assert pictures_of(Recording(path)) is None
