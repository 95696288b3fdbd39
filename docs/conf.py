"""Sphinx's settings: `python -m sphinx -W -b html docs docs/_build`.

The build fetches nothing, so that it gives the same answer everywhere. With `-t online`
the names of Python and NumPy become links to their own sites.
"""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any, get_origin

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autodoc.mock import mock
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
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
# The button copies commands without prompts and without their output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
# In `changes` lies what CHANGELOG.md is collected from when a version is released, and
# in `reference/generated` what builds of older checkouts have left.
exclude_patterns = ["_build", "changes/*", "reference/generated"]

html_theme = "furo"
html_title = f"envkit {version}"
html_static_path = ["_static"]
html_css_files = ["envkit.css"]
html_search_scorer = str(Path(__file__).parent / "_static/scorer.js")
html_show_copyright = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "literal"  # Docstrings set code in single backticks.
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
# The arguments of a class stand in the docstring of its constructor.
autoclass_content = "both"
# As they are written: the repr of a class, `<class ...>`, is no Python to be parsed.
autodoc_preserve_defaults = True
# The documentation builds without the packages that integrations are for.
autodoc_mock_imports = ["dm_control", "dm_env", "gymnasium", "tensorflow"]
autodoc_mock_imports += ["jax", "tensordict", "torch", "torchrl"]
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
    # Without a network the build cannot know what these packages document. Names of
    # envkit are never excused, but for type variables and aliases, which have no page
    # to link to.
    (
        r"py:.*",
        r"(abc|argparse|collections|concurrent|cProfile|enum|np|npt|numpy|os|pathlib"
        r"|socket|ssl|tensorflow|torch|types|typing|zipfile)\..*",
    ),
    (r"py:class", r"(.*\.)?(Self|Spec\w*T|AnyPool|Change|Ignored|Info|Method|Path)"),
    (r"py:class", r"deque|Axes|Console|Figure|envkit\.sessions\.\w+\.T"),
]
intersphinx_mapping = {}
if tags.has("online"):  # noqa: F821  # Sphinx puts `tags` here
    intersphinx_mapping = {
        "numpy": ("https://numpy.org/doc/stable", None),
        "python": ("https://docs.python.org/3", None),
    }

_FIELD = type(envkit.TimeStep.step_type)
_REFERENCE = Path(__file__).parent / "reference"
_PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
(_REPOSITORY,) = re.findall(r'^Repository = "(.+)"$', _PROJECT, re.M)
# A block of a page of the reference: a package, and the names that are described there.
_BLOCK = re.compile(r"^```\{names\} (\S+)\n(.*?)^```$", re.M | re.S)
# A command in the page of the command line.
_COMMAND = re.compile(r"^```\{command\} (\w+)\n```$", re.M)
_TOOL = Path(__file__).parents[1] / "tools" / "command_reference.py"
_command_reference = runpy.run_path(str(_TOOL))["command_reference"]
_PLACES: dict[str, list[str]] = {}  # For each name, those that it has with its package.
for _page in sorted(_REFERENCE.glob("*.md")):
    for _package, _names in _BLOCK.findall(_page.read_text("utf-8")):
        for _name in _names.split():
            _PLACES.setdefault(_name, []).append(f"{_package}.{_name}")
for _name in types.__all__:
    _PLACES[_name] = [f"envkit.types.{_name}"]
_MODULES = {"errors", "specs", "testing", "wrappers"}  # words of everyday, too
_LINKED = {*envkit.__all__, *errors.__all__, *types.__all__} - _MODULES

_CLASSES = {
    name
    for path in Path(envkit.__file__).parent.rglob("*.py")
    for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.M)
}

# Members of base classes without a description are described where they are inherited.
_DESCRIBED = [name for name in _PLACES if name[:1].isupper()]
_FOREIGN = ["BaseException", "Enum", "Exception", "IntEnum", "int", "object", "tuple"]
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "inherited-members": ",".join(sorted({*_DESCRIBED, *_FOREIGN})),
}


def _expand_names(app: Sphinx, name: str, source: list[str]) -> None:
    """Describes the names of each block of a page, in whatever module they are."""
    if name.startswith("reference/"):
        source[0] = _BLOCK.sub(_descriptions, source[0])


def _expand_commands(app: Sphinx, name: str, source: list[str]) -> None:
    """Shows the options of each command of a page, as its `--help` has them."""
    if name.startswith("reference/"):
        source[0] = _COMMAND.sub(
            lambda block: f"```{{eval-rst}}\n{_command_reference(block[1])}\n```",
            source[0],
        )


def _descriptions(block: re.Match[str]) -> str:
    package, names = block[1], block[2].split()
    with mock(autodoc_mock_imports):
        module = importlib.import_module(package)
        directives = [_directive(getattr(module, name)) for name in names]
    lines = [
        line
        for name, (directive, *options) in zip(names, directives, strict=True)
        for line in (f".. {directive}:: {package}.{name}", *options, "")
    ]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _directive(obj: Any) -> list[str]:
    if obj is envkit.PyEnvironment:
        hooks = "_reset, _step, _reset_rows, _get_state, _set_state"
        return ["autoclass", f"   :private-members: {hooks}"]
    if inspect.isclass(obj):
        return ["autoclass"]
    if callable(obj):
        return ["autofunction"]
    cls = type(obj)
    return ["py:data", *[f"   :type: {cls.__name__}"] * (cls.__name__ in _PLACES)]


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
    """Turns a Markdown table into a list table.

    A row whose first cell is empty continues the cells of the row above.
    """
    head, _, *body = (_cells(line) for line in table[0].splitlines())
    rows = [head]
    for row in body:
        if row[0]:
            rows.append(row)
        else:
            pairs = zip(rows[-1], row, strict=True)
            rows[-1] = [f"{above} {cell}".strip() for above, cell in pairs]
    items = [
        f"  {' ' if column else '*'} - {cell}"
        for row in rows
        for column, cell in enumerate(row)
    ]
    return "\n".join([".. list-table::", "  :header-rows: 1", "", *items, ""])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _linked(code: re.Match[str]) -> str:
    return f":py:obj:{code[0]}" if code[1] in _LINKED else code[0]


def _name_public_bases(
    app: Sphinx, name: str, obj: Any, options: Any, bases: list[type]
) -> None:
    """Shows in place of a base class without a description its own bases."""
    while hidden := [base for base in bases if _is_internal(base)]:
        index = bases.index(hidden[0])
        # One with parameters has no bases of its own.
        bases[index : index + 1] = (get_origin(hidden[0]) or hidden[0]).__bases__


def _is_internal(cls: Any) -> bool:
    package = getattr(cls, "__module__", "").partition(".")[0]
    return package == "envkit" and cls.__name__ not in _PLACES


def _name_tests(app: Sphinx, name: str, source: list[str]) -> None:
    """Links to files of the repository, and shows the name of a linked test."""
    source[0] = re.sub(
        r"\]\(\.\./(?:\.\./)?(?!tests/)([^)\s]+)", _to_repository, source[0]
    )
    source[0] = re.sub(
        r'(\[[^\]]*\]\(\.\./(tests/[^\s)]+)) "(\w+)"\)',
        r'<span title="\2: \3">\1)</span>',
        source[0],
    )


def _to_repository(link: re.Match[str]) -> str:
    path = link[1].partition("#")[0]
    is_page = (_REFERENCE.parent / path).exists()
    return link[0] if is_page else f"]({_REPOSITORY}/blob/main/{link[1]}"


def _link_code(app: Sphinx, name: str, source: list[str]) -> None:
    """Links names in code to the reference: on GitHub they stay plain code."""
    if name.startswith("reference/"):
        return
    fenced = re.split(r"(^ *```.*?^ *```$)", source[0], flags=re.M | re.S)
    for index in range(0, len(fenced), 2):
        fenced[index] = re.sub(
            r"^(#.*|.*`[A-Z]\w+`.*)$", _link_line, fenced[index], flags=re.M
        )
    source[0] = "".join(fenced)


def _link_line(line: re.Match[str]) -> str:
    if line[0].startswith("#"):  # a heading
        return line[0]
    # Not in the text of another link.
    parts = re.split(r"(\[[^\]]*\]\([^)]*\))", line[0])
    parts[::2] = [re.sub(r"(?<!`)`([A-Z]\w+)`(?!`)", _code_link, p) for p in parts[::2]]
    return "".join(parts)


def _code_link(code: re.Match[str]) -> str:
    places = _PLACES.get(code[1], [])
    return f"{{py:obj}}`{code[1]} <{places[0]}>`" if len(places) == 1 else code[0]


def _skip_members(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leaves out what docstrings describe or other packages do.

    The fields of a namedtuple stand in its docstring, and what a class inherits from
    another library that library documents.
    """
    function = inspect.unwrap(getattr(obj, "fget", None) or obj)
    home = getattr(function, "__module__", None) or "envkit"
    return True if isinstance(obj, _FIELD) or not home.startswith("envkit") else None


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Node | None:
    """Finds the description of a name, which stands under the package that exports it.

    Annotations write `TimeStep` or the module that it is defined in, and readers know
    it as `envkit.TimeStep`. In a signature a class of envkit that no page describes is
    not a link.
    """
    target = node["reftarget"]
    package, _, short = target.rpartition(".")
    if node.get("refdomain") != "py" or package.partition(".")[0] not in ("", "envkit"):
        return None
    places = _PLACES.get(short, [])
    if not places:
        return content if node["reftype"] == "class" and short in _CLASSES else None
    name = max(places, key=lambda place: _common(place.split("."), target.split(".")))
    entry = env.domaindata["py"]["objects"].get(name)
    if entry is None:
        return None
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, content, name
    )


def _common(path: list[str], other: list[str]) -> int:
    return sum(part == its for part, its in zip(path, other, strict=False))


def setup(app: Sphinx) -> None:
    """Connects the functions above."""
    # Before Napoleon, whose own handler has the priority 500.
    app.connect("autodoc-process-docstring", _translate, priority=400)
    app.connect("autodoc-process-bases", _name_public_bases)
    app.connect("autodoc-skip-member", _skip_members)
    app.connect("missing-reference", _resolve)
    app.connect("source-read", _name_tests)
    app.connect("source-read", _link_code)
    app.connect("source-read", _expand_names)
    app.connect("source-read", _expand_commands)
