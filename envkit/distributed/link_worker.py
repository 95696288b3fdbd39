"""The process of a worker that may run on a different machine from its pool.

```
pool                                            worker
  a command that was started  ───────────────▶   dials, and proves itself
  search path, Job(constructors, …)         ─▶   builds the environments
                                            ◀─   Hello(specs, …), or the failure
  Bind(the layout of its rows)              ─▶   makes its own slab
  ASKED, with the actions                   ─▶   runs these rows
                                            ◀─   ANSWERED, with their time steps
  Request                                   ─▶   answers it
  Bind(another layout)                      ─▶   continues with those rows
  Close                                     ─▶   closes the environments and ends
```

A worker has one thread, which reads, runs and answers. It ends when the link ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from envkit.distributed.link import (
    ASKED,
    CUT_OFF,
    HEAD,
    MESSAGE,
    Address,
    Frame,
    FrameError,
    Link,
    prove,
)
from envkit.distributed.row_frames import ALL_ROWS, RowFrames
from envkit.parallel.messages import (
    Close,
    ObjectActions,
    Packed,
    PackedJob,
    Request,
)
from envkit.parallel.slab import Slab
from envkit.parallel.system.doorbell import linger, may_linger
from envkit.parallel.worker.host import WorkerHost

__all__ = ["main"]


def main(link_fd: int, lifeline_fd: int, address: str, greeting: bytes) -> None:
    """Runs a worker until it is told to end, or its link ends.

    Args:
        link_fd: The connection with its pool.
        lifeline_fd: The lifeline, which ends this process once the other end closes.
        address: The pool's address.
        greeting: The bytes exchanged so far; empty if the connection must be encrypted
            first.
    """
    host = WorkerHost(link_fd, lifeline_fd, machine=socket.gethostname())
    sock, pool = socket.socket(fileno=link_fd), Address.parse(address)
    if pool.certificate:
        link = Link(prove(sock, pool)[0])
    else:
        link = Link(sock, pool.token.seal(greeting, is_pool=False))
    worker = _LinkedWorker(link, host)
    try:
        worker.run()
    except FrameError as error:
        sys.exit(f"This worker ends, because its link cannot be trusted: {error}.")
    except EOFError:
        # There is no pool to report it to, but whatever hosts this process may see its
        # end before that of the link.
        sys.exit(CUT_OFF)


class _LinkedWorker:
    """Connects a host with the pool, by a link."""

    def __init__(self, link: Link, host: WorkerHost) -> None:
        self._link, self._host = link, host
        host.close_in_forks(link.close)
        self._head = memoryview(bytearray(HEAD.size))
        self._slab: Slab
        self._row_frames: RowFrames
        self._unanswered: list[int] = []

    def _next_head(self) -> tuple[int, int, int, int]:
        """Waits for a frame; returns its kind, flags, rows and length."""
        # Hot: called once per frame.
        self._link.want(self._head)
        self._link.fill()
        kind, flags, _, rows, length = HEAD.unpack(self._head)
        return kind, flags, rows, length

    def _receive(self, length: int) -> Any:
        payload = bytearray(length)
        self._link.want(payload)
        self._link.fill()
        return pickle.loads(payload)

    def _next_message(self) -> Any:
        return self._receive(self._next_head()[3])

    def _send(self, message: Any) -> None:
        payload = pickle.dumps(message, protocol=5)
        self._link.send([HEAD.pack(MESSAGE, 0, 0, 0, len(payload)), payload])

    def run(self) -> None:
        """Builds the environments, then serves rows and requests."""
        _add_to_search_path(self._next_message())
        packed: PackedJob = self._next_message()
        with self._host.built(packed) as message:
            self._send(message)
            if isinstance(message, Packed):
                self._runner = self._host.runner
                self._serve(packed.job.options.rings_each_row)
            else:
                # Let the pool end the link: it must read the failure first.
                with contextlib.suppress(EOFError):
                    self._next_head()

    def _serve(self, answers_each_row: bool) -> None:
        message: Packed | Close = self._next_message()
        while isinstance(message, Packed):
            bind = self._host.unpacked(message)
            slab = Slab(bind.layout)
            if self._runner.is_bound:
                slab.adopt(self._slab)
            self._bind(slab, bind.first_row, answers_each_row)
            self._slab = slab
            message = self._run(may_linger(bind.on_machine) and not self._link.is_tls)

    def _run(self, lingers: bool) -> Packed | Close:
        """Serves rows and requests; returns the first message of another kind."""
        slab, row_frames = self._slab, self._row_frames
        link, runner, clock = self._link, self._runner, self._clock
        due, writer = runner.due, runner.writer
        everyone = [*range(row_frames.size)]
        expected: Frame | None = None
        flags = 0
        while True:
            # Hot: once per request.
            while due and not link.is_readable():
                runner.reset_next()
                clock.before = time.perf_counter_ns()
            link.expect(expected)
            if link.expects and link.fetch():
                rows = row_frames.size
            else:
                kind, flags, rows, length = self._next_head()
                if kind != ASKED:
                    message = self._receive(length)
                    if isinstance(message, Packed | Close):
                        return message
                    self._handle(message)
                    continue
                link.want(*row_frames.receive_asked(flags, rows))
                link.fill()
                expected = row_frames.expected_request(flags)
            clock.woken = time.perf_counter_ns()
            row_frames.accept_asked(flags, rows)
            # If a FIRST follows in the same step, the environment would overwrite lent
            # values.
            writer.lends = not slab.is_same_step
            is_all = flags & ALL_ROWS
            self._unanswered = everyone[:] if is_all else runner.pending()
            if runner.run_pending():
                self._answer(self._unanswered)
            if lingers:
                linger(link.is_readable)

    def _bind(self, slab: Slab, first_row: int, answers_each_row: bool) -> None:
        self._host.bind(slab, 0, self._send, first_row=first_row)
        self._clock = self._runner.start_clock(counts_memory=True)
        self._runner.after_row = self._answer_row if answers_each_row else None
        self._row_frames = RowFrames(slab, 0)

    def _answer(self, rows: Sequence[int]) -> None:
        # Only the worker itself may send answers, no fork of it.
        self._host.end_fork()
        if not rows:
            return
        row_frames = self._row_frames
        lent = self._runner.writer.lent
        is_all = len(rows) == row_frames.size
        together = row_frames.answer_together(lent) if is_all else None
        if together is not None:
            self._link.send(together.parts, together.size)
            lent.clear()
        else:
            if lent:
                self._runner.writer.write_lent()
            self._link.send(row_frames.answer(rows))

    def _answer_row(self) -> None:
        """Answers the rows that have just been marked."""
        done, self._unanswered[:] = self._row_frames.split_done(self._unanswered)
        if done:
            self._answer(done)

    def _handle(self, message: Any) -> None:
        match message:
            case ObjectActions():
                self._host.write_objects(message)
            case Request():
                self._send(self._host.reply(message))


def _add_to_search_path(entries: Sequence[str]) -> None:
    """Appends the pool's search path to this process's own."""
    sys.path += [
        each for each in entries if each not in sys.path and os.path.isdir(each)
    ]
