"""Implements `envkit worker`: starts the process of a linked worker, and watches it.

```
pool's machine                      the worker's machine
  the command, such as ssh  ─────▶  envkit worker ADDRESS        dials the pool
                                      the worker's process       has the connection
```

It kills the worker when the connection ends, even while native code runs there, and
exits with the worker's status, which commands such as ssh pass on. It imports little,
because there is one for each worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

from envkit.distributed.link import CUT_OFF, Address, dial, prove
from envkit.parallel.system.guardian import Guardian
from envkit.parallel.system.interpreter import ChildInterpreter

__all__ = ["host_worker", "run_worker"]

# Seconds between checks on a process, on systems without pidfds.
_POLL_INTERVAL = 0.1
_PROGRAM = (
    "import sys\n"
    "with open(int(sys.argv[1]), encoding='ascii') as file:\n"
    "    sys.path[:], address, greeting = eval(file.read())\n"
    "from envkit.distributed.link_worker import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]), address, greeting)"
)


def host_worker(address: str) -> int:
    """Runs one worker for the pool at an address, and exits like the worker.

    Raises:
        ValueError: The text is not an address.
        OSError: The pool cannot be reached.
    """
    status = run_worker(address)
    if status < 0:
        _end_like(-status)
    return status


def run_worker(address: str, stderr: int | None = None) -> int:
    """Runs one worker for the pool at an address; returns its exit status.

    Args:
        address: The pool's address.
        stderr: The worker's standard error; `None` for this process's.

    Returns:
        The worker's exit status, `CUT_OFF`, or the negative number of the signal that
        ended it.

    Raises:
        ValueError: The text is not an address.
        OSError: The pool cannot be reached, or refuses this worker.
    """
    pool = Address.parse(address)
    sock = dial(pool)
    with sock:
        # Prove this at once: pools drop connections without proof, and a process takes
        # long to start on a busy machine. TLS, though, must be set up in that process.
        greeting = b"" if pool.certificate else prove(sock, pool)[1]
        guardian = Guardian()
        # If there is a guardian, the pool is on this machine, and the guardian is the
        # pool's.
        if not Guardian.is_present():
            guardian.start(detached=True)
        try:
            return _run(sock.fileno(), (address, greeting), stderr, guardian)
        finally:
            guardian.dismiss()


def _run(
    link: int, pool: tuple[str, bytes], stderr: int | None, guardian: Guardian
) -> int:
    """Runs a worker at the end of a link, then ends any helpers it left."""
    child = ChildInterpreter(
        _PROGRAM,
        ascii((sys.path, *pool)),
        fds=[link],
        # The command that started this process decides about the GPU.
        variables=guardian.variables(),
        stderr=stderr,
    )
    is_cut_off = True
    try:
        guardian.watch(child.pid)
        is_cut_off = _watch(link, child)
    finally:
        status = child.end()
        guardian.end_helpers([child.pid])
    return CUT_OFF if is_cut_off else status


def _watch(link: int, process: ChildInterpreter) -> bool:
    """Waits for the end of a connection or a process, without reading from them.

    Returns:
        True if the connection ended, False if the process did.
    """
    poller = select.poll()
    # Only wait for the other side to close it; the worker reads the data.
    poller.register(link, getattr(select, "POLLRDHUP", 0))
    timeout: float | None = 1000 * _POLL_INTERVAL
    life = -1
    if hasattr(os, "pidfd_open"):
        life, timeout = os.pidfd_open(process.pid), None
        poller.register(life, select.POLLIN)
    try:
        while process.poll() is None:
            if any(fd == link for fd, _ in poller.poll(timeout)):
                return process.poll() is None
        return False
    finally:
        if life >= 0:
            os.close(life)


def _end_like(number: int) -> None:
    """Ends this process by the same signal that ended the worker."""
    import resource

    # The worker has left any core file already; don't write a second one.
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )
    sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):  # Some signals cannot be handled.
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
