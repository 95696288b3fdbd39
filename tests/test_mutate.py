"""Mutants are the same for the same seed, and faults of code alone."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SAMPLE = '''"""A module with 1 number and a < comparison in its docstring."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    SIZE = 1
__all__ = ["Box"] * 1
logger = logging.getLogger(__name__)


class Box:
    """Holds at most 3 things."""

    room: int | None = None

    def put(self, count: int = 0, *, strict: bool) -> "Box | None":
        """Adds 5 < 6 things."""
        logger.info("%d", count + 1)
        if self.room is not None and not (count < self.room):
            raise ValueError(f"too many: {count + 1}")
        self.count += count
        for each in range(count):
            if each == 2:
                continue
        return self.put(count - 1, strict=strict)
'''
# Nothing is left of these lines, whatever the fault.
NO_CODE = [1, 3, 5, 6, 8, 9, 10, 11, 15, 20, 21]


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("mutants")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with the sample, and with a test that finds some of its faults."""
    (tmp_path / "envkit").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "envkit/__init__.py").touch()
    (tmp_path / "envkit/box.py").write_text(
        "def double(x):\n    return x * 2\n\n\ndef halve(x):\n    return x / 2\n"
    )
    (tmp_path / "tests/test_box.py").write_text(
        "from envkit.box import double\n\n"
        "def test_double():\n    assert double(3) == 6\n\n"
        "def test_fails_always():\n    assert double(3) == 7\n"
    )
    return tmp_path


def test_faults_are_in_code_alone(mutants):
    lines = {mutant.line for mutant in mutants.candidates(Path("box.py"), SAMPLE)}
    assert lines.isdisjoint(NO_CODE)
    assert {19, 22, 23, 24, 26, 27, 28} == lines


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        (19, "def put(self, count: int = 1, *,"),
        (22, "if False:"),
        (22, "if self.room is None and"),
        (22, "is not None or not (count"),
        (22, "and  (count < self.room)"),
        (22, "(count <= self.room)"),
        (23, "            pass"),
        (24, "self.count -= count"),
        (24, "        pass"),
        (26, "if each != 2:"),
        (26, "if each == 3:"),
        (27, "break"),
        (28, "return None"),
        (28, "self.put(count + 1, strict=strict)"),
        (28, "self.put(count - 1, )"),
    ],
)
def test_a_line_has_faults_of_every_kind_that_fits_it(mutants, line, changed):
    found = [
        mutant.difference(SAMPLE)
        for mutant in mutants.candidates(Path("box.py"), SAMPLE)
        if mutant.line == line
    ]
    assert any(changed in each.partition("\n+")[2] for each in found), found


def test_the_same_seed_draws_the_same_mutants_and_another_seed_others(mutants):
    paths = mutants.files_of(ROOT, "specs")
    first, again = (mutants.draw(ROOT, paths, 20, "1") for _ in range(2))
    assert len(first) == 20
    assert first == again
    assert first != mutants.draw(ROOT, paths, 20, "2")


def test_every_mutant_compiles_to_other_code_and_keeps_what_is_written_about_it(
    mutants,
):
    for mutant in mutants.draw(ROOT, mutants.files_of(ROOT, "specs"), 20, "3"):
        source = (ROOT / mutant.path).read_text("utf-8")
        changed = mutant.applied(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
        assert docstrings_and_types(changed) == docstrings_and_types(source)


def docstrings_and_types(source: str) -> list[str | None]:
    found: list[str | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            found.append(ast.get_docstring(node))
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            found.append(ast.unparse(node.annotation))
        if isinstance(node, ast.FunctionDef) and node.returns:
            found.append(ast.unparse(node.returns))
    # The walk goes by levels, and a dropped branch has fewer of them.
    return sorted(each or "" for each in found)


@pytest.mark.parametrize(
    ("text", "is_different"), [("3", True), ("2", False), ("1 1", False)]
)
def test_a_fault_is_other_code_that_compiles(mutants, text, is_different):
    mutant = mutants.Mutant(Path("x.py"), 1, 4, 9, text, "number", None)
    assert mutants.is_different("x = 1 + 1\n", mutant) is is_different


def test_a_count_is_shared_in_proportion_and_each_has_one(mutants):
    assert [29, 14, 6, 1] == mutants.shares([3000, 1400, 500, 20], 50)
    assert [1, 0] == mutants.shares([10, 1], 1)


def test_marks_stand_in_front_of_their_statements_and_change_nothing_else(mutants):
    marked = mutants.with_marks(SAMPLE, {(23, 12): [0, 4]})
    without = [
        line
        for line in ast.unparse(ast.parse(marked)).split("\n")
        if "_marks" not in line
    ]
    assert "_marks[0] = 1\n            _marks[4] = 1\n            raise" in marked
    assert "\n".join(without).replace("try:\nexcept ImportError:\n", "") == (
        ast.unparse(ast.parse(SAMPLE))
    )


@pytest.mark.slow
def test_the_tool_counts_what_tests_find_and_leaves_the_tree_as_it_was(tree):
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}

    options = ["--seed=1", "--count=9", "--package=box", "--jobs=1", f"--root={tree}"]
    finished = subprocess.run(
        [sys.executable, ROOT / "tools/mutate.py", *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert "2 mutants, 1 files of tests" in lines
    assert any(line.startswith("left out") and "fails_always" in line for line in lines)
    assert any(line.startswith("killed    envkit/box.py:2 ") for line in lines)
    assert any(
        line.startswith("survived: no test reaches it envkit/box.py:6")
        for line in lines
    )
    assert ["all", "2", "1", "50%"] == lines[-1].split()
    assert before == {path: path.read_bytes() for path in tree.rglob("*.py")}


def test_mutants_that_were_drawn_can_be_chosen(tree):
    options = ["--seed=1", "--package=box", f"--root={tree}", "--list"]
    finished = subprocess.run(
        [sys.executable, ROOT / "tools/mutate.py", *options, "--only=envkit/box.py:6"],
        capture_output=True,
        text=True,
        check=False,
    )

    first, *_ = finished.stdout.splitlines()
    assert first.startswith("envkit/box.py:6 ")
    assert "box.py:2" not in finished.stdout
