"""What `typing_tests` shows to mypy is code that runs, and the types travel along."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import envkit

ROOT = Path(__file__).parent.parent
SLOW = "tensorflow_environment"
NEEDS = {
    "adapters_in_and_out": ["gymnasium"],
    "tensorflow_environment": ["tensorflow"],
}
SHAPES = sorted(path.stem for path in (ROOT / "typing_tests").glob("[!_]*.py"))


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, marks=[pytest.mark.slow] * (shape == SLOW))
        for shape in SHAPES
    ],
)
def test_the_typed_examples_run(shape):
    # The libraries of the test requirements bring it; envkit does not need it.
    for library in ("typing_extensions", *NEEDS.get(shape, ())):
        pytest.importorskip(library, reason=f"{library} is not installed")
    runpy.run_path(str(ROOT / f"typing_tests/{shape}.py"), run_name="__main__")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_types_to_infer_and_mistakes_to_find(shape):
    program = (ROOT / f"typing_tests/{shape}.py").read_text("utf-8")
    done, mistakes = program.split("def mistakes() -> None:")
    assert "assert_type(" in done
    # An ignored error has a code, or mypy would accept any.
    assert re.findall(r"# type: ignore\[[a-z-]+\]", mistakes)
    assert [] == re.findall(r"# type: ignore(?!\[)", program)


def test_the_package_is_marked_as_typed():
    assert (Path(envkit.__file__).parent / "py.typed").is_file()
