"""The commands, as they are called."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import envkit
from envkit.cli.main import Terminated, ended_by_signals, main
from envkit.cli.terminal import print_json
from envkit.errors import RecordingError
from envkit.testing import CountingEnv

ROOT = Path(envkit.__file__).parents[1]


def test_python_m_envkit_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "--version"], capture_output=True, text=True
    )
    assert (0, f"envkit {envkit.__version__}\n") == (done.returncode, done.stdout)


def test_the_command_is_installed_under_its_name():
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    assert '\n[project.scripts]\nenvkit = "envkit.cli.main:main"\n' in settings


def test_without_a_command_the_help_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert 0 == ended.value.code
    help_text = capsys.readouterr().out
    assert "replay" in help_text
    assert (0, help_text) == (main([]), capsys.readouterr().out)


def test_an_error_is_one_line_without_a_traceback(tmp_path, capsys):
    status = main(["replay", str(tmp_path)])
    assert 2 == status
    assert 1 == len(capsys.readouterr().err.splitlines())


class Breaks(CountingEnv):
    """Cannot begin."""

    def _reset(self):
        raise RuntimeError("No board.")


@pytest.mark.parametrize("command", ["describe", "record", "film", "play", "replay"])
def test_an_error_in_close_is_one_line(command, tmp_path, capsys):
    """And what the command has found out stays."""
    game = ["envkit.testing:CrashingEnv", "--arg", "where=close"]
    path, gif = str(tmp_path / "r"), str(tmp_path / "film.gif")
    if command == "film":
        pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is missing")
    if command == "replay":
        main(["record", *game, "-o", path])
        capsys.readouterr()
    arguments = {
        "describe": ["describe", *game],
        "record": ["record", *game, "-o", path],
        "film": ["record", *game, "-o", gif],
        "play": ["play", *game, "--keys", "dd", "--record", path],
        "replay": ["replay", "--check", path],
    }

    assert 0 == main(arguments[command])
    told = capsys.readouterr()
    assert told.out
    (line,) = told.err.splitlines()
    assert line.startswith(
        "close() of an environment raised RuntimeError: CrashingEnv was told to raise "
        "in close 1. (envs.py, line "
    )


def test_the_traceback_of_a_worker_is_left_out_too(tmp_path, capsys):
    pool = ["--arg", "num_envs=2", "--arg", "backend=inline"]
    status = main(["record", f"{__name__}:Breaks", "-o", str(tmp_path / "runs"), *pool])
    assert 2 == status
    assert (
        "envkit record: env 0 raised RuntimeError in reset(): No board. "
        "(--debug shows where)\n"
    ) == capsys.readouterr().err


class Leaves(CountingEnv):
    """Ends the program, and says that all is well."""

    def __init__(self):
        sys.exit(0)


@pytest.mark.parametrize("command", ["describe", "record", "play"])
def test_code_that_calls_sys_exit_does_not_choose_the_exit_status(command, capsys):
    keys = ["--keys=d"] if command == "play" else []
    status = main([command, f"{__name__}:Leaves", *keys])
    assert 2 == status
    assert (
        f"envkit {command}: The environment or policy called sys.exit(0) (--debug "
        "shows where).\n" == capsys.readouterr().err
    )


def test_ctrl_c_during_the_import_of_a_command_prints_no_traceback(monkeypatch, capsys):
    class Interrupted:
        def find_spec(self, name, path=None, target=None):
            if name == "envkit.cli.describe":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "envkit.cli.describe", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])

    assert 130 == main(["describe", "Catch"])
    assert ("", "") == capsys.readouterr()


LACKING = "float32 (4,) [-4.8, -?, -0.418879, -?]"


def in_ascii(monkeypatch):
    """Gives standard output an encoding of few letters; returns what reads it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    return lambda: stream.buffer.getvalue().decode("ascii")


def test_a_character_missing_from_the_encoding_is_replaced(monkeypatch):
    read = in_ascii(monkeypatch)
    assert 0 == main(["describe", "CartPole"])
    assert LACKING in read()


def test_a_character_missing_from_the_locale_is_replaced():
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "describe", "CartPole"],
        capture_output=True,
        text=True,
        env={**os.environ, **plain},
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert LACKING in done.stdout


def test_json_escapes_characters_missing_from_the_encoding(monkeypatch):
    read = in_ascii(monkeypatch)
    print_json("∞")
    assert '"\\u221e"\n' == read()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such shell")
def test_a_closed_standard_output_is_not_an_error():
    done = subprocess.run(
        ["sh", "-c", '"$0" -m envkit describe Catch >&-', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such pipes")
def test_a_pipe_closed_by_its_reader_is_not_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    options = ["--num-envs=1", "--seconds=0.01", "--backends=inline"]
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "bench", "Catch", *options],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)

    assert (2, "") == (done.returncode, done.stderr)


def test_json_has_null_for_numbers_that_are_not_finite(capsys):
    print_json({"returns": [float("nan"), 1.5, (float("inf"),)]})
    assert {"returns": [None, 1.5, [None]]} == json.loads(capsys.readouterr().out)


def test_debugging_shows_the_traceback(tmp_path):
    with pytest.raises(RecordingError):
        main(["replay", "--debug", str(tmp_path)])


def test_the_help_of_a_command_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    assert "example:\n  envkit replay --check runs/catch\n" in capsys.readouterr().out


@pytest.fixture
def handled():
    """Gives the signal of a closed terminal its usual meaning."""
    if not hasattr(signal, "SIGHUP"):
        pytest.skip("only POSIX has terminals that hang up")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.own_process
@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_termination_signal_ends_the_program_cleanly(name):
    number = signal.Signals[name]
    before = signal.getsignal(number)
    with pytest.raises(Terminated) as ended, ended_by_signals():
        signal.raise_signal(number)
    assert 128 + number == ended.value.code
    assert before is signal.getsignal(number)


@pytest.mark.own_process
@pytest.mark.usefixtures("handled")
def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(signal.SIGHUP)
