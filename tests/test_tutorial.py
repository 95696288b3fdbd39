"""The tutorial's code can be pasted, block by block, into Python's own prompt."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs/tutorial.md"
LAST = "\n## In TensorFlow\n"


def blocks(text):
    """Returns the code as the page's copy button hands it over."""
    for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        lines = block.splitlines()
        if lines[0].startswith(">>> "):
            lines = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
        yield "\n".join(lines) + "\n\n"


def pasted(code):
    """Returns what an interactive interpreter prints to standard error."""
    command = [sys.executable, "-i", "-q", "-c", "import sys; sys.ps1 = sys.ps2 = ''"]
    done = subprocess.run(
        command, input=code, capture_output=True, text=True, timeout=300, check=False
    )
    assert "SyntaxError" not in done.stderr
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    return done.stderr


@pytest.mark.slow
def test_only_the_last_section_needs_tensorflow():
    pytest.importorskip("gymnasium")
    text, found, _ = PAGE.read_text("utf-8").partition(LAST)
    assert found
    pasted("import sys\nsys.modules['tensorflow'] = None\n\n" + "".join(blocks(text)))


@pytest.mark.slow
def test_the_tf_function_of_the_tutorial_needs_no_source_file():
    pytest.importorskip("tensorflow")
    _, _, text = PAGE.read_text("utf-8").partition(LAST)
    assert "AutoGraph" not in pasted("import envkit\n" + "".join(blocks(text)))
