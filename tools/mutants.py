"""Makes mutants of a package: its code with one small fault each.

A mutant is a replacement of a few characters in one file. The same seed and the same
sources make the same mutants. Nothing here runs any code.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}
LOGGERS = {"logger", "log", "_logger", "_log", "logging"}
# These faults are found by any test that runs the line, as a rule, so they are rarer.
WEIGHTS = {
    "returned None": 0.3,
    "dropped keyword": 0.4,
    "dropped call": 0.6,
    "dropped raise": 0.6,
}
# What is called with types, which no test can tell from others.
OF_TYPES = {"TypeVar", "ParamSpec", "NewType", "cast", "isinstance", "issubclass"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault, and where it is put.

    Attributes:
        path: The file, relative to the root of the tree.
        line: The line of the fault, from 1.
        start: The first character that is replaced, counted from the file's first.
        stop: The first character after those.
        text: What comes in their place.
        kind: What kind of fault it is.
        statement: Line and column of the statement that it is in, if that stands in a
            function; `None` for what runs when the module is imported.
    """

    path: Path
    line: int
    start: int
    stop: int
    text: str
    kind: str
    statement: tuple[int, int] | None

    def applied(self, source: str) -> str:
        """Returns the file's text with the fault."""
        return source[: self.start] + self.text + source[self.stop :]

    def difference(self, source: str) -> str:
        """Returns the lines before and after, as a diff has them."""
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.stop)
        before = source[first : last if last >= 0 else len(source)]
        end = self.stop - first
        after = before[: self.start - first] + self.text + before[end:]
        lines = [*(f"-{line}" for line in before.splitlines())]
        lines += [f"+{line}" for line in after.splitlines()]
        return "\n".join(lines)


def draw(root: Path, paths: Sequence[Path], count: int, seed: str) -> list[Mutant]:
    """Draws mutants of these files, each of a random line that has code to change.

    Args:
        root: The tree's root.
        paths: The files, relative to it.
        count: How many mutants; fewer if the files have not so many lines.
        seed: The same seed draws the same from the same sources.
    """
    rng = random.Random(seed)
    sources = {path: (root / path).read_text("utf-8") for path in sorted(paths)}
    lines = [line for path in sources for line in _lines(path, sources[path])]
    rng.shuffle(lines)
    drawn: list[Mutant] = []
    for possible in lines:
        if len(drawn) == count:
            break
        mutant = rng.choice(possible)
        is_taken = rng.random() < WEIGHTS.get(mutant.kind, 1.0)
        # Some faults change nothing, or are no Python: then another line's turn comes.
        if is_taken and is_different(sources[mutant.path], mutant):
            drawn.append(mutant)
    return drawn


def shares(sizes: Sequence[int], count: int) -> list[int]:
    """Splits a count in proportion to the sizes: each gets one if there are enough."""
    least = 1 if count >= len(sizes) else 0
    rest = count - least * len(sizes)
    exact = [rest * size / max(1, sum(sizes)) for size in sizes]
    result = [least + int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: int(exact[i]) - exact[i])
    for index in by_remainder[: count - sum(result)]:
        result[index] += 1
    return result


def is_different(source: str, mutant: Mutant) -> bool:
    """True if the fault compiles, to other code than there was."""
    try:
        changed = compile(mutant.applied(source), "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return not _is_same(changed, compile(source, "mutant", "exec", dont_inherit=True))


def _is_same(one: object, other: object) -> bool:
    """Compares code without its positions, and constants with their types."""
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        facts = ("co_code", "co_names", "co_varnames", "co_freevars", "co_flags")
        return all(
            getattr(one, fact) == getattr(other, fact) for fact in facts
        ) and _is_same(one.co_consts, other.co_consts)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def code_lines(source: str) -> int:
    """Returns how many lines have code that a mutant could change."""
    return len(_lines(Path(), source))


def _lines(path: Path, source: str) -> list[list[Mutant]]:
    """Returns the faults that are possible, by line."""
    by_line: dict[int, list[Mutant]] = {}
    for mutant in candidates(path, source):
        by_line.setdefault(mutant.line, []).append(mutant)
    return [by_line[line] for line in sorted(by_line)]


def candidates(path: Path, source: str) -> list[Mutant]:
    """Returns every fault that the kinds of this file could put into a source."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    """Walks through a module, and notes the places where a fault may be put."""

    def __init__(self, path: Path, source: str) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._statement: ast.stmt | None = None
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []

    # Positions. The tree counts a line's bytes, a text its characters.

    def _at(self, line: int, column: int) -> int:
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._at(node.lineno, node.col_offset),
            self._at(node.end_lineno, node.end_col_offset),
        )

    def _text(self, node: ast.expr) -> str:
        start, stop = self._span(node)
        return self._source[start:stop]

    def _note(self, start: int, stop: int, text: str, kind: str) -> None:
        line = self._source.count("\n", 0, start) + 1
        if "pragma: no cover" in self._lines[line - 1]:
            return
        place = None
        if self._functions and self._statement is not None:
            place = (self._statement.lineno, self._statement.col_offset)
        self.found.append(Mutant(self._path, line, start, stop, text, kind, place))

    def _replace(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        self._note(*self._span(node), text, kind)

    def _between(
        self, left: ast.expr, right: ast.expr, old: str, new: str, kind: str
    ) -> None:
        """Replaces the operator between two operands, if nothing else stands there."""
        start, stop = self._span(left)[1], self._span(right)[0]
        gap = self._source[start:stop]
        bare = gap.replace("(", " ").replace(")", " ").replace("\\", " ")
        if " ".join(bare.split()) != old:
            return  # A comment is in between.
        word = old.split()
        first = gap.index(word[0])
        last = gap.index(word[-1], first) + len(word[-1])
        self._note(start + first, start + last, new, kind)

    # Statements.

    def visit(self, node: ast.AST) -> None:
        """Visits a node, and keeps the statement that it is in."""
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        before, self._statement = self._statement, node
        if not _is_left_alone(node):
            super().visit(node)
        self._statement = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visits defaults where the function is made, and then its body."""
        if any("overload" in ast.unparse(each) for each in node.decorator_list):
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._functions.append(node)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Does the same."""
        self.visit_FunctionDef(node)  # type: ignore[arg-type]  # it has the same fields

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Leaves bases and decorators alone: they are about types."""
        functions, self._functions = self._functions, []
        for statement in node.body:
            self.visit(statement)
        self._functions = functions

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leaves the annotation alone."""
        if node.value is not None:
            self.visit(node.value)
            self._drop_assignment(node, [node.target])

    def visit_Assign(self, node: ast.Assign) -> None:
        """Drops the assignment, or changes the value."""
        names = [name.id for name in node.targets if isinstance(name, ast.Name)]
        if "__all__" in names or "__slots__" in names:
            return
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)
        self._drop_assignment(node, node.targets)

    def _drop_assignment(self, node: ast.stmt, targets: Sequence[ast.expr]) -> None:
        # Without its only assignment a local variable is a NameError, which any test
        # of the line would find.
        if not self._functions:
            return
        known = _assigned(self._functions[-1])
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                continue
            if not isinstance(target, ast.Name) or known.count(target.id) < 2:
                return
        self._replace(node, "pass", "dropped assignment")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Drops the statement, or takes the opposite operator."""
        self.generic_visit(node)
        self._replace(node, "pass", "dropped assignment")
        new = OPERATORS.get(type(node.op))
        if new is not None:
            start, stop = self._span(node.target)[1], self._span(node.value)[0]
            at = start + self._source[start:stop].index("=")
            old = self._source[start:at].strip()
            self._note(at - len(old), at, new, "operator")

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drops a call that is a statement."""
        self.generic_visit(node)
        is_call = isinstance(node.value, ast.Call)
        # Without its base's constructor no object lives long.
        is_constructor = "super().__init__" in self._text(node.value)
        if is_call and not is_constructor and self._functions:
            self._replace(node, "pass", "dropped call")

    def visit_Raise(self, node: ast.Raise) -> None:
        """Drops it."""
        self.generic_visit(node)
        if self._functions:
            self._replace(node, "pass", "dropped raise")

    def visit_Return(self, node: ast.Return) -> None:
        """Returns None instead."""
        self.generic_visit(node)
        if node.value is not None and not _is_constant(node.value, None):
            self._replace(node, "return None", "returned None")

    def visit_Continue(self, node: ast.Continue) -> None:
        """Ends the loop instead."""
        self._replace(node, "break", "loop")

    def visit_Break(self, node: ast.Break) -> None:
        """Goes on instead."""
        self._replace(node, "continue", "loop")

    def visit_If(self, node: ast.If) -> None:
        """Removes one of the branches, or exchanges both."""
        self.generic_visit(node)
        if not _is_about_the_program(node.test):
            self._decide(node.test)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Does the same."""
        self.generic_visit(node)
        self._decide(node.test)

    def visit_While(self, node: ast.While) -> None:
        """Never enters the loop."""
        self.generic_visit(node)
        self._replace(node.test, "False", "removed loop")

    def _decide(self, test: ast.expr) -> None:
        self._replace(test, "False", "removed branch")
        self._replace(test, "True", "removed branch")
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            self._replace(test, f"not ({self._text(test)})", "exchanged branches")

    # Expressions.

    def visit_Compare(self, node: ast.Compare) -> None:
        """Compares otherwise."""
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(
            operands, node.ops, operands[1:], strict=False
        ):
            for new in COMPARISONS[type(operator)]:
                old = _word(operator)
                self._between(left, right, old, new, "comparison")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Takes another operator, where the operands are no text and no types."""
        self.generic_visit(node)
        new = OPERATORS.get(type(node.op))
        is_of_types = isinstance(node.op, ast.BitOr) and not self._functions
        if new is None or is_of_types or _is_text(node.left) or _is_text(node.right):
            return
        self._between(node.left, node.right, _word(node.op), new, "operator")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchanges `and` and `or`."""
        self.generic_visit(node)
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new, "and/or")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drops a `not` or a minus."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not | ast.USub):
            start, _ = self._span(node)
            length = len("not" if isinstance(node.op, ast.Not) else "-")
            self._note(start, start + length, "", f"dropped {_word(node.op)}")

    def visit_Constant(self, node: ast.Constant) -> None:
        """Takes the other truth value, or the next number."""
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value), "truth value")
        elif isinstance(value, int):
            self._replace(node, str(value + 1), "number")
            self._replace(node, str(value - 1), "number")
        elif isinstance(value, float):
            self._replace(node, repr(value + 1.0), "number")

    def visit_Call(self, node: ast.Call) -> None:
        """Drops a keyword, or changes an argument."""
        if isinstance(node.func, ast.Name) and node.func.id in OF_TYPES:
            for argument in node.args:
                if not isinstance(argument, ast.BinOp):
                    self.visit(argument)
            return
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg is not None:
                start, stop = self._span(keyword)
                after = self._source[stop:]
                comma = len(after) - len(after.lstrip())
                if after.lstrip().startswith(","):
                    stop += comma + 1
                self._note(start, stop, "", "dropped keyword")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leaves it alone: before Python 3.12 its parts have no positions."""

    def visit_Import(self, node: ast.Import) -> None:
        """Leaves it alone."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leaves it alone."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leaves it alone: no test can make one fail that holds."""


def _is_left_alone(node: ast.stmt) -> bool:
    """True for docstrings, logging, and what only a type checker reads."""
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            owner = call.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else None
            name = owner.id if isinstance(owner, ast.Name) else name
            return name in LOGGERS
    if isinstance(node, ast.If):
        return _is_about_the_program(node.test)
    return False


def _is_about_the_program(test: ast.expr) -> bool:
    names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    return bool(names & {"TYPE_CHECKING", "__name__"})


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_text(node: ast.expr) -> bool:
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_string or isinstance(node, ast.JoinedStr)


def _assigned(function: ast.AST) -> list[str]:
    """Lists arguments and names that a function assigns, as often as it does."""
    names = [
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
    return names + [
        each.arg for each in ast.walk(function) if isinstance(each, ast.arg)
    ]


_WORDS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
    ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>",
    ast.BitAnd: "&", ast.BitOr: "|", ast.Not: "not", ast.USub: "minus",
}  # fmt: skip


def _word(operator: ast.AST) -> str:
    return _WORDS[type(operator)]


# Which mutants a test reaches.


def with_marks(source: str, places: dict[tuple[int, int], list[int]]) -> str:
    """Returns a module that marks each of these places when it is about to run.

    Args:
        source: The module's text.
        places: By line and column of a statement: the numbers of its marks.
    """
    tree = ast.parse(source)
    _Marker(places).visit(tree)
    after = 0
    for index, statement in enumerate(tree.body):
        is_future = (
            isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        )
        is_docstring = isinstance(statement, ast.Expr) and index == 0
        if is_future or is_docstring:
            after = index + 1
    # What runs in an environment without this is not counted.
    tree.body[after:after] = ast.parse(
        "try:\n    from reached import marks as _marks\n"
        "except ImportError:\n    _marks = {}\n"
    ).body
    return ast.unparse(ast.fix_missing_locations(tree))


class _Marker(ast.NodeTransformer):
    """Puts a mark in front of every statement that has a place."""

    def __init__(self, places: dict[tuple[int, int], list[int]]) -> None:
        self._places = places

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visits all lists of statements of a node."""
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, list(self._marked(block)))
        return node

    def _marked(self, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in block:
            place = (statement.lineno, statement.col_offset)
            for number in self._places.get(place, ()):
                mark = ast.parse(f"_marks[{number}] = 1").body[0]
                yield ast.copy_location(mark, statement)
            yield statement


def files_of(root: Path, package: str) -> list[Path]:
    """Returns the files of a package or module of `envkit`, relative to the root."""
    name = Path("envkit", *package.removeprefix("envkit.").split("."))
    if (root / name).is_dir():
        return sorted(path.relative_to(root) for path in (root / name).rglob("*.py"))
    path = name.with_suffix(".py")
    if not (root / path).is_file():
        raise SystemExit(f"envkit has no package or module called {package!r}.")
    return [path]
