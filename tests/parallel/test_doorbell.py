"""Bells that are rung in one process and wake another."""

from __future__ import annotations

import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.parallel.system import doorbell
from envkit.parallel.system.doorbell import MESSAGE, ROWS, Doorbell, linger, may_linger
from tests import residue
from tests.waiting import PATIENCE

KINDS = ["eventfd", "sockets"] if residue.ON_LINUX else ["sockets"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def bell_of(kind, *, blocking=False):
    """Makes a bell of the kind of one platform or of the others."""
    if kind == "eventfd":
        return Doorbell.create(blocking=blocking)
    ring, wait = socket.socketpair()
    ring.setblocking(False)
    wait.setblocking(blocking)
    return Doorbell(ring.detach(), wait.detach())


def is_ringing(bell):
    poller = select.poll()
    poller.register(bell.fileno(), select.POLLIN)
    return bool(poller.poll(0))


@each_kind
def test_a_bell_is_silent_before_it_is_rung(kind):
    bell = bell_of(kind)
    assert 0 == bell.drain()
    assert not is_ringing(bell)
    bell.close()


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.integers(0, 20), messages=st.integers(0, 20))
def test_rings_add_up_and_separate_rows_from_messages(kind, rows, messages):
    bell = bell_of(kind)
    for meaning in [ROWS] * rows + [MESSAGE] * messages:
        bell.ring(meaning)
    heard = bell.drain()
    assert (messages, rows) == divmod(heard, MESSAGE)
    assert 0 == bell.drain()
    bell.close()


@each_kind
def test_a_bell_rings_until_it_is_read(kind):
    bell = bell_of(kind)
    bell.ring()
    before = is_ringing(bell), is_ringing(bell)
    bell.drain()
    assert (True, True) == before
    assert not is_ringing(bell)
    bell.close()


@each_kind
@pytest.mark.parametrize("blocking", [True, False])
def test_waiting_for_a_bell_that_was_rung_returns_at_once(kind, blocking):
    bell = bell_of(kind, blocking=blocking)
    bell.ring()
    bell.ring(MESSAGE)
    assert ROWS + MESSAGE == bell.wait()
    bell.close()


@each_kind
@pytest.mark.parametrize("blocking", [True, False])
def test_a_thread_that_waits_is_woken(kind, blocking):
    bell, heard = bell_of(kind, blocking=blocking), []
    waiter = threading.Thread(target=lambda: heard.append(bell.wait()))
    waiter.start()
    bell.ring(MESSAGE)
    waiter.join(PATIENCE)
    assert [MESSAGE] == heard
    bell.close()


@each_kind
def test_a_bell_is_rung_from_another_process(kind):
    bell = bell_of(kind, blocking=True)
    program = (
        "import sys; from envkit.parallel.system.doorbell import MESSAGE, Doorbell\n"
        "bell = Doorbell.of([int(fd) for fd in sys.argv[1:]])\n"
        "bell.ring(); bell.ring(MESSAGE)"
    )
    ringer = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, bell.fds)], pass_fds=bell.fds
    )
    heard = bell.wait()
    ringer.wait()

    assert ROWS + MESSAGE == heard + bell_rest(bell, heard)
    bell.close()


def bell_rest(bell, heard):
    """Hears the second ring if the first came alone."""
    return bell.wait() if heard < MESSAGE else 0


@pytest.mark.own_process
@each_kind
@pytest.mark.parametrize("blocking", [True, False])
def test_a_signal_handler_does_not_end_the_wait(kind, blocking):
    bell = bell_of(kind, blocking=blocking)
    alarms = []
    numbers = itertools.count(1)

    def handle(*unused):
        # On a busy machine the next alarm comes in the middle of this one, so each has
        # its own number: counting `alarms` could miss the fifth.
        number = next(numbers)
        alarms.append(number)
        if number == 5:
            bell.ring(MESSAGE)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        heard = bell.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert MESSAGE == heard
    assert len(alarms) >= 5
    bell.close()


@each_kind
def test_ringing_never_blocks(kind):
    bell = bell_of(kind)
    if kind == "eventfd":
        os.eventfd_write(bell.fileno(), 2**64 - 2)  # as much as it can hold
    for _ in range(3 if kind == "eventfd" else 100_000):
        bell.ring()
    assert bell.drain() > 0
    bell.close()


@each_kind
def test_a_bell_works_with_descriptors_of_any_number(kind):
    many = [os.dup(0) for _ in range(1100)]
    bell = bell_of(kind)
    try:
        heard = []
        waiter = threading.Thread(target=lambda: heard.append(bell.wait()))
        waiter.start()
        bell.ring()
        waiter.join(PATIENCE)
    finally:
        for fd in many:
            os.close(fd)

    assert [ROWS] == heard
    bell.close()


@each_kind
def test_closing_gives_the_descriptors_back_once(kind):
    before = len(os.listdir("/dev/fd"))
    bell = bell_of(kind)
    fds = bell.fds
    bell.close()
    bell.close()
    assert before == len(os.listdir("/dev/fd"))
    assert {"eventfd": 1, "sockets": 2}[kind] == len(fds)


@pytest.mark.parametrize("blocking", [True, False])
def test_outside_linux_a_bell_is_a_socket_pair(monkeypatch, blocking):
    monkeypatch.setattr(doorbell.sys, "platform", "darwin")
    bell = Doorbell.create(blocking=blocking)
    bell.ring()

    assert 2 == len(bell.fds)
    assert blocking == os.get_blocking(bell.fileno())
    assert ROWS == bell.wait()
    assert not any(map(os.get_inheritable, bell.fds))
    bell.close()


@pytest.mark.skipif(not residue.ON_LINUX, reason="eventfd is Linux's")
def test_on_linux_a_bell_is_one_descriptor():
    bell = Doorbell.create()
    assert (bell.fileno(),) == bell.fds
    assert not os.get_inheritable(bell.fileno())
    bell.close()


# Lingering.


@pytest.fixture
def awake(monkeypatch):
    """Forgets that the machine was busy before, and that it was during the test."""
    monkeypatch.setattr(doorbell, "_paused_until", 0)


def test_events_already_there_are_seen_without_lingering():
    looks = []
    assert linger(lambda: looks.append("look") is None)
    assert ["look"] == looks


@pytest.mark.usefixtures("awake")
def test_events_during_lingering_are_seen(monkeypatch):
    # Where others want the CPU, it comes back only after the usual moment.
    monkeypatch.setattr(doorbell, "_LINGER_NS", 10**10)
    looks = iter([False, False, True])
    assert linger(lambda: next(looks))


@pytest.mark.usefixtures("awake")
def test_lingering_ends():
    assert not linger(lambda: False)


@pytest.mark.usefixtures("awake")
def test_a_process_that_was_descheduled_stops_lingering(monkeypatch):
    # Each time counts as late.
    monkeypatch.setattr(doorbell, "_BUSY_NS", -(10**9))
    monkeypatch.setattr(doorbell, "_PAUSE_NS", 10**15)
    looks = []

    assert not linger(lambda: looks.append("look"))
    assert 2 <= len(looks)

    looks.clear()
    assert not linger(lambda: looks.append("look"))
    assert linger(lambda: looks.append("look") is None)
    assert 2 == len(looks)


def test_a_signal_handler_that_raises_ends_it():
    def look():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linger(look)


@pytest.mark.parametrize(
    ("processes", "cpus", "answer"), [(1, 1, True), (2, 2, True), (3, 2, False)]
)
def test_processes_that_share_a_cpu_do_not_linger(monkeypatch, processes, cpus, answer):
    monkeypatch.setattr(doorbell, "available_cpus", lambda: cpus)
    monkeypatch.setattr(doorbell, "KEEPS_ORDER", True)
    assert answer == may_linger(processes)


def test_processes_do_not_linger_on_weakly_ordered_cpus(monkeypatch):
    monkeypatch.setattr(doorbell, "available_cpus", lambda: 64)
    monkeypatch.setattr(doorbell, "KEEPS_ORDER", False)
    assert not may_linger(1)
