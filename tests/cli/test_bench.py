"""`envkit bench`: ways to step an environment, tried for moments here."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import envkit
from envkit import TimeStep
from envkit.cli.bench import (
    Candidate,
    Figures,
    Measured,
    as_table,
    candidates,
    equals_of,
    failures,
    more_workers,
    pool_of,
    time_steps,
    winner_of,
    worker_counts,
)
from envkit.cli.main import main
from envkit.envs import CartPole
from envkit.errors import MissingDependencyError
from envkit.testing import CountingEnv, ManualClock
from tests import residue
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

COUNTING = "envkit.testing:CountingEnv"
QUICKLY = ("--num-envs=2", "--seconds=0.02", "--rounds=2")
HERE = __name__
ROOT = Path(envkit.__file__).parents[1]


class Lame(CountingEnv):
    """Cannot step."""

    def _step(self, action: object) -> TimeStep:
        raise RuntimeError("It has\nno legs.")


class Marked(CountingEnv):
    """Takes what JSON has not."""

    def __init__(self, marks):
        super().__init__()
        self.marks = marks


class Loud(CountingEnv):
    """Prints."""

    def _step(self, action: object) -> TimeStep:
        os.write(1, b"loud\n")
        return super()._step(action)


class Unseedable(CountingEnv):
    """Cannot be seeded."""

    def seed(self, seed=None):
        raise NotImplementedError("Nobody has thrown these dice.")


class OnlyHere(CountingEnv):
    """Can be made in the process of the command alone."""

    def __init__(self) -> None:
        if not hasattr(sys, "process_of_the_command"):
            raise OSError("There is no game here.")
        super().__init__()


class Worded(CountingEnv):
    """Names an argument as the pool does."""

    def __init__(self, backend: str = "") -> None:
        super().__init__()
        self.backend = backend


def benched(capsys, *arguments):
    """Returns what the command tells programs."""
    assert 0 == main(["bench", *QUICKLY, "--json", *arguments])
    return json.loads(capsys.readouterr().out)


def in_a_process(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "envkit", "bench", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def test_each_backend_is_tried_with_each_count_of_workers(capsys):
    found = benched(capsys, COUNTING, "--workers=1,2")

    assert [
        ("inline", 1),
        ("thread", 1),
        ("thread", 2),
        ("process", 1),
        ("process", 2),
    ] == [(tried["backend"], tried["workers"]) for tried in found["tries"]]
    assert [None] * 5 == [tried["error"] for tried in found["tries"]]
    for tried in found["tries"]:
        figures = tried["figures"]
        assert 2 == figures["rows"]
        assert figures["steps_per_second"] in figures["speeds"] + [
            sum(figures["speeds"]) / 2
        ]
        assert 0 < figures["median"] <= figures["p99"]
        assert 1 == tried["in_env"] + tried["transport"]
    if residue.ON_LINUX:
        assert [False, False, False, True, True] == [
            tried["memory"] is not None for tried in found["tries"]
        ]
    assert found["machine"]["envkit"] == envkit.__version__


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("CartPole", []),
        (COUNTING, ["--arg=steps_per_episode=3"]),
        (f"{HERE}:Worded", ["--arg=backend=x11"]),
    ],
    ids=["batch", "with arguments", "with an argument of the pool's name"],
)
def test_the_calls_shown_make_the_measured_environments(target, arguments, capsys):
    found = benched(capsys, target, *arguments, "--backends=batch,inline,thread")
    assert {*found["equals"]} <= {tried["call"] for tried in found["tries"]}
    assert found["best"] in (None, found["equals"][0])
    for tried in found["tries"]:
        with eval(tried["call"], {"envkit": envkit}) as env:
            assert 2 == env.batch_size
            env.reset()
            if "Worded" in target:
                assert ["x11"] * 2 == env.access("backend")


def test_the_table_marks_the_best_and_ends_with_its_call(capsys):
    assert 0 == main(["bench", COUNTING, *QUICKLY, "--backends=inline"])
    shown = capsys.readouterr()
    assert "★ inline" in shown.out
    call = "envkit.make('envkit.testing:CountingEnv', num_envs=2, backend='inline', "
    assert shown.out.endswith(f"\nThe fastest here:\n\n  {call}num_workers=1)\n")
    assert "" == shown.err


def tried_at(workers, *speeds):
    figures = Figures(2, speeds, 1.0, 1.0, 1)
    return Measured(pool_of(COUNTING, {}, 2, "process", workers), figures)


@pytest.mark.parametrize(
    ("tries", "equals", "winner"),
    [
        ([tried_at(1, 95.0), tried_at(2, 100.0)], [2], 2),
        ([tried_at(1, 94.0, 95.0), tried_at(2, 98.0, 101.0)], [2], 2),
        ([tried_at(1, 95.0), tried_at(2, 90.0, 100.0, 110.0)], [1, 2], None),
        ([tried_at(1, 80.0, 95.0, 99.0), tried_at(2, 100.0)], [1, 2], None),
        (
            [tried_at(1, 40.0), tried_at(2, 90.0, 110.0), tried_at(3, 95.0)],
            [2, 3],
            None,
        ),
        ([], [], None),
    ],
    ids=["no range", "far", "best is wide", "other is wide", "one is far", "nothing"],
)
def test_no_winner_if_rounds_differ_more_than_ways(tries, equals, winner):
    broken = Measured(pool_of(COUNTING, {}, 2, "thread", 1), error="no")
    found = [*tries, broken]
    best = winner_of(found)
    assert equals == [tried.candidate.workers for tried in equals_of(found)]
    assert winner == (best and best.candidate.workers)
    assert ["thread with 1 worker: no"] == failures(found)
    assert ["★" in line for line in as_lines(found)] == [
        tried is best for tried in found
    ]


def as_lines(tries):
    return [str(cell) for cell in as_table(tries).columns[0].cells]


def test_the_command_says_that_there_is_no_winner(capsys, monkeypatch):
    speeds = iter([(90.0, 110.0), (95.0, 115.0)])

    def measured(way, *_):
        return Measured(way, Figures(2, next(speeds), 1.0, 1.0, 1))

    monkeypatch.setattr("envkit.cli.bench.measure", measured)
    assert 0 == main(
        ["bench", COUNTING, *QUICKLY, "--backends=thread", "--workers=1,2"]
    )
    printed = capsys.readouterr().out
    assert "★" not in printed
    assert printed.endswith(
        "\n"
        "No clear winner: the rounds vary more than thread with 1 worker, "
        "thread with 2 workers differ.\n"
        "More --seconds may tell them apart. The simplest:\n"
        "\n"
        "  envkit.make('envkit.testing:CountingEnv', num_envs=2, backend='thread', "
        "num_workers=1)\n"
    )


class Legal(CountingEnv):
    """Raises at an illegal action; its info names the legal one."""

    def get_info(self):
        return {"action_mask": np.arange(2) == self._current_step % 2}

    def _step(self, action):
        if int(action) != self._current_step % 2:
            raise ValueError(f"Action {action} is illegal.")
        return super()._step(action)


def legal(time_step):
    return time_step.observation % 2


@pytest.mark.parametrize("policy", [[], [f"--policy={HERE}:legal"]])
def test_only_legal_actions_are_stepped(policy, capsys):
    found = benched(capsys, f"{HERE}:Legal", "--backends=inline,thread", *policy)
    assert [None, None, None] == [tried["error"] for tried in found["tries"]][:3]


def test_output_of_environments_stays_out_of_the_figures(capfd):
    ways = ["--backends=inline,process", "--workers=1", "--json"]
    assert 0 == main(["bench", f"{HERE}:Loud", *QUICKLY, *ways])
    printed = capfd.readouterr()
    assert 2 == len(json.loads(printed.out)["tries"])
    assert "loud\n" in printed.err


def test_an_error_in_close_is_one_line():
    crashing = ["envkit.testing:CrashingEnv", "--arg=where=close"]
    done = in_a_process(*crashing, *QUICKLY, "--workers=1", "--json")
    ways = [tried["backend"] for tried in json.loads(done.stdout)["tries"]]
    assert ["inline", "thread", "process"] == ways
    # Every way to step has two environments to close.
    assert [
        "close() of 2 environments raised RuntimeError: CrashingEnv was told to raise "
        "in close 1."
    ] * 3 == [line.partition(" (")[0] for line in done.stderr.splitlines()]


class Shut(CartPole):
    """A batch that cannot be closed."""

    def close(self):
        raise RuntimeError("It is shut already.")


def test_a_batch_that_cannot_be_closed_still_has_figures(capsys):
    found = benched(capsys, f"{HERE}:Shut", "--backends=batch")
    assert [None] == [tried["error"] for tried in found["tries"]]


def test_an_environment_with_its_own_batches_is_tried_as_a_batch(capsys):
    found = benched(capsys, "CartPole", "--backends=batch")
    assert ["envkit.make('CartPole', batch_size=2)"] == [
        tried["call"] for tried in found["tries"]
    ]
    assert found["tries"][0]["in_env"] is None


def test_libraries_that_make_all_rows_are_not_put_into_pools():
    ways = candidates(
        "envpool:Pong-v5", {}, num_envs=8, backends=["batch", "process"], workers=[1]
    )
    assert ["envkit.make('envpool:Pong-v5', num_envs=8)"] == [
        way.call() for way in ways
    ]


@pytest.mark.parametrize(
    ("cpus", "envs", "expected"),
    [(1, 8, [1, 2]), (2, 8, [1, 2, 3]), (6, 64, [1, 2, 4, 6, 9]), (4, 1, [1])],
)
def test_workers_double_up_to_the_cpus_and_a_little_above(cpus, envs, expected):
    assert expected == worker_counts(cpus, envs)


def test_workers_double_further_as_long_as_that_pays():
    last = pool_of(COUNTING, {}, 10, "process", 6)
    assert 10 == more_workers(last, 1000.0, [500.0, 800.0], 10).workers
    assert more_workers(last, 1000.0, [500.0, 990.0], 10) is None
    full = pool_of(COUNTING, {}, 6, "process", 6)
    assert more_workers(full, 1000.0, [500.0], 6) is None


def test_environments_that_cannot_be_seeded_are_still_tried(capsys):
    found = benched(capsys, f"{HERE}:Unseedable", "--backends=inline")
    assert [None] == [tried["error"] for tried in found["tries"]]


class Noted(CountingEnv):
    """Notes in a file how it was seeded, and its first actions."""

    def __init__(self, path):
        super().__init__(steps_per_episode=50)
        self._path = path

    def seed(self, seed=None):
        self._note(f"seed {seed}")
        return super().seed(seed)

    def _step(self, action):
        if self._current_step < 20:
            self._note(f"action {int(action)}")
        return super()._step(action)

    def _note(self, line):
        with open(self._path, "a") as file:
            file.write(f"{line}\n")


def test_seed_and_actions_depend_on_the_seed(tmp_path, capsys):
    notes = []
    for run, seed in enumerate([5, 5, 6]):
        path = tmp_path / f"notes{run}"
        way = ["--backends=inline", f"--seed={seed}", f"--arg=path={path}"]
        assert seed == benched(capsys, f"{HERE}:Noted", *way)["seed"]
        notes.append(path.read_text().splitlines()[:22])
    first, again, other = notes
    assert first == again
    assert first != other
    assert [line for line in first if "seed" in line] != [
        line for line in other if "seed" in line
    ]
    actions = [[line for line in lines if "action" in line] for lines in notes]
    assert actions[0] != actions[2]


class Leaves(CountingEnv):
    """Ends the program."""

    def _step(self, action):
        sys.exit(3)


def test_an_environment_that_ends_the_program_is_a_way_that_cannot_be_tried(capsys):
    assert 2 == main(["bench", f"{HERE}:Leaves", *QUICKLY, "--backends=inline"])
    assert "env 0 raised SystemExit: 3 in step()." in capsys.readouterr().err


def test_the_number_of_environments_has_its_own_option(capsys):
    assert 2 == main(["bench", COUNTING, "--arg=num_envs=4"])
    assert (
        "envkit bench: --num-envs and --arg num_envs are the same: pass only one.\n"
    ) == capsys.readouterr().err


def test_a_failing_way_says_why_and_the_others_continue(capsys, monkeypatch):
    monkeypatch.setattr(sys, "process_of_the_command", True, raising=False)
    found = benched(
        capsys, f"{HERE}:OnlyHere", "--backends=inline,process", "--workers=1"
    )

    inline, process = found["tries"]
    assert inline["call"] == found["best"]
    assert process["figures"] is None
    assert process["error"].startswith("env_constructors[0]")


def test_if_every_way_fails_the_first_reason_is_the_error(capsys):
    assert 2 == main(["bench", f"{HERE}:Lame", *QUICKLY, "--backends=inline"])
    error = capsys.readouterr().err
    assert "RuntimeError" in error
    assert 1 == len(error.splitlines())


def test_an_unknown_environment_is_one_line(capsys):
    assert 2 == main(["bench", "CartPool", *QUICKLY])
    assert capsys.readouterr().err.startswith(
        "envkit bench: There is no environment named 'CartPool'. Did you mean"
    )


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--num-envs=0", "must be an integer of at least 1, got '0'"),
        ("--seconds=nan", "must be a number of seconds, got 'nan'"),
        ("--workers=1,x", "must be an integer of at least 1, got 'x'"),
        ("--backends=ray", "must be some of batch, inline, thread, process, got 'ray'"),
        ("--backends=thraed", "Did you mean 'thread'?"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(option, reason, capsys):
    with pytest.raises(SystemExit):
        main(["bench", COUNTING, option])
    assert reason in capsys.readouterr().err


def test_rounds_share_the_time_and_the_warm_up_does_not_count(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr("time.perf_counter", clock.now)
    began = []

    figures = time_steps(
        clock.sleep,
        4,
        5.0,
        4,
        act=lambda: 0.125,
        begin=lambda: began.append(clock.now()),
    )

    assert [1.0] == began
    assert (32.0,) * 4 == figures.speeds
    assert (0.125, 0.125, 32) == (figures.median, figures.p99, figures.steps)
    assert (32.0, 0.0) == (figures.speed, figures.spread)


def test_a_slow_environment_is_not_stepped_in_every_round(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr("time.perf_counter", clock.now)
    figures = time_steps(lambda _: clock.sleep(100.0), 4, 5.0, 4)
    assert ((0.04,), 1) == (figures.speeds, figures.steps)


def test_a_picture_is_drawn(tmp_path):
    """In a process of its own: matplotlib keeps the files of its fonts open."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "bench.png"

    done = in_a_process(
        COUNTING, *QUICKLY, "--backends=inline,thread", f"--plot={path}"
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert b"\x89PNG" == path.read_bytes()[:4]
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bench.txt", "bench.txt: the file must end in one of ."),
        ("nowhere/bench.png", "bench.png: no file can be written there."),
        ("folder.png", "folder.png: no file can be written there."),
    ],
)
def test_an_unwritable_plot_is_reported_before_anything_runs(
    name, reason, tmp_path, capsys
):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "folder.png").mkdir()
    assert 2 == main(["bench", f"{HERE}:Lame", f"--plot={tmp_path / name}"])
    assert reason in capsys.readouterr().err


def test_arguments_without_a_json_form_still_appear_in_json(capsys):
    tried = ["--num-envs=1", "--seconds=0.01", "--rounds=1", "--backends=inline"]
    assert 0 == main(["bench", f"{HERE}:Marked", "--arg=marks={1}", *tried, "--json"])
    assert {"marks"} == set(json.loads(capsys.readouterr().out)["arguments"])


def test_a_missing_matplotlib_is_named_with_the_command(tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name == "matplotlib" else find(name, *more),
    )
    assert 2 == main(["bench", "Bandit", "--plot", str(tmp_path / "a.png")])
    expected = MissingDependencyError.needed_by(
        "--plot", package="matplotlib", extra="plot"
    )
    assert f"envkit bench: {expected}\n" == capsys.readouterr().err


# Ctrl-C.


@pytest.mark.skipif(not residue.ON_LINUX, reason="only Linux lists children")
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    """The fixture looks for processes, `/dev/shm` is looked at here."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    picture = tmp_path / "bench.png"
    segments = residue.shared_names()
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "bench", "envkit.testing:SlowEnv",
         "--num-envs=2",
         "--arg=step_time=0.05", "--backends=process", "--seconds=600",
         f"--plot={picture}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        while not _children(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()

    assert (130, "") == (process.returncode, errors)
    assert [] == list(tmp_path.iterdir())
    # Those of other tests that run at the same time go.
    assert until(lambda: residue.shared_names() <= segments)


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def test_a_candidate_is_made_by_the_call_it_shows():
    way = Candidate("inline", 1, COUNTING, {"steps_per_episode": 3}, {"num_envs": 2})
    assert (
        "envkit.make('envkit.testing:CountingEnv', steps_per_episode=3, num_envs=2)"
        == way.call()
    )
