"""The programs that a reader is told to run do run."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import envkit
from envkit.testing import check_environment
from tests.waiting import PATIENCE

ROOT = Path(__file__).parent.parent


def started(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def run(*command: str) -> str:
    finished = started(*command)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_the_demo_compares_speeds_and_survives_a_killed_worker():
    output = run("examples/demo.py", "--num_envs=2", "--seconds=0.02")
    for way in ("a plain loop", "AsyncVectorEnv", "worker processes", "vectorize"):
        assert way in output
    assert "was killed at step 200 of 400" in output
    assert "all 400 steps were made, 1 worker was replaced" in " ".join(output.split())


@pytest.mark.parametrize("asked", [[], ["Catch"]])
def test_the_requested_environments_are_in_the_table(asked):
    options = [f"--envs={name}" for name in asked]
    output = run(
        "examples/every_environment.py", "--num_envs=2", "--steps=20", *options
    )
    every = ("Bandit", "CartPole", "Catch", "GridWorld", "TicTacToe")
    assert [name for name in every if name in output] == (asked or list(every))
    for heading in ("steps per second", "episodes", "mean return"):
        assert heading in output


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["process", pytest.param("ray", marks=pytest.mark.heavy)]
)
def test_the_cross_entropy_method_learns_on_workers_anywhere(backend):
    if backend == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    output = run(
        "examples/ray_cross_entropy.py", f"--backend={backend}", "--generations=3"
    )
    returns = [int(line.split()[-1]) for line in output.splitlines()[1:]]
    assert 2 * returns[0] < returns[-1]


def test_q_learning_learns_to_catch():
    output = run("examples/q_learning.py", "--steps=1200")
    returns = [float(line.split()[-1]) for line in output.splitlines()]
    assert returns[0] < 0.0 < returns[-1]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    "backend", [pytest.param("process", marks=pytest.mark.heavy), "inline"]
)
def test_a_run_stopped_by_signals_has_the_same_result(tmp_path, backend):
    options = ["--num_envs=8", "--steps=300", "--save_every=20"]
    file = "examples/preempted.py"
    whole = run(
        file, *options, f"--checkpoint={tmp_path / 'whole'}", "--backend=inline"
    )
    command = [
        *(sys.executable, "-u", file, *options),
        *(f"--checkpoint={tmp_path / 'often'}", f"--backend={backend}"),
    ]
    # Stopped where it stands when so many lines have come: asked to, and not asked.
    stops = [(1, signal.SIGTERM), (4, signal.SIGTERM), (3, signal.SIGKILL)]
    said = ""
    for lines, number in [*stops, (0, None)]:
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
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


@pytest.mark.parametrize("how", ["compiled", "plain"])
def test_the_lamplighter_learns_on_a_batch_of_rules(how):
    few = ["--num_envs=8", "--updates=2"]
    if how == "compiled":
        pytest.importorskip("numba", reason="numba is not installed")
        few = ["--num_envs=256", "--updates=91"]
    output = run(
        "examples/lamplighter.py", *few, *(["--plain"] if how == "plain" else [])
    )
    assert "million steps a second" in output
    shares = [float(line.split()[2]) for line in output.splitlines()[1:]]
    if how == "compiled":
        assert shares[0] < 0.6 < shares[-1]


def test_the_random_policy_in_parallel_ends_in_a_table_of_the_workers():
    output = run(
        "examples/parallel_random_policy.py",
        "--num_envs=4",
        "--num_workers=2",
        "--steps=60",
    )
    assert "steps per second" in output
    rows = [line.split() for line in output.splitlines()[-2:]]
    assert [["0", "0-1"], ["1", "2-3"]] == [[row[0], row[2]] for row in rows]


def test_both_halves_print_the_same_result():
    output = run("examples/async_halves.py", "--num_envs=4", "--steps=10")
    for way in ("in lockstep", "in halves"):
        assert way in output


def test_the_new_librarys_game_is_won_by_braking():
    output = run(
        "examples/new_library.py", "--num_envs=4", "--num_workers=2", "--steps=80"
    )
    soft = {
        name.strip(): int(share)
        for name, share in re.findall(r"^(.{13}).* (\d+)% soft", output, re.M)
    }
    assert soft["at random"] < 50 < soft["careful"]


def test_the_new_library_is_supported_in_fifteen_lines():
    program = (ROOT / "examples/new_library.py").read_text("utf-8")
    (adapter,) = re.findall(r"^class LanderEnv.*?(?=^#|^class )", program, re.M | re.S)
    assert len(list(filter(str.strip, adapter.splitlines()))) <= 15


def test_a_library_is_supported_in_twenty_lines(monkeypatch):
    """It keeps the contract, and plays in worker processes."""
    pytest.importorskip("rlcard")
    monkeypatch.syspath_prepend(ROOT / "examples")
    adapter = importlib.import_module("three_libraries").LIBRARIES["rlcard"]
    written = inspect.getsource(adapter).partition('"""\n')[2]
    assert len(list(filter(str.strip, written.splitlines()))) <= 20
    check_environment(adapter, steps=40, require=["info", "seed", "state"])
    played = run("examples/three_libraries.py", "--num_envs=2", "--steps=20")
    assert re.search(r"^rlcard +\d+ episodes", played, re.M)


def test_a_library_with_an_adapter_needs_a_name():
    pytest.importorskip("pyspiel")
    played = run("examples/three_libraries.py", "--num_envs=2", "--steps=20")
    assert re.search(r"^pyspiel +\d+ episodes", played, re.M)


@pytest.mark.slow
def test_the_third_library_needs_only_a_name(monkeypatch):
    pytest.importorskip("highway_env")
    monkeypatch.syspath_prepend(ROOT / "examples")
    target = importlib.import_module("three_libraries").LIBRARIES["highway_env"]
    # Otherwise a step takes a tenth of a second.
    quick = {"vehicles_count": 2, "duration": 3, "simulation_frequency": 1}
    make_env = functools.partial(envkit.make, target, config=quick)
    check_environment(make_env, steps=6, require=["seed"])


@pytest.mark.slow
def test_reinforce_learns_and_draws_its_progress(tmp_path):
    from PIL import Image  # the other tests of this file need the install needs only

    output = run(
        "examples/tf_reinforce.py",
        "--goal=35",
        "--max_seconds=3600",
        f"--output_dir={tmp_path}",
    )

    means = [float(value) for value in re.findall(r"episodes: (\S+)", output)]
    assert means[0] < 25.0 < 35.0 <= means[1]
    assert "not reached" not in output
    assert ["learning_curve.png", "trained.gif"] == sorted(os.listdir(tmp_path))
    for path in tmp_path.iterdir():
        assert str(path) in output
    with Image.open(tmp_path / "learning_curve.png") as curve:
        assert ("PNG", (840, 480)) == (curve.format, curve.size)
    with Image.open(tmp_path / "trained.gif") as film:
        assert ("GIF", (240, 100)) == (film.format, film.size)
        assert film.n_frames > 10


@pytest.mark.slow
@pytest.mark.heavy
def test_reinforce_says_that_it_needs_more_time(tmp_path):
    output = run(
        "examples/tf_reinforce.py",
        "--num_envs=2",
        "--max_seconds=1",
        f"--output_dir={tmp_path}",
    )
    assert (
        "The goal of 475 was not reached in time: raise --max_seconds, or try another "
        "--seed."
    ) in output


def test_reinforce_says_how_to_install_missing_packages():
    program = (
        "import runpy, sys; sys.modules['tensorflow'] = None; "
        "runpy.run_path('examples/tf_reinforce.py')"
    )

    finished = started("-c", program)
    assert (
        1,
        "This example needs the package tensorflow, which is not installed. "
        'pip install "tensorflow>=2.16" "matplotlib>=3.9" "imageio-ffmpeg>=0.5.1"\n',
    ) == (finished.returncode, finished.stderr)


def test_an_agent_that_thinks_longer_catches_less(tmp_path):
    picture = tmp_path / "returns.png"
    output = run("examples/realtime_catch.py", "--episodes=32", f"--out={picture}")
    rows = re.findall(r"│ +(\d+) │ +([\d.]+) │ +([-+][\d.]+) │", output)
    assert ["0", "50", "150"] == [think_time for think_time, *_ in rows]
    ticks = [float(ticks) for _, ticks, _ in rows]
    returns = [float(mean) for *_, mean in rows]
    assert 1.0 == ticks[0] < ticks[1] < ticks[2]
    assert 1.0 == returns[0] > returns[1] > returns[2]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.heavy
def test_ppo_in_torch_learns_and_draws_its_curve(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    output = run(
        "examples/torch_ppo.py",
        "--goal=60",
        "--steps=40960",
        f"--output_dir={tmp_path}",
    )

    assert "not reached" not in output
    mean = float(re.findall(r"episodes: (\S+)", output)[0])
    assert mean >= 60.0
    assert (tmp_path / "torch_ppo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.heavy
def test_ppo_in_torch_plays_a_game_of_atari(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    output = run(
        "examples/torch_ppo.py",
        "--env=ale:Pong",
        "--rollout=8",
        "--steps=256",
        f"--output_dir={tmp_path}",
    )

    assert output.startswith("256 steps")
    assert (tmp_path / "torch_ppo.png").exists()


def test_ppo_in_torch_says_how_to_install_missing_packages():
    program = (
        "import runpy, sys; sys.modules['torch'] = None; "
        "runpy.run_path('examples/torch_ppo.py')"
    )

    finished = started("-c", program)
    assert (
        1,
        "This example needs the package torch, which is not installed. "
        'pip install "torch>=2.4" "matplotlib>=3.9"\n',
    ) == (finished.returncode, finished.stderr)


needs_a_screen = pytest.mark.skipif(
    shutil.which("Xvnc") is None, reason="Xvnc is not installed"
)


@pytest.mark.slow
@needs_a_screen
def test_an_agent_plays_a_game_on_a_screen_and_makes_a_film(tmp_path):
    """How well it learns to play depends on how busy the machine is."""
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    picture = tmp_path / "film.gif"
    output = run(
        "examples/desktop_game.py",
        "--num_envs=1",
        "--steps=60",
        "--max_seconds=3600",
        "--shown_seconds=0",
        f"--film={picture}",
    )
    points = [float(mean) for mean in re.findall(r"drives: ([\d.]+) points", output)]
    assert 2 == len(points)
    assert "key to pixel" in output
    assert str(picture) in output
    with image.open(picture) as film:
        assert ("GIF", (648, 260)) == (film.format, film.size)


@pytest.mark.slow
@needs_a_screen
@pytest.mark.skipif(not shutil.which("xterm"), reason="xterm is not installed")
def test_an_agent_finds_its_way_through_an_adventure_by_reading():
    output = run("examples/desktop_terminal.py", "--episodes=32")
    words = [line.split()[4:] for line in output.splitlines()]
    assert 25 == len(words[0])
    assert "north west south take north east north west open" == " ".join(words[-1])


@pytest.mark.parametrize("name", ["desktop_game", "desktop_terminal"])
def test_screen_examples_name_the_missing_packages(name):
    finished = subprocess.run(
        [sys.executable, f"examples/{name}.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == finished.returncode
    assert "which is not installed. apt-get install " in finished.stderr
    assert "Traceback" not in finished.stderr
