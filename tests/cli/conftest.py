"""A cache of its own for each test of the commands, and packages with environments."""

from __future__ import annotations

import sys

import pytest

from tests.foreign_packages import hide_schemes


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Returns the folder where `envkit list` keeps names."""
    # Not in tmp_path, because other programs keep something there, too: matplotlib.
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "envkit/names"


LOADING = """
import os, signal, threading
from envkit.errors import MissingDependencyError

def load(name):
    from envkit.testing import CountingEnv  # NumPy: not just for the names

    if name == "locked":
        raise RuntimeError("The door is locked.")
    if name == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return CountingEnv()

def names():
    with open(__file__ + ".asked", "a") as asked:
        asked.write("x")
    return ["small", "Large-v2", "locked"]

def deadly_names():
    return ["small", "deadly", "young"]

def many_names():
    return [f"level-{level}" for level in range(11)]

def talkative_names():
    print("Welcome!")
    os.write(1, b"from native code")
    return ["hall"]

def missing_names():
    raise MissingDependencyError.needed_by("The maze", package="stones", extra="maze")

def broken_names():
    raise RuntimeError("The map is\\n torn.")

def crashing_names():
    os.kill(os.getpid(), signal.SIGKILL)

def numbered_names():
    return [f"hedges/{number}" for number in range(9)]

def ending_names():
    os._exit(3)

def endless_names():
    if "BELL" in os.environ:
        with open(os.environ["BELL"], "w") as bell:
            bell.write(str(os.getpid()))
    threading.Event().wait()
"""


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Returns what installs a package with schemes; none of envkit's own is asked."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    (folder / "maze_envs.py").write_text(LOADING, "utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "maze_envs", raising=False)
    hide_schemes(monkeypatch)

    def install(**listers):
        info = folder / "maze_envs-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: maze-envs\nVersion: 1.2\n", "utf-8"
        )
        schemes = [f"{name} = maze_envs:load" for name in listers]
        names = [f"{name} = maze_envs:{it}" for name, it in listers.items() if it]
        points = ["[envkit.schemes]", *schemes, "[envkit.names]", *names, ""]
        (info / "entry_points.txt").write_text("\n".join(points), "utf-8")
        return folder

    return install
