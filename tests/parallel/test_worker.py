"""A worker's process, spoken to by hand: each message, each bell, each end."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import select
import sys

import numpy as np
import pytest

from envkit.parallel import serialize
from envkit.parallel.backends.launch import ForkLauncher, SpawnLauncher
from envkit.parallel.messages import (
    PROTOCOL_VERSION,
    Bind,
    Close,
    Hello,
    Packed,
    PackedJob,
    RemoteFailure,
    Reply,
    Request,
    RowsRaised,
    WorkerJob,
)
from envkit.parallel.opening import as_constructors
from envkit.parallel.options import PoolOptions
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import (
    AWAKE,
    BUSY_NS,
    RAISED,
    RESET,
    RUNS,
    STEP,
    STEPS,
    WAITING_NS,
    SlabLayout,
    slot_of,
)
from envkit.parallel.system.doorbell import MESSAGE, Doorbell
from envkit.parallel.system.shared_memory import KEEPS_ORDER, SharedBlock
from envkit.testing import CountingEnv, CrashingEnv
from tests import residue
from tests.parallel.environments import Hostile
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(
    not residue.ON_LINUX, reason="a pidfd tells that a process has ended"
)

in_order = pytest.mark.skipif(
    not KEEPS_ORDER, reason="elsewhere workers ring for every answer, and are rung for"
)

# What environments of tests are made of in a worker: a module of its own, that a
# worker finds where its parent does.
NOTED = """
import numpy as np
from envkit import PyEnvironment, restart, transition
from envkit.specs import ArraySpec

def boxed(value):
    box = np.empty((), object)
    box[()] = value
    return box

class Noted(PyEnvironment):
    def observation_spec(self):
        return ArraySpec((), object)
    def action_spec(self):
        return ArraySpec((), object)
    def _reset(self):
        return restart(boxed(["begin"]))
    def _step(self, action):
        return transition(boxed([action, "seen"]), reward=1.0)
"""


class Peer:
    """The parent of one worker, without a pool."""

    def __init__(
        self,
        *makers,
        launcher=ForkLauncher,
        rings_each_row=False,
        setup=None,
        protocol=None,
    ):
        options = PoolOptions(rings_each_row=rings_each_row)
        job = WorkerJob(1, 2, (), options=options)
        payloads = tuple(
            serialize.dump_constructor(maker, 2 + index)
            for index, maker in enumerate(as_constructors(makers, "Peer"))
        )
        packed = PackedJob(job, payloads, setup)
        if protocol is not None:
            packed = packed._replace(protocol=protocol)
        self.process = launcher({}).start()
        self.process.channel.send(packed)
        self.hello = self.receive()
        if isinstance(self.hello, Packed):
            self.hello = serialize.load_value(self.hello.payload)
        self.bell = self.done = self.block = self.slab = None

    def receive(self):
        return self.process.channel.receive(PATIENCE, life=self.process.life_fd)

    def bind(self, lingers=False):
        """Lays two rows of another worker before those of this one."""
        rows = len(self.hello.specs)
        layout = SlabLayout(self.hello.specs[0], ((0, 2), (2, 2 + rows)))
        self.block = SharedBlock.create(layout.size)
        self.slab = Slab(layout, self.block.buffer)
        self.bell, self.done = Doorbell.create(blocking=True), Doorbell.create()
        fds = (self.block.fd, *self.bell.fds, *self.done.fds)
        bind = Packed(serialize.dump_value(Bind(layout, lingers, fds=len(fds))))
        self.process.channel.send(bind, fds)
        return self

    def run(self, command, rows=(2,)):
        """Rings for rows and waits until the worker has rung as often as it must."""
        self.slab.request(np.array(rows), command)
        self.bell.ring()
        marks = self.slab.numbers ^ self.slab.answers
        while (marks[list(rows)] > RAISED).any():
            self.listen()
            marks = self.slab.numbers ^ self.slab.answers
        return [self.answer(row) for row in rows]

    def listen(self):
        life = self.process.life_fd
        ready, _, _ = select.select([self.done, life], [], [], PATIENCE)
        assert ready, "the worker neither rings nor ends"
        assert life not in ready, "the worker has ended"
        return self.done.drain()

    def answer(self, row):
        if self.slab.answers[row] & RAISED:
            return "raised"
        slot = slot_of(int(self.slab.numbers[row]))
        observation = self.slab.columns(slot)[3][row]  # None if it came by message
        return int(self.slab.columns(slot)[0][row]), np.asarray(observation).tolist()

    def ask(self, method, *arguments, envs=(2,)):
        payload = serialize.dump_value(arguments, "An argument")
        self.bell.ring(MESSAGE)
        self.process.channel.send(Request(5, method, envs, payload))
        reply = self.receive()
        assert (Reply, 5) == (type(reply), reply.number)
        return [
            result
            if isinstance(result, RemoteFailure)
            else serialize.load_value(result)
            for result in reply.results
        ]

    def ended(self):
        """Waits until the process has ended, and reports how."""
        assert select.select([self.process.life_fd], [], [], PATIENCE)[0]
        assert self.process.has_ended()
        return self.process.report(1)

    def close(self):
        """Tells the worker to end; harmless when repeated."""
        if self.process.life_fd < 0:
            return
        with contextlib.suppress(OSError, ValueError):
            if self.bell is not None:
                self.bell.ring(MESSAGE)
            self.process.channel.send(Close(), life=self.process.life_fd)
        self.report = self.ended()
        self.process.close()
        for thing in (self.bell, self.done, self.block):
            if thing is not None:
                thing.close()


@contextlib.contextmanager
def worker(*makers, **options):
    peer = Peer(*makers, **options)
    try:
        yield peer
    finally:
        peer.close()


def test_a_worker_builds_answers_and_ends(monkeypatch):
    """One process, from its first message to its last."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with worker(CountingEnv, CountingEnv, launcher=SpawnLauncher) as peer:
        peer.bind()
        reset = peer.run(RESET, rows=(2, 3))
        step = peer.run(STEP, rows=(3,))
        meters = np.array(peer.slab.counters(1))
        rest = peer.slab.counters(0).tolist()
        info, picture = peer.ask("render", "rgb_array", "rgb_array", envs=(2, 3))
        again = peer.run(STEP, rows=(2, 3))
        peer.close()

    assert isinstance(peer.hello, Hello)
    assert (peer.process.pid, 2) == (peer.hello.pid, len(peer.hello.specs))
    assert [(0, 0), (0, 0)] == reset
    assert [(1, 1)] == step
    assert [(1, 1), (1, 2)] == again
    assert (8, 8, 3) == picture.shape == info.shape
    # Two rows, then one; each time it woke up once.
    assert (3, 2) == (meters[STEPS], meters[RUNS])
    assert meters[BUSY_NS] > 0
    assert meters[WAITING_NS] > 0
    assert not any(rest)
    assert (0, None, "") == (
        peer.report.exitcode,
        peer.report.signal,
        peer.report.stderr_tail,
    )


def test_a_worker_rings_once_for_all_its_rows():
    with worker(*[CountingEnv] * 3) as peer:
        peer.bind()
        peer.run(RESET, rows=(2, 3, 4))
        peer.ask("access", ("batched",))  # By then it has rung for the rows.
        rings = peer.done.drain()
        assert rings in (0, 1)
        assert 1 == peer.slab.counter(RUNS)[1]


@in_order
def test_only_the_last_worker_rings_if_all_rows_are_awaited():
    with worker(CountingEnv) as peer:
        peer.bind()
        peer.slab.wait_for(owing=0)
        peer.slab.request(np.array([0, 2]), RESET)
        peer.bell.ring()
        assert until(lambda: peer.slab.answers[2] == peer.slab.numbers[2])
        peer.ask("access", ("batched",))  # By then it would have rung.
        rings = peer.done.drain()
        peer.slab.commit(0)  # As another worker does.

        assert 0 == rings
        assert [(1, 1)] == peer.run(STEP)


class Held(CountingEnv):
    """Takes a step when there is a byte in a pipe."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def _step(self, action):
        pipe = os.open(self.path, os.O_RDWR)  # It waits for no other end.
        os.read(pipe, 1)
        os.close(pipe)
        return super()._step(action)


@in_order
@pytest.mark.parametrize("lingers", [False, True])
def test_an_awake_worker_needs_no_ring(tmp_path, lingers):
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    with worker(functools.partial(Held, tmp_path / "pipe"), CountingEnv) as peer:
        peer.bind(lingers)
        meters = peer.slab.counters(1)
        peer.run(RESET, rows=(2, 3))
        peer.slab.request(np.array([2]), STEP)
        peer.bell.ring()
        # Asked for a step that does not end yet, it is awake, or is going to be.
        assert until(lambda: meters[AWAKE])
        peer.slab.request(np.array([3]), STEP)
        os.write(pipe, b"!")
        assert until(lambda: (peer.slab.answers == peer.slab.numbers).all())
        assert [(1, 1), (1, 1)] == [peer.answer(2), peer.answer(3)]
        assert until(lambda: not meters[AWAKE])  # It sleeps.
    os.close(pipe)


def test_a_worker_can_ring_for_each_row():
    with worker(*[CountingEnv] * 3, rings_each_row=True) as peer:
        peer.bind()
        peer.slab.request(np.array([2, 3, 4]), RESET)
        peer.bell.ring()
        rings = 0
        while rings < 3:
            rings += peer.listen()
        peer.ask("access", ("batched",))

        assert (3, 0) == (rings, peer.done.drain())


@in_order
def test_a_worker_rings_only_for_the_answers_that_the_pool_waits_for():
    with worker(*[CountingEnv] * 4, rings_each_row=True) as peer:
        peer.bind()
        peer.slab.wait_for(owing=1)
        peer.slab.request(np.array([0, 2, 3, 4, 5]), RESET)
        # Row 0 is another worker's, and goes on owing.
        peer.bell.ring()
        assert 1 == peer.listen()
        assert [0] == np.flatnonzero(peer.slab.owing_rows()).tolist()
        peer.ask("access", ("batched",))

        assert 0 == peer.done.drain()


@in_order
@pytest.mark.parametrize("rings_each_row", [False, True])
def test_a_worker_rings_at_once_for_a_row_that_raised(rings_each_row):
    crashing = functools.partial(CrashingEnv, where="reset")
    with worker(crashing, CountingEnv, rings_each_row=rings_each_row) as peer:
        peer.bind()
        peer.slab.wait_for(owing=0)
        peer.slab.request(np.array([0, 1, 2, 3]), RESET)
        peer.bell.ring()
        assert 1 == peer.listen()
        assert [2] == peer.slab.raised_rows(np.arange(4)).tolist()
        assert RowsRaised is type(peer.receive())
        peer.ask("access", ("batched",))

        assert 0 == peer.done.drain()


def test_a_lingering_worker_runs_each_request_once_and_reads_messages():
    with worker(*[CountingEnv] * 3) as peer:
        peer.bind(lingers=True)
        peer.run(RESET, rows=(2, 3, 4))
        stepped = [peer.run(STEP, rows=(2, 3, 4))[2][1] for _ in range(5)]
        peer.ask("access", ("batched",))
        assert [1, 2, 3, 4, 5] == stepped
        assert 3 * 6 == peer.slab.counter(STEPS)[1]


def test_a_failure_arrives_before_its_row_is_marked():
    with worker(functools.partial(CrashingEnv, where="reset"), CountingEnv) as peer:
        peer.bind()
        answers = peer.run(RESET, rows=(2, 3))
        messages = peer.process.channel.receive_available()

        assert ["raised", (0, 0)] == answers
        assert [RowsRaised] == [type(message) for message in messages]
        assert ((2,), 2, "reset", "RuntimeError", peer.process.pid) == (
            messages[0].rows,
            messages[0].failure.env,
            messages[0].failure.command,
            messages[0].failure.type_name,
            messages[0].failure.pid,
        )
        assert [(0, 0)] == peer.run(RESET, rows=(2,))


def test_unreadable_arguments_fail_only_their_request():
    with worker(CountingEnv, CountingEnv) as peer:
        peer.bind()
        hostile = ("get_info", (Hostile(),), {})
        # What was sent together cannot be told apart.
        failures = peer.ask("call", hostile, ("get_info", (), {}), envs=(2, 3))
        assert [RemoteFailure] * 2 == [type(failure) for failure in failures]
        assert [(0, 0)] == peer.run(RESET)


def test_a_constructor_that_cannot_be_loaded_is_reported(monkeypatch, tmp_path):
    (tmp_path / "my_noted.py").write_text(NOTED)
    monkeypatch.syspath_prepend(tmp_path)
    maker = importlib.import_module("my_noted").Noted
    (tmp_path / "my_noted.py").write_text("raise OSError('no disk')")
    with worker(CountingEnv, maker, launcher=SpawnLauncher) as peer:
        pass
    del sys.modules["my_noted"]

    assert ("constructor", 3, "load") == (
        peer.hello.kind,
        peer.hello.env,
        peer.hello.command,
    )
    assert "OSError: no disk\n" in peer.hello.traceback


def test_setup_is_run_before_constructors_are_loaded(monkeypatch, tmp_path):
    (tmp_path / "my_setup.py").write_text(
        "import sys, types\n"
        "def run():\n"
        "    from envkit.testing import CountingEnv\n"
        "    module = types.ModuleType('made_later'); module.Env = CountingEnv\n"
        "    sys.modules['made_later'] = module\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    setup = serialize.dump_value("my_setup:run", "worker_setup")
    with worker("made_later:Env", setup=setup) as peer:
        assert isinstance(peer.hello, Hello)


def test_a_parent_of_another_version_is_refused():
    with worker(CountingEnv, protocol=PROTOCOL_VERSION + 1) as peer:
        pass
    assert (
        f"The worker's envkit speaks version {PROTOCOL_VERSION} and the parent's "
        f"{PROTOCOL_VERSION + 1}: two installations are on the path."
    ) == peer.hello.message


@pytest.mark.parametrize(
    "end", [lambda channel: channel.send(Close()), lambda channel: channel.close()]
)
def test_a_worker_can_end_before_it_is_bound(end):
    with worker(CountingEnv) as peer:
        end(peer.process.channel)
        assert 0 == peer.ended().exitcode


def test_a_worker_is_killed_with_all_its_children_when_its_lifeline_ends():
    with worker(CountingEnv) as peer:
        os.close(peer.process._lifeline)
        peer.process._lifeline = -1
        assert "SIGKILL" == peer.ended().signal


def test_errors_while_closing_are_written_to_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    broken = functools.partial(CrashingEnv, where="close")
    with worker(broken, broken) as peer:
        peer.bind()
        peer.close()
        report = peer.report

    (line,) = report.stderr_tail.strip().split("\n")
    assert line.startswith(
        "close() of 2 environments raised RuntimeError: CrashingEnv was told to raise "
        "in close 1. (envs.py, line "
    )
    assert 0 == report.exitcode


def test_a_crash_in_native_code_says_where(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with worker(functools.partial(CrashingEnv, how="SIGSEGV")) as peer:
        peer.bind()
        peer.run(RESET)
        peer.slab.request(np.array([2]), STEP)
        peer.bell.ring()
        report = peer.ended()

    assert "SIGSEGV" == report.signal
    assert report.stderr_tail.startswith("Fatal Python error: Segmentation fault\n")
    assert "in _maybe_crash\n" in report.stderr_tail
