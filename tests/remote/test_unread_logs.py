"""What clients do fills no log, and a log that nothing reads stops no server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from envkit import connect
from envkit.remote.offers import Menu, Offer, ServeOptions
from tests import waiting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

HALF = b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
HALF += b'Content-Length: 100\r\n\r\n{"action"'


@contextlib.contextmanager
def served(*flags, stderr):
    """Serves in a process of its own; yields it and the lines that it prints."""
    command = [sys.executable, "-m", "envkit", "serve", "Catch", "--port=0", *flags]
    if "--openenv" in flags:  # whoever asks for its health has no token
        command.append("--no-token")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def place_in(line):
    host, port = re.search(r"(127\.0\.0\.1):(\d+)", line).groups()
    return host, int(port)


def answers(place):
    url = f"http://{place[0]}:{place[1]}/health"
    with urllib.request.urlopen(url, timeout=waiting.PATIENCE) as told:
        return json.load(told) == {"status": "healthy"}


def send_half(place, path=b"/step"):
    """Sends the beginning of a request, and leaves."""
    with socket.create_connection(place) as sock:
        sock.sendall(HALF % (path, b"%s:%d" % (place[0].encode(), place[1])))
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(waiting.PATIENCE)
        while sock.recv(1 << 16):
            pass


def test_half_a_request_is_logged_in_one_line():
    with served("--openenv", stderr=subprocess.PIPE) as (process, line):
        place = place_in(line)
        for path in (b"/step", b"/reset", b"/mcp", b"/Catch/tasks"):
            send_half(place, path)
        assert answers(place)
        process.send_signal(signal.SIGTERM)
        lines = process.communicate()[1].splitlines()
    assert 143 == process.returncode
    for path in ("/step", "/reset", "/mcp", "/Catch/tasks"):
        (told,) = [each for each in lines if f"its POST '{path}'" in each]
        assert told.endswith(f": its POST '{path}' broke off before its end")
    assert "Traceback" not in "\n".join(lines)


def test_a_stalled_request_is_logged_in_one_line_and_delays_no_signal():
    flags = "--openenv", "--idle-timeout=0.05"
    with served(*flags, stderr=subprocess.PIPE) as (process, line):
        place = place_in(line)
        with socket.create_connection(place) as sock:
            sock.sendall(HALF % (b"/step", b"localhost"))
            sock.settimeout(waiting.PATIENCE)
            assert b"408" == sock.makefile("rb").readline().split()[1]
        process.send_signal(signal.SIGTERM)
        lines = process.communicate()[1].splitlines()
    (told,) = [each for each in lines if "its POST '/step'" in each]
    assert told.endswith("its POST '/step' did not come within 0.05 s")


def test_a_server_that_ends_logs_no_traceback_for_half_a_request():
    with served("--openenv", stderr=subprocess.PIPE) as (process, line):
        place = place_in(line)
        stalled = [socket.create_connection(place) for _ in range(3)]
        for sock in stalled:
            sock.sendall(HALF % (b"/step", b"localhost"))
        assert answers(place)
        process.send_signal(signal.SIGTERM)
        text = process.communicate()[1]
        for sock in stalled:
            sock.close()
    assert 143 == process.returncode
    assert "Traceback" not in text
    assert "Cancel" not in text


def test_a_server_inside_a_program_logs_half_a_request_in_one_line(caplog):
    pytest.importorskip("starlette", reason="starlette is not installed")
    from envkit.remote.openenv import OpenEnvServer

    options = ServeOptions(port=0, token=None)
    with OpenEnvServer(Menu([Offer("Catch")]), options) as server:
        send_half(place_in(server.url))
        assert waiting.until(lambda: caplog.records)
    (told,) = [each for each in caplog.records if "its POST" in each.getMessage()]
    assert told.exc_info is None


@pytest.mark.parametrize("host", [b"localhost", b"evil.example"])
def test_a_malformed_body_logs_no_traceback(caplog, host):
    pytest.importorskip("starlette", reason="starlette is not installed")
    from envkit.remote.openenv import OpenEnvServer

    options = ServeOptions(port=0, token=None)
    with OpenEnvServer(Menu([Offer("Catch")]), options) as server:
        asked = (
            b"POST /reset HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
        )
        asked += b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
        with socket.create_connection(place_in(server.url)) as sock:
            sock.settimeout(waiting.PATIENCE)
            sock.sendall(asked % host)
            assert b"HTTP/1.1 4" == sock.makefile("rb").read()[:10]
        assert waiting.until(lambda: caplog.records)
        assert answers(place_in(server.url))
    assert [] == [each for each in caplog.records if each.exc_info]


# A pipe that is full from the start: the first line that is written waits for ever.


@contextlib.contextmanager
def full_pipe():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def say_nonsense(place):
    """Connects, says what no protocol knows, and waits until it is sent away."""
    for said in [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"GET /", b"RFB 9" * 9]:
        with socket.create_connection(place) as sock:
            sock.settimeout(waiting.PATIENCE)
            with contextlib.suppress(OSError):  # It may have been sent away already.
                sock.sendall(said)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass


@pytest.mark.parametrize(
    "flag", ["--openenv", "--universe", "--vnc", "--dm-env-rpc", ""]
)
def test_an_unread_log_stops_no_server(flag):
    needed = {
        "--openenv": "uvicorn",
        "--universe": "websockets",
        "--dm-env-rpc": "grpc",
    }
    if flag in needed:
        pytest.importorskip(needed[flag], reason=f"{needed[flag]} is not installed")
    with full_pipe() as stderr:
        flags = [flag] if flag else []
        with served(*flags, stderr=stderr) as (process, line):
            host, port = place_in(line)
            say_nonsense((host, port))
            if flag == "--universe":
                say_nonsense((host, int(line.rpartition("+")[2])))
            if flag == "--openenv":
                for _ in range(20):
                    send_half((host, port))
                assert answers((host, port))
            if not flag:
                with connect(line.split()[-1], num_envs=1) as env:
                    assert env.reset().is_first().all()
            process.send_signal(signal.SIGTERM)
            assert 143 == process.wait(waiting.PATIENCE)


PRINTS = """
import os, sys
from envkit._shared.unread_stderr import queued_stderr

with queued_stderr():
    for number in range(200):
        print(number, file=sys.stderr)
    sys.stderr.flush()
    if os.fork() == 0:
        print("forked", file=sys.stderr)
        os._exit(0)
    os.wait()
    print("\\ud800", end="", file=sys.stderr)
print("after", file=sys.stderr)
"""


def test_a_reader_gets_all_lines_in_order():
    # Newer Pythons warn of a fork beside threads.
    command = [sys.executable, "-W", "ignore", "-c", PRINTS]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = text.splitlines()
    assert "forked" in lines
    lines.remove("forked")
    assert [*map(str, range(200)), "\\ud800after"] == lines


def test_dropped_lines_are_counted():
    """More than a pipe and the queue can hold."""
    code = """
import sys
from envkit._shared.unread_stderr import queued_stderr

with queued_stderr():
    for number in range(5000):
        print("x" * 99, file=sys.stderr)
    print("all printed", flush=True)
    sys.stdin.readline()
    print("the last", file=sys.stderr)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "all printed\n" == process.stdout.readline()
    lines = iter(process.stderr.readline, "")
    count = 0
    while (line := next(lines)) == "x" * 99 + "\n":
        count += 1
    left_out = int(line.removeprefix("(").split()[0])
    assert 0 < count < 5000 == count + left_out
    assert "the last" in process.communicate("\n")[1]
