"""Tables on terminals of any width, and what never reaches a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

import envkit
from envkit import BoundedArraySpec
from envkit.cli.main import main
from envkit.cli.terminal import Fitting, SafeConsole
from envkit.testing import CountingEnv
from tests.foreign_packages import hide_schemes

ROOT = Path(envkit.__file__).parents[1]

WIDE = """\
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃                 ┃   steps/s ┃ rounds within ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ ★ its own batch │ 1,560,123 │            3% │
└─────────────────┴───────────┴───────────────┘
"""
NARROW = """\
                          rounds
                  steps/s within
────────────────────────────────
★ its own batch 1,560,123     3%
"""
NARROWEST = """\
                rounds
        steps/s within
──────────────────────
★ its 1,560,123     3%
own
batch
"""


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (200, WIDE),
        (47, WIDE),
        (46, NARROW),
        (32, NARROW),
        (22, NARROWEST),
        (9, NARROWEST),
    ],
)
def test_figures_are_never_truncated_on_a_narrow_terminal(width, expected):
    table = Table("")
    table.add_column("steps/s", justify="right")
    table.add_column("rounds within", justify="right")
    table.add_row("★ its own batch", "1,560,123", "3%")
    console = Console(file=io.StringIO(), width=width)
    console.print(Fitting(table), crop=False)
    lines = console.file.getvalue().splitlines()
    assert expected == "".join(f"{line.rstrip()}\n" for line in lines)


EVIL = "\x1b]0;owned\x07\x9b2J\u202e"


class Evil(CountingEnv):
    """Says with all that it says what a terminal would obey."""

    metadata: ClassVar = {"render_modes": ["ansi"]}

    def __init__(self, raising=False):
        super().__init__(3)
        self.raising = raising

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1, name=EVIL)

    def observation_spec(self):
        return {EVIL: super().observation_spec()}

    def _observe(self):
        return {EVIL: super()._observe()}

    def get_action_meanings(self):
        return [EVIL, f"x{EVIL}"]

    def get_info(self):
        return {EVIL: EVIL}

    def render(self, mode="rgb_array"):
        raise ValueError(EVIL)

    def _step(self, action):
        if self.raising:
            raise RuntimeError(EVIL)
        return super()._step(action)


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--json"],
        ["check"],
        ["check", "--json"],
        ["play", "--keys", "0"],
        ["play", "--keys", "0", "--arg", "raising=True"],
        ["record", "-o", "r", "--arg", "raising=True"],
        ["bench", "--num-envs=2", "--seconds=0.02", "--backends=inline"],
        ["bench", "--num-envs=2", "--seconds=0.02", "--arg", f"no{EVIL}=3"],
        ["list", f"{EVIL}*"],
    ],
    ids=lambda arguments: " ".join(arguments).replace(EVIL, ""),
)
def test_escape_sequences_of_an_environment_are_written_out(
    arguments, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    hide_schemes(monkeypatch)
    command, *options = arguments
    target = [] if command == "list" else [f"{__name__}:Evil"]
    with contextlib.suppress(SystemExit):
        main([command, *target, *options])
    told = "".join(capsys.readouterr())
    assert told
    assert not set("\x1b\x07\x9b\u202e") & set(told)


def test_escape_sequences_of_an_error_are_written_out_in_its_traceback(tmp_path):
    options = ["-o", "r", "--arg", "raising=True", "--debug"]
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "record", f"{__name__}:Evil", *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    told = done.stdout + done.stderr

    assert "Traceback" in told
    assert not set("\x1b\x07\x9b\u202e") & set(told)


def test_a_console_escapes_control_characters():
    """And its own colours are there as ever."""
    console = SafeConsole(file=io.StringIO(), force_terminal=True, width=60)
    table = Table(f"a{EVIL}")
    table.add_row(Text(f"b{EVIL}", style="red"))
    console.print(table, Text(f"c{EVIL}"))
    told = console.file.getvalue()

    assert r"c\u001b]0;owned\u009b2J\u202e" in told
    assert "\x1b[31mb" in told
    assert "\x1b]" not in told
    assert not set("\x07\x9b\u202e") & set(told)
