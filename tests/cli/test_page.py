"""`envkit replay --html`: a page that shows a recording in a browser."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from envkit import PyEnvironment, make, restart, transition
from envkit.cli.main import main
from envkit.parallel import ParallelPyEnvironment, RestartPolicy
from envkit.recording import Record, Recording
from envkit.specs import ArraySpec
from envkit.testing import CountingEnv, CrashingEnv
from envkit.wrappers import TimeLimit
from tests.cli.chromium import chromium, needs_chromium
from tests.cli.pages import data_of, page_of
from tests.waiting import until


def columns_of(story, episode):
    """Returns the columns of an episode by name."""
    return {
        story["plots"][plot]["name"]: np.frombuffer(base64.b64decode(data), dtype)
        for plot, dtype, data in episode["columns"]
    }


class OneObservation(PyEnvironment):
    """Always observes the same."""

    def __init__(self, value):
        super().__init__()
        self._value = value

    def observation_spec(self):
        return ArraySpec(self._value.shape, self._value.dtype)

    def action_spec(self):
        return ArraySpec((), np.int32)

    def _reset(self):
        return restart(self._value)

    def _step(self, action):
        return transition(self._value, 0.0)


class TwoObservations(OneObservation):
    """Observes a value and its opposite by turns."""

    def _step(self, action):
        self._value = -self._value
        return transition(self._value, 0.0)


class Infinite(OneObservation):
    """Earns all that there is, and then owes it."""

    def _step(self, action):
        self._sign = -getattr(self, "_sign", -1)
        return transition(self._value, self._sign * np.inf)


@pytest.fixture(scope="module")
def catch(tmp_path_factory):
    """A recording of Catch with notes, of which the last episode is cut off."""
    folder = tmp_path_factory.mktemp("page") / "catch"
    with Record(make("Catch-v1", seed=7), folder) as env:
        for step in range(34):
            env.step(step % 3)
            env.annotate(value=step / 8, why="</script><b>&amp;")
    return folder


def test_the_columns_are_those_of_the_recording_bit_for_bit(catch):
    story, episodes = data_of(page_of(catch))
    recorded = list(Recording(catch).episodes())
    assert len(episodes) == len(recorded) == 4
    for episode, shown in zip(recorded, episodes, strict=True):
        columns = columns_of(story, shown)
        for name in ("reward", "discount", "action", "observation"):
            np.testing.assert_array_equal(columns[name], episode.column(name).ravel())
        notes = [episode.annotations(step).get("value") for step in range(len(episode))]
        np.testing.assert_array_equal(columns["note['value']"], np.array(notes, float))


def test_the_list_has_returns_and_ends(catch):
    story, _ = data_of(page_of(catch))
    recorded = list(Recording(catch).episodes())
    sums = [float(episode.column("reward")[1:].sum()) for episode in recorded]
    assert [episode["number"] for episode in story["episodes"]] == sums
    marks = [episode["mark"] for episode in story["episodes"]]
    assert marks == ["terminated"] * 3 + ["left"]
    assert story["episodes"][3]["ended"] == "cut short by close"


def test_the_pictures_are_those_of_the_recording(catch):
    _, episodes = data_of(page_of(catch, "--no-draw"))
    observed = Recording(catch).load(Recording(catch).entries[0]).column("observation")
    film = episodes[0]["pictures"]
    assert film["steps"] == list(range(len(observed)))
    for picture, observation in zip(film["png"], observed, strict=True):
        image = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
        np.testing.assert_array_equal(image, observation * 255)


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    """A recording of CartPole with pictures in its notes, of which some steps lack."""
    folder = tmp_path_factory.mktemp("page") / "cart"
    drawn = np.zeros((40, 1280, 3), np.uint8)
    drawn[20:] = 200, 100, 50
    with Record(TimeLimit(make("CartPole-v1", seed=7), 9), folder) as env:
        env.reset()
        for step in range(19):
            if step != 3:
                env.annotate(picture=drawn)
            env.step(step % 2)
    return folder


def test_a_limit_of_time_is_a_truncation(cart):
    story, _ = data_of(page_of(cart))
    assert [one["mark"] for one in story["episodes"]] == ["truncated"] * 2


def test_large_pictures_are_shrunk(cart):
    _, episodes = data_of(page_of(cart))
    picture = base64.b64decode(episodes[0]["pictures"]["png"][0])
    image = np.asarray(Image.open(io.BytesIO(picture)))
    assert image.shape == (20, 640, 3)
    assert image[5, 5].tolist() == [0, 0, 0]
    assert image[15, 5].tolist() == [200, 100, 50]


def test_a_step_without_a_picture_has_none(cart):
    _, episodes = data_of(page_of(cart))
    assert episodes[0]["pictures"]["steps"] == [0, 1, 2, *range(4, 10)]


def test_many_pictures_are_thinned_evenly(cart):
    _, episodes = data_of(page_of(cart, "--pictures", "5"))
    film = episodes[1]["pictures"]
    assert film["steps"] == [0, 4, 8]
    assert film["note"].startswith("The page has one picture for every 4 time steps")


def test_a_row_that_was_lost_is_marked(tmp_path):
    pool = ParallelPyEnvironment(
        [lambda: CrashingEnv(3, how="exit"), lambda: CountingEnv(9)],
        on_worker_failure=RestartPolicy(max_restarts=9),
    )
    with Record(pool, tmp_path / "pool") as recorded:
        for _ in range(5):
            recorded.step(np.zeros(2, np.int32))
    story, _ = data_of(page_of(tmp_path / "pool"))
    marked = {one["name"]: one["repaired"] for one in story["episodes"]}
    assert marked["row 0, episode 0"] == (
        "The environment was lost here (crashed): this end is made up."
    )
    assert marked["row 1, episode 0"] is None


def test_a_recording_without_episodes_has_a_page(tmp_path):
    Record(make("Catch-v1"), tmp_path / "none").close()
    story, episodes = data_of(page_of(tmp_path / "none"))
    assert story["episodes"] == episodes == []


def test_values_that_are_not_numbers_are_texts(tmp_path):
    with Record(make("Catch-v1", seed=7), tmp_path / "notes") as env:
        env.reset()
        env.annotate(why="greedy", logits=np.arange(100.0), seen=[1, 2])
    story, episodes = data_of(page_of(tmp_path / "notes"))
    text = episodes[0]["texts"]["note"]["0"]
    assert "['why']  greedy" in text
    assert "['logits']  float64 (100,)" in text
    assert columns_of(story, episodes[0])["note['seen'][1]"].tolist() == [2]


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bool", "int64"])
def test_numbers_of_every_dtype_keep_their_value(tmp_path, dtype):
    top = 1 if dtype in ("bool", "float16") else np.iinfo(dtype).max
    value = np.array([0, top], dtype)
    with Record(OneObservation(value), tmp_path / "one") as env:
        env.reset()
        env.step(0)
    story, episodes = data_of(page_of(tmp_path / "one"))
    assert columns_of(story, episodes[0])["observation"].tolist() == [0, top] * 2


def test_infinite_rewards_cause_no_warning(tmp_path):
    with Record(Infinite(np.float64([0.0, 1.0])), tmp_path / "infinite") as env:
        for _ in range(3):
            env.step(0)
    story, _ = data_of(page_of(tmp_path / "infinite"))
    assert ("nan", None) == tuple(
        story["episodes"][0][name] for name in ("return", "number")
    )
    assert story["episodes"][0]["length"] == "2 steps"


def test_a_page_that_cannot_be_written_leaves_nothing_behind(catch, capsys):
    page = catch.parent / "nowhere" / "page.html"
    assert 2 == main(["replay", str(catch), "--html", str(page)])
    assert (
        f"envkit replay: {str(page)!r} cannot be written: No such file or directory.\n"
    ) == capsys.readouterr().err
    assert not list(catch.parent.glob("**/.*"))


def test_a_page_is_replaced_but_another_file_is_kept(catch, capsys):
    page_of(catch)
    page_of(catch)
    notes = catch.parent / "notes.txt"
    notes.write_text("mine")
    assert main(["replay", str(catch), "--html", str(notes)]) != 0
    assert "is not a page of envkit replay" in capsys.readouterr().err
    assert notes.read_text() == "mine"


def test_json_names_the_page(catch, capsys):
    page = page_of(catch, "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(page)
    assert told["bytes"] == page.stat().st_size


# In a browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser with one page."""
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@needs_chromium
def test_the_page_opens_from_disk_without_a_network(browser, catch):
    browser.open(page_of(catch))
    assert browser.text("#title") == "Catch-v1, catch"
    assert browser.text("#film") == "episode 0"
    assert all(url.startswith(("file:", "data:")) for url in browser.requested)
    assert browser.errors == []


@needs_chromium
def test_keys_move_through_time_steps_and_episodes(browser, catch):
    browser.open(page_of(catch))
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert browser.text("#facts").startswith("step 2 of 9")
    browser.press("ArrowLeft")
    assert browser.text("#facts").startswith("step 1 of 9")
    browser.press("End")
    assert "Terminated: the discount is 0." in browser.text("#facts")
    browser.press("n")
    assert browser.text("#film") == "episode 1"
    browser.press("p")
    assert browser.text("#film") == "episode 0"


@needs_chromium
def test_keys_work_in_the_list(browser, catch):
    browser.open(page_of(catch))
    for _ in range(2):
        browser.press("Tab")
    assert browser.ask("document.activeElement.id") == "list"
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    assert browser.text("#film") == "episode 2"
    assert browser.text("[aria-selected=true] .name") == "episode 2"


@needs_chromium
def test_the_space_bar_plays_to_the_end(browser, catch):
    browser.open(page_of(catch))
    browser.press(" ")
    at_end = "document.querySelector('#facts').textContent.startsWith('step 9 of 9')"
    assert until(lambda: browser.ask(at_end))
    assert browser.text("#play").endswith("play")


@needs_chromium
def test_a_scrubber_and_a_plot_lead_to_a_time_step(browser, catch):
    browser.open(page_of(catch))
    browser.ask(
        "scrubber.value = 4; scrubber.dispatchEvent(new Event('input')); undefined"
    )
    assert browser.text("#facts").startswith("step 4 of 9")
    middle = browser.ask(
        "(box => [box.left + box.width / 3, box.top + 9])"
        "(document.querySelector('.area').getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.do(
            "Input.dispatchMouseEvent",
            type=kind,
            x=middle[0],
            y=middle[1],
            button="left",
            buttons=1,
            clickCount=1,
        )
    assert browser.text("#facts").startswith("step 3 of 9")


@needs_chromium
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_wider_than_the_window(browser, cart, width):
    browser.open(page_of(cart), width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    width_drawn = "picture.complete && picture.naturalWidth"
    assert until(lambda: browser.ask(width_drawn) == 640)


@needs_chromium
@pytest.mark.parametrize("values", [[-1e308, 1e308], [1e300, 1e300]])
def test_huge_numbers_have_a_line(browser, tmp_path, values):
    with Record(TwoObservations(np.array(values)), tmp_path / "huge") as env:
        env.step(0)
        env.step(0)
    browser.open(page_of(tmp_path / "huge"))
    blue = (
        "(canvas => canvas.getContext('2d').getImageData("
        "canvas.width >> 1, 0, 1, canvas.height).data.some(value => value > 0))"
        "([...document.querySelectorAll('canvas')].at(-1))"
    )
    assert browser.ask(blue)


@needs_chromium
def test_notes_are_plain_text(browser, catch):
    browser.open(page_of(catch))
    assert "</script><b>&amp;" in browser.text("#texts pre")


@needs_chromium
def test_an_address_leads_to_an_episode_and_a_time_step(browser, catch):
    browser.open(page_of(catch), fragment="#episode=2&step=5")
    assert browser.text("#film") == "episode 2"
    assert browser.text("#facts").startswith("step 5 of 9")


@needs_chromium
def test_episodes_are_ordered_by_return(browser, catch):
    browser.open(page_of(catch))
    browser.ask(
        "document.querySelector('#order').value = 'best';"
        "document.querySelector('#order').dispatchEvent(new Event('change')); undefined"
    )
    returns = browser.ask(
        "[...document.querySelectorAll('.return')].map(e => +e.textContent)"
    )
    assert returns == sorted(returns, reverse=True)


@needs_chromium
def test_values_that_never_change_are_folded_away(browser, tmp_path):
    with Record(make("CartPole-v1", seed=7), tmp_path / "cart") as env:
        for _ in range(6):
            env.step(1)
            env.annotate(lucky=1)
    browser.open(page_of(tmp_path / "cart"))
    titles = browser.ask(
        "[...document.querySelectorAll('.plot b')].map(e => e.textContent)"
    )
    assert {"reward", "action", "discount", "note['lucky']"}.isdisjoint(titles)
    assert "observation" in titles
    assert not browser.ask("document.querySelector('#constants').open")
    folded = dict(
        browser.ask(
            "[...document.querySelectorAll('#constants dt')].map("
            "e => [e.textContent, e.nextSibling.textContent])"
        )
    )
    assert browser.text("#constants summary") == f"{len(folded)} constant values"
    assert (folded["reward"], folded["action"], folded["note['lucky']"]) == ("1",) * 3
    browser.press("ArrowRight")
    assert "reward 1 · discount 1 · action 1" in browser.text("#facts")


@needs_chromium
def test_no_picture_is_shown_where_the_replay_differs(browser, tmp_path):
    with Record(make("CartPole-v1", seed=7), tmp_path / "cart") as env:
        for _ in range(6):
            env.step(1)
    page = page_of(tmp_path / "cart")
    text = page.read_text().replace('"until": 5', '"until": 2')
    page.write_text(text)
    browser.open(page)
    seen = "document.querySelector('#picture').style.visibility"
    assert browser.ask(seen) == "visible"
    browser.press("End")
    assert browser.ask(seen) == "hidden"
