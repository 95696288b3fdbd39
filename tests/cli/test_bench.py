"""`envkit bench`: ways to step an environment, tried for moments here."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import envkit
from envkit import ArraySpec, PyEnvironment, TimeStep
from envkit.cli.bench_parts.candidates import (
    Candidate,
    candidates,
    more_workers,
    pool_of,
    worker_counts,
)
from envkit.cli.bench_parts.measuring import Figures, Measured, time_steps
from envkit.cli.bench_parts.peer_runs import run_peer
from envkit.cli.bench_parts.peers import PEERS
from envkit.cli.bench_parts.report import (
    about_as_fast,
    best_of,
    failures,
    whole_title_of,
)
from envkit.cli.main import main
from envkit.envs import CartPole
from envkit.errors import MissingDependencyError
from envkit.testing import CountingEnv, ManualClock
from tests import residue

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
        if "envkit.cli.bench" not in sys.modules:
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
def test_the_calls_that_are_shown_make_what_was_measured(target, arguments, capsys):
    found = benched(capsys, target, *arguments, "--backends=batch,inline,thread")

    assert found["best"] in [tried["call"] for tried in found["tries"]]
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


def tried_at(speed, workers):
    figures = Figures(2, (speed,), 1.0, 1.0, 1)
    return Measured(pool_of(COUNTING, {}, 2, "process", workers), figures)


def test_what_comes_near_the_best_is_named():
    tries = [tried_at(95.0, 1), tried_at(100.0, 2), tried_at(80.0, 3)]
    broken = Measured(pool_of(COUNTING, {}, 2, "thread", 1), error="no")

    assert tries[1] is best_of([*tries, broken])
    assert ["process with 1 worker"] == [
        whole_title_of(tried) for tried in about_as_fast([*tries, broken])
    ]
    assert ["thread with 1 worker: no"] == failures([*tries, broken], [])
    assert best_of([broken]) is None
    assert [] == about_as_fast([broken])


def test_what_environments_print_is_kept_from_the_figures():
    done = in_a_process(
        f"{HERE}:Loud", *QUICKLY, "--backends=inline,process", "--workers=1", "--json"
    )

    assert 2 == len(json.loads(done.stdout)["tries"])
    assert "loud\n" in done.stderr


def test_what_a_close_raises_is_one_line():
    done = in_a_process(
        "envkit.testing:CrashingEnv",
        "--arg=where=close",
        *QUICKLY,
        "--workers=1",
        "--json",
    )
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


def test_a_batch_that_cannot_be_closed_has_figures_all_the_same(capsys):
    found = benched(capsys, f"{HERE}:Shut", "--backends=batch")

    assert [None] == [tried["error"] for tried in found["tries"]]


def test_an_environment_that_steps_many_rows_itself_is_tried_so(capsys):
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


def test_environments_that_cannot_be_seeded_are_tried_all_the_same(capsys):
    found = benched(capsys, f"{HERE}:Unseedable", "--backends=inline")

    assert [None] == [tried["error"] for tried in found["tries"]]


def test_the_number_of_environments_has_an_option_of_its_own(capsys):
    assert 2 == main(["bench", COUNTING, "--arg=num_envs=4"])
    assert (
        "envkit bench: How many environments to step together, --num-envs says.\n"
    ) == capsys.readouterr().err


def test_what_cannot_be_tried_says_why_and_the_others_go_on(capsys):
    found = benched(
        capsys, f"{HERE}:OnlyHere", "--backends=inline,process", "--workers=1"
    )

    inline, process = found["tries"]
    assert inline["call"] == found["best"]
    assert process["figures"] is None
    assert process["error"].startswith("env_constructors[0]")


def test_where_nothing_can_be_tried_the_first_reason_is_the_error(capsys):
    assert 2 == main(["bench", f"{HERE}:Lame", *QUICKLY, "--backends=inline"])
    error = capsys.readouterr().err
    assert "RuntimeError" in error
    assert 1 == len(error.splitlines())


def test_an_environment_that_there_is_not_is_one_line(capsys):
    assert 2 == main(["bench", "CartPool", *QUICKLY])
    assert capsys.readouterr().err.startswith(
        "envkit bench: There is no environment named 'CartPool'. Did you mean"
    )


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--num-envs=0", "'0' is no number of at least 1"),
        ("--seconds=nan", "'nan' is no number of seconds"),
        ("--workers=1,x", "'x' is no number of at least 1"),
        ("--backends=ray", "'ray' is none of batch, inline, thread, process"),
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
        lambda: clock.sleep(0.125), 4, 5.0, 4, lambda: began.append(clock.now())
    )

    assert [1.0] == began
    assert (32.0,) * 4 == figures.speeds
    assert (0.125, 0.125, 32) == (figures.median, figures.p99, figures.steps)
    assert (32.0, 0.0) == (figures.speed, figures.spread)


def test_what_takes_long_is_not_stepped_in_every_round(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr("time.perf_counter", clock.now)

    figures = time_steps(lambda: clock.sleep(100.0), 4, 5.0, 4)

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
        ("bench.txt", "the file's name says what is drawn, and has to end in one of"),
        ("nowhere/bench.png", "there is no such directory."),
        ("folder.png", "that is a directory."),
    ],
)
def test_a_picture_that_cannot_be_stored_is_told_before_anything_runs(
    name, reason, tmp_path, capsys
):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "folder.png").mkdir()

    assert 2 == main(["bench", f"{HERE}:Lame", f"--plot={tmp_path / name}"])
    assert reason in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_picture_where_nothing_can_be_written_is_told_before_anything_runs(capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")

    assert 2 == main(["bench", f"{HERE}:Lame", "--plot=/proc/bench.png"])
    assert (
        "envkit bench: --plot /proc/bench.png: nothing can be written there"
        in capsys.readouterr().err
    )


def test_arguments_that_json_does_not_have_are_told_in_json_all_the_same(capsys):
    tried = ["--num-envs=1", "--seconds=0.01", "--rounds=1", "--backends=inline"]

    assert 0 == main(["bench", f"{HERE}:Marked", "--arg=marks={1}", *tried, "--json"])
    assert {"marks"} == set(json.loads(capsys.readouterr().out)["arguments"])


def test_a_missing_matplotlib_is_named_with_the_command(tmp_path):
    program = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name)\n"
        "from envkit.cli.main import main\n"
        f"sys.exit(main(['bench', 'Bandit', '--plot', {str(tmp_path / 'a.png')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    expected = MissingDependencyError.needed_by(
        "--plot", package="matplotlib", extra="plot"
    )
    assert (2, f"envkit bench: {expected}\n") == (done.returncode, done.stderr)


# Other libraries.


def peer(name, target, **arguments):
    return run_peer(name, target, arguments, num_envs=2, seconds=0.02, rounds=2, cpus=2)


@pytest.mark.parametrize("name", ["gymnasium_sync", "gymnasium_async"])
@pytest.mark.parametrize("target", [COUNTING, "gymnasium:CartPole-v1"])
def test_a_peer_is_measured_in_a_process_of_its_own(name, target):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")

    run = peer(name, target)

    assert run.error is None
    assert 2 == run.figures.rows
    assert run.figures.speed > 0


def test_envpool_steps_its_own_environment_of_the_same_name():
    pytest.importorskip("envpool", reason="envpool is not installed")

    assert peer("envpool", "gymnasium:CartPole-v1").figures.speed > 0
    assert "It has environments of its own, and not this one." == (
        peer("envpool", "CartPole").error
    )


def test_a_peer_that_fails_says_why():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")

    assert "RuntimeError: It has" == peer("gymnasium_sync", f"{HERE}:Lame").error


class Fatal(PyEnvironment):
    """Takes its process along."""

    def observation_spec(self):
        os.kill(os.getpid(), signal.SIGABRT)

    def action_spec(self) -> ArraySpec:
        return ArraySpec((), "int64")

    def _reset(self):
        raise NotImplementedError

    def _step(self, action):
        raise NotImplementedError


def test_a_peer_that_crashes_is_told_by_its_signal():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")

    assert "its process ended by SIGABRT" == (
        peer("gymnasium_sync", f"{HERE}:Fatal").error
    )


@pytest.mark.parametrize("name", ["sb3_dummy", "pufferlib", "torchrl"])
def test_a_peer_that_is_missing_is_told_to_be_so(name):
    package = PEERS[name].package
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is there")

    assert f"{package} is not installed" == peer(name, COUNTING).error


@pytest.mark.slow
def test_peers_come_after_the_tries(capsys):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")

    found = benched(capsys, COUNTING, "--backends=inline", "--peers")

    by_name = {run["peer"]: run for run in found["peers"]}
    assert by_name["Gymnasium SyncVectorEnv"]["figures"]["steps_per_second"] > 0
    assert all(
        (run["figures"] is None) == (run["error"] is not None) for run in found["peers"]
    )


# Ctrl-C.


@pytest.mark.skipif(not residue.ON_LINUX, reason="only Linux lists children")
@pytest.mark.parametrize("what", ["process", "peer"])
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_nothing_behind(what, tmp_path):
    """The fixture looks for processes, `/dev/shm` is looked at here."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    picture = tmp_path / "bench.png"
    segments = residue.shared_names()
    arguments = {
        "process": ["--backends=process", "--seconds=600"],
        "peer": ["--backends=inline", "--seconds=0.02", "--rounds=1", "--peers"],
    }
    slow = ["--arg=step_time=0.05"] if what == "process" else ["--arg=step_time=3600"]
    target = "envkit.testing:SlowEnv"
    if what == "peer":  # Ours is quick, and theirs never comes back.
        target, slow = f"{HERE}:SlowElsewhere", []
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "bench", target, "--num-envs=2", *slow,
         *arguments[what], f"--plot={picture}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        while not _children(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()

    assert (130, "") == (process.returncode, errors)
    assert [] == list(tmp_path.iterdir())
    assert residue.shared_names() <= segments


class SlowElsewhere(CountingEnv):
    """Is quick in the process of the command, and takes for ever in others."""

    def _step(self, action: object) -> TimeStep:
        if "envkit.cli.bench" not in sys.modules:
            signal.pause()
        return super()._step(action)


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def test_a_candidate_is_made_by_what_its_call_says():
    way = Candidate("inline", 1, COUNTING, {"steps_per_episode": 3}, {"num_envs": 2})

    assert (
        "envkit.make('envkit.testing:CountingEnv', steps_per_episode=3, num_envs=2)"
        == way.call()
    )
