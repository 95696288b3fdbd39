"""The benchmarks of the parallel engine run, and say what they are asked to say."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
# By script: the least it can be told to do, and how many ratios are asked of it.
SCRIPTS = {
    "batched_envs": (["--batch-size=16"], 5),
    "import_cost": ([], 1),
    "overhead": ([], 3),
    "parallel_step": (["--num-envs=2", "--sizes", "1", "2"], 8),
    "efficiency": (["--num-envs=2"], 10),
    "images": (["--num-envs=2"], 8),
    "links": (["--num-envs=2"], 16),
    "serving": (["--num-envs=2"], 4),
    "stragglers": (["--num-envs=4", "--work=1"], 3),
    "tf_environment": (["--sizes", "2", "--compiled=8"], 3),
    "wrappers": (["--rows=4"], 39),
    "adapters": (["--rows=4"], 14),
    "losses": (["--num-envs=4"], 2),
    "native_vectors": (["--rows=4"], 3),
    "protocols": ([], 5),
    "recovery": (["--num-envs=4"], 2),
    "sessions": (["--sizes", "2", "--step=0.01"], 4),
    "resets": (["--num-envs=2", "--reset=10", "--think=10"], 3),
    "realtime": (["--hz", "60", "--think=0.01"], 2),
    "desktop": (["--desktops", "1"], 3),
    "scaling": (
        ["--num-envs=2", "--sizes", "1", "--workers", "1", "--step-times", "0"],
        1,
    ),
    "startup": (["--num-envs=2", "--without-tensorflow"], 7),
    "torch_steps": (["--num-envs=2"], 5),
}


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, f"benchmarks/{script}.py", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_shows_its_tables_and_writes_its_figures(script, tmp_path):
    if script == "torch_steps":
        pytest.importorskip("torch", reason="torch is not installed")
    least, ratios = SCRIPTS[script]
    path = tmp_path / "figures.json"

    finished = run(script, "--rounds=1", "--seconds=0.01", f"--json={path}", *least)
    assert finished.returncode == 0, finished.stderr
    figures = json.loads(path.read_text())
    assert ratios <= len(figures["ratios"])
    for title in figures["tables"]:
        assert title.split()[0] in finished.stdout
    assert f"{script}: asked and reached" in finished.stdout
    for table in figures["tables"].values():
        assert all(
            value > 0 for values in table["figures"].values() for value in values
        )


@pytest.fixture
def against(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("against")


@pytest.mark.parametrize(
    ("unit", "here", "there", "verdict"),
    [
        ("us per step", [2.0] * 7, [1.0] * 7, "slower"),
        ("us per step", [1.0] * 7, [2.0] * 7, "faster"),
        ("steps per second", [1.0] * 7, [2.0] * 7, "slower"),
        ("", [1.0] * 7, [2.0] * 7, "differs"),
        ("us per step", [1.02] * 7, [1.0] * 7, ""),
        ("us per step", [2.0] * 6, [1.0] * 6, ""),
        ("us per step", [2.0] * 6 + [1.0], [1.0] * 6 + [2.0], ""),
        ("us per step", [2.0] * 11 + [1.0], [1.0] * 11 + [2.0], "slower"),
    ],
)
def test_a_difference_counts_if_nearly_all_rounds_agree(
    against, unit, here, there, verdict
):
    assert verdict == against.Figure("step", unit, here, there).verdict(0.03)


def test_figures_are_those_of_tables_curves_and_facts(against):
    result = {
        "benchmark": "tiny",
        "tables": {"a step": {"unit": "us", "figures": {"a": [1, 2, 9], "b": []}}},
        "curves": {
            "growth": {
                "axis": "workers",
                "unit": "steps per second",
                "points": [2],
                "figures": {"a": [[5.0]]},
            }
        },
        "ratios": [{"claim": "fast", "ratio": 2.0}],
        "facts": {"modules": 34, "name": "a"},
    }

    assert [
        ("a step: a", "us", 2),
        ("growth: a, 2 workers", "steps per second", 5.0),
        ("modules", "", 34.0),
    ] == list(against.read(result))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_is_measured_with_its_own_package(tmp_path):
    """The package is twice as slow as it was, and lies elsewhere than it did."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "envkit").mkdir()
    shutil.copy(ROOT / "benchmarks/against.py", tmp_path / "benchmarks")
    script = tmp_path / "benchmarks/tiny.py"
    program = (
        "import json, sys\nfrom envkit.{module} import COST\n"
        "figures = {{'envkit': [COST, COST], 'other': [1.0]}}\n"
        "table = {{sys.argv[1]: {{'unit': 'us', 'figures': figures}}}}\n"
        "with open(sys.argv[2].partition('=')[2], 'w') as file:\n"
        "    json.dump({{'tables': table}}, file)\n"
    )
    script.write_text(program.format(module="old"))
    (tmp_path / "envkit/old.py").write_text("COST = 2.0\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "old"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    script.write_text(program.format(module="new"))
    (tmp_path / "envkit/old.py").rename(tmp_path / "envkit/new.py")
    (tmp_path / "envkit/new.py").write_text("COST = 4.0\n")

    finished = subprocess.run(
        [
            sys.executable,
            "benchmarks/against.py",
            "HEAD",
            "tiny",
            "--fail",
            "--",
            "step",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 1, finished.stderr
    lines = [line.split() for line in finished.stdout.splitlines()[-2:]]
    assert lines == [
        ["step:", "envkit", "4", "2", "2.000", "2.000", "…", "2.000", "us", "slower"],
        ["step:", "other", "1", "1", "1.000", "1.000", "…", "1.000", "us"],
    ]
