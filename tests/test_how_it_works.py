"""`docs/how_it_works.md` names files, functions and methods that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import envkit
from envkit.parallel.backends.base import Backend
from envkit.parallel.events import Events
from envkit.parallel.pool import Pool
from envkit.parallel.restarts import Restarts
from envkit.parallel.row_states import Rows
from envkit.parallel.slab import Slab
from envkit.parallel.workers import Workers

HOUSE = Path(envkit.__file__).parent
PAGE = (HOUSE.parent / "docs/how_it_works.md").read_text("utf-8")
CLASSES = {
    each.__name__: each
    for each in (Backend, Events, Pool, Restarts, Rows, Slab, Workers)
}
FOLDERS = (HOUSE.parent, HOUSE, HOUSE / "parallel")


def file_called(name: str) -> Path | None:
    found = (folder / name for folder in FOLDERS)
    return next((path for path in found if path.exists()), None)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_every_named_file_exists(name):
    assert file_called(name) is not None


@pytest.mark.parametrize(
    ("name", "function"), re.findall(r"`([\w/]+\.py)`, `(\w+)`", PAGE)
)
def test_every_named_function_is_in_its_file(name, function):
    path = file_called(name)
    assert path is not None
    assert f"def {function}(" in path.read_text("utf-8")


METHODS = re.findall(rf"`({'|'.join(CLASSES)})\.(\w+)", PAGE)


@pytest.mark.parametrize(("owner", "method"), sorted(set(METHODS)))
def test_every_named_method_exists(owner, method):
    assert hasattr(CLASSES[owner], method)


ANSWERS = PAGE.partition("only this module answers it |")[2].partition("\n\n")[0]


@pytest.mark.parametrize("name", re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", ANSWERS))
def test_every_module_in_the_answers_exists(name):
    is_column = name in {"sequence", "answered"}
    assert is_column or file_called(f"{name}.py") is not None


def test_the_drawing_shows_every_package():
    drawing = PAGE.partition("## The house")[2].partition("\n\n")[2]
    drawing = drawing.partition("```text")[2].partition("```")[0]
    rooms = {path.parent.name for path in HOUSE.glob("*/__init__.py")} | {"jax.py"}

    assert rooms == set(re.findall(r"[\w.]+(?=/)|jax\.py", drawing)) - {
        path.parent.name for path in HOUSE.glob("parallel/*/__init__.py")
    }
