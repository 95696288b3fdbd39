"""Kernels: plain Python loops over columns that numba can compile.

A kernel is an ordinary function of arrays and numbers. Uncompiled it runs slowly, and
the compiled one must equal it in every bit. So numba may not reorder arithmetic here,
nor fuse a multiplication and an addition.

Each kernel is compiled once per process, and kept on disk in the user's cache folder.
The file's name is a fingerprint of everything the kernel depends on: its bytecode, the
bytecode of the functions it calls, and the constants of both. numba's own cache
identifies a kernel by its source file alone, and would miss a change to a function in
another file.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import MissingDependencyError

__all__ = ["Kernels", "compiled", "fingerprint", "numba_for"]

_LOG = logging.getLogger(__name__)

# Packages identified by their version alone.
_VERSIONED = ("numpy", "numba", "envkit")


@dataclass(frozen=True, slots=True)
class Kernels:
    """Holds a built-in environment's kernels: its three methods, written as loops.

    If one is `None`, the method itself is called. Each kernel gets the environment's
    state arrays and then its parameters, in the order in which the class lists them.

    Attributes:
        begin: Takes the rows, then the positions and keys of all streams.
        advance: Takes the actions, the live rows, positions and keys, and the arrays of
            rewards and terminations to fill.
        observe: Takes the rows that have terminated, and last the leaves of the
            observation to fill.
    """

    begin: Callable[..., None] | None = None
    advance: Callable[..., None] | None = None
    observe: Callable[..., None] | None = None

    def compiled(self, what: str) -> Kernels:
        """Returns these kernels compiled; errors name `what`."""
        numba_for(what)
        return Kernels(
            *(
                kernel and compiled(kernel)
                for kernel in (self.begin, self.advance, self.observe)
            )
        )


def numba_for(what: str) -> Any:
    """Returns the package numba; the error says how to install it."""
    try:
        import numba
    except ModuleNotFoundError as error:
        if error.name not in {"numba", "llvmlite"}:
            raise
        raise MissingDependencyError.needed_by(
            what, package="numba", extra="numba"
        ) from error
    return numba


def compiled(
    kernel: Callable[..., Any],
    *,
    bounds_checked: bool = False,
    like_python: bool = False,
) -> Any:
    """Returns a function compiled by numba, with the functions that it calls.

    Those need no decorator: plain functions among a kernel's globals, or in its
    closure, are compiled with it.

    Args:
        kernel: A function that numba can compile.
        bounds_checked: Whether an index out of range raises an IndexError.
        like_python: Whether division by zero raises a ZeroDivisionError instead of
            giving NumPy's result.
    """
    key = fingerprint(kernel)
    # Without a fingerprint, it depends on these very objects.
    manner = _Manner(bounds_checked, "python" if like_python else "numpy")
    place = (kernel if key is None else key, manner)
    known = _COMPILED.get(place)
    if known is None:
        known = _COMPILED[place] = _compiled_anew(kernel, manner, key)
    return known


class _Manner(NamedTuple):
    """Holds the compiler options of a kernel."""

    boundscheck: bool
    error_model: str


_COMPILED: dict[tuple[Any, _Manner], Any] = {}


def _compiled_anew(kernel: Any, manner: _Manner, key: str | None) -> Any:
    numba = numba_for("compiled()")
    checked = "_checked" if manner.boundscheck else ""
    stub = None if key is None else _stub(f"{key}_{manner.error_model}{checked}")
    decorate = functools.partial(
        numba.njit,
        nogil=True,  # a batch's arrays are stepped by one thread
        fastmath=False,
        **manner._asdict(),
    )
    return _Binder(decorate, stub).bound(kernel)


class _Binder:
    """Makes copies of functions whose names refer to compiled functions."""

    def __init__(self, decorate: Callable[..., Any], stub: Path | None) -> None:
        self._decorate = decorate
        self._stub = stub
        self._known: dict[FunctionType, Any] = {}

    def bound(self, function: FunctionType) -> Any:
        """Returns a compiled function; the first one is cached on disk."""
        if function in self._known:
            return self._known[function]
        is_first, code = not self._known, function.__code__
        is_kept = is_first and self._stub is not None
        if is_kept:
            # numba keeps compiled code beside the file named in the code object.
            code = code.replace(co_filename=str(self._stub))
        scope = dict(_globals_of(function))
        cells = tuple(
            CellType(cell.cell_contents) for cell in function.__closure__ or ()
        )
        twin = FunctionType(
            code, scope, function.__name__, function.__defaults__, cells or None
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
        self._known[function] = result = self._decorate(cache=is_kept)(twin)
        # Registered before compiling, because a function may call itself.
        for name, value in scope.items():
            if isinstance(value, FunctionType):
                scope[name] = self.bound(value)
        for cell in cells:
            if isinstance(cell.cell_contents, FunctionType):
                cell.cell_contents = self.bound(cell.cell_contents)
        scope["__builtins__"] = builtins
        scope["__name__"] = function.__module__
        return result


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields the globals that a function uses, with their values."""
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _global_names(code: CodeType) -> set[str]:
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


# The dependencies of a kernel, as text.


class _Opaque(Exception):
    """Marks an object that cannot be described by its content."""


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Returns a name for a function's computation, equal in every process.

    The name changes with the bytecode of the function and of the functions it calls,
    and the constants they use. It is `None` if any of them uses an object that cannot
    be described this way.

    Example:
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
        True
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
        False
    """
    import hashlib

    digest = hashlib.sha256(repr((sys.version_info, np.__version__)).encode())
    try:
        for part in _parts(function, set()):
            digest.update(part.encode() + b"\0")
    except _Opaque as opaque:
        _LOG.debug("%r is not kept on disk: it depends on %s", function, opaque)
        return None
    return digest.hexdigest()[:32]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yields the parts that identify a value, in order."""
    if isinstance(value, FunctionType):
        if id(value) not in seen:  # else the function calls itself
            seen.add(id(value))
            yield from _parts_of_function(value, seen)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        if isinstance(value, enum.Enum):
            yield f"{type(value).__qualname__}.{value.name}"
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, tuple | frozenset):
        items = sorted(value, key=repr) if isinstance(value, frozenset) else value
        yield f"{type(value).__qualname__} of {len(items)}"
        for item in items:
            yield from _parts(item, seen)
    elif isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            raise _Opaque(f"an array of {value.dtype}")
        yield f"{value.dtype.str} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, np.dtype):
        yield f"{value!r} {value.alignment} {value.itemsize}"
    elif isinstance(value, CodeType):
        yield from _parts_of_code(value, seen)
    else:
        yield _named(value)


def _parts_of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    if function.__module__ not in sys.modules:
        # numba reloads the module together with its cached code.
        raise _Opaque(f"the module {function.__module__}, which is missing")
    # Compiled code contains these names.
    yield f"{function.__module__} {function.__qualname__}"
    yield from _parts_of_code(function.__code__, seen)
    yield from _parts(function.__defaults__, seen)
    for name, default in (function.__kwdefaults__ or {}).items():
        yield name
        yield from _parts(default, seen)
    for name, value in _globals_of(function):
        yield name
        yield from _parts(value, seen)
    for cell in function.__closure__ or ():
        yield from _parts(cell.cell_contents, seen)


def _parts_of_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        yield from _parts(constant, seen)


def _named(value: Any) -> str:
    """Names a library's module, class or function; its version identifies the rest."""
    if isinstance(value, ModuleType):
        name = value.__name__
        file = getattr(value, "__file__", None)
        package = name.partition(".")[0]
        if package in sys.stdlib_module_names or package in _VERSIONED or not file:
            return f"module {name} {getattr(value, '__version__', '')}"
        # Its constants may be used, so its content counts.
        return f"module {name} {Path(file).read_bytes().hex()}"
    inside = getattr(value, "py_func", None)  # compiled by its author
    if inside is not None:
        return f"compiled {fingerprint(inside) or _opaque(value)}"
    qualified = getattr(value, "__qualname__", None)
    if isinstance(value, enum.EnumMeta):
        return f"{qualified} {list(value.__members__.items())}"
    if isinstance(value, type) and hasattr(value, "_fields"):
        return f"{qualified} {value._fields}"
    package = str(getattr(value, "__module__", "") or "").partition(".")[0]
    if package in sys.stdlib_module_names or package in _VERSIONED:
        return f"{package} {qualified or _opaque(value)}"
    return _opaque(value)


def _opaque(value: Any) -> str:
    raise _Opaque(repr(value))


def _stub(key: str) -> Path | None:
    """Returns the file beside which numba keeps compiled code; `None` if impossible."""
    import tempfile

    from numba.misc.appdirs import AppDirs

    folder = Path(AppDirs("envkit", appauthor=False).user_cache_dir) / "kernels"
    stub = folder / f"k{key}.py"
    if stub.exists():
        return stub
    try:
        (folder / "__pycache__").mkdir(parents=True, exist_ok=True)
        # Written atomically: another process may look for it.
        number, name = tempfile.mkstemp(dir=folder)
        os.close(number)
        os.replace(name, stub)
    except OSError as error:
        _LOG.debug("compiled kernels are not kept on disk: %s", error)
        return None
    return stub
