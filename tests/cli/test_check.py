"""`envkit check`: each kind of broken environment is caught by the name of its rule."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from envkit import BatchedPyEnvironment
from envkit.cli.check import _GROUPS
from envkit.cli.main import main
from envkit.testing import CountingEnv
from envkit.testing.checks import CHECKS
from tests.cli.pseudo_terminal import in_terminal
from tests.testing import mutants
from tests.waiting import PATIENCE

HERE = __name__

# One broken environment for each rule.
BROKEN = {
    mutant.checks[0]: mutant.make.__name__ for mutant in reversed(mutants.MUTANTS)
}


def check(*arguments):
    """Runs the command in this process; returns its exit status."""
    return main(["check", *map(str, arguments)])


def checked(capsys, *arguments):
    """Returns the exit status and the answer in JSON."""
    status = check(*arguments, "--json")
    return status, json.loads(capsys.readouterr().out)


def with_status(answer, status):
    return [one["check"] for one in answer["checks"] if one["status"] == status]


def test_there_is_a_broken_environment_for_every_rule():
    assert {rule.name for rule in CHECKS} == set(BROKEN)
    assert len(set(BROKEN.values())) == len(BROKEN) >= 25


# All of them are caught in `tests/testing`; what is printed is the same for each.
@pytest.mark.parametrize("rule", [*BROKEN][::10])
def test_a_broken_environment_is_caught_by_the_name_of_its_rule(rule, capsys):
    target = f"tests.testing.mutants:{BROKEN[rule]}"
    status = check(target, "--steps", 200, "-v")
    printed = capsys.readouterr()
    assert (1, "") == (status, printed.err)
    lines = printed.out.splitlines()
    # With its promise, and then with the reason.
    assert 2 == sum(line.startswith((f"✗  {rule} ", f"✗ {rule}: ")) for line in lines)
    assert lines[-1].startswith(f"{target}: ")
    assert " failed" in lines[-1]


def test_the_command_prints_the_fault_and_the_remedy():
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "check", "tests.testing.mutants:DtypeDrift"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )

    assert (1, "") == (done.returncode, done.stderr)
    assert (
        "✗ fits_specs: Time steps have the structure, shapes, dtypes and bounds of the "
        "specs\n"
        "\n"
        "  step() returned a time step that does not fit its spec at "
        "observation['position'].\n"
        "\n"
        "    expected   ArraySpec(shape=(2,), dtype=float32)\n"
    ) in done.stdout
    assert "add .astype(np.float32)" in done.stdout


def test_a_correct_environment_has_a_tick_for_each_promise(capsys):
    status = check("tests.testing.mutants:SteadyWalks", "--steps", 100, "--verbose")
    lines = capsys.readouterr().out.splitlines()

    assert 0 == status
    assert "✓  fits_specs" in [line[:13] for line in lines]
    assert (
        "-  render                    Rendering returns pictures (render() is not "
        "implemented)"
    ) in lines
    assert "" == lines[-2]
    assert lines[-1].startswith("tests.testing.mutants:SteadyWalks: ")


def test_groups_have_their_counts_and_what_failed(capsys):
    assert 1 == check("tests.testing.mutants:DtypeDrift", "--steps", 100)
    lines = capsys.readouterr().out.splitlines()

    assert [
        "✓  making and closing       5 passed",
        "✗  episodes and time steps  9 passed, 1 failed, 5 skipped: fits_specs",
        "✓  arrays of its own        5 passed",
        "✓  seeds                    4 passed, 2 skipped",
        "✓  states                   9 passed",
        "✓  pictures and infos       7 passed, 1 skipped",
        "-  rows of a batch          4 skipped",
        "",
    ] == lines[:8]
    assert lines[8].startswith("✗ fits_specs: ")
    assert lines[-1].endswith(" of 52 checks. (-v lists them)")


def test_every_check_is_in_a_group():
    modules = {check.function.__module__.rpartition(".")[2] for check in CHECKS}
    assert modules == _GROUPS.keys()


def only_two(time_step):
    return time_step.observation * 0 + 1


class Picky(CountingEnv):
    """Takes one action of two, and does not say which."""

    def _step(self, action):
        if int(action) != 1:
            raise ValueError("It must be 1.")
        return super()._step(action)


@pytest.mark.parametrize(("policy", "status"), [("random", 1), (f"{HERE}:only_two", 0)])
def test_a_policy_can_act(policy, status, capsys):
    assert status == check(f"{HERE}:Picky", "--steps", 60, "--policy", policy)
    capsys.readouterr()


def test_json_has_every_check(capsys):
    status, answer = checked(capsys, "CartPole", "--arg", "batch_size=2")
    assert 0 == status
    assert ("CartPole", {"batch_size": 2}) == (answer["target"], answer["arguments"])
    assert [rule.name for rule in CHECKS] == [one["check"] for one in answer["checks"]]
    skipped = [one["check"] for one in answer["checks"] if one["status"] == "skipped"]
    assert ["info_spec"] == skipped
    assert (len(CHECKS) - 1, 0, 1) == tuple(
        answer[key] for key in ("passed", "failed", "skipped")
    )


class Leaves(CountingEnv):
    """Ends the program in one of its calls."""

    def __init__(self, call):
        self._call = call
        super().__init__()
        self._may_leave("__init__")

    def _may_leave(self, call):
        if call == self._call:
            sys.exit(0)

    def seed(self, seed=None):
        self._may_leave("seed")
        return super().seed(seed)

    def _reset(self):
        self._may_leave("reset")
        return super()._reset()

    def _step(self, action):
        self._may_leave("step")
        return super()._step(action)

    def render(self, mode="rgb_array"):
        self._may_leave("render")
        return super().render(mode)

    def get_state(self):
        self._may_leave("get_state")
        return super().get_state()

    def close(self):
        self._may_leave("close")
        super().close()


@pytest.mark.parametrize(
    ("call", "failed"),
    [
        ("__init__", "constructor"),
        ("seed", "seeding"),
        ("reset", "plays"),
        ("step", "plays"),
        ("render", "render"),
        ("get_state", "state"),
        ("close", "close"),
    ],
)
def test_an_environment_that_ends_the_program_has_broken_a_promise(
    call, failed, capsys
):
    status, answer = checked(
        capsys, f"{HERE}:Leaves", "--arg", f"call={call}", "--steps=60"
    )
    texts = {one["check"]: one["text"] for one in answer["checks"]}

    assert 1 == status
    assert failed in with_status(answer, "failed")
    assert "called sys.exit(0), which ends the program." in texts[failed]
    assert "in _may_leave" in texts[failed]


def test_required_features_are_not_skipped(capsys):
    endless = (
        *("envkit.testing:CountingEnv", "--arg=steps_per_episode=1000"),
        *("--steps=90", "--skip=long_game"),
    )
    status, answer = checked(capsys, *endless)

    assert 0 == status
    assert "step_after_last" in with_status(answer, "skipped")

    status, answer = checked(capsys, *endless, "--require=episodes")
    texts = {one["check"]: one["text"] for one in answer["checks"]}

    assert 1 == status
    assert "step_after_last" in with_status(answer, "failed")
    assert (
        "no episode ended in 90 steps, and it is required: require=['episodes']."
    ) == texts["step_after_last"]


def test_features_and_checks_are_named_with_commas(capsys):
    status, answer = checked(
        capsys,
        "tests.testing.mutants:FeaturelessCounter",
        "--require=seed,state",
        "--require=render",
        "--skip=info,close",
        "--steps=60",
    )

    assert 1 == status
    assert ["seeding", "state", "render"] == with_status(answer, "failed")
    texts = {one["check"]: one["text"] for one in answer["checks"]}
    assert ("left out on request",) * 2 == (texts["info"], texts["close"])


def test_arguments_go_to_the_environment(capsys):
    status, answer = checked(
        capsys, f"{HERE}:make_batch", "--arg", "rows=2", "--steps=60"
    )
    assert 0 == status
    assert "masked_reset" in with_status(answer, "passed")


def make_batch(rows):
    return BatchedPyEnvironment([CountingEnv() for _ in range(rows)])


def make_talkative():
    print("Welcome!")
    os.write(1, b"from native code\n")
    return CountingEnv()


def test_output_of_environments_stays_out_of_the_answer(capfd):
    status = check(f"{HERE}:make_talkative", "--json", "--steps=60")
    printed = capfd.readouterr()
    assert 0 == status
    assert "CountingEnv" == json.loads(printed.out)["environment"]
    assert "Welcome!" in printed.err
    assert "from native code" in printed.err


@pytest.mark.parametrize("order", ["next_step", "same_step"])
def test_a_pool_is_checked_as_a_batch_in_each_order(order, capsys):
    status, answer = checked(
        capsys,
        *("envkit.testing:CountingEnv", "--arg", "num_envs=2"),
        *("--arg", "backend=inline", "--arg", f"autoreset={order}"),
        *("--steps=30", "--require=masked_reset"),
    )
    assert (0, "ParallelPyEnvironment") == (status, answer["environment"])


def told(capsys, *arguments):
    """Returns what a command that could not be done has said."""
    status = check(*arguments)
    printed = capsys.readouterr()
    assert (2, "") == (status, printed.out)
    return printed.err


def test_an_unknown_name_cannot_be_checked(capsys):
    assert told(capsys, "CartPol").startswith(
        "envkit check: There is no environment named 'CartPol'. Did you mean "
    )


def test_an_unknown_module_cannot_be_checked(capsys):
    assert "names the module 'no_such_module'" in told(capsys, "no_such_module:make")


def test_an_unknown_argument_is_reported(capsys):
    assert "unexpected keyword argument 'bla'" in told(
        capsys, "CartPole", "--arg=bla=1"
    )


def test_an_unknown_rule_is_reported(capsys):
    assert told(capsys, "Catch", "--skip=gramar").startswith(
        "envkit check: skip has no name 'gramar'. Did you mean 'grammar'? The "
    )


def test_a_terminal_without_ticks_gets_words(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert 0 == main(["check", "Catch", "--steps=30", "-v"])
    stream.flush()
    assert stream.buffer.getvalue().startswith(b"ok  constructor ")


class Waiting(CountingEnv):
    """Tells that it is in its second step, and never leaves it."""

    def __init__(self, bell):
        super().__init__()
        self._bell = bell

    def _step(self, action):
        import threading

        if self._current_step:
            with open(self._bell, "w") as bell:
                bell.write("!")
            threading.Event().wait()
        return super()._step(action)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="only POSIX has named pipes")
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_it_without_a_traceback(tmp_path):
    bell = tmp_path / "bell"
    os.mkfifo(bell)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "envkit", "check"),
            *(f"{HERE}:Waiting", "--arg", f"bell={bell}"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert "!" == bell.read_text()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)

    assert (130, b"", b"") == (process.returncode, out, err)


@pytest.mark.usefixtures("interruptible")
def test_a_terminal_shows_the_current_rule():
    with in_terminal(
        "check", f"{HERE}:Waiting", f"--arg=bell={os.devnull}"
    ) as terminal:
        terminal.wait_for(f"3/{len(CHECKS)}")
        terminal.wait_for("time_step")
        terminal.process.send_signal(signal.SIGINT)
        assert 130 == terminal.end()[0]
        assert terminal.is_as_before
