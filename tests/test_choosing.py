"""The tables of figures in guides are the measured ones."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HINT = "python tools/choosing_figures.py writes them"


def tool():
    path = ROOT / "tools/choosing_figures.py"
    spec = importlib.util.spec_from_file_location("choosing_figures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part(page, name):
    text = (ROOT / f"docs/{page}.md").read_text("utf-8")
    (found,) = re.findall(
        rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end of {name}", text, re.S
    )
    return found


def test_the_table_of_choices_matches_the_measurements():
    assert tool().choices() == part("tutorial", "choices"), HINT


@pytest.mark.parametrize("name", tool().MACHINES)
def test_the_tables_of_more_machines_match_the_measurements(name):
    assert tool().MACHINES[name]() == part("more_machines", name), HINT


@pytest.mark.parametrize("name", ["choices", "links"])
def test_only_the_generated_part_is_replaced(name, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- {name} -->\nold\n<!-- end of {name} -->\nafter\n")
    tool().fill(page, name, "new")
    expected = f"before\n<!-- {name} -->\n\nnew\n\n<!-- end of {name} -->\nafter\n"
    assert expected == page.read_text()
