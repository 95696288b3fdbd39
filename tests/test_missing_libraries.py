"""Tests that need a library which is not there are skipped, or fail if asked to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
TESTS = {
    "test_file.py": """
import pytest

pytest.importorskip("no_such_library", reason="no_such_library is not installed")
""",
    "test_parts.py": """
import pytest

missing = pytest.mark.skipif(True, reason="no_such_library is not installed")
elsewhere = pytest.mark.skipif(True, reason="only Windows has this")
expected = pytest.mark.xfail(reason="it is not installed")

@missing
def test_that_is_marked():
    pass

def test_that_looks():
    pytest.importorskip("no_such_library", reason="no_such_library is not installed")

@elsewhere
def test_of_another_system():
    pass

@expected
def test_that_is_known_to_fail():
    raise AssertionError

def test_that_needs_nothing():
    pass
""",
}


def run(folder, *options):
    """Returns the last line of a run of these tests."""
    for name, text in TESTS.items():
        (folder / name).write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q"]
    told = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, folder],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return told.stdout.splitlines()[-1].partition(" in ")[0]


def test_tests_of_missing_libraries_are_skipped(tmp_path):
    assert "1 passed, 4 skipped, 1 xfailed" == run(tmp_path)


def test_tests_of_missing_libraries_fail_if_none_may_be_missing(tmp_path):
    options = ["--nothing-missing", "--continue-on-collection-errors"]
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors" == run(
        tmp_path, *options
    )
