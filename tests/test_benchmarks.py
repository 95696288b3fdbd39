"""The benchmarks of the parallel engine run, and say what they are asked to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envkit import TimeStep

ROOT = Path(__file__).parent.parent
# By script: the least it can be told to do, and how many ratios are asked of it.
SCRIPTS = {
    "batched_envs": (["--batch-size=16"], 3),
    "import_cost": ([], 1),
    "overhead": ([], 3),
    "parallel_step": (["--num-envs=2", "--sizes", "1", "2"], 8),
    "efficiency": (["--num-envs=2"], 10),
    "images": (["--num-envs=2"], 8),
    "stragglers": (["--num-envs=4", "--work=1"], 3),
    "tf_environment": (["--sizes", "2", "--compiled=8"], 3),
    "wrappers": (["--rows=4"], 39),
    "adapters": (["--rows=4"], 14),
    "native_vectors": (["--rows=4"], 5),
    "realtime": (["--hz", "60", "--think=0.01"], 2),
    "scaling": (
        ["--num-envs=2", "--sizes", "1", "--workers", "1", "--step-times", "0"],
        1,
    ),
    "startup": (["--num-envs=2", "--without-tensorflow"], 4),
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
def test_the_soak_kills_workers_and_finds_every_answer_right(tmp_path):
    path = tmp_path / "figures.json"

    finished = run(
        "soak", "--steps=20000", "--kills=8", "--workers=2", f"--json={path}"
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    figures = json.loads(path.read_text())
    assert figures["wrong transitions"] == 0
    assert figures["leaked things"] == 0
    assert 2 <= figures["restarts"] <= figures["kills"]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What two of the soak's environments answer, after a reset and three steps."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from environments import Telling

    envs = [Telling(0), Telling(1)]
    actions = [np.array([-1, -1]), *(np.array([i, 10 + i]) for i in range(3))]
    answers = [[env.reset() for env in envs]]
    answers += [
        [env.step(action) for env, action in zip(envs, batch, strict=True)]
        for batch in actions[1:]
    ]
    return [
        (batch, TimeStep(*map(np.stack, zip(*steps, strict=True))))
        for batch, steps in zip(actions, answers, strict=True)
    ]


def wrong(answers: Any) -> int:
    from soak import Judge

    judge = Judge(num_envs=2)
    for actions, answer in answers:
        judge.judge(np.arange(2), actions, answer)
    return len(judge.wrong)


def test_the_soak_takes_what_environments_answer_for_right(stream):
    assert wrong(stream) == 0


def test_the_soak_notices_an_answer_that_is_given_twice(stream):
    assert wrong([*stream[:2], stream[1], *stream[2:]]) == 2


def test_the_soak_notices_an_answer_that_is_lost(stream):
    assert wrong([stream[0], *stream[2:]]) == 2


def test_the_soak_notices_answers_that_are_exchanged(stream):
    actions, answer = stream[1]
    exchanged = TimeStep(*(leaf[::-1] for leaf in answer))

    assert wrong([stream[0], (actions, exchanged)]) == 2


def test_the_soak_takes_a_cut_episode_for_right_only_as_a_truncation(stream):
    (_, answer), (actions, _) = stream[:2]
    cut = answer._replace(step_type=np.array([2, 2], np.int32))
    terminated = cut._replace(discount=np.zeros(2, np.float32))

    assert wrong([stream[0], (actions, cut)]) == 0
    assert wrong([stream[0], (actions, terminated)]) == 2
