"""Servers for tests: one in this process, and a way to cut the links to it."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.remote.server import Server
from tests.waiting import PATIENCE, until


@contextlib.contextmanager
def served(
    *targets, resume=600.0, to_prove=PATIENCE, arguments=None, **options
) -> Iterator:
    """Serves environments from this process."""
    menu = Menu([Offer(each, arguments) for each in targets])
    server = Server(
        menu, ServeOptions(port=0, **options), resume=resume, to_prove=to_prove
    )
    try:
        yield server
    finally:
        server.close("the test is over")


def certificate_in(folder: Path) -> tuple[str, str]:
    """Makes a certificate for localhost; returns its file, and that of its key."""
    cert, key = str(folder / "cert"), str(folder / "key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj"]
    command += ["/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run(
            [*command, "-keyout", key, "-out", cert], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return cert, key


class Between:
    """A go-between that carries bytes to a server, and can cut what it carries."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition("/")[2].rpartition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._held: set[socket.socket] = set()
        self.carried = 0
        self.is_closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self.is_closed:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.create_connection(self._to)
            with self._lock:
                self._pairs.append((here, there))
            threading.Thread(target=self._carry, args=(here, there)).start()

    def _carry(self, here: socket.socket, there: socket.socket) -> None:
        poller = select.poll()
        for sock in (here, there):
            poller.register(sock, select.POLLIN)
        other = {here.fileno(): (here, there), there.fileno(): (there, here)}
        try:
            while True:
                for fd, _ in poller.poll():
                    source, target = other[fd]
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if target not in self._held:
                        self.carried += len(data)
                        target.sendall(data)
        except OSError:
            return
        finally:
            here.close()
            there.close()

    @contextlib.contextmanager
    def cutting_after(self, delivered: Callable[[], bool]) -> Iterator[None]:
        """Delivers a request, and cuts the link before any of its answer comes.

        Args:
            delivered: Returns True once the other end has the request.
        """
        with self._lock:
            self._held.update(here for here, _ in self._pairs)

        def cut() -> None:
            until(delivered)
            self.cut()

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def cut(self) -> None:
        """Cuts all that is carried now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def say(self, data: bytes) -> None:
        """Sends to clients what no server has sent."""
        with self._lock:
            for here, _ in self._pairs:
                here.sendall(data)

    def close(self) -> None:
        self.is_closed = True
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
