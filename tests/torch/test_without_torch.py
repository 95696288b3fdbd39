"""Where PyTorch or TorchRL is missing, what needs it says so in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import envkit

FOLDER = Path(envkit.__file__).parent / "torch"
MODULES = [path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"]
NAMES = ["RolloutBuffer", "TorchEnvironment", "as_torchrl", "generalized_advantages"]
DOORS = [
    "import envkit.torch",
    *(f"from envkit.torch import {name}" for name in NAMES),
    *(f"import envkit.torch.{name}" for name in sorted(MODULES)),
]
# Each door is tried in one program, as each program takes a while to start.
TRY = """
import sys, traceback

sys.modules[{missing!r}] = None
for door in {doors!r}:
    try:
        exec(door, {{}})
    except ImportError as error:
        print(traceback.format_exception_only(error)[-1].strip())
    else:
        print("nothing was raised by:", door)
"""


def said(missing, doors):
    """Runs a program without a library and returns the lines it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", TRY.format(missing=missing, doors=doors)],
        capture_output=True,
        text=True,
        check=True,
    )
    return finished.stdout.splitlines()


def test_every_entry_point_names_the_missing_package():
    expected = (
        "envkit.errors.MissingDependencyError: envkit.torch needs the package torch, "
        'which is not installed. pip install "torch>=2.4"'
    )
    assert [expected] * len(DOORS) == said("torch", DOORS)


def test_only_the_torchrl_adapter_needs_torchrl():
    import pytest

    pytest.importorskip("torch", reason="torch is not installed")
    doors = ["from envkit.torch import as_torchrl", "import envkit.torch.returns"]
    assert [
        "envkit.errors.MissingDependencyError: as_torchrl needs the package torchrl, "
        'which is not installed. pip install "torchrl>=0.7" "torch>=2.4"',
        "nothing was raised by: import envkit.torch.returns",
    ] == said("torchrl", doors)


def test_nothing_outside_the_package_loads_torch():
    program = (
        "import sys, envkit, envkit.adapters, envkit.parallel, envkit.testing\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
