"""The fixtures of all tests, and what watches over each of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from envkit.types import RandomSource
from tests import residue

# Machines that are busy with other things are slow at times, and no test is about
# how long an example takes. For a long look: pytest --hypothesis-profile=thorough.
hypothesis.settings.register_profile("envkit", deadline=None, max_examples=60)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("envkit")

EXAMPLES = hypothesis.settings.get_profile("envkit").max_examples
SECONDS = 60.0
PARALLEL = Path(__file__).parent / "parallel"

_stderr = pytest.StashKey[int]()
_watchdog = pytest.StashKey[residue.Watchdog]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "watchdog(seconds): after that time the test is taken to hang; the stacks of "
        f"all processes are shown, and the run ends. {SECONDS:g} without the marker.",
    )
    if residue.ON_LINUX:
        residue.this_run()
        # What a test writes is kept from the terminal; what hangs must be seen there.
        with config.pluginmanager.getplugin(
            "capturemanager"
        ).global_and_fixture_disabled():
            config.stash[_stderr] = os.dup(2)
        config.stash[_watchdog] = residue.Watchdog(config.stash[_stderr])


def pytest_unconfigure(config: pytest.Config) -> None:
    if _watchdog in config.stash:
        config.stash[_watchdog].close()
        os.close(config.stash[_stderr])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Sets a deadline for the test with all its fixtures."""
    if _watchdog not in item.config.stash:
        return (yield)
    marker = item.get_closest_marker("watchdog")
    seconds = SECONDS if marker is None else marker.args[0]
    # Whoever asks for a longer look has the time for it.
    seconds *= max(1.0, hypothesis.settings.default.max_examples / EXAMPLES)
    item.config.stash[_watchdog].watch(item.nodeid, seconds)
    try:
        return (yield)
    finally:
        item.config.stash[_watchdog].rest()


def pytest_enter_pdb(config: pytest.Config) -> None:
    """Lets a person take their time."""
    if _watchdog in config.stash:
        config.stash[_watchdog].rest()


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaks a process, thread, descriptor or shared segment."""
    before = residue.Residue.now()
    yield
    if left := residue.left_behind(before):
        residue.end_processes(left)
        pytest.fail(residue.described(left), pytrace=False)


@pytest.fixture(autouse=True)
def _nothing_left_behind_by_parallel_tests(request: pytest.FixtureRequest) -> None:
    # Before all other fixtures of the test, so it looks when those are done.
    if PARALLEL in request.path.parents:
        request.getfixturevalue("nothing_left_behind")


@pytest.fixture(
    scope="session",  # it makes something new with each call, so tests may share it
    params=[np.random.default_rng, np.random.RandomState],
    ids=["Generator", "RandomState"],
)
def make_rng(request: pytest.FixtureRequest) -> Callable[[int], RandomSource]:
    """Makes a source of random numbers from a seed: NumPy's new kind, then its old."""
    return request.param


@pytest.fixture(scope="session")
def message_of() -> Callable[[type[Exception], Callable[[], object]], str]:
    """Returns the message of the error that a call must raise, to compare it whole."""

    def message(error: type[Exception], call: Callable[[], object]) -> str:
        with pytest.raises(error) as caught:
            call()
        return str(caught.value)

    return message


@pytest.fixture(scope="session")
def in_thread() -> Callable[..., Callable[[], object]]:
    """Starts a function in a thread, and returns what waits for what it returns.

    What the function raises, the waiting raises; and if it hangs, it says so.
    """

    def start(function: Callable[..., object], *args: object) -> Callable[[], object]:
        outcome: Future[object] = Future()

        def run() -> None:
            try:
                outcome.set_result(function(*args))
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def result() -> object:
            thread.join(SECONDS / 2)
            assert not thread.is_alive(), "It hangs."
            return outcome.result()

        return result

    return start


@pytest.fixture
def interruptible():
    """Makes Ctrl-C an exception, even where whoever started pytest ignores it.

    A shell without job control starts what runs in the background that way.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
