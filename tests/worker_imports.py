"""Finds workers that import a file of tests: `pytest --worker-imports`.

A worker that unpickles something of a test file imports that file, with pytest and all
else that it needs: 0.3 to 0.6 s of processor time in each worker. What workers
unpickle lies in modules of its own: tests/parallel/environments.py and others.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

# Names the file to which processes write; xdist's workers inherit it.
FOUND = "ENVKIT_WORKER_IMPORTS"

# Runs first in each process that a test starts.
_PROGRAM = """
import os, sys

def watch(event, arguments):
    if event == "import" and arguments[0] == "pytest":
        frame = sys._getframe()
        while frame is not None and "/tests/" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None:
            with open(os.environ["ENVKIT_WORKER_IMPORTS"], "a") as found:
                print(test.split(" (")[0], frame.f_code.co_filename, file=found)

test = os.environ.get("PYTEST_CURRENT_TEST", "")
if test and "pytest" not in sys.orig_argv:
    sys.addaudithook(watch)
"""


def watch(folder: Path) -> None:
    """Watches the processes that are started from now on, by files in a folder."""
    (folder / "sitecustomize.py").write_text(_PROGRAM, "utf-8")
    (folder / "found").touch()
    os.environ[FOUND] = str(folder / "found")
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def found() -> list[str]:
    """Lists which tests started workers that import pytest, and by which file."""
    lines = Counter(Path(os.environ[FOUND]).read_text("utf-8").splitlines())
    return [f"{count} × {line}" for line, count in sorted(lines.items())]
