"""`Link`: rows and messages over one stream socket, between machines.

Both ends read a body straight to where it belongs: `want` takes the memory, `fill`
reads into it. What one system call brings beyond that is kept for the next `want`.
In lockstep each frame is as the one before: `expect` takes the memory of all of it, and
`fetch` reads it with one system call. What turns out to be another frame is kept for
`want`, too.

A worker dials; the pool's side answers only if the worker knows its token. The token
itself does not travel:

```
worker  -> pool    magic, which token (8 bytes), nonce (16), HMAC(token, "worker" nonce)
pool    -> worker  magic, nonce (16), HMAC(token, "pool" both nonces)
```

What follows is encrypted, or each frame is sealed with keys that both ends derive from
the token and from these two messages.
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

# The arrays travel as they lie in memory, so the order of bytes is part of the magic.
_MAGIC = b"envkit\2" + (b"<" if sys.byteorder == "little" else b">")
_IDENT, _SECRET, _NONCE, _DIGEST = 8, 24, 16, 32
PROOF_SIZE = len(_MAGIC) + _IDENT + _NONCE + _DIGEST
ANSWER_SIZE = len(_MAGIC) + _NONCE + _DIGEST

# How the host of an address begins that is a Unix socket, and how much that holds.
UNIX, _UNIX_BUFFER = "unix:", 1 << 22
_SPARE = 1 << 16
_AT_ONCE = 1 << 20
# A system call takes 1,024 pieces.
_MOST_PIECES = 1000
# A host that vanishes is noticed after this many seconds, or 5 + 3 * 5 if nothing is on
# its way to it.
_UNANSWERED, _IDLE, _INTERVAL, _PROBES = 10.0, 5, 5, 3
_TO_CONNECT = 30.0
# Elsewhere a socket may never hold as much as it is to wait for.
_CALLS_LATE = sys.platform == "linux"


class Token(NamedTuple):
    """What proves that a connection comes from a worker that the pool has started.

    Attributes:
        ident: Which token it is, which may be known.
        secret: What only the pool and its worker know.
    """

    ident: bytes
    secret: bytes

    @classmethod
    def new(cls) -> Token:
        """Draws a token that was never used."""
        return cls(os.urandom(_IDENT), os.urandom(_SECRET))

    def digest(self, side: bytes, said: bytes) -> bytes:
        """Returns what only those can compute who know the secret."""
        return hmac.new(self.secret, side + said, hashlib.sha256).digest()

    def proof(self, nonce: bytes) -> bytes:
        """Returns what a worker says first."""
        return _MAGIC + self.ident + nonce + self.digest(b"worker", nonce)

    def answer(self, proof: bytes) -> bytes | None:
        """Returns what the pool answers to a proof, `None` if it proves nothing."""
        if not hmac.compare_digest(proof, self.proof(_nonce_of(proof))):
            return None
        return self._answer(proof, os.urandom(_NONCE))

    def is_answer(self, answer: bytes, proof: bytes) -> bool:
        """Returns whether only the pool can have said this to a proof."""
        return hmac.compare_digest(answer, self._answer(proof, _nonce_of(answer)))

    def _answer(self, proof: bytes, nonce: bytes) -> bytes:
        return _MAGIC + nonce + self.digest(b"pool", _nonce_of(proof) + nonce)

    def seal(self, greeting: bytes, *, is_pool: bool) -> Seal:
        """Returns what seals and checks the frames of one connection.

        Args:
            greeting: The proof and the answer that were exchanged there.
            is_pool: At which of the two ends.
        """
        sides = (b"frames of the worker", b"frames of the pool")
        worker, pool = (self.digest(side, greeting) for side in sides)
        return Seal(pool, worker) if is_pool else Seal(worker, pool)


def ident_of(proof: bytes) -> bytes:
    """Returns which token a proof is about."""
    return proof[len(_MAGIC) : len(_MAGIC) + _IDENT]


def _nonce_of(said: bytes) -> bytes:
    return said[-_NONCE - _DIGEST : -_DIGEST]


class Address(NamedTuple):
    """Where a worker finds its pool, and the token that it is let in with.

    Attributes:
        host: The pool's machine; or "unix:" and the path of a socket on this one, "@"
            and a name for one that Linux keeps without a file.
        port: Where the pool listens, 0 for a Unix socket.
        token: What the worker proves itself with.
        certificate: The SHA-256 of the certificate that the pool has to show, if the
            link is encrypted.

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
            ValueError: It is none.
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
    """Returns what the system calls a Unix socket: its path, or a name without one."""
    path = host[len(UNIX) :]
    return f"\0{path[1:]}" if path.startswith("@") else path


def keep_alive(sock: socket.socket, *, is_pool: bool) -> None:
    """Has the system notice that the other machine is out of reach.

    Only the pool gives up what is not taken for some seconds: it reads nothing while
    its caller learns, and workers wait for that as long as it takes.
    """
    if sock.family == getattr(socket, "AF_UNIX", None):
        # It grows with what is sent only for TCP.
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
    """Connects with a pool; nothing has been said then."""
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
    """Proves to a pool that this is its worker, and has it prove that it is the pool.

    Returns:
        The socket to use from now on, which is encrypted if the address says so; and
        what was said, for `Token.seal` if it is not encrypted.

    Raises:
        ConnectionError: The pool does not know the token, or is another one.
    """
    sock.settimeout(_TO_CONNECT)
    if address.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The address has come the way that the token has: it says which certificate is
        # the right one, and no authority has to.
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

    At the worker's end calls wait; at the pool's they never do: `fill` returns False,
    and what `send` cannot send at once is sent by `push`.

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
            seal: What seals each frame; `None` for frames as they are.
        """
        self._sock = sock
        self._seal = seal
        self._head_size = HEAD.size if seal is None else len(seal.head)
        self._is_blocking = sock.gettimeout() is None
        self.is_tls = isinstance(sock, ssl.SSLSocket)
        self._wanted: deque[memoryview] = deque()
        self._spare = memoryview(bytearray(_SPARE))
        # Where in it the bytes are that were read and not wanted yet.
        self._begin = self._end = 0
        self._is_drained = False
        # The frame that is expected, and how many bytes of it are there.
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
        """Takes the memory that the next bytes belong in."""
        # Hot: called a few times per frame.
        views = [
            view
            for part in memory
            if (view := part if type(part) is memoryview else memoryview(part)).nbytes
        ]
        self._wanted += views if self._seal is None else self._seal.want(views)

    def expect(self, frame: Frame | None) -> None:
        """Takes the memory of the frame that is likely to come next, `None` for none.

        Where something has been read already, none is expected.
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
        """Whether `fetch` is to be called, and not `fill`."""
        return self._expected is not None

    def fetch(self) -> bool:
        """Reads the frame that is expected; returns whether all of it is there.

        If it is another one, or one of another size, none is expected afterwards, and
        `fill` gives what was read.

        Raises:
            EOFError: The link has ended before.
            FrameError: What has come is not what the other end has sent.
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
                # Less than there was room for: the socket is empty.
                if got >= head_size:
                    self._call_at(frame.size - got)
                return False

    def _call_at(self, size: int) -> None:
        """Has the link be readable when so many bytes are there, or it has ended.

        To be woken for each piece of a frame would take longer than to read it. Only
        the rest of a frame whose head has been read is sure to come.
        """
        # Hot: called once per worker and batch step.
        if _CALLS_LATE and size != self._called_at:
            self._called_at = size
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _keep(self, frame: Frame, count: int) -> None:
        """Keeps bytes that have come in place of those that were expected."""
        self._expected = None
        self._call_at(1)
        data = b"".join(frame.parts)[:count]
        if count > len(self._spare):
            self._spare = memoryview(bytearray(count))
        self._spare[:count] = data
        self._begin, self._end = 0, count

    @property
    def has_some(self) -> bool:
        """Whether something has been read, or decrypted, that was not wanted yet."""
        # Hot: called once per frame.
        return self._begin < self._end or (
            self.is_tls and self._sock.pending() > 0  # type: ignore[attr-defined]
        )

    def is_readable(self) -> bool:
        """True if something has come, or the link has ended."""
        # Hot: called again and again while a worker lingers.
        return bool(self._poller.poll(0))

    def fill(self) -> bool:
        """Reads into what is wanted; returns whether all of it is there.

        Raises:
            EOFError: The link has ended before.
            FrameError: What has come is not what the other end has sent.
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
                # There is no scattered read. Small pieces are gathered.
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
        # Less than there was room for: the socket is empty.
        self._is_drained = count < room and not self._is_blocking and not self.is_tls
        self._begin, self._end = 0, self._take_off(count)
        return True

    def _take_off(self, count: int) -> int:
        """Notes that the first bytes of what is wanted are there.

        Returns:
            How many more there are.
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
        """Whether something is still on its way out."""
        return bool(self._outbox)

    def send(self, parts: Sequence[Any], size: int = 0) -> None:
        """Sends bytes, or keeps those for which there is no room.

        Where the link has ended, nothing is sent; that is found when it is read.

        Args:
            parts: The bytes.
            size: How many that are, if it is known.
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
            # With no size given and no room at all, both are 0.
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
        """Sends on what has not gone out, while there is room, for so many seconds."""
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
                # What finds no room has to be tried again with no fewer bytes, and
                # `push` tries so many.
                return self._sock.send(memoryview(parts[0])[:_AT_ONCE])
            if len(parts) > _MOST_PIECES:
                parts = parts[:_MOST_PIECES]
            return self._sock.sendmsg(parts)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    # The end.

    def shut(self) -> None:
        """Ends the link for both sides; what has come can still be read."""
        # That of an encrypted socket would wait for the other side.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes this end. Where a fork holds it too, the link goes on."""
        self._sock.close()
        self._wanted.clear()
        self._outbox.clear()


def _without(parts: Sequence[Any], count: int) -> list[Any]:
    """Returns what is left of some parts after their first bytes."""
    left: list[Any] = []
    for part in parts:
        if count >= len(part):
            count -= len(part)
        else:
            left.append(memoryview(part)[count:])
            count = 0
    return left
