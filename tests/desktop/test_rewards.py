"""Rewards that a program reports, each in the episode that it is about."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import Reporter, RewardChannel
from envkit.errors import ClosedError
from tests.waiting import PATIENCE, until


@pytest.fixture(params=["unix", "tcp"])
def channel(request, tmp_path):
    made = RewardChannel("tcp://127.0.0.1:0" if request.param == "tcp" else None)
    made.open(str(tmp_path))
    yield made
    made.close()


@pytest.fixture
def connect(channel):
    """Makes reporters, and closes them."""
    made = []

    def make():
        made.append(Reporter(channel.variables()))
        return made[-1]

    yield make
    for reporter in made:
        reporter.close()


@pytest.fixture
def raw(channel):
    """Connects a socket."""
    address = channel.variables()["ENVKIT_REWARDS"]
    if address.startswith("unix://"):
        link = socket.socket(socket.AF_UNIX)
        link.connect(address.removeprefix("unix://"))
    else:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        link = socket.create_connection((host, int(port)))
    link.settimeout(PATIENCE)
    yield link
    link.close()


def taken(channel, count=1):
    """Takes reports until there were so many lines; returns them as one."""
    found = []
    until(lambda: found.append(channel.take()) or sum(r.count for r in found) >= count)
    return found


def settled(channel, number):
    """Looks until so many lines have been dropped or refused; returns what counted."""
    found = []
    until(
        lambda: (
            found.append(channel.take()) or channel.dropped + channel.refused >= number
        )
    )
    return sum(reported.count for reported in found)


def test_rewards_of_several_lines_add_up(channel, connect):
    channel.begin(1)
    reporter = connect()
    for _ in range(3):
        reporter.report(0.5)
    reporter.report(text="hello")

    found = taken(channel, 4)
    assert 1.5 == sum(reported.reward for reported in found)
    assert ["hello"] == [text for reported in found for text in reported.texts]
    assert 0 == channel.take().count


def test_a_reward_of_an_old_episode_never_reaches_a_new_one(channel, connect):
    channel.begin(1)
    slow = connect()
    assert 0 == channel.take().count  # The program is connected.
    channel.begin(2)
    slow.report(100.0, terminated=True)

    assert 0 == settled(channel, 1)
    assert 1 == channel.dropped

    assert 2 == slow.begin()
    slow.report(1.0)
    assert 1.0 == sum(reported.reward for reported in taken(channel, 2))


def test_unread_reports_end_with_their_episode(channel, connect):
    channel.begin(1)
    reporter = connect()
    reporter.report(7.0)
    channel.begin(2)
    until(lambda: channel.take() and reporter.is_over())
    reporter.begin()
    reporter.report(1.0)

    assert 1.0 == sum(reported.reward for reported in taken(channel, 2))


def test_reports_after_an_end_are_dropped(channel, connect):
    channel.begin(5)
    reporter = connect()
    reporter.report(1.0, terminated=True)
    reporter.report(50.0)
    found = taken(channel)
    settled(channel, 1)

    assert (1.0, True, False) == (
        sum(reported.reward for reported in found),
        found[-1].terminated,
        found[-1].truncated,
    )
    assert 1 == channel.dropped


def test_a_program_is_told_about_a_new_episode(channel, connect):
    channel.begin(3)
    reporter = connect()
    assert 3 == reporter.episode
    assert not reporter.is_over()
    channel.take()
    channel.begin(4)

    assert until(reporter.is_over)
    assert 4 == reporter.begin()
    assert any(reported.ready for reported in taken(channel))


def test_a_program_started_without_an_episode_waits_for_one(channel):
    """Such as one in a virtual machine, which has the address alone."""
    channel.begin(7)
    address = {"ENVKIT_REWARDS": channel.variables()["ENVKIT_REWARDS"]}
    reporters = [Reporter(address), Reporter(address)]
    calls = [reporters[0].begin, lambda: reporters[1].report(2.0)]
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    found = taken(channel, 2)
    for thread in threads:
        thread.join(PATIENCE)

    assert [7, 7] == [reporter.episode for reporter in reporters]
    assert any(reported.ready for reported in found)
    assert 2.0 == sum(reported.reward for reported in found)
    for reporter in reporters:
        reporter.close()


def test_any_program_can_report_by_writing_lines(channel, raw):
    channel.begin(1)
    raw.sendall(b'{"episode": "1", "rew')
    channel.take()
    raw.sendall(b'ard": 2}\r\n{"episode": 1, "truncated": true}\n')
    found = taken(channel, 2)

    assert 2.0 == sum(reported.reward for reported in found)
    assert found[-1].truncated
    assert {"episode": 1} == json.loads(raw.makefile().readline())


REFUSALS = {
    b"reward 3": "A line must be a JSON object, got 'reward 3'.",
    b"[" * 9000: f"A line must be a JSON object, got {'[' * 80!r}.",
    b"{}": "'episode' must be the id of its episode, a whole number, got None.",
    b'{"episode": 1, "rewards": 1}': "A line must have keys of episode, ready, reward, "
    "terminated, text, truncated; got 'rewards'.",
    b'{"episode": 1.5}': "'episode' must be the id of its episode, a whole number, got "
    "1.5 of type float.",
    b'{"episode": 1e999}': "'episode' must be the id of its episode, a whole number, "
    "got inf of type float.",
    b'{"episode": 1, "reward": NaN}': "'reward' must be a number from -1e+30 to 1e+30, "
    "got nan of type float.",
    b'{"episode": 1, "reward": 1%s}' % (b"0" * 400): "'reward' must be a number from "
    f"-1e+30 to 1e+30, got 1{'0' * 39} of type int.",
    b'{"episode": 1, "terminated": 1}': "'terminated' must be true or false, got 1 of "
    "type int.",
    b'{"episode": 1, "text": 5}': "'text' must be a string, got 5 of type int.",
}


@pytest.mark.parametrize("line", REFUSALS)
def test_an_invalid_line_is_refused_with_the_reason(line, channel, raw):
    channel.begin(1)
    raw.sendall(line + b'\n{"episode": 1, "reward": 1}\n')
    found = taken(channel)

    answers = raw.makefile()
    told = [json.loads(answers.readline()) for _ in range(2)]
    assert [{"episode": 1}, {"error": REFUSALS[line]}] == told
    assert (1.0, 1) == (sum(reported.reward for reported in found), channel.refused)


def test_an_endless_line_is_refused(channel, raw):
    raw.sendall(b"x" * 70_000)
    raw.setblocking(False)
    told = []

    def lines():
        channel.take()
        with contextlib.suppress(BlockingIOError):
            told.append(raw.recv(1 << 16))
        return b"".join(told).splitlines()

    until(lambda: len(lines()) == 2)
    assert [
        {"episode": 0},
        {"error": "A line must have at most 65536 bytes."},
    ] == [json.loads(line) for line in lines()]


@given(lines=st.lists(st.binary(max_size=60), max_size=8))
def test_the_channel_survives_anything_a_program_writes(lines):
    channel = RewardChannel("tcp://127.0.0.1:0")
    channel.open()
    channel.begin(9)
    reporter = Reporter(channel.variables())
    reporter._link.sendall(b"\n".join(lines) + b"\n")
    reporter.report(1.0, text="the end")
    found = []
    until(lambda: found.append(channel.take()) or any(one.texts for one in found))
    reporter.close()
    channel.close()

    assert ["the end"] == [text for one in found for text in one.texts]


def test_a_new_program_replaces_one_that_ended(channel):
    channel.begin(1)
    script = (
        "from envkit.desktop import Reporter; r = Reporter();"
        "r.report(2.0); r.report(1.0, terminated=True)"
    )
    for episode in (1, 2):
        channel.begin(episode)
        environ = channel.variables()
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **environ}, check=True
        )
        assert 3.0 == sum(reported.reward for reported in taken(channel, 2))


def test_a_channel_can_be_pickled_before_it_is_opened():
    copy = pickle.loads(pickle.dumps(RewardChannel("tcp://127.0.0.1:0")))
    assert "RewardChannel('tcp://127.0.0.1:0')" == repr(copy)
    with pytest.raises(ClosedError):
        copy.take()


def test_without_a_desktop_reports_are_ignored(channel):
    alone = Reporter({})
    alone.begin()
    alone.report(1.0)
    assert not alone.is_over()

    channel.begin(1)
    left = Reporter(channel.variables())
    channel.take()
    channel.close()
    until(lambda: left.report(1.0) or left._link is None)
    assert left._link is None


@pytest.mark.parametrize("address", ["localhost", "tcp://localhost", "udp://a:1", 5])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(ValueError, match="address must be tcp://HOST:PORT"):
        RewardChannel(address)
