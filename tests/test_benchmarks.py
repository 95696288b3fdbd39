"""The benchmarks of the parallel engine run, and say what they are asked to say."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envkit import TimeStep

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
    "native_vectors": (["--rows=4"], 5),
    "protocols": ([], 5),
    "recovery": (["--num-envs=4"], 2),
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


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes in /proc")
def test_the_soak_makes_all_kinds_of_trouble_and_finds_every_answer_right(tmp_path):
    path = tmp_path / "figures.json"

    finished = run(
        "soak", "--steps=8400", "--troubles=10", "--num-envs=4", "--workers=2",
        "--timeout=5", f"--json={path}",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    figures = json.loads(path.read_text())
    assert figures["wrong transitions"] == figures["leaked things"] == 0
    lost = figures["kills"] + sum(
        facts["tried"]
        for kind, facts in figures["troubles"].items()
        if kind.startswith(("links", "actors"))
    )
    assert 3 < figures["restarts"] <= lost + 1
    has_ray = importlib.util.find_spec("ray") is not None
    assert len(figures["troubles"]) == 10 + has_ray
    for kind, facts in figures["troubles"].items():
        assert 0 < facts["tried"] == facts["held"], kind
        assert kind in finished.stdout


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="it kills processes")
def test_the_soak_of_replays_kills_workers_and_finds_every_stream_equal(tmp_path):
    path = tmp_path / "figures.json"

    finished = run(
        "soak_replay", "--steps=8400", "--kills=14", "--num-envs=4", "--workers=2",
        f"--json={path}",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    figures = json.loads(path.read_text())
    assert figures["streams that differ"] == figures["fell back"] == 0
    assert 7 <= figures["kills"] <= 14
    assert figures["recovered"] >= figures["kills"]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What two of the soak's environments answer, after a reset and three steps."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from soak_environments import CODES, Chained
    from soak_judge import Answer, Judge

    def answered(actions: list[int], steps: list[TimeStep], **marks: Any) -> Any:
        stacked = TimeStep(*map(np.stack, zip(*steps, strict=True)))
        return Answer(np.arange(2), np.array(actions), stacked, **marks)

    def wrong(*answers: Any) -> int:
        judge = Judge(num_envs=2)
        for answer in answers:
            judge.judge(answer)
        return len(judge.wrong)

    def begun() -> tuple[list[Any], Any]:
        envs = [Chained(0), Chained(1)]
        return envs, answered([-1, -1], [env.reset() for env in envs])

    envs, first = begun()
    stream = [first]
    for number in range(3):
        actions = [CODES * number, CODES * (10 + number)]
        steps = [env.step(np.int64(a)) for env, a in zip(envs, actions, strict=True)]
        stream.append(answered(actions, steps))
    return SimpleNamespace(stream=stream, wrong=wrong, begun=begun)


def test_the_soak_takes_what_environments_answer_for_right(soak):
    assert soak.wrong(*soak.stream) == 0


def other_actions(answer: Any) -> Any:
    return answer._replace(actions=answer.actions + 16)


def exchanged(answer: Any) -> Any:
    time_step = TimeStep(*(leaf[::-1] for leaf in answer.time_step))
    return answer._replace(time_step=time_step)


def cut(answer: Any, discount: float = 1.0, repaired: bool | None = None) -> Any:
    """The answer once more, as the last of an episode that was cut off."""
    last = answer.time_step._replace(
        step_type=np.array([2, 2], np.int32),
        reward=np.zeros(2, np.float32),
        discount=np.full(2, discount, np.float32),
    )
    marks = None if repaired is None else np.array([repaired] * 2)
    return answer._replace(time_step=last, repaired=marks)


@pytest.mark.parametrize(
    ("change", "count"),
    {
        "given twice": (lambda one, two, three: [one, two, two], 2),
        "lost": (lambda one, two, three: [one, three], 2),
        "exchanged": (lambda one, two, three: [one, exchanged(two)], 2),
        "to other actions": (lambda one, two, three: [one, other_actions(two)], 2),
        "cut off": (lambda one, two, three: [one, two, cut(two)], 0),
        "marked": (lambda one, two, three: [one, two, cut(two, repaired=True)], 0),
        "unmarked": (lambda one, two, three: [one, two, cut(two, repaired=False)], 2),
        "terminated": (lambda one, two, three: [one, two, cut(two, discount=0)], 2),
        "cut off earlier": (lambda one, two, three: [one, two, cut(one)], 2),
        "cut off, and on": (lambda one, two, three: [one, two, cut(two), three], 2),
    }.values(),
)  # fmt: skip
def test_the_soak_notices_an_answer_that_is_not_the_next_one(soak, change, count):
    assert soak.wrong(*change(*soak.stream[:3])) == count


def test_after_a_cut_the_soak_waits_for_another_environment(soak):
    *stream, last = soak.stream
    again, (_, first) = soak.stream[0], soak.begun()
    assert soak.wrong(*stream, last, cut(last), first) == 0
    assert soak.wrong(*stream, last, cut(last), again) == 2
    assert soak.wrong(*stream, last, first) == 2


def test_the_soak_plans_the_same_troubles_for_the_same_seed(soak):
    from soak_plan import KINDS, schedule

    able = {"linked": [1, 3], "ray": [4]}
    plans = [schedule(40, seed, 5, 1000, 8, able) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {each.kind for part in plans[0] for each in part} == set(KINDS)
    without = schedule(40, 1, 5, 1000, 8, {"linked": [1, 3]})
    left_out = set(KINDS) - {each.kind for part in without for each in part}
    assert [kind.needs for kind in left_out] == ["ray"]


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
