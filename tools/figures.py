"""Prints how large the contract and the engine of a checkout are, and how they leak.

`python tools/figures.py [checkout] [--names]`; `--names` lists what is counted. The
names that a class gets and the options of a pool are read off the running code, the
rest off the source.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# What lies above the wall: these folders, and the modules of the root but the last two.
ABOVE = ("_internal", "parallel", "specs")
BELOW_IN_THE_ROOT = ("__main__", "jax")
# The module through which rooms below the wall get what is not public.
EXTEND = "extend"

_NAMES = re.compile(r"^```\{names\} \S+\n(.*?)^```$", re.M | re.S)
_DATA = re.compile(r"^```\{py:data\} \S+\.(\w+)$", re.M)
_UNCOUNTED = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_PRIVATE_NAMES = """
from envkit.py_environment import PyEnvironment
class Mine(PyEnvironment):
    pass
for name in sorted(dir(Mine)):
    if name.startswith("_") and not name.endswith("__") and name != "_abc_impl":
        print(name)
"""
_OPTIONS = """
import inspect
from envkit.parallel import ParallelPyEnvironment
print(*[*inspect.signature(ParallelPyEnvironment).parameters][1:], sep="\\n")
"""


class Sources:
    """The modules of a checkout, by name: "parallel.slab" for `parallel/slab.py`."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        root = checkout / "envkit"
        self.paths: dict[str, Path] = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.paths[name] = path

    def tree(self, module: str) -> ast.Module:
        return ast.parse(self.paths[module].read_text("utf-8"))

    def is_above(self, module: str) -> bool:
        """Returns True for the contract and the engine."""
        room = module.partition(".")[0]
        is_root_module = self.paths[module].parent.name == "envkit"
        return room in ABOVE or (is_root_module and room not in BELOW_IN_THE_ROOT)

    def above(self) -> list[str]:
        """Lists the modules of the contract and the engine."""
        return [module for module in self.paths if self.is_above(module)]

    def root_modules(self) -> list[str]:
        """Lists the modules of the root, without `__init__` and `__main__`."""
        return [
            module
            for module, path in self.paths.items()
            if path.parent.name == "envkit" and not path.stem.startswith("__")
        ]

    def public_names(self) -> set[str]:
        """Returns the names that the reference describes."""
        names: set[str] = set()
        for page in (self._checkout / "docs" / "reference").glob("*.md"):
            text = page.read_text("utf-8")
            names.update(
                name for block in _NAMES.findall(text) for name in block.split()
            )
            names.update(_DATA.findall(text))
        return names

    def crossing(self) -> dict[str, list[str]]:
        """Returns what modules below the wall take from above that is not public.

        Returns:
            For each `"module:name"`, the modules that import the name, or use it as an
            attribute of the imported module.
        """
        public = self.public_names()
        users: dict[str, list[str]] = defaultdict(list)
        for module in self.paths:
            if not self.is_above(module):
                for home, name in set(self._taken(module)):
                    if name not in public or home == EXTEND:
                        users[f"{home}:{name}"].append(module)
        return dict(sorted(users.items()))

    def _taken(self, module: str) -> Iterator[tuple[str, str]]:
        """Yields each name that a module takes from above the wall, with its home."""
        tree = self.tree(module)
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                package = _inside(node.module)
                for alias in node.names if package is not None else ():
                    whole = f"{package}.{alias.name}".lstrip(".")
                    if whole in self.paths:
                        modules[alias.asname or alias.name] = whole
                    elif package and self.is_above(package):
                        yield package, alias.name
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                home = modules.get(node.value.id, "")
                is_module = f"{home}.{node.attr}" in self.paths
                if home and self.is_above(home) and not is_module:
                    yield home, node.attr


def _inside(module: str) -> str | None:
    """Returns a module's name inside envkit; `None` for other packages' modules."""
    first, _, rest = module.partition(".")
    return rest if first == "envkit" else None


def lines_of_code(path: Path) -> int:
    """Counts the lines that are not empty, comments or docstrings."""
    text = path.read_text("utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _UNCOUNTED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(node, body[0]):
            lines -= set(range(body[0].lineno, body[0].end_lineno + 1))
    return len(lines)


def _is_docstring(owner: ast.AST, first: ast.stmt) -> bool:
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return (
        isinstance(owner, owners)
        and isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _printed(checkout: Path, program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=checkout,  # The first place where Python looks for modules.
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def main() -> None:
    show_names = "--names" in sys.argv
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    checkout = Path(given[0] if given else Path(__file__).parents[1]).resolve()
    sources = Sources(checkout)
    above = sources.above()
    lines = sum(lines_of_code(sources.paths[module]) for module in above)
    crossing = sources.crossing()
    named = {
        "private names in a subclass of PyEnvironment": _printed(
            checkout, _PRIVATE_NAMES
        ),
        "names that rooms below the wall take from above, beside public ones": [
            f"{name}  ({len(users)})" for name, users in crossing.items()
        ],
        "options of a pool's constructor": _printed(checkout, _OPTIONS),
    }
    print(f"{lines:6,}  lines of code in the contract and the engine")
    print(f"{len(above):6}  files in the contract and the engine")
    print(f"{len(sources.root_modules()):6}  modules in the root")
    for what, names in named.items():
        print(f"{len(names):6}  {what}")
        for name in names if show_names else ():
            print(f"          {name}")


if __name__ == "__main__":
    main()
