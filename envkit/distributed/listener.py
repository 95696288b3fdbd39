"""`Listener`: accepts the connections of linked workers.

Until a connection has proved itself, its bytes are only compared with the expected
ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import stat
import sys
import time
import warnings
from typing import NamedTuple

from envkit._shared.listening import is_loopback
from envkit.distributed.certificate import NoCertificateError, own_certificate
from envkit.distributed.link import (
    PROOF_SIZE,
    UNIX,
    Address,
    Token,
    ident_of,
    keep_alive,
    unix_name,
)
from envkit.distributed.seal import Seal
from envkit.errors import InsecureWarning
from envkit.extend import describe
from envkit.parallel.system.poller import Poller

__all__ = ["Arrival", "Listener"]

# Seconds for a connection to prove itself, and how many unexpected ones may try at the
# same time.
_TO_PROVE, _MOST_STRANGERS = 5.0, 64
# The same with encryption: the worker's process proves itself, and must start first.
_TO_PROVE_BY_TLS = 60.0


# The warning about unencrypted links that other machines can reach.
_IN_CLEAR = (
    "The links of this pool between {host} and its workers are not encrypted: what "
    "goes over them cannot be changed unnoticed, but others can read it, as far as the "
    "network lets them. "
)
_LEAVE_OUT = "Leave out tls=False, and the pool makes a certificate of its own."
_INSTALL = (
    "Encrypting them takes a certificate, and none can be made, because {why}. Install "
    "that program, pass tls=context with a certificate of yours, or say tls=False if "
    "that network is your own."
)


class Arrival(NamedTuple):
    """A worker that has shown a valid token.

    Attributes:
        worker: Its index.
        sock: Its connection.
        seal: The seal of its frames; `None` if they are encrypted.
    """

    worker: int
    sock: socket.socket
    seal: Seal | None


class Listener:
    """Listens for workers, and accepts those that know a token.

    It is open as long as there are unused tokens.
    """

    def __init__(
        self,
        host: str,
        port: int,
        reach_as: str | None,
        tls: ssl.SSLContext | bool | None,
    ) -> None:
        """Takes the arguments of `linked`; does not listen yet."""
        if not isinstance(tls, ssl.SSLContext | bool | None):
            raise TypeError(
                "tls must be an ssl.SSLContext for servers, True, False or None, got "
                f"{describe(tls)}."
            )
        if host.startswith(UNIX):
            host, reach_as = _unix_places(host, port, reach_as, tls)
        self._port = port
        self._has_to_encrypt = tls
        self._set_place(host, reach_as)
        self._tls: ssl.SSLContext | None = None
        self._certificate = b""
        if isinstance(tls, ssl.SSLContext):
            self._encrypt_by(tls)
        self._socket: socket.socket | None = None
        # The process that made the file of a Unix socket; a fork must not remove it.
        self._owner = 0
        self._tokens: dict[bytes, tuple[Token, int]] = {}
        self._strangers: dict[int, _Stranger] = {}

    def move_to(self, host: str) -> None:
        """Changes the address of this machine that workers connect to from now on."""
        if host != self._host:
            self._set_place(host, None)

    def _set_place(self, host: str, reach_as: str | None) -> None:
        self._host = host
        is_any = host in ("", "0.0.0.0", "::")
        self._reach_as = reach_as or (socket.gethostname() if is_any else host)
        self._stays_here = host.startswith(UNIX) or (
            is_loopback(host) and is_loopback(self._reach_as)
        )
        if self._has_to_encrypt is False and not self._stays_here:
            self._warn(_LEAVE_OUT)

    def _warn(self, remedy: str) -> None:
        host = self._host or "all addresses of this machine"
        text = _IN_CLEAR.format(host=host) + remedy
        warnings.warn(text, InsecureWarning, stacklevel=_level_of_caller())

    def _encrypt_by(self, tls: ssl.SSLContext) -> None:
        self._certificate = _fingerprint(tls)
        self._tls = tls

    def _secure(self) -> None:
        """Makes the pool's certificate the first time it is needed."""
        wanted = self._has_to_encrypt
        if self._tls is not None or wanted is False:
            return
        if wanted is None and self._stays_here:
            return
        try:
            self._encrypt_by(own_certificate())
        except NoCertificateError as error:
            if wanted:
                raise OSError(
                    f"tls=True cannot be: {error}. Install that program, or pass "
                    "tls=context with a certificate of yours."
                ) from error
            self._has_to_encrypt = False
            self._warn(_INSTALL.format(why=error))

    def open(self, token: Token, worker: int, poller: Poller) -> Address:
        """Accepts a worker with this token from now on; returns the address for it."""
        if self._socket is None:
            self._secure()
            self._socket = _listening_socket(self._host, self._port)
            self._owner = os.getpid()
            poller.register(self._socket.fileno())
        self._tokens[token.ident] = token, worker
        is_unix = self._host.startswith(UNIX)
        port = 0 if is_unix else self._socket.getsockname()[1]
        return Address(self._reach_as, port, token, self._certificate)

    def revoke(self, token: Token) -> None:
        """Stops accepting this token."""
        self._tokens.pop(token.ident, None)
        if not self._tokens:
            self.close()

    def handle(self, fd: int, poller: Poller) -> list[Arrival]:
        """Accepts new connections, and returns those that have proved themselves."""
        if self._socket is not None and fd == self._socket.fileno():
            return self._accept(poller)
        stranger = self._strangers.get(fd)
        return [] if stranger is None else self._read_proof(stranger, poller)

    def _accept(self, poller: Poller) -> list[Arrival]:
        arrived: list[Arrival] = []
        for _ in range(_MOST_STRANGERS):
            try:
                assert self._socket is not None
                sock, _ = self._socket.accept()
                sock.setblocking(False)
                stranger = _Stranger(sock, self._tls)
            except (
                OSError,
                ValueError,
            ):  # No more connections, or it has closed already.
                break
            if len(self._strangers) >= _MOST_STRANGERS + len(self._tokens):
                self._drop(next(iter(self._strangers.values())), poller)
            self._strangers[stranger.fd] = stranger
            poller.register(stranger.fd)
            arrived += self._read_proof(stranger, poller)
            if self._socket is None:
                break
        return arrived

    def _read_proof(self, stranger: _Stranger, poller: Poller) -> list[Arrival]:
        """Reads more; accepts a proved connection, and drops one with a wrong proof."""
        try:
            is_whole = stranger.read()
        except (OSError, EOFError):
            self._drop(stranger, poller)
            return []
        if not is_whole:
            return []
        proof = bytes(stranger.said)
        token, worker = self._tokens.get(ident_of(proof), (Token.new(), -1))
        answer = token.answer(proof)
        if answer is None or worker < 0:
            self._drop(stranger, poller)
            return []
        try:
            if stranger.sock.send(answer) != len(answer):
                raise OSError
        except OSError:
            self._drop(stranger, poller)
            return []
        poller.unregister(stranger.fd)
        del self._strangers[stranger.fd]
        # A token works once: neither this worker nor an eavesdropper can use it again.
        self.revoke(token)
        keep_alive(stranger.sock, is_pool=True)
        is_sealed = self._tls is None
        seal = token.seal(proof + answer, is_pool=True) if is_sealed else None
        return [Arrival(worker, stranger.sock, seal)]

    def _drop(self, stranger: _Stranger, poller: Poller) -> None:
        poller.unregister(stranger.fd)
        self._strangers.pop(stranger.fd, None)
        stranger.sock.close()

    def drop_late(self, now: float, poller: Poller) -> list[Arrival]:
        """Drops connections that have not proved themselves in time.

        Returns:
            Connections whose proof came in time but was not read yet, because this
            process was late.
        """
        limit = _TO_PROVE if self._tls is None else _TO_PROVE_BY_TLS
        arrived: list[Arrival] = []
        for stranger in list(self._strangers.values()):
            if now - stranger.since > limit and stranger.fd in self._strangers:
                arrived += self._read_proof(stranger, poller)
                if stranger.fd in self._strangers:
                    self._drop(stranger, poller)
        return arrived

    def close(self) -> None:
        """Closes the listener, and drops unproved connections."""
        # Pollers forget descriptors that are closed.
        for stranger in self._strangers.values():
            stranger.sock.close()
        self._strangers.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            name = unix_name(self._host) if self._host.startswith(UNIX) else ""
            if name.startswith("/") and self._owner == os.getpid():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)


class _Stranger:
    """A connection that has not proved itself yet."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.since = time.monotonic()
        self.is_greeted = tls is None
        if tls is not None:
            sock = tls.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
        self.sock = sock
        self.fd = sock.fileno()
        self.said = bytearray()

    def read(self) -> bool:
        """Reads more; returns True if the proof is complete."""
        try:
            if not self.is_greeted:
                self.sock.do_handshake()  # type: ignore[attr-defined]  # it is TLS
                self.is_greeted = True
            while len(self.said) < PROOF_SIZE:
                data = self.sock.recv(PROOF_SIZE - len(self.said))
                if not data:
                    raise EOFError
                self.said += data
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        return True


def _level_of_caller() -> int:
    """Returns the `stacklevel` with which a warning points to envkit's caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("envkit."):
        level, frame = level + 1, frame.f_back
    return level


def _unix_places(
    host: str, port: int, reach_as: str | None, tls: ssl.SSLContext | bool | None
) -> tuple[str, str]:
    """Returns a Unix socket's name to listen on, and the name for workers.

    Raises:
        ValueError: A socket cannot have such a name.
    """
    if port or tls is not None:
        name = "port" if port else "tls"
        raise ValueError(
            f"{name} must be left out where host is a Unix socket, which stays on this "
            f"machine, got host={host!r}."
        )
    if host == UNIX and sys.platform == "linux":
        host = f"{UNIX}@envkit-{os.urandom(8).hex()}"
    reach_as = host if reach_as is None else reach_as
    for name, place in (("host", host), ("reach_as", reach_as)):
        path = place.removeprefix(UNIX)
        if path == place or not path.startswith(("/", "@")) or not path[1:]:
            raise ValueError(
                f"{name} must be 'unix:' and the absolute path of a socket, such as "
                f"'unix:/tmp/pool', got {place!r}."
            )
    return host, reach_as


def _listening_socket(host: str, port: int) -> socket.socket:
    is_unix = host.startswith(UNIX)
    ip = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(socket.AF_UNIX if is_unix else ip, socket.SOCK_STREAM)
    try:
        if is_unix:
            _bind_unix(sock, unix_name(host))
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
        sock.listen(_MOST_STRANGERS)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_unix(sock: socket.socket, name: str) -> None:
    """Binds a Unix socket; first removes a file left by a killed pool."""
    if name.startswith("/") and os.path.exists(name):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(name)
            except ConnectionRefusedError:
                if stat.S_ISSOCK(os.lstat(name).st_mode):
                    os.unlink(name)
            except OSError:
                pass  # If the path is still in use, bind() says so.
    sock.bind(name)
    if name.startswith("/"):
        os.chmod(name, 0o600)


def _fingerprint(tls: ssl.SSLContext) -> bytes:
    """Returns the SHA-256 of the certificate that a context shows."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    ours = tls.wrap_bio(pipes[0], pipes[1], server_side=True)
    theirs = client.wrap_bio(pipes[2], pipes[3])
    for _ in range(8):
        for side in (theirs, ours):
            with contextlib.suppress(ssl.SSLError):
                side.do_handshake()
            pipes[0].write(pipes[3].read())
            pipes[2].write(pipes[1].read())
        shown = theirs.getpeercert(binary_form=True) if theirs.version() else None
        if shown:
            return hashlib.sha256(shown).digest()
    raise ValueError(
        "tls must be an ssl.SSLContext for servers with a certificate loaded "
        "(load_cert_chain), got one that shows none."
    )
