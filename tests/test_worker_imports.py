"""`pytest --worker-imports` names the tests whose workers import pytest."""

from __future__ import annotations

import os
import subprocess
import sys

from tests import worker_imports


def test_a_process_that_imports_pytest_is_named_with_its_test(tmp_path, monkeypatch):
    for name in (worker_imports.FOUND, "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_of_pools.py::test_it (call)")
    worker_imports.watch(tmp_path)
    (tmp_path / "tests").mkdir()
    for name, library in {"slow": "pytest", "quick": "json"}.items():
        (tmp_path / f"tests/{name}.py").write_text(f"import {library}", "utf-8")
        subprocess.run([sys.executable, tmp_path / f"tests/{name}.py"], check=True)

    assert worker_imports.found() == [
        f"1 × test_of_pools.py::test_it {tmp_path}/tests/slow.py"
    ]
