"""Asks libraries for their names and specs in separate processes, for `envkit list`.

A library may print, crash or take long when it is imported, so each gets its own
process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from envkit import registry
from envkit.cli.findings import Findings, matches, specs_of
from envkit.cli.names_cache import NamesCache
from envkit.cli.output import error_text
from envkit.errors import MissingDependencyError

__all__ = ["ask", "look"]

# Seconds to wait for a library's answer.
_PATIENCE = 60.0
# The path first, because only this process knows where envkit and the library are.
_CODE = (
    "import json, sys; request = json.loads(sys.argv[1]); "
    "sys.path[:] = request['path']; "
    "from envkit.cli.asking import look; look(request)"
)


def ask(
    schemes: Sequence[str],
    pattern: str | None,
    few: int | None,
    debug: bool,
    on_answer: Callable[[str], None] = lambda scheme: None,
) -> dict[str, Findings]:
    """Asks libraries, as many at a time as there are CPUs.

    Args:
        schemes: The libraries.
        pattern: The environments to make for their specs.
        few: The maximum number to make; `None` for any number.
        debug: Whether libraries' output goes to standard error.
        on_answer: Called with each scheme that has answered.
    """
    looks = _Looks(pattern, few, debug)
    with ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1)) as threads:
        try:
            asked = {threads.submit(looks.at, scheme): scheme for scheme in schemes}
            for done in as_completed(asked):
                on_answer(asked[done])
        except BaseException:
            looks.stop()
            raise
    return {scheme: done.result() for done, scheme in asked.items()}


class _Looks:
    """Runs the processes that call `look`."""

    def __init__(self, pattern: str | None, few: int | None, debug: bool) -> None:
        self._request = {"pattern": pattern, "few": few, "debug": debug}
        self._debug = debug
        self._patience = None if few is None else _PATIENCE
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def at(self, scheme: str) -> Findings:
        request = {**self._request, "scheme": scheme, "path": sys.path}
        with self._lock:
            if self._stopped:
                return Findings(scheme)
            process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if self._debug else subprocess.DEVNULL,
            )
            self._running.add(process)
        late = False
        try:
            said, _ = process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            said, _ = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        end = _end_of(process.returncode, late)
        return _findings(scheme, said.decode("utf-8", "replace").splitlines(), end)

    def stop(self) -> None:
        """Stops all of them, and starts no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


def _end_of(returncode: int, late: bool) -> str:
    """Describes how a process ended early; "" if it did not."""
    if late:
        return f"it took more than {_PATIENCE:g} seconds"
    if returncode < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-returncode).name}"
    return f"its process ended with status {returncode}" if returncode else ""


def _findings(scheme: str, lines: list[str], end: str) -> Findings:
    found = Findings(scheme)
    for line in lines:
        try:
            facts = json.loads(line)
        except ValueError:  # the last line of a killed process
            continue
        if "name" in facts:
            found.specs[facts.pop("name")] = facts
        else:
            for name, value in facts.items():
                setattr(found, name, value)
    if end and found.names is None:
        found.broken = f"{end} (--debug shows what it printed)"
    elif end:
        found.broken = f"{end} when its environments were made"
    return found


def look(request: dict[str, Any]) -> None:
    """Writes a scheme's environments, and the specs of some, as lines of JSON.

    It runs in a separate process, because a library may print, crash or take long when
    it is imported. The answers go to the original standard output.

    Args:
        request: The `scheme`; the `pattern`; `few`, the maximum number of matches whose
            specs are shown, `None` for any number; and `debug`, whether to show the
            library's output.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    _quiet(request["debug"])

    def answer(**facts: Any) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    scheme, pattern = request["scheme"], request["pattern"]
    try:
        names = registry.names_in(scheme)
    except MissingDependencyError as error:
        answer(missing=str(error), package=error.package, command=error.command)
        return
    except (Exception, SystemExit) as error:  # its code may do anything
        answer(broken=error_text(error))
        return
    answer(names=names)
    if names is not None:
        NamesCache().keep(scheme, {"names": names})
    found = [name for name in names or () if matches(f"{scheme}:{name}", pattern)]
    if request["few"] is None or len(found) <= request["few"]:
        for name in found:
            answer(name=name, **specs_of(f"{scheme}:{name}"))


def _quiet(debug: bool) -> None:
    """Sends output, even that of native code, to standard error or nowhere."""
    if debug:
        os.dup2(2, 1)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
