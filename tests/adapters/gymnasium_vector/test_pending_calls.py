"""What goes on in a thread is waited for, and its outcome is kept."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

from envkit.adapters.gymnasium_vector.pending_calls import PendingCall, timeout_error


def test_a_call_that_is_not_over_says_so():
    gate = threading.Event()
    call = PendingCall("step", gate.wait)

    assert not call.wait(0.0)

    gate.set()

    assert call.wait()
    assert call.result() is True


def test_what_the_function_raises_is_raised_where_it_is_asked_for():
    def fail():
        raise ValueError("Too hot.")

    call = PendingCall("step", fail)
    call.wait()

    with pytest.raises(ValueError, match=r"^Too hot\.$"):
        call.result()


def test_the_error_of_a_wait_in_vain_is_gymnasiums_and_pythons():
    error = timeout_error()("late")

    assert isinstance(error, multiprocessing.TimeoutError)
    assert isinstance(error, TimeoutError)
    assert "late" == str(error)
