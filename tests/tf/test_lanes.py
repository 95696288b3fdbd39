"""Lanes: where functions run, one at a time, and what comes back."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import pytest

from envkit.errors import CallOrderError, ClosedError
from envkit.tf.lanes import CallersThread, GivenThreads, OneThread, lane_for

DEADLINE = 20.0


@contextlib.contextmanager
def lane_of(kind):
    """Gives a lane, and ends what it needs."""
    if kind == "own thread":
        lane = lane_for(True)
        yield lane
        lane.close()
    elif kind == "caller":
        yield lane_for(False)
    elif kind == "ThreadPool":
        with ThreadPool(2) as pool:
            yield lane_for(pool)
            pool.close()
            pool.join()
    else:
        with ThreadPoolExecutor(2) as pool:
            yield lane_for(pool)


KINDS = ["own thread", "caller", "ThreadPool", "ThreadPoolExecutor"]
in_each_lane = pytest.mark.parametrize("kind", KINDS)
in_each_isolated_lane = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind != "caller"]
)


class Turnstile:
    """Counts who is inside, and keeps the first there until it is opened."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()
        self.inside = self.most_inside = self.passed = 0

    def go_through(self):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entered.set()
        assert self.opened.wait(DEADLINE)
        self.inside -= 1
        self.passed += 1
        return self.passed


@in_each_lane
def test_a_lane_returns_what_the_function_returns(kind, nothing_left_behind):
    with lane_of(kind) as lane:
        assert [3, (), None] == [
            lane.run(sum, [1, 2]),
            lane.run(tuple),
            lane.run(lambda: None),
        ]


@in_each_lane
@pytest.mark.parametrize("error", [KeyError("a"), StopIteration("b"), OSError(2, "c")])
def test_a_lane_raises_what_the_function_raises(kind, error, in_thread):
    def fail():
        raise error

    with lane_of(kind) as lane:
        with pytest.raises(type(error)) as caught:
            in_thread(lane.run, fail)()

        assert error is caught.value
        assert 3 == lane.run(sum, [1, 2])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_thread_of_its_own_survives_what_ends_others(error, in_thread):
    def fail():
        raise error("now")

    with lane_of("own thread") as lane:
        with pytest.raises(error, match="now"):
            in_thread(lane.run, fail)()

        assert 3 == lane.run(sum, [1, 2])


def test_the_callers_thread_runs_what_the_caller_asks_for():
    assert threading.get_ident() == lane_for(False).run(threading.get_ident)


def test_a_thread_of_its_own_is_one_thread_and_no_callers(in_thread):
    with lane_of("own thread") as lane:
        calls = [in_thread(lane.run, threading.get_ident) for _ in range(5)]
        threads = {lane.run(threading.get_ident), *(call() for call in calls)}

    assert 1 == len(threads)
    assert threading.get_ident() not in threads


def test_a_thread_of_its_own_does_not_keep_python_from_ending():
    with lane_of("own thread") as lane:
        assert lane.run(threading.current_thread).daemon


@pytest.mark.parametrize("kind", ["ThreadPool", "ThreadPoolExecutor"])
def test_a_pool_that_is_given_is_what_runs_functions(kind):
    with lane_of(kind) as lane:
        assert threading.get_ident() != lane.run(threading.get_ident)
        assert isinstance(lane, GivenThreads)


def test_a_second_function_is_refused_in_the_callers_thread(message_of, in_thread):
    lane, turnstile = CallersThread(), Turnstile()
    first = in_thread(lane.run, turnstile.go_through)
    assert turnstile.entered.wait(DEADLINE)
    expected = (
        "Detected concurrent execution of two calls to one environment: a step or "
        "reset was called while another is still running. Take turns, or use "
        "TFPyEnvironment(environment, isolation=True), which lets the second call "
        "wait."
    )

    assert expected == message_of(
        CallOrderError, lambda: lane.run(turnstile.go_through)
    )
    assert issubclass(CallOrderError, RuntimeError)
    turnstile.opened.set()
    assert 1 == first()
    assert 2 == lane.run(turnstile.go_through)


def test_the_callers_thread_is_free_again_after_an_error():
    lane = CallersThread()
    with pytest.raises(ZeroDivisionError):
        lane.run(lambda: 1 / 0)

    assert 3 == lane.run(sum, [1, 2])


@in_each_isolated_lane
def test_isolated_functions_wait_for_each_other(kind, in_thread):
    turnstile = Turnstile()
    with lane_of(kind) as lane:
        calls = [in_thread(lane.run, turnstile.go_through) for _ in range(16)]
        assert turnstile.entered.wait(DEADLINE)
        turnstile.opened.set()
        passed = sorted(call() for call in calls)

    assert list(range(1, 17)) == passed
    assert 1 == turnstile.most_inside


def test_functions_of_one_caller_run_in_its_order():
    with lane_of("own thread") as lane:
        seen = []
        for number in range(100):
            lane.run(seen.append, number)

    assert list(range(100)) == seen


def test_what_runs_in_a_thread_of_its_own_may_use_the_lane(in_thread):
    with lane_of("own thread") as lane:
        assert 3 == in_thread(lane.run, lambda: lane.run(sum, [1, 2]))()


@in_each_lane
def test_close_may_be_called_again(kind, nothing_left_behind):
    with lane_of(kind) as lane:
        lane.close()
        lane.close()


def test_close_ends_the_thread(nothing_left_behind):
    lane = OneThread()
    thread = lane.run(threading.current_thread)
    assert thread.is_alive()
    lane.close()

    assert not thread.is_alive()


def test_close_waits_for_what_was_asked_before(nothing_left_behind, in_thread):
    lane, turnstile = OneThread(), Turnstile()
    calls = [in_thread(lane.run, turnstile.go_through)]
    assert turnstile.entered.wait(DEADLINE)
    closing = in_thread(lane.close)
    turnstile.opened.set()
    closing()

    assert [1] == [call() for call in calls]


def test_close_from_inside_does_not_wait_for_itself(nothing_left_behind, in_thread):
    lane = OneThread()

    assert in_thread(lane.run, lambda: lane.close() or 3)() == 3


def test_a_closed_lane_refuses_what_comes_later(in_thread):
    lane = OneThread()
    lane.close()

    with pytest.raises(ClosedError, match=r"after close\(\)"):
        in_thread(lane.run, sum, [1, 2])()


def test_a_lane_that_is_dropped_ends_its_thread(nothing_left_behind):
    lane = OneThread()
    thread = lane.run(threading.current_thread)
    del lane
    gc.collect()
    thread.join(DEADLINE)

    assert not thread.is_alive()


@in_each_isolated_lane
def test_a_lane_keeps_nothing_of_what_it_has_done(kind):
    class Thing:
        pass

    def fail(thing):
        raise ValueError(thing)

    with lane_of(kind) as lane:
        thing = Thing()
        lane.run(id, thing)
        with pytest.raises(ValueError, match="Thing"):
            lane.run(fail, thing)
        gone = weakref.ref(thing)
        del thing
        lane.run(int)
        gc.collect()

        assert gone() is None


@in_each_isolated_lane
def test_close_does_not_end_a_pool_that_was_given(kind):
    if kind == "own thread":
        return
    with lane_of(kind) as lane:
        lane.close()

        assert 3 == lane._submit(sum, [1, 2])


@pytest.mark.parametrize(
    ("isolation", "what"),
    [
        (None, "None"),
        (1, "1 of type int"),
        (0, "0 of type int"),
        ("abc", "the string 'abc'"),
        ([], "a list of 0 elements"),
        (ThreadPool, "a type object"),
    ],
)
def test_what_is_no_pool_of_threads_is_refused(isolation, what, message_of):
    expected = (
        f"isolation is {what}; it is True for a thread of its own, False for the "
        "thread of whoever calls, or a pool of threads to use: a "
        "concurrent.futures.ThreadPoolExecutor or multiprocessing.pool.ThreadPool."
    )

    assert expected == message_of(TypeError, lambda: lane_for(isolation))


def test_a_pool_of_processes_is_refused():
    with (
        ProcessPoolExecutor(1) as pool,
        pytest.raises(TypeError, match="isolation is a"),
    ):
        lane_for(pool)


def test_a_call_that_nobody_waits_for_any_more_goes_on_alone():
    """Ctrl-C ends the waiting of whoever called, and not what was called."""
    turnstile = Turnstile()
    with ThreadPoolExecutor(4) as pool:
        lane = GivenThreads(pool.submit)  # which waits for nothing
        calls = [lane.run(turnstile.go_through) for _ in range(3)]
        assert turnstile.entered.wait(DEADLINE)
        turnstile.opened.set()
        passed = [call.result(DEADLINE) for call in calls]

    assert [1, 2, 3] == sorted(passed)
    assert 1 == turnstile.most_inside


def test_the_only_thread_of_a_pool_may_call_itself():
    with ThreadPoolExecutor(1) as pool:
        lane = lane_for(pool)
        lane.run(len, ())

        assert 2 == pool.submit(lane.run, len, "ab").result(DEADLINE)
