"""`Link`: rows and messages over one stream socket, between machines.

Both ends read a body directly to its destination: `want` takes the memory, `fill` reads
into it. Further bytes of the same system call are kept for the next `want`. In lockstep
each frame is like the one before: `expect` takes the memory of the whole frame, and
`fetch` reads it with one system call. If a different frame arrives, it is kept for
`want` too.

A worker dials; the pool's side answers only if the worker knows its token. The token
itself does not travel:

```
worker  -> pool    magic, which token (8 bytes), nonce (16), HMAC(token, "worker" nonce)
pool    -> worker  magic, nonce (16), HMAC(token, "pool" both nonces)
```

The rest is encrypted, or each frame is sealed with keys that both ends derive from the
token and from these two messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from envkit._shared.listening import place_of
from envkit.distributed.frames import (
    ANSWERED,
    ASKED,
    BEGUN,
    HEAD,
    MESSAGE,
    Frame,
    FrameError,
)
from envkit.distributed.seal import Seal

__all__ = [
    "ANSWERED",
    "ANSWER_SIZE",
    "ASKED",
    "BEGUN",
    "CUT_OFF",
    "HEAD",
    "MESSAGE",
    "PROOF_SIZE",
    "UNIX",
    "Address",
    "Frame",
    "FrameError",
    "Link",
    "Token",
    "dial",
    "ident_of",
    "keep_alive",
    "prove",
    "unix_name",
]

# Arrays are sent as they lie in memory, so the byte order is part of the magic.
_MAGIC = b"envkit\2" + (b"<" if sys.byteorder == "little" else b">")
_IDENT, _SECRET, _NONCE, _DIGEST = 8, 24, 16, 32
PROOF_SIZE = len(_MAGIC) + _IDENT + _NONCE + _DIGEST
ANSWER_SIZE = len(_MAGIC) + _NONCE + _DIGEST

# The exit status of a worker whose link has ended.
CUT_OFF = 75
# The prefix of a host that is a Unix socket, and the buffer size of such sockets.
UNIX, _UNIX_BUFFER = "unix:", 1 << 22
_SPARE = 1 << 16
_AT_ONCE = 1 << 20
# A system call takes 1,024 pieces.
_MOST_PIECES = 1000
# Seconds until we notice that a host has vanished; 5 + 3 * 5 if no bytes are on their
# way to it.
_UNANSWERED, _IDLE, _INTERVAL, _PROBES = 10.0, 5, 5, 3
_TO_CONNECT = 30.0
# On other systems a socket may never hold as many bytes as we would wait for.
_CALLS_LATE = sys.platform == "linux"


class Token(NamedTuple):
    """Proves that a connection comes from a worker that the pool has started.

    Attributes:
        ident: The token's identifier, which is not secret.
        secret: The secret of the pool and its worker.
    """

    ident: bytes
    secret: bytes

    @classmethod
    def new(cls) -> Token:
        """Draws a new random token."""
        return cls(os.urandom(_IDENT), os.urandom(_SECRET))

    def digest(self, side: bytes, said: bytes) -> bytes:
        """Returns a digest that only someone with the secret can compute."""
        return hmac.new(self.secret, side + said, hashlib.sha256).digest()

    def proof(self, nonce: bytes) -> bytes:
        """Returns the worker's first message."""
        return _MAGIC + self.ident + nonce + self.digest(b"worker", nonce)

    def answer(self, proof: bytes) -> bytes | None:
        """Returns the pool's answer to a proof; `None` if the proof is wrong."""
        if not hmac.compare_digest(proof, self.proof(_nonce_of(proof))):
            return None
        return self._answer(proof, os.urandom(_NONCE))

    def is_answer(self, answer: bytes, proof: bytes) -> bool:
        """Returns True if an answer to a proof is genuine."""
        return hmac.compare_digest(answer, self._answer(proof, _nonce_of(answer)))

    def _answer(self, proof: bytes, nonce: bytes) -> bytes:
        return _MAGIC + nonce + self.digest(b"pool", _nonce_of(proof) + nonce)

    def seal(self, greeting: bytes, *, is_pool: bool) -> Seal:
        """Returns the seal for the frames of one connection.

        Args:
            greeting: The proof and the answer that were exchanged there.
            is_pool: Whether this is the pool's end.
        """
        sides = (b"frames of the worker", b"frames of the pool")
        worker, pool = (self.digest(side, greeting) for side in sides)
        return Seal(pool, worker) if is_pool else Seal(worker, pool)


def ident_of(proof: bytes) -> bytes:
    """Returns the identifier of the token in a proof."""
    return proof[len(_MAGIC) : len(_MAGIC) + _IDENT]


def _nonce_of(said: bytes) -> bytes:
    return said[-_NONCE - _DIGEST : -_DIGEST]


class Address(NamedTuple):
    """Where a worker finds its pool, with the token that admits it.

    Attributes:
        host: The pool's machine; or "unix:" and the path of a socket on this one, "@"
            and a name for one that Linux keeps without a file.
        port: The pool's port; 0 for a Unix socket.
        token: The token by which the worker proves itself.
        certificate: The SHA-256 of the certificate that the pool must show, if the link
            is encrypted.

    Example:
        >>> address = Address("::1", 7600, Token(b"8 bytes.", b"s" * 24))
        >>> str(address)[:16]
        'tcp://[::1]:7600'
        >>> Address.parse(str(address)) == address
        True
        >>> str(Address("unix:/run/pool", 0, address.token))[:17]
        'unix:///run/pool/'
    """

    host: str
    port: int
    token: Token
    certificate: bytes = b""

    def __str__(self) -> str:
        parts = [b"".join(self.token), self.certificate]
        words = "/".join(part.hex() for part in parts if part)
        if self.host.startswith(UNIX):
            return f"unix://{self.host[len(UNIX) :]}/{words}"
        scheme = "tls" if self.certificate else "tcp"
        return f"{scheme}://{place_of((self.host, self.port))}/{words}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address.

        Raises:
            ValueError: The text is not an address.
        """
        scheme, _, rest = text.partition("://")
        if scheme == "unix":
            path, *words = rest.rsplit("/", 1)
            scheme, host, port = "tcp", path and UNIX + path, "0"
        else:
            place, *words = rest.split("/")
            host, _, port = place.rpartition(":")
        try:
            secrets, *more = [bytes.fromhex(word) for word in words]
            certificate = more[0] if more else b""
            if (
                scheme != ("tls" if certificate else "tcp")
                or not host
                or len(secrets) != _IDENT + _SECRET
                or len(more) > 1
                or len(certificate) not in (0, _DIGEST)
            ):
                raise ValueError
            number = int(port)
        except ValueError:
            raise ValueError(
                "The address of a pool must be the one that stands in place of "
                f"{{address}} in the pool's command, got {text[:40]!r}."
            ) from None
        token = Token(secrets[:_IDENT], secrets[_IDENT:])
        return cls(host.strip("[]"), number, token, certificate)


def unix_name(host: str) -> str:
    """Returns the system's name for a Unix socket: its path, or an abstract name."""
    path = host[len(UNIX) :]
    return f"\0{path[1:]}" if path.startswith("@") else path


def keep_alive(sock: socket.socket, *, is_pool: bool) -> None:
    """Makes the system notice when the other machine is unreachable.

    Only the pool gives up if its bytes are not taken for some seconds. Workers must
    wait without limit, because a pool reads nothing while its caller learns.
    """
    if sock.family == getattr(socket, "AF_UNIX", None):
        # Only TCP's buffer grows by itself.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_BUFFER)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": _IDLE,
        "TCP_KEEPINTVL": _INTERVAL,
        "TCP_KEEPCNT": _PROBES,
    }
    if is_pool:
        options["TCP_USER_TIMEOUT"] = int(1000 * _UNANSWERED)
    for name, value in options.items():
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def dial(address: Address) -> socket.socket:
    """Connects to a pool; sends nothing yet."""
    if address.host.startswith(UNIX):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_TO_CONNECT)
        try:
            sock.connect(unix_name(address.host))
        except BaseException:
            sock.close()
            raise
    else:
        sock = socket.create_connection((address.host, address.port), _TO_CONNECT)
    keep_alive(sock, is_pool=False)
    sock.settimeout(None)
    return sock


def prove(sock: socket.socket, address: Address) -> tuple[socket.socket, bytes]:
    """Proves to a pool that this is its worker, and checks that it is the pool.

    Returns:
        The socket to use from now on, encrypted if the address has a certificate; and
        the bytes exchanged, for `Token.seal` if it is not.

    Raises:
        ConnectionError: The pool does not know the token, or is a different one.
    """
    sock.settimeout(_TO_CONNECT)
    if address.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The address came by the same trusted way as the token, and contains the hash
        # of the right certificate, so no authority is needed.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        sock = context.wrap_socket(sock)
        shown = sock.getpeercert(binary_form=True) or b""
        if hashlib.sha256(shown).digest() != address.certificate:
            raise ConnectionError("The pool shows another certificate than its own.")
    proof = address.token.proof(os.urandom(_NONCE))
    sock.sendall(proof)
    answer = b""
    while len(answer) < ANSWER_SIZE:
        data = sock.recv(ANSWER_SIZE - len(answer))
        if not data:
            raise ConnectionError(
                "The pool does not let this worker in: its token was used already, or "
                "is another pool's, or the two envkits have different versions."
            )
        answer += data
    if not address.token.is_answer(answer, proof):
        raise ConnectionError("What answers is not the pool, which knows the token.")
    sock.settimeout(None)
    return sock, proof + answer


class Link:
    """One end of a connection between a pool and a worker.

    Calls block at the worker's end and never at the pool's: there `fill` returns False,
    and `push` sends the bytes for which `send` found no room.

    Attributes:
        is_tls: Whether it is encrypted.
        fault: Why nothing can be sent any more.

    Example:
        >>> here, there = map(Link, socket.socketpair())
        >>> here.send([b"four", b"ty"])
        >>> memory = bytearray(4), bytearray(2)
        >>> there.want(*memory)
        >>> there.fill(), memory
        (True, (bytearray(b'four'), bytearray(b'ty')))
        >>> here.close(), there.close()
        (None, None)
    """

    def __init__(self, sock: socket.socket, seal: Seal | None = None) -> None:
        """Takes over a connected socket.

        Args:
            sock: The socket, which may be encrypted.
            seal: The seal of its frames; `None` for bare frames.
        """
        self._sock = sock
        self._seal = seal
        self._head_size = HEAD.size if seal is None else len(seal.head)
        self._is_blocking = sock.gettimeout() is None
        self.is_tls = isinstance(sock, ssl.SSLSocket)
        self._wanted: deque[memoryview] = deque()
        self._spare = memoryview(bytearray(_SPARE))
        # The range of bytes in it that were read but not wanted yet.
        self._begin = self._end = 0
        self._is_drained = False
        # The expected frame, and how many bytes of it have arrived.
        self._expected: Frame | None = None
        self._got = 0
        self._called_at = 1
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        self._outbox = bytearray()
        self.fault = ""

    def fileno(self) -> int:
        """Returns the descriptor to wait on, -1 once the link is closed."""
        return self._sock.fileno()

    # Reading.

    def want(self, *memory: Any) -> None:
        """Sets the memory to read the next bytes into."""
        # Hot: called a few times per frame.
        views = [
            view
            for part in memory
            if (view := part if type(part) is memoryview else memoryview(part)).nbytes
        ]
        self._wanted += views if self._seal is None else self._seal.want(views)

    def expect(self, frame: Frame | None) -> None:
        """Sets the memory for the frame that probably comes next; `None` for no guess.

        If bytes have been read already, no frame is expected.
        """
        # Hot: called once per worker and batch step.
        wanted, seal = self._wanted, self._seal
        is_amid = self._begin < self._end or (
            wanted and len(wanted[0]) != self._head_size
        )
        if is_amid or self.is_tls:
            frame = None
        elif frame is not None and seal is not None:
            frame = seal.expected(frame)
        self._expected = frame
        self._got = 0

    @property
    def expects(self) -> bool:
        """Whether to call `fetch` instead of `fill`."""
        return self._expected is not None

    def fetch(self) -> bool:
        """Reads the expected frame; returns True if it is complete.

        If a different frame or size arrives, no frame is expected any more, and `fill`
        returns the bytes.

        Raises:
            EOFError: The link has ended.
            FrameError: The bytes were changed on the way.
        """
        # Hot: called once per worker and batch step.
        frame, got, head_size = self._expected, self._got, self._head_size
        assert frame is not None
        while True:
            parts = _without(frame.parts, got) if got else frame.parts
            flags = socket.MSG_WAITALL if self._is_blocking and got >= head_size else 0
            try:
                count = self._sock.recvmsg_into(parts, 0, flags)[0]
            except BlockingIOError:
                return False
            except OSError as error:
                raise EOFError(error.strerror or str(error)) from error
            if not count:
                raise EOFError("the other end has closed it")
            before, got = got, got + count
            if before < head_size <= got and frame.parts[0][: HEAD.size] != frame.head:
                self._keep(frame, got)
                return False
            if got == frame.size:
                self._expected = None
                self._call_at(1)
                if self._seal is not None:
                    self._seal.check_expected(frame)
                return True
            self._got = got
            if not self._is_blocking:
                # A short read: the socket is empty.
                if got >= head_size:
                    self._call_at(frame.size - got)
                return False

    def _call_at(self, size: int) -> None:
        """Makes the link readable only when `size` bytes have arrived, or it has ended.

        Waking up for each piece of a frame would take longer than reading it. Call this
        only after the head of a frame: nothing else is sure to come.
        """
        # Hot: called once per worker and batch step.
        if _CALLS_LATE and size != self._called_at:
            self._called_at = size
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _keep(self, frame: Frame, count: int) -> None:
        """Keeps bytes that arrived instead of the expected frame."""
        self._expected = None
        self._call_at(1)
        data = b"".join(frame.parts)[:count]
        if count > len(self._spare):
            self._spare = memoryview(bytearray(count))
        self._spare[:count] = data
        self._begin, self._end = 0, count

    @property
    def has_some(self) -> bool:
        """Whether bytes were read or decrypted before anyone wanted them."""
        # Hot: called once per frame.
        return self._begin < self._end or (
            self.is_tls and self._sock.pending() > 0  # type: ignore[attr-defined]
        )

    def is_readable(self) -> bool:
        """Returns True if bytes have arrived, or the link has ended."""
        # Hot: called again and again while a worker lingers.
        return bool(self._poller.poll(0))

    def fill(self) -> bool:
        """Reads into the wanted memory; returns True once it is full.

        Raises:
            EOFError: The link has ended.
            FrameError: The bytes were changed on the way.
        """
        # Hot: called a few times per frame.
        wanted = self._wanted
        while wanted:
            if self._begin < self._end:
                part = wanted[0]
                stop = min(self._end, self._begin + len(part))
                count = stop - self._begin
                part[:count] = self._spare[self._begin : stop]
                self._begin = stop
                self._take_off(count)
            elif self._is_drained:
                self._is_drained = False
                return False
            elif not self._read():
                return False
        if self._seal is not None:
            self._seal.check()
        return True

    def _read(self) -> bool:
        wanted, spare = self._wanted, self._spare
        try:
            if self.is_tls:
                # TLS has no scattered read, so small pieces are read together.
                is_large = len(wanted[0]) >= _SPARE
                room = len(wanted[0] if is_large else spare)
                count = self._sock.recv_into(wanted[0] if is_large else spare)
                if not is_large:
                    self._begin, self._end = 0, count
                    if count:
                        return True
            else:
                pieces = (
                    [*wanted]
                    if len(wanted) < _MOST_PIECES
                    else [*wanted][:_MOST_PIECES]
                )
                room = sum(map(len, pieces)) + _SPARE
                count = self._sock.recvmsg_into([*pieces, spare])[0]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except ssl.SSLError as error:
            raise EOFError(
                f"what came over it is not what was sent: {error.reason or error}"
            ) from error
        except OSError as error:
            raise EOFError(error.strerror or str(error)) from error
        if not count:
            raise EOFError("the other end has closed it")
        # A short read: the socket is empty.
        self._is_drained = count < room and not self._is_blocking and not self.is_tls
        self._begin, self._end = 0, self._take_off(count)
        return True

    def _take_off(self, count: int) -> int:
        """Records that the first bytes of the wanted memory have arrived.

        Returns:
            How many more bytes arrived.
        """
        wanted = self._wanted
        while count and wanted:
            part = wanted[0]
            if count < len(part):
                wanted[0] = part[count:]
                return 0
            count -= len(part)
            wanted.popleft()
        return count

    # Writing.

    @property
    def unsent(self) -> bool:
        """Whether some bytes are still unsent."""
        return bool(self._outbox)

    def send(self, parts: Sequence[Any], size: int = 0) -> None:
        """Sends bytes, and keeps those that the socket has no room for.

        If the link has ended, nothing is sent; reading it then reveals the end.

        Args:
            parts: The bytes.
            size: Their number, if known.
        """
        # Hot: called once per frame.
        if self.fault:
            return
        if self._seal is not None:
            parts, size = self._seal.sealed(parts), 0
        if self._outbox:
            for part in parts:
                self._outbox += part
            self.push()
            return
        try:
            if self.is_tls:
                parts = [b"".join(parts)]
            count = self._send_some(parts)
            # Without a size, `size` is 0, and so is `count` if there was no room.
            if size and count == size:
                return
            missing = (size or sum(map(len, parts))) - count
            while missing and self._is_blocking:
                parts = _without(parts, count)
                count = self._send_some(parts)
                missing -= count
        except OSError as error:
            self.fault = error.strerror or str(error)
            return
        if missing:
            for part in _without(parts, count):
                self._outbox += part

    def push(self, patience: float = 0.0) -> None:
        """Sends unsent bytes while there is room, for at most `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._outbox and not self.fault:
            try:
                with memoryview(self._outbox) as rest, rest[:_AT_ONCE] as part:
                    count = self._send_some([part])
            except OSError as error:
                self.fault = error.strerror or str(error)
                self._outbox.clear()
                return
            del self._outbox[:count]
            left = deadline - time.monotonic()
            if left <= 0 or not (count or self._has_room(left)):
                return

    def _has_room(self, patience: float) -> bool:
        poller = select.poll()
        poller.register(self._sock, select.POLLOUT)
        return bool(poller.poll(1000 * patience))

    def _send_some(self, parts: Sequence[Any]) -> int:
        try:
            if self.is_tls:
                # TLS must retry a failed send with at least as many bytes, and `push`
                # retries with this many.
                return self._sock.send(memoryview(parts[0])[:_AT_ONCE])
            if len(parts) > _MOST_PIECES:
                parts = parts[:_MOST_PIECES]
            return self._sock.sendmsg(parts)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    # The end.

    def shut(self) -> None:
        """Ends the link for both sides; bytes that have arrived remain readable."""
        # The shutdown of an encrypted socket would wait for the other side.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes this end. If a fork holds it too, the link stays open."""
        self._sock.close()
        self._wanted.clear()
        self._outbox.clear()


def _without(parts: Sequence[Any], count: int) -> list[Any]:
    """Returns the parts without their first `count` bytes."""
    left: list[Any] = []
    for part in parts:
        if count >= len(part):
            count -= len(part)
        else:
            left.append(memoryview(part)[count:])
            count = 0
    return left
