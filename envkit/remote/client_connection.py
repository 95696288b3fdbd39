"""How a client finds a server or starts one, and opens or resumes a session there."""

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
from envkit.remote.protocol import (
    NONCE,
    PORT,
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
# How long a session may take to build its environments.
_TO_OPEN = 600.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_ADDRESS = re.compile(rb"\bt(?:cp|ls)://[^\s,]+")
_POLL_INTERVAL = 0.05
# Seconds that a command has to end, and how much is quoted of what it has said.
_GRACE, _TAIL = 5.0, 2000


class ServerAddress(NamedTuple):
    """Where a server listens, and which of its environments is meant.

    Attributes:
        host: Its machine.
        port: Its port.
        is_tls: Whether the address says that connections are encrypted.
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
            ValueError: It is none.
        """
        scheme, _, rest = text.partition("://")
        place, _, name = rest.partition("/")
        found = host_and_port(place, PORT)
        if scheme not in ("tcp", "tls") or found is None or not found[1]:
            raise ValueError(
                "The address of a server must be tcp://host:port or tls://host:port, "
                f"with /Name behind it for an environment, got {text[:80]!r}."
            )
        return cls(*found, scheme == "tls", name)


def addresses_in(text: str) -> list[ServerAddress]:
    """Reads addresses between which there are commas.

    Example:
        >>> [str(each) for each in addresses_in("tcp://a:7600,b:7601")]
        ['tcp://a:7600', 'tcp://b:7601']
    """
    scheme, _, rest = text.partition("://")
    parts = [part.strip() for part in rest.split(",")]
    return [
        ServerAddress.parse(part if "://" in part else f"{scheme}://{part}")
        for part in parts
    ]


class Peer(NamedTuple):
    """How a client connects.

    Attributes:
        token: The secret that the server has in its `--token-file`, or has drawn; with
            `None` the file of a server of the same user is looked for.
        tls: What checks the server's certificate; `None` for what the address says.
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
    """Returns how to connect; warns of a token that goes with a link in the clear."""
    if token is not None and token_file is not None:
        raise ValueError("Pass token or token_file, and not both of them.")
    if tls is not None and cafile is not None:
        raise ValueError("Pass tls or cafile, and not both of them.")
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
            f"The connection with {', '.join(open_links)} is not encrypted: the token "
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
    """Connects with the first server that can be reached, and asks it.

    Args:
        addresses: Where there are servers, in the order in which to try them.
        request: What to ask for.
        peer: How to connect.
        patience: For how many seconds to try again where none can be reached.
        refused_for: The same where machines are there and nothing listens on them;
            `None` for `patience`.
        is_over: Tells that no further try is to be made.

    Returns:
        The connection, what the server has answered, and where it is.

    Raises:
        RefusedError: A server has refused; it is not asked again.
        OSError: None could be reached, or it broke off.
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
            f"{address} cannot be spoken to by TLS: {error}. Does the server have "
            "--cert, and is cafile= the certificate that it shows?"
        )
    if isinstance(error, ProtocolError):
        hint = (
            " Does the server use TLS? Then the address begins with tls://."
            if peer.tls is None and not address.is_tls
            else ""
        )
        return ConnectionError(
            f"{address} did not answer as a server of envkit: {error}{hint}"
        )
    text = f"{address} cannot be reached: {error.strerror or error}."
    if isinstance(error, ConnectionRefusedError):
        return ConnectionRefusedError(f"{text} Does envkit serve run there?")
    return kind(text) if kind in (TimeoutError, ConnectionResetError) else OSError(text)


def _connect(
    address: ServerAddress, request: dict[str, Any], peer: Peer
) -> tuple[socket.socket, dict[str, Any]]:
    sock = socket.create_connection((address.host, address.port), _TO_ANSWER)
    try:
        # As with a pool, only this end gives up what is not taken for some seconds.
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
    if token is None and greeted.needs_token:  # That of a server of the same user.
        found = find("token", address.host, address.port)
        token = None if found is None else found.encode()
    handshake.ask(request, token)
    granted = run_handshake(handshake, sock, time.monotonic() + _TO_OPEN)
    assert isinstance(granted, FactsReceived)  # it comes next
    return granted.facts


# A server that the client starts.


class LaunchError(EnvkitError, RuntimeError):
    """A server that was to be started has ended, or does not answer."""


class Launched:
    """A command that runs a server for a client, as a process with its own group."""

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
        # Held while the command is started again.
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
        # It ends the command where this process ends without doing so.
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
        """Starts the command again if it has ended.

        Returns:
            The address that it has printed; `None` if it prints none.

        Raises:
            LaunchError: It cannot be started, or has ended again.
        """
        with self._reviving:
            problem = self.problem()
            if problem is not None and not self._is_closed:
                _LOGGER.warning("%s It is started again.", problem)
                self._finalizer()
                self._start()
            return self.await_address() if self._has_printed else None

    def await_address(self) -> str:
        """Returns the first address that the command prints.

        Raises:
            LaunchError: It has ended before, or printed none in time.
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
                        f"The command {self._command[0]!r} has printed no address for "
                        f"{self._timeout:g} s (start_timeout).{self._tail()} Pass the "
                        "address if it prints none."
                    )
                self._changed.wait(min(left, _POLL_INTERVAL))

    def problem(self) -> str | None:
        """Returns how the command has ended; `None` as long as it runs."""
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
                return f" It has said: {escaped(text)}"
        return ""

    def close(self) -> None:
        """Ends the command and what it has started; returns when it has ended."""
        self._is_closed = True
        with self._reviving:
            self._finalizer()


def _read(stream: Any, lines: list[bytes], changed: threading.Condition) -> None:
    """Reads what a command prints, so that it never waits for room."""
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
        return  # A fork of the client, which has not started it.
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            break
    # Helpers that have outlived it.
    signal_group(process.pid, signal.SIGKILL)
    errors.close()
    guardian.leave(process.pid)
    guardian.dismiss()
