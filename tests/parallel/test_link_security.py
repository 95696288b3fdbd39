"""What a go-between can do to the link between a pool and its worker: end it."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import socket
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment
from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.frames import HEAD, MESSAGE
from envkit.distributed.link import ANSWER_SIZE, PROOF_SIZE, Address
from envkit.distributed.links import LinkedBackend, linked
from envkit.distributed.seal import Seal
from envkit.errors import InsecureWarning, WorkerCrashed
from tests.parallel import streams
from tests.parallel.environments import Repeating, Walk
from tests.parallel.trouble import Troubled
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

COMMAND = "envkit worker {address}"
# Of a sealed frame: what comes before the body, and what comes after it.
BEFORE, AFTER = len(Seal(b"", b"").head), 32
EVERYWHERE = {"host": "0.0.0.0", "reach_as": "127.0.0.1"}


class Meddling(CommandLauncher):
    """Has a worker dial a go-between that lets the greeting pass, and edits frames.

    Attributes:
        edits: For each direction, what makes other bytes of a frame, once; it returns
            `None` for a frame that it lets pass.
        raw: Whether there are no frames that it could find, as in what is encrypted.
    """

    def __init__(self):
        super().__init__([COMMAND])
        self.edits = {"to the pool": None, "to the worker": None}
        self.addresses = []
        self.raw = False

    def start(self, worker, address):
        address = Address.parse(address)
        self.addresses.append(address)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        threading.Thread(
            target=self._join, args=(listener, address), daemon=True
        ).start()
        super().start(worker, str(address._replace(host="127.0.0.1", port=port)))

    def _join(self, listener, address):
        with listener:
            listener.settimeout(PATIENCE)
            worker, _ = listener.accept()
            worker.settimeout(None)
        pool = socket.create_connection((address.host, address.port))
        ways = {
            "to the pool": (worker, pool, PROOF_SIZE),
            "to the worker": (pool, worker, ANSWER_SIZE),
        }
        threads = [
            threading.Thread(target=self._carry, args=(way, *ways[way]), daemon=True)
            for way in ways
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        worker.close()
        pool.close()

    def _carry(self, way, source, sink, greeting):
        with contextlib.suppress(OSError, EOFError):
            if not self.raw:
                sink.sendall(read(source, greeting))
            while True:
                frame = source.recv(1 << 16) if self.raw else read_frame(source)
                if not frame:
                    break
                edit = self.edits[way]
                edited = None if edit is None else edit(frame)
                if edited is not None:
                    self.edits[way] = None
                for each in [frame] if edited is None else edited:
                    sink.sendall(each)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def read(source, size):
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_frame(source):
    head = read(source, BEFORE)
    length = HEAD.unpack_from(head)[-1]
    return head + read(source, length + AFTER)


def flipped(place, frame):
    index = place if place >= 0 else len(frame) + place
    changed = bytes([frame[index] ^ 1])
    return [frame[:index] + changed + frame[index + 1 :]]


class Code:
    """Makes a folder where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def forged(path, frame):
    """Puts a pickle before a frame, as it is where nothing seals it."""
    payload = pickle.dumps(Code(path))
    return [HEAD.pack(MESSAGE, 0, 0, 0, len(payload)), payload, frame]


def forged_and_sealed(path, frame):
    """Puts a pickle in the place of a frame, sealed with a key of its own."""
    payload = pickle.dumps(Code(path))
    seal = Seal(b"another key", b"")
    number = int.from_bytes(frame[HEAD.size : HEAD.size + 8], "little")
    for _ in range(number + 1):
        parts = seal.sealed([HEAD.pack(MESSAGE, 0, 0, 0, len(payload)), payload])
    return [*parts, frame]


def swapped_body(path, frame):
    """Keeps the sealed head of a message, and puts a pickle behind it."""
    kind, *_, length = HEAD.unpack_from(frame)
    payload = pickle.dumps(Code(path))
    if kind != MESSAGE:
        return None
    assert length > len(payload)
    return [frame[:BEFORE], payload.ljust(length, b"."), frame[-AFTER:]]


EDITS = {
    "a kind is flipped": functools.partial(flipped, 0),
    "a length is flipped": functools.partial(flipped, HEAD.size - 8),
    "a high byte of a length is flipped": functools.partial(flipped, HEAD.size - 2),
    "a number is flipped": functools.partial(flipped, HEAD.size),
    "a tag of a head is flipped": functools.partial(flipped, BEFORE - 1),
    "a body is flipped": functools.partial(flipped, BEFORE + 3),
    "a tag of a body is flipped": functools.partial(flipped, -1),
    "a frame comes twice": lambda frame: [frame, frame],
    "a frame is left out": lambda frame: [],
}
FORGERIES = {
    "in the clear": forged,
    "with another key": forged_and_sealed,
}


def lost(launcher, way, edit):
    """Edits a frame of a pool that steps; returns the error that it raises."""
    backend = LinkedBackend(launcher)
    makers = [functools.partial(Troubled, env) for env in range(2)]
    with AsyncParallelPyEnvironment(
        makers, num_workers=1, backend=backend, start_serially=False
    ) as env:
        env.reset_async()
        count = 0
        while count < 2:
            count += len(env.recv().env_ids)
        # Both rows are idle, so each is asked, and answers, in a frame of its own.
        launcher.edits[way] = edit
        with pytest.raises(WorkerCrashed) as caught:
            until(lambda: answers_of_both(env) is None)
    assert launcher.edits[way] is None
    return str(caught.value)


def answers_of_both(env):
    for row in range(2):
        env.send([0], env_ids=[row])
    return [env.recv(count=1) for _ in range(2)]


def assert_is_refused(text):
    assert "was changed, left out, repeated or added on its way" in text
    assert (
        "was cut off, because frame " in text
        or "This worker ends, because its link cannot be trusted: frame " in text
    )


WAYS = ["to the pool", "to the worker"]
# Both ends open a head with the same lines of code: each bit of one is flipped on the
# way to one of them, and on the other in `make test-all`.
OF_HEADS = [case for case in EDITS if "flipped" in case and "body" not in case]


@pytest.mark.parametrize(
    ("case", "way"),
    [
        pytest.param(
            case,
            way,
            marks=pytest.mark.heavy
            if case in OF_HEADS and OF_HEADS.index(case) % 2 == index
            else (),
        )
        for case in EDITS
        for index, way in enumerate(WAYS)
    ],
)
def test_frames_changed_by_a_man_in_the_middle_lose_the_worker(case, way):
    assert_is_refused(lost(Meddling(), way, EDITS[case]))


@pytest.mark.parametrize("way", ["to the pool", "to the worker"])
@pytest.mark.parametrize("case", FORGERIES)
def test_a_man_in_the_middle_cannot_run_code(case, way, tmp_path):
    path = tmp_path / "ran"
    text = lost(Meddling(), way, functools.partial(FORGERIES[case], str(path)))

    assert_is_refused(text)
    assert not path.exists()


@pytest.mark.parametrize("way", ["to the pool", "to the worker"])
def test_code_in_place_of_a_message_is_not_run(way, tmp_path):
    path, launcher = tmp_path / "ran", Meddling()
    makers = [functools.partial(Troubled, 0)]
    backend = LinkedBackend(launcher)
    with ParallelPyEnvironment(makers, backend=backend, start_serially=False) as env:
        env.reset()
        launcher.edits[way] = functools.partial(swapped_body, str(path))
        with pytest.raises(WorkerCrashed) as caught:
            env.call("do", functools.partial(str.upper, "much" * 1000))

    assert launcher.edits[way] is None
    assert_is_refused(str(caught.value))
    assert not path.exists()


def test_frames_cannot_be_sent_back_to_their_sender():
    launcher = Meddling()
    kept = []

    def keep(frame):
        kept.append(frame)
        return [frame]

    def send_back(frame):
        return [*kept, frame]

    backend = LinkedBackend(launcher)
    with ParallelPyEnvironment([Walk], backend=backend, start_serially=False) as env:
        launcher.edits["to the worker"] = keep
        env.reset()
        launcher.edits["to the pool"] = send_back
        with pytest.raises(WorkerCrashed) as caught:
            env.step(np.zeros((1, 2), np.float32))

    assert 1 == len(kept)
    assert_is_refused(str(caught.value))


def test_frames_of_a_lost_worker_cannot_be_replayed_to_the_next():
    """Each connection has keys of its own."""
    launcher = Meddling()
    kept = []

    def keep(frame):
        kept.append(frame)
        return [frame]

    for edit in (keep, lambda frame: [*kept]):
        backend = LinkedBackend(launcher)
        with ParallelPyEnvironment([Walk], backend=backend) as env:
            launcher.edits["to the worker"] = edit
            if edit is keep:
                env.reset()
            else:
                with pytest.raises(WorkerCrashed) as caught:
                    env.reset()
        launcher = Meddling()

    assert_is_refused(str(caught.value))


def test_rows_and_objects_are_sealed():
    from envkit import ArraySpec

    spec = {
        "picture": ArraySpec((300, 700), np.float32),
        "none": ArraySpec((0,), np.uint8),
        "n": ArraySpec((), np.int64),
    }
    zero = {name: np.zeros(each.shape, each.dtype) for name, each in spec.items()}
    rng = np.random.default_rng(1)
    makers = [functools.partial(Repeating, spec, zero)] * 3
    backend = linked([COMMAND] * 2)
    with ParallelPyEnvironment(makers, backend=backend, start_serially=False) as env:
        env.reset()
        for step in range(3):
            action = {
                "picture": rng.random((3, 300, 700), np.float32),
                "none": np.zeros((3, 0), np.uint8),
                "n": np.array([step] * 3),
            }

            assert [] == streams.differences(action, env.step(action).observation)


# TLS.


def has_openssl():
    with contextlib.suppress(OSError):
        return (
            subprocess.run(["openssl", "version"], capture_output=True).returncode == 0
        )
    return False


needs_openssl = pytest.mark.skipif(not has_openssl(), reason="there is no openssl")


def addresses_told(launcher, **options):
    """Plays a pool beside one in this process; returns what its worker was told."""
    backend = LinkedBackend(launcher, **options)
    with (
        ParallelPyEnvironment([Walk] * 3, backend=backend, num_workers=1) as env,
        ParallelPyEnvironment([Walk] * 3, backend="inline") as other,
    ):
        actions = [np.zeros((3, 2), np.float32)] * 9

        assert [] == streams.differences(
            streams.play(other, actions), streams.play(env, actions)
        )
    return launcher.addresses


def raw():
    launcher = Meddling()
    launcher.raw = True
    return launcher


def own_address():
    """Returns an address of this machine that is not of its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            # Nothing is sent.
            sock.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return sock.getsockname()[0]


@needs_openssl
@pytest.mark.parametrize("where", ["all addresses", "its own", "a tunnel", "if asked"])
def test_links_that_others_can_reach_are_encrypted(where):
    options = {
        "all addresses": EVERYWHERE,
        "its own": {"host": None},
        "a tunnel": {"host": "127.0.0.1", "reach_as": "box.example"},
        "if asked": {"tls": True},
    }[where]
    if where == "its own":
        options = {"host": own_address()}
    launcher = raw()
    if where == "a tunnel":
        # The go-between is the tunnel.
        launcher._join = functools.partial(dial_here, launcher._join)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (address,) = addresses_told(launcher, **options)

    assert "tls" == str(address).partition(":")[0]
    assert 32 == len(address.certificate)


def dial_here(join, listener, address):
    join(listener, address._replace(host="127.0.0.1"))


def test_links_on_this_machine_are_sealed_without_a_certificate():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (address,) = addresses_told(raw())

    assert b"" == address.certificate


@needs_openssl
@pytest.mark.parametrize("way", ["to the pool", "to the worker"])
def test_bytes_changed_under_tls_lose_the_worker(way):
    launcher = raw()
    backend = LinkedBackend(launcher, **EVERYWHERE)
    with ParallelPyEnvironment([Walk], backend=backend, start_serially=False) as env:
        env.reset()
        launcher.edits[way] = functools.partial(flipped, -1)
        with pytest.raises(WorkerCrashed, match="lost its link"):
            until(lambda: env.step(np.zeros((1, 2), np.float32)) is None)


@needs_openssl
def test_large_rows_are_sent_encrypted():
    from envkit import ArraySpec

    spec = ArraySpec((700, 1000), np.float32)
    makers = [functools.partial(Repeating, spec, np.zeros(spec.shape, spec.dtype))] * 2
    rng = np.random.default_rng(1)
    backend = linked([COMMAND] * 2, tls=True)
    with ParallelPyEnvironment(makers, backend=backend, start_serially=False) as env:
        env.reset()
        for _ in range(3):
            action = rng.random((2, 700, 1000), np.float32)

            assert [] == streams.differences(action, env.step(action).observation)


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=needs_openssl)])
def test_a_message_larger_than_a_socket_holds_arrives(tls):
    """Where there is no room at first, under TLS nothing of it goes out at once."""
    from envkit import ArraySpec

    spec = ArraySpec((1 << 25,), np.uint8)
    make = functools.partial(Repeating, spec, np.zeros(spec.shape, spec.dtype))
    backend = linked([COMMAND], tls=tls)
    with ParallelPyEnvironment([make], backend=backend, start_timeout=PATIENCE) as env:
        assert env.reset().is_first().all()


@needs_openssl
def test_a_worker_refuses_a_pool_with_another_certificate():
    class Swapping(Meddling):
        def start(self, worker, address):
            self.addresses.append(Address.parse(address))
            changed = self.addresses[-1]._replace(certificate=b"c" * 32)
            CommandLauncher.start(self, worker, str(changed))

    backend = LinkedBackend(Swapping(), **EVERYWHERE)
    with pytest.raises(WorkerCrashed, match="shows another certificate than its own"):
        ParallelPyEnvironment([Walk], backend=backend, start_serially=False)


# Links in the clear.


def test_asking_for_unencrypted_links_warns():
    text = (
        "The links of this pool between 0.0.0.0 and its workers are not encrypted: "
        "what goes over them cannot be changed unnoticed, but others can read it, as "
        "far as the network lets them. Leave out tls=False, and the pool makes a "
        "certificate of its own."
    )
    with pytest.warns(InsecureWarning) as caught:
        linked([COMMAND], tls=False, **EVERYWHERE)

    assert [text] == [str(each.message) for each in caught]
    assert __file__ == caught[0].filename


def test_unencrypted_links_are_sealed():
    with pytest.warns(InsecureWarning, match="are not encrypted"):
        backend = LinkedBackend(launcher := Meddling(), tls=False, **EVERYWHERE)
    with ParallelPyEnvironment([Walk], backend=backend, start_serially=False) as env:
        env.reset()
        launcher.edits["to the pool"] = functools.partial(flipped, -1)
        with pytest.raises(WorkerCrashed) as caught:
            env.step(np.zeros((1, 2), np.float32))

    assert_is_refused(str(caught.value))


def test_a_missing_certificate_causes_a_warning(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher = raw()
    with pytest.warns(
        InsecureWarning, match="because the openssl program is not installed"
    ) as caught:
        (address,) = addresses_told(launcher, **EVERYWHERE)

    assert 1 == len(caught)
    assert __file__ == caught[0].filename
    assert b"" == address.certificate


def test_requested_encryption_is_never_dropped(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = linked([COMMAND], tls=True)
    with pytest.raises(OSError, match="tls=True cannot be: the openssl program is not"):
        ParallelPyEnvironment([Walk], backend=backend, start_serially=False)


@pytest.mark.parametrize("tls", ["pool.pem", 1])
def test_contexts_that_do_not_encrypt_are_refused(tls):
    with pytest.raises(TypeError, match=r"^tls must be an ssl\.SSLContext for servers"):
        linked([COMMAND], tls=tls)
