"""What ends a program puts in order what was begun."""

from __future__ import annotations

import signal

import pytest

from envkit.cli.end_signals import Terminated, ended_by_signals

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGHUP"), reason="only POSIX has terminals that hang up"
)


@pytest.fixture
def handled():
    """Gives the signal of a closed terminal its usual meaning."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_to_end_ends_the_program_as_exit_does(name):
    number = signal.Signals[name]
    before = signal.getsignal(number)

    with pytest.raises(Terminated) as ended, ended_by_signals():
        signal.raise_signal(number)
    assert 128 + number == ended.value.code
    assert before is signal.getsignal(number)


@pytest.mark.usefixtures("handled")
def test_a_signal_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with ended_by_signals():
        signal.raise_signal(signal.SIGHUP)
