"""Sphinx's settings: `python -m sphinx -W -b html docs docs/_build`.

The build fetches nothing, so that it gives the same answer everywhere. With `-t online`
the names of Python and NumPy become links to their own sites.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.inspect import TypeAliasForwardRef
from sphinx.util.nodes import make_refnode

import envkit
from envkit import errors, types

project = "envkit"
author = "The envkit developers"
copyright = author
release = version = envkit.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
]
# In `changes` lies what CHANGELOG.md is collected from when a version is released.
exclude_patterns = ["_build", "changes/*"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"envkit {version}"
html_static_path = ["_static"]
html_css_files = ["wide_tables.css"]
html_show_copyright = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "literal"  # Docstrings set code in single backticks.
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
# As they are written: the repr of a class, `<class ...>`, is no Python to be parsed.
autodoc_preserve_defaults = True
# The documentation builds without the packages that integrations are for.
autodoc_mock_imports = ["dm_control", "dm_env", "gymnasium", "tensorflow"]
# Signatures say `Seed`; what a seed may be, the page of envkit.types says once.
autodoc_type_aliases = {name: name for name in types.__all__}
autodoc_type_aliases["npt.ArrayLike"] = "numpy.typing.ArrayLike"
autodoc_type_aliases["npt.DTypeLike"] = "numpy.typing.DTypeLike"
# Within a union Sphinx shows an alias as the repr of this stand-in.
TypeAliasForwardRef.__repr__ = lambda alias: alias.name
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False

# A name that leads nowhere breaks the build.
nitpicky = True
nitpick_ignore_regex = [
    # Without a network nobody knows what these packages document. Names of envkit are
    # never excused, but for type variables and aliases, which have no page to link to.
    (
        r"py:.*",
        r"(abc|argparse|collections|concurrent|cProfile|enum|np|npt|numpy|os|pathlib"
        r"|tensorflow|types|typing|zipfile)\..*",
    ),
    (r"py:class", r"(.*\.)?(Self|SpecT|Change|Ignored|Method|Path)"),
    # Types of parts that have no page.
    (
        r"py:class",
        r"envkit\.(adapters\.pysc2_parts\.functions\.Function"
        r"|recording\.layout\.Layout)",
    ),
]
intersphinx_mapping = {}
if tags.has("online"):  # noqa: F821  # Sphinx puts `tags` here
    intersphinx_mapping = {
        "numpy": ("https://numpy.org/doc/stable", None),
        "python": ("https://docs.python.org/3", None),
    }

_FIELD = type(envkit.TimeStep.step_type)
_REFERENCE = Path(__file__).parent / "reference/index.md"
_PAGES = set(re.findall(r"^   (envkit\.\S+)$", _REFERENCE.read_text("utf-8"), re.M))
_MODULES = {"errors", "specs", "testing", "wrappers"}  # words of everyday, too
_LINKED = {*envkit.__all__, *errors.__all__, *types.__all__} - _MODULES


def _translate(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turns what docstrings have of Markdown into what Sphinx reads."""
    text = "\n".join(lines)
    text = re.sub(r"^```\n(.*?)^```$", _literal, text, flags=re.M | re.S)
    text = re.sub(r"(?:^ *\|.*\|\n)+", _table, text, flags=re.M)
    text = re.sub(r"(?<!`)`(\w+)`(?!`)", _linked, text)
    # Napoleon takes what stands before a colon for a type, and types are in our
    # signatures only; with an empty one it leaves the sentence alone.
    text = re.sub(r"^(Returns:\n +)(?=\S)", r"\1: ", text, flags=re.M)
    lines[:] = (f": {text}" if what == "property" else text).splitlines()


def _literal(fenced: re.Match[str]) -> str:
    return "::\n\n" + textwrap.indent(fenced[1], "    ")


def _table(table: re.Match[str]) -> str:
    head, _, *body = (line.strip().strip("|") for line in table[0].splitlines())
    items = [
        f"  {' ' if column else '*'} - {cell.strip()}"
        for line in (head, *body)
        for column, cell in enumerate(line.split("|"))
    ]
    return "\n".join([".. list-table::", "  :header-rows: 1", "", *items, ""])


def _linked(code: re.Match[str]) -> str:
    return f":py:obj:{code[0]}" if code[1] in _LINKED else code[0]


def _name_public_bases(
    app: Sphinx, name: str, obj: Any, options: Any, bases: list[type]
) -> None:
    """Shows in place of a base class without a page what that is derived from."""
    while hidden := [base for base in bases if _has_no_page(base)]:
        index = bases.index(hidden[0])
        bases[index : index + 1] = hidden[0].__bases__


def _has_no_page(cls: type) -> bool:
    package, _, _ = cls.__module__.partition(".")
    is_internal = package == "envkit" and cls.__module__ not in _PAGES
    return cls.__name__.startswith("_") or is_internal


def _name_tests(app: Sphinx, name: str, source: list[str]) -> None:
    """Lets a link to a test show the test's name, which only pages of Markdown do."""
    source[0] = re.sub(
        r'(\[[^\]]*\]\(\.\./(tests/[^\s)]+)) "(\w+)"\)',
        r'<span title="\2: \3">\1)</span>',
        source[0],
    )


def _skip_fields(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leaves out a namedtuple's fields, which its docstring describes."""
    return True if isinstance(obj, _FIELD) else None


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.reference | None:
    """Finds a name without the module it lives in.

    Annotations write `TimeStep`, and readers know it as `envkit.TimeStep`.
    """
    package, _, short = node["reftarget"].rpartition(".")
    if node.get("refdomain") != "py" or package.partition(".")[0] not in ("", "envkit"):
        return None
    homes = [
        (name, entry)
        for name, entry in env.domaindata["py"]["objects"].items()
        if name.startswith(f"{package or 'envkit'}.")
        and name.endswith(f".{short}")
        and entry.objtype in ("class", "data", "exception", "function")
    ]
    if len(homes) != 1:
        return None
    [(name, entry)] = homes
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, content, name
    )


def setup(app: Sphinx) -> None:
    """Connects the functions above."""
    # A page of a module that is gone would be built and complained about for ever.
    shutil.rmtree(Path(__file__).parent / "reference/generated", ignore_errors=True)
    # Before Napoleon, whose own handler has the priority 500.
    app.connect("autodoc-process-docstring", _translate, priority=400)
    app.connect("autodoc-process-bases", _name_public_bases)
    app.connect("autodoc-skip-member", _skip_fields)
    app.connect("missing-reference", _resolve)
    app.connect("source-read", _name_tests)
