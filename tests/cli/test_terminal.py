"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from envkit.cli.terminal import Fitting

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
def test_figures_are_whole_however_narrow_a_terminal_is(width, expected):
    table = Table("")
    table.add_column("steps/s", justify="right")
    table.add_column("rounds within", justify="right")
    table.add_row("★ its own batch", "1,560,123", "3%")
    console = Console(file=io.StringIO(), width=width)
    console.print(Fitting(table), crop=False)
    lines = console.file.getvalue().splitlines()

    assert expected == "".join(f"{line.rstrip()}\n" for line in lines)
