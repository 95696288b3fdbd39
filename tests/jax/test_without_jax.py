"""Where JAX is missing, what needs it says so in one line; it is found by its name."""

from __future__ import annotations

import subprocess
import sys

import pytest

DOORS = ["import envkit.jax", "from envkit.jax import step_in_jit"]
TRY = """
import sys, traceback

sys.modules["jax"] = None
for door in {doors!r}:
    try:
        exec(door, {{}})
    except ImportError as error:
        print(traceback.format_exception_only(error)[-1].strip())
    else:
        print("nothing was raised by:", door)
"""


def printed(program):
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return finished.stdout.splitlines()


def test_every_entry_point_names_the_missing_package():
    expected = (
        "envkit.errors.MissingDependencyError: envkit.jax needs the package jax, "
        'which is not installed. pip install "jax>=0.4.30"'
    )
    assert [expected] * len(DOORS) == printed(TRY.format(doors=DOORS))


def test_nothing_outside_of_it_loads_jax():
    modules = "envkit, envkit.adapters, envkit.parallel, envkit.testing"
    assert ["False"] == printed(f"import sys, {modules}\nprint('jax' in sys.modules)")


def test_the_module_does_not_shadow_jax_itself():
    pytest.importorskip("jax", reason="jax is not installed")
    program = (
        "import envkit.jax, jax\nprint(jax is envkit.jax.jax, hasattr(jax, 'jit'))"
    )
    assert ["True True"] == printed(program)
