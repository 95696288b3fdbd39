"""Short names for constructors in messages, even if their arguments are large."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from envkit._internal.text import a_or_an, counted
from envkit.registry import Constructor

__all__ = [
    "describe_argument",
    "describe_constructor",
    "introduced",
    "kind_of",
    "shortened",
]

_LONGEST_DESCRIPTION = 160
_LONGEST_VALUE = 40
_MOST_ARGUMENTS = 8
_MOST_ELEMENTS = 4


def describe_constructor(constructor: Callable[..., Any]) -> str:
    """Names a constructor in a few words, for messages; never long, never raises.

    Example:
        >>> import functools
        >>> from fractions import Fraction
        >>> describe_constructor(functools.partial(Fraction, denominator=3))
        'functools.partial(fractions.Fraction, denominator=3)'
    """
    try:
        return shortened(_described(constructor), _LONGEST_DESCRIPTION)
    except Exception:  # Reading its attributes may raise.
        return a_or_an(f"{type(constructor).__name__} object")


def introduced(constructor: Any) -> str:
    """Returns the kind of a constructor and the place of its source."""
    if isinstance(constructor, functools.partial):
        return f"a functools.partial of {introduced(constructor.func)}"
    place = _place_of(constructor)
    return (
        f"{kind_of(constructor)} defined in {place}" if place else kind_of(constructor)
    )


def kind_of(value: Any) -> str:
    """Returns the kind of a value: "a lambda", "the class Maker", "a lock object"."""
    if _is_lambda(value):
        return "a lambda"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, types.FunctionType):
        return f"the function {value.__name__}"
    if isinstance(value, types.MethodType):
        return f"the method {value.__func__.__qualname__}"
    return a_or_an(f"{type(value).__name__} object")


def _is_lambda(value: Any) -> bool:
    """Returns True if a value is a lambda."""
    return isinstance(value, types.FunctionType) and value.__name__ == "<lambda>"


def _place_of(value: Any) -> str:
    """Returns the file and line of a function or class, as far as is known."""
    function = getattr(value, "__func__", value)
    if isinstance(function, types.FunctionType):
        code = function.__code__
        return _file_and_line(code.co_filename, code.co_firstlineno)
    if not isinstance(value, type):
        return ""
    import inspect

    try:
        file = inspect.getsourcefile(value) or ""
        return _file_and_line(file, inspect.getsourcelines(value)[1])
    except (OSError, TypeError):  # A class written in C, or the source is gone.
        return ""


def _file_and_line(file: str, line: int) -> str:
    if "ipykernel_" in file or file.startswith("<ipython-input"):
        return f"a notebook cell, line {line}"
    return f"{os.path.basename(file)}, line {line}"


def _described(value: Any) -> str:
    if isinstance(value, Constructor):
        # Its pickled form: the name, the builder, and the arguments.
        name, _, keywords, _ = value.__reduce__()[1]
        return f"constructor({_arguments([repr(name)], (), keywords)})"
    if isinstance(value, functools.partial):
        function = _described(value.func)
        return (
            f"functools.partial({_arguments([function], value.args, value.keywords)})"
        )
    if _is_lambda(value):
        return f"lambda in {_place_of(value)}"
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        kind = type(value)
        return a_or_an(f"{kind.__module__}.{kind.__qualname__} object")
    module = getattr(value, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) else name


def _arguments(
    texts: list[str], args: tuple[Any, ...], keywords: dict[str, Any]
) -> str:
    texts = [*texts, *map(describe_argument, args)]
    texts += [f"{name}={describe_argument(part)}" for name, part in keywords.items()]
    more = len(texts) - _MOST_ARGUMENTS
    return ", ".join(texts[:_MOST_ARGUMENTS] + ["…"] * (more > 0))


def describe_argument(value: Any, depth: int = 0) -> str:
    """Writes an argument in a few characters."""
    if isinstance(value, np.ndarray):
        return f"array(shape={value.shape}, dtype={value.dtype})"
    if isinstance(value, str | bytes):
        return shortened(
            repr(value[:_LONGEST_VALUE]) + "…" * (len(value) > _LONGEST_VALUE),
            _LONGEST_VALUE,
        )
    if isinstance(value, Enum):
        return str(value)
    if value is None or isinstance(value, bool | int | float | complex | np.generic):
        return shortened(repr(value), _LONGEST_VALUE)
    if isinstance(value, list | tuple | dict | set | frozenset):
        return _elements(value, depth)
    if callable(value):
        return _described(value)
    return f"<{type(value).__name__}>"


def _elements(value: Any, depth: int) -> str:
    kind = type(value)
    plain = kind in {list, tuple, dict} and depth < 2
    if not plain or len(value) > _MOST_ELEMENTS:
        return f"<{kind.__name__} of {counted(len(value), 'element')}>"
    if kind is dict:
        pairs = (
            f"{describe_argument(k, depth + 1)}: {describe_argument(v, depth + 1)}"
            for k, v in value.items()
        )
        return f"{{{', '.join(pairs)}}}"
    texts = ", ".join(describe_argument(part, depth + 1) for part in value)
    if kind is list:
        return f"[{texts}]"
    return f"({texts},)" if len(value) == 1 else f"({texts})"


def shortened(text: str, longest: int) -> str:
    """Cuts a text off after `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
