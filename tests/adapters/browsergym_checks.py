"""BrowserGym's tasks, MiniWoB++ among them, in a real browser.

pytest collects this file only if it is told to: `make test-all` installs BrowserGym,
with the version of Playwright that it asks for, in an environment of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Error

import envkit
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.adapters import BrowserGymWrapper, suite_browsergym
from envkit.errors import SpecError
from envkit.specs.special import ObjectSpec, TextSpec
from tests.adapters.browser_tasks import make_buttons
from tests.cli.chromium import needs_chromium
from tests.waiting import until

pytestmark = [
    needs_chromium,
    pytest.mark.filterwarnings("ignore:.*Overriding environment:UserWarning"),
]
FIRST, MID, LAST = 0, 1, 2
CLICK = "miniwob.click-test"


@pytest.fixture
def made():
    """Makes environments, and closes them."""

    def keep(env):
        found.append(env)
        return env

    found = []
    yield keep
    for env in found:
        env.close()


def click_on(name, tree):
    """Returns the action that clicks on an element of an accessibility tree."""
    (number,) = re.findall(rf"\[(\w+)\] button '{name}'", str(tree))
    return f"click('{number}')"


def test_a_task_of_miniwob_is_solved_by_a_click(made):
    env = made(envkit.make(f"browsergym:{CLICK}"))
    env.seed(7)

    first = env.reset()

    assert isinstance(env, BrowserGymWrapper)
    assert "Click the button." == first.observation["goal"].item()
    assert first.observation["url"].item().endswith("/miniwob/click-test.html")
    middle = env.step("noop(0)")
    last = env.step(click_on("Click Me!", first.observation["axtree"]))
    again = env.step("noop(0)")
    assert [FIRST, MID, LAST, FIRST] == [
        int(each.step_type) for each in (first, middle, last, again)
    ]
    assert (1.0, 0.0) == (float(last.reward), float(last.discount))


def test_a_failed_action_is_reported_in_the_observation(made):
    env = made(make_buttons())
    env.reset()
    error = env.step("click('none')").observation["last_action_error"].item()
    assert "none" in error


def test_equal_seeds_give_equal_tasks_in_all_episodes(made):
    env = made(envkit.make("browsergym:miniwob.click-button"))

    def goals():
        env.seed(7)
        return [env.reset().observation["goal"].item() for _ in range(3)]

    first = goals()

    assert first == goals()
    assert 1 < len({*first})


def test_texts_with_lengths_and_pictures_are_arrays(made):
    lengths = {"goal": 40, "axtree": 400, "action": 60}
    parts = ["goal", "axtree", "screenshot"]
    env = made(make_buttons(observations=parts, lengths=lengths))

    spec = env.observation_spec()

    assert TextSpec((), "<U40", "goal") == spec["goal"]
    assert TextSpec((), "<U400", "axtree") == spec["axtree"]
    assert (100, 200, 3) == spec["screenshot"].shape
    assert TextSpec((), "<U60", "action") == env.action_spec()
    observation = env.reset().observation
    assert "<U40" == observation["goal"].dtype
    assert "Press Good." == observation["goal"]
    # A white page, with two grey buttons.
    assert np.median(observation["screenshot"]) == 255
    assert observation["screenshot"].min() < 255
    assert np.array_equal(env.render(), observation["screenshot"])
    assert env.step(click_on("Good", observation["axtree"])).is_last()


def test_raw_observations_of_browsergym_can_be_chosen(made):
    parts = ["dom", "axtree_object", "open_pages_titles"]
    env = made(make_buttons(observations=parts))

    observation = env.reset().observation

    assert parts == list(env.observation_spec())
    assert isinstance(env.observation_spec()["axtree_object"], ObjectSpec)
    assert ("Two buttons",) == observation["open_pages_titles"].item()
    assert "nodes" in observation["axtree_object"].item()
    assert "Endless" in observation["dom"].item()


def test_a_text_that_is_too_long_is_refused(made):
    env = made(make_buttons(task_kwargs={"goal": "x" * 30}, lengths={"goal": 20}))
    with pytest.raises(SpecError) as told:
        env.reset()
    assert "BrowserGym's browsergym/envkit.buttons returned an observation" in str(
        told.value
    )
    assert "got        a text of 30 characters" in str(told.value)
    assert "Make it with lengths={'goal': 30}" in str(told.value)


def test_a_pool_runs_each_task_in_a_process(made):
    lengths = {"goal": 40, "axtree": 1000, "action": 60}
    pool = made(
        envkit.make(
            f"browsergym:{CLICK}",
            num_envs=2,
            observations=list(lengths)[:2],
            lengths=lengths,
            start_serially=False,
        )
    )
    pool.seed(7)

    trees = pool.reset().observation["axtree"]
    last = pool.step([click_on("Click Me!", trees[0]), "noop(0)"])

    assert 2 == len(pool.workers)
    assert [LAST, MID] == last.step_type.tolist()
    assert [1.0, 0.0] == last.reward.tolist()


def processes_with(mark):
    """Returns the processes whose environment variables have a word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if mark.encode() in told:
            found.append(int(folder.name))
    return found


def test_a_hanging_page_truncates_its_episode(made):
    mark = uuid.uuid4().hex
    pool = made(
        ParallelPyEnvironment(
            [make_buttons] * 2,
            num_workers=2,
            start_serially=False,
            # Long enough for the other row, on a busy machine as well.
            step_timeout=45.0,
            worker_env={"MARK": mark},
            on_worker_failure=RestartPolicy(max_restarts=1, backoff=0.0),
        )
    )
    trees = pool.reset().observation["axtree"]
    before = set(processes_with(mark))

    lost = pool.step([click_on("Endless", trees[0]), "noop(0)"])
    after = pool.step(["noop(0)", "noop(0)"])

    assert [LAST, MID] == lost.step_type.tolist()
    assert [1.0, 1.0] == lost.discount.tolist()
    assert [FIRST, MID] == after.step_type.tolist()
    assert 1 == pool.statistics().restarts
    assert "Press Good." == after.observation["goal"][0]
    assert before
    pool.close()
    assert until(lambda: not processes_with(mark))


def test_reset_restarts_a_crashed_browser(made, caplog):
    env = made(make_buttons())
    env.reset()
    (browser, *_) = [
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if is_browser(pid)
    ]

    os.kill(browser, signal.SIGKILL)
    with pytest.raises(Error):
        step_often(env)

    assert env.reset().is_first()
    assert "its browser had ended" in caplog.text


def step_often(env):
    for _ in range(100):
        env.step("noop(0)")


def is_browser(pid):
    """Returns True for the first process of the page's browser, not of the chat's."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parents = [os.getpid()]
        above = pid
        while above not in parents and above > 1:
            above = int(
                Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1]
            )
    except OSError:
        return False
    is_first = not any(word.startswith(b"--type=") for word in words)
    is_chat = any(word.startswith(b"--window-size=500,800") for word in words)
    return (
        above in parents
        and b"--remote-debugging-pipe" in words
        and is_first
        and not is_chat
    )


def test_use_in_another_thread_or_an_event_loop_is_refused(made):
    env = made(make_buttons())

    async def begin():
        env.reset()

    with pytest.raises(RuntimeError, match=r"event loop.*num_envs=1"):
        asyncio.run(begin())
    env.reset()
    errors = []

    def step():
        with pytest.raises(RuntimeError, match=r"another thread.*num_envs=1") as told:
            env.step("noop(0)")
        errors.append(told)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert errors
    assert env.step("noop(0)").is_mid()


def test_a_page_has_no_state(made):
    env = made(make_buttons())
    env.reset()
    with pytest.raises(NotImplementedError, match="it is a page in a browser"):
        env.get_state()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("miniwob.click-tets", {}, r"has no task 'miniwob.click-tets'.*click-test"),
        ("nowhere.task", {}, r"no package browsergym.nowhere is installed"),
        (CLICK, {"observations": "goal"}, r"list of names, got the string 'goal'"),
        (CLICK, {"observations": ["gaol"]}, r"has 'gaol', which.* 'goal'"),
        (CLICK, {"lengths": {"dom": 9}}, r"lengths has 'dom', which must be one of"),
        (CLICK, {"lengths": {"goal": 0}}, r"lengths\['goal'\] must be an integer"),
    ],
)
def test_invalid_arguments_are_refused(name, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        envkit.make(f"browsergym:{name}", **options)


def test_names_lists_the_tasks_of_miniwob():
    assert {CLICK, "miniwob.login-user", "openended"} <= {*suite_browsergym.names()}
