"""Finds or starts a server for a client, and opens or resumes a session there."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from envkit._shared.listening import host_and_port, is_loopback, place_of
from envkit._shared.processes import exit_text, signal_group
from envkit._shared.protocol_end import run_handshake
from envkit._shared.secret_files import SecretFileError, find, secret_in
from envkit._shared.text import escaped
from envkit.distributed.link import keep_alive
from envkit.errors import EnvkitError, InsecureWarning
from envkit.parallel.system.guardian import Guardian
from envkit.remote.plugins import PORT
from envkit.remote.protocol import (
    NONCE,
    ClientHandshake,
    FactsReceived,
    GreetingReceived,
    ProtocolError,
    RefusedError,
)

__all__ = [
    "LaunchError",
    "Launched",
    "Peer",
    "ServerAddress",
    "addresses_in",
    "dial",
    "peer_of",
]

_LOGGER = logging.getLogger(__name__)

_TO_ANSWER = 30.0
# Seconds that a session may take to build its environments.
_TO_OPEN = 600.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_ADDRESS = re.compile(rb"\bt(?:cp|ls)://[^\s,]+")
_POLL_INTERVAL = 0.05
# Seconds that a command has to end, and the bytes of its stderr to quote.
_GRACE, _TAIL = 5.0, 2000


class ServerAddress(NamedTuple):
    """A server's address, and the name of one of its environments.

    Attributes:
        host: The machine.
        port: The port.
        is_tls: Whether the address begins with `tls://`.
        name: The environment; "" if the address names none.

    Example:
        >>> ServerAddress.parse("tcp://gpu-box/CartPole")
        ServerAddress(host='gpu-box', port=7600, is_tls=False, name='CartPole')
        >>> print(ServerAddress.parse("tls://[::1]:80"))
        tls://[::1]:80
    """

    host: str
    port: int
    is_tls: bool = False
    name: str = ""

    def __str__(self) -> str:
        return f"{'tls' if self.is_tls else 'tcp'}://{place_of((self.host, self.port))}"

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Reads an address.

        Raises:
            ValueError: The text is no address.
        """
        scheme, _, rest = text.partition("://")
        place, _, name = rest.partition("/")
        found = host_and_port(place, PORT)
        if scheme not in ("tcp", "tls") or found is None or not found[1]:
            bare = host_and_port(text.partition("/")[0], 0)
            hint = f" Did you mean 'tcp://{text[:80]}'?" if bare and bare[1] else ""
            raise ValueError(
                "The address of a server must be tcp://host:port or tls://host:port, "
                f"with /Name after it for an environment, got {text[:80]!r}.{hint}"
            )
        return cls(*found, scheme == "tls", name)


def addresses_in(text: str) -> list[ServerAddress]:
    """Reads addresses separated by commas.

    Example:
        >>> [str(each) for each in addresses_in("tcp://a:7600,b:7601")]
        ['tcp://a:7600', 'tcp://b:7601']
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return [ServerAddress.parse(text)]  # which says what is wrong with it
    parts = [part.strip() for part in rest.split(",")]
    return [
        ServerAddress.parse(part if "://" in part else f"{scheme}://{part}")
        for part in parts
    ]


class Peer(NamedTuple):
    """A client's token and TLS settings.

    Attributes:
        token: The server's secret; `None` to look for the file of a server of the same
            user.
        tls: An SSL context; `None` to go by the address.
    """

    token: bytes | None = None
    tls: ssl.SSLContext | None = None


def peer_of(
    addresses: Sequence[ServerAddress],
    *,
    token: str | bytes | None = None,
    token_file: str | os.PathLike[str] | None = None,
    cafile: str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Peer:
    """Returns the settings to connect with; warns of a token without encryption."""
    if token is not None and token_file is not None:
        raise ValueError("Pass either token or token_file, not both.")
    if tls is not None and cafile is not None:
        raise ValueError("Pass either tls or cafile, not both.")
    if token_file is not None:
        token = secret_in(token_file, "token_file")
    secret = token.encode() if isinstance(token, str) else token
    if secret is not None and not secret:
        raise ValueError("The token must not be empty.")
    if cafile is not None:
        tls = ssl.create_default_context(cafile=os.fspath(cafile))
    open_links = [
        str(each)
        for each in addresses
        if tls is None and not each.is_tls and not is_loopback(each.host)
    ]
    if secret is not None and open_links:
        warnings.warn(
            f"The connection to {', '.join(open_links)} is not encrypted: the token "
            "does not travel, but everything else can be read and changed on the way. "
            "Serve with --cert and --key, and pass cafile=.",
            InsecureWarning,
            stacklevel=3,
        )
    return Peer(secret, tls)


def dial(
    addresses: Sequence[ServerAddress],
    request: dict[str, Any],
    peer: Peer,
    *,
    patience: float = 0.0,
    refused_for: float | None = None,
    is_over: Callable[[], bool] = bool,
) -> tuple[socket.socket, dict[str, Any], ServerAddress]:
    """Connects to the first server that can be reached, and sends it a request.

    Args:
        addresses: The servers, in the order in which to try them.
        request: The request.
        peer: The token and TLS settings.
        patience: Seconds to keep trying while no server can be reached.
        refused_for: Seconds to keep trying while machines answer but nothing listens
            there; `None` for `patience`.
        is_over: Returns True to stop trying.

    Returns:
        The connection, the server's answer, and the server's address.

    Raises:
        RefusedError: A server refused; it is not asked again.
        OSError: No server could be reached, or the connection broke off.
    """
    begun = time.monotonic()
    pause = _SHORTEST_PAUSE
    while True:
        problems: list[OSError] = []
        for address in addresses:
            try:
                return (*_connect(address, request, peer), address)
            except (RefusedError, SecretFileError):
                raise
            except OSError as error:
                problems.append(_explained(error, address, peer))
        passed = time.monotonic() - begun
        limit = patience
        if refused_for is not None and all(
            isinstance(problem, ConnectionRefusedError) for problem in problems
        ):
            limit = min(limit, refused_for)
        if passed >= limit or is_over():
            raise problems[0]
        time.sleep(min(pause, max(limit - passed, 0.0)))
        pause = min(2 * pause, _LONGEST_PAUSE)


def _explained(error: OSError, address: ServerAddress, peer: Peer) -> OSError:
    kind = type(error)
    if isinstance(error, ssl.SSLError):
        return ConnectionError(
            f"{address} cannot be reached with TLS: {error}. Does the server have "
            "--cert, and is cafile= its certificate?"
        )
    if isinstance(error, ProtocolError):
        hint = (
            " If the server uses TLS, the address must begin with tls://."
            if peer.tls is None and not address.is_tls
            else ""
        )
        return ConnectionError(
            f"{address} did not answer like an envkit server: {error}{hint}"
        )
    text = f"{address} cannot be reached: {error.strerror or error}."
    if isinstance(error, ConnectionRefusedError):
        return ConnectionRefusedError(f"{text} Is envkit serve running there?")
    return kind(text) if kind in (TimeoutError, ConnectionResetError) else OSError(text)


def _connect(
    address: ServerAddress, request: dict[str, Any], peer: Peer
) -> tuple[socket.socket, dict[str, Any]]:
    sock = socket.create_connection((address.host, address.port), _TO_ANSWER)
    try:
        # As in a pool, only this end gives up when its data is not read for some
        # seconds.
        keep_alive(sock, is_pool=True)
        sock = _encrypted(sock, address, peer)
        return sock, _ask(sock, request, peer, address)
    except BaseException:
        sock.close()
        raise


def _encrypted(
    sock: socket.socket, address: ServerAddress, peer: Peer
) -> socket.socket:
    context = peer.tls
    if context is None and address.is_tls:
        context = ssl.create_default_context()
    if context is None:
        return sock
    sock.settimeout(_TO_ANSWER)
    return context.wrap_socket(sock, server_hostname=address.host)


def _ask(
    sock: socket.socket, request: dict[str, Any], peer: Peer, address: ServerAddress
) -> dict[str, Any]:
    handshake = ClientHandshake(os.urandom(NONCE))
    greeted = run_handshake(handshake, sock, time.monotonic() + _TO_ANSWER)
    assert isinstance(greeted, GreetingReceived)  # it comes first
    token = peer.token
    if token is None and greeted.needs_token:  # perhaps a server of the same user
        found = find("token", address.host, address.port)
        token = None if found is None else found.encode()
    handshake.ask(request, token)
    granted = run_handshake(handshake, sock, time.monotonic() + _TO_OPEN)
    assert isinstance(granted, FactsReceived)  # it comes next
    return granted.facts


# A server started by the client.


class LaunchError(EnvkitError, RuntimeError):
    """A server started by the client has ended, or does not answer."""


class Launched:
    """Runs a command that starts a server, in its own process group."""

    def __init__(self, command: Sequence[str], start_timeout: float) -> None:
        """Starts the command.

        Raises:
            LaunchError: It cannot be started.
        """
        if isinstance(command, str) or not command:
            raise TypeError(
                "command must be a list of words, such as ['envkit', 'serve', "
                f"'CartPole'], got {command!r:.80}."
            )
        self._command = [os.fspath(word) for word in command]
        self._timeout = start_timeout
        self._changed = threading.Condition()
        self._is_closed = self._has_printed = False
        # Held while the command is restarted.
        self._reviving = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in _end()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise LaunchError(
                f"The command {self._command[0]!r} cannot be started: "
                f"{error.strerror or error}."
            ) from error
        # Ends the command if this process is killed.
        guardian = Guardian()
        guardian.start()
        guardian.watch(self._process.pid)
        self._printed: list[bytes] = []
        reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._printed, self._changed)
        )
        reader.daemon = True
        reader.start()
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), self._process, self._errors, guardian
        )

    def revive(self) -> str | None:
        """Restarts the command if it has ended.

        Returns:
            The address that it printed; `None` if it prints none.

        Raises:
            LaunchError: It cannot be started, or has ended again.
        """
        with self._reviving:
            problem = self.problem()
            if problem is not None and not self._is_closed:
                _LOGGER.warning("%s Restarting it.", problem)
                self._finalizer()
                self._start()
            return self.await_address() if self._has_printed else None

    def await_address(self) -> str:
        """Returns the first address that the command prints.

        Raises:
            LaunchError: It ended first, or printed none in time.
        """
        deadline = time.monotonic() + self._timeout
        with self._changed:
            while True:
                found = _ADDRESS.search(b"".join(self._printed))
                if found is not None:
                    self._has_printed = True
                    return found[0].decode("ascii", "replace")
                problem = self.problem()
                if problem is not None or self._is_closed:
                    raise LaunchError(problem or "The server was closed.")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise LaunchError(
                        f"The command {self._command[0]!r} printed no address within "
                        f"{self._timeout:g} s (start_timeout).{self._tail()} Pass the "
                        "address if it prints none."
                    )
                self._changed.wait(min(left, _POLL_INTERVAL))

    def problem(self) -> str | None:
        """Returns how the command ended; `None` while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return f"The command {self._command[0]!r} {exit_text(code)}.{self._tail()}"

    def _tail(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._errors.fileno()).st_size
            data = os.pread(self._errors.fileno(), _TAIL, max(0, size - _TAIL))
            text = data.decode(errors="replace").strip()
            if text:
                return f" It said: {escaped(text)}"
        return ""

    def close(self) -> None:
        """Ends the command and the processes it started; waits until it has ended."""
        self._is_closed = True
        with self._reviving:
            self._finalizer()


def _read(stream: Any, lines: list[bytes], changed: threading.Condition) -> None:
    """Reads a command's output, so that it never blocks on a full pipe."""
    for line in stream:
        with changed:
            if len(lines) < 100:
                lines.append(line)
            changed.notify_all()
    stream.close()


def _end(
    owner: int, process: subprocess.Popen[bytes], errors: Any, guardian: Guardian
) -> None:
    if os.getpid() != owner:
        return  # a fork of the client, which did not start it
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            break
    # Helper processes that outlived it.
    signal_group(process.pid, signal.SIGKILL)
    errors.close()
    guardian.leave(process.pid)
    guardian.dismiss()
