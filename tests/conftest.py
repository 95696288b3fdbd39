"""The fixtures of all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable

import hypothesis
import numpy as np
import pytest

from envkit.types import RandomSource

# Machines that are busy with other things are slow at times, and no test is about
# how long an example takes. For a long look: pytest --hypothesis-profile=thorough.
hypothesis.settings.register_profile("envkit", deadline=None, max_examples=60)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("envkit")


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


@pytest.fixture
def interruptible():
    """Makes Ctrl-C an exception, even where whoever started pytest ignores it.

    A shell without job control starts what runs in the background that way.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
