"""What tests of screens share: pictures, servers, and waiting for pictures."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import struct
import subprocess

import numpy as np

from envkit.desktop import DesktopServer
from envkit.desktop.protocol import answer, version_text
from tests.waiting import PATIENCE, until

XVNC = shutil.which("Xvnc")


def picture_of(seed, width, height, colours, run):
    """Draws stripes: runs of one colour out of a palette."""
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (colours, 3), np.uint8)
    indices = rng.integers(0, colours, width * height // run + 1)
    return palette[np.repeat(indices, run)[: width * height]].reshape(height, width, 3)


def draw(codec, encoding, place, picture, data):
    """Draws a rectangle whose bytes are all there; returns those that follow it."""
    reading = codec.decode(encoding, place, picture)
    try:
        needed = next(reading)
        while len(data) >= needed:
            part, data = data[:needed], data[needed:]
            needed = reading.send(part)
    except StopIteration:
        return data
    raise EOFError(f"{needed} bytes are needed, and {len(data)} are there.")


@contextlib.contextmanager
def served(*args, **kwargs):
    """Serves a desktop, with its events in a queue; without a password unless told."""
    events = queue.Queue()
    kwargs.setdefault("password", None)
    with DesktopServer(*args, on_event=events.put, **kwargs) as server:
        yield server, events


def shows(client, picture):
    """Returns whether a client comes to show a picture."""

    def is_there():
        client.update(timeout=0.1)
        return np.array_equal(picture, client.frame)

    return until(is_there)


def read(link, count):
    """Reads so many bytes."""
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        assert part, "the server hung up"
        data += part
    return data


def at_the_door(address, password):
    """Connects as soon as a server listens; stands before it says what it shows."""

    def dial():
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(address, PATIENCE)

    link = until(dial)
    link.sendall(version_text((3, 8)) + b"\2")
    link.sendall(answer(read(link, 12 + 2 + 16)[14:], password) + b"\1")
    assert b"\0\0\0\0" == read(link, 4)
    return link


def size_told(link):
    """Returns the size that the server says."""
    return struct.unpack(">HH", read(link, 4))


def free_port():
    """Returns a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def xvnc(tmp_path, password=None):
    """Starts TigerVNC's server; yields where it listens and its display."""
    path = tmp_path / "vnc.sock"
    command = [XVNC, "-rfbunixpath", str(path), "-rfbport", "-1"]
    command += ["-geometry", "320x240", "-FrameRate", "60", "-wr"]
    if password is None:
        command += ["-SecurityTypes", "None"]
    else:
        secret = tmp_path / "passwd"
        # Such a file has the password, encrypted by a key that all of them share.
        key = bytes([23, 82, 107, 6, 35, 78, 88, 7]).decode("latin-1")
        secret.write_bytes(answer(password.encode().ljust(8, b"\0"), key))
        command += ["-SecurityTypes", "VncAuth", "-rfbauth", str(secret)]
    reader, writer = os.pipe()
    with open(reader, "rb") as told:
        with (tmp_path / "log").open("wb") as log:
            server = subprocess.Popen(
                [*command, "-displayfd", str(writer)], pass_fds=[writer], stderr=log
            )
        os.close(writer)
        try:
            display = told.readline().decode().strip()
            assert display, (tmp_path / "log").read_text()
            yield str(path), f":{display}"
        finally:
            server.terminate()
            server.wait()
