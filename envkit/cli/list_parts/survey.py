"""Asks libraries which environments they have, each in a process of its own."""

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
from dataclasses import dataclass, field
from typing import Any

from envkit import targets
from envkit.cli.list_parts.matching import matches

__all__ = ["FEW", "Findings", "survey"]

# Of how many matches specs are shown unless those of all are asked for.
FEW = 10

# A library that has not said its names after so many seconds is given up.
_PATIENCE = 60.0
# The path first: where envkit and the library are is known to this process alone.
_CODE = (
    "import json, sys; request = json.loads(sys.argv[1]); "
    "sys.path[:] = request['path']; "
    "from envkit.cli.list_parts.look import look; look(request)"
)


@dataclass
class Findings:
    """What is known of a library's environments.

    Attributes:
        scheme: What stands before the colon.
        names: What may stand after it; `None` if that is not known.
        missing: The error that says what is not installed.
        package: The package that is not.
        extra: The extra of envkit that installs it.
        broken: What went wrong.
        specs: For each name of which they were asked for: the specs, or an error.
    """

    scheme: str
    names: list[str] | None = None
    missing: str = ""
    package: str = ""
    extra: str = ""
    broken: str = ""
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)


def survey(
    schemes: Sequence[str],
    pattern: str | None,
    *,
    specs: bool = False,
    debug: bool = False,
    on_answer: Callable[[str], None] = lambda scheme: None,
) -> list[Findings]:
    """Asks all, some at a time; returns what they say, in the order of the schemes.

    A library that is not installed is not asked. Where several are asked, environments
    are made only if few names match in all of them, by another process of each library
    that has some.

    Args:
        schemes: Whom to ask.
        pattern: Of which environments few enough are made, for their specs.
        specs: Whether all of those are made.
        debug: Whether what libraries print is to be seen on standard error.
        on_answer: Called with each scheme that has answered.
    """
    found: dict[str, Findings] = {}
    for scheme in schemes:
        if (error := targets.missing_for(scheme)) is not None:
            found[scheme] = Findings(
                scheme, missing=str(error), package=error.package, extra=error.extra
            )
            on_answer(scheme)
    installed = [scheme for scheme in schemes if scheme not in found]
    few = None if specs else FEW if pattern is not None and len(schemes) == 1 else 0
    found.update(_asked(installed, _Looks(pattern, few, debug), on_answer))
    if few == 0 and pattern is not None:
        counts = {scheme: _matches(found[scheme], pattern) for scheme in installed}
        if 0 < sum(counts.values()) <= FEW:
            some = [scheme for scheme in installed if counts[scheme]]
            found.update(_asked(some, _Looks(pattern, FEW, debug)))
    return [found[scheme] for scheme in schemes]


def _asked(
    schemes: Sequence[str],
    looks: _Looks,
    on_answer: Callable[[str], None] = lambda scheme: None,
) -> dict[str, Findings]:
    with ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1)) as threads:
        try:
            asked = {threads.submit(looks.at, scheme): scheme for scheme in schemes}
            for done in as_completed(asked):
                on_answer(asked[done])
        except BaseException:
            looks.stop()
            raise
    return {scheme: done.result() for done, scheme in asked.items()}


def _matches(found: Findings, pattern: str) -> int:
    names = found.names or ()
    return sum(matches(f"{found.scheme}:{name}", pattern) for name in names)


class _Looks:
    """The processes that look."""

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
        """Ends all of them, and starts no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


def _end_of(returncode: int, late: bool) -> str:
    """Says how a process ended that did not finish; empty of one that did."""
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
        except ValueError:  # The last one of a process that was killed.
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
