"""What workers and their parent say to each other arrives as it was said."""

from __future__ import annotations

import pickle
import re
import sys
import threading

import numpy as np
import pytest

from envkit._internal.exceptions import EXCEPTION_GROUP
from envkit.errors import SpecError
from envkit.parallel.messages import (
    PROTOCOL_VERSION,
    Bind,
    Close,
    ExitReport,
    Hello,
    ObjectRow,
    Packed,
    PackedJob,
    RemoteFailure,
    Reply,
    Request,
    RowsRaised,
    WorkerJob,
)
from envkit.parallel.slab import SlabLayout
from envkit.specs import ArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.testing import CountingEnv

NUMBER = ArraySpec((), np.float32)
SPEC = EnvironmentSpec(NUMBER, NUMBER, NUMBER, NUMBER)
JOB = WorkerJob(1, 4, (CountingEnv,), (7,), "os:getpid", "always", True)
FAILURE = RemoteFailure("raised", 4, "step", "ValueError", "no", "Traceback\n", b"x", 9)

MESSAGES = [
    JOB,
    Hello(9, (SPEC,), (None,), 1_000_000, ("torch",)),
    FAILURE,
    Request(3, "call", (4, 5), b"arguments"),
    Reply(3, (b"one", FAILURE)),
    ExitReport(1, 9, None, "SIGSEGV", "Fatal Python error", 1_000_000),
    Packed(b"specs"),
    PackedJob(JOB, (b"constructor",), b"setup"),
    Bind(SlabLayout(SPEC, ((0, 2), (2, 3)))),
    Close(),
    RowsRaised((4, 5), FAILURE),
    ObjectRow(4, 1, b"leaves"),
]


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda message: type(message).__name__
)
def test_a_message_arrives_as_what_it_was(message):
    assert message == pickle.loads(pickle.dumps(message, protocol=5))


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda message: type(message).__name__
)
def test_a_message_is_not_changed_on_its_way(message):
    for name in (*message._fields, "anything_else"):
        with pytest.raises(AttributeError):
            setattr(message, name, None)


def test_both_sides_tell_which_version_they_speak():
    assert PROTOCOL_VERSION == Hello(9, (), ()).protocol
    assert PROTOCOL_VERSION == PackedJob(JOB, ()).protocol


# Exceptions.


def failure_of(error, **facts):
    """Raises an exception and takes it down."""
    try:
        raise error
    except BaseException as caught:
        return RemoteFailure.of(caught, **facts)


def test_a_failure_tells_all_about_an_exception():
    failure = failure_of(
        FileNotFoundError(2, "No such file", "level.xml"),
        kind="constructor",
        env=4,
        command="construct",
        pid=77,
    )

    assert ("constructor", 4, "construct", 77) == (
        failure.kind,
        failure.env,
        failure.command,
        failure.pid,
    )
    assert "FileNotFoundError" == failure.type_name
    assert "[Errno 2] No such file: 'level.xml'" == failure.message
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert failure.traceback.endswith(f"FileNotFoundError: {failure.message}\n")


def test_without_facts_a_failure_concerns_the_whole_worker():
    failure = failure_of(ValueError())
    assert ("raised", -1, "", 0) == (
        failure.kind,
        failure.env,
        failure.command,
        failure.pid,
    )


def test_the_exception_itself_arrives_with_its_attributes():
    error = FileNotFoundError(2, "No such file", "level.xml")
    error.level = 3
    arrived = pickle.loads(pickle.dumps(failure_of(error))).original()
    assert FileNotFoundError is type(arrived)
    assert (2, "level.xml", 3) == (arrived.errno, arrived.filename, arrived.level)


class Unpicklable(Exception):
    def __init__(self, code):
        super().__init__(code, threading.Lock())
        self.code = code


def test_an_exception_that_cannot_travel_leaves_its_text():
    failure = pickle.loads(pickle.dumps(failure_of(Unpicklable(3))))
    assert "Unpicklable" == failure.type_name
    assert failure.message.startswith("(3, <unlocked _thread.lock object")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no comment")


def test_an_exception_without_a_message_is_taken_down_all_the_same():
    failure = failure_of(Mute())
    assert "(its message cannot be shown: str(Mute) raised)" == failure.message
    assert "Traceback" in failure.traceback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_no_error_is_taken_down_too(error):
    assert type(error).__name__ == failure_of(error).type_name


def test_a_cause_is_in_the_traceback():
    def fail():
        try:
            raise KeyError("level")
        except KeyError as error:
            raise SpecError("no level") from error

    with pytest.raises(SpecError) as caught:
        fail()

    assert "KeyError: 'level'" in RemoteFailure.of(caught.value).traceback


def chained(count, link):
    """Returns an exception before which there were others, one after the other."""
    error = None
    for number in range(count):
        before, error = error, ValueError(f"number {number}")
        setattr(error, link, before)
    return error


def told_of(error):
    """Returns which exceptions a traceback names, and how many it leaves out."""
    text = RemoteFailure.of(error).traceback
    numbers = [int(number) for number in re.findall(r"ValueError: number (\d+)", text)]
    return numbers, re.findall(r"… ([0-9,]+) more exceptions", text), text


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_long_chain_of_exceptions_is_told_by_its_ends(link):
    numbers, more, text = told_of(chained(3000, link))
    assert [0, 1, 2, 2995, 2996, 2997, 2998, 2999] == numbers
    assert ["2,992"] == more
    assert len(text) < 2000


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_chain_that_is_not_long_is_told_whole(link):
    assert (list(range(9)), []) == told_of(chained(9, link))[:2]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_long_chains_in_groups_of_exceptions_are_told_by_their_ends():
    inner = EXCEPTION_GROUP("inner", [chained(3000, "__context__")])
    outer = EXCEPTION_GROUP("outer", [inner, chained(4, "__cause__")])
    numbers, more, text = told_of(outer)
    assert [0, 1, 2, *range(2995, 3000), 0, 1, 2, 3] == numbers
    assert ["2,992"] == more
    assert len(text) < 5000


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_a_traceback_is_never_longer_than_can_be_read():
    groups = [
        EXCEPTION_GROUP("many", [ValueError(f"number {number}" + "x" * 500)] * 15)
        for number in range(15)
    ]
    text = RemoteFailure.of(EXCEPTION_GROUP("all", groups)).traceback
    assert len(text) < 61_000
    assert "characters are left out here" in text
    assert text.startswith("  | ExceptionGroup: all")


@pytest.mark.parametrize(
    "payload", [None, b"", b"nonsense", pickle.dumps("no exception")]
)
def test_a_payload_that_is_no_exception_is_none(payload):
    failure = FAILURE._replace(pickled=payload)
    assert None is failure.original()
