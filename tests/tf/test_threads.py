"""Threads of calls: what `TFPyEnvironment`, whose tests have the rest, cannot show."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import pytest

from envkit.errors import ClosedError
from envkit.tf.threads import GivenThreads, OneThread, thread_for
from tests.waiting import PATIENCE, until


class Turnstile:
    """Counts the calls inside, and keeps the first there until it is opened."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()
        self.inside = self.most_inside = self.passed = 0

    def go_through(self):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        self.inside -= 1
        self.passed += 1
        return self.passed


@pytest.fixture
def thread(nothing_left_behind):
    thread = OneThread()
    yield thread
    thread.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_call_thread_survives_errors(error, thread, in_thread):
    def fail():
        raise error("now")

    with pytest.raises(error, match="now"):
        in_thread(thread.run, "fail", fail)()

    assert 3 == thread.run("sum", sum, [1, 2])


def test_the_call_thread_does_not_keep_python_alive(thread):
    assert thread.run("look", threading.current_thread).daemon


def test_close_waits_for_earlier_calls_and_refuses_later_ones(thread, in_thread):
    turnstile = Turnstile()
    call = in_thread(thread.run, "go", turnstile.go_through)
    assert turnstile.entered.wait(PATIENCE)
    closing = in_thread(thread.close)
    turnstile.opened.set()
    closing()

    assert 1 == call()
    with pytest.raises(ClosedError, match=r"TFPyEnvironment\.go\(\) .* after close"):
        in_thread(thread.run, "go", turnstile.go_through)()


def test_close_from_inside_does_not_wait_for_itself(thread, in_thread):
    assert 3 == in_thread(thread.run, "close", lambda: thread.close() or 3)()


def test_an_unused_thread_ends_when_it_is_dropped(nothing_left_behind):
    owner = OneThread()
    thread = owner.run("look", threading.current_thread)
    del owner
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("pool", [None, ThreadPool, ThreadPoolExecutor])
def test_calls_that_are_over_are_not_kept_alive(pool):
    class Thing:
        pass

    def fail(thing):
        raise ValueError(thing)

    isolation = pool(2) if pool else True
    thread, thing = thread_for(isolation), Thing()
    thread.run("id", id, thing)
    with pytest.raises(ValueError, match="Thing"):
        thread.run("fail", fail, thing)
    gone = weakref.ref(thing)
    del thing
    thread.run("int", int)

    def is_gone():
        gc.collect()
        return gone() is None

    # Another thread of a pool may not be back from its call yet.
    assert until(is_gone)
    thread.close()
    if pool is ThreadPool:
        isolation.close()
        isolation.join()
    elif pool:
        isolation.shutdown()


def test_an_abandoned_call_continues_alone():
    """Ctrl-C ends the caller's waiting, but not the call."""
    turnstile = Turnstile()
    with ThreadPoolExecutor(4) as pool:
        threads = GivenThreads(pool.submit)  # which waits for nothing
        calls = [threads.run("go", turnstile.go_through) for _ in range(3)]
        assert turnstile.entered.wait(PATIENCE)
        turnstile.opened.set()
        passed = [call.result(PATIENCE) for call in calls]

    assert [1, 2, 3] == sorted(passed)
    assert 1 == turnstile.most_inside


def test_the_only_thread_of_a_pool_may_call_itself():
    with ThreadPoolExecutor(1) as pool:
        threads = thread_for(pool)
        threads.run("len", len, ())
        assert 2 == pool.submit(threads.run, "len", len, "ab").result(PATIENCE)
