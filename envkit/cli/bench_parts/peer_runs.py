"""Peers measured, one after the other, each in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envkit.cli.bench_parts.measuring import Figures
from envkit.cli.bench_parts.peers import PEERS
from envkit.parallel.launch import environment_for, search_path

__all__ = ["PeerRun", "run_peer"]

_PROGRAM = (
    "import sys; sys.path[:] = eval(sys.argv[1]); "
    "from envkit.cli.bench_parts.peer_process import main; main()"
)
# What starting may take, besides stepping: some import a lot, and start many processes.
_START = 120.0
# What closing may take when nobody wants to know any more.
_LAST_WORDS = 2.0


@dataclass(frozen=True)
class PeerRun:
    """What was found out about a peer.

    Attributes:
        name: Its name in `PEERS`.
        figures: How fast it is; `None` if there is nothing to say.
        error: Why there is nothing to say.
    """

    name: str
    figures: Figures | None = None
    error: str | None = None

    @property
    def title(self) -> str:
        """What it is called."""
        return PEERS[self.name].title


def run_peer(
    name: str,
    target: str,
    arguments: Mapping[str, Any],
    *,
    num_envs: int,
    seconds: float,
    rounds: int,
    cpus: int,
) -> PeerRun:
    """Measures a peer; what goes wrong is part of the answer."""
    package = PEERS[name].package
    if importlib.util.find_spec(package) is None:
        return PeerRun(name, error=f"{package} is not installed")
    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as folder:
        answer = Path(folder, "figures.json")
        order = {
            "peer": name,
            "target": target,
            "arguments": dict(arguments),
            "num_envs": num_envs,
            "seconds": seconds,
            "rounds": rounds,
            "cpus": cpus,
            "answer": str(answer),
        }
        problem = _run(order, Path(folder, "errors"), _START + 3 * seconds)
        if not answer.exists():
            return PeerRun(name, error=problem)
        found = json.loads(answer.read_text("utf-8"))
    if "error" in found:
        return PeerRun(name, error=found["error"])
    del found["steps_per_second"], found["spread"]
    return PeerRun(name, Figures(**{**found, "speeds": tuple(found["speeds"])}))


def _run(order: dict[str, Any], errors: Path, timeout: float) -> str:
    """Runs the process to its end, or ends it; returns what it is to blame for."""
    theirs, ours = os.pipe()
    try:
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, search_path()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                # Ctrl-C is seen to here, and what it starts ends with it.
                start_new_session=True,
                pass_fds=[theirs],
                # As envkit's own workers: numerics have one thread.
                env=environment_for({}),
            )
        try:
            process.communicate(
                json.dumps({**order, "lifeline": theirs}).encode(), timeout
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout:.0f} s"
        finally:
            _end(process)
        if process.returncode < 0:
            return f"its process ended by {signal.Signals(-process.returncode).name}"
        last = errors.read_text("utf-8", "replace").strip().splitlines()[-1:]
        return last[0] if last else f"its process ended with {process.returncode}"
    finally:
        # The kernel ends whatever is left when nobody holds this end.
        os.close(ours)
        os.close(theirs)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all it has started, if they have not."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
