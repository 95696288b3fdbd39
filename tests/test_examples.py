"""The examples run for a reader who has copied one and changes the constants in it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE
from tools import time_examples

ROOT = Path(__file__).parent.parent
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}


def copied(folder: Path, name: str, **constants: object) -> Path:
    """Copies an example into a folder of its own, with other constants."""
    program = (ROOT / f"examples/{name}.py").read_text("utf-8")
    for constant, value in constants.items():
        line = re.compile(rf"^{constant} = .*$", re.M)
        program, count = line.subn(f"{constant} = {value!r}", program)
        assert count == 1, constant
    file = folder / "my programs" / f"{name}.py"
    file.parent.mkdir()
    file.write_text(program, "utf-8")
    return file


def run(folder: Path, name: str, **constants: object) -> str:
    """Runs a copy of an example in its folder; returns what it printed."""
    file = copied(folder, name, **constants)
    finished = subprocess.run(
        [sys.executable, file.name],
        cwd=file.parent,
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Warning:" not in finished.stderr
    return finished.stdout


def is_a_picture(folder: Path, name: str) -> bool:
    start = (folder / "my programs" / name).read_bytes()[:6]
    return start in (b"\x89PNG\r\n", b"GIF89a")


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"[-+]?\d+\.?\d*", line)]


def test_the_table_of_examples_says_what_the_programs_say():
    page = time_examples.README.read_text("utf-8")
    known = time_examples.figures()
    assert time_examples.names() == sorted(known)
    assert time_examples.table(known) in page
    assert all(end and float(cpu) < 120.0 for end, _, cpu in known.values())


@pytest.mark.slow
def test_the_demo_compares_speeds_and_survives_a_killed_worker(tmp_path):
    # Constants in pairs are one line.
    output = run(tmp_path, "demo", SECONDS=0.02)
    for way in ("a plain loop", "AsyncVectorEnv", "worker processes"):
        assert way in output
    assert re.search("1 worker was replaced, and [1-9]", output)


def test_ones_own_environment_is_checked_and_learned(tmp_path):
    output = run(tmp_path, "own_environment", EPISODES=1000)
    before, after = numbers(output.splitlines()[-1])[1:]
    assert before < -40.0 < -20.0 < after


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["process", pytest.param("ray", marks=pytest.mark.heavy)]
)
def test_the_cross_entropy_method_learns_on_workers_anywhere(tmp_path, backend):
    if backend == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    output = run(tmp_path, "ray_cross_entropy", BACKEND=backend, GENERATIONS=3)
    returns = [numbers(line)[1] for line in output.splitlines()[1:]]
    assert 2 * returns[0] < returns[-1]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    "backend", [pytest.param("process", marks=pytest.mark.heavy), "inline"]
)
def test_a_run_stopped_by_signals_has_the_same_result(tmp_path, backend):
    short = {"STEPS": 300, "SAVE_EVERY": 20}
    (tmp_path / "whole").mkdir()
    whole = run(tmp_path / "whole", "preempted", BACKEND="inline", **short)
    file = copied(tmp_path, "preempted", BACKEND=backend, **short)
    # Stopped where it stands when so many lines have come: asked to, and not asked.
    stops = [(1, signal.SIGTERM), (4, signal.SIGTERM), (3, signal.SIGKILL)]
    said = ""
    for lines, number in [*stops, (0, None)]:
        with subprocess.Popen(
            [sys.executable, "-u", file],
            cwd=file.parent,
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            said = "".join(program.stdout.readline() for _ in range(lines))
            if number is not None:
                program.send_signal(number)
            rest, errors = program.communicate(timeout=PATIENCE)
        said += rest
        # It may have come to the end before the signal came.
        assert program.returncode in (0, -signal.SIGKILL), errors
    last = said.splitlines()[-1]
    assert last == whole.splitlines()[-1]
    assert last.startswith("learned ")


def test_the_lamplighter_learns_on_a_batch_of_rules(tmp_path):
    pytest.importorskip("numba", reason="numba is not installed")
    output = run(tmp_path, "lamplighter", NUM_ENVS=256)
    shares = [numbers(line)[1] for line in output.splitlines()[1:]]
    assert shares[0] < 0.6 < shares[-1]


def test_lockstep_and_halves_are_compared(tmp_path):
    output = run(tmp_path, "async_halves", STEPS=10)
    assert ["lockstep", "halves", "halves"] == re.findall("^[a-z]+", output, re.M)


def test_agents_in_groups_guess_words_in_sessions(tmp_path):
    output = run(tmp_path, "word_sessions", SESSIONS=12, GROUPS=4, SECONDS=0.0)
    found, attempts, guesses = numbers(output.splitlines()[-1])
    assert 8 < found <= attempts == 32
    assert 1.0 < guesses < 3.0


def test_agents_in_groups_count_legs_in_sessions(tmp_path):
    pytest.importorskip("reasoning_gym", reason="reasoning_gym is not installed")
    output = run(tmp_path, "leg_sessions", SESSIONS=12, GROUPS=16)
    right, answers = numbers(output.splitlines()[-1])
    assert 0 < right < answers == 128


def test_the_new_librarys_game_is_won_by_braking(tmp_path):
    output = run(tmp_path, "new_library", STEPS=80)
    at_random, careful = (numbers(line)[1] for line in output.splitlines()[-2:])
    assert at_random < 50 < careful


def test_the_new_library_is_supported_in_fifteen_lines():
    program = (ROOT / "examples/new_library.py").read_text("utf-8")
    (adapter,) = re.findall(r"^class LanderEnv.*?(?=^#|^class )", program, re.M | re.S)
    assert len(list(filter(str.strip, adapter.splitlines()))) <= 15


def test_an_agent_that_thinks_longer_catches_less(tmp_path):
    output = run(tmp_path, "realtime_catch", EPISODES=32, THINK_TIMES=[0.0, 0.05, 0.15])
    returns = [numbers(line)[1] for line in output.splitlines()[-3:]]
    assert 1.0 == returns[0] > returns[1] > returns[2]
    assert is_a_picture(tmp_path, "realtime_catch.png")


@pytest.mark.slow
def test_dqn_in_tensorflow_learns_and_draws_its_curve(tmp_path):
    output = run(tmp_path, "dqn_tensorflow", STEPS=6400, SIZE=3)
    assert numbers(output.splitlines()[-1])[1] < 4.0
    assert is_a_picture(tmp_path, "dqn_tensorflow.png")


@pytest.mark.slow
@pytest.mark.heavy
def test_ppo_in_torch_learns(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    output = run(tmp_path, "ppo_torch", STEPS=50_000)
    assert numbers(output.splitlines()[-1])[1] >= 100.0


@pytest.mark.slow
@pytest.mark.heavy
def test_stable_baselines3_learns(tmp_path):
    pytest.importorskip("stable_baselines3", reason="it is not installed")
    output = run(tmp_path, "sb3", STEPS=20_000)
    assert numbers(output.splitlines()[-1])[1] >= 100.0


@pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is not None,
    reason="Stable-Baselines3 is there",
)
def test_an_example_names_the_package_that_it_misses(tmp_path):
    file = copied(tmp_path, "sb3")
    finished = subprocess.run(
        [sys.executable, file], env=ENVIRON, capture_output=True, text=True, check=False
    )
    assert (1, 'pip install "stable-baselines3>=2.4"') == (
        finished.returncode,
        finished.stderr.strip().partition(". ")[2],
    )


needs_a_screen = pytest.mark.skipif(
    shutil.which("Xvnc") is None, reason="Xvnc is not installed"
)


@pytest.mark.slow
@needs_a_screen
def test_an_agent_plays_a_game_on_a_screen_and_makes_a_film(tmp_path):
    """How well it learns to play depends on how busy the machine is."""
    pytest.importorskip("pygame")
    pytest.importorskip("PIL.Image")
    output = run(tmp_path, "desktop_game", STEPS=20, TEST_DRIVES=1)
    assert re.search(r"points of a drive: \d+ at first, \d+ after", output)
    assert is_a_picture(tmp_path, "desktop_game.gif")


@pytest.mark.slow
@needs_a_screen
@pytest.mark.skipif(not shutil.which("xterm"), reason="xterm is not installed")
def test_an_agent_finds_its_way_through_an_adventure_by_reading(tmp_path):
    first, *_, last = run(tmp_path, "desktop_terminal", GAMES=40).splitlines()
    assert 25.0 == numbers(first)[1]
    assert last.endswith(": north west south take north east north west open")


@pytest.mark.parametrize("name", ["desktop_game", "desktop_terminal"])
def test_screen_examples_name_the_missing_packages(tmp_path, name):
    file = copied(tmp_path, name)
    finished = subprocess.run(
        [sys.executable, file],
        env={**ENVIRON, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == finished.returncode
    assert "which is not installed. apt-get install " in finished.stderr
