"""The commands, as they are called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import envkit
from envkit.cli.main import main
from envkit.errors import RecordingError

ROOT = Path(envkit.__file__).parents[1]


def test_python_m_envkit_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "--version"], capture_output=True, text=True
    )

    assert (0, f"envkit {envkit.__version__}\n") == (done.returncode, done.stdout)


def test_the_command_is_installed_under_its_name():
    settings = (ROOT / "pyproject.toml").read_text("utf-8")

    assert '\n[project.scripts]\nenvkit = "envkit.cli.main:main"\n' in settings


@pytest.mark.parametrize("arguments", [[], ["fly"]], ids=["none", "unknown"])
def test_a_command_that_there_is_not_is_a_usage_error(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert 2 == ended.value.code
    assert "usage: envkit" in capsys.readouterr().err


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    assert 0 == ended.value.code
    assert "replay" in capsys.readouterr().out


def test_an_error_is_one_line_without_a_traceback(tmp_path, capsys):
    status = main(["replay", str(tmp_path)])

    assert 2 == status
    assert 1 == len(capsys.readouterr().err.splitlines())


def test_debugging_shows_the_traceback(tmp_path):
    with pytest.raises(RecordingError):
        main(["replay", "--debug", str(tmp_path)])


def test_the_help_of_a_command_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["replay", "--help"])

    assert "example:\n  envkit replay --check runs/catch\n" in capsys.readouterr().out
