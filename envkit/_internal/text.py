"""Words for messages: articles, counts, lists of names, bounds, versions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from envkit._internal.entry_points import converter

if TYPE_CHECKING:
    from envkit.types import Array

__all__ = [
    "a_or_an",
    "bound_text",
    "counted",
    "facts_table",
    "first_line",
    "foreign",
    "how_to_adapt",
    "lines",
    "listed",
    "named_rows",
    "nearest",
    "paragraphs",
    "sentences",
    "suggestion",
    "version_of",
    "without_version",
]

_VERSION = re.compile(r"(?<=.)-v(0|[1-9][0-9]*)\Z")

# Other libraries have classes with these names too; envkit's modules for them.
_HOMES = {
    "ArraySpec": "envkit.specs",
    "BoundedArraySpec": "envkit.specs",
    "PyEnvironment": "envkit",
    "TimeStep": "envkit.time_step",
}


def a_or_an(noun: str) -> str:
    """Puts the article before a noun.

    Example:
        >>> a_or_an("list"), a_or_an("array")
        ('a list', 'an array')
    """
    # "A user", "a uint8": a u pronounced like "you" begins with a consonant.
    vowel = noun[:1].lower() in "aeiou" and not noun.lower().startswith(("us", "ui"))
    return f"{'an' if vowel else 'a'} {noun}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Puts a number before a noun.

    Example:
        >>> counted(1, "seed"), counted(2, "seed"), counted(3, "leaf", "leaves")
        ('1 seed', '2 seeds', '3 leaves')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"


def listed(names: Iterable[object], most: int = 8) -> str:
    """Lists names with commas; counts those after the first few.

    Example:
        >>> listed([1, 2]), listed(range(10), most=3)
        ('1, 2', '0, 1, 2 and 7 more')
    """
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} more"


def first_line(message: str) -> str:
    """Returns the first line of a message, which is complete in itself."""
    return message.partition("\n")[0]


def paragraphs(*parts: str) -> str:
    """Joins paragraphs, leaving out empty ones."""
    return "\n\n".join(filter(None, parts))


def lines(*parts: str) -> str:
    """Joins lines, leaving out empty ones."""
    return "\n".join(filter(None, parts))


def sentences(*parts: str) -> str:
    """Joins sentences, leaving out empty ones."""
    return " ".join(filter(None, parts))


def facts_table(*rows: tuple[str, str]) -> str:
    """Lays out names and values in two columns; leaves out empty values."""
    return "\n".join(
        f"  {name if number == 0 else '':<14}  {line}".rstrip()
        for name, text in rows
        if text
        for number, line in enumerate(text.splitlines())
    )


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Returns the names closest to a wrong one.

    Example:
        >>> nearest("num_env", ["num_envs", "num_workers"], most=1)
        ['num_envs']
    """
    import difflib

    spellings: dict[str, list[str]] = {}
    for other in known:
        spellings.setdefault(other.lower(), []).append(other)
    near = difflib.get_close_matches(name.lower(), list(spellings), n=most, cutoff=0.6)
    return [other for lowered in near for other in spellings[lowered]]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns a sentence that suggests the names closest to a wrong one, or "".

    Example:
        >>> suggestion("Cartpole", ["CartPole", "Catch"])
        " Did you mean 'CartPole'?"
    """
    near = nearest(name, known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def foreign(value: object) -> str:
    """Names a value of another library's class that shares its name with envkit's.

    The text says which import to change, and replaces the description of the value. It
    is empty for a value of any other class.

    Example:
        >>> ArraySpec = type("ArraySpec", (), {"__module__": "other.specs"})
        >>> foreign(ArraySpec()), foreign(3)
        ('an other.specs.ArraySpec (import ArraySpec from envkit.specs)', '')
    """
    kinds = [kind for kind in type(value).__mro__ if kind.__name__ in _HOMES]
    libraries = [kind.__module__.partition(".")[0] for kind in kinds]
    if not kinds or "envkit" in libraries:
        return ""
    name = kinds[0].__name__
    remedy = f"import {name} from {_HOMES[name]}"
    if name == "PyEnvironment" and libraries[0] == "tf_agents":
        remedy += f", or use {converter('tf-agents-environment')}"
    known_as = f"{kinds[0].__module__}.{name} ({remedy})"
    if kinds[0] is type(value):
        return a_or_an(known_as)
    return f"{a_or_an(type(value).__name__)} derived from {known_as}"


def how_to_adapt(thing: object) -> str:
    """Returns a sentence for an object that only resembles an environment, or "".

    Example:
        >>> class Game:
        ...     def reset(self): ...
        ...     def step(self, action): ...
        >>> how_to_adapt(Game())[:40], how_to_adapt(3)
        ('Its reset() and step() are not enough: d', '')
    """
    if isinstance(thing, type) or not all(
        callable(getattr(thing, name, None)) for name in ("reset", "step")
    ):
        return ""
    return (
        "Its reset() and step() are not enough: derive its class from PyEnvironment "
        "or gymnasium.Env, or write an Adapter (docs/supporting_a_new_library.md)."
    )


def bound_text(bound: Array) -> str:
    """Writes a bound in a few characters; a single number if all elements are equal.

    Example:
        >>> import numpy as np
        >>> bound_text(np.array([0.1, 0.7], np.float32)), bound_text(np.zeros(84))
        ('[0.1, 0.7]', '0.0')
    """
    if bound.size and (bound == bound.flat[0]).all():
        return str(bound.flat[0])
    if bound.size > 8:
        return f"[{bound.flat[0]!s} … {bound.flat[-1]!s}]"

    # Through text: a float32 of 0.7 is 0.699999988079071 to Python.
    def text(part: Any) -> str:
        if part.ndim == 0:
            return str(part[()])
        return f"[{', '.join(text(row) for row in part)}]"

    return text(bound)


def named_rows(rows: Any) -> str:
    """Returns row numbers for a message, such as "rows 1 and 3"."""
    return f"{'row' if rows.size == 1 else 'rows'} {listed(rows)}"


def version_of(identifier: str) -> int | None:
    """Returns the version at the end of an id.

    Example:
        >>> version_of("CartPole-v1"), version_of("my_package.envs:make")
        (1, None)
    """
    found = _VERSION.search(identifier)
    return int(found[1]) if found else None


def without_version(identifier: str) -> str:
    """Returns an id without its version."""
    return _VERSION.sub("", identifier)
