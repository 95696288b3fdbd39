"""What `envkit worker` does: it starts the process of a linked worker and watches it.

```
pool's machine                      the worker's machine
  the command, such as ssh  ─────▶  envkit worker ADDRESS        dials the pool
                                      the worker's process       has the connection
```

It stays beside the process: it ends the worker when the connection ends, even while
native code runs there, and exits with the worker's status, which a command such as ssh
hands on. It imports little, because there is one for each worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

from envkit.distributed.link import Address, dial, prove
from envkit.parallel.system.guardian import Guardian
from envkit.parallel.system.interpreter import ChildInterpreter

__all__ = ["CUT_OFF", "host_worker", "run_worker"]

# The status that is told when the connection has ended before the worker.
CUT_OFF = 75
# Where the system has no descriptor for processes, how often to look at one.
_POLL_INTERVAL = 0.1
_PROGRAM = (
    "import sys\n"
    "with open(int(sys.argv[1]), encoding='ascii') as file:\n"
    "    sys.path[:], address, greeting = eval(file.read())\n"
    "from envkit.distributed.link_worker import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]), address, greeting)"
)


def host_worker(address: str) -> int:
    """Runs one worker for the pool at an address, and ends as it has ended.

    Raises:
        ValueError: The text is not an address.
        OSError: The pool cannot be reached.
    """
    status = run_worker(address)
    if status < 0:
        _end_like(-status)
    return status


def run_worker(address: str, stderr: int | None = None) -> int:
    """Runs one worker for the pool at an address; returns the worker's exit status.

    Args:
        address: Where the pool is.
        stderr: What the worker is to have as standard error; `None` for that of this
            process.

    Returns:
        What the worker has returned, `CUT_OFF`, or less than 0 for the number of the
        signal that has ended it.

    Raises:
        ValueError: The text is not an address.
        OSError: The pool cannot be reached, or does not let this worker in.
    """
    pool = Address.parse(address)
    sock = dial(pool)
    with sock:
        # At once, because pools drop what proves nothing, and on a busy machine a
        # process takes long to start. What encrypts a link has to be in that process.
        greeting = b"" if pool.certificate else prove(sock, pool)[1]
        guardian = Guardian()
        # If there is one, the pool is on this machine, and it is the pool's.
        if not Guardian.is_present():
            guardian.start(detached=True)
        try:
            return _run(sock.fileno(), (address, greeting), stderr, guardian)
        finally:
            guardian.dismiss()


def _run(
    link: int, pool: tuple[str, bytes], stderr: int | None, guardian: Guardian
) -> int:
    """Runs a worker at the end of a link, and ends what it leaves behind."""
    child = ChildInterpreter(
        _PROGRAM,
        ascii((sys.path, *pool)),
        fds=[link],
        # Which GPU there is to use is for the command to say that has started it.
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
    """Waits for the end of a connection or of a process; reads nothing of either.

    Returns:
        Whether the connection has ended, and not the process.
    """
    poller = select.poll()
    # That the other side has closed it; data are the worker's business.
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
    """Ends this process by the signal that has ended the worker."""
    import resource

    # The worker has left what there is to look at.
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )
    sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):  # Not all can be handled.
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
