"""The soak itself: it makes trouble, and notices every wrong answer."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envkit import TimeStep
from tests.soak.environments import CODES, Chained
from tests.soak.judge import Answer, Judge
from tests.soak.plan import KINDS, schedule

ROOT = Path(__file__).parents[2]


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tests.soak.{program}", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes in /proc")
def test_the_soak_makes_all_kinds_of_trouble_and_finds_every_answer_right(tmp_path):
    path = tmp_path / "figures.json"

    finished = run(
        "run", "--steps=8400", "--troubles=10", "--num-envs=4", "--workers=2",
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
        "replays", "--steps=8400", "--kills=14", "--num-envs=4", "--workers=2",
        f"--json={path}",
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    figures = json.loads(path.read_text())
    assert figures["streams that differ"] == figures["fell back"] == 0
    assert 7 <= figures["kills"] <= 14
    assert figures["recovered"] >= figures["kills"]


@pytest.fixture
def soak() -> Any:
    """The answers of two soak environments to a reset and three steps."""

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
    able = {"linked": [1, 3], "ray": [4]}
    plans = [schedule(40, seed, 5, 1000, 8, able) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {each.kind for part in plans[0] for each in part} == set(KINDS)
    without = schedule(40, 1, 5, 1000, 8, {"linked": [1, 3]})
    left_out = set(KINDS) - {each.kind for part in without for each in part}
    assert [kind.needs for kind in left_out] == ["ray"]
