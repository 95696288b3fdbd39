"""Explains numba's errors in the terms of a rules' author."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

from envkit.envs.compiled.rules import Rules
from envkit.errors import CompileError
from envkit.extend import listed

__all__ = ["cannot_compile"]

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')

# numba's messages, and what to write instead. The first match is used; its groups are
# put into the sentence.
_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"Cannot unify (.+?) and (.+?) for '([^'.]+)",
        "The name {2} has values of two types: {0} and {1}. Give it one type on every "
        "path, such as 0.0 instead of 0 or None, and use another name for another "
        "kind of value.",
    ),
    (
        r"Field '([^']+)' was not found in record",
        "The state has no field {0}; its fields are {fields}. Add it to Rules.state "
        "with its initial value.",
    ),
    (
        r"Cannot resolve setattr: \(Record.*\)\.([A-Za-z]\w*) =",
        "state.{0} cannot take this value. A field keeps the type it has in "
        "Rules.state (the fields are {fields}), and an array cannot be replaced: "
        "write its elements, as in state.{0}[:] = ...",
    ),
    (
        r"Unknown attribute '([^']+)' of type (?:\S*\.)?Rng",
        "The random numbers have no {0}(): they have random(), integers(low, high), "
        "uniform(low, high), normal() and shuffle(array).",
    ),
    (
        r"Unknown attribute '([^']+)' of type (.+)",
        "numba does not know {0} of {1}. Replace it with a loop, or with another "
        "function of math or NumPy.",
    ),
    (
        r"(?:Untyped global name|global name) '([^']+)':?.*?(?:of|for) (<.+?>)?",
        "The name {0} is not something that numba can compile {1}. Rules may use "
        "numbers, tuples, NumPy arrays that do not change, and plain functions; put "
        "what changes into Rules.state.",
    ),
    (
        r"NameError: name '([^']+)' is not defined",
        "The name {0} is not defined.",
    ),
    (
        r"Use of unsupported NumPy function '([^']+)'",
        "numba does not know {0}. Replace it with a loop over elements.",
    ),
    (
        r"[Uu]nsupported (?:op|opcode|bytecode|use of op)\w*[:( ]+(?:found: )?(.+)",
        "numba does not compile this statement: {0}. Rules are made of numbers, "
        "arrays, if, for, while and calls of plain functions; with, try, yield, "
        "lambdas, f-strings and classes are not allowed.",
    ),
    (
        r"dict|list|set\(",
        "Lists, dictionaries and sets are slow or unknown here. Put an array of a "
        "fixed length into Rules.state, with a number that counts what is in it.",
    ),
)
_OTHERWISE = (
    "Rules are made of numbers, arrays, if, for, while, math and calls of plain "
    "functions."
)


def cannot_compile(error: Exception, rules: Rules, name: str) -> Exception:
    """Returns the error that names the line of the rules that cannot be compiled.

    Errors that are not numba's are returned unchanged.
    """
    if isinstance(error, KeyError) and isinstance(error.args[0], str):
        # numba raises this if a record has no such field.
        text = f"Field '{error.args[0]}' was not found in record."
        file, line = _line_with(rf"\.{re.escape(error.args[0])}\b", rules)
    elif type(error).__module__.startswith("numba."):
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        file, line = _place(text, rules)
        name_of = re.search(r"name '(\w+)' is not defined", text)
        if not line and name_of:
            file, line = _line_with(rf"\b{name_of[1]}\b", rules)
    else:
        return error
    rule = _rule_around(rules, file, line)
    code = linecache.getline(file, line).strip() if line else ""
    told = CompileError(_sentence(text, rules, name, rule, file, line, code))
    told.rule, told.file, told.line = rule, file, line
    return told


def _sentence(
    text: str, rules: Rules, name: str, rule: str, file: str, line: int, code: str
) -> str:
    where = f", line {line} of {Path(file).name}" if line else ""
    what = f"{rule}() of {name}" if rule else f"The rules of {name}"
    lines = [f"{what} cannot be compiled{where}: {_said(text)}", ""]
    if code:
        lines += [f"  line     {code}", ""]
    lines += [_advice(text, rules), "", "compiled=False runs the rules as they are."]
    return "\n".join(lines)


def _place(text: str, rules: Rules) -> tuple[str, int]:
    """Returns the file and line of numba's error.

    numba lists the innermost place first. Places in numba's own files are skipped,
    because the author cannot change them.
    """
    files = {function.__code__.co_filename for function in rules.functions().values()}
    places = [(file, int(line)) for file, line in _PLACE.findall(text)]
    known = {Path(file).resolve(): file for file in files}
    for file, line in places:
        path = Path(file).resolve()
        matching = [own for full, own in known.items() if _same(full, path)]
        if matching:
            return matching[0], line
    return "", 0


def _line_with(pattern: str, rules: Rules) -> tuple[str, int]:
    """Returns the file and number of the first line of the rules that matches."""
    for function in rules.functions().values():
        file = function.__code__.co_filename
        for number in _lines_of(function):
            if re.search(pattern, linecache.getline(file, number)):
                return file, number
    return "", 0


def _lines_of(function: Any) -> range:
    lines = [number for *_, number in function.__code__.co_lines() if number]
    return range(min(lines), max(lines) + 1)


def _same(full: Path, shown: Path) -> bool:
    # numba prints paths relative to the process's old folder, and some in part.
    return full == shown or full.name == shown.name


def _rule_around(rules: Rules, file: str, line: int) -> str:
    """Returns the rule that contains a line, or that calls the function around it."""
    for name, function in rules.functions().items():
        if function.__code__.co_filename == file and line in _lines_of(function):
            return name
    return ""


def _said(text: str) -> str:
    """Returns the line of numba's message that names the problem."""
    skipped = ("Failed in nopython", "During:", "File ", "There are ", "Rejected as")
    for line in text.splitlines():
        line = line.strip().lstrip("-> ").strip()
        if line and not line.startswith(skipped):
            return line if line.endswith(".") else f"{line}."
    return "numba does not say why."


def _advice(text: str, rules: Rules) -> str:
    fields = listed(map(str, rules.state))
    for pattern, sentence in _ADVICE:
        found: Any = re.search(pattern, text)
        if found:
            groups = [group or "" for group in found.groups()]
            return sentence.format(*groups, fields=fields).replace("  ", " ")
    return _OTHERWISE
