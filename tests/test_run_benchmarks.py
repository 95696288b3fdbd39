"""`make bench` runs what there is, names what fails, and writes only what was quiet."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

ROOT = Path(__file__).parent.parent
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc"),
]
FIGURES = {
    "tables": {"a step": {"unit": "us", "figures": {"envkit": [1.0], "Peer": []}}},
    "ratios": [],
}
WRITES = (
    "import pathlib, sys\n"
    "path = sys.argv[-1].partition('=')[2]\n"
    f"pathlib.Path(path).write_text({json.dumps(FIGURES)!r})\n"
)
# What the runner is told of the machine: by benchmark, how much others use beside it.
PROGRAM = """
import contextlib, sys
sys.path.insert(0, "tools")
import quiet, run_benchmarks

beside = {beside}
quiet.wait_for_quiet = lambda cpus: quiet.Found()
names = iter({names})

@contextlib.contextmanager
def watched():
    used = beside.get(next(names), 0.0)
    yield quiet.Found(used, {{"miner (pid 7)": used}})

quiet.watched = watched
sys.argv = ["run_benchmarks.py", *{words}]
run_benchmarks.main()
"""


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quiet():
    yield load("quiet")
    del sys.modules["quiet"]


@pytest.fixture
def folder(tmp_path):
    """A repository of benchmarks that take no time, and one that fails."""
    for name in ("benchmarks/results", "tools"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("run_benchmarks", "quiet"):
        shutil.copy(ROOT / f"tools/{name}.py", tmp_path / "tools")
    for name in ("performance_figures", "choosing_figures"):
        tool = f"import pathlib\npathlib.Path('{name}').write_text('')\n"
        (tmp_path / f"tools/{name}.py").write_text(tool)
    for name in ("overhead", "links", "images"):
        (tmp_path / f"benchmarks/{name}.py").write_text(WRITES)
    (tmp_path / "benchmarks/games.py").write_text("raise SystemExit(3)")
    return tmp_path


def run(folder, *words, beside=(), order=()):
    """Runs some; returns the exit status, what was printed and what was written."""
    names = order or [word for word in words if not word.startswith("-")]
    program = PROGRAM.format(beside=dict(beside), names=names, words=list(words))
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in finished.stderr, finished.stderr
    results = sorted(path.stem for path in (folder / "benchmarks/results").iterdir())
    pages = (folder / "performance_figures").exists()
    assert pages == (folder / "choosing_figures").exists() == bool(results)
    return finished.returncode, finished.stdout, results


def test_every_benchmark_that_reports_is_run(folder):
    script = folder / "benchmarks/newest.py"
    script.write_text(f'# report = Report("newest")\n{WRITES}')
    code, _, results = run(folder, "newest")
    assert (0, ["newest"]) == (code, results)
    (folder / "benchmarks/helpers.py").write_text("")
    assert "There is no helpers" in refused(folder, "helpers")


def test_benchmarks_can_be_run_by_name():
    text = (ROOT / "tools/run_benchmarks.py").read_text("utf-8")
    for name in set(re.findall(r'Benchmark\(\s*"(\w+)"', text)) - {"tf_agents"}:
        assert (ROOT / f"benchmarks/{name}.py").exists()


def test_a_page_that_cannot_be_written_is_named(folder):
    (folder / "tools/choosing_figures.py").write_text("raise SystemExit(1)")
    names = {"names": ["links"], "words": ["links"], "beside": {}}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(**names)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    assert "FAILED: choosing_figures.py, whose pages" in finished.stdout


def test_the_figures_and_the_pages_are_written(folder):
    code, said, results = run(folder, "overhead", "links")
    assert (0, ["links", "overhead"]) == (code, results)
    assert FIGURES == json.loads((folder / "benchmarks/results/links.json").read_text())
    assert "without Peer, which was not measured: links, overhead" in said


def test_a_failing_benchmark_is_named_and_the_others_run(folder):
    code, said, results = run(folder, "overhead", "games", "links")
    assert (1, ["links", "overhead"]) == (code, results)
    assert "FAILED: games, exit status 3" in said


def test_a_benchmark_without_its_library_is_skipped(folder):
    code, said, results = run(folder, "tf_agents", "overhead", order=["overhead"])
    assert (0, ["overhead"]) == (code, results)
    assert "left out: tf_agents, because " in said


def test_a_busy_machine_writes_no_figures(folder):
    order = ["overhead", "links", "links"]
    code, said, results = run(
        folder, "overhead", "links", beside={"links": 50.0}, order=order
    )
    assert (2, []) == (code, results)
    busy = "BUSY: beside links others used 50.00 of a CPU (miner (pid 7) 50.00)"
    assert busy in said
    assert "make bench BUSY=1" in said
    assert (folder / "build/bench/links.json").exists()


def test_a_disturbed_benchmark_is_measured_again(folder):
    order = ["overhead", "links", "overhead, once more"]
    code, said, results = run(
        folder, "overhead", "links", beside={"overhead": 50.0}, order=order
    )
    assert (0, ["links", "overhead"]) == (code, results)
    assert "The machine is busy: beside overhead others used 50.00" in said


def test_figures_of_a_busy_machine_are_written_on_request(folder):
    code, said, results = run(
        folder, "--busy", "links", beside={"links": 50.0}, order=["links"]
    )
    assert (0, ["links"]) == (code, results)
    assert "BUSY: beside links" in said


def refused(folder, name):
    finished = subprocess.run(
        [sys.executable, "tools/run_benchmarks.py", name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1
    return finished.stderr


def test_an_unknown_benchmark_is_refused(folder):
    said = refused(folder, "chess")
    assert said.startswith("There is no chess; there are import_cost, ")


def test_busy_processes_of_others_are_named(quiet, monkeypatch):
    """It is a child of this process, which is taken for another one here."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            monkeypatch.setattr(quiet, "descendants", lambda of, there: {of})

            def is_named():
                with quiet.watched() as found:
                    quiet.look(0.2)
                return any(f"(pid {spinning.pid})" in name for name in found.named)

            assert until(is_named)
        finally:
            spinning.kill()


def test_child_processes_do_not_count_as_others(quiet):
    there = {
        pid: quiet.Process(pid, "python", parent, 0)
        for pid, parent in ((1, 0), (5, 1), (6, 5), (7, 6), (8, 1))
    }
    assert {5, 6, 7} == quiet.descendants(5, there)


@pytest.mark.parametrize(("used", "busy"), [(0.19, False), (0.21, True)])
def test_a_machine_is_busy_if_others_use_a_tenth_of_it(quiet, used, busy):
    assert busy == quiet.Found(used).is_busy(cpus=2)
