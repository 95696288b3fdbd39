"""`progress`: a loop with a line that shows how it is going."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pty
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from rich.console import Console
from rich.live import Live

import envkit
from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment, RestartPolicy
from envkit.errors import CallOrderError
from envkit.testing import CountingEnv, CrashingEnv

START = """
import logging, sys, os, signal
import envkit
from envkit.testing import CountingEnv
env = CountingEnv(steps_per_episode=4)
"""


# What a terminal is said to be able to do.
ABILITIES = {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "TTY_COMPATIBLE"}


@pytest.fixture
def terminal(monkeypatch):
    """Returns a function that runs another one on a terminal, for its output."""
    for name in ABILITIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")

    def shown_by(run):
        ours, theirs = pty.openpty()
        with ThreadPoolExecutor(1) as executor:
            reading = executor.submit(all_from, ours)
            with open(theirs, "w", encoding="utf-8") as file:
                run(file)
            shown = reading.result()
        os.close(ours)
        return shown

    return shown_by


def all_from(terminal):
    """Reads until the other side has closed a terminal."""
    shown = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            shown += part
    return shown.decode()


def started(program, output, **environment):
    inherited = {key: text for key, text in os.environ.items() if key not in ABILITIES}
    return subprocess.Popen(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**inherited, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )


def on_a_terminal(program, **environment):
    """Runs a program on a terminal; returns its output and its exit status."""
    ours, theirs = pty.openpty()
    process = started(program, theirs, **environment)
    os.close(theirs)
    shown = all_from(ours)
    os.close(ours)
    return shown, process.wait()


def left_on_screen(shown):
    """Returns the lines that a terminal shows in the end, without colours."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[\?25[lh]|\x1b\[[\d;]*[A-Za-z]|\r\n|.", shown, re.S):
        if token == "\r\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token == "\x1b[1A":
            row -= 1
        elif token != "\r" and not token.startswith("\x1b"):
            lines[row] += token
    return [line for line in lines if line]


def stepped(env, steps, body):
    """Returns what a loop yields, and the steps that are counted in it."""
    bar = envkit.progress(env, steps)
    seen = []
    for number in bar:
        seen.append(number)
        body(env)
    return seen, bar.steps


def a_step(env):
    env.step(0)


def a_rollout(env):
    for _ in range(128):
        env.step(0)


def a_step_of_all(env):
    env.step(np.zeros(4, np.int32))


def test_a_loop_counts_the_steps_of_its_environment():
    assert ([0, 1, 2, 3], 4) == stepped(CountingEnv(), 4, a_step)
    assert ([0, 128, 256], 384) == stepped(CountingEnv(), 300, a_rollout)
    with ParallelPyEnvironment([CountingEnv] * 4, backend="inline") as env:
        assert ([0, 4, 8], 12) == stepped(env, 10, a_step_of_all)


@pytest.mark.parametrize("name", ["reset", "step"])
def test_progress_in_the_place_of_the_environment_says_so(name):
    bar = envkit.progress(CountingEnv(), 10)
    assert not hasattr(bar, name)
    with pytest.raises(AttributeError) as error:
        getattr(bar, name)
    assert (
        f"Progress has no {name}: it only counts. Call {name}() of the environment "
        "that you gave to progress()."
    ) == str(error.value)


def test_a_loop_counts_what_an_asynchronous_pool_was_sent():
    def halves(env):
        env.send(np.zeros(4, np.int32))
        rows, _ = env.recv(count=2)
        env.send(np.zeros(2, np.int32), rows)
        env.recv()

    with AsyncParallelPyEnvironment([CountingEnv] * 4, backend="inline") as env:
        env.reset_async()
        env.recv()
        assert ([0, 6, 12], 18) == stepped(env, 15, halves)


def test_update_counts_instead_of_the_environment():
    env = CountingEnv()
    with envkit.progress(env, 100) as bar:
        env.step(0)
        env.step(0)
        seen = bar.steps
        bar.update()
        bar.update(63)
    assert (2, 64) == (seen, bar.steps)


def test_a_bar_begins_anew_when_it_is_used_again():
    env = CountingEnv()
    bar = envkit.progress(env, 3)
    for _ in range(2):
        for _ in bar:
            env.step(0)
    assert (3, 5) == (bar.steps, int(env.current_time_step().observation))


def test_a_loop_without_steps_does_not_run_for_ever():
    with pytest.raises(CallOrderError, match="has seen no step in 10,000 rounds"):
        for _ in envkit.progress(CountingEnv(), 5):
            pass


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((10, CountingEnv()), TypeError, r"got 10 of type int as the environment"),
        ((CountingEnv, 10), TypeError, r"progress\(\) needs an environment"),
        ((CountingEnv(), -1), ValueError, r"steps must be a whole number"),
        ((CountingEnv(), 1.5), ValueError, r"steps must be a whole number"),
        ((CountingEnv(), "9"), ValueError, r"steps must be a whole number"),
        ((range(3),), TypeError, r"progress\(\) needs an environment"),
        (
            (gymnasium.make("CartPole-v1"), 10),
            TypeError,
            r"envkit\.make\(env\) returns an environment that counts its steps",
        ),
    ],
)
def test_other_arguments_are_refused(given, error, text):
    with pytest.raises(error, match=text):
        envkit.progress(*given)


def test_steps_may_be_written_as_a_float():
    assert 1_000_000 == envkit.progress(CountingEnv(), 1e6).total


def test_nothing_is_written_where_there_is_no_terminal():
    program = """
        for _ in (bar := envkit.progress(env, 20)):
            env.step(0)
        print(bar.steps, bar.mean_return, "rich" in sys.modules)
    """
    process = started(program, subprocess.PIPE, FORCE_COLOR="1")
    shown, errors = process.communicate()
    assert (b"20 1.0 False\n", b"", 0) == (shown, errors, process.wait())


def test_nothing_is_written_to_a_file_or_when_it_is_disabled(capsys):
    file = io.StringIO()
    env = CountingEnv()
    for bar in (
        envkit.progress(env, 3, file=file),
        envkit.progress(env, 3, disable=True),
    ):
        for _ in bar:
            env.step(0)
    assert ("", ("", "")) == (file.getvalue(), tuple(capsys.readouterr()))


LINE = r"━+ 20/20 steps · [\d,.]+/s · return 1 · in 0:\d\d:\d\d"


def test_a_terminal_keeps_the_last_line_below_what_was_printed():
    shown, status = on_a_terminal("""
        logging.basicConfig(level=logging.INFO, format="log %(message)s")
        for number in envkit.progress(env, 20, description="train"):
            env.step(0)
            if number in (5, 10):
                print("printed", number)
                logging.info(number)
        print("end")
        logging.info("end")
    """)
    *lines, end, logged = left_on_screen(shown)
    assert ["printed 5", "log 5", "printed 10", "log 10"] == lines[:-1]
    assert re.fullmatch(f"train {LINE}", lines[-1])
    assert ["end", "log end", 0] == [end, logged, status]
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


ENDS = {
    "break": ("break", [], 0),
    "exception": ('raise ValueError("mine")', ["ValueError: mine"], 1),
    "ctrl-c": ("signal.raise_signal(signal.SIGINT)", ["KeyboardInterrupt"], -2),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_line_stays_however_the_loop_ends(end):
    statement, said, expected = ENDS[end]
    shown, status = on_a_terminal(f"""
        for number in envkit.progress(env, 20):
            if number == 10:
                {statement}
            env.step(0)
    """)
    lines = left_on_screen(shown)
    assert re.search(r"━ 10/20 steps · .*in 0:\d\d:\d\d$", lines[0])
    assert said == lines[-1:] if said else len(lines) == 1
    assert expected == status
    assert shown.rindex("\x1b[?25h") < len(shown)


def test_two_bars_share_a_terminal(terminal):
    def run(file):
        env, other = CountingEnv(), CountingEnv()
        for _ in envkit.progress(env, 3, description="outer", file=file):
            env.step(0)
            for _ in envkit.progress(other, 2, description="inner", file=file):
                other.step(0)

    *inner, outer = left_on_screen(terminal(run))
    assert ["inner"] * 3 == [line.split()[0] for line in inner]
    assert ["outer", True] == [outer.split()[0], "3/3 steps" in outer]


def test_a_display_of_the_program_itself_is_left_alone(terminal):
    def run(file):
        env, console = CountingEnv(), Console(file=file)
        with Live("mine", console=console, auto_refresh=False):
            for _ in envkit.progress(env, 3, console=console):
                env.step(0)
        console.print("end")

    lines = left_on_screen(terminal(run))
    assert "end" == lines[-1]
    assert "mine" in lines


def count_twenty(file):
    env = CountingEnv(steps_per_episode=4)
    for _ in envkit.progress(env, 20, file=file):
        env.step(0)


def test_colours_can_be_switched_off(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = terminal(count_twenty)
    assert re.fullmatch(LINE, left_on_screen(shown)[-1])
    assert not re.search(r"\x1b\[[\d;]*m", shown)


def test_a_terminal_without_abilities_gets_the_last_line(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    shown = terminal(count_twenty)
    assert "\x1b" not in shown
    assert 1 == shown.count("20/20 steps")


@pytest.mark.parametrize("columns", [10, 50, 80])
def test_a_narrow_terminal_gets_one_line(terminal, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = terminal(count_twenty)
    (line,) = left_on_screen(shown)
    assert len(line) <= columns
    assert ("━" in line) == (columns == 80)


def test_the_line_is_drawn_at_most_ten_times_a_second(terminal):
    bars = []

    def run(file):
        env = CountingEnv()
        bars.append(envkit.progress(env, 30_000, file=file))
        for _ in bars[0]:
            env.step(0)

    assert terminal(run).count("\x1b[2K") <= 10 * bars[0].elapsed + 4


def test_losses_and_restarts_are_shown(terminal):
    def run(file):
        make = functools.partial(CrashingEnv, crash_at=3)
        with ParallelPyEnvironment(
            [make] * 2, backend="inline", on_worker_failure=RestartPolicy()
        ) as env:
            env.reset()
            bar = envkit.progress(env, 8, file=file)
            for _ in bar:
                env.step([0, 0])
                bar.set_postfix(loss=0.25)

    (line,) = left_on_screen(terminal(run))
    assert "8/8 steps in 2 rows" in line
    assert "loss 0.25 · 2 episodes lost · 2 restarts" in line


def test_output_that_goes_to_a_file_stays_there(tmp_path):
    path = tmp_path / "output"
    shown, _ = on_a_terminal(f"""
        sys.stdout = open({str(path)!r}, "w")
        for number in envkit.progress(env, 20):
            env.step(0)
            print(number)
    """)
    assert "".join(f"{number}\n" for number in range(20)) == path.read_text("utf-8")
    assert 1 == len(left_on_screen(shown))


def test_a_run_survives_its_terminal(tmp_path):
    path = tmp_path / "result"
    on_a_terminal(f"""
        for number in (bar := envkit.progress(env, 20)):
            env.step(0)
            if number == 10:
                os.close(2)
        with open({str(path)!r}, "w") as file:
            file.write(f"{{bar.steps}} {{sys.stdout is sys.__stdout__}}")
    """)
    assert ["20", "True"] == path.read_text("utf-8").split()
