"""Pools whose workers may be on other machines; here they are on this one."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    ParallelPyEnvironment,
    RestartPolicy,
    make,
)
from envkit.distributed import links as linked_module
from envkit.distributed import listener as module
from envkit.distributed import worker_host as host
from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.link import ANSWER_SIZE, PROOF_SIZE, Address, Token
from envkit.distributed.links import LinkedBackend, linked
from envkit.errors import ConstructorError, WorkerCrashed, WorkerTimeout
from envkit.parallel.messages import ExitReport, WorkerJob
from envkit.parallel.system.lifeline import MARK
from tests.parallel import streams
from tests.parallel.environments import Screens, Walk, WritesActions
from tests.parallel.trouble import (
    Troubled,
    complain_with_a_program,
    exits,
    plan,
    raises,
    signalled,
    start_helper,
)
from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

COMMAND = "envkit worker {address}"
HOST = socket.gethostname()


def pool_of(makers, *, kind=ParallelPyEnvironment, workers=1, backend=None, **options):
    backend = backend or linked([COMMAND] * workers)
    return kind(makers, backend=backend, start_serially=False, **options)


def troubled(count):
    return [functools.partial(Troubled, env) for env in range(count)]


class Through(CommandLauncher):
    """Has workers dial a go-between that can cut their links, or swallow everything.

    It can also carry slowly what goes to workers.
    """

    def __init__(self, commands):
        super().__init__(commands)
        self.links, self.done = {}, []
        self.swallows = self.is_slow = self.cuts_answers = False
        self.carried = 0

    def start(self, worker, address):
        address = Address.parse(address)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        threading.Thread(
            target=self._join, args=(worker, listener, address), daemon=True
        ).start()
        super().start(worker, str(address._replace(port=port)))

    def _join(self, worker, listener, address):
        with listener:
            listener.settimeout(PATIENCE)
            theirs, _ = listener.accept()
            theirs.settimeout(None)
        ours = socket.create_connection((address.host, address.port))
        self.links[worker] = theirs, ours
        for down, pair in ((False, (theirs, ours)), (True, (ours, theirs))):
            threading.Thread(
                target=self._carry, args=(down, *pair), daemon=True
            ).start()

    def _carry(self, down, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if down and self.is_slow:
                    self.carried += len(data)
                    time.sleep(0.02)
                if self.cuts_answers and not down:
                    break
                if not self.swallows:
                    sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.done.append(source)
        if source in self.done and sink in self.done:
            source.close()
            sink.close()

    def cut(self, *workers):
        for pair in [self.links[worker] for worker in workers or self.links]:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


# Rows.


def test_a_linked_pool_equals_a_local_pool_in_every_order():
    began = time.monotonic()
    with (
        pool_of([Walk] * 5, workers=2) as env,
        ParallelPyEnvironment([Walk] * 5, backend="inline") as other,
    ):
        for order in AutoReset:
            expected, actual = streams.played(other, order), streams.played(env, order)

            assert str(expected) == str(actual)

        workers = env.statistics().workers
        assert other.statistics().steps == sum(worker.steps for worker in workers)
        # No worker has worked and waited for longer than there was.
        longest = max(worker.stepping + worker.waiting for worker in workers)
        assert 0.0 < longest < time.monotonic() - began
        assert [HOST] * 2 == [worker.host for worker in env.workers]


@pytest.mark.parametrize("order", AutoReset)
def test_overwritten_pictures_of_a_batch_arrive_unchanged(order):
    def seen(backend):
        with pool_of([functools.partial(Screens, 3)], backend=backend) as env:
            env.autoreset = order
            env.seed(3)
            shown = [env.reset()]
            for _ in range(20):
                ended = shown[-1].is_last()
                if order is AutoReset.DISABLED and ended.any():
                    shown.append(env.reset(ended))
                else:
                    shown.append(env.step(np.ones((3, 2), np.float32)))
            return shown

    assert [] == streams.differences(seen("inline"), seen(linked([COMMAND])))


def test_make_with_links_equals_make_inline():
    def seen(backend):
        with make("CartPole", num_envs=4, backend=backend) as env:
            env.seed(3)
            return str([env.reset(), *(env.step([0] * 4) for _ in range(20))])

    assert seen(linked([COMMAND] * 2)) == seen("inline")


def test_states_calls_and_failures_cross_links():
    with pool_of(troubled(3), workers=2) as env:
        first = env.reset()
        token = env.get_state()
        step = env.step([1, 2, 3])
        env.set_state(token)
        again = env.step([1, 2, 3])
        plan(env, 1, "step", raises(KeyError, "gone"))
        with pytest.raises(KeyError) as caught:
            env.step([0, 0, 0])

        assert (1,) == caught.value.envs
        assert [] == streams.differences(step.observation, again.observation)
        assert first.is_first().all()
        assert [0, 1, 2] == list(env.access("env_id"))
        # After it has raised, the row begins anew.
        assert env.reset().is_first().all()


def test_an_asynchronous_pool_returns_each_row_when_it_is_ready():
    with pool_of(troubled(4), kind=AsyncParallelPyEnvironment, workers=2) as env:
        env.reset_async()
        seen, count = dict.fromkeys(range(4), 0), 0
        # One worker may have no processor for a while, and the other answers alone.
        while min(seen.values()) <= 5:
            batch = env.recv(count=2)
            for row in batch.env_ids.tolist():
                seen[row] += 1
            env.send(batch.env_ids, batch.env_ids)
            count += 2

        assert count == sum(seen.values())


def test_rows_larger_than_a_socket_buffer_are_sent_both_ways():
    from envkit import ArraySpec
    from tests.parallel.environments import Repeating

    spec = {"picture": ArraySpec((700, 1000), np.float32), "n": ArraySpec((), np.int64)}
    zero = {"picture": np.zeros((700, 1000), np.float32), "n": np.array(0)}
    rng = np.random.default_rng(1)
    makers = [functools.partial(Repeating, spec, zero)] * 3
    with pool_of(makers, workers=2) as env:
        env.reset()
        for step in range(3):
            action = {
                "picture": rng.random((3, 700, 1000), np.float32),
                "n": np.array([step] * 3),
            }

            assert [] == streams.differences(action, env.step(action).observation)


# Ends.


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (exits(3), "exited with code 3"),
        (signalled(signal.SIGSEGV), "was killed by SIGSEGV"),
    ],
)
def test_the_error_names_the_machine_of_a_lost_worker(end, text):
    with pool_of(troubled(2), workers=2) as env:
        env.reset()
        pid = env.workers[1].pid
        plan(env, 1, "step", end)
        with pytest.raises(WorkerCrashed) as caught:
            env.step([0, 0])

        error = caught.value
        expected = f"worker 1 (pid {pid} on {HOST}) {text} while env 1 was in step()"
        assert str(error).startswith(expected)
        assert (pid, HOST) == (error.pid, error.host)


def test_output_appended_to_standard_error_is_not_overwritten():
    with pool_of(troubled(1)) as env:
        env.reset()
        env.call("do", complain_with_a_program)
        plan(env, 0, "step", exits(3))
        with pytest.raises(WorkerCrashed) as caught:
            env.step([0])
    assert caught.value.stderr_tail == "first\nsecond\nthird"


def kill_with_children(pid):
    """Ends a process as Ray ends an actor: its children first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(pid, signal.SIGSTOP)
    for each in [*map(int, children), pid]:
        os.kill(each, signal.SIGKILL)


@pytest.mark.parametrize(
    "end", ["the pool", "the worker", "what started it", "that and its children"]
)
def test_helpers_in_their_own_session_end_with_a_remote_worker(end):
    # As on another machine: what the pool has told its command is not there.
    words = ["env", "-u", MARK, sys.executable, "-m", "envkit", "worker", "{address}"]
    with pool_of(troubled(1), backend=linked([words])) as env:
        env.reset()
        ((helper, host),) = env.call("do", start_helper)
        was_running = is_running(helper)
        if end == "that and its children":
            kill_with_children(host)
        elif end != "the pool":
            worker = env.workers[0].pid
            os.kill(worker if end == "the worker" else host, signal.SIGKILL)
        if end != "the pool":
            ended = until(lambda: not is_running(helper), PATIENCE)
    if end == "the pool":
        ended = until(lambda: not is_running(helper), PATIENCE)
    if not ended:
        os.kill(helper, signal.SIGKILL)

    assert (True, True) == (was_running, ended)


def test_a_worker_that_is_lost_ends_episodes_as_truncations_and_is_replaced():
    launcher = Through([COMMAND] * 2)
    with pool_of(
        troubled(4),
        backend=LinkedBackend(launcher),
        on_worker_failure=RestartPolicy(max_restarts=9, backoff=0.0),
        step_timeout=30.0,
    ) as env:
        env.reset()

        def end_worker():
            os.kill(env.workers[0].pid, signal.SIGKILL)

        for lose in (end_worker, launcher.cut):
            env.step([0] * 4)
            lose()
            # What has happened is found at the latest when it is waited for.
            lost = until(
                lambda: (
                    step if (step := env.step([0] * 4)) and env.repaired.any() else None
                )
            )
            rows = env.repaired

            assert (lost.step_type[rows] == 2).all()
            assert (lost.reward[rows] == 0).all()
            assert (lost.discount[rows] == 1).all()
            assert (env.step([0] * 4).step_type[rows] == 0).all()


def test_a_cut_link_is_reported():
    launcher = Through([COMMAND])
    with pool_of(troubled(1), backend=LinkedBackend(launcher)) as env:
        env.reset()
        pid = env.workers[0].pid
        launcher.cut()
        with pytest.raises(WorkerCrashed) as caught:
            until(lambda: env.step([0]) is None)

        text = str(caught.value)
        assert f"worker 0 (pid {pid} on {HOST}) lost its link" in text
        assert f"whether that machine is up, and look for process {pid} in" in text
        assert until(lambda: not is_running(pid))


def test_a_cut_link_is_reported_though_the_worker_has_ended_by_itself():
    """And what looks after it, as a busy machine may have it, has seen no cut."""
    launcher = Through([COMMAND])
    with pool_of(troubled(1), backend=LinkedBackend(launcher)) as env:
        env.reset()
        (host,) = env.call("do", os.getppid)
        pid = env.workers[0].pid
        os.kill(host, signal.SIGSTOP)
        launcher.cut()
        has_ended = until(lambda: not is_running(pid))
        os.kill(host, signal.SIGCONT)
        with pytest.raises(WorkerCrashed, match="lost its link"):
            env.step([0])

    assert has_ended


def test_a_host_that_stops_answering_times_out():
    launcher = Through([COMMAND])
    with pool_of(troubled(1), backend=LinkedBackend(launcher), step_timeout=1.0) as env:
        env.reset()
        pid = env.workers[0].pid
        launcher.swallows = True
        with pytest.raises(WorkerTimeout) as caught:
            env.step([0])

        assert f"worker 0 (pid {pid} on {HOST}) did not answer" in str(caught.value)
        assert until(lambda: not is_running(pid))


def test_an_action_whose_answer_is_lost_is_not_delivered_again(tmp_path):
    path = tmp_path / "actions"
    launcher = Through([COMMAND])
    with pool_of(
        [functools.partial(WritesActions, path)],
        backend=LinkedBackend(launcher),
        on_worker_failure=RestartPolicy(backoff=0.0),
    ) as env:
        env.reset()
        env.step([1])
        launcher.cuts_answers = True
        last = env.step([2])
        launcher.cuts_answers = False
        assert last.is_last()
        assert [loss.kind for loss in env.losses()] == ["link_lost"]
        env.step([3])  # It begins an episode.
        env.step([4])
    assert path.read_text("ascii").split() == ["1", "2", "4"]


class Lasting(Through):
    """Runs commands that do not end when their workers do."""

    lasts = True

    def ended(self, worker):
        return not self.lasts and super().ended(worker)


def test_others_continue_while_a_lost_worker_is_ending(monkeypatch):
    monkeypatch.setattr(linked_module, "_LAST_WORDS", 3600.0)
    launcher = Lasting([COMMAND] * 2)
    backend = LinkedBackend(launcher)
    with pool_of(
        troubled(2), kind=AsyncParallelPyEnvironment, workers=2, backend=backend
    ) as env:
        env.reset_async()
        env.recv()
        env.send([0, 0])
        env.recv()
        launcher.cut(0)
        until(lambda: not backend.wait_events(0.0) and backend._ending)
        env.send([0], env_ids=[0])
        for step in range(9):
            env.send([step], env_ids=[1])

            assert [1] == env.recv(count=1).env_ids.tolist()

        launcher.lasts = False
        with pytest.raises(WorkerCrashed) as caught:
            env.recv()

        assert 0 == caught.value.worker


def test_a_slow_link_does_not_block_other_workers():
    from envkit import ArraySpec
    from tests.parallel.environments import Repeating

    spec = ArraySpec((1 << 25,), np.uint8)
    zero = np.zeros(spec.shape, spec.dtype)
    launcher = Through([COMMAND])
    with pool_of(
        [functools.partial(Repeating, spec, zero)],
        backend=LinkedBackend(launcher),
        step_timeout=0.2,
        reset_timeout=60.0,
    ) as env:
        env.reset()
        # For the whole action it would take fifty times the timeout.
        launcher.is_slow = True
        with pytest.raises(WorkerTimeout):
            env.step(zero[None])

        assert launcher.carried < zero.nbytes


PROGRAM = """
    import os, sys
    from envkit import ParallelPyEnvironment
    from envkit.distributed.links import linked
    from tests.parallel.environments import Stubborn

    env = ParallelPyEnvironment(
        [Stubborn] * 2, backend=linked(["envkit worker {address}"] * 2),
        start_serially=False,
    )
    env.reset()
    print(*(worker.pid for worker in env.workers), flush=True)
    sys.stdin.read()
"""


def test_workers_end_when_their_pool_is_killed():
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        pids = [int(word) for word in program.stdout.readline().split()]
        program.kill()

    assert 2 == len(pids)
    assert until(lambda: not any(map(is_running, pids)))


# Starts.


def test_a_constructor_that_raises_names_the_machine():
    with pytest.raises(ConstructorError) as caught:
        pool_of([functools.partial(Troubled, 0, "constructor", raises(OSError, "no"))])

    assert "env_constructors[0] raised OSError: no in worker 0 (pid " in str(
        caught.value
    )
    assert f" on {HOST}).\n" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "text", "advice"),
    [
        (
            "sh -c 'echo the door is shut >&2; exit 7' {address}",
            "exited with code 7",
            "ended before the worker had connected, and no environment has run: read "
            "its output above",
        ),
        (
            "true {address}",
            "did not connect within 0.1 s after its command had ended",
            "whether its machine can reach this one at 127.0.0.1:",
        ),
    ],
)
def test_a_command_that_starts_no_worker_says_why(command, text, advice):
    with pytest.raises(WorkerCrashed) as caught:
        pool_of(troubled(1), backend=linked([command], connect_timeout=0.1))

    assert text in str(caught.value)
    assert ("the door is shut" in str(caught.value)) == ("exit 7" in command)
    assert advice in str(caught.value)


REFUSED = {
    "no list": (lambda: linked(COMMAND), "commands must be a list with one command"),
    "none": (lambda: linked([]), "commands must hold at least one command, got none."),
    "no address": (lambda: linked(["envkit worker"]), "commands[0] must contain {addr"),
    "no words": (lambda: linked([COMMAND, 7]), "commands[1] must be a command line or"),
    "no address at all": (lambda: Address.parse("box:1"), "The address of a pool must"),
    "no certificate": (
        lambda: linked([COMMAND], tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)),
        "tls must be an ssl.SSLContext for servers with a certificate loaded",
    ),
    "a Unix socket with a port": (
        lambda: linked([COMMAND], host="unix:", port=7600),
        "port must be left out where host is a Unix socket, which stays on this mach",
    ),
    "a Unix socket with TLS": (
        lambda: linked(
            [COMMAND], host="unix:/pool", tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ),
        "tls must be left out where host is a Unix socket, which stays on this machi",
    ),
    "a Unix socket somewhere": (
        lambda: linked([COMMAND], host="unix:pool"),
        "host must be 'unix:' and the absolute path of a socket, such as 'unix:/tmp/",
    ),
    "a Unix socket elsewhere": (
        lambda: linked([COMMAND], host="unix:", reach_as="box"),
        "reach_as must be 'unix:' and the absolute path of a socket, such as 'unix:/",
    ),
    "no Unix socket at all": (
        lambda: Address.parse("unix:///" + "0" * 64),
        "The address of a pool must",
    ),
    "more workers than commands": (
        lambda: pool_of(troubled(2), num_workers=2),
        "num_workers must be at most 1, as many as the backend has places for, got",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_options_are_refused(case):
    call, text = REFUSED[case]
    with pytest.raises((TypeError, ValueError, ssl.SSLError)) as caught:
        call()

    assert str(caught.value).startswith(text)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Returns a file with a certificate and its key."""
    path = tmp_path_factory.mktemp("tls") / "pool.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=pool", "-days", "9"]
    command += ["-keyout", str(path), "-out", str(path.with_suffix(".crt"))]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is not installed")
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


def test_links_are_encrypted_if_a_context_is_given(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    backend = linked([COMMAND], tls=context)
    with (
        pool_of([Walk] * 3, backend=backend) as env,
        ParallelPyEnvironment([Walk] * 3, backend="inline") as other,
    ):
        actions = np.zeros((3, 2), np.float32)
        expected = streams.play(other, [actions] * 9)

        assert [] == streams.differences(expected, streams.play(env, [actions] * 9))


# Unix sockets.


@pytest.mark.parametrize("place", ["a name", "a file", "a file that was left behind"])
def test_local_workers_connect_by_a_unix_socket(place, tmp_path):
    path = tmp_path / "pool"
    host = "unix:" if place == "a name" else f"unix:{path}"
    if "left" in place:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    with (
        pool_of(
            [Walk] * 3,
            workers=2,
            backend=linked([COMMAND] * 2, host=host),
            on_worker_failure=RestartPolicy(max_restarts=1, backoff=0.0),
        ) as env,
        ParallelPyEnvironment([Walk] * 3, backend="inline") as other,
    ):
        actions = np.zeros((3, 2), np.float32)
        expected = streams.play(other, [actions] * 9)

        assert [] == streams.differences(expected, streams.play(env, [actions] * 9))

        # For the one that comes in its place, the listener is there again.
        os.kill(env.workers[0].pid, signal.SIGKILL)
        until(lambda: env.step(actions) and env.statistics().restarts == 1)
        env.reset()

    assert not path.exists()


def test_only_this_user_reaches_the_file_of_a_unix_socket(tmp_path):
    path = tmp_path / "pool"
    backend = LinkedBackend(Nothing(), host=f"unix:{path}", reach_as="unix:/there")
    backend.start([WorkerJob(0, 0, (Walk,))])

    assert 0o600 == path.stat().st_mode & 0o777
    assert "unix:/there" == backend._launcher.address.host

    backend.close(0.0)

    assert not path.exists()


def test_unrelated_files_are_not_removed(tmp_path):
    path = tmp_path / "pool"
    path.write_text("a letter")
    backend = LinkedBackend(Nothing(), host=f"unix:{path}")

    with pytest.raises(OSError, match="in use"):
        backend.start([WorkerJob(0, 0, (Walk,))])
    backend.close(0.0)

    assert "a letter" == path.read_text()


# Strangers.


class Nothing:
    """A launcher that starts nothing; the test is the worker."""

    places = None

    def start(self, worker, address):
        self.address = Address.parse(address)

    def ended(self, worker):
        return False

    def report(self, worker):
        return ExitReport(worker, 0)

    def kill(self, worker):
        pass

    close = forget = lambda self: None


@contextlib.contextmanager
def awaiting_worker():
    """Yields a backend that waits for its worker, and the worker's address."""
    backend = LinkedBackend(Nothing())
    try:
        backend.start([WorkerJob(0, 0, (Walk,))])
        yield backend, backend._launcher.address
    finally:
        backend.close(0.0)


def said_to(backend, address, data):
    """Sends bytes as a stranger; returns what is answered until it is dropped."""
    with socket.create_connection((address.host, address.port)) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        sock.settimeout(0.01)
        heard = b""
        for _ in range(1000):
            assert not backend.wait_events(0.0)
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            heard += data
            if not data:
                break
        else:
            raise AssertionError("The stranger was not dropped.")
        return heard


def false_proofs(address):
    """Draws what is no proof: garbage, half of one, one with a broken byte."""
    proof = address.token.proof(b"n" * 16)
    other = Token.new().proof(b"n" * 16)
    broken = st.tuples(st.integers(0, PROOF_SIZE - 1), st.integers(1, 255)).map(
        lambda drawn: (
            proof[: drawn[0]]
            + bytes([proof[drawn[0]] ^ drawn[1]])
            + proof[drawn[0] + 1 :]
        )
    )
    half = st.integers(0, PROOF_SIZE - 1).map(lambda size: proof[:size])
    return st.one_of(st.binary(max_size=300), broken, half, st.just(other))


def test_strangers_are_dropped_and_change_nothing():
    with awaiting_worker() as (backend, address):

        @settings(max_examples=60)
        @given(data=false_proofs(address))
        def talk(data):
            assert b"" == said_to(backend, address, data)

        talk()
        proof = address.token.proof(b"m" * 16)
        with socket.create_connection((address.host, address.port)) as worker:
            worker.sendall(proof)
            until(
                lambda: (
                    not backend.wait_events(0.0) and backend._listener._socket is None
                )
            )
            answer = worker.recv(ANSWER_SIZE, socket.MSG_WAITALL)

            assert address.token.is_answer(answer, proof)
            # The token is used, and nothing is awaited: the door is shut.
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address.host, address.port))


def test_a_token_admits_a_worker_only_once():
    with awaiting_worker() as (backend, address):
        backend.start([WorkerJob(1, 1, (Walk,))])
        other = backend._launcher.address
        proof = address.token.proof(b"m" * 16)
        with socket.create_connection((address.host, address.port)) as worker:
            worker.sendall(proof)
            until(lambda: not backend.wait_events(0.0) and backend._workers[0].link)

            assert b"" == said_to(backend, other, proof)


def test_a_worker_is_admitted_before_its_process_starts(monkeypatch, in_thread):
    """A process that starts takes longer on a busy machine than a stranger is given."""
    with awaiting_worker() as (backend, address):
        is_shut = []

        def start(*_, **__):
            # The pool answers before it shuts the door.
            until(lambda: backend._listener._socket is None)
            is_shut.append(True)
            raise OSError("No process.")

        monkeypatch.setattr(host, "ChildInterpreter", start)
        ended = in_thread(host.run_worker, str(address))
        until(lambda: not backend.wait_events(0.0) and is_shut)
        with pytest.raises(OSError, match=r"No process\."):
            ended()

        assert [True] == is_shut


def test_silent_strangers_are_dropped_in_time(monkeypatch):
    with awaiting_worker() as (backend, address):
        silent = [
            socket.create_connection((address.host, address.port)) for _ in range(3)
        ]
        silent[0].sendall(address.token.proof(b"m" * 16)[:-1])
        until(
            lambda: (
                not backend.wait_events(0.0) and len(backend._listener._strangers) == 3
            )
        )
        monkeypatch.setattr(module, "_TO_PROVE", 0.0)
        until(lambda: not backend.wait_events(0.1) and not backend._listener._strangers)

        assert [b""] * 3 == [sock.recv(1) for sock in silent]
        for sock in silent:
            sock.close()


def test_a_worker_that_authenticated_while_the_pool_was_busy_is_admitted(monkeypatch):
    with (
        awaiting_worker() as (backend, address),
        socket.create_connection((address.host, address.port)) as worker,
    ):
        until(lambda: not backend.wait_events(0.0) and backend._listener._strangers)
        proof = address.token.proof(b"m" * 16)
        worker.sendall(proof)
        monkeypatch.setattr(module, "_TO_PROVE", 0.0)
        # It looks at the time before it reads.
        backend._next_glance = 0.0
        until(lambda: not backend.wait_events(0.0) and not backend._listener._strangers)

        assert backend._workers[0].link
        answer = worker.recv(ANSWER_SIZE, socket.MSG_WAITALL)
        assert address.token.is_answer(answer, proof)


def test_as_many_connections_may_wait_as_workers_are_expected(monkeypatch):
    """Workers that encrypt their links prove themselves once their process runs."""
    monkeypatch.setattr(module, "_MOST_STRANGERS", 2)
    monkeypatch.setattr(module, "_TO_PROVE", PATIENCE)
    with awaiting_worker() as (backend, address):
        backend.start([WorkerJob(index, index, (Walk,)) for index in (1, 2, 3)])
        place = (address.host, address.port)
        with contextlib.ExitStack() as connections:
            for _ in range(8):
                connections.enter_context(socket.create_connection(place))
                backend.wait_events(0.0)

            assert until(
                lambda: (
                    not backend.wait_events(0.0)
                    and len(backend._listener._strangers) == 2 + 4
                )
            )


def test_the_listener_is_local_by_default():
    with awaiting_worker() as (backend, address):
        assert "127.0.0.1" == address.host
        assert "127.0.0.1" == backend._listener._socket.getsockname()[0]
