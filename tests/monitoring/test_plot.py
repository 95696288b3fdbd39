"""`envkit.plot` and `envkit plot`: which curves come out of which folders."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import envkit
from envkit.cli.main import main
from envkit.errors import MissingDependencyError
from envkit.recording import Record
from envkit.testing import CountingEnv
from envkit.wrappers import LogEpisodes

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

HEADER = "episode,row,step,time,return,length,terminated,truncated,lost\n"


def log(folder, *points, lost=()):
    """Writes a log, with a return at each step."""
    folder.mkdir(parents=True)
    text = "".join(
        f"{number},0,{step},{step / 10},{earned},5,1,0,0\n"
        for number, (step, earned) in enumerate(points, 1)
    )
    text += "".join(f"99,0,{step},1.0,,5,0,0,1\n" for step in lost)
    (folder / "episodes.csv").write_text(HEADER + text)
    return folder


def lines(figure):
    """Returns the points of each line, by its label."""
    (axes,) = figure.axes
    return {
        line.get_label(): [tuple(point) for point in line.get_xydata().tolist()]
        for line in axes.get_lines()
    }


def band(figure):
    """Returns the lower and upper end of the only band, by place."""
    ((collection,),) = [axes.collections for axes in figure.axes]
    corners = collection.get_paths()[0].vertices
    return {
        x: (corners[corners[:, 0] == x, 1].min(), corners[corners[:, 0] == x, 1].max())
        for x in np.unique(corners[:, 0]).tolist()
    }


def test_a_log_is_drawn_as_it_was_written(tmp_path):
    with LogEpisodes(CountingEnv(steps_per_episode=2), tmp_path / "x") as env:
        for _ in range(6):
            env.step(0)
        returns = list(env.return_queue)
    assert {str(tmp_path / "x"): [(2.0, returns[0]), (4.0, returns[1])]} == lines(
        envkit.plot(tmp_path / "x")
    )


def test_folders_that_differ_in_numbers_are_the_seeds_of_one_curve(tmp_path):
    log(tmp_path / "x/seed0", (10, 1), (20, 3))
    log(tmp_path / "x/seed1", (10, 3), (20, 7), (30, 9))
    figure = envkit.plot(tmp_path / "x", spread="minmax")
    # Only as far as both have come.
    assert {f"{tmp_path / 'x'} (2 runs)": [(10.0, 2.0), (20.0, 5.0)]} == lines(figure)
    assert {10.0: (1.0, 3.0), 20.0: (3.0, 7.0)} == band(figure)


def test_folders_with_other_names_are_curves_of_their_own(tmp_path):
    for name in ("ppo/0", "ppo/1", "dqn"):
        log(tmp_path / name, (10, 1), (20, 3))
    assert [str(tmp_path / "dqn"), f"{tmp_path / 'ppo/*'} (2 runs)"] == list(
        lines(envkit.plot(tmp_path))
    )


def test_each_folder_that_is_named_is_a_curve(tmp_path):
    paths = [str(log(tmp_path / f"x{number}", (10, 1))) for number in range(2)]
    assert paths == list(lines(envkit.plot(paths)))


def test_a_dictionary_has_the_labels(tmp_path):
    first, second = log(tmp_path / "a", (10, 1)), log(tmp_path / "b", (10, 3))
    figure = envkit.plot({"PPO": first, "both": [first, second]})
    assert {"PPO": [(10.0, 1.0)], "both (2 runs)": [(10.0, 2.0)]} == lines(figure)


@pytest.mark.parametrize(
    ("spread", "low", "high", "title"),
    [
        ("std", 1.0, 3.0, "mean of runs, ± standard deviation"),
        # 4.303 is Student's t for two degrees of freedom.
        (
            "ci",
            2 - 4.303 / 3**0.5,
            2 + 4.303 / 3**0.5,
            "mean of runs, 95% confidence interval",
        ),
        ("minmax", 1.0, 3.0, "mean of runs, minimum to maximum"),
    ],
)
def test_the_legend_says_what_the_band_is(tmp_path, spread, low, high, title):
    for seed, earned in enumerate((1, 2, 3)):
        log(tmp_path / str(seed), (10, earned), (20, earned))
    figure = envkit.plot(tmp_path, spread=spread)
    assert pytest.approx((low, high)) == band(figure)[10.0]
    assert title == figure.axes[0].get_legend().get_title().get_text()


def test_the_median_is_not_moved_by_one_seed(tmp_path):
    for seed, earned in enumerate((1, 2, 90)):
        log(tmp_path / str(seed), (10, earned))
    figure = envkit.plot(tmp_path, center="median", spread="none")
    assert [[(10.0, 2.0)]] == list(lines(figure).values())


def test_a_window_averages_the_last_episodes(tmp_path):
    log(tmp_path / "x", (10, 1), (20, 3), (30, 8))
    figure = envkit.plot(tmp_path / "x", window=2)
    assert [[(10.0, 1.0), (20.0, 2.0), (30.0, 5.5)]] == list(lines(figure).values())
    assert "return (mean of 2 episodes)" == figure.axes[0].get_ylabel()


def test_lost_episodes_are_left_out(tmp_path):
    log(tmp_path / "x", (10, 1), (20, 3), lost=[30])
    assert [[(10.0, 1.0), (20.0, 3.0)]] == list(
        lines(envkit.plot(tmp_path / "x")).values()
    )


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    folder = log(tmp_path / "x", (10, 1))
    with (folder / "episodes.csv").open("a") as file:
        file.write("2,0,2")
    assert [[(10.0, 1.0)]] == list(lines(envkit.plot(folder)).values())


@pytest.mark.parametrize(
    ("x", "label", "place"),
    [("step", "environment steps", 10.0), ("time", "seconds", 1.0),
     ("episode", "episodes", 1.0)],
)  # fmt: skip
def test_the_x_axis_can_be_chosen(tmp_path, x, label, place):
    figure = envkit.plot(log(tmp_path / "x", (10, 7)), x=x, y="length")
    assert [[(place, 5.0)]] == list(lines(figure).values())
    assert (label, "length") == (
        figure.axes[0].get_xlabel(),
        figure.axes[0].get_ylabel(),
    )


def test_a_recording_has_the_curve_of_its_log(tmp_path):
    batch = envkit.make("Catch", batch_size=3, seed=1)
    with Record(LogEpisodes(batch, tmp_path / "log"), tmp_path / "recording") as env:
        for _ in range(25):
            env.step([0, 1, 2])
    curves = lines(envkit.plot([tmp_path / "log", tmp_path / "recording"]))
    logged, recorded = curves.values()
    assert logged == recorded


def test_a_curve_can_be_drawn_into_axes(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert figure is envkit.plot(log(tmp_path / "x", (10, 1)), ax=right)
    assert (0, 1) == (len(left.get_lines()), len(right.get_lines()))


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("nowhere", {}, "There is no folder"),
        ("nothing", {}, "neither it nor a folder in it has episodes.csv"),
        ("begun", {}, "No episode of the run in"),
        ("other", {}, "is not a log of LogEpisodes"),
        ("broken", {}, "cannot be read"),
        ("x", {"y": "returned"}, "has no 'returned': it has 'episode'"),
        ("x", {"x": "steps"}, "x must be one of 'step', 'time', 'episode'"),
        ("x", {"spread": "sd"}, "spread must be one of 'std', 'minmax'"),
        ("nan", {}, "has no number for 'return'"),
        ("x", {"window": 0}, "window must be"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(tmp_path, name, options, text):
    (tmp_path / "nothing").mkdir()
    log(tmp_path / "begun")
    log(tmp_path / "x", (10, 1))
    log(tmp_path / "nan", (10, "nan"))
    for other, content in (("other", "l,r\n1,2\n"), ("broken", f"{HEADER}1,a\n")):
        (log(tmp_path / other) / "episodes.csv").write_text(content)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        envkit.plot(tmp_path / name, **options)
    assert text in str(caught.value)


def test_a_missing_matplotlib_is_named_with_the_command(tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "matplotlib" else find(name, *more),
    )
    with pytest.raises(MissingDependencyError, match="pip install"):
        envkit.plot(log(tmp_path / "x", (10, 1)))
    assert 2 == main(["plot", str(tmp_path / "x")])
    assert "envkit plot needs the package matplotlib" in capsys.readouterr().err


def test_the_command_writes_a_file_without_a_display(tmp_path):
    """In a process of its own: matplotlib keeps the files of its fonts open."""
    for seed in range(2):
        log(tmp_path / f"runs/seed{seed}", (10, 1), (20, 2))
    program = (
        "import sys\n"
        "from envkit.cli.main import main\n"
        "status = main(['plot', 'runs'])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 0 == main(['plot', 'runs', '-o', 'curves.svg', '--json'])\n"
        "sys.exit(status)\n"
    )
    environ = {name: os.environ[name] for name in os.environ if name != "DISPLAY"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (0, "") == (done.returncode, done.stderr)
    told, drawn, *document = done.stdout.splitlines()
    assert "runs: 2 runs, 4 episodes, to step 20" == told
    assert "drawn in curves.png" == drawn
    assert b"\x89PNG" == (tmp_path / "curves.png").read_bytes()[:4]
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    assert ["runs/seed0", "runs/seed1"] == json.loads("\n".join(document))["curves"][
        "runs"
    ]
