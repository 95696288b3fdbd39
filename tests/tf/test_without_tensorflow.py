"""Where TensorFlow is missing or broken, everything that needs it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import envkit.tf

HINT = (
    "MissingDependencyError: envkit.tf needs the package tensorflow, which is not "
    'installed. pip install "tensorflow>=2.16"'
)
FOLDER = Path(envkit.tf.__file__).parent
MODULES = sorted(
    f"envkit.tf.{path.stem}" for path in FOLDER.glob("*.py") if path.stem != "__init__"
)
DOORS = [
    "import envkit; envkit.TFPyEnvironment",
    "from envkit import TFPyEnvironment",
    "from envkit import TFEnvironment",
    "import envkit.tf",
    "from envkit.utils import get_tf_env; from envkit.testing import CountingEnv; "
    "get_tf_env(CountingEnv())",
    *(f"from envkit.tf import {name}" for name in envkit.tf.__all__),
    *(f"import {name}" for name in MODULES),
]
# TensorFlow is installed where these tests run, so it is kept from being found.
MISSING = {
    "not to be imported": "import sys; sys.modules['tensorflow'] = None",
    "not found": """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
""",
    "a folder that was left behind": """
import os, sys
from importlib.machinery import PathFinder

class Leftover:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            return PathFinder.find_spec(name, ["."])

os.makedirs("tensorflow/python")
sys.meta_path.insert(0, Leftover())
""",
}
# Each door is tried in one program, as each program takes a while to start.
TRY = """
import traceback

for door in {doors!r}:
    try:
        exec(door, {{}})
    except ImportError as error:
        print(traceback.format_exception_only(error)[-1].strip())
    else:
        print("nothing was raised by:", door)
"""


def said(program: str, folder: Path) -> list[str]:
    """Runs a program in a folder of its own and returns the lines it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return finished.stdout.splitlines()


@pytest.mark.parametrize("way", MISSING)
def test_without_tensorflow_each_entry_point_says_what_to_install(way, tmp_path):
    lines = said(MISSING[way] + TRY.format(doors=DOORS), tmp_path)
    assert [f"envkit.errors.{HINT}"] * len(DOORS) == lines


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("import no_such_part", "ModuleNotFoundError: No module named 'no_such_part'"),
        (
            "raise ImportError('libcu.so: no such file')",
            "ImportError: libcu.so: no such file",
        ),
        (
            "import tensorflow.core",
            "ModuleNotFoundError: No module named 'tensorflow.core'",
        ),
    ],
)
def test_a_broken_tensorflow_is_not_called_missing(fault, line, tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(f"{fault}\n", "utf-8")
    doors = [f"from envkit.tf import {name}" for name in envkit.tf.__all__]
    assert {line} == set(said(TRY.format(doors=doors), tmp_path))


def test_the_package_alone_does_not_load_tensorflow(tmp_path):
    program = "import sys, envkit.tf; print('tensorflow' in sys.modules)"
    assert ["False"] == said(program, tmp_path)
