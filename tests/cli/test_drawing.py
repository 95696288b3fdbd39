"""`envkit replay --html`: pictures that are drawn by replaying the actions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, make
from envkit._shared.png import pixels_of
from envkit.cli import page_pictures
from envkit.cli.drawing import draw
from envkit.cli.main import main
from envkit.cli.page_pictures import PagePictures
from envkit.envs import CartPole
from envkit.recording import Record, Recording
from envkit.testing import CountingEnv
from tests.cli.pages import data_of, page_of, pixels_in

HERE = __name__
GYMNASIUM = "gymnasium:CartPole-v1"


def record(path, env, steps=12, seed=7):
    """Records some steps; returns what was rendered at each time step."""
    rendered = []
    with Record(env, path) as recorded:
        recorded.seed(seed)
        time_step = recorded.reset()
        for _ in range(steps):
            rendered.append(recorded.render())
            time_step = recorded.step(np.zeros_like(time_step.step_type))
        rendered.append(recorded.render())
    return rendered


def with_provenance(path, **change):
    """Changes what a recording says about its environment."""
    file = path / "provenance.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}))
    return path


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    """A recording of Gymnasium's CartPole, and the pictures at its time steps."""
    path = tmp_path_factory.mktemp("drawing") / "cart"
    rendered = record(path, make(GYMNASIUM, render_mode="rgb_array"))
    # As Gymnasium's users make it.
    return with_provenance(path, arguments={}), rendered


def test_a_page_has_the_pictures_that_the_environment_shows_again(cart, capsys):
    path, rendered = cart
    page = page_of(path)
    found = [pixels for one in data_of(page)[1] for pixels in pixels_in(one)]
    np.testing.assert_array_equal(found, rendered)
    assert "13 drawn pictures\n" in capsys.readouterr().out


def test_an_environment_that_was_watched_is_drawn_without_a_window(cart, tmp_path):
    path, rendered = cart
    copied = tmp_path / "cart"
    copied.symlink_to(path)
    with_provenance(path, arguments={"render_mode": "human"})
    try:
        _, episodes = data_of(page_of(copied))
    finally:
        with_provenance(path, arguments={})
    assert sum(len(one["pictures"]["png"]) for one in episodes) == len(rendered)


def test_each_row_of_a_batch_is_drawn(tmp_path):
    batch = BatchedPyEnvironment([make("CartPole"), make("CartPole")])
    rendered = record(tmp_path / "r", batch, steps=2)
    _, episodes = data_of(page_of(tmp_path / "r"))
    found = [pixels_in(one) for one in episodes]
    np.testing.assert_array_equal(np.swapaxes(found, 0, 1), rendered)


def test_small_observations_are_drawn_if_they_can_be(tmp_path):
    rendered = record(tmp_path / "r", make("GridWorld"), steps=2)
    _, (episode,) = data_of(page_of(tmp_path / "r"))
    np.testing.assert_array_equal(pixels_in(episode), rendered)
    _, (episode,) = data_of(page_of(with_provenance(tmp_path / "r", id="os:getpid")))
    assert [picture.shape for picture in pixels_in(episode)] == [(8, 8, 3)] * 3


def test_nothing_is_drawn_with_no_draw(cart, capsys):
    path, _ = cart
    story, _ = data_of(page_of(path, "--no-draw", "--json"))
    assert not story["hasPictures"]
    told = json.loads(capsys.readouterr().out)
    assert (told["pictures"], told["pictures_missing"]) == (0, None)


def test_an_environment_that_starts_otherwise_has_no_pictures(tmp_path, capsys):
    with Record(make(GYMNASIUM), tmp_path / "r") as env:  # without a seed
        env.step(0)
    page = page_of(tmp_path / "r", "--json")
    story, episodes = data_of(page)
    assert not story["hasPictures"]
    why = json.loads(capsys.readouterr().out)["pictures_missing"]
    assert why.startswith(
        "There are no pictures, because the environment no longer does what was "
        "recorded: episode 0, step 0 has "
    )
    assert "The recording names no seed." in why
    assert episodes[0]["pictures"]["note"] == why


class Drifting(CartPole):
    """Does something else from the fourth step on, in another world."""

    drifts = False

    def _step(self, action):
        time_step = super()._step(action)
        if self.drifts and self._clock >= 4:
            return time_step._replace(reward=np.float32(9))
        return time_step


def make_drifting():
    env = Drifting()
    env.drifts = True
    return env


def test_pictures_end_where_the_replay_differs(tmp_path, capsys):
    record(tmp_path / "r", Drifting())
    page = page_of(tmp_path / "r", "--env", f"{HERE}:make_drifting")
    film = data_of(page)[1][0]["pictures"]
    assert film["until"] == max(film["steps"]) < 11
    assert film["note"].startswith("There are no more pictures, because the environ")
    assert film["note"] in capsys.readouterr().err.replace("\n", "")


CALLS = []


def make_traced():
    CALLS.append("called")
    return CartPole()


def test_other_code_is_drawn_only_if_asked_for(tmp_path, capsys):
    record(tmp_path / "r", make(f"{HERE}:make_traced"))
    CALLS.clear()
    story, _ = data_of(page_of(tmp_path / "r"))
    assert not story["hasPictures"]
    assert CALLS == []
    assert (
        f"drawing them imports and calls {HERE}:make_traced. If you trust the "
        "recording, envkit replay --html --draw does so."
    ) in capsys.readouterr().err
    target = ["replay", str(tmp_path / "r"), "--html", str(tmp_path / "r.html")]
    assert main([*target, "--draw"]) == 2
    assert "If you trust this one, pass --trust." in capsys.readouterr().err
    assert CALLS == []
    story, _ = data_of(page_of(tmp_path / "r", "--draw", "--trust"))
    assert story["hasPictures"]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "gymnasium:os:CartPole-v1"},
        {"id": "gymnasium:NoSuchGame-v1"},
        {"arguments": {"path": "/etc/passwd"}},
        {"arguments": {"env_id": ["os:CartPole-v1"]}},
        {"arguments": {"wrapper": {"class": "os.getpid"}}},
        {"arguments": {"make": {"$name": "os.getpid"}}},
        {"wrappers": [{"class": "os.getpid", "arguments": {}}]},
        {"wrappers": [{"class": "os:getpid", "arguments": {}}]},
    ],
    ids=str,
)
def test_only_what_a_library_lists_is_drawn_unasked(change, tmp_path, capsys):
    record(tmp_path / "r", make(GYMNASIUM, render_mode="rgb_array"), steps=1)
    known = {"arguments": {}, **change}
    page_of(with_provenance(tmp_path / "r", **known))
    assert "drawing them imports and calls " in capsys.readouterr().err


class Blind(CountingEnv):
    """Shows nothing."""

    def render(self, mode="rgb_array"):
        raise NotImplementedError("Blind cannot render.")


def test_an_environment_that_cannot_draw_is_reported_if_drawing_is_asked_for(
    tmp_path, capsys
):
    with Record(Blind(), tmp_path / "r") as env:
        env.step(0)
    target = ["replay", str(tmp_path / "r"), "--html", str(tmp_path / "r.html")]
    assert main([*target, "--env", f"{HERE}:Blind"]) == 2
    assert "envkit replay: Blind cannot render.\n" == capsys.readouterr().err


def test_draw_without_a_page_is_refused(cart, capsys):
    assert main(["replay", str(cart[0]), "--draw"]) == 2
    assert "--draw has no effect without --html" in capsys.readouterr().err


def test_drawing_ends_when_its_time_is_over(tmp_path):
    record(tmp_path / "r", make("CartPole"))
    recording = Recording(tmp_path / "r")
    pictures = PagePictures(recording)
    env = make("CartPole")
    env.seed(7)
    draw(recording, env, pictures, 0.0)
    assert len(pictures) == 1
    assert "because drawing them took over 0 seconds" in pictures.problem


def test_large_pictures_are_thinned_to_what_a_page_can_hold(tmp_path, monkeypatch):
    with Record(make("CartPole", seed=7), tmp_path / "r", pictures=True) as env:
        for step in range(9):
            env.step(step % 2)
    episode = next(Recording(tmp_path / "r").episodes())
    monkeypatch.setattr(page_pictures, "_MOST_BYTES", 4 * len(episode.png(0)))
    film = data_of(page_of(tmp_path / "r"))[1][0]["pictures"]
    assert film["steps"] == [0, 4, 8]
    assert film["note"].startswith("The page has one picture for every 4 time steps")
    whole = data_of(page_of(tmp_path / "r", "--pictures", "100"))[1][0]
    assert len(whole["pictures"]["steps"]) == 9
    np.testing.assert_array_equal(pixels_in(whole)[5], pixels_of(episode.png(5)))
